//! Rewrites and starts: how a new base gets into its place. See the head of [`super`] for the steps and for the order on disk.
//!
//! Must not know how bytes are appended.

use std::ffi::OsString;
use std::sync::Arc;

use super::current::Current;
use super::job::{Commit, Job, Kind};
use super::{
    Base, DELAY_MINUTES_MAX, FAILURES_BEFORE_DELAY, Level, Mode, Rewrite, RewriteStep, SOON_S,
    Trouble, Wish, Writer,
};
use crate::disk::File;
use crate::manifest::{Entry, FileError, Manifest, Paths};

impl Writer {
    /// Begins a start: CONFIG SET appendonly yes, or a process that has a snapshot or nothing. The file counts when
    /// [`Wish::RewriteEnded`] says so. Nothing happens if it is not off.
    pub fn start(&mut self) -> Vec<Wish> {
        if self.mode != Mode::Off || self.rewrite.is_some() {
            return Vec::new();
        }
        self.mode = Mode::Starting;
        self.wants_start = true;
        self.begin(true)
    }

    /// Begins a start of data that are in a file already, which becomes the base. Returns the number of the rewrite, for
    /// [`Writer::switch`], which may come at once: what follows waits until there is a file for it. No cut is wished for. Nothing
    /// happens if it is not off: the base is not asked for.
    pub fn start_with(&mut self, base: impl FnOnce() -> Base) -> Option<(u64, Vec<Wish>)> {
        if self.mode != Mode::Off || self.rewrite.is_some() {
            return None;
        }
        let wishes = self.start();
        let running = self.rewrite.as_mut().expect("it has begun");
        running.base = Some(base());
        Some((running.id, wishes))
    }

    /// Begins a rewrite: BGREWRITEAOF, or because [`Writer::wants_rewrite`]. Returns `None` if the file is not on, one is
    /// under way, or the last append could not be written.
    pub fn rewrite(&mut self) -> Option<Vec<Wish>> {
        let is_refused = matches!(self.trouble, Some(Trouble::Write(_)));
        if self.mode != Mode::On || self.rewrite.is_some() || is_refused {
            return None;
        }
        Some(self.begin(self.is_broken()))
    }

    /// Begins a rewrite that heals, if that is needed and possible.
    pub(super) fn heal(&mut self, now_s: i64) -> Vec<Wish> {
        if !self.is_broken()
            || self.mode != Mode::On
            || self.rewrite.is_some()
            || now_s < self.retry_at_s
        {
            return Vec::new();
        }
        self.begin(true)
    }

    fn begin(&mut self, is_apart: bool) -> Vec<Wish> {
        self.last_rewrite += 1;
        let id = self.last_rewrite;
        self.rewrite = Some(Rewrite {
            id,
            step: RewriteStep::Preparing,
            is_apart,
            base: None,
            cut: None,
        });
        let (path, manifest) = if is_apart {
            (self.paths.temporary_incr(), None)
        } else {
            let mut manifest = self.manifest.clone();
            let name = manifest.add_incr(&self.paths);
            (self.paths.file(name), Some(manifest))
        };
        // Most of the old file is on disk then when the switch waits for the rest.
        let sync = if is_apart { None } else { self.sync() };
        let prepare = Job::new(Kind::Prepare {
            id,
            paths: self.paths.clone(),
            path,
            manifest,
        });
        sync.into_iter().chain([prepare]).map(Wish::Run).collect()
    }

    /// Directs what follows to the new file. To be called when the data have been cut at `cut`, and everything up to there
    /// has been appended; if it was refused, it is to be dropped: the base will hold it.
    pub fn switch(&mut self, rewrite: u64, cut: u64, now_s: i64) -> Vec<Wish> {
        let Some(running) = self
            .rewrite
            .as_mut()
            .filter(|running| running.id == rewrite)
        else {
            return Vec::new();
        };
        let RewriteStep::Prepared(file) = &running.step else {
            debug_assert!(
                running.base.is_some() && running.cut.is_none(),
                "a rewrite is switched once, when it is prepared or has its base"
            );
            running.cut = Some(cut);
            return Vec::new();
        };
        let (file, is_apart) = (file.clone(), running.is_apart);
        if !is_apart && (self.trouble.is_some() || self.file.is_none()) {
            return self.rewrite_failed("the file before the cut is not complete", now_s);
        }
        running.step = RewriteStep::Switched;
        self.last_annotation_s = None;
        self.written = self.written.max(cut);
        let replaced = self.file.replace(Current::new(file, 0, is_apart));
        self.bytes_before += replaced.as_ref().map_or(0, |current| current.bytes);
        if is_apart {
            self.old.clear();
            self.sync_asked = self.synced;
            let base = running.base.take();
            return base.map_or_else(Vec::new, |base| self.base_written(rewrite, base));
        }
        self.old.extend(replaced.map(|current| current.file));
        self.sync_files().map(Wish::Run).into_iter().collect()
    }

    /// Returns true if what is appended goes to the new file of this rewrite.
    pub fn has_switched(&self, rewrite: u64) -> bool {
        self.rewrite.as_ref().is_some_and(|running| {
            let is_before = matches!(
                running.step,
                RewriteStep::Preparing | RewriteStep::Prepared(_)
            );
            running.id == rewrite && !is_before
        })
    }

    /// Takes a finished base.
    pub fn base_written(&mut self, rewrite: u64, base: Base) -> Vec<Wish> {
        let running = self
            .rewrite
            .as_mut()
            .filter(|running| running.id == rewrite);
        let Some(running) = running else {
            return vec![Wish::Run(Job::new(Kind::Remove(vec![base.path])))];
        };
        let RewriteStep::Switched = running.step else {
            debug_assert!(false, "a base follows the switch");
            return Vec::new();
        };
        running.step = RewriteStep::Committing;
        let is_apart = running.is_apart;
        let mut manifest = self.manifest.clone();
        let kept = if is_apart { 0 } else { 1 };
        let base_name = manifest.replace_base(&self.paths, base.is_snapshot, kept);
        let current = self.file.as_ref().filter(|_| is_apart);
        let incr = current.map(|current| {
            // One that none has had, though all others have just become history.
            let seq = self.manifest.incr_seq() + 1;
            let name = add_incr(&self.paths, &mut manifest, seq);
            (
                current.file.clone(),
                self.paths.temporary_incr(),
                self.paths.file(name),
            )
        });
        let commit = Commit {
            id: rewrite,
            paths: self.paths.clone(),
            base: (base.path, self.paths.file(base_name)),
            is_base_synced: base.is_synced,
            incr,
            manifest,
            base_bytes: base.bytes,
            upto: self.written,
        };
        vec![Wish::Run(Job::new(Kind::Commit(Box::new(commit))))]
    }

    /// Takes note that the base could not be made, or is not wanted any more.
    pub fn base_failed(&mut self, rewrite: u64, why: &str, now_s: i64) -> Vec<Wish> {
        let is_it = self
            .rewrite
            .as_ref()
            .is_some_and(|running| running.id == rewrite);
        if is_it {
            self.rewrite_failed(why, now_s)
        } else {
            Vec::new()
        }
    }

    pub(super) fn prepared(
        &mut self,
        id: u64,
        result: Result<Arc<dyn File>, FileError>,
        manifest: Option<Manifest>,
        now_s: i64,
    ) -> Vec<Wish> {
        let may_be_named = result
            .as_ref()
            .map_or_else(|error| error.may_be_renamed, |_| true);
        if may_be_named && let Some(manifest) = manifest {
            // Of a rewrite that has been given up, too: no later file may have the same name.
            self.manifest = manifest;
        }
        let Some(running) = self.rewrite.as_mut().filter(|running| running.id == id) else {
            return Vec::new();
        };
        match result {
            Ok(file) => {
                running.step = RewriteStep::Prepared(file);
                if running.base.is_some() {
                    let cut = running.cut.take();
                    return cut.map_or_else(Vec::new, |cut| self.switch(id, cut, now_s));
                }
                let mut wishes = vec![Wish::Cut { rewrite: id }];
                if let Some(entry) = self.manifest.incrs.last().filter(|_| !running.is_apart) {
                    let name = entry.name.display();
                    let line = format!("Creating AOF incr file {name} on background rewrite");
                    wishes.push(Wish::Log(Level::Notice, line));
                }
                wishes
            }
            Err(error) => self.rewrite_failed(&error.text, now_s),
        }
    }

    pub(super) fn committed(
        &mut self,
        result: Result<(), FileError>,
        commit: Box<Commit>,
        now_s: i64,
    ) -> Vec<Wish> {
        let may_be_named = result
            .as_ref()
            .map_or_else(|error| error.may_be_renamed, |_| true);
        let is_ours = self
            .rewrite
            .as_ref()
            .is_some_and(|running| running.id == commit.id);
        let mut wishes = Vec::new();
        if may_be_named {
            self.manifest = commit.manifest;
            if let Some(current) = self.file.as_mut().filter(|_| is_ours) {
                current.is_temporary = false;
            }
        } else {
            // The manifest does not name them, and never did.
            let mut left = vec![commit.base.0, commit.base.1];
            if let Some((_, from, to)) = &commit.incr {
                left.extend([from.clone(), to.clone()]);
            }
            wishes.push(Wish::Run(Job::new(Kind::Remove(left))));
        }
        if !is_ours {
            return wishes;
        }
        if let Err(error) = result {
            wishes.extend(self.rewrite_failed(&error.text, now_s));
            return wishes;
        }
        self.rewrite = None;
        self.is_last_rewrite_done = true;
        (self.failures, self.retry_at_s, self.wants_start) = (0, i64::MIN, false);
        self.mode = Mode::On;
        self.bytes_before = commit.base_bytes;
        self.base_bytes = self.current_bytes();
        wishes.push(Wish::RewriteEnded {
            rewrite: commit.id,
            is_done: true,
        });
        let line = "Background AOF rewrite finished successfully";
        wishes.push(Wish::Log(Level::Notice, line.into()));
        // A base replaces an old file that could not be synced. What is in the new one is not known to be on disk yet, but for
        // what the commit has synced itself.
        self.old.clear();
        if commit.incr.is_some() {
            wishes.extend(self.advance(commit.upto));
        }
        // Results of syncs were passed over meanwhile.
        self.sync_asked = self.synced;
        if self.is_broken() {
            self.trouble = None;
            let line = "The AOF file has been rewritten into new files, writes are accepted again.";
            wishes.extend([Wish::Log(Level::Notice, line.into()), Wish::Accept]);
        }
        wishes.extend(self.remove_history().map(Wish::Run));
        wishes
    }

    /// Takes note that a rewrite or a start has failed, and gives it up.
    pub(super) fn rewrite_failed(&mut self, why: &str, now_s: i64) -> Vec<Wish> {
        if self.rewrite.is_none() {
            return Vec::new();
        }
        self.is_last_rewrite_done = false;
        self.failures += 1;
        let pause_s = retry_pause_s(self.failures);
        self.retry_at_s = now_s + pause_s;
        let line = format!("Background AOF rewrite terminated with error: {why}");
        let mut wishes = vec![Wish::Log(Level::Warning, line)];
        wishes.extend(self.give_rewrite_up(now_s));
        if pause_s > SOON_S {
            let minutes = pause_s / 60;
            let line = format!(
                "Background AOF rewrite has repeatedly failed and triggered the limit, will retry in {minutes} minutes"
            );
            wishes.push(Wish::Log(Level::Warning, line));
        }
        wishes
    }

    /// Gives a rewrite or a start up.
    pub(super) fn give_rewrite_up(&mut self, now_s: i64) -> Vec<Wish> {
        let Some(failed) = self.rewrite.take() else {
            return Vec::new();
        };
        let mut wishes = vec![Wish::RewriteEnded {
            rewrite: failed.id,
            is_done: false,
        }];
        let base = failed.base.map(|base| vec![base.path]);
        wishes.extend(base.map(|paths| Wish::Run(Job::new(Kind::Remove(paths)))));
        if self.mode == Mode::Starting {
            self.mode = Mode::Off;
            self.retry_at_s = now_s + SOON_S;
        }
        if failed.is_apart
            && !matches!(
                failed.step,
                RewriteStep::Preparing | RewriteStep::Prepared(_)
            )
        {
            // What came after the cut is in a file that does not count: the next base will hold it.
            let is_temporary = self.is_apart();
            self.file = None;
            self.sync_asked = self.synced;
            if is_temporary && !matches!(failed.step, RewriteStep::Committing) {
                let path = self.paths.temporary_incr();
                let line = format!("Removing the temp incr aof file {}", path.display());
                wishes.push(Wish::Log(Level::Notice, line));
                wishes.push(Wish::Run(Job::new(Kind::Remove(vec![path]))));
            }
        }
        wishes
    }
}

/// Adds a file of commands with this number.
fn add_incr(paths: &Paths, manifest: &mut Manifest, seq: i64) -> OsString {
    let name = paths.incr_name(seq);
    manifest.incrs.push(Entry {
        name: name.clone(),
        seq,
    });
    name
}

/// Returns the pause after so many failures in a row, in seconds.
fn retry_pause_s(failures: u32) -> i64 {
    match failures.checked_sub(FAILURES_BEFORE_DELAY) {
        None => SOON_S,
        Some(beyond) => 60 * (1_i64 << beyond.min(6)).min(DELAY_MINUTES_MAX),
    }
}

#[cfg(test)]
mod tests;
