//! The append-only file of `redline server`: every kind of unit outlives a kill, rewrites and changes of settings under
//! load lose nothing. Damaged files and full disks are in `append_faults`.

use std::{
    fs,
    path::Path,
    sync::atomic::{AtomicBool, AtomicU64, Ordering},
    thread,
};

use tempfile::TempDir;

use crate::running::{Client, Running, folder_with, until};

/// The manifest, in the server's folder.
pub const MANIFEST: &str = "appendonlydir/appendonly.aof.manifest";
/// Lines of a configuration with the file on, and nothing saved otherwise.
pub const APPENDING: &str = "appendonly yes\nsave \"\"\nenable-debug-command yes\n";

/// Starts a server in this folder, and waits until it has loaded.
pub fn start(folder: TempDir) -> Running {
    let running = Running::start(folder, &["r.conf"], None);
    until("it has loaded", || {
        (info(&running, "loading") == "0").then_some(())
    });
    running
}

/// Kills it without a warning.
pub fn killed(running: Running) -> (String, TempDir) {
    running.signal("KILL");
    let (_, log, folder) = running.ended();
    (log, folder)
}

/// Kills it and starts another in its folder.
pub fn restarted(running: Running) -> Running {
    start(killed(running).1)
}

/// Returns a field of INFO; an empty text if it is not there.
pub fn info(running: &Running, field: &str) -> String {
    let all = running.call("INFO everything");
    let line = |line: &str| Some(line.strip_prefix(field)?.strip_prefix(':')?.to_owned());
    all.lines().find_map(line).unwrap_or_default()
}

/// Waits until a field of INFO has this value.
#[track_caller]
pub fn until_info(running: &Running, field: &str, value: &str) {
    until(&format!("{field}:{value}"), || {
        (info(running, field) == value).then_some(())
    });
}

pub fn digest(running: &Running) -> String {
    let digest = running.call("DEBUG DIGEST");
    assert_eq!(digest.len(), 41, "{digest}");
    digest
}

#[track_caller]
pub fn set(running: &Running, name: &str, value: &str) {
    let reply = running
        .connect()
        .call_words(&["CONFIG", "SET", name, value]);
    assert_eq!(reply, "+OK", "{name} {value}");
}

/// Returns the text of all files of commands, one after the other.
pub fn commands(folder: &Path) -> String {
    let mut paths: Vec<_> = fs::read_dir(folder.join("appendonlydir"))
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .filter(|path| path.to_string_lossy().ends_with(".incr.aof"))
        .collect();
    paths.sort();
    let texts = paths.iter().map(|path| fs::read(path).unwrap_or_default());
    texts
        .map(|text| String::from_utf8_lossy(&text).into_owned())
        .collect()
}

/// Returns a command as it is in a file.
pub fn encoded(words: &[&str]) -> String {
    let mut text = format!("*{}\r\n", words.len());
    for word in words {
        text += &format!("${}\r\n{word}\r\n", word.len());
    }
    text
}

/// Rewrites the file and waits until that is done.
pub fn rewrite(running: &Running) {
    let before: u64 = info(running, "aof_rewrites").parse().unwrap();
    let reply = running.call("BGREWRITEAOF");
    assert!(
        reply.starts_with("+Background append only file rewriting"),
        "{reply}"
    );
    until_info(running, "aof_rewrites", &(before + 1).to_string());
    assert_eq!(info(running, "aof_last_bgrewrite_status"), "ok");
}

/// Has all kinds of units written.
fn write_all_kinds(running: &Running) {
    let mut client = running.connect();
    let mut all = |lines: &str| {
        for line in lines.lines().map(str::trim).filter(|line| !line.is_empty()) {
            let reply = client.call(line);
            assert!(!reply.starts_with("-"), "{line}: {reply}");
        }
    };
    all("FLUSHALL
        SET plain 1
        SELECT 3
        SET of:three 3
        SELECT 7
        FLUSHDB
        SELECT 0
        SET moved 1
        MOVE moved 9
        SET swapped 0
        SWAPDB 0 3
        SWAPDB 0 3
        SET n 5
        INCRBYFLOAT n 0.25
        SET gone 1
        GETDEL gone
        SET kept 1 EX 10000
        SET kept 2 KEEPTTL
        EXPIRE plain 10000 GT
        EXPIRE plain 10000
        PERSIST plain
        HSET h a 1 b 2 c 3
        HINCRBYFLOAT h a 0.5
        HEXPIRE h 10000 FIELDS 1 b
        SADD s a b c d e f g
        SPOP s 3
        ZADD z 1 a 2 b 3 c
        ZINCRBY z 2 a
        ZPOPMIN z
        GEOADD geo 13.361389 38.115556 Palermo
        PFADD hll a b c d
        SETBIT bits 1000 1
        BITFIELD bits SET u8 8 200
        RPUSH l 3 1 2
        SORT l STORE sorted
        COPY l copied
        RENAME copied renamed
        LMOVE l renamed LEFT RIGHT
        XADD x 1-1 f v
        XADD x 1-2 f v
        XGROUP CREATE x g 0
        XREADGROUP GROUP g c COUNT 1 STREAMS x >
        XREADGROUP GROUP g d COUNT 1 STREAMS x >
        XACK x g 1-1
        XAUTOCLAIM x g e 0 0
        PUBLISH channel message
        MULTI
        INCR a
        SELECT 2
        INCR b
        SELECT 0
        PUBLISH channel message
        EXEC
        MULTI
        EXEC
        SET soon 1 PX 1
        HSET timed f 1
        HPEXPIRE timed 1 FIELDS 1 f");
    until("keys expire", || {
        (client.call("EXISTS soon timed") == ":0").then_some(())
    });
    let script =
        "redis.call('SET', KEYS[1], ARGV[1]) return redis.call('RPUSH', KEYS[2], 'x', 'y')";
    assert_eq!(
        client.call_words(&["EVAL", script, "2", "scripted", "list", "v"]),
        ":2"
    );
    let library = "#!lua name=lib\nredis.register_function('put', function(keys, args)\n\
                   return redis.call('SET', keys[1], args[1]) end)";
    assert_eq!(client.call_words(&["FUNCTION", "LOAD", library]), "lib");
    assert_eq!(client.call("FCALL put 1 called v"), "+OK");
    // Values around the borders of what is copied and what is only referred to.
    for bytes in [16 * 1024 - 1, 16 * 1024, 16 * 1024 + 1, 3 << 20] {
        let (key, value) = (format!("large:{bytes}"), "v".repeat(bytes));
        assert_eq!(client.call_words(&["SET", &key, &value]), "+OK");
        assert_eq!(
            client.call_words(&["APPEND", &key, "tail"]),
            format!(":{}", bytes + 4)
        );
        assert_eq!(
            client.call_words(&["RPUSH", "of:large", &value]).as_bytes()[0],
            b':'
        );
    }
    let mut waiting = [running.connect(), running.connect()];
    waiting[0].send("BLPOP queue 0");
    until_info(running, "blocked_clients", "1");
    waiting[1].send("BLMOVE queue served LEFT RIGHT 0");
    until_info(running, "blocked_clients", "2");
    assert_eq!(client.call("RPUSH queue one two three"), ":3");
    assert_eq!(waiting.each_mut().map(Client::read), ["queue one", "two"]);
    evict(running);
}

/// Has keys of database 5 evicted.
fn evict(running: &Running) {
    let mut client = running.connect();
    assert_eq!(client.call("SELECT 5"), "+OK");
    let value = "e".repeat(20_000);
    for number in 0..200 {
        assert_eq!(
            client.call_words(&["SET", &format!("evicted:{number}"), &value, "EX", "9999"]),
            "+OK"
        );
    }
    set(running, "maxmemory-policy", "volatile-random");
    let used: u64 = info(running, "used_memory").parse().unwrap();
    set(running, "maxmemory", &(used - 2_000_000).to_string());
    until("keys are evicted", || {
        client.call("SET plain 1");
        let evicted: u64 = info(running, "evicted_keys").parse().unwrap();
        (evicted > 50).then_some(())
    });
    set(running, "maxmemory", "0");
    assert_eq!(client.call("SET plain 1"), "+OK");
}

/// Returns what the digest does not tell.
fn beside_the_digest(running: &Running) -> String {
    [
        "FUNCTION LIST WITHCODE",
        "XPENDING x g",
        "XINFO GROUPS x",
        "INFO keyspace",
    ]
    .map(|line| {
        let text = running.call(line);
        // The average is of what is left of spans.
        text.lines()
            .map(|line| line.split(",avg_ttl").next().unwrap_or(""))
            .collect::<Vec<_>>()
            .join("\n")
    })
    .join("\n")
}

fn all_kinds_outlive_a_kill_under(policy: &str, threads: usize) {
    let more = format!("{APPENDING}appendfsync {policy}\nthreads {threads}\n");
    let running = start(folder_with(&more));
    write_all_kinds(&running);
    let (data, beside) = (digest(&running), beside_the_digest(&running));
    let (_, folder) = killed(running);
    let text = commands(folder.path());
    for wanted in [
        encoded(&["FLUSHALL"]),
        encoded(&["FLUSHDB"]),
        encoded(&["DEL", "soon"]),
        encoded(&["INCR", "a"])
            + &encoded(&["SELECT", "2"])
            + &encoded(&["INCR", "b"])
            + &encoded(&["EXEC"]),
        "$4\r\nLPOP\r\n$5\r\nqueue\r\n".to_owned(),
    ] {
        let found = text
            .to_ascii_uppercase()
            .contains(&wanted.to_ascii_uppercase());
        assert!(found, "no {wanted:?}");
    }
    for unwanted in [
        "PUBLISH",
        "BLPOP",
        "SPOP",
        "EVAL",
        "FCALL",
        "XREADGROUP",
        "evicted:0\r\n$20000\r\nx",
    ] {
        assert!(!text.contains(unwanted), "{unwanted}");
    }
    let running = start(folder);
    assert_eq!(beside_the_digest(&running), beside);
    assert_eq!(digest(&running), data);
    rewrite(&running);
    assert_eq!(running.call("INCR after"), ":1");
    let data = digest(&running);
    let (_, folder) = killed(running);
    assert_eq!(
        commands(folder.path()),
        encoded(&["SELECT", "0"]) + &encoded(&["INCR", "after"])
    );
    let running = start(folder);
    assert_eq!(digest(&running), data);
    assert_eq!(running.call("FCALL put 1 called w"), "+OK");
}

#[test]
fn all_kinds_of_units_outlive_a_kill() {
    all_kinds_outlive_a_kill_under("everysec", 1);
}

#[test]
fn all_kinds_of_units_outlive_a_kill_under_always() {
    all_kinds_outlive_a_kill_under("always", 2);
}

#[test]
fn all_kinds_of_units_outlive_a_kill_without_syncs() {
    all_kinds_outlive_a_kill_under("no", 2);
}

/// Clients that write while something else is done.
struct Load {
    stops: AtomicBool,
    calls: AtomicU64,
}

/// Runs something while three clients write; then what they were told must be there.
fn under_load<R>(running: &Running, run: impl FnOnce(&Load) -> R) -> R {
    let load = Load {
        stops: AtomicBool::new(false),
        calls: AtomicU64::new(0),
    };
    let mut counts = Vec::new();
    let result = thread::scope(|scope| {
        let clients: Vec<_> = (0..3)
            .map(|number| {
                scope.spawn({
                    let load = &load;
                    move || write_until_stopped(running, number, load)
                })
            })
            .collect();
        // A panic in here would wait for the clients for ever.
        let result = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            load.goes_on();
            let result = run(&load);
            load.goes_on();
            result
        }));
        load.stops.store(true, Ordering::Relaxed);
        counts.extend(clients.into_iter().map(|client| client.join().unwrap()));
        result
    });
    let result = result.unwrap_or_else(|panic| std::panic::resume_unwind(panic));
    for (number, count) in counts.into_iter().enumerate() {
        assert_eq!(
            running.call(&format!("GET count:{number}")),
            count.to_string()
        );
        assert_eq!(
            running.call(&format!("GET twin:{number}")),
            count.to_string()
        );
    }
    result
}

impl Load {
    /// Waits until the clients have written some more.
    fn goes_on(&self) {
        let from = self.calls.load(Ordering::Relaxed);
        until("the clients go on", || {
            (self.calls.load(Ordering::Relaxed) >= from + 300).then_some(())
        });
    }
}

/// Makes a call, again as long as it is refused since the file is being loaded (DEBUG LOADAOF).
fn while_loading(mut call: impl FnMut() -> String) -> String {
    loop {
        let reply = call();
        if !reply.starts_with("-LOADING") && !reply.starts_with("-EXECABORT") {
            return reply;
        }
    }
}

/// Writes until it is told to stop; returns the number of rounds.
fn write_until_stopped(running: &Running, number: usize, load: &Load) -> u64 {
    let mut client = running.connect();
    let before = client.call(&format!("INCRBY count:{number} 0"));
    let mut count: u64 = before.trim_start_matches(':').parse().unwrap();
    let (own, twin) = (format!("count:{number}"), format!("twin:{number}"));
    let script = "redis.call('INCR', KEYS[1]) return redis.call('INCR', KEYS[2])";
    while !load.stops.load(Ordering::Relaxed) {
        count += 1;
        let reply = match count % 3 {
            0 => while_loading(|| {
                client.send(&format!("MULTI\r\nINCR {own}\r\nINCR {twin}\r\nEXEC"));
                (0..3).for_each(|_| drop(client.read()));
                client.read()
            }),
            1 => while_loading(|| client.call_words(&["EVAL", script, "2", &own, &twin])),
            _ => {
                while_loading(|| client.call(&format!("INCR {own}")));
                while_loading(|| client.call(&format!("SET {twin} {count}")))
            }
        };
        assert!(!reply.starts_with('-'), "{reply}");
        client.call(&format!("RPUSH list:{number} {count}"));
        client.call(&format!("LTRIM list:{number} -50 -1"));
        load.calls.fetch_add(1, Ordering::Relaxed);
    }
    count
}

fn with_workers(more: &str) -> TempDir {
    folder_with(&format!("{APPENDING}threads 2\n{more}"))
}

#[test]
fn rewrites_under_load_lose_nothing() {
    let mut running = start(with_workers(""));
    for number in 0..2_000 {
        running.call(&format!("SET key:{number} {number}"));
    }
    under_load(&running, |load| {
        for _ in 0..4 {
            rewrite(&running);
            load.goes_on();
        }
    });
    let data = digest(&running);
    running = restarted(running);
    assert_eq!(digest(&running), data);
    // Killed in the middle of one.
    under_load(&running, |_| drop(running.call("BGREWRITEAOF")));
    let data = digest(&running);
    running = restarted(running);
    assert_eq!(digest(&running), data);
    rewrite(&running);
    running = restarted(running);
    assert_eq!(digest(&running), data);
}

#[test]
fn the_file_is_rewritten_when_it_has_grown() {
    let running = start(with_workers("auto-aof-rewrite-percentage 0\n"));
    set(&running, "auto-aof-rewrite-min-size", "4kb");
    let write = || {
        for number in 0..500 {
            running.call(&format!("SET key {number}"));
        }
    };
    write();
    assert_eq!(info(&running, "aof_rewrites"), "0");
    set(&running, "auto-aof-rewrite-percentage", "100");
    until_info(&running, "aof_rewrites", "1");
    set(&running, "auto-aof-rewrite-min-size", "1gb");
    write();
    assert_eq!(info(&running, "aof_rewrites"), "1");
    set(&running, "auto-aof-rewrite-min-size", "4kb");
    until_info(&running, "aof_rewrites", "2");
    let bytes = |field: &str| info(&running, field).parse::<u64>().unwrap();
    assert!(
        bytes("aof_current_size") < 4096,
        "{}",
        bytes("aof_current_size")
    );
    until_info(&running, "aof_rewrite_in_progress", "0");
    let data = digest(&running);
    let (log, folder) = killed(running);
    assert!(
        log.contains("Starting automatic rewriting of AOF on "),
        "{log}"
    );
    let running = start(folder);
    assert_eq!(digest(&running), data);
    let names = names(running.folder.path());
    assert_eq!(names.len(), 3, "what was replaced is gone: {names:?}");
}

/// Returns the names in the folder of the file.
pub fn names(folder: &Path) -> Vec<String> {
    let entries = fs::read_dir(folder.join("appendonlydir")).unwrap();
    let mut names: Vec<_> = entries
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    names.sort();
    names
}

#[test]
fn what_had_expired_by_the_start_was_left_out_of_a_base_and_came_to_life_by_the_commands_behind_it()
{
    // A string that has expired in 1970.
    let mut base = b"REDIS0011\xfe\x00\xfc".to_vec();
    base.extend(1_000_u64.to_le_bytes());
    base.extend(b"\x00\x01k\x015\xff\0\0\0\0\0\0\0\0");
    let later = [
        encoded(&["SELECT", "0"]),
        encoded(&["INCR", "k"]),
        encoded(&["COPY", "k", "copy"]),
        encoded(&["PERSIST", "copy"]),
    ];
    let folder = folder_with(APPENDING);
    fs::create_dir(folder.path().join("appendonlydir")).unwrap();
    let manifest = "file appendonly.aof.1.base.rdb seq 1 type b\nfile appendonly.aof.1.incr.aof seq 1 type i\n";
    fs::write(folder.path().join(MANIFEST), manifest).unwrap();
    let file = |kind: &str| {
        folder
            .path()
            .join(format!("appendonlydir/appendonly.aof.1.{kind}"))
    };
    fs::write(file("base.rdb"), base).unwrap();
    fs::write(file("incr.aof"), later.concat()).unwrap();
    let running = start(folder);
    let there = |running: &Running| ["k", "copy"].map(|key| running.call(&format!("GET {key}")));
    assert_eq!(there(&running), ["(nil)", "6"]);
    assert!(running.call("DEBUG LOADAOF").starts_with('+'));
    assert_eq!(there(&running), ["(nil)", "6"]);
    assert_eq!(there(&restarted(running)), ["(nil)", "6"]);
}

#[test]
fn replaced_files_stay_if_that_is_wanted() {
    let running = start(with_workers(""));
    set(&running, "aof-disable-auto-gc", "yes");
    rewrite(&running);
    let first = ["appendonly.aof.1.base.rdb", "appendonly.aof.1.incr.aof"];
    let there = |running: &Running| {
        let names = names(running.folder.path());
        first.map(|name| names.iter().any(|found| found == name))
    };
    assert_eq!(there(&running), [true, true]);
    set(&running, "aof-disable-auto-gc", "no");
    rewrite(&running);
    until("they are removed", || {
        (there(&running) == [false, false]).then_some(())
    });
}

#[test]
fn the_file_is_turned_on_and_off_and_on() {
    let running = start(folder_with(
        "save \"\"\nenable-debug-command yes\nthreads 2\n",
    ));
    running.call("SET before 1");
    assert_eq!(info(&running, "aof_enabled"), "0");
    let turn_on = || {
        let before: u64 = info(&running, "aof_rewrites").parse().unwrap();
        set(&running, "appendonly", "yes");
        until_info(&running, "aof_rewrites", &(before + 1).to_string());
        assert_eq!(info(&running, "aof_enabled"), "1");
    };
    under_load(&running, |load| {
        turn_on();
        load.goes_on();
        set(&running, "appendonly", "no");
        until_info(&running, "aof_enabled", "0");
        load.goes_on();
        running.call("SET between 1");
        turn_on();
    });
    let data = digest(&running);
    assert_eq!(running.call("CONFIG REWRITE"), "+OK");
    let running = restarted(running);
    assert_eq!(digest(&running), data);
    assert_eq!(running.call("EXISTS before between"), ":2");
}

/// INFO tells of a rewrite while the file is off, too, and the next base has a name of its own.
#[test]
fn a_base_is_made_while_the_file_is_off() {
    let running = start(folder_with(APPENDING));
    running.call("SET k v");
    set(&running, "rdb-key-save-delay", "600000000");
    running.call("BGREWRITEAOF");
    until_info(&running, "aof_rewrite_in_progress", "1");
    set(&running, "appendonly", "no");
    until_info(&running, "aof_rewrite_in_progress", "0");
    // What was called off is no failure.
    assert_eq!(info(&running, "aof_last_bgrewrite_status"), "ok");
    until("the first is called off", || {
        running
            .call("BGREWRITEAOF")
            .contains("rewriting started")
            .then_some(())
    });
    until_info(&running, "aof_rewrite_in_progress", "1");
    assert_eq!(
        running.call("BGREWRITEAOF"),
        "-ERR Background append only file rewriting already in progress"
    );
    let (log, folder) = killed(running);
    assert!(log.contains("Killing running AOF rewrite child"), "{log}");
    let manifest = || fs::read_to_string(folder.path().join(MANIFEST)).unwrap();
    let bases = |text: &str| text.lines().filter(|line| line.ends_with("type b")).count();
    assert_eq!(bases(&manifest()), 1);

    let running = start(folder);
    rewrite(&running);
    set(&running, "appendonly", "no");
    until_info(&running, "aof_enabled", "0");
    let number = |running: &Running| {
        let text = fs::read_to_string(running.folder.path().join(MANIFEST)).unwrap();
        let base = text.lines().find(|line| line.ends_with("type b")).unwrap();
        base.split(' ').nth(3).unwrap().parse::<u64>().unwrap()
    };
    let before = number(&running);
    rewrite(&running);
    assert_eq!(number(&running), before + 1);
    set(&running, "appendonly", "yes");
    until("the file is on", || {
        (number(&running) == before + 2).then_some(())
    });
    until_info(&running, "aof_rewrite_in_progress", "0");
    let data = digest(&running);
    let running = restarted(running);
    assert_eq!(digest(&running), data);
}

#[test]
fn a_file_that_is_turned_off_under_load_goes_off() {
    for policy in ["no", "always", "everysec"] {
        let running = start(with_workers(&format!("appendfsync {policy}\n")));
        under_load(&running, |_| {
            set(&running, "appendonly", "no");
            until_info(&running, "aof_enabled", "0");
        });
    }
}

#[test]
fn a_file_that_is_turned_on_again_before_it_is_off_is_on() {
    let mut running = start(with_workers(""));
    for round in 0..5 {
        let mut client = running.connect();
        // This is not synced yet when the file is turned off.
        assert_eq!(client.call("SET k 0"), "+OK");
        let lines = ["CONFIG SET appendonly no", "CONFIG SET appendonly yes"];
        client.send(&lines.join("\r\n"));
        assert_eq!(lines.map(|_| client.read()), ["+OK"; 2]);
        let value = format!("round {round}");
        until("the file takes what is written", || {
            assert_eq!(client.call_words(&["SET", "k", &value]), "+OK");
            commands(running.folder.path())
                .contains(&value)
                .then_some(())
        });
        until_info(&running, "aof_rewrite_in_progress", "0");
        let data = digest(&running);
        running = restarted(running);
        assert_eq!(digest(&running), data);
    }
}

#[test]
fn appendfsync_changes_in_all_directions_under_load() {
    let running = start(with_workers(""));
    under_load(&running, |load| {
        for policy in [
            "always", "no", "everysec", "no", "always", "everysec", "always",
        ] {
            set(&running, "appendfsync", policy);
            load.goes_on();
        }
    });
    let data = digest(&running);
    let running = restarted(running);
    assert_eq!(digest(&running), data);
}

#[test]
fn times_are_in_the_file_if_that_is_wanted() {
    let running = start(folder_with(APPENDING));
    assert_eq!(running.call("SET a 1"), "+OK");
    assert!(!commands(running.folder.path()).contains('#'));
    set(&running, "aof-timestamp-enabled", "yes");
    assert_eq!(running.call("SET b 1"), "+OK");
    let text = commands(running.folder.path());
    let (_, line) = text.split_once("#TS:").expect("there is a time");
    let (time_s, after) = line.split_once("\r\n").unwrap();
    let now_s = std::time::UNIX_EPOCH.elapsed().unwrap().as_secs();
    let age_s = now_s.abs_diff(time_s.parse().unwrap());
    assert!(age_s < 60, "{time_s} at {now_s}");
    assert!(after.starts_with("*3\r\n$3\r\nSET\r\n$1\r\nb"), "{after}");
    let data = digest(&running);
    let running = restarted(running);
    assert_eq!(digest(&running), data);
}

/// Begins a rewrite that does not end by itself.
pub fn rewrite_for_ever(running: &Running) {
    set(running, "rdb-key-save-delay", "600000000");
    assert!(running.call("BGREWRITEAOF").starts_with('+'));
    until_info(running, "aof_rewrite_in_progress", "1");
}

#[test]
fn a_server_that_is_told_to_end_does_not_wait_for_a_rewrite() {
    for signal in ["TERM", "INT"] {
        let running = start(with_workers(""));
        running.call("SET before 1");
        rewrite_for_ever(&running);
        running.call("SET after 1");
        running.signal(signal);
        let (status, log, folder) = running.ended();
        assert_eq!(status.code(), Some(0), "{log}");
        assert!(!log.contains("could not be brought to disk"), "{log}");
        let running = start(folder);
        assert_eq!(running.call("EXISTS before after"), ":2");
        let names = names(running.folder.path());
        assert!(
            names.iter().all(|name| !name.starts_with("temp-")),
            "{names:?}"
        );
    }
    // Without a file that grows, too.
    let running = start(folder_with("save \"\"\nenable-debug-command yes\n"));
    running.call("SET before 1");
    rewrite_for_ever(&running);
    running.signal("TERM");
    let (status, log, _) = running.ended();
    assert_eq!(status.code(), Some(0), "{log}");
}

#[test]
fn a_server_that_is_told_to_end_while_it_makes_its_first_file_ends() {
    let folder = folder_with("save \"\"\n");
    let running = start(folder);
    running.call("SET k v");
    assert_eq!(running.call("SAVE"), "+OK");
    let (_, folder) = killed(running);
    let config = folder.path().join("r.conf");
    let lines = fs::read_to_string(&config).unwrap();
    let more = format!("{lines}{APPENDING}rdb-key-save-delay 600000000\n");
    fs::write(&config, more).unwrap();
    let running = Running::start(folder, &["r.conf"], None);
    until_info(&running, "aof_rewrite_in_progress", "1");
    assert_eq!(info(&running, "loading"), "1");
    running.signal("TERM");
    let (status, log, folder) = running.ended();
    assert_eq!(status.code(), Some(0), "{log}");
    fs::write(&config, lines + APPENDING).unwrap();
    let running = start(folder);
    assert_eq!(running.call("GET k"), "v");
}

#[test]
fn a_server_whose_data_is_in_no_file_yet_ends_only_by_force() {
    const NOT_ENDED: &str = "-ERR Errors trying to SHUTDOWN. Check logs.";
    let running = start(folder_with("save \"\"\nlogfile log\n"));
    let log = |running: &Running| fs::read_to_string(running.path("log")).unwrap();
    running.call("SET k v");
    set(&running, "rdb-key-save-delay", "600000000");
    set(&running, "appendonly", "yes");
    until_info(&running, "aof_rewrite_in_progress", "1");
    assert_eq!(running.call("SHUTDOWN"), NOT_ENDED);
    assert_eq!(running.call("SHUTDOWN NOSAVE"), NOT_ENDED);
    assert!(log(&running).contains("Writing initial AOF, can't exit."));
    running.signal("TERM");
    until("it is refused", || {
        let refused = "Errors trying to shut down the server.";
        log(&running).contains(refused).then_some(())
    });
    assert_eq!(running.call("GET k"), "v");
    running.connect().send("SHUTDOWN FORCE");
    let (status, _, folder) = running.ended();
    let log = fs::read_to_string(folder.path().join("log")).unwrap();
    assert_eq!(status.code(), Some(0), "{log}");
    assert!(
        log.contains("Writing initial AOF. Exiting anyway."),
        "{log}"
    );
}

#[test]
fn save_waits_for_a_base_that_is_being_written() {
    let running = start(with_workers(""));
    running.call("SET k v");
    // The base takes so long; so does SAVE, if it comes before the base is begun.
    set(&running, "rdb-key-save-delay", "1000000");
    assert!(running.call("BGREWRITEAOF").starts_with('+'));
    until_info(&running, "aof_rewrite_in_progress", "1");
    let mut client = running.connect();
    client.send("SAVE");
    set(&running, "rdb-key-save-delay", "0");
    set(&running, "appendonly", "no");
    assert_eq!(client.read(), "+OK");
    assert!(running.path("dump.rdb").exists());
}

#[test]
fn a_server_that_is_told_to_end_brings_all_to_disk() {
    let mut running = start(with_workers(""));
    for name in ["TERM", "INT"] {
        under_load(&running, |load| load.goes_on());
        let data = digest(&running);
        running.signal(name);
        let (status, log, folder) = running.ended();
        assert!(status.success(), "{log}");
        assert!(log.contains("Calling fsync() on the AOF file."), "{log}");
        running = start(folder);
        assert_eq!(digest(&running), data);
    }
}

#[test]
fn the_file_is_loaded_again_under_load_and_nothing_is_lost() {
    const AT_ONCE: usize = 200;
    let running = start(with_workers("threads 3\n"));
    let stops = AtomicBool::new(false);
    let pipelines = |name: &str| {
        let mut client = running.connect();
        let mut last = String::new();
        while !stops.load(Ordering::Relaxed) {
            client.send_bytes(encoded(&["INCR", name]).repeat(AT_ONCE).as_bytes());
            for _ in 0..AT_ONCE {
                let reply = client.read();
                match reply.starts_with("-LOADING") {
                    true => {}
                    false => last = reply,
                }
            }
        }
        assert_eq!(format!(":{}", running.call(&format!("GET {name}"))), last);
    };
    thread::scope(|scope| {
        for name in ["one", "two", "three"] {
            scope.spawn(|| pipelines(name));
        }
        // A panic in here would wait for the clients for ever.
        let loaded = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            under_load(&running, |load| {
                for _ in 0..40 {
                    assert_eq!(running.call("DEBUG LOADAOF"), "+OK");
                }
                load.goes_on();
            });
        }));
        stops.store(true, Ordering::Relaxed);
        loaded.unwrap_or_else(|panic| std::panic::resume_unwind(panic));
    });
    let before = digest(&running);
    let running = restarted(running);
    assert_eq!(digest(&running), before);
}

#[test]
fn a_rewrite_that_ended_beside_a_load_had_removed_its_files() {
    let running = start(with_workers(""));
    // Many, so that a load takes long.
    running.call("DEBUG POPULATE 20000");
    rewrite(&running);
    let data = digest(&running);
    let stops = AtomicBool::new(false);
    thread::scope(|scope| {
        scope.spawn(|| {
            let mut client = running.connect();
            while !stops.load(Ordering::Relaxed) {
                client.call("BGREWRITEAOF");
            }
        });
        let mut client = running.connect();
        let replies: Vec<String> = (0..60).map(|_| client.call("DEBUG LOADAOF")).collect();
        stops.store(true, Ordering::Relaxed);
        assert!(replies.iter().all(|reply| reply == "+OK"), "{replies:?}");
    });
    until_info(&running, "aof_rewrite_in_progress", "0");
    assert_eq!(digest(&running), data);
    assert_eq!(digest(&restarted(running)), data);
}

#[test]
fn snapshots_are_cut_while_a_file_is_reloaded() {
    let running = start(with_workers(""));
    // Many, so that a load takes long.
    running.call("DEBUG POPULATE 30000");
    let stops = AtomicBool::new(false);
    thread::scope(|scope| {
        for _ in 0..3 {
            scope.spawn(|| {
                let mut client = running.connect();
                while !stops.load(Ordering::Relaxed) {
                    client.call("BGSAVE");
                }
            });
        }
        let mut client = running.connect();
        let mut reloaded = 0;
        until("it is reloaded", || {
            reloaded += usize::from(client.call("DEBUG RELOAD NOSAVE") == "+OK");
            (reloaded == 40).then_some(())
        });
        stops.store(true, Ordering::Relaxed);
    });
    assert_eq!(running.call("DBSIZE"), ":30000");
}
