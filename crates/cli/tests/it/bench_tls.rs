//! `redline bench run --tls` against servers that stall: in the middle of a request, or of a handshake.

use std::net::{Ipv4Addr, TcpListener};
use std::process::{Child, Command, Output, Stdio};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

use crate::fake_server::{Answer, Request, known, reply, serve};
use crate::running::{REDLINE, until};
use redline_testkit::certificates::Authority;
use rustls::crypto::ring::default_provider;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, pem::PemObject};
use rustls::{ServerConfig, ServerConnection, StreamOwned};
use serde_json::Value;

/// Returns the port of a server with TLS, which is a whole cluster if asked. Connections after `silent` is set are
/// accepted and not answered.
fn server(
    answer: impl Fn(&Request) -> Answer + Send + Sync + 'static,
    silent: impl Fn() -> bool + Send + 'static,
) -> u16 {
    let certified = Authority::new("bench").certify("localhost");
    let cert = CertificateDer::from_pem_slice(certified.cert.as_bytes()).expect("it is PEM");
    let key = PrivateKeyDer::from_pem_slice(certified.key.as_bytes()).expect("it is PEM");
    let config = ServerConfig::builder_with_provider(default_provider().into())
        .with_safe_default_protocol_versions()
        .and_then(|builder| {
            builder
                .with_no_client_auth()
                .with_single_cert(vec![cert], key)
        });
    let config = Arc::new(config.expect("the two belong together"));
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a free port");
    let port = listener.local_addr().expect("it is bound").port();
    let answer = Arc::new(move |request: &Request| match request[0].as_slice() {
        b"CLUSTER" => reply(&format!(
            "*1\r\n*3\r\n:0\r\n:16383\r\n*2\r\n$9\r\n127.0.0.1\r\n:{port}\r\n"
        )),
        _ => known(request).unwrap_or_else(|| answer(request)),
    });
    thread::spawn(move || {
        let mut kept = Vec::new();
        for stream in listener.incoming().flatten() {
            if silent() {
                kept.push(stream);
                continue;
            }
            let (config, answer) = (Arc::clone(&config), Arc::clone(&answer));
            // The end of the test closes the connection: errors then are ignored.
            thread::spawn(move || {
                let tls = ServerConnection::new(config).ok()?;
                serve(StreamOwned::new(tls, stream), &*answer, &Mutex::default())
            });
        }
    });
    port
}

fn start(port: u16, args: &[&str]) -> Child {
    Command::new(REDLINE)
        .args(["bench", "run", "--tls", "--insecure", "--json", "-"])
        .args(["--no-calibration", "-p", &port.to_string()])
        .args(args)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("the binary starts")
}

/// Returns the output of a child, with a time-out.
fn ended(mut child: Child) -> Output {
    // Its output fits into the pipes.
    until("the run ends", || child.try_wait().expect("it is ours"));
    child.wait_with_output().expect("it has ended")
}

/// Of each batch, the first request is read, and the rest exceeds the sockets' buffers.
const LARGE: [&str; 10] = [
    "--command",
    "SET key:{uniform:10} {value}",
    "--value-size",
    "4000000",
    "--pipeline",
    "4",
    "-c",
    "2",
    "--value-content",
    "fixed",
];

#[test]
fn requests_whose_server_stops_reading_wait_until_it_reads_on() {
    let pause = Duration::from_millis(1_200);
    for more in [&[][..], &["--cluster"]] {
        let sets = AtomicU64::new(0);
        let answer = move |request: &Request| {
            if request[0] == b"SET" && sets.fetch_add(1, Ordering::Relaxed) == 1 {
                thread::sleep(pause);
            }
            reply("+OK\r\n")
        };
        let port = server(answer, || false);
        let output = ended(start(port, &[&LARGE[..], &["-n", "16"], more].concat()));
        let said = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(0), "{more:?}: {said}");
        let result: Value = serde_json::from_slice(&output.stdout).expect("it is JSON");
        assert_eq!(result["requests"]["values"], 16, "{more:?}");
        let max_us = result["response_us"]["max"].as_u64().expect("a number");
        assert!(max_us >= 1_190_000, "{more:?}: {max_us}");
        // No connection had to be given up.
        if let Some(redirects) = result["redirects"].as_object() {
            assert_eq!(redirects["resent"], 0, "{redirects:?}");
        }
    }
}

#[test]
fn a_server_that_never_reads_on_does_not_keep_a_run_from_ending() {
    for more in [
        &["--timeout", "0.3"][..],
        &["--cluster", "--timeout", "0.3"],
    ] {
        let answer = |request: &Request| {
            if request[0] != b"SET" {
                return reply("+OK\r\n");
            }
            loop {
                thread::park();
            }
        };
        let port = server(answer, || false);
        let output = ended(start(
            port,
            &[&LARGE[..], &["--duration", "1"], more].concat(),
        ));
        let said = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(1), "{more:?}: {said}");
        assert!(said.ends_with("No request was answered.\n"), "{said}");
        let result: Value = serde_json::from_slice(&output.stdout).expect("it is JSON");
        let requests = &result["requests"];
        assert_eq!(requests["values"], 0, "{more:?}: {requests}");
        let count = |name: &str| requests[name].as_u64().expect("a number");
        assert!(
            count("unanswered") + count("lost") >= 8,
            "{more:?}: {requests}"
        );
    }
}

#[test]
fn a_handshake_that_is_not_answered_ends_the_run() {
    let runs = [&[][..], &["--cluster"]].map(|more| {
        // Pings are the last requests before the load's connections are opened.
        let pinged = Arc::new(AtomicBool::new(false));
        let seen = Arc::clone(&pinged);
        let answer = move |request: &Request| {
            if request[0] == b"PING" {
                seen.store(true, Ordering::Relaxed);
            }
            reply("+OK\r\n")
        };
        let port = server(answer, move || pinged.load(Ordering::Relaxed));
        let load = ["--command", "GET a", "--duration", "1"];
        start(port, &[&load[..], more].concat())
    });
    for run in runs {
        let output = ended(run);
        let said = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(1), "{said}");
        assert!(said.contains("does it speak TLS"), "{said}");
    }
}

#[test]
fn a_handshake_of_a_later_connection_is_not_waited_for_without_end() {
    // Each batch has its own connection, and from the tenth on they are silent.
    let lines = [
        &["-q", "-k", "0", "-t", "get", "-n", "50"][..],
        &[
            "run",
            "--reconnect-after",
            "1",
            "--command",
            "GET a",
            "-n",
            "50",
        ],
    ];
    let runs = lines.map(|line| {
        let gets = Arc::new(AtomicU64::new(0));
        let seen = Arc::clone(&gets);
        let answer = move |request: &Request| {
            seen.fetch_add(u64::from(request[0] == b"GET"), Ordering::Relaxed);
            reply("+OK\r\n")
        };
        let port = server(answer, move || gets.load(Ordering::Relaxed) >= 10);
        Command::new(REDLINE)
            .arg("bench")
            .args(line)
            .args(["-c", "1", "--tls", "--insecure", "-p", &port.to_string()])
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .expect("the binary starts")
    });
    for run in runs {
        let output = ended(run);
        let said = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(1), "{said}");
        assert!(said.contains("does it speak TLS"), "{said}");
    }
}
