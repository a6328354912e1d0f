//! Random transactions against two stores at a time: tests alone. Must not know: how a store is built.

use std::time::Duration;

use crate::{
    Answer, Condition, Event, Events, File, Memory, Operation, Range, Store, StoreError,
    Transaction,
};
use proptest::{prelude::*, strategy::ValueTree, test_runner::TestRng};

const KEYS: [&str; 6] = ["a", "a/1", "a/2", "b", "b/1", "c"];
const PREFIXES: [&str; 5] = ["", "a", "a/", "b/", "d"];

fn range() -> impl Strategy<Value = Range> {
    prop_oneof![
        proptest::sample::select(&KEYS[..]).prop_map(|key| Range::Key(key.into())),
        proptest::sample::select(&PREFIXES[..]).prop_map(|key| Range::Prefix(key.into())),
    ]
}

fn operation() -> impl Strategy<Value = Operation> {
    prop_oneof![
        4 => (proptest::sample::select(&KEYS[..]), "[ -~\u{e9}]{0,20}").prop_map(|(key, value)| {
            Operation::Put { key: key.into(), value: value.into_bytes(), lease: None }
        }),
        2 => range().prop_map(Operation::Delete),
        3 => range().prop_map(Operation::Get),
    ]
}

/// A condition; a revision is counted back from the newest one.
fn condition() -> impl Strategy<Value = (bool, &'static str, u64)> {
    (any::<bool>(), proptest::sample::select(&KEYS[..]), 0..4_u64)
}

type Draft = (
    Vec<(bool, &'static str, u64)>,
    Vec<Operation>,
    Vec<Operation>,
);

fn draft() -> impl Strategy<Value = Draft> {
    let branch = || proptest::collection::vec(operation(), 0..4);
    (
        proptest::collection::vec(condition(), 0..3),
        branch(),
        branch(),
    )
}

/// Returns `count` transactions' drafts of a seed.
fn drafts(count: usize, seed: u8) -> Vec<Draft> {
    use proptest::test_runner::{Config, RngAlgorithm, TestRunner};
    let rng = TestRng::from_seed(RngAlgorithm::ChaCha, &[seed; 32]);
    let mut runner = TestRunner::new_with_rng(Config::default(), rng);
    (0..count)
        .map(|_| {
            draft()
                .new_tree(&mut runner)
                .expect("it can be drawn")
                .current()
        })
        .collect()
}

fn kind(error: &StoreError) -> &'static str {
    match error {
        StoreError::Unavailable(_) => "unavailable",
        StoreError::Undecided(_) => "undecided",
        StoreError::Refused(_) => "refused",
        StoreError::Compacted(_) => "compacted",
        StoreError::Damaged(_) => "damaged",
    }
}

/// Runs drafts against two empty stores and compares what they answer, keep and tell. The error names the transaction.
pub fn compare(one: &dyn Store, other: &dyn Store, count: usize, seed: u8) -> Result<(), String> {
    let start = one
        .range(&Range::Key("a".into()))
        .map_err(|error| error.to_string())?;
    let mut revision = start.revision;
    let mut watches = [one, other].map(|store| store.watch(revision + 1).expect("it is watched"));
    let (mut succeeded, mut refused) = (0, 0);
    for (number, (conditions, success, failure)) in drafts(count, seed).into_iter().enumerate() {
        let conditions = conditions
            .into_iter()
            .map(|(absent, key, back)| match absent {
                true => Condition::Absent(key.into()),
                false => {
                    let now = one.range(&Range::Key(key.into())).expect("it is read");
                    let at = now.pairs.first().map_or(0, |pair| pair.mod_revision);
                    Condition::Unchanged(key.into(), at.saturating_sub(back / 3))
                }
            });
        let transaction = Transaction {
            conditions: conditions.collect(),
            success,
            failure,
        };
        let answers = [one, other].map(|store| store.transact(&transaction));
        let [first, second] = &answers;
        let is_equal = match (first, second) {
            (Ok(first), Ok(second)) => first == second,
            (Err(first), Err(second)) => kind(first) == kind(second),
            _ => false,
        };
        if !is_equal {
            return Err(format!(
                "transaction {number} of seed {seed}, {transaction:?}: {first:?}, {second:?}"
            ));
        }
        match first {
            Ok(Answer {
                revision: at,
                succeeded: true,
                ..
            }) => (revision, succeeded) = (*at, succeeded + 1),
            Ok(Answer { revision: at, .. }) => revision = *at,
            Err(_) => refused += 1,
        }
    }
    let all = [one, other].map(|store| store.range(&Range::Prefix(String::new())));
    if all[0] != all[1] {
        return Err(format!("afterwards: {all:?}"));
    }
    if succeeded < count / 5 || succeeded > count * 9 / 10 || refused == 0 {
        return Err(format!(
            "{succeeded} of {count} succeeded, {refused} were refused: too like each other"
        ));
    }
    let told = watches.each_mut().map(|watch| {
        let mut events: Vec<Event> = Vec::new();
        loop {
            let Events {
                revision: at,
                events: more,
            } = watch.next(Duration::from_secs(20)).expect("it goes on");
            events.extend(more);
            if at >= revision {
                return events;
            }
        }
    });
    match told[0] == told[1] && !told[0].is_empty() {
        true => Ok(()),
        false => Err(format!("the watches tell different things: {told:?}")),
    }
}

#[test]
fn a_file_answers_as_memory_does() {
    for seed in 0..4 {
        let folder = tempfile::tempdir().unwrap();
        let file = File::open(&folder.path().join("nodes.conf")).unwrap();
        compare(&Memory::new(), &file, 100, seed).unwrap();
    }
}

/// A store that forgets one guard.
struct Faulty(Memory);

impl Store for Faulty {
    fn range(&self, range: &Range) -> Result<crate::Listing, StoreError> {
        self.0.range(range)
    }

    fn transact(&self, transaction: &Transaction) -> Result<Answer, StoreError> {
        let mut without = transaction.clone();
        without.conditions.truncate(1);
        self.0.transact(&without)
    }

    fn grant_lease(&self, ttl_s: u64) -> Result<crate::LeaseId, StoreError> {
        self.0.grant_lease(ttl_s)
    }

    fn keep_lease(&self, lease: crate::LeaseId) -> Result<bool, StoreError> {
        self.0.keep_lease(lease)
    }

    fn watch(&self, from_revision: u64) -> Result<Box<dyn crate::Watch>, StoreError> {
        self.0.watch(from_revision)
    }
}

#[test]
fn a_store_that_forgets_a_guard_is_found() {
    let error = compare(&Memory::new(), &Faulty(Memory::new()), 100, 0).unwrap_err();
    assert!(error.starts_with("transaction "), "{error}");
}
