//! Chunks and their stream: what savers encode is what the writer takes, and nothing is kept that is not wanted.

pub(crate) mod world;

use std::{
    sync::atomic::AtomicUsize,
    thread,
    time::{Duration, Instant},
};

use redline_keyspace::{Expiry, Owned, snapshot::Slice};
use redline_rdb::{
    Object,
    file::{Record, Scanner, decode, opcode},
};
use redline_types::{Limits, Value, VectorSet, vector::Shape};

use super::*;
use world::{World, clock, format};

const LARGE_BYTES: usize = 1 << 20;

/// A string in a file: its database, its key, itself, and what stands beside it.
type Text = (u64, Vec<u8>, Vec<u8>, EntryMeta);

fn plain(version: u16) -> Arc<Stream> {
    Stream::new(Encoding {
        format: format(version),
        accesses: None,
    })
}

fn savers(stream: &Arc<Stream>) -> Arc<dyn Savers> {
    stream.savers(Box::new(|| ()))
}

fn save(saver: &mut dyn Saver, db: u32, key: &[u8], value: ValueRef<'_>) {
    saver.save(&SavedEntry {
        db,
        key,
        value,
        expire_at_ms: None,
        access_word: 0,
    });
}

fn short(bytes: &[u8]) -> ValueRef<'_> {
    ValueRef::String(StringRef::Inline { bytes, raw: false })
}

fn referred(blob: &Blob) -> ValueRef<'_> {
    ValueRef::String(StringRef::Blob(blob))
}

fn large(bytes: usize) -> Blob {
    Arc::new(vec![b'x'; bytes])
}

fn vector_set() -> Value {
    let mut set = VectorSet::new(Shape::default());
    set.add(b"element", &[1.0], None, 1, &mut || 0);
    set.into()
}

/// Takes all chunks that there are, and returns why there is no further one.
fn drain(stream: &Stream) -> (Vec<Chunk>, End) {
    let mut chunks = Vec::new();
    loop {
        match stream.take() {
            Ok(chunk) => chunks.push(chunk),
            Err(end) => return (chunks, end),
        }
    }
}

fn bytes_of(chunk: &Chunk, format: &Format) -> Vec<u8> {
    let mut out = Writer::new(format.compresses);
    chunk.write_to(&mut out);
    out.into_bytes()
}

/// Reads a chunk as all the records of a file, and returns its strings.
fn strings_of(chunk: &Chunk, format: &Format) -> Vec<Text> {
    let mut file = Writer::new(false);
    write::header(&mut file, format);
    file.extend(bytes_of(chunk, format));
    write::trailer(&mut file, None);
    let mut scanner = Scanner::new(&file[..]);
    let (mut db, mut strings) = (None, Vec::new());
    loop {
        match scanner.next().expect("whole records") {
            Record::SelectDb(number) => db = Some(number),
            Record::Entry(raw) => {
                let limits = Limits::default();
                let text = match decode(format.version, raw.rdb_type, raw.value, &limits) {
                    Ok(Object::String(text)) => text,
                    _ => panic!("the tests of chunks have strings"),
                };
                let db = db.expect("a chunk begins with the number of a database");
                strings.push((db, raw.key.to_vec(), text, raw.meta));
            }
            Record::End => return strings,
            other => panic!("{other:?}"),
        }
    }
}

#[test]
fn chunks_begin_with_their_database_and_hold_whole_records() {
    let stream = plain(12);
    let savers = savers(&stream);
    let mut both = [savers.saver(), savers.saver()];
    // Random, so that nothing is compressed.
    let (mut expected, mut rng) = (Vec::new(), fastrand::Rng::with_seed(1));
    for number in 0..6_000u32 {
        let (db, key) = (number / 7 % 3, number.to_string().into_bytes());
        let text: Vec<u8> = (0..40).map(|_| rng.u8(..)).collect();
        save(&mut *both[number as usize % 2], db, &key, short(&text));
        expected.push((u64::from(db), key, text, EntryMeta::default()));
    }
    both.iter_mut().for_each(|saver| saver.hand_in());
    savers.end();
    assert_eq!(stream.entries(), 6_000);
    let waiting_bytes = stream.waiting_bytes();
    let (chunks, end) = drain(&stream);
    assert_eq!((end, stream.waiting_bytes()), (End::Complete, 0));
    assert!(chunks.len() > 4, "{}", chunks.len());
    let (mut found, mut bytes) = (Vec::new(), 0);
    for chunk in &chunks {
        let encoded = bytes_of(chunk, stream.format());
        assert_eq!(encoded[0], opcode::SELECT_DB);
        assert!(encoded.len() < CHUNK_BYTES + 100, "{}", encoded.len());
        let strings = strings_of(chunk, stream.format());
        assert_eq!(strings.len() as u64, chunk.entries);
        bytes += encoded.len() as u64;
        found.extend(strings);
    }
    assert_eq!(bytes, waiting_bytes);
    let by_number = |(_, key, ..): &Text| (key.len(), key.clone());
    found.sort_unstable_by_key(by_number);
    assert!(found == expected);
}

#[test]
fn large_strings_are_referred_to_until_they_are_written() {
    let stream = plain(12);
    let savers = savers(&stream);
    let mut saver = savers.saver();
    let (large, almost) = (large(CHUNK_BYTES), large(REFERRED_BYTES_MIN - 1));
    save(&mut *saver, 1, b"before", short(b"text"));
    save(&mut *saver, 1, b"almost", referred(&almost));
    assert_eq!(Arc::strong_count(&almost), 1, "it was copied");
    save(&mut *saver, 1, b"large", referred(&large));
    assert_eq!(Arc::strong_count(&large), 2);
    assert!(stream.waiting_bytes() >= CHUNK_BYTES as u64, "it is full");
    save(&mut *saver, 1, b"after", short(b"text"));
    saver.hand_in();
    savers.end();
    let (chunks, end) = drain(&stream);
    assert_eq!((chunks.len(), end), (2, End::Complete));
    assert_eq!(Arc::strong_count(&large), 2);
    let encoded = bytes_of(&chunks[0], stream.format());
    assert!(encoded.len() < 2_000, "it is compressed by the writer");
    let strings: Vec<_> = chunks
        .iter()
        .flat_map(|chunk| strings_of(chunk, stream.format()))
        .collect();
    let keys: Vec<&[u8]> = strings.iter().map(|(_, key, ..)| &key[..]).collect();
    assert_eq!(keys, [&b"before"[..], b"almost", b"large", b"after"]);
    assert!(strings[1].2 == *almost && strings[2].2 == *large);
    drop(chunks);
    assert_eq!(Arc::strong_count(&large), 1);
}

/// Entries between referred strings were left out of a chunk's size.
#[test]
fn what_is_encoded_between_large_strings_counts() {
    let stream = Stream::new(Encoding {
        format: Format {
            compresses: false,
            ..format(12)
        },
        accesses: None,
    });
    let savers = savers(&stream);
    let mut saver = savers.saver();
    let (small, large) = (vec![b's'; 5_000], large(REFERRED_BYTES_MIN));
    for number in 0..200u32 {
        let key = number.to_string().into_bytes();
        match number % 7 {
            6 => save(&mut *saver, 0, &key, referred(&large)),
            _ => save(&mut *saver, 0, &key, short(&small)),
        }
    }
    saver.hand_in();
    savers.end();
    let waiting_bytes = stream.waiting_bytes();
    let (chunks, _) = drain(&stream);
    let sizes = chunks
        .iter()
        .map(|chunk| bytes_of(chunk, stream.format()).len());
    let sizes: Vec<usize> = sizes.collect();
    let max = CHUNK_BYTES + REFERRED_BYTES_MIN + 100;
    assert!(sizes.iter().all(|bytes| *bytes < max), "{sizes:?}");
    // The lengths before referred strings are the writer's.
    let bytes = sizes.iter().sum::<usize>() as u64;
    assert!((bytes - 200..=bytes).contains(&waiting_bytes));
}

#[test]
fn a_saver_has_no_room_while_too_much_waits_and_goes_on_all_the_same() {
    let stream = plain(12);
    let savers = savers(&stream);
    let (mut saver, other) = (savers.saver(), savers.saver());
    let large = large(LARGE_BYTES);
    let mut number = 0u32;
    while saver.has_room() {
        save(&mut *saver, 0, &number.to_le_bytes(), referred(&large));
        number += 1;
    }
    assert_eq!(u64::from(number), STREAM_BYTES_MAX / LARGE_BYTES as u64);
    assert!(!other.has_room(), "the limit is that of the snapshot");
    // A command that is about to change a key cannot rest.
    save(&mut *saver, 0, b"early", referred(&large));
    assert_eq!(stream.entries(), u64::from(number) + 1);
    assert!(stream.take().is_ok() && !saver.has_room());
    assert!(stream.take().is_ok() && saver.has_room() && other.has_room());
}

#[test]
fn a_walk_rests_while_the_stream_is_full() {
    let mut world = World::new(clock(false));
    let large = large(LARGE_BYTES);
    let keys = STREAM_BYTES_MAX as usize / LARGE_BYTES + 8;
    for number in 0..keys {
        world.in_db(0, |view| {
            let key = number.to_string().into_bytes();
            view.insert(&key, Owned::from(large.clone()), Expiry::Clear);
            view.unreported(&key);
        });
    }
    let (stream, _) = world.cut(format(12), false);
    while world.slice() != Slice::Full {}
    assert!(stream.waiting_bytes() >= STREAM_BYTES_MAX);
    assert!(stream.entries() < keys as u64);
    assert_eq!(world.slice(), Slice::Full);
    for number in 0..keys {
        world.remove(0, number.to_string().as_bytes());
    }
    assert_eq!(stream.entries(), keys as u64, "saved before the removal");
    assert_eq!(world.slice(), Slice::Full);
    while stream.waiting_bytes() >= STREAM_BYTES_MAX {
        assert!(stream.take().is_ok());
    }
    world.walk(|_| ());
    assert_eq!(drain(&stream).1, End::Complete);
    assert_eq!(stream.entries(), keys as u64);
    assert_eq!(Arc::strong_count(&large), 1);
}

#[test]
fn a_snapshot_given_up_drops_everything_and_later_saves_cost_nothing() {
    let stream = plain(12);
    let savers = savers(&stream);
    let mut saver = savers.saver();
    let large = large(CHUNK_BYTES);
    save(&mut *saver, 0, b"handed over", referred(&large));
    save(&mut *saver, 0, b"in the making", short(b"text"));
    assert_eq!((Arc::strong_count(&large), stream.entries()), (2, 1));
    stream.give_up();
    assert_eq!(Arc::strong_count(&large), 1);
    assert_eq!(stream.waiting_bytes(), 0);
    assert_eq!(stream.take().err(), Some(End::Unwanted));
    for number in 0..100u32 {
        save(&mut *saver, 0, &number.to_le_bytes(), referred(&large));
    }
    assert_eq!((Arc::strong_count(&large), stream.entries()), (1, 1));
    assert!(saver.has_room(), "the walk goes on");
    saver.hand_in();
    savers.end();
    assert_eq!((stream.waiting_bytes(), stream.entries()), (0, 1));
    assert_eq!(stream.take().err(), Some(End::Unwanted));
}

#[test]
fn who_waits_for_a_chunk_or_rests_hears_that_the_snapshot_was_given_up() {
    const LONG: Duration = Duration::from_secs(600);
    let stream = plain(12);
    let began = Instant::now();
    thread::scope(|scope| {
        let taken = scope.spawn(|| stream.take().err());
        scope.spawn(|| stream.rest(LONG));
        stream.give_up();
        assert_eq!(taken.join().unwrap(), Some(End::Unwanted));
    });
    assert!(began.elapsed() < LONG);
}

#[test]
fn who_waits_for_a_chunk_gets_it_and_then_the_end() {
    let stream = plain(12);
    let savers = savers(&stream);
    let mut saver = savers.saver();
    let (chunks, end) = thread::scope(|scope| {
        let taken = scope.spawn(|| drain(&stream));
        save(&mut *saver, 0, b"key", short(b"text"));
        saver.hand_in();
        savers.end();
        taken.join().unwrap()
    });
    assert_eq!((chunks.len(), end), (1, End::Complete));
}

#[test]
fn a_value_that_the_version_does_not_hold_ends_the_snapshot_with_its_key() {
    let stream = plain(10);
    let savers = savers(&stream);
    let (mut saver, mut other) = (savers.saver(), savers.saver());
    let large = large(CHUNK_BYTES);
    save(&mut *other, 0, b"before", referred(&large));
    let set = vector_set();
    save(&mut *saver, 3, b"the key", ValueRef::Object(&set));
    let refused = End::Refused(Refused {
        db: 3,
        key: (*b"the key").into(),
        what: "a vector set",
    });
    assert_eq!(stream.take().err().as_ref(), Some(&refused));
    assert_eq!((Arc::strong_count(&large), stream.waiting_bytes()), (1, 0));
    save(&mut *other, 0, b"later", ValueRef::Object(&set));
    save(&mut *other, 0, b"later", referred(&large));
    assert_eq!(Arc::strong_count(&large), 1);
    saver.hand_in();
    other.hand_in();
    savers.end();
    stream.give_up();
    assert_eq!(stream.take().err(), Some(refused), "the first one stays");
}

#[test]
fn the_record_of_accesses_is_written_as_of_the_cut() {
    for (accesses, word, expected) in [
        (None, 100, None),
        (Some(clock(false)), 100, Some(Recency::IdleSeconds(60_020))),
        // Two minutes later, two less.
        (
            Some(clock(true)),
            1_000 << 8 | 9,
            Some(Recency::Frequency(7)),
        ),
    ] {
        let stream = Stream::new(Encoding {
            format: format(12),
            accesses,
        });
        let mut saver = savers(&stream).saver();
        for key in [&b"short"[..], b"large"] {
            let large = large(REFERRED_BYTES_MIN);
            saver.save(&SavedEntry {
                db: 0,
                key,
                value: match key {
                    b"short" => short(b"text"),
                    _ => referred(&large),
                },
                expire_at_ms: Some(77),
                access_word: word,
            });
        }
        saver.hand_in();
        let chunk = stream.take().expect("a chunk");
        let meta = EntryMeta {
            expire_at_ms: Some(77),
            recency: expected,
        };
        let strings = strings_of(&chunk, stream.format());
        assert_eq!(strings.len(), 2);
        assert!(strings.iter().all(|string| string.3 == meta));
    }
}

#[test]
fn who_feeds_the_stream_hears_that_everything_is_saved() {
    let calls = Arc::new(AtomicUsize::new(0));
    let counted = calls.clone();
    let stream = plain(12);
    let savers = stream.savers(Box::new(move || {
        counted.fetch_add(1, Ordering::Relaxed);
    }));
    savers.everything_is_saved();
    assert_eq!(calls.load(Ordering::Relaxed), 1);
}
