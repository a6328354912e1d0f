//! The `redline` binary: selects the part to run. Everything else is in the other crates. Must not know what a part does.

#![forbid(unsafe_code)]

mod check;
mod convert;
mod doctor;
mod embedded;
mod link;
#[cfg(test)]
mod manual;
mod ping;
mod reference;

use std::env;
use std::ffi::OsStr;
use std::path::Path;
use std::process::ExitCode;

use link::Link;
use redline_server::console;

#[global_allocator]
static ALLOCATOR: redline_alloc::Allocator = redline_alloc::Allocator;

const USAGE: &str = "\
Usage: redline <part> [arguments]

 redline server     A data store for Redis clients; takes redis-server's arguments.
 redline bench      A load generator; takes redis-benchmark's arguments. Its sub-commands run,
                    compare, failover and report have options of their own.
 redline proxy      One address in front of many Redis servers.
 redline ping       Asks a server or a proxy whether it serves; for health checks.
 redline convert    Prints what a configuration of Redis, predixy or nutcracker, or a command line of
                    memtier_benchmark or redis-benchmark, is here.
 redline doctor     Examines this machine, and what a configuration needs of it.
 redline check-aof  Checks an append-only file, and repairs its end.
 redline check-rdb  Checks a snapshot.
 redline completions bash|zsh|fish
                    Prints the completions of a shell.
 redline man [PAGE] Prints a manual page; without a name, the names of all.
 redline --version  Print the version.
 redline --help     Print this text. Each part has a --help of its own, as redline server --help.

Called through a link named redis-server, redis-benchmark, redis-check-aof or redis-check-rdb (or
valkey- for redis-), or predixy, nutcracker or memtier_benchmark, redline is that part.
";

const PARTS: &[&str] = &[
    "server",
    "bench",
    "proxy",
    "ping",
    "doctor",
    "convert",
    "completions",
    "man",
    "check-aof",
    "check-rdb",
];

fn print(text: &str) -> ExitCode {
    match console::out(text) {
        Ok(()) => ExitCode::SUCCESS,
        Err(why) => {
            console::line_to_stderr(&format!("redline: {why}"));
            ExitCode::FAILURE
        }
    }
}

fn main() -> ExitCode {
    let mut args = env::args_os();
    let path = args.next().unwrap_or_default();
    let called = path.to_string_lossy();
    let name = Path::new(&path).file_name().unwrap_or_default();
    if let Some(link) = name.to_str().and_then(Link::named) {
        return link.run(&called, args);
    }
    let part = args.next();
    match part.as_ref().and_then(|part| part.to_str()) {
        Some("bench") => redline_bench::main("redline bench", args, Some(&embedded::start)),
        Some("server") => redline_server::command_line::main(&format!("{called} server"), args),
        Some("proxy") => redline_proxy::main(args),
        Some("check-aof") => check::aof("redline check-aof", args),
        Some("check-rdb") => check::rdb("redline check-rdb", args),
        Some("ping") => ping::main(args),
        Some("convert") => convert::main(args),
        Some("doctor") => doctor::main(args),
        Some("completions") => reference::completions(args),
        Some("man") => reference::man(args),
        Some("--version" | "-v" | "-V" | "version") => {
            print(concat!("redline ", env!("CARGO_PKG_VERSION"), "\n"))
        }
        Some("--help" | "-h" | "help") => print(USAGE),
        _ => no_such_part(part.as_deref()),
    }
}

/// Says that there is no such part, and which one may have been meant.
fn no_such_part(part: Option<&OsStr>) -> ExitCode {
    let problem = match part {
        None => "which part?".to_owned(),
        Some(part) => {
            let shown = part.to_string_lossy();
            let meant = redline_spec::nearest(&shown, PARTS.iter().copied());
            let meant = meant.map(|meant| format!("; did you mean \"{meant}\"?"));
            format!(
                "{shown}: no such part{}",
                meant.unwrap_or_else(|| ".".into())
            )
        }
    };
    console::line_to_stderr(&format!("redline: {problem} See redline --help"));
    ExitCode::FAILURE
}
