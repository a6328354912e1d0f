//! When a server counts as failed. Pure: times are given in milliseconds of any monotonic clock.
//!
//! Failures in a row eject a server: workers refuse requests for it at once instead of letting clients wait. Within a
//! row it has answered neither a probe nor a request. It is then probed after pauses that double, with some randomness
//! so that many proxies do not probe together; one good reply restores it. Broken connections and request time-outs
//! count as failed probes, so a server that hangs with open connections is handled as one that is gone.

use redline_proxy_config::FailurePolicy;

/// Health of a server.
#[derive(Clone, Debug)]
pub struct Health {
    failures: u32,
    is_ejected: bool,
    pause_ms: u64,
    probe_at_ms: u64,
    failed_at_ms: u64,
    /// Number of requests that it had answered at its last failure.
    answers: u64,
}

/// Failures within this time are one: every worker reports its own connection.
const ONE_FAILURE_MS: u64 = 100;

impl Health {
    /// Returns the health of a new server: it is assumed to be well, and probed at once.
    pub fn new(now_ms: u64) -> Health {
        Health {
            failures: 0,
            is_ejected: false,
            pause_ms: 0,
            probe_at_ms: now_ms,
            failed_at_ms: 0,
            answers: 0,
        }
    }

    /// Returns true if the server is ejected.
    pub fn is_ejected(&self) -> bool {
        self.is_ejected
    }

    /// Returns true if the last report about the server was a failure, and a probe is due.
    pub fn is_in_doubt(&self) -> bool {
        self.failures > 0
    }

    /// Returns the time of the next probe.
    pub fn probe_at_ms(&self) -> u64 {
        self.probe_at_ms
    }

    /// Notes a report of a failure, and schedules a probe. `answers`: number of requests that it has answered so far.
    /// Returns true if this ejects it.
    pub fn doubted(
        &mut self,
        now_ms: u64,
        answers: u64,
        policy: &FailurePolicy,
        chance: f64,
    ) -> bool {
        if self.is_ejected || now_ms < self.failed_at_ms + ONE_FAILURE_MS {
            return false;
        }
        if answers != self.answers {
            (self.answers, self.failures) = (answers, 0);
        }
        let latest_ms = self.probe_at_ms;
        let ejects = self.failed(now_ms, policy, chance);
        if !ejects {
            // Further reports do not postpone the probe.
            self.probe_at_ms = self.probe_at_ms.min(latest_ms);
        }
        ejects
    }

    /// Notes a failed probe. `chance`, from 0 to 1, spreads the pauses. Returns true if this ejects it.
    pub fn failed(&mut self, now_ms: u64, policy: &FailurePolicy, chance: f64) -> bool {
        let first_ms = policy.retry.0.as_millis().max(1) as u64;
        let most_ms = policy.retry_max.0.as_millis().max(1) as u64;
        self.failures = self.failures.saturating_add(1);
        self.failed_at_ms = now_ms;
        if self.is_ejected {
            self.pause_ms = (self.pause_ms * 2).min(most_ms);
        } else {
            self.pause_ms = first_ms;
        }
        let spread_ms = self.pause_ms as f64 * (0.75 + chance / 2.0);
        self.probe_at_ms = now_ms + spread_ms as u64;
        let ejects = !self.is_ejected && self.failures >= policy.limit;
        self.is_ejected |= ejects;
        ejects
    }

    /// Notes an answered probe. Returns true if this restores the server.
    pub fn well(&mut self, now_ms: u64, every_ms: u64) -> bool {
        self.failures = 0;
        self.probe_at_ms = now_ms + every_ms;
        std::mem::take(&mut self.is_ejected)
    }
}

#[cfg(test)]
mod tests {
    use redline_proxy_config::Span;

    use super::*;

    fn policy() -> FailurePolicy {
        FailurePolicy {
            limit: 3,
            retry: Span::milliseconds(100),
            retry_max: Span::milliseconds(500),
        }
    }

    #[test]
    fn failures_in_a_row_eject_and_one_answer_brings_back() {
        let mut health = Health::new(0);
        assert!(!health.failed(0, &policy(), 0.5) && !health.failed(1, &policy(), 0.5));
        assert!(!health.well(2, 1000));
        // The count began anew.
        assert!(!health.failed(3, &policy(), 0.5) && !health.failed(4, &policy(), 0.5));
        assert!(health.failed(5, &policy(), 0.5) && health.is_ejected());
        assert!(health.well(6, 1000) && !health.is_ejected());
        assert_eq!(health.probe_at_ms(), 1006);
    }

    #[test]
    fn pauses_double_up_to_their_limit_with_some_chance() {
        let mut health = Health::new(0);
        let pauses: Vec<u64> = (0..7)
            .map(|_| {
                health.failed(0, &policy(), 0.5);
                health.probe_at_ms()
            })
            .collect();
        assert_eq!(pauses, [100, 100, 100, 200, 400, 500, 500]);
        health.failed(0, &policy(), 0.0);
        assert_eq!(health.probe_at_ms(), 375);
        health.failed(0, &policy(), 1.0);
        assert_eq!(health.probe_at_ms(), 625);
    }

    #[test]
    fn reports_of_many_workers_at_once_are_one_failure() {
        let mut health = Health::new(0);
        for worker in 0..8 {
            assert!(
                !health.doubted(1_000 + worker, 0, &policy(), 0.5),
                "{worker}"
            );
        }
        assert!(!health.doubted(1_200, 0, &policy(), 0.5));
        assert!(health.doubted(1_400, 0, &policy(), 0.5));
    }

    #[test]
    fn failures_between_which_requests_were_answered_are_not_in_a_row() {
        let mut health = Health::new(0);
        for round in 1..20 {
            assert!(!health.doubted(round * 1_000, round, &policy(), 0.5));
            assert!(!health.doubted(round * 1_000 + 200, round, &policy(), 0.5));
        }
        assert!(health.doubted(20_000, 19, &policy(), 0.5));
    }

    #[test]
    fn who_is_doubted_again_and_again_is_probed_all_the_same() {
        let mut policy = policy();
        policy.limit = 1_000;
        let mut health = Health::new(0);
        health.well(0, 10_000);
        for round in 0..10 {
            health.doubted(5_000 + round * 101, 0, &policy, 0.5);
        }
        assert_eq!(health.probe_at_ms(), 5_100);
    }
}
