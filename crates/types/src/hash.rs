//! The hash: fields, each with a value. Must not know keys or the arithmetic of HINCRBY.
//!
//! A small hash is a [`Pack`] of alternating fields and values ("listpack"), searched from the front;
//! one with too many pairs or too long a text is a table ("hashtable"), and stays one.

use crate::Limits;
use crate::number::IntBuf;
use crate::pack::{self, Element, Pack};
use crate::sample;
use crate::value::DataType;
use redline_table::BytesDict;

/// Fields, each with a value. See the head of this file.
pub struct Hash {
    repr: Repr,
}

enum Repr {
    Packed(Pack),
    Table(BytesDict),
}

impl Default for Hash {
    fn default() -> Hash {
        Hash::new()
    }
}

impl Clone for Hash {
    fn clone(&self) -> Hash {
        let repr = match &self.repr {
            Repr::Packed(pack) => Repr::Packed(pack.clone()),
            Repr::Table(table) => {
                let mut copy = BytesDict::new();
                table.iter().for_each(|(field, value)| {
                    copy.insert(field, value);
                });
                Repr::Table(copy)
            }
        };
        Hash { repr }
    }
}

impl DataType for Hash {
    const NAME: &'static str = "hash";

    fn encoding(&self) -> &'static str {
        match self.repr {
            Repr::Packed(_) => "listpack",
            Repr::Table(_) => "hashtable",
        }
    }

    fn len(&self) -> usize {
        match &self.repr {
            Repr::Packed(pack) => pack.len() / 2,
            Repr::Table(table) => table.len(),
        }
    }

    fn heap_bytes(&self) -> usize {
        size_of::<Self>()
            + match &self.repr {
                Repr::Packed(pack) => pack.heap_bytes(),
                Repr::Table(table) => table.heap_bytes(),
            }
    }

    fn free_effort(&self) -> usize {
        match &self.repr {
            Repr::Packed(_) => 1,
            Repr::Table(table) => table.len(),
        }
    }

    fn compact(&mut self) {
        if let Repr::Table(table) = &mut self.repr {
            table.compact();
        }
    }
}

impl Hash {
    /// An empty hash.
    pub const fn new() -> Hash {
        Hash {
            repr: Repr::Packed(Pack::new()),
        }
    }

    /// The value of a field.
    pub fn get(&self, field: &[u8]) -> Option<Element<'_>> {
        match &self.repr {
            Repr::Packed(pack) => pack.get(pack.next(find(pack, field)?)?),
            Repr::Table(table) => table.get(field).map(Element::Bytes),
        }
    }

    /// Whether there is such a field.
    pub fn contains(&self, field: &[u8]) -> bool {
        match &self.repr {
            Repr::Packed(pack) => find(pack, field).is_some(),
            Repr::Table(table) => table.contains(field),
        }
    }

    /// Gives a field its value, and says whether the field is new.
    pub fn set(&mut self, field: &[u8], value: &[u8], limits: &Limits) -> bool {
        self.make_room([field, value].into_iter(), limits);
        self.put(field, value, limits)
    }

    /// Gives a field its value unless it has one, and says whether it did.
    pub fn set_if_absent(&mut self, field: &[u8], value: &[u8], limits: &Limits) -> bool {
        !self.contains(field) && self.set(field, value, limits)
    }

    /// Gives fields their values, in turn field and value, and says how many fields are new.
    pub fn set_all<'a>(
        &mut self,
        fields_and_values: impl Iterator<Item = &'a [u8]> + Clone,
        limits: &Limits,
    ) -> usize {
        self.make_room(fields_and_values.clone(), limits);
        let mut texts = fields_and_values;
        let mut added = 0;
        while let (Some(field), Some(value)) = (texts.next(), texts.next()) {
            added += usize::from(self.put(field, value, limits));
        }
        added
    }

    fn put(&mut self, field: &[u8], value: &[u8], limits: &Limits) -> bool {
        let pack = match &mut self.repr {
            Repr::Table(table) => return table.insert(field, value),
            Repr::Packed(pack) => pack,
        };
        if let Some(at) = find(pack, field) {
            if let Some(at) = pack.next(at) {
                pack.replace(at, Element::of(value));
            }
            return false;
        }
        pack.push_back(Element::of(field));
        pack.push_back(Element::of(value));
        if pack.len() / 2 > limits.hash_max_listpack_entries {
            self.convert();
        }
        true
    }

    /// Takes a field out, and says whether it was there.
    pub fn remove(&mut self, field: &[u8]) -> bool {
        match &mut self.repr {
            Repr::Packed(pack) => match find(pack, field) {
                Some(at) => pack.remove_many(at, 2) > 0,
                None => false,
            },
            Repr::Table(table) => table.remove(field),
        }
    }

    /// All fields with their values.
    pub fn iter(&self) -> impl Iterator<Item = (Element<'_>, Element<'_>)> {
        let (pack, table) = match &self.repr {
            Repr::Packed(pack) => (Some(pack), None),
            Repr::Table(table) => (None, Some(table)),
        };
        let packed = pack.into_iter().flat_map(pairs);
        packed.chain(table.into_iter().flat_map(BytesDict::iter).map(elements))
    }

    /// One call of an iteration that survives changes: shows about `count` fields from `cursor` on,
    /// and returns the cursor to go on with, zero at the end. A packed hash is shown whole.
    pub fn scan(
        &self,
        cursor: u64,
        count: usize,
        mut visit: impl FnMut(Element<'_>, Element<'_>),
    ) -> u64 {
        match &self.repr {
            Repr::Packed(pack) => {
                pairs(pack).for_each(|(field, value)| visit(field, value));
                0
            }
            Repr::Table(table) => scan_steps(cursor, count, |cursor, seen| {
                table.scan(cursor, &mut |field, value| {
                    *seen += 1;
                    visit(Element::Bytes(field), Element::Bytes(value));
                })
            }),
        }
    }

    /// A field, each about equally likely, and its value.
    pub fn random_entry(
        &self,
        random: &mut impl FnMut() -> u64,
    ) -> Option<(Element<'_>, Element<'_>)> {
        match &self.repr {
            Repr::Packed(pack) => {
                let index = sample::below(pack.len() / 2, random);
                pairs_from(pack.iter_from(pack.seek(2 * index)?)).next()
            }
            Repr::Table(table) => table.random(random).map(elements),
        }
    }

    /// Shows `count` fields, chosen one by one from all of them, so that they may repeat.
    pub fn random_entries<'a>(
        &'a self,
        count: usize,
        random: &mut impl FnMut() -> u64,
        mut visit: impl FnMut(Element<'a>, Element<'a>),
    ) {
        match &self.repr {
            Repr::Packed(pack) => {
                let entries: Vec<_> = pairs(pack).collect();
                for _ in 0..if entries.is_empty() { 0 } else { count } {
                    let (field, value) = entries[sample::below(entries.len(), random)];
                    visit(field, value);
                }
            }
            Repr::Table(table) => {
                for _ in 0..count {
                    let Some((field, value)) = table.random(random) else {
                        return;
                    };
                    visit(Element::Bytes(field), Element::Bytes(value));
                }
            }
        }
    }

    /// Shows `count` different fields, or all if there are fewer.
    pub fn random_distinct_entries<'a>(
        &'a self,
        count: usize,
        random: &mut impl FnMut() -> u64,
        mut visit: impl FnMut(Element<'a>, Element<'a>),
    ) {
        match &self.repr {
            Repr::Table(table) if sample::is_sparse(count, table.len()) => {
                sample::visit_drawn(
                    count,
                    || table.random(random),
                    |field, value| {
                        visit(Element::Bytes(field), Element::Bytes(value));
                    },
                );
            }
            _ => {
                sample::visit_selected(self.iter(), self.len(), count, random, |(field, value)| {
                    visit(field, value);
                })
            }
        }
    }

    // Encodings.

    /// Before a command sets these: a pack that must not hold them becomes a table.
    fn make_room<'a>(&mut self, texts: impl Iterator<Item = &'a [u8]>, limits: &Limits) {
        let Repr::Packed(pack) = &self.repr else {
            return;
        };
        let (mut count, mut bytes, mut longest) = (0, 0usize, 0);
        for text in texts {
            count += 1;
            bytes = bytes.saturating_add(text.len() + Pack::ENTRY_OVERHEAD_MAX);
            longest = longest.max(text.len());
        }
        if count / 2 > limits.hash_max_listpack_entries
            || longest > limits.hash_max_listpack_value
            || !pack.is_safe_to_add(bytes)
        {
            self.convert();
        }
    }

    fn convert(&mut self) {
        if let Repr::Packed(pack) = &self.repr {
            let mut table = BytesDict::new();
            let (mut field_buf, mut value_buf) = (IntBuf::new(), IntBuf::new());
            for (field, value) in pairs(pack) {
                table.insert(field.bytes(&mut field_buf), value.bytes(&mut value_buf));
            }
            self.repr = Repr::Table(table);
        }
    }
}

/// Steps of a table's scan until about `count` elements have been seen or too many steps found none.
/// `step` takes a cursor and the count to add to, and returns the next cursor.
pub(crate) fn scan_steps(
    mut cursor: u64,
    count: usize,
    mut step: impl FnMut(u64, &mut usize) -> u64,
) -> u64 {
    let mut seen = 0;
    for _ in 0..count.saturating_mul(10).max(1) {
        cursor = step(cursor, &mut seen);
        if cursor == 0 || seen >= count {
            break;
        }
    }
    cursor
}

fn find(pack: &Pack, field: &[u8]) -> Option<pack::At> {
    pack.find(pack.begin(), Element::of(field), 1)
}

fn pairs(pack: &Pack) -> impl Iterator<Item = (Element<'_>, Element<'_>)> {
    pairs_from(pack.iter())
}

fn pairs_from<'a>(
    mut elements: pack::Iter<'a>,
) -> impl Iterator<Item = (Element<'a>, Element<'a>)> {
    std::iter::from_fn(move || Some((elements.next()?, elements.next()?)))
}

fn elements<'a>((field, value): (&'a [u8], &'a [u8])) -> (Element<'a>, Element<'a>) {
    (Element::Bytes(field), Element::Bytes(value))
}

#[cfg(test)]
mod tests;
