//! Replication state of a server's data, by the reports of the server and its primary. Pure: times are given in
//! milliseconds of any monotonic clock.
//!
//! A primary reports the number of bytes written for replicas. A replica that has as many as the primary had at some
//! moment has everything from before that moment: so its age is known even if writes are rare, and without the clocks of
//! the servers.

use std::collections::VecDeque;
use std::time::Duration;

/// Number of a primary's moments that are kept.
const MOMENTS_MAX: usize = 64;

/// Replication state that a server reports.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Said {
    /// It is a primary that has written this many bytes for replicas.
    Primary {
        /// Number of bytes.
        offset: u64,
    },
    /// It is a replica.
    Replica {
        /// It is linked to its primary, and has finished the initial copy.
        is_linked: bool,
        /// Number of its primary's bytes that it has.
        offset: u64,
    },
    /// It does not report any.
    Nothing,
}

impl Said {
    /// Returns the state in a reply to INFO REPLICATION.
    pub fn of(info: &[u8]) -> Said {
        let text = String::from_utf8_lossy(info);
        let line = |name: &str| {
            let mut lines = text.lines();
            lines.find_map(|line| line.strip_prefix(name)?.strip_prefix(':').map(str::trim))
        };
        let number = |name: &str| line(name).and_then(|text| text.parse().ok()).unwrap_or(0);
        match line("role") {
            Some("master") => Said::Primary {
                offset: number("master_repl_offset"),
            },
            Some("slave") => Said::Replica {
                is_linked: line("master_link_status") == Some("up")
                    && line("master_sync_in_progress") != Some("1"),
                offset: number("slave_repl_offset"),
            },
            _ => Said::Nothing,
        }
    }
}

/// Known state of a server's replication.
#[derive(Clone, Debug, Default)]
pub struct Replication {
    said: Option<Said>,
    /// Time of the last question; 0: never.
    asked_ms: u64,
    /// Of a primary: times of questions, and its offsets then; the newest last.
    moments: VecDeque<(u64, u64)>,
    /// Of a replica: the time up to which it has everything.
    fresh_to_ms: u64,
    /// Its replication state allows reads.
    is_fit: bool,
    /// It has had all data of its primary, and has stayed since.
    has_data: bool,
    /// It has not answered.
    is_silent: bool,
}

impl Replication {
    /// Returns true if it may answer reads as a replica.
    pub fn is_fit(&self) -> bool {
        self.is_fit
    }

    /// Returns true if it has the data of a primary that it has lost its link to.
    pub fn is_orphan(&self) -> bool {
        let is_alone = matches!(
            self.said,
            Some(Said::Replica {
                is_linked: false,
                ..
            })
        );
        is_alone && self.has_data
    }

    /// Returns true if it was asked and has not answered.
    pub fn is_silent(&self) -> bool {
        self.is_silent
    }

    /// Notes an unanswered question of any kind. Returns true if that is new, of a server that is asked for this.
    pub fn lost(&mut self) -> bool {
        let is_news = self.asked_ms != 0 && !self.is_silent;
        self.forget();
        self.is_silent = self.asked_ms != 0;
        is_news
    }

    /// Returns true if a question is due at this interval.
    pub fn is_due(&self, now_ms: u64, every_ms: u64) -> bool {
        self.asked_ms == 0 || now_ms >= self.asked_ms + every_ms
    }

    /// Notes a question.
    pub fn asked(&mut self, now_ms: u64) {
        self.asked_ms = now_ms;
    }

    /// Takes the reply to the question of that time.
    pub fn heard(&mut self, said: Said, asked_ms: u64) {
        match said {
            Said::Primary { offset } => {
                // It was restarted, or is another one: its earlier offsets do not apply.
                if self.moments.back().is_some_and(|&(_, last)| offset < last) {
                    self.moments.clear();
                }
                if self.moments.len() == MOMENTS_MAX {
                    self.moments.pop_front();
                }
                self.moments.push_back((asked_ms, offset));
            }
            _ => self.moments.clear(),
        }
        self.has_data = match said {
            Said::Replica { is_linked, offset } => is_linked || self.has_data && offset > 0,
            Said::Primary { .. } | Said::Nothing => false,
        };
        self.said = Some(said);
        self.is_silent = false;
    }

    /// Resets the state of a server that is no longer asked.
    pub fn forget(&mut self) {
        *self = Replication {
            asked_ms: self.asked_ms,
            ..Replication::default()
        };
    }

    /// Judges a replica beside its primary. Returns true if its fitness has changed.
    pub fn judge(
        &mut self,
        primary: Option<&Replication>,
        lag_max: Option<Duration>,
        now_ms: u64,
    ) -> bool {
        let has = match self.said {
            Some(Said::Replica { is_linked, offset }) if is_linked => Some(offset),
            _ => None,
        };
        if let (Some(has), Some(primary)) = (has, primary) {
            let mut moments = primary.moments.iter().rev();
            if let Some((ms, _)) = moments.find(|(_, offset)| *offset <= has) {
                self.fresh_to_ms = self.fresh_to_ms.max(*ms);
            }
        }
        let is_fit = match (self.said, lag_max) {
            (Some(Said::Nothing), None) => true,
            (_, None) => has.is_some(),
            (_, Some(lag_max)) => {
                let lag_ms = u128::from(now_ms.saturating_sub(self.fresh_to_ms));
                // A late replica becomes fit a little earlier than it became unfit, to avoid oscillation.
                let most_ms = match self.is_fit {
                    true => lag_max.as_millis(),
                    false => lag_max.as_millis() * 3 / 4,
                };
                has.is_some() && self.fresh_to_ms > 0 && lag_ms <= most_ms
            }
        };
        std::mem::replace(&mut self.is_fit, is_fit) != is_fit
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LAG: Option<Duration> = Some(Duration::from_millis(1000));

    fn replica(offset: u64) -> Said {
        Said::Replica {
            is_linked: true,
            offset,
        }
    }

    #[test]
    fn what_servers_say_is_understood() {
        let primary =
            b"# Replication\r\nrole:master\r\nconnected_slaves:1\r\nmaster_repl_offset:42\r\n";
        assert_eq!(Said::of(primary), Said::Primary { offset: 42 });
        let one = "role:slave\r\nmaster_link_status:up\r\nmaster_sync_in_progress:0\r\nslave_repl_offset:7\r\n";
        assert_eq!(Said::of(one.as_bytes()), replica(7));
        for broken in [one.replace("up", "down"), one.replace("s:0", "s:1")] {
            let said = Said::of(broken.as_bytes());
            assert!(
                matches!(
                    said,
                    Said::Replica {
                        is_linked: false,
                        ..
                    }
                ),
                "{said:?}"
            );
        }
        assert_eq!(Said::of(b"ERR no"), Said::Nothing);
    }

    #[test]
    fn a_replica_is_as_old_as_the_moment_of_its_primary_that_it_has_reached() {
        let (mut primary, mut copy) = (Replication::default(), Replication::default());
        assert!(!copy.judge(Some(&primary), LAG, 10));
        for (ms, offset) in [(1000, 10), (1500, 20), (2000, 30)] {
            primary.heard(Said::Primary { offset }, ms);
        }
        copy.heard(replica(25), 2000);
        assert!(copy.judge(Some(&primary), LAG, 2200), "700 ms behind");
        assert!(copy.is_fit());
        assert!(!copy.judge(Some(&primary), LAG, 2500));
        assert!(copy.judge(Some(&primary), LAG, 2501) && !copy.is_fit());
        // It has caught up, and nothing more is written.
        primary.heard(Said::Primary { offset: 30 }, 3000);
        copy.heard(replica(30), 3000);
        assert!(copy.judge(Some(&primary), LAG, 3010) && copy.is_fit());
        // Without a primary that reports its offset, a copy grows old.
        copy.heard(replica(30), 4000);
        assert!(copy.judge(Some(&primary), LAG, 4100) && !copy.is_fit());
    }

    #[test]
    fn who_has_lost_its_primary_or_is_none_is_left_out_whatever_the_lag() {
        let mut copy = Replication::default();
        assert!(
            !copy.judge(None, None, 1) && !copy.is_fit(),
            "it has said nothing yet"
        );
        copy.heard(replica(1), 1);
        assert!(copy.judge(None, None, 1) && copy.is_fit());
        for said in [
            Said::Primary { offset: 1 },
            Said::Replica {
                is_linked: false,
                offset: 9,
            },
        ] {
            copy.heard(said, 2);
            copy.judge(None, None, 2);
            assert!(!copy.is_fit(), "{said:?}");
        }
        // A server that reports no replication is accepted as the file says, if no lag is bounded.
        copy.heard(Said::Nothing, 3);
        assert!(copy.judge(None, None, 3) && copy.is_fit());
        assert!(copy.judge(None, LAG, 3) && !copy.is_fit());
    }

    #[test]
    fn who_has_been_away_or_empty_is_no_orphan() {
        let alone = |offset| Said::Replica {
            is_linked: false,
            offset,
        };
        let mut copy = Replication::default();
        let mut is_orphan = |said: Said| {
            copy.heard(said, 1);
            copy.is_orphan()
        };
        assert!(!is_orphan(alone(9)), "nobody knows what it has");
        assert!(!is_orphan(replica(9)) && is_orphan(alone(9)) && is_orphan(alone(9)));
        assert!(
            !is_orphan(alone(0)) && !is_orphan(alone(9)),
            "it has begun anew"
        );
        assert!(!is_orphan(replica(9)) && is_orphan(alone(9)));
        copy.lost();
        copy.heard(alone(9), 2);
        assert!(!copy.is_orphan());
    }

    #[test]
    fn a_primary_that_begins_anew_leaves_nothing_of_before() {
        let (mut primary, mut copy) = (Replication::default(), Replication::default());
        primary.heard(Said::Primary { offset: 500 }, 1000);
        primary.heard(Said::Primary { offset: 3 }, 2000);
        copy.heard(replica(400), 2000);
        assert!(copy.judge(Some(&primary), LAG, 2100));
        assert_eq!((primary.moments.len(), copy.fresh_to_ms), (1, 2000));
    }
}
