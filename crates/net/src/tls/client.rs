//! The TLS configuration of a client: trusted authorities, its certificate, versions, ciphers.
//!
//! It must not know connections.

use std::sync::Arc;

use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::client::{Resumption, verify_server_cert_signed_by_trust_anchor, verify_server_name};
use rustls::crypto::{CryptoProvider, verify_tls12_signature, verify_tls13_signature};
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::server::ParsedCertificate;
use rustls::{ClientConfig, DigitallySignedStruct, Error, RootCertStore, SignatureScheme};

use super::{TlsError, TlsOptions, TlsPart, ciphers, files};

/// The requirements on the server's certificate.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Peer {
    /// A trusted authority has signed it. Its name is not checked, as in redis-cli and redis-benchmark.
    #[default]
    Trusted,
    /// A trusted authority has signed it, and it has the name that is asked for: there must be one.
    Named,
    /// Nothing.
    Anyone,
}

/// The TLS options of a client.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ClientTlsOptions {
    /// The options that clients and servers have in common. Without authorities, those of the system are trusted.
    pub common: TlsOptions,
    /// The server name to ask for (SNI); without one, none is sent.
    pub server_name: Option<String>,
    /// The requirements on the server's certificate.
    pub peer: Peer,
}

/// A client's side of TLS, ready for connections. Cheap to clone.
#[derive(Debug, Clone)]
pub struct ClientTls {
    config: Arc<ClientConfig>,
    name: ServerName<'static>,
}

impl ClientTls {
    /// Reads the files and checks everything.
    pub fn new(options: &ClientTlsOptions) -> Result<ClientTls, TlsError> {
        let common = &options.common;
        let library =
            |error: &dyn std::fmt::Display| TlsError::new(TlsPart::Library, error.to_string());
        let provider = ciphers::provider(common)?;
        let roots = match (files::authorities(common)?, options.peer) {
            (Some(roots), _) => Some(roots),
            (None, Peer::Trusted | Peer::Named) => Some(files::system_authorities()),
            (None, Peer::Anyone) => None,
        };
        let builder = ClientConfig::builder_with_provider(provider.clone())
            .with_protocol_versions(&ciphers::versions(&common.protocols)?)
            .map_err(|error| library(&error))?
            .dangerous()
            .with_custom_certificate_verifier(Arc::new(Verifier {
                provider: provider.clone(),
                roots: roots.filter(|_| options.peer != Peer::Anyone),
                is_named: options.peer == Peer::Named,
            }));
        let mut config = match (&common.cert_file, &common.key_file) {
            (Some(cert_file), Some(key_file)) => {
                let certified = files::certified_key(&provider, cert_file, key_file)?;
                let resolver = rustls::sign::SingleCertAndKey::from(certified);
                builder.with_client_cert_resolver(Arc::new(resolver))
            }
            (None, None) => builder.with_no_client_auth(),
            (Some(_), None) => {
                return Err(TlsError::new(TlsPart::Key, "the certificate has no key"));
            }
            (None, Some(_)) => {
                return Err(TlsError::new(
                    TlsPart::Certificate,
                    "the key has no certificate",
                ));
            }
        };
        config.resumption = Resumption::disabled();
        config.enable_sni = options.server_name.is_some();
        let name = options.server_name.as_deref().unwrap_or("localhost");
        let name = ServerName::try_from(name.to_owned()).map_err(|_| {
            TlsError::new(
                TlsPart::ServerName,
                format!("'{name}' is no name of a server"),
            )
        })?;
        Ok(ClientTls {
            config: Arc::new(config),
            name,
        })
    }

    pub(super) fn config(&self) -> Arc<ClientConfig> {
        self.config.clone()
    }

    pub(super) fn name(&self) -> ServerName<'static> {
        self.name.clone()
    }
}

/// Checks the chain up to a trusted authority and the name, if that is asked for, and then the server's signature.
#[derive(Debug)]
struct Verifier {
    provider: Arc<CryptoProvider>,
    roots: Option<Arc<RootCertStore>>,
    is_named: bool,
}

impl ServerCertVerifier for Verifier {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        name: &ServerName<'_>,
        _: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        if let Some(roots) = &self.roots {
            let certificate = ParsedCertificate::try_from(end_entity)?;
            if self.is_named {
                verify_server_name(&certificate, name)?;
            }
            verify_server_cert_signed_by_trust_anchor(
                &certificate,
                roots,
                intermediates,
                now,
                self.provider.signature_verification_algorithms.all,
            )?;
        }
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        if self.roots.is_none() {
            return Ok(HandshakeSignatureValid::assertion());
        }
        let algorithms = &self.provider.signature_verification_algorithms;
        verify_tls12_signature(message, cert, signature, algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        if self.roots.is_none() {
            return Ok(HandshakeSignatureValid::assertion());
        }
        let algorithms = &self.provider.signature_verification_algorithms;
        verify_tls13_signature(message, cert, signature, algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.provider
            .signature_verification_algorithms
            .supported_schemes()
    }
}
