//! The file that is appended to: all of an append is in it, or none as far as that can be had.
//!
//! Must not know: manifests, rewrites, clients.

use std::io;
use std::sync::Arc;

use crate::disk::{File, error_text, write_all};

/// The last file.
pub(super) struct Current {
    pub(super) file: Arc<dyn File>,
    /// Number of bytes up to the end of the last whole append.
    pub(super) bytes: u64,
    /// The rest of an append that failed and could not be cut off.
    pub(super) partial: Option<Partial>,
    /// True if no manifest names it yet.
    pub(super) is_temporary: bool,
}

/// The beginning of an append that is in the file.
pub(super) struct Partial {
    pub(super) annotation: Vec<u8>,
    pub(super) bytes: u64,
}

/// Failure of an append.
pub(super) struct AppendError {
    pub(super) text: String,
    pub(super) lines: Vec<String>,
    /// True if nobody knows what is in the file now.
    pub(super) is_lost: bool,
}

impl Current {
    pub(super) fn new(file: Arc<dyn File>, bytes: u64, is_temporary: bool) -> Current {
        Current {
            file,
            bytes,
            partial: None,
            is_temporary,
        }
    }

    /// Appends all, or nothing as far as that can be had. Returns true if an annotation was written.
    pub(super) fn append(
        &mut self,
        annotation: Vec<u8>,
        units: &[&[u8]],
    ) -> Result<bool, AppendError> {
        let there = self.partial.take().map_or(0, |partial| partial.bytes);
        let slices: Vec<&[u8]> = std::iter::once(&annotation[..])
            .chain(units.iter().copied())
            .collect();
        let bytes: u64 = slices.iter().map(|slice| slice.len() as u64).sum();
        match write_all(&*self.file, &behind(&slices, there)) {
            Ok(()) => {
                self.bytes += bytes;
                Ok(!annotation.is_empty())
            }
            Err((written, error)) => {
                Err(self.cut_back(annotation, (there + written, bytes), &error))
            }
        }
    }

    /// Takes away what a failed append has left.
    fn cut_back(
        &mut self,
        annotation: Vec<u8>,
        (written, wanted): (u64, u64),
        error: &io::Error,
    ) -> AppendError {
        let text = error_text(error);
        let mut lines = vec![if written == 0 {
            format!("Error writing to the AOF file: {text}")
        } else {
            format!(
                "Short write while writing to the AOF file: (nwritten={written}, expected={wanted}): {text}"
            )
        }];
        let Err(error) = self.file.truncate(self.bytes) else {
            return AppendError {
                text,
                lines,
                is_lost: false,
            };
        };
        lines.push(format!(
            "Could not remove short write from the append-only file.  ftruncate: {}",
            error_text(&error)
        ));
        // The next append goes on behind it, if it is known where that is.
        let there = self
            .file
            .bytes()
            .ok()
            .and_then(|end| end.checked_sub(self.bytes));
        let there = there.filter(|there| *there <= wanted);
        self.partial = there.map(|bytes| Partial { annotation, bytes });
        AppendError {
            text,
            lines,
            is_lost: there.is_none(),
        }
    }
}

/// Returns the slices without their first `skipped` bytes.
fn behind<'a>(slices: &[&'a [u8]], mut skipped: u64) -> Vec<&'a [u8]> {
    let rest = slices.iter().map(|slice| {
        let here = skipped.min(slice.len() as u64);
        skipped -= here;
        &slice[here as usize..]
    });
    rest.filter(|slice| !slice.is_empty()).collect()
}
