//! A store in etcd, by its JSON gateway: HTTP, with TLS and a user if they are given.
//!
//! A call is tried at one endpoint after the other, [`TRY`] each and [`CALL`] in all, beginning with the one that answered
//! last. A transaction goes on to the next endpoint only if it has certainly not been sent: who gets no answer gets
//! [`StoreError::Undecided`], and a read decides.
//!
//! Must not know: what the keys and values mean.

pub(crate) mod form;
mod watching;

use std::{
    io::{self, Read},
    sync::{
        Arc, Mutex,
        atomic::{AtomicUsize, Ordering},
    },
    time::{Duration, Instant},
};

use serde_json::{Value, json};
use ureq::{
    Agent, Body,
    http::Response,
    tls::{Certificate, ClientCert, PemItem, PrivateKey, RootCerts, TlsConfig, parse_pem},
};

use crate::{Answer, LeaseId, Listing, Range, Store, StoreError, Transaction, Watch};
use form::{Fault, code};
use watching::Watching;

/// Time that one endpoint has for one call.
const TRY: Duration = Duration::from_millis(500);
/// Time that a call may take in all.
const CALL: Duration = Duration::from_secs(2);
/// Silence of a watch after which it is opened anew.
const WATCH_SILENCE: Duration = Duration::from_secs(3);
/// Largest answer: bytes.
const ANSWER_BYTES_MAX: u64 = 64 << 20;

/// The way to an etcd.
#[derive(Clone, Default)]
pub struct GatewayOptions {
    /// Its members, as `http://host:port` or `https://host:port`.
    pub endpoints: Vec<String>,
    /// Beginning of all keys.
    pub prefix: String,
    /// User and password.
    pub user: Option<(String, String)>,
    /// Certificates of the authorities that etcd's has to be signed by: PEM.
    pub authorities: Option<Vec<u8>>,
    /// Certificate and private key of this client: PEM each.
    pub certificate: Option<(Vec<u8>, Vec<u8>)>,
}

/// See the head of the module. Clones share connections.
#[derive(Clone)]
pub struct Gateway(Arc<Client>);

struct Client {
    options: GatewayOptions,
    agent: Agent,
    /// Index of the endpoint that answered last.
    last: AtomicUsize,
    token: Mutex<Option<String>>,
}

/// Reason why one endpoint did not do a call.
enum Failed {
    /// It was not sent.
    Unsent(String),
    /// It was sent, and no whole answer came.
    Unanswered(String),
    /// etcd refused it.
    Fault(Fault),
}

impl Gateway {
    /// Makes a store; nothing is sent yet. An error is the reason, of one line.
    pub fn new(options: GatewayOptions) -> Result<Gateway, String> {
        if options.endpoints.is_empty() {
            return Err("no endpoint of etcd is given".into());
        }
        for endpoint in &options.endpoints {
            check_endpoint(endpoint)?;
        }
        let is_tls = |endpoint: &String| endpoint.starts_with("https://");
        let mut config = Agent::config_builder()
            .http_status_as_error(false)
            .max_redirects(0)
            .proxy(None)
            .user_agent("redline");
        if options.endpoints.iter().any(is_tls) {
            config = config.tls_config(tls_of(&options)?);
        }
        Ok(Gateway(Arc::new(Client {
            agent: config.build().into(),
            options,
            last: AtomicUsize::new(0),
            token: Mutex::new(None),
        })))
    }
}

/// Checks the form of an endpoint.
fn check_endpoint(endpoint: &str) -> Result<(), String> {
    let rest = endpoint
        .strip_prefix("http://")
        .or_else(|| endpoint.strip_prefix("https://"));
    let port = rest.and_then(|rest| rest.rsplit_once(':'));
    let is_right = port.is_some_and(|(host, port)| {
        let fits = |c: char| c.is_ascii_alphanumeric() || "-._[]:".contains(c);
        !host.is_empty() && host.chars().all(fits) && port.parse::<u16>().is_ok_and(|port| port > 0)
    });
    match is_right {
        true => Ok(()),
        false => Err(format!(
            "{endpoint:?} is no endpoint of etcd: it has the form http://host:port or https://host:port"
        )),
    }
}

fn tls_of(options: &GatewayOptions) -> Result<TlsConfig, String> {
    let Some(authorities) = &options.authorities else {
        return Err("an endpoint of etcd with https needs a file of authorities".into());
    };
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let mut tls = TlsConfig::builder()
        .unversioned_rustls_crypto_provider(provider)
        .root_certs(RootCerts::Specific(Arc::new(certificates(authorities)?)));
    if let Some((certificate, key)) = &options.certificate {
        let key = PrivateKey::from_pem(key)
            .map_err(|error| format!("the private key for etcd: {error}"))?;
        let certificate = ClientCert::new_with_certs(&certificates(certificate)?, key);
        tls = tls.client_cert(Some(certificate));
    }
    Ok(tls.build())
}

fn certificates(pem: &[u8]) -> Result<Vec<Certificate<'static>>, String> {
    let mut found = Vec::new();
    for item in parse_pem(pem) {
        match item.map_err(|error| format!("the certificates for etcd: {error}"))? {
            PemItem::Certificate(certificate) => found.push(certificate),
            _ => continue,
        }
    }
    match found.is_empty() {
        true => Err("the certificates for etcd: there is none in the file".into()),
        false => Ok(found),
    }
}

impl Client {
    /// Does a call; `is_repeatable`: it may be done twice.
    fn call(&self, path: &str, body: &Value, is_repeatable: bool) -> Result<Vec<u8>, StoreError> {
        let ends = Instant::now() + CALL;
        let count = self.options.endpoints.len();
        let first = self.last.load(Ordering::Relaxed);
        let mut last = "no time was left".to_owned();
        let mut has_renewed = false;
        let mut number = 0;
        while number < count.max(2) && Instant::now() < ends {
            let index = (first + number) % count;
            match self.at(index, path, body, ends) {
                Ok(text) => {
                    self.last.store(index, Ordering::Relaxed);
                    return Ok(text);
                }
                Err(Failed::Fault(fault))
                    if fault.code == code::UNAUTHENTICATED
                        && self.options.user.is_some()
                        && !has_renewed =>
                {
                    has_renewed = true;
                    *self.token.lock().expect("no panic under the token") = None;
                    continue;
                }
                Err(Failed::Fault(fault)) if fault.is_refusal() => {
                    return Err(StoreError::Refused(self.named(index, &fault.text)));
                }
                Err(Failed::Fault(fault)) if fault.is_certain() || is_repeatable => {
                    last = self.named(index, &fault.text);
                }
                Err(Failed::Unsent(why)) => last = self.named(index, &why),
                Err(Failed::Unanswered(why)) if is_repeatable => last = self.named(index, &why),
                Err(Failed::Unanswered(why) | Failed::Fault(Fault { text: why, .. })) => {
                    self.last.store((index + 1) % count, Ordering::Relaxed);
                    return Err(StoreError::Undecided(self.named(index, &why)));
                }
            }
            number += 1;
        }
        Err(StoreError::Unavailable(last))
    }

    fn named(&self, index: usize, why: &str) -> String {
        format!("etcd at {}: {why}", self.options.endpoints[index])
    }

    /// Does a call at one endpoint.
    fn at(&self, index: usize, path: &str, body: &Value, ends: Instant) -> Result<Vec<u8>, Failed> {
        let token = self.token_for(index)?;
        // A password takes etcd long, on purpose.
        let limit = match &token {
            Some((_, true)) => TRY,
            _ => TRY.min(ends.saturating_duration_since(Instant::now())),
        };
        let token = token.as_ref().map(|(token, _)| token.as_str());
        self.post(index, path, body, token, limit)
    }

    /// Returns the token of the user, if there is a user: the one that is known, or a new one, and true if it is new.
    fn token_for(&self, index: usize) -> Result<Option<(String, bool)>, Failed> {
        let Some((name, password)) = &self.options.user else {
            return Ok(None);
        };
        let known = self.token.lock().expect("no panic under the token").clone();
        if let Some(known) = known {
            return Ok(Some((known, false)));
        }
        let body = json!({"name": name, "password": password});
        let answer = self
            .post(index, "/v3/auth/authenticate", &body, None, CALL)
            .map_err(|failed| match failed {
                // What it was asked for was not sent.
                Failed::Unanswered(why) => Failed::Unsent(why),
                Failed::Fault(fault) => Failed::Fault(Fault {
                    text: format!("the user {name} is not let in: {}", fault.text),
                    code: match fault.code {
                        code::UNAUTHENTICATED => code::PERMISSION_DENIED,
                        other => other,
                    },
                }),
                unsent => unsent,
            })?;
        let token = form::token(&answer).map_err(Failed::Unsent)?;
        *self.token.lock().expect("no panic under the token") = Some(token.clone());
        Ok(Some((token, true)))
    }

    fn post(
        &self,
        index: usize,
        path: &str,
        body: &Value,
        token: Option<&str>,
        limit: Duration,
    ) -> Result<Vec<u8>, Failed> {
        let response = self.send(index, path, body, token, |config| {
            config.timeout_global(Some(limit.max(Duration::from_millis(1))))
        })?;
        let status = response.status().as_u16();
        let mut answer = Vec::new();
        let mut reader = response
            .into_body()
            .into_reader()
            .take(ANSWER_BYTES_MAX + 1);
        let read = reader.read_to_end(&mut answer);
        read.map_err(|error| Failed::Unanswered(in_words(&error)))?;
        if answer.len() as u64 > ANSWER_BYTES_MAX {
            return Err(Failed::Unanswered("its answer has more than 64 MiB".into()));
        }
        checked(status, answer)
    }

    /// Sends a request and waits for the head of its answer.
    fn send(
        &self,
        index: usize,
        path: &str,
        body: &Value,
        token: Option<&str>,
        timed: impl FnOnce(Timed) -> Timed,
    ) -> Result<Response<Body>, Failed> {
        let mut request = self
            .agent
            .post(format!("{}{path}", self.options.endpoints[index]))
            .header("content-type", "application/json");
        if let Some(token) = token {
            request = request.header("authorization", token);
        }
        let request = timed(request.config().timeout_connect(Some(TRY))).build();
        request.send(body.to_string()).map_err(failed)
    }
}

type Timed = ureq::config::ConfigBuilder<ureq::typestate::RequestScope<ureq::typestate::WithBody>>;

/// Returns the answer, or the error that it is.
fn checked(status: u16, answer: Vec<u8>) -> Result<Vec<u8>, Failed> {
    if status == 200 {
        return Ok(answer);
    }
    Err(match form::fault(&answer) {
        Some(fault) => Failed::Fault(fault),
        None if (300..500).contains(&status) => Failed::Fault(Fault {
            code: code::INVALID_ARGUMENT,
            text: format!("it answers with the status {status}, as no gateway of etcd does"),
        }),
        None => Failed::Unanswered(format!("it answers with the status {status}")),
    })
}

fn failed(error: ureq::Error) -> Failed {
    use ureq::{Error, Timeout};
    let text = in_words(&error);
    match error {
        Error::HostNotFound
        | Error::ConnectionFailed
        | Error::BadUri(_)
        | Error::Tls(_)
        | Error::Pem(_)
        | Error::Rustls(_)
        | Error::TlsRequired
        | Error::Timeout(Timeout::Resolve | Timeout::Connect) => Failed::Unsent(text),
        Error::Io(error) if is_unsent(&error) => Failed::Unsent(text),
        _ => Failed::Unanswered(text),
    }
}

/// Returns true if no connection was made, or TLS did not begin.
fn is_unsent(error: &io::Error) -> bool {
    let kind = error.kind();
    let is_of_tls = error
        .get_ref()
        .is_some_and(|inner| inner.downcast_ref::<rustls::Error>().is_some());
    is_of_tls
        || matches!(
            kind,
            io::ErrorKind::ConnectionRefused
                | io::ErrorKind::HostUnreachable
                | io::ErrorKind::NetworkUnreachable
                | io::ErrorKind::AddrNotAvailable
        )
}

fn in_words(error: &dyn std::error::Error) -> String {
    let text = error.to_string();
    text.strip_prefix("io: ").unwrap_or(&text).to_owned()
}

/// Returns the error for an answer that is none.
fn strange(why: String) -> String {
    format!("etcd gives an answer that is none: {why}")
}

impl Store for Gateway {
    fn range(&self, range: &Range) -> Result<Listing, StoreError> {
        let prefix = &self.0.options.prefix;
        let text = self
            .0
            .call("/v3/kv/range", &form::range(prefix, range), true)?;
        form::listing(prefix, &text).map_err(|why| StoreError::Damaged(strange(why)))
    }

    fn transact(&self, transaction: &Transaction) -> Result<Answer, StoreError> {
        crate::tree::check_limits(transaction)?;
        let prefix = &self.0.options.prefix;
        let body = form::transaction(prefix, transaction);
        let text = self.0.call("/v3/kv/txn", &body, false)?;
        let answer = form::answer(prefix, transaction, &text);
        answer.map_err(|why| StoreError::Undecided(strange(why)))
    }

    fn grant_lease(&self, ttl_s: u64) -> Result<LeaseId, StoreError> {
        let body = json!({"TTL": ttl_s.max(1).to_string()});
        // One that nobody knows ends by itself.
        let text = self.0.call("/v3/lease/grant", &body, true)?;
        form::granted(&text).map_err(|why| StoreError::Damaged(strange(why)))
    }

    fn keep_lease(&self, lease: LeaseId) -> Result<bool, StoreError> {
        let body = json!({"ID": lease.0.to_string()});
        let text = self.0.call("/v3/lease/keepalive", &body, true)?;
        form::kept(&text).map_err(|why| StoreError::Damaged(strange(why)))
    }

    fn watch(&self, from_revision: u64) -> Result<Box<dyn Watch>, StoreError> {
        Ok(Box::new(Watching::start(self.0.clone(), from_revision)?))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn endpoints_have_one_form() {
        for right in [
            "http://etcd:2379",
            "https://10.0.0.1:1",
            "http://[::1]:2379",
        ] {
            assert_eq!(check_endpoint(right), Ok(()));
        }
        for wrong in [
            "etcd:2379",
            "http://etcd",
            "http://:2379",
            "http://e:0",
            "http://e:65536",
            "http://u@e:1",
            "http://e:1/x",
            "ftp://e:1",
            "",
        ] {
            assert!(check_endpoint(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn what_an_endpoint_with_tls_needs_is_asked_for() {
        let options = |authorities: Option<&[u8]>| GatewayOptions {
            endpoints: vec!["https://e:1".into()],
            authorities: authorities.map(<[u8]>::to_vec),
            ..GatewayOptions::default()
        };
        let error = |of| Gateway::new(of).err().expect("it is refused");
        assert!(error(options(None)).contains("a file of authorities"));
        assert!(error(options(Some(b"x"))).contains("there is none in the file"));
    }

    #[test]
    fn nobody_there_is_unavailable_and_not_undecided() {
        // The port of a listener that is gone.
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        drop(listener);
        let store = Gateway::new(GatewayOptions {
            endpoints: vec![format!("http://127.0.0.1:{port}")],
            prefix: "/p/".into(),
            ..GatewayOptions::default()
        });
        let result = store.unwrap().transact(&Transaction::default());
        let Err(StoreError::Unavailable(why)) = result else {
            panic!("{result:?}");
        };
        assert!(
            why.starts_with(&format!("etcd at http://127.0.0.1:{port}: "))
                && why.contains("refused"),
            "{why}"
        );
    }

    #[test]
    fn a_transaction_whose_answer_is_lost_is_undecided_and_not_sent_again() {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let endpoint = format!("http://{}", listener.local_addr().unwrap());
        let server = std::thread::spawn(move || {
            let (mut first, _) = listener.accept().unwrap();
            let mut head = [0; 4096];
            let count = first.read(&mut head).unwrap();
            drop(first);
            listener.set_nonblocking(true).unwrap();
            (head[..count].starts_with(b"POST /v3/kv/txn"), listener)
        });
        let store = Gateway::new(GatewayOptions {
            endpoints: vec![endpoint.clone(), endpoint],
            prefix: "/p/".into(),
            ..GatewayOptions::default()
        });
        let result = store.unwrap().transact(&Transaction::default());
        assert!(
            matches!(result, Err(StoreError::Undecided(_))),
            "{result:?}"
        );
        let (was_transaction, listener) = server.join().unwrap();
        assert!(was_transaction);
        assert!(listener.accept().is_err(), "it came a second time");
    }
}
