//! The real redis-cli against our server: interactive, and in its modes.

use std::process::Command;
use std::time::Duration;

use redline_testkit::client::encode;
use redline_testkit::process::ServerProcess;

use crate::compat::{Setting, stop};
use crate::run::{Failure, Folder, captured, ended, line};

const TIMEOUT: Duration = Duration::from_secs(60);
const KEYS: usize = 2000;

/// Runs every mode.
pub fn run(setting: &Setting) -> Result<String, Failure> {
    let redline = setting.start_redline(2, &[])?;
    let redis = setting.start_redis(&[])?;
    typed(&redline, &redis)?;
    one_shot(&redline, &redis)?;
    pipe(&redline)?;
    scan(&redline)?;
    big_keys(&redline, &redis)?;
    latency(&redline)?;
    stat(&redline)?;
    snapshots(&redline, &redis)?;
    stop(redline)?;
    Ok("typed commands, --csv, --pipe, --scan, --bigkeys, --latency, --stat, --rdb, --functions-rdb".to_owned())
}

fn cli(server: &ServerProcess, words: &[&str]) -> Command {
    let mut command = Command::new("redis-cli");
    command
        .args([
            "-h",
            "127.0.0.1",
            "-p",
            &server.address().port().to_string(),
        ])
        .args(words);
    command
}

/// Runs an interactive session: its output must equal that with a real Redis.
fn typed(redline: &ServerProcess, redis: &ServerProcess) -> Result<(), Failure> {
    const SESSION: &str = "\
ping
set greeting \"hello world\"
get greeting
incr greeting
lpush list a b c
lrange list 0 -1
hset hash f v g w
hgetall hash
zadd z 1.5 m 2 n
zrange z 0 -1 withscores
type z
object encoding z
ttl greeting
nonesuch x
multi
incr counter
get greeting
exec
multi
nonesuch
exec
select 3
set there 1
dbsize
select 0
eval \"return {1,2,{3,'x'}}\" 0
hgetall hash
zscore z m
smembers none
config get maxmemory-policy
script load \"return 1\"
publish c m
del list z
";
    let mut said = Vec::new();
    for server in [redline, redis] {
        let text = captured(cli(server, &[]), SESSION.as_bytes(), TIMEOUT)?;
        said.push(text);
    }
    same(
        "redis-cli with commands on its standard input",
        &said[0],
        &said[1],
    )
}

fn one_shot(redline: &ServerProcess, redis: &ServerProcess) -> Result<(), Failure> {
    let calls: [&[&str]; 6] = [
        &["--csv", "lrange", "none", "0", "-1"],
        &["--raw", "echo", "a b"],
        &["-3", "--no-raw", "hgetall", "hash"],
        &["-3", "--no-raw", "config", "get", "databases"],
        &["-n", "2", "set", "k", "v"],
        &["--no-raw", "command", "getkeys", "mset", "a", "1", "b", "2"],
    ];
    for call in calls {
        let ours = captured(cli(redline, call), b"", TIMEOUT)?;
        let theirs = captured(cli(redis, call), b"", TIMEOUT)?;
        same(&format!("redis-cli {}", call.join(" ")), &ours, &theirs)?;
    }
    Ok(())
}

fn pipe(redline: &ServerProcess) -> Result<(), Failure> {
    let mut input = Vec::new();
    for i in 0..KEYS {
        encode(&["SET", &format!("pipe:{i}"), &i.to_string()], &mut input);
    }
    encode(&["LPUSH", "pipe:0", "x"], &mut input);
    let output = ended(cli(redline, &["--pipe"]), &input, TIMEOUT)?;
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    let expected = format!("errors: 1, replies: {}", KEYS + 1);
    contains("redis-cli --pipe", &said, &[&expected])
}

fn scan(redline: &ServerProcess) -> Result<(), Failure> {
    let said = captured(
        cli(redline, &["--scan", "--pattern", "pipe:*"]),
        b"",
        TIMEOUT,
    )?;
    let keys: std::collections::BTreeSet<&str> = said.lines().collect();
    if keys.len() == KEYS {
        return Ok(());
    }
    Err(format!(
        "redis-cli --scan found {} of {KEYS} keys",
        keys.len()
    ))
}

fn big_keys(redline: &ServerProcess, redis: &ServerProcess) -> Result<(), Failure> {
    const SESSION: &str = "flushall\nset big 0123456789\nset small 0\nrpush list 1 2 3\nsadd set a\nhset hash f v g w\nzadd z 1 a\nxadd x 1-1 f v\n";
    let mut said = Vec::new();
    for server in [redline, redis] {
        captured(cli(server, &[]), SESSION.as_bytes(), TIMEOUT)?;
        let text = captured(cli(server, &["--bigkeys", "-i", "0.01"]), b"", TIMEOUT)?;
        let summary = text
            .split("-------- summary -------")
            .nth(1)
            .unwrap_or_default()
            .to_owned();
        said.push(summary);
    }
    contains(
        "redis-cli --bigkeys",
        &said[0],
        &[
            "Sampled 7 keys",
            "Biggest string found '\"big\"' has 10 bytes",
        ],
    )?;
    let sorted = |text: &str| {
        let mut lines: Vec<&str> = text.lines().collect();
        lines.sort_unstable();
        lines.join("\n")
    };
    same("redis-cli --bigkeys", &sorted(&said[0]), &sorted(&said[1]))
}

/// Runs `--latency`, which measures until it is stopped; without a terminal it stops after a second and prints one line.
fn latency(redline: &ServerProcess) -> Result<(), Failure> {
    let command = cli(redline, &["--latency", "-i", "1"]);
    let text = line(&command);
    let said = captured(command, b"", TIMEOUT)?;
    let numbers: Vec<f64> = said
        .split_whitespace()
        .filter_map(|word| word.parse().ok())
        .collect();
    match numbers[..] {
        [min, max, average, samples] if min <= average && average <= max && samples > 10.0 => {
            Ok(())
        }
        _ => Err(format!("{text} printed {said}")),
    }
}

/// Runs `--stat`, which prints a line per period, for ever: a few are read.
fn stat(redline: &ServerProcess) -> Result<(), Failure> {
    let mut command = Command::new("timeout");
    command.args([
        "--preserve-status",
        "--signal=INT",
        "2",
        "stdbuf",
        "-oL",
        "redis-cli",
        "-p",
        &redline.address().port().to_string(),
    ]);
    command.args(["--stat", "-i", "0.2"]);
    let output = ended(command, b"", TIMEOUT)?;
    let said = String::from_utf8_lossy(&output.stdout);
    let rows = said
        .lines()
        .filter(|line| {
            line.split_whitespace()
                .next()
                .is_some_and(|word| word == "7")
        })
        .count();
    if rows >= 3 {
        return Ok(());
    }
    Err(format!(
        "redis-cli --stat printed\n{said}{}",
        String::from_utf8_lossy(&output.stderr)
    ))
}

/// Fetches a snapshot of all, and one of the functions alone, as it does from a real Redis.
fn snapshots(redline: &ServerProcess, redis: &ServerProcess) -> Result<(), Failure> {
    const LIBRARY: &str = "#!lua name=lib\nredis.register_function('f', function() return 1 end)";
    const KEY: &str = "a-key-of-its-own";
    let folder = Folder::new("redis-cli")?;
    for server in [redline, redis] {
        for words in [
            &["function", "load", LIBRARY][..],
            &["set", KEY, "value"],
            &["config", "set", "repl-diskless-sync-delay", "0"],
        ] {
            captured(cli(server, words), b"", TIMEOUT)?;
        }
        for (option, has_key) in [("--rdb", true), ("--functions-rdb", false)] {
            let path = folder.path().join("fetched.rdb");
            let place = path.display().to_string();
            let said = captured(cli(server, &[option, &place]), b"", TIMEOUT)?;
            let bytes =
                std::fs::read(&path).map_err(|error| format!("{option}: {error}: {said}"))?;
            let has = |text: &str| {
                bytes
                    .windows(text.len())
                    .any(|part| part == text.as_bytes())
            };
            let found = [bytes.starts_with(b"REDIS00"), has("name=lib"), has(KEY)];
            if found != [true, true, has_key] {
                return Err(format!(
                    "{option}: {found:?} of a head, a library and a key: {said}"
                ));
            }
        }
    }
    Ok(())
}

fn same(what: &str, ours: &str, theirs: &str) -> Result<(), Failure> {
    if ours == theirs {
        return Ok(());
    }
    let pairs = ours.lines().zip(theirs.lines());
    let first = pairs.enumerate().find(|(_, (our, their))| our != their);
    Err(match first {
        Some((at, (our, their))) => {
            format!("{what}: line {}:\n  ours   {our}\n  theirs {their}", at + 1)
        }
        None => format!("{what}: one says more\n--- ours\n{ours}\n--- theirs\n{theirs}"),
    })
}

fn contains(what: &str, said: &str, parts: &[&str]) -> Result<(), Failure> {
    match parts.iter().find(|part| !said.contains(*part)) {
        Some(part) => Err(format!("{what} did not print {part:?} but\n{said}")),
        None => Ok(()),
    }
}
