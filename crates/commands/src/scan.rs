//! Common parts of SCAN, HSCAN, SSCAN and ZSCAN: the cursor, the options, the frame of the reply. Must not know the
//! collection that is scanned.

use redline_resp::Reply;
use redline_spec::CommandId;
use redline_types::{
    glob::{self, Case},
    number,
};

use crate::{Error, Failure, words::Words};

/// Number of elements that a call looks at by default.
const COUNT_DEFAULT: u64 = 10;

/// Options after the cursor.
#[derive(Debug)]
pub(crate) struct ScanOptions<'a> {
    /// `COUNT`: number of elements to look at.
    pub(crate) count: u64,
    /// `TYPE`, as the client wrote it.
    pub(crate) type_name: Option<&'a [u8]>,
    /// `NOVALUES`: fields only. Of a sorted set `NOSCORES`, as in Valkey: members only.
    pub(crate) no_values: bool,
    pattern: Option<&'a [u8]>,
}

impl<'a> ScanOptions<'a> {
    /// Reads the arguments after the cursor.
    pub(crate) fn parse(mut words: Words<'a>) -> Result<ScanOptions<'a>, Error> {
        let mut options = ScanOptions {
            count: COUNT_DEFAULT,
            type_name: None,
            no_values: false,
            pattern: None,
        };
        let id = words.id();
        while !words.is_empty() {
            if words.undocumented("NOVALUES") {
                if id != CommandId::Hscan {
                    return Err(Error::line("ERR NOVALUES option can only be used in HSCAN"));
                }
                options.no_values = true;
            } else if id == CommandId::Zscan && words.flag("NOSCORES") {
                options.no_values = true;
            } else if let Some(count) = words.pair::<i64>("COUNT")? {
                let count = u64::try_from(count).ok().filter(|count| *count > 0);
                options.count = count.ok_or(Error::Syntax)?;
            } else if let Some(pattern) = words.value("MATCH") {
                options.pattern = (pattern != b"*").then_some(pattern);
            } else if id == CommandId::Scan
                && let Some(name) = words.value("TYPE")
            {
                options.type_name = Some(name);
            } else {
                return Err(Error::Syntax);
            }
        }
        Ok(options)
    }

    /// Returns true if the element matches the client's pattern.
    pub(crate) fn matches(&self, element: &[u8]) -> bool {
        self.pattern
            .is_none_or(|pattern| glob::matches(pattern, element, Case::Sensitive))
    }
}

/// Reads the cursor argument. Any 64-bit number is valid; like the C library's reader this skips leading blanks,
/// accepts a sign, and stops at a zero byte.
pub(crate) fn cursor(argument: &[u8]) -> Result<u64, Error> {
    parse_cursor(argument).ok_or(Error::line("ERR invalid cursor"))
}

fn parse_cursor(argument: &[u8]) -> Option<u64> {
    if let Some(number) = number::parse_i64(argument) {
        return u64::try_from(number).ok();
    }
    let text = argument.split(|byte| *byte == 0).next()?;
    let blanks = text
        .iter()
        .take_while(|byte| matches!(byte, b' ' | b'\t'..=b'\r'))
        .count();
    let (negative, digits) = match &text[blanks..] {
        [b'-', digits @ ..] => (true, digits),
        [b'+', digits @ ..] => (false, digits),
        digits => (false, digits),
    };
    if digits.is_empty() {
        return None;
    }
    let number = digits.iter().try_fold(0u64, |number, byte| {
        let digit = byte.is_ascii_digit().then(|| u64::from(byte - b'0'))?;
        number.checked_mul(10)?.checked_add(digit)
    })?;
    Some(if negative {
        number.wrapping_neg()
    } else {
        number
    })
}

/// Runs a scan: `scan` writes the elements, and returns the next cursor and their number; the frame is put around them.
pub(crate) fn framed(
    reply: &mut Reply<'_>,
    scan: impl FnOnce(&mut Reply<'_>) -> Result<(u64, usize), Failure>,
) -> Result<(), Failure> {
    let mark = reply.mark();
    let (next, elements) = scan(reply)?;
    let next = next.to_string();
    let frame = format!("*2\r\n${}\r\n{next}\r\n*{elements}\r\n", next.len());
    reply.buffer().insert(mark, frame.as_bytes());
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cursors_are_read_as_the_c_library_reads_them() {
        for (text, number) in [
            (&b"0"[..], Some(0)),
            (b"18446744073709551615", Some(u64::MAX)),
            (b" \t+007", Some(7)),
            (b"-01", Some(u64::MAX)),
            (b"12\0x", Some(12)),
            (b"18446744073709551616", None),
            (b"-1", None),
            (b"1 ", None),
            (b"+", None),
            (b"", None),
            (b"x", None),
        ] {
            assert_eq!(parse_cursor(text), number, "{}", text.escape_ascii());
        }
    }
}
