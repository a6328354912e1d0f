//! The gateway and a real etcd: tests alone, each with one member, on free ports, with a folder of its own. They are run by
//! `cargo xtask compat cluster-etcd`, which names the program in REDLINE_ETCD.
//!
//! Must not know: how the gateway is built.

use std::{
    io::{Read, Write},
    net::{TcpListener, TcpStream},
    path::Path,
    process::{Child, Command, Stdio},
    time::{Duration, Instant},
};

use crate::{
    Event, Gateway, GatewayOptions, LeaseId, Memory, Operation, Range, Store, StoreError,
    Transaction, Watch, conformance,
};

const PATIENCE: Duration = Duration::from_secs(60);

/// A running etcd; it ends with this.
struct Etcd {
    process: Child,
    folder: tempfile::TempDir,
    port: u16,
    peer_port: u16,
}

fn free_port() -> u16 {
    TcpListener::bind("127.0.0.1:0")
        .unwrap()
        .local_addr()
        .unwrap()
        .port()
}

impl Etcd {
    fn start(more: &[&str]) -> Etcd {
        let (port, peer_port) = (free_port(), free_port());
        let folder = tempfile::tempdir().unwrap();
        let process = spawn(folder.path(), port, peer_port, more);
        let etcd = Etcd {
            process,
            folder,
            port,
            peer_port,
        };
        until("etcd answers", || {
            TcpStream::connect(("127.0.0.1", port)).is_ok()
        });
        etcd
    }

    fn restart(&mut self) {
        self.kill();
        self.process = spawn(self.folder.path(), self.port, self.peer_port, &[]);
        until("etcd answers", || {
            TcpStream::connect(("127.0.0.1", self.port)).is_ok()
        });
    }

    fn kill(&mut self) {
        self.process.kill().unwrap();
        self.process.wait().unwrap();
    }

    fn options(&self) -> GatewayOptions {
        GatewayOptions {
            endpoints: vec![format!("http://127.0.0.1:{}", self.port)],
            prefix: "/redline/test/".into(),
            ..GatewayOptions::default()
        }
    }

    fn gateway(&self) -> Gateway {
        let gateway = Gateway::new(self.options()).unwrap();
        until("etcd has a leader", || put(&gateway, "ready", "").is_ok());
        let gone = Operation::Delete(Range::Key("ready".into()));
        gateway.transact(&one(gone)).unwrap();
        gateway
    }

    /// Makes a call that is none of a store's.
    fn post(&self, path: &str, body: &str) -> String {
        let mut stream = TcpStream::connect(("127.0.0.1", self.port)).unwrap();
        let head = format!(
            "POST {path} HTTP/1.0\r\nContent-Length: {}\r\n\r\n{body}",
            body.len()
        );
        stream.write_all(head.as_bytes()).unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        assert!(answer.contains(" 200 "), "{path}: {answer}");
        answer
    }
}

impl Drop for Etcd {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

fn spawn(folder: &Path, port: u16, peer_port: u16, more: &[&str]) -> Child {
    let program = std::env::var("REDLINE_ETCD").expect("REDLINE_ETCD names the program of etcd");
    let is_tls = more.iter().any(|word| word.starts_with("--cert-file"));
    let scheme = if is_tls { "https" } else { "http" };
    let clients = format!("{scheme}://127.0.0.1:{port}");
    let peers = format!("http://127.0.0.1:{peer_port}");
    Command::new(program)
        .arg("--data-dir")
        .arg(folder.join("data"))
        .args([
            "--listen-client-urls",
            &clients,
            "--advertise-client-urls",
            &clients,
        ])
        .args([
            "--listen-peer-urls",
            &peers,
            "--initial-advertise-peer-urls",
            &peers,
        ])
        .args([
            "--initial-cluster",
            &format!("default={peers}"),
            "--log-level",
            "error",
        ])
        .args(more)
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .expect("etcd starts")
}

fn until(what: &str, mut holds: impl FnMut() -> bool) {
    let ends = Instant::now() + PATIENCE;
    while !holds() {
        assert!(Instant::now() < ends, "in vain: {what}");
        std::thread::sleep(Duration::from_millis(20));
    }
}

fn one(operation: Operation) -> Transaction {
    Transaction {
        success: vec![operation],
        ..Transaction::default()
    }
}

fn put(store: &dyn Store, key: &str, value: &str) -> Result<u64, StoreError> {
    let answer = store.transact(&one(Operation::Put {
        key: key.into(),
        value: value.into(),
        lease: None,
    }));
    answer.map(|answer| answer.revision)
}

/// Waits for the next put of a watch: its key.
fn next_put(watch: &mut dyn Watch) -> String {
    let ends = Instant::now() + PATIENCE;
    loop {
        assert!(Instant::now() < ends, "the watch tells nothing");
        // Attempts that fail are told, and made again.
        let events = watch.next(Duration::from_secs(1));
        if let Ok(events) = events
            && let Some(Event::Put(pair)) = events.events.first()
        {
            return pair.key.clone();
        }
    }
}

#[test]
#[ignore = "needs etcd: cargo xtask compat cluster-etcd"]
fn etcd_answers_as_memory_does() {
    for seed in 0..3 {
        let etcd = Etcd::start(&[]);
        let gateway = etcd.gateway();
        let memory = Memory::new();
        let gone = Operation::Delete(Range::Key("ready".into()));
        let now = gateway.range(&Range::Key("ready".into())).unwrap().revision;
        // The same revision on both sides.
        while memory.range(&Range::Key("a".into())).unwrap().revision < now - 1 {
            put(&memory, "ready", "").unwrap();
        }
        memory.transact(&one(gone)).unwrap();
        conformance::compare(&memory, &gateway, 200, seed).unwrap();
    }
}

#[test]
#[ignore = "needs etcd: cargo xtask compat cluster-etcd"]
fn leases_end_unless_they_are_kept() {
    let etcd = Etcd::start(&[]);
    let gateway = etcd.gateway();
    let lease = gateway.grant_lease(2).unwrap();
    let alive = Operation::Put {
        key: "alive".into(),
        value: b"1".to_vec(),
        lease: Some(lease),
    };
    gateway.transact(&one(alive.clone())).unwrap();
    let read = || gateway.range(&Range::Key("alive".into())).unwrap().pairs;
    assert_eq!(read()[0].lease, Some(lease));
    let kept_until = Instant::now() + Duration::from_secs(4);
    while Instant::now() < kept_until {
        assert!(gateway.keep_lease(lease).unwrap());
        std::thread::sleep(Duration::from_millis(200));
    }
    assert_eq!(read().len(), 1);
    until("the lease ends", || read().is_empty());
    assert!(!gateway.keep_lease(lease).unwrap());
    assert!(!gateway.keep_lease(LeaseId(12345)).unwrap());
    let result = gateway.transact(&one(alive));
    assert!(matches!(result, Err(StoreError::Refused(_))), "{result:?}");
}

#[test]
#[ignore = "needs etcd: cargo xtask compat cluster-etcd"]
fn a_watch_goes_on_after_a_restart_and_hears_of_compaction() {
    let mut etcd = Etcd::start(&[]);
    let gateway = etcd.gateway();
    let first = put(&gateway, "a", "1").unwrap();
    let mut watch = gateway.watch(first).unwrap();
    assert_eq!(next_put(&mut *watch), "a");
    etcd.restart();
    until("etcd writes again", || put(&gateway, "b", "1").is_ok());
    assert_eq!(next_put(&mut *watch), "b");
    let last = put(&gateway, "c", "1").unwrap();
    etcd.post("/v3/kv/compaction", &format!("{{\"revision\":\"{last}\"}}"));
    let mut late = gateway.watch(first).unwrap();
    let ends = Instant::now() + PATIENCE;
    let told = loop {
        match late.next(Duration::from_secs(1)) {
            Ok(_) => assert!(Instant::now() < ends, "nothing is told"),
            Err(error) => break error,
        }
    };
    assert_eq!(told, StoreError::Compacted(last));
}

#[test]
#[ignore = "needs etcd: cargo xtask compat cluster-etcd"]
fn the_next_endpoint_is_asked_and_a_killed_etcd_is_named() {
    let mut etcd = Etcd::start(&[]);
    drop(etcd.gateway());
    let mut options = etcd.options();
    options
        .endpoints
        .insert(0, format!("http://127.0.0.1:{}", free_port()));
    let gateway = Gateway::new(options).unwrap();
    put(&gateway, "a", "1").unwrap();
    etcd.kill();
    let error = gateway.range(&Range::Key("a".into())).unwrap_err();
    assert!(
        matches!(&error, StoreError::Unavailable(why) if why.contains("http://127.0.0.1:")),
        "{error:?}"
    );
}

#[test]
#[ignore = "needs etcd: cargo xtask compat cluster-etcd"]
fn a_user_has_to_know_the_password() {
    let etcd = Etcd::start(&[]);
    drop(etcd.gateway());
    etcd.post("/v3/auth/user/add", r#"{"name":"root","password":"right"}"#);
    etcd.post("/v3/auth/role/add", r#"{"name":"root"}"#);
    etcd.post("/v3/auth/user/grant", r#"{"user":"root","role":"root"}"#);
    etcd.post("/v3/auth/enable", "{}");
    let with = |user: Option<(&str, &str)>| {
        let mut options = etcd.options();
        options.user = user.map(|(name, password)| (name.into(), password.into()));
        put(&Gateway::new(options).unwrap(), "a", "1")
    };
    for user in [None, Some(("root", "wrong")), Some(("nobody", "right"))] {
        let result = with(user);
        assert!(
            matches!(result, Err(StoreError::Refused(_))),
            "{user:?}: {result:?}"
        );
    }
    with(Some(("root", "right"))).unwrap();
}

#[test]
#[ignore = "needs etcd: cargo xtask compat cluster-etcd"]
fn certificates_prove_who_is_on_both_sides() {
    use rcgen::{BasicConstraints, CertificateParams, IsCa, Issuer, KeyPair};
    let authority = |_| {
        let key = KeyPair::generate().unwrap();
        let mut of = CertificateParams::new(vec!["authority".into()]).unwrap();
        of.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let pem = of.self_signed(&key).unwrap().pem();
        (Issuer::new(of, key), pem)
    };
    let signed = |issuer: &Issuer<'_, KeyPair>| {
        let key = KeyPair::generate().unwrap();
        let of = CertificateParams::new(vec!["127.0.0.1".into()]).unwrap();
        (
            of.signed_by(&key, issuer).unwrap().pem(),
            key.serialize_pem(),
        )
    };
    let [(issuer, ca), (foreign, foreign_ca)] = [0, 1].map(authority);
    let folder = tempfile::tempdir().unwrap();
    let written = |name: &str, text: &str| {
        let path = folder.path().join(name);
        std::fs::write(&path, text).unwrap();
        path.display().to_string()
    };
    let own = signed(&issuer);
    let etcd = Etcd::start(&[
        &format!("--cert-file={}", written("cert", &own.0)),
        &format!("--key-file={}", written("key", &own.1)),
        &format!("--trusted-ca-file={}", written("ca", &ca)),
        "--client-cert-auth",
    ]);
    let with = |ca: &str, certificate: Option<(String, String)>| {
        Gateway::new(GatewayOptions {
            endpoints: vec![format!("https://127.0.0.1:{}", etcd.port)],
            prefix: "/redline/test/".into(),
            authorities: Some(ca.as_bytes().to_vec()),
            certificate: certificate.map(|(cert, key)| (cert.into_bytes(), key.into_bytes())),
            ..GatewayOptions::default()
        })
        .unwrap()
    };
    let right = with(&ca, Some(signed(&issuer)));
    until("etcd has a leader", || put(&right, "a", "1").is_ok());
    for wrong in [
        with(&foreign_ca, Some(signed(&issuer))),
        with(&ca, Some(signed(&foreign))),
        with(&ca, None),
    ] {
        assert!(wrong.range(&Range::Key("a".into())).is_err());
    }
    assert_eq!(right.range(&Range::Key("a".into())).unwrap().pairs.len(), 1);
}

#[test]
#[ignore = "needs etcd: cargo xtask compat cluster-etcd"]
fn a_full_etcd_has_not_done_it() {
    let etcd = Etcd::start(&["--quota-backend-bytes", "1048576"]);
    let gateway = etcd.gateway();
    let value = "v".repeat(200 << 10);
    let mut error = None;
    for _ in 0..50 {
        match put(&gateway, "a", &value) {
            Ok(_) => {}
            Err(why) => {
                error = Some(why);
                break;
            }
        }
    }
    let error = error.expect("it is full");
    assert!(
        matches!(&error, StoreError::Unavailable(why) if why.contains("exceeded")),
        "{error:?}"
    );
    assert_eq!(
        gateway.range(&Range::Key("a".into())).unwrap().pairs.len(),
        1
    );
}
