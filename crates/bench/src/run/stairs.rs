//! A staircase of rates: the highest rate that keeps a latency objective.
//!
//! Knows a run as an operation that can be repeated. Each step is an open-loop run; the rate is multiplied until a step
//! fails, and then halved in between (geometrically) a few times. The highest rate that passed is the *knee*. A step
//! fails when the objective breaks, or when the rate is not reached.

use std::fmt::Write;

use serde::{Deserialize, Serialize};

use crate::load::cause::verdict::REACHED;
use crate::load::execute::{Finished, Prepared};
use crate::load::failure::Failure;
use crate::load::objective::{Climb, Objective};
use crate::load::origin::Origin;
use crate::load::plan::{RATE_MAX, RunPlan};
use crate::load::result::RunResult;
use crate::output;

/// Number of times that the gap between the last good and the first bad rate is halved.
const REFINEMENTS: usize = 3;
/// Largest number of steps: a server that passes them all cannot be loaded here.
const STEPS_MAX: usize = 60;

/// Result of a staircase: the schema of its JSON file.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Stairs {
    /// Changes when a field changes its meaning or is removed.
    pub format: u32,
    /// The limit that must not be exceeded.
    pub objective: Objective,
    /// The highest rate that passed, in requests per second; `None` if the first did not.
    pub knee_rps: Option<f64>,
    /// The finding, as text.
    pub text: String,
    /// The reason why it ended early, if it did.
    pub ended_early: Option<String>,
    /// The steps, in order of execution.
    pub steps: Vec<Step>,
    /// The machine and the command line.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub origin: Option<Origin>,
}

/// One step.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Step {
    /// True if the step passed.
    pub passed: bool,
    /// Its result.
    pub result: RunResult,
}

/// The format of [`Stairs`].
pub const FORMAT: u32 = 1;

/// Runs the steps; measurements before a failure or Ctrl-C are returned with it.
pub fn climb(
    prepared: &mut Prepared,
    plan: &RunPlan,
    climb: Climb,
    objective: Objective,
    mut told: impl FnMut(&Step),
) -> Result<(Stairs, Option<Failure>), Failure> {
    let mut plan = plan.clone();
    let mut steps = Vec::new();
    let mut search = Search::new(climb);
    let mut ended = None;
    while let Some(rate) = search.next() {
        plan.manner.rps = Some(rate);
        let Finished {
            result, failure, ..
        } = match prepared.run(&plan) {
            Ok(finished) => finished,
            Err(failure) if steps.is_empty() => return Err(failure),
            Err(failure) => {
                ended = Some(failure);
                break;
            }
        };
        if failure.is_some() {
            ended = failure;
            break;
        }
        plan.load = None;
        let step = Step {
            passed: result.achieved_rps >= rate * REACHED
                && objective.figure.of_ms(&result.response_us) <= objective.ms,
            result,
        };
        search.tried(rate, step.passed);
        told(&step);
        steps.push(step);
    }
    let stairs = Stairs {
        format: FORMAT,
        objective,
        knee_rps: search.good,
        text: search.text(objective),
        ended_early: ended.as_ref().map(Failure::to_string),
        steps,
        origin: None,
    };
    Ok((stairs, ended))
}

/// The search for the next rate.
struct Search {
    climb: Climb,
    good: Option<f64>,
    bad: Option<f64>,
    tried: usize,
    refined: usize,
}

impl Search {
    fn new(climb: Climb) -> Search {
        Search {
            climb,
            good: None,
            bad: None,
            tried: 0,
            refined: 0,
        }
    }

    fn next(&self) -> Option<f64> {
        if self.tried >= STEPS_MAX {
            return None;
        }
        match (self.good, self.bad) {
            (None, None) => Some(self.climb.from_rps),
            (Some(good), None) if good < RATE_MAX => Some((good * self.climb.factor).min(RATE_MAX)),
            (Some(good), Some(bad)) if self.refined < REFINEMENTS => Some((good * bad).sqrt()),
            _ => None,
        }
    }

    fn tried(&mut self, rate: f64, passed: bool) {
        self.tried += 1;
        self.refined += usize::from(self.bad.is_some());
        if passed {
            self.good = Some(rate);
        } else {
            self.bad = Some(rate);
        }
    }

    fn text(&self, objective: Objective) -> String {
        let (figure, ms) = (objective.figure.name(), objective.ms);
        match (self.good, self.bad) {
            (Some(good), Some(bad)) => format!(
                "The knee is at {good:.0} requests/s: there {figure} is at most {ms} ms and the rate is kept; at {bad:.0} it is not so any more."
            ),
            (Some(good), None) => {
                format!(
                    "At {good:.0} requests/s {figure} is still at most {ms} ms: the knee is higher."
                )
            }
            (None, _) => format!(
                "Already at {:.0} requests/s {figure} exceeds {ms} ms, or the rate is not kept.",
                self.climb.from_rps
            ),
        }
    }
}

/// Returns a line about a step.
pub fn line(step: &Step, objective: Objective) -> String {
    let result = &step.result;
    format!(
        "{:>12.0} offered {:>12.0} achieved {:>10.3} ms {} {:>10.3} ms p50   {}",
        result.settings.offered_rps.unwrap_or(0.0),
        result.achieved_rps,
        objective.figure.of_ms(&result.response_us),
        objective.figure.name(),
        result.response_us.p50 as f64 / 1000.0,
        if step.passed { "passed" } else { "failed" }
    )
}

/// Returns the finding, and the limit at the end.
pub fn text(stairs: &Stairs) -> String {
    let mut out = String::new();
    for step in &stairs.steps {
        let _ = writeln!(out, "{}", line(step, stairs.objective));
    }
    let _ = writeln!(out, "\n{}", stairs.text);
    if let Some(step) = stairs.steps.iter().rev().find(|step| !step.passed) {
        let _ = writeln!(
            out,
            "Of the last step that failed: {}",
            step.result.verdict.text
        );
    }
    if let Some(reason) = &stairs.ended_early {
        let _ = writeln!(out, "(partial: {reason})");
    }
    out
}

/// Returns a page with the steps side by side.
pub fn page(stairs: &Stairs) -> Result<String, Failure> {
    let named = stairs.steps.iter().map(|step| {
        let rate = step.result.settings.offered_rps.unwrap_or(0.0);
        let result = RunResult {
            origin: stairs.origin.clone(),
            ..step.result.clone()
        };
        (format!("{rate:.0} requests/s"), result)
    });
    output::page(&named.collect::<Vec<_>>())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the knee that is found when everything up to `limit` passes.
    fn found(limit: f64) -> (Option<f64>, usize) {
        let mut search = Search::new(Climb {
            from_rps: 100.0,
            factor: 2.0,
        });
        while let Some(rate) = search.next() {
            search.tried(rate, rate <= limit);
        }
        (search.good, search.tried)
    }

    #[test]
    fn the_knee_is_found_between_the_last_good_and_the_first_bad_rate() {
        for limit in [100.0, 130.0, 799.0, 12_345.0] {
            let (knee, steps) = found(limit);
            let knee = knee.unwrap();
            // Three halvings of a factor of 2.
            assert!(
                knee <= limit && limit <= knee * 2f64.powf(0.125) + 1e-9,
                "{knee} of {limit}"
            );
            assert!(steps < 15);
        }
        assert_eq!(found(99.0), (None, 1));
        // A rate that cannot be requested ends the staircase.
        let (knee, steps) = found(f64::INFINITY);
        assert_eq!(knee, Some(RATE_MAX));
        assert!(steps < STEPS_MAX);
    }
}
