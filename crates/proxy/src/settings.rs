//! What the data path may do: limits and time-outs. Must not know where they were configured.

/// Limits and time-outs of the workers. Zero means no limit where a field says so.
#[derive(Clone, Debug)]
pub struct Settings {
    /// Clients of all workers together.
    pub clients_max: usize,
    /// Bytes of output that a client may leave unread before it is cut off. Replies that come before their turn count.
    pub client_output_bytes_max: usize,
    /// The same of a client that is subscribed to something.
    pub subscriber_output_bytes_max: usize,
    /// Bytes of output beyond which no more requests of the client are taken.
    pub client_output_bytes_high: usize,
    /// Requests of one client that may wait for replies; beyond that no more are taken.
    pub pipeline_max: u32,
    /// Bytes of a request that is not whole.
    pub query_bytes_max: usize,
    /// Bytes in one argument.
    pub bulk_bytes_max: u64,
    /// Arguments in one request.
    pub arguments_max: i64,
    /// Bytes that may wait to be sent to one server; beyond that its clients' requests are not taken.
    pub upstream_queue_bytes_max: usize,
    /// Connections of one worker to one server and database that blocking calls and transactions may take.
    pub private_max: usize,
    /// Of those, how many stay open unused.
    pub private_idle_max: usize,
    /// How long a connection to a server may take: milliseconds.
    pub connect_timeout_ms: u64,
    /// How long a server may keep the oldest request of a shared connection waiting: milliseconds; 0: for ever.
    pub request_timeout_ms: u64,
    /// How long a client may be silent: seconds; 0: for ever.
    pub client_timeout_s: u64,
    /// How long a busy worker rests while requests gather: microseconds; 0: never (see `redline_net::Gathering`).
    pub event_coalescing_us: u64,
    /// Whether clients may call FLUSHALL and FLUSHDB, and what else changes all servers at once.
    pub allow_flush: bool,
}

impl Default for Settings {
    fn default() -> Settings {
        Settings {
            clients_max: 10_000,
            client_output_bytes_max: 256 * 1024 * 1024,
            subscriber_output_bytes_max: 32 * 1024 * 1024,
            client_output_bytes_high: 1024 * 1024,
            pipeline_max: 10_000,
            query_bytes_max: 1024 * 1024 * 1024,
            bulk_bytes_max: 512 * 1024 * 1024,
            arguments_max: 1024 * 1024,
            upstream_queue_bytes_max: 4 * 1024 * 1024,
            private_max: 1024,
            private_idle_max: 16,
            connect_timeout_ms: 1_000,
            request_timeout_ms: 10_000,
            client_timeout_s: 0,
            event_coalescing_us: 50,
            allow_flush: true,
        }
    }
}
