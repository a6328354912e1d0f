//! Sets: the rows of the group `set`. Rows only.

use super::prelude::*;

rows! { Set:
    Sadd = "sadd" {
        summary: "Add members to a set, made if missing.",
        complexity: "O(N), N: members given",
        since: "1.0.0",
        history: [("2.4.0", "Several members.")],
        arity: -3,
        flags: [WRITE, DENYOOM, FAST],
        acl: [SET],
        keys: [KeySpec::at(1, INSERT)],
        args: [key("key"), string("member").multiple()],
    }

    Scard = "scard" {
        summary: "Count the members of a set.",
        complexity: "O(1)",
        since: "1.0.0",
        arity: 2,
        flags: [READONLY, FAST],
        acl: [SET],
        keys: [KeySpec::at(1, INSPECT)],
        args: [key("key")],
    }

    Sdiff = "sdiff" {
        summary: "Tell which members of the first set are in none of the others.",
        complexity: "O(N), N: members of all sets",
        since: "1.0.0",
        arity: -2,
        flags: [READONLY],
        acl: [SET],
        tips: ["nondeterministic_output_order"],
        keys: [KeySpec::range(1, -1, 1, READ)],
        args: [key("key").multiple()],
    }

    Sdiffstore = "sdiffstore" {
        summary: "Store the members of the first set that are in none of the others.",
        complexity: "O(N), N: members of all sets",
        since: "1.0.0",
        arity: -3,
        flags: [WRITE, DENYOOM],
        acl: [SET],
        keys: [KeySpec::at(1, OVERWRITE), KeySpec::range(2, -1, 1, READ)],
        args: [key("destination"), key_of_spec("key", 1).multiple()],
    }

    Sinter = "sinter" {
        summary: "Tell which members all sets share.",
        complexity: "O(N*M), N: members of the smallest set, M: sets",
        since: "1.0.0",
        arity: -2,
        flags: [READONLY],
        acl: [SET],
        tips: ["nondeterministic_output_order"],
        keys: [KeySpec::range(1, -1, 1, READ)],
        args: [key("key").multiple()],
    }

    Sintercard = "sintercard" {
        summary: "Count the members that all sets share, up to a limit.",
        complexity: "O(N*M), N: members of the smallest set, M: sets",
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
        summary: "Store the members that all sets share.",
        complexity: "O(N*M), N: members of the smallest set, M: sets",
        since: "1.0.0",
        arity: -3,
        flags: [WRITE, DENYOOM],
        acl: [SET],
        keys: [KeySpec::at(1, OVERWRITE), KeySpec::range(2, -1, 1, READ)],
        args: [key("destination"), key_of_spec("key", 1).multiple()],
    }

    Sismember = "sismember" {
        summary: "Tell whether a set has a member.",
        complexity: "O(1)",
        since: "1.0.0",
        arity: 3,
        flags: [READONLY, FAST],
        acl: [SET],
        keys: [KeySpec::at(1, INSPECT)],
        args: [key("key"), string("member")],
    }

    Smembers = "smembers" {
        summary: "List the members of a set.",
        complexity: "O(N), N: members of the set",
        since: "1.0.0",
        arity: 2,
        flags: [READONLY],
        acl: [SET],
        tips: ["nondeterministic_output_order"],
        keys: [KeySpec::at(1, READ)],
        args: [key("key")],
    }

    Smismember = "smismember" {
        summary: "Tell for each member given whether a set has it.",
        complexity: "O(N), N: members given",
        since: "6.2.0",
        arity: -3,
        flags: [READONLY, FAST],
        acl: [SET],
        keys: [KeySpec::at(1, READ)],
        args: [key("key"), string("member").multiple()],
    }

    Smove = "smove" {
        summary: "Take a member from one set to another.",
        complexity: "O(1)",
        since: "1.0.0",
        arity: 4,
        flags: [WRITE, FAST],
        acl: [SET],
        keys: [KeySpec::at(1, READ_DELETE), KeySpec::at(2, INSERT)],
        args: [key("source"), key_of_spec("destination", 1), string("member")],
    }

    Spop = "spop" {
        summary: "Take random members out of a set.",
        complexity: "O(N), N: members taken",
        since: "1.0.0",
        history: [("3.2.0", "A count.")],
        arity: -2,
        flags: [WRITE, FAST],
        acl: [SET],
        tips: ["nondeterministic_output"],
        keys: [KeySpec::at(1, READ_DELETE)],
        args: [key("key"), integer("count").since("3.2.0").optional()],
        propagate: Effect,
    }

    Srandmember = "srandmember" {
        summary: "Pick random members of a set.",
        complexity: "O(N), N: members returned",
        since: "1.0.0",
        history: [("2.6.0", "A count.")],
        arity: -2,
        flags: [READONLY],
        acl: [SET],
        tips: ["nondeterministic_output"],
        keys: [KeySpec::at(1, READ)],
        args: [key("key"), integer("count").since("2.6.0").optional()],
    }

    Srem = "srem" {
        summary: "Remove members from a set.",
        complexity: "O(N), N: members given",
        since: "1.0.0",
        history: [("2.4.0", "Several members.")],
        arity: -3,
        flags: [WRITE, FAST],
        acl: [SET],
        keys: [KeySpec::at(1, DELETE)],
        args: [key("key"), string("member").multiple()],
    }

    Sscan = "sscan" {
        summary: "Walk over the members of a set, a few per call.",
        complexity: "O(1) per call, O(N) for the whole walk, N: members",
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
        summary: "List the members of several sets together.",
        complexity: "O(N), N: members of all sets",
        since: "1.0.0",
        arity: -2,
        flags: [READONLY],
        acl: [SET],
        tips: ["nondeterministic_output_order"],
        keys: [KeySpec::range(1, -1, 1, READ)],
        args: [key("key").multiple()],
    }

    Sunionstore = "sunionstore" {
        summary: "Store the members of several sets together.",
        complexity: "O(N), N: members of all sets",
        since: "1.0.0",
        arity: -3,
        flags: [WRITE, DENYOOM],
        acl: [SET],
        keys: [KeySpec::at(1, OVERWRITE), KeySpec::range(2, -1, 1, READ)],
        args: [key("destination"), key_of_spec("key", 1).multiple()],
    }
}
