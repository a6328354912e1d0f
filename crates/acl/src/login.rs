//! Error replies for a client that has not authenticated, or has failed to: lines of errors, without the leading `-`.
//! Clients match on these texts, so they are Redis 8.2.3's. Must not know clients.

/// Authentication is required and missing.
pub const NO_AUTH: &str = "NOAUTH Authentication required.";

/// Authentication is required, and HELLO comes without it.
pub const HELLO_NEEDS_AUTH: &str = "NOAUTH HELLO must be called with the client already authenticated, otherwise the HELLO <proto> AUTH <user> <pass> option can be used to authenticate the client and select the RESP protocol version at the same time";

/// There is no such user, or it is off, or it has another password.
pub const WRONG_PASSWORD: &str = "WRONGPASS invalid username-password pair or user is disabled.";

/// AUTH with a password alone, though the default user needs none.
pub const NO_PASSWORD: &str = "ERR AUTH <password> called without any password configured for the default user. Are you sure your configuration is correct?";
