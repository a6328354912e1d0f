//! Numbers as text, with the strictness that clients rely on. Must not know who asks or which error
//! a refusal becomes.

/// Room for the decimal digits of an integer, so that no allocation is needed to see it as bytes.
#[derive(Clone, Copy)]
pub struct IntBuf(itoa::Buffer);

impl IntBuf {
    /// An empty buffer; cheap, nothing is written before use.
    #[inline]
    pub fn new() -> IntBuf {
        IntBuf(itoa::Buffer::new())
    }

    /// The decimal text of an integer.
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

/// The longest text of an `i64`, "-9223372036854775808".
pub const I64_TEXT_MAX: usize = 20;

/// Parses the one canonical text of an integer: no spaces, no plus sign, no leading zeros, no "-0".
/// What it accepts, [`IntBuf::format`] gives back byte for byte.
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

/// Appends the decimal text of an integer.
#[inline]
pub fn format_i64(value: i64, out: &mut Vec<u8>) {
    out.extend_from_slice(IntBuf::new().format(value));
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
    fn integers_around_every_power_of_two_come_back_as_their_text() {
        for shift in 0..64 {
            for near in -2i64..=2 {
                let value = (1i64 << shift).wrapping_add(near);
                let mut text = Vec::new();
                format_i64(value, &mut text);
                assert_eq!(text, value.to_string().as_bytes());
                assert_eq!(parse_i64(&text), Some(value));
            }
        }
    }
}
