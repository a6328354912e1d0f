//! Limits on the size of a request or a reply, for all parts: the server, the proxy and the host of scripts use the
//! same numbers from here. Where a parameter sets one, this is its default. They are Redis 8.2.3's unless the constant
//! says otherwise; docs/differences.md has them as a table. Knows nothing of the code that checks them.

/// Most arguments in one request, the command's name included.
pub const ARGUMENTS_MAX: i64 = i32::MAX as i64;
/// Most bytes in one argument (the server's `proto-max-bulk-len`, the proxy's `limits.bulk`), or one call or reply of a script.
pub const BULK_BYTES_MAX: u64 = 512 << 20;
/// Most bytes of waiting requests (the server's `client-query-buffer-limit`, the proxy's `limits.query-buffer`).
pub const QUERY_BUFFER_BYTES_MAX: u64 = 1 << 30;
/// Most bytes of an inline request, or a header's line, while its end is missing (Redis's `PROTO_INLINE_MAX_SIZE`).
pub const LINE_BYTES_MAX: usize = 64 * 1024;
/// Bytes that the server reads at once (Redis's `PROTO_IOBUF_LEN`): a line at its limit may end within one read more.
pub const READ_BYTES_MAX: usize = 16 * 1024;
/// Most arguments in a request of a client that is not authenticated.
pub const UNAUTHENTICATED_ARGUMENTS_MAX: i64 = 10;
/// Most bytes in an argument of a client that is not authenticated.
pub const UNAUTHENTICATED_BULK_BYTES_MAX: i64 = 16 * 1024;
/// Most bytes of waiting requests of a client that is not authenticated.
pub const UNAUTHENTICATED_QUERY_BYTES_MAX: u64 = 1024 * 1024;
/// Most bytes of unread replies of a client that is not authenticated (CVE-2025-21605).
pub const UNAUTHENTICATED_OUTPUT_BYTES_MAX: u64 = 1024;
/// Most bytes in a line of a reply: a status, error or large number of a script may be as long as its reply.
pub const REPLY_LINE_BYTES_MAX: usize = BULK_BYTES_MAX as usize;
/// Most levels of nested aggregates in a decoded reply; not a limit of Redis. Replies that are passed on are not checked.
pub const REPLY_DEPTH_MAX: usize = 128;
