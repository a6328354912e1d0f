//! The connection and its client: the rows of the group `connection`. Rows only.

use super::prelude::*;
use crate::Arg;

/// Filters that CLIENT LIST and KILL take in addition to Redis's.
const FILTERS: &[Arg] = &[
    integer("not-client-id").token("NOT-ID").multiple(),
    string("not-type").token("NOT-TYPE"),
    string("not-username").token("NOT-USER"),
    string("not-addr").token("NOT-ADDR"),
    string("not-laddr").token("NOT-LADDR"),
    string("ip").token("IP"),
    string("not-ip").token("NOT-IP"),
    string("client-name").token("NAME"),
    string("not-client-name").token("NOT-NAME"),
    string("lib-name").token("LIB-NAME"),
    string("not-lib-name").token("NOT-LIB-NAME"),
    string("lib-ver").token("LIB-VER"),
    string("not-lib-ver").token("NOT-LIB-VER"),
    string("flags").token("FLAGS"),
    string("not-flags").token("NOT-FLAGS"),
    string("capa").token("CAPA"),
    string("not-capa").token("NOT-CAPA"),
    integer("db").token("DB"),
    integer("not-db").token("NOT-DB"),
    integer("idle").token("IDLE"),
];

rows! { Connection:
    Auth = "auth" {
        summary: "Log in with a password, or with a user name and a password.",
        complexity: "O(N), N: passwords of the user",
        since: "1.0.0",
        history: [("6.0.0", "A user name before the password.")],
        arity: -2,
        flags: [NOSCRIPT, LOADING, STALE, FAST, NO_AUTH, ALLOW_BUSY],
        acl: [CONNECTION],
        args: [string("username").since("6.0.0").optional(), string("password")],
    }

    Client = "client" {
        summary: "Inspect and manage connections.",
        since: "2.4.0",
        arity: -2,
    }

    ClientCaching = "client|caching" {
        summary: "Say of the next command whether the keys it reads are tracked.",
        complexity: "O(1)",
        since: "6.0.0",
        arity: 3,
        flags: [NOSCRIPT, LOADING, STALE],
        acl: [CONNECTION],
        args: [one_of("mode", &[word("yes", "YES"), word("no", "NO")])],
    }

    // Valkey's, since its 8.0; this version marks it as missing in the reference.
    ClientCapa = "client|capa" {
        summary: "Say what this client understands.",
        complexity: "O(1)",
        since: "9.1.2",
        arity: -3,
        flags: [NOSCRIPT, LOADING, STALE, ALLOW_BUSY],
        acl: [CONNECTION],
        args: [string("capability").multiple()],
    }

    ClientGetname = "client|getname" {
        summary: "Tell the name this connection was given.",
        complexity: "O(1)",
        since: "2.6.9",
        arity: 2,
        flags: [NOSCRIPT, LOADING, STALE],
        acl: [CONNECTION],
    }

    ClientGetredir = "client|getredir" {
        summary: "Tell which client gets the invalidation messages of this connection.",
        complexity: "O(1)",
        since: "6.0.0",
        arity: 2,
        flags: [NOSCRIPT, LOADING, STALE],
        acl: [CONNECTION],
    }

    ClientHelp = "client|help" {
        summary: "List the subcommands of CLIENT.",
        complexity: "O(1)",
        since: "5.0.0",
        arity: 2,
        flags: [LOADING, STALE],
        acl: [CONNECTION],
    }

    ClientId = "client|id" {
        summary: "Tell the number of this connection.",
        complexity: "O(1)",
        since: "5.0.0",
        arity: 2,
        flags: [NOSCRIPT, LOADING, STALE],
        acl: [CONNECTION],
    }

    ClientInfo = "client|info" {
        summary: "Describe this connection.",
        complexity: "O(1)",
        since: "6.2.0",
        arity: 2,
        flags: [NOSCRIPT, LOADING, STALE],
        acl: [CONNECTION],
        tips: ["nondeterministic_output"],
    }

    ClientKill = "client|kill" {
        summary: "Close connections, picked by address or by filters.",
        complexity: "O(N), N: connections",
        since: "2.4.0",
        history: [
            ("2.8.12", "Filters instead of an address."),
            ("2.8.12", "ID."),
            ("3.2.0", "TYPE master."),
            ("5.0.0", "TYPE replica; slave means the same."),
            ("6.2.0", "LADDR."),
            ("7.4.0", "MAXAGE."),
            ("9.0.0", "More filters, and their opposites, as in Valkey."),
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
                    one_of("more-filters", FILTERS).since("9.0.0").optional(),
                ]).multiple(),
            ]),
        ],
    }

    ClientList = "client|list" {
        summary: "Describe all connections, or those that filters pick.",
        complexity: "O(N), N: connections",
        since: "2.4.0",
        history: [
            ("2.8.12", "Field id."),
            ("5.0.0", "TYPE."),
            ("6.0.0", "Field user."),
            ("6.2.0", "ID; fields argv-mem, tot-mem, laddr and redir."),
            ("7.0.0", "Fields resp, multi-mem, rbs and rbp."),
            ("7.0.3", "Field ssub."),
            ("7.2.0", "Fields lib-name and lib-ver."),
            ("7.4.0", "Field watch."),
            ("8.0.0", "Field io-thread."),
            ("9.0.0", "All filters of CLIENT KILL, as in Valkey."),
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
            one_of("more-filters", FILTERS).since("9.0.0").optional().multiple(),
            string("username").token("USER").since("9.0.0").optional(),
            string("addr").token("ADDR").since("9.0.0").optional(),
            string("laddr").token("LADDR").since("9.0.0").optional(),
            one_of("skipme", &[
                word("yes", "YES"),
                word("no", "NO"),
            ]).token("SKIPME").since("9.0.0").optional(),
            integer("maxage").token("MAXAGE").since("9.0.0").optional(),
        ],
    }

    ClientNoEvict = "client|no-evict" {
        summary: "Choose whether this connection may be closed to save memory.",
        complexity: "O(1)",
        since: "7.0.0",
        arity: 3,
        flags: [ADMIN, NOSCRIPT, LOADING, STALE],
        acl: [CONNECTION],
        args: [one_of("enabled", &[word("on", "ON"), word("off", "OFF")])],
    }

    ClientNoTouch = "client|no-touch" {
        summary: "Choose whether this connection's commands count as use of the keys.",
        complexity: "O(1)",
        since: "7.2.0",
        arity: 3,
        flags: [NOSCRIPT, LOADING, STALE],
        acl: [CONNECTION],
        args: [one_of("enabled", &[word("on", "ON"), word("off", "OFF")])],
    }

    ClientPause = "client|pause" {
        summary: "Hold back all commands, or those that write, for a time.",
        complexity: "O(1)",
        since: "3.0.0",
        history: [("6.2.0", "WRITE and ALL.")],
        arity: -3,
        flags: [ADMIN, NOSCRIPT, LOADING, STALE],
        acl: [CONNECTION],
        args: [
            integer("timeout"),
            one_of("mode", &[
                word("write", "WRITE"),
                word("all", "ALL"),
            ]).since("6.2.0").optional(),
        ],
    }

    ClientReply = "client|reply" {
        summary: "Choose whether this connection gets replies.",
        complexity: "O(1)",
        since: "3.2.0",
        arity: 3,
        flags: [NOSCRIPT, LOADING, STALE],
        acl: [CONNECTION],
        args: [one_of("action", &[word("on", "ON"), word("off", "OFF"), word("skip", "SKIP")])],
    }

    ClientSetinfo = "client|setinfo" {
        summary: "Record the name or the version of the client library.",
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
        summary: "Give this connection a name.",
        complexity: "O(1)",
        since: "2.6.9",
        arity: 3,
        flags: [NOSCRIPT, LOADING, STALE],
        acl: [CONNECTION],
        tips: ["request_policy:all_nodes", "response_policy:all_succeeded"],
        args: [string("connection-name")],
    }

    ClientTracking = "client|tracking" {
        summary: "Have the connection told when keys that it has read change.",
        complexity: "O(1), and more with some options",
        since: "6.0.0",
        arity: -3,
        flags: [NOSCRIPT, LOADING, STALE],
        acl: [CONNECTION],
        args: [
            one_of("status", &[word("on", "ON"), word("off", "OFF")]),
            integer("client-id").token("REDIRECT").optional(),
            string("prefix").token("PREFIX").optional().multiple_token(),
            word("bcast", "BCAST").optional(),
            word("optin", "OPTIN").optional(),
            word("optout", "OPTOUT").optional(),
            word("noloop", "NOLOOP").optional(),
        ],
    }

    ClientTrackinginfo = "client|trackinginfo" {
        summary: "Describe how the connection tracks keys.",
        complexity: "O(1)",
        since: "6.2.0",
        arity: 2,
        flags: [NOSCRIPT, LOADING, STALE],
        acl: [CONNECTION],
    }

    ClientUnblock = "client|unblock" {
        summary: "End another connection's wait in a blocking command.",
        complexity: "O(log(N)), N: connections",
        since: "5.0.0",
        arity: -3,
        flags: [ADMIN, NOSCRIPT, LOADING, STALE],
        acl: [CONNECTION],
        args: [
            integer("client-id"),
            one_of("unblock-type", &[
                word("timeout", "TIMEOUT"),
                word("error", "ERROR"),
            ]).optional(),
        ],
    }

    ClientUnpause = "client|unpause" {
        summary: "Let the commands go on that CLIENT PAUSE holds back.",
        complexity: "O(N), N: clients held back",
        since: "6.2.0",
        arity: 2,
        flags: [ADMIN, NOSCRIPT, LOADING, STALE],
        acl: [CONNECTION],
    }

    Echo = "echo" {
        summary: "Answer with the message given.",
        complexity: "O(1)",
        since: "1.0.0",
        arity: 2,
        flags: [LOADING, STALE, FAST],
        acl: [CONNECTION],
        args: [string("message")],
    }

    Hello = "hello" {
        summary: "Choose the protocol version, and optionally log in and name the connection.",
        complexity: "O(1)",
        since: "6.0.0",
        history: [
            ("6.2.0", "The version may be left out: the reply then describes the connection as it is."),
        ],
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
        summary: "Answer with PONG, or with the message given.",
        complexity: "O(1)",
        since: "1.0.0",
        arity: -1,
        flags: [FAST],
        acl: [CONNECTION],
        tips: ["request_policy:all_shards", "response_policy:all_succeeded"],
        args: [string("message").optional()],
    }

    Quit = "quit" {
        summary: "Close the connection.",
        complexity: "O(1)",
        since: "1.0.0",
        deprecated: { since: "7.2.0", replaced_by: "closing the connection" },
        arity: -1,
        flags: [NOSCRIPT, LOADING, STALE, FAST, NO_AUTH, ALLOW_BUSY],
        acl: [CONNECTION],
    }

    Reset = "reset" {
        summary: "Put the connection back into the state it started in.",
        complexity: "O(1)",
        since: "6.2.0",
        arity: 1,
        flags: [NOSCRIPT, LOADING, STALE, FAST, NO_AUTH, ALLOW_BUSY],
        acl: [CONNECTION],
    }

    Select = "select" {
        summary: "Choose the database that later commands work on.",
        complexity: "O(1)",
        since: "1.0.0",
        arity: 2,
        flags: [LOADING, STALE, FAST],
        acl: [CONNECTION],
        args: [integer("index")],
    }
}
