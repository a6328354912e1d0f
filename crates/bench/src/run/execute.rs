//! One run from its first connection to its result.
//!
//! Must not know how the result is printed or kept.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{BufWriter, Write};
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::sync::mpsc;
use std::time::{Duration, Instant};

use hdrhistogram::serialization::V2DeflateSerializer;
use redline_net::process::{self, MachineTime};
use redline_net::tls::ClientTls;
use redline_net::{Address, Endpoint, clock, limits};
use redline_resp::{Value, encode_request};

use super::arguments::{OnError, RunPlan, TargetPlan};
use super::drive::{Choice, Drive, Manner};
use super::record::{self, Recorder, Row};
use super::result::{
    CommandResult, FORMAT, Latency, Party, Point, Requests, RunResult, Settings, Target, Weighted,
};
use super::series::{self, HdrLog, Series};
use crate::cause::parties::{Process, Snapshot, Used, stolen_share};
use crate::cause::preflight::Facts;
use crate::cause::verdict::Measurements;
use crate::control::Control;
use crate::failure::Failure;
use crate::load::{self, Observer, Plan, Totals};
use crate::workload::template::Template;
use crate::{EmbeddedServer, StartEmbedded, probe, target};

/// A server that has been found and answers, ready to be loaded.
pub struct Prepared {
    control: Control,
    address: Address,
    endpoint: Endpoint,
    plan: TargetPlan,
    tls: Option<ClientTls>,
    /// What INFO said at the start.
    info: Info,
    server: Option<Process>,
    proxy: Option<Process>,
    _embedded: Option<EmbeddedServer>,
}

/// The lines of INFO, by name.
type Info = BTreeMap<String, String>;

/// Descriptors beside those of connections.
const OTHER_FILES: u64 = 1100;
/// How long a question to the server may take.
const ANSWER_WITHIN: Duration = Duration::from_secs(3);
/// When to look again whether connections stand.
const UNTIL_STARTED: Duration = Duration::from_millis(5);
/// How often the server is pinged before a run.
const PINGS: usize = 21;
/// What a fill has under way on each connection, at least.
const LOAD_DEPTH: usize = 64;

impl Prepared {
    /// Starts the embedded server if asked for, connects, and finds out who answers.
    pub fn new(run: &RunPlan, start: Option<StartEmbedded<'_>>) -> Result<Prepared, Failure> {
        let plan = &run.target;
        let embedded = match (plan.embedded, start) {
            (false, _) => None,
            (true, Some(start)) => Some(start().map_err(Failure::Local)?),
            (true, None) => {
                return Err(Failure::Local(
                    "This program has no server built in (--embedded).".into(),
                ));
            }
        };
        let address = embedded
            .as_ref()
            .map_or_else(|| plan.address.clone(), |server| server.address.clone());
        let mut control = Control::new().map_err(|error| Failure::local("epoll", &error))?;
        let tls = plan.tls.as_ref().map(ClientTls::new).transpose();
        let tls = tls.map_err(|error| Failure::tls_options(&error))?;
        let probed = probe::probe(&mut control, &address, tls.as_ref(), &plan.auth)?;
        let process = |pid: u32| {
            Process::new(pid).map_err(|error| Failure::local(&format!("process {pid}"), &error))
        };
        let proxy = run.output.proxy_pid.map(process).transpose()?;
        let server = match run.output.server_pid {
            Some(pid) => Some(process(pid)?),
            // Whoever listens there is the proxy, if there is one.
            None if proxy.is_some() => None,
            None => process::listening_at(&probed.endpoint)
                .ok()
                .flatten()
                .and_then(|pid| Process::new(pid).ok()),
        };
        let mut prepared = Prepared {
            control,
            address,
            endpoint: probed.endpoint,
            plan: plan.clone(),
            tls,
            info: BTreeMap::new(),
            server,
            proxy,
            _embedded: embedded,
        };
        prepared.info = prepared.ask_info();
        Ok(prepared)
    }

    /// Asks the server, on a connection of its own; no replies if it (or a proxy before it) does not answer in time.
    fn ask(&mut self, requests: &[&[&str]]) -> Vec<Value> {
        let mut ask = || -> Result<Vec<Value>, Failure> {
            let (control, tls) = (&mut self.control, self.tls.as_ref());
            let (_, mut stream) = probe::connect(control, &self.address, tls)?;
            let (mut bytes, before) = (Vec::new(), usize::from(!self.plan.auth.is_empty()));
            if before > 0 {
                encode_request(&self.plan.auth, &mut bytes);
            }
            for request in requests {
                encode_request(*request, &mut bytes);
            }
            let deadline = Some(Instant::now() + ANSWER_WITHIN);
            let count = before + requests.len();
            let mut replies = probe::exchange(control, &mut stream, &bytes, count, deadline)?;
            Ok(replies.split_off(before))
        };
        ask().unwrap_or_default()
    }

    /// The lines of INFO.
    fn ask_info(&mut self) -> Info {
        let replies = self.ask(&[&["INFO"]]);
        text_of(replies.first())
            .lines()
            .filter_map(|line| line.split_once(':'))
            .map(|(name, value)| (name.to_owned(), value.trim().to_owned()))
            .collect()
    }

    /// What may spoil the figures.
    fn preflight(&mut self, plan: &RunPlan) -> Facts {
        let mut facts = Facts::of_machine();
        facts.is_local = Facts::is_local(&self.endpoint);
        facts.threads = plan.manner.threads.min(plan.manner.connections);
        facts.info = self.info.clone();
        let replies = self.ask(&[&["CONFIG", "GET", "loglevel"], &["CLIENT", "LIST"]]);
        if let Some(Value::Array(pair)) = replies.first()
            && let [_, level] = pair.as_slice()
        {
            facts.log_level = Some(text_of(Some(level)));
        }
        let flags = text_of(replies.get(1));
        let flags = flags
            .split([' ', '\n'])
            .filter_map(|word| word.strip_prefix("flags="));
        facts.monitors = flags.filter(|flags| flags.contains('O')).count();
        facts.ping_us = self.ping();
        facts.link_bytes_per_second = plan.output.link_mbit.map(|mbit| mbit * 1e6 / 8.0);
        facts.needed_bytes_per_second = plan.manner.rps.map(|rate| rate * plan.mean_bytes());
        facts
    }

    /// What half of some pings take at most, one after the other on one connection.
    fn ping(&mut self) -> Option<u64> {
        let mut ping = || -> Result<u64, Failure> {
            let (control, tls) = (&mut self.control, self.tls.as_ref());
            let (_, mut stream) = probe::connect(control, &self.address, tls)?;
            let mut times = Vec::new();
            let mut request = Vec::new();
            if !self.plan.auth.is_empty() {
                encode_request(&self.plan.auth, &mut request);
            }
            for _ in 0..PINGS {
                let count = 1 + usize::from(!request.is_empty());
                encode_request(&["PING"], &mut request);
                let begin = Instant::now();
                let deadline = Some(begin + ANSWER_WITHIN);
                probe::exchange(control, &mut stream, &request, count, deadline)?;
                times.push(begin.elapsed().as_micros() as u64);
                request.clear();
            }
            times.sort_unstable();
            Ok(times[times.len() / 2])
        };
        ping().ok()
    }

    fn server_name(&self) -> Option<String> {
        let field = |name: &str| self.info.get(name).map(String::as_str);
        let (name, version) = match (field("redline_version"), field("valkey_version")) {
            (Some(version), _) => ("redline", version),
            (_, Some(version)) => ("valkey", version),
            _ => ("redis", field("redis_version")?),
        };
        Some(format!("{name} {version}"))
    }

    fn connection_plan(&self, connections: usize) -> Plan {
        Plan {
            address: self.address.clone(),
            endpoint: self.endpoint.clone(),
            tls: self.tls.clone(),
            prefix: target::prefix(&self.plan.auth, false, self.plan.db, self.plan.resp3),
            clients: connections,
            keep_alive: true,
        }
    }

    /// Does what `plan` says; Ctrl-C and failures leave a result of what was measured until then, if anything was.
    pub fn run(&mut self, plan: &RunPlan) -> Result<Finished, Failure> {
        // As many as allowed; if they are too few, the connection that fails says so.
        let _ = limits::raise_open_files(plan.manner.connections as u64 + OTHER_FILES);
        let mut random = plan
            .seed
            .map_or_else(fastrand::Rng::new, fastrand::Rng::with_seed);
        if let Some(load) = &plan.load {
            self.fill(plan, load, &mut random)?;
        }
        let Some(path) = &plan.output.hdr else {
            return self.measure(plan, &mut random, None);
        };
        let failed = |error| Failure::local(&path.display().to_string(), &error);
        let mut out = BufWriter::new(File::create(path).map_err(failed)?);
        let mut serializer = V2DeflateSerializer::new();
        let log = series::begin_log(&mut out, &mut serializer).map_err(failed)?;
        let finished = self.measure(plan, &mut random, Some(log))?;
        out.flush().map_err(failed)?;
        Ok(finished)
    }

    /// Sends `load` once for each number of its sequence.
    fn fill(
        &mut self,
        plan: &RunPlan,
        load: &Template,
        random: &mut fastrand::Rng,
    ) -> Result<(), Failure> {
        let sequence = load.sequence().map_or(0, |sequence| sequence.count);
        let connections = plan.manner.connections;
        let threads = plan.manner.threads.min(connections);
        // Each thread takes every so-maniest number.
        let quotas: Vec<AtomicU64> = (0..threads as u64)
            .map(|thread| sequence.saturating_sub(thread).div_ceil(threads as u64))
            .map(|numbers| AtomicU64::new(numbers * load.requests() as u64))
            .collect();
        let (sender, _slices) = mpsc::channel();
        let inserted = Arc::default();
        let drives = quotas.iter().enumerate().map(|(thread, quota)| {
            let manner = Manner {
                rate: None,
                shift: 0.0,
                depth: plan.manner.pipeline.max(LOAD_DEPTH),
                window: false,
                warmup: Duration::ZERO,
                duration: None,
                count_errors: false,
                reconnect: false,
                timeout: None,
                reconnect_after: None,
            };
            let mut random = random.fork();
            let choice = Choice {
                renderer: load.renderer(thread, threads, plan.content, &inserted, &mut random),
                rows: 0..load.requests() as u32,
                weight: 1,
            };
            let recorder = Recorder::new(load.requests(), false, u64::MAX, sender.clone());
            Drive::new(manner, vec![choice], Some(quota), random, recorder)
        });
        let drives = drives.collect();
        let connection_plan = self.connection_plan(connections);
        let outcome = load::run(&mut self.control, connection_plan, drives, &mut Unwatched)?;
        outcome.failure.map_or(Ok(()), Err)
    }

    fn measure(
        &mut self,
        plan: &RunPlan,
        random: &mut fastrand::Rng,
        log: Option<HdrLog<'_>>,
    ) -> Result<Finished, Failure> {
        let manner = &plan.manner;
        let threads = manner.threads.min(manner.connections);
        let quota = manner.requests.map(AtomicU64::new);
        let (sender, slices) = mpsc::channel();
        let inserted: Arc<AtomicU64> = Arc::default();
        let rows: usize = plan.templates.iter().map(Template::requests).sum();
        let drives = (0..threads).map(|thread| {
            let mut random = random.fork();
            let mut first_row = 0;
            let choices = plan.templates.iter().zip(&plan.weights);
            let choices = choices.map(|(template, &weight)| {
                let rows = first_row..first_row + template.requests() as u32;
                first_row = rows.end;
                Choice {
                    renderer: template.renderer(
                        thread,
                        threads,
                        plan.content,
                        &inserted,
                        &mut random,
                    ),
                    rows,
                    weight,
                }
            });
            let choices = choices.collect();
            let paced = manner.rps.is_some();
            let slice_ns = plan.output.interval.as_nanos() as u64;
            Drive::new(
                Manner {
                    rate: manner.rps.map(|rate| rate / threads as f64),
                    shift: thread as f64 / threads as f64,
                    depth: manner.pipeline,
                    window: manner.window,
                    warmup: manner.warmup,
                    duration: manner.duration,
                    count_errors: manner.on_error == OnError::Count,
                    reconnect: manner.reconnect || manner.timeout.is_some(),
                    timeout: manner.timeout,
                    reconnect_after: manner.reconnect_after,
                },
                choices,
                quota.as_ref(),
                random,
                Recorder::new(rows, paced, slice_ns, sender.clone()),
            )
        });
        let drives = drives.collect();
        drop(sender);
        let facts = self.preflight(plan);
        let started_unix_ms = clock::wall_ms();
        let info_before = self.watches_by_info().then(|| self.ask_info());
        let connection_plan = self.connection_plan(manner.connections);
        let series = Series::new(slices, plan.output.interval, log);
        let mut watch = Watch::new(self, plan, series);
        let outcome = load::run(&mut self.control, connection_plan, drives, &mut watch)?;
        watch.finish();
        let (watched, series) = (watch.watched, watch.series);
        let info_after = self.watches_by_info().then(|| self.ask_info());
        let info = info_before.zip(info_after);
        let mut elapsed = outcome.elapsed.saturating_sub(manner.warmup);
        if let (Some(duration), None, None) = (manner.duration, &outcome.failure, manner.requests) {
            elapsed = elapsed.max(duration);
        }
        let points = series
            .finish(elapsed)
            .map_err(|error| Failure::local("--hdr", &error))?;
        let measured = Measured {
            plan,
            drives: outcome.loads,
            points,
            elapsed,
            watched,
            info: info.as_ref(),
            facts,
            prepared: self,
        };
        let failure = outcome.failure;
        let mut result = measured.result(threads, started_unix_ms);
        result.ended_early = failure.as_ref().map(Failure::to_string);
        Ok(Finished { result, failure })
    }

    /// Whether the server's use of the CPU has to be asked for.
    fn watches_by_info(&self) -> bool {
        self.server.is_none() && self.proxy.is_none() && self.info.contains_key("used_cpu_user")
    }
}

fn text_of(reply: Option<&Value>) -> String {
    let bytes = reply.and_then(Value::as_bytes).unwrap_or_default();
    String::from_utf8_lossy(bytes).into_owned()
}

/// What a run came to.
pub struct Finished {
    /// What was measured.
    pub result: RunResult,
    /// Why it ended before its time, if it did.
    pub failure: Option<Failure>,
}

/// Looks at nothing.
struct Unwatched;

impl Observer for Unwatched {
    fn next(&self) -> Option<Instant> {
        None
    }

    fn observe(&mut self, _totals: &Totals) -> Result<(), Failure> {
        Ok(())
    }
}

/// Looks at the processes while a run goes on: at the start of the measured time, then once a slice.
struct Watch<'a> {
    series: Series<'a>,
    server: Option<Process>,
    proxy: Option<Process>,
    warmup: Duration,
    interval: Duration,
    next: Instant,
    /// When the measured time began.
    from: Option<Instant>,
    watched: Watched,
}

/// What was seen.
#[derive(Default)]
struct Watched {
    server: Vec<Snapshot>,
    proxy: Vec<Snapshot>,
    machine: Option<(MachineTime, MachineTime)>,
    /// Of the looks, in the order of the snapshots, from the start of the measured time.
    at: Vec<Duration>,
}

impl<'a> Watch<'a> {
    fn new(prepared: &Prepared, plan: &RunPlan, series: Series<'a>) -> Watch<'a> {
        Watch {
            series,
            server: prepared.server.clone(),
            proxy: prepared.proxy.clone(),
            warmup: plan.manner.warmup,
            interval: plan.output.interval.max(Duration::from_millis(100)),
            next: Instant::now(),
            from: None,
            watched: Watched::default(),
        }
    }

    fn look(&mut self, from: Instant) {
        let watched = &mut self.watched;
        watched.at.push(from.elapsed());
        // A process that has ended gives no more figures.
        watched
            .server
            .extend(self.server.as_ref().and_then(Process::snapshot));
        watched
            .proxy
            .extend(self.proxy.as_ref().and_then(Process::snapshot));
        if let Ok(now) = process::machine_time() {
            let (first, _) = watched.machine.unwrap_or((now, now));
            watched.machine = Some((first, now));
        }
    }

    fn finish(&mut self) {
        if let Some(from) = self.from {
            self.look(from);
        }
    }
}

impl Observer for Watch<'_> {
    fn next(&self) -> Option<Instant> {
        Some(self.next)
    }

    fn observe(&mut self, totals: &Totals) -> Result<(), Failure> {
        let now = Instant::now();
        self.series.absorb();
        if let Some(from) = self.from {
            self.look(from);
            while self.next <= now {
                self.next += self.interval;
            }
        } else if totals.elapsed.is_zero() {
            self.next = now + UNTIL_STARTED;
        } else if totals.elapsed < self.warmup {
            self.next = now + (self.warmup - totals.elapsed);
        } else {
            let from = now - (totals.elapsed - self.warmup);
            self.from = Some(from);
            self.look(from);
            self.next = from + self.interval;
        }
        Ok(())
    }
}

/// Everything that a result is made of.
struct Measured<'a> {
    plan: &'a RunPlan,
    drives: Vec<Drive<'a>>,
    points: Vec<Point>,
    elapsed: Duration,
    watched: Watched,
    info: Option<&'a (Info, Info)>,
    facts: Facts,
    prepared: &'a Prepared,
}

impl Measured<'_> {
    fn result(mut self, threads: usize, started_unix_ms: u64) -> RunResult {
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
        let mut lag = load::histogram(record::DIGITS);
        for recorder in recorders() {
            record::add(&mut lag, &recorder.lag);
        }
        let elapsed_s = self.elapsed.as_secs_f64();
        let answered = total.values + total.nulls;
        let achieved_rps = answered as f64 / elapsed_s.max(1e-9);
        let commands = self.commands(elapsed_s);
        let reads = commands.iter().filter(|command| command.hit_rate.is_some());
        let (hits, misses) = reads.fold((0, 0), |(hits, misses), command| {
            (hits + command.values, misses + command.nulls)
        });
        let mut result = RunResult {
            format: FORMAT,
            redline_version: env!("CARGO_PKG_VERSION").to_owned(),
            started_unix_ms,
            target: Target {
                address: self.prepared.address.to_string(),
                embedded: plan.target.embedded,
                server: self.prepared.server_name(),
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
            parties: Vec::new(),
            verdict: Measurements::default().verdict(),
            warnings: Vec::new(),
        };
        self.judge(&mut result);
        self.warn(&mut result);
        result
    }

    /// All commands and threads together.
    fn total(&self) -> Row {
        let mut total = Row::new(self.plan.manner.rps.is_some());
        for drive in &self.drives {
            for row in &drive.recorder.rows {
                total.add(row);
            }
        }
        total
    }

    fn commands(&self, elapsed_s: f64) -> Vec<CommandResult> {
        let mut results = Vec::new();
        for template in &self.plan.templates {
            for name in template.names() {
                let mut row = Row::new(self.plan.manner.rps.is_some());
                for drive in &self.drives {
                    row.add(&drive.recorder.rows[results.len()]);
                }
                results.push(CommandResult {
                    hit_rate: is_read(&name)
                        .then(|| share(row.values, row.nulls))
                        .flatten(),
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
        results
    }

    /// The points, with what the processes used meanwhile.
    fn series(&mut self) -> Vec<Point> {
        let interval_s = self.plan.output.interval.as_secs_f64();
        let cpus = |snapshots: &[Snapshot]| -> Vec<f64> {
            let used = snapshots.windows(2).map(|pair| pair[1].since(&pair[0]));
            used.map(|used| used.cpu.total().as_secs_f64() / used.wall.as_secs_f64().max(1e-9))
                .collect()
        };
        let (server, proxy) = (cpus(&self.watched.server), cpus(&self.watched.proxy));
        let mut points = std::mem::take(&mut self.points);
        let mut looks = self.watched.at.iter().skip(1).enumerate().peekable();
        for point in &mut points {
            // The look whose span covers the middle of the piece.
            let middle_s = point.at_s + interval_s / 2.0;
            while looks
                .next_if(|(_, at)| at.as_secs_f64() < middle_s)
                .is_some()
            {}
            let look = looks.peek().map(|&(index, _)| index);
            point.server_cpus = look.and_then(|look| server.get(look).copied());
            point.proxy_cpus = look.and_then(|look| proxy.get(look).copied());
        }
        points
    }

    /// Fills in the parties and the verdict.
    fn judge(&self, result: &mut RunResult) {
        let replies = result.requests.values + result.requests.nulls + result.requests.errors;
        let mut generator = Used::default();
        for drive in &self.drives {
            let usage = &drive.usage;
            generator.wall = generator.wall.max(usage.wall);
            let waited = usage.waited.unwrap_or_default();
            generator.add_thread(usage.cpu, waited, Some(usage.sleeps));
        }
        let first_and_last = |snapshots: &[Snapshot]| match snapshots {
            [first, .., last] => Some(last.since(first)),
            _ => None,
        };
        let (server, server_by) = match first_and_last(&self.watched.server) {
            Some(used) => (Some(used), "proc"),
            None => (self.used_by_info(), "info"),
        };
        let proxy = first_and_last(&self.watched.proxy);
        result
            .parties
            .push(Party::of("generator", None, "threads", &generator, replies));
        let name = |process: &Option<Process>| {
            process
                .as_ref()
                .map(|process| (process.pid, process.name.clone()))
        };
        for (role, used, process, by) in [
            ("server", &server, name(&self.prepared.server), server_by),
            ("proxy", &proxy, name(&self.prepared.proxy), "proc"),
        ] {
            if let Some(used) = used {
                let process = process.as_ref().map(|(pid, name)| (*pid, name.as_str()));
                let party = Party::of(role, process, by, used, replies);
                result.parties.push(party);
            }
        }
        let fuller = result.sent_bytes.max(result.received_bytes);
        let link = self.plan.output.link_mbit;
        let measurements = Measurements {
            offered: result.settings.offered_rps,
            achieved: result.achieved_rps,
            client: generator.load(),
            server: server.map(|used| used.load()),
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

    /// What the server says of itself: all of its threads as one, and its main thread as the busiest.
    fn used_by_info(&self) -> Option<Used> {
        let (before, after) = self.info?;
        let span = |name: &str| {
            let seconds = |info: &Info| info.get(name)?.parse::<f64>().ok();
            let seconds = seconds(after)? - seconds(before)?;
            Duration::try_from_secs_f64(seconds).ok()
        };
        let (user, system) = (span("used_cpu_user")?, span("used_cpu_sys")?);
        let main = span("used_cpu_user_main_thread").zip(span("used_cpu_sys_main_thread"));
        let busiest = main.map_or(user + system, |(user, system)| user + system);
        Some(Used {
            // Asked before the connections stood, and after the last reply.
            wall: self.elapsed + self.plan.manner.warmup,
            cpu: process::CpuTime { user, system },
            threads: 1,
            busiest,
            ..Used::default()
        })
    }

    fn warn(&self, result: &mut RunResult) {
        let mut warnings = self.facts.findings();
        if let Some(rate) = result.hit_rate
            && rate < self.plan.manner.hit_rate_min
        {
            warnings.push(format!(
                "only {:.1} % of the reads found something: a miss costs less than a hit. Fill the server first (--load).",
                100.0 * rate
            ));
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

/// The share of hits, if there is anything to share.
fn share(hits: u64, misses: u64) -> Option<f64> {
    (hits + misses > 0).then(|| hits as f64 / (hits + misses) as f64)
}

/// Whether a null reply of this command is a miss.
fn is_read(name: &str) -> bool {
    let id = redline_spec::lookup(name.as_bytes());
    id.is_some_and(|id| {
        redline_spec::row(id)
            .flags
            .has(redline_spec::Flags::READONLY)
    })
}
