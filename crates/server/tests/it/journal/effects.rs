//! The commands that a unit's record has.

use super::Log;
use crate::client::{Client, Value, request, settings, start, until};
use std::sync::mpsc;

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
        ("EXSET e v", "0 EXSET e v ABS 1"),
        ("EXSET e w VER 9", ""),
        (
            "EXSET e w VER 1 EXAT 99999999999 FLAGS 3",
            "0 EXSET e w ABS 2 PXAT 99999999999000 FLAGS 3",
        ),
        ("EXSET e 1 KEEPTTL", "0 EXSET e 1 ABS 3 KEEPTTL"),
        ("EXINCRBY e 4 ABS 9", "0 EXSET e 5 ABS 9"),
        ("EXINCRBYFLOAT e 0.5", "0 EXSET e 5.5 ABS 10"),
        ("EXCAS e 6 9", ""),
        ("EXCAS e 6 10", "0 EXSET e 6 ABS 11"),
        ("EXAPPEND e 7", "0 EXAPPEND e 7"),
        ("EXSETVER e 5", "0 EXSETVER e 5"),
        (
            "EXGAE e PXAT 99999999999000",
            "0 PEXPIREAT e 99999999999000",
        ),
        ("EXCAD e 5", "0 DEL e"),
        (
            "EXSET e v ABS 9223372036854775806",
            "0 EXSET e v ABS 9223372036854775806",
        ),
        ("EXSET e w", "0 EXSET e w ABS 9223372036854775807"),
        // A version above could not be told.
        ("EXSET e x", ""),
        ("EXCAS e x 9223372036854775807", ""),
        ("EXAPPEND e x", ""),
        ("EXCAD e 9223372036854775807", "0 DEL e"),
        ("SET k v", "0 SET k v"),
        ("CAS k w x", ""),
        (
            "CAS k v w EXAT 99999999999",
            "0 SET k w PXAT 99999999999000",
        ),
        ("CAS k w x KEEPTTL", "0 SET k x KEEPTTL"),
        ("CAD k w", ""),
        ("CAD k x", "0 DEL k"),
        ("EXHSET eh f v", "0 EXHSET eh f v ABS 1"),
        ("EXHSET eh f v NX", ""),
        (
            "EXHSET eh f w EXAT 99999999999",
            "0 EXHSET eh f w ABS 2 PXAT 99999999999000",
        ),
        (
            "EXHSET eh f x KEEPTTL",
            "0 EXHSET eh f x ABS 3 PXAT 99999999999000",
        ),
        (
            "EXHMSET eh f 1 g 2",
            "0 EXHSET eh f 1 ABS 4; 0 EXHSET eh g 2 ABS 1",
        ),
        ("EXHINCRBY eh f 2 GT 9", "0 EXHSET eh f 3 ABS 9"),
        (
            "EXHPEXPIREAT eh f 99999999999000",
            "0 EXHSET eh f 3 ABS 10 PXAT 99999999999000",
        ),
        ("EXHPERSIST eh f", "0 EXHPERSIST eh f"),
        ("EXHSETVER eh f 2", "0 EXHSETVER eh f 2"),
        ("EXHDELWITHVER eh f 1 g 1", "0 EXHDEL eh g"),
        (
            "EXHSETVER eh f 9223372036854775807",
            "0 EXHSETVER eh f 9223372036854775807",
        ),
        ("EXHMSET eh new 1 f 1", ""),
        ("EXHEXPIREAT eh f 2", ""),
        ("EXHINCRBY eh f 1", ""),
        ("EXHSETVER eh f 2", "0 EXHSETVER eh f 2"),
        ("EXHEXPIREAT eh f 1", "0 EXHDEL eh f"),
        ("EXZADD ez 1#2 a", "0 EXZADD ez 1#2 a"),
        ("EXZADD ez 1#2 a", ""),
        ("EXZINCRBY ez 1#1 a", "0 EXZINCRBY ez 1#1 a"),
        ("EXBZPOPMIN none ez 0", "0 EXZPOPMIN ez"),
        (
            "TS.INCRBY t 1 TIMESTAMP 5 LABELS l *",
            "0 TS.CREATE t RETENTION 0 CHUNK_SIZE 4096 ENCODING COMPRESSED DUPLICATE_POLICY block IGNORE 0 0 LABELS l *; \
             0 TS.INCRBY t 1 TIMESTAMP 5 LABELS l *",
        ),
        (
            "TS.INCRBY t 1 TIMESTAMP 6 LABELS TIMESTAMP *",
            "0 TS.INCRBY t 1 TIMESTAMP 6 LABELS TIMESTAMP *",
        ),
        (
            "TS.CREATE u RETENTION 7 LABELS a 1 b 2",
            "0 TS.CREATE u RETENTION 7 CHUNK_SIZE 4096 ENCODING COMPRESSED DUPLICATE_POLICY block IGNORE 0 0 LABELS a 1 b 2",
        ),
        (
            "TS.ADD v 1 2 ON_DUPLICATE SUM IGNORE 5 0.1 UNCOMPRESSED",
            "0 TS.CREATE v RETENTION 0 CHUNK_SIZE 4096 ENCODING UNCOMPRESSED DUPLICATE_POLICY block IGNORE 5 0.1; \
             0 TS.ADD v 1 2 ON_DUPLICATE SUM IGNORE 5 0.1 UNCOMPRESSED",
        ),
        ("TS.ADD v 9 2", "0 TS.ADD v 9 2"),
        (
            "BF.RESERVE bf 0.01 100",
            "0 BF.RESERVE bf 0.01 100 EXPANSION 2",
        ),
        (
            "BF.RESERVE bg 0.01 100 NONSCALING",
            "0 BF.RESERVE bg 0.01 100 NONSCALING",
        ),
        (
            "CF.RESERVE cf 100 EXPANSION 4",
            "0 CF.RESERVE cf 100 BUCKETSIZE 2 MAXITERATIONS 20 EXPANSION 4",
        ),
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
    client.call("EXHSET x g w");
    client.call("EXHSET x f v PX 1");
    let mut records = Vec::new();
    until("active expiry has come", || {
        records.extend(log.records());
        records.len() > 2
    });
    assert_eq!(records[2..], [["0 EXHDEL x f"]]);
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
