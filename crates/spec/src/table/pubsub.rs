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

    PubsubShardchannels = "pubsub|shardchannels" {
        summary: "List the shard channels that somebody listens to.",
        complexity: "O(N), N: shard channels in use",
        since: "7.0.0",
        arity: -2,
        flags: [PUBSUB, LOADING, STALE],
        args: [pattern("pattern").optional()],
        routing: AllNodes,
    }

    PubsubShardnumsub = "pubsub|shardnumsub" {
        summary: "Count the subscribers of each shard channel given.",
        complexity: "O(N), N: shard channels given",
        since: "7.0.0",
        arity: -2,
        flags: [PUBSUB, LOADING, STALE],
        args: [string("shardchannel").optional().multiple()],
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

    Spublish = "spublish" {
        summary: "Send a message to everybody who listens to a shard channel.",
        complexity: "O(N), N: the shard channel's subscribers",
        since: "7.0.0",
        arity: 3,
        flags: [PUBSUB, LOADING, STALE, FAST, MAY_REPLICATE],
        keys: [KeySpec::at(1, NOT_KEY)],
        channels: CHANNEL,
        args: [string("shardchannel"), string("message")],
        scope: None,
        propagate: Verbatim,
    }

    Ssubscribe = "ssubscribe" {
        summary: "Receive the messages of shard channels.",
        complexity: "O(N), N: shard channels",
        since: "7.0.0",
        arity: -2,
        flags: [PUBSUB, NOSCRIPT, LOADING, STALE],
        keys: [KeySpec::range(1, -1, 1, NOT_KEY)],
        channels: CHANNELS,
        args: [string("shardchannel").multiple()],
        scope: None,
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

    Sunsubscribe = "sunsubscribe" {
        summary: "Stop receiving from shard channels: from those given, or from all.",
        complexity: "O(N), N: shard channels",
        since: "7.0.0",
        arity: -1,
        flags: [PUBSUB, NOSCRIPT, LOADING, STALE],
        keys: [KeySpec::range(1, -1, 1, NOT_KEY)],
        args: [string("shardchannel").optional().multiple()],
        scope: None,
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
