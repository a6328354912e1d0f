//! `redline bench report`: the page of saved results, of whatever sub-command they are. Knows their kinds, and which part
//! makes the page of each.

use std::io::Write;
use std::path::{Path, PathBuf};

use clap::Args;

use crate::compare::{self, Comparison};
use crate::failover::{self, FailoverResult};
use crate::load::failure::Failure;
use crate::load::result::{self, RunResult};
use crate::output::saved::{Kind, Saved};
use crate::output::{page, write};
use crate::run::stairs::{self, Stairs};
use crate::suites::{self, SuiteResult};

/// The options of `report`.
#[derive(Clone, Debug, Args)]
pub struct ReportArguments {
    /// Results of --json: one of a comparison, a suite or a staircase, or any number of runs and failovers
    #[arg(required = true, value_name = "FILE")]
    pub results: Vec<PathBuf>,
    /// The page, one HTML file that needs no other (- for standard output)
    #[arg(short, long, default_value = "report.html", value_name = "FILE")]
    pub output: PathBuf,
}

/// Runs the sub-command.
pub fn run(arguments: &ReportArguments, stdout: &mut dyn Write) -> Result<(), Failure> {
    let path = &arguments.output;
    write(path, &page_of_saved(&arguments.results)?, stdout)?;
    if path == Path::new("-") {
        return Ok(());
    }
    write(Path::new("-"), &format!("{}\n", path.display()), stdout)
}

fn page_of_saved(paths: &[PathBuf]) -> Result<String, Failure> {
    let mut results: Vec<(String, RunResult)> = Vec::new();
    for path in paths {
        let name = path.file_stem().unwrap_or(path.as_os_str());
        let name = name.to_string_lossy().into_owned();
        let saved = Saved::read(path)?;
        match saved.kind {
            Kind::Run => results.push((name, saved.result(result::FORMAT)?)),
            Kind::Failover => {
                let failover: FailoverResult = saved.result(failover::FORMAT)?;
                results.push((name, failover.run));
            }
            kind if paths.len() > 1 => {
                let text = format!(
                    "{}: this is {kind}, which has a page of its own: side by side stand runs and failovers.",
                    path.display()
                );
                return Err(Failure::Local(text));
            }
            Kind::Comparison => {
                let comparison: Comparison = saved.result(compare::FORMAT)?;
                return compare::page(&comparison);
            }
            Kind::Suite => {
                let suite: SuiteResult = saved.result(suites::FORMAT)?;
                return suites::page(&suite);
            }
            Kind::Stairs => {
                let stairs: Stairs = saved.result(stairs::FORMAT)?;
                return stairs::page(&stairs);
            }
        }
    }
    page(&results)
}
