//! A session's subscriptions: adding, removing, and the messages that come of them.
//!
//! Must not know: who publishes.

use std::sync::{Arc, atomic::Ordering};

use redline_resp::{Args, Proto};

use crate::{
    pubsub::Delivery,
    session::{Session, flag, state},
    worker::Worker,
};

/// What is subscribed to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// A channel by its name.
    Channel,
    /// Every channel that matches.
    Pattern,
}

/// Subscribes, and confirms it.
pub fn add(worker: &mut Worker, session: &mut Session, kind: Kind, name: &[u8]) {
    let token = session.card.token;
    let pubsub = &worker.shared.pubsub;
    let names = names(session, kind);
    if !names.iter().any(|known| **known == *name) {
        let name: Arc<[u8]> = name.into();
        match kind {
            Kind::Channel => pubsub.subscribe(&name, token),
            Kind::Pattern => pubsub.psubscribe(&name, token),
        }
        names.push(name);
    }
    let word = if kind == Kind::Channel {
        "subscribe"
    } else {
        "psubscribe"
    };
    confirm(session, word, Some(name));
    note(session);
}

/// Unsubscribes from these, or from all if none is named, and confirms each.
pub fn remove(worker: &mut Worker, session: &mut Session, kind: Kind, wanted: Args<'_>) {
    let word = if kind == Kind::Channel {
        "unsubscribe"
    } else {
        "punsubscribe"
    };
    let all: Vec<Arc<[u8]>>;
    let mut list: Vec<&[u8]> = wanted.iter().collect();
    if list.is_empty() {
        all = names(session, kind).clone();
        list = all.iter().map(|name| &**name).collect();
        if list.is_empty() {
            confirm(session, word, None);
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
        confirm(session, word, Some(name));
    }
    note(session);
}

/// Ends all subscriptions without a word (RESET, the end of the connection).
pub fn forget(worker: &mut Worker, session: &mut Session) {
    for kind in [Kind::Channel, Kind::Pattern] {
        for name in std::mem::take(names(session, kind)) {
            leave(worker, session, kind, &name);
        }
    }
    note(session);
}

/// Does it still want what was published to it? Between the two it may have unsubscribed.
pub fn is_subscribed(session: &Session, delivery: &Delivery) -> bool {
    let (names, name) = match &delivery.pattern {
        None => (&session.channels, &delivery.channel),
        Some(pattern) => (&session.patterns, pattern),
    };
    names
        .iter()
        .any(|known| Arc::ptr_eq(known, name) || known == name)
}

/// Writes a published message to a subscriber.
pub fn write_message(session: &mut Session, delivery: &Delivery) {
    let mut reply = session.reply();
    match &delivery.pattern {
        None => {
            reply.push(3);
            reply.bulk(b"message");
        }
        Some(pattern) => {
            reply.push(4);
            reply.bulk(b"pmessage");
            reply.bulk(pattern);
        }
    }
    reply.bulk(&delivery.channel);
    reply.bulk(&delivery.payload);
}

fn leave(worker: &Worker, session: &Session, kind: Kind, name: &Arc<[u8]>) {
    match kind {
        Kind::Channel => worker.shared.pubsub.unsubscribe(name, session.card.token),
        Kind::Pattern => worker.shared.pubsub.punsubscribe(name, session.card.token),
    }
}

fn names(session: &mut Session, kind: Kind) -> &mut Vec<Arc<[u8]>> {
    match kind {
        Kind::Channel => &mut session.channels,
        Kind::Pattern => &mut session.patterns,
    }
}

fn confirm(session: &mut Session, word: &str, name: Option<&[u8]>) {
    let count = session.channels.len() + session.patterns.len();
    let mut reply = session.reply();
    reply.push(3);
    reply.bulk(word.as_bytes());
    match name {
        Some(name) => reply.bulk(name),
        None => reply.null(),
    }
    reply.integer(count as i64);
}

fn note(session: &mut Session) {
    let subscribed = !session.channels.is_empty() || !session.patterns.is_empty();
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
}
