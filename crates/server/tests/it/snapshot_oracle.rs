//! Snapshots against the journal: what a file holds is what the records up to its cut make of nothing, whatever runs
//! meanwhile.
//!
//! Clients send anything to several workers while snapshots are taken one after the other. A reader of the journal keeps
//! all records; each cut knows the number of the last record before it. At the end the records are replayed up to each
//! number, and the loaded file has to have the same keys, types, values and expiry times. `REDLINE_STRESS_SECONDS` repeats
//! it for that long. Must not know how a snapshot is taken.

use std::{
    env, fs,
    sync::atomic::{AtomicBool, Ordering},
    thread,
    time::{Duration, Instant},
};

use fastrand::Rng;
use redline_keyspace::{
    Clock, Unit,
    journal::{Command, Record},
};
use redline_persist::load::{LoadOptions, Progress, load};
use redline_rdb::file::Scanner;
use redline_server::Settings;

use crate::{
    client::{Client, Value, encode, request, settings, start, until},
    journal::{
        DATABASES, attach, random_requests,
        replica::{Contents, Replica, contents, new_local, run},
    },
};

/// Snapshots of one round.
const SNAPSHOTS: usize = 5;
/// Records after a cut of which at least one has to change what is there. There are more before the next one.
const RECORDS_BEYOND: usize = 100;
/// Changes from one snapshot to the next, at least.
const CHANGES_BETWEEN: u64 = 10_000;
/// Keys of plain strings, which make the walk long.
const PLAIN_KEYS: u32 = 20_000;

/// Elements of the large collections that each database begins with: they are saved in pieces.
const LARGE_LEN: u32 = 4_000;
/// Length of the reply that shows a large collection.
const LARGE_REPLY_BYTES: usize = 40_000;

/// A file, and the last record whose effect it has.
struct Taken {
    last_record: u64,
    bytes: Vec<u8>,
}

fn field(client: &mut Client, name: &str) -> String {
    let Value::Bulk(info) = client.call("INFO everything") else {
        panic!("INFO is text")
    };
    let info = String::from_utf8_lossy(&info).into_owned();
    let mut fields = info.lines().filter_map(|line| line.split_once(':'));
    let found = fields.find(|(known, _)| *known == name);
    found.unwrap_or_else(|| panic!("{name} in {info}")).1.into()
}

/// Requests on all databases: those of the journal's test, on few keys, others on many, and what goes over everything.
fn requests(rng: &mut Rng) -> Vec<Vec<u8>> {
    let plain = |rng: &mut Rng| format!("p:{}", rng.u32(..PLAIN_KEYS));
    let n = rng.u32(..1000);
    let line = match rng.u16(..1000) {
        // It ends the snapshot that is being taken, so it is rare.
        0 if rng.u8(..20) == 0 => "FLUSHALL".to_string(),
        0 => "FLUSHDB ASYNC".to_string(),
        1 => format!("SWAPDB {} {}", rng.u32(..DATABASES), rng.u32(..DATABASES)),
        2..20 => format!(
            "VADD v:{} VALUES 3 {n} -2 {} e{}",
            rng.u8(..4),
            rng.u8(..9),
            rng.u8(..40)
        ),
        20..25 => format!("VREM v:{} e{}", rng.u8(..4), rng.u8(..40)),
        25..30 => format!("VSETATTR v:{} e{} {{\"n\":{n}}}", rng.u8(..4), rng.u8(..40)),
        30..50 => format!("HSET large:h f{n} {n} f{} x", rng.u16(..)),
        50..55 => format!("HPEXPIRE large:h {} FIELDS 1 f{n}", 1 + n),
        55..75 => format!("ZADD large:z {n} m{n} {n} m{}", rng.u16(..)),
        75..95 => format!("SADD large:e {n} m{}", rng.u16(..)),
        95..115 => format!("RPUSH large:l {n} {}", "x".repeat(n as usize)),
        115..120 => format!("LINSERT large:l BEFORE {n} between"),
        120..122 => "LPOP large:l 3".to_string(),
        122..124 => fill_large(rng.u8(..4), rng.u32(..LARGE_LEN), 200),
        124 => match rng.u8(..8) {
            0 => format!("DEL large:{}", ["h", "z", "e", "l"][rng.usize(..4)]),
            1 => format!(
                "RENAME large:{0} large:{0}",
                ["h", "z", "e", "l"][rng.usize(..4)]
            ),
            2 => format!("MOVE large:h {}", rng.u32(..DATABASES)),
            3 => "RENAME large:z copy:z".to_string(),
            4 => "RENAME copy:z large:z".to_string(),
            5 => format!("SPOP large:e {}", n),
            6 => format!("ZREMRANGEBYRANK large:z {n} {}", n + 50),
            _ => format!("LTRIM large:l {} -{}", n / 50, 1 + n / 50),
        },
        125..130 => format!("SETRANGE large:s {} {n}", n * 100),
        130..135 => format!("SETBIT large:b {} 1", n * 1000),
        135..140 => format!("PFADD hll:{} {n}", rng.u8(..3)),
        140..145 => format!("XDEL x:{} 0-{n}", rng.u8(..6)),
        145..150 => format!("COPY large:h copy:{} REPLACE", rng.u8(..3)),
        150..155 => format!("RENAME copy:{} copy:{}", rng.u8(..3), rng.u8(..3)),
        155..175 => format!("APPEND {} {n}", plain(rng)),
        175..195 => format!("DEL {}", plain(rng)),
        195..215 => format!("PEXPIRE {} {}", plain(rng), 1 + n),
        215..225 => format!("MOVE {} {}", plain(rng), rng.u32(..DATABASES)),
        225..235 => format!("RENAME {} {}", plain(rng), plain(rng)),
        235..245 => format!(
            "COPY {} {} DB {}",
            plain(rng),
            plain(rng),
            rng.u32(..DATABASES)
        ),
        245..260 => {
            // What was flushed, evicted and expired is made good.
            let from = rng.u32(..PLAIN_KEYS);
            let words = (from..from + 100).map(|n| format!("p:{} {n}", n % PLAIN_KEYS));
            format!("MSET {}", words.collect::<Vec<_>>().join(" "))
        }
        260..270 => {
            let script = b"for i = 1, 20 do redis.call('append', KEYS[1], i) redis.call('set', KEYS[2], i) end
                redis.call('rename', KEYS[1], KEYS[2])";
            let keys = [plain(rng), plain(rng)];
            let [a, b] = keys.each_ref().map(|key| key.as_bytes());
            return vec![encode(&[b"EVAL", script, b"2", a, b])];
        }
        _ => return random_requests(rng),
    };
    vec![request(&line)]
}

/// Returns a call that adds elements to one of the large collections.
fn fill_large(which: u8, from: u32, count: u32) -> String {
    let range = from..from + count;
    let words: Vec<String> = match which % 4 {
        0 => range.map(|n| format!("f{n} some-value-{n}")).collect(),
        1 => range.map(|n| format!("{} m{n}", n * 7919 % 1000)).collect(),
        2 => range.map(|n| format!("some-member-{n}")).collect(),
        _ => range.map(|n| format!("some-element-{n}")).collect(),
    };
    let call = [
        "HSET large:h",
        "ZADD large:z",
        "SADD large:e",
        "RPUSH large:l",
    ];
    format!("{} {}", call[usize::from(which % 4)], words.join(" "))
}

/// Sends requests until it is enough.
fn make_noise(mut client: Client, mut rng: Rng, is_over: &AtomicBool) {
    while !is_over.load(Ordering::Relaxed) {
        let requests: Vec<_> = (0..20).flat_map(|_| requests(&mut rng)).collect();
        client.write(&requests.concat());
        requests.iter().for_each(|_| drop(client.read()));
    }
}

/// Lets some keys be evicted again and again.
fn evict(mut client: Client, is_over: &AtomicBool) {
    client
        .call("CONFIG SET maxmemory-policy allkeys-random")
        .ok();
    while !is_over.load(Ordering::Relaxed) {
        let used: u64 = field(&mut client, "used_memory").parse().unwrap();
        client
            .call(&format!("CONFIG SET maxmemory {}", used - used / 50))
            .ok();
        client.call("SET p:0 0");
        client.call("CONFIG SET maxmemory 0").ok();
        thread::sleep(Duration::from_millis(20));
    }
}

/// Loads a file into a keyspace, expired keys included, and returns what it holds.
fn loaded(bytes: &[u8]) -> Contents {
    let mut space = Replica::new().space.unpublished();
    let mut scanner = Scanner::new(bytes);
    let version = scanner.header().expect("a header");
    let options = LoadOptions {
        threads: 2,
        limits: redline_types::Limits::default(),
        clock: Clock::default(),
        now_ms: None,
        keeps_history: false,
    };
    let result = load(
        &mut scanner,
        version,
        &space,
        &options,
        &Progress::default(),
    );
    result.expect("the file is whole");
    contents(&mut Unit::exclusive(&mut space), &mut new_local())
}

/// Tells which records around a cut name a key, or a whole database.
fn history(records: &[Record], key: &[u8], cut: u64) -> String {
    const SHOWN_MAX: usize = 60;
    let of_databases = [&b"FLUSHALL"[..], b"FLUSHDB", b"SWAPDB"];
    let is_about = |record: &&Record| {
        let mut commands = record.commands.iter();
        commands.any(|command| {
            let is_of_databases = |name| command.words[0].eq_ignore_ascii_case(name);
            of_databases.into_iter().any(is_of_databases)
                || command.words.iter().any(|word| word == key)
        })
    };
    let about: Vec<&Record> = records.iter().filter(is_about).collect();
    let at = about.partition_point(|record| record.number <= cut);
    let shown = &about[at.saturating_sub(SHOWN_MAX)..(at + SHOWN_MAX / 2).min(about.len())];
    let mut text = format!("records about it around {cut}:");
    for record in shown {
        text += &format!("\n  {}", record.number);
        for Command { db, words } in &record.commands {
            let words = words.iter().map(|word| word.escape_ascii().to_string());
            let words: String = words
                .collect::<Vec<_>>()
                .join(" ")
                .chars()
                .take(200)
                .collect();
            text += &format!(" {db}: {words};");
        }
    }
    text
}

/// One round. Returns the numbers of records, and of keys and large collections in the files.
fn round(seed: u64, workers: usize) -> (usize, usize, usize) {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("dump.rdb");
    let server = start(Settings {
        databases: DATABASES,
        db_filename: file.to_str().unwrap().into(),
        ..settings(workers)
    });
    let space = server.keyspace();
    let (stream, first) = attach(&server);
    assert_eq!(first, 0, "nothing was there before");
    let mut admin = Client::connect(&server);
    for db in 0..DATABASES {
        admin.call(&format!("SELECT {db}")).ok();
        for which in 0..4 {
            for from in (0..LARGE_LEN).step_by(500) {
                admin.call(&fill_large(which, from, 500));
            }
        }
        for from in (0..PLAIN_KEYS / 2).step_by(100) {
            let words = (from..from + 100).map(|n| format!("p:{n} {n}"));
            admin
                .call(&format!("MSET {}", words.collect::<Vec<_>>().join(" ")))
                .ok();
        }
    }
    let is_over = AtomicBool::new(false);
    let mut records = Vec::new();
    let taken = thread::scope(|scope| {
        let is_over = &is_over;
        for client in 0..8 {
            let rng = Rng::with_seed(seed * 100 + client);
            let client = Client::connect(&server);
            scope.spawn(move || make_noise(client, rng, is_over));
        }
        let client = Client::connect(&server);
        scope.spawn(move || evict(client, is_over));
        let saving = scope.spawn(|| {
            let mut taken = Vec::new();
            while taken.len() < SNAPSHOTS {
                let saves = field(&mut admin, "rdb_saves");
                until("something has changed", || {
                    let changes = field(&mut admin, "rdb_changes_since_last_save");
                    changes.parse::<u64>().unwrap() > CHANGES_BETWEEN
                });
                let reply = admin.call("BGSAVE");
                assert_eq!(reply, Value::Simple("Background saving started".into()));
                until("it has ended", || {
                    field(&mut admin, "rdb_bgsave_in_progress") == "0"
                });
                if field(&mut admin, "rdb_saves") == saves {
                    continue;
                }
                taken.push(Taken {
                    last_record: server.snapshot_record(),
                    bytes: fs::read(&file).unwrap(),
                });
            }
            taken
        });
        // Clients end after the last snapshot has: what they have written until then is behind its cut.
        while !is_over.load(Ordering::Relaxed) {
            records.extend(stream.recv_timeout(Duration::from_millis(10)));
            records.extend(stream.try_iter());
            is_over.store(saving.is_finished(), Ordering::Relaxed);
        }
        saving.join().unwrap()
    });
    until("all records have come", || {
        records.extend(stream.try_iter());
        records.last().map_or(0, |record: &Record| record.number) == space.journal().last()
    });
    space.journal().detach();
    drop(server);
    for (at, record) in records.iter().enumerate() {
        assert_eq!(record.number, at as u64 + 1, "a gap, or another order");
    }
    let (keys, large) = compare(&taken, &records, seed, workers);
    (records.len(), keys, large)
}

/// Replays the records, and compares what there is at each cut. Returns how many keys and large collections that were.
fn compare(taken: &[Taken], records: &[Record], seed: u64, workers: usize) -> (usize, usize) {
    let mut replica = Replica::new();
    let mut replicating = Unit::exclusive(&mut replica.space);
    let mut left = records.iter();
    let (mut keys, mut large) = (0, 0);
    let mut replay = |record: &Record, unit: &mut Unit<'_>| {
        for Command { db, words } in &record.commands {
            let words: Vec<&[u8]> = words.iter().map(Vec::as_slice).collect();
            run(unit, &mut replica.local, *db, &words);
        }
    };
    let mut done = 0;
    for (at, taken) in taken.iter().enumerate() {
        let what = format!(
            "seed {seed}, {workers} workers, snapshot {at} at {}",
            taken.last_record
        );
        assert!(taken.last_record >= done, "{what}: cuts are in order");
        while done < taken.last_record {
            let record = left
                .next()
                .unwrap_or_else(|| panic!("{what}: a record is missing"));
            replay(record, &mut replicating);
            done = record.number;
        }
        let expected = contents(&mut replicating, &mut new_local());
        let actual = loaded(&taken.bytes);
        for (key, value) in &expected {
            let history = || history(records, &key.1, taken.last_record);
            assert!(
                actual.get(key) == Some(value),
                "{what}: {key:?}: {:?}, not {value:?}; {}",
                actual.get(key),
                history()
            );
        }
        for key in actual.keys() {
            assert!(expected.contains_key(key), "{what}: {key:?} was not there");
        }
        keys += actual.len();
        let are_large = actual.iter().filter(|((_, key), value)| {
            key.starts_with(b"large:") && value.len() > LARGE_REPLY_BYTES
        });
        large += are_large.count();
        // What comes next is no part of it: the comparison sees a cut that is elsewhere.
        for record in left.by_ref().take(RECORDS_BEYOND) {
            replay(record, &mut replicating);
            done = record.number;
        }
        let beyond = contents(&mut replicating, &mut new_local());
        assert!(
            beyond != actual,
            "{what}: nothing was changed behind the cut"
        );
    }
    (keys, large)
}

#[test]
fn a_file_holds_what_the_records_up_to_its_cut_make() {
    let seconds = env::var("REDLINE_STRESS_SECONDS").map_or(0, |text| text.parse().unwrap());
    let began = Instant::now();
    for (round_number, workers) in [4, 8, 1, 2].into_iter().cycle().enumerate() {
        let seed = round_number as u64 + 1;
        let (records, keys, large) = round(seed, workers);
        assert!(records > 1000, "only {records} records");
        assert!(keys > 1000, "only {keys} keys in {SNAPSHOTS} files");
        assert!(large > 0, "no large collection in {SNAPSHOTS} files");
        if began.elapsed() >= Duration::from_secs(seconds) {
            break;
        }
    }
}
