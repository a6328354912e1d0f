//! The configuration as the workers read it: one plain structure, published whole.
//!
//! CONFIG SET makes a changed copy and publishes it; a worker that sees a new epoch takes it over before its next
//! command. Must not know: how a parameter is written (its fields are in the rows of `config/table.rs`).

use std::{
    ops::{Deref, DerefMut},
    sync::{Arc, Mutex},
    time::Duration,
};

use redline_engine::Engine;
use redline_net::tls::{ClientTlsOptions, Peer, ServerTlsOptions, SessionCache, TlsOptions};
use redline_settings::choices;

pub use crate::config::table::{ServiceSettings, Settings, TlsSettings};

/// Limits on unread output of a client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OutputLimit {
    /// Bytes above which the client is closed at once; 0: no limit.
    pub hard_bytes: u64,
    /// Bytes above which the client is closed after `soft_seconds`; 0: no limit.
    pub soft_bytes: u64,
    /// See `soft_bytes`.
    pub soft_seconds: u64,
}

impl OutputLimit {
    /// A limit that never applies.
    pub const NONE: OutputLimit = OutputLimit {
        hard_bytes: 0,
        soft_bytes: 0,
        soft_seconds: 0,
    };
}

/// A `user` line of a configuration file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UserLine {
    /// Name of the user.
    pub name: Vec<u8>,
    /// Rules of the user.
    pub rules: Vec<Vec<u8>>,
}

impl TlsSettings {
    /// Returns the settings of a connection that this server makes: its client certificate is that of its own port, unless
    /// there is another for it.
    pub(crate) fn client_options(&self) -> ClientTlsOptions {
        let mut common = self.options().common;
        let named = self
            .client_cert_file
            .clone()
            .zip(self.client_key_file.clone());
        if let Some((cert_file, key_file)) = named {
            common.cert_file = Some(cert_file);
            common.key_file = Some(key_file);
        }
        ClientTlsOptions {
            common,
            server_name: None,
            peer: Peer::Trusted,
        }
    }

    /// Returns these settings in the form of `redline-net`.
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
    /// For no client.
    No,
    /// For every client.
    Yes,
    /// For clients on this machine.
    Local,
}

/// The way of a primary's snapshot into a replica's tables.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DisklessLoad {
    /// Through a file.
    Never,
    /// As it comes, if there are no data; otherwise through a file.
    OnEmpty,
    /// As it comes, beside the data.
    Beside,
    /// As it comes, when the data have been dropped.
    Emptied,
}

/// Way to reach a node that clients of its cluster are told first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EndpointType {
    /// By its address.
    Ip,
    /// By its host name.
    Hostname,
    /// As the client has reached it.
    UnknownEndpoint,
}

/// Replies of a primary that wait for other nodes of its shard.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ClusterAcks {
    /// None.
    None,
    /// Those that tell of a write, until every node that may take over has it.
    One,
}

/// Treatment of writes by a primary without a node that may take over.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ClusterAlone {
    /// They are refused.
    Refuse,
    /// They are taken, and may be lost.
    Accept,
}

choices! {
    ClusterAcks: ClusterAcks { "none" => None, "one" => One }
    ClusterAlone: ClusterAlone { "refuse" => Refuse, "accept" => Accept }
    EndpointType: EndpointType { "ip" => Ip, "hostname" => Hostname, "unknown-endpoint" => UnknownEndpoint }
    Permission: Permission { "no" => No, "yes" => Yes, "local" => Local }
}

/// The consequence of a command of a primary or of an append-only file that fails.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RefusedEffects {
    /// A line in the log.
    Ignore,
    /// The end of the process.
    End,
    /// The end of a replica that clients cannot write to.
    EndReplicas,
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

/// The published settings.
pub struct Published(Mutex<Arc<Settings>>);

impl Published {
    /// Publishes the first settings.
    pub fn new(settings: Settings) -> Published {
        Published(Mutex::new(Arc::new(settings)))
    }

    /// Returns the current settings.
    pub fn current(&self) -> Arc<Settings> {
        self.0.lock().expect("no panic under the settings").clone()
    }

    /// Publishes the changed copy that `change` makes, to the engine as well, by whose epoch workers notice; on its
    /// error nothing changes.
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
        // Behind the rest: a worker that sees the new epoch takes both.
        engine.settings.publish(of_engine);
        Ok(())
    }
}
