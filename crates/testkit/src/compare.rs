//! The same calls to two servers, reply by reply.
//!
//! A *round* starts both without data, with the same thresholds, and sends the same bytes, in the same pieces, over the
//! same number of connections to each. A round ends at its first disagreement, since from there on the two may hold
//! different data; the next round starts anew. At the end of a round all data of the servers is compared, and DEBUG
//! DIGEST. In half of the rounds a subscriber on each side receives the keyspace events; and now and then each side
//! restores a value that the other has dumped.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::io;
use std::net::SocketAddr;
use std::time::{Duration, Instant};

use redline_resp::reply_decoder::Value;

use crate::client::{Client, encode};
use crate::differences::{self, Difference, explain};
use crate::generate::{Call, Generator, innermost};
use crate::rules::{rule, without_times};
use crate::through::{self, Behind};

/// Number of calls in a round.
const ROUND_CALLS: usize = 400;
/// Number of connections that a round uses in turn, so that one watches changes of another.
const CONNECTIONS: usize = 3;
/// Longest time in which expired keys may be counted.
const EXPIRED_GONE: Duration = Duration::from_secs(3);
/// Longest time until a server has noticed that there are no subscribers.
const UNHEARD: Duration = Duration::from_secs(5);
/// The classes of keyspace events that are compared, as `notify-keyspace-events` takes them: all but evictions. With all of
/// them Redis would write `A`, and forget `n`, `o` and `c` when it restores the old value after a CONFIG SET that failed.
const EVENTS: &str = "KEg$lshzxtdmnoc";
/// The channel of the message that ends a batch's events.
const EVENTS_END: &str = "end-of-events";
/// Start of a line of a monitor, without its time and its address.
const LINE: &str = "line of db ";
/// Largest number of disagreements reported in full; the rest is counted.
const REPORTED_MAX: usize = 60;

/// The options of a comparison.
#[derive(Clone, Debug)]
pub struct Options {
    /// Approximate number of calls.
    pub calls: usize,
    /// Seed of the generator.
    pub seed: u64,
    /// The servers behind ours, if ours is a proxy. They get the comparison's settings, and their data is compared; the
    /// calls are those that one proxy in front of this many servers can answer as one server does.
    pub behind: Vec<SocketAddr>,
    /// They are the primaries of a Redis Cluster: all keys have one slot.
    pub is_cluster: bool,
}

impl Options {
    /// Returns the kind of servers behind ours, if ours is a proxy.
    fn kind(&self) -> Option<Behind> {
        match self.behind.len() {
            0 => None,
            _ if self.is_cluster => Some(Behind::Cluster),
            1 => Some(Behind::One),
            _ => Some(Behind::Several),
        }
    }
}

/// A disagreement that no entry of the list explains.
#[derive(Clone, Debug)]
pub struct Disagreement {
    /// Seed of the round.
    pub seed: u64,
    /// RESP version, 2 or 3.
    pub protocol: u8,
    /// The call, or the compared data.
    pub call: String,
    /// The calls before it in its batch.
    pub before: Vec<String>,
    /// Our reply.
    pub ours: String,
    /// The reply of Redis.
    pub theirs: String,
}

impl fmt::Display for Disagreement {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(
            f,
            "{} (RESP{}, round {:#x})",
            self.call, self.protocol, self.seed
        )?;
        writeln!(f, "    ours   {}", self.ours)?;
        write!(f, "    theirs {}", self.theirs)?;
        for call in &self.before {
            write!(f, "\n    after  {call}")?;
        }
        Ok(())
    }
}

/// Result of a comparison.
#[derive(Debug, Default)]
pub struct Report {
    /// Number of calls that both answered.
    pub calls: usize,
    /// Number of rounds.
    pub rounds: usize,
    /// Number of calls by command.
    pub by_command: BTreeMap<String, usize>,
    /// Number of uses of each entry of the list.
    pub explained: BTreeMap<&'static str, usize>,
    /// The reason why it could not go on.
    pub broken: Option<String>,
    /// The differences that are accepted.
    accepted: &'static [Difference],
    /// Set when the servers of the current round hold different data, for an accepted reason.
    parted: bool,
    /// The disagreements that no accepted difference explains.
    pub disagreements: Vec<Disagreement>,
}

/// Compares two servers.
pub fn run(ours: SocketAddr, theirs: SocketAddr, options: Options) -> Report {
    let mut report = Report {
        accepted: match options.behind.len() {
            0 => differences::DIFFERENCES,
            _ => through::DIFFERENCES,
        },
        ..Report::default()
    };
    let mut seed = options.seed;
    while report.calls < options.calls && report.disagreements.len() < REPORTED_MAX {
        match Round::start(ours, theirs, seed, &options).and_then(|round| round.run(&mut report)) {
            Ok(found) => report.disagreements.extend(found),
            Err(error) => {
                report.broken = Some(format!("round {seed:#x}: {error}"));
                break;
            }
        }
        report.rounds += 1;
        seed += 1;
    }
    report
}

struct Round {
    generator: Generator,
    seed: u64,
    protocol: u8,
    ours: Side,
    theirs: Side,
    /// The kind of servers behind ours, if ours is a proxy.
    behind: Option<Behind>,
}

/// One server's side of a round.
struct Side {
    address: SocketAddr,
    clients: Vec<Client>,
    /// The servers themselves.
    servers: Vec<SocketAddr>,
    /// Sends requests outside of batches.
    control: Client,
    /// Publishes the message that ends a batch's events.
    announcer: Client,
    /// Receives keyspace events, in the rounds that compare them.
    listener: Option<Client>,
}

impl Round {
    fn start(
        ours: SocketAddr,
        theirs: SocketAddr,
        seed: u64,
        options: &Options,
    ) -> io::Result<Round> {
        let behind = &options.behind[..];
        let protocol = if seed.is_multiple_of(2) { 2 } else { 3 };
        // The events of several servers have no order.
        let setup = setup(seed, behind.len() < 2);
        let servers = if behind.is_empty() { &[ours] } else { behind };
        Ok(Round {
            generator: Generator::new(seed),
            seed,
            protocol,
            ours: Side::start(ours, servers, protocol, &setup)?,
            theirs: Side::start(theirs, &[theirs], protocol, &setup)?,
            behind: options.kind(),
        })
    }

    fn run(mut self, report: &mut Report) -> io::Result<Option<Disagreement>> {
        let mut calls_done = 0;
        report.parted = false;
        while calls_done < ROUND_CALLS {
            let (mut calls, sequence) = match self.generator.below(25) {
                24 => {
                    if let Some(found) = self.cross_over(report)? {
                        return Ok(Some(found));
                    }
                    continue;
                }
                0 => (self.generator.channel_batch(), true),
                1 => (self.generator.silenced_batch(), true),
                2 => (self.generator.monitor_batch(), true),
                3 => (self.generator.tracking_batch(), true),
                _ => (self.generator.batch(), false),
            };
            if let Some(behind) = self.behind {
                calls = through::kept(calls, behind);
            }
            calls_done += calls.len();
            report.calls += calls.len();
            for call in &calls {
                *report
                    .by_command
                    .entry(command_name(innermost(call)))
                    .or_default() += 1;
            }
            if let Some(found) = self.batch(&calls, sequence, report)? {
                return Ok(Some(found));
            }
            if report.parted {
                return Ok(None);
            }
            if let Some(found) = self.events(&calls)? {
                return Ok(Some(found));
            }
        }
        self.contents()
    }

    /// Compares the events that the subscribers of both sides have received since the last call, and returns the disagreement
    /// if they differ.
    fn events(&mut self, calls: &[Call]) -> io::Result<Option<Disagreement>> {
        let (mut ours, mut theirs) = (self.ours.events()?, self.theirs.events()?);
        let sorts = |call: &Call| {
            let name = innermost(call)[0].to_ascii_lowercase();
            name == b"sort" || name == b"sort_ro"
        };
        if calls.iter().any(sorts) {
            // BY and GET read keys in the order of the collection's table.
            for events in [&mut ours, &mut theirs] {
                let missed =
                    |event: &String| event.contains(" keymiss") || event.contains(":keymiss ");
                let runs = events.chunk_by_mut(|a, b| missed(a) && missed(b));
                runs.for_each(|run| run.sort_unstable());
            }
        }
        let same = ours
            .iter()
            .zip(&theirs)
            .take_while(|(our, their)| our == their)
            .count();
        Ok((ours != theirs).then(|| {
            // The event before shows the position in the batch.
            let from = same.saturating_sub(1);
            let (ours, theirs) = (ours[from..].join(", "), theirs[from..].join(", "));
            let mut found = self.disagreement(calls, calls.len(), &ours, &theirs);
            found.call = "(keyspace events)".to_owned();
            found.before = calls.iter().map(shown).collect();
            found
        }))
    }

    /// Restores on each side the dump of a key of the other.
    fn cross_over(&mut self, report: &mut Report) -> io::Result<Option<Disagreement>> {
        let tag = match self.behind {
            Some(Behind::Cluster) => through::TAG,
            _ => "",
        };
        let [from, to] = self.generator.two_keys().map(|key| format!("{tag}{key}"));
        let (ours, theirs) = (
            self.ours.control.call(&["DUMP", &from])?,
            self.theirs.control.call(&["DUMP", &from])?,
        );
        let mut call: Call = ["RESTORE", &to, "0"]
            .map(|word| word.as_bytes().to_vec())
            .to_vec();
        let (ours, theirs) = match (ours, theirs) {
            (Value::Bulk(ours), Value::Bulk(theirs)) => {
                let with = |payload: Vec<u8>| {
                    let mut call = call.clone();
                    call.extend([payload, b"REPLACE".to_vec()]);
                    call
                };
                let replies = (
                    self.ours.control.call(&with(theirs.clone()))?,
                    self.theirs.control.call(&with(ours))?,
                );
                call.extend([theirs, b"REPLACE".to_vec()]);
                report.calls += 2;
                replies
            }
            replies => replies,
        };
        if ours != theirs {
            return Ok(Some(self.disagreement(
                &[call],
                0,
                &show(&ours),
                &show(&theirs),
            )));
        }
        self.events(&[call])
    }

    /// Sends a batch to both sides and compares the replies.
    fn batch(
        &mut self,
        calls: &[Call],
        sequence: bool,
        report: &mut Report,
    ) -> io::Result<Option<Disagreement>> {
        let connection = self.generator.below(CONNECTIONS);
        let marker = format!("marker-{}", self.generator.below(usize::MAX));
        let mut bytes = Vec::new();
        for call in calls {
            if self.generator.below(30) == 0 && inline_form(call, &mut bytes) {
                continue;
            }
            encode(call, &mut bytes);
        }
        encode(&["PING", &marker], &mut bytes);
        let mut cuts: Vec<usize> = match self.generator.below(3) {
            0 => (0..self.generator.below(6))
                .map(|_| self.generator.below(bytes.len()))
                .collect(),
            _ => Vec::new(),
        };
        cuts.push(bytes.len());
        cuts.sort_unstable();
        let ours = self.ours.exchange(connection, &bytes, &cuts, &marker)?;
        let theirs = self.theirs.exchange(connection, &bytes, &cuts, &marker)?;
        if ours.end != theirs.end {
            return Ok(Some(self.disagreement(
                calls,
                calls.len(),
                ours.end.text(),
                theirs.end.text(),
            )));
        }
        if ours.end != End::Open {
            for side in [&mut self.ours, &mut self.theirs] {
                side.clients[connection] = side.connect(self.protocol)?;
            }
        }
        let found = if sequence {
            compare_sequence(calls, &ours.replies, &theirs.replies)
        } else {
            compare_batch(calls, &ours.replies, &theirs.replies, report)
        };
        if sequence && self.behind.is_some() {
            self.ours.nobody_listens()?;
        }
        Ok(found.map(|(at, ours, theirs)| {
            let mut found = self.disagreement(calls, at, &ours, &theirs);
            if sequence {
                // One call may have several replies.
                found.before = calls.iter().map(shown).collect();
            }
            found
        }))
    }

    fn disagreement(&self, calls: &[Call], at: usize, ours: &str, theirs: &str) -> Disagreement {
        Disagreement {
            seed: self.seed,
            protocol: self.protocol,
            call: calls
                .get(at)
                .map_or_else(|| "(end of the batch)".to_owned(), shown),
            before: calls[at.saturating_sub(6).min(calls.len())..at.min(calls.len())]
                .iter()
                .map(shown)
                .collect(),
            ours: ours.to_owned(),
            theirs: theirs.to_owned(),
        }
    }

    /// Compares all data of both servers.
    fn contents(&mut self) -> io::Result<Option<Disagreement>> {
        let of = |whose: &str, error: io::Error| {
            io::Error::new(error.kind(), format!("the contents of {whose}: {error}"))
        };
        // Several servers have none in common.
        let digested = matches!(self.behind, None | Some(Behind::One));
        let databases = match self.behind {
            Some(Behind::Cluster) => 1,
            _ => 16,
        };
        let ours = self
            .ours
            .contents(digested, databases)
            .map_err(|error| of("ours", error))?;
        let theirs = self
            .theirs
            .contents(digested, databases)
            .map_err(|error| of("theirs", error))?;
        let keys: BTreeSet<&String> = ours.keys().chain(theirs.keys()).collect();
        for key in keys {
            let (our, their) = (ours.get(key), theirs.get(key));
            if our != their {
                let text = |content: Option<&String>| {
                    content
                        .cloned()
                        .unwrap_or_else(|| "(no such key)".to_owned())
                };
                return Ok(Some(Disagreement {
                    seed: self.seed,
                    protocol: self.protocol,
                    call: format!("contents of {key}"),
                    before: Vec::new(),
                    ours: text(our),
                    theirs: text(their),
                }));
            }
        }
        Ok(None)
    }
}

fn shown(call: &Call) -> String {
    let words = call.iter().map(|word| word.escape_ascii().to_string());
    words.map(quote).collect::<Vec<_>>().join(" ")
}

fn quote(word: String) -> String {
    if word.is_empty() || word.contains(' ') {
        format!("\"{word}\"")
    } else {
        word
    }
}

struct Exchange {
    replies: Vec<Value>,
    end: End,
}

/// State of a connection after a batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum End {
    /// All replies arrived.
    Open,
    /// The server closed it.
    Closed,
    /// Replies were missing.
    Silent,
}

impl End {
    fn text(self) -> &'static str {
        match self {
            End::Open => "(all replies came)",
            End::Closed => "(connection closed)",
            End::Silent => "(replies missing)",
        }
    }
}

impl Side {
    fn start(
        address: SocketAddr,
        servers: &[SocketAddr],
        protocol: u8,
        setup: &[(&str, &str)],
    ) -> io::Result<Side> {
        let mut side = Side {
            address,
            clients: Vec::new(),
            servers: servers.to_vec(),
            control: Client::connect(address)?,
            announcer: Client::connect(servers[0])?,
            listener: None,
        };
        for _ in 0..CONNECTIONS {
            side.clients.push(side.connect(protocol)?);
        }
        for server in servers {
            let mut client = Client::connect(*server)?;
            expect_ok(&client.call(&["FLUSHALL"])?, "FLUSHALL")?;
            expect_ok(&client.call(&["SCRIPT", "FLUSH"])?, "SCRIPT FLUSH")?;
            for (name, value) in setup {
                expect_ok(&client.call(&["CONFIG", "SET", name, value])?, name)?;
            }
        }
        // A proxy keeps scripts as well, and gives them to servers that lack them.
        expect_ok(&side.control.call(&["SCRIPT", "FLUSH"])?, "SCRIPT FLUSH")?;
        if setup.contains(&("notify-keyspace-events", EVENTS)) {
            let mut listener = Client::connect(servers[0])?;
            listener.call(&["PSUBSCRIBE", "__key*", EVENTS_END])?;
            listener.reply()?;
            side.listener = Some(listener);
        }
        Ok(side)
    }

    /// Waits until the servers behind a proxy have noticed that there are no subscribers.
    fn nobody_listens(&mut self) -> io::Result<()> {
        let deadline = Instant::now() + UNHEARD;
        let own = if self.listener.is_some() { 2 } else { 0 };
        for server in &self.servers {
            let mut client = Client::connect(*server)?;
            loop {
                let counts = [&["NUMPAT"][..], &["CHANNELS"], &["SHARDCHANNELS"]].map(|words| {
                    let call: Vec<&str> = ["PUBSUB"].iter().chain(words).copied().collect();
                    client.call(&call)
                });
                let [patterns, channels, shards] = counts;
                let none = Value::Array(Vec::new());
                if patterns? == Value::Integer(own) && channels? == none && shards? == none {
                    break;
                }
                if Instant::now() > deadline {
                    return Err(io::Error::other("the server still has subscribers"));
                }
            }
        }
        Ok(())
    }

    /// Returns the keyspace events since the last call.
    fn events(&mut self) -> io::Result<Vec<String>> {
        let mut events = Vec::new();
        let Some(listener) = &mut self.listener else {
            return Ok(events);
        };
        self.announcer.call(&["PUBLISH", EVENTS_END, ""])?;
        loop {
            let closed = || io::Error::new(io::ErrorKind::UnexpectedEof, "the listener is closed");
            let message = listener.reply()?.ok_or_else(closed)?;
            let words: Vec<&[u8]> = match &message {
                Value::Array(words) => words.iter().filter_map(Value::as_bytes).collect(),
                _ => Vec::new(),
            };
            match words[..] {
                [b"pmessage", _, channel, _] if channel == EVENTS_END.as_bytes() => {
                    return Ok(events);
                }
                [b"pmessage", _, channel, text] => events.push(format!(
                    "{} {}",
                    channel.escape_ascii(),
                    text.escape_ascii()
                )),
                _ => return Err(io::Error::other(format!("no event: {message:?}"))),
            }
        }
    }

    fn connect(&self, protocol: u8) -> io::Result<Client> {
        let mut client = Client::connect(self.address)?;
        client.call(&["HELLO", &protocol.to_string()])?;
        Ok(client)
    }

    fn exchange(
        &mut self,
        connection: usize,
        bytes: &[u8],
        cuts: &[usize],
        marker: &str,
    ) -> io::Result<Exchange> {
        let client = &mut self.clients[connection];
        let mut from = 0;
        for &to in cuts {
            // A server that closes early is detected below, where its replies are read.
            let _ = client.send(&bytes[from..to]);
            from = to;
        }
        let mut replies = Vec::new();
        let end = loop {
            match client.reply() {
                Ok(None) => break End::Closed,
                Ok(Some(reply)) if is_marker(&reply, marker) => break End::Open,
                Ok(Some(reply)) => replies.push(reply),
                Err(error)
                    if matches!(
                        error.kind(),
                        io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut
                    ) =>
                {
                    break End::Silent;
                }
                Err(error) => return Err(error),
            }
        };
        Ok(Exchange { replies, end })
    }

    /// Returns every key of the first databases with all its properties.
    fn contents(&mut self, digested: bool, databases: u32) -> io::Result<BTreeMap<String, String>> {
        let mut contents = BTreeMap::new();
        let mut sizes: BTreeMap<u32, (i64, usize)> = BTreeMap::new();
        for server in &self.servers {
            let mut client = Client::connect(*server)?;
            for db in 0..databases {
                expect_ok(&client.call(&["SELECT", &db.to_string()])?, "SELECT")?;
                let keys = scan(&mut client)?;
                let (size, found) = sizes.entry(db).or_insert((0, 0));
                *size += settled_size(&mut client, keys.len())?;
                *found += keys.len();
                for key in keys {
                    let name = format!("db {db} {}", key.escape_ascii());
                    let held = contents.insert(name.clone(), content(&mut client, &key)?);
                    if held.is_some() {
                        contents.insert(name, "(on several servers)".to_owned());
                    }
                }
            }
            if digested {
                // Last, so that a difference is reported in detail, if possible.
                let digest = client.call(&["DEBUG", "DIGEST"])?;
                contents.insert("~ digest of everything".to_owned(), format!("{digest:?}"));
            }
        }
        for (db, (size, found)) in sizes {
            contents.insert(format!("size of db {db}"), format!("{size} of {found}"));
        }
        Ok(contents)
    }
}

/// Returns the reply of DBSIZE once expired keys, which SCAN leaves out, are reclaimed, which happens without requests.
fn settled_size(client: &mut Client, keys: usize) -> io::Result<i64> {
    let deadline = Instant::now() + EXPIRED_GONE;
    loop {
        let Value::Integer(size) = client.call(&["DBSIZE"])? else {
            return Err(io::Error::other("DBSIZE answers no number"));
        };
        if size == keys as i64 || Instant::now() > deadline {
            return Ok(size);
        }
        std::thread::sleep(Duration::from_millis(20));
    }
}

fn scan(client: &mut Client) -> io::Result<BTreeSet<Vec<u8>>> {
    let mut keys = BTreeSet::new();
    let mut cursor = b"0".to_vec();
    loop {
        let Value::Array(reply) = client.call(&[b"SCAN", &cursor[..]])? else {
            return Err(io::Error::other("SCAN answers no array"));
        };
        let [Value::Bulk(next), Value::Array(found)] = &reply[..] else {
            return Err(io::Error::other("SCAN answers no cursor and keys"));
        };
        keys.extend(
            found
                .iter()
                .filter_map(|key| key.as_bytes().map(<[u8]>::to_vec)),
        );
        if next == b"0" {
            return Ok(keys);
        }
        cursor.clone_from(next);
    }
}

fn content(client: &mut Client, key: &[u8]) -> io::Result<String> {
    let kind = client.call(&[b"TYPE", key])?;
    let (words, elements_per_pair): (&[&[u8]], usize) = match kind.as_bytes().unwrap_or_default() {
        b"string" => (&[b"GET"], 0),
        b"list" => (&[b"LRANGE", b"0", b"-1"], 0),
        b"hash" => (&[b"HGETALL"], 2),
        b"set" => (&[b"SMEMBERS"], 1),
        // Properties of elements are part of the digest.
        b"vectorset" => (&[b"VRANDMEMBER", b"1000000"], 1),
        b"zset" => (&[b"ZRANGE", b"0", b"-1", b"WITHSCORES"], 0),
        b"stream" => (&[b"XRANGE", b"-", b"+"], 0),
        _ => return Ok(format!("{kind:?}")),
    };
    let mut call = vec![words[0], key];
    call.extend_from_slice(&words[1..]);
    let value = client.call(&call)?;
    let text = match (&value, elements_per_pair) {
        (Value::Array(elements), 1 | 2) => {
            let mut parts: Vec<String> = elements
                .chunks(elements_per_pair)
                .map(|part| format!("{part:?}"))
                .collect();
            parts.sort_unstable();
            parts.join(" ")
        }
        (other, _) => format!("{other:?}"),
    };
    let groups = if kind.as_bytes() == Some(b"stream") {
        let info = client.call(&[&b"XINFO"[..], b"STREAM", key, b"FULL", b"COUNT", b"0"])?;
        format!(" {:?}", without_times(&info))
    } else {
        String::new()
    };
    let fields = if kind.as_bytes() == Some(b"hash") {
        timed_fields(client, key)?
    } else {
        String::new()
    };
    let mut encoding = client.call(&[&b"OBJECT"[..], b"ENCODING", key])?;
    // The encoding after INCRBYFLOAT is on the list of differences.
    if encoding == Value::Bulk(b"int".to_vec()) {
        encoding = Value::Bulk(b"embstr".to_vec());
    }
    let ttl = match client.call(&[b"PTTL", key])? {
        Value::Integer(ms) if ms > 0 => "expires".to_owned(),
        other => format!("{other:?}"),
    };
    Ok(format!(
        "{kind:?} {encoding:?} {ttl} {text}{groups}{fields}"
    ))
}

/// Returns the fields of a hash that expire.
fn timed_fields(client: &mut Client, key: &[u8]) -> io::Result<String> {
    let Value::Array(fields) = client.call(&[b"HKEYS", key])? else {
        return Err(io::Error::other("HKEYS answers no array"));
    };
    let fields: BTreeSet<&[u8]> = fields.iter().filter_map(Value::as_bytes).collect();
    if fields.is_empty() {
        return Ok(String::new());
    }
    let count = fields.len().to_string();
    let mut call = vec![&b"HPTTL"[..], key, b"FIELDS", count.as_bytes()];
    call.extend(&fields);
    let Value::Array(times) = client.call(&call)? else {
        return Err(io::Error::other("HPTTL answers no array"));
    };
    let timed = fields
        .iter()
        .zip(&times)
        .filter(|(_, time)| **time != Value::Integer(-1));
    let timed = timed.map(|(field, _)| field.escape_ascii().to_string());
    Ok(format!(
        " fields that expire: {:?}",
        timed.collect::<Vec<_>>()
    ))
}

fn expect_ok(reply: &Value, what: &str) -> io::Result<()> {
    if *reply == Value::Simple(b"OK".to_vec()) {
        return Ok(());
    }
    Err(io::Error::other(format!("{what} was answered {reply:?}")))
}

/// Returns true for the reply to PING; a subscribed RESP2 connection sends an array.
fn is_marker(reply: &Value, marker: &str) -> bool {
    match reply {
        Value::Bulk(text) => text == marker.as_bytes(),
        Value::Array(elements) => {
            elements.len() == 2 && elements[1] == Value::Bulk(marker.as_bytes().to_vec())
        }
        _ => false,
    }
}

type Found = Option<(usize, String, String)>;

fn compare_sequence(calls: &[Call], ours: &[Value], theirs: &[Value]) -> Found {
    let show = |replies: &[Value]| replies.iter().map(show).collect::<Vec<_>>().join(", ");
    let called = |name: &[u8]| calls.iter().any(|call| call[0].eq_ignore_ascii_case(name));
    let mixed = called(b"monitor") && called(b"exec");
    let comparable = |replies: &[Value]| match mixed {
        true => lines_last(&without_stamps(replies)),
        false => in_free_order(&without_stamps(replies)),
    };
    let (ours, theirs) = (comparable(ours), comparable(theirs));
    let same = ours
        .iter()
        .zip(&theirs)
        .take_while(|(our, their)| our == their)
        .count();
    (ours != theirs).then(|| (usize::MAX, show(&ours[same..]), show(&theirs[same..])))
}

/// Returns the replies without the times and addresses in lines of MONITOR: `1755555555.123456 [0 127.0.0.1:4444] "PING"`.
fn without_stamps(replies: &[Value]) -> Vec<Value> {
    let stamped = |text: &[u8]| {
        let text = std::str::from_utf8(text).ok()?;
        let (time, rest) = text.split_once(" [")?;
        let (db, rest) = rest.split_once(' ')?;
        let (_, words) = rest.split_once("] ")?;
        let is_time = time.split_once('.')?.1.len() == 6 && time.parse::<f64>().is_ok();
        is_time.then(|| Value::Simple(format!("{LINE}{db}: {words}").into_bytes()))
    };
    let each = replies.iter().map(|reply| match reply {
        Value::Simple(text) => stamped(text).unwrap_or_else(|| reply.clone()),
        Value::Array(elements) => Value::Array(without_stamps(elements)),
        other => other.clone(),
    });
    each.collect()
}

/// Returns the values of the replies, without nesting, and then the lines of a monitor. Redis writes the lines of the
/// commands of a transaction between the elements of EXEC's reply, so that both are decoded differently.
fn lines_last(replies: &[Value]) -> Vec<Value> {
    fn flatten(value: &Value, words: &mut Vec<Value>, lines: &mut Vec<Value>) {
        match value {
            Value::Array(elements) | Value::Push(elements) => {
                elements
                    .iter()
                    .for_each(|value| flatten(value, words, lines));
            }
            Value::Simple(text) if text.starts_with(LINE.as_bytes()) => lines.push(value.clone()),
            _ => words.push(value.clone()),
        }
    }
    let (mut words, mut lines) = (Vec::new(), Vec::new());
    for reply in replies {
        flatten(reply, &mut words, &mut lines);
    }
    words.append(&mut lines);
    words
}

/// Returns the replies with the names in runs of `unsubscribe` and `punsubscribe` sorted: leaving all channels at once
/// names them in any order, while the counts decrease by one. Likewise the patterns that one message matches.
fn in_free_order(replies: &[Value]) -> Vec<Value> {
    let mut replies = replies.to_vec();
    let kind = |value: &Value| match value {
        Value::Array(elements) | Value::Push(elements) if elements.len() == 3 => elements[0]
            .as_bytes()
            .filter(|kind| kind.ends_with(b"unsubscribe"))
            .map(<[u8]>::to_vec),
        Value::Array(elements) | Value::Push(elements) if elements.len() == 4 => elements[0]
            .as_bytes()
            .filter(|kind| *kind == b"pmessage")
            .map(<[u8]>::to_vec),
        _ => None,
    };
    for run in replies.chunk_by_mut(|a, b| kind(a).is_some() && kind(a) == kind(b)) {
        if kind(&run[0]).is_none() {
            continue;
        }
        let mut names: Vec<Value> = run
            .iter_mut()
            .filter_map(|value| name_of(value).cloned())
            .collect();
        names.sort_by_key(|name| format!("{name:?}"));
        for (value, name) in run.iter_mut().zip(names) {
            if let Some(place) = name_of(value) {
                *place = name;
            }
        }
    }
    replies
}

fn name_of(value: &mut Value) -> Option<&mut Value> {
    match value {
        Value::Array(elements) | Value::Push(elements) => elements.get_mut(1),
        _ => None,
    }
}

/// Compares the replies of a batch, one for each call.
fn compare_batch(calls: &[Call], ours: &[Value], theirs: &[Value], report: &mut Report) -> Found {
    let mut queued: Vec<&Call> = Vec::new();
    for (at, call) in calls.iter().enumerate() {
        if report.parted {
            return None;
        }
        let (our, their) = match (ours.get(at), theirs.get(at)) {
            (Some(our), Some(their)) => (our, their),
            (None, None) => return None,
            (our, their) => {
                let text =
                    |reply: Option<&Value>| reply.map_or_else(|| "(nothing)".to_owned(), show);
                return Some((at, text(our), text(their)));
            }
        };
        let is = |name: &str| call[0].eq_ignore_ascii_case(name.as_bytes());
        if is("exec") {
            let queued = std::mem::take(&mut queued);
            if let (Value::Array(ours), Value::Array(theirs)) = (our, their)
                && ours.len() == theirs.len()
                && ours.len() == queued.len()
            {
                for ((call, our), their) in queued.into_iter().zip(ours).zip(theirs) {
                    if !agree(call, our, their, report) {
                        let of = |value: &Value| {
                            format!(
                                "{} for {}",
                                show(value),
                                String::from_utf8_lossy(&call.join(&b' '))
                            )
                        };
                        return Some((at, of(our), of(their)));
                    }
                }
                continue;
            }
        } else if is("discard") || is("reset") {
            queued.clear();
        } else if *their == Value::Simple(b"QUEUED".to_vec()) {
            queued.push(call);
        }
        if !agree(call, our, their, report) {
            return Some((at, show(our), show(their)));
        }
    }
    None
}

/// Returns true if the replies agree, or their difference is on the list.
fn agree(call: &Call, ours: &Value, theirs: &Value, report: &mut Report) -> bool {
    let call = innermost(call);
    if rule(call).agree(ours, theirs) {
        return true;
    }
    let Some(difference) = explain(report.accepted, call, ours, theirs) else {
        return false;
    };
    *report.explained.entry(difference.name).or_default() += 1;
    report.parted |= difference.parts_ways;
    true
}

fn show(value: &Value) -> String {
    match value {
        Value::Simple(text) => format!("+{}", text.escape_ascii()),
        Value::Error(text) => format!("-{}", text.escape_ascii()),
        Value::Bulk(text) => format!("\"{}\"", text.escape_ascii()),
        Value::Integer(number) => format!(":{number}"),
        Value::Double(text) => format!(",{text}"),
        Value::Array(elements) => format!(
            "[{}]",
            elements.iter().map(show).collect::<Vec<_>>().join(", ")
        ),
        Value::Set(elements) => format!(
            "~[{}]",
            elements.iter().map(show).collect::<Vec<_>>().join(", ")
        ),
        Value::Push(elements) => format!(
            ">[{}]",
            elements.iter().map(show).collect::<Vec<_>>().join(", ")
        ),
        Value::Map(pairs) => {
            let pairs: Vec<String> = pairs
                .iter()
                .map(|(k, v)| format!("{}: {}", show(k), show(v)))
                .collect();
            format!("%{{{}}}", pairs.join(", "))
        }
        other => format!("{other:?}"),
    }
}

fn command_name(call: &[Vec<u8>]) -> String {
    let second = call.get(1).map(|word| &word[..]);
    match redline_spec::resolve(&call[0], second) {
        Ok(id) => redline_spec::row(id).full_name.to_owned(),
        Err(_) => "(unknown)".to_owned(),
    }
}

/// Encodes the call as an inline request if that is possible; returns true if so.
fn inline_form(call: &Call, out: &mut Vec<u8>) -> bool {
    let plain = |word: &Vec<u8>| {
        !word.is_empty()
            && word
                .iter()
                .all(|c| c.is_ascii_alphanumeric() || b"-.*+(".contains(c))
    };
    // A first word that starts like a multibulk header would be decoded as one.
    if !call.iter().all(plain) || call[0][0] == b'*' {
        return false;
    }
    out.extend_from_slice(&call.join(&b' '));
    out.extend_from_slice(b"\r\n");
    true
}

/// Returns the thresholds of a round: Redis's own in one of three, small ones in the others, so that encodings change.
fn setup(seed: u64, heard: bool) -> Vec<(&'static str, &'static str)> {
    let small = !seed.is_multiple_of(3);
    let pick = |default: &'static str, tiny: &'static str| if small { tiny } else { default };
    vec![
        ("hash-max-listpack-entries", pick("128", "4")),
        ("hash-max-listpack-value", pick("64", "16")),
        ("set-max-intset-entries", pick("512", "3")),
        ("set-max-listpack-entries", pick("128", "5")),
        ("set-max-listpack-value", pick("64", "16")),
        ("zset-max-listpack-entries", pick("128", "4")),
        ("zset-max-listpack-value", pick("64", "16")),
        ("list-max-listpack-size", pick("-2", "3")),
        ("hll-sparse-max-bytes", pick("3000", "30")),
        ("stream-node-max-entries", pick("100", "3")),
        ("maxmemory", "0"),
        ("maxmemory-policy", "noeviction"),
        (
            "notify-keyspace-events",
            if heard && (seed / 2).is_multiple_of(2) {
                EVENTS
            } else {
                ""
            },
        ),
        ("proto-max-bulk-len", "512mb"),
    ]
}
