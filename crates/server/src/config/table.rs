//! The rows, by topic. Names, defaults and limits are those of Redis 8.2.3; `threads`, `balance-clients`,
//! `event-coalescing-us`, `busy-reply-scope`, `log-format`, `metrics-port`, `metrics-bind`, `metrics-hosts`, `rdb-format-version`,
//! `repl-format-version`, `bandwidth-limit` and `repl-bandwidth-limit` are ours. Valkey 9.1.2's additional parameters are here
//! too.
//!
//! Settings of commands are rows of `redline_engine::settings`; [`SECTIONS`] has the places of its groups among these. Must not
//! know: how a row is read from a file or shown to a client.

use std::path::PathBuf;

use redline_engine::{Names, settings as engine};
use redline_net::{
    log_line::{Format, Timestamp},
    tls::ClientAuth,
};
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
        addresses, append_dir_name, append_filename, empty, file_name, host_names, hostname, ipv4,
        ipv6, locale, no, node_name, oom_scores, output_limit_lines, output_limits, percentiles,
        primary, save_points, title_template, zero,
    },
    codecs::{
        AppendSync, ClientCertificates, DisklessLoading, Endings, LogFormat, LogTimestamp,
        OnRefusedEffect, OomScores, OpenChannels, OutputLimits, PrimaryAddress, RdbFormat,
        SavePoints, WorkingDir,
    },
};
use crate::{
    ending::Manner,
    service::{OomScore, Supervision},
    settings::{
        ClusterAcks, ClusterAlone, DisklessLoad, EndpointType, OutputLimit, Permission,
        RefusedEffects, UserLine,
    },
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
        groups: &[
            Engine(engine::DATA_TYPES),
            Engine(engine::FILTERS),
            Engine(engine::TIME_SERIES),
        ],
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
        bind: Vec<String> = ("bind", Live, Syntax::Words(addresses), "* -::*", "Addresses to listen on: * is every IPv4 address, ::* every IPv6 address; one with a - before it is left out if the machine does not have it.");
        /// Port 0: chosen by the system.
        metrics_port: Option<u16> as Port = ("metrics-port", Start, PORT, "0", "HTTP port of the metrics for Prometheus (/metrics), health checks (/livez, /readyz) and the status page (/); 0: none.");
        metrics_bind: Vec<String> = ("metrics-bind", Start, Syntax::Words(addresses), "127.0.0.1 -::1", "Addresses of the metrics port, as in bind; metrics can be read without a password.");
        metrics_hosts: Vec<String> = ("metrics-hosts", Start, Syntax::Words(host_names), "", "Names under which browsers may open the status page, beside addresses and localhost.");
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
        output_limits: [OutputLimit; 3] as OutputLimits = ("client-output-buffer-limit", Live, Syntax::Words(output_limits), "normal 0 0 0 slave 268435456 67108864 60 pubsub 33554432 8388608 60", "Limits on unread replies, for each class of clients: a client is closed as soon as it is above the first size, or when it has been above the second for so many seconds; 0: no limit.").lines(output_limit_lines);
        /// Negative: percent of `maxmemory_bytes`.
        client_memory_max: i64 = ("maxmemory-clients", Live, Syntax::Integer { min: 0, max: i64::MAX, unit: Unit::MemoryOrPercent, unsigned: true }, "0", "Limit on the memory of all clients together; above it, the clients that use most are closed. A percentage is a share of maxmemory; 0: no limit.");
        bandwidth_limit: u64 = ("bandwidth-limit", Live, memory(0), "0", "Limit on the bytes per second that all clients but replicas send and receive together; above it, they wait. 0: no limit.");
        _ = ("max-new-connections-per-cycle", Inert, unsigned(1, 1000), "10", "Connections accepted in one turn: here, 100 of each listener.");
        _ = ("max-new-tls-connections-per-cycle", Inert, unsigned(1, 1000), "1", "The same for TLS: here, 100 of each listener.");
        _ = ("bind-source-addr", Inert, TEXT, "", "Address from which a replica calls its primary: the system chooses it.");
        _ = ("socket-mark-id", InertFixed, unsigned(0, u32::MAX as i64), "0", "Mark of listening sockets, for packet filters: none is set.").unbuilt("marking of sockets", zero);
        _ = ("mptcp", InertFixed, SWITCH, "no", "Listen by Multipath TCP: only TCP is there.").unbuilt("Multipath TCP", no);
        _ = ("rdma-port", Inert, PORT, "0", "Port for RDMA: only TCP, TLS and unix sockets are there.").unbuilt("RDMA", zero);
        _ = ("rdma-bind", Inert, TEXT, "", "Addresses for RDMA: only TCP, TLS and unix sockets are there.").unbuilt("RDMA", empty);
        _ = ("rdma-rx-size", InertFixed, int(64 << 10, 16 << 20), "1048576", "Receive buffer of an RDMA connection in bytes: there is no RDMA.");
        _ = ("rdma-completion-vector", InertFixed, int(-1, 1024), "-1", "Completion vector of RDMA: there is no RDMA.");
    }

    /// Threads.
    THREADS = {
        threads: usize = ("threads", Start, int(0, 256), "0", "Worker threads; 0: one for every CPU that the process may use.");
        event_coalescing_us: u64 = ("event-coalescing-us", Live, int(0, 1000), "50", "Microseconds for which a busy worker waits for more requests before it serves them together: less CPU time per request, for a little latency. 0: off.");
        balance_clients: bool = ("balance-clients", Live, SWITCH, "yes", "Move clients between workers: one worker serves all while it can, and an overloaded worker gives some away.");
        server_cpulist: Option<String> = ("server-cpulist", Start, TEXT, "", "CPUs on which the workers run, as in 0-3,8.").alias("server_cpulist");
        _ = ("io-threads", InertFixed, int(1, 128), "1", "Threads that help the one that runs commands: here every worker does both, see threads.");
        _ = ("prefetch-batch-max-size", Inert, int(0, 128), "16", "Commands whose keys are fetched ahead together: here each group of clients decides.");
        _ = ("bio-cpulist", InertFixed, TEXT, "", "CPUs of background threads: they run where the process may.").alias("bio_cpulist");
        _ = ("aof-rewrite-cpulist", InertFixed, TEXT, "", "CPUs of the process that rewrites the append-only file: a thread does it, where the process may run.").alias("aof_rewrite_cpulist");
        _ = ("bgsave-cpulist", InertFixed, TEXT, "", "CPUs of the process that saves: a thread does it, where the process may run.").alias("bgsave_cpulist");
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
        _ = ("active-defrag-cycle-min", Inert, int(1, 99), "1", "Least share of the CPU for moving values together: here in slices of 1 ms.");
        _ = ("active-defrag-cycle-max", Inert, int(1, 99), "25", "Greatest share of the CPU for moving values together: here in slices of 1 ms.");
        _ = ("active-defrag-cycle-us", Inert, int(0, 100_000), "500", "Length of a slice of that work in microseconds: here 1000.");
        _ = ("active-defrag-ignore-bytes", Inert, size(1), "104857600", "Waste below which values are not moved together: here the share of waste decides.");
        _ = ("active-defrag-max-scan-fields", Inert, int(1, i64::MAX), "1000", "Size of a collection that is walked in one go: collections are not walked.");
        _ = ("active-defrag-threshold-lower", Inert, int(0, 1000), "10", "Percentage of waste at which values are moved together: here the server decides.");
        _ = ("active-defrag-threshold-upper", Inert, int(0, 1000), "100", "Percentage of waste at which that works hardest: here the server decides.");
        _ = ("hash-seed", InertFixed, TEXT, "", "Seed of the hash function, for one order of SCAN: here it is always drawn.");
        _ = ("import-mode", Inert, SWITCH, "no", "Let keys be imported, while nothing expires and nothing is evicted: not there.").unbuilt("import mode", no);
        _ = ("activerehashing", Inert, SWITCH, "yes", "Grow tables in quiet moments: here they grow as they fill.");
        _ = ("jemalloc-bg-thread", Inert, SWITCH, "yes", "Let jemalloc clean up by itself: it is not used.");
    }

    /// Percentiles of times of commands.
    PERCENTILES = {
        latency_percentiles: Vec<String> = ("latency-tracking-info-percentiles", Live, Syntax::Words(percentiles), "50 99 99.9", "Percentiles that INFO latencystats shows.").always_written();
    }

    /// Snapshots: times.
    SNAPSHOTS = {
        save_points: Vec<(u64, u64)> as SavePoints = ("save", Live, Syntax::Words(save_points), "3600 1 300 100 60 10000", "Save after so many seconds with at least so many changes; pairs of both numbers, empty: never.").adds_up();
        db_filename: String = ("dbfilename", Live, Syntax::Checked(file_name), "dump.rdb", "File name of the snapshot, in dir.").protected();
    }

    /// Snapshots: contents.
    SNAPSHOT_FILES = {
        checksums: bool = ("rdbchecksum", Start, SWITCH, "yes", "Write a checksum at the end of a snapshot, and check it.");
        rdb_format: Option<FileVersion> as RdbFormat = ("rdb-format-version", Live, Syntax::Choice(RdbFormat::NAMES), "auto", "Version of the snapshot's format; auto: the lowest that holds the data, which the most servers read.");
        _ = ("rdb-version-check", Inert, Syntax::Choice(&["strict", "relaxed"]), "strict", "Refuse snapshots of later versions: RESTORE always refuses such values.");
        _ = ("rdb-del-sync-files", Inert, SWITCH, "no", "Remove snapshots that were made for replicas: they stay.");
        saves_in_steps: bool = ("rdb-save-incremental-fsync", Live, SWITCH, "yes", "Flush a snapshot to the disk in steps while it is written; no: all at its end.");
        key_save_delay_us: u64 = ("rdb-key-save-delay", Live, SECONDS, "0", "For tests: microseconds for which the saving of a key waits.");
        key_load_delay_us: u64 = ("key-load-delay", Live, SECONDS, "0", "For tests: microseconds for which the loading of a key or a command waits.");
        stop_writes_on_save_error: bool = ("stop-writes-on-bgsave-error", Live, SWITCH, "yes", "Refuse writes after a snapshot has failed, until one succeeds.");
        skips_unknown_modules: bool = ("skip-unknown-module-values", Live, SWITCH, "no", "Leave out keys of a snapshot whose values are of modules that are not here; no: such a file is an error.");
        _ = ("sanitize-dump-payload", Inert, Syntax::Choice(&["no", "yes", "clients"]), "no", "Check serialised values deeply: always done.");
    }

    /// The append-only file.
    APPEND_ONLY_FILE = {
        appends: bool = ("appendonly", Live, SWITCH, "no", "Write every change to the append-only file.").rests_while_loading();
        append_filename: String = ("appendfilename", Start, Syntax::Checked(append_filename), "appendonly.aof", "Beginning of the names of the append-only files.");
        append_dir_name: String = ("appenddirname", Start, Syntax::Checked(append_dir_name), "appendonlydir", "Folder of the append-only files, in dir.");
        append_sync: Policy as AppendSync = ("appendfsync", Live, Syntax::Choice(AppendSync::NAMES), "everysec", "When the append-only file is flushed to the disk: once a second, before replies to writes are sent (always), or when the system does it (no).");
        _ = ("no-appendfsync-on-rewrite", Inert, SWITCH, "no", "Do not flush the append-only file while it is rewritten: it is flushed as appendfsync says.");
        rewrite_percentage: u64 = ("auto-aof-rewrite-percentage", Live, SECONDS, "100", "Rewrite the append-only file when it has grown by this percentage since the last rewrite; 0: only on BGREWRITEAOF.");
        rewrite_bytes_min: u64 = ("auto-aof-rewrite-min-size", Live, memory(0), "67108864", "Size below which auto-aof-rewrite-percentage has no effect.");
        loads_truncated: bool = ("aof-load-truncated", Live, SWITCH, "yes", "Load an append-only file whose last command is incomplete, without that command; no: do not start.");
        corrupt_tail_bytes_max: u64 = ("aof-load-corrupt-tail-max-size", Live, memory(0), "0", "Load an append-only file whose end is damaged, without that end, if it has at most this size; 0: do not start.");
        keeps_append_history: bool = ("aof-disable-auto-gc", Live, SWITCH, "no", "Keep append-only files that a rewrite has replaced.");
        base_is_snapshot: bool = ("aof-use-rdb-preamble", Live, SWITCH, "yes", "Rewrite the append-only file in the form of a snapshot; no: as commands.");
        append_timestamps: bool = ("aof-timestamp-enabled", Live, SWITCH, "no", "Write timestamps into the append-only file, for check-aof --truncate-to-timestamp.");
        _ = ("aof-rewrite-incremental-fsync", Inert, SWITCH, "yes", "Flush a rewritten file in steps: see rdb-save-incremental-fsync.");
    }

    /// Replication.
    REPLICATION = {
        primary: Option<(String, u16)> as PrimaryAddress = ("replicaof", Start, Syntax::Words(primary), "", "Host and port of the primary whose replica this server is; empty: it is a primary itself.").alias("slaveof").needs_words();
        primary_password: Option<Vec<u8>> = ("masterauth", Live, Syntax::Bytes, "", "Password with which a replica authenticates to its primary.").alias("primaryauth").secret();
        primary_user: Option<String> = ("masteruser", Live, TEXT, "", "User as which a replica authenticates to its primary; empty: the default user.").alias("primaryuser").secret();
        serves_stale_data: bool = ("replica-serve-stale-data", Live, SWITCH, "yes", "Answer a replica's clients while its link to the primary is down; no: -MASTERDOWN.").alias("slave-serve-stale-data");
        replica_read_only: bool = ("replica-read-only", Live, SWITCH, "yes", "Refuse writes of clients on a replica.").alias("slave-read-only");
        replica_ignores_maxmemory: bool = ("replica-ignore-maxmemory", Live, SWITCH, "yes", "Do not evict on a replica: keys that the primary evicts are deleted on both.").alias("slave-ignore-maxmemory");
        _ = ("replica-lazy-flush", Inert, SWITCH, "no", "Free old data in the background before a full load: large values always are.").alias("slave-lazy-flush");
        replica_priority: u64 = ("replica-priority", Live, SECONDS, "100", "Priority for promotion by Sentinel: the lowest is promoted first; 0: never.").alias("slave-priority");
        replica_announced: bool = ("replica-announced", Live, SWITCH, "yes", "Let Sentinel report this replica to clients.");
        replica_announce_ip: Option<String> = ("replica-announce-ip", Live, TEXT, "", "Address under which the primary reports this replica; empty: the one from which it connects.").alias("slave-announce-ip");
        replica_announce_port: Option<u16> as Port = ("replica-announce-port", Live, PORT, "0", "Port under which the primary reports this replica; 0: the listening port.").alias("slave-announce-port");
        replica_ignores_disk_errors: bool = ("replica-ignore-disk-write-errors", Live, SWITCH, "no", "Go on applying the primary's stream when a replica's files cannot be written; no: the process ends.");
        _ = ("replica-full-sync-buffer-limit", Inert, memory(0), "0", "Bytes that a replica keeps while it loads a snapshot: they wait at the primary.");
        repl_diskless: bool = ("repl-diskless-sync", Live, SWITCH, "yes", "Send a snapshot to replicas while it is made; no: write it to a file, and send that.");
        repl_delay_s: u64 = ("repl-diskless-sync-delay", Live, SECONDS, "5", "Seconds to wait for more replicas before a snapshot is sent to all of them.");
        repl_enough: u64 = ("repl-diskless-sync-max-replicas", Live, SECONDS, "0", "Number of waiting replicas at which the wait of repl-diskless-sync-delay ends; 0: it is never cut short.");
        diskless_load: DisklessLoad as DisklessLoading = ("repl-diskless-load", Live, Syntax::Choice(DisklessLoading::NAMES), "disabled", "Load a snapshot without a file: never, into an empty server, beside the data, or in their place.");
        _ = ("dual-channel-replication-enabled", Inert, SWITCH, "no", "Send a snapshot and what changes meanwhile over two connections: here over one.");
        _ = ("repl-mptcp", InertFixed, SWITCH, "no", "Multipath TCP towards the primary: only TCP is there.");
        repl_ping_s: u64 = ("repl-ping-replica-period", Live, int(1, INT_MAX), "10", "Seconds between the PINGs of a primary to its replicas.").alias("repl-ping-slave-period");
        repl_timeout_s: u64 = ("repl-timeout", Live, int(1, INT_MAX), "60", "Seconds of silence after which a primary or a replica closes the link between them.");
        _ = ("repl-disable-tcp-nodelay", Inert, SWITCH, "no", "Send fewer, larger packets to replicas: packets always leave at once.");
        repl_bandwidth_limit: u64 = ("repl-bandwidth-limit", Live, memory(0), "0", "Limit on the bytes per second that each replica is sent, snapshots included; 0: no limit.");
        backlog_bytes: u64 = ("repl-backlog-size", Live, memory(1), "1048576", "Size of the replication backlog, from which a replica that reconnects catches up; less than 16kb means 16kb.").within(16 << 10, i64::MAX);
        backlog_spool_bytes: u64 = ("repl-backlog-spool", Live, memory(0), "0", "Maximum size of the file for what replicas may yet be sent and memory is not to hold; 0: all is in memory.");
        backlog_ttl_s: u64 = ("repl-backlog-ttl", Live, int(0, i64::MAX), "3600", "Seconds after which a primary without replicas frees the backlog; 0: never.");
        min_replicas: u64 = ("min-replicas-to-write", Live, SECONDS, "0", "Refuse writes while fewer replicas than this are connected and up to date; 0: never.").alias("min-slaves-to-write");
        min_replicas_lag_s: u64 = ("min-replicas-max-lag", Live, SECONDS, "10", "Seconds since its last acknowledgement up to which a replica counts as up to date; 0: min-replicas-to-write is off.").alias("min-slaves-max-lag");
        repl_format: Option<FileVersion> as RdbFormat = ("repl-format-version", Live, Syntax::Choice(RdbFormat::NAMES), "auto", "Version of the RDB format of snapshots for replicas; auto: the one that each replica's handshake asks for.");
        refused_effects: RefusedEffects as OnRefusedEffect = ("propagation-error-behavior", Live, Syntax::Choice(OnRefusedEffect::NAMES), "ignore", "What to do when a command of the primary or of the append-only file fails: ignore logs it, panic also ends the process, panic-on-replicas does so on a read-only replica.");
    }

    /// Cluster mode.
    CLUSTER = {
        cluster_enabled: bool = ("cluster-enabled", Start, SWITCH, "no", "Be a node of a cluster.");
        cluster_config_file: String = ("cluster-config-file", Start, TEXT, "nodes.conf", "File in which the node keeps its id and its cluster.");
        cluster_etcd: String = ("cluster-etcd", Start, TEXT, "", "Members of the etcd with the cluster's records, as http://host:port or https://host:port, with commas between them; empty: the node is alone, and its file has them.");
        cluster_name: String = ("cluster-name", Start, TEXT, "default", "Name of the cluster in its etcd.");
        cluster_etcd_user: String = ("cluster-etcd-user", Start, TEXT, "", "User of etcd; empty: none.");
        cluster_etcd_password: Option<Vec<u8>> = ("cluster-etcd-password", Start, Syntax::Bytes, "", "Password of cluster-etcd-user.").secret();
        cluster_etcd_ca_cert_file: String = ("cluster-etcd-ca-cert-file", Start, TEXT, "", "Certificates of the authorities that sign etcd's, in PEM format.");
        cluster_etcd_cert_file: String = ("cluster-etcd-cert-file", Start, TEXT, "", "Certificate that proves to etcd who the node is, in PEM format.");
        cluster_etcd_key_file: String = ("cluster-etcd-key-file", Start, TEXT, "", "Private key of cluster-etcd-cert-file, not encrypted.");
        cluster_node_timeout_ms: u64 = ("cluster-node-timeout", Live, int(0, i64::MAX), "2000", "Milliseconds for which a replica promises not to take over; a silent primary is replaced after that.");
        cluster_acks: ClusterAcks = ("cluster-acks", Live, Syntax::Choice(ClusterAcks::NAMES), "none", "Replies of a primary that wait: one: those that tell of a write, until every node that may take over has it; none: none, and a failover may lose the newest writes.");
        cluster_acks_alone: ClusterAlone = ("cluster-acks-alone", Live, Syntax::Choice(ClusterAlone::NAMES), "refuse", "What cluster-acks one makes of writes while no node could take over: refuse or accept them.");
        cluster_candidates_max: u64 = ("cluster-candidates-max", Live, int(1, 64), "2", "Largest number of a primary's replicas that may take over at once, and that cluster-acks one waits for.");
        _ = ("cluster-port", InertFixed, PORT, "0", "Port of the cluster bus.");
        _ = ("cluster-migration-barrier", Inert, SECONDS, "1", "Replicas that a primary keeps.");
        _ = ("cluster-replica-validity-factor", Inert, SECONDS, "10", "How stale a replica may be to take over.").alias("cluster-slave-validity-factor");
        _ = ("cluster-replica-no-failover", Inert, SWITCH, "no", "Never take over.").alias("cluster-slave-no-failover");
        _ = ("cluster-allow-replica-migration", Inert, SWITCH, "yes", "Let replicas change their primary.");
        cluster_require_full_coverage: bool = ("cluster-require-full-coverage", Live, SWITCH, "yes", "Serve nothing while a slot has no node.");
        cluster_allow_reads_when_down: bool = ("cluster-allow-reads-when-down", Live, SWITCH, "no", "Serve reads while the cluster is down.");
        cluster_allow_pubsubshard_when_down: bool = ("cluster-allow-pubsubshard-when-down", Live, SWITCH, "yes", "Serve shard channels while the cluster is down.");
        _ = ("cluster-link-sendbuf-limit", Inert, size(0), "0", "Bytes that may wait on the cluster bus.");
        cluster_announce_ip: String = ("cluster-announce-ip", Live, TEXT, "", "Address that clients are told; empty: the one by which they have reached the node.");
        cluster_announce_port: Option<u16> as Port = ("cluster-announce-port", Live, PORT, "0", "Port that clients are told; 0: the port.");
        cluster_announce_tls_port: Option<u16> as Port = ("cluster-announce-tls-port", Live, PORT, "0", "Port that clients with TLS are told; 0: the TLS port.");
        _ = ("cluster-announce-bus-port", Inert, PORT, "0", "Bus port that the node tells others.");
        cluster_announce_hostname: String = ("cluster-announce-hostname", Live, Syntax::Checked(hostname), "", "Host name that clients are told.");
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
        cluster_preferred_endpoint_type: EndpointType = ("cluster-preferred-endpoint-type", Live, Syntax::Choice(EndpointType::NAMES), "ip", "Way to reach a node that clients are told first.");
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
        log_format: Format as LogFormat = ("log-format", Live, Syntax::Choice(LogFormat::NAMES), "text", "Format of log lines: as in Redis (text, or legacy as in Valkey), JSON objects, or key=value.");
        log_timestamp: Timestamp as LogTimestamp = ("log-timestamp-format", Live, Syntax::Choice(LogTimestamp::NAMES), "legacy", "Format of times in the log: legacy is Redis's in text and ISO 8601 in the other formats; milliseconds are those since 1970.");
        syslog: bool = ("syslog-enabled", Start, SWITCH, "no", "Log to syslog as well.");
        syslog_ident: String = ("syslog-ident", Start, TEXT, "redis", "Name in syslog.");
        /// Facility: 0 is `user`, `n` is `local(n-1)`.
        syslog_facility: u8 = ("syslog-facility", Start, Syntax::Choice(&["user", "local0", "local1", "local2", "local3", "local4", "local5", "local6", "local7"]), "local0", "Facility in syslog.");
        _ = ("crash-log-enabled", Inert, SWITCH, "yes", "Write a report when the process crashes: a panic is always written to standard error.");
        _ = ("crash-memcheck-enabled", Inert, SWITCH, "yes", "Test the memory after a crash: see --test-memory.");
        logo: bool = ("always-show-logo", Start, SWITCH, "no", "Log mode, port and process id at the start, as in Redis's logo.");
        _ = ("hide-user-data-from-log", Inert, SWITCH, "no", "Keep keys and values out of the log: they never go there.");
        title: bool = ("set-proc-title", Start, SWITCH, "yes", "Set the process title, as far as the command line left room.");
        title_template: String = ("proc-title-template", Live, Syntax::Checked(title_template), "{title} {listen-addr} {server-mode}", "Template of the process title; it may also contain {port}, {tls-port}, {unixsocket} and {config-file}.");
        _ = ("locale-collate", Inert, Syntax::Checked(locale), "", "Locale in which strings are compared: bytes are compared.");
        _ = ("ignore-warnings", Inert, TEXT, "", "Warnings about the system that do not stop the start: none does.");
        _ = ("disable-thp", InertFixed, SWITCH, "yes", "Switch huge pages off for the process: here entries live in huge pages on purpose.");
        oom_score: OomScore = ("oom-score-adj", Live, Syntax::Choice(OomScore::NAMES), "no", "Set the score by which the kernel's OOM killer chooses processes; relative (or yes) adds to the score at the start.");
        oom_scores: [i32; 3] as OomScores = ("oom-score-adj-values", Live, Syntax::Words(oom_scores), "0 200 800", "OOM scores of a primary, a replica and a background process; the first is used.");
        shutdown_timeout_s: u64 = ("shutdown-timeout", Live, SECONDS, "10", "Seconds that a shutdown waits for replicas to have everything; 0: it does not.");
        on_sigint: Manner as Endings = ("shutdown-on-sigint", Live, ENDING, "default", "How SIGINT ends the server: the words are those of SHUTDOWN.");
        on_sigterm: Manner as Endings = ("shutdown-on-sigterm", Live, ENDING, "default", "How SIGTERM ends the server, likewise.");
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
        cluster: bool = ("tls-cluster", Live, SWITCH, "no", "TLS towards the targets of MIGRATE.");
        replication: bool = ("tls-replication", Live, SWITCH, "no", "Connect to the primary by TLS.");
        auth_clients: ClientAuth as ClientCertificates = ("tls-auth-clients", Live, Syntax::Choice(ClientCertificates::NAMES), "yes", "Require a client certificate of a trusted authority; optional: verify one if the client presents it.");
        prefer_server_ciphers: bool = ("tls-prefer-server-ciphers", Live, SWITCH, "no", "Choose the cipher in the server's order instead of the client's.");
        session_caching: bool = ("tls-session-caching", Live, SWITCH, "yes", "Let clients resume TLS sessions.");
        session_cache_size: usize = ("tls-session-cache-size", Live, SECONDS, "20480", "Maximum number of TLS sessions kept for resumption; 0: 1048576.");
        session_cache_timeout_s: u64 = ("tls-session-cache-timeout", Live, SECONDS, "300", "Seconds for which a TLS session can be resumed.");
        cert_file: Option<String> = ("tls-cert-file", Live, TEXT, "", "Server certificate and its chain, in PEM format; setting it, even to the same path, reads all TLS files again, as SIGHUP does.");
        key_file: Option<String> = ("tls-key-file", Live, TEXT, "", "Private key of tls-cert-file, not encrypted.");
        key_file_pass: Option<String> = ("tls-key-file-pass", Live, TEXT, "", "Password of tls-key-file; encrypted keys are refused.").secret();
        client_cert_file: Option<String> = ("tls-client-cert-file", Live, TEXT, "", "Certificate for connections to other servers, as to the primary; empty: tls-cert-file.");
        client_key_file: Option<String> = ("tls-client-key-file", Live, TEXT, "", "Private key of tls-client-cert-file.");
        client_key_file_pass: Option<String> = ("tls-client-key-file-pass", Live, TEXT, "", "Password of tls-client-key-file; encrypted keys are refused.").secret();
        auto_reload_interval_s: u64 = ("tls-auto-reload-interval", Live, SECONDS, "0", "Seconds between checks whether files of certificates and keys have changed, which are then read again; 0: never.");
        _ = ("tls-auth-clients-user", Inert, Syntax::Choice(&["CN", "URI", "off"]), "off", "Field of a client's certificate that names its user: users log in by AUTH.").unbuilt("authentication by certificates", |t| t == b"off");
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
