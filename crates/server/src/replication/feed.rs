//! The session of a replica is sent what the state machine has for it.
//!
//! Full blocks go out from where they lie; of the open block and of a snapshot, pieces are copied. The session's reply
//! buffer holds what the socket has not taken yet, and no more than [`AHEAD_BYTES`] of it.
//!
//! Must not know: what the bytes say.

use std::sync::atomic::Ordering;

use redline_net::clock;
use redline_replica::primary::Next;

use crate::{
    log,
    session::Session,
    worker::{Worker, pace, serve},
};

/// Bytes that are taken before the socket is offered them.
const AHEAD_BYTES: usize = 256 * 1024;
/// Writes of one turn: a replica that reads fast delays no client.
const WRITES_MAX: usize = 16;

/// Sends a replica what there is, as far as its socket takes it and its limit on bandwidth allows.
pub(crate) fn feed(worker: &mut Worker, session: &mut Session) {
    // Replies of the handshake, and what the socket did not take the last time.
    send(worker, session);
    for _ in 0..WRITES_MAX {
        if session.closing || !session.out.is_empty() || session.stream.has_unsent() {
            return;
        }
        let bytes = pace::allowance(worker, session).min(AHEAD_BYTES);
        fill(worker, session, bytes);
        if session.out.is_empty() {
            return;
        }
        send(worker, session);
    }
    worker.look_again(session);
}

fn send(worker: &mut Worker, session: &mut Session) {
    let before = session.info.net_out.load(Ordering::Relaxed);
    serve::write_out(worker, session);
    let sent = session.info.net_out.load(Ordering::Relaxed) - before;
    let total = &worker.shared.replication.sent_bytes;
    total.fetch_add(sent, Ordering::Relaxed);
    pace::charge_replica(worker, session, sent);
}

/// Takes at least so many bytes for a replica, if there are, and few more.
fn fill(worker: &Worker, session: &mut Session, bytes_enough: usize) {
    let replication = &worker.shared.replication;
    let client = session.info.id;
    while session.out.len_bytes() < bytes_enough {
        let next = replication.primary().next(client);
        match next {
            Next::Nothing => return,
            Next::Bytes(bytes) => session.out.push_bytes(&bytes),
            Next::Block(block, part) => session.out.push_blob(&block, part),
            Next::Spilled { slot, from, bytes } => {
                let mut piece = vec![0; bytes];
                let read = replication.backlog_file.read(slot, from, &mut piece);
                if let Err(error) = read {
                    log::warning(&format!("Reading the backlog for a replica: {error}"));
                    session.end_at_once();
                    return;
                }
                session.out.push_bytes(&piece);
                replication.primary().spilled_handed_out(client, bytes);
            }
            Next::Snapshot { walk, from, bytes } => {
                let spools = replication.spools();
                let spool = spools.iter().find(|spool| spool.walk == walk).cloned();
                drop(spools);
                let mut piece = vec![0; bytes];
                let read = spool.map(|spool| spool.read(&mut piece, from));
                match read {
                    Some(Ok(())) => session.out.push_bytes(&piece),
                    Some(Err(error)) => {
                        log::warning(&format!("Reading the snapshot for a replica: {error}"));
                        session.end_at_once();
                        return;
                    }
                    None => {
                        session.end_at_once();
                        return;
                    }
                }
                let now_ms = clock::monotonic_ms();
                let mut primary = replication.primary();
                primary.snapshot_handed_out(client, bytes as u64, now_ms);
            }
        }
    }
}
