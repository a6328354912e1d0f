//! The server as a primary, over a socket: replicas played by the test, which read and acknowledge what they like. Must not
//! know the server's insides.

use std::{
    io::{Read, Write},
    net::TcpStream,
    time::Duration,
};

use redline_server::{Permission, Server, Settings};

use crate::client::{Client, Value, request, settings, start, until};
use crate::config_live::{field, set, text};

/// Length of the mark behind a snapshot of unknown length.
const MARK_BYTES: usize = 40;

/// A replica that does nothing by itself.
pub struct Replica {
    stream: TcpStream,
    buffer: Vec<u8>,
    /// Bytes of the stream that were read.
    pub offset: u64,
}

impl Replica {
    pub fn connect(server: &Server) -> Replica {
        let stream = TcpStream::connect(("127.0.0.1", server.port())).unwrap();
        stream
            .set_read_timeout(Some(Duration::from_secs(60)))
            .unwrap();
        Replica {
            stream,
            buffer: Vec::new(),
            offset: 0,
        }
    }

    pub fn send(&mut self, line: &str) {
        self.stream.write_all(&request(line)).unwrap();
    }

    /// Reads more; returns false at the end.
    pub fn more(&mut self) -> bool {
        let mut chunk = [0; 16 * 1024];
        let bytes = self.stream.read(&mut chunk).unwrap_or(0);
        self.buffer.extend_from_slice(&chunk[..bytes]);
        bytes > 0
    }

    pub fn take(&mut self, bytes: usize) -> Vec<u8> {
        while self.buffer.len() < bytes {
            assert!(self.more(), "{} bytes, then the end", self.buffer.len());
        }
        self.buffer.drain(..bytes).collect()
    }

    /// The next line, without signs of life before it.
    fn line(&mut self) -> String {
        loop {
            let skipped = self
                .buffer
                .iter()
                .take_while(|byte| **byte == b'\n')
                .count();
            self.buffer.drain(..skipped);
            if let Some(end) = self.buffer.windows(2).position(|pair| pair == b"\r\n") {
                let line = self.take(end + 2);
                return String::from_utf8(line[..end].to_vec()).unwrap();
            }
            assert!(self.more(), "no line: {}", self.buffer.escape_ascii());
        }
    }

    #[track_caller]
    pub fn tells(&mut self, line: &str) {
        self.send(line);
        assert_eq!(self.line(), "+OK", "{line}");
    }

    /// Reads `+FULLRESYNC` and the snapshot behind it; returns the id and the snapshot.
    pub fn snapshot(&mut self) -> (String, Vec<u8>) {
        let line = self.line();
        let words: Vec<&str> = line.split(' ').collect();
        assert_eq!((words[0], words.len()), ("+FULLRESYNC", 3), "{line}");
        self.offset = words[2].parse().unwrap();
        (words[1].to_owned(), self.body())
    }

    fn body(&mut self) -> Vec<u8> {
        let head = self.line();
        if let Some(mark) = head.strip_prefix("$EOF:") {
            assert_eq!(mark.len(), MARK_BYTES);
            let mut seen = 0;
            loop {
                let mut found = self.buffer[seen..].windows(MARK_BYTES);
                if let Some(end) = found.position(|part| part == mark.as_bytes()) {
                    let body = self.take(seen + end);
                    self.take(MARK_BYTES);
                    return body;
                }
                seen = self.buffer.len().saturating_sub(MARK_BYTES - 1);
                assert!(self.more(), "a snapshot without an end");
            }
        }
        let bytes = head.strip_prefix('$').expect("a length").parse().unwrap();
        self.take(bytes)
    }

    /// Brings it online; returns the id.
    pub fn follow(server: &Server) -> (Replica, String) {
        let mut replica = Replica::connect(server);
        replica.tells("REPLCONF capa eof capa psync2");
        replica.send("PSYNC ? -1");
        let (id, _) = replica.snapshot();
        replica.ack();
        (replica, id)
    }

    pub fn ack(&mut self) {
        let offset = self.offset;
        self.send(&format!("REPLCONF ACK {offset} FACK {offset}"));
    }

    /// The next command of the stream, by its words; PING is passed over.
    fn command(&mut self) -> String {
        loop {
            let head = self.line();
            let count = head.strip_prefix('*').expect("a command").parse().unwrap();
            let mut bytes = head.len() + 2;
            let mut words = Vec::new();
            for _ in 0..count {
                let length = self.line();
                let len: usize = length[1..].parse().unwrap();
                let word = self.take(len + 2);
                bytes += length.len() + 2 + word.len();
                words.push(String::from_utf8_lossy(&word[..len]).into_owned());
            }
            self.offset += bytes as u64;
            if words != ["PING"] {
                return words.join(" ");
            }
        }
    }

    #[track_caller]
    pub fn expects(&mut self, commands: &[&str]) {
        for command in commands {
            assert_eq!(self.command(), *command);
        }
    }

    fn is_closed(&mut self) -> bool {
        !self.more()
    }
}

pub fn server() -> Server {
    let server = start(Settings {
        enable_debug_command: Permission::Yes,
        ..settings(2)
    });
    let mut client = Client::connect(&server);
    set(&mut client, "repl-diskless-sync-delay", "0");
    server
}

#[track_caller]
pub fn call(client: &mut Client, line: &str, reply: &str) {
    let got = match client.call(line) {
        Value::Simple(text) | Value::Error(text) => text,
        Value::Integer(number) => number.to_string(),
        other => panic!("{line}: {other:?}"),
    };
    assert_eq!(got, reply, "{line}");
}

fn contains(all: &[u8], part: &[u8]) -> bool {
    all.windows(part.len()).any(|bytes| bytes == part)
}

#[test]
fn a_replica_gets_a_snapshot_and_then_the_stream() {
    let server = server();
    let mut client = Client::connect(&server);
    call(&mut client, "SET before 1", "OK");
    let mut replica = Replica::connect(&server);
    replica.tells("REPLCONF listening-port 7777 capa eof");
    replica.send("PSYNC ? -1");
    let (id, snapshot) = replica.snapshot();
    assert!(snapshot.starts_with(b"REDIS0010"), "who tells nothing");
    assert!(contains(&snapshot, b"before") && contains(&snapshot, id.as_bytes()));
    call(&mut client, "SET behind 2", "OK");
    until("it is sent", || {
        field(&mut client, "replication", "slave0").contains("state=online")
    });
    replica.ack();
    replica.expects(&["SELECT 0", "SET behind 2"]);
    client.call("SELECT 3");
    client.write(
        &[
            request("MULTI"),
            request("SET a 1"),
            request("INCR a"),
            request("EXEC"),
        ]
        .concat(),
    );
    for _ in 0..4 {
        client.read();
    }
    replica.expects(&["SELECT 3", "MULTI", "SET a 1", "INCR a", "EXEC"]);
    replica.ack();
    let line = format!(
        "ip=127.0.0.1,port=7777,state=online,offset={},",
        replica.offset
    );
    until("it is seen", || {
        field(&mut client, "replication", "slave0").starts_with(&line)
    });
    assert_eq!(field(&mut client, "replication", "connected_slaves"), "1");
    assert_eq!(field(&mut client, "replication", "master_replid"), id);
    assert_eq!(field(&mut client, "stats", "sync_full"), "1");
    call(&mut client, "CONFIG RESETSTAT", "OK");
    assert_eq!(field(&mut client, "stats", "sync_full"), "0");
    let role = Client::connect(&server).call("ROLE");
    let port = Value::Bulk(b"7777".to_vec());
    assert_eq!(role.array()[2].array()[0].array()[1], port);
    let listed = Client::connect(&server).call("CLIENT LIST TYPE replica");
    assert!(matches!(listed, Value::Bulk(text) if contains(&text, b" flags=S ")));
    call(
        &mut Client::connect(&server),
        "CLIENT KILL TYPE replica",
        "1",
    );
    assert!(replica.is_closed());
    until("it is gone", || {
        field(&mut client, "replication", "connected_slaves") == "0"
    });
}

#[test]
fn a_replica_goes_on_where_it_was() {
    let server = server();
    let mut client = Client::connect(&server);
    let (mut replica, id) = Replica::follow(&server);
    call(&mut client, "SET a 1", "OK");
    replica.expects(&["SELECT 0", "SET a 1"]);
    let offset = replica.offset;
    drop(replica);
    call(&mut client, "SET b 2", "OK");
    let mut replica = Replica::connect(&server);
    replica.tells("REPLCONF capa psync2");
    replica.send(&format!("PSYNC {id} {}", offset + 1));
    assert_eq!(replica.line(), format!("+CONTINUE {id}"));
    replica.expects(&["SET b 2"]);
    assert_eq!(field(&mut client, "stats", "sync_partial_ok"), "1");
    // A request for the future, or of another history, costs a snapshot.
    for asked in [
        format!("{id} 100000"),
        format!("{id} -7"),
        format!("{} 1", "f".repeat(40)),
    ] {
        let mut other = Replica::connect(&server);
        other.send(&format!("PSYNC {asked}"));
        other.snapshot();
    }
    assert_eq!(field(&mut client, "stats", "sync_partial_err"), "3");
}

#[test]
fn the_format_is_the_one_that_a_replica_reads() {
    let server = server();
    let mut client = Client::connect(&server);
    call(&mut client, "HSET h f v", "1");
    let magic = |tells: &str, magic: &[u8]| {
        let mut replica = Replica::connect(&server);
        replica.tells(tells);
        replica.send("PSYNC ? -1");
        let (_, snapshot) = replica.snapshot();
        assert_eq!(
            snapshot[..9].escape_ascii().to_string(),
            magic.escape_ascii().to_string()
        );
    };
    magic("REPLCONF capa eof", b"REDIS0010");
    magic("REPLCONF capa eof capa rdb-channel-repl", b"REDIS0012");
    magic("REPLCONF version 9.1.2", b"REDIS0011");
    magic("REPLCONF version 8.0.1", b"REDIS0011");
    magic("REPLCONF version 9.1.2 capa redline", b"REDIS0012");
    client.call("HPEXPIRE h 1000000 FIELDS 1 f");
    magic("REPLCONF version 9.1.2", b"VALKEY080");
    magic("REPLCONF capa eof", b"REDIS0012");
    // How a base of the append-only file is written is nothing to them.
    set(&mut client, "aof-use-rdb-preamble", "no");
    magic("REPLCONF capa eof", b"REDIS0012");
    // A setting is stronger than what they tell.
    client.call("DEL h");
    for (version, expected) in [("9", b"REDIS0009"), ("11", b"REDIS0011")] {
        set(&mut client, "repl-format-version", version);
        magic("REPLCONF capa eof capa rdb-channel-repl", expected);
    }
    set(&mut client, "repl-format-version", "auto");
    client.call("HSET h f v");
    client.call("HPEXPIRE h 1000000 FIELDS 1 f");
    // What cannot be told is not sent broken.
    let mut replica = Replica::connect(&server);
    replica.tells("REPLCONF version 8.0.1 capa eof");
    replica.send("PSYNC ? -1");
    while replica.more() {}
    let said = replica.buffer.split(|byte| *byte == b'\n');
    let mark = said
        .into_iter()
        .find_map(|line| line.strip_prefix(b"$EOF:"));
    if let Some(mark) = mark {
        let marks = replica.buffer.windows(MARK_BYTES);
        let marks = marks.filter(|part| *part == &mark[..MARK_BYTES]);
        assert_eq!(marks.count(), 1, "it has no end");
    }
    until("it is gone", || {
        field(&mut client, "replication", "connected_slaves") == "0"
    });
}

#[test]
fn a_snapshot_has_the_part_that_a_filter_names() {
    let server = server();
    let mut client = Client::connect(&server);
    call(&mut client, "SET key value", "OK");
    let library = b"#!lua name=lib\nredis.register_function('f', function() return 1 end)";
    client.call_args(&[b"FUNCTION", b"LOAD", library]);
    for (words, has_functions, has_data) in [
        ("REPLCONF capa eof", true, true),
        ("REPLCONF capa eof rdb-filter-only functions", true, false),
        ("REPLCONF capa eof rdb-filter-only ", false, false),
    ] {
        let mut replica = Replica::connect(&server);
        replica.tells(words);
        replica.send("PSYNC ? -1");
        let (_, snapshot) = replica.snapshot();
        assert_eq!(&snapshot[..9], b"REDIS0010", "{words}");
        assert_eq!(contains(&snapshot, b"name=lib"), has_functions, "{words}");
        assert_eq!(
            contains(&snapshot, b"\x03key\x05value"),
            has_data,
            "{words}"
        );
        // The stream behind it is that of all data.
        replica.ack();
        call(&mut client, &format!("SET later {has_data}"), "OK");
        replica.expects(&["SELECT 0", &format!("SET later {has_data}")]);
    }
    let mut replica = Replica::connect(&server);
    replica.send("REPLCONF rdb-filter-only keys");
    assert_eq!(
        replica.line(),
        "-ERR Unsupported rdb-filter-only option: keys"
    );
    // Who wants all is not sent a part, though both wait for the same walk.
    set(&mut client, "repl-diskless-sync-delay", "1");
    let mut both = ["REPLCONF capa eof", "REPLCONF capa eof rdb-filter-only "].map(|words| {
        let mut replica = Replica::connect(&server);
        replica.tells(words);
        replica.send("PSYNC ? -1");
        replica
    });
    let has_data = both.each_mut().map(|replica| {
        let (_, snapshot) = replica.snapshot();
        contains(&snapshot, b"\x03key\x05value")
    });
    assert_eq!(has_data, [true, false]);
}

#[test]
fn who_reads_a_snapshot_and_leaves_is_sent_an_older_format_next() {
    let server = server();
    let mut client = Client::connect(&server);
    client.call("HSET h f v");
    // A Redis 6 tells no more than this, and ends its link when it cannot load what it was sent.
    let mut attempt = |acknowledges: bool| {
        let mut replica = Replica::connect(&server);
        replica.tells("REPLCONF listening-port 7006");
        replica.tells("REPLCONF capa eof capa psync2");
        replica.send("PSYNC ? -1");
        let (_, snapshot) = replica.snapshot();
        if acknowledges {
            replica.ack();
            until("it is online", || {
                field(&mut client, "replication", "slave0").contains("state=online")
            });
        }
        drop(replica);
        until("it is gone", || {
            field(&mut client, "replication", "connected_slaves") == "0"
        });
        snapshot[..9].escape_ascii().to_string()
    };
    assert_eq!(attempt(false), "REDIS0010");
    assert_eq!(attempt(true), "REDIS0009");
    // It may be another program by the time that it comes back.
    assert_eq!(attempt(true), "REDIS0010");
    client.call("HPEXPIRE h 1000000 FIELDS 1 f");
    let mut replica = Replica::connect(&server);
    replica.tells("REPLCONF listening-port 7006 capa eof");
    replica.send("PSYNC ? -1");
    let (_, snapshot) = replica.snapshot();
    assert!(snapshot.starts_with(b"REDIS0012"), "no older one holds it");
}

#[test]
fn a_replica_that_does_not_read_holds_up_none_that_shares_its_walk() {
    let server = server();
    let mut client = Client::connect(&server);
    call(&mut client, "DEBUG POPULATE 2000 key 14000", "OK");
    set(&mut client, "rdbcompression", "no");
    set(&mut client, "repl-diskless-sync-delay", "3600");
    set(&mut client, "repl-diskless-sync-max-replicas", "2");
    let [mut slow, mut fast] = [0, 1].map(|_| {
        let mut replica = Replica::connect(&server);
        replica.tells("REPLCONF capa eof capa psync2");
        replica.send("PSYNC ? -1");
        replica
    });
    let (id, snapshot) = fast.snapshot();
    // Far more than sockets take, so the other one is in the middle of it.
    assert!(snapshot.len() > 24 << 20, "{}", snapshot.len());
    fast.ack();
    call(&mut client, "SET behind 1", "OK");
    fast.expects(&["SELECT 0", "SET behind 1"]);
    fast.ack();
    let lines = ["slave0", "slave1"].map(|name| field(&mut client, "replication", name));
    let online = lines.iter().filter(|line| line.contains("state=online"));
    assert_eq!(online.count(), 1, "{lines:?}");
    let (other_id, other) = slow.snapshot();
    assert!(other == snapshot && other_id == id, "one walk for both");
    slow.ack();
    slow.expects(&["SELECT 0", "SET behind 1"]);
    assert_eq!(slow.offset, fast.offset);
}

#[test]
fn clients_wait_for_replicas() {
    let server = server();
    let mut client = Client::connect(&server);
    call(&mut client, "WAIT 0 0", "0");
    call(&mut client, "WAIT 1 1", "0");
    let (mut replica, _) = Replica::follow(&server);
    client.write(&[request("SET a 1"), request("WAIT 1 0")].concat());
    replica.expects(&["SELECT 0", "SET a 1", "REPLCONF GETACK *"]);
    client.read().ok();
    let mut other = Client::connect(&server);
    call(&mut other, "WAIT 1 0", "1");
    replica.ack();
    assert_eq!(client.read(), Value::Integer(1));
    call(&mut client, "WAIT 1 0", "1");
    call(&mut client, "WAIT 2 1", "1");
    replica.expects(&["REPLCONF GETACK *"]);
    client.send("WAITAOF 0 1 0");
    assert_eq!(
        client.read(),
        Value::Array(vec![Value::Integer(0), Value::Integer(1)])
    );
    // Both have to have it.
    let (mut second, _) = Replica::follow(&server);
    client.write(&[request("SET b 1"), request("WAIT 2 0")].concat());
    client.read().ok();
    second.expects(&["SELECT 0", "SET b 1", "REPLCONF GETACK *"]);
    second.ack();
    replica.expects(&["SELECT 0", "SET b 1", "REPLCONF GETACK *"]);
    call(&mut Client::connect(&server), "WAIT 2 0", "2");
    replica.ack();
    assert_eq!(client.read(), Value::Integer(2));
}

#[test]
fn writes_are_refused_without_enough_replicas() {
    let server = server();
    let mut client = Client::connect(&server);
    set(&mut client, "min-replicas-to-write", "1");
    let refused = "NOREPLICAS Not enough good replicas to write.";
    call(&mut client, "SET a 1", refused);
    call(&mut client, "PING", "PONG");
    call(
        &mut client,
        "EVAL return(redis.pcall('set','a','1')) 0",
        refused,
    );
    call(&mut client, "EVAL return(redis.pcall('exists','a')) 0", "0");
    call(&mut client, "EXISTS a", "0");
    let (mut replica, _) = Replica::follow(&server);
    until("a replica is there", || {
        client.call("SET a 2") == Value::Simple("OK".into())
    });
    // It is silent for longer than is allowed.
    set(&mut client, "min-replicas-max-lag", "1");
    until("it is late", || {
        client.call("SET a 3") == Value::Error(refused.into())
    });
    replica.ack();
    until("it is back", || {
        client.call("SET a 4") == Value::Simple("OK".into())
    });
    set(&mut client, "min-replicas-to-write", "0");
    drop(replica);
    call(&mut client, "SET a 5", "OK");
}

/// CLIENT LIST of primaries, without lines.
fn primaries(client: &mut Client) -> String {
    text(&client.call("CLIENT LIST TYPE master"))
}

#[test]
fn the_link_to_a_primary_is_a_client_that_is_listed_and_killed() {
    let (primary, replica) = (server(), server());
    let address = format!("127.0.0.1:{}", primary.port());
    let mut client = Client::connect(&replica);
    call(&mut client, "CLIENT KILL TYPE master", "0");
    call(
        &mut client,
        &format!("REPLICAOF 127.0.0.1 {}", primary.port()),
        "OK",
    );
    until("the link is up", || !primaries(&mut client).is_empty());
    let listed = primaries(&mut client);
    assert!(listed.contains(&format!(" addr={address} ")), "{listed}");
    assert!(listed.contains(" flags=M "), "{listed}");
    assert!(listed.contains(" user=(superuser) "), "{listed}");
    let syncs = |field_name: &str| field(&mut Client::connect(&primary), "stats", field_name);
    assert_eq!(syncs("sync_partial_ok"), "0");
    call(&mut client, &format!("CLIENT KILL {address}"), "OK");
    until("it goes on", || syncs("sync_partial_ok") == "1");
    assert_eq!(syncs("sync_full"), "1");
    until("it is shown again", || {
        primaries(&mut client).contains(&address)
    });
    call(&mut client, "CLIENT KILL TYPE master", "1");
    until("it goes on", || syncs("sync_partial_ok") == "2");
    call(&mut client, "REPLICAOF NO ONE", "OK");
    until("it is gone", || primaries(&mut client).is_empty());
}

#[test]
fn a_snapshot_is_sent_whole_to_who_reads_no_marks() {
    let server = server();
    let mut client = Client::connect(&server);
    call(&mut client, "SET a 1", "OK");
    let mut old = Replica::connect(&server);
    old.send("SYNC");
    assert!(contains(&old.body(), b"REDIS0010"));
    call(&mut client, "SET b 1", "OK");
    old.expects(&["SELECT 0", "SET b 1"]);
    set(&mut client, "repl-diskless-sync", "no");
    let mut replica = Replica::connect(&server);
    replica.tells("REPLCONF capa eof");
    replica.send("PSYNC ? -1");
    let line = replica.line();
    assert!(line.starts_with("+FULLRESYNC"), "{line}");
    assert!(!replica.line().starts_with("$EOF"));
}

#[test]
fn a_walk_waits_for_others() {
    let server = server();
    let mut client = Client::connect(&server);
    set(&mut client, "repl-diskless-sync-delay", "3600");
    set(&mut client, "repl-diskless-sync-max-replicas", "2");
    let mut first = Replica::connect(&server);
    first.send("PSYNC ? -1");
    // A sign of life, and nothing else.
    assert_eq!(first.take(1), b"\n");
    let mut second = Replica::connect(&server);
    second.send("PSYNC ? -1");
    let ids = [first.snapshot().0, second.snapshot().0];
    assert_eq!(ids[0], ids[1]);
}

#[test]
fn a_primary_gives_signs_of_life_and_wants_some() {
    let server = server();
    let mut client = Client::connect(&server);
    set(&mut client, "repl-ping-replica-period", "1");
    let (mut replica, _) = Replica::follow(&server);
    assert_eq!(replica.take(14), b"*1\r\n$4\r\nPING\r\n");
    set(&mut client, "repl-timeout", "1");
    while !replica.is_closed() {}
    until("it is gone", || {
        field(&mut client, "replication", "connected_slaves") == "0"
    });
    // Bytes for those that come back are kept for a while.
    assert_eq!(
        field(&mut client, "replication", "repl_backlog_active"),
        "1"
    );
    let id = field(&mut client, "replication", "master_replid");
    set(&mut client, "repl-backlog-ttl", "1");
    until("that is over", || {
        field(&mut client, "replication", "repl_backlog_active") == "0"
    });
    assert_ne!(field(&mut client, "replication", "master_replid"), id);
}

#[test]
fn what_is_kept_is_bounded() {
    let server = server();
    let mut client = Client::connect(&server);
    set(&mut client, "repl-backlog-size", "16384");
    set(
        &mut client,
        "client-output-buffer-limit",
        "replica 3000000 0 0",
    );
    let (mut replica, id) = Replica::follow(&server);
    let (slow, _) = Replica::follow(&server);
    let value = "x".repeat(100_000);
    for _ in 0..20 {
        call(&mut client, &format!("SET a {value}"), "OK");
    }
    for _ in 0..21 {
        replica.command();
    }
    let offset = replica.offset;
    drop(replica);
    // The other has read nothing: sockets take some, the rest is kept, until it is too much.
    let mut written = 0;
    until("the slow one is closed", || {
        call(&mut client, &format!("SET a {value}"), "OK");
        written += 1;
        field(&mut client, "replication", "connected_slaves") == "0"
    });
    assert!(written > 10, "{written}");
    drop(slow);
    call(&mut client, &format!("SET a {value}"), "OK");
    let kept: u64 = field(&mut client, "replication", "repl_backlog_histlen")
        .parse()
        .unwrap();
    assert!(kept < 16_384 + 2 * 65_536, "{kept}");
    let mut replica = Replica::connect(&server);
    replica.send(&format!("PSYNC {id} {}", offset + 1));
    replica.snapshot();
}

#[test]
fn a_handshake_with_errors_is_told_so() {
    let server = server();
    let mut client = Client::connect(&server);
    call(&mut client, "REPLCONF capa", "ERR syntax error");
    call(
        &mut client,
        "REPLCONF made-up 1",
        "ERR Unrecognized REPLCONF option: made-up",
    );
    let not_a_number = "ERR value is not an integer or out of range";
    call(&mut client, "REPLCONF listening-port x", not_a_number);
    call(&mut client, "REPLCONF rdb-only 2", not_a_number);
    call(&mut client, "MULTI", "OK");
    call(
        &mut client,
        "PSYNC ? -1",
        "ERR Command not allowed inside a transaction",
    );
    client.call("DISCARD");
    // Not from a replica: nothing is answered, and nothing happens.
    client.send("REPLCONF ACK 100");
    call(&mut client, "PING", "PONG");
    assert_eq!(field(&mut client, "replication", "connected_slaves"), "0");
    call(&mut client, "PSYNC ? x", not_a_number);
    let nobody = "ERR There is no replica to be told anything";
    call(&mut client, "DEBUG REPLICATE made up", nobody);
    // A replica that talks of the future, and out of turn.
    let (mut replica, _) = Replica::follow(&server);
    replica.send("REPLCONF ACK 9223372036854775807");
    replica.send("REPLCONF ACK -1");
    replica.send("PSYNC ? -1");
    until("it was heard", || {
        let stats = client.call("INFO commandstats");
        matches!(stats, Value::Bulk(text) if contains(&text, b"cmdstat_psync:calls=3,"))
    });
    call(&mut client, "SET a 1", "OK");
    replica.expects(&["SELECT 0", "SET a 1"]);
    call(&mut client, "WAIT 1 1", "0");
    call(&mut client, "DEBUG REPLICATE made up", "OK");
    replica.expects(&["REPLCONF GETACK *", "made up"]);
    // A reply would stand in its stream.
    replica.send("SET a 2");
    assert!(replica.is_closed());
    let kept = client.call("GET a");
    assert!(matches!(kept, Value::Bulk(text) if text == b"1"));
}

#[test]
fn a_replica_that_is_far_behind_is_sent_the_rest_from_a_file_or_closed() {
    const ROUNDS: usize = 400;
    let server = server();
    let mut client = Client::connect(&server);
    set(&mut client, "client-output-buffer-limit", "slave 2mb 0 0");
    set(&mut client, "repl-backlog-size", "16kb");
    set(&mut client, "repl-backlog-spool", "100mb");
    let (mut replica, _) = Replica::follow(&server);
    let value = |number: usize| format!("{number}:{}", "v".repeat(100_000));
    let fill = |client: &mut Client| {
        for number in 0..ROUNDS {
            let value = value(number);
            client.call_args(&[b"SET", b"k", value.as_bytes()]).ok();
        }
    };
    // Far more than sockets and memory take.
    fill(&mut client);
    let spooled = |client: &mut Client| -> u64 {
        let text = field(client, "replication", "repl_backlog_spooled");
        text.parse().unwrap()
    };
    assert!(spooled(&mut client) > 10 << 20);
    let memory = field(&mut client, "memory", "mem_total_replication_buffers");
    assert!(memory.parse::<u64>().unwrap() < 3 << 20, "{memory}");
    replica.expects(&["SELECT 0"]);
    for number in 0..ROUNDS {
        let command = format!("SET k {}", value(number));
        assert!(replica.command() == command, "{number}");
    }
    until("nothing is in the file", || spooled(&mut client) == 0);
    // The place in the stream is the same as ever.
    replica.ack();
    client.write(&[request("SET end 1"), request("WAIT 1 0")].concat());
    replica.expects(&["SET end 1", "REPLCONF GETACK *"]);
    replica.ack();
    client.read().ok();
    assert_eq!(client.read(), Value::Integer(1));
    set(&mut client, "repl-backlog-spool", "0");
    fill(&mut client);
    until("it is closed", || {
        field(&mut client, "replication", "connected_slaves") == "0"
    });
}

#[test]
fn a_failover_asks_how_far_replicas_are_and_does_not_wait_until_they_say_so() {
    let server = server();
    let mut client = Client::connect(&server);
    let (mut replica, _) = Replica::follow(&server);
    call(&mut client, "SET a 1", "OK");
    call(&mut client, "FAILOVER", "OK");
    replica.expects(&["SELECT 0", "SET a 1", "REPLCONF GETACK *"]);
    let state = |client: &mut Client| field(client, "replication", "master_failover_state");
    assert_eq!(state(&mut client), "waiting-for-sync");
    replica.ack();
    until("it goes on", || state(&mut client) != "waiting-for-sync");
    call(&mut client, "FAILOVER ABORT", "OK");
}

#[test]
fn servers_that_share_a_folder_do_not_meet_in_a_snapshot_for_replicas() {
    let servers = [server(), server()];
    std::thread::scope(|scope| {
        for server in &servers {
            scope.spawn(|| {
                let mut client = Client::connect(server);
                call(&mut client, "SET a 1", "OK");
                for _ in 0..300 {
                    Replica::follow(server);
                }
            });
        }
    });
}
