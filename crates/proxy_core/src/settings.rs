//! Limits and time-outs of the data path. Must not know whether a file or flags said so.

use redline_proxy_config::{Config, Size, Span};

/// The highest value of [`Settings::query_bytes_max`], since places in a request are numbers of 32 bits.
const QUERY_BYTES_MAX: usize = 3 << 30;
/// Bytes of output beyond which no more requests of a client are taken, if it may leave so many unread.
const CLIENT_OUTPUT_BYTES_HIGH: usize = 1024 * 1024;
/// Bytes that may wait to be sent to one server.
const UPSTREAM_QUEUE_BYTES_MAX: usize = 4 * 1024 * 1024;
/// Private connections of one worker to one server that stay open unused.
const PRIVATE_IDLE_MAX: usize = 16;
/// How long a busy worker rests while requests gather: microseconds. Longer than the server does: what gathers here spares
/// the server behind us, too. With redis-benchmark's 50 connections, of 50, 100 and 150 us the third cost the two of them
/// least.
const EVENT_COALESCING_US: u64 = 150;

/// Limits and time-outs of the workers. Zero means no limit where a field says so.
#[derive(Clone, Debug)]
pub struct Settings {
    /// Clients of all workers together.
    pub clients_max: usize,
    /// Bytes of output that a client may leave unread before it is cut off. Replies that come before their turn count.
    pub client_output_bytes_max: usize,
    /// Bytes of output that a client with subscriptions may leave unread before it is cut off.
    pub subscriber_output_bytes_max: usize,
    /// Bytes of output beyond which no more requests of the client are taken.
    pub client_output_bytes_high: usize,
    /// Requests of one client that may wait for replies; beyond that no more are taken.
    pub pipeline_max: u32,
    /// Bytes of a request that is not whole.
    pub query_bytes_max: usize,
    /// Bytes in one argument.
    pub bulk_bytes_max: u64,
    /// Bytes that may wait to be sent to one server; beyond that its clients' requests are not taken.
    pub upstream_queue_bytes_max: usize,
    /// Connections of one worker to one server that blocking calls, transactions and large values may take.
    pub private_max: usize,
    /// Of those, how many stay open unused.
    pub private_idle_max: usize,
    /// How long a connection to a server may take: milliseconds.
    pub connect_timeout_ms: u64,
    /// How long a server may keep the oldest request of a shared connection waiting: milliseconds; 0: for ever.
    pub request_timeout_ms: u64,
    /// How long a busy worker rests while requests gather: microseconds; 0: never (see `redline_net::Gathering`).
    pub event_coalescing_us: u64,
    /// How long a client may take nothing of a long reply for which a server's connection rests: milliseconds; 0: for ever.
    pub reader_timeout_ms: u64,
    /// How long clients get what they have asked for when the process is asked to end: milliseconds.
    pub drain_timeout_ms: u64,
}

impl Settings {
    /// As a configuration says.
    pub fn of(config: &Config) -> Settings {
        let (limits, timeouts) = (&config.limits, &config.timeouts);
        let bytes = |size: Size| match size.0 {
            0 => usize::MAX,
            bytes => usize::try_from(bytes).unwrap_or(usize::MAX),
        };
        let ms = |span: Span| span.0.as_micros().div_ceil(1_000) as u64;
        Settings {
            clients_max: match limits.clients {
                0 => usize::MAX,
                clients => clients as usize,
            },
            client_output_bytes_max: bytes(limits.output_buffer),
            subscriber_output_bytes_max: bytes(limits.subscriber_output_buffer),
            client_output_bytes_high: CLIENT_OUTPUT_BYTES_HIGH.min(bytes(limits.output_buffer)),
            pipeline_max: limits.pipeline.max(1),
            query_bytes_max: bytes(limits.query_buffer).min(QUERY_BYTES_MAX),
            bulk_bytes_max: bytes(limits.bulk) as u64,
            upstream_queue_bytes_max: UPSTREAM_QUEUE_BYTES_MAX,
            private_max: match limits.private_connections {
                0 => usize::MAX,
                connections => connections as usize,
            },
            private_idle_max: PRIVATE_IDLE_MAX,
            connect_timeout_ms: ms(timeouts.connect),
            request_timeout_ms: ms(timeouts.request),
            event_coalescing_us: EVENT_COALESCING_US,
            reader_timeout_ms: ms(timeouts.reader),
            drain_timeout_ms: ms(timeouts.drain),
        }
    }
}

#[cfg(test)]
mod tests {
    use redline_resp::limits;

    use super::*;

    #[test]
    fn limits_of_requests_are_those_of_a_server_unless_configured() {
        let settings = Settings::of(&Config::default());
        assert_eq!(settings.bulk_bytes_max, limits::BULK_BYTES_MAX);
        let query = settings.query_bytes_max as u64;
        assert_eq!(query, limits::QUERY_BUFFER_BYTES_MAX);
    }

    #[test]
    fn a_request_without_a_limit_has_places_of_32_bits_still() {
        let mut config = Config::default();
        config.limits.query_buffer = Size(0);
        let last = Settings::of(&config).query_bytes_max + 64 * 1024;
        assert!(u32::try_from(last).is_ok());
    }
}
