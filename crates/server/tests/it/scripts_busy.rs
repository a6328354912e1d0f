//! A script that never ends: who needs what it holds is told so in time, and it can be ended.

use std::{
    io::ErrorKind,
    net::TcpStream,
    time::{Duration, Instant},
};

use crate::client::{Client, Value, busy, encode, settings, start, until};
use redline_server::{BusyScope, Server};
use redline_spec::{self as spec, CommandId, Flags, Plane};

const THRESHOLD: Duration = Duration::from_millis(200);
/// Time that may pass between the threshold and the answer.
const GRACE: Duration = Duration::from_millis(100);
const BUSY: &str =
    "BUSY Redis is busy running a script. You can only call SCRIPT KILL or SHUTDOWN NOSAVE.";
const ENDLESS: &[u8] = b"redis.call('get', KEYS[1]) while true do end";

fn server(workers: usize) -> Server {
    start(
        settings(workers)
            .with(|settings| settings.busy_reply_threshold_ms = THRESHOLD.as_millis() as u64),
    )
}

fn eval(client: &mut Client, script: &[u8]) {
    client.write(&encode(&[b"EVAL", script, b"1", b"k"]));
}

/// From the script's start: -BUSY and SCRIPT KILL within the time. Says how long it took.
fn busy_then_killed(server: &Server) -> Duration {
    let (mut script, mut client) = (Client::connect(server), Client::connect(server));
    client.call("SET k v").ok();
    let began = Instant::now();
    eval(&mut script, ENDLESS);
    // Until the script has begun GET is answered.
    loop {
        match client.call("GET k") {
            Value::Bulk(value) => assert_eq!(value, b"v"),
            other => break assert_eq!(other.error(), BUSY),
        }
        assert!(
            began.elapsed() < Duration::from_secs(30),
            "the script never began"
        );
    }
    client.call("SCRIPT KILL").ok();
    let reply = script.read();
    let took = began.elapsed();
    assert!(
        reply.error().contains("Error running script") || reply.error().contains("killed by user"),
        "{reply:?}"
    );
    assert_eq!(client.call("GET k"), Value::Bulk(b"v".to_vec()));
    assert!(client.call("SCRIPT KILL").error().starts_with("NOTBUSY"));
    // The server counts whole milliseconds.
    assert!(
        took + Duration::from_millis(2) >= THRESHOLD,
        "it was not over its threshold"
    );
    took
}

fn an_endless_script_is_answered_and_killed_in_time(workers: usize) {
    let server = server(workers);
    // The machine may be busy with other tests: one of five must be in time, and all must be right.
    let best = (0..5).map(|_| busy_then_killed(&server)).min().unwrap();
    assert!(best < THRESHOLD + GRACE, "it took {best:?}");
}

#[test]
fn an_endless_script_is_answered_and_killed_in_time_with_one_worker() {
    an_endless_script_is_answered_and_killed_in_time(1);
}

#[test]
fn an_endless_script_is_answered_and_killed_in_time_with_two_workers() {
    an_endless_script_is_answered_and_killed_in_time(2);
}

/// A client of another worker is served while the script runs: what it is answered holds at once, not at the threshold.
#[test]
fn a_script_ends_when_another_worker_has_answered_its_kill() {
    let threshold = Duration::from_secs(10);
    let server = start(
        settings(2)
            .with(|settings| settings.busy_reply_threshold_ms = threshold.as_millis() as u64),
    );
    let mut script = Client::connect(&server);
    let own = worker_of(&mut script);
    let mut other = (0..10)
        .map(|_| Client::connect(&server))
        .find_map(|mut client| (worker_of(&mut client) != own).then_some(client))
        .expect("connections are spread over the workers");
    let began = Instant::now();
    script.write(&encode(&[b"EVAL", b"while true do end", b"0"]));
    while other.call("SCRIPT KILL") != Value::Simple("OK".into()) {
        assert!(began.elapsed() < threshold, "the script never began");
    }
    let reply = script.read();
    assert!(reply.error().contains("killed by user"), "{reply:?}");
    assert!(began.elapsed() < threshold, "it ran to its threshold");
}

/// The worker that a client is on.
fn worker_of(client: &mut Client) -> String {
    let Value::Bulk(info) = client.call("CLIENT INFO") else {
        panic!("CLIENT INFO is a bulk string");
    };
    let info = String::from_utf8(info).unwrap();
    let mut fields = info.split_whitespace();
    let worker = fields.find(|field| field.starts_with("io-thread="));
    worker.expect("a field of CLIENT INFO").to_owned()
}

/// The script arrives together with requests of other clients of its worker, before and behind it.
#[test]
fn clients_whose_requests_came_with_the_script_are_answered() {
    let server = server(2);
    let mut first = Client::connect(&server);
    let own = worker_of(&mut first);
    let (mut clients, mut others) = (Vec::new(), Vec::new());
    for _ in 0..22 {
        let mut client = Client::connect(&server);
        match worker_of(&mut client) == own {
            true => clients.push(client),
            false => others.push(client),
        }
    }
    let [Some(mut script), Some(mut hears)] = [clients.pop(), others.pop()] else {
        panic!("connections are spread over the workers");
    };
    assert!(clients.len() > 5);
    first.call("SET k v").ok();
    hears.call("SUBSCRIBE begun");
    // While this runs, everything below arrives: the worker finds it all in one turn.
    first.write(&encode(&[
        b"EVAL",
        format!("redis.call('publish', 'begun', '') {}", busy(100)).as_bytes(),
        b"0",
    ]));
    hears.read();
    let began = Instant::now();
    for (n, client) in clients.iter_mut().enumerate() {
        if n == 5 {
            eval(&mut script, ENDLESS);
        }
        client.send("GET k");
        client.send("PING");
    }
    assert_eq!(first.read(), Value::Nil);
    for client in &mut clients {
        match client.read() {
            Value::Bulk(value) => assert_eq!(value, b"v"),
            other => assert_eq!(other.error(), BUSY),
        }
        assert_eq!(client.read(), Value::Simple("PONG".into()));
    }
    assert!(began.elapsed() < Duration::from_secs(20));
    // It may not have passed its threshold yet if all were answered before it began. On a machine that is busy the first
    // script may have passed it: then this one was refused, and there is nothing to end.
    let answered = |script: &Client| {
        script.stream.set_nonblocking(true).unwrap();
        let peeked = script.stream.peek(&mut [0]).is_ok();
        script.stream.set_nonblocking(false).unwrap();
        peeked
    };
    while clients[0].call("SCRIPT KILL") != Value::Simple("OK".into()) && !answered(&script) {}
    script.read().error();
}

/// A server that refuses as Redis does, and clients of all its workers.
fn server_that_refuses_all<const N: usize>(workers: usize) -> (Server, [Client; N]) {
    let server = start(settings(workers).with(|settings| {
        settings.busy_reply_threshold_ms = 50;
        settings.busy_reply_scope = BusyScope::All;
    }));
    let clients = [(); N].map(|()| Client::connect(&server));
    (server, clients)
}

fn until_refused(client: &mut Client, why: &str) {
    until("PING is refused", || match client.call("PING") {
        Value::Error(text) => text == why,
        _ => false,
    });
}

/// Whoever waited for -BUSY before sending SCRIPT KILL waited for ever, unless he asked for what the script held.
#[test]
fn programs_that_wait_for_busy_before_they_kill_never_saw_it() {
    for workers in [1, 2] {
        let (_server, [mut script, mut other, mut same]) = server_that_refuses_all(workers);
        for _ in 0..2 {
            script.write(&encode(&[b"EVAL", b"while true do end", b"0"]));
            for client in [&mut other, &mut same] {
                until_refused(client, BUSY);
                // The straight path, and keys that nobody holds.
                assert_eq!(client.call("GET k").error(), BUSY);
                assert_eq!(client.call("SET k v").error(), BUSY);
            }
            other.call("SCRIPT KILL").ok();
            assert!(script.read().error().contains("killed by user"));
            for client in [&mut other, &mut same] {
                assert_eq!(client.call("PING"), Value::Simple("PONG".into()));
                client.call("SET k v").ok();
                assert_eq!(client.call("GET k"), Value::Bulk(b"v".to_vec()));
            }
        }
    }
}

#[test]
fn all_refuses_what_no_row_allows() {
    let (_server, [mut script, mut client]) = server_that_refuses_all(2);
    script.write(&encode(&[b"EVAL", b"while true do end", b"0"]));
    until_refused(&mut client, BUSY);
    let rows = CommandId::ALL.map(|id| (id, spec::row(id)));
    for (id, row) in rows {
        let container = row.container.map(|container| spec::row(container).name);
        let names = container.into_iter().chain([row.name]);
        let mut words: Vec<&[u8]> = names.map(str::as_bytes).collect();
        words.resize(usize::from(row.arity.unsigned_abs()), b"1");
        if row.plane == Plane::Container || row.flags.has(Flags::ALLOW_BUSY) {
            continue;
        }
        let reply = client.call_args(&words);
        match id {
            CommandId::Exec => assert_eq!(
                reply.error(),
                format!("EXECABORT Transaction discarded because of: {BUSY}")
            ),
            _ => assert_eq!(reply, Value::Error(BUSY.into()), "{}", row.name),
        }
    }
    // What is wrong by itself is said first.
    assert!(
        client
            .call("NOSUCH")
            .error()
            .starts_with("ERR unknown command")
    );
    assert!(client.call("GET").error().starts_with("ERR wrong number"));
    // Redis lets these pass: what they answer is theirs.
    for call in ["HELLO 2", "MULTI", "DISCARD", "WATCH k", "UNWATCH", "RESET"] {
        assert!(!matches!(client.call(call), Value::Error(_)), "{call}");
    }
    assert!(client.call("AUTH a b").error().starts_with("WRONGPASS "));
    assert!(client.call("EVAL return(1) 0").error() == BUSY);
    // Those for functions, while a script runs.
    for call in [
        "FUNCTION STATS",
        "FUNCTION KILL",
        "SHUTDOWN",
        "SHUTDOWN SAVE",
    ] {
        assert_eq!(client.call(call).error(), BUSY, "{call}");
    }
    client.call("SCRIPT KILL").ok();
    script.read().error();
}

/// A transaction of which a part was refused is not run, nor is one that was refused as a whole.
#[test]
fn transactions_that_meet_a_busy_script_are_discarded() {
    for workers in [1, 2] {
        let (_server, [mut script, mut whole, mut part, mut sees, mut sees_not]) =
            server_that_refuses_all(workers);
        let aborted = format!("EXECABORT Transaction discarded because of: {BUSY}");
        whole.call("MULTI").ok();
        whole.call("SET a 1");
        eval(&mut script, ENDLESS);
        until_refused(&mut part, BUSY);
        assert_eq!(whole.call("EXEC").error(), aborted);
        part.call("MULTI").ok();
        assert_eq!(part.call("SET a 1").error(), BUSY);
        sees.call("WATCH other").ok();
        // Whether the script has changed this one nobody can see: so it counts as changed.
        sees_not.call("WATCH k other").ok();
        whole.call("SCRIPT KILL").ok();
        script.read().error();
        let before = "EXECABORT Transaction discarded because of previous errors.";
        assert_eq!(part.call("EXEC").error(), before);
        let exec = |client: &mut Client| {
            client.call("MULTI").ok();
            client.call("INCR a");
            client.call("EXEC")
        };
        assert_eq!(exec(&mut sees), Value::Array(vec![Value::Integer(1)]));
        assert_eq!(exec(&mut sees_not), Value::Nil);
        assert_eq!(exec(&mut sees_not), Value::Array(vec![Value::Integer(2)]));
    }
}

/// Commands that had come before the threshold, and wait for what the script holds.
#[test]
fn who_was_suspended_is_refused_as_who_comes_later() {
    let (server, [mut script, mut hears, mut same, mut other]) = server_that_refuses_all(2);
    let mut killer = Client::connect(&server);
    hears.call("SUBSCRIBE begun");
    let begins = b"redis.call('get', KEYS[1]) redis.call('publish', 'begun', '') while true do end";
    eval(&mut script, begins);
    hears.read();
    for client in [&mut same, &mut other] {
        for call in ["MULTI", "SET k v", "EXEC", "GET k", "WATCH k", "PING"] {
            client.send(call);
        }
    }
    for client in [&mut same, &mut other] {
        client.read().ok();
        // It was queued if it came before the threshold.
        match client.read() {
            Value::Simple(queued) => {
                assert_eq!(queued, "QUEUED");
                let aborted = format!("EXECABORT Transaction discarded because of: {BUSY}");
                assert_eq!(client.read().error(), aborted);
            }
            refused => {
                assert_eq!(refused.error(), BUSY);
                assert!(client.read().error().starts_with("EXECABORT "));
            }
        }
        assert_eq!(client.read().error(), BUSY);
        client.read().ok();
        assert_eq!(client.read().error(), BUSY);
    }
    killer.call("SCRIPT KILL").ok();
    script.read().error();
}

/// A call that waits was let pass when it came: if it is run again meanwhile it is not refused.
#[test]
fn a_wait_that_ends_while_all_is_refused_ends_as_ever() {
    for workers in [1, 2] {
        let (server, [mut script, mut waits, mut client]) = server_that_refuses_all(workers);
        client.call("XGROUP CREATE s g $ MKSTREAM").ok();
        waits.send("XREADGROUP GROUP g a BLOCK 0 STREAMS s >");
        until("it waits", || server.keyspace().anybody_waits());
        client.call("PEXPIRE s 200").integer();
        script.write(&encode(&[b"EVAL", b"while true do end", b"0"]));
        assert!(waits.read().error().starts_with("NOGROUP "));
        until_refused(&mut client, BUSY);
        client.call("SCRIPT KILL").ok();
        script.read().error();
    }
}

/// Elements that clients wait for and messages that they listen to arrive all the same: during the script, or at its end.
#[test]
fn who_waits_and_who_listens_goes_on_when_all_is_refused() {
    for workers in [1, 2] {
        let (server, [mut script, mut waits, mut hears, mut client]) =
            server_that_refuses_all(workers);
        waits.send("BLPOP l 0");
        hears.call("SUBSCRIBE news");
        until("it waits", || server.keyspace().anybody_waits());
        let text = format!(
            "redis.call('rpush', KEYS[1], 'x') redis.call('publish', 'news', 'x') {} return 'over'",
            busy(300)
        );
        script.write(&encode(&[b"EVAL", text.as_bytes(), b"1", b"l"]));
        until_refused(&mut client, BUSY);
        assert_eq!(hears.read().array().len(), 3);
        assert_eq!(client.call("BLPOP l 0").error(), BUSY);
        assert_eq!(client.call("PUBLISH news y").error(), BUSY);
        assert!(
            client
                .call("SCRIPT KILL")
                .error()
                .starts_with("UNKILLABLE ")
        );
        assert_eq!(script.read(), Value::Bulk(b"over".to_vec()));
        assert_eq!(waits.read().array()[1], Value::Bulk(b"x".to_vec()));
        assert_eq!(client.call("PUBLISH news y").integer(), 1);
    }
}

#[test]
fn a_busy_function_is_named_as_one() {
    let (_server, [mut script, mut client]) = server_that_refuses_all(2);
    let code = b"#!lua name=l\nredis.register_function('f', function() while true do end end)";
    client.call_args(&[b"FUNCTION", b"LOAD", code]);
    script.send("FCALL f 0");
    until_refused(&mut client, &BUSY.replace("SCRIPT", "FUNCTION"));
    assert_eq!(client.call("FUNCTION STATS").array().len(), 4);
    client.call("FUNCTION KILL").ok();
    script.read().error();
}

/// `busy-reply-scope` holds from the reply of CONFIG SET on, also while a script is busy.
#[test]
fn what_is_refused_changes_with_the_setting() {
    for workers in [1, 2] {
        let server = server(workers);
        let [mut script, mut client, mut other] = [(); 3].map(|()| Client::connect(&server));
        for _ in 0..2 {
            eval(&mut script, ENDLESS);
            until("what it holds is refused", || {
                matches!(client.call("GET k"), Value::Error(_))
            });
            for client in [&mut client, &mut other] {
                assert_eq!(client.call("PING"), Value::Simple("PONG".into()));
            }
            client.call("CONFIG SET busy-reply-scope all").ok();
            for client in [&mut client, &mut other] {
                assert_eq!(client.call("PING").error(), BUSY);
            }
            assert_eq!(
                client.call("CONFIG SET busy-reply-scope keys").error(),
                BUSY
            );
            client.call("SCRIPT KILL").ok();
            script.read().error();
            client.call("CONFIG SET busy-reply-scope keys").ok();
        }
    }
}

/// A command of several stripes that had asked for the ticket and is refused leaves nothing behind.
#[test]
fn who_was_refused_holds_nothing_back() {
    for workers in [1, 2] {
        let server = server(workers);
        // Connections go to the workers by turns.
        let [mut script, mut hears, mut other, mut client] =
            [(); 4].map(|()| Client::connect(&server));
        let pairs: Vec<String> = (0..200).map(|n| format!("key:{n} v")).collect();
        hears.call("SUBSCRIBE begun");
        eval(
            &mut script,
            b"redis.call('get', KEYS[1]) redis.call('publish', 'begun', '') while true do end",
        );
        // By the worker that runs it this is told no sooner than at the threshold, by the other one at once.
        hears.read();
        client.send(&format!("MSET k v {}", pairs.join(" ")));
        assert_eq!(client.read().error(), BUSY);
        other.call("SCRIPT KILL").ok();
        script.read().error();
        for n in 0..200 {
            other.call(&format!("SET key:{n} w")).ok();
        }
        client.call(&format!("MSET k v {}", pairs.join(" "))).ok();
    }
}

/// The connection that asked for the end closed before the listener did, which another worker had, busy with the script.
#[test]
fn who_saw_the_server_end_could_connect_to_it_again() {
    for _ in 0..5 {
        let server = server(2);
        // The first worker has the listeners.
        let [mut script, mut client] = [(); 2].map(|()| Client::connect(&server));
        eval(&mut script, ENDLESS);
        until("it is busy", || {
            matches!(client.call("GET k"), Value::Error(_))
        });
        client.send("SHUTDOWN NOSAVE");
        client.drain();
        let again = TcpStream::connect(("127.0.0.1", server.port()));
        assert_eq!(again.unwrap_err().kind(), ErrorKind::ConnectionRefused);
        server.join();
    }
}

#[test]
fn a_script_that_wrote_ends_with_the_server_only() {
    for workers in [1, 2] {
        let server = server(workers);
        let (mut script, mut client) = (Client::connect(&server), Client::connect(&server));
        eval(
            &mut script,
            b"redis.call('set', KEYS[1], 'v') while true do end",
        );
        while !matches!(client.call("GET k"), Value::Error(_)) {}
        assert!(client.call("SCRIPT KILL").error().starts_with("UNKILLABLE"));
        assert_eq!(client.call("GET k").error(), BUSY);
        client.send("SHUTDOWN NOSAVE");
        server.join();
        assert_eq!(client.drain(), 0, "SHUTDOWN has no reply");
    }
}

#[test]
fn a_transaction_with_an_endless_script_is_killed_too() {
    let server = server(2);
    let (mut script, mut client) = (Client::connect(&server), Client::connect(&server));
    client.call("SET k v").ok();
    script.call("MULTI").ok();
    eval(&mut script, ENDLESS);
    script.read();
    script.send("EXEC");
    while !matches!(client.call("GET k"), Value::Error(_)) {}
    client.call("SCRIPT KILL").ok();
    script.read().array()[0].error();
    assert_eq!(client.call("GET k"), Value::Bulk(b"v".to_vec()));
}
