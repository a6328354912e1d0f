//! The rows, by topic. Names, defaults and limits are those of Redis 8.2.3; `threads`, `balance-clients`,
//! `event-coalescing-us`, `busy-reply-scope`, `log-format`, `metrics-port`, `metrics-bind`, `rdb-format-version`,
//! `repl-format-version`, `bandwidth-limit` and `repl-bandwidth-limit` are ours. Valkey 9.1.2's additional parameters are here
//! too.
//!
//! Settings of commands are rows of `redline_engine::settings`; [`SECTIONS`] has the places of its groups among these. Must not
//! know: how a row is read from a file or shown to a client.

use std::path::PathBuf;

use redline_engine::{Names, settings as engine};
use redline_net::tls::ClientAuth;
use redline_persist::aof::writer::Policy;
use redline_rdb::format::FileVersion;
use redline_settings::{
    codec::Port,
    settings,
    value::{INT_MAX, PORT, SECONDS, SWITCH, Syntax, TEXT, Unit, int, memory, size, unsigned},
};

use super::{
    Group::{Engine, Own, Process, Tls},
    Kept, Parameter, Section, assemble,
    checks::{
        addresses, append_dir_name, append_filename, empty, file_name, hostname, ipv4, ipv6,
        locale, no, node_name, oom_scores, output_limit_lines, output_limits, percentiles, primary,
        save_points, title_template, zero,
    },
    codecs::{
        AppendSync, ClientCertificates, OnRefusedEffect, OomScores, OpenChannels, OutputLimits,
        PrimaryAddress, RdbFormat, SavePoints, WorkingDir,
    },
};
use crate::{
    log::{LogFormat, LogTimestamp},
    service::{OomScore, Supervision},
    settings::{OutputLimit, Permission, RefusedEffects, UserLine},
};

/// Number of databases: each has a place, used or not, and some work goes over all places.
const DATABASES_MAX: i64 = 1 << 20;
const ENDING: Syntax = Syntax::Bits(&["default", "save", "nosave", "now", "force"]);

/// Every parameter, in the order in which CONFIG GET and CONFIG REWRITE name them.
pub static ROWS: &[Parameter] = &assemble::<{ super::count(SECTIONS) }>(SECTIONS);

/// Groups of rows, in order.
pub const SECTIONS: &[Section] = &[
    Section {
        title: "Network",
        groups: &[
            Own(LISTENERS),
            Engine(engine::REQUESTS),
            Own(BUFFERS),
            Engine(engine::GREETING),
        ],
    },
    Section {
        title: "Threads",
        groups: &[Own(THREADS)],
    },
    Section {
        title: "General",
        groups: &[Own(DATABASES), Process(PROCESS), Own(PERMISSIONS)],
    },
    Section {
        title: "Security",
        groups: &[Own(SECURITY), Engine(engine::REFUSALS)],
    },
    Section {
        title: "Memory",
        groups: &[
            Engine(engine::MEMORY),
            Own(EVICTION),
            Engine(engine::LFU),
            Own(EXPIRY),
        ],
    },
    Section {
        title: "Data types",
        groups: &[Engine(engine::DATA_TYPES)],
    },
    Section {
        title: "Scripts, events, statistics",
        groups: &[
            Engine(engine::CALLS),
            Own(PERCENTILES),
            Engine(engine::TRACKING),
        ],
    },
    Section {
        title: "Snapshots",
        groups: &[
            Own(SNAPSHOTS),
            Engine(engine::PAYLOADS),
            Own(SNAPSHOT_FILES),
        ],
    },
    Section {
        title: "Append-only file",
        groups: &[Own(APPEND_ONLY_FILE)],
    },
    Section {
        title: "Replication",
        groups: &[Own(REPLICATION)],
    },
    Section {
        title: "Cluster",
        groups: &[Own(CLUSTER)],
    },
    Section {
        title: "TLS",
        groups: &[Tls(TLS)],
    },
];

settings! {
    /// Every parameter that has an effect. Defaults are those of Redis 8.2.3.
    #[derive(Clone, Debug)]
    pub struct Settings {
        /// Settings of commands.
        engine: redline_engine::Settings = redline_engine::Settings::default();
        /// Settings of the process.
        service: ServiceSettings = ServiceSettings::default();
        /// TLS.
        tls: TlsSettings = TlsSettings::default();
        /// Users that the configuration defines.
        acl_user_lines: Vec<UserLine> = Vec::new();
        /// Names of commands.
        names: Names = Names::default();
        /// Parameters without effect that were set.
        kept: Kept = Kept::new();
    }

    /// Listeners and connections.
    LISTENERS = {
        bind: Vec<String> = ("bind", Live, Syntax::Words(addresses), "* -::*", "Addresses to listen on: * is every IPv4 address, ::* every IPv6 address; one behind a - may be missing.");
        /// Port 0: chosen by the system.
        metrics_port: Option<u16> as Port = ("metrics-port", Start, PORT, "0", "HTTP port of the metrics for Prometheus, under /metrics; 0: none.");
        metrics_bind: Vec<String> = ("metrics-bind", Start, Syntax::Words(addresses), "127.0.0.1 -::1", "Addresses of the metrics port, as in bind; metrics can be read without a password.");
        /// Port 0: chosen by the system.
        port: Option<u16> as Port = ("port", Live, PORT, "6379", "TCP port; 0: none.");
        protected_mode: bool = ("protected-mode", Live, SWITCH, "yes", "Refuse clients from other hosts while the default user has no password.");
        tcp_backlog: u32 = ("tcp-backlog", Start, SECONDS, "511", "Listen backlog: connections that may wait to be accepted.");
        tcp_keepalive_s: u32 = ("tcp-keepalive", Live, SECONDS, "300", "Seconds between TCP keepalive probes, for connections accepted from now on; 0: off.");
        timeout_s: u64 = ("timeout", Live, SECONDS, "0", "Seconds after which an idle client is closed; 0: never.");
        maxclients: usize = ("maxclients", Live, unsigned(1, u32::MAX as i64), "10000", "Maximum number of connected clients.");
        unixsocket: Option<String> = ("unixsocket", Start, TEXT, "", "Path of a unix socket to listen on.");
        unixsocketperm: u32 = ("unixsocketperm", Start, Syntax::Integer { min: 0, max: 0o777, unit: Unit::Octal, unsigned: false }, "0", "Permission bits of the unix socket, in octal; 0: what the umask leaves.");
        unixsocketgroup: Option<String> = ("unixsocketgroup", Start, TEXT, "", "Group that the unix socket belongs to; empty: the process's.");
    }

    /// Buffers of clients, and parameters of connections without effect.
    BUFFERS = {
        query_buffer_bytes_max: u64 = ("client-query-buffer-limit", Live, size(1 << 20), "1073741824", "Maximum size of a client's query buffer; a client above it is closed.");
        /// Limits of clients, replicas and subscribers.
        output_limits: [OutputLimit; 3] as OutputLimits = ("client-output-buffer-limit", Live, Syntax::Words(output_limits), "normal 0 0 0 slave 268435456 67108864 60 pubsub 33554432 8388608 60", "Limits on unread replies, for each class of clients: a client above the first size is closed at once, one that is above the second for so many seconds as well; 0: no limit.").lines(output_limit_lines);
        /// Negative: percent of `maxmemory_bytes`.
        client_memory_max: i64 = ("maxmemory-clients", Live, Syntax::Integer { min: 0, max: i64::MAX, unit: Unit::MemoryOrPercent, unsigned: true }, "0", "Limit on the memory of all clients together; above it, those that use most are closed. A percentage is one of maxmemory; 0: no limit.");
        bandwidth_limit: u64 = ("bandwidth-limit", Live, memory(0), "0", "Bytes per second that all clients together send and receive, replicas excepted; above it they wait. 0: no limit.");
        _ = ("max-new-connections-per-cycle", Inert, unsigned(1, 1000), "10", "Connections accepted in one turn: here, 100 of each listener.");
        _ = ("max-new-tls-connections-per-cycle", Inert, unsigned(1, 1000), "1", "The same for TLS.");
        _ = ("bind-source-addr", Inert, TEXT, "", "Address from which a replica calls its primary.");
        _ = ("socket-mark-id", InertFixed, unsigned(0, u32::MAX as i64), "0", "Mark of listening sockets, for packet filters.").unbuilt("marking of sockets", zero);
        _ = ("mptcp", InertFixed, SWITCH, "no", "Listen by Multipath TCP.").unbuilt("Multipath TCP", no);
        _ = ("rdma-port", Inert, PORT, "0", "Port for RDMA; 0: none.").unbuilt("RDMA", zero);
        _ = ("rdma-bind", Inert, TEXT, "", "Addresses for RDMA.").unbuilt("RDMA", empty);
        _ = ("rdma-rx-size", InertFixed, int(64 << 10, 16 << 20), "1048576", "Receive buffer of an RDMA connection in bytes.");
        _ = ("rdma-completion-vector", InertFixed, int(-1, 1024), "-1", "Completion vector of RDMA; -1: a random one.");
    }

    /// Threads.
    THREADS = {
        threads: usize = ("threads", Start, int(0, 256), "0", "Worker threads; 0: one for every CPU that the process may use.");
        event_coalescing_us: u64 = ("event-coalescing-us", Live, int(0, 1000), "50", "Microseconds for which a busy worker with many clients sleeps before it polls its sockets again, so that requests arrive together; twice as long beside other workers, up to three times (or 300, if it is busy most of the time) where waking up costs much CPU time, as on many virtual machines; 0: off.");
        balance_clients: bool = ("balance-clients", Live, SWITCH, "yes", "Move clients between workers: one worker serves all while it can, and an overloaded worker gives some away.");
        server_cpulist: Option<String> = ("server-cpulist", Start, TEXT, "", "CPUs on which the workers run, as in 0-3,8.").alias("server_cpulist");
        _ = ("io-threads", InertFixed, int(1, 128), "1", "Threads that help the one that runs commands: here every worker does both, see threads.");
        _ = ("prefetch-batch-max-size", Inert, int(0, 128), "16", "Commands whose keys are fetched ahead together: here each group of clients decides.");
        _ = ("bio-cpulist", InertFixed, TEXT, "", "CPUs of background threads.").alias("bio_cpulist");
        _ = ("aof-rewrite-cpulist", InertFixed, TEXT, "", "CPUs of the process that rewrites the append-only file.").alias("aof_rewrite_cpulist");
        _ = ("bgsave-cpulist", InertFixed, TEXT, "", "CPUs of the process that saves.").alias("bgsave_cpulist");
        hz: u32 = ("hz", Live, int(0, INT_MAX), "10", "Frequency of background work of each worker, in runs per second.").within(1, 500);
        _ = ("dynamic-hz", Inert, SWITCH, "yes", "Raise hz with the number of clients: here background work does not depend on it.");
    }

    /// Databases.
    DATABASES = {
        databases: u32 = ("databases", Start, int(1, DATABASES_MAX), "16", "Number of databases.");
    }

    /// Dangerous commands.
    PERMISSIONS = {
        enable_protected_configs: Permission = ("enable-protected-configs", Start, Syntax::Choice(Permission::NAMES), "no", "Allow CONFIG SET of dir and dbfilename; local: to clients on this machine.");
        enable_debug_command: Permission = ("enable-debug-command", Start, Syntax::Choice(Permission::NAMES), "no", "Allow DEBUG; local: to clients on this machine.");
        _ = ("enable-module-command", InertFixed, Syntax::Choice(Permission::NAMES), "no", "Who may call MODULE: there are no modules.");
    }

    /// Passwords and users.
    SECURITY = {
        /// Password of the default user.
        requirepass: Option<Vec<u8>> = ("requirepass", Live, Syntax::Bytes, "", "Password of the default user; empty: none.").secret().then(Settings::apply_requirepass);
        aclfile: Option<String> = ("aclfile", Start, TEXT, "", "File that defines the users, for ACL LOAD and ACL SAVE; empty: none.");
        acl_open_channels: bool as OpenChannels = ("acl-pubsub-default", Live, Syntax::Choice(OpenChannels::NAMES), "resetchannels", "Pub/Sub channels of a new user: all or none.");
    }

    /// The search for keys to evict.
    EVICTION = {
        maxmemory_samples: u32 = ("maxmemory-samples", Live, int(1, 64), "5", "Keys sampled to find one to evict.");
    }

    /// The search for expired keys, and the release of memory.
    EXPIRY = {
        active_expire_effort: u32 = ("active-expire-effort", Live, int(1, 10), "1", "Effort of the search for expired keys; more takes more CPU time.");
        _ = ("lazyfree-lazy-eviction", Inert, SWITCH, "no", "Free evicted values in the background: large ones always are.");
        _ = ("lazyfree-lazy-expire", Inert, SWITCH, "no", "Free expired values in the background: large ones always are.");
        _ = ("lazyfree-lazy-server-del", Inert, SWITCH, "no", "Free overwritten values in the background: large ones always are.");
        _ = ("lazyfree-lazy-user-del", Inert, SWITCH, "no", "Make DEL behave as UNLINK: large values are always freed in the background.");
        _ = ("lazyfree-lazy-user-flush", Inert, SWITCH, "no", "Free flushed databases in the background: they always are.");
        _ = ("activedefrag", Inert, SWITCH, "no", "Move values together when memory lies scattered: that is always done.");
        _ = ("active-defrag-cycle-min", Inert, int(1, 99), "1", "Least share of the CPU for that.");
        _ = ("active-defrag-cycle-max", Inert, int(1, 99), "25", "Greatest share of the CPU for that.");
        _ = ("active-defrag-cycle-us", Inert, int(0, 100_000), "500", "Length of a slice of that work in microseconds: here 1000.");
        _ = ("active-defrag-ignore-bytes", Inert, size(1), "104857600", "Waste that is put up with.");
        _ = ("active-defrag-max-scan-fields", Inert, int(1, i64::MAX), "1000", "Size of a collection that is walked in one go.");
        _ = ("active-defrag-threshold-lower", Inert, int(0, 1000), "10", "Percentage of waste at which the work begins.");
        _ = ("active-defrag-threshold-upper", Inert, int(0, 1000), "100", "Percentage of waste at which it works hardest.");
        _ = ("hash-seed", InertFixed, TEXT, "", "Seed of the hash function, for one order of SCAN: here it is always drawn.");
        _ = ("import-mode", Inert, SWITCH, "no", "Let keys be imported: nothing expires and nothing is evicted.").unbuilt("import mode", no);
        _ = ("activerehashing", Inert, SWITCH, "yes", "Grow tables in quiet moments: here they grow as they fill.");
        _ = ("jemalloc-bg-thread", Inert, SWITCH, "yes", "Let jemalloc clean up by itself: it is not used.");
    }

    /// Percentiles of times of commands.
    PERCENTILES = {
        latency_percentiles: Vec<String> = ("latency-tracking-info-percentiles", Live, Syntax::Words(percentiles), "50 99 99.9", "Percentiles that INFO latencystats shows.").always_written();
    }

    /// Snapshots: times.
    SNAPSHOTS = {
        save_points: Vec<(u64, u64)> as SavePoints = ("save", Live, Syntax::Words(save_points), "3600 1 300 100 60 10000", "When to save: seconds and changes, in pairs; empty: never.").adds_up();
        db_filename: String = ("dbfilename", Live, Syntax::Checked(file_name), "dump.rdb", "Name of the snapshot.").protected();
    }

    /// Snapshots: contents.
    SNAPSHOT_FILES = {
        checksums: bool = ("rdbchecksum", Start, SWITCH, "yes", "Write a checksum at the end of a snapshot, and check it.");
        rdb_format: Option<FileVersion> as RdbFormat = ("rdb-format-version", Live, Syntax::Choice(RdbFormat::NAMES), "auto", "Version of the snapshot's format; auto: the lowest that holds the data, which the most servers read.");
        _ = ("rdb-version-check", Inert, Syntax::Choice(&["strict", "relaxed"]), "strict", "Refuse snapshots of later versions: RESTORE always refuses such values.");
        _ = ("rdb-del-sync-files", Inert, SWITCH, "no", "Remove snapshots that were made for replicas.");
        saves_in_steps: bool = ("rdb-save-incremental-fsync", Live, SWITCH, "yes", "Flush the snapshot in steps.");
        key_save_delay_us: u64 = ("rdb-key-save-delay", Live, SECONDS, "0", "Microseconds that each key of a snapshot takes at least: for tests.");
        key_load_delay_us: u64 = ("key-load-delay", Live, SECONDS, "0", "Microseconds that each key that is loaded, or command, takes at least: for tests.");
        stop_writes_on_save_error: bool = ("stop-writes-on-bgsave-error", Live, SWITCH, "yes", "Refuse writes while saving fails.");
        _ = ("sanitize-dump-payload", Inert, Syntax::Choice(&["no", "yes", "clients"]), "no", "Check serialised values deeply.");
    }

    /// The append-only file.
    APPEND_ONLY_FILE = {
        appends: bool = ("appendonly", Live, SWITCH, "no", "Log every write to a file.").rests_while_loading();
        append_filename: String = ("appendfilename", Start, Syntax::Checked(append_filename), "appendonly.aof", "Beginning of the names of the append-only files.");
        append_dir_name: String = ("appenddirname", Start, Syntax::Checked(append_dir_name), "appendonlydir", "Folder of the append-only files.");
        append_sync: Policy as AppendSync = ("appendfsync", Live, Syntax::Choice(AppendSync::NAMES), "everysec", "When the append-only file is flushed.");
        _ = ("no-appendfsync-on-rewrite", Inert, SWITCH, "no", "Do not flush it while it is rewritten.");
        rewrite_percentage: u64 = ("auto-aof-rewrite-percentage", Live, SECONDS, "100", "Growth at which it is rewritten; 0: never.");
        rewrite_bytes_min: u64 = ("auto-aof-rewrite-min-size", Live, memory(0), "67108864", "Size below which it is not.");
        loads_truncated: bool = ("aof-load-truncated", Live, SWITCH, "yes", "Load a file whose end is missing.");
        corrupt_tail_bytes_max: u64 = ("aof-load-corrupt-tail-max-size", Live, memory(0), "0", "Load a file with a damaged end of at most this size; 0: never.");
        keeps_append_history: bool = ("aof-disable-auto-gc", Live, SWITCH, "no", "Keep the files that a rewrite has replaced.");
        base_is_snapshot: bool = ("aof-use-rdb-preamble", Live, SWITCH, "yes", "Begin a rewritten file with a snapshot, not with commands.");
        append_timestamps: bool = ("aof-timestamp-enabled", Live, SWITCH, "no", "Write times into the file.");
        _ = ("aof-rewrite-incremental-fsync", Inert, SWITCH, "yes", "Flush a rewritten file in steps.");
    }

    /// Replication.
    REPLICATION = {
        primary: Option<(String, u16)> as PrimaryAddress = ("replicaof", Start, Syntax::Words(primary), "", "The primary: host and port.").alias("slaveof").needs_words();
        primary_password: Option<Vec<u8>> = ("masterauth", Live, Syntax::Bytes, "", "Password for the primary.").alias("primaryauth").secret();
        primary_user: Option<String> = ("masteruser", Live, TEXT, "", "User at the primary.").alias("primaryuser").secret();
        serves_stale_data: bool = ("replica-serve-stale-data", Live, SWITCH, "yes", "Answer reads while the primary is away.").alias("slave-serve-stale-data");
        replica_read_only: bool = ("replica-read-only", Live, SWITCH, "yes", "Refuse writes on a replica.").alias("slave-read-only");
        replica_ignores_maxmemory: bool = ("replica-ignore-maxmemory", Live, SWITCH, "yes", "Let the primary alone evict.").alias("slave-ignore-maxmemory");
        _ = ("replica-lazy-flush", Inert, SWITCH, "no", "Free old data in the background before a full load.").alias("slave-lazy-flush");
        replica_priority: u64 = ("replica-priority", Live, SECONDS, "100", "Who is promoted first.").alias("slave-priority");
        replica_announced: bool = ("replica-announced", Live, SWITCH, "yes", "Be named to those who ask for replicas.");
        replica_announce_ip: Option<String> = ("replica-announce-ip", Live, TEXT, "", "Address that the primary tells others.").alias("slave-announce-ip");
        replica_announce_port: Option<u16> as Port = ("replica-announce-port", Live, PORT, "0", "Port that the primary tells others.").alias("slave-announce-port");
        _ = ("replica-ignore-disk-write-errors", Inert, SWITCH, "no", "Go on when the disk fails.");
        _ = ("replica-full-sync-buffer-limit", Inert, memory(0), "0", "Bytes kept while a replica loads a snapshot.");
        repl_diskless: bool = ("repl-diskless-sync", Live, SWITCH, "yes", "Send snapshots to replicas without a file.");
        repl_delay_s: u64 = ("repl-diskless-sync-delay", Live, SECONDS, "5", "Seconds to wait for more replicas.");
        repl_enough: u64 = ("repl-diskless-sync-max-replicas", Live, SECONDS, "0", "Replicas at which not to wait any longer.");
        _ = ("repl-diskless-load", Inert, Syntax::Choice(&["disabled", "on-empty-db", "swapdb"]), "disabled", "Load a snapshot without a file.");
        _ = ("dual-channel-replication-enabled", Inert, SWITCH, "no", "Send a snapshot and what changes meanwhile over two connections.");
        _ = ("repl-mptcp", InertFixed, SWITCH, "no", "Multipath TCP towards the primary.");
        repl_ping_s: u64 = ("repl-ping-replica-period", Live, int(1, INT_MAX), "10", "Seconds between signs of life.").alias("repl-ping-slave-period");
        repl_timeout_s: u64 = ("repl-timeout", Live, int(1, INT_MAX), "60", "Seconds after which the other side is given up.");
        _ = ("repl-disable-tcp-nodelay", Inert, SWITCH, "no", "Send fewer, larger packets to replicas.");
        repl_bandwidth_limit: u64 = ("repl-bandwidth-limit", Live, memory(0), "0", "Bytes per second that each replica is sent, snapshots included; 0: no limit.");
        backlog_bytes: u64 = ("repl-backlog-size", Live, memory(1), "1048576", "Bytes kept for replicas that come back; less than 16kb means 16kb.").within(16 << 10, i64::MAX);
        backlog_spool_bytes: u64 = ("repl-backlog-spool", Live, memory(0), "0", "Bytes of the backlog, and of what replicas have yet to be sent, that may be in a file beyond those in memory; 0: none.");
        backlog_ttl_s: u64 = ("repl-backlog-ttl", Live, int(0, i64::MAX), "3600", "Seconds that they are kept without a replica.");
        min_replicas: u64 = ("min-replicas-to-write", Live, SECONDS, "0", "Refuse writes with fewer replicas.").alias("min-slaves-to-write");
        min_replicas_lag_s: u64 = ("min-replicas-max-lag", Live, SECONDS, "10", "Seconds after which a replica does not count.").alias("min-slaves-max-lag");
        repl_format: Option<FileVersion> as RdbFormat = ("repl-format-version", Live, Syntax::Choice(RdbFormat::NAMES), "auto", "Version of the format of snapshots for replicas; auto: what the handshake of each tells.");
        refused_effects: RefusedEffects as OnRefusedEffect = ("propagation-error-behavior", Live, Syntax::Choice(OnRefusedEffect::NAMES), "ignore", "What follows when a command of the primary, or of the append-only file, fails: ignore logs it, panic ends the process, panic-on-replicas does so on a replica that is read-only.");
    }

    /// Cluster mode.
    CLUSTER = {
        _ = ("cluster-enabled", InertFixed, SWITCH, "no", "Be a node of a cluster.").unbuilt("cluster mode", no);
        _ = ("cluster-config-file", InertFixed, TEXT, "nodes.conf", "File in which the node keeps its state.");
        _ = ("cluster-node-timeout", Inert, int(0, i64::MAX), "15000", "Milliseconds after which a silent node counts as failed.");
        _ = ("cluster-port", InertFixed, PORT, "0", "Port of the cluster bus.");
        _ = ("cluster-migration-barrier", Inert, SECONDS, "1", "Replicas that a primary keeps.");
        _ = ("cluster-replica-validity-factor", Inert, SECONDS, "10", "How stale a replica may be to take over.").alias("cluster-slave-validity-factor");
        _ = ("cluster-replica-no-failover", Inert, SWITCH, "no", "Never take over.").alias("cluster-slave-no-failover");
        _ = ("cluster-allow-replica-migration", Inert, SWITCH, "yes", "Let replicas change their primary.");
        _ = ("cluster-require-full-coverage", Inert, SWITCH, "yes", "Serve nothing while a slot has no node.");
        _ = ("cluster-allow-reads-when-down", Inert, SWITCH, "no", "Serve reads while the cluster is down.");
        _ = ("cluster-allow-pubsubshard-when-down", Inert, SWITCH, "yes", "Serve shard channels while the cluster is down.");
        _ = ("cluster-link-sendbuf-limit", Inert, size(0), "0", "Bytes that may wait on the cluster bus.");
        _ = ("cluster-announce-ip", Inert, TEXT, "", "Address that the node tells others.");
        _ = ("cluster-announce-port", Inert, PORT, "0", "Port that the node tells others.");
        _ = ("cluster-announce-tls-port", Inert, PORT, "0", "TLS port that the node tells others.");
        _ = ("cluster-announce-bus-port", Inert, PORT, "0", "Bus port that the node tells others.");
        _ = ("cluster-announce-hostname", Inert, Syntax::Checked(hostname), "", "Host name that the node tells others.");
        _ = ("cluster-announce-human-nodename", Inert, Syntax::Checked(node_name), "", "Name of the node in logs.");
        _ = ("cluster-announce-client-ipv4", Inert, Syntax::Checked(ipv4), "", "IPv4 address that clients are told.");
        _ = ("cluster-announce-client-ipv6", Inert, Syntax::Checked(ipv6), "", "IPv6 address that clients are told.");
        _ = ("cluster-announce-client-port", Inert, PORT, "0", "Port that clients are told.");
        _ = ("cluster-announce-client-tls-port", Inert, PORT, "0", "TLS port that clients are told.");
        _ = ("cluster-blacklist-ttl", Inert, int(i64::MIN, i64::MAX), "60", "Seconds for which a node that was forgotten stays so.");
        _ = ("cluster-config-save-behavior", Inert, Syntax::Choice(&["sync", "best-effort"]), "sync", "What to do when the node's state cannot be saved.");
        _ = ("cluster-databases", InertFixed, int(1, INT_MAX), "1", "Number of databases of a node.");
        _ = ("cluster-manual-failover-timeout", Inert, int(1, INT_MAX), "5000", "Milliseconds that a failover on request may take.");
        _ = ("cluster-slot-migration-log-max-len", Inert, int(0, i64::MAX), "1000", "Moves of slots in their log.");
        _ = ("slot-migration-max-failover-repl-bytes", Inert, memory(-1), "0", "Bytes not yet sent at which a move of slots is completed; -1: any.");
        _ = ("cluster-preferred-endpoint-type", Inert, Syntax::Choice(&["ip", "hostname", "unknown-endpoint"]), "ip", "What redirections name.");
        _ = ("cluster-compatibility-sample-ratio", Inert, int(0, 100), "0", "Percentage of commands that are checked for what a cluster refuses.");
        _ = ("cluster-slot-stats-enabled", Inert, SWITCH, "no", "Count by slot.");
    }
}

settings! {
    /// Settings of the process itself, not of its service to clients.
    #[derive(Clone, Debug)]
    pub struct ServiceSettings {}

    /// The process.
    PROCESS = {
        daemonize: bool = ("daemonize", Start, SWITCH, "no", "Run in the background, unless supervised.");
        supervised: Supervision = ("supervised", Start, Syntax::Choice(Supervision::NAMES), "no", "Supervisor to notify when the server is ready; auto: by the environment.");
        pidfile: Option<String> = ("pidfile", Start, TEXT, "", "File to which the process id is written; empty: none, in the background /var/run/redis.pid.");
        /// See `log.rs`.
        log_level: u8 = ("loglevel", Live, Syntax::Choice(&["debug", "verbose", "notice", "warning", "nothing"]), "notice", "Minimum log level.");
        logfile: Option<String> = ("logfile", Start, TEXT, "", "Log file; empty: standard output.");
        log_format: LogFormat = ("log-format", Live, Syntax::Choice(LogFormat::NAMES), "text", "Format of log lines: as in Redis (text, or legacy as in Valkey), JSON objects, or key=value.");
        log_timestamp: LogTimestamp = ("log-timestamp-format", Live, Syntax::Choice(LogTimestamp::NAMES), "legacy", "Format of times in the log: legacy is Redis's in text and ISO 8601 in the other formats; milliseconds are those since 1970.");
        syslog: bool = ("syslog-enabled", Start, SWITCH, "no", "Log to syslog as well.");
        syslog_ident: String = ("syslog-ident", Start, TEXT, "redis", "Name in syslog.");
        /// Facility: 0 is `user`, `n` is `local(n-1)`.
        syslog_facility: u8 = ("syslog-facility", Start, Syntax::Choice(&["user", "local0", "local1", "local2", "local3", "local4", "local5", "local6", "local7"]), "local0", "Facility in syslog.");
        _ = ("crash-log-enabled", Inert, SWITCH, "yes", "Write a report when the process crashes.");
        _ = ("crash-memcheck-enabled", Inert, SWITCH, "yes", "Test the memory after a crash.");
        logo: bool = ("always-show-logo", Start, SWITCH, "no", "Log mode, port and process id at the start, as in Redis's logo.");
        _ = ("hide-user-data-from-log", Inert, SWITCH, "no", "Keep keys and values out of the log: they never go there.");
        title: bool = ("set-proc-title", Start, SWITCH, "yes", "Set the process title, as far as the command line left room.");
        title_template: String = ("proc-title-template", Live, Syntax::Checked(title_template), "{title} {listen-addr} {server-mode}", "Template of the process title; it may also contain {port}, {tls-port}, {unixsocket} and {config-file}.");
        _ = ("locale-collate", Inert, Syntax::Checked(locale), "", "Locale in which strings are compared.");
        _ = ("ignore-warnings", Inert, TEXT, "", "Warnings about the system that do not stop the start.");
        _ = ("disable-thp", InertFixed, SWITCH, "yes", "Switch huge pages off for the process: here entries live in huge pages on purpose.");
        oom_score: OomScore = ("oom-score-adj", Live, Syntax::Choice(OomScore::NAMES), "no", "Set the score by which the kernel's OOM killer chooses processes; relative (or yes) adds to the score at the start.");
        oom_scores: [i32; 3] as OomScores = ("oom-score-adj-values", Live, Syntax::Words(oom_scores), "0 200 800", "OOM scores of a primary, a replica and a background process; the first is used.");
        _ = ("shutdown-timeout", Inert, SECONDS, "10", "Seconds that a shutdown waits for replicas.");
        _ = ("shutdown-on-sigint", Inert, ENDING, "default", "How SIGINT ends the server.");
        _ = ("shutdown-on-sigterm", Inert, ENDING, "default", "How SIGTERM ends the server.");
        dir: Option<PathBuf> as WorkingDir = ("dir", Live, TEXT, "", "Working directory; by default that of the process.").protected().rests_while_loading().always_written();
    }
}

settings! {
    /// TLS settings. Paths are kept as given; an empty one is none.
    #[derive(Clone, Debug)]
    pub struct TlsSettings {}

    /// TLS.
    TLS = {
        /// Port 0: chosen by the system.
        port: Option<u16> as Port = ("tls-port", Live, PORT, "0", "TLS port, beside the plain port or, with --port 0, instead of it; 0: none.");
        _ = ("tls-cluster", Inert, SWITCH, "no", "TLS on the cluster bus.");
        replication: bool = ("tls-replication", Live, SWITCH, "no", "TLS towards the primary.");
        auth_clients: ClientAuth as ClientCertificates = ("tls-auth-clients", Live, Syntax::Choice(ClientCertificates::NAMES), "yes", "Require a client certificate of a trusted authority; optional: verify one if the client presents it.");
        prefer_server_ciphers: bool = ("tls-prefer-server-ciphers", Live, SWITCH, "no", "Choose the cipher in the server's order instead of the client's.");
        session_caching: bool = ("tls-session-caching", Live, SWITCH, "yes", "Let clients resume TLS sessions.");
        session_cache_size: usize = ("tls-session-cache-size", Live, SECONDS, "20480", "Maximum number of TLS sessions kept for resumption; 0: 1048576.");
        session_cache_timeout_s: u64 = ("tls-session-cache-timeout", Live, SECONDS, "300", "Seconds for which a TLS session can be resumed.");
        cert_file: Option<String> = ("tls-cert-file", Live, TEXT, "", "Server certificate and its chain, in PEM format; setting it, even to the same path, reads all TLS files again, as SIGHUP does.");
        key_file: Option<String> = ("tls-key-file", Live, TEXT, "", "Private key of tls-cert-file, not encrypted.");
        key_file_pass: Option<String> = ("tls-key-file-pass", Live, TEXT, "", "Password of tls-key-file; encrypted keys are refused.").secret();
        client_cert_file: Option<String> = ("tls-client-cert-file", Live, TEXT, "", "Certificate for outgoing connections: read and checked.");
        client_key_file: Option<String> = ("tls-client-key-file", Live, TEXT, "", "Private key of tls-client-cert-file.");
        client_key_file_pass: Option<String> = ("tls-client-key-file-pass", Live, TEXT, "", "Password of tls-client-key-file; encrypted keys are refused.").secret();
        auto_reload_interval_s: u64 = ("tls-auto-reload-interval", Live, SECONDS, "0", "Seconds between checks whether files of certificates and keys have changed, which are then read again; 0: never.");
        _ = ("tls-auth-clients-user", Inert, Syntax::Choice(&["CN", "URI", "off"]), "off", "Field of a client's certificate that names its user.").unbuilt("authentication by certificates", |t| t == b"off");
        _ = ("tls-dh-params-file", Inert, TEXT, "", "Diffie-Hellman parameters: keys are exchanged over elliptic curves only.");
        ca_cert_file: Option<String> = ("tls-ca-cert-file", Live, TEXT, "", "Certificates of trusted authorities.");
        ca_cert_dir: Option<String> = ("tls-ca-cert-dir", Live, TEXT, "", "Folder of files with certificates of trusted authorities.");
        protocols: String = ("tls-protocols", Live, TEXT, "", "TLS versions, as in TLSv1.2 TLSv1.3; empty: both.");
        ciphers: String = ("tls-ciphers", Live, TEXT, "", "Ciphers of TLS 1.2, as an OpenSSL cipher list; empty: all that are supported.");
        ciphersuites: String = ("tls-ciphersuites", Live, TEXT, "", "Cipher suites of TLS 1.3 by name, separated by colons; empty: all that are supported.");
    }
}

/// Directives of a file that are no parameters, and the part that each needs.
pub const UNBUILT_DIRECTIVES: &[(&str, &str)] =
    &[("loadmodule", "modules"), ("sentinel", "Sentinel")];

/// Directives that Redis has retired and still accepts.
pub const RETIRED_DIRECTIVES: &[&str] = &[
    "list-max-ziplist-entries",
    "list-max-ziplist-value",
    "lua-replicate-commands",
    "io-threads-do-reads",
];
