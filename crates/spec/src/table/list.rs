//! Lists: the rows of the group `list`. Rows only.

use super::prelude::*;

rows! { List:
    Lindex = "lindex" {
        summary: "",
        since: "1.0.0",
        arity: 3,
        flags: [READONLY],
        acl: [LIST],
        keys: [KeySpec::at(1, READ)],
        args: [key("key"), integer("index")],
    }

    Linsert = "linsert" {
        summary: "",
        since: "2.2.0",
        arity: 5,
        flags: [WRITE, DENYOOM],
        acl: [LIST],
        keys: [KeySpec::at(1, INSERT)],
        args: [
            key("key"),
            one_of("where", &[word("before", "BEFORE"), word("after", "AFTER")]),
            string("pivot"),
            string("element"),
        ],
    }

    Llen = "llen" {
        summary: "",
        complexity: "O(1)",
        since: "1.0.0",
        arity: 2,
        flags: [READONLY, FAST],
        acl: [LIST],
        keys: [KeySpec::at(1, INSPECT)],
        args: [key("key")],
    }

    Lmove = "lmove" {
        summary: "",
        complexity: "O(1)",
        since: "6.2.0",
        arity: 5,
        flags: [WRITE, DENYOOM],
        acl: [LIST],
        keys: [KeySpec::at(1, READ_DELETE), KeySpec::at(2, INSERT)],
        args: [
            key("source"),
            key_of_spec("destination", 1),
            one_of("wherefrom", &[word("left", "LEFT"), word("right", "RIGHT")]),
            one_of("whereto", &[word("left", "LEFT"), word("right", "RIGHT")]),
        ],
    }

    Lmpop = "lmpop" {
        summary: "",
        since: "7.0.0",
        arity: -4,
        flags: [WRITE],
        acl: [LIST],
        keys: [KeySpec::counted_at(1, READ_DELETE)],
        args: [
            integer("numkeys"),
            key("key").multiple(),
            one_of("where", &[word("left", "LEFT"), word("right", "RIGHT")]),
            integer("count").token("COUNT").optional(),
        ],
        propagate: Effect,
    }

    Lpop = "lpop" {
        summary: "",
        since: "1.0.0",
        history: [("6.2.0", "")],
        arity: -2,
        flags: [WRITE, FAST],
        acl: [LIST],
        keys: [KeySpec::at(1, READ_DELETE)],
        args: [key("key"), integer("count").since("6.2.0").optional()],
    }

    Lpos = "lpos" {
        summary: "",
        since: "6.0.6",
        arity: -3,
        flags: [READONLY],
        acl: [LIST],
        keys: [KeySpec::at(1, READ)],
        args: [
            key("key"),
            string("element"),
            integer("rank").token("RANK").optional(),
            integer("num-matches").token("COUNT").optional(),
            integer("len").token("MAXLEN").optional(),
        ],
    }

    Lpush = "lpush" {
        summary: "",
        since: "1.0.0",
        history: [("2.4.0", "")],
        arity: -3,
        flags: [WRITE, DENYOOM, FAST],
        acl: [LIST],
        keys: [KeySpec::at(1, INSERT)],
        args: [key("key"), string("element").multiple()],
    }

    Lpushx = "lpushx" {
        summary: "",
        since: "2.2.0",
        history: [("4.0.0", "")],
        arity: -3,
        flags: [WRITE, DENYOOM, FAST],
        acl: [LIST],
        keys: [KeySpec::at(1, INSERT)],
        args: [key("key"), string("element").multiple()],
    }

    Lrange = "lrange" {
        summary: "",
        since: "1.0.0",
        arity: 4,
        flags: [READONLY],
        acl: [LIST],
        keys: [KeySpec::at(1, READ)],
        args: [key("key"), integer("start"), integer("stop")],
    }

    Lrem = "lrem" {
        summary: "",
        since: "1.0.0",
        arity: 4,
        flags: [WRITE],
        acl: [LIST],
        keys: [KeySpec::at(1, DELETE)],
        args: [key("key"), integer("count"), string("element")],
    }

    Lset = "lset" {
        summary: "",
        since: "1.0.0",
        arity: 4,
        flags: [WRITE, DENYOOM],
        acl: [LIST],
        keys: [KeySpec::at(1, UPDATE)],
        args: [key("key"), integer("index"), string("element")],
    }

    Ltrim = "ltrim" {
        summary: "",
        since: "1.0.0",
        arity: 4,
        flags: [WRITE],
        acl: [LIST],
        keys: [KeySpec::at(1, DELETE)],
        args: [key("key"), integer("start"), integer("stop")],
    }

    Rpop = "rpop" {
        summary: "",
        since: "1.0.0",
        history: [("6.2.0", "")],
        arity: -2,
        flags: [WRITE, FAST],
        acl: [LIST],
        keys: [KeySpec::at(1, READ_DELETE)],
        args: [key("key"), integer("count").since("6.2.0").optional()],
    }

    Rpoplpush = "rpoplpush" {
        summary: "",
        complexity: "O(1)",
        since: "1.2.0",
        deprecated: { since: "6.2.0", replaced_by: "`LMOVE` with the `RIGHT` and `LEFT` arguments" },
        arity: 3,
        flags: [WRITE, DENYOOM],
        acl: [LIST],
        keys: [KeySpec::at(1, READ_DELETE), KeySpec::at(2, INSERT)],
        args: [key("source"), key_of_spec("destination", 1)],
    }

    Rpush = "rpush" {
        summary: "",
        since: "1.0.0",
        history: [("2.4.0", "")],
        arity: -3,
        flags: [WRITE, DENYOOM, FAST],
        acl: [LIST],
        keys: [KeySpec::at(1, INSERT)],
        args: [key("key"), string("element").multiple()],
    }

    Rpushx = "rpushx" {
        summary: "",
        since: "2.2.0",
        history: [("4.0.0", "")],
        arity: -3,
        flags: [WRITE, DENYOOM, FAST],
        acl: [LIST],
        keys: [KeySpec::at(1, INSERT)],
        args: [key("key"), string("element").multiple()],
    }
}
