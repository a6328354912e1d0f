//! The desk: transactions of one node, one at a time, each of which is known in the end to be done or not.
//!
//! Each transaction also writes a number that nothing else has, its *nonce*, to a key that belongs to the node alone,
//! `writers/<node>`, and wants that key as it was. So a node without an answer can decide: it writes the same key, under
//! the same condition (*settles*). If that succeeds, the transaction was not done, and will not be when a slow network
//! delivers it later, since its condition no longer holds. If it fails, the key says which of the two came first. A read
//! alone would decide only what has happened so far; a nonce in the record that is changed would be gone once another
//! node has changed it again.
//!
//! Must not know: what a transaction is for.

use redline_etcd::{Answer, Condition, Operation, Range, StoreError, Transaction};

use super::{Mutants, known::Known};

/// Time between two attempts to settle: milliseconds.
const SETTLE_EVERY_MS: u64 = 250;
/// Beginning of the keys with nonces; a node's id follows.
const WRITERS: &str = "writers/";

/// A change that a node wants: what must be so, what is then written, and which keys the answer tells.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Change {
    /// Conditions.
    pub conditions: Vec<Condition>,
    /// Puts and deletes.
    pub writes: Vec<Operation>,
    /// Keys that are read afterwards in either case.
    pub reads: Vec<String>,
}

/// Outcome of a change.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Outcome {
    /// It was done.
    Done,
    /// It was not done, and will not be; with the store's reason if it has one.
    NotDone(Option<String>),
}

/// See the head of the module.
#[derive(Clone, Debug)]
pub(crate) struct Desk {
    key: String,
    incarnation: String,
    /// Number of transactions made.
    made: u64,
    open: Option<Open>,
}

/// A change without an outcome.
#[derive(Clone, Debug)]
struct Open {
    nonce: String,
    /// Revision of the nonces' key in its condition.
    before: u64,
    reads: Vec<String>,
    /// Number of the call that waits for an answer.
    call: Option<u64>,
    /// True as soon as it was unknown once whether it was done.
    is_undecided: bool,
    /// When it is settled, if no call waits.
    settle_at_ms: u64,
}

impl Desk {
    pub(crate) fn new(node: &str, incarnation: &str) -> Desk {
        Desk {
            key: format!("{WRITERS}{node}"),
            incarnation: incarnation.to_owned(),
            made: 0,
            open: None,
        }
    }

    pub(crate) fn is_free(&self) -> bool {
        self.open.is_none()
    }

    /// Makes the transaction of a change, and its number. Only if it is free.
    pub(crate) fn begin(&mut self, known: &Known, change: Change) -> (u64, Transaction) {
        assert!(self.is_free(), "one transaction at a time");
        self.made += 1;
        let nonce = format!("{}.{}", self.incarnation, self.made);
        let before = known.revision_of(&self.key);
        let mut reads = change.reads;
        reads.push(self.key.clone());
        let gets = reads.iter().map(|key| Operation::Get(key_range(key)));
        let gets: Vec<_> = gets.collect();
        let mut conditions = change.conditions;
        conditions.push(Condition::Unchanged(self.key.clone(), before));
        let mut success = change.writes;
        success.push(self.put(&nonce));
        success.extend(gets.iter().cloned());
        self.open = Some(Open {
            nonce,
            before,
            reads,
            call: Some(self.made),
            is_undecided: false,
            settle_at_ms: 0,
        });
        let transaction = Transaction {
            conditions,
            success,
            failure: gets,
        };
        (self.made, transaction)
    }

    /// Takes the answer of a call. Answers of other calls than the newest have no effect.
    pub(crate) fn answer(
        &mut self,
        known: &mut Known,
        call: u64,
        answer: &Result<Answer, StoreError>,
        now_ms: u64,
        mutants: Mutants,
    ) -> Option<Outcome> {
        let open = self.open.as_mut().filter(|open| open.call == Some(call))?;
        open.call = None;
        open.settle_at_ms = now_ms;
        let outcome = match answer {
            Ok(answer) => {
                for (key, pairs) in open.reads.iter().zip(&answer.ranges) {
                    known.learn_read(key, answer.revision, pairs);
                }
                let written = known.pair(&self.key).map(|pair| &pair.value[..]);
                match written == Some(open.nonce.as_bytes()) {
                    true => Outcome::Done,
                    false => Outcome::NotDone(None),
                }
            }
            Err(StoreError::Undecided(_)) if mutants.has(super::Mutant::NonceNotRead) => {
                Outcome::NotDone(None)
            }
            Err(StoreError::Unavailable(why) | StoreError::Refused(why)) if !open.is_undecided => {
                Outcome::NotDone(Some(why.clone()))
            }
            Err(_) => {
                open.settle_at_ms += if open.is_undecided {
                    SETTLE_EVERY_MS
                } else {
                    0
                };
                open.is_undecided = true;
                return None;
            }
        };
        self.open = None;
        Some(outcome)
    }

    /// Makes the transaction that settles, if one is due.
    pub(crate) fn settle(&mut self, now_ms: u64, mutants: Mutants) -> Option<(u64, Transaction)> {
        let open = self.open.as_ref()?;
        if open.call.is_some() || now_ms < open.settle_at_ms {
            return None;
        }
        self.made += 1;
        let put = self.put(&format!("{}.{}", self.incarnation, self.made));
        let open = self.open.as_mut()?;
        open.call = Some(self.made);
        let gets = open.reads.iter();
        let gets: Vec<_> = gets.map(|key| Operation::Get(key_range(key))).collect();
        let mut success = gets.clone();
        if !mutants.has(super::Mutant::SettleOnlyReads) {
            success.insert(0, put);
        }
        let transaction = Transaction {
            conditions: vec![Condition::Unchanged(self.key.clone(), open.before)],
            success,
            failure: gets,
        };
        Some((self.made, transaction))
    }

    fn put(&self, nonce: &str) -> Operation {
        Operation::Put {
            key: self.key.clone(),
            value: nonce.as_bytes().to_vec(),
            lease: None,
        }
    }
}

fn key_range(key: &str) -> Range {
    Range::Key(key.to_owned())
}
