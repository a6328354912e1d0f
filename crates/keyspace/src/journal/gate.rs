//! The gate: sessions that wait until a record has been reached: with their replies, or in a call that asks for it.
//!
//! Must not know: what it means to reach a record, sessions, how workers are notified.
//!
//! Each worker has a queue of its own, in which its sessions stand mostly in ascending order of what they wait for. A report
//! stores how far things have got and tells each worker whose first session is concerned, once: the worker takes out all that
//! are, also those of later reports.
//!
//! Most waits name a position and a number. A wait for replicas names how many of them are to have a record: whoever hears
//! of them reports the last record of each. A call that wants several things waits for one after the other.

use std::{collections::VecDeque, mem};

use super::{Arc, AtomicU64, Mutex, Ordering};
use crate::lock::{Wait, WakeToken};

/// The end of a wait: a predicate over positions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Until {
    /// Replies that tell of this record, and of all before it, may leave.
    Synced(u64),
    /// Enough other servers have this record, and all before it, for replies that tell of it to leave.
    Confirmed(u64),
    /// The file has this record, and all before it, on disk, whether replies wait for that or not.
    OnDisk(u64),
    /// So many replicas have this record, and all before it.
    Acked(u32, u64),
    /// So many replicas have this record, and all before it, on disk.
    AckedOnDisk(u32, u64),
}

impl Until {
    /// Number of positions that sessions stand in line for.
    const POSITIONS: usize = 3;

    /// Returns the position, as a place among all, and the number that it is to reach. `None`: what replicas have is not a
    /// line, since each wait may be for another number of them.
    fn parts(self) -> Option<(usize, u64)> {
        match self {
            Until::Synced(number) => Some((0, number)),
            Until::OnDisk(number) => Some((1, number)),
            Until::Confirmed(number) => Some((2, number)),
            Until::Acked(..) | Until::AckedOnDisk(..) => None,
        }
    }
}

/// The part of the journal that is on disk, whether replies wait for that or not.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OnDisk {
    /// There is no file.
    NoFile,
    /// There is to be a file, which holds nothing yet that counts.
    NotYet,
    /// Everything up to this record.
    UpTo(u64),
}

impl OnDisk {
    fn word(self) -> u64 {
        match self {
            OnDisk::NoFile => 0,
            OnDisk::NotYet => 1,
            OnDisk::UpTo(number) => number.saturating_add(2),
        }
    }

    fn of(word: u64) -> OnDisk {
        match word {
            0 => OnDisk::NoFile,
            1 => OnDisk::NotYet,
            _ => OnDisk::UpTo(word - 2),
        }
    }
}

/// The positions that sessions wait for, and the queues of those that do.
pub struct Gate {
    /// Replies up to this record may leave; [`Gate::OPEN`]: all may.
    synced: AtomicU64,
    /// Replies that tell of no later record need not wait for other servers; [`Gate::OPEN`]: none need.
    confirmed: AtomicU64,
    /// An [`OnDisk`] as a word.
    on_disk: AtomicU64,
    replicas: Mutex<Replicas>,
    queues: Mutex<Vec<(usize, Arc<Queue>)>>,
}

/// The last record that each replica has, and the last that it has on disk, both in descending order.
#[derive(Default)]
struct Replicas {
    acked: Vec<u64>,
    on_disk: Vec<u64>,
}

/// The sessions of one worker that wait at the gate.
#[derive(Default)]
pub struct Queue(Mutex<Waiting>);

#[derive(Default)]
struct Waiting {
    /// Of each position, by ascending number.
    lists: [VecDeque<(u64, WakeToken)>; Until::POSITIONS],
    /// Those that wait for replicas, in the order in which they came.
    for_replicas: Vec<(Until, WakeToken)>,
    /// The worker has been told of a report since it last looked.
    told: bool,
}

/// Sessions whose wait at the gate is over, first come first.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Released {
    /// Those whose replies wait no longer for what they waited for ([`Until::Synced`], [`Until::Confirmed`]).
    pub replies: Vec<WakeToken>,
    /// Those whose call waits, for any other position.
    pub calls: Vec<WakeToken>,
}

impl Default for Gate {
    /// Makes an open gate.
    fn default() -> Gate {
        Gate {
            synced: AtomicU64::new(Gate::OPEN),
            confirmed: AtomicU64::new(Gate::OPEN),
            on_disk: AtomicU64::new(OnDisk::NoFile.word()),
            replicas: Mutex::default(),
            queues: Mutex::default(),
        }
    }
}

impl Gate {
    const OPEN: u64 = u64::MAX;

    /// Returns true if the gate is open, whatever the record.
    #[inline]
    pub fn is_open(&self) -> bool {
        const { assert!(Self::OPEN == u64::MAX, "every bit is set") };
        let (synced, confirmed) = (&self.synced, &self.confirmed);
        synced.load(Ordering::Relaxed) & confirmed.load(Ordering::Relaxed) == Self::OPEN
    }

    /// Returns true if some replies wait for other servers.
    #[inline]
    pub fn awaits_confirmation(&self) -> bool {
        self.confirmed.load(Ordering::Relaxed) != Self::OPEN
    }

    /// Returns true if this has come to be.
    pub fn is_reached(&self, until: Until) -> bool {
        match until {
            Until::Synced(number) => self.synced.load(Ordering::Acquire) >= number,
            Until::Confirmed(number) => self.confirmed.load(Ordering::Acquire) >= number,
            Until::OnDisk(number) => match self.on_disk() {
                OnDisk::UpTo(reached) => reached >= number,
                OnDisk::NoFile | OnDisk::NotYet => false,
            },
            Until::Acked(replicas, number) => self.acked(number).0 >= replicas,
            Until::AckedOnDisk(replicas, number) => self.acked(number).1 >= replicas,
        }
    }

    /// Returns the number of replicas that have this record, and of those that have it on disk.
    pub fn acked(&self, number: u64) -> (u32, u32) {
        let replicas = self.replicas.lock().expect("no panic under the replicas");
        let count = |records: &[u64]| records.partition_point(|record| *record >= number) as u32;
        (count(&replicas.acked), count(&replicas.on_disk))
    }

    /// Reports the last record that each replica has, and the last that it has on disk; `tell` as in [`Gate::advance`]. Reports
    /// come one after the other.
    pub fn report_replicas(
        &self,
        mut acked: Vec<u64>,
        mut on_disk: Vec<u64>,
        tell: &mut dyn FnMut(usize),
    ) {
        acked.sort_unstable_by(|a, b| b.cmp(a));
        on_disk.sort_unstable_by(|a, b| b.cmp(a));
        let mut replicas = self.replicas.lock().expect("no panic under the replicas");
        *replicas = Replicas { acked, on_disk };
        drop(replicas);
        self.tell_concerned(tell);
    }

    /// Returns true if this need not be waited for any longer: it has come to be, or there is nothing left that it could
    /// come from.
    fn is_over(&self, until: Until) -> bool {
        let is_in_vain = matches!(until, Until::OnDisk(_)) && self.on_disk() == OnDisk::NoFile;
        is_in_vain || self.is_reached(until)
    }

    /// Returns the part of the journal that is on disk.
    pub fn on_disk(&self) -> OnDisk {
        OnDisk::of(self.on_disk.load(Ordering::Acquire))
    }

    /// Closes the gate behind this record.
    pub fn close(&self, synced: u64) {
        self.synced.store(synced, Ordering::Release);
    }

    /// Has replies that tell of later records than this one wait until they are confirmed. Whoever has looked at the gate before
    /// may let replies of records leave that were written by then.
    pub fn hold_behind(&self, record: u64) {
        self.confirmed.store(record, Ordering::Release);
    }

    /// Reports that enough other servers have everything up to this record; `tell` as in [`Gate::advance`].
    pub fn confirm(&self, record: u64, tell: &mut dyn FnMut(usize)) {
        if self.confirmed.fetch_max(record, Ordering::AcqRel) < record {
            self.tell_concerned(tell);
        }
    }

    /// Reports that no reply need wait for other servers any more; `tell` as in [`Gate::advance`].
    pub fn confirm_all(&self, tell: &mut dyn FnMut(usize)) {
        self.confirm(Self::OPEN, tell);
    }

    /// Makes the queue of a worker, which is told by this number.
    pub fn make_queue(&self, worker: usize) -> Arc<Queue> {
        let queue = Arc::new(Queue::default());
        let mut queues = self.queues.lock().expect("no panic under the queues");
        queues.push((worker, queue.clone()));
        queue
    }

    /// Puts a session of the queue's worker on it, unless it need not wait.
    pub fn wait_for(&self, queue: &Queue, until: Until, token: WakeToken) -> Wait {
        self.join(queue, until, token, true)
    }

    fn join(&self, queue: &Queue, until: Until, token: WakeToken, looks_again: bool) -> Wait {
        if !looks_again && self.is_over(until) {
            return Wait::TryAgain; // a fault that only the model plants
        }
        let mut waiting = queue.0.lock().expect("no panic under a queue");
        // Under the mutex: a report stores first and looks into the queue afterwards.
        if looks_again && self.is_over(until) {
            return Wait::TryAgain;
        }
        let Some((position, number)) = until.parts() else {
            waiting.for_replicas.push((until, token));
            return Wait::Registered;
        };
        let list = &mut waiting.lists[position];
        let behind = list.iter().rposition(|(other, _)| *other <= number);
        list.insert(behind.map_or(0, |at| at + 1), (number, token));
        Wait::Registered
    }

    /// Takes a session out of the queue that waits no longer, if it is still there.
    pub fn leave(&self, queue: &Queue, until: Until, token: WakeToken) {
        let mut waiting = queue.0.lock().expect("no panic under a queue");
        match until.parts() {
            Some((position, number)) => {
                waiting.lists[position].retain(|place| *place != (number, token));
            }
            None => waiting
                .for_replicas
                .retain(|place| *place != (until, token)),
        }
    }

    /// Reports that everything up to this record is on disk; `tell` is called with the number of each worker that is to
    /// look into its queue ([`Gate::take_released`]), and must not block.
    pub fn advance(&self, number: u64, tell: &mut dyn FnMut(usize)) {
        self.synced.fetch_max(number, Ordering::AcqRel);
        self.tell_concerned(tell);
    }

    /// Reports how much is on disk, whether replies wait for that or not; `tell` as in [`Gate::advance`]. Reports come one
    /// after the other.
    pub fn report(&self, on_disk: OnDisk, tell: &mut dyn FnMut(usize)) {
        if self.on_disk.swap(on_disk.word(), Ordering::AcqRel) != on_disk.word() {
            self.tell_concerned(tell);
        }
    }

    fn tell_concerned(&self, tell: &mut dyn FnMut(usize)) {
        let queues = self.queues.lock().expect("no panic under the queues");
        for (worker, queue) in queues.iter() {
            let mut waiting = queue.0.lock().expect("no panic under a queue");
            let first = |until: fn(u64) -> Until, place: Option<&(u64, WakeToken)>| {
                place.is_some_and(|(number, _)| self.is_over(until(*number)))
            };
            let [synced, on_disk, confirmed] = &waiting.lists;
            let mut for_replicas = waiting.for_replicas.iter();
            let is_concerned = first(Until::Synced, synced.front())
                || first(Until::Confirmed, confirmed.front())
                || first(Until::OnDisk, on_disk.front())
                || for_replicas.any(|(until, _)| self.is_over(*until));
            if is_concerned && !mem::replace(&mut waiting.told, true) {
                tell(*worker);
            }
        }
    }

    /// Opens the gate: all replies may leave.
    pub fn open(&self, tell: &mut dyn FnMut(usize)) {
        self.advance(Self::OPEN, tell);
    }

    /// Takes the sessions out of a queue that need not wait any longer.
    pub fn take_released(&self, queue: &Queue) -> Released {
        let mut waiting = queue.0.lock().expect("no panic under a queue");
        waiting.told = false;
        let mut take = |position: usize, until: fn(u64) -> Until| -> Vec<WakeToken> {
            let list = &mut waiting.lists[position];
            let count = list.partition_point(|(number, _)| self.is_over(until(*number)));
            list.drain(..count).map(|(_, token)| token).collect()
        };
        let (mut replies, mut calls) = (take(0, Until::Synced), take(1, Until::OnDisk));
        replies.append(&mut take(2, Until::Confirmed));
        let for_replicas = waiting
            .for_replicas
            .extract_if(.., |(until, _)| self.is_over(*until));
        calls.extend(for_replicas.map(|(_, token)| token));
        Released { replies, calls }
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    fn advance(gate: &Gate, number: u64) -> Vec<usize> {
        let mut told = Vec::new();
        gate.advance(number, &mut |worker| told.push(worker));
        told
    }

    #[test]
    fn a_worker_is_told_once_and_takes_all_that_may_go() {
        let gate = Gate::default();
        assert!(gate.is_open() && gate.is_reached(Until::Synced(7)));
        let (own, other) = (gate.make_queue(3), gate.make_queue(5));
        gate.close(2);
        assert_eq!(gate.wait_for(&own, Until::Synced(2), 20), Wait::TryAgain);
        for number in [5, 3, 4, 3] {
            let token = number * 10 + gate.synced.load(Ordering::Relaxed);
            assert_eq!(
                gate.wait_for(&own, Until::Synced(number), token),
                Wait::Registered
            );
        }
        assert_eq!(
            gate.wait_for(&other, Until::Synced(9), 90),
            Wait::Registered
        );
        assert_eq!(advance(&gate, 3), [3]);
        assert_eq!(advance(&gate, 4), [0; 0], "told, and has not looked yet");
        assert_eq!(gate.take_released(&own).replies, [32, 32, 42]);
        assert_eq!(advance(&gate, 3), [0; 0]);
        assert!(gate.is_reached(Until::Synced(4)), "it does not go back");
        assert_eq!(gate.take_released(&own), Released::default());
        let mut told = Vec::new();
        gate.open(&mut |worker| told.push(worker));
        assert_eq!(told, [3, 5]);
        assert_eq!(gate.take_released(&own).replies, [52]);
        assert_eq!(gate.take_released(&other).replies, [90]);
    }

    #[test]
    fn equal_numbers_leave_in_the_order_of_asking() {
        let gate = Gate::default();
        gate.close(0);
        let queue = gate.make_queue(0);
        for (number, token) in [(2, 1), (1, 2), (2, 3), (1, 4)] {
            gate.wait_for(&queue, Until::Synced(number), token);
        }
        assert_eq!(advance(&gate, 2), [0]);
        assert_eq!(gate.take_released(&queue).replies, [2, 4, 1, 3]);
    }

    #[test]
    fn calls_wait_for_as_many_replicas_as_they_ask_for() {
        let gate = Gate::default();
        let queue = gate.make_queue(1);
        let report = |acked: &[u64], on_disk: &[u64]| {
            let mut told = Vec::new();
            gate.report_replicas(acked.to_vec(), on_disk.to_vec(), &mut |worker| {
                told.push(worker);
            });
            told
        };
        let waits = [
            (Until::Acked(1, 5), 1),
            (Until::Acked(2, 5), 2),
            (Until::AckedOnDisk(1, 5), 3),
            (Until::Acked(3, 1), 4),
        ];
        for (until, token) in waits {
            assert_eq!(gate.wait_for(&queue, until, token), Wait::Registered);
        }
        assert_eq!(report(&[4, 4], &[0, 0]), [0; 0]);
        assert_eq!(report(&[4, 5], &[0, 4]), [1]);
        assert_eq!(gate.take_released(&queue).calls, [1]);
        assert_eq!(gate.acked(4), (2, 1));
        gate.leave(&queue, Until::Acked(3, 1), 4);
        assert_eq!(report(&[9, 0, 7], &[5, 0, 0]), [1]);
        assert_eq!(gate.take_released(&queue).calls, [2, 3]);
        assert_eq!(gate.wait_for(&queue, Until::Acked(3, 0), 5), Wait::TryAgain);
        assert_eq!(
            report(&[], &[]),
            [0; 0],
            "those that have gone do not count"
        );
        assert_eq!(gate.acked(0), (0, 0));
        assert_eq!(gate.take_released(&queue), Released::default());
    }

    #[test]
    fn replies_wait_for_other_servers_apart_from_the_disk() {
        let gate = Gate::default();
        let queue = gate.make_queue(1);
        assert!(gate.is_open() && !gate.awaits_confirmation());
        gate.hold_behind(3);
        assert!(!gate.is_open() && gate.awaits_confirmation());
        let wait = |until, token| gate.wait_for(&queue, until, token);
        assert_eq!(wait(Until::Synced(9), 1), Wait::TryAgain, "no disk");
        assert_eq!(wait(Until::Confirmed(3), 2), Wait::TryAgain);
        for (number, token) in [(5, 3), (4, 4)] {
            assert_eq!(wait(Until::Confirmed(number), token), Wait::Registered);
        }
        let confirm = |record| {
            let mut told = Vec::new();
            gate.confirm(record, &mut |worker| told.push(worker));
            told
        };
        assert_eq!(advance(&gate, 9), [0; 0]);
        assert_eq!((confirm(2), confirm(4)), (vec![], vec![1]));
        assert_eq!(gate.take_released(&queue).replies, [4]);
        gate.close(0);
        gate.confirm_all(&mut |worker| assert_eq!(worker, 1));
        assert_eq!(gate.take_released(&queue).replies, [3]);
        assert!(!gate.awaits_confirmation() && !gate.is_open(), "the disk");
    }

    fn report(gate: &Gate, on_disk: OnDisk) -> Vec<usize> {
        let mut told = Vec::new();
        gate.report(on_disk, &mut |worker| told.push(worker));
        told
    }

    #[test]
    fn calls_wait_for_the_disk_while_replies_leave() {
        let gate = Gate::default();
        let queue = gate.make_queue(1);
        let wait = |number, token| gate.wait_for(&queue, Until::OnDisk(number), token);
        assert_eq!(wait(0, 9), Wait::TryAgain, "there is no file");
        assert!(!gate.is_reached(Until::OnDisk(0)) && gate.is_reached(Until::Synced(8)));
        assert_eq!(report(&gate, OnDisk::NotYet), [0; 0]);
        for (number, token) in [(0, 1), (4, 2), (4, 3), (2, 4)] {
            assert_eq!(wait(number, token), Wait::Registered);
        }
        assert_eq!(advance(&gate, 9), [0; 0], "that is about replies");
        assert_eq!(report(&gate, OnDisk::UpTo(0)), [1]);
        assert_eq!(gate.take_released(&queue).calls, [1]);
        gate.leave(&queue, Until::OnDisk(4), 2);
        gate.leave(&queue, Until::OnDisk(4), 2);
        assert_eq!(report(&gate, OnDisk::UpTo(4)), [1]);
        assert_eq!(report(&gate, OnDisk::UpTo(4)), [0; 0], "nothing is new");
        assert_eq!(gate.on_disk(), OnDisk::UpTo(4));
        assert_eq!(gate.take_released(&queue).calls, [4, 3]);
        assert_eq!(wait(5, 5), Wait::Registered);
        assert_eq!(report(&gate, OnDisk::NoFile), [1], "it waits in vain");
        assert_eq!(gate.take_released(&queue).calls, [5]);
    }
}

#[cfg(all(test, loom))]
mod model {
    use super::*;
    use loom::thread;

    /// Two sessions of a worker wait for two records, which are reported one after the other. The worker looks into its queue
    /// when it is told to, at any time: each session is released after its record, and none is left when all is reported.
    fn check(looks_again: bool) {
        loom::model(move || {
            let gate = Arc::new(Gate::default());
            gate.close(0);
            // The worker's mailbox, in which one message is as good as two.
            let (queue, told) = (gate.make_queue(0), Arc::new(Mutex::new(false)));
            let disk = {
                let (gate, told) = (gate.clone(), told.clone());
                thread::spawn(move || {
                    for number in 1..=2 {
                        gate.advance(number, &mut |_| *told.lock().unwrap() = true);
                    }
                })
            };
            let mut waiting = 0;
            for number in [2, 1] {
                let wait = gate.join(&queue, Until::Synced(number), number, looks_again);
                waiting += u32::from(wait == Wait::Registered);
            }
            let mut look = || {
                if mem::take(&mut *told.lock().unwrap()) {
                    for token in gate.take_released(&queue).replies {
                        assert!(gate.is_reached(Until::Synced(token)), "answered too early");
                        waiting -= 1;
                    }
                }
                waiting
            };
            look();
            disk.join().unwrap();
            assert_eq!(look(), 0, "a session is left behind");
        });
    }

    /// A session waits for two replicas to have a record, whose acknowledgements come to two threads. `in_turn`: who hears of
    /// one reports what all have before the next is heard.
    fn check_replicas(in_turn: bool) {
        loom::model(move || {
            let gate = Arc::new(Gate::default());
            let (queue, told) = (gate.make_queue(0), Arc::new(Mutex::new(false)));
            let acked = Arc::new(Mutex::new([0, 0]));
            let hear = |replica: usize| {
                let (gate, told, acked) = (gate.clone(), told.clone(), acked.clone());
                move || {
                    let mut records = acked.lock().unwrap();
                    records[replica] = 5;
                    let all = records.to_vec();
                    let turn = in_turn.then_some(records);
                    gate.report_replicas(all, Vec::new(), &mut |_| *told.lock().unwrap() = true);
                    drop(turn);
                }
            };
            let first = thread::spawn(hear(0));
            let until = Until::Acked(2, 5);
            let mut waits = gate.join(&queue, until, 7, true) == Wait::Registered;
            hear(1)();
            let mut look = || {
                if mem::take(&mut *told.lock().unwrap()) {
                    for token in gate.take_released(&queue).calls {
                        assert_eq!((token, waits), (7, true));
                        assert_eq!(*acked.lock().unwrap(), [5, 5], "answered too early");
                        waits = false;
                    }
                }
                waits
            };
            look();
            first.join().unwrap();
            assert!(!look(), "a session is left behind");
        });
    }

    /// A worker writes a record, and its reply leaves if the gate is open; meanwhile the gate is closed. `after_turns`: whoever
    /// closes it asks for the last record that a reply may have told of when the worker has ended its turn.
    fn check_closing(after_turns: bool) {
        loom::model(move || {
            let (gate, records) = (Arc::new(Gate::default()), Arc::new(AtomicU64::new(0)));
            let worker = {
                let (gate, records) = (gate.clone(), records.clone());
                thread::spawn(move || {
                    let record = records.fetch_add(1, Ordering::AcqRel) + 1;
                    if gate.is_open() { record } else { 0 }
                })
            };
            gate.hold_behind(records.load(Ordering::Acquire));
            let before = records.load(Ordering::Acquire);
            let told = worker.join().unwrap();
            let last = match after_turns {
                true => records.load(Ordering::Acquire),
                false => before,
            };
            assert!(told <= last, "a reply has left of which nobody knows");
            assert!(!gate.is_open());
        });
    }

    #[test]
    fn gate_replies_that_leave_as_it_is_closed_are_known() {
        check_closing(true);
    }

    #[test]
    #[should_panic(expected = "of which nobody knows")]
    fn gate_a_look_at_the_records_before_the_turns_end_misses_a_reply() {
        check_closing(false);
    }

    #[test]
    fn gate_who_waits_for_replicas_is_released_whoever_hears_of_them() {
        check_replicas(true);
    }

    #[test]
    #[should_panic(expected = "left behind")]
    fn gate_reports_that_overtake_each_other_lose_a_session() {
        check_replicas(false);
    }

    #[test]
    fn gate_sessions_are_released_whenever_it_is_reported() {
        check(true);
    }

    #[test]
    #[should_panic(expected = "left behind")]
    fn gate_a_look_outside_the_queue_loses_a_session() {
        check(false);
    }
}
