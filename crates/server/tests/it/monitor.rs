//! MONITOR: what it shows, to whom, in which order. Must not know the server's insides.

use crate::client::{self, Client, Value, settings, start, until};
use redline_server::{Server, Settings};

fn server() -> Server {
    start(settings(2))
}

fn monitor(server: &Server) -> Client {
    let mut monitor = Client::connect(server);
    monitor.call("MONITOR").ok();
    monitor
}

/// The next line that a monitor is shown: who, and the words as they stand there.
#[track_caller]
fn line(monitor: &mut Client) -> (String, String) {
    let Value::Simple(line) = monitor.read() else {
        panic!("a monitor is shown lines");
    };
    let (time, rest) = line.split_once(" [").expect("a time");
    let (seconds, us) = time.split_once('.').expect("a point");
    assert!(
        seconds.parse::<u64>().is_ok() && us.len() == 6,
        "not a time: {time}"
    );
    let (who, words) = rest.split_once("] ").expect("an origin");
    (who.to_owned(), words.to_owned())
}

/// The words of the lines up to the one that shows `end`.
#[track_caller]
fn lines_until(monitor: &mut Client, end: &str) -> Vec<String> {
    let mut lines = Vec::new();
    loop {
        let words = line(monitor).1;
        if words == end {
            return lines;
        }
        lines.push(words);
    }
}

#[test]
fn an_exec_that_was_refused_is_shown_for_it_ends_the_transaction() {
    let server = server();
    let (mut monitor, mut client) = (monitor(&server), Client::connect(&server));
    client.call("SUBSCRIBE a");
    let refused = client.call("EXEC");
    let refused = refused.error();
    assert!(refused.starts_with("EXECABORT"), "{refused}");
    client.call("RESET");
    let refused = client.call("EXEC x");
    let refused = refused.error();
    assert!(refused.starts_with("EXECABORT"), "{refused}");
    client.call("GET");
    client.call("ECHO end");
    assert_eq!(
        lines_until(&mut monitor, r#""ECHO" "end""#),
        [
            r#""SUBSCRIBE" "a""#,
            r#""EXEC""#,
            r#""RESET""#,
            r#""EXEC" "x""#
        ]
    );
}

#[test]
fn what_runs_is_shown_and_what_is_refused_is_not() {
    let server = server();
    let (mut monitor, mut client) = (monitor(&server), Client::connect(&server));
    let calls: &[&[u8]] = &[
        b"SET k 1",
        b"LPUSH k a",
        b"NONESUCH",
        b"GET",
        b"CONFIG GET hz",
        b"AUTH secret",
        b"HELLO 2 AUTH nobody secret SETNAME x",
        b"get \"\\\r\n\t\x07\x08\x01\xff'",
        b"SELECT 3",
        b"PING",
    ];
    for call in calls {
        let words: Vec<&[u8]> = call.split(|byte| *byte == b' ').collect();
        client.call_args(&words);
    }
    let own = client.stream.local_addr().unwrap();
    let expected = [
        ("0", r#""SET" "k" "1""#),
        ("0", r#""LPUSH" "k" "a""#),
        ("0", r#""AUTH" "(redacted)""#),
        (
            "0",
            r#""HELLO" "2" "AUTH" "(redacted)" "(redacted)" "SETNAME" "x""#,
        ),
        ("0", r#""get" "\"\\\r\n\t\a\b\x01\xff'""#),
        ("3", r#""SELECT" "3""#),
        ("3", r#""PING""#),
    ];
    for (db, words) in expected {
        let who = format!("{db} {own}");
        assert_eq!(line(&mut monitor), (who, words.to_owned()));
    }
}

#[test]
fn transactions_and_scripts_are_shown_in_redis_order() {
    let server = server();
    let (mut monitor, mut client) = (monitor(&server), Client::connect(&server));
    for call in [
        "WATCH k",
        "MULTI",
        "SET k 1",
        "PUBLISH c m",
        "LPUSH k x",
        "EXEC",
        "EXEC",
    ] {
        client.call(call);
    }
    let script = "redis.call('select', 2) redis.call('incr', KEYS[1]) return redis.call('publish', 'c', 'm')";
    client.call("MULTI");
    client.call_args(&[b"EVAL", script.as_bytes(), b"1", b"k"]);
    client.call("EXEC");
    client.call_args(&[b"EVAL", b"no lua", b"0"]);
    client.call_args(&[b"EVALSHA", b"none", b"0"]);
    client.call("PING end");
    let shown = [
        r#""WATCH" "k""#,
        r#""MULTI""#,
        r#""SET" "k" "1""#,
        r#""PUBLISH" "c" "m""#,
        r#""LPUSH" "k" "x""#,
        r#""EXEC""#,
        r#""EXEC""#,
        r#""MULTI""#,
        &format!(r#""EVAL" "{script}" "1" "k""#),
        r#"2 lua "select" "2""#,
        r#"2 lua "incr" "k""#,
        r#"2 lua "publish" "c" "m""#,
        r#""EXEC""#,
        r#""EVAL" "no lua" "0""#,
        r#""EVALSHA" "none" "0""#,
        r#""PING" "end""#,
    ];
    for expected in shown {
        let (who, words) = line(&mut monitor);
        let shown = match who.contains("lua") {
            true => format!("{who} {words}"),
            false => words,
        };
        assert_eq!(shown, expected);
    }
}

#[test]
fn a_command_that_waits_is_shown_once_and_at_its_beginning() {
    let server = server();
    let (mut monitor, mut waits) = (monitor(&server), Client::connect(&server));
    let mut client = Client::connect(&server);
    waits.send("BLPOP l 0");
    assert_eq!(line(&mut monitor).1, r#""BLPOP" "l" "0""#);
    client.call("RPUSH l a");
    waits.read();
    client.call("PING end");
    let shown = lines_until(&mut monitor, r#""PING" "end""#);
    assert_eq!(shown, [r#""RPUSH" "l" "a""#]);
}

#[test]
fn clients_of_the_unix_socket_are_named_by_it() {
    use std::{
        io::{Read, Write},
        os::unix::net::UnixStream,
    };
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("socket");
    let path = path.to_str().unwrap();
    let server = start(Settings {
        unixsocket: Some(path.to_owned()),
        ..settings(2)
    });
    let mut monitor = monitor(&server);
    let mut stream = UnixStream::connect(path).unwrap();
    stream.write_all(b"PING\r\n").unwrap();
    stream.read_exact(&mut [0; 7]).unwrap();
    assert_eq!(line(&mut monitor).0, format!("0 unix:{path}"));
}

/// Every command is shown, those of a client in their order, and those that change one key in the order in which they
/// have changed it.
#[test]
fn over_all_workers_the_order_is_the_one_that_the_data_saw() {
    const CLIENTS: usize = 6;
    const CALLS: usize = 300;
    let server = start(settings(4));
    let mut monitor = monitor(&server);
    let threads: Vec<_> = (0..CLIENTS)
        .map(|who| {
            let mut client = Client::connect(&server);
            std::thread::spawn(move || {
                for number in (0..CALLS).step_by(10) {
                    let mut pipeline = Vec::new();
                    for number in number..number + 10 {
                        let word = format!("<{who}:{number}>");
                        let in_exec = number % 10 == 7;
                        if in_exec {
                            pipeline.extend(client::request("MULTI"));
                        }
                        pipeline.extend(client::request(&format!("APPEND log {word}")));
                        if in_exec {
                            pipeline.extend(client::request("EXEC"));
                        }
                    }
                    client.write(&pipeline);
                    (0..12).for_each(|_| drop(client.read()));
                }
            })
        })
        .collect();
    threads
        .into_iter()
        .for_each(|thread| thread.join().unwrap());
    let mut client = Client::connect(&server);
    let Value::Bulk(log) = client.call("GET log") else {
        panic!("a log");
    };
    let shown = lines_until(&mut monitor, r#""GET" "log""#);
    let appended = shown.iter().filter_map(|words| {
        let word = words.strip_prefix(r#""APPEND" "log" ""#)?;
        word.strip_suffix('"')
    });
    let appended: String = appended.collect();
    assert!(appended == String::from_utf8(log).unwrap());
    let others = shown
        .iter()
        .filter(|words| !words.starts_with(r#""APPEND""#));
    assert_eq!(others.count(), CLIENTS * CALLS / 10 * 2);
}

#[test]
fn a_monitor_keeps_off_the_keys_until_it_is_reset() {
    let server = server();
    let mut client = monitor(&server);
    client.send("MONITOR");
    let refused = "ERR Replica can't interact with the keyspace";
    assert_eq!(client.call("GET k").error(), refused);
    assert_eq!(client.call("PUBLISH c m").error(), refused);
    client.write(b"PING\r\nSELECT 1\r\n");
    assert_eq!(client.read(), Value::Simple("PONG".into()));
    assert_eq!(line(&mut client).1, r#""PING""#);
    client.read().ok();
    assert_eq!(line(&mut client).1, r#""SELECT" "1""#);
    assert!(own_flags(&mut client).contains('O'));
    assert_eq!(line(&mut client).1, r#""CLIENT" "INFO""#);
    assert_eq!(client.call("RESET"), Value::Simple("RESET".into()));
    client.call("SET k v").ok();
    assert_eq!(own_flags(&mut client), "N");
    let mut other = Client::connect(&server);
    other.call("MULTI").ok();
    other.call("MONITOR");
    let in_exec = other.call("EXEC");
    assert_eq!(
        in_exec.array()[0].error(),
        "ERR MONITOR isn't allowed for DENY BLOCKING client"
    );
}

fn own_flags(client: &mut Client) -> String {
    let Value::Bulk(info) = client.call("CLIENT INFO") else {
        panic!("a bulk");
    };
    let info = String::from_utf8(info).unwrap();
    let flags = info
        .split(' ')
        .find_map(|field| field.strip_prefix("flags="));
    flags.unwrap().to_owned()
}

#[test]
fn monitors_are_killed_quit_and_have_limits_like_others() {
    let server = server();
    let mut client = Client::connect(&server);
    let mut quits = monitor(&server);
    quits.call("QUIT").ok();
    assert_eq!(quits.drain(), 0);
    let mut killed = monitor(&server);
    let id = killed.call("CLIENT ID").integer();
    line(&mut killed);
    assert_eq!(
        client.call(&format!("CLIENT KILL ID {id}")),
        Value::Integer(1)
    );
    assert_eq!(killed.drain(), 0);
    // It does not read: what it is shown piles up, to the limit of ordinary clients.
    let _slow = monitor(&server);
    client
        .call_args(&[
            b"CONFIG",
            b"SET",
            b"client-output-buffer-limit",
            b"normal 2mb 0 0",
        ])
        .ok();
    let word = "x".repeat(100_000);
    until("the slow monitor is closed", || {
        client.call(&format!("ECHO {word}"));
        let Value::Bulk(list) = client.call("CLIENT LIST") else {
            panic!("a bulk");
        };
        String::from_utf8(list).unwrap().lines().count() == 1
    });
}

#[test]
fn who_replies_off_is_shown_nothing() {
    let server = server();
    let mut monitor = monitor(&server);
    let mut client = Client::connect(&server);
    monitor.send("CLIENT REPLY OFF");
    monitor.call("CLIENT REPLY ON").ok();
    assert_eq!(line(&mut monitor).1, r#""CLIENT" "REPLY" "ON""#);
    client.call("PING");
    assert_eq!(line(&mut monitor).1, r#""PING""#);
}
