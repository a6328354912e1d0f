//! Advisories for servers of this kind: each is a test, here or where the table says. Must not know the server's insides.
//!
//! | what was wrong elsewhere | test |
//! |---|---|
//! | CVE-2025-49844, CVE-2024-46981: the interpreter frees what is in use | `redline-scripting`: `cve_2025_49844_the_parser_survives_collections`, `cve_2024_46981_collections_in_the_middle_harm_nothing` |
//! | CVE-2025-46817: ranges in Lua's library | `redline-scripting`: `cve_2025_46817_ranges_do_not_overflow` |
//! | CVE-2025-46818: metatables of basic types | `redline-scripting`: `a_script_leaves_nothing_for_the_next`, `cve_2025_46818_strings_of_others_have_no_methods_of_mine` |
//! | CVE-2025-46819: long brackets | `redline-scripting`: `cve_2025_46819_long_brackets_end_with_the_text` |
//! | CVE-2024-31449: `bit.tohex` | `redline-scripting`: `cve_2024_31449_tohex_has_at_most_eight_digits` |
//! | CVE-2022-24834: cjson and cmsgpack | `redline-scripting`: `cve_2022_24834_lengths_of_json_and_msgpack_do_not_overflow` |
//! | CVE-2018-11218, CVE-2018-11219, CVE-2020-14147: cmsgpack, struct | `redline-scripting`: the tests of these names |
//! | CVE-2022-0543: a library left in the sandbox; compiled code | `redline-scripting`: `a_script_leaves_nothing_for_the_next`, `compiled_code_is_refused` |
//! | scripts without end, deep nesting, memory | `redline-scripting`: `endless_scripts_can_be_killed_at_once`, `greedy_scripts_end_in_an_error`, `nested_scripts_leave_the_native_stack_whole` |
//! | CVE-2025-67733: replies injected by scripts | `redline-scripting`: `cve_2025_67733_replies_cannot_be_injected` |
//! | CVE-2016-10517: a browser's form taken for calls | `cve_2016_10517_what_a_browser_sends_is_not_taken_for_calls` |
//! | CVE-2026-27623: empty requests | `cve_2026_27623_empty_requests_are_nothing` |
//! | CVE-2025-21605: output of who has not authenticated | `bad_input`: `who_is_not_authenticated_and_never_reads_is_closed`; here `a_flood_of_wrong_passwords_is_answered_or_closed` |
//! | CVE-2021-32675: lengths before authentication | `bad_input`: `protocol_errors_are_worded_as_redis_words_them_and_end_the_connection`, `lying_lengths_cost_no_memory` |
//! | CVE-2023-41056: buffers of queries and arguments that are resized | `cve_2023_41056_arguments_that_arrive_in_pieces_are_whole` |
//! | CVE-2026-25243 and its kin: payloads of RESTORE | `redline-rdb`: `lies_about_lengths_are_refused_in_every_form`, `lies_inside_a_stream_are_refused`, `damaged_bodies_are_refused_or_are_values`; the fuzz targets `restore` and `stream` |
//! | CVE-2025-32023, CVE-2019-10192, CVE-2019-10193: HyperLogLogs | `redline-types` and `redline-commands`: `runs_that_overflow_the_registers_are_refused`, `what_is_no_hyperloglog_is_refused`; the fuzz target `hll` |
//! | CVE-2021-29477: LCS | `redline-types`: `the_table_is_bounded_before_it_is_allocated`; here `cve_2021_29477_a_common_subsequence_has_a_bound` |
//! | CVE-2022-35951: COUNT of XAUTOCLAIM | `cve_2022_35951_no_count_of_xautoclaim_is_too_large` |
//! | CVE-2023-22458: the smallest count of HRANDFIELD and ZRANDMEMBER | `cve_2023_22458_the_smallest_counts_are_refused`, `elements_drawn_with_repetition_have_a_bound` |
//! | other numbers at their ends | `numbers_at_their_ends_harm_nothing`; the fuzz target `commands` |
//! | CVE-2022-36021, CVE-2024-31228: patterns | `redline-types`: `a_hostile_pattern_takes_no_longer_than_its_length_times_the_text`; here `cve_2024_31228_patterns_of_stars_end_soon` |
//! | CVE-2026-23479: a client that goes while it is served | `blocking`: `nothing_is_taken_for_a_client_that_has_gone`; here `cve_2026_23479_who_is_killed_by_the_unit_that_serves_harms_nobody`; the step `histories` of `cargo xtask compat` |
//! | CVE-2023-41053: keys of SORT_RO | `cve_2023_41053_sort_reads_no_key_that_its_user_may_not` |
//! | CVE-2024-51741: selectors that are malformed | `cve_2024_51741_malformed_selectors_are_refused`; `redline-acl`: `wrong_rules_change_nothing_and_are_named` |
//! | CVE-2023-45145: a unix socket that is open for a moment | `redline-net`: `a_unix_socket_has_its_mode_and_leaves_with_its_listener` (its mode is set before it listens) |
//! | hash flooding | `two_servers_have_two_orders`; `redline-table`: `equals_the_reference_at_every_length` |
//! | replies that grow without end | `bad_input`, `limits`, `client_memory`, `tracking`, `monitor` |
//! | memory of a script or a pipeline that has nothing to show for it | `greedy` |
//! | CVE-2026-81934: TLS | `tls`: `damaged_messages_of_the_handshake_never_end_the_server`; the records are rustls's |
//!
//! CVE-2026-23631 and CVE-2026-21863 are of replication and of the cluster bus, which are not there; CVE-2026-25588 and
//! CVE-2026-25589 of types that are not.

use std::{io::Write, thread};

use crate::alone;
use crate::client::{Client, Value, encode, request, resident_bytes, settings, start, until};
use fastrand::Rng;
use redline_server::{Server, Settings};
use redline_spec::{self as spec, Plane};
use redline_testkit::generate::Generator;

const MIB: usize = 1024 * 1024;

fn with_password() -> Server {
    start(Settings {
        requirepass: Some(b"secret".to_vec()),
        ..settings(2)
    })
}

#[test]
fn cve_2026_27623_empty_requests_are_nothing() {
    let _alone = alone();
    let server = with_password();
    let empty = b"*0\r\n*-1\r\n\r\n*-5\r\n\n".repeat(20_000);
    let mut client = Client::connect(&server);
    client.write(&empty);
    client.call("AUTH secret").ok();
    client.write(&empty);
    assert_eq!(client.call("PING"), Value::Simple("PONG".into()));
    // However it is cut.
    let session =
        b"*0\r\n*-1\r\n\r\n*2\r\n$4\r\nAUTH\r\n$6\r\nsecret\r\n*0\r\n*1\r\n$4\r\nPING\r\n*-1\r\nPING\r\n";
    for at in 1..session.len() {
        let mut client = Client::connect(&server);
        client.write(&session[..at]);
        client.write(&session[at..]);
        client.read().ok();
        for _ in 0..2 {
            assert_eq!(client.read(), Value::Simple("PONG".into()), "cut at {at}");
        }
    }
}

#[test]
fn a_flood_of_wrong_passwords_is_answered_or_closed() {
    let _alone = alone();
    let server = with_password();
    let before = resident_bytes();
    let mut client = Client::connect(&server);
    let flood = [
        request("HELLO 3 AUTH default wrong SETNAME x"),
        request("AUTH wrong"),
        request("AUTH nobody wrong"),
    ]
    .concat()
    .repeat(20_000);
    let mut writer = client.stream.try_clone().unwrap();
    let answered = thread::scope(|scope| {
        scope.spawn(move || drop(writer.write_all(&flood)));
        let mut answered = 0;
        while answered < 60_000 {
            match client.try_read() {
                Ok(reply) => assert!(reply.error().starts_with("WRONGPASS"), "{reply:?}"),
                Err(_) => break,
            }
            answered += 1;
        }
        answered
    });
    assert!(answered > 0);
    let grown = resident_bytes().saturating_sub(before);
    assert!(grown < 200 * MIB, "{grown} bytes");
    let mut other = Client::connect(&server);
    other.call("AUTH secret").ok();
}

#[test]
fn cve_2023_41056_arguments_that_arrive_in_pieces_are_whole() {
    let _alone = alone();
    let server = start(settings(2));
    let mut client = Client::connect(&server);
    let mut rng = Rng::with_seed(5);
    for size in [16, 32, 64, 128].map(|kib| kib * 1024) {
        for bytes in [size - 40, size - 1, size, size + 1, size + 40] {
            let value: Vec<u8> = (0..bytes).map(|at| (at % 251) as u8).collect();
            let calls = [
                encode(&[b"SET", b"k", &value]),
                request("STRLEN k"),
                encode(&[b"ECHO", &value]),
            ]
            .concat();
            let mut rest = &calls[..];
            while !rest.is_empty() {
                let (piece, left) = rest.split_at(rng.usize(1..=rest.len().min(40_000)));
                client.write(piece);
                rest = left;
            }
            client.read().ok();
            assert_eq!(client.read(), Value::Integer(bytes as i64));
            assert!(client.read() == Value::Bulk(value), "{bytes} bytes");
        }
    }
}

#[test]
fn cve_2021_29477_a_common_subsequence_has_a_bound() {
    let _alone = alone();
    let server = start(settings(2));
    let mut client = Client::connect(&server);
    for key in ["a", "b"] {
        let value = vec![b'x'; 60_000];
        client.call_args(&[b"SET", key.as_bytes(), &value]).ok();
    }
    let before = resident_bytes();
    for call in ["LCS a b", "LCS a b LEN", "LCS a b IDX MINMATCHLEN 1"] {
        let words: Vec<&[u8]> = call.split(' ').map(str::as_bytes).collect();
        let reply = client.call_args(&words);
        assert!(
            reply.error().starts_with("ERR Insufficient memory"),
            "{reply:?}"
        );
    }
    assert!(resident_bytes().saturating_sub(before) < 200 * MIB);
    client.call("SET a ohmytext").ok();
    client.call("SET b mynewtext").ok();
    for length in ["9223372036854775807", "-9223372036854775808", "0"] {
        let reply = client.call(&format!("LCS a b IDX MINMATCHLEN {length} WITHMATCHLEN"));
        assert_eq!(reply.array().len(), 4);
    }
}

#[test]
fn cve_2022_35951_no_count_of_xautoclaim_is_too_large() {
    let _alone = alone();
    let server = start(settings(2));
    let mut client = Client::connect(&server);
    client.call("XADD s 1-1 f v");
    client.call("XGROUP CREATE s g 0").ok();
    client.call("XREADGROUP GROUP g c STREAMS s >");
    for count in [
        "9223372036854775807",
        "4611686018427387904",
        "1152921504606846975",
        "1",
    ] {
        let reply = client.call(&format!("XAUTOCLAIM s g c 0 0 COUNT {count}"));
        match &reply {
            Value::Array(parts) => assert_eq!(parts[1].array().len(), 1),
            reply => assert_eq!(reply.error(), "ERR COUNT must be > 0", "{count}"),
        }
    }
    for count in ["0", "-1", "-9223372036854775808", "9223372036854775808"] {
        client
            .call(&format!("XAUTOCLAIM s g c 0 0 COUNT {count}"))
            .error();
    }
}

/// A hash, a set, a sorted set and a vector set of one element, and how elements are drawn from them.
const DRAWS: [&str; 7] = [
    "HRANDFIELD h",
    "HRANDFIELD h N WITHVALUES",
    "SRANDMEMBER s",
    "ZRANDMEMBER z",
    "ZRANDMEMBER z N WITHSCORES",
    "VRANDMEMBER v",
    "HRANDFIELD large N WITHVALUES",
];

fn filled(client: &mut Client) {
    for call in [
        "HSET h f v",
        "SADD s m",
        "ZADD z 1 m",
        "VADD v VALUES 1 1 m",
    ] {
        assert_eq!(client.call(call), Value::Integer(1));
    }
    let value = vec![b'v'; 10_000];
    client.call_args(&[b"HSET", b"large", b"f", &value]);
}

fn draw(call: &str, count: &str) -> Vec<u8> {
    match call.contains('N') && call.contains(" N ") {
        true => request(&call.replace(" N ", &format!(" {count} "))),
        false => request(&format!("{call} {count}")),
    }
}

#[test]
fn cve_2023_22458_the_smallest_counts_are_refused() {
    let _alone = alone();
    let server = start(settings(2));
    let mut client = Client::connect(&server);
    filled(&mut client);
    for call in DRAWS {
        client.write(&draw(call, "-9223372036854775808"));
        let reply = client.read();
        assert!(reply.error().contains("out of range"), "{call}: {reply:?}");
    }
}

#[test]
fn elements_drawn_with_repetition_have_a_bound() {
    let _alone = alone();
    let server = start(settings(2).with(|settings| settings.bulk_bytes_max = MIB as u64));
    let mut client = Client::connect(&server);
    filled(&mut client);
    let before = resident_bytes();
    for call in DRAWS {
        for count in ["-4611686018427387903", "-2147483648", "-10000000"] {
            client.write(&draw(call, count));
            let reply = client.read();
            assert!(
                reply
                    .error()
                    .starts_with("ERR reply exceeds maximum allowed size"),
                "{call} {count}: {reply:?}"
            );
        }
        client.write(&draw(call, "-50"));
        assert!(client.read().array().len() >= 50);
    }
    let grown = resident_bytes().saturating_sub(before);
    assert!(grown < 200 * MIB, "{grown} bytes");
}

#[test]
fn numbers_at_their_ends_harm_nothing() {
    const ENDS: [&str; 26] = [
        "9223372036854775807",
        "9223372036854775806",
        "9223372036854775808",
        "-9223372036854775808",
        "-9223372036854775807",
        "-9223372036854775809",
        "18446744073709551615",
        "4294967295",
        "4294967296",
        "2147483647",
        "2147483648",
        "-2147483648",
        "-2147483649",
        "9007199254740993",
        "0",
        "-0",
        "-1",
        "",
        " 1",
        "+1",
        "0x10",
        "nan",
        "-inf",
        "1e400",
        "1.7976931348623157e308",
        "99999999999999999999999999999999999999999999999999",
    ];
    let _alone = alone();
    let server = start(settings(2).with(|settings| {
        // So that what may be as large as a string may is not half a GiB each time.
        settings.bulk_bytes_max = MIB as u64;
    }));
    let mut client = Client::connect(&server);
    let mut generator = Generator::new(11);
    let mut rng = Rng::with_seed(11);
    let before = resident_bytes();
    let mut calls = 0;
    while calls < 20_000 {
        for call in generator.batch() {
            let words: Vec<&[u8]> = call.iter().map(Vec::as_slice).collect();
            let id = spec::resolve(words[0], words.get(1).copied());
            let data = id.is_ok_and(|id| spec::gate(id).plane == Plane::Data);
            if !data || words.len() < 2 {
                continue;
            }
            for _ in 0..2 {
                let mut words = words.clone();
                // Not the key, nearly always.
                let at = rng.usize(1..words.len()).max(rng.usize(1..words.len()));
                words[at] = ENDS[rng.usize(..ENDS.len())].as_bytes();
                // In a transaction nobody waits.
                let all = [request("MULTI"), encode(&words), request("EXEC")].concat();
                client.write(&all);
                for _ in 0..3 {
                    // A call without end is one that outlasts the client's patience.
                    client.try_read().unwrap_or_else(|error| {
                        let words = words.iter().map(|word| word.escape_ascii().to_string());
                        panic!("{:?}: {error}", words.collect::<Vec<_>>())
                    });
                }
                calls += 1;
            }
        }
    }
    let grown = resident_bytes().saturating_sub(before);
    assert!(grown < 500 * MIB, "{grown} bytes");
    assert_eq!(client.call("PING"), Value::Simple("PONG".into()));
}

#[test]
fn cve_2024_31228_patterns_of_stars_end_soon() {
    let _alone = alone();
    let server = start(settings(2));
    let mut client = Client::connect(&server);
    let name = vec![b'a'; 300];
    client.call_args(&[b"SET", &name, b"v"]).ok();
    client.call_args(&[b"HSET", b"h", &name, b"v"]);
    let mut subscriber = Client::connect(&server);
    // Tried in each way that stars can match, these would outlast the clients' patience.
    for pattern in [
        b"*a".repeat(2_000),
        [b"*a".repeat(300), b"b".to_vec()].concat(),
        [b"a*".repeat(900), b"b".to_vec()].concat(),
        [b"*".repeat(5_000), b"b".to_vec()].concat(),
        [b"*[a-z]".repeat(900), b"B".to_vec()].concat(),
        b"[".repeat(5_000),
        b"[^".repeat(2_000),
        b"\\".repeat(5_001),
        b"*[".repeat(2_000),
        [b"[".to_vec(), b"a-".repeat(2_000)].concat(),
    ] {
        for call in [
            &[b"KEYS", &pattern[..]][..],
            &[b"SCAN", b"0", b"MATCH", &pattern, b"COUNT", b"100"],
            &[b"HSCAN", b"h", b"0", b"MATCH", &pattern],
            &[b"PUBSUB", b"CHANNELS", &pattern],
            &[b"CONFIG", b"GET", &pattern],
            &[b"COMMAND", b"LIST", b"FILTERBY", b"PATTERN", &pattern],
            &[b"FUNCTION", b"LIST", b"LIBRARYNAME", &pattern],
            &[b"ACL", b"DRYRUN", b"default", b"GET", &pattern],
            &[
                b"ACL",
                b"SETUSER",
                b"u",
                b"resetkeys",
                &[b"~", &pattern[..]].concat(),
            ],
            &[b"ACL", b"DRYRUN", b"u", b"GET", &name],
            &[b"ACL", b"GETUSER", b"u"],
        ] {
            client.call_args(call);
        }
        subscriber.call_args(&[b"PSUBSCRIBE", &pattern]);
        client.call_args(&[b"PUBLISH", &name, b"m"]);
        subscriber.write(&encode(&[b"PUNSUBSCRIBE", &pattern]));
        until(
            "the pattern is given up",
            || matches!(subscriber.read(), Value::Array(parts) if parts[0] == Value::Bulk(b"punsubscribe".to_vec())),
        );
    }
}

#[test]
fn cve_2026_23479_who_is_killed_by_the_unit_that_serves_harms_nobody() {
    let _alone = alone();
    for workers in [1, 2] {
        let server = start(settings(workers));
        let mut admin = Client::connect(&server);
        for round in 0..100 {
            let mut waiters: Vec<Client> = (0..3).map(|_| Client::connect(&server)).collect();
            let ids: Vec<i64> = waiters
                .iter_mut()
                .map(|waiter| waiter.call("CLIENT ID").integer())
                .collect();
            for (at, waiter) in waiters.iter_mut().enumerate() {
                waiter.send(
                    ["BLPOP l 0", "BLMOVE l m LEFT RIGHT 0", "BRPOP l m 0"][(at + round) % 3],
                );
                until("it waits", || {
                    match admin.call(&format!("CLIENT LIST ID {}", ids[at])) {
                        Value::Bulk(line) => line.windows(7).any(|word| word == b"flags=b"),
                        other => panic!("{other:?}"),
                    }
                });
            }
            // The first is served, or gone: not both, and what it did not get the others do.
            let mut unit = vec![request("MULTI"), request("RPUSH l one two three")];
            unit.insert(
                1 + round % 2,
                request(&format!("CLIENT KILL ID {}", ids[0])),
            );
            unit.push(request("EXEC"));
            admin.write(&unit.concat());
            (0..3).for_each(|_| drop(admin.read()));
            let replies = admin.read();
            assert_eq!(replies.array()[round % 2], Value::Integer(1), "{replies:?}");
            let got: Vec<Option<Value>> = waiters
                .iter_mut()
                .map(|waiter| waiter.try_read().ok())
                .collect();
            let served = got.iter().flatten().count();
            assert!(served >= 2, "{got:?}");
            let mut left = 0;
            for list in ["l", "m"] {
                left += admin.call(&format!("LLEN {list}")).integer() as usize;
            }
            admin.call("DEL l m");
            let moved = got.iter().flatten();
            let moved = moved.filter(|reply| matches!(reply, Value::Bulk(_)));
            let moved = moved.count().min(1);
            // What was moved may have gone on to who waited for the other list as well.
            assert!(
                left + served >= 3 && left + served <= 3 + moved,
                "{got:?}, {left} left"
            );
        }
        // A group that is destroyed, or a key that becomes something else, ends the wait.
        admin.call("XGROUP CREATE s g $ MKSTREAM").ok();
        for change in [
            "DEL s",
            "XGROUP DESTROY s g",
            "SET s v",
            "FLUSHALL",
            "RENAME other s",
        ] {
            let mut waiter = Client::connect(&server);
            waiter.send("XREADGROUP GROUP g c BLOCK 0 STREAMS s >");
            until("it waits", || {
                admin.call("INFO clients") != Value::Nil
                    && match admin.call("CLIENT LIST TYPE normal") {
                        Value::Bulk(lines) => lines.windows(7).any(|word| word == b"flags=b"),
                        other => panic!("{other:?}"),
                    }
            });
            admin.call("RPUSH other x");
            admin.call(change);
            waiter.read().error();
            admin.call("DEL s other");
            admin.call("XGROUP CREATE s g $ MKSTREAM");
        }
    }
}

#[test]
fn cve_2023_41053_sort_reads_no_key_that_its_user_may_not() {
    let _alone = alone();
    let server = start(settings(2));
    let mut admin = Client::connect(&server);
    for call in ["RPUSH mine:l 1 2", "SET secret:1 a", "SET secret:2 b"] {
        admin.call(call);
    }
    admin.call("ACL SETUSER u on nopass ~mine:* +@all").ok();
    let mut client = Client::connect(&server);
    client.call("AUTH u x").ok();
    for call in [
        "SORT_RO secret:l",
        "SORT_RO mine:l BY secret:*",
        "SORT_RO mine:l GET secret:*",
        "SORT mine:l GET mine:* GET secret:*",
        "SORT mine:l BY secret:*->f",
        "SORT mine:l STORE secret:out",
        "SORT_RO mine:l BY nosort GET secret:*",
    ] {
        let refused = client.call(call);
        let text = refused.error();
        assert!(
            text.starts_with("NOPERM") || text.contains("denied"),
            "{call}: {text}"
        );
    }
    assert_eq!(client.call("SORT_RO mine:l").array().len(), 2);
}

#[test]
fn cve_2024_51741_malformed_selectors_are_refused() {
    let _alone = alone();
    let server = start(settings(2));
    let mut client = Client::connect(&server);
    for rule in [
        "(",
        ")",
        "()(",
        "((",
        "(+get",
        "+get)",
        "(~)",
        "(%)",
        "(%R)",
        "(%R~",
        "%",
        "%~",
        "%RX~k",
        "(%RW",
        "(+)",
        "(-)",
        "(@)",
        "(+@)",
        "(+get|)",
        "(+|)",
        "(&)",
        "(>p)",
        "(on)",
        "(reset)",
        "(clearselectors)",
        "(+get ~k",
    ] {
        let reply = client.call_args(&[b"ACL", b"SETUSER", b"u", rule.as_bytes()]);
        match &reply {
            Value::Error(text) => assert!(text.starts_with("ERR "), "{rule}: {text}"),
            // What is no error must be printable, and readable again.
            Value::Simple(_) => {}
            other => panic!("{rule}: {other:?}"),
        }
        client.call("ACL GETUSER u");
        let lines = client.call("ACL LIST");
        for line in lines.array() {
            let Value::Bulk(line) = line else {
                panic!("{line:?}")
            };
            let line = String::from_utf8(line.clone()).unwrap();
            let words = line
                .strip_prefix("user u ")
                .map(|rules| format!("ACL SETUSER again {rules}"));
            if let Some(words) = words {
                client.call(words.trim_end()).ok();
            }
        }
    }
    assert_eq!(client.call("PING"), Value::Simple("PONG".into()));
}

#[test]
fn two_servers_have_two_orders() {
    let _alone = alone();
    // The key of the hash is the process's: what one server answers tells nothing of another.
    let order = |server: &Server| {
        let mut client = Client::connect(server);
        for key in 0..64 {
            client.call(&format!("SET k:{key} v")).ok();
        }
        client.call("KEYS *")
    };
    let program = std::env::current_exe().unwrap();
    if let Ok(mine) = std::env::var("REDLINE_ORDER_OF") {
        let text = format!("{:?}", order(&start(settings(1))));
        std::fs::write(mine, text).unwrap();
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let orders: Vec<String> = (0..2)
        .map(|number| {
            let path = folder.path().join(number.to_string());
            let done = std::process::Command::new(&program)
                .args(["--exact", "security::two_servers_have_two_orders"])
                .env("REDLINE_ORDER_OF", &path)
                .output()
                .unwrap();
            assert!(done.status.success(), "{done:?}");
            std::fs::read_to_string(path).unwrap()
        })
        .collect();
    assert_ne!(orders[0], orders[1]);
}

#[test]
fn cve_2016_10517_what_a_browser_sends_is_not_taken_for_calls() {
    let _alone = alone();
    let server = start(settings(1));
    let large = vec![b'x'; 100_000];
    let mut owner = Client::connect(&server);
    owner.call_args(&[b"SET", b"large", &large]).ok();
    for lines in [
        "POST / HTTP/1.1\r\nSET k v\r\n",
        "GET / HTTP/1.1\r\nhost: x\r\nSET k v\r\n",
        "*1\r\n$4\r\npost\r\nSET k v\r\n",
        "MULTI\r\nPOST / HTTP/1.1\r\nSET k v\r\nEXEC\r\n",
        "CLIENT REPLY OFF\r\nPOST / HTTP/1.1\r\nSET k v\r\n",
        "GET large\r\nCLIENT REPLY SKIP\r\nHost: x\r\nSET k v\r\n",
    ] {
        let mut browser = Client::connect(&server);
        browser.write(lines.as_bytes());
        let error = browser.try_read().expect_err("the connection has ended");
        assert_ne!(error.kind(), std::io::ErrorKind::WouldBlock, "{lines:?}");
    }
    assert_eq!(Client::connect(&server).call("EXISTS k").integer(), 0);
}
