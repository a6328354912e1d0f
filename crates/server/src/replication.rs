//! Replication in the server: what the state machine of a primary decides is carried out here.
//!
//! The state ([`Primary`]) is under one lock; under it only the journal's gate and its queues are locked. Who has the pump's role adds rounds of the stream ([`write`]); the
//! workers of replicas' sessions send what there is ([`feed`]); worker 0 looks after time ([`tick`]) and begins walks
//! ([`drive`]). A walk's snapshot goes into a file without a name ([`spool`]), from which each replica is sent it at its own
//! speed.
//!
//! Must not know: the form of snapshots and commands, how a session is served.

mod backlog_file;
pub(crate) mod feed;
pub(crate) mod spool;

use std::sync::{
    Arc, Mutex, MutexGuard,
    atomic::{AtomicBool, AtomicU64, Ordering},
};

use redline_cluster::control::Event;
use redline_engine::refusals::Reason;
use redline_keyspace::{
    Unit,
    journal::{OnDisk, Piece},
    lock::StripeSet,
};
use redline_net::clock;
use redline_persist::snapshot::file::{SaveError, Written};
use redline_replica::{
    Identity, Log, Primary, Replid, Role,
    primary::{Limits, MARK_BYTES, State},
};
use redline_resp::Args;

use crate::{
    cluster, ending, failover, log,
    persistence::{self, Purpose},
    session::Session,
    settings::{ClusterAcks, Settings},
    shared::{Message, Shared},
    stream,
    worker::Worker,
};
use backlog_file::BacklogFile;
use spool::Spool;

/// Class of replicas among the limits of output.
const REPLICAS: usize = 1;

/// See the module's text.
pub(crate) struct Replication {
    primary: Mutex<Primary>,
    /// True if the stream is kept, so that rounds are wanted.
    is_kept: AtomicBool,
    /// True if [`drive`] may have something to do.
    has_wishes: AtomicBool,
    /// True if the journal has the server's stream: see [`stream`].
    pub(crate) has_stream: AtomicBool,
    /// The last record that is no part of the stream though it comes later: the lanes had it when the server became a primary.
    own_from: AtomicU64,
    /// The walk whose cut is on its way through the journal, and the last record before that.
    awaited: Mutex<Option<(u64, u64)>>,
    spools: Mutex<Vec<Arc<Spool>>>,
    /// Old blocks of the stream, if they may be in a file. Locked before the state.
    backlog_file: BacklogFile,
    /// True if they may.
    spills: AtomicBool,
    /// Number of bytes that replicas were sent since the start.
    pub(crate) sent_bytes: AtomicU64,
}

impl Replication {
    /// Makes the state at the start: a primary without replicas.
    pub(crate) fn new(settings: &Settings) -> Replication {
        let log = Log::new(Identity::new(fresh_id()));
        Replication {
            primary: Mutex::new(Primary::new(log, limits(settings))),
            is_kept: AtomicBool::new(false),
            has_wishes: AtomicBool::new(false),
            has_stream: AtomicBool::new(false),
            own_from: AtomicU64::new(0),
            awaited: Mutex::default(),
            spools: Mutex::default(),
            backlog_file: BacklogFile::default(),
            spills: AtomicBool::new(settings.backlog_spool_bytes > 0),
            sent_bytes: AtomicU64::new(0),
        }
    }

    /// Returns the state. Under its lock none is taken but those of the journal's gate.
    pub(crate) fn primary(&self) -> MutexGuard<'_, Primary> {
        self.primary.lock().expect("no panic under replication")
    }

    /// Returns true if the stream is kept for replicas.
    pub(crate) fn is_kept(&self) -> bool {
        self.is_kept.load(Ordering::Acquire)
    }

    /// Notes if the stream is kept, after a change of the log.
    pub(crate) fn note_kept(&self, primary: &Primary) {
        let is_kept = primary.log().blocks().is_some();
        self.is_kept.store(is_kept, Ordering::Release);
    }

    /// Returns true if [`drive`] may have something to do.
    pub(crate) fn has_wishes(&self) -> bool {
        self.has_wishes.load(Ordering::Acquire)
    }

    fn spools(&self) -> MutexGuard<'_, Vec<Arc<Spool>>> {
        self.spools.lock().expect("no panic under the spools")
    }
}

/// Returns an id that nobody has had.
pub(crate) fn fresh_id() -> Replid {
    Replid::from_random(random())
}

fn random<const N: usize>() -> [u8; N] {
    let mut bytes = [0; N];
    getrandom::fill(&mut bytes).expect("the operating system gives randomness");
    bytes
}

fn limits(settings: &Settings) -> Limits {
    let output = settings.output_limits[REPLICAS];
    // Replies that wait for other nodes do so by the numbers of a stream, so there has to be one.
    let keeps_stream =
        !settings.cluster_etcd.is_empty() && settings.cluster_acks == ClusterAcks::One;
    let ttl_ms = settings.backlog_ttl_s.saturating_mul(1000);
    Limits {
        backlog_bytes: settings.backlog_bytes,
        backlog_ttl_ms: if keeps_stream { 0 } else { ttl_ms },
        timeout_ms: settings.repl_timeout_s.saturating_mul(1000),
        ping_period_ms: settings.repl_ping_s.saturating_mul(1000),
        is_diskless: settings.repl_diskless,
        delay_ms: settings.repl_delay_s.saturating_mul(1000),
        enough_replicas: settings.repl_enough,
        hard_bytes: output.hard_bytes,
        soft_bytes: output.soft_bytes,
        soft_ms: output.soft_seconds.saturating_mul(1000),
        spool_bytes: settings.backlog_spool_bytes,
    }
}

/// Goes by changed settings.
pub(crate) fn adopt(shared: &Shared) {
    let settings = shared.settings.current();
    let replication = &shared.replication;
    replication.primary().set_limits(limits(&settings));
    replication.backlog_file.mend();
    let spills = settings.backlog_spool_bytes > 0;
    replication.spills.store(spills, Ordering::Release);
    note_good_replicas(shared, &settings);
}

/// Has [`drive`] look at what is wanted.
pub(crate) fn wish(shared: &Shared) {
    shared.replication.has_wishes.store(true, Ordering::Release);
    shared.workers()[0]
        .mailbox
        .send(Message::Run(Box::new(|_| ())));
}

/// Takes a round of the journal's stream, up to this record.
pub(crate) fn write(shared: &Shared, pieces: &[Piece<'_>], last: u64) {
    let replication = &shared.replication;
    if !replication.is_kept() {
        return;
    }
    let mut primary = replication.primary();
    // What follows a primary has its stream, and what it wrote itself then is in it already.
    let own_from = replication.own_from.load(Ordering::Relaxed);
    if primary.log().identity().role() == Role::Replica || last <= own_from {
        return;
    }
    pieces
        .iter()
        .for_each(|piece| primary.append(piece.bytes()));
    let (awake, late) = primary.end_round(last);
    drop(primary);
    end_round(shared, &awake, &late);
}

/// Does what the end of a round brings: some replicas have something to send, some are too far behind.
fn end_round(shared: &Shared, awake: &[u64], late: &[u64]) {
    wake(shared, awake);
    for client in late {
        close(shared, *client, "it is too far behind");
    }
    if shared.replication.spills.load(Ordering::Acquire) {
        backlog_file::spill(shared);
    }
}

/// Adds a command to the stream that nothing here has led to. Returns false if the stream is not the server's own, or nobody
/// wants it.
pub(crate) fn tell(shared: &Shared, words: Args<'_>) -> bool {
    let mut primary = shared.replication.primary();
    let is_own = primary.log().identity().role() == Role::Primary;
    if !is_own || !shared.replication.is_kept() {
        return false;
    }
    let mut bytes = Vec::new();
    redline_resp::encode_request(words.iter(), &mut bytes);
    primary.append(&bytes);
    let last = primary.log().last_record();
    let (awake, late) = primary.end_round(last);
    drop(primary);
    end_round(shared, &awake, &late);
    true
}

/// Returns ids and offset.
pub(crate) fn identity(shared: &Shared) -> Identity {
    *shared.replication.primary().log().identity()
}

/// Returns the place of the data in the stream, and the database that is selected there, if it is known exactly. Called at a
/// cut; `last`: the last record before it.
pub(crate) fn history_at_cut(worker: &Worker, last: u64) -> Option<(Identity, u32)> {
    let shared = worker.shared;
    let primary = shared.replication.primary();
    let identity = *primary.log().identity();
    match identity.role() {
        Role::Primary => {
            let is_exact = primary.log().blocks().is_some() && primary.log().last_record() == last;
            is_exact.then_some((identity, 0))
        }
        // Another worker may cut between two units of a slice, which is counted at its end.
        Role::Replica => {
            let is_exact = worker.number == 0 && worker.depth == 0;
            (is_exact && shared.following.may_resume()).then(|| (identity, shared.following.db()))
        }
    }
}

/// Takes whole units of the primary's stream that were applied.
pub(crate) fn append_applied(shared: &Shared, bytes: &[u8]) {
    let mut primary = shared.replication.primary();
    primary.append(bytes);
    // Nobody else applies, so these units' records are before it.
    let (awake, late) = primary.end_round(shared.keyspace.journal().last());
    drop(primary);
    end_round(shared, &awake, &late);
}

/// Returns the number of bytes of the primary's stream that were applied, and of those that are in the append-only file on
/// disk; `None`: there is no file, or none that has the data in which the stream goes on.
pub(crate) fn applied(shared: &Shared) -> (u64, Option<u64>) {
    let primary = shared.replication.primary();
    let log = primary.log();
    // Under the lock: data that is replaced comes with another log.
    let synced = match shared.keyspace.journal().gate.on_disk() {
        OnDisk::UpTo(record) => log.offset_at(record),
        OnDisk::NoFile | OnDisk::NotYet => None,
    };
    (log.identity().offset(), synced)
}

/// Takes over a primary's history with its data. Own replicas have other data: they ask again.
pub(crate) fn take_history(shared: &Shared, replid: Replid, offset: u64) {
    let mut primary = shared.replication.primary();
    primary.log_mut().full_resync(replid, offset);
    primary.log_mut().mark(shared.keyspace.journal().last());
    shared.replication.note_kept(&primary);
    drop(primary);
    close_all(shared, "the data is another primary's now");
}

/// Goes on in a primary's history, of which it may have told a new id. Own replicas ask again then, and go on as well.
pub(crate) fn go_on(shared: &Shared, replid: Option<Replid>) {
    let mut primary = shared.replication.primary();
    let is_other = primary.log_mut().continued(replid);
    shared.replication.note_kept(&primary);
    let replid = primary.log().identity().replid();
    drop(primary);
    if is_other {
        log::notice(&format!("Master replication ID changed to {replid}"));
        close_all(shared, "the history has another id now");
    }
}

/// Ends the own history: what follows is a primary's. Every stripe is held. Returns true if the stream has everything that
/// the data has.
pub(crate) fn demote(shared: &Shared) -> bool {
    let journal = shared.keyspace.journal();
    // What is in the lanes belongs to the own history.
    let _ = journal.pump(&mut || false);
    let mut primary = shared.replication.primary();
    let is_whole = shared.replication.is_kept() && is_whole(shared, &primary);
    primary.log_mut().demoted();
    is_whole
}

/// Returns true if the stream has everything that the data has. Every stripe is held, and this thread has pumped; another
/// one may have been at it, and not have come to the end.
pub(crate) fn is_whole(shared: &Shared, primary: &Primary) -> bool {
    primary.log().last_record() == shared.keyspace.journal().last()
}

/// Goes on as the primary that saved a file at this place. The unit holds every stripe, and the data is that of the file.
pub(crate) fn take_up(shared: &Shared, unit: &mut Unit<'_>, replid: Replid, offset: u64) {
    let mut primary = shared.replication.primary();
    primary.restarted(fresh_id(), replid, offset, clock::monotonic_ms());
    shared.replication.note_kept(&primary);
    drop(primary);
    let number = stream::begin_part(&shared.this(), unit);
    shared.replication.primary().log_mut().mark(number);
}

/// Begins an own history, which has all of the primary's in common. The unit holds every stripe.
pub(crate) fn promote(shared: &Shared, unit: &mut Unit<'_>) {
    let replication = &shared.replication;
    // Before the role changes: whoever pumps may have records of what was applied.
    let begin = replication.is_kept().then(|| {
        let number = stream::begin_part(&shared.this(), unit);
        replication.own_from.store(number, Ordering::Relaxed);
        number
    });
    let mut primary = replication.primary();
    let before = *primary.log().identity();
    let fresh = fresh_id();
    primary.log_mut().promoted(fresh);
    // The data is that of the stream's end: who becomes a replica before anything is written can go on there.
    let number = begin.unwrap_or_else(|| shared.keyspace.journal().last());
    primary.log_mut().mark(number);
    drop(primary);
    close_all(shared, "the history has another id now");
    log::notice(&format!(
        "Setting secondary replication ID to {}, valid up to offset: {}. New replication ID is {fresh}",
        before.replid(),
        before.offset() + 1
    ));
}

fn close_all(shared: &Shared, why: &str) {
    let primary = shared.replication.primary();
    let replicas = primary.replicas().iter();
    let are_replicas = replicas.filter(|replica| replica.state != State::Handshake);
    let clients: Vec<u64> = are_replicas.map(|replica| replica.client).collect();
    drop(primary);
    for client in clients {
        close(shared, client, why);
    }
}

/// Hears that a part of the stream begins behind this record.
pub(crate) fn cut(shared: &Shared, number: u64) {
    let replication = &shared.replication;
    let mut awaited = replication.awaited.lock().expect("no panic under a cut");
    let Some((walk, _)) = awaited.take_if(|(_, of)| *of == number) else {
        return;
    };
    drop(awaited);
    cut_walk(shared, walk, number);
}

/// Notes that a walk has what is before the end of the stream, up to this record.
fn cut_walk(shared: &Shared, walk: u64, number: u64) {
    let mut primary = shared.replication.primary();
    let awake = primary.cut_walk(walk, number, clock::monotonic_ms());
    let identity = *primary.log().identity();
    drop(primary);
    // An own stream goes on with SELECT there, a primary's need not.
    let db = match identity.role() {
        Role::Primary => 0,
        Role::Replica => shared.following.db(),
    };
    persistence::release_held(shared, identity.replid(), identity.offset(), db);
    wake(shared, &awake);
}

/// Begins a walk that is due, and ends a stream that nobody wants; called by worker 0 every turn while there is a wish.
pub(crate) fn drive(worker: &mut Worker) {
    let shared = worker.shared.this();
    let replication = &shared.replication;
    replication.has_wishes.store(false, Ordering::Release);
    let form = replication.primary().due_walk(clock::monotonic_ms());
    if form.is_none() && !stream::is_idle(&shared) {
        return;
    }
    let is_busy = shared.persistence.is_busy() || shared.keyspace.is_snapshot_running();
    let form = form.filter(|_| !is_busy);
    let waits = worker.compound.is_some() || shared.persistence.loading.is_on();
    let unit = match waits {
        true => None,
        false => Unit::try_set(&worker.shared.keyspace, &StripeSet::all(), false).ok(),
    };
    let Some(mut unit) = unit else {
        replication.has_wishes.store(true, Ordering::Release);
        return;
    };
    let Some(form) = form else {
        if stream::is_idle(&shared) {
            stream::end(&shared);
        }
        return;
    };
    let mark = random::<MARK_BYTES>().map(|byte| b"0123456789abcdef"[usize::from(byte & 15)]);
    let mut primary = replication.primary();
    let part = primary.part_of(form);
    let walk = primary.begin_walk(form, mark);
    drop(primary);
    let begun = persistence::begin(worker, &mut unit, Purpose::Replicas(walk, form, part));
    if begun.is_err() {
        fail(&shared, walk, "a snapshot is being taken");
        return;
    }
    if identity(&shared).role() == Role::Replica {
        // This worker applies the primary's stream, so what was applied is what the cut has.
        let last = replication.primary().log().last_record();
        cut_walk(&shared, walk, last);
    } else {
        let mut awaited = replication.awaited.lock().expect("no panic under a cut");
        let number = stream::begin_part(&shared, &mut unit);
        *awaited = Some((walk, number));
    }
    drop(unit);
    log::notice("Starting a snapshot for SYNC of replicas");
    worker.pump_now();
}

/// Hears how the snapshot of a walk ended.
pub(crate) fn walk_ended(shared: &Shared, walk: u64, result: &Result<Written, SaveError>) {
    match result {
        Ok(written) => {
            let awake = shared
                .replication
                .primary()
                .walk_grew(walk, written.bytes, true);
            log::notice(&format!(
                "Snapshot for replicas finished: {} keys, {} bytes",
                written.entries, written.bytes
            ));
            wake(shared, &awake);
        }
        Err(error) => fail(shared, walk, &error.to_string()),
    }
    // Others may wait for the next.
    wish(shared);
}

fn fail(shared: &Shared, walk: u64, why: &str) {
    let part = shared.replication.primary().walk_failed(walk);
    log::warning(&format!("Snapshot for replicas failed: {why}"));
    for client in part {
        close(shared, client, "its snapshot failed");
    }
}

/// Begins a history anew, since the data has become other than by the stream: replicas have to ask for all of it.
pub(crate) fn restart_history(shared: &Shared) {
    let replication = &shared.replication;
    let mut primary = replication.primary();
    primary.log_mut().restarted(fresh_id());
    replication.note_kept(&primary);
    let replicas = primary.replicas().iter();
    let clients: Vec<u64> = replicas
        .filter(|replica| replica.state != State::Handshake)
        .map(|replica| replica.client)
        .collect();
    drop(primary);
    for client in clients {
        close(shared, client, "the data was replaced");
    }
}

/// Looks after what is due by time; called by worker 0 every tick.
pub(crate) fn tick(shared: &Shared) {
    let replication = &shared.replication;
    let settings = shared.settings.current();
    let now_ms = clock::monotonic_ms();
    backlog_file::look(shared);
    let mut primary = replication.primary();
    let tick = primary.tick(fresh_id, now_ms);
    replication.note_kept(&primary);
    let is_walk_due = primary.due_walk(now_ms).is_some();
    let mut spools = replication.spools();
    spools.retain(|spool| !primary.is_over(spool.walk));
    drop(spools);
    drop(primary);
    if tick.is_forgotten {
        log::notice("Replication backlog freed: there has been no replica for a long time.");
    }
    if tick.is_forgotten || is_walk_due || stream::is_idle(shared) {
        replication.has_wishes.store(true, Ordering::Release);
    }
    note_good_replicas(shared, &settings);
    wake(shared, &tick.wake);
    for (client, why) in tick.close {
        close(shared, client, why);
    }
}

/// Refuses writes, or not, by the number of replicas that are up to date.
pub(crate) fn note_good_replicas(shared: &Shared, settings: &Settings) {
    let least = settings.min_replicas;
    let lag_ms = settings.min_replicas_lag_s.saturating_mul(1000);
    let refuses = least > 0 && settings.primary.is_none() && settings.min_replicas_lag_s > 0 && {
        let primary = shared.replication.primary();
        primary.good_replicas(lag_ms, clock::monotonic_ms()) < least
    };
    let refusals = &shared.engine.refusals;
    refusals.set(Reason::NoReplicas, refuses, &shared.engine.settings);
}

/// Has replicas tell how far they are, once they have been sent this record.
pub(crate) fn ask_acks(shared: &Shared, record: u64) {
    let awake = shared.replication.primary().ask_acks(record);
    wake(shared, &awake);
}

/// Has nothing of this server's own added to the stream while replicas are to come to its end, or has it go on.
pub(crate) fn hold_still(shared: &Shared, holds: bool) {
    let mut primary = shared.replication.primary();
    let awake = primary.hold_still(holds.then(clock::monotonic_ms));
    drop(primary);
    wake(shared, &awake);
}

/// Reports what replicas have, for those who wait for it.
fn report_acks(shared: &Shared) {
    // One report after the other: the state stays locked.
    let primary = shared.replication.primary();
    let (acked, on_disk) = primary.acked_records().into_iter().unzip();
    shared.engine.report_replicas(acked, on_disk);
}

/// Acts on a replica's acknowledgement.
pub(crate) fn acknowledged(shared: &Shared) {
    report_acks(shared);
    failover::look(shared);
    ending::look(shared);
    cluster::acks::acknowledged(shared);
    let settings = shared.settings.current();
    if settings.min_replicas > 0 {
        note_good_replicas(shared, &settings);
    }
}

/// Forgets a session that has ended.
pub(crate) fn gone(shared: &Shared, session: &Session) {
    let mut primary = shared.replication.primary();
    let client = session.info.id;
    let replicas = primary.replicas().iter();
    let mut known = replicas.filter(|replica| replica.client == client);
    let name = known
        .next()
        .filter(|replica| replica.state != State::Handshake)
        .map(|replica| format!("{}:{}", replica.peer.shown_ip(), replica.peer.port));
    let node = primary.replicas().iter().find(|it| it.client == client);
    let node = node.and_then(|it| it.peer.node.clone());
    primary.gone(client, clock::monotonic_ms());
    drop(primary);
    if let (Some(name), Some(etcd)) = (node, shared.etcd()) {
        let node = name.node;
        etcd.deciding.post(Event::ReplicaGone { node });
    }
    report_acks(shared);
    if let Some(name) = name {
        log::notice(&format!("Connection with replica {name} lost."));
        note_good_replicas(shared, &shared.settings.current());
    }
}

/// Has the sessions of these replicas send what there is.
pub(crate) fn wake(shared: &Shared, clients: &[u64]) {
    for client in clients {
        if let Some(token) = shared.token_of(*client) {
            let worker = &shared.workers()[token.executor()];
            worker.mailbox.send(Message::Feed(token));
        }
    }
}

/// Closes the connection of a replica.
fn close(shared: &Shared, client: u64, why: &str) {
    let info = shared.clients().get(&client).cloned();
    if let Some(info) = info {
        log::warning(&format!("Disconnecting replica {}: {why}", info.addr));
        shared.kill(&info);
    }
}
