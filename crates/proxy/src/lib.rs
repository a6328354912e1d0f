//! `redline proxy`: one address in front of many Redis servers.
//!
//! `redline_proxy_core` handles requests and replies; this crate is its shell: sockets, threads, files and clocks.
//!
//! | | file | holds |
//! |---|---|---|
//! | start | `start`, `tls_config` | listeners, workers and signals; the files of TLS |
//! | routing | `control` | the side that asks servers for the topology, and makes the routing table |
//! | | `published` | the table as workers receive it |
//! | data path | `worker` | the event loop: new clients, reads, writes |
//! | | `host` | the process for the core, and state shared by workers |
//! | | `sockets`, `splice` | reading and writing; very long bulks from socket to socket |
//! | answered here | `local_commands` | commands about the process and its clients |
//! | | `observability` | the log, INFO, CONFIG, SLOWLOG, LATENCY, PROXY, the page for Prometheus |
//!
//! This crate must not know keys' values, handlers, the keyspace or the server, nor the form of a configuration's file
//! (`redline_proxy_config`).

#![forbid(unsafe_code)]

mod control;
mod host;
mod local_commands;
mod observability;
mod published;
mod sockets;
mod splice;
mod start;
mod tls_config;
mod worker;

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;

use redline_doctor::{Folder, Listening, Wanted};
use redline_net::{Listener, UnixAccess, console, cpu};
pub use redline_proxy_config::Arguments;
pub use redline_proxy_config::foreign;
use redline_proxy_config::{Config, Place};
use redline_proxy_core::{
    access, admission, cache, cached_reads, client, cluster_view, command_names, connections,
    errors, hash, leases, prefix, replies, report, requests, retry, route, settings, shared, slab,
    streaming, subscriptions, upstream,
};

use crate::access::Identities;
use crate::observability::Observations;
use crate::settings::Settings;
use crate::start::{BACKLOG, Setup};
use crate::tls_config::{Doors, Secured};

type Core = redline_proxy_core::core::Core<host::Host>;
type Context = redline_proxy_core::context::Context<host::Host>;
type Connections = redline_proxy_core::connections::Connections<host::Host>;
type Client = redline_proxy_core::client::Client<host::Host>;
type Upstream = redline_proxy_core::upstream::Upstream<host::Host>;

/// Runs `redline proxy` with these arguments.
pub fn main(words: impl Iterator<Item = OsString>) -> ExitCode {
    let arguments = match Arguments::parse_words(words) {
        Ok(arguments) => arguments,
        // Help that was asked for is no failure.
        Err(error) if error.use_stderr() => {
            console::line_to_stderr(error.render().to_string().trim_end());
            return ExitCode::FAILURE;
        }
        Err(help) => {
            return match console::out(&help.render().to_string()) {
                Ok(()) => ExitCode::SUCCESS,
                Err(why) => {
                    console::line_to_stderr(&format!("redline proxy: {why}"));
                    ExitCode::FAILURE
                }
            };
        }
    };
    match obey(arguments) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            console::line_to_stderr(&format!("redline proxy: {error}"));
            ExitCode::FAILURE
        }
    }
}

/// Returns what the configuration of a command line needs of the machine, for `redline doctor proxy`.
pub fn wanted(words: impl Iterator<Item = OsString>) -> Result<Wanted, String> {
    let arguments = Arguments::parse_words(words).map_err(|error| error.to_string())?;
    let (config, _) = arguments.read()?;
    let problems = config.check();
    let fatal = problems.iter().filter(|problem| problem.is_fatal);
    let mut faults: Vec<String> = fatal.map(|problem| problem.to_string()).collect();
    if faults.is_empty() {
        faults.extend(Secured::of(&config).err().map(|error| error.to_string()));
    }
    let places = config.listeners.iter().map(|listener| &listener.bind);
    let listening = places
        .chain(&config.metrics.bind)
        .filter_map(|bind| match bind {
            Place::Tcp { host, port } => Some(Listening {
                host: host.clone(),
                port: *port,
            }),
            Place::Unix(_) => None,
        });
    let listeners = config.listeners.iter().filter_map(|one| one.tls.as_ref());
    let certificates = listeners.clone().filter_map(|tls| tls.certificate.as_ref());
    let keys = listeners.filter_map(|tls| tls.key.as_ref());
    let files = arguments.files();
    let log = config.log.file.as_ref().map(PathBuf::from);
    let log = log.and_then(|path| std::path::absolute(path).ok()?.parent().map(Path::to_owned));
    Ok(Wanted {
        backlog: Some((BACKLOG, "the proxy's backlog")),
        open_files: None,
        memory_max_bytes: None,
        threads: config.threads,
        connects: true,
        listening: listening.collect(),
        folders: log
            .map(|path| Folder {
                what: "log",
                path,
                bytes: 0,
            })
            .into_iter()
            .collect(),
        private: files.cloned().chain(keys.map(PathBuf::from)).collect(),
        certificates: certificates.map(PathBuf::from).collect(),
        open_to_all: None,
        faults,
    })
}

fn obey(arguments: Arguments) -> Result<(), Box<dyn std::error::Error>> {
    let (config, notes) = arguments.read()?;
    // At a start, only what the proxy does otherwise than the program whose file it is.
    let only_looks = arguments.check || arguments.print_config;
    for note in notes.iter().filter(|note| only_looks || note.differs) {
        console::line_to_stderr(&format!("note: {}", note.text));
    }
    let problems = config.check();
    for problem in &problems {
        console::line_to_stderr(&problem.to_string());
    }
    let fatal = problems.iter().filter(|problem| problem.is_fatal).count();
    if fatal > 0 {
        return Err(format!("nothing was started: {fatal} to mend").into());
    }
    if arguments.print_config {
        return Ok(console::out(&config.to_toml())?);
    }
    if arguments.check {
        Secured::of(&config)?;
        observability::log::look(&config.log)?;
        return Ok(console::out("The configuration is valid.\n")?);
    }
    run(&config, arguments)
}

fn run(config: &Config, arguments: Arguments) -> Result<(), Box<dyn std::error::Error>> {
    let secured = Secured::of(config)?;
    let doors = Arc::new(Doors::new(config, &secured.listeners));
    let mut listeners = Vec::new();
    for (door, listener) in config.listeners.iter().enumerate() {
        let bound = match &listener.bind {
            Place::Tcp { host, port } => Listener::bind_tcp(&[host], *port, BACKLOG)?,
            Place::Unix(path) => vec![Listener::bind_unix(path, UnixAccess::default(), BACKLOG)?],
        };
        let bound = bound.into_iter().map(Arc::new);
        listeners.extend(bound.map(|listener| (listener, door as u16)));
    }
    let metrics = config.metrics.bind.as_ref();
    let metrics = metrics.map(observability::metrics::listen).transpose()?;
    let threads = match config.threads {
        0 => cpu::usable_count(),
        threads => threads,
    };
    observability::log::start(&config.log)?;
    for address in metrics.iter().flat_map(|it| it.open_addresses()) {
        observability::log::warning(&format!(
            "the metrics port {address} is open to other machines, without a password: limit metrics.bind if it need not be"
        ));
    }
    let control = control::start(config, secured, Arc::clone(&doors), arguments)?;
    let bound = listeners.iter().map(|(listener, door)| {
        let mut bind = config.listeners[usize::from(*door)].bind.clone();
        // Port 0 is any free one.
        if let (Place::Tcp { port, .. }, Some(bound)) = (&mut bind, listener.port()) {
            *port = bound;
        }
        bind.to_string()
    });
    observability::log::notice(&format!(
        "redline proxy {} is listening on {} with {threads} worker{}, process {}",
        env!("CARGO_PKG_VERSION"),
        bound.collect::<Vec<_>>().join(", "),
        if threads == 1 { "" } else { "s" },
        std::process::id(),
    ));
    let ran = start::run(Setup {
        listeners,
        doors,
        threads,
        observations: Observations::new(config, threads.max(1)),
        metrics,
        settings: Settings::of(config),
        routes: control.routes,
        reports: Some(control.reports),
        reload: Some(Arc::new(control.reload)),
        identities: Identities::of(config)?.map(Arc::new),
        traffic: admission::Traffic::of(config),
        names: command_names::Names::of(&config.commands),
        cluster_view: cluster_view::ClusterView::of(&config.cluster_face),
    });
    observability::log::flush();
    Ok(ran?)
}
