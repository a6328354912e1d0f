//! HyperLogLogs: the rows of the group `hyperloglog`. Rows only.

use super::prelude::*;

rows! { Hyperloglog:
    Pfadd = "pfadd" {
        summary: "Let a HyperLogLog see elements; a missing key counts as one that has seen nothing.",
        complexity: "O(1) per element",
        since: "2.8.9",
        arity: -2,
        flags: [WRITE, DENYOOM, FAST],
        acl: [HYPERLOGLOG],
        keys: [KeySpec::at(1, INSERT)],
        args: [key("key"), string("element").optional().multiple()],
    }

    Pfcount = "pfcount" {
        summary: "Estimate how many different elements one or more HyperLogLogs have seen together.",
        complexity: "O(N), N: keys; O(1) for one alone, which remembers its count",
        since: "2.8.9",
        arity: -2,
        flags: [READONLY, MAY_REPLICATE],
        acl: [HYPERLOGLOG],
        keys: [
            KeySpec::range(1, -1, 1, READ_REMEMBER)
                .note("Written to when a count is remembered in the value."),
        ],
        args: [key("key").multiple()],
        propagate: Effect,
    }

    Pfdebug = "pfdebug" {
        summary: "Look inside a HyperLogLog.",
        complexity: "N/A",
        since: "2.8.9",
        arity: 3,
        flags: [WRITE, DENYOOM, ADMIN, SYSCMD],
        acl: [HYPERLOGLOG],
        keys: [KeySpec::at(2, READ_REMEMBER)],
        args: [string("subcommand"), key("key")],
    }

    Pfmerge = "pfmerge" {
        summary: "Let a HyperLogLog see what others have seen.",
        complexity: "O(N), N: keys",
        since: "2.8.9",
        arity: -2,
        flags: [WRITE, DENYOOM],
        acl: [HYPERLOGLOG],
        keys: [KeySpec::at(1, READ_INSERT), KeySpec::range(2, -1, 1, READ)],
        args: [key("destkey"), key_of_spec("sourcekey", 1).optional().multiple()],
    }

    Pfselftest = "pfselftest" {
        summary: "Check the encodings and the estimate of HyperLogLogs.",
        complexity: "N/A",
        since: "2.8.9",
        arity: 1,
        flags: [ADMIN, SYSCMD],
        acl: [HYPERLOGLOG],
    }
}
