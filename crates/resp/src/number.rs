//! The numbers inside headers: lengths and integers of the protocol. Not the numbers inside values.

/// Parses a signed decimal in the protocol's form: no plus sign, no leading zeros, no spaces, no `-0`, nothing outside `i64`.
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
    // 19 digits fit a u64, so only the sign can still put the number out of range.
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

/// Parses the line at `at` if it is a byte, a number of one to four digits and `\r\n`: returns the byte, the number, and the
/// start of the next line. `None` for all other lines, and for one that is not followed by enough bytes to read eight at once.
#[inline(always)]
pub(crate) fn small_number(buf: &[u8], at: usize) -> Option<(u8, usize, usize)> {
    let digit = |c: u8| usize::from(c - b'0');
    match *buf.get(at..)?.first_chunk::<8>()? {
        [kind, a @ b'0'..=b'9', b'\r', b'\n', ..] => Some((kind, digit(a), at + 4)),
        [kind, a @ b'1'..=b'9', b @ b'0'..=b'9', b'\r', b'\n', ..] => {
            Some((kind, digit(a) * 10 + digit(b), at + 5))
        }
        [
            kind,
            a @ b'1'..=b'9',
            b @ b'0'..=b'9',
            c @ b'0'..=b'9',
            b'\r',
            b'\n',
            ..,
        ] => Some((kind, digit(a) * 100 + digit(b) * 10 + digit(c), at + 6)),
        [
            kind,
            a @ b'1'..=b'9',
            b @ b'0'..=b'9',
            c @ b'0'..=b'9',
            d @ b'0'..=b'9',
            b'\r',
            b'\n',
            _,
        ] => Some((
            kind,
            digit(a) * 1000 + digit(b) * 100 + digit(c) * 10 + digit(d),
            at + 7,
        )),
        _ => None,
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

    #[test]
    fn the_short_way_agrees_with_the_long_one() {
        for n in 0..12_000 {
            let line = format!("xx${n}\r\n....");
            let expected = (n < 10_000).then_some((b'$', n, line.len() - 4));
            assert_eq!(small_number(line.as_bytes(), 2), expected);
        }
        let others = [
            "$01\r\n....",
            "$-1\r\n....",
            "$\r\n......",
            "$1\rx.....",
            "$1x\r\n...",
            "$1\r\n...",
            "$12345\r\n",
        ];
        for line in others {
            assert_eq!(small_number(line.as_bytes(), 0), None, "{line:?}");
        }
        assert_eq!(small_number(b"$1\r\n....", 99), None);
    }
}
