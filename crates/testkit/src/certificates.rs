//! Certificates for tests, made at run time: an authority and its certificates, as PEM text.
//!
//! Knows nothing of TLS.

use rcgen::{BasicConstraints, CertificateParams, DnType, IsCa, Issuer, KeyPair, KeyUsagePurpose};

/// A certificate and its private key, in PEM form.
#[derive(Clone, Debug)]
pub struct Certified {
    /// The certificate.
    pub cert: String,
    /// Its key, PKCS#8.
    pub key: String,
}

/// An authority that signs certificates.
pub struct Authority {
    issuer: Issuer<'static, KeyPair>,
    cert: String,
}

impl Authority {
    /// Returns an authority of that name, with a new key.
    pub fn new(name: &str) -> Authority {
        let key = KeyPair::generate().expect("a key can be made");
        let mut params = params(name);
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
        let cert = params.self_signed(&key).expect("a certificate can be made");
        Authority {
            cert: cert.pem(),
            issuer: Issuer::new(params, key),
        }
    }

    /// Returns its own certificate, in PEM form.
    pub fn cert(&self) -> &str {
        &self.cert
    }

    /// Returns a new certificate of that name, valid for servers and clients.
    pub fn certify(&self, name: &str) -> Certified {
        let key = KeyPair::generate().expect("a key can be made");
        let cert = params(name).signed_by(&key, &self.issuer);
        Certified {
            cert: cert.expect("a certificate can be made").pem(),
            key: key.serialize_pem(),
        }
    }
}

fn params(name: &str) -> CertificateParams {
    let names = vec![name.to_owned()];
    let mut params = CertificateParams::new(names).expect("the name is one");
    params.distinguished_name.push(DnType::CommonName, name);
    params
}
