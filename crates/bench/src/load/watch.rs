//! Observes the processes during a run, and runs the user's command of `failover`.
//!
//! Must not know the use of its observations.

use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use redline_net::Endpoint;
use redline_net::process::{self, MachineTime};
use serde::{Deserialize, Serialize};

use super::execute::Prepared;
use super::live::Showing;
use super::plan::{Incident, RunPlan};
use super::progress::Progress;
use super::series::Series;
use crate::load::cause::parties::{Looks, Memory, Process};
use crate::load::engine::{Observer, Totals};
use crate::load::failure::Failure;

/// Interval of checks for established connections, or the end of a command.
const UNTIL_STARTED: Duration = Duration::from_millis(5);
/// Shortest interval of observations.
const LOOK_MIN: Duration = Duration::from_millis(100);
/// Longest interval of observations that are shown on a terminal.
const SHOWN_MAX: Duration = Duration::from_millis(500);

/// Observes the processes during a run: at the start of the measured time, then once per slice.
pub struct Watch<'a> {
    /// Measurements of all threads so far.
    pub series: Series<'a>,
    live: Option<Showing>,
    progress: Option<Progress>,
    servers: Vec<(Endpoint, Option<Process>)>,
    /// The user's command and its state.
    pub incident: Option<Happening>,
    proxy: Option<Process>,
    warmup: Duration,
    interval: Duration,
    next: Instant,
    /// Start of the measured time.
    from: Option<Instant>,
    /// Observations so far.
    pub watched: Watched,
}

/// Observations made during a run.
#[derive(Default)]
pub struct Watched {
    /// Observations of each server, in order.
    pub servers: Vec<Looks>,
    /// The proxy.
    pub proxy: Looks,
    /// Memory of this process, which is also that of a server inside it.
    pub own_memory: Option<Memory>,
    /// Times of the whole machine, first and last.
    pub machine: Option<(MachineTime, MachineTime)>,
    /// Times of the observations, in order, from the start of the measured time.
    pub at: Vec<Duration>,
}

impl<'a> Watch<'a> {
    /// Returns a watch of the servers and the proxy of `prepared`, which runs the command of `plan`.
    pub fn new(
        prepared: &Prepared,
        plan: &RunPlan,
        mut series: Series<'a>,
    ) -> Result<Watch<'a>, Failure> {
        let interval = plan.output.interval.max(LOOK_MIN);
        let progress = prepared.progress(plan);
        if progress.is_some() {
            series.keep_recent();
        }
        let live = if plan.output.live {
            series.keep_recent();
            Some(Showing::new(prepared, plan)?)
        } else {
            None
        };
        Ok(Watch {
            interval: match live.is_some() || progress.is_some() {
                true => interval.min(SHOWN_MAX),
                false => interval,
            },
            live,
            progress,
            series,
            servers: prepared
                .servers
                .iter()
                .map(|server| (server.endpoint.clone(), server.process.clone()))
                .collect(),
            incident: plan.incident.clone().map(Happening::new),
            proxy: prepared.proxy.clone(),
            warmup: plan.manner.warmup,
            next: Instant::now(),
            from: None,
            watched: Watched {
                servers: vec![Looks::default(); prepared.servers.len()],
                ..Watched::default()
            },
        })
    }

    /// Draws the known figures: on a bar, or more with `--live`.
    fn show(&mut self, totals: &Totals) -> Result<(), Failure> {
        if let (Some(progress), Some(from)) = (&self.progress, self.from) {
            progress.show(totals, from.elapsed(), self.series.recent());
        }
        let Some(live) = &mut self.live else {
            return Ok(());
        };
        let elapsed = self.from.map(|from| from.elapsed());
        live.show(totals, elapsed, &self.watched, self.series.recent())
            .map_err(|error| Failure::local("--live", &error))
    }

    fn look(&mut self, from: Instant) {
        let watched = &mut self.watched;
        watched.at.push(from.elapsed());
        // A process that has ended gives no more figures.
        for ((endpoint, process), looks) in self.servers.iter_mut().zip(&mut watched.servers) {
            let snapshot = process.as_ref().and_then(Process::snapshot);
            // A restarted server is another process. One that was never found is not looked for again.
            if snapshot.is_none() && process.is_some() {
                let found = process::listening_at(endpoint).ok().flatten();
                let found = found.and_then(|pid| Process::new(pid).ok());
                *process = found.or(process.take());
            }
            looks.add(snapshot);
        }
        watched
            .proxy
            .add(self.proxy.as_ref().and_then(Process::snapshot));
        if let Ok(bytes) = process::resident_bytes() {
            Memory::see(&mut watched.own_memory, bytes);
        }
        if let Ok(now) = process::machine_time() {
            let (first, _) = watched.machine.unwrap_or((now, now));
            watched.machine = Some((first, now));
        }
    }

    /// Makes the last observation.
    pub fn finish(&mut self) {
        // The terminal is restored before anything is printed.
        (self.live, self.progress) = (None, None);
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
            self.show(totals)?;
            while self.next <= now {
                self.next += self.interval;
            }
        } else if totals.elapsed.is_zero() {
            self.next = now + UNTIL_STARTED;
        } else if totals.elapsed < self.warmup {
            self.show(totals)?;
            let left = self.warmup - totals.elapsed;
            self.next = now + self.live.as_ref().map_or(left, |_| left.min(self.interval));
        } else {
            let from = now - (totals.elapsed - self.warmup);
            self.from = Some(from);
            self.look(from);
            self.next = from + self.interval;
        }
        Ok(())
    }
}

/// The user's command, which is run at its time.
pub struct Happening {
    incident: Incident,
    child: Option<Child>,
    /// Time of the next check for its end.
    look_at: Option<Instant>,
    /// Times and exit status of the command.
    pub happened: Happened,
}

/// Times and exit status of the user's command; times in seconds from the start of the measured time.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Happened {
    /// Time of its start; `None` if the run ended before.
    pub started_s: Option<f64>,
    /// Time of its end; `None` if the run ended before.
    pub ended_s: Option<f64>,
    /// Its exit status.
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

    /// Returns the time of the next check.
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
            // Its output must not be mistaken for the result.
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
