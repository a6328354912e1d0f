//! The parts of the writer's work that take long: calls that wait for the disk. Whoever has the writer hands them to
//! another thread, or runs them in place; in both cases in the order in which they were given out.
//!
//! Must not know the writer's states.

use std::io;
use std::path::PathBuf;
use std::sync::Arc;

use crate::disk::{Disk, File};
use crate::manifest::{self, FileError, Manifest, Paths};

/// Work for the disk. [`Job::run`] makes a [`Done`] of it, which goes back to the writer.
pub struct Job(Box<Kind>);

/// The result of a job, for [`super::Writer::done`].
pub struct Done(pub(super) Result);

pub(super) enum Kind {
    /// Syncs files in this order; after the last one everything up to `upto` is on disk.
    Sync {
        files: Vec<Arc<dyn File>>,
        upto: u64,
    },
    /// Creates the file that takes what comes after the cut, and names it in the manifest.
    Prepare {
        id: u64,
        paths: Paths,
        path: PathBuf,
        manifest: Option<Manifest>,
    },
    /// Puts a finished base in its place.
    Commit(Box<Commit>),
    /// Removes what a rewrite has replaced.
    RemoveHistory { paths: Paths, manifest: Manifest },
    /// Removes files that nothing names.
    Remove(Vec<PathBuf>),
}

pub(super) struct Commit {
    pub(super) id: u64,
    pub(super) paths: Paths,
    /// The finished base, and its place.
    pub(super) base: (PathBuf, PathBuf),
    /// The base is on disk.
    pub(super) is_base_synced: bool,
    /// The file that has taken what came meanwhile, and its place, unless the manifest names it already.
    pub(super) incr: Option<(Arc<dyn File>, PathBuf, PathBuf)>,
    pub(super) manifest: Manifest,
    pub(super) base_bytes: u64,
    /// Everything up to here is in the base or in `incr`.
    pub(super) upto: u64,
}

pub(super) enum Result {
    Synced {
        /// On an error the number of files that were synced before it.
        result: std::result::Result<(), (usize, io::Error)>,
        files: Vec<Arc<dyn File>>,
        upto: u64,
    },
    Prepared {
        id: u64,
        result: std::result::Result<Arc<dyn File>, FileError>,
        manifest: Option<Manifest>,
    },
    Committed {
        result: std::result::Result<(), FileError>,
        commit: Box<Commit>,
    },
    HistoryRemoved(std::result::Result<Manifest, FileError>),
    Removed,
}

impl Job {
    pub(super) fn new(kind: Kind) -> Job {
        Job(Box::new(kind))
    }

    /// Returns true if it syncs what was appended.
    pub fn is_sync(&self) -> bool {
        matches!(*self.0, Kind::Sync { .. })
    }

    /// Does the work.
    pub fn run(self, disk: &dyn Disk) -> Done {
        Done(match *self.0 {
            Kind::Sync { files, upto } => Result::Synced {
                result: sync(&files),
                files,
                upto,
            },
            Kind::Prepare {
                id,
                paths,
                path,
                manifest,
            } => Result::Prepared {
                id,
                result: prepare(disk, &paths, path, manifest.as_ref()),
                manifest,
            },
            Kind::Commit(commit) => Result::Committed {
                result: commit.run(disk),
                commit,
            },
            Kind::RemoveHistory { paths, manifest } => {
                Result::HistoryRemoved(manifest::remove_history(disk, &paths, &manifest))
            }
            Kind::Remove(paths) => {
                // What is left behind takes room, and is overwritten if its name is needed.
                paths.iter().for_each(|path| drop(disk.remove(path)));
                Result::Removed
            }
        })
    }
}

fn sync(files: &[Arc<dyn File>]) -> std::result::Result<(), (usize, io::Error)> {
    for (index, file) in files.iter().enumerate() {
        file.sync_data().map_err(|error| (index, error))?;
    }
    Ok(())
}

fn prepare(
    disk: &dyn Disk,
    paths: &Paths,
    path: PathBuf,
    manifest: Option<&Manifest>,
) -> std::result::Result<Arc<dyn File>, FileError> {
    manifest::create_folder(disk, paths)?;
    let file = disk.create(&path).map_err(|error| {
        FileError::new(
            format!("Can't open the append-only file {}", path.display()),
            error,
        )
    })?;
    if let Some(manifest) = manifest {
        manifest::sync_folder(disk, paths)?;
        manifest::write(disk, paths, manifest)?;
    }
    Ok(file)
}

impl Commit {
    fn run(&self, disk: &dyn Disk) -> std::result::Result<(), FileError> {
        let named = |kind: &str, (from, to): (&PathBuf, &PathBuf)| {
            disk.rename(from, to).map_err(|error| {
                let (from, to) = (from.display(), to.display());
                let what = format!(
                    "Error trying to rename the temporary AOF {kind} file {from} into {to}"
                );
                FileError::new(what, error)
            })
        };
        if !self.is_base_synced {
            let base = disk.open(&self.base.0);
            base.and_then(|base| base.sync_data()).map_err(|error| {
                FileError::new("Fail to fsync the base of the AOF".into(), error)
            })?;
        }
        if let Some((file, from, to)) = &self.incr {
            file.sync_data().map_err(|error| {
                FileError::new("Fail to fsync the temporary AOF incr file".into(), error)
            })?;
            named("incr", (from, to))?;
        }
        named("base", (&self.base.0, &self.base.1))?;
        // The manifest must not be on disk before the names that it refers to are.
        manifest::sync_folder(disk, &self.paths)?;
        manifest::write(disk, &self.paths, &self.manifest)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::disk::double::{Double, FAULTS, Fault};

    /// Commits a base on a disk whose call of this number has the fault; returns the result and the name of the call.
    fn commit(
        call: usize,
        fault: Fault,
    ) -> (std::result::Result<(), FileError>, bool, &'static str) {
        let disk = Double::default();
        let paths = Paths {
            dir: "/data".into(),
            folder_name: "folder".into(),
            file_name: "a".into(),
        };
        disk.create_dir(&paths.dir).unwrap();
        let file = prepare(&disk, &paths, paths.temporary_incr(), None).unwrap();
        disk.create(&paths.dir.join("base")).unwrap();
        let mut manifest = Manifest::default();
        let base_name = manifest.replace_base(&paths, true, 0);
        let incr_name = manifest.add_incr(&paths);
        let commit = Commit {
            id: 1,
            base: (paths.dir.join("base"), paths.file(base_name)),
            is_base_synced: true,
            incr: Some((file, paths.temporary_incr(), paths.file(incr_name))),
            manifest,
            base_bytes: 0,
            upto: 0,
            paths: paths.clone(),
        };
        let first = disk.calls();
        disk.fail_at(first + call, fault);
        let result = commit.run(&disk);
        let failed = disk.call_names().get(first + call).copied();
        disk.restart(crate::disk::double::Kept::All);
        let is_there = disk.exists(&paths.manifest()).unwrap();
        (result, is_there, failed.unwrap_or("none"))
    }

    #[test]
    fn a_commit_that_fails_knows_if_the_manifest_may_be_the_new_one() {
        let mut calls = Vec::new();
        for call in 0.. {
            for fault in FAULTS {
                let (result, is_there, name) = commit(call, fault);
                match &result {
                    Ok(()) => assert!(is_there, "{name}"),
                    Err(error) => assert!(error.may_be_renamed || !is_there, "{name}: {error}"),
                }
                if fault == Fault::Error {
                    calls.push((name, result.map_err(|error| error.may_be_renamed)));
                }
            }
            if calls.last().is_some_and(|(name, _)| *name == "none") {
                break;
            }
        }
        let (sure, unsure) = (Err(false), Err(true));
        let expected = [
            ("sync_data", &sure),
            ("rename", &sure),
            ("rename", &sure),
            ("sync_dir", &sure),
            ("create", &sure),
            ("write", &sure),
            ("sync_data", &sure),
            ("rename", &unsure),
            ("sync_dir", &unsure),
            ("none", &Ok(())),
        ];
        assert!(
            calls
                .iter()
                .map(|(name, result)| (*name, result))
                .eq(expected),
            "{calls:?}"
        );
    }
}
