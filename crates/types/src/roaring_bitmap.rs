//! A compressed bitmap: offsets of 32 bits, as sorted arrays, bits or runs for each 65,536 of them (Chambi, Lemire, Kaser and
//! Godin, "Better bitmap performance with Roaring bitmaps", 2016). Must not know other types.

use std::{
    io,
    ops::{BitAndAssign, BitOrAssign, BitXorAssign, RangeInclusive, SubAssign},
};

use roaring::RoaringBitmap;

use crate::{DataType, Digest};

/// Bytes of a container beside its contents: its key, its kind, where it is.
const CONTAINER_BYTES: usize = 40;
/// Bytes of a container with a bit for each offset.
const BITS_BYTES: u64 = 8 * 1024;
/// Bytes of a run of offsets.
const RUN_BYTES: u64 = 4;
/// Single changes, beside one for each container, after which the size is counted again.
const CHANGES_PER_COUNT: u32 = 64;

/// How bitmaps are combined into one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Operation {
    /// Bits that are in all.
    And,
    /// Bits that are in any.
    Or,
    /// Bits that are in an odd number of them.
    Xor,
    /// Bits between the least and the greatest of the one bitmap that are not in it.
    Not,
    /// Bits of the first that are in no other.
    Diff,
}

/// A compressed bitmap of offsets from 0 to 4,294,967,295.
#[derive(Clone, Debug, Default)]
pub struct Roaring {
    bits: RoaringBitmap,
    /// Bytes on the heap when they were last counted, and two for each bit set since.
    bytes: usize,
    /// Single changes until the next count.
    changes_left: u32,
}

impl PartialEq for Roaring {
    fn eq(&self, other: &Roaring) -> bool {
        self.bits == other.bits
    }
}

impl Roaring {
    /// Returns the bitmap of these offsets.
    pub fn of(offsets: impl IntoIterator<Item = u32>) -> Roaring {
        Roaring::from_bits(offsets.into_iter().collect())
    }

    /// Returns the bitmap of a string of bits, the highest bit of each byte first, as SETBIT has them. Bits beyond the last offset
    /// are left out.
    pub fn of_string(bytes: &[u8]) -> Roaring {
        let last = bytes.len().min(1 << 29);
        let turned: Vec<u8> = bytes[..last]
            .iter()
            .map(|byte| byte.reverse_bits())
            .collect();
        Roaring::from_bits(RoaringBitmap::from_lsb0_bytes(0, &turned))
    }

    fn from_bits(bits: RoaringBitmap) -> Roaring {
        let mut made = Roaring {
            bits,
            ..Roaring::default()
        };
        made.count_bytes();
        made
    }

    fn count_bytes(&mut self) {
        let Containers { arrays, bits, runs } = self.containers();
        let count = arrays.count + bits.count + runs.count;
        let contents = arrays.bytes + bits.bytes + runs.bytes;
        self.bytes = contents as usize + count as usize * CONTAINER_BYTES;
        self.changes_left = CHANGES_PER_COUNT + count;
    }

    /// Notes a single change: the size is counted again after so many that a count costs each little.
    fn note_change(&mut self) {
        self.bytes += size_of::<u16>();
        match self.changes_left.checked_sub(1) {
            Some(left) => self.changes_left = left,
            None => self.count_bytes(),
        }
    }

    /// Sets or clears a bit; returns what it was.
    pub fn set(&mut self, offset: u32, bit: bool) -> bool {
        let changed = match bit {
            true => self.bits.insert(offset),
            false => self.bits.remove(offset),
        };
        if changed {
            self.note_change();
        }
        changed != bit
    }

    /// Returns a bit.
    pub fn get(&self, offset: u32) -> bool {
        self.bits.contains(offset)
    }

    /// Sets these bits.
    pub fn set_all(&mut self, offsets: impl Iterator<Item = u32>) {
        self.bits.extend(offsets);
        self.count_bytes();
    }

    /// Clears these bits; returns the number of those that were set.
    pub fn clear_all(&mut self, offsets: impl Iterator<Item = u32>) -> u64 {
        let cleared = offsets.filter(|offset| self.bits.remove(*offset)).count();
        self.count_bytes();
        cleared as u64
    }

    /// Sets a range; returns the number of bits that were not set.
    pub fn set_range(&mut self, range: RangeInclusive<u32>) -> u64 {
        let set = self.bits.insert_range(range);
        self.count_bytes();
        set
    }

    /// Turns each bit of a range over.
    pub fn flip_range(&mut self, range: RangeInclusive<u32>) {
        let mut all = RoaringBitmap::new();
        all.insert_range(range);
        self.bits ^= all;
        self.count_bytes();
    }

    /// Sets or clears the bits from `first` on, as they are in `bits`. Those that would be beyond the last offset are left out.
    pub fn write(&mut self, first: u32, bits: impl Iterator<Item = bool>) {
        for (offset, bit) in (first..=u32::MAX).zip(bits) {
            match bit {
                true => self.bits.insert(offset),
                false => self.bits.remove(offset),
            };
        }
        self.count_bytes();
    }

    /// Returns the number of bits that are set.
    pub fn cardinality(&self) -> u64 {
        self.bits.len()
    }

    /// Returns the number of bits that are set in a range.
    pub fn count_in(&self, range: RangeInclusive<u32>) -> u64 {
        self.bits.range_cardinality(range)
    }

    /// Returns the number of bits that are set up to an offset, this one included.
    pub fn rank(&self, offset: u32) -> u64 {
        self.bits.rank(offset)
    }

    /// Returns the least offset that is set.
    pub fn min(&self) -> Option<u32> {
        self.bits.min()
    }

    /// Returns the greatest offset that is set.
    pub fn max(&self) -> Option<u32> {
        self.bits.max()
    }

    /// Returns the offsets of a range that are set, ascending.
    pub fn range(&self, range: RangeInclusive<u32>) -> impl Iterator<Item = u32> {
        self.bits.range(range)
    }

    /// Returns the offset of the bit with the index `index` among those that are set (`bit`) or those that are not.
    pub fn select(&self, bit: bool, index: u64) -> Option<u32> {
        if bit {
            return u32::try_from(index)
                .ok()
                .and_then(|index| self.bits.select(index));
        }
        // Clear bits up to an offset never become fewer, so the first offset with enough of them is found by halves.
        let clear_to = |offset: u32| u64::from(offset) + 1 - self.bits.rank(offset);
        if clear_to(u32::MAX) <= index {
            return None;
        }
        let (mut low, mut high) = (0, u32::MAX);
        while low < high {
            let middle = low + (high - low) / 2;
            match clear_to(middle) > index {
                true => high = middle,
                false => low = middle + 1,
            }
        }
        Some(low)
    }

    /// Returns true if all bits of this one are set in the other.
    pub fn is_in(&self, other: &Roaring) -> bool {
        self.bits.is_subset(&other.bits)
    }

    /// Returns the share of the bits of both that are in each: 0 if there are none.
    pub fn jaccard(&self, other: &Roaring) -> f64 {
        match self.bits.union_len(&other.bits) {
            0 => 0.0,
            union => self.bits.intersection_len(&other.bits) as f64 / union as f64,
        }
    }

    /// Combines bitmaps; missing ones are empty. [`Operation::Not`] takes the first.
    pub fn combine(operation: Operation, of: &[Option<&Roaring>]) -> Roaring {
        let empty = RoaringBitmap::new();
        let mut sources = of.iter().map(|one| one.map_or(&empty, |one| &one.bits));
        let mut result = sources.next().cloned().unwrap_or_default();
        let combine: fn(&mut RoaringBitmap, &RoaringBitmap) = match operation {
            Operation::And => |result, other| result.bitand_assign(other),
            Operation::Or => |result, other| result.bitor_assign(other),
            Operation::Xor => |result, other| result.bitxor_assign(other),
            Operation::Diff => |result, other| result.sub_assign(other),
            Operation::Not => {
                if let (Some(min), Some(max)) = (result.min(), result.max()) {
                    let mut all = RoaringBitmap::new();
                    all.insert_range(min..=max);
                    result ^= all;
                }
                return Roaring::from_bits(result);
            }
        };
        for source in sources {
            combine(&mut result, source);
        }
        Roaring::from_bits(result)
    }

    /// Stores runs of bits as such where that takes less memory.
    pub fn optimize(&mut self) {
        self.bits.optimize();
        self.count_bytes();
    }

    /// Returns the numbers of containers of each kind, with the bits and the bytes in them.
    pub fn containers(&self) -> Containers {
        let kind = |count: u32, bits: u64, bytes: u64| Kind { count, bits, bytes };
        if self.bits.is_full() {
            // The library counts bits in 32 bits, which all of them are too many for.
            const ALL: u32 = 1 << 16;
            return Containers {
                arrays: kind(0, 0, 0),
                bits: kind(0, 0, 0),
                runs: kind(ALL, 1 << 32, u64::from(ALL) * RUN_BYTES),
            };
        }
        let figures = self.bits.statistics();
        Containers {
            arrays: kind(
                figures.n_array_containers,
                figures.n_values_array_containers.into(),
                // The library counts four bytes an offset, and stores two.
                figures.n_bytes_array_containers / 2,
            ),
            bits: kind(
                figures.n_bitset_containers,
                figures.n_values_bitset_containers,
                u64::from(figures.n_bitset_containers) * BITS_BYTES,
            ),
            runs: kind(
                figures.n_run_containers,
                figures.n_values_run_containers.into(),
                figures.n_bytes_run_containers,
            ),
        }
    }

    /// Writes the portable form of the Roaring format (its specification, version of 2024).
    pub fn to_bytes(&self) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(self.bits.serialized_size());
        let written = self.bits.serialize_into(&mut bytes);
        written.expect("memory takes everything");
        bytes
    }

    /// Reads the portable form, all of it.
    ///
    /// # Errors
    /// If the bytes are not of that form, or more than it.
    pub fn from_bytes(mut bytes: &[u8]) -> io::Result<Roaring> {
        let bits = RoaringBitmap::deserialize_from(&mut bytes)?;
        match bytes.is_empty() {
            true => Ok(Roaring::from_bits(bits)),
            false => Err(io::ErrorKind::InvalidData.into()),
        }
    }
}

/// Containers of one kind.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Kind {
    /// Number of containers.
    pub count: u32,
    /// Bits that are set in them.
    pub bits: u64,
    /// Bytes that they take.
    pub bytes: u64,
}

/// Containers of a bitmap by kind.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Containers {
    /// Those with sorted offsets.
    pub arrays: Kind,
    /// Those with a bit for each offset.
    pub bits: Kind,
    /// Those with runs of offsets.
    pub runs: Kind,
}

impl DataType for Roaring {
    const NAME: &'static str = "tairroar-";
    const STAYS_EMPTY: bool = true;

    fn encoding(&self) -> &'static str {
        "raw"
    }

    fn len(&self) -> usize {
        self.bits.len() as usize
    }

    fn is_empty(&self) -> bool {
        self.bits.is_empty()
    }

    fn heap_bytes(&self) -> usize {
        size_of::<Self>() + self.bytes
    }

    fn free_effort(&self) -> usize {
        self.bytes / CONTAINER_BYTES / 4
    }

    fn digest<D: Digest>(&self, digest: &mut D) {
        // Of the bits, not of the containers that they are in.
        for offset in &self.bits {
            digest.mix(&offset.to_le_bytes());
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use fastrand::Rng;

    use super::*;

    /// Draws an offset: near others, in few containers, or anywhere.
    fn offset(random: &mut Rng) -> u32 {
        match random.u8(..4) {
            0 => random.u32(..200),
            1 => random.u32(65_500..66_000),
            2 => u32::MAX - random.u32(..100),
            _ => random.u32(..),
        }
    }

    fn range(random: &mut Rng) -> RangeInclusive<u32> {
        let first = offset(random);
        first..=first.saturating_add(random.u32(..300))
    }

    fn same(bitmap: &Roaring, model: &BTreeSet<u32>) {
        assert!(bitmap.range(0..=u32::MAX).eq(model.iter().copied()));
        assert_eq!(bitmap.cardinality(), model.len() as u64);
        assert_eq!(bitmap.min(), model.first().copied());
        assert_eq!(bitmap.max(), model.last().copied());
    }

    #[test]
    fn a_bitmap_is_a_set_of_offsets() {
        for seed in 0..20 {
            let mut random = Rng::with_seed(seed);
            let (mut bitmap, mut model) = (Roaring::default(), BTreeSet::new());
            for _ in 0..500 {
                match random.u8(..8) {
                    0 => {
                        let range = range(&mut random);
                        let new = range.clone().filter(|at| model.insert(*at)).count();
                        assert_eq!(bitmap.set_range(range), new as u64);
                    }
                    1 => {
                        let range = range(&mut random);
                        bitmap.flip_range(range.clone());
                        for at in range {
                            if !model.remove(&at) {
                                model.insert(at);
                            }
                        }
                    }
                    2 => {
                        let range = range(&mut random);
                        let cleared = range.clone().filter(|at| model.remove(at)).count();
                        assert_eq!(bitmap.clear_all(range), cleared as u64);
                    }
                    3 => {
                        let (first, bits) = (offset(&mut random), [true, false, true, true]);
                        bitmap.write(first, bits.into_iter());
                        for (at, bit) in (first..=u32::MAX).zip(bits) {
                            match bit {
                                true => model.insert(at),
                                false => model.remove(&at),
                            };
                        }
                    }
                    4 => bitmap.optimize(),
                    _ => {
                        let (at, bit) = (offset(&mut random), random.bool());
                        let was = match bit {
                            true => !model.insert(at),
                            false => model.remove(&at),
                        };
                        assert_eq!(bitmap.set(at, bit), was);
                        assert_eq!(bitmap.get(at), bit);
                    }
                }
                let at = offset(&mut random);
                assert_eq!(bitmap.rank(at), model.range(..=at).count() as u64);
                let looked = range(&mut random);
                let count = model.range(looked.clone()).count();
                assert_eq!(bitmap.count_in(looked), count as u64);
            }
            same(&bitmap, &model);
            for index in [0, 1, 17, model.len() - 1, model.len()] {
                let found = model.iter().nth(index).copied();
                assert_eq!(bitmap.select(true, index as u64), found);
            }
            let mut clear = (0..).filter(|at| !model.contains(at));
            for index in 0..300 {
                assert_eq!(bitmap.select(false, index), clear.next());
            }
            let copy = Roaring::from_bytes(&bitmap.to_bytes()).unwrap();
            same(&copy, &model);
            let real = copy.heap_bytes();
            assert!(bitmap.heap_bytes() >= real && bitmap.heap_bytes() < real + 2_000);
        }
    }

    #[test]
    fn bitmaps_are_combined_as_sets_are() {
        let mut random = Rng::with_seed(7);
        for _ in 0..50 {
            let models: Vec<BTreeSet<u32>> = (0..3)
                .map(|_| (0..random.usize(..80)).map(|_| random.u32(..100)).collect())
                .collect();
            let bitmaps: Vec<Roaring> = models
                .iter()
                .map(|model| Roaring::of(model.iter().copied()))
                .collect();
            let of: Vec<_> = bitmaps.iter().map(Some).collect();
            let [a, b, c] = &models[..] else {
                unreachable!()
            };
            let xor: BTreeSet<u32> = a ^ b;
            let cases = [
                (Operation::And, &(a & b) & c),
                (Operation::Or, &(a | b) | c),
                (Operation::Xor, &xor ^ c),
                (Operation::Diff, &(a - b) - c),
            ];
            for (operation, expected) in cases {
                same(&Roaring::combine(operation, &of), &expected);
            }
            let inside = a
                .first()
                .map_or(0..0, |first| *first..a.last().unwrap() + 1);
            let not = inside.filter(|at| !a.contains(at)).collect();
            same(&Roaring::combine(Operation::Not, &of[..1]), &not);
            assert_eq!(bitmaps[0].is_in(&bitmaps[1]), a.is_subset(b));
            let union = (a | b).len();
            if union > 0 {
                let share = (a & b).len() as f64 / union as f64;
                assert!((bitmaps[0].jaccard(&bitmaps[1]) - share).abs() < 1e-12);
            }
        }
        let only = Roaring::of([1, 2]);
        let and = Roaring::combine(Operation::And, &[Some(&only), None]);
        assert!(and.is_empty(), "a missing one is empty");
    }

    #[test]
    fn all_offsets_take_little_memory_and_their_last_one_is_there() {
        let mut all = Roaring::default();
        assert_eq!(all.set_range(0..=u32::MAX), 1 << 32);
        assert!(all.heap_bytes() < 8 << 20, "{}", all.heap_bytes());
        assert_eq!(all.select(true, u64::from(u32::MAX)), Some(u32::MAX));
        assert_eq!(all.select(false, 0), None);
        all.flip_range(0..=u32::MAX);
        assert!(all.is_empty());
        assert_eq!(all.select(false, u64::from(u32::MAX)), Some(u32::MAX));
        all.write(u32::MAX, [true, true].into_iter());
        assert_eq!(all.cardinality(), 1);
    }

    #[test]
    fn a_string_of_bits_is_read_from_the_highest_bit_on() {
        let bits = Roaring::of_string(&[0b1000_0001, 0, 0b0100_0000]);
        assert!(bits.range(0..=u32::MAX).eq([0, 7, 17]));
    }

    #[test]
    fn bytes_that_are_no_bitmap_are_refused() {
        let bytes = Roaring::of((0..300).map(|at| at * 900)).to_bytes();
        for cut in 0..bytes.len() {
            assert!(Roaring::from_bytes(&bytes[..cut]).is_err(), "{cut}");
        }
        let longer = [&bytes[..], &[0]].concat();
        assert!(Roaring::from_bytes(&longer).is_err());
        // Whatever a changed byte makes of it, it is a bitmap or an error.
        for at in 0..bytes.len() {
            let mut changed = bytes.clone();
            changed[at] ^= 0x55;
            if let Ok(read) = Roaring::from_bytes(&changed) {
                assert_eq!(Roaring::from_bytes(&read.to_bytes()).unwrap(), read);
            }
        }
    }
}
