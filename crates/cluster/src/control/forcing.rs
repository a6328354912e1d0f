//! T15: an operator has a node take its shard over, of which nobody is left who leads it or may take over.
//!
//! What only those had is lost, so nobody else orders it. They have to be away when it is ordered, for two promises' lengths, and
//! in the transaction.
//!
//! Must not know: how those who are level take over.

use std::collections::BTreeSet;

use super::{Control, Purpose, Refusal, Role, Wish, changes};
use crate::records::ShardRecord;

/// Takes the order.
pub(super) fn begin(control: &mut Control, number: u64) {
    match control.forcing {
        None => control.forcing = Some((number, control.now_ms)),
        Some(_) => end(control, number, Err(Refusal::TooMany)),
    }
}

/// Carries the order out, if it is time to.
pub(super) fn go_on(control: &mut Control) {
    let Some((number, since_ms)) = control.forcing else {
        return;
    };
    let (shard, record) = match taken(control) {
        Ok(Some(taken)) => taken,
        ended => {
            control.forcing = None;
            return end(control, number, ended.map(drop));
        }
    };
    let now_ms = control.now_ms;
    let is_due = now_ms > since_ms + 2 * control.settings.promise_ms;
    if !is_due || now_ms <= control.promised_until_ms || !control.desk.is_free() {
        return;
    }
    control.forcing = None;
    let me = &control.me;
    let old = std::iter::once(&record.primary).chain(&record.candidates);
    let nodes: BTreeSet<&String> = old.map(|it| &it.node).collect();
    let others = nodes.into_iter().filter(|node| **node != me.node);
    let others: Vec<String> = others.cloned().collect();
    let next = record.led_by(me);
    let change = changes::take_up(&control.known, &shard, &next, &others);
    control.propose(Purpose::Order(number), change);
}

/// Returns the shard that is to be taken. `None`: this node has become its primary meanwhile.
fn taken(control: &Control) -> Result<Option<(String, ShardRecord)>, Refusal> {
    let (shard, record) = match &control.role {
        Role::None => return Err(Refusal::NoShard),
        Role::Primary(_) => return Ok(None),
        Role::Replica(following) if !following.is_whole() => return Err(Refusal::NotWhole),
        Role::Replica(following) => (&following.shard, &following.record),
        Role::Returned { shard, record } => (shard, record),
    };
    match control.known.alive_in_shard(record, &control.me.node) {
        Some(node) => Err(Refusal::Alive(node)),
        None => Ok(Some((shard.clone(), record.clone()))),
    }
}

fn end(control: &mut Control, number: u64, result: Result<(), Refusal>) {
    control.wishes.push(Wish::Done { number, result });
}
