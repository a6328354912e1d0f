//! Requests that are sent, and how runs end, against a server that does what each test needs.

use std::io::{Read, Write};
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use crate::fake_server::{Answer, FakeServer, reply};
use crate::invocation::{Ran, bench, bench_with, settled};
use redline_bench::{Address, EmbeddedServer};

fn against(server: &FakeServer, args: &[&str]) -> Ran {
    let port = server.port();
    let args: Vec<&str> = ["-p", &port].iter().chain(args).copied().collect();
    bench(&args)
}

fn count(server: &FakeServer, line: &str) -> usize {
    server.lines().iter().filter(|seen| *seen == line).count()
}

#[test]
fn a_connection_is_prepared_in_the_order_of_redis_benchmark() {
    let server = FakeServer::ok();
    let args = [
        "-3",
        "--dbnum",
        "3",
        "-a",
        "pw",
        "--user",
        "bob",
        "--enable-tracking",
        "-P",
        "2",
        "-c",
        "1",
        "-n",
        "1",
        "-q",
        "ping",
    ];
    let ran = against(&server, &args);
    assert_eq!((ran.code, ran.stderr.as_str()), (0, ""));
    assert_eq!(
        server.lines(),
        [
            "AUTH bob pw",
            "SELECT 3",
            "CONFIG GET save",
            "CONFIG GET appendonly",
            "AUTH bob pw",
            "CLIENT TRACKING on",
            "SELECT 3",
            "HELLO 3",
            "ping",
            "ping",
        ]
    );
    assert!(!ran.stdout.contains("partial"));
}

#[test]
fn a_database_that_is_not_there_is_heard_of_before_anything_is_sent() {
    let server = FakeServer::start(|request| match request[0].as_slice() {
        b"SELECT" => reply("-ERR DB index is out of range\r\n"),
        _ => reply("+OK\r\n"),
    });
    for args in [
        &["--dbnum", "99", "-t", "set", "-n", "10"][..],
        &["run", "--db", "99", "--command", "SET a b", "-n", "10"],
        &[
            "run",
            "--db",
            "99",
            "--command",
            "GET a",
            "--load",
            "SET {seq:9} b",
        ],
    ] {
        let port = server.port();
        let (sub_command, options) = args.split_at(usize::from(args[0] == "run"));
        let ran = bench(&[sub_command, &["-p", &port], options].concat());
        assert_eq!((ran.code, ran.stdout.as_str()), (1, ""), "{args:?}");
        assert_eq!(
            ran.stderr,
            "Error from server: ERR DB index is out of range\n"
        );
    }
    let lines = server.lines();
    assert!(
        !lines.iter().any(|line| line.starts_with("SET ")),
        "{lines:?}"
    );
}

#[test]
fn a_test_that_does_not_exist_is_named() {
    let server = FakeServer::ok();
    let ran = against(&server, &["-t", "get,gett", "-n", "1", "-q"]);
    assert_eq!(ran.code, 0);
    assert_eq!(ran.stderr, "WARNING: no test is called \"gett\" (-t).\n");
    assert!(ran.stdout.contains("GET: "));
    // A comma too many is nobody's name.
    let ran = against(&server, &["-t", ",get,", "-n", "1", "-q"]);
    assert_eq!((ran.code, ran.stderr.as_str()), (0, ""));
    let ran = against(&server, &["-t", "", "-n", "1", "-q"]);
    assert_eq!(ran.stderr, "WARNING: no test is called \"\" (-t).\n");
}

#[test]
fn requests_are_counted_in_whole_batches() {
    for (args, sent) in [
        (&["-n", "100", "-c", "7"][..], 100),
        (&["-n", "100", "-P", "16", "-c", "3"], 112),
        (&["-n", "3", "-c", "20"], 3),
        (&["-n", "100", "-c", "3", "--threads", "8"], 100),
        (
            &["-n", "1000", "-c", "8", "--threads", "3", "-P", "3"],
            1002,
        ),
        (&["-n", "50", "-c", "4", "-k", "0"], 50),
        (&["-n", "0"], 0),
    ] {
        let server = FakeServer::ok();
        let args: Vec<&str> = args.iter().chain(&["-t", "get"]).copied().collect();
        let ran = against(&server, &args);
        assert_eq!(ran.code, 0, "{args:?}: {}", ran.stderr);
        assert!(
            ran.stdout
                .contains(&format!("\n  {sent} requests completed in ")),
            "{args:?}: {}",
            ran.stdout
        );
        assert!(
            ran.stdout.contains(&format!("(cumulative count {sent})\n")),
            "{args:?}"
        );
        assert_eq!(count(&server, "GET key:__rand_int__"), sent, "{args:?}");
    }
}

#[test]
fn random_numbers_have_twelve_digits_and_repeat_with_their_seed() {
    let run = || {
        let server = FakeServer::ok();
        let ran = against(
            &server,
            &[
                "-c",
                "1",
                "-n",
                "50",
                "-r",
                "1000",
                "--seed",
                "7",
                "-q",
                "set",
                "k:__rand_int__",
                "v",
            ],
        );
        assert_eq!(ran.code, 0);
        server.lines()
    };
    let lines = run();
    assert_eq!(lines, run());
    let mut seen = std::collections::HashSet::new();
    for line in &lines[2..] {
        let digits = line
            .strip_prefix("set k:")
            .and_then(|line| line.strip_suffix(" v"))
            .unwrap();
        assert_eq!(digits.len(), 12);
        assert!(digits.parse::<u64>().unwrap() < 1000);
        seen.insert(digits.to_owned());
    }
    assert!(seen.len() > 20);
}

#[test]
fn standard_input_is_the_last_argument_of_a_command() {
    let server = FakeServer::ok();
    let port = server.port();
    let ran = bench_with(
        &["-p", &port, "-x", "-q", "-c", "1", "-n", "1", "set", "foo"],
        b"a b\n",
        None,
    );
    assert_eq!(ran.code, 0);
    assert_eq!(
        server.requests().last().unwrap(),
        &[b"set".to_vec(), b"foo".to_vec(), b"a b\n".to_vec()]
    );
    assert!(
        settled(&ran.stdout).starts_with("set foo: "),
        "{}",
        ran.stdout
    );
}

#[test]
fn words_of_a_command_are_sent_as_they_are() {
    let server = FakeServer::ok();
    against(
        &server,
        &[
            "-q",
            "-c",
            "1",
            "-n",
            "1",
            "set",
            r#""a\x41b""#,
            "'c d'",
            "",
        ],
    );
    let sent: Vec<_> = server.requests().pop().unwrap();
    assert_eq!(sent, [&b"set"[..], br#""a\x41b""#, b"'c d'", b""]);
}

#[test]
fn an_error_reply_ends_the_run_with_what_was_done() {
    let server = FakeServer::start(|request| match request[0].as_slice() {
        b"LPUSH" => reply("-WRONGTYPE Operation against a key holding the wrong kind of value\r\n"),
        _ => reply("+OK\r\n"),
    });
    let ran = against(&server, &["-t", "get,lpush", "-n", "100", "-q"]);
    assert_eq!(ran.code, 1);
    assert_eq!(
        ran.stderr,
        "Error from server: WRONGTYPE Operation against a key holding the wrong kind of value\n"
    );
    let lines = settled(&ran.stdout);
    assert!(
        lines.starts_with("GET: ") && lines.lines().count() == 1,
        "{lines}"
    );
}

#[test]
fn a_run_that_breaks_off_is_reported_as_far_as_it_got() {
    let answered = std::sync::atomic::AtomicUsize::new(0);
    let server = FakeServer::start(move |_| {
        match answered.fetch_add(1, std::sync::atomic::Ordering::Relaxed) {
            0..70 => reply("+OK\r\n"),
            _ => Answer::Close(Vec::new()),
        }
    });
    let ran = against(&server, &["-t", "get", "-n", "100", "-c", "1"]);
    assert_eq!(
        (ran.code, ran.stderr.as_str()),
        (1, "Error: Server closed the connection\n")
    );
    assert!(
        ran.stdout.contains("\n  70 requests completed in "),
        "{}",
        ran.stdout
    );
    assert!(ran.stdout.contains("\n  partial: 70 of 100 requests\n"));
}

#[test]
fn a_server_that_is_full_says_why_it_closes() {
    let server =
        FakeServer::start(|_| Answer::Close(b"-ERR max number of clients reached\r\n".to_vec()));
    let ran = against(&server, &["-t", "get", "-q"]);
    assert_eq!(
        (ran.code, ran.stderr.as_str()),
        (1, "Error from server: ERR max number of clients reached\n")
    );
}

#[test]
fn an_idle_run_ends_when_the_server_closes() {
    // Nothing is sent on an idle connection, so the one that closes must do so by itself.
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let port = listener.local_addr().unwrap().port().to_string();
    std::thread::spawn(move || {
        // The probe gets no answer either: its connection closes too.
        for stream in listener.incoming() {
            drop(stream);
        }
    });
    let ran = bench(&["-p", &port, "-I", "-c", "3"]);
    assert_eq!(ran.code, 1);
    assert!(
        ran.stderr
            .starts_with("WARNING: Could not fetch server CONFIG\nError: "),
        "{}",
        ran.stderr
    );
    assert!(
        ran.stdout
            .starts_with("Creating 3 idle connections and waiting forever (Ctrl+C when done)\n")
    );
}

#[test]
fn garbage_is_named_as_such() {
    let server = FakeServer::start(|_| reply("HTTP/1.1 400 Bad Request\r\n"));
    let ran = against(&server, &["-t", "get", "-q"]);
    assert_eq!(ran.code, 1);
    assert_eq!(
        ran.stderr,
        "Error: Protocol error, unknown reply type 'H'\n"
    );
}

#[test]
fn a_refused_connection_names_the_address() {
    let port = {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        listener.local_addr().unwrap().port().to_string()
    };
    let ran = bench(&["-p", &port]);
    assert_eq!(ran.code, 1);
    assert_eq!(
        ran.stderr,
        format!("Could not connect to Redis at 127.0.0.1:{port}: Connection refused\n")
    );
    let ran = bench(&["-s", "/nonexistent/socket"]);
    assert_eq!(ran.code, 1);
    assert_eq!(
        ran.stderr,
        "Could not connect to Redis at /nonexistent/socket: No such file or directory\n"
    );
    assert_eq!(ran.stdout, "");
    // Who reads CSV has its first line, as redis-benchmark prints it.
    let ran = bench(&["-s", "/nonexistent/socket", "--csv", "get", "a"]);
    assert_eq!(ran.code, 1);
    assert!(
        ran.stdout.starts_with("\"test\",\"rps\","),
        "{}",
        ran.stdout
    );
    assert_eq!(ran.stdout.lines().count(), 1);
}

#[test]
fn what_a_server_says_does_nothing_to_the_terminal() {
    let info = "# Server\r\nredis_version:8\x1b[2J\r\n";
    let server = FakeServer::start(move |request| match request[0].as_slice() {
        b"INFO" => reply(&format!("${}\r\n{info}\r\n", info.len())),
        b"GET" | b"get" => reply("-ERR \x1b]0;title\x07\r\n"),
        _ => reply("+OK\r\n"),
    });
    let port = server.port();
    let cluster = ["run", "-p", &port, "--cluster", "--command", "GET a"];
    for (ran, said) in [
        (against(&server, &["-n", "1", "get", "a"]), "ERR ?]0;title?"),
        (bench(&["run", "-p", &port, "--command", "GET a"]), "8?[2J"),
        (bench(&cluster), "Nobody says"),
    ] {
        let output = ran.stdout + &ran.stderr;
        assert!(output.contains(said), "{output:?}");
        let harmless = |c: char| !c.is_control() || "\r\n\t".contains(c);
        assert!(output.chars().all(harmless), "{output:?}");
    }
}

#[test]
fn a_missing_or_a_wrong_password_ends_the_run() {
    let server = FakeServer::start_raw(|request| match request[0].as_slice() {
        b"AUTH" => reply("-WRONGPASS invalid username-password pair or user is disabled.\r\n"),
        _ => reply("-NOAUTH Authentication required.\r\n"),
    });
    let address = server.address;
    let ran = against(&server, &[]);
    assert_eq!((ran.code, ran.stdout.as_str()), (1, ""));
    assert_eq!(
        ran.stderr,
        format!("Node {address} replied with error:\nNOAUTH Authentication required.\n")
    );
    let ran = against(&server, &["-a", "nope"]);
    assert!(ran.stderr.contains("\nWRONGPASS "), "{}", ran.stderr);
}

#[test]
fn a_server_without_config_is_measured_all_the_same() {
    let server = FakeServer::start_raw(|request| match request[0].as_slice() {
        b"CONFIG" => reply("-ERR unknown command 'CONFIG'\r\n"),
        _ => reply("+OK\r\n"),
    });
    let ran = against(&server, &["-t", "get", "-n", "10"]);
    assert_eq!(
        (ran.code, ran.stderr.as_str()),
        (0, "WARNING: Could not fetch server CONFIG\n")
    );
    assert!(!ran.stdout.contains("host configuration"));
}

#[test]
fn push_messages_are_no_replies() {
    let server =
        FakeServer::start(|_| reply(">2\r\n+invalidate\r\n*1\r\n$1\r\nk\r\n$3\r\nabc\r\n"));
    let ran = against(&server, &["-3", "-t", "get", "-n", "100", "-P", "4"]);
    assert_eq!(ran.code, 0);
    assert!(ran.stdout.contains("(cumulative count 100)\n"));
}

/// Answers the first questions of each connection, and a GET with a reply without end, of so many pieces at most. Where it
/// listens, and how many pieces have left.
fn endless(pieces_max: usize) -> (String, Arc<AtomicUsize>) {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let port = listener.local_addr().unwrap().port();
    let sent = Arc::new(AtomicUsize::new(0));
    let count = Arc::clone(&sent);
    let say = move |mut stream: TcpStream, count: &AtomicUsize| -> std::io::Result<()> {
        let mut heard = [0; 4096];
        loop {
            let bytes = stream.read(&mut heard)?;
            let heard = &heard[..bytes];
            if heard.windows(3).any(|word| word == b"GET") && !heard.starts_with(b"*3") {
                break;
            }
            let asked = heard.iter().filter(|&&byte| byte == b'*').count();
            stream.write_all("*2\r\n+a\r\n+b\r\n".repeat(asked).as_bytes())?;
            if bytes == 0 {
                return Ok(());
            }
        }
        stream.write_all(b"*2000000000\r\n")?;
        let piece = b"+x\r\n".repeat(65_536);
        while count.fetch_add(1, Ordering::Relaxed) < pieces_max {
            stream.write_all(&piece)?;
        }
        Ok(())
    };
    std::thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            let count = Arc::clone(&count);
            std::thread::spawn(move || say(stream, &count));
        }
    });
    (port.to_string(), sent)
}

#[test]
fn a_reply_without_end_does_not_keep_a_run_from_ending() {
    const PIECES: usize = 100_000;
    let (port, sent) = endless(PIECES);
    let words = ["run", "-p", &port, "-c", "1", "--command", "GET a"];
    let ran = bench(&[&words[..], &["--duration", "0.3", "--no-calibration"]].concat());
    assert_eq!(
        (ran.code, ran.stderr.as_str()),
        (1, "No request was answered.\n")
    );
    let sent = sent.load(Ordering::Relaxed);
    assert!(sent < PIECES, "it was read to its end");
}

#[test]
fn replies_larger_than_a_read_are_skipped_in_pieces() {
    let body = "x".repeat(700_000);
    let large = format!(
        "*2\r\n${}\r\n{body}\r\n+{}\r\n",
        body.len(),
        "y".repeat(300_000)
    );
    let server = FakeServer::start(move |_| reply(&large));
    let ran = against(
        &server,
        &["-t", "lrange_100", "-n", "20", "-c", "2", "-P", "2", "-q"],
    );
    assert_eq!((ran.code, ran.stderr.as_str()), (0, ""));
}

#[test]
fn batches_larger_than_a_socket_takes_are_sent_in_pieces() {
    let server = FakeServer::ok();
    let ran = against(
        &server,
        &[
            "-t", "set", "-n", "40", "-c", "2", "-P", "10", "-d", "1000000", "-r", "10", "-q",
        ],
    );
    assert_eq!((ran.code, ran.stderr.as_str()), (0, ""));
    let requests = server.requests();
    let sets: Vec<_> = requests
        .iter()
        .filter(|request| request[0] == b"SET")
        .collect();
    assert_eq!(sets.len(), 40);
    assert!(
        sets.iter()
            .all(|set| set[1].len() == 16 && set[2].len() == 1_000_000 && set[2] == sets[0][2])
    );
}

#[test]
fn the_old_forms_print_rates_only() {
    let server = FakeServer::ok();
    let ran = against(
        &server,
        &[
            "--compat",
            "redis-5",
            "-q",
            "-n",
            "20",
            "-t",
            "ping,lrange_500",
        ],
    );
    let lines = settled(&ran.stdout);
    let titles: Vec<&str> = lines
        .lines()
        .filter_map(|line| line.strip_suffix(" requests per second"))
        .collect();
    let titles: Vec<&str> = titles
        .iter()
        .map(|line| line.rsplit_once(": ").unwrap().0)
        .collect();
    assert_eq!(
        titles,
        [
            "PING_INLINE",
            "PING_BULK",
            "LPUSH (needed to benchmark LRANGE)",
            "LRANGE_500 (first 450 elements)"
        ]
    );
    let ran = against(
        &server,
        &["--compat", "redis-2.6", "--csv", "-n", "20", "-t", "set"],
    );
    let (title, rate) = ran.stdout.trim_end().split_once(',').unwrap();
    assert_eq!(title, "\"SET\"");
    assert!(rate.trim_matches('"').parse::<f64>().unwrap() > 0.0);
}

#[test]
fn the_embedded_server_is_loaded_and_named() {
    let server = FakeServer::ok();
    let address = server.address;
    let start = || {
        Ok(EmbeddedServer {
            address: Address::tcp(address.ip().to_string(), address.port()),
            description: "2 workers".into(),
            guard: Box::new(()),
        })
    };
    let ran = bench_with(&["--embedded", "-n", "10", "-t", "get"], b"", Some(&start));
    assert_eq!(ran.code, 0, "{}", ran.stderr);
    assert!(
        ran.stdout
            .contains(&format!("\n  embedded server: {address}, 2 workers\n")),
        "{}",
        ran.stdout
    );
    assert_eq!(count(&server, "GET key:__rand_int__"), 10);
    let ran = bench_with(
        &["--embedded", "-n", "10", "-t", "get", "-q"],
        b"",
        Some(&start),
    );
    assert!(
        ran.stdout
            .starts_with(&format!("Embedded server: {address}, 2 workers\n"))
    );

    let failing = || Err("no port is free".to_owned());
    let ran = bench_with(&["--embedded"], b"", Some(&failing));
    assert_eq!((ran.code, ran.stderr.as_str()), (1, "no port is free\n"));
    assert_eq!(bench(&["--embedded"]).code, 1);
}

#[test]
fn values_that_no_socket_takes_at_once_arrive_whole() {
    // From one buffer, which the next connection needs, or from one that its connection keeps.
    const BYTES: usize = 5_000_000;
    let size = BYTES.to_string();
    let server = FakeServer::ok();
    let benchmark = ["-n", "6", "-c", "3", "-d", &size, "-t", "set"];
    assert_eq!(against(&server, &benchmark).code, 0);
    let port = server.port();
    let load = [
        "-n",
        "6",
        "-c",
        "3",
        "-d",
        &size,
        "--command",
        "SET a {value}",
    ];
    for depth in ["1", "2"] {
        let words = [
            &["run", "-p", &port, "-P", depth, "--no-calibration"],
            &load[..],
        ]
        .concat();
        assert_eq!(bench(&words).code, 0);
    }
    let requests = server.requests();
    let values = requests
        .iter()
        .filter(|words| words[0].eq_ignore_ascii_case(b"SET"));
    let values: Vec<&Vec<u8>> = values.map(|words| &words[2]).collect();
    assert_eq!(values.len(), 18);
    assert!(values.iter().all(|value| value.len() == BYTES));
    let (benchmark, run) = values.split_at(6);
    assert!(benchmark.iter().all(|value| *value == benchmark[0]));
    for (index, value) in run.iter().enumerate() {
        assert!(run[..index].iter().all(|other| other != value));
    }
}
