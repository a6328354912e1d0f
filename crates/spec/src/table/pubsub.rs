//! Publish and subscribe: the rows of the group `pubsub`. Rows only.

use super::prelude::*;

rows! { Pubsub:
    Psubscribe = "psubscribe" {
        summary: "Receive the messages of all channels that glob patterns match.",
        complexity: "O(N), N: patterns",
        since: "2.0.0",
        arity: -2,
        flags: [PUBSUB, NOSCRIPT, LOADING, STALE],
        channels: CHANNEL_PATTERNS,
        args: [pattern("pattern").multiple()],
    }

    Publish = "publish" {
        summary: "Send a message to everybody who listens to a channel.",
        complexity: "O(N+M), N: the channel's subscribers, M: subscribed patterns",
        since: "2.0.0",
        arity: 3,
        flags: [PUBSUB, LOADING, STALE, FAST, MAY_REPLICATE],
        channels: CHANNEL,
        args: [string("channel"), string("message")],
        propagate: Verbatim,
        routing: AnyNode,
    }

    Pubsub = "pubsub" {
        summary: "Inspect who listens to what.",
        since: "2.8.0",
        arity: -2,
    }

    PubsubChannels = "pubsub|channels" {
        summary: "List the channels that somebody listens to.",
        complexity: "O(N), N: channels in use",
        since: "2.8.0",
        arity: -2,
        flags: [PUBSUB, LOADING, STALE],
        args: [pattern("pattern").optional()],
        routing: AllNodes,
    }

    PubsubHelp = "pubsub|help" {
        summary: "List the subcommands of PUBSUB.",
        complexity: "O(1)",
        since: "6.2.0",
        arity: 2,
        flags: [LOADING, STALE],
    }

    PubsubNumpat = "pubsub|numpat" {
        summary: "Count the patterns that somebody listens to.",
        complexity: "O(1)",
        since: "2.8.0",
        arity: 2,
        flags: [PUBSUB, LOADING, STALE],
        routing: AllNodes,
    }

    PubsubNumsub = "pubsub|numsub" {
        summary: "Count the subscribers of each channel given.",
        complexity: "O(N), N: channels given",
        since: "2.8.0",
        arity: -2,
        flags: [PUBSUB, LOADING, STALE],
        args: [string("channel").optional().multiple()],
        routing: AllNodes,
    }

    Punsubscribe = "punsubscribe" {
        summary: "Stop receiving by pattern: by those given, or by all.",
        complexity: "O(N), N: patterns",
        since: "2.0.0",
        arity: -1,
        flags: [PUBSUB, NOSCRIPT, LOADING, STALE],
        args: [pattern("pattern").optional().multiple()],
    }

    Subscribe = "subscribe" {
        summary: "Receive the messages of channels.",
        complexity: "O(N), N: channels",
        since: "2.0.0",
        arity: -2,
        flags: [PUBSUB, NOSCRIPT, LOADING, STALE],
        channels: CHANNELS,
        args: [string("channel").multiple()],
    }

    Unsubscribe = "unsubscribe" {
        summary: "Stop receiving from channels: from those given, or from all.",
        complexity: "O(N), N: channels",
        since: "2.0.0",
        arity: -1,
        flags: [PUBSUB, NOSCRIPT, LOADING, STALE],
        args: [string("channel").optional().multiple()],
    }
}
