//! All interleavings of a change of the role, under every stripe, with what runs beside it: a write, a client that begins
//! to wait for a key, the pump. The stripe, the journal and its pump are the real ones or stand for all of them; what the
//! engine and the server do around them is played here, step by step.
//!
//! Must not know: what a role is for, replicas.

use super::*;
use std::sync::atomic::{AtomicU64 as Plain, Ordering::Relaxed};

/// A step that is left out, to show that the model finds what it is there for.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Fault {
    None,
    /// A write believes the check before its stripes.
    LooksOnce,
    /// A call that waits does.
    WaitsOnce,
    /// The stream counts as whole because it was pumped.
    BelievesThePump,
    /// A new primary takes everything from the lanes for its own.
    TakesAll,
}

#[derive(Default)]
struct Stripe {
    is_replica: bool,
    /// A client waits for the key.
    is_waited_for: bool,
    /// A client that waited was told that the role has changed.
    told: bool,
    /// The numbers of records that were written by clients.
    written: Vec<u64>,
}

/// A server, as far as it concerns its role.
struct Node {
    journal: Journal,
    /// All stripes.
    stripe: Mutex<Stripe>,
    /// Moves when the role changes: what the units' checks go by.
    epoch: AtomicU64,
    stream: std::sync::Arc<Own>,
    fault: Fault,
}

/// The server's own stream, as replicas get it. Not part of the model: in the server it has a lock of its own.
#[derive(Default)]
struct Own {
    records: std::sync::Mutex<Vec<u64>>,
    is_replica: std::sync::atomic::AtomicBool,
    /// The last record that the lanes had when the server became a primary.
    own_from: Plain,
}

struct Receiver {
    own: std::sync::Arc<Own>,
    seen: u64,
    takes_all: bool,
}

impl Stream for Receiver {
    fn write(&mut self, _: &[Piece<'_>], end: Position) {
        let before = std::mem::replace(&mut self.seen, end.number);
        let is_own = self.takes_all || end.number > self.own.own_from.load(Relaxed);
        if !self.own.is_replica.load(Relaxed) && is_own {
            let mut records = self.own.records.lock().unwrap();
            records.extend(before + 1..=end.number);
        }
    }

    fn cut(&mut self, at: Position) {
        self.seen = at.number;
    }
}

impl Node {
    fn new(is_replica: bool, fault: Fault) -> Arc<Node> {
        let (journal, stream) = (Journal::default(), std::sync::Arc::<Own>::default());
        stream.is_replica.store(is_replica, Relaxed);
        journal.attach(Box::new(Receiver {
            own: stream.clone(),
            seen: 0,
            takes_all: fault == Fault::TakesAll,
        }));
        journal.pump_all();
        let stripe = Stripe {
            is_replica,
            ..Stripe::default()
        };
        Arc::new(Node {
            journal,
            stripe: Mutex::new(stripe),
            epoch: AtomicU64::new(u64::from(is_replica)),
            stream,
            fault,
        })
    }

    /// Takes the stripe for a client's unit, if a client may change something.
    fn take_for_client(&self, looks_again: bool) -> Option<loom::sync::MutexGuard<'_, Stripe>> {
        let mut epoch = self.epoch.load(Ordering::Acquire);
        loop {
            if epoch == 1 {
                return None;
            }
            let stripe = self.stripe.lock().unwrap();
            let now = self.epoch.load(Ordering::Acquire);
            if now == epoch || !looks_again {
                return Some(stripe);
            }
            epoch = now;
        }
    }

    /// Runs a client's write, which serves who waits, and pumps.
    fn write_for_client(&self) {
        if let Some(mut stripe) = self.take_for_client(self.fault != Fault::LooksOnce) {
            assert!(!stripe.is_replica, "a write was accepted after the switch");
            write(&self.journal, &[0]);
            stripe.is_waited_for = false;
            let number = self.journal.last();
            stripe.written.push(number);
        }
        self.journal.pump_all();
    }

    /// Begins a client's wait for the key.
    fn wait_for_client(&self) {
        if let Some(mut stripe) = self.take_for_client(self.fault != Fault::WaitsOnce) {
            stripe.is_waited_for = true;
        }
    }

    /// Becomes a replica. Returns the stream so far, and true if it is said to have everything.
    fn demote(&self) -> (Vec<u64>, bool) {
        let mut stripe = self.stripe.lock().unwrap();
        self.journal.pump_all();
        let records = self.stream.records.lock().unwrap().clone();
        let last = records.last().copied().unwrap_or(0);
        let is_whole = self.fault == Fault::BelievesThePump || last == self.journal.last();
        self.stream.is_replica.store(true, Relaxed);
        stripe.is_replica = true;
        self.epoch.store(1, Ordering::Release);
        stripe.told |= std::mem::take(&mut stripe.is_waited_for);
        (records, is_whole)
    }
}

fn demotion(fault: Fault) {
    check(3, move || {
        let node = Node::new(false, fault);
        let writer = {
            let node = node.clone();
            thread::spawn(move || node.write_for_client())
        };
        let waiter = {
            let node = node.clone();
            thread::spawn(move || node.wait_for_client())
        };
        let (records, is_whole) = node.demote();
        writer.join().unwrap();
        waiter.join().unwrap();
        let stripe = node.stripe.lock().unwrap();
        assert!(
            !stripe.is_waited_for,
            "a client waits for what a replica does not give"
        );
        let has_all = stripe.written.iter().all(|number| records.contains(number));
        assert!(!is_whole || has_all, "a write is lost from the stream");
    });
}

#[test]
fn role_nothing_is_accepted_behind_the_switch_and_a_whole_stream_has_all() {
    demotion(Fault::None);
}

#[test]
#[should_panic(expected = "after the switch")]
fn role_a_check_before_the_stripes_alone_lets_a_write_through() {
    demotion(Fault::LooksOnce);
}

#[test]
#[should_panic(expected = "a client waits")]
fn role_a_wait_that_begins_behind_the_switch_is_told_nothing() {
    demotion(Fault::WaitsOnce);
}

#[test]
#[should_panic(expected = "lost from the stream")]
fn role_who_has_offered_to_pump_need_not_have_pumped() {
    demotion(Fault::BelievesThePump);
}

/// A replica applies a record, which another worker pumps, and becomes a primary, which writes one of its own.
fn promotion(fault: Fault) {
    check(3, move || {
        let node = Node::new(true, fault);
        let pump = {
            let node = node.clone();
            thread::spawn(move || node.journal.pump_all())
        };
        write(&node.journal, &[0]);
        node.journal.pump_all();
        let mut stripe = node.stripe.lock().unwrap();
        let number = node.journal.cut();
        node.stream.own_from.store(number, Relaxed);
        node.stream.is_replica.store(false, Relaxed);
        stripe.is_replica = false;
        drop(stripe);
        write(&node.journal, &[1]);
        node.journal.pump_all();
        pump.join().unwrap();
        node.journal.pump_all();
        let records = node.stream.records.lock().unwrap();
        assert_eq!(*records, [2], "the stream has what was applied twice");
    });
}

#[test]
fn role_a_new_primary_tells_nothing_that_it_was_told() {
    promotion(Fault::None);
}

#[test]
#[should_panic(expected = "applied twice")]
fn role_the_lanes_may_still_have_what_was_applied() {
    promotion(Fault::TakesAll);
}
