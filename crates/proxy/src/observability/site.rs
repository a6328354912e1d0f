//! The resources of the metrics listener: metrics, health checks and the status page. Must not know HTTP beyond a request
//! and its reply.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use redline_net::http::{Reply, Request, Site};
use redline_net::supervisor::Progress;
use redline_net::{clock, process};
use redline_observe::histogram::Distribution;
use redline_pages::charts::{DrawError, number};
use redline_pages::status::{History, Resource, Section, Status, Tile};

use super::info::named;
use super::metrics;
use super::stats::{NodeTotals, Totals};
use crate::host::Process;
use crate::route::{Node, Routes};
use crate::shared::Shared;

/// Commands on the page, those with most time first.
const COMMANDS_MAX: usize = 40;
/// Servers on the page.
const SERVERS_MAX: usize = 200;

/// Figures of a second, by their places in the history.
#[derive(Clone, Copy)]
enum Figure {
    Requests,
    Clients,
    FromClients,
    ToClients,
    Buffers,
    Resident,
    UserCpus,
    SystemCpus,
    Rejected,
    TimedOut,
}

const FIGURES: usize = Figure::TimedOut as usize + 1;

/// The resources: see the head of the module.
pub struct Pages {
    shared: Arc<Shared>,
    process: Arc<Process>,
    history: History<FIGURES>,
    before: Option<Sample>,
    progress: Progress,
}

/// Counters of one moment.
struct Sample {
    at_us: u64,
    counters: [u64; 5],
    user_s: f64,
    system_s: f64,
}

impl Site for Pages {
    fn answer(&mut self, request: &Request<'_>) -> Reply {
        match request.path {
            "/metrics" => Reply::metrics(metrics::page(&self.shared, &self.process)),
            "/livez" => Reply::health(self.progress.check()),
            "/readyz" => Reply::health(self.ready()),
            path if Resource::is_at(path) => self.status(request),
            _ => Reply::text(
                "404 Not Found",
                "There are / (the status page), /metrics, /livez and /readyz here.\n",
            ),
        }
    }

    fn tick(&mut self) {
        let routes = self.process.routes.current();
        let totals = self.totals(&routes);
        let counters = &totals.counters;
        let timed_out = totals.nodes.iter().map(|node| node.timed_out).sum();
        let cpu = process::cpu_self();
        let now = Sample {
            at_us: clock::monotonic_us(),
            counters: [
                counters.requests,
                counters.received_bytes,
                counters.sent_bytes,
                counters.rejected,
                timed_out,
            ],
            user_s: cpu.user.as_secs_f64(),
            system_s: cpu.system.as_secs_f64(),
        };
        if let Some(before) = &self.before {
            let figures = self.figures(before, &now, counters.buffer_bytes);
            self.history.push(figures);
        }
        self.before = Some(now);
        self.progress.look(&self.process.ticks());
    }
}

impl Pages {
    /// Returns the resources of this process.
    pub fn new(shared: Arc<Shared>, process: Arc<Process>) -> Pages {
        Pages {
            shared,
            process,
            history: History::default(),
            before: None,
            progress: Progress::default(),
        }
    }

    fn totals(&self, routes: &Routes) -> Totals {
        let workers = &self.shared.observations.workers;
        Totals::of(workers, &routes.nodes, super::log::missed())
    }

    fn figures(&self, before: &Sample, now: &Sample, buffer_bytes: u64) -> [f64; FIGURES] {
        let seconds = (now.at_us.saturating_sub(before.at_us) as f64 / 1e6).max(1e-6);
        let counts: Vec<f64> = now
            .counters
            .iter()
            .zip(&before.counters)
            .map(|(now, before)| now.saturating_sub(*before) as f64)
            .collect();
        let [requests, received, sent, rejected, timed_out] = counts[..] else {
            return [0.0; FIGURES];
        };
        let mut figures = [0.0; FIGURES];
        for (figure, value) in [
            (Figure::Requests, requests / seconds),
            (Figure::Clients, self.process.client_count() as f64),
            (Figure::FromClients, received / seconds),
            (Figure::ToClients, sent / seconds),
            (Figure::Buffers, buffer_bytes as f64),
            (
                Figure::Resident,
                process::resident_bytes().unwrap_or(0) as f64,
            ),
            (Figure::UserCpus, (now.user_s - before.user_s) / seconds),
            (
                Figure::SystemCpus,
                (now.system_s - before.system_s) / seconds,
            ),
            (Figure::Rejected, rejected),
            (Figure::TimedOut, timed_out),
        ] {
            figures[figure as usize] = value;
        }
        figures
    }

    /// Returns the reason why clients are to be sent elsewhere, if there is one.
    fn ready(&self) -> Result<(), String> {
        if self.process.drains.load(Ordering::Relaxed) {
            return Err("the proxy is draining".to_owned());
        }
        let routes = self.process.routes.current();
        let serves = |node: &Node| node.is_used && !node.ejected;
        match routes.nodes.iter().any(serves) {
            true => Ok(()),
            false => Err("no server of any pool is up".to_owned()),
        }
    }

    fn status(&self, request: &Request<'_>) -> Reply {
        if !request.names_host(&[]) {
            return Reply::text(
                "421 Misdirected Request",
                "The status page is shown under an address or localhost.\n",
            );
        }
        let resource = Resource::at(request.path, request.query, || self.contents());
        Reply::new(resource.status, resource.headers, resource.body)
    }

    fn contents(&self) -> Result<Status, DrawError> {
        let routes = self.process.routes.current();
        let totals = self.totals(&routes);
        let uptime_s = (clock::wall_ms() / 1000).saturating_sub(self.process.began_s);
        let chart = |title, unit, of: &[(&str, Figure)]| {
            let of: Vec<(&str, usize)> = of
                .iter()
                .map(|(name, figure)| (*name, *figure as usize))
                .collect();
            self.history.chart(title, unit, &of)
        };
        Ok(Status {
            title: format!("redline proxy {}", self.shared.observations.name),
            about: format!(
                "Redline {}, process {}, workers: {}, pools: {}, up for {uptime_s} s",
                env!("CARGO_PKG_VERSION"),
                std::process::id(),
                self.process.workers.len(),
                routes.pools.len()
            ),
            problems: self.problems(&routes),
            tiles: self.tiles(),
            charts: vec![
                chart("Requests", "requests/s", &[("", Figure::Requests)])?,
                chart(
                    "CPU time",
                    "CPUs",
                    &[("user", Figure::UserCpus), ("kernel", Figure::SystemCpus)],
                )?,
                chart(
                    "Network",
                    "bytes/s",
                    &[
                        ("from clients", Figure::FromClients),
                        ("to clients", Figure::ToClients),
                    ],
                )?,
                chart(
                    "Memory",
                    "bytes",
                    &[
                        ("requests and replies", Figure::Buffers),
                        ("resident", Figure::Resident),
                    ],
                )?,
            ],
            sections: vec![servers(&routes, &totals), commands(&totals)],
        })
    }

    fn now(&self, figure: Figure) -> f64 {
        self.history.newest(figure as usize)
    }

    /// Returns what is wrong now, in words.
    fn problems(&self, routes: &Routes) -> Vec<String> {
        let states = [self.ready(), self.progress.check()];
        let mut problems: Vec<String> = states.into_iter().filter_map(Result::err).collect();
        let down = routes
            .nodes
            .iter()
            .filter(|node| node.is_used && node.ejected);
        problems.extend(
            down.take(SERVERS_MAX)
                .map(|node| format!("server {} is marked down", node.name)),
        );
        if self.now(Figure::TimedOut) > 0.0 {
            problems.push("connections or requests to servers time out".to_owned());
        }
        if self.now(Figure::Rejected) > 0.0 {
            problems.push("clients are turned away (limits.clients)".to_owned());
        }
        problems
    }

    fn tiles(&self) -> Vec<Tile> {
        let of = |name, figure: Figure, unit: &str| Tile {
            name,
            figure: format!("{}{unit}", number(self.now(figure))),
            past: self.history.over_time(figure as usize),
        };
        vec![
            of("Requests", Figure::Requests, "/s"),
            of("Clients", Figure::Clients, ""),
            of("From clients", Figure::FromClients, "B/s"),
            of("To clients", Figure::ToClients, "B/s"),
            of("CPU time, user", Figure::UserCpus, " CPUs"),
            of("CPU time, kernel", Figure::SystemCpus, " CPUs"),
            of("Requests and replies held", Figure::Buffers, "B"),
            of("Time-outs of servers", Figure::TimedOut, "/s"),
        ]
    }
}

/// Returns mean, p50, p99 and p99.9 in microseconds, as text.
fn times(latency: &Distribution, sum_us: u64, count: u64) -> [String; 4] {
    let us = |percent| latency.percentile_ns(percent).unwrap_or(0) as f64 / 1000.0;
    [
        sum_us as f64 / count.max(1) as f64,
        us(50.0),
        us(99.0),
        us(99.9),
    ]
    .map(|us| format!("{us:.1}"))
}

fn servers(routes: &Routes, totals: &Totals) -> Section {
    let default = NodeTotals::default();
    let used = routes
        .nodes
        .iter()
        .enumerate()
        .filter(|(_, node)| node.is_used);
    let rows: Vec<Vec<String>> = used
        .take(SERVERS_MAX)
        .map(|(at, node)| {
            let stats = totals.nodes.get(at).unwrap_or(&default);
            let pool = routes.pools.get(usize::from(node.pool));
            let mut row = vec![
                node.name.clone(),
                pool.map_or(String::new(), |pool| pool.name.clone()),
                if node.ejected { "down" } else { "up" }.to_owned(),
                stats.connections.to_string(),
                stats.requests.to_string(),
                stats.requests.saturating_sub(stats.responses).to_string(),
                stats.timed_out.to_string(),
            ];
            row.extend(times(&stats.latency, stats.us, stats.responses));
            row
        })
        .collect();
    let head = [
        "server",
        "pool",
        "state",
        "connections",
        "requests",
        "not answered",
        "time-outs",
        "mean, us",
        "p50, us",
        "p99, us",
        "p99.9, us",
    ];
    Section::table("Servers", &head, &rows)
}

fn commands(totals: &Totals) -> Section {
    let mut used: Vec<_> = named(totals).collect();
    used.sort_by_key(|(_, command)| std::cmp::Reverse(command.us));
    let rows: Vec<Vec<String>> = used
        .into_iter()
        .take(COMMANDS_MAX)
        .map(|(name, command)| {
            let mut row = vec![name.to_owned(), command.calls.to_string()];
            row.extend(times(&command.latency, command.us, command.calls));
            row.extend([command.failed.to_string(), command.rejected.to_string()]);
            row
        })
        .collect();
    let head = [
        "command",
        "calls",
        "mean, us",
        "p50, us",
        "p99, us",
        "p99.9, us",
        "failed",
        "rejected",
    ];
    Section::table("Commands since the start", &head, &rows)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_server_that_has_answered_nothing_has_no_times() {
        let none = times(&Distribution::default(), 0, 0);
        assert_eq!(none, ["0.0"; 4].map(str::to_owned));
    }
}
