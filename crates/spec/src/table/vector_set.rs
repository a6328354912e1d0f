//! Vector sets: the rows of the group `module`, since Redis has these commands in a module. Rows only.
//!
//! Such commands check their own number of arguments; the executor needs only the key. They are in no ACL category.

use super::prelude::*;

rows! { Module:
    Vadd = "VADD" {
        summary: "Add an element with its vector to a vector set, or give it another vector.",
        complexity: "O(log(N)), N: elements",
        since: "8.0.0",
        arity: -2,
        flags: [WRITE, DENYOOM, MODULE],
        keys: [KeySpec::at(1, READ_UPDATE)],
        args: [
            key("key"),
            integer("dim").token("REDUCE").optional(),
            one_of("vector", &[
                string("blob").token("FP32"),
                block("values", &[integer("num").token("VALUES"), double("value").multiple()]),
            ]),
            string("element"),
            word("cas", "CAS").optional(),
            one_of("quantization", &[word("noquant", "NOQUANT"), word("q8", "Q8"), word("bin", "BIN")]).optional(),
            integer("build-exploration-factor").token("EF").optional(),
            string("attributes").token("SETATTR").optional(),
            integer("numlinks").token("M").optional(),
        ],
        propagate: Effect,
    }

    Vcard = "VCARD" {
        summary: "Count the elements of a vector set.",
        complexity: "O(1)",
        since: "8.0.0",
        arity: -2,
        flags: [READONLY, MODULE, FAST],
        keys: [KeySpec::at(1, READ_UPDATE)],
        args: [key("key")],
    }

    Vdim = "VDIM" {
        summary: "Tell how many components the vectors of a vector set have.",
        complexity: "O(1)",
        since: "8.0.0",
        arity: -2,
        flags: [READONLY, MODULE, FAST],
        keys: [KeySpec::at(1, READ_UPDATE)],
        args: [key("key")],
    }

    Vemb = "VEMB" {
        summary: "Get the vector of an element.",
        complexity: "O(1)",
        since: "8.0.0",
        arity: -2,
        flags: [READONLY, MODULE, FAST],
        keys: [KeySpec::at(1, READ_UPDATE)],
        args: [key("key"), string("element"), word("raw", "RAW").optional()],
    }

    Vgetattr = "VGETATTR" {
        summary: "Get the attributes of an element.",
        complexity: "O(1)",
        since: "8.0.0",
        arity: -2,
        flags: [READONLY, MODULE, FAST],
        keys: [KeySpec::at(1, READ_UPDATE)],
        args: [key("key"), string("element")],
    }

    Vinfo = "VINFO" {
        summary: "Tell how a vector set is made.",
        complexity: "O(1)",
        since: "8.0.0",
        arity: -2,
        flags: [READONLY, MODULE, FAST],
        keys: [KeySpec::at(1, READ_UPDATE)],
        args: [key("key")],
    }

    Vismember = "VISMEMBER" {
        summary: "Tell whether a vector set has an element.",
        complexity: "O(1)",
        since: "8.0.0",
        arity: -2,
        flags: [READONLY, MODULE],
        keys: [KeySpec::at(1, READ_UPDATE)],
        args: [key("key"), string("element")],
    }

    Vlinks = "VLINKS" {
        summary: "Tell the neighbours of an element in the graph, layer by layer.",
        complexity: "O(1)",
        since: "8.0.0",
        arity: -2,
        flags: [READONLY, MODULE, FAST],
        keys: [KeySpec::at(1, READ_UPDATE)],
        args: [key("key"), string("element"), word("withscores", "WITHSCORES").optional()],
    }

    Vrandmember = "VRANDMEMBER" {
        summary: "Pick random elements of a vector set.",
        complexity: "O(N), N: elements returned",
        since: "8.0.0",
        arity: -2,
        flags: [READONLY, MODULE],
        keys: [KeySpec::at(1, READ_UPDATE)],
        args: [key("key"), integer("count").optional()],
    }

    Vrem = "VREM" {
        summary: "Remove an element from a vector set.",
        complexity: "O(log(N)), N: elements",
        since: "8.0.0",
        arity: -2,
        flags: [WRITE, MODULE],
        keys: [KeySpec::at(1, READ_UPDATE)],
        args: [key("key"), string("element")],
    }

    Vsetattr = "VSETATTR" {
        summary: "Set the attributes of an element, or take them away.",
        complexity: "O(1)",
        since: "8.0.0",
        arity: -2,
        flags: [WRITE, MODULE, FAST],
        keys: [KeySpec::at(1, READ_UPDATE)],
        args: [key("key"), string("element"), string("json")],
    }

    Vsim = "VSIM" {
        summary: "Find the elements whose vectors are most similar to a vector.",
        complexity: "O(log(N)), N: elements",
        since: "8.0.0",
        arity: -2,
        flags: [READONLY, MODULE],
        keys: [KeySpec::at(1, READ_UPDATE)],
        args: [
            key("key"),
            one_of("vector", &[
                string("element").token("ELE"),
                string("blob").token("FP32"),
                block("values", &[integer("num").token("VALUES"), double("value").multiple()]),
            ]),
            word("withscores", "WITHSCORES").optional(),
            word("withattribs", "WITHATTRIBS").optional(),
            integer("count").token("COUNT").optional(),
            double("max-distance").token("EPSILON").optional(),
            integer("search-exploration-factor").token("EF").optional(),
            string("expression").token("FILTER").optional(),
            integer("max-filtering-effort").token("FILTER-EF").optional(),
            word("truth", "TRUTH").optional(),
            word("nothread", "NOTHREAD").optional(),
        ],
    }
}
