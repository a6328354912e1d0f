//! Access control: the rows of ACL, which belong to the group `server`. Rows only.

use super::prelude::*;

rows! { Server:
    Acl = "acl" {
        summary: "Manage users and what they may do.",
        since: "6.0.0",
        arity: -2,
    }

    AclCat = "acl|cat" {
        summary: "List the categories, or the commands of one.",
        complexity: "O(1)",
        since: "6.0.0",
        arity: -2,
        flags: [NOSCRIPT, LOADING, STALE],
        args: [string("category").optional()],
    }

    AclDeluser = "acl|deluser" {
        summary: "Delete users, and close their connections.",
        complexity: "O(N), N: connections",
        since: "6.0.0",
        arity: -3,
        flags: [ADMIN, NOSCRIPT, LOADING, STALE],
        tips: ["request_policy:all_nodes", "response_policy:all_succeeded"],
        args: [string("username").multiple()],
    }

    AclDryrun = "acl|dryrun" {
        summary: "Tell whether a user could make a call, without making it.",
        complexity: "O(1)",
        since: "7.0.0",
        arity: -4,
        flags: [ADMIN, NOSCRIPT, LOADING, STALE],
        args: [string("username"), string("command"), string("arg").optional().multiple()],
    }

    AclGenpass = "acl|genpass" {
        summary: "Make up a password that nobody can guess.",
        complexity: "O(1)",
        since: "6.0.0",
        arity: -2,
        flags: [NOSCRIPT, LOADING, STALE],
        args: [integer("bits").optional()],
    }

    AclGetuser = "acl|getuser" {
        summary: "Tell the rules of a user, one kind after the other.",
        complexity: "O(N), N: rules of the user",
        since: "6.0.0",
        history: [
            ("6.2.0", "Channels."),
            ("7.0.0", "Selectors; keys and channels as rules, not as lists."),
        ],
        arity: 3,
        flags: [ADMIN, NOSCRIPT, LOADING, STALE],
        args: [string("username")],
    }

    AclHelp = "acl|help" {
        summary: "List the subcommands of ACL.",
        complexity: "O(1)",
        since: "6.0.0",
        arity: 2,
        flags: [LOADING, STALE],
    }

    AclList = "acl|list" {
        summary: "List the users with their rules, as a file holds them.",
        complexity: "O(N), N: users",
        since: "6.0.0",
        arity: 2,
        flags: [ADMIN, NOSCRIPT, LOADING, STALE],
    }

    AclLoad = "acl|load" {
        summary: "Take the users of the file over instead of those of now.",
        complexity: "O(N), N: users",
        since: "6.0.0",
        arity: 2,
        flags: [ADMIN, NOSCRIPT, LOADING, STALE],
    }

    AclLog = "acl|log" {
        summary: "Tell what was refused lately, or forget it.",
        complexity: "O(N), N: entries shown",
        since: "6.0.0",
        history: [("7.2.0", "Each entry's number, and when it was made and last changed.")],
        arity: -2,
        flags: [ADMIN, NOSCRIPT, LOADING, STALE],
        args: [
            one_of("operation", &[integer("count"), word("reset", "RESET")]).optional(),
        ],
    }

    AclSave = "acl|save" {
        summary: "Write the users of now into the file.",
        complexity: "O(N), N: users",
        since: "6.0.0",
        arity: 2,
        flags: [ADMIN, NOSCRIPT, LOADING, STALE],
        tips: ["request_policy:all_nodes", "response_policy:all_succeeded"],
    }

    AclSetuser = "acl|setuser" {
        summary: "Create a user, or change one, by rules.",
        complexity: "O(N), N: rules given",
        since: "6.0.0",
        history: [("6.2.0", "Channels."), ("7.0.0", "Selectors, and uses of keys.")],
        arity: -3,
        flags: [ADMIN, NOSCRIPT, LOADING, STALE],
        tips: ["request_policy:all_nodes", "response_policy:all_succeeded"],
        args: [string("username"), string("rule").optional().multiple()],
    }

    AclUsers = "acl|users" {
        summary: "List the names of the users.",
        complexity: "O(N), N: users",
        since: "6.0.0",
        arity: 2,
        flags: [ADMIN, NOSCRIPT, LOADING, STALE],
    }

    AclWhoami = "acl|whoami" {
        summary: "Tell as whom this connection has logged in.",
        complexity: "O(1)",
        since: "6.0.0",
        arity: 2,
        flags: [NOSCRIPT, LOADING, STALE],
    }
}
