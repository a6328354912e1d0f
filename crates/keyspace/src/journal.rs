//! The journal: the one order of all effects on the keyspace, for readers that save or copy it.
//!
//! Must not know: the meaning of commands, the readers. It takes a unit's effect as commands, numbers it, and returns
//! the records in order.
//!
//! # How it works
//!
//! A unit that has changed something writes one [`Record`] while it still holds its stripes. The record's number comes
//! from one counter, so of two units that touched the same key the later has the higher number; units that had nothing
//! in common are in some order. The record goes into the *lane* of its worker, a list that no other thread writes to,
//! so that workers share nothing but the counter.
//!
//! A worker may take a number and be stopped before its record is in its lane. Readers therefore see the *gap-free
//! prefix* only: [`Journal::read`] collects the lanes, keeps records that came too early, and returns those up to the
//! first number that is missing. It takes no lane by force: a lane in use is looked at the next time, and its owner
//! wakes the reader when it is done.
//!
//! With no reader nothing is numbered or kept, and a unit pays one relaxed load. A reader is attached while all stripes
//! are held, so every unit is either wholly before it or has its record.
//!
//! # Gates
//!
//! A reader reports to a [`Gate`] how far it has got (written to disk, acknowledged by a replica). A session whose
//! replies must not leave before some number is reached waits there, and is woken like any suspended session.

use std::{
    cmp::Reverse,
    collections::{BTreeMap, BinaryHeap, VecDeque},
    mem,
};

#[cfg(loom)]
pub(crate) use loom::sync::Arc;
#[cfg(loom)]
use loom::sync::{
    Mutex,
    atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering},
};
#[cfg(not(loom))]
pub(crate) use std::sync::Arc;
#[cfg(not(loom))]
use std::sync::{
    Mutex,
    atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering},
};

use crate::{
    entry::Blob,
    lock::{Wait, Wake, WakeToken},
};

/// Called when there is something to read, by units that hold stripes: it must neither block nor take any.
pub type WakeReader = Box<dyn Fn() + Send + Sync>;

/// One word of a command.
#[derive(Clone, Copy, Debug)]
pub enum Word<'a> {
    /// Copied.
    Bytes(&'a [u8]),
    /// Referred to: large, and unchanged as long as there is a reference to it.
    Blob(&'a Blob),
}

impl<'a> From<&'a [u8]> for Word<'a> {
    fn from(bytes: &'a [u8]) -> Word<'a> {
        Word::Bytes(bytes)
    }
}

impl<'a> From<&&'a [u8]> for Word<'a> {
    fn from(bytes: &&'a [u8]) -> Word<'a> {
        Word::Bytes(bytes)
    }
}

/// A unit's effect: commands, each with its database.
#[derive(Clone, Debug, Default)]
pub struct Effects {
    bytes: Vec<u8>,
    words: Vec<Stored>,
    /// Database, and where the command's words end.
    commands: Vec<(u32, usize)>,
}

#[derive(Clone, Debug)]
enum Stored {
    /// Up to here in `bytes`, from where the bytes before it end.
    Bytes(usize, usize),
    Blob(Blob),
}

impl Effects {
    /// Returns true if there is no effect.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.commands.is_empty()
    }

    /// Appends a command.
    pub fn push<'a>(&mut self, db: u32, words: impl IntoIterator<Item = Word<'a>>) {
        for word in words {
            let stored = match word {
                Word::Bytes(bytes) => {
                    let from = self.bytes.len();
                    self.bytes.extend_from_slice(bytes);
                    Stored::Bytes(from, self.bytes.len())
                }
                Word::Blob(blob) => Stored::Blob(blob.clone()),
            };
            self.words.push(stored);
        }
        self.commands.push((db, self.words.len()));
    }

    /// Returns the commands, in order: database and words.
    pub fn commands(&self) -> impl Iterator<Item = (u32, Vec<&[u8]>)> {
        let mut from = 0;
        self.commands.iter().map(move |(db, end)| {
            let words = self.words[mem::replace(&mut from, *end)..*end].iter();
            let words = words.map(|word| match word {
                Stored::Bytes(from, to) => &self.bytes[*from..*to],
                Stored::Blob(blob) => blob.as_slice(),
            });
            (*db, words.collect())
        })
    }

    /// Returns the number of bytes of all words.
    pub fn len_bytes(&self) -> u64 {
        let blobs = self.words.iter().map(|word| match word {
            Stored::Bytes(..) => 0,
            Stored::Blob(blob) => blob.len(),
        });
        (self.bytes.len() + blobs.sum::<usize>()) as u64
    }
}

/// The record of one unit's effects.
#[derive(Debug)]
pub struct Record {
    /// Ascending by one from record to record.
    pub number: u64,
    /// The database of its first command. A reader that writes commands to a stream selects another where
    /// [`Effects::commands`] says so.
    pub db: u32,
    /// The effect. Several commands belong together: all or none of them.
    pub effects: Effects,
}

/// A worker's own list of records that no reader has fetched yet.
#[derive(Default)]
#[repr(align(128))] // its owner writes it often
pub struct Lane(Mutex<Vec<Record>>);

/// The journal: see the module's text.
pub struct Journal {
    /// Number of readers.
    readers: AtomicU32,
    /// The number of the next record.
    next: AtomicU64,
    /// Bytes of records that not all readers have read.
    unread_bytes: AtomicU64,
    /// A reader has found nothing and is going to sleep.
    asleep: AtomicBool,
    lanes: Mutex<Vec<Arc<Lane>>>,
    log: Mutex<Log>,
    wakers: Mutex<Vec<(u32, WakeReader)>>,
    /// Gate at which replies wait for a reader.
    pub gate: Gate,
}

/// The records that were fetched from the lanes. Readers share it.
#[derive(Default)]
struct Log {
    /// Without a gap, the first numbered `first`.
    records: VecDeque<Arc<Record>>,
    first: u64,
    /// Records behind a gap.
    early: BTreeMap<u64, Record>,
    /// Each reader's name and the number it reads next.
    cursors: Vec<(u32, u64)>,
    last_name: u32,
}

/// Names a reader of one journal.
#[derive(Debug, PartialEq, Eq)]
pub struct Reader(u32);

impl Default for Journal {
    fn default() -> Journal {
        Journal {
            readers: AtomicU32::new(0),
            next: AtomicU64::new(1),
            unread_bytes: AtomicU64::new(0),
            asleep: AtomicBool::new(false),
            lanes: Mutex::default(),
            log: Mutex::default(),
            wakers: Mutex::default(),
            gate: Gate::default(),
        }
    }
}

impl Journal {
    /// Returns true if there is a reader. While a stripe is held the answer does not become true.
    #[inline]
    pub fn is_attached(&self) -> bool {
        self.readers.load(Ordering::Relaxed) != 0
    }

    /// Returns the number of the last record, which may still be on its way; 0: none yet.
    pub fn last(&self) -> u64 {
        self.next.load(Ordering::Acquire) - 1
    }

    /// Returns the number of bytes of records that some reader has yet to read. The owner of a reader bounds this, by
    /// detaching one that does not keep up or by accepting no more writes.
    pub fn unread_bytes(&self) -> u64 {
        self.unread_bytes.load(Ordering::Relaxed)
    }

    /// Attaches a reader, which gets the record of every unit from now on; returns the number after which it begins.
    /// The caller holds all stripes.
    pub(crate) fn attach(&self, wake: WakeReader) -> (Reader, u64) {
        let mut log = self.log.lock().expect("no panic under the log");
        let after = self.last();
        if log.cursors.is_empty() {
            // Records of units that ran when the last reader was detached.
            log.records.clear();
            log.early.clear();
            log.first = after + 1;
            self.unread_bytes.store(0, Ordering::Relaxed);
        }
        log.last_name += 1;
        let name = log.last_name;
        log.cursors.push((name, after + 1));
        let mut wakers = self.wakers.lock().expect("no panic under the wakers");
        wakers.push((name, wake));
        // Relaxed: the stripes order this before every unit that comes after.
        self.readers.fetch_add(1, Ordering::Relaxed);
        (Reader(name), after)
    }

    /// Ends a reader. With the last one the journal ends.
    pub fn detach(&self, reader: Reader) {
        let mut log = self.log.lock().expect("no panic under the log");
        log.cursors.retain(|(name, _)| *name != reader.0);
        self.collect(&mut log);
        self.forget_read(&mut log);
        let mut wakers = self.wakers.lock().expect("no panic under the wakers");
        wakers.retain(|(name, _)| *name != reader.0);
        self.readers.fetch_sub(1, Ordering::Relaxed);
    }

    /// Makes a lane for a worker.
    pub fn lane(&self) -> Arc<Lane> {
        let lane = Arc::new(Lane::default());
        let mut lanes = self.lanes.lock().expect("no panic under the lanes");
        lanes.push(lane.clone());
        lane
    }

    /// Writes a record; the unit still holds its stripes. Returns its number.
    pub fn append(&self, lane: &Lane, effects: Effects) -> u64 {
        let bytes = effects.len_bytes();
        self.unread_bytes.fetch_add(bytes, Ordering::Relaxed);
        let db = effects.commands.first().map_or(0, |(db, _)| *db);
        // Relaxed: the stripes order units that have something in common, and so their turns at the counter.
        let number = self.next.fetch_add(1, Ordering::Relaxed);
        let record = Record {
            number,
            db,
            effects,
        };
        lane.0.lock().expect("no panic under a lane").push(record);
        // Acquire and release: either a reader that goes to sleep finds the record, or it is found asleep.
        if self.asleep.swap(false, Ordering::AcqRel) {
            let wakers = self.wakers.lock().expect("no panic under the wakers");
            wakers.iter().for_each(|(_, wake)| wake());
        }
        number
    }

    /// Appends to `out` the next records for this reader: without a gap, in order.
    pub fn read(&self, reader: &Reader, out: &mut Vec<Arc<Record>>) {
        let mut log = self.log.lock().expect("no panic under the log");
        self.collect(&mut log);
        let end = log.first + log.records.len() as u64;
        let first = log.first;
        let cursors = &mut log.cursors;
        let cursor = cursors.iter_mut().find(|(name, _)| *name == reader.0);
        let (_, cursor) = cursor.expect("an attached reader");
        if *cursor < end {
            let from = mem::replace(cursor, end) - first;
            out.extend(log.records.range(from as usize..).cloned());
            self.forget_read(&mut log);
        }
    }

    /// Announces that a reader is going to sleep; then it reads once more, and sleeps if it gets nothing: its `wake` is
    /// called when that changes.
    pub fn prepare_to_sleep(&self) {
        self.asleep.swap(true, Ordering::AcqRel);
    }

    /// Fetches the records of the lanes.
    fn collect(&self, log: &mut Log) {
        let lanes = self.lanes.lock().expect("no panic under the lanes");
        for lane in lanes.iter() {
            let Ok(mut records) = lane.0.try_lock() else {
                continue; // its owner wakes the reader when it is done
            };
            let first = log.first;
            let fetched = mem::take(&mut *records).into_iter();
            drop(records);
            log.early.extend(
                fetched
                    .filter(|record| record.number >= first)
                    .map(|record| (record.number, record)),
            );
        }
        drop(lanes);
        let mut end = log.first + log.records.len() as u64;
        while let Some(record) = log.early.remove(&end) {
            log.records.push_back(Arc::new(record));
            end += 1;
        }
    }

    /// Drops the records that every reader has read.
    fn forget_read(&self, log: &mut Log) {
        let end = log.first + log.records.len() as u64;
        let least = log.cursors.iter().map(|(_, next)| *next).min();
        let least = least.unwrap_or(end).min(end);
        while log.first < least {
            let record = log.records.pop_front().expect("counted above");
            self.unread_bytes
                .fetch_sub(record.effects.len_bytes(), Ordering::Relaxed);
            log.first += 1;
        }
    }
}

/// The number of the last record that was reached (synced, acknowledged), and the sessions that wait for a later one.
pub struct Gate {
    /// Replies up to this record may leave; `u64::MAX`: all may.
    reached: AtomicU64,
    waiting: Mutex<BinaryHeap<Reverse<(u64, WakeToken)>>>,
}

impl Default for Gate {
    /// Makes an open gate.
    fn default() -> Gate {
        Gate {
            reached: AtomicU64::new(Gate::OPEN),
            waiting: Mutex::default(),
        }
    }
}

impl Gate {
    const OPEN: u64 = u64::MAX;

    /// Returns true if the gate is open, whatever the number.
    #[inline]
    pub fn is_open(&self) -> bool {
        self.reached.load(Ordering::Relaxed) == Self::OPEN
    }

    /// Returns true if replies that depend on this record may leave.
    pub fn is_reached(&self, number: u64) -> bool {
        self.reached.load(Ordering::Acquire) >= number
    }

    /// Closes the gate behind this record.
    pub fn close(&self, reached: u64) {
        self.reached.store(reached, Ordering::Release);
    }

    /// Puts a session on the list of those that wait for this record.
    pub fn wait_for(&self, number: u64, token: WakeToken) -> Wait {
        let mut waiting = self.waiting.lock().expect("no panic under a waiting list");
        if self.is_reached(number) {
            return Wait::TryAgain;
        }
        waiting.push(Reverse((number, token)));
        Wait::Registered
    }

    /// Reports that this record is reached: wakes the sessions that waited for it, or for an earlier one.
    pub fn advance(&self, number: u64, wake: &dyn Wake) {
        let mut waiting = self.waiting.lock().expect("no panic under a waiting list");
        let reached = self.reached.load(Ordering::Relaxed).max(number);
        self.reached.store(reached, Ordering::Release);
        while let Some(Reverse((_, token))) = waiting.peek().filter(|next| next.0.0 <= reached) {
            wake.wake(*token);
            waiting.pop();
        }
    }

    /// Opens the gate: all replies may leave.
    pub fn open(&self, wake: &dyn Wake) {
        self.advance(Self::OPEN, wake);
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    fn effect(db: u32, words: &[&str]) -> Effects {
        let mut effects = Effects::default();
        effects.push(db, words.iter().map(|word| Word::Bytes(word.as_bytes())));
        effects
    }

    fn numbers(journal: &Journal, reader: &Reader) -> Vec<u64> {
        let mut out = Vec::new();
        journal.read(reader, &mut out);
        out.iter().map(|record| record.number).collect()
    }

    #[test]
    fn an_effect_keeps_its_words() {
        let mut effects = effect(3, &["DEL", "a"]);
        let blob: Blob = std::sync::Arc::new(b"large".to_vec());
        effects.push(
            4,
            [Word::Bytes(b"SET"), Word::Bytes(b""), Word::Blob(&blob)],
        );
        let commands: Vec<_> = effects.commands().collect();
        let expected: [(u32, Vec<&[u8]>); 2] =
            [(3, vec![b"DEL", b"a"]), (4, vec![b"SET", b"", b"large"])];
        assert_eq!(commands, expected);
        assert_eq!(effects.len_bytes(), 4 + 3 + 5);
    }

    #[test]
    fn a_number_that_is_taken_and_not_written_holds_the_rest_back() {
        let journal = Journal::default();
        let (reader, after) = journal.attach(Box::new(|| ()));
        assert_eq!(after, 0);
        let (a, b) = (journal.lane(), journal.lane());
        assert_eq!(journal.append(&a, effect(0, &["1"])), 1);
        // A worker that was stopped between its number and its record.
        let stalled = journal.next.fetch_add(1, Ordering::Relaxed);
        assert_eq!(journal.append(&a, effect(0, &["3"])), 3);
        assert_eq!(numbers(&journal, &reader), [1]);
        assert_eq!(numbers(&journal, &reader), []);
        b.0.lock().unwrap().push(Record {
            number: stalled,
            db: 0,
            effects: effect(0, &["2"]),
        });
        assert_eq!(numbers(&journal, &reader), [2, 3]);
    }

    #[test]
    fn readers_read_at_their_own_pace_and_what_all_have_read_goes() {
        let journal = Journal::default();
        let (first, _) = journal.attach(Box::new(|| ()));
        let lane = journal.lane();
        journal.append(&lane, effect(0, &["one"]));
        let (second, after) = journal.attach(Box::new(|| ()));
        assert_eq!(after, 1);
        journal.append(&lane, effect(0, &["two"]));
        assert_eq!(numbers(&journal, &second), [2]);
        assert_eq!(journal.unread_bytes(), 6);
        assert_eq!(numbers(&journal, &first), [1, 2]);
        assert_eq!(journal.unread_bytes(), 0);
        journal.append(&lane, effect(0, &["three"]));
        assert_eq!(numbers(&journal, &first), [3]);
        journal.detach(second);
        assert_eq!(journal.unread_bytes(), 0);
        journal.detach(first);
        assert!(!journal.is_attached());
        let (third, after) = journal.attach(Box::new(|| ()));
        assert_eq!(after, 3);
        assert_eq!(numbers(&journal, &third), []);
        journal.append(&lane, effect(0, &["four"]));
        assert_eq!(numbers(&journal, &third), [4]);
    }

    #[test]
    fn a_gate_wakes_in_the_order_of_numbers() {
        struct Heard(Mutex<Vec<WakeToken>>);
        impl Wake for Heard {
            fn wake(&self, token: WakeToken) {
                self.0.lock().unwrap().push(token);
            }
        }
        let heard = Heard(Mutex::default());
        let gate = Gate::default();
        assert!(gate.is_open() && gate.is_reached(7));
        gate.close(2);
        assert_eq!(gate.wait_for(2, 20), Wait::TryAgain);
        for number in [5, 3, 4] {
            assert_eq!(gate.wait_for(number, number * 10), Wait::Registered);
        }
        gate.advance(4, &heard);
        assert_eq!(mem::take(&mut *heard.0.lock().unwrap()), [30, 40]);
        gate.advance(3, &heard);
        assert!(gate.is_reached(4), "it does not go back");
        gate.open(&heard);
        assert_eq!(*heard.0.lock().unwrap(), [50]);
    }
}

#[cfg(all(test, loom))]
mod model {
    use super::*;
    use loom::{cell::UnsafeCell, sync::Condvar, thread};

    #[derive(Default)]
    struct Bell(Mutex<bool>, Condvar);

    impl Bell {
        fn ring(&self) {
            *self.0.lock().unwrap() = true;
            self.1.notify_all();
        }
        fn wait(&self) {
            let mut rung = self.0.lock().unwrap();
            while !*rung {
                rung = self.1.wait(rung).unwrap();
            }
            *rung = false;
        }
    }

    impl Wake for Bell {
        fn wake(&self, _: WakeToken) {
            self.ring();
        }
    }

    fn effect(word: u8) -> Effects {
        let mut effects = Effects::default();
        effects.push(0, [Word::Bytes(&[word])]);
        effects
    }

    /// Reads until so many records have come; a wake-up that is lost is a deadlock, which loom reports.
    fn read(journal: &Journal, reader: &Reader, bell: &Bell, count: usize) -> Vec<Arc<Record>> {
        let mut records = Vec::new();
        loop {
            journal.read(reader, &mut records);
            if records.len() >= count {
                break;
            }
            journal.prepare_to_sleep();
            let before = records.len();
            journal.read(reader, &mut records);
            if records.len() == before {
                bell.wait();
            }
        }
        let numbers = records.iter().map(|record| record.number);
        assert!(numbers.eq(1..=count as u64), "a gap, or another order");
        records
    }

    fn check(body: impl Fn() + Sync + Send + 'static) {
        let mut builder = loom::model::Builder::new();
        builder.preemption_bound = Some(3);
        builder.check(body);
    }

    #[test]
    fn journal_two_workers_and_a_reader_lose_nothing() {
        check(|| {
            let journal = Arc::new(Journal::default());
            let bell = Arc::new(Bell::default());
            let ring = bell.clone();
            let (reader, _) = journal.attach(Box::new(move || ring.ring()));
            let workers: Vec<_> = (0..2)
                .map(|n| {
                    let (journal, lane) = (journal.clone(), journal.lane());
                    thread::spawn(move || journal.append(&lane, effect(n)))
                })
                .collect();
            read(&journal, &reader, &bell, 2);
            for worker in workers {
                worker.join().unwrap();
            }
        });
    }

    /// Asserts that the numbers of two units of one stripe have the order in which they held it.
    #[test]
    fn journal_numbers_follow_the_stripe() {
        struct State {
            journal: Journal,
            stripe: Mutex<()>,
            /// The value that the stripe guards: the number of the last thread that held it.
            last: UnsafeCell<u8>,
        }
        // SAFETY: `last` is touched under `stripe` only; loom checks it.
        unsafe impl Sync for State {}
        check(|| {
            let bell = Arc::new(Bell::default());
            let ring = bell.clone();
            let state = Arc::new(State {
                journal: Journal::default(),
                stripe: Mutex::new(()),
                last: UnsafeCell::new(9),
            });
            let (reader, _) = state.journal.attach(Box::new(move || ring.ring()));
            let workers: Vec<_> = (0..2)
                .map(|n| {
                    let (state, lane) = (state.clone(), state.journal.lane());
                    thread::spawn(move || {
                        let _held = state.stripe.lock().unwrap();
                        // SAFETY: the stripe is held.
                        state.last.with_mut(|last| unsafe { *last = n });
                        state.journal.append(&lane, effect(n));
                    })
                })
                .collect();
            let records = read(&state.journal, &reader, &bell, 2);
            workers.into_iter().for_each(|w| w.join().unwrap());
            let (_, words) = records[1].effects.commands().next().unwrap();
            // SAFETY: the workers are gone.
            let last = state.last.with(|last| unsafe { *last });
            assert_eq!(words, [&[last][..]]);
        });
    }

    /// Asserts that a session that waits for its record is released, whenever the reader reports it.
    #[test]
    fn journal_a_gated_session_is_released() {
        check(|| {
            let journal = Arc::new(Journal::default());
            journal.gate.close(0);
            let (bell, session) = (Arc::new(Bell::default()), Arc::new(Bell::default()));
            let ring = bell.clone();
            let (reader, _) = journal.attach(Box::new(move || ring.ring()));
            let worker = {
                let (journal, session, lane) = (journal.clone(), session.clone(), journal.lane());
                thread::spawn(move || {
                    let number = journal.append(&lane, effect(1));
                    while journal.gate.wait_for(number, 0) == Wait::Registered {
                        session.wait();
                    }
                    assert!(journal.gate.is_reached(number), "answered too early");
                })
            };
            for record in read(&journal, &reader, &bell, 1) {
                journal.gate.advance(record.number, &*session);
            }
            worker.join().unwrap();
        });
    }
}
