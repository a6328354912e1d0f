//! Keys of any type: the rows of the group `generic`. Rows only.

use super::prelude::*;

/// Options of MIGRATE before KEYS that have arguments.
const MIGRATE_OPTIONS: &[(&str, u8)] = &[("AUTH", 1), ("AUTH2", 2)];

rows! { Generic:
    Copy = "copy" {
        summary: "Duplicate a value under another key, in the same or another database.",
        complexity: "O(N), N: elements; O(1) for strings",
        since: "6.2.0",
        arity: -3,
        flags: [WRITE, DENYOOM],
        acl: [KEYSPACE],
        keys: [KeySpec::at(1, READ), KeySpec::at(2, OVERWRITE)],
        args: [
            key("source"),
            key_of_spec("destination", 1),
            integer("destination-db").token("DB").optional(),
            word("replace", "REPLACE").optional(),
        ],
    }

    Del = "del" {
        summary: "Remove keys.",
        complexity: "O(N), N: keys and the elements they hold",
        since: "1.0.0",
        arity: -2,
        flags: [WRITE],
        acl: [KEYSPACE],
        tips: ["request_policy:multi_shard", "response_policy:agg_sum"],
        keys: [KeySpec::range(1, -1, 1, REMOVE)],
        args: [key("key").multiple()],
    }

    Dump = "dump" {
        summary: "Write a key's value as bytes that RESTORE reads.",
        complexity: "O(1) to find the key and O(N*M) to write it, N: elements, M: their average size",
        since: "2.6.0",
        arity: 2,
        flags: [READONLY],
        acl: [KEYSPACE],
        tips: ["nondeterministic_output"],
        keys: [KeySpec::at(1, READ)],
        args: [key("key")],
    }

    Exists = "exists" {
        summary: "Count how many of the keys given exist.",
        complexity: "O(N), N: keys",
        since: "1.0.0",
        history: [("3.0.3", "Several keys.")],
        arity: -2,
        flags: [READONLY, FAST],
        acl: [KEYSPACE],
        tips: ["request_policy:multi_shard", "response_policy:agg_sum"],
        keys: [KeySpec::range(1, -1, 1, INSPECT)],
        args: [key("key").multiple()],
    }

    Expire = "expire" {
        summary: "Let a key live for a number of seconds.",
        complexity: "O(1)",
        since: "1.0.0",
        history: [("7.0.0", "NX, XX, GT and LT.")],
        arity: -3,
        flags: [WRITE, FAST],
        acl: [KEYSPACE],
        keys: [KeySpec::at(1, UPDATE)],
        args: [
            key("key"),
            integer("seconds"),
            one_of("condition", &[
                word("nx", "NX"),
                word("xx", "XX"),
                word("gt", "GT"),
                word("lt", "LT"),
            ]).since("7.0.0").optional(),
        ],
        propagate: Effect,
    }

    Expireat = "expireat" {
        summary: "Let a key live until a Unix time in seconds.",
        complexity: "O(1)",
        since: "1.2.0",
        history: [("7.0.0", "NX, XX, GT and LT.")],
        arity: -3,
        flags: [WRITE, FAST],
        acl: [KEYSPACE],
        keys: [KeySpec::at(1, UPDATE)],
        args: [
            key("key"),
            unix_time("unix-time-seconds"),
            one_of("condition", &[
                word("nx", "NX"),
                word("xx", "XX"),
                word("gt", "GT"),
                word("lt", "LT"),
            ]).since("7.0.0").optional(),
        ],
        propagate: Effect,
    }

    Expiretime = "expiretime" {
        summary: "Tell when a key expires, as a Unix time in seconds.",
        complexity: "O(1)",
        since: "7.0.0",
        arity: 2,
        flags: [READONLY, FAST],
        acl: [KEYSPACE],
        keys: [KeySpec::at(1, READ)],
        args: [key("key")],
    }

    Keys = "keys" {
        summary: "List every key that a glob pattern matches.",
        complexity: "O(N), N: keys in the database",
        since: "1.0.0",
        arity: 2,
        flags: [READONLY],
        acl: [KEYSPACE, DANGEROUS],
        tips: ["request_policy:all_shards", "nondeterministic_output_order"],
        args: [pattern("pattern")],
        scope: All,
    }

    Migrate = "migrate" {
        summary: "Take keys to another server.",
        complexity: "That of DUMP and DEL here and of RESTORE there, for each key",
        since: "2.6.0",
        history: [
            ("3.0.0", "COPY and REPLACE."),
            ("3.0.6", "KEYS."),
            ("4.0.7", "AUTH."),
            ("6.0.0", "AUTH2."),
        ],
        arity: -6,
        flags: [WRITE],
        acl: [KEYSPACE, DANGEROUS],
        tips: ["nondeterministic_output"],
        keys: [
            KeySpec::one_unless(3, "KEYS", 6, MIGRATE_OPTIONS, READ_DELETE),
            KeySpec::rest_behind(6, "KEYS", MIGRATE_OPTIONS, READ_DELETE_SOME),
        ],
        args: [
            string("host"),
            integer("port"),
            one_of("key-selector", &[key("key"), word("empty-string", "")]),
            integer("destination-db"),
            integer("timeout"),
            word("copy", "COPY").since("3.0.0").optional(),
            word("replace", "REPLACE").since("3.0.0").optional(),
            one_of("authentication", &[
                string("auth").display("password").token("AUTH").since("4.0.7"),
                block("auth2", &[string("username"), string("password")]).token("AUTH2").since("6.0.0"),
            ]).optional(),
            key_of_spec("keys", 1).display("key").token("KEYS").since("3.0.6").optional().multiple(),
        ],
        propagate: Effect,
    }

    Move = "move" {
        summary: "Take a key to another database.",
        complexity: "O(1)",
        since: "1.0.0",
        arity: 3,
        flags: [WRITE, FAST],
        acl: [KEYSPACE],
        keys: [KeySpec::at(1, READ_UPDATE)],
        args: [key("key"), integer("db")],
    }

    Object = "object" {
        summary: "Inspect how a value is stored.",
        since: "2.2.3",
        arity: -2,
    }

    ObjectEncoding = "object|encoding" {
        summary: "Name the encoding in which a value is stored.",
        complexity: "O(1)",
        since: "2.2.3",
        arity: 3,
        flags: [READONLY],
        acl: [KEYSPACE],
        tips: ["nondeterministic_output"],
        keys: [KeySpec::at(2, INSPECT)],
        args: [key("key")],
    }

    ObjectFreq = "object|freq" {
        summary: "Tell how often a key is used, under an LFU eviction policy.",
        complexity: "O(1)",
        since: "4.0.0",
        arity: 3,
        flags: [READONLY],
        acl: [KEYSPACE],
        tips: ["nondeterministic_output"],
        keys: [KeySpec::at(2, INSPECT)],
        args: [key("key")],
    }

    ObjectHelp = "object|help" {
        summary: "List the subcommands of OBJECT.",
        complexity: "O(1)",
        since: "6.2.0",
        arity: 2,
        flags: [LOADING, STALE],
        acl: [KEYSPACE],
    }

    ObjectIdletime = "object|idletime" {
        summary: "Tell for how many seconds a key has not been used.",
        complexity: "O(1)",
        since: "2.2.3",
        arity: 3,
        flags: [READONLY],
        acl: [KEYSPACE],
        tips: ["nondeterministic_output"],
        keys: [KeySpec::at(2, INSPECT)],
        args: [key("key")],
    }

    ObjectRefcount = "object|refcount" {
        summary: "Count the references to a value.",
        complexity: "O(1)",
        since: "2.2.3",
        arity: 3,
        flags: [READONLY],
        acl: [KEYSPACE],
        tips: ["nondeterministic_output"],
        keys: [KeySpec::at(2, INSPECT)],
        args: [key("key")],
    }

    Persist = "persist" {
        summary: "Take the expiry off a key.",
        complexity: "O(1)",
        since: "2.2.0",
        arity: 2,
        flags: [WRITE, FAST],
        acl: [KEYSPACE],
        keys: [KeySpec::at(1, UPDATE)],
        args: [key("key")],
    }

    Pexpire = "pexpire" {
        summary: "Let a key live for a number of milliseconds.",
        complexity: "O(1)",
        since: "2.6.0",
        history: [("7.0.0", "NX, XX, GT and LT.")],
        arity: -3,
        flags: [WRITE, FAST],
        acl: [KEYSPACE],
        keys: [KeySpec::at(1, UPDATE)],
        args: [
            key("key"),
            integer("milliseconds"),
            one_of("condition", &[
                word("nx", "NX"),
                word("xx", "XX"),
                word("gt", "GT"),
                word("lt", "LT"),
            ]).since("7.0.0").optional(),
        ],
        propagate: Effect,
    }

    Pexpireat = "pexpireat" {
        summary: "Let a key live until a Unix time in milliseconds.",
        complexity: "O(1)",
        since: "2.6.0",
        history: [("7.0.0", "NX, XX, GT and LT.")],
        arity: -3,
        flags: [WRITE, FAST],
        acl: [KEYSPACE],
        keys: [KeySpec::at(1, UPDATE)],
        args: [
            key("key"),
            unix_time("unix-time-milliseconds"),
            one_of("condition", &[
                word("nx", "NX"),
                word("xx", "XX"),
                word("gt", "GT"),
                word("lt", "LT"),
            ]).since("7.0.0").optional(),
        ],
        propagate: Effect,
    }

    Pexpiretime = "pexpiretime" {
        summary: "Tell when a key expires, as a Unix time in milliseconds.",
        complexity: "O(1)",
        since: "7.0.0",
        arity: 2,
        flags: [READONLY, FAST],
        acl: [KEYSPACE],
        keys: [KeySpec::at(1, READ)],
        args: [key("key")],
    }

    Pttl = "pttl" {
        summary: "Tell how many milliseconds a key has left to live.",
        complexity: "O(1)",
        since: "2.6.0",
        history: [("2.8.0", "-2 for a missing key.")],
        arity: 2,
        flags: [READONLY, FAST],
        acl: [KEYSPACE],
        tips: ["nondeterministic_output"],
        keys: [KeySpec::at(1, READ)],
        args: [key("key")],
    }

    Randomkey = "randomkey" {
        summary: "Pick any key of the database.",
        complexity: "O(1)",
        since: "1.0.0",
        arity: 1,
        flags: [READONLY],
        acl: [KEYSPACE],
        tips: [
            "request_policy:all_shards",
            "response_policy:special",
            "nondeterministic_output",
        ],
        scope: OneStripe,
    }

    Rename = "rename" {
        summary: "Give a key another name; a key of that name is replaced.",
        complexity: "O(1)",
        since: "1.0.0",
        arity: 3,
        flags: [WRITE],
        acl: [KEYSPACE],
        keys: [KeySpec::at(1, READ_DELETE), KeySpec::at(2, OVERWRITE)],
        args: [key("key"), key_of_spec("newkey", 1)],
    }

    Renamenx = "renamenx" {
        summary: "Give a key another name unless a key of that name exists.",
        complexity: "O(1)",
        since: "1.0.0",
        history: [("3.2.0", "Two equal names are no error any more.")],
        arity: 3,
        flags: [WRITE, FAST],
        acl: [KEYSPACE],
        keys: [KeySpec::at(1, READ_DELETE), KeySpec::at(2, CREATE)],
        args: [key("key"), key_of_spec("newkey", 1)],
    }

    Restore = "restore" {
        summary: "Make a key of bytes that DUMP wrote.",
        complexity: "O(1) to make the key and O(N*M) to read it, N: elements, M: their average size; O(N*M*log(N)) for sorted sets",
        since: "2.6.0",
        history: [
            ("3.0.0", "REPLACE."),
            ("5.0.0", "ABSTTL."),
            ("5.0.0", "IDLETIME and FREQ."),
        ],
        arity: -4,
        flags: [WRITE, DENYOOM],
        acl: [KEYSPACE, DANGEROUS],
        keys: [KeySpec::at(1, OVERWRITE)],
        args: [
            key("key"),
            integer("ttl"),
            string("serialized-value"),
            word("replace", "REPLACE").since("3.0.0").optional(),
            word("absttl", "ABSTTL").since("5.0.0").optional(),
            integer("seconds").token("IDLETIME").since("5.0.0").optional(),
            integer("frequency").token("FREQ").since("5.0.0").optional(),
        ],
        propagate: Effect,
    }

    Scan = "scan" {
        summary: "Walk over the keys of the database, a few per call.",
        complexity: "O(1) per call, O(N) for the whole walk, N: keys",
        since: "2.8.0",
        history: [("6.0.0", "TYPE.")],
        arity: -2,
        flags: [READONLY],
        acl: [KEYSPACE],
        tips: ["nondeterministic_output", "request_policy:special", "response_policy:special"],
        args: [
            integer("cursor"),
            pattern("pattern").token("MATCH").optional(),
            integer("count").token("COUNT").optional(),
            string("type").token("TYPE").since("6.0.0").optional(),
        ],
        scope: OneStripe,
        routing: Cursor,
    }

    Sort = "sort" {
        summary: "Sort the elements of a list, a set or a sorted set, and answer or store them.",
        complexity: "O(N+M*log(M)), N: elements, M: elements answered; O(N) where nothing is sorted",
        since: "1.0.0",
        arity: -2,
        flags: [WRITE, DENYOOM],
        acl: [SET, SORTEDSET, LIST, DANGEROUS],
        keys: [
            KeySpec::at(1, READ),
            KeySpec::unknown(READ).note("The keys of BY and GET are made from the elements."),
            KeySpec::behind(2, "STORE", &[("LIMIT", 2), ("GET", 1), ("BY", 1)], OVERWRITE)
                .note("STORE may stand anywhere among the options."),
        ],
        args: [
            key("key"),
            pattern("by-pattern").display("pattern").token("BY").of_spec(1).optional(),
            block("limit", &[integer("offset"), integer("count")]).token("LIMIT").optional(),
            pattern("get-pattern").display("pattern").token("GET").of_spec(1).optional().multiple_token(),
            one_of("order", &[word("asc", "ASC"), word("desc", "DESC")]).optional(),
            word("sorting", "ALPHA").optional(),
            key_of_spec("destination", 2).token("STORE").optional(),
        ],
        scope: KeysPlus,
    }

    SortRo = "sort_ro" {
        summary: "Sort the elements of a list, a set or a sorted set, and answer them.",
        complexity: "O(N+M*log(M)), N: elements, M: elements answered; O(N) where nothing is sorted",
        since: "7.0.0",
        arity: -2,
        flags: [READONLY],
        acl: [SET, SORTEDSET, LIST, DANGEROUS],
        keys: [
            KeySpec::at(1, READ),
            KeySpec::unknown(READ).note("The keys of BY and GET are made from the elements."),
        ],
        args: [
            key("key"),
            pattern("by-pattern").display("pattern").token("BY").of_spec(1).optional(),
            block("limit", &[integer("offset"), integer("count")]).token("LIMIT").optional(),
            pattern("get-pattern").display("pattern").token("GET").of_spec(1).optional().multiple_token(),
            one_of("order", &[word("asc", "ASC"), word("desc", "DESC")]).optional(),
            word("sorting", "ALPHA").optional(),
        ],
        scope: KeysPlus,
    }

    Touch = "touch" {
        summary: "Mark keys as just used and count those that exist.",
        complexity: "O(N), N: keys",
        since: "3.2.1",
        arity: -2,
        flags: [READONLY, FAST],
        acl: [KEYSPACE],
        tips: ["request_policy:multi_shard", "response_policy:agg_sum"],
        keys: [KeySpec::range(1, -1, 1, INSPECT)],
        args: [key("key").multiple()],
    }

    Ttl = "ttl" {
        summary: "Tell how many seconds a key has left to live.",
        complexity: "O(1)",
        since: "1.0.0",
        history: [("2.8.0", "-2 for a missing key.")],
        arity: 2,
        flags: [READONLY, FAST],
        acl: [KEYSPACE],
        tips: ["nondeterministic_output"],
        keys: [KeySpec::at(1, READ)],
        args: [key("key")],
    }

    Type = "type" {
        summary: "Name the type of the value a key holds.",
        complexity: "O(1)",
        since: "1.0.0",
        arity: 2,
        flags: [READONLY, FAST],
        acl: [KEYSPACE],
        keys: [KeySpec::at(1, INSPECT)],
        args: [key("key")],
    }

    Unlink = "unlink" {
        summary: "Remove keys, leaving the freeing of large values to the background.",
        complexity: "O(1) per key, and O(N) in the background, N: elements freed",
        since: "4.0.0",
        arity: -2,
        flags: [WRITE, FAST],
        acl: [KEYSPACE],
        tips: ["request_policy:multi_shard", "response_policy:agg_sum"],
        keys: [KeySpec::range(1, -1, 1, REMOVE)],
        args: [key("key").multiple()],
    }

    Wait = "wait" {
        summary: "Wait until replicas have what this connection has written.",
        complexity: "O(1)",
        since: "3.0.0",
        arity: 3,
        flags: [BLOCKING],
        acl: [CONNECTION],
        tips: ["request_policy:all_shards", "response_policy:agg_min"],
        args: [integer("numreplicas"), integer("timeout")],
    }

    Waitaof = "waitaof" {
        summary: "Wait until files, here and at replicas, have what this connection has written.",
        complexity: "O(1)",
        since: "7.2.0",
        arity: 4,
        flags: [BLOCKING],
        acl: [CONNECTION],
        tips: ["request_policy:all_shards", "response_policy:agg_min"],
        args: [integer("numlocal"), integer("numreplicas"), integer("timeout")],
    }
}
