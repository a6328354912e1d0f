//! Strings: the rows of the group `string`. Rows only.

use super::prelude::*;

rows! { String:
    Append = "append" {
        summary: "",
        since: "2.0.0",
        arity: 3,
        flags: [WRITE, DENYOOM, FAST],
        acl: [STRING],
        keys: [KeySpec::at(1, INSERT)],
        args: [key("key"), string("value")],
    }

    Decr = "decr" {
        summary: "",
        complexity: "O(1)",
        since: "1.0.0",
        arity: 2,
        flags: [WRITE, DENYOOM, FAST],
        acl: [STRING],
        keys: [KeySpec::at(1, READ_UPDATE)],
        args: [key("key")],
    }

    Decrby = "decrby" {
        summary: "",
        complexity: "O(1)",
        since: "1.0.0",
        arity: 3,
        flags: [WRITE, DENYOOM, FAST],
        acl: [STRING],
        keys: [KeySpec::at(1, READ_UPDATE)],
        args: [key("key"), integer("decrement")],
    }

    Get = "get" {
        summary: "",
        complexity: "O(1)",
        since: "1.0.0",
        arity: 2,
        flags: [READONLY, FAST],
        acl: [STRING],
        keys: [KeySpec::at(1, READ)],
        args: [key("key")],
    }

    Getdel = "getdel" {
        summary: "",
        complexity: "O(1)",
        since: "6.2.0",
        arity: 2,
        flags: [WRITE, FAST],
        acl: [STRING],
        keys: [KeySpec::at(1, READ_DELETE)],
        args: [key("key")],
        propagate: Effect,
    }

    Getex = "getex" {
        summary: "",
        complexity: "O(1)",
        since: "6.2.0",
        arity: -2,
        flags: [WRITE, FAST],
        acl: [STRING],
        keys: [
            KeySpec::at(1, READ_UPDATE)
            .note(""),
        ],
        args: [
            key("key"),
            one_of("expiration", &[
                integer("seconds").token("EX"),
                integer("milliseconds").token("PX"),
                unix_time("unix-time-seconds").token("EXAT"),
                unix_time("unix-time-milliseconds").token("PXAT"),
                word("persist", "PERSIST"),
            ]).optional(),
        ],
        propagate: Effect,
    }

    Getrange = "getrange" {
        summary: "",
        since: "2.4.0",
        arity: 4,
        flags: [READONLY],
        acl: [STRING],
        keys: [KeySpec::at(1, READ)],
        args: [key("key"), integer("start"), integer("end")],
    }

    Getset = "getset" {
        summary: "",
        complexity: "O(1)",
        since: "1.0.0",
        deprecated: { since: "6.2.0", replaced_by: "`SET` with the `!GET` argument" },
        arity: 3,
        flags: [WRITE, DENYOOM, FAST],
        acl: [STRING],
        keys: [KeySpec::at(1, READ_UPDATE)],
        args: [key("key"), string("value")],
        propagate: Effect,
    }

    Incr = "incr" {
        summary: "",
        complexity: "O(1)",
        since: "1.0.0",
        arity: 2,
        flags: [WRITE, DENYOOM, FAST],
        acl: [STRING],
        keys: [KeySpec::at(1, READ_UPDATE)],
        args: [key("key")],
    }

    Incrby = "incrby" {
        summary: "",
        complexity: "O(1)",
        since: "1.0.0",
        arity: 3,
        flags: [WRITE, DENYOOM, FAST],
        acl: [STRING],
        keys: [KeySpec::at(1, READ_UPDATE)],
        args: [key("key"), integer("increment")],
    }

    Incrbyfloat = "incrbyfloat" {
        summary: "",
        complexity: "O(1)",
        since: "2.6.0",
        arity: 3,
        flags: [WRITE, DENYOOM, FAST],
        acl: [STRING],
        keys: [KeySpec::at(1, READ_UPDATE)],
        args: [key("key"), double("increment")],
        propagate: Effect,
    }

    Lcs = "lcs" {
        summary: "",
        since: "7.0.0",
        arity: -3,
        flags: [READONLY],
        acl: [STRING],
        keys: [KeySpec::range(1, 1, 1, READ)],
        args: [
            key("key1"),
            key("key2"),
            word("len", "LEN").optional(),
            word("idx", "IDX").optional(),
            integer("min-match-len").token("MINMATCHLEN").optional(),
            word("withmatchlen", "WITHMATCHLEN").optional(),
        ],
    }

    Mget = "mget" {
        summary: "",
        since: "1.0.0",
        arity: -2,
        flags: [READONLY, FAST],
        acl: [STRING],
        tips: ["request_policy:multi_shard"],
        keys: [KeySpec::range(1, -1, 1, READ)],
        args: [key("key").multiple()],
    }

    Mset = "mset" {
        summary: "",
        since: "1.0.1",
        arity: -3,
        flags: [WRITE, DENYOOM],
        acl: [STRING],
        tips: ["request_policy:multi_shard", "response_policy:all_succeeded"],
        keys: [KeySpec::range(1, -1, 2, OVERWRITE)],
        args: [block("data", &[key("key"), string("value")]).multiple()],
    }

    Msetnx = "msetnx" {
        summary: "",
        since: "1.0.1",
        arity: -3,
        flags: [WRITE, DENYOOM],
        acl: [STRING],
        keys: [KeySpec::range(1, -1, 2, CREATE)],
        args: [block("data", &[key("key"), string("value")]).multiple()],
    }

    Psetex = "psetex" {
        summary: "",
        complexity: "O(1)",
        since: "2.6.0",
        deprecated: { since: "2.6.12", replaced_by: "`SET` with the `PX` argument" },
        arity: 4,
        flags: [WRITE, DENYOOM],
        acl: [STRING],
        keys: [KeySpec::at(1, OVERWRITE)],
        args: [key("key"), integer("milliseconds"), string("value")],
        propagate: Effect,
    }

    Set = "set" {
        summary: "",
        complexity: "O(1)",
        since: "1.0.0",
        history: [("2.6.12", ""), ("6.0.0", ""), ("6.2.0", ""), ("7.0.0", "")],
        arity: -3,
        flags: [WRITE, DENYOOM],
        acl: [STRING],
        keys: [
            KeySpec::at(1, READ_UPDATE)
            .note("")
            .variable(VariableAccess { token: "GET", from: 3, present: READ_UPDATE, absent: OVERWRITE }),
        ],
        args: [
            key("key"),
            string("value"),
            one_of("condition", &[
                word("nx", "NX"),
                word("xx", "XX"),
            ]).since("2.6.12").optional(),
            word("get", "GET").since("6.2.0").optional(),
            one_of("expiration", &[
                integer("seconds").token("EX").since("2.6.12"),
                integer("milliseconds").token("PX").since("2.6.12"),
                unix_time("unix-time-seconds").token("EXAT").since("6.2.0"),
                unix_time("unix-time-milliseconds").token("PXAT").since("6.2.0"),
                word("keepttl", "KEEPTTL").since("6.0.0"),
            ]).optional(),
        ],
        propagate: Effect,
    }

    Setex = "setex" {
        summary: "",
        complexity: "O(1)",
        since: "2.0.0",
        deprecated: { since: "2.6.12", replaced_by: "`SET` with the `EX` argument" },
        arity: 4,
        flags: [WRITE, DENYOOM],
        acl: [STRING],
        keys: [KeySpec::at(1, OVERWRITE)],
        args: [key("key"), integer("seconds"), string("value")],
        propagate: Effect,
    }

    Setnx = "setnx" {
        summary: "",
        complexity: "O(1)",
        since: "1.0.0",
        deprecated: { since: "2.6.12", replaced_by: "`SET` with the `NX` argument" },
        arity: 3,
        flags: [WRITE, DENYOOM, FAST],
        acl: [STRING],
        keys: [KeySpec::at(1, CREATE)],
        args: [key("key"), string("value")],
    }

    Setrange = "setrange" {
        summary: "",
        since: "2.2.0",
        arity: 4,
        flags: [WRITE, DENYOOM],
        acl: [STRING],
        keys: [KeySpec::at(1, UPDATE)],
        args: [key("key"), integer("offset"), string("value")],
    }

    Strlen = "strlen" {
        summary: "",
        complexity: "O(1)",
        since: "2.2.0",
        arity: 2,
        flags: [READONLY, FAST],
        acl: [STRING],
        keys: [KeySpec::at(1, INSPECT)],
        args: [key("key")],
    }

    Substr = "substr" {
        summary: "",
        since: "1.0.0",
        deprecated: { since: "2.0.0", replaced_by: "`GETRANGE`" },
        arity: 4,
        flags: [READONLY],
        acl: [STRING],
        keys: [KeySpec::at(1, READ)],
        args: [key("key"), integer("start"), integer("end")],
    }
}
