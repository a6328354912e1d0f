//! The connection and its client: the rows of the group `connection`. Rows only.

use super::prelude::*;

rows! { Connection:
    Auth = "auth" {
        summary: "",
        since: "1.0.0",
        history: [("6.0.0", "")],
        arity: -2,
        flags: [NOSCRIPT, LOADING, STALE, FAST, NO_AUTH, ALLOW_BUSY],
        acl: [CONNECTION],
        args: [string("username").since("6.0.0").optional(), string("password")],
    }

    Client = "client" {
        summary: "",
        since: "2.4.0",
        arity: -2,
    }

    ClientGetname = "client|getname" {
        summary: "",
        complexity: "O(1)",
        since: "2.6.9",
        arity: 2,
        flags: [NOSCRIPT, LOADING, STALE],
        acl: [CONNECTION],
    }

    ClientHelp = "client|help" {
        summary: "",
        complexity: "O(1)",
        since: "5.0.0",
        arity: 2,
        flags: [LOADING, STALE],
        acl: [CONNECTION],
    }

    ClientId = "client|id" {
        summary: "",
        complexity: "O(1)",
        since: "5.0.0",
        arity: 2,
        flags: [NOSCRIPT, LOADING, STALE],
        acl: [CONNECTION],
    }

    ClientInfo = "client|info" {
        summary: "",
        complexity: "O(1)",
        since: "6.2.0",
        arity: 2,
        flags: [NOSCRIPT, LOADING, STALE],
        acl: [CONNECTION],
        tips: ["nondeterministic_output"],
    }

    ClientKill = "client|kill" {
        summary: "",
        since: "2.4.0",
        history: [
            ("2.8.12", ""),
            ("2.8.12", ""),
            ("3.2.0", ""),
            ("5.0.0", ""),
            ("6.2.0", ""),
            ("7.4.0", ""),
        ],
        arity: -3,
        flags: [ADMIN, NOSCRIPT, LOADING, STALE],
        acl: [CONNECTION],
        args: [
            one_of("filter", &[
                string("old-format").display("ip:port").deprecated("2.8.12"),
                one_of("new-format", &[
                    integer("client-id").token("ID").since("2.8.12").optional(),
                    one_of("client-type", &[
                        word("normal", "NORMAL"),
                        word("master", "MASTER").since("3.2.0"),
                        word("slave", "SLAVE"),
                        word("replica", "REPLICA").since("5.0.0"),
                        word("pubsub", "PUBSUB"),
                    ]).token("TYPE").since("2.8.12").optional(),
                    string("username").token("USER").optional(),
                    string("addr").token("ADDR").display("ip:port").optional(),
                    string("laddr").token("LADDR").display("ip:port").since("6.2.0").optional(),
                    one_of("skipme", &[
                        word("yes", "YES"),
                        word("no", "NO"),
                    ]).token("SKIPME").optional(),
                    integer("maxage").token("MAXAGE").since("7.4.0").optional(),
                ]).multiple(),
            ]),
        ],
    }

    ClientList = "client|list" {
        summary: "",
        since: "2.4.0",
        history: [
            ("2.8.12", ""),
            ("5.0.0", ""),
            ("6.0.0", ""),
            ("6.2.0", ""),
            ("7.0.0", ""),
            ("7.0.3", ""),
            ("7.2.0", ""),
            ("7.4.0", ""),
            ("8.0.0", ""),
        ],
        arity: -2,
        flags: [ADMIN, NOSCRIPT, LOADING, STALE],
        acl: [CONNECTION],
        tips: ["nondeterministic_output"],
        args: [
            one_of("client-type", &[
                word("normal", "NORMAL"),
                word("master", "MASTER"),
                word("replica", "REPLICA"),
                word("pubsub", "PUBSUB"),
            ]).token("TYPE").since("5.0.0").optional(),
            integer("client-id").token("ID").since("6.2.0").optional().multiple(),
        ],
    }

    ClientNoEvict = "client|no-evict" {
        summary: "",
        complexity: "O(1)",
        since: "7.0.0",
        arity: 3,
        flags: [ADMIN, NOSCRIPT, LOADING, STALE],
        acl: [CONNECTION],
        args: [one_of("enabled", &[word("on", "ON"), word("off", "OFF")])],
    }

    ClientNoTouch = "client|no-touch" {
        summary: "",
        complexity: "O(1)",
        since: "7.2.0",
        arity: 3,
        flags: [NOSCRIPT, LOADING, STALE],
        acl: [CONNECTION],
        args: [one_of("enabled", &[word("on", "ON"), word("off", "OFF")])],
    }

    ClientReply = "client|reply" {
        summary: "",
        complexity: "O(1)",
        since: "3.2.0",
        arity: 3,
        flags: [NOSCRIPT, LOADING, STALE],
        acl: [CONNECTION],
        args: [one_of("action", &[word("on", "ON"), word("off", "OFF"), word("skip", "SKIP")])],
    }

    ClientSetinfo = "client|setinfo" {
        summary: "",
        complexity: "O(1)",
        since: "7.2.0",
        arity: 4,
        flags: [NOSCRIPT, LOADING, STALE],
        acl: [CONNECTION],
        tips: ["request_policy:all_nodes", "response_policy:all_succeeded"],
        args: [
            one_of("attr", &[
                string("libname").token("LIB-NAME"),
                string("libver").token("LIB-VER"),
            ]),
        ],
    }

    ClientSetname = "client|setname" {
        summary: "",
        complexity: "O(1)",
        since: "2.6.9",
        arity: 3,
        flags: [NOSCRIPT, LOADING, STALE],
        acl: [CONNECTION],
        tips: ["request_policy:all_nodes", "response_policy:all_succeeded"],
        args: [string("connection-name")],
    }

    Echo = "echo" {
        summary: "",
        complexity: "O(1)",
        since: "1.0.0",
        arity: 2,
        flags: [LOADING, STALE, FAST],
        acl: [CONNECTION],
        args: [string("message")],
    }

    Hello = "hello" {
        summary: "",
        complexity: "O(1)",
        since: "6.0.0",
        history: [("6.2.0", "")],
        arity: -1,
        flags: [NOSCRIPT, LOADING, STALE, FAST, NO_AUTH, ALLOW_BUSY],
        acl: [CONNECTION],
        args: [
            block("arguments", &[
                integer("protover"),
                block("auth", &[
                    string("username"),
                    string("password"),
                ]).token("AUTH").optional(),
                string("clientname").token("SETNAME").optional(),
            ]).optional(),
        ],
    }

    Ping = "ping" {
        summary: "",
        complexity: "O(1)",
        since: "1.0.0",
        arity: -1,
        flags: [FAST],
        acl: [CONNECTION],
        tips: ["request_policy:all_shards", "response_policy:all_succeeded"],
        args: [string("message").optional()],
    }

    Quit = "quit" {
        summary: "",
        complexity: "O(1)",
        since: "1.0.0",
        deprecated: { since: "7.2.0", replaced_by: "just closing the connection" },
        arity: -1,
        flags: [NOSCRIPT, LOADING, STALE, FAST, NO_AUTH, ALLOW_BUSY],
        acl: [CONNECTION],
    }

    Reset = "reset" {
        summary: "",
        complexity: "O(1)",
        since: "6.2.0",
        arity: 1,
        flags: [NOSCRIPT, LOADING, STALE, FAST, NO_AUTH, ALLOW_BUSY],
        acl: [CONNECTION],
    }

    Select = "select" {
        summary: "",
        complexity: "O(1)",
        since: "1.0.0",
        arity: 2,
        flags: [LOADING, STALE, FAST],
        acl: [CONNECTION],
        args: [integer("index")],
    }
}
