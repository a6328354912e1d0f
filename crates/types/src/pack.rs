//! A packed sequence of byte strings and integers in one allocation: every small collection consists of one. Must not
//! know the collection.
//!
//! The entries are laid out as in Redis's listpack, so that a collection leaves its compact encoding
//! at the same number of bytes, and so that serialising one is a copy. An entry is
//!
//! ```text
//! head (kind and length)   payload   tail (length of head + payload, readable backwards)
//! ```
//!
//! The listpack's own header and end mark (7 bytes) are not stored; [`Pack::listpack_bytes`] counts
//! them. What differs is the room around the entries: behind them as in any vector, and *before*
//! them too, so that pushing and popping at either end takes constant time.
//!
//! Every entry is in its canonical form: text that is the canonical text of an integer is stored as
//! that integer, and each integer in its shortest form. So two elements are equal if and only if
//! their bytes are, which is what [`Pack::find`] compares.

use std::ops::ControlFlow;

use crate::number::{I64_TEXT_MAX, IntBuf, parse_i64};
use crate::packed::{PackedForm, PackedRef};

/// Bytes of a listpack's header and end mark.
const ENVELOPE_BYTES: usize = 7;
/// The longest byte string whose length is in the first byte, and the bits beside the length.
const SHORT_BYTES_MAX: usize = 63;
const SHORT_HEAD: u8 = 0x80;
/// Capacity below which giving memory back is not worth a copy. Smaller ones that last are kept elsewhere, without room
/// around them (see `packed.rs`); here they are opened for a moment, in memory that is used again and again.
const SHRINK_BYTES_MIN: usize = 2048;
/// Room in front of the entries of a pack that is loaded: most elements that are pushed there fit.
const LOADED_ROOM_BYTES: usize = 128;

/// One element: a byte string, or an integer that stands for its canonical decimal text. Two are equal
/// if their texts are.
///
/// Elements that come out of a pack are canonical: an integer wherever the text is that of one. Elements that go into
/// one have to be, too: [`Element::of`] sees to it.
#[derive(Clone, Copy, Debug)]
pub enum Element<'a> {
    /// Any bytes.
    Bytes(&'a [u8]),
    /// An integer.
    Int(i64),
}

impl PartialEq for Element<'_> {
    #[inline]
    fn eq(&self, other: &Element<'_>) -> bool {
        match (*self, *other) {
            (Element::Bytes(a), Element::Bytes(b)) => a == b,
            (Element::Int(a), Element::Int(b)) => a == b,
            (Element::Bytes(text), Element::Int(value))
            | (Element::Int(value), Element::Bytes(text)) => parse_i64(text) == Some(value),
        }
    }
}

impl Eq for Element<'_> {}

impl<'a> Element<'a> {
    /// Returns the canonical element for these bytes: an integer if they are the canonical text of one.
    #[inline]
    pub fn of(bytes: &'a [u8]) -> Element<'a> {
        if bytes.len() <= I64_TEXT_MAX
            && let Some(value) = parse_i64(bytes)
        {
            return Element::Int(value);
        }
        Element::Bytes(bytes)
    }

    /// Returns this element in canonical form.
    #[inline]
    pub fn canonical(self) -> Element<'a> {
        match self {
            Element::Bytes(bytes) => Element::of(bytes),
            Element::Int(_) => self,
        }
    }

    /// Returns the element as bytes; an integer is written into `buf`.
    #[inline]
    pub fn bytes<'b>(self, buf: &'b mut IntBuf) -> &'b [u8]
    where
        'a: 'b,
    {
        match self {
            Element::Bytes(bytes) => bytes,
            Element::Int(value) => buf.format(value),
        }
    }

    /// Returns the element as owned bytes.
    pub fn to_vec(self) -> Vec<u8> {
        self.bytes(&mut IntBuf::new()).to_vec()
    }

    /// Returns the integer whose canonical text this is.
    #[inline]
    pub fn to_i64(self) -> Option<i64> {
        match self {
            Element::Bytes(bytes) => parse_i64(bytes),
            Element::Int(value) => Some(value),
        }
    }

    fn is_canonical(self) -> bool {
        matches!(self.canonical(), Element::Int(_)) == matches!(self, Element::Int(_))
    }

    /// Returns the length of the text in bytes.
    pub fn len(self) -> usize {
        self.bytes(&mut IntBuf::new()).len()
    }

    /// Returns true if the text is empty.
    pub fn is_empty(self) -> bool {
        self.len() == 0
    }

    /// Returns the number of bytes that this element takes in a pack.
    pub fn packed_bytes(self) -> usize {
        Entry::new(self).len()
    }
}

/// An element ready to be written: head, payload and tail.
struct Entry<'a> {
    head: [u8; 9],
    head_len: usize,
    payload: &'a [u8],
    tail: [u8; 5],
    tail_len: usize,
}

impl<'a> Entry<'a> {
    #[inline]
    fn new(element: Element<'a>) -> Entry<'a> {
        debug_assert!(
            element.is_canonical(),
            "only canonical elements can be found again"
        );
        let mut head = [0; 9];
        let (head_len, payload) = match element {
            Element::Bytes(bytes) => (write_string_head(&mut head, bytes.len()), bytes),
            Element::Int(value) => (write_int(&mut head, value), &[][..]),
        };
        let len = head_len + payload.len();
        let mut tail = [0; 5];
        let tail_len = tail_len(len);
        tail[0] = (len >> (7 * (tail_len - 1))) as u8;
        for (i, byte) in tail[1..tail_len].iter_mut().enumerate() {
            *byte = (len >> (7 * (tail_len - 2 - i))) as u8 & 127 | 128;
        }
        Entry {
            head,
            head_len,
            payload,
            tail,
            tail_len,
        }
    }

    #[inline]
    fn head(&self) -> &[u8] {
        &self.head[..self.head_len]
    }

    #[inline]
    fn len(&self) -> usize {
        self.head_len + self.payload.len() + self.tail_len
    }

    #[inline]
    fn append_to(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(self.head());
        out.extend_from_slice(self.payload);
        out.extend_from_slice(&self.tail[..self.tail_len]);
    }

    /// Writes into a gap of exactly [`Entry::len`] bytes.
    fn copy_to(&self, gap: &mut [u8]) {
        let (head, rest) = gap.split_at_mut(self.head_len);
        let (payload, tail) = rest.split_at_mut(self.payload.len());
        head.copy_from_slice(self.head());
        payload.copy_from_slice(self.payload);
        tail.copy_from_slice(&self.tail[..self.tail_len]);
    }

    /// Returns its first bytes, little-endian, and the mask of those bits of a word.
    fn first_word(&self) -> (u64, u64) {
        let mut word = [0; 8];
        let bytes = self.head().iter().chain(self.payload);
        let mut len = 0;
        for (to, byte) in word.iter_mut().zip(bytes) {
            *to = *byte;
            len += 1;
        }
        (u64::from_le_bytes(word), u64::MAX >> (64 - 8 * len))
    }

    /// Returns true if `rest` starts with this entry. Canonical form makes head and payload enough.
    #[inline]
    fn is_prefix_of(&self, rest: &[u8]) -> bool {
        rest.first() == self.head.first()
            && rest.starts_with(self.head())
            && rest[self.head_len..].starts_with(self.payload)
    }
}

#[inline]
fn write_string_head(head: &mut [u8; 9], len: usize) -> usize {
    if len < 1 << 6 {
        head[0] = 0x80 | len as u8;
        1
    } else if len < 1 << 12 {
        head[0] = 0xe0 | (len >> 8) as u8;
        head[1] = len as u8;
        2
    } else {
        assert!(
            len <= Pack::SAFE_BYTES_MAX,
            "callers convert before an element gets this long"
        );
        head[0] = 0xf0;
        head[1..5].copy_from_slice(&(len as u32).to_le_bytes());
        5
    }
}

#[inline]
fn write_int(head: &mut [u8; 9], value: i64) -> usize {
    let bytes = value.to_le_bytes();
    let width = match value {
        0..=127 => {
            head[0] = value as u8;
            return 1;
        }
        -0x1000..=0xfff => {
            head[0] = 0xc0 | (value >> 8) as u8 & 0x1f;
            head[1] = value as u8;
            return 2;
        }
        -0x8000..=0x7fff => 2,
        -0x80_0000..=0x7f_ffff => 3,
        -0x8000_0000..=0x7fff_ffff => 4,
        _ => 8,
    };
    head[0] = match width {
        2 => 0xf1,
        3 => 0xf2,
        4 => 0xf3,
        _ => 0xf4,
    };
    head[1..=width].copy_from_slice(&bytes[..width]);
    1 + width
}

/// Returns the number of bytes of the tail behind an entry whose head and payload take `len` bytes.
#[inline]
const fn tail_len(len: usize) -> usize {
    // The limits are one short of the powers of two from the second on: this is the format.
    match len {
        0..=127 => 1,
        128..=16_382 => 2,
        16_383..=2_097_150 => 3,
        2_097_151..=268_435_454 => 4,
        _ => 5,
    }
}

/// Reads the tail that ends at the end of `bytes`: the length of head and payload.
#[inline]
fn read_tail(bytes: &[u8]) -> Option<usize> {
    let mut len = 0;
    for (i, &byte) in bytes.iter().rev().take(5).enumerate() {
        len |= usize::from(byte & 127) << (7 * i);
        if byte & 128 == 0 {
            return Some(len);
        }
    }
    None
}

/// Returns the bytes of head and payload of the entry that `rest` starts with.
#[inline]
fn entry_len(rest: &[u8]) -> Option<usize> {
    let head = *rest.first()?;
    Some(match head {
        0..=0x7f => 1,
        0x80..=0xbf => 1 + usize::from(head & 0x3f),
        0xc0..=0xdf => 2,
        0xe0..=0xef => 2 + (usize::from(head & 0xf) << 8 | usize::from(*rest.get(1)?)),
        0xf0 => 5 + u32::from_le_bytes(*rest.get(1..)?.first_chunk()?) as usize,
        0xf1 => 3,
        0xf2 => 4,
        0xf3 => 5,
        0xf4 => 9,
        _ => return None,
    })
}

/// Returns the element that `rest` starts with, and the bytes of its head and payload.
#[inline]
fn decode(rest: &[u8]) -> Option<(Element<'_>, usize)> {
    let head = *rest.first()?;
    if let 0x80..=0xbf = head {
        let len = 1 + usize::from(head & 0x3f);
        return Some((Element::Bytes(rest.get(1..len)?), len));
    }
    let len = entry_len(rest)?;
    let body = rest.get(..len)?;
    let element = match head {
        0..=0x7f => Element::Int(i64::from(head)),
        // Five bits of the head and a byte, sign-extended from 13 bits.
        0xc0..=0xdf => Element::Int(i64::from(
            (i16::from_be_bytes([head & 0x1f, body[1]]) << 3) >> 3,
        )),
        0xe0..=0xef => Element::Bytes(&body[2..]),
        0xf0 => Element::Bytes(&body[5..]),
        _ => Element::Int(sign_extended(&body[1..])),
    };
    Some((element, len))
}

#[inline]
fn sign_extended(little_endian: &[u8]) -> i64 {
    let mut bytes = [0; 8];
    bytes[..little_endian.len()].copy_from_slice(little_endian);
    let unused = 64 - 8 * little_endian.len() as u32;
    i64::from_le_bytes(bytes) << unused >> unused
}

/// One of the two ends of a sequence.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// The first element.
    Front,
    /// The last element.
    Back,
}

/// Start of an entry in its pack. Any change to the pack makes it invalid.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct At(u32);

impl At {
    fn new(offset: usize) -> At {
        debug_assert!(offset <= u32::MAX as usize);
        At(offset as u32)
    }

    fn offset(self) -> usize {
        self.0 as usize
    }
}

/// The packed sequence. See the head of this file.
#[derive(Default)]
pub struct Pack {
    /// `start` unused bytes, then the entries.
    bytes: Vec<u8>,
    start: u32,
    count: u32,
}

impl Clone for Pack {
    fn clone(&self) -> Pack {
        Pack {
            bytes: self.entries().to_vec(),
            start: 0,
            count: self.count,
        }
    }
}

impl Pack {
    /// Bytes above which no pack may grow, since a reader may be limited; callers convert before.
    pub const SAFE_BYTES_MAX: usize = 1 << 30;

    /// Most bytes that an entry takes besides its text.
    pub const ENTRY_OVERHEAD_MAX: usize = 10;

    /// Returns an empty pack; allocates nothing.
    pub const fn new() -> Pack {
        Pack {
            bytes: Vec::new(),
            start: 0,
            count: 0,
        }
    }

    /// Returns an empty pack with room for entries of this many bytes in all, to be pushed at one end.
    pub fn with_room(bytes: usize, end: End) -> Pack {
        match end {
            End::Front => Pack {
                bytes: vec![0; bytes],
                start: bytes as u32,
                count: 0,
            },
            End::Back => Pack {
                bytes: Vec::with_capacity(bytes),
                start: 0,
                count: 0,
            },
        }
    }

    /// Returns the number of elements.
    #[inline]
    pub fn len(&self) -> usize {
        self.count as usize
    }

    /// Returns true if there is no element.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// Returns the number of bytes that this would take as a listpack, header and end mark included: what thresholds
    /// count.
    #[inline]
    pub fn listpack_bytes(&self) -> usize {
        self.entries().len() + ENVELOPE_BYTES
    }

    /// Returns true if this many more bytes keep the pack within the size that is safe for any reader.
    #[inline]
    pub fn is_safe_to_add(&self, bytes: usize) -> bool {
        self.listpack_bytes().saturating_add(bytes) <= Pack::SAFE_BYTES_MAX
    }

    /// Returns the number of bytes allocated.
    #[inline]
    pub fn heap_bytes(&self) -> usize {
        self.bytes.capacity()
    }

    #[inline]
    fn entries(&self) -> &[u8] {
        &self.bytes[self.start as usize..]
    }

    fn rest(&self, at: At) -> &[u8] {
        &self.entries()[at.offset()..]
    }

    /// Returns the elements as a run of bytes.
    #[inline]
    pub(crate) fn packed(&self, form: PackedForm) -> PackedRef<'_> {
        PackedRef {
            form,
            count: self.len(),
            bytes: self.entries(),
        }
    }

    /// Becomes the pack that [`Pack::packed`] returned, in the memory that it has already.
    #[inline]
    pub(crate) fn load(&mut self, packed: PackedRef<'_>) {
        if self.bytes.len() < LOADED_ROOM_BYTES {
            self.bytes.resize(LOADED_ROOM_BYTES, 0);
        }
        self.bytes.truncate(LOADED_ROOM_BYTES);
        self.bytes.extend_from_slice(packed.bytes);
        self.start = LOADED_ROOM_BYTES as u32;
        self.count = packed.count as u32;
    }

    /// Makes a pack of the bytes that [`Pack::packed`] returned.
    pub(crate) fn of_packed(packed: PackedRef<'_>) -> Pack {
        let mut pack = Pack::new();
        pack.load(packed);
        pack
    }

    // Positions.

    /// Returns the position of the first element, or where it would be.
    pub fn begin(&self) -> At {
        At(0)
    }

    /// Returns the position behind the last element.
    pub fn end(&self) -> At {
        At::new(self.entries().len())
    }

    /// Returns the position of the last element.
    pub fn last(&self) -> Option<At> {
        self.prev(self.end())
    }

    /// Returns the position after `at`; [`Pack::end`] after the last element.
    #[inline]
    pub fn next(&self, at: At) -> Option<At> {
        let len = entry_len(self.rest(at))?;
        Some(At::new(at.offset() + len + tail_len(len)))
    }

    /// Returns the position before `at`.
    #[inline]
    pub fn prev(&self, at: At) -> Option<At> {
        let len = read_tail(&self.entries()[..at.offset()])?;
        Some(At::new(at.offset() - len - tail_len(len)))
    }

    /// Returns the position of the element with this index, walking from the nearer end.
    pub fn seek(&self, index: usize) -> Option<At> {
        if index >= self.len() {
            return None;
        }
        if index <= self.len() / 2 {
            (0..index).try_fold(self.begin(), |at, _| self.next(at))
        } else {
            (index..self.len()).try_fold(self.end(), |at, _| self.prev(at))
        }
    }

    /// Returns the element at a position; none at the end.
    #[inline]
    pub fn get(&self, at: At) -> Option<Element<'_>> {
        decode(self.rest(at)).map(|(element, _)| element)
    }

    /// Returns the position of `wanted`, at or after `from`, comparing one element and then leaving out `skip`.
    pub fn find(&self, from: At, wanted: Element<'_>, skip: usize) -> Option<At> {
        let wanted = Entry::new(wanted);
        let entries = self.entries();
        let mut offset = from.offset();
        loop {
            let rest = entries.get(offset..)?;
            if wanted.is_prefix_of(rest) {
                return Some(At::new(offset));
            }
            for _ in 0..=skip {
                let len = entry_len(entries.get(offset..)?)?;
                offset += len + tail_len(len);
            }
        }
    }

    /// Visits the index of each element equal to `wanted`, until told to stop. Reads no other.
    pub fn positions(
        &self,
        wanted: Element<'_>,
        mut visit: impl FnMut(usize) -> ControlFlow<()>,
    ) -> ControlFlow<()> {
        if matches!(wanted, Element::Bytes(bytes) if bytes.len() > Pack::SAFE_BYTES_MAX) {
            return ControlFlow::Continue(());
        }
        let wanted = Entry::new(wanted);
        let (word, mask) = wanted.first_word();
        let mut rest = self.entries();
        for index in 0.. {
            let starts_alike = match rest.first_chunk::<8>() {
                Some(chunk) => u64::from_le_bytes(*chunk) & mask == word,
                None => true,
            };
            if starts_alike && wanted.is_prefix_of(rest) {
                visit(index)?;
            }
            let whole = match rest.first() {
                // By far the most common: one byte each of head and tail.
                Some(head @ 0x80..=0xbf) => 2 + usize::from(head & 0x3f),
                _ => match entry_len(rest) {
                    Some(len) => len + tail_len(len),
                    None => break,
                },
            };
            match rest.get(whole..) {
                Some(behind) => rest = behind,
                None => break,
            }
        }
        ControlFlow::Continue(())
    }

    /// Returns all elements, from either end.
    #[inline]
    pub fn iter(&self) -> Iter<'_> {
        Iter {
            rest: self.entries(),
        }
    }

    /// Returns the elements from a position on.
    #[inline]
    pub fn iter_from(&self, at: At) -> Iter<'_> {
        Iter {
            rest: self.rest(at),
        }
    }

    /// Returns the elements before a position.
    #[inline]
    pub fn iter_to(&self, at: At) -> Iter<'_> {
        Iter {
            rest: &self.entries()[..at.offset()],
        }
    }

    // Changes.

    /// Adds an element at the end.
    #[inline]
    pub fn push_back(&mut self, element: Element<'_>) {
        // By far the most common, and three times as quick this way: one byte each of head and tail.
        if let Element::Bytes(bytes) = element
            && bytes.len() <= SHORT_BYTES_MAX
        {
            self.reserve_back(bytes.len() + 2);
            self.bytes.push(SHORT_HEAD | bytes.len() as u8);
            self.bytes.extend_from_slice(bytes);
            self.bytes.push(bytes.len() as u8 + 1);
            self.count += 1;
            return;
        }
        let entry = Entry::new(element);
        self.reserve_back(entry.len());
        entry.append_to(&mut self.bytes);
        self.count += 1;
    }

    /// Adds an element at the front.
    pub fn push_front(&mut self, element: Element<'_>) {
        if let Element::Bytes(bytes) = element
            && bytes.len() <= SHORT_BYTES_MAX
        {
            let gap = self.open_front(bytes.len() + 2);
            gap[0] = SHORT_HEAD | bytes.len() as u8;
            gap[1..=bytes.len()].copy_from_slice(bytes);
            gap[bytes.len() + 1] = bytes.len() as u8 + 1;
        } else {
            let entry = Entry::new(element);
            entry.copy_to(self.open_front(entry.len()));
        }
        self.count += 1;
    }

    /// Adds an element at one end.
    #[inline]
    pub fn push(&mut self, end: End, element: Element<'_>) {
        match end {
            End::Front => self.push_front(element),
            End::Back => self.push_back(element),
        }
    }

    /// Adds an element before the one at `at`, and returns its position.
    pub fn insert(&mut self, at: At, element: Element<'_>) -> At {
        if at == self.end() {
            self.push_back(element);
        } else if at == self.begin() {
            self.push_front(element);
        } else {
            let entry = Entry::new(element);
            entry.copy_to(self.resize_gap(at, 0, entry.len()));
            self.count += 1;
        }
        at
    }

    /// Replaces the element at `at`.
    pub fn replace(&mut self, at: At, element: Element<'_>) {
        let old = self.distance(at, 1);
        let entry = Entry::new(element);
        entry.copy_to(self.resize_gap(at, old, entry.len()));
        self.shrink_if_sparse();
    }

    /// Visits the element at one end and removes it; none if the pack is empty.
    #[inline]
    pub fn pop<R>(&mut self, end: End, visit: impl FnOnce(Element<'_>) -> R) -> Option<R> {
        let entries = self.entries();
        let start = match end {
            End::Front => 0,
            End::Back => {
                let len = read_tail(entries)?;
                entries.len() - len - tail_len(len)
            }
        };
        let (element, len) = decode(&entries[start..])?;
        let result = visit(element);
        match end {
            End::Front => self.start += (len + tail_len(len)) as u32,
            End::Back => self.bytes.truncate(self.start as usize + start),
        }
        self.count -= 1;
        self.shrink_if_sparse();
        Some(result)
    }

    /// Removes the element at `at`, which then is the position of the one after it.
    pub fn remove(&mut self, at: At) {
        self.remove_many(at, 1);
    }

    /// Removes up to `count` elements from `at` on, and returns how many there were.
    pub fn remove_many(&mut self, at: At, count: usize) -> usize {
        let mut offset = at.offset();
        let mut removed = 0;
        while removed < count {
            let Some(next) = self.next(At::new(offset)) else {
                break;
            };
            offset = next.offset();
            removed += 1;
        }
        self.resize_gap(at, offset - at.offset(), 0);
        self.count -= removed as u32;
        self.shrink_if_sparse();
        removed
    }

    /// Removes elements equal to `wanted`: leaves the first `skip` of them, and removes up to `max` after those.
    /// Returns how many it removed.
    pub fn remove_equal(&mut self, wanted: Element<'_>, skip: usize, max: usize) -> usize {
        let mut read = self.begin();
        for _ in 0..skip {
            match self.find(read, wanted, 0).and_then(|at| self.next(at)) {
                Some(next) => read = next,
                None => return 0,
            }
        }
        let start = self.start as usize;
        let mut write = start + read.offset();
        let mut removed = 0;
        while removed < max {
            let Some(at) = self.find(read, wanted, 0) else {
                break;
            };
            let Some(next) = self.next(at) else { break };
            self.bytes
                .copy_within(start + read.offset()..start + at.offset(), write);
            write += at.offset() - read.offset();
            read = next;
            removed += 1;
        }
        self.bytes.copy_within(start + read.offset().., write);
        let rest = self.entries().len() - read.offset();
        self.bytes.truncate(write + rest);
        self.count -= removed as u32;
        self.shrink_if_sparse();
        removed
    }

    /// Removes the elements from an index on, and returns them.
    pub fn split_off(&mut self, index: usize) -> Pack {
        let Some(at) = self.seek(index) else {
            return Pack::new();
        };
        let tail = Pack {
            bytes: self.rest(at).to_vec(),
            start: 0,
            count: self.count - index as u32,
        };
        self.bytes.truncate(self.start as usize + at.offset());
        self.count = index as u32;
        self.shrink_if_sparse();
        tail
    }

    /// Adds all elements of another pack at the end.
    pub fn append(&mut self, other: &Pack) {
        self.reserve_back(other.entries().len());
        self.bytes.extend_from_slice(other.entries());
        self.count += other.count;
    }

    /// Gives back the room that is kept for growing, where there is much of it.
    pub fn shrink(&mut self) {
        let len = self.entries().len();
        if self.bytes.capacity() > len + len / 16 {
            self.rebuild(0, 0);
        }
    }

    /// Removes everything and gives the memory back.
    pub fn clear(&mut self) {
        *self = Pack::new();
    }

    // Serialised form.

    /// Appends the pack as a listpack, header and end mark included.
    pub fn write_listpack(&self, out: &mut Vec<u8>) {
        let count = u16::try_from(self.count).unwrap_or(u16::MAX);
        out.extend_from_slice(&(self.listpack_bytes() as u32).to_le_bytes());
        out.extend_from_slice(&count.to_le_bytes());
        out.extend_from_slice(self.entries());
        out.push(0xff);
    }

    /// Parses a listpack from an untrusted source: none if it is damaged in any way.
    pub fn from_listpack(listpack: &[u8]) -> Option<Pack> {
        let (&bytes, rest) = listpack.split_first_chunk::<4>()?;
        let (&count, rest) = rest.split_first_chunk::<2>()?;
        let mut rest = rest.strip_suffix(&[0xff])?;
        if u32::from_le_bytes(bytes) as usize != listpack.len()
            || listpack.len() > Pack::SAFE_BYTES_MAX
        {
            return None;
        }
        let mut pack = Pack::with_room(rest.len(), End::Back);
        while !rest.is_empty() {
            let (element, len) = decode(rest)?;
            let end = len + tail_len(len);
            if read_tail(rest.get(..end)?)? != len {
                return None;
            }
            // That of another writer need not be.
            pack.push_back(element.canonical());
            rest = &rest[end..];
        }
        let count = u16::from_le_bytes(count);
        (count == u16::MAX || usize::from(count) == pack.len()).then_some(pack)
    }

    // Room.

    /// Returns the number of bytes that `count` elements from `at` on take.
    fn distance(&self, at: At, count: usize) -> usize {
        let end = (0..count)
            .try_fold(at, |at, _| self.next(at))
            .unwrap_or(self.end());
        end.offset() - at.offset()
    }

    /// Returns the room to leave beside `len` bytes of entries, so that growing by one stays cheap on average.
    fn slack(len: usize) -> usize {
        (len / 8).max(8)
    }

    /// Returns the capacity for this many bytes that are to become more: the allocator has sizes of which there are
    /// four to each doubling, so the bytes between two of them would be lost.
    fn room_for(bytes: usize) -> usize {
        let step = |bytes: usize| (bytes.max(64).next_power_of_two() / 8).max(8);
        let wanted = bytes + Pack::slack(bytes);
        let below = wanted / step(wanted) * step(wanted);
        if below >= bytes {
            return below;
        }
        bytes.next_multiple_of(step(bytes))
    }

    #[inline]
    fn reserve_back(&mut self, added: usize) {
        if self.bytes.capacity() - self.bytes.len() < added {
            self.grow_back(added);
        }
    }

    #[cold]
    fn grow_back(&mut self, added: usize) {
        let len = self.entries().len();
        // Elements popped at the front have paid for this move.
        if self.start as usize >= added.max(Pack::slack(len)) {
            self.bytes.drain(..self.start as usize);
            self.start = 0;
        } else {
            let capacity = Pack::room_for(self.bytes.len() + added);
            self.bytes.reserve_exact(capacity - self.bytes.len());
        }
    }

    /// Returns the bytes of undefined content in front of the entries, for an entry to be put there.
    #[inline]
    fn open_front(&mut self, added: usize) -> &mut [u8] {
        if (self.start as usize) < added {
            let len = self.entries().len();
            self.rebuild(Pack::room_for(len + added) - len, 0);
        }
        let end = self.start as usize;
        self.start -= added as u32;
        &mut self.bytes[end - added..end]
    }

    /// Copies the entries into a new allocation with this much room before and behind them.
    #[cold]
    fn rebuild(&mut self, before: usize, behind: usize) {
        let entries = self.entries();
        let mut bytes = Vec::with_capacity(before + entries.len() + behind);
        bytes.resize(before, 0);
        bytes.extend_from_slice(entries);
        self.start = before as u32;
        self.bytes = bytes;
    }

    /// Makes the `old` bytes at `at` into `new` bytes of undefined content, moving the shorter side
    /// where there is room, and returns them.
    fn resize_gap(&mut self, at: At, old: usize, new: usize) -> &mut [u8] {
        let before = at.offset();
        let behind = self.entries().len() - before - old;
        let start = self.start as usize;
        if new <= old {
            let less = old - new;
            if before < behind {
                self.bytes.copy_within(start..start + before, start + less);
                self.start += less as u32;
            } else {
                self.bytes
                    .copy_within(start + before + old.., start + before + new);
                self.bytes.truncate(start + before + new + behind);
            }
        } else {
            let more = new - old;
            if before < behind && start >= more {
                self.bytes.copy_within(start..start + before, start - more);
                self.start -= more as u32;
            } else {
                self.reserve_back(more);
                let start = self.start as usize;
                let len = self.bytes.len();
                self.bytes.resize(len + more, 0);
                self.bytes
                    .copy_within(start + before + old..len, start + before + new);
            }
        }
        let start = self.start as usize;
        &mut self.bytes[start + before..start + before + new]
    }

    #[inline]
    fn shrink_if_sparse(&mut self) {
        let len = self.entries().len();
        if self.bytes.capacity() >= SHRINK_BYTES_MIN && self.bytes.capacity() / 4 > len {
            self.rebuild(0, Pack::slack(len));
        }
    }
}

impl<'a> IntoIterator for &'a Pack {
    type Item = Element<'a>;
    type IntoIter = Iter<'a>;

    fn into_iter(self) -> Iter<'a> {
        self.iter()
    }
}

/// The elements of a stretch of a pack, from either end.
#[derive(Clone, Default)]
pub struct Iter<'a> {
    rest: &'a [u8],
}

impl<'a> Iterator for Iter<'a> {
    type Item = Element<'a>;

    #[inline]
    fn next(&mut self) -> Option<Element<'a>> {
        let (element, len) = decode(self.rest)?;
        self.rest = self.rest.get(len + tail_len(len)..)?;
        Some(element)
    }

    /// Skips entries without reading payloads.
    #[inline]
    fn nth(&mut self, n: usize) -> Option<Element<'a>> {
        for _ in 0..n {
            let len = entry_len(self.rest)?;
            self.rest = self.rest.get(len + tail_len(len)..)?;
        }
        self.next()
    }
}

impl DoubleEndedIterator for Iter<'_> {
    #[inline]
    fn next_back(&mut self) -> Option<Self::Item> {
        let len = read_tail(self.rest)?;
        let start = self.rest.len().checked_sub(len + tail_len(len))?;
        let (element, _) = decode(&self.rest[start..])?;
        self.rest = &self.rest[..start];
        Some(element)
    }
}

#[cfg(test)]
mod tests;
