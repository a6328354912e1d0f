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
    /// nutcracker (twemproxy).
    Nutcracker,
    /// memtier_benchmark.
    Memtier,
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
            "nutcracker" => Link::Nutcracker,
            "memtier_benchmark" => Link::Memtier,
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
            Link::Nutcracker => match of_nutcracker(args) {
                Ok(words) => redline_proxy::main(words.into_iter()),
                Err(why) => {
                    console::line_to_stderr(&format!("nutcracker: {why}"));
                    ExitCode::FAILURE
                }
            },
            Link::Memtier => redline_bench::main("memtier_benchmark", args, None),
        }
    }
}

/// The file that nutcracker reads if none is named.
const NUTCRACKER_FILE: &str = "conf/nutcracker.yml";

/// nutcracker's options: letter, name, true if it takes a value, and the option of `redline proxy`, or why it has none.
type Row = (char, &'static str, bool, Result<&'static str, &'static str>);

const NUTCRACKER: &[Row] = &[
    ('h', "help", false, Ok("--help")),
    ('V', "version", false, Ok("--version")),
    ('t', "test-conf", false, Ok("--check")),
    ('c', "conf-file", true, Ok("--nutcracker")),
    (
        'v',
        "verbose",
        true,
        Err("the log is sampled by level: [log.sample] in a file of ours"),
    ),
    (
        'o',
        "output",
        true,
        Err("the log goes to standard error: [log] file in a file of ours"),
    ),
    (
        's',
        "stats-port",
        true,
        Err("[metrics] bind in a file of ours, for Prometheus"),
    ),
    (
        'a',
        "stats-addr",
        true,
        Err("[metrics] bind in a file of ours, for Prometheus"),
    ),
    (
        'i',
        "stats-interval",
        true,
        Err("figures are counted, not collected"),
    ),
    (
        'm',
        "mbuf-size",
        true,
        Err("buffers grow and shrink by need"),
    ),
];

/// Options of nutcracker without which a service would not work, and what to do.
const NUTCRACKER_REFUSED: &[(char, &str, &str)] = &[
    (
        'd',
        "daemonize",
        "it stays in the foreground; let a service manager run it, as Type=simple",
    ),
    (
        'p',
        "pid-file",
        "no pid file is written; let a service manager run it",
    ),
    (
        'D',
        "describe-stats",
        "its counters are those of INFO and of /metrics, see docs/proxy.md",
    ),
];

/// Returns nutcracker's arguments as those of `redline proxy`.
fn of_nutcracker(args: impl Iterator<Item = OsString>) -> Result<Vec<OsString>, String> {
    let (mut out, mut args) = (Vec::new(), args);
    let mut is_named = false;
    while let Some(word) = args.next() {
        let shown = word.to_string_lossy().into_owned();
        let (name, joined) = match shown.split_once('=') {
            Some((name, value)) if name.starts_with("--") => (name, Some(value.to_owned())),
            _ => match shown.char_indices().nth(2) {
                // -cFILE
                Some((at, _)) if !shown.starts_with("--") => {
                    (&shown[..at], Some(shown[at..].to_owned()))
                }
                _ => (shown.as_str(), None),
            },
        };
        let is = |letter: char, long: &str| {
            name.strip_prefix("--") == Some(long)
                || name
                    .strip_prefix('-')
                    .is_some_and(|rest| rest.chars().eq([letter]))
        };
        if let Some((_, _, why)) = NUTCRACKER_REFUSED.iter().find(|row| is(row.0, row.1)) {
            return Err(format!("{name}: {why}"));
        }
        let Some((_, _, takes, ours)) = NUTCRACKER.iter().find(|row| is(row.0, row.1)) else {
            return Err(format!("{shown}: no such option"));
        };
        let value = match (takes, joined) {
            (true, Some(value)) => Some(OsString::from(value)),
            (true, None) => {
                let value = args.next();
                Some(value.ok_or_else(|| format!("{name}: its value is missing"))?)
            }
            (false, _) => None,
        };
        match ours {
            Ok(option) => {
                // Help and the version need no file.
                is_named |= option != &"--check";
                out.push(option.into());
                out.extend(value);
            }
            Err(why) => {
                console::line_to_stderr(&format!("nutcracker: {name} has no effect: {why}"))
            }
        }
    }
    if !is_named {
        out.extend(["--nutcracker".into(), NUTCRACKER_FILE.into()]);
    }
    Ok(out)
}

#[cfg(test)]
mod tests {
    use std::ffi::OsStr;

    use super::*;

    #[test]
    fn options_of_nutcracker_are_those_of_the_proxy() {
        let words = |line: &str| of_nutcracker(line.split_whitespace().map(OsString::from));
        for (theirs, ours) in [
            ("", "--nutcracker conf/nutcracker.yml"),
            ("-t -c n.yml", "--check --nutcracker n.yml"),
            ("-cn.yml --test-conf", "--nutcracker n.yml --check"),
            ("--conf-file=n.yml -m 512 -s3", "--nutcracker n.yml"),
            ("-V", "--version"),
        ] {
            assert_eq!(words(theirs).unwrap().join(OsStr::new(" ")), ours);
        }
        for line in ["-d", "--daemonize", "-x", "n.yml", "-c"] {
            assert!(words(line).is_err(), "{line}");
        }
    }
}
