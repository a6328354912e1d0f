//! Events and wishes: the input and the output of [`Control`](super::Control).
//!
//! Must not know: what is decided.

mod wire;

use redline_etcd::{Answer, Events, Listing, StoreError, Transaction};

use super::{Mutant, Mutants, Order, Refusal};
use crate::records::Incarnation;

/// Settings of the node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Settings {
    /// Length of a promise: milliseconds, 100 to 600,000. `cluster-node-timeout`.
    pub promise_ms: u64,
    /// `cluster-acks`.
    pub acks: Acks,
    /// True if replies of a primary without candidates leave: `cluster-acks-alone`.
    pub may_be_alone: bool,
    /// Largest number of candidates. `cluster-candidates-max`.
    pub candidates_max: usize,
}

impl Default for Settings {
    fn default() -> Settings {
        Settings {
            promise_ms: 2000,
            acks: Acks::None,
            may_be_alone: false,
            candidates_max: 2,
        }
    }
}

/// Which replies wait for the candidates.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Acks {
    /// None: a primary that dies may take the newest writes with it.
    None,
    /// Those that tell of a write, until every candidate has it.
    One,
}

/// How far a node's data go: the term of the stream that they are from, and the place in it. The data of two nodes at the
/// same place are equal.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Place {
    /// Term of the primary that the data came from last.
    pub term: u64,
    /// Number in its stream.
    pub offset: u64,
}

/// An event.
#[derive(Clone, Debug)]
pub enum Event {
    /// Time has passed: at least every sixteenth of a promise's length.
    Tick {
        /// True if every worker has turned its loop lately, or runs a script. A primary that hangs shall lose its right.
        is_healthy: bool,
        /// Number of the newest record.
        journal_end: u64,
    },
    /// All keys of the store.
    Listing(Listing),
    /// Changes that the watch tells.
    Changes(Events),
    /// The answer to [`Wish::Transact`]. There is one for each.
    Answer {
        /// Its number.
        call: u64,
        /// The store's answer. [`StoreError::Unavailable`] only if it certainly was not done.
        answer: Result<Answer, StoreError>,
    },
    /// A message of another node. It may have been late, lost or doubled.
    Message {
        /// Its id.
        from: String,
        /// The message.
        message: Message,
    },
    /// Primary: a replica's link is there and has all data up to this number.
    Replica {
        /// Id of the node.
        node: String,
        /// Its run.
        incarnation: String,
        /// Term that it named.
        term: u64,
        /// Number that it has acknowledged.
        offset: u64,
    },
    /// Primary: a replica's link has ended.
    ReplicaGone {
        /// Id of the node.
        node: String,
    },
    /// Primary: [`Wish::Count`] has been carried out.
    Counted {
        /// Its version.
        version: u64,
        /// Newest number that a reply had told of before it was.
        released: u64,
    },
    /// Primary: [`Wish::Hold`] has been carried out, with the number of the record that ends the term.
    Held {
        /// Number of the order.
        number: u64,
        /// The number of the record.
        end: u64,
    },
    /// Replica: the data are whole, and follow the primary of this term.
    Linked {
        /// The term.
        term: u64,
    },
    /// Replica: the link to the primary has ended.
    Unlinked,
    /// Replica: [`Wish::Cut`] has been carried out; the data are whole up to this place.
    Cut {
        /// The place.
        place: Place,
    },
    /// Replica: the primary can only send everything, for which these data are given up. It waits for [`Wish::Empty`].
    WantsEmpty,
    /// Somebody has asked for a change; [`Wish::Done`] answers.
    Order {
        /// Number of the order.
        number: u64,
        /// The change.
        order: Order,
    },
}

/// A wish, which the server carries out. See `docs/design/cluster.md` for the order and for what has to be durable.
#[derive(Clone, Debug, PartialEq)]
pub enum Wish {
    /// A call of the store. One at a time.
    Transact {
        /// Number for the answer.
        call: u64,
        /// The transaction.
        transaction: Transaction,
    },
    /// A message to a node, over a link of its own; it may be lost.
    Send {
        /// Id of the node.
        to: String,
        /// The message.
        message: Message,
    },
    /// The node is in no shard: it serves nothing and follows nobody.
    Alone,
    /// The node is the primary of its shard: a new stream begins, links that name this term are taken.
    Lead {
        /// Id of the shard.
        shard: String,
        /// The term.
        term: u64,
    },
    /// The node follows a primary: it makes a link that names this term, again and again.
    Follow {
        /// Id of the shard.
        shard: String,
        /// The term.
        term: u64,
        /// The primary.
        primary: Incarnation,
    },
    /// The link to the primary is cut, and what has come whole is applied. From here on nothing is acknowledged to it.
    Cut,
    /// The data may be given up.
    Empty,
    /// Until when the node may serve as the primary; 0: it may not, `u64::MAX`: there is no end.
    Right {
        /// The term.
        term: u64,
        /// Time on the node's clock: milliseconds.
        until_ms: u64,
    },
    /// The candidates that replies wait for.
    Count(Count),
    /// Treatment of calls that a primary would run.
    Calls(Calls),
    /// Calls that write are put aside, and a record is written that ends the term.
    Hold {
        /// Number of the order to hand over.
        number: u64,
    },
    /// Those calls run on.
    Free,
    /// Outcome of an order.
    Done {
        /// Number of the order.
        number: u64,
        /// The outcome.
        result: Result<(), Refusal>,
    },
}

/// Treatment of calls that want a primary.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Calls {
    /// They run.
    Run,
    /// They are put aside.
    Wait,
    /// They are answered `CLUSTERDOWN`.
    Down,
    /// They are answered `MOVED`, to the primary.
    Moved,
}

/// The candidates that the replies of a primary wait for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Count {
    /// Number of this set.
    pub version: u64,
    /// True if replies wait at all: `cluster-acks one`.
    pub is_waiting: bool,
    /// Processes that all have to have what a reply tells of.
    pub all: Vec<Incarnation>,
    /// True if one of them is a candidate for certain, or there need be none. If not, nothing is released, and a write is put
    /// aside before it runs.
    pub is_enough: bool,
    pub(crate) mutants: Mutants,
}

impl Count {
    /// Returns the newest number of which a reply may tell, if these have been acknowledged. `None`: of none.
    ///
    /// With `cluster-acks none`, `end`: the newest that there is.
    pub fn released(&self, end: u64, acked: impl Fn(&Incarnation) -> u64) -> Option<u64> {
        if !self.is_waiting {
            return Some(end);
        }
        let acked = self.all.iter().map(acked);
        if self.mutants.has(Mutant::AckOfAny) {
            return acked.max().filter(|_| self.is_enough);
        }
        let least = acked.min().unwrap_or(end);
        (self.is_enough || self.mutants.has(Mutant::EmptyReleases)).then_some(least)
    }

    pub(crate) fn is_as(&self, other: &Count) -> bool {
        (&self.all, self.is_enough, self.is_waiting)
            == (&other.all, other.is_enough, other.is_waiting)
    }
}

/// A message between two nodes of a shard.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Message {
    /// A primary asks a replica not to take over for a while.
    Ask {
        /// Id of the shard.
        shard: String,
        /// Its term.
        term: u64,
        /// The primary's run.
        incarnation: String,
        /// Revision of the shard's record that the primary knows.
        revision: u64,
        /// The primary's clock: milliseconds.
        clock_ms: u64,
        /// For how long: milliseconds.
        promise_ms: u64,
        /// True if replies of the primary wait for the replica, which is to acknowledge at once.
        is_waiting: bool,
    },
    /// The replica will not.
    Promise {
        /// Term of the question.
        term: u64,
        /// The replica's run.
        incarnation: String,
        /// Clock of the question.
        clock_ms: u64,
        /// Length of the question.
        promise_ms: u64,
    },
    /// A candidate wants to take over.
    Bid {
        /// Id of the shard.
        shard: String,
        /// The new term.
        term: u64,
        /// The candidate's data.
        place: Place,
        /// Its clock: milliseconds.
        clock_ms: u64,
        /// Length of the promise that it asks for: milliseconds.
        promise_ms: u64,
    },
    /// Another candidate lets it, and promises for the new term.
    Yield {
        /// The new term.
        term: u64,
        /// Run of the other candidate.
        incarnation: String,
        /// Its data.
        place: Place,
        /// Clock of the bid.
        clock_ms: u64,
        /// Length of the promise.
        promise_ms: u64,
    },
    /// Another candidate has more, or bids itself; it goes first.
    Further {
        /// The new term.
        term: u64,
    },
    /// Another candidate hears the primary.
    Hears {
        /// The new term.
        term: u64,
    },
    /// The shard has a newer term, in this revision of the store.
    Superseded {
        /// Id of the shard.
        shard: String,
        /// The newer term.
        term: u64,
        /// The revision.
        revision: u64,
    },
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_set_releases_what_all_have_and_an_uncertain_one_nothing() {
        let who = |node: &str| Incarnation {
            node: node.into(),
            incarnation: "run".into(),
        };
        let count = |is_waiting, is_enough, nodes: &[&str]| Count {
            version: 1,
            is_waiting,
            is_enough,
            all: nodes.iter().map(|node| who(node)).collect(),
            mutants: Mutants::default(),
        };
        let acked = |it: &Incarnation| if it.node == "a" { 7 } else { 5 };
        for (set, released) in [
            (count(false, false, &[]), Some(9)),
            (count(true, true, &["a", "b"]), Some(5)),
            (count(true, true, &["a"]), Some(7)),
            (count(true, false, &["a"]), None),
            (count(true, false, &[]), None),
            // A primary that may be alone, and is.
            (count(true, true, &[]), Some(9)),
        ] {
            assert_eq!(set.released(9, acked), released, "{set:?}");
        }
    }
}
