//! The spool of a snapshot: chunks that do not fit into memory wait in a file without a name.
//!
//! The walk rests while much waits for the writer, commands that save an entry before they change it cannot. What they
//! bring beyond [`SPOOL_BYTES_MIN`] goes to the spool, and the writer takes it when no other chunk is left. A thread of
//! its own writes it, since who brings a chunk holds stripes.
//!
//! Must not know: what is in a chunk.

use std::{collections::VecDeque, io, path::Path, sync::Arc};

use redline_rdb::primitive::Writer;

use super::{Chunk, Piece, STREAM_BYTES_MAX, Stream};
use crate::disk::{Disk, File, error_text, write_all};

/// Bytes of chunks that wait in memory before some of them go to the spool.
pub const SPOOL_BYTES_MIN: u64 = STREAM_BYTES_MAX + 8 * 1024 * 1024;
/// Bytes of chunks that stay in memory, as far as chunks are small: more than those at which the walk goes on.
const LEFT_BYTES: u64 = STREAM_BYTES_MAX + 1024 * 1024;

/// The chunks in the file, and whoever writes it.
#[derive(Default)]
pub(super) struct Spool {
    file: Option<Arc<dyn File>>,
    chunks: VecDeque<Spooled>,
    /// A chunk is on its way into the file.
    is_writing: bool,
    /// More is in memory than should stay there.
    is_draining: bool,
    /// No further chunk goes into the file.
    is_closed: bool,
    /// The reason why chunks are lost.
    pub(super) failed: Option<String>,
}

/// A chunk in the file.
struct Spooled {
    offset: u64,
    bytes: usize,
    entries: u64,
}

impl Spool {
    /// Returns true if chunks are there, or are about to be.
    pub(super) fn has_chunks(&self) -> bool {
        self.is_writing || !self.chunks.is_empty()
    }

    /// Forgets the chunks.
    pub(super) fn clear(&mut self) {
        self.chunks.clear();
        self.file = None;
    }

    /// Returns the work of reading the next chunk.
    pub(super) fn next(&mut self) -> Option<impl FnOnce() -> io::Result<Chunk> + use<>> {
        let Spooled {
            offset,
            bytes,
            entries,
        } = self.chunks.pop_front()?;
        let file = self.file.clone()?;
        Some(move || {
            let mut read = vec![0; bytes];
            let mut there = 0;
            while there < bytes {
                match file.read_at(&mut read[there..], offset + there as u64) {
                    Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
                    Ok(more) => there += more,
                    Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                    Err(error) => return Err(error),
                }
            }
            Ok(Chunk {
                pieces: vec![Piece::Encoded(read)],
                bytes: bytes as u64,
                entries,
            })
        })
    }
}

impl Stream {
    /// Puts chunks into a spool while too many wait in memory, until the snapshot ends, is not wanted any more, or
    /// [`Stream::close_spool`] is called. `path` is the name that the file has for a moment.
    ///
    /// A spool that cannot be written ends the snapshot.
    pub fn run_spool(&self, disk: &dyn Disk, path: &Path) {
        let mut end = 0;
        while let Some(chunk) = self.chunk_to_spool() {
            let result = self.write_to_spool(disk, path, &chunk, end);
            let mut queue = self.queue();
            queue.spool.is_writing = false;
            match result {
                Ok(_) if self.is_unwanted() => queue.spool.clear(),
                Ok(bytes) => {
                    self.release_bytes(chunk.bytes);
                    let entries = chunk.entries;
                    let offset = end;
                    end += bytes as u64;
                    queue.spool.chunks.push_back(Spooled {
                        offset,
                        bytes,
                        entries,
                    });
                }
                Err(error) => self.fail_spool(&mut queue, &error),
            }
            self.filled.notify_all();
        }
    }

    /// Has [`Stream::run_spool`] end.
    pub fn close_spool(&self) {
        self.queue().spool.is_closed = true;
        self.crowded.notify_all();
    }

    /// Waits for a chunk that has to leave the memory. `None`: none will.
    fn chunk_to_spool(&self) -> Option<Chunk> {
        let mut queue = self.queue();
        loop {
            if queue.spool.is_closed || self.is_unwanted() {
                return None;
            }
            let may_stay = match queue.spool.is_draining {
                true => LEFT_BYTES,
                false => SPOOL_BYTES_MIN,
            };
            queue.spool.is_draining = self.waiting_bytes() > may_stay;
            // The writer is at the other end.
            if queue.spool.is_draining
                && let Some(chunk) = queue.chunks.pop_back()
            {
                queue.spool.is_writing = true;
                return Some(chunk);
            }
            queue.spool.is_draining = false;
            let waited = self.crowded.wait(queue);
            queue = waited.expect("no panic under a queue of chunks");
        }
    }

    /// Appends a chunk to the file, which is created for the first one. Returns its bytes.
    fn write_to_spool(
        &self,
        disk: &dyn Disk,
        path: &Path,
        chunk: &Chunk,
        end: u64,
    ) -> io::Result<usize> {
        let known = self.queue().spool.file.clone();
        let file = match known {
            Some(file) => file,
            None => {
                debug_assert_eq!(end, 0, "a spool has one file");
                let file = disk.create(path)?;
                // It lives as long as it is open.
                disk.remove(path)?;
                self.queue().spool.file = Some(file.clone());
                file
            }
        };
        let mut out = Writer::new(self.format().compresses);
        chunk.write_to(&mut out);
        write_all(&*file, &[&out]).map_err(|(_, error)| error)?;
        Ok(out.len())
    }

    /// Ends the snapshot because of its spool.
    pub(super) fn fail_spool(&self, queue: &mut super::Queue, error: &io::Error) {
        queue.spool.failed.get_or_insert_with(|| error_text(error));
        self.is_unwanted
            .store(true, std::sync::atomic::Ordering::Relaxed);
        self.drop_chunks(queue);
        self.filled.notify_all();
        self.crowded.notify_all();
    }
}

#[cfg(test)]
mod tests;
