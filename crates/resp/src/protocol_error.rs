//! Errors in a request, with Redis's texts. Knows nothing of their detection.

use std::fmt;

/// A violation of the protocol by the peer: it gets this as an error reply, and the connection is closed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ProtocolError {
    /// A line without an end.
    TooBigInline,
    /// A quote not closed, or not followed by a space.
    UnbalancedQuotes,
    /// A `*` header without an end.
    TooBigMultibulkCount,
    /// A `$` header without an end.
    TooBigBulkCount,
    /// Not a number, or more arguments than allowed.
    InvalidMultibulkLength,
    /// Not a number, negative, or longer than allowed.
    InvalidBulkLength,
    /// Another byte where an argument should start.
    ExpectedDollar(u8),
    /// Too many arguments for a session that is not authenticated.
    UnauthenticatedMultibulkLength,
    /// Too long an argument for a session that is not authenticated.
    UnauthenticatedBulkLength,
    /// More than 4 GiB in small arguments: beyond every limit on a query buffer.
    TooBigRequest,
}

impl ProtocolError {
    /// Returns the line of the error reply, for [`crate::Reply::error_bytes`].
    pub fn error_line(&self) -> Vec<u8> {
        let mut line = b"ERR Protocol error: ".to_vec();
        line.extend_from_slice(match self {
            ProtocolError::TooBigInline => b"too big inline request",
            ProtocolError::UnbalancedQuotes => b"unbalanced quotes in request",
            ProtocolError::TooBigMultibulkCount => b"too big mbulk count string",
            ProtocolError::TooBigBulkCount => b"too big bulk count string",
            ProtocolError::InvalidMultibulkLength => b"invalid multibulk length",
            ProtocolError::InvalidBulkLength => b"invalid bulk length",
            ProtocolError::ExpectedDollar(_) => b"expected '$', got '",
            ProtocolError::UnauthenticatedMultibulkLength => b"unauthenticated multibulk length",
            ProtocolError::UnauthenticatedBulkLength => b"unauthenticated bulk length",
            ProtocolError::TooBigRequest => b"too big request",
        });
        if let ProtocolError::ExpectedDollar(got) = self {
            // An error must stay one line.
            let shown = if matches!(got, b'\r' | b'\n') {
                b' '
            } else {
                *got
            };
            line.extend_from_slice(&[shown, b'\'']);
        }
        line
    }
}

impl fmt::Display for ProtocolError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.error_line()[4..].escape_ascii())
    }
}

impl std::error::Error for ProtocolError {}
