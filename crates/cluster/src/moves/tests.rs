//! Moves: each transaction alone, and many at once while primaries change and answers are lost.

use redline_etcd::{Memory, Range, Store};

use super::*;
use crate::{
    Owners,
    records::{FORMAT, Incarnation, Map, Meta, NODES, NodeRecord, ShardRecord},
};

fn record(store: &Memory, key: &str, record: &impl Record) {
    let write = Transaction {
        success: vec![put(key, record)],
        ..Transaction::default()
    };
    store.transact(&write).unwrap();
}

fn list(store: &Memory) -> Listing {
    store.range(&Range::Prefix(String::new())).unwrap()
}

fn seen(store: &Memory) -> Picture {
    picture(&list(store)).unwrap()
}

fn shard(node: &str, term: u64) -> ShardRecord {
    ShardRecord {
        v: VERSION,
        term,
        primary: Incarnation {
            node: node.into(),
            incarnation: format!("{node}-{term}"),
        },
        candidates: Vec::new(),
        replicas: Vec::new(),
    }
}

/// Shards a, b and c, whose primaries have their names; a has all slots.
fn store() -> Memory {
    let store = Memory::new();
    let meta = Meta {
        v: VERSION,
        cluster: "c".into(),
        format: FORMAT,
    };
    record(&store, META_KEY, &meta);
    for name in ["a", "b", "c"] {
        let node = NodeRecord {
            v: VERSION,
            joined: true,
            ..NodeRecord::default()
        };
        record(&store, &format!("{NODES}{name}"), &node);
        record(&store, &format!("{SHARDS}{name}"), &shard(name, 1));
    }
    let map = Map {
        v: VERSION,
        runs: vec![(0, 16383, "a".into())],
    };
    record(&store, MAP_KEY, &map);
    store
}

fn begun(store: &Memory, slots: RangeInclusive<u16>, to: &str, id: &str) -> Result<bool, String> {
    let wanted = [(vec![slots], to.to_owned())];
    let transaction = begin(&list(store), "a", &wanted, &[id.to_owned()])?;
    Ok(store.transact(&transaction).unwrap().succeeded)
}

fn done(store: &Memory, next: Next) -> bool {
    match next {
        Next::Transaction(transaction) => store.transact(&transaction).unwrap().succeeded,
        Next::Done | Next::Aborted(_) => false,
    }
}

#[test]
fn slots_are_flipped_whole_and_the_move_is_forgotten() {
    let store = store();
    assert_eq!(begun(&store, 0..=9, "b", "m"), Ok(true));
    let copying = seen(&store);
    assert!(copying.is_staged("b", 5) && !copying.is_staged("a", 5));
    assert_eq!(copying.owners().of_slot(5), Some("a"));
    assert!(clean(&list(&store), "m").is_none(), "it goes on");
    assert!(done(&store, flip(&list(&store), "m")));
    let flipped = seen(&store);
    assert_eq!(flipped.owners().runs_of("b"), [0..=9]);
    assert!(!flipped.is_staged("b", 5));
    assert_eq!(flip(&list(&store), "m"), Next::Done);
    assert_eq!(abort(&list(&store), "m", "late"), Next::Done);
    let cleaned = clean(&list(&store), "m").unwrap();
    assert!(store.transact(&cleaned).unwrap().succeeded);
    assert!(seen(&store).moves.is_empty());
}

#[test]
fn a_move_that_cannot_be_is_refused_with_its_reason() {
    let store = store();
    assert_eq!(begun(&store, 0..=9, "b", "m"), Ok(true));
    for (slots, to, why) in [
        (9..=9, "c", "ERR slot 9 is being moved already"),
        (10..=10, "a", "ERR Target node can't be myself"),
        (10..=10, "x", "ERR Unknown node x"),
    ] {
        assert_eq!(begun(&store, slots, to, "n"), Err(why.into()));
    }
    assert!(done(&store, flip(&list(&store), "m")));
    let foreign = begun(&store, 9..=10, "c", "n");
    assert_eq!(foreign, Err("ERR I'm not the owner of hash slot 9".into()));
}

#[test]
fn a_flip_fails_if_either_side_has_another_primary() {
    for side in ["a", "b"] {
        let store = store();
        begun(&store, 0..=9, "b", "m").unwrap();
        let early = flip(&list(&store), "m");
        record(&store, &format!("{SHARDS}{side}"), &shard(side, 2));
        assert!(!done(&store, early), "it was planned before");
        let Next::Aborted(why) = flip(&list(&store), "m") else {
            panic!("a primary has changed");
        };
        assert_eq!(why, format!("the node {side} is not the primary any more"));
        assert!(done(&store, abort(&list(&store), "m", &why)));
        assert_eq!(seen(&store).owners().of_slot(0), Some("a"));
    }
}

#[test]
fn a_flip_without_an_answer_is_settled_by_an_abort() {
    for arrives_before in [false, true] {
        let store = store();
        begun(&store, 0..=9, "b", "m").unwrap();
        let lost = flip(&list(&store), "m");
        if arrives_before {
            assert!(done(&store, lost.clone()));
        }
        let settled = abort(&list(&store), "m", "no answer");
        let aborted = done(&store, settled.clone());
        assert_eq!(aborted, !arrives_before);
        assert_eq!(settled == Next::Done, arrives_before);
        assert!(!done(&store, lost), "it arrives late, or again");
        let owner = if arrives_before { "b" } else { "a" };
        assert_eq!(seen(&store).owners().of_slot(0), Some(owner));
    }
}

/// A source's part of a move: slots that it has ceased to serve, until it knows who owns them.
struct Source {
    id: String,
    slots: RangeInclusive<u16>,
    fenced: bool,
    /// A flip whose answer is lost, which may still arrive.
    lost: Option<Next>,
}

/// Many moves at once, with primaries that change and answers that are lost. Invariants: each slot has one owner; a slot that
/// was fenced ends served by exactly one, its owner; a move that was aborted has flipped nothing, one that is done all.
#[test]
fn moves_end_with_one_owner_each_whatever_happens() {
    for seed in 0..10 {
        let mut rng = fastrand::Rng::with_seed(seed);
        let store = store();
        let mut term = 1;
        let (mut sources, mut late): (Vec<Source>, Vec<Next>) = (Vec::new(), Vec::new());
        let mut expected = Owners::none();
        expected.give(0..=16383, Some("a"));
        for step in 0..100 {
            match rng.u8(..10) {
                0..=2 => {
                    let first = rng.u16(..16);
                    let slots = first..=(first + rng.u16(..4)).min(15);
                    let to = if rng.bool() { "b" } else { "c" };
                    let id = format!("{step}");
                    if begun(&store, slots.clone(), to, &id) == Ok(true) {
                        sources.push(Source {
                            id,
                            slots,
                            fenced: false,
                            lost: None,
                        });
                    }
                }
                3 => {
                    term += 1;
                    let name = rng.choice(["a", "b", "c"]).unwrap();
                    record(&store, &format!("{SHARDS}{name}"), &shard(name, term));
                }
                4 if !late.is_empty() => {
                    // Whoever sent it has settled the move: it must have no effect.
                    let next = late.swap_remove(rng.usize(..late.len()));
                    assert!(!done(&store, next), "seed {seed}, step {step}");
                }
                _ if sources.is_empty() => {}
                _ => {
                    let at = rng.usize(..sources.len());
                    let ended = advance(&store, &mut sources[at], &mut rng, &mut late);
                    if let Some(to) = ended {
                        let source = sources.swap_remove(at);
                        if let Some(to) = to {
                            expected.give(source.slots, Some(&to));
                        }
                    }
                }
            }
            let picture = seen(&store);
            for slot in 0..16 {
                let is_known = sources
                    .iter()
                    .all(|it| it.lost.is_none() || !it.slots.contains(&slot));
                if is_known {
                    assert_eq!(
                        picture.owners().of_slot(slot),
                        expected.of_slot(slot),
                        "seed {seed}, step {step}, slot {slot}"
                    );
                }
            }
        }
        while let Some(mut source) = sources.pop() {
            let mut next = None;
            while next.is_none() {
                next = advance(&store, &mut source, &mut rng, &mut late);
            }
            if let Some(Some(to)) = next {
                expected.give(source.slots, Some(&to));
            }
        }
        late.into_iter()
            .for_each(|next| assert!(!done(&store, next)));
        assert_eq!(
            seen(&store).owners().to_map(),
            expected.to_map(),
            "seed {seed}"
        );
    }
}

/// Does a source's next step. Returns the end of the move: the shard that has the slots now, or nobody new.
fn advance(
    store: &Memory,
    source: &mut Source,
    rng: &mut fastrand::Rng,
    late: &mut Vec<Next>,
) -> Option<Option<String>> {
    let to = |store: &Memory| {
        let moves = seen(store).moves;
        let found = moves.into_iter().find(|it| it.id == source.id);
        found.map(|it| it.to.shard)
    };
    if let Some(lost) = source.lost.take() {
        // Its answer is settled before anybody is served.
        let settled = abort(&list(store), &source.id, "no answer");
        late.push(lost);
        return match settled {
            Next::Done => Some(to(store)),
            Next::Aborted(_) => Some(None),
            next => {
                assert!(done(store, next));
                Some(None)
            }
        };
    }
    if !source.fenced {
        source.fenced = true;
        return None;
    }
    let next = flip(&list(store), &source.id);
    match next {
        Next::Done => panic!("nobody else flips it"),
        Next::Aborted(why) => {
            let aborted = abort(&list(store), &source.id, &why);
            assert!(done(store, aborted));
            Some(None)
        }
        next if rng.bool() => {
            // The answer is lost, and perhaps the transaction.
            if rng.bool() {
                done(store, next.clone());
            }
            source.lost = Some(next);
            None
        }
        next => match done(store, next) {
            true => Some(to(store)),
            false => None,
        },
    }
}
