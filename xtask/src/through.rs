//! What a Redis answers through `redline proxy`, beside what it answers directly: call by call.

use std::net::SocketAddr;

use redline_testkit::compare;
use redline_testkit::process::ServerProcess;

use crate::clients;
use crate::compat::{DEBUG, Setting, listed, stop};
use crate::run::Failure;

/// Calls, unless told otherwise, of each of the ways.
const CALLS: usize = 12_000;
/// Workers of the proxy, and servers behind it.
const WAYS: [(usize, usize); 3] = [(1, 1), (2, 1), (2, 3)];

/// All of it.
pub fn run(setting: &Setting) -> Result<String, Failure> {
    let mut calls = 0;
    let mut failures = Vec::new();
    for (at, (workers, servers)) in WAYS.into_iter().enumerate() {
        let (done, failed) = compare(setting, workers, servers, at as u64)?;
        calls += done;
        failures.extend(failed);
    }
    let lines = clients::through(setting);
    failures.extend(lines.as_ref().err().cloned());
    match failures.is_empty() {
        true => Ok(format!(
            "{calls} calls, {} lines of clients in three languages",
            lines.unwrap_or_default()
        )),
        false => Err(failures.join("\n")),
    }
}

/// The comparison's calls to a Redis, and through the proxy to others.
fn compare(
    setting: &Setting,
    workers: usize,
    servers: usize,
    at: u64,
) -> Result<(usize, Option<Failure>), Failure> {
    let redis = setting.start_redis(&DEBUG)?;
    let behind = (0..servers)
        .map(|_| setting.start_redis(&DEBUG))
        .collect::<Result<Vec<ServerProcess>, Failure>>()?;
    let places: Vec<SocketAddr> = behind.iter().map(ServerProcess::address).collect();
    let mut proxy = setting.start_proxy(&places, &["--threads", &workers.to_string()])?;
    let options = compare::Options {
        calls: setting.calls_or(CALLS),
        seed: setting.seed() + 1_000_000 * at,
        behind: places,
    };
    let report = compare::run(proxy.address(), redis.address(), options);
    let way = format!("{workers} workers before {servers} servers");
    println!(
        "  {way}: {} calls of {} commands in {} rounds, {} disagreements",
        report.calls,
        report.by_command.len(),
        report.rounds,
        report.disagreements.len()
    );
    for (name, times) in &report.explained {
        println!("  accepted {times} times: {name}");
    }
    if let Some(broken) = &report.broken {
        let state = if proxy.is_running() {
            "runs"
        } else {
            "has ended"
        };
        return Err(format!(
            "{}\n{way}: {broken}\nthe proxy {state}; its log:\n{}",
            listed(&report.disagreements),
            proxy.log()
        ));
    }
    stop(proxy)?;
    let failed = (!report.disagreements.is_empty())
        .then(|| format!("{way}:\n{}", listed(&report.disagreements)));
    Ok((report.calls, failed))
}
