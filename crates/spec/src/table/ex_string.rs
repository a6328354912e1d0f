//! Tair's exStrings, and its CAS and CAD of plain strings: rows only.

use super::prelude::*;
use crate::Arg;

const EXPIRY: Arg = one_of(
    "expiration",
    &[
        integer("seconds").token("EX"),
        integer("milliseconds").token("PX"),
        unix_time("unix-time-seconds").token("EXAT"),
        unix_time("unix-time-milliseconds").token("PXAT"),
    ],
);
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
    ],
)
.optional();

rows! { Module:
    Cas = "cas" {
        summary: "Set a string to another one, if it is this one.",
        complexity: "O(N), N: bytes of the value",
        since: "9.0.0",
        arity: -4,
        flags: [WRITE, DENYOOM, MODULE, FAST],
        acl: [TAIR, TAIRSTRING],
        keys: [KeySpec::at(1, READ_UPDATE)],
        args: [key("key"), string("oldvalue"), string("newvalue"), EXPIRY_OR_KEEP],
        propagate: Effect,
    }

    Cad = "cad" {
        summary: "Delete a string, if it is this one.",
        complexity: "O(N), N: bytes of the value",
        since: "9.0.0",
        arity: 3,
        flags: [WRITE, MODULE, FAST],
        acl: [TAIR, TAIRSTRING],
        keys: [KeySpec::at(1, REMOVE)],
        args: [key("key"), string("value")],
        propagate: Effect,
    }

    Exset = "exset" {
        summary: "Set an exString, depending on its version.",
        complexity: "O(1)",
        since: "9.0.0",
        arity: -3,
        flags: [WRITE, DENYOOM, MODULE, FAST],
        acl: [TAIR, TAIRSTRING],
        keys: [KeySpec::at(1, UPDATE)],
        args: [key("key"), string("value"), EXPIRY_OR_KEEP, CONDITION, VERSION, integer("flags").token("FLAGS").optional(), word("withversion", "WITHVERSION").optional()],
        propagate: Effect,
    }

    Exget = "exget" {
        summary: "Get an exString with its version.",
        complexity: "O(1)",
        since: "9.0.0",
        arity: -2,
        flags: [READONLY, MODULE, FAST],
        acl: [TAIR, TAIRSTRING],
        keys: [KeySpec::at(1, READ)],
        args: [key("key"), word("withflags", "WITHFLAGS").optional()],
    }

    Exsetver = "exsetver" {
        summary: "Set the version of an exString.",
        complexity: "O(1)",
        since: "9.0.0",
        arity: 3,
        flags: [WRITE, MODULE, FAST],
        acl: [TAIR, TAIRSTRING],
        keys: [KeySpec::at(1, UPDATE)],
        args: [key("key"), integer("version")],
    }

    Exincrby = "exincrby" {
        summary: "Add to the integer in an exString, within bounds.",
        complexity: "O(1)",
        since: "9.0.0",
        arity: -3,
        flags: [WRITE, DENYOOM, MODULE, FAST],
        acl: [TAIR, TAIRSTRING],
        keys: [KeySpec::at(1, READ_UPDATE)],
        args: [key("key"), integer("increment"), integer("default").token("DEF").optional(), EXPIRY_OR_KEEP, CONDITION, VERSION, integer("minimum").token("MIN").optional(), integer("maximum").token("MAX").optional(), word("nonegative", "NONEGATIVE").optional(), word("withversion", "WITHVERSION").optional()],
        propagate: Effect,
    }

    Exincrbyfloat = "exincrbyfloat" {
        summary: "Add to the number in an exString, within bounds.",
        complexity: "O(1)",
        since: "9.0.0",
        arity: -3,
        flags: [WRITE, DENYOOM, MODULE, FAST],
        acl: [TAIR, TAIRSTRING],
        keys: [KeySpec::at(1, READ_UPDATE)],
        args: [key("key"), double("increment"), EXPIRY_OR_KEEP, CONDITION, VERSION, double("minimum").token("MIN").optional(), double("maximum").token("MAX").optional()],
        propagate: Effect,
    }

    Excas = "excas" {
        summary: "Set an exString, if it has this version.",
        complexity: "O(1)",
        since: "9.0.0",
        arity: -4,
        flags: [WRITE, DENYOOM, MODULE, FAST],
        acl: [TAIR, TAIRSTRING],
        keys: [KeySpec::at(1, READ_UPDATE)],
        args: [key("key"), string("newvalue"), integer("version"), EXPIRY_OR_KEEP],
        propagate: Effect,
    }

    Excad = "excad" {
        summary: "Delete an exString, if it has this version.",
        complexity: "O(1)",
        since: "9.0.0",
        arity: 3,
        flags: [WRITE, MODULE, FAST],
        acl: [TAIR, TAIRSTRING],
        keys: [KeySpec::at(1, REMOVE)],
        args: [key("key"), integer("version")],
        propagate: Effect,
    }

    Exappend = "exappend" {
        summary: "Append to an exString, depending on its version.",
        complexity: "O(N), N: bytes",
        since: "9.0.0",
        arity: -3,
        flags: [WRITE, DENYOOM, MODULE, FAST],
        acl: [TAIR, TAIRSTRING],
        keys: [KeySpec::at(1, INSERT)],
        args: [key("key"), string("value"), CONDITION, VERSION],
    }

    Exprepend = "exprepend" {
        summary: "Put bytes before those of an exString, depending on its version.",
        complexity: "O(N), N: bytes",
        since: "9.0.0",
        arity: -3,
        flags: [WRITE, DENYOOM, MODULE, FAST],
        acl: [TAIR, TAIRSTRING],
        keys: [KeySpec::at(1, INSERT)],
        args: [key("key"), string("value"), CONDITION, VERSION],
    }

    Exgae = "exgae" {
        summary: "Get an exString with its version and flags, and set its expiry.",
        complexity: "O(1)",
        since: "9.0.0",
        arity: -4,
        flags: [WRITE, MODULE, FAST],
        acl: [TAIR, TAIRSTRING],
        keys: [KeySpec::at(1, READ_UPDATE)],
        args: [key("key"), EXPIRY],
        propagate: Effect,
    }
}
