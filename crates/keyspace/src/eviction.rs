//! Eviction: one key goes, which the policy chooses among a few that are looked at.
//!
//! Must not know: commands, threads, time.

use std::sync::atomic::Ordering;

use crate::{
    entry::Entry,
    lock::STRIPES,
    notify::Classes,
    policy::Policy,
    space::{Keyspace, Local},
    unit::Unit,
    view::{Found, Trace},
};

/// Result of an attempt to evict a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Evicted {
    /// A key was evicted.
    One,
    /// There are keys that may be evicted, but those that were tried are in use: with several workers that passes at
    /// once.
    Later,
    /// No key may be evicted.
    Nothing,
}

/// The eviction of one key.
pub(crate) struct Eviction<'k> {
    space: &'k Keyspace,
    policy: Policy,
}

impl<'k> Eviction<'k> {
    /// Returns the eviction by the policy that is set.
    pub(crate) fn new(space: &'k Keyspace) -> Eviction<'k> {
        let policy = space.settings.policy.load(Ordering::Relaxed);
        Eviction {
            space,
            policy: Policy::from_number(policy),
        }
    }

    /// Does it: see [`Keyspace::evict_one`].
    pub(crate) fn run(
        &self,
        local: &mut Local,
        now_ms: i64,
        publish: &mut dyn FnMut(&mut Unit<'_>, &mut Local),
    ) -> Evicted {
        const ROUNDS_MAX: usize = 16;
        if self.policy == Policy::NoEviction {
            return Evicted::Nothing;
        }
        for _ in 0..ROUNDS_MAX {
            if self.policy.is_random() {
                local.pool.clear();
            }
            let samples = if self.policy.is_random() {
                1
            } else {
                self.space.settings.samples.load(Ordering::Relaxed).max(1)
            };
            for _ in 0..samples {
                if !self.sample(local) && local.pool.is_empty() {
                    return Evicted::Nothing;
                }
            }
            while let Some(victim) = local.pool.best() {
                if self.evict(local, victim.db, &victim.key, now_ms, publish) {
                    return Evicted::One;
                }
            }
        }
        Evicted::Later
    }

    /// Returns the number of candidates of a stripe, by database.
    fn candidates(&self, stripe: usize) -> impl Iterator<Item = (u32, u64)> {
        let volatile = self.policy.is_volatile();
        self.space.used_databases().filter_map(move |number| {
            let db = self.space.db(number)?;
            let state = &db.stripes[stripe];
            let count = if volatile {
                state.ttl.len() as u64
            } else {
                u64::from(state.keys.load(Ordering::Relaxed))
            };
            Some((number, count))
        })
    }

    /// Returns a stripe with candidates: one of a few random ones, weighted by its candidates. Were stripes drawn
    /// without weights, each would lose as many keys as come in, however many it has, and some would soon be empty. All
    /// are counted only where keys are few. None: there was no candidate at all.
    fn draw_stripe(&self, local: &mut Local) -> Option<usize> {
        const DRAWN: usize = 4;
        const DRAWS_MAX: usize = 4;
        let count = |stripe| -> u64 {
            let counts = self.candidates(stripe).map(|(_, count)| count);
            counts.sum()
        };
        for _ in 0..DRAWS_MAX {
            let drawn = [(); DRAWN].map(|()| {
                let stripe = local.rng.usize(..STRIPES);
                (stripe, count(stripe))
            });
            let total: u64 = drawn.iter().map(|(_, count)| count).sum();
            if total == 0 {
                continue;
            }
            let mut left = local.rng.u64(..total);
            for (stripe, count) in drawn {
                if left < count {
                    return Some(stripe);
                }
                left -= count;
            }
        }
        let stripes: Vec<usize> = (0..STRIPES).filter(|stripe| count(*stripe) > 0).collect();
        local.rng.choice(stripes)
    }

    /// Returns a database, weighted by its candidates in this stripe. None: they have been removed since.
    fn draw_database(&self, local: &mut Local, stripe: usize) -> Option<u32> {
        let total: u64 = self.candidates(stripe).map(|(_, n)| n).sum();
        let mut left = local.rng.u64(..total.max(1));
        let mut last = None;
        for (number, here) in self.candidates(stripe) {
            if here > 0 {
                last = Some(number);
            }
            if left < here {
                break;
            }
            left -= here;
        }
        last
    }

    /// Looks at one key and offers it to the pool, unless its stripe is in use. Returns false if there is no key at
    /// all.
    fn sample(&self, local: &mut Local) -> bool {
        let Some(stripe) = self.draw_stripe(local) else {
            return false;
        };
        let Some(number) = self.draw_database(local, stripe) else {
            return true;
        };
        let stripe = stripe as u16;
        let Some(_held) = self.space.locks().try_one(stripe) else {
            return true;
        };
        // Looked up only now: before the stripe was taken the database may have been flushed and its entries freed.
        let Some(db) = self.space.db(number) else {
            return true;
        };
        let entry = if self.policy.is_volatile() {
            db.stripes[usize::from(stripe)]
                .ttl
                .random(local.rng.u64(..))
                .map(Entry::from_table)
        } else {
            db.random_entry(stripe, &mut local.rng)
        };
        if let Some(entry) = entry {
            // SAFETY: the stripe is held.
            unsafe {
                if self.space.hides(entry.key()) {
                    return true;
                }
                let score = match self.policy {
                    Policy::VolatileTtl => {
                        u64::MAX - entry.expire_at_ms().unwrap_or(i64::MAX).max(0) as u64
                    }
                    Policy::AllKeysLfu | Policy::VolatileLfu => {
                        255 - u64::from(local.clock.frequency(entry.clock()))
                    }
                    _ => u64::from(local.clock.idle_s(entry.clock())),
                };
                local.pool.offer(score, number, entry.key());
            }
        }
        true
    }

    /// Evicts this key, if it is there and the policy allows it; returns false if not, or if its stripe is in use.
    fn evict(
        &self,
        local: &mut Local,
        db: u32,
        key: &[u8],
        now_ms: i64,
        publish: &mut dyn FnMut(&mut Unit<'_>, &mut Local),
    ) -> bool {
        let Some(mut unit) = Unit::try_one(self.space, self.space.place(key).stripe()) else {
            return false;
        };
        let mut view = unit.view(local, db, now_ms);
        let eligible = match view.find(key, Trace::Quiet).map(Found::expire_at_ms) {
            None => false,
            Some(expiry) => expiry.is_some() || !self.policy.is_volatile(),
        };
        if eligible && view.remove(key) {
            view.touch_watchers(key);
            view.entries.propagate_gone(key);
            view.notify(Classes::EVICTED, "evicted", key);
            view.entries.local.evicted += 1;
        }
        view.finish();
        unit.record(local);
        if !local.events.is_empty() || !local.ready.is_empty() {
            publish(&mut unit, local);
        }
        eligible
    }
}

#[cfg(test)]
mod tests {
    use redline_types::Limits;

    use super::*;
    use crate::upkeep::testing::{NOW_MS, keyspace, set, take};
    use crate::view::Expiry;

    fn evicts_at_random(space: &Keyspace) {
        let policy = Policy::AllKeysRandom as u32;
        space.settings.policy.store(policy, Ordering::Relaxed);
    }

    #[test]
    fn a_key_that_goes_meanwhile_does_not_mean_that_nothing_can_be_evicted() {
        const EVICTIONS: u32 = 100_000;
        const KEYS_MIN: i64 = 100;
        let (space, mut local) = keyspace();
        evicts_at_random(&space);
        // Keys that have not been evicted yet: never below the least, so there is always one that can be.
        let keys = std::sync::atomic::AtomicI64::new(0);
        let evict = |seed: u64| {
            let mut local = Local::new(fastrand::Rng::with_seed(seed), Limits::default());
            for _ in 0..EVICTIONS {
                while keys.fetch_sub(1, Ordering::SeqCst) <= KEYS_MIN {
                    keys.fetch_add(1, Ordering::SeqCst);
                    std::thread::yield_now();
                }
                loop {
                    match space.evict_one(&mut local, NOW_MS, &mut |_, _| ()) {
                        Evicted::One => break,
                        Evicted::Later => {}
                        Evicted::Nothing => panic!("{keys:?} keys are left"),
                    }
                }
                local.garbage.clear();
            }
        };
        std::thread::scope(|scope| {
            let evicting: Vec<_> = [2, 3].map(|seed| scope.spawn(move || evict(seed))).into();
            let mut key = 0u32;
            while !evicting.iter().all(|thread| thread.is_finished()) {
                if keys.load(Ordering::SeqCst) > 2 * KEYS_MIN {
                    std::thread::yield_now();
                    continue;
                }
                let name = key.to_le_bytes();
                let Some(mut unit) = take(&space, &name) else {
                    continue;
                };
                let mut view = unit.view(&mut local, 0, NOW_MS);
                view.set_string(&name, b"value", Expiry::Clear);
                view.finish_unreported();
                unit.commit(&mut local);
                keys.fetch_add(1, Ordering::SeqCst);
                key += 1;
            }
            evicting
                .into_iter()
                .for_each(|thread| thread.join().unwrap());
        });
    }

    #[test]
    fn random_eviction_leaves_no_stripe_bare() {
        let (space, mut local) = keyspace();
        evicts_at_random(&space);
        let kept = 24 * STRIPES as u32;
        for key in 0..kept {
            set(&space, &mut local, &key.to_le_bytes(), Expiry::Clear);
        }
        for key in kept..7 * kept {
            set(&space, &mut local, &key.to_le_bytes(), Expiry::Clear);
            let evicted = space.evict_one(&mut local, NOW_MS, &mut |_, _| ());
            assert_eq!(evicted, Evicted::One);
            local.garbage.clear();
        }
        let db = space.db(0).expect("it has keys");
        let bare = db.stripes.iter();
        let bare = bare.filter(|stripe| stripe.keys.load(Ordering::Relaxed) <= 2);
        assert_eq!(bare.count(), 0);
    }

    #[test]
    fn a_stripe_in_use_does_not_mean_that_nothing_can_be_evicted() {
        let (space, mut local) = keyspace();
        space
            .settings
            .policy
            .store(Policy::AllKeysLru as u32, Ordering::Relaxed);
        for key in 0u32..200 {
            set(&space, &mut local, &key.to_le_bytes(), Expiry::Clear);
        }
        let hold = |first: u16| -> Vec<Unit<'_>> {
            let stripes = (first..STRIPES as u16).step_by(2);
            let units = stripes.map(|stripe| Unit::try_one(&space, stripe));
            units
                .map(|unit| unit.expect("nobody else is here"))
                .collect()
        };
        let even = hold(0);
        let keys = || space.key_count(0);
        let free = (0u32..200)
            .filter(|key| space.place(&key.to_le_bytes()).stripe() % 2 == 1)
            .count() as u64;
        for n in 0..free / 2 {
            let evicted = space.evict_one(&mut local, NOW_MS, &mut |_, _| ());
            assert_eq!(
                evicted,
                Evicted::One,
                "only {n} of {free} keys in free stripes could go"
            );
        }
        assert_eq!(keys(), 200 - free / 2);
        let odd = hold(1);
        let none = space.evict_one(&mut local, NOW_MS, &mut |_, _| ());
        assert_eq!(none, Evicted::Later, "every key is in use");
        drop((even, odd));
        while space.evict_one(&mut local, NOW_MS, &mut |_, _| ()) == Evicted::One {}
        assert_eq!(keys(), 0);
        let none = space.evict_one(&mut local, NOW_MS, &mut |_, _| ());
        assert_eq!(none, Evicted::Nothing);
    }
}
