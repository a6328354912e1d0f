//! Replies of a Redis through `redline proxy`, beside its direct replies: call by call, in front of one server, three,
//! and a cluster.

use std::net::SocketAddr;

use redline_testkit::compare;
use redline_testkit::process::ServerProcess;

use crate::clients;
use crate::clusters::Cluster;
use crate::compat::{DEBUG, Setting, listed, stop};
use crate::run::Failure;

/// Default number of calls of each way, and of the one in front of a cluster.
const CALLS: usize = 12_000;
const CALLS_OF_A_CLUSTER: usize = 6_000;
/// Workers of the proxy, and the servers behind it.
const WAYS: [(usize, Behind); 4] = [
    (1, Behind::Servers(1)),
    (2, Behind::Servers(1)),
    (2, Behind::Servers(3)),
    (2, Behind::Cluster),
];

/// The servers behind the proxy.
#[derive(Clone, Copy)]
enum Behind {
    /// This many servers.
    Servers(usize),
    /// A Redis Cluster of three primaries.
    Cluster,
}

/// Runs all of it.
pub fn run(setting: &Setting) -> Result<String, Failure> {
    let mut calls = 0;
    let mut failures = Vec::new();
    for (at, (workers, behind)) in WAYS.into_iter().enumerate() {
        let (done, failed) = compare(setting, workers, behind, at as u64)?;
        calls += done;
        failures.extend(failed);
    }
    let lines = clients::through(setting);
    failures.extend(lines.as_ref().err().cloned());
    match failures.is_empty() {
        true => Ok(format!(
            "{calls} calls, {} lines of clients in four languages",
            lines.unwrap_or_default()
        )),
        false => Err(failures.join("\n")),
    }
}

/// Sends the comparison's calls to a Redis, and through the proxy to others.
fn compare(
    setting: &Setting,
    workers: usize,
    behind: Behind,
    at: u64,
) -> Result<(usize, Option<Failure>), Failure> {
    let redis = setting.start_redis(&DEBUG)?;
    let threads = workers.to_string();
    let (servers, name, words) = match behind {
        Behind::Servers(count) => {
            let servers = (0..count).map(|_| setting.start_redis(&DEBUG));
            let servers = servers.collect::<Result<Vec<ServerProcess>, Failure>>()?;
            (servers, format!("{count} servers"), &[][..])
        }
        Behind::Cluster => {
            let cluster = Cluster::of(&setting.redis, &DEBUG, 0)?;
            (cluster.nodes, "a cluster".to_owned(), &["--cluster"][..])
        }
    };
    let places: Vec<SocketAddr> = servers.iter().map(ServerProcess::address).collect();
    let words = [&["--threads", &threads], words].concat();
    let mut proxy = setting.start_proxy(&places, &words)?;
    let options = compare::Options {
        calls: setting.calls_or(match behind {
            Behind::Servers(_) => CALLS,
            Behind::Cluster => CALLS_OF_A_CLUSTER,
        }),
        seed: setting.seed() + 1_000_000 * at,
        behind: places,
        is_cluster: matches!(behind, Behind::Cluster),
    };
    let report = compare::run(proxy.address(), redis.address(), options);
    let way = format!("{workers} workers before {name}");
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
