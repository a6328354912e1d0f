//! The k items that were counted most, by HeavyKeeper: a table of counters, in which a frequent item wears down the others
//! that share its counters, and a heap of the k items with the largest counts. Must not know keys, commands, or how it is
//! written to a file.
//!
//! Hash, table and heap are those of RedisBloom, whose wearing down is drawn at random. Here the draws are a sequence that
//! the value itself has, as the number of the last draw: the same calls make the same value on every server. In files the
//! number lies where RedisBloom has an address that it does not read.

use crate::{DataType, Digest, limits::SKETCH_BYTES_MAX, murmur};

/// Seed of the hash that stands for an item in a counter.
const FINGERPRINT_SEED: u32 = 1919;
/// A chance that no draw but 0 is below.
const CHANCE_MIN: f64 = 1.0 / (1u64 << 53) as f64;
/// Bytes of a counter in a file.
pub const CELL_BYTES: usize = 8;
/// Bytes of a place of the heap in a file.
pub const ENTRY_BYTES: usize = 24;

/// The k most frequent items. See the head of this file.
#[derive(Clone, Debug)]
pub struct TopK {
    width: u32,
    decay: f64,
    /// Number of the last draw.
    draws: u64,
    /// Rows, one behind the other.
    cells: Box<[Cell]>,
    /// The place with the least count is the first.
    heap: Box<[Entry]>,
    items_bytes: usize,
}

/// A counter, and the item that it counts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Cell {
    /// Hash of the item.
    pub fingerprint: u32,
    /// Its count.
    pub count: u32,
}

/// A place of the heap.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Entry {
    /// Hash of the item.
    pub fingerprint: u32,
    /// Its count; 0 at a place that is free.
    pub count: u32,
    /// The item.
    pub item: Box<[u8]>,
}

/// Returns a number to a power by multiplications alone, which give the same result everywhere.
fn power(mut base: f64, mut exponent: u32) -> f64 {
    let mut result = 1.0;
    while exponent > 0 {
        if exponent & 1 == 1 {
            result *= base;
        }
        base *= base;
        exponent >>= 1;
    }
    result
}

impl TopK {
    /// Returns one that has counted nothing; `None` if a dimension is 0, the decay is not above 0 and at most 1, or all is
    /// beyond [`SKETCH_BYTES_MAX`].
    pub fn new(k: u32, width: u32, depth: u32, decay: f64) -> Option<TopK> {
        let cells = u64::from(width) * u64::from(depth);
        let bytes = cells
            .checked_mul(CELL_BYTES as u64)?
            .checked_add(u64::from(k) * size_of::<Entry>() as u64)?;
        let is_sound =
            k > 0 && cells > 0 && decay > 0.0 && decay <= 1.0 && bytes <= SKETCH_BYTES_MAX;
        is_sound.then(|| TopK {
            width,
            decay,
            draws: 0,
            cells: vec![Cell::default(); cells as usize].into(),
            heap: vec![Entry::default(); k as usize].into(),
            items_bytes: 0,
        })
    }

    /// Returns one of these parts; `None` if they make none.
    pub fn restore(
        width: u32,
        decay: f64,
        draws: u64,
        cells: Box<[Cell]>,
        heap: Box<[Entry]>,
    ) -> Option<TopK> {
        let is_sound = width > 0
            && !cells.is_empty()
            && cells.len().is_multiple_of(width as usize)
            && !heap.is_empty()
            && decay > 0.0
            && decay <= 1.0;
        is_sound.then(|| TopK {
            width,
            decay,
            draws,
            cells,
            items_bytes: heap.iter().map(|entry| entry.item.len()).sum(),
            heap,
        })
    }

    /// Returns the number of items that are kept.
    pub fn k(&self) -> u32 {
        self.heap.len() as u32
    }

    /// Returns the number of counters in a row.
    pub fn width(&self) -> u32 {
        self.width
    }

    /// Returns the number of rows.
    pub fn depth(&self) -> u32 {
        (self.cells.len() / self.width as usize) as u32
    }

    /// Returns the chance by which another item lowers a count of 1; a count of n has its nth power.
    pub fn decay(&self) -> f64 {
        self.decay
    }

    /// Returns the number of the last draw.
    pub fn draws(&self) -> u64 {
        self.draws
    }

    /// Returns the counters, row by row.
    pub fn cells(&self) -> &[Cell] {
        &self.cells
    }

    /// Returns the heap; a place with the count 0 is free.
    pub fn heap(&self) -> &[Entry] {
        &self.heap
    }

    /// Returns the next number of the sequence, from 0 up to but not 1: Sebastiano Vigna's SplitMix64.
    fn draw(draws: &mut u64) -> f64 {
        *draws = draws.wrapping_add(1);
        let mut word = draws.wrapping_mul(0x9e37_79b9_7f4a_7c15);
        word = (word ^ word >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        word = (word ^ word >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        word ^= word >> 31;
        (word >> 11) as f64 / (1u64 << 53) as f64
    }

    fn place(&self, item: &[u8], row: usize) -> usize {
        let column = murmur::hash_32(item, row as u32) % self.width;
        row * self.width as usize + column as usize
    }

    fn position(&self, item: &[u8], fingerprint: u32) -> Option<usize> {
        self.heap.iter().rposition(|entry| {
            entry.fingerprint == fingerprint && entry.count > 0 && *entry.item == *item
        })
    }

    /// Counts an item so many times more; returns the item that is no longer kept for it.
    pub fn add(&mut self, item: &[u8], times: u32) -> Option<Box<[u8]>> {
        let fingerprint = murmur::hash_32(item, FINGERPRINT_SEED);
        let mut most = 0;
        for row in 0..self.depth() as usize {
            let place = self.place(item, row);
            let cell = &mut self.cells[place];
            if cell.count == 0 || cell.fingerprint == fingerprint {
                cell.fingerprint = fingerprint;
                cell.count = cell.count.saturating_add(times);
                most = most.max(cell.count);
            } else if let Some(count) = wear(cell, times, self.decay, &mut self.draws) {
                *cell = Cell { fingerprint, count };
                most = most.max(count);
            }
        }
        if most == 0 || most < self.heap[0].count {
            return None;
        }
        if let Some(at) = self.position(item, fingerprint) {
            self.heap[at].count = most;
            self.sift_down(at);
            return None;
        }
        let entry = Entry {
            fingerprint,
            count: most,
            item: item.into(),
        };
        let old = std::mem::replace(&mut self.heap[0], entry);
        self.items_bytes = self.items_bytes + item.len() - old.item.len();
        self.sift_down(0);
        (old.count > 0).then_some(old.item)
    }

    /// Moves an entry down to where those below it are not smaller.
    fn sift_down(&mut self, start: usize) {
        let heap = &mut self.heap;
        let mut at = start;
        loop {
            let mut child = 2 * at + 1;
            if child >= heap.len() {
                return;
            }
            if child + 1 < heap.len() && heap[child].count > heap[child + 1].count {
                child += 1;
            }
            // RedisBloom moves it below an equal one at the first step only.
            let stays = match at == start {
                true => heap[child].count > heap[at].count,
                false => heap[child].count >= heap[at].count,
            };
            if stays {
                return;
            }
            heap.swap(at, child);
            at = child;
        }
    }

    /// Returns true if the item is one of the k.
    pub fn contains(&self, item: &[u8]) -> bool {
        let fingerprint = murmur::hash_32(item, FINGERPRINT_SEED);
        self.position(item, fingerprint).is_some()
    }

    /// Returns the count of an item, which may be too low or of another item.
    pub fn count_of(&self, item: &[u8]) -> u32 {
        let fingerprint = murmur::hash_32(item, FINGERPRINT_SEED);
        let least = match self.position(item, fingerprint) {
            Some(_) => self.heap[0].count,
            None => 0,
        };
        let cells = (0..self.depth() as usize).map(|row| self.cells[self.place(item, row)]);
        let own = cells.filter(|cell| cell.fingerprint == fingerprint && cell.count >= least);
        own.map(|cell| cell.count).max().unwrap_or(0)
    }

    /// Returns the items that are kept, the most frequent first.
    pub fn list(&self) -> Vec<&Entry> {
        let mut entries: Vec<&Entry> = self.heap.iter().filter(|entry| entry.count > 0).collect();
        entries.sort_by_key(|entry| std::cmp::Reverse(entry.count));
        entries
    }
}

/// Lowers the count of another item, once for each time that an item is counted, by the chance that its height leaves.
/// Returns the times that are left for the item when the other is worn down.
fn wear(cell: &mut Cell, times: u32, decay: f64, draws: &mut u64) -> Option<u32> {
    let mut chance = power(decay, cell.count);
    for left in (1..=times).rev() {
        if chance < CHANCE_MIN {
            *draws = draws.wrapping_add(left.into());
            return None;
        }
        if TopK::draw(draws) < chance {
            cell.count -= 1;
            if cell.count == 0 {
                return Some(left);
            }
            chance = power(decay, cell.count);
        }
    }
    None
}

impl Default for TopK {
    fn default() -> TopK {
        TopK::new(1, 8, 7, 0.9).expect("a small one")
    }
}

impl DataType for TopK {
    const NAME: &'static str = "TopK-TYPE";
    const STAYS_EMPTY: bool = true;

    fn encoding(&self) -> &'static str {
        "raw"
    }

    fn len(&self) -> usize {
        self.heap.iter().filter(|entry| entry.count > 0).count()
    }

    fn heap_bytes(&self) -> usize {
        size_of::<Self>() + size_of_val(&*self.cells) + size_of_val(&*self.heap) + self.items_bytes
    }

    fn free_effort(&self) -> usize {
        /// Giving back a run of pages takes about as long as so many counters for each allocation.
        const CELLS: usize = 8 * 1024;
        2 + self.heap.len() + self.cells.len() / CELLS
    }

    fn digest<D: Digest>(&self, digest: &mut D) {
        digest.mix(&self.width.to_le_bytes());
        digest.mix(&self.decay.to_le_bytes());
        for cell in &self.cells {
            digest.mix(&cell.fingerprint.to_le_bytes());
            digest.mix(&cell.count.to_le_bytes());
        }
        for entry in &self.heap {
            digest.mix(&entry.count.to_le_bytes());
            digest.mix(&entry.item);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_most_frequent_items_are_kept() {
        let mut top = TopK::new(10, 200, 5, 0.9).unwrap();
        // Item n comes about 20,000 / (n + 1) times, in an order that mixes them.
        for round in 0..20_000u32 {
            for n in 0..100u32 {
                if round % (n + 1) == 0 {
                    top.add(&n.to_le_bytes(), 1);
                }
            }
        }
        let kept = top.list();
        let items: Vec<u32> = kept
            .iter()
            .map(|entry| u32::from_le_bytes((*entry.item).try_into().unwrap()))
            .collect();
        assert_eq!(items[..5], [0, 1, 2, 3, 4]);
        assert!((0..8).all(|n| items.contains(&n)), "{items:?}");
        assert!(top.contains(&0u32.to_le_bytes()) && !top.contains(&99u32.to_le_bytes()));
        assert_eq!(top.count_of(&0u32.to_le_bytes()), 20_000);
    }

    #[test]
    fn the_same_calls_make_the_same_value() {
        let run = || {
            let mut top = TopK::new(3, 4, 2, 0.9).unwrap();
            (0..5_000u32).for_each(|n| drop(top.add(&(n % 37).to_le_bytes(), n % 4)));
            (top.cells().to_vec(), top.heap().to_vec(), top.draws())
        };
        assert_eq!(run(), run());
        assert!(run().2 > 0);
    }

    #[test]
    fn the_account_knows_the_items_that_are_kept() {
        let mut top = TopK::new(2, 50, 3, 0.9).unwrap();
        let empty = top.heap_bytes();
        top.add(b"12345", 1);
        top.add(b"123", 1);
        assert_eq!(top.heap_bytes(), empty + 8);
        assert!(top.add(b"1234567", 5).is_some());
        let kept: usize = top.heap().iter().map(|entry| entry.item.len()).sum();
        assert_eq!(top.heap_bytes(), empty + kept);
    }

    #[test]
    fn an_item_that_is_counted_no_time_is_not_kept() {
        let mut top = TopK::default();
        assert_eq!(top.add(b"a", 0), None);
        assert!(top.list().is_empty() && !top.contains(b"a"));
        top.add(b"a", u32::MAX);
        top.add(b"a", u32::MAX);
        assert_eq!(top.count_of(b"a"), u32::MAX);
    }

    #[test]
    fn what_makes_none_is_refused() {
        for decay in [0.0, -1.0, 1.1, f64::NAN] {
            assert!(TopK::new(1, 1, 1, decay).is_none(), "{decay}");
        }
        assert!(TopK::new(0, 1, 1, 0.9).is_none());
        assert!(TopK::new(1, u32::MAX, u32::MAX, 0.9).is_none());
        assert!(TopK::new(u32::MAX, 1, 1, 0.9).is_none());
    }
}
