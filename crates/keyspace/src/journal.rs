//! The journal: the one order of all effects on the keyspace, for readers that save or copy it.
//!
//! Must not know: the meaning of commands, the readers. It takes a unit's effect as commands, numbers it, and gives
//! the commands on as one stream of bytes.
//!
//! # How it works
//!
//! A unit that has changed something writes one record while it still holds its stripes. The record's number comes
//! from one counter, so of two units that touched the same key the later has the higher number; units that had nothing
//! in common are in some order. The record is bytes in the *lane* of its worker ([`lane`]), which no other thread writes to,
//! so that workers share nothing but the counter.
//!
//! The [`pump`], a role that workers take in turn, merges the lanes into one stream in the order of numbers. A worker may
//! take a number and be stopped before its record is published: the stream ends before the first number that is missing.
//!
//! With no [`Stream`] nothing is written, numbered or kept, and a unit pays one relaxed load. A stream is attached while
//! all stripes are held, so every unit is either wholly before it or has its record.
//!
//! # The gate
//!
//! Whoever takes the stream reports to the [`Gate`] how far it has got (written to disk). A session whose replies must not
//! leave before some record is reached waits there, and is woken like any suspended session.

mod gate;
mod lane;
mod pump;
mod record;

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

pub use gate::{Gate, OnDisk, Queue, Released, Until};
pub use lane::Writer;
pub use pump::{Piece, Position, Stream};
pub use record::{Command, Damaged, Effects, Record, RecordReader, Word, Words};

use pump::Order;

/// Stands for the database of what has none.
const NO_DB: u32 = u32::MAX;

/// The journal: see the module's text.
pub struct Journal {
    /// A stream takes the records.
    attached: AtomicBool,
    /// The number of the next record.
    next: OwnLine<AtomicU64>,
    /// Where the pump's role is; see [`pump`].
    role: OwnLine<AtomicU32>,
    state: RoleCell<pump::State>,
    lanes: Mutex<lane::Lanes>,
    lane_count: lane::LaneCount,
    orders: Mutex<pump::Orders>,
    order_count: AtomicU32,
    positions: Mutex<pump::Positions>,
    /// Gate at which replies wait.
    pub gate: Gate,
}

/// A word that many write, apart from those that are only read.
#[repr(align(128))]
struct OwnLine<T>(T);

impl<T> std::ops::Deref for OwnLine<T> {
    type Target = T;

    #[inline]
    fn deref(&self) -> &T {
        &self.0
    }
}

/// State of the holder of the pump's role.
struct RoleCell<T>(
    #[cfg(not(loom))] std::cell::UnsafeCell<T>,
    #[cfg(loom)] loom::cell::UnsafeCell<T>,
);

// SAFETY: the content is reached by `with_role` alone, which the holder of the role calls; the word of the role hands it from
// thread to thread with acquire and release. The model of the pump checks it.
unsafe impl<T: Send> Sync for RoleCell<T> {}

impl<T> RoleCell<T> {
    /// Lets the holder of the role use the state. Called by [`Journal::offer`] alone, between its taking of the role and its
    /// giving it up.
    fn with_role<R>(&self, act: impl FnOnce(&mut T) -> R) -> R {
        #[cfg(not(loom))]
        // SAFETY: `Journal::offer`, the only caller, has the role, so no other thread is here.
        return act(unsafe { &mut *self.0.get() });
        #[cfg(loom)]
        // SAFETY: as above; loom checks it.
        return self.0.with_mut(|state| act(unsafe { &mut *state }));
    }
}

impl Default for Journal {
    fn default() -> Journal {
        Journal {
            attached: AtomicBool::new(false),
            next: OwnLine(AtomicU64::new(1)),
            role: OwnLine(AtomicU32::new(pump::IDLE)),
            state: RoleCell(Default::default()),
            lanes: Mutex::default(),
            lane_count: AtomicU32::new(0),
            orders: Mutex::default(),
            order_count: AtomicU32::new(0),
            positions: Mutex::default(),
            gate: Gate::default(),
        }
    }
}

impl Journal {
    /// Returns true if there is a stream. While a stripe is held the answer does not become true.
    #[inline]
    pub fn is_attached(&self) -> bool {
        self.attached.load(Ordering::Relaxed)
    }

    /// Returns the number of the last record, which may still be on its way; 0: none yet.
    pub fn last(&self) -> u64 {
        self.next.load(Ordering::Acquire) - 1
    }

    /// Attaches a stream, which gets the record of every unit from now on; returns the number after which it begins.
    /// The caller holds all stripes. The stream hears of its begin from whoever pumps next.
    ///
    /// # Panics
    /// If there is a stream already.
    pub(crate) fn attach(&self, stream: Box<dyn Stream>) -> u64 {
        assert!(!self.is_attached(), "one stream at a time");
        let after = self.last();
        self.give_order(after, Order::Attach(stream));
        // Release, for units that hold no stripe (PUBLISH); the stripes order this before all others.
        self.attached.store(true, Ordering::Release);
        after
    }

    /// Ends the records of a stream's first part here: see [`Unit::cut_journal`](crate::Unit::cut_journal).
    pub(crate) fn cut(&self) -> u64 {
        let after = self.last();
        if self.is_attached() {
            self.give_order(after, Order::Cut);
        }
        after
    }

    /// Ends the stream: it gets all records that have a number by now, and is dropped, by this call or by whoever pumps. Units
    /// that are running are not recorded; the caller holds all stripes if that matters. The pump runs, so that a caller with
    /// stripes has the stream's work done under them.
    pub fn detach(&self) {
        if self.attached.swap(false, Ordering::AcqRel) {
            self.give_order(self.last(), Order::Detach);
            self.pump_all();
        }
    }
}

#[cfg(test)]
#[cfg(not(loom))]
mod tests;

#[cfg(all(test, loom))]
mod model;
