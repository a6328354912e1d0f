//! A node of a cluster whose records are in etcd: how it follows what the others do, and makes changes.
//!
//! Two threads do so: one watches the store and makes a new view of every change, the other keeps the node's lease and
//! makes the changes that clients have asked for. Who serves and who takes over is decided by two others
//! ([`deciding`](super::deciding)). None takes a stripe: worker 0 gives the keyspace a new view and a new role ([`drive`]),
//! and a call is answered when that is done.
//!
//! Must not know: commands, the texts in which a cluster is shown.

use std::{
    collections::{BTreeSet, HashMap},
    sync::{
        Arc, Condvar, Mutex, MutexGuard,
        atomic::{AtomicBool, AtomicU64, Ordering},
        mpsc::{self, RecvTimeoutError},
    },
    thread::JoinHandle,
    time::{Duration, Instant},
};

use redline_cluster::{
    BadRecord, Picture,
    control::{Event, Place},
    records::{ALIVE, MAP_KEY, META_KEY, NODES, NodeRecord, Record, SHARDS},
};
use redline_engine::{Caller, executor::block, executor::units};
use redline_etcd::{
    Condition, File, LeaseId, Listing, Operation, Range, Store, StoreError, Transaction,
};
use redline_persist::load::Loaded;

use super::{
    Cluster, View,
    acks::{self, Acks},
    adopt, alone,
    deciding::{self, Deciding, Role, Standing},
    empty_picture,
    entering::{alive_of, describe},
    lost::{self, Lost},
    members::{self, Change, Plan, fresh, owners_of, revision},
    messages::{self, Messages},
    moves::{self, Mover},
    picture_of, put,
    right::Right,
};
use crate::{
    following, log,
    persistence::{append, loading},
    replication,
    settings::Settings,
    shared::{Message, Shared},
    start::{self, StartError, random_number},
    worker::Worker,
};

/// Time between two attempts to reach etcd.
const PAUSE: Duration = Duration::from_millis(250);
/// Time of the lease that shows that a node is alive: seconds.
pub(super) const LEASE_S: u64 = 5;
/// Time between two renewals of that lease, and looks at the node's own record.
const TICK: Duration = Duration::from_secs(1);
/// Time that a watch waits for the end of the server between events.
const WATCH_TURN: Duration = Duration::from_millis(250);
/// Number of times that a change is planned anew, because others were faster.
const ROUNDS_MAX: u32 = 16;
/// Time that a change waits until the keyspace has it.
const APPLY_WAIT: Duration = Duration::from_secs(5);
/// Number of clients that may wait for a change of theirs.
const WAITING_MAX: usize = 1024;
/// Key of the term in the node's own file.
const TERM_KEY: &str = "term";

/// State of a node with etcd: see the head of the module.
pub(crate) struct Membership {
    /// Number of this run of the node.
    pub(super) incarnation: String,
    /// Id of the shard that the node makes when it joins.
    pub(super) shard: String,
    /// Clients that wait for a change, and results that they have yet to fetch.
    waiting: Mutex<HashMap<u64, Option<Result<(), String>>>>,
    jobs: Mutex<Option<mpsc::Sender<Job>>>,
    threads: Mutex<Vec<JoinHandle<()>>>,
    ends: AtomicBool,
    /// True while etcd answers.
    is_reached: AtomicBool,
    /// True when the store has forgotten what it had told: nothing is changed any more.
    is_frozen: AtomicBool,
    /// True if [`drive`] has something to do. Read every turn.
    has_work: AtomicBool,
    /// True if the data of a primary that is not followed any more is to go.
    empties: AtomicBool,
    applied: Mutex<u64>,
    applied_changed: Condvar,
    /// Ids of nodes that were members.
    left: Mutex<BTreeSet<String>>,
    /// Number of the lease that shows that the node is alive.
    pub(super) lease: AtomicU64,
    /// Slots of other nodes of which there are keys.
    pub(crate) lost: Lost,
    /// Messages on their way to other nodes.
    pub(super) messages: Messages,
    /// Moves of slots from this node.
    pub(crate) moves: Mover,
    /// The node's own file.
    pub(super) file: Mutex<Option<File>>,
    /// Term and place in its stream of the data that files held at the start.
    files: Mutex<Option<(u64, u64)>>,
    pub(crate) deciding: Deciding,
    pub(crate) acks: Acks,
    pub(crate) right: Right,
}

/// A change for a client.
struct Job {
    client: u64,
    change: Change,
}

/// Result of asking for a change.
pub(crate) enum Asked {
    /// It is under way; the call runs again when it is done.
    Waits,
    /// It is done, or the error for the client.
    Done(Result<(), String>),
}

impl Membership {
    /// Makes that of a run that has yet to enter.
    pub(super) fn new(shard: String) -> Membership {
        Membership {
            incarnation: format!("{:016x}", random_number()),
            shard,
            waiting: Mutex::default(),
            jobs: Mutex::default(),
            threads: Mutex::default(),
            ends: AtomicBool::new(false),
            is_reached: AtomicBool::new(true),
            is_frozen: AtomicBool::new(false),
            has_work: AtomicBool::new(false),
            empties: AtomicBool::new(false),
            applied: Mutex::new(0),
            applied_changed: Condvar::new(),
            left: Mutex::default(),
            lease: AtomicU64::new(0),
            lost: Lost::default(),
            messages: Messages::default(),
            moves: Mover::default(),
            file: Mutex::default(),
            files: Mutex::default(),
            deciding: Deciding::default(),
            acks: Acks::default(),
            right: Right::default(),
        }
    }

    /// Returns true if the store has forgotten what it had told.
    pub(super) fn is_frozen(&self) -> bool {
        self.is_frozen.load(Ordering::Relaxed)
    }

    /// Keeps the term in which the data of the files are going on.
    pub(crate) fn keep_term(&self, term: u64) {
        let file = self.file.lock().expect("no panic under the file");
        let Some(file) = &*file else { return };
        let kept = Operation::Put {
            key: TERM_KEY.into(),
            value: term.to_string().into_bytes(),
            lease: None,
        };
        let written = file.transact(&Transaction {
            success: vec![kept],
            ..Transaction::default()
        });
        if let Err(error) = written {
            log::warning(&format!("The term {term} could not be kept: {error}"));
        }
    }

    /// Notes term and place of the data that files held, now that they are loaded.
    pub(super) fn note_files(&self, shared: &Shared) -> Option<(u64, u64)> {
        let file = self.file.lock().expect("no panic under the file");
        let kept = file.as_ref()?.range(&Range::Key(TERM_KEY.into())).ok()?;
        let text = String::from_utf8(kept.pairs.first()?.value.clone()).ok()?;
        let has_files = shared.persistence.loading.bytes() > 0;
        let place = (text.parse().ok()?, replication::identity(shared).offset());
        let files = has_files.then_some(place);
        *self.files.lock().expect("no panic under a place") = files;
        files
    }

    /// Returns the write that shows that this run of the node is alive.
    pub(super) fn alive(&self, node: &str, lease: LeaseId) -> Operation {
        let files = *self.files.lock().expect("no panic under a place");
        alive_of(node, &self.incarnation, files, lease)
    }

    /// Returns what a node sees in the records.
    pub(super) fn view_of(&self, node: &str, listing: &Listing) -> Result<View, BadRecord> {
        let mut picture = picture_of(listing)?;
        let alive = listing.pairs.iter();
        let alive = alive.filter_map(|pair| pair.key.strip_prefix(ALIVE).map(str::to_owned));
        let alive: BTreeSet<String> = alive.collect();
        let own = picture.nodes.get(node).cloned();
        let own = own.unwrap_or_else(|| fresh(&self.shard));
        if !own.joined {
            return Ok(View {
                picture: seen_alone(&picture, node, &own, &self.incarnation),
                shard: own.shard,
                is_member: false,
                is_primary: true,
                alive: None,
            });
        }
        let mut left = self
            .left
            .lock()
            .expect("no panic under the nodes that left");
        left.extend(picture.nodes.keys().cloned());
        picture.nodes.retain(|_, node| node.joined);
        drop(left);
        let shard = picture.shard_of_node(node);
        let is_primary = shard.is_some_and(|(_, shard)| {
            shard.primary.node == node && shard.primary.incarnation == self.incarnation
        });
        Ok(View {
            shard: shard.map_or_else(|| own.shard.clone(), |(id, _)| id.to_owned()),
            picture,
            is_member: true,
            is_primary,
            alive: Some(alive),
        })
    }

    /// Returns true if a node was once seen in the cluster.
    pub(crate) fn was_there(&self, node: &str) -> bool {
        let left = self
            .left
            .lock()
            .expect("no panic under the nodes that left");
        left.contains(node)
    }

    /// Returns true if etcd answered last.
    pub(crate) fn is_reached(&self) -> bool {
        self.is_reached.load(Ordering::Relaxed)
    }

    /// Returns true if [`drive`] has something to do.
    #[inline]
    pub(crate) fn has_work(&self) -> bool {
        self.has_work.load(Ordering::Acquire)
    }

    /// Returns true if the server ends.
    pub(super) fn ends(&self) -> bool {
        self.ends.load(Ordering::Acquire)
    }

    fn waiting(&self) -> MutexGuard<'_, HashMap<u64, Option<Result<(), String>>>> {
        self.waiting.lock().expect("no panic under those that wait")
    }

    /// Has the keyspace get the view once more, for whoever waits for that.
    pub(super) fn forget_applied(&self) {
        *self.applied.lock().expect("no panic under the revision") = 0;
        self.has_work.store(true, Ordering::Release);
    }

    /// Returns true if a client has asked for a change, whose result it has yet to fetch.
    pub(crate) fn is_asked(&self, client: u64) -> bool {
        self.waiting().contains_key(&client)
    }

    /// Asks for a change for a client, or fetches the result of the one that it has asked for.
    pub(crate) fn ask(&self, client: u64, change: Change) -> Asked {
        let mut waiting = self.waiting();
        match waiting.remove(&client) {
            Some(Some(result)) => return Asked::Done(result),
            Some(None) => {}
            None if waiting.len() >= WAITING_MAX => {
                let text = format!("ERR {WAITING_MAX} changes of the cluster are under way");
                return Asked::Done(Err(text));
            }
            None => {
                let jobs = self.jobs.lock().expect("no panic under the jobs");
                let sent = jobs.as_ref().map(|jobs| jobs.send(Job { client, change }));
                if !matches!(sent, Some(Ok(()))) {
                    return Asked::Done(Err("ERR the server ends".into()));
                }
            }
        }
        waiting.insert(client, None);
        Asked::Waits
    }

    fn note_reached(&self, why: Result<(), &StoreError>) {
        let was = self.is_reached.swap(why.is_ok(), Ordering::Relaxed);
        match why {
            Err(error) if was => log::warning(&format!(
                "The cluster's etcd cannot be used, nothing changes until then: {error}"
            )),
            Ok(()) if !was => log::notice("The cluster's etcd can be used again"),
            _ => {}
        }
    }
}

/// Returns the picture of a node that has not joined: itself, with the slots that it will take with it.
fn seen_alone(of: &Picture, id: &str, node: &NodeRecord, incarnation: &str) -> Picture {
    let mut shard = alone(id, node.epoch);
    incarnation.clone_into(&mut shard.primary.incarnation);
    let mut owners = owners_of(&node.wants);
    for run in owners.runs_of("") {
        owners.give(run, Some(&node.shard));
    }
    let records = [
        (META_KEY.to_owned(), of.meta.to_json()),
        (MAP_KEY.to_owned(), owners.to_map().to_json()),
        (format!("{NODES}{id}"), node.to_json()),
        (format!("{SHARDS}{}", node.shard), shard.to_json()),
    ];
    let records = records
        .iter()
        .map(|(key, json)| (key.as_str(), json.as_slice()));
    // The id of a shard in a record may be anything.
    Picture::of(of.revision, records).unwrap_or_else(|_| empty_picture())
}

impl Cluster {
    /// Returns the address of a node.
    fn address_of(&self, node: &str, settings: &Settings) -> Option<(String, u16)> {
        let view = self.view();
        let node = view.picture.nodes.get(node)?;
        let port = match settings.tls.replication || node.port == 0 {
            true => node.tls_port,
            false => node.port,
        };
        Some((node.ip.clone(), port))
    }

    /// Returns the address of the primary that this node follows by the records, if it follows one.
    pub(super) fn primary_to_follow(&self, settings: &Settings) -> Option<(String, u16)> {
        let view = self.view();
        let shard = view
            .own_shard()
            .filter(|_| view.is_member && !view.is_primary)?;
        if shard.primary.node == self.node {
            return None;
        }
        self.address_of(&shard.primary.node, settings)
    }

    /// Makes a change, as often as others are faster. The error is for the client.
    pub(super) fn change(&self, change: &Change) -> Result<(), String> {
        let etcd = self.etcd.as_ref().expect("it has etcd");
        if etcd.is_frozen.load(Ordering::Relaxed) {
            return Err(
                "ERR the cluster's etcd has forgotten what it had told; nothing is changed in it"
                    .into(),
            );
        }
        let failed = |error: StoreError| {
            log::warning(&format!("The cluster could not be changed: {error}"));
            format!("ERR the cluster could not be changed: {error}")
        };
        let mut undecided: Option<Transaction> = None;
        for _ in 0..ROUNDS_MAX {
            let listing = self.list().map_err(failed)?;
            if undecided
                .take()
                .is_some_and(|sent| members::is_done(&sent, &listing))
            {
                return Ok(());
            }
            let planned = members::plan(change, &self.node, &etcd.incarnation, &listing);
            if let (Change::Forget(node), Err(_)) = (change, &planned)
                && !listing
                    .pairs
                    .iter()
                    .any(|pair| pair.key == format!("{NODES}{node}"))
                && etcd.was_there(node)
            {
                // Another node has forgotten it for all.
                return Ok(());
            }
            let Plan::Transaction(transaction) = planned? else {
                return Ok(());
            };
            match self.store.transact(&transaction) {
                Ok(answer) if answer.succeeded => return Ok(()),
                Ok(_) => {}
                Err(StoreError::Undecided(_)) => undecided = Some(transaction),
                Err(error) => return Err(failed(error)),
            }
        }
        Err(
            "ERR the cluster could not be changed: others change the same records all the time"
                .into(),
        )
    }

    /// Keeps the node's lease, or makes a new one; writes its record if it has another address now.
    fn tick(&self, shared: &Shared) -> Result<(), StoreError> {
        let etcd = self.etcd.as_ref().expect("it has etcd");
        let lease = LeaseId(etcd.lease.load(Ordering::Relaxed));
        if !self.store.keep_lease(lease)? {
            let lease = self.store.grant_lease(LEASE_S)?;
            let alive = Transaction {
                success: vec![etcd.alive(&self.node, lease)],
                ..Transaction::default()
            };
            self.store.transact(&alive)?;
            etcd.lease.store(lease.0, Ordering::Relaxed);
        }
        let key = format!("{NODES}{}", self.node);
        let shown = self.view().picture.nodes.get(&self.node).cloned();
        let mut wanted = shown.clone().unwrap_or_else(|| fresh(&etcd.shard));
        let bound = |which| shared.bound_port(which);
        let ports = (
            bound(crate::shared::TcpPort::Plain),
            bound(crate::shared::TcpPort::Tls),
        );
        describe(&mut wanted, &shared.settings.current(), ports);
        if shown.as_ref() == Some(&wanted) {
            return Ok(());
        }
        let listing = self.store.range(&Range::Key(key.clone()))?;
        let mut node = match listing
            .pairs
            .first()
            .map(|pair| NodeRecord::from_json(&pair.value))
        {
            Some(Ok(node)) => node,
            // It was removed while etcd did not hear of it.
            _ => fresh(&etcd.shard),
        };
        describe(&mut node, &shared.settings.current(), ports);
        let renewed = Transaction {
            conditions: vec![Condition::Unchanged(key.clone(), revision(&listing, &key))],
            success: vec![put(&key, &node)],
            failure: Vec::new(),
        };
        // Who was faster is followed by another look.
        self.store.transact(&renewed).map(|_| ())
    }
}

/// Starts the threads of a node with etcd. Called once, when the workers can be sent messages.
pub(crate) fn begin(shared: &Arc<Shared>) -> Result<(), StartError> {
    let Some(etcd) = shared
        .cluster
        .as_ref()
        .and_then(|cluster| cluster.etcd.as_ref())
    else {
        return Ok(());
    };
    let (jobs, todo) = mpsc::channel();
    *etcd.jobs.lock().expect("no panic under the jobs") = Some(jobs);
    let watch = start::spawn("cluster-watch", {
        let shared = shared.clone();
        move || watch(&shared)
    })?;
    let control = start::spawn("cluster", {
        let shared = shared.clone();
        move || control(&shared, &todo)
    })?;
    let moves = start::spawn("cluster-moves", {
        let shared = shared.clone();
        move || moves::run(&shared)
    })?;
    let (calls, wanted) = mpsc::channel();
    let store = start::spawn("cluster-store", {
        let shared = shared.clone();
        move || deciding::store(&shared, &wanted)
    })?;
    let events = deciding::open(&etcd.deciding);
    let decides = start::spawn("cluster-decide", {
        let shared = shared.clone();
        move || deciding::run(&shared, &events, calls)
    })?;
    etcd.threads
        .lock()
        .expect("no panic under the threads")
        .extend([watch, control, moves, store, decides]);
    Ok(())
}

/// Ends the threads, and shows that the node has ended. Called when no worker runs any more.
pub(crate) fn end(shared: &Shared) {
    let Some(cluster) = &shared.cluster else {
        return;
    };
    let Some(etcd) = &cluster.etcd else { return };
    etcd.ends.store(true, Ordering::Release);
    *etcd.jobs.lock().expect("no panic under the jobs") = None;
    etcd.moves.wake();
    messages::end(&etcd.messages);
    etcd.deciding.end();
    let mut threads = etcd.threads.lock().expect("no panic under the threads");
    for thread in threads.drain(..) {
        thread
            .join()
            .expect("a thread that panics ends the process");
    }
    // If etcd does not hear of it, the lease ends.
    let gone = Operation::Delete(Range::Key(format!("{ALIVE}{}", cluster.node)));
    let _ = cluster.store.transact(&Transaction {
        success: vec![gone],
        ..Transaction::default()
    });
}

/// The thread that makes changes, and keeps the lease.
fn control(shared: &Shared, todo: &mpsc::Receiver<Job>) {
    let cluster = shared.cluster.as_ref().expect("it is a node");
    let etcd = cluster.etcd.as_ref().expect("it has etcd");
    let mut next = Instant::now() + TICK;
    while !etcd.ends.load(Ordering::Acquire) {
        match todo.recv_timeout(next.saturating_duration_since(Instant::now())) {
            Ok(Job { client, change }) => {
                let mut result = cluster.change(&change);
                if result.is_ok() {
                    if change == Change::Leave {
                        let follows = shared.settings.current().primary.is_some();
                        etcd.empties.fetch_or(follows, Ordering::AcqRel);
                    }
                    result = cluster.look().map_err(|error| format!("ERR {error}"));
                    until_applied(shared, etcd, cluster.view().picture.revision);
                }
                answer(shared, etcd, client, result);
            }
            Err(RecvTimeoutError::Timeout) => {
                next = Instant::now() + TICK;
                let ticked = cluster.tick(shared);
                etcd.note_reached(ticked.as_ref().copied());
            }
            Err(RecvTimeoutError::Disconnected) => return,
        }
    }
}

/// Has the call of a client run again, which fetches the result.
fn answer(shared: &Shared, etcd: &Membership, client: u64, result: Result<(), String>) {
    let mut waiting = etcd.waiting();
    // Its client may have gone.
    let Some(token) = shared.token_of(client) else {
        waiting.remove(&client);
        return;
    };
    waiting.insert(client, Some(result));
    drop(waiting);
    shared.send(token, redline_engine::Message::Wake(token));
}

/// The thread that watches the store.
fn watch(shared: &Shared) {
    let cluster = shared.cluster.as_ref().expect("it is a node");
    let etcd = cluster.etcd.as_ref().expect("it has etcd");
    let mut wrong = String::new();
    while !etcd.ends.load(Ordering::Acquire) {
        let watched = cluster.store.watch(cluster.view().picture.revision + 1);
        let mut watched = match watched {
            Ok(watched) => watched,
            Err(error) => {
                etcd.note_reached(Err(&error));
                std::thread::sleep(PAUSE);
                continue;
            }
        };
        // The view may be older than the watch's beginning.
        let mut is_current = look(shared, cluster, &mut wrong);
        while !etcd.ends.load(Ordering::Acquire) {
            match watched.next(WATCH_TURN) {
                Ok(events) if events.events.is_empty() && is_current => {}
                // Also what the last look could not see: there may be no further change.
                Ok(_) => is_current = look(shared, cluster, &mut wrong),
                Err(StoreError::Compacted(_)) => break,
                Err(StoreError::Damaged(why)) => {
                    if !etcd.is_frozen.swap(true, Ordering::Relaxed) {
                        log::warning(&format!(
                            "The cluster's etcd is not trusted any more, nothing is changed in it: {why}"
                        ));
                    }
                    std::thread::sleep(TICK);
                    break;
                }
                // Said by the lease's keeper, and tried again by the watch.
                Err(_) => {}
            }
        }
    }
}

/// Makes a new view of what a transaction has changed, without waiting for the watch.
pub(super) fn look_now(shared: &Shared) {
    let cluster = shared.cluster.as_ref().expect("it is a node");
    // The watch says what is wrong.
    if cluster.look().is_ok() {
        adopt(shared);
        wake(shared);
    }
}

/// Makes a new view, and has the keyspace get it. What cannot be used is told once, and the last view stays. Returns false if
/// the store did not answer.
fn look(shared: &Shared, cluster: &Cluster, wrong: &mut String) -> bool {
    match cluster.look() {
        Ok(()) => {
            wrong.clear();
            adopt(shared);
            wake(shared);
            if let Some(etcd) = &cluster.etcd {
                etcd.moves.wake();
            }
        }
        Err(StoreError::Damaged(why)) if *wrong != why => {
            log::warning(&format!(
                "The cluster's records cannot be used, the last ones stay: {why}"
            ));
            *wrong = why;
        }
        Err(StoreError::Damaged(_)) => {}
        Err(_) => return false,
    }
    true
}

/// Waits until the keyspace has a revision.
pub(super) fn until_applied(shared: &Shared, etcd: &Membership, revision: u64) {
    let ends = Instant::now() + APPLY_WAIT;
    let mut applied = etcd.applied.lock().expect("no panic under the revision");
    while *applied < revision && Instant::now() < ends {
        wake(shared);
        let waited = etcd
            .applied_changed
            .wait_timeout(applied, Duration::from_millis(20));
        applied = waited.expect("no panic under the revision").0;
    }
}

/// Has worker 0 look at the view.
pub(super) fn wake(shared: &Shared) {
    let etcd = shared
        .cluster
        .as_ref()
        .and_then(|cluster| cluster.etcd.as_ref());
    if etcd.is_some_and(|etcd| !etcd.has_work.swap(true, Ordering::AcqRel)) {
        shared.workers()[0]
            .mailbox
            .send(Message::Run(Box::new(|_| ())));
    }
}

/// Has the keyspace serve what the node is to serve by its view, and follow whom it is to follow. Called by worker 0, which
/// holds nothing.
pub(crate) fn drive(worker: &mut Worker) {
    let shared = worker.shared;
    let Some(cluster) = &shared.cluster else {
        return;
    };
    let Some(etcd) = &cluster.etcd else { return };
    if shared.persistence.loading.is_on() {
        return;
    }
    etcd.has_work.store(false, Ordering::Release);
    let mut caller: Caller = following::link_caller();
    let Ok(mut unit) = units::take_everything(worker.executor, &mut caller) else {
        units::give_way(worker.executor, &mut caller);
        etcd.has_work.store(true, Ordering::Release);
        return;
    };
    let view = cluster.view();
    let decided = etcd.deciding.decided();
    let (standing, cuts) = {
        let mut standing = etcd.deciding.standing();
        (standing.clone(), std::mem::take(&mut standing.cuts))
    };
    let Standing {
        role,
        calls_anew,
        holds,
        ..
    } = standing;
    let settings = shared.settings.current();
    let leaves = etcd.empties.load(Ordering::Acquire);
    // One that has left goes on following until it is reset.
    let wanted = match &role {
        Role::None if !leaves => settings.primary.clone(),
        Role::None | Role::Lead { .. } => None,
        Role::Follow { primary, .. } => cluster
            .address_of(&primary.node, &settings)
            .or_else(|| settings.primary.clone()),
    };
    if !matches!(role, Role::Lead { .. }) {
        // Nobody is served any more when the data become another's.
        cluster.serve(&mut unit, &view, false);
    }
    if settings.primary != wanted || calls_anew != 0 && wanted.is_some() {
        following::switch(shared, &mut unit, wanted.clone());
        if wanted.is_none() {
            acks::begin(shared);
        }
    }
    // It was wished for behind the switch, which takes back what was wished for before.
    if cuts {
        let offset = following::cut(shared);
        if let Role::Follow { term, .. } = role {
            let place = Place { term, offset };
            etcd.deciding.post(Event::Cut { place });
        }
    }
    if let Role::Lead { shard, .. } = &role {
        cluster.serve(&mut unit, &view, view.shard == *shard);
    }
    if etcd.lost.note(&view, &shared.keyspace) {
        lost::send_on(shared, &view);
    }
    let empties = leaves && wanted.is_none();
    if empties {
        etcd.empties.store(false, Ordering::Release);
        append::leave(shared);
        let nothing = shared.keyspace.unpublished();
        let emptied = loading::publish(worker, &mut unit, &nothing, &Loaded::default());
        emptied.expect("no library is loaded");
        replication::restart_history(shared);
    }
    if let Some(number) = holds {
        // Calls that write are suspended, so nothing comes behind it.
        let journal = shared.keyspace.journal();
        let _ = journal.pump(&mut || false);
        replication::ask_acks(shared, journal.last());
        let mut standing = etcd.deciding.standing();
        // It may have been given up meanwhile.
        if standing.holds.take_if(|it| *it == number).is_some() {
            replication::hold_still(shared, true);
            let end = replication::identity(shared).offset();
            etcd.deciding.post(Event::Held { number, end });
        }
    }
    block::commit(worker.executor, unit);
    units::give_way(worker.executor, &mut caller);
    if empties {
        append::make_anew(shared);
    }
    // What has been wished for meanwhile is left to the next turn.
    let mut standing = etcd.deciding.standing();
    if standing.calls_anew == calls_anew {
        standing.calls_anew = 0;
    }
    drop(standing);
    adopt(shared);
    shared.engine.resume_all();
    crate::ending::look(shared);
    let mut applied = etcd.applied.lock().expect("no panic under the revision");
    *applied = view.picture.revision.min(decided);
    etcd.applied_changed.notify_all();
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_client_asks_once_and_fetches_the_result_once() {
        let etcd = Membership::new("shard".into());
        let asked = |client| match etcd.ask(client, Change::Leave) {
            Asked::Waits => None,
            Asked::Done(result) => Some(result),
        };
        let ends = asked(1).expect("no thread takes it");
        assert_eq!(ends, Err("ERR the server ends".into()));
        let (jobs, todo) = mpsc::channel();
        *etcd.jobs.lock().unwrap() = Some(jobs);
        assert_eq!((asked(1), asked(1), asked(2)), (None, None, None));
        let clients: Vec<u64> = todo.try_iter().map(|job| job.client).collect();
        assert_eq!(
            clients,
            [1, 2],
            "a call that runs again asks for nothing new"
        );
        etcd.waiting().insert(1, Some(Ok(())));
        assert_eq!((asked(1), asked(1), asked(2)), (Some(Ok(())), None, None));
        assert_eq!(todo.try_iter().count(), 1);
        let more = (10..10 + WAITING_MAX as u64).filter_map(asked);
        let refused: Vec<_> = more.collect();
        assert!(
            refused.len() == 2 && refused.iter().all(Result::is_err),
            "{refused:?}"
        );
    }
}
