//! Publish and subscribe: the rows of the group `pubsub`. Rows only.

use super::prelude::*;

rows! { Pubsub:
    Psubscribe = "psubscribe" {
        summary: "",
        since: "2.0.0",
        arity: -2,
        flags: [PUBSUB, NOSCRIPT, LOADING, STALE],
        args: [pattern("pattern").multiple()],
    }

    Publish = "publish" {
        summary: "",
        since: "2.0.0",
        arity: 3,
        flags: [PUBSUB, LOADING, STALE, FAST, MAY_REPLICATE],
        args: [string("channel"), string("message")],
        propagate: Verbatim,
        routing: AnyNode,
    }

    Pubsub = "pubsub" {
        summary: "",
        since: "2.8.0",
        arity: -2,
    }

    PubsubChannels = "pubsub|channels" {
        summary: "",
        since: "2.8.0",
        arity: -2,
        flags: [PUBSUB, LOADING, STALE],
        args: [pattern("pattern").optional()],
    }

    PubsubHelp = "pubsub|help" {
        summary: "",
        complexity: "O(1)",
        since: "6.2.0",
        arity: 2,
        flags: [LOADING, STALE],
    }

    PubsubNumpat = "pubsub|numpat" {
        summary: "",
        complexity: "O(1)",
        since: "2.8.0",
        arity: 2,
        flags: [PUBSUB, LOADING, STALE],
    }

    PubsubNumsub = "pubsub|numsub" {
        summary: "",
        since: "2.8.0",
        arity: -2,
        flags: [PUBSUB, LOADING, STALE],
        args: [string("channel").optional().multiple()],
    }

    Punsubscribe = "punsubscribe" {
        summary: "",
        since: "2.0.0",
        arity: -1,
        flags: [PUBSUB, NOSCRIPT, LOADING, STALE],
        args: [pattern("pattern").optional().multiple()],
    }

    Subscribe = "subscribe" {
        summary: "",
        since: "2.0.0",
        arity: -2,
        flags: [PUBSUB, NOSCRIPT, LOADING, STALE],
        args: [string("channel").multiple()],
    }

    Unsubscribe = "unsubscribe" {
        summary: "",
        since: "2.0.0",
        arity: -1,
        flags: [PUBSUB, NOSCRIPT, LOADING, STALE],
        args: [string("channel").optional().multiple()],
    }
}
