//! Rates of the last moments: samples of counters.
//!
//! Must not know: how INFO shows them.

use std::sync::Mutex;

use redline_engine::stats::Totals;
use redline_net::clock;

use crate::{balance::Served, shared::Shared};

/// Rates of the last moments, as INFO's `instantaneous_*` show them. Sampled by the first worker's timer.
#[derive(Debug, Default)]
pub struct Rates(Mutex<RateWindow>);

/// Number of samples that are averaged; there is one every [`SAMPLE_MS`].
const SAMPLES: usize = 16;
const SAMPLE_MS: u64 = 100;
/// Number of rates that are sampled.
const RATES: usize = 5;

#[derive(Debug, Default)]
struct RateWindow {
    last_ms: u64,
    last: [u64; RATES],
    per_second: [[u64; RATES]; SAMPLES],
    at: usize,
}

impl Rates {
    /// Takes a sample if one is due.
    pub fn sample(&self, shared: &Shared) {
        let now_ms = clock::monotonic_ms();
        let mut window = self.0.lock().expect("no panic under the rates");
        let elapsed_ms = now_ms - window.last_ms;
        if elapsed_ms < SAMPLE_MS {
            return;
        }
        let totals = Totals::of(shared.executors());
        let now = [
            totals.calls(),
            totals.net_in(),
            totals.net_out(),
            totals.turns(),
            totals.turn_ms() * 1000,
        ];
        let at = window.at % SAMPLES;
        if window.last_ms != 0 {
            let last = window.last;
            let rates = window.per_second[at].iter_mut();
            for (rate, (now, last)) in rates.zip(now.iter().zip(&last)) {
                *rate = now.saturating_sub(*last) * 1000 / elapsed_ms;
            }
            window.at += 1;
        }
        window.last = now;
        window.last_ms = now_ms;
    }

    /// Drops the samples.
    pub fn reset(&self) {
        *self.0.lock().expect("no panic under the rates") = RateWindow::default();
    }

    /// Returns the number of commands that had run at the last sample.
    pub fn served(&self) -> Served {
        let window = self.0.lock().expect("no panic under the rates");
        Served {
            at_ms: window.last_ms,
            requests: window.last[0],
        }
    }

    /// Returns rates per second: commands, bytes read, bytes written, turns of the loops, microseconds that these took.
    pub fn per_second(&self) -> [u64; RATES] {
        let window = self.0.lock().expect("no panic under the rates");
        let mut sums = [0; RATES];
        for sample in &window.per_second {
            sums.iter_mut()
                .zip(sample)
                .for_each(|(sum, rate)| *sum += rate);
        }
        sums.map(|sum| sum / SAMPLES as u64)
    }
}
