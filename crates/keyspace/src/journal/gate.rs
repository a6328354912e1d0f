//! The gate: sessions whose replies wait until a record has been reached.
//!
//! Must not know: what it means to reach a record, sessions, how workers are notified.
//!
//! Each worker has a queue of its own, in which its sessions stand mostly in ascending order of what they wait for. A report
//! stores how far things have got and tells each worker whose first session is concerned, once: the worker takes out all that
//! are, also those of later reports.

use std::{collections::VecDeque, mem};

use super::{Arc, AtomicU64, Mutex, Ordering};
use crate::lock::{Wait, WakeToken};

/// The end of a wait: a predicate over positions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Until {
    /// The file has this record, and all before it, on disk.
    Synced(u64),
}

/// The positions that sessions wait for, and the queues of those that do.
pub struct Gate {
    /// Replies up to this record may leave; [`Gate::OPEN`]: all may.
    synced: AtomicU64,
    queues: Mutex<Vec<(usize, Arc<Queue>)>>,
}

/// The sessions of one worker that wait at the gate.
#[derive(Default)]
pub struct Queue(Mutex<Waiting>);

#[derive(Default)]
struct Waiting {
    /// By ascending number.
    synced: VecDeque<(u64, WakeToken)>,
    /// The worker has been told of a report since it last looked.
    told: bool,
}

impl Default for Gate {
    /// Makes an open gate.
    fn default() -> Gate {
        Gate {
            synced: AtomicU64::new(Gate::OPEN),
            queues: Mutex::default(),
        }
    }
}

impl Gate {
    const OPEN: u64 = u64::MAX;

    /// Returns true if the gate is open, whatever the record.
    #[inline]
    pub fn is_open(&self) -> bool {
        self.synced.load(Ordering::Relaxed) == Self::OPEN
    }

    /// Returns true if this has come to be.
    pub fn is_reached(&self, until: Until) -> bool {
        match until {
            Until::Synced(number) => self.synced.load(Ordering::Acquire) >= number,
        }
    }

    /// Closes the gate behind this record.
    pub fn close(&self, synced: u64) {
        self.synced.store(synced, Ordering::Release);
    }

    /// Makes the queue of a worker, which is told by this number.
    pub fn make_queue(&self, worker: usize) -> Arc<Queue> {
        let queue = Arc::new(Queue::default());
        let mut queues = self.queues.lock().expect("no panic under the queues");
        queues.push((worker, queue.clone()));
        queue
    }

    /// Puts a session of the queue's worker on it, unless what it waits for has come to be.
    pub fn wait_for(&self, queue: &Queue, until: Until, token: WakeToken) -> Wait {
        self.join(queue, until, token, true)
    }

    fn join(&self, queue: &Queue, until: Until, token: WakeToken, looks_again: bool) -> Wait {
        if !looks_again && self.is_reached(until) {
            return Wait::TryAgain; // a fault that only the model plants
        }
        let mut waiting = queue.0.lock().expect("no panic under a queue");
        // Under the mutex: a report stores first and looks into the queue afterwards.
        if looks_again && self.is_reached(until) {
            return Wait::TryAgain;
        }
        let Until::Synced(number) = until;
        let behind = waiting
            .synced
            .iter()
            .rposition(|(other, _)| *other <= number);
        let at = behind.map_or(0, |at| at + 1);
        waiting.synced.insert(at, (number, token));
        Wait::Registered
    }

    /// Reports that everything up to this record is on disk; `tell` is called with the number of each worker that is to
    /// look into its queue ([`Gate::take_released`]), and must not block.
    pub fn advance(&self, number: u64, tell: &mut dyn FnMut(usize)) {
        let before = self.synced.fetch_max(number, Ordering::AcqRel);
        let synced = before.max(number);
        let queues = self.queues.lock().expect("no panic under the queues");
        for (worker, queue) in queues.iter() {
            let mut waiting = queue.0.lock().expect("no panic under a queue");
            let first = waiting.synced.front();
            if first.is_some_and(|(first, _)| *first <= synced)
                && !mem::replace(&mut waiting.told, true)
            {
                tell(*worker);
            }
        }
    }

    /// Opens the gate: all replies may leave.
    pub fn open(&self, tell: &mut dyn FnMut(usize)) {
        self.advance(Self::OPEN, tell);
    }

    /// Takes the sessions out of a queue whose replies may leave, first come first.
    pub fn take_released(&self, queue: &Queue) -> Vec<WakeToken> {
        let mut waiting = queue.0.lock().expect("no panic under a queue");
        waiting.told = false;
        let synced = self.synced.load(Ordering::Acquire);
        let count = waiting
            .synced
            .partition_point(|(number, _)| *number <= synced);
        waiting
            .synced
            .drain(..count)
            .map(|(_, token)| token)
            .collect()
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
        assert_eq!(gate.take_released(&own), [32, 32, 42]);
        assert_eq!(advance(&gate, 3), [0; 0]);
        assert!(gate.is_reached(Until::Synced(4)), "it does not go back");
        assert_eq!(gate.take_released(&own), [0; 0]);
        let mut told = Vec::new();
        gate.open(&mut |worker| told.push(worker));
        assert_eq!(told, [3, 5]);
        assert_eq!(gate.take_released(&own), [52]);
        assert_eq!(gate.take_released(&other), [90]);
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
        assert_eq!(gate.take_released(&queue), [2, 4, 1, 3]);
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
                    for token in gate.take_released(&queue) {
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
