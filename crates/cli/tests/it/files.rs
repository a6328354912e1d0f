//! `redline server` and its files as a process in its own folder: a damaged snapshot ends the start with one line and is
//! left as it is; names of snapshots; what signals save.

use std::{
    fs,
    io::Write,
    path::Path,
    thread,
    time::{Duration, Instant},
};

use tempfile::TempDir;

use crate::running::{PATIENCE, REDLINE, Running, failed_start_of, folder_with, until};

/// Bytes of the end of a file: its mark and its checksum.
const TRAILER_BYTES: usize = 9;
/// Address space of a server that is to refuse a file, in KiB: not much more than the least with which one starts.
const ADDRESS_KIB: u64 = 800_000;
/// Address space of a server that is to load something large, in KiB. It may hold a sixth of that.
const LARGE_ADDRESS_KIB: u64 = 16_000_000;

fn start(more: &str) -> Running {
    Running::start(folder_with(more), &["r.conf"], None)
}

/// Waits until the file is loaded.
fn loaded(running: &Running) {
    until("it is loaded", || {
        running
            .call("INFO persistence")
            .contains("\nloading:0\r")
            .then_some(())
    });
}

/// Saves 100 keys in a folder, and returns the bytes of the file.
fn snapshot(more: &str, name: &str) -> Vec<u8> {
    let running = start(more);
    for n in 0..100 {
        assert_eq!(running.call(&format!("SET key:{n} value:{n}")), "+OK");
    }
    assert_eq!(running.call("SELECT 0"), "+OK");
    assert_eq!(running.call("SAVE"), "+OK");
    fs::read(running.path(name)).unwrap()
}

/// Returns `redline server r.conf` with so much address space.
fn limited(address_kib: u64) -> std::process::Command {
    let mut command = std::process::Command::new("sh");
    let line = "ulimit -v \"$1\" && exec \"$0\" server r.conf";
    command.args(["-c", line, REDLINE, &address_kib.to_string()]);
    command
}

/// Starts a server that loads something large, with [`LARGE_ADDRESS_KIB`] of address space. `times`: how often as patient it
/// is waited for as for something small.
fn start_large(folder: TempDir, times: u32) -> Running {
    let running = Running::of(limited(LARGE_ADDRESS_KIB), folder, None);
    let deadline = Instant::now() + PATIENCE * times;
    while !running.call("INFO persistence").contains("\nloading:0\r") {
        assert!(Instant::now() < deadline, "it is not loaded");
        thread::sleep(Duration::from_millis(10));
    }
    running
}

/// Returns the number that a variable of the environment gives, or this one.
fn asked_for(name: &str, otherwise: u64) -> u64 {
    std::env::var(name).map_or(otherwise, |text| text.parse().unwrap())
}

/// Starts a server on these bytes; it has to end. Returns the line that says why.
#[track_caller]
fn refusal(what: &str, bytes: &[u8], more: &str) -> String {
    let folder = folder_with(more);
    let path = folder.path().join("dump.rdb");
    fs::write(&path, bytes).unwrap();
    let (log, _) = failed_start_of(&mut limited(ADDRESS_KIB), folder.path());
    let mut fatal = log
        .lines()
        .filter(|line| line.contains("Fatal error loading the DB"));
    let line = fatal.next().unwrap_or_else(|| panic!("{what}: {log}"));
    assert_eq!(fatal.next(), None, "{what}: {log}");
    assert!(line.contains(" dump.rdb: "), "{what}: {line}");
    assert_eq!(
        fs::read(&path).unwrap(),
        bytes,
        "{what}: the file is left as it is"
    );
    assert_eq!(names(folder.path()), ["dump.rdb", "r.conf"], "{what}");
    line.to_owned()
}

/// The names in a folder, without the socket.
fn names(folder: &Path) -> Vec<String> {
    let entries = fs::read_dir(folder).unwrap();
    let mut names: Vec<_> = entries
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .filter(|name| name != "s")
        .collect();
    names.sort();
    names
}

/// The offset that a line names.
#[track_caller]
fn offset(line: &str) -> usize {
    let (_, rest) = line
        .split_once("offset ")
        .unwrap_or_else(|| panic!("no offset: {line}"));
    let digits = rest.chars().take_while(char::is_ascii_digit);
    digits.collect::<String>().parse().unwrap()
}

#[test]
fn a_damaged_file_ends_the_start() {
    let whole = snapshot("", "dump.rdb");
    // The last entry of the file, and what is behind it.
    let records_end = whole.len() - TRAILER_BYTES;

    for len in [0, 5, 9, 20, whole.len() / 2, records_end, whole.len() - 1] {
        let line = refusal("cut", &whole[..len], "");
        assert!(line.contains("ends too early"), "cut at {len}: {line}");
        assert!(offset(&line) <= len, "cut at {len}: {line}");
    }

    let mut flipped = whole.clone();
    let at = whole
        .windows(8)
        .position(|bytes| bytes == b"value:42")
        .unwrap();
    flipped[at + 7] ^= 1;
    let line = refusal("flipped", &flipped, "");
    assert!(line.contains("its checksum is "), "{line}");
    offset(&line);

    let mut wrong = whole.clone();
    *wrong.last_mut().unwrap() ^= 0x80;
    let line = refusal("wrong checksum", &wrong, "");
    assert!(line.contains("its checksum is "), "{line}");

    let mut later = whole.clone();
    later[5..9].copy_from_slice(b"0013");
    let line = refusal("version 13", &later, "");
    assert!(
        line.contains("RDB file of version REDIS0013, which is not read: versions up to REDIS0012"),
        "{line}"
    );
    assert_eq!(offset(&line), 0);

    let line = refusal("another file", b"*1\r\n$4\r\nPING\r\n", "");
    assert!(
        line.contains("no RDB file: it begins with neither REDIS nor VALKEY"),
        "{line}"
    );

    // An opcode that nobody knows, in front of the end.
    let mut unknown = whole[..records_end].to_vec();
    unknown.extend([200, 1, b'k', 1, b'v']);
    unknown.extend(&whole[records_end..]);
    let line = refusal("unknown type", &unknown, "");
    assert!(line.contains("200"), "{line}");
    assert!(
        (records_end..records_end + 5).contains(&offset(&line)),
        "{line}"
    );
}

#[test]
fn a_key_that_is_there_twice_or_a_database_too_many_ends_the_start() {
    let whole = snapshot("rdbcompression no\n", "dump.rdb");
    let records_end = whole.len() - TRAILER_BYTES;
    let with = |record: &[u8]| {
        let mut bytes = whole[..records_end].to_vec();
        bytes.extend(record);
        bytes.push(255);
        // None.
        bytes.extend([0; 8]);
        bytes
    };
    let line = refusal("duplicate", &with(b"\x00\x06key:42\x05other"), "");
    assert!(
        line.contains("RDB has duplicated key 'key:42' in DB 0"),
        "{line}"
    );
    assert_eq!(offset(&line), records_end, "{line}");
    let line = refusal("database", &with(b"\xfe\x10\x00\x01k\x01v"), "");
    assert!(line.contains("more than 16 databases"), "{line}");
    let line = refusal(
        "fewer databases",
        &with(b"\xfe\x04\x00\x01k\x01v"),
        "databases 4\n",
    );
    assert!(line.contains("more than 4 databases"), "{line}");
}

#[test]
fn a_file_without_a_checksum_or_whose_checksum_nobody_wants_is_loaded() {
    let mut bytes = snapshot("", "dump.rdb");
    for (more, replacement) in [("", 0), ("rdbchecksum no\n", 7)] {
        let from = bytes.len() - 8;
        bytes[from..].fill(replacement);
        let folder = folder_with(more);
        fs::write(folder.path().join("dump.rdb"), &bytes).unwrap();
        let running = Running::start(folder, &["r.conf"], None);
        loaded(&running);
        assert_eq!(running.call("DBSIZE"), ":100");
        assert_eq!(running.call("SAVE"), "+OK");
        let written = fs::read(running.path("dump.rdb")).unwrap();
        let is_checked = written[written.len() - 8..] != [0; 8];
        assert_eq!(is_checked, more.is_empty());
    }
}

#[test]
fn signals_save_if_there_are_save_points() {
    for (more, expected) in [
        ("", &["dump.rdb", "r.conf"][..]),
        ("save \"\"\n", &["r.conf"]),
        (
            "save 60 1000\ndbfilename other.rdb\n",
            &["other.rdb", "r.conf"],
        ),
    ] {
        let running = start(more);
        assert_eq!(running.call("SET k v"), "+OK");
        running.signal("TERM");
        let (status, log, folder) = running.ended();
        assert_eq!(status.code(), Some(0), "{log}");
        assert_eq!(names(folder.path()), expected, "{more}");
        let running = Running::start(folder, &["r.conf"], None);
        loaded(&running);
        let there = expected.len() > 1;
        assert_eq!(running.call("EXISTS k"), if there { ":1" } else { ":0" });
    }
}

#[test]
fn a_killed_server_leaves_no_half_of_a_file() {
    let running = start("");
    assert_eq!(running.call("SET k v"), "+OK");
    assert_eq!(running.call("SAVE"), "+OK");
    assert_eq!(running.call("SET k w"), "+OK");
    assert_eq!(
        running.call("CONFIG SET rdb-key-save-delay 600000000"),
        "+OK"
    );
    assert_eq!(running.call("BGSAVE"), "+Background saving started");
    let temporary = format!("temp-{}.rdb", running.child.id());
    until("it is being written", || {
        running.path(&temporary).exists().then_some(())
    });
    let gone = running.child.id();
    running.signal("KILL");
    let (_, _, folder) = running.ended();
    assert!(folder.path().join(&temporary).exists());
    // What is not exactly such a file stays, and so does that of a process that is there.
    let alive = std::process::id();
    let kept = [
        format!("temp-{alive}.rdb"),
        format!("temp-rewriteaof-{alive}.aof"),
        format!("temp-{gone}.rdb.bak"),
        format!("temp-0{gone}.rdb"),
        format!("temp-{gone}.aof"),
        "temp-.rdb".to_owned(),
    ];
    let removed = [
        format!("temp-rewriteaof-{gone}.aof"),
        format!("temp-rewriteaof-bg-{gone}.aof"),
    ];
    for name in kept.iter().chain(&removed) {
        fs::write(folder.path().join(name), "x").unwrap();
    }
    let mut expected = vec!["dump.rdb".to_owned(), "r.conf".to_owned()];
    expected.extend(kept);
    expected.sort();
    let running = Running::start(folder, &["r.conf"], None);
    loaded(&running);
    assert_eq!(names(running.folder.path()), expected);
    assert_eq!(running.call("GET k"), "v");
}

#[test]
fn dbfilename_changes_where_snapshots_go() {
    let running = start("enable-protected-configs yes\n");
    assert_eq!(running.call("SET k v"), "+OK");
    assert_eq!(running.call("CONFIG SET dbfilename other.rdb"), "+OK");
    assert_eq!(running.call("SAVE"), "+OK");
    assert_eq!(names(running.folder.path()), ["other.rdb", "r.conf"]);
    let refused = running.call("CONFIG SET dbfilename a/b.rdb");
    assert!(
        refused.contains("dbfilename can't be a path, just a filename"),
        "{refused}"
    );
    // A folder that is set later is where the next goes.
    fs::create_dir(running.path("below")).unwrap();
    assert_eq!(running.call("CONFIG SET dir below"), "+OK");
    assert_eq!(running.call("SAVE"), "+OK");
    assert_eq!(names(&running.path("below")), ["other.rdb"]);
}

/// A length in nine bytes.
fn length(number: u64) -> Vec<u8> {
    [&[0x81][..], &number.to_be_bytes()].concat()
}

/// A string of less than 64 bytes.
fn short(text: &[u8]) -> Vec<u8> {
    [&[text.len() as u8][..], text].concat()
}

#[test]
fn lengths_that_lie_end_the_start_with_little_memory() {
    const GIB: u64 = 1 << 30;
    let key = short(b"key");
    let compressed = |small: u64, len: u64, bytes: &[u8]| {
        [&[0xc3][..], &length(small), &length(len), bytes].concat()
    };
    let records: [(&str, Vec<u8>); 14] = [
        ("a key", [&[0][..], &length(60 * GIB), b"short"].concat()),
        (
            "a string",
            [&[0][..], &key, &length(60 * GIB), b"short"].concat(),
        ),
        (
            "a string of 1 TiB",
            [&[0][..], &key, &length(1024 * GIB)].concat(),
        ),
        (
            "a string of all",
            [&[0][..], &key, &length(u64::MAX)].concat(),
        ),
        (
            "a fact",
            [&[250][..], &length(1024 * GIB), b"redis"].concat(),
        ),
        (
            "a library",
            [&[245][..], &length(60 * GIB), b"#!lua"].concat(),
        ),
        (
            "a set",
            [&[2][..], &key, &length(1024 * GIB), &short(b"member")].concat(),
        ),
        (
            "a hash",
            [
                &[4][..],
                &key,
                &length(u64::MAX),
                &short(b"f"),
                &short(b"v"),
            ]
            .concat(),
        ),
        (
            "a sorted set",
            [&[5][..], &key, &length(1 << 40), &short(b"m")].concat(),
        ),
        (
            "a list",
            [&[18][..], &key, &length(1 << 40), &[2], &short(b"node")].concat(),
        ),
        (
            "a stream",
            [&[21][..], &key, &length(1 << 40), &short(b"id")].concat(),
        ),
        (
            "a compressed string",
            [&[0][..], &key, &compressed(5, 1 << 40, b"\x01ab\xe0\xff")].concat(),
        ),
        (
            "compressed bytes that there are not",
            [&[0][..], &key, &compressed(60 * GIB, 60 * GIB, b"ab")].concat(),
        ),
        (
            "keys of a database",
            [&[251][..], &length(u64::MAX), &length(u64::MAX), &[99]].concat(),
        ),
    ];
    for (what, record) in records {
        for version in ["0009", "0011", "0012"] {
            if what == "a library" && version == "0009" {
                continue;
            }
            let file = [b"REDIS", version.as_bytes(), &[254, 0], &record].concat();
            let line = refusal(&format!("{what}, {version}"), &file, "");
            assert!(offset(&line) <= file.len(), "{line}");
        }
    }
}

#[test]
fn a_string_that_is_nearly_all_repetition_is_as_long_as_it_says() {
    let name = short(b"bomb");
    let repeat = b"\xe0\xff\x00".repeat(64);
    let bytes = [b"\x00a", &repeat[..]].concat();
    let len = 1 + 64 * 264_u64;
    let value = [
        &[0xc3][..],
        &length(bytes.len() as u64),
        &length(len),
        &bytes,
    ]
    .concat();
    let record = [&[0][..], &name, &value].concat();
    let wrong = [
        &[0][..],
        &name,
        &[0xc3],
        &length(bytes.len() as u64),
        &length(len + 1),
        &bytes,
    ]
    .concat();
    let file = |record: &[u8]| [b"REDIS0011\xfe\x00", record, b"\xff\0\0\0\0\0\0\0\0"].concat();
    refusal("a byte more than there is", &file(&wrong), "");
    let folder = folder_with("");
    fs::write(folder.path().join("dump.rdb"), file(&record)).unwrap();
    let running = Running::start(folder, &["r.conf"], None);
    loaded(&running);
    assert_eq!(running.call("STRLEN bomb"), format!(":{len}"));
}

#[test]
fn two_hundred_databases_are_loaded_where_there_are_as_many() {
    let mut file = b"REDIS0011".to_vec();
    for number in 0..200_u64 {
        file.extend(
            [
                &[254][..],
                &length(number),
                &[0],
                &short(b"k"),
                &short(b"v"),
            ]
            .concat(),
        );
    }
    file.extend(b"\xff\0\0\0\0\0\0\0\0");
    let line = refusal("200 of 16 databases", &file, "");
    assert!(line.contains("more than 16 databases"), "{line}");
    let folder = folder_with("databases 200\n");
    fs::write(folder.path().join("dump.rdb"), &file).unwrap();
    let running = Running::start(folder, &["r.conf"], None);
    loaded(&running);
    let mut client = running.connect();
    for number in 0..200 {
        assert_eq!(client.call(&format!("SELECT {number}")), "+OK");
        assert_eq!(client.call("GET k"), "v", "{number}");
    }
}

/// `REDLINE_LARGE_MEMBERS` makes it larger: 20 million take 1.4 GiB and, with an optimised program, two minutes.
#[test]
fn a_database_of_one_large_set_is_loaded_and_saved() {
    let members = asked_for("REDLINE_LARGE_MEMBERS", 200_000);
    let times = 1 + (members / 2_000_000) as u32;
    let folder = folder_with("");
    let file = fs::File::create(folder.path().join("dump.rdb")).unwrap();
    let mut out = std::io::BufWriter::new(file);
    out.write_all(
        &[
            b"REDIS0011\xfe\x00\x02",
            &short(b"set")[..],
            &length(members),
        ]
        .concat(),
    )
    .unwrap();
    for number in 0..members {
        out.write_all(&short(format!("member:{number}").as_bytes()))
            .unwrap();
    }
    out.write_all(b"\xff\0\0\0\0\0\0\0\0").unwrap();
    out.into_inner().unwrap().sync_all().unwrap();
    let running = start_large(folder, times);
    let holds_all = |running: &Running| {
        let last = members - 1;
        assert_eq!(running.call("SCARD set"), format!(":{members}"));
        assert_eq!(running.call(&format!("SISMEMBER set member:{last}")), ":1");
    };
    holds_all(&running);
    assert_eq!(running.call("SAVE"), "+OK");
    running.signal("KILL");
    let (_, _, folder) = running.ended();
    holds_all(&start_large(folder, times));
}

/// `REDLINE_LARGE_BYTES` makes them longer: 536870912 is the longest that there is, and takes 2 GiB.
#[test]
fn large_keys_and_values_are_loaded_and_saved() {
    const PIECE_BYTES: usize = 1 << 20;
    let bytes = asked_for("REDLINE_LARGE_BYTES", 8 << 20);
    let times = 1 + (bytes >> 26) as u32;
    // What does not compress.
    let mix = |at: u64| (at.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 40) as u8;
    let piece: Vec<u8> = (0..PIECE_BYTES as u64).map(mix).collect();
    let folder = folder_with("enable-debug-command yes\n");
    let file = fs::File::create(folder.path().join("dump.rdb")).unwrap();
    let mut out = std::io::BufWriter::new(file);
    let mut put = |bytes: &[u8]| out.write_all(bytes).unwrap();
    put(b"REDIS0011\xfe\x00");
    for is_key in [false, true] {
        put(b"\x00");
        if !is_key {
            put(&short(b"value"));
        }
        put(&length(bytes));
        (0..bytes / PIECE_BYTES as u64).for_each(|_| put(&piece));
        if is_key {
            put(&short(b"of a long key"));
        }
    }
    put(b"\xff\0\0\0\0\0\0\0\0");
    out.into_inner().unwrap().sync_all().unwrap();
    let running = start_large(folder, times);
    assert_eq!(running.call("STRLEN value"), format!(":{bytes}"));
    assert_eq!(running.call("DBSIZE"), ":2");
    let data = running.call("DEBUG DIGEST");
    assert_eq!(data.len(), 41, "{data}");
    assert_eq!(running.call("SAVE"), "+OK");
    running.signal("KILL");
    let (_, _, folder) = running.ended();
    let running = start_large(folder, times);
    assert_eq!(running.call("DEBUG DIGEST"), data);
}
