//! memcached's text protocol: its replies, counted without parsing values. Knows no sockets.
//!
//! Requests are encoded by `workload::template`.

use redline_resp::{Outcome, ReplyError};

use crate::load::failure::said;

/// Counts the replies of one connection, and keeps the text of the first error.
#[derive(Clone, Debug, Default)]
pub struct TextSkipper {
    /// Missing bytes of an item's data, its line end included.
    jump: usize,
    /// Number of items of the incomplete reply.
    found: u32,
    first_error: Option<String>,
}

/// Largest line: a key has 250 bytes at most.
const LINE_BYTES_MAX: usize = 8 * 1024;
/// Largest item, whatever its header claims.
const ITEM_BYTES_MAX: usize = 1 << 30;

impl TextSkipper {
    /// Returns the text of the first reply that was an error.
    pub fn first_error(&self) -> &str {
        self.first_error.as_deref().unwrap_or_default()
    }

    /// Skips all complete parts of `buf`, and reports each complete reply. The caller drops as many bytes as this
    /// returns, and keeps the rest: the start of a line.
    #[inline]
    pub fn skip_each(
        &mut self,
        buf: &[u8],
        mut on_reply: impl FnMut(Outcome),
    ) -> Result<usize, ReplyError> {
        let mut at = 0;
        loop {
            let step = self.jump.min(buf.len() - at);
            (at, self.jump) = (at + step, self.jump - step);
            if self.jump > 0 {
                return Ok(at);
            }
            let Some(length) = buf[at..].iter().position(|&byte| byte == b'\n') else {
                let fits = buf.len() - at <= LINE_BYTES_MAX;
                return fits.then_some(at).ok_or(ReplyError::InvalidEnd);
            };
            let line = buf[at..at + length].trim_ascii_end();
            at += length + 1;
            if let Some(outcome) = self.line(line)? {
                on_reply(outcome);
            }
        }
    }

    /// Takes a line; returns the reply's outcome if the line ends one.
    fn line(&mut self, line: &[u8]) -> Result<Option<Outcome>, ReplyError> {
        let word = line.split(|&byte| byte == b' ').next().unwrap_or_default();
        Ok(Some(match word {
            b"VALUE" => {
                // VALUE key flags bytes, and a number behind them for `gets`
                let bytes = line.split(|&byte| byte == b' ').nth(3);
                let bytes = bytes.and_then(|bytes| std::str::from_utf8(bytes).ok()?.parse().ok());
                let bytes = bytes.filter(|&bytes: &usize| bytes <= ITEM_BYTES_MAX);
                self.jump = bytes.ok_or(ReplyError::InvalidNumber)? + 2;
                self.found = self.found.saturating_add(1);
                return Ok(None);
            }
            b"STAT" => {
                self.found = self.found.saturating_add(1);
                return Ok(None);
            }
            b"END" if self.found > 0 => Outcome::Array {
                elements: std::mem::take(&mut self.found),
                nulls: 0,
            },
            b"END" | b"NOT_FOUND" | b"NOT_STORED" | b"EXISTS" => Outcome::Null,
            b"STORED" | b"DELETED" | b"TOUCHED" | b"OK" | b"VERSION" => Outcome::Value,
            b"ERROR" | b"CLIENT_ERROR" | b"SERVER_ERROR" => {
                let text = || said(line);
                self.first_error.get_or_insert_with(text);
                self.found = 0;
                Outcome::Error
            }
            number if !number.is_empty() && number.iter().all(u8::is_ascii_digit) => Outcome::Value,
            other => {
                let byte = other.first().copied().unwrap_or(b'\n');
                return Err(ReplyError::UnknownType(byte));
            }
        }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const REPLIES: &[u8] =
        b"STORED\r\nVALUE a 0 5\r\nEND\r\n\r\nVALUE b 0 0\r\n\r\nEND\r\nEND\r\nNOT_FOUND\r\n17\r\n\
                             CLIENT_ERROR bad data chunk\r\nERROR\r\nDELETED\r\n";

    #[test]
    fn replies_are_told_wherever_they_are_cut() {
        use Outcome::{Error, Null, Value};
        let items = Outcome::Array {
            elements: 2,
            nulls: 0,
        };
        let expected = [Value, items, Null, Null, Value, Error, Error, Value];
        for piece in [1, 2, 3, 7, REPLIES.len()] {
            let (mut skipper, mut told, mut held) =
                (TextSkipper::default(), Vec::new(), Vec::new());
            for bytes in REPLIES.chunks(piece) {
                held.extend_from_slice(bytes);
                let consumed = skipper
                    .skip_each(&held, |outcome| told.push(outcome))
                    .unwrap();
                held.drain(..consumed);
            }
            assert_eq!(told, expected, "in pieces of {piece}");
            assert_eq!(skipper.first_error(), "CLIENT_ERROR bad data chunk");
        }
    }

    #[test]
    fn what_is_no_reply_is_refused() {
        for wrong in [
            &b"$5\r\n"[..],
            b"VALUE a 0 x\r\n",
            b"VALUE a 0\r\n",
            b"VALUE a 0 99999999999\r\n",
            b"\r\n",
        ] {
            let skipped = TextSkipper::default().skip_each(wrong, |_| {});
            assert!(skipped.is_err(), "{}", wrong.escape_ascii());
        }
        let endless = vec![b'x'; LINE_BYTES_MAX + 1];
        assert!(TextSkipper::default().skip_each(&endless, |_| {}).is_err());
    }
}
