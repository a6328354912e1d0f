//! The `redline` binary: selects the part to run. Everything else is in the other crates. Must not know what a part does.

#![forbid(unsafe_code)]

mod check;
mod embedded;

use std::env;
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
 redline check-aof  Checks an append-only file, and repairs its end.
 redline check-rdb  Checks a snapshot.
 redline --version  Print the version.
 redline --help     Print this text. Each part has a --help of its own, as redline server --help.

Called through a link named redis-server, redis-benchmark, redis-check-aof or redis-check-rdb,
redline is that part.
";

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
    match name.to_str() {
        Some("redis-benchmark") => {
            return redline_bench::main("redis-benchmark", args, Some(&embedded::start));
        }
        Some("redis-server") => return redline_server::command_line::main(&called, args),
        Some("redis-check-aof") => return check::aof("redis-check-aof", args),
        Some("redis-check-rdb") => return check::rdb("redis-check-rdb", args),
        Some("redis-sentinel") => {
            let sentinel = args.chain(["--sentinel".into()]);
            return redline_server::command_line::main(&called, sentinel);
        }
        _ => {}
    }
    let part = args.next();
    match part.as_ref().and_then(|part| part.to_str()) {
        Some("bench") => redline_bench::main("redline bench", args, Some(&embedded::start)),
        Some("server") => redline_server::command_line::main(&format!("{called} server"), args),
        Some("proxy") => redline_proxy::main(args),
        Some("check-aof") => check::aof("redline check-aof", args),
        Some("check-rdb") => check::rdb("redline check-rdb", args),
        Some("--version" | "-v") => print(concat!("redline ", env!("CARGO_PKG_VERSION"), "\n")),
        Some("--help" | "-h" | "help") => print(USAGE),
        _ => {
            let problem = match part {
                Some(part) => format!("there is no part \"{}\".", part.display()),
                None => "which part?".to_owned(),
            };
            console::line_to_stderr(&format!("redline: {problem}\n\n{}", USAGE.trim_end()));
            ExitCode::FAILURE
        }
    }
}
