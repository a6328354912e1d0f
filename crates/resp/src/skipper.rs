//! Counts replies without decoding them: for the load generator. Knows no commands and no sockets.

use crate::number::small_number;
use crate::reply_decoder::{ReplyError, length, line};

/// Length up to which lines are searched byte by byte, which is faster for so few.
const SHORT_LINE_BYTES_MAX: usize = 24;
/// Number of bytes of the first error that are kept.
const ERROR_BYTES_MAX: usize = 1024;

/// Result of one call of [`Skipper::skip`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Skipped {
    /// Number of bytes to remove from the front of the buffer; the rest is the start of a line.
    pub consumed: usize,
    /// Number of replies that became complete, push messages excluded.
    pub replies: u64,
    /// Number of errors among them.
    pub errors: u64,
}

/// Kind of a reply, as far as a load generator distinguishes them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// A reply that is no array, set or map.
    Value,
    /// An array, set or map without elements.
    Empty,
    /// An array, set or map that is not empty.
    Array {
        /// Number of its own elements; of a map, keys and values.
        elements: u32,
        /// Number of nulls in it, at any depth: for a read of many keys, the misses.
        nulls: u32,
    },
    /// Null, in any of its forms: for a read, a miss.
    Null,
    /// An error.
    Error,
}

/// Beginning and length of an element: most are like the one before them.
struct Pattern {
    /// First bytes, little-endian, with a mask of those that are more than the text of a bulk.
    head: u64,
    mask: u64,
    /// Length of the whole element.
    bytes: usize,
    kind: Outcome,
}

impl Pattern {
    /// Pattern of no element.
    const NONE: Pattern = Pattern {
        head: 1,
        mask: 0,
        bytes: 0,
        kind: Outcome::Value,
    };

    /// Returns the pattern of an element of `bytes` bytes at the start of `buf`, whose first `head` bytes decide its
    /// length; that of no element if they are too many, or the buffer ends with them.
    #[inline(always)]
    fn of(buf: &[u8], head: usize, bytes: usize, kind: Outcome) -> Pattern {
        let Some(&first) = buf.first_chunk::<8>().filter(|first| head <= first.len()) else {
            return Pattern::NONE;
        };
        let mask = u64::MAX >> (64 - 8 * head);
        Pattern {
            head: u64::from_le_bytes(first) & mask,
            mask,
            bytes,
            kind,
        }
    }

    /// Returns the end of the element at `at`, if it is complete and begins as this one did.
    #[inline(always)]
    fn end(&self, buf: &[u8], at: usize) -> Option<usize> {
        let rest = &buf[at..];
        let first = u64::from_le_bytes(*rest.first_chunk()?);
        (first & self.mask == self.head && self.bytes <= rest.len()).then_some(at + self.bytes)
    }
}

/// Counts the replies of one connection, and remembers the text of the first error.
///
/// It builds no tree: the number of elements missing until the reply is complete is one number, at any nesting.
#[derive(Clone, Debug, Default)]
pub struct Skipper {
    /// Number of elements missing until the reply is complete; 0 between replies.
    missing: u64,
    /// Number of elements of the array that is the reply, followed by that of the nulls in it.
    elements: u64,
    nulls: u64,
    /// Number of bytes missing until the bulk is complete, its line end included.
    jump: usize,
    /// True if the reply that is incomplete is a push message.
    in_push: bool,
    /// True if the reply that is incomplete is an error.
    in_error: bool,
    /// Number of bytes at the front of the buffer that are known to hold no line end.
    scanned: usize,
    first_error: Option<Vec<u8>>,
    /// True if the bulk that is skipped is the text of the first error.
    keep_text: bool,
}

impl Skipper {
    /// Creates a skipper at the start of a reply.
    pub fn new() -> Skipper {
        Skipper::default()
    }

    /// Returns the text of the first reply that was an error, without its `-`.
    pub fn first_error(&self) -> Option<&[u8]> {
        self.first_error.as_deref()
    }

    /// Takes that text, so that the next error is the first again. Called between replies.
    pub fn take_first_error(&mut self) -> Option<Vec<u8>> {
        self.first_error.take()
    }

    /// Skips everything in `buf` that is complete. The caller removes the consumed bytes and keeps the rest.
    pub fn skip(&mut self, buf: &[u8]) -> Result<Skipped, ReplyError> {
        self.skip_each(buf, |_| {})
    }

    /// Works as [`Skipper::skip`]; calls `on_reply` for each reply that became complete, in order.
    #[inline]
    pub fn skip_each(
        &mut self,
        buf: &[u8],
        mut on_reply: impl FnMut(Outcome),
    ) -> Result<Skipped, ReplyError> {
        let mut skipped = Skipped::default();
        loop {
            if self.jump > 0 {
                self.skip_bulk(buf, &mut skipped, &mut on_reply);
                if self.jump > 0 {
                    return Ok(skipped);
                }
            }
            if !self.in_push {
                self.skip_common(buf, &mut skipped, &mut on_reply);
            }
            let line = line(buf, skipped.consumed, &mut self.scanned)?;
            let Some(line) = line else { return Ok(skipped) };
            skipped.consumed = line.end;
            self.element(line.kind, line.text, &mut skipped, &mut on_reply)?;
        }
    }

    /// Skips complete elements of the commonest forms: statuses, integers, null, and bulks and arrays with a number of
    /// up to four digits. Stops at anything else, where nothing has been consumed yet.
    #[inline]
    fn skip_common(
        &mut self,
        buf: &[u8],
        skipped: &mut Skipped,
        on_reply: &mut impl FnMut(Outcome),
    ) {
        let (mut at, mut missing, mut replies) = (skipped.consumed, self.missing, 0);
        let mut last = Pattern::NONE;
        loop {
            // A run of elements like the last one. The one that completes a reply is not included, unless all are replies.
            let most = missing.wrapping_sub(1);
            let mut run = 0;
            while run < most
                && let Some(end) = last.end(buf, at)
            {
                at = end;
                run += 1;
            }
            if missing == 0 {
                replies += run;
                (0..run).for_each(|_| on_reply(last.kind));
            } else {
                missing -= run;
                self.nulls += if last.kind == Outcome::Null { run } else { 0 };
            }
            let Some((head, end, elements, kind)) = common_element(buf, at) else {
                break;
            };
            if elements == 0 {
                last = Pattern::of(&buf[at..], head - at, end - at, kind);
            }
            let Some(after) = missing.max(1).checked_add(elements) else {
                break;
            };
            at = end;
            if missing == 0 {
                self.elements = elements;
            }
            // Within an array, a null is an element like any other, and is counted.
            let kind = match (missing, kind) {
                (0, kind) => kind,
                (_, Outcome::Null) => {
                    self.nulls += 1;
                    Outcome::Value
                }
                _ => Outcome::Value,
            };
            missing = after - 1;
            if missing == 0 {
                replies += 1;
                on_reply(self.with_elements(kind));
            }
        }
        if at > skipped.consumed {
            self.scanned = 0;
        }
        (skipped.consumed, self.missing) = (at, missing);
        skipped.replies += replies;
    }

    /// Skips the part of a bulk and its line end that has arrived.
    fn skip_bulk(&mut self, buf: &[u8], skipped: &mut Skipped, on_reply: &mut impl FnMut(Outcome)) {
        let rest = &buf[skipped.consumed..];
        let step = self.jump.min(rest.len());
        if self.keep_text
            && let Some(text) = &mut self.first_error
        {
            let room = ERROR_BYTES_MAX.saturating_sub(text.len());
            text.extend_from_slice(&rest[..step.min(self.jump.saturating_sub(2)).min(room)]);
        }
        skipped.consumed += step;
        self.jump -= step;
        if self.jump == 0 {
            self.keep_text = false;
            self.element_done(Outcome::Value, skipped, on_reply);
        }
    }

    fn element(
        &mut self,
        kind: u8,
        text: &[u8],
        skipped: &mut Skipped,
        on_reply: &mut impl FnMut(Outcome),
    ) -> Result<(), ReplyError> {
        let top = self.missing == 0;
        self.missing += u64::from(top);
        let n = match kind {
            b'$' | b'*' if text == b"-1" => 0,
            b'$' | b'!' | b'=' => {
                self.jump = length(text)?
                    .checked_add(2)
                    .ok_or(ReplyError::InvalidNumber)?;
                if top && kind == b'!' {
                    self.keep_text = self.first_error.is_none();
                    self.error(b"");
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
            // An attribute is no element: the element after it is still to come.
            b'|' => (length(text)? as u64)
                .checked_mul(2)
                .and_then(|n| n.checked_add(1))
                .ok_or(ReplyError::TooDeep)?,
            b'-' => {
                if top {
                    self.error(text);
                }
                0
            }
            b'+' | b':' | b'_' | b'#' | b',' | b'(' => 0,
            other => return Err(ReplyError::UnknownType(other)),
        };
        self.missing = self.missing.checked_add(n).ok_or(ReplyError::TooDeep)?;
        if top {
            self.elements = n;
        }
        // Only a null that is the whole reply counts as one; after an attribute (not `top`) it is taken for an element.
        let is_null = kind == b'_' || (matches!(kind, b'$' | b'*') && text == b"-1");
        self.nulls += u64::from(is_null && !top);
        let outcome = match kind {
            _ if !top => Outcome::Value,
            _ if is_null => Outcome::Null,
            b'*' | b'~' | b'%' if n == 0 => Outcome::Empty,
            _ => Outcome::Value,
        };
        self.element_done(outcome, skipped, on_reply);
        Ok(())
    }

    #[inline]
    fn element_done(
        &mut self,
        outcome: Outcome,
        skipped: &mut Skipped,
        on_reply: &mut impl FnMut(Outcome),
    ) {
        self.missing -= 1;
        if self.missing == 0 {
            let outcome = self.with_elements(outcome);
            if !self.in_push {
                skipped.replies += 1;
                on_reply(if self.in_error {
                    Outcome::Error
                } else {
                    outcome
                });
            }
            skipped.errors += u64::from(self.in_error);
            (self.in_push, self.in_error) = (false, false);
        }
    }

    /// Returns the outcome of a complete reply.
    #[inline]
    fn with_elements(&mut self, outcome: Outcome) -> Outcome {
        let elements = std::mem::take(&mut self.elements);
        if elements == 0 {
            return outcome;
        }
        let bounded = |number: u64| u32::try_from(number).unwrap_or(u32::MAX);
        Outcome::Array {
            elements: bounded(elements),
            nulls: bounded(std::mem::take(&mut self.nulls)),
        }
    }

    fn error(&mut self, text: &[u8]) {
        self.in_error = true;
        self.first_error
            .get_or_insert_with(|| text[..text.len().min(ERROR_BYTES_MAX)].to_vec());
    }
}

/// Returns the element at `at` if it is complete and of a common form: the end of its header, its own end, the number
/// of elements that it contains, which follow, and its kind.
#[inline(always)]
fn common_element(buf: &[u8], at: usize) -> Option<(usize, usize, u64, Outcome)> {
    use Outcome::{Empty, Null, Value};
    Some(match small_number(buf, at) {
        Some((b'$', len, body)) if body + len + 2 <= buf.len() => (body, body + len + 2, 0, Value),
        Some((b':', _, end)) => (end, end, 0, Value),
        Some((b'*', 0, end)) => (end, end, 0, Empty),
        Some((b'*', n, end)) => (end, end, n as u64, Value),
        _ if buf[at..].starts_with(b"+OK\r\n") => (at + 5, at + 5, 0, Value),
        _ if buf[at..].starts_with(b"$-1\r\n") => (at + 5, at + 5, 0, Null),
        _ => {
            let end = short_line_end(buf, at)?;
            (end, end, 0, Value)
        }
    })
}

/// Returns the end of the status or the integer at `at`, if that is near.
#[inline]
pub(crate) fn short_line_end(buf: &[u8], at: usize) -> Option<usize> {
    let [b'+' | b':', line @ ..] = &buf[at..] else {
        return None;
    };
    let end = line
        .iter()
        .take(SHORT_LINE_BYTES_MAX)
        .position(|&c| c == b'\n')?;
    (end > 0 && line[end - 1] == b'\r').then_some(at + 1 + end + 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn skip(input: &str) -> (Skipped, Skipper) {
        let mut skipper = Skipper::new();
        (skipper.skip(input.as_bytes()).unwrap(), skipper)
    }

    /// Returns the outcomes of the replies in `input`, which arrives in pieces.
    fn outcomes(input: &str, piece: usize) -> Vec<Outcome> {
        let (mut skipper, mut seen, mut held) = (Skipper::new(), Vec::new(), Vec::new());
        for chunk in input.as_bytes().chunks(piece) {
            held.extend_from_slice(chunk);
            let skipped = skipper.skip_each(&held, |outcome| seen.push(outcome));
            held.drain(..skipped.unwrap().consumed);
        }
        assert_eq!(held, b"");
        seen
    }

    #[test]
    fn every_type_counts_once() {
        let replies = [
            "+OK\r\n",
            "+PONG\r\n",
            "+\r\n",
            "-ERR x\r\n",
            ":1\r\n",
            ":-123456\r\n",
            "$0\r\n\r\n",
            "$3\r\nxxx\r\n",
            "$4\r\n\r\n\r\n\r\n",
            "$-1\r\n",
            "*-1\r\n",
            "*0\r\n",
            "*2\r\n:1\r\n$1\r\nx\r\n",
            "*2\r\n*0\r\n*1\r\n*1\r\n+x\r\n",
            "_\r\n",
            "#t\r\n",
            ",1.5\r\n",
            "(12345678901234567890\r\n",
            "!5\r\nERR x\r\n",
            "=7\r\ntxt:abc\r\n",
            "%2\r\n+a\r\n:1\r\n+b\r\n*1\r\n_\r\n",
            "%0\r\n",
            "~2\r\n:1\r\n:2\r\n",
            "|1\r\n+ttl\r\n:9\r\n$1\r\nx\r\n",
            "*2\r\n|1\r\n+ttl\r\n:9\r\n:1\r\n:2\r\n",
        ];
        for reply in replies {
            let (skipped, _) = skip(reply);
            assert_eq!(
                (skipped.consumed, skipped.replies),
                (reply.len(), 1),
                "{reply:?}"
            );
        }
        let (skipped, _) = skip(&replies.concat());
        assert_eq!(
            (skipped.consumed, skipped.replies),
            (replies.concat().len(), replies.len() as u64)
        );
    }

    #[test]
    fn each_reply_is_told_with_its_kind_in_order() {
        use Outcome::{Array, Empty, Error, Null, Value};
        let input = "+OK\r\n$-1\r\n:5\r\n-ERR x\r\n*2\r\n$-1\r\n$1\r\na\r\n*-1\r\n_\r\n\
                     >2\r\n+a\r\n_\r\n!5\r\nERR x\r\n%1\r\n+a\r\n_\r\n$3\r\nabc\r\n*0\r\n\
                     *3\r\n$-1\r\n$1\r\na\r\n*-1\r\n*2\r\n_\r\n*2\r\n_\r\n$-1\r\n*1\r\n+a\r\n+x\r\n$-1\r\n\
                     ~0\r\n%0\r\n*1\r\n*0\r\n";
        let array = |elements, nulls| Array { elements, nulls };
        #[rustfmt::skip]
        let expected = [
            Value, Null, Value, Error, array(2, 1), Null, Null, Error, array(2, 1), Value, Empty,
            array(3, 2), array(2, 3), array(1, 0), Value, Null, Empty, Empty, array(1, 0),
        ];
        for piece in [1, 2, 3, 7, input.len()] {
            assert_eq!(outcomes(input, piece), expected, "in pieces of {piece}");
        }
    }

    #[test]
    fn elements_alike_and_others_behind_them_are_told_one_by_one() {
        use Outcome::{Array, Empty, Error, Null, Value};
        let elements = [
            ("+OK\r\n", Value),
            ("+O\r\n", Value),
            ("+PONG\r\n", Value),
            ("+longer than eight\r\n", Value),
            (":1\r\n", Value),
            (":12\r\n", Value),
            (":1234567\r\n", Value),
            ("$1\r\nx\r\n", Value),
            ("$1\r\n$\r\n", Value),
            ("$11\r\n$1\r\nx\r\n$1\r\n\r\n", Value),
            ("$-1\r\n", Null),
            ("_\r\n", Null),
            ("*0\r\n", Empty),
            ("-ERR x\r\n", Error),
        ];
        for (one, kind) in elements {
            for (other, other_kind) in elements {
                let run = format!("{}{}{one}", one.repeat(3), other.repeat(2));
                let kinds = [kind, kind, kind, other_kind, other_kind, kind];
                let nulls = kinds.iter().filter(|&&kind| kind == Null).count() as u32;
                let input = format!("{run}*6\r\n{run}{run}*2\r\n{other}*6\r\n{run}{other}");
                let arrays = [(6, nulls), (2, nulls + u32::from(other_kind == Null))];
                let [first, second] = arrays.map(|(elements, nulls)| Array { elements, nulls });
                let expected = [&kinds[..], &[first], &kinds, &[second, other_kind]].concat();
                for piece in [1, 5, 30, input.len()] {
                    assert_eq!(outcomes(&input, piece), expected, "{input:?} in {piece}");
                }
            }
        }
    }

    #[test]
    fn push_messages_are_no_replies() {
        let (skipped, _) = skip("+OK\r\n>2\r\n+invalidate\r\n*1\r\n$1\r\nk\r\n:1\r\n>0\r\n");
        assert_eq!(skipped.replies, 2);
    }

    #[test]
    fn the_first_error_is_remembered() {
        let (skipped, skipper) = skip("+OK\r\n-NOAUTH first\r\n:1\r\n-ERR second\r\n");
        assert_eq!((skipped.replies, skipped.errors), (4, 2));
        assert_eq!(skipper.first_error(), Some(&b"NOAUTH first"[..]));
    }

    #[test]
    fn an_error_that_was_taken_makes_room_for_the_next() {
        let (_, mut skipper) = skip("-MOVED 1 a:1\r\n");
        assert_eq!(skipper.take_first_error(), Some(b"MOVED 1 a:1".to_vec()));
        assert_eq!(skipper.take_first_error(), None);
        skipper.skip(b"-ERR second\r\n").unwrap();
        assert_eq!(skipper.first_error(), Some(&b"ERR second"[..]));
    }

    #[test]
    fn the_text_of_a_bulk_error_is_remembered_across_pieces() {
        let mut skipper = Skipper::new();
        for piece in ["!21\r\nSYNTAX inv", "alid syn", "tax\r"] {
            assert_eq!(skipper.skip(piece.as_bytes()).unwrap().errors, 0);
        }
        let whole = Skipped {
            consumed: 1,
            replies: 1,
            errors: 1,
        };
        assert_eq!(skipper.skip(b"\n"), Ok(whole));
        assert_eq!(skipper.first_error(), Some(&b"SYNTAX invalid syntax"[..]));
    }

    #[test]
    fn an_error_inside_an_array_is_not_the_reply() {
        let (skipped, skipper) = skip("*2\r\n-ERR inside\r\n+OK\r\n");
        assert_eq!(
            (skipped.replies, skipped.errors, skipper.first_error()),
            (1, 0, None)
        );
    }

    #[test]
    fn a_large_bulk_is_consumed_as_it_comes() {
        let mut skipper = Skipper::new();
        assert_eq!(
            skipper.skip(b"$1000000\r\nxx").unwrap(),
            Skipped {
                consumed: 12,
                ..Skipped::default()
            }
        );
        let rest = [&vec![b'x'; 999_998][..], b"\r\n+OK\r"].concat();
        assert_eq!(
            skipper.skip(&rest).unwrap(),
            Skipped {
                consumed: 1_000_000,
                replies: 1,
                errors: 0
            }
        );
        assert_eq!(
            skipper.skip(b"+OK\r\n").unwrap(),
            Skipped {
                consumed: 5,
                replies: 1,
                errors: 0
            }
        );
    }

    #[test]
    fn nested_headers_cannot_overflow_the_count() {
        let deep = format!("*{}\r\n", i64::MAX).repeat(3);
        assert_eq!(
            Skipper::new().skip(deep.as_bytes()),
            Err(ReplyError::TooDeep)
        );
        let wide = format!("%{}\r\n", i64::MAX);
        assert!(Skipper::new().skip(wide.as_bytes()).is_ok());
        let (skipped, _) = skip(&"*1\r\n".repeat(100_000));
        assert_eq!((skipped.consumed, skipped.replies), (400_000, 0));
    }

    #[test]
    fn garbage_is_an_error() {
        for (input, error) in [
            ("hello\r\n", ReplyError::UnknownType(b'h')),
            ("\r\n", ReplyError::UnknownType(b'\r')),
            ("$x\r\n", ReplyError::InvalidNumber),
            ("$-2\r\n", ReplyError::InvalidNumber),
            ("%-1\r\n", ReplyError::InvalidNumber),
            ("*?\r\n", ReplyError::InvalidNumber),
            ("+OK\n", ReplyError::InvalidEnd),
        ] {
            assert_eq!(
                Skipper::new().skip(input.as_bytes()),
                Err(error),
                "{input:?}"
            );
        }
    }
}
