//! Sessions that wait for each other, and what must not be left over from it.

mod client;

use client::{Client, Value, encode, request, settings, start, until};
use redline_server::{Permission, Server, Settings};

/// A server on which keys expire only when somebody meets them, and a client that hears of it.
fn server_without_active_expiry() -> (Server, Client, Client) {
    let server = start(Settings {
        enable_debug_command: Permission::Yes,
        ..settings(1)
    });
    let mut client = Client::connect(&server);
    client.call("DEBUG SET-ACTIVE-EXPIRE 0").ok();
    client.call("CONFIG SET notify-keyspace-events Ex").ok();
    let mut hears = Client::connect(&server);
    hears.call("SUBSCRIBE __keyevent@0__:expired");
    (server, client, hears)
}

fn now_ms(client: &mut Client) -> i64 {
    let time = client.call("TIME");
    time.array()[0].integer() * 1000 + time.array()[1].integer() / 1000
}

fn set_and_outlive(client: &mut Client, watch: bool) {
    // In one piece: both run at the same time of the server's clock, so WATCH meets the key alive.
    let mut calls = request("SET k v PX 100");
    if watch {
        calls.extend(request("WATCH k"));
    }
    client.write(&calls);
    client.read().ok();
    if watch {
        client.read().ok();
    }
    let set_ms = now_ms(client);
    until("the key has expired", || now_ms(client) > set_ms + 105);
}

#[track_caller]
fn hears_that_k_expired(hears: &mut Client) {
    let message = hears.read();
    assert_eq!(message.array()[2], Value::Bulk(b"k".to_vec()));
}

#[test]
fn a_key_that_watch_finds_expired_is_published_at_once() {
    let (_server, mut client, mut hears) = server_without_active_expiry();
    set_and_outlive(&mut client, false);
    client.call("WATCH k").ok();
    hears_that_k_expired(&mut hears);
}

#[test]
fn a_watched_key_that_exec_finds_expired_is_published_at_once() {
    let (_server, mut client, mut hears) = server_without_active_expiry();
    set_and_outlive(&mut client, true);
    client.call("MULTI").ok();
    client.call("PING");
    assert_eq!(client.call("EXEC"), Value::Nil);
    hears_that_k_expired(&mut hears);
}

/// Scripts stand in line behind one that runs; those that close there are passed over, the others get their turn.
#[test]
fn scripts_that_close_in_line_strand_nobody() {
    let server = start(Settings {
        busy_reply_threshold_ms: 60_000,
        ..settings(2)
    });
    let mut observer = Client::connect(&server);
    let mut hears = Client::connect(&server);
    hears.call("SUBSCRIBE begun");
    for round in 0..20 {
        let mut first = Client::connect(&server);
        first.write(&encode(&[
            b"EVAL",
            b"redis.call('publish', 'begun', '') local e = os.clock() + 0.02 while os.clock() < e do end",
            b"0",
        ]));
        hears.read();
        let mut others: Vec<Option<Client>> =
            (0..12).map(|_| Some(Client::connect(&server))).collect();
        for other in others.iter_mut().flatten() {
            other.write(&encode(&[b"EVAL", b"return redis.call('incr', 'n')", b"0"]));
        }
        others
            .iter_mut()
            .enumerate()
            .filter(|(n, _)| (n + round) % 3 != 0)
            .for_each(|(_, other)| *other = None);
        first.read();
        for other in others.iter_mut().flatten() {
            assert!(other.read().integer() > 0);
        }
    }
    until("those who went are forgotten", || {
        match observer.call("CLIENT LIST") {
            Value::Bulk(lines) => lines.iter().filter(|byte| **byte == b'\n').count() == 2,
            other => panic!("{other:?}"),
        }
    });
    assert!(observer.call("GET n").integer() >= 80);
}
