//! Time, the network, the store and the faults.
//!
//! Must not know: what a node decides.

use std::collections::{BTreeMap, BTreeSet, HashMap, VecDeque};

use redline_etcd::{
    Answer, Condition, Event as Change, Memory, Operation, Range, Store, StoreError, Transaction,
};

use super::{
    super::{Acks, Control, Event, HAND_OVER_MS, Mutant, Mutants, Order, Place, Settings},
    Report,
    ledger::Ledger,
    server::{In, Node},
};
use crate::records::{
    ALIVE, FORMAT, Incarnation, MAP_KEY, META_KEY, Map, Meta, NODES, NodeRecord, Record, SHARDS,
    ShardRecord, VERSION,
};

const SHARD: &str = "s";
/// When faults begin and end, and when a run ends: microseconds.
const FAULTS_FROM: u64 = 4_000_000;
const FAULTS_UNTIL: u64 = 34_000_000;
const END: u64 = 60_000_000;
/// Time in which a shard serves again: milliseconds.
const RECOVERY_MS: u64 = 6_000;
/// The same if processes have to be known as ended first, by their leases.
const COLD_RECOVERY_MS: u64 = 16_000;

/// An event of the schedule.
pub(super) enum Action {
    /// A process is told something.
    Deliver(usize, u64, In),
    /// Something arrives over a link, unless it is closed.
    OverLink(u64, usize, u64, In),
    Tick(usize, u64),
    Resume(usize, u64),
    /// A transaction takes effect; true: the answer arrives.
    Effect(usize, u64, u64, Transaction, bool),
    Poll(usize, u64, bool),
    Alive(usize, u64),
    Start(usize),
    Orders,
    Client,
    CutFromStore(usize),
    Fault,
    Heal,
}

pub(super) struct World {
    pub rng: fastrand::Rng,
    pub now: u64,
    made: u64,
    actions: BTreeMap<(u64, u64), Action>,
    pub nodes: Vec<Node>,
    pub acks: Acks,
    pub mutant: Option<Mutant>,
    settings: Settings,
    store: Memory,
    store_ms: u64,
    pub record: Option<ShardRecord>,
    pub ledger: Ledger,
    pub records: u64,
    /// Pairs of nodes, and nodes and the store, that do not hear each other.
    cut: BTreeSet<(usize, usize)>,
    cut_from_store: BTreeSet<usize>,
    links: HashMap<u64, Link>,
    links_made: u64,
    pub has_faults: bool,
    /// Primaries cannot continue the logs of replicas that are behind.
    pub loses_backlog: bool,
    recovered_ms: Option<u64>,
    confirmed_before: u64,
    is_cold: bool,
    traces: bool,
    report: Report,
}

struct Link {
    ends: (usize, usize),
    /// When the last thing arrives at each end.
    last: (u64, u64),
}

impl World {
    pub(super) fn new(seed: u64, mutant: Option<Mutant>) -> World {
        let mut rng = fastrand::Rng::with_seed(seed);
        let acks = match rng.u8(0..4) {
            0 => Acks::None,
            _ => Acks::One,
        };
        let settings = Settings {
            promise_ms: [1000, 2000][rng.usize(0..2)],
            acks,
            may_be_alone: false,
            candidates_max: rng.usize(1..4),
        };
        let mut world = World {
            now: 0,
            made: 0,
            actions: BTreeMap::new(),
            nodes: Vec::new(),
            acks,
            mutant,
            settings,
            store: Memory::new(),
            store_ms: 0,
            record: None,
            ledger: Ledger::default(),
            records: 0,
            cut: BTreeSet::new(),
            cut_from_store: BTreeSet::new(),
            links: HashMap::new(),
            links_made: 0,
            has_faults: false,
            loses_backlog: false,
            recovered_ms: None,
            confirmed_before: 0,
            is_cold: false,
            traces: std::env::var_os("REDLINE_SIM_TRACE").is_some(),
            report: Report::default(),
            rng,
        };
        for n in 0..world.rng.usize(3..8) {
            world.add_node(n);
        }
        world.at(300_000, Action::Orders);
        world.at(500_000, Action::Client);
        world.at(FAULTS_FROM, Action::Fault);
        world.at(FAULTS_UNTIL, Action::Heal);
        world
    }

    pub(super) fn run(mut self) -> Result<Report, String> {
        while let Some(((time, _), action)) = self.actions.pop_first() {
            if time > END {
                break;
            }
            self.now = time;
            self.report.steps += 1;
            self.act(action);
            self.check_one_serves();
            if self.has_recovered() {
                self.recovered_ms = Some((self.now - FAULTS_UNTIL) / 1000);
            }
            if let Some(broken) = self.ledger.broken {
                return Err(broken);
            }
        }
        let bound = if self.is_cold {
            COLD_RECOVERY_MS
        } else {
            RECOVERY_MS
        };
        if !self.wants_operator() && self.recovered_ms.is_none_or(|took| took > bound) {
            let took = self.recovered_ms;
            let nodes = self.nodes.iter().map(|node| node.control.shown());
            let nodes: Vec<String> = nodes.collect();
            let (record, nodes) = (self.record, nodes.join("\n"));
            return Err(format!(
                "I6: served after {took:?} ms, and not {bound}: {record:?}\n{nodes}"
            ));
        }
        self.report.confirmed = self.ledger.confirmed;
        self.report.recovered_ms = self.recovered_ms;
        Ok(self.report)
    }

    /// Returns true if T9 refuses to begin with less than a replica may have: all that were primary or candidates came
    /// back without files of the term.
    fn wants_operator(&self) -> bool {
        let record = self.record.as_ref().expect("it was made before the faults");
        let mut old = record.candidates.iter().chain([&record.primary]);
        old.all(|who| {
            let node = &self.nodes[self.number_of(&who.node)];
            let term = node.control.alive().files.map_or(0, |(term, _)| term);
            node.me != *who && term < record.term
        })
    }

    fn has_recovered(&self) -> bool {
        self.now > FAULTS_UNTIL
            && self.recovered_ms.is_none()
            && self.ledger.confirmed > self.confirmed_before
    }

    pub(super) fn at(&mut self, after: u64, action: Action) {
        self.made += 1;
        self.actions.insert((self.now + after, self.made), action);
    }

    pub(super) fn clock_ms(&self, n: usize) -> u64 {
        let node = &self.nodes[n];
        let fast = self.now as u128 * u128::from(1_000_000 + node.fast_ppm) / 1_000_000;
        (node.begin_us + fast as u64) / 1000
    }

    pub(super) fn number_of(&self, node: &str) -> usize {
        node[1..].parse().expect("nodes are named by their number")
    }

    fn chance(&mut self, of_1000: u32) -> bool {
        self.rng.u32(0..1000) < of_1000
    }

    fn add_node(&mut self, n: usize) {
        let me = Incarnation {
            node: format!("n{n}"),
            incarnation: "0".into(),
        };
        let node = Node {
            control: Control::new(me.clone(), self.settings, None),
            me,
            life: 0,
            is_up: false,
            is_stopped: false,
            log: Vec::new(),
            data_term: 0,
            fast_ppm: [0, 10_000, self.rng.u64(0..10_001)][self.rng.usize(0..3)],
            begin_us: self.rng.u64(0..100_000_000_000),
            inbox: VecDeque::new(),
            todo: VecDeque::new(),
            stepped_ms: 0,
            right: (0, 0),
            lead_term: 0,
            count: None,
            released: 0,
            pending: VecDeque::new(),
            acked: BTreeMap::new(),
            links: Vec::new(),
            is_held: false,
            target: None,
            upstream: None,
            promised_ms: 0,
            lease: None,
            next_revision: 0,
            order_waits: false,
        };
        self.nodes.push(node);
        self.at(n as u64 * 1000, Action::Start(n));
    }

    fn act(&mut self, action: Action) {
        match action {
            Action::Deliver(n, life, input) => self.tell(n, life, input),
            Action::OverLink(link, n, life, input) => {
                if self.links.contains_key(&link) || matches!(input, In::Broken { .. }) {
                    self.tell(n, life, input);
                }
            }
            Action::Tick(n, life) => {
                if self.is_running(n, life) {
                    let jitter = self.rng.u64(0..20_000);
                    self.at(
                        self.settings.promise_ms * 50 + jitter,
                        Action::Tick(n, life),
                    );
                    if !self.nodes[n].is_stopped {
                        self.tell(n, life, In::Tick);
                    }
                }
            }
            Action::Resume(n, life) => {
                if self.is_running(n, life) {
                    self.nodes[n].is_stopped = false;
                    self.go(n);
                }
            }
            Action::Effect(n, life, call, transaction, answered) => {
                let done = self.effect(&transaction);
                if answered {
                    let (answer, after) = match self.cut_from_store.contains(&n) {
                        true => (Err(StoreError::Undecided("no answer".into())), 2_000_000),
                        false => (Ok(done), self.delay()),
                    };
                    let event = Event::Answer { call, answer };
                    self.at(after, Action::Deliver(n, life, In::Event(event)));
                }
            }
            Action::Poll(n, life, again) => self.poll(n, life, again),
            Action::Alive(n, life) => self.keep_alive(n, life),
            Action::Start(n) => self.start(n),
            Action::Orders => self.orders(),
            Action::Client => {
                for _ in 0..2 {
                    let n = self.rng.usize(0..self.nodes.len());
                    let serving = (0..self.nodes.len()).find(|&n| self.serves(n));
                    let n = if self.rng.bool() {
                        serving.unwrap_or(n)
                    } else {
                        n
                    };
                    let input = if self.chance(700) {
                        In::Write
                    } else {
                        In::Read
                    };
                    self.tell(n, self.nodes[n].life, input);
                }
                let after = self.rng.u64(5_000..60_000);
                self.at(after, Action::Client);
            }
            Action::CutFromStore(n) => {
                if self.has_faults {
                    self.cut_from_store.insert(n);
                }
            }
            Action::Fault => self.fault(),
            Action::Heal => self.heal(),
        }
    }

    fn is_running(&self, n: usize, life: u64) -> bool {
        self.nodes[n].is_up && self.nodes[n].life == life
    }

    fn tell(&mut self, n: usize, life: u64, input: In) {
        if self.is_running(n, life) {
            self.nodes[n].inbox.push_back(input);
            self.go(n);
        }
    }

    fn delay(&mut self) -> u64 {
        match self.rng.u32(0..100) {
            0 if self.has_faults => self.rng.u64(0..2_500_000),
            1..10 => self.rng.u64(0..50_000),
            _ => self.rng.u64(100..3_000),
        }
    }

    /// A message that may be lost, late, or come twice.
    pub(super) fn send(&mut self, from: usize, to: usize, input: In) {
        if self.cut.contains(&(from, to)) || self.has_faults && self.chance(30) {
            return;
        }
        let life = self.nodes[to].life;
        for _ in 0..1 + usize::from(self.has_faults && self.chance(30)) {
            let after = self.delay();
            self.at(after, Action::Deliver(to, life, input.clone()));
        }
    }

    pub(super) fn open_link(&mut self, from: usize, to: usize) -> u64 {
        self.links_made += 1;
        let link = Link {
            ends: (from, to),
            last: (0, 0),
        };
        self.links.insert(self.links_made, link);
        if self.cut.contains(&(from, to)) || self.cut.contains(&(to, from)) || !self.nodes[to].is_up
        {
            self.close_link(self.links_made);
        }
        self.links_made
    }

    /// Messages of a link keep their order.
    pub(super) fn over_link(&mut self, link: u64, to: usize, input: In) {
        let after = match self.chance(50) {
            true => self.rng.u64(0..100_000),
            false => self.rng.u64(100..3_000),
        };
        let Some(it) = self.links.get_mut(&link) else {
            return;
        };
        let last = if it.ends.0 == to {
            &mut it.last.0
        } else {
            &mut it.last.1
        };
        *last = (*last + 1).max(self.now + after);
        let (time, life) = (*last, self.nodes[to].life);
        self.at(time - self.now, Action::OverLink(link, to, life, input));
    }

    /// Both ends notice, each in its time.
    pub(super) fn close_link(&mut self, link: u64) {
        let Some(it) = self.links.remove(&link) else {
            return;
        };
        for n in [it.ends.0, it.ends.1] {
            let (after, life) = (self.rng.u64(100..300_000), self.nodes[n].life);
            self.at(after, Action::OverLink(link, n, life, In::Broken { link }));
        }
    }

    /// Returns true if a process is stopped in the middle of what it does.
    pub(super) fn stops_here(&mut self, n: usize) -> bool {
        let stops = self.has_faults && self.chance(2);
        if stops {
            let for_us = self.rng.u64(1_000..5_000_000);
            self.stop(n, for_us);
        }
        stops
    }

    fn stop(&mut self, n: usize, for_us: u64) {
        self.trace(|| format!("stop {n} for {} ms", for_us / 1000));
        self.nodes[n].is_stopped = true;
        let life = self.nodes[n].life;
        self.at(for_us, Action::Resume(n, life));
    }

    // The store.

    pub(super) fn call_store(&mut self, n: usize, call: u64, transaction: Transaction) {
        let life = self.nodes[n].life;
        let say = |world: &mut World, after: u64, error: StoreError| {
            let answer = Err(error);
            let event = Event::Answer { call, answer };
            world.at(after, Action::Deliver(n, life, In::Event(event)));
        };
        let unknown = || StoreError::Undecided("no answer".into());
        if self.cut_from_store.contains(&n) {
            match self.rng.u8(0..3) {
                0 => say(self, 500_000, StoreError::Unavailable("refused".into())),
                1 => say(self, 2_000_000, unknown()),
                _ => {
                    say(self, 2_000_000, unknown());
                    let late = self.rng.u64(2_000_000..10_000_000);
                    self.at(late, Action::Effect(n, life, call, transaction, false));
                }
            }
            return;
        }
        let after = self.delay();
        match self.rng.u32(0..100) {
            0..6 if self.has_faults => {
                say(self, 2_000_000, unknown());
                self.at(after, Action::Effect(n, life, call, transaction, false));
            }
            6..14 if self.has_faults => {
                say(self, 2_000_000, unknown());
                let late = self.rng.u64(2_000_000..10_000_000);
                self.at(late, Action::Effect(n, life, call, transaction, false));
            }
            14..16 if self.has_faults => say(self, 2_000_000, unknown()),
            _ => self.at(after, Action::Effect(n, life, call, transaction, true)),
        }
    }

    fn pass_time(&mut self) {
        let now_ms = self.now / 1000;
        self.store.advance(now_ms - self.store_ms);
        self.store_ms = now_ms;
    }

    fn effect(&mut self, transaction: &Transaction) -> Answer {
        self.pass_time();
        let done = self.store.transact(transaction);
        let answer = done.expect("nodes send transactions that are allowed");
        let key = Range::Key(format!("{SHARDS}{SHARD}"));
        let shard = self.store.range(&key).expect("memory is always there");
        let record = shard
            .pairs
            .first()
            .map(|pair| ShardRecord::from_json(&pair.value).expect("nodes write records"));
        if record != self.record {
            self.changed(record);
        }
        for n in 0..self.nodes.len() {
            let (after, life) = (self.delay(), self.nodes[n].life);
            self.at(after, Action::Poll(n, life, false));
        }
        answer
    }

    /// Shows a step, if `REDLINE_SIM_TRACE` is set: for whoever looks for a fault.
    pub(super) fn trace(&self, what: impl FnOnce() -> String) {
        if self.traces {
            println!("{} ms: {}", self.now / 1000, what());
        }
    }

    fn changed(&mut self, record: Option<ShardRecord>) {
        self.trace(|| format!("{record:?}"));
        let old = std::mem::replace(&mut self.record, record);
        let (Some(old), Some(new)) = (old, self.record.clone()) else {
            return;
        };
        if new.term > old.term {
            self.report.terms += 1;
            let was_in = old.candidates.contains(&new.primary);
            if !was_in {
                self.taken_up(&old, &new);
            }
        }
        self.check_told_is_kept();
    }

    /// T9 has taken effect. What was told may be gone if nobody who had it was started with files.
    fn taken_up(&mut self, old: &ShardRecord, new: &ShardRecord) {
        let told = &mut self.ledger.told;
        let had = old.candidates.iter().chain([&old.primary]);
        let number_of = |node: &str| node[1..].parse::<usize>().expect("a number");
        let mut logs = had.map(|who| &self.nodes[number_of(&who.node)].log);
        let last = told.len().saturating_sub(1);
        if !logs.any(|log| log.get(last) == told.last()) {
            let log = &self.nodes[number_of(&new.primary.node)].log;
            let kept = told.iter().zip(log).take_while(|(a, b)| a == b);
            let kept = kept.count();
            told.truncate(kept);
        }
    }

    fn poll(&mut self, n: usize, life: u64, again: bool) {
        if !self.is_running(n, life) {
            return;
        }
        if again {
            self.at(500_000, Action::Poll(n, life, true));
        }
        if self.cut_from_store.contains(&n) {
            return;
        }
        self.pass_time();
        let from = self.nodes[n].next_revision;
        let watched = self.store.watch(from.max(1));
        let events = watched.and_then(|mut watch| watch.next(std::time::Duration::ZERO));
        let event = match events {
            Ok(events) if from > 0 => {
                if events.events.is_empty() {
                    return;
                }
                let last = events.events.iter().map(|change| match change {
                    Change::Put(pair) => pair.mod_revision,
                    Change::Delete(_, revision) => *revision,
                });
                self.nodes[n].next_revision = last.max().unwrap_or(from) + 1;
                Event::Changes(events)
            }
            _ => {
                let all = self.store.range(&Range::Prefix(String::new()));
                let all = all.expect("memory is always there");
                self.nodes[n].next_revision = all.revision + 1;
                Event::Listing(all)
            }
        };
        self.tell(n, life, In::Event(event));
    }

    fn keep_alive(&mut self, n: usize, life: u64) {
        if !self.is_running(n, life) {
            return;
        }
        self.at(1_000_000, Action::Alive(n, life));
        if self.cut_from_store.contains(&n) || self.nodes[n].is_stopped {
            return;
        }
        self.pass_time();
        if let Some(lease) = self.nodes[n].lease
            && self.store.keep_lease(lease) == Ok(true)
        {
            return;
        }
        let lease = self.store.grant_lease(5).expect("memory is always there");
        let key = format!("{ALIVE}{}", self.nodes[n].me.node);
        let transaction = Transaction {
            conditions: vec![Condition::Absent(key.clone())],
            success: vec![Operation::Put {
                key,
                value: self.nodes[n].control.alive().to_json(),
                lease: Some(lease),
            }],
            failure: Vec::new(),
        };
        if self.effect(&transaction).succeeded {
            self.nodes[n].lease = Some(lease);
        }
    }

    // Processes.

    fn start(&mut self, n: usize) {
        if self.nodes[n].is_up {
            return;
        }
        let settings = self.settings;
        let mutants = Mutants(self.mutant);
        let has_files = self.nodes[n].life > 0 && (self.rng.u8(0..4) > 0 || !self.has_faults);
        let node = &mut self.nodes[n];
        node.life += 1;
        if !has_files {
            node.log.clear();
            node.data_term = 0;
        }
        let files = has_files.then_some(Place {
            term: node.data_term,
            offset: node.log.len() as u64,
        });
        node.me.incarnation = format!("{}", node.life);
        node.control = Control::new(node.me.clone(), settings, files);
        node.control.mutants = mutants;
        (node.is_up, node.is_stopped, node.order_waits) = (true, false, false);
        (node.next_revision, node.lease, node.promised_ms) = (0, None, 0);
        let life = node.life;
        self.trace(|| format!("start {n}, {files:?}"));
        self.at(1_000, Action::Tick(n, life));
        self.at(1_000, Action::Alive(n, life));
        self.at(1_000, Action::Poll(n, life, true));
    }

    fn kill(&mut self, n: usize) {
        self.trace(|| format!("kill {n}"));
        let node = &mut self.nodes[n];
        node.is_up = false;
        (node.lead_term, node.right, node.is_held) = (0, (0, 0), false);
        (node.count, node.target, node.upstream) = (None, None, None);
        node.inbox.clear();
        node.todo.clear();
        node.pending.clear();
        node.acked.clear();
        node.links.clear();
        let links = self.links.iter();
        let own = links.filter(|(_, link)| link.ends.0 == n || link.ends.1 == n);
        let mut own: Vec<u64> = own.map(|(link, _)| *link).collect();
        own.sort_unstable();
        own.into_iter().for_each(|link| self.close_link(link));
    }

    /// The cluster begins, and nodes join it, until all are in the shard.
    fn orders(&mut self) {
        let in_shard = |node: &str, record: &ShardRecord| {
            record.primary.node == node || record.replicas.iter().any(|it| it == node)
        };
        for n in 0..self.nodes.len() {
            let node = &self.nodes[n];
            if !node.is_up || node.is_stopped {
                continue;
            }
            let name = node.me.node.clone();
            let key = format!("{NODES}{name}");
            let record = NodeRecord {
                v: VERSION,
                version: "0".into(),
                joined: true,
                ..NodeRecord::default()
            };
            let order = match &self.record {
                None if n == 0 => self.first_records(record),
                Some(shard) if !in_shard(&name, shard) => {
                    match node.control.known().pair(&key).is_some() {
                        true => Order::Follow {
                            shard: SHARD.into(),
                        },
                        false => Order::Join {
                            record,
                            shard: None,
                        },
                    }
                }
                _ => continue,
            };
            self.order(n, order);
        }
        self.at(200_000, Action::Orders);
    }

    fn first_records(&self, node: NodeRecord) -> Order {
        let me = self.nodes[0].me.clone();
        let meta = Meta {
            v: VERSION,
            cluster: "c".into(),
            format: FORMAT,
        };
        let map = Map {
            v: VERSION,
            runs: vec![(0, 16383, SHARD.into())],
        };
        let shard = ShardRecord {
            v: VERSION,
            term: 1,
            primary: me.clone(),
            candidates: Vec::new(),
            replicas: Vec::new(),
        };
        Order::Create(vec![
            (META_KEY.into(), meta.to_json()),
            (MAP_KEY.into(), map.to_json()),
            (format!("{NODES}{}", me.node), node.to_json()),
            (format!("{SHARDS}{SHARD}"), shard.to_json()),
        ])
    }

    // Faults.

    fn fault(&mut self) {
        if self.now >= FAULTS_UNTIL {
            return;
        }
        self.has_faults = true;
        let count = self.nodes.len();
        let (n, other) = (self.rng.usize(0..count), self.rng.usize(0..count));
        // The primary is what most faults are about.
        let primary = self
            .record
            .as_ref()
            .map(|it| self.number_of(&it.primary.node));
        let n = if self.chance(500) {
            primary.unwrap_or(n)
        } else {
            n
        };
        match self.rng.u8(0..21) {
            0..4 => {
                self.kill(n);
                let after = self.rng.u64(100_000..8_000_000);
                self.at(after, Action::Start(n));
            }
            4 if self.chance(200) => {
                for n in 0..count {
                    self.kill(n);
                    let after = self.rng.u64(100_000..3_000_000);
                    self.at(after, Action::Start(n));
                }
            }
            4..8 => {
                let for_us = self.rng.u64(10_000..6_000_000);
                self.stop(n, for_us);
            }
            8..10 => {
                self.cut.insert((n, other));
            }
            10..12 => {
                for other in 0..count {
                    self.cut.extend([(n, other), (other, n)]);
                }
                if self.chance(500) {
                    self.cut_from_store.insert(n);
                }
            }
            12 => {
                self.cut_from_store.insert(n);
            }
            13 if self.chance(300) => self.cut_from_store.extend(0..count),
            13..15 => {
                let links: BTreeSet<u64> = self.links.keys().copied().collect();
                links.into_iter().for_each(|link| self.close_link(link));
            }
            15..17 => {
                let to = self.rng.bool().then(|| format!("n{other}"));
                let ends = self.chance(250);
                let time_ms = self.rng.u64(1..=HAND_OVER_MS);
                self.order(n, Order::HandOver { to, ends, time_ms });
                // It may be that neither the answer nor the watch arrives.
                if self.chance(500) {
                    let after = self.rng.u64(1_000..20_000);
                    self.at(after, Action::CutFromStore(n));
                }
            }
            // Others take over from a primary that comes back, and that the store does not hear.
            18 => {
                let n = primary.unwrap_or(n);
                self.cut_from_store.insert(n);
                let lasts = self.settings.promise_ms * 1000;
                let for_us = self.rng.u64(lasts..2 * lasts);
                self.stop(n, for_us);
            }
            17 => {
                self.loses_backlog = !self.loses_backlog;
            }
            _ => {
                self.cut.clear();
                self.cut_from_store.clear();
            }
        }
        self.close_cut_links();
        let after = self.rng.u64(50_000..1_500_000);
        self.at(after, Action::Fault);
    }

    fn close_cut_links(&mut self) {
        let links = self.links.iter();
        let cut = links.filter(|(_, link)| {
            let (a, b) = link.ends;
            self.cut.contains(&(a, b)) || self.cut.contains(&(b, a))
        });
        let mut cut: Vec<u64> = cut.map(|(link, _)| *link).collect();
        cut.sort_unstable();
        cut.into_iter().for_each(|link| self.close_link(link));
    }

    fn heal(&mut self) {
        self.has_faults = false;
        self.loses_backlog = false;
        self.cut.clear();
        self.cut_from_store.clear();
        self.confirmed_before = self.ledger.confirmed;
        let record = self.record.clone().expect("it was made before the faults");
        let mut all = record.candidates.iter().chain([&record.primary]);
        let lives = |who: &Incarnation| {
            let node = &self.nodes[self.number_of(&who.node)];
            node.is_up && node.me == *who
        };
        self.is_cold = !all.any(lives);
        for n in 0..self.nodes.len() {
            let life = self.nodes[n].life;
            self.at(0, Action::Resume(n, life));
            self.at(0, Action::Start(n));
        }
    }
}
