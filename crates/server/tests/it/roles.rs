//! Servers that change roles: REPLICAOF and FAILOVER between two of them, what each accepts meanwhile, and who goes on where
//! it was. Must not know the server's insides.

use std::{
    collections::BTreeSet,
    io::{BufRead, BufReader, Read, Write},
    net::{SocketAddr, TcpListener, TcpStream},
    sync::atomic::{AtomicBool, Ordering},
    thread,
};

use redline_server::Server;

use crate::client::{Client, Value, until};
use crate::config_live::{field, set};
use crate::replication::{Replica, call, server};

/// Number of changes of roles under load.
const CHANGES: usize = 6;
/// Number of clients of the load.
const WRITERS: usize = 3;

/// A field of INFO's section on replication.
fn told(server: &Server, name: &str) -> String {
    field(&mut Client::connect(server), "replication", name)
}

fn stat(server: &Server, name: &str) -> String {
    field(&mut Client::connect(server), "stats", name)
}

fn replicaof(server: &Server, primary: Option<&Server>) {
    let line = match primary {
        Some(primary) => format!("REPLICAOF 127.0.0.1 {}", primary.port()),
        None => "REPLICAOF NO ONE".to_owned(),
    };
    call(&mut Client::connect(server), &line, "OK");
}

/// Waits until a replica has all of its primary's stream.
#[track_caller]
fn caught_up(replica: &Server, primary: &Server) {
    until("the replica has everything", || {
        told(replica, "role") == "slave"
            && told(replica, "master_link_status") == "up"
            && told(replica, "master_repl_offset") == told(primary, "master_repl_offset")
    });
}

/// Two servers, of which the second follows the first.
fn pair() -> [Server; 2] {
    let servers = [server(), server()];
    replicaof(&servers[1], Some(&servers[0]));
    caught_up(&servers[1], &servers[0]);
    servers
}

#[test]
fn an_exchange_of_roles_is_partial_even_if_nothing_was_written_in_between() {
    let servers = pair();
    call(&mut Client::connect(&servers[0]), "SET a 1", "OK");
    caught_up(&servers[1], &servers[0]);
    for (old, new) in [(0, 1), (1, 0), (0, 1)] {
        let full = stat(&servers[new], "sync_full");
        replicaof(&servers[new], None);
        replicaof(&servers[old], Some(&servers[new]));
        caught_up(&servers[old], &servers[new]);
        assert_eq!(stat(&servers[new], "sync_full"), full, "{old} to {new}");
    }
    let mut client = Client::connect(&servers[1]);
    call(&mut client, "INCR a", "2");
    caught_up(&servers[0], &servers[1]);
    let copy = Client::connect(&servers[0]).call("GET a");
    assert_eq!(copy, Value::Bulk(b"2".to_vec()));
}

#[test]
fn what_the_old_primary_wrote_behind_the_fork_costs_it_a_snapshot() {
    let [old, new] = pair();
    replicaof(&new, None);
    call(&mut Client::connect(&old), "SET lost 1", "OK");
    replicaof(&old, Some(&new));
    caught_up(&old, &new);
    assert_eq!(stat(&new, "sync_full"), "1");
    assert_eq!(Client::connect(&old).call("EXISTS lost"), Value::Integer(0));
}

/// Increments a number on whichever of two servers takes it, until the end; returns the replies.
fn increment(ports: [u16; 2], is_over: &AtomicBool) -> Vec<i64> {
    let connect = |port: u16| Client::of(TcpStream::connect(("127.0.0.1", port)).unwrap());
    let mut clients = ports.map(connect);
    let (mut replies, mut at) = (Vec::new(), 0);
    while !is_over.load(Ordering::Acquire) {
        match clients[at].call("INCR n") {
            Value::Integer(number) => replies.push(number),
            Value::Error(text) => {
                assert!(text.starts_with("READONLY "), "{text}");
                at = 1 - at;
            }
            other => panic!("{other:?}"),
        }
    }
    replies
}

#[test]
fn no_write_is_lost_or_accepted_by_both_sides_of_a_failover() {
    let servers = pair();
    let ports = [servers[0].port(), servers[1].port()];
    let is_over = AtomicBool::new(false);
    let replies: Vec<i64> = thread::scope(|scope| {
        let writers: Vec<_> = (0..WRITERS)
            .map(|_| scope.spawn(|| increment(ports, &is_over)))
            .collect();
        for change in 0..CHANGES {
            let (old, new) = (&servers[change % 2], &servers[1 - change % 2]);
            let before = told(old, "master_repl_offset");
            until("something is written", || {
                told(old, "master_repl_offset") != before
            });
            let line = match change % 3 {
                0 => "FAILOVER".to_owned(),
                1 => format!("FAILOVER TO 127.0.0.1 {}", new.port()),
                _ => format!("FAILOVER TO 127.0.0.1 {} TIMEOUT 60000", new.port()),
            };
            call(&mut Client::connect(old), &line, "OK");
            until("roles have changed", || {
                told(old, "role") == "slave" && told(new, "role") == "master"
            });
            until("it is over", || {
                told(old, "master_failover_state") == "no-failover"
            });
            caught_up_under_load(old);
        }
        is_over.store(true, Ordering::Release);
        let joined = writers.into_iter().map(|writer| writer.join().unwrap());
        joined.flatten().collect()
    });
    let primary = &servers[CHANGES % 2];
    let last = Client::connect(primary).call("GET n");
    assert_eq!(last, Value::Bulk(replies.len().to_string().into_bytes()));
    let distinct: BTreeSet<i64> = replies.iter().copied().collect();
    assert_eq!(distinct.len(), replies.len(), "a number was given twice");
    assert!(replies.len() > CHANGES, "{}", replies.len());
    let syncs: Vec<[String; 2]> = servers
        .iter()
        .map(|server| ["sync_full", "sync_partial_ok"].map(|name| stat(server, name)))
        .collect();
    assert_eq!(syncs[0], ["1", "3"], "the first one brought the data");
    assert_eq!(syncs[1], ["0", "3"]);
}

/// Waits until a replica's link stands.
#[track_caller]
fn caught_up_under_load(replica: &Server) {
    until("the link is up", || {
        told(replica, "master_link_status") == "up"
    });
}

/// A server with a replica that is played here, under this port, and has acknowledged everything so far.
fn with_replica(port: u16) -> (Server, Replica) {
    let server = server();
    let mut replica = Replica::connect(&server);
    replica.tells(&format!(
        "REPLCONF listening-port {port} capa eof capa psync2"
    ));
    replica.send("PSYNC ? -1");
    replica.snapshot();
    replica.ack();
    call(&mut Client::connect(&server), "SET before 1", "OK");
    replica.expects(&["SELECT 0", "SET before 1"]);
    replica.ack();
    until("it is online", || {
        told(&server, "slave0").contains("state=online")
    });
    (server, replica)
}

fn state(server: &Server) -> String {
    told(server, "master_failover_state")
}

/// Has a write held back by an attempt that waits for a replica; returns its client.
fn held_write(server: &Server) -> Client {
    let blocked = || {
        let mut client = Client::connect(server);
        field(&mut client, "clients", "blocked_clients")
    };
    assert_eq!(state(server), "waiting-for-sync");
    let mut writes = Client::connect(server);
    writes.send("INCR n");
    until("the write waits", || blocked() == "1");
    call(&mut Client::connect(server), "EXISTS n", "0");
    writes
}

#[test]
fn an_attempt_waits_for_the_replica_until_its_time_is_up_or_it_is_called_off() {
    let (server, mut replica) = with_replica(7777);
    let mut client = Client::connect(&server);
    let none = "ERR No failover in progress.";
    call(&mut client, "FAILOVER ABORT", none);
    set(&mut client, "repl-ping-replica-period", "1");
    for (line, aborts) in [
        ("FAILOVER", true),
        ("FAILOVER TO 127.0.0.1 7777", true),
        ("FAILOVER TIMEOUT 300", false),
        ("FAILOVER TO 127.0.0.1 7777 TIMEOUT 300", false),
    ] {
        call(&mut client, "SET behind 2", "OK");
        call(&mut client, line, "OK");
        if aborts {
            let again = "ERR FAILOVER already in progress.";
            call(&mut client, "FAILOVER", again);
            let refused = "ERR REPLICAOF not allowed while failing over.";
            call(&mut client, "REPLICAOF NO ONE", refused);
            let mut writes = held_write(&server);
            call(&mut client, "FAILOVER ABORT", "OK");
            assert_eq!(writes.read(), Value::Integer(1), "{line}");
        } else {
            until("its time is up", || state(&server) == "no-failover");
            call(&mut client, "INCR n", "1");
        }
        assert_eq!(state(&server), "no-failover", "{line}");
        assert_eq!(told(&server, "role"), "master", "{line}");
        call(&mut client, "FAILOVER ABORT", none);
        replica.expects(&["SET behind 2", "REPLCONF GETACK *", "INCR n"]);
        call(&mut client, "DEL n", "1");
        replica.expects(&["DEL n"]);
    }
}

#[test]
fn nothing_of_its_own_comes_between_a_primary_and_a_replica_that_catches_up() {
    let (server, mut replica) = with_replica(7777);
    let mut client = Client::connect(&server);
    set(&mut client, "repl-timeout", "3600");
    call(&mut client, "SET behind 2", "OK");
    call(&mut client, "FAILOVER", "OK");
    replica.expects(&["SET behind 2", "REPLCONF GETACK *"]);
    // One is due at once, again and again.
    set(&mut client, "repl-ping-replica-period", "1");
    let end = told(&server, "master_repl_offset");
    assert_eq!(end, replica.offset.to_string());
    let mut waits = Client::connect(&server);
    waits.send("WAIT 2 2500");
    assert_eq!(waits.read(), Value::Integer(1));
    assert_eq!(told(&server, "master_repl_offset"), end);
    call(&mut client, "FAILOVER ABORT", "OK");
    replica.expects(&["REPLCONF GETACK *"]);
}

/// Reads the requests of a server that wants to follow this one, up to PSYNC; returns that, and the connection.
fn psync_of(listener: &TcpListener) -> (String, TcpStream) {
    let (mut stream, _) = listener.accept().unwrap();
    let mut input = BufReader::new(stream.try_clone().unwrap());
    loop {
        let mut line = String::new();
        input.read_line(&mut line).unwrap();
        let count = line.trim_end().strip_prefix('*').expect("a request");
        let words = (0..count.parse().unwrap()).map(|_| {
            let mut head = String::new();
            input.read_line(&mut head).unwrap();
            let mut word = vec![0; head.trim_end()[1..].parse::<usize>().unwrap() + 2];
            input.read_exact(&mut word).unwrap();
            String::from_utf8(word).unwrap().trim_end().to_owned()
        });
        let words: Vec<String> = words.collect();
        match words[0].as_str() {
            "PSYNC" => return (words.join(" "), stream),
            "PING" => stream.write_all(b"+PONG\r\n").unwrap(),
            _ => stream.write_all(b"+OK\r\n").unwrap(),
        }
    }
}

#[test]
fn a_forced_change_goes_on_without_the_replica_and_is_undone_if_that_refuses() {
    let listener = TcpListener::bind::<SocketAddr>(([127, 0, 0, 1], 0).into()).unwrap();
    let port = listener.local_addr().unwrap().port();
    let (server, replica) = with_replica(port);
    let mut client = Client::connect(&server);
    call(&mut client, "SET behind 2", "OK");
    let line = format!("FAILOVER TO 127.0.0.1 {port} FORCE");
    let needs_time =
        "ERR FAILOVER with force option requires both a timeout and target HOST and IP.";
    call(&mut client, &line, needs_time);
    let id = told(&server, "master_replid");
    call(&mut client, &format!("{line} TIMEOUT 100"), "OK");
    let mut writes = held_write(&server);
    let (asked, mut stream) = psync_of(&listener);
    let next = told(&server, "master_repl_offset").parse::<u64>().unwrap() + 1;
    assert_eq!(asked, format!("PSYNC {id} {next} FAILOVER"));
    assert_eq!(state(&server), "failover-in-progress");
    assert_eq!(told(&server, "role"), "slave");
    drop(replica);
    stream.write_all(b"-ERR not me\r\n").unwrap();
    until("it is a primary again", || {
        told(&server, "role") == "master" && state(&server) == "no-failover"
    });
    assert_eq!(writes.read(), Value::Integer(1));
    assert_ne!(told(&server, "master_replid"), id, "a history of its own");
}

#[test]
fn a_forced_change_to_a_replica_that_lags_makes_it_the_primary_without_what_it_lacks() {
    let [old, new] = pair();
    // It hears nothing of what is written now.
    let mut sleeps = Client::connect(&new);
    sleeps.call("PING");
    let before = told(&new, "master_repl_offset");
    sleeps.send("DEBUG SLEEP 1.5");
    let mut client = Client::connect(&old);
    until("it is written behind its back", || {
        call(&mut client, "SET behind 2", "OK");
        call(&mut client, "SET behind 3", "OK");
        told(&old, "master_repl_offset") != before
    });
    let line = format!("FAILOVER TO 127.0.0.1 {} FORCE TIMEOUT 50", new.port());
    call(&mut client, &line, "OK");
    until("roles have changed", || {
        told(&old, "role") == "slave" && told(&new, "role") == "master"
    });
    caught_up(&old, &new);
    assert_eq!(state(&old), "no-failover");
    let [one, other] = [&old, &new].map(|server| Client::connect(server).call("GET behind"));
    assert_eq!(one, other);
}
