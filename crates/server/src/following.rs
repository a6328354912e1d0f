//! The server as a replica: whom it follows, what the role means for its clients, and how roles change.
//!
//! A thread of its own has the connection ([`thread`]) and takes snapshots ([`snapshot`], [`pipe`]); worker 0 applies what
//! comes, in slices between its clients ([`apply`]). A change of roles holds the script mutex and every stripe, so each unit belongs to one side of it. What is
//! on its way from before a change carries the number of an earlier *term*, and is dropped.
//!
//! Must not know: the words of the handshake, what a command does.

mod apply;
mod behind;
mod pipe;
mod snapshot;
mod thread;

use std::{
    sync::{
        Arc, Mutex, MutexGuard,
        atomic::{AtomicBool, AtomicU32, Ordering},
    },
    thread::JoinHandle,
    time::Duration,
};

use redline_engine::{
    Caller, Halt,
    caller::ClientInfo,
    executor::{block, units},
    refusals::Reason,
};
use redline_keyspace::{End, Unit};
use redline_net::{Sender, clock};
use redline_persist::load::Loaded;
use redline_replica::{Replid, Role, link::State};
use redline_types::number;

use crate::{
    log,
    persistence::append,
    replication,
    settings::Settings,
    shared::{Message, Shared},
    start::StartError,
    worker::Worker,
};
use apply::{Applier, Incoming};
use snapshot::Attempt;
use thread::Order;

pub(crate) use apply::{drive, link_caller};

/// The server's part as a replica: see the module's text.
pub(crate) struct Following {
    applier: Mutex<Applier>,
    incoming: Mutex<Incoming>,
    /// The primary, or nobody, that a transaction wants to be followed.
    wanted: Mutex<Option<Option<(String, u16)>>>,
    /// True if [`drive`] may have something to do. Read every turn.
    has_work: AtomicBool,
    /// The database that the primary's stream has selected.
    db: AtomicU32,
    /// See [`Following::may_resume`].
    resumes: AtomicBool,
    link: Mutex<LinkFacts>,
    /// True if the primary waits to hear that what was applied is on disk.
    owes_on_disk: AtomicBool,
    /// Serialises changes of the refusals that come from the role.
    role: Mutex<()>,
    thread: Mutex<Option<(Sender<Order>, JoinHandle<()>)>>,
}

/// Facts about the link, for INFO and ROLE.
#[derive(Clone, Debug)]
pub(crate) struct LinkFacts {
    /// State of the link.
    pub(crate) state: State,
    /// When something last came from the primary: milliseconds of the monotonic clock; `None`: never.
    pub(crate) heard_ms: Option<u64>,
    /// When the link went down, likewise; `None`: it stands, or never has.
    pub(crate) down_since_ms: Option<u64>,
    /// Bytes of the snapshot that have come, while one does.
    pub(crate) snapshot_bytes: Option<u64>,
    /// The snapshot that is loaded as it comes.
    pub(crate) loading: Option<Arc<Attempt>>,
    /// Bytes that came from primaries since the start.
    pub(crate) bytes: u64,
}

impl Following {
    /// Makes the state at the start: it follows nobody.
    pub(crate) fn new() -> Following {
        Following {
            applier: Mutex::default(),
            incoming: Mutex::default(),
            wanted: Mutex::new(None),
            has_work: AtomicBool::new(false),
            db: AtomicU32::new(0),
            resumes: AtomicBool::new(false),
            link: Mutex::new(LinkFacts {
                state: State::Off,
                heard_ms: None,
                down_since_ms: None,
                snapshot_bytes: None,
                loading: None,
                bytes: 0,
            }),
            owes_on_disk: AtomicBool::new(false),
            role: Mutex::new(()),
            thread: Mutex::new(None),
        }
    }

    /// Returns true if [`drive`] may have something to do.
    #[inline]
    pub(crate) fn has_work(&self) -> bool {
        self.has_work.load(Ordering::Acquire)
    }

    /// Returns the facts about the link.
    pub(crate) fn link(&self) -> LinkFacts {
        self.facts().clone()
    }

    /// Returns the database that the primary's stream has selected behind what was applied.
    pub(crate) fn db(&self) -> u32 {
        self.db.load(Ordering::Acquire)
    }

    /// Returns true if the server follows a primary, and the link to it is down.
    pub(crate) fn is_cut_off(&self, settings: &Settings) -> bool {
        settings.primary.is_some() && self.facts().state != State::Streaming
    }

    /// Returns true if the data are those of the stream's id and offset, so that a primary may go on from there. Those of an
    /// own history are, too, but what clients wrote at the end of it was never counted.
    pub(crate) fn may_resume(&self) -> bool {
        self.resumes.load(Ordering::Acquire)
    }

    fn facts(&self) -> MutexGuard<'_, LinkFacts> {
        self.link.lock().expect("no panic under the facts")
    }

    fn wanted(&self) -> MutexGuard<'_, Option<Option<(String, u16)>>> {
        self.wanted.lock().expect("no panic under the wish")
    }

    fn applier(&self) -> MutexGuard<'_, Applier> {
        self.applier.lock().expect("no panic under the applier")
    }

    fn incoming(&self) -> MutexGuard<'_, Incoming> {
        self.incoming.lock().expect("no panic under the bytes")
    }

    /// Closes the connection to the primary, which is called again. Must not block.
    pub(crate) fn kill(&self) {
        self.send(Order::Kill);
    }

    /// Hears that more may be on disk.
    pub(crate) fn note_on_disk(&self) {
        if self.owes_on_disk.swap(false, Ordering::AcqRel) {
            self.send(Order::Synced);
        }
    }

    /// Has the thread do nothing for so long.
    pub(crate) fn hold(&self, span: Duration) {
        self.send(Order::Hold(span));
    }

    fn send(&self, order: Order) {
        let thread = self.thread.lock().expect("no panic under the thread");
        if let Some((orders, _)) = &*thread {
            orders.send(order);
        }
    }
}

/// Begins to follow the configured primary, if there is one. Called once, when the data is loaded.
pub(crate) fn begin(shared: &Shared) {
    let settings = shared.settings.current();
    let Some((host, port)) = settings.primary.clone() else {
        return;
    };
    shared.replication.primary().log_mut().demoted();
    note_role(shared);
    // With etcd it is decided first in which term it follows.
    if shared.has_etcd() {
        return;
    }
    if let Err(error) = call(shared, host, port) {
        log::warning(&format!("Cannot start the link to the primary: {error}"));
        std::process::exit(1);
    }
}

/// Takes up the history of the primary that saved a file, if the server is one again: its replicas can go on. Called at the
/// start, when the data is that of the file; the unit holds every stripe.
pub(crate) fn take_up(shared: &Shared, unit: &mut Unit<'_>, loaded: &Loaded) {
    // Nobody would tell replicas of keys that were left out.
    let lacks_keys = shared.persistence.loading.lacks_expired_keys();
    if shared.settings.current().primary.is_some() || lacks_keys {
        return;
    }
    if let Some((replid, offset)) = place_of(loaded) {
        replication::take_up(shared, unit, replid, offset);
        log::notice(&format!(
            "The snapshot was saved at offset {offset} of {replid}: replicas can go on there"
        ));
    }
}

/// Returns the place in a stream that a file was saved at.
fn place_of(loaded: &Loaded) -> Option<(Replid, u64)> {
    let fact = |wanted: &[u8]| {
        let mut facts = loaded.facts.iter();
        let found = facts.find(|(name, _)| name == wanted);
        found.map(|(_, value)| value.as_slice())
    };
    let replid = fact(b"repl-id").and_then(Replid::parse)?;
    let offset = fact(b"repl-offset").and_then(number::parse_i64)?;
    Some((replid, u64::try_from(offset).ok()?))
}

/// Takes the place in a primary's stream that a file was saved at, if the server is to follow one. Called at the start.
pub(crate) fn take_place(shared: &Shared, loaded: &Loaded) {
    let Some((replid, offset)) = place_of(loaded) else {
        return;
    };
    if shared.settings.current().primary.is_some() {
        let following = &shared.following;
        let db = apply::stream_db(loaded, shared.keyspace.databases());
        following.db.store(db, Ordering::Release);
        replication::take_history(shared, replid, offset);
        following.resumes.store(true, Ordering::Release);
        log::notice(&format!(
            "The snapshot was saved at offset {offset} of {replid}: trying to go on there"
        ));
    }
}

/// Has the thread call a primary; it is started if there is none.
fn call(shared: &Shared, host: String, port: u16) -> Result<(), StartError> {
    let following = &shared.following;
    let term = following.applier().term;
    let mut thread = following.thread.lock().expect("no panic under the thread");
    if thread.is_none() {
        *thread = Some(thread::start(&shared.this())?);
    }
    let (orders, _) = thread.as_ref().expect("just started");
    orders.send(Order::Follow { term, host, port });
    Ok(())
}

/// Ends the thread. Called when no worker runs any more.
pub(crate) fn end(shared: &Shared) {
    let thread = shared.following.thread.lock();
    let thread = thread.expect("no panic under the thread").take();
    if let Some((orders, thread)) = thread {
        orders.send(Order::End);
        thread
            .join()
            .expect("a thread that panics ends the process");
    }
}

/// Follows a primary, or nobody, for a client; it is suspended until nothing else runs. Inside EXEC the switch comes
/// behind the transaction.
pub(crate) fn follow_for(
    worker: &mut Worker,
    caller: &mut Caller,
    primary: Option<(String, u16)>,
) -> Result<(), Halt> {
    if worker.compound.is_some() {
        *worker.shared.following.wanted() = Some(primary.clone());
        set_primary(worker.shared, &primary);
        wake(worker.shared);
        return Ok(());
    }
    let mut unit = units::take_everything(worker.executor, caller)?;
    switch(worker.shared, &mut unit, primary);
    block::commit(worker.executor, unit);
    Ok(())
}

/// Has worker 0 change the role, or the primary, when nothing else runs.
pub(crate) fn want(shared: &Shared, primary: Option<(String, u16)>) {
    *shared.following.wanted() = Some(primary);
    wake(shared);
}

/// Ends the link to the primary, whom the server goes on to follow by its role, and returns the offset of the data. Nothing of
/// the stream is applied any more. Called by worker 0, which holds everything.
pub(crate) fn cut(shared: &Shared) -> u64 {
    let following = &shared.following;
    let mut applier = following.applier();
    applier.term += 1;
    applier.forget();
    let term = applier.term;
    *following.incoming() = Incoming::new(term);
    drop(applier);
    wake(shared);
    following.send(Order::Leave { term });
    replication::identity(shared).offset()
}

/// Changes the role, or the primary. The unit holds everything.
pub(crate) fn switch(shared: &Shared, unit: &mut Unit<'_>, primary: Option<(String, u16)>) {
    assert!(unit.holds_all(), "every stripe is held");
    let following = &shared.following;
    let mut applier = following.applier();
    applier.term += 1;
    applier.forget();
    *following.incoming() = Incoming::new(applier.term);
    let term = applier.term;
    drop(applier);
    wake(shared);
    let was = shared.replication.primary().log().identity().role();
    log::set_role(primary.is_some());
    match (&primary, was) {
        (Some(_), Role::Primary) => {
            let is_whole = replication::demote(shared);
            following.resumes.store(is_whole, Ordering::Release);
        }
        (None, Role::Replica) => replication::promote(shared, unit),
        _ => {}
    }
    following.facts().state = match &primary {
        Some(_) => State::Pausing,
        None => State::Off,
    };
    set_primary(shared, &primary);
    note_role(shared);
    match primary {
        None => {
            following.send(Order::Leave { term });
            // What was to come in the place of dropped data does not come any more.
            append::make_anew(shared);
        }
        Some((host, port)) => {
            if was == Role::Primary {
                unblock_all(shared);
            }
            if let Err(error) = call(shared, host, port) {
                log::warning(&format!("Cannot start the link to the primary: {error}"));
            }
        }
    }
}

/// Notes the primary in the settings, where CONFIG shows it.
fn set_primary(shared: &Shared, primary: &Option<(String, u16)>) {
    let set = |settings: &mut Settings| {
        settings.primary.clone_from(primary);
        Ok::<(), ()>(())
    };
    // It cannot fail.
    let _ = shared.change_settings(set);
}

/// Tells all clients that wait for keys that they wait in vain.
fn unblock_all(shared: &Shared) {
    let clients: Vec<Arc<ClientInfo>> = shared.client_infos();
    for info in clients {
        if let Some(waiter) = info.wait.end(End::Demoted) {
            block::tell(&shared.engine, &waiter, block::Outcome::default());
        }
    }
}

/// Has clients treated as the role demands. Called after each change of the role, the link, or the settings.
pub(crate) fn note_role(shared: &Shared) {
    let following = &shared.following;
    let _alone = following.role.lock().expect("no panic under the role");
    let settings = shared.settings.current();
    let follows = settings.primary.is_some();
    let facts = following.link();
    let is_up = facts.state == State::Streaming;
    let loads = |beside: bool| {
        let loading = facts.loading.as_ref();
        loading.is_some_and(|attempt| attempt.is_beside() == beside)
    };
    let reasons = [
        (Reason::Follows, true),
        (Reason::ReadOnly, settings.replica_read_only),
        (Reason::KeepsAll, settings.replica_ignores_maxmemory),
        (Reason::Stale, !settings.serves_stale_data && !is_up),
        (Reason::Emptied, loads(false)),
        (Reason::LoadsBeside, loads(true)),
    ];
    for (reason, holds) in reasons {
        let refusals = &shared.engine.refusals;
        refusals.set(reason, follows && holds, &shared.engine.settings);
    }
}

/// Notes the state of the link.
fn note_link(shared: &Shared, state: State) {
    let mut facts = shared.following.facts();
    if facts.state == state {
        return;
    }
    let was_up = facts.state == State::Streaming;
    facts.state = state;
    if was_up || facts.down_since_ms.is_none() {
        facts.down_since_ms = Some(clock::monotonic_ms());
    }
    if state == State::Streaming {
        facts.down_since_ms = None;
    }
    drop(facts);
    note_role(shared);
}

/// Has worker 0 look at what there is to apply.
pub(crate) fn wake(shared: &Shared) {
    if !shared.following.has_work.swap(true, Ordering::AcqRel) {
        shared.workers()[0]
            .mailbox
            .send(Message::Run(Box::new(|_| ())));
    }
}
