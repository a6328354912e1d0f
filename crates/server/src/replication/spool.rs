//! The snapshot of a walk on its way to replicas: a file without a name in the server's folder, written once and read by each at its own speed.
//!
//! So a walk is as fast as the disk's cache and not as its slowest reader, and memory holds none of it.
//!
//! Must not know: the form of a snapshot, who reads it.

use std::{
    ffi::OsString,
    fs,
    io::{self, ErrorKind, IoSlice, Write},
    os::unix::fs::FileExt,
    path::Path,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
};

use redline_persist::{Disk, File, disk::DirLock, snapshot::file::folder_of};

use super::wake;
use crate::shared::Shared;

/// The file of a walk.
pub(crate) struct Spool {
    /// Number of the walk.
    pub(crate) walk: u64,
    file: fs::File,
}

impl Spool {
    /// Reads bytes that are known to be there.
    pub(crate) fn read(&self, into: &mut [u8], from: u64) -> io::Result<()> {
        self.file.read_exact_at(into, from)
    }
}

/// The disk that a snapshot for replicas is written to: the one file of it is a walk's spool, and nothing is brought to disk.
pub(crate) struct SpoolDisk<'s> {
    shared: &'s Shared,
    walk: u64,
}

impl<'s> SpoolDisk<'s> {
    /// Makes the disk of a walk.
    pub(crate) fn new(shared: &'s Shared, walk: u64) -> SpoolDisk<'s> {
        SpoolDisk { shared, walk }
    }
}

/// A spool while it is written.
struct SpoolFile {
    shared: Arc<Shared>,
    spool: Arc<Spool>,
    bytes: AtomicU64,
}

impl File for SpoolFile {
    fn write(&self, slices: &[IoSlice<'_>]) -> io::Result<usize> {
        let replication = &self.shared.replication;
        if replication.primary().is_over(self.spool.walk) {
            return Err(io::Error::other("no replica waits for it any more"));
        }
        let written = (&self.spool.file).write_vectored(slices)?;
        let bytes = self.bytes.fetch_add(written as u64, Ordering::Relaxed) + written as u64;
        let awake = replication
            .primary()
            .walk_grew(self.spool.walk, bytes, false);
        wake(&self.shared, &awake);
        Ok(written)
    }

    fn sync_data(&self) -> io::Result<()> {
        Ok(())
    }

    fn truncate(&self, _: u64) -> io::Result<()> {
        Err(ErrorKind::Unsupported.into())
    }

    fn bytes(&self) -> io::Result<u64> {
        Ok(self.bytes.load(Ordering::Relaxed))
    }

    fn read_at(&self, into: &mut [u8], offset: u64) -> io::Result<usize> {
        FileExt::read_at(&self.spool.file, into, offset)
    }
}

impl Disk for SpoolDisk<'_> {
    fn create(&self, path: &Path) -> io::Result<Arc<dyn File>> {
        // It lives as long as somebody has it open, and two servers of one process do not meet in it.
        let file = tempfile::tempfile_in(folder_of(path))?;
        let spool = Arc::new(Spool {
            walk: self.walk,
            file,
        });
        self.shared.replication.spools().push(spool.clone());
        Ok(Arc::new(SpoolFile {
            shared: self.shared.this(),
            spool,
            bytes: AtomicU64::new(0),
        }))
    }

    fn open_append(&self, _: &Path) -> io::Result<Arc<dyn File>> {
        Err(ErrorKind::Unsupported.into())
    }

    fn open(&self, _: &Path) -> io::Result<Arc<dyn File>> {
        Err(ErrorKind::Unsupported.into())
    }

    fn rename(&self, _: &Path, _: &Path) -> io::Result<()> {
        Ok(())
    }

    fn remove(&self, _: &Path) -> io::Result<()> {
        Ok(())
    }

    fn truncate(&self, _: &Path, _: u64) -> io::Result<()> {
        Err(ErrorKind::Unsupported.into())
    }

    fn create_dir(&self, _: &Path) -> io::Result<()> {
        Ok(())
    }

    fn sync_dir(&self, _: &Path) -> io::Result<()> {
        Ok(())
    }

    fn list(&self, _: &Path) -> io::Result<Vec<OsString>> {
        Err(ErrorKind::Unsupported.into())
    }

    fn exists(&self, _: &Path) -> io::Result<bool> {
        Err(ErrorKind::Unsupported.into())
    }

    fn len(&self, _: &Path) -> io::Result<u64> {
        Err(ErrorKind::Unsupported.into())
    }

    fn lock_dir(&self, _: &Path) -> io::Result<Option<DirLock>> {
        Err(ErrorKind::Unsupported.into())
    }
}
