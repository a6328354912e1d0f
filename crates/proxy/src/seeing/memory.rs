//! Memory use of buffers, and its limit: new requests are refused while there is too much, and the client for which the most
//! is held is closed if that does not help by the next look. Connections to servers, which are everybody's, are left alone.
//! Whoever is closed for any limit is named in the log.
//!
//! Must not know routes.

use super::stats::WorkerStats;
use crate::worker::Worker;

/// Redis's clients know this one.
pub const OUT_OF_MEMORY: &str = "OOM command not allowed when used memory > 'maxmemory'.";
/// A look at every client for each so many ticks, if there is no limit to keep.
const TICKS: u32 = 10;

impl Worker {
    /// Sums up what this worker's buffers use, and keeps the limit.
    pub(crate) fn look_at_memory(&mut self, ticks: u32) {
        let limit = self.seeing.tuning.memory_bytes_max;
        if limit == 0 && !ticks.is_multiple_of(TICKS) && !self.seeing.is_short_of_memory {
            return;
        }
        let (mut sum, mut largest) = (0, (0, None));
        for at in self.clients.taken().collect::<Vec<_>>() {
            let Some(client) = self.clients.look(at) else {
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
        for at in self.upstreams.taken().collect::<Vec<_>>() {
            if let Some(upstream) = self.upstreams.look(at) {
                sum += upstream.out.capacity() + upstream.partial.capacity();
            }
        }
        self.counters.buffer_bytes = sum as u64;
        self.seeing.stats.publish(&self.counters);
        let total: u64 = self.shared.seen.workers.iter().map(bytes_of).sum();
        let was_short = self.seeing.is_short_of_memory;
        self.seeing.is_short_of_memory = limit > 0 && total > limit;
        if !was_short || !self.seeing.is_short_of_memory {
            return;
        }
        // Each worker goes by its share, so that they do not close one client each for the same want.
        let share = limit / self.shared.seen.workers.len().max(1) as u64;
        if let (bytes, Some(at)) = largest
            && sum as u64 > share
            && let Some(client) = self.clients.look(at)
        {
            super::log::warning(&format!(
                "buffers use {total} bytes, more than limits.memory ({limit}): client {} is closed, which made us hold {bytes}",
                client.card.addr
            ));
            self.counters.evicted_clients += 1;
            self.close_client(at);
        }
    }

    /// Closes a client that has gone beyond a limit, and says so.
    pub(crate) fn close_for(&mut self, at: u32, why: &str) {
        if let Some(client) = self.clients.look(at) {
            super::log::warning(&format!("client {} is closed: {why}", client.card.addr));
        }
        self.close_client(at);
    }

    /// The same for what it has not read, or is to get one day.
    pub(crate) fn close_for_output(&mut self, at: u32, name: &str, limit: usize) {
        self.close_for(
            at,
            &format!("more is held for it than limits.{name} ({limit}) allows"),
        );
    }

    /// Returns true if a request for servers may be taken; one that may not is counted.
    pub(crate) fn has_memory(&mut self) -> bool {
        let is_short = self.seeing.is_short_of_memory;
        self.counters.refused_for_memory += u64::from(is_short);
        !is_short
    }
}

/// Says why a client is closed that has sent more than is kept of what nobody has executed yet.
pub(crate) fn tell_of_query_buffer(addr: &impl std::fmt::Display, limit: usize) {
    super::log::warning(&format!(
        "client {addr} is closed: its request is longer than limits.query-buffer ({limit})"
    ));
}

fn bytes_of(worker: &std::sync::Arc<WorkerStats>) -> u64 {
    worker.counters().buffer_bytes
}
