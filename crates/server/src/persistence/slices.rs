//! A worker's part in a snapshot: slices of the walk, between what its clients want.
//!
//! Must not know: what a snapshot is for.

use redline_keyspace::snapshot::Slice;
use redline_net::clock;

use crate::worker::Worker;

/// Length of a slice: microseconds. No command waits longer for it.
const SLICE_US: u64 = 50;
/// Pause after a slice while there are clients to serve, as a multiple of the slice: a busy worker gives a quarter of its
/// time.
const PAUSES: u64 = 3;
/// Pause where there is nothing to do at once: the stripes that are left are in use, or the file is behind.
const REST_US: u64 = 1_000;

/// Runs a slice if one is due. `busy`: the worker has served clients in this turn.
pub(crate) fn run(worker: &mut Worker, busy: bool) {
    let began_us = clock::monotonic_us();
    let due_us = worker.outlet.snapshot_due_us;
    if due_us.is_some_and(|due_us| began_us < due_us) {
        return;
    }
    let deadline_us = began_us + SLICE_US;
    let shared = worker.shared;
    let slice = shared
        .keyspace
        .snapshot_slice(&mut worker.local, || clock::monotonic_us() < deadline_us);
    let ended_us = clock::monotonic_us();
    worker.outlet.snapshot_due_us = match slice {
        // A message tells when everything is saved.
        Slice::Idle => None,
        Slice::More if busy => Some(ended_us + PAUSES * (ended_us - began_us)),
        Slice::More => Some(ended_us),
        Slice::InTheWay | Slice::Full => Some(ended_us + REST_US),
    };
}
