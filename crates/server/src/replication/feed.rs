//! The session of a replica is sent what the state machine has for it.
//!
//! Full blocks go out from where they lie; the newest bytes and pieces of a snapshot are copied once. The session's reply
//! buffer holds what the socket has not taken yet, and no more than [`AHEAD_BYTES`] of it.
//!
//! Must not know: what the bytes say.

use std::sync::atomic::Ordering;

use redline_net::clock;
use redline_replica::primary::Next;

use crate::{
    log,
    session::Session,
    worker::{Worker, serve},
};

/// Bytes that are taken before the socket is offered them.
const AHEAD_BYTES: usize = 256 * 1024;
/// Writes of one turn: a replica that reads fast delays no client.
const WRITES_MAX: usize = 16;

/// Sends a replica what there is, as far as its socket takes it.
pub(crate) fn feed(worker: &mut Worker, session: &mut Session) {
    for _ in 0..WRITES_MAX {
        if session.closing || !session.out.is_empty() || session.stream.has_unsent() {
            return;
        }
        fill(worker, session);
        if session.out.is_empty() {
            return;
        }
        let before = session.info.net_out.load(Ordering::Relaxed);
        serve::write_out(worker, session);
        let sent = session.info.net_out.load(Ordering::Relaxed) - before;
        let total = &worker.shared.replication.sent_bytes;
        total.fetch_add(sent, Ordering::Relaxed);
    }
    worker.look_again(session);
}

fn fill(worker: &Worker, session: &mut Session) {
    let replication = &worker.shared.replication;
    let client = session.info.id;
    while session.out.len_bytes() < AHEAD_BYTES {
        let next = replication
            .primary()
            .fill(client, &mut session.out, AHEAD_BYTES);
        let Next::Snapshot { walk, from, bytes } = next else {
            return;
        };
        let spools = replication.spools();
        let spool = spools.iter().find(|spool| spool.walk == walk).cloned();
        drop(spools);
        let mut piece = vec![0; bytes];
        match spool.map(|spool| spool.read(&mut piece, from)) {
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
        let mut primary = replication.primary();
        primary.snapshot_handed_out(client, bytes as u64, clock::monotonic_ms());
    }
}
