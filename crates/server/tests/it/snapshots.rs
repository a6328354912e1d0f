//! Snapshots over a socket: what a restart brings back, what is answered meanwhile, what happens when a file cannot be
//! written, and how a server ends. Damaged files are in `crates/cli/tests/it/files.rs`, snapshots under random load in
//! `snapshot_oracle.rs`. Must not know the server's insides.

use std::{fs, path::PathBuf};

use crate::client::{Client, Value, settings, start, until};
use crate::config_live::{self, set};
use redline_persist::snapshot::spool::SPOOL_BYTES_MIN;
use redline_server::{Permission, Server, Settings};

const IN_PROGRESS: &str = "ERR Background save already in progress";
const NOT_ENDED: &str = "ERR Errors trying to SHUTDOWN. Check logs.";
/// Microseconds per key, with which no snapshot ends by itself.
const FOREVER: &str = "600000000";

/// A folder for a snapshot, and settings with which servers keep it there.
struct Folder {
    outer: tempfile::TempDir,
}

impl Folder {
    fn new() -> Folder {
        let folder = Folder {
            outer: tempfile::tempdir().unwrap(),
        };
        folder.appear();
        folder
    }

    fn path(&self) -> PathBuf {
        self.outer.path().join("data")
    }

    fn file(&self) -> PathBuf {
        self.path().join("dump.rdb")
    }

    /// Makes the folder.
    fn appear(&self) {
        fs::create_dir(self.path()).unwrap();
    }

    /// Removes the folder: nothing can be written.
    fn vanish(&self) {
        fs::remove_dir_all(self.path()).unwrap();
    }

    fn names(&self) -> Vec<String> {
        let entries = fs::read_dir(self.path()).unwrap();
        entries
            .map(|entry| entry.unwrap().file_name().into_string().unwrap())
            .collect()
    }

    fn settings(&self, workers: usize) -> Settings {
        Settings {
            enable_debug_command: Permission::Yes,
            db_filename: self.file().to_str().unwrap().into(),
            ..settings(workers)
        }
    }

    /// Starts a server, which has loaded what is there when this returns.
    fn start(&self, workers: usize) -> Server {
        self.start_with(workers, |_| ())
    }

    fn start_with(&self, workers: usize, change: impl FnOnce(&mut Settings)) -> Server {
        let mut settings = self.settings(workers);
        change(&mut settings);
        let server = start(settings);
        let mut client = Client::connect(&server);
        until("it has loaded", || field(&mut client, "loading") == "0");
        server
    }
}

#[track_caller]
fn text(value: &Value) -> String {
    match value {
        Value::Bulk(bytes) => String::from_utf8_lossy(bytes).into_owned(),
        Value::Simple(text) => text.clone(),
        other => panic!("no text: {other:?}"),
    }
}

/// A field of INFO.
#[track_caller]
fn field(client: &mut Client, name: &str) -> String {
    config_live::field(client, "everything", name)
}

#[track_caller]
fn digest(client: &mut Client) -> String {
    text(&client.call("DEBUG DIGEST"))
}

#[track_caller]
fn is_saving(client: &mut Client) -> bool {
    field(client, "rdb_bgsave_in_progress") == "1"
}

/// Values of every type and encoding, in every database, functions included.
fn fill(client: &mut Client) {
    let script = b"for i = 1, 600 do\n\
        redis.call('rpush', 'list', i, ('x'):rep(i))\n\
        redis.call('hset', 'hash', 'f' .. i, i)\n\
        redis.call('zadd', 'zset', i, 'm' .. i)\n\
        redis.call('sadd', 'set', 'm' .. i)\n\
        redis.call('sadd', 'large ints', i * 1000)\n\
        redis.call('xadd', 'stream', i .. '-1', 'f', i)\nend\n\
        redis.call('set', 'large', ('0123456789'):rep(3000) .. '\\0\\r\\n')\n\
        redis.call('set', '', 'the empty key')";
    client.call_args(&[b"EVAL", script, b"0"]);
    for call in [
        "SET int 12345678901234567",
        "SET negative -3",
        "APPEND raw abc",
        "SETBIT bits 100000 1",
        "RPUSH listpack a 1 -1 300000",
        "SADD intset 1 -20000 3000000000",
        "SADD words a b 3",
        "HSET small a 1 b 2",
        "HSETEX timed PXAT 9999999999000 FIELDS 2 a 1 b 2",
        "HSET timed c 3",
        "HPEXPIREAT hash 9999999999000 FIELDS 1 f1",
        "ZADD floats 1.5 a -inf b +inf c 3e-9 d",
        "PFADD hll a b c",
        "VADD vectors VALUES 3 1 2 3 e",
        "EXSET exstring value FLAGS 7 ABS 9",
        "EXHSET exhash a 1 ABS 300 PXAT 99999999999000",
        "EXHSET exhash b 2",
        "EXZADD exzset 1#2#3 a 1#2.5#-inf b",
        "VADD vectors VALUES 3 -1 2 3 f SETATTR {\"year\":1}",
        "XGROUP CREATE stream g 5-1",
        "XREADGROUP GROUP g alice COUNT 3 STREAMS stream >",
        "XREADGROUP GROUP g bob COUNT 3 STREAMS stream >",
        "XACK stream g 6-1",
        "XDEL stream 600-1",
        "XADD empty 9-9 f v",
        "XDEL empty 9-9",
        "PEXPIREAT list 99999999999000",
        "PEXPIREAT int 99999999998000",
    ] {
        let reply = client.call(call);
        assert!(!matches!(reply, Value::Error(_)), "{call}: {reply:?}");
    }
    for db in 1..16 {
        client.call(&format!("SELECT {db}")).ok();
        client.call(&format!("SET k {db}")).ok();
        client.call(&format!("RPUSH l {db} {db}"));
    }
    client.call("SELECT 0").ok();
    let library = b"#!lua name=lib\nredis.register_function('f', function() return 'here' end)";
    let loaded = client.call_args(&[b"FUNCTION", b"LOAD", library]);
    assert_eq!(text(&loaded), "lib");
}

/// Facts that the digest leaves out.
fn details(client: &mut Client) -> Vec<Value> {
    let mut details = Vec::new();
    for call in [
        "PEXPIRETIME list",
        "PEXPIRETIME int",
        "PEXPIRETIME raw",
        "HPEXPIRETIME timed FIELDS 3 a b c",
        "HPEXPIRETIME hash FIELDS 2 f1 f2",
        "XINFO STREAM empty FULL",
        "VSIM vectors ELE e WITHSCORES WITHATTRIBS",
        "FUNCTION LIST WITHCODE",
        "FCALL f 0",
        "XPENDING stream g - + 100 alice",
        "XINFO CONSUMERS stream g",
        "DBSIZE",
        "GET large",
    ] {
        let reply = client.call(call);
        assert!(!matches!(reply, Value::Error(_)), "{call}: {reply:?}");
        // Times since then are others.
        details.push(match call {
            "XPENDING stream g - + 100 alice" => Value::Array(
                (reply.array().iter())
                    .map(|pending| {
                        Value::Array([0, 1, 3].map(|at| pending.array()[at].clone()).into())
                    })
                    .collect(),
            ),
            "XINFO CONSUMERS stream g" => Value::Array(
                (reply.array().iter())
                    .map(|consumer| Value::Array(consumer.array()[..4].to_vec()))
                    .collect(),
            ),
            _ => reply,
        });
    }
    for key in [
        "int", "raw", "listpack", "list", "intset", "words", "small", "timed", "floats", "zset",
    ] {
        details.push(client.call(&format!("OBJECT ENCODING {key}")));
    }
    details
}

#[test]
fn a_restart_brings_everything_back() {
    let folder = Folder::new();
    let server = folder.start(2);
    let mut client = Client::connect(&server);
    fill(&mut client);
    let (expected, expected_details) = (digest(&mut client), details(&mut client));
    client.call("SAVE").ok();
    // Nothing of this is in the file.
    client.call("SET later 1").ok();
    drop(server);
    assert_eq!(folder.names(), ["dump.rdb"]);
    for workers in [1, 4] {
        let server = folder.start(workers);
        let mut client = Client::connect(&server);
        assert_eq!(digest(&mut client), expected);
        assert_eq!(details(&mut client), expected_details);
        let keys: i64 = field(&mut client, "rdb_last_load_keys_loaded")
            .parse()
            .unwrap();
        assert_eq!(keys, client.call("DBSIZE").integer() + 15 * 2);
        assert_eq!(field(&mut client, "rdb_changes_since_last_save"), "0");
        // What was loaded can be changed, and saved again.
        client.call("RPUSH list more");
        client.call("LPOP list");
        client.call("RPOP list");
        client.call("LPUSH list 1");
        client.call("SAVE").ok();
    }
}

#[test]
fn keys_that_expired_before_the_start_are_left_out() {
    let folder = Folder::new();
    let server = folder.start(1);
    let mut client = Client::connect(&server);
    client.call("DEBUG SET-ACTIVE-EXPIRE 0").ok();
    client.call("SET stays v").ok();
    client.call("SET goes v PX 1").ok();
    client.call("SAVE").ok();
    drop(server);
    let later = wall_ms() + 2;
    until("its time has passed", || wall_ms() > later);
    let server = folder.start(2);
    let mut client = Client::connect(&server);
    assert_eq!(client.call("DBSIZE").integer(), 1);
    assert_eq!(field(&mut client, "rdb_last_load_keys_expired"), "1");
    assert_eq!(field(&mut client, "rdb_last_load_keys_loaded"), "1");
}

fn wall_ms() -> u128 {
    let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
    since.unwrap().as_millis()
}

#[test]
fn values_of_unknown_modules_are_an_error_or_left_out() {
    let folder = Folder::new();
    let server = folder.start(1);
    let mut client = Client::connect(&server);
    client.call("SET k v").ok();
    // A snapshot with a key of a module, then one of a string.
    let mut file = b"REDIS0011\xfe\x00\x07\x03doc\x81".to_vec();
    file.extend(redline_rdb::ModuleType::new("NoSuchOne", 1).0.to_be_bytes());
    file.extend(b"\x02\x05\x05\x03abc\x00\x00\x01j\x01w\xff\0\0\0\0\0\0\0\0");
    fs::write(folder.file(), &file).unwrap();
    for value in ["no", "yes", "no"] {
        set(&mut client, "skip-unknown-module-values", value);
        let reply = client.call("DEBUG RELOAD NOSAVE");
        assert_eq!(matches!(reply, Value::Error(_)), value == "no", "{reply:?}");
    }
    set(&mut client, "skip-unknown-module-values", "yes");
    client.call("DEBUG RELOAD NOSAVE").ok();
    assert_eq!(client.call("GET j"), Value::Bulk(b"w".into()));
    assert_eq!(client.call("DBSIZE").integer(), 1);
}

#[test]
fn bgsave_says_what_it_does() {
    let folder = Folder::new();
    let server = folder.start(1);
    let mut client = Client::connect(&server);
    let lastsave = client.call("LASTSAVE").integer();
    for (name, value) in [
        ("rdb_bgsave_in_progress", "0"),
        ("rdb_last_bgsave_status", "ok"),
        ("rdb_last_bgsave_time_sec", "-1"),
        ("rdb_current_bgsave_time_sec", "-1"),
        ("rdb_saves", "0"),
        ("current_save_keys_total", "0"),
    ] {
        assert_eq!(field(&mut client, name), value, "{name}");
    }
    assert_eq!(
        field(&mut client, "rdb_last_save_time"),
        lastsave.to_string()
    );
    client.call("MSET a 1 b 2 c 3").ok();
    assert_eq!(field(&mut client, "rdb_changes_since_last_save"), "3");
    set(&mut client, "rdb-key-save-delay", FOREVER);
    assert_eq!(text(&client.call("BGSAVE")), "Background saving started");
    assert!(is_saving(&mut client));
    assert_eq!(field(&mut client, "current_save_keys_total"), "3");
    assert_ne!(field(&mut client, "rdb_current_bgsave_time_sec"), "-1");
    for call in ["BGSAVE", "BGSAVE SCHEDULE", "SAVE"] {
        assert_eq!(client.call(call).error(), IN_PROGRESS, "{call}");
    }
    // The file has what was there before.
    client.call("SET d 4").ok();
    assert_eq!(
        text(&client.call("BGSAVE CANCEL")),
        "Background saving cancelled"
    );
    until("it has ended", || !is_saving(&mut client));
    assert_eq!(field(&mut client, "rdb_last_bgsave_status"), "ok");
    assert_eq!(field(&mut client, "rdb_changes_since_last_save"), "4");
    assert_eq!(
        folder.names(),
        [""; 0],
        "neither a file nor a temporary one"
    );
    let none = "ERR Background saving is currently not in progress or scheduled";
    assert_eq!(client.call("BGSAVE CANCEL").error(), none);
    for call in [
        "BGSAVE FOO",
        "BGSAVE SCHEDULE CANCEL",
        "BGSAVE CANCEL SCHEDULE",
    ] {
        assert_eq!(client.call(call).error(), "ERR syntax error", "{call}");
    }
    assert_eq!(
        client.call("SAVE now").error(),
        "ERR wrong number of arguments for 'save' command"
    );

    // Inside EXEC it comes later.
    for call in [
        "MULTI",
        "BGSAVE",
        "BGSAVE CANCEL",
        "BGSAVE SCHEDULE",
        "INCR n",
    ] {
        client.call(call);
    }
    let replies = client.call("EXEC");
    let [first, second, third] = [0, 1, 2].map(|at| text(&replies.array()[at]));
    assert_eq!(first, "Background saving scheduled");
    assert_eq!(second, "Scheduled background saving cancelled");
    assert_eq!(third, "Background saving scheduled");
    until("it has begun", || is_saving(&mut client));
    assert_eq!(field(&mut client, "current_save_keys_total"), "5");
    client.call("BGSAVE CANCEL");
    until("it has ended", || !is_saving(&mut client));
    client.call("MULTI").ok();
    assert_eq!(
        client.call("SAVE").error(),
        "ERR Command not allowed inside a transaction"
    );
    client.call("DISCARD").ok();

    // One that goes through.
    set(&mut client, "rdb-key-save-delay", "0");
    assert_eq!(
        text(&client.call("BGSAVE SCHEDULE")),
        "Background saving started"
    );
    until("it has ended", || !is_saving(&mut client));
    assert_eq!(folder.names(), ["dump.rdb"]);
    assert_eq!(field(&mut client, "rdb_changes_since_last_save"), "0");
    assert_eq!(field(&mut client, "rdb_saves"), "1");
    assert_ne!(field(&mut client, "rdb_last_bgsave_time_sec"), "-1");
    let saved_at_s = client.call("LASTSAVE").integer();
    assert!(saved_at_s >= lastsave);
    assert_eq!(
        field(&mut client, "rdb_last_save_time"),
        saved_at_s.to_string()
    );
}

#[test]
fn a_client_that_saves_keeps_nobody_waiting() {
    let folder = Folder::new();
    let server = folder.start(1);
    let (mut saves, mut client) = (Client::connect(&server), Client::connect(&server));
    client.call("SET k v").ok();
    set(&mut client, "rdb-key-save-delay", FOREVER);
    saves.send("SAVE");
    until("it saves", || is_saving(&mut client));
    client.call("SET k w").ok();
    assert_eq!(text(&client.call("GET k")), "w");
    // What is pipelined behind SAVE comes behind it.
    saves.send("GET k");
    client.call("BGSAVE CANCEL");
    assert_eq!(saves.read().error(), "ERR");
    assert_eq!(text(&saves.read()), "w");
    // Who leaves while it waits leaves nothing behind.
    saves.send("SAVE");
    until("it saves", || is_saving(&mut client));
    let before = field(&mut client, "connected_clients");
    drop(saves);
    until("it has gone", || {
        field(&mut client, "connected_clients") != before
    });
    assert!(is_saving(&mut client), "the snapshot goes on");
    client.call("BGSAVE CANCEL");
    until("it has ended", || !is_saving(&mut client));
    set(&mut client, "rdb-key-save-delay", "0");
    client.call("SAVE").ok();
    assert_eq!(folder.names(), ["dump.rdb"]);
}

#[test]
fn save_points_take_snapshots() {
    let folder = Folder::new();
    let server = folder.start_with(2, |settings| settings.save_points = vec![(3600, 1), (1, 2)]);
    let mut client = Client::connect(&server);
    let shown = |client: &mut Client| text(&client.call("CONFIG GET save").array()[1]);
    assert_eq!(shown(&mut client), "3600 1 1 2");
    client.call("MSET a 1 b 2").ok();
    until("the save point fires", || {
        field(&mut client, "rdb_saves") == "1"
    });
    assert_eq!(folder.names(), ["dump.rdb"]);
    assert_eq!(field(&mut client, "rdb_changes_since_last_save"), "0");
    // And one that is set later, for a change that was there before.
    set(&mut client, "save", "");
    assert_eq!(shown(&mut client), "");
    client.call("SET a 2").ok();
    set(&mut client, "save", "1 1");
    until("the save point fires", || {
        field(&mut client, "rdb_saves") == "2"
    });
    drop(server);
    let server = folder.start(1);
    assert_eq!(text(&Client::connect(&server).call("GET a")), "2");
}

/// The error of writes after a snapshot failed.
#[track_caller]
fn assert_refused(reply: &Value) {
    assert!(reply.error().contains("MISCONF Redis is configured to save RDB snapshots, but it's currently unable to persist to disk."), "{reply:?}");
}

#[test]
fn writes_are_refused_while_snapshots_fail() {
    let folder = Folder::new();
    // A save point that does not fire meanwhile.
    let server = folder.start_with(2, |settings| settings.save_points = vec![(1 << 30, 1)]);
    let mut client = Client::connect(&server);
    client.call("SET k v").ok();
    let script = b"#!lua\nreturn redis.call('set', KEYS[1], 'x')";
    let old_script = b"return redis.call('set', KEYS[1], 'x')";
    let reads = b"return redis.call('get', KEYS[1])";
    let mut in_transaction = Client::connect(&server);
    in_transaction.call("MULTI").ok();
    in_transaction.call("SET k x");
    folder.vanish();
    assert_eq!(client.call("SAVE").error(), "ERR");
    assert_eq!(field(&mut client, "rdb_last_bgsave_status"), "err");
    assert_eq!(field(&mut client, "rdb_saves"), "0");
    assert_eq!(field(&mut client, "rdb_changes_since_last_save"), "1");

    for call in [
        "SET k w",
        "DEL k",
        "PING",
        "PING word",
        "FLUSHALL",
        "XADD s * f v",
    ] {
        assert_refused(&client.call(call));
    }
    for script in [&script[..], old_script] {
        assert_refused(&client.call_args(&[b"EVAL", script, b"1", b"k"]));
    }
    assert_eq!(text(&client.call_args(&[b"EVAL", reads, b"1", b"k"])), "v");
    assert_eq!(text(&client.call("GET k")), "v");
    assert_refused(&in_transaction.call("EXEC"));
    in_transaction.call("MULTI").ok();
    assert_refused(&in_transaction.call("SET k x"));
    assert!(in_transaction.call("EXEC").error().starts_with("EXECABORT"));
    in_transaction.call("MULTI").ok();
    in_transaction.call("GET k");
    assert_eq!(text(&in_transaction.call("EXEC").array()[0]), "v");

    // Only with save points, and only if it is wanted.
    set(&mut client, "stop-writes-on-bgsave-error", "no");
    client.call("SET k w").ok();
    set(&mut client, "stop-writes-on-bgsave-error", "yes");
    assert_refused(&client.call("SET k x"));
    set(&mut client, "save", "");
    client.call("SET k x").ok();
    set(&mut client, "save", "1073741824 1");
    assert_refused(&client.call("SET k y"));

    // BGSAVE fails likewise, and does not say so.
    assert_eq!(text(&client.call("BGSAVE")), "Background saving started");
    until("it has ended", || !is_saving(&mut client));
    assert_eq!(field(&mut client, "rdb_last_bgsave_status"), "err");
    assert_refused(&client.call("SET k y"));
    folder.appear();
    client.call("SAVE").ok();
    assert_eq!(field(&mut client, "rdb_last_bgsave_status"), "ok");
    client.call("SET k z").ok();
    assert_eq!(client.call("PING"), Value::Simple("PONG".into()));
    assert_eq!(folder.names(), ["dump.rdb"]);
}

/// A save point that fails is tried again.
#[test]
fn save_points_go_on_after_a_failure() {
    let folder = Folder::new();
    let server = folder.start_with(1, |settings| settings.save_points = vec![(1, 1)]);
    let mut client = Client::connect(&server);
    client.call("SET k v").ok();
    folder.vanish();
    until("it fails", || {
        field(&mut client, "rdb_last_bgsave_status") == "err"
    });
    assert_refused(&client.call("SET k w"));
    folder.appear();
    until("it is tried again", || {
        field(&mut client, "rdb_last_bgsave_status") == "ok"
    });
    client.call("SET k w").ok();
}

fn magic(folder: &Folder) -> String {
    let bytes = fs::read(folder.file()).unwrap();
    String::from_utf8_lossy(&bytes[..9]).into_owned()
}

#[test]
fn the_format_is_the_lowest_that_holds_the_data_or_the_one_that_is_set() {
    let folder = Folder::new();
    let server = folder.start(2);
    let mut client = Client::connect(&server);
    client.call("HSET h f v").integer();
    client.call("XADD s 1-1 f v");
    client.call("SADD e a b").integer();
    let plain = digest(&mut client);
    client.call("SAVE").ok();
    assert_eq!(magic(&folder), "REDIS0011");
    let reloads_as = |client: &mut Client, version: &str, start: &str, expected: &str| {
        set(client, "rdb-format-version", version);
        client.call("SAVE").ok();
        assert_eq!(magic(&folder), start);
        client.call("DEBUG RELOAD NOSAVE").ok();
        assert_eq!(digest(client), expected, "{version}");
    };
    for (version, start) in [
        ("9", "REDIS0009"),
        ("10", "REDIS0010"),
        ("11", "REDIS0011"),
        ("12", "REDIS0012"),
        ("80", "VALKEY080"),
        ("auto", "REDIS0011"),
    ] {
        reloads_as(&mut client, version, start, &plain);
    }
    // Fields that expire need 12 or Valkey's.
    client.call("HPEXPIREAT h 9999999999000 FIELDS 1 f");
    let timed = digest(&mut client);
    let expiry = client.call("HPEXPIRETIME h FIELDS 1 f");
    for (version, start) in [("auto", "REDIS0012"), ("80", "VALKEY080")] {
        reloads_as(&mut client, version, start, &timed);
        assert_eq!(client.call("HPEXPIRETIME h FIELDS 1 f"), expiry);
    }
    let before = fs::read(folder.file()).unwrap();
    for version in ["9", "10", "11"] {
        set(&mut client, "rdb-format-version", version);
        assert_eq!(client.call("SAVE").error(), "ERR", "{version}");
        assert_eq!(field(&mut client, "rdb_last_bgsave_status"), "err");
        assert_eq!(folder.names(), ["dump.rdb"]);
        assert_eq!(
            fs::read(folder.file()).unwrap(),
            before,
            "the old file stays"
        );
        // Without save points nothing is refused.
        client.call("SET k v").ok();
    }
    // Vector sets have a form in 12 alone.
    client.call("FLUSHALL").ok();
    client.call("VADD v VALUES 2 1 2 e");
    let vectors = digest(&mut client);
    reloads_as(&mut client, "auto", "REDIS0012", &vectors);
    assert_eq!(field(&mut client, "rdb_last_bgsave_status"), "ok");
    set(&mut client, "rdb-format-version", "80");
    assert_eq!(client.call("SAVE").error(), "ERR");
    assert!(
        client
            .call("CONFIG SET rdb-format-version 13")
            .error()
            .contains("argument(s) must be one of the following: auto, 9, 10, 11, 12, 80")
    );
}

/// The steps are seen on the disk alone; the file is the same.
#[test]
fn files_flushed_in_steps_are_like_others() {
    let folder = Folder::new();
    let server = folder.start(2);
    let mut client = Client::connect(&server);
    set(&mut client, "rdbcompression", "no");
    client.call("DEBUG POPULATE 1000 key 10000").ok();
    let expected = digest(&mut client);
    for value in ["no", "yes"] {
        set(&mut client, "rdb-save-incremental-fsync", value);
        client.call("SAVE").ok();
        assert!(fs::metadata(folder.file()).unwrap().len() > 8 << 20);
        client.call("DEBUG RELOAD NOSAVE").ok();
        assert_eq!(digest(&mut client), expected);
    }
}

/// Waits until a server has ended that this client asked to end.
#[track_caller]
fn ends(server: Server, client: &mut Client) {
    assert!(client.try_read().is_err(), "there is no reply");
    server.join();
}

#[test]
fn shutdown_saves_if_it_is_told_or_there_are_save_points() {
    for (has_points, call, saves) in [
        (false, "SHUTDOWN", false),
        (true, "SHUTDOWN", true),
        (false, "SHUTDOWN SAVE", true),
        (true, "SHUTDOWN NOSAVE", false),
        (true, "SHUTDOWN NOW FORCE", true),
    ] {
        let folder = Folder::new();
        let points = if has_points {
            vec![(1 << 30, 1)]
        } else {
            vec![]
        };
        let server = folder.start_with(2, |settings| settings.save_points = points);
        let mut client = Client::connect(&server);
        client.call("SET k v").ok();
        client.send(call);
        ends(server, &mut client);
        let expected: &[&str] = if saves { &["dump.rdb"] } else { &[] };
        assert_eq!(folder.names(), expected, "{call}, {has_points}");
        if saves {
            let server = folder.start(1);
            assert_eq!(text(&Client::connect(&server).call("GET k")), "v");
        }
    }
}

#[test]
fn a_server_that_cannot_save_does_not_end() {
    let folder = Folder::new();
    let server = folder.start_with(2, |settings| settings.save_points = vec![(1 << 30, 1)]);
    let mut client = Client::connect(&server);
    client.call("SET k v").ok();
    folder.vanish();
    for call in ["SHUTDOWN", "SHUTDOWN SAVE", "SHUTDOWN"] {
        assert_eq!(client.call(call).error(), NOT_ENDED, "{call}");
        assert_eq!(text(&client.call("GET k")), "v");
    }
    assert_eq!(field(&mut client, "rdb_last_bgsave_status"), "err");
    set(&mut client, "stop-writes-on-bgsave-error", "no");
    client.call("SET k w").ok();
    client.send("SHUTDOWN FORCE");
    ends(server, &mut client);
}

#[test]
fn a_shutdown_that_saves_can_be_called_off() {
    let folder = Folder::new();
    let server = folder.start(2);
    let [mut ends_it, mut client, mut writes] = [(); 3].map(|()| Client::connect(&server));
    let none = "ERR No shutdown in progress.";
    assert_eq!(client.call("SHUTDOWN ABORT").error(), none);
    for call in ["SHUTDOWN SAVE NOSAVE", "SHUTDOWN ABORT NOW", "SHUTDOWN FOO"] {
        assert_eq!(client.call(call).error(), "ERR syntax error", "{call}");
    }
    client.call("SET k v").ok();
    set(&mut client, "rdb-key-save-delay", FOREVER);
    for _ in 0..2 {
        ends_it.send("SHUTDOWN SAVE");
        until("it saves", || is_saving(&mut client));
        // What is written now would not be in the file: it waits. Who reads goes on.
        let blocked =
            |client: &mut Client| field(client, "blocked_clients").parse::<i64>().unwrap();
        let before = blocked(&mut client);
        writes.send("INCR n");
        until("the write waits", || {
            blocked(&mut client) > before || client.call("GET n") != Value::Nil
        });
        assert_eq!(client.call("EXISTS n").integer(), 0);
        client.call("SHUTDOWN ABORT").ok();
        assert_eq!(ends_it.read().error(), NOT_ENDED);
        assert_eq!(writes.read().integer(), 1);
        client.call("DEL n").integer();
        assert_eq!(client.call("SHUTDOWN ABORT").error(), none);
        until("it has ended", || !is_saving(&mut client));
        assert_eq!(folder.names(), [""; 0]);
    }
    // A snapshot that is under way is not waited for.
    assert_eq!(text(&client.call("BGSAVE")), "Background saving started");
    set(&mut client, "rdb-key-save-delay", "0");
    ends_it.send("SHUTDOWN SAVE");
    ends(server, &mut ends_it);
    assert_eq!(folder.names(), ["dump.rdb"]);
}

/// Takes a snapshot, and calls `meanwhile` while the walk rests in the middle: more than may wait for the writer is there,
/// and that is slow. Afterwards the file has what was there at the cut.
fn check_cut(what: &str, meanwhile: impl Fn(&mut Client)) {
    let mut delay_us = 400;
    loop {
        let folder = Folder::new();
        let server = folder.start_with(2, |settings| {
            settings.engine.limits.payload_compressed = false;
        });
        let mut client = Client::connect(&server);
        set(&mut client, "maxmemory-policy", "allkeys-random");
        client.call("SELECT 1").ok();
        client.call("SET one 1").ok();
        client.call("SELECT 0").ok();
        client.call("SET small 1").ok();
        client.call("SAVE").ok();
        client.call("DEBUG POPULATE 3000 key 14000").ok();
        let expected = digest(&mut client);
        set(&mut client, "rdb-key-save-delay", &delay_us.to_string());
        assert_eq!(text(&client.call("BGSAVE")), "Background saving started");
        meanwhile(&mut client);
        let is_amid = field(&mut client, "current_save_keys_processed") != "3002";
        if !is_amid || !is_saving(&mut client) {
            // This machine was busy elsewhere: the snapshot was ahead of the calls.
            delay_us *= 2;
            assert!(
                delay_us < 1_000_000,
                "{what}: the snapshot ends before the calls"
            );
            continue;
        }
        assert_ne!(digest(&mut client), expected, "{what}");
        until("it has ended", || !is_saving(&mut client));
        assert_eq!(field(&mut client, "rdb_last_bgsave_status"), "ok");
        assert_eq!(folder.names(), ["dump.rdb"]);
        set(&mut client, "maxmemory", "0");
        set(&mut client, "rdb-key-save-delay", "0");
        client.call("DEBUG RELOAD NOSAVE").ok();
        assert_eq!(digest(&mut client), expected, "{what}");
        // The next snapshot is as good as any.
        client.call("SET small 2").ok();
        let expected = digest(&mut client);
        client.call("DEBUG RELOAD").ok();
        assert_eq!(digest(&mut client), expected, "{what}");
        return;
    }
}

#[test]
fn a_snapshot_has_what_is_flushed_meanwhile() {
    for calls in [
        &["FLUSHDB"][..],
        &["FLUSHDB ASYNC", "SET key:1 other", "SELECT 3", "SET k v"],
        &["FLUSHDB SYNC", "DEBUG POPULATE 100"],
    ] {
        check_cut(&calls.join("; "), |client| {
            calls.iter().for_each(|call| client.call(call).ok());
        });
    }
}

/// Entries that commands save early are in a file, beyond those that may wait in memory.
#[test]
fn memory_holds_little_of_what_changes_during_a_snapshot() {
    const KEYS: usize = 8_000;
    let mut delay_us = 500;
    loop {
        let folder = Folder::new();
        let server = folder.start_with(2, |settings| {
            settings.engine.limits.payload_compressed = false;
        });
        let mut client = Client::connect(&server);
        // Nearly three times as much.
        client
            .call(&format!("DEBUG POPULATE {KEYS} key 14000"))
            .ok();
        let expected = digest(&mut client);
        set(&mut client, "rdb-key-save-delay", &delay_us.to_string());
        assert_eq!(text(&client.call("BGSAVE")), "Background saving started");
        for number in 0..KEYS {
            client.call(&format!("SET key:{number} x")).ok();
        }
        let waiting = |client: &mut Client| -> u64 {
            let bytes = field(client, "current_cow_size");
            bytes.parse().unwrap()
        };
        until("all but a little is in a file", || {
            waiting(&mut client) <= SPOOL_BYTES_MIN || !is_saving(&mut client)
        });
        let processed: usize = field(&mut client, "current_save_keys_processed")
            .parse()
            .unwrap();
        // The last few are in the hands of workers.
        let is_amid = processed + 50 > KEYS;
        if !is_amid || !is_saving(&mut client) || waiting(&mut client) < SPOOL_BYTES_MIN / 2 {
            // This machine was busy elsewhere: the writer was ahead of the calls.
            delay_us *= 2;
            assert!(delay_us < 100_000, "what waits stays in memory");
            continue;
        }
        until("it has ended", || !is_saving(&mut client));
        assert_eq!(field(&mut client, "rdb_last_bgsave_status"), "ok");
        assert_eq!(folder.names(), ["dump.rdb"]);
        client.call("DEBUG RELOAD NOSAVE").ok();
        assert_eq!(digest(&mut client), expected);
        return;
    }
}

#[test]
fn flushall_ends_a_snapshot_and_saves_that_nothing_is_there() {
    for has_points in [false, true] {
        let folder = Folder::new();
        let server = folder.start(2);
        let mut client = Client::connect(&server);
        client.call("SET k v").ok();
        client.call("SAVE").ok();
        let before = fs::read(folder.file()).unwrap();
        set(&mut client, "rdb-key-save-delay", FOREVER);
        client.call("BGSAVE");
        assert!(is_saving(&mut client));
        set(&mut client, "rdb-key-save-delay", "0");
        set(
            &mut client,
            "save",
            if has_points { "1073741824 1" } else { "" },
        );
        client.call("FLUSHALL").ok();
        until("it has ended", || !is_saving(&mut client));
        assert_eq!(field(&mut client, "rdb_last_bgsave_status"), "ok");
        let saves = if has_points { "2" } else { "1" };
        assert_eq!(field(&mut client, "rdb_saves"), saves);
        let is_there = fs::read(folder.file()).unwrap() == before;
        assert_eq!(is_there, !has_points, "the file of before");
        client.call("DEBUG RELOAD NOSAVE").ok();
        assert_eq!(client.call("EXISTS k").integer(), i64::from(is_there));
    }
}

/// In Redis FLUSHALL has saved before it answers, so it is in nobody's way.
#[test]
fn a_client_saves_right_after_it_has_flushed() {
    let folder = Folder::new();
    let server = folder.start_with(2, |settings| settings.save_points = vec![(1 << 30, 1)]);
    let mut client = Client::connect(&server);
    for _ in 0..20 {
        let calls = ["SET k v", "FLUSHALL", "SET after v", "SAVE"];
        calls.iter().for_each(|call| client.send(call));
        calls.iter().for_each(|_| client.read().ok());
        client.call("DEBUG RELOAD NOSAVE").ok();
        assert_eq!(client.call("EXISTS after").integer(), 1);
        client.send("FLUSHALL");
        client.send("BGSAVE");
        client.read().ok();
        let started = Value::Simple("Background saving started".into());
        assert_eq!(client.read(), started);
        until("it has ended", || !is_saving(&mut client));
    }
}

#[test]
fn a_snapshot_has_databases_under_the_numbers_that_they_had() {
    for calls in [
        &["SWAPDB 0 1", "SET key:1 other", "SWAPDB 1 2", "SWAPDB 2 0"][..],
        &["SWAPDB 0 1", "FLUSHDB", "SELECT 1", "FLUSHDB"],
    ] {
        check_cut(&calls.join("; "), |client| {
            calls.iter().for_each(|call| client.call(call).ok());
        });
    }
}

#[test]
fn a_snapshot_has_what_is_evicted_meanwhile() {
    check_cut("eviction", |client| {
        set(client, "maxmemory", "20000000");
        client.call("SET other 1").ok();
        let evicted = |client: &mut Client| field(client, "evicted_keys").parse::<u64>().unwrap();
        until("keys go", || evicted(client) > 1000);
    });
}

#[test]
fn a_snapshot_has_what_is_changed_and_expires_meanwhile() {
    // What has expired is left out when it is loaded, so the times were never theirs at the cut.
    check_cut("expiry", |client| {
        let script = b"for _, key in ipairs(redis.call('keys', 'key*')) do redis.call('pexpire', key, 1) end";
        client.call_args(&[b"EVAL", script, b"0"]);
        until("they expire", || client.call("DBSIZE").integer() == 1);
    });
    check_cut("appending", |client| {
        let script =
            b"for _, key in ipairs(redis.call('keys', '*')) do redis.call('append', key, 'x') end";
        client.call_args(&[b"EVAL", script, b"0"]);
    });
    check_cut("renaming", |client| {
        let script = b"for i = 0, 2998 do redis.call('rename', 'key:' .. i, 'key:' .. i + 1) end";
        client.call_args(&[b"EVAL", script, b"0"]);
    });
}

#[test]
fn a_snapshot_has_what_is_replaced_by_a_file_meanwhile() {
    check_cut("loading", |client| {
        client.call("DEBUG RELOAD NOSAVE").ok();
        assert_eq!(client.call("DBSIZE").integer(), 1);
    });
}
