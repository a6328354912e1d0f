//! A session's subscriptions: adding, removing, and the messages that come of them.
//!
//! Must not know: who publishes.

use std::sync::{Arc, atomic::Ordering};

use indexmap::IndexSet;
use redline_resp::{Args, Proto};

use crate::{
    pubsub::{Delivery, Kind},
    session::{Session, flag, state},
    worker::Worker,
};

/// Subscriptions of a session, each kind about in the order in which it came: a client may have tens of thousands, and each
/// message is checked for whether it is still wanted.
#[derive(Default)]
pub struct Subscriptions {
    channels: IndexSet<Arc<[u8]>>,
    patterns: IndexSet<Arc<[u8]>>,
    /// Of shards (SSUBSCRIBE).
    shard_channels: IndexSet<Arc<[u8]>>,
}

impl Subscriptions {
    /// Those of one kind.
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

/// Subscribes, and confirms it.
pub fn add(worker: &mut Worker, session: &mut Session, kind: Kind, name: &[u8]) {
    let token = session.card.token();
    let pubsub = &worker.shared.pubsub;
    let names = session.subscriptions.get_or_insert_default().of_mut(kind);
    if !names.contains(name) {
        let name: Arc<[u8]> = name.into();
        pubsub.subscribe(kind, &name, token);
        names.insert(name.clone());
        session.note_registered(&name);
    }
    let word = match kind {
        Kind::Channel => "subscribe",
        Kind::Pattern => "psubscribe",
        Kind::Shard => "ssubscribe",
    };
    confirm(session, kind, word, Some(name));
    note(session);
}

/// Unsubscribes from these, or from all if none is named, and confirms each.
pub fn remove(worker: &mut Worker, session: &mut Session, kind: Kind, wanted: Args<'_>) {
    let word = match kind {
        Kind::Channel => "unsubscribe",
        Kind::Pattern => "punsubscribe",
        Kind::Shard => "sunsubscribe",
    };
    let all: Vec<Arc<[u8]>>;
    let mut list: Vec<&[u8]> = wanted.iter().collect();
    if list.is_empty() {
        let subscriptions = session.subscriptions.as_deref();
        all = subscriptions.map_or_else(Vec::new, |all| all.of(kind).iter().cloned().collect());
        list = all.iter().map(|name| &**name).collect();
        if list.is_empty() {
            confirm(session, kind, word, None);
        }
    }
    for name in list {
        let subscriptions = session.subscriptions.as_deref_mut();
        if let Some(name) = subscriptions.and_then(|all| all.of_mut(kind).swap_take(name)) {
            leave(worker, session, kind, &name);
        }
        confirm(session, kind, word, Some(name));
    }
    note(session);
}

/// Ends all subscriptions without a word (RESET, the end of the connection).
pub fn forget(worker: &mut Worker, session: &mut Session) {
    let Some(mut all) = session.subscriptions.take() else {
        return;
    };
    for kind in [Kind::Channel, Kind::Shard, Kind::Pattern] {
        for name in std::mem::take(all.of_mut(kind)) {
            leave(worker, session, kind, &name);
        }
    }
    note(session);
}

/// Does it still want what was published to it? Between the two it may have unsubscribed.
pub fn is_subscribed(session: &Session, delivery: &Delivery) -> bool {
    let subscriptions = session.subscriptions.as_deref();
    subscriptions.is_some_and(|all| all.of(delivery.kind).contains(&delivery.name))
}

/// Writes a published message to a subscriber.
pub fn write_message(session: &mut Session, delivery: &Delivery) {
    let mut reply = session.reply();
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

fn leave(worker: &Worker, session: &mut Session, kind: Kind, name: &Arc<[u8]>) {
    session.note_unregistered(name);
    let pubsub = &worker.shared.pubsub;
    pubsub.unsubscribe(kind, name, session.card.token());
}

/// How many there are of a kind.
fn count(session: &Session, kind: Kind) -> usize {
    let subscriptions = session.subscriptions.as_deref();
    subscriptions.map_or(0, |all| all.of(kind).len())
}

fn confirm(session: &mut Session, kind: Kind, word: &str, name: Option<&[u8]>) {
    // Subscriptions to shards are counted by themselves.
    let left = match kind {
        Kind::Shard => count(session, Kind::Shard),
        _ => count(session, Kind::Channel) + count(session, Kind::Pattern),
    };
    let mut reply = session.reply();
    reply.push(3);
    reply.bulk(word.as_bytes());
    match name {
        Some(name) => reply.bulk(name),
        None => reply.null(),
    }
    reply.integer(left as i64);
    let reply_is_unwanted = session.is(state::REPLY);
    session.set_state(state::CONFIRMED, reply_is_unwanted);
}

fn note(session: &mut Session) {
    let [channels, patterns, shard_channels] =
        [Kind::Channel, Kind::Pattern, Kind::Shard].map(|kind| count(session, kind) as u32);
    let subscribed = channels + patterns + shard_channels > 0;
    if !subscribed {
        session.subscriptions = None;
    }
    session.set_state(state::LISTENS, subscribed);
    session.set_state(
        state::SUBSCRIBED,
        subscribed && session.proto == Proto::Resp2,
    );
    let card = &session.card;
    card.set_flag(flag::PUBSUB, subscribed);
    card.channels.store(channels, Ordering::Relaxed);
    card.patterns.store(patterns, Ordering::Relaxed);
    card.shard_channels.store(shard_channels, Ordering::Relaxed);
}
