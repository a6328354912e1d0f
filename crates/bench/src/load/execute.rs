//! One run from its first connection to its result.
//!
//! Must not know how the result is printed or saved.

mod fill;

use std::fs::File;
use std::io::{BufWriter, Write};
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::sync::mpsc;
use std::time::{Duration, Instant};

use hdrhistogram::serialization::V2DeflateSerializer;
use redline_net::process;
use redline_net::tls::ClientTls;
use redline_net::{Address, Endpoint, Stream, clock};
use redline_resp::{Value, encode_request};

use super::arguments::OnError;
use super::drive::{Choice, Drive, Manner};
use super::measured::{self, Measured};
use super::plan::{RunPlan, SILENCE_MAX, ServerPlan, TargetPlan};
use super::progress::Progress;
use super::record::{Recorder, Row, Slice};
use super::result::{Latency, OwnCost, RunResult};
use super::series::{self, HdrLog, Series};
use super::server::{Info, Server};
use super::watch::{Happened, Watch};
use crate::load::cause::parties::{Process, Snapshot, Used};
use crate::load::cause::preflight::Facts;
use crate::load::cluster::follow::{self, Counts};
use crate::load::cluster::map::Map;
use crate::load::cluster::source::Source;
use crate::load::control::Control;
use crate::load::engine::{self, Observer, Plan, Totals};
use crate::load::failure::{Failure, said};
use crate::load::null_server::NullServer;
use crate::load::worker::{HANDSHAKE_WITHIN, Place};
use crate::load::workload::template::{Protocol, Template};
use crate::load::{probe, target};
use crate::{EmbeddedServer, StartEmbedded};

/// A server that was found and answers, ready for a load.
pub struct Prepared {
    control: Control,
    /// At least one. Of a cluster all nodes, named ones first.
    pub(super) servers: Vec<Server>,
    /// Source of the map and the map itself, if requests follow the data.
    pub(super) follows: Option<(Source, Map)>,
    plan: TargetPlan,
    tls: Option<ClientTls>,
    pub(super) proxy: Option<Process>,
    /// Runs are short, and many: the checks around each are made once.
    is_sliced: bool,
    /// The run in words, before its progress.
    label: String,
    /// Facts from that one check.
    facts: Option<Facts>,
    _embedded: Option<EmbeddedServer>,
}

/// A connection to a node, for one question after the other.
pub struct NodeConnection(Stream);

/// Time-out of a question to the server.
const ANSWER_WITHIN: Duration = Duration::from_secs(3);
/// Pause before servers that could not answer are asked again.
const ASK_AGAIN_AFTER: Duration = Duration::from_millis(50);
/// Number of pings before a run.
const PINGS: usize = 21;
/// Duration of the measurement of the generator's own cost.
const CALIBRATION: Duration = Duration::from_millis(200);
/// Largest number of connections in it: to open more takes longer than the measurement.
const CALIBRATION_CONNECTIONS: usize = 200;
/// Time-out of a silent node of a cluster, without --timeout.
const NODE_PATIENCE: Duration = Duration::from_secs(5);
impl Prepared {
    /// Starts the embedded server if asked for, connects, and identifies the servers.
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
        let control = if run.output.live {
            Control::of_screen()
        } else {
            Control::new()
        };
        let mut control = control.map_err(|error| Failure::local("epoll", &error))?;
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
            is_sliced: false,
            label: String::new(),
            facts: None,
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
                Protocol::Resp => {
                    probe::probe(&mut control, address, tls, &server.auth, server.db)?.endpoint
                }
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
            let is_named = index == 0 && run.output.server_pid.is_some();
            if !is_named {
                prepared.servers[index].doubt_process();
            }
            let (before, rest) = prepared.servers.split_at_mut(index);
            rest[0].recognise(before);
        }
        Ok(prepared)
    }

    /// Prepares for many short runs, of which only their own figures matter: the machine and the server are examined
    /// once, and CPU use of servers is measured from before the first request until after the last.
    pub fn slice(&mut self) {
        self.is_sliced = true;
    }

    /// Sets the words before the progress of runs.
    pub fn label(&mut self, label: String) {
        self.label = label;
    }

    /// Returns the bar of a run, if it has one.
    pub(super) fn progress(&self, plan: &RunPlan) -> Option<Progress> {
        match self.is_sliced {
            true => None,
            false => Progress::of_run(plan, &self.label),
        }
    }

    /// Returns the first server's address, and its name if it has told it.
    pub fn server(&self) -> String {
        let server = &self.servers[0];
        let address = server.plan.address.to_string();
        match server.name() {
            Some(name) => format!("{address} ({name})"),
            None => address,
        }
    }

    fn add(&mut self, plan: ServerPlan, endpoint: Endpoint) {
        // The listening process is the proxy, if there is one.
        let process = match self.proxy {
            Some(_) => None,
            None => process::listening_at(&endpoint).ok().flatten(),
        };
        let process = process.and_then(|pid| Process::new(pid).ok());
        self.servers.push(Server::new(plan, endpoint, process));
    }

    /// Finds the location of the data, and adds the nodes named by it.
    fn find_nodes(&mut self, source: &Source) -> Result<(), Failure> {
        let first = self.plan.servers[0].clone();
        let mut map = Map::of(first.address.clone());
        let mut said = Vec::new();
        let question = source.question();
        let found = self.plan.servers.clone().into_iter().any(|server| {
            let Some(node) = map.node(server.address.clone()) else {
                return false;
            };
            match self.ask_where(source, &server) {
                Ok(reply) if source.take(&mut map, &reply, node) && !map.primaries().is_empty() => {
                    true
                }
                Ok(reply) if reply.is_error() => {
                    said.push(format!("{}: {}", server.address, text_of(Some(&reply))));
                    false
                }
                Ok(_) => {
                    said.push(format!("{} does not know", server.address));
                    false
                }
                // It names the address.
                Err(failure @ Failure::Connect { .. }) => {
                    said.push(failure.to_string());
                    false
                }
                Err(failure) => {
                    said.push(format!("{}: {failure}", server.address));
                    false
                }
            }
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

    /// Returns the current map; asks until a server answers, or the deadline.
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
                let learned = reply.is_ok_and(|reply| source.take(&mut map, &reply, node));
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

    /// Waits for servers that could not answer before they are asked again. The error may be Ctrl-C.
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

    /// Swaps the receiver of Ctrl-C with another; only one of both gets it.
    pub fn swap_control(&mut self, other: &mut Prepared) {
        std::mem::swap(&mut self.control, &mut other.control);
    }

    /// Returns the addresses of the servers that report to be the primary, if servers are asked for their role.
    pub fn who_is_primary(&mut self) -> Vec<Address> {
        if !matches!(self.follows, Some((Source::Roles { .. }, _))) {
            return Vec::new();
        }
        let mut primaries = Vec::new();
        for server in self.plan.servers.clone() {
            let role = self.ask(&server, &[&["ROLE"]]);
            if let Some(Value::Array(parts)) = role.first()
                && text_of(parts.first()) == "master"
            {
                primaries.push(server.address);
            }
        }
        primaries
    }

    /// Returns the map from when this was made.
    pub fn known_map(&self) -> Map {
        let known = self.follows.as_ref().map(|(_, map)| map.clone());
        known.unwrap_or_else(|| Map::of(self.servers[0].plan.address.clone()))
    }

    /// Returns true if keys are distributed over the nodes by slots.
    pub fn is_cluster(&self) -> bool {
        matches!(self.follows, Some((Source::Cluster, _)))
    }

    /// Connects to a node of the map, with its own credentials, or with those of the first server if it was not named.
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

    /// Sends requests over a connection, which is not usable after an error. Returns as many replies.
    pub fn ask_node(
        &mut self,
        connection: &mut NodeConnection,
        requests: &[&[&str]],
    ) -> Result<Vec<Value>, Failure> {
        self.exchange(&mut connection.0, requests)
    }

    /// Asks a server for the location of the data. A Sentinel has its own users, and no databases.
    fn ask_where(&mut self, source: &Source, server: &ServerPlan) -> Result<Value, Failure> {
        let mut server = server.clone();
        if let Some(auth) = source.sentinel_auth(&server.address) {
            server.auth = auth.to_vec();
            server.db = 0;
        }
        let mut replies = self.try_ask(&server, &[&source.question()])?;
        replies.pop().ok_or(Failure::Closed)
    }

    /// Asks the server, on a separate connection; no replies if it (or a proxy before it) times out.
    fn ask(&mut self, plan: &ServerPlan, requests: &[&[&str]]) -> Vec<Value> {
        if self.plan.protocol != Protocol::Resp {
            return Vec::new();
        }
        self.try_ask(plan, requests).unwrap_or_default()
    }

    fn try_ask(&mut self, plan: &ServerPlan, requests: &[&[&str]]) -> Result<Vec<Value>, Failure> {
        let mut stream = self.connect(plan)?;
        self.exchange(&mut stream, requests)
    }

    /// Returns a connection with RESP2, in any run, as the plan's user and in its database.
    fn connect(&mut self, plan: &ServerPlan) -> Result<Stream, Failure> {
        let (control, tls) = (&mut self.control, self.tls.as_ref());
        let deadline = Instant::now() + ANSWER_WITHIN;
        let (_, mut stream) = probe::connect(control, &plan.address, tls, Some(deadline))?;
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
        let deadline = Instant::now() + ANSWER_WITHIN;
        let control = &mut self.control;
        probe::exchange(control, stream, &bytes, requests.len(), deadline)
    }

    /// Returns the lines of INFO.
    fn ask_info(&mut self, server: usize) -> Info {
        let plan = self.servers[server].plan.clone();
        let replies = self.ask(&plan, &[&["INFO"]]);
        text_of(replies.first())
            .lines()
            .filter_map(|line| line.split_once(':'))
            .map(|(name, value)| (name.to_owned(), value.trim().to_owned()))
            .collect()
    }

    /// Collects the facts that may spoil the figures.
    fn preflight(&mut self, plan: &RunPlan) -> Facts {
        let mut facts = Facts::of_machine();
        facts.is_local = self.servers.iter().any(|server| {
            let is_here = server.process.is_some() || server.forwarder.is_some();
            is_here || Facts::is_local(&server.endpoint)
        });
        let forwarder = self.servers[0].forwarder.as_ref();
        facts.forwarder = forwarder.map(|process| (process.name.clone(), process.pid));
        facts.threads = plan.manner.threads.min(plan.manner.connections);
        facts.info = self.servers[0].info.clone();
        facts.names_proxy = self.proxy.is_some();
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

    /// Returns the median time of some pings in microseconds, one after the other on one connection.
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

    fn connection_plan(&self, connections: usize) -> Plan {
        let place = |server: &Server| Place {
            address: server.plan.address.clone(),
            endpoint: server.endpoint.clone(),
            prefix: target::prefix(&server.plan.auth, false, server.plan.db, self.plan.resp3),
        };
        Plan {
            places: self.servers.iter().map(place).collect(),
            tls: self.tls.clone(),
            clients: connections,
            keep_alive: true,
        }
    }

    /// Runs the drives to their end: each on its own connections, or following the data through a cluster.
    fn drive<'a>(
        &mut self,
        drives: Vec<Drive<'a>>,
        connections: usize,
        following: Following,
        observer: &mut dyn Observer,
    ) -> Result<(engine::Outcome<Drive<'a>>, Counts), Failure> {
        let plan = self.connection_plan(connections);
        let Some((source, map)) = &self.follows else {
            let outcome = engine::run(&mut self.control, plan, drives, observer)?;
            return Ok((outcome, Counts::default()));
        };
        let manner = follow::Manner {
            source: source.clone(),
            reads: self.plan.reads,
            patience: following.patience,
            silence_max: following.silence_max,
            keeps_acks: following.keeps_acks,
            slice: following.slice,
        };
        follow::run(&mut self.control, plan, drives, &manner, map, observer)
    }

    /// Executes `plan`; after Ctrl-C and failures the result has the measurements until then, if there are any.
    pub fn run(&mut self, plan: &RunPlan) -> Result<Finished, Failure> {
        // A load that follows the data has a connection to each node; the embedded server has the other ends.
        let nodes = match &self.follows {
            Some((_, map)) => map.primaries().len().max(1),
            None if self.plan.embedded => 2,
            None => 1,
        };
        engine::allow_connections(plan.manner.connections, nodes, plan.manner.threads)?;
        let mut random = plan
            .seed
            .map_or_else(fastrand::Rng::new, fastrand::Rng::with_seed);
        if let Some(load) = &plan.load {
            self.fill(plan, load, &mut random)?;
        }
        let Some(path) = &plan.output.hdr else {
            return self.measure(plan, &mut random, None);
        };
        let failed = |error: std::io::Error| Failure::local(&path.display().to_string(), &error);
        let mut out = BufWriter::new(File::create(path).map_err(failed)?);
        let mut serializer = V2DeflateSerializer::new();
        let log = series::begin_log(&mut out, &mut serializer).map_err(failed)?;
        let mut finished = self.measure(plan, &mut random, Some(log))?;
        let flushed = out.flush().err();
        finished.log = finished.log.or(flushed.map(failed));
        Ok(finished)
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
        let facts = match self.facts.take().filter(|_| self.is_sliced) {
            Some(facts) => facts,
            None => self.preflight(plan),
        };
        self.facts = Some(facts.clone());
        let started_unix_ms = clock::wall_ms();
        let info_before = self.infos(plan);
        let series = Series::new(slices, plan.output.interval, log);
        let mut watch = Watch::new(self, plan, series)?;
        let following = Following::of(plan);
        let before = self.snapshots();
        let (outcome, counts) = self.drive(drives, manner.connections, following, &mut watch)?;
        let after = self.snapshots();
        watch.finish();
        drop(outcome.open);
        let (watched, series) = (watch.watched, watch.series);
        let happened = watch.incident.map(|incident| incident.happened);
        let info: Vec<_> = info_before.into_iter().zip(self.infos(plan)).collect();
        let replies = outcome
            .loads
            .iter()
            .map(|drive| drive.recorder.replies)
            .sum();
        let looks = before.iter().zip(&after).zip(&info).zip(&self.servers);
        let looks = looks.filter(|(_, server)| !server.is_listed);
        let server_cpu_us = cpu_us_per_reply(looks.map(|(look, _)| look), replies);
        let mut elapsed = outcome.elapsed.saturating_sub(manner.warmup);
        if let (Some(duration), None, None) = (manner.duration, &outcome.failure, manner.requests) {
            elapsed = elapsed.max(duration);
        }
        let (points, unwritten) = series.finish(elapsed);
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
        let mut failure = outcome.failure;
        let mut result = measured.result(threads, started_unix_ms);
        result.ended_early = failure.as_ref().map(Failure::to_string);
        let requests = &result.requests;
        if requests.sent > 0 && requests.values + requests.nulls + requests.errors == 0 {
            // The server was not measured at all.
            failure.get_or_insert_with(|| Failure::Local("No request was answered.".into()));
        }
        if matches!(&failure, Some(Failure::Reply(text)) if text.starts_with("MOVED ")) {
            let text = "the server is a node of a Redis Cluster: --cluster sends each request to the node that has its key.";
            result.warnings.push(text.to_owned());
        }
        Ok(Finished {
            result,
            log: unwritten.map(|error| Failure::local("--hdr", &error)),
            failure,
            counts,
            happened,
            server_cpu_us,
        })
    }

    /// Returns the resources that the servers on this machine have used so far; none unless runs are sliced.
    fn snapshots(&self) -> Vec<Option<Snapshot>> {
        let servers = self.servers.iter();
        let looked = |server: &Server| server.process.as_ref().and_then(Process::snapshot);
        servers
            .map(|server| looked(server).filter(|_| self.is_sliced))
            .collect()
    }

    /// Returns the load of each thread of `plan`.
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
                    // A load that follows the data has its own time-out of silent nodes.
                    timeout: manner.patience().filter(|_| !follows),
                    connects_within: manner.timeout.unwrap_or(HANDSHAKE_WITHIN),
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

    /// Measures the generator's own cost: the same requests, in a closed loop, to a server that does nothing. `None` if
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
        // In the open loop the depth is a limit, and not the size of a batch.
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
        let outcome = engine::run(&mut self.control, connections, drives, &mut Unwatched).ok()?;
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

    /// Returns the replies of the servers to INFO, in order. A server that is to fail is asked only if nothing else
    /// shows its resources.
    fn infos(&mut self, plan: &RunPlan) -> Vec<Option<Info>> {
        let mut infos = Vec::new();
        for index in 0..self.servers.len() {
            let server = &self.servers[index];
            let is_seen = server.process.is_some();
            let asks = self.proxy.is_none()
                && !server.is_listed
                && !server.info.is_empty()
                && !(is_seen && (self.is_sliced || plan.incident.is_some()));
            infos.push(asks.then(|| self.ask_info(index)));
        }
        infos
    }
}

/// Returns the CPU time of all servers per reply, by measurements around a run; `None` if it is not known of all of
/// them.
///
/// Servers were idle at both measurements. So a delay of a measurement does not matter, which on a busy machine is a
/// large part of a short run.
fn cpu_us_per_reply<'s>(
    looks: impl Iterator<
        Item = (
            (&'s Option<Snapshot>, &'s Option<Snapshot>),
            &'s (Option<Info>, Option<Info>),
        ),
    >,
    replies: u64,
) -> Option<f64> {
    let mut all = Duration::ZERO;
    for ((before, after), info) in looks {
        all += match (before, after, info) {
            (Some(before), Some(after), _) => after.since(before).cpu,
            (_, _, (Some(before), Some(after))) => measured::cpu_by_info(before, after, "")?,
            _ => return None,
        }
        .total();
    }
    (replies > 0).then(|| all.as_secs_f64() * 1e6 / replies as f64)
}

/// The settings of a load that follows its data.
#[derive(Clone, Copy)]
struct Following {
    patience: Duration,
    silence_max: Option<Duration>,
    slice: Duration,
    keeps_acks: bool,
}

impl Following {
    fn of(plan: &RunPlan) -> Following {
        Following {
            patience: plan.manner.timeout.unwrap_or(NODE_PATIENCE),
            // A run with a duration ends with it.
            silence_max: plan.manner.duration.is_none().then_some(SILENCE_MAX),
            slice: plan.output.interval,
            keeps_acks: plan.incident.is_some(),
        }
    }
}

/// Returns the replicas in a primary's reply to ROLE.
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
    said(bytes)
}

/// Result of a run.
pub struct Finished {
    /// The measurements.
    pub result: RunResult,
    /// The reason why it ended early, if it did.
    pub failure: Option<Failure>,
    /// The reason why the HDR log is incomplete, if it is.
    pub log: Option<Failure>,
    /// Counts of redirects.
    pub counts: Counts,
    /// Outcome of the user's command, if there was one.
    pub happened: Option<Happened>,
    /// CPU time of all servers per reply, from before the first connection until after the last reply; known of
    /// [slices](Prepared::slice) only.
    pub server_cpu_us: Option<f64>,
}

/// An observer that does nothing.
struct Unwatched;

impl Observer for Unwatched {
    fn next(&self) -> Option<Instant> {
        None
    }

    fn observe(&mut self, _totals: &Totals) -> Result<(), Failure> {
        Ok(())
    }
}
