//! Pub/sub: the subscribers of each channel, and the delivery of published messages.
//!
//! A message goes to the mailbox of each worker that has a subscriber, while the channel's lock is held: so all
//! subscribers of a channel see its messages in one order. Must not know: sockets, keys.
//!
//! A worker may be busy for seconds while others publish to its clients. Bytes on their way are counted, and publishers
//! wait when there are too many of them ([`Transit`]); units do not wait, but they end.

use std::sync::{
    Arc, Mutex, RwLock,
    atomic::{AtomicBool, AtomicUsize, Ordering},
};

use redline_types::glob::{self, Case};

use crate::{
    caller::Token,
    engine::{ExecutorHandle, Message},
    subscriber_index::ByName,
};

/// Number of locks over which channels are spread.
const SHARDS: usize = 64;

/// Bytes on their way to a worker's clients above which publishers wait. Below the output limit of a subscriber, which
/// must not be closed for this.
const TRANSIT_BYTES_MAX: usize = 16 * 1024 * 1024;

/// Bytes of messages that were published to a worker's clients and are not yet delivered, and the clients that wait for
/// them to decrease.
#[derive(Default)]
pub struct Transit {
    bytes: AtomicUsize,
    waiting: Mutex<Vec<Token>>,
    /// True if a client may be waiting.
    awaited: AtomicBool,
}

impl Transit {
    /// Returns true if there are so many bytes that no client should publish more.
    pub fn is_full(&self) -> bool {
        self.bytes.load(Ordering::SeqCst) > TRANSIT_BYTES_MAX
    }

    /// Returns true if this session has to wait before it publishes. Then it will be among those of [`Transit::released`].
    pub fn keeps_waiting(&self, who: Token) -> bool {
        if !self.is_full() {
            return false;
        }
        let mut waiting = self.waiting.lock().expect("no panic under those who wait");
        self.awaited.store(true, Ordering::SeqCst);
        // From here on the worker checks the list when it has delivered something.
        let waits = self.is_full();
        if waits {
            waiting.push(who);
        }
        waits
    }

    /// Returns the clients that need not wait any longer. Called by the worker in each turn.
    pub fn released(&self) -> Vec<Token> {
        if !self.awaited.load(Ordering::SeqCst) || self.is_full() {
            return Vec::new();
        }
        let mut waiting = self.waiting.lock().expect("no panic under those who wait");
        self.awaited.store(false, Ordering::SeqCst);
        std::mem::take(&mut *waiting)
    }
}

/// Bytes of a message on its way, until its last copy is dropped.
struct Carried {
    transit: Arc<Transit>,
    bytes: usize,
}

impl Carried {
    fn new(transit: &Arc<Transit>, bytes: usize) -> Carried {
        transit.bytes.fetch_add(bytes, Ordering::SeqCst);
        Carried {
            transit: transit.clone(),
            bytes,
        }
    }
}

impl Drop for Carried {
    fn drop(&mut self) {
        self.transit.bytes.fetch_sub(self.bytes, Ordering::SeqCst);
    }
}

/// Channels and their subscribers.
struct Channels(Box<[Mutex<ByName>]>);

/// The registry.
pub struct PubSub {
    channels: Channels,
    shard_channels: Channels,
    patterns: RwLock<ByName>,
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

/// Kind of a subscription.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Subscription to a channel by its name.
    Channel,
    /// Subscription to every channel that matches.
    Pattern,
    /// Subscription to a shard channel by its name: only the node with its slot has these (SSUBSCRIBE).
    Shard,
}

/// One message on its way to the subscribers of one worker.
#[derive(Clone)]
pub struct Delivery {
    /// The clients that receive the message.
    pub to: Vec<Token>,
    /// Kind of their subscription.
    pub kind: Kind,
    /// Pattern that matched; otherwise the channel.
    pub name: Arc<[u8]>,
    /// The channel.
    pub channel: Arc<[u8]>,
    /// The message.
    pub payload: Arc<[u8]>,
    /// Counts the message while it is on its way; none before.
    _carried: Option<Arc<Carried>>,
}

impl PubSub {
    /// Adds a subscriber.
    pub fn subscribe(&self, kind: Kind, name: &Arc<[u8]>, who: Token) {
        let Some(channels) = self.of(kind) else {
            let mut patterns = self.patterns.write().expect("no panic under the patterns");
            patterns.add(name, who);
            return self.pattern_count.store(patterns.len(), Ordering::Release);
        };
        channels.shard(name).add(name, who);
    }

    /// Removes a subscriber.
    pub fn unsubscribe(&self, kind: Kind, name: &Arc<[u8]>, who: Token) {
        let Some(channels) = self.of(kind) else {
            let mut patterns = self.patterns.write().expect("no panic under the patterns");
            patterns.remove(name, who);
            return self.pattern_count.store(patterns.len(), Ordering::Release);
        };
        channels.shard(name).remove(name, who);
    }

    /// Publishes a message and returns the number of subscribers that get it.
    pub fn publish(&self, executors: &[ExecutorHandle], channel: &[u8], payload: &[u8]) -> usize {
        let shard = self.channels.shard(channel);
        let direct = shard.get(channel);
        if direct.is_none() && self.pattern_count.load(Ordering::Acquire) == 0 {
            return 0;
        }
        let mut delivery = Delivery::of(Kind::Channel, channel, payload);
        let mut receivers = 0;
        if let Some(tokens) = direct {
            receivers += deliver(executors, tokens, &delivery);
        }
        delivery.kind = Kind::Pattern;
        let patterns = self.patterns.read().expect("no panic under the patterns");
        for (pattern, tokens) in patterns.iter() {
            if glob::matches(pattern, channel, Case::Sensitive) {
                delivery.name = pattern.clone();
                receivers += deliver(executors, tokens, &delivery);
            }
        }
        receivers
    }

    /// Publishes to a shard channel and returns the number of subscribers that get it.
    pub fn publish_to_shard(
        &self,
        executors: &[ExecutorHandle],
        channel: &[u8],
        payload: &[u8],
    ) -> usize {
        let shard = self.shard_channels.shard(channel);
        shard.get(channel).map_or(0, |tokens| {
            let delivery = Delivery::of(Kind::Shard, channel, payload);
            deliver(executors, tokens, &delivery)
        })
    }

    /// Returns the channels of this kind with subscribers that match (PUBSUB CHANNELS, SHARDCHANNELS).
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

    /// Returns the number of subscribers of a channel of this kind (PUBSUB NUMSUB, SHARDNUMSUB).
    pub fn subscriber_count(&self, kind: Kind, channel: &[u8]) -> usize {
        self.of(kind)
            .and_then(|channels| channels.shard(channel).get(channel).map(|all| all.len()))
            .unwrap_or(0)
    }

    /// Returns the number of channels of this kind with subscribers.
    pub fn channel_count(&self, kind: Kind) -> usize {
        let count = |shard: &Mutex<ByName>| {
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

    /// Returns the number of patterns with subscribers (PUBSUB NUMPAT).
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
    fn shard(&self, channel: &[u8]) -> std::sync::MutexGuard<'_, ByName> {
        let shard = redline_table::hash(channel) as usize % SHARDS;
        self.0[shard]
            .lock()
            .expect("no panic under a shard of channels")
    }
}

impl Delivery {
    /// Returns the bytes of its content.
    pub fn len_bytes(&self) -> usize {
        self.channel.len() + self.payload.len()
    }

    /// Returns the same message for one of its subscribers.
    pub fn to_one(&self, token: Token) -> Delivery {
        Delivery {
            to: vec![token],
            ..self.clone()
        }
    }

    fn of(kind: Kind, channel: &[u8], payload: &[u8]) -> Delivery {
        let channel: Arc<[u8]> = channel.into();
        Delivery {
            to: Vec::new(),
            kind,
            name: channel.clone(),
            channel,
            payload: payload.into(),
            _carried: None,
        }
    }
}

/// Sends one message to each worker that has a subscriber among `tokens`; returns the number of subscribers.
fn deliver(executors: &[ExecutorHandle], tokens: &[Token], delivery: &Delivery) -> usize {
    for (number, executor) in executors.iter().enumerate() {
        let to: Vec<Token> = tokens
            .iter()
            .copied()
            .filter(|token| token.executor() == number)
            .collect();
        if !to.is_empty() {
            let bytes = size_of::<Delivery>() + size_of_val(&*to) + delivery.len_bytes();
            executor.mailbox.send(Message::Deliver(Delivery {
                to,
                _carried: Some(Arc::new(Carried::new(&executor.transit, bytes))),
                ..delivery.clone()
            }));
        }
    }
    tokens.len()
}
