//! A primary and its replicas, in memory: some are links, others send any bytes. Whatever they send, lose and read, a link
//! gets the snapshot that was made and then the stream from its cut on, or the stream from where it was: each byte once.
//!
//! Each step is an operation in one byte, and what it needs in the next ones.

#![no_main]

use libfuzzer_sys::fuzz_target;
use redline_replica::{
    Identity, Log, Replid,
    link::{Introduction, Link, Wish},
    primary::{Limits, MARK_BYTES, Next, Primary, State},
};
use redline_resp::{Args, Decoded, ReplyBuffer, RequestDecoder, RequestLimits};

const LINKS: usize = 3;
const CLIENTS: usize = 6;
const MARK: [u8; MARK_BYTES] = [b'm'; MARK_BYTES];
const LIMITS: Limits = Limits {
    spool_bytes: 0,
    backlog_bytes: 300,
    backlog_ttl_ms: 4_000,
    timeout_ms: 10_000,
    ping_period_ms: 3_000,
    is_diskless: true,
    delay_ms: 500,
    enough_replicas: 2,
    hard_bytes: 200_000,
    soft_bytes: 100_000,
    soft_ms: 2_000,
};

/// A client of the primary, as its session has it.
#[derive(Default)]
struct Client {
    decoder: RequestDecoder,
    query: Vec<u8>,
    out: ReplyBuffer,
    is_replica: bool,
}

/// A replica that keeps to the protocol.
#[derive(Default)]
struct Follower {
    link: Link,
    is_connected: bool,
    /// The history that it has, and the bytes of it that it has applied.
    place: Option<(Replid, u64)>,
    begun: Option<(Replid, u64)>,
    snapshot: Vec<u8>,
    /// Bytes on their way to it.
    waiting: Vec<u8>,
}

struct World<'d> {
    data: &'d [u8],
    primary: Primary,
    clients: Vec<Client>,
    followers: Vec<Follower>,
    /// The stream, from offset 0 on.
    stream: Vec<u8>,
    /// Snapshots by the number of their walk.
    walks: Vec<(u64, Vec<u8>)>,
    /// The walk that is being made: its number, and the bytes that there are.
    walk: Option<(u64, usize, bool)>,
    record: u64,
    ids: u8,
    now_ms: u64,
}

impl World<'_> {
    fn byte(&mut self) -> Option<u8> {
        let (&first, rest) = self.data.split_first()?;
        self.data = rest;
        Some(first)
    }

    fn fresh(&mut self) -> Replid {
        self.ids = self.ids.wrapping_add(1);
        Replid::from_random([self.ids; 20])
    }

    /// Notes what the primary has added of its own accord (PING, GETACK) to the stream.
    fn note_stream(&mut self) {
        let Some(blocks) = self.primary.log().blocks() else {
            return;
        };
        let end = self.primary.log().identity().offset();
        assert_eq!(end, blocks.end());
        while (self.stream.len() as u64) < end {
            let at = self.stream.len() as u64;
            match blocks.at(at).expect("what is new is kept") {
                redline_replica::blocks::Found::Full(block, from) => {
                    self.stream.extend_from_slice(&block[from..]);
                }
                redline_replica::blocks::Found::Open(bytes) => self.stream.extend_from_slice(bytes),
                redline_replica::blocks::Found::Spilled(..) => {
                    unreachable!("nothing is spilled without a file")
                }
            }
        }
    }

    fn close(&mut self, client: usize) {
        self.primary.gone(client as u64, self.now_ms);
        self.clients[client] = Client::default();
        if let Some(follower) = self.followers.get_mut(client) {
            follower.is_connected = false;
            follower.waiting.clear();
            let _ = follower.link.lost("the connection was cut", self.now_ms);
        }
    }

    /// Takes bytes of a client, as its session does.
    fn hear(&mut self, client: usize, bytes: &[u8]) {
        self.clients[client].query.extend_from_slice(bytes);
        loop {
            let Client { decoder, query, .. } = &mut self.clients[client];
            let (mut bytes, mut spans) = (std::mem::take(query), Vec::new());
            match decoder.decode(&mut bytes, &RequestLimits::default(), &mut spans) {
                Ok(Decoded::Request { consumed, .. }) => {
                    let words: Vec<Vec<u8>> = Args::new(&bytes, &spans)
                        .iter()
                        .map(<[u8]>::to_vec)
                        .collect();
                    self.clients[client].query = bytes.split_off(consumed);
                    self.answer(client, &words);
                }
                Ok(Decoded::Empty { consumed }) if consumed > 0 => {
                    self.clients[client].query = bytes.split_off(consumed);
                }
                Ok(Decoded::Empty { .. } | Decoded::Incomplete { .. }) => {
                    self.clients[client].query = bytes;
                    return;
                }
                Ok(Decoded::Big { .. }) | Err(_) => return self.close(client),
            }
        }
    }

    /// Answers a request as the commands of a server do.
    fn answer(&mut self, client: usize, words: &[Vec<u8>]) {
        let (id, now_ms) = (client as u64, self.now_ms);
        let number = |word: Option<&Vec<u8>>| -> Option<i64> {
            std::str::from_utf8(word?).ok()?.parse().ok()
        };
        let is = |at: usize, name: &str| {
            words
                .get(at)
                .is_some_and(|word| word.eq_ignore_ascii_case(name.as_bytes()))
        };
        let reply = |world: &mut Self, line: &str| {
            if !world.clients[client].is_replica {
                world.clients[client].out.push_bytes(line.as_bytes());
            }
        };
        if is(0, "ping") {
            return reply(self, "+PONG\r\n");
        }
        if is(0, "psync") && words.len() > 2 || is(0, "sync") {
            if std::mem::replace(&mut self.clients[client].is_replica, true) {
                return;
            }
            let fresh = self.fresh();
            self.primary.peer_mut(id, now_ms);
            match is(0, "sync") {
                true => self.primary.sync(id, false, || fresh, now_ms),
                false => {
                    let asked = number(words.get(2)).unwrap_or(i64::MIN);
                    self.primary.psync(id, &words[1], asked, || fresh, now_ms)
                }
            };
            return self.note_stream();
        }
        if !is(0, "replconf") || words.len().is_multiple_of(2) {
            return reply(self, "-ERR\r\n");
        }
        if is(1, "ack") {
            if let Some(offset) = number(words.get(2)) {
                let synced = number(words.get(4)).filter(|_| is(3, "fack"));
                let at_least_0 = |offset: i64| u64::try_from(offset).unwrap_or(0);
                self.primary
                    .ack(id, at_least_0(offset), synced.map(at_least_0), now_ms);
            }
            return;
        }
        let peer = self.primary.peer_mut(id, now_ms);
        for pair in words[1..].chunks(2) {
            let option = pair[0].to_ascii_lowercase();
            match option.as_slice() {
                b"capa" => peer.note_capability(&pair[1]),
                b"version" => {
                    peer.note_version(&String::from_utf8_lossy(&pair[1]));
                }
                b"listening-port" => {
                    let port = number(Some(&pair[1])).and_then(|port| u16::try_from(port).ok());
                    peer.port = port.unwrap_or(peer.port);
                }
                b"rdb-only" => peer.rdb_only = pair[1] == b"1",
                _ => {}
            }
        }
        reply(self, "+OK\r\n");
    }

    /// Moves what there is between a client and the primary: the primary offers `bytes` at most.
    fn feed(&mut self, client: usize, bytes_max: usize) {
        let next = {
            let out = &mut self.clients[client].out;
            self.primary
                .fill(client as u64, out, out.len_bytes() + bytes_max)
        };
        if let Next::Snapshot { walk, from, bytes } = next {
            let (_, snapshot) = self
                .walks
                .iter()
                .find(|(number, _)| *number == walk)
                .expect("a walk that was begun");
            let from = from as usize;
            let bytes = bytes.min(bytes_max);
            self.clients[client]
                .out
                .push_bytes(&snapshot[from..from + bytes]);
            self.primary
                .snapshot_handed_out(client as u64, bytes as u64, self.now_ms);
        }
        let out = &mut self.clients[client].out;
        let mut sent = Vec::new();
        out.chunks().for_each(|chunk| sent.extend_from_slice(chunk));
        out.clear();
        if client < LINKS && self.followers[client].is_connected {
            self.followers[client].waiting.extend_from_slice(&sent);
            self.follow(client);
        }
    }

    /// Has a replica take what has come, and answer.
    fn follow(&mut self, client: usize) {
        let mut follower = std::mem::take(&mut self.followers[client]);
        while follower.link.takes_bytes() && !follower.waiting.is_empty() {
            let waiting = std::mem::take(&mut follower.waiting);
            let mut wishes = Vec::new();
            let taken = follower.link.take(&waiting, self.now_ms, &mut wishes);
            for wish in wishes {
                self.meet(&mut follower, wish);
            }
            follower.waiting = waiting[taken..].to_vec();
        }
        let sent = std::mem::take(follower.link.out());
        self.followers[client] = follower;
        self.hear(client, &sent);
    }

    fn meet(&mut self, follower: &mut Follower, wish: Wish<'_>) {
        match wish {
            Wish::Begin(place) => {
                follower.begun = Some(place.expect("this primary knows PSYNC"));
                follower.snapshot.clear();
            }
            Wish::Snapshot(bytes) => follower.snapshot.extend_from_slice(bytes),
            Wish::Load { surplus } => {
                let len = follower.snapshot.len() - surplus;
                let place = follower.begun.take().expect("it has begun");
                let snapshot = &follower.snapshot[..len];
                let made = self.walks.iter().any(|(_, made)| made == snapshot);
                assert!(made, "a snapshot that nobody has made");
                follower.place = Some(place);
                let result = Ok(place.1);
                assert_eq!(follower.link.loaded(result, self.now_ms), None);
            }
            Wish::Continue(replid) => {
                let (own, applied) = follower.place.expect("it has asked for that");
                follower.place = Some((replid.unwrap_or(own), applied));
            }
            Wish::Stream(bytes) => {
                let (_, applied) = follower.place.as_mut().expect("it knows where it is");
                let from = *applied as usize;
                assert_eq!(
                    Some(bytes),
                    self.stream.get(from..from + bytes.len()),
                    "other bytes than the stream has there"
                );
                *applied += bytes.len() as u64;
                #[cfg(feature = "planted")]
                assert!(*applied < 700, "the planted fault");
            }
            Wish::Note(_) => {}
            wish => panic!("the primary keeps to the protocol: {wish:?}"),
        }
    }

    fn connect(&mut self, client: usize) {
        self.close(client);
        let follower = &mut self.followers[client];
        follower.begun = None;
        follower.link.follow(self.now_ms);
        assert_eq!(
            follower.link.tick(0, None, self.now_ms),
            Some(Wish::Connect)
        );
        let introduction = Introduction {
            node: None,
            user: None,
            password: None,
            port: 7000 + client as u16,
            address: None,
            resume: follower.place,
            is_failover: false,
            timeout_ms: 1_000_000_000,
        };
        follower.link.connected(introduction, self.now_ms);
        follower.is_connected = true;
        self.follow(client);
    }

    fn step(&mut self) -> Option<()> {
        let op = self.byte()?;
        let client = usize::from(op >> 4) % CLIENTS;
        match op & 15 {
            0 | 1 => {
                let count = usize::from(self.byte()?) * if op & 1 == 0 { 1 } else { 300 };
                if self.primary.log().blocks().is_some() {
                    let seed = self.stream.len() as u32 ^ self.record as u32;
                    let bytes: Vec<u8> = (0..count as u32)
                        .map(|at| (at.wrapping_mul(7) ^ at >> 8 ^ seed) as u8)
                        .collect();
                    self.record += 1;
                    self.stream.extend_from_slice(&bytes);
                    self.primary.append(&bytes);
                    let (_, late) = self.primary.end_round(self.record);
                    self.note_stream();
                    late.into_iter()
                        .for_each(|client| self.close(client as usize));
                }
            }
            2 | 3 => {
                let count = usize::from(self.byte()?).min(self.data.len());
                let (bytes, rest) = self.data.split_at(count);
                self.data = rest;
                let stray = LINKS + client % (CLIENTS - LINKS);
                self.hear(stray, bytes);
                self.feed(stray, 100);
            }
            4 => self.connect(client % LINKS),
            5 => self.close(client),
            6..=8 => {
                let bytes = usize::from(self.byte()?);
                self.feed(client, 1 + bytes * if op & 1 == 0 { 1 } else { 500 });
            }
            9 => {
                if let Some(form) = self
                    .primary
                    .due_walk(self.now_ms)
                    .filter(|_| self.walk.is_none())
                {
                    let walk = self.primary.begin_walk(form, MARK);
                    self.walk = Some((walk, 0, false));
                    let bytes = usize::from(self.byte()?) * 40;
                    let snapshot = (0..bytes).map(|at| (at as u64 * 3 + walk) as u8);
                    self.walks.push((walk, snapshot.collect()));
                }
            }
            10 => {
                if let Some((walk, _, is_cut)) = &mut self.walk
                    && !std::mem::replace(is_cut, true)
                {
                    self.primary.cut_walk(*walk, self.record, self.now_ms);
                }
            }
            11 => {
                let more = usize::from(self.byte()?) * 20;
                if let Some((walk, bytes, true)) = &mut self.walk {
                    let (_, snapshot) = self.walks.last().expect("it was begun");
                    *bytes = (*bytes + more).min(snapshot.len());
                    let (walk, bytes, all) = (*walk, *bytes as u64, snapshot.len());
                    let is_complete = bytes as usize == all;
                    self.primary.walk_grew(walk, bytes, is_complete);
                    if is_complete {
                        self.walk = None;
                    }
                }
            }
            12 => {
                if let Some((walk, _, _)) = self.walk.take() {
                    let part = self.primary.walk_failed(walk);
                    part.into_iter()
                        .for_each(|client| self.close(client as usize));
                }
            }
            13 => {
                self.now_ms += u64::from(self.byte()?) * 20;
                let fresh = self.fresh();
                let tick = self.primary.tick(|| fresh, self.now_ms);
                self.note_stream();
                for (client, _) in tick.close {
                    self.close(client as usize);
                }
            }
            14 => {
                self.primary.ask_acks(self.record);
                self.note_stream();
            }
            _ => {
                let client = client % LINKS;
                let follower = &mut self.followers[client];
                if follower.is_connected
                    && let Some((_, applied)) = follower.place
                {
                    follower.link.acknowledge(applied, None, self.now_ms);
                    self.follow(client);
                }
            }
        }
        Some(())
    }
}

fuzz_target!(|data: &[u8]| {
    let mut world = World {
        data,
        primary: Primary::new(
            Log::new(Identity::new(Replid::from_random([0; 20]))),
            LIMITS,
        ),
        clients: (0..CLIENTS).map(|_| Client::default()).collect(),
        followers: (0..LINKS).map(|_| Follower::default()).collect(),
        stream: Vec::new(),
        walks: Vec::new(),
        walk: None,
        record: 0,
        ids: 0,
        now_ms: 0,
    };
    while world.step().is_some() {
        for replica in world.primary.replicas() {
            let end = world.primary.log().identity().offset();
            assert!(replica.acked <= end, "it acknowledged the future");
            assert!(replica.state != State::Online || world.primary.log().blocks().is_some());
        }
        assert!(world.primary.debt() <= world.primary.log().identity().offset());
    }
});
