//! Sorted sets: the rows of the group `sorted-set`. Rows only.

use super::prelude::*;

rows! { SortedSet:
    Bzmpop = "bzmpop" {
        summary: "Pop members from the first sorted set that has any, waiting if none has.",
        complexity: "O(K) + O(M*log(N)), K: keys, N: members of the set, M: members popped",
        since: "7.0.0",
        arity: -5,
        flags: [WRITE, BLOCKING],
        acl: [SORTEDSET],
        keys: [KeySpec::counted_at(2, READ_DELETE)],
        args: [
            double("timeout"),
            integer("numkeys"),
            key("key").multiple(),
            one_of("where", &[word("min", "MIN"), word("max", "MAX")]),
            integer("count").token("COUNT").optional(),
        ],
        propagate: Effect,
    }

    Bzpopmax = "bzpopmax" {
        summary: "Pop the highest-scored member of the first sorted set that has any, waiting if none has.",
        complexity: "O(log(N)), N: members of the set",
        since: "5.0.0",
        history: [("6.0.0", "A timeout with fractions of a second.")],
        arity: -3,
        flags: [WRITE, BLOCKING, FAST],
        acl: [SORTEDSET],
        keys: [KeySpec::range(1, -2, 1, READ_DELETE)],
        args: [key("key").multiple(), double("timeout")],
        propagate: Effect,
    }

    Bzpopmin = "bzpopmin" {
        summary: "Pop the lowest-scored member of the first sorted set that has any, waiting if none has.",
        complexity: "O(log(N)), N: members of the set",
        since: "5.0.0",
        history: [("6.0.0", "A timeout with fractions of a second.")],
        arity: -3,
        flags: [WRITE, BLOCKING, FAST],
        acl: [SORTEDSET],
        keys: [KeySpec::range(1, -2, 1, READ_DELETE)],
        args: [key("key").multiple(), double("timeout")],
        propagate: Effect,
    }

    Zadd = "zadd" {
        summary: "Add members with their scores to a sorted set, or change the scores.",
        complexity: "O(M*log(N)), N: members of the set, M: members given",
        since: "1.2.0",
        history: [
            ("2.4.0", "Several members."),
            ("3.0.2", "XX, NX, CH and INCR."),
            ("6.2.0", "GT and LT."),
        ],
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
        summary: "Count the members of a sorted set.",
        complexity: "O(1)",
        since: "1.2.0",
        arity: 2,
        flags: [READONLY, FAST],
        acl: [SORTEDSET],
        keys: [KeySpec::at(1, INSPECT)],
        args: [key("key")],
    }

    Zcount = "zcount" {
        summary: "Count the members whose score is between two bounds.",
        complexity: "O(log(N)), N: members of the set",
        since: "2.0.0",
        arity: 4,
        flags: [READONLY, FAST],
        acl: [SORTEDSET],
        keys: [KeySpec::at(1, READ)],
        args: [key("key"), double("min"), double("max")],
    }

    Zdiff = "zdiff" {
        summary: "Tell which members of the first sorted set are in none of the others.",
        complexity: "O(L + (N-K)*log(N)), L: members of all sets, N: of the first, K: of the result",
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
        summary: "Store the members of the first sorted set that are in none of the others.",
        complexity: "O(L + (N-K)*log(N)), L: members of all sets, N: of the first, K: of the result",
        since: "6.2.0",
        arity: -4,
        flags: [WRITE, DENYOOM],
        acl: [SORTEDSET],
        keys: [KeySpec::at(1, OVERWRITE), KeySpec::counted_at(2, READ)],
        args: [key("destination"), integer("numkeys"), key_of_spec("key", 1).multiple()],
    }

    Zincrby = "zincrby" {
        summary: "Add to the score of a member.",
        complexity: "O(log(N)), N: members of the set",
        since: "1.2.0",
        arity: 4,
        flags: [WRITE, DENYOOM, FAST],
        acl: [SORTEDSET],
        keys: [KeySpec::at(1, READ_UPDATE)],
        args: [key("key"), integer("increment"), string("member")],
    }

    Zinter = "zinter" {
        summary: "Tell which members all sorted sets share, with combined scores.",
        complexity: "O(N*K + M*log(M)), N: members of the smallest set, K: sets, M: members of the result",
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
        summary: "Count the members that all sorted sets share, up to a limit.",
        complexity: "O(N*K), N: members of the smallest set, K: sets",
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
        summary: "Store the members that all sorted sets share, with combined scores.",
        complexity: "O(N*K + M*log(M)), N: members of the smallest set, K: sets, M: members of the result",
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
        summary: "Count the members between two bounds in the order of their bytes.",
        complexity: "O(log(N)), N: members of the set",
        since: "2.8.9",
        arity: 4,
        flags: [READONLY, FAST],
        acl: [SORTEDSET],
        keys: [KeySpec::at(1, READ)],
        args: [key("key"), string("min"), string("max")],
    }

    Zmpop = "zmpop" {
        summary: "Pop the members of lowest or highest score from the first sorted set that has any.",
        complexity: "O(K + M*log(N)), K: keys, N: members of the set, M: members popped",
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
        summary: "Read the scores of several members.",
        complexity: "O(N), N: members given",
        since: "6.2.0",
        arity: -3,
        flags: [READONLY, FAST],
        acl: [SORTEDSET],
        keys: [KeySpec::at(1, READ)],
        args: [key("key"), string("member").multiple()],
    }

    Zpopmax = "zpopmax" {
        summary: "Pop the members of highest score.",
        complexity: "O(M*log(N)), N: members of the set, M: members popped",
        since: "5.0.0",
        arity: -2,
        flags: [WRITE, FAST],
        acl: [SORTEDSET],
        keys: [KeySpec::at(1, READ_DELETE)],
        args: [key("key"), integer("count").optional()],
    }

    Zpopmin = "zpopmin" {
        summary: "Pop the members of lowest score.",
        complexity: "O(M*log(N)), N: members of the set, M: members popped",
        since: "5.0.0",
        arity: -2,
        flags: [WRITE, FAST],
        acl: [SORTEDSET],
        keys: [KeySpec::at(1, READ_DELETE)],
        args: [key("key"), integer("count").optional()],
    }

    Zrandmember = "zrandmember" {
        summary: "Pick random members of a sorted set.",
        complexity: "O(N), N: members returned",
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
        summary: "Read the members between two ranks, two scores or two byte strings.",
        complexity: "O(log(N)+M), N: members of the set, M: members returned",
        since: "1.2.0",
        history: [("6.2.0", "REV, BYSCORE, BYLEX and LIMIT.")],
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
        summary: "Read the members between two bounds in the order of their bytes.",
        complexity: "O(log(N)+M), N: members of the set, M: members returned",
        since: "2.8.9",
        deprecated: { since: "6.2.0", replaced_by: "ZRANGE with BYLEX" },
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
        summary: "Read the members whose score is between two bounds.",
        complexity: "O(log(N)+M), N: members of the set, M: members returned",
        since: "1.0.5",
        history: [("2.0.0", "WITHSCORES.")],
        deprecated: { since: "6.2.0", replaced_by: "ZRANGE with BYSCORE" },
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
        summary: "Store the members between two ranks, two scores or two byte strings.",
        complexity: "O(log(N)+M), N: members of the source, M: members stored",
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
        summary: "Tell a member's rank, counted from the lowest score.",
        complexity: "O(log(N)), N: members of the set",
        since: "2.0.0",
        history: [("7.2.0", "WITHSCORE.")],
        arity: -3,
        flags: [READONLY, FAST],
        acl: [SORTEDSET],
        keys: [KeySpec::at(1, READ)],
        args: [key("key"), string("member"), word("withscore", "WITHSCORE").optional()],
    }

    Zrem = "zrem" {
        summary: "Remove members from a sorted set.",
        complexity: "O(M*log(N)), N: members of the set, M: members given",
        since: "1.2.0",
        history: [("2.4.0", "Several members.")],
        arity: -3,
        flags: [WRITE, FAST],
        acl: [SORTEDSET],
        keys: [KeySpec::at(1, DELETE)],
        args: [key("key"), string("member").multiple()],
    }

    Zremrangebylex = "zremrangebylex" {
        summary: "Remove the members between two bounds in the order of their bytes.",
        complexity: "O(log(N)+M), N: members of the set, M: members removed",
        since: "2.8.9",
        arity: 4,
        flags: [WRITE],
        acl: [SORTEDSET],
        keys: [KeySpec::at(1, DELETE)],
        args: [key("key"), string("min"), string("max")],
    }

    Zremrangebyrank = "zremrangebyrank" {
        summary: "Remove the members between two ranks.",
        complexity: "O(log(N)+M), N: members of the set, M: members removed",
        since: "2.0.0",
        arity: 4,
        flags: [WRITE],
        acl: [SORTEDSET],
        keys: [KeySpec::at(1, DELETE)],
        args: [key("key"), integer("start"), integer("stop")],
    }

    Zremrangebyscore = "zremrangebyscore" {
        summary: "Remove the members whose score is between two bounds.",
        complexity: "O(log(N)+M), N: members of the set, M: members removed",
        since: "1.2.0",
        arity: 4,
        flags: [WRITE],
        acl: [SORTEDSET],
        keys: [KeySpec::at(1, DELETE)],
        args: [key("key"), double("min"), double("max")],
    }

    Zrevrange = "zrevrange" {
        summary: "Read the members between two ranks, counted from the highest score.",
        complexity: "O(log(N)+M), N: members of the set, M: members returned",
        since: "1.2.0",
        deprecated: { since: "6.2.0", replaced_by: "ZRANGE with REV" },
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
        summary: "Read the members between two bounds in the order of their bytes, last first.",
        complexity: "O(log(N)+M), N: members of the set, M: members returned",
        since: "2.8.9",
        deprecated: { since: "6.2.0", replaced_by: "ZRANGE with REV and BYLEX" },
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
        summary: "Read the members whose score is between two bounds, highest first.",
        complexity: "O(log(N)+M), N: members of the set, M: members returned",
        since: "2.2.0",
        history: [("2.1.6", "Bounds that exclude their score.")],
        deprecated: { since: "6.2.0", replaced_by: "ZRANGE with REV and BYSCORE" },
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
        summary: "Tell a member's rank, counted from the highest score.",
        complexity: "O(log(N)), N: members of the set",
        since: "2.0.0",
        history: [("7.2.0", "WITHSCORE.")],
        arity: -3,
        flags: [READONLY, FAST],
        acl: [SORTEDSET],
        keys: [KeySpec::at(1, READ)],
        args: [key("key"), string("member"), word("withscore", "WITHSCORE").optional()],
    }

    Zscan = "zscan" {
        summary: "Walk over the members of a sorted set with their scores, a few per call.",
        complexity: "O(1) per call, O(N) for the whole walk, N: members",
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
            word("noscores", "NOSCORES").since("9.0.0").optional(),
        ],
    }

    Zscore = "zscore" {
        summary: "Read the score of a member.",
        complexity: "O(1)",
        since: "1.2.0",
        arity: 3,
        flags: [READONLY, FAST],
        acl: [SORTEDSET],
        keys: [KeySpec::at(1, READ)],
        args: [key("key"), string("member")],
    }

    Zunion = "zunion" {
        summary: "List the members of several sorted sets together, with combined scores.",
        complexity: "O(N + M*log(M)), N: members of all sets, M: members of the result",
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
        summary: "Store the members of several sorted sets together, with combined scores.",
        complexity: "O(N + M*log(M)), N: members of all sets, M: members of the result",
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
