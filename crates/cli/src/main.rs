//! The `redline` binary: selects the part to run. Everything else is in the other crates. Must not know what a part does.

#![forbid(unsafe_code)]

mod check;
mod doctor;
mod embedded;

use std::env;
use std::ffi::{OsStr, OsString};
use std::path::Path;
use std::process::ExitCode;

use redline_server::console;

#[global_allocator]
static ALLOCATOR: redline_alloc::Allocator = redline_alloc::Allocator;

const USAGE: &str = "\
Usage: redline <part> [arguments]

 redline server     A data store for Redis clients; takes redis-server's arguments.
 redline bench      A load generator; takes redis-benchmark's arguments. Its sub-commands run,
                    compare, failover and report have options of their own.
 redline proxy      One address in front of many Redis servers.
 redline doctor     Examines this machine, and what a configuration needs of it.
 redline check-aof  Checks an append-only file, and repairs its end.
 redline check-rdb  Checks a snapshot.
 redline --version  Print the version.
 redline --help     Print this text. Each part has a --help of its own, as redline server --help.

Called through a link named redis-server, redis-benchmark, redis-check-aof or redis-check-rdb (or
valkey- for redis-), or predixy, redline is that part.
";

const PARTS: &[&str] = &[
    "server",
    "bench",
    "proxy",
    "doctor",
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
        Some("doctor") => doctor::main(args),
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

/// A link by which another program's name stands for a part.
enum Link {
    Server,
    Sentinel,
    Bench(&'static str),
    CheckAof(&'static str),
    CheckRdb(&'static str),
    Predixy,
    /// A program whose command line is not taken: its name, and what does the same.
    Other(&'static str, &'static str),
}

impl Link {
    /// Returns the link of that name.
    fn named(name: &str) -> Option<Link> {
        Some(match name {
            "redis-server" | "valkey-server" => Link::Server,
            "redis-sentinel" | "valkey-sentinel" => Link::Sentinel,
            "redis-benchmark" => Link::Bench("redis-benchmark"),
            "valkey-benchmark" => Link::Bench("valkey-benchmark"),
            "redis-check-aof" => Link::CheckAof("redis-check-aof"),
            "valkey-check-aof" => Link::CheckAof("valkey-check-aof"),
            "redis-check-rdb" => Link::CheckRdb("redis-check-rdb"),
            "valkey-check-rdb" => Link::CheckRdb("valkey-check-rdb"),
            "predixy" => Link::Predixy,
            "nutcracker" => Link::Other(
                "nutcracker",
                "its file and options are not read; \"redline proxy\" does what it does, see docs/proxy.md",
            ),
            "memtier_benchmark" => Link::Other(
                "memtier_benchmark",
                "its options are not read; \"redline bench run\" does what it does, and names its own option for each",
            ),
            _ => return None,
        })
    }

    /// Runs the part with the link's arguments. `called`: the name with its folder.
    fn run(self, called: &str, args: impl Iterator<Item = OsString>) -> ExitCode {
        match self {
            Link::Server => redline_server::command_line::main(called, args),
            Link::Sentinel => {
                let sentinel = args.chain(["--sentinel".into()]);
                redline_server::command_line::main(called, sentinel)
            }
            Link::Bench(name) => redline_bench::main(name, args, Some(&embedded::start)),
            Link::CheckAof(name) => check::aof(name, args),
            Link::CheckRdb(name) => check::rdb(name, args),
            Link::Predixy => {
                // Its first argument is its file.
                let mut args = args.peekable();
                let is_file = |word: &OsString| !word.to_string_lossy().starts_with('-');
                let file = args.next_if(is_file).map(|file| ["--predixy".into(), file]);
                redline_proxy::main(file.into_iter().flatten().chain(args))
            }
            Link::Other(name, instead) => {
                console::line_to_stderr(&format!("{name}: {instead}"));
                ExitCode::FAILURE
            }
        }
    }
}
