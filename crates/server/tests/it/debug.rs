//! DEBUG: digests as Redis 8.2.3 computes them, and what it tells of values.

use crate::client::{Client, Value, settings, start, until};
use redline_server::{Permission, Server, Settings};

fn server() -> Server {
    start(Settings {
        enable_debug_command: Permission::Yes,
        ..settings(2)
    })
}

/// A server that keeps its snapshot in a folder of its own.
fn server_with_folder() -> (Server, tempfile::TempDir) {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("dump.rdb");
    let server = start(Settings {
        enable_debug_command: Permission::Yes,
        db_filename: file.to_str().unwrap().into(),
        ..settings(2)
    });
    (server, folder)
}

fn simple(value: &Value) -> &str {
    match value {
        Value::Simple(text) => text,
        other => panic!("no simple string: {other:?}"),
    }
}

#[test]
fn a_wrong_checksum_is_no_matter_when_told() {
    let server = server();
    let mut client = Client::connect(&server);
    client.call("SET k value");
    let Value::Bulk(mut payload) = client.call("DUMP k") else {
        panic!("a payload")
    };
    *payload.last_mut().unwrap() ^= 1;
    let mut restore = |payload: &[u8]| {
        client.call("DEL to");
        client.call_args(&[b"RESTORE", b"to", b"0", payload])
    };
    let wrong = "ERR DUMP payload version or checksum are wrong";
    assert_eq!(restore(&payload).error(), wrong);
    let mut admin = Client::connect(&server);
    admin.call("DEBUG SET-SKIP-CHECKSUM-VALIDATION 1").ok();
    restore(&payload).ok();
    let damaged = [&b"\x01"[..], &payload[1..]].concat();
    assert_eq!(restore(&damaged).error(), "ERR Bad data format");
    admin.call("DEBUG SET-SKIP-CHECKSUM-VALIDATION 0").ok();
    assert_eq!(restore(&payload).error(), wrong);
}

#[test]
fn timers_rest_when_told() {
    let server = start(Settings {
        enable_debug_command: Permission::Yes,
        ..settings(1)
    });
    let mut client = Client::connect(&server);
    client.call("DEBUG PAUSE-CRON 1").ok();
    client.call("SET k v PX 1").ok();
    // Time for several ticks, the first of which would find it.
    client.call("DEBUG SLEEP 0.3").ok();
    assert_eq!(client.call("DBSIZE").integer(), 1);
    client.call("DEBUG PAUSE-CRON 0").ok();
    until("it has expired", || client.call("DBSIZE").integer() == 0);
}

/// The digests are those that Redis 8.2.3 answered after the same calls.
#[test]
fn equal_contents_have_the_digests_that_redis_gives_them() {
    let server = server();
    let mut client = Client::connect(&server);
    assert_eq!(simple(&client.call("DEBUG DIGEST")), "0".repeat(40));
    for call in [
        "SET s hello",
        "RPUSH l a 1 b",
        "SADD t x 7 y",
        "HSET h f v g 1",
        "ZADD z 0.1 a inf b 1e300 c 3 d 1e-7 e 123456789012345678 f",
        "XADD x 1-1 a b",
        "SET e 5 PX 100000",
    ] {
        client.call(call);
    }
    let reply = client.call("DEBUG DIGEST-VALUE s l t h z x e none");
    let digests: Vec<_> = reply.array().iter().map(simple).collect();
    assert_eq!(
        digests,
        [
            "36b23a1456b2dce2c3ed252c456761301dba8060",
            "d5f44352f6226abea9252dad248ef5de0d964396",
            "a6afcc473373536adb071da403abcb70a693d104",
            "6679ee22f89ed8001eeb5309d0900265ea56c03a",
            "14780c7099f40b76a384e32422a18863378ba1d6",
            "db20534e81d36b705394fcfc8a61996efb6e5a7c",
            "1e47b7737b7537b3113b09ca0319a5fd0e2bf48d",
            "0000000000000000000000000000000000000000",
        ]
    );
    assert_eq!(
        simple(&client.call("DEBUG DIGEST")),
        "1df2367388180b5f650a7ffb73bba891cd5247f2"
    );
    client.call("SELECT 3").ok();
    client.call("SET s hello").ok();
    assert_eq!(
        simple(&client.call("DEBUG DIGEST")),
        "c44494ad7a0055307d893c0257427096aa372747"
    );
    client.call("MULTI").ok();
    client.call("DEBUG DIGEST");
    let reply = client.call("EXEC");
    assert_eq!(
        simple(&reply.array()[0]),
        "c44494ad7a0055307d893c0257427096aa372747"
    );
    client.call("HSET timed a 1 b 2");
    let without_times = "6c8f22b3bf510fdcfd6122dd0f908a80e88243bf";
    assert_eq!(
        simple(&client.call("DEBUG DIGEST-VALUE timed").array()[0]),
        without_times
    );
    client.call("HEXPIRE timed 1000 FIELDS 1 a");
    assert_eq!(
        simple(&client.call("DEBUG DIGEST-VALUE timed").array()[0]),
        "c07db73128914a41e685572f9d83e5ec946f598d"
    );
    client.call("HPERSIST timed FIELDS 1 a");
    assert_eq!(
        simple(&client.call("DEBUG DIGEST-VALUE timed").array()[0]),
        without_times
    );
}

#[test]
fn values_are_described_and_made() {
    let server = server();
    let mut client = Client::connect(&server);
    client.call("SET n 5").ok();
    let text = client.call("DEBUG OBJECT n");
    let text = simple(&text);
    assert!(text.starts_with("Value at:0x"), "{text}");
    assert!(
        text.contains(" refcount:1 encoding:int serializedlength:2 lru:")
            && text.ends_with(" lru_seconds_idle:0"),
        "{text}"
    );
    assert_eq!(client.call("DEBUG OBJECT none").error(), "ERR no such key");
    for _ in 0..300 {
        client.call(&format!("RPUSH q {}", "x".repeat(100)));
    }
    let text = client.call("DEBUG OBJECT q");
    assert!(simple(&text).contains(" encoding:quicklist "), "{text:?}");
    assert!(
        simple(&text).contains(" ql_nodes:4 ql_avg_node:75.00 ql_listpack_max:-2 ql_compressed:0 ql_uncompressed_size:30928"),
        "{text:?}"
    );
    assert_eq!(
        client.call("DEBUG LISTPACK q").error(),
        "ERR Not a listpack encoded object."
    );
    client.call("DEBUG POPULATE 3").ok();
    client.call("DEBUG POPULATE 4 key 9").ok();
    assert_eq!(client.call("GET key:2"), Value::Bulk(b"value:2".to_vec()));
    assert_eq!(
        client.call("GET key:3"),
        Value::Bulk(b"value:3\0\0".to_vec())
    );
    assert_eq!(
        client.call("DEBUG POPULATE -1").error(),
        "ERR value is out of range, must be positive"
    );
    assert_eq!(client.call("DEBUG ERROR mine").error(), "mine");
}

#[test]
fn a_reload_leaves_every_value_as_it_was() {
    let (server, folder) = server_with_folder();
    let mut client = Client::connect(&server);
    assert_eq!(simple(&client.call("DEBUG RELOAD NOFLUSH")), "OK");
    let script = b"for i = 1, 1000 do\n\
        redis.call('rpush', 'list', i, ('x'):rep(i))\n\
        redis.call('hset', 'hash', 'f' .. i, i)\n\
        redis.call('zadd', 'zset', i, 'm' .. i)\n\
        redis.call('sadd', 'set', 'm' .. i)\n\
        redis.call('xadd', 'stream', i .. '-1', 'f', i)\nend";
    client.call_args(&[b"EVAL", script, b"0"]);
    for call in [
        "SADD intset 1 2 3",
        "RPUSH listpack a b",
        "HPEXPIRE hash 1000000 FIELDS 1 f1",
        "XGROUP CREATE stream g 5-1",
        "XREADGROUP GROUP g c COUNT 3 STREAMS stream >",
        "PFADD hll a b c",
        "VADD vectors VALUES 3 1 2 3 e",
        "SET counter 12",
        "SET soon v PX 1000000",
        "SELECT 2",
        "SET other v",
        "SELECT 0",
    ] {
        client.call(call);
    }
    let keys = "list hash zset set stream intset listpack vectors counter soon";
    let look = |client: &mut Client| {
        let mut seen = vec![
            simple(&client.call("DEBUG DIGEST")).to_owned(),
            format!("{:?}", client.call("PEXPIRETIME soon")),
            format!("{:?}", client.call("HPEXPIRETIME hash FIELDS 2 f1 f2")),
            format!(
                "{:?}",
                client.call("XPENDING stream g - + 10 c").array().len()
            ),
        ];
        for key in keys.split(' ') {
            seen.push(format!(
                "{:?}",
                client.call(&format!("OBJECT ENCODING {key}"))
            ));
        }
        seen
    };
    let before = look(&mut client);
    let mut watcher = Client::connect(&server);
    watcher.call("WATCH list").ok();
    for options in ["", " MERGE", " noflush merge"] {
        client.call(&format!("DEBUG RELOAD{options}")).ok();
        assert_eq!(look(&mut client), before, "{options}");
    }
    watcher.call("MULTI").ok();
    watcher.call("PING");
    assert_eq!(watcher.call("EXEC"), Value::Nil);
    for (options, error) in [
        (
            "NOFLUSH",
            "ERR Error trying to load the RDB dump, check server logs",
        ),
        (
            "foo",
            "ERR DEBUG RELOAD only supports the MERGE, NOFLUSH and NOSAVE options.",
        ),
    ] {
        assert_eq!(
            client.call(&format!("DEBUG RELOAD {options}")).error(),
            error
        );
    }
    client.call("DEL list");
    client.call("DEBUG RELOAD NOSAVE").ok();
    assert_eq!(look(&mut client), before, "what was saved before is back");
    // Libraries of functions are data as well.
    let load = |client: &mut Client, name: &str| {
        let code = format!(
            "#!lua name={name}\nredis.register_function('{name}', function() return '{name}' end)"
        );
        client.call_args(&[b"FUNCTION", b"LOAD", code.as_bytes()]);
    };
    load(&mut client, "saved");
    client.call("SAVE").ok();
    load(&mut client, "later");
    client.call("FLUSHALL").ok();
    assert_eq!(
        client.call("DEBUG RELOAD NOSAVE NOFLUSH").error(),
        "ERR Error trying to load the RDB dump, check server logs"
    );
    client.call("FUNCTION DELETE saved").ok();
    client.call("DEBUG RELOAD NOSAVE NOFLUSH MERGE").ok();
    for name in ["saved", "later"] {
        let reply = client.call(&format!("FCALL {name} 0"));
        assert_eq!(reply, Value::Bulk(name.into()));
    }
    client.call("FUNCTION FLUSH").ok();
    std::fs::remove_file(folder.path().join("dump.rdb")).unwrap();
    assert_eq!(
        client.call("DEBUG RELOAD NOSAVE").error(),
        "ERR Error trying to load the RDB dump, check server logs"
    );
    assert_eq!(look(&mut client), before, "and what is there stays");
}

/// Elements in nodes of their own, next to packed ones, wherever they come from.
#[test]
fn a_threshold_gives_small_elements_nodes_of_their_own() {
    let server = server();
    let mut client = Client::connect(&server);
    client.call("CONFIG SET list-max-listpack-size 16").ok();
    client.call("DEBUG QUICKLIST-PACKED-THRESHOLD 5b").ok();
    for number in 0..20 {
        client.call(&format!("RPUSH l {number}"));
        client.call(&format!("RPUSH l long{number}"));
    }
    let text = client.call("DEBUG OBJECT l");
    assert!(simple(&text).contains(" ql_nodes:25 "), "{text:?}");
    client.call("LSET l 1 a").ok();
    client.call("LSET l 0 longer").ok();
    client.call("DEBUG QUICKLIST-PACKED-THRESHOLD 0").ok();
    client.call("LINSERT l AFTER a longest");
    assert_eq!(
        client
            .call("LRANGE l 0 4")
            .array()
            .iter()
            .map(|e| match e {
                Value::Bulk(bytes) => std::str::from_utf8(bytes).unwrap(),
                other => panic!("{other:?}"),
            })
            .collect::<Vec<_>>(),
        ["longer", "a", "longest", "1", "long1"]
    );
    for size in ["5gb", "x", "-1"] {
        assert_eq!(
            client
                .call(&format!("DEBUG QUICKLIST-PACKED-THRESHOLD {size}"))
                .error(),
            "ERR argument must be a memory value bigger than 1 and smaller than 4gb"
        );
    }
}

#[test]
fn a_sorted_list_is_stored_under_the_same_threshold() {
    let server = server();
    let mut client = Client::connect(&server);
    client.call("DEBUG QUICKLIST-PACKED-THRESHOLD 5b").ok();
    client.call("RPUSH l 1234567 2 aaaaaaaaaa b");
    client.call("SORT l ALPHA STORE d");
    let text = client.call("DEBUG OBJECT d");
    assert!(simple(&text).contains(" ql_nodes:4 "), "{text:?}");
    client.call("SORT d LIMIT 0 0 STORE none");
    assert_eq!(client.call("EXISTS none").integer(), 0);
    client.call("DEBUG QUICKLIST-PACKED-THRESHOLD 0").ok();
    client.call("SORT l ALPHA STORE d");
    let text = client.call("DEBUG OBJECT d");
    assert!(simple(&text).contains(" encoding:listpack "), "{text:?}");
}

#[test]
fn the_room_of_a_string_is_told() {
    let server = server();
    let mut client = Client::connect(&server);
    client.call("SET key hello").ok();
    client.call("SET number 12").ok();
    client.call("RPUSH list a");
    let text = client.call("DEBUG SDSLEN key");
    let text = simple(&text);
    assert!(
        text.starts_with("key_sds_len:3, key_sds_avail:0, key_zmalloc: "),
        "{text}"
    );
    assert!(
        text.ends_with(", val_sds_len:5, val_sds_avail:0, val_zmalloc: 0"),
        "{text}"
    );
    client
        .call_args(&[b"SET", b"key", &vec![b'x'; 50_000]])
        .ok();
    client.call("APPEND key y");
    let text = client.call("DEBUG SDSLEN key");
    assert!(simple(&text).contains(" val_sds_len:50001,"), "{text:?}");
    assert!(!simple(&text).ends_with(" 0"), "{text:?}");
    for (key, error) in [
        ("number", "ERR Not an sds encoded string."),
        ("list", "ERR Not an sds encoded string."),
        ("none", "ERR no such key"),
    ] {
        assert_eq!(client.call(&format!("DEBUG SDSLEN {key}")).error(), error);
    }
}

#[test]
fn scripts_may_look_when_they_are_allowed_to() {
    let server = server();
    let mut client = Client::connect(&server);
    client.call("SET k v").ok();
    let script = b"redis.call('set', 'short', 'v', 'px', 1)\n\
        redis.call('debug', 'sleep', '0.01')\n\
        return {redis.call('exists', 'short'), redis.call('debug', 'digest').ok, redis.call('client', 'list')}";
    let refused = client.call_args(&[b"EVAL", script, b"0"]);
    assert!(
        refused
            .error()
            .starts_with("ERR This Redis command is not allowed from script"),
        "{refused:?}"
    );
    client.call("DEBUG SET-DISABLE-DENY-SCRIPTS 1").ok();
    let seen = client.call_args(&[b"EVAL", script, b"0"]);
    let [exists, digest, list] = seen.array() else {
        panic!("{seen:?}");
    };
    assert_eq!(exists.integer(), 1, "time stands still");
    assert!(
        matches!(digest, Value::Bulk(text) if text.len() == 40),
        "{digest:?}"
    );
    assert!(
        matches!(list, Value::Bulk(text) if text.starts_with(b"id=")),
        "{list:?}"
    );
    let still = client.call_args(&[b"EVAL", b"return redis.call('config', 'get', 'port')", b"0"]);
    assert!(
        still
            .error()
            .starts_with("ERR This Redis command is not allowed from script"),
        "{still:?}"
    );
    client.call("DEBUG SET-DISABLE-DENY-SCRIPTS 0").ok();
    client.call_args(&[b"EVAL", script, b"0"]).error();
}

#[test]
fn a_key_that_has_expired_is_shown_until_somebody_removes_it() {
    let server = server();
    let mut client = Client::connect(&server);
    client.call("DEBUG SET-ACTIVE-EXPIRE 0").ok();
    client.call("SET k v PX 1").ok();
    client.call("DEBUG SLEEP 0.01").ok();
    let text = client.call("DEBUG OBJECT k");
    assert!(simple(&text).contains(" encoding:embstr "), "{text:?}");
    assert_eq!(client.call("GET k"), Value::Nil);
    assert_eq!(client.call("DEBUG OBJECT k").error(), "ERR no such key");
}

#[test]
fn scripts_pass_over_attributes() {
    let server = server();
    let mut client = Client::connect(&server);
    client.call("DEBUG SET-DISABLE-DENY-SCRIPTS 1").ok();
    let script = b"redis.setresp(3) return redis.call('debug', 'protocol', 'attrib')";
    assert_eq!(
        client.call_args(&[b"EVAL", script, b"0"]),
        Value::Bulk(b"Some real reply following the attribute".to_vec())
    );
}

#[test]
fn who_waits_survives_a_reload() {
    let (server, _folder) = server_with_folder();
    let (mut waiting, mut client) = (Client::connect(&server), Client::connect(&server));
    client.call("XADD s 1-0 f v");
    waiting.send("XREAD BLOCK 0 STREAMS s $");
    until("it waits", || {
        let Value::Bulk(text) = client.call("INFO clients") else {
            panic!("INFO is text")
        };
        String::from_utf8_lossy(&text).contains("blocked_clients:1\r\n")
    });
    // The stream comes anew; who waits for more of it is looked after in the same unit, and not by the next one.
    client.call("DEBUG RELOAD").ok();
    assert_eq!(client.call("EXISTS other").integer(), 0);
    client.call("XADD s 2-0 f w");
    let Value::Array(streams) = waiting.read() else {
        panic!("the new entry")
    };
    assert_eq!(streams.len(), 1);
}
