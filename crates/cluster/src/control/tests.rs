//! Decisions of one node that the simulation does not make: a shard that is taken over by force.

use redline_etcd::{Answer, Listing, Operation, Pair, Range, Transaction};

use super::*;
use crate::records::{ALIVE, Record, SHARDS};

fn run(node: &str) -> Incarnation {
    Incarnation {
        node: node.into(),
        incarnation: format!("{node}-run"),
    }
}

fn pair(mod_revision: u64, key: String, value: Vec<u8>) -> Pair {
    Pair {
        key,
        value,
        create_revision: 1,
        mod_revision,
        lease: None,
    }
}

fn listing(revision: u64, alive: &[&str]) -> Listing {
    let shard = ShardRecord {
        v: VERSION,
        term: 4,
        primary: run("a"),
        candidates: vec![run("b")],
        replicas: vec!["b".into(), "c".into()],
    };
    let alive = alive.iter().map(|node| {
        let alive = Alive {
            v: VERSION,
            incarnation: format!("{node}-run"),
            files: None,
        };
        pair(revision, format!("{ALIVE}{node}"), alive.to_json())
    });
    let mut pairs: Vec<Pair> = alive.collect();
    pairs.push(pair(revision, format!("{SHARDS}s"), shard.to_json()));
    Listing { revision, pairs }
}

/// A replica that is no candidate, is told so many are alive, and has been ordered to take over.
fn ordered(alive: &[&str]) -> (Control, Vec<Wish>) {
    let mut control = Control::new(run("c"), Settings::default(), None);
    control.handle(1000, Event::Listing(listing(7, alive)));
    let (number, order) = (1, Order::TakeOver);
    let wishes = control.handle(2000, Event::Order { number, order });
    (control, wishes)
}

fn tick(control: &mut Control, now_ms: u64) -> Vec<Wish> {
    let tick = Event::Tick {
        is_healthy: true,
        journal_end: 0,
    };
    control.handle(now_ms, tick)
}

fn transaction(wishes: &[Wish]) -> Option<(u64, &Transaction)> {
    wishes.iter().find_map(|wish| match wish {
        Wish::Transact { call, transaction } => Some((*call, transaction)),
        _ => None,
    })
}

/// Returns the store's answer to a transaction whose conditions hold.
fn done(transaction: &Transaction) -> Answer {
    let written = |wanted: &String| {
        let mut writes = transaction.success.iter();
        let found = writes.find_map(|it| match it {
            Operation::Put { key, value, .. } if key == wanted => Some(value.clone()),
            _ => None,
        });
        found.map(|value| pair(8, wanted.clone(), value))
    };
    let ranges = transaction.success.iter().filter_map(|it| match it {
        Operation::Get(Range::Key(key)) => Some(written(key).into_iter().collect()),
        _ => None,
    });
    Answer {
        revision: 8,
        succeeded: true,
        ranges: ranges.collect(),
    }
}

fn refused(wishes: &[Wish]) -> Option<&Refusal> {
    wishes.iter().find_map(|wish| match wish {
        Wish::Done {
            result: Err(refusal),
            ..
        } => Some(refusal),
        _ => None,
    })
}

#[test]
fn a_shard_of_which_nobody_is_left_is_taken_over_after_two_promises() {
    let (mut control, wishes) = ordered(&["c"]);
    assert_eq!((transaction(&wishes), refused(&wishes)), (None, None));
    assert_eq!(transaction(&tick(&mut control, 6000)), None, "too early");
    let wishes = tick(&mut control, 6001);
    let (call, transaction) = transaction(&wishes).expect("it is due");
    let conditions = format!("{:?}", transaction.conditions);
    for node in ["a", "b"] {
        let absent = format!("Absent(\"{ALIVE}{node}\")");
        assert!(conditions.contains(&absent), "{conditions}");
    }
    let mut puts = transaction.success.iter().filter_map(|it| match it {
        Operation::Put { key, value, .. } if key.starts_with(SHARDS) => Some(value),
        _ => None,
    });
    let record = ShardRecord::from_json(puts.next().expect("the shard")).unwrap();
    assert_eq!((record.term, &record.primary), (5, &run("c")));
    assert!(record.candidates.is_empty());
    assert_eq!(record.replicas, ["b", "a"]);
    let answer = Ok(done(transaction));
    let wishes = control.handle(6002, Event::Answer { call, answer });
    let taken = Wish::Done {
        number: 1,
        result: Ok(()),
    };
    assert!(wishes.contains(&taken), "{wishes:?}");
}

#[test]
fn nobody_takes_over_by_force_while_one_is_left() {
    for alive in ["a", "b"] {
        let (_, wishes) = ordered(&["c", alive]);
        assert_eq!(refused(&wishes), Some(&Refusal::Alive(alive.into())));
    }
    // One that comes back in the meantime.
    let (mut control, wishes) = ordered(&["c"]);
    assert_eq!(refused(&wishes), None);
    let wishes = control.handle(3000, Event::Listing(listing(9, &["b", "c"])));
    assert_eq!(refused(&wishes), Some(&Refusal::Alive("b".into())));
    assert_eq!(transaction(&tick(&mut control, 9000)), None);
}
