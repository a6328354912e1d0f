//! Limits on bandwidth: what clients exchange in a span, what a replica is sent, and that workers sleep meanwhile. The rate
//! itself, as a function of time, is tested in `server/src/bandwidth.rs`. Must not know the server's insides.

use std::{
    sync::atomic::{AtomicBool, Ordering},
    thread,
    time::{Duration, Instant},
};

use crate::client::{Client, Value, settings, start, until};
use crate::config_live::{field, set};
use crate::replication::Replica;

const MIB: u64 = 1 << 20;

/// Bytes that do not compress.
fn noise(bytes: u64) -> Vec<u8> {
    let mut state = 1u64;
    let word = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state
    };
    let words = std::iter::repeat_with(word).take(bytes as usize / 8);
    words.flat_map(u64::to_le_bytes).collect()
}

fn number(client: &mut Client, name: &str) -> u64 {
    field(client, "stats", name).parse().unwrap()
}

#[test]
fn all_clients_together_keep_to_the_limit_and_workers_sleep_meanwhile() {
    const RATE: u64 = 8 * MIB;
    let server = start(settings(2));
    let mut admin = Client::connect(&server);
    set(&mut admin, "bandwidth-limit", "8mb");
    let stop = AtomicBool::new(false);
    let write = |key: &str, value_bytes: u64| {
        let mut client = Client::connect(&server);
        let value = noise(value_bytes);
        while !stop.load(Ordering::Relaxed) {
            let words: [&[u8]; 3] = [b"SET", key.as_bytes(), &value];
            client.call_args(&words).ok();
        }
    };
    let read = || {
        let mut client = Client::connect(&server);
        while !stop.load(Ordering::Relaxed) {
            assert!(!matches!(client.call("GET small"), Value::Error(_)));
        }
    };
    let (mut bytes, mut cycles, mut span) = (0, 0, Duration::ZERO);
    thread::scope(|scope| {
        scope.spawn(|| write("small", 4096));
        scope.spawn(|| write("large", 200_000));
        scope.spawn(read);
        scope.spawn(read);
        let mut figures = || {
            let all = number(&mut admin, "total_net_input_bytes")
                + number(&mut admin, "total_net_output_bytes");
            (Instant::now(), all, number(&mut admin, "eventloop_cycles"))
        };
        // What was saved up before is gone.
        until("they are held", || figures().1 > 4 * MIB);
        let first = figures();
        until("a span has passed", || {
            let last = figures();
            span = last.0 - first.0;
            (bytes, cycles) = (last.1 - first.1, last.2 - first.2);
            span > Duration::from_secs(2)
        });
        stop.store(true, Ordering::Relaxed);
    });
    let rate = bytes as f64 / span.as_secs_f64() / RATE as f64;
    assert!((0.85..1.03).contains(&rate), "{rate} of the limit");
    let per_second = cycles as f64 / span.as_secs_f64();
    assert!(per_second < 4000.0, "{per_second} turns of the loops");
    assert!(number(&mut admin, "bandwidth_held_ms") > 1000);
    assert_eq!(number(&mut admin, "bandwidth_limit"), RATE);
    // Who waits goes on at once when there is no limit any more.
    set(&mut admin, "bandwidth-limit", "1mb");
    let mut client = Client::connect(&server);
    client.write(&crate::client::encode(&[b"SET", b"k", &noise(8 * MIB)]));
    until("it is behind by seconds", || {
        let began = Instant::now();
        admin.call("PING");
        began.elapsed() > Duration::from_millis(20)
    });
    let began = Instant::now();
    set(&mut admin, "bandwidth-limit", "0");
    client.read().ok();
    for _ in 0..10 {
        client.call_args(&[b"SET", b"k", &noise(MIB)]).ok();
    }
    let took = began.elapsed();
    assert!(took < Duration::from_secs(10), "{took:?}");
}

#[test]
fn a_limit_of_the_command_line_holds_from_the_start() {
    let server = start(redline_server::Settings {
        bandwidth_limit: MIB,
        ..settings(1)
    });
    let mut client = Client::connect(&server);
    let began = Instant::now();
    for _ in 0..5 {
        client.call_args(&[b"SET", b"k", &noise(MIB / 4)]).ok();
    }
    assert!(began.elapsed() > Duration::from_millis(800));
}

#[test]
fn a_replica_is_sent_snapshot_and_stream_at_its_rate_and_clients_are_not_held() {
    let server = start(settings(2));
    let mut client = Client::connect(&server);
    set(&mut client, "repl-diskless-sync-delay", "0");
    set(&mut client, "repl-bandwidth-limit", "4mb");
    let value = noise(4 * MIB);
    client.call_args(&[b"SET", b"k", &value]).ok();
    let mut replica = Replica::connect(&server);
    // The length is told before: to look for a mark would take the test long.
    replica.tells("REPLCONF capa psync2");
    let about_a_second = |began: Instant| {
        let took = began.elapsed();
        let is_right = (Duration::from_millis(800)..Duration::from_secs(8)).contains(&took);
        assert!(is_right, "{took:?}");
    };
    let began = Instant::now();
    replica.send("PSYNC ? -1");
    let (_, snapshot) = replica.snapshot();
    assert!(snapshot.len() as u64 > 4 * MIB);
    about_a_second(began);
    replica.ack();
    let began = Instant::now();
    // It is not held, and neither limit is the other's.
    client.call_args(&[b"SET", b"k", &value]).ok();
    assert!(began.elapsed() < Duration::from_millis(800));
    replica.take(4 * MIB as usize);
    about_a_second(began);
    assert_eq!(number(&mut client, "bandwidth_held_ms"), 0);
    let sent = number(&mut client, "total_net_repl_output_bytes");
    assert!(sent > 8 * MIB, "{sent}");
    // One that waits for its time goes on when the limit goes.
    client.call_args(&[b"SET", b"k", &value]).ok();
    set(&mut client, "repl-bandwidth-limit", "0");
    replica.take(4 * MIB as usize);
}
