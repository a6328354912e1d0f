//! Entries: one allocation holds a key, its metadata and, when small, its value.
//!
//! Must not know: databases, locks, expiry policy. An [`Entry`] is a pointer; the stripe lock of its key decides who
//! may use it (see `view.rs`).
//!
//! # Layout
//!
//! ```text
//! header  8 bytes   bits 0..5 tag | 5 phase | 6 has expiry | 7 long key | 8..32 clock | 32..48 key length
//!                   | 48..63 value length | 63 raw string
//! expiry  8 bytes   only with the expiry bit: Unix time in milliseconds
//! length  8 bytes   only with the long-key bit: length of a key above 65,535 bytes
//! slot    8, 16     only when the value is not inline: the pointer of a blob, or a collection's [`Value`]
//! key     its bytes
//! count   2 bytes   only for a packed collection, unless its elements are all of one width
//! value   its bytes, when inline
//! ```
//!
//! A 16-byte key with a 16-byte value takes 40 bytes: the heap has exact 8-byte classes. Strings above
//! [`INLINE_BYTES_MAX`] are reference-counted blobs, so that a reply can leave without a copy and be
//! sent after the key has gone.
//!
//! # Collections
//!
//! One that is a run of bytes (see `redline_types::packed`) and not above [`PACKED_BYTES_MAX`] is inline as well. A
//! structure, the room that its vector keeps for growing and the classes of a general allocator would add some 60 bytes
//! to it, and two more cache misses to each look at it. Readers and writers copy it into a [`Value`] that is used again
//! and again (`opened.rs`); a change that stays within the size class is then copied over the old bytes, any other
//! makes a new entry. Other collections are a [`Value`], which is a tag and a pointer, and move back in when they have
//! shrunk to [`PACKED_AGAIN_BYTES_MAX`]: half, so that one at the border does not move at every step.

use std::{ptr::NonNull, sync::Arc};

use redline_table::Heap;
use redline_types::{Kind, PackedForm, PackedRef, Value, number};

use crate::view::{Change, Expiry};

/// A large string: reference-counted, immutable while a reply refers to it.
pub type Blob = Arc<Vec<u8>>;

/// Longest string that is stored inside its entry.
pub const INLINE_BYTES_MAX: usize = 16 * 1024;

/// Largest packed collection that is stored inside its entry. With its key it mostly is below the 1 KiB up to which the
/// heap's classes are exact, and two copies of it cost less than the search through it.
pub const PACKED_BYTES_MAX: usize = 960;

/// Largest packed collection that comes back into its entry.
pub const PACKED_AGAIN_BYTES_MAX: usize = PACKED_BYTES_MAX / 2;

const TAG_MASK: u64 = 0x1f;
const PHASE: u64 = 1 << 5;
const EXPIRE: u64 = 1 << 6;
const LONG_KEY: u64 = 1 << 7;
const CLOCK_SHIFT: u32 = 8;
const CLOCK_MASK: u64 = 0xff_ffff;
const KEY_LEN_SHIFT: u32 = 32;
const VALUE_LEN_SHIFT: u32 = 48;
const VALUE_LEN_MASK: u64 = 0x7fff;
const RAW: u64 = 1 << 63;

/// One of the two phases of an entry, by which snapshots tell whether they have it: see [`snapshot`](crate::snapshot).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Phase(u64);

impl Phase {
    /// Returns the phase of this parity.
    #[inline]
    pub(crate) fn of(parity: u32) -> Phase {
        Phase(u64::from(parity & 1) << PHASE.trailing_zeros())
    }
}

/// The form in which an entry's value is stored. Values 0..32; the tag is the first five bits of the entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
enum Tag {
    Inline = 0,
    Blob = 1,
    Object = 2,
    /// A collection as bytes; this and the following tags, one for each [`PackedForm`].
    Packed = 3,
}

/// A value to be stored.
pub(crate) enum Stored<'a> {
    /// A string of any length. `raw`: it was edited in place, which OBJECT ENCODING tells.
    Bytes { bytes: &'a [u8], raw: bool },
    /// A large string that is already reference-counted.
    Blob(Blob),
    /// A collection that stays outside the entry, whatever its size.
    Object(Value),
    /// One of at most [`PACKED_BYTES_MAX`] that goes inside.
    Packed(PackedRef<'a>),
}

impl Stored<'_> {
    /// Returns the type of a collection; strings have none, since no client waits for them.
    pub(crate) fn kind(&self) -> Option<Kind> {
        match self {
            Stored::Object(value) => Some(value.kind()),
            Stored::Packed(packed) => Some(packed.form.kind()),
            Stored::Bytes { .. } | Stored::Blob(_) => None,
        }
    }
}

/// A stored value as seen by a reader.
pub enum ValueRef<'a> {
    /// A string.
    String(StringRef<'a>),
    /// A list, hash, set, sorted set or stream.
    Object(&'a Value),
}

/// The contents of an entry.
#[derive(Clone, Copy)]
pub(crate) enum Content<'a> {
    String(StringRef<'a>),
    Object(&'a Value),
    Packed(PackedRef<'a>),
}

impl Content<'_> {
    /// Returns the type of a collection; `None` for a string.
    #[inline]
    pub(crate) fn kind(self) -> Option<Kind> {
        match self {
            Content::String(_) => None,
            Content::Object(value) => Some(value.kind()),
            Content::Packed(packed) => Some(packed.form.kind()),
        }
    }

    /// Returns the name of the type, as TYPE replies it.
    pub(crate) fn type_name(self) -> &'static str {
        self.kind().map_or("string", Kind::name)
    }
}

/// Returns the bytes of a collection, if they may be stored inside an entry.
#[inline]
pub(crate) fn fit_for_entry(value: &Value) -> Option<PackedRef<'_>> {
    value
        .packed()
        .filter(|packed| packed.bytes.len() <= PACKED_BYTES_MAX)
}

/// A stored string.
#[derive(Clone, Copy)]
pub enum StringRef<'a> {
    /// Inside its entry.
    Inline {
        /// The value.
        bytes: &'a [u8],
        /// It was made by an edit in place (APPEND, SETRANGE).
        raw: bool,
    },
    /// Reference-counted: may be sent without a copy.
    Blob(&'a Blob),
}

impl<'a> StringRef<'a> {
    /// Returns the value's bytes.
    #[inline]
    pub fn as_bytes(self) -> &'a [u8] {
        match self {
            StringRef::Inline { bytes, .. } => bytes,
            StringRef::Blob(blob) => blob,
        }
    }

    /// Returns the encoding of a string under a key of that length, as OBJECT ENCODING replies it: `int`, `embstr` or
    /// `raw`.
    ///
    /// `embstr` is what Redis 8 calls a string that shares one allocation of 64 bytes with its key and its expiry.
    /// Redis fixes this when the value is stored; this function says what it would be if it were stored now.
    pub fn encoding(self, key_bytes: usize, expires: bool) -> &'static str {
        const EMBSTR_BYTES_MAX: usize = 41;
        const SHORT_KEY_BYTES_MAX: usize = 31;
        let expiry_bytes = if expires && key_bytes <= SHORT_KEY_BYTES_MAX {
            8
        } else {
            0
        };
        match self {
            StringRef::Inline { raw: true, .. } | StringRef::Blob(_) => "raw",
            StringRef::Inline { bytes, .. } if number::parse_i64(bytes).is_some() => "int",
            StringRef::Inline { bytes, .. }
                if bytes.len() + key_bytes + expiry_bytes <= EMBSTR_BYTES_MAX =>
            {
                "embstr"
            }
            StringRef::Inline { .. } => "raw",
        }
    }
}

impl ValueRef<'_> {
    /// Returns the name of the type, as TYPE replies it.
    pub fn type_name(&self) -> &'static str {
        match self {
            ValueRef::String(_) => "string",
            ValueRef::Object(value) => value.kind().name(),
        }
    }
}

/// A pointer to an entry. Copying it copies no data; its last holder removes it from the table and destroys it.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) struct Entry(NonNull<u8>);

impl Entry {
    /// Allocates an entry. `clock` is the 24-bit LRU or LFU word, `phase` that of its slot for one that is new.
    pub(crate) fn create(
        heap: &mut Heap,
        key: &[u8],
        value: Stored<'_>,
        expire_at_ms: Option<i64>,
        clock: u32,
        phase: Phase,
    ) -> Entry {
        let value = match value {
            Stored::Bytes { bytes, .. } if bytes.len() > INLINE_BYTES_MAX => {
                Stored::Blob(Arc::new(bytes.to_vec()))
            }
            value => value,
        };
        let long = key.len() > usize::from(u16::MAX);
        let mut header = u64::from(clock) << CLOCK_SHIFT | phase.0;
        header |= if expire_at_ms.is_some() { EXPIRE } else { 0 };
        header |= if long {
            LONG_KEY
        } else {
            (key.len() as u64) << KEY_LEN_SHIFT
        };
        header |= match &value {
            Stored::Bytes { bytes, raw } => {
                let raw = if *raw { RAW } else { 0 };
                Tag::Inline as u64 | (bytes.len() as u64) << VALUE_LEN_SHIFT | raw
            }
            Stored::Blob(_) => Tag::Blob as u64,
            Stored::Object(_) => Tag::Object as u64,
            Stored::Packed(packed) => {
                assert!(packed.bytes.len() <= PACKED_BYTES_MAX);
                packed_header(packed)
            }
        };
        let key_at = key_offset(header);
        let pointer = heap.alloc(key_at + key.len() + inline_bytes(header));
        // SAFETY: `allocate` gave `key_at + key.len() + inline_bytes(header)` bytes, 8-aligned, ours alone; every
        // write below stays within them, at the offsets that the layout above gives.
        unsafe {
            let base = pointer.as_ptr();
            base.cast::<u64>().write(header);
            if let Some(at) = expire_at_ms {
                base.add(EXPIRE_AT).cast::<i64>().write(at);
            }
            if long {
                base.add(long_len_offset(header))
                    .cast::<u64>()
                    .write(key.len() as u64);
            }
            base.add(key_at)
                .copy_from_nonoverlapping(key.as_ptr(), key.len());
            let slot = base.add(slot_offset(header));
            match value {
                Stored::Bytes { bytes, .. } => {
                    base.add(key_at + key.len())
                        .copy_from_nonoverlapping(bytes.as_ptr(), bytes.len());
                }
                Stored::Blob(blob) => slot.cast::<Blob>().write(blob),
                Stored::Object(object) => slot.cast::<Value>().write(object),
                Stored::Packed(packed) => write_packed(base.add(key_at + key.len()), packed),
            }
        }
        Entry(pointer)
    }

    /// Makes an entry of a pointer that the table holds.
    #[inline]
    pub(crate) fn from_table(pointer: NonNull<u8>) -> Entry {
        Entry(pointer)
    }

    /// Returns the pointer for the table.
    #[inline]
    pub(crate) fn pointer(self) -> NonNull<u8> {
        self.0
    }

    /// Frees the entry and drops its value. Returns the part that can be dropped elsewhere: a collection or blob whose
    /// release may take long.
    ///
    /// # Safety
    /// The entry is out of the table, alive, and this is its last use.
    pub(crate) unsafe fn destroy(self, heap: &mut Heap) -> Option<Garbage> {
        // SAFETY: the caller's entry is alive and ours; its slot is read once and then freed.
        unsafe {
            let header = self.header();
            let bytes = self.bytes();
            let slot = self.0.as_ptr().add(slot_offset(header));
            let garbage = match tag(header) {
                Tag::Inline | Tag::Packed => None,
                Tag::Blob => Some(Garbage::Blob(slot.cast::<Blob>().read())),
                Tag::Object => Some(Garbage::Object(slot.cast::<Value>().read())),
            };
            heap.free(self.0, bytes);
            garbage
        }
    }

    /// Takes the value out as an owned one and frees the entry (RENAME, MOVE).
    ///
    /// # Safety
    /// As for [`Entry::destroy`].
    pub(crate) unsafe fn into_owned(self, heap: &mut Heap) -> Owned {
        // SAFETY: handed on from the caller; inline bytes are copied before the entry is freed.
        unsafe {
            let inline = match self.content() {
                Content::String(StringRef::Inline { bytes, raw }) => Some(Owned::Bytes {
                    bytes: bytes.to_vec(),
                    raw,
                }),
                Content::Packed(packed) => Some(Owned::of_packed(packed)),
                Content::String(StringRef::Blob(_)) | Content::Object(_) => None,
            };
            match (self.destroy(heap), inline) {
                (Some(Garbage::Blob(blob)), _) => Owned::Blob(blob),
                (Some(Garbage::Object(object)), _) => Owned::Object(object),
                (None, Some(inline)) => inline,
                (None, None) => unreachable!("a value is inline or has a slot"),
            }
        }
    }

    /// Returns the key.
    ///
    /// # Safety
    /// The entry is alive for `'a` and is not moved or destroyed meanwhile: the caller holds the stripe of its key.
    /// This holds for all methods below.
    #[inline]
    pub(crate) unsafe fn key<'a>(self) -> &'a [u8] {
        // SAFETY: the layout puts the key there; the caller vouches for the entry.
        unsafe {
            let header = self.header();
            let key_at = key_offset(header);
            std::slice::from_raw_parts(self.0.as_ptr().add(key_at), self.key_len(header))
        }
    }

    /// Returns the value.
    ///
    /// # Safety
    /// See [`Entry::key`].
    #[inline]
    pub(crate) unsafe fn content<'a>(self) -> Content<'a> {
        // SAFETY: the tag says what the entry holds; the caller vouches for the entry.
        unsafe {
            let header = self.header();
            let base = self.0.as_ptr();
            match tag(header) {
                Tag::Inline => Content::String(StringRef::Inline {
                    bytes: std::slice::from_raw_parts(
                        base.add(key_offset(header) + self.key_len(header)),
                        inline_len(header),
                    ),
                    raw: header & RAW != 0,
                }),
                Tag::Blob => Content::String(StringRef::Blob(
                    &*base.add(slot_offset(header)).cast::<Blob>(),
                )),
                Tag::Object => Content::Object(&*base.add(slot_offset(header)).cast::<Value>()),
                Tag::Packed => {
                    let at = base.add(key_offset(header) + self.key_len(header));
                    Content::Packed(read_packed(at, header))
                }
            }
        }
    }

    /// Returns the collection outside the entry, to be changed; `None` for a string and a packed collection.
    ///
    /// # Safety
    /// See [`Entry::key`]; and no other
    /// reference into this entry's value is alive.
    pub(crate) unsafe fn object_mut<'a>(self, change: &Change) -> Option<&'a mut Value> {
        change.assert_covers(self);
        // SAFETY: as for `value`; the caller has the only reference.
        unsafe {
            let header = self.header();
            let slot = self.0.as_ptr().add(slot_offset(header));
            (tag(header) == Tag::Object).then(|| &mut *slot.cast::<Value>())
        }
    }

    /// Returns the collection outside the entry, for a snapshot that freezes it or takes its pieces: neither is a change
    /// that a reader sees.
    ///
    /// # Safety
    /// See [`Entry::object_mut`].
    pub(crate) unsafe fn object_to_freeze<'a>(self) -> Option<&'a mut Value> {
        // SAFETY: as for `object_mut`.
        unsafe {
            let header = self.header();
            let slot = self.0.as_ptr().add(slot_offset(header));
            (tag(header) == Tag::Object).then(|| &mut *slot.cast::<Value>())
        }
    }

    /// Returns the blob, to be changed.
    ///
    /// # Safety
    /// See [`Entry::object_mut`].
    pub(crate) unsafe fn blob_mut<'a>(self, change: &Change) -> Option<&'a mut Blob> {
        change.assert_covers(self);
        // SAFETY: as for `object_mut`.
        unsafe {
            let header = self.header();
            let slot = self.0.as_ptr().add(slot_offset(header));
            (tag(header) == Tag::Blob).then(|| &mut *slot.cast::<Blob>())
        }
    }

    /// Returns the bytes of an inline string, to be changed: OBJECT ENCODING calls it `raw` from then on.
    ///
    /// # Safety
    /// See [`Entry::object_mut`].
    pub(crate) unsafe fn inline_mut<'a>(self, change: &Change) -> Option<&'a mut [u8]> {
        change.assert_covers(self);
        // SAFETY: as for `object_mut`; the header says where the bytes are, and how many.
        unsafe {
            let header = self.header();
            if tag(header) != Tag::Inline {
                return None;
            }
            let base = self.0.as_ptr();
            base.cast::<u64>().write(header | RAW);
            let at = key_offset(header) + self.key_len(header);
            Some(std::slice::from_raw_parts_mut(
                base.add(at),
                inline_len(header),
            ))
        }
    }

    /// Overwrites an inline string in place, if the new one fits the same size class and the entry has the room for an
    /// expiry that it needs, neither more nor less.
    ///
    /// # Safety
    /// See [`Entry::object_mut`].
    #[inline]
    pub(crate) unsafe fn overwrite(
        self,
        change: &Change,
        value: &[u8],
        raw: bool,
        expiry: Expiry,
    ) -> bool {
        change.assert_covers(self);
        // SAFETY: as for `object_mut`; the length is checked against the entry's own size class.
        unsafe {
            let header = self.header();
            let fits_expiry = match expiry {
                Expiry::Clear => header & EXPIRE == 0,
                Expiry::Keep => true,
                Expiry::AtMs(_) => header & EXPIRE != 0,
            };
            if tag(header) != Tag::Inline || !fits_expiry {
                return false;
            }
            let at = key_offset(header) + self.key_len(header);
            let old = inline_len(header);
            if value.len() != old
                && (value.len() > INLINE_BYTES_MAX
                    || Heap::size_class(at + value.len()) != Heap::size_class(at + old))
            {
                return false;
            }
            let cleared = header & !(RAW | VALUE_LEN_MASK << VALUE_LEN_SHIFT);
            let header =
                cleared | (value.len() as u64) << VALUE_LEN_SHIFT | if raw { RAW } else { 0 };
            let base = self.0.as_ptr();
            base.cast::<u64>().write(header);
            if let Expiry::AtMs(at_ms) = expiry {
                base.add(EXPIRE_AT).cast::<i64>().write(at_ms);
            }
            base.add(at)
                .copy_from_nonoverlapping(value.as_ptr(), value.len());
            true
        }
    }

    /// Overwrites a packed collection in place, if the new one fits the same size class.
    ///
    /// # Safety
    /// See [`Entry::object_mut`]. The new bytes are not the entry's own.
    #[inline]
    pub(crate) unsafe fn overwrite_packed(self, change: &Change, packed: PackedRef<'_>) -> bool {
        change.assert_covers(self);
        assert!(packed.bytes.len() <= PACKED_BYTES_MAX);
        // SAFETY: as for `object_mut`; the length is checked against the entry's own size class.
        unsafe {
            let header = self.header();
            if tag(header) != Tag::Packed {
                return false;
            }
            let at = key_offset(header) + self.key_len(header);
            let fresh =
                header & !(TAG_MASK | VALUE_LEN_MASK << VALUE_LEN_SHIFT) | packed_header(&packed);
            if Heap::size_class(at + inline_bytes(fresh))
                != Heap::size_class(at + inline_bytes(header))
            {
                return false;
            }
            self.0.as_ptr().cast::<u64>().write(fresh);
            write_packed(self.0.as_ptr().add(at), packed);
            true
        }
    }

    /// Returns the time when the key expires, as Unix time in milliseconds.
    ///
    /// # Safety
    /// See [`Entry::key`].
    #[inline]
    pub(crate) unsafe fn expire_at_ms(self) -> Option<i64> {
        // SAFETY: the bit says that the field exists.
        unsafe {
            (self.header() & EXPIRE != 0)
                .then(|| self.0.as_ptr().add(EXPIRE_AT).cast::<i64>().read())
        }
    }

    /// Returns a time before which no element of the value expires; `None` if none ever does, or it has none.
    ///
    /// # Safety
    /// See [`Entry::key`].
    #[inline]
    pub(crate) unsafe fn earliest_expiry_ms(self) -> Option<i64> {
        // SAFETY: handed on.
        match unsafe { self.content() } {
            Content::String(_) | Content::Packed(_) => None,
            Content::Object(object) => object.earliest_expiry_ms(),
        }
    }

    /// Changes an expiry that exists already.
    ///
    /// # Safety
    /// See [`Entry::object_mut`].
    pub(crate) unsafe fn set_expire_at_ms(self, change: &Change, at: i64) {
        change.assert_covers(self);
        // SAFETY: asserted: the field exists.
        unsafe {
            assert!(
                self.header() & EXPIRE != 0,
                "the entry has no room for an expiry"
            );
            self.0.as_ptr().add(EXPIRE_AT).cast::<i64>().write(at);
        }
    }

    /// Returns the 24-bit LRU or LFU word.
    ///
    /// # Safety
    /// See [`Entry::key`].
    #[inline]
    pub(crate) unsafe fn clock(self) -> u32 {
        // SAFETY: the header is always there.
        unsafe { (self.header() >> CLOCK_SHIFT & CLOCK_MASK) as u32 }
    }

    /// Writes the clock. Readers do this too: they hold the stripe as a writer does, and no reference
    /// ever covers the header.
    ///
    /// # Safety
    /// See [`Entry::key`].
    #[inline]
    pub(crate) unsafe fn set_clock(self, clock: u32) {
        // SAFETY: the header is always there, and only ever accessed by value.
        unsafe {
            let header = self.header() & !(CLOCK_MASK << CLOCK_SHIFT);
            self.0
                .as_ptr()
                .cast::<u64>()
                .write(header | u64::from(clock) << CLOCK_SHIFT);
        }
    }

    /// Returns the phase.
    ///
    /// # Safety
    /// See [`Entry::key`].
    #[inline]
    pub(crate) unsafe fn phase(self) -> Phase {
        // SAFETY: the header is always there.
        Phase(unsafe { self.header() } & PHASE)
    }

    /// Sets the phase. Like the clock it may be written while readers have references to the key and the value.
    ///
    /// # Safety
    /// See [`Entry::key`].
    pub(crate) unsafe fn set_phase(self, phase: Phase) {
        // SAFETY: the header is always there, and only ever accessed by value.
        unsafe {
            let header = self.header() & !PHASE;
            self.0.as_ptr().cast::<u64>().write(header | phase.0);
        }
    }

    /// Rebuilds the entry with or without room for an expiry, or at another place (compaction), in its phase.
    /// The old one is freed, its value moves.
    ///
    /// # Safety
    /// See [`Entry::destroy`]; the caller replaces the
    /// pointer in the table.
    pub(crate) unsafe fn rebuild(self, heap: &mut Heap, expire_at_ms: Option<i64>) -> Entry {
        // SAFETY: the slot is moved, not dropped; inline bytes and the key are copied before the free.
        unsafe {
            let header = self.header();
            let slot = self.0.as_ptr().add(slot_offset(header));
            let value = match self.content() {
                Content::String(StringRef::Inline { bytes, raw }) => Stored::Bytes { bytes, raw },
                Content::String(StringRef::Blob(_)) => Stored::Blob(slot.cast::<Blob>().read()),
                Content::Object(_) => Stored::Object(slot.cast::<Value>().read()),
                Content::Packed(packed) => Stored::Packed(packed),
            };
            let phase = self.phase();
            let fresh = Entry::create(heap, self.key(), value, expire_at_ms, self.clock(), phase);
            heap.free(self.0, self.bytes());
            fresh
        }
    }

    /// Makes another entry of this key, with its expiry, clock and phase, that has this value; the old one stays as it is.
    ///
    /// # Safety
    /// See [`Entry::key`].
    pub(crate) unsafe fn with_value(self, heap: &mut Heap, value: Stored<'_>) -> Entry {
        // SAFETY: handed on from the caller.
        unsafe {
            let (expire_at_ms, clock) = (self.expire_at_ms(), self.clock());
            Entry::create(heap, self.key(), value, expire_at_ms, clock, self.phase())
        }
    }

    /// Returns the number of bytes that the entry itself takes from the heap, its size class.
    ///
    /// # Safety
    /// See [`Entry::key`].
    #[inline]
    pub(crate) unsafe fn heap_bytes(self) -> usize {
        // SAFETY: handed on.
        unsafe { Heap::size_class(self.bytes()) }
    }

    /// Returns the heap bytes of the value outside the entry.
    ///
    /// # Safety
    /// See [`Entry::key`].
    #[inline]
    pub(crate) unsafe fn value_bytes(self) -> usize {
        // SAFETY: handed on.
        match unsafe { self.content() } {
            Content::String(StringRef::Inline { .. }) | Content::Packed(_) => 0,
            Content::String(StringRef::Blob(blob)) => blob_bytes(blob),
            Content::Object(object) => object.heap_bytes(),
        }
    }

    unsafe fn bytes(self) -> usize {
        // SAFETY: handed on from the caller.
        unsafe {
            let header = self.header();
            key_offset(header) + self.key_len(header) + inline_bytes(header)
        }
    }

    #[inline]
    unsafe fn header(self) -> u64 {
        // SAFETY: an entry begins with its header.
        unsafe { self.0.as_ptr().cast::<u64>().read() }
    }

    #[inline]
    unsafe fn key_len(self, header: u64) -> usize {
        if header & LONG_KEY == 0 {
            usize::from((header >> KEY_LEN_SHIFT) as u16)
        } else {
            // SAFETY: the bit says that the field exists.
            unsafe {
                self.0
                    .as_ptr()
                    .add(long_len_offset(header))
                    .cast::<u64>()
                    .read() as usize
            }
        }
    }
}

/// A value taken out of its entry.
pub enum Owned {
    /// A string.
    Bytes {
        /// The value.
        bytes: Vec<u8>,
        /// It was made by an edit in place.
        raw: bool,
    },
    /// A large string.
    Blob(Blob),
    /// A collection.
    Object(Value),
    /// One that was inside its entry.
    Packed {
        /// The form of the bytes.
        form: PackedForm,
        /// Elements in them.
        count: usize,
        /// The value.
        bytes: Vec<u8>,
    },
}

impl From<Blob> for Owned {
    fn from(blob: Blob) -> Owned {
        Owned::Blob(blob)
    }
}

impl From<Value> for Owned {
    fn from(value: Value) -> Owned {
        Owned::Object(value)
    }
}

macro_rules! owned {
    ($($(#[$doc:meta])* $name:ident,)*) => {$(
        impl From<redline_types::$name> for Owned {
            fn from(value: redline_types::$name) -> Owned { Owned::Object(value.into()) }
        }
    )*};
}
redline_types::data_types!(owned);

impl Owned {
    pub(crate) fn type_name(&self) -> &'static str {
        match self {
            Owned::Bytes { .. } | Owned::Blob(_) => "string",
            Owned::Object(value) => value.kind().name(),
            Owned::Packed { form, .. } => form.kind().name(),
        }
    }

    /// Returns a copy of a packed collection.
    pub(crate) fn of_packed(packed: PackedRef<'_>) -> Owned {
        Owned::Packed {
            form: packed.form,
            count: packed.count,
            bytes: packed.bytes.to_vec(),
        }
    }

    pub(crate) fn with_stored<R>(self, store: impl FnOnce(Stored<'_>) -> R) -> R {
        match self {
            Owned::Bytes { bytes, raw } => store(Stored::Bytes { bytes: &bytes, raw }),
            Owned::Blob(blob) => store(Stored::Blob(blob)),
            Owned::Object(object) => match fit_for_entry(&object) {
                Some(packed) => store(Stored::Packed(packed)),
                None => store(Stored::Object(object)),
            },
            Owned::Packed { form, count, bytes } => store(Stored::Packed(PackedRef {
                form,
                count,
                bytes: &bytes,
            })),
        }
    }
}

/// A value whose release may take long: dropped behind the command, not in it.
pub enum Garbage {
    /// A large string.
    Blob(Blob),
    /// A collection.
    Object(Value),
}

impl Garbage {
    /// Returns true if its release is worth a hand-over to another thread. Redis frees up to 64 elements in place.
    pub fn is_heavy(&self) -> bool {
        match self {
            Garbage::Blob(blob) => blob.len() > 1024 * 1024,
            Garbage::Object(object) => object.free_effort() > 64,
        }
    }

    /// Returns the number of bytes that its release gives back, unless a reply still refers to it.
    pub fn heap_bytes(&self) -> usize {
        match self {
            Garbage::Blob(blob) => blob.capacity(),
            Garbage::Object(object) => object.heap_bytes(),
        }
    }
}

/// Returns a blob's bytes, to be changed, with room for `more`. While a reply refers to the blob, this makes a copy of
/// its own first. Capacity grows by more than is asked for, so that many small additions to a large string copy it only
/// now and then.
pub(crate) fn blob_to_edit(blob: &mut Blob, more: usize) -> &mut Vec<u8> {
    const DOUBLED_BYTES_MAX: usize = 1024 * 1024;
    let spare = if blob.len() <= DOUBLED_BYTES_MAX {
        blob.len()
    } else {
        blob.len() / 4
    };
    let spare = if more == 0 { 0 } else { spare.max(more) };
    if Arc::get_mut(blob).is_none() {
        let mut copy = Vec::with_capacity(blob.len() + spare);
        copy.extend_from_slice(blob);
        *blob = Arc::new(copy);
    }
    let bytes = Arc::get_mut(blob).expect("no other reference, and weak ones are never made");
    if bytes.capacity() - bytes.len() < more {
        bytes.reserve_exact(spare);
    }
    bytes
}

/// Returns the heap bytes of a blob.
pub(crate) fn blob_bytes(blob: &Blob) -> usize {
    blob.capacity() + size_of::<Vec<u8>>() + 16
}

const EXPIRE_AT: usize = 8;

#[inline]
fn tag(header: u64) -> Tag {
    match header & TAG_MASK {
        0 => Tag::Inline,
        1 => Tag::Blob,
        2 => Tag::Object,
        _ => Tag::Packed,
    }
}

/// Returns the form of the bytes of a packed collection.
#[inline]
fn packed_form(header: u64) -> PackedForm {
    PackedForm::ALL[(header & TAG_MASK) as usize - Tag::Packed as usize]
}

/// Returns tag and length of a packed collection.
#[inline]
fn packed_header(packed: &PackedRef<'_>) -> u64 {
    let tag = Tag::Packed as u64 + packed.form as u64;
    tag | (packed.bytes.len() as u64) << VALUE_LEN_SHIFT
}

/// Returns the number of bytes of the count in front of a packed collection of that form.
#[inline]
fn count_bytes(form: PackedForm) -> usize {
    if form.element_bytes().is_some() {
        0
    } else {
        size_of::<u16>()
    }
}

/// # Safety
/// Behind `at` there is room for the count and the bytes, which no other code uses.
#[inline]
unsafe fn write_packed(at: *mut u8, packed: PackedRef<'_>) {
    let count_bytes = count_bytes(packed.form);
    // SAFETY: handed on from the caller.
    unsafe {
        if count_bytes != 0 {
            debug_assert!(packed.count <= usize::from(u16::MAX));
            at.cast::<u16>().write_unaligned(packed.count as u16);
        }
        at.add(count_bytes)
            .copy_from_nonoverlapping(packed.bytes.as_ptr(), packed.bytes.len());
    }
}

/// # Safety
/// At `at` there is what `write_packed` put there, for as long as the result lives; the header tells its form and length.
#[inline]
unsafe fn read_packed<'a>(at: *const u8, header: u64) -> PackedRef<'a> {
    let (form, len) = (packed_form(header), inline_len(header));
    // SAFETY: handed on from the caller.
    unsafe {
        let (count, at) = match form.element_bytes() {
            Some(width) => (len / width, at),
            None => {
                let count = at.cast::<u16>().read_unaligned();
                (usize::from(count), at.add(size_of::<u16>()))
            }
        };
        PackedRef {
            form,
            count,
            bytes: std::slice::from_raw_parts(at, len),
        }
    }
}

#[inline]
fn inline_len(header: u64) -> usize {
    (header >> VALUE_LEN_SHIFT & VALUE_LEN_MASK) as usize
}

/// Returns the number of bytes behind the key.
#[inline]
fn inline_bytes(header: u64) -> usize {
    match tag(header) {
        Tag::Inline => inline_len(header),
        Tag::Blob | Tag::Object => 0,
        Tag::Packed => count_bytes(packed_form(header)) + inline_len(header),
    }
}

#[inline]
fn key_offset(header: u64) -> usize {
    /// Tag and fields of a short string without an expiry: all zero.
    const SHAPE: u64 = 0xff & !PHASE;
    if header & SHAPE == 0 {
        return 8;
    }
    let fields = (header >> 6 & 1) + (header >> 7 & 1);
    8 + 8 * fields as usize + slot_bytes(header)
}

#[inline]
fn slot_offset(header: u64) -> usize {
    key_offset(header) - slot_bytes(header)
}

#[inline]
fn slot_bytes(header: u64) -> usize {
    match tag(header) {
        Tag::Inline | Tag::Packed => 0,
        Tag::Blob => size_of::<Blob>(),
        Tag::Object => size_of::<Value>(),
    }
}

fn long_len_offset(header: u64) -> usize {
    8 + 8 * (header >> 6 & 1) as usize
}

#[cfg(test)]
mod tests;
