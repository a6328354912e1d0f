//! `redline bench run` on servers that come and go, or fall silent.

use std::sync::atomic::{AtomicU64, Ordering};

use crate::fake_server::{Answer, FakeServer, reply};
use crate::invocation::{Ran, bench};
use serde_json::Value;

fn run(server: &FakeServer, args: &[&str]) -> Ran {
    let port = server.port();
    bench(&[&["run", "-p", &port, "--no-calibration"][..], args].concat())
}

fn result(ran: &Ran) -> Value {
    assert_eq!(ran.code, 0, "{}", ran.stderr);
    serde_json::from_str(&ran.stdout).expect("nothing but JSON")
}

/// A server that answers GET, loses the connection with the tenth, and answers `refusal` to what the next connections
/// say first, `times` times.
fn comes_back(first: &'static [u8], refusal: &'static str, times: u64) -> FakeServer {
    let (gets, refused) = (AtomicU64::new(0), AtomicU64::new(0));
    FakeServer::start(move |request| {
        let is_first = request[0] == first && gets.load(Ordering::Relaxed) > 9;
        if is_first && refused.fetch_add(1, Ordering::Relaxed) < times {
            return Answer::Close(refusal.as_bytes().to_vec());
        }
        match request[0].as_slice() {
            b"GET" if gets.fetch_add(1, Ordering::Relaxed) == 9 => Answer::Close(Vec::new()),
            _ => reply("+OK\r\n"),
        }
    })
}

#[test]
fn a_server_that_refuses_new_connections_for_a_while_is_tried_again() {
    let args = ["--command", "GET a", "-c", "1", "-n", "20", "--json", "-"];
    for (first, refusal, more) in [
        (&b"AUTH"[..], "-LOADING not yet\r\n", &["-a", "secret"][..]),
        (b"AUTH", "-WRONGPASS no\r\n", &["-a", "secret"]),
        (b"GET", "-LOADING not yet\r\n", &[]),
        (b"GET", "-ERR max number of clients reached\r\n", &[]),
    ] {
        let server = comes_back(first, refusal, 3);
        let ran = run(&server, &[&args[..], &["--reconnect"], more].concat());
        let requests = &result(&ran)["requests"];
        assert_eq!(requests["connections_lost"], 1, "{refusal}: {requests}");
        assert_eq!(requests["reconnects_failed"], 3, "{refusal}: {requests}");
        assert_eq!(requests["sent"], 20, "{refusal}: {requests}");
    }
}

#[test]
fn an_error_that_is_about_the_request_ends_a_run_on_a_new_connection_too() {
    let args = ["--command", "GET a", "-c", "1", "-n", "20", "--reconnect"];
    let server = comes_back(b"GET", "-WRONGTYPE it is a list\r\n", 1);
    let ran = run(&server, &args);
    assert_eq!(ran.code, 1, "{}", ran.stdout);
    assert!(ran.stderr.contains("WRONGTYPE"), "{}", ran.stderr);
}
