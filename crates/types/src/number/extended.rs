//! Arithmetic in the 80-bit extended format of x87, in integers: INCRBYFLOAT and HINCRBYFLOAT calculate with it. Must
//! not know commands.
//!
//! Clients see seventeen decimals of these sums, so any other arithmetic shows: in doubles, 0.1 + 0.2
//! would print as 0.30000000000000004. A value here is a 64-bit mantissa and a binary exponent.
//! Parsing, adding and formatting are each exact up to one rounding, to nearest and ties to even, as
//! the C library and the processor do it. Texts of up to 19 digits and small exponents, and values
//! below 2^128, never leave 128-bit integers; the rest goes through [`Natural`], slow but exact.

use super::Digits;

/// The exponent of the least value: 2^-16445.
const EXPONENT_MIN: i32 = -16_445;
/// Values reach up to 2^16384, not included.
const EXPONENT_END: i32 = 16_384;
/// Texts of this length and more are refused.
const TEXT_BYTES_END: usize = 5 * 1024;
/// Decimals in the text of a value, before trailing zeros go.
const DECIMALS: u32 = 17;
/// The largest power of ten in 64 bits.
const CHUNK: u64 = 10_u64.pow(19);
const CHUNK_DIGITS: usize = 19;
/// The largest power of five in 64 bits.
const SMALL_POWER_MAX: u32 = 27;

/// A number in the extended format; never "not a number".
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Extended {
    negative: bool,
    size: Size,
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Size {
    /// `mantissa` times two to the `exponent`; the top bit is set but for zero and the least values.
    Finite {
        mantissa: u64,
        exponent: i32,
    },
    Infinite,
}

impl Extended {
    /// Parses decimal or hexadecimal text, or "inf" and "infinity" in any case, without spaces. None if it is anything
    /// else, too large, or so small that it would become zero.
    pub fn parse(text: &[u8]) -> Option<Extended> {
        if text.len() >= TEXT_BYTES_END {
            return None;
        }
        let (negative, digits) = Digits::split(text)?;
        let size = match digits {
            Digits::Infinite => Size::Infinite,
            Digits::Hexadecimal(bits) => {
                if bits.mantissa == 0 {
                    Size::zero()
                } else {
                    Size::rounded(bits.mantissa, bits.inexact, bits.exponent).in_range()?
                }
            }
            Digits::Decimal {
                whole,
                fraction,
                exponent,
            } => {
                let first = whole
                    .iter()
                    .chain(fraction)
                    .position(|&digit| digit != b'0');
                match first {
                    None => Size::zero(),
                    Some(_) => Size::of_decimal(whole, fraction, exponent)?.in_range()?,
                }
            }
        };
        Some(Extended { negative, size })
    }

    /// Returns true if this is not an infinity: HINCRBYFLOAT refuses one before it looks at the hash.
    pub fn is_finite(self) -> bool {
        self.size != Size::Infinite
    }

    /// Returns the sum; none if it is infinite or not a number.
    pub fn checked_add(self, other: Extended) -> Option<Extended> {
        let (
            Size::Finite {
                mantissa: a,
                exponent: a_exponent,
            },
            Size::Finite {
                mantissa: b,
                exponent: b_exponent,
            },
        ) = (self.size, other.size)
        else {
            return None;
        };
        if a == 0 {
            return Some(other);
        }
        if b == 0 {
            return Some(self);
        }
        if a_exponent < b_exponent {
            return other.checked_add(self);
        }
        // 127 bits of the larger; the bits of the smaller below them only matter as "something".
        let shift = (a_exponent - b_exponent).min(63);
        let exponent = a_exponent - shift;
        let drop = (exponent - b_exponent).min(64) as u32;
        let larger = u128::from(a) << shift;
        let smaller = u128::from(b) >> drop;
        let inexact = smaller << drop != u128::from(b);
        let (negative, sum, inexact) = if self.negative == other.negative {
            (self.negative, larger + smaller, inexact)
        } else if larger >= smaller {
            // A dropped part of the smaller takes a little away: one less, and something above that.
            (
                self.negative,
                larger - smaller - u128::from(inexact),
                inexact,
            )
        } else {
            (other.negative, smaller - larger, inexact)
        };
        let size = if sum == 0 {
            Size::zero()
        } else {
            Size::rounded(sum, inexact, i64::from(exponent))
        };
        let negative = negative && sum != 0;
        (size != Size::Infinite).then_some(Extended { negative, size })
    }

    /// Appends the text: plain decimals, at most seventeen, without trailing zeros.
    pub fn format(self, out: &mut Vec<u8>) {
        let Size::Finite { mantissa, exponent } = self.size else {
            out.extend_from_slice(if self.negative { b"-inf" } else { b"inf" });
            return;
        };
        let (whole, decimals) = if exponent >= 0 {
            if exponent > 64 {
                if self.negative {
                    out.push(b'-');
                }
                return Natural::from(mantissa)
                    .shifted(exponent as usize)
                    .format(out);
            }
            (u128::from(mantissa) << exponent, 0)
        } else {
            split_at_point(mantissa, exponent.unsigned_abs())
        };
        if self.negative && (whole, decimals) != (0, 0) {
            out.push(b'-');
        }
        out.extend_from_slice(itoa::Buffer::new().format(whole).as_bytes());
        if decimals != 0 {
            let mut digits = [b'0'; DECIMALS as usize];
            let mut rest = decimals;
            for digit in digits.iter_mut().rev() {
                *digit += (rest % 10) as u8;
                rest /= 10;
            }
            let used = digits
                .iter()
                .rposition(|&digit| digit != b'0')
                .map_or(0, |last| last + 1);
            out.push(b'.');
            out.extend_from_slice(&digits[..used]);
        }
    }
}

/// Returns the whole part and seventeen decimals of `mantissa` / 2^`shift`, rounded to nearest, ties to even.
fn split_at_point(mantissa: u64, shift: u32) -> (u128, u64) {
    const ONE: u64 = 10_u64.pow(DECIMALS);
    if shift > 127 {
        // Less than half of the last decimal.
        return (0, 0);
    }
    let whole = u128::from(mantissa) >> shift;
    let fraction = u128::from(mantissa) & ((1 << shift) - 1);
    // At most 64 + 57 bits.
    let scaled = fraction * u128::from(ONE);
    let (floor, rest, half) = (
        scaled >> shift,
        scaled & ((1 << shift) - 1),
        1 << (shift - 1),
    );
    let up = rest > half || (rest == half && floor & 1 == 1);
    let decimals = floor as u64 + u64::from(up);
    if decimals == ONE {
        (whole + 1, 0)
    } else {
        (whole, decimals)
    }
}

impl Size {
    fn zero() -> Size {
        Size::Finite {
            mantissa: 0,
            exponent: 0,
        }
    }

    /// Returns none for a text that parsing rounded to nothing or to infinity.
    fn in_range(self) -> Option<Size> {
        match self {
            Size::Infinite | Size::Finite { mantissa: 0, .. } => None,
            size => Some(size),
        }
    }

    /// Returns the nearest value to `mantissa` (and, if inexact, something less than one above it) times two
    /// to the `exponent`.
    fn rounded(mantissa: u128, inexact: bool, exponent: i64) -> Size {
        let (mantissa, exponent) =
            super::round(mantissa, inexact, exponent, 64, i64::from(EXPONENT_MIN));
        if exponent + 64 > i64::from(EXPONENT_END) {
            return Size::Infinite;
        }
        Size::Finite {
            mantissa,
            exponent: exponent as i32,
        }
    }

    /// Returns a decimal text that is not zero: `whole`.`fraction` times ten to the `exponent`.
    fn of_decimal(whole: &[u8], fraction: &[u8], exponent: i64) -> Option<Size> {
        let digits = whole.len() + fraction.len();
        let power = exponent.saturating_sub(fraction.len() as i64);
        let digit_iter = || whole.iter().chain(fraction).map(|digit| digit - b'0');
        if digits <= CHUNK_DIGITS && power.unsigned_abs() <= u64::from(SMALL_POWER_MAX) {
            let value = digit_iter().fold(0, |value, digit| value * 10 + u64::from(digit));
            return Some(Size::of_small(value, power as i32));
        }
        // The value lies below ten to the power of digits + power.
        if power > 5000 || power.saturating_add(digits as i64) < -5000 {
            return None;
        }
        let mut value = Natural::default();
        for digit in digit_iter() {
            value.multiply_add(10, u64::from(digit));
        }
        let five_to = |power: u64| {
            let mut product = Natural::from(1);
            (0..power).for_each(|_| product.multiply_add(5, 0));
            product
        };
        Some(if power >= 0 {
            let (mantissa, inexact, exponent) = value.times(&five_to(power as u64)).top_bits();
            Size::rounded(mantissa, inexact, exponent + power)
        } else {
            let (mantissa, inexact, exponent) = value.divided_by(&five_to(power.unsigned_abs()));
            Size::rounded(mantissa, inexact, exponent + power)
        })
    }

    /// Returns `value` times ten to a power of at most [`SMALL_POWER_MAX`] either way.
    fn of_small(value: u64, power: i32) -> Size {
        let five = u128::from(5_u64.pow(power.unsigned_abs()));
        if power >= 0 {
            return Size::rounded(u128::from(value) * five, false, i64::from(power));
        }
        let shift = 64 + value.leading_zeros();
        // The top bit is set, so the quotient has 65 bits and more.
        let scaled = u128::from(value) << shift;
        let exponent = i64::from(power) - i64::from(shift);
        Size::rounded(scaled / five, !scaled.is_multiple_of(five), exponent)
    }
}

/// A natural number of any size, least word first, no zero words on top: just enough for the rare
/// texts that 128 bits cannot hold.
#[derive(Clone, Debug, Default, PartialEq)]
struct Natural {
    words: Vec<u64>,
}

impl From<u64> for Natural {
    fn from(word: u64) -> Natural {
        Natural {
            words: if word == 0 { vec![] } else { vec![word] },
        }
    }
}

impl Natural {
    fn bits(&self) -> usize {
        self.words.last().map_or(0, |top| {
            self.words.len() * 64 - top.leading_zeros() as usize
        })
    }

    fn trim(&mut self) {
        while self.words.last() == Some(&0) {
            self.words.pop();
        }
    }

    fn multiply_add(&mut self, factor: u64, summand: u64) {
        let mut carry = u128::from(summand);
        for word in &mut self.words {
            let sum = u128::from(*word) * u128::from(factor) + carry;
            *word = sum as u64;
            carry = sum >> 64;
        }
        if carry != 0 {
            self.words.push(carry as u64);
        }
    }

    fn times(&self, other: &Natural) -> Natural {
        let mut words = vec![0u64; self.words.len() + other.words.len()];
        for (i, &a) in self.words.iter().enumerate() {
            let mut carry = 0u128;
            for (j, &b) in other.words.iter().enumerate() {
                let sum = u128::from(words[i + j]) + u128::from(a) * u128::from(b) + carry;
                words[i + j] = sum as u64;
                carry = sum >> 64;
            }
            words[i + other.words.len()] = carry as u64;
        }
        let mut product = Natural { words };
        product.trim();
        product
    }

    fn shifted(&self, bits: usize) -> Natural {
        let mut words = vec![0; bits / 64];
        let bits = bits % 64;
        let mut carry = 0;
        for &word in &self.words {
            words.push(word << bits | carry);
            carry = if bits == 0 { 0 } else { word >> (64 - bits) };
        }
        words.push(carry);
        let mut shifted = Natural { words };
        shifted.trim();
        shifted
    }

    fn is_at_least(&self, other: &Natural) -> bool {
        let (a, b) = (&self.words, &other.words);
        a.len()
            .cmp(&b.len())
            .then_with(|| a.iter().rev().cmp(b.iter().rev()))
            .is_ge()
    }

    /// Subtracts a number that is not larger.
    fn subtract(&mut self, other: &Natural) {
        let mut borrow = false;
        let others = other.words.iter().copied().chain(std::iter::repeat(0));
        for (word, other) in self.words.iter_mut().zip(others) {
            let (difference, under) = word.overflowing_sub(other);
            let (difference, under_too) = difference.overflowing_sub(u64::from(borrow));
            *word = difference;
            borrow = under || under_too;
        }
        self.trim();
    }

    /// Returns the first 128 bits, whether something not zero follows, and the exponent they stand for.
    fn top_bits(&self) -> (u128, bool, i64) {
        let word = |back: usize| {
            self.words
                .len()
                .checked_sub(back)
                .map_or(0, |i| self.words[i])
        };
        let exponent = 64 * (self.words.len() as i64 - 2);
        let inexact = self.words.iter().rev().skip(2).any(|&word| word != 0);
        let mantissa = u128::from(word(1)) << 64 | u128::from(word(2));
        (mantissa, inexact, exponent)
    }

    /// Returns the first 66 bits or more of the quotient, as [`Natural::top_bits`]: the long division of school, one
    /// binary digit at a time.
    fn divided_by(&self, divisor: &Natural) -> (u128, bool, i64) {
        const QUOTIENT_BITS: usize = 66;
        // Scale so that the quotient lies between 2^65 and 2^67.
        let scale = (divisor.bits() + QUOTIENT_BITS) as i64 - self.bits() as i64;
        let mut rest = self.shifted(scale.max(0) as usize);
        let divisor = divisor.shifted((-scale).max(0) as usize);
        let mut quotient = 0u128;
        for bit in (0..=QUOTIENT_BITS).rev() {
            let part = divisor.shifted(bit);
            if rest.is_at_least(&part) {
                rest.subtract(&part);
                quotient |= 1 << bit;
            }
        }
        (quotient, !rest.words.is_empty(), -scale)
    }

    fn format(mut self, out: &mut Vec<u8>) {
        let mut chunks = Vec::new();
        while !self.words.is_empty() {
            let mut rest = 0u128;
            for word in self.words.iter_mut().rev() {
                let dividend = rest << 64 | u128::from(*word);
                *word = (dividend / u128::from(CHUNK)) as u64;
                rest = dividend % u128::from(CHUNK);
            }
            self.trim();
            chunks.push(rest as u64);
        }
        let mut text = itoa::Buffer::new();
        for (i, &chunk) in chunks.iter().rev().enumerate() {
            let digits = text.format(chunk).as_bytes();
            if i > 0 {
                out.resize(out.len() + CHUNK_DIGITS - digits.len(), b'0');
            }
            out.extend_from_slice(digits);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(value: Extended) -> String {
        let mut out = Vec::new();
        value.format(&mut out);
        String::from_utf8(out).unwrap()
    }

    fn parse(text: &str) -> Option<Extended> {
        Extended::parse(text.as_bytes())
    }

    fn sum(a: &str, b: &str) -> String {
        text(parse(a).unwrap().checked_add(parse(b).unwrap()).unwrap())
    }

    // The expected texts of this file were captured from Redis 8.2.3 on x86-64.

    #[test]
    fn ordinary_sums_have_the_digits_that_people_expect() {
        for (a, b, expected) in [
            ("3.0e3", "200", "3200"),
            ("5.0e3", "2.0e2", "5200"),
            ("10.50", "0.1", "10.6"),
            ("10.6", "-5", "5.6"),
            ("0.1", "0.2", "0.3"),
            ("0.3", "-0.3", "0"),
            ("-1", "-1", "-2"),
            ("1.1", "-3.3", "-2.2"),
            ("0", "-1e-30", "0"),
            ("1e18", "0.5", "1000000000000000000.5"),
            ("1e20", "0.5", "100000000000000000000"),
            ("18446744073709551615", "1", "18446744073709551616"),
            ("0x1.fffffffffffff7p0", "0", "1.99999999999999988"),
            ("0x1p-2", ".5", "0.75"),
        ] {
            assert_eq!(sum(a, b), expected, "{a} + {b}");
        }
    }

    #[test]
    fn exact_digits_of_large_and_long_values() {
        assert_eq!(sum("1e30", "0"), "1000000000000000000024696061952");
        assert_eq!(
            sum("0x1p130", "0"),
            "1361129467683753853853498429727072845824",
        );
        assert_eq!(
            sum("0.12345678901234567890123456789", "0"),
            "0.12345678901234568"
        );
        assert_eq!(
            sum("123456789012345678901234567890e-30", "1"),
            "1.12345678901234568"
        );
        let long = format!("0.{}1", "0".repeat(4000));
        assert_eq!(sum(&long, "2"), "2");
        let ones = "1".repeat(40);
        assert_eq!(sum(&ones, "0").len(), 40);
    }

    #[test]
    fn what_is_no_number_or_out_of_range_is_refused() {
        for no in [
            "",
            " 1",
            "1 ",
            "-",
            "+",
            ".",
            "e5",
            "1e",
            "1e+",
            "0x",
            "0x1p",
            "0x.p1",
            "nan",
            "-nan",
            "infin",
            "1_0",
            "1,5",
            "1.0.0",
            "--1",
            "1\0",
            "1e5000",
            "1e4933",
            "1e-5000",
            "1e99999999999999999999999",
            "1e-99999999999999999999999",
            "0x1p20000",
            "0x1p-20000",
        ] {
            assert_eq!(parse(no), None, "{no}");
        }
        assert!(parse("1e4932").is_some());
        assert!(parse("1e-4950").is_some());
        assert_eq!(parse(&"1".repeat(5120)), None);
        let (inf, minus_inf) = (parse("inf").unwrap(), parse("-INFINITY").unwrap());
        assert!(!inf.is_finite() && !minus_inf.is_finite());
        assert_eq!(inf.checked_add(minus_inf), None);
        assert_eq!(inf.checked_add(parse("1").unwrap()), None);
        let max = parse("1.18973149535723176502e4932").unwrap();
        assert!(max.is_finite());
        assert_eq!(max.checked_add(max), None);
        assert_eq!(max.checked_add(parse("1").unwrap()), Some(max));
    }

    #[test]
    fn the_short_way_agrees_with_the_long_one() {
        let mut random = fastrand::Rng::with_seed(3);
        for _ in 0..20_000 {
            let value = random.u64(..CHUNK) >> random.u32(..63);
            let power = random.i32(-27..=27);
            let short = Size::of_small(value.max(1), power);
            let mut long = Natural::from(value.max(1));
            let mut five = Natural::from(1);
            (0..power.unsigned_abs()).for_each(|_| five.multiply_add(5, 0));
            let (mantissa, inexact, exponent) = if power >= 0 {
                long = long.times(&five);
                long.top_bits()
            } else {
                long.divided_by(&five)
            };
            assert_eq!(
                short,
                Size::rounded(mantissa, inexact, exponent + i64::from(power))
            );
        }
    }

    #[test]
    fn sums_that_doubles_hold_exactly_agree_with_doubles() {
        let mut random = fastrand::Rng::with_seed(5);
        let decimal = |value: f64| {
            let text = format!("{value:.17}");
            let text = text.trim_end_matches('0').trim_end_matches('.');
            if text == "-0" {
                "0".to_owned()
            } else {
                text.to_owned()
            }
        };
        for _ in 0..20_000 {
            let unit = 0.5f64.powi(random.i32(0..17));
            let any =
                |random: &mut fastrand::Rng| random.i64(-1 << 50..1 << 50) >> random.u32(..50);
            let (a, b) = (
                any(&mut random) as f64 * unit,
                any(&mut random) as f64 * unit,
            );
            assert_eq!(sum(&decimal(a), &decimal(b)), decimal(a + b));
        }
    }
}
