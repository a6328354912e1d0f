//! A script that never ends: who needs what it holds is told so in time, and it can be ended.

mod client;

use std::time::{Duration, Instant};

use client::{Client, Value, encode, settings, start};
use redline_server::{Server, Settings};

const THRESHOLD: Duration = Duration::from_millis(200);
/// What may pass between the threshold and the answer.
const GRACE: Duration = Duration::from_millis(100);
const BUSY: &str =
    "BUSY Redis is busy running a script. You can only call SCRIPT KILL or SHUTDOWN NOSAVE.";
const ENDLESS: &[u8] = b"redis.call('get', KEYS[1]) while true do end";

fn server(workers: usize) -> Server {
    start(Settings {
        busy_reply_threshold_ms: THRESHOLD.as_millis() as u64,
        ..settings(workers)
    })
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
    let server = start(Settings {
        busy_reply_threshold_ms: threshold.as_millis() as u64,
        ..settings(2)
    });
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
        b"redis.call('publish', 'begun', '') local e = os.clock() + 0.1 while os.clock() < e do end",
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
