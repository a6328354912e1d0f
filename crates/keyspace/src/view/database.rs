//! A whole database of a unit: counts its keys, walks over them, draws a random one, empties it, swaps it.
//!
//! Must not know: commands.

use std::{ptr::NonNull, sync::atomic::Ordering};

use redline_table::{Index, prefetch};

use super::{
    Busy, Found, Held, View,
    entries::{Entries, is_expired},
    waiting::make_all_ready,
};
use crate::{
    entry::Entry,
    lock::Guard,
    notify::{Classes, Event},
    space::{Db, LabelledKey, Matcher, SLOTS, SLOTS_PER_STRIPE, stripe_of, stripe_of_slot},
};

/// Number of entries that are met before they are read, so that their cache misses overlap.
const ENTRIES_AHEAD: u64 = 64;

/// Reason why no random key was returned, though there are some.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NoDraw {
    /// A stripe was in the way.
    Busy(Busy),
    /// This key was drawn and has expired: the holder of its stripe is to remove it, and to draw again.
    Expired(Box<[u8]>),
}

/// Entries that a walk has met and not looked at yet.
#[derive(Default)]
struct Met(Vec<NonNull<u8>>);

impl Met {
    #[inline]
    fn push(&mut self, pointer: NonNull<u8>) {
        prefetch(pointer.addr().get());
        self.0.push(pointer);
    }

    fn len(&self) -> usize {
        self.0.len()
    }
}

/// The selected database as a whole: see [`View::database`].
pub struct Database<'v, 'a> {
    entries: &'v mut Entries<'a>,
}

impl<'a> View<'a> {
    /// Returns the selected database as a whole.
    pub fn database(&mut self) -> Database<'_, 'a> {
        Database {
            entries: &mut self.entries,
        }
    }
}

impl<'a> Database<'_, 'a> {
    /// Returns the number of keys.
    pub fn key_count(&self) -> u64 {
        self.entries.space.key_count(self.entries.db)
    }

    /// Makes one step of SCAN: visits the keys of at least `count` (if there are as many) under this cursor and returns
    /// the next one, 0 at the end. A cursor is a prefix of the hash, so it stays good while the tables grow and shrink:
    /// every key present from the first call to the last is visited.
    pub fn scan(
        &mut self,
        cursor: u64,
        count: u64,
        mut visit: impl FnMut(&[u8], Found<'_>),
    ) -> Result<u64, Busy> {
        const H16_BITS: u32 = 16;
        let Some(db) = self.entries.space.db(self.entries.db) else {
            return Ok(0);
        };
        let mut slot = (cursor >> H16_BITS) as usize;
        let mut from = (cursor & 0xffff) as u32;
        let (mut visited, mut met) = (0, Met::default());
        let began = (slot, from);
        while slot < SLOTS && visited < count {
            let stripe = stripe_of_slot(slot);
            if db.stripes[usize::from(stripe)].keys.load(Ordering::Relaxed) == 0 {
                (slot, from) = ((usize::from(stripe) + 1) * SLOTS_PER_STRIPE, 0);
                continue;
            }
            let _own = match self.own(stripe) {
                Ok(own) => own,
                Err(busy) if (slot, from) == began => return Err(busy),
                Err(_) => break,
            };
            // Looked up anew: before the stripe was taken the database may have been flushed, and these be freed.
            let Some(db) = self.entries.space.db(self.entries.db) else {
                return Ok(0);
            };
            let end = (usize::from(stripe) + 1) * SLOTS_PER_STRIPE;
            while slot < end && visited < count {
                let wanted = (count - visited).min(ENTRIES_AHEAD);
                while slot < end && (met.len() as u64) < wanted {
                    match db.slots[slot].scan(from, |pointer| met.push(pointer)) {
                        Some(next) => from = next,
                        None => (slot, from) = (slot + 1, 0),
                    }
                }
                visited += met.len() as u64;
                self.visit(&mut met, &mut visit);
            }
        }
        let end = slot >= SLOTS;
        Ok(if end {
            0
        } else {
            (slot as u64) << H16_BITS | u64::from(from)
        })
    }

    /// Returns the keys whose labels fulfil all conditions that name values, in order; one names the values that there may be.
    /// Who reads the keys checks all conditions: by then a key may be gone, or have other labels.
    pub fn keys_by_labels(&self, matchers: &[Matcher]) -> Vec<LabelledKey> {
        let db = self.entries.space.db(self.entries.db);
        db.map_or_else(Vec::new, |db| db.labels.find(matchers))
    }

    /// Calls `read` with a key, if it is there, under its stripe, which is taken for the moment unless the unit holds it.
    ///
    /// # Errors
    ///
    /// If the stripe is in the way; nothing was read then.
    pub fn read_one<R>(
        &self,
        key: &[u8],
        read: impl FnOnce(Option<Found<'_>>) -> R,
    ) -> Result<R, Busy> {
        let hash = self.entries.space.place(key).hash();
        let _own = self.own(stripe_of(hash))?;
        // Looked up under the stripe, as by `scan`.
        let db = self.entries.space.db(self.entries.db);
        let entry = db.and_then(|db| db.find(hash, key, None));
        // SAFETY: the stripe is held until the call of `read` has ended.
        let found = unsafe {
            let entry = entry.filter(|entry| !is_expired(*entry, self.entries.now_ms));
            entry.map(|entry| Found::new(entry, self.entries.local))
        };
        Ok(read(found))
    }

    /// Takes a stripe for a moment, unless the unit holds it anyway.
    fn own(&self, stripe: u16) -> Result<Option<Guard<'a>>, Busy> {
        if self.entries.held.covers(stripe) {
            return Ok(None);
        }
        let own = self.entries.space.locks().try_one(stripe);
        own.map(Some).ok_or(Busy(stripe))
    }

    /// Visits every key; the unit holds all stripes (KEYS).
    pub fn for_each(&self, mut visit: impl FnMut(&[u8], Found<'_>)) {
        assert!(
            matches!(self.entries.held, Held::All),
            "every stripe is held"
        );
        let Some(db) = self.entries.space.db(self.entries.db) else {
            return;
        };
        let mut met = Met::default();
        for (stripe, slots) in db.stripes.iter().zip(db.slots.chunks(SLOTS_PER_STRIPE)) {
            if stripe.keys.load(Ordering::Relaxed) == 0 {
                continue;
            }
            for index in slots {
                index.for_each(|pointer| met.push(pointer));
                if met.len() as u64 >= ENTRIES_AHEAD {
                    self.visit(&mut met, &mut visit);
                }
            }
        }
        self.visit(&mut met, &mut visit);
    }

    /// Passes on those entries that have not expired; their stripes are held.
    fn visit(&self, met: &mut Met, visit: &mut impl FnMut(&[u8], Found<'_>)) {
        for pointer in met.0.drain(..) {
            let entry = Entry::from_table(pointer);
            // SAFETY: the stripe is held.
            unsafe {
                if !is_expired(entry, self.entries.now_ms) && !self.entries.space.hides(entry.key())
                {
                    visit(entry.key(), Found::new(entry, self.entries.local));
                }
            }
        }
    }

    /// Returns a random key, slots weighted by their size (RANDOMKEY). One that turns out to have expired is removed,
    /// if the unit holds its stripe; otherwise the caller gets it as an error.
    pub fn random_key(&mut self) -> Result<Option<Box<[u8]>>, NoDraw> {
        /// Draws of keys that stay, though they have expired.
        const STALE_MAX: u32 = 100;
        let Some(db) = self.entries.space.db(self.entries.db) else {
            return Ok(None);
        };
        let mut stale = 0;
        while stale < STALE_MAX {
            let Some(stripe) = db.stripe_by_size(&mut self.entries.local.rng) else {
                return Ok(None);
            };
            let own = self.own(stripe).map_err(NoDraw::Busy)?;
            // Looked up anew, as by `scan`.
            let Some(db) = self.entries.space.db(self.entries.db) else {
                return Ok(None);
            };
            let drawn = db
                .random_entry(stripe, &mut self.entries.local.rng)
                .map(|entry| {
                    // SAFETY: the stripe is held.
                    unsafe {
                        (
                            Box::<[u8]>::from(entry.key()),
                            is_expired(entry, self.entries.now_ms),
                        )
                    }
                });
            let was_taken = own.is_some();
            drop(own);
            match drawn {
                Some((key, _)) if self.entries.space.hides(&key) => stale += 1,
                Some((key, false)) => return Ok(Some(key)),
                // Counts may have moved.
                None => stale += 1,
                Some(_) if self.entries.local.keeps_expired => stale += 1,
                Some((key, true)) if was_taken => return Err(NoDraw::Expired(key)),
                Some((key, true)) => drop(self.entries.find_mut(&key)),
            }
        }
        Ok(None)
    }

    /// Empties the database (FLUSHDB); the unit holds all stripes. Its contents are freed behind the command. Returns
    /// the number of keys.
    pub fn flush(&mut self) -> u64 {
        let entries = &mut *self.entries;
        assert!(matches!(entries.held, Held::All), "every stripe is held");
        let db = entries.db;
        entries
            .space
            .touch_all(db, |key, saw_stale| !saw_stale && entries.in_table(db, key));
        // Several databases in a row are one event: clients that track keys do not tell databases apart.
        if entries.space.is_tracked() && !entries.local.events.ends_with(Classes::FLUSHED) {
            entries.local.events.push(Event {
                class: Classes::FLUSHED,
                name: "",
                db,
                key: Box::default(),
            });
        }
        entries.space.slots.note_flush();
        let Some(flushed) = entries.space.take_db(db) else {
            return 0;
        };
        make_all_ready(entries, db);
        let keys = flushed.len();
        entries.local.flushed.push(flushed);
        keys
    }

    /// Swaps the database with another one (SWAPDB); the unit holds all stripes.
    pub fn swap(&mut self, with: u32) {
        let entries = &mut *self.entries;
        assert!(matches!(entries.held, Held::All), "every stripe is held");
        let own = entries.db;
        for (db, other) in [(own, with), (with, own)] {
            // Where there was no key, one that has expired already is no change.
            entries.space.touch_all(db, |key, saw_stale| {
                !saw_stale && entries.in_table(db, key) || entries.lives(other, key)
            });
        }
        entries.space.swap_dbs(own, with);
        make_all_ready(entries, own);
        make_all_ready(entries, with);
    }
}

impl Db {
    /// Returns a random stripe, weighted by its keys; `None` when there are none.
    pub(crate) fn stripe_by_size(&self, rng: &mut fastrand::Rng) -> Option<u16> {
        let keys = |stripe: &crate::space::DbStripe| u64::from(stripe.keys.load(Ordering::Relaxed));
        let total: u64 = self.stripes.iter().map(keys).sum();
        if total == 0 {
            return None;
        }
        let mut left = rng.u64(..total);
        // Counts may move meanwhile: the last non-empty stripe is as good an answer then.
        let mut last = None;
        for (stripe, state) in self.stripes.iter().enumerate() {
            let here = keys(state);
            if here > 0 {
                last = Some(stripe as u16);
            }
            if left < here {
                return last;
            }
            left -= here;
        }
        last
    }

    /// Returns an entry of a random stripe; the caller holds the stripe.
    pub(crate) fn random_entry(&self, stripe: u16, rng: &mut fastrand::Rng) -> Option<Entry> {
        let first = usize::from(stripe) * SLOTS_PER_STRIPE;
        let slots = &self.slots[first..first + SLOTS_PER_STRIPE];
        let total: usize = slots.iter().map(Index::len).sum();
        if total == 0 {
            return None;
        }
        let mut left = rng.usize(..total);
        for index in slots {
            if left < index.len() {
                return index.random(rng.u64(..)).map(Entry::from_table);
            }
            left -= index.len();
        }
        None
    }
}
