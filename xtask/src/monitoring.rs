//! Metrics of server and proxy where they are used: beside Debian's redis_exporter on the same server, and in a real
//! Prometheus, in which every expression of every dashboard has to return data and every rule to be evaluated.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use redline_testkit::process::{SECOND_PORT, ServerProcess};
use serde_json::Value;

use crate::compat::Setting;
use crate::install;
use crate::proxy::{call, connect};
use crate::run::{Failure, Folder, Process, captured, free_port, until, workspace};

const TIMEOUT: Duration = Duration::from_secs(60);
/// The page whose table has the exporter's names that are left out, with reasons.
const LEFT_OUT: &str = "docs/monitoring.md";
/// A name whose labels describe the program that exports, and so are its own.
const OWN_LABELS: &str = "redis_exporter_build_info";
/// Metrics whose values are the same in both while no client but the exporter is there.
const STANDING: [&str; 19] = [
    "redis_aof_enabled",
    "redis_aof_last_write_status",
    "redis_config_maxclients",
    "redis_config_maxmemory",
    "redis_connected_slaves",
    "redis_db_keys",
    "redis_db_keys_expiring",
    "redis_errors_total",
    "redis_evicted_keys_total",
    "redis_expired_keys_total",
    "redis_keyspace_hits_total",
    "redis_keyspace_misses_total",
    "redis_memory_max_bytes",
    "redis_memory_used_bytes",
    "redis_process_id",
    "redis_rdb_changes_since_last_save",
    "redis_rdb_last_bgsave_status",
    "redis_replica_resyncs_full",
    "redis_total_error_replies",
];

/// Runs all of it.
pub fn run(setting: &Setting) -> Result<String, Failure> {
    let tools = install::monitoring()?;
    let names = beside_the_exporter(setting, &tools.exporter)?;
    let tested = rules_are_right(&tools.promtool)?;
    let (expressions, rules) = dashboards_return_data(setting, &tools.prometheus)?;
    Ok(format!(
        "{names} names of redis_exporter, {tested}, data for each of {expressions} expressions of the dashboards, {rules} \
         rules evaluated"
    ))
}

/// Returns a server with a port for metrics.
pub fn server(setting: &Setting, words: &[&str]) -> Result<ServerProcess, Failure> {
    let metrics = ["--metrics-port", SECOND_PORT, "--metrics-bind", "127.0.0.1"];
    let words: Vec<String> = metrics
        .iter()
        .chain(words)
        .map(|word| (*word).into())
        .collect();
    ServerProcess::redline(&setting.redline, 2, &words)
        .map_err(|error| format!("redline server: {error}"))
}

/// Returns the body of a reply to GET.
fn get(port: u16, target: &str) -> Result<String, Failure> {
    let failed = |error| format!("http://127.0.0.1:{port}{target}: {error}");
    let mut stream = TcpStream::connect(("127.0.0.1", port)).map_err(failed)?;
    stream.set_read_timeout(Some(TIMEOUT)).map_err(failed)?;
    // By HTTP 1.0 no reply comes in chunks.
    let request = format!("GET {target} HTTP/1.0\r\nHost: 127.0.0.1:{port}\r\n\r\n");
    stream.write_all(request.as_bytes()).map_err(failed)?;
    let mut reply = String::new();
    stream.read_to_string(&mut reply).map_err(failed)?;
    let (head, body) = reply.split_once("\r\n\r\n").unwrap_or((&reply, ""));
    match head.split(' ').nth(1) {
        Some("200") => Ok(body.to_owned()),
        _ => Err(format!("http://127.0.0.1:{port}{target}: {head} {body}")),
    }
}

/// A page of metrics.
struct Metrics {
    /// Type by name of the family.
    types: BTreeMap<String, String>,
    /// Value by name and labels.
    samples: BTreeMap<String, f64>,
}

impl Metrics {
    fn read(port: u16) -> Result<Metrics, Failure> {
        get(port, "/metrics").map(|page| Metrics::of(&page))
    }

    fn of(page: &str) -> Metrics {
        let mut metrics = Metrics {
            types: BTreeMap::new(),
            samples: BTreeMap::new(),
        };
        for line in page.lines() {
            if let Some((name, sort)) = line
                .strip_prefix("# TYPE ")
                .and_then(|rest| rest.split_once(' '))
            {
                metrics.types.insert(name.into(), sort.into());
            } else if let Some((name, value)) =
                line.rsplit_once(' ').filter(|_| !line.starts_with('#'))
            {
                metrics
                    .samples
                    .insert(name.into(), value.parse().unwrap_or(f64::NAN));
            }
        }
        metrics
    }

    /// Returns the names of the labels of a family's samples.
    fn labels(&self, family: &str) -> BTreeSet<&str> {
        let samples = self
            .samples
            .keys()
            .filter_map(|name| name.strip_prefix(family));
        let labels = samples.filter_map(|rest| rest.strip_prefix('{')?.strip_suffix('}'));
        labels
            .flat_map(|labels| {
                labels
                    .split("\",")
                    .filter_map(|label| label.split_once('='))
            })
            .map(|(name, _)| name)
            .collect()
    }
}

/// Compares names, types, labels and standing values with the exporter's; returns the number of names.
fn beside_the_exporter(setting: &Setting, exporter: &Path) -> Result<usize, Failure> {
    let slow = [
        "--slowlog-log-slower-than",
        "0",
        "--appendonly",
        "yes",
        "--maxmemory",
        "100mb",
    ];
    let primary = server(setting, &slow)?;
    let port = primary.address().port().to_string();
    let replica = server(setting, &["--replicaof", "127.0.0.1", &port])?;
    let mut client = connect(primary.address())?;
    for words in [
        &["SET", "k", "v"][..],
        &["SET", "k2", "v", "EX", "1000"],
        &["GET", "k"],
        &["GET", "none"],
        &["INCR", "k"],
        &["XADD", "s", "*", "a", "b"],
        &["WAIT", "1", "0"],
    ] {
        call(&mut client, words)?;
    }
    let left_out = left_out()?;
    let mut names = 0;
    for tested in [&primary, &replica] {
        let listening = free_port()?;
        let mut command = Command::new(exporter);
        command
            .arg(format!("-redis.addr=redis://{}", tested.address()))
            .arg(format!("-web.listen-address=127.0.0.1:{listening}"));
        let _exporter = Process::start(&mut command)?;
        let theirs = || {
            Metrics::read(listening)
                .ok()
                .filter(|page| page.types.contains_key("redis_db_keys"))
        };
        until("the exporter reads the server", || theirs().is_some())?;
        // The first reader of ours has the average times to live found.
        let ours = || Metrics::read(tested.second_port()).ok();
        let ttl = "redis_db_avg_ttl_seconds{db=\"db0\"}";
        until("times to live are found", || {
            ours().is_some_and(|page| page.samples.contains_key(ttl))
        })?;
        let ours = Metrics::read(tested.second_port())?;
        let theirs = Metrics::read(listening)?;
        names = names.max(compare(&ours, &theirs, &left_out)?);
    }
    Ok(names)
}

/// Returns the names of the table on the page, in which a star is any text.
fn left_out() -> Result<Vec<String>, Failure> {
    let path = workspace().join(LEFT_OUT);
    let page = fs::read_to_string(&path).map_err(|error| format!("{}: {error}", path.display()))?;
    let cells = page.lines().filter(|line| line.starts_with("| `redis_"));
    let names = cells.flat_map(|line| {
        line.split('|')
            .nth(1)
            .unwrap_or("")
            .split('`')
            .skip(1)
            .step_by(2)
    });
    Ok(names.map(str::to_owned).collect())
}

/// Returns true if a name is like a pattern, in which a star is any text.
fn is_like(name: &str, pattern: &str) -> bool {
    match pattern.split_once('*') {
        Some((begin, rest)) => name.strip_prefix(begin).is_some_and(|name| {
            let mut ends = name.char_indices().map(|(at, _)| &name[at..]);
            rest.is_empty() || ends.any(|end| is_like(end, rest))
        }),
        None => name == pattern,
    }
}

fn compare(ours: &Metrics, theirs: &Metrics, left_out: &[String]) -> Result<usize, Failure> {
    let mut faults = Vec::new();
    let is_left_out = |name: &String| left_out.iter().any(|pattern| is_like(name, pattern));
    let names = || {
        let families = theirs
            .types
            .keys()
            .filter(|name| name.starts_with("redis_"));
        families.filter(|name| !is_left_out(name))
    };
    for name in names() {
        let (sort, wanted) = (ours.types.get(name), &theirs.types[name]);
        if sort != Some(wanted) {
            faults.push(format!("{name} is {sort:?}, not {wanted}"));
        } else if name != OWN_LABELS && !ours.labels(name).is_superset(&theirs.labels(name)) {
            let (ours, theirs) = (ours.labels(name), theirs.labels(name));
            faults.push(format!("{name} has labels {ours:?}, not {theirs:?}"));
        }
    }
    let is_standing = |sample: &str| {
        STANDING
            .iter()
            .any(|name| sample.split('{').next() == Some(name))
    };
    for (sample, value) in ours
        .samples
        .iter()
        .filter(|(sample, _)| is_standing(sample))
    {
        let wanted = theirs.samples.get(sample);
        if wanted != Some(value) {
            faults.push(format!("{sample} is {value}, not {wanted:?}"));
        }
    }
    match faults.is_empty() {
        true => Ok(names().count()),
        false => Err(faults.join("\n")),
    }
}

fn rules_are_right(promtool: &Path) -> Result<String, Failure> {
    let folder = workspace().join("monitoring");
    let run = |words: &[&str]| {
        let mut command = Command::new(promtool);
        command.args(words).current_dir(&folder);
        captured(command, b"", TIMEOUT)
    };
    run(&["check", "rules", "rules.yml", "alerts.yml"])?;
    run(&["test", "rules", "alerts_test.yml"])?;
    Ok("alerts that fire and do not as they should".into())
}

/// Returns every expression of a dashboard.
fn expressions(value: &Value, found: &mut BTreeSet<String>) {
    match value {
        Value::Object(fields) => fields.iter().for_each(|(name, value)| match value {
            Value::String(text) if name == "expr" => {
                found.insert(text.replace("$instance", ".*"));
            }
            _ => expressions(value, found),
        }),
        Value::Array(items) => items.iter().for_each(|item| expressions(item, found)),
        _ => {}
    }
}

/// Returns the numbers of expressions and of rules.
fn dashboards_return_data(setting: &Setting, prometheus: &Path) -> Result<(usize, usize), Failure> {
    let mut asked = BTreeSet::new();
    for entry in fs::read_dir(workspace().join("monitoring/dashboards"))
        .map_err(|error| error.to_string())?
    {
        let path = entry.map_err(|error| error.to_string())?.path();
        let text = fs::read_to_string(&path).map_err(|error| error.to_string())?;
        let board =
            serde_json::from_str(&text).map_err(|error| format!("{}: {error}", path.display()))?;
        expressions(&board, &mut asked);
    }
    let primary = server(setting, &["--appendonly", "yes"])?;
    let port = primary.address().port().to_string();
    let replica = server(setting, &["--replicaof", "127.0.0.1", &port])?;
    let proxy = format!(
        "[metrics]\nbind = '127.0.0.1:{SECOND_PORT}'\n[[listener]]\nbind = '127.0.0.1:1'\n[[pool]]\nname = 'main'\n\
         [[pool.shard]]\nserver = [{{ address = '{}' }}]\n",
        primary.address()
    );
    let proxy = ServerProcess::proxy_of_file(&setting.redline, &proxy)
        .map_err(|error| format!("redline proxy: {error}"))?;
    let folder = Folder::new("monitoring")?;
    let listening = free_port()?;
    let _prometheus = start_prometheus(
        prometheus,
        folder.path(),
        listening,
        &[&primary, &replica, &proxy].map(|process| process.second_port()),
    )?;
    let mut client = connect(proxy.address())?;
    let mut direct = connect(primary.address())?;
    let mut missing = Vec::new();
    let mut number = 0;
    let mut load = || -> Result<(), Failure> {
        number += 1;
        let (key, none) = (format!("key:{number}"), format!("none:{number}"));
        for words in [
            &["SET", &key, "v", "EX", "100"][..],
            &["GET", &key],
            &["GET", &none],
            &["LPUSH", &key, "x"],
        ] {
            call(&mut client, words)?;
            call(&mut direct, words)?;
        }
        // Refused by the proxy itself.
        call(&mut client, &["NOSUCHCOMMAND"]).map(drop)
    };
    let mut failure = None;
    let waited = until("every expression returns data", || {
        if let Err(error) = load() {
            failure = Some(error);
            return true;
        }
        missing = asked
            .iter()
            .filter(|text| !returns_data(listening, text))
            .cloned()
            .collect();
        missing.is_empty()
    });
    if let Some(failure) = failure {
        return Err(failure);
    }
    waited.map_err(|error| format!("{error}; without data:\n{}", missing.join("\n")))?;
    let rules = rules_are_evaluated(listening)?;
    Ok((asked.len(), rules))
}

fn start_prometheus(
    program: &Path,
    folder: &Path,
    port: u16,
    targets: &[u16],
) -> Result<Process, Failure> {
    let rules = workspace().join("monitoring");
    let targets: Vec<String> = targets
        .iter()
        .map(|port| format!("'127.0.0.1:{port}'"))
        .collect();
    let config = format!(
        "global: {{scrape_interval: 1s, evaluation_interval: 1s}}\nrule_files: ['{0}/rules.yml', '{0}/alerts.yml']\n\
         scrape_configs: [{{job_name: redline, static_configs: [{{targets: [{1}]}}]}}]\n",
        rules.display(),
        targets.join(", ")
    );
    let path = folder.join("prometheus.yml");
    fs::write(&path, config).map_err(|error| format!("{}: {error}", path.display()))?;
    let mut command = Command::new(program);
    command
        .arg(format!("--config.file={}", path.display()))
        .arg(format!(
            "--storage.tsdb.path={}",
            folder.join("data").display()
        ))
        .arg(format!("--web.listen-address=127.0.0.1:{port}"));
    let log = folder.join("log");
    let process = Process::start_into(&mut command, &log)?;
    until("Prometheus is ready", || get(port, "/-/ready").is_ok())
        .map_err(|error| format!("{error}: {}", fs::read_to_string(&log).unwrap_or_default()))?;
    Ok(process)
}

/// Returns the value of a field of a reply of Prometheus.
fn asked(port: u16, target: &str) -> Result<Value, Failure> {
    let text = get(port, target)?;
    let mut reply: Value =
        serde_json::from_str(&text).map_err(|error| format!("{error}: {text}"))?;
    match reply["status"] == "success" {
        true => Ok(reply["data"].take()),
        false => Err(text),
    }
}

/// Returns true if an expression has a sample that is a number: a rate of nothing by nothing is none.
fn returns_data(port: u16, expression: &str) -> bool {
    let encoded: String = expression
        .bytes()
        .map(|byte| format!("%{byte:02X}"))
        .collect();
    let data = asked(port, &format!("/api/v1/query?query={encoded}"));
    let is_number = |sample: &Value| {
        let text = sample["value"][1].as_str();
        text.and_then(|text| text.parse().ok())
            .is_some_and(f64::is_finite)
    };
    data.is_ok_and(|data| {
        data["result"]
            .as_array()
            .is_some_and(|all| all.iter().any(is_number))
    })
}

/// Checks that each rule is evaluated without an error, and that recorded series are there; returns their number.
fn rules_are_evaluated(port: u16) -> Result<usize, Failure> {
    let rules = || -> Result<Vec<Value>, Failure> {
        let groups = asked(port, "/api/v1/rules")?;
        let groups = groups["groups"].as_array().cloned().unwrap_or_default();
        Ok(groups
            .iter()
            .flat_map(|group| group["rules"].as_array().cloned().unwrap_or_default())
            .collect())
    };
    let is_fine = |rule: &Value| {
        let recorded = rule["type"] == "recording";
        rule["health"] == "ok"
            && (!recorded
                || rule["name"]
                    .as_str()
                    .is_some_and(|name| returns_data(port, name)))
    };
    let waited = until("every rule is evaluated", || {
        rules().is_ok_and(|rules| !rules.is_empty() && rules.iter().all(is_fine))
    });
    let rules = rules()?;
    let faults: Vec<String> = rules
        .iter()
        .filter(|rule| !is_fine(rule))
        .map(Value::to_string)
        .collect();
    waited.map_err(|error| format!("{error}: {}", faults.join("\n")))?;
    Ok(rules.len())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_star_is_any_text() {
        for (name, pattern, is) in [
            ("redis_db0_distrib_sizes", "redis_db*_distrib_*", true),
            ("redis_db_keys", "redis_db*_distrib_*", false),
            ("redis_up", "redis_up", true),
            ("redis_uptime", "redis_up", false),
            ("redis_defrag_hits", "redis_defrag_*", true),
        ] {
            assert_eq!(is_like(name, pattern), is, "{name} {pattern}");
        }
    }

    fn page(sort: &str, labels: &str) -> Metrics {
        Metrics::of(&format!(
            "# HELP redis_a Text.\n# TYPE redis_a {sort}\nredis_a{labels} 1\n"
        ))
    }

    #[test]
    fn a_missing_name_another_type_and_a_missing_label_are_found() {
        let theirs = page("gauge", "{x=\"1\",y=\"a b\"}");
        let left_out = ["redis_*_b*".to_owned()];
        let same = page("gauge", "{y=\"2\",x=\"1\"}");
        assert_eq!(compare(&same, &theirs, &left_out), Ok(1));
        for ours in [
            Metrics::of(""),
            page("counter", "{x=\"1\",y=\"\"}"),
            page("gauge", "{x=\"1\"}"),
        ] {
            assert!(compare(&ours, &theirs, &left_out).is_err());
            assert_eq!(compare(&ours, &theirs, &["redis_*".to_owned()]), Ok(0));
        }
    }
}
