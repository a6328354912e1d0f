//! Memory use of buffers, and its limit: new requests are refused while there is too much, and the client for which the most
//! is held is closed if that does not help by the next look. Connections to servers, which are everybody's, are left alone.
//! Whoever is closed for any limit is named in the log.
//!
//! Must not know routes.

use super::stats::WorkerStats;

use crate::connections::Connections;
use crate::context::Context;

/// Redis's clients know this one.
pub const OUT_OF_MEMORY: &str = "OOM command not allowed when used memory > 'maxmemory'.";
/// A look at every client for each so many ticks, if there is no limit to keep.
const TICKS: u32 = 10;

/// Says why a client is closed that has sent more than is kept of what nobody has executed yet.
pub(crate) fn tell_of_query_buffer(addr: &impl std::fmt::Display, limit: usize) {
    super::log::warning(&format!(
        "client {addr} is closed: its request is longer than limits.query-buffer ({limit})"
    ));
}

fn bytes_of(worker: &std::sync::Arc<WorkerStats>) -> u64 {
    worker.counters().buffer_bytes
}

/// Sums up what this worker's buffers use, and keeps the limit.
pub(crate) fn look_at_memory(conns: &mut Connections) {
    let limit = conns.ctx.seeing.tuning.memory_bytes_max;
    if limit == 0 && !conns.ctx.ticks.is_multiple_of(TICKS) && !conns.ctx.seeing.is_short_of_memory
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
        // What is kept for the next request is small.
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
    conns.ctx.seeing.stats.publish(&conns.ctx.counters);
    let total: u64 = conns.ctx.shared.seen.workers.iter().map(bytes_of).sum();
    let was_short = conns.ctx.seeing.is_short_of_memory;
    conns.ctx.seeing.is_short_of_memory = limit > 0 && total > limit;
    if !was_short || !conns.ctx.seeing.is_short_of_memory {
        return;
    }
    // Each worker goes by its share, so that they do not close one client each for the same want.
    let share = limit / conns.ctx.shared.seen.workers.len().max(1) as u64;
    if let (bytes, Some(at)) = largest
        && sum as u64 > share
        && let Some(client) = conns.ctx.clients.look(at)
    {
        super::log::warning(&format!(
            "buffers use {total} bytes, more than limits.memory ({limit}): client {} is closed, which made us hold {bytes}",
            client.card.addr
        ));
        conns.ctx.counters.evicted_clients += 1;
        conns.close_client(at);
    }
}

/// Returns true if a request for servers may be taken; one that may not is counted.
pub(crate) fn has_memory(ctx: &mut Context) -> bool {
    let is_short = ctx.seeing.is_short_of_memory;
    ctx.counters.refused_for_memory += u64::from(is_short);
    !is_short
}
