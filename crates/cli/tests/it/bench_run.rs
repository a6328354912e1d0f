//! `redline bench run` against `redline server`, both as processes.

use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use crate::running::{REDLINE, Running, signal, until};
use serde_json::Value;

fn server() -> Running {
    let folder = tempfile::tempdir().expect("a folder of its own");
    let args = ["--port", "0", "--unixsocket", "s", "--threads", "1"];
    Running::start(folder, &args, None)
}

fn start(server: &Running, args: &[&str]) -> Child {
    Command::new(REDLINE)
        .args(["bench", "run", "--json", "-", "-S"])
        .arg(server.path("s"))
        .args(args)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .spawn()
        .expect("the binary starts")
}

fn result(child: Child) -> Value {
    let output = child.wait_with_output().expect("the binary ends");
    assert_eq!(output.status.code(), Some(0));
    serde_json::from_slice(&output.stdout).expect("standard output is JSON")
}

fn number(value: &Value) -> f64 {
    value
        .as_f64()
        .unwrap_or_else(|| panic!("no number: {value}"))
}

fn commands_processed(server: &Running) -> u64 {
    let info = server.call("INFO stats");
    let line = info
        .lines()
        .find_map(|line| line.strip_prefix("total_commands_processed:"));
    line.and_then(|count| count.parse().ok())
        .expect("INFO counts commands")
}

/// Stops the server for half a second or more once it has served this many requests. Returns the time in microseconds.
fn stall(server: &Running, after: u64) -> f64 {
    until("the load runs", || {
        (commands_processed(server) > after).then_some(())
    });
    server.signal("STOP");
    let stat = format!("/proc/{}/stat", server.child.id());
    until("the server stands still", || {
        let stat = std::fs::read_to_string(&stat).expect("the server is there");
        stat.contains(") T ").then_some(())
    });
    let stopped = Instant::now();
    thread::sleep(Duration::from_millis(500));
    let stalled = stopped.elapsed();
    server.signal("CONT");
    stalled.as_micros() as f64
}

/// Returns the number of pieces of the series, of 125 ms each, in which the server was stopped: without replies.
fn empty_points(result: &Value) -> usize {
    let points = result["series"].as_array().expect("there is a series");
    points.iter().filter(|point| point["answered"] == 0).count()
}

#[test]
fn a_stalled_server_shows_in_the_open_loop_and_hides_from_the_closed_one() {
    let server = server();
    let common = [
        "--command",
        "GET key:{uniform:1000}",
        "--duration",
        "5",
        "--interval",
        "0.125",
        "-c",
        "10",
    ];
    let open = start(&server, &[&common[..], &["--rps", "2000"]].concat());
    let stalled_us = stall(&server, 2_000);
    let open = result(open);
    // 1,000 of 10,000 requests were due during the stall, half of them before half of it was over, and the first of them
    // in its first millisecond.
    let p99 = number(&open["response_us"]["p99"]);
    assert!(p99 > stalled_us / 2.0, "{}", open["response_us"]);
    let longest = stalled_us - 1_000.0;
    assert!(number(&open["response_us"]["max"]) >= longest);
    let counts = ["values", "nulls", "unanswered", "unsent"];
    let counts = counts.map(|name| number(&open["requests"][name]));
    assert_eq!(counts.iter().sum::<f64>(), 10_000.0);
    // Of these, only as many as there are connections were in flight when it stopped.
    let service = &open["service_us"];
    assert!(number(&service["p99"]) < p99, "{service}");
    assert!(empty_points(&open) >= 2, "{}", open["series"]);
    let worst = open["series"].as_array().unwrap().iter();
    let worst = worst
        .map(|point| number(&point["max_us"]))
        .fold(0.0, f64::max);
    assert!(worst >= longest, "the stall is in the series: {worst}");
    // The server was late, and not the schedule.
    assert!(number(&open["schedule_lag_us"]["p99"]) < p99);

    // The same stall, the same connections, no schedule: ten requests waited, and thousands that would have been sent
    // meanwhile were not, so that the 99th percentile does not show it.
    let before = commands_processed(&server);
    let closed = start(&server, &common);
    let stalled_us = stall(&server, before + 4_000);
    let closed = result(closed);
    // Requests have no time here but that of their write, and the generator may have been late with that.
    let response = &closed["response_us"];
    assert!(number(&response["max"]) > stalled_us / 2.0, "{response}");
    assert!(number(&response["p99"]) < p99, "{response}");
    assert!(empty_points(&closed) >= 2);
}

#[test]
fn a_fill_is_exact_and_a_run_on_it_hits() {
    let server = server();
    let args = [
        "--load",
        "SET key:{seq:5000} {value:10}",
        "--command",
        "GET key:{zipf:1.1,5000}",
        "-n",
        "20000",
        "-t",
        "2",
        "-P",
        "4",
    ];
    let result = result(start(&server, &args));
    assert_eq!(server.call("DBSIZE"), ":5000");
    assert_eq!(server.call("STRLEN key:4999"), ":10");
    assert_eq!(number(&result["hit_rate"]), 1.0);
    assert!(!result["warnings"].to_string().contains("found something"));
    assert!(
        result["target"]["server"]
            .as_str()
            .unwrap()
            .starts_with("redline ")
    );
}

#[test]
fn the_server_is_found_and_what_it_uses_is_counted() {
    let server = server();
    let args = ["--command", "GET key", "--duration", "1", "-P", "16"];
    let result = result(start(&server, &args));
    let parties = result["parties"].as_array().unwrap();
    let server_party = parties
        .iter()
        .find(|party| party["role"] == "server")
        .unwrap();
    assert_eq!(server_party["pid"], server.child.id());
    assert_eq!(server_party["measured_by"], "proc");
    for party in parties {
        let cpu = number(&party["user_s"]) + number(&party["system_s"]);
        assert!(cpu > 0.0, "{party}");
        let per_request =
            number(&party["user_us_per_request"]) + number(&party["system_us_per_request"]);
        let replies = number(&result["requests"]["values"]) + number(&result["requests"]["nulls"]);
        assert!(
            (per_request * replies / 1e6 - cpu).abs() < 0.01 * cpu,
            "{party}"
        );
    }
    let used = result["series"][0]["server_cpus"].as_f64();
    assert!(used.is_some_and(|cpus| cpus > 0.0), "{used:?}");
}

#[test]
fn the_embedded_server_is_told_apart_from_the_generator() {
    let output = Command::new(REDLINE)
        .args([
            "bench",
            "run",
            "--embedded",
            "--command",
            "PING",
            "--duration",
            "0.5",
            "--json",
            "-",
        ])
        .output()
        .expect("the binary starts");
    assert_eq!(output.status.code(), Some(0));
    let result: Value = serde_json::from_slice(&output.stdout).expect("JSON");
    let roles: Vec<_> = result["parties"]
        .as_array()
        .unwrap()
        .iter()
        .map(|party| &party["role"])
        .collect();
    assert_eq!(roles, ["generator", "server"]);
    assert_eq!(result["target"]["embedded"], true);
}

#[test]
fn ctrl_c_leaves_a_partial_result_and_130() {
    let server = server();
    let child = start(&server, &["--command", "SET a b", "--duration", "1000"]);
    until("the load runs", || {
        (commands_processed(&server) > 1000).then_some(())
    });
    signal(&child, "INT");
    let output = child.wait_with_output().expect("the binary ends");
    assert_eq!(output.status.code(), Some(130));
    let result: Value = serde_json::from_slice(&output.stdout).expect("JSON");
    assert_eq!(result["ended_early"], "Interrupted.");
    assert!(number(&result["requests"]["values"]) > 0.0);
}

#[test]
fn called_as_redis_benchmark_run_is_a_command_for_the_server() {
    let server = server();
    let folder = tempfile::tempdir().expect("a folder of its own");
    let link = folder.path().join("redis-benchmark");
    std::os::unix::fs::symlink(REDLINE, &link).expect("a link");
    let output = Command::new(&link)
        .arg("-s")
        .arg(server.path("s"))
        .args(["-n", "1", "run"])
        .output()
        .expect("the link runs");
    assert_eq!(output.status.code(), Some(1));
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert!(
        stderr.starts_with("Error from server: ERR unknown command 'run'"),
        "{stderr}"
    );
}

fn start_failover(server: &Running, args: &[&str]) -> Child {
    Command::new(REDLINE)
        .args(["bench", "failover", "--json", "-", "-S"])
        .arg(server.path("s"))
        .args(["--rps", "500", "--duration", "1", "--at", "0.5"])
        .args(args)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("the binary starts")
}

#[test]
fn a_failover_reads_back_from_the_database_that_it_wrote_to() {
    let server = server();
    let result = result(start_failover(&server, &["--db", "3", "--run", "true"]));
    assert!(number(&result["acknowledged"]) > 0.0, "{result}");
    assert_eq!(result["found"], result["acknowledged"]);
    assert_eq!((&result["gone"], &result["unread"]), (&0.into(), &0.into()));
}

#[test]
fn an_interrupted_comparison_reports_the_pairs_that_are_done() {
    let server = server();
    let place = server.path("s");
    let place = place.to_str().expect("it is text");
    let sides = ["--", "-S", place, "--", "-S", place, "--"];
    let mut child = Command::new(REDLINE)
        .args(["bench", "compare", "--pairs", "1000"])
        .args(sides)
        .args(["--command", "PING", "--duration", "0.05"])
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("the binary starts");
    let mut stderr = BufReader::new(child.stderr.take().expect("it is piped"));
    let mut line = String::new();
    // It prints progress about once a second.
    let pairs = |line: &str| line.strip_prefix("pair ")?.split(' ').next()?.parse().ok();
    while pairs(&line).is_none_or(|pairs: u32| pairs < 3) {
        line.clear();
        assert!(stderr.read_line(&mut line).expect("it is text") > 0);
    }
    signal(&child, "INT");
    let output = child.wait_with_output().expect("the binary ends");
    assert_eq!(output.status.code(), Some(130));
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(said.contains(" % interval: "), "{said}");
}

#[test]
fn either_side_of_a_comparison_can_be_interrupted() {
    let server = server();
    let place = server.path("s");
    let place = place.to_str().expect("it is text");
    // A is over at once, and B would last for an hour.
    let sides = [
        "--",
        "-S",
        place,
        "-n",
        "1",
        "--",
        "-S",
        place,
        "--duration",
        "3600",
    ];
    let mut child = Command::new(REDLINE)
        .args(["bench", "compare", "--pairs", "3"])
        .args(sides)
        .args(["--", "--command", "PING"])
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .expect("the binary starts");
    until("B runs", || {
        (commands_processed(&server) > 1000).then_some(())
    });
    signal(&child, "INT");
    let status = until("it ends", || child.try_wait().expect("it is ours"));
    assert_eq!(status.code(), Some(130));
}

#[test]
fn an_interrupted_read_back_leaves_the_result() {
    let server = server();
    let kill = format!("kill -KILL {}", server.child.id());
    let mut child = start_failover(&server, &["--run", &kill]);
    let mut stderr = BufReader::new(child.stderr.take().expect("it is piped"));
    let mut line = String::new();
    while !line.starts_with("reading back") {
        line.clear();
        assert!(stderr.read_line(&mut line).expect("it is text") > 0);
    }
    signal(&child, "INT");
    let output = child.wait_with_output().expect("the binary ends");
    assert_eq!(output.status.code(), Some(130));
    let result: Value = serde_json::from_slice(&output.stdout).expect("the result is there");
    // Unreadable ones are neither found nor gone.
    assert!(number(&result["acknowledged"]) > 0.0, "{result}");
    assert_eq!(result["unread"], result["acknowledged"]);
    assert_eq!((&result["found"], &result["gone"]), (&0.into(), &0.into()));
}
