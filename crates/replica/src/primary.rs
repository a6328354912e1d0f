//! A primary's side of replication: the replicas, and what each is sent next.
//!
//! A replica is a client that asked for the stream. It either goes on where it was (PSYNC with a history that is shared
//! and bytes that are kept), or waits for a *walk*: a snapshot for all who wait, whose bytes the caller keeps in one
//! place. What follows the walk's cut is kept in the log until the slowest reader has it.
//!
//! ```text
//! handshake → waits → receives → (awaits its acknowledgement) → online
//!     └─────────────── partial ──────────────────────────────────┘
//! ```
//!
//! The caller names clients by numbers, tells the time in milliseconds of any clock that does not go back, and writes what
//! [`Primary::fill`] puts into a replica's buffer. A replica for which there was nothing to send is *asleep*: what brings something new names
//! it as one to be woken.
//!
//! Must not know: sockets, sessions, files, who takes snapshots.

mod peer;

use std::collections::VecDeque;

use redline_resp::ReplyBuffer;

pub use peer::{Form, Part, Peer};

use crate::{
    blocks::{Blocks, Found, Slot, Spill},
    identity::{Replid, Role},
    log::{Log, Resume},
};

/// Bytes of a snapshot that are handed out at a time.
pub const PIECE_BYTES_MAX: usize = 64 * 1024;
/// Number of addresses that are remembered for a format that did not work.
const FAILED_MAX: usize = 64;
/// Length of the mark that ends a snapshot of unknown length.
pub const MARK_BYTES: usize = 40;

/// PING, as it stands in the stream.
pub const PING: &[u8] = b"*1\r\n$4\r\nPING\r\n";
/// The request for acknowledgements, as it stands in the stream.
pub const GETACK: &[u8] = b"*3\r\n$8\r\nREPLCONF\r\n$6\r\nGETACK\r\n$1\r\n*\r\n";

/// Limits and times of the configuration.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Bytes of the stream that are kept for replicas that come back.
    pub backlog_bytes: u64,
    /// Time without a replica after which they are not kept any more; 0: never.
    pub backlog_ttl_ms: u64,
    /// Time without a sign of life after which a replica is given up.
    pub timeout_ms: u64,
    /// Time between two signs of life.
    pub ping_period_ms: u64,
    /// Snapshots may be sent while they are made.
    pub is_diskless: bool,
    /// Time for which a walk waits for further replicas, if it is sent while it is made.
    pub delay_ms: u64,
    /// Number of waiting replicas that ends this wait; 0: none does.
    pub enough_replicas: u64,
    /// Bytes that a replica may be behind; 0: no limit.
    pub hard_bytes: u64,
    /// Bytes that it may be behind for `soft_ms`; 0: no limit.
    pub soft_bytes: u64,
    /// See `soft_bytes`.
    pub soft_ms: u64,
    /// Bytes of the stream that may be in a file, beyond those in memory.
    pub spool_bytes: u64,
}

/// Bytes of the stream in memory above which blocks are spilled, if replicas may be behind by any number.
const MEMORY_BYTES: u64 = 64 << 20;

impl Limits {
    /// Returns the bytes of the stream in memory above which blocks are spilled: half of what a replica may be behind in
    /// memory, so that it is closed only if the file is full.
    fn memory_bytes(&self) -> u64 {
        let limits = [self.hard_bytes, self.soft_bytes].into_iter();
        let least = limits.filter(|bytes| *bytes != 0).min();
        least.map_or(MEMORY_BYTES, |bytes| bytes / 2)
    }
}

/// Where a replica stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum State {
    /// It has told something of itself, and not asked for the stream.
    Handshake,
    /// It waits for a walk to begin.
    Waits,
    /// It is sent the snapshot of the walk.
    Receives,
    /// It has been sent a snapshot of unknown length; what follows would hide its end.
    AwaitsAck,
    /// It is sent the stream.
    Online,
}

/// A replica.
#[derive(Debug)]
pub struct Replica {
    /// Number of the client.
    pub client: u64,
    /// Facts that it has told of itself.
    pub peer: Peer,
    /// Where it stands.
    pub state: State,
    /// Offset up to which the stream has been handed out.
    sent: u64,
    /// Offset up to which it has applied the stream.
    pub acked: u64,
    /// Offset up to which it has it on disk; `None`: it has not told.
    pub synced: Option<u64>,
    /// Time of its last sign of life.
    pub heard_ms: u64,
    /// Time since which it waits, or of the last progress of its snapshot.
    since_ms: u64,
    /// Words to be sent before anything else.
    texts: Vec<u8>,
    /// It asked by PSYNC, so that it is told id and offset, and it acknowledges.
    speaks_psync: bool,
    /// Bytes of the snapshot that were handed out; `None`: its head was not.
    snapshot_at: Option<u64>,
    /// The walk that it belongs to.
    walk: u64,
    is_asleep: bool,
    over_soft_since_ms: Option<u64>,
    has_acked: bool,
}

/// The answer to PSYNC or SYNC.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Answer {
    /// The replica goes on where it was.
    Partial,
    /// It gets a snapshot.
    Full,
}

/// Bytes or files that are due behind the bytes in a replica's buffer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Next {
    /// Bytes of blocks in the file. The caller reports with [`Primary::spilled_handed_out`] how many it took.
    Spilled {
        /// Where the blocks are.
        slot: Slot,
        /// Place in the slot.
        from: usize,
        /// Number of bytes.
        bytes: usize,
    },
    /// Bytes of the walk's snapshot. The caller reports with [`Primary::snapshot_handed_out`] how many it took.
    Snapshot {
        /// Number of the walk.
        walk: u64,
        /// Offset in the snapshot.
        from: u64,
        /// Number of bytes, at most.
        bytes: usize,
    },
    /// Nothing for now.
    Nothing,
    /// There may be more than the buffer is to hold.
    More,
}

/// Outcome of one step of [`Primary::fill`].
enum Step {
    /// Bytes went into the buffer, or the replica's state has changed.
    Put,
    /// It is the caller's turn.
    Stop(Next),
}

/// A snapshot that is being made, or sent, or both.
#[derive(Debug)]
struct Walk {
    number: u64,
    /// Bytes that there are.
    bytes: u64,
    is_complete: bool,
    /// It has been cut, and its place in the stream is known.
    is_cut: bool,
    mark: [u8; MARK_BYTES],
}

/// Changes that a tick brings.
#[derive(Debug, Default)]
pub struct Tick {
    /// Replicas that have something to send.
    pub wake: Vec<u64>,
    /// Replicas to be closed, and the reason for the log.
    pub close: Vec<(u64, &'static str)>,
    /// Nothing is kept any more: the stream of the journal is not needed.
    pub is_forgotten: bool,
}

/// Figures of synchronisations since the start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Figures {
    /// Replicas that got a snapshot.
    pub full: u64,
    /// Replicas that went on where they were.
    pub partial_ok: u64,
    /// Replicas that asked to, and could not.
    pub partial_refused: u64,
}

/// See the module's text.
#[derive(Debug)]
pub struct Primary {
    log: Log,
    limits: Limits,
    replicas: Vec<Replica>,
    walks: VecDeque<Walk>,
    last_walk: u64,
    is_walking: bool,
    /// The record behind which replicas are asked how far they are.
    asks_at: Option<u64>,
    /// The same, from when the stream goes on.
    asks_later: Option<u64>,
    ping_at_ms: u64,
    /// Time since which replicas are to come to the end of the stream: see [`Primary::hold_still`].
    still_since_ms: Option<u64>,
    newline_at_ms: u64,
    /// Time since which there is no replica.
    alone_since_ms: Option<u64>,
    /// Addresses at which the preferred format did not work.
    failed: VecDeque<(String, u16)>,
    /// Figures for INFO.
    pub figures: Figures,
}

impl Primary {
    /// Makes the state of a server without replicas.
    pub fn new(log: Log, limits: Limits) -> Primary {
        Primary {
            log,
            limits,
            replicas: Vec::new(),
            walks: VecDeque::new(),
            last_walk: 0,
            is_walking: false,
            asks_at: None,
            asks_later: None,
            ping_at_ms: 0,
            still_since_ms: None,
            newline_at_ms: 0,
            alone_since_ms: None,
            failed: VecDeque::new(),
            figures: Figures::default(),
        }
    }

    /// Returns the stream.
    pub fn log(&self) -> &Log {
        &self.log
    }

    /// Returns the stream, for the link and for changes of the role.
    pub fn log_mut(&mut self) -> &mut Log {
        &mut self.log
    }

    /// Returns what the configuration says.
    pub fn limits(&self) -> &Limits {
        &self.limits
    }

    /// Goes on where a file says that its primary was, and keeps what follows for replicas that come back.
    pub fn restarted(&mut self, fresh: Replid, replid: Replid, offset: u64, now_ms: u64) {
        self.log.restarted_as_primary(fresh, replid, offset);
        self.alone_since_ms = Some(now_ms);
    }

    /// Adds nothing more by itself to the stream from now on, so that who waits for replicas to come to its end does not wait in
    /// vain; `None`: goes on. Signs of life are due again after half of the time after which a replica would give up. Returns
    /// those that have something to send.
    pub fn hold_still(&mut self, since_ms: Option<u64>) -> Vec<u64> {
        self.still_since_ms = since_ms;
        if since_ms.is_none() {
            self.asks_at = self.asks_at.max(self.asks_later.take());
        }
        match self.ask_if_due() {
            true => self.after_append().0,
            false => Vec::new(),
        }
    }

    /// Goes by other limits.
    pub fn set_limits(&mut self, limits: Limits) {
        // The last sign of life counts: one that was due by the old period would come at a time that nobody expects.
        if self.ping_at_ms > 0 {
            let pinged_at_ms = self.ping_at_ms.saturating_sub(self.limits.ping_period_ms);
            self.ping_at_ms = pinged_at_ms.saturating_add(limits.ping_period_ms);
        }
        self.limits = limits;
    }

    /// Returns the replicas, those in the handshake included, in the order of their connections.
    pub fn replicas(&self) -> &[Replica] {
        &self.replicas
    }

    /// Returns true if a snapshot for replicas is being taken.
    pub fn is_walking(&self) -> bool {
        self.is_walking
    }

    /// Returns true if somebody has asked for the stream.
    pub fn has_replicas(&self) -> bool {
        let mut replicas = self.replicas.iter();
        replicas.any(|replica| replica.state != State::Handshake)
    }

    fn replica(&mut self, client: u64) -> Option<&mut Replica> {
        let mut replicas = self.replicas.iter_mut();
        replicas.find(|replica| replica.client == client)
    }

    /// Returns the entry of a client that speaks of replication; makes it.
    pub fn peer_mut(&mut self, client: u64, now_ms: u64) -> &mut Peer {
        &mut self.enter(client, now_ms).peer
    }

    fn enter(&mut self, client: u64, now_ms: u64) -> &mut Replica {
        let mut known = self.replicas.iter();
        let at = known.position(|replica| replica.client == client);
        let at = at.unwrap_or_else(|| {
            self.replicas.push(Replica::new(client, now_ms));
            self.replicas.len() - 1
        });
        &mut self.replicas[at]
    }

    // ---- the handshake --------------------------------------------------------------------------

    /// Answers PSYNC: `asked` is the offset of the first byte wanted, counted from 1. A client that has asked before is
    /// not heard again. What it is told comes by [`Primary::fill`]. `fresh` makes the id of a history that begins now.
    pub fn psync(
        &mut self,
        client: u64,
        replid: &[u8],
        asked: i64,
        fresh: impl FnOnce() -> Replid,
        now_ms: u64,
    ) -> Answer {
        let resume = self.log.resume(replid, asked);
        let is_fresh = replid == b"?";
        let Resume::From(offset) = resume else {
            self.figures.partial_refused += u64::from(!is_fresh);
            return self.sync(client, true, fresh, now_ms);
        };
        self.figures.partial_ok += 1;
        self.begin_pings(now_ms);
        let own = self.log.identity().replid();
        let replica = self.enter(client, now_ms);
        if replica.state != State::Handshake {
            return Answer::Partial;
        }
        let text = match replica.peer.psync2 {
            true => format!("+CONTINUE {own}\r\n"),
            false => "+CONTINUE\r\n".into(),
        };
        replica.texts.extend_from_slice(text.as_bytes());
        replica.state = State::Online;
        replica.speaks_psync = true;
        replica.sent = offset;
        replica.acked = offset;
        replica.heard_ms = now_ms;
        replica.has_acked = true;
        Answer::Partial
    }

    /// Answers SYNC, and PSYNC that cannot go on: the replica waits for a walk.
    pub fn sync(
        &mut self,
        client: u64,
        speaks_psync: bool,
        fresh: impl FnOnce() -> Replid,
        now_ms: u64,
    ) -> Answer {
        self.begin_pings(now_ms);
        if self.log.blocks().is_none() && self.log.identity().role() == Role::Primary {
            // What was not kept cannot be continued.
            self.log.restarted(fresh());
        }
        self.log.keep();
        let replica = self.enter(client, now_ms);
        if replica.state == State::Handshake {
            replica.state = State::Waits;
            replica.speaks_psync = speaks_psync;
            replica.since_ms = now_ms;
            replica.heard_ms = now_ms;
        }
        self.figures.full += 1;
        Answer::Full
    }

    /// Counts the period of signs of life from now, if this is the first replica: an offset that nobody has written stands still.
    fn begin_pings(&mut self, now_ms: u64) {
        self.alone_since_ms = None;
        if !self.has_replicas() {
            self.ping_at_ms = now_ms.saturating_add(self.limits.ping_period_ms);
        }
    }

    /// Notes an acknowledgement: everything up to `offset` is applied, up to `synced` on disk. An offset that was not
    /// handed out yet counts as the last that was. Returns true if the client is a replica.
    pub fn ack(&mut self, client: u64, offset: u64, synced: Option<u64>, now_ms: u64) -> bool {
        let Some(replica) = self.replica(client) else {
            return false;
        };
        if replica.state == State::Handshake {
            return false;
        }
        replica.heard_ms = now_ms;
        replica.acked = replica.acked.max(offset.min(replica.sent));
        let sent = replica.sent;
        replica.synced = replica.synced.max(synced.map(|synced| synced.min(sent)));
        if matches!(replica.state, State::AwaitsAck | State::Online) {
            replica.has_acked = true;
            let key = replica.peer.address();
            if replica.state == State::AwaitsAck {
                replica.state = State::Online;
                replica.is_asleep = false;
            }
            self.failed.retain(|failed| *failed != key);
        }
        true
    }

    /// Forgets a client. Returns true if it was a replica.
    pub fn gone(&mut self, client: u64, now_ms: u64) -> bool {
        let mut replicas = self.replicas.iter();
        let Some(at) = replicas.position(|replica| replica.client == client) else {
            return false;
        };
        let replica = self.replicas.remove(at);
        let took_whole = matches!(replica.state, State::AwaitsAck | State::Online);
        if took_whole && !replica.has_acked && replica.speaks_psync && replica.peer.port != 0 {
            // It read a snapshot to its end, and nothing came of it.
            self.failed.push_back(replica.peer.address());
            if self.failed.len() > FAILED_MAX {
                self.failed.pop_front();
            }
        }
        if !self.has_replicas() {
            self.alone_since_ms.get_or_insert(now_ms);
        }
        self.drop_walks();
        // Nothing may be written for long.
        self.trim();
        replica.state != State::Handshake
    }

    // ---- walks ----------------------------------------------------------------------------------

    /// Returns the form of the walk that is due, if one is: some wait, and have waited for long enough.
    pub fn due_walk(&self, now_ms: u64) -> Option<Form> {
        if self.is_walking {
            return None;
        }
        let waiting = || {
            let replicas = self.replicas.iter();
            replicas.filter(|replica| replica.state == State::Waits)
        };
        let first = waiting().next()?;
        let limits = &self.limits;
        let delay_ms = match limits.is_diskless {
            true => limits.delay_ms,
            false => 0,
        };
        let oldest_ms = waiting().map(|replica| replica.since_ms).min()?;
        let is_enough =
            limits.enough_replicas > 0 && waiting().count() as u64 >= limits.enough_replicas;
        let is_due = is_enough || now_ms.saturating_sub(oldest_ms) >= delay_ms;
        is_due.then(|| self.form_of(first))
    }

    fn form_of(&self, replica: &Replica) -> Form {
        replica
            .peer
            .form(self.failed.contains(&replica.peer.address()))
    }

    /// Returns the part of the data that a walk of a form is to have: that of the first who waits for it.
    pub fn part_of(&self, form: Form) -> Part {
        let is_meant =
            |replica: &&Replica| replica.state == State::Waits && self.form_of(replica) == form;
        let first = self.replicas.iter().find(is_meant);
        first.map_or(Part::All, |replica| replica.peer.part)
    }

    /// Begins a walk of a form, for all who wait for it, and for the same part of the data as the first of them. `mark` ends a
    /// snapshot of unknown length. Returns its number.
    pub fn begin_walk(&mut self, form: Form, mark: [u8; MARK_BYTES]) -> u64 {
        let part = self.part_of(form);
        self.last_walk += 1;
        self.is_walking = true;
        let number = self.last_walk;
        self.walks.push_back(Walk {
            number,
            bytes: 0,
            is_complete: false,
            is_cut: false,
            mark,
        });
        for at in 0..self.replicas.len() {
            let replica = &self.replicas[at];
            let is_meant = self.form_of(replica) == form && replica.peer.part == part;
            if replica.state == State::Waits && is_meant {
                let replica = &mut self.replicas[at];
                replica.state = State::Receives;
                replica.walk = number;
                replica.snapshot_at = None;
            }
        }
        // They may all have gone meanwhile.
        self.drop_walks();
        number
    }

    /// Notes that a walk's cut is at the present end of the stream, behind this record of the journal: that is the place of all
    /// who take part. Returns those that have something to send.
    pub fn cut_walk(&mut self, number: u64, record: u64, now_ms: u64) -> Vec<u64> {
        self.log.mark(record);
        let identity = *self.log.identity();
        if let Some(walk) = self.walks.iter_mut().find(|walk| walk.number == number) {
            walk.is_cut = true;
        }
        for replica in &mut self.replicas {
            if replica.state != State::Receives || replica.walk != number {
                continue;
            }
            replica.sent = identity.offset();
            replica.acked = identity.offset();
            replica.since_ms = now_ms;
            if replica.speaks_psync {
                let text = format!(
                    "+FULLRESYNC {} {}\r\n",
                    identity.replid(),
                    identity.offset()
                );
                replica.texts.extend_from_slice(text.as_bytes());
            }
        }
        self.take_sleepers(|replica| replica.walk == number)
    }

    /// Notes that so many bytes of a walk's snapshot are there; `is_complete`: that is all. Returns those that have
    /// something to send.
    pub fn walk_grew(&mut self, number: u64, bytes: u64, is_complete: bool) -> Vec<u64> {
        let Some(walk) = self.walks.iter_mut().find(|walk| walk.number == number) else {
            self.is_walking &= !is_complete;
            return Vec::new();
        };
        walk.bytes = bytes;
        walk.is_complete |= is_complete;
        self.is_walking &= !is_complete;
        self.take_sleepers(|replica| replica.state == State::Receives && replica.walk == number)
    }

    /// Notes that a walk has failed. Returns those that are to be closed, so that they ask again.
    pub fn walk_failed(&mut self, number: u64) -> Vec<u64> {
        self.is_walking = false;
        let part = self.replicas.iter();
        part.filter(|replica| replica.state == State::Receives && replica.walk == number)
            .map(|replica| replica.client)
            .collect()
    }

    /// Returns true if nobody is sent the snapshot of this walk any more, nor will be.
    pub fn is_over(&self, number: u64) -> bool {
        !self.walks.iter().any(|walk| walk.number == number)
    }

    /// Drops walks that nobody takes part in. A walk that is being made stays until it is complete or nobody wants it.
    fn drop_walks(&mut self) {
        let replicas = &self.replicas;
        let is_wanted = |walk: &Walk| {
            let mut part = replicas.iter();
            part.any(|replica| replica.state == State::Receives && replica.walk == walk.number)
        };
        self.walks.retain(is_wanted);
    }

    // ---- the stream -----------------------------------------------------------------------------

    /// Adds bytes to the stream, if it is kept at all. The caller calls [`Primary::end_round`] before it lets go.
    pub fn append(&mut self, bytes: &[u8]) {
        if self.log.blocks().is_some() {
            self.log.append(bytes);
        }
    }

    /// Notes the end of whole units, up to this record of the journal. Returns those that have something to send, and those
    /// that are too far behind.
    pub fn end_round(&mut self, number: u64) -> (Vec<u64>, Vec<u64>) {
        if self.log.blocks().is_none() {
            return (Vec::new(), Vec::new());
        }
        self.log.mark(number);
        self.ask_if_due();
        self.after_append()
    }

    fn after_append(&mut self) -> (Vec<u64>, Vec<u64>) {
        let hard_bytes = match self.limits.hard_bytes {
            0 => u64::MAX,
            bytes => bytes.max(self.limits.backlog_bytes),
        };
        let mut late = Vec::new();
        for replica in &self.replicas {
            if self.behind(self.place_of(replica)) > hard_bytes {
                late.push(replica.client);
            }
        }
        self.trim();
        let awake = self.take_sleepers(|replica| replica.state == State::Online);
        (awake, late)
    }

    /// Frees what nobody wants any more.
    fn trim(&mut self) {
        let replicas = self.replicas.iter();
        let slowest = replicas.filter_map(|replica| self.place_of(replica)).min();
        self.log.trim(self.limits.backlog_bytes, slowest);
    }

    /// Returns the offset up to which a replica has been handed the stream. `None`: it has no place in the stream yet.
    fn place_of(&self, replica: &Replica) -> Option<u64> {
        match replica.state {
            State::Handshake | State::Waits => None,
            State::AwaitsAck | State::Online => Some(replica.sent),
            State::Receives => {
                let mut walks = self.walks.iter();
                let walk = walks.find(|walk| walk.number == replica.walk)?;
                walk.is_cut.then_some(replica.sent)
            }
        }
    }

    /// Has all replicas asked how far they are, once this record is in the stream. Returns those that have
    /// something to send.
    pub fn ask_acks(&mut self, record: u64) -> Vec<u64> {
        if self.still_since_ms.is_some() {
            self.asks_later = self.asks_later.max(Some(record));
            return Vec::new();
        }
        self.asks_at = self.asks_at.max(Some(record));
        match self.ask_if_due() {
            true => self.after_append().0,
            false => Vec::new(),
        }
    }

    fn ask_if_due(&mut self) -> bool {
        let last = self.log.last_record();
        let is_due = self.asks_at.take_if(|record| *record <= last).is_some()
            && self.has_replicas()
            && self.log.identity().role() == Role::Primary;
        if is_due {
            self.append(GETACK);
            self.log.mark(last);
        }
        is_due
    }

    fn take_sleepers(&mut self, is_meant: impl Fn(&Replica) -> bool) -> Vec<u64> {
        let sleepers = self.replicas.iter_mut();
        sleepers
            .filter(|replica| replica.is_asleep && is_meant(replica))
            .map(|replica| {
                replica.is_asleep = false;
                replica.client
            })
            .collect()
    }

    /// Puts what a replica is sent next into its buffer, until that holds this many bytes, and takes it as handed out. Full
    /// blocks are put there by reference. Returns what is due behind that.
    pub fn fill(&mut self, client: u64, out: &mut ReplyBuffer, bytes_max: usize) -> Next {
        let mut replicas = self.replicas.iter();
        let Some(at) = replicas.position(|replica| replica.client == client) else {
            return Next::Nothing;
        };
        let next = loop {
            if out.len_bytes() >= bytes_max {
                break Next::More;
            }
            if let Step::Stop(next) = self.step(at, out) {
                break next;
            }
        };
        self.replicas[at].is_asleep = next == Next::Nothing;
        next
    }

    fn step(&mut self, at: usize, out: &mut ReplyBuffer) -> Step {
        let replica = &mut self.replicas[at];
        if !replica.texts.is_empty() {
            out.push_bytes(&std::mem::take(&mut replica.texts));
            return Step::Put;
        }
        match replica.state {
            State::Handshake | State::Waits | State::AwaitsAck => Step::Stop(Next::Nothing),
            State::Receives => self.step_of_snapshot(at, out),
            State::Online => self.step_of_stream(at, out),
        }
    }

    fn step_of_snapshot(&mut self, at: usize, out: &mut ReplyBuffer) -> Step {
        let replica = &mut self.replicas[at];
        let mut walks = self.walks.iter();
        let Some(walk) = walks.find(|walk| walk.number == replica.walk && walk.is_cut) else {
            return Step::Stop(Next::Nothing);
        };
        let has_mark = self.limits.is_diskless && replica.peer.eof;
        let Some(from) = replica.snapshot_at else {
            if !has_mark && !walk.is_complete {
                return Step::Stop(Next::Nothing);
            }
            replica.snapshot_at = Some(0);
            replica.peer.got_mark = has_mark;
            match has_mark {
                true => out.push_bytes(&[b"$EOF:", &walk.mark[..], b"\r\n"].concat()),
                false => out.push_bytes(format!("${}\r\n", walk.bytes).as_bytes()),
            }
            return Step::Put;
        };
        if from < walk.bytes {
            let bytes = (walk.bytes - from).min(PIECE_BYTES_MAX as u64) as usize;
            return Step::Stop(Next::Snapshot {
                walk: walk.number,
                from,
                bytes,
            });
        }
        if !walk.is_complete {
            return Step::Stop(Next::Nothing);
        }
        // Who wants no stream never acknowledges.
        replica.state = match replica.peer.got_mark || replica.peer.rdb_only {
            true => State::AwaitsAck,
            false => State::Online,
        };
        if replica.peer.got_mark {
            out.push_bytes(&walk.mark);
        }
        self.drop_walks();
        Step::Put
    }

    fn step_of_stream(&mut self, at: usize, out: &mut ReplyBuffer) -> Step {
        let replica = &mut self.replicas[at];
        if self
            .log
            .blocks()
            .is_some_and(|blocks| blocks.end() > replica.sent)
        {
            self.log.close_block();
        }
        let blocks = self.log.blocks();
        let Some(found) = blocks.and_then(|blocks| blocks.at(replica.sent)) else {
            // It is closed when its time is up; nothing that it lacks is there any more.
            return Step::Stop(Next::Nothing);
        };
        match found {
            Found::Open([]) => return Step::Stop(Next::Nothing),
            Found::Open(bytes) => {
                replica.sent += bytes.len() as u64;
                out.push_bytes(bytes);
            }
            Found::Full(block, from) => {
                replica.sent += (block.len() - from) as u64;
                out.push_blob(block, from..block.len());
            }
            // Until it is read its slot must not be another's.
            Found::Spilled(slot, place) => {
                return Step::Stop(Next::Spilled {
                    slot,
                    from: place.start,
                    bytes: place.len(),
                });
            }
        }
        Step::Put
    }

    /// Notes that bytes of blocks in the file were taken for a replica.
    pub fn spilled_handed_out(&mut self, client: u64, bytes: usize) {
        if let Some(replica) = self.replica(client) {
            replica.sent += bytes as u64;
        }
    }

    /// Returns blocks that are to be written into the file, since more are in memory than should be: see
    /// [`Blocks::spill`](crate::blocks::Blocks::spill).
    pub fn spill(&mut self) -> Option<Spill> {
        let (memory_bytes, spool_bytes) = (self.limits.memory_bytes(), self.limits.spool_bytes);
        let blocks = self.log.blocks_mut()?;
        blocks.spill(memory_bytes, spool_bytes)
    }

    /// Notes that blocks are in the file, or could not be written.
    pub fn spilled(&mut self, spill: &Spill, is_written: bool) {
        if let Some(blocks) = self.log.blocks_mut() {
            blocks.spilled(spill, is_written);
        }
    }

    /// Returns the bytes in memory that a replica has yet to be sent, whose place in the stream is given.
    fn behind(&self, place: Option<u64>) -> u64 {
        let end = self.log.identity().offset();
        let begin = self.log.blocks().map_or(end, Blocks::memory_begin);
        place.map_or(0, |sent| end - sent.max(begin))
    }

    /// Notes that bytes of a snapshot were taken for a replica.
    pub fn snapshot_handed_out(&mut self, client: u64, bytes: u64, now_ms: u64) {
        if let Some(replica) = self.replica(client)
            && let Some(at) = &mut replica.snapshot_at
        {
            *at += bytes;
            replica.since_ms = now_ms;
        }
    }

    // ---- time -----------------------------------------------------------------------------------

    /// Looks after what is due by time; called about ten times a second. `fresh` makes the id of the history if nothing is
    /// kept from now on.
    pub fn tick(&mut self, fresh: impl FnOnce() -> Replid, now_ms: u64) -> Tick {
        let mut tick = Tick::default();
        let is_primary = self.log.identity().role() == Role::Primary;
        let is_still = |since_ms: u64| now_ms.saturating_sub(since_ms) < self.limits.timeout_ms / 2;
        let is_pinging = is_primary && !self.still_since_ms.is_some_and(is_still);
        if is_pinging && self.has_replicas() && now_ms >= self.ping_at_ms {
            self.ping_at_ms = now_ms + self.limits.ping_period_ms;
            let number = self.log.last_record();
            self.append(PING);
            self.log_round(number, &mut tick);
        }
        if now_ms >= self.newline_at_ms {
            self.newline_at_ms = now_ms + 1000;
            for replica in &mut self.replicas {
                let waits = replica.state == State::Waits
                    || (replica.state == State::Receives && replica.snapshot_at.is_none());
                // Who asked by SYNC gets the snapshot at once, or a new line as well.
                if waits {
                    replica.texts.push(b'\n');
                    replica.is_asleep = false;
                    tick.wake.push(replica.client);
                }
            }
        }
        self.look_at_times(now_ms, &mut tick);
        let ttl_ms = self.limits.backlog_ttl_ms;
        let is_alone = |since_ms: u64| ttl_ms > 0 && now_ms.saturating_sub(since_ms) >= ttl_ms;
        if is_primary
            && self.log.blocks().is_some()
            && !self.has_replicas()
            && self.alone_since_ms.is_some_and(is_alone)
        {
            self.alone_since_ms = None;
            self.log.restarted(fresh());
            tick.is_forgotten = true;
        }
        tick
    }

    fn log_round(&mut self, number: u64, tick: &mut Tick) {
        let (awake, late) = self.end_round(number);
        tick.wake.extend(awake);
        tick.close
            .extend(late.into_iter().map(|client| (client, "too far behind")));
    }

    fn look_at_times(&mut self, now_ms: u64, tick: &mut Tick) {
        for at in 0..self.replicas.len() {
            let behind = self.behind(self.place_of(&self.replicas[at]));
            let limits = &self.limits;
            let replica = &mut self.replicas[at];
            let silent_ms = match replica.state {
                // Who does not speak PSYNC does not acknowledge.
                State::AwaitsAck | State::Online if replica.speaks_psync => {
                    now_ms.saturating_sub(replica.heard_ms)
                }
                State::Receives if replica.snapshot_at.is_some() => {
                    now_ms.saturating_sub(replica.since_ms.max(replica.heard_ms))
                }
                _ => 0,
            };
            if silent_ms > limits.timeout_ms {
                tick.close.push((replica.client, "timed out"));
                continue;
            }
            let soft_bytes = limits.soft_bytes.max(limits.backlog_bytes);
            if limits.soft_bytes != 0 && behind > soft_bytes {
                let since_ms = *replica.over_soft_since_ms.get_or_insert(now_ms);
                if now_ms.saturating_sub(since_ms) > limits.soft_ms {
                    tick.close
                        .push((replica.client, "too far behind for too long"));
                }
            } else {
                replica.over_soft_since_ms = None;
            }
        }
    }

    // ---- figures --------------------------------------------------------------------------------

    /// Returns the number of replicas that are online and have been heard of within this time.
    pub fn good_replicas(&self, lag_ms: u64, now_ms: u64) -> u64 {
        let replicas = self.replicas.iter();
        let good = replicas.filter(|replica| {
            replica.state == State::Online && now_ms.saturating_sub(replica.heard_ms) <= lag_ms
        });
        good.count() as u64
    }

    /// Returns the last record that each replica that is online has, and the last that it has on disk.
    pub fn acked_records(&self) -> Vec<(u64, u64)> {
        let online = self.replicas.iter();
        online
            .filter(|replica| replica.has_told())
            .map(|replica| {
                let record = |offset| self.log.record_at(offset);
                (record(replica.acked), replica.synced.map_or(0, record))
            })
            .collect()
    }

    /// Returns the bytes that the slowest replica has yet to be sent.
    pub fn debt(&self) -> u64 {
        let end = self.log.identity().offset();
        let places = self.replicas.iter();
        let debts = places.filter_map(|replica| self.place_of(replica).map(|sent| end - sent));
        debts.max().unwrap_or(0)
    }
}

impl Replica {
    fn new(client: u64, now_ms: u64) -> Replica {
        Replica {
            client,
            peer: Peer::default(),
            state: State::Handshake,
            sent: 0,
            acked: 0,
            synced: None,
            heard_ms: now_ms,
            since_ms: now_ms,
            texts: Vec::new(),
            speaks_psync: false,
            snapshot_at: None,
            walk: 0,
            is_asleep: false,
            over_soft_since_ms: None,
            has_acked: false,
        }
    }

    /// Returns true if it is online and has told how far it is: one that has read a snapshot to its end may have yet to load it.
    fn has_told(&self) -> bool {
        self.state == State::Online && self.has_acked
    }

    /// Returns the offset up to which it has told that it has the stream, if it is online and has.
    pub fn told(&self) -> Option<u64> {
        self.has_told().then_some(self.acked)
    }

    /// Returns true if it has told that it has the stream up to this offset.
    pub fn has(&self, offset: u64) -> bool {
        self.has_told() && self.acked >= offset
    }

    /// Returns the time since its last sign of life.
    pub fn lag_ms(&self, now_ms: u64) -> u64 {
        match self.state {
            State::Online => now_ms.saturating_sub(self.heard_ms),
            _ => 0,
        }
    }

    /// Returns the name of its state, as INFO shows it.
    pub fn state_name(&self) -> &'static str {
        match self.state {
            State::Handshake | State::Waits => "wait_bgsave",
            // As in Redis, where one that goes straight to the socket has ended when it is sent.
            State::Receives if self.snapshot_at.is_none() || self.peer.got_mark => "wait_bgsave",
            State::AwaitsAck if self.peer.got_mark => "online",
            State::Receives | State::AwaitsAck => "send_bulk",
            State::Online => "online",
        }
    }
}

#[cfg(test)]
mod tests;
