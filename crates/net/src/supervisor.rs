//! Reports of a process to its supervisor: systemd, or another with its protocol, sd_notify(3).
//!
//! What happens is told at once ([`ready`], [`reloading`], [`stopping`]). What lasts is told by a [`Reporter`], a thread
//! that looks at the process once a second: what it does, whether it needs more time to start or to end, and whether its
//! workers still make progress, which is what a watchdog waits for.
//!
//! It must not know what the process serves.

use std::{
    env, io,
    os::{
        linux::net::SocketAddrExt,
        unix::{
            ffi::OsStrExt,
            net::{SocketAddr, UnixDatagram},
        },
    },
    sync::mpsc::{RecvTimeoutError, Sender, channel},
    thread::JoinHandle,
    time::Duration,
};

use crate::{clock, thread};

/// Longest time between two looks at the process.
const LOOK_MS_MAX: u64 = 1_000;
/// Least time between two reports of a changed status.
const STATUS_MS_MIN: u64 = 10_000;
/// Time that is asked for while the process starts or ends; again after a quarter of it.
const EXTENSION_MS: u64 = 60_000;
/// Looks without a turn after which a worker counts as stuck. One large command may take seconds, and a process that is
/// restarted for it loses more.
const STILL_LOOKS_MIN: u32 = 10;

/// Returns true if there is a supervisor with this protocol: `NOTIFY_SOCKET` is set.
pub fn is_there() -> bool {
    env::var_os("NOTIFY_SOCKET").is_some()
}

/// Reports that clients are served. Returns false if there is no supervisor; so do the others.
pub fn ready(status: &str) -> io::Result<bool> {
    tell(&format!("READY=1\nSTATUS={status}\n"))
}

/// Reports that the configuration is read again; [`ready`] ends it.
pub fn reloading() -> io::Result<bool> {
    let now = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
    let now_us = now.tv_sec * 1_000_000 + now.tv_nsec / 1_000;
    tell(&format!("RELOADING=1\nMONOTONIC_USEC={now_us}\n"))
}

/// Reports that the process ends.
pub fn stopping(status: &str) -> io::Result<bool> {
    tell(&format!("STOPPING=1\nSTATUS={status}\n"))
}

/// Reports what the process does, for people.
pub fn status(status: &str) -> io::Result<bool> {
    tell(&format!("STATUS={status}\n"))
}

/// Sends a message. Returns false if there is no supervisor.
fn tell(state: &str) -> io::Result<bool> {
    let Some(name) = env::var_os("NOTIFY_SOCKET") else {
        return Ok(false);
    };
    let address = match name.as_bytes() {
        [b'@', name @ ..] => SocketAddr::from_abstract_name(name)?,
        [b'/', ..] => SocketAddr::from_pathname(&name)?,
        _ => return Err(io::ErrorKind::Unsupported.into()),
    };
    let socket = UnixDatagram::unbound()?;
    socket.send_to_addr(state.as_bytes(), &address)?;
    Ok(true)
}

/// State of a process at one moment.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ProcessState {
    /// Text for people: one line.
    pub status: String,
    /// True while it starts or ends, and may need longer than is configured.
    pub needs_time: bool,
    /// For each worker a number that grows as long as its loop turns; [`ENDED`] once it has ended.
    pub turns: Vec<u64>,
}

/// Number of turns of a worker that has ended.
pub const ENDED: u64 = u64::MAX;

/// A thread that reports the state of the process. Dropping it ends it.
#[derive(Debug)]
pub struct Reporter {
    end: Sender<()>,
    thread: Option<JoinHandle<()>>,
}

impl Reporter {
    /// Starts the thread if there is a supervisor. `look` returns the state; `last_words` as in [`thread::spawn`].
    pub fn start(
        last_words: fn(),
        mut look: impl FnMut() -> ProcessState + Send + 'static,
    ) -> io::Result<Option<Reporter>> {
        if !is_there() {
            return Ok(None);
        }
        let mut told = Told::new(watchdog_ms());
        let (end, ended) = channel();
        let run = move || {
            let span = Duration::from_millis(told.look_ms());
            while let Err(RecvTimeoutError::Timeout) = ended.recv_timeout(span) {
                let message = told.message(clock::monotonic_ms(), look());
                if !message.is_empty() {
                    // The next look tries again.
                    let _ = tell(&message);
                }
            }
        };
        Ok(Some(Reporter {
            end,
            thread: Some(thread::spawn("supervisor", last_words, run)?),
        }))
    }
}

impl Drop for Reporter {
    fn drop(&mut self) {
        // It may have ended already.
        let _ = self.end.send(());
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// Returns the time after which the supervisor ends a process that has not reported, if it watches this one.
fn watchdog_ms() -> Option<u64> {
    let variable = |name| env::var(name).ok();
    parse_watchdog(
        variable("WATCHDOG_USEC").as_deref(),
        variable("WATCHDOG_PID").as_deref(),
        std::process::id(),
    )
}

fn parse_watchdog(span_us: Option<&str>, pid: Option<&str>, own_pid: u32) -> Option<u64> {
    let is_meant = pid.is_none_or(|pid| pid.parse() == Ok(own_pid));
    let span_ms = span_us?.parse::<u64>().ok()? / 1_000;
    (is_meant && span_ms > 0).then_some(span_ms)
}

/// State that the supervisor was told.
#[derive(Debug)]
struct Told {
    watchdog_ms: Option<u64>,
    /// Turns at the last report that all workers make progress.
    turns: Vec<u64>,
    status: String,
    status_at_ms: Option<u64>,
    needs_time: bool,
    extended_at_ms: u64,
}

impl Told {
    fn new(watchdog_ms: Option<u64>) -> Told {
        Told {
            watchdog_ms,
            turns: Vec::new(),
            status: String::new(),
            status_at_ms: None,
            needs_time: false,
            extended_at_ms: 0,
        }
    }

    /// Returns the time between two looks: a quarter of the watchdog's, so that each half has one that comes late.
    fn look_ms(&self) -> u64 {
        self.watchdog_ms
            .map_or(LOOK_MS_MAX, |span_ms| (span_ms / 4).clamp(1, LOOK_MS_MAX))
    }

    /// Returns the message that is due now; none: an empty text.
    fn message(&mut self, now_ms: u64, report: ProcessState) -> String {
        let mut message = String::new();
        let has_changed = report.needs_time != self.needs_time;
        self.needs_time = report.needs_time;
        let is_due = self
            .status_at_ms
            .is_none_or(|at_ms| now_ms >= at_ms + STATUS_MS_MIN);
        if report.status != self.status && (has_changed || is_due) {
            message += &format!("STATUS={}\n", report.status);
            self.status = report.status;
            self.status_at_ms = Some(now_ms);
        }
        let is_due = now_ms >= self.extended_at_ms + EXTENSION_MS / 4;
        if report.needs_time && (has_changed || is_due) {
            message += &format!("EXTEND_TIMEOUT_USEC={}\n", EXTENSION_MS * 1_000);
            self.extended_at_ms = now_ms;
        }
        if self.watchdog_ms.is_some() && has_progressed(&self.turns, &report.turns) {
            message += "WATCHDOG=1\n";
            self.turns = report.turns;
        }
        message
    }
}

/// Checks that the loops of workers turn, by looks about a second apart: for health checks.
#[derive(Debug, Default)]
pub struct Progress {
    /// Turns of each worker at the last look, and the number of looks in a row that found them.
    workers: Vec<(u64, u32)>,
}

impl Progress {
    /// Takes note of the turns of each worker now, as in [`ProcessState::turns`].
    pub fn look(&mut self, turns: &[u64]) {
        self.workers.resize(turns.len(), (0, 0));
        for ((before, still), now) in self.workers.iter_mut().zip(turns) {
            let stands = now == before && *now != ENDED;
            *still = if stands { *still + 1 } else { 0 };
            *before = *now;
        }
    }

    /// Returns an error if a worker's loop stands still.
    pub fn check(&self) -> Result<(), String> {
        let mut workers = self.workers.iter().enumerate();
        match workers.find(|(_, (_, still))| *still >= STILL_LOOKS_MIN) {
            Some((number, (_, still))) => Err(format!(
                "worker {number} has not turned its event loop for {still} s"
            )),
            None => Ok(()),
        }
    }
}

/// Returns true if every worker's loop has turned between the two, or has ended.
fn has_progressed(before: &[u64], now: &[u64]) -> bool {
    before.len() != now.len()
        || before
            .iter()
            .zip(now)
            .all(|(before, now)| now != before || *now == ENDED)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn report(status: &str, needs_time: bool, turns: &[u64]) -> ProcessState {
        ProcessState {
            status: status.into(),
            needs_time,
            turns: turns.into(),
        }
    }

    #[test]
    fn the_watchdog_hears_nothing_while_one_worker_stands_still() {
        let mut told = Told::new(Some(1_000));
        let mut at = |now_ms, turns: &[u64]| told.message(now_ms, report("", false, turns));
        assert_eq!(at(0, &[1, 1]), "WATCHDOG=1\n");
        assert_eq!(at(250, &[2, 2]), "WATCHDOG=1\n");
        for (now_ms, turns) in [(500, 3), (750, 4), (5_000, 90)] {
            assert_eq!(at(now_ms, &[turns, 2]), "");
        }
        assert_eq!(at(5_250, &[91, 3]), "WATCHDOG=1\n");
        // Who has ended is not waited for.
        assert_eq!(at(5_500, &[92, ENDED]), "WATCHDOG=1\n");
        assert_eq!(at(5_750, &[93, ENDED]), "WATCHDOG=1\n");
        assert_eq!(at(6_000, &[93, ENDED]), "");
    }

    #[test]
    fn a_worker_is_stuck_after_ten_looks_and_no_longer_once_it_turns() {
        let mut progress = Progress::default();
        progress.look(&[1, 1, ENDED]);
        for turn in 2..11 {
            progress.look(&[turn, 1, ENDED]);
            assert_eq!(progress.check(), Ok(()));
        }
        progress.look(&[11, 1, ENDED]);
        let why = "worker 1 has not turned its event loop for 10 s";
        assert_eq!(progress.check(), Err(why.into()));
        progress.look(&[11, 2, ENDED]);
        assert_eq!(progress.check(), Ok(()));
    }

    #[test]
    fn time_is_asked_for_at_once_and_again_while_it_is_needed() {
        let mut told = Told::new(None);
        let mut at = |now_ms, status, needs| told.message(now_ms, report(status, needs, &[1]));
        assert_eq!(
            at(0, "Loading", true),
            "STATUS=Loading\nEXTEND_TIMEOUT_USEC=60000000\n"
        );
        assert_eq!(at(1_000, "Loading", true), "");
        assert_eq!(
            at(15_000, "Loading", true),
            "EXTEND_TIMEOUT_USEC=60000000\n"
        );
        assert_eq!(at(16_000, "Ready", false), "STATUS=Ready\n");
        assert_eq!(at(60_000, "Ready", false), "");
    }

    #[test]
    fn a_status_that_changes_all_the_time_is_told_now_and_then() {
        let mut told = Told::new(None);
        let messages: Vec<String> = (0..60)
            .map(|second| {
                told.message(
                    second * 1_000,
                    report(&second.to_string(), false, &[second]),
                )
            })
            .filter(|message| !message.is_empty())
            .collect();
        let expected = ["0", "10", "20", "30", "40", "50"].map(|at| format!("STATUS={at}\n"));
        assert_eq!(messages, expected);
    }

    #[test]
    fn the_watchdog_of_another_process_is_not_ours() {
        assert_eq!(parse_watchdog(Some("3000000"), None, 7), Some(3_000));
        assert_eq!(parse_watchdog(Some("3000000"), Some("7"), 7), Some(3_000));
        assert_eq!(parse_watchdog(Some("3000000"), Some("8"), 7), None);
        for wrong in ["", "0", "999", "-1", "a"] {
            assert_eq!(parse_watchdog(Some(wrong), None, 7), None, "{wrong}");
        }
        assert_eq!(Told::new(Some(2_000)).look_ms(), 500);
        assert_eq!(Told::new(Some(2)).look_ms(), 1);
        assert_eq!(Told::new(None).look_ms(), LOOK_MS_MAX);
    }
}
