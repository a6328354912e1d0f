//! The tools that check files: their surroundings are those of the process.
//!
//! Must not know what the files hold.

use std::ffi::OsString;
use std::io::{self, ErrorKind, Write};
use std::process::ExitCode;
use std::time::{SystemTime, UNIX_EPOCH};

use redline_persist::{RealDisk, check};
use redline_server::console;

type Main<A> = fn(&mut check::Tool<'_>, A) -> io::Result<u8>;

/// Runs `check-aof`.
pub fn aof(name: &str, args: impl Iterator<Item = OsString>) -> ExitCode {
    run(name, args, check::aof_main)
}

/// Runs `check-rdb`.
pub fn rdb(name: &str, args: impl Iterator<Item = OsString>) -> ExitCode {
    run(name, args, check::rdb_main)
}

fn run<A: Iterator<Item = OsString>>(name: &str, args: A, main: Main<A>) -> ExitCode {
    let now = SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .unwrap_or_default();
    let mut out = io::stdout().lock();
    let code = main(
        &mut check::Tool {
            name,
            disk: &RealDisk,
            now_ms: now.as_millis() as i64,
            input: &mut io::stdin().lock(),
            out: &mut out,
        },
        args,
    );
    match code.and_then(|code| out.flush().map(|()| code)) {
        Ok(code) => ExitCode::from(code),
        Err(error) => {
            // Whoever has closed the pipe has seen enough, but the file was not checked to its end.
            if error.kind() != ErrorKind::BrokenPipe {
                console::line_to_stderr(&format!("{name}: standard output: {error}"));
            }
            ExitCode::FAILURE
        }
    }
}
