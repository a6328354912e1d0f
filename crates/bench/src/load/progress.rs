//! Bars of progress on standard error, if that is a terminal: of a fill and of a run. Knows figures, and not their
//! measurement.

use std::io::IsTerminal;
use std::time::Duration;

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

use super::plan::RunPlan;
use super::series::Recent;
use crate::load::engine::Totals;

/// A bar, which is removed with this.
pub struct Progress {
    bar: ProgressBar,
    /// The number of requests is the limit, and not the time.
    counts: bool,
}

impl Progress {
    /// Returns the bar of a fill with so many requests; it is hidden without a terminal.
    pub fn of_fill(requests: u64) -> Progress {
        let bar = bar("{msg} {wide_bar} {pos}/{len} {eta}", Some(requests));
        Progress {
            bar: bar.with_message("filling"),
            counts: true,
        }
    }

    /// Returns the bar of a run after `label`; none without a terminal, or if the run itself shows more.
    pub fn of_run(plan: &RunPlan, label: &str) -> Option<Progress> {
        if plan.output.live || !std::io::stderr().is_terminal() {
            return None;
        }
        let manner = &plan.manner;
        let planned = match (manner.requests, manner.duration) {
            (Some(requests), _) => Some(requests),
            (None, duration) => duration.map(|duration| duration.as_millis() as u64),
        };
        let form = match planned {
            Some(_) => "{prefix}{msg} {wide_bar} {percent} % {eta} left",
            None => "{prefix}{msg} {elapsed}",
        };
        let prefix = match label {
            "" => String::new(),
            label => format!("{label}: "),
        };
        Some(Progress {
            bar: bar(form, planned)
                .with_prefix(prefix)
                .with_message("warming up"),
            counts: manner.requests.is_some(),
        })
    }

    /// Shows the requests of a fill.
    pub fn show_requests(&self, totals: &Totals) {
        self.bar.set_position(totals.finished);
    }

    /// Shows the figures of a run so far, after `elapsed` of the measured time.
    pub fn show(&self, totals: &Totals, elapsed: Duration, recent: Option<&Recent>) {
        let rate = totals.finished as f64 / elapsed.as_secs_f64().max(1e-9);
        let response = recent.map(|recent| &recent.so_far);
        let response = response.filter(|response| !response.is_empty());
        let p99_us = response.map(|response| response.value_at_percentile(99.0));
        self.bar.set_message(so_far(rate, p99_us));
        self.bar.set_position(match self.counts {
            true => totals.finished,
            false => elapsed.as_millis() as u64,
        });
    }
}

fn bar(form: &str, length: Option<u64>) -> ProgressBar {
    let style = ProgressStyle::with_template(form);
    let style = style.unwrap_or_else(|_| ProgressStyle::default_bar());
    // It is hidden without a terminal.
    ProgressBar::with_draw_target(length, ProgressDrawTarget::stderr()).with_style(style)
}

/// Returns the figures so far in words.
fn so_far(rate: f64, p99_us: Option<u64>) -> String {
    let mut text = format!("{rate:.0} requests/s");
    if let Some(us) = p99_us {
        text += &format!(", p99 {:.3} ms", us as f64 / 1000.0);
    }
    text
}

impl Drop for Progress {
    fn drop(&mut self) {
        self.bar.finish_and_clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rate_and_p99_so_far_are_said() {
        assert_eq!(so_far(1234.6, Some(420)), "1235 requests/s, p99 0.420 ms");
        assert_eq!(so_far(0.0, None), "0 requests/s");
    }

    #[test]
    fn every_form_of_a_bar_is_valid() {
        for form in [
            "{msg} {wide_bar} {pos}/{len} {eta}",
            "{prefix}{msg} {wide_bar} {percent} % {eta} left",
            "{prefix}{msg} {elapsed}",
        ] {
            assert!(ProgressStyle::with_template(form).is_ok(), "{form}");
        }
    }
}
