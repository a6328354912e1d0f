//! The configuration as the workers read it: one plain structure, published whole.
//!
//! CONFIG SET makes a changed copy and publishes it; a worker that sees the epoch move takes the new one
//! before its next command. Must not know: how a parameter is written (that is the configuration table).

use std::{
    ops::{Deref, DerefMut},
    path::PathBuf,
    sync::{Arc, Mutex},
    time::Duration,
};

use redline_engine::{Engine, Names};
use redline_net::tls::{ClientAuth, ServerTlsOptions, SessionCache, TlsOptions};
use redline_resp::limits;

use crate::{config::Kept, service::ServiceSettings};

/// Limits on what a client may leave unread.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OutputLimit {
    /// Above this the client is closed at once; 0: no limit.
    pub hard_bytes: u64,
    /// Above this for longer than `soft_seconds` the client is closed; 0: no limit.
    pub soft_bytes: u64,
    /// See `soft_bytes`.
    pub soft_seconds: u64,
}

/// Every parameter that has an effect. Defaults are those of Redis 8.2.3.
#[derive(Clone, Debug)]
pub struct Settings {
    /// Those that commands go by.
    pub engine: redline_engine::Settings,
    /// TCP port; `None`: no TCP listener, 0: one that the system chooses.
    pub port: Option<u16>,
    /// Addresses to listen on, in the form of the `bind` directive.
    pub bind: Vec<String>,
    /// Path of the unix socket, if one is wanted.
    pub unixsocket: Option<String>,
    /// Its permission bits; 0: those of the umask.
    pub unixsocketperm: u32,
    /// Group of its file; `None`: the process's.
    pub unixsocketgroup: Option<String>,
    /// Port of the metrics; `None`: no listener, 0: one that the system chooses.
    pub metrics_port: Option<u16>,
    /// Addresses that the metrics listen on, as in `bind`.
    pub metrics_bind: Vec<String>,
    /// Length of the accept queue.
    pub tcp_backlog: u32,
    /// Seconds between TCP keepalive probes; 0: none.
    pub tcp_keepalive_s: u32,
    /// Number of workers; 0: one per usable CPU.
    pub threads: usize,
    /// How long a worker may let the requests of many busy clients gather: microseconds.
    pub event_coalescing_us: u64,
    /// Clients may change their worker.
    pub balance_clients: bool,
    /// Number of databases.
    pub databases: u32,
    /// Clients are closed after so many idle seconds; 0: never.
    pub timeout_s: u64,
    /// Most clients at a time.
    pub maxclients: usize,
    /// Refuse clients from elsewhere while there is no password.
    pub protected_mode: bool,
    /// The default user's password.
    pub requirepass: Option<Vec<u8>>,
    /// Users that the configuration defines.
    pub acl_user_lines: Vec<UserLine>,
    /// File that defines the users instead.
    pub aclfile: Option<String>,
    /// A fresh user may use every channel.
    pub acl_open_channels: bool,
    /// Names of commands.
    pub names: Names,
    /// Most bytes of the buffers of all clients; 0: any number; negative: so many percent of `maxmemory_bytes`.
    pub client_memory_max: i64,
    /// Most bytes of a client's query buffer.
    pub query_buffer_bytes_max: u64,
    /// Output limits of clients, replicas and subscribers.
    pub output_limits: [OutputLimit; 3],
    /// Keys looked at for one victim.
    pub maxmemory_samples: u32,
    /// Timer ticks a second.
    pub hz: u32,
    /// How much of the CPU active expiry may take: 1 to 10.
    pub active_expire_effort: u32,
    /// DEBUG may be called: `yes`, `local`, `no`.
    pub enable_debug_command: Permission,
    /// CONFIG SET may change `dir` and the like.
    pub enable_protected_configs: Permission,
    /// Lines below this weight are not logged; see `log.rs`.
    pub log_level: u8,
    /// File that the log goes to; none: standard output.
    pub logfile: Option<String>,
    /// Name mode, port and process id in the log at the start.
    pub logo: bool,
    /// File that the process id is written to.
    pub pidfile: Option<String>,
    /// CPUs that the workers run on, as the kernel lists them.
    pub server_cpulist: Option<String>,
    /// Settings of the process.
    pub service: ServiceSettings,
    /// Working directory; none: that of the process.
    pub dir: Option<PathBuf>,
    /// TLS.
    pub tls: TlsSettings,
    /// Percentiles that INFO latencystats shows, as they were written.
    pub latency_percentiles: Vec<String>,
    /// Parameters without effect that were set.
    pub kept: Kept,
}

/// A `user` line of a configuration file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UserLine {
    /// The user's name.
    pub name: Vec<u8>,
    /// Its rules.
    pub rules: Vec<Vec<u8>>,
}

/// TLS settings. Paths are kept as they were given; an empty one is none.
#[derive(Clone, Debug)]
pub struct TlsSettings {
    /// Port; `None`: no listener, 0: one that the system chooses.
    pub port: Option<u16>,
    /// The server's certificate.
    pub cert_file: Option<String>,
    /// Its key.
    pub key_file: Option<String>,
    /// The key's password; only keys without one are read.
    pub key_file_pass: Option<String>,
    /// Certificate for connections that the server makes.
    pub client_cert_file: Option<String>,
    /// Its key.
    pub client_key_file: Option<String>,
    /// Its password.
    pub client_key_file_pass: Option<String>,
    /// Authorities that are trusted.
    pub ca_cert_file: Option<String>,
    /// Folder of such.
    pub ca_cert_dir: Option<String>,
    /// Requirement for clients to present a certificate.
    pub auth_clients: ClientAuth,
    /// Versions, ciphers up to TLS 1.2, ciphers of TLS 1.3; empty: the usual ones.
    pub protocols: String,
    /// See `protocols`.
    pub ciphers: String,
    /// See `protocols`.
    pub ciphersuites: String,
    /// The server's order of ciphers decides.
    pub prefer_server_ciphers: bool,
    /// Sessions can be resumed.
    pub session_caching: bool,
    /// Most sessions that are kept for that.
    pub session_cache_size: usize,
    /// Seconds for which they are kept.
    pub session_cache_timeout_s: u64,
    /// Seconds between looks at whether the files have changed; 0: none.
    pub auto_reload_interval_s: u64,
}

impl TlsSettings {
    /// These settings as `redline-net` wants them.
    pub(crate) fn options(&self) -> ServerTlsOptions {
        let outgoing = self
            .client_cert_file
            .clone()
            .zip(self.client_key_file.clone());
        ServerTlsOptions {
            common: TlsOptions {
                cert_file: self.cert_file.clone(),
                key_file: self.key_file.clone(),
                ca_cert_file: self.ca_cert_file.clone(),
                ca_cert_dir: self.ca_cert_dir.clone(),
                protocols: self.protocols.clone(),
                ciphers: self.ciphers.clone(),
                ciphersuites: self.ciphersuites.clone(),
            },
            client_auth: self.auth_clients,
            prefer_server_ciphers: self.prefer_server_ciphers,
            session_cache: self.session_caching.then_some(SessionCache {
                entries_max: self.session_cache_size,
                lifetime: Duration::from_secs(self.session_cache_timeout_s),
            }),
            outgoing,
        }
    }
}

/// Permission to use a dangerous command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Permission {
    /// Nobody.
    No,
    /// Everybody.
    Yes,
    /// Clients on this machine.
    Local,
}

impl Settings {
    /// Returns these settings with some changed.
    pub fn with(mut self, change: impl FnOnce(&mut Settings)) -> Settings {
        change(&mut self);
        self
    }

    /// Returns the limit on the memory of all clients together: bytes; `None`: any amount.
    pub fn client_memory_limit(&self) -> Option<u64> {
        let limit = match u64::try_from(self.client_memory_max) {
            Ok(bytes) => bytes,
            Err(_) => {
                let percent = u128::from(self.client_memory_max.unsigned_abs());
                (u128::from(self.maxmemory_bytes) * percent / 100) as u64
            }
        };
        (limit != 0).then_some(limit)
    }
}

impl Deref for Settings {
    type Target = redline_engine::Settings;

    #[inline]
    fn deref(&self) -> &redline_engine::Settings {
        &self.engine
    }
}

impl DerefMut for Settings {
    fn deref_mut(&mut self) -> &mut redline_engine::Settings {
        &mut self.engine
    }
}

impl Default for Settings {
    fn default() -> Self {
        const MIB: u64 = 1024 * 1024;
        Settings {
            engine: redline_engine::Settings::default(),
            port: Some(6379),
            bind: vec!["*".into(), "-::*".into()],
            unixsocket: None,
            unixsocketperm: 0,
            unixsocketgroup: None,
            metrics_port: None,
            metrics_bind: vec!["127.0.0.1".into(), "-::1".into()],
            tcp_backlog: 511,
            tcp_keepalive_s: 300,
            threads: 0,
            event_coalescing_us: 50,
            balance_clients: true,
            databases: 16,
            timeout_s: 0,
            maxclients: 10_000,
            protected_mode: true,
            requirepass: None,
            acl_user_lines: Vec::new(),
            aclfile: None,
            acl_open_channels: false,
            names: Names::default(),
            client_memory_max: 0,
            query_buffer_bytes_max: limits::QUERY_BUFFER_BYTES_MAX,
            output_limits: [
                OutputLimit {
                    hard_bytes: 0,
                    soft_bytes: 0,
                    soft_seconds: 0,
                },
                OutputLimit {
                    hard_bytes: 256 * MIB,
                    soft_bytes: 64 * MIB,
                    soft_seconds: 60,
                },
                OutputLimit {
                    hard_bytes: 32 * MIB,
                    soft_bytes: 8 * MIB,
                    soft_seconds: 60,
                },
            ],
            maxmemory_samples: 5,
            hz: 10,
            active_expire_effort: 1,
            enable_debug_command: Permission::No,
            enable_protected_configs: Permission::No,
            log_level: crate::log::NOTICE,
            logfile: None,
            logo: false,
            pidfile: None,
            server_cpulist: None,
            service: ServiceSettings::default(),
            dir: None,
            tls: TlsSettings {
                port: None,
                cert_file: None,
                key_file: None,
                key_file_pass: None,
                client_cert_file: None,
                client_key_file: None,
                client_key_file_pass: None,
                ca_cert_file: None,
                ca_cert_dir: None,
                auth_clients: ClientAuth::Required,
                protocols: String::new(),
                ciphers: String::new(),
                ciphersuites: String::new(),
                prefer_server_ciphers: false,
                session_caching: true,
                session_cache_size: 20_480,
                session_cache_timeout_s: 300,
                auto_reload_interval_s: 0,
            },
            latency_percentiles: ["50", "99", "99.9"].map(String::from).into(),
            kept: Kept::new(),
        }
    }
}

/// The published settings.
pub struct Published(Mutex<Arc<Settings>>);

impl Published {
    /// The first settings.
    pub fn new(settings: Settings) -> Published {
        Published(Mutex::new(Arc::new(settings)))
    }

    /// The settings now.
    pub fn current(&self) -> Arc<Settings> {
        self.0.lock().expect("no panic under the settings").clone()
    }

    /// Publishes what `change` makes of a copy, to the engine as well, by whose epoch workers notice; on its error nothing
    /// changes.
    pub(crate) fn update<E>(
        &self,
        engine: &Engine,
        change: impl FnOnce(&mut Settings) -> Result<(), E>,
    ) -> Result<(), E> {
        let mut current = self.0.lock().expect("no panic under the settings");
        let mut settings = Settings::clone(&current);
        change(&mut settings)?;
        let of_engine = settings.engine.clone();
        *current = Arc::new(settings);
        // Behind the rest: who sees the epoch move takes both.
        engine.settings.publish(of_engine);
        Ok(())
    }
}
