//! Tair's exHashes: rows only.

use super::prelude::*;
use crate::Arg;

const EXPIRY_OR_KEEP: Arg = one_of(
    "expiration",
    &[
        integer("seconds").token("EX"),
        integer("milliseconds").token("PX"),
        unix_time("unix-time-seconds").token("EXAT"),
        unix_time("unix-time-milliseconds").token("PXAT"),
        word("keepttl", "KEEPTTL"),
    ],
)
.optional();
const CONDITION: Arg = one_of("condition", &[word("nx", "NX"), word("xx", "XX")]).optional();
const VERSION: Arg = one_of(
    "version",
    &[
        integer("version").token("VER"),
        integer("absolute").token("ABS"),
        integer("greater").token("GT"),
    ],
)
.optional();

rows! { Module:
    Exhset = "exhset" {
        summary: "Set a field of an exHash, depending on its version.",
        complexity: "O(1)",
        since: "9.0.0",
        arity: -4,
        flags: [WRITE, DENYOOM, MODULE, FAST],
        acl: [TAIR, TAIRHASH],
        keys: [KeySpec::at(1, UPDATE)],
        args: [key("key"), string("field"), string("value"), EXPIRY_OR_KEEP, CONDITION, VERSION],
        propagate: Effect,
    }

    Exhsetnx = "exhsetnx" {
        summary: "Set a field of an exHash, unless it is there.",
        complexity: "O(1)",
        since: "9.0.0",
        arity: 4,
        flags: [WRITE, DENYOOM, MODULE, FAST],
        acl: [TAIR, TAIRHASH],
        keys: [KeySpec::at(1, INSERT)],
        args: [key("key"), string("field"), string("value")],
        propagate: Effect,
    }

    Exhmset = "exhmset" {
        summary: "Set fields of an exHash.",
        complexity: "O(N), N: fields",
        since: "9.0.0",
        arity: -4,
        flags: [WRITE, DENYOOM, MODULE],
        acl: [TAIR, TAIRHASH],
        keys: [KeySpec::at(1, UPDATE)],
        args: [key("key"), block("data", &[string("field"), string("value")]).multiple()],
        propagate: Effect,
    }

    Exhmsetwithopts = "exhmsetwithopts" {
        summary: "Set fields of an exHash, all or none of them, depending on their versions.",
        complexity: "O(N), N: fields",
        since: "9.0.0",
        arity: -6,
        flags: [WRITE, DENYOOM, MODULE],
        acl: [TAIR, TAIRHASH],
        keys: [KeySpec::at(1, UPDATE)],
        args: [key("key"), block("data", &[string("field"), string("value"), integer("version"), integer("seconds")]).multiple()],
        propagate: Effect,
    }

    Exhget = "exhget" {
        summary: "Get a field of an exHash.",
        complexity: "O(1)",
        since: "9.0.0",
        arity: 3,
        flags: [READONLY, MODULE, FAST],
        acl: [TAIR, TAIRHASH],
        keys: [KeySpec::at(1, READ)],
        args: [key("key"), string("field")],
    }

    Exhgetwithver = "exhgetwithver" {
        summary: "Get a field of an exHash with its version.",
        complexity: "O(1)",
        since: "9.0.0",
        arity: 3,
        flags: [READONLY, MODULE, FAST],
        acl: [TAIR, TAIRHASH],
        keys: [KeySpec::at(1, READ)],
        args: [key("key"), string("field")],
    }

    Exhmget = "exhmget" {
        summary: "Get fields of an exHash.",
        complexity: "O(N), N: fields",
        since: "9.0.0",
        arity: -3,
        flags: [READONLY, MODULE, FAST],
        acl: [TAIR, TAIRHASH],
        keys: [KeySpec::at(1, READ)],
        args: [key("key"), string("field").multiple()],
    }

    Exhmgetwithver = "exhmgetwithver" {
        summary: "Get fields of an exHash with their versions.",
        complexity: "O(N), N: fields",
        since: "9.0.0",
        arity: -3,
        flags: [READONLY, MODULE, FAST],
        acl: [TAIR, TAIRHASH],
        keys: [KeySpec::at(1, READ)],
        args: [key("key"), string("field").multiple()],
    }

    Exhgetall = "exhgetall" {
        summary: "Get all fields of an exHash with their values.",
        complexity: "O(N), N: fields",
        since: "9.0.0",
        arity: 2,
        flags: [READONLY, MODULE],
        acl: [TAIR, TAIRHASH],
        keys: [KeySpec::at(1, READ)],
        args: [key("key")],
    }

    Exhgetallwithver = "exhgetallwithver" {
        summary: "Get all fields of an exHash with their values and versions.",
        complexity: "O(N), N: fields",
        since: "9.0.0",
        arity: 2,
        flags: [READONLY, MODULE],
        acl: [TAIR, TAIRHASH],
        keys: [KeySpec::at(1, READ)],
        args: [key("key")],
    }

    Exhkeys = "exhkeys" {
        summary: "Get the names of all fields of an exHash.",
        complexity: "O(N), N: fields",
        since: "9.0.0",
        arity: 2,
        flags: [READONLY, MODULE],
        acl: [TAIR, TAIRHASH],
        keys: [KeySpec::at(1, READ)],
        args: [key("key")],
    }

    Exhvals = "exhvals" {
        summary: "Get the values of all fields of an exHash.",
        complexity: "O(N), N: fields",
        since: "9.0.0",
        arity: 2,
        flags: [READONLY, MODULE],
        acl: [TAIR, TAIRHASH],
        keys: [KeySpec::at(1, READ)],
        args: [key("key")],
    }

    Exhdel = "exhdel" {
        summary: "Remove fields of an exHash.",
        complexity: "O(N), N: fields",
        since: "9.0.0",
        arity: -3,
        flags: [WRITE, MODULE, FAST],
        acl: [TAIR, TAIRHASH],
        keys: [KeySpec::at(1, DELETE)],
        args: [key("key"), string("field").multiple()],
    }

    Exhdelwithver = "exhdelwithver" {
        summary: "Remove fields of an exHash that have these versions.",
        complexity: "O(N), N: fields",
        since: "9.0.0",
        arity: -4,
        flags: [WRITE, MODULE, FAST],
        acl: [TAIR, TAIRHASH],
        keys: [KeySpec::at(1, DELETE)],
        args: [key("key"), block("data", &[string("field"), integer("version")]).multiple()],
        propagate: Effect,
    }

    Exhlen = "exhlen" {
        summary: "Count the fields of an exHash.",
        complexity: "O(1), with NOEXP O(N), N: fields",
        since: "9.0.0",
        arity: -2,
        flags: [READONLY, MODULE, FAST],
        acl: [TAIR, TAIRHASH],
        keys: [KeySpec::at(1, INSPECT)],
        args: [key("key"), word("noexp", "NOEXP").optional()],
    }

    Exhexists = "exhexists" {
        summary: "Tell whether an exHash has a field.",
        complexity: "O(1)",
        since: "9.0.0",
        arity: 3,
        flags: [READONLY, MODULE, FAST],
        acl: [TAIR, TAIRHASH],
        keys: [KeySpec::at(1, INSPECT)],
        args: [key("key"), string("field")],
    }

    Exhstrlen = "exhstrlen" {
        summary: "Tell the length of a field of an exHash.",
        complexity: "O(1)",
        since: "9.0.0",
        arity: 3,
        flags: [READONLY, MODULE, FAST],
        acl: [TAIR, TAIRHASH],
        keys: [KeySpec::at(1, INSPECT)],
        args: [key("key"), string("field")],
    }

    Exhincrby = "exhincrby" {
        summary: "Add to the integer in a field of an exHash, within bounds.",
        complexity: "O(1)",
        since: "9.0.0",
        arity: -4,
        flags: [WRITE, DENYOOM, MODULE, FAST],
        acl: [TAIR, TAIRHASH],
        keys: [KeySpec::at(1, READ_UPDATE)],
        args: [key("key"), string("field"), integer("increment"), EXPIRY_OR_KEEP, VERSION, integer("minimum").token("MIN").optional(), integer("maximum").token("MAX").optional()],
        propagate: Effect,
    }

    Exhincrbyfloat = "exhincrbyfloat" {
        summary: "Add to the number in a field of an exHash, within bounds.",
        complexity: "O(1)",
        since: "9.0.0",
        arity: -4,
        flags: [WRITE, DENYOOM, MODULE, FAST],
        acl: [TAIR, TAIRHASH],
        keys: [KeySpec::at(1, READ_UPDATE)],
        args: [key("key"), string("field"), double("increment"), EXPIRY_OR_KEEP, VERSION, double("minimum").token("MIN").optional(), double("maximum").token("MAX").optional()],
        propagate: Effect,
    }

    Exhexpire = "exhexpire" {
        summary: "Let a field of an exHash expire after a span of seconds.",
        complexity: "O(1)",
        since: "9.0.0",
        arity: -4,
        flags: [WRITE, MODULE, FAST],
        acl: [TAIR, TAIRHASH],
        keys: [KeySpec::at(1, UPDATE)],
        args: [key("key"), string("field"), integer("time"), VERSION],
        propagate: Effect,
    }

    Exhpexpire = "exhpexpire" {
        summary: "Let a field of an exHash expire after a span of milliseconds.",
        complexity: "O(1)",
        since: "9.0.0",
        arity: -4,
        flags: [WRITE, MODULE, FAST],
        acl: [TAIR, TAIRHASH],
        keys: [KeySpec::at(1, UPDATE)],
        args: [key("key"), string("field"), integer("time"), VERSION],
        propagate: Effect,
    }

    Exhexpireat = "exhexpireat" {
        summary: "Let a field of an exHash expire at a Unix time in seconds.",
        complexity: "O(1)",
        since: "9.0.0",
        arity: -4,
        flags: [WRITE, MODULE, FAST],
        acl: [TAIR, TAIRHASH],
        keys: [KeySpec::at(1, UPDATE)],
        args: [key("key"), string("field"), unix_time("time"), VERSION],
        propagate: Effect,
    }

    Exhpexpireat = "exhpexpireat" {
        summary: "Let a field of an exHash expire at a Unix time in milliseconds.",
        complexity: "O(1)",
        since: "9.0.0",
        arity: -4,
        flags: [WRITE, MODULE, FAST],
        acl: [TAIR, TAIRHASH],
        keys: [KeySpec::at(1, UPDATE)],
        args: [key("key"), string("field"), unix_time("time"), VERSION],
        propagate: Effect,
    }

    Exhpersist = "exhpersist" {
        summary: "Let a field of an exHash stay.",
        complexity: "O(1)",
        since: "9.0.0",
        arity: 3,
        flags: [WRITE, MODULE, FAST],
        acl: [TAIR, TAIRHASH],
        keys: [KeySpec::at(1, UPDATE)],
        args: [key("key"), string("field")],
    }

    Exhttl = "exhttl" {
        summary: "Tell the seconds until a field of an exHash expires.",
        complexity: "O(1)",
        since: "9.0.0",
        arity: 3,
        flags: [READONLY, MODULE, FAST],
        acl: [TAIR, TAIRHASH],
        keys: [KeySpec::at(1, INSPECT)],
        args: [key("key"), string("field")],
    }

    Exhpttl = "exhpttl" {
        summary: "Tell the milliseconds until a field of an exHash expires.",
        complexity: "O(1)",
        since: "9.0.0",
        arity: 3,
        flags: [READONLY, MODULE, FAST],
        acl: [TAIR, TAIRHASH],
        keys: [KeySpec::at(1, INSPECT)],
        args: [key("key"), string("field")],
    }

    Exhver = "exhver" {
        summary: "Tell the version of a field of an exHash.",
        complexity: "O(1)",
        since: "9.0.0",
        arity: 3,
        flags: [READONLY, MODULE, FAST],
        acl: [TAIR, TAIRHASH],
        keys: [KeySpec::at(1, INSPECT)],
        args: [key("key"), string("field")],
    }

    Exhsetver = "exhsetver" {
        summary: "Set the version of a field of an exHash.",
        complexity: "O(1)",
        since: "9.0.0",
        arity: 4,
        flags: [WRITE, MODULE, FAST],
        acl: [TAIR, TAIRHASH],
        keys: [KeySpec::at(1, UPDATE)],
        args: [key("key"), string("field"), integer("version")],
    }

    Exhscan = "exhscan" {
        summary: "Walk over the fields of an exHash from a cursor on.",
        complexity: "O(1) for a call, O(N) for all, N: fields",
        since: "9.0.0",
        arity: -3,
        flags: [READONLY, MODULE],
        acl: [TAIR, TAIRHASH],
        keys: [KeySpec::at(1, READ)],
        args: [key("key"), integer("cursor"), pattern("pattern").token("MATCH").optional(), integer("count").token("COUNT").optional()],
    }
}
