//! `redline bench run`: one run, or a staircase of them, with its result as text and in files.
//!
//! | file | holds |
//! |---|---|
//! | `stairs` | runs at ever higher rates, until a latency objective breaks |
//! | `csv` | the series of a result as a table |

mod csv;
pub mod stairs;

use std::io::{IsTerminal, Write};
use std::path::Path;

use crate::StartEmbedded;
use crate::load::arguments::RunArguments;
use crate::load::execute::{Finished, Prepared};
use crate::load::failure::Failure;
use crate::load::objective::{Climb, Objective};
use crate::load::plan::RunPlan;
use crate::output::{Written, can_be_written, page, text, write, write_json};

/// Runs the sub-command.
pub fn run(
    arguments: RunArguments,
    stdout: &mut dyn Write,
    stderr: &mut dyn Write,
    start: Option<StartEmbedded<'_>>,
) -> Result<(), Failure> {
    let plan = arguments.plan().map_err(Failure::Local)?;
    if let Some(text) = plan.idle.first() {
        return Err(Failure::Local(text.clone()));
    }
    if plan.output.live && !std::io::stdout().is_terminal() {
        let text = "--live draws on a terminal, and standard output is none.";
        return Err(Failure::Local(text.into()));
    }
    let output = &plan.output;
    let files = [&output.json, &output.csv, &output.hdr, &output.html];
    can_be_written(files.map(Option::as_deref))?;
    let mut prepared = Prepared::new(&plan, start)?;
    if let Some((climb, objective)) = plan.manner.stairs.zip(plan.manner.objective) {
        return climb_stairs(&mut prepared, &plan, climb, objective, stdout, stderr);
    }
    let Finished {
        mut result,
        failure,
        log,
        ..
    } = prepared.run(&plan)?;
    if failure.is_none() && !plan.manner.no_calibration {
        result.own_cost = prepared.calibrate(&plan);
    }
    let mut written = Written::default();
    if !output.takes_stdout() {
        written.and(write(Path::new("-"), &text::text(&result), stdout));
    }
    written.and(log.map_or(Ok(()), Err));
    if let Some(path) = &output.json {
        written.and(write_json(path, &result, stdout));
    }
    if let Some(path) = &output.csv {
        written.and(write(path, &csv::series(&result), stdout));
    }
    if let Some(path) = &output.html {
        let named = [(result.target.address.clone(), result.clone())];
        written.and(page(&named).and_then(|page| write(path, &page, stdout)));
    }
    written.end(failure)
}

fn climb_stairs(
    prepared: &mut Prepared,
    plan: &RunPlan,
    climb: Climb,
    objective: Objective,
    stdout: &mut dyn Write,
    stderr: &mut dyn Write,
) -> Result<(), Failure> {
    let (stairs, failure) = stairs::climb(prepared, plan, climb, objective, |step| {
        // Progress is informative only; errors of a closed stream are ignored.
        let _ = writeln!(stderr, "{}", stairs::line(step, objective));
    })?;
    let mut written = Written::default();
    if !plan.output.takes_stdout() {
        written.and(write(Path::new("-"), &stairs::text(&stairs), stdout));
    }
    if let Some(path) = &plan.output.json {
        written.and(write_json(path, &stairs, stdout));
    }
    if let Some(path) = &plan.output.html {
        written.and(stairs::page(&stairs).and_then(|page| write(path, &page, stdout)));
    }
    written.end(failure)
}
