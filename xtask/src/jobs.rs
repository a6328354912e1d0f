//! Job queues at work: BullMQ and Celery, with their own workers, against our server and a real Redis. Each program
//! prints the results of its jobs; the two outputs have to be equal.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use crate::clients::differing;
use crate::compat::{Setting, stop};
use crate::install;
use crate::run::{Failure, captured, workspace};

/// Time-out of a program, which takes some seconds. It ends by itself if it waits in vain.
const PROGRAM_TIMEOUT: Duration = Duration::from_secs(90);

/// A program that runs jobs: its arguments are its script, the port, and a file for its worker's log.
struct Flow {
    name: &'static str,
    program: PathBuf,
    script: PathBuf,
    /// `NODE_PATH`.
    modules: Option<PathBuf>,
}

/// Runs them all.
pub fn run(setting: &Setting) -> Result<String, Failure> {
    let sources = workspace().join("crates/testkit/clients/jobs");
    let flows = [
        Flow {
            name: "BullMQ",
            program: "node".into(),
            script: sources.join("bullmq.js"),
            modules: Some(install::bullmq()?.join("node_modules")),
        },
        Flow {
            name: "Celery",
            program: install::celery()?,
            script: sources.join("celery_jobs.py"),
            modules: None,
        },
    ];
    let mut said = Vec::new();
    for flow in &flows {
        let redis = setting.start_redis(&[])?;
        let redline = setting.start_redline(2, &[])?;
        let began = Instant::now();
        let ours = flow.run(redline.address().port(), "redline")?;
        let took_s = began.elapsed().as_secs_f64();
        let theirs = flow.run(redis.address().port(), "redis")?;
        stop(redline)?;
        if let Some(failure) = differing(flow.name, &ours, &theirs) {
            return Err(failure);
        }
        let lines = ours.lines().count();
        said.push(format!("{} {lines} lines in {took_s:.1} s", flow.name));
    }
    Ok(format!("{}, as against Redis", said.join(", ")))
}

impl Flow {
    fn run(&self, port: u16, server: &str) -> Result<String, Failure> {
        let log = install::folder().join(format!("{}-{server}.log", self.name));
        let mut command = Command::new(&self.program);
        command.arg(&self.script).arg(port.to_string()).arg(&log);
        if let Some(modules) = &self.modules {
            command.env("NODE_PATH", modules);
        }
        captured(command, b"", PROGRAM_TIMEOUT).map_err(|failure| {
            let end = end_of(&log);
            format!("{} against {server}: {failure}\n{end}", self.name)
        })
    }
}

/// Returns the last lines of a worker's log, if there is one.
fn end_of(log: &Path) -> String {
    const LINES: usize = 20;
    let text = std::fs::read_to_string(log).unwrap_or_default();
    let lines: Vec<&str> = text.lines().collect();
    lines[lines.len().saturating_sub(LINES)..].join("\n")
}
