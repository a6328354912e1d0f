//! Scripts: the rows of the group `scripting`. Rows only.

use super::prelude::*;

rows! { Scripting:
    Eval = "eval" {
        summary: "Run a Lua script.",
        complexity: "That of the script.",
        since: "2.6.0",
        arity: -3,
        flags: [NOSCRIPT, STALE, SKIP_MONITOR, MAY_REPLICATE, NO_MANDATORY_KEYS],
        acl: [SCRIPTING],
        keys: [
            KeySpec::counted_at(2, READ_UPDATE)
                .note("What a script does with its keys shows only when it runs."),
        ],
        args: [
            string("script"),
            integer("numkeys"),
            key("key").optional().multiple(),
            string("arg").optional().multiple(),
        ],
        scope: KeysPlus,
        propagate: Effect,
    }

    Evalsha = "evalsha" {
        summary: "Run a Lua script that the server knows by its SHA1 digest.",
        complexity: "That of the script.",
        since: "2.6.0",
        arity: -3,
        flags: [NOSCRIPT, STALE, SKIP_MONITOR, MAY_REPLICATE, NO_MANDATORY_KEYS],
        acl: [SCRIPTING],
        keys: [KeySpec::counted_at(2, READ_UPDATE)],
        args: [
            string("sha1"),
            integer("numkeys"),
            key("key").optional().multiple(),
            string("arg").optional().multiple(),
        ],
        scope: KeysPlus,
        propagate: Effect,
    }

    Script = "script" {
        summary: "Manage the scripts the server keeps.",
        since: "2.6.0",
        arity: -2,
    }

    ScriptExists = "script|exists" {
        summary: "Tell for each digest given whether its script is kept.",
        complexity: "O(N), N: digests",
        since: "2.6.0",
        arity: -3,
        flags: [NOSCRIPT],
        acl: [SCRIPTING],
        tips: ["request_policy:all_shards", "response_policy:agg_logical_and"],
        args: [string("sha1").multiple()],
        routing: AllNodes,
    }

    ScriptFlush = "script|flush" {
        summary: "Forget all scripts.",
        complexity: "O(N), N: scripts kept",
        since: "2.6.0",
        history: [("6.2.0", "ASYNC and SYNC.")],
        arity: -2,
        flags: [NOSCRIPT],
        acl: [SCRIPTING],
        tips: ["request_policy:all_nodes", "response_policy:all_succeeded"],
        args: [
            one_of("flush-type", &[
                word("async", "ASYNC"),
                word("sync", "SYNC"),
            ]).since("6.2.0").optional(),
        ],
        routing: AllNodes,
    }

    ScriptHelp = "script|help" {
        summary: "List the subcommands of SCRIPT.",
        complexity: "O(1)",
        since: "5.0.0",
        arity: 2,
        flags: [LOADING, STALE],
        acl: [SCRIPTING],
    }

    ScriptKill = "script|kill" {
        summary: "Stop the running script, provided that it has not written.",
        complexity: "O(1)",
        since: "2.6.0",
        arity: 2,
        flags: [NOSCRIPT, ALLOW_BUSY],
        acl: [SCRIPTING],
        tips: ["request_policy:all_shards", "response_policy:one_succeeded"],
        routing: AllNodes,
    }

    ScriptLoad = "script|load" {
        summary: "Keep a script without running it, and answer with its digest.",
        complexity: "O(N), N: bytes of the script",
        since: "2.6.0",
        arity: 3,
        flags: [NOSCRIPT, STALE],
        acl: [SCRIPTING],
        tips: ["request_policy:all_nodes", "response_policy:all_succeeded"],
        args: [string("script")],
        routing: AllNodes,
    }
}
