//! The append-only file as it is written: a state machine that is told what there is to write and what the disk has done,
//! and answers with [wishes](Wish).
//!
//! ```text
//! off → starting → on ⇄ rewriting        refusing: after an error, until a write, or a rewrite, has succeeded
//!  ↑________________|  → ending
//! ```
//!
//! **A rewrite**, step by step: a new file of commands is created and named in the manifest; the data are cut at a number
//! `n` ([`Wish::Cut`]), and what follows `n` goes to the new file ([`Writer::switch`]); a base of everything up to `n` is
//! written elsewhere under another name; then the manifest names the base and the new file only, and what they replace is
//! removed. A crash at any step leaves a manifest whose files give the same data.
//!
//! **Order on disk.** Nothing is written to the new file before all of the old one is on disk ([`Appended::Wait`], as long as
//! one sync takes). Otherwise a loss of power could leave the end of the old file missing and the new file not empty, and
//! nobody could tell that from damage.
//!
//! **After a failed sync** the kernel may have dropped pages of the file, and a sync that succeeds later proves nothing. So
//! nothing is acknowledged any more that this file holds. A rewrite *heals*: it writes a new base, and what comes meanwhile
//! goes to a file that no manifest names before the base is there, since whoever loads must not find a file behind a damaged
//! one. A start (CONFIG SET appendonly yes) is the same without an old file. A start of data that came in a file
//! ([`Writer::start_with`]) is cut when they are published, and has its base then.
//!
//! Must not know: where the bytes come from, clocks, threads.

mod current;
mod job;
mod rewrite;
mod terms;

use std::io;
use std::sync::Arc;

use crate::disk::{Disk, File, error_text};
use crate::manifest::{self, FileError, Manifest, Paths};
use current::{AppendError, Current};
use job::Kind;
pub use job::{Done, Job};
pub use terms::{Appended, Base, Gate, Level, Policy, Settings, State, Wish};

/// Pause before a refused append is tried again, in milliseconds.
pub const RETRY_MS: u64 = 100;
/// Pause between two lines about the same error, in seconds; as in Redis.
const LOG_PAUSE_S: i64 = 30;
/// Failures of rewrites after which the next one waits; as in Redis.
const FAILURES_BEFORE_DELAY: u32 = 3;
/// Longest pause between rewrites that fail, in minutes; as in Redis.
const DELAY_MINUTES_MAX: i64 = 60;
/// Pause before a start or a healing rewrite is tried again, in seconds.
const SOON_S: i64 = 1;

/// The append-only file.
pub struct Writer {
    paths: Paths,
    settings: Settings,
    manifest: Manifest,
    mode: Mode,
    file: Option<Current>,
    /// Files before the current one that are not on disk yet. As long as there are any, nothing is appended.
    old: Vec<Arc<dyn File>>,
    trouble: Option<Trouble>,
    rewrite: Option<Rewrite>,
    /// Number of the last rewrite.
    last_rewrite: u64,
    failures: u32,
    /// Time from which on a rewrite may be tried again by itself.
    retry_at_s: i64,
    is_last_rewrite_done: bool,
    /// True while files that a rewrite has replaced are being removed.
    is_removing: bool,
    /// A start that failed is tried again.
    wants_start: bool,
    written: u64,
    sync_asked: u64,
    syncs_pending: u32,
    synced: u64,
    /// Number of the last record when it was turned off: what comes behind it need not be synced.
    ends_at: u64,
    last_sync_s: i64,
    last_annotation_s: Option<i64>,
    last_error_line_s: Option<i64>,
    base_bytes: u64,
    /// Bytes of all files before the current one.
    bytes_before: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Mode {
    Off,
    Starting,
    On,
    /// All that is there is synced, then it is off, or the process ends.
    Ending(Then),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Then {
    Off,
    End,
}

enum Trouble {
    /// A write failed. One that succeeds ends it.
    Write(String),
    /// A sync failed, or bytes are lost. A rewrite ends it.
    Sync(String),
}

struct Rewrite {
    id: u64,
    step: RewriteStep,
    /// True if what comes meanwhile goes to a file that no manifest names.
    is_apart: bool,
    /// The base, if it was there at the beginning, until the switch.
    base: Option<Base>,
    /// The cut, if it was made before there is a file for what follows.
    cut: Option<u64>,
}

enum RewriteStep {
    Preparing,
    Prepared(Arc<dyn File>),
    /// The base is being written.
    Switched,
    Committing,
}

impl Writer {
    /// Creates the file of a manifest, turned off. `bytes` are those of the files that the manifest names: of the base, and of
    /// all together.
    pub fn new(
        paths: Paths,
        settings: Settings,
        manifest: Manifest,
        (base_bytes, all_bytes): (u64, u64),
    ) -> Writer {
        Writer {
            paths,
            settings,
            manifest,
            mode: Mode::Off,
            file: None,
            old: Vec::new(),
            trouble: None,
            rewrite: None,
            last_rewrite: 0,
            failures: 0,
            retry_at_s: i64::MIN,
            is_last_rewrite_done: true,
            is_removing: false,
            wants_start: false,
            written: 0,
            sync_asked: 0,
            syncs_pending: 0,
            synced: 0,
            ends_at: 0,
            last_sync_s: 0,
            last_annotation_s: None,
            last_error_line_s: None,
            base_bytes,
            bytes_before: all_bytes,
        }
    }

    /// Opens the last file of the manifest for appending, or creates one, at the start of a process whose data are those of the
    /// manifest's files. The manifest must name a file. Returns a line for the log.
    ///
    /// All that was loaded is synced: until now nobody knows that it is on disk, and clients are about to see it.
    pub fn open(&mut self, disk: &dyn Disk) -> Result<String, FileError> {
        debug_assert!(!self.manifest.is_empty() && self.mode == Mode::Off);
        manifest::create_folder(disk, &self.paths)?;
        let is_new = self.manifest.incrs.is_empty();
        let mut manifest = self.manifest.clone();
        let name = match manifest.incrs.last() {
            Some(entry) => entry.name.clone(),
            None => manifest.add_incr(&self.paths),
        };
        let shown = name.display().to_string();
        let failed = |what: &str, error| FileError::new(format!("{what} {shown}"), error);
        let path = self.paths.file(&name);
        let file = disk
            .open_append(&path)
            .map_err(|error| failed("Can't open the append-only file", error))?;
        file.sync_data()
            .map_err(|error| failed("Fail to fsync the AOF file", error))?;
        let bytes = file
            .bytes()
            .map_err(|error| failed("Unable to obtain the AOF file length of", error))?;
        manifest::sync_folder(disk, &self.paths)?;
        if is_new || !disk.exists(&self.paths.manifest()).unwrap_or(false) {
            manifest::write(disk, &self.paths, &manifest)?;
        }
        if !self.settings.keeps_history
            && let Ok(left) = manifest::remove_history(disk, &self.paths, &manifest)
        {
            manifest = left;
        }
        self.manifest = manifest;
        // The last file may have been cut since its length was taken.
        let earlier = self.manifest.files().filter(|entry| entry.name != name);
        let lengths = earlier.map(|entry| disk.len(&self.paths.file(&entry.name)).unwrap_or(0));
        self.bytes_before = lengths.sum();
        self.file = Some(Current::new(file, bytes, false));
        self.mode = Mode::On;
        let verb = if is_new { "Creating" } else { "Opening" };
        Ok(format!("{verb} AOF incr file {shown} on server start"))
    }

    /// Takes the manifest of a base that was made while the file is off, or goes off, or is being started.
    pub fn set_manifest(&mut self, manifest: Manifest) {
        debug_assert!(self.mode != Mode::On);
        self.manifest = manifest;
        self.is_last_rewrite_done = true;
    }

    /// Changes settings.
    pub fn set(&mut self, settings: Settings) {
        self.settings = settings;
    }

    /// Returns the state.
    pub fn state(&self) -> State {
        match self.mode {
            Mode::Off => State::Off,
            Mode::Starting => State::Starting,
            Mode::Ending(_) => State::Ending,
            Mode::On if self.trouble.is_some() => State::Refusing,
            Mode::On if self.rewrite.is_some() => State::Rewriting,
            Mode::On => State::On,
        }
    }

    /// Returns the condition under which replies may leave.
    pub fn gate(&self) -> Gate {
        match self.mode {
            Mode::On | Mode::Ending(_) if self.settings.policy == Policy::Always => {
                Gate::UpTo(self.synced)
            }
            _ => Gate::Open,
        }
    }

    /// Returns the number up to which everything is on disk and counts; `None`: nothing counts yet, or the file is off or
    /// about to be.
    pub fn on_disk(&self) -> Option<u64> {
        matches!(self.mode, Mode::On | Mode::Ending(Then::End)).then_some(self.synced)
    }

    /// Returns the manifest as it is on disk, as far as that is known.
    pub fn manifest(&self) -> &Manifest {
        &self.manifest
    }

    /// Returns the number up to which everything is on disk.
    pub fn synced(&self) -> u64 {
        self.synced
    }

    /// Returns the number up to which everything is in a file.
    pub fn written(&self) -> u64 {
        self.written
    }

    /// Returns `aof_pending_bio_fsync`: the number of syncs that were asked for and are not done.
    pub fn syncs_pending(&self) -> u32 {
        self.syncs_pending
    }

    /// Returns `aof_current_size`: the bytes of all files that hold data.
    pub fn current_bytes(&self) -> u64 {
        self.bytes_before + self.file.as_ref().map_or(0, |current| current.bytes)
    }

    /// Returns `aof_base_size`: the bytes of all files after the last rewrite.
    pub fn base_bytes(&self) -> u64 {
        self.base_bytes
    }

    /// Returns true while a base is made, that of a start included.
    pub fn is_rewriting(&self) -> bool {
        self.rewrite.is_some()
    }

    /// Returns true while the files that the last rewrite has replaced are being removed, and their lines.
    pub fn is_removing(&self) -> bool {
        self.is_removing
    }

    /// Has files removed that rewrites have replaced, if there are any and they are not to be kept.
    pub fn remove_history(&mut self) -> Option<Job> {
        if self.settings.keeps_history || self.manifest.history.is_empty() || self.is_removing {
            return None;
        }
        self.is_removing = true;
        Some(Job::new(Kind::RemoveHistory {
            paths: self.paths.clone(),
            manifest: self.manifest.clone(),
        }))
    }

    /// Returns `aof_last_bgrewrite_status`.
    pub fn is_last_rewrite_done(&self) -> bool {
        self.is_last_rewrite_done
    }

    /// Returns `aof_rewrites_consecutive_failures`.
    pub fn failures(&self) -> u32 {
        self.failures
    }

    /// Returns `aof_last_write_status`.
    pub fn is_last_write_done(&self) -> bool {
        self.trouble.is_none()
    }

    /// Appends whole units, the last of which has the number `last`. `now_s` is the time, in seconds since 1970. Without units
    /// the numbers up to `last` have none in this file.
    ///
    /// `may_wait` is false when too much waits already: then the bytes are written without waiting for the file before, and
    /// a loss of power at this moment may leave files that are refused at the next start.
    pub fn append(
        &mut self,
        units: &[&[u8]],
        last: u64,
        now_s: i64,
        may_wait: bool,
    ) -> (Appended, Vec<Wish>) {
        if self.mode == Mode::Off {
            return (Appended::Written, Vec::new());
        }
        let is_broken = matches!(self.trouble, Some(Trouble::Sync(_)));
        let awaits_old = !self.old.is_empty();
        let Some(current) = &mut self.file else {
            let is_cut = |running: &Rewrite| running.cut.is_some();
            let appended = match self.mode {
                Mode::Starting if self.rewrite.as_ref().is_some_and(is_cut) => Appended::Wait,
                // Before the cut of a start there is no file: the base will hold these.
                Mode::Starting => Appended::Written,
                _ => Appended::Refused,
            };
            return (appended, Vec::new());
        };
        if !current.is_temporary {
            if is_broken {
                return (Appended::Refused, Vec::new());
            }
            if awaits_old && may_wait {
                return (Appended::Wait, Vec::new());
            }
        }
        if units.iter().all(|unit| unit.is_empty()) {
            if self.trouble.is_some() {
                // Units of earlier numbers wait.
                return (Appended::Refused, Vec::new());
            }
            self.written = self.written.max(last);
            return (Appended::Written, Vec::new());
        }
        let annotation = match &mut current.partial {
            Some(partial) => std::mem::take(&mut partial.annotation),
            None if self.settings.writes_timestamps && Some(now_s) != self.last_annotation_s => {
                format!("#TS:{now_s}\r\n").into_bytes()
            }
            None => Vec::new(),
        };
        match current.append(annotation, units) {
            Ok(annotated) => {
                if annotated {
                    self.last_annotation_s = Some(now_s);
                }
                self.written = self.written.max(last);
                (Appended::Written, self.write_done())
            }
            Err(failure) => (Appended::Refused, self.write_failed(failure, now_s)),
        }
    }

    fn write_done(&mut self) -> Vec<Wish> {
        if !matches!(self.trouble, Some(Trouble::Write(_))) {
            return Vec::new();
        }
        self.trouble = None;
        self.last_error_line_s = None;
        let line = "AOF write error looks solved, writes are accepted again.";
        vec![Wish::Log(Level::Warning, line.into()), Wish::Accept]
    }

    fn write_failed(&mut self, failure: AppendError, now_s: i64) -> Vec<Wish> {
        let mut wishes = Vec::new();
        let is_due = self
            .last_error_line_s
            .is_none_or(|last| now_s - last > LOG_PAUSE_S);
        if is_due {
            self.last_error_line_s = Some(now_s);
            wishes.extend(
                failure
                    .lines
                    .into_iter()
                    .map(|line| Wish::Log(Level::Warning, line)),
            );
        }
        if self.is_apart() {
            wishes.extend(self.rewrite_failed("the file for what comes meanwhile", now_s));
            return wishes;
        }
        if self.exits_on_error() {
            let line = "Can't recover from AOF write error when the AOF fsync policy is 'always'. Exiting...";
            wishes.extend([Wish::Log(Level::Warning, line.into()), Wish::Exit(1)]);
            return wishes;
        }
        let was_there = self.trouble.is_some();
        self.trouble = Some(if failure.is_lost {
            Trouble::Sync(failure.text)
        } else {
            Trouble::Write(failure.text)
        });
        if !was_there || failure.is_lost {
            wishes.extend(self.refuse());
        }
        if failure.is_lost {
            // A base replaces the files before this one only.
            wishes.extend(self.rewrite_failed("the file is damaged", now_s));
            wishes.extend(self.heal(now_s));
        }
        wishes
    }

    fn refuse(&self) -> Option<Wish> {
        let (Trouble::Write(text) | Trouble::Sync(text)) = self.trouble.as_ref()?;
        Some(Wish::Refuse(format!(
            "MISCONF Errors writing to the AOF file: {text}"
        )))
    }

    /// True if errors cannot be undone: what clients were told, or have seen, must be on disk.
    fn exits_on_error(&self) -> bool {
        self.settings.policy == Policy::Always && self.mode != Mode::Starting
    }

    /// True if the current file is one that no manifest names.
    fn is_apart(&self) -> bool {
        self.file
            .as_ref()
            .is_some_and(|current| current.is_temporary)
    }

    /// Returns the job that brings to disk what has been written, if there is anything to do. Under `always` it is asked for
    /// after each append; else [`Writer::tick`] does.
    pub fn sync(&mut self) -> Option<Job> {
        let is_in_vain = self.is_broken() && !self.is_apart();
        if is_in_vain || self.sync_asked >= self.written {
            return None;
        }
        self.sync_files()
    }

    fn sync_files(&mut self) -> Option<Job> {
        let current = self.file.as_ref()?;
        self.sync_asked = self.written;
        self.syncs_pending += 1;
        let mut files = self.old.clone();
        files.push(current.file.clone());
        Some(Job::new(Kind::Sync {
            files,
            upto: self.written,
        }))
    }

    /// Is to be called about ten times a second: the sync of each second, and what is tried again.
    pub fn tick(&mut self, now_s: i64) -> Vec<Wish> {
        let mut wishes = Vec::new();
        let is_due = match self.settings.policy {
            Policy::Always => true,
            Policy::EverySecond => now_s != self.last_sync_s,
            Policy::No => false,
        };
        // A slow disk is not given more to do.
        if is_due
            && self.syncs_pending == 0
            && let Some(job) = self.sync()
        {
            self.last_sync_s = now_s;
            wishes.push(Wish::Run(job));
        }
        if self.rewrite.is_none() && now_s >= self.retry_at_s {
            if self.wants_start && self.mode == Mode::Off {
                wishes.extend(self.start());
            } else {
                wishes.extend(self.heal(now_s));
            }
        }
        wishes
    }

    /// Returns true if the file has grown so much that it should be rewritten.
    pub fn wants_rewrite(&self, now_s: i64) -> bool {
        let (bytes, percentage) = (self.current_bytes(), self.settings.rewrite_percentage);
        let base = u128::from(self.base_bytes.max(1));
        let growth = u128::from(bytes) * 100 / base;
        self.state() == State::On
            && percentage > 0
            && bytes > self.settings.rewrite_bytes_min
            && growth >= 100 + u128::from(percentage)
            && now_s >= self.retry_at_s
    }

    /// Turns the file off, after a sync: CONFIG SET appendonly no. [`Wish::Stopped`] says when.
    pub fn stop(&mut self, now_s: i64) -> Vec<Wish> {
        self.finish(Then::Off, now_s)
    }

    /// Syncs everything that has been appended, before the process ends. [`Wish::Ended`] says when.
    pub fn end(&mut self, now_s: i64) -> Vec<Wish> {
        self.finish(Then::End, now_s)
    }

    /// Leaves the files as they are, since all data are about to be others: a rewrite is given up, and nothing more is appended.
    /// [`Wish::Stopped`] says that it is off, unless it was before. Nothing happens at the end of the process.
    pub fn leave(&mut self, now_s: i64) -> Vec<Wish> {
        self.wants_start = false;
        if matches!(self.mode, Mode::Off | Mode::Ending(Then::End)) {
            return Vec::new();
        }
        // Nobody waits for it, but these may be the data of the next start.
        let mut wishes: Vec<Wish> = self.sync().map(Wish::Run).into_iter().collect();
        wishes.extend(self.give_rewrite_up(now_s));
        wishes.extend(self.go_off().into_iter().chain([Wish::Stopped]));
        wishes
    }

    fn finish(&mut self, then: Then, now_s: i64) -> Vec<Wish> {
        let mut wishes = Vec::new();
        if self.rewrite.is_some() {
            // In Redis's words. As there it is no failure.
            let line = "Killing running AOF rewrite child (here a thread): the file is turned off";
            wishes.push(Wish::Log(Level::Notice, line.into()));
            wishes.extend(self.give_rewrite_up(now_s));
        }
        self.wants_start = false;
        if self.mode != Mode::Off {
            self.mode = Mode::Ending(then);
            self.ends_at = self.written;
            wishes.extend(self.sync().map(Wish::Run));
        } else if then == Then::End {
            wishes.push(Wish::Ended { is_synced: true });
        } else {
            wishes.push(Wish::Stopped);
        }
        wishes.extend(self.ended());
        wishes
    }

    /// Ends the state of ending, if there is nothing more to wait for.
    fn ended(&mut self) -> Vec<Wish> {
        let Mode::Ending(then) = self.mode else {
            return Vec::new();
        };
        // Under load there is always something that has been written and not synced.
        let wanted = match then {
            Then::Off => self.ends_at,
            Then::End => self.written,
        };
        let is_synced = self.trouble.is_none() && self.synced >= wanted;
        if !is_synced && self.trouble.is_none() {
            return Vec::new();
        }
        let last = match then {
            Then::Off => Wish::Stopped,
            Then::End => Wish::Ended { is_synced },
        };
        self.go_off().into_iter().chain([last]).collect()
    }

    /// Is off from now on. Nobody is refused because of a file that is.
    fn go_off(&mut self) -> Option<Wish> {
        self.bytes_before = self.current_bytes();
        self.file = None;
        self.old.clear();
        self.mode = Mode::Off;
        self.trouble.take().map(|_| Wish::Accept)
    }

    /// Takes the result of a job.
    pub fn done(&mut self, done: Done, now_s: i64) -> Vec<Wish> {
        match done.0 {
            job::Result::Synced {
                result,
                files,
                upto,
            } => self.sync_done(result, &files, upto, now_s),
            job::Result::Prepared {
                id,
                result,
                manifest,
            } => self.prepared(id, result, manifest, now_s),
            job::Result::Committed { result, commit } => self.committed(result, commit, now_s),
            job::Result::HistoryRemoved(Ok(left)) => {
                self.is_removing = false;
                self.manifest
                    .history
                    .retain(|entry| left.history.contains(entry));
                Vec::new()
            }
            job::Result::HistoryRemoved(Err(error)) => {
                self.is_removing = false;
                vec![Wish::Log(Level::Warning, error.text)]
            }
            job::Result::Removed => Vec::new(),
        }
    }

    fn sync_done(
        &mut self,
        result: Result<(), (usize, io::Error)>,
        files: &[Arc<dyn File>],
        upto: u64,
        now_s: i64,
    ) -> Vec<Wish> {
        self.syncs_pending -= 1;
        let (failed, error) = match result {
            Err((failed, error)) => (&files[failed], error),
            // A file that no manifest names holds nothing yet; the commit of its base will tell.
            Ok(()) if self.is_apart() || self.is_broken() => return Vec::new(),
            // Of a file that has been given up: no base holds what was in it.
            Ok(()) if !files.last().is_some_and(|file| self.is_in_use(file)) => return Vec::new(),
            Ok(()) => {
                self.old
                    .retain(|old| !files.iter().any(|file| Arc::ptr_eq(file, old)));
                let mut wishes = self.advance(upto);
                wishes.extend(self.ended());
                return wishes;
            }
        };
        if !self.is_in_use(failed) {
            return Vec::new();
        }
        let is_current = self
            .file
            .as_ref()
            .is_some_and(|current| Arc::ptr_eq(&current.file, failed));
        let text = error_text(&error);
        let mut wishes = Vec::new();
        if self.is_apart() {
            let why = format!("fsync of the file for what comes meanwhile: {text}");
            return self.rewrite_failed(&why, now_s);
        }
        if self.exits_on_error() {
            let line = format!(
                "Can't persist AOF for fsync error when the AOF fsync policy is 'always': {text}. Exiting..."
            );
            wishes.extend([Wish::Log(Level::Warning, line), Wish::Exit(1)]);
            return wishes;
        }
        if self.is_broken() {
            return wishes;
        }
        let line = format!(
            "Fail to fsync the AOF file: {text}. Nothing is acknowledged from it any more, and writes are refused until it \
             has been rewritten into new files, which begins by itself."
        );
        wishes.push(Wish::Log(Level::Warning, line));
        self.trouble = Some(Trouble::Sync(text));
        wishes.extend(self.refuse());
        let is_switched = self.rewrite.as_ref().is_some_and(|running| {
            matches!(
                running.step,
                RewriteStep::Switched | RewriteStep::Committing
            )
        });
        // A base that is being written replaces the old file, but not the one after it.
        if self.rewrite.is_some() && (is_current || !is_switched) {
            wishes.extend(self.rewrite_failed("fsync of the file has failed", now_s));
        }
        wishes.extend(self.heal(now_s));
        wishes.extend(self.ended());
        wishes
    }

    fn is_in_use(&self, file: &Arc<dyn File>) -> bool {
        let current = self.file.as_ref().map(|current| &current.file);
        self.old
            .iter()
            .chain(current)
            .any(|used| Arc::ptr_eq(used, file))
    }

    fn is_broken(&self) -> bool {
        matches!(self.trouble, Some(Trouble::Sync(_)))
    }

    fn advance(&mut self, upto: u64) -> Vec<Wish> {
        if upto <= self.synced {
            return Vec::new();
        }
        self.synced = upto;
        vec![Wish::Synced(upto)]
    }
}

#[cfg(test)]
mod tests;
