//! One run from its first connection to its result.
//!
//! Must not know how the result is printed or kept.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{BufWriter, Write};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::sync::mpsc;
use std::time::{Duration, Instant};

use hdrhistogram::serialization::V2DeflateSerializer;
use redline_net::process::{self, MachineTime};
use redline_net::tls::ClientTls;
use redline_net::{Address, Endpoint, Stream, clock, limits};
use redline_resp::{Value, encode_request};
use serde::{Deserialize, Serialize};

use super::arguments::{Incident, OnError, RunPlan, ServerPlan, TargetPlan};
use super::drive::{Choice, Drive, Manner};
use super::record::{self, Recorder, Row, Slice};
use super::result::{
    CommandResult, FORMAT, Latency, Node, OwnCost, Party, Point, Requests, RunResult, Settings,
    Target, Weighted,
};
use super::series::{self, HdrLog, Series};
use crate::cause::parties::{Process, Snapshot, Used, stolen_share};
use crate::cause::preflight::Facts;
use crate::cause::verdict::Measurements;
use crate::cluster::follow::{self, Counts, Source};
use crate::cluster::map::Map;
use crate::control::Control;
use crate::failure::Failure;
use crate::load::{self, Observer, Plan, Totals};
use crate::null_server::NullServer;
use crate::worker::Place;
use crate::workload::template::{Protocol, Template};
use crate::{EmbeddedServer, StartEmbedded, probe, target};

/// A server that has been found and answers, ready to be loaded.
pub struct Prepared {
    control: Control,
    /// At least one. Of a cluster all nodes, with those first that were named.
    servers: Vec<Server>,
    /// Who says where the data is, and what was said, if requests have to follow it.
    follows: Option<(Source, Map)>,
    plan: TargetPlan,
    tls: Option<ClientTls>,
    proxy: Option<Process>,
    _embedded: Option<EmbeddedServer>,
}

/// One server that takes part.
struct Server {
    plan: ServerPlan,
    endpoint: Endpoint,
    /// If it is on this machine.
    process: Option<Process>,
    /// What INFO said at the start.
    info: Info,
}

/// A connection to a node, over which it is asked one thing after the other.
pub struct NodeConnection(Stream);

/// The lines of INFO, by name.
type Info = BTreeMap<String, String>;

/// Descriptors beside those of connections.
const OTHER_FILES: u64 = 1100;
/// How long a question to the server may take.
const ANSWER_WITHIN: Duration = Duration::from_secs(3);
/// When servers that could not answer are asked again.
const ASK_AGAIN_AFTER: Duration = Duration::from_millis(50);
/// When to look again whether connections stand.
const UNTIL_STARTED: Duration = Duration::from_millis(5);
/// How often the server is pinged before a run.
const PINGS: usize = 21;
/// How long the generator is measured by itself.
const CALIBRATION: Duration = Duration::from_millis(200);
/// Over at most so many connections: to open more takes longer than what is measured.
const CALIBRATION_CONNECTIONS: usize = 200;
/// How long a node of a cluster may be silent, unless --timeout says otherwise.
const NODE_PATIENCE: Duration = Duration::from_secs(5);
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
        let mut control = Control::new().map_err(|error| Failure::local("epoll", &error))?;
        let tls = plan.tls.as_ref().map(ClientTls::new).transpose();
        let tls = tls.map_err(|error| Failure::tls_options(&error))?;
        let process = |pid: u32| {
            Process::new(pid).map_err(|error| Failure::local(&format!("process {pid}"), &error))
        };
        let proxy = run.output.proxy_pid.map(process).transpose()?;
        let mut prepared = Prepared {
            servers: Vec::new(),
            follows: None,
            plan: plan.clone(),
            tls: tls.clone(),
            proxy,
            control: Control::new().map_err(|error| Failure::local("epoll", &error))?,
            _embedded: None,
        };
        let sentinels = matches!(plan.source, Some(Source::Sentinels { .. }));
        let named = if sentinels {
            Vec::new()
        } else {
            plan.servers.clone()
        };
        for mut server in named {
            if let Some(embedded) = &embedded {
                server.address = embedded.address.clone();
            }
            let (address, tls) = (&server.address, tls.as_ref());
            let endpoint = match plan.protocol {
                Protocol::Resp => probe::probe(&mut control, address, tls, &server.auth)?.endpoint,
                Protocol::MemcacheText => probe::connect(&mut control, address, tls, None)?.0,
            };
            prepared.add(server, endpoint);
        }
        prepared.control = control;
        prepared._embedded = embedded;
        if let Some(source) = &plan.source {
            prepared.find_nodes(source)?;
        }
        if let Some(pid) = run.output.server_pid {
            prepared.servers[0].process = Some(process(pid)?);
        }
        for index in 0..prepared.servers.len() {
            prepared.servers[index].info = prepared.ask_info(index);
        }
        Ok(prepared)
    }

    fn add(&mut self, plan: ServerPlan, endpoint: Endpoint) {
        // Whoever listens there is the proxy, if there is one.
        let process = match self.proxy {
            Some(_) => None,
            None => process::listening_at(&endpoint).ok().flatten(),
        };
        self.servers.push(Server {
            plan,
            endpoint,
            process: process.and_then(|pid| Process::new(pid).ok()),
            info: Info::new(),
        });
    }

    /// Learns where the data is, and takes in the nodes that are named then.
    fn find_nodes(&mut self, source: &Source) -> Result<(), Failure> {
        let first = self.plan.servers[0].clone();
        let mut map = Map::of(first.address.clone());
        let mut said = Vec::new();
        let question = source.question();
        let found = self.plan.servers.clone().into_iter().any(|server| {
            let Some(node) = map.node(server.address.clone()) else {
                return false;
            };
            let reply = self.ask_where(source, &server);
            let reply = reply.unwrap_or(Value::NullBulk);
            said.push(format!("{}: {}", server.address, text_of(Some(&reply))));
            source.take(&mut map, &reply, node) && !map.primaries().is_empty()
        });
        if !found {
            return Err(Failure::Local(format!(
                "Nobody says where the data is ({}): {}",
                question.join(" "),
                said.join("; ")
            )));
        }
        let mut addresses: Vec<Address> = match source {
            Source::Cluster => (0..map.len())
                .map(|node| map.address(node).clone())
                .collect(),
            _ => map
                .primaries()
                .iter()
                .map(|&node| map.address(node).clone())
                .collect(),
        };
        if *source != Source::Cluster {
            let primary = ServerPlan {
                address: addresses[0].clone(),
                ..first.clone()
            };
            let role = self.ask(&primary, &[&["ROLE"]]).pop();
            addresses.extend(role.iter().flat_map(replicas_of));
        }
        for address in addresses {
            let endpoint = address
                .resolve()
                .ok()
                .and_then(|found| found.into_iter().next());
            let known = |server: &Server| Some(&server.endpoint) == endpoint.as_ref();
            if let Some(endpoint) = endpoint.clone().filter(|_| !self.servers.iter().any(known)) {
                let plan = ServerPlan {
                    address,
                    ..first.clone()
                };
                self.add(plan, endpoint);
            }
        }
        self.follows = Some((source.clone(), map));
        Ok(())
    }

    /// Where the data is now; asked until somebody says so, or the time is over.
    pub fn ask_map(&mut self, deadline: Instant) -> Result<Map, Failure> {
        let Some((source, map)) = self.follows.clone() else {
            return Ok(Map::of(self.servers[0].plan.address.clone()));
        };
        let mut asked = self.plan.servers.clone();
        if source == Source::Cluster {
            asked.extend(self.servers.iter().map(|server| server.plan.clone()));
        }
        loop {
            for server in &asked {
                let mut map = map.clone();
                let Some(node) = map.node(server.address.clone()) else {
                    continue;
                };
                let reply = self.ask_where(&source, server);
                let learned = reply.is_some_and(|reply| source.take(&mut map, &reply, node));
                if learned && map.is_whole() {
                    return Ok(map);
                }
            }
            if Instant::now() > deadline {
                return Err(Failure::Local(
                    "Nobody says where all of the data is.".into(),
                ));
            }
            self.pause()?;
        }
    }

    /// Lets servers that could not answer recover before they are asked again. The error may be Ctrl-C.
    pub fn pause(&mut self) -> Result<(), Failure> {
        let until = Instant::now() + ASK_AGAIN_AFTER;
        loop {
            if self.control.interrupted() {
                return Err(Failure::Interrupted);
            }
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Ok(());
            }
            self.control
                .wait(Some(left))
                .map_err(|error| Failure::local("epoll", &error))?;
        }
    }

    /// Where the data was when this was made.
    pub fn known_map(&self) -> Map {
        let known = self.follows.as_ref().map(|(_, map)| map.clone());
        known.unwrap_or_else(|| Map::of(self.servers[0].plan.address.clone()))
    }

    /// Whether keys are spread over the nodes by their slots.
    pub fn is_cluster(&self) -> bool {
        matches!(self.follows, Some((Source::Cluster, _)))
    }

    /// Connects to a node of the map, as who it was named for, or as the first server if nobody named it.
    pub fn connect_node(&mut self, address: &Address) -> Result<NodeConnection, Failure> {
        let found = self.servers.iter().map(|server| &server.plan);
        let mut known = self.plan.servers.iter().chain(found);
        let known = known.find(|plan| plan.address == *address);
        let server = ServerPlan {
            address: address.clone(),
            ..known.unwrap_or(&self.servers[0].plan).clone()
        };
        self.connect(&server).map(NodeConnection)
    }

    /// Asks over a connection, which is of no further use after an error. As many replies as requests.
    pub fn ask_node(
        &mut self,
        connection: &mut NodeConnection,
        requests: &[&[&str]],
    ) -> Result<Vec<Value>, Failure> {
        self.exchange(&mut connection.0, requests)
    }

    /// Asks a server where the data is. To a Sentinel nothing is said before: users and databases are those of the data.
    fn ask_where(&mut self, source: &Source, server: &ServerPlan) -> Option<Value> {
        let mut server = server.clone();
        if matches!(source, Source::Sentinels { .. }) {
            server.auth.clear();
            server.db = 0;
        }
        self.ask(&server, &[&source.question()]).pop()
    }

    /// Asks the server, on a connection of its own; no replies if it (or a proxy before it) does not answer in time.
    fn ask(&mut self, plan: &ServerPlan, requests: &[&[&str]]) -> Vec<Value> {
        if self.plan.protocol != Protocol::Resp {
            return Vec::new();
        }
        let connected = self.connect(plan);
        let replies = connected.and_then(|mut stream| self.exchange(&mut stream, requests));
        replies.unwrap_or_default()
    }

    /// A connection that speaks RESP2, whatever the run speaks, as the plan's user and in its database.
    fn connect(&mut self, plan: &ServerPlan) -> Result<Stream, Failure> {
        let (control, tls) = (&mut self.control, self.tls.as_ref());
        let deadline = Some(Instant::now() + ANSWER_WITHIN);
        let (_, mut stream) = probe::connect(control, &plan.address, tls, deadline)?;
        let prefix = target::prefix(&plan.auth, false, plan.db, false);
        if prefix.replies > 0 {
            let (bytes, count) = (&prefix.bytes, prefix.replies as usize);
            let replies = probe::exchange(control, &mut stream, bytes, count, deadline)?;
            if let Some(error) = replies.iter().find(|reply| reply.is_error()) {
                return Err(Failure::Reply(text_of(Some(error))));
            }
        }
        Ok(stream)
    }

    fn exchange(
        &mut self,
        stream: &mut Stream,
        requests: &[&[&str]],
    ) -> Result<Vec<Value>, Failure> {
        let mut bytes = Vec::new();
        for request in requests {
            encode_request(*request, &mut bytes);
        }
        let deadline = Some(Instant::now() + ANSWER_WITHIN);
        let control = &mut self.control;
        probe::exchange(control, stream, &bytes, requests.len(), deadline)
    }

    /// The lines of INFO.
    fn ask_info(&mut self, server: usize) -> Info {
        let plan = self.servers[server].plan.clone();
        let replies = self.ask(&plan, &[&["INFO"]]);
        text_of(replies.first())
            .lines()
            .filter_map(|line| line.split_once(':'))
            .map(|(name, value)| (name.to_owned(), value.trim().to_owned()))
            .collect()
    }

    /// What may spoil the figures.
    fn preflight(&mut self, plan: &RunPlan) -> Facts {
        let mut facts = Facts::of_machine();
        facts.is_local = self
            .servers
            .iter()
            .any(|server| Facts::is_local(&server.endpoint));
        facts.threads = plan.manner.threads.min(plan.manner.connections);
        facts.info = self.servers[0].info.clone();
        let main = self.servers[0].plan.clone();
        let replies = self.ask(
            &main,
            &[&["CONFIG", "GET", "loglevel"], &["CLIENT", "LIST"]],
        );
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
        if self.plan.protocol != Protocol::Resp {
            return None;
        }
        let mut ping = || -> Result<u64, Failure> {
            let plan = self.servers[0].plan.clone();
            let mut stream = self.connect(&plan)?;
            let mut times = Vec::new();
            for _ in 0..PINGS {
                let begin = Instant::now();
                self.exchange(&mut stream, &[&["PING"]])?;
                times.push(begin.elapsed().as_micros() as u64);
            }
            times.sort_unstable();
            Ok(times[times.len() / 2])
        };
        ping().ok()
    }

    fn server_name(&self) -> Option<String> {
        let info = &self.servers[0].info;
        let field = |name: &str| info.get(name).map(String::as_str);
        let (name, version) = match (field("redline_version"), field("valkey_version")) {
            (Some(version), _) => ("redline", version),
            (_, Some(version)) => ("valkey", version),
            _ => match field("redis_version") {
                Some(version) => ("redis", version),
                // What says nothing of itself has the name of its process.
                None => return self.servers[0].process.as_ref().map(|p| p.name.clone()),
            },
        };
        Some(format!("{name} {version}"))
    }

    fn connection_plan(&self, connections: usize) -> Plan {
        let place = |server: &Server| Place {
            endpoint: server.endpoint.clone(),
            prefix: target::prefix(&server.plan.auth, false, server.plan.db, self.plan.resp3),
        };
        Plan {
            address: self.servers[0].plan.address.clone(),
            places: self.servers.iter().map(place).collect(),
            tls: self.tls.clone(),
            clients: connections,
            keep_alive: true,
        }
    }

    /// Runs the drives to their end: each on connections of its own, or following the data through a cluster.
    fn drive<'a>(
        &mut self,
        drives: Vec<Drive<'a>>,
        connections: usize,
        following: Following,
        observer: &mut dyn Observer,
    ) -> Result<(load::Outcome<Drive<'a>>, Counts), Failure> {
        let plan = self.connection_plan(connections);
        let Some((source, map)) = &self.follows else {
            let outcome = load::run(&mut self.control, plan, drives, observer)?;
            return Ok((outcome, Counts::default()));
        };
        let manner = follow::Manner {
            source: source.clone(),
            reads: self.plan.reads,
            patience: following.patience,
            keeps_acks: following.keeps_acks,
            slice: following.slice,
        };
        follow::run(&mut self.control, plan, drives, &manner, map, observer)
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
        let protocol = self.plan.protocol;
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
                protocol,
                count_errors: false,
                reconnect: false,
                timeout: None,
                reconnect_after: None,
            };
            let mut random = random.fork();
            let choice = Choice {
                renderer: load.renderer(
                    protocol,
                    thread,
                    threads,
                    plan.content,
                    &inserted,
                    &mut random,
                ),
                rows: 0..load.requests() as u32,
                weight: 1,
            };
            let recorder = Recorder::new(load.requests(), false, u64::MAX, sender.clone());
            Drive::new(manner, vec![choice], Some(quota), random, recorder)
        });
        let drives = drives.collect();
        let following = Following::of(plan);
        let (outcome, _) = self.drive(drives, connections, following, &mut Unwatched)?;
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
        let drives = self.drives(plan, random, quota.as_ref(), &sender);
        drop(sender);
        let facts = self.preflight(plan);
        let started_unix_ms = clock::wall_ms();
        let info_before = self.infos();
        let series = Series::new(slices, plan.output.interval, log);
        let mut watch = Watch::new(self, plan, series);
        let following = Following::of(plan);
        let (outcome, counts) = self.drive(drives, manner.connections, following, &mut watch)?;
        watch.finish();
        let (watched, series) = (watch.watched, watch.series);
        let happened = watch.incident.map(|incident| incident.happened);
        let info: Vec<_> = info_before.into_iter().zip(self.infos()).collect();
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
            info,
            counts: &counts,
            facts,
            prepared: self,
        };
        let failure = outcome.failure;
        let mut result = measured.result(threads, started_unix_ms);
        result.ended_early = failure.as_ref().map(Failure::to_string);
        Ok(Finished {
            result,
            failure,
            counts,
            happened,
        })
    }

    /// The load of each thread, as `plan` says.
    fn drives<'a>(
        &self,
        plan: &RunPlan,
        random: &mut fastrand::Rng,
        quota: Option<&'a AtomicU64>,
        sender: &mpsc::Sender<Slice>,
    ) -> Vec<Drive<'a>> {
        let manner = &plan.manner;
        let threads = manner.threads.min(manner.connections);
        let inserted: Arc<AtomicU64> = Arc::default();
        let rows: usize = plan.templates.iter().map(Template::requests).sum();
        let follows = self.follows.is_some();
        let protocol = self.plan.protocol;
        let drives = (0..threads).map(|thread| {
            let mut random = random.fork();
            let mut first_row = 0;
            let choices = plan.templates.iter().zip(&plan.weights);
            let choices = choices.map(|(template, &weight)| {
                let rows = first_row..first_row + template.requests() as u32;
                first_row = rows.end;
                Choice {
                    renderer: template.renderer(
                        protocol,
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
                    protocol,
                    count_errors: manner.on_error == OnError::Count,
                    reconnect: manner.reconnect || manner.timeout.is_some(),
                    // Who follows the data gives silent nodes up itself.
                    timeout: manner.timeout.filter(|_| !follows),
                    reconnect_after: manner.reconnect_after,
                },
                choices,
                quota,
                random,
                Recorder::new(rows, paced, slice_ns, sender.clone()),
            )
        });
        drives.collect()
    }

    /// What the generator costs by itself: the same requests, in a closed loop, to a server that does nothing. `None` if
    /// they are not RESP, or if it cannot be measured now.
    pub fn calibrate(&mut self, plan: &RunPlan) -> Option<OwnCost> {
        if self.plan.protocol != Protocol::Resp {
            return None;
        }
        let server = NullServer::start().ok()?;
        let mut plan = plan.clone();
        let manner = &mut plan.manner;
        let paced = manner.rps.is_some();
        (manner.rps, manner.requests, manner.reconnect_after) = (None, None, None);
        (manner.warmup, manner.duration) = (CALIBRATION / 10, Some(CALIBRATION));
        manner.connections = manner.connections.min(CALIBRATION_CONNECTIONS);
        // In the open loop the depth is a limit, and not what is sent at once.
        if paced {
            manner.pipeline = 1;
        }
        let mut random = fastrand::Rng::with_seed(1);
        let (sender, _slices) = mpsc::channel();
        let drives = self.drives(&plan, &mut random, None, &sender);
        let mut connections = self.connection_plan(plan.manner.connections);
        connections.tls = None;
        connections.places.truncate(1);
        connections.places[0].endpoint = server.endpoint().clone();
        let outcome = load::run(&mut self.control, connections, drives, &mut Unwatched).ok()?;
        let (mut used, mut total) = (Used::default(), Row::new(false));
        for drive in &outcome.loads {
            used.add_thread(drive.usage.cpu, Duration::ZERO, None);
            for row in &drive.recorder.rows {
                total.add(row);
            }
        }
        if outcome.failure.is_some() || total.values == 0 {
            return None;
        }
        let us = |span: Duration| span.as_secs_f64() * 1e6 / total.values as f64;
        Some(OwnCost {
            requests: total.values,
            user_us_per_request: us(used.cpu.user),
            system_us_per_request: us(used.cpu.system),
            response_us: Latency::of(&total.response),
        })
    }

    /// What servers say whose use of the CPU has to be asked for, in their order.
    fn infos(&mut self) -> Vec<Option<Info>> {
        let mut infos = Vec::new();
        for index in 0..self.servers.len() {
            let server = &self.servers[index];
            let asks = server.process.is_none()
                && self.proxy.is_none()
                && server.info.contains_key("used_cpu_user");
            infos.push(asks.then(|| self.ask_info(index)));
        }
        infos
    }
}

/// How requests follow their data through a cluster.
#[derive(Clone, Copy)]
struct Following {
    patience: Duration,
    slice: Duration,
    keeps_acks: bool,
}

impl Following {
    fn of(plan: &RunPlan) -> Following {
        Following {
            patience: plan.manner.timeout.unwrap_or(NODE_PATIENCE),
            slice: plan.output.interval,
            keeps_acks: plan.incident.is_some(),
        }
    }
}

/// The replicas that a primary names (ROLE).
fn replicas_of(role: &Value) -> Vec<Address> {
    let Value::Array(parts) = role else {
        return Vec::new();
    };
    let Some(Value::Array(replicas)) = parts.get(2) else {
        return Vec::new();
    };
    let address = |replica: &Value| match replica {
        Value::Array(parts) => {
            let host = text_of(parts.first());
            let port = text_of(parts.get(1)).parse().ok()?;
            Some(Address::tcp(host, port))
        }
        _ => None,
    };
    replicas.iter().filter_map(address).collect()
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
    /// How requests found their node.
    pub counts: Counts,
    /// What was made to fail.
    pub happened: Option<Happened>,
}

/// The user's command, which is run at its time.
struct Happening {
    incident: Incident,
    child: Option<Child>,
    /// When to look next whether it has ended.
    look_at: Option<Instant>,
    happened: Happened,
}

/// What became of the user's command; times in seconds from the start of the measured time.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Happened {
    /// When it was started; `None` if the run ended before.
    pub started_s: Option<f64>,
    /// When it had ended; `None` if it had not when the run ended.
    pub ended_s: Option<f64>,
    /// How it ended.
    pub status: Option<String>,
}

impl Happening {
    fn new(incident: Incident) -> Happening {
        Happening {
            incident,
            child: None,
            look_at: None,
            happened: Happened::default(),
        }
    }

    /// When to look again.
    fn next(&self, from: Instant) -> Option<Instant> {
        match self.happened.started_s {
            None => Some(from + self.incident.at),
            Some(_) => self.look_at,
        }
    }

    fn look(&mut self, from: Instant, now: Instant) -> Result<(), Failure> {
        let at_s = now.duration_since(from).as_secs_f64();
        if self.happened.started_s.is_none() && now >= from + self.incident.at {
            let mut shell = Command::new("sh");
            // What it says must not be mistaken for our result.
            let spawned = shell
                .args(["-c", &self.incident.command])
                .stdin(Stdio::null())
                .stdout(Stdio::null())
                .spawn();
            self.child = Some(spawned.map_err(|error| Failure::local("sh", &error))?);
            self.happened.started_s = Some(at_s);
        }
        let ended = self.child.as_mut().map(Child::try_wait);
        self.look_at = self.child.as_ref().map(|_| now + UNTIL_STARTED);
        if let Some(Ok(Some(status))) = ended {
            self.happened.ended_s = Some(at_s);
            self.happened.status = Some(status.to_string());
            (self.child, self.look_at) = (None, None);
        }
        Ok(())
    }
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
    servers: Vec<(Endpoint, Option<Process>)>,
    incident: Option<Happening>,
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
    /// Of each server, in their order, by look; `None` when it did not run.
    servers: Vec<Vec<Option<Snapshot>>>,
    proxy: Vec<Snapshot>,
    machine: Option<(MachineTime, MachineTime)>,
    /// Of the looks, in the order of the snapshots, from the start of the measured time.
    at: Vec<Duration>,
}

impl<'a> Watch<'a> {
    fn new(prepared: &Prepared, plan: &RunPlan, series: Series<'a>) -> Watch<'a> {
        Watch {
            series,
            servers: prepared
                .servers
                .iter()
                .map(|server| (server.endpoint.clone(), server.process.clone()))
                .collect(),
            incident: plan.incident.clone().map(Happening::new),
            proxy: prepared.proxy.clone(),
            warmup: plan.manner.warmup,
            interval: plan.output.interval.max(Duration::from_millis(100)),
            next: Instant::now(),
            from: None,
            watched: Watched {
                servers: vec![Vec::new(); prepared.servers.len()],
                ..Watched::default()
            },
        }
    }

    fn look(&mut self, from: Instant) {
        let watched = &mut self.watched;
        watched.at.push(from.elapsed());
        // A process that has ended gives no more figures.
        for ((endpoint, process), snapshots) in self.servers.iter_mut().zip(&mut watched.servers) {
            let snapshot = process.as_ref().and_then(Process::snapshot);
            // A server that was started again is another process. One that was never found is not looked for again.
            if snapshot.is_none() && process.is_some() {
                let found = process::listening_at(endpoint).ok().flatten();
                let found = found.and_then(|pid| Process::new(pid).ok());
                *process = found.or(process.take());
            }
            snapshots.push(snapshot);
        }
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
        let incident = self.incident.as_ref().zip(self.from);
        let due = incident.and_then(|(incident, from)| incident.next(from));
        Some(due.map_or(self.next, |due| due.min(self.next)))
    }

    fn observe(&mut self, totals: &Totals) -> Result<(), Failure> {
        let now = Instant::now();
        self.series.absorb();
        if let (Some(incident), Some(from)) = (&mut self.incident, self.from) {
            incident.look(from, now)?;
        }
        if let Some(from) = self.from {
            if now < self.next {
                return Ok(());
            }
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
    /// Of each server, before and after.
    info: Vec<(Option<Info>, Option<Info>)>,
    counts: &'a Counts,
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
                address: self.prepared.servers[0].plan.address.to_string(),
                nodes: self.nodes(),
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

    /// The servers, with what each has answered where requests look for their node.
    fn nodes(&self) -> Vec<Node> {
        let node = |address: String| Node {
            replies: self.counts.by_node.get(&address).copied(),
            address,
        };
        let servers = self.prepared.servers.iter();
        let mut nodes: Vec<Node> = servers
            .map(|server| node(server.plan.address.to_string()))
            .collect();
        // Some were met on the way.
        let met = self.counts.by_node.keys().cloned();
        let known: Vec<String> = nodes.iter().map(|node| node.address.clone()).collect();
        nodes.extend(met.filter(|address| !known.contains(address)).map(node));
        nodes
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
        let proxy = cpus(&self.watched.proxy);
        let servers: Vec<Vec<Option<f64>>> = self
            .watched
            .servers
            .iter()
            .map(|looks| {
                let pairs = looks.windows(2).map(|pair| {
                    let (before, after) = (pair[0].as_ref()?, pair[1].as_ref()?);
                    let used = after.since(before);
                    Some(used.cpu.total().as_secs_f64() / used.wall.as_secs_f64().max(1e-9))
                });
                pairs.collect()
            })
            .collect();
        let of_servers = |look: usize| -> Vec<Option<f64>> {
            let at = servers.iter().map(|cpus| cpus.get(look).copied().flatten());
            at.collect()
        };
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
            let nodes = look.map(of_servers).unwrap_or_default();
            // All servers together; none if nothing is known of any.
            point.server_cpus = nodes
                .iter()
                .flatten()
                .copied()
                .reduce(|all, cpus| all + cpus);
            if nodes.len() > 1 {
                point.node_cpus = nodes;
            }
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
        let proxy = first_and_last(&self.watched.proxy);
        result
            .parties
            .push(Party::of("generator", None, "threads", &generator, replies));
        let name = |process: &Option<Process>| {
            process
                .as_ref()
                .map(|process| (process.pid, process.name.clone()))
        };
        let mut busiest: Option<Used> = None;
        for (index, server) in self.prepared.servers.iter().enumerate() {
            let looks = self.watched.servers[index].iter().flatten();
            let (used, by) = match first_and_last(&looks.cloned().collect::<Vec<_>>()) {
                Some(used) => (Some(used), "proc"),
                None => (self.used_by_info(index), "info"),
            };
            let Some(used) = used else { continue };
            let process = name(&server.process);
            let process = process.as_ref().map(|(pid, name)| (*pid, name.as_str()));
            result
                .parties
                .push(Party::of("server", process, by, &used, replies));
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
            result
                .parties
                .push(Party::of("proxy", process, "proc", used, replies));
        }
        let fuller = result.sent_bytes.max(result.received_bytes);
        let link = self.plan.output.link_mbit;
        let measurements = Measurements {
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

    /// What the server says of itself: all of its threads as one, and its main thread as the busiest.
    fn used_by_info(&self, server: usize) -> Option<Used> {
        let (before, after) = self.info.get(server)?;
        let (before, after) = (before.as_ref()?, after.as_ref()?);
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
