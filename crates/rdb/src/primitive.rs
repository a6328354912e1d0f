//! Lengths, strings and numbers of the serialised form. Must not know their meaning.
//!
//! A length is one to nine bytes; the upper two bits of the first say how many. If both are set, it is a string that is
//! an integer or compressed.

use std::{
    borrow::Cow,
    ops::{Deref, DerefMut},
};

use redline_types::{IntBuf, number};

use crate::{Corrupt, ensure, lzf};

/// Length of the longest text of an integer that is stored as an integer.
const INTEGER_TEXT_MAX: usize = 11;
/// Length up to which strings are not compressed; longer ones are, if that saves at least [`COMPRESSION_GAIN_MIN`].
const COMPRESSION_BYTES_MIN: usize = 20;
const COMPRESSION_GAIN_MIN: usize = 4;
/// Memory for compressed forms that a writer keeps.
const SMALL_BYTES_KEPT: usize = 64 << 10;

const ENCODED: u8 = 0xc0;
const INT8: u8 = 0;
const INT16: u8 = 1;
const INT32: u8 = 2;
const COMPRESSED: u8 = 3;

/// Output of a value: its bytes, and if strings are compressed.
#[derive(Clone, Debug)]
pub struct Writer {
    bytes: Vec<u8>,
    compresses: bool,
    /// The value leaves its database.
    is_alone: bool,
    /// Memory for the compressed form of a string.
    small: Vec<u8>,
}

impl Writer {
    /// Creates an empty writer. `compresses`: long strings are compressed, where that helps (`rdbcompression`).
    pub fn new(compresses: bool) -> Writer {
        Writer {
            bytes: Vec::new(),
            compresses,
            is_alone: false,
            small: Vec::new(),
        }
    }

    /// Creates an empty writer for a value that leaves its database: what it has of other keys is left out.
    pub fn of_payload(compresses: bool) -> Writer {
        Writer {
            is_alone: true,
            ..Writer::new(compresses)
        }
    }

    /// Returns true if the value leaves its database.
    pub fn is_alone(&self) -> bool {
        self.is_alone
    }

    /// Returns the bytes that were written.
    pub fn into_bytes(self) -> Vec<u8> {
        self.bytes
    }
}

impl Deref for Writer {
    type Target = Vec<u8>;

    fn deref(&self) -> &Vec<u8> {
        &self.bytes
    }
}

impl DerefMut for Writer {
    fn deref_mut(&mut self) -> &mut Vec<u8> {
        &mut self.bytes
    }
}

/// Appends a length.
pub fn write_len(out: &mut Vec<u8>, len: u64) {
    match len {
        0..0x40 => out.push(len as u8),
        0x40..0x4000 => out.extend_from_slice(&(0x4000 | len as u16).to_be_bytes()),
        0x4000..=0xffff_ffff => {
            out.push(0x80);
            out.extend_from_slice(&(len as u32).to_be_bytes());
        }
        _ => {
            out.push(0x81);
            out.extend_from_slice(&len.to_be_bytes());
        }
    }
}

/// Appends a string in its shortest form.
pub fn write_string(out: &mut Writer, text: &[u8]) {
    if text.len() <= INTEGER_TEXT_MAX
        && let Some(value) = number::parse_i64(text)
        && write_integer(out, value)
    {
        return;
    }
    if out.compresses && text.len() > COMPRESSION_BYTES_MIN {
        let Writer { bytes, small, .. } = out;
        let bytes_max = text.len() - COMPRESSION_GAIN_MIN;
        let is_small = lzf::compress_to(small, text, bytes_max).is_some();
        if is_small {
            bytes.push(ENCODED | COMPRESSED);
            write_len(bytes, small.len() as u64);
            write_len(bytes, text.len() as u64);
            bytes.extend_from_slice(small);
        }
        // What a long string needed is not kept.
        if small.capacity() > SMALL_BYTES_KEPT {
            *small = Vec::new();
        }
        if is_small {
            return;
        }
    }
    write_len(out, text.len() as u64);
    out.extend_from_slice(text);
}

fn write_integer(out: &mut Vec<u8>, value: i64) -> bool {
    if let Ok(value) = i8::try_from(value) {
        out.push(ENCODED | INT8);
        out.extend_from_slice(&value.to_le_bytes());
    } else if let Ok(value) = i16::try_from(value) {
        out.push(ENCODED | INT16);
        out.extend_from_slice(&value.to_le_bytes());
    } else if let Ok(value) = i32::try_from(value) {
        out.push(ENCODED | INT32);
        out.extend_from_slice(&value.to_le_bytes());
    } else {
        return false;
    }
    true
}

/// Reader of the bytes that are left.
#[derive(Clone, Copy, Debug)]
pub struct Reader<'a> {
    rest: &'a [u8],
}

/// Number of bytes of the longest length.
pub(crate) const LENGTH_BYTES_MAX: usize = 9;

const UNKNOWN_STRING: Corrupt = Corrupt("an unknown form of a string");

/// The beginning of a string.
pub(crate) enum Length {
    /// So many bytes follow.
    Plain(u64),
    /// A string of this form follows.
    Encoded(u8),
}

/// Returns the number of bytes of a length that begins with this one.
pub(crate) fn length_bytes(first: u8) -> usize {
    match first {
        0..0x40 => 1,
        0x40..0x80 => 2,
        0x80 => 5,
        0x81 => LENGTH_BYTES_MAX,
        _ => 1,
    }
}

/// The extent of a string that is no run of its bytes.
pub(crate) enum Extent {
    /// So many bytes.
    Bytes(u64),
    /// A length, the length of the text, and as many bytes as the first says.
    Compressed,
}

/// Returns the extent of a string of a form that is no run of its bytes.
pub(crate) fn extent(form: u8) -> Result<Extent, Corrupt> {
    match form {
        INT8 => Ok(Extent::Bytes(1)),
        INT16 => Ok(Extent::Bytes(2)),
        INT32 => Ok(Extent::Bytes(4)),
        COMPRESSED => Ok(Extent::Compressed),
        _ => Err(UNKNOWN_STRING),
    }
}

impl<'a> Reader<'a> {
    /// Creates a reader of these bytes.
    pub fn new(bytes: &'a [u8]) -> Reader<'a> {
        Reader { rest: bytes }
    }

    /// Returns true if everything is read.
    pub fn is_empty(&self) -> bool {
        self.rest.is_empty()
    }

    /// Reads this number of bytes.
    pub fn bytes(&mut self, len: usize) -> Result<&'a [u8], Corrupt> {
        let (bytes, rest) = self.rest.split_at_checked(len).ok_or(Corrupt("cut off"))?;
        self.rest = rest;
        Ok(bytes)
    }

    /// Reads this number of bytes, as an array.
    pub fn array<const N: usize>(&mut self) -> Result<[u8; N], Corrupt> {
        let (bytes, rest) = self.rest.split_first_chunk().ok_or(Corrupt("cut off"))?;
        self.rest = rest;
        Ok(*bytes)
    }

    /// Reads one byte.
    pub fn byte(&mut self) -> Result<u8, Corrupt> {
        Ok(self.array::<1>()?[0])
    }

    /// Reads a number in the form of a length.
    pub fn number(&mut self) -> Result<u64, Corrupt> {
        match self.length()? {
            Length::Plain(len) => Ok(len),
            Length::Encoded(_) => Err(Corrupt("a string where a length belongs")),
        }
    }

    /// Reads the number of elements that follow. Each takes at least one byte, so one above the bytes left is refused.
    pub fn count(&mut self) -> Result<usize, Corrupt> {
        let count = usize::try_from(self.number()?).unwrap_or(usize::MAX);
        ensure(count <= self.rest.len(), "more elements than bytes")?;
        Ok(count)
    }

    /// Reads a string.
    pub fn string(&mut self) -> Result<Cow<'a, [u8]>, Corrupt> {
        match self.length()? {
            Length::Plain(len) => {
                let len = usize::try_from(len).unwrap_or(usize::MAX);
                self.bytes(len).map(Cow::Borrowed)
            }
            Length::Encoded(form) => {
                let mut text = Vec::new();
                self.encoded_string(form, &mut text)?;
                Ok(Cow::Owned(text))
            }
        }
    }

    /// Reads a string of a form that is no run of its bytes, and appends it.
    pub(crate) fn encoded_string(&mut self, form: u8, text: &mut Vec<u8>) -> Result<(), Corrupt> {
        let value = match form {
            COMPRESSED => {
                let small = self.number()?;
                let len = usize::try_from(self.number()?).unwrap_or(usize::MAX);
                let small = self.bytes(usize::try_from(small).unwrap_or(usize::MAX))?;
                return lzf::decompress_to(text, small, len).ok_or(Corrupt("a compressed string"));
            }
            INT8 => i64::from(i8::from_le_bytes(self.array()?)),
            INT16 => i64::from(i16::from_le_bytes(self.array()?)),
            INT32 => i64::from(i32::from_le_bytes(self.array()?)),
            _ => return Err(UNKNOWN_STRING),
        };
        text.extend_from_slice(IntBuf::new().format(value));
        Ok(())
    }

    /// Reads a double in eight bytes.
    pub fn double(&mut self) -> Result<f64, Corrupt> {
        Ok(f64::from_le_bytes(self.array()?))
    }

    /// Reads a double as text after its length; three lengths stand for values without digits.
    pub fn double_as_text(&mut self) -> Result<f64, Corrupt> {
        match self.byte()? {
            253 => Ok(f64::NAN),
            254 => Ok(f64::INFINITY),
            255 => Ok(f64::NEG_INFINITY),
            len => {
                let text = self.bytes(usize::from(len))?;
                number::parse_f64(text).ok_or(Corrupt("a score"))
            }
        }
    }

    /// Returns the number of bytes that are left.
    pub(crate) fn remaining(&self) -> usize {
        self.rest.len()
    }

    /// Reads a length, or the name of a form of strings in its place.
    #[inline]
    pub(crate) fn length(&mut self) -> Result<Length, Corrupt> {
        let first = self.byte()?;
        Ok(Length::Plain(match first >> 6 {
            0 => u64::from(first),
            1 => u64::from(first & 0x3f) << 8 | u64::from(self.byte()?),
            2 if first == 0x80 => u64::from(u32::from_be_bytes(self.array()?)),
            2 if first == 0x81 => u64::from_be_bytes(self.array()?),
            2 => return Err(Corrupt("an unknown form of a length")),
            _ => return Ok(Length::Encoded(first & 0x3f)),
        }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lengths_come_back() {
        for len in [0, 63, 64, 16_383, 16_384, 0xffff_ffff, 1 << 32, u64::MAX] {
            let mut out = Vec::new();
            write_len(&mut out, len);
            let mut reader = Reader::new(&out);
            assert_eq!(reader.number(), Ok(len));
            assert!(reader.is_empty());
        }
    }

    #[test]
    fn strings_come_back() {
        let long = b"abcabcabcabcabcabcabcabcabcabcabcabc";
        for (text, bytes) in [
            (&b""[..], 1),
            (b"hello", 6),
            (b"-128", 2),
            (b"32767", 3),
            (b"-2147483648", 5),
            (b"2147483648", 11),
            (b"007", 4),
            (long, 14),
        ] {
            let plain_bytes = if text == long { long.len() + 1 } else { bytes };
            for (compresses, bytes) in [(true, bytes), (false, plain_bytes)] {
                let mut out = Writer::new(compresses);
                write_string(&mut out, text);
                assert_eq!(out.len(), bytes, "{text:?}");
                let mut reader = Reader::new(&out);
                assert_eq!(reader.string().as_deref(), Ok(text));
                assert!(reader.is_empty());
            }
        }
    }

    #[test]
    fn claims_are_not_believed() {
        for bytes in [
            &b""[..],
            b"\x05abc",
            b"\x80\xff\xff\xff\xff",
            b"\x81\xff\xff\xff\xff\xff\xff\xff\xff",
            b"\x82\0\0\0\0",
            b"\xc0",
            b"\xc4",
            b"\xc3\x02\x81\x7f\xff\xff\xff\xff\xff\xff\xff\x00a",
            b"\xc3\x81\xff\xff\xff\xff\xff\xff\xff\xff\x01a",
        ] {
            assert!(Reader::new(bytes).string().is_err(), "{bytes:?}");
        }
        assert!(Reader::new(b"\x80\xff\xff\xff\xff").count().is_err());
    }
}
