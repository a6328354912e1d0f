//! `redline-sim`: simulates the engine for a given time, and reports the seed of a violation.

#![forbid(unsafe_code)]

use std::{env, process::ExitCode, time::Instant};

use redline_sim::{Plan, run};

const USAGE: &str = "usage: redline-sim [--requests <number>] [--seed <number>] [--runs <number>]

Simulates clients of an engine with several executors, on one thread, and checks invariants.
  --requests <number>  requests of all runs together (default: 1000000)
  --seed <number>      seed of the first run; the following runs have the next ones (default: 1)
  --runs <number>      runs, each with a fresh engine (default: 10)";

fn main() -> ExitCode {
    let (mut requests, mut seed, mut runs) = (1_000_000, 1, 10);
    let mut args = env::args().skip(1);
    while let Some(option) = args.next() {
        let place = match option.as_str() {
            "--requests" => &mut requests,
            "--seed" => &mut seed,
            "--runs" => &mut runs,
            "--help" => {
                println!("{USAGE}");
                return ExitCode::SUCCESS;
            }
            _ => {
                eprintln!("redline-sim: unknown option '{option}'\n{USAGE}");
                return ExitCode::FAILURE;
            }
        };
        match args.next().and_then(|value| value.parse().ok()) {
            Some(value) => *place = value,
            None => {
                eprintln!("redline-sim: {option} wants a number\n{USAGE}");
                return ExitCode::FAILURE;
            }
        }
    }
    let began = Instant::now();
    let mut ran = 0;
    for seed in seed..seed + runs {
        let plan = Plan {
            seed,
            executors: 1 + seed as usize % 4,
            clients: 24,
            requests: requests / runs.max(1),
        };
        match run(plan) {
            Ok(report) => {
                ran += report.requests;
                println!("seed {seed}: {report:?}");
            }
            Err(violation) => {
                println!("sim result: FAILED. {violation}");
                return ExitCode::FAILURE;
            }
        }
    }
    let seconds = began.elapsed().as_secs_f64();
    let speed = ran as f64 / seconds;
    println!("sim result: ok. {ran} requests in {seconds:.1} s, {speed:.0} a second");
    ExitCode::SUCCESS
}
