//! A JSON document as one tree in two runs of memory: words of 8 bytes, and the bytes of strings. Must not know how a
//! document is written to a file, nor which command asks what.
//!
//! A value is a word. Null, booleans, integers of 61 bits, strings of up to 7 bytes and most doubles lie in the word; of any
//! other the word has the offset. An array is one block of words behind a word with its length and its capacity; an object
//! likewise, of pairs of a name and a value, in the order in which the members came, with an index behind them from
//! [`INDEXED_MEMBERS_MIN`] on. Equal names that were read together are stored once.
//!
//! Offsets in place of pointers: a copy is two copies of memory, a document is freed at once, and its bytes are known without
//! a walk. What a change leaves behind is counted; when it is half of the document, the document is written anew.

mod item;
mod path;
mod select;
#[cfg(test)]
mod tests;
mod text;

use std::ops::Range;

pub use item::{Array, Item, Object, Text};
pub use path::{FILTER_DEPTH_MAX, Path, PathError};
pub use select::{Exhausted, Hop, VISITS_MAX};
pub use text::{Layout, ParseError, write_string};

use crate::{DataType, Digest};

/// Number of arrays and objects around a value, itself included, up to which a document can be read again from its text.
pub const DEPTH_MAX: usize = 127;
/// Number of members from which on an object has an index of their names.
pub const INDEXED_MEMBERS_MIN: usize = 16;
/// Bytes left behind below which a document is not written anew.
const WASTE_BYTES_MIN: usize = 256;

const TAG_BITS: u32 = 3;
const TAG_MASK: u64 = 7;
const CONSTANT: u64 = 0;
const INTEGER: u64 = 1;
const SHORT: u64 = 2;
const LONG: u64 = 3;
const ARRAY: u64 = 4;
const OBJECT: u64 = 5;
const BOXED: u64 = 6;
const DOUBLE: u64 = 7;

const NULL: u64 = CONSTANT;
const FALSE: u64 = 1 << TAG_BITS | CONSTANT;
const TRUE: u64 = 2 << TAG_BITS | CONSTANT;

const BOXED_DOUBLE: u64 = 0;
const BOXED_SIGNED: u64 = 1;
const BOXED_UNSIGNED: u64 = 2;
const BOXED_BITS: u32 = 2;

const SHORT_BYTES_MAX: usize = 7;
/// Words of a member: its name and its value.
const PAIR: usize = 2;

/// A JSON document.
#[derive(Clone, Debug)]
pub struct Json {
    /// The root, then blocks.
    words: Vec<u64>,
    /// Strings, each behind its length.
    text: Vec<u8>,
    /// Bytes of both that no value has any more.
    waste: usize,
}

/// The place of a value in its document: valid until the document is changed elsewhere.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Place(usize);

impl Place {
    /// The place of the whole document.
    pub const ROOT: Place = Place(0);
}

/// The head of an array or an object: where it lies, how many elements it has and has room for.
#[derive(Clone, Copy)]
struct Block {
    at: usize,
    len: usize,
    capacity: usize,
}

impl Block {
    fn first(self) -> usize {
        self.at + 1
    }

    fn head(self) -> u64 {
        let half = |n: usize| u64::from(u32::try_from(n).expect("fewer elements than 32 GiB hold"));
        half(self.len) | half(self.capacity) << 32
    }

    /// Returns the number of places of the index of an object.
    fn index_places(self) -> usize {
        match self.capacity < INDEXED_MEMBERS_MIN {
            true => 0,
            false => (self.capacity + self.capacity / 2).next_power_of_two(),
        }
    }

    fn array_words(self) -> usize {
        1 + self.capacity
    }

    fn object_words(self) -> usize {
        1 + PAIR * self.capacity + self.index_places() / 2
    }
}

/// Returns the capacity of a block that has to grow to a length.
fn grown(len: usize) -> usize {
    len + len / 2 + 1
}

fn offset_of(word: u64) -> usize {
    (word >> TAG_BITS) as usize
}

fn tag_of(word: u64) -> u64 {
    word & TAG_MASK
}

fn short(bytes: &[u8]) -> Option<u64> {
    (bytes.len() <= SHORT_BYTES_MAX).then(|| {
        let mut word = [0; 8];
        word[0] = (SHORT | (bytes.len() as u64) << TAG_BITS) as u8;
        word[1..=bytes.len()].copy_from_slice(bytes);
        u64::from_le_bytes(word)
    })
}

/// The names of a document that were read together.
#[derive(Default)]
struct Names {
    /// Words of long names, by their hash; 0 is a free place.
    places: Vec<u64>,
    count: usize,
}

impl Names {
    /// Returns the word of a name.
    fn intern(&mut self, json: &mut Json, name: &[u8]) -> u64 {
        if let Some(word) = short(name) {
            return word;
        }
        if self.places.len() < 2 * (self.count + 1) {
            let old = std::mem::take(&mut self.places);
            self.places = vec![0; (4 * (self.count + 1)).next_power_of_two()];
            for word in old.into_iter().filter(|word| *word != 0) {
                let free = self.probe(json, &json.text_of(word));
                self.places[free] = word;
            }
        }
        let place = self.probe(json, name);
        if self.places[place] == 0 {
            self.places[place] = json.put_text(name);
            self.count += 1;
        }
        self.places[place]
    }

    /// Forgets all names.
    fn clear(&mut self) {
        if self.count > 0 {
            self.places.fill(0);
            self.count = 0;
        }
    }

    fn probe(&self, json: &Json, name: &[u8]) -> usize {
        let mask = self.places.len() - 1;
        let mut place = redline_table::hash(name) as usize & mask;
        while self.places[place] != 0 && *json.text_of(self.places[place]) != *name {
            place = (place + 1) & mask;
        }
        place
    }
}

impl Default for Json {
    fn default() -> Json {
        Json::empty()
    }
}

impl Json {
    /// Returns `null`, with room for nothing else.
    fn empty() -> Json {
        Json {
            words: vec![NULL],
            text: Vec::new(),
            waste: 0,
        }
    }

    /// Returns a document that is a string.
    pub fn of_string(text: &str) -> Json {
        let mut json = Json::empty();
        json.words[0] = json.put_string(text.as_bytes());
        json
    }

    /// Returns a document that is an integer.
    pub fn of_integer(n: i64) -> Json {
        let mut json = Json::empty();
        json.words[0] = json.put_integer(n);
        json
    }

    /// Returns a document that is a double; numbers that JSON does not have become null.
    pub fn of_double(n: f64) -> Json {
        let mut json = Json::empty();
        json.words[0] = json.put_double(n);
        json
    }

    /// Returns a document that is a boolean.
    pub fn of_bool(value: bool) -> Json {
        let mut json = Json::empty();
        json.words[0] = if value { TRUE } else { FALSE };
        json
    }

    /// Returns a document that is an array of these.
    pub fn of_array<'a>(items: impl IntoIterator<Item = &'a Json>) -> Json {
        let mut json = Json::empty();
        json.words[0] = json.put_block(ARRAY, &[]);
        items.into_iter().for_each(|item| {
            let end = json.array_at(Place::ROOT).map_or(0, |array| array.len());
            json.array_insert(Place::ROOT, end, &[item]);
        });
        json
    }

    /// Returns the whole value.
    pub fn root(&self) -> Item<'_> {
        self.get(Place::ROOT)
    }

    /// Returns the value at a place.
    #[inline]
    pub fn get(&self, place: Place) -> Item<'_> {
        self.item(self.words[place.0])
    }

    /// Returns the bytes that the value at a place takes.
    pub fn bytes_at(&self, place: Place) -> usize {
        size_of::<u64>() + self.weigh(self.words[place.0])
    }

    /// Returns the number of arrays and objects in each other at a place, itself included.
    pub fn depth_at(&self, place: Place) -> usize {
        match self.get(place) {
            Item::Array(array) => {
                let places = (0..array.len()).map(|at| array.place(at));
                1 + places.map(|place| self.depth_at(place)).max().unwrap_or(0)
            }
            Item::Object(object) => {
                let places = (0..object.len()).map(|at| object.place(at));
                1 + places.map(|place| self.depth_at(place)).max().unwrap_or(0)
            }
            _ => 0,
        }
    }

    #[inline]
    fn item(&self, word: u64) -> Item<'_> {
        match tag_of(word) {
            CONSTANT if word == NULL => Item::Null,
            CONSTANT => Item::Bool(word == TRUE),
            INTEGER => Item::Integer(word as i64 >> TAG_BITS),
            SHORT | LONG => Item::String(self.text_of(word)),
            ARRAY => Item::Array(Array {
                json: self,
                block: self.block(word),
            }),
            OBJECT => Item::Object(Object {
                json: self,
                block: self.block(word),
            }),
            BOXED => {
                let bits = self.words[offset_of(word) >> BOXED_BITS];
                match offset_of(word) as u64 & 3 {
                    BOXED_SIGNED => Item::Integer(bits as i64),
                    BOXED_UNSIGNED => Item::Unsigned(bits),
                    _ => Item::Double(f64::from_bits(bits)),
                }
            }
            _ => Item::Double(f64::from_bits(word & !TAG_MASK)),
        }
    }

    #[inline]
    fn block(&self, word: u64) -> Block {
        let at = offset_of(word);
        let head = self.words[at];
        Block {
            at,
            len: head as u32 as usize,
            capacity: (head >> 32) as usize,
        }
    }

    #[inline]
    fn text_of(&self, word: u64) -> Text<'_> {
        if tag_of(word) == SHORT {
            return Text::Word(word.to_le_bytes());
        }
        let (len, start) = self.length_at(offset_of(word));
        Text::Bytes(&self.text[start..start + len])
    }

    /// Returns the length of a string of the text, and where its bytes begin.
    fn length_at(&self, mut at: usize) -> (usize, usize) {
        let (mut len, mut shift) = (0, 0);
        loop {
            let byte = self.text[at];
            at += 1;
            len |= usize::from(byte & 0x7f) << shift;
            if byte < 0x80 {
                return (len, at);
            }
            shift += 7;
        }
    }

    // ---- making values ------------------------------------------------------------------------

    fn put_string(&mut self, bytes: &[u8]) -> u64 {
        short(bytes).unwrap_or_else(|| self.put_text(bytes))
    }

    fn put_text(&mut self, bytes: &[u8]) -> u64 {
        let at = self.text.len() as u64;
        let mut len = bytes.len();
        while len >= 0x80 {
            self.text.push(len as u8 | 0x80);
            len >>= 7;
        }
        self.text.push(len as u8);
        self.text.extend_from_slice(bytes);
        at << TAG_BITS | LONG
    }

    fn put_integer(&mut self, n: i64) -> u64 {
        let word = (n as u64) << TAG_BITS | INTEGER;
        match word as i64 >> TAG_BITS == n {
            true => word,
            false => self.put_boxed(BOXED_SIGNED, n as u64),
        }
    }

    fn put_unsigned(&mut self, n: u64) -> u64 {
        match i64::try_from(n) {
            Ok(n) => self.put_integer(n),
            Err(_) => self.put_boxed(BOXED_UNSIGNED, n),
        }
    }

    fn put_double(&mut self, n: f64) -> u64 {
        match n.to_bits() {
            _ if !n.is_finite() => NULL,
            bits if bits & TAG_MASK == 0 => bits | DOUBLE,
            bits => self.put_boxed(BOXED_DOUBLE, bits),
        }
    }

    fn put_boxed(&mut self, kind: u64, bits: u64) -> u64 {
        let at = self.words.len() as u64;
        self.words.push(bits);
        (at << BOXED_BITS | kind) << TAG_BITS | BOXED
    }

    /// Appends a block that is just large enough.
    fn put_block(&mut self, tag: u64, elements: &[u64]) -> u64 {
        let len = elements.len() / if tag == OBJECT { PAIR } else { 1 };
        let block = Block {
            at: self.words.len(),
            len,
            capacity: len,
        };
        self.words.push(block.head());
        self.words.extend_from_slice(elements);
        if tag == OBJECT {
            self.build_index(block);
        }
        (block.at as u64) << TAG_BITS | tag
    }

    /// Copies a value of another document.
    fn import(&mut self, from: &Json, word: u64, names: &mut Names) -> u64 {
        match from.item(word) {
            Item::String(text) => self.put_string(&text),
            Item::Integer(n) => self.put_integer(n),
            Item::Unsigned(n) => self.put_unsigned(n),
            Item::Double(n) => self.put_double(n),
            Item::Array(array) => {
                let first = array.block.first();
                let mut elements = from.words[first..first + array.len()].to_vec();
                for element in &mut elements {
                    *element = self.import(from, *element, names);
                }
                self.put_block(ARRAY, &elements)
            }
            Item::Object(object) => {
                let first = object.block.first();
                let mut pairs = from.words[first..first + PAIR * object.len()].to_vec();
                for pair in pairs.chunks_exact_mut(PAIR) {
                    pair[0] = names.intern(self, &from.text_of(pair[0]));
                    pair[1] = self.import(from, pair[1], names);
                }
                self.put_block(OBJECT, &pairs)
            }
            Item::Null | Item::Bool(_) => word,
        }
    }

    fn import_root(&mut self, from: &Json) -> u64 {
        self.import(from, from.words[0], &mut Names::default())
    }

    // ---- objects ------------------------------------------------------------------------------

    fn find(&self, block: Block, name: &[u8]) -> Option<usize> {
        let is_name = |at: usize| {
            let word = self.words[block.first() + PAIR * at];
            *self.text_of(word) == *name
        };
        if block.index_places() == 0 {
            return match short(name) {
                Some(wanted) => {
                    (0..block.len).find(|at| self.words[block.first() + PAIR * at] == wanted)
                }
                None => (0..block.len).find(|at| is_name(*at)),
            };
        }
        let mask = block.index_places() - 1;
        let mut place = redline_table::hash(name) as usize & mask;
        loop {
            match self.index_entry(block, place) {
                0 => return None,
                entry if is_name(entry as usize - 1) => return Some(entry as usize - 1),
                _ => place = (place + 1) & mask,
            }
        }
    }

    /// Returns the entry of an object's index at a place: the position of a member and 1, or 0.
    fn index_entry(&self, block: Block, place: usize) -> u32 {
        let word = self.words[block.first() + PAIR * block.capacity + place / 2];
        (word >> (32 * (place & 1))) as u32
    }

    fn set_index_entry(&mut self, block: Block, place: usize, entry: u32) {
        let word = &mut self.words[block.first() + PAIR * block.capacity + place / 2];
        let shift = 32 * (place & 1);
        *word = *word & !(u64::from(u32::MAX) << shift) | u64::from(entry) << shift;
    }

    /// Appends the index of an object that is the last block; without one, does nothing.
    fn build_index(&mut self, block: Block) {
        let words = block.index_places() / 2;
        self.words.resize(self.words.len() + words, 0);
        if words > 0 {
            (0..block.len).for_each(|at| self.index_member(block, at));
        }
    }

    fn home(&self, block: Block, at: usize) -> usize {
        let name = self.text_of(self.words[block.first() + PAIR * at]);
        redline_table::hash(&name) as usize & (block.index_places() - 1)
    }

    fn index_member(&mut self, block: Block, at: usize) {
        let mask = block.index_places() - 1;
        let mut place = self.home(block, at);
        while self.index_entry(block, place) != 0 {
            place = (place + 1) & mask;
        }
        self.set_index_entry(block, place, at as u32 + 1);
    }

    fn place_in_index(&self, block: Block, at: usize) -> usize {
        let mask = block.index_places() - 1;
        let mut place = self.home(block, at);
        while self.index_entry(block, place) != at as u32 + 1 {
            place = (place + 1) & mask;
        }
        place
    }

    /// Takes an entry out of an index, and moves those behind it that then would not be found.
    fn unindex_member(&mut self, block: Block, at: usize) {
        let mask = block.index_places() - 1;
        let mut hole = self.place_in_index(block, at);
        let mut place = hole;
        loop {
            place = (place + 1) & mask;
            let entry = self.index_entry(block, place);
            if entry == 0 {
                break;
            }
            let home = self.home(block, entry as usize - 1);
            if place.wrapping_sub(home) & mask >= place.wrapping_sub(hole) & mask {
                self.set_index_entry(block, hole, entry);
                hole = place;
            }
        }
        self.set_index_entry(block, hole, 0);
    }

    // ---- changes ------------------------------------------------------------------------------

    /// Returns the bytes that a value has outside its word.
    fn weigh(&self, word: u64) -> usize {
        const WORD: usize = size_of::<u64>();
        match tag_of(word) {
            LONG => {
                let (len, start) = self.length_at(offset_of(word));
                start - offset_of(word) + len
            }
            BOXED => WORD,
            ARRAY | OBJECT => {
                let block = self.block(word);
                let (words, width) = match tag_of(word) {
                    ARRAY => (block.array_words(), 1),
                    _ => (block.object_words(), PAIR),
                };
                let elements = &self.words[block.first()..block.first() + width * block.len];
                WORD * words + elements.iter().map(|word| self.weigh(*word)).sum::<usize>()
            }
            _ => 0,
        }
    }

    fn array_at(&self, place: Place) -> Option<Array<'_>> {
        match self.get(place) {
            Item::Array(array) => Some(array),
            _ => None,
        }
    }

    fn object_at(&self, place: Place) -> Option<Object<'_>> {
        match self.get(place) {
            Item::Object(object) => Some(object),
            _ => None,
        }
    }

    fn set_word(&mut self, place: Place, word: u64) {
        self.waste += self.weigh(self.words[place.0]);
        self.words[place.0] = word;
    }

    /// Sets the value at a place.
    pub fn set(&mut self, place: Place, value: &Json) {
        if place == Place::ROOT {
            *self = value.clone();
            return;
        }
        let word = self.import_root(value);
        self.set_word(place, word);
    }

    /// Appends to the string at a place, if there is one, and returns its new length in bytes.
    pub fn append(&mut self, place: Place, more: &[u8]) -> Option<usize> {
        let Item::String(text) = self.get(place) else {
            return None;
        };
        let mut bytes = Vec::with_capacity(text.len() + more.len());
        bytes.extend_from_slice(&text);
        bytes.extend_from_slice(more);
        let word = self.put_string(&bytes);
        self.set_word(place, word);
        Some(bytes.len())
    }

    /// Inserts values into the array at a place, if there is one, and returns its new length. A position beyond its end is
    /// its end.
    pub fn array_insert(&mut self, place: Place, at: usize, values: &[&Json]) -> Option<usize> {
        self.array_at(place)?;
        let mut names = Names::default();
        let import = |json: &&Json| self.import(json, json.words[0], &mut names);
        let values: Vec<u64> = values.iter().map(import).collect();
        let mut block = self.block(self.words[place.0]);
        let at = at.min(block.len);
        let len = block.len + values.len();
        if len > block.capacity {
            let old = block;
            block = Block {
                at: self.words.len(),
                len,
                capacity: grown(len),
            };
            self.words.push(block.head());
            self.words
                .extend_from_within(old.first()..old.first() + old.len);
            self.words.resize(block.at + block.array_words(), NULL);
            self.words[place.0] = (block.at as u64) << TAG_BITS | ARRAY;
            self.waste += size_of::<u64>() * old.array_words();
            block.len = old.len;
        }
        let first = block.first();
        let behind = first + at..first + block.len;
        self.words.copy_within(behind, first + at + values.len());
        self.words[first + at..first + at + values.len()].copy_from_slice(&values);
        block.len = len;
        self.words[block.at] = block.head();
        Some(len)
    }

    /// Keeps only a range of the elements of the array at a place, if there is one, and returns its new length.
    pub fn array_keep(&mut self, place: Place, keep: Range<usize>) -> Option<usize> {
        let mut block = self.array_at(place)?.block;
        let keep = keep.start.min(block.len)..keep.end.min(block.len);
        let first = block.first();
        for at in (0..keep.start).chain(keep.end..block.len) {
            self.waste += self.weigh(self.words[first + at]);
        }
        self.words
            .copy_within(first + keep.start..first + keep.end, first);
        block.len = keep.len();
        self.words[block.at] = block.head();
        Some(block.len)
    }

    /// Removes an element of the array at a place, if there is one that long.
    pub fn array_remove(&mut self, place: Place, at: usize) -> bool {
        if self.array_at(place).is_none_or(|array| at >= array.len()) {
            return false;
        }
        let mut block = self.block(self.words[place.0]);
        let first = block.first();
        self.waste += self.weigh(self.words[first + at]);
        self.words
            .copy_within(first + at + 1..first + block.len, first + at);
        block.len -= 1;
        self.words[block.at] = block.head();
        true
    }

    /// Sets a member of the object at a place, if there is one.
    pub fn object_set(&mut self, place: Place, name: &str, value: &Json) -> bool {
        let Some(object) = self.object_at(place) else {
            return false;
        };
        if let Some(at) = object.find(name.as_bytes()) {
            let place = object.place(at);
            self.set(place, value);
            return true;
        }
        let value = self.import_root(value);
        let name = self.put_string(name.as_bytes());
        let mut block = self.block(self.words[place.0]);
        if block.len == block.capacity {
            let old = block;
            block = Block {
                at: self.words.len(),
                len: old.len,
                capacity: grown(old.len + 1),
            };
            self.words.push(block.head());
            self.words
                .extend_from_within(old.first()..old.first() + PAIR * old.len);
            self.words
                .resize(block.first() + PAIR * block.capacity, NULL);
            self.build_index(block);
            self.words[place.0] = (block.at as u64) << TAG_BITS | OBJECT;
            self.waste += size_of::<u64>() * old.object_words();
        }
        let at = block.first() + PAIR * block.len;
        self.words[at] = name;
        self.words[at + 1] = value;
        block.len += 1;
        self.words[block.at] = block.head();
        if block.index_places() > 0 {
            self.index_member(block, block.len - 1);
        }
        true
    }

    /// Removes a member of the object at a place, if there is one: the last member takes its position, as in Redis.
    pub fn object_remove(&mut self, place: Place, name: &[u8]) -> bool {
        let Some(object) = self.object_at(place) else {
            return false;
        };
        let Some(at) = object.find(name) else {
            return false;
        };
        let mut block = object.block;
        let last = block.len - 1;
        let indexed = block.index_places() > 0;
        let entry = |at| block.first() + PAIR * at;
        let (gone, moved) = (entry(at), entry(last));
        self.waste += self.weigh(self.words[gone]) + self.weigh(self.words[gone + 1]);
        if indexed {
            self.unindex_member(block, at);
            if at != last {
                let place = self.place_in_index(block, last);
                self.set_index_entry(block, place, at as u32 + 1);
            }
        }
        self.words.copy_within(moved..moved + PAIR, gone);
        block.len = last;
        self.words[block.at] = block.head();
        true
    }

    /// Empties the array or object at a place, or makes a number zero; returns false if there is nothing to do.
    pub fn clear(&mut self, place: Place) -> bool {
        let word = match self.get(place) {
            Item::Array(array) if !array.is_empty() => self.put_block(ARRAY, &[]),
            Item::Object(object) if !object.is_empty() => self.put_block(OBJECT, &[]),
            Item::Integer(n) if n != 0 => self.put_integer(0),
            Item::Double(n) if n != 0.0 => self.put_integer(0),
            Item::Unsigned(_) => self.put_integer(0),
            _ => return false,
        };
        self.set_word(place, word);
        true
    }

    /// Merges a patch into the value at a place, as RFC 7396 has it: members that are null in the patch go.
    pub fn merge(&mut self, place: Place, patch: &Json) {
        self.merge_item(place, patch, Place::ROOT);
    }

    fn merge_item(&mut self, place: Place, patch: &Json, at: Place) {
        let Item::Object(members) = patch.get(at) else {
            let word = self.import(patch, patch.words[at.0], &mut Names::default());
            self.set_word(place, word);
            return;
        };
        if self.object_at(place).is_none() {
            let word = self.put_block(OBJECT, &[]);
            self.set_word(place, word);
        }
        for member in 0..members.len() {
            let name = members.name(member);
            let value = members.place(member);
            if matches!(patch.get(value), Item::Null) {
                self.object_remove(place, &name);
                continue;
            }
            let known = self.object_at(place).and_then(|object| object.find(&name));
            if known.is_none() {
                let name = str::from_utf8(&name).expect("names are UTF-8");
                self.object_set(place, name, &Json::empty());
            }
            let object = self.object_at(place).expect("it was made one");
            let found = object.find(&name).expect("it was set");
            let inner = object.place(found);
            self.merge_item(inner, patch, value);
        }
    }

    /// Ends a run of changes: what they have left behind is given back, once it is half of the document. Places are not
    /// valid any more.
    pub fn settle(&mut self) {
        let bytes = size_of::<u64>() * self.words.len() + self.text.len();
        if self.waste > WASTE_BYTES_MIN && self.waste > bytes / 2 {
            let mut anew = Json::empty();
            anew.words[0] = anew.import_root(self);
            // A copy is as large as it has to be: shrinking may leave the memory as large as it is.
            *self = anew.clone();
        }
    }
}

impl DataType for Json {
    const NAME: &'static str = "ReJSON-RL";
    const STAYS_EMPTY: bool = true;

    fn encoding(&self) -> &'static str {
        "raw"
    }

    fn len(&self) -> usize {
        match self.root() {
            Item::Array(array) => array.len(),
            Item::Object(object) => object.len(),
            _ => 1,
        }
    }

    fn heap_bytes(&self) -> usize {
        size_of::<Self>() + size_of::<u64>() * self.words.capacity() + self.text.capacity()
    }

    fn free_effort(&self) -> usize {
        2
    }

    fn digest<D: Digest>(&self, digest: &mut D) {
        digest.mix(&self.to_text());
    }
}
