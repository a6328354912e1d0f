//! Records of clients that wait, and replies that wait for a reader of the records.

use std::io;

use super::Log;
use crate::client::{Client, Value, busy, encode, request, settings, start, until};
use redline_server::{Permission, Settings};

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
        format!(
            "redis.call('SET', KEYS[1], 1) redis.call('PUBLISH', 'begun', 'x')
            {} redis.call('SET', KEYS[2], 2)",
            busy(500)
        )
        .as_bytes(),
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
