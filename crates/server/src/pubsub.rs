//! Who listens to which channel, and the delivery of what is published.
//!
//! A message goes to the mailbox of each worker that has a subscriber, while the channel's lock is held: so
//! all subscribers of a channel see its messages in one order. Must not know: sockets, keys.

use std::{
    collections::HashMap,
    sync::{
        Arc, Mutex, RwLock,
        atomic::{AtomicUsize, Ordering},
    },
};

use redline_types::glob::{self, Case};

use crate::{
    session::Token,
    shared::{Message, WorkerHandle},
};

/// Channels are spread over so many locks.
const SHARDS: usize = 64;

type Subscribers = HashMap<Arc<[u8]>, Vec<Token>>;

/// The registry.
pub struct PubSub {
    shards: Box<[Mutex<Subscribers>]>,
    patterns: RwLock<Subscribers>,
    pattern_count: AtomicUsize,
}

impl Default for PubSub {
    fn default() -> Self {
        PubSub {
            shards: (0..SHARDS).map(|_| Mutex::default()).collect(),
            patterns: RwLock::default(),
            pattern_count: AtomicUsize::new(0),
        }
    }
}

/// One message on its way to the subscribers of one worker.
#[derive(Clone)]
pub struct Delivery {
    /// Who gets it.
    pub to: Vec<Token>,
    /// The pattern that matched; `None` for subscribers of the channel itself.
    pub pattern: Option<Arc<[u8]>>,
    /// The channel.
    pub channel: Arc<[u8]>,
    /// The message.
    pub payload: Arc<[u8]>,
}

impl PubSub {
    /// Adds a subscriber to a channel.
    pub fn subscribe(&self, channel: &Arc<[u8]>, who: Token) {
        let mut shard = self.shard(channel);
        shard.entry(channel.clone()).or_default().push(who);
    }

    /// Takes a subscriber off a channel.
    pub fn unsubscribe(&self, channel: &Arc<[u8]>, who: Token) {
        remove(&mut self.shard(channel), channel, who);
    }

    /// Adds a subscriber to a pattern.
    pub fn psubscribe(&self, pattern: &Arc<[u8]>, who: Token) {
        let mut patterns = self.patterns.write().expect("no panic under the patterns");
        patterns.entry(pattern.clone()).or_default().push(who);
        self.pattern_count.store(patterns.len(), Ordering::Release);
    }

    /// Takes a subscriber off a pattern.
    pub fn punsubscribe(&self, pattern: &Arc<[u8]>, who: Token) {
        let mut patterns = self.patterns.write().expect("no panic under the patterns");
        remove(&mut patterns, pattern, who);
        self.pattern_count.store(patterns.len(), Ordering::Release);
    }

    /// Publishes; returns how many subscribers get it.
    pub fn publish(&self, workers: &[WorkerHandle], channel: &[u8], payload: &[u8]) -> usize {
        let shard = self.shard(channel);
        let direct = shard.get(channel);
        if direct.is_none() && self.pattern_count.load(Ordering::Acquire) == 0 {
            return 0;
        }
        let channel: Arc<[u8]> = channel.into();
        let payload: Arc<[u8]> = payload.into();
        let mut receivers = 0;
        if let Some(tokens) = direct {
            receivers += tokens.len();
            deliver(workers, tokens, None, &channel, &payload);
        }
        let patterns = self.patterns.read().expect("no panic under the patterns");
        for (pattern, tokens) in patterns.iter() {
            if glob::matches(pattern, &channel, Case::Sensitive) {
                receivers += tokens.len();
                deliver(workers, tokens, Some(pattern), &channel, &payload);
            }
        }
        receivers
    }

    /// Channels with subscribers that match (PUBSUB CHANNELS).
    pub fn channels(&self, pattern: Option<&[u8]>) -> Vec<Arc<[u8]>> {
        let mut found = Vec::new();
        for shard in &self.shards {
            let shard = shard.lock().expect("no panic under a shard of channels");
            let wanted = |channel: &&Arc<[u8]>| {
                pattern.is_none_or(|p| glob::matches(p, channel, Case::Sensitive))
            };
            found.extend(shard.keys().filter(wanted).cloned());
        }
        found
    }

    /// Subscribers of a channel (PUBSUB NUMSUB).
    pub fn subscriber_count(&self, channel: &[u8]) -> usize {
        self.shard(channel).get(channel).map_or(0, Vec::len)
    }

    /// Channels with subscribers.
    pub fn channel_count(&self) -> usize {
        let count = |shard: &Mutex<Subscribers>| {
            shard
                .lock()
                .expect("no panic under a shard of channels")
                .len()
        };
        self.shards.iter().map(count).sum()
    }

    /// Patterns with subscribers (PUBSUB NUMPAT).
    pub fn pattern_count(&self) -> usize {
        self.pattern_count.load(Ordering::Acquire)
    }

    fn shard(&self, channel: &[u8]) -> std::sync::MutexGuard<'_, Subscribers> {
        let shard = redline_keyspace::stripe_of(redline_keyspace::hash(channel)) as usize % SHARDS;
        self.shards[shard]
            .lock()
            .expect("no panic under a shard of channels")
    }
}

fn remove(subscribers: &mut Subscribers, name: &Arc<[u8]>, who: Token) {
    if let Some(tokens) = subscribers.get_mut(name) {
        tokens.retain(|token| *token != who);
        if tokens.is_empty() {
            subscribers.remove(name);
        }
    }
}

/// One message to each worker that has a subscriber among `tokens`.
fn deliver(
    workers: &[WorkerHandle],
    tokens: &[Token],
    pattern: Option<&Arc<[u8]>>,
    channel: &Arc<[u8]>,
    payload: &Arc<[u8]>,
) {
    for (number, worker) in workers.iter().enumerate() {
        let to: Vec<Token> = tokens
            .iter()
            .copied()
            .filter(|token| token.worker() == number)
            .collect();
        if !to.is_empty() {
            worker.mailbox.send(Message::Deliver(Delivery {
                to,
                pattern: pattern.cloned(),
                channel: channel.clone(),
                payload: payload.clone(),
            }));
        }
    }
}
