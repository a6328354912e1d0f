//! `cargo xtask compat`: we and the real Redis, its tools and its clients, step by step. Whatever fails, fails loudly:
//! all steps run, and the end says which failed.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::Instant;

use redline_testkit::process::ServerProcess;
use redline_testkit::{access, compare, configuration, payloads, valkey};

use crate::run::{Failure, cargo, watched, workspace};
use crate::{
    client_suites, clients, clusters, command_line_tools, compared, failover, histories, install,
    jobs, many, memcached, proxy, proxy_cache, proxy_face, proxy_reads, proxy_tls, reports, suite,
    tcl, through, tls, verdicts,
};

/// Calls that the comparison sends unless told otherwise, over all worker counts.
const CALLS: usize = 60_000;
/// How many workers our server runs with in the comparison.
const WORKERS: [usize; 3] = [1, 2, 8];
/// Users that the comparison of access makes, for each number of workers.
const ACCESS_ROUNDS: usize = 400;
/// Rounds of what Valkey alone has, for each number of workers and each protocol.
const VALKEY_ROUNDS: usize = 60;
const STEPS: [(&str, Step); 28] = [
    ("spec", spec),
    ("compare", compare_replies),
    ("payloads", payloads_both_ways),
    ("access", compare_access),
    ("valkey", compare_with_valkey),
    ("config", compare_configuration),
    ("benchmark", suite::redis_benchmark_against_us),
    ("cli", command_line_tools::run),
    ("clients", clients::run),
    ("histories", histories::run),
    ("jobs", jobs::run),
    ("bench", suite::our_bench_against_redis),
    ("cluster", clusters::run),
    ("failover", failover::run),
    ("memcached", memcached::run),
    ("many", many::run),
    ("report", reports::run),
    ("proxy", proxy::run),
    ("proxy-reads", proxy_reads::run),
    ("proxy-cache", proxy_cache::run),
    ("proxy-face", proxy_face::run),
    ("proxy-tls", proxy_tls::run),
    ("through", through::run),
    ("tls", tls::run),
    ("verdicts", verdicts::run),
    ("compared", compared::run),
    ("suites", client_suites::run),
    ("tcl", tcl::run),
];
/// Steps that take too long, or want a quieter machine, than a run has that names none.
const ON_REQUEST: [&str; 6] = ["suites", "tcl", "verdicts", "compared", "many", "report"];

/// DEBUG is used to look at both servers.
pub const DEBUG: [&str; 2] = ["--enable-debug-command", "yes"];

type Step = fn(&Setting) -> Result<String, Failure>;

/// What the command line says.
#[derive(Debug)]
pub struct Options {
    calls: Option<usize>,
    seed: u64,
    only: Vec<String>,
    binary: Option<PathBuf>,
    units: Vec<String>,
}

/// What every step works with.
pub struct Setting {
    /// The product.
    pub redline: PathBuf,
    /// The real redis-server.
    pub redis: PathBuf,
    options: Options,
}

impl Options {
    /// Reads the words after `compat`.
    pub fn parse(words: &[String]) -> Result<Options, Failure> {
        let mut options = Options {
            calls: None,
            seed: 1,
            only: Vec::new(),
            binary: None,
            units: Vec::new(),
        };
        let names = words.iter().take_while(|word| !word.starts_with("--"));
        options.only.extend(names.cloned());
        let listed = |value: &str| value.split(',').map(str::to_owned).collect::<Vec<_>>();
        for pair in words[options.only.len()..].chunks(2) {
            let [name, value] = pair else {
                return Err(format!("{} needs a value", pair[0]));
            };
            let number = || {
                value
                    .parse::<u64>()
                    .map_err(|_| format!("{name}: {value} is no number"))
            };
            match name.as_str() {
                "--calls" => options.calls = usize::try_from(number()?).ok(),
                "--seed" => options.seed = number()?,
                "--only" => options.only.extend(listed(value)),
                "--units" => options.units = listed(value),
                "--binary" => options.binary = Some(PathBuf::from(value)),
                _ => return Err(format!("unknown option {name}\n{}", crate::USAGE)),
            }
        }
        let unknown = options
            .only
            .iter()
            .find(|only| STEPS.iter().all(|(step, _)| step != only));
        match unknown {
            Some(step) => Err(format!("no step is called {step}\n{}", crate::USAGE)),
            None => Ok(options),
        }
    }

    fn wants(&self, step: &str) -> bool {
        if self.only.is_empty() {
            return !ON_REQUEST.contains(&step);
        }
        self.only.iter().any(|only| only == step)
    }
}

/// Runs the steps.
pub fn run(options: &Options) -> Result<(), Failure> {
    install::redis_tools()?;
    let setting = Setting {
        redis: install::redis_server()?,
        redline: match &options.binary {
            Some(binary) => binary
                .canonicalize()
                .map_err(|error| format!("{}: {error}", binary.display()))?,
            None => release_binary()?,
        },
        options: Options {
            only: options.only.clone(),
            binary: None,
            units: options.units.clone(),
            ..*options
        },
    };
    let mut failed = Vec::new();
    for (name, step) in STEPS {
        if !options.wants(name) {
            continue;
        }
        let start = Instant::now();
        println!("compat: {name} ...");
        match step(&setting) {
            Ok(summary) => println!(
                "compat: {name} ok, {:.1} s: {summary}",
                start.elapsed().as_secs_f64()
            ),
            Err(failure) => {
                println!(
                    "{failure}\ncompat: {name} FAILED, {:.1} s",
                    start.elapsed().as_secs_f64()
                );
                failed.push(name);
            }
        }
    }
    if failed.is_empty() {
        println!("compat: all steps passed");
        return Ok(());
    }
    Err(format!("compat: failed: {}", failed.join(", ")))
}

fn release_binary() -> Result<PathBuf, Failure> {
    watched(cargo(&[
        "build",
        "--release",
        "--quiet",
        "--package",
        "redline-cli",
    ]))?;
    let target = std::env::var_os("CARGO_TARGET_DIR")
        .map_or_else(|| workspace().join("target"), PathBuf::from);
    Ok(target.join("release").join("redline"))
}

impl Setting {
    /// What random choices follow from.
    pub fn seed(&self) -> u64 {
        self.options.seed
    }

    /// How many calls a comparison makes: so many unless told otherwise.
    pub fn calls_or(&self, usual: usize) -> usize {
        self.options.calls.unwrap_or(usual)
    }

    /// Is this unit of the Tcl suite to be run?
    pub fn wants_unit(&self, unit: &str) -> bool {
        let units = &self.options.units;
        units.is_empty() || units.iter().any(|wanted| wanted == unit)
    }

    /// A real Redis, started.
    pub fn start_redis(&self, words: &[&str]) -> Result<ServerProcess, Failure> {
        ServerProcess::redis(&self.redis, &owned(words))
            .map_err(|error| failure(&self.redis, &error))
    }

    /// Our server, started.
    pub fn start_redline(&self, workers: usize, words: &[&str]) -> Result<ServerProcess, Failure> {
        ServerProcess::redline(&self.redline, workers, &owned(words))
            .map_err(|error| failure(&self.redline, &error))
    }

    /// The proxy, started before these servers.
    pub fn start_proxy(
        &self,
        servers: &[SocketAddr],
        words: &[&str],
    ) -> Result<ServerProcess, Failure> {
        ServerProcess::proxy(&self.redline, servers, &owned(words))
            .map_err(|error| failure(&self.redline, &error))
    }
}

fn owned(words: &[&str]) -> Vec<String> {
    words.iter().map(|&word| word.to_owned()).collect()
}

fn failure(program: &Path, error: &std::io::Error) -> Failure {
    format!("{}: {error}", program.display())
}

/// Ends a server of ours in good order; a crash in between shows here at the latest.
pub fn stop(mut server: ServerProcess) -> Result<(), Failure> {
    let log = server.log();
    if !server.is_running() {
        return Err(format!("the server had ended:\n{log}"));
    }
    match server.stop() {
        Ok(true) => Ok(()),
        Ok(false) => Err(format!("the server did not stop in good order:\n{log}")),
        Err(error) => Err(error.to_string()),
    }
}

/// The command table against what the real server says of its commands.
fn spec(setting: &Setting) -> Result<String, Failure> {
    let redis = setting.start_redis(&[])?;
    // The tests of these rooms that need a real server, and are ignored without one.
    for room in ["redline-spec", "redline-resp"] {
        let mut test = cargo(&[
            "test",
            "--quiet",
            "--package",
            room,
            "--test",
            "redis",
            "--",
            "--ignored",
        ]);
        test.env("REDLINE_REDIS", redis.address().to_string());
        watched(test)?;
    }
    Ok(
        "rows, grammar, key positions, inline words and doubles as the real server has them"
            .to_owned(),
    )
}

/// The same users, rules and calls under these rules to both, reply by reply.
fn compare_access(setting: &Setting) -> Result<String, Failure> {
    let mut calls = 0;
    for workers in WORKERS {
        let redis = setting.start_redis(&[])?;
        let redline = setting.start_redline(workers, &[])?;
        let seed = setting.options.seed + workers as u64;
        calls += access::run(redline.address(), redis.address(), seed, ACCESS_ROUNDS)?;
        stop(redline)?;
    }
    Ok(format!("{calls} calls about users and as users"))
}

/// What Valkey has and Redis has not.
fn compare_with_valkey(setting: &Setting) -> Result<String, Failure> {
    let program = install::valkey_server()?;
    let mut calls = 0;
    for workers in WORKERS {
        let valkey = ServerProcess::redis(&program, &[]).map_err(|e| failure(&program, &e))?;
        let redline = setting.start_redline(workers, &[])?;
        let seed = setting.options.seed + workers as u64;
        calls += valkey::run(redline.address(), valkey.address(), seed, VALKEY_ROUNDS)?;
        stop(redline)?;
    }
    Ok(format!("{calls} calls of what Valkey alone has"))
}

/// Every parameter on both, files that both write, and the file that the distribution starts its redis-server with.
fn compare_configuration(setting: &Setting) -> Result<String, Failure> {
    let redis = setting.start_redis(&[])?;
    let redline = setting.start_redline(2, &[])?;
    let calls = configuration::run(&redline, &redis)?;
    stop(redline)?;
    let files = configuration::rewrite(&setting.redline, &setting.redis)?;
    install::older_redis_server()?;
    let path = "/etc/redis/redis.conf";
    let text = std::fs::read_to_string(path).map_err(|error| format!("{path}: {error}"))?;
    // Its folders belong to the package.
    let own = "--daemonize no --dir . --logfile \"\" --pidfile pid";
    let words: Vec<String> = own.split(' ').map(|word| word.replace('"', "")).collect();
    let redline = ServerProcess::redline_of_file(&setting.redline, &text, &words)
        .map_err(|error| failure(&setting.redline, &error))?;
    stop(redline)?;
    Ok(format!(
        "{calls} calls, {files} files written, {path} starts it"
    ))
}

/// Values by DUMP and RESTORE, to and from the real server, and from the one that the distribution has (7.0).
fn payloads_both_ways(setting: &Setting) -> Result<String, Failure> {
    const VALUES: usize = 400;
    let redline = setting.start_redline(2, &DEBUG)?;
    let redis = setting.start_redis(&DEBUG)?;
    let older = install::older_redis_server()?;
    let older = ServerProcess::redis(&older, &owned(&DEBUG)).map_err(|e| failure(&older, &e))?;
    let mut arrived = 0;
    for (theirs, same_version) in [(&redis, true), (&older, false)] {
        let options = payloads::Options {
            values: VALUES,
            seed: setting.options.seed,
            same_version,
        };
        arrived += payloads::run(redline.address(), theirs.address(), options)
            .map_err(|error| error.to_string())??;
    }
    stop(redline)?;
    Ok(format!("{arrived} values arrived"))
}

/// The same calls to both, reply by reply.
fn compare_replies(setting: &Setting) -> Result<String, Failure> {
    let mut calls = 0;
    let mut commands = std::collections::BTreeSet::new();
    let mut explained = std::collections::BTreeMap::new();
    let mut disagreements = Vec::new();
    for (at, workers) in WORKERS.into_iter().enumerate() {
        let redis = setting.start_redis(&DEBUG)?;
        let mut redline = setting.start_redline(workers, &DEBUG)?;
        let options = compare::Options {
            calls: setting.calls_or(CALLS) / WORKERS.len(),
            seed: setting.options.seed + 1_000_000 * at as u64,
            behind: Vec::new(),
            is_cluster: false,
        };
        let report = compare::run(redline.address(), redis.address(), options);
        if let Some(broken) = &report.broken {
            let state = if redline.is_running() {
                "runs"
            } else {
                "has ended"
            };
            return Err(format!(
                "{}\n{broken}\nour server {state}; its log:\n{}",
                listed(&report.disagreements),
                redline.log()
            ));
        }
        println!(
            "  {workers} workers: {} calls in {} rounds, {} disagreements",
            report.calls,
            report.rounds,
            report.disagreements.len()
        );
        calls += report.calls;
        commands.extend(report.by_command.into_keys());
        for (name, times) in report.explained {
            *explained.entry(name).or_insert(0) += times;
        }
        disagreements.extend(report.disagreements);
        stop(redline)?;
    }
    for (name, times) in &explained {
        println!("  accepted {times} times: {name}");
    }
    if disagreements.is_empty() {
        return Ok(format!("{calls} calls of {} commands", commands.len()));
    }
    Err(format!(
        "{}\n{} disagreements in {calls} calls",
        listed(&disagreements),
        disagreements.len()
    ))
}

/// One to a line.
pub fn listed(disagreements: &[compare::Disagreement]) -> String {
    let listed: Vec<String> = disagreements
        .iter()
        .map(|found| format!("  {found}"))
        .collect();
    listed.join("\n")
}
