//! The TLS of a port's new connections. Connections that have begun keep theirs. Must not know where files are.

use std::sync::{Mutex, PoisonError};

use redline_net::tls::ServerTls;

/// TLS for new connections, which can be replaced while others accept.
#[derive(Debug, Default)]
pub struct Certificates(Mutex<Option<ServerTls>>);

impl Certificates {
    /// Returns the TLS of a port; `None`: it has none.
    pub fn new(tls: Option<ServerTls>) -> Certificates {
        Certificates(Mutex::new(tls))
    }

    /// Returns the TLS for the next connection.
    pub fn current(&self) -> Option<ServerTls> {
        let current = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        current.clone()
    }

    /// Replaces the TLS of connections from now on.
    pub fn replace(&self, tls: Option<ServerTls>) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = tls;
    }
}
