//! One thread that follows its data: to the node that owns a key's slot, and to the next one when the owner changes.
//!
//! Must not know which requests are sent, nor when: `drive` decides that, whose clients it serves. Each client has
//! its own connection to every node that it has needed.
//!
//! # No request is lost
//!
//! A request keeps its bytes until a reply settles it. A redirect sends it on at once (MOVED also updates the map, and
//! causes a question for the whole map); after CLUSTERDOWN, TRYAGAIN, LOADING, MASTERDOWN or READONLY, a lost
//! connection, or a node's time-out, it is sent again after a growing pause. So it is answered, or counted as unanswered
//! at the end. One whose connection was lost may have been executed, and is then executed twice: those are counted.
//!
//! Replies of different nodes overtake each other. Each is recorded on arrival.

mod links;
mod names;

use std::collections::{BTreeMap, HashMap};
use std::sync::atomic::Ordering;
use std::time::Duration;

use redline_cluster::Redirect;
use redline_net::{Address, Poller, Waker, clock};
use redline_resp::{Outcome, Value, encode_request};

use super::map::Map;
use super::requests::{number_of, requests_of};
use super::source::{Reads, Source};
use crate::load::control::Control;
use crate::load::drive::{Drive, Pending};
use crate::load::engine::{self, Engine, Observer, Plan};
use crate::load::failure::{Failure, said};
use crate::load::result::Redirects;
use crate::load::worker::{Ended, Load, Patience, PollerAlarm, Progress, Shared, Then, Wait};
use links::{Awaited, Link};
use names::Names;

/// The settings of a thread that follows its data.
#[derive(Clone, Debug)]
pub struct Manner {
    /// Source of the map of slots.
    pub source: Source,
    /// The nodes for reads.
    pub reads: Reads,
    /// Time-out of a node's reply; the node is then asked again on a new connection.
    pub patience: Duration,
    /// Time-out of a request over all its attempts, which ends the run.
    pub silence_max: Option<Duration>,
    /// Keeps the numbers of acknowledged writes: the last word of each request.
    pub keeps_acks: bool,
    /// Length of a piece of [`Counts::trouble`].
    pub slice: Duration,
}

/// Counts of redirects, replies, errors and acknowledged writes.
#[derive(Clone, Debug, Default)]
pub struct Counts {
    /// Redirects of requests.
    pub redirects: Redirects,
    /// Replies by node.
    pub by_node: BTreeMap<String, u64>,
    /// Errors by piece of the time since the start, and by kind (the first word of an error).
    pub trouble: BTreeMap<u64, BTreeMap<String, u64>>,
    /// The numbers of acknowledged writes, and their times since the start.
    pub acks: Vec<(u64, Duration)>,
}

impl Counts {
    /// Adds another thread's counts.
    pub fn add(&mut self, other: &Counts) {
        self.redirects.add(&other.redirects);
        for (node, replies) in &other.by_node {
            *self.by_node.entry(node.clone()).or_default() += replies;
        }
        for (slice, kinds) in &other.trouble {
            let to = self.trouble.entry(*slice).or_default();
            for (kind, times) in kinds {
                *to.entry(kind.clone()).or_default() += times;
            }
        }
        self.acks.extend_from_slice(&other.acks);
    }
}

/// Measurements of a thread.
pub struct Followed<'a> {
    /// Latencies and counts.
    pub drive: Drive<'a>,
    /// Redirects, and errors.
    pub counts: Counts,
}

/// One thread.
pub struct Follower<'s, 'a> {
    shared: &'s Shared,
    progress: &'s Progress,
    drive: Drive<'a>,
    manner: Manner,
    map: Map,
    names: Names,
    /// Nodes that are asked for the map; empty: any known one.
    askable: Vec<usize>,
    poller: Poller,
    alarm: PollerAlarm,
    clients: Vec<Pending>,
    links: Vec<Option<Link>>,
    /// Empty places of `links`.
    free: Vec<usize>,
    /// The place of the link of a node and a client.
    found: HashMap<(usize, usize), usize>,
    /// Links with bytes to send.
    dirty: Vec<usize>,
    /// Number of links that are not established yet.
    connecting: usize,
    /// Requests that are sent again, by time and in order.
    later: BTreeMap<(u64, u64), Flight>,
    later_count: u64,
    /// The map is doubted.
    doubts: bool,
    /// It is not doubted, and still asked for.
    checks: bool,
    ask_at_ns: u64,
    asked_node: usize,
    look_at_ns: u64,
    turn: usize,
    started_ns: u64,
    last_reply_ns: u64,
    counts: Counts,
    /// Replies by node.
    replies: Vec<u64>,
    random: fastrand::Rng,
}

/// A request until it is settled.
struct Flight {
    client: usize,
    number: u64,
    bytes: Vec<u8>,
    /// Without a key, any node will do.
    slot: Option<u16>,
    reads: bool,
    tries: u32,
}

/// The client whose connections ask for the map.
const ASKER: usize = usize::MAX;
const EVENTS_MAX: usize = 1024;
/// Largest number of connections that one thread opens at a time.
const CONNECTING_MAX: usize = 64;
const WAKE_TOKEN: usize = usize::MAX;
/// Interval of questions for the map.
const ASK_PAUSE_NS: u64 = 100_000_000;
/// Time-out of a question, which is then sent to the next node.
const ASK_PATIENCE: Duration = Duration::from_millis(500);
/// Interval of checks for silent connections.
const LOOK_PAUSE_NS: u64 = 50_000_000;
/// Pauses before a request is sent again.
const PAUSE_MIN_NS: u64 = 5_000_000;
const PAUSE_MAX_NS: u64 = 100_000_000;

/// Runs drives, a thread for each, from the known map, to their end.
pub fn run<'a>(
    control: &mut Control,
    plan: Plan,
    drives: Vec<Drive<'a>>,
    manner: &Manner,
    map: &Map,
    observer: &mut dyn Observer,
) -> Result<(engine::Outcome<Drive<'a>>, Counts), Failure> {
    let (shared, clients) = plan.share();
    let progress: Vec<Progress> = drives.iter().map(|_| Progress::default()).collect();
    let followers = progress.iter().zip(drives).map(|(progress, drive)| {
        Follower::new(&shared, progress, drive, manner.clone(), map.clone())
    });
    let followers: std::io::Result<Vec<_>> = followers.collect();
    let followers = followers.map_err(|error| Failure::local("epoll", &error))?;
    let outcome = engine::run_engines(control, &shared, &progress, followers, clients, observer)?;
    let mut counts = Counts::default();
    let loads = outcome.loads.into_iter().map(|followed| {
        counts.add(&followed.counts);
        followed.drive
    });
    let outcome = engine::Outcome {
        loads: loads.collect(),
        elapsed: outcome.elapsed,
        failure: outcome.failure,
        open: outcome.open,
    };
    Ok((outcome, counts))
}

impl<'s, 'a> Follower<'s, 'a> {
    /// Returns a thread's state without its connections.
    pub fn new(
        shared: &'s Shared,
        progress: &'s Progress,
        drive: Drive<'a>,
        manner: Manner,
        mut map: Map,
    ) -> std::io::Result<Follower<'s, 'a>> {
        let asked = manner.source.asked().iter().cloned();
        let askable = asked.filter_map(|address| map.node(address)).collect();
        Ok(Follower {
            shared,
            progress,
            drive,
            manner,
            map,
            names: Names::new(Address::resolve),
            askable,
            poller: Poller::new(EVENTS_MAX)?,
            alarm: PollerAlarm::default(),
            clients: Vec::new(),
            links: Vec::new(),
            free: Vec::new(),
            found: HashMap::new(),
            dirty: Vec::new(),
            connecting: 0,
            later: BTreeMap::new(),
            later_count: 0,
            doubts: false,
            checks: false,
            ask_at_ns: 0,
            asked_node: 0,
            look_at_ns: 0,
            turn: 0,
            started_ns: 0,
            last_reply_ns: 0,
            counts: Counts::default(),
            replies: Vec::new(),
            random: fastrand::Rng::new(),
        })
    }

    fn stopped(&self) -> bool {
        self.shared.stop.load(Ordering::Relaxed)
    }

    /// Connects each client to each node that it will need.
    fn open(&mut self, clients: usize) -> Result<(), Failure> {
        self.clients = (0..clients).map(|_| self.drive.pending()).collect();
        let mut nodes = self.map.primaries().to_vec();
        if self.manner.reads != Reads::Primaries {
            let owners = nodes.clone();
            let copies = owners.iter().flat_map(|&owner| self.map.replicas_of(owner));
            nodes.extend(copies.map(|&node| usize::from(node)));
        }
        for client in 0..clients {
            for &node in &nodes {
                let now_ns = clock::monotonic_ns();
                self.link(node, client, now_ns)?;
                self.stand(CONNECTING_MAX - 1)?;
            }
        }
        self.stand(0)
    }

    /// Waits until at most this many links are not established yet.
    fn stand(&mut self, connecting_max: usize) -> Result<(), Failure> {
        let mut patience = Patience::new(self.shared.tls.as_ref());
        while self.connecting > connecting_max && !self.stopped() {
            let before = self.connecting;
            self.poll(patience.left())?;
            self.take_events(true)?;
            if self.connecting < before {
                patience.renew();
            }
            patience.check()?;
        }
        Ok(())
    }

    fn send_all(&mut self, opened_ns: u64) -> Result<(), Failure> {
        if self.stopped() {
            return Ok(());
        }
        self.started_ns = clock::monotonic_ns();
        (self.last_reply_ns, self.look_at_ns) = (self.started_ns, self.started_ns);
        self.progress
            .started_ns
            .store(self.started_ns, Ordering::Relaxed);
        self.drive.begin(self.clients.len(), opened_ns);
        for client in 0..self.clients.len() {
            if self.stopped() || !self.drive.start(client) {
                break;
            }
            self.pump(client, clock::monotonic_ns());
        }
        self.flush(clock::monotonic_ns());
        while self.drive.is_active() && !self.stopped() {
            self.sleep()?;
            self.take_events(false)?;
            let now_ns = clock::monotonic_ns();
            while let Some(client) = self.drive.due(now_ns) {
                self.pump(client, now_ns);
            }
            self.look_after(now_ns)?;
            self.flush(now_ns);
            self.drive.turned();
            let (finished, latency_us) = self.drive.progress();
            self.progress.finished.store(finished, Ordering::Relaxed);
            self.progress
                .latency_us
                .store(latency_us, Ordering::Relaxed);
        }
        Ok(())
    }

    fn poll(&mut self, timeout: Option<Duration>) -> Result<(), Failure> {
        self.poller
            .poll(timeout)
            .map_err(|error| Failure::local("epoll", &error))
    }

    /// Waits for events, or until the next due time.
    fn sleep(&mut self) -> Result<(), Failure> {
        let mut at_ns = match self.drive.wait() {
            Wait::ForEvents => u64::MAX,
            Wait::Until(at_ns) => at_ns,
        };
        if let Some((&(later_ns, _), _)) = self.later.first_key_value() {
            at_ns = at_ns.min(later_ns);
        }
        if self.doubts {
            at_ns = at_ns.min(self.ask_at_ns);
        }
        at_ns = at_ns.min(self.look_at_ns);
        if at_ns <= clock::monotonic_ns() {
            return self.poll(Some(Duration::ZERO));
        }
        self.alarm.set(&self.poller, at_ns)?;
        self.poll(None)
    }

    /// Sends a client's next requests.
    fn pump(&mut self, client: usize, now_ns: u64) {
        let pending = &mut self.clients[client];
        let bytes = self.drive.next(client, pending, now_ns);
        let requests = requests_of(bytes);
        let first = pending.sent() - requests.len() as u64;
        for (number, (bytes, slot, reads)) in (first..).zip(requests) {
            let flight = Flight {
                client,
                number,
                bytes,
                slot,
                reads,
                tries: 0,
            };
            self.dispatch(flight, now_ns);
        }
    }

    /// Sends a request to its node, or later if there is none.
    fn dispatch(&mut self, flight: Flight, now_ns: u64) {
        match self.place(&flight) {
            Some(node) => self.send(flight, node, false, now_ns),
            None => self.again_later(flight, now_ns),
        }
    }

    fn place(&mut self, flight: &Flight) -> Option<usize> {
        let Some(slot) = flight.slot else {
            let primaries = self.map.primaries();
            self.turn = self.turn.wrapping_add(1);
            return primaries.get(self.turn % primaries.len().max(1)).copied();
        };
        let owner = self.map.owner(slot)?;
        let copies = self.map.replicas_of(owner);
        // A replica that could not answer is not asked twice.
        if flight.reads && flight.tries == 0 && !copies.is_empty() {
            let all = copies.len() + usize::from(self.manner.reads == Reads::All);
            match self.manner.reads {
                Reads::Primaries => {}
                Reads::Replicas | Reads::All => {
                    let drawn = self.random.usize(..all);
                    return Some(copies.get(drawn).map_or(owner, |&copy| copy.into()));
                }
            }
        }
        Some(owner)
    }

    fn send(&mut self, flight: Flight, node: usize, asking: bool, now_ns: u64) {
        let token = match self.link(node, flight.client, now_ns) {
            Ok(Some(token)) => token,
            // Its name is resolved in the background.
            Ok(None) => return self.again_later(flight, now_ns),
            Err(_) => {
                self.counts.redirects.connects_failed += 1;
                self.note("connect", now_ns);
                return self.again_later(flight, now_ns);
            }
        };
        let link = self.links[token].as_mut().expect("it was just found");
        if asking {
            encode_request(&["ASKING"], link.out.more());
            link.awaited.push_back((Awaited::Asking, now_ns));
        }
        link.out.more().extend_from_slice(&flight.bytes);
        link.awaited.push_back((Awaited::Request(flight), now_ns));
        self.dirty.push(token);
    }

    /// Schedules a request for another attempt, and a question for the map.
    fn again_later(&mut self, mut flight: Flight, now_ns: u64) {
        let pause_ns = (PAUSE_MIN_NS << flight.tries.min(8)).min(PAUSE_MAX_NS);
        flight.tries += 1;
        self.doubts = true;
        self.later_count += 1;
        self.later
            .insert((now_ns + pause_ns, self.later_count), flight);
    }

    fn take_reply(
        &mut self,
        awaited: Awaited,
        value: &Value,
        node: usize,
        now_ns: u64,
    ) -> Result<(), Failure> {
        match awaited {
            Awaited::Asking => Ok(()),
            // A Sentinel that refuses access is not the only one.
            Awaited::Prefix if value.is_error() && self.is_sentinel(node) => Err(Failure::Closed),
            Awaited::Prefix if value.is_error() => Err(Failure::Reply(text_of(value))),
            Awaited::Prefix => Ok(()),
            Awaited::Map => {
                self.take_map(value, node);
                Ok(())
            }
            Awaited::Request(flight) if value.is_error() => {
                self.take_error(flight, &text_of(value), node, now_ns)
            }
            Awaited::Request(flight) => {
                if self.manner.keeps_acks
                    && let Some(number) = number_of(&flight.bytes)
                {
                    let at = Duration::from_nanos(now_ns.saturating_sub(self.started_ns));
                    self.counts.acks.push((number, at));
                }
                let is_null = |value: &Value| {
                    matches!(value, Value::Null | Value::NullBulk | Value::NullArray)
                };
                let outcome = match value {
                    Value::Array(parts) | Value::Set(parts) if parts.is_empty() => Outcome::Empty,
                    Value::Map(pairs) if pairs.is_empty() => Outcome::Empty,
                    Value::Array(parts) => Outcome::Array {
                        elements: parts.len() as u32,
                        nulls: parts.iter().filter(|part| is_null(part)).count() as u32,
                    },
                    value if is_null(value) => Outcome::Null,
                    _ => Outcome::Value,
                };
                self.settle(&flight, outcome, node, now_ns);
                Ok(())
            }
        }
    }

    fn take_error(
        &mut self,
        mut flight: Flight,
        text: &str,
        node: usize,
        now_ns: u64,
    ) -> Result<(), Failure> {
        let (kind, rest) = text.split_once(' ').unwrap_or((text, ""));
        match kind {
            "MOVED" | "ASK" => {
                let redirect = Redirect::parse(rest);
                let target = redirect
                    .as_ref()
                    .and_then(|redirect| self.map.target(redirect, node));
                let (Some(redirect), Some(target)) = (redirect, target) else {
                    return Err(Failure::Reply(text.to_owned()));
                };
                self.note(kind, now_ns);
                flight.tries += 1;
                if kind == "ASK" {
                    self.counts.redirects.asked += 1;
                    self.send(flight, target, true, now_ns);
                    return Ok(());
                }
                self.counts.redirects.moved += 1;
                self.map.moved(redirect.slot, target);
                self.doubts = true;
                // Two nodes that redirect to each other would keep it busy for ever.
                if flight.tries > 3 {
                    self.again_later(flight, now_ns);
                } else {
                    self.send(flight, target, false, now_ns);
                }
            }
            "TRYAGAIN" => {
                self.note(kind, now_ns);
                self.counts.redirects.try_again += 1;
                self.again_later(flight, now_ns);
            }
            "CLUSTERDOWN" | "LOADING" | "MASTERDOWN" | "READONLY" => {
                self.note(kind, now_ns);
                self.counts.redirects.refused += 1;
                self.again_later(flight, now_ns);
            }
            _ => {
                self.note(kind, now_ns);
                self.settle(&flight, Outcome::Error, node, now_ns);
                self.drive.recorder.error_text(text.to_owned());
                if !self.drive.counts_errors() {
                    return Err(Failure::Reply(text.to_owned()));
                }
            }
        }
        Ok(())
    }

    fn settle(&mut self, flight: &Flight, outcome: Outcome, node: usize, now_ns: u64) {
        self.last_reply_ns = now_ns;
        if self.replies.len() <= node {
            self.replies.resize(self.map.len(), 0);
        }
        self.replies[node] += 1;
        let pending = &mut self.clients[flight.client];
        let then = self
            .drive
            .settle(flight.client, pending, flight.number, outcome, now_ns);
        if then == Then::Send {
            self.pump(flight.client, now_ns);
        }
    }

    /// Counts an error, by its time.
    fn note(&mut self, kind: &str, now_ns: u64) {
        let since_ns = now_ns.saturating_sub(self.started_ns);
        let slice = since_ns / self.manner.slice.as_nanos().max(1) as u64;
        let kinds = self.counts.trouble.entry(slice).or_default();
        count_kind(kinds, kind);
    }

    /// Handles everything that is due: requests that are sent again, questions for the map, silent connections.
    fn look_after(&mut self, now_ns: u64) -> Result<(), Failure> {
        while let Some(entry) = self.later.first_entry() {
            if entry.key().0 > now_ns {
                break;
            }
            let flight = entry.remove();
            self.dispatch(flight, now_ns);
        }
        if (self.doubts || self.checks) && now_ns >= self.ask_at_ns {
            self.ask(now_ns);
        }
        if now_ns < self.look_at_ns {
            return Ok(());
        }
        self.look_at_ns = now_ns + LOOK_PAUSE_NS;
        if let Some(silence_max) = self.manner.silence_max {
            let clients = self.clients.iter();
            let oldest_ns = clients.filter_map(Pending::waits_since_ns).min();
            if oldest_ns.is_some_and(|at_ns| now_ns - at_ns > silence_max.as_nanos() as u64) {
                return Err(Failure::TimedOut);
            }
        }
        // A primary that was replaced while it worked serves on until it is demoted: writes that it takes meanwhile are
        // lost, and only Sentinels know.
        self.checks = matches!(self.manner.source, Source::Sentinels { .. });
        for token in 0..self.links.len() {
            let Some(link) = &self.links[token] else {
                continue;
            };
            let patience = if link.client == ASKER {
                ASK_PATIENCE
            } else {
                self.manner.patience
            };
            let since_ns = link.awaited.front().map(|&(_, at_ns)| at_ns);
            // A link that is not established yet may have been idle for long.
            let since_ns = since_ns.map(|at_ns| at_ns.max(link.since_ns));
            if since_ns.is_some_and(|at_ns| now_ns - at_ns > patience.as_nanos() as u64) {
                self.lose(token, &Failure::TimedOut, now_ns);
            }
        }
        Ok(())
    }

    /// Asks the next node for the map.
    fn ask(&mut self, now_ns: u64) {
        self.ask_at_ns = now_ns + ASK_PAUSE_NS;
        let nodes = match self.askable.len() {
            0 => (0..self.map.len()).collect(),
            _ => self.askable.clone(),
        };
        let asked = self.found.iter().find(|((_, client), _)| *client == ASKER);
        let waits = asked.is_some_and(|(_, &token)| {
            let link = self.links[token].as_ref();
            link.is_some_and(|link| !link.awaited.is_empty())
        });
        if waits {
            return;
        }
        // A server that has answered is asked again: one that does not know yet would name the old primary once more.
        self.asked_node = self.asked_node.wrapping_add(usize::from(self.doubts));
        let node = nodes[self.asked_node % nodes.len()];
        let Ok(Some(token)) = self.link(node, ASKER, now_ns) else {
            return;
        };
        let Some(link) = &mut self.links[token] else {
            return;
        };
        encode_request(self.manner.source.question(), link.out.more());
        link.awaited.push_back((Awaited::Map, now_ns));
        self.dirty.push(token);
    }

    fn take_map(&mut self, value: &Value, node: usize) {
        let before = self.map.primaries().to_vec();
        let learned = self.manner.source.take(&mut self.map, value, node);
        if learned {
            let is_news = self.manner.source == Source::Cluster || self.map.primaries() != before;
            self.counts.redirects.maps += u64::from(is_news);
            // While requests wait for another attempt, the map may still be wrong.
            self.doubts = !self.later.is_empty();
        }
    }
}

impl<'a> Engine for Follower<'_, 'a> {
    type Load = Followed<'a>;

    fn waker(&mut self) -> std::io::Result<Waker> {
        self.poller.waker(WAKE_TOKEN)
    }

    fn run(mut self, clients: usize, connected: impl FnOnce()) -> Ended<Followed<'a>> {
        let opened = self.open(clients);
        let result = opened.and_then(|()| {
            connected();
            let opened_ns = self.shared.gate.pass();
            self.send_all(opened_ns)
        });
        let stopped = result.is_err() || self.stopped();
        let now_ns = clock::monotonic_ns();
        for pending in &mut self.clients {
            self.drive.give_up(pending, now_ns);
        }
        self.drive.end(now_ns);
        let replies = self.replies.iter().enumerate();
        for (node, &replies) in replies.filter(|&(_, &replies)| replies > 0) {
            let name = self.map.address(node).to_string();
            self.counts.by_node.insert(name, replies);
        }
        Ended {
            load: Followed {
                drive: self.drive,
                counts: self.counts,
            },
            open: self.links.into_iter().flatten().map(Link::end).collect(),
            started_ns: self.started_ns,
            ended_ns: if stopped { now_ns } else { self.last_reply_ns },
            failure: result.err(),
        }
    }
}

fn text_of(value: &Value) -> String {
    said(value.as_bytes().unwrap_or_default())
}

/// Largest number of kinds of errors in a piece of the series, and of bytes of each name: a server may word its errors
/// as it likes.
const KINDS_MAX: usize = 50;
const KIND_CHARS_MAX: usize = 40;

fn count_kind(kinds: &mut BTreeMap<String, u64>, kind: &str) {
    let mut kind: String = kind.chars().take(KIND_CHARS_MAX).collect();
    if kinds.len() >= KINDS_MAX && !kinds.contains_key(&kind) {
        kind = "others".to_owned();
    }
    *kinds.entry(kind).or_default() += 1;
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;
    use std::sync::atomic::AtomicU64;
    use std::sync::{Arc, mpsc};
    use std::time::Instant;

    use super::*;
    use crate::load::drive;
    use crate::load::engine::Totals;
    use crate::load::record::Recorder;
    use crate::load::worker::{Place, Prefix};
    use crate::load::workload::template::{Protocol, Template};
    use crate::load::workload::values::{Content, Sizes};

    struct Nobody;

    impl Observer for Nobody {
        fn next(&self) -> Option<Instant> {
            None
        }

        fn observe(&mut self, _: &Totals) -> Result<(), Failure> {
            Ok(())
        }
    }

    #[test]
    fn a_server_that_makes_words_up_is_not_remembered_word_by_word() {
        let mut kinds = BTreeMap::new();
        for number in 0..1000 {
            count_kind(&mut kinds, &format!("{number}{}", "X".repeat(1000)));
            count_kind(&mut kinds, "READONLY");
        }
        assert_eq!(kinds.len(), KINDS_MAX + 1);
        assert_eq!(
            (kinds["READONLY"], kinds.values().sum::<u64>()),
            (1000, 2000)
        );
        assert!(kinds.keys().all(|kind| kind.len() <= KIND_CHARS_MAX));
    }

    #[test]
    fn a_run_that_only_replies_end_does_not_wait_for_a_silent_node_for_ever() {
        // The kernel accepts for it, and the data is never read.
        let silent = TcpListener::bind("127.0.0.1:0").expect("a free port");
        let port = silent.local_addr().expect("it is bound").port();
        let address = Address::tcp("127.0.0.1", port);
        let endpoint = address.resolve().expect("it is literal").remove(0);
        let sizes = Sizes::parse("3").expect("a size");
        let template = Template::parse("GET a", &sizes).expect("a template");
        let mut random = fastrand::Rng::with_seed(1);
        let content = (Content::Fixed, Arc::default());
        let renderer = template.renderer(Protocol::Resp, 0, 1, content.0, &content.1, &mut random);
        let choice = drive::Choice {
            renderer,
            rows: 0..1,
            weight: 1,
        };
        let quota = AtomicU64::new(1);
        let (sender, _slices) = mpsc::channel();
        let recorder = Recorder::new(1, false, u64::MAX, sender);
        let drive = Drive::new(
            drive::Manner::plain(),
            vec![choice],
            Some(&quota),
            random,
            recorder,
        );
        let plan = Plan {
            places: vec![Place {
                address: address.clone(),
                endpoint,
                prefix: Prefix::default(),
            }],
            tls: None,
            clients: 1,
            keep_alive: true,
        };
        let manner = Manner {
            source: Source::Cluster,
            reads: Reads::Primaries,
            patience: Duration::from_millis(60),
            silence_max: Some(Duration::from_millis(300)),
            keeps_acks: false,
            slice: Duration::from_secs(1),
        };
        let mut control = Control::new().expect("a poller");
        let map = Map::of(address);
        let ran = run(&mut control, plan, vec![drive], &manner, &map, &mut Nobody);
        let (outcome, counts) = ran.expect("it begins");
        assert!(matches!(outcome.failure, Some(Failure::TimedOut)));
        // It was tried on more than one connection before.
        assert!(counts.redirects.resent > 0);
    }
}
