//! Certificates: who has to show one, when they are read again, and what is wrong with some.

use super::*;

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
