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

    // Valkey's, since its 8.0; this version marks it as missing in the reference.
    ScriptShow = "script|show" {
        summary: "Show the text of a script that the server keeps.",
        complexity: "O(1)",
        since: "9.1.2",
        arity: 3,
        flags: [NOSCRIPT, STALE],
        acl: [SCRIPTING],
        args: [string("sha1")],
    }

    EvalRo = "eval_ro" {
        summary: "Run a Lua script that may not write.",
        complexity: "That of the script.",
        since: "7.0.0",
        arity: -3,
        flags: [READONLY, NOSCRIPT, STALE, SKIP_MONITOR, NO_MANDATORY_KEYS],
        acl: [SCRIPTING],
        keys: [
            KeySpec::counted_at(2, READ)
                .note("What a script does with its keys shows only when it runs."),
        ],
        args: [
            string("script"),
            integer("numkeys"),
            key("key").optional().multiple(),
            string("arg").optional().multiple(),
        ],
        scope: KeysPlus,
        propagate: None,
    }

    EvalshaRo = "evalsha_ro" {
        summary: "Run a Lua script that the server knows by its SHA1 digest, and that may not write.",
        complexity: "That of the script.",
        since: "7.0.0",
        arity: -3,
        flags: [READONLY, NOSCRIPT, STALE, SKIP_MONITOR, NO_MANDATORY_KEYS],
        acl: [SCRIPTING],
        keys: [KeySpec::counted_at(2, READ)],
        args: [
            string("sha1"),
            integer("numkeys"),
            key("key").optional().multiple(),
            string("arg").optional().multiple(),
        ],
        scope: KeysPlus,
        propagate: None,
    }

    Fcall = "fcall" {
        summary: "Call a function.",
        complexity: "That of the script.",
        since: "7.0.0",
        arity: -3,
        flags: [NOSCRIPT, STALE, SKIP_MONITOR, MAY_REPLICATE, NO_MANDATORY_KEYS],
        acl: [SCRIPTING],
        keys: [
            KeySpec::counted_at(2, READ_UPDATE)
                .note("What a script does with its keys shows only when it runs."),
        ],
        args: [
            string("function"),
            integer("numkeys"),
            key("key").optional().multiple(),
            string("arg").optional().multiple(),
        ],
        scope: KeysPlus,
        propagate: Effect,
    }

    FcallRo = "fcall_ro" {
        summary: "Call a function that may not write.",
        complexity: "That of the script.",
        since: "7.0.0",
        arity: -3,
        flags: [READONLY, NOSCRIPT, STALE, SKIP_MONITOR, NO_MANDATORY_KEYS],
        acl: [SCRIPTING],
        keys: [
            KeySpec::counted_at(2, READ)
                .note("What a script does with its keys shows only when it runs."),
        ],
        args: [
            string("function"),
            integer("numkeys"),
            key("key").optional().multiple(),
            string("arg").optional().multiple(),
        ],
        scope: KeysPlus,
        propagate: None,
    }

    Function = "function" {
        summary: "Manage libraries of functions.",
        since: "7.0.0",
        arity: -2,
    }

    FunctionDelete = "function|delete" {
        summary: "Delete a library with its functions.",
        complexity: "O(1)",
        since: "7.0.0",
        arity: 3,
        flags: [WRITE, NOSCRIPT],
        acl: [SCRIPTING],
        tips: ["request_policy:all_shards", "response_policy:all_succeeded"],
        args: [string("library-name")],
        scope: KeysPlus,
        propagate: Verbatim,
        routing: AllNodes,
    }

    FunctionDump = "function|dump" {
        summary: "Answer with all libraries in serialised form.",
        complexity: "O(N), N: functions",
        since: "7.0.0",
        arity: 2,
        flags: [NOSCRIPT],
        acl: [SCRIPTING],
    }

    FunctionFlush = "function|flush" {
        summary: "Delete all libraries.",
        complexity: "O(N), N: functions",
        since: "7.0.0",
        arity: -2,
        flags: [WRITE, NOSCRIPT],
        acl: [SCRIPTING],
        tips: ["request_policy:all_shards", "response_policy:all_succeeded"],
        args: [one_of("flush-type", &[
            word("async", "ASYNC"),
            word("sync", "SYNC"),
        ]).optional()],
        scope: KeysPlus,
        propagate: Verbatim,
        routing: AllNodes,
    }

    FunctionHelp = "function|help" {
        summary: "List the subcommands of FUNCTION.",
        complexity: "O(1)",
        since: "7.0.0",
        arity: 2,
        flags: [LOADING, STALE],
        acl: [SCRIPTING],
    }

    FunctionKill = "function|kill" {
        summary: "Stop the running function, provided that it has not written.",
        complexity: "O(1)",
        since: "7.0.0",
        arity: 2,
        flags: [NOSCRIPT, ALLOW_BUSY],
        acl: [SCRIPTING],
        tips: ["request_policy:all_shards", "response_policy:one_succeeded"],
        routing: AllNodes,
    }

    FunctionList = "function|list" {
        summary: "List the libraries with their functions.",
        complexity: "O(N), N: functions",
        since: "7.0.0",
        arity: -2,
        flags: [NOSCRIPT],
        acl: [SCRIPTING],
        tips: ["nondeterministic_output_order"],
        args: [string("library-name-pattern").token("LIBRARYNAME").optional(), word("withcode", "WITHCODE").optional()],
    }

    FunctionLoad = "function|load" {
        summary: "Add a library.",
        complexity: "O(1), beside the run of its text",
        since: "7.0.0",
        arity: -3,
        flags: [WRITE, DENYOOM, NOSCRIPT],
        acl: [SCRIPTING],
        tips: ["request_policy:all_shards", "response_policy:all_succeeded"],
        args: [word("replace", "REPLACE").optional(), string("function-code")],
        scope: KeysPlus,
        propagate: Verbatim,
        routing: AllNodes,
    }

    FunctionRestore = "function|restore" {
        summary: "Add the libraries of a payload that FUNCTION DUMP has made.",
        complexity: "O(N), N: functions in the payload",
        since: "7.0.0",
        arity: -3,
        flags: [WRITE, DENYOOM, NOSCRIPT],
        acl: [SCRIPTING],
        tips: ["request_policy:all_shards", "response_policy:all_succeeded"],
        args: [string("serialized-value"), one_of("policy", &[
            word("flush", "FLUSH"),
            word("append", "APPEND"),
            word("replace", "REPLACE"),
        ]).optional()],
        scope: KeysPlus,
        propagate: Verbatim,
        routing: AllNodes,
    }

    FunctionStats = "function|stats" {
        summary: "Tell which function is running, and how many there are.",
        complexity: "O(1)",
        since: "7.0.0",
        arity: 2,
        flags: [NOSCRIPT, ALLOW_BUSY],
        acl: [SCRIPTING],
        tips: ["nondeterministic_output", "request_policy:all_shards", "response_policy:special"],
        routing: AllNodes,
    }

    ScriptDebug = "script|debug" {
        summary: "Choose how later scripts are debugged.",
        complexity: "O(1)",
        since: "3.2.0",
        arity: 3,
        flags: [NOSCRIPT],
        acl: [SCRIPTING],
        args: [
            one_of("mode", &[
                word("yes", "YES"),
                word("sync", "SYNC"),
                word("no", "NO"),
            ]),
        ],
    }
}
