//! The most frequent items: the rows of what Redis 8 has in its module `bf`. Rows only.

use super::prelude::*;

rows! { Module:
    TopkAdd = "topk.add" {
        summary: "Count items once each, and tell which are no longer among the k for it.",
        complexity: "O(1) for an item and a row, O(N*d) for N items in d rows",
        since: "9.0.0",
        arity: -3,
        flags: [WRITE, DENYOOM, MODULE],
        acl: [TOPK, WRITE, SLOW],
        keys: [KeySpec::at(1, READ_UPDATE)],
        args: [key("key"), string("item").multiple()],
    }

    TopkCount = "topk.count" {
        summary: "Get the counts of items.",
        complexity: "O(N*d), N: items, d: depth",
        since: "9.0.0",
        arity: -3,
        flags: [READONLY, MODULE],
        acl: [TOPK, READ, SLOW],
        keys: [KeySpec::at(1, READ)],
        args: [key("key"), string("item").multiple()],
    }

    TopkIncrby = "topk.incrby" {
        summary: "Count items several times, and tell which are no longer among the k for it.",
        complexity: "O(N*d*i), N: items, d: depth, i: increment",
        since: "9.0.0",
        arity: -4,
        flags: [WRITE, DENYOOM, MODULE],
        acl: [TOPK, WRITE, SLOW],
        keys: [KeySpec::at(1, READ_UPDATE)],
        args: [key("key"), block("items", &[string("item"), integer("increment")]).multiple()],
    }

    TopkInfo = "topk.info" {
        summary: "Tell the dimensions of a Top-K.",
        complexity: "O(1)",
        since: "9.0.0",
        arity: 2,
        flags: [READONLY, MODULE, FAST],
        acl: [TOPK, READ, FAST],
        keys: [KeySpec::at(1, READ)],
        args: [key("key")],
    }

    TopkList = "topk.list" {
        summary: "Get the k most frequent items.",
        complexity: "O(k*log(k))",
        since: "9.0.0",
        arity: -2,
        flags: [READONLY, MODULE],
        acl: [TOPK, READ, SLOW],
        keys: [KeySpec::at(1, READ)],
        args: [key("key"), word("withcount", "WITHCOUNT").optional()],
    }

    TopkQuery = "topk.query" {
        summary: "Tell for each item whether it is among the k.",
        complexity: "O(N*k), N: items",
        since: "9.0.0",
        arity: -3,
        flags: [READONLY, MODULE],
        acl: [TOPK, READ, SLOW],
        keys: [KeySpec::at(1, READ)],
        args: [key("key"), string("item").multiple()],
    }

    TopkReserve = "topk.reserve" {
        summary: "Make an empty Top-K.",
        complexity: "O(1)",
        since: "9.0.0",
        arity: -3,
        flags: [WRITE, DENYOOM, MODULE, FAST],
        acl: [TOPK, WRITE, FAST],
        keys: [KeySpec::at(1, READ_UPDATE)],
        args: [
            key("key"),
            integer("topk"),
            block("params", &[integer("width"), integer("depth"), double("decay")]).optional(),
        ],
    }
}
