//! `redline proxy`: one address in front of many Redis servers.
//!
//! `redline_proxy_core` decides: the routing table is made by the control side and read by the data path, and here are the
//! sockets. The parts of the data path stand on one another, and each knows only those below: `clients`, `links` and `gathers` own
//! their state; a `Context` has them and the routing table, `Connections` have a context, and the worker has those. A command is a
//! function that takes as much of that as it may touch.
//!
//! | | file | holds |
//! |---|---|---|
//! | start | `start`, `tls_config` | listeners, workers and signals; the files of TLS |
//! | routing | `control` | the side that asks servers who they are, and makes the routing table |
//! | | `published` | the table as workers take it up |
//! | the loop | `worker`, `sockets` | the loop; reading and writing |
//! | parts | `client`, `clients`, `ahead` | a client, all of them, and what one sends that does not read |
//! | | `upstream`, `links` | a connection to a server, and all of them |
//! | | `gathers` | replies that several servers give parts of |
//! | | `context` | those parts, how connections are made, and how requests are routed |
//! | | `connections` | how connections end |
//! | | `retry` | requests that are sent again |
//! | | `subscriptions` | one connection for the subscriptions of all |
//! | the way there | `requests` | decodes requests and sends each on its way |
//! | | `access`, `foreign`, `routing_checks` | who may call what; calls of commands that the table does not have |
//! | | `admission` | users' rates, faults on purpose, copies for another pool |
//! | | `replica_reads` | which server answers a call that only reads |
//! | | `split` | requests that concern several servers |
//! | | `leases` | connections of a client's own: blocking calls, transactions |
//! | | `streaming`, `splice` | long values in pieces; the longest from socket to socket |
//! | | `script_calls` | calls of scripts by their names |
//! | the way back | `replies` | whose each reply is |
//! | | `redirect` | MOVED, ASK and what passes |
//! | answered here | `local_commands` | commands about the connection and about the proxy |
//! | | `cluster_commands`, `command_table` | CLUSTER and COMMAND |
//! | | `cached_reads` | GET from the cache |
//! | | `observability` | counters, latencies, logs, MONITOR |
//!
//! This room must not know keys' values, handlers, the keyspace or the server, nor the form of a
//! configuration's file (`redline_proxy_config`).

#![forbid(unsafe_code)]

mod access;
mod admission;
mod ahead;
mod cached_reads;
mod client;
mod clients;
mod cluster_commands;
mod command_table;
mod connections;
mod context;
mod control;
mod foreign;
mod gathers;
mod leases;
mod links;
mod local_commands;
mod observability;
mod published;
mod redirect;
mod replica_reads;
mod replies;
mod requests;
mod retry;
mod routing_checks;
mod script_calls;
mod sockets;
mod splice;
mod split;
mod start;
mod streaming;
mod subscriptions;
#[cfg(test)]
mod testing;
mod tls_config;
mod upstream;
mod worker;

use std::ffi::OsString;
use std::process::ExitCode;
use std::sync::Arc;

use redline_net::{Listener, UnixAccess, console, cpu};
use redline_proxy_config::{Arguments, Config, Place};
pub(crate) use redline_proxy_core::{
    cache, class, cluster_view, command_docs, command_names, errors, gather, hash, merge, prefix,
    rate_limit, report, request, route, scripts, settings, slab,
};

use crate::access::Identities;
use crate::observability::Seen;
use crate::settings::Settings;
use crate::start::{BACKLOG, Setup};
use crate::tls_config::{Doors, Secured};

/// `redline proxy` with these words behind it.
pub fn main(words: impl Iterator<Item = OsString>) -> ExitCode {
    let arguments = match Arguments::parse_words(words) {
        Ok(arguments) => arguments,
        // The help that was asked for is no failure.
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

fn obey(arguments: Arguments) -> Result<(), Box<dyn std::error::Error>> {
    let (config, notes) = arguments.read()?;
    for note in notes {
        console::line_to_stderr(&format!("note: {note}"));
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
        listeners.extend(bound.into_iter().map(|listener| (listener, door as u16)));
    }
    let metrics = config.metrics.bind.as_ref();
    let metrics = metrics.map(observability::metrics::listen).transpose()?;
    let threads = match config.threads {
        0 => cpu::usable_count(),
        threads => threads,
    };
    observability::log::start(&config.log)?;
    let control = control::start(config, secured, Arc::clone(&doors), arguments)?;
    let bound = listeners.iter().map(|(listener, door)| {
        let mut bind = config.listeners[usize::from(*door)].bind.clone();
        // Port 0 is whichever was free.
        if let (Place::Tcp { port, .. }, Some(bound)) = (&mut bind, listener.port()) {
            *port = bound;
        }
        bind.to_string()
    });
    observability::log::notice(&format!(
        "redline proxy {} takes clients at {}; workers: {threads}, process: {}",
        env!("CARGO_PKG_VERSION"),
        bound.collect::<Vec<_>>().join(", "),
        std::process::id(),
    ));
    let ran = start::run(Setup {
        listeners,
        doors,
        threads,
        seen: Seen::new(config, threads.max(1)),
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
