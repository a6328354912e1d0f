//! A file system in memory for tests of this crate and of others. It keeps what has reached the disk apart from what has
//! not, fails at the call that a test names, and loses power.
//!
//! Every change is a step that is pending until a sync. Power that is lost takes any of the pending steps: all, none, or
//! some, and parts of writes. So a test sees what no real file system shows on demand: a later write that is there while
//! an earlier one is not, a new name of contents that are missing.
//!
//! Must not know what is in the files.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsString;
use std::io::{self, ErrorKind, IoSlice};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::{DirLock, Disk, File};

/// One of the ways in which a call fails.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// A write takes half of the bytes and says so; any other call fails as with [`Fault::Error`].
    Short,
    /// A write takes half of the bytes, and the disk is full from then on, until [`Double::make_room`].
    Full,
    /// The call does nothing and fails with EIO.
    Error,
    /// A sync fails, and the pages that it should have written are dropped: later syncs succeed without them. Any other
    /// call fails as with [`Fault::Error`].
    PagesDropped,
    /// The call takes effect, but fails with EIO.
    DoneButError,
    /// Power is lost before the call. It and all further calls fail, until [`Double::restart`].
    PowerLost,
}

/// All faults, for tests that go through them.
pub const FAULTS: [Fault; 6] = [
    Fault::Short,
    Fault::Full,
    Fault::Error,
    Fault::PagesDropped,
    Fault::DoneButError,
    Fault::PowerLost,
];

/// The pending steps that a loss of power leaves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kept {
    /// All, as if the kernel had been quick, or as after the end of the process alone.
    All,
    /// None.
    Nothing,
    /// Some, and some writes in part.
    Some {
        /// Seed of the choice.
        seed: u64,
    },
}

/// The double. Clones share one disk.
#[derive(Clone, Default)]
pub struct Double(Arc<Mutex<State>>);

#[derive(Default)]
struct State {
    contents: Vec<Contents>,
    /// Names as the process sees them, and as they are on disk.
    names: BTreeMap<PathBuf, Node>,
    names_on_disk: BTreeMap<PathBuf, Node>,
    pending: Vec<NameStep>,
    locked: BTreeSet<PathBuf>,
    calls: usize,
    call_names: Vec<&'static str>,
    faults: BTreeMap<usize, Fault>,
    is_full: bool,
    is_without_power: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Node {
    Folder,
    File(usize),
}

#[derive(Default)]
struct Contents {
    /// As the process sees them.
    bytes: Vec<u8>,
    on_disk: Vec<u8>,
    pending: Vec<Step>,
}

/// A change of contents.
enum Step {
    Write(usize, Vec<u8>),
    Truncate(usize),
}

/// A change of names. It reaches the disk with a sync of either of its folders.
enum NameStep {
    Put(PathBuf, Node),
    Move(PathBuf, PathBuf, Node),
    Remove(PathBuf),
}

struct OpenFile {
    disk: Double,
    contents: usize,
}

impl Double {
    /// Makes the call of this number fail, counted from 0 over all calls of the disk and its files.
    pub fn fail_at(&self, call: usize, fault: Fault) {
        self.state().faults.insert(call, fault);
    }

    /// Returns the number of calls so far.
    pub fn calls(&self) -> usize {
        self.state().calls
    }

    /// Returns the names of the calls so far.
    pub fn call_names(&self) -> Vec<&'static str> {
        self.state().call_names.clone()
    }

    /// Ends the state of a full disk.
    pub fn make_room(&self) {
        self.state().is_full = false;
    }

    /// Forgets the faults that have not come yet.
    pub fn forget_faults(&self) {
        self.state().faults.clear();
    }

    /// Loses power if it is not lost yet, and starts again. Files that were open are of no use any more.
    pub fn restart(&self, kept: Kept) {
        let mut state = self.state();
        state.lose_power(kept);
        state.faults.clear();
        state.locked.clear();
        (state.is_full, state.is_without_power) = (false, false);
    }

    fn state(&self) -> MutexGuard<'_, State> {
        // A test that has failed in a call has said so already.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn open_file(&self, contents: usize) -> Arc<dyn File> {
        Arc::new(OpenFile {
            disk: self.clone(),
            contents,
        })
    }

    /// Runs a call that is done wholly or not at all.
    fn call<T>(
        &self,
        name: &'static str,
        run: impl FnOnce(&mut State) -> io::Result<T>,
    ) -> io::Result<T> {
        let mut state = self.state();
        match state.begin(name)? {
            None => run(&mut state),
            Some(Fault::DoneButError) => {
                run(&mut state)?;
                Err(broken())
            }
            Some(_) => Err(broken()),
        }
    }
}

fn broken() -> io::Error {
    io::Error::from_raw_os_error(rustix::io::Errno::IO.raw_os_error())
}

fn no_space() -> io::Error {
    io::Error::from_raw_os_error(rustix::io::Errno::NOSPC.raw_os_error())
}

impl State {
    /// Counts a call and returns the fault that it has.
    fn begin(&mut self, name: &'static str) -> io::Result<Option<Fault>> {
        if self.is_without_power {
            return Err(broken());
        }
        let fault = self.faults.remove(&self.calls);
        self.calls += 1;
        self.call_names.push(name);
        match fault {
            Some(Fault::PowerLost) => {
                self.is_without_power = true;
                Err(broken())
            }
            Some(Fault::Full) => {
                self.is_full = true;
                Ok(fault)
            }
            fault => Ok(fault),
        }
    }

    fn file(&self, path: &Path) -> io::Result<usize> {
        match self.names.get(path) {
            Some(&Node::File(contents)) => Ok(contents),
            Some(Node::Folder) => Err(ErrorKind::IsADirectory.into()),
            None => Err(io::Error::from_raw_os_error(
                rustix::io::Errno::NOENT.raw_os_error(),
            )),
        }
    }

    fn wants_folder(&self, path: &Path) -> io::Result<()> {
        match path.parent() {
            // The folders above the first that a test creates are there.
            Some(folder) if self.names.get(folder) == Some(&Node::Folder) => Ok(()),
            Some(folder) if !self.names.contains_key(folder) && self.names.is_empty() => Ok(()),
            _ => Err(ErrorKind::NotFound.into()),
        }
    }

    fn put(&mut self, path: &Path, node: Node) {
        self.names.insert(path.to_owned(), node);
        self.pending.push(NameStep::Put(path.to_owned(), node));
    }

    fn open_append(&mut self, path: &Path) -> io::Result<usize> {
        if let Ok(contents) = self.file(path) {
            return Ok(contents);
        }
        self.wants_folder(path)?;
        if self.is_full {
            return Err(no_space());
        }
        let contents = self.contents.len();
        self.contents.push(Contents::default());
        self.put(path, Node::File(contents));
        Ok(contents)
    }

    fn lose_power(&mut self, kept: Kept) {
        self.is_without_power = true;
        let mut choices = Choices::new(kept);
        for contents in &mut self.contents {
            for step in std::mem::take(&mut contents.pending) {
                let share = choices.share();
                step.apply(&mut contents.on_disk, share);
            }
            contents.bytes.clone_from(&contents.on_disk);
        }
        for step in std::mem::take(&mut self.pending) {
            if choices.takes() {
                step.apply(&mut self.names_on_disk);
            }
        }
        self.names.clone_from(&self.names_on_disk);
    }
}

impl Step {
    /// Applies it, a write with `share` 256ths of its bytes. A gap before the bytes is full of zeros.
    fn apply(&self, bytes: &mut Vec<u8>, share: usize) {
        match self {
            Step::Write(offset, written) => {
                let written = &written[..written.len() * share / WHOLE_SHARE];
                if written.is_empty() {
                    return;
                }
                let end = offset + written.len();
                if bytes.len() < end {
                    bytes.resize(end, 0);
                }
                bytes[*offset..end].copy_from_slice(written);
            }
            Step::Truncate(to) if share == WHOLE_SHARE => bytes.truncate(*to),
            Step::Truncate(_) => {}
        }
    }
}

const WHOLE_SHARE: usize = 256;

impl NameStep {
    fn apply(&self, names: &mut BTreeMap<PathBuf, Node>) {
        match self {
            NameStep::Put(path, node) => {
                names.insert(path.clone(), *node);
            }
            NameStep::Move(from, to, node) => {
                // The name may have been given to another file since, if an earlier step was not kept.
                if names.get(from) == Some(node) {
                    names.remove(from);
                }
                names.insert(to.clone(), *node);
            }
            NameStep::Remove(path) => {
                names.remove(path);
            }
        }
    }

    fn is_in(&self, folder: &Path) -> bool {
        match self {
            NameStep::Put(path, _) | NameStep::Remove(path) => path.parent() == Some(folder),
            NameStep::Move(from, to, _) => {
                from.parent() == Some(folder) || to.parent() == Some(folder)
            }
        }
    }
}

/// The choice of what a loss of power leaves, step by step.
struct Choices {
    kept: Kept,
    state: u64,
}

impl Choices {
    fn new(kept: Kept) -> Choices {
        let state = match kept {
            Kept::Some { seed } => seed,
            _ => 0,
        };
        Choices { kept, state }
    }

    /// A step of SplitMix64.
    fn next(&mut self) -> u64 {
        self.state = self.state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.state;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    fn takes(&mut self) -> bool {
        match self.kept {
            Kept::All => true,
            Kept::Nothing => false,
            Kept::Some { .. } => self.next().is_multiple_of(2),
        }
    }

    fn share(&mut self) -> usize {
        match self.kept {
            Kept::All => WHOLE_SHARE,
            Kept::Nothing => 0,
            Kept::Some { .. } => match self.next() % 4 {
                0 => 0,
                1 => (self.next() % WHOLE_SHARE as u64) as usize,
                _ => WHOLE_SHARE,
            },
        }
    }
}

impl Disk for Double {
    fn create(&self, path: &Path) -> io::Result<Arc<dyn File>> {
        let contents = self.call("create", |state| {
            let contents = state.open_append(path)?;
            state.contents[contents].truncate(0);
            Ok(contents)
        })?;
        Ok(self.open_file(contents))
    }

    fn open_append(&self, path: &Path) -> io::Result<Arc<dyn File>> {
        let contents = self.call("open_append", |state| state.open_append(path))?;
        Ok(self.open_file(contents))
    }

    fn open(&self, path: &Path) -> io::Result<Arc<dyn File>> {
        let contents = self.call("open", |state| state.file(path))?;
        Ok(self.open_file(contents))
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        self.call("rename", |state| {
            let contents = state.file(from)?;
            state.wants_folder(to)?;
            let node = Node::File(contents);
            state.names.remove(from);
            state.names.insert(to.to_owned(), node);
            state
                .pending
                .push(NameStep::Move(from.to_owned(), to.to_owned(), node));
            Ok(())
        })
    }

    fn remove(&self, path: &Path) -> io::Result<()> {
        self.call("remove", |state| {
            state.file(path)?;
            state.names.remove(path);
            state.pending.push(NameStep::Remove(path.to_owned()));
            Ok(())
        })
    }

    fn truncate(&self, path: &Path, bytes: u64) -> io::Result<()> {
        self.call("truncate", |state| {
            let contents = state.file(path)?;
            state.contents[contents].truncate(bytes as usize);
            state.contents[contents].sync();
            Ok(())
        })
    }

    fn create_dir(&self, path: &Path) -> io::Result<()> {
        self.call("create_dir", |state| match state.names.get(path) {
            Some(Node::Folder) => Ok(()),
            Some(Node::File(_)) => Err(ErrorKind::AlreadyExists.into()),
            None => {
                state.wants_folder(path)?;
                let is_first = state.names.is_empty();
                state.put(path, Node::Folder);
                if is_first {
                    state.names_on_disk.insert(path.to_owned(), Node::Folder);
                }
                Ok(())
            }
        })
    }

    fn sync_dir(&self, path: &Path) -> io::Result<()> {
        self.call("sync_dir", |state| {
            let (reached, pending) = std::mem::take(&mut state.pending)
                .into_iter()
                .partition::<Vec<_>, _>(|step| step.is_in(path));
            reached
                .iter()
                .for_each(|step| step.apply(&mut state.names_on_disk));
            state.pending = pending;
            Ok(())
        })
    }

    fn list(&self, path: &Path) -> io::Result<Vec<OsString>> {
        self.call("list", |state| {
            let inside = state
                .names
                .keys()
                .filter(|name| name.parent() == Some(path));
            Ok(inside
                .filter_map(|name| name.file_name())
                .map(OsString::from)
                .collect())
        })
    }

    fn exists(&self, path: &Path) -> io::Result<bool> {
        self.call("exists", |state| Ok(state.names.contains_key(path)))
    }

    fn len(&self, path: &Path) -> io::Result<u64> {
        self.call("len", |state| {
            let contents = state.file(path)?;
            Ok(state.contents[contents].bytes.len() as u64)
        })
    }

    fn lock_dir(&self, path: &Path) -> io::Result<Option<DirLock>> {
        let is_ours = self.call("lock_dir", |state| Ok(state.locked.insert(path.to_owned())))?;
        let lock = Locked(self.clone(), path.to_owned());
        Ok(if is_ours {
            Some(DirLock(Box::new(lock)))
        } else {
            // Dropped, it would let go of the lock of the other.
            std::mem::forget(lock);
            None
        })
    }
}

struct Locked(Double, PathBuf);

impl Drop for Locked {
    fn drop(&mut self) {
        self.0.state().locked.remove(&self.1);
    }
}

impl Contents {
    fn truncate(&mut self, to: usize) {
        self.bytes.truncate(to);
        self.pending.push(Step::Truncate(to));
    }

    fn append(&mut self, bytes: &[u8]) {
        self.pending
            .push(Step::Write(self.bytes.len(), bytes.to_vec()));
        self.bytes.extend_from_slice(bytes);
    }

    fn sync(&mut self) {
        for step in self.pending.drain(..) {
            step.apply(&mut self.on_disk, WHOLE_SHARE);
        }
    }
}

impl File for OpenFile {
    fn write(&self, slices: &[IoSlice<'_>]) -> io::Result<usize> {
        let mut state = self.disk.state();
        let fault = state.begin("write")?;
        let bytes: Vec<u8> = slices
            .iter()
            .flat_map(|slice| slice.iter().copied())
            .collect();
        let taken = match fault {
            Some(Fault::Short | Fault::Full) => bytes.len() / 2,
            Some(Fault::Error | Fault::PagesDropped) => return Err(broken()),
            _ if state.is_full => return Err(no_space()),
            _ => bytes.len(),
        };
        let contents = &mut state.contents[self.contents];
        if taken > 0 {
            contents.append(&bytes[..taken]);
        }
        match fault {
            Some(Fault::DoneButError) => Err(broken()),
            Some(Fault::Full) if taken == 0 => Err(no_space()),
            _ => Ok(taken),
        }
    }

    fn sync_data(&self) -> io::Result<()> {
        let mut state = self.disk.state();
        let fault = state.begin("sync_data")?;
        let contents = &mut state.contents[self.contents];
        match fault {
            None => contents.sync(),
            Some(Fault::DoneButError) => {
                contents.sync();
                return Err(broken());
            }
            Some(Fault::PagesDropped) => {
                contents.pending.clear();
                return Err(broken());
            }
            Some(_) => return Err(broken()),
        }
        Ok(())
    }

    fn truncate(&self, bytes: u64) -> io::Result<()> {
        self.disk.call("file.truncate", |state| {
            state.contents[self.contents].truncate(bytes as usize);
            Ok(())
        })
    }

    fn bytes(&self) -> io::Result<u64> {
        let contents = self.contents;
        self.disk.call("bytes", |state| {
            Ok(state.contents[contents].bytes.len() as u64)
        })
    }

    fn read_at(&self, into: &mut [u8], offset: u64) -> io::Result<usize> {
        self.disk.call("read_at", |state| {
            let bytes = &state.contents[self.contents].bytes;
            let rest = bytes.get(offset as usize..).unwrap_or_default();
            let count = rest.len().min(into.len());
            into[..count].copy_from_slice(&rest[..count]);
            Ok(count)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::disk::{read_whole, write_all};

    fn with_folder() -> (Double, PathBuf) {
        let disk = Double::default();
        disk.create_dir(Path::new("/data")).unwrap();
        (disk, PathBuf::from("/data/file"))
    }

    fn contents(disk: &Double, path: &Path) -> Option<Vec<u8>> {
        disk.exists(path)
            .unwrap()
            .then(|| read_whole(disk, path, 100).unwrap().unwrap())
    }

    #[test]
    fn power_takes_what_was_not_synced() {
        for (kept, left) in [(Kept::All, &b"onetwo"[..]), (Kept::Nothing, b"one")] {
            let (disk, path) = with_folder();
            let file = disk.create(&path).unwrap();
            write_all(&*file, &[b"one"]).unwrap();
            file.sync_data().unwrap();
            disk.sync_dir(Path::new("/data")).unwrap();
            write_all(&*file, &[b"two"]).unwrap();
            disk.restart(kept);
            assert_eq!(contents(&disk, &path).unwrap(), left);
        }
    }

    #[test]
    fn a_name_needs_a_sync_of_its_folder() {
        let (disk, path) = with_folder();
        let file = disk.create(&path).unwrap();
        write_all(&*file, &[b"one"]).unwrap();
        file.sync_data().unwrap();
        disk.restart(Kept::Nothing);
        assert_eq!(contents(&disk, &path), None);
        let other = Path::new("/data/other");
        disk.create(&path).unwrap();
        disk.sync_dir(Path::new("/data")).unwrap();
        disk.rename(&path, other).unwrap();
        disk.restart(Kept::Nothing);
        assert!(contents(&disk, &path).is_some() && contents(&disk, other).is_none());
        disk.remove(&path).unwrap();
        disk.restart(Kept::Nothing);
        assert!(contents(&disk, &path).is_some());
        disk.remove(&path).unwrap();
        disk.sync_dir(Path::new("/data")).unwrap();
        disk.restart(Kept::Nothing);
        assert!(contents(&disk, &path).is_none());
    }

    #[test]
    fn a_sync_after_dropped_pages_proves_nothing() {
        let (disk, path) = with_folder();
        let file = disk.create(&path).unwrap();
        disk.sync_dir(Path::new("/data")).unwrap();
        write_all(&*file, &[b"one"]).unwrap();
        disk.fail_at(disk.calls(), Fault::PagesDropped);
        file.sync_data().unwrap_err();
        write_all(&*file, &[b"two"]).unwrap();
        assert_eq!(contents(&disk, &path).unwrap(), b"onetwo");
        file.sync_data().unwrap();
        disk.restart(Kept::All);
        assert_eq!(contents(&disk, &path).unwrap(), b"\0\0\0two");
    }

    #[test]
    fn some_seeds_keep_a_later_write_without_an_earlier_one() {
        let left = (0..1000).map(|seed| {
            let (disk, path) = with_folder();
            let file = disk.create(&path).unwrap();
            disk.sync_dir(Path::new("/data")).unwrap();
            write_all(&*file, &[b"one"]).unwrap();
            write_all(&*file, &[b"two"]).unwrap();
            disk.restart(Kept::Some { seed });
            contents(&disk, &path).unwrap()
        });
        let left: BTreeSet<Vec<u8>> = left.collect();
        for expected in [&b"onetwo"[..], b"one", b"\0\0\0two", b"", b"o"] {
            assert!(left.contains(expected), "{left:?}");
        }
    }

    #[test]
    fn a_full_disk_takes_half_of_a_write_and_then_nothing() {
        let (disk, path) = with_folder();
        let file = disk.create(&path).unwrap();
        disk.fail_at(disk.calls(), Fault::Full);
        let (written, error) = write_all(&*file, &[b"four"]).unwrap_err();
        assert_eq!((written, error.kind()), (2, ErrorKind::StorageFull));
        disk.make_room();
        write_all(&*file, &[b"!"]).unwrap();
        assert_eq!(contents(&disk, &path).unwrap(), b"fo!");
    }
}
