//! Strings: the rows of the group `string`. Rows only.

use super::prelude::*;

rows! { String:
    Append = "append" {
        summary: "Add bytes to the end of a string; a missing key counts as an empty one.",
        complexity: "O(1) amortised",
        since: "2.0.0",
        arity: 3,
        flags: [WRITE, DENYOOM, FAST],
        acl: [STRING],
        keys: [KeySpec::at(1, INSERT)],
        args: [key("key"), string("value")],
    }

    Decr = "decr" {
        summary: "Subtract one from the integer a key holds.",
        complexity: "O(1)",
        since: "1.0.0",
        arity: 2,
        flags: [WRITE, DENYOOM, FAST],
        acl: [STRING],
        keys: [KeySpec::at(1, READ_UPDATE)],
        args: [key("key")],
    }

    Decrby = "decrby" {
        summary: "Subtract a number from the integer a key holds.",
        complexity: "O(1)",
        since: "1.0.0",
        arity: 3,
        flags: [WRITE, DENYOOM, FAST],
        acl: [STRING],
        keys: [KeySpec::at(1, READ_UPDATE)],
        args: [key("key"), integer("decrement")],
    }

    Delex = "delex" {
        summary: "Delete a key, if its string or its digest is as expected.",
        complexity: "O(1), O(N) for a digest, N: bytes of the value",
        since: "8.4.0",
        arity: -2,
        flags: [WRITE, FAST],
        acl: [STRING],
        keys: [KeySpec::at(1, REMOVE)],
        args: [
            key("key"),
            one_of("condition", &[
                string("ifeq-value").token("IFEQ"),
                string("ifne-value").token("IFNE"),
                string("ifdeq-digest").token("IFDEQ"),
                string("ifdne-digest").token("IFDNE"),
            ]).optional(),
        ],
        propagate: Effect,
    }

    Delifeq = "delifeq" {
        summary: "Delete a key that holds this very string.",
        complexity: "O(1)",
        since: "9.0.0",
        arity: 3,
        flags: [WRITE, FAST],
        acl: [STRING],
        keys: [KeySpec::at(1, REMOVE)],
        args: [key("key"), string("value")],
        propagate: Effect,
    }

    Digest = "digest" {
        summary: "Read the digest of a string: its 64-bit XXH3 in sixteen hexadecimal digits.",
        complexity: "O(N), N: bytes of the value",
        since: "8.4.0",
        arity: 2,
        flags: [READONLY, FAST],
        acl: [STRING],
        keys: [KeySpec::at(1, READ)],
        args: [key("key")],
    }

    Get = "get" {
        summary: "Read a string.",
        complexity: "O(1)",
        since: "1.0.0",
        arity: 2,
        flags: [READONLY, FAST],
        acl: [STRING],
        keys: [KeySpec::at(1, READ)],
        args: [key("key")],
    }

    Getdel = "getdel" {
        summary: "Read a string and remove its key.",
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
        summary: "Read a string and set, change or drop its expiry.",
        complexity: "O(1)",
        since: "6.2.0",
        arity: -2,
        flags: [WRITE, FAST],
        acl: [STRING],
        keys: [
            KeySpec::at(1, READ_UPDATE)
                .note("Changes the expiry, hence an update."),
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
        summary: "Read the part of a string between two offsets.",
        complexity: "O(N), N: bytes returned",
        since: "2.4.0",
        arity: 4,
        flags: [READONLY],
        acl: [STRING],
        keys: [KeySpec::at(1, READ)],
        args: [key("key"), integer("start"), integer("end")],
    }

    Getset = "getset" {
        summary: "Store a string and hand back the one it replaces.",
        complexity: "O(1)",
        since: "1.0.0",
        deprecated: { since: "6.2.0", replaced_by: "SET with GET" },
        arity: 3,
        flags: [WRITE, DENYOOM, FAST],
        acl: [STRING],
        keys: [KeySpec::at(1, READ_UPDATE)],
        args: [key("key"), string("value")],
        propagate: Effect,
    }

    Incr = "incr" {
        summary: "Add one to the integer a key holds.",
        complexity: "O(1)",
        since: "1.0.0",
        arity: 2,
        flags: [WRITE, DENYOOM, FAST],
        acl: [STRING],
        keys: [KeySpec::at(1, READ_UPDATE)],
        args: [key("key")],
    }

    Incrby = "incrby" {
        summary: "Add a number to the integer a key holds.",
        complexity: "O(1)",
        since: "1.0.0",
        arity: 3,
        flags: [WRITE, DENYOOM, FAST],
        acl: [STRING],
        keys: [KeySpec::at(1, READ_UPDATE)],
        args: [key("key"), integer("increment")],
    }

    Incrbyfloat = "incrbyfloat" {
        summary: "Add a fraction to the number a key holds.",
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
        summary: "Find the longest common subsequence of two strings.",
        complexity: "O(N*M), N and M: the lengths of the strings",
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
        summary: "Read the strings of several keys at once.",
        complexity: "O(N), N: keys",
        since: "1.0.0",
        arity: -2,
        flags: [READONLY, FAST],
        acl: [STRING],
        tips: ["request_policy:multi_shard"],
        keys: [KeySpec::range(1, -1, 1, READ)],
        args: [key("key").multiple()],
    }

    Mset = "mset" {
        summary: "Store several strings at once.",
        complexity: "O(N), N: keys",
        since: "1.0.1",
        arity: -3,
        flags: [WRITE, DENYOOM],
        acl: [STRING],
        tips: ["request_policy:multi_shard", "response_policy:all_succeeded"],
        keys: [KeySpec::range(1, -1, 2, OVERWRITE)],
        args: [block("data", &[key("key"), string("value")]).multiple()],
    }

    Msetex = "msetex" {
        summary: "Store several strings at once, with one expiry, or under a condition on all keys.",
        complexity: "O(N), N: keys",
        since: "8.4.0",
        arity: -4,
        flags: [WRITE, DENYOOM],
        acl: [STRING],
        tips: ["request_policy:multi_shard", "response_policy:all_succeeded"],
        keys: [KeySpec::pairs_counted_at(1, OVERWRITE)],
        args: [
            integer("numkeys"),
            block("data", &[key("key"), string("value")]).multiple(),
            one_of("condition", &[word("nx", "NX"), word("xx", "XX")]).optional(),
            one_of("expiration", &[
                integer("seconds").token("EX"),
                integer("milliseconds").token("PX"),
                unix_time("unix-time-seconds").token("EXAT"),
                unix_time("unix-time-milliseconds").token("PXAT"),
                word("keepttl", "KEEPTTL"),
            ]).optional(),
        ],
        propagate: Effect,
        routing: MultiAtomic,
    }

    Msetnx = "msetnx" {
        summary: "Store several strings at once, provided that none of the keys exists.",
        complexity: "O(N), N: keys",
        since: "1.0.1",
        arity: -3,
        flags: [WRITE, DENYOOM],
        acl: [STRING],
        keys: [KeySpec::range(1, -1, 2, CREATE)],
        args: [block("data", &[key("key"), string("value")]).multiple()],
    }

    Psetex = "psetex" {
        summary: "Store a string that expires after a number of milliseconds.",
        complexity: "O(1)",
        since: "2.6.0",
        deprecated: { since: "2.6.12", replaced_by: "SET with PX" },
        arity: 4,
        flags: [WRITE, DENYOOM],
        acl: [STRING],
        keys: [KeySpec::at(1, OVERWRITE)],
        args: [key("key"), integer("milliseconds"), string("value")],
        propagate: Effect,
    }

    Set = "set" {
        summary: "Store a string, whatever the key held before; optionally with an expiry or under a condition.",
        complexity: "O(1)",
        since: "1.0.0",
        history: [
            ("2.6.12", "EX, PX, NX and XX."),
            ("6.0.0", "KEEPTTL."),
            ("6.2.0", "GET, EXAT and PXAT."),
            ("7.0.0", "NX together with GET."),
            ("8.4.0", "IFEQ, IFNE, IFDEQ and IFDNE."),
        ],
        arity: -3,
        flags: [WRITE, DENYOOM],
        acl: [STRING],
        keys: [
            KeySpec::at(1, READ_UPDATE)
                .note("Read only when GET or a condition on the value is among the arguments.")
                .variable(VariableAccess {
                    when: When::AnyWord { tokens: &["GET", "IFEQ", "IFNE", "IFDEQ", "IFDNE"], from: 3 },
                    present: READ_UPDATE,
                    absent: OVERWRITE,
                }),
        ],
        args: [
            key("key"),
            string("value"),
            one_of("condition", &[
                word("nx", "NX"),
                word("xx", "XX"),
                string("ifeq-value").token("IFEQ").since("8.4.0"),
                string("ifne-value").token("IFNE").since("8.4.0"),
                string("ifdeq-digest").token("IFDEQ").since("8.4.0"),
                string("ifdne-digest").token("IFDNE").since("8.4.0"),
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
        summary: "Store a string that expires after a number of seconds.",
        complexity: "O(1)",
        since: "2.0.0",
        deprecated: { since: "2.6.12", replaced_by: "SET with EX" },
        arity: 4,
        flags: [WRITE, DENYOOM],
        acl: [STRING],
        keys: [KeySpec::at(1, OVERWRITE)],
        args: [key("key"), integer("seconds"), string("value")],
        propagate: Effect,
    }

    Setnx = "setnx" {
        summary: "Store a string unless the key exists.",
        complexity: "O(1)",
        since: "1.0.0",
        deprecated: { since: "2.6.12", replaced_by: "SET with NX" },
        arity: 3,
        flags: [WRITE, DENYOOM, FAST],
        acl: [STRING],
        keys: [KeySpec::at(1, CREATE)],
        args: [key("key"), string("value")],
    }

    Setrange = "setrange" {
        summary: "Overwrite the bytes of a string from an offset on, with zeros in any gap.",
        complexity: "O(M), M: bytes written, and growth when the string gets longer",
        since: "2.2.0",
        arity: 4,
        flags: [WRITE, DENYOOM],
        acl: [STRING],
        keys: [KeySpec::at(1, UPDATE)],
        args: [key("key"), integer("offset"), string("value")],
    }

    Strlen = "strlen" {
        summary: "Count the bytes of a string.",
        complexity: "O(1)",
        since: "2.2.0",
        arity: 2,
        flags: [READONLY, FAST],
        acl: [STRING],
        keys: [KeySpec::at(1, INSPECT)],
        args: [key("key")],
    }

    Substr = "substr" {
        summary: "Read the part of a string between two offsets, under GETRANGE's old name.",
        complexity: "O(N), N: bytes returned",
        since: "1.0.0",
        deprecated: { since: "2.0.0", replaced_by: "GETRANGE" },
        arity: 4,
        flags: [READONLY],
        acl: [STRING],
        keys: [KeySpec::at(1, READ)],
        args: [key("key"), integer("start"), integer("end")],
    }
}
