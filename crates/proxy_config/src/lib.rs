//! Configuration of the proxy: one typed value for all its sources.
//!
//! A [`Config`] has these sources: our TOML file ([`Config::from_toml`]), flags ([`Arguments`]), and the files of predixy
//! and nutcracker (`predixy`, `nutcracker`). [`Config::check`] then checks the whole before anything starts, and [`Config::to_toml`] prints it. Names
//! in the file are those of the fields with dashes; lists of tables have singular names (`[[pool]]`).
//!
//! Must not know sockets, workers, servers' replies, or the proxy that uses it.

#![forbid(unsafe_code)]

mod arguments;
mod cache;
mod check;
mod commands;
mod converted;
pub mod foreign;
mod hash;
mod io_error;
mod nutcracker;
mod predixy;
mod sentinel;
mod source;
mod text;
mod traffic;
mod units;
mod users;

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

pub use arguments::Arguments;
pub use cache::Cache;
pub use check::Problem;
pub use commands::{OF_EVERYTHING, ids_of};
pub use converted::{Converted, Note};
pub use hash::{DistributionKind, HashKind};
pub use traffic::{Excess, Fault, Mirror, Mirrored};
pub use units::{Place, Secret, Size, Span};
pub use users::Identities;

/// The largest argument of a request, as the server's default.
const BULK_BYTES_MAX: u64 = 512 << 20;
/// The largest incomplete request, as the server's default.
const QUERY_BUFFER_BYTES_MAX: u64 = 1 << 30;

/// The configuration of a proxy: from its file, its flags or predixy's file, with defaults for the rest.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case", default)]
pub struct Config {
    /// Its name, shown by INFO.
    pub name: String,
    /// Number of workers, at most 256; 0: one per CPU that the process may use.
    pub threads: usize,
    /// The data centre of this proxy, one of `data-center`; empty: data centres do not matter.
    pub local_data_center: String,
    /// Limits on databases, clients, and sizes.
    pub limits: Limits,
    /// Time-outs.
    pub timeouts: Timeouts,
    /// The available commands.
    pub commands: Commands,
    /// Settings of the log: the file, its rotation, and the sampling of lines.
    pub log: Log,
    /// The address for Prometheus.
    pub metrics: Metrics,
    /// CLUSTER, for cluster clients.
    pub cluster_face: ClusterFace,
    /// Settings of SLOWLOG, LATENCY and the sampling of frequent keys.
    pub observe: Observe,
    /// Addresses for clients.
    #[serde(rename = "listener", skip_serializing_if = "Vec::is_empty")]
    pub listeners: Vec<Listener>,
    /// Pools of servers.
    #[serde(rename = "pool", skip_serializing_if = "Vec::is_empty")]
    pub pools: Vec<Pool>,
    /// Pools of keys by prefix; the longest prefix wins.
    #[serde(rename = "route", skip_serializing_if = "Vec::is_empty")]
    pub routes: Vec<PrefixRoute>,
    /// Users and their permissions.
    #[serde(rename = "user", skip_serializing_if = "Vec::is_empty")]
    pub users: Vec<User>,
    /// Data centres: their servers, by address, and the read policy of a proxy there.
    #[serde(rename = "data-center", skip_serializing_if = "Vec::is_empty")]
    pub data_centers: Vec<DataCenter>,
    /// Faults to inject.
    #[serde(rename = "fault", skip_serializing_if = "Vec::is_empty")]
    pub faults: Vec<Fault>,
    /// Requests to copy to other pools.
    #[serde(rename = "mirror", skip_serializing_if = "Vec::is_empty")]
    pub mirrors: Vec<Mirror>,
    /// Latency monitors of chosen commands in chosen steps.
    #[serde(rename = "latency-monitor", skip_serializing_if = "Vec::is_empty")]
    pub latency_monitors: Vec<LatencyMonitor>,
}

/// An address for clients.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct Listener {
    /// The address.
    pub bind: Place,
    /// The pool of its clients; none: the first, or the one in `route`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pool: Option<String>,
    /// TLS for clients.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tls: Option<Tls>,
    /// TCP keepalive of clients' connections, in idle time; `off`: none.
    #[serde(default = "Listener::keepalive")]
    pub keepalive: Span,
}

impl Listener {
    /// Returns a listener at this address, with defaults.
    pub fn at(bind: Place) -> Listener {
        Listener {
            bind,
            pool: None,
            tls: None,
            keepalive: Listener::keepalive(),
        }
    }

    /// Returns Redis's default.
    fn keepalive() -> Span {
        Span::seconds(300)
    }
}

/// One side of TLS. Files are in PEM form.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case", default)]
pub struct Tls {
    /// Our certificate and its chain.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub certificate: Option<String>,
    /// Its key.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub key: Option<String>,
    /// Trusted certificate authorities: a file, or a folder of them. None, for servers: the system's.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub authorities: Option<String>,
    /// Versions, as in `TLSv1.2 TLSv1.3`; empty: both.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub protocols: String,
    /// Ciphers of TLS 1.2 as an OpenSSL cipher list; empty: all that are supported.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub ciphers: String,
    /// Ciphers of TLS 1.3 by name, with colons between; empty: all that are supported.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub ciphersuites: String,
    /// Listeners: policy for client certificates of these authorities; see [`Tls::asked_of_clients`].
    #[serde(skip_serializing_if = "Option::is_none")]
    pub client_certificates: Option<ClientCertificates>,
    /// Servers: the name to ask for (SNI), which their certificate must then have. None: any certificate of the
    /// authorities is accepted, as by redis-cli.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub server_name: Option<String>,
    /// Servers: certificates are not verified.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub insecure: bool,
}

/// Policy for client certificates.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ClientCertificates {
    /// None is requested.
    Off,
    /// It is optional; a presented one must be valid.
    Optional,
    /// It is required.
    Required,
}

impl Tls {
    /// Returns the policy for client certificates. If authorities are named and no policy is, clients must have a certificate.
    pub fn asked_of_clients(&self) -> ClientCertificates {
        match (self.client_certificates, &self.authorities) {
            (Some(asked), _) => asked,
            (None, Some(_)) => ClientCertificates::Required,
            (None, None) => ClientCertificates::Off,
        }
    }
}

/// Servers that hold one set of keys.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case", default)]
pub struct Pool {
    /// Its name.
    pub name: String,
    /// The source of its servers' addresses.
    pub kind: PoolKind,
    /// Number of databases for SELECT, 1 to 10,000; a cluster has one.
    pub databases: u32,
    /// The hash of keys: see [`HashKind`].
    pub hash: HashKind,
    /// Two characters: only the text between them is hashed. Empty: the whole key.
    pub hash_tag: String,
    /// The distribution over shards.
    pub distribution: DistributionKind,
    /// The user to authenticate as on its servers.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub user: Option<String>,
    /// The password.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub password: Option<Secret>,
    /// The user to authenticate as at its Sentinels.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub sentinel_user: Option<String>,
    /// The password.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub sentinel_password: Option<Secret>,
    /// TCP keepalive of connections to servers, in idle time; `off`: none.
    pub keepalive: Span,
    /// Interval of topology refreshes without events.
    pub refresh: Span,
    /// Conditions of ejecting a server, and of trying it again.
    pub failure: FailurePolicy,
    /// Policy for the servers of read-only requests.
    pub reads: ReadPolicy,
    /// Cache of replies to GET.
    pub cache: Cache,
    /// TLS to its servers.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tls: Option<Tls>,
    /// Sentinels (`kind = "sentinel"`).
    #[serde(rename = "sentinel", skip_serializing_if = "Vec::is_empty")]
    pub sentinels: Vec<Server>,
    /// Nodes that are asked first (`kind = "cluster"`).
    #[serde(rename = "seed", skip_serializing_if = "Vec::is_empty")]
    pub seeds: Vec<Server>,
    /// The shards.
    #[serde(rename = "shard", skip_serializing_if = "Vec::is_empty")]
    pub shards: Vec<Shard>,
}

impl Default for Pool {
    fn default() -> Pool {
        Pool {
            name: "default".to_owned(),
            kind: PoolKind::Servers,
            databases: 16,
            // FNV, twemproxy's default, puts keys that differ in their last digits next to each other on the circle.
            hash: HashKind::Murmur,
            hash_tag: "{}".to_owned(),
            distribution: DistributionKind::Ketama,
            user: None,
            password: None,
            sentinel_user: None,
            sentinel_password: None,
            keepalive: Span::default(),
            refresh: Span::seconds(1),
            failure: FailurePolicy::default(),
            reads: ReadPolicy::default(),
            cache: Cache::default(),
            tls: None,
            sentinels: Vec::new(),
            seeds: Vec::new(),
            shards: Vec::new(),
        }
    }
}

/// The source of servers' addresses.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum PoolKind {
    /// The file: of each shard, the first server is the primary.
    #[default]
    Servers,
    /// The nodes of a Redis Cluster.
    Cluster,
    /// Sentinels, by the name of each shard.
    Sentinel,
}

impl Default for Shard {
    fn default() -> Shard {
        Shard {
            name: String::new(),
            weight: 1,
            servers: Vec::new(),
        }
    }
}

/// A part of the keys.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case", default)]
pub struct Shard {
    /// Its name: ketama places the shard by it; Sentinels know the shard by it.
    pub name: String,
    /// Its share of the keys, 1 to 1,000.
    pub weight: u32,
    /// The primary, then replicas. With Sentinels: may be empty.
    #[serde(rename = "server", skip_serializing_if = "Vec::is_empty")]
    pub servers: Vec<Server>,
}

/// A server that holds keys, a seed node of a cluster, or a Sentinel.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct Server {
    /// Its address.
    pub address: Place,
    /// The user to authenticate as, in place of the pool's.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub user: Option<String>,
    /// The password, if not the pool's.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub password: Option<Secret>,
}

/// Conditions of ejecting a server.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case", default)]
pub struct FailurePolicy {
    /// Failures in a row, time-outs included, after which it is marked down; at least 1.
    pub limit: u32,
    /// The pause before the first retry.
    pub retry: Span,
    /// The longest pause.
    pub retry_max: Span,
}

impl Default for FailurePolicy {
    fn default() -> FailurePolicy {
        FailurePolicy {
            limit: 3,
            retry: Span::milliseconds(200),
            retry_max: Span::seconds(10),
        }
    }
}

/// Policy for the servers of read-only requests: any of those with the highest priority. 0: never.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case", default)]
pub struct ReadPolicy {
    /// Priority of primaries, 0 to 100.
    pub primary_priority: u32,
    /// Priority of replicas that the file names, 0 to 100.
    pub static_replica_priority: u32,
    /// Priority of discovered replicas, 0 to 100.
    pub dynamic_replica_priority: u32,
    /// Largest replication lag with which a replica is read from; `off`: no bound.
    pub lag_max: Span,
}

impl Default for ReadPolicy {
    fn default() -> ReadPolicy {
        ReadPolicy {
            primary_priority: 50,
            static_replica_priority: 0,
            dynamic_replica_priority: 0,
            lag_max: Span::default(),
        }
    }
}

/// The pool of keys with a prefix.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct PrefixRoute {
    /// The prefix.
    pub prefix: String,
    /// The pool.
    pub pool: String,
    /// The prefix is removed on the way to the server.
    #[serde(default)]
    pub strip: bool,
}

/// Limits on the resources of clients.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case", default)]
pub struct Limits {
    /// Largest number of clients, over all workers; 0: as many as there are file descriptors.
    pub clients: u32,
    /// Largest number of unanswered requests of one client.
    pub pipeline: u32,
    /// Connections of one worker to one server for blocking calls, transactions and large values; 0: as many as clients.
    pub private_connections: u32,
    /// Largest argument of a request.
    pub bulk: Size,
    /// Largest incomplete request.
    pub query_buffer: Size,
    /// Largest unread output of a client.
    pub output_buffer: Size,
    /// Largest unread output of a subscriber.
    pub subscriber_output_buffer: Size,
    /// Largest memory of all buffers of the process.
    pub memory: Size,
}

impl Default for Limits {
    fn default() -> Limits {
        Limits {
            clients: 10_000,
            pipeline: 1_000,
            private_connections: 1_024,
            bulk: Size(BULK_BYTES_MAX),
            query_buffer: Size(QUERY_BUFFER_BYTES_MAX),
            // Room for one reply of `bulk`, and for others after it.
            output_buffer: Size(600 << 20),
            subscriber_output_buffer: Size(32 << 20),
            memory: Size(0),
        }
    }
}

/// Time-outs.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case", default)]
pub struct Timeouts {
    /// An idle client.
    pub client_idle: Span,
    /// Connecting to a server.
    pub connect: Span,
    /// The reply of a server.
    pub request: Span,
    /// A client that reads nothing of a long reply, or sends nothing of a long request, while a server's connection waits.
    pub reader: Span,
    /// Requests in flight, when the process drains.
    pub drain: Span,
}

impl Default for Timeouts {
    fn default() -> Timeouts {
        Timeouts {
            client_idle: Span::default(),
            connect: Span::seconds(1),
            request: Span::seconds(10),
            reader: Span::seconds(60),
            drain: Span::seconds(10),
        }
    }
}

/// The commands for clients.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case", default)]
pub struct Commands {
    /// Commands that no client may call.
    pub forbidden: Vec<String>,
    /// Those of FLUSHALL, FLUSHDB and KEYS, which concern every key of every server, that may be called; not set: all.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub permitted: Option<Vec<String>>,
    /// Renamed commands: the name, then the one that clients use.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub renamed: BTreeMap<String, String>,
    /// Commands that only the servers have.
    #[serde(rename = "custom", skip_serializing_if = "Vec::is_empty")]
    pub custom: Vec<CustomCommand>,
}

/// A command of the servers that is not in the command table.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct CustomCommand {
    /// Its name.
    pub name: String,
    /// The access to data that the command needs.
    pub mode: Mode,
    /// Smallest number of arguments, with its name.
    pub min_args: u32,
    /// Largest number of arguments, with its name; no more than 9,999.
    pub max_args: u32,
    /// Position of the key, counted from the name, which is 0; 0: there is none.
    pub key: u32,
}

/// A level of access; each includes those before it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Mode {
    /// Reading.
    Read,
    /// Writing.
    #[default]
    Write,
    /// CONFIG and the like.
    Admin,
}

/// A user: name and password, permissions, and rate limits.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case", default)]
pub struct User {
    /// The name in `AUTH name password`. `default` is the user of clients without authentication.
    pub name: String,
    /// In plain text, or `#` and its SHA-256 in hexadecimal digits. None: any password, or none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub password: Option<Secret>,
    /// `AUTH password` alone means this user.
    pub by_password: bool,
    /// The kind of access that is allowed; not with `rules`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub mode: Option<Mode>,
    /// Prefixes of its keys; empty: any key.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub key_prefixes: Vec<String>,
    /// Prefixes of keys that it may read, in place of `key-prefixes`.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub read_key_prefixes: Vec<String>,
    /// Prefixes of keys that it may write, in place of `key-prefixes`.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub write_key_prefixes: Vec<String>,
    /// Rules of Redis's ACL, such as `+@read ~cache:*`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rules: Option<Secret>,
    /// Calls per second, over all of its clients; 0: no limit.
    #[serde(skip_serializing_if = "is_zero")]
    pub commands_per_second: u32,
    /// Bytes of requests and replies per second.
    #[serde(skip_serializing_if = "Size::is_off")]
    pub bytes_per_second: Size,
    /// Policy for calls beyond these limits.
    pub when_exceeded: Excess,
}

fn is_zero(number: &u32) -> bool {
    *number == 0
}

/// A data centre: its servers, and the read policy of a proxy there.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case", default)]
pub struct DataCenter {
    /// Its name.
    pub name: String,
    /// Prefixes of its servers' addresses.
    pub address_prefixes: Vec<String>,
    /// The data centres that a proxy there reads from.
    #[serde(rename = "read", skip_serializing_if = "Vec::is_empty")]
    pub reads: Vec<PlacePolicy>,
}

/// Share of a data centre in reads.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct PlacePolicy {
    /// Its name.
    pub data_center: String,
    /// Its priority, 0 to 100; the highest with a server that is up is read from; 0: never.
    pub priority: u32,
    /// Its share among those with the same priority, 1 to 100.
    #[serde(default = "one")]
    pub weight: u32,
}

fn one() -> u32 {
    1
}

/// A latency monitor of chosen commands.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case", default)]
pub struct LatencyMonitor {
    /// Its name.
    pub name: String,
    /// Commands, or `all`; with `-` before it, not this one. Later ones win.
    pub commands: Vec<String>,
    /// The steps' upper bounds in microseconds, ascending.
    pub bounds_us: Vec<u64>,
}

/// Settings of the log: the file, its rotation, and the sampling of lines.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case", default)]
pub struct Log {
    /// The file; none: standard error.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub file: Option<String>,
    /// Format of lines.
    pub format: LogFormat,
    /// Format of times.
    pub timestamp_format: LogTimestamp,
    /// Time after which a new file begins.
    pub rotate_every: Span,
    /// Size after which a new file begins.
    pub rotate_size: Size,
    /// Lines may be left out, and are counted, so that requests need not wait.
    pub may_drop: bool,
    /// Sampling intervals: one line of this many is written; 0: none.
    pub sample: Samples,
}

impl Default for Log {
    fn default() -> Log {
        Log {
            file: None,
            format: LogFormat::default(),
            timestamp_format: LogTimestamp::default(),
            rotate_every: Span::default(),
            rotate_size: Size::default(),
            may_drop: true,
            sample: Samples::default(),
        }
    }
}

/// Format of the log's lines: `log-format` of the server.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum LogFormat {
    /// As redis-server's.
    #[default]
    Text,
    /// JSON objects.
    Json,
    /// Pairs of key=value.
    Logfmt,
}

/// Format of times in the log: `log-timestamp-format` of the server.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum LogTimestamp {
    /// redis-server's in text, ISO 8601 in the other formats.
    #[default]
    Legacy,
    /// ISO 8601.
    Iso8601,
    /// Milliseconds since 1970.
    Milliseconds,
}

/// Sampling intervals by level: one line of this many is written; 0: none.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case", default)]
pub struct Samples {
    /// Connects and disconnects of clients.
    pub verbose: u32,
    /// Connections to servers.
    pub debug: u32,
    /// Each request.
    pub info: u32,
    /// Changes of state.
    pub notice: u32,
    /// Problems that do not stop operation.
    pub warning: u32,
    /// Failures.
    pub error: u32,
}

impl Default for Samples {
    fn default() -> Samples {
        Samples {
            verbose: 0,
            debug: 0,
            info: 0,
            notice: 1,
            warning: 1,
            error: 1,
        }
    }
}

/// The proxies as the nodes of a Redis Cluster.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case", default)]
pub struct ClusterFace {
    /// CLUSTER is answered; else as by a server without a cluster.
    pub enabled: bool,
    /// The address of this proxy for clients; none: the one that they connected to.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub announce: Option<Place>,
    /// The addresses of the others; this one may be among them, so that all can have the same list.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub peers: Vec<Place>,
}

/// Settings of SLOWLOG, LATENCY and the sampling of frequent keys.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case", default)]
pub struct Observe {
    /// Smallest latency of calls in SLOWLOG, from request to reply at the proxy; `off`: none.
    pub slowlog_log_slower_than: Span,
    /// Largest number of calls in SLOWLOG.
    pub slowlog_max_len: u32,
    /// Smallest latency of replies that are events of LATENCY; `off`: none.
    pub latency_monitor_threshold: Span,
    /// Number of requests of which one is inspected for frequent keys; 0: none.
    pub key_sample: u32,
}

impl Default for Observe {
    fn default() -> Observe {
        Observe {
            slowlog_log_slower_than: Span::milliseconds(10),
            slowlog_max_len: 128,
            latency_monitor_threshold: Span::default(),
            key_sample: 1000,
        }
    }
}

/// The metrics for Prometheus.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case", default)]
pub struct Metrics {
    /// The listening address; none: off.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub bind: Option<Place>,
}

#[cfg(test)]
mod tests {
    /// The smallest valid configuration.
    pub const WHOLE: &str = "
        [[listener]]
        bind = '127.0.0.1:7617'
        [[pool]]
        [[pool.shard]]
        server = [{ address = '127.0.0.1:6379' }]
    ";
}
