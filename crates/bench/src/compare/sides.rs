//! The two sides of a comparison, and their runs: the order, and the number.
//!
//! Knows `run` as an operation that can be repeated; must not know how its figures are judged.

use std::time::{Duration, Instant};

use super::looks::Looks;
use super::metric::Sample;
use super::ranks;
use crate::StartEmbedded;
use crate::load::execute::Prepared;
use crate::load::failure::Failure;
use crate::load::plan::RunPlan;

/// Largest number of pairs: more make an interval narrower by next to nothing.
pub const PAIRS_MAX: usize = 2000;
/// Time of a short run beyond the measured time, for its connections.
const AROUND: Duration = Duration::from_millis(10);

/// A and B.
pub struct Sides {
    sides: [Side; 2],
    /// The side that receives signals: the first one made, and then the one that runs.
    listens: usize,
}

struct Side {
    plan: RunPlan,
    prepared: Prepared,
}

impl Side {
    fn new(plan: RunPlan, start: Option<StartEmbedded<'_>>) -> Result<Side, Failure> {
        let mut prepared = Prepared::new(&plan, start)?;
        prepared.slice();
        Ok(Side { plan, prepared })
    }

    fn run(&mut self) -> Result<Sample, Failure> {
        let finished = self.prepared.run(&self.plan)?;
        // A fill is made once.
        self.plan.load = None;
        match finished.failure {
            Some(failure) => Err(failure),
            None => {
                let (result, manner) = (&finished.result, &self.plan.manner);
                let misses_many = result.hit_rate.is_some_and(|rate| manner.misses_many(rate));
                let mut sample = Sample::of_slice(result, finished.server_cpu_us);
                sample.misses_many = misses_many;
                Ok(sample)
            }
        }
    }

    /// Returns the expected time of a run; `None` if it depends on the server.
    fn takes(&self) -> Option<Duration> {
        let manner = &self.plan.manner;
        let measured = manner.duration.filter(|_| manner.requests.is_none())?;
        Some(manner.warmup + measured + AROUND)
    }
}

impl Sides {
    /// Prepares both.
    pub fn new(a: RunPlan, b: RunPlan, start: Option<StartEmbedded<'_>>) -> Result<Sides, Failure> {
        let side = |name, plan| Side::new(plan, start).map_err(|failure| of_side(name, failure));
        Ok(Sides {
            sides: [side("A", a)?, side("B", b)?],
            listens: 0,
        })
    }

    /// Returns address and name of each side's server.
    pub fn servers(&self) -> [String; 2] {
        [0, 1].map(|side| self.sides[side].prepared.server())
    }

    /// Runs both once, A first or B.
    pub fn run(&mut self, b_first: bool) -> Result<(Sample, Sample), Failure> {
        let mut run = |index: usize| {
            if index != self.listens {
                let [a, b] = &mut self.sides;
                a.prepared.swap_control(&mut b.prepared);
                self.listens = index;
            }
            let ran = self.sides[index].run();
            ran.map_err(|failure| of_side(["A", "B"][index], failure))
        };
        if b_first {
            let b = run(1)?;
            Ok((run(0)?, b))
        } else {
            Ok((run(0)?, run(1)?))
        }
    }

    /// Returns the expected time of a pair; `None` if it depends on the servers.
    pub fn pair_takes(&self) -> Option<Duration> {
        Some(self.sides[0].takes()? + self.sides[1].takes()?)
    }
}

/// Adds the side's name to a failure.
fn of_side(name: &str, failure: Failure) -> Failure {
    match failure {
        Failure::Interrupted => failure,
        failure => Failure::Local(format!("{name}: {failure}")),
    }
}

/// The length of a comparison, and the order within pairs.
pub struct Course {
    limit: Limit,
    /// Largest number of pairs; not known before the second pair if it depends on the servers.
    planned: Option<usize>,
    /// The planned looks.
    pub looks: Looks,
    /// Time at the end of the first pair, which may include fills and other one-time waits.
    began: Option<Instant>,
    /// Time that the last pair took.
    last_took: Duration,
    coin: fastrand::Rng,
}

/// The limit that ends an undecided comparison.
#[derive(Clone, Copy, Debug)]
pub enum Limit {
    /// Number of pairs, all of which are done.
    Pairs(usize),
    /// Duration.
    Time(Duration),
}

impl Course {
    /// Returns a course whose pairs take this long, if that is known.
    pub fn new(limit: Limit, pair_takes: Option<Duration>) -> Course {
        let mut course = Course {
            limit,
            planned: None,
            looks: Looks::once(),
            began: None,
            last_took: Duration::ZERO,
            coin: fastrand::Rng::new(),
        };
        match limit {
            Limit::Pairs(pairs) => course.planned = Some(pairs),
            Limit::Time(_) => {
                if let Some(takes) = pair_takes {
                    course.plan(takes);
                }
            }
        }
        course
    }

    fn plan(&mut self, pair_takes: Duration) {
        let Limit::Time(time) = self.limit else {
            return;
        };
        let fit = (time.as_secs_f64() / pair_takes.as_secs_f64().max(1e-6)) as usize;
        // One pair more than fit: the first is not counted.
        let planned = (fit + 1).clamp(super::bootstrap::PAIRS_MIN, PAIRS_MAX);
        self.planned = Some(planned);
        self.looks = Looks::until(planned);
    }

    /// Returns the largest number of pairs, if that is known.
    pub fn planned(&self) -> Option<usize> {
        self.planned
    }

    /// Returns true if B comes first after this many pairs. Few pairs alternate, which balances drifts; of many, a coin
    /// decides, which cannot correlate with anything.
    pub fn b_first(&mut self, pairs: usize) -> bool {
        match self.planned {
            Some(planned) if planned < ranks::PAIRS_MIN => pairs % 2 == 1,
            _ => self.coin.bool(),
        }
    }

    /// Notes another pair, the number of all, and its time; returns true if it was the last.
    pub fn is_last(&mut self, pairs: usize, took: Duration, now: Instant) -> bool {
        self.last_took = took;
        let began = *self.began.get_or_insert(now);
        if self.planned.is_none() && pairs == 2 {
            self.plan(took);
        }
        if self.planned.is_some_and(|planned| pairs >= planned) {
            return true;
        }
        match self.limit {
            Limit::Pairs(_) => false,
            Limit::Time(time) => {
                pairs >= super::bootstrap::PAIRS_MIN && now - began + self.last_took > time
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the number of pairs of a comparison whose pairs take this many milliseconds.
    fn done(mut course: Course, pair_ms: u64) -> usize {
        let start = Instant::now();
        let took = Duration::from_millis(pair_ms);
        let is_last = |&pairs: &usize| course.is_last(pairs, took, start + took * pairs as u32);
        (1..).find(is_last).unwrap()
    }

    #[test]
    fn time_ends_a_comparison_wherever_its_plan_is() {
        let time = Limit::Time(Duration::from_secs(10));
        let takes = |ms| Some(Duration::from_millis(ms));
        assert_eq!(done(Course::new(time, takes(100)), 100), 101);
        assert_eq!(done(Course::new(time, None), 100), 101);
        // Pairs that take longer than expected, and shorter.
        assert_eq!(done(Course::new(time, takes(100)), 200), 51);
        assert_eq!(done(Course::new(time, takes(100)), 50), 101);
        assert_eq!(done(Course::new(time, takes(100)), 60_000), 3);
        assert_eq!(done(Course::new(time, takes(0)), 0), PAIRS_MAX);
        assert_eq!(done(Course::new(Limit::Pairs(7), takes(100)), 60_000), 7);
    }

    #[test]
    fn few_pairs_take_turns_and_many_throw_a_coin() {
        let order = |pairs| {
            let mut course = Course::new(Limit::Pairs(pairs), None);
            (0..pairs)
                .map(|pair| course.b_first(pair))
                .collect::<Vec<_>>()
        };
        assert_eq!(order(4), [false, true, false, true]);
        let many = order(400);
        let turns = many.windows(2).filter(|two| two[0] != two[1]).count();
        assert!((100..300).contains(&turns), "{turns}");
    }
}
