//! `redline bench run --protocol memcache_text` against memcached from the system's packages, and its suite.
//!
//! Stored values are checked with another client: a socket that speaks the protocol itself.

use std::io::{BufRead, BufReader, Write};
use std::net::{Ipv4Addr, TcpStream};
use std::process::Command;
use std::time::Duration;

use serde_json::Value;

use crate::benched::{self, check, number};
use crate::compat::Setting;
use crate::install;
use crate::run::{Failure, Process, free_port, until, workspace};

const TIMEOUT: Duration = Duration::from_secs(120);
const KEYS: u64 = 3_000;
const INCREMENTS: u64 = 20_000;

/// Fills it, reads, misses, counts, and runs the suite against it and a Redis.
pub fn run(setting: &Setting) -> Result<String, Failure> {
    let program = install::memcached()?;
    let port = free_port()?;
    let mut command = Command::new(program);
    command.args(["-l", "127.0.0.1", "-u", "nobody", "-m", "64", "-p"]);
    let _server = Process::start(command.arg(port.to_string()))?;
    let connect = || TcpStream::connect((Ipv4Addr::LOCALHOST, port));
    until("memcached listens", || connect().is_ok())?;
    let text = port.to_string();
    let bench = |words: &[&str]| -> Result<Value, Failure> {
        let all = ["--protocol", "memcache_text", "-p", &text];
        benched::run(setting, &[&all[..], words].concat())
    };
    let fill = format!("SET key:{{seq:{KEYS}}} {{value:100}} 600");
    let get = format!("GET key:{{uniform:{KEYS}}}");
    let set = format!("SET key:{{uniform:{KEYS}}} {{value:100}}");
    let mix = ["--load", &fill, "--command", &get, "--command", &set];
    for more in [
        &[][..],
        &["-P", "16"],
        &["--rps", "3000"],
        &["--window", "-P", "8"],
    ] {
        let result = bench(&[&mix[..], &["--duration", "0.5"], more].concat())?;
        let all = number(&result, "/requests/values");
        check(
            all > 0 && number(&result, "/requests/errors") == 0,
            "answers",
            &result,
        )?;
        check(result["hit_rate"] == 1.0, "everything is found", &result)?;
        check(
            result["verdict"]["bottleneck"].is_string(),
            "a verdict",
            &result,
        )?;
        let server = result["parties"][1]["name"].as_str();
        check(server == Some("memcached"), "its CPU is known", &result)?;
    }
    let miss = bench(&["--command", "GET nobody{uniform:9}", "-n", "1000"])?;
    check(number(&miss, "/requests/nulls") == 1_000, "misses", &miss)?;
    let mut client = connect().map_err(|error| error.to_string())?;
    let begun = asked(&mut client, "set counter 0 0 1\r\n0\r\n")?;
    let count = INCREMENTS.to_string();
    let counted = bench(&["--command", "INCR counter 1", "-n", &count, "-P", "4"])?;
    check(
        number(&counted, "/requests/values") == INCREMENTS,
        "increments",
        &counted,
    )?;
    let sum = asked(&mut client, "incr counter 0\r\n")?;
    let stored = asked(&mut client, "get key:7\r\n")?;
    if begun != "STORED" || sum != count || stored != "VALUE key:7 0 100" {
        return Err(format!("another client finds {begun}, {sum}, {stored}"));
    }
    let wrong = bench(&[
        "--command",
        "INCR key:7 1",
        "-n",
        "100",
        "--on-error",
        "count",
    ])?;
    check(
        number(&wrong, "/requests/errors") == 100,
        "errors are counted",
        &wrong,
    )?;
    let runs = suite(setting, port)?;
    Ok(format!(
        "{INCREMENTS} increments arrived, hits, misses and errors are told apart, {runs} runs of its suite"
    ))
}

fn suite(setting: &Setting, port: u16) -> Result<usize, Failure> {
    let redis = setting.start_redis(&[])?;
    let mut command = benched::command(setting, "run");
    command
        .arg(workspace().join("suites/memcached.toml"))
        .args(["--scale", "0.02"])
        .args(["--target", &format!("memcached=127.0.0.1:{port}")])
        .args(["--target", &format!("redis={}", redis.address())]);
    let result = benched::result(command)?;
    let runs = result["runs"].as_array().cloned().unwrap_or_default();
    for run in &runs {
        let rate = run["result"]["achieved_rps"].as_f64().unwrap_or(0.0);
        check(rate > 0.0, "a rate", &run["result"])?;
        println!("  {} {}: {rate:.0} requests/s", run["group"], run["name"]);
    }
    Ok(runs.len())
}

/// Returns the first line of the reply.
fn asked(client: &mut TcpStream, request: &str) -> Result<String, Failure> {
    let mut ask = || -> std::io::Result<String> {
        client.set_read_timeout(Some(TIMEOUT))?;
        client.write_all(request.as_bytes())?;
        let mut line = String::new();
        BufReader::new(client.try_clone()?).read_line(&mut line)?;
        Ok(line.trim_end().to_owned())
    };
    ask().map_err(|error| format!("memcached: {error}"))
}
