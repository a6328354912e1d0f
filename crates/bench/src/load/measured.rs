//! Makes the result of a run from the records of its threads and from the observations during the run.
//!
//! Sends no requests: the run is over.

use std::collections::BTreeMap;
use std::time::Duration;

use redline_net::process::{self, MachineTime};

use super::drive::Drive;
use super::execute::Prepared;
use super::plan::RunPlan;
use super::record::{self, Recorder, Row};
use super::result::{
    CommandResult, FORMAT, Latency, Node, Party, Point, Requests, RunResult, Settings, Target,
    Weighted,
};
use super::server::{Info, Server};
use super::watch::Watched;
use crate::load::cause::parties::{Process, Used, stolen_share};
use crate::load::cause::preflight::Facts;
use crate::load::cause::verdict::Measurements;
use crate::load::cluster::follow::Counts;
use crate::load::engine;
use crate::load::workload::template::Protocol;

/// Shortest run in which CPU times are read twice.
const MEANINGFUL: Duration = Duration::from_millis(50);

/// The machine's time comes in ticks of 10 ms: over a shorter time they cannot be attributed.
const ATTRIBUTABLE: Duration = Duration::from_millis(500);

/// Counters of INFO that show a load's effect on the server.
const COUNTERS: [&str; 10] = [
    "total_commands_processed",
    "total_net_input_bytes",
    "total_net_output_bytes",
    "keyspace_hits",
    "keyspace_misses",
    "expired_keys",
    "evicted_keys",
    "total_error_replies",
    "total_connections_received",
    "rejected_connections",
];

/// All inputs of a result.
pub struct Measured<'a> {
    /// The plan of the run.
    pub plan: &'a RunPlan,
    /// The load of each thread, at its end.
    pub drives: Vec<Drive<'a>>,
    /// The time series, without CPU use of the processes.
    pub points: Vec<Point>,
    /// The measured time.
    pub elapsed: Duration,
    /// Observations during the run.
    pub watched: Watched,
    /// INFO of each server, before and after.
    pub(super) info: Vec<(Option<Info>, Option<Info>)>,
    /// Counts of redirects.
    pub counts: &'a Counts,
    /// Facts from before the run.
    pub facts: Facts,
    /// The servers that the run loaded.
    pub prepared: &'a Prepared,
}

impl Measured<'_> {
    /// Returns the result, without an early end and the generator's own cost.
    pub fn result(mut self, threads: usize, started_unix_ms: u64) -> RunResult {
        let series = self.series();
        let (manner, plan) = (&self.plan.manner, self.plan);
        let total = self.total();
        let recorders = || self.drives.iter().map(|drive| &drive.recorder);
        let sum = |figure: fn(&Recorder) -> u64| recorders().map(figure).sum::<u64>();
        let requests = Requests {
            sent: sum(|recorder| recorder.sent),
            values: total.values,
            nulls: total.nulls,
            errors: total.errors,
            unsent: sum(|recorder| recorder.unsent),
            unanswered: sum(|recorder| recorder.unanswered),
            lost: sum(|recorder| recorder.lost),
            connections_lost: sum(|recorder| recorder.connections_lost),
            reconnects_failed: sum(|recorder| recorder.reconnects_failed),
        };
        let mut lag = engine::histogram(record::DIGITS);
        for recorder in recorders() {
            record::add(&mut lag, &recorder.lag);
        }
        let elapsed_s = self.elapsed.as_secs_f64();
        let answered = total.values + total.nulls;
        let achieved_rps = answered as f64 / elapsed_s.max(1e-9);
        let (commands, (hits, misses)) = self.commands(elapsed_s);
        let mut result = RunResult {
            format: FORMAT,
            redline_version: env!("CARGO_PKG_VERSION").to_owned(),
            started_unix_ms,
            target: Target {
                address: self.prepared.servers[0].plan.address.to_string(),
                nodes: self.nodes(),
                embedded: plan.target.embedded,
                server: self.prepared.servers[0].name(),
                tls: plan.target.tls.is_some(),
            },
            settings: settings(plan, threads),
            elapsed_s,
            ended_early: None,
            requests,
            achieved_rps,
            hit_rate: share(hits, misses),
            response_us: Latency::with_curve(&total.response),
            service_us: total.service.as_ref().map(Latency::with_curve),
            schedule_lag_us: manner.rps.map(|_| Latency::of(&lag)),
            commands,
            series,
            sent_bytes: sum(|recorder| recorder.sent_bytes),
            received_bytes: sum(|recorder| recorder.received_bytes),
            ping_us: self.facts.ping_us,
            own_cost: None,
            redirects: self
                .prepared
                .follows
                .is_some()
                .then(|| self.counts.redirects.clone()),
            parties: Vec::new(),
            verdict: Measurements::default().verdict(),
            warnings: Vec::new(),
        };
        self.judge(&mut result);
        self.warn(&mut result);
        result
    }

    /// Returns the servers, with the replies of each if requests follow their node.
    fn nodes(&self) -> Vec<Node> {
        let node = |address: String| Node {
            replies: self.counts.by_node.get(&address).copied(),
            address,
            counters: BTreeMap::new(),
        };
        let servers = self.prepared.servers.iter().enumerate();
        let mut nodes: Vec<Node> = servers
            .map(|(index, server)| Node {
                counters: self.counters(index),
                ..node(server.plan.address.to_string())
            })
            .collect();
        // Some were discovered during the run.
        let met = self.counts.by_node.keys().cloned();
        let known: Vec<String> = nodes.iter().map(|node| node.address.clone()).collect();
        nodes.extend(met.filter(|address| !known.contains(address)).map(node));
        nodes
    }

    /// Returns the growth of a server's own counters, warm-up included; none if it does not report them, or was restarted.
    fn counters(&self, server: usize) -> BTreeMap<String, u64> {
        let Some((Some(before), Some(after))) = self.info.get(server) else {
            return BTreeMap::new();
        };
        let grown = |name: &&str| {
            let number = |info: &Info| info.get(*name)?.parse::<u64>().ok();
            let grown = number(after)?.checked_sub(number(before)?)?;
            Some(((*name).to_owned(), grown))
        };
        COUNTERS.iter().filter_map(grown).collect()
    }

    /// Returns the sum of all commands and threads.
    fn total(&self) -> Row {
        let mut total = Row::new(self.plan.manner.rps.is_some());
        for drive in &self.drives {
            for row in &drive.recorder.rows {
                total.add(row);
            }
        }
        total
    }

    /// Returns the figures by command, and hits and misses of all reads that show them.
    fn commands(&self, elapsed_s: f64) -> (Vec<CommandResult>, (u64, u64)) {
        let (mut results, mut all) = (Vec::new(), (0, 0));
        for template in &self.plan.templates {
            for (name, items) in template.names().into_iter().zip(template.items_asked()) {
                let mut row = Row::new(self.plan.manner.rps.is_some());
                for drive in &self.drives {
                    row.add(&drive.recorder.rows[results.len()]);
                }
                let (hits, misses) = match self.plan.target.protocol {
                    Protocol::Resp => hits_and_misses(&name, &row),
                    Protocol::MemcacheText => items_found_and_missed(items, &row),
                };
                all = (all.0 + hits, all.1 + misses);
                results.push(CommandResult {
                    hit_rate: share(hits, misses),
                    name,
                    template: template.text.clone(),
                    values: row.values,
                    nulls: row.nulls,
                    errors: row.errors,
                    rps: (row.values + row.nulls) as f64 / elapsed_s.max(1e-9),
                    response_us: Latency::with_curve(&row.response),
                    service_us: row.service.as_ref().map(Latency::of),
                });
            }
        }
        (results, all)
    }

    /// Returns the points, with the CPU use of the processes.
    fn series(&mut self) -> Vec<Point> {
        let interval_s = self.plan.output.interval.as_secs_f64();
        let of_servers = |look: usize| -> Vec<Option<f64>> {
            let servers = self.watched.servers.iter();
            let at = servers.map(|looks| looks.cpus.get(look).copied().flatten());
            at.collect()
        };
        let mut points = std::mem::take(&mut self.points);
        let mut looks = self.watched.at.iter().skip(1).enumerate().peekable();
        for point in &mut points {
            // The observation whose span covers the middle of the point.
            let middle_s = point.at_s + interval_s / 2.0;
            while looks
                .next_if(|(_, at)| at.as_secs_f64() < middle_s)
                .is_some()
            {}
            let look = looks.peek().map(|&(index, _)| index);
            let nodes = look.map(of_servers).unwrap_or_default();
            // Sum of all servers; none if none is known.
            point.server_cpus = nodes
                .iter()
                .flatten()
                .copied()
                .reduce(|all, cpus| all + cpus);
            if nodes.len() > 1 {
                point.node_cpus = nodes;
            }
            point.proxy_cpus =
                look.and_then(|look| self.watched.proxy.cpus.get(look).copied().flatten());
        }
        points
    }

    /// Sets the parties and the verdict.
    fn judge(&self, result: &mut RunResult) {
        let replies = result.requests.values + result.requests.nulls + result.requests.errors;
        let mut generator = Used::default();
        for drive in &self.drives {
            let usage = &drive.usage;
            generator.wall = generator.wall.max(usage.wall);
            let waited = usage.waited.unwrap_or_default();
            generator.add_thread(usage.cpu, waited, Some(usage.sleeps));
        }
        let proxy = self.watched.proxy.used();
        result.parties.push(Party {
            memory: self.watched.own_memory,
            ..Party::of("generator", None, "threads", &generator, replies)
        });
        let name = |process: &Option<Process>| {
            process
                .as_ref()
                .map(|process| (process.pid, process.name.clone()))
        };
        let mut busiest: Option<Used> = None;
        for (index, server) in self.prepared.servers.iter().enumerate() {
            let looks = &self.watched.servers[index];
            let (used, by) = match looks.used() {
                Some(used) => (Some(used), "proc"),
                None => (self.used_by_info(index), "info"),
            };
            let Some(used) = used else { continue };
            let process = name(&server.process);
            let process = process.as_ref().map(|(pid, name)| (*pid, name.as_str()));
            result.parties.push(Party {
                memory: looks.memory,
                ..Party::of("server", process, by, &used, replies)
            });
            let share = |used: &Used| used.load().busiest;
            if busiest
                .as_ref()
                .is_none_or(|known| share(known) < share(&used))
            {
                busiest = Some(used);
            }
        }
        if let Some(used) = &proxy {
            let process = name(&self.prepared.proxy);
            let process = process.as_ref().map(|(pid, name)| (*pid, name.as_str()));
            result.parties.push(Party {
                memory: self.watched.proxy.memory,
                ..Party::of("proxy", process, "proc", used, replies)
            });
        }
        let fuller = result.sent_bytes.max(result.received_bytes);
        let link = self.plan.output.link_mbit;
        let measurements = Measurements {
            server_unknown: busiest.is_none().then(|| self.why_unknown()),
            too_short: self.is_too_short(),
            offered: result.settings.offered_rps,
            achieved: result.achieved_rps,
            client: generator.load(),
            server: busiest.map(|used| used.load()),
            proxy: proxy.map(|used| used.load()),
            bytes_per_second: fuller as f64 / result.elapsed_s.max(1e-9),
            link_bytes_per_second: link.map(|mbit| mbit * 1e6 / 8.0),
            stolen: self
                .watched
                .machine
                .map_or(0.0, |(before, after)| stolen_share(&before, &after)),
        };
        result.verdict = measurements.verdict();
    }

    /// Returns true if the run was so short that shares of its time mean nothing.
    fn is_too_short(&self) -> bool {
        self.elapsed < MEANINGFUL
    }

    /// Returns why the server's resources are not known.
    fn why_unknown(&self) -> &'static str {
        let mut servers = self.prepared.servers.iter();
        if self.is_too_short() {
            "the run was over before it was looked at twice"
        } else if self.prepared.proxy.is_some() {
            "its process was not named (--server-pid)"
        } else if servers.any(|server| server.process.is_some()) {
            "its process was not there at two looks"
        } else {
            "its process was not found on this machine (--server-pid names it), and INFO does not say what it used"
        }
    }

    /// Returns the resources that the server used according to INFO: all of its threads as one, and its main thread as
    /// the busiest.
    fn used_by_info(&self, server: usize) -> Option<Used> {
        if self.prepared.servers[server].process.is_some() {
            return None;
        }
        let (before, after) = self.info.get(server)?;
        let (before, after) = (before.as_ref()?, after.as_ref()?);
        let cpu = cpu_by_info(before, after, "")?;
        let busiest = cpu_by_info(before, after, "_main_thread").unwrap_or(cpu);
        Some(Used {
            // Asked before the connections were established, and after the last reply.
            wall: self.elapsed + self.plan.manner.warmup,
            cpu,
            threads: 1,
            busiest: busiest.total(),
            ..Used::default()
        })
    }

    /// Returns the CPUs that other processes used meanwhile; `None` if the run was too short, or a party's use is not known.
    fn others_cpus(&self, result: &RunResult) -> Option<f64> {
        let (before, after) = self.watched.machine?;
        let (first, last) = (self.watched.at.first()?, self.watched.at.last()?);
        let wall = last.saturating_sub(*first);
        let servers = &self.prepared.servers;
        let is_hidden = |server: &Server| {
            server.process.is_none() && !server.is_listed && Facts::is_local(&server.endpoint)
        };
        if wall < ATTRIBUTABLE || servers.iter().any(is_hidden) {
            return None;
        }
        // Interrupts belong to no process, and those of the loopback to the parties.
        let used = |time: &MachineTime| time.total - time.idle - time.interrupts - time.stolen;
        let all = used(&after).saturating_sub(used(&before)).as_secs_f64() / wall.as_secs_f64();
        let here = result.parties.iter();
        let here = here.filter(|party| party.measured_by != "info");
        let parties = here.map(|party| (party.user_s + party.system_s) / party.wall_s.max(1e-9));
        Some(all - parties.sum::<f64>())
    }

    fn warn(&mut self, result: &mut RunResult) {
        self.facts.others_cpus = self.others_cpus(result);
        let mut warnings = self.facts.findings();
        if self.is_too_short() && result.requests.sent > 0 {
            warnings.push(format!(
                "{:.1} ms were measured: too little to tell whose CPUs were used for what, and what was the limit.",
                self.elapsed.as_secs_f64() * 1e3
            ));
        }
        let manner = &self.plan.manner;
        if let Some(rate) = result.hit_rate
            && manner.misses_many(rate)
        {
            warnings.push(format!(
                "only {:.1} % of the reads found something: a miss costs less than a hit. Fill the server first (--load).",
                100.0 * rate
            ));
        }
        let asks = manner.hit_rate_min.is_some_and(|share| share > 0.0);
        if asks && result.hit_rate.is_none() && result.requests.values > 0 {
            let text = "--hit-rate-min has no effect: no reply told whether anything was found.";
            warnings.push(text.to_owned());
        }
        let waiting = result.requests.unsent + result.requests.unanswered;
        if waiting > 0 {
            warnings.push(format!(
                "{waiting} requests were not answered when the run ended: their response times are counted with what \
                 they had waited until then, and would have been longer."
            ));
        }
        let requests = &result.requests;
        if requests.connections_lost > 0 {
            warnings.push(format!(
                "{} connections were lost, with {} requests under way, whose response times are counted with what they \
                 had waited until then; {} attempts to connect again failed.",
                requests.connections_lost, requests.lost, requests.reconnects_failed
            ));
        }
        for node in &result.target.nodes {
            let grown = |name: &str| node.counters.get(name).copied().unwrap_or(0);
            let evicted = grown("evicted_keys");
            if evicted > 0 {
                warnings.push(format!(
                    "{} evicted {evicted} keys: what is written does not fit into its maxmemory, and evicting is part of \
                     the figures.",
                    node.address
                ));
            }
            let rejected = grown("rejected_connections");
            if rejected > 0 {
                warnings.push(format!(
                    "{} rejected {rejected} connections: it had as many as its maxclients.",
                    node.address
                ));
            }
        }
        if self.counts.redirects.resent > 0 {
            warnings.push(format!(
                "{} requests were sent again since their connection was lost or silent: they may have been executed twice.",
                self.counts.redirects.resent
            ));
        }
        for drive in &self.drives {
            for text in drive.recorder.error_texts.keys() {
                let warning = format!("seen during the run: {text}");
                if !warnings.contains(&warning) {
                    warnings.push(warning);
                }
            }
        }
        result.warnings = warnings;
    }
}

fn settings(plan: &RunPlan, threads: usize) -> Settings {
    let manner = &plan.manner;
    let commands = plan.templates.iter().zip(&plan.weights);
    Settings {
        commands: commands
            .map(|(template, &weight)| Weighted {
                template: template.text.clone(),
                weight,
            })
            .collect(),
        offered_rps: manner.rps,
        connections: manner.connections,
        threads,
        pipeline: manner.pipeline,
        window: manner.window,
        warmup_s: manner.warmup.as_secs_f64(),
        duration_s: manner.duration.map(|duration| duration.as_secs_f64()),
        requests: manner.requests,
        interval_s: plan.output.interval.as_secs_f64(),
        seed: plan.seed,
    }
}

/// Returns the share of hits, if there are any reads.
fn share(hits: u64, misses: u64) -> Option<f64> {
    (hits + misses > 0).then(|| hits as f64 / (hits + misses) as f64)
}

/// Reads that answer null or an empty array for a miss, and something else for a hit: not EXISTS, whose miss is a
/// number.
const TELLING_READS: [&str; 22] = [
    "DUMP",
    "EXGET",
    "EXHGET",
    "EXHGETWITHVER",
    "EXZRANK",
    "EXZREVRANK",
    "EXZSCORE",
    "GEODIST",
    "GET",
    "GETEX",
    "HGET",
    "HRANDFIELD",
    "JSON.GET",
    "LINDEX",
    "LPOS",
    "RANDOMKEY",
    "SRANDMEMBER",
    "VEMB",
    "ZRANDMEMBER",
    "ZRANK",
    "ZREVRANK",
    "ZSCORE",
];

/// Returns the CPU time of all of a server's threads, or of its `_main_thread`, between two replies to INFO.
pub(super) fn cpu_by_info(before: &Info, after: &Info, of: &str) -> Option<process::CpuTime> {
    let span = |name: &str| {
        let seconds = |info: &Info| info.get(&format!("{name}{of}"))?.parse::<f64>().ok();
        let seconds = seconds(after)? - seconds(before)?;
        Duration::try_from_secs_f64(seconds).ok()
    };
    Some(process::CpuTime {
        user: span("used_cpu_user")?,
        system: span("used_cpu_sys")?,
    })
}

/// Reads of many keys, fields or members, whose replies have an element for each, and null for a miss.
const READS_OF_MANY: [&str; 11] = [
    "EXHMGET",
    "EXHMGETWITHVER",
    "EXZMSCORE",
    "GEOHASH",
    "GEOPOS",
    "HGETDEL",
    "HGETEX",
    "HMGET",
    "JSON.MGET",
    "MGET",
    "ZMSCORE",
];

/// Returns the numbers of hits and misses of a command, as far as its replies show them.
fn hits_and_misses(name: &str, row: &Row) -> (u64, u64) {
    if TELLING_READS.contains(&name) {
        (row.values - row.empty, row.nulls + row.empty)
    } else if READS_OF_MANY.contains(&name) {
        (
            row.elements.saturating_sub(row.null_elements),
            row.null_elements,
        )
    } else {
        (0, 0)
    }
}

/// Returns the numbers of items that a memcached command found and did not find: each reply has the found ones, of
/// `items`.
fn items_found_and_missed(items: u64, row: &Row) -> (u64, u64) {
    if items == 0 {
        return (0, 0);
    }
    let asked = items * (row.values + row.nulls);
    (row.elements, asked.saturating_sub(row.elements))
}
