//! The thread that decides for this node: it feeds [`Control`] and carries out its wishes.
//!
//! A second thread makes the calls of the store, so that time goes on meanwhile. What needs stripes is done by worker 0
//! ([`drive`](super::etcd::drive)), to which the role is left in [`Standing`]; it tells back by events.
//!
//! Must not know: connections of clients, the form of records.

use std::{
    sync::{
        Arc, Condvar, Mutex, MutexGuard,
        atomic::{AtomicBool, AtomicU64, Ordering},
        mpsc::{self, RecvTimeoutError},
    },
    time::{Duration, Instant},
};

use redline_cluster::{
    control::{
        Acks, Calls, Control, Event, HAND_OVER_MS, Message, Order, Place, Refusal, Settings, Wish,
    },
    records::Incarnation,
};
use redline_engine::engine::Hold;
use redline_etcd::{StoreError, Transaction};
use redline_net::clock;
use redline_replica::link::NodeName;

use super::{Cluster, acks, etcd, links::Links, right};
use crate::{
    log, replication,
    settings::{ClusterAcks, ClusterAlone},
    shared::Shared,
};

/// Events that wait before messages of other nodes are dropped.
const MESSAGES_MAX: u64 = 4096;
/// Pause after a call of the store that was not done.
const PAUSE: Duration = Duration::from_millis(100);
/// Shortest time between two looks at what replicas have acknowledged.
const ACKS_PAUSE: Duration = Duration::from_millis(2);
/// Time for workers to finish the calls that run when a right ends by this node's own decision.
const FINISH_MAX: Duration = Duration::from_millis(200);
/// Time that a link waits until the data may be given up, and between two questions.
const EMPTY_WAIT: Duration = Duration::from_secs(5);
const EMPTY_TURN: Duration = Duration::from_millis(100);
/// Word of a message by which a replica asks its primary to hand over to it; the term follows, and the milliseconds left.
const HAND_OVER: &str = "hand-over";
/// Pause between two such messages: one may be lost, or come while the replica is no candidate for a moment.
const ASK_TURN: Duration = Duration::from_millis(250);

/// The role that the node is to have.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) enum Role {
    /// In no shard, or not known yet.
    #[default]
    None,
    /// Primary of a shard in this term.
    Lead {
        /// Id of the shard.
        shard: String,
        /// The term.
        term: u64,
    },
    /// Replica of this primary.
    Follow {
        /// The term.
        term: u64,
        /// The primary.
        primary: Incarnation,
    },
}

/// Things that are left to worker 0.
#[derive(Clone, Debug, Default)]
pub(crate) struct Standing {
    /// The role.
    pub(crate) role: Role,
    /// Number of times that the link to the primary was to be made anew, until it has been; 0 then.
    pub(crate) calls_anew: u64,
    /// True if the link to the primary is to be cut.
    pub(crate) cuts: bool,
    /// Order to hand over for which the record that ends the term is to be found.
    pub(crate) holds: Option<u64>,
}

/// A hand-over that this replica asks its primary for, again and again until it has it or the time is over.
#[derive(Clone, Debug)]
struct Asking {
    until: Instant,
    next: Instant,
}

/// Input of the thread.
pub(super) enum Input {
    Event(Event),
    /// A replica has acknowledged something.
    Acks,
}

/// See the head of the module.
#[derive(Default)]
pub(crate) struct Deciding {
    events: Mutex<Option<mpsc::Sender<Input>>>,
    /// Number of events that wait.
    waiting: AtomicU64,
    /// True if a replica has acknowledged something at which the thread has not looked.
    has_acks: AtomicBool,
    standing: Mutex<Standing>,
    /// Revision of the records up to which has been decided.
    decided: AtomicU64,
    /// True while data may be given up for a full synchronisation.
    may_empty: Mutex<bool>,
    may_empty_changed: Condvar,
    links: Links,
    next_order: AtomicU64,
    candidates: AtomicU64,
    /// True if replies of the primary wait for this node.
    primary_waits: AtomicBool,
    asking: Mutex<Option<Asking>>,
    /// Order to hand over before the node ends, while it is carried out; 0: there is none.
    ending: AtomicU64,
    /// Order to take the shard over by force, while it is carried out; 0: there is none.
    forcing: AtomicU64,
}

impl Deciding {
    /// Takes an event. Before the thread begins, and after its end, it is dropped.
    pub(crate) fn post(&self, event: Event) {
        if let Some(events) = &*self.events.lock().expect("no panic under the events") {
            self.waiting.fetch_add(1, Ordering::Relaxed);
            // The thread may be about to end.
            let _ = events.send(Input::Event(event));
        }
    }

    /// Hears that a replica has acknowledged something: the thread looks at it soon.
    pub(super) fn acknowledged(&self) {
        if !self.has_acks.swap(true, Ordering::AcqRel)
            && let Some(events) = &*self.events.lock().expect("no panic under the events")
        {
            // The thread may be about to end.
            let _ = events.send(Input::Acks);
        }
    }

    /// Takes a message of another node; too many are dropped.
    pub(crate) fn hear(&self, from: &str, words: &[&[u8]]) {
        if self.waiting.load(Ordering::Relaxed) > MESSAGES_MAX {
            return;
        }
        if let Some((term, time_ms)) = hand_over_asked(words) {
            // The replica asks again where this node is no primary yet or any more, or hands over already.
            if self.leads() == Some(term) {
                let to = Some(from.to_owned());
                let number = self.next_order();
                let order = Order::HandOver {
                    to,
                    ends: false,
                    time_ms,
                };
                self.post(Event::Order { number, order });
            }
        } else if let Some(message) = Message::of_words(words) {
            if let Message::Ask { is_waiting, .. } = message {
                self.primary_waits.store(is_waiting, Ordering::Relaxed);
            }
            let from = from.to_owned();
            self.post(Event::Message { from, message });
        }
    }

    fn next_order(&self) -> u64 {
        self.next_order.fetch_add(1, Ordering::Relaxed) + 1
    }

    /// Has the node hand its shard over to the candidate that has most.
    pub(crate) fn hand_over(&self) {
        let number = self.next_order();
        self.ending.store(number, Ordering::Release);
        let order = Order::HandOver {
            to: None,
            ends: true,
            time_ms: HAND_OVER_MS,
        };
        self.post(Event::Order { number, order });
    }

    /// Has the node take its shard over by force, when all who lead it or may take over have been gone for long enough.
    pub(crate) fn take_over(&self) {
        let number = self.next_order();
        self.forcing.store(number, Ordering::Release);
        let order = Order::TakeOver;
        self.post(Event::Order { number, order });
    }

    /// Returns true while the node hands over before it ends, or has yet to carry that out.
    pub(crate) fn is_handing_over(&self) -> bool {
        self.ending.load(Ordering::Acquire) != 0 || self.standing().calls_anew != 0
    }

    /// Asks the primary to hand over to this node, until [`HAND_OVER_MS`] are over.
    pub(crate) fn ask_to_hand_over(&self, shared: &Arc<Shared>, cluster: &Cluster) {
        let now = Instant::now();
        let until = now + Duration::from_millis(HAND_OVER_MS);
        *self.asking() = Some(Asking { until, next: now });
        // The thread goes on with it.
        self.ask_again(shared, cluster, now);
    }

    fn asking(&self) -> MutexGuard<'_, Option<Asking>> {
        self.asking.lock().expect("no panic under a request")
    }

    /// Sends the request to hand over if it is time to, and returns when it is the next time.
    fn ask_again(&self, shared: &Arc<Shared>, cluster: &Cluster, now: Instant) -> Option<Instant> {
        let mut asking = self.asking();
        let asked = asking.as_mut()?;
        let left = asked.until.saturating_duration_since(now);
        let role = self.role();
        if matches!(role, Role::Lead { .. }) || left.is_zero() {
            if left.is_zero() {
                log::warning("Manual failover timed out.");
            }
            *asking = None;
            return None;
        }
        if now >= asked.next {
            asked.next = now + ASK_TURN;
            // Its primary may have become another meanwhile.
            if let Role::Follow { term, primary } = role {
                let words = [
                    HAND_OVER.to_owned(),
                    term.to_string(),
                    left.as_millis().to_string(),
                ];
                self.send(shared, cluster, &primary.node, &words);
            }
        }
        Some(asked.next.min(asked.until))
    }

    fn send(&self, shared: &Arc<Shared>, cluster: &Cluster, to: &str, words: &[String]) {
        let view = cluster.view();
        let id = &view.picture.meta.cluster;
        let mut all = vec!["REPLCONF", "cluster-message", id, &cluster.node];
        all.extend(words.iter().map(String::as_str));
        self.links.send(shared, to, &all);
    }

    pub(super) fn standing(&self) -> MutexGuard<'_, Standing> {
        self.standing.lock().expect("no panic under the role")
    }

    /// Returns the role that the node is to have.
    pub(crate) fn role(&self) -> Role {
        self.standing().role.clone()
    }

    /// Returns the term in which the node leads its shard.
    pub(crate) fn leads(&self) -> Option<u64> {
        match self.standing().role {
            Role::Lead { term, .. } => Some(term),
            _ => None,
        }
    }

    /// Returns the revision of the records up to which has been decided.
    pub(super) fn decided(&self) -> u64 {
        self.decided.load(Ordering::Acquire)
    }

    /// Returns true if replies of the primary wait until it has been told what this node has applied.
    pub(crate) fn primary_waits(&self) -> bool {
        self.primary_waits.load(Ordering::Relaxed)
    }

    /// Returns the number of candidates of the node's shard.
    pub(crate) fn candidates(&self) -> u64 {
        self.candidates.load(Ordering::Relaxed)
    }

    /// Waits until the data may be given up for those of the primary, as long as `goes_on`. Returns false if they may not.
    pub(crate) fn may_empty(&self, goes_on: impl Fn() -> bool) -> bool {
        let ends = Instant::now() + EMPTY_WAIT;
        let mut may = self.may_empty.lock().expect("no panic under a permission");
        while !*may && Instant::now() < ends && goes_on() {
            // The transaction that it wants fails if others change the same record.
            self.post(Event::WantsEmpty);
            let waited = self.may_empty_changed.wait_timeout(may, EMPTY_TURN);
            may = waited.expect("no panic under a permission").0;
        }
        *may
    }

    fn set_may_empty(&self, may: bool) {
        *self.may_empty.lock().expect("no panic under a permission") = may;
        self.may_empty_changed.notify_all();
    }

    /// Hears that the link to the primary of a term has all data, and goes on.
    pub(crate) fn linked(&self, term: u64) {
        self.set_may_empty(false);
        self.post(Event::Linked { term });
    }

    /// Ends the thread soon.
    pub(super) fn end(&self) {
        *self.events.lock().expect("no panic under the events") = None;
        self.links.end();
    }
}

/// Returns the term in which a replica wants to be handed its shard, and the time for it in milliseconds.
fn hand_over_asked(words: &[&[u8]]) -> Option<(u64, u64)> {
    let [word, term, time_ms] = words else {
        return None;
    };
    let number = |word: &[u8]| std::str::from_utf8(word).ok()?.parse::<u64>().ok();
    let asked = (number(term)?, number(time_ms)?.min(HAND_OVER_MS));
    (*word == HAND_OVER.as_bytes()).then_some(asked)
}

/// Returns the name by which this node makes its link to a primary.
pub(crate) fn link_name(shared: &Shared) -> Option<NodeName> {
    let cluster = shared.cluster.as_ref()?;
    let etcd = cluster.etcd.as_ref()?;
    match etcd.deciding.role() {
        Role::Follow { term, .. } => Some(NodeName {
            node: cluster.node.clone(),
            incarnation: etcd.incarnation.clone(),
            term,
        }),
        _ => None,
    }
}

/// A call of the store.
type Call = (u64, Transaction);

/// The thread that makes the calls of the store.
pub(super) fn store(shared: &Shared, calls: &mpsc::Receiver<Call>) {
    let cluster = shared.cluster.as_ref().expect("it is a node");
    let etcd = cluster.etcd.as_ref().expect("it has etcd");
    while let Ok((call, transaction)) = calls.recv() {
        let answer = match etcd.is_frozen() {
            true => Err(StoreError::Unavailable(
                "the cluster's etcd has forgotten what it had told".into(),
            )),
            false => cluster.store.transact(&transaction),
        };
        let is_done = answer.as_ref().is_ok_and(|answer| answer.succeeded);
        let failed = answer.is_err();
        etcd.deciding.post(Event::Answer { call, answer });
        if is_done {
            etcd::look_now(shared);
        } else if failed {
            std::thread::sleep(PAUSE);
        }
    }
}

fn settings(shared: &Shared) -> Settings {
    let settings = shared.settings.current();
    Settings {
        promise_ms: settings.cluster_node_timeout_ms.clamp(100, 600_000),
        acks: match settings.cluster_acks {
            ClusterAcks::None => Acks::None,
            ClusterAcks::One => Acks::One,
        },
        may_be_alone: settings.cluster_acks_alone == ClusterAlone::Accept,
        candidates_max: settings.cluster_candidates_max as usize,
    }
}

/// Gives the thread its input. Called before it begins.
pub(super) fn open(deciding: &Deciding) -> mpsc::Receiver<Input> {
    let (events, taken) = mpsc::channel();
    *deciding.events.lock().expect("no panic under the events") = Some(events);
    taken
}

/// The thread that decides.
pub(super) fn run(shared: &Arc<Shared>, events: &mpsc::Receiver<Input>, calls: mpsc::Sender<Call>) {
    if !shared.persistence.loading.wait() {
        return;
    }
    let cluster = shared.cluster.as_ref().expect("it is a node");
    let etcd = cluster.etcd.as_ref().expect("it has etcd");
    let me = Incarnation {
        node: cluster.node.clone(),
        incarnation: etcd.incarnation.clone(),
    };
    let files = etcd.note_files(shared);
    let files = files.map(|(term, offset)| Place { term, offset });
    let mut thread = Thread {
        shared,
        cluster,
        etcd,
        control: Control::new(me, settings(shared), files),
        calls,
        refused: None,
    };
    // What came before is in it.
    let listing = cluster.list();
    if let Ok(listing) = listing {
        thread.handle(Event::Listing(listing));
    }
    let mut next = Instant::now();
    // When the acknowledgements are due to be looked at, and when they were.
    let (mut look_at, mut looked_at): (Option<Instant>, _) = (None, Instant::now());
    loop {
        let now = Instant::now();
        if now >= next {
            let settings = settings(shared);
            thread.control.set(settings);
            thread.tick();
            // Whoever leads without a right asks more often.
            let part = match etcd.right.leads() && etcd.right.term_now().is_none() {
                true => 64,
                false => 16,
            };
            next = now + Duration::from_millis((settings.promise_ms / part).max(1));
        }
        if look_at.is_some_and(|at| now >= at) {
            (look_at, looked_at) = (None, now);
            thread.look_at_acks();
        }
        let asks_at = etcd.deciding.ask_again(shared, cluster, now);
        let wakes = [asks_at, look_at].into_iter().flatten();
        let wakes = wakes.fold(next, Instant::min);
        match events.recv_timeout(wakes.saturating_duration_since(Instant::now())) {
            Ok(Input::Event(event)) => {
                etcd.deciding.waiting.fetch_sub(1, Ordering::Relaxed);
                thread.handle(event);
            }
            Ok(Input::Acks) => look_at = Some(looked_at + ACKS_PAUSE),
            Err(RecvTimeoutError::Timeout) => {}
            Err(RecvTimeoutError::Disconnected) => return,
        }
    }
}

struct Thread<'s> {
    shared: &'s Arc<Shared>,
    cluster: &'s Cluster,
    etcd: &'s etcd::Membership,
    control: Control,
    calls: mpsc::Sender<Call>,
    /// Reason for which the last hand-over was not done: a replica that asks again gets it again.
    refused: Option<Refusal>,
}

impl Thread<'_> {
    fn tick(&mut self) {
        let journal_end = replication::identity(self.shared).offset();
        let is_healthy = self.is_healthy();
        self.handle(Event::Tick {
            is_healthy,
            journal_end,
        });
        acks::look(self.shared);
    }

    /// Feeds what each replica has acknowledged.
    fn look_at_acks(&mut self) {
        // Before the look: later ones make another.
        let deciding = &self.etcd.deciding;
        deciding.has_acks.store(false, Ordering::Release);
        let primary = self.shared.replication.primary();
        let replicas = primary.replicas().iter();
        let told = replicas.filter_map(|it| Some((it.peer.node.clone()?, it.told()?)));
        let told: Vec<(NodeName, u64)> = told.collect();
        drop(primary);
        for (name, offset) in told {
            self.handle(Event::Replica {
                node: name.node,
                incarnation: name.incarnation,
                term: name.term,
                offset,
            });
        }
    }

    /// Returns true if every worker has turned its loop lately.
    fn is_healthy(&self) -> bool {
        let half_ms = settings(self.shared).promise_ms / 2;
        let now_ms = clock::monotonic_coarse_ms();
        let mut workers = self.shared.workers().iter();
        self.shared.engine.running_script.slow().is_some()
            || workers.all(|worker| !worker.turning.lags(now_ms, half_ms))
    }

    fn handle(&mut self, event: Event) {
        let is_news = matches!(
            event,
            Event::Listing(_) | Event::Changes(_) | Event::Answer { .. }
        );
        let is_linked = matches!(event, Event::Linked { .. });
        let mut wishes = self.control.handle(clock::boot_ms(), event);
        if is_linked {
            // A permission that was wanted for these data, and came late.
            self.etcd.deciding.set_may_empty(false);
            wishes.retain(|wish| *wish != Wish::Empty);
        }
        self.carry_out(wishes);
        let deciding = &self.etcd.deciding;
        let candidates = self.control.candidates().len() as u64;
        deciding.candidates.store(candidates, Ordering::Relaxed);
        if is_news {
            let revision = self.control.known().revision();
            let before = deciding.decided.fetch_max(revision, Ordering::AcqRel);
            if before < revision {
                etcd::wake(self.shared);
            }
        }
    }

    fn carry_out(&mut self, wishes: Vec<Wish>) {
        let deciding = &self.etcd.deciding;
        let right = &self.etcd.right;
        let sends = wishes
            .iter()
            .any(|wish| matches!(wish, Wish::Transact { .. }));
        for wish in wishes {
            match wish {
                Wish::Transact { call, transaction } => {
                    // It ends with this thread.
                    let _ = self.calls.send((call, transaction));
                }
                Wish::Send { to, message } => {
                    let words = message.words();
                    deciding.send(self.shared, self.cluster, &to, &words);
                }
                Wish::Alone => {
                    right.set_leads(false);
                    acks::end(self.shared);
                    *deciding.standing() = Standing::default();
                    self.free();
                    etcd::wake(self.shared);
                }
                Wish::Lead { shard, term } => {
                    log::notice(&format!(
                        "This node is the primary of its shard in term {term}"
                    ));
                    self.etcd.keep_term(term);
                    right.set_leads(true);
                    deciding.standing().role = Role::Lead { shard, term };
                    etcd::wake(self.shared);
                }
                Wish::Follow { term, primary, .. } => {
                    log::notice(&format!(
                        "This node follows {} in term {term}",
                        primary.node
                    ));
                    right.set_leads(false);
                    acks::end(self.shared);
                    let mut standing = deciding.standing();
                    standing.role = Role::Follow { term, primary };
                    standing.calls_anew += 1;
                    standing.cuts = false;
                    drop(standing);
                    self.free();
                    etcd::wake(self.shared);
                }
                Wish::Cut => {
                    log::notice("The primary of this shard is silent: its link is cut");
                    deciding.standing().cuts = true;
                    etcd::wake(self.shared);
                }
                Wish::Empty => deciding.set_may_empty(true),
                Wish::Right { term, until_ms } => {
                    if until_ms == 0 && sends && right.term_now() == Some(term) {
                        right.shut();
                        right::note(self.shared);
                        self.until_calls_have_ended();
                    }
                    right.set(term, until_ms);
                    right::note(self.shared);
                }
                Wish::Calls(calls) => {
                    right.set_calls(calls);
                    right::note(self.shared);
                    // Those that were put aside may be answered now.
                    self.shared.engine.resume_all();
                    if calls == Calls::Down {
                        log::verbose("This node has no right to serve");
                    }
                }
                Wish::Count(count) => {
                    let term = self.control.leads().unwrap_or(0);
                    acks::count(self.shared, count, term);
                }
                Wish::Hold { number } => {
                    self.shared.engine.hold_writes(Hold::Failover, true);
                    deciding.standing().holds = Some(number);
                    etcd::wake(self.shared);
                }
                Wish::Free => self.free(),
                Wish::Done { number, result } => self.done(number, result),
            }
        }
    }

    fn done(&mut self, number: u64, result: Result<(), Refusal>) {
        let forcing = &self.etcd.deciding.forcing;
        let taken = forcing.compare_exchange(number, 0, Ordering::AcqRel, Ordering::Relaxed);
        if taken.is_ok() {
            match result {
                Ok(()) => log::warning("This node has taken its shard over by force"),
                Err(why) => log::warning(&format!("This node does not take its shard over: {why}")),
            }
            return;
        }
        let ending = &self.etcd.deciding.ending;
        let _ = ending.compare_exchange(number, 0, Ordering::AcqRel, Ordering::Relaxed);
        match &result {
            Ok(()) => {
                log::notice("The shard is handed over");
                acks::handed_over(self.shared);
            }
            // It goes on: its replica has asked again.
            Err(Refusal::TooMany) => log::verbose("A hand-over was asked for once more"),
            Err(why) if self.refused.as_ref() != Some(why) => {
                log::warning(&format!("The shard is not handed over: {why}"));
            }
            Err(_) => {}
        }
        self.refused = result.err().filter(|why| *why != Refusal::TooMany);
        crate::ending::look(self.shared);
    }

    fn free(&self) {
        self.etcd.deciding.standing().holds = None;
        self.shared.engine.hold_writes(Hold::Failover, false);
        replication::hold_still(self.shared, false);
    }

    /// Waits until every worker has finished what it runs, for a moment at most.
    fn until_calls_have_ended(&self) {
        let (tell, told) = mpsc::channel();
        let workers = self.shared.workers();
        for worker in workers {
            let tell = tell.clone();
            let run = move |_: &mut crate::worker::Worker| {
                // Whoever waits may have given up.
                let _ = tell.send(());
            };
            let message = crate::shared::Message::Run(Box::new(run));
            worker.mailbox.send(message);
        }
        let ends = Instant::now() + FINISH_MAX;
        for _ in workers {
            let left = ends.saturating_duration_since(Instant::now());
            if told.recv_timeout(left).is_err() {
                return;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_of_other_nodes_are_heard_if_they_are_ones() {
        let deciding = Deciding::default();
        deciding.hear("a", &[b"hears", b"3"]);
        let events = open(&deciding);
        let said: [&[&[u8]]; 5] = [
            &[b"hears", b"3"],
            &[b"hears", b"x"],
            &[b"vote"],
            &[],
            &[b"hand-over", b"7", b"1000"],
        ];
        for words in said {
            deciding.hear("a", words);
        }
        let (shard, term) = ("s".to_owned(), 8);
        deciding.standing().role = Role::Lead { shard, term };
        let asked: [&[&[u8]]; 4] = [
            &[b"hand-over"],
            &[b"hand-over", b"7", b"1000"],
            &[b"hand-over", b"8", b"-1"],
            &[b"hand-over", b"8", b"9999"],
        ];
        for words in asked {
            deciding.hear("a", words);
        }
        let told: Vec<Input> = events.try_iter().collect();
        let [
            Input::Event(Event::Message { from, message }),
            Input::Event(Event::Order {
                order:
                    Order::HandOver {
                        to,
                        ends: false,
                        time_ms: HAND_OVER_MS,
                    },
                ..
            }),
        ] = &told[..]
        else {
            panic!("{} were heard", told.len());
        };
        assert_eq!((from.as_str(), to.as_deref()), ("a", Some("a")));
        assert_eq!(*message, Message::Hears { term: 3 });
    }

    #[test]
    fn a_flood_of_messages_is_dropped() {
        let deciding = Deciding::default();
        let events = open(&deciding);
        for _ in 0..2 * MESSAGES_MAX {
            deciding.hear("a", &[b"hears", b"3"]);
        }
        assert_eq!(events.try_iter().count() as u64, MESSAGES_MAX + 1);
    }
}
