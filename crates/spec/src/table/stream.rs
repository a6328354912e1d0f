//! Streams: the rows of the group `stream`. Rows only.

use super::prelude::*;

rows! { Stream:
    Xadd = "xadd" {
        summary: "Add an entry to a stream, made if missing, and optionally trim it.",
        complexity: "O(1), and O(N) to trim, N: entries removed",
        since: "5.0.0",
        history: [
            ("6.2.0", "NOMKSTREAM, MINID and LIMIT."),
            ("7.0.0", "Ids of the form <ms>-*."),
            ("8.2.0", "KEEPREF, DELREF and ACKED."),
        ],
        arity: -5,
        flags: [WRITE, DENYOOM, FAST],
        acl: [STREAM],
        tips: ["nondeterministic_output"],
        keys: [
            KeySpec::at(1, UPDATE)
                .note("May trim, hence more than an insertion."),
        ],
        args: [
            key("key"),
            word("nomkstream", "NOMKSTREAM").since("6.2.0").optional(),
            one_of("condition", &[
                word("keepref", "KEEPREF"),
                word("delref", "DELREF"),
                word("acked", "ACKED"),
            ]).optional(),
            block("trim", &[
                one_of("strategy", &[
                    word("maxlen", "MAXLEN"),
                    word("minid", "MINID").since("6.2.0"),
                ]),
                one_of("operator", &[
                    word("equal", "="),
                    word("approximately", "~"),
                ]).optional(),
                string("threshold"),
                integer("count").token("LIMIT").since("6.2.0").optional(),
            ]).optional(),
            one_of("id-selector", &[word("auto-id", "*"), string("id")]),
            block("data", &[string("field"), string("value")]).multiple(),
        ],
        propagate: Effect,
    }

    Xdel = "xdel" {
        summary: "Remove entries from a stream by their ids.",
        complexity: "O(N), N: ids",
        since: "5.0.0",
        arity: -3,
        flags: [WRITE, FAST],
        acl: [STREAM],
        keys: [KeySpec::at(1, DELETE)],
        args: [key("key"), string("id").multiple()],
    }

    Xlen = "xlen" {
        summary: "Count the entries of a stream.",
        complexity: "O(1)",
        since: "5.0.0",
        arity: 2,
        flags: [READONLY, FAST],
        acl: [STREAM],
        keys: [KeySpec::at(1, INSPECT)],
        args: [key("key")],
    }

    Xrange = "xrange" {
        summary: "Read the entries of a stream between two ids.",
        complexity: "O(N), N: entries returned",
        since: "5.0.0",
        history: [("6.2.0", "Bounds that exclude their id.")],
        arity: -4,
        flags: [READONLY],
        acl: [STREAM],
        keys: [KeySpec::at(1, READ)],
        args: [
            key("key"),
            string("start"),
            string("end"),
            integer("count").token("COUNT").optional(),
        ],
    }

    Xrevrange = "xrevrange" {
        summary: "Read the entries of a stream between two ids, newest first.",
        complexity: "O(N), N: entries returned",
        since: "5.0.0",
        history: [("6.2.0", "Bounds that exclude their id.")],
        arity: -4,
        flags: [READONLY],
        acl: [STREAM],
        keys: [KeySpec::at(1, READ)],
        args: [
            key("key"),
            string("end"),
            string("start"),
            integer("count").token("COUNT").optional(),
        ],
    }

    Xtrim = "xtrim" {
        summary: "Remove the oldest entries of a stream, down to a length or to an id.",
        complexity: "O(N), N: entries removed",
        since: "5.0.0",
        history: [("6.2.0", "MINID and LIMIT."), ("8.2.0", "KEEPREF, DELREF and ACKED.")],
        arity: -4,
        flags: [WRITE],
        acl: [STREAM],
        tips: ["nondeterministic_output"],
        keys: [KeySpec::at(1, DELETE)],
        args: [
            key("key"),
            block("trim", &[
                one_of("strategy", &[
                    word("maxlen", "MAXLEN"),
                    word("minid", "MINID").since("6.2.0"),
                ]),
                one_of("operator", &[
                    word("equal", "="),
                    word("approximately", "~"),
                ]).optional(),
                string("threshold"),
                integer("count").token("LIMIT").since("6.2.0").optional(),
                one_of("condition", &[
                    word("keepref", "KEEPREF"),
                    word("delref", "DELREF"),
                    word("acked", "ACKED"),
                ]).optional(),
            ]),
        ],
        propagate: Effect,
    }
}
