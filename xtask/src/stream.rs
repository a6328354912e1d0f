//! The stream of effects, ours beside a real Redis's, and replayed: `cargo xtask compat stream`. What is compared, and which
//! differences are deliberate, is in `redline_testkit::stream`; here servers are started, and the result is told.

use std::fs;

use redline_testkit::client::Client;
use redline_testkit::process::ServerProcess;
use redline_testkit::stream::{self, Options, ReplayServers, Report, Servers, Source};

use crate::compat::{DEBUG, Setting, stop};
use crate::files::Folder;
use crate::install;
use crate::run::Failure;

/// Default number of calls of the comparison.
const CALLS: usize = 20_000;
/// Default number of calls whose effects an older Redis is sent.
const CALLS_OF_THE_OLDER: usize = 8_000;
/// The version of the older Redis.
const OLDER: &str = "7.0.15";
/// The folder of the append-only file.
const FOLDER: &str = "appendonlydir";
/// Workers of our server.
const WORKERS: usize = 2;
/// Arguments by which our server writes its stream into a file.
const APPENDS: [&str; 6] = [
    "--appendonly",
    "yes",
    "--appendfsync",
    "no",
    "--auto-aof-rewrite-percentage",
    "0",
];

/// Compares the streams, and replays ours.
pub fn run(setting: &Setting) -> Result<String, Failure> {
    let (compared, replayed) = match (compare(setting), replay_to_the_older(setting)) {
        (Ok(compared), Ok(replayed)) => (compared, replayed),
        (compared, replayed) => {
            let failures = [compared.err(), replayed.err()].into_iter().flatten();
            return Err(failures.collect::<Vec<_>>().join("\n"));
        }
    };
    Ok(format!(
        "{} calls, {} commands in our stream, {} deliberate differences; {} commands replayed in Redis {OLDER}",
        compared.calls,
        compared.told,
        compared.explained.values().sum::<usize>(),
        replayed.told,
    ))
}

/// Starts our server, and opens its stream.
fn ours(setting: &Setting) -> Result<(ServerProcess, Source), Failure> {
    let server = setting.start_redline(WORKERS, &[&APPENDS[..], &DEBUG].concat())?;
    let source = broken(Source::append_only_file(server.directory()))?;
    Ok((server, source))
}

fn compare(setting: &Setting) -> Result<Report, Failure> {
    let (redline, source) = ours(setting)?;
    let redis = setting.start_redis(&DEBUG)?;
    let mirror = setting.start_redis(&DEBUG)?;
    let servers = Servers {
        ours: (redline.address(), source),
        theirs: (redis.address(), broken(Source::replica(redis.address()))?),
        mirror: mirror.address(),
    };
    let options = Options {
        calls: setting.calls_or(CALLS),
        seed: setting.seed(),
    };
    let mut report = broken(stream::run(servers, &options))?;
    report.faults.extend(load_as_a_file(setting, &redline)?);
    stop(redline)?;
    verdict(report)
}

/// Starts a Redis with a copy of our files. Returns the fault, if it does not hold the same data.
fn load_as_a_file(setting: &Setting, redline: &ServerProcess) -> Result<Option<Failure>, Failure> {
    let (from, to) = (redline.directory().join(FOLDER), Folder::new("stream")?);
    broken(fs::create_dir(to.path().join(FOLDER)))?;
    for file in broken(fs::read_dir(&from))? {
        let file = broken(file)?;
        let copy = to.path().join(FOLDER).join(file.file_name());
        broken(fs::copy(file.path(), copy))?;
    }
    let folder = to.path().display().to_string();
    let words = ["--dir", &folder, "--appendonly", "yes"];
    let redis = match setting.start_redis(&[&words[..], &DEBUG].concat()) {
        Ok(redis) => redis,
        Err(failure) => return Ok(Some(format!("Redis does not load our files: {failure}"))),
    };
    let digest = |server: &ServerProcess| {
        let mut client = broken(Client::connect(server.address()))?;
        broken(client.call(&["DEBUG", "DIGEST"]))
    };
    let (held, wanted) = (digest(&redis)?, digest(redline)?);
    let differ = format!("Redis loads our files as {held:?}, not as {wanted:?}");
    Ok((held != wanted).then_some(differ))
}

/// Sends the effects of calls that Redis 7.0 has to one.
fn replay_to_the_older(setting: &Setting) -> Result<Report, Failure> {
    let (redline, source) = ours(setting)?;
    let program = install::older_redis_server()?;
    let words = DEBUG.map(str::to_owned);
    let mirror = broken(ServerProcess::redis(&program, &words))?;
    let newer = setting.start_redis(&DEBUG)?;
    let servers = ReplayServers {
        ours: (redline.address(), source),
        mirror: mirror.address(),
        newer: newer.address(),
    };
    let options = Options {
        calls: setting.calls_or(CALLS_OF_THE_OLDER),
        seed: setting.seed(),
    };
    let report = broken(stream::replay(servers, OLDER, &options))?;
    stop(redline)?;
    verdict(report).map_err(|failure| format!("replayed in Redis {OLDER}: {failure}"))
}

/// Tells what differs; returns the report if all of that is on the list.
fn verdict(report: Report) -> Result<Report, Failure> {
    for (name, times) in &report.explained {
        println!("  accepted {times} times: {name}");
    }
    let mut wrong: Vec<String> = report
        .kinds
        .iter()
        .map(|(kind, found)| format!("  {} times {kind}\n    {}", found.count, found.example))
        .collect();
    wrong.extend(report.faults.iter().map(|fault| format!("  {fault}")));
    match wrong.is_empty() {
        true => Ok(report),
        false => Err(format!(
            "{}\n{} kinds of differences that are on no list, {} faults in a replay, in {} calls",
            wrong.join("\n"),
            report.kinds.len(),
            report.faults.len(),
            report.calls
        )),
    }
}

fn broken<T>(result: std::io::Result<T>) -> Result<T, Failure> {
    result.map_err(|error| error.to_string())
}

#[cfg(test)]
mod tests {
    use redline_testkit::stream::DELIBERATE;

    use crate::run::workspace;

    #[test]
    fn every_deliberate_difference_is_a_row_of_the_document_and_every_row_is_one() {
        let document = workspace().join("docs").join("differences.md");
        let text = std::fs::read_to_string(&document).unwrap();
        let (_, section) = text.split_once("\n## What is told\n").unwrap();
        let (section, _) = section.split_once("\n## ").unwrap();
        let mut rows: Vec<&str> = section
            .lines()
            .filter_map(|line| line.strip_prefix("| ")?.split(" | ").next())
            .collect();
        assert_eq!(rows.remove(0), "difference");
        let mut names: Vec<&str> = DELIBERATE.iter().map(|entry| entry.name).collect();
        rows.sort_unstable();
        names.sort_unstable();
        assert_eq!(rows, names);
    }
}
