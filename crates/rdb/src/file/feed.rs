//! Bytes of a file as they arrive: a window over them that is refilled when a reader comes to its end, their offsets
//! and their checksum. Must not know records.

use super::read::{FileErrorKind, Source};
use crate::{
    crc64,
    primitive::{Extent, LENGTH_BYTES_MAX, Length, Reader, extent, length_bytes},
};

/// Room for bytes that a source is offered.
pub(super) const FILL_BYTES: usize = 256 << 10;
/// Room from which on it is given back once a long record is through.
const SPARE_BYTES: usize = 16 * FILL_BYTES;

type Result<T> = std::result::Result<T, FileErrorKind>;

/// The window. Bytes in front of the place [`Feed::keep`] are forgotten at times, none behind it.
pub(super) struct Feed<S> {
    source: S,
    window: Vec<u8>,
    /// Offset in the file of the window's beginning.
    offset: u64,
    /// Place in the window of the next byte.
    at: usize,
    /// Place in the window up to which bytes may be forgotten; at most `at`.
    kept: usize,
    /// Place in the window up to which bytes are in the checksum; from `kept` to `at` when bytes are forgotten.
    summed: usize,
    checksum: u64,
    /// The checksum is computed.
    pub(super) sums: bool,
}

impl<S: Source> Feed<S> {
    pub(super) fn new(source: S) -> Feed<S> {
        Feed {
            source,
            window: Vec::new(),
            offset: 0,
            at: 0,
            kept: 0,
            summed: 0,
            checksum: 0,
            sums: true,
        }
    }

    /// Returns the offset in the file of the next byte.
    pub(super) fn offset(&self) -> u64 {
        self.offset + self.at as u64
    }

    /// Keeps the bytes from here on.
    #[inline]
    pub(super) fn keep(&mut self) {
        self.kept = self.at;
    }

    /// Returns the number of bytes that were read since [`Feed::keep`].
    #[inline]
    pub(super) fn place(&self) -> usize {
        self.at - self.kept
    }

    /// Returns the bytes from the place where [`Feed::keep`] was called.
    #[inline]
    pub(super) fn since(&self) -> &[u8] {
        &self.window[self.kept..self.at]
    }

    /// Returns the checksum of all bytes that were read.
    pub(super) fn checksum(&mut self) -> u64 {
        if self.sums {
            self.checksum = crc64::update(self.checksum, &self.window[self.summed..self.at]);
        }
        self.summed = self.at;
        self.checksum
    }

    /// Returns the source, and the bytes from it that were not read.
    pub(super) fn into_parts(mut self) -> (S, Vec<u8>) {
        self.window.drain(..self.at);
        (self.source, self.window)
    }

    /// Returns the number of bytes for which the window has memory.
    #[cfg(test)]
    pub(super) fn room(&self) -> usize {
        self.window.capacity()
    }

    /// Asks the source for more bytes.
    #[cold]
    #[inline(never)]
    fn fill(&mut self) -> Result<()> {
        // Now, while they are in the cache.
        self.checksum();
        // Most of it is forgotten, so little is moved.
        if self.kept > 0 && self.kept >= self.window.len() / 2 {
            self.window.drain(..self.kept);
            self.offset += self.kept as u64;
            self.at -= self.kept;
            self.summed -= self.kept;
            self.kept = 0;
            if self.window.capacity() > SPARE_BYTES && self.window.len() <= FILL_BYTES {
                self.window.shrink_to(2 * FILL_BYTES);
            }
        }
        self.window.reserve(FILL_BYTES);
        let before = self.window.len();
        let read = self.source.fill(&mut self.window);
        assert!(self.window.len() >= before, "a source only appends");
        match read {
            Err(error) => Err(FileErrorKind::Io(error)),
            Ok(_) if self.window.len() == before => {
                self.at = before;
                Err(FileErrorKind::Cut)
            }
            Ok(_) => Ok(()),
        }
    }

    /// Waits until this number of bytes is there.
    #[inline]
    fn need(&mut self, bytes: usize) -> Result<()> {
        while self.window.len() - self.at < bytes {
            self.fill()?;
        }
        Ok(())
    }

    /// Reads this number of bytes, as an array.
    #[inline]
    pub(super) fn array<const N: usize>(&mut self) -> Result<[u8; N]> {
        self.need(N)?;
        let array = *self.window[self.at..]
            .first_chunk()
            .expect("they are there");
        self.at += N;
        Ok(array)
    }

    /// Reads one byte.
    #[inline]
    pub(super) fn byte(&mut self) -> Result<u8> {
        Ok(self.array::<1>()?[0])
    }

    /// Passes over this number of bytes.
    #[inline]
    pub(super) fn skip(&mut self, bytes: u64) -> Result<()> {
        if bytes <= (self.window.len() - self.at) as u64 {
            self.at += bytes as usize;
            return Ok(());
        }
        self.skip_beyond(bytes)
    }

    /// Passes over bytes that are not all there.
    #[inline(never)]
    fn skip_beyond(&mut self, mut bytes: u64) -> Result<()> {
        loop {
            let here = (self.window.len() - self.at) as u64;
            if bytes <= here {
                self.at += bytes as usize;
                return Ok(());
            }
            bytes -= here;
            self.at = self.window.len();
            self.fill()?;
        }
    }

    /// Reads a length, or the name of a form of strings in its place.
    #[inline]
    pub(super) fn length(&mut self) -> Result<Length> {
        if self.window.len() - self.at < LENGTH_BYTES_MAX {
            self.need(1)?;
            self.need(length_bytes(self.window[self.at]))?;
        }
        let mut reader = Reader::new(&self.window[self.at..]);
        let length = reader.length()?;
        self.at = self.window.len() - reader.remaining();
        Ok(length)
    }

    /// Reads a number in the form of a length.
    #[inline]
    pub(super) fn number(&mut self) -> Result<u64> {
        match self.length()? {
            Length::Plain(number) => Ok(number),
            Length::Encoded(_) => Err(FileErrorKind::Corrupt("a string where a length belongs")),
        }
    }

    /// Passes over a string.
    #[inline]
    pub(super) fn skip_string(&mut self) -> Result<()> {
        match self.length()? {
            Length::Plain(len) => self.skip(len),
            Length::Encoded(form) => self.skip_encoded(form),
        }
    }

    /// Passes over a string of a form that is no run of its bytes, whose name has been read.
    pub(super) fn skip_encoded(&mut self, form: u8) -> Result<()> {
        match extent(form)? {
            Extent::Bytes(bytes) => self.skip(bytes),
            Extent::Compressed => {
                let bytes = self.number()?;
                self.number()?;
                self.skip(bytes)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn offsets_and_the_checksum_are_those_of_all_bytes() {
        let mut random = fastrand::Rng::with_seed(1);
        let mut bytes = vec![0; 6 << 20];
        bytes.fill_with(|| random.u8(..));
        let mut feed = Feed::new(&bytes[..]);
        let (mut at, mut kept) = (0, 0);
        while at + (1 << 20) < bytes.len() {
            match random.u8(..4) {
                0 => {
                    feed.keep();
                    kept = at;
                }
                1 => {
                    let skipped = random.usize(..300_000);
                    feed.skip(skipped as u64).expect("as many bytes");
                    at += skipped;
                }
                _ => {
                    let four: [u8; 4] = feed.array().expect("four bytes");
                    assert_eq!(four, bytes[at..at + 4]);
                    at += 4;
                }
            }
            assert_eq!((feed.offset(), feed.place()), (at as u64, at - kept));
            assert_eq!(feed.since(), &bytes[kept..at]);
        }
        assert_eq!(feed.checksum(), crc64::update(0, &bytes[..at]));
        let (source, behind) = feed.into_parts();
        assert_eq!([&behind, source].concat(), &bytes[at..]);
    }

    #[test]
    fn a_length_at_the_end_is_read_without_the_bytes_behind_it() {
        for (bytes, expected) in [
            (&b"\x05"[..], 5),
            (b"\x41\x02", 258),
            (b"\x80\0\0\0\x07", 7),
            (b"\x81\0\0\0\0\0\0\0\x09", 9),
        ] {
            assert!(matches!(Feed::new(bytes).number(), Ok(number) if number == expected));
            for cut in 0..bytes.len() {
                let number = Feed::new(&bytes[..cut]).number();
                assert!(matches!(number, Err(FileErrorKind::Cut)));
            }
        }
    }
}
