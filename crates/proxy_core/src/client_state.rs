//! States of a client that decide which of its requests are taken, and which are answered. Pure.

/// Why a client's requests wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pause {
    /// They do not.
    No,
    /// It does not read its replies.
    Output,
    /// Too much waits for a server.
    Upstream,
    /// Its earlier requests must be answered first.
    Order,
    /// A server must say first that it begins the transaction.
    Multi,
    /// Until a moment: see `delay`.
    Time,
}

/// The mode that CLIENT REPLY sets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReplyMode {
    /// Replies are sent.
    On,
    /// No replies.
    Off,
    /// The reply of the next request is not sent; then on again.
    SkipNext,
    /// The reply of this request is not sent.
    Skipping,
}
