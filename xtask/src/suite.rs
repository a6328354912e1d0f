//! Benchmarks across: the real redis-benchmark against our server, and our bench against a real Redis, with the command
//! lines of `published_command_lines.txt`. They must run and print results, at any speed.

use std::process::Command;
use std::time::Duration;

use crate::compat::{Setting, stop};
use crate::run::{Failure, captured, ended, line};

/// Command lines of pages on the web, with host, password and count adapted.
const PUBLISHED: &str = include_str!("../published_command_lines.txt");
const BENCHMARK_TIMEOUT: Duration = Duration::from_secs(120);
/// Number of lines of redis-benchmark 7.0's whole suite in quiet mode.
const SUITE_TESTS: usize = 20;

/// Runs the real redis-benchmark's whole suite, in four ways.
pub fn redis_benchmark_against_us(setting: &Setting) -> Result<String, Failure> {
    let ways: [&[&str]; 4] = [
        &["-n", "2000"],
        &["-n", "20000", "-P", "16"],
        &["-n", "4000", "--threads", "2"],
        &["-n", "2000", "-3"],
    ];
    for way in ways {
        let server = setting.start_redline(2, &[])?;
        let mut benchmark = Command::new("redis-benchmark");
        benchmark
            .args([
                "-h",
                "127.0.0.1",
                "-q",
                "-p",
                &server.address().port().to_string(),
            ])
            .args(way);
        let text = line(&benchmark);
        let output = ended(benchmark, b"", BENCHMARK_TIMEOUT)?;
        let said = String::from_utf8_lossy(&output.stdout).into_owned();
        let complaints = String::from_utf8_lossy(&output.stderr);
        let complained = ["ERR", "WARN", "Error"]
            .iter()
            .any(|word| said.contains(word) || complaints.contains(word));
        let rates = rates(&said);
        if !output.status.success()
            || complained
            || rates.len() != SUITE_TESTS
            || rates.iter().any(|rate| *rate <= 0.0)
        {
            return Err(format!(
                "{text}: {}, {} rates\n{said}{complaints}\n{}",
                output.status,
                rates.len(),
                server.log()
            ));
        }
        stop(server)?;
    }
    Ok(format!(
        "the {SUITE_TESTS} tests of its suite, plain, -P 16, --threads 2 and -3"
    ))
}

/// Runs our bench with the published command lines, against the real server and against ours.
pub fn our_bench_against_redis(setting: &Setting) -> Result<String, Failure> {
    let mut ran = 0;
    for ours in [false, true] {
        let folder =
            std::env::temp_dir().join(format!("redline-compat-{}-{ours}.sock", std::process::id()));
        let socket = folder.display().to_string();
        let words = ["--unixsocket", &socket[..]];
        let server = if ours {
            setting.start_redline(2, &words)?
        } else {
            setting.start_redis(&words)?
        };
        let with_password = if ours {
            setting.start_redline(2, &["--requirepass", "secret"])?
        } else {
            setting.start_redis(&["--requirepass", "secret"])?
        };
        let lines = PUBLISHED
            .lines()
            .filter(|line| !line.is_empty() && !line.starts_with('#'));
        for published in lines {
            let port = if published.contains("{password}") {
                with_password.address()
            } else {
                server.address()
            }
            .port();
            let filled = published
                .replace("{port}", &port.to_string())
                .replace("{password}", "secret")
                .replace("{socket}", &socket);
            let words = words_of(&filled);
            let mut bench = Command::new(&setting.redline);
            bench.arg("bench").args(&words[1..]);
            let text = line(&bench);
            let said = captured(bench, b"", BENCHMARK_TIMEOUT)?;
            let rates = rates(&said);
            if rates.is_empty() || rates.iter().any(|rate| *rate <= 0.0) {
                return Err(format!("{text}: no rate, or one of zero\n{said}"));
            }
            ran += 1;
        }
        if ours {
            stop(server)?;
            stop(with_password)?;
        }
    }
    Ok(format!(
        "{ran} runs of published command lines, half against Redis, half against us"
    ))
}

/// Returns the rates in a benchmark's output.
fn rates(said: &str) -> Vec<f64> {
    said.split(['\n', '\r'])
        .filter(|line| !line.contains("rps="))
        .filter_map(|line| line.split_once(" requests per second"))
        .filter_map(|(before, _)| before.rsplit([' ', ':']).next()?.parse().ok())
        .collect()
}

/// Returns the words of a command line, in which words may be in double quotes.
fn words_of(line: &str) -> Vec<String> {
    line.split('"')
        .enumerate()
        .flat_map(|(at, part)| {
            if at % 2 == 1 {
                vec![part.to_owned()]
            } else {
                part.split_whitespace().map(str::to_owned).collect()
            }
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quoted_words_stay_whole() {
        assert_eq!(
            words_of("bench -q script load \"redis.call('set','a b')\" x"),
            [
                "bench",
                "-q",
                "script",
                "load",
                "redis.call('set','a b')",
                "x"
            ]
        );
    }

    #[test]
    fn rates_are_found_in_both_reports() {
        let quiet = "SET: rps=0.0 (overall: 1.0) avg_msec=1\rSET: 2000.50 requests per second, p50=0.1 msec\n";
        assert_eq!(rates(quiet), [2000.5]);
        assert_eq!(
            rates("  throughput summary: 12.25 requests per second\n"),
            [12.25]
        );
    }
}
