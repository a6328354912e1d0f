//! Client-side caching: the clients that have read each key, and the invalidation messages that follow.
//!
//! # From a read to an invalidation
//!
//! A client that tracks keys is registered with every key that it reads, while the stripe of the key is still held
//! ([`remember`]). A unit that changes the key holds that stripe too: the keyspace reports an event
//! (`Classes::CHANGED`), and before the stripe is released the clients are taken out of the table and sent a message
//! ([`Tracking::changed`]). So no change falls between a read and its registration. In broadcasting mode (BCAST)
//! nothing is registered: the key is compared with the prefixes of clients, and noted under those that it begins with
//! ([`Changes`]). At the end of a unit, its stripes still held, each prefix is one message of all its keys.
//!
//! # No invalidation overtakes the reply that registered it
//!
//! Every message goes to the mailbox of the worker of the client that has *read* the key, also if another client is to
//! be notified (REDIRECT). A worker reads its mailbox between two groups of requests, and a message for a session that
//! is being served waits for it; so by then the reply that registered the key is in the reply buffer. The client itself
//! finds the invalidation behind it. A message for another client is forwarded only when that buffer has been written
//! out ([`after_write`]): the kernel has the reply before the other worker has the message. A client gets the
//! invalidations of its own command right behind the reply of that command, and not behind those of its pipeline: the
//! session then reads its worker's mailbox early (`Executor::read_own_mail`).
//!
//! # Bounds
//!
//! The table is partitioned by the hash of keys; each part has a lock of its own, a leaf under the stripes. It holds
//! `tracking-table-max-keys` keys at most: beyond that random keys are removed and invalidated, since their changes
//! would not be noticed. A client that disconnects leaves its token behind in the table, which is not reused for
//! another; when the tokens of a key have doubled, those of disconnected clients are removed. Messages to be forwarded
//! for a client that does not read its replies have at most `PENDING_MAX` keys: then they become one message that
//! invalidates everything.
//!
//! Must not know: what commands do.

use std::{
    collections::{BTreeMap, BTreeSet, HashMap, HashSet},
    mem,
    ops::Bound::{Included, Unbounded},
    sync::{
        Arc, Mutex, MutexGuard, RwLock,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
};

use redline_resp::{Args, Proto};
use redline_spec::{self as spec, CommandId, Flags};

use crate::{
    caller::{Caller, ClientInfo, Token, flag, state},
    engine::{Engine, ExecutorHandle, Message},
    subscriber_index::Subscribers,
};

/// Number of locks over which the table is spread.
const SHARDS: usize = 256;
/// Number of keys that may wait to be forwarded for one client.
const PENDING_MAX: usize = 1024;
/// Number of tokens of one key below which disconnected clients are not looked for.
const TOKENS_UNPRUNED_MAX: usize = 16;
/// Number of keys that one read, or one tick, removes because the table is over its limit.
const EVICTIONS_MAX: usize = 1000;
/// Channel of invalidation messages in RESP2.
const CHANNEL: &[u8] = b"__redis__:invalidate";

/// Mode in which a client tracks keys (CLIENT TRACKING).
#[derive(Debug, Default)]
pub struct Mode {
    /// Id of the client that is notified of changes instead of this one.
    pub redirect: Option<u64>,
    /// True if it tracks all keys with these prefixes, and not those that it has read.
    pub broadcast: bool,
    /// See `broadcast`.
    pub prefixes: BTreeSet<Arc<[u8]>>,
    /// True if it tracks only keys that it reads right after CLIENT CACHING YES.
    pub opt_in: bool,
    /// True if it tracks all keys but those that it reads right after CLIENT CACHING NO.
    pub opt_out: bool,
    /// True if CLIENT CACHING holds for the command that runs, or for the next one.
    pub caching: bool,
    /// True if its own changes are left out; with BCAST, those by scripts that it calls are reported all the same.
    pub no_loop: bool,
    /// True if the client that is notified in its place has disconnected.
    pub broken: bool,
    /// Notifications that are still to be sent to it, or to `redirect` in its place.
    pub pending: Vec<News>,
}

/// Origin of a change.
#[derive(Clone, Copy)]
pub enum By<'a> {
    /// Made by no client: by time, or by a call that had waited.
    Nobody,
    /// Made by this client's command.
    Client(&'a ClientInfo),
    /// Made by a script that this client has called.
    Script(&'a ClientInfo),
}

/// Description of a change: all keys, one key, or keys with a prefix.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum News {
    /// All keys: a database was emptied.
    All,
    /// This key, which the client has read.
    Key(Arc<[u8]>),
    /// Keys with this prefix, in order, each once.
    Prefixed(Arc<[u8]>, Keys),
}

impl News {
    fn key_count(&self) -> usize {
        match self {
            News::Prefixed(_, keys) => keys.len(),
            News::All | News::Key(_) => 1,
        }
    }
}

/// Keys that a unit has changed under tracked prefixes, with the client that changed each first: sent when it ends
/// ([`Changes::tell`]).
#[derive(Debug, Default)]
pub struct Changes(BTreeMap<Arc<[u8]>, ChangedKeys>);

/// A change on its way to clients of one worker that track keys.
#[derive(Clone, Debug)]
pub struct Invalidation {
    /// The clients that are notified.
    pub to: Vec<Token>,
    /// The change.
    pub news: News,
}

/// Changes on their way from the client that tracks to the one that is notified.
#[derive(Clone, Debug)]
pub struct Redirected {
    /// The client that is notified.
    pub to: Token,
    /// Changes in their order.
    pub news: Arc<[News]>,
}

type Shard = HashMap<Box<[u8]>, Vec<Token>>;
/// Keys of one message.
type Keys = Arc<[Arc<[u8]>]>;
/// Keys, and the client that changed each first.
type ChangedKeys = BTreeMap<Arc<[u8]>, Option<Token>>;

/// The registry.
pub struct Tracking {
    shards: Box<[Mutex<Shard>]>,
    keys: AtomicUsize,
    items: AtomicUsize,
    clients: AtomicUsize,
    /// True while keys of clients that have ceased to track are registered: changes are reported until there are none.
    /// A client that begins again is notified of keys that it read before, as from Redis.
    lingers: AtomicBool,
    prefixes: RwLock<BTreeMap<Arc<[u8]>, Subscribers>>,
    prefix_count: AtomicUsize,
    /// Held by the worker that removes keys: two that count at once would remove one too many.
    evicting: Mutex<()>,
}

impl Default for Tracking {
    fn default() -> Self {
        Tracking {
            shards: (0..SHARDS).map(|_| Mutex::default()).collect(),
            keys: AtomicUsize::new(0),
            items: AtomicUsize::new(0),
            clients: AtomicUsize::new(0),
            lingers: AtomicBool::new(false),
            prefixes: RwLock::default(),
            prefix_count: AtomicUsize::new(0),
            evicting: Mutex::default(),
        }
    }
}

impl Tracking {
    /// Returns the number of clients that track keys.
    pub fn client_count(&self) -> usize {
        self.clients.load(Ordering::Relaxed)
    }

    /// Returns the number of keys in the table.
    pub fn key_count(&self) -> usize {
        self.keys.load(Ordering::Relaxed)
    }

    /// Returns the number of clients of all keys in the table.
    pub fn item_count(&self) -> usize {
        self.items.load(Ordering::Relaxed)
    }

    /// Returns the number of tracked prefixes.
    pub fn prefix_count(&self) -> usize {
        self.prefix_count.load(Ordering::Relaxed)
    }

    /// Registers a client with a key that it has read, whose stripe is held.
    fn add(&self, engine: &Engine, key: &[u8], who: Token) {
        let mut shard = self.shard(key);
        let Some(tokens) = shard.get_mut(key) else {
            shard.insert(key.into(), vec![who]);
            self.keys.fetch_add(1, Ordering::Relaxed);
            self.items.fetch_add(1, Ordering::Relaxed);
            return;
        };
        if let Err(at) = tokens.binary_search(&who) {
            if tokens.len() == tokens.capacity() && tokens.len() >= TOKENS_UNPRUNED_MAX {
                let before = tokens.len();
                let alive = tracking_clients(engine);
                tokens.retain(|token| alive.contains(token));
                self.items
                    .fetch_sub(before - tokens.len(), Ordering::Relaxed);
                // Next time when there are twice as many, or every new one would pay for it.
                tokens.reserve(tokens.len().max(TOKENS_UNPRUNED_MAX));
                let at = tokens.binary_search(&who).unwrap_or_else(|at| at);
                tokens.insert(at, who);
            } else {
                tokens.insert(at, who);
            }
            self.items.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Notifies the clients that have read a changed key, and notes it under its prefixes. Its stripe is held.
    pub fn changed(
        &self,
        executors: &[ExecutorHandle],
        key: &[u8],
        by: By<'_>,
        changes: &mut Changes,
    ) {
        let silent = |info: &ClientInfo| {
            let is_silent = info.flags.load(Ordering::Relaxed) & flag::NO_LOOP != 0;
            is_silent.then(|| info.token())
        };
        // Under a prefix the client does not know the changes by its script; of keys that it has read it is not
        // notified, as for its own changes. As in Redis.
        let (silent, silent_under_prefix) = match by {
            By::Nobody => (None, None),
            By::Client(info) => (silent(info), silent(info)),
            By::Script(info) => (silent(info), None),
        };
        if let Some(tokens) = self.take(key) {
            tell(executors, &tokens, silent, &News::Key(key.into()));
        }
        if self.prefix_count() == 0 {
            return;
        }
        let prefixes = self.prefixes.read().expect("no panic under the prefixes");
        let mut shared_key: Option<Arc<[u8]>> = None;
        let up_to = |bound: &[u8]| {
            prefixes
                .range::<[u8], _>((Unbounded, Included(bound)))
                .next_back()
        };
        for (prefix, _) in beginnings(key, up_to) {
            let key = shared_key.get_or_insert_with(|| key.into()).clone();
            let keys = changes.0.entry(prefix.clone()).or_default();
            keys.entry(key).or_insert(silent_under_prefix);
        }
    }

    /// Notifies all clients that track keys of an emptied database, and removes all keys. All stripes are held.
    pub fn flushed(&self, engine: &Engine) {
        for shard in &self.shards {
            let old = mem::take(&mut *shard.lock().expect("no panic under the table"));
            self.keys.fetch_sub(old.len(), Ordering::Relaxed);
            let items = old.values().map(Vec::len).sum();
            self.items.fetch_sub(items, Ordering::Relaxed);
        }
        let tokens: Vec<Token> = tracking_clients(engine).into_iter().collect();
        tell(engine.executors(), &tokens, None, &News::All);
    }

    /// Removes keys until there are no more than `keys_max` (0: any number), and invalidates them. `draw`: a random number.
    pub fn evict(
        &self,
        executors: &[ExecutorHandle],
        keys_max: usize,
        mut draw: impl FnMut() -> usize,
    ) {
        if keys_max == 0 || self.key_count() <= keys_max {
            return;
        }
        let Ok(_alone) = self.evicting.try_lock() else {
            return;
        };
        for _ in 0..EVICTIONS_MAX {
            if self.key_count() <= keys_max {
                return;
            }
            let first = draw();
            let victim = (0..SHARDS).find_map(|step| {
                let shard = self.shards[(first + step) % SHARDS].lock();
                let shard = shard.expect("no panic under the table");
                shard.keys().next().cloned()
            });
            let Some(key) = victim else { return };
            // Another thread may have taken it meanwhile.
            if let Some(tokens) = self.take(&key) {
                tell(executors, &tokens, None, &News::Key(key.into()));
            }
        }
    }

    /// Adds a client that tracks keys with this prefix.
    pub fn add_prefix(&self, prefix: &Arc<[u8]>, who: Token) {
        let mut prefixes = self.prefixes.write().expect("no panic under the prefixes");
        prefixes.entry(prefix.clone()).or_default().add(who);
        self.prefix_count.store(prefixes.len(), Ordering::SeqCst);
    }

    fn remove_prefix(&self, prefix: &Arc<[u8]>, who: Token) {
        let mut prefixes = self.prefixes.write().expect("no panic under the prefixes");
        if let Some(subscribers) = prefixes.get_mut(prefix) {
            subscribers.remove(who);
            if subscribers.is_empty() {
                prefixes.remove(prefix);
            }
        }
        self.prefix_count.store(prefixes.len(), Ordering::SeqCst);
    }

    fn take(&self, key: &[u8]) -> Option<Vec<Token>> {
        let mut shard = self.shard(key);
        let tokens = shard.remove(key)?;
        if shard.len() < shard.capacity() / 8 {
            shard.shrink_to_fit();
        }
        drop(shard);
        self.keys.fetch_sub(1, Ordering::Relaxed);
        self.items.fetch_sub(tokens.len(), Ordering::Relaxed);
        Some(tokens)
    }

    fn shard(&self, key: &[u8]) -> MutexGuard<'_, Shard> {
        self.shards[redline_table::hash(key) as usize % SHARDS]
            .lock()
            .expect("no panic under the table")
    }
}

impl Changes {
    /// Returns true if no tracked key has changed.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Ends a unit whose stripes are still held: notifies all clients that track one of the prefixes.
    #[cold]
    pub fn tell(&mut self, engine: &Engine) {
        let prefixes = engine.tracking.prefixes.read();
        let prefixes = prefixes.expect("no panic under the prefixes");
        while let Some((prefix, keys)) = self.0.pop_first() {
            let Some(tokens) = prefixes.get(&prefix) else {
                continue;
            };
            let silent: BTreeSet<Token> = keys.values().copied().flatten().collect();
            let but = |own: Option<Token>| -> News {
                let told = keys.iter().filter(|(_, by)| by.is_none() || **by != own);
                News::Prefixed(prefix.clone(), told.map(|(key, _)| key.clone()).collect())
            };
            let others: Vec<Token> = tokens
                .iter()
                .copied()
                .filter(|token| !silent.contains(token))
                .collect();
            tell(engine.executors(), &others, None, &but(None));
            for own in tokens.iter().filter(|token| silent.contains(token)) {
                let news = but(Some(*own));
                if news.key_count() > 0 {
                    tell(engine.executors(), &[*own], None, &news);
                }
            }
        }
    }
}

/// Begins to track keys for a client, or changes the mode. The mode is the new one; a client that tracks already keeps
/// its prefixes and its pending notifications.
pub fn begin(engine: &Engine, caller: &mut Caller, mode: Mode) {
    let tracking = &engine.tracking;
    if caller.tracking.is_none() {
        tracking.clients.fetch_add(1, Ordering::SeqCst);
        engine.keyspace.begin_tracking();
    }
    let info = caller.info.clone();
    info.set_flag(
        flag::BROKEN_REDIRECT | flag::BROADCAST | flag::NO_LOOP,
        false,
    );
    info.set_flag(flag::TRACKING, true);
    info.set_flag(flag::BROADCAST, mode.broadcast);
    info.set_flag(flag::NO_LOOP, mode.no_loop);
    info.redirect
        .store(mode.redirect.map_or(0, |id| id as i64), Ordering::Relaxed);
    caller.set_state(state::TRACKING, true);
    caller.tracking = Some(Box::new(mode));
}

/// Ends tracking for a client.
pub fn end(engine: &Engine, caller: &mut Caller) {
    let Some(mode) = caller.tracking.take() else {
        return;
    };
    for prefix in &mode.prefixes {
        engine.tracking.remove_prefix(prefix, caller.info.token());
        caller.note_unregistered(prefix);
    }
    let tracking = &engine.tracking;
    tracking.clients.fetch_sub(1, Ordering::SeqCst);
    if tracking.key_count() == 0 || tracking.lingers.swap(true, Ordering::SeqCst) {
        engine.keyspace.end_tracking();
    }
    caller.set_state(state::TRACKING, false);
    caller.info.set_flag(
        flag::TRACKING | flag::BROKEN_REDIRECT | flag::BROADCAST | flag::NO_LOOP,
        false,
    );
    caller.info.redirect.store(-1, Ordering::Relaxed);
}

/// Checks if all keys of clients that have ceased to track have changed by now. Called from time to time.
pub fn settle(engine: &Engine) {
    let tracking = &engine.tracking;
    if tracking.key_count() == 0
        && tracking.lingers.load(Ordering::Relaxed)
        && tracking.lingers.swap(false, Ordering::SeqCst)
    {
        engine.keyspace.end_tracking();
    }
}

/// Returns true if the keys that this session's command reads are to be registered.
pub fn remembers(caller: &Caller, id: CommandId) -> bool {
    let Some(mode) = &caller.tracking else {
        return false;
    };
    let wanted = if mode.opt_in {
        mode.caching
    } else {
        !(mode.opt_out && mode.caching)
    };
    wanted && !mode.broadcast && spec::gate(id).flags.has(Flags::READONLY)
}

/// Registers a client with the keys of a call that it has read; their stripes are held.
pub fn remember(engine: &Engine, who: Token, id: CommandId, args: Args<'_>) {
    let keys = spec::reachable_keys(id, args.len(), |index| args.get(index).unwrap_or_default());
    for key in keys.filter_map(|key| args.get(key.position)) {
        engine.tracking.add(engine, key, who);
    }
}

/// Ends CLIENT CACHING after a command: it holds for one command, or one transaction.
pub fn after_command(caller: &mut Caller, id: Option<CommandId>) {
    let in_multi = caller.is(state::MULTI);
    if let Some(mode) = &mut caller.tracking
        && !in_multi
        && id.is_none_or(|id| spec::row(id).container != Some(CommandId::Client))
    {
        mode.caching = false;
    }
}

/// Takes in a change of this session's tracked keys. Returns true if work is left for when it is served next.
pub fn hear(caller: &mut Caller, news: &News) -> bool {
    let Some(mode) = &mut caller.tracking else {
        return false;
    };
    // The mode may have changed since.
    let concerned = match news {
        News::All => true,
        News::Key(_) => !mode.broadcast,
        News::Prefixed(prefix, _) => mode.prefixes.contains(prefix),
    };
    if !concerned {
        return false;
    }
    if mode.redirect.is_some() || matches!(news, News::Prefixed(..)) {
        // Changes of one unit are not split, however many they are.
        let waiting: usize = mode.pending.iter().map(News::key_count).sum();
        if waiting < PENDING_MAX {
            mode.pending.push(news.clone());
        } else if mode.redirect.is_some() {
            mode.pending.clear();
            mode.pending.push(News::All);
        } else {
            before_write(caller);
            hear(caller, news);
        }
        return true;
    }
    write(caller, std::slice::from_ref(news), false);
    true
}

/// Writes the changes under its prefixes. Called before a session's replies are written.
pub fn before_write(caller: &mut Caller) {
    if let Some(mode) = &mut caller.tracking
        && mode.redirect.is_none()
        && !mode.pending.is_empty()
    {
        let news = mem::take(&mut mode.pending);
        write(caller, &gather(news), false);
    }
}

/// Forwards the changes for another client. Called when all replies have been written.
pub fn after_write(engine: &Engine, caller: &mut Caller) {
    let Some(mode) = &mut caller.tracking else {
        return;
    };
    if mode.pending.is_empty() {
        return;
    }
    let Some(redirect) = mode.redirect else {
        return;
    };
    let news = gather(mem::take(&mut mode.pending));
    let target = {
        let clients = engine.clients();
        let stays = |info: &&Arc<ClientInfo>| {
            !info.killed.load(Ordering::Acquire)
                && info.flags.load(Ordering::Relaxed) & flag::CLOSING == 0
        };
        clients
            .get(&redirect)
            .filter(stays)
            .map(|info| info.token())
    };
    let Some(to) = target else {
        mode.broken = true;
        caller.info.set_flag(flag::BROKEN_REDIRECT, true);
        if caller.proto == Proto::Resp3 {
            let mut reply = caller.reply();
            reply.push(2);
            reply.bulk(b"tracking-redir-broken");
            reply.integer(redirect as i64);
        }
        return;
    };
    let news = news.into();
    engine.send(to, Message::Redirected(Redirected { to, news }));
}

/// Writes invalidation messages to a session, in its protocol. In RESP2 only clients get them that others redirect to
/// and that have subscribed to something.
pub fn write(caller: &mut Caller, news: &[News], redirected: bool) {
    let subscribed = caller.info.flags.load(Ordering::Relaxed) & flag::PUBSUB != 0;
    if caller.proto == Proto::Resp2 && !(redirected && subscribed) {
        return;
    }
    for news in news {
        let mut reply = caller.reply();
        if reply.proto() == Proto::Resp3 {
            reply.push(2);
            reply.bulk(b"invalidate");
        } else {
            reply.push(3);
            reply.bulk(b"message");
            reply.bulk(CHANNEL);
        }
        match news {
            News::All => reply.null(),
            News::Key(key) => {
                reply.array(1);
                reply.bulk(key);
            }
            News::Prefixed(_, keys) => {
                reply.array(keys.len());
                keys.iter().for_each(|key| reply.bulk(key));
            }
        }
    }
}

/// Returns the prefixes that `key` begins with, the longest first, of prefixes in order: `up_to` finds the last of them
/// that is not above a bound. That costs a search for each byte of the key at most, however many prefixes there are.
///
/// If the last one up to the bound is no beginning of the key, it differs from the key at some byte, and so does
/// everything between the key's bytes before that and the bound: the search goes on with these.
pub fn beginnings<'a, V>(
    key: &[u8],
    up_to: impl Fn(&[u8]) -> Option<(&'a Arc<[u8]>, V)>,
) -> impl Iterator<Item = (&'a Arc<[u8]>, V)> {
    let mut bound = Some(key);
    std::iter::from_fn(move || {
        loop {
            let (prefix, value) = up_to(bound?)?;
            let common = prefix.iter().zip(key).take_while(|(a, b)| a == b).count();
            if common < prefix.len() {
                bound = Some(&key[..common]);
                continue;
            }
            bound = common.checked_sub(1).map(|last| &key[..last]);
            return Some((prefix, value));
        }
    })
}

/// Moves changes under prefixes behind all others, each key once: one message for each prefix.
fn gather(news: Vec<News>) -> Vec<News> {
    let mut gathered = Vec::new();
    let mut prefixed: BTreeMap<_, Vec<Keys>> = BTreeMap::new();
    for news in news {
        match news {
            News::Prefixed(prefix, keys) => prefixed.entry(prefix).or_default().push(keys),
            single => gathered.push(single),
        }
    }
    for (prefix, mut parts) in prefixed {
        let keys = match &mut parts[..] {
            [keys] => keys.clone(),
            parts => {
                let keys: BTreeSet<_> = parts.iter().flat_map(|keys| keys.iter()).collect();
                keys.into_iter().cloned().collect()
            }
        };
        gathered.push(News::Prefixed(prefix, keys));
    }
    gathered
}

/// Returns the tokens of all clients that track keys.
fn tracking_clients(engine: &Engine) -> HashSet<Token> {
    let clients = engine.clients();
    clients
        .values()
        .filter(|info| info.flags.load(Ordering::Relaxed) & flag::TRACKING != 0)
        .map(|info| info.token())
        .collect()
}

/// Sends one message to each worker that has a client among `tokens`.
fn tell(executors: &[ExecutorHandle], tokens: &[Token], silent: Option<Token>, news: &News) {
    for (number, executor) in executors.iter().enumerate() {
        let to: Vec<Token> = tokens
            .iter()
            .copied()
            .filter(|token| token.executor() == number && Some(*token) != silent)
            .collect();
        if !to.is_empty() {
            let news = news.clone();
            executor
                .mailbox
                .send(Message::Invalidate(Invalidation { to, news }));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_beginnings_of_a_key_are_found_among_any() {
        let mut rng = fastrand::Rng::with_seed(9);
        for _ in 0..2_000 {
            let mut word = || -> Vec<u8> { (0..rng.usize(..6)).map(|_| rng.u8(..3)).collect() };
            let words: BTreeMap<Arc<[u8]>, ()> = (0..20).map(|_| (word().into(), ())).collect();
            let key = word();
            let up_to = |bound: &[u8]| {
                words
                    .range::<[u8], _>((Unbounded, Included(bound)))
                    .next_back()
            };
            let found: Vec<_> = beginnings(&key, up_to).map(|(found, ())| found).collect();
            let all = words.keys().rev().filter(|word| key.starts_with(word));
            assert_eq!(found, all.collect::<Vec<_>>());
        }
    }

    #[test]
    fn keys_of_a_prefix_come_once_and_behind_the_rest() {
        let name = |text: &str| -> Arc<[u8]> { text.as_bytes().into() };
        let under = |prefix: &str, keys: &[&str]| {
            News::Prefixed(name(prefix), keys.iter().map(|key| name(key)).collect())
        };
        let news = vec![
            under("b", &["b2"]),
            News::Key(name("k")),
            under("a", &["a1"]),
            under("b", &["b1", "b2", "b3"]),
            News::All,
        ];
        let gathered = [
            News::Key(name("k")),
            News::All,
            under("a", &["a1"]),
            under("b", &["b1", "b2", "b3"]),
        ];
        assert_eq!(gather(news), gathered);
    }
}
