//! Tair's exZsets: rows only.

use super::prelude::*;
use crate::Arg;

const LIMIT: Arg = block("limit", &[integer("offset"), integer("count")])
    .token("LIMIT")
    .optional();
const WITHSCORES: Arg = word("withscores", "WITHSCORES").optional();
const WEIGHTS: Arg = double("weight").token("WEIGHTS").optional().multiple();
const AGGREGATE: Arg = one_of(
    "aggregate",
    &[word("sum", "SUM"), word("min", "MIN"), word("max", "MAX")],
)
.token("AGGREGATE")
.optional();

rows! { Module:
    Exzadd = "exzadd" {
        summary: "Add members with scores of several parts to an exZset, or change the scores.",
        complexity: "O(M*log(N)), N: members of the set, M: members given",
        since: "9.0.0",
        arity: -4,
        flags: [WRITE, DENYOOM, MODULE, FAST],
        acl: [TAIR, TAIRZSET],
        keys: [KeySpec::at(1, UPDATE)],
        args: [key("key"), one_of("condition", &[word("nx", "NX"), word("xx", "XX")]).optional(), word("change", "CH").optional(), word("increment", "INCR").optional(), block("data", &[string("score"), string("member")]).multiple()],
    }

    Exzincrby = "exzincrby" {
        summary: "Add to the score of a member of an exZset, part by part.",
        complexity: "O(log(N)), N: members of the set",
        since: "9.0.0",
        arity: 4,
        flags: [WRITE, DENYOOM, MODULE, FAST],
        acl: [TAIR, TAIRZSET],
        keys: [KeySpec::at(1, READ_UPDATE)],
        args: [key("key"), string("increment"), string("member")],
    }

    Exzscore = "exzscore" {
        summary: "Get the score of a member of an exZset.",
        complexity: "O(1)",
        since: "9.0.0",
        arity: 3,
        flags: [READONLY, MODULE, FAST],
        acl: [TAIR, TAIRZSET],
        keys: [KeySpec::at(1, READ)],
        args: [key("key"), string("member")],
    }

    Exzmscore = "exzmscore" {
        summary: "Get the scores of members of an exZset.",
        complexity: "O(N), N: members given",
        since: "9.0.0",
        arity: -3,
        flags: [READONLY, MODULE, FAST],
        acl: [TAIR, TAIRZSET],
        keys: [KeySpec::at(1, READ)],
        args: [key("key"), string("member").multiple()],
    }

    Exzcard = "exzcard" {
        summary: "Count the members of an exZset.",
        complexity: "O(1)",
        since: "9.0.0",
        arity: 2,
        flags: [READONLY, MODULE, FAST],
        acl: [TAIR, TAIRZSET],
        keys: [KeySpec::at(1, INSPECT)],
        args: [key("key")],
    }

    Exzrange = "exzrange" {
        summary: "Get the members of an exZset between two ranks.",
        complexity: "O(log(N)+M), N: members of the set, M: members returned",
        since: "9.0.0",
        arity: -4,
        flags: [READONLY, MODULE],
        acl: [TAIR, TAIRZSET],
        keys: [KeySpec::at(1, READ)],
        args: [key("key"), integer("start"), integer("stop"), WITHSCORES],
    }

    Exzrevrange = "exzrevrange" {
        summary: "Get the members of an exZset between two ranks, the highest first.",
        complexity: "O(log(N)+M), N: members of the set, M: members returned",
        since: "9.0.0",
        arity: -4,
        flags: [READONLY, MODULE],
        acl: [TAIR, TAIRZSET],
        keys: [KeySpec::at(1, READ)],
        args: [key("key"), integer("start"), integer("stop"), WITHSCORES],
    }

    Exzrangebyscore = "exzrangebyscore" {
        summary: "Get the members of an exZset between two scores.",
        complexity: "O(log(N)+M), N: members of the set, M: members returned",
        since: "9.0.0",
        arity: -4,
        flags: [READONLY, MODULE],
        acl: [TAIR, TAIRZSET],
        keys: [KeySpec::at(1, READ)],
        args: [key("key"), string("min"), string("max"), WITHSCORES, LIMIT],
    }

    Exzrevrangebyscore = "exzrevrangebyscore" {
        summary: "Get the members of an exZset between two scores, the highest first.",
        complexity: "O(log(N)+M), N: members of the set, M: members returned",
        since: "9.0.0",
        arity: -4,
        flags: [READONLY, MODULE],
        acl: [TAIR, TAIRZSET],
        keys: [KeySpec::at(1, READ)],
        args: [key("key"), string("max"), string("min"), WITHSCORES, LIMIT],
    }

    Exzrangebylex = "exzrangebylex" {
        summary: "Get the members of an exZset between two others, where all scores are equal.",
        complexity: "O(log(N)+M), N: members of the set, M: members returned",
        since: "9.0.0",
        arity: -4,
        flags: [READONLY, MODULE],
        acl: [TAIR, TAIRZSET],
        keys: [KeySpec::at(1, READ)],
        args: [key("key"), string("min"), string("max"), LIMIT],
    }

    Exzrevrangebylex = "exzrevrangebylex" {
        summary: "Get the members of an exZset between two others, the last first, where all scores are equal.",
        complexity: "O(log(N)+M), N: members of the set, M: members returned",
        since: "9.0.0",
        arity: -4,
        flags: [READONLY, MODULE],
        acl: [TAIR, TAIRZSET],
        keys: [KeySpec::at(1, READ)],
        args: [key("key"), string("max"), string("min"), LIMIT],
    }

    Exzrem = "exzrem" {
        summary: "Remove members of an exZset.",
        complexity: "O(M*log(N)), N: members of the set, M: members given",
        since: "9.0.0",
        arity: -3,
        flags: [WRITE, MODULE, FAST],
        acl: [TAIR, TAIRZSET],
        keys: [KeySpec::at(1, DELETE)],
        args: [key("key"), string("member").multiple()],
    }

    Exzremrangebyscore = "exzremrangebyscore" {
        summary: "Remove the members of an exZset between two scores.",
        complexity: "O(log(N)+M), N: members of the set, M: members returned",
        since: "9.0.0",
        arity: 4,
        flags: [WRITE, MODULE],
        acl: [TAIR, TAIRZSET],
        keys: [KeySpec::at(1, DELETE)],
        args: [key("key"), string("min"), string("max")],
    }

    Exzremrangebyrank = "exzremrangebyrank" {
        summary: "Remove the members of an exZset between two ranks.",
        complexity: "O(log(N)+M), N: members of the set, M: members returned",
        since: "9.0.0",
        arity: 4,
        flags: [WRITE, MODULE],
        acl: [TAIR, TAIRZSET],
        keys: [KeySpec::at(1, DELETE)],
        args: [key("key"), integer("start"), integer("stop")],
    }

    Exzremrangebylex = "exzremrangebylex" {
        summary: "Remove the members of an exZset between two others, where all scores are equal.",
        complexity: "O(log(N)+M), N: members of the set, M: members returned",
        since: "9.0.0",
        arity: 4,
        flags: [WRITE, MODULE],
        acl: [TAIR, TAIRZSET],
        keys: [KeySpec::at(1, DELETE)],
        args: [key("key"), string("min"), string("max")],
    }

    Exzrank = "exzrank" {
        summary: "Tell how many members of an exZset are before one.",
        complexity: "O(log(N)), N: members of the set",
        since: "9.0.0",
        arity: 3,
        flags: [READONLY, MODULE, FAST],
        acl: [TAIR, TAIRZSET],
        keys: [KeySpec::at(1, READ)],
        args: [key("key"), string("member")],
    }

    Exzrevrank = "exzrevrank" {
        summary: "Tell how many members of an exZset are behind one.",
        complexity: "O(log(N)), N: members of the set",
        since: "9.0.0",
        arity: 3,
        flags: [READONLY, MODULE, FAST],
        acl: [TAIR, TAIRZSET],
        keys: [KeySpec::at(1, READ)],
        args: [key("key"), string("member")],
    }

    Exzrankbyscore = "exzrankbyscore" {
        summary: "Tell how many members of an exZset are before a score.",
        complexity: "O(log(N)), N: members of the set",
        since: "9.0.0",
        arity: 3,
        flags: [READONLY, MODULE, FAST],
        acl: [TAIR, TAIRZSET],
        keys: [KeySpec::at(1, READ)],
        args: [key("key"), string("score")],
    }

    Exzrevrankbyscore = "exzrevrankbyscore" {
        summary: "Tell how many members of an exZset are not before a score.",
        complexity: "O(log(N)), N: members of the set",
        since: "9.0.0",
        arity: 3,
        flags: [READONLY, MODULE, FAST],
        acl: [TAIR, TAIRZSET],
        keys: [KeySpec::at(1, READ)],
        args: [key("key"), string("score")],
    }

    Exzcount = "exzcount" {
        summary: "Count the members of an exZset between two scores.",
        complexity: "O(log(N)), N: members of the set",
        since: "9.0.0",
        arity: 4,
        flags: [READONLY, MODULE, FAST],
        acl: [TAIR, TAIRZSET],
        keys: [KeySpec::at(1, READ)],
        args: [key("key"), string("min"), string("max")],
    }

    Exzlexcount = "exzlexcount" {
        summary: "Count the members of an exZset between two others, where all scores are equal.",
        complexity: "O(log(N)), N: members of the set",
        since: "9.0.0",
        arity: 4,
        flags: [READONLY, MODULE, FAST],
        acl: [TAIR, TAIRZSET],
        keys: [KeySpec::at(1, READ)],
        args: [key("key"), string("min"), string("max")],
    }

    Exzrandmember = "exzrandmember" {
        summary: "Pick random members of an exZset.",
        complexity: "O(N), N: members returned",
        since: "9.0.0",
        arity: -2,
        flags: [READONLY, MODULE],
        acl: [TAIR, TAIRZSET],
        keys: [KeySpec::at(1, READ)],
        args: [key("key"), block("options", &[integer("count"), word("withscores", "WITHSCORES").optional()]).optional()],
    }

    Exzscan = "exzscan" {
        summary: "Walk over the members of an exZset from a cursor on.",
        complexity: "O(1) for a call, O(N) for all, N: members",
        since: "9.0.0",
        arity: -3,
        flags: [READONLY, MODULE],
        acl: [TAIR, TAIRZSET],
        keys: [KeySpec::at(1, READ)],
        args: [key("key"), integer("cursor"), pattern("pattern").token("MATCH").optional(), integer("count").token("COUNT").optional()],
    }

    Exzunion = "exzunion" {
        summary: "Get the members of several exZsets, with their scores combined.",
        complexity: "O(N + M*log(M)), N: members of all sets, M: members of the result",
        since: "9.0.0",
        arity: -3,
        flags: [READONLY, MODULE],
        acl: [TAIR, TAIRZSET],
        keys: [KeySpec::counted_at(1, READ)],
        args: [integer("numkeys"), key("key").multiple(), WEIGHTS, AGGREGATE, WITHSCORES],
    }

    Exzinter = "exzinter" {
        summary: "Get the members that several exZsets have in common, with their scores combined.",
        complexity: "O(N + M*log(M)), N: members of all sets, M: members of the result",
        since: "9.0.0",
        arity: -3,
        flags: [READONLY, MODULE],
        acl: [TAIR, TAIRZSET],
        keys: [KeySpec::counted_at(1, READ)],
        args: [integer("numkeys"), key("key").multiple(), WEIGHTS, AGGREGATE, WITHSCORES],
    }

    Exzdiff = "exzdiff" {
        summary: "Get the members of an exZset that others have not.",
        complexity: "O(N + M*log(M)), N: members of all sets, M: members of the result",
        since: "9.0.0",
        arity: -3,
        flags: [READONLY, MODULE],
        acl: [TAIR, TAIRZSET],
        keys: [KeySpec::counted_at(1, READ)],
        args: [integer("numkeys"), key("key").multiple(), WITHSCORES],
    }

    Exzintercard = "exzintercard" {
        summary: "Count the members that several exZsets have in common.",
        complexity: "O(N*K), N: members of the smallest set, K: sets",
        since: "9.0.0",
        arity: -3,
        flags: [READONLY, MODULE],
        acl: [TAIR, TAIRZSET],
        keys: [KeySpec::counted_at(1, READ)],
        args: [integer("numkeys"), key("key").multiple(), integer("limit").token("LIMIT").optional()],
    }

    Exzunionstore = "exzunionstore" {
        summary: "Store the members of several exZsets, with their scores combined.",
        complexity: "O(N + M*log(M)), N: members of all sets, M: members of the result",
        since: "9.0.0",
        arity: -4,
        flags: [WRITE, DENYOOM, MODULE],
        acl: [TAIR, TAIRZSET],
        keys: [KeySpec::at(1, OVERWRITE), KeySpec::counted_at(2, READ)],
        args: [key("destination"), integer("numkeys"), key_of_spec("key", 1).multiple(), WEIGHTS, AGGREGATE],
    }

    Exzinterstore = "exzinterstore" {
        summary: "Store the members that several exZsets have in common, with their scores combined.",
        complexity: "O(N + M*log(M)), N: members of all sets, M: members of the result",
        since: "9.0.0",
        arity: -4,
        flags: [WRITE, DENYOOM, MODULE],
        acl: [TAIR, TAIRZSET],
        keys: [KeySpec::at(1, OVERWRITE), KeySpec::counted_at(2, READ)],
        args: [key("destination"), integer("numkeys"), key_of_spec("key", 1).multiple(), WEIGHTS, AGGREGATE],
    }

    Exzdiffstore = "exzdiffstore" {
        summary: "Store the members of an exZset that others have not.",
        complexity: "O(N + M*log(M)), N: members of all sets, M: members of the result",
        since: "9.0.0",
        arity: -4,
        flags: [WRITE, DENYOOM, MODULE],
        acl: [TAIR, TAIRZSET],
        keys: [KeySpec::at(1, OVERWRITE), KeySpec::counted_at(2, READ)],
        args: [key("destination"), integer("numkeys"), key_of_spec("key", 1).multiple()],
    }

    Exzpopmin = "exzpopmin" {
        summary: "Remove the members of an exZset with the lowest scores, and get them.",
        complexity: "O(M*log(N)), N: members of the set, M: members removed",
        since: "9.0.0",
        arity: -2,
        flags: [WRITE, MODULE, FAST],
        acl: [TAIR, TAIRZSET],
        keys: [KeySpec::at(1, READ_DELETE)],
        args: [key("key"), integer("count").optional()],
    }

    Exzpopmax = "exzpopmax" {
        summary: "Remove the members of an exZset with the highest scores, and get them.",
        complexity: "O(M*log(N)), N: members of the set, M: members removed",
        since: "9.0.0",
        arity: -2,
        flags: [WRITE, MODULE, FAST],
        acl: [TAIR, TAIRZSET],
        keys: [KeySpec::at(1, READ_DELETE)],
        args: [key("key"), integer("count").optional()],
    }

    Exbzpopmin = "exbzpopmin" {
        summary: "Remove the lowest member of the first exZset that has any, waiting if none has.",
        complexity: "O(log(N)), N: members of the set",
        since: "9.0.0",
        arity: -3,
        flags: [WRITE, BLOCKING, MODULE, FAST],
        acl: [TAIR, TAIRZSET],
        keys: [KeySpec::range(1, -2, 1, READ_DELETE)],
        args: [key("key").multiple(), double("timeout")],
        propagate: Effect,
    }

    Exbzpopmax = "exbzpopmax" {
        summary: "Remove the highest member of the first exZset that has any, waiting if none has.",
        complexity: "O(log(N)), N: members of the set",
        since: "9.0.0",
        arity: -3,
        flags: [WRITE, BLOCKING, MODULE, FAST],
        acl: [TAIR, TAIRZSET],
        keys: [KeySpec::range(1, -2, 1, READ_DELETE)],
        args: [key("key").multiple(), double("timeout")],
        propagate: Effect,
    }
}
