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
