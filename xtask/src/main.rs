//! Chores that are more than one cargo command: `cargo xtask compat` and `cargo xtask tidy`.
//! Knows the product only from outside.

#![forbid(unsafe_code)]

mod benched;
mod client_suites;
mod clients;
mod clusters;
mod command_line_tools;
mod compared;
mod compat;
mod failover;
mod histories;
mod install;
mod jobs;
mod many;
mod memcached;
mod names;
mod proxy;
mod proxy_cache;
mod proxy_face;
mod proxy_reads;
mod proxy_tls;
mod reports;
mod run;
mod suite;
mod tcl;
mod through;
mod tidy;
mod tls;
mod verdicts;

use std::process::ExitCode;

const USAGE: &str = "\
cargo xtask compat [STEP ...] [--calls N] [--seed N] [--only STEP,...] [--binary REDLINE] [--units UNIT,...]
    Our server and our bench against a real Redis, its tools, and clients in four languages.
    Steps: spec compare payloads access valkey config benchmark cli clients jobs histories bench cluster failover
    memcached proxy proxy-reads proxy-cache proxy-face proxy-tls through tls.
    Installs what it needs (apt, pip, npm, go).
    Only when named: suites, the test suites of client libraries (half an hour), tcl, that of Redis 7.0 (an hour;
    of both, --units go-redis,unit/scan,... runs a part), and, on a quiet machine, verdicts,
    bottlenecks built for real and what our bench says of them (a minute, as root), and compared, servers that it has to
    tell apart or not (two minutes); many, 10,000 connections; and report, our pages in a browser (as root).
cargo xtask tidy
    The rules of the house that a program can check.";

fn main() -> ExitCode {
    let words: Vec<String> = std::env::args().skip(1).collect();
    if words.iter().any(|word| word == "--help" || word == "-h") {
        println!("{USAGE}");
        return ExitCode::SUCCESS;
    }
    let done = match words.first().map(String::as_str) {
        Some("compat") => {
            compat::Options::parse(&words[1..]).and_then(|options| compat::run(&options))
        }
        Some("tidy") if words.len() == 1 => tidy::run(),
        _ => Err(USAGE.to_owned()),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(message) => {
            eprintln!("{message}");
            ExitCode::FAILURE
        }
    }
}
