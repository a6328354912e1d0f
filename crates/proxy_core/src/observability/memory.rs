//! Memory use of buffers, and its limit: above it new requests are refused, and the client with the most bytes is closed
//! if that has not helped by the next check. Connections to servers, which are shared, stay. Every client that is closed
//! for a limit is logged.
//!
//! Must not know routes.

use super::stats::WorkerStats;
use crate::client_info::PeerAddr;
use crate::connections::Connections;
use crate::context::Context;
use crate::shell::{Level, Shell};

/// An error that Redis's clients know.
pub const OUT_OF_MEMORY: &str = "OOM command not allowed when used memory > 'maxmemory'.";
/// Number of ticks between checks of every client, if there is no limit.
const TICKS: u32 = 10;

/// Sums up the memory of this worker's buffers, and enforces the limit.
pub fn look_at_memory<S: Shell>(conns: &mut Connections<S>) {
    let limit = conns.ctx.recorder.tuning.memory_bytes_max;
    if limit == 0
        && !conns.ctx.ticks.is_multiple_of(TICKS)
        && !conns.ctx.recorder.is_short_of_memory
    {
        return;
    }
    let (mut sum, mut largest) = (0, (0, None));
    for at in conns.ctx.clients.taken().collect::<Vec<_>>() {
        let Some(client) = conns.ctx.clients.look(at) else {
            continue;
        };
        let bytes = client.out.capacity() + client.query.capacity() + client.ahead.len();
        let bytes = bytes + client.owed() - client.unsent();
        sum += bytes;
        // The buffers of idle clients are small.
        if bytes > largest.0 && client.owed() + client.query.len() > 0 {
            largest = (bytes, Some(at));
        }
    }
    for at in conns.ctx.links.taken().collect::<Vec<_>>() {
        if let Some(upstream) = conns.ctx.links.look(at) {
            sum += upstream.out.capacity() + upstream.partial.capacity();
        }
    }
    conns.ctx.counters.buffer_bytes = sum as u64;
    conns.ctx.counters.responses = conns.ctx.clients.responses;
    conns.ctx.recorder.stats.publish(&conns.ctx.counters);
    let total: u64 = conns
        .ctx
        .shared
        .observations
        .workers
        .iter()
        .map(bytes_of)
        .sum();
    let was_short = conns.ctx.recorder.is_short_of_memory;
    conns.ctx.recorder.is_short_of_memory = limit > 0 && total > limit;
    if !was_short || !conns.ctx.recorder.is_short_of_memory {
        return;
    }
    // Each worker has its share of the limit, so that they do not close one client each for the same shortage.
    let share = limit / conns.ctx.shared.observations.workers.len().max(1) as u64;
    if let (bytes, Some(at)) = largest
        && sum as u64 > share
        && let Some(client) = conns.ctx.clients.look(at)
    {
        conns.ctx.shell.log(Level::Warning, || format!(
            "buffers use {total} bytes, more than limits.memory ({limit}): client {} is closed, which made us hold {bytes}",
            client.info.addr
        ));
        conns.ctx.counters.evicted_clients += 1;
        conns.close_client(at);
    }
}

/// Returns true if a request for servers may be accepted; a refusal is counted.
pub(crate) fn has_memory<S: Shell>(ctx: &mut Context<S>) -> bool {
    let is_short = ctx.recorder.is_short_of_memory;
    ctx.counters.refused_for_memory += u64::from(is_short);
    !is_short
}

/// Logs that a client is closed for more unexecuted bytes than its limit.
pub fn tell_of_query_buffer<S: Shell>(shell: &S, addr: &PeerAddr, limit: usize) {
    shell.log(Level::Warning, || {
        format!("client {addr} is closed: its request is longer than limits.query-buffer ({limit})")
    });
}

fn bytes_of(worker: &std::sync::Arc<WorkerStats>) -> u64 {
    worker.counters().buffer_bytes
}
