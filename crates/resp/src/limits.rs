//! Limits on the size of a request or a reply, for all parts: the server, the proxy and the host of scripts take the same numbers
//! from here. Where a parameter sets one, this is its default. They are Redis 8.2.3's unless the constant says otherwise;
//! docs/differences.md has them as a table. Knows nothing of who looks at them.

/// Arguments in one request, the command's name included.
pub const ARGUMENTS_MAX: i64 = i32::MAX as i64;
/// Bytes in one argument (the server's `proto-max-bulk-len`, the proxy's `limits.bulk`), and in one call or reply of a script.
pub const BULK_BYTES_MAX: u64 = 512 << 20;
/// Bytes of requests that wait to be executed (the server's `client-query-buffer-limit`, the proxy's `limits.query-buffer`).
pub const QUERY_BUFFER_BYTES_MAX: u64 = 1 << 30;
/// Bytes that an inline request, or the line of a header, may have while its end is missing (Redis's `PROTO_INLINE_MAX_SIZE`).
pub const LINE_BYTES_MAX: usize = 64 * 1024;
/// Bytes that the server reads from a client at a time (Redis's `PROTO_IOBUF_LEN`): a line may come to its end within one read more.
pub const READ_BYTES_MAX: usize = 16 * 1024;
/// Arguments in a request of a client that has yet to authenticate.
pub const UNAUTHENTICATED_ARGUMENTS_MAX: i64 = 10;
/// Bytes in an argument of a client that has yet to authenticate.
pub const UNAUTHENTICATED_BULK_BYTES_MAX: i64 = 16 * 1024;
/// Bytes of requests that a client may have waiting that has yet to authenticate.
pub const UNAUTHENTICATED_QUERY_BYTES_MAX: u64 = 1024 * 1024;
/// Bytes of replies that a client may leave unread that has yet to authenticate (CVE-2025-21605).
pub const UNAUTHENTICATED_OUTPUT_BYTES_MAX: u64 = 1024;
/// Bytes in a line of a reply: a status, an error or a large number of a script may be as long as its reply may.
pub const REPLY_LINE_BYTES_MAX: usize = BULK_BYTES_MAX as usize;
/// Aggregates inside aggregates in a reply that is taken apart, ours alone: where replies are passed on, none is counted.
pub const REPLY_DEPTH_MAX: usize = 128;
