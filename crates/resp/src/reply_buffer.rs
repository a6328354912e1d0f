//! The output of a session: bytes in order, with large values by reference between them. Knows no RESP version and no socket.

use std::collections::VecDeque;
use std::io::IoSlice;
use std::ops::Range;

use crate::args::Blob;

/// Large value among the bytes.
#[derive(Clone, Debug)]
struct Attached {
    /// Offset in `bytes` before which the value is sent.
    at: usize,
    blob: Blob,
    /// Part of the value that is still to be sent.
    part: Range<usize>,
}

/// Position in a [`ReplyBuffer`], which can be returned to while nothing has been sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Mark {
    bytes: usize,
    blobs: usize,
}

/// Replies to be sent: contiguous bytes, and blobs that are sent without a copy.
#[derive(Clone, Debug, Default)]
pub struct ReplyBuffer {
    bytes: Vec<u8>,
    /// Number of bytes that were sent.
    sent: usize,
    blobs: VecDeque<Attached>,
    blob_bytes: usize,
}

impl ReplyBuffer {
    /// Creates an empty buffer; it allocates when something is written.
    pub fn new() -> ReplyBuffer {
        ReplyBuffer::default()
    }

    /// Returns true if nothing waits to be sent.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.len_bytes() == 0
    }

    /// Returns the number of bytes that wait to be sent, those in blobs included.
    #[inline]
    pub fn len_bytes(&self) -> usize {
        self.bytes.len() - self.sent + self.blob_bytes
    }

    /// Returns the bytes of memory that this buffer holds; blobs count, although they may be shared.
    pub fn heap_bytes(&self) -> usize {
        self.bytes.capacity()
            + self.blobs.capacity() * size_of::<Attached>()
            + self
                .blobs
                .iter()
                .map(|attached| attached.blob.len())
                .sum::<usize>()
    }

    /// Returns the bytes to send up to the first blob: everything, if [`ReplyBuffer::has_blobs`] is false.
    #[inline]
    pub fn bytes(&self) -> &[u8] {
        let end = self
            .blobs
            .front()
            .map_or(self.bytes.len(), |attached| attached.at);
        &self.bytes[self.sent..end]
    }

    /// Returns true if one contiguous write is not enough.
    #[inline]
    pub fn has_blobs(&self) -> bool {
        !self.blobs.is_empty()
    }

    /// Returns the number of large values that wait to be sent.
    #[inline]
    pub fn blob_count(&self) -> usize {
        self.blobs.len()
    }

    /// Returns the number of bytes that wait to be sent, without those in blobs.
    pub fn plain_bytes(&self) -> usize {
        self.bytes.len() - self.sent
    }

    /// Returns everything to send, in order, without empty pieces.
    pub fn chunks(&self) -> impl Iterator<Item = &[u8]> {
        let starts =
            std::iter::once(self.sent).chain(self.blobs.iter().map(|attached| attached.at));
        let blobs = self.blobs.iter().map(Some).chain(std::iter::once(None));
        starts
            .zip(blobs)
            .flat_map(|(start, attached)| match attached {
                Some(attached) => [
                    &self.bytes[start..attached.at],
                    &attached.blob[attached.part.clone()],
                ],
                None => [&self.bytes[start..], &[]],
            })
            .filter(|chunk| !chunk.is_empty())
    }

    /// Fills `slices` with the first bytes to send, for a vectored write; returns the number of slices used.
    pub fn io_slices<'a>(&'a self, slices: &mut [IoSlice<'a>]) -> usize {
        let mut used = 0;
        for (slice, chunk) in slices.iter_mut().zip(self.chunks()) {
            *slice = IoSlice::new(chunk);
            used += 1;
        }
        used
    }

    /// Removes the first `written` bytes, which have been sent.
    #[inline]
    pub fn advance(&mut self, written: usize) {
        debug_assert!(written <= self.len_bytes(), "more was sent than was there");
        if written == self.len_bytes() {
            self.clear();
        } else {
            self.advance_within(written);
        }
    }

    fn advance_within(&mut self, written: usize) {
        self.count_sent(written);
        if self.sent > self.bytes.len() / 2 {
            // For a client that never catches up the sent bytes must not stay; a byte is moved at most once for every
            // byte that was sent.
            self.drop_sent();
        }
    }

    fn count_sent(&mut self, mut written: usize) {
        while let Some(first) = self.blobs.front_mut() {
            let before = (first.at - self.sent).min(written);
            self.sent += before;
            written -= before;
            let inside = first.part.len().min(written);
            first.part.start += inside;
            self.blob_bytes -= inside;
            written -= inside;
            if self.sent < first.at || !first.part.is_empty() {
                return;
            }
            self.blobs.pop_front();
        }
        self.sent += written;
    }

    /// Empties the buffer and keeps its allocation.
    #[inline]
    pub fn clear(&mut self) {
        self.bytes.clear();
        self.sent = 0;
        self.blob_bytes = 0;
        if !self.blobs.is_empty() {
            self.blobs.clear();
        }
    }

    /// Returns true if the buffer holds memory, empty or not.
    #[inline]
    pub fn has_memory(&self) -> bool {
        self.bytes.capacity() + self.blobs.capacity() > 0
    }

    /// Gives memory to a buffer without any, so that the next reply need not allocate: a few allocations serve all
    /// sessions of a worker in turn.
    #[inline]
    pub fn lend(&mut self, memory: Vec<u8>) {
        debug_assert!(!self.has_memory() && memory.is_empty());
        self.bytes = memory;
    }

    /// Takes all memory out of an empty buffer, and returns it to be lent again.
    #[inline]
    pub fn give_back(&mut self) -> Vec<u8> {
        debug_assert!(self.is_empty());
        self.clear();
        if self.blobs.capacity() > 0 {
            self.blobs = VecDeque::new();
        }
        std::mem::take(&mut self.bytes)
    }

    /// Frees memory beyond `bytes_max` (and beyond the waiting bytes).
    pub fn shrink(&mut self, bytes_max: usize) {
        if self.bytes.capacity() > bytes_max {
            self.drop_sent();
            self.bytes.shrink_to(bytes_max);
            self.blobs.shrink_to_fit();
        }
    }

    fn drop_sent(&mut self) {
        self.bytes.drain(..self.sent);
        self.blobs
            .iter_mut()
            .for_each(|attached| attached.at -= self.sent);
        self.sent = 0;
    }

    /// Moves everything that waits in `other` to the end of this buffer.
    pub fn append(&mut self, other: &mut ReplyBuffer) {
        if other.is_empty() {
            return other.clear();
        }
        let (base, sent) = (self.bytes.len(), other.sent);
        self.bytes.extend_from_slice(&other.bytes[sent..]);
        self.blobs
            .extend(other.blobs.drain(..).map(|attached| Attached {
                at: base + attached.at - sent,
                ..attached
            }));
        self.blob_bytes += other.blob_bytes;
        other.clear();
    }

    /// Appends bytes as they are.
    #[inline]
    pub fn push_bytes(&mut self, bytes: &[u8]) {
        self.bytes.extend_from_slice(bytes);
    }

    /// Appends a part of a blob by reference.
    pub fn push_blob(&mut self, blob: &Blob, part: Range<usize>) {
        assert!(
            part.start <= part.end && part.end <= blob.len(),
            "a part of the blob"
        );
        if !part.is_empty() {
            self.blob_bytes += part.len();
            self.blobs.push_back(Attached {
                at: self.bytes.len(),
                blob: Blob::clone(blob),
                part,
            });
        }
    }

    /// Returns the position after the last byte written.
    #[inline]
    pub fn mark(&self) -> Mark {
        Mark {
            bytes: self.bytes.len(),
            blobs: self.blobs.len(),
        }
    }

    /// Returns the bytes written since `mark`, up to the first blob among them.
    pub fn bytes_since(&self, mark: Mark) -> &[u8] {
        let blob = self.blobs.get(mark.blobs);
        &self.bytes[mark.bytes..blob.map_or(self.bytes.len(), |blob| blob.at)]
    }

    /// Removes everything written since `mark`.
    pub fn truncate(&mut self, mark: Mark) {
        self.bytes.truncate(mark.bytes);
        let undone: usize = self
            .blobs
            .drain(mark.blobs..)
            .map(|attached| attached.part.len())
            .sum();
        self.blob_bytes -= undone;
    }

    /// Inserts `bytes` at `mark`, before everything written since.
    pub fn insert(&mut self, mark: Mark, bytes: &[u8]) {
        let end = self.bytes.len();
        self.bytes.extend_from_slice(bytes);
        if end > mark.bytes {
            self.bytes[mark.bytes..].rotate_right(bytes.len());
        }
        self.blobs
            .range_mut(mark.blobs..)
            .for_each(|attached| attached.at += bytes.len());
    }

    /// Returns the bytes to which encoders append.
    #[inline]
    pub(crate) fn tail(&mut self) -> &mut Vec<u8> {
        &mut self.bytes
    }
}

/// Headers of the numbers below 100, and zeros up to eight bytes; the kind byte is filled in later.
static SHORT_HEADERS: [[u8; 8]; 100] = {
    let mut headers = [[0; 8]; 100];
    let mut n = 0;
    while n < 100 {
        let (tens, ones) = (b'0' + n as u8 / 10, b'0' + n as u8 % 10);
        headers[n] = match n {
            0..10 => [0, ones, b'\r', b'\n', 0, 0, 0, 0],
            _ => [0, tens, ones, b'\r', b'\n', 0, 0, 0],
        };
        n += 1;
    }
    headers
};

/// Appends `<kind><n>\r\n`. Numbers of up to two digits, as in nearly all headers, cost one store of a fixed size.
#[inline]
pub fn push_header(out: &mut Vec<u8>, kind: u8, n: i64) {
    match SHORT_HEADERS.get(n as usize) {
        Some(header) => {
            let mut header = *header;
            header[0] = kind;
            let end = out.len() + if n < 10 { 4 } else { 5 };
            out.extend_from_slice(&header);
            out.truncate(end);
        }
        None => push_long_header(out, kind, n),
    }
}

fn push_long_header(out: &mut Vec<u8>, kind: u8, n: i64) {
    out.push(kind);
    out.extend_from_slice(itoa::Buffer::new().format(n).as_bytes());
    out.extend_from_slice(b"\r\n");
}

/// Appends `$<len>\r\n`, the bytes and `\r\n`.
#[inline]
pub(crate) fn push_bulk(out: &mut Vec<u8>, bytes: &[u8]) {
    out.reserve(bytes.len() + 32);
    push_header(out, b'$', bytes.len() as i64);
    out.extend_from_slice(bytes);
    out.extend_from_slice(b"\r\n");
}

#[cfg(test)]
mod tests {
    use super::*;

    fn waiting(buffer: &ReplyBuffer) -> Vec<u8> {
        buffer.chunks().flatten().copied().collect()
    }

    /// Compares the buffer with a plain vector of bytes under the same operations.
    #[test]
    fn it_behaves_like_one_row_of_bytes() {
        let mut rng = fastrand::Rng::with_seed(3);
        let blob = Blob::new((0..200).collect::<Vec<u8>>());
        for _ in 0..3000 {
            let (mut buffer, mut model) = (ReplyBuffer::new(), Vec::new());
            for _ in 0..rng.usize(..30) {
                match rng.u8(..8) {
                    0 | 1 => {
                        let bytes = vec![rng.u8(..); rng.usize(..20)];
                        buffer.push_bytes(&bytes);
                        model.extend(bytes);
                    }
                    2 | 3 => {
                        let start = rng.usize(..=blob.len());
                        let part = start..rng.usize(start..=blob.len());
                        buffer.push_blob(&blob, part.clone());
                        model.extend_from_slice(&blob[part]);
                    }
                    4 => {
                        let written = rng.usize(..=model.len());
                        buffer.advance(written);
                        model.drain(..written);
                    }
                    5 => buffer.shrink(rng.usize(..100)),
                    6 => {
                        let (mark, at) = (buffer.mark(), model.len());
                        buffer.push_bytes(b"abc");
                        buffer.push_blob(&blob, 7..9);
                        if rng.bool() {
                            buffer.truncate(mark);
                        } else {
                            buffer.insert(mark, b"head");
                            model.splice(at.., [&b"headabc"[..], &[7, 8]].concat());
                        }
                    }
                    _ => {
                        let mut other = ReplyBuffer::new();
                        other.push_bytes(b"0123");
                        other.push_blob(&blob, 1..5);
                        other.push_bytes(b"45");
                        other.advance(rng.usize(..10));
                        model.extend(waiting(&other));
                        buffer.append(&mut other);
                        assert!(other.is_empty());
                    }
                }
                assert_eq!(waiting(&buffer), model);
                assert_eq!(buffer.len_bytes(), model.len());
                assert_eq!(buffer.is_empty(), model.is_empty());
                assert_eq!(&model[..buffer.bytes().len()], buffer.bytes());
                assert!(buffer.has_blobs() || buffer.bytes() == model);
            }
        }
    }

    #[test]
    fn slices_for_a_vectored_write_are_the_first_that_fit() {
        let (mut buffer, blob) = (ReplyBuffer::new(), Blob::new(b"blob".to_vec()));
        for _ in 0..3 {
            buffer.push_bytes(b"ab");
            buffer.push_blob(&blob, 0..4);
        }
        let mut slices = [IoSlice::new(&[]); 4];
        assert_eq!(buffer.io_slices(&mut slices), 4);
        assert_eq!(
            slices.map(|slice| slice.to_vec()),
            [&b"ab"[..], b"blob", b"ab", b"blob"]
        );
        buffer.advance(9);
        let mut slices = [IoSlice::new(&[]); 9];
        let used = buffer.io_slices(&mut slices);
        assert_eq!(
            slices[..used]
                .iter()
                .flat_map(|slice| slice.to_vec())
                .collect::<Vec<_>>(),
            b"lobabblob"
        );
    }

    #[test]
    fn blobs_are_let_go_when_they_are_sent() {
        let (mut buffer, blob) = (ReplyBuffer::new(), Blob::new(vec![0; 10]));
        buffer.push_blob(&blob, 0..10);
        buffer.push_bytes(b"x");
        buffer.advance(9);
        assert_eq!(Blob::strong_count(&blob), 2);
        buffer.advance(1);
        assert_eq!(Blob::strong_count(&blob), 1);
        assert_eq!(buffer.bytes(), b"x");
    }

    #[test]
    fn a_client_that_never_catches_up_holds_only_what_it_has_not_read() {
        let mut buffer = ReplyBuffer::new();
        buffer.push_bytes(&[0; 5000]);
        for _ in 0..10_000 {
            buffer.push_bytes(&[0; 100]);
            buffer.advance(100);
        }
        assert_eq!(buffer.len_bytes(), 5000);
        assert!(buffer.heap_bytes() < 25_000);
    }

    #[test]
    fn memory_is_given_back() {
        let mut buffer = ReplyBuffer::new();
        buffer.push_bytes(&[0; 100_000]);
        buffer.advance(99_990);
        buffer.shrink(1000);
        assert!(buffer.heap_bytes() < 2000);
        assert_eq!(buffer.len_bytes(), 10);
        buffer.advance(10);
        assert!(buffer.is_empty());
    }
}
