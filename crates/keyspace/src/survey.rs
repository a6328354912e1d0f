//! Statistics of a database, found by looking at its keys: how large values are, and how long keys have to live.
//!
//! A survey takes one stripe at a time, from a random one on, and ends when it has seen enough keys: so it is exact for
//! small databases, and a sample of large ones, at a bounded price. A stripe that is in use is passed over. Must not
//! know: the caller, the presentation.

use std::sync::atomic::Ordering::Relaxed;

use redline_types::Kind;

use crate::{
    entry::{Content, Entry},
    lock::STRIPES,
    space::{Db, Keyspace, SLOTS_PER_STRIPE},
    unit::Unit,
};

/// Number of keys that a survey reads, up to as many more as a slot holds.
const KEYS_MAX: u64 = 4096;
/// Classes of sizes: 0, and one for each power of two.
pub const SIZE_CLASSES: usize = 65;

/// Numbers of values of each class of sizes: class 0 are empty ones, class `n` those from 2^(n-1) on.
pub type Sizes = [u64; SIZE_CLASSES];

/// Values by their size.
#[derive(Clone, Debug)]
pub struct ValueSizes {
    /// Strings, by their bytes.
    pub strings: Sizes,
    /// Collections, by their elements.
    pub collections: Vec<(Kind, Sizes)>,
}

impl Keyspace {
    /// Returns how many values of which size a database holds. `unit`: the caller's, or one that holds nothing;
    /// `start`: any number. The counts are scaled to all keys.
    pub fn value_sizes(&self, db: u32, unit: &Unit<'_>, start: u64) -> ValueSizes {
        let mut sizes = ValueSizes {
            strings: [0; SIZE_CLASSES],
            collections: Kind::ALL
                .iter()
                .map(|kind| (*kind, [0; SIZE_CLASSES]))
                .collect(),
        };
        let mut seen = 0;
        self.walk(db, unit, start, |tables, stripe| {
            let first = stripe * SLOTS_PER_STRIPE;
            for index in &tables.slots[first..first + SLOTS_PER_STRIPE] {
                if seen >= KEYS_MAX {
                    return false;
                }
                seen += index.len() as u64;
                // SAFETY: the stripe is held while `walk` calls this.
                index.for_each(|pointer| unsafe { sizes.take_in(Entry::from_table(pointer)) });
            }
            true
        });
        sizes.scale(self.key_count(db), seen);
        sizes
    }

    /// Returns how many milliseconds keys with an expiry have to live on average; 0: there are none. The arguments are
    /// those of [`Keyspace::value_sizes`], and Unix time.
    pub fn average_ttl_ms(&self, db: u32, unit: &Unit<'_>, start: u64, now_ms: i64) -> u64 {
        let (mut seen, mut sum_ms) = (0, 0u128);
        self.walk(db, unit, start, |tables, stripe| {
            tables.stripes[stripe].ttl.for_each(|pointer| {
                if seen >= KEYS_MAX {
                    return;
                }
                seen += 1;
                // SAFETY: the stripe is held while `walk` calls this.
                let at_ms = unsafe { Entry::from_table(pointer).expire_at_ms() };
                sum_ms += at_ms.unwrap_or(now_ms).saturating_sub(now_ms).max(0) as u128;
            });
            seen < KEYS_MAX
        });
        sum_ms.checked_div(u128::from(seen)).unwrap_or(0) as u64
    }

    /// Calls `visit` with the stripes of a database that hold keys, each held meanwhile, until it has had enough.
    fn walk(
        &self,
        db: u32,
        unit: &Unit<'_>,
        start: u64,
        mut visit: impl FnMut(&Db, usize) -> bool,
    ) {
        for step in 0..STRIPES {
            let stripe = (start as usize % STRIPES + step) % STRIPES;
            let has_keys = |db: &&Db| db.stripes[stripe].keys.load(Relaxed) > 0;
            if self.db(db).filter(has_keys).is_none() {
                continue;
            }
            let number = stripe as u16;
            let own = match unit.covers(number) {
                true => None,
                false => match self.locks().try_one(number) {
                    Some(own) => Some(own),
                    None => continue,
                },
            };
            // Looked up anew: before the stripe was taken the database may have been flushed, and these be freed.
            let goes_on = self.db(db).is_none_or(|tables| visit(tables, stripe));
            drop(own);
            if !goes_on {
                return;
            }
        }
    }
}

impl ValueSizes {
    /// # Safety
    /// The stripe of the entry is held.
    unsafe fn take_in(&mut self, entry: Entry) {
        // SAFETY: handed on from the caller.
        let content = unsafe { entry.content() };
        let size = match content {
            Content::String(text) => text.as_bytes().len(),
            Content::Object(value) => value.len(),
            Content::Packed(packed) => packed.len(),
        };
        let sizes = match content.kind() {
            None => &mut self.strings,
            Some(kind) => {
                let mut of_kind = self.collections.iter_mut();
                let Some((_, sizes)) = of_kind.find(|(known, _)| *known == kind) else {
                    return;
                };
                sizes
            }
        };
        sizes[(usize::BITS - size.leading_zeros()) as usize] += 1;
    }

    /// Scales the counts of a sample to all keys. A count above zero stays above zero.
    fn scale(&mut self, keys: u64, seen: u64) {
        if seen == 0 || seen >= keys {
            return;
        }
        let of_collections = self.collections.iter_mut().map(|(_, sizes)| sizes);
        for count in of_collections.chain([&mut self.strings]).flatten() {
            *count = (u128::from(*count) * u128::from(keys) / u128::from(seen)) as u64;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        Local,
        lock::{NobodyWaits, StripeSet},
        view::Expiry,
    };

    fn fill(keys: usize, bytes: usize, expire_at_ms: Option<i64>) -> Keyspace {
        let mut space = Keyspace::new(1, Box::new(NobodyWaits));
        let mut local = Local::new(fastrand::Rng::with_seed(1), Default::default());
        let mut unit = Unit::exclusive(&mut space);
        let mut view = unit.view(&mut local, 0, 1000);
        for number in 0..keys {
            let expiry = expire_at_ms.map_or(Expiry::Clear, Expiry::AtMs);
            view.set_string(
                format!("key:{number}").as_bytes(),
                &vec![b'x'; bytes],
                expiry,
            );
        }
        view.finish_unreported();
        drop(unit);
        space
    }

    #[test]
    fn a_small_database_is_told_exactly() {
        let space = fill(1000, 5, Some(61_000));
        let none = Unit::none(&space);
        let sizes = space.value_sizes(0, &none, 7);
        assert_eq!(sizes.strings[3], 1000);
        assert_eq!(sizes.strings.iter().sum::<u64>(), 1000);
        assert_eq!(space.average_ttl_ms(0, &none, 7, 1000), 60_000);
        // A stripe that the unit holds need not be taken, one of another unit's is passed over.
        let all = Unit::try_set(&space, &StripeSet::all(), false).expect("all are free");
        assert_eq!(space.value_sizes(0, &all, 7).strings[3], 1000);
        assert_eq!(space.value_sizes(0, &none, 7).strings[3], 0);
    }

    #[test]
    fn a_large_database_is_sampled_and_scaled() {
        let space = fill(50_000, 0, None);
        let none = Unit::none(&space);
        let sizes = space.value_sizes(0, &none, 900);
        assert_eq!(sizes.strings[0], 50_000);
        assert_eq!(space.average_ttl_ms(0, &none, 900, 1000), 0);
    }
}
