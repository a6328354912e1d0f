//! Time series: the rows of what Redis 8 has in its module `timeseries`. Rows only.
//!
//! A rule writes a key that no argument names, and LATEST reads one; so these commands have a wider scope than their keys.

use super::prelude::*;
use crate::Arg;

const POLICIES: &[Arg] = &[
    word("block", "BLOCK"),
    word("first", "FIRST"),
    word("last", "LAST"),
    word("min", "MIN"),
    word("max", "MAX"),
    word("sum", "SUM"),
];
const RETENTION: Arg = integer("retention").token("RETENTION").optional();
const ENCODING: Arg = one_of(
    "encoding",
    &[
        word("compressed", "COMPRESSED"),
        word("uncompressed", "UNCOMPRESSED"),
    ],
)
.token("ENCODING")
.optional();
const CHUNK_SIZE: Arg = integer("size").token("CHUNK_SIZE").optional();
const POLICY: Arg = one_of("policy", POLICIES)
    .token("DUPLICATE_POLICY")
    .optional();
const IGNORE: Arg = block(
    "ignore",
    &[integer("ms").token("IGNORE"), double("difference")],
)
.optional();
const LABELS: Arg = block(
    "labels",
    &[
        word("labels", "LABELS"),
        block("label", &[string("name"), string("value")]).multiple(),
    ],
)
.optional();
const BUCKETS: Arg = block(
    "buckets",
    &[
        string("align").token("ALIGN").optional(),
        string("aggregation").token("AGGREGATION"),
        integer("bucket"),
        string("bucket-timestamp")
            .token("BUCKETTIMESTAMP")
            .optional(),
        word("empty", "EMPTY").optional(),
    ],
)
.optional();
const SHOWN_LABELS: Arg = one_of(
    "labels",
    &[
        word("withlabels", "WITHLABELS"),
        string("label").token("SELECTED_LABELS").multiple(),
    ],
)
.optional();
const BY_TIMES: Arg = integer("timestamp")
    .token("FILTER_BY_TS")
    .multiple()
    .optional();
const BY_VALUES: Arg = block(
    "values",
    &[double("min").token("FILTER_BY_VALUE"), double("max")],
)
.optional();
const GROUPS: Arg = block(
    "group",
    &[
        string("label").token("GROUPBY"),
        string("reducer").token("REDUCE"),
    ],
)
.optional();

rows! { Module:
    TsAdd = "ts.add" {
        summary: "Add a sample to a time series, which is made if it is missing.",
        complexity: "O(M), M: rules",
        since: "9.0.0",
        arity: -4,
        flags: [WRITE, DENYOOM, MODULE, FAST],
        acl: [TIMESERIES, WRITE, FAST],
        keys: [KeySpec::at(1, READ_INSERT)],
        args: [
            key("key"),
            string("timestamp"),
            double("value"),
            RETENTION,
            ENCODING,
            CHUNK_SIZE,
            POLICY,
            one_of("on-duplicate", POLICIES).token("ON_DUPLICATE").optional(),
            IGNORE,
            LABELS,
        ],
        scope: KeysPlus,
        propagate: Effect,
    }

    TsAlter = "ts.alter" {
        summary: "Change the properties of a time series.",
        complexity: "O(N), N: labels",
        since: "9.0.0",
        arity: -2,
        flags: [WRITE, DENYOOM, MODULE],
        acl: [TIMESERIES, WRITE, SLOW],
        keys: [KeySpec::at(1, READ_UPDATE)],
        args: [
            key("key"),
            RETENTION,
            CHUNK_SIZE,
            POLICY,
            IGNORE,
            LABELS,
        ],
    }

    TsCreate = "ts.create" {
        summary: "Make a time series.",
        complexity: "O(N), N: labels",
        since: "9.0.0",
        arity: -2,
        flags: [WRITE, DENYOOM, MODULE],
        acl: [TIMESERIES, WRITE, SLOW],
        keys: [KeySpec::at(1, CREATE)],
        args: [
            key("key"),
            RETENTION,
            ENCODING,
            CHUNK_SIZE,
            POLICY,
            IGNORE,
            LABELS,
        ],
        propagate: Effect,
    }

    TsCreaterule = "ts.createrule" {
        summary: "Make a rule by which a time series is compacted into another one.",
        complexity: "O(1)",
        since: "9.0.0",
        arity: -6,
        flags: [WRITE, DENYOOM, MODULE],
        acl: [TIMESERIES, WRITE, SLOW],
        keys: [KeySpec::at(1, READ_UPDATE), KeySpec::at(2, READ_UPDATE)],
        args: [
            key("source-key"),
            key_of_spec("target-key", 1),
            string("aggregation").token("AGGREGATION"),
            integer("bucket"),
            integer("align").optional(),
        ],
        scope: KeysPlus,
    }

    TsDecrby = "ts.decrby" {
        summary: "Add a sample that is the last one less a number.",
        complexity: "O(M), M: rules",
        since: "9.0.0",
        arity: -3,
        flags: [WRITE, DENYOOM, MODULE, FAST],
        acl: [TIMESERIES, WRITE, FAST],
        keys: [KeySpec::at(1, READ_INSERT)],
        args: [
            key("key"),
            double("subtrahend"),
            string("timestamp").token("TIMESTAMP").optional(),
            RETENTION,
            ENCODING,
            CHUNK_SIZE,
            POLICY,
            IGNORE,
            LABELS,
        ],
        scope: KeysPlus,
        propagate: Effect,
    }

    TsDel = "ts.del" {
        summary: "Delete the samples of a range of time.",
        complexity: "O(N), N: samples of the chunks that the range touches",
        since: "9.0.0",
        arity: 4,
        flags: [WRITE, MODULE],
        acl: [TIMESERIES, WRITE, SLOW],
        keys: [KeySpec::at(1, DELETE_UPDATE)],
        args: [
            key("key"),
            string("from"),
            string("to"),
        ],
        scope: KeysPlus,
    }

    TsDeleterule = "ts.deleterule" {
        summary: "Delete a rule.",
        complexity: "O(1)",
        since: "9.0.0",
        arity: 3,
        flags: [WRITE, MODULE],
        acl: [TIMESERIES, WRITE, SLOW],
        keys: [KeySpec::at(1, READ_UPDATE), KeySpec::at(2, READ_UPDATE)],
        args: [
            key("source-key"),
            key_of_spec("target-key", 1),
        ],
    }

    TsGet = "ts.get" {
        summary: "Get the last sample of a time series.",
        complexity: "O(1)",
        since: "9.0.0",
        arity: -2,
        flags: [READONLY, MODULE, FAST],
        acl: [TIMESERIES, READ, FAST],
        keys: [KeySpec::at(1, READ)],
        args: [
            key("key"),
            word("latest", "LATEST").optional(),
        ],
        scope: KeysPlus,
    }

    TsIncrby = "ts.incrby" {
        summary: "Add a sample that is the last one plus a number.",
        complexity: "O(M), M: rules",
        since: "9.0.0",
        arity: -3,
        flags: [WRITE, DENYOOM, MODULE, FAST],
        acl: [TIMESERIES, WRITE, FAST],
        keys: [KeySpec::at(1, READ_INSERT)],
        args: [
            key("key"),
            double("addend"),
            string("timestamp").token("TIMESTAMP").optional(),
            RETENTION,
            ENCODING,
            CHUNK_SIZE,
            POLICY,
            IGNORE,
            LABELS,
        ],
        scope: KeysPlus,
        propagate: Effect,
    }

    TsInfo = "ts.info" {
        summary: "Tell properties and state of a time series.",
        complexity: "O(1)",
        since: "9.0.0",
        arity: -2,
        flags: [READONLY, MODULE, FAST],
        acl: [TIMESERIES, READ, FAST],
        keys: [KeySpec::at(1, READ)],
        args: [
            key("key"),
            word("debug", "DEBUG").optional(),
        ],
        scope: KeysPlus,
    }

    TsMadd = "ts.madd" {
        summary: "Add samples to time series.",
        complexity: "O(N*M), N: samples, M: rules",
        since: "9.0.0",
        arity: -4,
        flags: [WRITE, DENYOOM, MODULE],
        acl: [TIMESERIES, WRITE, SLOW],
        keys: [KeySpec::range(1, -1, 3, READ_INSERT)],
        args: [
            block("sample", &[key("key"), string("timestamp"), double("value")]).multiple(),
        ],
        scope: KeysPlus,
        propagate: Effect,
    }

    TsMget = "ts.mget" {
        summary: "Get the last samples of the time series that fulfil a filter.",
        complexity: "O(N), N: series",
        since: "9.0.0",
        arity: -3,
        flags: [READONLY, MODULE],
        acl: [TIMESERIES, READ, SLOW],
        args: [
            word("latest", "LATEST").optional(),
            SHOWN_LABELS,
            string("filter").token("FILTER").multiple(),
        ],
        scope: OneStripe,
    }

    TsMrange = "ts.mrange" {
        summary: "Query a range of the time series that fulfil a filter.",
        complexity: "O(N), N: samples of the chunks that the range touches",
        since: "9.0.0",
        arity: -4,
        flags: [READONLY, MODULE],
        acl: [TIMESERIES, READ, SLOW],
        args: [
            string("from"),
            string("to"),
            word("latest", "LATEST").optional(),
            BY_TIMES,
            BY_VALUES,
            SHOWN_LABELS,
            integer("count").token("COUNT").optional(),
            BUCKETS,
            string("filter").token("FILTER").multiple(),
            GROUPS,
        ],
        scope: OneStripe,
    }

    TsMrevrange = "ts.mrevrange" {
        summary: "Query a range of the time series that fulfil a filter, backwards.",
        complexity: "O(N), N: samples of the chunks that the range touches",
        since: "9.0.0",
        arity: -4,
        flags: [READONLY, MODULE],
        acl: [TIMESERIES, READ, SLOW],
        args: [
            string("from"),
            string("to"),
            word("latest", "LATEST").optional(),
            BY_TIMES,
            BY_VALUES,
            SHOWN_LABELS,
            integer("count").token("COUNT").optional(),
            BUCKETS,
            string("filter").token("FILTER").multiple(),
            GROUPS,
        ],
        scope: OneStripe,
    }

    TsQueryindex = "ts.queryindex" {
        summary: "Find the time series that fulfil a filter.",
        complexity: "O(N), N: series",
        since: "9.0.0",
        arity: -2,
        flags: [READONLY, MODULE],
        acl: [TIMESERIES, READ, SLOW],
        args: [
            string("filter").multiple(),
        ],
        scope: OneStripe,
    }

    TsRange = "ts.range" {
        summary: "Query a range of a time series.",
        complexity: "O(N), N: samples of the chunks that the range touches",
        since: "9.0.0",
        arity: -4,
        flags: [READONLY, MODULE],
        acl: [TIMESERIES, READ, SLOW],
        keys: [KeySpec::at(1, READ)],
        args: [
            key("key"),
            string("from"),
            string("to"),
            word("latest", "LATEST").optional(),
            BY_TIMES,
            BY_VALUES,
            integer("count").token("COUNT").optional(),
            BUCKETS,
        ],
        scope: KeysPlus,
    }

    TsRevrange = "ts.revrange" {
        summary: "Query a range of a time series, backwards.",
        complexity: "O(N), N: samples of the chunks that the range touches",
        since: "9.0.0",
        arity: -4,
        flags: [READONLY, MODULE],
        acl: [TIMESERIES, READ, SLOW],
        keys: [KeySpec::at(1, READ)],
        args: [
            key("key"),
            string("from"),
            string("to"),
            word("latest", "LATEST").optional(),
            BY_TIMES,
            BY_VALUES,
            integer("count").token("COUNT").optional(),
            BUCKETS,
        ],
        scope: KeysPlus,
    }
}
