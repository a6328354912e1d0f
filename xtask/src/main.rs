//! Chores that are more than one cargo command: `cargo xtask compat`, `cargo xtask cost`, `cargo xtask crash`,
//! `cargo xtask dist`, `cargo xtask docs`, `cargo xtask tidy` and `cargo xtask new-type-check`.
//! Knows the product only from outside.

#![forbid(unsafe_code)]

mod benched;
mod client_suites;
mod clients;
mod cluster_etcd;
mod cluster_moves;
mod cluster_node;
mod clusters;
mod command_line_tools;
mod compared;
mod compat;
mod cost;
mod crash;
mod dist;
mod docs;
mod failover;
mod files;
mod folders;
mod histories;
mod install;
mod jobs;
mod many;
mod memcached;
mod migration;
mod monitoring;
mod names;
mod new_type;
mod proxy;
mod proxy_cache;
mod proxy_face;
mod proxy_reads;
mod proxy_tls;
mod ratchets;
mod replication;
mod reports;
mod run;
mod sentinel;
mod status_pages;
mod stream;
mod suite;
mod tcl;
mod through;
mod tidy;
mod tls;
mod verdicts;

use std::process::ExitCode;

fn usage() -> String {
    format!(
        "\
cargo xtask compat [STEP ...] [--calls N] [--seconds N] [--rounds N] [--seed N] [--only STEP,...] [--binary REDLINE] [--units UNIT,...]
    Our server, our proxy and our bench against a real Redis, its tools, and clients in four languages.
    Installs what it needs (apt, pip, npm, go). --units: a part of a test suite, as go-redis or unit/scan.
    --rounds: so many rounds with cut links for each pair of servers in the step replication, and nothing else there.
{}
cargo xtask cost [--only NAME,...] [--requests N] [--binary REDLINE]
    What every data command costs beside a real Redis in CPU time, as a table; fails if one costs more than {} of that.
cargo xtask crash [--points N] [--policy always|everysec|no] [--servers 1|2] [--seed N] [--binary REDLINE]
    Kills a server under load at random moments and starts it again: nothing that was acknowledged is lost, no unit torn.
    With two, a primary or its replica: the other has what WAIT and WAITAOF have confirmed.
cargo xtask dist [--binary REDLINE] [--out FOLDER] [--no-image] [--units]
    Debian packages, archive, checksums, components with licences, image, of one build, into target/dist. --units: only the
    units of systemd.
cargo xtask docs
    Checks the links between pages, and makes the site in target/book.
cargo xtask tidy
    The rules of the house that a program can check.
cargo xtask new-type-check
    A copy of the workspace with a type of values more: which files that touches, that all compiles, and that its server
    does with the type what it does with any.",
        compat::usage_of_steps(),
        cost::RATIO_MAX
    )
}

fn main() -> ExitCode {
    let words: Vec<String> = std::env::args().skip(1).collect();
    if words.iter().any(|word| word == "--help" || word == "-h") {
        println!("{}", usage());
        return ExitCode::SUCCESS;
    }
    let done = match words.first().map(String::as_str) {
        Some("compat") => {
            compat::Options::parse(&words[1..]).and_then(|options| compat::run(&options))
        }
        Some("cost") => cost::Options::parse(&words[1..]).and_then(|options| cost::run(&options)),
        Some("crash") => {
            crash::Options::parse(&words[1..]).and_then(|options| crash::run(&options))
        }
        Some("dist") => dist::Options::parse(&words[1..]).and_then(|options| dist::run(&options)),
        Some("docs") if words.len() == 1 => docs::run(),
        Some("tidy") if words.len() == 1 => tidy::run(),
        Some("new-type-check") if words.len() == 1 => new_type::run(),
        _ => Err(usage()),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(message) => {
            eprintln!("{message}");
            ExitCode::FAILURE
        }
    }
}
