//! `redline server` as a replica that loads a snapshot as it comes: what clients see meanwhile, and what is left when it
//! breaks off.

use std::net::TcpListener;

use crate::{
    append::{info, set, until_info},
    following::{MARK, Peer, REPLID, accepted, encoded, follower, snapshot},
    running::{Running, folder_with, until},
};

const LOADING: &str = "-LOADING Redis is loading the dataset in memory";

/// A snapshot in two parts, and where it comes from.
pub struct Halves {
    listener: TcpListener,
    snapshot: Vec<u8>,
    half: usize,
}

impl Halves {
    pub fn new() -> Halves {
        let snapshot = snapshot();
        Halves {
            listener: TcpListener::bind("127.0.0.1:0").unwrap(),
            half: snapshot.len() / 2,
            snapshot,
        }
    }

    pub fn port(&self) -> u16 {
        self.listener.local_addr().unwrap().port()
    }

    /// Takes the next call and sends the first half.
    pub fn first(&self) -> Peer {
        let mut peer = accepted(&self.listener);
        loop {
            let words = peer.request().expect("a request");
            match words[0].as_str() {
                "PING" => peer.send(b"+PONG\r\n").unwrap(),
                "PSYNC" => break,
                _ => peer.send(b"+OK\r\n").unwrap(),
            }
        }
        let head = format!("+FULLRESYNC {REPLID} 1000\r\n$EOF:{MARK}\r\n");
        peer.send(head.as_bytes()).unwrap();
        peer.send(&self.snapshot[..self.half]).unwrap();
        peer
    }

    /// Sends the second half.
    fn second(&self, peer: &mut Peer) {
        peer.send(&self.snapshot[self.half..]).unwrap();
        peer.send(MARK.as_bytes()).unwrap();
        peer.send(&encoded("SET behind x")).unwrap();
    }
}

/// Starts a server with a key of its own, which then follows.
fn with_own_key(way: &str, port: u16) -> Running {
    let lines = format!("save \"\"\nrepl-diskless-load {way}\n");
    let running = Running::start(folder_with(&lines), &["r.conf"], None);
    assert_eq!(running.call("SET own value"), "+OK");
    let script = "#!lua name=own\\nredis.register_function('own', function() return 'old' end)";
    running.call(&format!("FUNCTION LOAD \"{script}\""));
    assert_eq!(running.call(&format!("REPLICAOF 127.0.0.1 {port}")), "+OK");
    running
}

#[test]
fn data_of_another_history_is_hidden_while_it_is_replaced_and_stays_if_that_fails() {
    let halves = Halves::new();
    let running = with_own_key("swapdb", halves.port());
    let peer = halves.first();
    until_info(&running, "loading", "1");
    assert_eq!(info(&running, "async_loading"), "0");
    assert_eq!(running.call("GET own"), LOADING);
    assert_eq!(running.call("PING"), LOADING);
    drop(peer);
    until_info(&running, "loading", "0");
    assert_eq!(running.call("GET own"), "value");
    assert_eq!(running.call("FCALL own 0"), "old");
    let mut peer = halves.first();
    until_info(&running, "loading", "1");
    halves.second(&mut peer);
    until_info(&running, "loading", "0");
    until("the stream goes on", || {
        (running.call("GET behind") == "x").then_some(())
    });
    assert_eq!(running.call("EXISTS own first"), ":1");
    assert!(running.call("FUNCTION LIST").contains("lib"));
}

#[test]
fn data_of_the_same_history_is_served_while_it_is_replaced() {
    let halves = Halves::new();
    let running = follower(
        "repl-diskless-load swapdb\nreplica-read-only no\n",
        halves.port(),
    );
    let mut peer = halves.first();
    halves.second(&mut peer);
    until_info(&running, "master_link_status", "up");
    assert_eq!(running.call("SET own value"), "+OK");
    drop(peer);
    let peer = halves.first();
    until_info(&running, "async_loading", "1");
    assert_eq!(info(&running, "loading"), "0");
    assert_eq!(running.call("GET own"), "value");
    assert_eq!(running.call("REPLICAOF NO ONE"), LOADING);
    assert_eq!(running.call("CONFIG SET appendonly yes"), LOADING);
    drop(peer);
    until_info(&running, "async_loading", "0");
    assert_eq!(running.call("GET own"), "value");
    let mut peer = halves.first();
    until_info(&running, "async_loading", "1");
    halves.second(&mut peer);
    until("it is replaced", || {
        (running.call("EXISTS own") == ":0").then_some(())
    });
    until_info(&running, "async_loading", "0");
    assert_eq!(running.call("GET first"), "value");
    assert_eq!(running.call("REPLICAOF NO ONE"), "+OK");
}

#[test]
fn data_is_dropped_before_a_snapshot_only_where_that_is_wanted_and_only_for_one_that_can_be_read() {
    let halves = Halves::new();
    let running = with_own_key("flush-before-load", halves.port());
    let unreadable = Halves {
        listener: halves.listener.try_clone().unwrap(),
        snapshot: b"REDIS9999 and so on".to_vec(),
        half: 19,
    };
    // It hangs up itself.
    let mut peer = unreadable.first();
    assert!(peer.request().is_err());
    until_info(&running, "loading", "0");
    assert_eq!(running.call("GET own"), "value");
    let peer = halves.first();
    until_info(&running, "loading", "1");
    assert_eq!(running.call("GET own"), LOADING);
    until("the data are dropped", || {
        info(&running, "db0").is_empty().then_some(())
    });
    drop(peer);
    until_info(&running, "loading", "0");
    assert_eq!(running.call("DBSIZE"), ":0");
    assert_eq!(running.call("FUNCTION LIST"), "");
    let mut peer = halves.first();
    halves.second(&mut peer);
    until_info(&running, "master_link_status", "up");
    assert_eq!(running.call("GET first"), "value");
}

#[test]
fn an_empty_server_loads_what_comes_and_one_with_data_takes_a_file() {
    let halves = Halves::new();
    let running = with_own_key("on-empty-db", halves.port());
    let peer = halves.first();
    until_info(&running, "master_sync_in_progress", "1");
    until("half of it is in a file", || {
        (info(&running, "master_sync_read_bytes") == halves.half.to_string()).then_some(())
    });
    assert_eq!(info(&running, "loading"), "0");
    assert_eq!(running.call("GET own"), "value");
    assert_eq!(running.call("REPLICAOF NO ONE"), "+OK");
    drop(peer);
    assert_eq!(running.call("FLUSHALL"), "+OK");
    running.call(&format!("REPLICAOF 127.0.0.1 {}", halves.port()));
    let mut peer = halves.first();
    until_info(&running, "loading", "1");
    // Another primary is not waited for.
    set(&running, "repl-diskless-load", "disabled");
    halves.second(&mut peer);
    until_info(&running, "master_link_status", "up");
    assert_eq!(running.call("GET first"), "value");
}
