//! Moves of slots with all their keys, at the node that has them: copied, caught up with, fenced, flipped, dropped.
//!
//! # How a move goes
//!
//! The transactions are those of [`redline_cluster::moves`]. One thread does one move after the other. It has worker 0
//! serialise keys in slices, each under the stripe of its slot, and sends them to the other node, which keeps them *staged*:
//! in its data, replicas and files, and shown to nobody. A slot is *followed* before its first key is read: each key that
//! changes from then on is noted, and sent again as it is when its turn comes, or as its removal. So each round sends the
//! keys that changed during the last one, each once however often it was written, and a round is shorter than the one
//! before unless the other node is slower than the writers. Then the slots are *fenced*: their calls wait, the last keys go,
//! and one transaction gives the slots away. A value that is large and changes all the time is sent whole within the fence.
//!
//! The fence ends when it is known who owns the slots: calls run here, or are sent on. If the store does not say for two
//! seconds, calls are told to try again.
//!
//! Must not know: commands of clients, how a client is sent on.

use std::{
    collections::{BTreeSet, HashMap, VecDeque},
    io::{self, BufReader, Write},
    sync::{
        Condvar, Mutex, MutexGuard,
        atomic::{AtomicBool, Ordering},
        mpsc,
    },
    time::{Duration, Instant},
};

use redline_cluster::{
    moves::{self, Next, is_primary},
    records::{Move, MoveState},
};
use redline_commands::object_of;
use redline_engine::caller::Token;
use redline_etcd::StoreError;
use redline_keyspace::{Keyspace, Trace, Unit};
use redline_net::clock;
use redline_rdb::ObjectRef;

use super::{
    Cluster, View,
    etcd::{self, Membership},
    messages,
};
use crate::{
    log,
    migrate::{push_command, wire::Wire},
    shared::{Message, Shared},
    worker::Worker,
};

/// Keys that are serialised under one hold of a stripe, and their bytes, above which it ends.
const SLICE_KEYS: usize = 128;
const SLICE_BYTES: usize = 256 * 1024;
/// Number of changed keys below which the slots are fenced.
const FEW_KEYS: usize = 64;
/// Rounds after which they are fenced in any case.
const ROUNDS_MAX: u32 = 30;
/// Longest silence of the other node.
const PATIENCE: Duration = Duration::from_secs(10);
/// Time for which calls wait at a fence.
const FENCE_PATIENCE: Duration = Duration::from_secs(2);
/// Time between two looks at the moves.
const LOOK: Duration = Duration::from_millis(500);
/// Pause before something is tried again.
const PAUSE: Duration = Duration::from_millis(1);
/// Pause before the store is asked again.
const STORE_PAUSE: Duration = Duration::from_millis(50);
/// Reason of a move that somebody has given up.
pub(crate) const CANCELLED: &str = "cancelled";
/// Moves that are remembered after their end.
const LOG_MAX: usize = 1000;

/// Moves from this node, and what is known of those from and to it.
#[derive(Default)]
pub(crate) struct Mover {
    /// Slots whose calls wait.
    pub(crate) fence: Fence,
    log: Mutex<VecDeque<Logged>>,
    /// Moves to this node that have begun, by their ids, and how often its data had been flushed then.
    begun: Mutex<HashMap<String, u64>>,
    news: Mutex<bool>,
    changed: Condvar,
}

/// A move as it was last seen.
#[derive(Clone, Debug)]
pub(crate) struct Logged {
    /// The move.
    pub(crate) entry: Move,
    /// True if the slots go from this node.
    pub(crate) leaves: bool,
    /// When it was first seen, and when it last changed: Unix time in milliseconds.
    pub(crate) began_ms: u64,
    pub(crate) changed_ms: u64,
    /// Time for which calls waited: milliseconds.
    pub(crate) fenced_ms: u64,
}

impl Logged {
    /// Returns true if somebody has just given it up.
    pub(crate) fn is_fresh(&self) -> bool {
        const FRESH_MS: u64 = 1000;
        let is_cancelled = self.entry.state == MoveState::Aborted && self.entry.why == CANCELLED;
        is_cancelled && clock::wall_ms().saturating_sub(self.changed_ms) < FRESH_MS
    }
}

/// Calls of fenced slots.
#[derive(Default)]
pub(crate) struct Fence {
    state: Mutex<FenceState>,
    is_up: AtomicBool,
}

#[derive(Default)]
struct FenceState {
    slots: BTreeSet<u16>,
    /// True if nobody waits any longer.
    gives: bool,
    waiting: Vec<Token>,
}

/// Fate of a call of a fenced slot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Met {
    /// It waits.
    Waits,
    /// It is refused: it may be tried again.
    Gives,
}

impl Fence {
    fn state(&self) -> MutexGuard<'_, FenceState> {
        self.state.lock().expect("no panic under the fence")
    }

    /// Returns the fate of a session's call of a slot; `None`: the slot is not fenced. Who waits is woken.
    pub(crate) fn meets(&self, slot: u16, who: Token) -> Option<Met> {
        if !self.is_up.load(Ordering::Acquire) {
            return None;
        }
        let mut state = self.state();
        if !state.slots.contains(&slot) {
            return None;
        }
        if state.gives {
            return Some(Met::Gives);
        }
        state.waiting.push(who);
        Some(Met::Waits)
    }

    /// Returns true if a slot is fenced.
    pub(super) fn has(&self, slot: u16) -> bool {
        self.is_up.load(Ordering::Acquire) && self.state().slots.contains(&slot)
    }

    fn add(&self, slot: u16) {
        let mut state = self.state();
        state.slots.insert(slot);
        self.is_up.store(true, Ordering::Release);
    }

    /// Takes the fence away, and returns who waited.
    fn lift(&self) -> Vec<Token> {
        let mut state = self.state();
        self.is_up.store(false, Ordering::Release);
        std::mem::take(&mut *state).waiting
    }

    /// Has nobody wait any longer, and returns who waited.
    fn give(&self) -> Vec<Token> {
        let mut state = self.state();
        state.gives = true;
        std::mem::take(&mut state.waiting)
    }
}

impl Mover {
    /// Has the thread look at the moves.
    pub(super) fn wake(&self) {
        *self.news.lock().expect("no panic under the news") = true;
        self.changed.notify_all();
    }

    fn wait(&self) {
        let news = self.news.lock().expect("no panic under the news");
        let waited = self.changed.wait_timeout_while(news, LOOK, |news| !*news);
        *waited.expect("no panic under the news").0 = false;
    }

    fn begun(&self) -> MutexGuard<'_, HashMap<String, u64>> {
        self.begun.lock().expect("no panic under the moves")
    }

    /// Returns the moves from and to this node, the last ones first.
    pub(crate) fn logged(&self) -> Vec<Logged> {
        let log = self.log.lock().expect("no panic under the log");
        log.iter().rev().cloned().collect()
    }

    /// Notes the moves of a view.
    pub(crate) fn note(&self, view: &View) {
        let now_ms = clock::wall_ms();
        let mut log = self.log.lock().expect("no panic under the log");
        for entry in &view.picture.moves {
            let leaves = entry.from.shard == view.shard;
            if !leaves && entry.to.shard != view.shard {
                continue;
            }
            match log.iter_mut().find(|known| known.entry.id == entry.id) {
                Some(known) if known.entry != *entry => {
                    known.entry = entry.clone();
                    known.changed_ms = now_ms;
                }
                Some(_) => {}
                None => log.push_back(Logged {
                    entry: entry.clone(),
                    leaves,
                    began_ms: now_ms,
                    changed_ms: now_ms,
                    fenced_ms: 0,
                }),
            }
        }
        for known in log.iter_mut().filter(|known| known.entry.is_under_way()) {
            let entry = &mut known.entry;
            if view.picture.moves.iter().any(|it| it.id == entry.id) {
                continue;
            }
            // It has ended and was forgotten between two views.
            let first = entry.slots().next().unwrap_or_default();
            let is_done = view.picture.owners().of_slot(first) == Some(&entry.to.shard);
            entry.state = match is_done {
                true => MoveState::Done,
                false => MoveState::Aborted,
            };
            known.changed_ms = now_ms;
        }
        while log.len() > LOG_MAX {
            log.pop_front();
        }
    }

    fn note_fence(&self, id: &str, span: Duration) {
        let mut log = self.log.lock().expect("no panic under the log");
        if let Some(known) = log.iter_mut().find(|known| known.entry.id == id) {
            known.fenced_ms = span.as_millis() as u64;
        }
    }
}

/// The thread of a node's moves.
pub(super) fn run(shared: &Shared) {
    let cluster = shared.cluster.as_ref().expect("it is a node");
    let etcd = cluster.etcd.as_ref().expect("it has etcd");
    while !etcd.ends() {
        etcd.moves.wait();
        let view = cluster.view();
        etcd.moves.note(&view);
        if !view.is_member || !view.is_primary {
            continue;
        }
        let concerns = |it: &&Move| it.from.shard == view.shard || it.to.shard == view.shard;
        for found in view.picture.moves.iter().filter(concerns) {
            if etcd.ends() {
                return;
            }
            let own = match found.from.shard == view.shard {
                true => &found.from,
                false => &found.to,
            };
            if !found.is_under_way() {
                tidy(shared, cluster, &view, found);
            } else if !is_primary(&view.picture, own) {
                let mover = Moving::of(shared, cluster, etcd, found);
                mover.settle("its shard has another primary");
            } else if found.from.shard == view.shard {
                let mover = Moving::of(shared, cluster, etcd, found);
                mover.go();
                break; // the view is an older one now
            }
        }
    }
}

/// Forgets a move that has ended, once its keys are gone where they are not to be.
fn tidy(shared: &Shared, cluster: &Cluster, view: &View, found: &Move) {
    let is_mine =
        found.from.shard == view.shard || !view.picture.shards.contains_key(&found.from.shard);
    let has_keys = |slot| view.is_lost(slot) && shared.keyspace.slot_key_count(0, slot) > 0;
    if !is_mine || found.slots().any(has_keys) {
        return;
    }
    let cleaned = cluster
        .list()
        .map(|listing| moves::clean(&listing, &found.id));
    if let Ok(Some(transaction)) = cleaned {
        // Tried again at the next look.
        let _ = cluster.store.transact(&transaction);
    }
}

/// A move that is under way.
struct Moving<'a> {
    shared: &'a Shared,
    cluster: &'a Cluster,
    etcd: &'a Membership,
    entry: &'a Move,
}

/// Result of a slice.
enum Slice {
    /// The stripe was in use.
    Busy,
    /// Commands for the other node, their number, and the place in the slot behind them; `None`: the end.
    Keys(Vec<u8>, usize, Option<u32>),
}

impl<'a> Moving<'a> {
    fn of(
        shared: &'a Shared,
        cluster: &'a Cluster,
        etcd: &'a Membership,
        entry: &'a Move,
    ) -> Moving<'a> {
        Moving {
            shared,
            cluster,
            etcd,
            entry,
        }
    }

    /// Does the move, or gives it up.
    fn go(&self) {
        let id = &self.entry.id;
        log::notice(&format!("The move {id} of slots begins"));
        let flushes = self.shared.keyspace.flushes();
        let result = self.copy_and_flip(flushes);
        let flipped = match &result {
            Ok(()) => true,
            Err(why) => self.settle(why),
        };
        self.see();
        self.etcd.moves.note(&self.cluster.view());
        self.end_fence();
        self.follow(false);
        self.shared.keyspace.take_changed_keys();
        match (flipped, result) {
            (true, _) => log::notice(&format!("The move {id} is done")),
            (false, Err(why)) => log::warning(&format!("The move {id} is given up: {why}")),
            (false, Ok(())) => {}
        }
    }

    fn copy_and_flip(&self, flushes: u64) -> Result<(), String> {
        let failed = |error: io::Error| format!("the other node: {error}");
        let to = &self.entry.to.primary.node;
        let settings = self.shared.settings.current();
        let mut wire = messages::connect(self.cluster, &settings, to, PATIENCE).map_err(failed)?;
        let mut head = Vec::new();
        let begin = [
            &b"CLUSTER"[..],
            b"SYNCSLOTS",
            b"BEGIN",
            self.entry.id.as_bytes(),
        ];
        push_command(&mut head, &begin);
        exchange(&mut wire, &head, 1).map_err(failed)?;
        for slot in self.entry.slots() {
            let mut from = Some(0);
            let mut is_first = true;
            while let Some(place) = from {
                match self.on_worker(move |worker| copy(worker, slot, place, is_first))? {
                    Slice::Busy => std::thread::sleep(PAUSE),
                    Slice::Keys(frames, count, next) => {
                        exchange(&mut wire, &frames, count).map_err(failed)?;
                        (from, is_first) = (next, false);
                        self.check(flushes)?;
                    }
                }
            }
        }
        let mut rounds = 0;
        loop {
            let changed = self.shared.keyspace.take_changed_keys();
            let few = changed.len() <= FEW_KEYS;
            self.send_changed(&mut wire, changed)?;
            self.check(flushes)?;
            rounds += 1;
            if few || rounds >= ROUNDS_MAX {
                break;
            }
        }
        let began = Instant::now();
        self.raise_fence()?;
        let changed = self.shared.keyspace.take_changed_keys();
        self.send_changed(&mut wire, changed)?;
        self.check(flushes)?;
        // What the other node has been sent is still there.
        let mut check = Vec::new();
        let id = self.entry.id.as_bytes();
        push_command(&mut check, &[b"CLUSTER", b"SYNCSLOTS", b"CHECK", id]);
        exchange(&mut wire, &check, 1).map_err(failed)?;
        let flipped = self.flip();
        self.etcd.moves.note_fence(&self.entry.id, began.elapsed());
        flipped?;
        // The other node serves the slots before anybody is sent there.
        let mut see = Vec::new();
        push_command(&mut see, &[b"CLUSTER", b"SYNCSLOTS", b"SEE"]);
        if let Err(error) = exchange(&mut wire, &see, 1) {
            log::warning(&format!(
                "The other node has not said that it serves: {error}"
            ));
        }
        Ok(())
    }

    /// Has a function run by worker 0, in one of its turns.
    fn on_worker<T: Send + 'static>(
        &self,
        run: impl FnOnce(&mut Worker) -> T + Send + 'static,
    ) -> Result<T, String> {
        let (sender, result) = mpsc::channel();
        let run = Box::new(move |worker: &mut Worker| {
            // Whoever asked may have ended.
            let _ = sender.send(run(worker));
        });
        self.shared.workers()[0].mailbox.send(Message::Run(run));
        loop {
            match result.recv_timeout(LOOK) {
                Ok(value) => return Ok(value),
                Err(mpsc::RecvTimeoutError::Timeout) if !self.etcd.ends() => {}
                Err(_) => return Err("the server ends".into()),
            }
        }
    }

    /// Refuses to go on if the move has ended, or its data is not what it was.
    fn check(&self, flushes: u64) -> Result<(), String> {
        if self.etcd.ends() {
            return Err("the server ends".into());
        }
        if self.shared.keyspace.flushes() != flushes {
            return Err("the data was flushed".into());
        }
        let view = self.cluster.view();
        let mut moves = view.picture.moves.iter();
        match moves.find(|it| it.id == self.entry.id) {
            Some(found) if found.is_under_way() => Ok(()),
            Some(found) => Err(found.why.clone()),
            None => Err("it is not in the records any more".into()),
        }
    }

    fn send_changed(
        &self,
        wire: &mut Wire,
        changed: impl IntoIterator<Item = Box<[u8]>>,
    ) -> Result<(), String> {
        let mut by_slot: HashMap<u16, Vec<Box<[u8]>>> = HashMap::new();
        for key in changed {
            let slot = redline_cluster::slot_of(&key);
            by_slot.entry(slot).or_default().push(key);
        }
        for (slot, keys) in by_slot {
            for part in keys.chunks(SLICE_KEYS) {
                loop {
                    let part = part.to_vec();
                    match self.on_worker(move |worker| resend(worker, slot, &part))? {
                        Slice::Busy => std::thread::sleep(PAUSE),
                        Slice::Keys(frames, count, _) => {
                            let sent = exchange(wire, &frames, count);
                            sent.map_err(|error| format!("the other node: {error}"))?;
                            break;
                        }
                    }
                }
            }
        }
        Ok(())
    }

    /// Begins or ends to follow all slots.
    fn follow(&self, is_followed: bool) {
        self.for_each_slot(move |unit, slot, _| unit.set_followed(slot, is_followed));
    }

    /// Does something with each slot under its stripe. Returns false if the server ends.
    fn for_each_slot(
        &self,
        change: impl Fn(&mut Unit<'_>, u16, &Shared) + Send + Copy + 'static,
    ) -> bool {
        let mut left: Vec<u16> = self.entry.slots().collect();
        while !left.is_empty() {
            let slots = std::mem::take(&mut left);
            let busy = self.on_worker(move |worker| {
                let shared = worker.shared;
                let space = &shared.keyspace;
                let is_busy =
                    |slot: &u16| match Unit::try_one(space, Keyspace::stripe_of_slot(*slot)) {
                        Some(mut unit) => {
                            change(&mut unit, *slot, shared);
                            false
                        }
                        None => true,
                    };
                slots.into_iter().filter(is_busy).collect::<Vec<u16>>()
            });
            let Ok(busy) = busy else { return false };
            left = busy;
            if !left.is_empty() {
                std::thread::sleep(PAUSE);
            }
        }
        true
    }

    /// Has the calls of all slots wait: what has run under a stripe before is among the changed keys.
    fn raise_fence(&self) -> Result<(), String> {
        for slot in self.entry.slots() {
            self.etcd.moves.fence.add(slot);
        }
        match self.for_each_slot(|unit, slot, _| unit.set_served(slot, false)) {
            true => Ok(()),
            false => Err("the server ends".into()),
        }
    }

    /// T11.
    fn flip(&self) -> Result<(), String> {
        loop {
            let listing = self.cluster.list().map_err(|error| error.to_string())?;
            let transaction = match moves::flip(&listing, &self.entry.id) {
                Next::Transaction(transaction) => transaction,
                Next::Done => return Ok(()),
                Next::Aborted(why) => return Err(why),
            };
            match self.cluster.store.transact(&transaction) {
                Ok(answer) if answer.succeeded => return Ok(()),
                Ok(_) => {}
                Err(error) => return Err(error.to_string()),
            }
        }
    }

    /// Ends a move for good, however long the store takes: T12, unless its flip was done. Returns true if it was.
    fn settle(&self, why: &str) -> bool {
        let began = Instant::now();
        loop {
            let next = self
                .cluster
                .list()
                .map(|listing| moves::abort(&listing, &self.entry.id, why));
            match next {
                Ok(Next::Done) => return true,
                Ok(Next::Aborted(_)) => return false,
                Ok(Next::Transaction(transaction)) => {
                    let answer = self.cluster.store.transact(&transaction);
                    if answer.is_ok_and(|answer| answer.succeeded) {
                        return false;
                    }
                }
                Err(_) => {}
            }
            if self.etcd.ends() {
                return false;
            }
            if began.elapsed() > FENCE_PATIENCE {
                self.wake_all(self.etcd.moves.fence.give());
            }
            std::thread::sleep(STORE_PAUSE);
        }
    }

    /// Looks at the records until they are seen.
    fn see(&self) {
        while !self.etcd.ends() {
            match self.cluster.look() {
                Ok(()) | Err(StoreError::Damaged(_)) => return,
                Err(_) => std::thread::sleep(STORE_PAUSE),
            }
        }
    }

    /// Takes the fence away: the view says who has the slots. Who waited goes on when the keyspace has that view.
    fn end_fence(&self) {
        // By worker 0, so that no look at the view is half done.
        let lifted = self.on_worker(|worker| {
            let cluster = worker.shared.cluster.as_ref();
            let etcd = cluster.and_then(|cluster| cluster.etcd.as_ref());
            etcd.map_or_else(Vec::new, |etcd| {
                etcd.forget_applied();
                etcd.moves.fence.lift()
            })
        });
        let revision = self.cluster.view().picture.revision;
        etcd::until_applied(self.shared, self.etcd, revision);
        self.wake_all(lifted.unwrap_or_default());
    }

    fn wake_all(&self, waiting: Vec<Token>) {
        for token in waiting {
            self.shared
                .send(token, redline_engine::Message::Wake(token));
        }
    }
}

/// Sends commands, and reads their replies.
fn exchange(wire: &mut Wire, frames: &[u8], count: usize) -> io::Result<()> {
    if count == 0 {
        return Ok(());
    }
    wire.write_all(frames)?;
    wire.flush()?;
    let mut replies = BufReader::new(wire);
    (0..count).try_for_each(|_| messages::expect_ok(&mut replies))
}

/// Serialises some keys of a slot from a place on. First it is followed.
fn copy(worker: &mut Worker, slot: u16, from: u32, is_first: bool) -> Slice {
    let shared = worker.shared;
    let stripe = Keyspace::stripe_of_slot(slot);
    let Some(mut unit) = Unit::try_one(&shared.keyspace, stripe) else {
        return Slice::Busy;
    };
    if is_first {
        unit.set_followed(slot, true);
    }
    let (mut frames, mut count, mut next) = (Vec::new(), 0, Some(from));
    while let Some(place) = next
        && count < SLICE_KEYS
        && frames.len() < SLICE_BYTES
    {
        let mut keys: Vec<Box<[u8]>> = Vec::new();
        next = unit.visit_slot_from(0, slot, place, &mut |key| keys.push(key.into()));
        count += push_keys(worker, &mut unit, &keys, false, &mut frames);
    }
    Slice::Keys(frames, count, next)
}

/// Serialises keys of a slot as they are now.
fn resend(worker: &mut Worker, slot: u16, keys: &[Box<[u8]>]) -> Slice {
    let shared = worker.shared;
    let stripe = Keyspace::stripe_of_slot(slot);
    let Some(mut unit) = Unit::try_one(&shared.keyspace, stripe) else {
        return Slice::Busy;
    };
    let mut frames = Vec::new();
    let count = push_keys(worker, &mut unit, keys, true, &mut frames);
    Slice::Keys(frames, count, None)
}

/// Adds keys as commands for the other node; those that are not there, as removals if they were sent before. Returns their number.
fn push_keys(
    worker: &mut Worker,
    unit: &mut Unit<'_>,
    keys: &[Box<[u8]>],
    were_sent: bool,
    frames: &mut Vec<u8>,
) -> usize {
    let now_ms = worker.now_ms;
    let compresses = worker.local.limits.payload_compressed;
    let mut view = unit.view(&mut worker.local, 0, now_ms);
    let mut count = 0;
    for key in keys {
        let (expire_at_ms, payload) = match view.find(key, Trace::Prefetch) {
            Some(found) => {
                let payload = redline_rdb::dump_for_any(object_of(found.value()), compresses);
                (found.expire_at_ms().unwrap_or(0), payload)
            }
            // A value that has expired removes what is there.
            None if were_sent => (1, redline_rdb::dump_for_any(ObjectRef::String(b""), false)),
            None => continue,
        };
        let expire_at_ms = expire_at_ms.to_string();
        let words = [
            &b"RESTORE-ASKING"[..],
            key,
            expire_at_ms.as_bytes(),
            &payload,
            b"REPLACE",
            b"ABSTTL",
        ];
        push_command(frames, &words);
        count += 1;
    }
    view.finish();
    count
}

/// Begins to take the slots of a move, from the first key on.
pub(crate) fn begin(shared: &Shared, etcd: &Membership, view: &View, id: &str) {
    let mut begun = etcd.moves.begun();
    let is_under_way = |id: &str| {
        let mut moves = view.picture.moves.iter();
        moves.any(|it| it.id == id && it.is_under_way())
    };
    begun.retain(|id, _| is_under_way(id));
    begun.insert(id.to_owned(), shared.keyspace.flushes());
}

/// Returns true if the node has everything that it was sent of a move since its beginning.
pub(crate) fn has_all(shared: &Shared, etcd: &Membership, id: &str) -> bool {
    etcd.moves.begun().get(id) == Some(&shared.keyspace.flushes())
}

/// Returns why a node does not take the slots of a move, if it does not.
pub(crate) fn refuses(shared: &Shared, view: &View, node: &str, id: &str) -> Option<String> {
    let mut moves = view.picture.moves.iter();
    let Some(found) = moves.find(|it| it.id == id) else {
        return Some(format!("ERR there is no move {id}"));
    };
    if found.state != MoveState::Copying || found.to.primary.node != node || !view.is_primary {
        return Some(format!(
            "ERR the move {id} is not to this node, or has ended"
        ));
    }
    if !is_primary(&view.picture, &found.to) {
        return Some(format!("ERR the move {id} is to another run of this node"));
    }
    let has_keys = |slot: &u16| shared.keyspace.slot_key_count(0, *slot) > 0;
    let slot = found.slots().find(has_keys)?;
    Some(format!("ERR keys of slot {slot} are still here"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn calls_of_a_fenced_slot_wait_until_it_is_settled_and_not_for_ever() {
        let fence = Fence::default();
        let who = |number| Token::new(0, number, 0);
        assert_eq!(fence.meets(7, who(1)), None);
        fence.add(7);
        assert_eq!(
            (fence.meets(7, who(1)), fence.meets(8, who(2))),
            (Some(Met::Waits), None)
        );
        assert!(fence.has(7) && !fence.has(8));
        assert_eq!(fence.give(), [who(1)]);
        assert_eq!(fence.meets(7, who(3)), Some(Met::Gives));
        assert!(fence.lift().is_empty() && !fence.has(7));
        fence.add(8);
        assert_eq!(
            fence.meets(8, who(4)),
            Some(Met::Waits),
            "a new fence waits again"
        );
        assert_eq!(fence.lift(), [who(4)]);
    }
}
