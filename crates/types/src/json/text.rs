//! JSON as text: reading by `serde_json`, whose errors are those that clients of Redis know, and writing. Must not know
//! paths.

use std::{collections::HashMap, fmt};

use serde::de::{DeserializeSeed, Deserializer, Error, MapAccess, SeqAccess, Visitor};

use super::{
    ARRAY, FALSE, INDEXED_MEMBERS_MIN, Item, Json, NULL, Names, OBJECT, PAIR, Place, TRUE,
};
use crate::IntBuf;

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
        let mut builder = Builder {
            json: Json::empty(),
            stack: Vec::new(),
            names: Names::default(),
        };
        let mut reader = serde_json::Deserializer::from_slice(text);
        let root = Seed(&mut builder).deserialize(&mut reader);
        let root = root.map_err(|error| ParseError(error.to_string()))?;
        builder.json.words[0] = root;
        builder.json.shrink();
        Ok(builder.json)
    }

    /// Returns the shortest text of the document.
    pub fn to_text(&self) -> Vec<u8> {
        let mut out = Vec::new();
        self.write(Place::ROOT, &Layout::default(), 0, &mut out);
        out
    }

    /// Appends the text of the value at a place, which is in so many arrays and objects of the text.
    pub fn write(&self, place: Place, layout: &Layout<'_>, level: usize, out: &mut Vec<u8>) {
        let line = |out: &mut Vec<u8>, level: usize| {
            out.extend_from_slice(layout.newline);
            (0..level).for_each(|_| out.extend_from_slice(layout.indent));
        };
        match self.get(place) {
            Item::Null => out.extend_from_slice(b"null"),
            Item::Bool(true) => out.extend_from_slice(b"true"),
            Item::Bool(false) => out.extend_from_slice(b"false"),
            Item::Integer(n) => out.extend_from_slice(IntBuf::new().format(n)),
            Item::Unsigned(n) => out.extend_from_slice(itoa::Buffer::new().format(n).as_bytes()),
            Item::Double(n) => out.extend_from_slice(&double_text(n)),
            Item::String(text) => write_string(&text, out),
            Item::Array(array) if array.is_empty() => out.extend_from_slice(b"[]"),
            Item::Array(array) => {
                out.push(b'[');
                for at in 0..array.len() {
                    if at > 0 {
                        out.push(b',');
                    }
                    line(out, level + 1);
                    self.write(array.place(at), layout, level + 1, out);
                }
                line(out, level);
                out.push(b']');
            }
            Item::Object(object) if object.is_empty() => out.extend_from_slice(b"{}"),
            Item::Object(object) => {
                out.push(b'{');
                for at in 0..object.len() {
                    if at > 0 {
                        out.push(b',');
                    }
                    line(out, level + 1);
                    write_string(&object.name(at), out);
                    out.push(b':');
                    out.extend_from_slice(layout.space);
                    self.write(object.place(at), layout, level + 1, out);
                }
                line(out, level);
                out.push(b'}');
            }
        }
    }
}

/// Returns the shortest text of a double that JSON has, which is never that of an integer.
pub(super) fn double_text(n: f64) -> Vec<u8> {
    let mut buffer = zmij::Buffer::new();
    buffer.format_finite(n).replace("e+", "e").into_bytes()
}

/// Appends a string in quotes.
pub fn write_string(text: &[u8], out: &mut Vec<u8>) {
    out.push(b'"');
    let mut rest = text;
    while let Some(at) = rest
        .iter()
        .position(|byte| *byte < b' ' || matches!(byte, b'"' | b'\\'))
    {
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
struct Builder {
    json: Json,
    /// Elements of the arrays and objects that are open.
    stack: Vec<u64>,
    names: Names,
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
        // Equal names have equal words here.
        let mut known: HashMap<u64, usize> = HashMap::new();
        while let Some(name) = members.next_key_seed(Name(self.0))? {
            let value = members.next_value_seed(Seed(self.0))?;
            let stack = &mut self.0.stack;
            let count = (stack.len() - start) / PAIR;
            if count == INDEXED_MEMBERS_MIN {
                let names = (start..stack.len()).step_by(PAIR).map(|at| (stack[at], at));
                known = names.collect();
            }
            let earlier = match count < INDEXED_MEMBERS_MIN {
                true => (start..stack.len())
                    .step_by(PAIR)
                    .find(|at| stack[*at] == name),
                false => known.get(&name).copied(),
            };
            match earlier {
                Some(at) => stack[at + 1] = value,
                None => {
                    if count >= INDEXED_MEMBERS_MIN {
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
