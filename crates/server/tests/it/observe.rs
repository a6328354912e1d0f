//! Reports of the server on its own commands: SLOWLOG, COMMANDLOG, LATENCY. Must not know the server's insides.

use crate::client::{Client, Value, settings, start, until};
use redline_server::{Permission, Server};

fn server() -> Server {
    let mut settings = settings(2);
    settings.enable_debug_command = Permission::Yes;
    start(settings)
}

#[track_caller]
fn text(value: &Value) -> String {
    match value {
        Value::Bulk(bytes) => String::from_utf8(bytes.clone()).unwrap(),
        other => panic!("no text: {other:?}"),
    }
}

/// The logged calls, newest first.
#[track_caller]
fn logged(client: &mut Client, call: &str) -> Vec<String> {
    let reply = client.call(call);
    let entries = reply.array().iter();
    entries
        .map(|entry| {
            let words: Vec<String> = entry.array()[3].array().iter().map(text).collect();
            words.join(" ")
        })
        .collect()
}

/// A call that had to wait was in no log and had taken no time.
#[test]
fn a_call_that_was_served_later_is_logged_and_timed() {
    let server = server();
    let (mut client, mut waits) = (Client::connect(&server), Client::connect(&server));
    client.call("CONFIG SET slowlog-log-slower-than 0").ok();
    waits.send("BLPOP l 0");
    until("it waits", || {
        text(&client.call("INFO clients")).contains("\nblocked_clients:1\r")
    });
    client.call("SLOWLOG RESET").ok();
    client.call("RPUSH l e");
    waits.read();
    let logged = logged(&mut client, "SLOWLOG GET -1");
    assert!(logged.iter().any(|call| call == "BLPOP l 0"), "{logged:?}");
    let histogram = client.call("LATENCY HISTOGRAM blpop");
    assert_eq!(histogram.array().len(), 2, "{histogram:?}");
}

/// One that nobody served was in no log, and had taken no time.
#[test]
fn a_call_that_waited_in_vain_is_logged_and_timed() {
    let server = server();
    let (mut client, mut waits) = (Client::connect(&server), Client::connect(&server));
    client.call("CONFIG SET slowlog-log-slower-than 0").ok();
    client.call("SLOWLOG RESET").ok();
    let in_vain = [
        "BLPOP l 0.01",
        "BLMOVE l m LEFT LEFT 0.01",
        "XREAD BLOCK 10 STREAMS s $",
        "WAIT 1 10",
    ];
    for call in in_vain {
        waits.call(call);
    }
    let id = waits.call("CLIENT ID").integer();
    waits.send("BZPOPMIN z 0");
    until("it waits", || {
        text(&client.call("INFO clients")).contains("\nblocked_clients:1\r")
    });
    client.call(&format!("CLIENT UNBLOCK {id} ERROR"));
    waits.read();
    let logged = logged(&mut client, "SLOWLOG GET -1");
    for call in in_vain.iter().chain(&["BZPOPMIN z 0"]) {
        assert!(
            logged.iter().any(|entry| entry == call),
            "{call}: {logged:?}"
        );
    }
    let histogram = client.call("LATENCY HISTOGRAM blpop");
    assert_eq!(histogram.array().len(), 2, "{histogram:?}");
}

#[test]
fn the_first_calls_after_a_reset_are_counted_one_by_one() {
    let server = server();
    let mut client = Client::connect(&server);
    for _ in 0..2 {
        for call in ["SET a b", "SET c d", "GET a", "PING"] {
            client.call(call);
        }
        let reply = client.call("LATENCY HISTOGRAM set get ping hget");
        let calls: Vec<String> = reply
            .array()
            .chunks(2)
            .map(|pair| format!("{}:{}", text(&pair[0]), pair[1].array()[1].integer()))
            .collect();
        assert_eq!(calls, ["set:2", "get:1", "ping:1"]);
        for _ in 0..2000 {
            client.call("GET a");
        }
        client.call("CONFIG RESETSTAT").ok();
    }
}

#[test]
fn a_threshold_of_zero_logs_every_call_without_secrets() {
    let server = server();
    let mut client = Client::connect(&server);
    client.call("CONFIG SET slowlog-log-slower-than 0").ok();
    client.call("SLOWLOG RESET").ok();
    client.call("CLIENT SETNAME me").ok();
    client.send("GET a");
    client.send("GET b");
    client.read();
    client.read();
    for line in ["MULTI", "SET k v", "EXEC", "AUTH secret", "NONESUCH"] {
        client.call(line);
    }
    client.call_args(&[b"EVAL", b"return redis.call('set',KEYS[1],'x')", b"1", b"k"]);
    let calls = logged(&mut client, "SLOWLOG GET -1");
    let expected = [
        "EVAL return redis.call('set',KEYS[1],'x') 1 k",
        "set k x",
        "AUTH (redacted)",
        "SET k v",
        "MULTI",
        "GET b",
        "GET a",
        "CLIENT SETNAME me",
        "SLOWLOG RESET",
    ];
    assert_eq!(calls, expected);
    let newest = client.call("SLOWLOG GET 9");
    let entries = newest.array();
    let from_client = entries[1].array();
    assert_eq!(text(&from_client[5]), "me");
    assert!(text(&from_client[4]).starts_with("127.0.0.1:"));
    let set = entries
        .iter()
        .find(|entry| text(&entry.array()[3].array()[0]) == "set");
    assert_eq!(
        text(&set.unwrap().array()[4]),
        "",
        "a script has no address"
    );
    assert!(client.call("SLOWLOG LEN").integer() > 9);
}

#[test]
fn only_what_is_slow_is_logged_and_the_log_has_an_end() {
    let server = server();
    let mut client = Client::connect(&server);
    client.call("DEBUG SLEEP 0.02");
    client.call("GET a");
    assert_eq!(logged(&mut client, "SLOWLOG GET"), ["DEBUG SLEEP 0.02"]);
    let entry = client.call("SLOWLOG GET 1");
    assert!(entry.array()[0].array()[2].integer() >= 20_000);
    client.call("CONFIG SET slowlog-log-slower-than -1").ok();
    client.call("DEBUG SLEEP 0.02");
    assert_eq!(client.call("SLOWLOG LEN").integer(), 1);
    client
        .call("CONFIG SET slowlog-log-slower-than 0 slowlog-max-len 3")
        .ok();
    (0..5).for_each(|_| drop(client.call("PING")));
    assert_eq!(client.call("SLOWLOG LEN").integer(), 3);
    client.call("CONFIG SET slowlog-max-len 0").ok();
    client.call("PING");
    assert_eq!(
        client
            .call("CONFIG GET commandlog-slow-execution-max-len")
            .array()[1],
        Value::Bulk(b"0".to_vec())
    );
}

#[test]
fn a_brief_command_that_asks_for_much_is_timed_by_itself() {
    let server = server();
    let mut client = Client::connect(&server);
    let call = ["SADD", "s"].map(String::from).into_iter();
    let call: Vec<String> = call.chain((0..30_000).map(|n| format!("m{n}"))).collect();
    let call: Vec<&[u8]> = call.iter().map(|word| word.as_bytes()).collect();
    client.call_args(&call);
    client.call("CONFIG SET slowlog-log-slower-than 1000").ok();
    client.call("SLOWLOG RESET").ok();
    client.call("SPOP s 30000");
    let calls = logged(&mut client, "SLOWLOG GET -1");
    assert!(calls.contains(&"SPOP s 30000".to_string()), "{calls:?}");
}

#[test]
fn large_requests_and_replies_are_logged() {
    let server = server();
    let mut client = Client::connect(&server);
    client
        .call("CONFIG SET commandlog-request-larger-than 100 commandlog-reply-larger-than 200")
        .ok();
    let value = "x".repeat(250);
    client.call(&format!("SET k {value}")).ok();
    client.call("GET k");
    client.call("GET other");
    let large = logged(&mut client, "COMMANDLOG GET -1 large-request");
    assert_eq!(large.len(), 1, "{large:?}");
    assert!(large[0].starts_with("SET k xxx") && large[0].ends_with("... (122 more bytes)"));
    let replies = logged(&mut client, "COMMANDLOG GET -1 LARGE-REPLY");
    assert_eq!(replies, ["COMMANDLOG GET -1 large-request", "GET k"]);
    let entry = client.call("COMMANDLOG GET 1 large-request");
    let wire = format!("*3\r\n$3\r\nSET\r\n$1\r\nk\r\n$250\r\n{value}\r\n");
    assert_eq!(entry.array()[0].array()[2].integer(), wire.len() as i64);
    // What shows such a log is a large reply itself.
    client
        .call("CONFIG SET commandlog-large-reply-max-len 0 commandlog-large-request-max-len 1")
        .ok();
    client.call(&format!("SET k2 {value}")).ok();
    assert_eq!(client.call("COMMANDLOG LEN large-request").integer(), 1);
    client.call("COMMANDLOG RESET large-request").ok();
    assert_eq!(client.call("COMMANDLOG LEN large-request").integer(), 0);
    assert!(
        client
            .call("COMMANDLOG LEN nonesuch")
            .error()
            .starts_with("ERR type should be")
    );
}

#[test]
fn the_latency_monitor_keeps_what_took_long() {
    let server = server();
    let mut client = Client::connect(&server);
    client.call("DEBUG SLEEP 0.02");
    assert_eq!(client.call("LATENCY LATEST"), Value::Array(Vec::new()));
    client.call("CONFIG SET latency-monitor-threshold 10").ok();
    client.call("DEBUG SLEEP 0.02");
    let latest = client.call("LATENCY LATEST");
    let event = latest.array()[0].array();
    assert_eq!(text(&event[0]), "command");
    assert!(event[2].integer() >= 20 && event[3].integer() >= 20);
    let history = client.call("LATENCY HISTORY command");
    assert_eq!(history.array()[0].array()[1], event[2]);
    assert!(text(&client.call("LATENCY GRAPH command")).starts_with("command - high "));
    assert!(text(&client.call("LATENCY DOCTOR")).contains("1. command: 1 seconds"));
    assert!(client.call("LATENCY GRAPH none").error().contains("'none'"));
    assert_eq!(client.call("LATENCY RESET none").integer(), 0);
    assert_eq!(client.call("LATENCY RESET command").integer(), 1);
    assert_eq!(
        client.call("LATENCY HISTORY command"),
        Value::Array(Vec::new())
    );
}

#[test]
fn the_role_is_that_of_a_primary_without_replicas() {
    let server = server();
    let mut client = Client::connect(&server);
    let role = client.call("ROLE");
    let [name, Value::Integer(0), replicas] = role.array() else {
        panic!("{role:?}");
    };
    assert_eq!(text(name), "master");
    assert_eq!(*replicas, Value::Array(Vec::new()));
    for line in ["REPLICAOF no ONE", "slaveof NO one"] {
        client.call(line).ok();
    }
    for port in ["x", "-1", "65536", "no"] {
        let refused = client.call(&format!("SLAVEOF one {port}"));
        assert_eq!(refused.error(), "ERR Invalid master port");
    }
}

#[test]
fn clients_of_a_replica_read_what_there_is_and_may_not_write() {
    let server = server();
    let mut client = Client::connect(&server);
    client.call("SET key value").ok();
    // Nobody listens there.
    client.call("REPLICAOF 127.0.0.1 1").ok();
    let role = client.call("ROLE");
    let [name, host, Value::Integer(1), state, Value::Integer(0)] = role.array() else {
        panic!("{role:?}");
    };
    assert_eq!(
        (text(name).as_str(), text(host).as_str()),
        ("slave", "127.0.0.1")
    );
    assert!(["connect", "connecting"].contains(&text(state).as_str()));
    let info = text(&client.call("INFO replication"));
    for line in ["role:slave", "master_link_status:down", "slave_read_only:1"] {
        assert!(info.contains(&format!("\r\n{line}\r\n")), "{line}: {info}");
    }
    let again = client.call("REPLICAOF 127.0.0.1 1");
    assert_eq!(
        again,
        Value::Simple("OK Already connected to specified master".into())
    );
    let read_only = "READONLY You can't write against a read only replica.";
    for write in [
        "SET key other",
        "DEL key",
        "EVAL return(redis.call('del','key')) 0",
    ] {
        let refused = client.call(write).error().to_owned();
        assert!(refused.contains(read_only), "{write}: {refused}");
    }
    client.call("MULTI").ok();
    assert_eq!(client.call("SET key other").error(), read_only);
    assert!(client.call("EXEC").error().starts_with("EXECABORT"));
    assert_eq!(text(&client.call("GET key")), "value");
    client.call("CONFIG SET replica-serve-stale-data no").ok();
    let down = "MASTERDOWN Link with MASTER is down and replica-serve-stale-data is set to 'no'.";
    assert_eq!(client.call("GET key").error(), down);
    client
        .call("CONFIG SET replica-serve-stale-data yes replica-read-only no")
        .ok();
    client.call("SET key other").ok();
    client.call("CONFIG SET replica-read-only yes").ok();
    assert_eq!(client.call("SET key value").error(), read_only);
    client.call("REPLICAOF NO ONE").ok();
    client.call("SET key value").ok();
    assert_eq!(text(&client.call("ROLE").array()[0]), "master");
}

#[test]
fn clients_that_wait_while_the_server_becomes_a_replica_hear_of_it_and_are_closed() {
    let server = server();
    let mut waiting = Client::connect(&server);
    let mut client = Client::connect(&server);
    waiting.send("BLPOP list 0");
    while !text(&client.call("INFO clients")).contains("blocked_clients:1\r\n") {
        std::thread::yield_now();
    }
    client.call("REPLICAOF 127.0.0.1 1").ok();
    assert_eq!(
        waiting.read().error(),
        "UNBLOCKED force unblock from blocking operation, instance state changed (master -> replica?)"
    );
    assert!(waiting.try_read().is_err(), "it is closed");
}

#[test]
fn a_transaction_switches_the_role_behind_it() {
    let server = server();
    let mut client = Client::connect(&server);
    for line in [
        "MULTI",
        "SET key value",
        "REPLICAOF 127.0.0.1 1",
        "CONFIG REWRITE",
    ] {
        client.call(line);
    }
    let replies = client.call("EXEC");
    assert_eq!(
        replies.array()[1],
        Value::Simple("OK".into()),
        "{replies:?}"
    );
    assert_eq!(text(&client.call("ROLE").array()[0]), "slave");
    assert!(client.call("SET key other").error().starts_with("READONLY"));
    assert_eq!(text(&client.call("GET key")), "value");
}

#[test]
fn what_was_never_saved_counts_as_saved_at_the_start() {
    let server = server();
    let mut client = Client::connect(&server);
    let time = client.call("TIME");
    let now: i64 = text(&time.array()[0]).parse().unwrap();
    let saved = client.call("LASTSAVE").integer();
    assert!((now - 60..=now).contains(&saved), "{saved} at {now}");
    let info = text(&client.call("INFO persistence"));
    assert!(info.contains(&format!("\r\nrdb_last_save_time:{saved}\r\n")));
}

#[test]
fn distributions_are_kept_of_every_command() {
    let server = server();
    let mut client = Client::connect(&server);
    client
        .call("CONFIG SET latency-tracking-info-percentiles")
        .error();
    client
        .call_args(&[
            b"CONFIG",
            b"SET",
            b"latency-tracking-info-percentiles",
            b"50 99.99",
        ])
        .ok();
    // One small batch in sixteen is timed, for all.
    (0..64).for_each(|_| drop(client.call("GET a")));
    (0..3).for_each(|_| drop(client.call("KEYS *")));
    let histogram = client.call("LATENCY HISTOGRAM get keys nonesuch");
    let pairs = histogram.array();
    assert_eq!([text(&pairs[0]), text(&pairs[2])], ["get", "keys"]);
    assert!(pairs[1].array()[1].integer() >= 32, "{pairs:?}");
    assert_eq!(pairs[3].array()[1].integer(), 3);
    let info = text(&client.call("INFO latencystats"));
    let line = info
        .lines()
        .find(|line| line.starts_with("latency_percentiles_usec_keys:"));
    let figures = line.unwrap().split_once(':').unwrap().1;
    assert!(
        figures.starts_with("p50=") && figures.contains(",p99.99="),
        "{figures}"
    );
    assert!(text(&client.call("INFO commandstats")).contains("cmdstat_get:calls=64,usec="));
    client.call("CONFIG RESETSTAT").ok();
    assert_eq!(
        client.call("LATENCY HISTOGRAM keys"),
        Value::Array(Vec::new())
    );
    client.call("CONFIG SET latency-tracking no").ok();
    client.call("KEYS *");
    until("nothing is counted any more", || {
        client.call("LATENCY HISTOGRAM keys") == Value::Array(Vec::new())
    });
}
