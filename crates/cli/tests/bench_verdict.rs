//! Verdicts of `redline bench run` on bottlenecks that are built for real.
//!
//! One test, so that the runs do not take each other's CPUs. Other work on the machine may: who had to wait for a CPU is
//! in the result, and a run that decides nothing is then done again. A wrong verdict fails at once, and so does one that
//! is undecided although nobody had to wait.
//!
//! It measures, so it is not among the tests that always run: generator and server want a CPU each, and on a machine that
//! has no more, what is the limit is now and then undecided for good reason. The rule itself is tested without a machine
//! in `redline_bench::cause::verdict`.

mod running;

use std::io::{ErrorKind, Read, Write};
use std::net::TcpListener;
use std::process::Command;
use std::thread;

use running::{REDLINE, Running};
use serde_json::Value;

/// Runs until the verdict is clear. A machine that is busy for so long cannot show it, and the test fails.
const ATTEMPTS: usize = 10;

fn server(threads: &str) -> Running {
    let folder = tempfile::tempdir().expect("a folder of its own");
    let args = ["--port", "0", "--unixsocket", "s", "--threads", threads];
    Running::start(folder, &args, None)
}

#[track_caller]
fn expect(bottleneck: &str, target: &[&str], args: &[&str]) {
    for _ in 0..ATTEMPTS {
        let output = Command::new(REDLINE)
            .args(["bench", "run", "--json", "-", "--duration", "1"])
            .args(target)
            .args(args)
            .output()
            .expect("the binary starts");
        let result: Value = serde_json::from_slice(&output.stdout).expect("JSON");
        let verdict = &result["verdict"];
        if verdict["bottleneck"] == bottleneck {
            return;
        }
        assert!(
            verdict["bottleneck"] == "undecided" && waited(&result),
            "{bottleneck} was built, and this found: {verdict:#}"
        );
    }
    panic!("{bottleneck}: the machine was too busy to show it in {ATTEMPTS} runs");
}

/// Whether somebody had to wait for a CPU for a twentieth of the time.
fn waited(result: &Value) -> bool {
    let parties = result["parties"].as_array().expect("there are parties");
    parties.iter().any(|party| {
        let of = |name: &str| party[name].as_f64().expect("a number");
        of("waited_s") >= 0.05 * of("wall_s")
    })
}

/// A server that asks every connection again and again whether it has something to say: its time goes into system
/// calls, and it never sleeps. It answers everything with PONG. Returns its port; it ends with the test's process.
fn server_of_system_calls() -> String {
    let listener = TcpListener::bind(("127.0.0.1", 0)).expect("a free port");
    listener
        .set_nonblocking(true)
        .expect("a listener can do so");
    let port = listener.local_addr().expect("it is bound").port();
    thread::spawn(move || {
        let (mut streams, mut room) = (Vec::new(), [0; 4096]);
        loop {
            if let Ok((stream, _)) = listener.accept() {
                stream.set_nonblocking(true).expect("a socket can do so");
                streams.push(stream);
            }
            streams.retain_mut(|stream| match stream.read(&mut room) {
                Ok(0) => false,
                // Requests are small, and arrive whole on this machine.
                Ok(bytes) => {
                    let requests = room[..bytes].iter().filter(|&&byte| byte == b'*').count();
                    stream
                        .write_all("+PONG\r\n".repeat(requests).as_bytes())
                        .is_ok()
                }
                Err(error) => error.kind() == ErrorKind::WouldBlock,
            });
        }
    });
    port.to_string()
}

#[test]
#[ignore = "wants two CPUs for itself: cargo test -p redline-cli --test bench_verdict -- --ignored"]
fn each_bottleneck_that_was_built_is_the_one_that_is_found() {
    let one = server("1");
    let path = one.path("s");
    let target = ["-S", path.to_str().expect("a path in UTF-8")];
    expect("rate", &target, &["--command", "GET a", "--rps", "300"]);

    // Six hundred elements to encode for each request.
    let list = [
        "--load",
        "RPUSH list {seq:600}",
        "--command",
        "LRANGE list 0 -1",
        "-c",
        "20",
    ];
    expect("server-user", &target, &list);

    // Many draws from a distribution that is dear to draw from, for each cheap request to two workers.
    let two = server("2");
    let path = two.path("s");
    let target = ["-S", path.to_str().expect("a path in UTF-8")];
    let key = "{zipf:1.1,1000000}".repeat(24);
    let dear = format!("GET {key}");
    expect(
        "client",
        &target,
        &["--command", &dear, "-c", "4", "-P", "32"],
    );

    let port = server_of_system_calls();
    expect(
        "server-kernel",
        &["-p", &port],
        &["--command", "PING", "-c", "20"],
    );
}
