//! Limits on what clients may take, and the treatment of clients that exceed them: connections, time, requests, replies. The
//! figures that count it are looked at in `config_live.rs`, memory of all clients in `client_memory.rs`, connections and
//! descriptors of a process in `crates/cli/tests/it/limits.rs`. Must not know the server's insides.

use std::{
    io::{Read, Write},
    sync::{
        atomic::{AtomicUsize, Ordering},
        mpsc,
    },
    thread,
    time::{Duration, Instant},
};

use crate::client::{self, Client, Value, encode, request, settings, start, until};
use redline_keyspace::journal::{Piece, Position, Stream};
use redline_server::{OutputLimit, Server, Settings};

const MIB: usize = 1024 * 1024;

fn server() -> Server {
    start(settings(2))
}

#[track_caller]
fn set(client: &mut Client, name: &str, value: &str) {
    client
        .call_args(&[b"CONFIG", b"SET", name.as_bytes(), value.as_bytes()])
        .ok();
}

fn text(value: &Value) -> String {
    match value {
        Value::Bulk(bytes) => String::from_utf8(bytes.clone()).unwrap(),
        other => panic!("no text: {other:?}"),
    }
}

/// How many clients there are.
fn clients(client: &mut Client) -> usize {
    text(&client.call("CLIENT LIST")).lines().count()
}

fn pong(client: &mut Client) -> bool {
    client.call("PING") == Value::Simple("PONG".into())
}

#[test]
fn one_client_too_many_is_told_and_the_next_takes_the_place_that_became_free() {
    let server = start(Settings {
        maxclients: 3,
        ..settings(2)
    });
    let mut admitted: Vec<Client> = (0..3).map(|_| Client::connect(&server)).collect();
    assert!(admitted.iter_mut().all(pong));
    for _ in 0..2 {
        let mut refused = Client::connect(&server);
        assert_eq!(refused.read().error(), "ERR max number of clients reached");
        assert_eq!(refused.drain(), 0, "and that is all");
    }
    let info = text(&admitted[0].call("INFO stats"));
    assert!(info.contains("rejected_connections:2\r\n"), "{info}");
    admitted.pop();
    until("the place is free", || clients(&mut admitted[0]) == 2);
    assert!(pong(&mut Client::connect(&server)));
}

#[test]
fn a_bulk_beyond_its_limit_is_refused_by_its_header() {
    let server = server();
    let mut client = Client::connect(&server);
    set(&mut client, "proto-max-bulk-len", "1mb");
    let argument = vec![b'x'; MIB];
    let echoed = client.call_args(&[b"ECHO", &argument]);
    assert_eq!(echoed, Value::Bulk(argument));
    client.write(b"*2\r\n$4\r\nECHO\r\n$1048577\r\n");
    assert_eq!(
        client.read().error(),
        "ERR Protocol error: invalid bulk length"
    );
    assert_eq!(client.drain(), 0);
}

#[test]
fn queued_commands_count_as_part_of_the_query() {
    let server = server();
    let mut admin = Client::connect(&server);
    set(&mut admin, "client-query-buffer-limit", "1mb");
    let mut client = Client::connect(&server);
    client.call("MULTI").ok();
    let set_k = encode(&[b"SET", b"k", &[b'x'; 10_000]]);
    let mut queued = 0;
    while client.stream.write_all(&set_k).is_ok() && client.try_read().is_ok() {
        queued += 1;
        assert!(queued < 200, "a queue without end");
    }
    assert!(queued > 90, "{queued}");
    until("the client is gone", || clients(&mut admin) == 1);
}

#[test]
fn a_reply_beyond_the_hard_limit_ends_the_connection_before_it_is_made_many_times() {
    for workers in [1, 2] {
        let server = start(Settings {
            output_limits: [OutputLimit {
                hard_bytes: 8 * MIB as u64,
                soft_bytes: 0,
                soft_seconds: 0,
            }; 3],
            ..settings(workers)
        });
        let mut admin = Client::connect(&server);
        let element = vec![b'x'; 10_000];
        for _ in 0..1000 {
            admin.call_args(&[b"RPUSH", b"l", &element]);
        }
        let before = client::resident_bytes();
        let mut greedy = Client::connect(&server);
        assert!(pong(&mut greedy));
        greedy.write(&request("LRANGE l 0 -1").repeat(128));
        until("the client is gone", || clients(&mut admin) == 1);
        let grown = client::resident_bytes().saturating_sub(before);
        // Made whole, it would be 1.2 GiB; other tests take some at the same time.
        assert!(grown < 700 * MIB, "{grown} bytes for 8 MiB");
    }
}

#[test]
fn what_fits_the_fixed_buffer_of_a_client_is_not_counted() {
    let server = server();
    let mut client = Client::connect(&server);
    set(&mut client, "client-output-buffer-limit", "normal 1 1 1");
    let mut other = Client::connect(&server);
    let argument = vec![b'x'; 16_000];
    for client in [&mut client, &mut other] {
        let echoed = client.call_args(&[b"ECHO", &argument]);
        assert_eq!(echoed, Value::Bulk(argument.clone()));
    }
}

#[test]
fn a_soft_limit_concerns_who_stays_above_it() {
    let server = server();
    let mut admin = Client::connect(&server);
    let value = vec![b'x'; 8 * MIB];
    admin.call_args(&[b"SET", b"k", &value]).ok();
    set(&mut admin, "client-output-buffer-limit", "normal 0 1mb 3");
    // Whoever reads falls below it in time, however often it is exceeded.
    let mut reads = Client::connect(&server);
    let mut deaf = Client::connect(&server);
    // Both are there, not only on their way.
    assert!(pong(&mut reads) && pong(&mut deaf));
    let began = Instant::now();
    deaf.send("GET k");
    while clients(&mut admin) == 3 {
        assert_eq!(reads.call("GET k"), Value::Bulk(value.clone()));
        assert!(
            began.elapsed() < Duration::from_secs(60),
            "it is not closed"
        );
    }
    assert!(
        began.elapsed() > Duration::from_millis(2900),
        "{:?}",
        began.elapsed()
    );
    assert!(deaf.drain() < 8 * MIB);
    assert!(pong(&mut reads));
}

#[test]
fn classes_have_limits_of_their_own() {
    let server = server();
    let mut admin = Client::connect(&server);
    set(
        &mut admin,
        "client-output-buffer-limit",
        "normal 1mb 0 0 replica 1mb 0 0 pubsub 0 0 0",
    );
    let message = vec![b'x'; 20 * MIB];
    let mut subscriber = Client::connect(&server);
    subscriber.call("SUBSCRIBE c");
    assert_eq!(admin.call_args(&[b"PUBLISH", b"c", &message]).integer(), 1);
    assert_eq!(
        subscriber.read().array()[2],
        Value::Bulk(message),
        "the limit of others"
    );
}

#[test]
fn who_takes_a_long_reply_slowly_is_not_silent() {
    let server = server();
    let mut admin = Client::connect(&server);
    admin.call_args(&[b"SET", b"k", &vec![b'x'; 32 * MIB]]).ok();
    set(&mut admin, "timeout", "2");
    let (mut slow, mut deaf) = (Client::connect(&server), Client::connect(&server));
    assert!(pong(&mut slow) && pong(&mut deaf));
    slow.send("GET k");
    deaf.send("GET k");
    let (mut received, mut chunk) = (0, vec![0; 64 * 1024]);
    let began = Instant::now();
    // Longer than the timeout twice over, and never faster than that.
    let reply_bytes = "$33554432\r\n".len() + 32 * MIB + "\r\n".len();
    while received < reply_bytes {
        received += slow.stream.read(&mut chunk).expect("it is not closed");
        while began.elapsed() < Duration::from_millis(received as u64 * 6000 / (32 * MIB) as u64) {
            assert!(pong(&mut admin));
            thread::sleep(Duration::from_millis(1)); // its pace, not an order of events
        }
    }
    assert!(pong(&mut slow));
    // Who takes nothing is silent, whatever waits for it.
    until("it is closed", || {
        clients(&mut admin) == 2 || !pong(&mut slow)
    });
    assert!(deaf.drain() < 32 * MIB);
}

#[test]
fn who_waits_for_a_key_may_be_silent() {
    let server = server();
    let (mut waits, mut silent) = (Client::connect(&server), Client::connect(&server));
    let mut admin = Client::connect(&server);
    assert!(pong(&mut silent) && pong(&mut waits));
    waits.send("BLPOP l 0");
    until("it waits", || {
        text(&admin.call("INFO clients")).contains("\r\nblocked_clients:1\r\n")
    });
    set(&mut admin, "timeout", "2");
    until("the silent one is closed", || clients(&mut admin) == 2);
    admin.call("RPUSH l v");
    assert_eq!(waits.read().array()[1], Value::Bulk(b"v".to_vec()));
}

/// A client that watches many keys would otherwise stop its worker for a time that grows with their square.
#[test]
fn a_watched_key_costs_no_more_for_those_that_are_watched_already() {
    const KEYS: usize = 3_000;
    let server = server();
    let mut client = Client::connect(&server);
    let mut watch = |part: usize| {
        let keys: Vec<String> = (0..KEYS).map(|at| format!("k:{part}:{at}")).collect();
        let words = ["WATCH"].into_iter().chain(keys.iter().map(String::as_str));
        let call: Vec<&[u8]> = words.map(str::as_bytes).collect();
        let began = Instant::now();
        client.call_args(&call).ok();
        began.elapsed()
    };
    let first = watch(0);
    let last = (1..=12).map(&mut watch).skip(9).min().unwrap();
    assert!(
        last < first * 5 + Duration::from_millis(60),
        "{first:?}, {last:?}"
    );
    watch(0);
    let info = text(&client.call("INFO clients"));
    let total = format!("total_watched_keys:{}\r\n", 13 * KEYS);
    assert!(info.contains(&total), "{info}");
}

/// A stream that takes nothing until it is told to.
struct SlowStream(mpsc::Receiver<()>);

impl Stream for SlowStream {
    fn write(&mut self, _: &[Piece<'_>], _: Position) {
        let _ = self.0.recv();
    }

    fn cut(&mut self, _: Position) {}
}

#[test]
fn a_writer_waits_while_the_journal_is_slow_to_take_what_it_wrote() {
    let server = server();
    let (release, wait) = mpsc::channel();
    server.attach_stream(Box::new(SlowStream(wait)));
    let mut stuck = Client::connect(&server);
    let mut client = Client::connect(&server);
    client.call("PING");
    // The worker of this one has the pump's role from now on.
    stuck.send("SET a 1");
    let journal = server.keyspace().journal();
    until("the stream has it", || journal.last() == 1);
    let count = AtomicUsize::new(0);
    thread::scope(|scope| {
        let value = "x".repeat(10_000);
        let count = &count;
        scope.spawn(move || {
            for _ in 0..4000 {
                client.call_args(&[b"SET", b"b", value.as_bytes()]).ok();
                count.fetch_add(1, Ordering::Relaxed);
            }
        });
        until("its part is full", || {
            journal.waiting_bytes() > 16 * MIB as u64
        });
        let answered = count.load(Ordering::Relaxed);
        // Answers that were on their way have come by then.
        thread::sleep(Duration::from_millis(300));
        let later = count.load(Ordering::Relaxed);
        drop(release);
        assert!(later <= answered + 1, "{answered}, then {later}");
        assert!(later < 2000, "{later}");
    });
    assert_eq!(count.load(Ordering::Relaxed), 4000);
    stuck.read().ok();
}
