//! Sets: the rows of the group `set`. Rows only.

use super::prelude::*;

rows! { Set:
    Sadd = "sadd" {
        summary: "",
        since: "1.0.0",
        history: [("2.4.0", "")],
        arity: -3,
        flags: [WRITE, DENYOOM, FAST],
        acl: [SET],
        keys: [KeySpec::at(1, INSERT)],
        args: [key("key"), string("member").multiple()],
    }

    Scard = "scard" {
        summary: "",
        complexity: "O(1)",
        since: "1.0.0",
        arity: 2,
        flags: [READONLY, FAST],
        acl: [SET],
        keys: [KeySpec::at(1, INSPECT)],
        args: [key("key")],
    }

    Sdiff = "sdiff" {
        summary: "",
        since: "1.0.0",
        arity: -2,
        flags: [READONLY],
        acl: [SET],
        tips: ["nondeterministic_output_order"],
        keys: [KeySpec::range(1, -1, 1, READ)],
        args: [key("key").multiple()],
    }

    Sdiffstore = "sdiffstore" {
        summary: "",
        since: "1.0.0",
        arity: -3,
        flags: [WRITE, DENYOOM],
        acl: [SET],
        keys: [KeySpec::at(1, OVERWRITE), KeySpec::range(2, -1, 1, READ)],
        args: [key("destination"), key_of_spec("key", 1).multiple()],
    }

    Sinter = "sinter" {
        summary: "",
        since: "1.0.0",
        arity: -2,
        flags: [READONLY],
        acl: [SET],
        tips: ["nondeterministic_output_order"],
        keys: [KeySpec::range(1, -1, 1, READ)],
        args: [key("key").multiple()],
    }

    Sintercard = "sintercard" {
        summary: "",
        since: "7.0.0",
        arity: -3,
        flags: [READONLY],
        acl: [SET],
        keys: [KeySpec::counted_at(1, READ)],
        args: [
            integer("numkeys"),
            key("key").multiple(),
            integer("limit").token("LIMIT").optional(),
        ],
    }

    Sinterstore = "sinterstore" {
        summary: "",
        since: "1.0.0",
        arity: -3,
        flags: [WRITE, DENYOOM],
        acl: [SET],
        keys: [KeySpec::at(1, OVERWRITE), KeySpec::range(2, -1, 1, READ)],
        args: [key("destination"), key_of_spec("key", 1).multiple()],
    }

    Sismember = "sismember" {
        summary: "",
        complexity: "O(1)",
        since: "1.0.0",
        arity: 3,
        flags: [READONLY, FAST],
        acl: [SET],
        keys: [KeySpec::at(1, INSPECT)],
        args: [key("key"), string("member")],
    }

    Smembers = "smembers" {
        summary: "",
        since: "1.0.0",
        arity: 2,
        flags: [READONLY],
        acl: [SET],
        tips: ["nondeterministic_output_order"],
        keys: [KeySpec::at(1, READ)],
        args: [key("key")],
    }

    Smismember = "smismember" {
        summary: "",
        since: "6.2.0",
        arity: -3,
        flags: [READONLY, FAST],
        acl: [SET],
        keys: [KeySpec::at(1, READ)],
        args: [key("key"), string("member").multiple()],
    }

    Smove = "smove" {
        summary: "",
        complexity: "O(1)",
        since: "1.0.0",
        arity: 4,
        flags: [WRITE, FAST],
        acl: [SET],
        keys: [KeySpec::at(1, READ_DELETE), KeySpec::at(2, INSERT)],
        args: [key("source"), key_of_spec("destination", 1), string("member")],
    }

    Spop = "spop" {
        summary: "",
        since: "1.0.0",
        history: [("3.2.0", "")],
        arity: -2,
        flags: [WRITE, FAST],
        acl: [SET],
        tips: ["nondeterministic_output"],
        keys: [KeySpec::at(1, READ_DELETE)],
        args: [key("key"), integer("count").since("3.2.0").optional()],
        propagate: Effect,
    }

    Srandmember = "srandmember" {
        summary: "",
        since: "1.0.0",
        history: [("2.6.0", "")],
        arity: -2,
        flags: [READONLY],
        acl: [SET],
        tips: ["nondeterministic_output"],
        keys: [KeySpec::at(1, READ)],
        args: [key("key"), integer("count").since("2.6.0").optional()],
    }

    Srem = "srem" {
        summary: "",
        since: "1.0.0",
        history: [("2.4.0", "")],
        arity: -3,
        flags: [WRITE, FAST],
        acl: [SET],
        keys: [KeySpec::at(1, DELETE)],
        args: [key("key"), string("member").multiple()],
    }

    Sscan = "sscan" {
        summary: "",
        since: "2.8.0",
        arity: -3,
        flags: [READONLY],
        acl: [SET],
        tips: ["nondeterministic_output"],
        keys: [KeySpec::at(1, READ)],
        args: [
            key("key"),
            integer("cursor"),
            pattern("pattern").token("MATCH").optional(),
            integer("count").token("COUNT").optional(),
        ],
    }

    Sunion = "sunion" {
        summary: "",
        since: "1.0.0",
        arity: -2,
        flags: [READONLY],
        acl: [SET],
        tips: ["nondeterministic_output_order"],
        keys: [KeySpec::range(1, -1, 1, READ)],
        args: [key("key").multiple()],
    }

    Sunionstore = "sunionstore" {
        summary: "",
        since: "1.0.0",
        arity: -3,
        flags: [WRITE, DENYOOM],
        acl: [SET],
        keys: [KeySpec::at(1, OVERWRITE), KeySpec::range(2, -1, 1, READ)],
        args: [key("destination"), key_of_spec("key", 1).multiple()],
    }
}
