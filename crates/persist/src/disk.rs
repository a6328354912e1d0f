//! Files as this crate needs them: a trait, the real implementation, and the double of tests ([`double`]).
//!
//! Must not know what is in the files.

pub mod double;

use std::any::Any;
use std::ffi::OsString;
use std::fs::{self, OpenOptions};
use std::io::{self, ErrorKind, IoSlice, Read, Write};
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::Arc;

use rustix::fs::FlockOperation;

/// The calls that change or read a file system. Every one may fail, and none is tried again by whoever implements it.
///
/// A change of a name (created, renamed, removed) outlives a loss of power only after [`Disk::sync_dir`] of its folder,
/// contents only after [`File::sync_data`].
pub trait Disk: Send + Sync {
    /// Creates a file, or empties the one that is there, for appending.
    fn create(&self, path: &Path) -> io::Result<Arc<dyn File>>;

    /// Opens a file for appending; creates it if it is not there.
    fn open_append(&self, path: &Path) -> io::Result<Arc<dyn File>>;

    /// Opens a file for reading.
    fn open(&self, path: &Path) -> io::Result<Arc<dyn File>>;

    /// Gives a file another name, in this folder or another one. A file that has that name is replaced.
    fn rename(&self, from: &Path, to: &Path) -> io::Result<()>;

    /// Removes a file.
    fn remove(&self, path: &Path) -> io::Result<()>;

    /// Shortens a file to `bytes` bytes, and brings that to disk.
    fn truncate(&self, path: &Path, bytes: u64) -> io::Result<()>;

    /// Creates a folder. One that is there already is no error.
    fn create_dir(&self, path: &Path) -> io::Result<()>;

    /// Makes the names in a folder outlive a loss of power.
    fn sync_dir(&self, path: &Path) -> io::Result<()>;

    /// Returns the names in a folder, in no order.
    fn list(&self, path: &Path) -> io::Result<Vec<OsString>>;

    /// Returns true if there is a file or a folder of this name.
    fn exists(&self, path: &Path) -> io::Result<bool>;

    /// Returns the number of bytes of a file.
    fn len(&self, path: &Path) -> io::Result<u64>;

    /// Locks a folder for this process until the result is dropped or the process ends. `None`: another one has it.
    fn lock_dir(&self, path: &Path) -> io::Result<Option<DirLock>>;
}

/// An open file. Calls may be made from several threads, as far as their order does not matter.
pub trait File: Send + Sync {
    /// Writes at the end. Fewer bytes may be written than were given, without an error.
    fn write(&self, slices: &[IoSlice<'_>]) -> io::Result<usize>;

    /// Waits until the contents are on disk. After an error nothing is known about them, and a further call that
    /// succeeds proves nothing: the kernel may have dropped the pages.
    fn sync_data(&self) -> io::Result<()>;

    /// Shortens the file to `bytes` bytes.
    fn truncate(&self, bytes: u64) -> io::Result<()>;

    /// Returns the number of bytes.
    fn bytes(&self) -> io::Result<u64>;

    /// Reads from an offset on; 0 at the end.
    fn read_at(&self, into: &mut [u8], offset: u64) -> io::Result<usize>;
}

/// A locked folder.
pub struct DirLock(
    #[expect(dead_code, reason = "held, and let go of when dropped")] Box<dyn Any + Send + Sync>,
);

/// Reads a file from an offset on.
pub struct Reader {
    file: Arc<dyn File>,
    offset: u64,
}

impl Reader {
    /// Creates one that begins at `offset`.
    pub fn new(file: Arc<dyn File>, offset: u64) -> Reader {
        Reader { file, offset }
    }
}

impl Read for Reader {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        let read = self.file.read_at(into, self.offset)?;
        self.offset += read as u64;
        Ok(read)
    }
}

/// Writes all the bytes, in as many calls as it takes. On an error returns how many had been written as well.
pub fn write_all(file: &dyn File, slices: &[&[u8]]) -> Result<(), (u64, io::Error)> {
    let mut rest: Vec<IoSlice<'_>> = slices.iter().map(|slice| IoSlice::new(slice)).collect();
    let mut rest = &mut rest[..];
    let mut written = 0;
    // Leading empty slices go, so that a call that writes nothing is one.
    IoSlice::advance_slices(&mut rest, 0);
    while !rest.is_empty() {
        let count = rest.len().min(SLICES_PER_CALL_MAX);
        match file.write(&rest[..count]) {
            Ok(0) => return Err((written, ErrorKind::WriteZero.into())),
            Ok(bytes) => {
                written += bytes as u64;
                IoSlice::advance_slices(&mut rest, bytes);
            }
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(error) => return Err((written, error)),
        }
    }
    Ok(())
}

/// As many as `writev` takes (`IOV_MAX`).
const SLICES_PER_CALL_MAX: usize = 1024;

/// Reads a whole file of at most `bytes_max` bytes. `None`: it is larger.
pub fn read_whole(disk: &dyn Disk, path: &Path, bytes_max: u64) -> io::Result<Option<Vec<u8>>> {
    let mut bytes = Vec::new();
    let limit = bytes_max.saturating_add(1);
    Reader::new(disk.open(path)?, 0)
        .take(limit)
        .read_to_end(&mut bytes)?;
    Ok((bytes.len() as u64 <= bytes_max).then_some(bytes))
}

/// Returns the text of an error as the C library has it, as Redis logs it.
pub fn error_text(error: &io::Error) -> String {
    let text = error.to_string();
    match text.find(" (os error ") {
        Some(end) => text[..end].to_owned(),
        None => text,
    }
}

/// The file system of the process.
#[derive(Clone, Copy, Debug, Default)]
pub struct RealDisk;

impl Disk for RealDisk {
    fn create(&self, path: &Path) -> io::Result<Arc<dyn File>> {
        let file = self.open_append(path)?;
        // `OpenOptions` has no way to append to a file that is emptied first.
        file.truncate(0)?;
        Ok(file)
    }

    fn open_append(&self, path: &Path) -> io::Result<Arc<dyn File>> {
        let options = OpenOptions::new()
            .append(true)
            .read(true)
            .create(true)
            .open(path)?;
        Ok(Arc::new(options))
    }

    fn open(&self, path: &Path) -> io::Result<Arc<dyn File>> {
        Ok(Arc::new(fs::File::open(path)?))
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        fs::rename(from, to)
    }

    fn remove(&self, path: &Path) -> io::Result<()> {
        fs::remove_file(path)
    }

    fn truncate(&self, path: &Path, bytes: u64) -> io::Result<()> {
        let file = OpenOptions::new().write(true).open(path)?;
        file.set_len(bytes)?;
        file.sync_data()
    }

    fn create_dir(&self, path: &Path) -> io::Result<()> {
        match fs::create_dir(path) {
            Err(error) if error.kind() == ErrorKind::AlreadyExists && path.is_dir() => Ok(()),
            done => done,
        }
    }

    fn sync_dir(&self, path: &Path) -> io::Result<()> {
        fs::File::open(path)?.sync_all()
    }

    fn list(&self, path: &Path) -> io::Result<Vec<OsString>> {
        fs::read_dir(path)?
            .map(|entry| Ok(entry?.file_name()))
            .collect()
    }

    fn exists(&self, path: &Path) -> io::Result<bool> {
        path.try_exists()
    }

    fn len(&self, path: &Path) -> io::Result<u64> {
        Ok(fs::metadata(path)?.len())
    }

    fn lock_dir(&self, path: &Path) -> io::Result<Option<DirLock>> {
        let folder = fs::File::open(path)?;
        match rustix::fs::flock(&folder, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => Ok(Some(DirLock(Box::new(folder)))),
            Err(rustix::io::Errno::WOULDBLOCK) => Ok(None),
            Err(error) => Err(error.into()),
        }
    }
}

impl File for fs::File {
    fn write(&self, slices: &[IoSlice<'_>]) -> io::Result<usize> {
        (&mut &*self).write_vectored(slices)
    }

    fn sync_data(&self) -> io::Result<()> {
        fs::File::sync_data(self)
    }

    fn truncate(&self, bytes: u64) -> io::Result<()> {
        self.set_len(bytes)
    }

    fn bytes(&self) -> io::Result<u64> {
        Ok(self.metadata()?.len())
    }

    fn read_at(&self, into: &mut [u8], offset: u64) -> io::Result<usize> {
        FileExt::read_at(self, into, offset)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_real_disk_and_its_double_do_the_same() {
        let folder = tempfile::tempdir().unwrap();
        let double = double::Double::default();
        double.create_dir(folder.path()).unwrap();
        for disk in [&RealDisk as &dyn Disk, &double] {
            use_disk(disk, folder.path());
        }
    }

    fn use_disk(disk: &dyn Disk, folder: &Path) {
        let (one, two, below) = (folder.join("one"), folder.join("two"), folder.join("below"));
        let kind = |error: io::Error| error.kind();
        assert_eq!(
            disk.open(&one).map(|_| ()).map_err(kind),
            Err(ErrorKind::NotFound)
        );
        let file = disk.create(&one).unwrap();
        write_all(&*file, &[b"", b"hello", b"", b" world"]).unwrap();
        file.sync_data().unwrap();
        file.truncate(7).unwrap();
        write_all(&*file, &[b"!"]).unwrap();
        assert_eq!(file.bytes().unwrap(), 8);
        assert_eq!(read_whole(disk, &one, 8).unwrap().unwrap(), b"hello w!");
        assert_eq!(read_whole(disk, &one, 7).unwrap(), None);
        write_all(&*disk.open_append(&one).unwrap(), &[b"?"]).unwrap();
        disk.create_dir(&below).unwrap();
        disk.create_dir(&below).unwrap();
        disk.rename(&one, &below.join("one")).unwrap();
        assert!(!disk.exists(&one).unwrap() && disk.exists(&below).unwrap());
        assert_eq!(disk.len(&below.join("one")).unwrap(), 9);
        disk.truncate(&below.join("one"), 2).unwrap();
        disk.create(&two).unwrap();
        disk.rename(&below.join("one"), &two).unwrap();
        assert_eq!(read_whole(disk, &two, 8).unwrap().unwrap(), b"he");
        let mut names = disk.list(folder).unwrap();
        names.sort();
        assert_eq!(names, ["below", "two"]);
        assert_eq!(disk.list(&below).unwrap(), [""; 0]);
        disk.sync_dir(folder).unwrap();
        disk.create(&two).unwrap();
        assert_eq!(disk.len(&two).unwrap(), 0);
        disk.remove(&two).unwrap();
        assert_eq!(disk.remove(&two).map_err(kind), Err(ErrorKind::NotFound));
        assert_eq!(disk.len(&two).map_err(kind), Err(ErrorKind::NotFound));
        assert_eq!(
            disk.truncate(&two, 0).map_err(kind),
            Err(ErrorKind::NotFound)
        );
        assert_eq!(
            disk.rename(&two, &one).map_err(kind),
            Err(ErrorKind::NotFound)
        );
        assert!(disk.create(&folder.join("none").join("file")).is_err());
        let held = disk.lock_dir(folder).unwrap();
        assert!(held.is_some() && disk.lock_dir(folder).unwrap().is_none());
        drop(held);
        assert!(disk.lock_dir(folder).unwrap().is_some());
    }

    #[test]
    fn errors_have_the_texts_of_the_c_library() {
        let missing = io::Error::from_raw_os_error(2);
        assert_eq!(error_text(&missing), "No such file or directory");
        assert_eq!(error_text(&io::Error::other("torn")), "torn");
    }
}
