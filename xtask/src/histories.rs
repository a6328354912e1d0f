//! Histories of many clients, held against one order of atomic units by Porcupine, a linearizability checker in Go
//! (`crates/testkit/histories`). Faults that a proxy plants must be found by the same program.

use std::process::Command;
use std::time::Duration;

use crate::compat::{Setting, stop};
use crate::install;
use crate::run::{Failure, captured, workspace};

/// How many workers our server runs with.
const WORKERS: [usize; 2] = [2, 8];
/// Seconds of histories for each of these.
const SECONDS: &str = "8";
/// Seconds that each planted fault has to show itself; most do at once.
const FAULT_SECONDS: &str = "10";
const TIMEOUT: Duration = Duration::from_secs(180);

/// Runs them.
pub fn run(setting: &Setting) -> Result<String, Failure> {
    let program = install::go_program(&workspace().join("crates/testkit/histories"), "histories")?;
    let seed = setting.seed().to_string();
    let said_of = |workers: usize, words: &[&str]| {
        let redline = setting.start_redline(workers, &[])?;
        let mut command = Command::new(&program);
        command
            .arg(redline.address().to_string())
            .args(words)
            .arg(&seed);
        if words[0] == FAULT_SECONDS {
            command.arg("FAULTS");
        }
        let said = captured(command, b"", TIMEOUT);
        stop(redline)?;
        said
    };
    let mut histories = 0;
    for workers in WORKERS {
        let said = said_of(workers, &[SECONDS])?;
        for line in said.lines() {
            println!("  {workers} workers, {line}");
            let count = line.split_whitespace().nth(1);
            histories += count
                .and_then(|count| count.parse::<u64>().ok())
                .unwrap_or(0);
        }
    }
    let found = said_of(2, &[FAULT_SECONDS])?;
    found.lines().for_each(|line| println!("  planted: {line}"));
    Ok(format!(
        "{histories} histories are linearizable, {} planted faults found",
        found.lines().count()
    ))
}
