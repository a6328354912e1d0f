//! `redline server` and its files as a process in its own folder: a damaged snapshot ends the start with one line and is
//! left as it is; names of snapshots; what signals save.

use std::{fs, path::Path};

use crate::running::{Running, failed_start, folder_with, until};

/// Bytes of the end of a file: its mark and its checksum.
const TRAILER_BYTES: usize = 9;

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

/// Starts a server on these bytes; it has to end. Returns the line that says why.
#[track_caller]
fn refusal(what: &str, bytes: &[u8], more: &str) -> String {
    let folder = folder_with(more);
    let path = folder.path().join("dump.rdb");
    fs::write(&path, bytes).unwrap();
    let (log, _) = failed_start(folder.path(), &["r.conf"]);
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
