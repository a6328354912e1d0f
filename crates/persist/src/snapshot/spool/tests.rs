//! Tests of the spool: memory stays within its limit, nothing is lost, and a spool that fails ends the snapshot.

use std::{sync::atomic::Ordering, thread, time::Duration};

use redline_keyspace::{
    Blob, StringRef, ValueRef,
    snapshot::{SavedEntry, Saver},
};

use super::*;
use crate::{
    disk::double::{Double, Fault},
    snapshot::{CHUNK_BYTES, Encoding, End, tests::world::format},
};

const VALUE_BYTES: usize = 15_000;
/// Number of values that are a fifth more than what stays in memory.
const VALUES: u32 = (SPOOL_BYTES_MIN / 5 * 6 / VALUE_BYTES as u64) as u32;

fn stream() -> Arc<Stream> {
    Stream::new(Encoding {
        format: format(11),
        accesses: None,
    })
}

/// Value of a number, which does not compress.
fn value(number: u32) -> Vec<u8> {
    let mut bytes = vec![0; VALUE_BYTES];
    fastrand::Rng::with_seed(number.into()).fill(&mut bytes);
    bytes
}

fn save(saver: &mut dyn Saver, number: u32) {
    saver.save(&SavedEntry {
        db: 0,
        key: &number.to_be_bytes(),
        value: ValueRef::String(StringRef::Inline {
            bytes: &value(number),
            raw: false,
        }),
        expire_at_ms: None,
        access_word: 0,
    });
}

fn disk() -> Double {
    let disk = Double::default();
    disk.create_dir(Path::new("/data")).unwrap();
    disk
}

const PATH: &str = "/data/temp-spool-1.rdb";

/// Waits until the spool has taken what it should.
fn settled(stream: &Stream) {
    let mut waits = 0;
    while stream.waiting_bytes() > SPOOL_BYTES_MIN && !stream.is_unwanted() {
        thread::sleep(Duration::from_millis(1));
        waits += 1;
        assert!(waits < 60_000, "{} bytes wait", stream.waiting_bytes());
    }
}

/// Returns the numbers of the keys of a chunk, whose values must be whole.
fn numbers_of(chunk: &Chunk) -> Vec<u32> {
    let mut bytes = Writer::new(false);
    chunk.write_to(&mut bytes);
    // SELECTDB of the first one, then a type, a key of four bytes, a length in two bytes and the value, again and again.
    let mut rest = &bytes[2..];
    let mut numbers = Vec::new();
    while !rest.is_empty() {
        assert_eq!(rest[..2], [0, 4]);
        let number = u32::from_be_bytes(rest[2..6].try_into().unwrap());
        assert_eq!(rest[8..8 + VALUE_BYTES], value(number));
        numbers.push(number);
        rest = &rest[8 + VALUE_BYTES..];
    }
    assert_eq!(numbers.len() as u64, chunk.entries);
    numbers
}

#[test]
fn what_comes_beyond_the_limit_waits_in_a_file_and_none_of_it_is_lost() {
    let (stream, disk) = (stream(), disk());
    let savers = stream.savers(Box::new(|| ()));
    let mut saver = savers.saver();
    let most = thread::scope(|scope| {
        scope.spawn(|| stream.run_spool(&disk, Path::new(PATH)));
        let mut most = 0;
        for number in 0..VALUES {
            save(&mut *saver, number);
            settled(&stream);
            most = most.max(stream.waiting_bytes());
        }
        saver.hand_in();
        savers.end();
        // The writer takes all while the spool is still there.
        let mut numbers = Vec::new();
        let end = loop {
            match stream.take() {
                Ok(chunk) => numbers.extend(numbers_of(&chunk)),
                Err(end) => break end,
            }
        };
        stream.close_spool();
        assert_eq!(end, End::Complete);
        numbers.sort_unstable();
        assert!(numbers.into_iter().eq(0..VALUES));
        most
    });
    assert!(most <= SPOOL_BYTES_MIN + 2 * CHUNK_BYTES as u64, "{most}");
    assert!(disk.list(Path::new("/data")).unwrap().is_empty());
    assert_eq!(stream.waiting_bytes(), 0);
}

#[test]
fn the_walk_does_not_go_on_while_the_spool_takes_what_is_too_much() {
    let (stream, disk) = (stream(), disk());
    let savers = stream.savers(Box::new(|| ()));
    let mut saver = savers.saver();
    thread::scope(|scope| {
        let mut number = 0;
        while stream.waiting_bytes() <= SPOOL_BYTES_MIN {
            save(&mut *saver, number);
            number += 1;
        }
        let spooling = scope.spawn(|| stream.run_spool(&disk, Path::new(PATH)));
        while stream.waiting_bytes() > LEFT_BYTES {
            assert!(!saver.has_room());
            thread::sleep(Duration::from_millis(1));
        }
        assert!(!saver.has_room(), "the spool is for what cannot rest");
        stream.close_spool();
        spooling.join().unwrap();
    });
}

#[test]
fn large_strings_are_encoded_on_their_way_to_the_spool() {
    let (stream, disk) = (stream(), disk());
    let savers = stream.savers(Box::new(|| ()));
    let mut saver = savers.saver();
    let large: Blob = Arc::new(vec![b'x'; 1 << 20]);
    thread::scope(|scope| {
        let spooling = scope.spawn(|| stream.run_spool(&disk, Path::new(PATH)));
        for number in 0..64_u32 {
            saver.save(&SavedEntry {
                db: 0,
                key: &number.to_be_bytes(),
                value: ValueRef::String(StringRef::Blob(&large)),
                expire_at_ms: None,
                access_word: 0,
            });
        }
        settled(&stream);
        stream.close_spool();
        spooling.join().unwrap();
    });
    saver.hand_in();
    savers.end();
    assert!(
        Arc::strong_count(&large) < 64,
        "the spool does not keep them"
    );
    let (mut count, mut first) = (0, None);
    while let Ok(chunk) = stream.take() {
        count += chunk.entries;
        let mut bytes = Writer::new(stream.format().compresses);
        chunk.write_to(&mut bytes);
        // All but the key are the same.
        let value = bytes[8..].to_vec();
        assert_eq!(first.get_or_insert_with(|| value.clone()), &value);
    }
    assert_eq!(count, 64);
    assert_eq!(Arc::strong_count(&large), 1);
}

#[test]
fn a_spool_that_cannot_be_written_or_read_ends_the_snapshot() {
    // The calls are: create, remove, write, and so on.
    for (call, fault) in [
        (0, Fault::Error),
        (1, Fault::Error),
        (2, Fault::Full),
        (2, Fault::Error),
        (5, Fault::Short),
    ] {
        let (stream, disk) = (stream(), disk());
        let savers = stream.savers(Box::new(|| ()));
        let mut saver = savers.saver();
        disk.fail_at(disk.calls() + call, fault);
        thread::scope(|scope| {
            scope.spawn(|| stream.run_spool(&disk, Path::new(PATH)));
            for number in (0..VALUES).take_while(|_| !stream.is_unwanted()) {
                save(&mut *saver, number);
                settled(&stream);
            }
            stream.close_spool();
        });
        saver.hand_in();
        savers.end();
        if fault == Fault::Short {
            // The rest is written by another call.
            assert!(!stream.is_unwanted());
            continue;
        }
        let text = match fault {
            Fault::Full => "No space left on device",
            _ => "Input/output error",
        };
        assert_eq!(stream.take().err(), Some(End::Spool(text.to_owned())));
        assert!(stream.is_unwanted(), "the walk only marks from here on");
        assert_eq!(stream.waiting_bytes.load(Ordering::Relaxed), 0);
    }
}

#[test]
fn a_snapshot_that_is_given_up_ends_its_spool() {
    let (stream, disk) = (stream(), disk());
    thread::scope(|scope| {
        let spooling = scope.spawn(|| stream.run_spool(&disk, Path::new(PATH)));
        stream.give_up();
        spooling.join().unwrap();
    });
    assert_eq!(stream.take().err(), Some(End::Unwanted));
}
