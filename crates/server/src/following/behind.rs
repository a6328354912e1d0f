//! A snapshot on its way through a file, which is read behind its writer: so most of it is loaded when its end comes, and the
//! connection never waits for the loader.
//!
//! Must not know: the form of a snapshot, where the bytes come from.

use std::{
    fs::{self, File},
    io::{self, Write},
    os::unix::fs::FileExt,
    path::{Path, PathBuf},
    sync::{
        Arc, Condvar, Mutex, MutexGuard,
        atomic::{AtomicBool, Ordering},
    },
};

use redline_rdb::file::Source;
use redline_replica::primary::MARK_BYTES;

use super::pipe::End;

/// Bytes that are read at once: the reader sleeps until so many are there.
const PIECE_BYTES: u64 = 256 * 1024;
/// Bytes that are not read before the end is known: the mark of a snapshot of unknown length is no part of it.
const HELD_BACK_BYTES: u64 = MARK_BYTES as u64;

/// The side of the connection. Dropped without [`Writer::finish`], it ends the reader with an error.
pub(super) struct Writer(Arc<Received>);

/// The side of the loader.
pub(super) struct Reader {
    received: Arc<Received>,
    at: u64,
}

/// The file, which is removed when both sides have gone, unless it is kept.
struct Received {
    file: File,
    path: PathBuf,
    is_kept: AtomicBool,
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Default)]
struct State {
    /// Number of bytes that were written.
    bytes: u64,
    /// Number of bytes at which the reader goes on.
    wanted: u64,
    end: End,
}

/// Makes the file at this path, where there is none, and both sides of it.
pub(super) fn create(path: PathBuf) -> io::Result<(Writer, Reader)> {
    let file = File::options()
        .read(true)
        .write(true)
        .create_new(true)
        .open(&path)?;
    let received = Arc::new(Received {
        file,
        path,
        is_kept: AtomicBool::new(false),
        state: Mutex::default(),
        changed: Condvar::new(),
    });
    let reader = Reader {
        received: received.clone(),
        at: 0,
    };
    Ok((Writer(received), reader))
}

impl Received {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().expect("no panic under the length")
    }

    fn end(&self, end: End, surplus: u64) {
        let mut state = self.state();
        if state.end == End::Open {
            state.end = end;
            state.bytes -= surplus;
        }
        drop(state);
        self.changed.notify_all();
    }
}

impl Drop for Received {
    fn drop(&mut self) {
        if !*self.is_kept.get_mut() {
            // It is of no use, and may be gone.
            let _ = fs::remove_file(&self.path);
        }
    }
}

impl Writer {
    /// Writes bytes behind those that are there.
    pub(super) fn write(&self, bytes: &[u8]) -> io::Result<()> {
        (&self.0.file).write_all(bytes)?;
        let mut state = self.0.state();
        state.bytes += bytes.len() as u64;
        let is_enough = state.bytes >= state.wanted;
        drop(state);
        if is_enough {
            self.0.changed.notify_all();
        }
        Ok(())
    }

    /// Ends the snapshot: all of it is there, and so many bytes at the end, [`MARK_BYTES`] at most, are no part of it.
    pub(super) fn finish(self, surplus: usize) {
        debug_assert!(surplus <= MARK_BYTES);
        self.0.end(End::Whole, surplus as u64);
    }
}

impl Drop for Writer {
    fn drop(&mut self) {
        self.0.end(End::Broken, 0);
    }
}

impl Reader {
    /// Returns the file's path.
    pub(super) fn path(&self) -> &Path {
        &self.received.path
    }

    /// Waits for the end of the snapshot. Returns false if the rest of it will never come.
    pub(super) fn ends_whole(&self) -> bool {
        let state = self.received.state();
        let waits = |state: &mut State| state.end == End::Open;
        let waited = self.received.changed.wait_while(state, waits);
        waited.expect("no panic under the length").end == End::Whole
    }

    /// Cuts the file, which has ended, to so many bytes: what is behind the snapshot is no part of it.
    pub(super) fn cut(&self, bytes: u64) -> io::Result<()> {
        self.received.file.set_len(bytes)
    }

    /// Lets the file stay, and returns its path: whoever has that removes it.
    pub(super) fn keep(self) -> PathBuf {
        self.received.is_kept.store(true, Ordering::Relaxed);
        self.received.path.clone()
    }
}

impl Source for Reader {
    fn fill(&mut self, buffer: &mut Vec<u8>) -> io::Result<usize> {
        let mut state = self.received.state();
        state.wanted = self.at + PIECE_BYTES + HELD_BACK_BYTES;
        let waits = |state: &mut State| state.end == End::Open && state.bytes < state.wanted;
        let waited = self.received.changed.wait_while(state, waits);
        let state = waited.expect("no panic under the length");
        let known = match state.end {
            End::Open => state.bytes - HELD_BACK_BYTES,
            End::Whole => state.bytes,
            End::Broken => return Err(super::pipe::broken()),
        };
        drop(state);
        let piece = (known - self.at).min(PIECE_BYTES) as usize;
        let from = buffer.len();
        buffer.resize(from + piece, 0);
        let read = self
            .received
            .file
            .read_exact_at(&mut buffer[from..], self.at);
        if read.is_err() {
            buffer.truncate(from);
        }
        self.at += piece as u64;
        read.map(|()| piece)
    }
}

#[cfg(test)]
mod tests {
    use std::thread;

    use super::*;

    fn pair() -> (tempfile::TempDir, PathBuf, Writer, Reader) {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("temp-1.2.rdb");
        let (writer, reader) = create(path.clone()).unwrap();
        (folder, path, writer, reader)
    }

    #[test]
    fn what_is_written_is_read_up_to_what_is_no_part_of_it() {
        for surplus in [0, 1, MARK_BYTES] {
            let (_folder, path, writer, mut reader) = pair();
            let reading = thread::spawn(move || {
                let mut all = Vec::new();
                while reader.fill(&mut all).expect("a whole snapshot") > 0 {}
                assert!(reader.ends_whole());
                all
            });
            let mut bytes = Vec::new();
            for at in 0..40 {
                let piece = vec![at as u8; 1 + 700 * at * at];
                writer.write(&piece).unwrap();
                bytes.extend_from_slice(&piece);
            }
            assert!(bytes.len() as u64 > 50 * PIECE_BYTES);
            writer.finish(surplus);
            let all = reading.join().expect("the reader ends");
            assert!(all == bytes[..bytes.len() - surplus]);
            assert!(!path.exists(), "it goes with the last who has it");
        }
    }

    #[test]
    fn a_file_that_is_kept_has_the_snapshot_alone() {
        let (_folder, path, writer, reader) = pair();
        writer.write(b"snapshot and a mark").unwrap();
        writer.finish(0);
        assert!(reader.ends_whole());
        reader.cut(8).unwrap();
        assert_eq!(reader.keep(), path);
        assert_eq!(fs::read(&path).unwrap(), b"snapshot");
        let again = create(path.clone());
        assert!(again.is_err(), "no other snapshot is written into it");
        assert_eq!(fs::read(&path).unwrap(), b"snapshot");
    }

    #[test]
    fn a_snapshot_is_read_before_its_end_but_for_what_may_be_a_mark() {
        let (_folder, path, writer, mut reader) = pair();
        let bytes = vec![7; (2 * PIECE_BYTES + HELD_BACK_BYTES) as usize];
        writer.write(&bytes).unwrap();
        let mut all = Vec::new();
        assert_eq!(reader.fill(&mut all).unwrap() as u64, PIECE_BYTES);
        assert_eq!(reader.fill(&mut all).unwrap() as u64, PIECE_BYTES);
        assert!(path.exists());
        drop(writer);
        assert!(reader.fill(&mut all).is_err(), "the rest never comes");
        assert!(!reader.ends_whole());
        drop(reader);
        assert!(!path.exists());
    }
}
