//! The state machine of a store: keys, revisions, leases, and the events that watches still may ask for.
//!
//! Must not know: threads, files, a clock.

use std::collections::{BTreeMap, VecDeque};

use crate::{
    Answer, Condition, Event, Events, KEY_BYTES_MAX, LeaseId, Listing, OPERATIONS_MAX, Operation,
    Pair, Range, StoreError, Transaction, VALUE_BYTES_MAX,
};

/// Number of events that are kept for watches.
const EVENTS_MAX: usize = 4096;

/// Contents of a store.
#[derive(Clone, Debug)]
pub(crate) struct Tree {
    revision: u64,
    pairs: BTreeMap<String, Pair>,
    leases: BTreeMap<LeaseId, Lease>,
    next_lease: u64,
    events: VecDeque<(u64, Event)>,
    /// Oldest revision from which a watch can begin.
    oldest: u64,
}

#[derive(Clone, Copy, Debug)]
struct Lease {
    ttl_ms: u64,
    ends_ms: u64,
}

impl Tree {
    /// Makes an empty one; its revision is 1, as etcd's.
    pub(crate) fn new() -> Tree {
        Tree::of(1, BTreeMap::new())
    }

    /// Makes one of these pairs. Events up to the revision are gone.
    pub(crate) fn of(revision: u64, pairs: BTreeMap<String, Pair>) -> Tree {
        Tree {
            revision,
            pairs,
            leases: BTreeMap::new(),
            next_lease: 1,
            events: VecDeque::new(),
            oldest: revision + 1,
        }
    }

    pub(crate) fn revision(&self) -> u64 {
        self.revision
    }

    pub(crate) fn pairs(&self) -> impl Iterator<Item = &Pair> {
        self.pairs.values()
    }

    pub(crate) fn range(&self, range: &Range) -> Listing {
        Listing {
            revision: self.revision,
            pairs: self.pairs_of(range).cloned().collect(),
        }
    }

    fn pairs_of<'a>(&'a self, range: &'a Range) -> impl Iterator<Item = &'a Pair> {
        let first = match range {
            Range::Key(key) | Range::Prefix(key) => key,
        };
        let is_in = move |key: &str| match range {
            Range::Key(wanted) => key == wanted,
            Range::Prefix(beginning) => key.starts_with(beginning),
        };
        let from_first = self.pairs.range(first.clone()..);
        let within = from_first.take_while(move |(key, _)| is_in(key));
        within.map(|(_, pair)| pair)
    }

    /// Does a transaction. On an error nothing has changed.
    pub(crate) fn transact(&mut self, transaction: &Transaction) -> Result<Answer, StoreError> {
        let succeeded = transaction.conditions.iter().all(|it| self.holds(it));
        let operations = match succeeded {
            true => &transaction.success,
            false => &transaction.failure,
        };
        // Both branches are checked, as etcd does: a mistake shows before the day on which it counts.
        check_limits(transaction)?;
        self.check_leases(&transaction.success)?;
        self.check_leases(&transaction.failure)?;
        let revision = self.revision + 1;
        let mut ranges = Vec::new();
        for operation in operations {
            match operation {
                Operation::Put { key, value, lease } => self.put(key, value, *lease, revision),
                Operation::Delete(range) => self.delete(range, revision),
                Operation::Get(range) => ranges.push(self.pairs_of(range).cloned().collect()),
            }
        }
        Ok(Answer {
            revision: self.revision,
            succeeded,
            ranges,
        })
    }

    fn holds(&self, condition: &Condition) -> bool {
        match condition {
            Condition::Absent(key) => !self.pairs.contains_key(key),
            Condition::Unchanged(key, revision) => {
                let now = self.pairs.get(key).map_or(0, |pair| pair.mod_revision);
                now == *revision
            }
        }
    }

    fn check_leases(&self, operations: &[Operation]) -> Result<(), StoreError> {
        for operation in operations {
            if let Operation::Put { key, lease, .. } = operation
                && lease.is_some_and(|lease| !self.leases.contains_key(&lease))
            {
                return refused(format!("the lease of {key} has ended"));
            }
        }
        Ok(())
    }

    fn put(&mut self, key: &str, value: &[u8], lease: Option<LeaseId>, revision: u64) {
        let before = self.pairs.get(key);
        let pair = Pair {
            key: key.to_owned(),
            value: value.to_vec(),
            create_revision: before.map_or(revision, |pair| pair.create_revision),
            mod_revision: revision,
            lease,
        };
        self.pairs.insert(key.to_owned(), pair.clone());
        self.note(revision, Event::Put(pair));
    }

    fn delete(&mut self, range: &Range, revision: u64) {
        let keys: Vec<String> = self.pairs_of(range).map(|pair| pair.key.clone()).collect();
        for key in keys {
            self.pairs.remove(&key);
            self.note(revision, Event::Delete(key, revision));
        }
    }

    fn note(&mut self, revision: u64, event: Event) {
        self.revision = revision;
        self.events.push_back((revision, event));
        if self.events.len() > EVENTS_MAX
            && let Some((gone, _)) = self.events.pop_front()
        {
            // Others of the same revision are of no use alone.
            self.oldest = gone + 1;
        }
    }

    pub(crate) fn grant_lease(&mut self, ttl_s: u64, now_ms: u64) -> LeaseId {
        let lease = LeaseId(self.next_lease);
        self.next_lease += 1;
        let ttl_ms = ttl_s.max(1).saturating_mul(1000);
        let ends_ms = now_ms.saturating_add(ttl_ms);
        self.leases.insert(lease, Lease { ttl_ms, ends_ms });
        lease
    }

    pub(crate) fn keep_lease(&mut self, lease: LeaseId, now_ms: u64) -> bool {
        let Some(lease) = self.leases.get_mut(&lease) else {
            return false;
        };
        lease.ends_ms = now_ms.saturating_add(lease.ttl_ms);
        true
    }

    /// Ends the leases whose time is over, each in a revision of its own.
    pub(crate) fn end_leases(&mut self, now_ms: u64) {
        let over = self.leases.iter();
        let over = over.filter(|(_, lease)| lease.ends_ms <= now_ms);
        let over: Vec<LeaseId> = over.map(|(id, _)| *id).collect();
        for lease in over {
            self.leases.remove(&lease);
            let revision = self.revision + 1;
            let bound = self.pairs.values();
            let bound = bound.filter(|pair| pair.lease == Some(lease));
            let keys: Vec<String> = bound.map(|pair| pair.key.clone()).collect();
            for key in keys {
                self.delete(&Range::Key(key), revision);
            }
        }
    }

    /// Returns the events from a revision on.
    pub(crate) fn events_from(&self, revision: u64) -> Result<Events, StoreError> {
        if revision < self.oldest {
            return Err(StoreError::Compacted(self.oldest));
        }
        let later = self.events.iter().filter(|(at, _)| *at >= revision);
        Ok(Events {
            revision: self.revision,
            events: later.map(|(_, event)| event.clone()).collect(),
        })
    }
}

fn refused(why: String) -> Result<(), StoreError> {
    Err(StoreError::Refused(why))
}

/// Checks what can be checked without a store: limits, and keys that are written twice.
pub(crate) fn check_limits(transaction: &Transaction) -> Result<(), StoreError> {
    if transaction.conditions.len() > OPERATIONS_MAX {
        return refused(format!(
            "a transaction has at most {OPERATIONS_MAX} conditions"
        ));
    }
    check_branch(&transaction.success)?;
    check_branch(&transaction.failure)
}

fn check_branch(operations: &[Operation]) -> Result<(), StoreError> {
    if operations.len() > OPERATIONS_MAX {
        return refused(format!(
            "a transaction has at most {OPERATIONS_MAX} operations"
        ));
    }
    let mut written: Vec<&str> = Vec::new();
    for operation in operations {
        let Operation::Put { key, value, .. } = operation else {
            continue;
        };
        if key.is_empty() || key.len() > KEY_BYTES_MAX {
            return refused(format!("a key has 1 to {KEY_BYTES_MAX} bytes"));
        }
        if value.len() > VALUE_BYTES_MAX {
            return refused(format!(
                "the value of {key} has more than {VALUE_BYTES_MAX} bytes"
            ));
        }
        let is_removed = operations.iter().any(|other| match other {
            Operation::Delete(Range::Key(removed)) => removed == key,
            Operation::Delete(Range::Prefix(beginning)) => key.starts_with(beginning),
            _ => false,
        });
        if is_removed || written.contains(&key.as_str()) {
            return refused(format!("a transaction writes {key} twice"));
        }
        written.push(key);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn put(key: &str, value: &str) -> Operation {
        Operation::Put {
            key: key.into(),
            value: value.into(),
            lease: None,
        }
    }

    fn write(tree: &mut Tree, operations: Vec<Operation>) -> Answer {
        let transaction = Transaction {
            success: operations,
            ..Transaction::default()
        };
        tree.transact(&transaction).expect("it is allowed")
    }

    fn keys(tree: &Tree, beginning: &str) -> Vec<String> {
        let listing = tree.range(&Range::Prefix(beginning.into()));
        listing.pairs.into_iter().map(|pair| pair.key).collect()
    }

    #[test]
    fn a_transaction_has_one_revision_and_conditions_see_the_state_before_it() {
        let mut tree = Tree::new();
        let answer = write(
            &mut tree,
            vec![put("a/1", "x"), put("a/2", "y"), put("b", "z")],
        );
        assert_eq!((answer.revision, answer.succeeded), (2, true));
        assert_eq!(keys(&tree, "a/"), ["a/1", "a/2"]);
        assert_eq!(keys(&tree, ""), ["a/1", "a/2", "b"]);
        let guarded = Transaction {
            conditions: vec![
                Condition::Unchanged("a/1".into(), 2),
                Condition::Absent("c".into()),
            ],
            success: vec![put("a/1", "new"), put("c", "1")],
            failure: vec![Operation::Get(Range::Key("a/1".into()))],
        };
        assert!(tree.transact(&guarded).unwrap().succeeded);
        let second = tree.transact(&guarded).unwrap();
        assert!(!second.succeeded && second.revision == 3);
        let pair = &second.ranges[0][0];
        assert_eq!(
            (
                pair.value.as_slice(),
                pair.create_revision,
                pair.mod_revision
            ),
            (&b"new"[..], 2, 3)
        );
        // What is not there was written in revision 0.
        let absent = Transaction {
            conditions: vec![Condition::Unchanged("d".into(), 0)],
            ..Transaction::default()
        };
        assert!(tree.transact(&absent).unwrap().succeeded);
    }

    #[test]
    fn removing_nothing_changes_no_revision() {
        let mut tree = Tree::new();
        write(&mut tree, vec![put("a", "1")]);
        let nothing = vec![Operation::Delete(Range::Key("b".into()))];
        assert_eq!(write(&mut tree, nothing).revision, 2);
        let all = vec![
            Operation::Delete(Range::Prefix(String::new())),
            Operation::Get(Range::Prefix(String::new())),
        ];
        let answer = write(&mut tree, all);
        assert_eq!((answer.revision, answer.ranges), (3, vec![vec![]]));
    }

    #[test]
    fn what_is_refused_changes_nothing() {
        let mut tree = Tree::new();
        let long = "k".repeat(KEY_BYTES_MAX + 1);
        let unknown = Operation::Put {
            key: "a".into(),
            value: Vec::new(),
            lease: Some(LeaseId(7)),
        };
        for operations in [
            vec![put("a", "1"), put("a", "2")],
            vec![put("a", "1"), put("", "")],
            vec![put(&long, "")],
            vec![put("a", &"v".repeat(VALUE_BYTES_MAX + 1))],
            vec![put("a", ""); OPERATIONS_MAX + 1],
            vec![unknown],
        ] {
            for at_failure in [false, true] {
                let mut transaction = Transaction::default();
                match at_failure {
                    true => transaction.failure = operations.clone(),
                    false => transaction.success = operations.clone(),
                }
                let result = tree.transact(&transaction);
                assert!(matches!(result, Err(StoreError::Refused(_))), "{result:?}");
                assert_eq!((tree.revision(), tree.pairs().count()), (1, 0));
            }
        }
    }

    #[test]
    fn leases_end_with_their_keys_unless_they_are_kept() {
        let mut tree = Tree::new();
        let (kept, left) = (tree.grant_lease(2, 0), tree.grant_lease(2, 0));
        for (key, lease) in [("kept", kept), ("left", left)] {
            let operation = Operation::Put {
                key: key.into(),
                value: Vec::new(),
                lease: Some(lease),
            };
            write(&mut tree, vec![operation]);
        }
        assert!(tree.keep_lease(kept, 1000));
        tree.end_leases(1999);
        assert_eq!(keys(&tree, ""), ["kept", "left"]);
        tree.end_leases(2000);
        assert_eq!(keys(&tree, ""), ["kept"]);
        assert!(!tree.keep_lease(left, 2000));
        let events = tree.events_from(4).unwrap().events;
        assert_eq!(events, [Event::Delete("left".into(), 4)]);
    }

    #[test]
    fn a_watch_gets_every_event_or_hears_that_some_are_gone() {
        let mut tree = Tree::new();
        assert_eq!(tree.events_from(2).unwrap().events, []);
        assert_eq!(tree.events_from(1), Err(StoreError::Compacted(2)));
        for _ in 0..EVENTS_MAX {
            write(&mut tree, vec![put("a", "1")]);
        }
        assert_eq!(tree.events_from(2).unwrap().events.len(), EVENTS_MAX);
        write(&mut tree, vec![put("a", "1"), put("b", "1")]);
        assert_eq!(tree.events_from(2), Err(StoreError::Compacted(4)));
        let last = tree.events_from(EVENTS_MAX as u64 + 2).unwrap();
        assert_eq!(
            (last.events.len(), last.revision),
            (2, EVENTS_MAX as u64 + 2)
        );
    }
}
