//! Peers that send no TLS, damaged TLS, too little or nothing: only their own connections end.

use super::*;

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
