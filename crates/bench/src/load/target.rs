//! Target and user of a load: the requests that a connection sends before its first request of the load.
//!
//! Knows no socket and no command line.

use redline_resp::encode_request;

use crate::load::worker::Prefix;

/// Returns the arguments of AUTH, the name included; empty without a password.
pub fn auth(user: Option<&[u8]>, password: Option<&[u8]>) -> Vec<Vec<u8>> {
    match (user, password) {
        (_, None) => Vec::new(),
        (None, Some(password)) => vec![b"AUTH".to_vec(), password.to_vec()],
        (Some(user), Some(password)) => vec![b"AUTH".to_vec(), user.to_vec(), password.to_vec()],
    }
}

/// Returns the requests that each connection sends first, in redis-benchmark's order: HELLO comes last, so tracking is
/// enabled in RESP2.
pub fn prefix(auth: &[Vec<u8>], tracking: bool, db: i64, resp3: bool) -> Prefix {
    let mut prefix = Prefix::default();
    let mut add = |request: &[Vec<u8>]| {
        encode_request(request, &mut prefix.bytes);
        prefix.replies += 1;
    };
    if !auth.is_empty() {
        add(auth);
    }
    if tracking {
        add(&[b"CLIENT".to_vec(), b"TRACKING".to_vec(), b"on".to_vec()]);
    }
    if db != 0 {
        add(&[b"SELECT".to_vec(), db.to_string().into_bytes()]);
    }
    if resp3 {
        add(&[b"HELLO".to_vec(), b"3".to_vec()]);
    }
    prefix
}

/// `redis://[user:]password@host:port/db`, every part optional; `rediss` is with TLS, and Valkey's names mean the same.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Uri {
    /// The scheme is `rediss`.
    pub tls: bool,
    /// Percent-decoded, as the password; `None` if it is empty, as in `redis://:password@host`.
    pub user: Option<Vec<u8>>,
    /// `None` without an `@`.
    pub password: Option<Vec<u8>>,
    /// Without the brackets of an IPv6 address.
    pub host: Option<String>,
    /// As `atoi` reads it.
    pub port: Option<i64>,
    /// The path, as `atoi` reads it.
    pub db: Option<i64>,
    /// The path as it was written.
    pub path: String,
}

impl Uri {
    /// Parses it; the error is the line that redis-benchmark prints.
    pub fn parse(uri: &str) -> Result<Uri, String> {
        let Some((scheme, rest)) = uri.split_once("://") else {
            return Err("Invalid URI scheme".into());
        };
        let tls = match scheme.to_ascii_lowercase().as_str() {
            "redis" | "valkey" => false,
            "rediss" | "valkeys" => true,
            _ => return Err("Invalid URI scheme".into()),
        };
        let mut parsed = Uri {
            tls,
            ..Uri::default()
        };
        let rest = match rest.split_once('@') {
            Some((credentials, rest)) => {
                let password = match credentials.split_once(':') {
                    Some((user, password)) => {
                        parsed.user = Some(percent_decode(user)?).filter(|user| !user.is_empty());
                        password
                    }
                    None => credentials,
                };
                parsed.password = Some(percent_decode(password)?);
                rest
            }
            None => rest,
        };
        let (server, path) = rest.split_once('/').unwrap_or((rest, ""));
        let (host, port) = match server.strip_prefix('[').and_then(|s| s.split_once(']')) {
            Some((v6, after)) => (v6, after.strip_prefix(':')),
            None => match server.split_once(':') {
                Some((host, port)) => (host, Some(port)),
                None => (server, None),
            },
        };
        parsed.host = (!host.is_empty()).then(|| host.to_owned());
        parsed.port = port.map(|port| atoi(port.as_bytes()));
        parsed.db = (!path.is_empty()).then(|| atoi(path.as_bytes()));
        parsed.path = path.to_owned();
        Ok(parsed)
    }
}

fn percent_decode(text: &str) -> Result<Vec<u8>, String> {
    let mut out = Vec::with_capacity(text.len());
    let mut bytes = text.bytes();
    while let Some(byte) = bytes.next() {
        if byte != b'%' {
            out.push(byte);
            continue;
        }
        let (high, low) = (bytes.next(), bytes.next());
        let digit = |byte: Option<u8>| byte.and_then(|b| char::from(b).to_digit(16));
        match (digit(high), digit(low)) {
            (Some(high), Some(low)) => out.push((high * 16 + low) as u8),
            // redis-benchmark checks for one character behind the sign, and then reads two.
            _ if high.is_none() => return Err("Incomplete URI encoding".into()),
            _ => return Err("Illegal character in URI encoding".into()),
        }
    }
    Ok(out)
}

/// Parses a number as C's `atoi` does: blanks, a sign, digits; anything else ends the number. Saturates instead of
/// wrapping.
pub fn atoi(bytes: &[u8]) -> i64 {
    let rest = bytes.trim_ascii_start();
    let (negative, digits) = match rest.first() {
        Some(b'-') => (true, &rest[1..]),
        Some(b'+') => (false, &rest[1..]),
        _ => (false, rest),
    };
    let magnitude = digits
        .iter()
        .take_while(|b| b.is_ascii_digit())
        .fold(0i64, |n, b| {
            n.saturating_mul(10).saturating_add(i64::from(b - b'0'))
        });
    if negative { -magnitude } else { magnitude }
}
