//! The configuration as the workers read it: one plain structure, published whole.
//!
//! CONFIG SET makes a changed copy and publishes it; a worker that sees the epoch move takes the new one
//! before its next command. Must not know: how a parameter is written (its fields are in the rows of
//! `config/table.rs`).

use std::{
    ops::{Deref, DerefMut},
    sync::{Arc, Mutex},
    time::Duration,
};

use redline_engine::Engine;
use redline_net::tls::{ServerTlsOptions, SessionCache, TlsOptions};
use redline_settings::choices;

pub use crate::config::table::{ServiceSettings, Settings, TlsSettings};

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

impl OutputLimit {
    /// No limit.
    pub const NONE: OutputLimit = OutputLimit {
        hard_bytes: 0,
        soft_bytes: 0,
        soft_seconds: 0,
    };
}

/// A `user` line of a configuration file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UserLine {
    /// The user's name.
    pub name: Vec<u8>,
    /// Its rules.
    pub rules: Vec<Vec<u8>>,
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

choices! {
    Permission: Permission { "no" => No, "yes" => Yes, "local" => Local }
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
