//! Clients that wait for keys: their queues, first come first served, and the end of a wait.
//!
//! A [`Waiter`] stands in the queue of every key that it waits for. The queues belong to the stripes of their keys:
//! they are looked at and changed by holders of the stripe only. Must not know: commands, sessions, threads, time.
//!
//! # How a wait ends
//!
//! A served element, a time-out, CLIENT UNBLOCK, CLIENT KILL and a closed connection may come at the same moment, on
//! different threads, and none of them asks another. So each wait has one word, and the thread that changes it from
//! `WAITING` has ended the wait, for good and alone ([`Waiter::end`]). A thread that serves does so *before* it takes
//! anything from a key: nothing is ever taken for a client that has gone. Entries that a wait leaves in queues after
//! its end are of no consequence: they are passed over, and removed by the next holder of the stripe that meets them.
//!
//! A kill may come between two waits of a client. It is remembered in the client's [`WaitSlot`], so that the next wait
//! ends as it begins.
//!
//! # Why no client is overlooked
//!
//! A client begins to wait while its unit holds the stripes of all its keys and has found nothing there. A unit that
//! makes such a key appear holds its stripe as well, so it comes before (then the client has found the key) or after,
//! and sees the queue. The count that spares other units the look into the queues needs no order of its own: it was
//! raised under the same stripe. `model` below checks both with loom.
//!
//! So no key that a client waits for holds anything that it could take, from the end of one unit to the beginning of the
//! next: it is enough to look at the keys that a unit has written, and at its end.

#[cfg(loom)]
use loom::sync::{
    Mutex,
    atomic::{AtomicU32, Ordering},
};
#[cfg(not(loom))]
use std::sync::{
    Mutex,
    atomic::{AtomicU32, Ordering},
};
use std::{
    any::Any,
    collections::{HashSet, VecDeque},
    sync::Arc,
    sync::atomic::Ordering::Relaxed,
};

use redline_types::Kind;

use crate::{
    lock::{Held, StripeSet, WakeToken},
    space::{Keyspace, Place, StripeState},
};

/// The end of a wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub enum End {
    /// The client got what it waited for, or an error from the command.
    Served = 1,
    /// Its time was over, or CLIENT UNBLOCK ended it.
    TimedOut,
    /// CLIENT UNBLOCK … ERROR.
    Unblocked,
    /// The client was killed, or has disconnected.
    Gone,
    /// Its command is to be run again, by its own worker.
    Again,
    /// The server follows a primary now.
    Demoted,
}

const WAITING: u32 = 0;

/// One client's wait for one or more keys.
pub struct Waiter {
    word: AtomicU32,
    /// The token of the waiting session; the caller's, as for locks.
    pub token: WakeToken,
    /// The database of its keys.
    pub db: u32,
    /// The keys that the client waits for, without duplicates.
    pub keys: Box<[Box<[u8]>]>,
    /// Further keys that serving it writes (the destination of BLMOVE).
    pub targets: Box<[Box<[u8]>]>,
    /// The stripes of `keys` and `targets`: serving it takes them all.
    pub stripes: StripeSet,
    /// The type that a key must have to serve it.
    pub kind: Kind,
    /// It is served (with an error) also when a key goes or changes its type: XREADGROUP.
    pub when_gone: bool,
    /// The call to carry out when the wait is served; the caller's.
    pub call: Box<dyn Any + Send + Sync>,
}

/// The parameters of a wait: see the fields of [`Waiter`].
pub struct Wanted {
    /// See [`Waiter::token`].
    pub token: WakeToken,
    /// See [`Waiter::db`].
    pub db: u32,
    /// See [`Waiter::keys`]; duplicates are dropped.
    pub keys: Vec<Box<[u8]>>,
    /// See [`Waiter::targets`].
    pub targets: Vec<Box<[u8]>>,
    /// See [`Waiter::kind`].
    pub kind: Kind,
    /// See [`Waiter::when_gone`].
    pub when_gone: bool,
    /// See [`Waiter::call`].
    pub call: Box<dyn Any + Send + Sync>,
}

impl Waiter {
    /// Makes a wait that has not ended. It stands in no queue yet: see [`Unit::wait`](crate::Unit::wait).
    pub fn new(space: &Keyspace, wanted: Wanted) -> Waiter {
        let mut stripes = StripeSet::EMPTY;
        for key in wanted.keys.iter().chain(&wanted.targets) {
            stripes.insert(space.place(key).stripe());
        }
        let mut keys: Vec<Box<[u8]>> = Vec::with_capacity(wanted.keys.len());
        let mut seen = HashSet::new();
        for key in wanted.keys {
            if seen.insert(key.clone()) {
                keys.push(key);
            }
        }
        Waiter {
            word: AtomicU32::new(WAITING),
            token: wanted.token,
            db: wanted.db,
            keys: keys.into(),
            targets: wanted.targets.into(),
            stripes,
            kind: wanted.kind,
            when_gone: wanted.when_gone,
            call: wanted.call,
        }
    }

    /// Ends the wait. Returns false if another thread has, whose decision stands.
    pub fn end(&self, how: End) -> bool {
        // Release and acquire: what the winner did before is visible to a thread that finds the wait ended.
        self.word
            .compare_exchange(WAITING, how as u32, Ordering::AcqRel, Ordering::Acquire)
            .is_ok()
    }

    /// Returns the end of the wait; `None`: it goes on.
    pub fn ended(&self) -> Option<End> {
        const ENDS: [End; 6] = [
            End::Served,
            End::TimedOut,
            End::Unblocked,
            End::Gone,
            End::Again,
            End::Demoted,
        ];
        let word = self.word.load(Ordering::Acquire);
        ENDS.into_iter().find(|end| *end as u32 == word)
    }
}

/// A client's wait, where other threads find it.
#[derive(Default)]
pub struct WaitSlot(Mutex<SlotState>);

#[derive(Default)]
struct SlotState {
    killed: bool,
    waiter: Option<Arc<Waiter>>,
}

impl WaitSlot {
    /// Enters a wait that the client begins. If it was killed before, the wait ends at once.
    pub fn enter(&self, waiter: &Arc<Waiter>) {
        let mut slot = self.0.lock().expect("no panic under a wait slot");
        if slot.killed {
            waiter.end(End::Gone);
        }
        slot.waiter = Some(waiter.clone());
    }

    /// Removes the wait of a client that waits no more.
    pub fn leave(&self) {
        self.0.lock().expect("no panic under a wait slot").waiter = None;
    }

    /// Returns true if the client's wait has ended, and the client has not gone on yet.
    pub fn is_over(&self) -> bool {
        let slot = self.0.lock().expect("no panic under a wait slot");
        let waiter = slot.waiter.as_ref();
        waiter.is_some_and(|waiter| waiter.ended().is_some())
    }

    /// Returns true if the client waits for such a key.
    pub fn waits_for(&self, is_such: impl Fn(&[u8]) -> bool) -> bool {
        let slot = self.0.lock().expect("no panic under a wait slot");
        let waiter = slot.waiter.as_ref();
        waiter.is_some_and(|waiter| waiter.keys.iter().any(|key| is_such(key)))
    }

    /// Ends the client's wait, if it waits, and returns the waiter to be told.
    pub fn end(&self, how: End) -> Option<Arc<Waiter>> {
        let slot = self.0.lock().expect("no panic under a wait slot");
        slot.waiter.clone().filter(|waiter| waiter.end(how))
    }

    /// Ends this wait and all later ones: the client is to be closed.
    pub fn kill(&self) {
        let mut slot = self.0.lock().expect("no panic under a wait slot");
        slot.killed = true;
        if let Some(waiter) = &slot.waiter {
            waiter.end(End::Gone);
        }
    }
}

/// The clients that wait for one key of one database.
pub(crate) struct Queue {
    pub(crate) db: u32,
    pub(crate) waiters: VecDeque<Arc<Waiter>>,
    /// Number of them that are to know when the key goes.
    pub(crate) when_gone: usize,
    /// In [`Ready`] of the unit that holds the stripe.
    pub(crate) ready: bool,
}

/// A key that a client waits for and that the running unit has changed.
#[derive(Debug)]
pub struct Ready {
    /// Its database.
    pub db: u32,
    /// The key.
    pub key: Box<[u8]>,
}

impl Keyspace {
    /// Returns true if a client waits for any key. Exact for the keys of a stripe that the caller holds.
    #[inline]
    pub fn anybody_waits(&self) -> bool {
        self.waits.load(Relaxed) != 0
    }

    /// Returns the number of keys that a client waits for, and of those where it matters when they go.
    pub fn waited_keys(&self) -> (u64, u64) {
        (
            self.waited_keys.load(Relaxed),
            self.waited_keys_gone.load(Relaxed),
        )
    }

    /// Does the work of [`Unit::widen`](crate::Unit::widen).
    pub(crate) fn widen(&self, held: Held<'_>, key: &[u8], set: &mut StripeSet) {
        let (mut todo, mut seen) = (Vec::new(), HashSet::new());
        self.widen_one(held, key, set, &mut seen, &mut todo);
        while let Some(key) = todo.pop() {
            self.widen_one(held, &key, set, &mut seen, &mut todo);
        }
    }

    /// Does the work of [`Unit::is_waited_for`](crate::Unit::is_waited_for).
    pub(crate) fn is_waited_for(&self, held: Held<'_>, key: &[u8], place: Place) -> bool {
        let stripe = place.stripe();
        assert!(held.covers(stripe), "queues belong to their stripes");
        // SAFETY: the caller holds the stripe; the reference ends with this function.
        let state = unsafe { self.stripe_state(stripe) };
        state.waiters.contains_key(key)
    }

    fn widen_one(
        &self,
        held: Held<'_>,
        key: &[u8],
        set: &mut StripeSet,
        seen: &mut HashSet<Box<[u8]>>,
        todo: &mut Vec<Box<[u8]>>,
    ) {
        let stripe = self.place(key).stripe();
        if !held.covers(stripe) {
            return;
        }
        // SAFETY: the caller holds the stripe; the reference ends with this function.
        let state = unsafe { self.stripe_state(stripe) };
        for queue in state.waiters.get(key).into_iter().flatten() {
            for waiter in queue.waiters.iter().filter(|w| w.ended().is_none()) {
                set.extend(&waiter.stripes);
                for target in &waiter.targets {
                    if !seen.contains(target) {
                        seen.insert(target.clone());
                        todo.push(target.clone());
                    }
                }
            }
        }
    }

    /// Appends a waiter to the queue of one of its keys; the caller holds the stripe.
    pub(crate) fn join(&self, stripe: u16, key: &[u8], waiter: &Arc<Waiter>) {
        // SAFETY: the caller holds the stripe; the reference ends with this function.
        let state = unsafe { self.stripe_state(stripe) };
        let queues = state.waiters.entry(key.into()).or_default();
        let at = match queues.iter().position(|queue| queue.db == waiter.db) {
            Some(at) => at,
            None => {
                queues.push(Queue {
                    db: waiter.db,
                    waiters: VecDeque::new(),
                    when_gone: 0,
                    ready: false,
                });
                self.waited_keys.fetch_add(1, Relaxed);
                queues.len() - 1
            }
        };
        let queue = &mut queues[at];
        queue.waiters.push_back(waiter.clone());
        if waiter.when_gone {
            queue.when_gone += 1;
            if queue.when_gone == 1 {
                self.waited_keys_gone.fetch_add(1, Relaxed);
            }
        }
        // Before the stripe is released: its next holder must see that a client waits.
        self.waits.fetch_add(1, Relaxed);
    }

    /// Removes a place in a queue; the queue goes with its last.
    pub(crate) fn remove_at(&self, state: &mut StripeState, db: u32, key: &[u8], at: usize) {
        let Some(queues) = state.waiters.get_mut(key) else {
            return;
        };
        let Some(place) = queues.iter().position(|queue| queue.db == db) else {
            return;
        };
        let queue = &mut queues[place];
        let Some(waiter) = queue.waiters.remove(at) else {
            return;
        };
        self.waits.fetch_sub(1, Relaxed);
        if waiter.when_gone {
            queue.when_gone -= 1;
            if queue.when_gone == 0 {
                self.waited_keys_gone.fetch_sub(1, Relaxed);
            }
        }
        if queue.waiters.is_empty() {
            queues.swap_remove(place);
            self.waited_keys.fetch_sub(1, Relaxed);
            if queues.is_empty() {
                state.waiters.remove(key);
            }
        }
    }
}

/// Every interleaving, within loom's bounds:
/// `RUSTFLAGS="--cfg loom" CARGO_TARGET_DIR=target/loom cargo test -p redline-keyspace --release --lib wait::model`
#[cfg(all(test, loom))]
mod model {
    use super::*;
    use crate::lock::{Guard, Locks, NobodyWaits};
    use loom::{cell::UnsafeCell, sync::atomic::AtomicU64, thread};

    fn waiter() -> Waiter {
        Waiter {
            word: AtomicU32::new(WAITING),
            token: 1,
            db: 0,
            keys: Box::default(),
            targets: Box::default(),
            stripes: StripeSet::EMPTY,
            kind: Kind::List,
            when_gone: false,
            call: Box::new(()),
        }
    }

    /// A key that one stripe guards: its elements, and the clients that wait for it.
    struct Key {
        locks: Locks,
        waits: AtomicU64,
        state: UnsafeCell<(u32, Option<Arc<Waiter>>)>,
    }

    // SAFETY: the cell is used under the stripe only, which is what loom checks.
    unsafe impl Sync for Key {}
    // SAFETY: as above.
    unsafe impl Send for Key {}

    impl Key {
        fn new(elements: u32, waiter: Option<Arc<Waiter>>) -> Arc<Key> {
            Arc::new(Key {
                locks: Locks::new(Box::new(NobodyWaits)),
                waits: AtomicU64::new(u64::from(waiter.is_some())),
                state: UnsafeCell::new((elements, waiter)),
            })
        }

        fn lock(&self) -> Guard<'_> {
            loop {
                match self.locks.try_one(0) {
                    Some(held) => return held,
                    None => thread::yield_now(),
                }
            }
        }

        /// Pushes an element, and serves the waiting client at the end of the unit.
        fn push(&self) -> bool {
            let _held = self.lock();
            let mut served = false;
            self.state.with_mut(|state| {
                // SAFETY: the stripe is held.
                let (elements, waiter) = unsafe { &mut *state };
                *elements += 1;
                if self.waits.load(Ordering::Relaxed) != 0
                    && let Some(waiter) = waiter
                    && waiter.end(End::Served)
                {
                    *elements -= 1;
                    served = true;
                }
            });
            served
        }

        fn elements(&self) -> u32 {
            // SAFETY: all other threads have been joined.
            self.state.with(|state| unsafe { (*state).0 })
        }
    }

    #[test]
    fn one_of_service_time_out_and_kill_ends_a_wait_and_an_element_goes_with_service_only() {
        loom::model(|| {
            let waiter = Arc::new(waiter());
            let key = Key::new(0, Some(waiter.clone()));
            let slot = Arc::new(WaitSlot::default());
            slot.enter(&waiter);
            let pusher = {
                let key = key.clone();
                thread::spawn(move || key.push())
            };
            let killer = {
                let slot = slot.clone();
                thread::spawn(move || slot.kill())
            };
            let timed_out = waiter.end(End::TimedOut);
            let served = pusher.join().unwrap();
            killer.join().unwrap();
            let ended = waiter.ended().expect("somebody has ended it");
            assert_eq!(served, ended == End::Served);
            assert_eq!(timed_out, ended == End::TimedOut);
            assert_eq!(key.elements(), u32::from(!served));
        });
    }

    #[test]
    fn a_kill_that_comes_as_the_wait_begins_ends_it() {
        loom::model(|| {
            let waiter = Arc::new(waiter());
            let slot = Arc::new(WaitSlot::default());
            let killer = {
                let slot = slot.clone();
                thread::spawn(move || slot.kill())
            };
            slot.enter(&waiter);
            killer.join().unwrap();
            assert_eq!(waiter.ended(), Some(End::Gone));
        });
    }

    #[test]
    fn who_begins_to_wait_finds_the_element_or_is_found_by_it() {
        loom::model(|| {
            let key = Key::new(0, None);
            let waiter = Arc::new(waiter());
            let pusher = {
                let key = key.clone();
                thread::spawn(move || key.push())
            };
            let held = key.lock();
            let found = key.state.with_mut(|state| {
                // SAFETY: the stripe is held.
                let (elements, queue) = unsafe { &mut *state };
                if *elements > 0 {
                    *elements -= 1;
                    return true;
                }
                *queue = Some(waiter.clone());
                key.waits.fetch_add(1, Ordering::Relaxed);
                false
            });
            drop(held);
            let served = pusher.join().unwrap();
            assert!(found != served, "found {found}, served {served}");
            assert_eq!(key.elements(), 0);
        });
    }
}
