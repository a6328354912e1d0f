//! A snapshot on its way over the link: where it ends, by its length or by a mark.
//!
//! Must not know: what is in it, where it is kept.

use memchr::memmem;

/// Bytes of a mark.
const MARK_BYTES: usize = 40;

/// The part of a snapshot that is still to come.
#[derive(Debug)]
pub(super) enum Transfer {
    /// So many bytes.
    Length(u64),
    /// Everything up to a mark that the primary has drawn.
    Mark {
        /// The mark.
        mark: [u8; MARK_BYTES],
        /// The newest bytes, in which it may begin; fewer than it has.
        tail: Vec<u8>,
    },
}

/// Part of some bytes that belongs to a transfer.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Taken {
    /// Number of bytes that belong to it, the mark included.
    pub(super) bytes: usize,
    /// It has ended: so many of all bytes that belonged to it, the last ones, are the mark.
    pub(super) ended: Option<usize>,
}

impl Transfer {
    /// Reads the line before a snapshot, without its end. `None`: it is none.
    pub(super) fn parse(line: &[u8]) -> Option<Transfer> {
        let rest = line.strip_prefix(b"$")?;
        if let Some(mark) = rest.strip_prefix(b"EOF:") {
            let mark = mark.try_into().ok()?;
            let tail = Vec::new();
            return Some(Transfer::Mark { mark, tail });
        }
        let digits = std::str::from_utf8(rest).ok()?;
        let is_number = !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit());
        let length = digits
            .parse()
            .ok()
            .filter(|length| is_number && *length > 0)?;
        Some(Transfer::Length(length))
    }

    /// Takes bytes that have come.
    pub(super) fn take(&mut self, bytes: &[u8]) -> Taken {
        match self {
            Transfer::Length(left) => {
                let taken =
                    usize::try_from(*left).map_or(bytes.len(), |left| left.min(bytes.len()));
                *left -= taken as u64;
                Taken {
                    bytes: taken,
                    ended: (*left == 0).then_some(0),
                }
            }
            Transfer::Mark { mark, tail } => {
                let end = end_of_mark(mark, tail, bytes);
                if end.is_none() {
                    remember(tail, bytes);
                }
                Taken {
                    bytes: end.unwrap_or(bytes.len()),
                    ended: end.map(|_| MARK_BYTES),
                }
            }
        }
    }
}

/// Returns where the mark ends in `bytes`; it may have begun in the tail before them.
fn end_of_mark(mark: &[u8; MARK_BYTES], tail: &[u8], bytes: &[u8]) -> Option<usize> {
    let head = &bytes[..bytes.len().min(MARK_BYTES - 1)];
    let seam = [tail, head].concat();
    if let Some(at) = memmem::find(&seam, mark) {
        return Some(at + MARK_BYTES - tail.len());
    }
    memmem::find(bytes, mark).map(|at| at + MARK_BYTES)
}

/// Keeps the last bytes: one fewer than a mark has.
fn remember(tail: &mut Vec<u8>, bytes: &[u8]) {
    let newest = &bytes[bytes.len().saturating_sub(MARK_BYTES - 1)..];
    tail.extend_from_slice(newest);
    let surplus = tail.len().saturating_sub(MARK_BYTES - 1);
    tail.drain(..surplus);
}

#[cfg(test)]
mod tests {
    use super::*;

    const MARK: &[u8; MARK_BYTES] = b"0123456789abcdef0123456789abcdef01234567";

    fn parse(line: &[u8]) -> Transfer {
        Transfer::parse(line).expect("a header")
    }

    fn marked() -> Transfer {
        parse(&[b"$EOF:", MARK.as_slice()].concat())
    }

    #[test]
    fn lines_that_are_no_header_are_refused() {
        let lines: [&[u8]; 10] = [
            b"",
            b"$",
            b"$0",
            b"$-1",
            b"$+1",
            b"$1x",
            b"EOF:",
            b"$EOF:short",
            b"$99999999999999999999",
            b"+OK",
        ];
        for line in lines {
            assert!(Transfer::parse(line).is_none(), "{}", line.escape_ascii());
        }
    }

    #[test]
    fn a_length_ends_it_and_what_follows_is_left() {
        let mut transfer = parse(b"$5");
        assert_eq!(
            transfer.take(b"abc"),
            Taken {
                bytes: 3,
                ended: None
            }
        );
        let rest = transfer.take(b"defg");
        assert_eq!(
            rest,
            Taken {
                bytes: 2,
                ended: Some(0)
            }
        );
    }

    #[test]
    fn a_mark_is_found_wherever_it_is_cut() {
        // The contents end with the beginning of the mark, twice.
        let contents = [b"REDIS0011".as_slice(), &MARK[..20], &MARK[..39]].concat();
        let all = [contents.as_slice(), MARK, b"*1\r\n"].concat();
        let end = contents.len() + MARK_BYTES;
        for first in 0..=all.len() {
            for second in [
                first,
                (first + 3).min(all.len()),
                (first + 45).min(all.len()),
            ] {
                let mut transfer = marked();
                let (mut at, mut ended) = (0, None);
                for piece in [&all[..first], &all[first..second], &all[second..]] {
                    if ended.is_none() && !piece.is_empty() {
                        let taken = transfer.take(piece);
                        at += taken.bytes;
                        ended = taken.ended;
                    }
                }
                assert_eq!(
                    (at, ended),
                    (end, Some(MARK_BYTES)),
                    "cut at {first}, {second}"
                );
            }
        }
    }

    #[test]
    fn bytes_that_come_one_by_one_are_kept_no_longer_than_a_mark() {
        let mut transfer = marked();
        for _ in 0..1000 {
            assert_eq!(
                transfer.take(b"x"),
                Taken {
                    bytes: 1,
                    ended: None
                }
            );
        }
        let Transfer::Mark { tail, .. } = &transfer else {
            panic!("it is marked");
        };
        assert_eq!(tail.len(), MARK_BYTES - 1);
    }
}
