//! A snapshot on its way from the connection to the thread that loads it, without a file: a bounded queue of bytes.
//!
//! The writer never waits: it is told when there is enough, and hears when there is room again. The reader waits for bytes.
//!
//! Must not know: the form of a snapshot, where the bytes come from.

use std::{
    io,
    sync::{Arc, Condvar, Mutex, MutexGuard},
};

use redline_rdb::file::Source;

/// Bytes that may wait before no more are read.
const WAITING_BYTES_MAX: usize = 4 * 1024 * 1024;

/// The side of the connection. Dropped without [`Writer::finish`], it ends the reader with an error.
pub(super) struct Writer(Arc<Pipe>);

/// The side of the loader.
pub(super) struct Reader {
    pipe: Arc<Pipe>,
    /// Called when there is room again behind a push that was told that there is enough.
    drained: Box<dyn Fn() + Send>,
}

#[derive(Default)]
struct Pipe {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Default)]
struct State {
    bytes: Vec<u8>,
    /// The writer was told that there is enough.
    is_full: bool,
    end: End,
    /// Nobody reads any more.
    is_left: bool,
}

/// How the bytes end.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum End {
    /// There are more to come.
    #[default]
    Open,
    /// All have come.
    Whole,
    /// The rest will never come.
    Broken,
}

/// Makes the error of who reads bytes of which the rest will never come.
pub(super) fn broken() -> io::Error {
    let text = "the connection ended before the snapshot did";
    io::Error::new(io::ErrorKind::UnexpectedEof, text)
}

/// Makes both sides of a queue.
pub(super) fn pipe(drained: impl Fn() + Send + 'static) -> (Writer, Reader) {
    let pipe = Arc::new(Pipe::default());
    let reader = Reader {
        pipe: pipe.clone(),
        drained: Box::new(drained),
    };
    (Writer(pipe), reader)
}

impl Pipe {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().expect("no panic under the bytes")
    }

    fn end(&self, end: End) {
        let mut state = self.state();
        if state.end == End::Open {
            state.end = end;
        }
        drop(state);
        self.changed.notify_all();
    }
}

impl Writer {
    /// Hands bytes over. Returns false if no more are to be read for now. What nobody reads any more is dropped.
    pub(super) fn push(&self, bytes: &[u8]) -> bool {
        let mut state = self.0.state();
        if state.is_left {
            return true;
        }
        state.bytes.extend_from_slice(bytes);
        state.is_full = state.bytes.len() >= WAITING_BYTES_MAX;
        let goes_on = !state.is_full;
        drop(state);
        self.0.changed.notify_all();
        goes_on
    }

    /// Ends the bytes: all have come.
    pub(super) fn finish(self) {
        self.0.end(End::Whole);
    }
}

impl Drop for Writer {
    fn drop(&mut self) {
        self.0.end(End::Broken);
    }
}

impl Reader {
    /// Waits for the end of the bytes, and drops those that come before. Returns false if the rest will never come.
    pub(super) fn ends_whole(mut self) -> bool {
        let mut rest = Vec::new();
        loop {
            rest.clear();
            match self.fill(&mut rest) {
                Ok(0) => return true,
                Ok(_) => {}
                Err(_) => return false,
            }
        }
    }
}

impl Source for Reader {
    fn fill(&mut self, buffer: &mut Vec<u8>) -> io::Result<usize> {
        let state = self.pipe.state();
        let waits = |state: &mut State| state.bytes.is_empty() && state.end == End::Open;
        let waited = self.pipe.changed.wait_while(state, waits);
        let mut state = waited.expect("no panic under the bytes");
        let was_full = std::mem::take(&mut state.is_full);
        let bytes = std::mem::take(&mut state.bytes);
        let end = state.end;
        drop(state);
        if was_full {
            (self.drained)();
        }
        if end == End::Broken {
            return Err(broken());
        }
        buffer.extend_from_slice(&bytes);
        Ok(bytes.len())
    }
}

impl Drop for Reader {
    fn drop(&mut self) {
        let mut state = self.pipe.state();
        state.is_left = true;
        state.bytes = Vec::new();
        let was_full = std::mem::take(&mut state.is_full);
        drop(state);
        if was_full {
            (self.drained)();
        }
    }
}

#[cfg(test)]
mod tests {
    use std::{
        sync::atomic::{AtomicUsize, Ordering},
        thread,
    };

    use super::*;

    fn counted() -> (Writer, Reader, Arc<AtomicUsize>) {
        let times = Arc::new(AtomicUsize::new(0));
        let counted = times.clone();
        let (writer, reader) = pipe(move || {
            counted.fetch_add(1, Ordering::Relaxed);
        });
        (writer, reader, times)
    }

    #[test]
    fn bytes_come_in_order_and_then_the_end() {
        let (writer, mut reader, _) = counted();
        let reading = thread::spawn(move || {
            let mut all = Vec::new();
            while reader.fill(&mut all).expect("a whole snapshot") > 0 {}
            all
        });
        for byte in 0..=255 {
            assert!(writer.push(&[byte]));
        }
        writer.finish();
        let all = reading.join().expect("the reader ends");
        assert_eq!(all, Vec::from_iter(0..=255));
    }

    #[test]
    fn a_writer_with_enough_hears_once_when_there_is_room() {
        let (writer, mut reader, times) = counted();
        assert!(writer.push(&vec![0; WAITING_BYTES_MAX - 1]));
        assert!(!writer.push(&[0]));
        let mut all = Vec::new();
        assert_eq!(reader.fill(&mut all).ok(), Some(WAITING_BYTES_MAX));
        assert_eq!(times.load(Ordering::Relaxed), 1);
        assert!(writer.push(&[0]));
        assert_eq!(reader.fill(&mut all).ok(), Some(1));
        assert_eq!(times.load(Ordering::Relaxed), 1);
        assert!(!writer.push(&vec![0; WAITING_BYTES_MAX]));
        drop(reader);
        assert_eq!(times.load(Ordering::Relaxed), 2);
        assert!(
            writer.push(&vec![0; WAITING_BYTES_MAX]),
            "nobody reads it any more"
        );
    }

    #[test]
    fn a_writer_that_goes_breaks_the_snapshot() {
        let (writer, mut reader, _) = counted();
        writer.push(b"REDIS");
        drop(writer);
        assert!(reader.fill(&mut Vec::new()).is_err());
        assert!(!reader.ends_whole());
        let (writer, reader, _) = counted();
        writer.push(b"the mark");
        writer.finish();
        assert!(reader.ends_whole());
    }
}
