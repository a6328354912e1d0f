//! Configuration of the proxy: one typed value, whichever way it was written.
//!
//! Three ways lead to a [`Config`]: our TOML file ([`Config::from_toml`]), flags ([`Arguments`]), and predixy's file
//! (`predixy`). [`Config::check`] then looks at the whole before anything starts, and [`Config::to_toml`] prints it.
//! Names in the file are those of the fields with dashes; lists of tables have singular names (`[[pool]]`).
//!
//! Must not know: sockets, workers, what a server says, the proxy that runs by it.

#![forbid(unsafe_code)]

mod arguments;
mod cache;
mod check;
mod commands;
mod hash;
mod io_error;
mod predixy;
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
pub use hash::{DistributionKind, HashKind};
pub use traffic::{Excess, Fault, Mirror, Mirrored};
pub use units::{Place, Secret, Size, Span};
pub use users::Identities;

/// The largest argument of a request, as of a server that has not been configured.
const BULK_BYTES_MAX: u64 = 512 << 20;
/// The largest request that is not whole, as of a server that has not been configured.
const QUERY_BUFFER_BYTES_MAX: u64 = 1 << 30;

/// All that a proxy is told: what its file, its flags or predixy's file say, and defaults for the rest.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case", default)]
pub struct Config {
    /// Shown by INFO.
    pub name: String,
    /// Workers, at most 256; 0: as many as there are CPUs that the process may use.
    pub threads: usize,
    /// The data centre that this proxy is in, one of `data-center`; empty: places do not matter.
    pub local_data_center: String,
    /// How many databases and clients, and how large what they send.
    pub limits: Limits,
    /// How long things may take.
    pub timeouts: Timeouts,
    /// Which commands there are.
    pub commands: Commands,
    /// Settings of the log: the file, its rotation, and the sampling of lines.
    pub log: Log,
    /// Where Prometheus asks for figures.
    pub metrics: Metrics,
    /// CLUSTER, for clients that insist.
    pub cluster_face: ClusterFace,
    /// Settings of SLOWLOG, LATENCY and the search for frequent keys.
    pub observe: Observe,
    /// Where clients come in.
    #[serde(rename = "listener", skip_serializing_if = "Vec::is_empty")]
    pub listeners: Vec<Listener>,
    /// Where their requests go.
    #[serde(rename = "pool", skip_serializing_if = "Vec::is_empty")]
    pub pools: Vec<Pool>,
    /// Which pool a key belongs to, by how it begins; the longest prefix wins.
    #[serde(rename = "route", skip_serializing_if = "Vec::is_empty")]
    pub routes: Vec<PrefixRoute>,
    /// Users and their permissions.
    #[serde(rename = "user", skip_serializing_if = "Vec::is_empty")]
    pub users: Vec<User>,
    /// Data centres: which servers are there, by address, and from where a proxy that is there reads.
    #[serde(rename = "data-center", skip_serializing_if = "Vec::is_empty")]
    pub data_centers: Vec<DataCenter>,
    /// Faults to inject on purpose.
    #[serde(rename = "fault", skip_serializing_if = "Vec::is_empty")]
    pub faults: Vec<Fault>,
    /// Requests to copy to other pools.
    #[serde(rename = "mirror", skip_serializing_if = "Vec::is_empty")]
    pub mirrors: Vec<Mirror>,
    /// Latencies of chosen commands in chosen steps.
    #[serde(rename = "latency-monitor", skip_serializing_if = "Vec::is_empty")]
    pub latency_monitors: Vec<LatencyMonitor>,
}

/// Where clients come in.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct Listener {
    /// The address.
    pub bind: Place,
    /// The pool of those who come in here; none: the first, or what `route` says.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pool: Option<String>,
    /// TLS for clients.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tls: Option<Tls>,
    /// TCP's keepalive on connections of clients, in idle time; `off`: none.
    #[serde(default = "Listener::keepalive")]
    pub keepalive: Span,
}

impl Listener {
    /// One at this address, with nothing said of it.
    pub fn at(bind: Place) -> Listener {
        Listener {
            bind,
            pool: None,
            tls: None,
            keepalive: Listener::keepalive(),
        }
    }

    /// As Redis has it.
    fn keepalive() -> Span {
        Span::seconds(300)
    }
}

/// One side of TLS. Files are in PEM form.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case", default)]
pub struct Tls {
    /// Our certificate and those behind it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub certificate: Option<String>,
    /// Its key.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub key: Option<String>,
    /// Certificate authorities to trust: a file, or a folder of them. None, for servers: the system's.
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
    /// Listeners: whether clients present a certificate of these authorities; see [`Tls::asked_of_clients`].
    #[serde(skip_serializing_if = "Option::is_none")]
    pub client_certificates: Option<ClientCertificates>,
    /// Servers: the name to ask for (SNI), which their certificate must then have. None: any certificate of the
    /// authorities will do, as for redis-cli.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub server_name: Option<String>,
    /// Servers: any certificate will do.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub insecure: bool,
}

/// Policy for client certificates.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ClientCertificates {
    /// They are not asked.
    Off,
    /// They are asked; one that they present must be good.
    Optional,
    /// They must.
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
    /// Databases that SELECT may name, 1 to 10,000; a cluster has one.
    pub databases: u32,
    /// The hash of keys: see [`HashKind`].
    pub hash: HashKind,
    /// Two characters: only what stands between them is hashed. Empty: the whole key.
    pub hash_tag: String,
    /// Which shard a hash means.
    pub distribution: DistributionKind,
    /// The user to authenticate as on its servers.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub user: Option<String>,
    /// With this password.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub password: Option<Secret>,
    /// The user to authenticate as at its Sentinels.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub sentinel_user: Option<String>,
    /// With this password.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub sentinel_password: Option<Secret>,
    /// TCP's keepalive on connections to servers, in idle time; `off`: none.
    pub keepalive: Span,
    /// How often the topology is asked for when nothing happens.
    pub refresh: Span,
    /// When a server counts as failed, and when it is tried again.
    pub failure: FailurePolicy,
    /// Policy for which servers answer read-only requests.
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
    /// The parts of the keys.
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
    /// Sentinels, who know each shard by its name.
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
    /// Ketama places the shard by it; Sentinels know the shard by it.
    pub name: String,
    /// Its share of the keys, 1 to 1,000.
    pub weight: u32,
    /// The primary, then replicas. With Sentinels: may be empty.
    #[serde(rename = "server", skip_serializing_if = "Vec::is_empty")]
    pub servers: Vec<Server>,
}

/// A server that holds keys, a node of a cluster that is asked first, or a Sentinel.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct Server {
    /// Where it is.
    pub address: Place,
    /// The user to authenticate as there, in place of the pool's.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub user: Option<String>,
    /// With this password, if not the pool's.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub password: Option<Secret>,
}

/// When a server counts as failed.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case", default)]
pub struct FailurePolicy {
    /// Failures in a row, time-outs included, after which it is left alone; at least 1.
    pub limit: u32,
    /// The pause before it is first tried again.
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

/// Policy for which servers answer read-only requests: any of those with the highest priority. 0: never.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case", default)]
pub struct ReadPolicy {
    /// Of primaries, 0 to 100.
    pub primary_priority: u32,
    /// Of replicas that the file names, 0 to 100.
    pub static_replica_priority: u32,
    /// Of replicas that were found, 0 to 100.
    pub dynamic_replica_priority: u32,
    /// A replica whose copy of its primary's data is older than this is not read from; `off`: however old.
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

/// Keys that begin so are in this pool.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct PrefixRoute {
    /// How they begin.
    pub prefix: String,
    /// The pool.
    pub pool: String,
    /// The prefix is taken off on the way to the server.
    #[serde(default)]
    pub strip: bool,
}

/// Limits on the resources that clients may use.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case", default)]
pub struct Limits {
    /// Clients at a time, over all workers; 0: as many as there are file descriptors.
    pub clients: u32,
    /// Requests of one client that wait for their replies.
    pub pipeline: u32,
    /// Connections of one worker to one server for calls that wait, transactions and large values; 0: as many as clients.
    pub private_connections: u32,
    /// One argument of a request.
    pub bulk: Size,
    /// A request that is not whole yet.
    pub query_buffer: Size,
    /// Replies that a client has not taken.
    pub output_buffer: Size,
    /// Messages that a subscriber has not taken.
    pub subscriber_output_buffer: Size,
    /// Buffers of the whole process.
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
            // Room for one reply of `bulk`, and for others behind it.
            output_buffer: Size(600 << 20),
            subscriber_output_buffer: Size(32 << 20),
            memory: Size(0),
        }
    }
}

/// How long things may take.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case", default)]
pub struct Timeouts {
    /// A client that asks for nothing.
    pub client_idle: Span,
    /// Until a connection to a server stands.
    pub connect: Span,
    /// Until a server has answered.
    pub request: Span,
    /// A client that takes nothing of a long reply, or sends nothing of a long request, for which a server's connection waits.
    pub reader: Span,
    /// Until requests under way have ended, when the process is asked to end.
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

/// Which commands there are for clients.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case", default)]
pub struct Commands {
    /// Nobody may call these.
    pub forbidden: Vec<String>,
    /// Of FLUSHALL, FLUSHDB and KEYS, which concern every key of every server, these may be called; none said: all.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub permitted: Option<Vec<String>>,
    /// Under another name: that of the command, then the one that clients use.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub renamed: BTreeMap<String, String>,
    /// Commands that we do not know and the servers do.
    #[serde(rename = "custom", skip_serializing_if = "Vec::is_empty")]
    pub custom: Vec<CustomCommand>,
}

/// A command of the servers that is not in our table.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct CustomCommand {
    /// Its name.
    pub name: String,
    /// The access to data that the command needs.
    pub mode: Mode,
    /// Arguments at least, with its name.
    pub min_args: u32,
    /// Arguments at most, with its name; no more than 9,999.
    pub max_args: u32,
    /// Which argument is the key, counted from the name, which is 0; 0: there is none.
    pub key: u32,
}

/// How far a right goes; each includes those before it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Mode {
    /// Looking.
    Read,
    /// Changing.
    #[default]
    Write,
    /// CONFIG and the like.
    Admin,
}

/// A user: name and password, permissions, and rate limits.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case", default)]
pub struct User {
    /// `AUTH name password`. `default` is who a client is that has not said it.
    pub name: String,
    /// In the clear, or `#` and its SHA-256 in hexadecimal digits. None: with any, or none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub password: Option<Secret>,
    /// `AUTH password` alone is this user.
    pub by_password: bool,
    /// The kind of access that is allowed; not with `rules`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub mode: Option<Mode>,
    /// Keys begin with one of these; empty: any key.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub key_prefixes: Vec<String>,
    /// Keys that it may read begin with one of these, in place of `key-prefixes`.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub read_key_prefixes: Vec<String>,
    /// Keys that it may write begin with one of these, in place of `key-prefixes`.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub write_key_prefixes: Vec<String>,
    /// Rules of Redis's ACL, such as `+@read ~cache:*`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rules: Option<Secret>,
    /// Calls in a second, over all of its clients; 0: as many as it likes.
    #[serde(skip_serializing_if = "is_zero")]
    pub commands_per_second: u32,
    /// Bytes of requests and replies in a second.
    #[serde(skip_serializing_if = "Size::is_off")]
    pub bytes_per_second: Size,
    /// Policy for calls beyond these limits.
    pub when_exceeded: Excess,
}

fn is_zero(number: &u32) -> bool {
    *number == 0
}

/// A data centre: which servers are there, and from where a proxy that is there reads.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case", default)]
pub struct DataCenter {
    /// Its name.
    pub name: String,
    /// Servers whose address begins so are there.
    pub address_prefixes: Vec<String>,
    /// From where a proxy that is there reads.
    #[serde(rename = "read", skip_serializing_if = "Vec::is_empty")]
    pub reads: Vec<PlacePolicy>,
}

/// How much a data centre is read from.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct PlacePolicy {
    /// Its name.
    pub data_center: String,
    /// The highest that has a server that is up is read from, 0 to 100; 0: never.
    pub priority: u32,
    /// Its share among those with the same priority, 1 to 100.
    #[serde(default = "one")]
    pub weight: u32,
}

fn one() -> u32 {
    1
}

/// Latencies of chosen commands.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case", default)]
pub struct LatencyMonitor {
    /// Its name.
    pub name: String,
    /// Commands, or `all`; with `-` before it, not this one. Later ones win.
    pub commands: Vec<String>,
    /// The steps' upper bounds in microseconds, rising.
    pub bounds_us: Vec<u64>,
}

/// Settings of the log: the file, its rotation, and the sampling of lines.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case", default)]
pub struct Log {
    /// The file; none: standard error.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub file: Option<String>,
    /// A new file after this time.
    pub rotate_every: Span,
    /// A new file after so many bytes.
    pub rotate_size: Size,
    /// Lines may be left out, and are counted, rather than have requests wait.
    pub may_drop: bool,
    /// Of how many lines one is written; 0: none.
    pub sample: Samples,
}

impl Default for Log {
    fn default() -> Log {
        Log {
            file: None,
            rotate_every: Span::default(),
            rotate_size: Size::default(),
            may_drop: true,
            sample: Samples::default(),
        }
    }
}

/// Of how many lines of a level one is written; 0: none.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case", default)]
pub struct Samples {
    /// Clients that come and go.
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
    /// CLUSTER is answered; else as a server answers it that is in no cluster.
    pub enabled: bool,
    /// Where clients find this proxy; none: where they came to.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub announce: Option<Place>,
    /// Where they find the others; this one may be among them, so that all can have the same list.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub peers: Vec<Place>,
}

/// Settings of SLOWLOG, LATENCY and the search for frequent keys.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case", default)]
pub struct Observe {
    /// SLOWLOG has calls that took so long, from request to reply at the proxy; `off`: none.
    pub slowlog_log_slower_than: Span,
    /// How many calls SLOWLOG has.
    pub slowlog_max_len: u32,
    /// LATENCY has replies that took so long as events; `off`: none.
    pub latency_monitor_threshold: Span,
    /// Of how many requests one is looked at, to find the keys that come often; 0: none.
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

/// Where Prometheus may ask for what can be counted.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case", default)]
pub struct Metrics {
    /// Where it may ask; none: nowhere.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub bind: Option<Place>,
}

#[cfg(test)]
mod tests {
    /// As little as a configuration may say.
    pub const WHOLE: &str = "
        [[listener]]
        bind = '127.0.0.1:7617'
        [[pool]]
        [[pool.shard]]
        server = [{ address = '127.0.0.1:6379' }]
    ";
}
