//! Histories of many clients, checked for one order of atomic units by Porcupine, a linearizability checker in Go
//! (`crates/testkit/histories`). Faults that a proxy plants must be found by the same program.

use std::process::Command;
use std::time::Duration;

use crate::compat::{Setting, stop};
use crate::install;
use crate::run::{Failure, captured, workspace};

/// Numbers of our server's workers.
const WORKERS: [usize; 2] = [2, 8];
/// Seconds of histories for each of these.
const SECONDS: &str = "8";
/// Time limit for each planted fault to be found, in seconds; most are at once.
const FAULT_SECONDS: &str = "10";
const TIMEOUT: Duration = Duration::from_secs(180);

/// Runs them.
pub fn run(setting: &Setting) -> Result<String, Failure> {
    let program = install::go_program(&workspace().join("crates/testkit/histories"), "histories")?;
    let seed = setting.seed().to_string();
    let said_of = |workers: usize, seconds: &str, faults: bool| {
        let redline = setting.start_redline(workers, &[])?;
        let mut command = Command::new(&program);
        command
            .arg(redline.address().to_string())
            .arg(seconds)
            .arg(&seed);
        if faults {
            command.arg("FAULTS");
        }
        let said = captured(command, b"", TIMEOUT);
        stop(redline)?;
        said
    };
    let mut histories = 0;
    for workers in WORKERS {
        let said = said_of(workers, SECONDS, false)?;
        for line in said.lines() {
            println!("  {workers} workers, {line}");
            histories += count_of(line).ok_or_else(|| format!("{line:?} has no count"))?;
        }
    }
    let found = said_of(2, FAULT_SECONDS, true)?;
    found.lines().for_each(|line| println!("  planted: {line}"));
    Ok(format!(
        "{histories} histories are linearizable, {} planted faults found",
        found.lines().count()
    ))
}

/// Returns the number before the word "histories".
fn count_of(line: &str) -> Option<u64> {
    let (before, _) = line.split_once(" histories")?;
    before.split_whitespace().next_back()?.parse().ok()
}
