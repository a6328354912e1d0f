//! Hashes: the rows of the group `hash`. Rows only.

use super::prelude::*;
use crate::Arg;

/// `FIELDS numfields field [field …]`
const FIELDS: Arg = block(
    "fields",
    &[integer("numfields"), string("field").multiple()],
)
.token("FIELDS");
const EXPIRY_CONDITION: Arg = one_of(
    "condition",
    &[
        word("nx", "NX"),
        word("xx", "XX"),
        word("gt", "GT"),
        word("lt", "LT"),
    ],
)
.optional();

rows! { Hash:
    Hdel = "hdel" {
        summary: "Remove fields from a hash.",
        complexity: "O(N), N: fields",
        since: "2.0.0",
        history: [("2.4.0", "Several fields.")],
        arity: -3,
        flags: [WRITE, FAST],
        acl: [HASH],
        keys: [KeySpec::at(1, DELETE)],
        args: [key("key"), string("field").multiple()],
    }

    Hexists = "hexists" {
        summary: "Tell whether a hash has a field.",
        complexity: "O(1)",
        since: "2.0.0",
        arity: 3,
        flags: [READONLY, FAST],
        acl: [HASH],
        keys: [KeySpec::at(1, INSPECT)],
        args: [key("key"), string("field")],
    }

    Hexpire = "hexpire" {
        summary: "Let fields expire after a span of seconds.",
        complexity: "O(N), N: fields",
        since: "7.4.0",
        arity: -6,
        flags: [WRITE, FAST],
        acl: [HASH],
        keys: [KeySpec::at(1, UPDATE)],
        args: [key("key"), integer("seconds"), EXPIRY_CONDITION, FIELDS],
        propagate: Effect,
    }

    Hexpireat = "hexpireat" {
        summary: "Let fields expire at a Unix time in seconds.",
        complexity: "O(N), N: fields",
        since: "7.4.0",
        arity: -6,
        flags: [WRITE, FAST],
        acl: [HASH],
        keys: [KeySpec::at(1, UPDATE)],
        args: [key("key"), unix_time("unix-time-seconds"), EXPIRY_CONDITION, FIELDS],
        propagate: Effect,
    }

    Hexpiretime = "hexpiretime" {
        summary: "Tell when fields expire, as Unix time in seconds.",
        complexity: "O(N), N: fields",
        since: "7.4.0",
        arity: -5,
        flags: [READONLY, FAST],
        acl: [HASH],
        keys: [KeySpec::at(1, READ)],
        args: [key("key"), FIELDS],
    }

    Hget = "hget" {
        summary: "Read one field of a hash.",
        complexity: "O(1)",
        since: "2.0.0",
        arity: 3,
        flags: [READONLY, FAST],
        acl: [HASH],
        keys: [KeySpec::at(1, READ)],
        args: [key("key"), string("field")],
    }

    Hgetall = "hgetall" {
        summary: "Read every field of a hash with its value.",
        complexity: "O(N), N: fields of the hash",
        since: "2.0.0",
        arity: 2,
        flags: [READONLY],
        acl: [HASH],
        tips: ["nondeterministic_output_order"],
        keys: [KeySpec::at(1, READ)],
        args: [key("key")],
    }

    Hgetdel = "hgetdel" {
        summary: "Read fields and remove them.",
        complexity: "O(N), N: fields",
        since: "8.0.0",
        arity: -5,
        flags: [WRITE, FAST],
        acl: [HASH],
        keys: [KeySpec::at(1, READ_DELETE)],
        args: [key("key"), FIELDS],
        propagate: Effect,
    }

    Hgetex = "hgetex" {
        summary: "Read fields and change when they expire.",
        complexity: "O(N), N: fields",
        since: "8.0.0",
        arity: -5,
        flags: [WRITE, FAST],
        acl: [HASH],
        keys: [KeySpec::at(1, READ_UPDATE).note("Changes the expiry, hence an update.")],
        args: [
            key("key"),
            one_of("expiration", &[
                integer("seconds").token("EX"),
                integer("milliseconds").token("PX"),
                unix_time("unix-time-seconds").token("EXAT"),
                unix_time("unix-time-milliseconds").token("PXAT"),
                word("persist", "PERSIST"),
            ]).optional(),
            FIELDS,
        ],
        propagate: Effect,
    }

    Hincrby = "hincrby" {
        summary: "Add a number to the integer a field holds.",
        complexity: "O(1)",
        since: "2.0.0",
        arity: 4,
        flags: [WRITE, DENYOOM, FAST],
        acl: [HASH],
        keys: [KeySpec::at(1, READ_UPDATE)],
        args: [key("key"), string("field"), integer("increment")],
    }

    Hincrbyfloat = "hincrbyfloat" {
        summary: "Add a fraction to the number a field holds.",
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
        summary: "List the field names of a hash.",
        complexity: "O(N), N: fields of the hash",
        since: "2.0.0",
        arity: 2,
        flags: [READONLY],
        acl: [HASH],
        tips: ["nondeterministic_output_order"],
        keys: [KeySpec::at(1, READ)],
        args: [key("key")],
    }

    Hlen = "hlen" {
        summary: "Count the fields of a hash.",
        complexity: "O(1)",
        since: "2.0.0",
        arity: 2,
        flags: [READONLY, FAST],
        acl: [HASH],
        keys: [KeySpec::at(1, INSPECT)],
        args: [key("key")],
    }

    Hmget = "hmget" {
        summary: "Read several fields of a hash.",
        complexity: "O(N), N: fields",
        since: "2.0.0",
        arity: -3,
        flags: [READONLY, FAST],
        acl: [HASH],
        keys: [KeySpec::at(1, READ)],
        args: [key("key"), string("field").multiple()],
    }

    Hmset = "hmset" {
        summary: "Store several fields of a hash.",
        complexity: "O(N), N: fields",
        since: "2.0.0",
        deprecated: { since: "4.0.0", replaced_by: "HSET" },
        arity: -4,
        flags: [WRITE, DENYOOM, FAST],
        acl: [HASH],
        keys: [KeySpec::at(1, UPDATE)],
        args: [key("key"), block("data", &[string("field"), string("value")]).multiple()],
    }

    Hpersist = "hpersist" {
        summary: "Let fields stay until they are deleted.",
        complexity: "O(N), N: fields",
        since: "7.4.0",
        arity: -5,
        flags: [WRITE, FAST],
        acl: [HASH],
        keys: [KeySpec::at(1, UPDATE)],
        args: [key("key"), FIELDS],
    }

    Hpexpire = "hpexpire" {
        summary: "Let fields expire after a span of milliseconds.",
        complexity: "O(N), N: fields",
        since: "7.4.0",
        arity: -6,
        flags: [WRITE, FAST],
        acl: [HASH],
        keys: [KeySpec::at(1, UPDATE)],
        args: [key("key"), integer("milliseconds"), EXPIRY_CONDITION, FIELDS],
        propagate: Effect,
    }

    Hpexpireat = "hpexpireat" {
        summary: "Let fields expire at a Unix time in milliseconds.",
        complexity: "O(N), N: fields",
        since: "7.4.0",
        arity: -6,
        flags: [WRITE, FAST],
        acl: [HASH],
        keys: [KeySpec::at(1, UPDATE)],
        args: [key("key"), unix_time("unix-time-milliseconds"), EXPIRY_CONDITION, FIELDS],
        propagate: Effect,
    }

    Hpexpiretime = "hpexpiretime" {
        summary: "Tell when fields expire, as Unix time in milliseconds.",
        complexity: "O(N), N: fields",
        since: "7.4.0",
        arity: -5,
        flags: [READONLY, FAST],
        acl: [HASH],
        keys: [KeySpec::at(1, READ)],
        args: [key("key"), FIELDS],
    }

    Hpttl = "hpttl" {
        summary: "Tell how many milliseconds fields have left to live.",
        complexity: "O(N), N: fields",
        since: "7.4.0",
        arity: -5,
        flags: [READONLY, FAST],
        acl: [HASH],
        tips: ["nondeterministic_output"],
        keys: [KeySpec::at(1, READ)],
        args: [key("key"), FIELDS],
    }

    Hrandfield = "hrandfield" {
        summary: "Pick random fields of a hash.",
        complexity: "O(N), N: fields returned",
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
        summary: "Walk over the fields of a hash, a few per call.",
        complexity: "O(1) per call, O(N) for the whole walk, N: fields",
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
        summary: "Store fields of a hash, made if missing.",
        complexity: "O(N), N: fields",
        since: "2.0.0",
        history: [("4.0.0", "Several fields.")],
        arity: -4,
        flags: [WRITE, DENYOOM, FAST],
        acl: [HASH],
        keys: [KeySpec::at(1, UPDATE)],
        args: [key("key"), block("data", &[string("field"), string("value")]).multiple()],
    }

    Hsetex = "hsetex" {
        summary: "Store fields and set when they expire.",
        complexity: "O(N), N: fields",
        since: "8.0.0",
        arity: -6,
        flags: [WRITE, DENYOOM, FAST],
        acl: [HASH],
        keys: [KeySpec::at(1, UPDATE)],
        args: [
            key("key"),
            one_of("key-condition", &[word("nx", "NX"), word("xx", "XX")]).since("9.0.0").optional(),
            one_of("condition", &[word("fnx", "FNX"), word("fxx", "FXX")]).optional(),
            one_of("expiration", &[
                integer("seconds").token("EX"),
                integer("milliseconds").token("PX"),
                unix_time("unix-time-seconds").token("EXAT"),
                unix_time("unix-time-milliseconds").token("PXAT"),
                word("keepttl", "KEEPTTL"),
            ]).optional(),
            block("fields", &[
                integer("numfields"),
                block("data", &[string("field"), string("value")]).multiple(),
            ]).token("FIELDS"),
        ],
        propagate: Effect,
    }

    Hsetnx = "hsetnx" {
        summary: "Store a field of a hash unless it has a value.",
        complexity: "O(1)",
        since: "2.0.0",
        arity: 4,
        flags: [WRITE, DENYOOM, FAST],
        acl: [HASH],
        keys: [KeySpec::at(1, INSERT)],
        args: [key("key"), string("field"), string("value")],
    }

    Hstrlen = "hstrlen" {
        summary: "Count the bytes of a field's value.",
        complexity: "O(1)",
        since: "3.2.0",
        arity: 3,
        flags: [READONLY, FAST],
        acl: [HASH],
        keys: [KeySpec::at(1, INSPECT)],
        args: [key("key"), string("field")],
    }

    Httl = "httl" {
        summary: "Tell how many seconds fields have left to live.",
        complexity: "O(N), N: fields",
        since: "7.4.0",
        arity: -5,
        flags: [READONLY, FAST],
        acl: [HASH],
        tips: ["nondeterministic_output"],
        keys: [KeySpec::at(1, READ)],
        args: [key("key"), FIELDS],
    }

    Hvals = "hvals" {
        summary: "List the values of a hash.",
        complexity: "O(N), N: fields of the hash",
        since: "2.0.0",
        arity: 2,
        flags: [READONLY],
        acl: [HASH],
        tips: ["nondeterministic_output_order"],
        keys: [KeySpec::at(1, READ)],
        args: [key("key")],
    }
}
