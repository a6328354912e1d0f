//! `redline server` as a replica of a primary that is played here: its link is cut at random bytes, and what it has at the
//! end is what a server has that ran the same commands.

use std::{
    fs,
    io::{self, BufRead, BufReader, Read, Write},
    net::{TcpListener, TcpStream},
    thread,
    time::Duration,
};

use crate::{
    append::{digest, info, killed, restarted, set, start, until_info},
    running::{Running, failed_start, folder_with, until},
};

pub const REPLID: &str = "0123456789abcdef0123456789abcdef01234567";
const OTHER_REPLID: &str = "fedcba9876543210fedcba9876543210fedcba98";
pub const MARK: &str = "89abcdef0123456789abcdef0123456789abcdef";
/// Offset of the snapshot.
const OFFSET: usize = 1000;
/// Silence after which a test has failed.
const PATIENCE: Duration = Duration::from_secs(60);

/// A primary: a snapshot, and the stream behind it.
pub struct Primary {
    pub listener: TcpListener,
    snapshot: Vec<u8>,
    stream: Vec<u8>,
    /// Id that it tells to those who come back.
    told: &'static str,
}

/// A connection of a replica, which ends after so many bytes.
pub struct Peer {
    input: BufReader<TcpStream>,
    left: usize,
}

/// Use of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Served {
    /// It ended before PSYNC was answered whole.
    Handshake,
    /// It ended in the snapshot.
    Snapshot,
    /// It got the snapshot.
    Full,
    /// It went on where it was.
    Partial,
}

impl Peer {
    /// Sends bytes, as many as are left.
    pub fn send(&mut self, bytes: &[u8]) -> io::Result<()> {
        let sent = bytes.len().min(self.left);
        self.left -= sent;
        self.input.get_mut().write_all(&bytes[..sent])?;
        match sent == bytes.len() {
            true => Ok(()),
            false => Err(io::ErrorKind::ConnectionAborted.into()),
        }
    }

    fn line(&mut self) -> io::Result<String> {
        let mut line = String::new();
        match self.input.read_line(&mut line)? {
            0 => Err(io::ErrorKind::UnexpectedEof.into()),
            _ => Ok(line.trim_end().to_owned()),
        }
    }

    /// Reads a request; empty lines are signs of life.
    pub fn request(&mut self) -> io::Result<Vec<String>> {
        loop {
            let line = self.line()?;
            let Some(count) = line.strip_prefix('*') else {
                assert_eq!(line, "", "no request");
                continue;
            };
            let words = (0..count.parse().unwrap()).map(|_| {
                let header = self.line()?;
                let bytes: usize = header[1..].parse().unwrap();
                let mut word = vec![0; bytes + 2];
                self.input.read_exact(&mut word)?;
                word.truncate(bytes);
                Ok(String::from_utf8(word).unwrap())
            });
            return words.collect();
        }
    }
}

impl Primary {
    pub fn new(snapshot: Vec<u8>, stream: Vec<u8>) -> Primary {
        Primary {
            listener: TcpListener::bind("127.0.0.1:0").unwrap(),
            snapshot,
            stream,
            told: REPLID,
        }
    }

    pub fn port(&self) -> u16 {
        self.listener.local_addr().unwrap().port()
    }

    pub fn end(&self) -> usize {
        OFFSET + self.stream.len()
    }

    /// Serves connections, each up to its number of bytes, until a replica has applied everything.
    pub fn serve(&self, mut budgets: impl Iterator<Item = usize>) -> Vec<Served> {
        let mut all = Vec::new();
        loop {
            let (stream, _) = self.listener.accept().unwrap();
            stream.set_read_timeout(Some(PATIENCE)).unwrap();
            stream.set_nodelay(true).unwrap();
            let mut peer = Peer {
                input: BufReader::new(stream),
                left: budgets.next().unwrap_or(usize::MAX),
            };
            let mut served = Served::Handshake;
            let ended = self.serve_one(&mut peer, &mut served);
            all.push(served);
            if ended.is_ok() {
                return all;
            }
            let kind = ended.unwrap_err().kind();
            assert_ne!(kind, io::ErrorKind::WouldBlock, "nothing comes: {all:?}");
        }
    }

    /// Serves a connection; returns `Ok` if everything is acknowledged.
    pub fn serve_one(&self, peer: &mut Peer, served: &mut Served) -> io::Result<()> {
        let mut from = loop {
            let request = peer.request()?;
            let words: Vec<&str> = request.iter().map(String::as_str).collect();
            match words[..] {
                ["PING"] => peer.send(b"+PONG\r\n")?,
                ["REPLCONF", "version", _] => {
                    peer.send(b"-ERR Unrecognized REPLCONF option: version\r\n")?
                }
                ["REPLCONF", ..] => peer.send(b"+OK\r\n")?,
                ["PSYNC", "?", "-1"] => {
                    peer.send(format!("+FULLRESYNC {REPLID} {OFFSET}\r\n\n").as_bytes())?;
                    *served = Served::Snapshot;
                    peer.send(format!("\n\n$EOF:{MARK}\r\n").as_bytes())?;
                    peer.send(&self.snapshot)?;
                    peer.send(MARK.as_bytes())?;
                    *served = Served::Full;
                    break OFFSET;
                }
                ["PSYNC", id, next] => {
                    assert!([REPLID, self.told].contains(&id), "{id}");
                    let from = next.parse::<usize>().unwrap() - 1;
                    assert!((OFFSET..=self.end()).contains(&from), "{next}");
                    peer.send(format!("+CONTINUE {}\r\n", self.told).as_bytes())?;
                    *served = Served::Partial;
                    break from;
                }
                _ => panic!("{request:?}"),
            }
        };
        // In pieces, so that the replica meets units that have not come whole.
        while from < self.end() {
            let piece = &self.stream[from - OFFSET..];
            let piece = &piece[..piece.len().min(97)];
            peer.send(piece)?;
            from += piece.len();
        }
        loop {
            let request = peer.request()?;
            assert_eq!(request[..2], ["REPLCONF", "ACK"], "{request:?}");
            if request[2] == self.end().to_string() {
                return Ok(());
            }
        }
    }
}

pub fn encoded(line: &str) -> Vec<u8> {
    let words: Vec<&str> = line.split(' ').collect();
    let mut out = Vec::new();
    redline_resp::encode_request(words, &mut out);
    out
}

/// Commands that show if one is run twice, or not at all.
fn commands() -> Vec<String> {
    let mut all = Vec::new();
    for round in 0..150 {
        all.extend([
            format!("SELECT {}", round % 3),
            "INCR count".to_owned(),
            format!("RPUSH list {round}"),
            format!("SET gone{round} x PXAT 1"),
            format!("PERSIST gone{round}"),
            "MULTI".to_owned(),
            format!("APPEND text {round}"),
            format!("SELECT {}", (round + 1) % 3),
            "INCRBYFLOAT float 0.5".to_owned(),
            "EXEC".to_owned(),
        ]);
    }
    all
}

/// Makes a snapshot with some keys.
pub fn snapshot() -> Vec<u8> {
    let lines = "save \"\"\nrdbcompression no\n";
    let running = Running::start(folder_with(lines), &["r.conf"], None);
    running.call("SET first value");
    running.call("RPUSH list a b c");
    running.call(
        "FUNCTION LOAD \"#!lua name=lib\\nredis.register_function('f', function() return 1 end)\"",
    );
    assert_eq!(running.call("SAVE"), "+OK");
    fs::read(running.path("dump.rdb")).unwrap()
}

/// Returns the digest of a server that has run the commands behind the snapshot, none of which let a key expire.
pub fn expected(snapshot: &[u8]) -> String {
    let folder = folder_with("save \"\"\nenable-debug-command yes\n");
    fs::write(folder.path().join("dump.rdb"), snapshot).unwrap();
    let running = Running::start(folder, &["r.conf"], None);
    until_info(&running, "loading", "0");
    let mut client = running.connect();
    for command in commands() {
        // The key that the primary had, with its time to live taken away.
        let command = command.replace(" PXAT 1", "");
        let reply = client.call(&command);
        assert!(!reply.starts_with('-'), "{command}: {reply}");
    }
    digest(&running)
}

pub fn stream() -> Vec<u8> {
    let mut stream: Vec<u8> = commands().iter().flat_map(|line| encoded(line)).collect();
    stream.extend(encoded("PING"));
    stream.extend(encoded("REPLCONF GETACK *"));
    stream
}

pub fn follower(more: &str, port: u16) -> Running {
    let lines = format!("save \"\"\nenable-debug-command yes\nreplicaof 127.0.0.1 {port}\n{more}");
    Running::start(folder_with(&lines), &["r.conf"], None)
}

/// Random numbers below a bound: where the link is cut.
struct Dice(u64);

impl Dice {
    fn below(&mut self, bound: usize) -> usize {
        self.0 = self
            .0
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1);
        (self.0 >> 33) as usize % bound
    }
}

#[test]
fn a_replica_whose_link_is_cut_anywhere_has_what_its_primary_has() {
    let snapshot = snapshot();
    let expected = expected(&snapshot);
    let handshake = 200;
    thread::scope(|scope| {
        for (seed, way) in [
            (1, "disabled"),
            (2, "swapdb"),
            (3, "flush-before-load"),
            (4, "on-empty-db"),
        ] {
            let (snapshot, expected) = (&snapshot, &expected);
            scope.spawn(move || {
                let primary = Primary::new(snapshot.clone(), stream());
                let way = format!("repl-diskless-load {way}\n");
                let running = follower(&way, primary.port());
                let mut dice = Dice(seed);
                let budgets = vec![
                    dice.below(80),
                    handshake + 60 + dice.below(snapshot.len() - 60),
                    handshake + 300 + snapshot.len() + dice.below(primary.stream.len() / 3),
                    handshake + dice.below(primary.stream.len() / 3),
                    handshake + dice.below(100),
                ];
                let served = primary.serve(budgets.into_iter());
                assert_eq!(
                    served,
                    [
                        Served::Handshake,
                        Served::Snapshot,
                        Served::Full,
                        Served::Partial,
                        Served::Partial,
                        Served::Partial,
                    ],
                    "seed {seed}"
                );
                assert_eq!(digest(&running), *expected, "seed {seed}");
                assert_eq!(
                    running.call("FCALL_RO f 0").as_bytes()[0],
                    b'-',
                    "it has no such flag"
                );
                assert!(running.call("FUNCTION LIST").contains("lib"));
                assert_eq!(
                    info(&running, "slave_repl_offset"),
                    primary.end().to_string()
                );
            });
        }
    });
}

/// Has a server with a key of its own refuse a snapshot, twice.
fn refuses(snapshot: Vec<u8>, lines: &str) {
    let primary = Primary::new(snapshot, Vec::new());
    let running = Running::start(
        folder_with(&format!("save \"\"\n{lines}")),
        &["r.conf"],
        None,
    );
    running.call("SET own value");
    running.call(&format!("REPLICAOF 127.0.0.1 {}", primary.port()));
    for _ in 0..2 {
        let (stream, _) = primary.listener.accept().unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        let mut peer = Peer {
            input: BufReader::new(stream),
            left: usize::MAX,
        };
        let mut served = Served::Handshake;
        // It hangs up when it has looked at it.
        let ended = primary.serve_one(&mut peer, &mut served);
        assert!(
            ended.is_err() && served == Served::Full,
            "{ended:?}, {served:?}"
        );
        assert_eq!(running.call("GET own"), "value");
    }
    assert_eq!(info(&running, "master_link_status"), "down");
    assert_eq!(running.call("REPLICAOF NO ONE"), "+OK");
    assert_eq!(running.call("SET own other"), "+OK");
}

#[test]
fn a_snapshot_that_is_damaged_leaves_what_was_there() {
    let mut damaged = snapshot();
    let middle = damaged.len() / 2;
    damaged[middle] ^= 0x55;
    refuses(damaged, "");
}

#[test]
fn a_snapshot_with_a_library_that_cannot_be_loaded_leaves_what_was_there() {
    let mut snapshot = snapshot();
    let name = b"register_function";
    let at = snapshot.windows(name.len()).position(|bytes| bytes == name);
    snapshot[at.expect("it is there as text")] = b'X';
    refuses(snapshot, "rdbchecksum no\n");
}

#[test]
fn a_replica_with_an_append_only_file_has_the_primarys_data_after_a_kill() {
    let snapshot = snapshot();
    let expected = expected(&snapshot);
    let primary = Primary::new(snapshot, stream());
    let running = follower("appendonly yes\nappendfsync always\n", primary.port());
    assert_eq!(primary.serve(std::iter::empty()), [Served::Full]);
    until("the file is made anew", || {
        (info(&running, "aof_rewrite_in_progress") == "0").then_some(())
    });
    assert_eq!(digest(&running), expected);
    // Nobody serves it now: what it has is from its file.
    let running = restarted(running);
    assert_eq!(digest(&running), expected);
    assert_eq!(running.call("ROLE").split(' ').next(), Some("slave"));
}

#[test]
fn a_replica_tells_what_it_has_on_disk_once_its_file_has_the_snapshot() {
    for (lines, tells) in [
        ("appendonly yes\nappendfsync always\n", true),
        ("appendonly yes\nappendfsync everysec\n", true),
        ("", false),
        // The base is never written to its end.
        (
            "appendonly yes\nappendfsync always\nrepl-diskless-load swapdb\n",
            false,
        ),
    ] {
        let primary = Primary::new(snapshot(), stream());
        let running = follower(lines, primary.port());
        if !tells {
            set(&running, "rdb-key-save-delay", "600000000");
        }
        let (stream, _) = primary.listener.accept().unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        let mut peer = Peer {
            input: BufReader::new(stream),
            left: usize::MAX,
        };
        let mut served = Served::Handshake;
        primary.serve_one(&mut peer, &mut served).unwrap();
        let end = primary.end().to_string();
        // One comes each second, and one when more is on disk.
        let mut synced = None;
        for _ in 0..if tells { 30 } else { 3 } {
            let told = peer.request().unwrap();
            let words: Vec<&str> = told.iter().map(String::as_str).collect();
            match words[..] {
                ["REPLCONF", "ACK", _, "FACK", offset] => synced = Some(offset.to_owned()),
                ["REPLCONF", "ACK", _] => {}
                _ => panic!("{lines}: {told:?}"),
            }
            assert_eq!(told[2], end, "{lines}");
            if synced.as_ref() == Some(&end) {
                break;
            }
        }
        assert_eq!(synced, tells.then_some(end), "{lines}");
    }
}

#[test]
fn replicas_of_a_primary_that_was_started_again_go_on_where_its_file_ends() {
    let lines = "save \"\"\nrepl-diskless-sync-delay 0\nrepl-ping-replica-period 3600\n";
    let running = start(folder_with(lines));
    let mut replica = running.connect();
    replica.send("PSYNC ? -1");
    let (kept, offset) = ("repl_backlog_active", "master_repl_offset");
    until_info(&running, kept, "1");
    assert_eq!(running.call("SET key value"), "+OK");
    until("it is in the stream", || {
        (info(&running, offset) != "0").then_some(())
    });
    let replid = info(&running, "master_replid");
    assert_eq!(running.call("SAVE"), "+OK");
    let running = restarted(running);
    assert_eq!(info(&running, kept), "1");
    assert_eq!(info(&running, "master_replid2"), replid);
    let end: u64 = info(&running, offset).parse().unwrap();
    assert!(end > 0);
    let psync = |asked: u64| {
        let mut replica = running.connect();
        assert_eq!(replica.call("REPLCONF capa psync2"), "+OK");
        replica.call(&format!("PSYNC {replid} {asked}"))
    };
    let fresh = info(&running, "master_replid");
    assert_eq!(psync(end + 1), format!("+CONTINUE {fresh}"));
    assert!(psync(end + 2).starts_with("+FULLRESYNC "), "it has more");
    assert!(psync(end).starts_with("+FULLRESYNC "), "it has less");
}

#[test]
fn replicas_that_go_on_after_a_start_are_told_of_what_had_expired() {
    let lines = "save \"\"\nrepl-diskless-sync-delay 0\nrepl-ping-replica-period 3600\nenable-debug-command yes\n";
    let running = start(folder_with(lines));
    let mut replica = running.connect();
    replica.send("PSYNC ? -1");
    until_info(&running, "repl_backlog_active", "1");
    assert_eq!(running.call("DEBUG SET-ACTIVE-EXPIRE 0"), "+OK");
    assert_eq!(running.call("SET key value PX 1"), "+OK");
    let replid = info(&running, "master_replid");
    assert_eq!(running.call("SAVE"), "+OK");
    let end: u64 = info(&running, "master_repl_offset").parse().unwrap();
    let running = restarted(running);
    let mut replica = running.connect();
    assert_eq!(replica.call("REPLCONF capa psync2"), "+OK");
    let answer = replica.call(&format!("PSYNC {replid} {}", end + 1));
    assert!(answer.starts_with("+CONTINUE "), "{answer}");
    assert_eq!(replica.read(), "SELECT 0");
    assert_eq!(replica.read(), "DEL key");
    assert_eq!(info(&running, "rdb_last_load_keys_expired"), "1");
}

#[test]
fn a_writable_replica_removes_what_its_clients_let_expire() {
    let mut primary = Primary::new(snapshot(), Vec::new());
    // Its own clock tells nothing: it never says that its key goes.
    primary.stream = encoded("SET gone x PXAT 1");
    primary.stream.extend(encoded("REPLCONF GETACK *"));
    let running = follower("replica-read-only no\n", primary.port());
    assert_eq!(primary.serve(std::iter::empty()), [Served::Full]);
    let before: u64 = running.call("DBSIZE")[1..].parse().unwrap();
    assert_eq!(running.call("SET own x PX 20"), "+OK");
    assert_eq!(
        running.call("EVAL \"redis.call('SET', 'mine', 'x', 'PX', '20')\" 0"),
        "(nil)"
    );
    assert_eq!(running.call("SET kept x PX 20"), "+OK");
    assert_eq!(running.call("PERSIST kept"), ":1");
    until("they are removed", || {
        (running.call("DBSIZE") == format!(":{}", before + 1)).then_some(())
    });
    assert_eq!(running.call("GET kept"), "x");
    assert_eq!(running.call("EXISTS own mine"), ":0");
}

#[test]
fn inside_a_transaction_the_role_shows_at_once() {
    let running = start(folder_with(""));
    let mut client = running.connect();
    for call in ["MULTI", "REPLICAOF 127.0.0.1 1", "INFO replication"] {
        client.call(call);
    }
    let replies = client.call("EXEC");
    assert!(replies.contains("role:slave"), "{replies}");
    assert!(replies.contains("master_link_status:down"), "{replies}");
}

#[test]
fn lines_of_the_log_name_the_role() {
    let primary = Primary::new(snapshot(), Vec::new());
    let running = follower("", primary.port());
    primary.serve(std::iter::empty());
    assert_eq!(running.call("REPLICAOF NO ONE"), "+OK");
    let (log, _) = killed(running);
    let role_at = |text: &str| {
        let line = log.lines().find(|line| line.contains(text));
        let line = line.unwrap_or_else(|| panic!("no {text:?} in {log}"));
        line.split([':', ' ']).nth(1).unwrap_or_default().to_owned()
    };
    assert_eq!(role_at("Ready to accept"), "S");
    assert_eq!(role_at("Loading DB in memory"), "S");
    assert_eq!(role_at("Setting secondary replication ID"), "M");
}

#[test]
fn a_primary_that_tells_another_id_is_followed_and_a_promoted_replica_goes_on_with_both() {
    let mut primary = Primary::new(snapshot(), stream());
    primary.told = OTHER_REPLID;
    let running = follower("", primary.port());
    let served = primary.serve([primary.snapshot.len() + 900].into_iter());
    assert_eq!(served, [Served::Full, Served::Partial]);
    assert_eq!(info(&running, "master_replid"), OTHER_REPLID);
    assert_eq!(info(&running, "master_replid2"), REPLID);
    assert_eq!(running.call("REPLICAOF NO ONE"), "+OK");
    assert_eq!(info(&running, "master_replid2"), OTHER_REPLID);
    let end = primary.end();
    assert_eq!(info(&running, "second_repl_offset"), (end + 1).to_string());
    assert_eq!(running.call("SET own value"), "+OK");
}

/// Accepts the next connection of a replica.
pub fn accepted(listener: &TcpListener) -> Peer {
    let (stream, _) = listener.accept().unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    Peer {
        input: BufReader::new(stream),
        left: usize::MAX,
    }
}

/// Takes the next call up to PSYNC, whose words are returned.
fn psync_of(listener: &TcpListener) -> (Peer, Vec<String>) {
    let mut peer = accepted(listener);
    loop {
        let words = peer.request().expect("a request");
        match words[0].as_str() {
            "PING" => peer.send(b"+PONG\r\n").unwrap(),
            "PSYNC" => return (peer, words),
            _ => peer.send(b"+OK\r\n").unwrap(),
        }
    }
}

#[test]
fn units_before_a_damaged_part_of_the_stream_were_applied_twice() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let running = follower("", listener.local_addr().unwrap().port());
    let unit = encoded("INCR counter");
    let (mut peer, _) = psync_of(&listener);
    let head = format!("+FULLRESYNC {REPLID} {OFFSET}\r\n$EOF:{MARK}\r\n");
    let all = [head.as_bytes(), &snapshot(), MARK.as_bytes()].concat();
    peer.send(&all).unwrap();
    until_info(&running, "master_link_status", "up");
    // At one go, so that they are decoded together.
    peer.send(&[&unit[..], b"+PONG\r\n"].concat()).unwrap();
    let (mut peer, words) = psync_of(&listener);
    let next = OFFSET + unit.len() + 1;
    assert_eq!(words, ["PSYNC", REPLID, &next.to_string()]);
    peer.send(format!("+CONTINUE {REPLID}\r\n").as_bytes())
        .unwrap();
    peer.send(&encoded("SET behind x")).unwrap();
    until("the stream goes on", || {
        (running.call("GET behind") == "x").then_some(())
    });
    assert_eq!(running.call("GET counter"), "1");
}

#[test]
fn a_replica_introduces_itself_as_it_is_configured() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let running = start(folder_with(""));
    for (name, value) in [
        ("masteruser", "somebody"),
        ("masterauth", "secret"),
        ("replica-announce-ip", "192.0.2.7"),
        ("replica-announce-port", "7007"),
        ("replica-announced", "no"),
    ] {
        set(&running, name, value);
    }
    let port = listener.local_addr().unwrap().port();
    assert_eq!(running.call(&format!("REPLICAOF 127.0.0.1 {port}")), "+OK");
    assert_eq!(info(&running, "replica_announced"), "0");
    let mut peer = accepted(&listener);
    let mut told = Vec::new();
    while told
        .last()
        .is_none_or(|words: &Vec<String>| words[0] != "PSYNC")
    {
        let words = peer.request().expect("a request");
        let reply = if words[0] == "PING" { "+PONG" } else { "+OK" };
        peer.send(format!("{reply}\r\n").as_bytes()).unwrap();
        told.push(words);
    }
    for line in [
        "AUTH somebody secret",
        "REPLCONF listening-port 7007",
        "REPLCONF ip-address 192.0.2.7",
    ] {
        let words: Vec<&str> = line.split(' ').collect();
        assert!(told.iter().any(|told| *told == words), "{line}: {told:?}");
    }
    drop(peer);
    // The next time it begins a TLS handshake.
    set(&running, "tls-replication", "yes");
    let mut first = [0];
    while first != [22] {
        let mut peer = accepted(&listener);
        peer.input.read_exact(&mut first).unwrap();
    }
}

#[test]
fn a_replica_evicts_only_if_it_is_told_to() {
    const KEYS: usize = 20_000;
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let running = start(folder_with("enable-debug-command yes\n"));
    assert_eq!(running.call(&format!("DEBUG POPULATE {KEYS}")), "+OK");
    let port = listener.local_addr().unwrap().port();
    assert_eq!(running.call(&format!("REPLICAOF 127.0.0.1 {port}")), "+OK");
    set(&running, "maxmemory-policy", "allkeys-random");
    set(&running, "maxmemory", "1mb");
    assert_eq!(running.call("DBSIZE"), format!(":{KEYS}"));
    assert_eq!(info(&running, "evicted_keys"), "0");
    set(&running, "replica-ignore-maxmemory", "no");
    until("it evicts", || {
        (info(&running, "evicted_keys") != "0").then_some(())
    });
}

/// A stream with commands that fail: alone, in a transaction, and one that is unknown.
fn refusing_stream() -> Vec<u8> {
    let lines = [
        "SELECT 0",
        "SET before 1",
        "INCR list",
        "MULTI",
        "SET inside 1",
        "LPUSH first x",
        "SET inside2 1",
        "EXEC",
        "NOSUCH a",
        "SET behind 1",
        "REPLCONF GETACK *",
    ];
    lines.iter().flat_map(|line| encoded(line)).collect()
}

#[test]
fn commands_of_the_primary_that_fail_are_logged_with_their_place() {
    let primary = Primary::new(snapshot(), refusing_stream());
    let running = follower("", primary.port());
    primary.serve(std::iter::empty());
    let keys = running.call("EXISTS before inside inside2 behind");
    assert_eq!(keys, ":4", "what does not fail is applied");
    assert_eq!(info(&running, "unexpected_error_replies"), "3");
    assert_eq!(running.call("CONFIG RESETSTAT"), "+OK");
    assert_eq!(info(&running, "unexpected_error_replies"), "0");
    running.signal("KILL");
    let (_, log, _) = running.ended();
    let place = |lines: &[&str]| {
        let bytes: usize = lines.iter().map(|line| encoded(line).len()).sum();
        OFFSET + bytes
    };
    let before = ["SELECT 0", "SET before 1"];
    let (first, second) = (
        place(&before),
        place(&before) + place(&["INCR list"]) - OFFSET,
    );
    let transaction = [
        "MULTI",
        "SET inside 1",
        "LPUSH first x",
        "SET inside2 1",
        "EXEC",
    ];
    let third = second + place(&transaction) - OFFSET;
    let wrong_type = "WRONGTYPE Operation against a key holding the wrong kind of value";
    for (error, command, offset) in [
        (wrong_type, "INCR", first),
        (wrong_type, "lpush", second),
        ("ERR unknown command", "NOSUCH", third),
    ] {
        let line = format!(
            "sending an error to its master: '{error}' after processing the command '{command}' in the unit behind offset {offset}"
        );
        assert!(log.contains(&line), "{line} in {log}");
    }
}

#[test]
fn a_command_of_the_primary_that_fails_ends_the_process_if_that_is_wanted() {
    for (behavior, read_only, ends) in [
        ("panic", "yes", true),
        ("panic-on-replicas", "yes", true),
        ("panic-on-replicas", "no", false),
        ("ignore", "yes", false),
    ] {
        let primary = Primary::new(snapshot(), refusing_stream());
        let lines =
            format!("propagation-error-behavior {behavior}\nreplica-read-only {read_only}\n");
        let running = follower(&lines, primary.port());
        if !ends {
            primary.serve(std::iter::empty());
            assert_eq!(running.call("EXISTS behind"), ":1", "{lines}");
            continue;
        }
        let mut peer = accepted(&primary.listener);
        let mut served = Served::Handshake;
        let hung_up = primary.serve_one(&mut peer, &mut served);
        assert!(hung_up.is_err() && served == Served::Full, "{lines}");
        let (status, log, _) = running.ended();
        assert_eq!(status.code(), Some(1), "{lines}: {log}");
        assert!(log.contains("propagation-error-behavior"), "{log}");
    }
}

#[test]
fn a_file_with_a_command_that_fails_is_not_loaded_if_that_is_wanted() {
    let folder = folder_with("appendonly yes\nappendfilename a.aof\nsave \"\"\n");
    let running = start(folder);
    assert_eq!(running.call("SET a 1"), "+OK");
    let (_, folder) = killed(running);
    let path = folder.path().join("appendonlydir/a.aof.1.incr.aof");
    let mut file = fs::OpenOptions::new().append(true).open(path).unwrap();
    file.write_all(&encoded("LPUSH a x")).unwrap();
    drop(file);
    let running = start(folder);
    assert_eq!(info(&running, "unexpected_error_replies"), "1");
    let (_, folder) = killed(running);
    let lines = ["r.conf", "--propagation-error-behavior", "panic"];
    let (log, _) = failed_start(folder.path(), &lines);
    assert!(log.contains("the command 'LPUSH'"), "{log}");
}

#[test]
fn a_backlog_whose_file_cannot_be_written_stays_in_memory_and_the_limit_holds() {
    let lines = "save \"\"\nrepl-diskless-sync-delay 0\nclient-output-buffer-limit slave 2mb 0 0\n\
                 repl-backlog-size 16kb\nrepl-backlog-spool 1gb\n";
    let running = start(folder_with(lines));
    let name = format!("temp-backlog-{}.spool", info(&running, "process_id"));
    fs::create_dir(running.path(&name)).unwrap();
    let mut replica = running.try_connect().expect("it listens");
    replica.write_all(&encoded("PSYNC ? -1")).unwrap();
    until_info(&running, "connected_slaves", "1");
    let value = "v".repeat(100_000);
    let mut client = running.connect();
    // It reads nothing.
    until("it is closed", || {
        assert_eq!(client.call_words(&["SET", "k", &value]), "+OK");
        (info(&running, "connected_slaves") == "0").then_some(())
    });
    running.signal("KILL");
    let (_, log, _) = running.ended();
    let line = "The backlog stays in memory: cannot write its spool file: ";
    assert_eq!(log.matches(line).count(), 1, "{log}");
}
