//! Random choice, for every collection that offers it. Random words are handed in.

use std::collections::HashSet;

/// Returns a number below `end`, each about equally likely; zero if there is none.
#[inline]
pub fn below(end: usize, random: &mut impl FnMut() -> u64) -> usize {
    ((u128::from(random()) * end as u128) >> 64) as usize
}

/// The choice of `count` out of `len` things, told one by one in their order. Every subset is equally likely (Knuth's
/// selection sampling).
pub struct Selection {
    left: usize,
    wanted: usize,
}

impl Selection {
    /// Makes a choice of `count` out of `len`, or all if there are fewer.
    pub fn new(count: usize, len: usize) -> Selection {
        Selection {
            left: len,
            wanted: count.min(len),
        }
    }

    /// Returns true if every item still wanted has been chosen.
    pub fn is_done(&self) -> bool {
        self.wanted == 0
    }

    /// Returns true if the next item is to be taken.
    pub fn takes(&mut self, random: &mut impl FnMut() -> u64) -> bool {
        let taken = below(self.left, random) < self.wanted;
        self.left -= 1;
        self.wanted -= usize::from(taken);
        taken
    }
}

/// Visits `count` of the `len` items, in their order.
pub fn visit_selected<T>(
    items: impl Iterator<Item = T>,
    len: usize,
    count: usize,
    random: &mut impl FnMut() -> u64,
    mut visit: impl FnMut(T),
) {
    let mut selection = Selection::new(count, len);
    for item in items {
        if selection.is_done() {
            return;
        }
        if selection.takes(random) {
            visit(item);
        }
    }
}

/// Returns true if drawing until enough different items have come is quicker than visiting all.
pub fn is_sparse(count: usize, len: usize) -> bool {
    count.saturating_mul(3) <= len
}

/// Visits `count` different items out of at least that many, by drawing until enough have come.
pub fn visit_drawn<'a, T>(
    count: usize,
    mut draw: impl FnMut() -> Option<(&'a [u8], T)>,
    mut visit: impl FnMut(&'a [u8], T),
) {
    let mut seen = HashSet::with_capacity(count);
    while seen.len() < count {
        let Some((name, item)) = draw() else { return };
        if seen.insert(name) {
            visit(name, item);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_subset_is_equally_likely() {
        let mut rng = fastrand::Rng::with_seed(1);
        let mut random = || rng.u64(..);
        let mut counts = [0u32; 32];
        for _ in 0..10_000 {
            let mut subset = 0;
            visit_selected(0..5, 5, 2, &mut random, |item| subset |= 1 << item);
            counts[subset] += 1;
        }
        for (subset, &count) in counts.iter().enumerate() {
            let expected = if subset.count_ones() == 2 {
                800..1200
            } else {
                0..1
            };
            assert!(expected.contains(&count), "{subset:b}: {count}");
        }
    }

    #[test]
    fn more_than_there_are_is_all() {
        let mut taken = Vec::new();
        visit_selected(0..3, 3, 9, &mut || u64::MAX, |item| taken.push(item));
        assert_eq!(taken, [0, 1, 2]);
    }
}
