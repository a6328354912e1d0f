//! JSON documents: rows of the group `module`, since Redis has these commands in a module. Rows only.

use super::prelude::*;

rows! { Module:
    JsonArrappend = "json.arrappend" {
        summary: "Append values to arrays.",
        complexity: "O(N), N: values in the document",
        since: "9.0.0",
        arity: -4,
        flags: [WRITE, DENYOOM, MODULE],
        acl: [JSON],
        keys: [KeySpec::at(1, READ_UPDATE)],
        args: [key("key"), string("path"), string("value").multiple()],
    }

    JsonArrindex = "json.arrindex" {
        summary: "Find the first position of a value in arrays.",
        complexity: "O(N), N: values in the document",
        since: "9.0.0",
        arity: -4,
        flags: [READONLY, MODULE],
        acl: [JSON],
        keys: [KeySpec::at(1, READ)],
        args: [key("key"), string("path"), string("value"), block("range", &[integer("start"), integer("stop").optional()]).optional()],
    }

    JsonArrinsert = "json.arrinsert" {
        summary: "Insert values into arrays.",
        complexity: "O(N), N: values in the document",
        since: "9.0.0",
        arity: -5,
        flags: [WRITE, DENYOOM, MODULE],
        acl: [JSON],
        keys: [KeySpec::at(1, READ_UPDATE)],
        args: [key("key"), string("path"), integer("index"), string("value").multiple()],
    }

    JsonArrlen = "json.arrlen" {
        summary: "Count the elements of arrays.",
        complexity: "O(N), N: values in the document",
        since: "9.0.0",
        arity: -2,
        flags: [READONLY, MODULE],
        acl: [JSON],
        keys: [KeySpec::at(1, READ)],
        args: [key("key"), string("path").optional()],
    }

    JsonArrpop = "json.arrpop" {
        summary: "Remove an element of arrays, and get it.",
        complexity: "O(N), N: values in the document",
        since: "9.0.0",
        arity: -2,
        flags: [WRITE, MODULE],
        acl: [JSON],
        keys: [KeySpec::at(1, READ_DELETE)],
        args: [key("key"), block("position", &[string("path"), integer("index").optional()]).optional()],
    }

    JsonArrtrim = "json.arrtrim" {
        summary: "Keep only a range of the elements of arrays.",
        complexity: "O(N), N: values in the document",
        since: "9.0.0",
        arity: 5,
        flags: [WRITE, MODULE],
        acl: [JSON],
        keys: [KeySpec::at(1, READ_DELETE)],
        args: [key("key"), string("path"), integer("start"), integer("stop")],
    }

    JsonClear = "json.clear" {
        summary: "Empty arrays and objects, and set numbers to 0.",
        complexity: "O(N), N: values in the document",
        since: "9.0.0",
        arity: -2,
        flags: [WRITE, MODULE],
        acl: [JSON],
        keys: [KeySpec::at(1, UPDATE)],
        args: [key("key"), string("path").optional()],
    }

    JsonDebug = "json.debug" {
        summary: "Ask how a document is stored.",
        since: "9.0.0",
        arity: -2,
    }

    JsonDebugHelp = "json.debug|help" {
        summary: "List the subcommands of JSON.DEBUG.",
        complexity: "O(1)",
        since: "9.0.0",
        arity: 2,
        flags: [LOADING, STALE],
    }

    JsonDebugMemory = "json.debug|memory" {
        summary: "Tell how many bytes values of a document take.",
        complexity: "O(N), N: values in the document",
        since: "9.0.0",
        arity: -3,
        flags: [READONLY, MODULE],
        acl: [JSON],
        keys: [KeySpec::at(2, INSPECT)],
        args: [key("key"), string("path").optional()],
    }

    JsonDel = "json.del" {
        summary: "Delete values of a document, or all of it.",
        complexity: "O(N), N: values in the document",
        since: "9.0.0",
        arity: -2,
        flags: [WRITE, MODULE],
        acl: [JSON],
        keys: [KeySpec::at(1, DELETE)],
        args: [key("key"), string("path").optional()],
    }

    JsonForget = "json.forget" {
        summary: "Delete values of a document, or all of it.",
        complexity: "O(N), N: values in the document",
        since: "9.0.0",
        arity: -2,
        flags: [WRITE, MODULE],
        acl: [JSON],
        keys: [KeySpec::at(1, DELETE)],
        args: [key("key"), string("path").optional()],
    }

    JsonGet = "json.get" {
        summary: "Get values of a document as JSON.",
        complexity: "O(N), N: values in the document",
        since: "9.0.0",
        arity: -2,
        flags: [READONLY, MODULE],
        acl: [JSON],
        keys: [KeySpec::at(1, READ)],
        args: [key("key"), string("indent").token("INDENT").optional(), string("newline").token("NEWLINE").optional(), string("space").token("SPACE").optional(), string("format").token("FORMAT").optional(), string("path").optional().multiple()],
    }

    JsonMerge = "json.merge" {
        summary: "Merge a value into a document, as RFC 7396 has it.",
        complexity: "O(N), N: values in the document",
        since: "9.0.0",
        arity: 4,
        flags: [WRITE, DENYOOM, MODULE],
        acl: [JSON],
        keys: [KeySpec::at(1, READ_UPDATE)],
        args: [key("key"), string("path"), string("value")],
    }

    JsonMget = "json.mget" {
        summary: "Get the values at a path of several documents.",
        complexity: "O(N), N: values in the documents",
        since: "9.0.0",
        arity: -3,
        flags: [READONLY, MODULE],
        acl: [JSON],
        tips: ["request_policy:multi_shard"],
        keys: [KeySpec::range(1, -2, 1, READ)],
        args: [key("key").multiple(), string("path")],
    }

    JsonMset = "json.mset" {
        summary: "Set values of several documents at once.",
        complexity: "O(N), N: values in the documents",
        since: "9.0.0",
        arity: -4,
        flags: [WRITE, DENYOOM, MODULE],
        acl: [JSON],
        tips: ["request_policy:multi_shard", "response_policy:all_succeeded"],
        keys: [KeySpec::range(1, -1, 3, UPDATE)],
        args: [block("triplet", &[key("key"), string("path"), string("value")]).multiple()],
    }

    JsonNumincrby = "json.numincrby" {
        summary: "Add to numbers of a document.",
        complexity: "O(N), N: values in the document",
        since: "9.0.0",
        arity: 4,
        flags: [WRITE, DENYOOM, MODULE],
        acl: [JSON],
        keys: [KeySpec::at(1, READ_UPDATE)],
        args: [key("key"), string("path"), double("value")],
    }

    JsonNummultby = "json.nummultby" {
        summary: "Multiply numbers of a document.",
        complexity: "O(N), N: values in the document",
        since: "9.0.0",
        arity: 4,
        flags: [WRITE, DENYOOM, MODULE],
        acl: [JSON],
        keys: [KeySpec::at(1, READ_UPDATE)],
        args: [key("key"), string("path"), double("value")],
    }

    JsonNumpowby = "json.numpowby" {
        summary: "Raise numbers of a document to a power.",
        complexity: "O(N), N: values in the document",
        since: "9.0.0",
        arity: 4,
        flags: [WRITE, DENYOOM, MODULE],
        acl: [JSON],
        keys: [KeySpec::at(1, READ_UPDATE)],
        args: [key("key"), string("path"), double("value")],
    }

    JsonObjkeys = "json.objkeys" {
        summary: "Get the names of the members of objects.",
        complexity: "O(N), N: values in the document",
        since: "9.0.0",
        arity: -2,
        flags: [READONLY, MODULE],
        acl: [JSON],
        keys: [KeySpec::at(1, READ)],
        args: [key("key"), string("path").optional()],
    }

    JsonObjlen = "json.objlen" {
        summary: "Count the members of objects.",
        complexity: "O(N), N: values in the document",
        since: "9.0.0",
        arity: -2,
        flags: [READONLY, MODULE],
        acl: [JSON],
        keys: [KeySpec::at(1, READ)],
        args: [key("key"), string("path").optional()],
    }

    JsonResp = "json.resp" {
        summary: "Get a value of a document as replies in each other.",
        complexity: "O(N), N: values in the document",
        since: "9.0.0",
        arity: -2,
        flags: [READONLY, MODULE],
        acl: [JSON],
        keys: [KeySpec::at(1, READ)],
        args: [key("key"), string("path").optional()],
    }

    JsonSet = "json.set" {
        summary: "Set a document, or values in it.",
        complexity: "O(N), N: values in the document",
        since: "9.0.0",
        arity: -4,
        flags: [WRITE, DENYOOM, MODULE],
        acl: [JSON],
        keys: [KeySpec::at(1, UPDATE)],
        args: [key("key"), string("path"), string("value"), one_of("condition", &[word("nx", "NX"), word("xx", "XX")]).optional()],
    }

    JsonStrappend = "json.strappend" {
        summary: "Append to strings of a document.",
        complexity: "O(N), N: values in the document",
        since: "9.0.0",
        arity: -3,
        flags: [WRITE, DENYOOM, MODULE],
        acl: [JSON],
        keys: [KeySpec::at(1, READ_UPDATE)],
        args: [key("key"), string("path").optional(), string("value")],
    }

    JsonStrlen = "json.strlen" {
        summary: "Get the length of strings of a document.",
        complexity: "O(N), N: values in the document",
        since: "9.0.0",
        arity: -2,
        flags: [READONLY, MODULE],
        acl: [JSON],
        keys: [KeySpec::at(1, READ)],
        args: [key("key"), string("path").optional()],
    }

    JsonToggle = "json.toggle" {
        summary: "Turn booleans of a document around.",
        complexity: "O(N), N: values in the document",
        since: "9.0.0",
        arity: 3,
        flags: [WRITE, DENYOOM, MODULE],
        acl: [JSON],
        keys: [KeySpec::at(1, READ_UPDATE)],
        args: [key("key"), string("path")],
    }

    JsonType = "json.type" {
        summary: "Get the types of values of a document.",
        complexity: "O(N), N: values in the document",
        since: "9.0.0",
        arity: -2,
        flags: [READONLY, MODULE],
        acl: [JSON],
        keys: [KeySpec::at(1, READ)],
        args: [key("key"), string("path").optional()],
    }
}
