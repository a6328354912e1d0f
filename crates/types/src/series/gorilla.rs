//! A chunk of samples in Gorilla's compressed form: delta of delta of the times, XOR of the values, bit for bit as
//! RedisTimeSeries stores them. Must not know series, queries or files.
//!
//! # The form
//!
//! The first sample stands beside the bits. Each later one is a time and a value, lowest bits of a word first.
//!
//! - The time is the change of the distance to the time before, in the smallest of five sizes that holds it. As many ones as
//!   the size has a rank, and a zero, say which (`0`: no change; six ones: all 64 bits); its bits follow.
//! - The value is XORed with the one before. `0`: equal. `10`: the differing bits lie where those of an earlier value lay,
//!   and follow. `11`: their place is told first, by the zeros above them in 5 bits and their number less one in 6.
//!
//! The paper is Pelkonen et al., "Gorilla: A Fast, Scalable, In-Memory Time Series Database", VLDB 2015, section 4.1; the
//! sizes of the changes are RedisTimeSeries's own.

use super::Sample;

/// Sizes in bits of a change of the distance between times.
const SIZES: [u32; 5] = [5, 8, 11, 15, 32];
/// Bits for the number of zeros above the differing bits of a value.
const LEADING_BITS: u32 = 5;
/// Largest number of zeros that fits there.
const LEADING_MAX: u32 = 31;
/// Bits for the number of differing bits.
const BLOCK_BITS: u32 = 6;
/// The place of differing bits before any was told: no value fits there.
const NO_PLACE: u8 = 32;

/// Samples in the compressed form.
#[derive(Clone, Debug)]
pub struct Compressed {
    /// Bytes that the bits may take: a multiple of 8.
    size: u32,
    count: u32,
    /// Number of bits.
    bits: u64,
    base: Sample,
    last: Sample,
    /// Distance of the last two times.
    delta: u64,
    leading: u8,
    trailing: u8,
    words: Vec<u64>,
}

/// The fields of a compressed chunk besides its samples, as files have them.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct State {
    /// Bytes that the bits may take.
    pub size: u64,
    /// Number of samples.
    pub count: u64,
    /// Number of bits.
    pub bits: u64,
    /// First sample.
    pub base: Sample,
    /// Last sample.
    pub last: Sample,
    /// Distance of the last two times.
    pub delta: i64,
    /// Zeros above the differing bits where these were last told.
    pub leading: u8,
    /// Zeros below them.
    pub trailing: u8,
}

impl Compressed {
    /// Returns an empty chunk whose bits may take so many bytes, rounded up to a multiple of 8.
    pub fn new(size: u32) -> Compressed {
        let nothing = Sample {
            time: 0,
            value: 0.0,
        };
        Compressed {
            size: size.next_multiple_of(8),
            count: 0,
            bits: 0,
            base: nothing,
            last: nothing,
            delta: 0,
            leading: NO_PLACE,
            trailing: NO_PLACE,
            words: Vec::new(),
        }
    }

    /// Reads a chunk of a file: its state, and the bytes of its bits. `None` if they do not fit each other, or a time is
    /// not above the one before.
    pub fn restore(state: &State, bytes: &[u8]) -> Option<Compressed> {
        let size = u32::try_from(state.size).ok()?;
        let is_sound = size.is_multiple_of(8)
            && bytes.len() == size as usize
            && state.bits <= u64::from(size) * 8
            // A sample but the first takes two bits and more.
            && state.count <= state.bits / 2 + 1;
        if !is_sound {
            return None;
        }
        let used = bytes.get(..(state.bits.div_ceil(64) * 8) as usize)?;
        let words = used.as_chunks::<8>().0.iter();
        let mut chunk = Compressed {
            size,
            count: state.count as u32,
            bits: state.bits,
            base: state.base,
            last: state.base,
            delta: 0,
            leading: NO_PLACE,
            trailing: NO_PLACE,
            words: words.map(|word| u64::from_le_bytes(*word)).collect(),
        };
        let mut samples = chunk.iter();
        let (mut count, mut last) = (0, None);
        for sample in &mut samples {
            if last.is_some_and(|last: Sample| last.time >= sample.time) {
                return None;
            }
            last = Some(sample);
            count += 1;
        }
        let at = samples.at;
        let (delta, leading, trailing) = (samples.delta, samples.leading, samples.trailing);
        if count != state.count || at != state.bits {
            return None;
        }
        if let Some(last) = last {
            chunk.last = last;
        }
        (chunk.delta, chunk.leading, chunk.trailing) = (delta, leading, trailing);
        chunk.clear_behind();
        Some(chunk)
    }

    /// Clears what stands behind the last bit.
    fn clear_behind(&mut self) {
        let used = (self.bits % 64) as u32;
        if used > 0
            && let Some(word) = self.words.last_mut()
        {
            *word &= (1 << used) - 1;
        }
    }

    /// Returns the state, as files have it.
    pub fn state(&self) -> State {
        State {
            size: self.size.into(),
            count: self.count.into(),
            bits: self.bits,
            base: self.base,
            last: self.last,
            delta: self.delta as i64,
            leading: self.leading,
            trailing: self.trailing,
        }
    }

    /// Returns the bytes of the bits, with zeros up to the size.
    pub fn bytes(&self) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(self.size as usize);
        bytes.extend(self.words.iter().flat_map(|word| word.to_le_bytes()));
        bytes.resize(self.size as usize, 0);
        bytes
    }

    /// Returns the number of samples.
    pub fn len(&self) -> usize {
        self.count as usize
    }

    /// Returns true if there is no sample.
    pub fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// Returns the first sample; zeros in an empty chunk.
    pub fn first(&self) -> Sample {
        self.base
    }

    /// Returns the last sample; zeros in an empty chunk.
    pub fn last(&self) -> Sample {
        self.last
    }

    /// Returns the bytes on the heap.
    pub fn heap_bytes(&self) -> usize {
        self.words.capacity() * 8
    }

    /// Appends a sample, whose time is above the last one's. Returns false, with nothing changed, if the bits would take
    /// more than the size.
    pub fn push(&mut self, sample: Sample) -> bool {
        if self.count == 0 {
            (self.base, self.last, self.count) = (sample, sample, 1);
            return true;
        }
        let delta = sample.time.wrapping_sub(self.last.time);
        let change = delta.wrapping_sub(self.delta) as i64;
        let time_size = match change {
            0 => None,
            change => SIZES.iter().position(|bits| fits(change, *bits)),
        };
        let time_bits = match (change, time_size) {
            (0, _) => 1,
            (_, Some(rank)) => rank as u32 + 2 + SIZES[rank],
            (_, None) => SIZES.len() as u32 + 1 + 64,
        };
        let differing = sample.value.to_bits() ^ self.last.value.to_bits();
        let leading = differing.leading_zeros().min(LEADING_MAX);
        let trailing = differing.trailing_zeros();
        let block = 64_u32.saturating_sub(leading + trailing);
        let (old_leading, old_trailing) = (u32::from(self.leading), u32::from(self.trailing));
        let old_block = 64 - old_leading - old_trailing;
        let uses_old = leading >= old_leading
            && trailing >= old_trailing
            && LEADING_BITS + BLOCK_BITS + block > old_block;
        let value_bits = match (differing, uses_old) {
            (0, _) => 1,
            (_, true) => 2 + old_block,
            (_, false) => 2 + LEADING_BITS + BLOCK_BITS + block,
        };
        if self.bits + u64::from(time_bits + value_bits) > u64::from(self.size) * 8 {
            return false;
        }
        match (change, time_size) {
            (0, _) => self.append(0, 1),
            (_, Some(rank)) => {
                self.append((1 << (rank + 1)) - 1, rank as u32 + 2);
                self.append(change as u64, SIZES[rank]);
            }
            (_, None) => {
                self.append(0b11_1111, 6);
                self.append(change as u64, 64);
            }
        }
        match (differing, uses_old) {
            (0, _) => self.append(0, 1),
            (_, true) => {
                self.append(0b01, 2);
                self.append(differing >> old_trailing, old_block);
            }
            (_, false) => {
                self.append(0b11, 2);
                self.append(leading.into(), LEADING_BITS);
                self.append((block - 1).into(), BLOCK_BITS);
                self.append(differing >> trailing, block);
                (self.leading, self.trailing) = (leading as u8, trailing as u8);
            }
        }
        (self.last, self.delta) = (sample, delta);
        self.count += 1;
        true
    }

    /// Appends the lowest bits of a word: at least one.
    fn append(&mut self, data: u64, bits: u32) {
        let data = data & mask(bits);
        let at = (self.bits % 64) as u32;
        if at == 0 {
            self.words.push(data);
        } else {
            let last = self.words.last_mut().expect("it has a bit and more");
            *last |= data << at;
            if at + bits > 64 {
                self.words.push(data >> (64 - at));
            }
        }
        self.bits += u64::from(bits);
    }

    /// Gives back memory that no bit takes, for a chunk to which nothing is appended any more.
    pub fn shrink(&mut self) {
        self.words.shrink_to_fit();
    }

    /// Returns the samples in order.
    pub fn iter(&self) -> Samples<'_> {
        Samples {
            chunk: self,
            given: 0,
            at: 0,
            last: self.base,
            delta: 0,
            leading: NO_PLACE,
            trailing: NO_PLACE,
        }
    }
}

/// Returns true if a number has a two's complement of so many bits.
fn fits(number: i64, bits: u32) -> bool {
    let half = 1_i64 << (bits - 1);
    (-half..half).contains(&number)
}

/// Returns a word whose lowest bits are set.
fn mask(bits: u32) -> u64 {
    match bits {
        64 => u64::MAX,
        bits => (1 << bits) - 1,
    }
}

/// The samples of a chunk. Ends early where the bits are not those of as many samples.
#[derive(Clone)]
pub struct Samples<'a> {
    chunk: &'a Compressed,
    given: u32,
    /// Number of bits read.
    at: u64,
    last: Sample,
    delta: u64,
    leading: u8,
    trailing: u8,
}

impl Samples<'_> {
    /// Reads so many bits, of which there are at least one and at most 64.
    #[inline]
    fn read(&mut self, bits: u32) -> Option<u64> {
        if self.at + u64::from(bits) > self.chunk.bits {
            return None;
        }
        let (word, at) = ((self.at / 64) as usize, (self.at % 64) as u32);
        let mut data = self.chunk.words[word] >> at;
        if at + bits > 64 {
            data |= self.chunk.words[word + 1] << (64 - at);
        }
        self.at += u64::from(bits);
        Some(data & mask(bits))
    }

    #[inline]
    fn flag(&mut self) -> Option<bool> {
        self.read(1).map(|bit| bit == 1)
    }

    fn change(&mut self) -> Option<i64> {
        for bits in SIZES {
            if !self.flag()? {
                let unused = 64 - bits;
                return Some((self.read(bits)? as i64) << unused >> unused);
            }
        }
        self.read(64).map(|data| data as i64)
    }

    fn differing(&mut self) -> Option<u64> {
        if self.flag()? {
            let leading = self.read(LEADING_BITS)? as u32;
            let block = self.read(BLOCK_BITS)? as u32 + 1;
            self.leading = leading as u8;
            self.trailing = 64_u32.checked_sub(leading + block)? as u8;
        }
        let block = 64 - u32::from(self.leading) - u32::from(self.trailing);
        match block {
            0 => None,
            block => Some(self.read(block)? << self.trailing),
        }
    }
}

impl Iterator for Samples<'_> {
    type Item = Sample;

    #[inline]
    fn next(&mut self) -> Option<Sample> {
        if self.given == self.chunk.count {
            return None;
        }
        if self.given > 0 {
            if self.flag()? {
                self.delta = self.delta.wrapping_add(self.change()? as u64);
            }
            self.last.time = self.last.time.wrapping_add(self.delta);
            if self.flag()? {
                let bits = self.last.value.to_bits() ^ self.differing()?;
                self.last.value = f64::from_bits(bits);
            }
        }
        self.given += 1;
        Some(self.last)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample(time: u64, value: f64) -> Sample {
        Sample { time, value }
    }

    /// Chunks of RedisTimeSeries 8.2: the samples, and the words of their bits up to the last that is not zero.
    #[test]
    fn bits_are_those_of_the_module() {
        let mut chunk = Compressed::new(4096);
        assert!(chunk.push(sample(0, 1.5)) && chunk.push(sample(100, 5.0)));
        let state = chunk.state();
        assert_eq!((state.bits, state.delta, state.count), (37, 100, 2));
        assert_eq!((state.leading, state.trailing), (1, 50));
        let bytes = chunk.bytes();
        assert_eq!(bytes.len(), 4096);
        assert_eq!(bytes[..5], [0x23, 0x3b, 0x30, 0xfb, 0x1f]);
        assert!(bytes[5..].iter().all(|byte| *byte == 0));
    }

    #[test]
    fn what_goes_in_comes_out_in_any_distance_and_value() {
        let mut random = fastrand::Rng::with_seed(3);
        for round in 0..300 {
            let mut chunk = Compressed::new(random.u32(6..200) * 8);
            let (mut time, mut value) = (random.u64(..1 << 40), 0.0);
            let mut model = Vec::new();
            loop {
                let sample = sample(time, value);
                let before = chunk.bytes();
                if !chunk.push(sample) {
                    assert_eq!(chunk.bytes(), before, "nothing has changed");
                    break;
                }
                model.push(sample);
                time += match random.u32(..8) {
                    0 => random.u64(1..10),
                    1 => random.u64(1..1 << 20),
                    2 => random.u64(1..1 << 45),
                    _ => 1_000,
                };
                value = match random.u32(..6) {
                    0 => f64::from_bits(random.u64(..0x7fe << 52)),
                    1 => -value,
                    2 => value,
                    3 => value + 0.1,
                    _ => random.i32(-50..50).into(),
                };
                if time >= 1 << 62 {
                    break;
                }
            }
            let read: Vec<Sample> = chunk.iter().collect();
            assert_eq!(read, model, "round {round}");
            let state = chunk.state();
            assert_eq!(state.last, *model.last().expect("the first fits"));
            let again = Compressed::restore(&state, &chunk.bytes()).expect("it is sound");
            assert_eq!(again.state(), state);
            assert_eq!(again.bytes(), chunk.bytes());
        }
    }

    #[test]
    fn a_damaged_chunk_is_refused_or_read_to_its_end() {
        let mut chunk = Compressed::new(128);
        let mut time = 0;
        while chunk.push(sample(time, (time % 7) as f64 * 1.1)) {
            time += 1 + time % 13;
        }
        let (state, bytes) = (chunk.state(), chunk.bytes());
        let mut random = fastrand::Rng::with_seed(5);
        let mut refused = 0;
        for _ in 0..5_000 {
            let (mut state, mut bytes) = (state, bytes.clone());
            match random.u32(..5) {
                0 => state.count = random.u64(..),
                1 => state.bits = random.u64(..2_000),
                2 => state.size = random.u64(..4_000),
                _ => (0..random.usize(1..4)).for_each(|_| {
                    let at = random.usize(..bytes.len());
                    bytes[at] ^= 1 << random.u32(..8);
                }),
            }
            match Compressed::restore(&state, &bytes) {
                None => refused += 1,
                Some(chunk) => assert_eq!(chunk.iter().count(), chunk.len()),
            }
        }
        assert!(refused > 1_000, "{refused}");
        assert!(Compressed::restore(&state, &bytes).is_some());
    }
}
