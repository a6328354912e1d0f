//! `redline proxy`: one address in front of many Redis servers.
//!
//! `redline_proxy_core` decides: the routing table is made by the control side and read by the data path, and here are the
//! sockets. `worker` is the loop of the data path; `serve` takes requests to servers, `replies` takes replies to clients, `link`
//! keeps the connections to servers.
//!
//! | | file | holds |
//! |---|---|---|
//! | start | `start`, `tls_config` | listeners, workers and signals; the files of TLS |
//! | routing | `control` | the side that asks servers who they are, and makes the routing table |
//! | | `published` | the table as workers take it up |
//! | connections | `worker` | the loop |
//! | | `handshake`, `client` | a client on its way in, and once it is in |
//! | | `upstream`, `link` | a connection to a server; making, sharing and (`link/lost`) losing them |
//! | the way there | `serve` | decodes requests and sends each on its way |
//! | | `access`, `foreign` | who may call what; calls of commands that the table does not have |
//! | | `admit` | users' rates, faults on purpose, copies for another pool |
//! | | `reads` | which server answers a call that only reads |
//! | | `split` | requests that concern several servers |
//! | | `private` | connections of a client's own: blocking calls, transactions |
//! | | `pubsub` | one connection for the subscriptions of all |
//! | | `large`, `through` | long values in pieces; the longest from socket to socket (splice) |
//! | | `delay` | clients that wait for a moment |
//! | the way back | `replies` | whose each reply is |
//! | | `redirect`, `later` | MOVED, ASK and what passes; requests that are sent again |
//! | answered here | `local` | commands about the connection and about the proxy |
//! | | `cluster_commands`, `command_table` | CLUSTER and COMMAND |
//! | | `cached_reads` | GET from the cache |
//! | | `seeing` | counters, latencies, logs, MONITOR |
//!
//! This room must not know keys' values, handlers, the keyspace or the server, nor the form of a
//! configuration's file (`redline_proxy_config`).

#![forbid(unsafe_code)]

mod access;
mod admit;
mod ahead;
mod cached_reads;
mod client;
mod cluster_commands;
mod command_table;
mod control;
mod delay;
mod foreign;
mod handshake;
mod large;
mod later;
mod link;
mod local;
mod private;
mod published;
mod pubsub;
mod reads;
mod redirect;
mod replies;
mod seeing;
mod serve;
mod split;
mod start;
mod through;
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
use crate::seeing::Seen;
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
        seeing::log::look(&config.log)?;
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
    let metrics = metrics.map(seeing::metrics::listen).transpose()?;
    let threads = match config.threads {
        0 => cpu::usable_count(),
        threads => threads,
    };
    seeing::log::start(&config.log)?;
    let control = control::start(config, secured, Arc::clone(&doors), arguments)?;
    let bound = listeners.iter().map(|(listener, door)| {
        let mut bind = config.listeners[usize::from(*door)].bind.clone();
        // Port 0 is whichever was free.
        if let (Place::Tcp { port, .. }, Some(bound)) = (&mut bind, listener.port()) {
            *port = bound;
        }
        bind.to_string()
    });
    seeing::log::notice(&format!(
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
        traffic: admit::Traffic::of(config),
        names: command_names::Names::of(&config.commands),
        cluster_view: cluster_view::ClusterView::of(&config.cluster_face),
    });
    seeing::log::flush();
    Ok(ran?)
}
