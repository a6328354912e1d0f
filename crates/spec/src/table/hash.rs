//! Hashes: the rows of the group `hash`. Rows only.

use super::prelude::*;

rows! { Hash:
    Hdel = "hdel" {
        summary: "",
        since: "2.0.0",
        history: [("2.4.0", "")],
        arity: -3,
        flags: [WRITE, FAST],
        acl: [HASH],
        keys: [KeySpec::at(1, DELETE)],
        args: [key("key"), string("field").multiple()],
    }

    Hexists = "hexists" {
        summary: "",
        complexity: "O(1)",
        since: "2.0.0",
        arity: 3,
        flags: [READONLY, FAST],
        acl: [HASH],
        keys: [KeySpec::at(1, INSPECT)],
        args: [key("key"), string("field")],
    }

    Hget = "hget" {
        summary: "",
        complexity: "O(1)",
        since: "2.0.0",
        arity: 3,
        flags: [READONLY, FAST],
        acl: [HASH],
        keys: [KeySpec::at(1, READ)],
        args: [key("key"), string("field")],
    }

    Hgetall = "hgetall" {
        summary: "",
        since: "2.0.0",
        arity: 2,
        flags: [READONLY],
        acl: [HASH],
        tips: ["nondeterministic_output_order"],
        keys: [KeySpec::at(1, READ)],
        args: [key("key")],
    }

    Hincrby = "hincrby" {
        summary: "",
        complexity: "O(1)",
        since: "2.0.0",
        arity: 4,
        flags: [WRITE, DENYOOM, FAST],
        acl: [HASH],
        keys: [KeySpec::at(1, READ_UPDATE)],
        args: [key("key"), string("field"), integer("increment")],
    }

    Hincrbyfloat = "hincrbyfloat" {
        summary: "",
        complexity: "O(1)",
        since: "2.6.0",
        arity: 4,
        flags: [WRITE, DENYOOM, FAST],
        acl: [HASH],
        keys: [KeySpec::at(1, READ_UPDATE)],
        args: [key("key"), string("field"), double("increment")],
        propagate: Effect,
    }

    Hkeys = "hkeys" {
        summary: "",
        since: "2.0.0",
        arity: 2,
        flags: [READONLY],
        acl: [HASH],
        tips: ["nondeterministic_output_order"],
        keys: [KeySpec::at(1, READ)],
        args: [key("key")],
    }

    Hlen = "hlen" {
        summary: "",
        complexity: "O(1)",
        since: "2.0.0",
        arity: 2,
        flags: [READONLY, FAST],
        acl: [HASH],
        keys: [KeySpec::at(1, INSPECT)],
        args: [key("key")],
    }

    Hmget = "hmget" {
        summary: "",
        since: "2.0.0",
        arity: -3,
        flags: [READONLY, FAST],
        acl: [HASH],
        keys: [KeySpec::at(1, READ)],
        args: [key("key"), string("field").multiple()],
    }

    Hmset = "hmset" {
        summary: "",
        since: "2.0.0",
        deprecated: { since: "4.0.0", replaced_by: "`HSET` with multiple field-value pairs" },
        arity: -4,
        flags: [WRITE, DENYOOM, FAST],
        acl: [HASH],
        keys: [KeySpec::at(1, UPDATE)],
        args: [key("key"), block("data", &[string("field"), string("value")]).multiple()],
    }

    Hrandfield = "hrandfield" {
        summary: "",
        since: "6.2.0",
        arity: -2,
        flags: [READONLY],
        acl: [HASH],
        tips: ["nondeterministic_output"],
        keys: [KeySpec::at(1, READ)],
        args: [
            key("key"),
            block("options", &[
                integer("count"),
                word("withvalues", "WITHVALUES").optional(),
            ]).optional(),
        ],
    }

    Hscan = "hscan" {
        summary: "",
        since: "2.8.0",
        arity: -3,
        flags: [READONLY],
        acl: [HASH],
        tips: ["nondeterministic_output"],
        keys: [KeySpec::at(1, READ)],
        args: [
            key("key"),
            integer("cursor"),
            pattern("pattern").token("MATCH").optional(),
            integer("count").token("COUNT").optional(),
            word("novalues", "NOVALUES").optional(),
        ],
    }

    Hset = "hset" {
        summary: "",
        since: "2.0.0",
        history: [("4.0.0", "")],
        arity: -4,
        flags: [WRITE, DENYOOM, FAST],
        acl: [HASH],
        keys: [KeySpec::at(1, UPDATE)],
        args: [key("key"), block("data", &[string("field"), string("value")]).multiple()],
    }

    Hsetnx = "hsetnx" {
        summary: "",
        complexity: "O(1)",
        since: "2.0.0",
        arity: 4,
        flags: [WRITE, DENYOOM, FAST],
        acl: [HASH],
        keys: [KeySpec::at(1, INSERT)],
        args: [key("key"), string("field"), string("value")],
    }

    Hstrlen = "hstrlen" {
        summary: "",
        complexity: "O(1)",
        since: "3.2.0",
        arity: 3,
        flags: [READONLY, FAST],
        acl: [HASH],
        keys: [KeySpec::at(1, INSPECT)],
        args: [key("key"), string("field")],
    }

    Hvals = "hvals" {
        summary: "",
        since: "2.0.0",
        arity: 2,
        flags: [READONLY],
        acl: [HASH],
        tips: ["nondeterministic_output_order"],
        keys: [KeySpec::at(1, READ)],
        args: [key("key")],
    }
}
