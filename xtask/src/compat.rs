//! `cargo xtask compat`: our server and the real Redis, its tools and its clients, step by step. All steps run, and the
//! end lists those that failed.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::Instant;

use redline_testkit::process::ServerProcess;
use redline_testkit::{access, compare, configuration, payloads, valkey};

use crate::run::{Failure, cargo, watched, workspace};
use crate::{
    client_suites, clients, cluster_etcd, cluster_moves, cluster_node, clusters,
    command_line_tools, compared, failover, files, histories, install, jobs, many, memcached,
    migration, monitoring, proxy, proxy_cache, proxy_face, proxy_reads, proxy_tls, replication,
    reports, sentinel, status_pages, stream, suite, tcl, through, tls, verdicts,
};

/// Number of calls of the comparison by default, over all worker counts.
const CALLS: usize = 60_000;
/// Numbers of our server's workers in the comparison.
const WORKERS: [usize; 3] = [1, 2, 8];
/// Number of users in the comparison of access, for each number of workers.
const ACCESS_ROUNDS: usize = 400;
/// Number of rounds of Valkey's own features, for each number of workers and each protocol.
const VALKEY_ROUNDS: usize = 60;
/// The steps, in the order in which they run.
const STEPS: &[Step] = &[
    always("spec", spec),
    always("compare", compare_replies),
    always("payloads", payloads_both_ways),
    always("files", files::run),
    always("stream", stream::run),
    always("replication", replication::run),
    always("migrate", migration::run),
    always("access", compare_access),
    always("valkey", compare_with_valkey),
    always("config", compare_configuration),
    always("stock", start_with_stock_files),
    always("benchmark", suite::redis_benchmark_against_us),
    always("cli", command_line_tools::run),
    always("clients", clients::run),
    always("histories", histories::run),
    always("jobs", jobs::run),
    always("bench", suite::our_bench_against_redis),
    always("cluster", clusters::run),
    always("cluster-node", cluster_node::run),
    always("cluster-etcd", cluster_etcd::run),
    always("cluster-moves", cluster_moves::run),
    always("failover", failover::run),
    on_request(
        "sentinel",
        sentinel::run,
        "Sentinels with ours and redis-server; two minutes, on a quiet machine",
    ),
    always("memcached", memcached::run),
    on_request("many", many::run, "10,000 connections"),
    on_request(
        "report",
        reports::run,
        "the bench's pages in a browser; as root",
    ),
    on_request(
        "monitoring",
        monitoring::run,
        "metrics beside redis_exporter's, dashboards and alerts in a Prometheus",
    ),
    on_request(
        "page",
        status_pages::run,
        "the status pages in a browser; a minute",
    ),
    always("proxy", proxy::run),
    always("proxy-reads", proxy_reads::run),
    always("proxy-cache", proxy_cache::run),
    always("proxy-face", proxy_face::run),
    always("proxy-tls", proxy_tls::run),
    always("through", through::run),
    always("tls", tls::run),
    on_request(
        "verdicts",
        verdicts::run,
        "bottlenecks built for real, and what the bench says of them; a minute, as root, on a quiet machine",
    ),
    on_request(
        "compared",
        compared::run,
        "servers that the bench has to tell apart or not; two minutes, on a quiet machine",
    ),
    on_request(
        "suites",
        client_suites::run,
        "test suites of client libraries; half an hour, --units runs a part",
    ),
    on_request(
        "tcl",
        tcl::run,
        "the test suite of Redis 7.0; an hour, --units runs a part",
    ),
];

/// A part of the comparison. Returns a summary, or the fault.
struct Step {
    name: &'static str,
    run: fn(&Setting) -> Result<String, Failure>,
    /// Description of the step, if it runs only when it is named: it takes too long, or wants a quieter machine.
    on_request: Option<&'static str>,
}

const fn always(name: &'static str, run: fn(&Setting) -> Result<String, Failure>) -> Step {
    Step {
        name,
        run,
        on_request: None,
    }
}

const fn on_request(
    name: &'static str,
    run: fn(&Setting) -> Result<String, Failure>,
    what: &'static str,
) -> Step {
    Step {
        name,
        run,
        on_request: Some(what),
    }
}

/// Returns the text of `--help` about the steps.
pub fn usage_of_steps() -> String {
    const COLUMNS: usize = 100;
    let mut text = String::from("    Steps:");
    let mut column = text.len();
    for step in STEPS.iter().filter(|step| step.on_request.is_none()) {
        if column + 1 + step.name.len() > COLUMNS {
            text.push_str("\n   ");
            column = 3;
        }
        text.push(' ');
        text.push_str(step.name);
        column += 1 + step.name.len();
    }
    text.push_str(".\n    Only when named:");
    for step in STEPS {
        if let Some(what) = step.on_request {
            text.push_str(&format!("\n      {:11}{what}", step.name));
        }
    }
    text
}

/// DEBUG is used to inspect both servers.
pub const DEBUG: [&str; 2] = ["--enable-debug-command", "yes"];

/// Options of the command line.
#[derive(Debug)]
pub struct Options {
    calls: Option<usize>,
    seed: u64,
    only: Vec<String>,
    binary: Option<PathBuf>,
    units: Vec<String>,
    seconds: Option<u64>,
    rounds: Option<u64>,
}

/// Programs and options that every step works with.
pub struct Setting {
    /// The product.
    pub redline: PathBuf,
    /// The real redis-server.
    pub redis: PathBuf,
    options: Options,
}

impl Options {
    /// Parses the arguments after `compat`.
    pub fn parse(words: &[String]) -> Result<Options, Failure> {
        let mut options = Options {
            calls: None,
            seed: 1,
            only: Vec::new(),
            binary: None,
            units: Vec::new(),
            seconds: None,
            rounds: None,
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
                "--seconds" => options.seconds = Some(number()?),
                "--rounds" => options.rounds = Some(number()?),
                "--seed" => options.seed = number()?,
                "--only" => options.only.extend(listed(value)),
                "--units" => options.units = listed(value),
                "--binary" => options.binary = Some(PathBuf::from(value)),
                _ => return Err(format!("unknown option {name}\n{}", crate::usage())),
            }
        }
        let unknown = options
            .only
            .iter()
            .find(|only| STEPS.iter().all(|step| step.name != **only));
        match unknown {
            Some(step) => Err(format!("no step is called {step}\n{}", crate::usage())),
            None => Ok(options),
        }
    }

    fn wants(&self, step: &Step) -> bool {
        if self.only.is_empty() {
            return step.on_request.is_none();
        }
        self.only.iter().any(|only| only == step.name)
    }
}

/// Runs the steps.
pub fn run(options: &Options) -> Result<(), Failure> {
    install::redis_tools()?;
    let setting = Setting::installed(options)?;
    let mut failed = Vec::new();
    for step in STEPS.iter().filter(|step| options.wants(step)) {
        let name = step.name;
        let start = Instant::now();
        println!("compat: {name} ...");
        match (step.run)(&setting) {
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

/// Builds the program as it is released, and returns its place.
pub fn release_binary() -> Result<PathBuf, Failure> {
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
    /// Returns the setting with both programs: the real one installed, ours built unless the options name it.
    pub fn installed(options: &Options) -> Result<Setting, Failure> {
        Ok(Setting {
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
        })
    }

    /// Returns the seed of random choices.
    pub fn seed(&self) -> u64 {
        self.options.seed
    }

    /// Returns the number of calls of a comparison: `usual` by default.
    pub fn calls_or(&self, usual: usize) -> usize {
        self.options.calls.unwrap_or(usual)
    }

    /// Returns the time that a step of random faults takes: seconds, `usual` by default.
    pub fn seconds_or(&self, usual: u64) -> u64 {
        self.options.seconds.unwrap_or(usual)
    }

    /// Returns the number of rounds that each pair of servers is to play, if it was told.
    pub fn rounds(&self) -> Option<u64> {
        self.options.rounds
    }

    /// Returns true if this part of a test suite is to run: a unit of the Tcl suite, a client's suite.
    pub fn wants_unit(&self, unit: &str) -> bool {
        let units = &self.options.units;
        units.is_empty() || units.iter().any(|wanted| wanted == unit)
    }

    /// Starts a real Redis.
    pub fn start_redis(&self, words: &[&str]) -> Result<ServerProcess, Failure> {
        ServerProcess::redis(&self.redis, &owned(words))
            .map_err(|error| failure(&self.redis, &error))
    }

    /// Starts our server.
    pub fn start_redline(&self, workers: usize, words: &[&str]) -> Result<ServerProcess, Failure> {
        ServerProcess::redline(&self.redline, workers, &owned(words))
            .map_err(|error| failure(&self.redline, &error))
    }

    /// Starts the proxy in front of these servers.
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

/// Ends a server of ours cleanly; an earlier crash is detected here at the latest.
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

/// Compares the command table with the real server's commands.
fn spec(setting: &Setting) -> Result<String, Failure> {
    let redis = setting.start_redis(&[])?;
    // The tests of these crates that need a real server, and are ignored without one.
    for room in ["redline-spec", "redline-resp"] {
        let mut test = cargo(&[
            "test",
            "--quiet",
            "--package",
            room,
            "--test",
            "it",
            "--",
            "--ignored",
            "redis::",
        ]);
        test.env("REDLINE_REDIS", redis.address().to_string());
        watched(test)?;
    }
    Ok(
        "rows, grammar, key positions, inline words and doubles as the real server has them"
            .to_owned(),
    )
}

/// Sends the same users, rules and calls under these rules to both, reply by reply.
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

/// Compares features that Valkey has and Redis does not.
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
    let valkey = ServerProcess::redis(&program, &[]).map_err(|e| failure(&program, &e))?;
    let (redline, redis) = (setting.start_redline(2, &[])?, setting.start_redis(&[])?);
    let parameters = configuration::run_beyond(&redline, &valkey, &redis)?;
    stop(redline)?;
    Ok(format!(
        "{calls} calls of what Valkey alone has, {parameters} about its parameters"
    ))
}

/// Compares every parameter on both, and files that both write.
fn compare_configuration(setting: &Setting) -> Result<String, Failure> {
    let redis = setting.start_redis(&[])?;
    let redline = setting.start_redline(2, &[])?;
    let calls = configuration::run(&redline, &redis)?;
    stop(redline)?;
    let files = configuration::rewrite(&setting.redline, &setting.redis)?;
    Ok(format!("{calls} calls, {files} files written"))
}

/// Starts our server with files of others: those of the distributions' packages, and one with every parameter of a real
/// Valkey.
fn start_with_stock_files(setting: &Setting) -> Result<String, Failure> {
    install::older_redis_server()?;
    let redis = PathBuf::from("/etc/redis/redis.conf");
    let text =
        std::fs::read_to_string(&redis).map_err(|error| format!("{}: {error}", redis.display()))?;
    let (valkeys, valkey) = install::valkey_configuration()?;
    let program = install::valkey_server()?;
    let real = ServerProcess::redis(&program, &[]).map_err(|e| failure(&program, &e))?;
    let everything = configuration::file_of(&real)?;
    // Their folders belong to the packages.
    let own = "--daemonize no --dir . --logfile \"\" --pidfile pid";
    let words: Vec<String> = own.split(' ').map(|word| word.replace('"', "")).collect();
    let lines = everything.lines().count();
    for (name, text) in [
        (redis.display().to_string(), text),
        (valkey.display().to_string(), valkeys),
        ("every parameter of Valkey".to_owned(), everything),
    ] {
        let redline = ServerProcess::redline_of_file(&setting.redline, &text, &words)
            .map_err(|error| format!("{name}: {}", failure(&setting.redline, &error)))?;
        stop(redline)?;
    }
    Ok(format!(
        "{} and {} start it, and so does a file with all {lines} parameters of Valkey",
        redis.display(),
        valkey.display()
    ))
}

/// Copies values by DUMP and RESTORE, to and from the real server, and the distribution's (7.0).
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

/// Sends the same calls to both, reply by reply.
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

/// Returns the disagreements, one per line.
pub fn listed(disagreements: &[compare::Disagreement]) -> String {
    let listed: Vec<String> = disagreements
        .iter()
        .map(|found| format!("  {found}"))
        .collect();
    listed.join("\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn steps_that_the_documents_name_are_there() {
        let root = workspace();
        let folders = [root.clone(), root.join("docs")];
        let files = folders
            .iter()
            .flat_map(|folder| std::fs::read_dir(folder).unwrap());
        let mut named = 0;
        for file in files.map(|file| file.unwrap().path()) {
            if file.extension().is_none_or(|extension| extension != "md") {
                continue;
            }
            let text = std::fs::read_to_string(&file).unwrap();
            for call in text.split("`cargo xtask compat ").skip(1) {
                let call = call.split('`').next().unwrap_or_default();
                let words: Vec<String> = call.split_whitespace().map(str::to_owned).collect();
                let wrong = Options::parse(&words).err();
                assert!(wrong.is_none(), "{}: {call}: {wrong:?}", file.display());
                named += 1;
            }
        }
        assert!(named > 10, "the documents name {named} calls");
        assert!(Options::parse(&["nosuch".to_owned()]).is_err());
    }

    #[test]
    fn the_usage_names_every_step_once() {
        let usage = usage_of_steps();
        let (always, on_request) = usage.split_once("Only when named:").unwrap();
        for step in STEPS {
            let times = match step.on_request {
                None => {
                    let words = always.split([' ', '\n', '.']);
                    words.filter(|word| *word == step.name).count()
                }
                Some(_) => {
                    let names = on_request
                        .lines()
                        .map(|line| line.split_whitespace().next());
                    names.filter(|name| *name == Some(step.name)).count()
                }
            };
            assert_eq!(times, 1, "{} in\n{usage}", step.name);
        }
    }
}
