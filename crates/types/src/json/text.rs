//! JSON as text: reading by `serde_json`, whose errors are those that clients of Redis know, and writing. Must not know
//! paths.

use std::{cell::RefCell, collections::HashMap, fmt};

use serde::de::{DeserializeSeed, Deserializer, Error, MapAccess, SeqAccess, Visitor};

use serde_json::de::{Deserializer as Reader, Read};

use super::{
    ARRAY, FALSE, INDEXED_MEMBERS_MIN, Item, Json, LONG, NULL, Names, OBJECT, PAIR, Place, SHORT,
    TAG_BITS, TRUE, tag_of,
};
use crate::IntBuf;

/// Bytes of the memory for reading that a thread keeps.
const BUILDER_BYTES_MAX: usize = 64 * 1024;

thread_local! {
    /// Memory in which documents are read: what is kept is a copy of the right size.
    static BUILDER: RefCell<Builder> = RefCell::default();
}

/// A text that is not JSON: what, and where.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ParseError(String);

impl fmt::Display for ParseError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// The space between the parts of a text; none by default.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Layout<'a> {
    /// Bytes before an element, once for each array and object around it.
    pub indent: &'a [u8],
    /// Bytes before a line.
    pub newline: &'a [u8],
    /// Bytes behind the colon of a name.
    pub space: &'a [u8],
}

impl Json {
    /// Reads a document. What stands behind it is not looked at, as in Redis.
    ///
    /// # Errors
    ///
    /// If the text does not begin with a value, or is nested above [`DEPTH_MAX`](super::DEPTH_MAX).
    pub fn parse(text: &[u8]) -> Result<Json, ParseError> {
        BUILDER.with_borrow_mut(|builder| {
            // Strings of what is UTF-8 need no check one by one.
            let root = match str::from_utf8(text) {
                Ok(text) => builder.read(Reader::from_str(text)),
                Err(_) => builder.read(Reader::from_slice(text)),
            };
            let json = root.map(|root| {
                let mut json = builder.json.clone();
                json.words[0] = root;
                json
            });
            builder.clear();
            json.map_err(|error| ParseError(error.to_string()))
        })
    }

    /// Returns the shortest text of the document.
    pub fn to_text(&self) -> Vec<u8> {
        let mut out = Vec::new();
        self.write(Place::ROOT, &Layout::default(), 0, &mut out);
        out
    }

    /// Appends the text of the value at a place, which is in so many arrays and objects of the text.
    pub fn write(&self, place: Place, layout: &Layout<'_>, level: usize, out: &mut Vec<u8>) {
        let (json, word) = (self, self.words[place.0]);
        if place == Place::ROOT {
            out.reserve(self.text_bytes());
        }
        match *layout == Layout::default() {
            true => Writer::<true> { json, layout }.word(word, level, out),
            false => Writer::<false> { json, layout }.word(word, level, out),
        }
    }

    /// Returns about the number of bytes of the shortest text.
    fn text_bytes(&self) -> usize {
        self.text.len() + 6 * self.words.len()
    }
}

/// Writer of texts of a document; `PLAIN` if there is no space between their parts.
struct Writer<'a, const PLAIN: bool> {
    json: &'a Json,
    layout: &'a Layout<'a>,
}

impl<const PLAIN: bool> Writer<'_, PLAIN> {
    #[inline]
    fn line(&self, level: usize, out: &mut Vec<u8>) {
        if !PLAIN {
            out.extend_from_slice(self.layout.newline);
            (0..level).for_each(|_| out.extend_from_slice(self.layout.indent));
        }
    }

    #[inline]
    fn string(&self, word: u64, out: &mut Vec<u8>) {
        match tag_of(word) {
            SHORT => write_short(word, out),
            _ => write_string(&self.json.text_of(word), out),
        }
    }

    fn word(&self, word: u64, level: usize, out: &mut Vec<u8>) {
        match tag_of(word) {
            SHORT | LONG => self.string(word, out),
            ARRAY | OBJECT => self.block(word, level, out),
            _ => match self.json.item(word) {
                Item::Bool(true) => out.extend_from_slice(b"true"),
                Item::Bool(false) => out.extend_from_slice(b"false"),
                Item::Integer(n) => out.extend_from_slice(IntBuf::new().format(n)),
                Item::Unsigned(n) => {
                    out.extend_from_slice(itoa::Buffer::new().format(n).as_bytes());
                }
                Item::Double(n) => write_double(n, out),
                _ => out.extend_from_slice(b"null"),
            },
        }
    }

    fn block(&self, word: u64, level: usize, out: &mut Vec<u8>) {
        let block = self.json.block(word);
        let (width, open, close) = match tag_of(word) {
            ARRAY => (1, b'[', b']'),
            _ => (PAIR, b'{', b'}'),
        };
        out.push(open);
        let elements = &self.json.words[block.first()..block.first() + width * block.len];
        for (at, element) in elements.chunks_exact(width).enumerate() {
            if at > 0 {
                out.push(b',');
            }
            self.line(level + 1, out);
            if let [name, _] = element {
                self.string(*name, out);
                out.push(b':');
                if !PLAIN {
                    out.extend_from_slice(self.layout.space);
                }
            }
            self.word(element[width - 1], level + 1, out);
        }
        if block.len > 0 {
            self.line(level, out);
        }
        out.push(close);
    }
}

/// Appends the shortest text of a double that JSON has, which is never that of an integer.
pub(super) fn write_double(n: f64, out: &mut Vec<u8>) {
    let mut buffer = zmij::Buffer::new();
    let text = buffer.format_finite(n);
    let (digits, exponent) = text.split_once("e+").unwrap_or((text, ""));
    out.extend_from_slice(digits.as_bytes());
    if !exponent.is_empty() {
        out.push(b'e');
        out.extend_from_slice(exponent.as_bytes());
    }
}

/// One in each byte.
const EACH: u64 = u64::from_le_bytes([1; 8]);

/// Returns a word that is not 0 if one of eight bytes does not stand for itself in a string: the lowest bit that is set is
/// in the first of them.
#[inline]
fn special(bytes: u64) -> u64 {
    let below = |bytes: u64, limit: u8| bytes.wrapping_sub(EACH * u64::from(limit)) & !bytes;
    let is = |byte: u8| below(bytes ^ (EACH * u64::from(byte)), 1);
    (below(bytes, b' ') | is(b'"') | is(b'\\')) & (EACH << 7)
}

/// Appends a string that lies in a word.
#[inline]
fn write_short(word: u64, out: &mut Vec<u8>) {
    let mut bytes = word.to_le_bytes();
    let len = usize::from(bytes[0] >> TAG_BITS);
    // The bytes behind the string are none of it.
    if special(word >> 8 | (EACH * u64::from(b'0')) << (8 * len)) != 0 {
        return write_string(&bytes[1..=len], out);
    }
    bytes[0] = b'"';
    out.extend_from_slice(&bytes);
    out.truncate(out.len() - (bytes.len() - 1 - len));
    out.push(b'"');
}

/// Returns the position of the first byte that does not stand for itself in a string.
#[inline]
fn special_at(text: &[u8]) -> Option<usize> {
    let (words, rest) = text.as_chunks::<8>();
    for (at, word) in words.iter().enumerate() {
        let found = special(u64::from_le_bytes(*word));
        if found != 0 {
            return Some(8 * at + found.trailing_zeros() as usize / 8);
        }
    }
    let is_special = |byte: &u8| *byte < b' ' || matches!(byte, b'"' | b'\\');
    let at = rest.iter().position(is_special);
    at.map(|at| text.len() - rest.len() + at)
}

/// Appends a string in quotes.
pub fn write_string(text: &[u8], out: &mut Vec<u8>) {
    out.push(b'"');
    let mut rest = text;
    while let Some(at) = special_at(rest) {
        out.extend_from_slice(&rest[..at]);
        match rest[at] {
            b'"' => out.extend_from_slice(b"\\\""),
            b'\\' => out.extend_from_slice(b"\\\\"),
            b'\n' => out.extend_from_slice(b"\\n"),
            b'\r' => out.extend_from_slice(b"\\r"),
            b'\t' => out.extend_from_slice(b"\\t"),
            8 => out.extend_from_slice(b"\\b"),
            12 => out.extend_from_slice(b"\\f"),
            byte => out.extend_from_slice(format!("\\u{byte:04x}").as_bytes()),
        }
        rest = &rest[at + 1..];
    }
    out.extend_from_slice(rest);
    out.push(b'"');
}

/// A document that is read.
#[derive(Default)]
struct Builder {
    json: Json,
    /// Elements of the arrays and objects that are open.
    stack: Vec<u64>,
    names: Names,
}

impl Builder {
    fn read<'de>(&mut self, mut reader: Reader<impl Read<'de>>) -> serde_json::Result<u64> {
        Seed(self).deserialize(&mut reader)
    }

    /// Makes room for the next document.
    fn clear(&mut self) {
        let words = self.json.words.capacity() + self.stack.capacity() + self.names.places.len();
        if size_of::<u64>() * words + self.json.text.capacity() > BUILDER_BYTES_MAX {
            *self = Builder::default();
            return;
        }
        self.json.words.truncate(1);
        self.json.text.clear();
        self.stack.clear();
        self.names.clear();
    }
}

/// Reader of one value into the document, which returns its word.
struct Seed<'a>(&'a mut Builder);

impl<'de> DeserializeSeed<'de> for Seed<'_> {
    type Value = u64;

    fn deserialize<D: Deserializer<'de>>(self, reader: D) -> Result<u64, D::Error> {
        reader.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Seed<'_> {
    type Value = u64;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a JSON value")
    }

    fn visit_unit<E: Error>(self) -> Result<u64, E> {
        Ok(NULL)
    }

    fn visit_bool<E: Error>(self, value: bool) -> Result<u64, E> {
        Ok(if value { TRUE } else { FALSE })
    }

    fn visit_i64<E: Error>(self, n: i64) -> Result<u64, E> {
        Ok(self.0.json.put_integer(n))
    }

    fn visit_u64<E: Error>(self, n: u64) -> Result<u64, E> {
        Ok(self.0.json.put_unsigned(n))
    }

    fn visit_f64<E: Error>(self, n: f64) -> Result<u64, E> {
        Ok(self.0.json.put_double(n))
    }

    fn visit_str<E: Error>(self, text: &str) -> Result<u64, E> {
        Ok(self.0.json.put_string(text.as_bytes()))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut elements: A) -> Result<u64, A::Error> {
        let start = self.0.stack.len();
        while let Some(word) = elements.next_element_seed(Seed(self.0))? {
            self.0.stack.push(word);
        }
        Ok(close(self.0, ARRAY, start))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut members: A) -> Result<u64, A::Error> {
        let start = self.0.stack.len();
        // Equal names have equal words here; their places are noted when there are many.
        let mut known: Option<HashMap<u64, usize>> = None;
        while let Some(name) = members.next_key_seed(Name(self.0))? {
            let value = members.next_value_seed(Seed(self.0))?;
            let stack = &mut self.0.stack;
            if known.is_none() && stack.len() - start >= PAIR * INDEXED_MEMBERS_MIN {
                let names = (start..stack.len()).step_by(PAIR).map(|at| (stack[at], at));
                known = Some(names.collect());
            }
            let earlier = match &known {
                None => {
                    let mut pairs = stack[start..].chunks_exact(PAIR);
                    let at = pairs.position(|pair| pair[0] == name);
                    at.map(|at| start + PAIR * at)
                }
                Some(known) => known.get(&name).copied(),
            };
            match earlier {
                Some(at) => stack[at + 1] = value,
                None => {
                    if let Some(known) = &mut known {
                        known.insert(name, stack.len());
                    }
                    stack.extend([name, value]);
                }
            }
        }
        Ok(close(self.0, OBJECT, start))
    }
}

fn close(builder: &mut Builder, tag: u64, start: usize) -> u64 {
    let word = builder.json.put_block(tag, &builder.stack[start..]);
    builder.stack.truncate(start);
    word
}

/// Reader of the name of a member.
struct Name<'a>(&'a mut Builder);

impl<'de> DeserializeSeed<'de> for Name<'_> {
    type Value = u64;

    fn deserialize<D: Deserializer<'de>>(self, reader: D) -> Result<u64, D::Error> {
        reader.deserialize_str(self)
    }
}

impl Visitor<'_> for Name<'_> {
    type Value = u64;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a name")
    }

    fn visit_str<E: Error>(self, name: &str) -> Result<u64, E> {
        Ok(self.0.names.intern(&mut self.0.json, name.as_bytes()))
    }
}
