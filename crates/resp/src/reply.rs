//! Writing of typed replies in the RESP version that a session speaks. Knows no commands and no sockets.

use std::ops::Range;

use memchr::memchr2;

use crate::args::Blob;
use crate::double::DoubleText;
use crate::reply_buffer::{Mark, ReplyBuffer, push_bulk, push_header};

/// Size from which on values are attached by reference; smaller ones are copied.
const BLOB_BYTES_MIN: usize = 16 * 1024;

/// Version of the protocol that a session has chosen.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Proto {
    /// Version of every new connection.
    #[default]
    Resp2,
    /// Chosen by `HELLO 3`.
    Resp3,
}

/// Typed writer of replies for handlers. Each type is written in the session's protocol version.
#[derive(Debug)]
pub struct Reply<'a> {
    out: &'a mut ReplyBuffer,
    proto: Proto,
}

impl<'a> Reply<'a> {
    /// Creates a writer to the end of `out`.
    #[inline]
    pub fn new(out: &'a mut ReplyBuffer, proto: Proto) -> Reply<'a> {
        Reply { out, proto }
    }

    /// Returns the version of the protocol that is written.
    #[inline]
    pub fn proto(&self) -> Proto {
        self.proto
    }

    /// Returns the buffer that is written to.
    #[inline]
    pub fn buffer(&mut self) -> &mut ReplyBuffer {
        self.out
    }

    /// Writes `+OK`.
    #[inline]
    pub fn ok(&mut self) {
        self.out.push_bytes(b"+OK\r\n");
    }

    /// Writes a status. Line ends inside become spaces.
    #[inline]
    pub fn simple(&mut self, text: &str) {
        self.line(b'+', text.as_bytes());
    }

    /// Writes an error: the whole line with its code, as `ERR no such key`. Line ends inside become spaces.
    pub fn error(&mut self, line: &str) {
        self.line(b'-', line.as_bytes());
    }

    /// Writes an error as [`Reply::error`] does, for a line that quotes a client's bytes, which may be any.
    pub fn error_bytes(&mut self, line: &[u8]) {
        self.line(b'-', line);
    }

    /// Writes an integer.
    #[inline]
    pub fn integer(&mut self, n: i64) {
        self.header(b':', n);
    }

    /// Writes a string.
    #[inline]
    pub fn bulk(&mut self, bytes: &[u8]) {
        push_bulk(self.out.tail(), bytes);
    }

    /// Writes a string that is held by reference until it is sent, if it is large.
    pub fn blob(&mut self, blob: &Blob) {
        self.blob_part(blob, 0..blob.len());
    }

    /// Writes a part of such a string.
    pub fn blob_part(&mut self, blob: &Blob, part: Range<usize>) {
        if part.len() < BLOB_BYTES_MIN {
            return self.bulk(&blob[part]);
        }
        self.header(b'$', part.len() as i64);
        self.out.push_blob(blob, part);
        self.out.push_bytes(b"\r\n");
    }

    /// Writes the null value.
    #[inline]
    pub fn null(&mut self) {
        self.out.push_bytes(match self.proto {
            Proto::Resp2 => b"$-1\r\n",
            Proto::Resp3 => b"_\r\n",
        });
    }

    /// Writes the null array, which RESP2 distinguishes from the null value.
    #[inline]
    pub fn null_array(&mut self) {
        self.out.push_bytes(match self.proto {
            Proto::Resp2 => b"*-1\r\n",
            Proto::Resp3 => b"_\r\n",
        });
    }

    /// Writes the header of an array; `n` replies follow.
    #[inline]
    pub fn array(&mut self, n: usize) {
        self.header(b'*', n as i64);
    }

    /// Writes the header of a map; `pairs` times two replies follow.
    #[inline]
    pub fn map(&mut self, pairs: usize) {
        let (kind, n) = map_head(self.proto, b'%', pairs);
        self.header(kind, n);
    }

    /// Writes the header of a set; `n` replies follow.
    #[inline]
    pub fn set(&mut self, n: usize) {
        self.header(aggregate_kind(self.proto, b'~'), n as i64);
    }

    /// Writes the header of a push message; `n` replies follow.
    #[inline]
    pub fn push(&mut self, n: usize) {
        self.header(aggregate_kind(self.proto, b'>'), n as i64);
    }

    /// Writes the header of attributes of the next reply. RESP2 has none: called in RESP3 only.
    pub fn attribute(&mut self, pairs: usize) {
        debug_assert_eq!(self.proto, Proto::Resp3, "RESP2 has no attributes");
        self.header(b'|', pairs as i64);
    }

    /// Writes a double.
    pub fn double(&mut self, value: f64) {
        match self.proto {
            Proto::Resp2 => self.bulk_double(value),
            Proto::Resp3 => {
                let tail = self.out.tail();
                tail.push(b',');
                tail.extend_from_slice(DoubleText::new(value).as_bytes());
                tail.extend_from_slice(b"\r\n");
            }
        }
    }

    /// Writes a double as a string, in both versions.
    pub fn bulk_double(&mut self, value: f64) {
        self.bulk(DoubleText::new(value).as_bytes());
    }

    /// Writes an integer as a string, in both versions.
    pub fn bulk_integer(&mut self, n: i64) {
        self.bulk(itoa::Buffer::new().format(n).as_bytes());
    }

    /// Writes a boolean.
    #[inline]
    pub fn bool(&mut self, value: bool) {
        self.out.push_bytes(match (self.proto, value) {
            (Proto::Resp2, false) => b":0\r\n",
            (Proto::Resp2, true) => b":1\r\n",
            (Proto::Resp3, false) => b"#f\r\n",
            (Proto::Resp3, true) => b"#t\r\n",
        });
    }

    /// Writes an integer of any size, in decimal.
    pub fn big_number(&mut self, digits: &str) {
        match self.proto {
            Proto::Resp2 => self.bulk(digits.as_bytes()),
            Proto::Resp3 => self.line(b'(', digits.as_bytes()),
        }
    }

    /// Writes a text with its format (three letters: `txt`, `mkd`).
    pub fn verbatim(&mut self, format: &str, text: &[u8]) {
        debug_assert_eq!(
            format.len(),
            3,
            "the format of a verbatim string has three letters"
        );
        match self.proto {
            Proto::Resp2 => self.bulk(text),
            Proto::Resp3 => {
                self.header(b'=', (text.len() + 4) as i64);
                let tail = self.out.tail();
                tail.extend_from_slice(format.as_bytes());
                tail.push(b':');
                tail.extend_from_slice(text);
                tail.extend_from_slice(b"\r\n");
            }
        }
    }

    /// Writes bytes that are a reply already.
    #[inline]
    pub fn raw(&mut self, bytes: &[u8]) {
        self.out.push_bytes(bytes);
    }

    /// Returns the present position, for a header that is known only after its elements.
    #[inline]
    pub fn mark(&self) -> Mark {
        self.out.mark()
    }

    /// Inserts the header of an array of the replies written since `mark`.
    pub fn insert_array_header(&mut self, mark: Mark, n: usize) {
        self.insert_header(mark, b'*', n as i64);
    }

    /// Inserts the header of a map of the replies written since `mark`.
    pub fn insert_map_header(&mut self, mark: Mark, pairs: usize) {
        let (kind, n) = map_head(self.proto, b'%', pairs);
        self.insert_header(mark, kind, n);
    }

    /// Inserts the header of a set of the replies written since `mark`.
    pub fn insert_set_header(&mut self, mark: Mark, n: usize) {
        self.insert_header(mark, aggregate_kind(self.proto, b'~'), n as i64);
    }

    /// Removes everything written since `mark`.
    pub fn truncate(&mut self, mark: Mark) {
        self.out.truncate(mark);
    }

    #[inline]
    fn header(&mut self, kind: u8, n: i64) {
        push_header(self.out.tail(), kind, n);
    }

    fn insert_header(&mut self, mark: Mark, kind: u8, n: i64) {
        let mut header = Vec::with_capacity(24);
        push_header(&mut header, kind, n);
        self.out.insert(mark, &header);
    }

    fn line(&mut self, kind: u8, text: &[u8]) {
        let tail = self.out.tail();
        tail.push(kind);
        let start = tail.len();
        tail.extend_from_slice(text);
        if memchr2(b'\r', b'\n', text).is_some() {
            tail[start..]
                .iter_mut()
                .filter(|c| matches!(c, b'\r' | b'\n'))
                .for_each(|c| *c = b' ');
        }
        tail.extend_from_slice(b"\r\n");
    }
}

/// Returns the type byte of an aggregate: an array in RESP2, a type of its own in RESP3.
#[inline]
fn aggregate_kind(proto: Proto, resp3: u8) -> u8 {
    match proto {
        Proto::Resp2 => b'*',
        Proto::Resp3 => resp3,
    }
}

#[inline]
fn map_head(proto: Proto, resp3: u8, pairs: usize) -> (u8, i64) {
    match proto {
        Proto::Resp2 => (b'*', 2 * pairs as i64),
        Proto::Resp3 => (resp3, pairs as i64),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn written(proto: Proto, write: impl FnOnce(&mut Reply<'_>)) -> String {
        let mut out = ReplyBuffer::new();
        write(&mut Reply::new(&mut out, proto));
        String::from_utf8_lossy(&out.chunks().collect::<Vec<_>>().concat()).into_owned()
    }

    /// Returns the text written in each version of the protocol.
    fn both(write: fn(&mut Reply<'_>)) -> [String; 2] {
        [Proto::Resp2, Proto::Resp3].map(|proto| written(proto, write))
    }

    #[test]
    fn types_that_both_versions_have() {
        assert_eq!(both(|reply| reply.ok()), ["+OK\r\n"; 2]);
        assert_eq!(both(|reply| reply.simple("QUEUED")), ["+QUEUED\r\n"; 2]);
        assert_eq!(both(|reply| reply.error("ERR no")), ["-ERR no\r\n"; 2]);
        assert_eq!(both(|reply| reply.integer(-7)), [":-7\r\n"; 2]);
        assert_eq!(both(|reply| reply.bulk(b"a\r\nb")), ["$4\r\na\r\nb\r\n"; 2]);
        assert_eq!(both(|reply| reply.bulk(b"")), ["$0\r\n\r\n"; 2]);
        assert_eq!(both(|reply| reply.array(3)), ["*3\r\n"; 2]);
        assert_eq!(both(|reply| reply.bulk_integer(42)), ["$2\r\n42\r\n"; 2]);
        assert_eq!(both(|reply| reply.bulk_double(0.5)), ["$3\r\n0.5\r\n"; 2]);
        assert_eq!(both(|reply| reply.raw(b":1\r\n")), [":1\r\n"; 2]);
    }

    #[test]
    fn types_that_resp2_writes_in_another_way() {
        assert_eq!(both(|reply| reply.null()), ["$-1\r\n", "_\r\n"]);
        assert_eq!(both(|reply| reply.null_array()), ["*-1\r\n", "_\r\n"]);
        assert_eq!(both(|reply| reply.map(2)), ["*4\r\n", "%2\r\n"]);
        assert_eq!(both(|reply| reply.set(2)), ["*2\r\n", "~2\r\n"]);
        assert_eq!(both(|reply| reply.push(2)), ["*2\r\n", ">2\r\n"]);
        assert_eq!(
            both(|reply| reply.double(1.5)),
            ["$3\r\n1.5\r\n", ",1.5\r\n"]
        );
        assert_eq!(
            both(|reply| reply.double(f64::INFINITY)),
            ["$3\r\ninf\r\n", ",inf\r\n"]
        );
        assert_eq!(both(|reply| reply.bool(true)), [":1\r\n", "#t\r\n"]);
        assert_eq!(both(|reply| reply.bool(false)), [":0\r\n", "#f\r\n"]);
        assert_eq!(
            both(|reply| reply.big_number("-12")),
            ["$3\r\n-12\r\n", "(-12\r\n"]
        );
        assert_eq!(
            both(|reply| reply.verbatim("txt", b"hi")),
            ["$2\r\nhi\r\n", "=6\r\ntxt:hi\r\n"]
        );
        assert_eq!(written(Proto::Resp3, |reply| reply.attribute(1)), "|1\r\n");
    }

    #[test]
    fn headers_have_the_right_number_at_every_size() {
        for n in [
            0,
            9,
            10,
            99,
            100,
            999,
            1000,
            9999,
            10_000,
            i64::MAX,
            -1,
            -10,
            i64::MIN,
        ] {
            assert_eq!(
                written(Proto::Resp2, |reply| reply.integer(n)),
                format!(":{n}\r\n")
            );
        }
        for len in (0..1100).chain([9999, 10_000, 123_456]) {
            let text = "x".repeat(len);
            let expected = format!("${len}\r\n{text}\r\n");
            assert_eq!(
                written(Proto::Resp2, |reply| reply.bulk(text.as_bytes())),
                expected
            );
        }
    }

    #[test]
    fn a_line_stays_a_line() {
        assert_eq!(
            both(|reply| reply.error("ERR a\r\nb\nc\r")),
            ["-ERR a  b c \r\n"; 2]
        );
        assert_eq!(both(|reply| reply.simple("a\nb")), ["+a b\r\n"; 2]);
        let mut out = ReplyBuffer::new();
        Reply::new(&mut out, Proto::Resp2).error_bytes(b"ERR \xff");
        assert_eq!(out.bytes(), b"-ERR \xff\r\n");
    }

    #[test]
    fn large_blobs_are_attached_and_small_ones_copied() {
        let (small, large) = (
            Blob::new(vec![b's'; 100]),
            Blob::new(vec![b'l'; BLOB_BYTES_MIN]),
        );
        let mut out = ReplyBuffer::new();
        let mut reply = Reply::new(&mut out, Proto::Resp2);
        reply.blob(&small);
        reply.blob(&large);
        reply.blob_part(&large, 1..11);
        assert_eq!(
            (Blob::strong_count(&small), Blob::strong_count(&large)),
            (1, 2)
        );
        let bytes = out.chunks().collect::<Vec<_>>().concat();
        let header = format!("${BLOB_BYTES_MIN}\r\n");
        let expected = [
            &b"$100\r\n"[..],
            &small,
            b"\r\n",
            header.as_bytes(),
            &large,
            b"\r\n$10\r\nllllllllll\r\n",
        ];
        assert_eq!(bytes, expected.concat());
    }

    #[test]
    fn a_header_can_come_after_its_elements() {
        let nested = |proto| {
            written(proto, |reply| {
                let outer = reply.mark();
                for n in 0..2 {
                    let inner = reply.mark();
                    reply.integer(n);
                    reply.integer(n);
                    reply.insert_map_header(inner, 1);
                }
                let undone = reply.mark();
                reply.bulk(b"undone");
                reply.truncate(undone);
                reply.insert_set_header(outer, 2);
                reply.insert_array_header(outer, 1);
            })
        };
        assert_eq!(
            nested(Proto::Resp2),
            "*1\r\n*2\r\n*2\r\n:0\r\n:0\r\n*2\r\n:1\r\n:1\r\n"
        );
        assert_eq!(
            nested(Proto::Resp3),
            "*1\r\n~2\r\n%1\r\n:0\r\n:0\r\n%1\r\n:1\r\n:1\r\n"
        );
        assert_eq!(
            written(Proto::Resp2, |reply| reply
                .insert_array_header(reply.mark(), 0)),
            "*0\r\n"
        );
    }
}
