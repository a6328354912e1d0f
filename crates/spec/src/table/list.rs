//! Lists: the rows of the group `list`. Rows only.

use super::prelude::*;

rows! { List:
    Blmove = "blmove" {
        summary: "Move an element from one list to another, or wait for one.",
        complexity: "O(1)",
        since: "6.2.0",
        arity: 6,
        flags: [WRITE, DENYOOM, BLOCKING],
        acl: [LIST],
        keys: [KeySpec::at(1, READ_DELETE), KeySpec::at(2, INSERT)],
        args: [
            key("source"),
            key_of_spec("destination", 1),
            one_of("wherefrom", &[word("left", "LEFT"), word("right", "RIGHT")]),
            one_of("whereto", &[word("left", "LEFT"), word("right", "RIGHT")]),
            double("timeout"),
        ],
        propagate: Effect,
    }

    Blmpop = "blmpop" {
        summary: "Pop elements from the first list that has any, waiting if none has.",
        complexity: "O(N+M), N: keys, M: elements popped",
        since: "7.0.0",
        arity: -5,
        flags: [WRITE, BLOCKING],
        acl: [LIST],
        keys: [KeySpec::counted_at(2, READ_DELETE)],
        args: [
            double("timeout"),
            integer("numkeys"),
            key("key").multiple(),
            one_of("where", &[word("left", "LEFT"), word("right", "RIGHT")]),
            integer("count").token("COUNT").optional(),
        ],
        propagate: Effect,
    }

    Blpop = "blpop" {
        summary: "Pop the first element of the first list that has any, waiting if none has.",
        complexity: "O(N), N: keys",
        since: "2.0.0",
        history: [("6.0.0", "A timeout with fractions of a second.")],
        arity: -3,
        flags: [WRITE, BLOCKING],
        acl: [LIST],
        keys: [KeySpec::range(1, -2, 1, READ_DELETE)],
        args: [key("key").multiple(), double("timeout")],
        propagate: Effect,
    }

    Brpop = "brpop" {
        summary: "Pop the last element of the first list that has any, waiting if none has.",
        complexity: "O(N), N: keys",
        since: "2.0.0",
        history: [("6.0.0", "A timeout with fractions of a second.")],
        arity: -3,
        flags: [WRITE, BLOCKING],
        acl: [LIST],
        keys: [KeySpec::range(1, -2, 1, READ_DELETE)],
        args: [key("key").multiple(), double("timeout")],
        propagate: Effect,
    }

    Brpoplpush = "brpoplpush" {
        summary: "Pop the last element of a list and push it to the front of another, or wait for one.",
        complexity: "O(1)",
        since: "2.2.0",
        history: [("6.0.0", "A timeout with fractions of a second.")],
        deprecated: { since: "6.2.0", replaced_by: "BLMOVE with RIGHT and LEFT" },
        arity: 4,
        flags: [WRITE, DENYOOM, BLOCKING],
        acl: [LIST],
        keys: [KeySpec::at(1, READ_DELETE), KeySpec::at(2, INSERT)],
        args: [key("source"), key_of_spec("destination", 1), double("timeout")],
        propagate: Effect,
    }

    Lindex = "lindex" {
        summary: "Read the element of a list at an index.",
        complexity: "O(N), N: elements between the index and the nearer end",
        since: "1.0.0",
        arity: 3,
        flags: [READONLY],
        acl: [LIST],
        keys: [KeySpec::at(1, READ)],
        args: [key("key"), integer("index")],
    }

    Linsert = "linsert" {
        summary: "Put an element next to the first one that equals a pivot.",
        complexity: "O(N), N: elements before the pivot",
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
        summary: "Count the elements of a list.",
        complexity: "O(1)",
        since: "1.0.0",
        arity: 2,
        flags: [READONLY, FAST],
        acl: [LIST],
        keys: [KeySpec::at(1, INSPECT)],
        args: [key("key")],
    }

    Lmove = "lmove" {
        summary: "Pop an element from either end of a list and push it to either end of another.",
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
        summary: "Pop elements from the first list that has any.",
        complexity: "O(N+M), N: keys, M: elements popped",
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
        summary: "Pop elements from the front of a list.",
        complexity: "O(N), N: elements popped",
        since: "1.0.0",
        history: [("6.2.0", "A count.")],
        arity: -2,
        flags: [WRITE, FAST],
        acl: [LIST],
        keys: [KeySpec::at(1, READ_DELETE)],
        args: [key("key"), integer("count").since("6.2.0").optional()],
    }

    Lpos = "lpos" {
        summary: "Find the indexes at which an element stands in a list.",
        complexity: "O(N), N: elements searched",
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
        summary: "Push elements to the front of a list, made if missing.",
        complexity: "O(N), N: elements pushed",
        since: "1.0.0",
        history: [("2.4.0", "Several elements.")],
        arity: -3,
        flags: [WRITE, DENYOOM, FAST],
        acl: [LIST],
        keys: [KeySpec::at(1, INSERT)],
        args: [key("key"), string("element").multiple()],
    }

    Lpushx = "lpushx" {
        summary: "Push elements to the front of a list that exists already.",
        complexity: "O(N), N: elements pushed",
        since: "2.2.0",
        history: [("4.0.0", "Several elements.")],
        arity: -3,
        flags: [WRITE, DENYOOM, FAST],
        acl: [LIST],
        keys: [KeySpec::at(1, INSERT)],
        args: [key("key"), string("element").multiple()],
    }

    Lrange = "lrange" {
        summary: "Read the elements of a list between two indexes.",
        complexity: "O(S+N), S: elements from the nearer end to the start, N: elements returned",
        since: "1.0.0",
        arity: 4,
        flags: [READONLY],
        acl: [LIST],
        keys: [KeySpec::at(1, READ)],
        args: [key("key"), integer("start"), integer("stop")],
    }

    Lrem = "lrem" {
        summary: "Remove elements that equal a given one, from the front or from the back.",
        complexity: "O(N), N: elements of the list",
        since: "1.0.0",
        arity: 4,
        flags: [WRITE],
        acl: [LIST],
        keys: [KeySpec::at(1, DELETE)],
        args: [key("key"), integer("count"), string("element")],
    }

    Lset = "lset" {
        summary: "Overwrite the element of a list at an index.",
        complexity: "O(N), N: elements between the index and the nearer end",
        since: "1.0.0",
        arity: 4,
        flags: [WRITE, DENYOOM],
        acl: [LIST],
        keys: [KeySpec::at(1, UPDATE)],
        args: [key("key"), integer("index"), string("element")],
    }

    Ltrim = "ltrim" {
        summary: "Keep only the elements of a list between two indexes.",
        complexity: "O(N), N: elements removed",
        since: "1.0.0",
        arity: 4,
        flags: [WRITE],
        acl: [LIST],
        keys: [KeySpec::at(1, DELETE)],
        args: [key("key"), integer("start"), integer("stop")],
    }

    Rpop = "rpop" {
        summary: "Pop elements from the back of a list.",
        complexity: "O(N), N: elements popped",
        since: "1.0.0",
        history: [("6.2.0", "A count.")],
        arity: -2,
        flags: [WRITE, FAST],
        acl: [LIST],
        keys: [KeySpec::at(1, READ_DELETE)],
        args: [key("key"), integer("count").since("6.2.0").optional()],
    }

    Rpoplpush = "rpoplpush" {
        summary: "Pop the last element of a list and push it to the front of another.",
        complexity: "O(1)",
        since: "1.2.0",
        deprecated: { since: "6.2.0", replaced_by: "LMOVE with RIGHT and LEFT" },
        arity: 3,
        flags: [WRITE, DENYOOM],
        acl: [LIST],
        keys: [KeySpec::at(1, READ_DELETE), KeySpec::at(2, INSERT)],
        args: [key("source"), key_of_spec("destination", 1)],
    }

    Rpush = "rpush" {
        summary: "Push elements to the back of a list, made if missing.",
        complexity: "O(N), N: elements pushed",
        since: "1.0.0",
        history: [("2.4.0", "Several elements.")],
        arity: -3,
        flags: [WRITE, DENYOOM, FAST],
        acl: [LIST],
        keys: [KeySpec::at(1, INSERT)],
        args: [key("key"), string("element").multiple()],
    }

    Rpushx = "rpushx" {
        summary: "Push elements to the back of a list that exists already.",
        complexity: "O(N), N: elements pushed",
        since: "2.2.0",
        history: [("4.0.0", "Several elements.")],
        arity: -3,
        flags: [WRITE, DENYOOM, FAST],
        acl: [LIST],
        keys: [KeySpec::at(1, INSERT)],
        args: [key("key"), string("element").multiple()],
    }
}
