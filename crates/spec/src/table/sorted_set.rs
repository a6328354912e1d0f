//! Sorted sets: the rows of the group `sorted-set`. Rows only.

use super::prelude::*;

rows! { SortedSet:
    Zadd = "zadd" {
        summary: "",
        since: "1.2.0",
        history: [("2.4.0", ""), ("3.0.2", ""), ("6.2.0", "")],
        arity: -4,
        flags: [WRITE, DENYOOM, FAST],
        acl: [SORTEDSET],
        keys: [KeySpec::at(1, UPDATE)],
        args: [
            key("key"),
            one_of("condition", &[
                word("nx", "NX"),
                word("xx", "XX"),
            ]).since("3.0.2").optional(),
            one_of("comparison", &[
                word("gt", "GT"),
                word("lt", "LT"),
            ]).since("6.2.0").optional(),
            word("change", "CH").since("3.0.2").optional(),
            word("increment", "INCR").since("3.0.2").optional(),
            block("data", &[double("score"), string("member")]).multiple(),
        ],
    }

    Zcard = "zcard" {
        summary: "",
        complexity: "O(1)",
        since: "1.2.0",
        arity: 2,
        flags: [READONLY, FAST],
        acl: [SORTEDSET],
        keys: [KeySpec::at(1, INSPECT)],
        args: [key("key")],
    }

    Zcount = "zcount" {
        summary: "",
        since: "2.0.0",
        arity: 4,
        flags: [READONLY, FAST],
        acl: [SORTEDSET],
        keys: [KeySpec::at(1, READ)],
        args: [key("key"), double("min"), double("max")],
    }

    Zdiff = "zdiff" {
        summary: "",
        since: "6.2.0",
        arity: -3,
        flags: [READONLY],
        acl: [SORTEDSET],
        keys: [KeySpec::counted_at(1, READ)],
        args: [
            integer("numkeys"),
            key("key").multiple(),
            word("withscores", "WITHSCORES").optional(),
        ],
    }

    Zdiffstore = "zdiffstore" {
        summary: "",
        since: "6.2.0",
        arity: -4,
        flags: [WRITE, DENYOOM],
        acl: [SORTEDSET],
        keys: [KeySpec::at(1, OVERWRITE), KeySpec::counted_at(2, READ)],
        args: [key("destination"), integer("numkeys"), key_of_spec("key", 1).multiple()],
    }

    Zincrby = "zincrby" {
        summary: "",
        since: "1.2.0",
        arity: 4,
        flags: [WRITE, DENYOOM, FAST],
        acl: [SORTEDSET],
        keys: [KeySpec::at(1, READ_UPDATE)],
        args: [key("key"), integer("increment"), string("member")],
    }

    Zinter = "zinter" {
        summary: "",
        since: "6.2.0",
        arity: -3,
        flags: [READONLY],
        acl: [SORTEDSET],
        keys: [KeySpec::counted_at(1, READ)],
        args: [
            integer("numkeys"),
            key("key").multiple(),
            integer("weight").token("WEIGHTS").optional().multiple(),
            one_of("aggregate", &[
                word("sum", "SUM"),
                word("min", "MIN"),
                word("max", "MAX"),
            ]).token("AGGREGATE").optional(),
            word("withscores", "WITHSCORES").optional(),
        ],
    }

    Zintercard = "zintercard" {
        summary: "",
        since: "7.0.0",
        arity: -3,
        flags: [READONLY],
        acl: [SORTEDSET],
        keys: [KeySpec::counted_at(1, READ)],
        args: [
            integer("numkeys"),
            key("key").multiple(),
            integer("limit").token("LIMIT").optional(),
        ],
    }

    Zinterstore = "zinterstore" {
        summary: "",
        since: "2.0.0",
        arity: -4,
        flags: [WRITE, DENYOOM],
        acl: [SORTEDSET],
        keys: [KeySpec::at(1, OVERWRITE), KeySpec::counted_at(2, READ)],
        args: [
            key("destination"),
            integer("numkeys"),
            key_of_spec("key", 1).multiple(),
            integer("weight").token("WEIGHTS").optional().multiple(),
            one_of("aggregate", &[
                word("sum", "SUM"),
                word("min", "MIN"),
                word("max", "MAX"),
            ]).token("AGGREGATE").optional(),
        ],
    }

    Zlexcount = "zlexcount" {
        summary: "",
        since: "2.8.9",
        arity: 4,
        flags: [READONLY, FAST],
        acl: [SORTEDSET],
        keys: [KeySpec::at(1, READ)],
        args: [key("key"), string("min"), string("max")],
    }

    Zmpop = "zmpop" {
        summary: "",
        since: "7.0.0",
        arity: -4,
        flags: [WRITE],
        acl: [SORTEDSET],
        keys: [KeySpec::counted_at(1, READ_DELETE)],
        args: [
            integer("numkeys"),
            key("key").multiple(),
            one_of("where", &[word("min", "MIN"), word("max", "MAX")]),
            integer("count").token("COUNT").optional(),
        ],
        propagate: Effect,
    }

    Zmscore = "zmscore" {
        summary: "",
        since: "6.2.0",
        arity: -3,
        flags: [READONLY, FAST],
        acl: [SORTEDSET],
        keys: [KeySpec::at(1, READ)],
        args: [key("key"), string("member").multiple()],
    }

    Zpopmax = "zpopmax" {
        summary: "",
        since: "5.0.0",
        arity: -2,
        flags: [WRITE, FAST],
        acl: [SORTEDSET],
        keys: [KeySpec::at(1, READ_DELETE)],
        args: [key("key"), integer("count").optional()],
    }

    Zpopmin = "zpopmin" {
        summary: "",
        since: "5.0.0",
        arity: -2,
        flags: [WRITE, FAST],
        acl: [SORTEDSET],
        keys: [KeySpec::at(1, READ_DELETE)],
        args: [key("key"), integer("count").optional()],
    }

    Zrandmember = "zrandmember" {
        summary: "",
        since: "6.2.0",
        arity: -2,
        flags: [READONLY],
        acl: [SORTEDSET],
        tips: ["nondeterministic_output"],
        keys: [KeySpec::at(1, READ)],
        args: [
            key("key"),
            block("options", &[
                integer("count"),
                word("withscores", "WITHSCORES").optional(),
            ]).optional(),
        ],
    }

    Zrange = "zrange" {
        summary: "",
        since: "1.2.0",
        history: [("6.2.0", "")],
        arity: -4,
        flags: [READONLY],
        acl: [SORTEDSET],
        keys: [KeySpec::at(1, READ)],
        args: [
            key("key"),
            string("start"),
            string("stop"),
            one_of("sortby", &[
                word("byscore", "BYSCORE"),
                word("bylex", "BYLEX"),
            ]).since("6.2.0").optional(),
            word("rev", "REV").since("6.2.0").optional(),
            block("limit", &[
                integer("offset"),
                integer("count"),
            ]).token("LIMIT").since("6.2.0").optional(),
            word("withscores", "WITHSCORES").optional(),
        ],
    }

    Zrangebylex = "zrangebylex" {
        summary: "",
        since: "2.8.9",
        deprecated: { since: "6.2.0", replaced_by: "`ZRANGE` with the `BYLEX` argument" },
        arity: -4,
        flags: [READONLY],
        acl: [SORTEDSET],
        keys: [KeySpec::at(1, READ)],
        args: [
            key("key"),
            string("min"),
            string("max"),
            block("limit", &[integer("offset"), integer("count")]).token("LIMIT").optional(),
        ],
    }

    Zrangebyscore = "zrangebyscore" {
        summary: "",
        since: "1.0.5",
        history: [("2.0.0", "")],
        deprecated: { since: "6.2.0", replaced_by: "`ZRANGE` with the `BYSCORE` argument" },
        arity: -4,
        flags: [READONLY],
        acl: [SORTEDSET],
        keys: [KeySpec::at(1, READ)],
        args: [
            key("key"),
            double("min"),
            double("max"),
            word("withscores", "WITHSCORES").since("2.0.0").optional(),
            block("limit", &[integer("offset"), integer("count")]).token("LIMIT").optional(),
        ],
    }

    Zrangestore = "zrangestore" {
        summary: "",
        since: "6.2.0",
        arity: -5,
        flags: [WRITE, DENYOOM],
        acl: [SORTEDSET],
        keys: [KeySpec::at(1, OVERWRITE), KeySpec::at(2, READ)],
        args: [
            key("dst"),
            key_of_spec("src", 1),
            string("min"),
            string("max"),
            one_of("sortby", &[word("byscore", "BYSCORE"), word("bylex", "BYLEX")]).optional(),
            word("rev", "REV").optional(),
            block("limit", &[integer("offset"), integer("count")]).token("LIMIT").optional(),
        ],
    }

    Zrank = "zrank" {
        summary: "",
        complexity: "O(log(N))",
        since: "2.0.0",
        history: [("7.2.0", "")],
        arity: -3,
        flags: [READONLY, FAST],
        acl: [SORTEDSET],
        keys: [KeySpec::at(1, READ)],
        args: [key("key"), string("member"), word("withscore", "WITHSCORE").optional()],
    }

    Zrem = "zrem" {
        summary: "",
        since: "1.2.0",
        history: [("2.4.0", "")],
        arity: -3,
        flags: [WRITE, FAST],
        acl: [SORTEDSET],
        keys: [KeySpec::at(1, DELETE)],
        args: [key("key"), string("member").multiple()],
    }

    Zremrangebylex = "zremrangebylex" {
        summary: "",
        since: "2.8.9",
        arity: 4,
        flags: [WRITE],
        acl: [SORTEDSET],
        keys: [KeySpec::at(1, DELETE)],
        args: [key("key"), string("min"), string("max")],
    }

    Zremrangebyrank = "zremrangebyrank" {
        summary: "",
        since: "2.0.0",
        arity: 4,
        flags: [WRITE],
        acl: [SORTEDSET],
        keys: [KeySpec::at(1, DELETE)],
        args: [key("key"), integer("start"), integer("stop")],
    }

    Zremrangebyscore = "zremrangebyscore" {
        summary: "",
        since: "1.2.0",
        arity: 4,
        flags: [WRITE],
        acl: [SORTEDSET],
        keys: [KeySpec::at(1, DELETE)],
        args: [key("key"), double("min"), double("max")],
    }

    Zrevrange = "zrevrange" {
        summary: "",
        since: "1.2.0",
        deprecated: { since: "6.2.0", replaced_by: "`ZRANGE` with the `REV` argument" },
        arity: -4,
        flags: [READONLY],
        acl: [SORTEDSET],
        keys: [KeySpec::at(1, READ)],
        args: [
            key("key"),
            integer("start"),
            integer("stop"),
            word("withscores", "WITHSCORES").optional(),
        ],
    }

    Zrevrangebylex = "zrevrangebylex" {
        summary: "",
        since: "2.8.9",
        deprecated: { since: "6.2.0", replaced_by: "`ZRANGE` with the `REV` and `BYLEX` arguments" },
        arity: -4,
        flags: [READONLY],
        acl: [SORTEDSET],
        keys: [KeySpec::at(1, READ)],
        args: [
            key("key"),
            string("max"),
            string("min"),
            block("limit", &[integer("offset"), integer("count")]).token("LIMIT").optional(),
        ],
    }

    Zrevrangebyscore = "zrevrangebyscore" {
        summary: "",
        since: "2.2.0",
        history: [("2.1.6", "")],
        deprecated: { since: "6.2.0", replaced_by: "`ZRANGE` with the `REV` and `BYSCORE` arguments" },
        arity: -4,
        flags: [READONLY],
        acl: [SORTEDSET],
        keys: [KeySpec::at(1, READ)],
        args: [
            key("key"),
            double("max"),
            double("min"),
            word("withscores", "WITHSCORES").optional(),
            block("limit", &[integer("offset"), integer("count")]).token("LIMIT").optional(),
        ],
    }

    Zrevrank = "zrevrank" {
        summary: "",
        complexity: "O(log(N))",
        since: "2.0.0",
        history: [("7.2.0", "")],
        arity: -3,
        flags: [READONLY, FAST],
        acl: [SORTEDSET],
        keys: [KeySpec::at(1, READ)],
        args: [key("key"), string("member"), word("withscore", "WITHSCORE").optional()],
    }

    Zscan = "zscan" {
        summary: "",
        since: "2.8.0",
        arity: -3,
        flags: [READONLY],
        acl: [SORTEDSET],
        tips: ["nondeterministic_output"],
        keys: [KeySpec::at(1, READ)],
        args: [
            key("key"),
            integer("cursor"),
            pattern("pattern").token("MATCH").optional(),
            integer("count").token("COUNT").optional(),
        ],
    }

    Zscore = "zscore" {
        summary: "",
        complexity: "O(1)",
        since: "1.2.0",
        arity: 3,
        flags: [READONLY, FAST],
        acl: [SORTEDSET],
        keys: [KeySpec::at(1, READ)],
        args: [key("key"), string("member")],
    }

    Zunion = "zunion" {
        summary: "",
        since: "6.2.0",
        arity: -3,
        flags: [READONLY],
        acl: [SORTEDSET],
        keys: [KeySpec::counted_at(1, READ)],
        args: [
            integer("numkeys"),
            key("key").multiple(),
            integer("weight").token("WEIGHTS").optional().multiple(),
            one_of("aggregate", &[
                word("sum", "SUM"),
                word("min", "MIN"),
                word("max", "MAX"),
            ]).token("AGGREGATE").optional(),
            word("withscores", "WITHSCORES").optional(),
        ],
    }

    Zunionstore = "zunionstore" {
        summary: "",
        since: "2.0.0",
        arity: -4,
        flags: [WRITE, DENYOOM],
        acl: [SORTEDSET],
        keys: [KeySpec::at(1, OVERWRITE), KeySpec::counted_at(2, READ)],
        args: [
            key("destination"),
            integer("numkeys"),
            key_of_spec("key", 1).multiple(),
            integer("weight").token("WEIGHTS").optional().multiple(),
            one_of("aggregate", &[
                word("sum", "SUM"),
                word("min", "MIN"),
                word("max", "MAX"),
            ]).token("AGGREGATE").optional(),
        ],
    }
}
