//! `redline bench` as a process: signals, exit codes, and the name in its messages.

use std::os::unix::fs::symlink;
use std::os::unix::process::ExitStatusExt;
use std::process::{Child, Command, Output, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::Duration;

use crate::fake_server::{Answer, FakeServer, reply};
use crate::running::signal;

const REDLINE: &str = env!("CARGO_BIN_EXE_redline");

/// Starts `redline bench`, sends Ctrl-C when `ready` returns true, and returns its output.
fn interrupted(server: &FakeServer, args: &[&str], ready: impl Fn(&FakeServer) -> bool) -> Output {
    let child = Command::new(REDLINE)
        .args(["bench", "-p", &server.port()])
        .args(args)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("the binary starts");
    while !ready(server) {
        thread::sleep(Duration::from_millis(1));
    }
    signal(&child, "INT");
    child.wait_with_output().expect("the binary ends")
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

#[test]
fn ctrl_c_reports_what_was_measured() {
    let server = FakeServer::ok();
    let busy = |server: &FakeServer| server.requests().len() > 100;
    let output = interrupted(
        &server,
        &["-t", "get", "-n", "1000000000", "-q", "--threads", "2"],
        busy,
    );
    assert_eq!(
        (output.status.code(), output.status.signal()),
        (Some(130), None)
    );
    let stdout = text(&output.stdout);
    assert!(
        stdout.contains("requests per second, p50=")
            && stdout.contains(" of 1000000000 requests)\n"),
        "{stdout}"
    );
    assert_eq!(text(&output.stderr), "Interrupted.\n");
}

#[test]
fn ctrl_c_ends_a_run_whose_server_is_silent() {
    let server = FakeServer::start(|_| Answer::Silence);
    let loaded = |server: &FakeServer| server.lines().contains(&"GET key:__rand_int__".to_owned());
    let output = interrupted(&server, &["-t", "get", "-q"], loaded);
    assert_eq!(
        (output.status.code(), output.status.signal()),
        (Some(130), None)
    );
    assert!(!text(&output.stdout).contains("requests per second"));

    let server = FakeServer::start_raw(|_| Answer::Silence);
    let probed = |server: &FakeServer| !server.requests().is_empty();
    let output = interrupted(&server, &[], probed);
    assert_eq!(
        (output.status.code(), output.status.signal()),
        (Some(130), None)
    );
}

/// Returns the peak memory of a process, in bytes.
fn peak_bytes(child: &Child) -> usize {
    let status = std::fs::read_to_string(format!("/proc/{}/status", child.id())).unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
    let kib = line.and_then(|line| line.trim().split(' ').next()?.parse::<usize>().ok());
    kib.expect("the kernel tells") * 1024
}

#[test]
fn a_large_value_is_held_once_whoever_sends_it() {
    const BYTES: usize = 32 << 20;
    let size = BYTES.to_string();
    for (args, copies) in [
        (&["-t", "set", "-c", "3"][..], 1),
        (&["-t", "set", "-c", "2", "--threads", "2"], 1),
        (&["-t", "set", "-c", "2", "-a", "pw"], 1),
        (&["-t", "set", "-c", "1", "-r", "100", "-a", "pw"], 1),
        // Each has its own key.
        (&["-t", "set", "-c", "2", "-r", "100"], 2),
    ] {
        let sets = Arc::new(AtomicUsize::new(0));
        let seen = Arc::clone(&sets);
        let server = FakeServer::start(move |request| match request[0].as_slice() {
            b"SET" => {
                seen.fetch_add(1, Ordering::Relaxed);
                Answer::Silence
            }
            _ => reply("+OK\r\n"),
        });
        let clients: usize = args[3].parse().unwrap();
        let mut child = Command::new(REDLINE)
            .args(["bench", "-q", "-p", &server.port(), "-d", &size])
            .args(args)
            .stdout(Stdio::null())
            .spawn()
            .expect("the binary starts");
        while sets.load(Ordering::Relaxed) < clients {
            thread::sleep(Duration::from_millis(1));
        }
        let peak = peak_bytes(&child);
        signal(&child, "INT");
        child.wait().expect("the binary ends");
        // Half of one for the program itself.
        let limit = copies * BYTES + BYTES * 3 / 4;
        assert!(peak < limit, "{args:?}: {peak} bytes");
    }
}

#[test]
fn ctrl_c_ends_idle_mode() {
    let server = FakeServer::ok();
    let probed = |server: &FakeServer| server.requests().len() == 2;
    let output = interrupted(&server, &["-I", "-c", "5"], probed);
    assert_eq!(
        (output.status.code(), output.status.signal()),
        (Some(130), None)
    );
}

#[test]
fn the_embedded_server_takes_the_load() {
    let output = Command::new(REDLINE)
        .args([
            "bench",
            "--embedded",
            "-n",
            "1000",
            "-q",
            "-t",
            "ping,set,get",
        ])
        .output()
        .expect("the binary starts");
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    let stdout = text(&output.stdout);
    let lines: Vec<&str> = stdout
        .lines()
        .map(|line| line.rsplit('\r').next().unwrap_or(line))
        .collect();
    assert!(
        lines[0].starts_with("Embedded server: 127.0.0.1:") && lines[0].contains(" worker"),
        "{stdout}"
    );
    let titles: Vec<&str> = lines[1..5]
        .iter()
        .filter_map(|line| line.split(": ").next())
        .collect();
    assert_eq!(titles, ["PING_INLINE", "PING_MBULK", "SET", "GET"]);
    assert_eq!(lines[5..], [""], "nothing but the reports is said");
}

#[test]
fn a_link_named_redis_benchmark_is_redis_benchmark() {
    let folder = tempfile::tempdir().expect("a folder of its own");
    let link = folder.path().join("redis-benchmark");
    symlink(REDLINE, &link).expect("a link");
    let output = Command::new(&link)
        .arg("--version")
        .output()
        .expect("the link runs");
    assert!(text(&output.stdout).starts_with("redis-benchmark 7.0.15 "));
    let output = Command::new(&link)
        .arg("--nope")
        .output()
        .expect("the link runs");
    assert_eq!(output.status.code(), Some(1));
    let said = "redis-benchmark: --nope: no such option. See redis-benchmark --help\n";
    assert_eq!(text(&output.stderr), said);
}

#[test]
fn unknown_parts_are_named() {
    let output = Command::new(REDLINE)
        .arg("sever")
        .output()
        .expect("the binary starts");
    assert_eq!(output.status.code(), Some(1));
    assert!(
        text(&output.stderr).starts_with("redline: sever: no such part; did you mean \"server\"?")
    );
}

#[test]
fn more_connections_than_files_are_refused_at_once() {
    let server = FakeServer::ok();
    // More than any process may have open, with any user.
    let output = Command::new(REDLINE)
        .args([
            "bench",
            "-p",
            &server.port(),
            "-c",
            "4294967295",
            "-t",
            "get",
        ])
        .output()
        .expect("the binary runs");
    assert_eq!(output.status.code(), Some(1));
    let said = text(&output.stderr);
    assert!(
        said.starts_with("4294967295 clients need 4294967314 open files, and "),
        "{said}"
    );
    assert!(server.requests().is_empty());
}
