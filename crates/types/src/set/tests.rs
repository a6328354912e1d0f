//! Sets against an ordered set, the borders between encodings, and the algebra.

use super::*;
use std::collections::{BTreeMap, BTreeSet};
use std::ops::ControlFlow;

type Model = BTreeSet<Vec<u8>>;

fn contents(set: &Set) -> Model {
    let mut model = Model::new();
    for member in set.iter() {
        assert!(model.insert(member.to_vec()), "a member was shown twice");
    }
    model
}

fn small_limits(seed: u64) -> Limits {
    Limits {
        set_max_intset_entries: [0, 3, 20, 512][seed as usize % 4],
        set_max_listpack_entries: [0, 5, 30, 128, 1000][seed as usize % 5],
        set_max_listpack_value: [0, 4, 64][seed as usize % 3],
        ..Limits::default()
    }
}

fn any_member(random: &mut fastrand::Rng, texts: bool) -> Vec<u8> {
    match random.u8(..if texts { 6 } else { 3 }) {
        0..=1 => random.i64(-60..60).to_string().into_bytes(),
        2 => random
            .i64(..)
            .wrapping_shr(random.u32(..64))
            .to_string()
            .into_bytes(),
        3 => vec![b'x'; random.usize(..80)],
        _ => format!("m{}", random.u8(..80)).into_bytes(),
    }
}

fn scanned(set: &Set, count: usize) -> Model {
    let mut model = Model::new();
    let mut cursor = 0;
    loop {
        cursor = set.scan(cursor, count, |member| {
            model.insert(member.to_vec());
        });
        if cursor == 0 {
            return model;
        }
    }
}

#[test]
fn random_changes_agree_with_an_ordered_set() {
    for seed in 0..60 {
        let mut random = fastrand::Rng::with_seed(seed);
        let limits = small_limits(seed);
        let mut set = Set::new();
        let mut model = Model::new();
        for step in 0..600 {
            let texts = step > 300 * (seed as usize % 3);
            let member = any_member(&mut random, texts);
            match random.u8(..10) {
                0..=3 => assert_eq!(set.add(&member, &limits), model.insert(member)),
                4 => {
                    let all: Vec<_> = (0..random.usize(..12))
                        .map(|_| any_member(&mut random, texts))
                        .collect();
                    let before = model.len();
                    let added = set.add_all(all.iter().map(Vec::as_slice), &limits);
                    model.extend(all);
                    assert_eq!(added, model.len() - before);
                }
                5..=6 => assert_eq!(set.remove(&member), model.remove(&member)),
                7 => {
                    let count = match random.u8(..8) {
                        0 => random.usize(..model.len() + 2),
                        _ => random.usize(..3),
                    };
                    let before = model.len();
                    set.pop(count, &limits, &mut || random.u64(..), |member| {
                        assert!(model.remove(&member.to_vec()));
                    });
                    assert_eq!(before - model.len(), count.min(before));
                }
                _ => {
                    assert_eq!(set.contains(&member), model.contains(&member));
                    let element = Element::Bytes(&member);
                    assert_eq!(set.contains_element(element), model.contains(&member));
                    assert_eq!(
                        set.contains_element(element.canonical()),
                        model.contains(&member)
                    );
                }
            }
            assert_eq!(set.len(), model.len());
            if step % 50 == 0 {
                assert_eq!(contents(&set), model);
                assert_eq!(contents(&set.clone()), model);
                assert_eq!(set.clone().encoding(), set.encoding());
                assert_eq!(scanned(&set, 1 + step % 20), model);
                choose(&mut random, &set, &model);
            }
        }
    }
}

fn choose(random: &mut fastrand::Rng, set: &Set, model: &Model) {
    let mut words = || random.u64(..);
    match set.random_member(&mut words) {
        Some(member) => assert!(model.contains(&member.to_vec())),
        None => assert!(model.is_empty()),
    }
    for count in [0, 1, 3, model.len() / 2, model.len(), model.len() + 5] {
        let mut seen = Model::new();
        set.random_distinct_members(count, &mut words, |member| {
            assert!(seen.insert(member.to_vec()));
        });
        assert!(seen.is_subset(model));
        assert_eq!(seen.len(), count.min(model.len()));
        let mut shown = 0;
        set.random_members(count, &mut words, |member| {
            assert!(model.contains(&member.to_vec()));
            shown += 1;
        });
        assert_eq!(shown, if model.is_empty() { 0 } else { count });
    }
}

fn set_of<'a>(members: impl IntoIterator<Item = &'a str>, limits: &Limits) -> Set {
    let mut set = Set::new();
    for member in members {
        set.add(member.as_bytes(), limits);
    }
    set
}

#[test]
fn a_set_takes_the_form_that_its_members_ask_for() {
    let limits = Limits::default();
    let numbers: Vec<String> = (0..=512).map(|i| i.to_string()).collect();
    let numbers = |count| numbers[..count].iter().map(String::as_str);
    let long = "x".repeat(65);
    assert_eq!(set_of(numbers(512), &limits).encoding(), "intset");
    assert_eq!(set_of(numbers(513), &limits).encoding(), "hashtable");
    assert_eq!(
        set_of(numbers(127).chain(["a"]), &limits).encoding(),
        "listpack"
    );
    assert_eq!(
        set_of(numbers(128).chain(["a"]), &limits).encoding(),
        "hashtable"
    );
    assert_eq!(
        set_of(["a"].into_iter().chain(numbers(127)), &limits).encoding(),
        "listpack"
    );
    assert_eq!(
        set_of(["a"].into_iter().chain(numbers(128)), &limits).encoding(),
        "hashtable"
    );
    assert_eq!(set_of([&long[..64]], &limits).encoding(), "listpack");
    assert_eq!(set_of([&long[..]], &limits).encoding(), "hashtable");
    assert_eq!(set_of(["1", &long], &limits).encoding(), "hashtable");
    assert_eq!(set_of(["01"], &limits).encoding(), "listpack");
}

#[test]
fn popping_nearly_everything_packs_what_is_left() {
    let limits = Limits::default();
    let mut set = Set::new();
    for i in 0..1000 {
        set.add(format!("m{i}").as_bytes(), &limits);
    }
    let mut rng = fastrand::Rng::with_seed(6);
    let mut random = || rng.u64(..);
    set.pop(700, &limits, &mut random, |_| {});
    assert_eq!((set.encoding(), set.len()), ("hashtable", 300));
    set.pop(290, &limits, &mut random, |_| {});
    assert_eq!((set.encoding(), set.len()), ("listpack", 10));
}

fn shown_once(visit: impl FnOnce(&mut dyn FnMut(Element<'_>))) -> Model {
    let mut model = Model::new();
    visit(&mut |member| assert!(model.insert(member.to_vec()), "a member was shown twice"));
    model
}

#[test]
fn the_algebra_agrees_with_counting() {
    for seed in 0..600 {
        let mut random = fastrand::Rng::with_seed(seed);
        let limits = small_limits(seed);
        let count = random.usize(1..8);
        let models: Vec<Model> = (0..count)
            .map(|_| {
                let texts = random.bool();
                let len = [3, 30, 200][random.usize(..3)];
                (0..random.usize(..len))
                    .map(|_| any_member(&mut random, texts))
                    .collect()
            })
            .collect();
        let sets: Vec<Set> = models
            .iter()
            .map(|model| {
                let mut set = Set::new();
                // Forms that the limits would not give by themselves come up, too.
                let limits = small_limits(random.u64(..));
                set.add_all(model.iter().map(Vec::as_slice), &limits);
                set
            })
            .collect();
        let mut sets: Vec<&Set> = sets.iter().collect();
        if random.u8(..4) == 0 {
            sets.push(sets[0]);
        }
        let mut counts = BTreeMap::new();
        for set in &sets {
            contents(set)
                .into_iter()
                .for_each(|member| *counts.entry(member).or_insert(0) += 1);
        }

        let all: Model = counts.keys().cloned().collect();
        assert_eq!(shown_once(|visit| algebra::visit_union(&sets, visit)), all);
        assert_eq!(contents(&algebra::union(&sets, &limits)), all);

        let common: Model = all
            .iter()
            .filter(|&m| counts[m] == sets.len())
            .cloned()
            .collect();
        let shown = shown_once(|visit| {
            algebra::visit_intersection(&sets, |member| {
                visit(member);
                ControlFlow::Continue(())
            });
        });
        assert_eq!(shown, common);
        assert_eq!(contents(&algebra::intersection(&sets, &limits)), common);

        let (first, others) = (sets[0], &sets[1..]);
        let own: Model = contents(first)
            .into_iter()
            .filter(|m| counts[m] == 1)
            .collect();
        assert_eq!(
            shown_once(|visit| algebra::visit_difference(first, others, visit)),
            own
        );
        assert_eq!(contents(&algebra::difference(first, others, &limits)), own);
    }
}

#[test]
fn a_large_result_is_as_if_its_members_had_been_added_one_by_one() {
    let limits = Limits::default();
    for (members, more) in [
        (600, 0),
        (600, 700),
        (1_000, 10),
        (400, 9),
        (130, 20),
        (100, 20),
    ] {
        for prefix in ["", "e"] {
            let of = |range: std::ops::Range<usize>| {
                let mut set = Set::new();
                for n in range {
                    set.add(format!("{prefix}{n}").as_bytes(), &limits);
                }
                set
            };
            let (first, second) = (of(0..members), of(members / 2..members + more));
            let equal = |result: Set, expected: Set| {
                assert_eq!(contents(&result), contents(&expected));
                assert_eq!(
                    result.encoding(),
                    expected.encoding(),
                    "{members} {more} {prefix}"
                );
                assert!(result.heap_bytes() <= expected.heap_bytes() / 10 * 11);
            };
            let union = algebra::union(&[&first, &second], &limits);
            equal(union, of(0..members + more));
            let common = algebra::intersection(&[&first, &second], &limits);
            equal(common, of(members / 2..members));
            let own = algebra::difference(&first, &[&second], &limits);
            equal(own, of(0..members / 2));
        }
    }
}

#[test]
fn an_intersection_stops_when_told() {
    let limits = Limits::default();
    let set = set_of(["a", "b", "c"], &limits);
    let mut shown = 0;
    algebra::visit_intersection(&[&set, &set.clone()], |_| {
        shown += 1;
        if shown == 2 {
            ControlFlow::Break(())
        } else {
            ControlFlow::Continue(())
        }
    });
    assert_eq!(shown, 2);
}

#[test]
fn a_missing_set_does_not_change_the_way_of_a_difference() {
    let limits = Limits {
        set_max_intset_entries: 10,
        ..Limits::default()
    };
    let ints = |end: u32| {
        let texts: Vec<String> = (0..end).map(|i| i.to_string()).collect();
        set_of(texts.iter().map(String::as_str), &limits)
    };
    let (first, other, missing) = (ints(12), ints(9), Set::new());
    // By way of a copy of the first, the result would keep the encoding of that.
    let result = algebra::difference(&first, &[&other, &missing, &missing], &limits);
    assert_eq!((result.encoding(), result.len()), ("intset", 3));
}

#[test]
fn integers_that_are_there_already_made_a_table_of_an_intset() {
    let mut set = set_of(["1", "2", "4", "7"], &Limits::default());
    let fewer = Limits {
        set_max_intset_entries: 3,
        ..Limits::default()
    };
    assert_eq!(set.add_all([&b"1"[..], b"7"].into_iter(), &fewer), 0);
    assert_eq!(set.encoding(), "intset");
    assert!(set.add(b"3", &fewer));
    assert_eq!(set.encoding(), "hashtable");
}

/// Also one that loses nearly all members, or all, which a set that is not frozen answers by another form.
#[test]
fn a_frozen_set_is_given_as_it_was_whatever_changes_between_the_pieces() {
    for seed in 0..8 {
        let mut random = fastrand::Rng::with_seed(seed);
        let limits = Limits::default();
        let mut set = Set::for_loose(2_000, &limits);
        for round in 0..8 {
            for _ in 0..random.usize(1..4_000) {
                set.add(format!("m{}", random.u32(..5_000)).as_bytes(), &limits);
            }
            if !set.can_freeze() {
                set = Set::for_loose(2_000, &limits);
                continue;
            }
            let mut expected: Vec<_> = set.iter().map(Element::to_vec).collect();
            let id = FreezeId::new(round + 1).unwrap();
            set.freeze(id);
            let mut given = Vec::new();
            while !set.give_piece(&mut |member| given.push(member.to_vec())) {
                let member = format!("m{}", random.u32(..5_000)).into_bytes();
                let count = match random.u16(..400) {
                    0 => set.len(),
                    1 => set.len() - set.len() / 50,
                    _ => random.usize(..3),
                };
                match random.u8(..3) {
                    0 => assert!(set.add(&member, &limits) || set.len() > 0),
                    1 => assert_eq!(set.contains(&member), set.remove(&member)),
                    _ => {
                        let (len, mut popped) = (set.len(), 0);
                        set.pop(count, &limits, &mut || random.u64(..), |_| popped += 1);
                        assert_eq!((popped, set.len()), (count.min(len), len - popped));
                    }
                }
                assert_eq!(set.freeze_id(), Some(id));
            }
            given.sort();
            expected.sort();
            assert!(given == expected, "seed {seed}, round {round}");
        }
    }
}
