//! A staircase of rates: the highest rate that keeps a latency objective.
//!
//! Knows a run as an operation that can be repeated. Each step is an open-loop run; the rate is multiplied until a step
//! fails, and then halved in between (geometrically) a few times. The highest rate that passed is the *knee*. A step
//! fails when the objective breaks, or when the rate is not reached.

use std::fmt::Write;

use serde::{Deserialize, Serialize};

use super::execute::{Finished, Prepared};
use super::plan::{RATE_MAX, RunPlan};
use super::result::{Latency, RunResult};
use crate::cause::verdict::REACHED;
use crate::failure::Failure;

/// Limit for a latency.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Objective {
    /// The figure of the response time.
    pub figure: Percentile,
    /// Its bound.
    pub ms: f64,
}

/// A figure of the response time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Percentile {
    /// `mean`
    Mean,
    /// `p50`
    P50,
    /// `p90`
    P90,
    /// `p99`
    P99,
    /// `p99.9`
    P999,
    /// `max`
    Max,
}

const FIGURES: [(&str, Percentile); 6] = [
    ("mean", Percentile::Mean),
    ("p50", Percentile::P50),
    ("p90", Percentile::P90),
    ("p99", Percentile::P99),
    ("p99.9", Percentile::P999),
    ("max", Percentile::Max),
];

impl Percentile {
    fn of_ms(self, latency: &Latency) -> f64 {
        let us = match self {
            Percentile::Mean => latency.mean,
            Percentile::P50 => latency.p50 as f64,
            Percentile::P90 => latency.p90 as f64,
            Percentile::P99 => latency.p99 as f64,
            Percentile::P999 => latency.p99_9 as f64,
            Percentile::Max => latency.max as f64,
        };
        us / 1000.0
    }

    fn name(self) -> &'static str {
        let found = FIGURES.iter().find(|(_, figure)| *figure == self);
        found.map_or("", |(name, _)| name)
    }
}

impl Objective {
    /// Parses `p99=2ms`.
    pub fn parse(text: &str) -> Result<Objective, String> {
        let wrong =
            || "it is FIGURE=TIME, as in p99=2ms; mean, p50, p90, p99, p99.9 or max".to_owned();
        let (name, bound) = text.split_once('=').ok_or_else(wrong)?;
        let figure = FIGURES.iter().find(|(known, _)| *known == name);
        let &(_, figure) = figure.ok_or_else(wrong)?;
        let (number, factor) = if let Some(number) = bound.strip_suffix("us") {
            (number, 0.001)
        } else if let Some(number) = bound.strip_suffix("ms") {
            (number, 1.0)
        } else if let Some(number) = bound.strip_suffix('s') {
            (number, 1000.0)
        } else {
            (bound, 1.0)
        };
        let ms = number.parse::<f64>().map_err(|_| wrong())? * factor;
        if ms > 0.0 && ms.is_finite() {
            Ok(Objective { figure, ms })
        } else {
            Err(wrong())
        }
    }
}

/// The rates of a staircase.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Climb {
    /// The first rate, in requests per second.
    pub from_rps: f64,
    /// Factor by which each rate is multiplied, above 1.
    pub factor: f64,
}

impl Climb {
    /// Parses `RATE` or `RATE:FACTOR`.
    pub fn parse(text: &str) -> Result<Climb, String> {
        let wrong = || {
            format!(
                "it is RATE or RATE:FACTOR, as in 1000:1.5, with a rate of at most {RATE_MAX} and a factor above 1"
            )
        };
        let (rate, factor) = text.split_once(':').unwrap_or((text, "1.5"));
        let number = |text: &str| text.parse::<f64>().ok().filter(|n| n.is_finite());
        let (from_rps, factor) = number(rate).zip(number(factor)).ok_or_else(wrong)?;
        if from_rps > 0.0 && from_rps <= RATE_MAX && factor >= FACTOR_MIN {
            Ok(Climb { from_rps, factor })
        } else {
            Err(wrong())
        }
    }
}

/// Smallest factor: closer steps cannot be distinguished.
const FACTOR_MIN: f64 = 1.01;
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

    #[test]
    fn objectives_and_climbs_are_read_as_they_are_written() {
        let objective =
            |text| Objective::parse(text).map(|objective| (objective.figure, objective.ms));
        assert_eq!(objective("p99=2ms"), Ok((Percentile::P99, 2.0)));
        assert_eq!(objective("p99.9=500us"), Ok((Percentile::P999, 0.5)));
        assert_eq!(objective("max=1s"), Ok((Percentile::Max, 1000.0)));
        for wrong in [
            "", "p99", "p98=1ms", "p99=0ms", "p99=-1ms", "p99=x", "p99=infs",
        ] {
            assert!(objective(wrong).is_err(), "{wrong}");
        }
        assert_eq!(Climb::parse("1000").unwrap().factor, 1.5);
        assert_eq!(Climb::parse("1000:2").unwrap().factor, 2.0);
        for wrong in ["", "0", "-1", "1e300", "5:1", "5:0.5", "nan", "5:inf"] {
            assert!(Climb::parse(wrong).is_err(), "{wrong}");
        }
    }
}
