//! Ids of stream entries and their text. Must not know the contents of a stream, nor the error of a refused text.

use crate::number::parse_i64;
use std::fmt;

/// The longest text of an id, as Redis bounds it.
const TEXT_BYTES_MAX: usize = 127;

/// The id of an entry: a time in milliseconds, and a number for entries of the same time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct StreamId {
    /// Milliseconds.
    pub ms: u64,
    /// Number among those of the same `ms`.
    pub seq: u64,
}

/// The text is not an id.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct InvalidId;

impl StreamId {
    /// The lowest id; no entry has it.
    pub const MIN: StreamId = StreamId::new(0, 0);
    /// The highest id.
    pub const MAX: StreamId = StreamId::new(u64::MAX, u64::MAX);

    /// Makes an id of its two parts.
    pub const fn new(ms: u64, seq: u64) -> StreamId {
        StreamId { ms, seq }
    }

    /// Returns the id after this one.
    pub fn next(self) -> Option<StreamId> {
        match self.seq.checked_add(1) {
            Some(seq) => Some(StreamId::new(self.ms, seq)),
            None => Some(StreamId::new(self.ms.checked_add(1)?, 0)),
        }
    }

    /// Returns the id before this one.
    pub fn previous(self) -> Option<StreamId> {
        match self.seq.checked_sub(1) {
            Some(seq) => Some(StreamId::new(self.ms, seq)),
            None => Some(StreamId::new(self.ms.checked_sub(1)?, u64::MAX)),
        }
    }

    /// Parses `ms-seq`, or `ms` alone, which then gets `missing_seq`.
    pub fn parse(text: &[u8], missing_seq: u64) -> Result<StreamId, InvalidId> {
        let (ms, seq) = split(text)?;
        let seq = match seq {
            Some(seq) => parse_u64(seq).ok_or(InvalidId)?,
            None => missing_seq,
        };
        Ok(StreamId::new(parse_u64(ms).ok_or(InvalidId)?, seq))
    }

    /// Parses as [`StreamId::parse`] does, and `-` and `+` for the lowest and highest id.
    pub fn parse_or_edge(text: &[u8], missing_seq: u64) -> Result<StreamId, InvalidId> {
        match until_zero(text) {
            b"-" => Ok(StreamId::MIN),
            b"+" => Ok(StreamId::MAX),
            _ => StreamId::parse(text, missing_seq),
        }
    }

    /// Appends the text.
    pub fn format(self, out: &mut Vec<u8>) {
        let mut buf = itoa::Buffer::new();
        out.extend_from_slice(buf.format(self.ms).as_bytes());
        out.push(b'-');
        out.extend_from_slice(buf.format(self.seq).as_bytes());
    }
}

impl fmt::Display for StreamId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}-{}", self.ms, self.seq)
    }
}

/// The id that a new entry asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NewId {
    /// `*`: the time, or the next one after the last entry.
    Auto,
    /// `ms-*`: the next one of this time.
    AutoSeq(u64),
    /// This one.
    Exact(StreamId),
}

impl NewId {
    /// Parses `*`, `ms-*`, `ms` (which is `ms-0`) and `ms-seq`.
    pub fn parse(text: &[u8]) -> Result<NewId, InvalidId> {
        if until_zero(text) == b"*" {
            return Ok(NewId::Auto);
        }
        match split(text)? {
            (ms, Some(b"*")) => Ok(NewId::AutoSeq(parse_u64(ms).ok_or(InvalidId)?)),
            _ => Ok(NewId::Exact(StreamId::parse(text, 0)?)),
        }
    }
}

/// One end of a range of ids.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct IdBound {
    /// The id.
    pub id: StreamId,
    /// True if the id itself is left out.
    pub exclusive: bool,
}

impl IdBound {
    /// Parses an id, `-`, `+`, or `(` and an id. An id without number gets `missing_seq`.
    pub fn parse(text: &[u8], missing_seq: u64) -> Result<IdBound, InvalidId> {
        match text {
            [b'(', rest @ ..] if !rest.is_empty() => Ok(IdBound {
                id: StreamId::parse(rest, missing_seq)?,
                exclusive: true,
            }),
            _ => Ok(IdBound {
                id: StreamId::parse_or_edge(text, missing_seq)?,
                exclusive: false,
            }),
        }
    }

    /// Returns the lowest id in a range that starts here; none if there can be no such id.
    pub fn first(self) -> Option<StreamId> {
        if self.exclusive {
            self.id.next()
        } else {
            Some(self.id)
        }
    }

    /// Returns the highest id in a range that ends here; none if there can be no such id.
    pub fn last(self) -> Option<StreamId> {
        if self.exclusive {
            self.id.previous()
        } else {
            Some(self.id)
        }
    }
}

/// Returns the text before a zero byte, which ends it as in Redis.
fn until_zero(text: &[u8]) -> &[u8] {
    let end = text.iter().position(|byte| *byte == 0);
    &text[..end.unwrap_or(text.len())]
}

/// Returns the texts before and after the first `-`.
fn split(text: &[u8]) -> Result<(&[u8], Option<&[u8]>), InvalidId> {
    if text.len() > TEXT_BYTES_MAX {
        return Err(InvalidId);
    }
    let text = until_zero(text);
    Ok(match text.iter().position(|byte| *byte == b'-') {
        Some(dash) => (&text[..dash], Some(&text[dash + 1..])),
        None => (text, None),
    })
}

/// Parses an unsigned integer. A text that is not canonical is read as C's `strtoull` does, which Redis relies on:
/// spaces before, a sign (a minus wraps around) and zeros in front are accepted.
fn parse_u64(text: &[u8]) -> Option<u64> {
    if let Some(value) = parse_i64(text) {
        return u64::try_from(value).ok();
    }
    let start = text
        .iter()
        .position(|b| !matches!(b, b' ' | b'\t'..=b'\r'))?;
    let (negative, digits) = match &text[start..] {
        [b'-', rest @ ..] => (true, rest),
        [b'+', rest @ ..] => (false, rest),
        rest => (false, rest),
    };
    if digits.is_empty() {
        return None;
    }
    let mut value = 0u64;
    for byte in digits {
        let digit = byte.checked_sub(b'0').filter(|digit| *digit <= 9)?;
        value = value.checked_mul(10)?.checked_add(u64::from(digit))?;
    }
    Some(if negative {
        value.wrapping_neg()
    } else {
        value
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const MAX: u64 = u64::MAX;

    #[test]
    fn text_of_ids() {
        for (text, ms, seq) in [
            ("5", 5, 77),
            ("5-6", 5, 6),
            ("0-0", 0, 0),
            ("007-008", 7, 8),
            (" 5-+6", 5, 6),
            ("18446744073709551615-18446744073709551615", MAX, MAX),
            ("1--05", 1, 5u64.wrapping_neg()),
            ("5\0x-y", 5, 77),
        ] {
            let id = StreamId::new(ms, seq);
            assert_eq!(StreamId::parse(text.as_bytes(), 77), Ok(id), "{text}");
        }
        for text in [
            "",
            "-",
            "+",
            "x",
            "5-",
            "-5",
            "5-x",
            "5-6-7",
            "1--5",
            "1-*",
            "18446744073709551616",
            "5 ",
            "1.0",
            "5- ",
        ] {
            assert_eq!(
                StreamId::parse(text.as_bytes(), 0),
                Err(InvalidId),
                "{text}"
            );
        }
        let long = [b"0".repeat(126), b"1".to_vec()].concat();
        assert_eq!(StreamId::parse(&long, 2), Ok(StreamId::new(1, 2)));
        let too_long = [b"0".repeat(127), b"1".to_vec()].concat();
        assert_eq!(StreamId::parse(&too_long, 2), Err(InvalidId));
        let mut text = Vec::new();
        StreamId::MAX.format(&mut text);
        assert_eq!(text, StreamId::MAX.to_string().as_bytes());
        assert_eq!(StreamId::parse(&text, 0), Ok(StreamId::MAX));
    }

    #[test]
    fn ids_of_new_entries() {
        assert_eq!(NewId::parse(b"*"), Ok(NewId::Auto));
        assert_eq!(NewId::parse(b"*\0x"), Ok(NewId::Auto));
        assert_eq!(NewId::parse(b"5-*"), Ok(NewId::AutoSeq(5)));
        assert_eq!(NewId::parse(b"5"), Ok(NewId::Exact(StreamId::new(5, 0))));
        assert_eq!(NewId::parse(b"5-1"), Ok(NewId::Exact(StreamId::new(5, 1))));
        for text in ["", "-", "+", "*-*", "*-1", "5-**", "-*"] {
            assert_eq!(NewId::parse(text.as_bytes()), Err(InvalidId), "{text}");
        }
    }

    #[test]
    fn ends_of_ranges() {
        let ends = |text: &str, missing_seq| {
            let bound = IdBound::parse(text.as_bytes(), missing_seq).unwrap();
            (bound.first(), bound.last())
        };
        let id = StreamId::new;
        assert_eq!(ends("-", 0), (Some(StreamId::MIN), Some(StreamId::MIN)));
        assert_eq!(ends("+", 0), (Some(StreamId::MAX), Some(StreamId::MAX)));
        assert_eq!(ends("5", MAX).1, Some(id(5, MAX)));
        assert_eq!(ends("(5", 0), (Some(id(5, 1)), Some(id(4, MAX))));
        assert_eq!(ends("(5", MAX), (Some(id(6, 0)), Some(id(5, MAX - 1))));
        assert_eq!(ends("(0-0", 0).1, None);
        assert_eq!(ends(&format!("({}", StreamId::MAX), 0).0, None);
        for text in ["(", "(-", "(+", "((5", ""] {
            assert_eq!(IdBound::parse(text.as_bytes(), 0), Err(InvalidId), "{text}");
        }
    }
}
