//! The count-min sketch: counts of items in a table of fixed size, never too low. Must not know keys, commands, or how it
//! is written to a file.
//!
//! An item has one counter in each row, found by a hash that the row's number seeds; its count is the least of them.
//! Hash and layout are those of RedisBloom.

use crate::{DataType, Digest, limits::SKETCH_BYTES_MAX, murmur};

/// A table of counters. See the head of this file.
#[derive(Clone, Debug)]
pub struct CountMin {
    width: usize,
    /// Of all items together.
    count: u64,
    /// Rows, one behind the other.
    counters: Box<[u32]>,
}

/// Bytes of a counter.
pub const COUNTER_BYTES: usize = size_of::<u32>();

impl CountMin {
    /// Returns a sketch that has counted nothing; `None` if a dimension is 0, or together they are beyond
    /// [`SKETCH_BYTES_MAX`].
    pub fn new(width: u64, depth: u64) -> Option<CountMin> {
        let counters = width.checked_mul(depth)?;
        (1..=SKETCH_BYTES_MAX / COUNTER_BYTES as u64)
            .contains(&counters)
            .then(|| CountMin {
                width: width as usize,
                count: 0,
                counters: vec![0; counters as usize].into(),
            })
    }

    /// Returns the width and the depth for which a count is too high by more than this share of all counts only with this
    /// probability; both between 0 and 1.
    pub fn dimensions(share: f64, probability: f64) -> (u64, u64) {
        let width = (2.0 / share).ceil();
        let depth = (probability as f32).log10() / 0.5f32.log10();
        (width as u64, depth.ceil() as u64)
    }

    /// Returns the sketch with these counters; `None` if they do not make whole rows.
    pub fn restore(width: u64, count: u64, counters: Box<[u32]>) -> Option<CountMin> {
        let width = usize::try_from(width).ok()?;
        let is_sound = width > 0 && !counters.is_empty() && counters.len().is_multiple_of(width);
        is_sound.then_some(CountMin {
            width,
            count,
            counters,
        })
    }

    /// Returns the number of counters in a row.
    pub fn width(&self) -> u64 {
        self.width as u64
    }

    /// Returns the number of rows.
    pub fn depth(&self) -> u64 {
        (self.counters.len() / self.width) as u64
    }

    /// Returns the sum of all that was counted.
    pub fn count(&self) -> u64 {
        self.count
    }

    /// Returns the counters, row by row.
    pub fn counters(&self) -> &[u32] {
        &self.counters
    }

    fn places(&self, item: &[u8]) -> impl Iterator<Item = usize> {
        let width = self.width;
        (0..self.counters.len() / width)
            .map(move |row| row * width + murmur::hash_32(item, row as u32) as usize % width)
    }

    /// Counts an item so many times more; returns its count, which stays at the largest when it gets there.
    pub fn add(&mut self, item: &[u8], times: u64) -> u32 {
        let added = u32::try_from(times).unwrap_or(u32::MAX);
        let mut least = u32::MAX;
        let width = self.width;
        for (row, counters) in self.counters.chunks_exact_mut(width).enumerate() {
            let counter = &mut counters[murmur::hash_32(item, row as u32) as usize % width];
            *counter = counter.saturating_add(added);
            least = least.min(*counter);
        }
        self.count = self.count.wrapping_add(times);
        least
    }

    /// Returns the count of an item: no less than it was counted.
    pub fn count_of(&self, item: &[u8]) -> u32 {
        let counts = self.places(item).map(|place| self.counters[place]);
        counts.min().unwrap_or(0)
    }

    /// Returns the sum of sketches, each taken so many times; `None` if a counter would be below 0 or beyond its largest
    /// value, or if the sketches have not the same dimensions.
    pub fn sum(parts: &[(&CountMin, i64)]) -> Option<CountMin> {
        let (first, _) = parts.first()?;
        let alike = |part: &CountMin| {
            part.width == first.width && part.counters.len() == first.counters.len()
        };
        if !parts.iter().all(|(part, _)| alike(part)) {
            return None;
        }
        let mut sum = (*first).clone();
        for (place, counter) in sum.counters.iter_mut().enumerate() {
            let mut total = 0i64;
            for (part, times) in parts {
                let product = i64::from(part.counters[place]).checked_mul(*times)?;
                total = total.checked_add(product)?;
            }
            *counter = u32::try_from(total).ok()?;
        }
        let mut total = 0i64;
        for (part, times) in parts {
            let product = (part.count as i64).checked_mul(*times)?;
            total = total.checked_add(product)?;
        }
        sum.count = u64::try_from(total).ok()?;
        Some(sum)
    }
}

impl Default for CountMin {
    fn default() -> CountMin {
        CountMin::new(1, 1).expect("a small sketch")
    }
}

impl DataType for CountMin {
    const NAME: &'static str = "CMSk-TYPE";
    const STAYS_EMPTY: bool = true;

    fn encoding(&self) -> &'static str {
        "raw"
    }

    fn len(&self) -> usize {
        self.count as usize
    }

    fn heap_bytes(&self) -> usize {
        size_of::<Self>() + self.counters.len() * COUNTER_BYTES
    }

    fn free_effort(&self) -> usize {
        /// Giving back a run of pages takes about as long as so many counters for each allocation.
        const COUNTERS: usize = 16 * 1024;
        1 + self.counters.len() / COUNTERS
    }

    fn digest<D: Digest>(&self, digest: &mut D) {
        digest.mix(&self.width().to_le_bytes());
        digest.mix(&self.count.to_le_bytes());
        for counters in self.counters.chunks(1_024) {
            let bytes: Vec<u8> = counters.iter().flat_map(|c| c.to_le_bytes()).collect();
            digest.mix(&bytes);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use super::*;

    #[test]
    fn counts_are_never_too_low_and_rarely_too_high() {
        let (width, depth) = CountMin::dimensions(0.001, 0.01);
        assert_eq!((width, depth), (2_000, 7));
        let mut sketch = CountMin::new(width, depth).unwrap();
        let mut counts = HashMap::new();
        for n in 0..20_000u32 {
            let item = (n % 3_000).to_le_bytes();
            sketch.add(&item, u64::from(n % 5));
            *counts.entry(item).or_insert(0) += n % 5;
        }
        let total: u32 = counts.values().sum();
        assert_eq!(sketch.count(), u64::from(total));
        assert!(
            counts
                .iter()
                .all(|(item, count)| sketch.count_of(item) >= *count)
        );
        let most = f64::from(total) * 0.001;
        let high = counts
            .iter()
            .filter(|(item, count)| f64::from(sketch.count_of(*item) - **count) > most);
        assert!(high.count() <= counts.len() / 100);
    }

    #[test]
    fn a_counter_stays_at_its_largest_value() {
        let mut sketch = CountMin::new(10, 3).unwrap();
        assert_eq!(sketch.add(b"a", u64::from(u32::MAX) - 1), u32::MAX - 1);
        assert_eq!(sketch.add(b"a", 5), u32::MAX);
        assert_eq!(sketch.add(b"b", i64::MAX as u64), u32::MAX);
    }

    #[test]
    fn a_sum_counts_each_part_as_often_as_asked() {
        let mut parts = [(); 2].map(|()| CountMin::new(50, 3).unwrap());
        parts[0].add(b"a", 5);
        parts[1].add(b"a", 7);
        let sum = CountMin::sum(&[(&parts[0], 2), (&parts[1], -1)]).unwrap();
        assert_eq!((sum.count_of(b"a"), sum.count()), (3, 3));
        assert!(CountMin::sum(&[(&parts[0], -1)]).is_none());
        assert!(CountMin::sum(&[(&parts[0], i64::MAX)]).is_none());
        assert!(CountMin::sum(&[(&parts[0], 1 << 31)]).is_none());
        let other = CountMin::new(50, 2).unwrap();
        assert!(CountMin::sum(&[(&parts[0], 1), (&other, 1)]).is_none());
    }

    #[test]
    fn tables_beyond_the_limit_are_refused() {
        assert!(CountMin::new(1 << 32, 1 << 32).is_none());
        assert!(CountMin::new(1 << 31, 1).is_none());
        assert!(CountMin::new(0, 1).is_none() && CountMin::new(1, 0).is_none());
        assert!(CountMin::restore(3, 0, vec![0; 4].into()).is_none());
        assert!(CountMin::restore(0, 0, vec![0; 4].into()).is_none());
        assert!(CountMin::restore(3, 0, Box::default()).is_none());
    }
}
