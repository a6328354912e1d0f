//! TLS as clients see it: versions, certificates of both sides, ciphers, resumption, reloading, and peers that behave
//! badly. The client is rustls's buffered connection, which shares no code of ours. Must not know the server's insides.

mod bad_peers;
mod certificates;

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
use redline_testkit::port::ReservedPort;
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
const UPDATE: &str = " - Unable to update TLS configuration. Check server logs.";

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
    let free = ReservedPort::any();
    let port = free.number();
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
