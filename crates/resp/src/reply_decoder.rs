//! Decoding of replies into a tree of values: for tests, tools and all code that reads the contents of a reply. To
//! count replies there is [`crate::Skipper`]. Knows no commands and no sockets.

use std::fmt;

use memchr::memchr;

use crate::limits::{REPLY_DEPTH_MAX, REPLY_LINE_BYTES_MAX};
use crate::number::parse_integer;

/// Largest number of elements for which room is reserved by a header's claim.
const ELEMENTS_RESERVED_MAX: usize = 64;

/// A reply of any type of RESP2 and RESP3. Types that differ on the wire differ here.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Value {
    /// `+`
    Simple(Vec<u8>),
    /// `-`
    Error(Vec<u8>),
    /// `:`
    Integer(i64),
    /// `$`
    Bulk(Vec<u8>),
    /// `*`
    Array(Vec<Value>),
    /// `$-1`
    NullBulk,
    /// `*-1`
    NullArray,
    /// `_`
    Null,
    /// `#`
    Boolean(bool),
    /// `,` in its original text: see [`Value::as_f64`]
    Double(String),
    /// `(`
    BigNumber(String),
    /// `!`
    BulkError(Vec<u8>),
    /// `=`
    Verbatim {
        /// Three letters.
        format: [u8; 3],
        /// The text that follows them and a colon.
        text: Vec<u8>,
    },
    /// `%`
    Map(Vec<(Value, Value)>),
    /// `~`
    Set(Vec<Value>),
    /// `>`
    Push(Vec<Value>),
    /// `|` and the value that follows
    Attributed {
        /// The attributes of the value.
        attributes: Vec<(Value, Value)>,
        /// The value.
        value: Box<Value>,
    },
}

impl Value {
    /// Returns the number of a double.
    pub fn as_f64(&self) -> Option<f64> {
        match self {
            Value::Double(text) => text.parse().ok(),
            _ => None,
        }
    }

    /// Returns the bytes of a string of any kind, an error's included.
    pub fn as_bytes(&self) -> Option<&[u8]> {
        match self {
            Value::Simple(text)
            | Value::Error(text)
            | Value::Bulk(text)
            | Value::BulkError(text) => Some(text),
            Value::Verbatim { text, .. } => Some(text),
            Value::Double(text) | Value::BigNumber(text) => Some(text.as_bytes()),
            _ => None,
        }
    }

    /// Returns true if the value is an error of either kind.
    pub fn is_error(&self) -> bool {
        matches!(self, Value::Error(_) | Value::BulkError(_))
    }
}

/// Reason why the bytes that arrived are no reply.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReplyError {
    /// No type starts with this byte.
    UnknownType(u8),
    /// A length or an integer that is no valid number.
    InvalidNumber,
    /// A line without an end, or without a carriage return before it, or a bulk that does not end where its header says.
    InvalidEnd,
    /// A boolean, null, double, big number or verbatim string that is not valid.
    InvalidValue,
    /// Aggregates nested deeper than the limit, or more elements than can be counted.
    TooDeep,
}

impl fmt::Display for ReplyError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ReplyError::UnknownType(byte) => {
                write!(f, "unknown reply type '{}'", byte.escape_ascii())
            }
            ReplyError::InvalidNumber => f.write_str("invalid number in reply"),
            ReplyError::InvalidEnd => f.write_str("reply element does not end where it should"),
            ReplyError::InvalidValue => f.write_str("invalid value in reply"),
            ReplyError::TooDeep => f.write_str("reply nested too deeply"),
        }
    }
}

impl std::error::Error for ReplyError {}

/// Result of one call of [`ReplyDecoder::decode`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DecodedReply {
    /// Number of bytes to remove from the front of the buffer, also when no reply is complete yet.
    pub consumed: usize,
    /// Next reply, when it is complete.
    pub value: Option<Value>,
}

/// Aggregate whose elements are arriving.
#[derive(Debug)]
struct Frame {
    kind: u8,
    missing: usize,
    elements: Vec<Value>,
}

/// Decodes the replies of one connection.
#[derive(Debug)]
pub struct ReplyDecoder {
    frames: Vec<Frame>,
    /// Number of bytes at the front of the buffer that are known to hold no line end.
    scanned: usize,
    depth_max: usize,
}

impl Default for ReplyDecoder {
    fn default() -> ReplyDecoder {
        ReplyDecoder::with_depth_max(REPLY_DEPTH_MAX)
    }
}

impl ReplyDecoder {
    /// Creates a decoder at the start of a reply.
    pub fn new() -> ReplyDecoder {
        ReplyDecoder::default()
    }

    /// Creates a decoder that accepts aggregates nested up to `depth_max` deep.
    pub fn with_depth_max(depth_max: usize) -> ReplyDecoder {
        ReplyDecoder {
            frames: Vec::new(),
            scanned: 0,
            depth_max,
        }
    }

    /// Decodes up to the end of one reply. In every case the caller removes the consumed bytes and keeps the rest.
    pub fn decode(&mut self, buf: &[u8]) -> Result<DecodedReply, ReplyError> {
        let mut at = 0;
        while let Some(line) = line(buf, at, &mut self.scanned)? {
            let Some((element, end)) = element(buf, &line)? else {
                break;
            };
            at = end;
            let complete = match element {
                Element::Value(value) => self.complete(value),
                Element::Aggregate(n) => self.open(line.kind, n)?,
            };
            if complete.is_some() {
                return Ok(DecodedReply {
                    consumed: at,
                    value: complete,
                });
            }
        }
        Ok(DecodedReply {
            consumed: at,
            value: None,
        })
    }

    fn open(&mut self, kind: u8, n: usize) -> Result<Option<Value>, ReplyError> {
        if self.frames.len() >= self.depth_max {
            return Err(ReplyError::TooDeep);
        }
        let missing = match kind {
            b'%' => n.checked_mul(2),
            b'|' => n.checked_mul(2).and_then(|n| n.checked_add(1)),
            _ => Some(n),
        };
        let missing = missing.ok_or(ReplyError::InvalidNumber)?;
        let elements = Vec::with_capacity(missing.min(ELEMENTS_RESERVED_MAX));
        if missing == 0 {
            return Ok(self.complete(aggregate(kind, elements)));
        }
        self.frames.push(Frame {
            kind,
            missing,
            elements,
        });
        Ok(None)
    }

    /// Adds a complete value to its aggregate; returns the reply if that is complete now.
    fn complete(&mut self, mut value: Value) -> Option<Value> {
        while let Some(frame) = self.frames.last_mut() {
            frame.elements.push(value);
            frame.missing -= 1;
            if frame.missing > 0 {
                return None;
            }
            let frame = self.frames.pop()?;
            value = aggregate(frame.kind, frame.elements);
        }
        Some(value)
    }
}

fn aggregate(kind: u8, mut elements: Vec<Value>) -> Value {
    match kind {
        b'%' => Value::Map(pairs(elements)),
        b'~' => Value::Set(elements),
        b'>' => Value::Push(elements),
        b'|' => {
            let value = Box::new(elements.pop().unwrap_or(Value::Null));
            Value::Attributed {
                attributes: pairs(elements),
                value,
            }
        }
        _ => Value::Array(elements),
    }
}

fn pairs(elements: Vec<Value>) -> Vec<(Value, Value)> {
    let mut elements = elements.into_iter();
    std::iter::from_fn(|| elements.next().zip(elements.next())).collect()
}

enum Element {
    Value(Value),
    Aggregate(usize),
}

/// Decodes the element whose line was read; `None` if its bulk is incomplete. Returns it with its end.
fn element(buf: &[u8], line: &Line<'_>) -> Result<Option<(Element, usize)>, ReplyError> {
    let &Line {
        kind,
        text,
        end: body,
    } = line;
    let value = match kind {
        b'+' => Value::Simple(text.to_vec()),
        b'-' => Value::Error(text.to_vec()),
        b':' => Value::Integer(
            parse_integer(text.strip_prefix(b"+").unwrap_or(text))
                .ok_or(ReplyError::InvalidNumber)?,
        ),
        b'_' if text.is_empty() => Value::Null,
        b'#' if text == b"t" => Value::Boolean(true),
        b'#' if text == b"f" => Value::Boolean(false),
        b',' => Value::Double(double(text)?),
        b'(' => Value::BigNumber(big_number(text)?),
        b'_' | b'#' => return Err(ReplyError::InvalidValue),
        b'$' if text == b"-1" => Value::NullBulk,
        b'*' if text == b"-1" => Value::NullArray,
        b'$' | b'!' | b'=' => {
            let Some((bytes, end)) = bulk(buf, length(text)?, body)? else {
                return Ok(None);
            };
            return Ok(Some((Element::Value(string(kind, bytes)?), end)));
        }
        b'*' | b'%' | b'~' | b'>' | b'|' => {
            return Ok(Some((Element::Aggregate(length(text)?), body)));
        }
        other => return Err(ReplyError::UnknownType(other)),
    };
    Ok(Some((Element::Value(value), body)))
}

fn string(kind: u8, bytes: &[u8]) -> Result<Value, ReplyError> {
    Ok(match (kind, bytes) {
        (b'$', bytes) => Value::Bulk(bytes.to_vec()),
        (b'!', bytes) => Value::BulkError(bytes.to_vec()),
        (_, &[a, b, c, b':', ref text @ ..]) => Value::Verbatim {
            format: [a, b, c],
            text: text.to_vec(),
        },
        _ => return Err(ReplyError::InvalidValue),
    })
}

fn double(text: &[u8]) -> Result<String, ReplyError> {
    let text = std::str::from_utf8(text).map_err(|_| ReplyError::InvalidValue)?;
    text.parse::<f64>().map_err(|_| ReplyError::InvalidValue)?;
    Ok(text.to_owned())
}

fn big_number(text: &[u8]) -> Result<String, ReplyError> {
    let digits = text
        .strip_prefix(b"-")
        .or(text.strip_prefix(b"+"))
        .unwrap_or(text);
    if digits.is_empty() || !digits.iter().all(u8::is_ascii_digit) {
        return Err(ReplyError::InvalidValue);
    }
    Ok(text.iter().map(|&c| c as char).collect())
}

/// First line of an element.
pub(crate) struct Line<'b> {
    /// Byte that names the type.
    pub kind: u8,
    /// Text after that byte, without the line end.
    pub text: &'b [u8],
    /// Start of the next line.
    pub end: usize,
}

/// Returns the line at `at`; `None` if it is incomplete. `scanned` bytes of it are known to hold no line end.
pub(crate) fn line<'b>(
    buf: &'b [u8],
    at: usize,
    scanned: &mut usize,
) -> Result<Option<Line<'b>>, ReplyError> {
    line_within(buf, at, scanned, REPLY_LINE_BYTES_MAX)
}

fn line_within<'b>(
    buf: &'b [u8],
    at: usize,
    scanned: &mut usize,
    bytes_max: usize,
) -> Result<Option<Line<'b>>, ReplyError> {
    let rest = &buf[at..];
    let kind = match rest.first() {
        None => return Ok(None),
        Some(&kind) if b"+-:$*_#,(!=%~>|".contains(&kind) => kind,
        Some(&other) => return Err(ReplyError::UnknownType(other)),
    };
    let window = &rest[..rest.len().min(bytes_max + 1)];
    let seen = (*scanned).min(window.len());
    let Some(end) = memchr(b'\n', &window[seen..]).map(|end| seen + end) else {
        if rest.len() > bytes_max {
            return Err(ReplyError::InvalidEnd);
        }
        *scanned = window.len();
        return Ok(None);
    };
    *scanned = 0;
    match &rest[..end] {
        [_, text @ .., b'\r'] => Ok(Some(Line {
            kind,
            text,
            end: at + end + 1,
        })),
        _ => Err(ReplyError::InvalidEnd),
    }
}

/// Parses a length of a bulk or an aggregate.
pub(crate) fn length(text: &[u8]) -> Result<usize, ReplyError> {
    parse_integer(text)
        .and_then(|n| usize::try_from(n).ok())
        .ok_or(ReplyError::InvalidNumber)
}

fn bulk(buf: &[u8], len: usize, start: usize) -> Result<Option<(&[u8], usize)>, ReplyError> {
    let end = start.checked_add(len).ok_or(ReplyError::InvalidNumber)?;
    let Some(bytes) = buf.get(start..end) else {
        return Ok(None);
    };
    match &buf[end..] {
        [b'\r', b'\n', ..] => Ok(Some((bytes, end + 2))),
        [] | [b'\r'] => Ok(None),
        _ => Err(ReplyError::InvalidEnd),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn decode(input: &[u8]) -> Result<Option<Value>, ReplyError> {
        let decoded = ReplyDecoder::new().decode(input)?;
        if decoded.value.is_some() {
            assert_eq!(decoded.consumed, input.len(), "{}", input.escape_ascii());
        }
        Ok(decoded.value)
    }

    #[test]
    fn every_type_is_decoded() {
        let text = |text: &str| text.as_bytes().to_vec();
        let pair = || vec![(Value::Simple(text("k")), Value::Integer(1))];
        let cases: Vec<(&[u8], Value)> = vec![
            (b"+OK\r\n", Value::Simple(text("OK"))),
            (b"-ERR x\r\n", Value::Error(text("ERR x"))),
            (b":-42\r\n", Value::Integer(-42)),
            (b":+42\r\n", Value::Integer(42)),
            (b"$2\r\n\r\n\r\n", Value::Bulk(text("\r\n"))),
            (b"$-1\r\n", Value::NullBulk),
            (b"*-1\r\n", Value::NullArray),
            (b"_\r\n", Value::Null),
            (b"#t\r\n", Value::Boolean(true)),
            (b"#f\r\n", Value::Boolean(false)),
            (b",-1.5e3\r\n", Value::Double("-1.5e3".to_owned())),
            (b",inf\r\n", Value::Double("inf".to_owned())),
            (b",nan\r\n", Value::Double("nan".to_owned())),
            (b"(-123\r\n", Value::BigNumber("-123".to_owned())),
            (b"!3\r\nERR\r\n", Value::BulkError(text("ERR"))),
            (
                b"=5\r\nmkd:x\r\n",
                Value::Verbatim {
                    format: *b"mkd",
                    text: text("x"),
                },
            ),
            (b"*0\r\n", Value::Array(vec![])),
            (
                b"*2\r\n*1\r\n:1\r\n_\r\n",
                Value::Array(vec![Value::Array(vec![Value::Integer(1)]), Value::Null]),
            ),
            (b"%1\r\n+k\r\n:1\r\n", Value::Map(pair())),
            (b"~1\r\n:1\r\n", Value::Set(vec![Value::Integer(1)])),
            (b">1\r\n:1\r\n", Value::Push(vec![Value::Integer(1)])),
            (
                b"|1\r\n+k\r\n:1\r\n#t\r\n",
                Value::Attributed {
                    attributes: pair(),
                    value: Box::new(Value::Boolean(true)),
                },
            ),
        ];
        for (input, value) in cases {
            assert_eq!(decode(input), Ok(Some(value)), "{}", input.escape_ascii());
            assert_eq!(
                decode(&input[..input.len() - 1]),
                Ok(None),
                "{}",
                input.escape_ascii()
            );
        }
    }

    #[test]
    fn what_is_no_reply_is_an_error() {
        let cases: &[(&[u8], ReplyError)] = &[
            (b"hello", ReplyError::UnknownType(b'h')),
            (b"\r\n", ReplyError::UnknownType(b'\r')),
            (b":x\r\n", ReplyError::InvalidNumber),
            (b":\r\n", ReplyError::InvalidNumber),
            (b"$-2\r\n", ReplyError::InvalidNumber),
            (b"$?\r\n", ReplyError::InvalidNumber),
            (b"*9999999999999999999\r\n", ReplyError::InvalidNumber),
            (
                b"%9223372036854775807\r\n%9223372036854775807\r\n%9223372036854775808\r\n",
                ReplyError::InvalidNumber,
            ),
            (b"+OK\n", ReplyError::InvalidEnd),
            (b"$1\r\nxx", ReplyError::InvalidEnd),
            (b"_x\r\n", ReplyError::InvalidValue),
            (b"#x\r\n", ReplyError::InvalidValue),
            (b",1x\r\n", ReplyError::InvalidValue),
            (b"(1x\r\n", ReplyError::InvalidValue),
            (b"=3\r\ntxt\r\n", ReplyError::InvalidValue),
        ];
        for (input, error) in cases {
            assert_eq!(decode(input), Err(*error), "{}", input.escape_ascii());
        }
    }

    #[test]
    fn a_line_has_a_limit() {
        let line = |bytes: &[u8]| line_within(bytes, 0, &mut 0, 8).map(|found| found.is_some());
        assert_eq!(line(b"+1234567"), Ok(false));
        assert_eq!(line(b"+123456\r\n"), Ok(true));
        assert_eq!(line(b"+12345678"), Err(ReplyError::InvalidEnd));
    }

    #[test]
    fn a_text_of_more_than_a_mebibyte_was_no_reply() {
        for kind in ["+", "-", "("] {
            let line = format!("{kind}{}\r\n", "1".repeat(3 << 20));
            assert!(decode(line.as_bytes()).unwrap().is_some(), "{kind}");
        }
    }

    #[test]
    fn nesting_has_a_limit() {
        let nested = |depth| [b"*1\r\n".repeat(depth), b":1\r\n".to_vec()].concat();
        let mut decoder = ReplyDecoder::with_depth_max(3);
        assert!(decoder.decode(&nested(3)).unwrap().value.is_some());
        assert_eq!(decoder.decode(&nested(4)), Err(ReplyError::TooDeep));
        assert!(decode(&nested(REPLY_DEPTH_MAX)).is_ok());
        assert_eq!(decode(&nested(100_000)), Err(ReplyError::TooDeep));
    }

    #[test]
    fn a_header_alone_reserves_little() {
        let mut decoder = ReplyDecoder::new();
        decoder.decode(b"*2147483647\r\n").unwrap();
        assert!(decoder.frames[0].elements.capacity() <= ELEMENTS_RESERVED_MAX);
    }

    #[test]
    fn values_are_asked_for_what_they_hold() {
        assert_eq!(Value::Double("1e3".to_owned()).as_f64(), Some(1000.0));
        assert_eq!(Value::Integer(1).as_f64(), None);
        assert_eq!(Value::Bulk(b"x".to_vec()).as_bytes(), Some(&b"x"[..]));
        assert_eq!(Value::Null.as_bytes(), None);
        assert!(Value::BulkError(vec![]).is_error() && !Value::Null.is_error());
    }
}
