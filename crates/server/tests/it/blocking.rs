//! Clients that wait for keys, over 1, 2 and 8 workers: who is served, with what, and when nobody is.

use std::{
    collections::BTreeMap,
    sync::atomic::{AtomicBool, AtomicU64, Ordering},
    thread,
    time::{Duration, Instant},
};

use crate::client::{Client, Value, busy, encode, request, settings, start, until};
use fastrand::Rng;
use redline_server::{Permission, Server, Settings};

fn with_workers(test: impl Fn(&Server)) {
    for workers in [1, 2, 8] {
        test(&start(Settings {
            enable_debug_command: Permission::Yes,
            ..settings(workers)
        }));
    }
}

fn bulk(text: &str) -> Value {
    Value::Bulk(text.into())
}

fn bulks(texts: &[&str]) -> Value {
    Value::Array(texts.iter().map(|text| bulk(text)).collect())
}

fn field(client: &mut Client, section: &str, name: &str) -> u64 {
    let Value::Bulk(text) = client.call(&format!("INFO {section}")) else {
        panic!("INFO answers with a text")
    };
    let text = String::from_utf8(text).unwrap();
    let line = text.lines().find_map(|line| line.strip_prefix(name));
    let value = line.and_then(|rest| rest.strip_prefix(':'));
    value.expect("a field of INFO").parse().unwrap()
}

/// Sends a call that finds nothing, on a connection of its own; returns when it waits.
fn wait_for(server: &Server, observer: &mut Client, call: &str) -> Client {
    let mut waiting = Client::connect(server);
    wait_again(&mut waiting, observer, call);
    waiting
}

fn wait_again(waiting: &mut Client, observer: &mut Client, call: &str) {
    let before = field(observer, "clients", "blocked_clients");
    waiting.send(call);
    until_blocked(observer, before + 1);
}

fn until_blocked(observer: &mut Client, count: u64) {
    until("clients wait", || {
        field(observer, "clients", "blocked_clients") == count
    });
}

fn id(client: &mut Client) -> i64 {
    client.call("CLIENT ID").integer()
}

#[test]
fn first_come_first_served() {
    with_workers(|server| {
        let mut c = Client::connect(server);
        let mut waiting: Vec<Client> = (0..10)
            .map(|_| wait_for(server, &mut c, "BLPOP q 0"))
            .collect();
        assert_eq!(field(&mut c, "clients", "total_blocking_keys"), 1);
        for (n, client) in waiting.iter_mut().enumerate() {
            assert_eq!(c.call(&format!("RPUSH q {n}")).integer(), 1);
            assert_eq!(client.read(), bulks(&["q", &n.to_string()]));
        }
        until_blocked(&mut c, 0);
        assert_eq!(c.call("EXISTS q").integer(), 0);
        assert_eq!(field(&mut c, "clients", "total_blocking_keys"), 0);
    });
}

#[test]
fn who_waits_is_served_by_the_rules_and_limits_of_now() {
    with_workers(|server| {
        let mut c = Client::connect(server);
        c.call("ACL SETUSER u on nopass +@all ~*").ok();
        let wait_as_user = |c: &mut Client, call: &str| {
            let mut waiting = Client::connect(server);
            waiting.call("AUTH u p").ok();
            wait_again(&mut waiting, c, call);
            waiting
        };
        let mut command = wait_as_user(&mut c, "BLPOP k 0");
        c.call("ACL SETUSER u -blpop").ok();
        assert_eq!(c.call("RPUSH k a").integer(), 1);
        assert_eq!(
            command.read().error(),
            "NOPERM User u has no permissions to run the 'blpop' command"
        );
        let mut key = wait_as_user(&mut c, "BLMOVE k2 d LEFT LEFT 0");
        c.call("MULTI").ok();
        c.call("ACL SETUSER u resetkeys ~k2");
        c.call("RPUSH k2 a");
        c.call("EXEC");
        let denied = "NOPERM No permissions to access a key";
        assert_eq!(key.read().error(), denied);
        let log = c.call("ACL LOG").array().to_vec();
        assert_eq!(log.len(), 2);
        // The wait is over when the call is refused.
        for entry in &log {
            let mut fields = entry.array().iter();
            let client = fields.find(|field| **field == bulk("client-info"));
            let (Some(_), Some(Value::Bulk(line))) = (client, fields.next()) else {
                panic!("{entry:?} tells of its client")
            };
            assert!(String::from_utf8_lossy(line).contains(" flags=N "));
        }
        // With room again it is served; with none only what needs none.
        let mut needs = wait_for(server, &mut c, "BLMOVE k3 d LEFT LEFT 0");
        let mut gives = wait_for(server, &mut c, "BLPOP k4 0");
        for call in [
            "MULTI",
            "RPUSH k3 a",
            "RPUSH k4 a",
            "CONFIG SET maxmemory 1",
        ] {
            c.call(call);
        }
        c.call("EXEC");
        let refused = "OOM command not allowed when used memory > 'maxmemory'.";
        assert_eq!(needs.read().error(), refused);
        assert_eq!(gives.read(), bulks(&["k4", "a"]));
        until_blocked(&mut c, 0);
        c.call("CONFIG SET maxmemory 0").ok();
        for (key, left) in [("k", 1), ("k2", 1), ("k3", 1), ("k4", 0), ("d", 0)] {
            assert_eq!(c.call(&format!("LLEN {key}")).integer(), left, "{key}");
        }
        let Value::Bulk(stats) = c.call("INFO commandstats") else {
            panic!("INFO answers with a text")
        };
        let stats = String::from_utf8(stats).unwrap();
        let of = |name: &str| stats.lines().find(|line| line.starts_with(name)).unwrap();
        assert!(of("cmdstat_blmove:calls=0,").contains("rejected_calls=2,failed_calls=0"));
    });
}

#[test]
fn many_elements_serve_many_in_order() {
    with_workers(|server| {
        let mut c = Client::connect(server);
        let mut first = wait_for(server, &mut c, "BLPOP a b 0");
        let mut second = wait_for(server, &mut c, "BRPOP b 0");
        let mut third = wait_for(server, &mut c, "BLMPOP 0 2 x b LEFT COUNT 5");
        let mut fourth = wait_for(server, &mut c, "BLPOP b 0");
        c.call("RPUSH b 1 2 3 4");
        assert_eq!(first.read(), bulks(&["b", "1"]));
        assert_eq!(second.read(), bulks(&["b", "4"]));
        assert_eq!(
            third.read(),
            Value::Array(vec![bulk("b"), bulks(&["2", "3"])])
        );
        c.call("LPUSH b a b c");
        assert_eq!(fourth.read(), bulks(&["b", "c"]), "at the end of the unit");
        assert_eq!(c.call("LRANGE b 0 -1"), bulks(&["b", "a"]));
    });
}

#[test]
fn what_is_gone_at_the_end_of_a_unit_serves_nobody() {
    with_workers(|server| {
        let mut c = Client::connect(server);
        let mut waiting = wait_for(server, &mut c, "BLPOP q 0");
        for line in ["MULTI", "LPUSH q a", "DEL q"] {
            c.call(line);
        }
        assert_eq!(c.call("EXEC").array().len(), 2);
        let script = b"redis.call('lpush', 'q', 'x') redis.call('del', 'q') return 1";
        assert_eq!(c.call_args(&[b"EVAL", script, b"0"]).integer(), 1);
        c.call("SET q string").ok();
        c.call("DEL q");
        assert_eq!(field(&mut c, "clients", "blocked_clients"), 1);
        c.call("LPUSH q b");
        assert_eq!(waiting.read(), bulks(&["q", "b"]));
    });
}

#[test]
fn whatever_makes_a_key_appear_serves() {
    with_workers(|server| {
        let mut c = Client::connect(server);
        let ways: &[&[&str]] = &[
            &["LPUSH s v", "RENAME s q"],
            &["LPUSH s v", "COPY s q"],
            &["SET q string", "LPUSH s v", "COPY s q REPLACE"],
            &["LPUSH s v", "LMOVE s q LEFT LEFT"],
            &["LPUSH s v", "SORT s ALPHA STORE q"],
            &["LPUSH s v", "SORT s BY nosort GET # STORE q"],
            &["MULTI", "LPUSH q v", "EXEC"],
            &["SELECT 1", "LPUSH q v", "MOVE q 0", "SELECT 0"],
            &["SELECT 1", "LPUSH q v", "SELECT 0", "SWAPDB 0 1"],
            &["SELECT 1", "LPUSH s v", "COPY s q DB 0", "SELECT 0"],
        ];
        for way in ways {
            c.call("FLUSHALL").ok();
            let mut waiting = wait_for(server, &mut c, "BLPOP other q 0");
            for line in *way {
                c.call(line);
            }
            assert_eq!(waiting.read(), bulks(&["q", "v"]), "{way:?}");
        }
        let mut waiting = wait_for(server, &mut c, "BLPOP q 0");
        let script = b"redis.call('lpush', 'q', 'v') return redis.call('llen', 'q')";
        assert_eq!(c.call_args(&[b"EVAL", script, b"0"]).integer(), 1);
        assert_eq!(waiting.read(), bulks(&["q", "v"]));
        c.call("LPUSH s v");
        let Value::Bulk(payload) = c.call("DUMP s") else {
            panic!("DUMP answers a bulk");
        };
        let mut waiting = wait_for(server, &mut c, "BLPOP q 0");
        c.call_args(&[b"RESTORE", b"q", b"0", &payload]).ok();
        assert_eq!(waiting.read(), bulks(&["q", "v"]));
        let mut waiting = wait_for(server, &mut c, "BLPOP q 0");
        c.call("MULTI").ok();
        c.call_args(&[b"RESTORE-ASKING", b"q", b"0", &payload]);
        c.call("EXEC");
        assert_eq!(waiting.read(), bulks(&["q", "v"]));
        let mut waiting = wait_for(server, &mut c, "BZPOPMAX z 0");
        c.call("ZADD a 1 x 2 y");
        c.call("ZUNIONSTORE z 1 a");
        assert_eq!(waiting.read(), bulks(&["z", "y", "2"]));
        let mut waiting = wait_for(server, &mut c, "BZMPOP 0 2 none w MIN COUNT 9");
        c.call("ZADD w 1 x 2 y");
        let pairs = Value::Array(vec![bulks(&["x", "1"]), bulks(&["y", "2"])]);
        assert_eq!(waiting.read(), Value::Array(vec![bulk("w"), pairs]));
    });
}

#[test]
fn an_element_is_handed_from_list_to_list() {
    with_workers(|server| {
        let mut c = Client::connect(server);
        let mut last = wait_for(server, &mut c, "BLPOP d 0");
        let mut second = wait_for(server, &mut c, "BRPOPLPUSH b d 0");
        let mut first = wait_for(server, &mut c, "BLMOVE a b LEFT RIGHT 0");
        c.call("LPUSH a v");
        assert_eq!(first.read(), bulk("v"));
        assert_eq!(second.read(), bulk("v"));
        assert_eq!(last.read(), bulks(&["d", "v"]));
        assert_eq!(c.call("EXISTS a b d").integer(), 0);
        // By a script, which has to take the stripes on the way.
        let mut last = wait_for(server, &mut c, "BLPOP d 0");
        let mut first = wait_for(server, &mut c, "BLMOVE a d LEFT RIGHT 0");
        let script = b"return redis.call('lpush', 'a', 'w')";
        assert_eq!(c.call_args(&[b"EVAL", script, b"0"]).integer(), 1);
        assert_eq!(first.read(), bulk("w"));
        assert_eq!(last.read(), bulks(&["d", "w"]));
        // In a circle, and into itself.
        let mut one = wait_for(server, &mut c, "BLMOVE a b LEFT LEFT 0");
        let mut two = wait_for(server, &mut c, "BLMOVE b a LEFT LEFT 0");
        let mut own = wait_for(server, &mut c, "BLMOVE a a LEFT LEFT 0");
        c.call("LPUSH a x");
        assert_eq!(one.read(), bulk("x"));
        assert_eq!(two.read(), bulk("x"));
        assert_eq!(own.read(), bulk("x"));
        assert_eq!(c.call("LRANGE a 0 -1"), bulks(&["x"]));
    });
}

#[test]
fn a_call_that_fails_when_its_turn_comes_answers_and_takes_nothing() {
    with_workers(|server| {
        let mut c = Client::connect(server);
        let wrong = "WRONGTYPE Operation against a key holding the wrong kind of value";
        let mut mover = wait_for(server, &mut c, "BLMOVE q d LEFT LEFT 0");
        let mut popper = wait_for(server, &mut c, "BLPOP q 0");
        c.call("SET d string").ok();
        c.call("LPUSH q v");
        assert_eq!(mover.read().error(), wrong);
        assert_eq!(popper.read(), bulks(&["q", "v"]));
        let mut popper = wait_for(server, &mut c, "BLPOP k q 0");
        c.call("SET k string").ok();
        assert_eq!(field(&mut c, "clients", "blocked_clients"), 1);
        c.call("LPUSH q v");
        assert_eq!(popper.read().error(), wrong, "its first key comes first");
        assert_eq!(c.call("LLEN q").integer(), 1);
    });
}

#[test]
fn time_outs_come_in_time() {
    with_workers(|server| {
        let mut c = Client::connect(server);
        for call in [
            "BLPOP q 0.15",
            "BRPOP q 0.15",
            "BLMOVE q d LEFT LEFT 0.15",
            "BLMPOP 0.15 1 q LEFT",
            "BZPOPMIN z 0.15",
            "BZMPOP 0.15 1 z MIN",
            "XREAD BLOCK 150 STREAMS s $",
        ] {
            let began = Instant::now();
            assert_eq!(c.call(call), Value::Nil, "{call}");
            let took = began.elapsed();
            // The server counts whole milliseconds; the upper bound tells a wrong unit, not a busy machine.
            assert!(took >= Duration::from_millis(149), "{call}: {took:?}");
            assert!(took < Duration::from_secs(20), "{call}: {took:?}");
        }
        assert_eq!(field(&mut c, "clients", "blocked_clients"), 0);
        assert_eq!(field(&mut c, "clients", "clients_in_timeout_table"), 0);
        assert_eq!(c.call("LPUSH q v").integer(), 1);
        assert_eq!(c.call("LLEN q").integer(), 1, "nobody waits any more");
    });
}

#[test]
fn nothing_is_taken_for_a_client_that_has_gone() {
    with_workers(|server| {
        let mut c = Client::connect(server);
        for round in 0..20 {
            c.call("DEL q p");
            let mut waiting = Client::connect(server);
            let own = id(&mut waiting);
            wait_again(&mut waiting, &mut c, "BLPOP p q 0");
            match round % 4 {
                // When KILL has answered, the client has gone, whatever its worker is about.
                0 => assert_eq!(c.call(&format!("CLIENT KILL ID {own}")).integer(), 1),
                1 => {
                    drop(waiting);
                    until_blocked(&mut c, 0);
                }
                2 => {
                    waiting.stream.shutdown(std::net::Shutdown::Write).unwrap();
                    assert!(waiting.try_read().is_err(), "closed, as Redis does");
                }
                _ => assert_eq!(c.call(&format!("CLIENT UNBLOCK {own}")).integer(), 1),
            }
            assert_eq!(c.call("LPUSH q v").integer(), 1);
            assert_eq!(c.call("LLEN q").integer(), 1, "{round}");
            until_blocked(&mut c, 0);
        }
    });
}

#[test]
fn unblocking() {
    with_workers(|server| {
        let mut c = Client::connect(server);
        let mut waiting = Client::connect(server);
        let own = id(&mut waiting);
        assert_eq!(c.call(&format!("CLIENT UNBLOCK {own}")).integer(), 0);
        for (how, error) in [("", false), (" TIMEOUT", false), (" error", true)] {
            wait_again(&mut waiting, &mut c, "BLMOVE q d LEFT LEFT 0");
            assert_eq!(c.call(&format!("CLIENT UNBLOCK {own}{how}")).integer(), 1);
            match waiting.read() {
                Value::Nil => assert!(!error),
                other => assert_eq!(
                    other.error(),
                    "UNBLOCKED client unblocked via CLIENT UNBLOCK"
                ),
            }
            assert_eq!(c.call(&format!("CLIENT UNBLOCK {own}")).integer(), 0);
        }
        assert!(
            c.call(&format!("CLIENT UNBLOCK {own} MAYBE"))
                .error()
                .contains("reason should be")
        );
        until("its queue is empty", || {
            field(&mut c, "clients", "total_blocking_keys") == 0
        });
    });
}

#[test]
fn what_is_pipelined_behind_waits() {
    with_workers(|server| {
        let mut c = Client::connect(server);
        let mut waiting = Client::connect(server);
        let mut bytes = request("PING");
        for call in [
            "BLPOP q 0",
            "LLEN q",
            "BLPOP q 0",
            "BLPOP q 0.01",
            "ECHO end",
        ] {
            bytes.extend(request(call));
        }
        waiting.write(&bytes);
        assert_eq!(waiting.read(), Value::Simple("PONG".into()));
        until_blocked(&mut c, 1);
        c.call("RPUSH q 1 2");
        assert_eq!(waiting.read(), bulks(&["q", "1"]));
        assert_eq!(waiting.read().integer(), 1);
        assert_eq!(waiting.read(), bulks(&["q", "2"]));
        assert_eq!(waiting.read(), Value::Nil);
        assert_eq!(waiting.read(), bulk("end"));
    });
}

#[test]
fn where_nobody_may_wait_the_answer_comes_at_once() {
    with_workers(|server| {
        let mut c = Client::connect(server);
        let calls = [
            "BLPOP q 0",
            "BLMOVE q d LEFT LEFT 0",
            "BZPOPMIN z 0",
            "XREAD BLOCK 0 STREAMS s $",
        ];
        c.call("MULTI").ok();
        calls.iter().for_each(|call| {
            c.call(call);
        });
        assert_eq!(c.call("EXEC"), Value::Array(vec![Value::Nil; 4]));
        for call in calls {
            let mut words = vec![&b"EVAL"[..], b"return redis.call(unpack(ARGV))", b"0"];
            words.extend(call.split(' ').map(str::as_bytes));
            assert_eq!(c.call_args(&words), Value::Nil, "{call}");
        }
    });
}

#[test]
fn replies_that_were_switched_off_stay_off() {
    with_workers(|server| {
        let mut c = Client::connect(server);
        let mut waiting = Client::connect(server);
        waiting.send("CLIENT REPLY SKIP");
        wait_again(&mut waiting, &mut c, "BLPOP q 0");
        c.call("LPUSH q a");
        waiting.send("ECHO first");
        assert_eq!(waiting.read(), bulk("first"));
        waiting.send("CLIENT REPLY OFF");
        wait_again(&mut waiting, &mut c, "BLPOP q 0");
        c.call("LPUSH q a");
        waiting.send("CLIENT REPLY ON");
        waiting.read().ok();
        assert_eq!(c.call("EXISTS q").integer(), 0);
    });
}

#[test]
fn readers_of_a_stream_get_what_is_new() {
    with_workers(|server| {
        let mut c = Client::connect(server);
        let entry = |id: &str| Value::Array(vec![bulk(id), bulks(&["f", "v"])]);
        let of = |key: &str, ids: &[&str]| {
            let entries = Value::Array(ids.iter().map(|id| entry(id)).collect());
            Value::Array(vec![Value::Array(vec![bulk(key), entries])])
        };
        c.call("XADD s 1-1 f v");
        let mut readers: Vec<Client> = (0..3)
            .map(|_| wait_for(server, &mut c, "XREAD BLOCK 0 STREAMS t s $ $"))
            .collect();
        let mut later = wait_for(server, &mut c, "XREAD COUNT 1 BLOCK 0 STREAMS s 1-2");
        // The stream goes and comes again: `$` was what was last then.
        c.call("XADD s 1-2 f v");
        for reader in &mut readers {
            assert_eq!(reader.read(), of("s", &["1-2"]));
        }
        assert_eq!(field(&mut c, "clients", "blocked_clients"), 1);
        c.call("DEL s");
        c.call("SET s string").ok();
        c.call("DEL s");
        assert_eq!(field(&mut c, "clients", "blocked_clients"), 1);
        for line in [
            "MULTI",
            "XADD s 1-1 f v",
            "XADD s 1-3 f v",
            "XADD s 1-4 f v",
            "EXEC",
        ] {
            c.call(line);
        }
        assert_eq!(later.read(), of("s", &["1-3"]));
        assert_eq!(
            c.call("XREAD BLOCK 0 STREAMS s 1-1"),
            of("s", &["1-3", "1-4"])
        );
    });
}

#[test]
fn readers_of_a_group_share_what_is_new_and_hear_of_its_end() {
    with_workers(|server| {
        let mut c = Client::connect(server);
        let of = |key: &str, id: &str| {
            let entry = Value::Array(vec![bulk(id), bulks(&["f", "v"])]);
            Value::Array(vec![Value::Array(vec![
                bulk(key),
                Value::Array(vec![entry]),
            ])])
        };
        c.call("XGROUP CREATE s g $ MKSTREAM").ok();
        c.call("XGROUP CREATE t g $ MKSTREAM").ok();
        let mut first = wait_for(server, &mut c, "XREADGROUP GROUP g a BLOCK 0 STREAMS s >");
        let call = "XREADGROUP GROUP g b BLOCK 0 STREAMS t s > >";
        let mut second = wait_for(server, &mut c, call);
        c.call("XADD s 1-1 f v");
        assert_eq!(first.read(), of("s", "1-1"));
        assert_eq!(field(&mut c, "clients", "blocked_clients"), 1);
        c.call("XADD s 1-2 f v");
        assert_eq!(second.read(), of("s", "1-2"));
        let Value::Array(pending) = c.call("XPENDING s g") else {
            panic!("XPENDING answers with an array")
        };
        assert_eq!(pending[0], Value::Integer(2));
        for end in ["XGROUP DESTROY s g", "DEL s"] {
            wait_again(
                &mut first,
                &mut c,
                "XREADGROUP GROUP g a BLOCK 0 STREAMS s >",
            );
            c.call(end);
            let Value::Error(text) = first.read() else {
                panic!("{end} ends the wait with an error")
            };
            assert!(text.starts_with("NOGROUP"), "{end}");
            c.call("XGROUP CREATE s g $ MKSTREAM").ok();
        }
    });
}

/// Runs calls as one unit, in EXEC or in a script, in which a key's time then comes to its end.
fn run_until_expired(c: &mut Client, in_script: bool, calls: &[&str], key: &str) {
    let expiry = format!("PEXPIRE {key} 1");
    let calls = calls.iter().copied().chain([expiry.as_str()]);
    if in_script {
        let words = |call: &str| call.split(' ').collect::<Vec<_>>().join("','");
        let calls: String = calls
            .map(|call| format!("redis.call('{}') ", words(call)))
            .collect();
        let script = calls + &busy(20);
        assert_eq!(c.call_args(&[b"EVAL", script.as_bytes(), b"0"]), Value::Nil);
        return;
    }
    c.call("MULTI").ok();
    for call in calls.chain(["DEBUG SLEEP 0.02"]) {
        c.call(call);
    }
    for reply in c.call("EXEC").array() {
        assert!(!matches!(reply, Value::Error(_)), "{reply:?}");
    }
}

/// Regression test: a waiting client was served what had expired before its unit was over, since the clock stood still for
/// serving, too.
#[test]
fn what_has_expired_as_its_unit_ends_serves_nobody() {
    let entries = |id: &str| {
        let entry = Value::Array(vec![bulk(id), bulks(&["f", "v"])]);
        let of_key = vec![bulk("k"), Value::Array(vec![entry])];
        Value::Array(vec![Value::Array(of_key)])
    };
    let cases = [
        ("BLPOP k 0", "RPUSH k a", "RPUSH k b", bulks(&["k", "b"])),
        (
            "BLMPOP 0 1 k LEFT",
            "RPUSH k a",
            "RPUSH k b",
            Value::Array(vec![bulk("k"), bulks(&["b"])]),
        ),
        (
            "BLMOVE k d LEFT LEFT 0",
            "RPUSH k a",
            "RPUSH k b",
            bulk("b"),
        ),
        (
            "BZPOPMIN k 0",
            "ZADD k 1 a",
            "ZADD k 2 b",
            bulks(&["k", "b", "2"]),
        ),
        (
            "XREAD BLOCK 0 STREAMS k $",
            "XADD k 1-1 f v",
            "XADD k 2-1 f v",
            entries("2-1"),
        ),
    ];
    with_workers(|server| {
        let mut c = Client::connect(server);
        for (call, first, second, expected) in &cases {
            for in_script in [false, true] {
                let mut waiting = wait_for(server, &mut c, call);
                run_until_expired(&mut c, in_script, &[first], "k");
                assert_eq!(c.call("EXISTS k").integer(), 0);
                c.call(second);
                assert_eq!(
                    waiting.read(),
                    *expected,
                    "{call}, in a script: {in_script}"
                );
                c.call("DEL k d");
            }
        }
        for in_script in [false, true] {
            // The key goes with its group, and that ends a wait.
            c.call("XGROUP CREATE k g $ MKSTREAM").ok();
            let call = "XREADGROUP GROUP g a BLOCK 0 STREAMS k >";
            let mut waiting = wait_for(server, &mut c, call);
            run_until_expired(&mut c, in_script, &["XADD k 1-1 f v"], "k");
            assert!(waiting.read().error().starts_with("NOGROUP "));
            // What has expired is no destination.
            let mut waiting = wait_for(server, &mut c, "BLMOVE k d LEFT RIGHT 0");
            run_until_expired(&mut c, in_script, &["RPUSH d x", "RPUSH k a"], "d");
            assert_eq!(waiting.read(), bulk("a"));
            assert_eq!(c.call("LRANGE d 0 -1"), bulks(&["a"]));
            c.call("DEL d");
        }
        until_blocked(&mut c, 0);
    });
}

#[test]
fn a_pause_holds_back_what_it_says() {
    with_workers(|server| {
        let mut c = Client::connect(server);
        let mut writers: Vec<Client> = (0..8).map(|_| Client::connect(server)).collect();
        c.call("SET k v").ok();
        c.call("CLIENT PAUSE 100000 WRITE").ok();
        for writer in &mut writers {
            assert_eq!(writer.call("GET k"), bulk("v"));
            writer.send("INCR n");
        }
        until_blocked(&mut c, 8);
        let own = c.call("CLIENT LIST");
        let Value::Bulk(lines) = own else {
            panic!("a text")
        };
        let lines = String::from_utf8(lines).unwrap();
        assert_eq!(lines.matches(" flags=b ").count(), 8, "{lines}");
        assert_eq!(c.call("GET n"), Value::Nil);
        c.call("CLIENT UNPAUSE").ok();
        let mut sum: Vec<i64> = writers.iter_mut().map(|w| w.read().integer()).collect();
        sum.sort_unstable();
        assert_eq!(sum, (1..=8).collect::<Vec<_>>());
        // A pause of everything ends by itself.
        let began = Instant::now();
        c.call("CLIENT PAUSE 200").ok();
        for writer in &mut writers {
            writer.send("GET n");
        }
        assert_eq!(c.call("PING"), Value::Simple("PONG".into()));
        let took = began.elapsed();
        assert!(took >= Duration::from_millis(199), "{took:?}");
        for writer in &mut writers {
            assert_eq!(writer.read(), bulk("8"));
        }
    });
}

/// A function that writes ran in spite of a pause of writes, and a script that promises not to was held back.
#[test]
fn a_pause_of_writes_goes_by_what_scripts_declare() {
    let server = start(settings(2));
    let mut admin = Client::connect(&server);
    let library = b"#!lua name=lib\n\
        redis.register_function{function_name='ro', callback=function() return 1 end, flags={'no-writes'}}\n\
        redis.register_function('rw', function() return redis.call('incr', 'n') end)";
    admin.call_args(&[b"FUNCTION", b"LOAD", library]);
    let load = |client: &mut Client, script: &[u8]| {
        let Value::Bulk(sha) = client.call_args(&[b"SCRIPT", b"LOAD", script]) else {
            panic!("a name");
        };
        sha
    };
    let reads = b"#!lua flags=no-writes\nreturn 1";
    let may_write = b"#!lua\nreturn 1";
    let (reads_sha, may_write_sha) = (load(&mut admin, reads), load(&mut admin, may_write));
    let go_on: [&[&[u8]]; 6] = [
        &[b"EVAL", reads, b"0"],
        &[b"EVALSHA", &reads_sha, b"0"],
        &[b"EVAL_RO", b"return 1", b"0"],
        &[b"FCALL", b"ro", b"0"],
        &[b"FCALL_RO", b"ro", b"0"],
        &[b"FCALL_RO", b"none", b"0"],
    ];
    let held: [&[&[u8]]; 9] = [
        &[b"EVAL", may_write, b"0"],
        &[b"EVAL", b"return 1", b"0"],
        &[b"EVAL", b"#!lua flags=none\nreturn 1", b"0"],
        &[b"EVAL_RO", may_write, b"0"],
        &[b"EVALSHA", &may_write_sha, b"0"],
        &[b"EVALSHA_RO", &may_write_sha, b"0"],
        &[b"FCALL", b"rw", b"0"],
        &[b"FCALL_RO", b"rw", b"0"],
        &[b"FCALL", b"none", b"0"],
    ];
    let queued = |call: &&[&[u8]]| {
        let mut client = Client::connect(&server);
        client.call("MULTI").ok();
        assert_eq!(client.call_args(call), Value::Simple("QUEUED".into()));
        client
    };
    let mut go_on_queued: Vec<Client> = go_on.iter().map(queued).collect();
    let held_queued: Vec<Client> = held.iter().map(queued).collect();
    admin.call("CLIENT PAUSE 100000 WRITE").ok();
    for (call, queued) in go_on.iter().zip(&mut go_on_queued) {
        Client::connect(&server).call_args(call);
        assert_eq!(queued.call("EXEC").array().len(), 1);
    }
    let mut waiting = Vec::new();
    for (call, mut queued) in held.iter().zip(held_queued) {
        let mut alone = Client::connect(&server);
        alone.write(&encode(call));
        queued.send("EXEC");
        waiting.extend([alone, queued]);
        until_blocked(&mut admin, waiting.len() as u64);
    }
    assert_eq!(admin.call("GET n"), Value::Nil);
    admin.call("CLIENT UNPAUSE").ok();
    waiting.iter_mut().for_each(|client| drop(client.read()));
    assert_eq!(admin.call("GET n"), bulk("2"));
}

/// A key that a reader found expired during a pause was removed, and counted.
#[test]
fn what_expires_during_a_pause_stays_until_its_end() {
    let server = start(settings(2));
    let mut client = Client::connect(&server);
    for call in ["MULTI", "SET k v PX 1", "CLIENT PAUSE 100000 WRITE", "EXEC"] {
        client.call(call);
    }
    until("nobody sees it", || client.call("GET k") == Value::Nil);
    assert_eq!(field(&mut client, "stats", "expired_keys"), 0);
    assert_eq!(client.call("DBSIZE").integer(), 1);
    client.call("CLIENT UNPAUSE").ok();
    until("it is gone", || client.call("DBSIZE").integer() == 0);
    assert_eq!(field(&mut client, "stats", "expired_keys"), 1);
}

// ---- everything at once ---------------------------------------------------------------------------

const LISTS: u64 = 4;

struct Run<'a> {
    server: &'a Server,
    /// Producers go on.
    goes_on: AtomicBool,
    /// Consumers go on.
    drains: AtomicBool,
    produced: AtomicU64,
}

/// Pushes numbers that are never repeated, in every way there is.
fn produce(run: &Run, seed: u64) {
    let (mut client, mut rng) = (Client::connect(run.server), Rng::with_seed(seed));
    while run.goes_on.load(Ordering::Relaxed) {
        let list = rng.u64(..LISTS);
        let count = rng.u64(1..4);
        let first = run.produced.fetch_add(count, Ordering::Relaxed);
        let numbers: Vec<String> = (first..first + count).map(|n| n.to_string()).collect();
        let numbers = numbers.join(" ");
        match rng.u64(..4) {
            0 => {
                client.call("MULTI").ok();
                client.call(&format!("RPUSH in:{list} {numbers}"));
                client.call("EXEC");
            }
            1 => {
                let script = b"redis.call('rpush', KEYS[1], unpack(ARGV))";
                let key = format!("in:{list}");
                let mut words = vec![&b"EVAL"[..], script, b"1", key.as_bytes()];
                words.extend(numbers.split(' ').map(str::as_bytes));
                client.write(&encode(&words));
                assert_eq!(client.read(), Value::Nil);
            }
            _ => {
                client.call(&format!("LPUSH in:{list} {numbers}"));
            }
        }
    }
}

/// Moves numbers on, waits with short times, and is unblocked at random: what it moves it need not read.
fn carry(run: &Run, seed: u64) {
    let (mut client, mut rng) = (None, Rng::with_seed(seed));
    while run.drains.load(Ordering::Relaxed) {
        let (list, other) = (rng.u64(..LISTS), rng.u64(..LISTS));
        let timeout = rng.u64(1..20);
        let connected = client.get_or_insert_with(|| Client::connect(run.server));
        connected.send(&format!(
            "BLMOVE in:{list} out:{other} LEFT RIGHT 0.0{timeout:02}"
        ));
        // It may be killed at any time.
        if connected.try_read().is_err() || rng.u8(..20) == 0 {
            client = None;
        }
    }
}

/// Takes numbers out: what it got.
fn consume(run: &Run, seed: u64) -> Vec<u64> {
    let (mut client, mut rng) = (Client::connect(run.server), Rng::with_seed(seed));
    client.call("CLIENT SETNAME consumer").ok();
    let mut got = Vec::new();
    while run.drains.load(Ordering::Relaxed) {
        let (list, other) = (rng.u64(..LISTS), rng.u64(..LISTS));
        let timeout = rng.u64(1..20);
        let reply = client.call(&format!(
            "BLPOP out:{list} out:{other} in:{list} 0.0{timeout:02}"
        ));
        match reply {
            Value::Nil => {}
            Value::Error(text) => assert!(text.starts_with("UNBLOCKED"), "{text}"),
            other => got.push(other.array()[1].integer() as u64),
        }
    }
    got
}

/// Ends waits and clients at random; consumers are only unblocked.
fn disturb(run: &Run, seed: u64) {
    let (mut client, mut rng) = (Client::connect(run.server), Rng::with_seed(seed));
    while run.goes_on.load(Ordering::Relaxed) {
        let Value::Bulk(lines) = client.call("CLIENT LIST") else {
            panic!("a text")
        };
        let lines = String::from_utf8(lines).unwrap();
        let waiting: Vec<&str> = lines.lines().filter(|l| l.contains(" flags=b ")).collect();
        let Some(line) = rng.choice(&waiting) else {
            continue;
        };
        let id = line.strip_prefix("id=").unwrap().split(' ').next().unwrap();
        if line.contains("name=consumer") || rng.bool() {
            client.call(&format!("CLIENT UNBLOCK {id} ERROR"));
        } else {
            client.call(&format!("CLIENT KILL ID {id}"));
        }
    }
}

#[test]
fn every_element_is_received_once_or_still_there() {
    let seconds = std::env::var("REDLINE_STRESS_SECONDS").map_or(1, |text| text.parse().unwrap());
    for workers in [2, 8] {
        let server = start(settings(workers));
        let run = Run {
            server: &server,
            goes_on: AtomicBool::new(true),
            drains: AtomicBool::new(true),
            produced: AtomicU64::new(0),
        };
        let mut got = thread::scope(|scope| {
            let run = &run;
            let makers: Vec<_> = (0..3)
                .map(|n| scope.spawn(move || produce(run, n)))
                .chain([scope.spawn(move || disturb(run, 50))])
                .collect();
            let carriers: Vec<_> = (0..6)
                .map(|n| scope.spawn(move || carry(run, 100 + n)))
                .collect();
            let consumers: Vec<_> = (0..6)
                .map(|n| scope.spawn(move || consume(run, 200 + n)))
                .collect();
            thread::sleep(Duration::from_secs(seconds)); // the length of the run, not an order of events
            while run.produced.load(Ordering::Relaxed) <= 100 && !makers[0].is_finished() {
                thread::sleep(Duration::from_millis(1));
            }
            run.goes_on.store(false, Ordering::Relaxed);
            let made: Vec<_> = makers.into_iter().map(|maker| maker.join()).collect();
            run.drains.store(false, Ordering::Relaxed);
            made.into_iter().for_each(|maker| maker.unwrap());
            carriers.into_iter().for_each(|c| c.join().unwrap());
            let all = consumers.into_iter().flat_map(|c| c.join().unwrap());
            all.collect::<Vec<u64>>()
        });
        let received = got.len();
        let mut client = Client::connect(&server);
        for list in 0..LISTS {
            for side in ["in", "out"] {
                let left = client.call(&format!("LRANGE {side}:{list} 0 -1"));
                got.extend(left.array().iter().map(|n| n.integer() as u64));
            }
        }
        let produced = run.produced.load(Ordering::Relaxed);
        let mut times: BTreeMap<u64, u32> = (0..produced).map(|n| (n, 0)).collect();
        got.iter().for_each(|n| *times.entry(*n).or_default() += 1);
        let wrong: Vec<_> = times.iter().filter(|(_, times)| **times != 1).collect();
        assert!(wrong.is_empty(), "{workers} workers: {wrong:?}");
        assert!(received > 0 && produced > 100, "{received} of {produced}");
        until("nobody waits", || {
            field(&mut client, "clients", "blocked_clients") == 0
                && field(&mut client, "clients", "total_blocking_keys") == 0
                && field(&mut client, "clients", "clients_in_timeout_table") == 0
        });
    }
}

/// Fields of the line that CLIENT LIST has of a client.
fn listed(client: &mut Client, id: i64) -> String {
    let Value::Bulk(list) = client.call(&format!("CLIENT LIST ID {id}")) else {
        panic!("a bulk");
    };
    String::from_utf8(list).unwrap()
}

#[test]
fn who_asks_for_replicas_waits_for_his_time_and_hears_that_there_are_none() {
    let server = start(settings(2));
    let mut client = Client::connect(&server);
    assert_eq!(client.call("WAIT 0 0"), Value::Integer(0));
    let began = Instant::now();
    client.write(b"WAIT 1 80\r\nWAITAOF 0 1 80\r\nPING\r\n");
    assert_eq!(client.read(), Value::Integer(0));
    let none = Value::Array(vec![Value::Integer(0), Value::Integer(0)]);
    assert_eq!(client.read(), none);
    let took = began.elapsed();
    // The server counts whole milliseconds, so either wait may begin one early.
    assert!(took >= Duration::from_millis(158), "{took:?}");
    assert_eq!(client.read(), Value::Simple("PONG".into()));
    for call in ["MULTI", "WAIT 1 0", "WAITAOF 0 1 0"] {
        client.call(call);
    }
    let in_exec = client.call("EXEC");
    assert_eq!(in_exec, Value::Array(vec![Value::Integer(0), none]));
    let script = b"return redis.call('wait', 1, 0)";
    assert_eq!(
        client.call_args(&[b"EVAL", script, b"0"]),
        Value::Integer(0)
    );
    for (call, error) in [
        ("WAIT x 0", "ERR value is not an integer or out of range"),
        ("WAIT 1 -1", "ERR timeout is negative"),
        (
            "WAITAOF 2 0 0",
            "ERR value is out of range, value must between 0 and 1",
        ),
        (
            "WAITAOF 0 -1 0",
            "ERR value is out of range, must be positive",
        ),
        (
            "WAITAOF 1 0 0",
            "ERR WAITAOF cannot be used when numlocal is set but appendonly is disabled.",
        ),
    ] {
        assert_eq!(client.call(call).error(), error, "{call}");
    }
}

#[test]
fn waits_for_replicas_are_seen_ended_and_killed() {
    let server = start(settings(2));
    let (mut waits, mut other) = (Client::connect(&server), Client::connect(&server));
    let id = waits.call("CLIENT ID").integer();
    for (call, how, reply) in [
        ("WAIT 1 0", "TIMEOUT", Value::Integer(0)),
        (
            "WAITAOF 0 1 0",
            "TIMEOUT",
            Value::Array(vec![Value::Integer(0), Value::Integer(0)]),
        ),
        (
            "WAIT 1 100000",
            "ERROR",
            Value::Error("UNBLOCKED client unblocked via CLIENT UNBLOCK".into()),
        ),
    ] {
        waits.send(call);
        until("it waits", || listed(&mut other, id).contains(" flags=b "));
        let ended = other.call(&format!("CLIENT UNBLOCK {id} {how}"));
        assert_eq!(ended, Value::Integer(1));
        assert_eq!(waits.read(), reply);
    }
    waits.send("WAIT 1 0");
    until("it waits", || listed(&mut other, id).contains(" flags=b "));
    other.call(&format!("CLIENT KILL ID {id}"));
    assert_eq!(waits.drain(), 0);
}
