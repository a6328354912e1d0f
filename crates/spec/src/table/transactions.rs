//! Transactions: the rows of the group `transactions`. Rows only.

use super::prelude::*;

rows! { Transactions:
    Discard = "discard" {
        summary: "",
        since: "2.0.0",
        arity: 1,
        flags: [NOSCRIPT, LOADING, STALE, FAST, ALLOW_BUSY],
        acl: [TRANSACTION],
    }

    Exec = "exec" {
        summary: "",
        since: "1.2.0",
        arity: 1,
        flags: [NOSCRIPT, LOADING, STALE, SKIP_SLOWLOG],
        acl: [TRANSACTION],
        scope: KeysPlus,
        routing: Connection,
    }

    Multi = "multi" {
        summary: "",
        complexity: "O(1)",
        since: "1.2.0",
        arity: 1,
        flags: [NOSCRIPT, LOADING, STALE, FAST, ALLOW_BUSY],
        acl: [TRANSACTION],
    }

    Unwatch = "unwatch" {
        summary: "",
        complexity: "O(1)",
        since: "2.2.0",
        arity: 1,
        flags: [NOSCRIPT, LOADING, STALE, FAST, ALLOW_BUSY],
        acl: [TRANSACTION],
    }

    Watch = "watch" {
        summary: "",
        since: "2.2.0",
        arity: -2,
        flags: [NOSCRIPT, LOADING, STALE, FAST, ALLOW_BUSY],
        acl: [TRANSACTION],
        keys: [KeySpec::range(1, -1, 1, INSPECT)],
        args: [key("key").multiple()],
    }
}
