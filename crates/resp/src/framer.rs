//! Finds the ends of replies without decoding them: for a proxy, which passes them on. Knows no commands and no sockets.
//!
//! The replies stay in place; the caller learns the length of the first one. The state of an incomplete one is kept, so
//! that no byte is read twice, for any pieces; the part of it that has arrived can be passed on at once
//! ([`Framer::take_part`]).

use crate::number::small_number;
use crate::reply_decoder::{ReplyError, length, line};
use crate::skipper::short_line_end;

/// Finds the ends of the replies of one connection.
#[derive(Clone, Debug, Default)]
pub struct Framer {
    /// Number of elements missing until the reply is complete; 0 between replies.
    missing: u64,
    /// Number of bytes missing until a bulk is complete, its line end included.
    jump: u64,
    /// Number of bytes at the front of the buffer that belong to the reply and have been scanned.
    at: usize,
    /// Number of bytes after those that are known to hold no line end.
    scanned: usize,
}

impl Framer {
    /// Creates a framer at the start of a reply.
    pub fn new() -> Framer {
        Framer::default()
    }

    /// Returns true if the framer is between two replies.
    #[inline]
    pub fn is_between(&self) -> bool {
        self.missing == 0
    }

    /// Returns the length of the reply at the start of `buf` (or of its rest after the parts taken), once it is complete. Push
    /// messages are handled as replies: their first byte distinguishes them. An attribute belongs to the element after it.
    ///
    /// While the result is `None`, call again with the same bytes and more.
    #[inline]
    pub fn next(&mut self, buf: &[u8]) -> Result<Option<usize>, ReplyError> {
        if self.missing == 0
            && let Some((end, 0)) = common(buf, 0)
        {
            return Ok(Some(end));
        }
        self.next_any(buf)
    }

    /// Returns the number of bytes at the front of the buffer that belong to an incomplete reply and may be passed on
    /// before the rest has come. From now on they count as removed: the caller removes them.
    pub fn take_part(&mut self) -> usize {
        let part = self.at;
        self.at = 0;
        part
    }

    /// Returns the number of bytes of a bulk in the incomplete reply that are still to come, if the buffer ends inside one.
    pub fn bulk_missing(&self) -> u64 {
        self.jump
    }

    /// Counts bytes of the bulk that bypass the buffer: at most as many as are missing, and after every byte in the
    /// buffer before them was taken. Returns true if that completes the reply: the framer is then between two replies.
    pub fn skip_bulk(&mut self, bytes: u64) -> bool {
        debug_assert!(self.at == 0 && bytes <= self.jump);
        if bytes < self.jump {
            self.jump -= bytes;
            return false;
        }
        if self.jump > 0 {
            self.jump = 0;
            self.missing -= 1;
        }
        self.missing == 0
    }

    /// Skips complete elements of the commonest forms.
    #[inline]
    fn take_common(&mut self, buf: &[u8]) -> Result<(), ReplyError> {
        let (mut at, mut missing) = (self.at, self.missing);
        while missing > 0
            && let Some((end, elements)) = common(buf, at)
        {
            at = end;
            missing = (missing - 1)
                .checked_add(elements)
                .ok_or(ReplyError::TooDeep)?;
        }
        if at > self.at {
            self.scanned = 0;
        }
        (self.at, self.missing) = (at, missing);
        Ok(())
    }

    fn next_any(&mut self, buf: &[u8]) -> Result<Option<usize>, ReplyError> {
        if self.missing == 0 {
            if buf.is_empty() {
                return Ok(None);
            }
            self.missing = 1;
        }
        loop {
            if self.jump > 0 {
                let rest = (buf.len() - self.at) as u64;
                let step = self.jump.min(rest);
                self.at += step as usize;
                self.jump -= step;
                if self.jump > 0 {
                    return Ok(None);
                }
                self.missing -= 1;
            }
            self.take_common(buf)?;
            if self.missing == 0 {
                let end = self.at;
                *self = Framer::default();
                return Ok(Some(end));
            }
            let Some(line) = line(buf, self.at, &mut self.scanned)? else {
                return Ok(None);
            };
            let end = line.end;
            let elements = match line.kind {
                b'$' | b'*' if line.text == b"-1" => 0,
                b'$' | b'!' | b'=' => {
                    self.jump = length(line.text)? as u64 + 2;
                    self.at = end;
                    continue;
                }
                b'*' | b'~' | b'>' => length(line.text)? as u64,
                b'%' => (length(line.text)? as u64)
                    .checked_mul(2)
                    .ok_or(ReplyError::TooDeep)?,
                // An attribute is no element: the element after it is still to come.
                b'|' => (length(line.text)? as u64)
                    .checked_mul(2)
                    .and_then(|n| n.checked_add(1))
                    .ok_or(ReplyError::TooDeep)?,
                b'-' | b'+' | b':' | b'_' | b'#' | b',' | b'(' => 0,
                other => return Err(ReplyError::UnknownType(other)),
            };
            self.at = end;
            self.missing = (self.missing - 1)
                .checked_add(elements)
                .ok_or(ReplyError::TooDeep)?;
        }
    }
}

/// Returns the end of the element at `at` if it has one of the commonest forms and is complete, and the number of
/// elements that it contains, which follow it.
#[inline(always)]
fn common(buf: &[u8], at: usize) -> Option<(usize, u64)> {
    match small_number(buf, at) {
        Some((b'$', len, body)) if body + len + 2 <= buf.len() => Some((body + len + 2, 0)),
        Some((b':', _, end)) => Some((end, 0)),
        Some((b'*', n, end)) => Some((end, n as u64)),
        Some(_) => None,
        None => {
            let rest = buf.get(at..)?;
            if rest.starts_with(b"+OK\r\n") || rest.starts_with(b"$-1\r\n") {
                return Some((at + 5, 0));
            }
            short_line_end(buf, at).map(|end| (end, 0))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const REPLIES: &[&[u8]] = &[
        b"+OK\r\n",
        b"$1\r\nx\r\n",
        b"$-1\r\n",
        b"*-1\r\n",
        b"*0\r\n",
        b":-12345678901\r\n",
        b"-ERR no such thing\r\n",
        b"*3\r\n*-1\r\n*2\r\n$3\r\nabc\r\n:1\r\n$-1\r\n",
        b"%1\r\n+a\r\n~2\r\n#t\r\n,1.5\r\n",
        b">2\r\n+message\r\n$2\r\nhi\r\n",
        b"|1\r\n+ttl\r\n:3600\r\n$5\r\nhello\r\n",
        b"=8\r\ntxt:text\r\n",
        b"!5\r\nERR x\r\n",
        b"(12345678901234567890123\r\n",
        b"_\r\n",
        b"$12\r\nab\r\n$3\r\nxyz1\r\n",
    ];

    #[test]
    fn replies_end_where_they_end_however_the_input_is_cut() {
        let all = REPLIES.concat();
        for piece in 1..all.len() {
            let (mut framer, mut held, mut found) = (Framer::new(), Vec::new(), Vec::new());
            for part in all.chunks(piece) {
                held.extend_from_slice(part);
                while let Some(len) = framer.next(&held).unwrap() {
                    found.push(held.drain(..len).collect::<Vec<u8>>());
                }
            }
            assert!(framer.is_between() && held.is_empty());
            assert_eq!(found, REPLIES, "in pieces of {piece}");
        }
    }

    #[test]
    fn parts_that_are_taken_and_the_rest_are_the_whole() {
        for piece in 1..9 {
            for reply in REPLIES {
                let input = [reply, b":77\r\n".as_slice()].concat();
                let (mut framer, mut held, mut passed) = (Framer::new(), Vec::new(), Vec::new());
                let mut whole = false;
                for part in input.chunks(piece) {
                    held.extend_from_slice(part);
                    if whole {
                        continue;
                    }
                    let len = match framer.next(&held).unwrap() {
                        Some(len) => {
                            whole = true;
                            len
                        }
                        None => framer.take_part(),
                    };
                    passed.extend(held.drain(..len));
                }
                assert!(whole);
                assert_eq!(passed, *reply);
                assert_eq!(held, b":77\r\n");
            }
        }
    }

    #[test]
    fn bytes_of_a_bulk_may_go_another_way() {
        let mut framer = Framer::new();
        assert_eq!(framer.next(b"*2\r\n$1000\r\nab"), Ok(None));
        assert_eq!(framer.take_part(), 13);
        assert_eq!(framer.bulk_missing(), 1000);
        assert!(!framer.skip_bulk(998));
        assert_eq!(framer.next(b"\r\n:1\r\n:2\r\n"), Ok(Some(6)));
        for (reply, is_all) in [(&b"*2\r\n$1000\r\n"[..], false), (b"$1000\r\n", true)] {
            assert_eq!(framer.next(reply), Ok(None));
            assert_eq!(framer.take_part(), reply.len());
            assert!(!framer.skip_bulk(1001));
            assert_eq!(framer.skip_bulk(1), is_all);
            assert_eq!((framer.bulk_missing(), framer.is_between()), (0, is_all));
            assert_eq!(framer.next(b":1\r\n:2\r\n"), Ok(Some(4)));
        }
    }

    #[test]
    fn what_is_no_reply_is_an_error() {
        assert_eq!(
            Framer::new().next(b"HTTP/1.1 200\r\n"),
            Err(ReplyError::UnknownType(b'H'))
        );
        assert!(Framer::new().next(b"$x\r\n").is_err());
        let mut deep = Framer::new();
        let header = b"*9223372036854775807\r\n".repeat(3);
        assert_eq!(deep.next(&header), Err(ReplyError::TooDeep));
    }
}
