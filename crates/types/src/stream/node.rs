//! A run of stream entries in one allocation. Must not know that there are other runs.
//!
//! ```text
//! node    number of names, names, entry, entry, ...
//! entry   length, flags, ms, seq, [number of fields], fields, length backwards
//! field   [name], value
//! ```
//!
//! All numbers are of variable length. `ms` counts from the node's first id, and so does `seq` in
//! entries of that id's `ms`. The names of the first entry are stored once: an entry with the same
//! ones (nearly all have) stores values only. A deleted entry keeps its place and is marked.
//!
//! The amount that fits into a node decides what an approximate trim removes, which clients see. So the node counts the
//! bytes that it would take as Redis's listpack, and is full when that would be.

use super::StreamId;
use super::log::Verdict;
use crate::pack::Element;

/// Bytes of a listpack that hold no element.
const LISTPACK_ENVELOPE_BYTES: usize = 7;

const DELETED: u8 = 1;
const SAME_NAMES: u8 = 2;

/// Entries behind a first id, which the holder of the node keeps.
#[derive(Clone)]
pub(super) struct Node {
    bytes: Vec<u8>,
    /// Start of the entries.
    entries_at: usize,
    live: u32,
    deleted: u32,
    /// Bytes as a listpack, without those that depend on the two counts.
    listpack_bytes: usize,
}

/// Names and values by turns, as they come from a client.
pub(super) trait Fields<'a>: Iterator<Item = &'a [u8]> + Clone {}

impl<'a, T: Iterator<Item = &'a [u8]> + Clone> Fields<'a> for T {}

/// The contents of an entry, as the caller that adds it has them.
#[derive(Clone, Copy, Debug)]
pub enum Contents<I> {
    /// Names and values by turns.
    Fields(I),
    /// Values only: the names are those that the node began with, one to each.
    Values(I),
}

fn packed_int(value: i64) -> usize {
    Element::Int(value).packed_bytes()
}

fn packed(bytes: &[u8]) -> usize {
    Element::of(bytes).packed_bytes()
}

fn varint_len(value: u64) -> usize {
    (64 - (value | 1).leading_zeros()).div_ceil(7) as usize
}

fn push_varint(out: &mut Vec<u8>, mut value: u64) {
    while value > 127 {
        out.push(value as u8 | 128);
        value >>= 7;
    }
    out.push(value as u8);
}

/// Writes a number that is read from its end.
fn push_varint_backwards(out: &mut Vec<u8>, value: u64) {
    let start = out.len();
    push_varint(out, value);
    out[start..].reverse();
}

fn read_varint(bytes: &mut &[u8]) -> Option<u64> {
    let mut value = 0;
    for shift in (0..70).step_by(7) {
        let (&byte, rest) = bytes.split_first()?;
        *bytes = rest;
        value |= u64::from(byte & 127).checked_shl(shift)?;
        if byte < 128 {
            return Some(value);
        }
    }
    None
}

fn read_varint_backwards(bytes: &mut &[u8]) -> Option<u64> {
    let mut value = 0;
    for shift in (0..70).step_by(7) {
        let (&byte, rest) = bytes.split_last()?;
        *bytes = rest;
        value |= u64::from(byte & 127).checked_shl(shift)?;
        if byte < 128 {
            return Some(value);
        }
    }
    None
}

fn push_bytes(out: &mut Vec<u8>, bytes: &[u8]) {
    push_varint(out, bytes.len() as u64);
    out.extend_from_slice(bytes);
}

fn read_bytes<'a>(from: &mut &'a [u8]) -> Option<&'a [u8]> {
    let len = usize::try_from(read_varint(from)?).ok()?;
    let (bytes, rest) = from.split_at_checked(len)?;
    *from = rest;
    Some(bytes)
}

impl Node {
    /// Makes a node that is to start with an entry of these names.
    pub(super) fn new<'a>(fields: impl Fields<'a>) -> Node {
        let names = fields.step_by(2);
        let count = names.clone().count();
        let mut bytes = Vec::new();
        push_varint(&mut bytes, count as u64);
        for name in names.clone() {
            push_bytes(&mut bytes, name);
        }
        // Number of names, names, end of names.
        let head = packed_int(count as i64) + names.map(packed).sum::<usize>() + packed_int(0);
        Node {
            entries_at: bytes.len(),
            bytes,
            live: 0,
            deleted: 0,
            listpack_bytes: LISTPACK_ENVELOPE_BYTES + head,
        }
    }

    /// Returns the number of entries that are not deleted.
    pub(super) fn live(&self) -> usize {
        self.live as usize
    }

    /// Returns the number of entries, deleted ones too.
    pub(super) fn entries(&self) -> usize {
        self.live as usize + self.deleted as usize
    }

    /// Returns the number of bytes that it would take as a listpack.
    pub(super) fn listpack_bytes(&self) -> usize {
        let counts = packed_int(self.live.into()) + packed_int(self.deleted.into());
        self.listpack_bytes + counts
    }

    /// Returns the number of bytes on the heap.
    pub(super) fn heap_bytes(&self) -> usize {
        self.bytes.capacity()
    }

    /// Gives back room for entries that will not come.
    pub(super) fn close(&mut self) {
        // A copy: reallocated, it would stay in its place, of which the allocator gives nothing back below a half.
        self.bytes = self.bytes.as_slice().to_vec();
    }

    /// Adds an entry behind all others. Its id must be above theirs and not below `first`.
    pub(super) fn push<'a>(
        &mut self,
        first: StreamId,
        id: StreamId,
        contents: Contents<impl Fields<'a>>,
    ) {
        self.write(first, id, contents);
    }

    /// Adds an entry that has been deleted behind all others: only its place is kept.
    pub(super) fn push_deleted<'a>(
        &mut self,
        first: StreamId,
        id: StreamId,
        contents: Contents<impl Fields<'a>>,
    ) {
        let flags_at = self.write(first, id, contents);
        self.mark(flags_at);
    }

    /// Adds an entry that lives, and returns where its flags are.
    fn write<'a>(
        &mut self,
        first: StreamId,
        id: StreamId,
        contents: Contents<impl Fields<'a>>,
    ) -> usize {
        let (count, same_names, values, has_names) = match contents {
            Contents::Fields(fields) => {
                let same_names = fields.clone().step_by(2).eq(self.names());
                (fields.clone().count() / 2, same_names, fields, true)
            }
            Contents::Values(values) => (values.clone().count(), true, values, false),
        };
        let skip = usize::from(same_names && has_names);
        let stored = values.skip(skip).step_by(1 + skip);
        let (ms, seq) = relative(first, id);

        let mut len = 1 + varint_len(ms) + varint_len(seq);
        let mut listpack = packed_int(0)
            + packed_int(ms as i64)
            + packed_int(id.seq.wrapping_sub(first.seq) as i64)
            + packed_int(3 + count as i64);
        if !same_names {
            len += varint_len(count as u64);
            listpack += packed_int(count as i64) + packed_int(4 + 2 * count as i64)
                - packed_int(3 + count as i64);
        }
        for bytes in stored.clone() {
            len += varint_len(bytes.len() as u64) + bytes.len();
            listpack += packed(bytes);
        }

        let out = &mut self.bytes;
        out.reserve(len + 2 * varint_len(len as u64));
        push_varint(out, len as u64);
        let flags_at = out.len();
        out.push(if same_names { SAME_NAMES } else { 0 });
        push_varint(out, ms);
        push_varint(out, seq);
        if !same_names {
            push_varint(out, count as u64);
        }
        for bytes in stored {
            push_bytes(out, bytes);
        }
        push_varint_backwards(out, len as u64);
        self.live += 1;
        self.listpack_bytes += listpack;
        flags_at
    }

    /// Returns the names of the first entry.
    pub(super) fn names(&self) -> Names<'_> {
        let mut rest = &self.bytes[..self.entries_at];
        let left = read_varint(&mut rest).unwrap_or(0) as usize;
        Names { rest, left }
    }

    /// Returns the entries, from either end.
    pub(super) fn iter(&self, first: StreamId) -> Iter<'_> {
        Iter {
            node: self,
            first,
            rest: &self.bytes[self.entries_at..],
            at: self.entries_at,
        }
    }

    /// Returns the id of the last entry, deleted or not.
    pub(super) fn last_id(&self, first: StreamId) -> Option<StreamId> {
        Some(self.iter(first).next_back()?.id)
    }

    /// Deletes the entry of this id; returns true if there was one.
    pub(super) fn delete(&mut self, first: StreamId, id: StreamId) -> bool {
        let found = self.iter(first).find(|entry| entry.id >= id);
        match found {
            Some(entry) if entry.id == id && !entry.is_deleted() => {
                let at = entry.flags_at;
                self.mark(at);
                true
            }
            _ => false,
        }
    }

    /// Goes over the entries from the start, and deletes those that `verdict` condemns. Returns how many.
    pub(super) fn sift(
        &mut self,
        first: StreamId,
        mut verdict: impl FnMut(StreamId) -> Verdict,
    ) -> usize {
        let mut marks = Vec::new();
        for entry in self.iter(first).filter(|entry| !entry.is_deleted()) {
            match verdict(entry.id) {
                Verdict::Remove => marks.push(entry.flags_at),
                Verdict::Keep => {}
                Verdict::Stop => break,
            }
        }
        marks.iter().for_each(|at| self.mark(*at));
        marks.len()
    }

    fn mark(&mut self, flags_at: usize) {
        self.bytes[flags_at] |= DELETED;
        self.live -= 1;
        self.deleted += 1;
    }
}

/// Returns an id as it is stored in a node with this first id.
fn relative(first: StreamId, id: StreamId) -> (u64, u64) {
    let ms = id.ms.wrapping_sub(first.ms);
    let seq = if ms == 0 {
        id.seq.wrapping_sub(first.seq)
    } else {
        id.seq
    };
    (ms, seq)
}

fn absolute(first: StreamId, ms: u64, seq: u64) -> StreamId {
    let base = if ms == 0 { first.seq } else { 0 };
    StreamId::new(first.ms.wrapping_add(ms), base.wrapping_add(seq))
}

/// The names that most entries of a node have.
#[derive(Clone)]
pub struct Names<'a> {
    rest: &'a [u8],
    left: usize,
}

impl<'a> Iterator for Names<'a> {
    type Item = &'a [u8];

    fn next(&mut self) -> Option<&'a [u8]> {
        self.left = self.left.checked_sub(1)?;
        read_bytes(&mut self.rest)
    }
}

/// An entry: its id, and its fields.
#[derive(Clone)]
pub struct Entry<'a> {
    /// The id.
    pub id: StreamId,
    flags: u8,
    flags_at: usize,
    fields: EntryFields<'a>,
}

impl<'a> Entry<'a> {
    /// Returns the fields, each a name and a value.
    pub fn fields(&self) -> EntryFields<'a> {
        self.fields.clone()
    }

    /// Returns true if it has been deleted, and keeps its place only: code outside of the node never sees it.
    pub fn is_deleted(&self) -> bool {
        self.flags & DELETED != 0
    }
}

/// The fields of an entry, each a name and a value, in the order in which they were given.
#[derive(Clone)]
pub struct EntryFields<'a> {
    /// The node's names, if they are the entry's.
    names: Option<Names<'a>>,
    rest: &'a [u8],
    left: usize,
}

impl<'a> Iterator for EntryFields<'a> {
    type Item = (&'a [u8], &'a [u8]);

    fn next(&mut self) -> Option<Self::Item> {
        self.left = self.left.checked_sub(1)?;
        let name = match &mut self.names {
            Some(names) => names.next()?,
            None => read_bytes(&mut self.rest)?,
        };
        Some((name, read_bytes(&mut self.rest)?))
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        (self.left, Some(self.left))
    }
}

impl ExactSizeIterator for EntryFields<'_> {}

/// The entries of a node, deleted ones too, from either end.
#[derive(Clone)]
pub(super) struct Iter<'a> {
    node: &'a Node,
    first: StreamId,
    rest: &'a [u8],
    /// Start of `rest` in the node.
    at: usize,
}

impl<'a> Iter<'a> {
    /// Reads an entry whose flags are at this place.
    fn entry(&self, mut body: &'a [u8], flags_at: usize) -> Option<Entry<'a>> {
        let (&flags, rest) = body.split_first()?;
        body = rest;
        let (ms, seq) = (read_varint(&mut body)?, read_varint(&mut body)?);
        let (names, left) = if flags & SAME_NAMES != 0 {
            let names = self.node.names();
            let left = names.left;
            (Some(names), left)
        } else {
            (None, read_varint(&mut body)? as usize)
        };
        Some(Entry {
            id: absolute(self.first, ms, seq),
            flags,
            flags_at,
            fields: EntryFields {
                names,
                rest: body,
                left,
            },
        })
    }
}

impl<'a> Iterator for Iter<'a> {
    type Item = Entry<'a>;

    fn next(&mut self) -> Option<Entry<'a>> {
        let mut rest = self.rest;
        let len = read_varint(&mut rest)? as usize;
        let head = self.rest.len() - rest.len();
        let (body, rest) = rest.split_at_checked(len)?;
        let entry = self.entry(body, self.at + head);
        self.rest = rest.get(varint_len(len as u64)..)?;
        self.at += 2 * head + len;
        entry
    }
}

impl<'a> DoubleEndedIterator for Iter<'a> {
    fn next_back(&mut self) -> Option<Entry<'a>> {
        let mut rest = self.rest;
        let len = read_varint_backwards(&mut rest)? as usize;
        let start = rest.len().checked_sub(len)?;
        let entry = self.entry(&rest[start..], self.at + start);
        self.rest = &rest[..start.checked_sub(varint_len(len as u64))?];
        entry
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_read_from_both_ends() {
        for shift in 0..64 {
            for value in [1u64 << shift, (1 << shift) - 1, !0 >> shift] {
                let mut bytes = vec![0xff];
                push_varint(&mut bytes, value);
                assert_eq!(bytes.len(), 1 + varint_len(value));
                assert_eq!(read_varint(&mut &bytes[1..]), Some(value));
                let mut bytes = vec![0xff];
                push_varint_backwards(&mut bytes, value);
                assert_eq!(bytes.len(), 1 + varint_len(value));
                let mut rest = &bytes[..];
                assert_eq!(read_varint_backwards(&mut rest), Some(value));
                assert_eq!(rest, [0xff]);
            }
        }
        assert_eq!(read_varint(&mut &[0xff; 20][..]), None);
        assert_eq!(read_varint(&mut &[0x80][..]), None);
    }
}
