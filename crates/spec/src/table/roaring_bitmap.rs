//! Compressed bitmaps: the rows of TairRoaring's commands. Rows only.

use super::prelude::*;

const OPERATION: crate::Arg = one_of(
    "operation",
    &[
        word("and", "AND"),
        word("or", "OR"),
        word("xor", "XOR"),
        word("not", "NOT"),
        word("diff", "DIFF"),
    ],
);

rows! { Module:
    TrAppendbitarray = "TR.APPENDBITARRAY" {
        summary: "Write bits behind an offset.",
        complexity: "O(N)",
        since: "9.0.0",
        arity: 4,
        flags: [WRITE, DENYOOM, MODULE],
        acl: [TAIR, TAIRROARING],
        keys: [KeySpec::at(1, READ_UPDATE)],
        args: [key("key"), integer("offset"), string("bits")],
    }

    TrAppendintarray = "TR.APPENDINTARRAY" {
        summary: "Set bits.",
        complexity: "O(N)",
        since: "9.0.0",
        arity: -3,
        flags: [WRITE, DENYOOM, MODULE],
        acl: [TAIR, TAIRROARING],
        keys: [KeySpec::at(1, READ_UPDATE)],
        args: [key("key"), integer("offset").multiple()],
    }

    TrBitcount = "TR.BITCOUNT" {
        summary: "Count the bits that are set, in all or in a range.",
        complexity: "O(N)",
        since: "9.0.0",
        arity: -2,
        flags: [READONLY, MODULE],
        acl: [TAIR, TAIRROARING],
        keys: [KeySpec::at(1, READ)],
        args: [key("key"), block("range", &[integer("start"), integer("end")]).optional()],
    }

    TrBitop = "TR.BITOP" {
        summary: "Store the combination of bitmaps.",
        complexity: "O(N)",
        since: "9.0.0",
        arity: -4,
        flags: [WRITE, DENYOOM, MODULE],
        acl: [TAIR, TAIRROARING],
        keys: [KeySpec::at(1, OVERWRITE), KeySpec::range(3, -1, 1, READ)],
        args: [key("destination"), OPERATION, key_of_spec("key", 1).multiple()],
    }

    TrBitopcard = "TR.BITOPCARD" {
        summary: "Count the bits of the combination of bitmaps.",
        complexity: "O(N)",
        since: "9.0.0",
        arity: -3,
        flags: [READONLY, MODULE],
        acl: [TAIR, TAIRROARING],
        keys: [KeySpec::range(2, -1, 1, READ)],
        args: [OPERATION, key("key").multiple()],
    }

    TrBitpos = "TR.BITPOS" {
        summary: "Find the bit of a number among those that are set, or not.",
        complexity: "O(N)",
        since: "9.0.0",
        arity: -3,
        flags: [READONLY, MODULE],
        acl: [TAIR, TAIRROARING],
        keys: [KeySpec::at(1, READ)],
        args: [key("key"), integer("bit"), integer("count").optional()],
    }

    TrClearbits = "TR.CLEARBITS" {
        summary: "Clear bits.",
        complexity: "O(N)",
        since: "9.0.0",
        arity: -3,
        flags: [WRITE, MODULE],
        acl: [TAIR, TAIRROARING],
        keys: [KeySpec::at(1, READ_UPDATE)],
        args: [key("key"), integer("offset").multiple()],
    }

    TrContains = "TR.CONTAINS" {
        summary: "Tell if all bits of a bitmap are set in another.",
        complexity: "O(N)",
        since: "9.0.0",
        arity: 3,
        flags: [READONLY, MODULE],
        acl: [TAIR, TAIRROARING],
        keys: [KeySpec::range(1, 1, 1, READ)],
        args: [key("key"), key("other")],
    }

    TrDiff = "TR.DIFF" {
        summary: "Store the bits of a bitmap that are not in another.",
        complexity: "O(N)",
        since: "9.0.0",
        arity: 4,
        flags: [WRITE, DENYOOM, MODULE],
        acl: [TAIR, TAIRROARING],
        keys: [KeySpec::at(1, OVERWRITE), KeySpec::range(2, 1, 1, READ)],
        args: [key("destination"), key_of_spec("key", 1), key_of_spec("other", 1)],
    }

    TrFliprange = "TR.FLIPRANGE" {
        summary: "Turn the bits of a range over.",
        complexity: "O(N)",
        since: "9.0.0",
        arity: 4,
        flags: [WRITE, DENYOOM, MODULE],
        acl: [TAIR, TAIRROARING],
        keys: [KeySpec::at(1, READ_UPDATE)],
        args: [key("key"), integer("start"), integer("end")],
    }

    TrGetbit = "TR.GETBIT" {
        summary: "Get a bit.",
        complexity: "O(1)",
        since: "9.0.0",
        arity: 3,
        flags: [READONLY, FAST, MODULE],
        acl: [TAIR, TAIRROARING],
        keys: [KeySpec::at(1, READ)],
        args: [key("key"), integer("offset")],
    }

    TrGetbits = "TR.GETBITS" {
        summary: "Get bits.",
        complexity: "O(N)",
        since: "9.0.0",
        arity: -3,
        flags: [READONLY, MODULE],
        acl: [TAIR, TAIRROARING],
        keys: [KeySpec::at(1, READ)],
        args: [key("key"), integer("offset").multiple()],
    }

    TrJaccard = "TR.JACCARD" {
        summary: "Tell the share of the bits of two bitmaps that are in both.",
        complexity: "O(N)",
        since: "9.0.0",
        arity: 3,
        flags: [READONLY, MODULE],
        acl: [TAIR, TAIRROARING],
        keys: [KeySpec::range(1, 1, 1, READ)],
        args: [key("key"), key("other")],
    }

    TrLoad = "TR.LOAD" {
        summary: "Store the bits of a string.",
        complexity: "O(N)",
        since: "9.0.0",
        arity: 3,
        flags: [WRITE, DENYOOM, MODULE],
        acl: [TAIR, TAIRROARING],
        keys: [KeySpec::at(1, OVERWRITE), KeySpec::at(2, READ)],
        args: [key("key"), key_of_spec("source", 1)],
    }

    TrLoadstring = "TR.LOADSTRING" {
        summary: "Store the bits of a string.",
        complexity: "O(N)",
        since: "9.0.0",
        arity: 3,
        flags: [WRITE, DENYOOM, MODULE],
        acl: [TAIR, TAIRROARING],
        keys: [KeySpec::at(1, OVERWRITE), KeySpec::at(2, READ)],
        args: [key("key"), key_of_spec("source", 1)],
    }

    TrMax = "TR.MAX" {
        summary: "Get the greatest offset that is set.",
        complexity: "O(1)",
        since: "9.0.0",
        arity: 2,
        flags: [READONLY, FAST, MODULE],
        acl: [TAIR, TAIRROARING],
        keys: [KeySpec::at(1, READ)],
        args: [key("key")],
    }

    TrMin = "TR.MIN" {
        summary: "Get the least offset that is set.",
        complexity: "O(1)",
        since: "9.0.0",
        arity: 2,
        flags: [READONLY, FAST, MODULE],
        acl: [TAIR, TAIRROARING],
        keys: [KeySpec::at(1, READ)],
        args: [key("key")],
    }

    TrOptimize = "TR.OPTIMIZE" {
        summary: "Store runs of bits as such.",
        complexity: "O(N)",
        since: "9.0.0",
        arity: 2,
        flags: [WRITE, MODULE],
        acl: [TAIR, TAIRROARING],
        keys: [KeySpec::at(1, READ_UPDATE)],
        args: [key("key")],
    }

    TrRange = "TR.RANGE" {
        summary: "List the offsets of a range that are set.",
        complexity: "O(N)",
        since: "9.0.0",
        arity: 4,
        flags: [READONLY, MODULE],
        acl: [TAIR, TAIRROARING],
        keys: [KeySpec::at(1, READ)],
        args: [key("key"), integer("start"), integer("end")],
    }

    TrRangebitarray = "TR.RANGEBITARRAY" {
        summary: "Get the bits of a range.",
        complexity: "O(N)",
        since: "9.0.0",
        arity: 4,
        flags: [READONLY, MODULE],
        acl: [TAIR, TAIRROARING],
        keys: [KeySpec::at(1, READ)],
        args: [key("key"), integer("start"), integer("end")],
    }

    TrRank = "TR.RANK" {
        summary: "Count the bits that are set up to an offset.",
        complexity: "O(N)",
        since: "9.0.0",
        arity: 3,
        flags: [READONLY, MODULE],
        acl: [TAIR, TAIRROARING],
        keys: [KeySpec::at(1, READ)],
        args: [key("key"), integer("offset")],
    }

    TrScan = "TR.SCAN" {
        summary: "List offsets that are set from one on, with where to go on.",
        complexity: "O(N)",
        since: "9.0.0",
        arity: -3,
        flags: [READONLY, MODULE],
        acl: [TAIR, TAIRROARING],
        keys: [KeySpec::at(1, READ)],
        args: [key("key"), integer("start"), integer("count").token("COUNT").optional()],
    }

    TrSetbit = "TR.SETBIT" {
        summary: "Set or clear a bit.",
        complexity: "O(1)",
        since: "9.0.0",
        arity: 4,
        flags: [WRITE, DENYOOM, FAST, MODULE],
        acl: [TAIR, TAIRROARING],
        keys: [KeySpec::at(1, READ_UPDATE)],
        args: [key("key"), integer("offset"), integer("bit")],
    }

    TrSetbitarray = "TR.SETBITARRAY" {
        summary: "Store bits.",
        complexity: "O(N)",
        since: "9.0.0",
        arity: 3,
        flags: [WRITE, DENYOOM, MODULE],
        acl: [TAIR, TAIRROARING],
        keys: [KeySpec::at(1, READ_UPDATE)],
        args: [key("key"), string("bits")],
    }

    TrSetbits = "TR.SETBITS" {
        summary: "Set bits; tells how many are set then.",
        complexity: "O(N)",
        since: "9.0.0",
        arity: -3,
        flags: [WRITE, DENYOOM, MODULE],
        acl: [TAIR, TAIRROARING],
        keys: [KeySpec::at(1, READ_UPDATE)],
        args: [key("key"), integer("offset").multiple()],
    }

    TrSetintarray = "TR.SETINTARRAY" {
        summary: "Store the bitmap of these offsets.",
        complexity: "O(N)",
        since: "9.0.0",
        arity: -3,
        flags: [WRITE, DENYOOM, MODULE],
        acl: [TAIR, TAIRROARING],
        keys: [KeySpec::at(1, READ_UPDATE)],
        args: [key("key"), integer("offset").multiple()],
    }

    TrSetrange = "TR.SETRANGE" {
        summary: "Set the bits of a range.",
        complexity: "O(N)",
        since: "9.0.0",
        arity: 4,
        flags: [WRITE, DENYOOM, MODULE],
        acl: [TAIR, TAIRROARING],
        keys: [KeySpec::at(1, READ_UPDATE)],
        args: [key("key"), integer("start"), integer("end")],
    }

    TrStat = "TR.STAT" {
        summary: "Tell the figures of a bitmap.",
        complexity: "O(N)",
        since: "9.0.0",
        arity: -2,
        flags: [READONLY, MODULE],
        acl: [TAIR, TAIRROARING],
        keys: [KeySpec::at(1, READ)],
        args: [key("key"), word("json", "JSON").optional()],
    }
}
