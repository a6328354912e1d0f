//! `redline bench run` against a server that does what each test needs.

use std::collections::HashSet;
use std::io::ErrorKind;
use std::os::fd::AsFd;
use std::os::unix::net::UnixListener;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;

use crate::fake_server::{Answer, FakeServer, Request, known, reply, serve};
use crate::invocation::{Ran, bench};
use redline_net::{Endpoint, Listener, connect_endpoint};
use serde_json::Value;

fn run(server: &FakeServer, args: &[&str]) -> Ran {
    let port = server.port();
    bench(&[&["run", "-p", &port][..], args].concat())
}

/// The result as JSON, of a run that must succeed.
fn result(server: &FakeServer, args: &[&str]) -> Value {
    let ran = run(server, &[args, &["--json", "-"]].concat());
    assert_eq!((ran.code, ran.stderr.as_str()), (0, ""), "{args:?}");
    serde_json::from_str(&ran.stdout).expect("standard output is the JSON and nothing else")
}

/// Returns the requests that the load sent, without the questions before it.
fn sent(server: &FakeServer) -> Vec<String> {
    let lines = server.lines().into_iter();
    lines
        .filter(|line| {
            !["CONFIG", "INFO", "CLIENT", "PING"].contains(&line.split(' ').next().unwrap())
        })
        .collect()
}

#[test]
fn a_file_that_cannot_be_written_is_found_before_anything_is_measured() {
    let folder = tempfile::tempdir().expect("a folder");
    let wrong = folder.path().join("none/x");
    let wrong = wrong.to_str().expect("it is text");
    let load = ["--command", "GET a", "-n", "1"];
    let both = ["--", "-n", "1", "--", "-n", "1", "--", "--command", "GET a"];
    // Nobody listens there, which would be found next.
    for (what, option, rest) in [
        ("run", "--json", &load[..]),
        ("run", "--csv", &load),
        ("run", "--hdr", &load),
        ("run", "--html", &load),
        ("compare", "--json", &both),
        ("compare", "--html", &both),
        ("failover", "--acks", &["--run", "true"]),
        ("failover", "--json", &["--run", "true"]),
    ] {
        let ran = bench(&[&[what, option, wrong][..], rest].concat());
        assert_eq!((ran.code, ran.stdout.as_str()), (1, ""), "{what} {option}");
        let said = format!("{wrong}: No such file or directory\n");
        assert_eq!(ran.stderr, said, "{what} {option}");
    }
    // To look leaves nothing behind.
    let right = folder.path().join("x");
    let target = folder.path().join("nobody");
    let place = [right.to_str(), target.to_str()].map(|path| path.expect("it is text"));
    let ran = bench(&[&["run", "-S", place[1], "--json", place[0]][..], &load].concat());
    assert_eq!(ran.code, 1);
    assert!(
        ran.stderr.starts_with("Could not connect"),
        "{}",
        ran.stderr
    );
    assert!(!right.exists());
}

#[test]
fn a_place_that_does_not_take_the_result_costs_no_other() {
    let server = FakeServer::ok();
    let folder = tempfile::tempdir().expect("a folder");
    let kept = folder.path().join("kept");
    let kept = kept.to_str().expect("it is text");
    let args = ["--command", "GET a", "-n", "100", "--html", kept];
    for option in ["--json", "--csv", "--hdr"] {
        let ran = run(&server, &[&args[..], &[option, "/dev/full"]].concat());
        assert_eq!(ran.code, 1);
        assert!(
            ran.stderr
                .ends_with(": No space left on device (os error 28)\n")
                || ran.stderr.ends_with(": No space left on device\n"),
            "{option}: {}",
            ran.stderr
        );
        assert!(
            ran.stdout.contains("100 answered"),
            "{option}: {}",
            ran.stdout
        );
        let page = std::fs::read_to_string(kept).expect("the page was written");
        assert!(page.contains("</html>"), "{option}");
        std::fs::remove_file(kept).expect("it is there");
    }
    // Who reads the text may have gone.
    let port = server.port();
    let words = [&["run", "-p", &port][..], &args].concat();
    let words: Vec<Vec<u8>> = words.iter().map(|word| word.as_bytes().to_vec()).collect();
    let (mut stdin, mut stderr) = (&b""[..], Vec::new());
    let streams = redline_bench::Streams {
        stdin: &mut stdin,
        stdout: &mut Gone,
        stderr: &mut stderr,
    };
    assert_eq!(
        redline_bench::run("redline bench", &words, streams, None),
        1
    );
    let said = String::from_utf8(stderr).expect("it is text");
    assert!(said.starts_with("standard output: "), "{said}");
    assert!(std::fs::metadata(kept).is_ok());
}

/// A stream that nobody reads.
struct Gone;

impl std::io::Write for Gone {
    fn write(&mut self, _bytes: &[u8]) -> std::io::Result<usize> {
        Err(ErrorKind::BrokenPipe.into())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

#[test]
fn files_that_a_comparison_would_not_write_are_refused() {
    for option in ["--json", "--csv", "--hdr", "--html"] {
        let ran = bench(&[
            "compare",
            "--",
            "--",
            "--",
            "--command",
            "PING",
            option,
            "x",
        ]);
        assert_eq!((ran.code, ran.stdout.as_str()), (1, ""));
        assert!(
            ran.stderr.contains("in front of the first --"),
            "{}",
            ran.stderr
        );
    }
}

#[test]
fn a_node_of_a_cluster_is_recognised() {
    let server = on_get(|| reply("-MOVED 1 127.0.0.1:1\r\n"));
    let ran = run(
        &server,
        &["--command", "GET a", "-n", "1", "--no-calibration"],
    );
    assert_eq!(ran.code, 1);
    assert!(ran.stdout.contains("--cluster sends"), "{}", ran.stdout);
}

#[test]
fn a_proxy_is_not_taken_for_the_server_that_it_speaks_for() {
    // A line of `redline proxy`'s INFO and predixy's.
    let text = "# Server\r\nredis_version:8.2.3\r\nprocess_id:7\r\nRedisMode:proxy\r\n";
    let server = FakeServer::start(move |request| match request[0].as_slice() {
        b"INFO" => reply(&format!("${}\r\n{text}\r\n", text.len())),
        _ => reply("+OK\r\n"),
    });
    let args = ["--command", "PING", "-n", "10", "-c", "1"];
    let found = result(&server, &args);
    assert_eq!(found["target"]["server"], "a proxy that says redis 8.2.3");
    let warned = |result: &Value| result["warnings"].to_string().contains("--proxy-pid 7 ");
    assert!(warned(&found), "{}", found["warnings"]);
    let pid = std::process::id().to_string();
    let named = result(&server, &[&args[..], &["--proxy-pid", &pid]].concat());
    assert!(!warned(&named), "{}", named["warnings"]);
}

#[test]
fn a_run_of_a_moment_blames_nobody_and_says_why_it_does_not_know() {
    let server = FakeServer::ok();
    let args = ["--command", "PING", "-n", "10", "-c", "1"];
    // Others may take the CPUs meanwhile.
    let mut runs = (0..100).map(|_| result(&server, &args));
    let brief = runs.find(|run| {
        run["elapsed_s"].as_f64().unwrap() < 0.04 && run["parties"].as_array().unwrap().len() == 1
    });
    let brief = brief.expect("ten requests in 40 ms");
    assert_eq!(brief["verdict"]["bottleneck"], "undecided");
    let text = brief["verdict"]["text"].as_str().unwrap();
    assert!(text.contains("too little was measured"), "{text}");
    let evidence = brief["verdict"]["evidence"].to_string();
    assert!(
        evidence.contains("server: nothing known: the run was over before"),
        "{evidence}"
    );
}

#[test]
fn who_is_never_answered_is_not_among_the_answered_of_the_series() {
    let n = AtomicU64::new(0);
    let server = on_get(move || match n.fetch_add(1, Ordering::Relaxed) {
        0..20 => reply("+OK\r\n"),
        _ => Answer::Silence,
    });
    let args = [
        "--command",
        "GET a",
        "--rps",
        "200",
        "--duration",
        "0.5",
        "-c",
        "2",
    ];
    let result = result(&server, &[&args[..], &["--interval", "0.1"]].concat());
    let sum = |name: &str| -> u64 {
        let points = result["series"].as_array().unwrap().iter();
        points.map(|point| point[name].as_u64().unwrap()).sum()
    };
    let count = |name: &str| result["requests"][name].as_u64().unwrap();
    assert_eq!(sum("answered"), 20);
    assert_eq!(sum("unanswered"), count("unsent") + count("unanswered"));
    assert!(sum("unanswered") > 50);
}

#[test]
fn a_run_without_a_single_answer_has_failed() {
    let server = on_get(|| Answer::Silence);
    let ran = run(&server, &["--command", "GET a", "--duration", "0.1"]);
    assert_eq!(
        (ran.code, ran.stderr.as_str()),
        (1, "No request was answered.\n")
    );
    // Nothing was asked for, and nothing is missing.
    assert_eq!(run(&server, &["--command", "GET a", "-n", "0"]).code, 0);
}

#[test]
fn a_fill_that_is_not_answered_in_time_ends_the_run() {
    let server = FakeServer::start(|request| match request[0].as_slice() {
        b"SET" if request[1] == b"k:7" => Answer::Silence,
        _ => reply("+OK\r\n"),
    });
    let args = ["--load", "SET k:{seq:10} {value}", "--command", "GET a"];
    let ran = run(
        &server,
        &[&args[..], &["-n", "1", "--timeout", "0.2"]].concat(),
    );
    assert_eq!(ran.code, 1);
    assert!(
        ran.stderr.contains("not answered in time"),
        "{}",
        ran.stderr
    );
}

#[test]
fn who_listens_for_another_is_not_taken_for_the_server() {
    // This process listens, and what answers is another by its own account.
    let text = "# Server\r\nredis_version:8.2.3\r\nprocess_id:4000000000\r\n";
    let server = FakeServer::start(move |request| match request[0].as_slice() {
        b"INFO" => reply(&format!("${}\r\n{text}\r\n", text.len())),
        _ => reply("+OK\r\n"),
    });
    let args = ["--command", "PING", "--duration", "0.3", "-c", "1"];
    let found = result(&server, &args);
    let parties = found["parties"].as_array().unwrap();
    assert!(
        parties.iter().all(|party| party["role"] == "generator"),
        "{parties:?}"
    );
    let pid = std::process::id();
    let warnings = found["warnings"].to_string();
    assert!(
        warnings.contains(&format!("--proxy-pid {pid} names it")),
        "{warnings}"
    );
}

#[test]
fn the_servers_own_counters_are_part_of_the_result() {
    let asked = AtomicU64::new(0);
    let server = FakeServer::start(move |request| match request[0].as_slice() {
        b"INFO" => {
            // Asked when it is found, before the run, and after it.
            let n = asked.fetch_add(1, Ordering::Relaxed);
            let text = format!(
                "# Stats\r\nkeyspace_hits:{}\r\nkeyspace_misses:5\r\nevicted_keys:{}\r\n",
                n * 100,
                n * 3
            );
            reply(&format!("${}\r\n{text}\r\n", text.len()))
        }
        _ => reply("+OK\r\n"),
    });
    let args = ["--command", "PING", "-n", "10", "-c", "1"];
    let found = result(&server, &args);
    let counters = &found["target"]["nodes"][0]["counters"];
    assert_eq!(counters["keyspace_hits"], 100);
    assert_eq!(counters["keyspace_misses"], 0);
    assert_eq!(counters.as_object().unwrap().len(), 3, "{counters}");
    let warnings = found["warnings"].to_string();
    assert!(warnings.contains("evicted 3 keys"), "{warnings}");
    let text = run(&server, &args).stdout;
    assert!(
        text.contains(": evicted_keys 3, keyspace_hits 100\n"),
        "{text}"
    );
}

#[test]
fn reads_whose_replies_do_not_tell_have_no_hit_rate() {
    let server = FakeServer::start(|request| match request[0].as_slice() {
        b"HGETALL" => reply("*0\r\n"),
        _ => reply("+OK\r\n"),
    });
    let result = result(&server, &["--command", "HGETALL h", "-n", "20"]);
    assert_eq!(result["hit_rate"], Value::Null);
}

/// A server that does this on each GET, and answers everything else with +OK.
fn on_get(answer: impl Fn() -> Answer + Send + Sync + 'static) -> FakeServer {
    FakeServer::start(move |request| match request[0].as_slice() {
        b"GET" => answer(),
        _ => reply("+OK\r\n"),
    })
}

#[test]
fn commands_come_by_their_weights_and_are_counted_apart() {
    let server = FakeServer::ok();
    let result = result(
        &server,
        &[
            "--command",
            "GET k:{uniform:10}",
            "--ratio",
            "9",
            "--command",
            "SET k:{uniform:10} {value:5}",
            "--ratio",
            "1",
            "-n",
            "10000",
            "-c",
            "5",
            "--threads",
            "2",
        ],
    );
    let lines = sent(&server);
    assert_eq!(lines.len(), 10_000);
    let sets = lines.iter().filter(|line| line.starts_with("SET k:"));
    let sets = sets.count() as u64;
    assert!((850..1150).contains(&sets), "{sets}");
    let commands = &result["commands"];
    assert_eq!(commands[0]["name"], "GET");
    assert_eq!(commands[0]["values"], 10_000 - sets);
    assert_eq!(commands[1]["values"], sets);
    assert_eq!(commands[1]["response_us"]["count"], sets);
    assert_eq!(result["requests"]["sent"], 10_000);
    assert_eq!(result["response_us"]["count"], 10_000);
    assert_eq!(result["ended_early"], Value::Null);
    let points = result["series"].as_array().unwrap();
    let answered: u64 = points
        .iter()
        .map(|point| point["answered"].as_u64().unwrap())
        .sum();
    assert_eq!(answered, 10_000, "the series holds every reply");
}

#[test]
fn commands_of_one_template_follow_each_other_on_one_connection() {
    let server = FakeServer::ok();
    result(
        &server,
        &[
            "--command",
            "SET u:{id=uniform:100000} 1 ; EXPIRE u:{id} {uniform:60-99}",
            "-n",
            "200",
            "-c",
            "1",
        ],
    );
    let lines = sent(&server);
    assert_eq!(lines.len(), 200);
    for pair in lines.chunks(2) {
        let id = pair[0]
            .strip_prefix("SET u:")
            .unwrap()
            .strip_suffix(" 1")
            .unwrap();
        let ttl = pair[1].strip_prefix(&format!("EXPIRE u:{id} ")).unwrap();
        assert!((60..=99).contains(&ttl.parse::<u32>().unwrap()));
    }
}

#[test]
fn a_fill_sends_every_number_once_whatever_the_threads() {
    let server = FakeServer::ok();
    result(
        &server,
        &[
            "--load",
            "SET k:{seq:1001} {value}",
            "--command",
            "GET a",
            "-n",
            "1",
            "-c",
            "7",
            "-t",
            "3",
        ],
    );
    let lines = sent(&server);
    let keys: HashSet<&str> = lines[..1001]
        .iter()
        .filter_map(|line| line.split(' ').nth(1))
        .collect();
    assert_eq!((lines.len(), keys.len()), (1002, 1001));
    assert!(keys.contains("k:0") && keys.contains("k:1000"));
    assert_eq!(lines[1001], "GET a");
}

#[test]
fn reads_that_find_nothing_are_counted_and_warned_about() {
    let n = AtomicU64::new(0);
    let server = FakeServer::start(move |request| match request[0].as_slice() {
        b"GET" if n.fetch_add(1, Ordering::Relaxed).is_multiple_of(4) => reply("$2\r\nhi\r\n"),
        b"GET" => reply("$-1\r\n"),
        _ => reply("+OK\r\n"),
    });
    let args = [
        "--command",
        "GET a",
        "--command",
        "SET a b",
        "-n",
        "400",
        "-c",
        "1",
        "-P",
        "8",
        "--seed",
        "1",
    ];
    let result = result(&server, &args);
    let rate = result["hit_rate"].as_f64().unwrap();
    assert!((rate - 0.25).abs() < 0.01, "{rate}");
    assert_eq!(result["commands"][1]["hit_rate"], Value::Null);
    let warnings = result["warnings"].to_string();
    assert!(
        warnings.contains("of the reads found something"),
        "{warnings}"
    );
    let quiet = run(&server, &[&args[..], &["--hit-rate-min", "0.1"]].concat());
    assert!(
        !quiet.stdout.contains("found something"),
        "{}",
        quiet.stdout
    );
}

#[test]
fn an_error_ends_the_run_unless_it_is_to_be_counted() {
    let server = FakeServer::start(|request| match request[0].as_slice() {
        b"INCR" => reply("-ERR no number\r\n"),
        _ => reply("+OK\r\n"),
    });
    let args = ["--command", "INCR a", "--command", "GET a", "-n", "500"];
    let ran = run(&server, &args);
    assert_eq!(ran.code, 1);
    assert_eq!(ran.stderr, "Error from server: ERR no number\n");
    let result = result(&server, &[&args[..], &["--on-error", "count"]].concat());
    let errors = result["requests"]["errors"].as_u64().unwrap();
    assert!(errors > 100, "{errors}");
    assert_eq!(result["commands"][0]["response_us"]["count"], 0);
    assert!(result["warnings"].to_string().contains("ERR no number"));
}

#[test]
fn a_batch_waits_for_all_of_its_replies() {
    // The third request is never answered.
    let n = AtomicU64::new(0);
    let server = on_get(move || match n.fetch_add(1, Ordering::Relaxed) {
        2 => Answer::Silence,
        _ => reply("+OK\r\n"),
    });
    let args = [
        "--command",
        "GET a",
        "-c",
        "1",
        "-P",
        "3",
        "--duration",
        "0.2",
    ];
    let result = result(&server, &args);
    assert_eq!(sent(&server).len(), 3);
    let requests = &result["requests"];
    assert_eq!(
        (&requests["values"], &requests["unanswered"]),
        (&2.into(), &1.into())
    );
    // It has waited from the start, and its least response time says so.
    assert!(result["response_us"]["max"].as_u64().unwrap() >= 200_000);
}

#[test]
fn a_window_goes_on_although_one_reply_is_missing() {
    // The server answers all but every tenth request of a connection, and that one only with the next.
    let held = AtomicU64::new(0);
    let server = on_get(move || {
        let n = held.fetch_add(1, Ordering::Relaxed);
        match n % 10 {
            8 => Answer::Silence,
            9 => reply("+OK\r\n+OK\r\n"),
            _ => reply("+OK\r\n"),
        }
    });
    // In batches of 3 the silent request would be the last of its batch once, and nothing would follow it.
    let result = result(
        &server,
        &[
            "--command",
            "GET a",
            "-c",
            "1",
            "-P",
            "3",
            "--window",
            "-n",
            "100",
        ],
    );
    assert_eq!(result["requests"]["values"], 100);
}

#[test]
fn an_open_loop_keeps_its_rate_and_reports_three_latencies() {
    let server = FakeServer::ok();
    let result = result(
        &server,
        &[
            "--command",
            "GET a",
            "--rps",
            "1000",
            "--duration",
            "1",
            "-c",
            "4",
            "-t",
            "2",
        ],
    );
    // 1,000 were due; the machine may be busy, but none is lost.
    let requests = &result["requests"];
    let count = |name: &str| requests[name].as_u64().unwrap();
    assert_eq!(
        count("values") + count("unanswered") + count("unsent"),
        1000
    );
    assert_eq!(sent(&server).len() as u64, count("sent"));
    for (latency, of) in [
        ("response_us", 1000),
        ("service_us", count("values")),
        ("schedule_lag_us", count("sent")),
    ] {
        assert_eq!(result[latency]["count"], of, "{latency}");
    }
    assert_eq!(result["settings"]["offered_rps"], 1000.0);
}

#[test]
fn an_overloaded_open_loop_says_what_it_owes() {
    // One connection, and a server that takes its time: a hundredth of the rate is possible.
    let server = on_get(|| {
        std::thread::sleep(std::time::Duration::from_millis(10));
        reply("+OK\r\n")
    });
    let result = result(
        &server,
        &[
            "--command",
            "GET a",
            "--rps",
            "10000",
            "--duration",
            "0.5",
            "-c",
            "1",
        ],
    );
    let count = |name: &str| result["requests"][name].as_u64().unwrap();
    assert_eq!(
        count("values") + count("unanswered") + count("unsent"),
        5000
    );
    assert!(count("unsent") > 4000);
    // Half of them were due before half of the time, and have waited ever since.
    let response = result["response_us"]["p50"].as_u64().unwrap();
    assert!(response > 500_000, "{response}");
    let service = result["service_us"]["p50"].as_u64().unwrap();
    assert!((10_000..response).contains(&service), "{service}");
    assert!(
        result["warnings"]
            .to_string()
            .contains("not answered when the run ended")
    );
    assert_ne!(result["verdict"]["bottleneck"], "rate");
}

#[test]
fn warm_up_is_left_out() {
    let server = FakeServer::ok();
    let load = ["--command", "GET a", "--rps", "500"];
    let time = ["--warmup", "0.5", "--duration", "0.5"];
    let result = result(&server, &[load, time].concat());
    let count = |name: &str| result["requests"][name].as_u64().unwrap();
    // 250 were due in the half second that is measured, whenever they were answered.
    let measured = count("values") + count("unanswered") + count("unsent");
    assert!(measured >= 250, "{measured}");
    let sent = sent(&server).len() as u64;
    assert!(sent > count("sent"), "{sent}");
}

#[test]
fn requests_of_the_warm_up_are_not_among_those_that_are_asked_for() {
    let server = FakeServer::ok();
    for rate in [&[][..], &["--rps", "2000"]] {
        let load = [
            "--command",
            "PING",
            "-n",
            "100",
            "--warmup",
            "0.2",
            "-c",
            "2",
        ];
        let result = result(&server, &[&load[..], rate].concat());
        assert_eq!(result["requests"]["sent"], 100);
        // Replies to those that were under way when the measured time began are not among them either.
        assert_eq!(result["requests"]["values"], 100);
        assert_eq!(result["response_us"]["count"], 100);
    }
}

#[test]
fn a_server_that_closes_leaves_a_partial_result() {
    let n = AtomicU64::new(0);
    let server = on_get(move || match n.fetch_add(1, Ordering::Relaxed) {
        0..100 => reply("+OK\r\n"),
        _ => Answer::Close(Vec::new()),
    });
    let ran = run(&server, &["--command", "GET a", "-n", "1000", "-c", "1"]);
    assert_eq!(ran.code, 1);
    assert_eq!(ran.stderr, "Error: Server closed the connection\n");
    assert!(
        ran.stdout.contains("(partial: Error: Server closed"),
        "{}",
        ran.stdout
    );
    assert!(ran.stdout.contains("100 answered"), "{}", ran.stdout);
}

#[test]
fn the_text_has_every_part_of_the_result() {
    let server = FakeServer::ok();
    let ran = run(
        &server,
        &["--command", "GET a", "--rps", "500", "--duration", "0.5"],
    );
    assert_eq!(ran.code, 0, "{}", ran.stderr);
    for part in [
        "GET a",
        "open loop, 500 requests/s, 50 connections",
        "of 500 offered",
        "hit rate 100.0 %",
        "response time",
        "service time",
        "schedule lag",
        "generator",
        "busiest thread",
    ] {
        assert!(ran.stdout.contains(part), "{part}: {}", ran.stdout);
    }
}

#[test]
fn a_wrong_command_line_is_told_and_ends_with_1() {
    let ran = bench(&["run"]);
    assert_eq!(ran.code, 1);
    assert!(ran.stderr.contains("--command"), "{}", ran.stderr);
    let ran = bench(&["run", "--command", "GET {x}"]);
    assert_eq!(ran.code, 1);
    assert!(
        ran.stderr
            .starts_with("--command \"GET {x}\": {x}: there is no such placeholder"),
        "{}",
        ran.stderr
    );
    let help = bench(&["run", "--help"]);
    assert_eq!((help.code, help.stderr.as_str()), (0, ""));
    assert!(help.stdout.contains("--rps") && help.stdout.contains("{zipf:EXPONENT,N}"));
}

#[test]
fn a_file_takes_the_json_and_the_terminal_the_text() {
    let server = FakeServer::ok();
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("result.json");
    let ran = run(
        &server,
        &[
            "--command",
            "GET a",
            "-n",
            "10",
            "--json",
            path.to_str().unwrap(),
        ],
    );
    assert_eq!(ran.code, 0);
    assert!(ran.stdout.contains("requests/s"));
    let json: Value = serde_json::from_str(&std::fs::read_to_string(path).unwrap()).unwrap();
    assert_eq!(
        (json["format"].as_u64(), &json["requests"]["values"]),
        (Some(1), &10.into())
    );
}

#[test]
fn series_leave_as_csv_and_as_an_hdr_log_and_a_page_can_be_had_at_once() {
    let server = FakeServer::ok();
    let folder = tempfile::tempdir().unwrap();
    let file = |name: &str| folder.path().join(name).to_str().unwrap().to_owned();
    let (csv, hdr, html) = (file("a.csv"), file("a.hlog"), file("a.html"));
    let result = result(
        &server,
        &[
            "--command",
            "GET a",
            "--rps",
            "500",
            "--duration",
            "0.5",
            "--interval",
            "0.1",
            "--csv",
            &csv,
            "--hdr",
            &hdr,
            "--html",
            &html,
        ],
    );
    let points = result["series"].as_array().unwrap().len();
    assert!((5..=16).contains(&points), "{points}");
    let csv = std::fs::read_to_string(csv).unwrap();
    let lines: Vec<&str> = csv.lines().collect();
    assert_eq!(lines.len(), points + 1);
    assert!(
        lines.iter().all(|line| line.split(',').count() == 11),
        "{csv}"
    );
    let sum = |column: usize| -> u64 {
        let fields = lines[1..].iter().map(|line| line.split(',').nth(column));
        fields
            .map(|field| field.unwrap().parse::<u64>().unwrap())
            .sum()
    };
    assert_eq!(sum(1) + sum(10), result["response_us"]["count"]);
    let hdr = std::fs::read_to_string(hdr).unwrap();
    let intervals = hdr.lines().filter(|line| line.contains("HIST"));
    assert!(intervals.count() >= 4, "{hdr}");
    assert!(std::fs::read_to_string(html).unwrap().contains("<svg"));
}

#[test]
fn a_staircase_finds_where_the_objective_breaks() {
    // One connection, and 2 ms for each request: 500 requests a second, and not one more.
    let server = on_get(|| {
        std::thread::sleep(std::time::Duration::from_millis(2));
        reply("+OK\r\n")
    });
    let args = [
        "--command",
        "GET a",
        "-c",
        "1",
        "--stairs",
        "5:10",
        "--objective",
        "p50=200ms",
        "--duration",
        "0.5",
    ];
    let ran = run(&server, &[&args[..], &["--json", "-"]].concat());
    assert_eq!(ran.code, 0, "{}", ran.stderr);
    let stairs: Value = serde_json::from_str(&ran.stdout).expect("nothing but JSON");
    let knee = stairs["knee_rps"].as_f64().unwrap();
    // A sleep takes longer than it says, on a busy machine a hundred times as long.
    assert!((5.0..5000.0).contains(&knee), "{stairs:#}");
    let steps = stairs["steps"].as_array().unwrap();
    assert_eq!(ran.stderr.lines().count(), steps.len());
    assert!(steps.iter().any(|step| step["passed"] == false));
    assert_eq!(steps[0]["passed"], true);
    assert!(
        stairs["text"]
            .as_str()
            .unwrap()
            .starts_with("The knee is at")
    );
}

#[test]
fn connections_are_replaced_after_their_share_of_requests() {
    let server = FakeServer::ok();
    for more in [&["-n", "100"][..], &["--rps", "400", "--duration", "0.25"]] {
        let args = [
            "--command",
            "GET a",
            "--reconnect-after",
            "5",
            "-c",
            "2",
            "--resp3",
        ];
        let before = server
            .lines()
            .iter()
            .filter(|line| *line == "HELLO 3")
            .count();
        let result = result(&server, &[&args[..], more].concat());
        assert_eq!(result["requests"]["values"], 100);
        let opened = server
            .lines()
            .iter()
            .filter(|line| *line == "HELLO 3")
            .count()
            - before;
        assert!(
            (19..=22).contains(&opened),
            "{opened} connections for 100 requests"
        );
        assert_eq!(result["requests"]["connections_lost"], 0);
    }
}

#[test]
fn a_backlog_that_stays_full_does_not_keep_a_run_from_ending() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("s");
    let open = Listener::bind_unix(&path, redline_net::UnixAccess::default(), 1).unwrap();
    let listener = UnixListener::from(open.as_fd().try_clone_to_owned().unwrap());
    listener.set_nonblocking(false).unwrap();
    let (full, gone) = (
        Arc::new(AtomicBool::new(false)),
        Arc::new(AtomicBool::new(false)),
    );
    // Nobody is accepted from the first GET on, and the backlog is full before it is answered.
    let waiting = Mutex::new(Vec::new());
    let endpoint = Endpoint::Unix(path.clone());
    let (begin, ended) = (Arc::clone(&full), Arc::clone(&gone));
    let answer = Arc::new(move |request: &Request| {
        if request[0] == b"GET" {
            begin.store(true, Ordering::SeqCst);
            loop {
                let last = ended.load(Ordering::SeqCst);
                match connect_endpoint(&endpoint) {
                    Ok(stream) => waiting.lock().unwrap().push(stream),
                    Err(error) if last && error.error.kind() == ErrorKind::WouldBlock => break,
                    Err(_) => thread::yield_now(),
                }
            }
        }
        known(request).unwrap_or_else(|| reply("+OK\r\n"))
    });
    thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            if full.load(Ordering::SeqCst) {
                gone.store(true, Ordering::SeqCst);
                return;
            }
            let answer = Arc::clone(&answer);
            thread::spawn(move || serve(stream, &*answer, &Mutex::default()));
        }
    });
    let path = path.to_str().unwrap();
    let args = ["run", "-S", path, "--command", "GET a", "-c", "1"];
    let more = ["--reconnect-after", "1", "--duration", "0.3", "--json", "-"];
    let ran = bench(&[&args[..], &more].concat());
    assert_eq!(ran.code, 0, "{}", ran.stderr);
    let result: Value = serde_json::from_str(&ran.stdout).expect("nothing but JSON");
    assert_eq!(result["requests"]["values"], 1);
    drop(open);
}

#[test]
fn a_lost_connection_is_opened_again_and_what_was_under_way_is_counted() {
    for more in [&["-n", "50"][..], &["--rps", "100", "--duration", "0.5"]] {
        let n = AtomicU64::new(0);
        let server = on_get(move || match n.fetch_add(1, Ordering::Relaxed) % 10 {
            7 => Answer::Close(Vec::new()),
            _ => reply("+OK\r\n"),
        });
        let args = ["--command", "GET a", "--reconnect", "-c", "1"];
        let result = result(&server, &[&args[..], more].concat());
        let requests = &result["requests"];
        assert_eq!(requests["sent"], 50, "{requests}");
        assert_eq!(
            (&requests["lost"], &requests["connections_lost"]),
            (&5.into(), &5.into())
        );
        assert_eq!(requests["values"], 45);
        assert!(
            result["warnings"]
                .to_string()
                .contains("5 connections were lost")
        );
    }
}

#[test]
fn a_connection_that_is_closed_while_it_is_idle_costs_no_request() {
    let n = AtomicU64::new(0);
    let server = on_get(move || match n.fetch_add(1, Ordering::Relaxed) % 10 {
        7 => Answer::Close(b"+OK\r\n".to_vec()),
        _ => reply("+OK\r\n"),
    });
    // Each connection is free for a fifth of a second before it is used again: the end has come by then.
    let args = ["--command", "GET a", "--reconnect", "-c", "5"];
    let more = ["--rps", "25", "--duration", "1"];
    let result = result(&server, &[&args[..], &more].concat());
    let requests = &result["requests"];
    assert_eq!(
        (
            &requests["values"],
            &requests["lost"],
            &requests["connections_lost"]
        ),
        (&25.into(), &0.into(), &2.into()),
        "{requests}"
    );
}

#[test]
fn a_request_that_is_never_answered_is_given_up_in_time() {
    let n = AtomicU64::new(0);
    let server = on_get(move || match n.fetch_add(1, Ordering::Relaxed) {
        3 => Answer::Silence,
        _ => reply("+OK\r\n"),
    });
    let args = [
        "--command",
        "GET a",
        "--timeout",
        "0.2",
        "-c",
        "1",
        "-n",
        "20",
    ];
    let result = result(&server, &args);
    let requests = &result["requests"];
    assert_eq!(
        (&requests["lost"], &requests["values"]),
        (&1.into(), &19.into())
    );
    let longest = result["response_us"]["max"].as_u64().unwrap();
    assert!(
        longest >= 200_000,
        "it is recorded with what it waited: {longest}"
    );
    assert!(
        result["warnings"]
            .to_string()
            .contains("not answered in time")
    );
}
