//! HyperLogLogs: strings that estimate how many different elements they have seen. The bytes are Redis's, in both
//! encodings, so that a value may be read with GET, stored elsewhere with SET, and counted there. Pure functions over
//! byte slices; they must not know keys, commands or replies.
//!
//! # The bytes
//!
//! A header of 16 bytes (`HYLL`, the encoding, three unused, the cached count in little endian, whose highest bit says
//! that it is out of date), then 16,384 registers of 6 bits. Dense: packed, low bits first. Sparse: runs, each an
//! opcode of one or two bytes: `00nnnnnn` n+1 zeros, `01nnnnnn nnnnnnnn` n+1 zeros, `1vvvvvnn` n+1 times v+1.
//! A sparse one becomes dense when a register exceeds 32 or its bytes a limit.
//!
//! # Hostile strings
//!
//! SETRANGE and SET write whatever a client likes, so every string is suspect: [`is_valid`] looks at the header, and
//! every walk over runs keeps count of registers, and ends with [`Corrupt`] before it would leave them.
//!
//! # The estimate
//!
//! Otmar Ertl, "New cardinality estimation algorithms for HyperLogLog sketches" (arXiv:1702.01284), the improved raw
//! estimator: no bias tables, one formula over the histogram of the registers.

use redline_lanes::{pack_sixes, raise_by_sixes};

use crate::murmur;

/// Registers of a HyperLogLog.
pub const REGISTERS: usize = 1 << INDEX_BITS;

const INDEX_BITS: u32 = 14;
/// Bits of a hash in which a run of zeros is counted.
const RUN_BITS: usize = 64 - INDEX_BITS as usize;
const HEADER_BYTES: usize = 16;
const DENSE_BYTES: usize = HEADER_BYTES + REGISTERS * 6 / 8;
const MAGIC: &[u8; 4] = b"HYLL";
/// The largest register of the sparse encoding.
const SPARSE_MAX: u8 = 32;
const HASH_SEED: u64 = 0xadc8_3b19;

/// Encoding of the registers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Encoding {
    /// Six bits each.
    Dense,
    /// Runs.
    Sparse,
}

/// The runs of a sparse string do not make up its registers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Corrupt;

/// Returns an empty HyperLogLog.
pub fn empty() -> Vec<u8> {
    let mut bytes = vec![0; HEADER_BYTES];
    bytes[..4].copy_from_slice(MAGIC);
    bytes[4] = 1;
    Run::zeros(REGISTERS).write(&mut bytes);
    bytes
}

/// Returns true if a string has the header and the length of a HyperLogLog. The runs of a sparse one are still to be
/// checked.
pub fn is_valid(bytes: &[u8]) -> bool {
    bytes.len() >= HEADER_BYTES
        && bytes.starts_with(MAGIC)
        && bytes[4] <= 1
        && (bytes[4] == 1 || bytes.len() == DENSE_BYTES)
}

/// Returns the encoding of a valid one.
pub fn encoding(bytes: &[u8]) -> Encoding {
    if bytes[4] == 0 {
        Encoding::Dense
    } else {
        Encoding::Sparse
    }
}

/// Returns the count that a valid one remembers, if nothing has changed since.
pub fn cached_count(bytes: &[u8]) -> Option<u64> {
    let card = u64::from_le_bytes(bytes[8..16].try_into().expect("eight bytes"));
    (card >> 63 == 0).then_some(card)
}

/// Makes a valid one remember its count.
pub fn remember_count(bytes: &mut [u8], count: u64) {
    bytes[8..16].copy_from_slice(&count.to_le_bytes());
}

/// Makes a valid one forget its count.
pub fn forget_count(bytes: &mut [u8]) {
    bytes[15] |= 0x80;
}

/// Adds an element to a valid one; returns true if a register has changed. A sparse one that would be longer than
/// `sparse_bytes_max` becomes dense.
pub fn add(bytes: &mut Vec<u8>, element: &[u8], sparse_bytes_max: usize) -> Result<bool, Corrupt> {
    let (index, value) = register_of(element);
    raise(bytes, index, value, sparse_bytes_max)
}

/// Does the same for one that is dense.
pub fn add_to_dense(bytes: &mut [u8], element: &[u8]) -> bool {
    let (index, value) = register_of(element);
    raise_dense(bytes, index, value)
}

/// Returns the register that an element raises, and the value.
fn register_of(element: &[u8]) -> (usize, u8) {
    let hash = hash(element);
    let index = hash as usize & (REGISTERS - 1);
    let run = (hash >> INDEX_BITS | 1 << RUN_BITS).trailing_zeros();
    (index, run as u8 + 1)
}

/// Estimates how many different elements a valid one has seen.
pub fn count(bytes: &[u8]) -> Result<u64, Corrupt> {
    let mut histogram = [0; 64];
    match encoding(bytes) {
        Encoding::Dense => {
            let mut registers = Registers::new();
            registers.merge(bytes)?;
            return Ok(registers.count());
        }
        Encoding::Sparse => {
            for run in Runs::of(bytes) {
                let run = run?;
                histogram[usize::from(run.value)] += run.len as u32;
            }
        }
    }
    Ok(estimate(&histogram))
}

/// Makes a valid one dense; returns true if it was not before.
pub fn to_dense(bytes: &mut Vec<u8>) -> Result<bool, Corrupt> {
    if encoding(bytes) == Encoding::Dense {
        return Ok(false);
    }
    let mut registers = Registers::new();
    registers.merge(bytes)?;
    registers.write_dense(bytes);
    Ok(true)
}

/// Returns the runs of a valid sparse one in Redis's notation, `Z:16384` or `z:5 v:1,2`, as far as they go.
pub fn describe_runs(bytes: &[u8]) -> String {
    use std::fmt::Write;
    let (mut text, mut at) = (String::new(), HEADER_BYTES);
    while at < bytes.len() {
        let (run, len) = Run::read(bytes, at);
        at += len;
        let space = if text.is_empty() { "" } else { " " };
        match (run.value, len) {
            (0, 1) => write!(text, "{space}z:{}", run.len),
            (0, _) => write!(text, "{space}Z:{}", run.len),
            (value, _) => write!(text, "{space}v:{value},{}", run.len),
        }
        .expect("text takes everything");
    }
    text
}

/// Registers side by side, for merging.
pub struct Registers(Box<[u8; REGISTERS]>);

impl Registers {
    /// Returns registers that are all zero.
    pub fn new() -> Registers {
        let zeros = vec![0; REGISTERS].into_boxed_slice();
        Registers(zeros.try_into().expect("so many"))
    }

    /// Raises each register to that of a valid HyperLogLog.
    pub fn merge(&mut self, bytes: &[u8]) -> Result<(), Corrupt> {
        match encoding(bytes) {
            Encoding::Dense => raise_by_sixes(&mut self.0[..], &bytes[HEADER_BYTES..]),
            Encoding::Sparse => {
                let mut at = 0;
                for run in Runs::of(bytes) {
                    let run = run?;
                    if run.value > 0 {
                        for register in &mut self.0[at..at + run.len] {
                            *register = run.value.max(*register);
                        }
                    }
                    at += run.len;
                }
            }
        }
        Ok(())
    }

    /// Estimates how many different elements they have seen.
    pub fn count(&self) -> u64 {
        // Equal neighbours would wait for each other's count.
        let mut parts = [[0u32; 64]; 4];
        let (eights, _) = self.0.as_chunks::<8>();
        for eight in eights {
            // Those with few elements are mostly zeros.
            if *eight == [0; 8] {
                parts[0][0] += 8;
                continue;
            }
            for (at, register) in eight.iter().enumerate() {
                parts[at % 4][usize::from(register & 63)] += 1;
            }
        }
        estimate(&std::array::from_fn(|value| {
            parts.iter().map(|part| part[value]).sum()
        }))
    }

    /// Returns the registers.
    pub fn iter(&self) -> impl Iterator<Item = u8> {
        self.0.iter().copied()
    }

    /// Turns a valid HyperLogLog into a dense one with these registers; its header stays.
    pub fn write_dense(&self, bytes: &mut Vec<u8>) {
        bytes[4] = 0;
        bytes.reserve_exact(DENSE_BYTES.saturating_sub(bytes.len()));
        bytes.resize(DENSE_BYTES, 0);
        pack_sixes(&self.0[..], &mut bytes[HEADER_BYTES..]);
    }

    /// Raises the registers of a valid HyperLogLog to these, one after the other.
    pub fn raise(&self, bytes: &mut Vec<u8>, sparse_bytes_max: usize) -> Result<(), Corrupt> {
        const BLOCK: usize = 64;
        let mut own = Registers::new();
        own.merge(bytes)?;
        let blocks = self.0.chunks(BLOCK).zip(own.0.chunks(BLOCK)).enumerate();
        let mut from = Place::FIRST;
        for (block, (wanted, own)) in blocks.filter(|(_, (wanted, own))| wanted != own) {
            for (at, (wanted, _)) in wanted
                .iter()
                .zip(own)
                .enumerate()
                .filter(|(_, (wanted, own))| wanted > own)
            {
                raise_from(
                    &mut from,
                    bytes,
                    block * BLOCK + at,
                    *wanted,
                    sparse_bytes_max,
                )?;
            }
        }
        Ok(())
    }
}

impl Default for Registers {
    fn default() -> Registers {
        Registers::new()
    }
}

/// Checks the encodings and the estimate against each other and against what is known, as PFSELFTEST does: registers
/// written are read, both encodings count alike, and the error of the estimate stays near its expectation. Takes tens of
/// milliseconds. The error says what failed.
pub fn self_test() -> Result<(), String> {
    const ELEMENTS: u64 = 200_000;
    let mut expected = Registers::new();
    let mut dense = empty();
    to_dense(&mut dense).map_err(|Corrupt| "an empty one is corrupt")?;
    for step in 0..REGISTERS as u64 {
        let random = hash(&step.to_le_bytes());
        let (index, value) = (random as usize % REGISTERS, (random >> 32) as u8 % 64);
        expected.0[index] = expected.0[index].max(value);
        raise(&mut dense, index, value, 0).map_err(|Corrupt| "a dense one is corrupt")?;
    }
    let mut found = Registers::new();
    found
        .merge(&dense)
        .map_err(|Corrupt| "a dense one is corrupt")?;
    if !found.iter().eq(expected.iter()) {
        return Err("registers are not what was written".to_owned());
    }

    let (mut sparse, mut dense) = (empty(), empty());
    to_dense(&mut dense).map_err(|Corrupt| "an empty one is corrupt")?;
    let mut checkpoint = 1;
    for element in 1..=ELEMENTS {
        let bytes = hash(&element.to_le_bytes()).to_le_bytes();
        for hll in [&mut sparse, &mut dense] {
            add(hll, &bytes, 3000).map_err(|Corrupt| "a sparse one is corrupt")?;
        }
        if element < checkpoint {
            continue;
        }
        checkpoint *= 10;
        let counts = [&sparse, &dense].map(|hll| count(hll).ok());
        if counts[0] != counts[1] {
            return Err(format!("the encodings disagree at {element}: {counts:?}"));
        }
        let error = counts[0].unwrap_or(0).abs_diff(element);
        // Four standard errors of 1.04 / sqrt(m), and at least the rounding.
        let most = (element as f64 * 4.0 * 1.04 / (REGISTERS as f64).sqrt()).ceil() as u64;
        if error > most {
            return Err(format!("an error of {error} at {element}"));
        }
    }
    Ok(())
}

/// Raises one register, if it is lower; returns true if it was.
fn raise(
    bytes: &mut Vec<u8>,
    index: usize,
    value: u8,
    sparse_bytes_max: usize,
) -> Result<bool, Corrupt> {
    let mut from = Place::FIRST;
    raise_from(&mut from, bytes, index, value, sparse_bytes_max)
}

/// Does the same when all registers before the place are done; leaves in `from` the place for a later register.
fn raise_from(
    from: &mut Place,
    bytes: &mut Vec<u8>,
    index: usize,
    value: u8,
    sparse_bytes_max: usize,
) -> Result<bool, Corrupt> {
    if encoding(bytes) == Encoding::Sparse {
        if value <= SPARSE_MAX
            && let Some(changed) = raise_sparse(from, bytes, index, value, sparse_bytes_max)?
        {
            return Ok(changed);
        }
        to_dense(bytes)?;
    }
    Ok(raise_dense(bytes, index, value))
}

/// Does the same among packed registers.
fn raise_dense(bytes: &mut [u8], index: usize, value: u8) -> bool {
    let bit = index * 6;
    let (at, shift) = (HEADER_BYTES + bit / 8, bit % 8);
    // The last register ends with the last byte.
    let high = bytes.get(at + 1).copied().unwrap_or(0);
    let pair = u16::from_le_bytes([bytes[at], high]);
    let changed = (pair >> shift & 63) < u16::from(value);
    if changed {
        let [low, high] = (pair & !(63 << shift) | u16::from(value) << shift).to_le_bytes();
        bytes[at] = low;
        if let Some(byte) = bytes.get_mut(at + 1) {
            *byte = high;
        }
    }
    changed
}

/// Does the same among runs; `None` if they would be too long. Splits runs and joins neighbours just as Redis does,
/// since clients see the bytes.
fn raise_sparse(
    from: &mut Place,
    bytes: &mut Vec<u8>,
    index: usize,
    value: u8,
    sparse_bytes_max: usize,
) -> Result<Option<bool>, Corrupt> {
    // Joining changes runs from the one before on, so the one before that is still there for the next register.
    let (mut place, mut before) = (*from, None);
    let (run, run_bytes) = loop {
        if place.at >= bytes.len() {
            return Err(Corrupt);
        }
        let (run, len) = Run::read(bytes, place.at);
        if index < place.first + run.len {
            break (run, len.min(bytes.len() - place.at));
        }
        *from = before.unwrap_or(*from);
        before = Some(place);
        place.at += len;
        place.first += run.len;
    };
    let (at, first, before) = (place.at, place.first, before.map(|before| before.at));
    if run.value >= value {
        return Ok(Some(false));
    }
    let mut parts = Vec::with_capacity(5);
    Run::new(run.value, index - first).write(&mut parts);
    Run::new(value, 1).write(&mut parts);
    Run::new(run.value, first + run.len - 1 - index).write(&mut parts);
    if parts.len() > run_bytes && bytes.len() + parts.len() - run_bytes > sparse_bytes_max {
        return Ok(None);
    }
    bytes.splice(at..at + run_bytes, parts);
    join_runs(bytes, before.unwrap_or(HEADER_BYTES));
    forget_count(bytes);
    Ok(Some(true))
}

/// Joins equal neighbours among the next five runs.
fn join_runs(bytes: &mut Vec<u8>, mut at: usize) {
    for _ in 0..5 {
        if at >= bytes.len() {
            return;
        }
        let (run, len) = Run::read(bytes, at);
        if run.value > 0 && at + 1 < bytes.len() {
            let (next, _) = Run::read(bytes, at + 1);
            if next.value == run.value && run.len + next.len <= Run::VALUES_MAX {
                bytes.remove(at);
                bytes[at] = Run::new(run.value, run.len + next.len).opcode();
                continue;
            }
        }
        at += len;
    }
}

/// Start of a run, and its first register.
#[derive(Clone, Copy)]
struct Place {
    at: usize,
    first: usize,
}

impl Place {
    const FIRST: Place = Place {
        at: HEADER_BYTES,
        first: 0,
    };
}

/// A run of equal registers. One of no registers is written as nothing.
#[derive(Clone, Copy)]
struct Run {
    value: u8,
    len: usize,
}

impl Run {
    /// The longest that a value's opcode says.
    const VALUES_MAX: usize = 4;
    /// The longest that the short opcode of zeros says.
    const ZEROS_MAX: usize = 64;

    fn new(value: u8, len: usize) -> Run {
        Run { value, len }
    }

    fn zeros(len: usize) -> Run {
        Run::new(0, len)
    }

    /// Returns the run at a place, and how many bytes encode it. A long one that is cut off reads as if a zero byte
    /// followed.
    fn read(bytes: &[u8], at: usize) -> (Run, usize) {
        let opcode = bytes[at];
        match opcode >> 6 {
            0 => (Run::zeros(usize::from(opcode) + 1), 1),
            1 => {
                let low = bytes.get(at + 1).copied().unwrap_or(0);
                let len = usize::from(opcode & 0x3f) << 8 | usize::from(low);
                (Run::zeros(len + 1), 2)
            }
            _ => {
                let value = (opcode >> 2 & 0x1f) + 1;
                (Run::new(value, usize::from(opcode & 3) + 1), 1)
            }
        }
    }

    /// Returns the one byte of a run of values, at most [`Run::VALUES_MAX`] of them.
    fn opcode(self) -> u8 {
        0x80 | (self.value - 1) << 2 | (self.len - 1) as u8
    }

    fn write(self, out: &mut Vec<u8>) {
        match self {
            Run { len: 0, .. } => {}
            Run { value: 1.., .. } => out.push(self.opcode()),
            Run { len, .. } if len <= Run::ZEROS_MAX => out.push((len - 1) as u8),
            Run { len, .. } => {
                out.extend_from_slice(&[0x40 | ((len - 1) >> 8) as u8, (len - 1) as u8])
            }
        }
    }
}

/// The runs of a sparse string: exactly all registers, or [`Corrupt`] at the end.
struct Runs<'a> {
    bytes: &'a [u8],
    at: usize,
    registers: usize,
}

impl<'a> Runs<'a> {
    fn of(bytes: &'a [u8]) -> Runs<'a> {
        Runs {
            bytes,
            at: HEADER_BYTES,
            registers: 0,
        }
    }
}

impl Iterator for Runs<'_> {
    type Item = Result<Run, Corrupt>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.at >= self.bytes.len() {
            let whole = std::mem::replace(&mut self.registers, REGISTERS) == REGISTERS;
            return (!whole).then_some(Err(Corrupt));
        }
        let (run, len) = Run::read(self.bytes, self.at);
        self.at += len;
        self.registers += run.len;
        if self.registers > REGISTERS {
            self.at = self.bytes.len();
            self.registers = REGISTERS;
            return Some(Err(Corrupt));
        }
        Some(Ok(run))
    }
}

/// Returns the estimate from how many registers have each value.
fn estimate(histogram: &[u32; 64]) -> u64 {
    const ALPHA: f64 = 0.721_347_520_444_481_7;
    let m = REGISTERS as f64;
    let mut z = m * tau((m - f64::from(histogram[RUN_BITS + 1])) / m);
    for registers in histogram[1..=RUN_BITS].iter().rev() {
        z += f64::from(*registers);
        z *= 0.5;
    }
    z += m * sigma(f64::from(histogram[0]) / m);
    (ALPHA * m * m / z).round() as u64
}

fn sigma(mut x: f64) -> f64 {
    if x == 1.0 {
        return f64::INFINITY;
    }
    let (mut y, mut z) = (1.0, x);
    loop {
        x *= x;
        let before = z;
        z += x * y;
        y += y;
        if before == z {
            return z;
        }
    }
}

fn tau(mut x: f64) -> f64 {
    if x == 0.0 || x == 1.0 {
        return 0.0;
    }
    let (mut y, mut z) = (1.0, 1.0 - x);
    loop {
        x = x.sqrt();
        let before = z;
        y *= 0.5;
        z -= (1.0 - x) * (1.0 - x) * y;
        if before == z {
            return z / 3.0;
        }
    }
}

/// Returns the hash of an element, with the seed that Redis gives it.
fn hash(bytes: &[u8]) -> u64 {
    murmur::hash_64(bytes, HASH_SEED)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn with_runs(runs: &[u8]) -> Vec<u8> {
        let mut bytes = empty();
        bytes.truncate(HEADER_BYTES);
        bytes.extend_from_slice(runs);
        bytes
    }

    #[test]
    fn the_self_test_passes() {
        assert_eq!(self_test(), Ok(()));
    }

    #[test]
    fn runs_that_overflow_the_registers_are_refused() {
        // CVE-2025-32023: runs of more registers than there are.
        let too_long = with_runs(&[0x7f, 0xff, 0x80]);
        let endless: Vec<u8> = with_runs(&[0x7f; 40_000]);
        let too_short = with_runs(&[0x7f, 0xfe]);
        let cut_off = with_runs(&[0x7f]);
        let none = with_runs(&[]);
        for bytes in [too_long, endless, too_short, cut_off, none] {
            assert!(is_valid(&bytes));
            assert_eq!(count(&bytes), Err(Corrupt));
            assert_eq!(to_dense(&mut bytes.clone()), Err(Corrupt));
            assert_eq!(Registers::new().merge(&bytes), Err(Corrupt));
            for element in 0..200u32 {
                // The runs before the lie may take an element; what matters is that nothing is written elsewhere.
                let _ = add(&mut bytes.clone(), &element.to_le_bytes(), 3000);
            }
        }
    }

    #[test]
    fn headers_that_lie_are_refused() {
        let good = empty();
        assert!(is_valid(&good));
        let mut dense = good.clone();
        to_dense(&mut dense).unwrap();
        assert!(is_valid(&dense));
        for bad in [
            &good[..15],
            &dense[..dense.len() - 1],
            b"",
            b"HYLX\x01\0\0\0\0\0\0\0\0\0\0\0\x7f\xff",
            b"HYLL\x02\0\0\0\0\0\0\0\0\0\0\0\x7f\xff",
        ] {
            assert!(!is_valid(bad));
        }
        dense.push(0);
        assert!(!is_valid(&dense));
    }

    #[test]
    fn both_encodings_hold_the_same_registers() {
        let mut rng = fastrand::Rng::with_seed(7);
        for _ in 0..20 {
            let (mut sparse, mut dense, mut plain) = (empty(), empty(), Registers::new());
            to_dense(&mut dense).unwrap();
            for _ in 0..1000 {
                let (index, value) = (rng.usize(..REGISTERS), rng.u8(1..=32));
                let lower = plain.0[index] < value;
                plain.0[index] = plain.0[index].max(value);
                assert_eq!(raise(&mut sparse, index, value, 100_000), Ok(lower));
                assert_eq!(raise(&mut dense, index, value, 0), Ok(lower));
            }
            assert_eq!(encoding(&sparse), Encoding::Sparse);
            let mut found = Registers::new();
            found.merge(&dense).unwrap();
            assert!(found.iter().eq(plain.iter()));
            assert_eq!(count(&sparse), Ok(plain.count()));
            assert_eq!(count(&dense), Ok(plain.count()));
            to_dense(&mut sparse).unwrap();
            assert_eq!(sparse[HEADER_BYTES..], dense[HEADER_BYTES..]);
        }
    }

    #[test]
    fn registers_raised_together_are_written_as_one_by_one() {
        let mut rng = fastrand::Rng::with_seed(11);
        for round in 0..400 {
            let mut one_by_one = empty();
            for _ in 0..rng.usize(..200) {
                let index = rng.usize(..REGISTERS >> (round % 9));
                raise(&mut one_by_one, index, rng.u8(1..=3), 3000).unwrap();
            }
            let mut together = one_by_one.clone();
            let mut wanted = Registers::new();
            for _ in 0..rng.usize(..300) {
                wanted.0[rng.usize(..REGISTERS >> (round % 9))] =
                    rng.u8(1..=4 + (round / 16) as u8);
            }
            for (index, register) in wanted.iter().enumerate().filter(|(_, r)| *r > 0) {
                raise(&mut one_by_one, index, register, 600).unwrap();
            }
            wanted.raise(&mut together, 600).unwrap();
            assert_eq!(together, one_by_one, "round {round}");
        }
    }

    #[test]
    fn a_sparse_one_becomes_dense_at_its_limit() {
        let mut bytes = empty();
        while encoding(&bytes) == Encoding::Sparse {
            assert!(bytes.len() <= 100);
            let element = fastrand::u64(..).to_le_bytes();
            add(&mut bytes, &element, 100).unwrap();
        }
        assert_eq!(bytes.len(), DENSE_BYTES);
        let mut large = empty();
        raise(&mut large, 5, 33, 3000).unwrap();
        assert_eq!(encoding(&large), Encoding::Dense);
    }
}
