//! Entries: every form of value and header, written and read back.

use redline_types::{DataType, Limits, List, Set};

use super::*;

/// Key lengths on both sides of every border of the layout, and values on both sides of inline.
const KEY_LENS: [usize; 8] = [0, 1, 7, 8, 16, 300, 65_535, 65_536];
const VALUE_LENS: [usize; 6] = [0, 1, 16, 45, INLINE_BYTES_MAX, INLINE_BYTES_MAX + 1];
const EXPIRIES: [Option<i64>; 4] = [None, Some(0), Some(i64::MAX), Some(1_700_000_000_000)];

fn text(len: usize, seed: u8) -> Vec<u8> {
    (0..len)
        .map(|at| (at as u8).wrapping_mul(31) ^ seed)
        .collect()
}

fn list() -> Value {
    let mut list = List::default();
    list.push_back(b"element", &Limits::default());
    list.into()
}

/// Returns the bytes as a packed collection, of the count that their form allows.
fn packed(form: PackedForm, bytes: &[u8]) -> PackedRef<'_> {
    let count = bytes.len() / form.element_bytes().unwrap_or(2);
    PackedRef { form, count, bytes }
}

/// A value that a test stores: built anew for each entry.
#[derive(Clone, Copy, Debug)]
enum Sample {
    Bytes(usize, bool),
    Blob(usize),
    List,
    /// A packed collection of so many bytes.
    Packed(PackedForm, usize),
}

impl Sample {
    fn all() -> Vec<Sample> {
        let bytes = VALUE_LENS.map(|len| Sample::Bytes(len, len % 2 == 1));
        let packed = PackedForm::ALL.iter().flat_map(|form| {
            let lens = [0, 8, 24, PACKED_BYTES_MAX];
            lens.map(|len| Sample::Packed(*form, len))
        });
        let packed: Vec<Sample> = packed.collect();
        [&bytes[..], &[Sample::Blob(20_000), Sample::List], &packed].concat()
    }

    fn create(self, heap: &mut Heap, key: &[u8], expire_at_ms: Option<i64>, clock: u32) -> Entry {
        match self {
            Sample::Bytes(len, raw) => {
                let value = Stored::Bytes {
                    bytes: &text(len, 7),
                    raw,
                };
                Entry::create(heap, key, value, expire_at_ms, clock, Phase::default())
            }
            Sample::Blob(len) => Entry::create(
                heap,
                key,
                Stored::Blob(Arc::new(text(len, 7))),
                expire_at_ms,
                clock,
                Phase::default(),
            ),
            Sample::List => Entry::create(
                heap,
                key,
                Stored::Object(list()),
                expire_at_ms,
                clock,
                Phase::default(),
            ),
            Sample::Packed(form, len) => {
                let bytes = text(len, 5);
                let stored = Stored::Packed(packed(form, &bytes));
                Entry::create(heap, key, stored, expire_at_ms, clock, Phase::default())
            }
        }
    }

    #[track_caller]
    fn check(self, value: Content<'_>) {
        match (self, value) {
            (Sample::Bytes(len, raw), Content::String(string)) => {
                assert_eq!(string.as_bytes(), text(len, 7));
                match string {
                    StringRef::Inline { raw: stored, .. } => {
                        assert!(len <= INLINE_BYTES_MAX);
                        assert_eq!(stored, raw);
                    }
                    StringRef::Blob(_) => assert!(len > INLINE_BYTES_MAX),
                }
            }
            (Sample::Blob(len), Content::String(StringRef::Blob(blob))) => {
                assert_eq!(blob[..], text(len, 7));
            }
            (Sample::List, Content::Object(Value::List(list))) => assert_eq!(list.len(), 1),
            (Sample::Packed(form, len), Content::Packed(stored)) => {
                let bytes = text(len, 5);
                let expected = packed(form, &bytes);
                assert_eq!((stored.form, stored.count), (form, expected.count));
                assert_eq!(stored.bytes, bytes);
            }
            _ => panic!("a value of another kind than {self:?}"),
        }
    }
}

fn lens() -> &'static [usize] {
    if cfg!(miri) {
        &KEY_LENS[..6]
    } else {
        &KEY_LENS
    }
}

#[test]
fn every_combination_of_parts_is_read_back() {
    let mut heap = Heap::new();
    for key_len in lens() {
        for sample in Sample::all() {
            for expire_at_ms in EXPIRIES {
                let key = text(*key_len, 3);
                let entry = sample.create(&mut heap, &key, expire_at_ms, 0xab_cdef);
                // SAFETY: the entry is ours alone, and destroyed once, at the end.
                unsafe {
                    assert_eq!(entry.key(), key);
                    sample.check(entry.content());
                    assert_eq!(entry.expire_at_ms(), expire_at_ms);
                    assert_eq!(entry.clock(), 0xab_cdef);
                    assert!(entry.heap_bytes() >= key.len() + 8);

                    entry.set_clock(0x12_3456);
                    if expire_at_ms.is_some() {
                        entry.set_expire_at_ms(&Change::of_loose_entry(), 77);
                    }
                    assert_eq!(entry.clock(), 0x12_3456);
                    assert_eq!(entry.expire_at_ms(), expire_at_ms.map(|_| 77));
                    assert_eq!(entry.key(), key);
                    sample.check(entry.content());
                    drop(entry.destroy(&mut heap));
                }
            }
        }
    }
}

#[test]
fn rebuilding_gives_and_takes_room_for_an_expiry() {
    let mut heap = Heap::new();
    for key_len in lens() {
        for sample in Sample::all() {
            let key = text(*key_len, 5);
            let entry = sample.create(&mut heap, &key, None, 9);
            // SAFETY: the entry is ours alone; `rebuild` consumes the old one.
            unsafe {
                let with = entry.rebuild(&mut heap, Some(123));
                assert_eq!((with.key(), with.expire_at_ms()), (&key[..], Some(123)));
                sample.check(with.content());
                let without = with.rebuild(&mut heap, None);
                assert_eq!((without.key(), without.expire_at_ms()), (&key[..], None));
                assert_eq!(without.clock(), 9);
                sample.check(without.content());
                drop(without.destroy(&mut heap));
            }
        }
    }
}

#[test]
fn a_string_is_overwritten_in_place_only_where_it_fits() {
    let mut heap = Heap::new();
    for (old, new, expire_at_ms, expiry, fits) in [
        (16, 16, None, Expiry::Clear, true),
        (16, 9, None, Expiry::Clear, true), // 33 and 40 bytes share the class of 40
        (16, 8, None, Expiry::Clear, false),
        (16, 17, None, Expiry::Clear, false),
        (16, 16, None, Expiry::Keep, true),
        (16, 16, None, Expiry::AtMs(5), false),
        (16, 16, Some(1), Expiry::Clear, false),
        (16, 16, Some(1), Expiry::Keep, true),
        (16, 12, Some(1), Expiry::AtMs(5), true),
        (
            INLINE_BYTES_MAX,
            INLINE_BYTES_MAX + 1,
            None,
            Expiry::Clear,
            false,
        ),
    ] {
        let case = format!("{old} bytes, {expire_at_ms:?} to {new} bytes, {expiry:?}");
        let key = text(16, 1);
        let entry = Sample::Bytes(old, true).create(&mut heap, &key, expire_at_ms, 3);
        // SAFETY: the entry is ours alone, and destroyed once.
        unsafe {
            assert_eq!(
                entry.overwrite(&Change::of_loose_entry(), &text(new, 9), false, expiry),
                fits,
                "{case}"
            );
            assert_eq!(entry.key(), key, "{case}");
            assert_eq!(entry.clock(), 3, "{case}");
            let Content::String(StringRef::Inline { bytes, raw }) = entry.content() else {
                panic!("{case}: still an inline string");
            };
            let expected = if fits {
                (text(new, 9), false)
            } else {
                (text(old, 7), true)
            };
            assert_eq!((bytes.to_vec(), raw), expected, "{case}");
            let at_ms = match expiry {
                Expiry::AtMs(at_ms) if fits => Some(at_ms),
                _ => expire_at_ms,
            };
            assert_eq!(entry.expire_at_ms(), at_ms, "{case}");
            drop(entry.destroy(&mut heap));
        }
    }
}

#[test]
fn a_packed_collection_is_overwritten_in_place_only_where_it_fits() {
    use PackedForm::{Hash, Ints16, Ints32, Set};
    let mut heap = Heap::new();
    // Behind header and key there are 16 bytes, and 2 for a count.
    for ((old_form, old), (new_form, new), fits) in [
        ((Hash, 22), (Hash, 22), true),
        ((Hash, 15), (Hash, 22), true), // 41 and 48 bytes share the class of 48
        ((Hash, 22), (Hash, 14), false),
        ((Hash, 22), (Hash, 23), false),
        ((Ints16, 24), (Ints32, 20), true),
        ((Ints32, 24), (Set, 22), true),
        ((Ints32, 24), (Set, 23), false),
        ((Set, 950), (Set, PACKED_BYTES_MAX), false),
    ] {
        for expire_at_ms in EXPIRIES {
            let case = format!("{old_form:?} of {old} to {new_form:?} of {new} bytes");
            let key = text(16, 1);
            let sample = Sample::Packed(old_form, old);
            let entry = sample.create(&mut heap, &key, expire_at_ms, 3);
            let bytes = text(new, 5);
            // SAFETY: the entry is ours alone, and destroyed once.
            unsafe {
                let overwritten =
                    entry.overwrite_packed(&Change::of_loose_entry(), packed(new_form, &bytes));
                assert_eq!(overwritten, fits, "{case}");
                let now = if fits {
                    Sample::Packed(new_form, new)
                } else {
                    sample
                };
                now.check(entry.content());
                assert_eq!(entry.key(), key, "{case}");
                assert_eq!((entry.clock(), entry.expire_at_ms()), (3, expire_at_ms));
                let value = Stored::Packed(packed(new_form, &bytes));
                let other = entry.with_value(&mut heap, value);
                Sample::Packed(new_form, new).check(other.content());
                assert_eq!(other.key(), key, "{case}");
                assert_eq!((other.clock(), other.expire_at_ms()), (3, expire_at_ms));
                assert!(entry.destroy(&mut heap).is_none() && other.value_bytes() == 0);
                let owned = other.into_owned(&mut heap);
                assert!(matches!(owned, Owned::Packed { form, bytes: taken, .. }
                    if form == new_form && taken == bytes));
            }
        }
    }
    let string = Sample::Bytes(16, false).create(&mut heap, b"key", None, 0);
    // SAFETY: as above.
    unsafe {
        assert!(!string.overwrite_packed(&Change::of_loose_entry(), packed(Set, &text(16, 7))));
        Sample::Bytes(16, false).check(string.content());
        drop(string.destroy(&mut heap));
    }
}

#[test]
fn a_set_of_ten_small_integers_takes_its_bytes_and_no_more() {
    let mut heap = Heap::new();
    let mut set = Set::new();
    (0..10).for_each(|n| assert!(set.add(n.to_string().as_bytes(), &Limits::default())));
    let value = Stored::Packed(set.packed().expect("it is small"));
    let entry = Entry::create(&mut heap, b"set:1234", value, None, 0, Phase::default());
    // SAFETY: the entry is ours alone, and destroyed once.
    unsafe {
        assert_eq!(entry.heap_bytes(), 40, "header, key and 20 bytes");
        drop(entry.destroy(&mut heap));
    }
}

#[test]
fn a_key_and_value_of_16_bytes_take_40() {
    let mut heap = Heap::new();
    let entry = Sample::Bytes(16, false).create(&mut heap, &text(16, 1), None, 0);
    // SAFETY: the entry is ours alone, and destroyed once.
    unsafe {
        assert_eq!(entry.heap_bytes(), 40);
        drop(entry.destroy(&mut heap));
    }
}

#[test]
fn a_blob_is_shared_with_replies_and_released_by_the_last() {
    let mut heap = Heap::new();
    let blob = Arc::new(text(20_000, 7));
    let value = Stored::Blob(blob.clone());
    let entry = Entry::create(&mut heap, b"key", value, None, 0, Phase::default());
    assert_eq!(Arc::strong_count(&blob), 2);
    // SAFETY: the entry is ours alone, and destroyed once.
    unsafe { drop(entry.destroy(&mut heap)) };
    assert_eq!(Arc::strong_count(&blob), 1);

    let entry = Entry::create(
        &mut heap,
        b"key",
        Stored::Blob(blob.clone()),
        None,
        0,
        Phase::default(),
    );
    // SAFETY: as above; `into_owned` consumes the entry.
    let owned = unsafe { entry.into_owned(&mut heap) };
    assert!(matches!(owned, Owned::Blob(taken) if Arc::ptr_eq(&taken, &blob)));
}

#[test]
fn editing_a_blob_leaves_replies_alone_and_reserves_ahead() {
    let mut blob: Blob = Arc::new(text(1 << 20, 7));
    let reply = blob.clone();
    blob_to_edit(&mut blob, 1).push(1);
    assert_eq!(reply.len(), 1 << 20, "the reply has the old value");
    assert_eq!(blob.len(), (1 << 20) + 1);
    drop(reply);

    let mut moves = 0;
    for _ in 0..100_000 {
        let before = blob.as_ptr();
        blob_to_edit(&mut blob, 100).extend_from_slice(&[0; 100]);
        moves += usize::from(before != blob.as_ptr());
    }
    assert!(
        moves < 20,
        "10 MB were added in pieces of 100 bytes with {moves} copies"
    );
    assert!(
        blob.capacity() < blob.len() / 4 * 5 + (1 << 20),
        "at most a quarter to spare"
    );
}

#[test]
fn encodings_have_the_borders_of_redis() {
    let encoding = |bytes: &[u8], key_len, expires| {
        StringRef::Inline { bytes, raw: false }.encoding(key_len, expires)
    };
    for (value_len, key_len, expires, name) in [
        (40, 1, false, "embstr"),
        (41, 1, false, "raw"),
        (32, 1, true, "embstr"),
        (33, 1, true, "raw"),
        (10, 31, false, "embstr"),
        (2, 31, true, "embstr"),
        (3, 31, true, "raw"),
        (9, 32, true, "embstr"),
        (10, 32, false, "raw"),
        (1, 60, false, "raw"),
    ] {
        assert_eq!(
            encoding(&vec![b'v'; value_len], key_len, expires),
            name,
            "{value_len} {key_len}"
        );
    }
    assert_eq!(encoding(b"-9223372036854775808", 1000, true), "int");
    assert_eq!(encoding(b"01", 1, false), "embstr");
    assert_eq!(
        StringRef::Inline {
            bytes: b"1",
            raw: true
        }
        .encoding(1, false),
        "raw"
    );
}

#[test]
fn an_entry_overwritten_in_place_was_freed_where_it_did_not_come_from() {
    let mut heap = Heap::new();
    let mut in_place = 0;
    // Around every size at which another allocator might take over.
    for key_len in [250, 500, 4_000, 5_000] {
        let lens = (15_900..=INLINE_BYTES_MAX).step_by(120);
        for (old, new) in lens.clone().flat_map(|a| lens.clone().map(move |b| (a, b))) {
            let (key, fresh) = (text(key_len, 1), text(new, 3));
            let stored = Stored::Bytes {
                bytes: &text(old, 2),
                raw: false,
            };
            let entry = Entry::create(&mut heap, &key, stored, None, 0, Phase::default());
            // SAFETY: the entry is alive and ours alone until it is destroyed.
            unsafe {
                if entry.overwrite(&Change::of_loose_entry(), &fresh, false, Expiry::Keep) {
                    in_place += 1;
                    let Content::String(string) = entry.content() else {
                        panic!("a string");
                    };
                    assert_eq!(string.as_bytes(), fresh);
                }
                assert!(entry.destroy(&mut heap).is_none());
            }
        }
    }
    assert!(in_place > 0);
}
