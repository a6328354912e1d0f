//! Bitmaps: the rows of the group `bitmap`. Rows only.

use super::prelude::*;

rows! { Bitmap:
    Bitcount = "bitcount" {
        summary: "Count the set bits of a string, or of a part of it.",
        complexity: "O(N)",
        since: "2.6.0",
        history: [("7.0.0", "BYTE and BIT.")],
        arity: -2,
        flags: [READONLY],
        acl: [BITMAP],
        keys: [KeySpec::at(1, READ)],
        args: [
            key("key"),
            block("range", &[
                integer("start"),
                integer("end"),
                one_of("unit", &[word("byte", "BYTE"), word("bit", "BIT")]).since("7.0.0").optional(),
            ]).optional(),
        ],
    }

    Bitfield = "bitfield" {
        summary: "Read and change integers of any width inside a string.",
        complexity: "O(1) per operation",
        since: "3.2.0",
        arity: -2,
        flags: [WRITE, DENYOOM],
        acl: [BITMAP],
        keys: [
            KeySpec::at(1, READ_UPDATE)
                .note("Read only when every operation is a GET.")
                .variable(VariableAccess {
                    when: When::Beyond { operations: &[("GET", 2), ("OVERFLOW", 1)], from: 2 },
                    present: READ_UPDATE,
                    absent: READ,
                }),
        ],
        args: [
            key("key"),
            one_of("operation", &[
                block("get-block", &[string("encoding"), integer("offset")]).token("GET"),
                block("write", &[
                    one_of("overflow-block", &[
                        word("wrap", "WRAP"),
                        word("sat", "SAT"),
                        word("fail", "FAIL"),
                    ]).token("OVERFLOW").optional(),
                    one_of("write-operation", &[
                        block("set-block", &[
                            string("encoding"),
                            integer("offset"),
                            integer("value"),
                        ]).token("SET"),
                        block("incrby-block", &[
                            string("encoding"),
                            integer("offset"),
                            integer("increment"),
                        ]).token("INCRBY"),
                    ]),
                ]),
            ]).optional().multiple(),
        ],
    }

    BitfieldRo = "bitfield_ro" {
        summary: "Read integers of any width inside a string.",
        complexity: "O(1) per operation",
        since: "6.0.0",
        arity: -2,
        flags: [READONLY, FAST],
        acl: [BITMAP],
        keys: [KeySpec::at(1, READ)],
        args: [
            key("key"),
            block("get-block", &[string("encoding"), integer("offset")])
                .token("GET")
                .optional()
                .multiple_token(),
        ],
    }

    Bitop = "bitop" {
        summary: "Combine strings bit by bit and store what comes of it.",
        complexity: "O(N)",
        since: "2.6.0",
        arity: -4,
        flags: [WRITE, DENYOOM],
        acl: [BITMAP],
        keys: [KeySpec::at(2, OVERWRITE), KeySpec::range(3, -1, 1, READ)],
        args: [
            one_of("operation", &[
                word("and", "AND"),
                word("or", "OR"),
                word("xor", "XOR"),
                word("not", "NOT"),
                word("diff", "DIFF"),
                word("diff1", "DIFF1"),
                word("andor", "ANDOR"),
                word("one", "ONE"),
            ]),
            key("destkey"),
            key_of_spec("key", 1).multiple(),
        ],
    }

    Bitpos = "bitpos" {
        summary: "Find the first bit of a string that is set, or clear.",
        complexity: "O(N)",
        since: "2.8.7",
        history: [("7.0.0", "BYTE and BIT.")],
        arity: -3,
        flags: [READONLY],
        acl: [BITMAP],
        keys: [KeySpec::at(1, READ)],
        args: [
            key("key"),
            integer("bit"),
            block("range", &[
                integer("start"),
                block("end-unit-block", &[
                    integer("end"),
                    one_of("unit", &[word("byte", "BYTE"), word("bit", "BIT")]).since("7.0.0").optional(),
                ]).optional(),
            ]).optional(),
        ],
    }

    Getbit = "getbit" {
        summary: "Read one bit of a string.",
        complexity: "O(1)",
        since: "2.2.0",
        arity: 3,
        flags: [READONLY, FAST],
        acl: [BITMAP],
        keys: [KeySpec::at(1, READ)],
        args: [key("key"), integer("offset")],
    }

    Setbit = "setbit" {
        summary: "Set or clear one bit of a string, which grows if need be.",
        complexity: "O(1)",
        since: "2.2.0",
        arity: 4,
        flags: [WRITE, DENYOOM],
        acl: [BITMAP],
        keys: [KeySpec::at(1, READ_UPDATE)],
        args: [key("key"), integer("offset"), integer("value")],
    }
}
