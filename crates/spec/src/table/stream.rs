//! Streams: the rows of the group `stream`. Rows only.

use super::prelude::*;

rows! { Stream:
    Xack = "xack" {
        summary: "Acknowledge entries that a group has delivered.",
        complexity: "O(1) for each id",
        since: "5.0.0",
        arity: -4,
        flags: [WRITE, FAST],
        acl: [STREAM],
        keys: [KeySpec::at(1, UPDATE)],
        args: [
            key("key"),
            string("group"),
            string("id").multiple(),
        ],
    }

    Xackdel = "xackdel" {
        summary: "Acknowledge entries that a group has delivered, and delete them.",
        complexity: "O(1) for each id",
        since: "8.2.0",
        arity: -6,
        flags: [WRITE, FAST],
        acl: [STREAM],
        keys: [KeySpec::at(1, DELETE_UPDATE)],
        args: [
            key("key"),
            string("group"),
            one_of("condition", &[
                word("keepref", "KEEPREF"),
                word("delref", "DELREF"),
                word("acked", "ACKED"),
            ]).optional(),
            block("ids", &[integer("numids"), string("id").multiple()]).token("IDS"),
        ],
    }

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

    Xautoclaim = "xautoclaim" {
        summary: "Take over pending entries that were delivered long ago.",
        complexity: "O(1) for a small COUNT",
        since: "6.2.0",
        history: [("7.0.0", "The ids of entries that are gone, as a third element.")],
        arity: -6,
        flags: [WRITE, FAST],
        acl: [STREAM],
        tips: ["nondeterministic_output"],
        keys: [KeySpec::at(1, DELETE)],
        args: [
            key("key"),
            string("group"),
            string("consumer"),
            string("min-idle-time"),
            string("start"),
            integer("count").token("COUNT").optional(),
            word("justid", "JUSTID").optional(),
        ],
        propagate: Effect,
    }

    Xclaim = "xclaim" {
        summary: "Take over pending entries by their ids.",
        complexity: "O(log(N)), N: pending entries of the group",
        since: "5.0.0",
        arity: -6,
        flags: [WRITE, FAST],
        acl: [STREAM],
        tips: ["nondeterministic_output"],
        keys: [KeySpec::at(1, UPDATE)],
        args: [
            key("key"),
            string("group"),
            string("consumer"),
            string("min-idle-time"),
            string("id").multiple(),
            integer("ms").token("IDLE").optional(),
            unix_time("unix-time-milliseconds").token("TIME").optional(),
            integer("count").token("RETRYCOUNT").optional(),
            word("force", "FORCE").optional(),
            word("justid", "JUSTID").optional(),
            string("lastid").token("LASTID").optional(),
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

    Xdelex = "xdelex" {
        summary: "Remove entries by their ids, with or without what groups refer to.",
        complexity: "O(1) for each id",
        since: "8.2.0",
        arity: -5,
        flags: [WRITE, FAST],
        acl: [STREAM],
        keys: [KeySpec::at(1, DELETE)],
        args: [
            key("key"),
            one_of("condition", &[
                word("keepref", "KEEPREF"),
                word("delref", "DELREF"),
                word("acked", "ACKED"),
            ]).optional(),
            block("ids", &[integer("numids"), string("id").multiple()]).token("IDS"),
        ],
    }

    Xgroup = "xgroup" {
        summary: "Manage consumer groups.",
        complexity: "As the subcommand.",
        since: "5.0.0",
        arity: -2,
    }

    XgroupCreate = "xgroup|create" {
        summary: "Make a consumer group.",
        complexity: "O(1)",
        since: "5.0.0",
        history: [("7.0.0", "ENTRIESREAD.")],
        arity: -5,
        flags: [WRITE, DENYOOM],
        acl: [STREAM],
        keys: [KeySpec::at(2, INSERT)],
        args: [
            key("key"),
            string("group"),
            one_of("id-selector", &[string("id"), word("new-id", "$")]),
            word("mkstream", "MKSTREAM").optional(),
            integer("entriesread").display("entries-read").token("ENTRIESREAD").optional(),
        ],
    }

    XgroupCreateconsumer = "xgroup|createconsumer" {
        summary: "Make a consumer in a group.",
        complexity: "O(1)",
        since: "6.2.0",
        arity: 5,
        flags: [WRITE, DENYOOM],
        acl: [STREAM],
        keys: [KeySpec::at(2, INSERT)],
        args: [
            key("key"),
            string("group"),
            string("consumer"),
        ],
        propagate: Effect,
    }

    XgroupDelconsumer = "xgroup|delconsumer" {
        summary: "Remove a consumer from a group, with what it has pending.",
        complexity: "O(1)",
        since: "5.0.0",
        arity: 5,
        flags: [WRITE],
        acl: [STREAM],
        keys: [KeySpec::at(2, DELETE)],
        args: [
            key("key"),
            string("group"),
            string("consumer"),
        ],
    }

    XgroupDestroy = "xgroup|destroy" {
        summary: "Remove a consumer group.",
        complexity: "O(N), N: pending entries of the group",
        since: "5.0.0",
        arity: 4,
        flags: [WRITE],
        acl: [STREAM],
        keys: [KeySpec::at(2, DELETE)],
        args: [
            key("key"),
            string("group"),
        ],
    }

    XgroupHelp = "xgroup|help" {
        summary: "List the subcommands of XGROUP.",
        complexity: "O(1)",
        since: "5.0.0",
        arity: 2,
        flags: [LOADING, STALE],
        acl: [STREAM],
    }

    XgroupSetid = "xgroup|setid" {
        summary: "Set the id behind which a group reads on.",
        complexity: "O(1)",
        since: "5.0.0",
        history: [("7.0.0", "ENTRIESREAD.")],
        arity: -5,
        flags: [WRITE],
        acl: [STREAM],
        keys: [KeySpec::at(2, UPDATE)],
        args: [
            key("key"),
            string("group"),
            one_of("id-selector", &[string("id"), word("new-id", "$")]),
            integer("entriesread").display("entries-read").token("ENTRIESREAD").optional(),
        ],
    }

    Xinfo = "xinfo" {
        summary: "Inspect streams, groups and consumers.",
        complexity: "As the subcommand.",
        since: "5.0.0",
        arity: -2,
    }

    XinfoConsumers = "xinfo|consumers" {
        summary: "List the consumers of a group.",
        complexity: "O(1)",
        since: "5.0.0",
        history: [("7.2.0", "The field inactive; idle counts attempts too.")],
        arity: 4,
        flags: [READONLY],
        acl: [STREAM],
        tips: ["nondeterministic_output"],
        keys: [KeySpec::at(2, READ)],
        args: [
            key("key"),
            string("group"),
        ],
    }

    XinfoGroups = "xinfo|groups" {
        summary: "List the consumer groups of a stream.",
        complexity: "O(1)",
        since: "5.0.0",
        history: [("7.0.0", "The fields entries-read and lag.")],
        arity: 3,
        flags: [READONLY],
        acl: [STREAM],
        keys: [KeySpec::at(2, READ)],
        args: [
            key("key"),
        ],
    }

    XinfoHelp = "xinfo|help" {
        summary: "List the subcommands of XINFO.",
        complexity: "O(1)",
        since: "5.0.0",
        arity: 2,
        flags: [LOADING, STALE],
        acl: [STREAM],
    }

    XinfoStream = "xinfo|stream" {
        summary: "Describe a stream, or with FULL all that is in it.",
        complexity: "O(N), N: nodes of the stream, and what FULL shows",
        since: "5.0.0",
        history: [("6.0.0", "FULL."), ("7.0.0", "The fields max-deleted-entry-id, entries-added, recorded-first-entry-id, entries-read and lag."), ("7.2.0", "The field active-time; seen-time counts attempts too.")],
        arity: -3,
        flags: [READONLY],
        acl: [STREAM],
        keys: [KeySpec::at(2, READ)],
        args: [
            key("key"),
            block("full-block", &[
                word("full", "FULL"),
                integer("count").token("COUNT").optional(),
            ]).optional(),
        ],
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

    Xpending = "xpending" {
        summary: "Count what a group has pending, or list it.",
        complexity: "O(N), N: entries looked at, or consumers for the summary",
        since: "5.0.0",
        history: [("6.2.0", "IDLE, and bounds that exclude their id.")],
        arity: -3,
        flags: [READONLY],
        acl: [STREAM],
        tips: ["nondeterministic_output"],
        keys: [KeySpec::at(1, READ)],
        args: [
            key("key"),
            string("group"),
            block("filters", &[
                integer("min-idle-time").token("IDLE").since("6.2.0").optional(),
                string("start"),
                string("end"),
                integer("count"),
                string("consumer").optional(),
            ]).optional(),
        ],
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

    Xread = "xread" {
        summary: "Read entries behind given ids from one or more streams, waiting for some if asked to.",
        since: "5.0.0",
        arity: -4,
        flags: [READONLY, BLOCKING],
        acl: [STREAM],
        keys: [KeySpec::first_half(1, "STREAMS", &[("COUNT", 1), ("BLOCK", 1)], READ)],
        args: [
            integer("count").token("COUNT").optional(),
            integer("milliseconds").token("BLOCK").optional(),
            block("streams", &[key("key").multiple(), string("id").multiple()]).token("STREAMS"),
        ],
    }

    Xreadgroup = "xreadgroup" {
        summary: "Read entries as a consumer of a group, waiting for new ones if asked to.",
        complexity: "O(M) for each stream, M: entries returned",
        since: "5.0.0",
        arity: -7,
        flags: [WRITE, BLOCKING],
        acl: [STREAM],
        keys: [KeySpec::first_half(4, "STREAMS", &[("COUNT", 1), ("BLOCK", 1), ("GROUP", 2)], READ)],
        args: [
            block("group-block", &[string("group"), string("consumer")]).token("GROUP"),
            integer("count").token("COUNT").optional(),
            integer("milliseconds").token("BLOCK").optional(),
            word("noack", "NOACK").optional(),
            block("streams", &[key("key").multiple(), string("id").multiple()]).token("STREAMS"),
        ],
        propagate: Effect,
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

    Xsetid = "xsetid" {
        summary: "Set the counters of a stream, as replication needs it.",
        complexity: "O(1)",
        since: "5.0.0",
        history: [("7.0.0", "ENTRIESADDED and MAXDELETEDID.")],
        arity: -3,
        flags: [WRITE, DENYOOM, FAST],
        acl: [STREAM],
        keys: [KeySpec::at(1, UPDATE)],
        args: [
            key("key"),
            string("last-id"),
            integer("entries-added").token("ENTRIESADDED").since("7.0.0").optional(),
            string("max-deleted-id").token("MAXDELETEDID").since("7.0.0").optional(),
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
