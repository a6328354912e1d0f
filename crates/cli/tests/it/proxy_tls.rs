//! TLS on both sides of `redline proxy`: certificates of clients and servers, data in pieces, misbehaving peers, and
//! certificates that change at runtime. The client is rustls's own connection.

use std::fs;
use std::io::{ErrorKind, Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::path::Path;
use std::process::Command;
use std::sync::Arc;
use std::time::{Duration, Instant};

use redline_resp::Value;
use redline_testkit::certificates::{Authority, Certified};
use redline_testkit::client::{Client, encode};
use redline_testkit::process::{SECOND_PORT, ServerProcess};
use rustls::crypto::ring::default_provider;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName, pem::PemObject};
use rustls::version::{TLS12, TLS13};
use rustls::{ClientConfig, ClientConnection, RootCertStore, SupportedProtocolVersion};

use crate::proxying::{self, REDLINE, assert_error, bulk, call, ok};

const PATIENCE: Duration = Duration::from_secs(60);
const MIB: usize = 1 << 20;

/// An authority, and its certificates in files.
struct Certificates {
    folder: tempfile::TempDir,
    authority: Authority,
}

impl Certificates {
    fn new() -> Certificates {
        let made = Certificates {
            folder: tempfile::tempdir().unwrap(),
            authority: Authority::new("authority.test"),
        };
        fs::write(made.path("ca.pem"), made.authority.cert()).unwrap();
        made.write("server", &made.authority.certify("localhost"));
        made.write("own", &made.authority.certify("proxy.test"));
        made
    }

    fn path(&self, name: &str) -> String {
        self.folder.path().join(name).display().to_string()
    }

    fn write(&self, name: &str, certified: &Certified) {
        fs::write(self.path(&format!("{name}.pem")), &certified.cert).unwrap();
        fs::write(self.path(&format!("{name}.key")), &certified.key).unwrap();
    }

    /// Returns the arguments of a TLS port, for the server and for the proxy.
    fn words(&self, clients: &str) -> Vec<String> {
        [
            ("--tls-port", SECOND_PORT.to_owned()),
            ("--tls-cert-file", self.path("server.pem")),
            ("--tls-key-file", self.path("server.key")),
            ("--tls-ca-cert-file", self.path("ca.pem")),
            ("--tls-auth-clients", clients.to_owned()),
        ]
        .into_iter()
        .flat_map(|(name, value)| [name.to_owned(), value])
        .collect()
    }

    fn config(
        &self,
        versions: &[&'static SupportedProtocolVersion],
        presented: Option<&Certified>,
    ) -> Arc<ClientConfig> {
        let mut roots = RootCertStore::empty();
        let pem = self.authority.cert().as_bytes();
        roots
            .add(CertificateDer::from_pem_slice(pem).unwrap())
            .unwrap();
        let builder = ClientConfig::builder_with_provider(Arc::new(default_provider()))
            .with_protocol_versions(versions)
            .unwrap()
            .with_root_certificates(roots);
        Arc::new(match presented {
            None => builder.with_no_client_auth(),
            Some(Certified { cert, key }) => builder
                .with_client_auth_cert(
                    vec![CertificateDer::from_pem_slice(cert.as_bytes()).unwrap()],
                    PrivateKeyDer::from_pem_slice(key.as_bytes()).unwrap(),
                )
                .unwrap(),
        })
    }
}

/// A connection with TLS.
struct Secure {
    tls: ClientConnection,
    tcp: TcpStream,
}

impl Secure {
    fn connect(port: u16, config: Arc<ClientConfig>) -> Secure {
        let tcp = TcpStream::connect(("127.0.0.1", port)).unwrap();
        tcp.set_nodelay(true).unwrap();
        tcp.set_read_timeout(Some(PATIENCE)).unwrap();
        tcp.set_write_timeout(Some(PATIENCE)).unwrap();
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

    /// Sends the connection's pending bytes, one at a time.
    fn trickle(&mut self) {
        let mut bytes = Vec::new();
        while self.tls.wants_write() {
            self.tls.write_tls(&mut bytes).unwrap();
        }
        for byte in bytes {
            self.tcp.write_all(&[byte]).unwrap();
        }
    }
}

/// Returns a server with a TLS port beside the plain one.
fn server(certificates: &Certificates, clients: &str) -> (ServerProcess, SocketAddr) {
    let words = certificates.words(clients);
    let server = ServerProcess::redline(Path::new(REDLINE), 1, &words).expect("a server starts");
    let address = SocketAddr::from(([127, 0, 0, 1], server.second_port()));
    (server, address)
}

/// Returns a proxy with TLS to its upstreams, with these further arguments.
fn proxy_with_tls_behind(
    certificates: &Certificates,
    upstreams: &[SocketAddr],
    more: &[&str],
) -> ServerProcess {
    let mut words = vec!["--upstream-tls".to_owned()];
    words.extend(more.iter().map(|&word| word.to_owned()));
    if !more.contains(&"--upstream-tls-insecure") {
        words.push("--upstream-tls-ca-cert-file".to_owned());
        words.push(certificates.path("ca.pem"));
    }
    ServerProcess::proxy(Path::new(REDLINE), upstreams, &words).expect("the proxy starts")
}

#[test]
fn clients_speak_both_versions_beside_the_plain_port() {
    let certificates = Certificates::new();
    let behind = ServerProcess::redline(Path::new(REDLINE), 1, &[]).unwrap();
    let mut words = certificates.words("no");
    // PUBLISH counts workers that have subscribers.
    words.extend(["--threads", "1"].map(str::to_owned));
    let proxy = ServerProcess::proxy(Path::new(REDLINE), &[behind.address()], &words).unwrap();
    let port = proxy.second_port();
    let mut plain = Client::connect(proxy.address()).unwrap();
    for version in [&TLS12, &TLS13] {
        let config = certificates.config(&[version], None);
        let mut secure = Secure::connect(port, Arc::clone(&config));
        secure.exchange(b"SET k v\r\n", b"+OK\r\n");
        assert_eq!(call(&mut plain, "GET k"), bulk("v"));
        secure.exchange(
            b"SUBSCRIBE c\r\n",
            b"*3\r\n$9\r\nsubscribe\r\n$1\r\nc\r\n:1\r\n",
        );
        assert_eq!(call(&mut plain, "PUBLISH c hello"), Value::Integer(1));
        let message = b"*3\r\n$7\r\nmessage\r\n$1\r\nc\r\n$5\r\nhello\r\n";
        assert_eq!(secure.read(message.len()).unwrap(), message);
        // The handshake, too: the client's messages are sent a byte at a time.
        let mut slow = Secure::connect(port, config);
        while slow.tls.is_handshaking() {
            slow.trickle();
            if slow.tls.wants_read() && slow.tls.is_handshaking() {
                slow.tls.read_tls(&mut slow.tcp).unwrap();
                slow.tls.process_new_packets().unwrap();
            }
        }
        let mut request = Vec::new();
        encode(&["MSET", "a", "1", "b", "2"], &mut request);
        request.extend_from_slice(b"get a\r\n");
        slow.tls.writer().write_all(&request).unwrap();
        slow.trickle();
        assert_eq!(slow.read(12).unwrap(), b"+OK\r\n$1\r\n1\r\n");
    }
}

#[test]
fn clients_present_a_certificate_if_they_are_asked_and_who_is_refused_disturbs_nobody() {
    let certificates = Certificates::new();
    let behind = ServerProcess::redline(Path::new(REDLINE), 1, &[]).unwrap();
    let good = certificates.authority.certify("client.test");
    let stranger = Authority::new("authority.test").certify("client.test");
    for (asked, without, strange) in [
        ("yes", false, false),
        ("optional", true, false),
        ("no", true, true),
    ] {
        let proxy = ServerProcess::proxy(
            Path::new(REDLINE),
            &[behind.address()],
            &certificates.words(asked),
        )
        .unwrap();
        let port = proxy.second_port();
        let mut stays = Secure::connect(port, certificates.config(&[&TLS13], Some(&good)));
        stays.exchange(b"PING\r\n", b"+PONG\r\n");
        for version in [&TLS12, &TLS13] {
            let ping = |presented| {
                let config = certificates.config(&[version], presented);
                let mut client = Secure::connect(port, config);
                client.try_exchange(b"PING\r\n", b"+PONG\r\n")
            };
            assert!(ping(Some(&good)).is_ok(), "{asked}");
            assert_eq!(ping(None).is_ok(), without, "{asked}");
            assert_eq!(ping(Some(&stranger)).is_ok(), strange, "{asked}");
        }
        // No TLS at all.
        let mut plain = TcpStream::connect(("127.0.0.1", port)).unwrap();
        plain.set_read_timeout(Some(PATIENCE)).unwrap();
        plain.write_all(b"*1\r\n$4\r\nPING\r\n").unwrap();
        let mut told = Vec::new();
        match plain.read_to_end(&mut told) {
            Ok(_) => assert!(!told.starts_with(b"+"), "{told:?}"),
            Err(error) => assert_eq!(error.kind(), ErrorKind::ConnectionReset),
        }
        stays.exchange(b"PING\r\n", b"+PONG\r\n");
    }
}

#[test]
fn a_handshake_that_never_ends_is_cut() {
    let certificates = Certificates::new();
    let behind = ServerProcess::redline(Path::new(REDLINE), 1, &[]).unwrap();
    let proxy = ServerProcess::proxy(
        Path::new(REDLINE),
        &[behind.address()],
        &certificates.words("no"),
    )
    .unwrap();
    let port = proxy.second_port();
    let mut silent = TcpStream::connect(("127.0.0.1", port)).unwrap();
    silent.set_read_timeout(Some(PATIENCE)).unwrap();
    let began = Instant::now();
    assert_eq!(silent.read(&mut [0; 16]).unwrap(), 0);
    assert!(began.elapsed() >= Duration::from_secs(9));
    let mut plain = Client::connect(proxy.address()).unwrap();
    let Value::Bulk(list) = call(&mut plain, "CLIENT LIST") else {
        panic!("a list");
    };
    assert_eq!(list.iter().filter(|&&byte| byte == b'\n').count(), 1);
}

#[test]
fn large_values_and_slow_readers_over_tls_on_both_sides() {
    let certificates = Certificates::new();
    let (_server, address) = server(&certificates, "no");
    let mut words = certificates.words("no");
    words.extend(["--upstream-tls", "--upstream-tls-ca-cert-file"].map(str::to_owned));
    words.push(certificates.path("ca.pem"));
    let proxy = ServerProcess::proxy(Path::new(REDLINE), &[address], &words).unwrap();
    let port = proxy.second_port();
    let value: Vec<u8> = (0..100 * MIB).map(|at| (at / 7 % 251) as u8).collect();
    let mut set = Vec::new();
    encode(&[&b"SET"[..], b"large", &value], &mut set);
    let head = format!("${}\r\n", value.len()).into_bytes();
    for version in [&TLS12, &TLS13] {
        let mut secure = Secure::connect(port, certificates.config(&[version], None));
        secure.write(&set).unwrap();
        assert_eq!(secure.read(5).unwrap(), b"+OK\r\n");
        // Requests leave before anything is read: the replies are far more than sockets and windows hold.
        secure.write(&b"GET large\r\n".repeat(2)).unwrap();
        let mut other = Client::connect(proxy.address()).unwrap();
        assert_eq!(call(&mut other, "SET small v"), ok());
        assert_eq!(call(&mut other, "GET small"), bulk("v"));
        for _ in 0..2 {
            assert_eq!(secure.read(head.len()).unwrap(), head);
            assert!(secure.read(value.len()).unwrap() == value, "other bytes");
            assert_eq!(secure.read(2).unwrap(), b"\r\n");
        }
        secure.exchange(b"PING\r\n", b"+PONG\r\n");
    }
    let peak = proxying::peak_bytes(&proxy);
    // It passed six times, and was never held as a whole. The part in flight depends on the scheduling.
    assert!(peak < value.len(), "{peak} bytes");
}

#[test]
fn servers_are_spoken_to_with_tls_and_their_certificates_looked_at() {
    let certificates = Certificates::new();
    let (_one, first) = server(&certificates, "yes");
    let (_two, second) = server(&certificates, "yes");
    let (own, key) = (certificates.path("own.pem"), certificates.path("own.key"));
    let presents = [
        "--upstream-tls-cert-file",
        &own,
        "--upstream-tls-key-file",
        &key,
    ];
    let with = |more: &[&str]| {
        let words: Vec<&str> = presents.iter().chain(more).copied().collect();
        proxy_with_tls_behind(&certificates, &[first, second], &words)
    };
    let proxy = with(&["--threads", "2", "--upstream-tls-sni", "localhost"]);
    let mut client = Client::connect(proxy.address()).unwrap();
    let mut requests = Vec::new();
    for number in 0..500 {
        let key = format!("key:{number}");
        encode(&["SET", &key, &key], &mut requests);
        encode(&["MGET", &key, "nothing"], &mut requests);
    }
    client.send(&requests).unwrap();
    for number in 0..500 {
        assert_eq!(client.reply().unwrap(), Some(ok()));
        let found = Value::Array(vec![bulk(&format!("key:{number}")), Value::NullBulk]);
        assert_eq!(client.reply().unwrap(), Some(found));
    }
    assert_eq!(call(&mut client, "DBSIZE"), Value::Integer(500));
    // Private connections and subscriptions.
    call(&mut client, "MULTI");
    call(&mut client, "INCR n");
    assert_eq!(
        call(&mut client, "EXEC"),
        Value::Array(vec![Value::Integer(1)])
    );
    assert!(!call(&mut client, "SUBSCRIBE c").is_error());
    // The name is not that of the certificate; without one it is not checked.
    let proxy = with(&["--upstream-tls-sni", "elsewhere.test"]);
    let mut client = Client::connect(proxy.address()).unwrap();
    assert_error(&call(&mut client, "SET k v"), "ERR upstream");
    let proxy = with(&[]);
    let mut client = Client::connect(proxy.address()).unwrap();
    assert_eq!(call(&mut client, "SET k v"), ok());
    // Without a certificate of our own the servers refuse us; an unknown authority is refused by us.
    let proxy = proxy_with_tls_behind(&certificates, &[first], &[]);
    let mut client = Client::connect(proxy.address()).unwrap();
    assert_error(&call(&mut client, "SET k v"), "ERR upstream");
    let others = Certificates::new();
    let (_three, third) = server(&others, "no");
    let proxy = proxy_with_tls_behind(&certificates, &[third], &[]);
    let mut client = Client::connect(proxy.address()).unwrap();
    let refused = call(&mut client, "SET k v");
    assert_error(&refused, "ERR upstream");
    let text = String::from_utf8_lossy(refused.as_bytes().unwrap()).into_owned();
    assert!(text.contains("certificate"), "{text}");
    let proxy = proxy_with_tls_behind(&certificates, &[third], &["--upstream-tls-insecure"]);
    let mut client = Client::connect(proxy.address()).unwrap();
    assert_eq!(call(&mut client, "SET k v"), ok());
}

#[test]
fn a_server_without_tls_is_an_error_that_says_so() {
    let certificates = Certificates::new();
    let plain = ServerProcess::redline(Path::new(REDLINE), 1, &[]).unwrap();
    let proxy = proxy_with_tls_behind(&certificates, &[plain.address()], &[]);
    let mut client = Client::connect(proxy.address()).unwrap();
    assert_error(&call(&mut client, "GET k"), "ERR upstream");
    assert_eq!(call(&mut client, "PING"), Value::Simple(b"PONG".to_vec()));
}

#[test]
fn certificates_are_read_again_and_old_connections_stay() {
    let certificates = Certificates::new();
    let (server, address) = server(&certificates, "no");
    let mut words = certificates.words("no");
    words.extend(["--upstream-tls", "--upstream-tls-ca-cert-file"].map(str::to_owned));
    words.push(certificates.path("ca.pem"));
    let proxy = ServerProcess::proxy(Path::new(REDLINE), &[address], &words).unwrap();
    let port = proxy.second_port();
    let mut old = Secure::connect(port, certificates.config(&[&TLS13], None));
    old.exchange(b"SET k v\r\n", b"+OK\r\n");
    // Unusable files change nothing.
    let (cert, key) = (
        certificates.path("server.pem"),
        certificates.path("server.key"),
    );
    fs::write(&cert, "nothing").unwrap();
    let mut plain = Client::connect(proxy.address()).unwrap();
    assert_error(
        &call(&mut plain, "CONFIG RELOAD"),
        "ERR the configuration stays",
    );
    let mut same = Secure::connect(port, certificates.config(&[&TLS13], None));
    same.exchange(b"PING\r\n", b"+PONG\r\n");
    // Another authority signs both from now on.
    let fresh = Certificates::new();
    fs::copy(fresh.path("server.pem"), &cert).unwrap();
    fs::copy(fresh.path("server.key"), &key).unwrap();
    assert_eq!(call(&mut plain, "CONFIG RELOAD"), ok());
    let mut new = Secure::connect(port, fresh.config(&[&TLS13], None));
    new.exchange(b"GET k\r\n", b"$1\r\nv\r\n");
    let mut late = Secure::connect(port, certificates.config(&[&TLS13], None));
    assert!(late.try_exchange(b"PING\r\n", b"+PONG\r\n").is_err());
    old.exchange(b"GET k\r\n", b"$1\r\nv\r\n");
    // The same by SIGHUP, whose effect new clients see in the certificate.
    fs::copy(certificates.path("own.pem"), &cert).unwrap();
    fs::copy(certificates.path("own.key"), &key).unwrap();
    let pid = proxy.pid().to_string();
    assert!(
        Command::new("kill")
            .args(["-HUP", &pid])
            .status()
            .unwrap()
            .success()
    );
    let deadline = Instant::now() + PATIENCE;
    loop {
        let mut client = Secure::connect(port, fresh.config(&[&TLS13], None));
        if client.try_exchange(b"PING\r\n", b"+PONG\r\n").is_err() {
            break;
        }
        assert!(Instant::now() < deadline, "it still shows the old one");
    }
    drop(server);
}

#[test]
fn who_ends_its_side_by_tls_alone_while_it_waits_does_not_wait_for_ever() {
    let certificates = Certificates::new();
    let behind = ServerProcess::redline(Path::new(REDLINE), 1, &[]).unwrap();
    let words = certificates.words("no");
    let proxy = ServerProcess::proxy(Path::new(REDLINE), &[behind.address()], &words).unwrap();
    for versions in [[&TLS12], [&TLS13]] {
        // Bytes after the call are not checked, nor later ones; or they come later.
        for is_later in [false, true] {
            let config = certificates.config(&versions, None);
            let mut client = Secure::connect(proxy.second_port(), config);
            client.exchange(b"PING\r\n", b"+PONG\r\n");
            client.write(b"BLPOP q 0\r\nPING\r\n").unwrap();
            if is_later {
                let mut direct = Client::connect(behind.address()).unwrap();
                proxying::until("it waits", || {
                    let info = call(&mut direct, "INFO clients");
                    let text = String::from_utf8_lossy(info.as_bytes().unwrap()).into_owned();
                    text.contains("blocked_clients:1")
                });
            }
            client.tls.send_close_notify();
            while client.tls.wants_write() {
                client.tls.write_tls(&mut client.tcp).unwrap();
            }
            // The connection itself stays open at this end.
            let mut rest = Vec::new();
            client.tcp.read_to_end(&mut rest).expect("an end");
        }
    }
}
