//! A session's subscriptions: adding, removing, and the messages that come of them.
//!
//! Must not know: who publishes.

use std::sync::{Arc, atomic::Ordering};

use redline_resp::{Args, Proto};

use crate::{
    pubsub::{Delivery, Kind},
    session::{Session, flag, state},
    worker::Worker,
};

/// Subscribes, and confirms it.
pub fn add(worker: &mut Worker, session: &mut Session, kind: Kind, name: &[u8]) {
    let token = session.card.token;
    let pubsub = &worker.shared.pubsub;
    let names = names(session, kind);
    if !names.iter().any(|known| **known == *name) {
        let name: Arc<[u8]> = name.into();
        pubsub.subscribe(kind, &name, token);
        names.push(name.clone());
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
        all = names(session, kind).clone();
        list = all.iter().map(|name| &**name).collect();
        if list.is_empty() {
            confirm(session, kind, word, None);
        }
    }
    for name in list {
        if let Some(at) = names(session, kind)
            .iter()
            .position(|known| **known == *name)
        {
            let name = names(session, kind).remove(at);
            leave(worker, session, kind, &name);
        }
        confirm(session, kind, word, Some(name));
    }
    note(session);
}

/// Ends all subscriptions without a word (RESET, the end of the connection).
pub fn forget(worker: &mut Worker, session: &mut Session) {
    for kind in [Kind::Channel, Kind::Shard, Kind::Pattern] {
        for name in std::mem::take(names(session, kind)) {
            leave(worker, session, kind, &name);
        }
    }
    note(session);
}

/// Does it still want what was published to it? Between the two it may have unsubscribed.
pub fn is_subscribed(session: &Session, delivery: &Delivery) -> bool {
    let names = match delivery.kind {
        Kind::Channel => &session.channels,
        Kind::Pattern => &session.patterns,
        Kind::Shard => &session.shard_channels,
    };
    let name = &delivery.name;
    names
        .iter()
        .any(|known| Arc::ptr_eq(known, name) || known == name)
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
    pubsub.unsubscribe(kind, name, session.card.token);
}

fn names(session: &mut Session, kind: Kind) -> &mut Vec<Arc<[u8]>> {
    match kind {
        Kind::Channel => &mut session.channels,
        Kind::Pattern => &mut session.patterns,
        Kind::Shard => &mut session.shard_channels,
    }
}

fn confirm(session: &mut Session, kind: Kind, word: &str, name: Option<&[u8]>) {
    // Subscriptions to shards are counted by themselves.
    let count = match kind {
        Kind::Shard => session.shard_channels.len(),
        _ => session.channels.len() + session.patterns.len(),
    };
    let mut reply = session.reply();
    reply.push(3);
    reply.bulk(word.as_bytes());
    match name {
        Some(name) => reply.bulk(name),
        None => reply.null(),
    }
    reply.integer(count as i64);
    let reply_is_unwanted = session.is(state::REPLY);
    session.set_state(state::CONFIRMED, reply_is_unwanted);
}

fn note(session: &mut Session) {
    let subscribed = !session.channels.is_empty()
        || !session.patterns.is_empty()
        || !session.shard_channels.is_empty();
    session.set_state(state::LISTENS, subscribed);
    session.set_state(
        state::SUBSCRIBED,
        subscribed && session.proto == Proto::Resp2,
    );
    session.card.set_flag(flag::PUBSUB, subscribed);
    session
        .card
        .channels
        .store(session.channels.len() as u32, Ordering::Relaxed);
    session
        .card
        .patterns
        .store(session.patterns.len() as u32, Ordering::Relaxed);
    session
        .card
        .shard_channels
        .store(session.shard_channels.len() as u32, Ordering::Relaxed);
}
