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

/// Channels and who listens to them.
struct Channels(Box<[Mutex<Subscribers>]>);

/// The registry.
pub struct PubSub {
    channels: Channels,
    shard_channels: Channels,
    patterns: RwLock<Subscribers>,
    pattern_count: AtomicUsize,
}

impl Default for PubSub {
    fn default() -> Self {
        PubSub {
            channels: Channels::default(),
            shard_channels: Channels::default(),
            patterns: RwLock::default(),
            pattern_count: AtomicUsize::new(0),
        }
    }
}

/// What is subscribed to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// A channel by its name.
    Channel,
    /// Every channel that matches.
    Pattern,
    /// A shard channel by its name: of those only the node that has its slot knows (SSUBSCRIBE).
    Shard,
}

/// One message on its way to the subscribers of one worker.
#[derive(Clone)]
pub struct Delivery {
    /// Who gets it.
    pub to: Vec<Token>,
    /// What they have subscribed to.
    pub kind: Kind,
    /// The pattern that matched; otherwise the channel.
    pub name: Arc<[u8]>,
    /// The channel.
    pub channel: Arc<[u8]>,
    /// The message.
    pub payload: Arc<[u8]>,
}

impl PubSub {
    /// Adds a subscriber.
    pub fn subscribe(&self, kind: Kind, name: &Arc<[u8]>, who: Token) {
        let Some(channels) = self.of(kind) else {
            let mut patterns = self.patterns.write().expect("no panic under the patterns");
            patterns.entry(name.clone()).or_default().push(who);
            return self.pattern_count.store(patterns.len(), Ordering::Release);
        };
        let mut shard = channels.shard(name);
        shard.entry(name.clone()).or_default().push(who);
    }

    /// Takes a subscriber off.
    pub fn unsubscribe(&self, kind: Kind, name: &Arc<[u8]>, who: Token) {
        let Some(channels) = self.of(kind) else {
            let mut patterns = self.patterns.write().expect("no panic under the patterns");
            remove(&mut patterns, name, who);
            return self.pattern_count.store(patterns.len(), Ordering::Release);
        };
        remove(&mut channels.shard(name), name, who);
    }

    /// Publishes; returns how many subscribers get it.
    pub fn publish(&self, workers: &[WorkerHandle], channel: &[u8], payload: &[u8]) -> usize {
        let shard = self.channels.shard(channel);
        let direct = shard.get(channel);
        if direct.is_none() && self.pattern_count.load(Ordering::Acquire) == 0 {
            return 0;
        }
        let mut delivery = Delivery::of(Kind::Channel, channel, payload);
        let mut receivers = 0;
        if let Some(tokens) = direct {
            receivers += deliver(workers, tokens, &delivery);
        }
        delivery.kind = Kind::Pattern;
        let patterns = self.patterns.read().expect("no panic under the patterns");
        for (pattern, tokens) in patterns.iter() {
            if glob::matches(pattern, channel, Case::Sensitive) {
                delivery.name = pattern.clone();
                receivers += deliver(workers, tokens, &delivery);
            }
        }
        receivers
    }

    /// Publishes to a shard channel; returns how many subscribers get it.
    pub fn publish_to_shard(
        &self,
        workers: &[WorkerHandle],
        channel: &[u8],
        payload: &[u8],
    ) -> usize {
        let shard = self.shard_channels.shard(channel);
        shard.get(channel).map_or(0, |tokens| {
            let delivery = Delivery::of(Kind::Shard, channel, payload);
            deliver(workers, tokens, &delivery)
        })
    }

    /// Channels of this kind with subscribers that match (PUBSUB CHANNELS, SHARDCHANNELS).
    pub fn channels(&self, kind: Kind, pattern: Option<&[u8]>) -> Vec<Arc<[u8]>> {
        let mut found = Vec::new();
        for shard in self.of(kind).into_iter().flat_map(|channels| &channels.0) {
            let shard = shard.lock().expect("no panic under a shard of channels");
            let wanted = |channel: &&Arc<[u8]>| {
                pattern.is_none_or(|p| glob::matches(p, channel, Case::Sensitive))
            };
            found.extend(shard.keys().filter(wanted).cloned());
        }
        found
    }

    /// Subscribers of a channel of this kind (PUBSUB NUMSUB, SHARDNUMSUB).
    pub fn subscriber_count(&self, kind: Kind, channel: &[u8]) -> usize {
        self.of(kind)
            .and_then(|channels| channels.shard(channel).get(channel).map(Vec::len))
            .unwrap_or(0)
    }

    /// Channels of this kind with subscribers.
    pub fn channel_count(&self, kind: Kind) -> usize {
        let count = |shard: &Mutex<Subscribers>| {
            shard
                .lock()
                .expect("no panic under a shard of channels")
                .len()
        };
        let channels = self.of(kind).into_iter();
        channels
            .flat_map(|channels| channels.0.iter().map(count))
            .sum()
    }

    /// Patterns with subscribers (PUBSUB NUMPAT).
    pub fn pattern_count(&self) -> usize {
        self.pattern_count.load(Ordering::Acquire)
    }

    fn of(&self, kind: Kind) -> Option<&Channels> {
        match kind {
            Kind::Channel => Some(&self.channels),
            Kind::Shard => Some(&self.shard_channels),
            Kind::Pattern => None,
        }
    }
}

impl Default for Channels {
    fn default() -> Self {
        Channels((0..SHARDS).map(|_| Mutex::default()).collect())
    }
}

impl Channels {
    fn shard(&self, channel: &[u8]) -> std::sync::MutexGuard<'_, Subscribers> {
        let shard = redline_keyspace::stripe_of(redline_keyspace::hash(channel)) as usize % SHARDS;
        self.0[shard]
            .lock()
            .expect("no panic under a shard of channels")
    }
}

impl Delivery {
    fn of(kind: Kind, channel: &[u8], payload: &[u8]) -> Delivery {
        let channel: Arc<[u8]> = channel.into();
        Delivery {
            to: Vec::new(),
            kind,
            name: channel.clone(),
            channel,
            payload: payload.into(),
        }
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

/// One message to each worker that has a subscriber among `tokens`; says how many those are.
fn deliver(workers: &[WorkerHandle], tokens: &[Token], delivery: &Delivery) -> usize {
    for (number, worker) in workers.iter().enumerate() {
        let to: Vec<Token> = tokens
            .iter()
            .copied()
            .filter(|token| token.worker() == number)
            .collect();
        if !to.is_empty() {
            worker.mailbox.send(Message::Deliver(Delivery {
                to,
                ..delivery.clone()
            }));
        }
    }
    tokens.len()
}
