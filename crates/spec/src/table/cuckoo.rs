//! Cuckoo filters: the rows of what Redis 8 has in its module `bf`. Rows only.

use super::prelude::*;

rows! { Module:
    CfAdd = "cf.add" {
        summary: "Add an item to a cuckoo filter, which is made if it is missing.",
        complexity: "O(1), once for each layer, and for each move in a full one",
        since: "9.0.0",
        arity: 3,
        flags: [WRITE, DENYOOM, MODULE],
        acl: [CUCKOO, WRITE, SLOW],
        keys: [KeySpec::at(1, READ_UPDATE)],
        args: [key("key"), string("item")],
        propagate: Effect,
    }

    CfAddnx = "cf.addnx" {
        summary: "Add an item to a cuckoo filter, unless it is found there.",
        complexity: "O(1), once for each layer, and for each move in a full one",
        since: "9.0.0",
        arity: 3,
        flags: [WRITE, DENYOOM, MODULE],
        acl: [CUCKOO, WRITE, SLOW],
        keys: [KeySpec::at(1, READ_UPDATE)],
        args: [key("key"), string("item")],
        propagate: Effect,
    }

    CfCompact = "cf.compact" {
        summary: "Move the items of a cuckoo filter to older layers.",
        complexity: "O(N), N: places",
        since: "9.0.0",
        arity: 2,
        flags: [WRITE, DENYOOM, MODULE],
        acl: [CUCKOO, WRITE, SLOW],
        keys: [KeySpec::at(1, READ_UPDATE)],
        args: [key("key")],
    }

    CfCount = "cf.count" {
        summary: "Tell how often an item may be in a cuckoo filter.",
        complexity: "O(1), once for each layer",
        since: "9.0.0",
        arity: 3,
        flags: [READONLY, MODULE, FAST],
        acl: [CUCKOO, READ, FAST],
        keys: [KeySpec::at(1, READ)],
        args: [key("key"), string("item")],
    }

    CfDebug = "cf.debug" {
        summary: "Tell how a cuckoo filter is made.",
        complexity: "O(1)",
        since: "9.0.0",
        arity: 2,
        flags: [READONLY, MODULE],
        acl: [CUCKOO, READ, SLOW],
        keys: [KeySpec::at(1, READ)],
        args: [key("key")],
    }

    CfDel = "cf.del" {
        summary: "Delete an item from a cuckoo filter once.",
        complexity: "O(1), once for each layer",
        since: "9.0.0",
        arity: 3,
        flags: [WRITE, MODULE, FAST],
        acl: [CUCKOO, WRITE, FAST],
        keys: [KeySpec::at(1, READ_UPDATE)],
        args: [key("key"), string("item")],
    }

    CfExists = "cf.exists" {
        summary: "Tell whether a cuckoo filter may have an item.",
        complexity: "O(1), once for each layer",
        since: "9.0.0",
        arity: 3,
        flags: [READONLY, MODULE, FAST],
        acl: [CUCKOO, READ, FAST],
        keys: [KeySpec::at(1, READ)],
        args: [key("key"), string("item")],
    }

    CfInfo = "cf.info" {
        summary: "Tell size and state of a cuckoo filter.",
        complexity: "O(1)",
        since: "9.0.0",
        arity: 2,
        flags: [READONLY, MODULE, FAST],
        acl: [CUCKOO, READ, FAST],
        keys: [KeySpec::at(1, READ)],
        args: [key("key")],
    }

    CfInsert = "cf.insert" {
        summary: "Add items to a cuckoo filter, which is made with this capacity if it is missing.",
        complexity: "O(N*(k+i)), N: items, k: layers, i: moves",
        since: "9.0.0",
        arity: -4,
        flags: [WRITE, DENYOOM, MODULE],
        acl: [CUCKOO, WRITE, SLOW],
        keys: [KeySpec::at(1, READ_UPDATE)],
        args: [
            key("key"),
            integer("capacity").token("CAPACITY").optional(),
            word("nocreate", "NOCREATE").optional(),
            string("item").token("ITEMS").multiple(),
        ],
        propagate: Effect,
    }

    CfInsertnx = "cf.insertnx" {
        summary: "Add items to a cuckoo filter, unless they are found there.",
        complexity: "O(N*(k+i)), N: items, k: layers, i: moves",
        since: "9.0.0",
        arity: -4,
        flags: [WRITE, DENYOOM, MODULE],
        acl: [CUCKOO, WRITE, SLOW],
        keys: [KeySpec::at(1, READ_UPDATE)],
        args: [
            key("key"),
            integer("capacity").token("CAPACITY").optional(),
            word("nocreate", "NOCREATE").optional(),
            string("item").token("ITEMS").multiple(),
        ],
        propagate: Effect,
    }

    CfLoadchunk = "cf.loadchunk" {
        summary: "Restore a part of a cuckoo filter that CF.SCANDUMP returned.",
        complexity: "O(N), N: bytes",
        since: "9.0.0",
        arity: 4,
        flags: [WRITE, DENYOOM, MODULE],
        acl: [CUCKOO, WRITE, SLOW],
        keys: [KeySpec::at(1, READ_UPDATE)],
        args: [key("key"), integer("iterator"), string("data")],
    }

    CfMexists = "cf.mexists" {
        summary: "Tell for each item whether a cuckoo filter may have it.",
        complexity: "O(k*N), k: layers, N: items",
        since: "9.0.0",
        arity: -3,
        flags: [READONLY, MODULE],
        acl: [CUCKOO, READ, SLOW],
        keys: [KeySpec::at(1, READ)],
        args: [key("key"), string("item").multiple()],
    }

    CfReserve = "cf.reserve" {
        summary: "Make an empty cuckoo filter for a number of items.",
        complexity: "O(1)",
        since: "9.0.0",
        arity: -3,
        flags: [WRITE, DENYOOM, MODULE, FAST],
        acl: [CUCKOO, WRITE, FAST],
        keys: [KeySpec::at(1, READ_UPDATE)],
        args: [
            key("key"),
            integer("capacity"),
            integer("bucketsize").token("BUCKETSIZE").optional(),
            integer("maxiterations").token("MAXITERATIONS").optional(),
            integer("expansion").token("EXPANSION").optional(),
        ],
        propagate: Effect,
    }

    CfScandump = "cf.scandump" {
        summary: "Get the next part of a cuckoo filter, to be restored elsewhere.",
        complexity: "O(N), N: bytes",
        since: "9.0.0",
        arity: 3,
        flags: [READONLY, MODULE],
        acl: [CUCKOO, READ, SLOW],
        keys: [KeySpec::at(1, READ)],
        args: [key("key"), integer("iterator")],
    }
}
