//! Commands of a file on their way to the worker that runs them: in one buffer, since most are small.
//!
//! Must not know: what a command does, who runs it.

use std::{ops::Range, sync::Arc};

use redline_resp::{Args, BIG_BULK_BYTES_MIN, Blob, Span};

/// About the bytes of a word in a file beside its own.
const LINE_BYTES: usize = 6;
/// Capacity above which a buffer is not kept.
const KEPT_BYTES_MAX: usize = 1024 * 1024;

/// Commands in the order in which they are run.
#[derive(Default)]
pub(crate) struct Batch {
    bytes: Vec<u8>,
    spans: Vec<Span>,
    /// Large words, which are not copied once more when they become values.
    blobs: Vec<Blob>,
    calls: Vec<Call>,
    file_bytes: usize,
}

/// A command of a [`Batch`].
pub(crate) struct Call {
    at: usize,
    spans: Range<usize>,
    /// About the bytes that it takes in a file.
    pub(crate) file_bytes: usize,
}

impl Batch {
    /// Adds a command behind those that are here.
    pub(crate) fn push(&mut self, args: Args<'_>) {
        let (at, spans_from) = (self.bytes.len(), self.spans.len());
        let mut file_bytes = 0;
        for word in args.iter() {
            file_bytes += word.len() + LINE_BYTES;
            let start = self.bytes.len() - at;
            let is_large = word.len() >= BIG_BULK_BYTES_MIN;
            self.spans.push(
                if is_large || start + word.len() >= Span::IN_BLOB as usize {
                    self.blobs.push(Arc::new(word.to_vec()));
                    Span::blob(self.blobs.len() as u32 - 1)
                } else {
                    self.bytes.extend_from_slice(word);
                    Span {
                        start: start as u32,
                        len: word.len() as u32,
                    }
                },
            );
        }
        self.calls.push(Call {
            at,
            spans: spans_from..self.spans.len(),
            file_bytes,
        });
        self.file_bytes += file_bytes;
    }

    /// Returns the commands; their words are those of [`Batch::args`].
    pub(crate) fn calls(&self) -> &[Call] {
        &self.calls
    }

    /// Returns the words of a command of this batch.
    pub(crate) fn args(&self, call: &Call) -> Args<'_> {
        let spans = &self.spans[call.spans.clone()];
        Args::with_big(&self.bytes[call.at..], spans, &self.blobs)
    }

    /// Returns about the number of bytes that the commands take in a file.
    pub(crate) fn file_bytes(&self) -> usize {
        self.file_bytes
    }

    /// Removes all commands.
    pub(crate) fn clear(&mut self) {
        if self.bytes.capacity() > KEPT_BYTES_MAX || self.spans.capacity() > KEPT_BYTES_MAX {
            *self = Batch::default();
        }
        self.bytes.clear();
        self.spans.clear();
        self.blobs.clear();
        self.calls.clear();
        self.file_bytes = 0;
    }
}

#[cfg(test)]
mod tests {
    use redline_resp::ArgsBuf;

    use super::*;

    #[test]
    fn commands_come_out_as_they_went_in() {
        let large = vec![b'x'; BIG_BULK_BYTES_MIN];
        let commands: [&[&[u8]]; 4] = [
            &[b"SET", b"key", b""],
            &[b"SET", &large, &large],
            &[b"PING"],
            &[b"MSET", b"a", &large, b"b", b"2"],
        ];
        let mut batch = Batch::default();
        for _ in 0..2 {
            for words in commands {
                let args: ArgsBuf = words.iter().copied().collect();
                batch.push(args.as_args());
            }
            let calls = batch.calls().iter();
            let all: Vec<Vec<&[u8]>> = calls
                .map(|call| batch.args(call).iter().collect())
                .collect();
            assert_eq!(all, commands);
            let words = commands.iter().copied().flatten();
            let bytes: usize = words.map(|word| word.len() + LINE_BYTES).sum();
            assert_eq!(batch.file_bytes(), bytes);
            assert!(batch.bytes.len() < 40, "large words are beside the others");
            batch.clear();
            assert!(batch.calls().is_empty() && batch.file_bytes() == 0);
        }
    }
}
