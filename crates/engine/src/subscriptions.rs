//! A session's subscriptions: adding, removing, and writing the published messages.
//!
//! Must not know: the publishers.

use std::sync::{Arc, atomic::Ordering};

use indexmap::IndexSet;
use redline_resp::{Args, Proto};

use crate::{
    caller::{Caller, flag, state},
    executor::{Executor, Outlet},
    pubsub::{Delivery, Kind},
};

/// Subscriptions of a session, each kind about in the order of arrival: a client may have tens of thousands, and each
/// message is checked against them.
#[derive(Default)]
pub struct Subscriptions {
    channels: IndexSet<Arc<[u8]>>,
    patterns: IndexSet<Arc<[u8]>>,
    /// Shard channels (SSUBSCRIBE).
    shard_channels: IndexSet<Arc<[u8]>>,
}

impl Subscriptions {
    /// Returns those of one kind.
    pub fn of(&self, kind: Kind) -> &IndexSet<Arc<[u8]>> {
        match kind {
            Kind::Channel => &self.channels,
            Kind::Pattern => &self.patterns,
            Kind::Shard => &self.shard_channels,
        }
    }

    fn of_mut(&mut self, kind: Kind) -> &mut IndexSet<Arc<[u8]>> {
        match kind {
            Kind::Channel => &mut self.channels,
            Kind::Pattern => &mut self.patterns,
            Kind::Shard => &mut self.shard_channels,
        }
    }
}

/// Subscribes, and writes the confirmation.
pub fn add<O: Outlet>(
    executor: &mut Executor<'_, O>,
    caller: &mut Caller,
    kind: Kind,
    name: &[u8],
) {
    let token = caller.info.token();
    let pubsub = &executor.engine.pubsub;
    let names = caller.subscriptions.get_or_insert_default().of_mut(kind);
    if !names.contains(name) {
        let name: Arc<[u8]> = name.into();
        pubsub.subscribe(kind, &name, token);
        names.insert(name.clone());
        caller.note_registered(&name);
    }
    let word = match kind {
        Kind::Channel => "subscribe",
        Kind::Pattern => "psubscribe",
        Kind::Shard => "ssubscribe",
    };
    confirm(caller, kind, word, Some(name));
    note(caller);
}

/// Unsubscribes from these names, or from all if none is given, and confirms each.
pub fn remove<O: Outlet>(
    executor: &mut Executor<'_, O>,
    caller: &mut Caller,
    kind: Kind,
    wanted: Args<'_>,
) {
    let word = match kind {
        Kind::Channel => "unsubscribe",
        Kind::Pattern => "punsubscribe",
        Kind::Shard => "sunsubscribe",
    };
    let all: Vec<Arc<[u8]>>;
    let mut list: Vec<&[u8]> = wanted.iter().collect();
    if list.is_empty() {
        let subscriptions = caller.subscriptions.as_deref();
        all = subscriptions.map_or_else(Vec::new, |all| all.of(kind).iter().cloned().collect());
        list = all.iter().map(|name| &**name).collect();
        if list.is_empty() {
            confirm(caller, kind, word, None);
        }
    }
    for name in list {
        let subscriptions = caller.subscriptions.as_deref_mut();
        if let Some(name) = subscriptions.and_then(|all| all.of_mut(kind).swap_take(name)) {
            leave(executor, caller, kind, &name);
        }
        confirm(caller, kind, word, Some(name));
    }
    note(caller);
}

/// Ends all subscriptions without a confirmation (RESET, the end of the connection).
pub fn forget<O: Outlet>(executor: &mut Executor<'_, O>, caller: &mut Caller) {
    let Some(mut all) = caller.subscriptions.take() else {
        return;
    };
    for kind in [Kind::Channel, Kind::Shard, Kind::Pattern] {
        for name in std::mem::take(all.of_mut(kind)) {
            leave(executor, caller, kind, &name);
        }
    }
    note(caller);
}

/// Returns true if it is still subscribed to a message's source. It may have unsubscribed after the publication.
pub fn is_subscribed(caller: &Caller, delivery: &Delivery) -> bool {
    let subscriptions = caller.subscriptions.as_deref();
    subscriptions.is_some_and(|all| all.of(delivery.kind).contains(&delivery.name))
}

/// Writes a published message to a subscriber.
pub fn write_message(caller: &mut Caller, delivery: &Delivery) {
    let mut reply = caller.reply();
    reply.push(if delivery.kind == Kind::Pattern { 4 } else { 3 });
    match delivery.kind {
        Kind::Channel => reply.bulk(b"message"),
        Kind::Shard => reply.bulk(b"smessage"),
        Kind::Pattern => {
            reply.bulk(b"pmessage");
            reply.bulk(&delivery.name);
        }
    }
    reply.bulk(&delivery.channel);
    reply.bulk(&delivery.payload);
}

fn leave<O: Outlet>(executor: &Executor<'_, O>, caller: &mut Caller, kind: Kind, name: &Arc<[u8]>) {
    caller.note_unregistered(name);
    let pubsub = &executor.engine.pubsub;
    pubsub.unsubscribe(kind, name, caller.info.token());
}

/// Returns the number of subscriptions of a kind.
fn count(caller: &Caller, kind: Kind) -> usize {
    let subscriptions = caller.subscriptions.as_deref();
    subscriptions.map_or(0, |all| all.of(kind).len())
}

fn confirm(caller: &mut Caller, kind: Kind, word: &str, name: Option<&[u8]>) {
    // Subscriptions to shards are counted separately.
    let left = match kind {
        Kind::Shard => count(caller, Kind::Shard),
        _ => count(caller, Kind::Channel) + count(caller, Kind::Pattern),
    };
    let mut reply = caller.reply();
    reply.push(3);
    reply.bulk(word.as_bytes());
    match name {
        Some(name) => reply.bulk(name),
        None => reply.null(),
    }
    reply.integer(left as i64);
    let reply_is_unwanted = caller.is(state::REPLY);
    caller.set_state(state::CONFIRMED, reply_is_unwanted);
}

fn note(caller: &mut Caller) {
    let [channels, patterns, shard_channels] =
        [Kind::Channel, Kind::Pattern, Kind::Shard].map(|kind| count(caller, kind) as u32);
    let subscribed = channels + patterns + shard_channels > 0;
    if !subscribed {
        caller.subscriptions = None;
    }
    caller.set_state(state::LISTENS, subscribed);
    caller.set_state(
        state::SUBSCRIBED,
        subscribed && caller.proto == Proto::Resp2,
    );
    let info = &caller.info;
    info.set_flag(flag::PUBSUB, subscribed);
    info.channels.store(channels, Ordering::Relaxed);
    info.patterns.store(patterns, Ordering::Relaxed);
    info.shard_channels.store(shard_channels, Ordering::Relaxed);
}
