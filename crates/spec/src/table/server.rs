//! The server as a whole: the rows of the group `server`. Rows only.

use super::prelude::*;
use crate::Arg;

/// Arguments of REPLICAOF.
const REPLICA_OF: Arg = one_of(
    "args",
    &[
        block("host-port", &[string("host"), integer("port")]),
        block("no-one", &[word("no", "NO"), word("one", "ONE")]),
    ],
);

rows! { Server:
    Bgrewriteaof = "bgrewriteaof" {
        summary: "Rewrite the append-only file in the background.",
        complexity: "O(1)",
        since: "1.0.0",
        arity: 1,
        flags: [ADMIN, NOSCRIPT, NO_ASYNC_LOADING],
    }

    Bgsave = "bgsave" {
        summary: "Save a snapshot in the background.",
        complexity: "O(1)",
        since: "1.0.0",
        history: [("3.2.2", "SCHEDULE.")],
        arity: -1,
        flags: [ADMIN, NOSCRIPT, NO_ASYNC_LOADING],
        args: [word("schedule", "SCHEDULE").since("3.2.2").optional()],
    }

    Command = "command" {
        summary: "Describe all commands.",
        complexity: "O(N), N: commands",
        since: "2.8.13",
        arity: -1,
        flags: [LOADING, STALE],
        acl: [CONNECTION],
        tips: ["nondeterministic_output_order"],
    }

    CommandCount = "command|count" {
        summary: "Count the commands.",
        complexity: "O(1)",
        since: "2.8.13",
        arity: 2,
        flags: [LOADING, STALE],
        acl: [CONNECTION],
    }

    CommandDocs = "command|docs" {
        summary: "Document commands: those given, or all.",
        complexity: "O(N), N: commands described",
        since: "7.0.0",
        arity: -2,
        flags: [LOADING, STALE],
        acl: [CONNECTION],
        tips: ["nondeterministic_output_order"],
        args: [string("command-name").optional().multiple()],
    }

    CommandGetkeys = "command|getkeys" {
        summary: "Tell which arguments of a call are keys.",
        complexity: "O(N), N: arguments",
        since: "2.8.13",
        arity: -3,
        flags: [LOADING, STALE],
        acl: [CONNECTION],
        args: [string("command"), string("arg").optional().multiple()],
    }

    CommandGetkeysandflags = "command|getkeysandflags" {
        summary: "Tell which arguments of a call are keys, and how it would use them.",
        complexity: "O(N), N: arguments",
        since: "7.0.0",
        arity: -3,
        flags: [LOADING, STALE],
        acl: [CONNECTION],
        args: [string("command"), string("arg").optional().multiple()],
    }

    CommandHelp = "command|help" {
        summary: "List the subcommands of COMMAND.",
        complexity: "O(1)",
        since: "5.0.0",
        arity: 2,
        flags: [LOADING, STALE],
        acl: [CONNECTION],
    }

    CommandInfo = "command|info" {
        summary: "Describe commands: those given, or all.",
        complexity: "O(N), N: commands described",
        since: "2.8.13",
        history: [("7.0.0", "Without names: all commands.")],
        arity: -2,
        flags: [LOADING, STALE],
        acl: [CONNECTION],
        tips: ["nondeterministic_output_order"],
        args: [string("command-name").optional().multiple()],
    }

    CommandList = "command|list" {
        summary: "List the names of the commands, optionally filtered.",
        complexity: "O(N), N: commands",
        since: "7.0.0",
        arity: -2,
        flags: [LOADING, STALE],
        acl: [CONNECTION],
        tips: ["nondeterministic_output_order"],
        args: [
            one_of("filterby", &[
                string("module-name").token("MODULE"),
                string("category").token("ACLCAT"),
                pattern("pattern").token("PATTERN"),
            ]).token("FILTERBY").optional(),
        ],
    }

    // Valkey's, since its 8.1; this version marks it as missing in the reference.
    Commandlog = "commandlog" {
        summary: "Inspect the logs of commands that took or moved much.",
        since: "9.1.2",
        arity: -2,
    }

    CommandlogGet = "commandlog|get" {
        summary: "List the newest entries of a log; -1: all.",
        complexity: "O(N), N: entries returned",
        since: "9.1.2",
        arity: 4,
        flags: [ADMIN, LOADING, STALE],
        tips: ["request_policy:all_nodes", "nondeterministic_output"],
        args: [integer("count"), one_of("type", &[
                word("slow", "SLOW"),
                word("large-request", "LARGE-REQUEST"),
                word("large-reply", "LARGE-REPLY"),
            ])],
    }

    CommandlogHelp = "commandlog|help" {
        summary: "List the subcommands of COMMANDLOG.",
        complexity: "O(1)",
        since: "9.1.2",
        arity: 2,
        flags: [LOADING, STALE],
    }

    CommandlogLen = "commandlog|len" {
        summary: "Count the entries of a log.",
        complexity: "O(1)",
        since: "9.1.2",
        arity: 3,
        flags: [ADMIN, LOADING, STALE],
        tips: [
            "request_policy:all_nodes",
            "response_policy:agg_sum",
            "nondeterministic_output",
        ],
        args: [one_of("type", &[
                word("slow", "SLOW"),
                word("large-request", "LARGE-REQUEST"),
                word("large-reply", "LARGE-REPLY"),
            ])],
    }

    CommandlogReset = "commandlog|reset" {
        summary: "Empty a log.",
        complexity: "O(N), N: entries in the log",
        since: "9.1.2",
        arity: 3,
        flags: [ADMIN, LOADING, STALE],
        tips: ["request_policy:all_nodes", "response_policy:all_succeeded"],
        args: [one_of("type", &[
                word("slow", "SLOW"),
                word("large-request", "LARGE-REQUEST"),
                word("large-reply", "LARGE-REPLY"),
            ])],
    }

    Config = "config" {
        summary: "Read and change the server's configuration.",
        since: "2.0.0",
        arity: -2,
    }

    ConfigGet = "config|get" {
        summary: "Read the parameters whose names the patterns match.",
        complexity: "O(N), N: patterns",
        since: "2.0.0",
        history: [("7.0.0", "Several patterns.")],
        arity: -3,
        flags: [ADMIN, NOSCRIPT, LOADING, STALE],
        args: [string("parameter").multiple()],
    }

    ConfigHelp = "config|help" {
        summary: "List the subcommands of CONFIG.",
        complexity: "O(1)",
        since: "5.0.0",
        arity: 2,
        flags: [LOADING, STALE],
    }

    ConfigResetstat = "config|resetstat" {
        summary: "Set the counters that INFO shows back to zero.",
        complexity: "O(1)",
        since: "2.0.0",
        arity: 2,
        flags: [ADMIN, NOSCRIPT, LOADING, STALE],
        tips: ["request_policy:all_nodes", "response_policy:all_succeeded"],
    }

    ConfigRewrite = "config|rewrite" {
        summary: "Write the configuration in effect back to its file.",
        complexity: "O(1)",
        since: "2.8.0",
        arity: 2,
        flags: [ADMIN, NOSCRIPT, LOADING, STALE],
        tips: ["request_policy:all_nodes", "response_policy:all_succeeded"],
    }

    ConfigSet = "config|set" {
        summary: "Change parameters while the server runs: all or none.",
        complexity: "O(N), N: parameters",
        since: "2.0.0",
        history: [("7.0.0", "Several parameters.")],
        arity: -4,
        flags: [ADMIN, NOSCRIPT, LOADING, STALE],
        tips: ["request_policy:all_nodes", "response_policy:all_succeeded"],
        args: [block("data", &[string("parameter"), string("value")]).multiple()],
    }

    Dbsize = "dbsize" {
        summary: "Count the keys of the database.",
        complexity: "O(1)",
        since: "1.0.0",
        arity: 1,
        flags: [READONLY, FAST],
        acl: [KEYSPACE],
        tips: ["request_policy:all_shards", "response_policy:agg_sum"],
        scope: Counters,
    }

    Debug = "debug" {
        summary: "Run an internal command for testing.",
        since: "1.0.0",
        arity: -2,
        flags: [ADMIN, NOSCRIPT, LOADING, STALE, PROTECTED, SYSCMD],
        scope: All,
    }

    Failover = "failover" {
        summary: "Change roles with a replica, of which no write is lost.",
        complexity: "O(1)",
        since: "6.2.0",
        arity: -1,
        flags: [ADMIN, NOSCRIPT, STALE],
        args: [
            block("target", &[
                string("host"),
                integer("port"),
                word("force", "FORCE").optional(),
            ]).token("TO").optional(),
            word("abort", "ABORT").optional(),
            integer("milliseconds").token("TIMEOUT").optional(),
        ],
    }

    Flushall = "flushall" {
        summary: "Remove every key of every database.",
        complexity: "O(N), N: keys in all databases",
        since: "1.0.0",
        history: [("4.0.0", "ASYNC."), ("6.2.0", "SYNC.")],
        arity: -1,
        flags: [WRITE],
        acl: [KEYSPACE, DANGEROUS],
        tips: ["request_policy:all_shards", "response_policy:all_succeeded"],
        args: [
            one_of("flush-type", &[
                word("async", "ASYNC").since("4.0.0"),
                word("sync", "SYNC").since("6.2.0"),
            ]).optional(),
        ],
        scope: All,
        propagate: Effect,
    }

    Flushdb = "flushdb" {
        summary: "Remove every key of the database.",
        complexity: "O(N), N: keys in the database",
        since: "1.0.0",
        history: [("4.0.0", "ASYNC."), ("6.2.0", "SYNC.")],
        arity: -1,
        flags: [WRITE],
        acl: [KEYSPACE, DANGEROUS],
        tips: ["request_policy:all_shards", "response_policy:all_succeeded"],
        args: [
            one_of("flush-type", &[
                word("async", "ASYNC").since("4.0.0"),
                word("sync", "SYNC").since("6.2.0"),
            ]).optional(),
        ],
        scope: All,
        propagate: Effect,
    }

    Info = "info" {
        summary: "Report the server's state and counters.",
        complexity: "O(1)",
        since: "1.0.0",
        history: [("7.0.0", "Several sections.")],
        arity: -1,
        flags: [LOADING, STALE],
        acl: [DANGEROUS],
        tips: [
            "nondeterministic_output",
            "request_policy:all_shards",
            "response_policy:special",
        ],
        args: [string("section").optional().multiple()],
    }

    Lastsave = "lastsave" {
        summary: "Tell when data was last saved: at the start, if never.",
        complexity: "O(1)",
        since: "1.0.0",
        arity: 1,
        flags: [LOADING, STALE, FAST],
        acl: [ADMIN, DANGEROUS],
        tips: ["nondeterministic_output"],
    }

    Latency = "latency" {
        summary: "Inspect what took long, and how long commands take.",
        since: "2.8.13",
        arity: -2,
    }

    LatencyDoctor = "latency|doctor" {
        summary: "Explain the latency events in words.",
        complexity: "O(1)",
        since: "2.8.13",
        arity: 2,
        flags: [ADMIN, NOSCRIPT, LOADING, STALE],
        tips: [
            "nondeterministic_output",
            "request_policy:all_nodes",
            "response_policy:special",
        ],
    }

    LatencyGraph = "latency|graph" {
        summary: "Draw the recent latencies of an event.",
        complexity: "O(1)",
        since: "2.8.13",
        arity: 3,
        flags: [ADMIN, NOSCRIPT, LOADING, STALE],
        tips: [
            "nondeterministic_output",
            "request_policy:all_nodes",
            "response_policy:special",
        ],
        args: [string("event")],
    }

    LatencyHelp = "latency|help" {
        summary: "List the subcommands of LATENCY.",
        complexity: "O(1)",
        since: "2.8.13",
        arity: 2,
        flags: [LOADING, STALE],
    }

    LatencyHistogram = "latency|histogram" {
        summary: "Show how the times of commands are distributed.",
        complexity: "O(N), N: commands",
        since: "7.0.0",
        arity: -2,
        flags: [ADMIN, NOSCRIPT, LOADING, STALE],
        tips: [
            "nondeterministic_output",
            "request_policy:all_nodes",
            "response_policy:special",
        ],
        args: [string("command").optional().multiple()],
    }

    LatencyHistory = "latency|history" {
        summary: "List the recent latencies of an event.",
        complexity: "O(1)",
        since: "2.8.13",
        arity: 3,
        flags: [ADMIN, NOSCRIPT, LOADING, STALE],
        tips: [
            "nondeterministic_output",
            "request_policy:all_nodes",
            "response_policy:special",
        ],
        args: [string("event")],
    }

    LatencyLatest = "latency|latest" {
        summary: "List the latest latency of every event.",
        complexity: "O(1)",
        since: "2.8.13",
        arity: 2,
        flags: [ADMIN, NOSCRIPT, LOADING, STALE],
        tips: [
            "nondeterministic_output",
            "request_policy:all_nodes",
            "response_policy:special",
        ],
    }

    LatencyReset = "latency|reset" {
        summary: "Forget the latencies of the events given, or of all.",
        complexity: "O(1)",
        since: "2.8.13",
        arity: -2,
        flags: [ADMIN, NOSCRIPT, LOADING, STALE],
        tips: ["request_policy:all_nodes", "response_policy:agg_sum"],
        args: [string("event").optional().multiple()],
    }

    Lolwut = "lolwut" {
        summary: "Draw a picture, and tell the version.",
        since: "5.0.0",
        arity: -1,
        flags: [READONLY, FAST],
        args: [integer("version").token("VERSION").optional()],
    }

    Memory = "memory" {
        summary: "Inspect the use of memory.",
        since: "4.0.0",
        arity: -2,
    }

    MemoryDoctor = "memory|doctor" {
        summary: "Explain what is remarkable about the use of memory.",
        complexity: "O(1)",
        since: "4.0.0",
        arity: 2,
        tips: [
            "nondeterministic_output",
            "request_policy:all_shards",
            "response_policy:special",
        ],
    }

    MemoryHelp = "memory|help" {
        summary: "List the subcommands of MEMORY.",
        complexity: "O(1)",
        since: "4.0.0",
        arity: 2,
        flags: [LOADING, STALE],
    }

    MemoryMallocStats = "memory|malloc-stats" {
        summary: "Show the allocator's own figures.",
        complexity: "O(1)",
        since: "4.0.0",
        arity: 2,
        tips: [
            "nondeterministic_output",
            "request_policy:all_shards",
            "response_policy:special",
        ],
    }

    MemoryPurge = "memory|purge" {
        summary: "Give memory back that is kept for later.",
        complexity: "O(N), N: bytes kept",
        since: "4.0.0",
        arity: 2,
        tips: ["request_policy:all_shards", "response_policy:all_succeeded"],
    }

    MemoryStats = "memory|stats" {
        summary: "List what memory is used for.",
        complexity: "O(1)",
        since: "4.0.0",
        arity: 2,
        tips: [
            "nondeterministic_output",
            "request_policy:all_shards",
            "response_policy:special",
        ],
    }

    MemoryUsage = "memory|usage" {
        summary: "Estimate the bytes that a key and its value take.",
        complexity: "O(N), N: elements sampled",
        since: "4.0.0",
        arity: -3,
        flags: [READONLY],
        keys: [KeySpec::at(2, INSPECT)],
        args: [key("key"), integer("count").token("SAMPLES").optional()],
    }

    Module = "module" {
        summary: "Ask for modules.",
        since: "4.0.0",
        arity: -2,
    }

    ModuleHelp = "module|help" {
        summary: "List the subcommands of MODULE.",
        complexity: "O(1)",
        since: "5.0.0",
        arity: 2,
        flags: [LOADING, STALE],
    }

    ModuleList = "module|list" {
        summary: "List what Redis has as modules and is built in here.",
        complexity: "O(N), N: modules",
        since: "4.0.0",
        arity: 2,
        flags: [ADMIN, NOSCRIPT],
        tips: ["nondeterministic_output_order"],
    }

    Monitor = "monitor" {
        summary: "Show every command that runs from now on.",
        since: "1.0.0",
        arity: 1,
        flags: [ADMIN, NOSCRIPT, LOADING, STALE],
    }

    Psync = "psync" {
        summary: "Ask for the stream of changes, as a replica does.",
        since: "2.8.0",
        arity: -3,
        flags: [ADMIN, NOSCRIPT, NO_ASYNC_LOADING, NO_MULTI],
        args: [string("replicationid"), integer("offset")],
    }

    Replconf = "replconf" {
        summary: "Tell the other side of replication something.",
        complexity: "O(1)",
        since: "3.0.0",
        arity: -1,
        flags: [ADMIN, NOSCRIPT, LOADING, STALE, ALLOW_BUSY, SYSCMD],
    }

    Replicaof = "replicaof" {
        summary: "Be a replica of another server, or of none any more.",
        complexity: "O(1)",
        since: "5.0.0",
        arity: 3,
        flags: [ADMIN, NOSCRIPT, STALE, NO_ASYNC_LOADING],
        args: [REPLICA_OF],
    }

    RestoreAsking = "restore-asking" {
        summary: "RESTORE, as a cluster sends it that moves a slot.",
        complexity: "O(1) to make the key and O(N*M) to read it, N: elements, M: their average size; O(N*M*log(N)) for sorted sets",
        since: "3.0.0",
        history: [
            ("3.0.0", "REPLACE."),
            ("5.0.0", "ABSTTL."),
            ("5.0.0", "IDLETIME and FREQ."),
        ],
        arity: -4,
        flags: [WRITE, DENYOOM, ASKING, SYSCMD],
        acl: [KEYSPACE, DANGEROUS],
        keys: [KeySpec::at(1, OVERWRITE)],
        args: [
            key("key"),
            integer("ttl"),
            string("serialized-value"),
            word("replace", "REPLACE").since("3.0.0").optional(),
            word("absttl", "ABSTTL").since("5.0.0").optional(),
            integer("seconds").token("IDLETIME").since("5.0.0").optional(),
            integer("frequency").token("FREQ").since("5.0.0").optional(),
        ],
        propagate: Effect,
    }

    Role = "role" {
        summary: "Tell what the server is in replication, and who its replicas are.",
        complexity: "O(1)",
        since: "2.8.12",
        arity: 1,
        flags: [NOSCRIPT, LOADING, STALE, FAST],
        acl: [ADMIN, DANGEROUS],
    }

    Save = "save" {
        summary: "Save a snapshot, and answer when the file is there.",
        complexity: "O(N), N: keys",
        since: "1.0.0",
        arity: 1,
        flags: [ADMIN, NOSCRIPT, NO_MULTI, NO_ASYNC_LOADING],
    }

    Shutdown = "shutdown" {
        summary: "End the server.",
        complexity: "O(N), N: keys saved, if it saves; otherwise O(1)",
        since: "1.0.0",
        history: [("7.0.0", "NOW, FORCE and ABORT.")],
        arity: -1,
        flags: [ADMIN, NOSCRIPT, LOADING, STALE, NO_MULTI, ALLOW_BUSY],
        args: [
            one_of("save-selector", &[
                word("nosave", "NOSAVE"),
                word("save", "SAVE"),
            ]).optional(),
            word("now", "NOW").since("7.0.0").optional(),
            word("force", "FORCE").since("7.0.0").optional(),
            word("abort", "ABORT").since("7.0.0").optional(),
        ],
    }

    Slaveof = "slaveof" {
        summary: "REPLICAOF, by its old name.",
        complexity: "O(1)",
        since: "1.0.0",
        deprecated: { since: "5.0.0", replaced_by: "`REPLICAOF`" },
        arity: 3,
        flags: [ADMIN, NOSCRIPT, STALE, NO_ASYNC_LOADING],
        args: [REPLICA_OF],
    }

    Slowlog = "slowlog" {
        summary: "Inspect the log of slow commands.",
        since: "2.2.12",
        arity: -2,
    }

    SlowlogGet = "slowlog|get" {
        summary: "List the newest slow commands: ten, or as many as asked for.",
        complexity: "O(N), N: entries returned",
        since: "2.2.12",
        history: [("4.0.0", "Address and name of the client.")],
        arity: -2,
        flags: [ADMIN, LOADING, STALE],
        tips: ["request_policy:all_nodes", "nondeterministic_output"],
        args: [integer("count").optional()],
    }

    SlowlogHelp = "slowlog|help" {
        summary: "List the subcommands of SLOWLOG.",
        complexity: "O(1)",
        since: "6.2.0",
        arity: 2,
        flags: [LOADING, STALE],
    }

    SlowlogLen = "slowlog|len" {
        summary: "Count the entries of the slow log.",
        complexity: "O(1)",
        since: "2.2.12",
        arity: 2,
        flags: [ADMIN, LOADING, STALE],
        tips: [
            "request_policy:all_nodes",
            "response_policy:agg_sum",
            "nondeterministic_output",
        ],
    }

    SlowlogReset = "slowlog|reset" {
        summary: "Empty the slow log.",
        complexity: "O(N), N: entries in the log",
        since: "2.2.12",
        arity: 2,
        flags: [ADMIN, LOADING, STALE],
        tips: ["request_policy:all_nodes", "response_policy:all_succeeded"],
    }

    Swapdb = "swapdb" {
        summary: "Exchange the contents of two databases.",
        complexity: "O(N), N: clients that watch or wait for keys of either",
        since: "4.0.0",
        arity: 3,
        flags: [WRITE, FAST],
        acl: [KEYSPACE, DANGEROUS],
        args: [integer("index1"), integer("index2")],
        scope: All,
    }

    Sync = "sync" {
        summary: "Ask for a snapshot and the stream of changes behind it, as replicas of old did.",
        since: "1.0.0",
        arity: 1,
        flags: [ADMIN, NOSCRIPT, NO_ASYNC_LOADING, NO_MULTI],
    }

    Time = "time" {
        summary: "Tell the server's clock: seconds and microseconds.",
        complexity: "O(1)",
        since: "2.6.0",
        arity: 1,
        flags: [LOADING, STALE, FAST],
        tips: ["nondeterministic_output"],
    }
}
