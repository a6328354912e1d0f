//! Clusters: the rows of the group `cluster`. Rows only.
//!
//! Without cluster mode, all of these fail with an error for that.

use super::prelude::*;

rows! { Cluster:
    Asking = "asking" {
        summary: "Say that the next command follows an ASK redirect.",
        complexity: "O(1)",
        since: "3.0.0",
        arity: 1,
        flags: [FAST],
        acl: [CONNECTION],
    }

    Cluster = "cluster" {
        summary: "Inspect and manage a node of a Redis Cluster.",
        since: "3.0.0",
        arity: -2,
    }

    ClusterAddslots = "cluster|addslots" {
        summary: "Give slots to this node.",
        complexity: "O(N), N: slots",
        since: "3.0.0",
        arity: -3,
        flags: [ADMIN, STALE, NO_ASYNC_LOADING],
        args: [integer("slot").multiple()],
        scope: All,
    }

    ClusterAddslotsrange = "cluster|addslotsrange" {
        summary: "Give ranges of slots to this node.",
        complexity: "O(N), N: slots",
        since: "7.0.0",
        arity: -4,
        flags: [ADMIN, STALE, NO_ASYNC_LOADING],
        args: [block("range", &[integer("start-slot"), integer("end-slot")]).multiple()],
        scope: All,
    }

    ClusterBumpepoch = "cluster|bumpepoch" {
        summary: "Raise the configuration epoch.",
        complexity: "O(1)",
        since: "3.0.0",
        arity: 2,
        flags: [ADMIN, STALE, NO_ASYNC_LOADING],
        tips: ["nondeterministic_output"],
    }

    // Valkey's, as the other moves of slots.
    ClusterCancelslotmigrations = "cluster|cancelslotmigrations" {
        summary: "Give up the moves of slots from this node.",
        complexity: "O(N), N: moves",
        since: "9.0.0",
        arity: 2,
        flags: [ADMIN, STALE, NO_ASYNC_LOADING],
    }

    ClusterCountFailureReports = "cluster|count-failure-reports" {
        summary: "Count the nodes that say of a node that it has failed.",
        complexity: "O(N), N: reports",
        since: "3.0.0",
        arity: 3,
        flags: [ADMIN, STALE],
        tips: ["nondeterministic_output"],
        args: [string("node-id")],
    }

    ClusterCountkeysinslot = "cluster|countkeysinslot" {
        summary: "Count the keys of a slot.",
        complexity: "O(1)",
        since: "3.0.0",
        arity: 3,
        flags: [STALE],
        args: [integer("slot")],
    }

    ClusterDelslots = "cluster|delslots" {
        summary: "Take slots from this node.",
        complexity: "O(N), N: slots",
        since: "3.0.0",
        arity: -3,
        flags: [ADMIN, STALE, NO_ASYNC_LOADING],
        args: [integer("slot").multiple()],
        scope: All,
    }

    ClusterDelslotsrange = "cluster|delslotsrange" {
        summary: "Take ranges of slots from this node.",
        complexity: "O(N), N: slots",
        since: "7.0.0",
        arity: -4,
        flags: [ADMIN, STALE, NO_ASYNC_LOADING],
        args: [block("range", &[integer("start-slot"), integer("end-slot")]).multiple()],
        scope: All,
    }

    ClusterFailover = "cluster|failover" {
        summary: "Let this replica take the place of its primary.",
        complexity: "O(1)",
        since: "3.0.0",
        arity: -2,
        flags: [ADMIN, STALE, NO_ASYNC_LOADING],
        args: [one_of("options", &[word("force", "FORCE"), word("takeover", "TAKEOVER")]).optional()],
    }

    ClusterFlushslot = "cluster|flushslot" {
        summary: "Remove all keys of a slot.",
        complexity: "O(N), N: keys",
        since: "9.0.0",
        arity: -3,
        flags: [WRITE, ADMIN, NO_ASYNC_LOADING],
        acl: [KEYSPACE],
        args: [
            integer("slot"),
            one_of("flush-type", &[word("async", "ASYNC"), word("sync", "SYNC")]).optional(),
        ],
        scope: OneStripe,
        propagate: Effect,
    }

    ClusterFlushslots = "cluster|flushslots" {
        summary: "Take all slots from this node.",
        complexity: "O(1)",
        since: "3.0.0",
        arity: 2,
        flags: [ADMIN, STALE, NO_ASYNC_LOADING],
        scope: All,
    }

    ClusterForget = "cluster|forget" {
        summary: "Strike a node off the list of nodes.",
        complexity: "O(1)",
        since: "3.0.0",
        arity: 3,
        flags: [ADMIN, STALE, NO_ASYNC_LOADING],
        args: [string("node-id")],
    }

    ClusterGetkeysinslot = "cluster|getkeysinslot" {
        summary: "Tell some keys of a slot.",
        complexity: "O(N), N: keys asked for",
        since: "3.0.0",
        arity: 4,
        flags: [STALE],
        tips: ["nondeterministic_output"],
        args: [integer("slot"), integer("count")],
        scope: OneStripe,
    }

    ClusterGetslotmigrations = "cluster|getslotmigrations" {
        summary: "List the moves of slots from and to this node.",
        complexity: "O(N), N: moves",
        since: "9.0.0",
        arity: 2,
        flags: [ADMIN, STALE],
        tips: ["nondeterministic_output"],
    }

    ClusterHelp = "cluster|help" {
        summary: "List the subcommands of CLUSTER.",
        complexity: "O(1)",
        since: "5.0.0",
        arity: 2,
        flags: [LOADING, STALE],
    }

    ClusterInfo = "cluster|info" {
        summary: "Tell how this node sees the cluster.",
        complexity: "O(1)",
        since: "3.0.0",
        arity: 2,
        flags: [STALE],
        tips: ["nondeterministic_output"],
    }

    ClusterKeyslot = "cluster|keyslot" {
        summary: "Tell the slot of a key.",
        complexity: "O(N), N: bytes of the key",
        since: "3.0.0",
        arity: 3,
        flags: [STALE],
        args: [string("key")],
    }

    ClusterLinks = "cluster|links" {
        summary: "List the connections to other nodes and from them.",
        complexity: "O(N), N: nodes",
        since: "7.0.0",
        arity: 2,
        flags: [STALE],
        tips: ["nondeterministic_output"],
    }

    ClusterMeet = "cluster|meet" {
        summary: "Make another node known to this one.",
        complexity: "O(1)",
        since: "3.0.0",
        history: [("4.0.0", "A port for the bus.")],
        arity: -4,
        flags: [ADMIN, STALE, NO_ASYNC_LOADING],
        args: [string("ip"), integer("port"), integer("cluster-bus-port").since("4.0.0").optional()],
    }

    ClusterMigrateslots = "cluster|migrateslots" {
        summary: "Move slots with their keys to other nodes.",
        complexity: "O(N), N: slots",
        since: "9.0.0",
        arity: -7,
        flags: [ADMIN, STALE, NO_ASYNC_LOADING],
        args: [block("move", &[
            block("slotsrange", &[integer("start-slot"), integer("end-slot")])
                .token("SLOTSRANGE")
                .multiple(),
            string("node-id").token("NODE"),
        ])
        .multiple()],
    }

    // Redis's, since its 8.4.
    ClusterMigration = "cluster|migration" {
        summary: "Have slots moved to this node, ask for such moves, or give them up.",
        complexity: "O(N), N: slots or moves",
        since: "8.4.0",
        arity: -4,
        flags: [ADMIN, STALE, NO_ASYNC_LOADING],
        tips: ["nondeterministic_output"],
        args: [one_of("subcommand", &[
            block("import", &[integer("start-slot"), integer("end-slot")])
                .token("IMPORT")
                .multiple(),
            one_of("cancel", &[string("task-id").token("ID"), word("all", "ALL")]).token("CANCEL"),
            one_of("status", &[string("task-id").token("ID"), word("all", "ALL")]).token("STATUS"),
        ])],
    }

    ClusterMyid = "cluster|myid" {
        summary: "Tell the id of this node.",
        complexity: "O(1)",
        since: "3.0.0",
        arity: 2,
        flags: [STALE],
    }

    ClusterMyshardid = "cluster|myshardid" {
        summary: "Tell the id of this node's shard.",
        complexity: "O(1)",
        since: "7.2.0",
        arity: 2,
        flags: [STALE],
        tips: ["nondeterministic_output"],
    }

    ClusterNodes = "cluster|nodes" {
        summary: "List the nodes as this one knows them.",
        complexity: "O(N), N: nodes",
        since: "3.0.0",
        arity: 2,
        flags: [STALE],
        tips: ["nondeterministic_output"],
    }

    ClusterReplicas = "cluster|replicas" {
        summary: "List the replicas of a primary.",
        complexity: "O(N), N: replicas",
        since: "5.0.0",
        arity: 3,
        flags: [ADMIN, STALE],
        tips: ["nondeterministic_output"],
        args: [string("node-id")],
    }

    ClusterReplicate = "cluster|replicate" {
        summary: "Make this node a replica of another.",
        complexity: "O(1)",
        since: "3.0.0",
        arity: 3,
        flags: [ADMIN, STALE, NO_ASYNC_LOADING],
        args: [string("node-id")],
    }

    ClusterReset = "cluster|reset" {
        summary: "Make this node forget the cluster.",
        complexity: "O(N), N: nodes and keys",
        since: "3.0.0",
        arity: -2,
        flags: [ADMIN, NOSCRIPT, STALE],
        args: [one_of("reset-type", &[word("hard", "HARD"), word("soft", "SOFT")]).optional()],
        scope: All,
    }

    ClusterSaveconfig = "cluster|saveconfig" {
        summary: "Write the configuration of the cluster to its file.",
        complexity: "O(1)",
        since: "3.0.0",
        arity: 2,
        flags: [ADMIN, STALE, NO_ASYNC_LOADING],
    }

    ClusterSetConfigEpoch = "cluster|set-config-epoch" {
        summary: "Set the configuration epoch of a new node.",
        complexity: "O(1)",
        since: "3.0.0",
        arity: 3,
        flags: [ADMIN, STALE, NO_ASYNC_LOADING],
        args: [integer("config-epoch")],
    }

    ClusterSetslot = "cluster|setslot" {
        summary: "Say who has a slot, or who is to get it.",
        complexity: "O(1)",
        since: "3.0.0",
        arity: -4,
        flags: [ADMIN, STALE, NO_ASYNC_LOADING],
        args: [
            integer("slot"),
            one_of("subcommand", &[
                string("importing").display("node-id").token("IMPORTING"),
                string("migrating").display("node-id").token("MIGRATING"),
                string("node").display("node-id").token("NODE"),
                word("stable", "STABLE"),
            ]),
        ],
        scope: All,
    }

    ClusterShards = "cluster|shards" {
        summary: "List the shards, their slots and their nodes.",
        complexity: "O(N), N: nodes",
        since: "7.0.0",
        arity: 2,
        flags: [LOADING, STALE],
        tips: ["nondeterministic_output"],
    }

    ClusterSlaves = "cluster|slaves" {
        summary: "List the replicas of a primary.",
        complexity: "O(N), N: replicas",
        since: "3.0.0",
        deprecated: { since: "5.0.0", replaced_by: "`CLUSTER REPLICAS`" },
        arity: 3,
        flags: [ADMIN, STALE],
        tips: ["nondeterministic_output"],
        args: [string("node-id")],
    }

    ClusterSlotStats = "cluster|slot-stats" {
        summary: "Tell how much the slots of this node are used.",
        complexity: "O(N), N: slots; O(N*log(N)) with ORDERBY",
        since: "8.2.0",
        arity: -4,
        flags: [LOADING, STALE],
        tips: ["nondeterministic_output", "request_policy:all_shards"],
        args: [one_of("filter", &[
            block("slotsrange", &[integer("start-slot"), integer("end-slot")]).token("SLOTSRANGE"),
            block("orderby", &[
                string("metric"),
                integer("limit").token("LIMIT").optional(),
                one_of("order", &[word("asc", "ASC"), word("desc", "DESC")]).optional(),
            ]).token("ORDERBY"),
        ])],
    }

    ClusterSlots = "cluster|slots" {
        summary: "List the slots and who has them.",
        complexity: "O(N), N: nodes",
        since: "3.0.0",
        history: [("4.0.0", "The ids of nodes."), ("7.0.0", "More about how to reach a node.")],
        deprecated: { since: "7.0.0", replaced_by: "`CLUSTER SHARDS`" },
        arity: 2,
        flags: [LOADING, STALE],
        tips: ["nondeterministic_output"],
    }

    // Of nodes among each other, as in Redis 8.4 and Valkey 9.
    ClusterSyncslots = "cluster|syncslots" {
        summary: "A word of one node to another.",
        complexity: "O(1)",
        since: "8.4.0",
        arity: -3,
        flags: [ADMIN, NOSCRIPT, LOADING, STALE],
        args: [one_of("word", &[
            block("node", &[string("cluster-id"), string("node-id")]).token("NODE"),
            string("move-id").token("BEGIN"),
            string("begun-move-id").token("CHECK"),
            word("see", "SEE"),
        ])],
    }

    Readonly = "readonly" {
        summary: "Let a replica of a cluster answer reads on this connection.",
        complexity: "O(1)",
        since: "3.0.0",
        arity: 1,
        flags: [LOADING, STALE, FAST],
        acl: [CONNECTION],
    }

    Readwrite = "readwrite" {
        summary: "Take READONLY back.",
        complexity: "O(1)",
        since: "3.0.0",
        arity: 1,
        flags: [LOADING, STALE, FAST],
        acl: [CONNECTION],
    }
}
