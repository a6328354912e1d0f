//! `redline ping`: its exit codes, which health checks go by.

use std::io::{Read as _, Write as _};
use std::net::TcpListener;
use std::process::{Command, Output};

use redline_testkit::port::ReservedPort;

use crate::running::{REDLINE, Running, folder_with};

fn ping(args: &[&str]) -> Output {
    Command::new(REDLINE)
        .arg("ping")
        .args(args)
        .env_remove("REDISCLI_AUTH")
        .output()
        .unwrap()
}

/// Asserts the exit code and a part of what was said, on standard output with success and else on standard error.
#[track_caller]
fn assert_said(output: &Output, code: i32, part: &str) {
    assert_eq!(output.status.code(), Some(code), "{output:?}");
    let (said, silent) = match code {
        0 => (&output.stdout, &output.stderr),
        _ => (&output.stderr, &output.stdout),
    };
    let said = String::from_utf8_lossy(said);
    assert!(said.contains(part) && silent.is_empty(), "{part}: {said}");
}

#[test]
fn the_exit_code_tells_pong_from_an_error_and_from_silence() {
    let running = Running::start(folder_with("requirepass secret\n"), &["r.conf"], None);
    let socket = running.path("s");
    let socket = socket.to_str().unwrap();
    assert_said(&ping(&["-s", socket, "-a", "secret"]), 0, "PONG\n");
    let named = ["-s", socket, "--user", "default", "-a", "secret"];
    assert_said(&ping(&named), 0, "PONG\n");
    assert_said(&ping(&["-s", socket]), 1, "NOAUTH");
    let wrong = ping(&["-s", socket, "-a", "nonsense"]);
    assert_said(&wrong, 1, "WRONGPASS");
    assert!(!String::from_utf8_lossy(&wrong.stderr).contains("nonsense"));
    let by_environment = Command::new(REDLINE)
        .args(["ping", "-s", socket])
        .env("REDISCLI_AUTH", "secret")
        .output()
        .unwrap();
    assert_said(&by_environment, 0, "PONG\n");
    assert_said(&ping(&["-s", "/nosuch/s"]), 2, "/nosuch/s: ");
    let free = ReservedPort::any();
    let port = free.number().to_string();
    let refused = ping(&["-h", "127.0.0.1", "-p", &port]);
    assert_said(
        &refused,
        2,
        &format!("127.0.0.1:{port}: Connection refused"),
    );
}

#[test]
fn who_answers_something_else_or_nothing_is_not_waited_for() {
    let silent = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = silent.local_addr().unwrap().port().to_string();
    let waited = ping(&["-p", &port, "--timeout", "0.2"]);
    assert_said(&waited, 2, "no answer in time");
    for (answer, said) in [
        (
            &b"HTTP/1.1 400 Bad Request\r\n\r\n"[..],
            "not one of a Redis server",
        ),
        (b"+OK\r\n", "not PONG"),
        (b"", "closed before the answer"),
        (b"-LOADING the dataset\r\n", "LOADING the dataset"),
    ] {
        let other = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = other.local_addr().unwrap().port().to_string();
        let serving = std::thread::spawn(move || {
            let (mut client, _) = other.accept().unwrap();
            let mut request = [0; 14];
            client.read_exact(&mut request).unwrap();
            client.write_all(answer).unwrap();
        });
        let output = ping(&["-p", &port, "--timeout", "60"]);
        let code = if answer.starts_with(b"-") { 1 } else { 2 };
        assert_said(&output, code, said);
        serving.join().unwrap();
    }
}

#[test]
fn a_wrong_call_is_no_health() {
    for args in [
        &["-p", "70000"][..],
        &["--timeout", "0"],
        &["--timeout", "-1"],
        &["--sni", "a"],
        &["--tls", "--cacert", "/nosuch"],
        &["--tls", "--cert", "a"],
        &["nonsense"],
    ] {
        assert_eq!(ping(args).status.code(), Some(2), "{args:?}");
    }
    assert_said(&ping(&["--help"]), 0, "Exit code: 0; 1: ");
}
