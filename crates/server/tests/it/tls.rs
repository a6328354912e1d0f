//! TLS as clients see it: versions, certificates of both sides, ciphers, resumption, reloading, and peers that behave
//! badly. The client is rustls's buffered connection, which shares no code of ours. Must not know the server's insides.

use std::{
    fs,
    io::{ErrorKind, Read, Write},
    net::{Shutdown, TcpStream},
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    thread,
    time::{Duration, Instant},
};

use crate::client::{self, Client, Value, encode, settings, start, until};
use redline_server::{Origin, Server, Settings};
use redline_testkit::certificates::{Authority, Certified};
use rustls::{
    ClientConfig, ClientConnection, HandshakeKind, ProtocolVersion, RootCertStore,
    SupportedProtocolVersion,
    crypto::ring::default_provider,
    pki_types::{CertificateDer, PrivateKeyDer, ServerName, pem::PemObject},
    version::{TLS12, TLS13},
};
use tempfile::TempDir;

const PATIENCE: Duration = Duration::from_secs(60);
const MIB: usize = 1 << 20;

/// A folder with an authority, a server's certificate, and a server that uses them.
struct Setup {
    folder: TempDir,
    authority: Authority,
    server: Server,
}

impl Setup {
    /// Clients need no certificate, unless `change` says so.
    fn new(change: impl FnOnce(&mut Settings, &TempDir)) -> Setup {
        let folder = TempDir::new().unwrap();
        let authority = Authority::new("authority.test");
        fs::write(folder.path().join("ca.pem"), authority.cert()).unwrap();
        write_certificate(&folder, "server", &authority.certify("localhost"));
        let mut settings = tls_settings(&folder);
        change(&mut settings, &folder);
        Setup {
            server: start(settings),
            authority,
            folder,
        }
    }

    fn path(&self, name: &str) -> String {
        path(&self.folder, name)
    }

    fn plain(&self) -> Client {
        Client::connect(&self.server)
    }

    fn tcp(&self) -> TcpStream {
        let stream = TcpStream::connect(("127.0.0.1", self.server.tls_port())).unwrap();
        stream.set_nodelay(true).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        stream.set_write_timeout(Some(PATIENCE)).unwrap();
        stream
    }

    fn config(&self, versions: &[&'static SupportedProtocolVersion]) -> ClientConfig {
        config(&self.authority, versions, None)
    }

    fn secure(&self) -> Secure {
        self.secure_with(Arc::new(self.config(&[&TLS13, &TLS12])))
    }

    fn secure_with(&self, config: Arc<ClientConfig>) -> Secure {
        Secure::new(self.tcp(), config)
    }

    /// How a connection with this configuration ends up: the answer to PING, or why there is none.
    fn ping(&self, config: ClientConfig) -> std::io::Result<()> {
        let mut client = self.secure_with(Arc::new(config));
        client.try_exchange(b"PING\r\n", b"+PONG\r\n")
    }

    #[track_caller]
    fn set(&self, name: &str, value: &str) {
        let call = [&b"CONFIG"[..], b"SET", name.as_bytes(), value.as_bytes()];
        self.plain().call_args(&call).ok();
    }

    #[track_caller]
    fn refused(&self, name: &str, value: &str) -> String {
        let call = [&b"CONFIG"[..], b"SET", name.as_bytes(), value.as_bytes()];
        self.plain().call_args(&call).error().to_owned()
    }

    fn info(&self, name: &str) -> Option<String> {
        let Value::Bulk(text) = self.plain().call("INFO server") else {
            panic!("INFO is a text")
        };
        let text = String::from_utf8(text).unwrap();
        let mut fields = text.lines().filter_map(|line| line.split_once(':'));
        let found = fields.find(|(known, _)| *known == name)?;
        Some(found.1.to_owned())
    }
}

fn path(folder: &TempDir, name: &str) -> String {
    folder.path().join(name).display().to_string()
}

fn write_certificate(folder: &TempDir, name: &str, certified: &Certified) {
    fs::write(path(folder, &format!("{name}.pem")), &certified.cert).unwrap();
    fs::write(path(folder, &format!("{name}.key")), &certified.key).unwrap();
}

fn tls_settings(folder: &TempDir) -> Settings {
    let mut settings = settings(2);
    settings.tls.port = Some(0);
    settings.tls.cert_file = Some(path(folder, "server.pem"));
    settings.tls.key_file = Some(path(folder, "server.key"));
    settings.tls.auth_clients = redline_server::ClientAuth::No;
    settings
}

fn config(
    authority: &Authority,
    versions: &[&'static SupportedProtocolVersion],
    presented: Option<&Certified>,
) -> ClientConfig {
    let mut roots = RootCertStore::empty();
    let pem = authority.cert().as_bytes();
    roots
        .add(CertificateDer::from_pem_slice(pem).unwrap())
        .unwrap();
    let builder = ClientConfig::builder_with_provider(Arc::new(default_provider()))
        .with_protocol_versions(versions)
        .unwrap()
        .with_root_certificates(roots);
    match presented {
        None => builder.with_no_client_auth(),
        Some(Certified { cert, key }) => builder
            .with_client_auth_cert(
                vec![CertificateDer::from_pem_slice(cert.as_bytes()).unwrap()],
                PrivateKeyDer::from_pem_slice(key.as_bytes()).unwrap(),
            )
            .unwrap(),
    }
}

/// A connection with TLS.
struct Secure {
    tls: ClientConnection,
    tcp: TcpStream,
}

impl Secure {
    fn new(tcp: TcpStream, config: Arc<ClientConfig>) -> Secure {
        let name = ServerName::try_from("localhost").unwrap();
        let tls = ClientConnection::new(config, name).unwrap();
        Secure { tls, tcp }
    }

    fn write(&mut self, bytes: &[u8]) -> std::io::Result<()> {
        rustls::Stream::new(&mut self.tls, &mut self.tcp).write_all(bytes)
    }

    fn read(&mut self, bytes: usize) -> std::io::Result<Vec<u8>> {
        let mut read = vec![0; bytes];
        rustls::Stream::new(&mut self.tls, &mut self.tcp).read_exact(&mut read)?;
        Ok(read)
    }

    fn try_exchange(&mut self, request: &[u8], reply: &[u8]) -> std::io::Result<()> {
        self.write(request)?;
        let read = self.read(reply.len())?;
        assert_eq!(
            String::from_utf8_lossy(&read),
            String::from_utf8_lossy(reply)
        );
        Ok(())
    }

    #[track_caller]
    fn exchange(&mut self, request: &[u8], reply: &[u8]) {
        self.try_exchange(request, reply).expect("a reply");
    }

    /// The server's certificate.
    fn certificate(&self) -> CertificateDer<'static> {
        self.tls.peer_certificates().expect("the handshake is done")[0].clone()
    }
}

fn certificate_in(file: &str) -> CertificateDer<'static> {
    CertificateDer::from_pem_slice(&fs::read(file).unwrap()).unwrap()
}

#[test]
fn both_versions_are_spoken_beside_the_plain_port() {
    let setup = Setup::new(|_, _| {});
    for (version, named) in [
        (&TLS12, ProtocolVersion::TLSv1_2),
        (&TLS13, ProtocolVersion::TLSv1_3),
    ] {
        let mut secure = setup.secure_with(Arc::new(setup.config(&[version])));
        secure.exchange(b"SET k v\r\n", b"+OK\r\n");
        assert_eq!(secure.tls.protocol_version(), Some(named));
        assert_eq!(setup.plain().call("GET k"), Value::Bulk(b"v".to_vec()));
        secure.exchange(b"DEL k\r\n", b":1\r\n");
    }
    let without = setup.plain().call("CLIENT LIST");
    let Value::Bulk(text) = without else {
        panic!("{without:?}")
    };
    assert!(!text.is_empty());
}

#[test]
fn a_request_may_come_byte_by_byte() {
    let setup = Setup::new(|_, _| {});
    for version in [&TLS12, &TLS13] {
        let mut secure = setup.secure_with(Arc::new(setup.config(&[version])));
        // The handshake, too: the client's messages go out a byte at a time.
        while secure.tls.is_handshaking() {
            trickle(&mut secure);
            if secure.tls.wants_read() && secure.tls.is_handshaking() {
                secure.tls.read_tls(&mut secure.tcp).unwrap();
                secure.tls.process_new_packets().unwrap();
            }
        }
        trickle(&mut secure);
        for number in 0..5 {
            let value = format!("value{number}");
            let set = encode(&[b"SET", b"key", value.as_bytes()]);
            secure.tls.writer().write_all(&set).unwrap();
            trickle(&mut secure);
            assert_eq!(secure.read(5).unwrap(), b"+OK\r\n");
        }
        secure.exchange(b"GET key\r\n", b"$6\r\nvalue4\r\n");
    }
}

/// Sends what the connection has to say, a byte at a time.
fn trickle(secure: &mut Secure) {
    let mut bytes = Vec::new();
    while secure.tls.wants_write() {
        secure.tls.write_tls(&mut bytes).unwrap();
    }
    for byte in bytes {
        secure.tcp.write_all(&[byte]).unwrap();
    }
}

#[test]
fn a_value_of_100_mib_goes_in_and_out() {
    let setup = Setup::new(|_, _| {});
    let value: Vec<u8> = (0..100 * MIB).map(|at| (at / 7 % 251) as u8).collect();
    for version in [&TLS12, &TLS13] {
        let mut secure = setup.secure_with(Arc::new(setup.config(&[version])));
        secure.write(&encode(&[b"SET", b"large", &value])).unwrap();
        assert_eq!(secure.read(5).unwrap(), b"+OK\r\n");
        secure.write(b"GET large\r\nPING\r\n").unwrap();
        let head = format!("${}\r\n", value.len());
        assert_eq!(secure.read(head.len()).unwrap(), head.as_bytes());
        assert!(
            secure.read(value.len()).unwrap() == value,
            "other bytes came back"
        );
        assert_eq!(secure.read(9).unwrap(), b"\r\n+PONG\r\n");
    }
}

#[test]
fn thousands_of_pipelined_requests_are_answered_in_order() {
    const REQUESTS: usize = 50_000;
    let setup = Setup::new(|_, _| {});
    for version in [&TLS12, &TLS13] {
        let mut secure = setup.secure_with(Arc::new(setup.config(&[version])));
        let mut requests = Vec::new();
        let mut replies = Vec::new();
        for number in 0..REQUESTS {
            let word = format!("{number:-<width$}", width = number % 90 + 6);
            requests.extend(encode(&[b"ECHO", word.as_bytes()]));
            replies.extend(format!("${}\r\n{word}\r\n", word.len()).into_bytes());
        }
        // Read while writing: neither side keeps so much.
        let (mut sent, mut heard) = (0, Vec::new());
        while heard.len() < replies.len() {
            let next = &requests[sent..requests.len().min(sent + 100_000)];
            secure.write(next).unwrap();
            sent += next.len();
            let mut buffer = [0; 65_536];
            let read = rustls::Stream::new(&mut secure.tls, &mut secure.tcp)
                .read(&mut buffer)
                .unwrap();
            heard.extend_from_slice(&buffer[..read]);
        }
        assert!(heard == replies, "other replies");
    }
}

#[test]
fn a_reader_that_falls_behind_gets_everything() {
    const REPLIES: usize = 64;
    let setup = Setup::new(|_, _| {});
    let value = vec![b'x'; MIB];
    setup.plain().call_args(&[b"SET", b"large", &value]).ok();
    let mut secure = setup.secure();
    // 64 MiB of replies, far above what sockets hold, before anything is read.
    secure.write(&b"GET large\r\n".repeat(REPLIES)).unwrap();
    let mut waiting = setup.plain();
    until("the replies wait", || {
        let Value::Bulk(list) = waiting.call("CLIENT LIST") else {
            return false;
        };
        let list = String::from_utf8(list).unwrap();
        list.lines().any(|line| {
            let field = line
                .split(' ')
                .find_map(|field| field.strip_prefix("omem="));
            field.is_some_and(|bytes| bytes.parse::<usize>().unwrap() > 16 * MIB)
        })
    });
    for _ in 0..REPLIES {
        let reply = secure.read(MIB + 12).unwrap();
        assert!(reply.starts_with(b"$1048576\r\nxxxx") && reply.ends_with(b"x\r\n"));
    }
    secure.exchange(b"PING\r\n", b"+PONG\r\n");
}

#[test]
fn clients_are_asked_for_certificates_as_tls_auth_clients_says() {
    let setup = Setup::new(|settings, folder| {
        settings.tls.ca_cert_file = Some(path(folder, "ca.pem"));
        settings.tls.auth_clients = redline_server::ClientAuth::Required;
    });
    let good = setup.authority.certify("client.test");
    let foreign = Authority::new("elsewhere.test").certify("client.test");
    for version in [&TLS12, &TLS13] {
        let with = |presented| config(&setup.authority, &[version], presented);
        setup.set("tls-auth-clients", "yes");
        assert!(setup.ping(with(Some(&good))).is_ok());
        assert!(setup.ping(with(Some(&foreign))).is_err());
        assert!(setup.ping(with(None)).is_err());
        setup.set("tls-auth-clients", "optional");
        assert!(setup.ping(with(Some(&good))).is_ok());
        assert!(setup.ping(with(Some(&foreign))).is_err());
        assert!(setup.ping(with(None)).is_ok());
        setup.set("tls-auth-clients", "no");
        assert!(setup.ping(with(Some(&foreign))).is_ok());
    }
    // Without an authority nobody could be let in.
    setup.set("tls-ca-cert-file", "");
    assert!(setup.refused("tls-auth-clients", "yes").ends_with(UPDATE));
    // A folder of authorities does as well.
    setup.set(
        "tls-ca-cert-dir",
        &setup.folder.path().display().to_string(),
    );
    setup.set("tls-auth-clients", "yes");
    assert!(
        setup
            .ping(config(&setup.authority, &[&TLS13], Some(&good)))
            .is_ok()
    );
    assert!(
        setup
            .ping(config(&setup.authority, &[&TLS13], Some(&foreign)))
            .is_err()
    );
    assert!(
        setup
            .refused("tls-ca-cert-dir", "/nonexistent")
            .ends_with(UPDATE)
    );
}

/// How CONFIG SET answers when TLS cannot be as it says.
const UPDATE: &str = " - Unable to update TLS configuration. Check server logs.";

#[test]
fn certificates_are_read_again_under_load_and_no_connection_is_lost() {
    const CLIENTS: usize = 8;
    let setup = Setup::new(|_, _| {});
    let stop = AtomicBool::new(false);
    let exchanges: Vec<AtomicU64> = (0..CLIENTS).map(|_| AtomicU64::new(0)).collect();
    let first = certificate_in(&setup.path("server.pem"));
    thread::scope(|scope| {
        for count in &exchanges {
            let (setup, stop, first) = (&setup, &stop, &first);
            scope.spawn(move || {
                let mut secure = setup.secure();
                secure.exchange(b"PING\r\n", b"+PONG\r\n");
                assert_eq!(secure.certificate(), *first);
                while !stop.load(Ordering::Relaxed) {
                    secure.exchange(b"PING\r\nECHO hello\r\n", b"+PONG\r\n$5\r\nhello\r\n");
                    count.fetch_add(1, Ordering::Relaxed);
                }
            });
        }
        let everybody_goes_on = || {
            let before: Vec<u64> = exchanges
                .iter()
                .map(|n| n.load(Ordering::Relaxed))
                .collect();
            until("every connection goes on", || {
                exchanges
                    .iter()
                    .zip(&before)
                    .all(|(now, before)| now.load(Ordering::Relaxed) > *before)
            });
        };
        everybody_goes_on();
        for _ in 0..5 {
            write_certificate(
                &setup.folder,
                "server",
                &setup.authority.certify("localhost"),
            );
            // The same name, another file behind it.
            setup.set("tls-cert-file", &setup.path("server.pem"));
            let mut fresh = setup.secure();
            fresh.exchange(b"PING\r\n", b"+PONG\r\n");
            assert_eq!(
                fresh.certificate(),
                certificate_in(&setup.path("server.pem"))
            );
            assert_ne!(fresh.certificate(), first);
            everybody_goes_on();
        }
        stop.store(true, Ordering::Relaxed);
    });
}

#[test]
fn certificates_that_have_changed_are_read_again_by_themselves() {
    let setup = Setup::new(|_, _| {});
    let is_presented = |path: &str| {
        let mut fresh = setup.secure();
        fresh.exchange(b"PING\r\n", b"+PONG\r\n");
        fresh.certificate() == certificate_in(path)
    };
    let path = setup.path("server.pem");
    assert!(is_presented(&path));
    for interval in ["1", "2"] {
        write_certificate(
            &setup.folder,
            "server",
            &setup.authority.certify("localhost"),
        );
        assert!(!is_presented(&path));
        // Another file since before the parameter was set, and the second time since it was read.
        setup.set("tls-auto-reload-interval", interval);
        until("the new one is presented", || is_presented(&path));
        setup.set("tls-auto-reload-interval", "0");
    }
}

#[test]
fn what_is_wrong_is_refused_and_what_was_there_stays() {
    let setup = Setup::new(|_, _| {});
    fs::write(setup.path("empty.pem"), "").unwrap();
    write_certificate(
        &setup.folder,
        "other",
        &setup.authority.certify("localhost"),
    );
    let encrypted =
        "-----BEGIN ENCRYPTED PRIVATE KEY-----\nAAAA\n-----END ENCRYPTED PRIVATE KEY-----\n";
    fs::write(setup.path("locked.key"), encrypted).unwrap();
    for (name, value) in [
        ("tls-cert-file", &setup.path("missing.pem")[..]),
        ("tls-cert-file", &setup.path("empty.pem")),
        ("tls-cert-file", &setup.path("other.pem")),
        ("tls-cert-file", ""),
        ("tls-key-file", &setup.path("missing.key")),
        ("tls-key-file", &setup.path("other.key")),
        ("tls-key-file", &setup.path("locked.key")),
        ("tls-ca-cert-file", &setup.path("empty.pem")),
        ("tls-protocols", "SSLv3"),
        ("tls-protocols", "TLSv1"),
        ("tls-ciphers", "RC4"),
        ("tls-ciphersuites", "none"),
        ("tls-auth-clients", "yes"),
    ] {
        let before = setup.plain().call(&format!("CONFIG GET {name}"));
        let expected =
            format!("ERR CONFIG SET failed (possibly related to argument '{name}'){UPDATE}");
        assert_eq!(setup.refused(name, value), expected, "{value}");
        assert_eq!(setup.plain().call(&format!("CONFIG GET {name}")), before);
        setup.secure().exchange(b"PING\r\n", b"+PONG\r\n");
    }
    // A password for a key that needs none is no harm; both files of a pair can change together.
    setup.set("tls-key-file-pass", "secret");
    let both = [
        &b"CONFIG"[..],
        b"SET",
        b"tls-cert-file",
        &setup.path("other.pem").into_bytes(),
        b"tls-key-file",
        &setup.path("other.key").into_bytes(),
    ];
    setup.plain().call_args(&both).ok();
    let mut secure = setup.secure();
    secure.exchange(b"PING\r\n", b"+PONG\r\n");
    assert_eq!(
        secure.certificate(),
        certificate_in(&setup.path("other.pem"))
    );
}

#[test]
fn certificates_for_outgoing_connections_are_checked() {
    let setup = Setup::new(|_, _| {});
    setup.set("tls-client-key-file-pass", "secret");
    setup.set("tls-client-cert-file", &setup.path("server.pem"));
    assert!(
        setup
            .refused("tls-client-key-file", &setup.path("none"))
            .ends_with(UPDATE)
    );
    setup.set("tls-client-key-file", &setup.path("server.key"));
}

#[test]
fn keys_migrate_over_tls_if_the_target_is_taken_for_a_node_of_the_same_cluster() {
    let target = Setup::new(|_, _| {});
    let source = Setup::new(|settings, _| {
        settings.tls.ca_cert_file = Some(target.path("ca.pem"));
    });
    let large = "v".repeat(3 * MIB);
    source
        .plain()
        .call_args(&[b"SET", b"key", large.as_bytes()])
        .ok();
    let migrate = |timeout_ms: u32| {
        let port = target.server.tls_port();
        let call = format!("MIGRATE 127.0.0.1 {port} key 0 {timeout_ms} COPY REPLACE");
        source.plain().call(&call)
    };
    assert_ne!(migrate(500), Value::Simple("OK".into()), "without TLS");
    source.set("tls-cluster", "yes");
    for _ in 0..2 {
        // The second goes over the connection of the first.
        assert_eq!(migrate(20_000), Value::Simple("OK".into()));
    }
    let copied = target.plain().call("GET key");
    assert_eq!(copied, Value::Bulk(large.into_bytes()));
    // A target that nobody vouches for gets nothing.
    source.set("tls-ca-cert-file", &source.path("ca.pem"));
    target.plain().call("DEL key");
    assert_ne!(migrate(20_000), Value::Simple("OK".into()));
    assert_eq!(target.plain().call("EXISTS key"), Value::Integer(0));
}

#[test]
fn a_start_that_cannot_work_ends_with_one_line() {
    let folder = TempDir::new().unwrap();
    let authority = Authority::new("authority.test");
    write_certificate(&folder, "server", &authority.certify("localhost"));
    let refused = |change: &dyn Fn(&mut Settings)| {
        let mut settings = tls_settings(&folder);
        change(&mut settings);
        let error = Server::start(settings, Origin::default(), false).err();
        let line = error.expect("no start").to_string();
        assert_eq!(line.lines().count(), 1, "{line}");
        line
    };
    let begin = "Failed to configure TLS: ";
    assert_eq!(
        refused(&|s| s.tls.cert_file = None),
        format!("{begin}No tls-cert-file configured!")
    );
    assert_eq!(
        refused(&|s| s.tls.key_file = None),
        format!("{begin}No tls-key-file configured!")
    );
    assert_eq!(
        refused(&|s| s.tls.cert_file = Some("/nonexistent".into())),
        format!("{begin}Failed to load certificate: /nonexistent: No such file or directory")
    );
    assert!(
        refused(&|s| s.tls.auth_clients = redline_server::ClientAuth::Optional)
            .contains("tls-ca-cert-file or tls-ca-cert-dir must be specified")
    );
    assert!(refused(&|s| s.tls.ciphers = "RC4".into()).contains("Failed to configure ciphers"));
}

#[test]
fn plain_text_and_garbage_end_only_their_own_connection() {
    let setup = Setup::new(|_, _| {});
    let mut steady = setup.secure();
    steady.exchange(b"PING\r\n", b"+PONG\r\n");
    let junk: Vec<u8> = (0..100_000_u32)
        .map(|at| (at.wrapping_mul(2_654_435_761) >> 24) as u8)
        .collect();
    let header_only = [0x16, 3, 1, 0x40, 0];
    for (nonsense, half_closed) in [
        (&b"PING\r\n"[..], false),
        (b"*1\r\n$4\r\nPING\r\n", false),
        (b"GET / HTTP/1.1\r\nHost: x\r\n\r\n", false),
        (b"\x00", true),
        (b"", true),
        (&junk, false),
        (&header_only, true),
    ] {
        let mut tcp = setup.tcp();
        // The server may close before it has read everything.
        let _ = tcp.write_all(nonsense);
        if half_closed {
            tcp.shutdown(Shutdown::Write).unwrap();
        }
        let mut said = Vec::new();
        match tcp.read_to_end(&mut said) {
            Ok(_) => {}
            Err(error) => assert_eq!(error.kind(), ErrorKind::ConnectionReset),
        }
        // At most an alert, which is a record of type 21; nothing in the clear.
        assert!(said.is_empty() || said[0] == 21, "{said:?}");
        let is_text = nonsense.first().is_some_and(u8::is_ascii_graphic);
        assert!(!is_text || said.is_empty(), "taken for a reply: {said:?}");
        steady.exchange(b"PING\r\n", b"+PONG\r\n");
    }
    // Garbage after the handshake, too.
    for version in [&TLS12, &TLS13] {
        let mut secure = setup.secure_with(Arc::new(setup.config(&[version])));
        secure.exchange(b"PING\r\n", b"+PONG\r\n");
        let record = [0x17, 3, 3, 0, 40].iter().chain(&[7; 40]).copied();
        secure.tcp.write_all(&record.collect::<Vec<u8>>()).unwrap();
        assert!(secure.read(1).is_err());
        steady.exchange(b"PING\r\n", b"+PONG\r\n");
    }
}

/// Once, the library was shown more after a message that it had refused, and panicked.
#[test]
fn damaged_messages_of_the_handshake_never_end_the_server() {
    let setup = Setup::new(|settings, folder| {
        settings.tls.ca_cert_file = Some(path(folder, "ca.pem"));
        settings.tls.auth_clients = redline_server::ClientAuth::Required;
    });
    let presented = setup.authority.certify("client.test");
    let mut random: u64 = 0x9e37_79b9_7f4a_7c15;
    let mut below = |bound: usize| {
        random ^= random << 13;
        random ^= random >> 7;
        random ^= random << 17;
        (random >> 33) as usize % bound
    };
    for round in 0..900 {
        let version = [&TLS12, &TLS13][round % 2];
        let config = Arc::new(config(&setup.authority, &[version], Some(&presented)));
        let mut secure = setup.secure_with(config);
        // Which of the client's messages is damaged.
        let damaged = round / 2 % 3;
        for flight in 0..=damaged {
            let mut bytes = Vec::new();
            secure.tls.writer().write_all(b"PING\r\n").unwrap();
            while secure.tls.wants_write() {
                secure.tls.write_tls(&mut bytes).unwrap();
            }
            if flight == damaged {
                for _ in 0..=below(3) {
                    match bytes.len() {
                        0 => {}
                        length if below(4) == 0 => bytes.truncate(below(length)),
                        length => bytes[below(length)] ^= 1 << below(8),
                    }
                }
            }
            let cut = below(bytes.len() + 1);
            // Either write may find the connection closed.
            let _ = secure.tcp.write_all(&bytes[..cut]);
            let _ = secure.tcp.write_all(&bytes[cut..]);
            if flight < damaged {
                secure.tls.read_tls(&mut secure.tcp).unwrap();
                let _ = secure.tls.process_new_packets();
            }
        }
        let _ = secure.tcp.shutdown(Shutdown::Write);
        let _ = secure.tcp.read_to_end(&mut Vec::new());
    }
    assert_eq!(setup.plain().call("PING"), Value::Simple("PONG".into()));
}

#[test]
fn a_half_closed_peer_gets_every_reply_and_then_a_clean_end() {
    let setup = Setup::new(|_, _| {});
    for version in [&TLS12, &TLS13] {
        let mut secure = setup.secure_with(Arc::new(setup.config(&[version])));
        secure.exchange(b"PING\r\n", b"+PONG\r\n");
        secure
            .tls
            .writer()
            .write_all(&b"PING\r\n".repeat(100))
            .unwrap();
        secure.tls.send_close_notify();
        while secure.tls.wants_write() {
            secure.tls.write_tls(&mut secure.tcp).unwrap();
        }
        secure.tcp.shutdown(Shutdown::Write).unwrap();
        assert_eq!(secure.read(700).unwrap(), b"+PONG\r\n".repeat(100));
        // A clean end: rustls would call one without a farewell an error.
        let mut rest = Vec::new();
        rustls::Stream::new(&mut secure.tls, &mut secure.tcp)
            .read_to_end(&mut rest)
            .unwrap();
        assert!(rest.is_empty());
    }
}

#[test]
fn quit_says_goodbye() {
    let setup = Setup::new(|_, _| {});
    let mut secure = setup.secure();
    secure.exchange(b"QUIT\r\n", b"+OK\r\n");
    let mut rest = Vec::new();
    rustls::Stream::new(&mut secure.tls, &mut secure.tcp)
        .read_to_end(&mut rest)
        .unwrap();
}

#[test]
fn a_client_that_stalls_in_the_handshake_is_closed_in_time_and_holds_nobody_up() {
    let setup = Setup::new(|_, _| {});
    let began = Instant::now();
    let mut silent = setup.tcp();
    let mut halfway = setup.secure();
    let mut hello = Vec::new();
    halfway.tls.write_tls(&mut hello).unwrap();
    halfway.tcp.write_all(&hello[..hello.len() / 2]).unwrap();
    let mut steady = setup.secure();
    steady.exchange(b"PING\r\n", b"+PONG\r\n");
    assert_eq!(silent.read(&mut [0]).unwrap(), 0);
    assert_eq!(halfway.tcp.read(&mut [0]).unwrap(), 0);
    let took = began.elapsed();
    assert!(
        Duration::from_secs(9) < took && took < Duration::from_secs(30),
        "{took:?}"
    );
    steady.exchange(b"PING\r\n", b"+PONG\r\n");
}

#[test]
fn info_names_the_listeners_as_redis_does_and_follows_the_ports() {
    let setup = Setup::new(|settings, folder| {
        settings.unixsocket = Some(path(folder, "s"));
    });
    let (port, tls_port) = (setup.server.port(), setup.server.tls_port());
    assert_eq!(
        setup.info("listener0"),
        Some(format!("name=tcp,bind=127.0.0.1,port={port}"))
    );
    assert_eq!(
        setup.info("listener1"),
        Some(format!("name=unix,bind={}", setup.path("s")))
    );
    assert_eq!(
        setup.info("listener2"),
        Some(format!("name=tls,bind=127.0.0.1,port={tls_port}"))
    );
    let mut before = setup.secure();
    before.exchange(b"PING\r\n", b"+PONG\r\n");
    let free = || {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        listener.local_addr().unwrap().port()
    };
    let next = free();
    setup.set("tls-port", &next.to_string());
    assert_eq!(
        setup.info("listener2"),
        Some(format!("name=tls,bind=127.0.0.1,port={next}"))
    );
    until("the new port answers", || {
        TcpStream::connect(("127.0.0.1", next)).is_ok()
    });
    assert_eq!(setup.server.tls_port(), next);
    setup.secure().exchange(b"PING\r\n", b"+PONG\r\n");
    before.exchange(b"PING\r\n", b"+PONG\r\n");
    // Without the plain port, the one with TLS is the server's.
    before.exchange(b"CONFIG SET port 0\r\n", b"+OK\r\n");
    let mut secure = setup.secure();
    secure.write(b"INFO server\r\n").unwrap();
    let text = String::from_utf8(secure.read(600).unwrap()).unwrap();
    assert!(text.contains(&format!("tcp_port:{next}\r\n")), "{text}");
    let port = free();
    before.exchange(format!("CONFIG SET port {port}\r\n").as_bytes(), b"+OK\r\n");
    assert_eq!(setup.server.port(), port);
    setup.set("tls-port", "0");
    assert_eq!(setup.info("listener2"), None);
    until("the port with TLS is closed", || {
        TcpStream::connect(("127.0.0.1", next)).is_err()
    });
    before.exchange(b"PING\r\n", b"+PONG\r\n");
    assert_eq!(
        setup.info("listener0"),
        Some(format!("name=tcp,bind=127.0.0.1,port={port}"))
    );
}

#[test]
fn tls_can_be_switched_on_while_the_server_runs() {
    let folder = TempDir::new().unwrap();
    let authority = Authority::new("authority.test");
    write_certificate(&folder, "server", &authority.certify("localhost"));
    let setup = Setup {
        server: start(settings(1)),
        authority,
        folder,
    };
    assert_eq!(setup.server.tls_port(), 0);
    let expected =
        format!("ERR CONFIG SET failed (possibly related to argument 'tls-port'){UPDATE}");
    assert_eq!(setup.refused("tls-port", "1"), expected);
    setup.set("tls-auth-clients", "no");
    setup.set("tls-cert-file", &setup.path("server.pem"));
    setup.set("tls-key-file", &setup.path("server.key"));
    let busy = setup.server.port().to_string();
    assert!(
        setup
            .refused("tls-port", &busy)
            .ends_with("Unable to listen on this port. Check server logs.")
    );
    let free = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let port = free.local_addr().unwrap().port();
    drop(free);
    setup.set("tls-port", &port.to_string());
    setup.secure().exchange(b"PING\r\n", b"+PONG\r\n");
}

#[test]
fn versions_and_ciphers_are_what_the_settings_say() {
    let setup = Setup::new(|_, _| {});
    let negotiated = |versions: &[&'static SupportedProtocolVersion]| {
        let mut secure = setup.secure_with(Arc::new(setup.config(versions)));
        secure.try_exchange(b"PING\r\n", b"+PONG\r\n").ok()?;
        Some(format!(
            "{:?}",
            secure.tls.negotiated_cipher_suite()?.suite()
        ))
    };
    setup.set("tls-protocols", "TLSv1.2");
    assert_eq!(negotiated(&[&TLS13]), None);
    assert!(negotiated(&[&TLS12]).is_some());
    setup.set("tls-protocols", "TLSv1.3");
    assert_eq!(negotiated(&[&TLS12]), None);
    assert!(negotiated(&[&TLS13]).is_some());
    setup.set("tls-protocols", "");
    setup.set("tls-ciphers", "ECDHE-ECDSA-AES128-GCM-SHA256");
    setup.set("tls-ciphersuites", "TLS_CHACHA20_POLY1305_SHA256");
    assert_eq!(
        negotiated(&[&TLS12]).as_deref(),
        Some("TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256")
    );
    assert_eq!(
        negotiated(&[&TLS13]).as_deref(),
        Some("TLS13_CHACHA20_POLY1305_SHA256")
    );
    // Both sides have both; the client would rather have AES-256.
    let order = "ECDHE-ECDSA-CHACHA20-POLY1305:ECDHE-ECDSA-AES256-GCM-SHA384";
    setup.set("tls-ciphers", order);
    assert_eq!(
        negotiated(&[&TLS12]).as_deref(),
        Some("TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384")
    );
    setup.set("tls-prefer-server-ciphers", "yes");
    assert_eq!(
        negotiated(&[&TLS12]).as_deref(),
        Some("TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256")
    );
}

#[test]
fn sessions_are_resumed_as_long_as_the_settings_say() {
    let setup = Setup::new(|_, _| {});
    for version in [&TLS12, &TLS13] {
        let config = Arc::new(setup.config(&[version]));
        let kind = || {
            let mut secure = setup.secure_with(config.clone());
            secure.exchange(b"PING\r\n", b"+PONG\r\n");
            secure.tls.handshake_kind().unwrap()
        };
        setup.set("tls-session-caching", "yes");
        assert_eq!(kind(), HandshakeKind::Full);
        assert_eq!(kind(), HandshakeKind::Resumed);
        setup.set("tls-session-cache-timeout", "0");
        kind();
        assert_eq!(kind(), HandshakeKind::Full, "too old");
        setup.set("tls-session-cache-timeout", "300");
        setup.set("tls-session-cache-size", "1");
        kind();
        setup.secure().exchange(b"PING\r\n", b"+PONG\r\n");
        assert_eq!(kind(), HandshakeKind::Full, "there was room for one");
        setup.set("tls-session-cache-size", "20480");
        setup.set("tls-session-caching", "no");
        kind();
        assert_eq!(kind(), HandshakeKind::Full, "nothing is kept");
    }
}

#[test]
fn limits_of_clients_hold_with_tls_too() {
    let setup = Setup::new(|settings, _| settings.maxclients = 2);
    let mut first = setup.secure();
    first.exchange(b"PING\r\n", b"+PONG\r\n");
    let mut second = setup.secure();
    second.exchange(b"PING\r\n", b"+PONG\r\n");
    let mut refused = setup.tcp();
    assert_eq!(refused.read(&mut [0]).unwrap(), 0, "nothing in the clear");
    first.exchange(b"PING\r\n", b"+PONG\r\n");
}

#[test]
fn a_subscriber_over_tls_that_does_not_read_is_closed_though_encrypted_bytes_wait() {
    let setup = Setup::new(|settings, _| settings.output_limits[2].hard_bytes = 1 << 20);
    let mut deaf = setup.secure();
    deaf.write(b"SUBSCRIBE c\r\n").unwrap();
    let mut publisher = setup.plain();
    let message = vec![b'x'; 100_000];
    let mut publish = || publisher.call_args(&[b"PUBLISH", b"c", &message]).integer();
    client::until("it has subscribed", || publish() == 1);
    client::until("it is closed", || publish() == 0);
}

#[test]
fn messages_reach_subscribers_over_tls() {
    let setup = Setup::new(|_, _| {});
    let mut subscriber = setup.secure();
    subscriber.exchange(
        b"SUBSCRIBE c\r\n",
        b"*3\r\n$9\r\nsubscribe\r\n$1\r\nc\r\n:1\r\n",
    );
    let mut publisher = setup.secure();
    publisher.exchange(b"PUBLISH c hello\r\n", b":1\r\n");
    let message = b"*3\r\n$7\r\nmessage\r\n$1\r\nc\r\n$5\r\nhello\r\n";
    assert_eq!(subscriber.read(message.len()).unwrap(), message);
}

#[test]
fn a_killed_client_is_closed_cleanly() {
    let setup = Setup::new(|_, _| {});
    let mut secure = setup.secure();
    secure.write(b"CLIENT ID\r\n").unwrap();
    let id = String::from_utf8(secure.read(4).unwrap()).unwrap();
    let id = id.trim_start_matches(':').trim_end();
    assert_eq!(
        setup
            .plain()
            .call(&format!("CLIENT KILL ID {id}"))
            .integer(),
        1
    );
    let mut rest = Vec::new();
    rustls::Stream::new(&mut secure.tls, &mut secure.tcp)
        .read_to_end(&mut rest)
        .unwrap();
}

/// Sent by a server here, since rustls sends nothing else of the kind without end; what receives is the same on both sides.
#[test]
fn records_without_content_kept_a_thread_in_one_read() {
    const TICKETS: usize = 4_000;
    let folder = TempDir::new().unwrap();
    let authority = Authority::new("authority.test");
    fs::write(folder.path().join("ca.pem"), authority.cert()).unwrap();
    let Certified { cert, key } = authority.certify("localhost");
    let mut config = rustls::ServerConfig::builder_with_provider(Arc::new(default_provider()))
        .with_protocol_versions(&[&TLS13])
        .unwrap()
        .with_no_client_auth()
        .with_single_cert(
            vec![CertificateDer::from_pem_slice(cert.as_bytes()).unwrap()],
            PrivateKeyDer::from_pem_slice(key.as_bytes()).unwrap(),
        )
        .unwrap();
    config.send_tls13_tickets = TICKETS;
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = redline_net::Address::Tcp {
        host: "127.0.0.1".to_owned(),
        port: listener.local_addr().unwrap().port(),
    };
    let server = thread::spawn(move || {
        let mut tcp = listener.accept().unwrap().0;
        let mut tls = rustls::ServerConnection::new(Arc::new(config)).unwrap();
        while tls.is_handshaking() {
            tls.complete_io(&mut tcp).unwrap();
        }
        tls.writer().write_all(b"content").unwrap();
        while tls.wants_write() {
            tls.write_tls(&mut tcp).unwrap();
        }
        tcp
    });
    let options = redline_net::tls::ClientTlsOptions {
        common: redline_net::tls::TlsOptions {
            ca_cert_file: Some(path(&folder, "ca.pem")),
            ..Default::default()
        },
        ..Default::default()
    };
    let mut stream = redline_net::connect_blocking(&address, PATIENCE).unwrap();
    stream
        .connect_tls(&redline_net::tls::ClientTls::new(&options).unwrap())
        .unwrap();
    let (mut content, mut returned) = (Vec::new(), 0);
    while content.len() < b"content".len() {
        match stream.read_into(&mut content, 1).unwrap() {
            redline_net::Read::Data { bytes: 0, drained } => {
                assert!(!drained);
                returned += 1;
            }
            redline_net::Read::Eof => panic!("the stream has ended"),
            _ => {}
        }
    }
    assert_eq!(content, b"content");
    assert!(returned > 0);
    drop(server.join().unwrap());
}
