//! Certificates and keys out of PEM files.
//!
//! It must not know the side that presents or trusts them. Errors name the file.

use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::SystemTime;
use std::{fs, io};

use rustls::RootCertStore;
use rustls::crypto::CryptoProvider;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::sign::CertifiedKey;
use rustls::{Error, InconsistentKeys};

use super::{TlsError, TlsOptions, TlsPart};
use crate::error_text;

/// Files that a system keeps its trusted authorities in; the first that exists counts.
const SYSTEM_AUTHORITIES: [&str; 5] = [
    "/etc/ssl/certs/ca-certificates.crt",
    "/etc/pki/tls/certs/ca-bundle.crt",
    "/etc/ssl/ca-bundle.pem",
    "/etc/ssl/cert.pem",
    "/usr/local/share/certs/ca-root-nss.crt",
];

/// Returns a certificate with the key that belongs to it.
pub(super) fn certified_key(
    provider: &CryptoProvider,
    cert_file: &str,
    key_file: &str,
) -> Result<CertifiedKey, TlsError> {
    let refused = |why: &str| {
        TlsError::new(
            TlsPart::Certificate,
            format!("Failed to load certificate: {cert_file}: {why}"),
        )
    };
    let chain = certificates(cert_file).map_err(|why| refused(&why))?;
    if chain.is_empty() {
        return Err(refused("it holds no certificate in PEM form"));
    }
    let refused = |why: String| {
        TlsError::new(
            TlsPart::Key,
            format!("Failed to load private key: {key_file}: {why}"),
        )
    };
    let pem = fs::read(key_file).map_err(|error| refused(error_text(&error)))?;
    if is_encrypted(&pem) {
        return Err(refused(
            "encrypted keys are not supported, `openssl pkey` writes it without its password"
                .into(),
        ));
    }
    let key = PrivateKeyDer::from_pem_slice(&pem)
        .map_err(|_| refused("it holds no private key in PEM form".into()))?;
    let key = provider
        .key_provider
        .load_private_key(key)
        .map_err(|error| refused(error.to_string()))?;
    let certified = CertifiedKey::new(chain, key);
    // Any other oddity of our own certificate is for the peers to judge.
    match certified.keys_match() {
        Err(Error::InconsistentKeys(InconsistentKeys::KeyMismatch)) => Err(refused(format!(
            "it does not belong to the certificate {cert_file}"
        ))),
        _ => Ok(certified),
    }
}

/// Returns true if the key is encrypted. PKCS#8 has a label for it, the older forms a header.
fn is_encrypted(pem: &[u8]) -> bool {
    let text = String::from_utf8_lossy(pem);
    text.contains("-----BEGIN ENCRYPTED PRIVATE KEY-----")
        || text.contains("Proc-Type: 4,ENCRYPTED")
}

/// Returns the trusted authorities of `options`; `None` if it names none.
pub(super) fn authorities(options: &TlsOptions) -> Result<Option<Arc<RootCertStore>>, TlsError> {
    if options.ca_cert_file.is_none() && options.ca_cert_dir.is_none() {
        return Ok(None);
    }
    let refused = |path: &str, why: &str| {
        TlsError::new(
            TlsPart::Authorities,
            format!("Failed to configure CA certificate(s) file/directory: {path}: {why}"),
        )
    };
    let mut roots = RootCertStore::empty();
    if let Some(file) = &options.ca_cert_file {
        let found = certificates(file).map_err(|why| refused(file, &why))?;
        if roots.add_parsable_certificates(found).0 == 0 {
            return Err(refused(file, "it holds no certificate of an authority"));
        }
    }
    if let Some(dir) = &options.ca_cert_dir {
        let paths = paths_in(dir).map_err(|error| refused(dir, &error_text(&error)))?;
        for path in paths.iter().filter(|path| path.is_file()) {
            // Such folders hold other files, too.
            roots.add_parsable_certificates(certificates(path).unwrap_or_default());
        }
    }
    Ok(Some(Arc::new(roots)))
}

/// Identity of a file, by which a replaced one is recognised; nothing if there is none.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Stamp {
    path: PathBuf,
    file: Option<(u64, u64, u64, SystemTime)>,
}

impl Stamp {
    fn of(path: PathBuf) -> Stamp {
        let metadata = fs::metadata(&path).ok();
        let file = metadata
            .and_then(|data| Some((data.dev(), data.ino(), data.len(), data.modified().ok()?)));
        Stamp { path, file }
    }
}

/// Returns all files that a server's side of TLS is made of.
pub(super) fn stamps(options: &TlsOptions, outgoing: Option<&(String, String)>) -> Vec<Stamp> {
    let named = [&options.cert_file, &options.key_file, &options.ca_cert_file];
    let outgoing = outgoing.into_iter().flat_map(|(cert, key)| [cert, key]);
    let named = named.into_iter().flatten().chain(outgoing);
    let mut paths: Vec<PathBuf> = named.map(PathBuf::from).collect();
    if let Some(dir) = &options.ca_cert_dir {
        paths.extend(paths_in(dir).unwrap_or_default());
    }
    paths.into_iter().map(Stamp::of).collect()
}

/// Returns the paths of everything in a folder, sorted by name.
fn paths_in(dir: &str) -> io::Result<Vec<PathBuf>> {
    let entries = fs::read_dir(dir)?.flatten();
    let mut paths: Vec<_> = entries.map(|entry| entry.path()).collect();
    paths.sort();
    Ok(paths)
}

/// Returns the authorities that the system trusts, or those that OpenSSL's variable names instead.
pub(super) fn system_authorities() -> Arc<RootCertStore> {
    let mut roots = RootCertStore::empty();
    let named = std::env::var_os("SSL_CERT_FILE").map(std::path::PathBuf::from);
    let usual = SYSTEM_AUTHORITIES.iter().map(std::path::PathBuf::from);
    if let Some(path) = named.into_iter().chain(usual).find(|path| path.is_file()) {
        roots.add_parsable_certificates(certificates(path).unwrap_or_default());
    }
    Arc::new(roots)
}

fn certificates(path: impl AsRef<Path>) -> Result<Vec<CertificateDer<'static>>, String> {
    let pem = fs::read(path).map_err(|error| error_text(&error))?;
    let found: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(&pem).collect();
    found.map_err(|_| "it is no well-formed PEM file".into())
}
