//! The journal from outside: what a unit's record says, that records replayed elsewhere give the same data, and
//! replies that wait for a reader.

use std::{
    collections::{BTreeMap, BTreeSet, VecDeque},
    env, io,
    sync::mpsc,
    thread,
    time::{Duration, Instant},
};

use crate::client::{Client, Value, encode, request, settings, start, until};
use fastrand::Rng;
use redline_commands::{Ctx, handler};
use redline_keyspace::{
    Keyspace, Local, Unit,
    journal::{Command, Record, RecordReader},
    lock::{StripeSet, Wake, WakeToken},
};
use redline_resp::{ArgsBuf, Proto, Reply, ReplyBuffer};
use redline_server::{Permission, Server, Settings};

pub const DATABASES: u32 = 4;

/// A reader of the stream and how far it has got; records as text: their commands, each after its database.
struct Log<'a> {
    space: &'a Keyspace,
    records: mpsc::Receiver<Record>,
    last: u64,
}

/// Attaches a reader of records; returns them and the number after which they begin.
pub fn attach(server: &Server) -> (mpsc::Receiver<Record>, u64) {
    let (give, records) = mpsc::channel();
    // A reader that has ended hears nothing more.
    let stream = RecordReader::new(move |record| drop(give.send(record)));
    let last = server.attach_stream(Box::new(stream));
    (records, last)
}

impl Log<'_> {
    fn attach(server: &Server) -> Log<'_> {
        let (records, last) = attach(server);
        Log {
            space: server.keyspace(),
            records,
            last,
        }
    }

    /// Everything since the last call. Whatever has been answered is in it.
    fn records(&mut self) -> Vec<Vec<String>> {
        let mut records = Vec::new();
        until("all that was numbered has come", || {
            records.extend(self.records.try_iter());
            let last = |record: &Record| record.number;
            records.last().map_or(self.last, last) >= self.space.journal().last()
        });
        let mut texts = Vec::new();
        for record in records {
            self.last += 1;
            assert_eq!(record.number, self.last, "a gap, or another order");
            let text = |Command { db, words }| {
                let words: Vec<Vec<u8>> = words;
                let words = words.iter().map(|word| String::from_utf8_lossy(word));
                format!("{db} {}", words.collect::<Vec<_>>().join(" "))
            };
            texts.push(record.commands.into_iter().map(text).collect());
        }
        texts
    }

    /// The effect of one request; an array of no, one or several commands.
    #[track_caller]
    fn effect(&mut self, client: &mut Client, line: &str) -> Vec<String> {
        client.call(line);
        let mut records = self.records();
        assert!(records.len() <= 1, "{line} made {records:?}");
        records.pop().unwrap_or_default()
    }
}

#[test]
fn a_record_says_what_came_of_a_command() {
    let server = start(settings(2));
    let mut client = Client::connect(&server);
    let mut log = Log::attach(&server);
    for (line, expected) in [
        ("SET k v", "0 SET k v"),
        ("GET k", ""),
        ("SET k w NX", ""),
        ("INCR k", ""),
        ("APPEND k x", "0 APPEND k x"),
        ("SET k v EXAT 99999999999", "0 SET k v PXAT 99999999999000"),
        ("SET k w KEEPTTL", "0 SET k w KEEPTTL"),
        ("GETEX k PERSIST", "0 PERSIST k"),
        (
            "GETEX k PXAT 99999999999000",
            "0 PEXPIREAT k 99999999999000",
        ),
        ("EXPIREAT k 99999999998", "0 PEXPIREAT k 99999999998000"),
        ("EXPIRE k 10 GT", ""),
        ("GETSET k 1", "0 SET k 1"),
        ("EXPIRE k -1", "0 DEL k"),
        ("DEL k", ""),
        ("INCRBYFLOAT f 1.5", "0 SET f 1.5 KEEPTTL"),
        ("HINCRBYFLOAT h x 2.5", "0 HSET h x 2.5"),
        (
            "HEXPIREAT h 9999999999 NX FIELDS 2 x none",
            "0 HPEXPIREAT h 9999999999000 FIELDS 1 x",
        ),
        ("HINCRBYFLOAT h y 1", "0 HSETEX h KEEPTTL FIELDS 1 y 1"),
        ("HDEL h y", "0 HDEL h y"),
        (
            "HGETEX h PXAT 9999999998000 FIELDS 1 x",
            "0 HPEXPIREAT h 9999999998000 FIELDS 1 x",
        ),
        ("HGETEX h PERSIST FIELDS 1 x", "0 HPERSIST h FIELDS 1 x"),
        (
            "HSETEX h FNX EXAT 9999999999 FIELDS 2 y 1 z 2",
            "0 HSETEX h PXAT 9999999999000 FIELDS 2 y 1 z 2",
        ),
        ("HSETEX h FNX FIELDS 1 y 1", ""),
        (
            "HSETEX h KEEPTTL FIELDS 1 y 3",
            "0 HSETEX h KEEPTTL FIELDS 1 y 3",
        ),
        ("HEXPIREAT h 1 FIELDS 1 z", "0 HDEL h z"),
        ("HSET h a 1 b 2", "0 HSET h a 1 b 2"),
        ("HGETEX h EXAT 1 FIELDS 3 a none b", "0 HDEL h a b"),
        ("HGETDEL h FIELDS 2 y none", "0 HDEL h y none"),
        ("GETDEL f", "0 DEL f"),
        ("SET k v IFEQ w", ""),
        ("SET k v NX GET", "0 SET k v"),
        ("SET k w IFEQ v", "0 SET k w"),
        ("DELEX k IFEQ v", ""),
        ("DELEX k IFEQ w", "0 DEL k"),
        (
            "MSETEX 2 k v j w EXAT 99999999999",
            "0 SET k v PXAT 99999999999000; 0 SET j w PXAT 99999999999000",
        ),
        ("DELIFEQ j w", "0 DEL j"),
        ("BITFIELD b INCRBY u8 0 3", "0 BITFIELD b INCRBY u8 0 3"),
        ("BITFIELD b GET u8 0", ""),
        ("PFADD p a b", "0 PFADD p a b"),
        ("PFMERGE q p", "0 PFMERGE q p"),
        ("GEOADD g CH 13 38 a", "0 ZADD g 3479065152021743 a"),
        ("GEOADD g NX 13 38 a", ""),
        ("VADD v VALUES 1 2 e M 8", "0 VADD v VALUES 1 2 e M 8"),
        (
            "VADD v VALUES 1 2 cas cas SETATTR CAS M 8",
            "0 VADD v VALUES 1 2 cas SETATTR CAS M 8",
        ),
        (
            "GEOSEARCHSTORE t g FROMMEMBER a BYRADIUS 1 km",
            "0 GEOSEARCHSTORE t g FROMMEMBER a BYRADIUS 1 km",
        ),
        ("SADD s a", "0 SADD s a"),
        ("SPOP s", "0 DEL s"),
        ("RPUSH l a b c", "0 RPUSH l a b c"),
        ("LMPOP 2 none l RIGHT COUNT 2", "0 RPOP l 2"),
        ("ZADD z 1 a 2 b", "0 ZADD z 1 a 2 b"),
        ("ZMPOP 1 z MAX COUNT 9", "0 ZPOPMAX z 2"),
        ("RPUSH l c d e f", "0 RPUSH l c d e f"),
        ("LMPOP 1 l LEFT COUNT 9", "0 LPOP l 5"),
        ("RPUSH l c d e f", "0 RPUSH l c d e f"),
        ("BLPOP none l 0", "0 LPOP l"),
        ("BLMPOP 0 2 none l RIGHT", "0 RPOP l 1"),
        ("BRPOPLPUSH l l 0", "0 RPOPLPUSH l l"),
        ("BLMOVE l m LEFT RIGHT 0", "0 LMOVE l m LEFT RIGHT"),
        ("ZADD z 1 a 2 b", "0 ZADD z 1 a 2 b"),
        ("BZPOPMIN z 0", "0 ZPOPMIN z"),
        ("BZMPOP 0 1 z MIN", "0 ZPOPMIN z 1"),
        ("BLPOP none 0.001", ""),
        ("XADD x 5-1 f v", "0 XADD x 5-1 f v"),
        ("XADD x MAXLEN 1 5-2 f v", "0 XADD x MAXLEN = 1 5-2 f v"),
        ("XGROUP CREATE x g 0", "0 XGROUP CREATE x g 0"),
        (
            "XREADGROUP GROUP g a NOACK STREAMS x >",
            "0 XGROUP CREATECONSUMER x g a; 0 XGROUP SETID x g 5-2 ENTRIESREAD 2",
        ),
        ("XREADGROUP GROUP g a STREAMS x >", ""),
        ("XADD y 1-1 f v", "0 XADD y 1-1 f v"),
        (
            "XADD y DELREF MINID 2 2-1 f v",
            "0 XADD y MAXLEN = 1 DELREF 2-1 f v",
        ),
        ("XADD y 3-1 f v", "0 XADD y 3-1 f v"),
        ("XTRIM y MAXLEN ~ 0 DELREF", ""),
        ("XTRIM y MAXLEN 1 DELREF", "0 XTRIM y MAXLEN = 1 DELREF"),
        ("XADD y 4-1 f v", "0 XADD y 4-1 f v"),
        ("XTRIM y MINID 4 ACKED", "0 XTRIM y MINID 4 ACKED"),
        ("RPUSH n 3 1 2", "0 RPUSH n 3 1 2"),
        ("SORT n LIMIT 0 2 STORE s", "0 SORT n LIMIT 0 2 STORE s"),
        ("FLUSHALL", "0 FLUSHALL"),
        ("FLUSHALL ASYNC", "0 FLUSHALL ASYNC"),
        ("FLUSHDB", "0 FLUSHDB"),
        ("PUBLISH channel word", "0 PUBLISH channel word"),
    ] {
        assert_eq!(log.effect(&mut client, line).join("; "), expected, "{line}");
    }
    let now_ms = |client: &mut Client| client.call("TIME").array()[0].integer() * 1000;
    let before = now_ms(&mut client);
    for (line, start) in [
        ("SETEX k 100 v", "0 SET k v PXAT "),
        ("PSETEX k 100000 v", "0 SET k v PXAT "),
        ("SET k v EX 100", "0 SET k v PXAT "),
        ("EXPIRE k 100", "0 PEXPIREAT k "),
        ("GETEX k EX 100", "0 PEXPIREAT k "),
        ("MSETEX 1 k v PX 100000", "0 SET k v PXAT "),
    ] {
        let effect = log.effect(&mut client, line).join("; ");
        let time = effect.strip_prefix(start);
        let at_ms: i64 = time.unwrap_or_else(|| panic!("{effect}")).parse().unwrap();
        let span = before + 100_000..=now_ms(&mut client) + 101_000;
        assert!(span.contains(&at_ms), "{line}: {effect}");
    }
    client.call("SADD s a b c");
    log.records();
    let Value::Bulk(popped) = client.call("SPOP s") else {
        panic!("a member was there");
    };
    let popped = String::from_utf8(popped).unwrap();
    assert_eq!(log.records(), [[format!("0 SREM s {popped}")]]);
    let Value::Bulk(id) = client.call("XADD x * f v") else {
        panic!("an id is given");
    };
    let id = String::from_utf8(id).unwrap();
    assert_eq!(log.records(), [[format!("0 XADD x {id} f v")]]);
}

/// Entries given to a consumer, by whatever command, are journalled as claimed by it, with the time and the count.
#[test]
fn deliveries_of_streams_are_journalled_as_claims() {
    let server = start(settings(1));
    let mut client = Client::connect(&server);
    for line in ["XADD x 1-0 f v", "XADD x 2-0 f v", "XGROUP CREATE x g 0"] {
        client.call(line);
    }
    let mut log = Log::attach(&server);
    // Without the times, which are the present.
    let mut effect = |line: &str| -> Vec<String> {
        let mut commands = log.effect(&mut client, line);
        for command in &mut commands {
            let mut words: Vec<&str> = command.split(' ').collect();
            if let Some(at) = words.iter().position(|word| *word == "TIME") {
                assert!(words[at + 1].parse::<i64>().unwrap() > 1_700_000_000_000);
                words.drain(at..at + 2);
                *command = words.join(" ");
            }
        }
        commands
    };
    assert_eq!(
        effect("XREADGROUP GROUP g a COUNT 1 STREAMS x >"),
        [
            "0 XCLAIM x g a 0 1-0 RETRYCOUNT 1 FORCE JUSTID LASTID 1-0",
            "0 XGROUP SETID x g 1-0 ENTRIESREAD 1"
        ]
    );
    assert_eq!(
        effect("XREADGROUP GROUP g a STREAMS x >"),
        [
            "0 XCLAIM x g a 0 2-0 RETRYCOUNT 1 FORCE JUSTID LASTID 2-0",
            "0 XGROUP SETID x g 2-0 ENTRIESREAD 2"
        ]
    );
    assert_eq!(
        effect("XCLAIM x g b 0 1-0 9-9"),
        ["0 XCLAIM x g b 0 1-0 RETRYCOUNT 2 FORCE JUSTID LASTID 2-0"]
    );
    assert_eq!(
        effect("XCLAIM x g b 0 9-9 LASTID 3-0"),
        ["0 XGROUP SETID x g 3-0 ENTRIESREAD 2"]
    );
    assert_eq!(effect("XDEL x 2-0"), ["0 XDEL x 2-0"]);
    assert_eq!(
        effect("XAUTOCLAIM x g a 0 0"),
        [
            "0 XACK x g 2-0",
            "0 XCLAIM x g a 0 1-0 RETRYCOUNT 3 FORCE JUSTID LASTID 3-0"
        ]
    );
    assert_eq!(effect("XACKDEL x g IDS 1 1-0"), ["0 XACKDEL x g IDS 1 1-0"]);
    // Those that were delivered at once are told at once.
    for line in ["XADD x 4-0 f v", "XADD x 5-0 f v"] {
        effect(line);
    }
    assert_eq!(
        effect("XREADGROUP GROUP g a STREAMS x >")[0],
        "0 XCLAIM x g a 0 4-0 5-0 RETRYCOUNT 1 FORCE JUSTID LASTID 5-0"
    );
    effect("XCLAIM x g a 0 5-0 RETRYCOUNT 7");
    assert_eq!(
        effect("XAUTOCLAIM x g c 0 0"),
        [
            "0 XCLAIM x g c 0 4-0 RETRYCOUNT 2 FORCE JUSTID LASTID 5-0",
            "0 XCLAIM x g c 0 5-0 RETRYCOUNT 8 FORCE JUSTID LASTID 5-0"
        ]
    );
}

#[test]
fn fields_that_expire_are_a_deletion_of_fields() {
    let server = start(settings(1));
    let mut client = Client::connect(&server);
    let mut log = Log::attach(&server);
    client.call("HSET h a 1 b 2");
    log.records();
    client.call("HPEXPIRE h 1 FIELDS 1 a");
    let mut records = Vec::new();
    until("active expiry has come", || {
        records.extend(log.records());
        records.len() > 1
    });
    assert!(records[0][0].starts_with("0 HPEXPIREAT h "));
    assert_eq!(records[1..], [["0 HDEL h a"]]);
}

#[test]
fn a_unit_of_several_commands_is_one_record() {
    let server = start(settings(2));
    let mut client = Client::connect(&server);
    let mut log = Log::attach(&server);
    for line in ["MULTI", "SET a 1", "GET a", "SELECT 1", "INCRBYFLOAT b 2"] {
        assert_eq!(log.effect(&mut client, line), [""; 0], "{line}");
    }
    assert_eq!(
        log.effect(&mut client, "EXEC"),
        ["0 SET a 1", "1 SET b 2 KEEPTTL"]
    );
    client.call("SELECT 0").ok();
    let script =
        b"redis.call('set', KEYS[1], 1) redis.call('incr', KEYS[1]) return redis.error_reply('no')";
    client.call_args(&[b"EVAL", script, b"1", b"c"]).error();
    assert_eq!(log.records(), [["0 set c 1", "0 incr c"]]);
    client.call_args(&[b"EVAL", b"return redis.call('get', 'c')", b"0"]);
    assert_eq!(log.records(), [[""; 0]; 0]);
}

/// Elements that a waiting client takes belong to the unit that serves it, behind what that has written.
#[test]
fn a_served_waiter_is_in_the_record_of_who_served_it() {
    let server = start(settings(2));
    let (mut writer, mut first, mut second) = (
        Client::connect(&server),
        Client::connect(&server),
        Client::connect(&server),
    );
    let waits = |writer: &mut Client, count: usize| {
        until("they wait", || {
            let Value::Bulk(info) = writer.call("INFO clients") else {
                panic!("INFO answers")
            };
            String::from_utf8_lossy(&info).contains(&format!("blocked_clients:{count}\r\n"))
        });
    };
    let mut log = Log::attach(&server);
    first.send("BLMOVE a b LEFT LEFT 0");
    waits(&mut writer, 1);
    second.send("BLPOP b 0");
    waits(&mut writer, 2);
    assert_eq!(
        log.effect(&mut writer, "RPUSH a x"),
        ["0 RPUSH a x", "0 LMOVE a b LEFT LEFT", "0 LPOP b"]
    );
    first.read();
    second.read();
    first.send("BZPOPMAX z 0");
    waits(&mut writer, 1);
    for line in ["MULTI", "ZADD z 1 a", "INCR n"] {
        writer.call(line);
    }
    assert_eq!(
        log.effect(&mut writer, "EXEC"),
        ["0 ZADD z 1 a", "0 INCR n", "0 ZPOPMAX z"]
    );
    first.read();
    first.send("BLMPOP 0 1 a LEFT COUNT 5");
    waits(&mut writer, 1);
    writer.call_args(&[
        b"EVAL",
        b"redis.call('rpush', 'a', 1) redis.call('rpush', 'a', 2)",
        b"0",
    ]);
    assert_eq!(
        log.records(),
        [["0 rpush a 1", "0 rpush a 2", "0 LPOP a 2"]]
    );
}

/// Data that has expired by the time that a unit serves goes in its record, behind what the unit has written, whatever meets
/// it: the call that was to be served, or the look at what the next key holds.
#[test]
fn what_expired_before_it_could_be_served_is_deleted_in_the_record_of_its_unit() {
    let server = start(Settings {
        enable_debug_command: Permission::Yes,
        ..settings(2)
    });
    let [mut writer, mut first, mut second] = [(); 3].map(|()| Client::connect(&server));
    let mut log = Log::attach(&server);
    for (waiter, key) in [(&mut first, "a"), (&mut second, "b")] {
        let before = server.keyspace().waited_keys().0;
        waiter.send(&format!("BLPOP {key} 0"));
        until("it waits", || server.keyspace().waited_keys().0 > before);
    }
    let unit = |writer: &mut Client, log: &mut Log<'_>, calls: &[&str]| {
        writer.call("MULTI").ok();
        for call in calls.iter().chain(&["PEXPIRE b 1", "DEBUG SLEEP 0.005"]) {
            writer.call(call);
        }
        let mut record = log.effect(writer, "EXEC");
        record.retain(|call| !call.starts_with("0 PEXPIREAT b "));
        record
    };
    assert_eq!(
        unit(&mut writer, &mut log, &["RPUSH b x"]),
        ["0 RPUSH b x", "0 DEL b"]
    );
    assert_eq!(
        unit(&mut writer, &mut log, &["RPUSH a x", "RPUSH b x"]),
        ["0 RPUSH a x", "0 RPUSH b x", "0 LPOP a", "0 DEL b"]
    );
    first.read().array();
    // Nothing is left of it for units that do not hold its stripe.
    for other in ["c", "d"] {
        assert_eq!(writer.call(&format!("GET {other}")), Value::Nil);
    }
    assert_eq!(writer.call("EXISTS b").integer(), 0);
    assert_eq!(log.records(), [[""; 0]; 0], "it has gone already");
    assert_eq!(
        log.effect(&mut writer, "RPUSH b y"),
        ["0 RPUSH b y", "0 LPOP b"]
    );
    second.read().array();
}

/// A key that has expired comes with a swap to a database where a client waits for it. Its deletion must not be in the record
/// in front of the swap, where it is another key's.
#[test]
fn a_stale_key_that_is_swapped_to_a_waiting_client_is_not_deleted_before_the_swap() {
    let server = start(Settings {
        enable_debug_command: Permission::Yes,
        ..settings(2)
    });
    let [mut client, mut list, mut group] = [(); 3].map(|()| Client::connect(&server));
    client.call("DEBUG SET-ACTIVE-EXPIRE 0").ok();
    client.call("XGROUP CREATE x g 0 MKSTREAM").ok();
    for (waiter, call) in [
        (&mut list, "BLPOP l 0"),
        (&mut group, "XREADGROUP GROUP g c BLOCK 0 STREAMS x >"),
    ] {
        let before = server.keyspace().waited_keys().0;
        waiter.send(call);
        until("it waits", || server.keyspace().waited_keys().0 > before);
    }
    // Nothing that the client wants: it goes on waiting.
    client.call("SET l stays").ok();
    client.call("SELECT 1").ok();
    for line in ["RPUSH l stale", "PEXPIRE l 1", "SET x stale PX 1"] {
        client.call(line);
    }
    client.call("DEBUG SLEEP 0.01").ok();
    let mut log = Log::attach(&server);
    assert_eq!(
        log.effect(&mut client, "SWAPDB 0 1"),
        ["1 SWAPDB 0 1", "0 DEL x"]
    );
    group.read().error();
    assert_eq!(client.call("GET l"), Value::Bulk(b"stays".to_vec()));
    client.call("SELECT 0").ok();
    assert_eq!(log.effect(&mut client, "EXISTS l"), ["0 DEL l"]);
    assert_eq!(
        log.effect(&mut client, "RPUSH l fresh"),
        ["0 RPUSH l fresh", "0 LPOP l"]
    );
    list.read().array();
}

/// The reply of a wait is held back for the record in which it ended; replies in front of a wait need not wait for it.
#[test]
fn a_gate_holds_back_what_a_waiter_reads() {
    let server = start(settings(2));
    let space = server.keyspace();
    let (mut waiter, mut writer) = (Client::connect(&server), Client::connect(&server));
    let mut log = Log::attach(&server);
    space.journal().gate.close(0);
    waiter.write(&[request("INCR n"), request("BLPOP l 0")].concat());
    until("the first is done", || log.records().len() == 1);
    assert!(is_quiet(&waiter));
    server.release_replies(1);
    assert_eq!(waiter.read(), Value::Integer(1));
    until("the second waits", || space.anybody_waits());
    writer.send("RPUSH l x");
    until("it is served", || !log.records().is_empty());
    assert!(is_quiet(&waiter) && is_quiet(&writer));
    server.release_replies(2);
    assert_eq!(waiter.read().array().len(), 2);
    assert_eq!(writer.read(), Value::Integer(1));
    waiter.send("INCR n");
    until("it goes on", || !log.records().is_empty());
    assert!(is_quiet(&waiter));
    server.release_all_replies();
    assert_eq!(waiter.read(), Value::Integer(2));
}

/// A script past its threshold turns its worker's loop: what others do then is not the script's.
#[test]
fn units_in_the_middle_of_a_busy_script_have_records_of_their_own() {
    let server = start(settings(1).with(|settings| settings.busy_reply_threshold_ms = 20));
    let (mut script, mut client) = (Client::connect(&server), Client::connect(&server));
    let mut hears = Client::connect(&server);
    hears.call("SUBSCRIBE begun");
    let mut log = Log::attach(&server);
    script.write(&encode(&[
        b"EVAL",
        b"redis.call('SET', KEYS[1], 1) redis.call('PUBLISH', 'begun', 'x')
            local e = os.clock() + 0.5 while os.clock() < e do end redis.call('SET', KEYS[2], 2)",
        b"2",
        b"a",
        b"b",
    ]));
    hears.read();
    // One that the script is not in the way of.
    let stripe = |key: &str| server.keyspace().place(key.as_bytes()).stripe();
    let mut others = ["c", "d"].into_iter();
    let other = others.find(|key| stripe(key) != stripe("a"));
    let other = other.expect("three keys of one stripe are a rare sight");
    client.call(&format!("SET {other} 3")).ok();
    // The script's worker holds stripes, so it does not: another thread does.
    server.keyspace().journal().pump_all();
    assert_eq!(log.records(), [[format!("0 SET {other} 3")]]);
    assert_eq!(script.read(), Value::Nil);
    assert_eq!(
        log.records(),
        [["0 SET a 1", "0 PUBLISH begun x", "0 SET b 2"]]
    );
}

#[test]
fn a_key_that_expires_or_is_evicted_is_a_deletion() {
    let server = start(settings(1));
    let mut client = Client::connect(&server);
    let mut log = Log::attach(&server);
    client.call("SET k v PX 1").ok();
    log.records();
    let mut records = Vec::new();
    until("active expiry has come", || {
        records.extend(log.records());
        !records.is_empty()
    });
    assert_eq!(records, [["0 DEL k"]]);
    // Found by a command that goes on to write: first the key goes.
    for _ in 0..200 {
        client.write(
            &[
                request("SET k v PX 1"),
                request("DEBUG SLEEP 0"),
                request("SET k w NX"),
            ]
            .concat(),
        );
        (0..3).for_each(|_| drop(client.read()));
    }
    for record in log.records() {
        let known = ["0 DEL k", "0 SET k w NX", "0 SET k w"];
        for command in record {
            assert!(
                known.contains(&command.as_str()) || command.starts_with("0 SET k v PXAT "),
                "{command}"
            );
        }
    }
    client.call("FLUSHALL").ok();
    client.call("SET a v").ok();
    client.call("CONFIG SET maxmemory-policy allkeys-lru").ok();
    log.records();
    client.call("CONFIG SET maxmemory 1").ok();
    client.call("SET b v");
    until("the key is evicted", || {
        records.extend(log.records());
        records.contains(&vec!["0 DEL a".to_string()])
    });
}

/// Libraries are data, too: who copies the keys needs them.
#[test]
fn changes_of_libraries_are_told_as_called() {
    const CODE: &str = "#!lua name=lib\nredis.register_function('f', function() return 1 end)";
    let server = start(settings(2));
    let mut client = Client::connect(&server);
    let mut log = Log::attach(&server);
    let load: [&[u8]; 3] = [b"FUNCTION", b"LOAD", CODE.as_bytes()];
    client.call_args(&load);
    assert_eq!(log.records(), [[format!("0 FUNCTION LOAD {CODE}")]]);
    // Refused, so nothing has changed.
    client.call_args(&load).error();
    assert_eq!(log.records(), [[""; 0]; 0]);
    let Value::Bulk(payload) = client.call("FUNCTION DUMP") else {
        panic!("a payload is a bulk string");
    };
    client.call("SELECT 1").ok();
    assert_eq!(
        log.effect(&mut client, "FUNCTION DELETE lib"),
        ["1 FUNCTION DELETE lib"]
    );
    client.call_args(&[b"FUNCTION", b"RESTORE", &payload]).ok();
    let text = String::from_utf8_lossy(&payload);
    assert_eq!(log.records(), [[format!("1 FUNCTION RESTORE {text}")]]);
    for line in ["MULTI", "FUNCTION FLUSH ASYNC", "INCR n"] {
        client.call(line);
    }
    assert_eq!(
        log.effect(&mut client, "EXEC"),
        ["1 FUNCTION FLUSH ASYNC", "1 INCR n"]
    );
}

#[test]
fn without_a_stream_nothing_is_numbered() {
    let server = start(settings(2));
    let mut client = Client::connect(&server);
    client.call("SET k v").ok();
    assert_eq!(server.keyspace().journal().last(), 0);
    let log = Log::attach(&server);
    client.call("SET k v").ok();
    let journal = server.keyspace().journal();
    assert_eq!(journal.last(), 1);
    journal.detach();
    client.call("SET k v").ok();
    assert_eq!(journal.last(), 1);
    until("the stream has ended", || {
        log.records.try_recv() == Err(mpsc::TryRecvError::Disconnected)
    });
    assert_eq!(journal.waiting_bytes(), 0);
}

pub struct NobodyWaits;

impl Wake for NobodyWaits {
    fn wake(&self, _: WakeToken) {}
}

/// Another keyspace, which does what the records say. Its time stands still, so nothing expires of itself.
pub struct Replica {
    pub space: Keyspace,
    pub local: Local,
}

pub fn new_local() -> Local {
    Local::new(Rng::with_seed(1), redline_types::Limits::default())
}

impl Replica {
    pub fn new() -> Replica {
        Replica {
            space: Keyspace::new(DATABASES as usize, Box::new(NobodyWaits)),
            local: new_local(),
        }
    }
}

pub fn run(unit: &mut Unit<'_>, local: &mut Local, db: u32, words: &[&[u8]]) -> String {
    let args: ArgsBuf = words.iter().copied().collect();
    let args = args.as_args();
    let id = redline_spec::resolve(&args[0], args.get(1)).expect("a command of the table");
    let handler = handler(id).expect("a command of the data plane");
    let mut out = ReplyBuffer::new();
    let mut ctx = Ctx {
        keys: unit.view(local, db, 0),
        bulk_bytes_max: u64::MAX,
        in_script: false,
        reads_every_key: true,
        waiter: None,
    };
    let result = handler(&mut ctx, args, &mut Reply::new(&mut out, Proto::Resp2));
    ctx.keys.finish();
    let text = || String::from_utf8_lossy(words[0]).into_owned();
    assert!(
        result.is_ok(),
        "{}: {:?}",
        text(),
        result.err().map(|e| e.expect_error().text().into_owned())
    );
    local.garbage.clear();
    let bytes: Vec<u8> = out.chunks().flatten().copied().collect();
    String::from_utf8_lossy(&bytes).into_owned()
}

/// Contents of a keyspace.
pub type Contents = BTreeMap<(u32, Vec<u8>), String>;

/// All keys with type, value and expiry, in a form that does not depend on how they are stored.
pub fn contents(unit: &mut Unit<'_>, local: &mut Local) -> Contents {
    let mut contents = BTreeMap::new();
    for db in 0..DATABASES {
        let mut keys = Vec::new();
        unit.view(local, db, 0)
            .database()
            .for_each(|key, value| keys.push((key.to_vec(), value.type_name())));
        for (key, kind) in keys {
            // Replies, cut into lines; where there is no order, sorted by this many lines.
            let (call, sort): (&[&[u8]], usize) = match kind {
                "string" => (&[b"GET", &key], 0),
                "list" => (&[b"LRANGE", &key, b"0", b"-1"], 0),
                "hash" => (&[b"HGETALL", &key], 4),
                "set" => (&[b"SMEMBERS", &key], 2),
                "zset" => (&[b"ZRANGE", &key, b"0", b"-1", b"WITHSCORES"], 0),
                "stream" => (&[b"XRANGE", &key, b"-", b"+"], 0),
                "vectorset" => (&[b"VCARD", &key], 0),
                other => panic!("a type without a digest: {other}"),
            };
            let reply = run(unit, local, db, call);
            let mut value = reply.clone();
            if sort > 0 {
                let lines: Vec<&str> = reply.split("\r\n").skip(1).collect();
                let parts: BTreeSet<&[&str]> = lines.chunks(sort).collect();
                value = format!("{parts:?}");
            }
            if kind == "hash" {
                let mut fields: Vec<&str> = reply.split("\r\n").skip(2).step_by(4).collect();
                fields.sort_unstable();
                let count = fields.len().to_string();
                let mut call: Vec<&[u8]> = vec![b"HPEXPIRETIME", &key, b"FIELDS", count.as_bytes()];
                call.extend(fields.iter().map(|field| field.as_bytes()));
                value += &run(unit, local, db, &call);
            }
            if kind == "vectorset" {
                let members = run(unit, local, db, &[b"VRANDMEMBER", &key, b"9999"]);
                let mut members: Vec<&str> = members.split("\r\n").skip(2).step_by(2).collect();
                members.sort_unstable();
                for member in members {
                    for call in [&b"VEMB"[..], b"VGETATTR"] {
                        value += &run(unit, local, db, &[call, &key, member.as_bytes()]);
                    }
                }
            }
            if kind == "stream" {
                let groups = run(unit, local, db, &[b"XINFO", b"GROUPS", &key]);
                if !groups.starts_with("*0") {
                    value += &run(
                        unit,
                        local,
                        db,
                        &[b"XPENDING", &key, b"g", b"-", b"+", b"9999"],
                    );
                }
                value += &groups;
            }
            let expiry = run(unit, local, db, &[b"PEXPIRETIME", &key]);
            contents.insert((db, key), format!("{kind} {value} {expiry}"));
        }
    }
    contents
}

/// A request of any kind, on few keys, so that requests meet.
pub fn random_requests(rng: &mut Rng) -> Vec<Vec<u8>> {
    let key = |rng: &mut Rng, kind: &str| format!("{kind}:{}", rng.u8(..6));
    let plain = |rng: &mut Rng| -> String {
        let n = rng.u8(..40);
        let ms = rng.u32(1..60);
        let (s, l, h, e, z, x) = ("s", "l", "h", "e", "z", "x");
        match rng.u8(..48) {
            0 => format!("SET {} {n}", key(rng, s)),
            1 => format!("SET {} {n} PX {ms}", key(rng, s)),
            2 => format!("SET {} {n} KEEPTTL", key(rng, s)),
            3 => format!("SETEX {} 1 {n}", key(rng, s)),
            4 => format!("INCRBY {} {n}", key(rng, s)),
            5 => format!("INCRBYFLOAT {} 0.{n}", key(rng, s)),
            6 => format!("APPEND {} {n}", key(rng, s)),
            7 => format!("GETEX {} PX {ms}", key(rng, s)),
            8 => format!("GETDEL {}", key(rng, s)),
            9 => format!("MSET {} {n} {} {n}", key(rng, s), key(rng, s)),
            10 => format!("MSETNX {} {n} {} {n}", key(rng, s), key(rng, s)),
            11 => format!("GET {}", key(rng, s)),
            12 => format!("RPUSH {} {n} {n}", key(rng, l)),
            13 => format!("LPOP {}", key(rng, l)),
            14 => format!("LMPOP 2 {} {} LEFT COUNT 2", key(rng, l), key(rng, l)),
            15 => format!("LMOVE {} {} LEFT RIGHT", key(rng, l), key(rng, l)),
            16 => format!("PEXPIRE {} {ms}", key(rng, l)),
            17 => format!("HSET {} {n} {n}", key(rng, h)),
            18 => format!("HINCRBYFLOAT {} {n} 1.25", key(rng, h)),
            19 => format!("HDEL {} {n}", key(rng, h)),
            20 => format!("SADD {} {n} a{n} b{n}", key(rng, e)),
            21 => format!("SPOP {} 2", key(rng, e)),
            22 => format!("SPOP {}", key(rng, e)),
            23 => format!(
                "SUNIONSTORE {} {} {}",
                key(rng, e),
                key(rng, e),
                key(rng, e)
            ),
            24 => format!("PEXPIRE {} {ms}", key(rng, e)),
            25 => format!("ZADD {} {n} m{n}", key(rng, z)),
            26 => format!("ZINCRBY {} 1.5 m{n}", key(rng, z)),
            27 => format!("ZMPOP 2 {} {} MIN", key(rng, z), key(rng, z)),
            28 => format!("XADD {} MAXLEN ~ 30 * f {n}", key(rng, x)),
            29 => format!("XTRIM {} MAXLEN 5", key(rng, x)),
            30 => format!("RENAME {} {}", key(rng, e), key(rng, e)),
            31 => format!(
                "COPY {} {} DB {} REPLACE",
                key(rng, s),
                key(rng, s),
                rng.u32(..DATABASES)
            ),
            32 => format!("MOVE {} {}", key(rng, s), rng.u32(..DATABASES)),
            33 => format!("DEL {} {}", key(rng, z), key(rng, x)),
            34 => format!("PERSIST {}", key(rng, s)),
            35 => format!("HPEXPIRE {} {ms} FIELDS 2 {n} 7", key(rng, h)),
            36 => format!("HSETEX {} PX {ms} FIELDS 1 {n} {n}", key(rng, h)),
            37 => format!("HGETEX {} PX 100000 FIELDS 1 {n}", key(rng, h)),
            38 => format!("MSETEX 1 {} {n} PX {ms}", key(rng, s)),
            39 => format!("XGROUP CREATE {} g 0 MKSTREAM", key(rng, x)),
            40 | 41 => format!(
                "XREADGROUP GROUP g c{} COUNT 3 STREAMS {} >",
                n % 3,
                key(rng, x)
            ),
            42 => format!("XREADGROUP GROUP g c NOACK STREAMS {} >", key(rng, x)),
            43 => format!("XAUTOCLAIM {} g c{} 0 0 COUNT 2", key(rng, x), n % 3),
            44 => format!("BLPOP {} {} 0.002", key(rng, l), key(rng, l)),
            45 => format!("BLMOVE {} {} LEFT RIGHT 0.002", key(rng, l), key(rng, l)),
            46 => format!("BZPOPMIN {} 0.001", key(rng, z)),
            _ => format!("SELECT {}", rng.u32(..DATABASES)),
        }
    };
    match rng.u8(..100) {
        0 => vec![request(["FLUSHDB", "SWAPDB 0 1"][rng.usize(..2)])],
        1..10 => {
            let mut requests = vec![request("MULTI")];
            requests.extend((0..rng.u8(1..5)).map(|_| request(&plain(rng))));
            requests.push(request("EXEC"));
            requests
        }
        10..16 => {
            let script = b"for i = 1, 3 do redis.call('incr', 's:' .. math.random(9)) end
                redis.call('spop', KEYS[1]) redis.call('set', KEYS[2], 'x', 'px', 5)";
            let keys = [key(rng, "e"), key(rng, "s")];
            let [a, b] = keys.each_ref().map(|key| key.as_bytes());
            vec![encode(&[b"EVAL", script, b"2", a, b])]
        }
        _ => vec![request(&plain(rng))],
    }
}

/// The latest records that name a key, as text, for a message of what went wrong; those of whole databases name all.
#[derive(Default)]
struct Latest(BTreeMap<Vec<u8>, VecDeque<String>>);

impl Latest {
    const RECORDS_MAX: usize = 20;

    fn note(&mut self, record: &Record) {
        let mut names = BTreeSet::new();
        for Command { words, .. } in &record.commands {
            match words[0].as_slice() {
                // The one queue of all that names no key.
                b"FLUSHDB" | b"SWAPDB" => drop(names.insert(&b""[..])),
                _ => names.extend(words[1..].iter().map(Vec::as_slice)),
            }
        }
        // Few words are keys: the letter of a type, a colon, a number.
        for name in names {
            if name.is_empty() || name.get(1) == Some(&b':') {
                let queue = self.0.entry(name.to_vec()).or_default();
                if queue.len() == Self::RECORDS_MAX {
                    queue.pop_front();
                }
                let command = |Command { db, words }: &Command| {
                    let words = words.iter().map(|word| String::from_utf8_lossy(word));
                    format!("{db} {}", words.collect::<Vec<_>>().join(" "))
                };
                let commands: Vec<_> = record.commands.iter().map(command).collect();
                queue.push_back(format!("{:>8}: {}", record.number, commands.join("; ")));
            }
        }
    }

    /// The records that name this key, in any database, or whole databases.
    fn of(&self, (_, key): &(u32, Vec<u8>)) -> String {
        let queues = [key.as_slice(), b""].map(|name| self.0.get(name));
        let mut lines: Vec<&String> = queues.into_iter().flatten().flatten().collect();
        lines.sort();
        let lines: Vec<&str> = lines.into_iter().map(String::as_str).collect();
        lines.join("\n")
    }
}

#[test]
fn records_replayed_elsewhere_give_the_same_data() {
    let seconds = env::var("REDLINE_STRESS_SECONDS").map_or(1, |text| text.parse().unwrap());
    let server = start(Settings {
        databases: DATABASES,
        ..settings(4)
    });
    let deadline = Instant::now() + Duration::from_secs(seconds);
    let space = server.keyspace();
    let mut replica = Replica::new();
    let (records, mut last) = attach(&server);
    let mut latest = Latest::default();
    thread::scope(|scope| {
        let clients: Vec<_> = (0..8)
            .map(|seed| {
                let mut client = Client::connect(&server);
                scope.spawn(move || {
                    let mut rng = Rng::with_seed(seed);
                    while Instant::now() < deadline {
                        let requests: Vec<_> =
                            (0..20).flat_map(|_| random_requests(&mut rng)).collect();
                        client.write(&requests.concat());
                        requests.iter().for_each(|_| drop(client.read()));
                    }
                })
            })
            .collect();
        let mut replicating = Unit::exclusive(&mut replica.space);
        let mut held = None;
        loop {
            // The end of the clients is no record.
            let next = records.recv_timeout(Duration::from_millis(10)).ok();
            for record in next.into_iter().chain(records.try_iter()) {
                last += 1;
                assert_eq!(record.number, last, "a gap, or another order");
                latest.note(&record);
                for Command { db, words } in &record.commands {
                    let words: Vec<&[u8]> = words.iter().map(Vec::as_slice).collect();
                    run(&mut replicating, &mut replica.local, *db, &words);
                }
            }
            if held.is_some() && last == space.journal().last() {
                break;
            }
            if held.is_none() && clients.iter().all(|client| client.is_finished()) {
                held = Unit::try_set(space, &StripeSet::all(), false).ok();
            }
        }
        let mut held = held.expect("just taken");
        let expected = contents(&mut held, &mut new_local());
        let actual = contents(&mut replicating, &mut replica.local);
        let ids: BTreeSet<_> = expected.keys().chain(actual.keys()).collect();
        for id in ids {
            let (expected, actual) = (expected.get(id), actual.get(id));
            assert!(
                expected == actual,
                "{id:?} after {last} records:\n{expected:?} is the server's,\n{actual:?} the replica's; the last that name it:\n{}",
                latest.of(id)
            );
        }
        assert!(last > 1000, "only {last} records");
    });
    space.journal().detach();
}

/// Has nothing come for this client?
fn is_quiet(client: &Client) -> bool {
    client.stream.set_nonblocking(true).unwrap();
    let peeked = client.stream.peek(&mut [0]);
    client.stream.set_nonblocking(false).unwrap();
    peeked.is_err_and(|error| error.kind() == io::ErrorKind::WouldBlock)
}

#[test]
fn replies_wait_until_their_record_is_reached() {
    for workers in [1, 2] {
        let server = start(settings(workers));
        let space = server.keyspace();
        let (mut first, mut second) = (Client::connect(&server), Client::connect(&server));
        first.call("PING");
        second.call("PING");
        let mut log = Log::attach(&server);
        space.journal().gate.close(0);
        // Each is executed, by workers that serve others meanwhile; nothing is answered.
        for round in 0..3 {
            if round > 0 {
                // Pipelined behind a reply that waits: comes later, and in order.
                first.send("INCR n");
            }
            if round == 0 {
                first.send("INCR n");
                until("it is done", || log.records().len() == 1);
                second.send("INCR m");
                until("the other is done, too", || log.records().len() == 1);
            }
            assert!(is_quiet(&first) && (workers > 1 || is_quiet(&second)));
        }
        assert_eq!(log.last, 2);
        server.release_replies(1);
        if workers == 1 {
            assert_eq!(first.read(), Value::Integer(1));
            until("what waited behind is done", || !log.records().is_empty());
            assert!(is_quiet(&second));
        }
        server.release_replies(2);
        assert_eq!(second.read(), Value::Integer(1));
        server.release_all_replies();
        if workers > 1 {
            assert_eq!(first.read(), Value::Integer(1));
        }
        assert_eq!(first.read(), Value::Integer(2));
        assert_eq!(first.read(), Value::Integer(3));
        assert_eq!(first.call("GET n").integer(), 3);
        // Who goes while its reply waits keeps nobody waiting.
        space.journal().gate.close(space.journal().last());
        let before = space.journal().last();
        first.send("INCR n");
        until("it is done", || {
            log.records();
            log.last > before
        });
        drop(first);
        second.send("INCR m");
        log.records();
        server.release_all_replies();
        assert_eq!(second.read(), Value::Integer(2));
    }
}
