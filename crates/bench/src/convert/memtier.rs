//! memtier_benchmark's command line as a run. Options are read as `getopt_long` reads them: `--name value`,
//! `--name=value`, any unambiguous beginning of a name, short options in groups.

use super::table::meaning;
use super::{Runs, literal, template_word};

/// An option: its name, its letter, and true if it takes a value.
type Row = (&'static str, Option<char>, bool);

const OPTIONS: &[Row] = &[
    ("host", Some('h'), true),
    ("server", Some('s'), true),
    ("port", Some('p'), true),
    ("unix-socket", Some('S'), true),
    ("ipv4", Some('4'), false),
    ("ipv6", Some('6'), false),
    ("protocol", Some('P'), true),
    ("authenticate", Some('a'), true),
    ("uri", Some('u'), true),
    ("tls", None, false),
    ("cert", None, true),
    ("key", None, true),
    ("cacert", None, true),
    ("tls-skip-verify", None, false),
    ("tls-protocols", None, true),
    ("sni", None, true),
    ("run-count", Some('x'), true),
    ("debug", Some('D'), false),
    ("cluster-mode", None, false),
    ("transaction", None, false),
    ("out-file", Some('o'), true),
    ("json-out-file", None, true),
    ("client-stats", None, true),
    ("hdr-file-prefix", None, true),
    ("show-config", None, false),
    ("hide-histogram", None, false),
    ("print-percentiles", None, true),
    ("print-all-runs", None, false),
    ("realtime-latencies", None, false),
    ("latency-window", None, true),
    ("command-stats-breakdown", None, true),
    ("command-miss-tracking", None, false),
    ("miss-rate-threshold", None, true),
    ("statsd-host", None, true),
    ("statsd-port", None, true),
    ("statsd-prefix", None, true),
    ("statsd-run-label", None, true),
    ("graphite-port", None, true),
    ("requests", Some('n'), true),
    ("rate-limiting", None, true),
    ("clients", Some('c'), true),
    ("threads", Some('t'), true),
    ("test-time", None, true),
    ("clients-start", None, true),
    ("clients-step", None, true),
    ("step-duration", None, true),
    ("ratio", None, true),
    ("pipeline", None, true),
    ("reconnect-interval", None, true),
    ("reconnect-on-error", None, false),
    ("max-reconnect-attempts", None, true),
    ("reconnect-backoff-factor", None, true),
    ("retry-on-error", None, false),
    ("max-retries", None, true),
    ("retry-backoff-ms", None, true),
    ("retry-backoff-factor", None, true),
    ("retry-on", None, true),
    ("max-retry-queue", None, true),
    ("failed-keys-file", None, true),
    ("connection-timeout", None, true),
    ("connection-stage-timeout", None, true),
    ("thread-conn-start-min-jitter-micros", None, true),
    ("thread-conn-start-max-jitter-micros", None, true),
    ("multi-key-get", None, true),
    ("select-db", None, true),
    ("distinct-client-seed", None, false),
    ("randomize", None, false),
    ("command", None, true),
    ("command-ratio", None, true),
    ("command-key-pattern", None, true),
    ("monitor-input", None, true),
    ("monitor-pattern", None, true),
    ("scan-incremental-iteration", None, false),
    ("scan-incremental-max-iterations", None, true),
    ("data-size", Some('d'), true),
    ("data-offset", None, true),
    ("random-data", Some('R'), false),
    ("data-size-range", None, true),
    ("data-size-list", None, true),
    ("data-size-pattern", None, true),
    ("expiry-range", None, true),
    ("data-import", None, true),
    ("data-verify", None, false),
    ("verify-only", None, false),
    ("generate-keys", None, false),
    ("no-expiry", None, false),
    ("key-prefix", None, true),
    ("key-minimum", None, true),
    ("key-maximum", None, true),
    ("key-pattern", None, true),
    ("key-stddev", None, true),
    ("key-median", None, true),
    ("key-zipf-exp", None, true),
    ("wait-ratio", None, true),
    ("num-slaves", None, true),
    ("wait-timeout", None, true),
];

/// Options without which the run would be another one; there is nothing to convert them to.
const REFUSED: &[&str] = &[
    "data-import",
    "data-verify",
    "verify-only",
    "generate-keys",
    "monitor-input",
    "scan-incremental-iteration",
    "tls-protocols",
    "clients-start",
];
/// Options that refine those.
const OF_REFUSED: &[&str] = &[
    "no-expiry",
    "monitor-pattern",
    "scan-incremental-max-iterations",
    "clients-step",
    "step-duration",
];
/// Options whose absence changes no measurement.
const WITHOUT: &[&str] = &[
    "debug",
    "client-stats",
    "show-config",
    "hide-histogram",
    "print-percentiles",
    "print-all-runs",
    "realtime-latencies",
    "latency-window",
    "command-stats-breakdown",
    "command-miss-tracking",
    "thread-conn-start-min-jitter-micros",
    "thread-conn-start-max-jitter-micros",
    "distinct-client-seed",
    "randomize",
    "max-reconnect-attempts",
    "reconnect-backoff-factor",
    "connection-stage-timeout",
    "max-retries",
    "retry-backoff-ms",
    "retry-backoff-factor",
    "retry-on",
];
/// Options whose absence is a loss.
const LOST: &[&str] = &[
    "run-count",
    "statsd-host",
    "statsd-port",
    "statsd-prefix",
    "statsd-run-label",
    "graphite-port",
    "max-retry-queue",
    "failed-keys-file",
];

/// Returns the run of its arguments.
pub fn convert(args: &[String]) -> Result<Runs, String> {
    let given = parse(args)?;
    let mut line = Line::default();
    for (name, value) in &given {
        line.option(name, value.as_deref())
            .map_err(|why| format!("memtier_benchmark: --{name}: {why}"))?;
    }
    line.finish()
        .map_err(|why| format!("memtier_benchmark: {why}"))
}

/// Returns the options by name, with their values.
fn parse(args: &[String]) -> Result<Vec<(&'static str, Option<String>)>, String> {
    let fault = |what: String| Err(format!("memtier_benchmark: {what}"));
    let (mut given, mut words) = (Vec::new(), args.iter());
    while let Some(word) = words.next() {
        if let Some(long) = word.strip_prefix("--") {
            let (name, value) = match long.split_once('=') {
                Some((name, value)) => (name, Some(value.to_owned())),
                None => (long, None),
            };
            let (name, _, takes) = match row(name) {
                Ok(row) => row,
                Err(why) => return fault(format!("--{name}: {why}")),
            };
            let value = match (takes, value) {
                (false, Some(_)) => return fault(format!("--{name} takes no value")),
                (false, None) => None,
                (true, Some(value)) => Some(value),
                (true, None) => match words.next() {
                    Some(value) => Some(value.clone()),
                    None => return fault(format!("--{name}: its value is missing")),
                },
            };
            given.push((*name, value));
        } else if let Some(letters) = word.strip_prefix('-').filter(|rest| !rest.is_empty()) {
            for (at, letter) in letters.char_indices() {
                let row = OPTIONS.iter().find(|row| row.1 == Some(letter));
                let Some((name, _, takes)) = row else {
                    return fault(format!("-{letter}: no such option"));
                };
                if !takes {
                    given.push((*name, None));
                    continue;
                }
                let rest = &letters[at + letter.len_utf8()..];
                let value = match rest {
                    "" => words.next().cloned(),
                    rest => Some(rest.to_owned()),
                };
                match value {
                    Some(value) => given.push((*name, Some(value))),
                    None => return fault(format!("-{letter}: its value is missing")),
                }
                break;
            }
        } else {
            return fault(format!("{word}: only options are expected"));
        }
    }
    Ok(given)
}

/// Finds an option by its name, or by a beginning that only it has.
fn row(name: &str) -> Result<&'static Row, String> {
    if let Some(row) = OPTIONS.iter().find(|row| row.0 == name) {
        return Ok(row);
    }
    let mut begin = OPTIONS.iter().filter(|row| row.0.starts_with(name));
    match (begin.next(), begin.next()) {
        (Some(row), None) if !name.is_empty() => Ok(row),
        (Some(_), Some(_)) if !name.is_empty() => Err("several options begin so".to_owned()),
        _ => {
            let meant = redline_spec::nearest(name, OPTIONS.iter().map(|row| row.0));
            let meant = meant.map(|meant| format!("; did you mean --{meant}?"));
            Err(format!("no such option{}", meant.unwrap_or_default()))
        }
    }
}

/// A command of `--command`.
struct Command {
    text: String,
    ratio: u64,
    pattern: char,
}

/// The command line so far; the defaults are memtier_benchmark's.
struct Line {
    runs: Runs,
    /// Options that need no other.
    words: Vec<String>,
    servers: Vec<String>,
    port: u16,
    socket: Option<String>,
    ipv6: Option<bool>,
    memcached: bool,
    cluster: bool,
    transaction: bool,
    threads: u64,
    clients: u64,
    /// Of each client; none: all keys.
    requests: Option<Option<u64>>,
    test_time: Option<String>,
    rate: Option<u64>,
    pipeline: u64,
    ratio: (u64, u64),
    commands: Vec<Command>,
    sizes: Option<String>,
    random_data: bool,
    offset: Option<u64>,
    expiry: Option<String>,
    multi_get: u64,
    prefix: String,
    keys: (u64, u64),
    patterns: (char, char),
    median: Option<f64>,
    deviation: Option<f64>,
    exponent: String,
    wait: (u64, u64),
    replicas: String,
    wait_timeout: String,
}

impl Default for Line {
    fn default() -> Line {
        Line {
            runs: Runs::default(),
            words: Vec::new(),
            servers: Vec::new(),
            port: 6379,
            socket: None,
            ipv6: None,
            memcached: false,
            cluster: false,
            transaction: false,
            threads: 4,
            clients: 50,
            requests: None,
            test_time: None,
            rate: None,
            pipeline: 1,
            ratio: (1, 10),
            commands: Vec::new(),
            sizes: None,
            random_data: false,
            offset: None,
            expiry: None,
            multi_get: 0,
            prefix: "memtier-".to_owned(),
            keys: (0, 10_000_000),
            patterns: ('R', 'R'),
            median: None,
            deviation: None,
            exponent: "1".to_owned(),
            wait: (1, 0),
            replicas: "1".to_owned(),
            wait_timeout: "100".to_owned(),
        }
    }
}

impl Line {
    fn add(&mut self, words: &[&str]) {
        self.words
            .extend(words.iter().map(|word| (*word).to_owned()));
    }

    fn option(&mut self, name: &str, value: Option<&str>) -> Result<(), String> {
        let text = value.unwrap_or_default();
        match name {
            "host" | "server" => {
                self.servers = text.split(',').map(str::to_owned).collect();
            }
            "port" => self.port = text.parse().map_err(|_| "a port is 0 to 65535")?,
            "unix-socket" => self.socket = Some(text.to_owned()),
            "ipv4" => self.ipv6 = Some(false),
            "ipv6" => self.ipv6 = Some(true),
            "protocol" => match text {
                "redis" | "resp2" => self.memcached = false,
                "resp3" => self.add(&["--resp3"]),
                "memcache_text" => self.memcached = true,
                _ => {
                    return Err(
                        "redis, resp2, resp3 or memcache_text; others are not spoken".into(),
                    );
                }
            },
            "authenticate" => match text.split_once(':') {
                Some((user, password)) => self.add(&["--user", user, "-a", password]),
                None => self.add(&["-a", text]),
            },
            "uri" => self.add(&["-u", text]),
            "tls" => self.add(&["--tls"]),
            "tls-skip-verify" => self.add(&["--insecure"]),
            "cert" | "key" | "cacert" | "sni" => self.add(&[&format!("--{name}"), text]),
            "cluster-mode" => self.cluster = true,
            "transaction" => self.transaction = true,
            "select-db" => self.add(&["--db", text]),
            "out-file" => self.runs.out_file = Some(text.into()),
            "json-out-file" => {
                self.add(&["--json", text]);
                self.runs.same(
                    "--json-out-file",
                    "its fields are those of --json, not memtier_benchmark's",
                );
            }
            "hdr-file-prefix" => {
                self.add(&["--hdr", &format!("{text}.hdr")]);
                self.runs
                    .same("--hdr-file-prefix", format!("one file, {text}.hdr"));
            }
            "miss-rate-threshold" => {
                let percent = decimal(text)?;
                self.add(&["--hit-rate-min", &shortest(1.0 - percent / 100.0)]);
            }
            "requests" => {
                self.requests = Some(match text {
                    "allkeys" => None,
                    text => Some(number(text)?),
                });
            }
            "rate-limiting" => self.rate = Some(number(text)?),
            "clients" => self.clients = number(text)?.max(1),
            "threads" => self.threads = number(text)?.max(1),
            "test-time" => self.test_time = Some(text.to_owned()),
            "pipeline" => self.pipeline = number(text)?.max(1),
            "ratio" => self.ratio = pair(text)?,
            "reconnect-interval" => self.add(&["--reconnect-after", text]),
            "reconnect-on-error" => self.add(&["--reconnect"]),
            "retry-on-error" => self.add(&["--on-error", "count"]),
            "connection-timeout" => self.add(&["--timeout", text]),
            "command" => self.commands.push(Command {
                text: text.to_owned(),
                ratio: 1,
                pattern: 'R',
            }),
            "command-ratio" => self.last_command()?.ratio = number(text)?,
            "command-key-pattern" => self.last_command()?.pattern = pattern(text)?,
            "multi-key-get" => self.multi_get = number(text)?,
            "data-size" | "data-size-range" | "data-size-list" => {
                self.sizes = Some(text.to_owned());
            }
            "data-size-pattern" => match pattern(text)? {
                'R' => {}
                _ => self.runs.lost(
                    "--data-size-pattern",
                    "sizes are drawn, not in step with keys",
                ),
            },
            "data-offset" => self.offset = Some(number(text)?),
            "random-data" => self.random_data = true,
            "expiry-range" => self.expiry = Some(text.to_owned()),
            "key-prefix" => self.prefix = text.to_owned(),
            "key-minimum" => self.keys.0 = number(text)?,
            "key-maximum" => self.keys.1 = number(text)?,
            "key-pattern" => {
                let (set, get) = text
                    .split_once(':')
                    .ok_or("two letters with a colon, as R:R")?;
                self.patterns = (pattern(set)?, pattern(get)?);
            }
            "key-median" => self.median = Some(decimal(text)?),
            "key-stddev" => self.deviation = Some(decimal(text)?),
            "key-zipf-exp" => self.exponent = shortest(decimal(text)?),
            "wait-ratio" => self.wait = pair(text)?,
            "num-slaves" => self.replicas = text.to_owned(),
            "wait-timeout" => self.wait_timeout = text.to_owned(),
            _ if WITHOUT.contains(&name) => {
                let ours = meaning(&format!("--{name}"));
                self.runs
                    .same(&format!("--{name}"), ours.unwrap_or_default());
            }
            _ if LOST.contains(&name) => {
                let ours = meaning(&format!("--{name}"));
                self.runs
                    .lost(&format!("--{name}"), ours.unwrap_or_default());
            }
            _ => {
                debug_assert!(
                    REFUSED.contains(&name) || OF_REFUSED.contains(&name),
                    "{name}"
                );
                return Err(meaning(&format!("--{name}")).unwrap_or_default());
            }
        }
        Ok(())
    }

    fn last_command(&mut self) -> Result<&mut Command, String> {
        let last = self.commands.last_mut();
        last.ok_or_else(|| "it stands behind its --command".to_owned())
    }

    /// Returns the placeholder of a key, by its pattern.
    fn key(&self, pattern: char) -> String {
        let (least, most) = self.keys;
        let range = format!("{least}-{most}");
        let draw = match pattern {
            'G' => {
                let span = most.saturating_sub(least) as f64;
                let mean = self.median.unwrap_or(least as f64 + span / 2.0);
                let deviation = self.deviation.unwrap_or((span / 6.0).max(1.0));
                format!("gauss:{},{},{range}", shortest(mean), shortest(deviation))
            }
            'S' | 'P' => format!("seq:{range}"),
            'Z' => format!("zipf:{},{range}", self.exponent),
            _ => format!("uniform:{range}"),
        };
        format!("{}{{{draw}}}", literal(&self.prefix))
    }

    /// Returns a word of a template that has the key in it.
    fn key_word(&self, pattern: char) -> String {
        template_word(&self.key(pattern))
    }

    /// Returns the number of a range, or a draw from it.
    fn drawn(range: &str) -> String {
        match range.contains('-') {
            true => format!("{{uniform:{range}}}"),
            false => range.to_owned(),
        }
    }

    fn set(&self) -> String {
        let key = self.key_word(self.patterns.0);
        let expiry = self.expiry.as_deref().map(Line::drawn);
        match (self.offset, expiry, self.memcached) {
            (Some(offset), _, _) => format!("SETRANGE {key} {offset} {{value}}"),
            (None, Some(seconds), false) => format!("SETEX {key} {seconds} {{value}}"),
            (None, Some(seconds), true) => format!("SET {key} {{value}} {seconds}"),
            (None, None, _) => format!("SET {key} {{value}}"),
        }
    }

    fn get(&self) -> String {
        let key = self.key_word(self.patterns.1);
        match (self.offset, self.multi_get, self.memcached) {
            (Some(offset), _, _) => {
                let largest = |sizes: &String| {
                    let sizes = sizes
                        .split(',')
                        .map(|one| one.split(':').next().unwrap_or(one));
                    let ends = sizes.filter_map(|one| one.rsplit('-').next()?.parse::<u64>().ok());
                    ends.max()
                };
                let size = self.sizes.as_ref().and_then(largest).unwrap_or(32);
                format!("GETRANGE {key} {offset} {}", offset + size.max(1) - 1)
            }
            (None, 0 | 1, _) => format!("GET {key}"),
            (None, many, false) => format!("MGET {}", vec![key; many as usize].join(" ")),
            (None, many, true) => format!("GET {}", vec![key; many as usize].join(" ")),
        }
    }

    /// Returns the commands with their weights.
    fn commands(&self) -> Vec<(String, u64)> {
        if self.commands.is_empty() {
            let (set, get) = self.ratio;
            let (plain, waits) = self.wait;
            let wait = || {
                format!(
                    "WAIT {} {}",
                    Line::drawn(&self.replicas),
                    Line::drawn(&self.wait_timeout)
                )
            };
            let scale = plain.max(1);
            let mut all = vec![(self.set(), set * scale), (self.get(), get * scale)];
            if waits > 0 {
                all.push((wait(), set * waits));
            }
            return all;
        }
        let text = |one: &Command| {
            // The key may stand inside of quotes of the command's own.
            let text = literal(&one.text);
            let text = text.replace("__key__", &self.key(one.pattern));
            text.replace("__data__", "{value}")
        };
        if self.transaction {
            let texts: Vec<String> = self.commands.iter().map(text).collect();
            return vec![(texts.join(" ; "), 1)];
        }
        self.commands
            .iter()
            .map(|one| (text(one), one.ratio))
            .collect()
    }

    fn finish(mut self) -> Result<Runs, String> {
        if self.keys.0 > self.keys.1 {
            return Err("--key-minimum is above --key-maximum".into());
        }
        if self.transaction && self.commands.is_empty() {
            self.runs.lost(
                "--transaction",
                "it joins what --command has, and there is none",
            );
        }
        if self.multi_get > 10_000 {
            return Err("--multi-key-get: at most 10000 keys".into());
        }
        let commands = self.commands();
        let commands: Vec<_> = commands
            .into_iter()
            .filter(|(_, weight)| *weight > 0)
            .collect();
        if commands.is_empty() {
            return Err("--ratio: nothing is left to send".into());
        }
        let mut words = Vec::new();
        self.place(&mut words);
        for (text, _) in &commands {
            words.extend(["--command".to_owned(), text.clone()]);
        }
        if commands.len() > 1 {
            let weights: Vec<String> = commands
                .iter()
                .map(|(_, weight)| weight.to_string())
                .collect();
            words.extend(["--ratio".to_owned(), weights.join(":")]);
        }
        if commands.iter().any(|(text, _)| text.contains("{value}")) {
            if let Some(sizes) = &self.sizes {
                words.extend(["-d".to_owned(), sizes.clone()]);
            }
            if !self.random_data {
                words.extend(["--value-content", "fixed"].map(str::to_owned));
            }
        }
        let all = self.threads.saturating_mul(self.clients);
        words.extend([
            "-t".to_owned(),
            self.threads.to_string(),
            "-c".to_owned(),
            all.to_string(),
        ]);
        if self.pipeline > 1 {
            words.extend(["-P".to_owned(), self.pipeline.to_string()]);
            // An open loop decides itself when a request is sent.
            if self.rate.is_none() {
                words.push("--window".to_owned());
            }
        }
        if let Some(rate) = self.rate {
            words.extend(["--rps".to_owned(), rate.saturating_mul(all).to_string()]);
        }
        let keys = (self.keys.1 - self.keys.0).saturating_add(1);
        let requests = match (self.requests, &self.test_time) {
            (Some(Some(each)), _) => Some(each.saturating_mul(all)),
            (Some(None), _) => Some(keys),
            (None, None) => Some(all.saturating_mul(10_000)),
            (None, Some(_)) => None,
        };
        if let Some(requests) = requests {
            words.extend(["-n".to_owned(), requests.to_string()]);
        }
        if let Some(seconds) = &self.test_time {
            words.extend(["--duration".to_owned(), seconds.clone()]);
        }
        words.append(&mut self.words);
        self.runs.runs.push(words);
        Ok(self.runs)
    }

    /// Adds the server, or the servers.
    fn place(&mut self, words: &mut Vec<String>) {
        let mut add = |more: &[&str]| words.extend(more.iter().map(|word| (*word).to_owned()));
        if self.memcached {
            add(&["--protocol", "memcache_text"]);
        }
        if self.cluster {
            add(&["--cluster"]);
        }
        let port = self.port.to_string();
        if let Some(path) = &self.socket {
            return add(&["-S", path]);
        }
        let here = |host: &str| match (host, self.ipv6) {
            ("localhost" | "", Some(true)) => "::1".to_owned(),
            ("localhost" | "", Some(false)) => "127.0.0.1".to_owned(),
            (host, _) => host.to_owned(),
        };
        match &self.servers[..] {
            [] => {
                if self.ipv6 == Some(true) {
                    add(&["-s", "::1"]);
                }
                if self.port != 6379 {
                    add(&["-p", &port]);
                }
            }
            [one] => {
                add(&["-s", &here(one)]);
                if self.port != 6379 {
                    add(&["-p", &port]);
                }
            }
            several => {
                for one in several {
                    let host = here(one);
                    match host.contains(':') {
                        true => add(&["--endpoint", &format!("[{host}]:{port}")]),
                        false => add(&["--endpoint", &format!("{host}:{port}")]),
                    }
                }
            }
        }
        let is_name =
            |host: &String| host != "localhost" && host.parse::<std::net::IpAddr>().is_err();
        if self.ipv6.is_some() && self.servers.iter().any(is_name) {
            self.runs
                .lost("--ipv4, --ipv6", "name an address of that family");
        }
    }
}

fn number(text: &str) -> Result<u64, String> {
    let number = text.parse();
    number.map_err(|_| format!("a whole number, not \"{text}\""))
}

fn decimal(text: &str) -> Result<f64, String> {
    let number = text.parse::<f64>().ok().filter(|number| number.is_finite());
    number.ok_or_else(|| format!("a number, not \"{text}\""))
}

/// Returns a number without the digits that arithmetic has left behind.
fn shortest(number: f64) -> String {
    let rounded = (number * 1e6).round() / 1e6;
    rounded.to_string()
}

fn pair(text: &str) -> Result<(u64, u64), String> {
    let (a, b) = text
        .split_once(':')
        .ok_or("two numbers with a colon, as 1:10")?;
    let (a, b) = (number(a)?, number(b)?);
    match a.max(b) <= u64::from(u32::MAX) {
        true => Ok((a, b)),
        false => Err("at most 4294967295".to_owned()),
    }
}

fn pattern(text: &str) -> Result<char, String> {
    match text {
        "R" | "S" | "P" | "G" | "Z" => Ok(text.chars().next().unwrap_or('R')),
        _ => Err(format!("R, S, P, G or Z, not \"{text}\"")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_option_has_one_fate() {
        for (name, ..) in OPTIONS {
            let fates = [REFUSED, OF_REFUSED, WITHOUT, LOST];
            let count = fates.iter().filter(|all| all.contains(name)).count();
            assert!(count <= 1, "{name}");
            assert!(meaning(&format!("--{name}")).is_some(), "{name}");
        }
        for name in [REFUSED, OF_REFUSED, WITHOUT, LOST].concat() {
            assert!(OPTIONS.iter().any(|row| row.0 == name), "{name}");
        }
    }
}
