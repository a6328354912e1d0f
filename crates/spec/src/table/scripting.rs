//! Scripts: the rows of the group `scripting`. Rows only.

use super::prelude::*;

rows! { Scripting:
    Eval = "eval" {
        summary: "",
        since: "2.6.0",
        arity: -3,
        flags: [NOSCRIPT, STALE, SKIP_MONITOR, MAY_REPLICATE, NO_MANDATORY_KEYS],
        acl: [SCRIPTING],
        keys: [
            KeySpec::counted_at(2, READ_UPDATE)
            .note(""),
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
        summary: "",
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
        summary: "",
        since: "2.6.0",
        arity: -2,
    }

    ScriptExists = "script|exists" {
        summary: "",
        since: "2.6.0",
        arity: -3,
        flags: [NOSCRIPT],
        acl: [SCRIPTING],
        tips: ["request_policy:all_shards", "response_policy:agg_logical_and"],
        args: [string("sha1").multiple()],
    }

    ScriptFlush = "script|flush" {
        summary: "",
        since: "2.6.0",
        history: [("6.2.0", "")],
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
    }

    ScriptHelp = "script|help" {
        summary: "",
        complexity: "O(1)",
        since: "5.0.0",
        arity: 2,
        flags: [LOADING, STALE],
        acl: [SCRIPTING],
    }

    ScriptKill = "script|kill" {
        summary: "",
        complexity: "O(1)",
        since: "2.6.0",
        arity: 2,
        flags: [NOSCRIPT, ALLOW_BUSY],
        acl: [SCRIPTING],
        tips: ["request_policy:all_shards", "response_policy:one_succeeded"],
    }

    ScriptLoad = "script|load" {
        summary: "",
        since: "2.6.0",
        arity: 3,
        flags: [NOSCRIPT, STALE],
        acl: [SCRIPTING],
        tips: ["request_policy:all_nodes", "response_policy:all_succeeded"],
        args: [string("script")],
    }
}
