//! The numbers inside headers: lengths and integers of the protocol. Not the numbers inside values.

/// A signed decimal as the protocol writes it: no plus sign, no leading zeros, no spaces, no `-0`, nothing outside `i64`.
pub(crate) fn parse_integer(text: &[u8]) -> Option<i64> {
    let (negative, digits) = match text {
        [b'-', digits @ ..] => (true, digits),
        digits => (false, digits),
    };
    match digits {
        [b'0'] if !negative => return Some(0),
        [b'1'..=b'9', ..] if digits.len() <= 19 => {}
        _ => return None,
    }
    // 19 digits fit a u64, so that only the sign can still be out of range.
    let mut magnitude: u64 = 0;
    for &c in digits {
        if !c.is_ascii_digit() {
            return None;
        }
        magnitude = magnitude * 10 + u64::from(c - b'0');
    }
    if negative {
        0i64.checked_sub_unsigned(magnitude)
    } else {
        i64::try_from(magnitude).ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_canonical_form_is_a_number() {
        for n in [
            0,
            1,
            -1,
            9,
            10,
            42,
            -42,
            1_000_000,
            i64::MAX,
            i64::MIN,
            i64::MAX - 1,
            i64::MIN + 1,
        ] {
            assert_eq!(parse_integer(n.to_string().as_bytes()), Some(n));
        }
        let wrong = [
            "",
            "-",
            "+1",
            "01",
            "-0",
            "-01",
            " 1",
            "1 ",
            "1x",
            "x",
            "--1",
            "9223372036854775808",
            "-9223372036854775809",
            "18446744073709551616",
            "99999999999999999999",
            "100000000000000000000",
        ];
        for text in wrong {
            assert_eq!(parse_integer(text.as_bytes()), None, "{text:?}");
        }
    }
}
