//! The log: lines to a file or to standard error, by a separate thread. Their form is the server's too
//! (`redline_net::log_line`).
//!
//! Callers put lines into a queue and continue. If the queue is full, since the file's device is slow or stalled, the
//! line is left out and counted, and a later line gives the number; `may-drop = false` makes callers wait instead. A
//! line that cannot be written is lost.
//!
//! The process has one log. Must not know the lines' meaning.

use std::cell::Cell;
use std::fs::{File, Metadata, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, TrySendError, sync_channel};
use std::time::Duration;

use redline_net::log_line::{self, Form, Format, Role, Timestamp};
use redline_net::{clock, console, error_text};
use redline_proxy_config::{self as config, LogFormat, LogTimestamp, Samples};

use super::tune::Tuning;
use crate::start::spawn;

/// Largest number of queued lines.
const QUEUE_MAX: usize = 1024;
/// Largest text of a line: bytes.
const TEXT_BYTES_MAX: usize = 1024;
/// Largest write: bytes.
const BATCH_BYTES_MAX: usize = 64 * 1024;
/// Longest wait for queued lines to be written.
const FLUSH_MAX: Duration = Duration::from_secs(1);

/// The level of a line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Level {
    /// Connects and disconnects of clients: for fault-finding.
    Verbose,
    /// Connections to servers: likewise.
    Debug,
    /// Each request.
    Info,
    /// Changes of state.
    Notice,
    /// Problems that do not stop operation.
    Warning,
    /// Failures.
    Error,
}

const LEVELS: usize = 6;

impl Level {
    /// Returns the level that lines name. Samples are finer: they tell clients' connections from those to servers.
    fn of_line(self) -> log_line::Level {
        match self {
            Level::Verbose | Level::Debug => log_line::Level::Debug,
            Level::Info => log_line::Level::Verbose,
            Level::Notice => log_line::Level::Notice,
            Level::Warning | Level::Error => log_line::Level::Warning,
        }
    }
}

enum Entry {
    Line(String),
    /// Reports when all earlier lines are written.
    Flush(SyncSender<()>),
}

struct Log {
    queue: SyncSender<Entry>,
    lines: Lines,
    may_drop: AtomicBool,
    samples: [AtomicU32; LEVELS],
    missed: AtomicU64,
}

static LOG: OnceLock<Log> = OnceLock::new();

thread_local! {
    /// Lines of each level that this thread has skipped since the last written one.
    static PASSED: Cell<[u32; LEVELS]> = const { Cell::new([0; LEVELS]) };
}

/// Opens the log and starts its thread. Before that, lines go to standard error.
pub fn start(config: &config::Log) -> io::Result<()> {
    let mut sink = Sink::open(config)?;
    let (queue, lines) = sync_channel(QUEUE_MAX);
    let log = Log {
        queue,
        lines: sink.lines,
        may_drop: AtomicBool::new(config.may_drop),
        samples: values(&config.sample).map(AtomicU32::new),
        missed: AtomicU64::new(0),
    };
    if LOG.set(log).is_err() {
        return Err(io::Error::other("the process has a log already"));
    }
    spawn("proxy-log", move || sink.run(&lines))?;
    Ok(())
}

/// Checks that the log file can be opened; creates nothing.
pub fn look(config: &config::Log) -> io::Result<()> {
    let Some(path) = config.file.as_ref().map(Path::new) else {
        return Ok(());
    };
    let folder = std::path::absolute(path)?;
    let is_there = folder.parent().is_some_and(Path::is_dir);
    match OpenOptions::new().append(true).open(path) {
        Err(error) if !(is_there && error.kind() == io::ErrorKind::NotFound) => {
            Err(cannot_open(path, &error))
        }
        _ => Ok(()),
    }
}

fn cannot_open(path: &Path, error: &io::Error) -> io::Error {
    let text = format!("the log {}: {}", path.display(), error_text(error));
    io::Error::new(error.kind(), text)
}

/// Waits, up to a limit, until queued lines are written.
pub fn flush() {
    if let Some(log) = LOG.get() {
        let (done, wait) = sync_channel(1);
        if log.queue.try_send(Entry::Flush(done)).is_ok() {
            // Later lines are written later, or never.
            let _ = wait.recv_timeout(FLUSH_MAX);
        }
    }
}

/// Logs details for fault-finding; the text is made only if it is logged.
pub fn verbose(text: impl FnOnce() -> String) {
    if is_wanted(Level::Verbose) {
        say(Level::Verbose, &text());
    }
}

/// Logs an event of a connection to a server; the text is made only if it is logged.
pub fn debug(text: impl FnOnce() -> String) {
    if is_wanted(Level::Debug) {
        say(Level::Debug, &text());
    }
}

/// Logs a failure.
pub fn error(text: &str) {
    say(Level::Error, text);
}

fn is_wanted(level: Level) -> bool {
    LOG.get()
        .is_some_and(|log| log.samples[level as usize].load(Ordering::Relaxed) > 0)
}

/// Logs a change of state.
pub fn notice(text: &str) {
    say(Level::Notice, text);
}

/// Logs a problem that does not stop operation.
pub fn warning(text: &str) {
    say(Level::Warning, text);
}

/// Adopts settings that CONFIG SET has changed.
pub(super) fn tune(tuning: &Tuning) {
    if let Some(log) = LOG.get() {
        log.may_drop.store(tuning.may_drop, Ordering::Relaxed);
        for (to, value) in log.samples.iter().zip(values(&tuning.samples)) {
            to.store(value, Ordering::Relaxed);
        }
    }
}

/// Returns the number of lines left out so far, for want of room in the queue.
pub fn missed() -> u64 {
    LOG.get()
        .map_or(0, |log| log.missed.load(Ordering::Relaxed))
}

fn values(samples: &Samples) -> [u32; LEVELS] {
    [
        samples.verbose,
        samples.debug,
        samples.info,
        samples.notice,
        samples.warning,
        samples.error,
    ]
}

fn say(level: Level, text: &str) {
    let Some(log) = LOG.get() else {
        console::line_to_stderr(&format!("redline proxy: {text}"));
        return;
    };
    let sample = log.samples[level as usize].load(Ordering::Relaxed);
    if sample == 0 {
        return;
    }
    let is_due = PASSED.with(|passed| {
        let mut counts = passed.get();
        let count = &mut counts[level as usize];
        *count += 1;
        let is_due = *count >= sample;
        if is_due {
            *count = 0;
        }
        passed.set(counts);
        is_due
    });
    if is_due {
        log.put(level, text);
    }
}

/// Logs a line about a request; sampling was done before.
pub(super) fn request(text: &str) {
    if let Some(log) = LOG.get() {
        log.put(Level::Info, text);
    }
}

impl Log {
    fn put(&self, level: Level, text: &str) {
        let line = Entry::Line(self.lines.line(level, text));
        match self.queue.try_send(line) {
            Err(TrySendError::Full(line)) if !self.may_drop.load(Ordering::Relaxed) => {
                // The thread ends only with the process.
                let _ = self.queue.send(line);
            }
            Err(_) => drop(self.missed.fetch_add(1, Ordering::Relaxed)),
            Ok(()) => {}
        }
    }
}

/// Form of the lines.
#[derive(Clone, Copy)]
struct Lines {
    form: Form,
    /// True if they go to systemd's journal.
    is_journal: bool,
}

impl Lines {
    fn of(config: &config::Log) -> Lines {
        Lines {
            form: Form {
                role: Role::Proxy,
                format: match config.format {
                    LogFormat::Text => Format::Text,
                    LogFormat::Json => Format::Json,
                    LogFormat::Logfmt => Format::Logfmt,
                },
                timestamp: match config.timestamp_format {
                    LogTimestamp::Legacy => Timestamp::Legacy,
                    LogTimestamp::Iso8601 => Timestamp::Iso8601,
                    LogTimestamp::Milliseconds => Timestamp::Milliseconds,
                },
            },
            is_journal: config.file.is_none() && log_line::is_journal(io::stderr()),
        }
    }

    /// Returns a line; a long text is cut.
    fn line(self, level: Level, text: &str) -> String {
        let visible = |c: char| if c.is_control() { ' ' } else { c };
        let mut shown: String = text.chars().map(visible).collect();
        if shown.len() > TEXT_BYTES_MAX {
            let end = (0..=TEXT_BYTES_MAX - 3)
                .rev()
                .find(|at| shown.is_char_boundary(*at));
            shown.truncate(end.unwrap_or(0));
            shown.push_str("...");
        }
        self.form.line(level.of_line(), self.is_journal, &shown)
    }
}

/// The destination of lines.
struct Sink {
    lines: Lines,
    path: Option<PathBuf>,
    file: Option<File>,
    bytes: u64,
    bytes_max: u64,
    every_s: u64,
    /// Time of the next rotation: seconds since 1970.
    turn_s: u64,
    told_missed: u64,
}

impl Sink {
    fn open(config: &config::Log) -> io::Result<Sink> {
        let path = config.file.as_ref().map(PathBuf::from);
        let mut sink = Sink {
            lines: Lines::of(config),
            file: None,
            path,
            bytes: 0,
            bytes_max: match config.rotate_size.0 {
                0 => u64::MAX,
                bytes => bytes,
            },
            every_s: config.rotate_every.0.as_secs(),
            turn_s: u64::MAX,
            told_missed: 0,
        };
        sink.open_file().map_err(|error| {
            let path = config.file.clone().unwrap_or_default();
            cannot_open(Path::new(&path), &error)
        })?;
        Ok(sink)
    }

    fn open_file(&mut self) -> io::Result<()> {
        if let Some(path) = &self.path {
            let file = OpenOptions::new().create(true).append(true).open(path)?;
            self.bytes = file.metadata()?.len();
            self.file = Some(file);
        }
        self.turn_s = next_turn_s(clock::wall_us() / 1_000_000, self.every_s);
        Ok(())
    }

    fn run(&mut self, lines: &Receiver<Entry>) {
        let mut batch = String::new();
        while let Ok(first) = lines.recv() {
            batch.clear();
            let mut flushed = None;
            let mut next = Some(first);
            while let Some(entry) = next.take() {
                match entry {
                    Entry::Line(line) => batch.push_str(&line),
                    Entry::Flush(done) => flushed = Some(done),
                }
                if batch.len() < BATCH_BYTES_MAX && flushed.is_none() {
                    next = lines.try_recv().ok();
                }
            }
            let missed = missed();
            if missed > self.told_missed {
                let text = format!("{} lines were left out", missed - self.told_missed);
                batch.push_str(&self.lines.line(Level::Warning, &text));
                self.told_missed = missed;
            }
            self.write(&batch);
            if let Some(done) = flushed {
                // The caller may be gone.
                let _ = done.send(());
            }
        }
    }

    fn write(&mut self, text: &str) {
        let is_due = self.bytes + text.len() as u64 > self.bytes_max && self.bytes > 0
            || clock::wall_us() / 1_000_000 >= self.turn_s;
        if is_due {
            self.turn();
        }
        self.follow();
        let written = match &mut self.file {
            Some(file) => file.write_all(text.as_bytes()),
            None if self.path.is_none() => io::stderr().write_all(text.as_bytes()),
            None => Err(io::ErrorKind::NotFound.into()),
        };
        match (written, LOG.get()) {
            (Ok(()), _) => self.bytes += text.len() as u64,
            (Err(_), Some(log)) => {
                let lines = text.lines().count() as u64;
                log.missed.fetch_add(lines, Ordering::Relaxed);
            }
            // There is no way left to report it.
            (Err(_), None) => {}
        }
    }

    /// Opens the file again if it was moved or removed.
    fn follow(&mut self) {
        let Some(path) = &self.path else { return };
        let place = |data: io::Result<Metadata>| data.ok().map(|data| (data.dev(), data.ino()));
        let there = place(std::fs::metadata(path));
        let ours = self.file.as_ref().and_then(|file| place(file.metadata()));
        if ours.is_none() || there != ours {
            // If it cannot be opened, the old one stays.
            let _ = self.open_file();
        }
    }

    /// Begins a new file; the old one gets a time stamp as suffix.
    fn turn(&mut self) {
        self.turn_s = next_turn_s(clock::wall_us() / 1_000_000, self.every_s);
        let Some(path) = &self.path else { return };
        let old = free_name(path, clock::wall_us() / 1_000_000);
        // A file that cannot be renamed stays.
        if std::fs::rename(path, old).is_ok() {
            self.file = None;
            let _ = self.open_file();
        }
    }
}

/// Returns the next multiple of the span, by the wall clock.
fn next_turn_s(now_s: u64, every_s: u64) -> u64 {
    if every_s == 0 {
        return u64::MAX;
    }
    let ahead_s = clock::local(now_s).offset_s;
    let shown_s = now_s.saturating_add_signed(ahead_s);
    let next_s = (shown_s / every_s + 1) * every_s;
    next_s.saturating_add_signed(-ahead_s)
}

fn free_name(path: &Path, now_s: u64) -> PathBuf {
    let now = clock::local(now_s);
    let stamp = format!(
        "{:04}{:02}{:02}-{:02}{:02}{:02}",
        now.year, now.month, now.day, now.hour, now.minute, now.second
    );
    let named = |suffix: String| {
        let mut name = path.as_os_str().to_owned();
        name.push(suffix);
        PathBuf::from(name)
    };
    let first = named(format!(".{stamp}"));
    if !first.exists() {
        return first;
    }
    (1_u32..)
        .map(|number| named(format!(".{stamp}.{number}")))
        .find(|name| !name.exists())
        .unwrap_or(first)
}

#[cfg(test)]
mod tests {
    use redline_proxy_config::{Size, Span};

    use super::*;

    fn sink(folder: &Path, bytes_max: u64) -> Sink {
        Sink::open(&config::Log {
            file: Some(folder.join("log").display().to_string()),
            rotate_size: Size(bytes_max),
            rotate_every: Span::seconds(3600),
            ..config::Log::default()
        })
        .unwrap()
    }

    #[test]
    fn a_new_file_begins_when_the_old_one_is_full_and_nothing_is_lost() {
        let folder = tempfile::tempdir().unwrap();
        let mut sink = sink(folder.path(), 100);
        for number in 0..10 {
            sink.write(&format!("{number:039}\n"));
        }
        let mut all = Vec::new();
        let mut files = 0;
        for entry in std::fs::read_dir(folder.path()).unwrap() {
            let text = std::fs::read_to_string(entry.unwrap().path()).unwrap();
            assert_eq!(text.lines().count(), 2);
            all.extend(text.lines().map(|line| line.parse::<u32>().unwrap()));
            files += 1;
        }
        all.sort_unstable();
        assert_eq!((files, all), (5, (0..10).collect()));
    }

    #[test]
    fn a_file_that_was_moved_or_removed_is_made_anew() {
        let folder = tempfile::tempdir().unwrap();
        let (path, moved) = (folder.path().join("log"), folder.path().join("moved"));
        let mut sink = sink(folder.path(), 1 << 20);
        sink.write("one\n");
        std::fs::rename(&path, &moved).unwrap();
        sink.write("two\n");
        assert_eq!(std::fs::read_to_string(&moved).unwrap(), "one\n");
        assert_eq!(std::fs::read_to_string(&path).unwrap(), "two\n");
        std::fs::remove_file(&path).unwrap();
        sink.write("three\n");
        sink.write("four\n");
        assert_eq!(std::fs::read_to_string(&path).unwrap(), "three\nfour\n");
    }

    #[test]
    fn lines_are_one_line_and_not_long() {
        let lines = Lines::of(&config::Log::default());
        let text = lines.line(Level::Notice, "a\nb");
        let begins = format!("{}:P ", std::process::id());
        assert!(
            text.starts_with(&begins) && text.ends_with(" * a b\n"),
            "{text}"
        );
        let long = lines.line(Level::Info, &"ä".repeat(2000));
        assert!(
            long.len() <= TEXT_BYTES_MAX + 60 && long.ends_with("...\n"),
            "{long}"
        );
    }

    #[test]
    fn times_of_new_files_are_multiples_on_the_clock() {
        let ahead_s = clock::local(1_000_000).offset_s;
        let turn_s = next_turn_s(1_000_000, 3600);
        assert!(turn_s > 1_000_000 && turn_s <= 1_000_000 + 3600);
        assert_eq!(turn_s.saturating_add_signed(ahead_s) % 3600, 0);
        assert_eq!(next_turn_s(5, 0), u64::MAX);
    }
}
