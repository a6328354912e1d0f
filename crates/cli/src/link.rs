//! Links that are named as other programs, and the parts that take their place.
//!
//! Must not know what a part does.

use std::ffi::OsString;
use std::process::ExitCode;

use redline_server::console;

use crate::{check, embedded};

/// A link by which another program's name stands for a part.
pub enum Link {
    /// redis-server.
    Server,
    /// redis-sentinel.
    Sentinel,
    /// redis-benchmark, by this name.
    Bench(&'static str),
    /// redis-check-aof, by this name.
    CheckAof(&'static str),
    /// redis-check-rdb, by this name.
    CheckRdb(&'static str),
    /// predixy.
    Predixy,
    /// A program whose command line is not taken: its name, and what does the same.
    Other(&'static str, &'static str),
}

impl Link {
    /// Returns the link of that name.
    pub fn named(name: &str) -> Option<Link> {
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
    pub fn run(self, called: &str, args: impl Iterator<Item = OsString>) -> ExitCode {
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
