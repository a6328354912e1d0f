//! Messages of a process on its standard streams: help, results of a check, the reason why it ends. A stream without a
//! reader, or one that accepts no more bytes, is no reason to panic, which the standard macros do.

use std::io::{self, ErrorKind, Write};

use crate::error_text;

/// Writes to standard output. A reader that has closed the pipe (`redline server --help | head -1`) is no error. The
/// error of a stream that cannot be written, such as a file on a full disk, is returned as text.
pub fn out(text: &str) -> Result<(), String> {
    to(&mut io::stdout().lock(), text.as_bytes())
}

/// Writes bytes that need not be text, as [`out`].
pub fn out_bytes(bytes: &[u8]) -> Result<(), String> {
    to(&mut io::stdout().lock(), bytes)
}

/// Writes a line to standard error, if that accepts it; a failure cannot be reported anywhere.
pub fn line_to_stderr(text: &str) {
    // In one piece, so that lines of several threads do not mix.
    let _ = io::stderr()
        .lock()
        .write_all(format!("{text}\n").as_bytes());
}

/// Returns the columns of the terminal that standard output is, if it is one.
pub fn columns() -> Option<usize> {
    let size = rustix::termios::tcgetwinsize(io::stdout()).ok()?;
    Some(usize::from(size.ws_col)).filter(|columns| *columns > 0)
}

fn to(stream: &mut dyn Write, bytes: &[u8]) -> Result<(), String> {
    let written = stream.write_all(bytes).and_then(|()| stream.flush());
    match written {
        Err(error) if error.kind() != ErrorKind::BrokenPipe => {
            Err(format!("standard output: {}", error_text(&error)))
        }
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Fails(ErrorKind);

    impl Write for Fails {
        fn write(&mut self, _: &[u8]) -> io::Result<usize> {
            Err(self.0.into())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn a_reader_that_has_gone_is_no_error_and_a_full_disk_is_one() {
        assert_eq!(to(&mut Fails(ErrorKind::BrokenPipe), b"text"), Ok(()));
        let full = to(&mut Fails(ErrorKind::StorageFull), b"text");
        assert!(full.unwrap_err().starts_with("standard output: "));
        let mut taken = Vec::new();
        assert_eq!(to(&mut taken, b"text"), Ok(()));
        assert_eq!(taken, b"text");
    }
}
