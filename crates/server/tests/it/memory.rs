//! MEMORY from outside, and what goes with it. Must not know the server's insides.

use crate::client::{Client, Value, settings, start, until};
use redline_server::Server;

fn server() -> Server {
    start(settings(2))
}

#[track_caller]
fn text(value: &Value) -> String {
    match value {
        Value::Bulk(bytes) => String::from_utf8(bytes.clone()).unwrap(),
        other => panic!("no text: {other:?}"),
    }
}

/// A figure of MEMORY STATS.
#[track_caller]
fn figure(client: &mut Client, name: &str) -> Value {
    figure_of(&client.call("MEMORY STATS"), name)
}

/// A figure of an answer to it.
#[track_caller]
fn figure_of(stats: &Value, name: &str) -> Value {
    let mut pairs = stats.array().chunks(2);
    let found = pairs.find(|pair| text(&pair[0]) == name);
    found.unwrap_or_else(|| panic!("{name} in {stats:?}"))[1].clone()
}

#[test]
fn stats_tell_what_the_data_takes() {
    let server = server();
    let mut client = Client::connect(&server);
    for number in 0..2000 {
        client.call(&format!("SET key:{number} value EX 1000")).ok();
    }
    client.call("SELECT 3").ok();
    client.call("SET k v").ok();
    // Workers hand their accounts over in steps, and at every tick: before all have, the tables alone may be more than what is
    // counted. All figures are of one answer.
    let mut stats = Value::Nil;
    until("the keys are counted", || {
        stats = client.call("MEMORY STATS");
        figure_of(&stats, "dataset.bytes").integer() > 2001 * 8
    });
    let number = |name: &str| figure_of(&stats, name).integer();
    assert_eq!(number("keys.count"), 2001);
    let (total, overhead) = (number("total.allocated"), number("overhead.total"));
    let startup = number("startup.allocated");
    assert_eq!(number("dataset.bytes"), total - overhead);
    assert!(startup > 0);
    assert_eq!(number("keys.bytes-per-key"), (total - startup) / 2001);
    assert!(number("peak.allocated") >= total);
    assert!(number("allocator.allocated") > 0);
    assert!(number("clients.normal") > 0);
    let tables = |db: &str| {
        let Value::Array(parts) = figure_of(&stats, db) else {
            panic!("{db}");
        };
        (parts[1].integer(), parts[3].integer())
    };
    let (first, second) = (tables("db.0"), tables("db.3"));
    assert!(first.0 > 2000 * 8 && first.1 > 2000 * 8, "{first:?}");
    assert!(second.0 > 0 && second.1 == 0, "{second:?}");
    assert_eq!(overhead, startup + first.0 + first.1 + second.0);
    let percentage = text(&figure_of(&stats, "dataset.percentage"));
    let percentage: f64 = percentage.parse().unwrap();
    assert!(0.0 < percentage && percentage < 100.0);
}

#[test]
fn scripts_and_their_interpreters_are_counted() {
    let server = server();
    let mut client = Client::connect(&server);
    assert_eq!(figure(&mut client, "lua.caches").integer(), 0);
    client.call_args(&[b"EVAL", b"return 1", b"0"]);
    assert!(figure(&mut client, "lua.caches").integer() > 0);
    until("the interpreter is counted", || {
        figure(&mut client, "script.VMs").integer() > 10_000
    });
    let library = b"#!lua name=l\nredis.register_function('f', function() return 1 end)";
    client.call_args(&[b"FUNCTION", b"LOAD", library]);
    assert!(figure(&mut client, "functions.caches").integer() > 0);
}

#[test]
fn doctor_and_allocator_speak() {
    let server = server();
    let mut client = Client::connect(&server);
    assert!(text(&client.call("MEMORY DOCTOR")).starts_with("Too little"));
    for number in 0..600 {
        let value = vec![b'x'; 10_000];
        let key = format!("key:{number}");
        client.call_args(&[b"SET", key.as_bytes(), &value]).ok();
    }
    until("there is something to look at", || {
        !text(&client.call("MEMORY DOCTOR")).starts_with("Too little")
    });
    let figures = text(&client.call("MEMORY MALLOC-STATS"));
    let entries = figures
        .lines()
        .find_map(|line| line.strip_prefix("entries: "));
    let live = entries.unwrap().split(' ').next().unwrap();
    assert!(live.parse::<u64>().unwrap() > 5_000_000, "{figures}");
}

#[test]
fn a_picture_is_as_large_as_asked_for_and_names_the_version() {
    let server = server();
    let mut client = Client::connect(&server);
    let version = "Redis ver. 8.2.3\n";
    for call in ["LOLWUT", "LOLWUT VERSION 5", "LOLWUT a b c"] {
        let picture = text(&client.call(call));
        assert!(picture.ends_with(version) && picture.lines().count() == 14);
    }
    let small = text(&client.call("LOLWUT VERSION 6 1 2"));
    assert_eq!(small.lines().count(), 4, "{small}");
    assert!(small.lines().take(2).all(|line| line.len() <= 1));
    let bounded = text(&client.call("LOLWUT VERSION 5 -5 100000000"));
    assert_eq!(bounded.lines().count(), 1002);
    assert_eq!(text(&client.call("LOLWUT VERSION 7 1 2")), version);
    let wrong = client.call("LOLWUT VERSION 5 x");
    assert_eq!(wrong.error(), "ERR value is not an integer or out of range");
}

#[test]
fn what_a_client_claims_is_listed_and_a_kept_script_is_shown() {
    let server = server();
    let mut client = Client::connect(&server);
    client.call("CLIENT CAPA something").ok();
    let line = text(&client.call("CLIENT INFO"));
    assert!(line.contains(" flags=N db=0 "), "{line}");
    client.call("CLIENT CAPA something REDIRECT").ok();
    let line = text(&client.call("CLIENT INFO"));
    assert!(line.contains(" flags=N capa=r db=0 "), "{line}");
    let sha = text(&client.call_args(&[b"SCRIPT", b"LOAD", b"return 'x y'"]));
    let shown = client.call(&format!("SCRIPT SHOW {}", sha.to_uppercase()));
    assert_eq!(text(&shown), "return 'x y'");
    let missing = client.call("SCRIPT SHOW 0");
    assert_eq!(missing.error(), "NOSCRIPT No matching script.");
}
