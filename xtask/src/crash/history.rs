//! The operations of clients and the answers to them, compared with the data of a server that was killed and started again.
//!
//! A client's operations take effect in its order, and each of them changes its [`Tally`]. So what has survived must be
//! the tally after the first `n` of them, for some `n`: anything else is torn, and an `n` below the number of those that
//! were acknowledged is a loss.
//!
//! Must not know: sockets, processes, files.

/// The kinds of operations that change the tally; the numbers are their places in it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// A SET of the number of the operation.
    Register,
    /// An INCR.
    Count,
    /// MULTI, INCR, INCR, EXEC.
    Transaction,
    /// A script that increments two keys.
    Script,
    /// MULTI, LPUSH, INCR, EXEC: an element for whoever waits for it.
    Push,
    /// A SET of a large value that begins with the number of the operation.
    Large,
}

/// Number of kinds.
pub const KINDS: usize = 6;

/// The number of operations of each kind.
pub type Tally = [u64; KINDS];

/// The operations of one client.
#[derive(Clone, Debug, Default)]
pub struct History {
    /// The tally from which it began.
    pub base: Tally,
    /// The operations that were sent, in this order.
    pub sent: Vec<Kind>,
    /// How many of them were answered.
    pub acknowledged: usize,
}

/// The history of the client that takes elements out of the queue.
#[derive(Clone, Copy, Debug, Default)]
pub struct Pops {
    /// Elements that it was given, since the first start.
    pub acknowledged: u64,
    /// One more was asked for.
    pub is_asking: bool,
}

/// The agreement of the data with histories.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Outcome {
    /// Operations that were acknowledged and are gone.
    pub lost: u64,
    /// Operations that are there and were not acknowledged.
    pub unanswered: u64,
}

impl Outcome {
    /// Adds another one.
    pub fn add(&mut self, other: Outcome) {
        self.lost += other.lost;
        self.unanswered += other.unanswered;
    }

    fn of(acknowledged: u64, there: u64) -> Outcome {
        Outcome {
            lost: acknowledged.saturating_sub(there),
            unanswered: there.saturating_sub(acknowledged),
        }
    }
}

impl History {
    /// Creates the history of a client that begins with this tally.
    pub fn new(base: Tally) -> History {
        History {
            base,
            ..History::default()
        }
    }

    /// Compares with what is there. The error says how it is torn.
    pub fn check(&self, found: &Tally) -> Result<Outcome, String> {
        let mut tally = self.base;
        for there in 0..=self.sent.len() {
            if tally == *found {
                return Ok(Outcome::of(self.acknowledged as u64, there as u64));
            }
            if let Some(kind) = self.sent.get(there) {
                tally[*kind as usize] += 1;
            }
        }
        Err(format!(
            "{found:?} is the tally after none of the first {} operations ({} acknowledged) behind {:?}",
            self.sent.len(),
            self.acknowledged,
            self.base
        ))
    }
}

impl Pops {
    /// Compares with the queue, oldest element first; `pushed` elements were put in. Returns the number that were taken
    /// out, too.
    pub fn check(&self, queue: &[u64], pushed: u64) -> Result<(Outcome, u64), String> {
        let follows = queue.windows(2).all(|pair| pair[1] == pair[0] + 1);
        if !follows || queue.last().is_some_and(|last| *last != pushed) {
            return Err(format!("of {pushed} elements the queue has {queue:?}"));
        }
        let popped = pushed - queue.len() as u64;
        if popped > self.acknowledged + u64::from(self.is_asking) {
            return Err(format!(
                "{popped} elements were taken out, {} of them by somebody",
                self.acknowledged
            ));
        }
        Ok((Outcome::of(self.acknowledged, popped), popped))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A client that has sent four operations behind two, and was told of the first two.
    fn history() -> History {
        let mut history = History::new([1, 1, 0, 0, 0, 0]);
        history.sent = vec![Kind::Register, Kind::Transaction, Kind::Count, Kind::Large];
        history.acknowledged = 2;
        history
    }

    #[test]
    fn what_was_acknowledged_and_perhaps_more_is_there() {
        let outcome = |lost, unanswered| Ok(Outcome { lost, unanswered });
        assert_eq!(history().check(&[2, 1, 1, 0, 0, 0]), outcome(0, 0));
        assert_eq!(history().check(&[2, 2, 1, 0, 0, 0]), outcome(0, 1));
        assert_eq!(history().check(&[2, 2, 1, 0, 0, 1]), outcome(0, 2));
    }

    #[test]
    fn a_loss_is_counted() {
        let outcome = |lost| {
            Ok(Outcome {
                lost,
                unanswered: 0,
            })
        };
        assert_eq!(history().check(&[2, 1, 0, 0, 0, 0]), outcome(1));
        assert_eq!(history().check(&[1, 1, 0, 0, 0, 0]), outcome(2));
    }

    #[test]
    fn what_no_order_explains_is_torn() {
        // The second operation without the first, one that nobody sent, less than there was at the beginning.
        for found in [
            [1, 1, 1, 0, 0, 0],
            [2, 1, 1, 0, 0, 1],
            [3, 1, 1, 0, 0, 0],
            [0, 1, 0, 0, 0, 0],
        ] {
            assert!(history().check(&found).is_err(), "{found:?}");
        }
    }

    #[test]
    fn the_queue_has_what_was_put_in_and_not_taken_out() {
        let pops = Pops {
            acknowledged: 3,
            is_asking: true,
        };
        let outcome = |lost, unanswered| Outcome { lost, unanswered };
        assert_eq!(pops.check(&[4, 5], 5), Ok((outcome(0, 0), 3)));
        assert_eq!(pops.check(&[5], 5), Ok((outcome(0, 1), 4)));
        assert_eq!(pops.check(&[], 4), Ok((outcome(0, 1), 4)));
        assert_eq!(pops.check(&[3, 4, 5], 5), Ok((outcome(1, 0), 2)));
        assert!(pops.check(&[], 5).is_err(), "two at once");
        assert!(pops.check(&[3, 5], 5).is_err(), "a hole");
        assert!(pops.check(&[4], 5).is_err(), "the newest is missing");
        assert!(pops.check(&[5, 4], 5).is_err(), "the other way round");
    }
}
