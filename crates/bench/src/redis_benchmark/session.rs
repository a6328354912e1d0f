//! One invocation: connects, prints a heading, runs the tests in turn, reports each, and decides the exit code.
//!
//! Must not know how a test is executed.

use std::io::{self, Write};
use std::time::{Duration, Instant};

use redline_net::tls::ClientTls;
use redline_net::{Address, Endpoint};
use redline_resp::{Value, encode_request, push_header};

use crate::load::control::Control;
use crate::load::engine::{self, Observer, Plan, Totals};
use crate::load::failure::{Failure, said};
use crate::load::probe::Probed;
use crate::load::worker::Place;
use crate::load::{probe, target};
use crate::redis_benchmark::batch::{Batch, TooLarge};
use crate::redis_benchmark::closed::{Batches, Closed, Quota};
use crate::redis_benchmark::compat::Form;
use crate::redis_benchmark::idle;
use crate::redis_benchmark::masters::{self, Master, Recipe, TaggedBatches};
use crate::redis_benchmark::options::{Options, Output};
use crate::redis_benchmark::report::{self, LiveLine, Measured, Sample, Setting};
use crate::redis_benchmark::suite::{self, PayloadSource};
use crate::{EmbeddedServer, StartEmbedded, Streams};

/// Runs what `options` ask for; returns the exit code.
pub fn run(options: Options, streams: Streams<'_>, start: Option<StartEmbedded<'_>>) -> u8 {
    let Streams {
        stdin,
        stdout,
        stderr,
    } = streams;
    let result = read_request(&options, stdin).and_then(|command| {
        let mut session = Session::prepare(options, command, stdout, stderr, start)?;
        session.run()
    });
    match result {
        Ok(()) => 0,
        Err(failure) => {
            // If the stream is closed, the exit code remains.
            let _ = writeln!(stderr, "{failure}");
            failure.exit_code()
        }
    }
}

/// Returns the encoded custom command, with the argument of `-x`; `None` if there is none.
fn read_request(options: &Options, stdin: &mut dyn io::Read) -> Result<Option<Vec<u8>>, Failure> {
    let (words, mut request) = (&options.command, Vec::new());
    if words.is_empty() {
        return Ok(None);
    }
    if !options.stdin_argument {
        encode_request(words, &mut request);
        return Ok(Some(request));
    }
    stdin
        .read_to_end(&mut request)
        .map_err(|error| Failure::local("standard input", &error))?;
    // The argument may be large: the rest is put around it.
    let mut before = Vec::new();
    encode_request(words, &mut before);
    let words_from = before
        .iter()
        .position(|&byte| byte == b'\n')
        .map_or(0, |end| end + 1);
    let mut head = Vec::new();
    push_header(&mut head, b'*', words.len() as i64 + 1);
    head.extend_from_slice(&before[words_from..]);
    push_header(&mut head, b'$', request.len() as i64);
    request.splice(0..0, head);
    request.extend_from_slice(b"\r\n");
    Ok(Some(request))
}

struct Session<'a> {
    options: Options,
    /// The custom command, until it is sent for the last time.
    command: Option<Vec<u8>>,
    stdout: &'a mut dyn Write,
    control: Control,
    /// The server, or the masters of a cluster.
    places: Vec<(Address, Endpoint)>,
    /// The masters with `--cluster`, in the order of the places.
    masters: Vec<Master>,
    tls: Option<ClientTls>,
    setting: Setting,
    random: fastrand::Rng,
    /// Time of the next live line.
    next_sample: Instant,
    _server: Option<EmbeddedServer>,
}

/// Interval of the live line, and delay of the first.
const SAMPLE_EVERY: Duration = Duration::from_millis(250);
const FIRST_SAMPLE: Duration = Duration::from_millis(1);
const UNTIL_STARTED: Duration = Duration::from_millis(10);

impl<'a> Session<'a> {
    fn prepare(
        mut options: Options,
        command: Option<Vec<u8>>,
        stdout: &'a mut dyn Write,
        stderr: &mut dyn Write,
        start: Option<StartEmbedded<'_>>,
    ) -> Result<Session<'a>, Failure> {
        let server = match (options.embedded, start) {
            (false, _) => None,
            (true, Some(start)) => Some(start().map_err(Failure::Local)?),
            (true, None) => {
                return Err(Failure::Local(
                    "This program has no server built in (--embedded).".into(),
                ));
            }
        };
        if let Some(server) = &server {
            options.server = server.address.clone();
        }
        // The embedded server has the other ends of the connections.
        let ends = if options.embedded { 2 } else { 1 };
        engine::allow_connections(options.clients, ends, options.threads.max(1))?;
        let mut control = Control::new().map_err(|error| Failure::local("epoll", &error))?;
        // The embedded server is used without TLS.
        let tls = (options.tls && !options.embedded).then(|| ClientTls::new(&options.tls_options));
        let tls = tls
            .transpose()
            .map_err(|error| Failure::tls_options(&error))?;
        let masters = if options.cluster {
            find_masters(&mut control, &options, tls.as_ref(), stderr)?
        } else {
            Vec::new()
        };
        if !masters.is_empty() {
            print(stdout, &listed(&masters))?;
            // As many threads as masters by default.
            options.threads = match options.threads {
                0 => masters.len(),
                threads => threads,
            };
        }
        let addresses: Vec<Address> = match masters.as_slice() {
            [] => vec![options.server.clone()],
            masters => masters
                .iter()
                .map(|master| master.address.clone())
                .collect(),
        };
        let (mut places, mut configs) = (Vec::new(), Vec::new());
        for address in addresses {
            let probed = probe_one(&mut control, &options, &address, tls.as_ref(), stdout)?;
            if probed.config.is_none() {
                let what = match options.cluster {
                    true => format!("node CONFIG {address}"),
                    false => "server CONFIG".to_owned(),
                };
                let _ = writeln!(stderr, "WARNING: Could not fetch {what}");
            }
            places.push((address, probed.endpoint));
            configs.push(probed.config);
        }
        for warning in &options.warnings {
            let _ = writeln!(stderr, "{warning}");
        }
        let wanted = options.tests.as_deref().filter(|_| command.is_none());
        for name in suite::unknown(options.compat, wanted.unwrap_or_default()) {
            let _ = writeln!(stderr, "WARNING: no test is called \"{name}\" (-t).");
        }
        let embedded = server
            .as_ref()
            .map(|server| format!("{}, {}", server.address, server.description));
        let setting = Setting {
            form: options.compat.form(),
            output: options.output,
            clients: options.clients,
            payload_bytes: options.payload_bytes,
            keep_alive: options.keep_alive,
            server: configs.first().cloned().flatten(),
            masters: options.cluster.then_some(configs),
            threads: options.threads,
            embedded,
            classic_decimals: options.precision.unwrap_or(0),
        };
        let random = options
            .seed
            .map_or_else(fastrand::Rng::new, fastrand::Rng::with_seed);
        Ok(Session {
            options,
            command,
            stdout,
            control,
            places,
            masters,
            tls,
            setting,
            random,
            next_sample: Instant::now() + FIRST_SAMPLE,
            _server: server,
        })
    }

    fn run(&mut self) -> Result<(), Failure> {
        if self.options.idle {
            return Err(self.hold_idle());
        }
        match self.options.output {
            Output::Csv => self.print(report::csv_header(self.setting.form))?,
            Output::Quiet => {
                // The long form has it in every report.
                if let Some(server) = &self.setting.embedded {
                    let line = format!("Embedded server: {server}\n");
                    self.print(&line)?;
                }
            }
            Output::Normal => {}
        }
        let mut payloads = PayloadSource::new();
        loop {
            match self.next_command() {
                Some(request) => self.run_command(request)?,
                None => self.run_suite(&payloads)?,
            }
            if !self.options.forever {
                return Ok(());
            }
            payloads.skip(self.options.payload_bytes);
        }
    }

    fn hold_idle(&mut self) -> Failure {
        let clients = self.options.clients;
        let line =
            format!("Creating {clients} idle connections and waiting forever (Ctrl+C when done)\n");
        match self.print(&line) {
            Ok(()) => idle::run(
                &mut self.control,
                &self.places,
                self.tls.as_ref(),
                clients,
                self.stdout,
            ),
            Err(failure) => failure,
        }
    }

    /// Returns the custom command, if there is one: a large one is kept only as long as it will be sent again.
    fn next_command(&mut self) -> Option<Vec<u8>> {
        match self.options.forever {
            true => self.command.clone(),
            false => self.command.take(),
        }
    }

    fn run_suite(&mut self, payload: &PayloadSource) -> Result<(), Failure> {
        let wanted = self.options.tests.clone();
        for test in suite::select(self.options.compat, wanted.as_deref()) {
            let options = &self.options;
            let (bytes, random) = (options.payload_bytes, options.keyspace.is_some());
            let request = test.render(payload, bytes, random, options.cluster);
            let request = request.map_err(|TooLarge| self.too_large(test.title))?;
            self.run_test(test.title, request)?;
        }
        match self.options.output {
            Output::Csv => Ok(()),
            Output::Normal | Output::Quiet => self.print("\n"),
        }
    }

    fn run_command(&mut self, request: Vec<u8>) -> Result<(), Failure> {
        let title: Vec<_> = self
            .options
            .command
            .iter()
            .map(|word| String::from_utf8_lossy(word))
            .collect();
        let title = title.join(" ");
        if self.setting.form == Form::Histogram {
            self.setting.payload_bytes = request.len();
        }
        self.run_test(&title, request)
    }

    fn run_test(&mut self, title: &str, request: Vec<u8>) -> Result<(), Failure> {
        let options = &self.options;
        let too_large = |TooLarge| self.too_large(title);
        let threads = options.threads.max(1).min(options.clients);
        if self.masters.is_empty() {
            let batch = Batch::new(request, options.pipeline, options.keyspace);
            let batches = vec![batch.map_err(too_large)?; threads];
            return self.run_batches(title, batches);
        }
        let recipe = Recipe {
            request,
            depth: options.pipeline,
            keyspace: options.keyspace,
        };
        let batches = TaggedBatches::of_threads(&recipe, &self.masters, options.threads);
        let batches = batches.map_err(too_large)?.take(threads).collect();
        self.run_batches(title, batches)
    }

    fn too_large(&self, title: &str) -> Failure {
        let pipeline = self.options.pipeline;
        Failure::Local(format!(
            "{title}: a batch of {pipeline} requests is too large."
        ))
    }

    /// Runs a thread for each of the batches, which all have the same size.
    fn run_batches<B: Batches + Send>(
        &mut self,
        title: &str,
        batches: Vec<B>,
    ) -> Result<(), Failure> {
        let options = &self.options;
        let prefix = target::prefix(&auth(options), options.tracking, options.db, options.resp3);
        let place = |(address, endpoint): &(Address, Endpoint)| Place {
            address: address.clone(),
            endpoint: endpoint.clone(),
            prefix: prefix.clone(),
        };
        let plan = Plan {
            places: self.places.iter().map(place).collect(),
            tls: self.tls.clone(),
            clients: options.clients,
            keep_alive: options.keep_alive,
        };
        let requests = batches[0].requests();
        let count = options.requests.div_ceil(requests);
        let wanted = count.saturating_mul(requests);
        let quota = Quota::new(count, batches.len());
        let digits = options.precision.unwrap_or(0).max(DIGITS_MIN);
        let loads = batches.into_iter().map(|batches| {
            let random = self.random.fork();
            let latency = engine::histogram(digits);
            Closed::new(&quota, options.keep_alive, batches, random, latency)
        });
        let loads = loads.collect();
        let mut live = Live {
            form: self.setting.form,
            title,
            stdout: self.stdout,
            line: LiveLine::default(),
            next: (options.output != Output::Csv).then_some(self.next_sample),
            last: Totals::default(),
        };
        let outcome = engine::run(&mut self.control, plan, loads, &mut live)?;
        let Live { line, next, .. } = live;
        self.next_sample = next.unwrap_or(self.next_sample);
        let mut latency = engine::histogram(digits);
        for load in &outcome.loads {
            latency
                .add(load.latency())
                .expect("all histograms have the same bounds");
        }
        let measured = Measured {
            title,
            finished: outcome.loads.iter().map(Closed::finished).sum(),
            wanted,
            elapsed: outcome.elapsed,
            latency: &latency,
        };
        if outcome.failure.is_some() && measured.finished == 0 {
            self.print(&line.ended())?;
        } else {
            let text = report::report(&self.setting, &measured, &line);
            self.print(&text)?;
        }
        match outcome.failure {
            Some(failure) => Err(failure),
            None => Ok(()),
        }
    }

    fn print(&mut self, text: &str) -> Result<(), Failure> {
        print(self.stdout, text)
    }
}

/// Smallest precision of latencies: significant digits.
const DIGITS_MIN: u8 = 3;

fn print(stdout: &mut dyn Write, text: &str) -> Result<(), Failure> {
    stdout
        .write_all(text.as_bytes())
        .and_then(|()| stdout.flush())
        .map_err(|error| Failure::local("standard output", &error))
}

/// Asks a server, or a master of a cluster, for its configuration. As in redis-benchmark, CSV has its header even if no
/// server is reachable.
fn probe_one(
    control: &mut Control,
    options: &Options,
    address: &Address,
    tls: Option<&ClientTls>,
    stdout: &mut dyn Write,
) -> Result<Probed, Failure> {
    let probed = probe::probe(control, address, tls, &auth(options), options.db);
    let is_unreached = matches!(probed, Err(Failure::Connect { .. }));
    if is_unreached && !options.cluster && !options.idle && options.output == Output::Csv {
        print(stdout, report::csv_header(options.compat.form()))?;
    }
    probed
}

/// Returns the masters of the server's cluster; at least two, as redis-benchmark requires.
fn find_masters(
    control: &mut Control,
    options: &Options,
    tls: Option<&ClientTls>,
    stderr: &mut dyn Write,
) -> Result<Vec<Master>, Failure> {
    let (masters, warnings) = ask_masters(control, &options.server, tls, &auth(options))?;
    for warning in warnings {
        let _ = writeln!(stderr, "{warning}");
    }
    match masters.len() {
        0 => Err(Failure::NoCluster {
            address: options.server.to_string(),
            text: None,
        }),
        1 => Err(Failure::Local("Invalid cluster: 1 node(s).".into())),
        _ => Ok(masters),
    }
}

/// Returns redis-benchmark's first lines.
fn listed(masters: &[Master]) -> String {
    let mut text = format!("Cluster has {} master nodes:\n\n", masters.len());
    for (place, Master { id, address, .. }) in masters.iter().enumerate() {
        text += &format!("Master {place}: {id} {address}\n");
    }
    text + "\n"
}

/// The live line of a running test.
struct Live<'a> {
    form: Form,
    title: &'a str,
    stdout: &'a mut dyn Write,
    line: LiveLine,
    next: Option<Instant>,
    last: Totals,
}

impl Observer for Live<'_> {
    fn next(&self) -> Option<Instant> {
        self.next
    }

    fn observe(&mut self, totals: &Totals) -> Result<(), Failure> {
        if totals.elapsed.is_zero() {
            // Connections are still being opened.
            self.next = Some(Instant::now() + UNTIL_STARTED);
            return Ok(());
        }
        self.next = Some(Instant::now() + SAMPLE_EVERY);
        let requests = totals.finished - self.last.finished;
        let mean_ms = |latency_us: u64, requests: u64| latency_us as f64 / requests as f64 / 1000.0;
        let sample = Sample {
            rate: report::per_second(requests, totals.elapsed.saturating_sub(self.last.elapsed)),
            overall_rate: report::per_second(totals.finished, totals.elapsed),
            latency_ms: mean_ms(totals.latency_us - self.last.latency_us, requests),
            overall_latency_ms: mean_ms(totals.latency_us, totals.finished),
        };
        self.last = *totals;
        print(
            self.stdout,
            &self.line.update(self.form, self.title, &sample),
        )
    }
}

fn auth(options: &Options) -> Vec<Vec<u8>> {
    target::auth(options.user.as_deref(), options.password.as_deref())
}

/// Asks a node of a cluster for the nodes: returns the masters that own slots, and warnings about others.
fn ask_masters(
    control: &mut Control,
    address: &Address,
    tls: Option<&ClientTls>,
    auth: &[Vec<u8>],
) -> Result<(Vec<Master>, Vec<String>), Failure> {
    let (_, mut stream) = probe::connect(control, address, tls, None)?;
    let mut request = Vec::new();
    if !auth.is_empty() {
        encode_request(auth, &mut request);
    }
    encode_request(&["CLUSTER", "NODES"], &mut request);
    let count = 1 + usize::from(!auth.is_empty());
    let deadline = Instant::now() + probe::ANSWER_WITHIN;
    let replies = probe::exchange(control, &mut stream, &request, count, deadline);
    let mut replies = match replies {
        Err(Failure::Silent) => return Err(Failure::only_accepts(address)),
        replies => replies?.into_iter(),
    };
    if !auth.is_empty()
        && let Err(Failure::Reply(text)) = probe::fail_on_error(replies.next())
    {
        let address = address.to_string();
        return Err(Failure::Refused { address, text });
    }
    let reply = replies.next();
    let text = reply.as_ref().and_then(Value::as_bytes).map(said);
    match text {
        Some(text) if reply.is_some_and(|reply| !reply.is_error()) => {
            Ok(masters::masters(&text, address))
        }
        text => Err(Failure::NoCluster {
            address: address.to_string(),
            text,
        }),
    }
}
