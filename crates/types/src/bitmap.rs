//! Strings as rows of bits: counting, searching, combining, and integers of any width inside them. Bit 0 is the
//! highest bit of the first byte. Pure functions over byte slices; they must not know keys, commands or replies.
//!
//! The long loops work on words of 64 bits; the compiler turns them into vector code.

use std::ops::Range;

/// The operation that [`combine`] applies to several strings.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Combination {
    /// Bits set in all.
    And,
    /// Bits set in any.
    Or,
    /// Bits set in an odd number of them.
    Xor,
    /// Bits not set in the one.
    Not,
    /// Bits set in the first and in no other.
    Diff,
    /// Bits not set in the first, and set in any other.
    Diff1,
    /// Bits set in the first, and in any other.
    AndOr,
    /// Bits set in exactly one.
    One,
}

/// Returns the number of bits that are set.
pub fn count(bytes: &[u8]) -> u64 {
    redline_lanes::ones(bytes)
}

/// Returns the number of set bits of a range. The range lies within the string.
pub fn count_in(bytes: &[u8], bits: Range<u64>) -> u64 {
    if bits.is_empty() {
        return 0;
    }
    let (first, last) = (byte_of(bits.start), byte_of(bits.end - 1));
    let outside = bytes[first] & !head_mask(bits.start) | {
        // Of a range inside one byte both ends are cut off at once.
        if first == last {
            bytes[first] & !tail_mask(bits.end)
        } else {
            0
        }
    };
    let mut ones = count(&bytes[first..=last]) - u64::from(outside.count_ones());
    if first != last {
        ones -= u64::from((bytes[last] & !tail_mask(bits.end)).count_ones());
    }
    ones
}

/// Returns the first bit of a range that is equal to the wanted one. The range lies within the string.
pub fn position(bytes: &[u8], bits: Range<u64>, set: bool) -> Option<u64> {
    if bits.is_empty() {
        return None;
    }
    // The search is for a one in the bytes, or in their complement.
    let flip = if set { 0 } else { 0xff };
    let (first, last) = (byte_of(bits.start), byte_of(bits.end - 1));
    let hit = |at: usize, byte: u8| {
        let found = at as u64 * 8 + u64::from(byte.leading_zeros());
        (byte != 0 && found < bits.end).then_some(found)
    };
    let head = (bytes[first] ^ flip) & head_mask(bits.start);
    if head != 0 || first == last {
        return hit(first, head);
    }
    let body = &bytes[first + 1..=last];
    let same = u64::from_ne_bytes([flip; 8]);
    let (words, _) = body.as_chunks::<8>();
    let skipped = words
        .iter()
        .take_while(|word| u64::from_ne_bytes(**word) == same)
        .count()
        * 8;
    let at = body[skipped..].iter().position(|byte| *byte != flip)?;
    let at = first + 1 + skipped + at;
    hit(at, bytes[at] ^ flip)
}

/// Returns the combination of several strings; shorter ones count as padded with zeros to the longest. `Not` takes the
/// first alone. Empty without strings.
pub fn combine(how: Combination, strings: &[&[u8]]) -> Vec<u8> {
    let len = strings.iter().map(|s| s.len()).max().unwrap_or(0);
    let Some((first, others)) = strings.split_first() else {
        return Vec::new();
    };
    let mut out = vec![0; len];
    out[..first.len()].copy_from_slice(first);
    match how {
        Combination::And => {
            for other in others {
                zip(&mut out, other, |a, b| a & b);
                out[other.len()..].fill(0);
            }
        }
        Combination::Or => others
            .iter()
            .for_each(|other| zip(&mut out, other, |a, b| a | b)),
        Combination::Xor => others
            .iter()
            .for_each(|other| zip(&mut out, other, |a, b| a ^ b)),
        Combination::Not => out.iter_mut().for_each(|byte| *byte = !*byte),
        Combination::Diff => others
            .iter()
            .for_each(|other| zip(&mut out, other, |a, b| a & !b)),
        Combination::Diff1 | Combination::AndOr => {
            let mut any = combine(Combination::Or, others);
            any.resize(len, 0);
            if how == Combination::Diff1 {
                zip(&mut out, &any, |a, b| !a & b);
            } else {
                zip(&mut out, &any, |a, b| a & b);
            }
        }
        Combination::One => {
            let mut twice = vec![0; len];
            for other in others {
                zip_three(&mut twice, &out, other, |twice, once, b| twice | once & b);
                zip(&mut out, other, |once, b| once ^ b);
            }
            zip(&mut out, &twice, |once, twice| once & !twice);
        }
    }
    out
}

/// Handling of an integer that does not fit its field.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Overflow {
    /// The high bits are lost.
    Wrap,
    /// It becomes the nearest that fits.
    Saturate,
    /// Nothing is written.
    Fail,
}

/// The type of an integer inside a string.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Field {
    signed: bool,
    bits: u32,
}

impl Field {
    /// Returns a signed field of 1 to 64 bits or an unsigned one of 1 to 63; `None` for other widths.
    pub fn new(signed: bool, bits: i64) -> Option<Field> {
        let most = if signed { 64 } else { 63 };
        (1..=most).contains(&bits).then_some(Field {
            signed,
            bits: bits as u32,
        })
    }

    /// Returns its width in bits.
    pub fn bits(self) -> u32 {
        self.bits
    }

    /// Returns the integer at a bit offset. Bits beyond the end of the string are zeros.
    pub fn read(self, bytes: &[u8], offset: u64) -> i64 {
        let window = window(bytes, offset);
        let raw = (window << (offset % 8)) >> (128 - self.bits);
        if self.signed {
            let unused = 64 - self.bits;
            ((raw as u64) << unused) as i64 >> unused
        } else {
            raw as i64
        }
    }

    /// Writes the low bits of an integer at a bit offset. The string reaches to the end of the field.
    pub fn write(self, bytes: &mut [u8], offset: u64, value: i64) {
        let shift = 128 - self.bits - (offset % 8) as u32;
        let ones = u128::MAX >> (128 - self.bits);
        let window = window(bytes, offset) & !(ones << shift) | (value as u128 & ones) << shift;
        let start = byte_of(offset);
        let len = (bytes.len() - start).min(16);
        bytes[start..start + len].copy_from_slice(&window.to_be_bytes()[..len]);
    }

    /// Returns the integer that a field of this type holds after `value + by`; `None` if it does not fit and `overflow`
    /// is [`Overflow::Fail`]. For an unsigned field, `value` is the unsigned integer of the same bits.
    pub fn add(self, value: i64, by: i64, overflow: Overflow) -> Option<i64> {
        let ones = u64::MAX >> (64 - self.bits);
        let (value, min, max) = if self.signed {
            let max = (ones >> 1) as i128;
            (i128::from(value), -max - 1, max)
        } else {
            (i128::from(value as u64), 0, i128::from(ones))
        };
        let sum = value + i128::from(by);
        if (min..=max).contains(&sum) {
            return Some(sum as i64);
        }
        match overflow {
            Overflow::Fail => None,
            Overflow::Saturate => Some(sum.clamp(min, max) as i64),
            Overflow::Wrap if self.signed => {
                let unused = 64 - self.bits;
                Some((sum as i64) << unused >> unused)
            }
            Overflow::Wrap => Some((sum as u64 & ones) as i64),
        }
    }
}

/// Returns sixteen bytes from the byte of a bit offset on, zeros beyond the end.
fn window(bytes: &[u8], offset: u64) -> u128 {
    let tail = bytes.get(byte_of(offset)..).unwrap_or(&[]);
    let mut window = [0; 16];
    let len = tail.len().min(16);
    window[..len].copy_from_slice(&tail[..len]);
    u128::from_be_bytes(window)
}

fn byte_of(bit: u64) -> usize {
    usize::try_from(bit / 8).unwrap_or(usize::MAX)
}

/// Returns the bits of the first byte that belong to a range from this bit on.
fn head_mask(start: u64) -> u8 {
    0xff >> (start % 8)
}

/// Returns the bits of the last byte that belong to a range that ends before this bit.
fn tail_mask(end: u64) -> u8 {
    match end % 8 {
        0 => 0xff,
        bits => !(0xff >> bits),
    }
}

fn zip(out: &mut [u8], other: &[u8], how: impl Fn(u64, u64) -> u64) {
    let (words, rest) = out[..other.len()].as_chunks_mut::<8>();
    let (others, other_rest) = other.as_chunks::<8>();
    for (word, other) in words.iter_mut().zip(others) {
        *word = how(u64::from_ne_bytes(*word), u64::from_ne_bytes(*other)).to_ne_bytes();
    }
    for (byte, other) in rest.iter_mut().zip(other_rest) {
        *byte = how(u64::from(*byte), u64::from(*other)) as u8;
    }
}

fn zip_three(out: &mut [u8], a: &[u8], b: &[u8], how: impl Fn(u64, u64, u64) -> u64) {
    let len = b.len();
    let (words, rest) = out[..len].as_chunks_mut::<8>();
    let ((a, a_rest), (b, b_rest)) = (a[..len].as_chunks::<8>(), b.as_chunks::<8>());
    let word = |bytes: [u8; 8]| u64::from_ne_bytes(bytes);
    for ((out, a), b) in words.iter_mut().zip(a).zip(b) {
        *out = how(word(*out), word(*a), word(*b)).to_ne_bytes();
    }
    for ((out, a), b) in rest.iter_mut().zip(a_rest).zip(b_rest) {
        *out = how(u64::from(*out), u64::from(*a), u64::from(*b)) as u8;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bit(bytes: &[u8], at: u64) -> bool {
        bytes
            .get((at / 8) as usize)
            .is_some_and(|byte| byte >> (7 - at % 8) & 1 == 1)
    }

    #[test]
    fn counting_and_searching_agree_with_one_bit_at_a_time() {
        let mut rng = fastrand::Rng::with_seed(1);
        for _ in 0..2000 {
            let len = rng.usize(1..40);
            let same = [0, 0xff][rng.usize(..2)];
            let mut bytes = vec![same; len];
            for _ in 0..rng.usize(..4) {
                bytes[rng.usize(..len)] = rng.u8(..);
            }
            let bits = len as u64 * 8;
            let start = rng.u64(..bits);
            let range = start..rng.u64(start..=bits);
            let ones = range.clone().filter(|at| bit(&bytes, *at)).count() as u64;
            assert_eq!(count_in(&bytes, range.clone()), ones, "{bytes:?} {range:?}");
            for set in [false, true] {
                let first = range.clone().find(|at| bit(&bytes, *at) == set);
                assert_eq!(
                    position(&bytes, range.clone(), set),
                    first,
                    "{bytes:?} {range:?} {set}"
                );
            }
        }
    }

    #[test]
    fn combinations_agree_with_one_bit_at_a_time() {
        use Combination::*;
        let mut rng = fastrand::Rng::with_seed(2);
        for _ in 0..500 {
            let strings: Vec<Vec<u8>> = (0..rng.usize(2..5))
                .map(|_| (0..rng.usize(..30)).map(|_| rng.u8(..)).collect())
                .collect();
            let slices: Vec<&[u8]> = strings.iter().map(|s| &s[..]).collect();
            let len = slices.iter().map(|s| s.len()).max().unwrap();
            for how in [And, Or, Xor, Diff, Diff1, AndOr, One] {
                let got = combine(how, &slices);
                assert_eq!(got.len(), len);
                for at in 0..len as u64 * 8 {
                    let first = bit(slices[0], at);
                    let ones = slices.iter().filter(|s| bit(s, at)).count();
                    let others = ones > usize::from(first);
                    let expected = match how {
                        And => ones == slices.len(),
                        Or => ones > 0,
                        Xor => ones % 2 == 1,
                        Diff => first && !others,
                        Diff1 => !first && others,
                        AndOr => first && others,
                        One => ones == 1,
                        Not => unreachable!("not in the list"),
                    };
                    assert_eq!(bit(&got, at), expected, "{how:?} {strings:?} at {at}");
                }
            }
            assert_eq!(
                combine(Not, &slices[..1]),
                slices[0].iter().map(|b| !b).collect::<Vec<u8>>()
            );
        }
    }

    #[test]
    fn fields_read_what_was_written_and_leave_the_rest() {
        let mut rng = fastrand::Rng::with_seed(3);
        for _ in 0..3000 {
            let signed = rng.bool();
            let field = Field::new(signed, rng.i64(1..=if signed { 64 } else { 63 })).unwrap();
            let offset = rng.u64(..70);
            let len = (offset + u64::from(field.bits())).div_ceil(8) as usize + rng.usize(..3);
            let mut bytes: Vec<u8> = (0..len).map(|_| rng.u8(..)).collect();
            let before = bytes.clone();
            let value = field.add(rng.i64(..), 0, Overflow::Wrap).unwrap();
            field.write(&mut bytes, offset, value);
            assert_eq!(field.read(&bytes, offset), value);
            for at in 0..len as u64 * 8 {
                let inside = (offset..offset + u64::from(field.bits())).contains(&at);
                assert!(inside || bit(&bytes, at) == bit(&before, at));
            }
        }
    }

    #[test]
    fn sums_that_do_not_fit() {
        use Overflow::*;
        let (i8, u8) = (Field::new(true, 8).unwrap(), Field::new(false, 8).unwrap());
        assert_eq!(i8.add(127, 1, Wrap), Some(-128));
        assert_eq!(i8.add(127, 1, Saturate), Some(127));
        assert_eq!(i8.add(-128, -1, Saturate), Some(-128));
        assert_eq!(i8.add(-128, -1, Fail), None);
        assert_eq!(u8.add(255, 2, Wrap), Some(1));
        assert_eq!(u8.add(0, -1, Wrap), Some(255));
        assert_eq!(u8.add(0, -1, Saturate), Some(0));
        assert_eq!(u8.add(-1, 0, Saturate), Some(255));
        let i64 = Field::new(true, 64).unwrap();
        assert_eq!(i64.add(i64::MAX, 1, Wrap), Some(i64::MIN));
        assert_eq!(i64.add(i64::MIN, -1, Saturate), Some(i64::MIN));
        assert_eq!(Field::new(false, 64), None);
        assert_eq!(Field::new(true, 0), None);
    }
}
