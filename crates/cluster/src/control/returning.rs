//! T9: nodes that have been started again take their shard up, with what their files hold.
//!
//! A primary without candidates goes on from its files. If all candidates have been started again as well, the one whose files
//! hold most does.
//!
//! Must not know: how those take over that were not started again.

use super::{Control, Place, Purpose, Role, changes};
use crate::records::{ALIVE, Alive, ShardRecord};

/// Takes the shard up whose primary an earlier run of this node was, if it is the one to do it.
pub(super) fn go_on(control: &mut Control) {
    let Role::Returned { shard, record } = &control.role else {
        return;
    };
    let (shard, record) = (shard.clone(), record.clone());
    let holds = control.files.unwrap_or_default();
    take_up(control, &shard, &record, holds);
}

/// Takes a shard up with files that hold this, if this node is the one to do it.
pub(super) fn take_up(control: &mut Control, shard: &str, record: &ShardRecord, holds: Place) {
    // Without files of this term: a replica may hold what they lack, and whether to give that up is not decided here.
    let is_short = holds.term < record.term && !record.replicas.is_empty();
    if is_short || !control.desk.is_free() {
        return;
    }
    let me = &control.me;
    let old = std::iter::once(&record.primary).chain(&record.candidates);
    let mut nodes: Vec<String> = Vec::new();
    for it in old {
        let key = format!("{ALIVE}{}", it.node);
        let Some(alive) = control.known.record::<Alive>(&key) else {
            return;
        };
        let (term, offset) = alive.files.unwrap_or((0, 0));
        let theirs = (Place { term, offset }, &me.node);
        if alive.incarnation == it.incarnation || it.node != me.node && theirs > (holds, &it.node) {
            return;
        }
        if it.node == me.node && alive.incarnation != me.incarnation {
            return;
        }
        nodes.push(it.node.clone());
    }
    nodes.sort();
    nodes.dedup();
    let next = record.led_by(me);
    let change = changes::take_up(&control.known, shard, &next, &nodes);
    control.propose(Purpose::TakeUp, change);
}
