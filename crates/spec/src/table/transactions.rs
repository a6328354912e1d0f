//! Transactions: the rows of the group `transactions`. Rows only.

use super::prelude::*;

rows! { Transactions:
    Discard = "discard" {
        summary: "Drop the queued commands and leave the transaction.",
        complexity: "O(N), N: commands queued",
        since: "2.0.0",
        arity: 1,
        flags: [NOSCRIPT, LOADING, STALE, FAST, ALLOW_BUSY],
        acl: [TRANSACTION],
    }

    Exec = "exec" {
        summary: "Run the queued commands as one, unless a watched key has changed.",
        complexity: "The sum of the queued commands.",
        since: "1.2.0",
        arity: 1,
        flags: [NOSCRIPT, LOADING, STALE, SKIP_SLOWLOG],
        acl: [TRANSACTION],
        scope: KeysPlus,
    }

    Multi = "multi" {
        summary: "Begin a transaction: the commands that follow are queued.",
        complexity: "O(1)",
        since: "1.2.0",
        arity: 1,
        flags: [NOSCRIPT, LOADING, STALE, FAST, ALLOW_BUSY],
        acl: [TRANSACTION],
    }

    Unwatch = "unwatch" {
        summary: "Stop watching all keys.",
        complexity: "O(1)",
        since: "2.2.0",
        arity: 1,
        flags: [NOSCRIPT, LOADING, STALE, FAST, ALLOW_BUSY],
        acl: [TRANSACTION],
    }

    Watch = "watch" {
        summary: "Let the next transaction fail if any of these keys changes before it.",
        complexity: "O(N), N: keys",
        since: "2.2.0",
        arity: -2,
        flags: [NOSCRIPT, LOADING, STALE, FAST, ALLOW_BUSY],
        acl: [TRANSACTION],
        keys: [KeySpec::range(1, -1, 1, INSPECT)],
        args: [key("key").multiple()],
    }
}
