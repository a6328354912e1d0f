//! Limits and time-outs of the data path. Must not know whether a file or flags set them.

use redline_proxy_config::{Config, Size, Span};

/// The largest value of [`Settings::query_bytes_max`], since positions in a request are numbers of 32 bits.
const QUERY_BYTES_MAX: usize = 3 << 30;
/// Bytes of output beyond which no more requests of a client are taken, if its limit of unread output allows as much.
const CLIENT_OUTPUT_BYTES_HIGH: usize = 1024 * 1024;
/// Bytes that may wait to be sent to one server.
const UPSTREAM_QUEUE_BYTES_MAX: usize = 4 * 1024 * 1024;
/// Private connections of one worker to one server that stay open unused.
const PRIVATE_IDLE_MAX: usize = 16;
/// Time for which a busy worker coalesces events: microseconds. Longer than the server's: coalescing here spares the
/// server as well. With redis-benchmark's 50 connections, of 50, 100 and 150 us the third had the least cost for both.
const EVENT_COALESCING_US: u64 = 150;

/// Limits and time-outs of the workers. Zero means no limit where a field says so.
#[derive(Clone, Debug)]
pub struct Settings {
    /// Largest number of clients of all workers together.
    pub clients_max: usize,
    /// Bytes of output that a client may leave unread before it is closed. Early replies count.
    pub client_output_bytes_max: usize,
    /// Bytes of output that a client with subscriptions may leave unread before it is closed.
    pub subscriber_output_bytes_max: usize,
    /// Bytes of output beyond which no more requests of the client are taken.
    pub client_output_bytes_high: usize,
    /// Requests of one client that may wait for replies; beyond that no more are taken.
    pub pipeline_max: u32,
    /// Largest size of an incomplete request: bytes.
    pub query_bytes_max: usize,
    /// Largest argument: bytes.
    pub bulk_bytes_max: u64,
    /// Bytes that may wait to be sent to one server; beyond that its clients' requests are not taken.
    pub upstream_queue_bytes_max: usize,
    /// Connections of one worker to one server that blocking calls, transactions and large values may take.
    pub private_max: usize,
    /// Number of those that stay open unused.
    pub private_idle_max: usize,
    /// Time-out of connecting to a server: milliseconds.
    pub connect_timeout_ms: u64,
    /// Time-out of the oldest request of a shared connection: milliseconds; 0: none.
    pub request_timeout_ms: u64,
    /// Time for which a busy worker coalesces events: microseconds; 0: never (see the event loop of the shell).
    pub event_coalescing_us: u64,
    /// Time for which the client of a long reply may read nothing while a server waits: milliseconds; 0: no limit.
    pub reader_timeout_ms: u64,
    /// Time for which clients get their due replies when the process drains: milliseconds.
    pub drain_timeout_ms: u64,
}

impl Settings {
    /// Returns the settings of a configuration.
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
