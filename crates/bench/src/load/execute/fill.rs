//! Filling: a load is sent once for each number of its sequence, before anything is measured.
//!
//! Must not know what is measured afterwards.

use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::sync::mpsc;
use std::time::{Duration, Instant};

use super::{Following, Prepared};
use crate::load::drive::{Choice, Drive, Manner};
use crate::load::engine::{Observer, Totals};
use crate::load::failure::Failure;
use crate::load::plan::{RunPlan, SILENCE_MAX};
use crate::load::progress::Progress;
use crate::load::record::Recorder;
use crate::load::worker::HANDSHAKE_WITHIN;
use crate::load::workload::template::Template;

/// Interval of progress messages.
const PROGRESS_EVERY: Duration = Duration::from_millis(200);
/// Limits of a fill on each connection, unless --pipeline is more: requests in flight, and their bytes.
const FILL_DEPTH_MAX: usize = 64;
const FILL_BYTES_MAX: f64 = (1 << 20) as f64;

impl Prepared {
    /// Sends `load` once for each number of its sequence.
    pub(super) fn fill(
        &mut self,
        plan: &RunPlan,
        load: &Template,
        random: &mut fastrand::Rng,
    ) -> Result<(), Failure> {
        let sequence = load.sequence().map_or(0, |sequence| sequence.count);
        let connections = plan.manner.connections;
        let protocol = self.plan.protocol;
        let follows = self.follows.is_some();
        let threads = plan.manner.threads.min(connections);
        // Each thread takes every `threads`-th number.
        let quotas: Vec<AtomicU64> = (0..threads as u64)
            .map(|thread| sequence.saturating_sub(thread).div_ceil(threads as u64))
            .map(|numbers| AtomicU64::new(numbers * load.requests() as u64))
            .collect();
        let mean_bytes = load.mean_bytes() / load.requests() as f64;
        let (sender, _slices) = mpsc::channel();
        let inserted = Arc::default();
        let drives = quotas.iter().enumerate().map(|(thread, quota)| {
            let manner = Manner {
                rate: None,
                shift: 0.0,
                depth: plan.manner.pipeline.max(fill_depth(mean_bytes)),
                window: false,
                warmup: Duration::ZERO,
                duration: None,
                protocol,
                count_errors: false,
                reconnect: false,
                // A load that follows the data has its own time-out of silent nodes.
                timeout: plan
                    .manner
                    .timeout
                    .or(Some(SILENCE_MAX))
                    .filter(|_| !follows),
                connects_within: HANDSHAKE_WITHIN,
                reconnect_after: None,
            };
            let mut random = random.fork();
            let choice = Choice {
                renderer: load.renderer(
                    protocol,
                    thread,
                    threads,
                    plan.content,
                    &inserted,
                    &mut random,
                ),
                rows: 0..load.requests() as u32,
                weight: 1,
            };
            let recorder = Recorder::new(load.requests(), false, u64::MAX, sender.clone());
            Drive::new(manner, vec![choice], Some(quota), random, recorder)
        });
        let drives = drives.collect();
        let following = Following {
            silence_max: Some(SILENCE_MAX),
            ..Following::of(plan)
        };
        let total = sequence * load.requests() as u64;
        let mut filling = Filling::new(total);
        let (outcome, _) = self.drive(drives, connections, following, &mut filling)?;
        outcome.failure.map_or(Ok(()), Err)
    }
}

/// Returns the number of requests of this size that a fill has in flight on each connection.
fn fill_depth(mean_bytes: f64) -> usize {
    ((FILL_BYTES_MAX / mean_bytes) as usize).clamp(1, FILL_DEPTH_MAX)
}

/// Shows the progress of a fill that takes long.
struct Filling {
    progress: Progress,
    next: Instant,
}

impl Filling {
    fn new(requests: u64) -> Filling {
        Filling {
            progress: Progress::of_fill(requests),
            next: Instant::now() + PROGRESS_EVERY,
        }
    }
}

impl Observer for Filling {
    fn next(&self) -> Option<Instant> {
        Some(self.next)
    }

    fn observe(&mut self, totals: &Totals) -> Result<(), Failure> {
        self.progress.show_requests(totals);
        self.next = Instant::now() + PROGRESS_EVERY;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_fill_of_large_values_has_few_of_them_under_way() {
        let depths = [50.0, 16_384.0, 100_000.0, 2e6, 1e9].map(fill_depth);
        assert_eq!(depths, [64, 64, 10, 1, 1]);
    }
}
