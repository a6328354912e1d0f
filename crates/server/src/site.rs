//! The resources of the metrics port: metrics, health checks and the status page.
//!
//! All is read from what threads share, but for the average times to live ([`AverageTtls`]). Figures of the last ten
//! minutes are sampled here, once a second, and only if there is a metrics port. What shows users' data goes to peers on
//! this machine only, and while the default user has no password. Must not know: HTTP beyond a request and its reply.

use std::sync::{
    Arc, Mutex,
    atomic::{AtomicBool, Ordering},
};

use redline_engine::{
    REDIS_VERSION, REDLINE_VERSION,
    commandlog::Kind as Log,
    refusals::{Held, Reason},
    stats::{self, Totals},
};
use redline_net::{
    clock,
    http::{Reply, Request, Site},
    process,
    supervisor::Progress,
};
use redline_pages::charts::{Chart, DrawError, number};
use redline_pages::status::{History, Resource, Section, Status, Tile};
use redline_replica::link::State as LinkState;
use redline_spec::{self as spec, CommandId};

use crate::{
    info::{self, Facts},
    metrics,
    settings::Settings,
    shared::{Message, Shared},
};

/// Share of `maxmemory` above which the page warns.
const MEMORY_SHARE_MAX: f64 = 0.9;
/// Share of the workers' CPU time above which the page warns.
const CPU_SHARE_MAX: f64 = 0.9;
/// Entries of the slow log on the page.
const SLOW_ENTRIES_MAX: usize = 25;
/// Commands on the page, those with most time first.
const COMMANDS_MAX: usize = 40;
/// Characters of a call of the slow log on the page.
const CALL_CHARS_MAX: usize = 160;

/// Figures of a second, by their places in the history.
#[derive(Clone, Copy)]
enum Figure {
    Requests,
    HitShare,
    Memory,
    Resident,
    Clients,
    Input,
    Output,
    Keys,
    Evicted,
    Expired,
    Errors,
    UserCpus,
    SystemCpus,
    Rejected,
}

const FIGURES: usize = Figure::Rejected as usize + 1;

/// Classes of times: one below each bound of the histograms of metrics, and one for what is longer than all.
const TIMES: usize = metrics::BOUNDS + 1;

/// The resources: see the head of the module.
pub(crate) struct Pages {
    shared: Arc<Shared>,
    history: History<FIGURES>,
    /// Calls by the classes of their times.
    times: History<TIMES>,
    /// Calls up to the bounds of the classes, and all, since the start.
    times_before: Option<[u64; TIMES]>,
    before: Option<Sample>,
    progress: Progress,
    ttls: Arc<AverageTtls>,
}

/// Average times to live of the keys of each database. To find them takes stripes, which only a worker may: each reader
/// of metrics has one find them for the next reader.
#[derive(Default)]
struct AverageTtls {
    /// Database and milliseconds.
    found: Mutex<Vec<(u32, u64)>>,
    /// A worker is looking.
    is_asked: AtomicBool,
}

impl AverageTtls {
    fn found(&self) -> Vec<(u32, u64)> {
        self.found.lock().expect("no panic under a list").clone()
    }

    /// Has the first worker look, unless it is asked already.
    fn ask(self: &Arc<AverageTtls>, shared: &Shared) {
        if self.is_asked.swap(true, Ordering::AcqRel) {
            return;
        }
        let ttls = Arc::clone(self);
        let look = Message::Run(Box::new(move |worker| {
            let found = info::average_ttls_ms(worker);
            *ttls.found.lock().expect("no panic under a list") = found;
            ttls.is_asked.store(false, Ordering::Release);
        }));
        shared.workers()[0].mailbox.send(look);
    }
}

/// Counters of one moment.
struct Sample {
    at_us: u64,
    counters: [u64; 9],
    user_s: f64,
    system_s: f64,
}

impl Sample {
    fn now(shared: &Shared, totals: &Totals) -> Sample {
        let cpu = process::cpu_self();
        Sample {
            at_us: clock::monotonic_us(),
            counters: [
                totals.calls(),
                totals.hits(),
                totals.misses(),
                totals.net_in(),
                totals.net_out(),
                totals.evicted(),
                totals.expired(),
                totals.errors(),
                shared.connections_rejected.load(Ordering::Relaxed),
            ],
            user_s: cpu.user.as_secs_f64(),
            system_s: cpu.system.as_secs_f64(),
        }
    }
}

impl Site for Pages {
    fn answer(&mut self, request: &Request<'_>) -> Reply {
        match request.path {
            "/metrics" => {
                let page = metrics::page(&self.shared, &self.ttls.found());
                self.ttls.ask(&self.shared);
                Reply::metrics(page)
            }
            "/livez" => Reply::health(self.live()),
            "/readyz" => Reply::health(self.ready(request.query)),
            path if Resource::is_at(path) => self.status(request),
            _ => Reply::text(
                "404 Not Found",
                "There are / (the status page), /metrics, /livez and /readyz here.\n",
            ),
        }
    }

    fn tick(&mut self) {
        let totals = Totals::of(self.shared.executors());
        let now = Sample::now(&self.shared, &totals);
        if let Some(before) = &self.before {
            let figures = self.figures(before, &now);
            self.history.push(figures);
        }
        self.before = Some(now);
        let times = self.times_now();
        if let Some(before) = self.times_before.replace(times) {
            self.times.push(classes(&before, &times));
        }
        self.progress.look(&self.shared.turns());
    }
}

impl Pages {
    pub(crate) fn new(shared: Arc<Shared>) -> Pages {
        Pages {
            shared,
            history: History::default(),
            times: History::default(),
            times_before: None,
            before: None,
            progress: Progress::default(),
            ttls: Arc::default(),
        }
    }

    /// Returns the calls up to each bound of times, and all.
    fn times_now(&self) -> [u64; TIMES] {
        let mut times = [0; TIMES];
        let all = stats::distributions(self.shared.executors());
        for distribution in all.iter().filter(|times| times.count() > 0) {
            for (sum, bound_ns) in times.iter_mut().zip(metrics::bounds_ns()) {
                *sum += distribution.below(bound_ns);
            }
            times[TIMES - 1] += distribution.count();
        }
        times
    }

    fn figures(&self, before: &Sample, now: &Sample) -> [f64; FIGURES] {
        let seconds = (now.at_us.saturating_sub(before.at_us) as f64 / 1e6).max(1e-6);
        let counts = now.counters.iter().zip(&before.counters);
        let counts: Vec<f64> = counts
            .map(|(now, before)| now.saturating_sub(*before) as f64)
            .collect();
        let [
            calls,
            hits,
            misses,
            input,
            output,
            evicted,
            expired,
            errors,
            rejected,
        ] = counts[..]
        else {
            return [0.0; FIGURES];
        };
        let space = &self.shared.keyspace;
        let keys: u64 = space.used_databases().map(|db| space.key_count(db)).sum();
        // A second without a look-up keeps the share of the one before; before the first it is unknown.
        let hit_share = match hits + misses > 0.0 {
            true => 100.0 * hits / (hits + misses),
            false => {
                let known = self.history.over_time(Figure::HitShare as usize);
                known.last().map_or(f64::NAN, |(_, share)| *share)
            }
        };
        let mut figures = [0.0; FIGURES];
        for (figure, value) in [
            (Figure::Requests, calls / seconds),
            (Figure::HitShare, hit_share),
            (Figure::Memory, space.used_bytes() as f64),
            (
                Figure::Resident,
                process::resident_bytes().unwrap_or(0) as f64,
            ),
            (Figure::Clients, self.shared.connection_count() as f64),
            (Figure::Input, input / seconds),
            (Figure::Output, output / seconds),
            (Figure::Keys, keys as f64),
            (Figure::Evicted, evicted / seconds),
            (Figure::Expired, expired / seconds),
            (Figure::Errors, errors / seconds),
            (Figure::UserCpus, (now.user_s - before.user_s) / seconds),
            (
                Figure::SystemCpus,
                (now.system_s - before.system_s) / seconds,
            ),
            (Figure::Rejected, rejected),
        ] {
            figures[figure as usize] = value;
        }
        figures
    }

    /// Returns the reason why the process is to be restarted, if there is one.
    fn live(&self) -> Result<(), String> {
        let script = &self.shared.engine.running_script;
        match script.busy.load(Ordering::Acquire) {
            true => Ok(()),
            false => self.progress.check(),
        }
    }

    /// Returns the reason why clients are to be sent elsewhere, if there is one. With the query `replica`, also a replica
    /// that is not up to date with its primary is not ready.
    fn ready(&self, query: &str) -> Result<(), String> {
        if self.shared.ending.is_on() {
            return Err(ENDING.to_owned());
        }
        if let Some(why) = wrong(self.shared.engine.refusals.now()).next() {
            return Err(why.to_owned());
        }
        let asks_for_link = query.split('&').any(|word| word == "replica");
        match asks_for_link && self.has_lost_primary() {
            true => Err(LINK_DOWN.to_owned()),
            false => Ok(()),
        }
    }

    fn has_lost_primary(&self) -> bool {
        let follows = self.shared.settings.current().primary.is_some();
        follows && self.shared.following.link().state != LinkState::Streaming
    }

    /// Returns the fields of a section of INFO.
    fn fields(&self, section: &str) -> Vec<(String, String)> {
        let settings = self.shared.settings.current();
        let totals = Totals::of(self.shared.executors());
        let text = Facts::of(&self.shared, &settings).sections(&totals, &[section]);
        let fields = text.lines().filter_map(|line| line.split_once(':'));
        fields
            .map(|(name, value)| (name.to_owned(), value.trim_end().to_owned()))
            .collect()
    }

    fn status(&self, request: &Request<'_>) -> Reply {
        let settings = self.shared.settings.current();
        if !request.names_host(&settings.metrics_hosts) {
            return Reply::text(
                "421 Misdirected Request",
                "The status page is shown under an address, localhost, or a name of metrics-hosts.\n",
            );
        }
        let contents = || self.contents(&settings, request.is_local);
        let resource = Resource::at(request.path, request.query, contents);
        Reply::new(resource.status, resource.headers, resource.body)
    }

    fn contents(&self, settings: &Settings, is_local: bool) -> Result<Status, DrawError> {
        let totals = Totals::of(self.shared.executors());
        let port = self.shared.port.load(Ordering::Relaxed);
        let uptime_s = (clock::wall_us().saturating_sub(self.shared.started_us)) / 1_000_000;
        let role = if settings.primary.is_some() {
            "replica"
        } else {
            "primary"
        };
        let mut sections = vec![
            self.commands(&totals),
            self.keyspace(),
            self.section("Saving", "persistence"),
            self.section("Replication", "replication"),
            self.section("Clients", "clients"),
        ];
        // Whoever is here may read it by SLOWLOG as well, unless there is a password.
        if is_local && settings.acl.default_user().takes_any_password() {
            sections.insert(1, self.slow_log());
        }
        let chart = |title, unit, of: &[(&str, Figure)]| {
            let of: Vec<(&str, usize)> = of
                .iter()
                .map(|(name, figure)| (*name, *figure as usize))
                .collect();
            self.history.chart(title, unit, &of)
        };
        Ok(Status {
            title: format!("redline server, port {port}"),
            about: format!(
                "Redline {REDLINE_VERSION} (Redis {REDIS_VERSION}), {role}, process {}, workers: {}, up for {uptime_s} s",
                std::process::id(),
                self.shared.workers().len()
            ),
            problems: self.problems(settings),
            tiles: self.tiles(settings),
            charts: vec![
                chart("Requests", "requests/s", &[("", Figure::Requests)])?,
                chart(
                    "Memory",
                    "bytes",
                    &[
                        ("keys and values", Figure::Memory),
                        ("resident", Figure::Resident),
                    ],
                )?,
                chart(
                    "CPU time",
                    "CPUs",
                    &[("user", Figure::UserCpus), ("kernel", Figure::SystemCpus)],
                )?,
                chart(
                    "Network",
                    "bytes/s",
                    &[
                        ("from clients", Figure::Input),
                        ("to clients", Figure::Output),
                    ],
                )?,
                chart(
                    "Keys that went",
                    "keys/s",
                    &[("evicted", Figure::Evicted), ("expired", Figure::Expired)],
                )?,
                chart("Hits", "% of look-ups", &[("", Figure::HitShare)])?,
                self.latencies()?,
            ],
            sections,
        })
    }

    fn latencies(&self) -> Result<Chart, DrawError> {
        let bounds = std::iter::once(0).chain(metrics::bounds_ns());
        let rows: Vec<String> = bounds
            .map(|ns| match ns {
                0 => "0".to_owned(),
                ns if ns < 1 << 20 => format!("{} us", ns >> 10),
                ns if ns < 1 << 30 => format!("{} ms", ns >> 20),
                ns => format!("{} s", ns >> 30),
            })
            .collect();
        self.times.heat("Times of commands", "at least", &rows)
    }

    fn now(&self, figure: Figure) -> f64 {
        self.history.newest(figure as usize)
    }

    /// Returns what is wrong now, in words.
    fn problems(&self, settings: &Settings) -> Vec<String> {
        let mut problems = Vec::new();
        if self.shared.ending.is_on() {
            problems.push(ENDING.to_owned());
        }
        let held = self.shared.engine.refusals.now();
        problems.extend(wrong(held).map(str::to_owned));
        problems.extend(self.live().err());
        let (used, limit) = (self.now(Figure::Memory), settings.maxmemory_bytes as f64);
        if limit > 0.0 && used > limit * MEMORY_SHARE_MAX {
            problems.push(format!(
                "memory is at {:.0} % of maxmemory",
                100.0 * used / limit
            ));
        }
        let cpus = self.now(Figure::UserCpus) + self.now(Figure::SystemCpus);
        let workers = self.shared.workers().len();
        if cpus > workers as f64 * CPU_SHARE_MAX {
            problems.push(format!("{workers} workers use {cpus:.1} CPUs"));
        }
        if self.now(Figure::Rejected) > 0.0 {
            problems.push("connections are turned away (maxclients, protected mode)".to_owned());
        }
        if self.has_lost_primary() {
            problems.push(LINK_DOWN.to_owned());
        }
        problems
    }

    fn tiles(&self, settings: &Settings) -> Vec<Tile> {
        let of = |name, figure: Figure, text: &dyn Fn(f64) -> String| Tile {
            name,
            figure: text(self.now(figure)),
            past: self.history.over_time(figure as usize),
        };
        let with = |unit: &'static str| move |value: f64| format!("{}{unit}", number(value));
        let share = |percent: f64| match percent.is_finite() {
            true => format!("{percent:.1} %"),
            false => "no look-ups".to_owned(),
        };
        let memory = |used: f64| match settings.maxmemory_bytes {
            0 => format!("{}B", number(used)),
            limit => format!("{}B of {}B", number(used), number(limit as f64)),
        };
        vec![
            of("Requests", Figure::Requests, &with("/s")),
            of("Hits", Figure::HitShare, &share),
            of("Memory of keys and values", Figure::Memory, &memory),
            of("Clients", Figure::Clients, &with("")),
            of("Keys", Figure::Keys, &with("")),
            of("CPU time, user", Figure::UserCpus, &with(" CPUs")),
            of("CPU time, kernel", Figure::SystemCpus, &with(" CPUs")),
            of("From clients", Figure::Input, &with("B/s")),
            of("To clients", Figure::Output, &with("B/s")),
            of("Evicted", Figure::Evicted, &with(" keys/s")),
            of("Expired", Figure::Expired, &with(" keys/s")),
            of("Errors", Figure::Errors, &with("/s")),
        ]
    }

    fn commands(&self, totals: &Totals) -> Section {
        let all = stats::distributions(self.shared.executors());
        let ns: u64 = totals.commands.iter().map(|command| command.ns).sum();
        let calls: u64 = totals.commands.iter().map(|command| command.calls).sum();
        let share = |part: u64, whole: u64| 100.0 * part as f64 / whole.max(1) as f64;
        let mut used: Vec<_> = CommandId::ALL
            .iter()
            .zip(&totals.commands)
            .zip(&all)
            .filter(|((_, command), _)| command.calls + command.rejected > 0)
            .collect();
        used.sort_by_key(|((_, command), _)| std::cmp::Reverse(command.ns));
        let rows: Vec<Vec<String>> = used
            .into_iter()
            .take(COMMANDS_MAX)
            .map(|((id, command), times)| {
                let us = |percent| times.percentile_ns(percent).unwrap_or(0) as f64 / 1000.0;
                vec![
                    spec::row(*id).full_name.to_owned(),
                    command.calls.to_string(),
                    format!("{:.1} %", share(command.calls, calls)),
                    format!("{:.1} %", share(command.ns, ns)),
                    format!(
                        "{:.2}",
                        command.ns as f64 / 1000.0 / command.calls.max(1) as f64
                    ),
                    format!("{:.2}", us(50.0)),
                    format!("{:.2}", us(99.0)),
                    format!("{:.2}", us(99.9)),
                    command.failed.to_string(),
                    command.rejected.to_string(),
                ]
            })
            .collect();
        let head = [
            "command",
            "calls",
            "of calls",
            "of time",
            "mean, us",
            "p50, us",
            "p99, us",
            "p99.9, us",
            "failed",
            "rejected",
        ];
        Section::table("Commands since the start", &head, &rows)
    }

    fn slow_log(&self) -> Section {
        let newest = self.shared.command_logs.newest(Log::Slow, SLOW_ENTRIES_MAX);
        let rows: Vec<Vec<String>> = newest
            .iter()
            .map(|entry| {
                let words = entry.args.iter().map(|arg| String::from_utf8_lossy(arg));
                let call: String = words.collect::<Vec<_>>().join(" ");
                let age_s = (clock::wall_us() / 1_000_000).saturating_sub(entry.at_s.max(0) as u64);
                vec![
                    entry.id.to_string(),
                    format!("{age_s} s ago"),
                    entry.value.to_string(),
                    call.chars().take(CALL_CHARS_MAX).collect(),
                    entry.addr.clone(),
                    String::from_utf8_lossy(&entry.name).into_owned(),
                ]
            })
            .collect();
        let head = ["id", "when", "us", "call", "client", "client's name"];
        Section::table("Slow log", &head, &rows)
    }

    fn keyspace(&self) -> Section {
        let space = &self.shared.keyspace;
        let rows: Vec<Vec<String>> = space
            .used_databases()
            .filter(|db| space.key_count(*db) > 0)
            .map(|db| {
                vec![
                    format!("db{db}"),
                    space.key_count(db).to_string(),
                    space.expiring_key_count(db).to_string(),
                ]
            })
            .collect();
        Section::table("Keyspace", &["database", "keys", "with an expiry"], &rows)
    }

    fn section(&self, title: &'static str, name: &str) -> Section {
        let fields = self.fields(name).into_iter();
        let rows: Vec<Vec<String>> = fields.map(|(name, value)| vec![name, value]).collect();
        Section::table(title, &["field of INFO", "value"], &rows)
    }
}

/// Returns the new calls of each class of times, from the counts up to each bound.
fn classes(before: &[u64; TIMES], now: &[u64; TIMES]) -> [f64; TIMES] {
    let new: [u64; TIMES] = std::array::from_fn(|at| now[at].saturating_sub(before[at]));
    let below = |at: usize| if at == 0 { 0 } else { new[at - 1] };
    std::array::from_fn(|at| new[at].saturating_sub(below(at)) as f64)
}

const ENDING: &str = "the server is shutting down";
const LINK_DOWN: &str = "the link to the primary is down";

/// Reasons why the server is not ready for all calls, in words.
const REASONS: [(Reason, &str); 7] = [
    (Reason::Loading, "the data is being loaded"),
    (
        Reason::SaveFailed,
        "the last snapshot failed, and writes are refused (MISCONF)",
    ),
    (
        Reason::AppendFailed,
        "the append-only file cannot be written, and writes are refused (MISCONF)",
    ),
    (Reason::Emptied, "the primary's data is being loaded"),
    (
        Reason::Stale,
        "the primary is away, and old data is not served",
    ),
    (Reason::ClusterDown, "the cluster is not complete"),
    (
        Reason::NoRight,
        "this primary has no right to serve its shard now",
    ),
];

fn wrong(held: Held) -> impl Iterator<Item = &'static str> {
    let held_ones = REASONS.iter().filter(move |(reason, _)| held.has(*reason));
    held_ones.map(|(_, why)| *why)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn calls_are_counted_in_the_class_of_their_time() {
        let mut before = [0; TIMES];
        // Two calls before: one below the second bound, one longer than all.
        before[1..].fill(1);
        before[TIMES - 1] = 2;
        // Three more: one below the first bound, two below the third.
        let mut now = before.map(|count| count + 3);
        (now[0], now[1]) = (before[0] + 1, before[1] + 1);
        let classes = classes(&before, &now);
        assert_eq!(classes[..4], [1.0, 0.0, 2.0, 0.0]);
        assert_eq!(classes.iter().sum::<f64>(), 3.0);
    }
}
