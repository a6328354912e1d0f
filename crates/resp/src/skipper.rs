//! Counting of replies without looking into them: for the load generator. Knows no commands and no sockets.

use crate::reply_decoder::{ReplyError, length, line};

/// What one call of [`Skipper::skip`] went over.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Skipped {
    /// Bytes to drop from the front of the buffer; what is left is the start of a line.
    pub consumed: usize,
    /// Replies that became whole. Push messages are none.
    pub replies: u64,
    /// How many of these were errors.
    pub errors: u64,
}

/// Counts the replies of one connection, and remembers the text of the first error.
///
/// It keeps no tree: how many elements are missing until the reply is whole is one number, however they are nested.
#[derive(Clone, Debug, Default)]
pub struct Skipper {
    /// Elements missing until the reply is whole; 0 between replies.
    missing: u64,
    /// Bytes missing until the bulk is whole, its line end included.
    jump: usize,
    /// Whether the reply that is not whole is a push message.
    in_push: bool,
    /// Bytes at the front of the buffer that are known to hold no line end.
    scanned: usize,
    first_error: Option<Box<[u8]>>,
}

impl Skipper {
    /// A skipper at the start of a reply.
    pub fn new() -> Skipper {
        Skipper::default()
    }

    /// The text of the first reply that was an error, without its `-`.
    pub fn first_error(&self) -> Option<&[u8]> {
        self.first_error.as_deref()
    }

    /// Goes over everything in `buf` that can be gone over. The caller drops the consumed bytes and keeps the rest.
    pub fn skip(&mut self, buf: &[u8]) -> Result<Skipped, ReplyError> {
        let mut skipped = Skipped::default();
        loop {
            if self.jump > 0 {
                let step = self.jump.min(buf.len() - skipped.consumed);
                skipped.consumed += step;
                self.jump -= step;
                if self.jump > 0 {
                    return Ok(skipped);
                }
                self.element_done(&mut skipped);
            }
            if self.scanned == 0 {
                while let Some(end) = plain_element_end(buf, skipped.consumed) {
                    skipped.consumed = end;
                    self.missing += u64::from(self.missing == 0);
                    self.element_done(&mut skipped);
                }
            }
            let Some((kind, text, end)) = line(buf, skipped.consumed, &mut self.scanned)? else {
                return Ok(skipped);
            };
            skipped.consumed = end;
            self.element(kind, text, &mut skipped)?;
        }
    }

    fn element(&mut self, kind: u8, text: &[u8], skipped: &mut Skipped) -> Result<(), ReplyError> {
        let top = self.missing == 0;
        self.missing += u64::from(top);
        let n = match kind {
            b'$' | b'*' if text == b"-1" => 0,
            b'$' | b'!' | b'=' => {
                self.jump = length(text)?
                    .checked_add(2)
                    .ok_or(ReplyError::InvalidNumber)?;
                if top && kind == b'!' {
                    self.error(b"", skipped);
                }
                return Ok(());
            }
            b'*' | b'~' => length(text)? as u64,
            b'>' => {
                self.in_push |= top;
                length(text)? as u64
            }
            b'%' => (length(text)? as u64)
                .checked_mul(2)
                .ok_or(ReplyError::TooDeep)?,
            // An attribute is no element: the one it is about is still to come.
            b'|' => (length(text)? as u64)
                .checked_mul(2)
                .and_then(|n| n.checked_add(1))
                .ok_or(ReplyError::TooDeep)?,
            b'-' => {
                if top {
                    self.error(text, skipped);
                }
                0
            }
            b'+' | b':' | b'_' | b'#' | b',' | b'(' => 0,
            other => return Err(ReplyError::UnknownType(other)),
        };
        self.missing = self.missing.checked_add(n).ok_or(ReplyError::TooDeep)?;
        self.element_done(skipped);
        Ok(())
    }

    fn element_done(&mut self, skipped: &mut Skipped) {
        self.missing -= 1;
        if self.missing == 0 {
            skipped.replies += u64::from(!self.in_push);
            self.in_push = false;
        }
    }

    fn error(&mut self, text: &[u8], skipped: &mut Skipped) {
        skipped.errors += 1;
        self.first_error.get_or_insert_with(|| text.into());
    }
}

/// Where the element at `at` ends, if it is of the plain kind that most replies are (a short status, an integer, a
/// bulk below 10,000 bytes or a null bulk) and there to its end. `None` leaves it to the thorough way, which takes
/// three times as long.
#[inline]
fn plain_element_end(buf: &[u8], at: usize) -> Option<usize> {
    let (header, length) = match *buf.get(at..)? {
        [b'$', a, b'\r', b'\n', ..] => (4, decimal([b'0', b'0', b'0', a])?),
        [b'$', b'-', b'1', b'\r', b'\n', ..] => return Some(at + 5),
        [b'+', b'O', b'K', b'\r', b'\n', ..] => return Some(at + 5),
        [b'$', a @ b'1'..=b'9', b, b'\r', b'\n', ..] => (5, decimal([b'0', b'0', a, b])?),
        [b'$', a @ b'1'..=b'9', b, c, b'\r', b'\n', ..] => (6, decimal([b'0', a, b, c])?),
        [b'$', a @ b'1'..=b'9', b, c, d, b'\r', b'\n', ..] => (7, decimal([a, b, c, d])?),
        [b'+' | b':', ref line @ ..] => {
            let line = &line[..line.len().min(PLAIN_LINE_BYTES_MAX)];
            let end = line.iter().position(|&byte| byte == b'\n')?;
            return (end > 0 && line[end - 1] == b'\r').then_some(at + 1 + end + 1);
        }
        _ => return None,
    };
    let end = at + header + length + 2;
    (end <= buf.len()).then_some(end)
}

/// Bytes of a line that are looked through for its end here.
const PLAIN_LINE_BYTES_MAX: usize = 24;

fn decimal(digits: [u8; 4]) -> Option<usize> {
    let value = |digit: u8| usize::from(digit.wrapping_sub(b'0'));
    let [a, b, c, d] = digits.map(value);
    (a.max(b).max(c).max(d) < 10).then_some(((a * 10 + b) * 10 + c) * 10 + d)
}

#[cfg(test)]
mod plain_tests {
    use super::*;

    fn plain(text: &str) -> Option<usize> {
        plain_element_end(text.as_bytes(), 0)
    }

    #[test]
    fn plain_elements_end_where_they_end() {
        for (text, end) in [
            ("$3\r\nabc\r\n", 9),
            ("$0\r\n\r\n", 6),
            ("$-1\r\n", 5),
            ("+OK\r\n", 5),
            ("+PONG\r\n", 7),
            (":-12\r\n", 6),
        ] {
            assert_eq!(plain(&format!("{text}+more")), Some(end), "{text:?}");
            for cut in 0..text.len() {
                assert_eq!(plain(&text[..cut]), None, "{text:?} cut at {cut}");
            }
        }
        for length in [9, 10, 99, 100, 999, 1000, 9999] {
            let text = format!("${length}\r\n{}\r\n", "x".repeat(length));
            assert_eq!(plain(&text), Some(text.len()));
        }
    }

    #[test]
    fn everything_else_is_left_to_the_thorough_way() {
        let long = format!("+{}\r\n", "x".repeat(100));
        for text in [
            "$03\r\nabc\r\n",
            "$a\r\n",
            "$1x\r\nab\r\n",
            "$:\r\n",
            "-ERR\r\n",
            "*1\r\n",
            "+\n",
            "$\r\n\r\n",
            &long,
        ] {
            assert_eq!(plain(text), None, "{text:?}");
        }
    }

    #[test]
    fn plain_elements_count_inside_aggregates_as_anywhere() {
        let replies =
            b"*2\r\n$1\r\na\r\n*1\r\n:1\r\n>1\r\n+push\r\n+OK\r\n%1\r\n+k\r\n$-1\r\n".as_slice();
        for cut in 0..=replies.len() {
            let mut skipper = Skipper::new();
            let first = skipper.skip(&replies[..cut]).unwrap();
            let rest = skipper.skip(&replies[first.consumed..]).unwrap();
            assert_eq!(first.replies + rest.replies, 3, "cut at {cut}");
            assert_eq!(first.consumed + rest.consumed, replies.len());
        }
    }
}
