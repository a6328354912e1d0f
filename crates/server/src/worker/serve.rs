//! How a worker serves the sessions that are ready, and defers requests that cannot run yet.
//!
//! Sessions are served in *groups*: sockets are read until there is enough for some dozens of requests, so that the
//! steps of `engine/src/executor/run.rs` have something to overlap also where pipelines are short; then all of it is
//! decoded, the group is executed, and the replies of each session are written once. While commands are recorded for
//! the journal's stream, the replies of a turn's groups leave together, behind one round of its pump.
//!
//! Must not know: what any command does, where connections come from.

use std::{collections::VecDeque, io, mem, sync::atomic::Ordering, thread, time::Duration};

use redline_keyspace::{journal::Until, lock::Wait};
use redline_net::{Flush, Interest, Read, flush};
use redline_resp::Decoded;
use redline_resp::limits::{
    READ_BYTES_MAX, UNAUTHENTICATED_OUTPUT_BYTES_MAX, UNAUTHENTICATED_QUERY_BYTES_MAX,
};

use super::*;
use crate::{cluster::right, session::Deferred};
use redline_engine::{
    caller::Suspended,
    caller::flag,
    executor::{access, block::Again},
    refusals::Reason,
    session::client::described,
};

/// Number of requests that are prefetched and executed together. The requests of one session are not split below this:
/// its replies would be written twice.
const GROUP_REQUESTS_MAX: usize = 1024;
/// Bytes of requests with which a group is large enough: about a hundred small requests, whose keys' cache lines fit
/// into the CPU's nearer caches.
const GROUP_BYTES_ENOUGH: usize = 4 * 1024;
/// Number of sessions of one group.
const GROUP_SESSIONS_MAX: usize = 64;
/// Number of groups between two checks of the poller, the mailbox and the timer: a client that never pauses delays no other.
const GROUPS_PER_TURN_MAX: usize = 16;
/// Capacity above which an empty reply buffer is released: bytes.
const REPLY_BYTES_KEPT_MAX: usize = 64 * 1024;
/// Bytes of records with which the replies of groups are held no longer.
const HELD_RECORD_BYTES_MAX: u64 = 128 * 1024;
/// Size up to which Redis keeps replies in a buffer; it keeps larger ones in a list of such blocks, as CLIENT LIST shows.
const REPLY_PIECE_BYTES: usize = 16 * 1024;
/// Number of empty reply buffers that are kept for the next sessions.
const REPLY_BUFFERS_MAX: usize = 256;
/// Bytes that wait in the lanes of all workers before they wait themselves.
const LANES_BYTES_MAX: u64 = 32 * 1024 * 1024;
/// Time after which a worker that waits for room looks again.
const ROOM_PAUSE: Duration = Duration::from_millis(1);
/// Number of slices of one vectored write.
const SLICES_MAX: usize = 64;

pub(super) fn serve_ready(worker: &mut Worker) {
    // Members whose replies wait for the pump. They are out of the slab, as those of the group are.
    let mut held = mem::take(&mut worker.outlet.held);
    // Term of the right in which their calls have run.
    let mut right = None;
    let mut is_released = worker.outlet.pace.is_on && pace::release(worker);
    for _ in 0..GROUPS_PER_TURN_MAX {
        if worker.outlet.pace.is_on && !mem::take(&mut is_released) {
            pace::may_serve(worker);
        }
        // A deferred request runs as its session joins, and may be a script that turns the loop from inside: then no
        // other session may be out of the slab.
        let next = worker.outlet.ready.front();
        if next.is_none_or(|&index| is_deferred(worker, index)) {
            release(worker, &mut held, right);
        }
        if worker.outlet.ready.is_empty() || (worker.depth > 0 && worker.outlet.stop) {
            break;
        }
        let now = right::before_calls(worker.shared);
        if now != right {
            release(worker, &mut held, right);
        }
        let mut group = mem::take(&mut worker.outlet.group);
        let mut batch = worker.outlet.batch.take().unwrap_or_default();
        let mut bytes = 0;
        while bytes < GROUP_BYTES_ENOUGH && group.len() < GROUP_SESSIONS_MAX {
            let Some(&index) = worker.outlet.ready.front() else {
                break;
            };
            if !group.is_empty() && is_deferred(worker, index) {
                break;
            }
            worker.outlet.ready.pop_front();
            worker.outlet.places[index].queued = false;
            let Some(session) = worker.outlet.places[index].session.take() else {
                continue;
            };
            let member = join(worker, session);
            bytes += member.query.len();
            group.push(member);
        }
        // All are read before the first is decoded: the kernel evicts most of our code from the caches.
        for (number, member) in group.iter_mut().enumerate() {
            decode(worker, member, number, &mut batch);
        }
        worker.execute(&mut group, &mut batch, !held.is_empty());
        right = match worker.refusals().has(Reason::NoRight) {
            true => now,
            false => right::after_calls(worker.shared, now),
        };
        batch.clear();
        held.append(&mut group);
        worker.outlet.group = group;
        worker.outlet.batch = Some(batch);
        if !may_hold(worker) {
            release(worker, &mut held, right);
        }
        if worker.outlet.pace.is_on {
            pace::charge(worker);
        }
    }
    release(worker, &mut held, right);
    worker.outlet.held = held;
}

/// Sends a replica what there is for it, without reading from it. A session that is being served is sent it when it leaves.
pub(super) fn feed(worker: &mut Worker, token: Token) {
    let index = token.index();
    if !worker.has_session(token) {
        return;
    }
    if is_deferred(worker, index) {
        return worker.enqueue(index);
    }
    if let Some(mut session) = worker.outlet.places[index].session.take() {
        lend(worker, &mut session);
        let query = mem::take(&mut session.query);
        let member = Member {
            session,
            query,
            decoded: 0,
            blobs: Vec::new(),
        };
        leave(worker, member);
    }
}

/// Gives a session memory for its replies.
fn lend(worker: &mut Worker, session: &mut Session) {
    if !session.out.has_memory()
        && let Some(memory) = worker.outlet.replies.pop()
    {
        session.out.lend(memory);
    }
}

/// Returns true if the session has deferred requests, which run as it joins a group.
fn is_deferred(worker: &Worker, index: usize) -> bool {
    let session = worker.outlet.places[index].session.as_ref();
    session.is_some_and(|session| session.deferred.is_some())
}

/// Returns true if the replies of a group may wait for the next groups of the turn: their records then become one
/// write to the append-only file, as those of Redis's turn do. Without records nothing is gained; under a limit on
/// bandwidth each group is charged with its replies before the next is served.
fn may_hold(worker: &mut Worker) -> bool {
    worker.depth == 0
        && !worker.outlet.pace.is_on
        && worker.local.has_journal_news()
        && worker.local.journal_waiting_bytes() < HELD_RECORD_BYTES_MAX
}

/// Offers the thread to the pump if there are records, then ends the turn of the members that were held. If the right in which
/// their calls have run has ended, their connections are closed without the replies, whose outcome is unknown.
fn release(worker: &mut Worker, held: &mut Vec<Member>, right: Option<u64>) {
    if held.is_empty() {
        return;
    }
    if worker.local.has_journal_news() {
        worker.pump_now();
        wait_for_room(worker);
    }
    let may_reply = right::may_reply(worker.shared, right);
    for mut member in held.drain(..) {
        if !may_reply && !member.session.out.is_empty() && !member.session.is(state::REPLICA) {
            member.session.end_at_once();
        }
        leave(worker, member);
    }
}

/// Waits while the journal's stream is slow to take what this worker's commands have written: nothing else bounds that.
/// Another worker has the pump's role, or had it, and waits for a disk.
fn wait_for_room(worker: &mut Worker) {
    let bytes_max = LANES_BYTES_MAX / worker.shared.workers().len() as u64;
    // A script that turns the loop holds stripes.
    while worker.depth == 0 && worker.local.journal_waiting_bytes() > bytes_max {
        thread::sleep(ROOM_PAUSE);
        worker.pump_now();
    }
}

/// Reads the requests of a ready session.
fn join(worker: &mut Worker, mut session: Box<Session>) -> Member {
    let index = session.info.token().index();
    lend(worker, &mut session);
    // Changes before these requests are notified before their replies.
    tracking::before_write(&mut session);
    let mut member = Member {
        query: mem::take(&mut session.query),
        session,
        decoded: 0,
        blobs: Vec::new(),
    };
    if member.session.deferred.is_some() && !member.session.is_suspended() {
        run_deferred(worker, &mut member.session);
    }
    // Requests in the buffer come first: else a long pipeline would accumulate there.
    if !member.session.is_suspended()
        && !member.session.closing
        && worker.outlet.places[index].readable
        && !member.session.undecoded
    {
        read(worker, &mut member);
    }
    member
}

fn read(worker: &mut Worker, member: &mut Member) {
    let session = &mut member.session;
    let place = &mut worker.executor.outlet.places[session.info.token().index()];
    if member.query.capacity() == 0 {
        member.query = worker.executor.outlet.buffers.take();
    }
    let read = match session.decoder.big_bulk() {
        // A large argument is read straight into the allocation that becomes the value.
        Some(bulk) => session.stream.read_into(bulk.reserved(), usize::MAX),
        None => session.stream.read_into(&mut member.query, READ_BYTES_MAX),
    };
    worker.executor.stats.reads.add(1);
    match read {
        Ok(Read::Data { bytes, drained }) => {
            place.readable = !drained || place.closed || place.urgent;
            worker.executor.stats.net_in.add(bytes as u64);
            let info = &session.info;
            info.net_in.store(
                info.net_in.load(Ordering::Relaxed) + bytes as u64,
                Ordering::Relaxed,
            );
            info.active_s
                .store((worker.executor.now_ms / 1000) as u32, Ordering::Relaxed);
            let unauthenticated = session.is(state::UNAUTHENTICATED);
            let limit = match worker.executor.outlet.settings.query_buffer_bytes_max {
                limit if unauthenticated => limit.min(UNAUTHENTICATED_QUERY_BYTES_MAX),
                limit => limit,
            };
            let held = member.query.len() + session.decoder.heap_bytes() + session.multi.bytes;
            if held as u64 > limit {
                worker.executor.stats.query_limit_closed.add(1);
                session.end_at_once();
                let client = described(&session.info, worker.executor.now_ms);
                log::warning(&format!(
                    "Closing client that reached max query buffer length: {client} ({held} bytes)"
                ));
            }
        }
        Ok(Read::WouldBlock) => place.readable = false,
        Ok(Read::Eof) => {
            place.readable = false;
            session.eof_seen = true;
        }
        Err(error) => {
            place.readable = false;
            session.eof_seen = true;
            if session.stream.is_handshaking() {
                log::warning(&format!(
                    "Error accepting a client connection: {error} (addr={} laddr={})",
                    session.info.addr, session.info.laddr
                ));
            }
        }
    }
}

/// Adds the requests that a session has sent to the batch, as far as that has room.
fn decode(worker: &mut Worker, member: &mut Member, number: usize, batch: &mut Batch) {
    let session = &mut member.session;
    if session.is_suspended() || session.closing {
        return;
    }
    let unauthenticated = session.is(state::UNAUTHENTICATED);
    worker.outlet.request_limits.unauthenticated = unauthenticated;
    session.undecoded = false;
    while member.decoded < member.query.len() {
        // An AUTH may change the limits: until then it is one request at a time.
        if batch.len() >= GROUP_REQUESTS_MAX || (unauthenticated && member.decoded > 0) {
            session.undecoded = true;
            break;
        }
        let bytes = &mut member.query[member.decoded..];
        match session.decoder.decode_with(
            &mut batch.heads,
            bytes,
            &worker.outlet.request_limits,
            &mut batch.spans,
        ) {
            Ok(Decoded::Request { consumed, args, .. }) => {
                let at = member.decoded;
                member.decoded += consumed;
                let (space, blobs) = (&worker.shared.keyspace, session.decoder.blobs());
                batch.add(
                    &worker.shared.names,
                    space,
                    number,
                    session.db,
                    &member.query[at..],
                    consumed,
                    blobs,
                    at,
                    args,
                );
            }
            Ok(Decoded::Empty { consumed }) => member.decoded += consumed,
            Ok(Decoded::Incomplete { need }) => {
                let wanted = member.query.len() - member.decoded + need;
                // Room for the bytes that are announced, within reason: the rest grows with the bytes that arrive.
                member.query.reserve(need.min(wanted).min(READ_BYTES_MAX));
                break;
            }
            Ok(Decoded::Big { keep, taken }) => {
                let from = member.decoded + keep;
                member.query.drain(from..from + taken);
            }
            Err(error) => {
                batch.add_error(number, error);
                member.decoded = member.query.len();
                break;
            }
        }
    }
    if !session.decoder.blobs().is_empty() {
        member.blobs = session.decoder.blobs().to_vec();
        session.decoder.release_blobs();
    }
}

/// Ends the turn of a session: writes the replies, keeps the rest of the query, puts the session back.
fn leave(worker: &mut Worker, member: Member) {
    let Member {
        mut session,
        mut query,
        decoded,
        ..
    } = member;
    let index = session.info.token().index();
    if decoded >= query.len() {
        keep_query(worker, query);
    } else {
        query.drain(..decoded);
        session.query = query;
    }
    if session.rules != worker.rules {
        access::adopt_rules(worker.executor, &mut session);
    }
    tracking::before_write(&mut session);
    if session.is(state::REPLICA) {
        replication::feed::feed(worker, &mut session);
    } else if session.out.is_empty() || !wait_for_gate(worker, &mut session) {
        write_replies(worker, &mut session);
    } else {
        enforce_output_limit(worker, &mut session);
    }
    // A closed peer does not wait any longer: elements that it waits for stay in their keys.
    session.closing |= worker.outlet.places[index].closed
        && session.suspended.is_some_and(Suspended::ends_with_peer);
    let more = !session.is_suspended()
        && !session.closing
        && (session.deferred.is_some()
            || worker.outlet.places[index].readable
            || session.undecoded);
    // A peer that has only ended its own direction still gets every reply.
    let ended = session.closing || (session.eof_seen && !more && !session.is_suspended());
    let done = ended && session.out.is_empty() && !session.stream.has_unsent();
    if done || session.info.killed.load(Ordering::Relaxed) {
        return worker.close(session);
    }
    if session.out.is_empty() {
        let mut memory = session.out.give_back();
        if memory.capacity() > REPLY_BYTES_KEPT_MAX {
            memory.shrink_to(REPLY_BYTES_KEPT_MAX);
        }
        if memory.capacity() > 0 && worker.outlet.replies.len() < REPLY_BUFFERS_MAX {
            worker.outlet.replies.push(memory);
        }
    }
    update_info(worker, &mut session);
    let place = &mut worker.outlet.places[index];
    place.session = Some(session);
    let mail = mem::take(&mut place.mail);
    if worker.outlet.settings.client_memory_max != 0 {
        evict_clients(worker);
    }
    if more {
        worker.enqueue(index);
    }
    for message in mail {
        mail::on_engine_message(worker, message);
    }
}

/// Suspends the session while its replies may not be sent; returns true if they stay. Everything that its commands have
/// seen has a number by now, its own effects included; its next requests wait for their turn.
///
/// Two things may have to come about, one after the other: the disk has all records that there are by now, and other servers
/// have those that the replies may tell of.
pub(super) fn wait_for_gate(worker: &Worker, session: &mut Session) -> bool {
    let journal = worker.shared.keyspace.journal();
    let confirmed = Until::Confirmed(session.told_record());
    if let Some(until) = session.gate {
        if !journal.gate.is_reached(until) {
            return true;
        }
        // It has sent no request since. Its wake-up may come later than more from its client.
        session.gate = None;
        return until != confirmed && wait_until(worker, session, confirmed);
    }
    if journal.gate.is_open() {
        return false;
    }
    let synced = Until::Synced(journal.last());
    wait_until(worker, session, synced) || wait_until(worker, session, confirmed)
}

fn wait_until(worker: &Worker, session: &mut Session, until: Until) -> bool {
    let gate = &worker.shared.keyspace.journal().gate;
    if gate.wait_for(&worker.gate, until, session.info.token().0) == Wait::TryAgain {
        return false;
    }
    session.gate = Some(until);
    worker.stats.suspended.add(1);
    true
}

/// Writes the replies, and forwards the messages that had to wait for that.
#[inline]
pub(super) fn write_replies(worker: &mut Worker, session: &mut Session) {
    write_out(worker, session);
    if session.is(state::TRACKING) {
        if session.out.is_empty() && !session.stream.has_unsent() {
            tracking::after_write(worker.shared, session);
        }
        write_out(worker, session);
    }
}

/// Publishes the sizes of the session's buffers; mostly they are empty, as before.
#[inline]
pub(super) fn update_info(worker: &Worker, session: &mut Session) {
    let holds_nothing = session.holds_nothing();
    if !(holds_nothing && session.shown_empty) {
        session.shown_empty = holds_nothing;
        fill_info(worker, session);
    }
}

fn fill_info(worker: &Worker, session: &Session) {
    let info = &session.info;
    // Bytes that are received and no argument yet; a large one becomes an argument when it is whole.
    let (parsed, arrived) = session.decoder.partial_bytes();
    let unparsed = session.query.len().saturating_sub(parsed) + arrived;
    info.query_bytes.store(unparsed as u64, Ordering::Relaxed);
    let capacity = session.query.capacity() + arrived;
    info.query_capacity
        .store(capacity as u64, Ordering::Relaxed);
    info.output_bytes
        .store(session.out.len_bytes() as u64, Ordering::Relaxed);
    let pieces = match session.out.len_bytes() {
        0..=REPLY_PIECE_BYTES => 0,
        _ => {
            let plain = session.out.plain_bytes();
            plain.div_ceil(REPLY_PIECE_BYTES) + session.out.blob_count()
        }
    };
    info.output_pieces.store(pieces as u32, Ordering::Relaxed);
    let capacity = session.out.heap_bytes() as u64;
    info.output_capacity.store(capacity, Ordering::Relaxed);
    let arguments = session.decoder.heap_bytes() as u64;
    let whole = arguments.saturating_sub(arrived as u64);
    let wait = session.wait.as_ref();
    let waiting = wait.map_or(0, |wait| wait.argument_bytes()) as u64;
    info.argument_bytes
        .store(whole + waiting, Ordering::Relaxed);
    let queued = session.multi.bytes as u64;
    info.multi_bytes.store(queued, Ordering::Relaxed);
    let fixed = mem::size_of::<Session>() + mem::size_of::<ClientInfo>();
    let kept = fixed + session.query.capacity() + session.registered_bytes;
    let suspended = wait.map_or(0, |wait| wait.heap_bytes())
        + session.deferred.as_deref().map_or(0, Deferred::heap_bytes);
    let bytes = kept as u64 + capacity + arguments + queued + suspended as u64;
    let before = info.memory_bytes.load(Ordering::Relaxed);
    info.memory_bytes.store(bytes, Ordering::Relaxed);
    worker.stats.client_bytes.add(bytes.wrapping_sub(before));
}

/// Enforces `maxmemory-clients`.
pub(crate) fn evict_clients(worker: &Worker) {
    if let Some(limit_bytes) = worker.outlet.settings.client_memory_limit() {
        let evicted = worker.shared.evict_clients(limit_bytes);
        worker.stats.evicted_clients.add(evicted);
    }
}

/// Writes as much of the replies as the peer takes.
pub(crate) fn write_out(worker: &mut Worker, session: &mut Session) {
    let waiting = session.out.len_bytes();
    if waiting == 0 && !session.stream.has_unsent() {
        return;
    }
    let peak = &session.info.output_peak;
    if waiting as u64 > peak.load(Ordering::Relaxed) {
        peak.store(waiting as u64, Ordering::Relaxed);
    }
    let written = if session.out.has_blobs() {
        write_pieces(worker, session)
    } else {
        worker.stats.writes.add(1);
        let taken = session.stream.write(session.caller.out.bytes());
        taken.map(|taken| {
            session.out.advance(taken.unwrap_or(0));
            taken.unwrap_or(0)
        })
    };
    match written {
        Ok(bytes) => {
            worker.stats.net_out.add(bytes as u64);
            let sent = &session.info.net_out;
            sent.store(
                sent.load(Ordering::Relaxed) + bytes as u64,
                Ordering::Relaxed,
            );
        }
        Err(_) => session.end_at_once(),
    }
    let wanted = !session.out.is_empty() || session.stream.has_unsent();
    if wanted != session.writable_wanted {
        want_writable(worker, session, wanted);
    }
    enforce_output_limit(worker, session);
}

/// Does the same for replies with large values in between, which are sent from where they lie. Returns the number of bytes.
#[inline(never)]
fn write_pieces(worker: &mut Worker, session: &mut Session) -> io::Result<usize> {
    let mut written = 0;
    loop {
        let mut slices = [io::IoSlice::new(&[]); SLICES_MAX];
        let count = session.caller.out.io_slices(&mut slices);
        let offered = slices[..count].iter().map(|slice| slice.len()).sum();
        worker.stats.writes.add(1);
        let taken = match flush(&mut session.stream, &mut slices[..count]) {
            Flush::Done => offered,
            Flush::Partial(taken) => taken,
            Flush::Closed(error) => return Err(error),
        };
        session.out.advance(taken);
        written += taken;
        if taken < offered || session.out.is_empty() || session.stream.has_unsent() {
            return Ok(written);
        }
    }
}

/// Enables or disables events of write readiness.
#[cold]
fn want_writable(worker: &Worker, session: &mut Session, wanted: bool) {
    session.writable_wanted = wanted;
    let token = FIRST_SESSION + session.info.token().index();
    let interest = if wanted {
        Interest::ReadWrite
    } else {
        Interest::Read
    };
    // It worked for reading; should it fail now, the next read or write fails, too.
    let _ = worker
        .outlet
        .poller
        .reregister(&session.stream, token, interest);
}

/// Closes clients that exceed the hard limit of unread output, or the soft limit for too long.
#[inline]
pub fn enforce_output_limit(worker: &mut Worker, session: &mut Session) {
    match session.out.len_bytes() as u64 {
        0 => session.soft_limit_since_s = None,
        bytes => enforce_limit_of(worker, session, bytes),
    }
}

fn enforce_limit_of(worker: &mut Worker, session: &mut Session, bytes: u64) {
    if session.info.flags.load(Ordering::Relaxed) & flag::REPLICA != 0 {
        // What it has yet to be sent is counted where it lies.
        return;
    }
    let class = usize::from(session.is(state::LISTENS)) * 2;
    let limit = worker.outlet.settings.output_limits[class];
    let now_s = (worker.now_ms / 1000) as u64;
    let counted = bytes.saturating_sub(OUTPUT_BYTES_FREE);
    let mut over = limit.hard_bytes != 0 && counted > limit.hard_bytes;
    if limit.soft_bytes != 0 && counted > limit.soft_bytes {
        let since = *session.soft_limit_since_s.get_or_insert(now_s);
        worker.outlet.soft_limits_run = true;
        over |= now_s.saturating_sub(since) > limit.soft_seconds;
    } else {
        session.soft_limit_since_s = None;
    }
    if session.is(state::UNAUTHENTICATED) {
        over |= bytes > UNAUTHENTICATED_OUTPUT_BYTES_MAX;
    }
    if over {
        worker.stats.output_limit_closed.add(1);
        update_info(worker, session);
        session.end_at_once();
        let client = described(&session.info, worker.now_ms);
        log::warning(&format!(
            "Client {client} scheduled to be closed ASAP for overcoming of output buffer limits."
        ));
    }
}

pub(super) fn keep_query(worker: &mut Worker, query: Vec<u8>) {
    if query.capacity() > 0 {
        worker.outlet.buffers.give(query);
    }
}

/// Moves the requests of a session that have not run, from `first` on, out of the batch.
pub(crate) fn defer(member: &mut Member, batch: &Batch, first: usize, number: usize) {
    let mut deferred = Deferred {
        buffer: Vec::new(),
        spans: Vec::new(),
        requests: VecDeque::new(),
        blobs: member.blobs.clone(),
        broken: None,
    };
    let base = batch.requests[first].at();
    deferred
        .buffer
        .extend_from_slice(&member.query[base..member.decoded]);
    for request in batch.requests[first..]
        .iter()
        .filter(|request| request.member() == number)
    {
        if let Some(error) = request.protocol_error() {
            deferred.broken = Some(error);
            break;
        }
        let from = deferred.spans.len();
        deferred
            .spans
            .extend_from_slice(&batch.spans[request.spans()]);
        deferred
            .requests
            .push_back((request.at() - base, from..deferred.spans.len()));
    }
    member.session.deferred = Some(Box::new(deferred));
}

fn run_deferred(worker: &mut Worker, session: &mut Session) {
    let Some(mut deferred) = session.deferred.take() else {
        return;
    };
    while let Some(first) = deferred.first() {
        if session.closing {
            return;
        }
        if let Some(call) = session.again.as_ref().map(Again::args) {
            worker.run_request(session, call.as_args(), None);
        } else {
            worker.run_request(session, first, None);
        }
        if session.out.len_bytes() > worker.output_watched_bytes {
            enforce_output_limit(worker, session);
        }
        worker.sweep();
        if session.suspended.is_some() {
            session.deferred = Some(deferred);
            return;
        }
        // It may have been refused where it was to take up what a target has answered.
        migrate::forget(worker, session.info.id);
        session.again = None;
        deferred.requests.pop_front();
    }
    if let Some(error) = deferred.broken {
        session.break_off(error);
    }
}

/// Replies to the clients that were suspended because of a script, which has become busy.
pub(super) fn answer_busy(worker: &mut Worker) {
    worker.for_each_session(|worker, session| {
        if !matches!(
            session.suspended,
            Some(Suspended::Stripe(_) | Suspended::Script | Suspended::Ticket)
        ) {
            return;
        }
        session.suspended = None;
        worker.look_again(session);
    });
}
