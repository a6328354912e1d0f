//! MIGRATE between two servers of ours: replies, and keys that clients change while they move.

use std::{
    io::{Read, Write},
    net::{TcpListener, TcpStream},
    thread,
};

use redline_testkit::port::ReservedPort;

use crate::{
    append::info,
    running::{Running, folder, folder_with},
};

/// Starts a server that also listens on a TCP port, and returns the port.
fn target() -> (Running, String) {
    let free = ReservedPort::any();
    let port = free.number().to_string();
    let args = ["--port", &port, "--unixsocket", "s", "--threads", "2"];
    (Running::start(folder(), &args, None), port)
}

fn source() -> Running {
    Running::start(folder_with("threads 2\n"), &["r.conf"], None)
}

#[test]
fn keys_move_with_their_expiry_and_errors_of_the_target_are_told() {
    let (target, port) = target();
    let source = source();
    let migrate = |rest: &str| source.call(&format!("MIGRATE 127.0.0.1 {port} {rest}"));
    source.call("SET s v PX 100000");
    source.call("RPUSH l a b c");
    assert_eq!(migrate("none 0 5000"), "+NOKEY");
    assert_eq!(migrate("s 3 5000"), "+OK");
    assert_eq!(source.call("EXISTS s"), ":0");
    let mut other = target.connect();
    other.call("SELECT 3");
    assert_eq!(other.call("GET s"), "v");
    let ttl_ms: u64 = other.call("PTTL s")[1..].parse().unwrap();
    assert!((1..=100_000).contains(&ttl_ms), "{ttl_ms}");
    assert_eq!(migrate("l 0 5000 COPY"), "+OK");
    assert_eq!(source.call("LLEN l"), ":3");
    assert_eq!(
        migrate("l 0 5000"),
        "-ERR Target instance replied with error: BUSYKEY Target key name already exists."
    );
    assert_eq!(source.call("LLEN l"), ":3", "what was refused stays");
    assert_eq!(info(&source, "migrate_cached_sockets"), "1");
    source.call("SET t w");
    let mut client = source.connect();
    let words = [
        "MIGRATE",
        "127.0.0.1",
        &port,
        "",
        "0",
        "5000",
        "REPLACE",
        "KEYS",
        "l",
        "none",
        "t",
        "t",
    ];
    assert_eq!(client.call_words(&words), "+OK");
    assert_eq!(source.call("DBSIZE"), ":0");
    assert_eq!(target.call("LRANGE l 0 -1"), "a b c");
    assert_eq!(target.call("GET t"), "w");
    source.call("SET u v");
    assert_eq!(
        migrate("u 999 5000"),
        "-ERR Target instance replied with error: ERR DB index is out of range"
    );
    assert_eq!(source.call("GET u"), "v");
    // Inside MULTI the unit holds the key until it is there.
    client.call("MULTI");
    client.call(&format!("MIGRATE 127.0.0.1 {port} u 0 5000"));
    client.call("EXISTS u");
    assert_eq!(client.call("EXEC"), "+OK :0");
    assert_eq!(target.call("GET u"), "v");
}

#[test]
fn nothing_is_lost_or_doubled_while_clients_write() {
    const KEYS: usize = 20;
    const ADDS: usize = 2000;
    let (target, port) = target();
    let source = source();
    // Each addition is counted by the reply; what was added is afterwards in one of the two servers, in each key once.
    let added: usize = thread::scope(|scope| {
        let writers: Vec<_> = (0..2)
            .map(|writer| {
                let mut client = source.connect();
                scope.spawn(move || {
                    for number in 0..ADDS {
                        let (key, member) = (number % KEYS, format!("{writer}-{number}"));
                        let reply = client.call(&format!("RPUSH k{key} {member}"));
                        assert!(reply.starts_with(':'), "{reply}");
                    }
                    ADDS
                })
            })
            .collect();
        let mut mover = source.connect();
        let mut client = target.connect();
        let mut moved = 0;
        while writers.iter().any(|writer| !writer.is_finished()) {
            let key = moved % KEYS;
            moved += 1;
            let reply = mover.call(&format!("MIGRATE 127.0.0.1 {port} k{key} 0 5000"));
            if reply == "+OK" {
                // Out of the way of the next one.
                client.call(&format!("RENAME k{key} m{moved}"));
            } else if reply.starts_with("-IOERR") {
                // It changed each time: the source's is the whole one.
                client.call(&format!("DEL k{key}"));
            } else {
                assert_eq!(reply, "+NOKEY");
            }
        }
        writers
            .into_iter()
            .map(|writer| writer.join().unwrap())
            .sum()
    });
    let count = |server: &Running| -> usize {
        let keys = server.call("KEYS *");
        let keys = keys.split_whitespace();
        keys.map(|key| {
            server.call(&format!("LLEN {key}"))[1..]
                .parse::<usize>()
                .unwrap()
        })
        .sum()
    };
    assert_eq!(count(&source) + count(&target), added);
}

#[test]
fn a_silent_target_delays_its_own_client_only() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    let source = Running::start(folder_with(""), &["r.conf"], None);
    source.call("SET k v");
    let mut waiting = source.connect();
    waiting.send(&format!("MIGRATE 127.0.0.1 {port} k 0 60000"));
    let (mut held, _) = listener.accept().unwrap();
    assert_ne!(held.read(&mut [0; 256]).unwrap(), 0);
    // The one worker goes on, also with the key.
    assert_eq!(source.call("APPEND k w"), ":2");
    drop(held);
    drop(listener);
    assert_eq!(
        waiting.read(),
        "-IOERR error or timeout reading to target instance"
    );
    assert_eq!(source.call("GET k"), "vw");
}

/// Reads from a connection until something has come.
fn until_comes(connection: &mut TcpStream, text: &[u8]) {
    let mut all = Vec::new();
    while !all.windows(text.len()).any(|part| part == text) {
        let mut some = [0; 4096];
        let bytes = connection.read(&mut some).unwrap();
        assert_ne!(bytes, 0, "{}", all.escape_ascii());
        all.extend_from_slice(&some[..bytes]);
    }
}

#[test]
fn what_a_refused_call_had_sent_is_not_taken_up_by_another() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    let source = Running::start(folder_with("threads 2\n"), &["r.conf"], None);
    source.call("SET k v");
    let mut client = source.connect();
    let call = format!("MIGRATE 127.0.0.1 {port} k 0 60000");
    client.send(&call);
    let (mut target, _) = listener.accept().unwrap();
    until_comes(&mut target, b"SELECT");
    target.write_all(b"+OK\r\n").unwrap();
    until_comes(&mut target, b"RESTORE");
    assert_eq!(source.call("CONFIG SET min-replicas-to-write 1"), "+OK");
    target.write_all(b"+OK\r\n").unwrap();
    assert_eq!(
        client.read(),
        "-NOREPLICAS Not enough good replicas to write."
    );
    assert_eq!(source.call("CONFIG SET min-replicas-to-write 0"), "+OK");
    // The target may have done anything with the key since.
    client.send(&call);
    until_comes(&mut target, b"RESTORE");
    target.write_all(b"-BUSYKEY no\r\n").unwrap();
    assert_eq!(
        client.read(),
        "-ERR Target instance replied with error: BUSYKEY no"
    );
    assert_eq!(source.call("GET k"), "v");
}
