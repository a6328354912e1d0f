//! Loading: what was written comes back with any number of threads, and a file that cannot be loaded says why and where.

use std::{io, path::Path, time::Instant};

use redline_rdb::{
    Format, ObjectRef,
    file::{FileErrorKind, write},
    primitive::Writer,
};
use redline_types::{Hash, Value};

use super::*;
use crate::{
    disk::{Disk, double::Double, read_whole},
    snapshot::{
        file::{Manner, write_file},
        tests::world::{DATABASES, World, clock, format},
    },
};

const THREADS: [usize; 3] = [1, 2, 4];

fn options(threads: usize) -> LoadOptions {
    LoadOptions {
        threads,
        limits: Limits::default(),
        clock: clock(false),
        now_ms: None,
        keeps_history: false,
    }
}

/// A load that has ended: its keyspace, what it returned, and how far it came.
struct End {
    world: World,
    result: Result<Loaded, LoadError>,
    progress: Progress,
}

fn load_into(space: Keyspace, bytes: &[u8], options: &LoadOptions) -> End {
    let progress = Progress::default();
    let mut scanner = Scanner::new(bytes);
    let version = scanner.header().expect("a header");
    let result = load(&mut scanner, version, &space, options, &progress);
    End {
        world: World::of(space, options.clock),
        result,
        progress,
    }
}

fn load_bytes(bytes: &[u8], options: &LoadOptions) -> End {
    let space = World::new(options.clock).space.unpublished();
    load_into(space, bytes, options)
}

fn error_of(bytes: &[u8], threads: usize) -> LoadError {
    let end = load_bytes(bytes, &options(threads));
    end.result.expect_err("it cannot be loaded")
}

/// Writes everything to a file, and returns that.
fn saved(world: &mut World, format: Format, tells_accesses: bool) -> Vec<u8> {
    let disk = Double::default();
    disk.create_dir(Path::new("/data")).unwrap();
    let (temporary, path) = (Path::new("/data/temp.rdb"), Path::new("/data/dump.rdb"));
    let (stream, head) = world.cut(format, tells_accesses);
    world.walk(|_| ());
    write_file(&disk, &stream, &head, Manner::default(), temporary, path).unwrap();
    read_whole(&disk, path, 1 << 30).unwrap().unwrap()
}

/// Returns a file of these records.
fn file_of(records: impl FnOnce(&mut Writer)) -> Vec<u8> {
    let mut out = Writer::new(false);
    write::header(&mut out, &format(11));
    records(&mut out);
    write::trailer(&mut out, None);
    out.into_bytes()
}

/// Appends a string, and returns where its record begins.
fn string(out: &mut Writer, key: &[u8], text: &[u8], meta: EntryMeta) -> u64 {
    let offset = out.len() as u64;
    let written = write::entry(out, &format(11), key, ObjectRef::String(text), &meta);
    written.expect("every version has strings");
    offset
}

/// Appends so many strings under keys of this name.
fn strings(out: &mut Writer, name: &str, count: usize) {
    for number in 0..count {
        let key = format!("{name}:{number}").into_bytes();
        string(out, &key, &[b'-'; 100], EntryMeta::default());
    }
}

fn count_of(progress: &AtomicU64) -> u64 {
    progress.load(Ordering::Relaxed)
}

#[test]
fn what_was_written_comes_back_with_any_number_of_threads() {
    for (lfu, tells_accesses) in [(false, true), (true, true), (true, false)] {
        let mut world = World::filled(clock(lfu));
        let expected = world.contents(tells_accesses);
        let encodings = world.encodings();
        let bytes = saved(&mut world, format(12), tells_accesses);
        for threads in THREADS {
            let options = LoadOptions {
                clock: clock(lfu),
                ..options(threads)
            };
            let mut end = load_bytes(&bytes, &options);
            let loaded = end.result.expect("it is loaded");
            let names: Vec<_> = loaded.facts.iter().map(|(name, _)| &name[..]).collect();
            assert_eq!(names, [&b"redis-ver"[..], b"aof-base"]);
            assert_eq!(
                loaded.libraries,
                [b"#!lua name=one\n".to_vec(), vec![b'-'; 100_000]]
            );
            assert!(end.world.contents(tells_accesses) == expected, "{threads}");
            assert_eq!(end.world.encodings(), encodings, "{threads}");
            assert_eq!(count_of(&end.progress.keys), expected.len() as u64);
            assert_eq!(count_of(&end.progress.bytes), bytes.len() as u64);
            assert_eq!(count_of(&end.progress.expired), 0);
            assert!(!end.progress.stop.load(Ordering::Relaxed));
        }
    }
}

#[test]
fn loaded_keys_are_counted_and_published_as_others_are() {
    let mut world = World::filled(clock(false));
    let expected = world.contents(true);
    let bytes = saved(&mut world, format(12), true);
    (0..100).for_each(|_| world.change());
    let counts = |world: &mut World| {
        let space = &world.space;
        let counts = |db| {
            (
                space.key_count(db),
                space.expiring_key_count(db),
                space.timed_key_count(db),
            )
        };
        (0..DATABASES).map(counts).collect::<Vec<_>>()
    };
    let end = load_into(world.space.unpublished(), &bytes, &options(4));
    end.result.expect("it is loaded");
    assert!(world.contents(true) != expected);
    world.publish(&end.world.space);
    assert!(world.contents(true) == expected);
    let mut original = load_bytes(&saved(&mut world, format(12), true), &options(1)).world;
    assert_eq!(counts(&mut world), counts(&mut original));
    // Every byte that was counted is given back.
    original.flush();
    assert_eq!(original.space.used_bytes(), original.space.fixed_bytes());
    assert!(original.contents(true).is_empty());
}

#[test]
fn a_duplicate_key_is_refused_with_its_place() {
    // Behind it, ahead in its group of keys; and in other batches.
    for between in [0, 1, 5_000] {
        let mut offset = 0;
        let bytes = file_of(|out| {
            write::select_db(out, 1);
            string(out, b"key", b"first", EntryMeta::default());
            write::select_db(out, 2);
            string(out, b"key", b"of another database", EntryMeta::default());
            strings(out, "between", between);
            offset = string(out, b"key", b"second", EntryMeta::default());
            strings(out, "behind", 5_000);
        });
        for threads in THREADS {
            let error = error_of(&bytes, threads);
            let LoadError::Duplicate {
                db,
                key,
                offset: at,
            } = &error
            else {
                panic!("{error}");
            };
            assert_eq!((*db, &key[..], *at), (2, &b"key"[..], offset));
            let text = format!("RDB has duplicated key 'key' in DB 2, at offset {offset}");
            assert_eq!(error.to_string(), text);
        }
    }
}

/// Servers before Redis 7.0 could be made to write such keys; they are all that is missing.
#[test]
fn keys_of_empty_collections_are_left_out() {
    const EMPTY_NUMBER: usize = 20;
    // A loose set, and a list of one node without elements.
    let empty: [&[u8]; 2] = [b"\x00", b"\x01\x02\x07\x07\0\0\0\0\0\xff"];
    let bytes = file_of(|out| {
        write::select_db(out, 0);
        strings(out, "before", 100);
        for number in 0..EMPTY_NUMBER {
            let rdb_type = [2, 18][number % 2];
            out.extend_from_slice(&[rdb_type, 1, b'a' + number as u8]);
            out.extend_from_slice(empty[number % 2]);
        }
        strings(out, "behind", 100);
    });
    for threads in THREADS {
        let end = load_bytes(&bytes, &options(threads));
        let mut named = end.result.expect("it is loaded").empty_keys;
        assert_eq!(count_of(&end.progress.keys), 200);
        assert_eq!(count_of(&end.progress.empty), EMPTY_NUMBER as u64);
        named.sort();
        named.dedup();
        assert_eq!(named.len(), EMPTY_KEYS_NAMED_MAX);
        assert!(named.iter().all(|key| key.len() == 1));
    }
}

#[test]
fn a_database_that_there_is_not_is_refused() {
    for number in [u64::from(DATABASES), 1 << 32, u64::MAX] {
        let bytes = file_of(|out| {
            write::select_db(out, u64::from(DATABASES) - 1);
            strings(out, "key", 10);
            write::select_db(out, number);
            strings(out, "key", 10);
        });
        for threads in THREADS {
            let error = error_of(&bytes, threads);
            let LoadError::Database { number: found, .. } = error else {
                panic!("{error}");
            };
            assert_eq!(found, number);
            assert_eq!(
                error.to_string(),
                "FATAL: Data file was created with a Redis server configured to handle more than 4 databases. Exiting"
            );
        }
    }
}

#[test]
fn keys_that_have_expired_are_left_out_unless_there_is_no_time() {
    let times = [
        None,
        Some(1),
        Some(999),
        Some(1_000),
        Some(1_001),
        Some(i64::MAX),
    ];
    let bytes = file_of(|out| {
        write::select_db(out, 0);
        for (number, expire_at_ms) in times.into_iter().enumerate() {
            let meta = EntryMeta {
                expire_at_ms,
                recency: None,
            };
            string(out, number.to_string().as_bytes(), b"text", meta);
        }
    });
    for threads in THREADS {
        for (now_ms, kept) in [(None, "012345"), (Some(1_000), "0345")] {
            let options = LoadOptions {
                now_ms,
                ..options(threads)
            };
            let mut end = load_bytes(&bytes, &options);
            end.result.expect("it is loaded");
            let contents = end.world.contents(false);
            let keys = contents.keys().flat_map(|(_, key)| key.clone());
            assert_eq!(keys.collect::<Vec<u8>>(), kept.as_bytes());
            assert_eq!(count_of(&end.progress.keys), kept.len() as u64);
            let expired = times.len() - kept.len();
            assert_eq!(count_of(&end.progress.expired), expired as u64);
        }
    }
}

#[test]
fn a_file_with_a_place_in_a_stream_keeps_what_has_expired_if_it_is_to() {
    let expired = EntryMeta {
        expire_at_ms: Some(999),
        recency: None,
    };
    for (fact, keeps_history, kept) in [
        (b"repl-id".as_slice(), true, 1),
        (b"repl-id", false, 0),
        (b"ctime", true, 0),
    ] {
        let bytes = file_of(|out| {
            write::aux(out, fact, b"0");
            write::select_db(out, 0);
            string(out, b"key", b"text", expired);
        });
        let options = LoadOptions {
            now_ms: Some(1_000),
            keeps_history,
            ..options(2)
        };
        let end = load_bytes(&bytes, &options);
        end.result.expect("it is loaded");
        assert_eq!(count_of(&end.progress.keys), kept, "{keeps_history}");
        assert_eq!(count_of(&end.progress.kept), kept);
        assert_eq!(count_of(&end.progress.expired), 1);
    }
}

#[test]
fn a_damaged_value_is_refused_with_its_place() {
    let mut hash = Hash::new();
    hash.set(b"field", b"value", &Limits::default());
    let hash: Value = hash.into();
    let mut offset = 0;
    let bytes = file_of(|out| {
        write::select_db(out, 0);
        strings(out, "before", 3_000);
        let meta = EntryMeta {
            expire_at_ms: Some(1),
            recency: None,
        };
        let from = out.len();
        let value = ObjectRef::Value(&hash);
        write::entry(out, &format(11), b"damaged", value, &meta).unwrap();
        // Behind the expiry.
        offset = from as u64 + 9;
        let last = out.len() - 1;
        assert_eq!(out[last], 0xff, "the end of a packed hash");
        out[last] = 0xfe;
        strings(out, "behind", 3_000);
    });
    for threads in THREADS {
        let error = error_of(&bytes, threads);
        let LoadError::File(error) = &error else {
            panic!("{error}");
        };
        assert!(matches!(error.kind, FileErrorKind::Corrupt(_)), "{error}");
        assert_eq!(error.offset, offset, "{error}");
    }
}

#[test]
fn a_file_that_is_cut_or_has_another_checksum_is_refused() {
    let mut world = World::filled(clock(false));
    let bytes = saved(&mut world, format(12), false);
    let mut wrong = bytes.clone();
    let last = wrong.len() - 1;
    wrong[last] ^= 1;
    for threads in THREADS {
        for len in [bytes.len() - 1, bytes.len() / 2, 10] {
            let error = error_of(&bytes[..len], threads);
            let is_cut = matches!(&error, LoadError::File(error) if matches!(error.kind, FileErrorKind::Cut));
            assert!(is_cut, "{len}: {error}");
        }
        let error = error_of(&wrong, threads);
        assert!(
            matches!(&error, LoadError::File(error) if matches!(error.kind, FileErrorKind::WrongChecksum { .. })),
            "{error}"
        );
    }
}

/// Source that tells the load to end when it gives the byte of an offset.
struct StopAt<'a> {
    rest: &'a [u8],
    given: usize,
    at: usize,
    progress: &'a Progress,
}

impl Source for StopAt<'_> {
    fn fill(&mut self, buffer: &mut Vec<u8>) -> io::Result<usize> {
        let (piece, rest) = self.rest.split_at(self.rest.len().min(10_000));
        buffer.extend_from_slice(piece);
        self.rest = rest;
        self.given += piece.len();
        if self.given > self.at {
            self.progress.stop.store(true, Ordering::Relaxed);
        }
        Ok(piece.len())
    }
}

/// One that was told to end among its last batches left these out, and was a success.
#[test]
fn a_load_that_was_told_to_end_is_no_success() {
    let bytes = file_of(|out| {
        write::select_db(out, 0);
        strings(out, "key", 10_000);
    });
    let last = bytes.len() - 1;
    for threads in THREADS {
        for at in [0, 300_000, last - 70_000, last] {
            let progress = Progress::default();
            let source = StopAt {
                rest: &bytes,
                given: 0,
                at,
                progress: &progress,
            };
            let mut scanner = Scanner::new(source);
            let version = scanner.header().unwrap();
            let space = World::new(clock(false)).space.unpublished();
            let options = options(threads);
            let result = load(&mut scanner, version, &space, &options, &progress);
            assert!(
                matches!(result, Err(LoadError::Stopped)),
                "{threads} threads, at {at}: {result:?}"
            );
        }
    }
}

#[test]
fn a_file_of_nothing_is_loaded() {
    let end = load_bytes(&file_of(|_| ()), &options(2));
    assert_eq!(end.result.expect("it is loaded"), Loaded::default());
}

#[test]
fn many_keys_are_loaded_in_time() {
    const KEYS: usize = 50_000;
    let bytes = file_of(|out| {
        write::select_db(out, 0);
        write::resize_db(out, KEYS as u64, 0);
        strings(out, "key", KEYS);
    });
    let began = Instant::now();
    let end = load_bytes(&bytes, &options(2));
    let seconds = began.elapsed().as_secs_f64();
    end.result.expect("it is loaded");
    assert_eq!(end.world.space.key_count(0), KEYS as u64);
    assert!(seconds < 20.0, "{seconds}");
}

#[test]
fn batches_of_large_values_wait_for_room_and_one_larger_than_all_goes_alone() {
    let transit = Transit::default();
    transit.enter(TRANSIT_BYTES_MAX - 1);
    let there = || *transit.bytes.lock().unwrap();
    assert!(Transit::has_room(there(), 1) && !Transit::has_room(there(), 2));
    transit.leave(TRANSIT_BYTES_MAX - 1);
    assert!(Transit::has_room(there(), usize::MAX));
    transit.enter(usize::MAX);
    assert!(!Transit::has_room(there(), 1));
}

#[test]
fn values_larger_than_the_transit_come_through_it() {
    let text = vec![b'x'; TRANSIT_BYTES_MAX + 1];
    let file = file_of(|out| {
        for number in 0..4 {
            let key = format!("k{number}");
            string(out, key.as_bytes(), &text, EntryMeta::default());
        }
    });
    let end = load_bytes(&file, &options(2));
    assert!(end.result.is_ok());
    assert_eq!(count_of(&end.progress.keys), 4);
}
