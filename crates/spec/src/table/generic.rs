//! Keys whatever their type: the rows of the group `generic`. Rows only.

use super::prelude::*;

rows! { Generic:
    Copy = "copy" {
        summary: "",
        since: "6.2.0",
        arity: -3,
        flags: [WRITE, DENYOOM],
        acl: [KEYSPACE],
        keys: [KeySpec::at(1, READ), KeySpec::at(2, OVERWRITE)],
        args: [
            key("source"),
            key_of_spec("destination", 1),
            integer("destination-db").token("DB").optional(),
            word("replace", "REPLACE").optional(),
        ],
    }

    Del = "del" {
        summary: "",
        since: "1.0.0",
        arity: -2,
        flags: [WRITE],
        acl: [KEYSPACE],
        tips: ["request_policy:multi_shard", "response_policy:agg_sum"],
        keys: [KeySpec::range(1, -1, 1, REMOVE)],
        args: [key("key").multiple()],
    }

    Exists = "exists" {
        summary: "",
        since: "1.0.0",
        history: [("3.0.3", "")],
        arity: -2,
        flags: [READONLY, FAST],
        acl: [KEYSPACE],
        tips: ["request_policy:multi_shard", "response_policy:agg_sum"],
        keys: [KeySpec::range(1, -1, 1, INSPECT)],
        args: [key("key").multiple()],
    }

    Expire = "expire" {
        summary: "",
        complexity: "O(1)",
        since: "1.0.0",
        history: [("7.0.0", "")],
        arity: -3,
        flags: [WRITE, FAST],
        acl: [KEYSPACE],
        keys: [KeySpec::at(1, UPDATE)],
        args: [
            key("key"),
            integer("seconds"),
            one_of("condition", &[
                word("nx", "NX"),
                word("xx", "XX"),
                word("gt", "GT"),
                word("lt", "LT"),
            ]).since("7.0.0").optional(),
        ],
        propagate: Effect,
    }

    Expireat = "expireat" {
        summary: "",
        complexity: "O(1)",
        since: "1.2.0",
        history: [("7.0.0", "")],
        arity: -3,
        flags: [WRITE, FAST],
        acl: [KEYSPACE],
        keys: [KeySpec::at(1, UPDATE)],
        args: [
            key("key"),
            unix_time("unix-time-seconds"),
            one_of("condition", &[
                word("nx", "NX"),
                word("xx", "XX"),
                word("gt", "GT"),
                word("lt", "LT"),
            ]).since("7.0.0").optional(),
        ],
        propagate: Effect,
    }

    Expiretime = "expiretime" {
        summary: "",
        complexity: "O(1)",
        since: "7.0.0",
        arity: 2,
        flags: [READONLY, FAST],
        acl: [KEYSPACE],
        keys: [KeySpec::at(1, READ)],
        args: [key("key")],
    }

    Keys = "keys" {
        summary: "",
        since: "1.0.0",
        arity: 2,
        flags: [READONLY],
        acl: [KEYSPACE, DANGEROUS],
        tips: ["request_policy:all_shards", "nondeterministic_output_order"],
        args: [pattern("pattern")],
        scope: All,
    }

    Move = "move" {
        summary: "",
        complexity: "O(1)",
        since: "1.0.0",
        arity: 3,
        flags: [WRITE, FAST],
        acl: [KEYSPACE],
        keys: [KeySpec::at(1, READ_UPDATE)],
        args: [key("key"), integer("db")],
    }

    Object = "object" {
        summary: "",
        since: "2.2.3",
        arity: -2,
    }

    ObjectEncoding = "object|encoding" {
        summary: "",
        complexity: "O(1)",
        since: "2.2.3",
        arity: 3,
        flags: [READONLY],
        acl: [KEYSPACE],
        tips: ["nondeterministic_output"],
        keys: [KeySpec::at(2, INSPECT)],
        args: [key("key")],
    }

    ObjectFreq = "object|freq" {
        summary: "",
        complexity: "O(1)",
        since: "4.0.0",
        arity: 3,
        flags: [READONLY],
        acl: [KEYSPACE],
        tips: ["nondeterministic_output"],
        keys: [KeySpec::at(2, INSPECT)],
        args: [key("key")],
    }

    ObjectHelp = "object|help" {
        summary: "",
        complexity: "O(1)",
        since: "6.2.0",
        arity: 2,
        flags: [LOADING, STALE],
        acl: [KEYSPACE],
    }

    ObjectIdletime = "object|idletime" {
        summary: "",
        complexity: "O(1)",
        since: "2.2.3",
        arity: 3,
        flags: [READONLY],
        acl: [KEYSPACE],
        tips: ["nondeterministic_output"],
        keys: [KeySpec::at(2, INSPECT)],
        args: [key("key")],
    }

    ObjectRefcount = "object|refcount" {
        summary: "",
        complexity: "O(1)",
        since: "2.2.3",
        arity: 3,
        flags: [READONLY],
        acl: [KEYSPACE],
        tips: ["nondeterministic_output"],
        keys: [KeySpec::at(2, INSPECT)],
        args: [key("key")],
    }

    Persist = "persist" {
        summary: "",
        complexity: "O(1)",
        since: "2.2.0",
        arity: 2,
        flags: [WRITE, FAST],
        acl: [KEYSPACE],
        keys: [KeySpec::at(1, UPDATE)],
        args: [key("key")],
    }

    Pexpire = "pexpire" {
        summary: "",
        complexity: "O(1)",
        since: "2.6.0",
        history: [("7.0.0", "")],
        arity: -3,
        flags: [WRITE, FAST],
        acl: [KEYSPACE],
        keys: [KeySpec::at(1, UPDATE)],
        args: [
            key("key"),
            integer("milliseconds"),
            one_of("condition", &[
                word("nx", "NX"),
                word("xx", "XX"),
                word("gt", "GT"),
                word("lt", "LT"),
            ]).since("7.0.0").optional(),
        ],
        propagate: Effect,
    }

    Pexpireat = "pexpireat" {
        summary: "",
        complexity: "O(1)",
        since: "2.6.0",
        history: [("7.0.0", "")],
        arity: -3,
        flags: [WRITE, FAST],
        acl: [KEYSPACE],
        keys: [KeySpec::at(1, UPDATE)],
        args: [
            key("key"),
            unix_time("unix-time-milliseconds"),
            one_of("condition", &[
                word("nx", "NX"),
                word("xx", "XX"),
                word("gt", "GT"),
                word("lt", "LT"),
            ]).since("7.0.0").optional(),
        ],
        propagate: Effect,
    }

    Pexpiretime = "pexpiretime" {
        summary: "",
        complexity: "O(1)",
        since: "7.0.0",
        arity: 2,
        flags: [READONLY, FAST],
        acl: [KEYSPACE],
        keys: [KeySpec::at(1, READ)],
        args: [key("key")],
    }

    Pttl = "pttl" {
        summary: "",
        complexity: "O(1)",
        since: "2.6.0",
        history: [("2.8.0", "")],
        arity: 2,
        flags: [READONLY, FAST],
        acl: [KEYSPACE],
        tips: ["nondeterministic_output"],
        keys: [KeySpec::at(1, READ)],
        args: [key("key")],
    }

    Randomkey = "randomkey" {
        summary: "",
        complexity: "O(1)",
        since: "1.0.0",
        arity: 1,
        flags: [READONLY],
        acl: [KEYSPACE],
        tips: [
            "request_policy:all_shards",
            "response_policy:special",
            "nondeterministic_output",
        ],
        scope: OneStripe,
    }

    Rename = "rename" {
        summary: "",
        complexity: "O(1)",
        since: "1.0.0",
        arity: 3,
        flags: [WRITE],
        acl: [KEYSPACE],
        keys: [KeySpec::at(1, READ_DELETE), KeySpec::at(2, OVERWRITE)],
        args: [key("key"), key_of_spec("newkey", 1)],
    }

    Renamenx = "renamenx" {
        summary: "",
        complexity: "O(1)",
        since: "1.0.0",
        history: [("3.2.0", "")],
        arity: 3,
        flags: [WRITE, FAST],
        acl: [KEYSPACE],
        keys: [KeySpec::at(1, READ_DELETE), KeySpec::at(2, CREATE)],
        args: [key("key"), key_of_spec("newkey", 1)],
    }

    Scan = "scan" {
        summary: "",
        since: "2.8.0",
        history: [("6.0.0", "")],
        arity: -2,
        flags: [READONLY],
        acl: [KEYSPACE],
        tips: ["nondeterministic_output", "request_policy:special", "response_policy:special"],
        args: [
            integer("cursor"),
            pattern("pattern").token("MATCH").optional(),
            integer("count").token("COUNT").optional(),
            string("type").token("TYPE").since("6.0.0").optional(),
        ],
        scope: OneStripe,
        routing: Cursor,
    }

    Touch = "touch" {
        summary: "",
        since: "3.2.1",
        arity: -2,
        flags: [READONLY, FAST],
        acl: [KEYSPACE],
        tips: ["request_policy:multi_shard", "response_policy:agg_sum"],
        keys: [KeySpec::range(1, -1, 1, INSPECT)],
        args: [key("key").multiple()],
    }

    Ttl = "ttl" {
        summary: "",
        complexity: "O(1)",
        since: "1.0.0",
        history: [("2.8.0", "")],
        arity: 2,
        flags: [READONLY, FAST],
        acl: [KEYSPACE],
        tips: ["nondeterministic_output"],
        keys: [KeySpec::at(1, READ)],
        args: [key("key")],
    }

    Type = "type" {
        summary: "",
        complexity: "O(1)",
        since: "1.0.0",
        arity: 2,
        flags: [READONLY, FAST],
        acl: [KEYSPACE],
        keys: [KeySpec::at(1, INSPECT)],
        args: [key("key")],
    }

    Unlink = "unlink" {
        summary: "",
        since: "4.0.0",
        arity: -2,
        flags: [WRITE, FAST],
        acl: [KEYSPACE],
        tips: ["request_policy:multi_shard", "response_policy:agg_sum"],
        keys: [KeySpec::range(1, -1, 1, REMOVE)],
        args: [key("key").multiple()],
    }
}
