//! The TLS configuration of a server: its certificate, the clients that it accepts, versions, ciphers,
//! resumption.
//!
//! It must not know connections; each of them takes a copy of the pointer when it begins.

use std::sync::Arc;
use std::time::Duration;

use rustls::ServerConfig;
use rustls::server::{
    ClientHello, NoServerSessionStorage, ResolvesServerCert, WebPkiClientVerifier,
};
use rustls::sign::CertifiedKey;

use super::files::Stamp;
use super::sessions::Sessions;
use super::{TlsError, TlsOptions, TlsPart, ciphers, files};

/// The requirement on clients to present a certificate.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum ClientAuth {
    /// They are not asked.
    No,
    /// They must.
    #[default]
    Required,
    /// They are asked; one that they present must be good.
    Optional,
}

/// Rules by which sessions can be resumed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SessionCache {
    /// Number of sessions that are kept; 0: as many as the limit of this program allows.
    pub entries_max: usize,
    /// Time for which they are kept.
    pub lifetime: Duration,
}

/// Limit on sessions that are kept, whatever the options say.
const SESSIONS_MAX: usize = 1 << 20;

/// The TLS options of a server.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ServerTlsOptions {
    /// The options that clients and servers have in common; certificate and key must be there.
    pub common: TlsOptions,
    /// The requirement on clients to present a certificate.
    pub client_auth: ClientAuth,
    /// The server's order of ciphers decides, not the client's.
    pub prefer_server_ciphers: bool,
    /// Rules by which sessions are resumed; `None`: not at all.
    pub session_cache: Option<SessionCache>,
    /// Certificate and key for connections that the server makes itself.
    pub outgoing: Option<(String, String)>,
}

/// A server's side of TLS, ready for connections. Cheap to clone.
#[derive(Debug, Clone)]
pub struct ServerTls {
    config: Arc<ServerConfig>,
    /// The files that it was made of, as they were just before they were read.
    files: Arc<[Stamp]>,
}

impl ServerTls {
    /// Reads the files and checks everything.
    pub fn new(options: &ServerTlsOptions) -> Result<ServerTls, TlsError> {
        let common = &options.common;
        let stamps = files::stamps(common, options.outgoing.as_ref()).into();
        let missing = |part, name| TlsError::new(part, format!("No {name} configured!"));
        let cert_file = common.cert_file.as_deref();
        let cert_file = cert_file.ok_or_else(|| missing(TlsPart::Certificate, "tls-cert-file"))?;
        let key_file = common.key_file.as_deref();
        let key_file = key_file.ok_or_else(|| missing(TlsPart::Key, "tls-key-file"))?;
        let provider = ciphers::provider(common)?;
        let certified = files::certified_key(&provider, cert_file, key_file)?;
        if let Some((cert_file, key_file)) = &options.outgoing {
            files::certified_key(&provider, cert_file, key_file)?;
        }
        let library =
            |error: &dyn std::fmt::Display| TlsError::new(TlsPart::Library, error.to_string());
        let builder = ServerConfig::builder_with_provider(provider.clone())
            .with_protocol_versions(&ciphers::versions(&common.protocols)?)
            .map_err(|error| library(&error))?;
        let authorities = files::authorities(common)?;
        let builder = match (options.client_auth, authorities) {
            (ClientAuth::No, _) => builder.with_no_client_auth(),
            (_, None) => {
                return Err(TlsError::new(
                    TlsPart::Authorities,
                    "Either tls-ca-cert-file or tls-ca-cert-dir must be specified when tls-auth-clients is enabled!",
                ));
            }
            (auth, Some(roots)) => {
                let verifier = WebPkiClientVerifier::builder_with_provider(roots, provider);
                let verifier = match auth {
                    ClientAuth::Optional => verifier.allow_unauthenticated(),
                    _ => verifier,
                };
                let verifier = verifier.build().map_err(|error| {
                    TlsError::new(
                        TlsPart::Authorities,
                        format!("Failed to configure CA certificate(s) file/directory: {error}"),
                    )
                })?;
                builder.with_client_cert_verifier(verifier)
            }
        };
        let mut config = builder.with_cert_resolver(Arc::new(OneCertificate(Arc::new(certified))));
        config.ignore_client_order = options.prefer_server_ciphers;
        match options.session_cache {
            Some(SessionCache {
                entries_max,
                lifetime,
            }) => {
                let entries_max = match entries_max {
                    0 => SESSIONS_MAX,
                    asked => asked.min(SESSIONS_MAX),
                };
                config.session_storage = Arc::new(Sessions::new(entries_max, lifetime));
            }
            None => {
                config.session_storage = Arc::new(NoServerSessionStorage {});
                config.send_tls13_tickets = 0;
            }
        }
        Ok(ServerTls {
            config: Arc::new(config),
            files: stamps,
        })
    }

    /// Returns true if a file that it was made of has changed since, is gone, or is new in a folder.
    pub fn is_outdated(&self, options: &ServerTlsOptions) -> bool {
        *self.files != *files::stamps(&options.common, options.outgoing.as_ref())
    }

    pub(super) fn config(&self) -> Arc<ServerConfig> {
        self.config.clone()
    }
}

/// One certificate for every name. Unlike rustls's own, it takes certificates of old versions, which OpenSSL's
/// clients accept.
#[derive(Debug)]
struct OneCertificate(Arc<CertifiedKey>);

impl ResolvesServerCert for OneCertificate {
    fn resolve(&self, _: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        Some(self.0.clone())
    }
}
