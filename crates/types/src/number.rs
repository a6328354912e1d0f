//! Numbers as text, with the strictness that clients rely on. Must not know the callers, or the error of a refusal.

mod extended;

pub use extended::Extended;

/// Room for the decimal digits of an integer, so that no allocation is needed to see it as bytes.
#[derive(Clone, Copy)]
pub struct IntBuf(itoa::Buffer);

impl IntBuf {
    /// Returns an empty buffer; cheap, nothing is written before use.
    #[inline]
    pub fn new() -> IntBuf {
        IntBuf(itoa::Buffer::new())
    }

    /// Returns the decimal text of an integer.
    #[inline]
    pub fn format(&mut self, value: i64) -> &[u8] {
        self.0.format(value).as_bytes()
    }
}

impl Default for IntBuf {
    fn default() -> IntBuf {
        IntBuf::new()
    }
}

/// The decimal text of an integer, by value: for callers that cannot lend an [`IntBuf`].
#[derive(Clone, Copy)]
pub struct IntText {
    bytes: [u8; I64_TEXT_MAX],
    len: u8,
}

impl IntText {
    /// Returns the text of `value`.
    #[inline]
    pub fn new(value: i64) -> IntText {
        let mut buffer = itoa::Buffer::new();
        let text = buffer.format(value).as_bytes();
        let mut bytes = [0; I64_TEXT_MAX];
        bytes[..text.len()].copy_from_slice(text);
        IntText {
            bytes,
            len: text.len() as u8,
        }
    }
}

impl AsRef<[u8]> for IntText {
    #[inline]
    fn as_ref(&self) -> &[u8] {
        &self.bytes[..usize::from(self.len)]
    }
}

/// The longest text of an `i64`, "-9223372036854775808".
pub const I64_TEXT_MAX: usize = 20;

/// Parses the one canonical text of an integer: no spaces, no plus sign, no leading zeros, no "-0". [`IntBuf::format`]
/// gives back each accepted text byte for byte.
#[inline]
pub fn parse_i64(text: &[u8]) -> Option<i64> {
    let (negative, digits) = match text {
        [b'-', rest @ ..] => (true, rest),
        _ => (false, text),
    };
    match digits {
        [b'0'] if !negative => return Some(0),
        [b'1'..=b'9', ..] if digits.len() < I64_TEXT_MAX => {}
        _ => return None,
    }
    let mut magnitude = 0u64;
    for &byte in digits {
        let digit = byte.wrapping_sub(b'0');
        if digit > 9 {
            return None;
        }
        // At most 19 digits: cannot pass u64::MAX.
        magnitude = magnitude * 10 + u64::from(digit);
    }
    if negative {
        (magnitude <= 1 << 63).then(|| (magnitude as i64).wrapping_neg())
    } else {
        i64::try_from(magnitude).ok()
    }
}

/// Parses a double as the C library does, in decimal or hexadecimal, or "inf" and "infinity" in any
/// case; but no spaces, no "nan", and nothing that only rounding makes zero or infinite.
pub fn parse_f64(text: &[u8]) -> Option<f64> {
    let Ok(value) = fast_float2::parse::<f64, _>(text) else {
        return match Digits::split(text)? {
            (negative, Digits::Hexadecimal(bits)) => bits.to_f64(negative),
            _ => None,
        };
    };
    let out_of_range = if value == 0.0 {
        let mantissa = text.split(|byte| byte | 0x20 == b'e').next()?;
        mantissa.iter().any(|digit| matches!(digit, b'1'..=b'9'))
    } else {
        value.is_infinite() && text.last()?.is_ascii_digit()
    };
    (!value.is_nan() && !out_of_range).then_some(value)
}

/// Parses a weight of SORT: decimal digits or infinity, up to the first zero byte; an empty text is zero, and a number
/// out of range is zero or infinite. But no "nan".
pub fn parse_weight(text: &[u8]) -> Option<f64> {
    let text = text.split(|byte| *byte == 0).next()?;
    if text.is_empty() {
        return Some(0.0);
    }
    let value = fast_float2::parse::<f64, _>(text).ok()?;
    (!value.is_nan()).then_some(value)
}

/// The parts of a number's text, after its sign.
enum Digits<'a> {
    Infinite,
    Hexadecimal(Bits),
    Decimal {
        whole: &'a [u8],
        fraction: &'a [u8],
        exponent: i64,
    },
}

/// `mantissa` (and, if inexact, something less than one above it) times two to the `exponent`.
struct Bits {
    mantissa: u128,
    inexact: bool,
    exponent: i64,
}

impl<'a> Digits<'a> {
    /// Splits a text into its sign, true if it is negative, and the rest; returns `None` if the text is not a number
    /// throughout.
    fn split(text: &'a [u8]) -> Option<(bool, Digits<'a>)> {
        let (negative, rest) = split_sign(text);
        if rest.eq_ignore_ascii_case(b"inf") || rest.eq_ignore_ascii_case(b"infinity") {
            return Some((negative, Digits::Infinite));
        }
        let hexadecimal = matches!(rest, [b'0', b'x' | b'X', ..]);
        let (is_digit, mark): (fn(&u8) -> bool, u8) = if hexadecimal {
            (u8::is_ascii_hexdigit, b'p')
        } else {
            (u8::is_ascii_digit, b'e')
        };
        let rest = if hexadecimal { &rest[2..] } else { rest };
        let (whole, rest) = split_while(rest, is_digit);
        let (fraction, rest) = match rest {
            [b'.', rest @ ..] => split_while(rest, is_digit),
            _ => (&[][..], rest),
        };
        if whole.is_empty() && fraction.is_empty() {
            return None;
        }
        let exponent = match rest {
            [] => 0,
            [first, rest @ ..] if first | 0x20 == mark => parse_exponent(rest)?,
            _ => return None,
        };
        let digits = if hexadecimal {
            Digits::Hexadecimal(Bits::of_hexadecimal(whole, fraction, exponent))
        } else {
            Digits::Decimal {
                whole,
                fraction,
                exponent,
            }
        };
        Some((negative, digits))
    }
}

fn split_sign(text: &[u8]) -> (bool, &[u8]) {
    match text {
        [b'-', rest @ ..] => (true, rest),
        [b'+', rest @ ..] => (false, rest),
        _ => (false, text),
    }
}

fn split_while(text: &[u8], is_in: fn(&u8) -> bool) -> (&[u8], &[u8]) {
    text.split_at(
        text.iter()
            .position(|byte| !is_in(byte))
            .unwrap_or(text.len()),
    )
}

/// Returns a signed decimal exponent of any length; beyond a billion it stands for "out of range".
fn parse_exponent(text: &[u8]) -> Option<i64> {
    const FAR: i64 = 1_000_000_000;
    let (negative, digits) = split_sign(text);
    if digits.is_empty() {
        return None;
    }
    let mut size = 0i64;
    for digit in digits {
        if !digit.is_ascii_digit() {
            return None;
        }
        size = (size * 10 + i64::from(digit - b'0')).min(FAR);
    }
    Some(if negative { -size } else { size })
}

impl Bits {
    fn of_hexadecimal(whole: &[u8], fraction: &[u8], exponent: i64) -> Bits {
        let mut bits = Bits {
            mantissa: 0,
            inexact: false,
            exponent,
        };
        for (i, digit) in whole.iter().chain(fraction).enumerate() {
            let digit = char::from(*digit).to_digit(16).unwrap_or(0);
            if bits.mantissa >> 124 == 0 {
                bits.mantissa = bits.mantissa << 4 | u128::from(digit);
            } else {
                bits.inexact |= digit != 0;
                bits.exponent += 4;
            }
            if i >= whole.len() {
                bits.exponent -= 4;
            }
        }
        bits
    }

    fn to_f64(&self, negative: bool) -> Option<f64> {
        const FRACTION_BITS: u32 = f64::MANTISSA_DIGITS - 1;
        const EXPONENT_MIN: i64 = f64::MIN_EXP as i64 - f64::MANTISSA_DIGITS as i64;
        let sign = u64::from(negative) << 63;
        if self.mantissa == 0 {
            return Some(f64::from_bits(sign));
        }
        let (mantissa, exponent) = round(
            self.mantissa,
            self.inexact,
            self.exponent,
            f64::MANTISSA_DIGITS,
            EXPONENT_MIN,
        );
        if mantissa == 0 || exponent + i64::from(f64::MANTISSA_DIGITS) > f64::MAX_EXP.into() {
            return None;
        }
        // A mantissa below the implicit bit stands under the least exponent, and is stored as zero.
        let stored = (mantissa >> FRACTION_BITS) * (exponent - EXPONENT_MIN + 1) as u64;
        let fraction = mantissa & ((1 << FRACTION_BITS) - 1);
        Some(f64::from_bits(sign | stored << FRACTION_BITS | fraction))
    }
}

/// Returns the nearest number of at most `precision` bits (up to 64) and with an exponent of at least
/// `exponent_min`, ties to even, to `mantissa` times two to the `exponent`. If `inexact`, the mantissa
/// is a little more than it says; it must then have more bits than `precision`.
fn round(
    mantissa: u128,
    inexact: bool,
    exponent: i64,
    precision: u32,
    exponent_min: i64,
) -> (u64, i64) {
    let bits = 128 - mantissa.leading_zeros();
    let shift = (i64::from(bits) - i64::from(precision)).max(exponent_min - exponent);
    let exponent = exponent + shift;
    if shift <= 0 {
        return ((mantissa << -shift) as u64, exponent);
    }
    if shift > 128 {
        return (0, exponent);
    }
    let shift = shift as u32;
    let floor = mantissa.checked_shr(shift).unwrap_or(0);
    let rest = mantissa - floor.checked_shl(shift).unwrap_or(0);
    let half = 1 << (shift - 1);
    let up = rest > half || (rest == half && (inexact || floor & 1 == 1));
    let nearest = floor + u128::from(up);
    if nearest >> precision == 0 {
        (nearest as u64, exponent)
    } else {
        ((nearest >> 1) as u64, exponent + 1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_canonical_text_of_an_integer_is_one() {
        for (text, value) in [
            ("0", 0),
            ("-1", -1),
            ("7", 7),
            ("9223372036854775807", i64::MAX),
            ("-9223372036854775808", i64::MIN),
        ] {
            assert_eq!(parse_i64(text.as_bytes()), Some(value), "{text}");
        }
        for text in [
            "",
            "-",
            "-0",
            "+1",
            " 1",
            "1 ",
            "01",
            "00",
            "-01",
            "1a",
            "0x1",
            "1.0",
            "1e3",
            "9223372036854775808",
            "-9223372036854775809",
            "99999999999999999999",
            "18446744073709551616",
            "\u{0}",
            "١",
        ] {
            assert_eq!(parse_i64(text.as_bytes()), None, "{text}");
        }
    }

    #[test]
    fn integers_around_every_power_of_two_are_read_back() {
        for shift in 0..64 {
            for near in -2i64..=2 {
                let value = (1i64 << shift).wrapping_add(near);
                assert_eq!(parse_i64(value.to_string().as_bytes()), Some(value));
                assert_eq!(IntBuf::new().format(value), value.to_string().as_bytes());
            }
        }
    }

    #[test]
    fn doubles_are_read_in_every_form_of_the_c_library() {
        for (text, value) in [
            ("0", 0.0),
            ("-0", -0.0),
            ("+5", 5.0),
            (".5", 0.5),
            ("5.", 5.0),
            ("00012", 12.0),
            ("1E05", 1e5),
            ("0e99999999999999", 0.0),
            ("inf", f64::INFINITY),
            ("+Infinity", f64::INFINITY),
            ("-INF", f64::NEG_INFINITY),
            ("4.9e-324", 5e-324),
            ("1.7976931348623157e308", f64::MAX),
            ("0x10", 16.0),
            ("-0X1P+2", -4.0),
            ("0x.8", 0.5),
            ("0x1.p1", 2.0),
            ("0x0p99999999999", 0.0),
            ("0x1.fffffffffffff8p0", 2.0),
            ("0x1.fffffffffffff7p0", 1.9999999999999998),
            ("0x1p-1074", 5e-324),
            ("0x1p-1022", f64::MIN_POSITIVE),
            ("0x0.fffffffffffff8p-1022", f64::MIN_POSITIVE),
            ("0x1.fffffffffffffp1023", f64::MAX),
            ("0x8000000000000000000000000000000000000001", 2f64.powi(159)),
        ] {
            let parsed = parse_f64(text.as_bytes()).unwrap_or_else(|| panic!("{text}"));
            assert_eq!(parsed.to_bits(), value.to_bits(), "{text}");
        }
        for text in [
            "",
            " 1",
            "1 ",
            "1\n",
            "1\0",
            "-",
            ".",
            "e5",
            "1e",
            "1e+",
            "0x",
            "0x1p",
            "0x.p1",
            "--5",
            "nan",
            "-nan",
            "NaN",
            "nan()",
            "infin",
            "in",
            "1_0",
            "1,5",
            "1.0.0",
            "1f",
            "1e400",
            "-1e400",
            "1e-400",
            "2e-324",
            "1.7976931348623159e308",
            "0x1p2000",
            "0x1p-1080",
            "0x1.fffffffffffff8p1023",
            "1e99999999999999999999",
            "0x1p99999999999999999999",
        ] {
            assert_eq!(parse_f64(text.as_bytes()), None, "{text}");
        }
    }
}
