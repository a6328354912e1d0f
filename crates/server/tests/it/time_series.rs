//! Time series among other values: files, rewritten commands, copies, rights, EXEC, settings. What single calls answer is
//! in `types_replay`.

use std::time::{Duration, Instant};

use crate::client::{Client, Value, settings, start};
use redline_keyspace::{Unit, lock::StripeSet};
use redline_server::{Permission, Server, Settings};

const FILL: &[&str] = &[
    "TS.CREATE raw CHUNK_SIZE 128 RETENTION 100000 LABELS kind raw room a",
    "TS.CREATE avg ENCODING UNCOMPRESSED LABELS kind avg room a",
    "TS.CREATE twa LABELS kind twa",
    "TS.CREATERULE raw avg AGGREGATION avg 100",
    "TS.CREATERULE raw twa AGGREGATION twa 70 5",
    "TS.CREATE empty LABELS kind none",
];

fn server(folder: &tempfile::TempDir) -> Server {
    let file = folder.path().join("dump.rdb");
    start(Settings {
        enable_debug_command: Permission::Yes,
        db_filename: file.to_str().unwrap().into(),
        ..settings(2)
    })
}

fn filled() -> (Server, Client, tempfile::TempDir) {
    let folder = tempfile::tempdir().unwrap();
    let server = server(&folder);
    let mut client = Client::connect(&server);
    for call in FILL {
        client.call(call).ok();
    }
    for at in 0..500 {
        let time = at * 13;
        let added = client.call(&format!("TS.ADD raw {time} {}.5", at % 23));
        assert_eq!(added.integer(), time);
    }
    (server, client, folder)
}

/// Returns the contents of series, rules and index.
fn all(client: &mut Client) -> Vec<Value> {
    let calls = [
        "TS.RANGE raw - +",
        "TS.RANGE avg - + LATEST",
        "TS.RANGE twa - + LATEST",
        "TS.QUERYINDEX kind=(raw,avg,twa,none)",
        "TS.MGET LATEST WITHLABELS FILTER room=a",
        "TS.INFO empty",
    ];
    let mut said: Vec<Value> = calls.iter().map(|call| client.call(call)).collect();
    for key in ["raw", "avg", "twa"] {
        // All but the memory, which depends on what was appended where.
        let mut facts = client.call(&format!("TS.INFO {key}")).array().to_vec();
        facts.drain(2..4);
        said.push(Value::Array(facts));
    }
    assert!(
        !said.iter().any(|value| matches!(value, Value::Error(_))),
        "{said:?}"
    );
    said
}

#[test]
fn a_file_brings_series_rules_and_labels_back() {
    let (_server, mut client, _folder) = filled();
    let (before, digest) = (all(&mut client), client.call("DEBUG DIGEST"));
    client.call("DEBUG RELOAD").ok();
    assert_eq!(client.call("DEBUG DIGEST"), digest);
    assert_eq!(all(&mut client), before);
    // The rules go on where they were.
    client.call("TS.ADD raw 7000 1").integer();
    let last = client.call("TS.GET avg");
    assert_eq!(last.array()[0].integer(), 6400);
}

#[test]
fn a_rule_works_inside_exec_and_a_script() {
    let (_server, mut client, _folder) = filled();
    client.call("MULTI").ok();
    client.call("TS.ADD raw 7000 1");
    client.call("TS.MGET FILTER kind=avg");
    let replies = client.call("EXEC");
    assert_eq!(replies.array()[0].integer(), 7000);
    let hits = replies.array()[1].array();
    assert_eq!(hits[0].array()[2].array()[0].integer(), 6400);
    let script = b"return redis.call('TS.ADD', KEYS[1], 7200, 1)";
    let added = client.call_args(&[b"EVAL", script, b"1", b"raw"]);
    assert_eq!(added.integer(), 7200);
    assert_eq!(client.call("TS.GET avg").array()[0].integer(), 7000);
}

#[test]
fn a_filter_tells_nothing_of_keys_that_may_not_be_read() {
    let (server, mut client, _folder) = filled();
    client.call("ACL SETUSER few on nopass ~avg +@all").ok();
    let mut few = Client::connect(&server);
    few.call("AUTH few x").ok();
    assert!(few.call("TS.GET avg").array().len() == 2);
    for call in ["TS.MGET FILTER room=a", "TS.MRANGE - + FILTER room=a"] {
        let error = few.call(call).error().to_owned();
        assert!(error.starts_with("NOPERM "), "{call}: {error}");
    }
}

#[test]
fn a_payload_a_copy_and_a_new_name_have_no_rules() {
    let (_server, mut client, _folder) = filled();
    let told =
        |client: &mut Client, key: &[u8]| client.call_args(&[b"DEBUG", b"DIGEST-VALUE", key]);
    let before = told(&mut client, b"raw");
    let Value::Bulk(payload) = client.call("DUMP raw") else {
        panic!("a payload");
    };
    client
        .call_args(&[b"RESTORE", b"restored", b"0", &payload])
        .ok();
    assert_eq!(client.call("COPY raw copied").integer(), 1);
    client.call("RENAME raw renamed").ok();
    for key in ["restored", "copied", "renamed"] {
        assert_eq!(told(&mut client, key.as_bytes()), before);
        client.call(&format!("TS.ADD {key} 9000 1")).integer();
        assert!(client.call("MEMORY USAGE copied").integer() > 1000);
    }
    assert_eq!(client.call("TS.GET avg").array()[0].integer(), 6300);
    let keys = client.call("TS.QUERYINDEX kind=raw");
    assert_eq!(keys.array().len(), 3);
}

#[test]
fn a_call_on_many_series_never_ended_while_each_stripe_was_in_use_at_times() {
    let folder = tempfile::tempdir().unwrap();
    let server = server(&folder);
    let mut client = Client::connect(&server);
    let space = server.keyspace();
    // Stripes of the series: those of even numbers, and of odd ones.
    let mut sets = [StripeSet::EMPTY, StripeSet::EMPTY];
    for at in 0..32 {
        let key = format!("series:{at}");
        client.call(&format!("TS.CREATE {key} LABELS kind x")).ok();
        let stripe = space.place(key.as_bytes()).stripe();
        sets[usize::from(stripe % 2)].insert(stripe);
    }
    assert!(!sets.iter().any(StripeSet::is_empty));
    let take = |set| {
        // In the way may be the call, for a moment. What is longer in the way is reserved.
        let mut tries = (0..10_000).map(|_| {
            std::thread::yield_now();
            Unit::try_set(space, set, false).ok()
        });
        tries.find_map(|unit| unit)
    };
    let mut other = Client::connect(&server);
    let mut held = take(&sets[0]).expect("nobody uses them");
    client.send("TS.MGET FILTER kind=x");
    let deadline = Instant::now() + Duration::from_secs(10);
    for turn in 1.. {
        let Some(next) = take(&sets[turn % 2]) else {
            break;
        };
        drop(std::mem::replace(&mut held, next));
        other.call("PING");
        assert!(Instant::now() < deadline, "it begins again and again");
    }
    drop(held);
    assert_eq!(client.read().array().len(), 32);
}

#[test]
fn settings_say_what_a_new_series_is_like() {
    let (_server, mut client, _folder) = filled();
    let set = |client: &mut Client, name: &str, value: &str| {
        client.call(&format!("CONFIG SET {name} {value}"))
    };
    for (name, value, fact, expected) in [
        ("ts-retention-policy", "500", 9, Value::Integer(500)),
        ("ts-chunk-size-bytes", "256", 13, Value::Integer(256)),
        (
            "ts-encoding",
            "uncompressed",
            15,
            Value::Simple("uncompressed".into()),
        ),
        (
            "ts-duplicate-policy",
            "sum",
            17,
            Value::Simple("sum".into()),
        ),
        ("ts-ignore-max-time-diff", "7", 25, Value::Integer(7)),
        (
            "ts-ignore-max-val-diff",
            "1.5",
            27,
            Value::Bulk(b"1.5".to_vec()),
        ),
    ] {
        set(&mut client, name, value).ok();
        client.call("DEL new");
        client.call("TS.CREATE new").ok();
        assert_eq!(client.call("TS.INFO new").array()[fact], expected, "{name}");
    }
    for (name, value) in [
        ("ts-chunk-size-bytes", "100"),
        ("ts-ignore-max-val-diff", "-1"),
        ("ts-ignore-max-val-diff", "x"),
    ] {
        set(&mut client, name, value).error();
    }
}
