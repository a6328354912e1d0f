//! `redline bench memtier`, and memtier_benchmark's name: each of its options.

use std::collections::BTreeSet;

use crate::fake_server::{FakeServer, reply};
use crate::invocation::bench;
use serde_json::Value;

/// Options with a value that is valid for each. Those of TLS have no server here.
const VALUED: &[(&str, &str)] = &[
    ("--host", "127.0.0.1"),
    ("--server", "127.0.0.1"),
    ("--ipv4", ""),
    ("--protocol", "redis"),
    ("--authenticate", "user:password"),
    ("--run-count", "2"),
    ("--debug", ""),
    ("--transaction", ""),
    ("--client-stats", "x"),
    ("--show-config", ""),
    ("--hide-histogram", ""),
    ("--print-percentiles", "50,99"),
    ("--print-all-runs", ""),
    ("--realtime-latencies", ""),
    ("--latency-window", "5"),
    ("--command-stats-breakdown", "command"),
    ("--command-miss-tracking", ""),
    ("--miss-rate-threshold", "99"),
    ("--statsd-host", "h"),
    ("--statsd-port", "1"),
    ("--statsd-prefix", "x"),
    ("--statsd-run-label", "x"),
    ("--graphite-port", "1"),
    ("--requests", "3"),
    ("--rate-limiting", "1000"),
    ("--clients", "2"),
    ("--threads", "2"),
    ("--test-time", "0.05"),
    ("--ratio", "1:1"),
    ("--pipeline", "2"),
    ("--reconnect-interval", "1"),
    ("--reconnect-on-error", ""),
    ("--max-reconnect-attempts", "3"),
    ("--reconnect-backoff-factor", "2"),
    ("--retry-on-error", ""),
    ("--max-retries", "3"),
    ("--retry-backoff-ms", "3"),
    ("--retry-backoff-factor", "2"),
    ("--retry-on", "LOADING"),
    ("--max-retry-queue", "3"),
    ("--failed-keys-file", "f"),
    ("--connection-timeout", "3"),
    ("--connection-stage-timeout", "3"),
    ("--thread-conn-start-min-jitter-micros", "3"),
    ("--thread-conn-start-max-jitter-micros", "4"),
    ("--multi-key-get", "2"),
    ("--select-db", "2"),
    ("--distinct-client-seed", ""),
    ("--randomize", ""),
    ("--command", "SET __key__ __data__"),
    ("--data-size", "3"),
    ("--data-offset", "3"),
    ("--random-data", ""),
    ("--data-size-range", "3-5"),
    ("--data-size-list", "3:1,5:2"),
    ("--data-size-pattern", "S"),
    ("--expiry-range", "3-5"),
    ("--key-prefix", "k:"),
    ("--key-minimum", "3"),
    ("--key-maximum", "5"),
    ("--key-pattern", "G:Z"),
    ("--key-stddev", "5"),
    ("--key-median", "5"),
    ("--key-zipf-exp", "1.1"),
    ("--wait-ratio", "1:1"),
    ("--num-slaves", "1-2"),
    ("--wait-timeout", "1-2"),
];

fn server() -> FakeServer {
    FakeServer::start(|request| match request[0].as_slice() {
        b"GET" | b"GETRANGE" => reply("$2\r\nhi\r\n"),
        b"MGET" => reply("*2\r\n$2\r\nhi\r\n$2\r\nhi\r\n"),
        b"WAIT" => reply(":1\r\n"),
        _ => reply("+OK\r\n"),
    })
}

#[test]
fn each_option_with_a_counterpart_runs() {
    let server = server();
    let port = server.port();
    for (option, value) in VALUED {
        let mut args = vec!["memtier", "-p", &port, "-c", "1", "-t", "1"];
        if !["--requests", "--test-time"].contains(option) {
            args.extend(["-n", "4"]);
        }
        args.push(option);
        if !value.is_empty() {
            args.push(value);
        }
        let ran = bench(&args);
        assert_eq!(ran.code, 0, "{option}: {}", ran.stderr);
        assert!(
            ran.stderr.contains("redline bench run "),
            "{option}: {}",
            ran.stderr
        );
        assert!(!ran.stderr.contains("password"), "{option}: {}", ran.stderr);
    }
}

#[test]
fn what_memtier_sends_is_sent() {
    let server = server();
    let port = server.port();
    let args = "memtier -c 1 -t 1 -n 30 --ratio 1:1 --key-maximum 9 --key-prefix k --expiry-range 7 -d 3 --json-out-file - -p";
    let args: Vec<&str> = args.split(' ').chain([port.as_str()]).collect();
    let ran = bench(&args);
    assert_eq!(ran.code, 0, "{}", ran.stderr);
    let result: Value = serde_json::from_str(&ran.stdout).expect("nothing but JSON");
    assert_eq!(result["requests"]["sent"], 30);
    let lines = server.lines();
    let sent = |name: &str| -> BTreeSet<String> {
        let sent = lines.iter().filter(|line| line.starts_with(name));
        sent.cloned().collect()
    };
    let sets = sent("SETEX ");
    assert!(!sets.is_empty());
    for line in sets {
        let words: Vec<&str> = line.split(' ').collect();
        let number: u32 = words[1].strip_prefix('k').unwrap().parse().unwrap();
        assert!(
            number <= 9 && words[2] == "7" && words[3].len() == 3,
            "{line}"
        );
    }
    assert!(!sent("GET k").is_empty());
}

#[test]
fn output_goes_to_the_named_file() {
    let server = server();
    let port = server.port();
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("out");
    let shown = path.to_str().unwrap();
    let ran = bench(&[
        "memtier", "-p", &port, "-c", "1", "-t", "1", "-n", "2", "-o", shown,
    ]);
    assert_eq!((ran.code, ran.stdout.as_str()), (0, ""), "{}", ran.stderr);
    let text = std::fs::read_to_string(&path).unwrap();
    assert!(text.contains("requests"), "{text}");
    let ran = bench(&["memtier", "-o", "/nowhere/out", "-n", "1"]);
    assert_eq!(ran.code, 1);
    assert!(
        ran.stderr.contains("/nowhere/out: No such file"),
        "{}",
        ran.stderr
    );
    let help = bench(&["memtier", "--help"]);
    assert_eq!(help.code, 0);
    assert!(help.stdout.starts_with("Usage: redline bench memtier"));
}
