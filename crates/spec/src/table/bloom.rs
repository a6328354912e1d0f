//! Bloom filters: the rows of what Redis 8 has in its module `bf`. Rows only.

use super::prelude::*;

rows! { Module:
    BfAdd = "bf.add" {
        summary: "Add an item to a Bloom filter, which is made if it is missing.",
        complexity: "O(1), once for each hash and layer",
        since: "9.0.0",
        arity: 3,
        flags: [WRITE, DENYOOM, MODULE],
        acl: [BLOOM, WRITE, SLOW],
        keys: [KeySpec::at(1, READ_UPDATE)],
        args: [key("key"), string("item")],
        propagate: Effect,
    }

    BfCard = "bf.card" {
        summary: "Count the items that were added to a Bloom filter.",
        complexity: "O(1)",
        since: "9.0.0",
        arity: 2,
        flags: [READONLY, MODULE, FAST],
        acl: [BLOOM, READ, FAST],
        keys: [KeySpec::at(1, READ)],
        args: [key("key")],
    }

    BfDebug = "bf.debug" {
        summary: "Tell how the layers of a Bloom filter are made.",
        complexity: "O(N), N: layers",
        since: "9.0.0",
        arity: 2,
        flags: [READONLY, MODULE],
        acl: [BLOOM, READ, SLOW],
        keys: [KeySpec::at(1, READ)],
        args: [key("key")],
    }

    BfExists = "bf.exists" {
        summary: "Tell whether a Bloom filter may have an item.",
        complexity: "O(1), once for each hash and layer",
        since: "9.0.0",
        arity: 3,
        flags: [READONLY, MODULE, FAST],
        acl: [BLOOM, READ, FAST],
        keys: [KeySpec::at(1, READ)],
        args: [key("key"), string("item")],
    }

    BfInfo = "bf.info" {
        summary: "Tell size and state of a Bloom filter.",
        complexity: "O(1)",
        since: "9.0.0",
        arity: -2,
        flags: [READONLY, MODULE, FAST],
        acl: [BLOOM, READ, FAST],
        keys: [KeySpec::at(1, READ)],
        args: [
            key("key"),
            one_of("single-value", &[word("capacity", "CAPACITY"), word("size", "SIZE"), word("filters", "FILTERS"), word("items", "ITEMS"), word("expansion", "EXPANSION")]).optional(),
        ],
    }

    BfInsert = "bf.insert" {
        summary: "Add items to a Bloom filter, which is made with these properties if it is missing.",
        complexity: "O(k*N), k: hashes, N: items",
        since: "9.0.0",
        arity: -4,
        flags: [WRITE, DENYOOM, MODULE],
        acl: [BLOOM, WRITE, SLOW],
        keys: [KeySpec::at(1, READ_UPDATE)],
        args: [
            key("key"),
            integer("capacity").token("CAPACITY").optional(),
            double("error").token("ERROR").optional(),
            integer("expansion").token("EXPANSION").optional(),
            word("nocreate", "NOCREATE").optional(),
            word("nonscaling", "NONSCALING").optional(),
            string("item").token("ITEMS").multiple(),
        ],
        propagate: Effect,
    }

    BfLoadchunk = "bf.loadchunk" {
        summary: "Restore a part of a Bloom filter that BF.SCANDUMP returned.",
        complexity: "O(N), N: bytes",
        since: "9.0.0",
        arity: 4,
        flags: [WRITE, DENYOOM, MODULE],
        acl: [BLOOM, WRITE, SLOW],
        keys: [KeySpec::at(1, READ_UPDATE)],
        args: [key("key"), integer("iterator"), string("data")],
    }

    BfMadd = "bf.madd" {
        summary: "Add items to a Bloom filter, which is made if it is missing.",
        complexity: "O(k*N), k: hashes, N: items",
        since: "9.0.0",
        arity: -3,
        flags: [WRITE, DENYOOM, MODULE],
        acl: [BLOOM, WRITE, SLOW],
        keys: [KeySpec::at(1, READ_UPDATE)],
        args: [key("key"), string("item").multiple()],
        propagate: Effect,
    }

    BfMexists = "bf.mexists" {
        summary: "Tell for each item whether a Bloom filter may have it.",
        complexity: "O(k*N), k: hashes, N: items",
        since: "9.0.0",
        arity: -3,
        flags: [READONLY, MODULE],
        acl: [BLOOM, READ, SLOW],
        keys: [KeySpec::at(1, READ)],
        args: [key("key"), string("item").multiple()],
    }

    BfReserve = "bf.reserve" {
        summary: "Make an empty Bloom filter for a rate of errors and a number of items.",
        complexity: "O(1)",
        since: "9.0.0",
        arity: -4,
        flags: [WRITE, DENYOOM, MODULE, FAST],
        acl: [BLOOM, WRITE, FAST],
        keys: [KeySpec::at(1, READ_UPDATE)],
        args: [
            key("key"),
            double("error_rate"),
            integer("capacity"),
            integer("expansion").token("EXPANSION").optional(),
            word("nonscaling", "NONSCALING").optional(),
        ],
        propagate: Effect,
    }

    BfScandump = "bf.scandump" {
        summary: "Get the next part of a Bloom filter, to be restored elsewhere.",
        complexity: "O(N), N: bytes",
        since: "9.0.0",
        arity: 3,
        flags: [READONLY, MODULE],
        acl: [BLOOM, READ, SLOW],
        keys: [KeySpec::at(1, READ)],
        args: [key("key"), integer("iterator")],
    }
}
