//! The session of a replica is sent what the state machine has for it.
//!
//! Full blocks go out from where they lie; the newest bytes and pieces of a snapshot are copied once. The session's reply
//! buffer holds what the socket has not taken yet, and no more than [`AHEAD_BYTES`] of it.
//!
//! Must not know: what the bytes say.

use std::{io, sync::atomic::Ordering};

use redline_net::clock;
use redline_replica::primary::Next;

use crate::{
    log,
    session::Session,
    worker::{Worker, pace, serve},
};

/// Bytes that are taken before the socket is offered them.
const AHEAD_BYTES: usize = 256 * 1024;
/// Writes of one turn: a replica that reads a snapshot as fast as it is read here delays clients by some tenths of a millisecond.
const WRITES_MAX: usize = 2;

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
        let next = replication
            .primary()
            .fill(client, &mut session.out, bytes_enough);
        let is_read = match next {
            Next::Nothing | Next::More => return,
            Next::Spilled { slot, from, bytes } => {
                let mut piece = vec![0; bytes];
                let read = replication.backlog_file.read(slot, from, &mut piece);
                let is_read = put(session, "backlog", read, &piece);
                if is_read {
                    replication.primary().spilled_handed_out(client, bytes);
                }
                is_read
            }
            Next::Snapshot { walk, from, bytes } => {
                let spools = replication.spools();
                let spool = spools.iter().find(|spool| spool.walk == walk).cloned();
                drop(spools);
                let mut piece = vec![0; bytes];
                let read = spool.map(|spool| spool.read(&mut piece, from));
                let is_read = read.is_some_and(|read| put(session, "snapshot", read, &piece));
                if is_read {
                    let now_ms = clock::monotonic_ms();
                    let mut primary = replication.primary();
                    primary.snapshot_handed_out(client, bytes as u64, now_ms);
                }
                is_read
            }
        };
        if !is_read {
            session.end_at_once();
            return;
        }
    }
}

/// Adds a piece of a file to what a replica is sent. Returns false if it could not be read, and says so in the log.
fn put(session: &mut Session, of: &str, read: io::Result<()>, piece: &[u8]) -> bool {
    match read {
        Ok(()) => session.out.push_bytes(piece),
        Err(error) => {
            log::warning(&format!("Reading the {of} for a replica: {error}"));
            return false;
        }
    }
    true
}
