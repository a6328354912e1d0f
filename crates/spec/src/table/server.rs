//! The server as a whole: the rows of the group `server`. Rows only.

use super::prelude::*;

rows! { Server:
    Command = "command" {
        summary: "",
        since: "2.8.13",
        arity: -1,
        flags: [LOADING, STALE],
        acl: [CONNECTION],
        tips: ["nondeterministic_output_order"],
    }

    CommandCount = "command|count" {
        summary: "",
        complexity: "O(1)",
        since: "2.8.13",
        arity: 2,
        flags: [LOADING, STALE],
        acl: [CONNECTION],
    }

    CommandDocs = "command|docs" {
        summary: "",
        since: "7.0.0",
        arity: -2,
        flags: [LOADING, STALE],
        acl: [CONNECTION],
        tips: ["nondeterministic_output_order"],
        args: [string("command-name").optional().multiple()],
    }

    CommandGetkeys = "command|getkeys" {
        summary: "",
        since: "2.8.13",
        arity: -3,
        flags: [LOADING, STALE],
        acl: [CONNECTION],
        args: [string("command"), string("arg").optional().multiple()],
    }

    CommandGetkeysandflags = "command|getkeysandflags" {
        summary: "",
        since: "7.0.0",
        arity: -3,
        flags: [LOADING, STALE],
        acl: [CONNECTION],
        args: [string("command"), string("arg").optional().multiple()],
    }

    CommandHelp = "command|help" {
        summary: "",
        complexity: "O(1)",
        since: "5.0.0",
        arity: 2,
        flags: [LOADING, STALE],
        acl: [CONNECTION],
    }

    CommandInfo = "command|info" {
        summary: "",
        since: "2.8.13",
        history: [("7.0.0", "")],
        arity: -2,
        flags: [LOADING, STALE],
        acl: [CONNECTION],
        tips: ["nondeterministic_output_order"],
        args: [string("command-name").optional().multiple()],
    }

    CommandList = "command|list" {
        summary: "",
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

    Config = "config" {
        summary: "",
        since: "2.0.0",
        arity: -2,
    }

    ConfigGet = "config|get" {
        summary: "",
        since: "2.0.0",
        history: [("7.0.0", "")],
        arity: -3,
        flags: [ADMIN, NOSCRIPT, LOADING, STALE],
        args: [string("parameter").multiple()],
    }

    ConfigHelp = "config|help" {
        summary: "",
        complexity: "O(1)",
        since: "5.0.0",
        arity: 2,
        flags: [LOADING, STALE],
    }

    ConfigResetstat = "config|resetstat" {
        summary: "",
        complexity: "O(1)",
        since: "2.0.0",
        arity: 2,
        flags: [ADMIN, NOSCRIPT, LOADING, STALE],
        tips: ["request_policy:all_nodes", "response_policy:all_succeeded"],
    }

    ConfigRewrite = "config|rewrite" {
        summary: "",
        complexity: "O(1)",
        since: "2.8.0",
        arity: 2,
        flags: [ADMIN, NOSCRIPT, LOADING, STALE],
        tips: ["request_policy:all_nodes", "response_policy:all_succeeded"],
    }

    ConfigSet = "config|set" {
        summary: "",
        since: "2.0.0",
        history: [("7.0.0", "")],
        arity: -4,
        flags: [ADMIN, NOSCRIPT, LOADING, STALE],
        tips: ["request_policy:all_nodes", "response_policy:all_succeeded"],
        args: [block("data", &[string("parameter"), string("value")]).multiple()],
    }

    Dbsize = "dbsize" {
        summary: "",
        complexity: "O(1)",
        since: "1.0.0",
        arity: 1,
        flags: [READONLY, FAST],
        acl: [KEYSPACE],
        tips: ["request_policy:all_shards", "response_policy:agg_sum"],
        scope: Counters,
    }

    Debug = "debug" {
        summary: "",
        since: "1.0.0",
        arity: -2,
        flags: [ADMIN, NOSCRIPT, LOADING, STALE, PROTECTED, SYSCMD],
    }

    Flushall = "flushall" {
        summary: "",
        since: "1.0.0",
        history: [("4.0.0", ""), ("6.2.0", "")],
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
    }

    Flushdb = "flushdb" {
        summary: "",
        since: "1.0.0",
        history: [("4.0.0", ""), ("6.2.0", "")],
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
    }

    Info = "info" {
        summary: "",
        complexity: "O(1)",
        since: "1.0.0",
        history: [("7.0.0", "")],
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

    Lolwut = "lolwut" {
        summary: "",
        since: "5.0.0",
        arity: -1,
        flags: [READONLY, FAST],
        args: [integer("version").token("VERSION").optional()],
    }

    Memory = "memory" {
        summary: "",
        since: "4.0.0",
        arity: -2,
    }

    MemoryHelp = "memory|help" {
        summary: "",
        complexity: "O(1)",
        since: "4.0.0",
        arity: 2,
        flags: [LOADING, STALE],
    }

    MemoryUsage = "memory|usage" {
        summary: "",
        since: "4.0.0",
        arity: -3,
        flags: [READONLY],
        keys: [KeySpec::at(2, INSPECT)],
        args: [key("key"), integer("count").token("SAMPLES").optional()],
    }

    Shutdown = "shutdown" {
        summary: "",
        since: "1.0.0",
        history: [("7.0.0", "")],
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

    Swapdb = "swapdb" {
        summary: "",
        since: "4.0.0",
        arity: 3,
        flags: [WRITE, FAST],
        acl: [KEYSPACE, DANGEROUS],
        args: [integer("index1"), integer("index2")],
        scope: All,
    }

    Time = "time" {
        summary: "",
        complexity: "O(1)",
        since: "2.6.0",
        arity: 1,
        flags: [LOADING, STALE, FAST],
        tips: ["nondeterministic_output"],
    }
}
