//! A latency objective, and the rates at which it is tried. Knows the syntax, and no run.

use serde::{Deserialize, Serialize};

use super::plan::RATE_MAX;
use super::result::Latency;

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
    /// Returns the figure in milliseconds.
    pub fn of_ms(self, latency: &Latency) -> f64 {
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

    /// Returns its name.
    pub fn name(self) -> &'static str {
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

#[cfg(test)]
mod tests {
    use super::*;

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
