//! Versions and ciphers: OpenSSL's names and cipher lists, in terms of what rustls has.
//!
//! rustls has no cipher that is known to be weak, so most of a usual list (`HIGH:!aNULL:!MD5`) only has to be
//! understood. It must not know files or connections.

use std::sync::Arc;

use rustls::crypto::CryptoProvider;
use rustls::crypto::ring::cipher_suite as suite;
use rustls::crypto::ring::default_provider;
use rustls::{SupportedCipherSuite, SupportedProtocolVersion, version};

use super::{TlsError, TlsOptions, TlsPart};

/// Ciphers of TLS 1.2, best first: OpenSSL's name, the words of cipher lists that mean it, the suite.
static CIPHERS: [(&str, &[&str], SupportedCipherSuite); 6] = [
    (
        "ECDHE-ECDSA-AES256-GCM-SHA384",
        &["ECDSA", "AES256", "SHA384"],
        suite::TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384,
    ),
    (
        "ECDHE-RSA-AES256-GCM-SHA384",
        &["RSA", "AES256", "SHA384"],
        suite::TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384,
    ),
    (
        "ECDHE-ECDSA-AES128-GCM-SHA256",
        &["ECDSA", "AES128", "SHA256"],
        suite::TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256,
    ),
    (
        "ECDHE-RSA-AES128-GCM-SHA256",
        &["RSA", "AES128", "SHA256"],
        suite::TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256,
    ),
    (
        "ECDHE-ECDSA-CHACHA20-POLY1305",
        &["ECDSA", "CHACHA20", "SHA256"],
        suite::TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256,
    ),
    (
        "ECDHE-RSA-CHACHA20-POLY1305",
        &["RSA", "CHACHA20", "SHA256"],
        suite::TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305_SHA256,
    ),
];

/// Words that mean every one of them.
const ALL: [&str; 9] = [
    "ALL", "DEFAULT", "HIGH", "FIPS", "ECDHE", "EECDH", "kECDHE", "kEECDH", "TLSv1.2",
];

/// Ciphers of TLS 1.3, in the order in which OpenSSL offers them.
static CIPHERSUITES: [(&str, SupportedCipherSuite); 3] = [
    ("TLS_AES_256_GCM_SHA384", suite::TLS13_AES_256_GCM_SHA384),
    (
        "TLS_CHACHA20_POLY1305_SHA256",
        suite::TLS13_CHACHA20_POLY1305_SHA256,
    ),
    ("TLS_AES_128_GCM_SHA256", suite::TLS13_AES_128_GCM_SHA256),
];

/// Ciphers of TLS 1.3 that OpenSSL knows and rustls does not have.
const CIPHERSUITES_ABSENT: [&str; 2] = ["TLS_AES_128_CCM_SHA256", "TLS_AES_128_CCM_8_SHA256"];

/// Returns the cryptography, with the ciphers that `options` allows.
pub(super) fn provider(options: &TlsOptions) -> Result<Arc<CryptoProvider>, TlsError> {
    let mut cipher_suites = ciphersuites(&options.ciphersuites)?;
    cipher_suites.extend(ciphers(&options.ciphers)?);
    Ok(Arc::new(CryptoProvider {
        cipher_suites,
        ..default_provider()
    }))
}

/// Returns the versions that words name; all of ours without a word.
pub(super) fn versions(text: &str) -> Result<Vec<&'static SupportedProtocolVersion>, TlsError> {
    let refused = |why: &str| Err(TlsError::new(TlsPart::Protocols, why));
    let mut found = Vec::new();
    let mut words = 0;
    for word in text.split_ascii_whitespace() {
        words += 1;
        match word.to_ascii_lowercase().as_str() {
            "tlsv1" | "tlsv1.1" => {}
            "tlsv1.2" => found.push(&version::TLS12),
            "tlsv1.3" => found.push(&version::TLS13),
            _ => {
                return refused(
                    "Invalid tls-protocols specified. Use a combination of 'TLSv1.2' and 'TLSv1.3'.",
                );
            }
        }
    }
    match (words, found.is_empty()) {
        (0, _) => Ok(vec![&version::TLS13, &version::TLS12]),
        (_, true) => {
            refused("Invalid tls-protocols specified: TLSv1 and TLSv1.1 are not supported.")
        }
        _ => Ok(found),
    }
}

/// Returns those of our ciphers of TLS 1.2 that an OpenSSL cipher list selects, in its order.
fn ciphers(list: &str) -> Result<Vec<SupportedCipherSuite>, TlsError> {
    let list = if list.trim().is_empty() { "ALL" } else { list };
    let (mut chosen, mut banned) = (Vec::new(), Vec::new());
    for word in list.split([':', ',', ' ']).filter(|word| !word.is_empty()) {
        let (operator, word) = match word.as_bytes()[0] {
            operator @ (b'!' | b'-' | b'+') => (operator, &word[1..]),
            // @STRENGTH and @SECLEVEL say nothing about ciphers that are all strong.
            b'@' => continue,
            _ => (b' ', word),
        };
        let meant = (0..CIPHERS.len()).filter(|&at| means(word, at));
        let meant: Vec<usize> = meant.collect();
        match operator {
            b'!' => banned.extend_from_slice(&meant),
            b'-' => chosen.retain(|at| !meant.contains(at)),
            b'+' => {
                // Moves to the end.
                let (moved, kept): (Vec<usize>, Vec<usize>) =
                    chosen.iter().partition(|at| meant.contains(at));
                chosen = kept.into_iter().chain(moved).collect();
            }
            _ => {
                for at in meant {
                    if !chosen.contains(&at) {
                        chosen.push(at);
                    }
                }
            }
        }
    }
    chosen.retain(|at| !banned.contains(at));
    if chosen.is_empty() {
        return Err(TlsError::new(
            TlsPart::Ciphers,
            format!("Failed to configure ciphers: {list}: no cipher match"),
        ));
    }
    Ok(chosen.into_iter().map(|at| CIPHERS[at].2).collect())
}

/// Returns true if a word of a list means the cipher at `at`; several words with `+` between must all.
fn means(word: &str, at: usize) -> bool {
    let (name, kinds, suite) = &CIPHERS[at];
    let iana = format!("{:?}", suite.suite());
    if word.eq_ignore_ascii_case(name) || word == iana {
        return true;
    }
    word.split('+').all(|part| {
        let authentication = part.strip_prefix('a').unwrap_or(part);
        ALL.contains(&part)
            || (part == "AES" || part == "AESGCM") && name.contains("AES")
            // Alone, RSA also stands for key exchange by RSA, which is none of ours.
            || kinds.contains(&authentication) && (part != "RSA")
    })
}

/// Returns the ciphers of TLS 1.3 that a list names.
fn ciphersuites(list: &str) -> Result<Vec<SupportedCipherSuite>, TlsError> {
    let refused = |why: String| {
        Err(TlsError::new(
            TlsPart::Ciphersuites,
            format!("Failed to configure ciphersuites: {why}"),
        ))
    };
    let mut chosen = Vec::new();
    let mut names = 0;
    for name in list.split(':').filter(|name| !name.is_empty()) {
        names += 1;
        match CIPHERSUITES.iter().find(|(known, _)| *known == name) {
            Some((_, suite)) if !chosen.contains(suite) => chosen.push(*suite),
            Some(_) => {}
            None if CIPHERSUITES_ABSENT.contains(&name) => {}
            None => return refused(format!("{name}: no cipher match")),
        }
    }
    if names == 0 {
        return Ok(CIPHERSUITES.iter().map(|(_, suite)| *suite).collect());
    }
    if chosen.is_empty() {
        return refused(format!("{list}: none of them is supported"));
    }
    Ok(chosen)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(list: &str) -> Vec<&'static str> {
        let found = ciphers(list).unwrap_or_default();
        let name =
            |suite: &SupportedCipherSuite| CIPHERS.iter().find(|row| row.2 == *suite).unwrap().0;
        found.iter().map(name).collect()
    }

    #[test]
    fn cipher_lists_are_read_as_openssl_reads_them() {
        assert_eq!(names("").len(), 6);
        assert_eq!(names("HIGH:!aNULL:!MD5:@STRENGTH").len(), 6);
        assert_eq!(names("DEFAULT:!MEDIUM").len(), 6);
        assert_eq!(
            names("ECDHE-RSA-AES128-GCM-SHA256:ECDHE-RSA-AES256-GCM-SHA384"),
            ["ECDHE-RSA-AES128-GCM-SHA256", "ECDHE-RSA-AES256-GCM-SHA384"]
        );
        assert_eq!(
            names("ECDHE+AESGCM:!AES256"),
            [
                "ECDHE-ECDSA-AES128-GCM-SHA256",
                "ECDHE-RSA-AES128-GCM-SHA256"
            ]
        );
        assert_eq!(
            names("aRSA+CHACHA20 aRSA+AES128"),
            ["ECDHE-RSA-CHACHA20-POLY1305", "ECDHE-RSA-AES128-GCM-SHA256"]
        );
        assert_eq!(
            names("ALL:-ECDSA:+AES256").last(),
            Some(&"ECDHE-RSA-AES256-GCM-SHA384")
        );
        for nothing in ["RC4", "AES128-SHA", "nonsense", "ALL:!ECDHE", "!ALL"] {
            assert_eq!(names(nothing), [""; 0], "{nothing}");
        }
    }

    #[test]
    fn ciphersuites_are_named_one_by_one() {
        assert_eq!(ciphersuites("").unwrap().len(), 3);
        let two =
            ciphersuites("TLS_AES_128_GCM_SHA256:TLS_AES_128_CCM_SHA256:TLS_AES_256_GCM_SHA384");
        assert_eq!(
            two.unwrap(),
            [
                suite::TLS13_AES_128_GCM_SHA256,
                suite::TLS13_AES_256_GCM_SHA384
            ]
        );
        assert!(ciphersuites("HIGH").is_err());
        assert!(ciphersuites("TLS_AES_128_CCM_SHA256").is_err());
    }

    #[test]
    fn versions_are_named_as_in_redis() {
        assert_eq!(versions("").unwrap().len(), 2);
        assert_eq!(versions("tlsv1.3").unwrap(), [&version::TLS13]);
        assert_eq!(versions("TLSv1.1 TLSv1.2").unwrap(), [&version::TLS12]);
        assert!(versions("TLSv1 TLSv1.1").is_err());
        assert!(versions("SSLv3").is_err());
    }
}
