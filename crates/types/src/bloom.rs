//! The Bloom filter that grows: layers, each with a capacity and a rate of errors, of which the last takes new items.
//! Must not know keys, commands, or how it is written to a file.
//!
//! Everything that decides an answer is that of RedisBloom, so that filters move in and out bit by bit: two hashes of 64
//! bits (the second seeded by the first) give all positions of an item; a layer has `capacity · ln(1 / rate) / ln²(2)`
//! bits, in whole words of 64; a new layer is larger by the growth, and its rate is half of the one before. Filters of its
//! early versions, whose layers have a power of two of bits, or hashes of 32 bits, are read and used as well.

use crate::{DataType, Digest, limits::SKETCH_BYTES_MAX, murmur};

/// Most layers of a filter.
pub const LAYERS_MAX: usize = 1_000;
/// Most hashes of a layer: more than the smallest rate that a number can have asks for.
const HASHES_MAX: u32 = 2_048;

/// Flags that a filter has.
pub mod options {
    /// Its layers have as many bits as they need, and not a power of two.
    pub const EXACT: u32 = 1;
    /// Its hashes have 64 bits.
    pub const WIDE_HASH: u32 = 4;
    /// It does not grow.
    pub const FIXED: u32 = 8;
    /// All that are known here.
    pub(super) const ALL: u32 = EXACT | WIDE_HASH | FIXED;
}

const SEED_64: u64 = 0xc6a4_a793_5bd1_e995;
const SEED_32: u32 = 0x9747_b28c;
/// The natural logarithm of 2, and its square, to the digits to which RedisBloom has them: they decide the last bit of
/// numbers in files.
#[expect(
    clippy::approx_constant,
    reason = "fewer digits than the constant of the library"
)]
const LN_2: f64 = 0.693147180559945;
/// See [`LN_2`].
const LN_2_SQUARED: f64 = 0.480453013918201;
/// Ratio of a layer's rate of errors to that of the one before.
const TIGHTENING: f64 = 0.5;
/// Bytes before the layers in [`Bloom::header`].
const HEAD_BYTES: usize = 20;
/// Place of the growth in them.
const GROWTH_AT: usize = 16;
/// Bytes of a layer in [`Bloom::header`].
const LAYER_HEAD_BYTES: usize = 53;

/// A Bloom filter. See the head of this file.
#[derive(Clone, Debug)]
pub struct Bloom {
    items: u64,
    options: u32,
    growth: u32,
    layers: Vec<Layer>,
    /// Of all layers together.
    bits_bytes: usize,
}

/// A part of a filter with a capacity of its own.
#[derive(Clone, Debug)]
pub struct Layer {
    /// Number of items that it takes.
    pub capacity: u64,
    /// Share of items that it may find without having them.
    pub error_rate: f64,
    /// Number of bits for each item.
    pub bits_per_item: f64,
    /// Number of positions of an item.
    pub hashes: u32,
    /// Number of bits.
    pub bits: u64,
    /// The power of two that is the number of bits; 0 if it is none.
    pub power: u8,
    /// Number of items in it.
    pub items: u64,
    /// The bits, in whole words of 64.
    pub bytes: Box<[u8]>,
}

/// Reason why an item could not be added.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AddError {
    /// The filter is full, and does not grow.
    Full,
    /// A further layer would go beyond a limit.
    TooLarge,
}

/// Reason why a chunk could not be loaded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ChunkError {
    /// The position is none.
    Position,
    /// The position is behind the last layer.
    NoLayer,
    /// The chunk goes beyond the layer in which it begins.
    TooLong,
}

/// The two hashes of an item.
#[derive(Clone, Copy)]
struct Hashes(u64, u64);

impl Layer {
    /// Returns an empty layer; `None` if the arguments make none, or one of more than `bytes_max` bytes.
    fn new(capacity: u64, error_rate: f64, is_exact: bool, bytes_max: u64) -> Option<Layer> {
        if capacity == 0 || !(error_rate > 0.0 && error_rate < 1.0) {
            return None;
        }
        let bits_per_item = -(error_rate.ln() / LN_2_SQUARED);
        let wanted = capacity as f64 * bits_per_item;
        if wanted / 8.0 > bytes_max as f64 {
            return None;
        }
        let (mut bits, mut power, mut capacity) = (wanted as u64, 0, capacity);
        if !is_exact {
            power = (wanted.log2().floor() + 1.0).max(0.0) as u8;
            bits = 1 << power;
            capacity = capacity.saturating_add(((bits as f64 - wanted) / bits_per_item) as u64);
        }
        let bytes = bits.div_ceil(64) * 8;
        if bytes == 0 || bytes > bytes_max {
            return None;
        }
        Some(Layer {
            capacity,
            error_rate,
            bits_per_item,
            hashes: (LN_2 * bits_per_item).ceil() as u32,
            bits: bytes * 8,
            power,
            items: 0,
            bytes: vec![0; bytes as usize].into(),
        })
    }

    /// Returns true if every position of an item exists, and their number is bounded.
    fn is_sound(&self) -> bool {
        let bits_max = self.bytes.len() as u64 * 8;
        let has_bits = match self.power {
            0 => (1..=bits_max).contains(&self.bits),
            power => power < 64 && 1 << power <= bits_max && self.bits <= bits_max,
        };
        has_bits
            && self.capacity > 0
            && (1..=HASHES_MAX).contains(&self.hashes)
            && self.error_rate > 0.0
            && self.error_rate < 1.0
            && self.bits_per_item.is_finite()
            && self.bits_per_item > 0.0
    }

    /// Returns the places of an item's bits: the byte, and the bit in it. They are the remainders of `first + i * second`
    /// in 64 bits, each reckoned from the one before: a division takes longer than all else here.
    #[inline]
    fn places(&self, hashes: Hashes) -> impl Iterator<Item = (usize, u8)> + use<> {
        let modulus = match self.power {
            0 => self.bits,
            power => 1 << power,
        };
        let Hashes(mut hash, second) = hashes;
        let (mut bit, step) = (hash % modulus, second % modulus);
        let below = move |bit: u64| if bit >= modulus { bit - modulus } else { bit };
        // What is lost when a sum is beyond 64 bits.
        let lost = below(u64::MAX % modulus + 1);
        let step_beyond = below(step + modulus - lost);
        (0..self.hashes).map(move |_| {
            let place = ((bit / 8) as usize, 1 << (bit % 8));
            let (next, is_beyond) = hash.overflowing_add(second);
            hash = next;
            bit = below(bit + if is_beyond { step_beyond } else { step });
            place
        })
    }

    #[inline]
    fn contains(&self, hashes: Hashes) -> bool {
        self.places(hashes)
            .all(|(byte, bit)| self.bytes[byte] & bit != 0)
    }

    /// Sets the bits of an item; returns true if one was not set.
    #[inline]
    fn add(&mut self, hashes: Hashes) -> bool {
        let mut is_new = false;
        for (byte, bit) in self.places(hashes) {
            let byte = &mut self.bytes[byte];
            is_new |= *byte & bit == 0;
            *byte |= bit;
        }
        is_new
    }
}

impl Bloom {
    /// Returns an empty filter, whose layers grow by the factor `growth`; without one it stays as large as it is.
    /// `None` if the arguments make none, or one beyond [`SKETCH_BYTES_MAX`].
    pub fn new(capacity: u64, error_rate: f64, growth: u32, is_fixed: bool) -> Option<Bloom> {
        let (fixed, tightening) = match is_fixed {
            true => (options::FIXED, 1.0),
            false => (0, TIGHTENING),
        };
        if error_rate >= 1.0 {
            return None;
        }
        let layer = Layer::new(capacity, error_rate * tightening, true, SKETCH_BYTES_MAX)?;
        Some(Bloom {
            items: 0,
            options: options::EXACT | options::WIDE_HASH | fixed,
            growth,
            bits_bytes: layer.bytes.len(),
            layers: vec![layer],
        })
    }

    /// Returns the filter of these parts; `None` if they make none.
    pub fn restore(items: u64, options: u32, growth: u32, layers: Vec<Layer>) -> Option<Bloom> {
        let sum = |sum: u64, layer: &Layer| sum.checked_add(layer.items);
        let bits_bytes = layers.iter().map(|layer| layer.bytes.len()).sum();
        let is_sound = (1..=LAYERS_MAX).contains(&layers.len())
            && options & !options::ALL == 0
            && layers.iter().all(Layer::is_sound)
            && layers.iter().try_fold(0, sum) == Some(items)
            && i64::try_from(items).is_ok();
        is_sound.then_some(Bloom {
            items,
            options,
            growth,
            layers,
            bits_bytes,
        })
    }

    /// Returns the number of items that were added and not found before.
    pub fn items(&self) -> u64 {
        self.items
    }

    /// Returns the flags, of [`options`].
    pub fn options(&self) -> u32 {
        self.options
    }

    /// Returns true if the filter does not grow.
    pub fn is_fixed(&self) -> bool {
        self.options & options::FIXED != 0
    }

    /// Returns the factor by which each layer is larger than the one before.
    pub fn growth(&self) -> u32 {
        self.growth
    }

    /// Returns the layers, the oldest first.
    pub fn layers(&self) -> &[Layer] {
        &self.layers
    }

    /// Returns the number of bytes of all bits.
    pub fn bits_bytes(&self) -> usize {
        self.bits_bytes
    }

    /// Returns the number of items for which there is room in all layers.
    pub fn capacity(&self) -> u64 {
        let capacities = self.layers.iter().map(|layer| layer.capacity);
        capacities.fold(0, u64::saturating_add)
    }

    fn hashes(&self, item: &[u8]) -> Hashes {
        if self.options & options::WIDE_HASH != 0 {
            let first = murmur::hash_64(item, SEED_64);
            Hashes(first, murmur::hash_64(item, first))
        } else {
            let first = murmur::hash_32(item, SEED_32);
            Hashes(first.into(), murmur::hash_32(item, first).into())
        }
    }

    /// Returns false if the item was never added.
    pub fn contains(&self, item: &[u8]) -> bool {
        let hashes = self.hashes(item);
        let mut layers = self.layers.iter().rev();
        layers.any(|layer| layer.contains(hashes))
    }

    /// Adds an item, in a further layer if the last one is full; returns true if it was not found before.
    ///
    /// # Errors
    ///
    /// If there is no room; nothing has changed then.
    pub fn add(&mut self, item: &[u8]) -> Result<bool, AddError> {
        let hashes = self.hashes(item);
        let (last, older) = self.layers.split_last().ok_or(AddError::TooLarge)?;
        if older.iter().rev().any(|layer| layer.contains(hashes)) {
            return Ok(false);
        }
        if last.items >= last.capacity {
            if last.contains(hashes) {
                return Ok(false);
            }
            if self.is_fixed() {
                return Err(AddError::Full);
            }
            self.grow().ok_or(AddError::TooLarge)?;
        }
        let last = self.layers.last_mut().ok_or(AddError::TooLarge)?;
        let is_new = last.add(hashes);
        if is_new {
            last.items += 1;
            self.items += 1;
        }
        Ok(is_new)
    }

    /// Adds a layer; `None` if that goes beyond a limit.
    fn grow(&mut self) -> Option<()> {
        let last = self.layers.last()?;
        if self.layers.len() >= LAYERS_MAX {
            return None;
        }
        let layer = Layer::new(
            last.capacity.checked_mul(self.growth.into())?,
            last.error_rate * TIGHTENING,
            self.options & options::EXACT != 0,
            SKETCH_BYTES_MAX.saturating_sub(self.bits_bytes as u64),
        )?;
        self.bits_bytes += layer.bytes.len();
        self.layers.push(layer);
        Some(())
    }

    /// Returns everything but the bits, in the form of BF.SCANDUMP.
    pub fn header(&self) -> Vec<u8> {
        let mut header = Vec::with_capacity(HEAD_BYTES + self.layers.len() * LAYER_HEAD_BYTES);
        header.extend(self.items.to_le_bytes());
        header.extend((self.layers.len() as u32).to_le_bytes());
        header.extend(self.options.to_le_bytes());
        header.extend(self.growth.to_le_bytes());
        for layer in &self.layers {
            header.extend((layer.bytes.len() as u64).to_le_bytes());
            header.extend(layer.bits.to_le_bytes());
            header.extend(layer.items.to_le_bytes());
            header.extend(layer.error_rate.to_le_bytes());
            header.extend(layer.bits_per_item.to_le_bytes());
            header.extend(layer.hashes.to_le_bytes());
            header.extend(layer.capacity.to_le_bytes());
            header.push(layer.power);
        }
        header
    }

    /// Returns the filter that [`Bloom::header`] describes, without a bit set; `None` if it describes none, or one beyond
    /// [`SKETCH_BYTES_MAX`].
    pub fn from_header(header: &[u8]) -> Option<Bloom> {
        let (head, layers) = header.split_first_chunk::<HEAD_BYTES>()?;
        let mut head = Fields(head);
        let (items, count) = (head.u64()?, head.u32()?);
        let (options, growth) = (head.u32()?, head.u32()?);
        let (layers, rest) = layers.as_chunks::<LAYER_HEAD_BYTES>();
        if !rest.is_empty() || layers.len() != count as usize {
            return None;
        }
        let mut room = SKETCH_BYTES_MAX;
        let mut read = Vec::with_capacity(layers.len());
        for layer in layers {
            let mut fields = Fields(layer);
            let bytes = fields.u64()?;
            room = room.checked_sub(bytes)?;
            let mut layer = Layer {
                bytes: Box::default(),
                bits: fields.u64()?,
                items: fields.u64()?,
                error_rate: f64::from_bits(fields.u64()?),
                bits_per_item: f64::from_bits(fields.u64()?),
                hashes: fields.u32()?,
                capacity: fields.u64()?,
                power: fields.u8()?,
            };
            // A capacity that does not ask for so many bits is no reason to give it memory.
            if bytes as f64 > layer.capacity as f64 * layer.bits_per_item / 4.0 + 64.0 {
                return None;
            }
            layer.bytes = vec![0; usize::try_from(bytes).ok()?].into();
            if !layer.is_sound() {
                return None;
            }
            read.push(layer);
        }
        Bloom::restore(items, options, growth, read)
    }

    /// Returns the bytes of a layer from a position on, which counts from 1 over all layers, at most `len_max` of them,
    /// and the position behind them; `None` behind the last layer.
    pub fn chunk(&self, position: i64, len_max: usize) -> Option<(i64, &[u8])> {
        let mut at = usize::try_from(position).ok()?.checked_sub(1)?;
        for layer in &self.layers {
            if at < layer.bytes.len() {
                let rest = &layer.bytes[at..];
                let chunk = &rest[..rest.len().min(len_max)];
                return Some((position + chunk.len() as i64, chunk));
            }
            at -= layer.bytes.len();
        }
        None
    }

    /// Sets the bytes of a layer before a position, as [`Bloom::chunk`] returned both.
    ///
    /// # Errors
    ///
    /// If no layer has these bytes; nothing has changed then.
    pub fn load_chunk(&mut self, position: i64, chunk: &[u8]) -> Result<(), ChunkError> {
        let behind = usize::try_from(position).map_err(|_| ChunkError::Position)?;
        let at = behind.checked_sub(chunk.len()).filter(|_| behind > 0);
        let at = at.ok_or(ChunkError::Position)?.checked_sub(1);
        let mut at = at.ok_or(ChunkError::NoLayer)?;
        for layer in &mut self.layers {
            if at < layer.bytes.len() {
                let place = layer.bytes[at..].get_mut(..chunk.len());
                place.ok_or(ChunkError::TooLong)?.copy_from_slice(chunk);
                return Ok(());
            }
            at -= layer.bytes.len();
        }
        Err(ChunkError::NoLayer)
    }
}

/// Numbers in little-endian order, one behind the other.
pub(crate) struct Fields<'a>(pub(crate) &'a [u8]);

impl Fields<'_> {
    fn take<const N: usize>(&mut self) -> Option<[u8; N]> {
        let (field, rest) = self.0.split_first_chunk()?;
        self.0 = rest;
        Some(*field)
    }

    pub(crate) fn u8(&mut self) -> Option<u8> {
        self.take().map(u8::from_le_bytes)
    }

    pub(crate) fn u16(&mut self) -> Option<u16> {
        self.take().map(u16::from_le_bytes)
    }

    pub(crate) fn u32(&mut self) -> Option<u32> {
        self.take().map(u32::from_le_bytes)
    }

    pub(crate) fn u64(&mut self) -> Option<u64> {
        self.take().map(u64::from_le_bytes)
    }
}

impl Default for Bloom {
    fn default() -> Bloom {
        Bloom::new(100, 0.01, 2, false).expect("a small filter")
    }
}

impl DataType for Bloom {
    const NAME: &'static str = "MBbloom--";
    const STAYS_EMPTY: bool = true;

    fn encoding(&self) -> &'static str {
        "raw"
    }

    fn len(&self) -> usize {
        self.items as usize
    }

    fn heap_bytes(&self) -> usize {
        size_of::<Self>() + self.layers.capacity() * size_of::<Layer>() + self.bits_bytes
    }

    fn free_effort(&self) -> usize {
        /// Giving back a run of pages takes about as long as so many bytes for each allocation.
        const BYTES: usize = 64 * 1024;
        1 + self.layers.len() + self.bits_bytes / BYTES
    }

    fn digest<D: Digest>(&self, digest: &mut D) {
        let mut header = self.header();
        if self.is_fixed() {
            // It has a growth, which is that of a setting and has no effect.
            header[GROWTH_AT..HEAD_BYTES].fill(0);
        }
        digest.mix(&header);
        for layer in &self.layers {
            digest.mix(&layer.bytes);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn item(n: u64) -> [u8; 8] {
        n.to_le_bytes()
    }

    fn add_all(bloom: &mut Bloom, items: impl Iterator<Item = impl AsRef<[u8]>>) {
        for item in items {
            assert!(bloom.add(item.as_ref()).is_ok());
        }
    }

    #[test]
    fn what_was_added_is_found_and_errors_are_as_rare_as_asked() {
        for rate in [0.1, 0.01, 0.001] {
            let count = 100_000;
            let mut bloom = Bloom::new(1_000, rate, 2, false).unwrap();
            add_all(&mut bloom, (0..count).map(item));
            assert!((0..count).all(|n| bloom.contains(&item(n))));
            let errors = (count..2 * count).filter(|n| bloom.contains(&item(*n)));
            let errors = errors.count() as f64 / count as f64;
            assert!(errors < 1.2 * rate, "{errors} for {rate}");
        }
    }

    /// One filter has its room from the start, the other one grows to eight layers.
    #[test]
    #[ignore = "a minute: cargo test -p redline-types --lib -- --ignored ten_million"]
    fn of_ten_million_items_all_are_found_and_errors_are_as_rare_as_asked() {
        let count = 10_000_000;
        for (capacity, rate) in [(count, 0.01), (count, 0.001), (40_000, 0.01)] {
            let mut bloom = Bloom::new(capacity, rate, 2, false).unwrap();
            add_all(&mut bloom, (0..count).map(item));
            let lost = (0..count).filter(|n| !bloom.contains(&item(*n))).count();
            let errors = (count..2 * count).filter(|n| bloom.contains(&item(*n)));
            let errors = errors.count() as f64 / count as f64;
            let layers = bloom.layers().len();
            println!("Bloom, {layers} layers, asked for {rate}: {lost} lost, errors {errors}");
            assert_eq!(lost, 0);
            assert!(errors < 1.2 * rate, "{errors} for {rate}");
        }
    }

    #[test]
    fn layers_have_the_sizes_of_redisbloom() {
        let mut bloom = Bloom::new(4, 0.01, 2, false).unwrap();
        add_all(&mut bloom, (0..40).map(|n| format!("item{n}")));
        let layers = bloom.layers().iter();
        let layers: Vec<_> = layers
            .map(|layer| (layer.capacity, layer.bytes.len(), layer.hashes))
            .collect();
        assert_eq!(layers, [(4, 8, 8), (8, 16, 9), (16, 32, 10), (32, 64, 11)]);
        assert_eq!((bloom.items(), bloom.capacity()), (40, 60));
    }

    #[test]
    fn a_full_filter_that_does_not_grow_says_so_and_still_knows_its_items() {
        let mut bloom = Bloom::new(3, 0.01, 2, true).unwrap();
        for name in ["i0", "i1", "i2"] {
            assert_eq!(bloom.add(name.as_bytes()), Ok(true));
        }
        assert_eq!(bloom.add(b"i3"), Err(AddError::Full));
        assert_eq!(bloom.add(b"i1"), Ok(false));
    }

    #[test]
    fn a_filter_moves_by_header_and_chunks() {
        let mut bloom = Bloom::new(10, 0.01, 2, false).unwrap();
        add_all(&mut bloom, (0..100).map(item));
        let mut moved = Bloom::from_header(&bloom.header()).unwrap();
        assert_eq!(moved.items(), bloom.items());
        assert!(!moved.contains(&item(1)));
        let mut position = 1;
        while let Some((next, chunk)) = bloom.chunk(position, 7) {
            moved.load_chunk(next, chunk).unwrap();
            position = next;
        }
        assert!((0..100).all(|n| moved.contains(&item(n))));
        let bytes = |bloom: &Bloom| {
            bloom
                .layers()
                .iter()
                .map(|l| l.bytes.to_vec())
                .collect::<Vec<_>>()
        };
        assert_eq!(bytes(&moved), bytes(&bloom));
    }

    #[test]
    fn chunks_that_no_layer_has_change_nothing() {
        let mut bloom = Bloom::default();
        let len = bloom.bits_bytes() as i64;
        assert_eq!(bloom.load_chunk(0, b""), Err(ChunkError::Position));
        assert_eq!(bloom.load_chunk(-5, b"x"), Err(ChunkError::Position));
        assert_eq!(bloom.load_chunk(3, b"1234"), Err(ChunkError::Position));
        assert_eq!(bloom.load_chunk(4, b"1234"), Err(ChunkError::NoLayer));
        assert_eq!(bloom.load_chunk(len + 2, b"12"), Err(ChunkError::TooLong));
        assert_eq!(bloom.load_chunk(i64::MAX, b"12"), Err(ChunkError::NoLayer));
        assert!(bloom.layers()[0].bytes.iter().all(|byte| *byte == 0));
        assert_eq!(bloom.load_chunk(len + 1, b"12"), Ok(()));
    }

    #[test]
    fn what_makes_no_filter_is_refused_before_memory_is_asked_for() {
        for rate in [0.0, 1.0, -0.1, f64::NAN, f64::INFINITY, 5e-324] {
            assert!(Bloom::new(100, rate, 2, false).is_none(), "{rate}");
        }
        assert!(Bloom::new(0, 0.01, 2, false).is_none());
        assert!(Bloom::new(u64::MAX, 0.01, 2, false).is_none());
        assert!(Bloom::new(1 << 30, 1e-300, 2, false).is_none());
        let tight = Bloom::new(10, 1e-300, 2, false).unwrap();
        assert!(tight.layers()[0].hashes < HASHES_MAX);
        let mut fast = Bloom::new(1, 0.01, u32::MAX, false).unwrap();
        let mut n = 0;
        while fast.add(&item(n)) == Ok(true) || fast.items() < 1 {
            n += 1;
        }
        assert_eq!(fast.add(b"another"), Err(AddError::TooLarge));
    }

    /// Ensures that no header makes an item's positions leave the bits, or takes memory for nothing.
    #[test]
    fn no_header_is_believed() {
        let header = Bloom::default().header();
        for at in 0..header.len() {
            for value in [0, 1, 0x7f, 0x80, 0xff] {
                let mut damaged = header.clone();
                damaged[at] = value;
                if let Some(mut bloom) = Bloom::from_header(&damaged) {
                    assert!(bloom.bits_bytes() < 1 << 20, "byte {at} is {value}");
                    bloom.contains(b"x");
                    assert!(bloom.add(b"x") != Err(AddError::TooLarge));
                }
            }
        }
        assert!(Bloom::from_header(&header[..header.len() - 1]).is_none());
        assert!(Bloom::from_header(b"garbage").is_none());
    }
}
