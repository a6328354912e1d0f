//! Timelines: the rows of TairTS's commands. Rows only.

use super::prelude::*;
use crate::Arg;

const HOWS: &[Arg] = &[
    word("min", "MIN"),
    word("max", "MAX"),
    word("sum", "SUM"),
    word("avg", "AVG"),
    word("std-p", "STD.P"),
    word("std-s", "STD.S"),
    word("var-p", "VAR.P"),
    word("var-s", "VAR.S"),
    word("count", "COUNT"),
    word("first", "FIRST"),
    word("last", "LAST"),
    word("range", "RANGE"),
];
const RETENTION: Arg = integer("milliseconds").token("DATA_ET").optional();
const CHUNK_SIZE: Arg = integer("samples").token("CHUNK_SIZE").optional();
const PLAIN: Arg = word("uncompressed", "UNCOMPRESSED").optional();
const LABELS: Arg = block(
    "labels",
    &[
        word("labels", "LABELS"),
        block("label", &[string("name"), string("value")]).multiple(),
    ],
)
.optional();
const SAMPLES: Arg = block("sample", &[string("name"), string("time"), double("value")]).multiple();
const COUNT: Arg = integer("count").token("MAXCOUNT").optional();
const BUCKETS: Arg = block(
    "buckets",
    &[one_of("aggregation", HOWS), integer("milliseconds")],
)
.token("AGGREGATION")
.optional();
const REVERSE: Arg = word("reverse", "REVERSE").optional();
const FILTER: Arg = block(
    "filters",
    &[word("filters", "FILTER"), string("filter").multiple()],
);

rows! { Module:
    ExtsPCreate = "exts.p.create" {
        summary: "Make a key for timelines.",
        complexity: "O(1)",
        since: "9.0.0",
        arity: 2,
        flags: [WRITE, DENYOOM, MODULE, FAST],
        acl: [TAIR, TAIRTS],
        keys: [KeySpec::at(1, INSERT)],
        args: [key("key")],
    }

    ExtsPRange = "exts.p.range" {
        summary: "Aggregate the samples of the timelines that fulfil a filter.",
        complexity: "O(N), N: samples in the range",
        since: "9.0.0",
        arity: -8,
        flags: [READONLY, MODULE],
        acl: [TAIR, TAIRTS],
        keys: [KeySpec::at(1, READ)],
        args: [key("key"), string("from"), string("to"), one_of("over-all", HOWS), integer("milliseconds"), COUNT, BUCKETS, REVERSE, FILTER],
    }

    ExtsSAdd = "exts.s.add" {
        summary: "Add a sample to a timeline, which is made if it is missing.",
        complexity: "O(1)",
        since: "9.0.0",
        arity: -5,
        flags: [WRITE, DENYOOM, MODULE, FAST],
        acl: [TAIR, TAIRTS],
        keys: [KeySpec::at(1, UPDATE)],
        args: [key("key"), string("name"), string("time"), double("value"), RETENTION, CHUNK_SIZE, PLAIN, LABELS],
        propagate: Effect,
    }

    ExtsSAlter = "exts.s.alter" {
        summary: "Change the properties of a timeline.",
        complexity: "O(N), N: labels",
        since: "9.0.0",
        arity: -3,
        flags: [WRITE, MODULE],
        acl: [TAIR, TAIRTS],
        keys: [KeySpec::at(1, UPDATE)],
        args: [key("key"), string("name"), RETENTION, LABELS],
    }

    ExtsSCreate = "exts.s.create" {
        summary: "Make a timeline.",
        complexity: "O(N), N: labels",
        since: "9.0.0",
        arity: -3,
        flags: [WRITE, DENYOOM, MODULE],
        acl: [TAIR, TAIRTS],
        keys: [KeySpec::at(1, UPDATE)],
        args: [key("key"), string("name"), RETENTION, CHUNK_SIZE, PLAIN, LABELS],
    }

    ExtsSDel = "exts.s.del" {
        summary: "Remove a timeline.",
        complexity: "O(N), N: chunks",
        since: "9.0.0",
        arity: 3,
        flags: [WRITE, MODULE],
        acl: [TAIR, TAIRTS],
        keys: [KeySpec::at(1, DELETE)],
        args: [key("key"), string("name")],
    }

    ExtsSGet = "exts.s.get" {
        summary: "Get the last sample of a timeline.",
        complexity: "O(log(N)), N: timelines",
        since: "9.0.0",
        arity: 3,
        flags: [READONLY, MODULE, FAST],
        acl: [TAIR, TAIRTS],
        keys: [KeySpec::at(1, READ)],
        args: [key("key"), string("name")],
    }

    ExtsSIncrby = "exts.s.incrby" {
        summary: "Add a sample that is the last one and a number.",
        complexity: "O(1)",
        since: "9.0.0",
        arity: -5,
        flags: [WRITE, DENYOOM, MODULE, FAST],
        acl: [TAIR, TAIRTS],
        keys: [KeySpec::at(1, UPDATE)],
        args: [key("key"), string("name"), string("time"), double("value"), RETENTION, CHUNK_SIZE, PLAIN, LABELS],
        propagate: Effect,
    }

    ExtsSInfo = "exts.s.info" {
        summary: "Tell the properties of a timeline.",
        complexity: "O(N), N: labels",
        since: "9.0.0",
        arity: 3,
        flags: [READONLY, MODULE],
        acl: [TAIR, TAIRTS],
        keys: [KeySpec::at(1, READ)],
        args: [key("key"), string("name")],
    }

    ExtsSMadd = "exts.s.madd" {
        summary: "Add samples to timelines.",
        complexity: "O(N), N: samples",
        since: "9.0.0",
        arity: -6,
        flags: [WRITE, DENYOOM, MODULE],
        acl: [TAIR, TAIRTS],
        keys: [KeySpec::at(1, UPDATE)],
        args: [key("key"), integer("count"), SAMPLES, RETENTION, CHUNK_SIZE, PLAIN, LABELS],
        propagate: Effect,
    }

    ExtsSMincrby = "exts.s.mincrby" {
        summary: "Add samples that are the last one and a number.",
        complexity: "O(N), N: samples",
        since: "9.0.0",
        arity: -6,
        flags: [WRITE, DENYOOM, MODULE],
        acl: [TAIR, TAIRTS],
        keys: [KeySpec::at(1, UPDATE)],
        args: [key("key"), integer("count"), SAMPLES, RETENTION, CHUNK_SIZE, PLAIN, LABELS],
        propagate: Effect,
    }

    ExtsSMrange = "exts.s.mrange" {
        summary: "Get the samples of the timelines that fulfil a filter.",
        complexity: "O(N), N: samples in the range",
        since: "9.0.0",
        arity: -6,
        flags: [READONLY, MODULE],
        acl: [TAIR, TAIRTS],
        keys: [KeySpec::at(1, READ)],
        args: [key("key"), string("from"), string("to"), COUNT, BUCKETS, REVERSE, word("withlabels", "WITHLABELS").optional(), FILTER],
    }

    ExtsSQueryindex = "exts.s.queryindex" {
        summary: "List the timelines that fulfil a filter.",
        complexity: "O(N), N: timelines",
        since: "9.0.0",
        arity: -3,
        flags: [READONLY, MODULE],
        acl: [TAIR, TAIRTS],
        keys: [KeySpec::at(1, READ)],
        args: [key("key"), string("filter").multiple()],
    }

    ExtsSRange = "exts.s.range" {
        summary: "Get the samples of a timeline.",
        complexity: "O(N), N: samples in the range",
        since: "9.0.0",
        arity: -5,
        flags: [READONLY, MODULE],
        acl: [TAIR, TAIRTS],
        keys: [KeySpec::at(1, READ)],
        args: [key("key"), string("name"), string("from"), string("to"), COUNT, BUCKETS, REVERSE],
    }

    ExtsSRawIncrby = "exts.s.raw_incrby" {
        summary: "Add a number to the sample of a time.",
        complexity: "O(N), N: samples of a chunk",
        since: "9.0.0",
        arity: -5,
        flags: [WRITE, DENYOOM, MODULE],
        acl: [TAIR, TAIRTS],
        keys: [KeySpec::at(1, UPDATE)],
        args: [key("key"), string("name"), string("time"), double("value"), RETENTION, CHUNK_SIZE, PLAIN, LABELS],
        propagate: Effect,
    }

    ExtsSRawMincrby = "exts.s.raw_mincrby" {
        summary: "Add numbers to the samples of times.",
        complexity: "O(N), N: samples of chunks",
        since: "9.0.0",
        arity: -6,
        flags: [WRITE, DENYOOM, MODULE],
        acl: [TAIR, TAIRTS],
        keys: [KeySpec::at(1, UPDATE)],
        args: [key("key"), integer("count"), SAMPLES, RETENTION, CHUNK_SIZE, PLAIN, LABELS],
        propagate: Effect,
    }

    ExtsSRawMmodify = "exts.s.raw_mmodify" {
        summary: "Set the samples of times.",
        complexity: "O(N), N: samples of chunks",
        since: "9.0.0",
        arity: -6,
        flags: [WRITE, DENYOOM, MODULE],
        acl: [TAIR, TAIRTS],
        keys: [KeySpec::at(1, UPDATE)],
        args: [key("key"), integer("count"), SAMPLES, RETENTION, CHUNK_SIZE, PLAIN, LABELS],
        propagate: Effect,
    }

    ExtsSRawModify = "exts.s.raw_modify" {
        summary: "Set the sample of a time.",
        complexity: "O(N), N: samples of a chunk",
        since: "9.0.0",
        arity: -5,
        flags: [WRITE, DENYOOM, MODULE],
        acl: [TAIR, TAIRTS],
        keys: [KeySpec::at(1, UPDATE)],
        args: [key("key"), string("name"), string("time"), double("value"), RETENTION, CHUNK_SIZE, PLAIN, LABELS],
        propagate: Effect,
    }
}
