//! Files of snapshots on the disk's double: what is in them, and what is left when a call fails or the power does.

use std::{
    collections::BTreeSet,
    thread,
    time::{Duration, Instant},
};

use redline_keyspace::{Expiry, Owned};
use redline_rdb::{
    Format,
    file::{Record, Scanner, opcode},
};

use super::*;
use crate::{
    disk::{
        double::{Double, FAULTS, Fault, Kept},
        read_whole,
    },
    snapshot::tests::world::{Contents, World, clock, contents_of_file, format},
};

const FOLDER: &str = "/data";
const TEMPORARY: &str = "/data/temp.rdb";
const FILE: &str = "/data/dump.rdb";
const OLD: &[u8] = b"the old file";

/// Gives a stream up when the walk's thread panics: its writer would wait for ever.
struct GivenUp<'a>(&'a Stream);

impl Drop for GivenUp<'_> {
    fn drop(&mut self) {
        if thread::panicking() {
            self.0.give_up();
        }
    }
}

fn with_old_file() -> Double {
    let disk = Double::default();
    disk.create_dir(Path::new(FOLDER)).unwrap();
    let file = disk.create(Path::new(FILE)).unwrap();
    write_all(&*file, &[OLD]).unwrap();
    file.sync_data().unwrap();
    disk.sync_dir(Path::new(FOLDER)).unwrap();
    disk
}

fn write(
    disk: &Double,
    stream: &Stream,
    head: &Head,
    manner: Manner,
) -> Result<Written, SaveError> {
    let (temporary, path) = (Path::new(TEMPORARY), Path::new(FILE));
    write_file(disk, stream, head, manner, temporary, path)
}

/// Takes a snapshot, with something else after each step of the walk.
fn save(
    world: &mut World,
    disk: &Double,
    format: Format,
    manner: Manner,
    between: impl FnMut(&mut World),
) -> Result<Written, SaveError> {
    let (stream, head) = world.cut(format, true);
    let result = thread::scope(|scope| {
        let writer = scope.spawn(|| write(disk, &stream, &head, manner));
        let _given_up = GivenUp(&stream);
        world.walk(between);
        writer.join().expect("no panic")
    });
    if result.is_err() {
        assert!(stream.take().is_err(), "it is given up");
        assert_eq!(stream.waiting_bytes(), 0);
    }
    result
}

fn file(disk: &Double) -> Vec<u8> {
    let bytes = read_whole(disk, Path::new(FILE), 1 << 30);
    bytes.unwrap().expect("it is not that large")
}

fn has_temporary(disk: &Double) -> bool {
    disk.exists(Path::new(TEMPORARY)).unwrap()
}

fn assert_is_new(disk: &Double, expected: &Contents, why: &str) {
    let contents = contents_of_file(&file(disk)).unwrap_or_else(|error| panic!("{why}: {error}"));
    assert!(contents == *expected, "{why}");
}

/// Large collections of all types that are saved in pieces change all the time, and so do those that stand beside them.
#[test]
fn large_collections_are_in_the_file_as_they_were_in_one_piece_each() {
    for version in [9, 12] {
        // Not under an LFU policy: a use counts before the entry is saved, so a counter may be one ahead of the cut.
        let mut world = World::new(clock(false));
        // Version 9 does not hold fields that expire, nor all of a stream.
        (0..6).for_each(|round| world.fill_large(round, version == 12));
        let disk = with_old_file();
        let expected = world.contents(true);
        let written = save(
            &mut world,
            &disk,
            format(version),
            Manner::default(),
            |world| {
                world.change_large();
            },
        );
        assert_is_new(&disk, &expected, "the file");
        assert_eq!(written.unwrap().entries, expected.len() as u64);
        assert!(world.contents(true) != expected, "something was changed");
    }
}

#[test]
fn a_snapshot_given_up_ends_with_large_collections_in_the_middle() {
    let mut world = World::new(clock(true));
    (0..2).for_each(|round| world.fill_large(round, true));
    let (stream, _) = world.cut(format(12), true);
    for step in 0.. {
        world.slice();
        world.change_large();
        if step == 60 {
            assert!(world.space.is_snapshot_running());
            stream.give_up();
            break;
        }
    }
    world.walk(|_| ());
    assert_eq!((stream.waiting_bytes(), stream.take().is_err()), (0, true));
    // The next one has everything, so nothing is frozen any more.
    let disk = with_old_file();
    let expected = world.contents(true);
    save(&mut world, &disk, format(12), Manner::default(), |_| ()).unwrap();
    assert_is_new(&disk, &expected, "the next one");
}

#[test]
fn a_file_has_its_head_then_all_that_was_there_at_the_cut() {
    let mut world = World::filled(clock(true));
    let disk = with_old_file();
    let expected = world.contents(true);
    let mut changes = 0..300;
    let written = save(&mut world, &disk, format(12), Manner::default(), |world| {
        changes.next().into_iter().for_each(|_| world.change());
    });
    let written = written.unwrap();
    assert_is_new(&disk, &expected, "the file");
    assert!(world.contents(true) != expected, "something was changed");
    assert!(!has_temporary(&disk));
    let bytes = file(&disk);
    assert_eq!(written.bytes, bytes.len() as u64);
    assert_eq!(written.entries, expected.len() as u64);
    let keys = |db: u32| expected.keys().filter(|(of, _)| *of == db).count() as u64;
    let mut scanner = Scanner::new(&bytes[..]);
    let mut head = Vec::new();
    loop {
        head.push(match scanner.next().unwrap() {
            Record::Aux { name, value } => {
                format!("{} {}", name.escape_ascii(), value.escape_ascii())
            }
            Record::Function(text) => format!("library of {}", text.len()),
            Record::SelectDb(db) => format!("db {db}"),
            Record::ResizeDb { keys, .. } => format!("keys {keys}"),
            Record::Entry(_) | Record::End => break,
        });
    }
    // The database of the first chunk follows.
    head.pop();
    let (first, last) = (format!("keys {}", keys(0)), format!("keys {}", keys(3)));
    let expected = [
        "redis-ver 8.2.3",
        "aof-base 0",
        "library of 15",
        "library of 100000",
        "db 0",
        &first,
        "db 3",
        &last,
    ];
    assert_eq!(head, expected);
}

#[test]
fn a_file_without_a_checksum_ends_with_zeros_and_one_of_an_old_version_has_no_libraries() {
    let mut world = World::new(clock(false));
    let disk = with_old_file();
    let format = Format {
        checksums: false,
        ..format(9)
    };
    let written = save(&mut world, &disk, format, Manner::default(), |_| ());
    assert_eq!(written.unwrap().entries, 0);
    let bytes = file(&disk);
    assert!(bytes.starts_with(b"REDIS0009") && bytes.len() < 100);
    assert!(bytes.ends_with(&[opcode::END, 0, 0, 0, 0, 0, 0, 0, 0]));
}

/// Returns true if the call of this name had taken effect on the names when it failed.
fn is_renamed(call: &str, fault: Fault) -> bool {
    call == "sync_dir" || (call == "rename" && fault == Fault::DoneButError)
}

/// Asserts that one of two whole files is there.
fn assert_is_old_or_new(disk: &Double, may_be_new: bool, expected: &Contents, why: &str) {
    if file(disk) == OLD {
        return;
    }
    assert!(may_be_new, "{why}: the old file is gone");
    assert_is_new(disk, expected, why);
}

#[test]
fn a_call_that_fails_leaves_the_old_file_and_the_next_snapshot_is_right() {
    let mut world = World::filled(clock(false));
    let mut kept = (0..).map(|number| match number % 4 {
        0 => Kept::All,
        1 => Kept::Nothing,
        _ => Kept::Some { seed: number },
    });
    let mut hits = BTreeSet::new();
    for call in 0.. {
        let mut came = false;
        for fault in FAULTS {
            let disk = with_old_file();
            let at = disk.calls() + call;
            disk.fail_at(at, fault);
            let expected = world.contents(true);
            let mut changes = 0..20;
            let result = save(&mut world, &disk, format(12), Manner::default(), |world| {
                changes.next().into_iter().for_each(|_| world.change());
            });
            let names = disk.call_names();
            let Some(hit) = names.get(at).copied() else {
                assert!(result.is_ok());
                continue;
            };
            came = true;
            hits.insert(hit);
            let why = format!("{fault:?} at {hit} {call}");
            disk.forget_faults();
            disk.make_room();
            let is_taken = hit == "write" && fault == Fault::Short;
            assert_eq!(result.is_ok(), is_taken, "{why}: {result:?}");
            let may_be_new = is_taken || is_renamed(hit, fault);
            if fault != Fault::PowerLost {
                assert!(!has_temporary(&disk), "{why}");
                match may_be_new {
                    true => assert_is_new(&disk, &expected, &why),
                    false => assert!(file(&disk) == OLD, "{why}"),
                }
            }
            disk.restart(kept.next().unwrap());
            assert_is_old_or_new(&disk, may_be_new, &expected, &why);
            let expected = world.contents(true);
            let again = save(&mut world, &disk, format(12), Manner::default(), |_| ());
            assert!(again.is_ok(), "{why}: {again:?}");
            disk.restart(kept.next().unwrap());
            assert_is_new(&disk, &expected, &why);
            assert!(!has_temporary(&disk), "{why}");
        }
        if !came {
            break;
        }
    }
    let calls = ["create", "write", "sync_data", "rename", "sync_dir"];
    assert_eq!(hits, BTreeSet::from(calls), "each call was met");
}

#[test]
fn a_file_that_was_written_outlives_a_loss_of_power() {
    let mut world = World::filled(clock(false));
    let kinds = (0..6).map(|seed| Kept::Some { seed });
    for kept in kinds.chain([Kept::All, Kept::Nothing]) {
        let disk = with_old_file();
        let expected = world.contents(true);
        save(&mut world, &disk, format(12), Manner::default(), |_| ()).unwrap();
        disk.restart(kept);
        assert_is_new(&disk, &expected, &format!("{kept:?}"));
        assert!(!has_temporary(&disk));
    }
}

#[test]
fn errors_say_what_failed_and_how() {
    let mut world = World::filled(clock(false));
    for (call, text) in [
        ("create", "Failed opening the temp RDB file for saving"),
        ("write", "Write error saving DB on disk"),
        ("sync_data", "Write error saving DB on disk (fsync)"),
        (
            "rename",
            "Error moving temp DB file on the final destination",
        ),
        ("sync_dir", "Failed to fsync the folder of the DB file"),
    ] {
        let calm = with_old_file();
        let before = calm.calls();
        save(&mut world, &calm, format(12), Manner::default(), |_| ()).unwrap();
        let names = calm.call_names();
        let at = (before..names.len()).find(|at| names[*at] == call);
        let disk = with_old_file();
        disk.fail_at(at.expect("it is called"), Fault::Error);
        let result = save(&mut world, &disk, format(12), Manner::default(), |_| ());
        let error = result.unwrap_err().to_string();
        assert_eq!(error, format!("{text}: Input/output error"));
    }
}

#[test]
fn a_value_that_the_version_does_not_hold_leaves_the_old_file() {
    let mut world = World::filled(clock(false));
    let disk = with_old_file();
    let result = save(&mut world, &disk, format(10), Manner::default(), |_| ());
    let error = result.unwrap_err();
    assert!(matches!(error, SaveError::Refused(_)), "{error}");
    let text = error.to_string();
    let why = "which the format of this snapshot cannot hold";
    assert!(
        text.starts_with("the key 'key:") && text.ends_with(why),
        "{text}"
    );
    assert!(file(&disk) == OLD && !has_temporary(&disk));
    let expected = world.contents(true);
    save(&mut world, &disk, format(12), Manner::default(), |_| ()).unwrap();
    assert_is_new(&disk, &expected, "the next one");
}

#[test]
fn a_snapshot_that_is_not_wanted_any_more_leaves_the_old_file() {
    let mut world = World::filled(clock(false));
    let disk = with_old_file();
    let (stream, head) = world.cut(format(12), true);
    let result = thread::scope(|scope| {
        let writer = scope.spawn(|| write(&disk, &stream, &head, Manner::default()));
        let mut steps = 0;
        world.walk(|_| {
            steps += 1;
            if steps == 500 {
                stream.give_up();
            }
        });
        writer.join().unwrap()
    });
    assert!(matches!(result, Err(SaveError::Unwanted)), "{result:?}");
    assert!(file(&disk) == OLD && !has_temporary(&disk));
}

#[test]
fn a_file_that_is_flushed_in_steps_fails_with_a_step() {
    let mut world = World::new(clock(false));
    let large = std::sync::Arc::new(vec![b'x'; STEP_BYTES as usize]);
    for key in [&b"one"[..], b"two"] {
        world.in_db(0, |view| {
            view.insert(key, Owned::from(large.clone()), Expiry::Clear);
            view.unreported(key);
        });
    }
    let format = Format {
        compresses: false,
        checksums: false,
        ..format(12)
    };
    let steps = Manner {
        in_steps: true,
        ..Manner::default()
    };
    let syncs = |manner: Manner, world: &mut World| {
        let disk = with_old_file();
        let before = disk.calls();
        save(world, &disk, format, manner, |_| ()).unwrap();
        let names = disk.call_names();
        let syncs = (before..names.len()).filter(|at| names[*at] == "sync_data");
        syncs.collect::<Vec<_>>()
    };
    assert_eq!(syncs(Manner::default(), &mut world).len(), 1);
    let calls = syncs(steps, &mut world);
    assert_eq!(calls.len(), 3, "two steps, and the end");
    for fault in [Fault::Error, Fault::PagesDropped, Fault::DoneButError] {
        let disk = with_old_file();
        disk.fail_at(calls[0], fault);
        let result = save(&mut world, &disk, format, steps, |_| ());
        assert!(matches!(result, Err(SaveError::Disk(..))), "{fault:?}");
        assert!(file(&disk) == OLD && !has_temporary(&disk));
    }
}

#[test]
fn each_entry_takes_as_long_as_it_is_told_to() {
    let mut world = World::filled(clock(false));
    let keys = world.contents(false).len() as u32;
    let manner = Manner {
        key_delay: Duration::from_micros(500),
        ..Manner::default()
    };
    let began = Instant::now();
    save(&mut world, &with_old_file(), format(12), manner, |_| ()).unwrap();
    assert!(began.elapsed() >= manner.key_delay * keys);
}

#[test]
fn the_folder_of_a_bare_name_is_the_working_directory() {
    assert_eq!(folder_of(Path::new("dump.rdb")), Path::new(""));
    assert_eq!(folder_of(Path::new("/data/dump.rdb")), Path::new("/data"));
}

#[test]
fn a_disk_that_is_full_at_any_tenth_chunk_leaves_a_right_second_file() {
    let mut world = World::filled(clock(false));
    // About sixty chunks.
    let mut rng = fastrand::Rng::with_seed(7);
    for number in 0..400 {
        let value: Vec<u8> = (0..10_000).map(|_| rng.u8(..)).collect();
        world.in_db(3, |view| {
            let key = format!("plain:{number}");
            view.set_string(key.as_bytes(), &value, Expiry::Clear);
            view.unreported(key.as_bytes());
        });
    }
    let mut failures = 0;
    for tenth in 1.. {
        let disk = with_old_file();
        // The first call creates the file.
        let at = disk.calls() + 10 * tenth;
        disk.fail_at(at, Fault::Full);
        let first = save(&mut world, &disk, format(12), Manner::default(), |world| {
            world.change();
        });
        if disk.call_names().get(at) != Some(&"write") {
            break;
        }
        failures += 1;
        let error = first.expect_err("the disk is full").to_string();
        assert!(error.contains("No space left"), "{error}");
        assert!(file(&disk) == OLD && !has_temporary(&disk), "{tenth}");
        disk.make_room();
        let expected = world.contents(true);
        let second = save(&mut world, &disk, format(12), Manner::default(), |world| {
            world.change();
        });
        assert!(second.is_ok(), "{tenth}: {second:?}");
        assert_is_new(&disk, &expected, &format!("behind chunk {}", 10 * tenth));
    }
    assert!(failures >= 5, "only {failures} failures");
}
