//! Append-only files that are damaged, old, in use or not writable: what `redline server` loads, what it refuses, and in
//! which words. The double of the disk in `redline-persist` has the faults that no real folder can be made to have.

use std::{
    fs,
    path::Path,
    process::{Command, Stdio},
};

use tempfile::TempDir;

use crate::{
    append::{
        APPENDING, MANIFEST, commands, digest, encoded, info, killed, names, restarted, rewrite,
        set, start, until_info,
    },
    running::{REDLINE, Running, failed_start, folder_with, until},
};

const INCR: &str = "appendonlydir/appendonly.aof.1.incr.aof";
const ONE_INCR: &str = "file appendonly.aof.1.incr.aof seq 1 type i\n";

/// Returns a folder with a manifest and a file of commands.
fn folder_of(more: &str, manifest: &str, text: &str) -> TempDir {
    let folder = folder_with(&format!("{APPENDING}{more}"));
    fs::create_dir(folder.path().join("appendonlydir")).unwrap();
    fs::write(folder.path().join(MANIFEST), manifest).unwrap();
    fs::write(folder.path().join(INCR), text).unwrap();
    folder
}

/// Starts a server that must not start; returns what it has written on both outputs.
#[track_caller]
fn refused(folder: &Path, args: &[&str]) -> String {
    let (log, said) = failed_start(folder, args);
    log + &said
}

#[track_caller]
fn assert_has(text: &str, parts: &[&str]) {
    for part in parts {
        assert!(text.contains(part), "no {part:?} in:\n{text}");
    }
}

/// Units of all lengths, and the offsets after each.
fn units() -> (String, Vec<usize>) {
    let units = [
        encoded(&["SELECT", "0"]),
        encoded(&["SET", "a", "1"]),
        encoded(&["MULTI"])
            + &encoded(&["INCR", "a"])
            + &encoded(&["INCR", "b"])
            + &encoded(&["EXEC"]),
        "#TS:1700000000\r\n".to_owned(),
        encoded(&["RPUSH", "list", "x", "y"]),
    ];
    let mut text = String::new();
    let ends = units.iter().map(|unit| {
        text += unit;
        text.len()
    });
    let ends = ends.collect();
    (text, ends)
}

#[test]
fn a_file_whose_end_is_missing_is_cut_behind_its_last_whole_unit() {
    let (text, ends) = units();
    let states = [":0 :0 :0", ":1 :0 :0", ":1 :1 :0", ":1 :1 :0", ":1 :1 :1"];
    let multi = ends[1]..ends[2];
    // Between the commands of the transaction.
    let last: [&[&str]; 3] = [&["EXEC"], &["INCR", "b"], &["INCR", "a"]];
    let between = last.iter().scan(ends[2], |at, words| {
        *at -= encoded(words).len();
        Some(*at)
    });
    let between: Vec<usize> = between.collect();
    // Inside of each unit, and all over the transaction.
    let cuts = ends
        .iter()
        .map(|end| end - 3)
        .chain(multi.step_by(9).skip(1))
        .chain(between.iter().copied());
    for cut in cuts {
        let folder = folder_of("", ONE_INCR, &text[..cut]);
        let running = start(folder);
        let whole = ends
            .iter()
            .copied()
            .filter(|end| *end <= cut)
            .max()
            .unwrap_or(0);
        let state = match ends.iter().position(|end| *end == whole) {
            Some(at) => states[at],
            None => ":0 :0 :0",
        };
        let found = ["a", "b", "list"]
            .map(|key| running.call(&format!("EXISTS {key}")))
            .join(" ");
        assert_eq!(found, state, "cut at {cut}");
        let left = fs::read_to_string(running.path(INCR)).unwrap();
        assert_eq!(left, text[..whole], "cut at {cut}");
        let size = info(&running, "aof_current_size");
        assert_eq!(size, whole.to_string(), "cut at {cut}");
        // What comes behind is read again.
        assert_eq!(running.call("SET behind 1"), "+OK");
        let data = digest(&running);
        let (log, folder) = killed(running);
        let running = start(folder);
        assert_eq!(digest(&running), data, "cut at {cut}");
        if whole == cut {
            continue;
        }
        let warning =
            "!!! Warning: short read while loading the AOF file appendonly.aof.1.incr.aof!!!";
        let of = format!("of {cut} bytes");
        let truncating =
            format!("!!! Truncating the AOF appendonly.aof.1.incr.aof at offset {whole} !!!");
        let anyway =
            "AOF appendonly.aof.1.incr.aof loaded anyway because aof-load-truncated is enabled";
        assert_has(&log, &[warning, &of, &truncating, anyway]);
        let revert =
            "Revert incomplete MULTI/EXEC transaction in AOF file appendonly.aof.1.incr.aof";
        assert_eq!(log.contains(revert), between.contains(&cut), "{log}");
    }
}

#[test]
fn a_file_whose_end_is_missing_is_refused_if_that_is_wanted() {
    let (text, _) = units();
    let cut = &text[..text.len() - 3];
    let folder = folder_of("", ONE_INCR, &text);
    // The parameter is read at the next start.
    let running = start(folder);
    set(&running, "aof-load-truncated", "no");
    assert_eq!(running.call("CONFIG REWRITE"), "+OK");
    let (_, folder) = killed(running);
    fs::write(folder.path().join(INCR), cut).unwrap();
    let said = refused(folder.path(), &["r.conf"]);
    let unexpected =
        "Unexpected end of file reading the append only file appendonly.aof.1.incr.aof";
    assert_has(
        &said,
        &[
            unexpected,
            "redline check-aof --fix",
            "'aof-load-truncated'",
        ],
    );
    assert_eq!(
        fs::read_to_string(folder.path().join(INCR)).unwrap(),
        cut,
        "it is left as it is"
    );
    // What the line says helps.
    let mut fix = Command::new(REDLINE)
        .args(["check-aof", "--fix", MANIFEST])
        .current_dir(folder.path())
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .spawn()
        .unwrap();
    std::io::Write::write_all(&mut fix.stdin.take().unwrap(), b"y\n").unwrap();
    assert!(fix.wait().unwrap().success());
    let running = start(folder);
    assert_eq!(running.call("GET a"), "2");
}

#[test]
fn only_the_last_file_may_end_too_early() {
    let (text, _) = units();
    let manifest = format!("{ONE_INCR}file appendonly.aof.2.incr.aof seq 2 type i\n");
    let second = "appendonlydir/appendonly.aof.2.incr.aof";
    let folder = folder_of("", &manifest, &text[..text.len() - 3]);
    fs::write(folder.path().join(second), encoded(&["SET", "k", "1"])).unwrap();
    let said = refused(folder.path(), &["r.conf"]);
    let too_early = "AOF appendonly.aof.1.incr.aof ends too early";
    assert_has(
        &said,
        &[
            too_early,
            "Fatal error: the truncated file is not the last file",
        ],
    );
    // An empty file behind it is no more than a start of the process.
    fs::write(folder.path().join(second), "").unwrap();
    let running = start(folder);
    assert_eq!(running.call("SET k 2"), "+OK");
    let running = restarted(running);
    assert_eq!(running.call("GET k"), "2");
    assert_eq!(running.call("EXISTS a b list"), ":2");
}

#[test]
fn a_corrupt_end_is_cut_up_to_a_size_that_is_set() {
    let (text, ends) = units();
    let tail = "*3\r\n$3\r\nSET\r\n$1\r\nk\r\nx";
    let folder = folder_of("", ONE_INCR, &text);
    let running = start(folder);
    set(
        &running,
        "aof-load-corrupt-tail-max-size",
        &(tail.len() - 1).to_string(),
    );
    assert_eq!(running.call("CONFIG REWRITE"), "+OK");
    let (_, folder) = killed(running);
    let damaged = text.clone() + tail;
    fs::write(folder.path().join(INCR), &damaged).unwrap();
    let said = refused(folder.path(), &["r.conf"]);
    let place = format!("at offset {} of {} bytes", damaged.len() - 1, damaged.len());
    let bad = "Bad file format reading the append only file appendonly.aof.1.incr.aof";
    assert_has(&said, &[bad, &place, "redline check-aof --fix"]);
    assert_eq!(
        fs::read_to_string(folder.path().join(INCR)).unwrap(),
        damaged
    );
    let larger = [
        "r.conf",
        "--aof-load-corrupt-tail-max-size",
        &tail.len().to_string(),
    ];
    let running = Running::start(folder, &larger, None);
    until_info(&running, "loading", "0");
    assert_eq!(fs::read_to_string(running.path(INCR)).unwrap(), text);
    assert_eq!(running.call("GET a"), "2");
    let (log, folder) = killed(running);
    let truncating = format!(
        "!!! Truncating the AOF appendonly.aof.1.incr.aof at offset {} !!!",
        ends[4]
    );
    assert_has(&log, &["!!! Warning: corrupt tail", &place, &truncating]);
    drop(folder);
}

#[test]
fn a_file_that_is_corrupt_in_the_middle_is_refused_with_the_place() {
    let (text, ends) = units();
    let mut damaged = text.into_bytes();
    damaged[ends[1]] = b'!';
    let damaged = String::from_utf8(damaged).unwrap();
    let folder = folder_of("", ONE_INCR, &damaged);
    let said = refused(folder.path(), &["r.conf"]);
    let place = format!(
        "appendonly.aof.1.incr.aof (at offset {} of {} bytes",
        ends[1],
        damaged.len()
    );
    assert_has(
        &said,
        &[
            "Bad file format reading the append only file",
            &place,
            "redline check-aof --fix",
        ],
    );
    assert_eq!(
        fs::read_to_string(folder.path().join(INCR)).unwrap(),
        damaged
    );
}

#[test]
fn an_unknown_command_is_refused() {
    let text = encoded(&["SET", "a", "1"]) + &encoded(&["NOSUCH", "a"]);
    let folder = folder_of("", ONE_INCR, &text);
    let said = refused(folder.path(), &["r.conf"]);
    assert_has(
        &said,
        &["Unknown command 'NOSUCH' reading the append only file appendonly.aof.1.incr.aof"],
    );
}

#[test]
fn a_command_that_cannot_run_is_refused() {
    let few = "Wrong number of arguments of the command";
    let waits = "Nothing to wait for in the command";
    let cases: [(&[&str], &str); 7] = [
        (&["AUTH"], few),
        (&["ACL"], few),
        (&["EVAL", "return 1"], few),
        (&["SET", "key"], few),
        (&["BLPOP", "nobody", "0"], waits),
        (&["XREAD", "BLOCK", "0", "STREAMS", "s", "$"], waits),
        (&["SAVE"], waits),
    ];
    for (words, why) in cases {
        let text = encoded(&["SET", "a", "1"]) + &encoded(words);
        let folder = folder_of("", ONE_INCR, &text);
        let log = refused(folder.path(), &["r.conf"]);
        let line = format!("{why} '{}' reading the append only file", words[0]);
        assert_has(&log, &[&line, "appendonly.aof.1.incr.aof"]);
        let left = fs::read_to_string(folder.path().join(INCR)).unwrap();
        assert_eq!(left, text, "nothing is overwritten");
    }
}

#[test]
fn commands_of_the_file_that_fail_are_told_of_and_passed_over() {
    let manifest = "file appendonly.aof.1.incr.aof seq 1 type i\n";
    let failing = encoded(&["LPUSH", "text", "1"]).repeat(30);
    let text = encoded(&["SET", "text", "1"]) + &failing + &encoded(&["SET", "after", "1"]);
    let folder = folder_of("", manifest, &text);
    let running = start(folder);
    assert_eq!(running.call("EXISTS text after"), ":2");
    let (log, _) = killed(running);
    let line = "== CRITICAL == This server is sending an error to its AOF-loading-client: 'WRONGTYPE Operation against a key holding the wrong kind of value' after processing the command 'LPUSH'";
    assert_eq!(log.matches(line).count(), 20, "{log}");
    assert!(
        log.contains("30 commands of the append-only files have failed"),
        "{log}"
    );
}

/// Regression test: the look ahead for the keys of a group panicked.
#[test]
fn a_database_that_is_not_there_is_not_selected() {
    for number in ["99", "-1", "5000000000"] {
        let text = encoded(&["SET", "before", "1"])
            + &encoded(&["SELECT", number])
            + &encoded(&["SET", "after", "1"]).repeat(3);
        let running = start(folder_of("", ONE_INCR, &text));
        assert_eq!(running.call("EXISTS before after"), ":2", "{number}");
        let (log, _) = killed(running);
        assert_has(&log, &["after processing the command 'SELECT'"]);
    }
}

#[test]
fn a_load_takes_as_long_as_is_wanted() {
    for more in ["", "appendonly no\nsave 3600 1\n"] {
        let running = start(folder_with(&format!("{APPENDING}{more}")));
        running.call("MSET a 1 b 2 c 3");
        running.call("SAVE");
        let (_, folder) = killed(running);
        let args = ["r.conf", "--key-load-delay", "600000000"];
        let running = Running::start(folder, &args, None);
        assert_eq!(info(&running, "loading"), "1");
        assert!(running.call("GET a").starts_with("-LOADING"));
        // It may be changed meanwhile.
        set(&running, "key-load-delay", "0");
        until_info(&running, "loading", "0");
        assert_eq!(running.call("DBSIZE"), ":3");
        running.signal("KILL");
        let (_, _, folder) = running.ended();
        // And the server be ended.
        let running = Running::start(folder, &args, None);
        running.signal("TERM");
        let (status, log, _) = running.ended();
        assert_eq!(status.code(), Some(0), "{log}");
    }
}

#[test]
fn commands_of_the_file_are_no_ones_and_see_nothing_expire() {
    let filler: String = (0..5_000)
        .map(|number| encoded(&["SET", &format!("filler:{number}"), "some value"]))
        .collect();
    let text = encoded(&["SET", "k", "1", "PXAT", "1000"])
        + &encoded(&["SET", "gone", "1", "PXAT", "1000"])
        + &filler
        + &encoded(&["PERSIST", "k"])
        + &encoded(&["INCR", "k"]);
    // Neither the rights of a user, nor memory, nor a password are in the way of what has been.
    let more =
        "requirepass secret\nmaxmemory 1mb\nmaxmemory-policy volatile-ttl\nuser default off\n";
    let folder = folder_of("", ONE_INCR, &text);
    let mut config = fs::read_to_string(folder.path().join("r.conf")).unwrap();
    config += more;
    config = config.replace("user default off\n", "user reader on nopass +@all ~*\n");
    fs::write(folder.path().join("r.conf"), config).unwrap();
    let running = Running::start(folder, &["r.conf"], None);
    let mut client = running.connect();
    until("it has loaded", || {
        client.call("AUTH reader x");
        client
            .call("INFO persistence")
            .contains("\nloading:0\r")
            .then_some(())
    });
    client.call("CONFIG SET maxmemory 0");
    assert_eq!(client.call("GET k"), "2");
    assert_eq!(client.call("EXISTS gone"), ":0");
}

#[test]
fn a_single_file_of_an_older_version_is_taken_over() {
    let (text, _) = units();
    let folder = folder_with(APPENDING);
    fs::write(folder.path().join("appendonly.aof"), &text).unwrap();
    let running = start(folder);
    assert_eq!(running.call("GET a"), "2");
    assert_eq!(running.call("SET after 1"), "+OK");
    let found = names(running.folder.path());
    assert_eq!(
        found,
        [
            "appendonly.aof",
            "appendonly.aof.1.incr.aof",
            "appendonly.aof.manifest"
        ]
    );
    assert!(!running.path("appendonly.aof").exists());
    let data = digest(&running);
    let (log, folder) = killed(running);
    assert_has(
        &log,
        &[
            "Successfully migrated an old-style AOF file (appendonly.aof) into the AOF directory (appendonlydir).",
        ],
    );
    let running = start(folder);
    assert_eq!(digest(&running), data);
    rewrite(&running);
    assert_eq!(digest(&restarted(running)), data);
}

/// Returns a snapshot with a key and a library.
fn snapshot() -> Vec<u8> {
    let running = Running::start(folder_with("save \"\"\n"), &["r.conf"], None);
    let library = "#!lua name=lib\nredis.register_function('one', function() return 1 end)";
    assert_eq!(
        running.connect().call_words(&["FUNCTION", "LOAD", library]),
        "lib"
    );
    assert_eq!(running.call("SET snapped 1"), "+OK");
    assert_eq!(running.call("SAVE"), "+OK");
    fs::read(running.path("dump.rdb")).unwrap()
}

#[test]
fn commands_behind_a_snapshot_in_one_file_are_loaded() {
    let (text, _) = units();
    let snapshot = snapshot();
    let mut whole = snapshot.clone();
    whole.extend_from_slice(text.as_bytes());
    whole.extend_from_slice(b"*2\r\n$4\r\nINCR\r\n$7\r\nsnapped\r\n");
    // A cut end is that of the commands.
    for cut in [0, 3] {
        let folder = folder_with(APPENDING);
        fs::write(
            folder.path().join("appendonly.aof"),
            &whole[..whole.len() - cut],
        )
        .unwrap();
        let running = start(folder);
        let snapped = if cut == 0 { "2" } else { "1" };
        assert_eq!(running.call("GET snapped"), snapped);
        assert_eq!(running.call("GET a"), "2");
        assert_eq!(running.call("FCALL one 0"), ":1");
        assert_eq!(running.call("SET after 1"), "+OK");
        let data = digest(&running);
        let running = restarted(running);
        assert_eq!(digest(&running), data);
        assert_eq!(running.call("FCALL one 0"), ":1");
    }
    // A snapshot that is damaged is not taken for less.
    let folder = folder_with(APPENDING);
    whole.truncate(snapshot.len() - 4);
    fs::write(folder.path().join("appendonly.aof"), &whole).unwrap();
    let said = refused(folder.path(), &["r.conf"]);
    assert_has(&said, &["appendonly.aof"]);
}

#[test]
fn a_snapshot_becomes_the_base_where_there_is_no_file_yet() {
    let folder = folder_with(&format!("{APPENDING}threads 2\n"));
    fs::write(folder.path().join("dump.rdb"), snapshot()).unwrap();
    let running = start(folder);
    assert_eq!(running.call("GET snapped"), "1");
    assert_eq!(running.call("FCALL one 0"), ":1");
    assert_eq!(running.call("SET after 1"), "+OK");
    let found = names(running.folder.path());
    assert_eq!(
        found,
        [
            "appendonly.aof.1.base.rdb",
            "appendonly.aof.1.incr.aof",
            "appendonly.aof.manifest"
        ]
    );
    let data = digest(&running);
    let (_, folder) = killed(running);
    // From now on the snapshot is not looked at.
    fs::remove_file(folder.path().join("dump.rdb")).unwrap();
    let running = start(folder);
    assert_eq!(digest(&running), data);
    assert_eq!(running.call("FCALL one 0"), ":1");
}

#[test]
fn a_damaged_manifest_is_refused_in_the_words_of_redis() {
    let invalid = "Invalid AOF manifest file format";
    let cases = [
        ("", "Found an empty AOF manifest"),
        (
            "file a seq 1 type i",
            "The AOF manifest file contains too long line",
        ),
        ("file a seq 1 type z\n", "Unknown AOF file type"),
        (
            "file ../a seq 1 type i\n",
            "File can't be a path, just a filename",
        ),
        (
            "file a seq 1 type b\nfile b seq 2 type b\n",
            "Found duplicate base file information",
        ),
        (
            "file a seq 2 type i\nfile b seq 1 type i\n",
            "Found a non-monotonic sequence number",
        ),
        ("file a seq x type i\n", invalid),
        ("file a seq 1\n", invalid),
        ("\n", invalid),
    ];
    for (text, what) in cases {
        let folder = folder_of("", text, "");
        let said = refused(folder.path(), &["r.conf"]);
        assert_has(&said, &[what, "*** FATAL AOF MANIFEST FILE ERROR ***"]);
        if what == invalid {
            assert_has(&said, &["Reading the manifest file, at line 1"]);
        }
        assert_eq!(
            fs::read_to_string(folder.path().join(MANIFEST)).unwrap(),
            text
        );
    }
    let folder = folder_of("", "file nowhere.aof seq 1 type i\n", "");
    let said = refused(folder.path(), &["r.conf"]);
    let missing = "Unable to obtain the AOF file nowhere.aof length: No such file or directory";
    assert_eq!(said.matches(missing).count(), 1, "{said}");
    // Keys of versions to come, quotes, comments and history.
    let text = "# comment\nfile gone.aof seq 7 type h\n\
                file \"appendonly.aof.1.incr.aof\" startoffset 0 seq 1 type i\n";
    let running = start(folder_of("", text, &units().0));
    assert_eq!(running.call("GET a"), "2");
}

#[test]
fn two_servers_do_not_share_a_folder() {
    let first = start(folder_with(APPENDING));
    assert_eq!(first.call("SET a 1"), "+OK");
    let second = first.path("second.conf");
    fs::write(
        &second,
        format!("port 0\nunixsocket t\nthreads 1\n{APPENDING}"),
    )
    .unwrap();
    let said = refused(first.folder.path(), &["second.conf"]);
    assert_has(
        &said,
        &["appendonlydir: another process keeps its append-only file there"],
    );
    assert_eq!(first.call("SET a 2"), "+OK");
    let running = restarted(first);
    assert_eq!(running.call("GET a"), "2");
    // Nor does one that turns its file on later.
    fs::write(
        running.path("second.conf"),
        "port 0\nunixsocket t\nthreads 1\nsave \"\"\n",
    )
    .unwrap();
    let mut child = Command::new(REDLINE)
        .args(["server", "second.conf"])
        .current_dir(running.folder.path())
        .stdout(Stdio::null())
        .spawn()
        .unwrap();
    let reply = until("the second listens", || {
        let stream = std::os::unix::net::UnixStream::connect(running.path("t")).ok()?;
        let mut stream = std::io::BufReader::new(stream);
        std::io::Write::write_all(stream.get_mut(), b"CONFIG SET appendonly yes\r\n").ok()?;
        let mut line = String::new();
        std::io::BufRead::read_line(&mut stream, &mut line).ok()?;
        Some(line)
    });
    let _ = child.kill();
    let _ = child.wait();
    assert!(reply.starts_with("-ERR CONFIG SET failed"), "{reply}");
    assert_eq!(running.call("SET a 3"), "+OK");
    let running = restarted(running);
    assert_eq!(running.call("GET a"), "3");
}

#[test]
fn a_folder_that_cannot_be_made_ends_the_start() {
    let folder = folder_with(APPENDING);
    fs::write(folder.path().join("appendonlydir"), "a file").unwrap();
    let said = refused(folder.path(), &["r.conf"]);
    assert_has(
        &said,
        &["Can't open or create append-only dir appendonlydir: "],
    );
    // Where it is turned on later, nothing else stops.
    let folder = folder_with("save \"\"\n");
    fs::write(folder.path().join("appendonlydir"), "a file").unwrap();
    let running = Running::start(folder, &["r.conf"], None);
    let reply = running.call("CONFIG SET appendonly yes");
    assert!(reply.starts_with("-ERR CONFIG SET failed"), "{reply}");
    assert_eq!(running.call("CONFIG GET appendonly"), "appendonly no");
    assert_eq!(running.call("SET a 1"), "+OK");
}

#[test]
fn clients_are_told_that_the_data_is_being_loaded() {
    let text: String = (0..100_000)
        .map(|number| encoded(&["SET", &format!("key:{number}"), "value"]))
        .collect();
    let folder = folder_of("threads 2\n", ONE_INCR, &text);
    let running = Running::start(folder, &["r.conf"], None);
    let mut client = running.connect();
    let field = |info: &str, name: &str| -> Option<f64> {
        let line = |line: &str| line.strip_prefix(name)?.strip_prefix(':')?.parse().ok();
        info.lines().find_map(line)
    };
    let (mut shares, mut refusals) = (Vec::new(), 0);
    loop {
        let replies = ["GET key:1", "SET key:1 x", "PING"].map(|line| client.call(line));
        let info = client.call("INFO persistence");
        if field(&info, "loading") == Some(0.0) {
            break;
        }
        for reply in &replies {
            assert_eq!(reply, "-LOADING Redis is loading the dataset in memory");
            refusals += 1;
        }
        let [total, done, share] = ["total_bytes", "loaded_bytes", "loaded_perc"]
            .map(|name| field(&info, &format!("loading_{name}")).expect("a figure of loading"));
        assert_eq!(total, text.len() as f64);
        assert!(
            done <= total && (share - 100.0 * done / total).abs() < 0.01,
            "{info}"
        );
        let [start_s, eta_s] = ["start_time", "eta_seconds"]
            .map(|name| field(&info, &format!("loading_{name}")).unwrap());
        assert!(start_s > 1.7e9 && eta_s < 600.0, "{info}");
        assert!(
            shares.last().is_none_or(|last| *last <= share),
            "{shares:?} {share}"
        );
        shares.push(share);
    }
    assert!(refusals > 0, "it was seen loading");
    assert!(shares.iter().any(|share| *share > 0.0), "{shares:?}");
    assert_eq!(client.call("PING"), "+PONG");
    assert_eq!(client.call("DBSIZE"), ":100000");
    let info = client.call("INFO persistence");
    assert!(!info.contains("loading_total_bytes"), "{info}");
}

/// Largest size of a file in the tests of full disks, in units of 512 bytes.
const FILE_BLOCKS: usize = 32;

/// Starts a server whose files cannot grow beyond [`FILE_BLOCKS`]. The shell has writes fail instead of ending the process.
fn limited(more: &str) -> Running {
    let mut command = Command::new("sh");
    let line = format!("trap '' XFSZ; ulimit -S -f {FILE_BLOCKS} && exec \"$0\" server r.conf");
    command.args(["-c", &line, REDLINE]);
    let running = Running::of(command, folder_with(&format!("{APPENDING}{more}")), None);
    until_info(&running, "loading", "0");
    running
}

/// Lets files grow again.
fn lift(running: &Running) {
    let pid = running.child.id().to_string();
    let lifted = Command::new("prlimit")
        .args(["--pid", &pid, "--fsize=unlimited"])
        .status();
    assert!(lifted.expect("prlimit runs").success());
}

const REFUSED: &str = "-MISCONF Errors writing to the AOF file: File too large";

/// Writes values of a thousand bytes until that is refused; returns how many were accepted.
fn fill(running: &Running) -> usize {
    let value = "v".repeat(1000);
    let mut client = running.connect();
    for number in 0..1000 {
        let reply = client.call_words(&["SET", &format!("key:{number}"), &value]);
        if reply != "+OK" {
            assert_eq!(reply, REFUSED);
            return number;
        }
    }
    panic!("the file has no limit");
}

#[test]
fn writes_are_refused_while_the_file_cannot_grow() {
    for policy in ["everysec", "no"] {
        let running = limited(&format!("appendfsync {policy}\nthreads 2\n"));
        let accepted = fill(&running);
        assert!(accepted > FILE_BLOCKS / 2 - 3, "{accepted}");
        assert_eq!(info(&running, "aof_last_write_status"), "err");
        let mut client = running.connect();
        for line in ["DEL key:0", "FLUSHALL", "INCR n", "FUNCTION FLUSH"] {
            assert_eq!(client.call(line), REFUSED, "{line}");
        }
        let script = "return redis.call('SET', KEYS[1], '1')";
        assert!(
            client
                .call_words(&["EVAL", script, "1", "k"])
                .contains("MISCONF")
        );
        // One that says that it writes is refused before it begins, whatever it would do.
        let writes = "#!lua\nreturn 1";
        assert_eq!(client.call_words(&["EVAL", writes, "0"]), REFUSED);
        let reads = "#!lua flags=no-writes\nreturn 1";
        assert_eq!(client.call_words(&["EVAL", reads, "0"]), ":1");
        client.call("MULTI");
        assert_eq!(client.call("INCR n"), REFUSED);
        assert!(client.call("EXEC").starts_with("-EXECABORT"));
        assert_eq!(client.call("DBSIZE"), format!(":{accepted}"));
        assert_eq!(client.call("GET key:0").len(), 1000);
        assert_eq!(client.call("PING"), REFUSED);
        lift(&running);
        until("writes are accepted", || {
            (client.call("SET last 1") == "+OK").then_some(())
        });
        assert_eq!(info(&running, "aof_last_write_status"), "ok");
        let data = digest(&running);
        let (log, folder) = killed(running);
        assert_has(
            &log,
            &[
                "while writing to the AOF file: ",
                "File too large",
                "AOF write error looks solved, writes are accepted again.",
            ],
        );
        let running = start(folder);
        assert_eq!(digest(&running), data, "{policy}");
        assert_eq!(running.call("DBSIZE"), format!(":{}", accepted + 1));
    }
}

#[test]
fn a_write_that_fails_while_a_rewrite_begins_is_not_lost() {
    let running = limited("");
    let mut client = running.connect();
    let almost = "v".repeat(FILE_BLOCKS * 512 - 1000);
    assert_eq!(client.call_words(&["SET", "almost", &almost]), "+OK");
    // The rewrite begins, the write that follows at once fails, and then comes the cut.
    let large = "w".repeat(2000);
    client.send(&format!("BGREWRITEAOF\r\nSET large {large}"));
    assert_eq!(
        client.read(),
        "+Background append only file rewriting started"
    );
    assert_eq!(client.read(), "+OK");
    until("the write has failed", || {
        (client.call("SET k 1") == REFUSED).then_some(())
    });
    until_info(&running, "aof_rewrite_in_progress", "0");
    lift(&running);
    until("writes are accepted", || {
        (client.call("SET last 1") == "+OK").then_some(())
    });
    let data = digest(&running);
    let running = restarted(running);
    assert_eq!(digest(&running), data);
    assert_eq!(running.call("GET large"), large);
}

#[test]
fn a_rewrite_that_cannot_be_written_leaves_all_as_it_is() {
    let running = limited("rdbcompression no\n");
    let mut client = running.connect();
    // More than the limit together, in files of which none is.
    for round in 0..4 {
        let value: String = (0..9_000)
            .map(|at| char::from(b'a' + ((at * 7 + round * 3) % 26) as u8))
            .collect();
        assert_eq!(
            client.call_words(&["SET", &format!("key:{round}"), &value]),
            "+OK"
        );
        if round == 0 {
            rewrite(&running);
        } else {
            assert!(client.call("BGREWRITEAOF").starts_with("+Background"));
            until_info(&running, "aof_rewrite_in_progress", "0");
        }
    }
    assert_eq!(info(&running, "aof_last_bgrewrite_status"), "err");
    assert_eq!(info(&running, "aof_last_write_status"), "ok");
    let data = digest(&running);
    lift(&running);
    let (log, folder) = killed(running);
    assert_has(&log, &["Background AOF rewrite terminated with error"]);
    let running = start(folder);
    assert_eq!(digest(&running), data);
    rewrite(&running);
    assert_eq!(digest(&restarted(running)), data);
}

#[test]
fn a_write_that_fails_under_always_ends_the_process_before_its_reply() {
    let running = limited("appendfsync always\n");
    let value = "v".repeat(1000);
    let mut client = running.connect();
    let refused = (0..1000).find(|number| {
        let reply = client.call_words(&["SET", &format!("key:{number}"), &value]);
        assert!(reply == "+OK" || reply.is_empty(), "{reply}");
        reply != "+OK"
    });
    let accepted = refused.expect("the file has a limit");
    let (status, log, folder) = running.ended();
    assert_eq!(status.code(), Some(1));
    assert_has(
        &log,
        &["Can't recover from AOF write error when the AOF fsync policy is 'always'. Exiting..."],
    );
    let running = start(folder);
    for number in 0..accepted {
        assert_eq!(running.call(&format!("GET key:{number}")), value);
    }
    assert_eq!(running.call("DBSIZE"), format!(":{accepted}"));
    drop(commands(running.folder.path()));
}
