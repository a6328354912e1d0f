//! Tests of both maps against std's collections, through splits and merges.

use super::*;
use std::collections::{HashMap, HashSet};
use std::rc::Rc;

const fn steps(n: usize) -> usize {
    if cfg!(miri) { n / 200 } else { n }
}

fn key(n: usize) -> Vec<u8> {
    // Keys of many lengths, the empty one among them.
    if n == 0 {
        Vec::new()
    } else {
        format!("{n}:{}", "x".repeat(n % 23)).into_bytes()
    }
}

/// Asserts that indexes are in their positions, hold the elements that belong there, and that the accounts are right.
fn check<P: Payload>(core: &Core<P>) {
    let mut len = 0;
    let mut bytes = 0;
    let mut position = 0;
    while position < core.subs.len() {
        let depth = u32::from(core.depths[position]);
        let width = 1 << (core.depth - depth);
        assert_eq!(position % width, 0);
        for other in position + 1..position + width {
            assert_eq!(core.subs[other].table_bytes(), 0);
            assert_eq!(u32::from(core.depths[other]), depth);
        }
        let index = &core.subs[position];
        len += index.len();
        bytes += index.table_bytes();
        index.for_each(|at| {
            let element = Element::<P>(at.cast());
            let hash = hash(core.key(element));
            assert_eq!(core.sub_of(hash), (position, depth));
            assert_eq!(stored_hash(element), hash & !LEN_MASK);
            bytes += element_bytes::<P>(
                core.key(element).len(),
                core.payload(element).bytes_behind_key(),
            );
        });
        position += width;
    }
    assert_eq!((len, bytes), (core.len, core.bytes));
    assert!(
        core.depth == 0
            || core
                .depths
                .iter()
                .any(|&depth| u32::from(depth) == core.depth)
    );
}

#[test]
fn a_dict_equals_a_map_through_growth_and_shrinking() {
    let mut rng = fastrand::Rng::with_seed(1);
    let mut dict: Dict<u64> = Dict::new();
    let mut model: HashMap<Vec<u8>, u64> = HashMap::new();
    let universe = steps(20_000);
    for step in 0..steps(120_000) {
        let key = key(rng.usize(..universe));
        let growing = (step / steps(30_000)).is_multiple_of(2);
        if step % 97 == 0 {
            // More than it takes at once, there and not there; a hint, after which all is as before.
            let keys: Vec<_> = (0..100).map(|n| self::key(step + n)).collect();
            dict.look_ahead(keys.iter().map(Vec::as_slice));
        }
        match rng.u32(..10) {
            0..5 if growing => assert_eq!(
                dict.insert(&key, step as u64),
                model.insert(key, step as u64)
            ),
            0..6 => assert_eq!(dict.remove(&key), model.remove(&key)),
            6 => {
                let (value, is_new) = dict.get_or_insert_with(&key, || 7);
                assert_eq!(is_new, !model.contains_key(&key));
                *value += 1;
                *model.entry(key).or_insert(7) += 1;
            }
            7 => {
                if let Some(value) = dict.get_mut(&key) {
                    *value ^= 1;
                }
                model.entry(key).and_modify(|value| *value ^= 1);
            }
            8 => assert_eq!(
                dict.get_key_value(&key),
                model.get_key_value(&key).map(|(k, v)| (&**k, v))
            ),
            _ => assert_eq!(dict.contains(&key), model.contains_key(&key)),
        }
        assert_eq!(dict.len(), model.len());
        if step % 5_000 == 0 {
            check(&dict.0);
        }
    }
    check(&dict.0);
    assert!(cfg!(miri) || dict.0.depth > 2);
    let mut all: HashMap<Vec<u8>, u64> = dict
        .iter()
        .map(|(key, value)| (key.to_vec(), *value))
        .collect();
    assert_eq!(all, model);
    let mut rng_fn = || rng.u64(..);
    for _ in 0..all.len() - all.len() / 10 {
        let (key, value) = dict.pop_random(&mut rng_fn).expect("not empty");
        assert_eq!(all.remove(&*key), Some(value));
    }
    check(&dict.0);
    dict.drain(|key, value| assert_eq!(all.remove(key), Some(value)));
    assert!(all.is_empty() && dict.is_empty());
    assert_eq!(dict.heap_bytes(), 0);
}

#[test]
fn a_bytes_dict_equals_a_map() {
    let mut rng = fastrand::Rng::with_seed(2);
    let mut dict = BytesDict::new();
    let mut model: HashMap<Vec<u8>, Vec<u8>> = HashMap::new();
    for step in 0..steps(60_000) {
        let key = key(rng.usize(..steps(5_000)));
        match rng.u32(..6) {
            0..3 => {
                let value = vec![step as u8; rng.usize(..60)];
                assert_eq!(
                    dict.insert(&key, &value),
                    model.insert(key, value).is_none()
                );
            }
            3 => assert_eq!(dict.remove(&key), model.remove(&key).is_some()),
            4 => assert_eq!(dict.get(&key), model.get(&key).map(|value| &**value)),
            _ => assert_eq!(dict.contains(&key), model.contains_key(&key)),
        }
        if step % 5_000 == 0 {
            check(&dict.0);
        }
    }
    check(&dict.0);
    assert_eq!(dict.len(), model.len());
    let all: HashMap<Vec<u8>, Vec<u8>> =
        dict.iter().map(|(k, v)| (k.to_vec(), v.to_vec())).collect();
    assert_eq!(all, model);
    let mut rng_fn = || rng.u64(..);
    while let Some((key, value)) = dict.pop_random(&mut rng_fn) {
        assert_eq!(model.remove(&*key).as_deref(), Some(&*value));
    }
    assert!(model.is_empty());
    assert_eq!(dict.heap_bytes(), 0);
}

#[test]
fn a_scan_gives_every_lasting_element_while_the_dict_splits_and_merges() {
    let mut rng = fastrand::Rng::with_seed(3);
    for round in 0..steps(16).max(2) {
        let mut dict: Dict<usize> = Dict::new();
        let lasting = rng.usize(1..steps(4_000));
        let mut passing = lasting + rng.usize(..steps(20_000));
        (0..passing).for_each(|n| assert!(dict.insert(&key(n), n).is_none()));
        let mut seen: HashSet<usize> = HashSet::new();
        let mut cursor = 0;
        let mut calls = 0;
        loop {
            cursor = dict.scan(cursor, &mut |_, &n| {
                seen.insert(n);
            });
            assert!(cursor < 1 << 53);
            calls += 1;
            assert!(calls < 1_000_000, "a scan ends");
            if cursor == 0 {
                break;
            }
            if calls % 20 == 0 {
                let many = rng.usize(..steps(2_000));
                for _ in 0..many {
                    if (round + calls / 500) % 2 == 0 {
                        dict.insert(&key(passing), passing);
                        passing += 1;
                    } else if passing > lasting {
                        passing -= 1;
                        dict.remove(&key(passing));
                    }
                }
            }
        }
        assert!((0..lasting).all(|n| seen.contains(&n)), "round {round}");
    }
}

#[test]
fn a_scan_of_a_dict_at_rest_gives_each_element_once_and_takes_any_cursor() {
    let mut dict: Dict<usize> = Dict::new();
    let n = steps(10_000);
    (0..n).for_each(|i| assert!(dict.insert(&key(i), i).is_none()));
    let mut seen = vec![0; n];
    let mut cursor = 0;
    loop {
        cursor = dict.scan(cursor, &mut |_, &i| seen[i] += 1);
        if cursor == 0 {
            break;
        }
    }
    assert!(seen.iter().all(|&times| times == 1));
    let mut rng = fastrand::Rng::with_seed(4);
    for cursor in [u64::MAX, 1 << 34, (1 << 34) - 1, 1 << 53, 1]
        .into_iter()
        .chain((0..1_000).map(|_| rng.u64(..1 << 34)))
    {
        let next = dict.scan(cursor, &mut |_, _| ());
        assert!(next == 0 || next > cursor);
    }
    assert_eq!(Dict::<()>::new().scan(5, &mut |_, _| panic!("empty")), 0);
}

#[test]
fn random_elements_are_about_equally_likely() {
    let mut rng = fastrand::Rng::with_seed(5);
    for n in [2, 50, if cfg!(miri) { 60 } else { 3_000 }] {
        let mut dict: Dict<usize> = Dict::new();
        (0..n).for_each(|i| assert!(dict.insert(&key(i), i).is_none()));
        let draws = steps(n * 200);
        let mut counts = vec![0_usize; n];
        for _ in 0..draws {
            counts[*dict.random(&mut || rng.u64(..)).expect("not empty").1] += 1;
        }
        if !cfg!(miri) {
            let (least, most) = (
                counts.iter().min().expect("some"),
                counts.iter().max().expect("some"),
            );
            assert!(*least > 120 && *most < 290, "{n}: {least} to {most}");
        }
    }
    assert!(Dict::<()>::new().random(&mut || 1).is_none());
}

#[test]
fn values_are_dropped_once() {
    let witness = Rc::new(());
    let mut dict: Dict<Rc<()>> = Dict::new();
    let n = steps(5_000);
    for i in 0..n {
        dict.insert(&key(i), witness.clone());
    }
    assert_eq!(Rc::strong_count(&witness), n + 1);
    drop(dict.insert(&key(0), witness.clone()));
    drop(dict.remove(&key(1)));
    assert_eq!(Rc::strong_count(&witness), n);
    let mut half = 0;
    dict.drain(|_, value| {
        half += 1;
        if half % 2 == 0 {
            std::mem::forget(value);
        }
    });
    assert_eq!(Rc::strong_count(&witness), 1 + (n - 1) / 2);
    dict.insert(b"a", witness.clone());
    dict.clear();
    dict.insert(b"a", witness.clone());
    drop(dict);
    assert_eq!(Rc::strong_count(&witness), 1 + (n - 1) / 2);
}

#[test]
fn maps_may_go_to_another_thread() {
    let mut dict: Dict<Box<[u8]>> = Dict::new();
    (0..steps(3_000)).for_each(|i| assert!(dict.insert(&key(i), key(i).into()).is_none()));
    let dict = std::thread::spawn(move || {
        assert!(dict.iter().all(|(key, value)| *key == **value));
        dict
    });
    let dict = dict.join().expect("no panic");
    std::thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| assert!((0..steps(3_000)).all(|i| dict.contains(&key(i)))));
        }
    });
}

#[test]
fn a_value_of_no_size_costs_nothing() {
    let mut set: Dict<()> = Dict::new();
    set.insert(b"12345678", ());
    assert_eq!(element_bytes::<Alone<()>>(8, 0), 16);
    assert_eq!(element_bytes::<ValueLen>(10, 10), 32);
    assert_eq!(Core::<ValueLen>::KEY_AT, 12);
    assert!(set.heap_bytes() < 200);
}

#[test]
fn stamps_stand_beside_values() {
    let mut rng = fastrand::Rng::with_seed(5);
    let mut dict = BytesDict::new();
    let mut model: HashMap<Vec<u8>, (Vec<u8>, Option<u64>)> = HashMap::new();
    for step in 0..steps(60_000) {
        let key = key(rng.usize(..steps(4_000)));
        let value = vec![b'v'; rng.usize(..40)];
        match rng.u32(..4) {
            0 => {
                let is_new = dict.insert(&key, &value);
                assert_eq!(is_new, model.insert(key, (value, None)).is_none());
            }
            1 => {
                let stamp = rng.u64(..);
                let is_new = dict.insert_stamped(&key, &value, stamp);
                assert_eq!(is_new, model.insert(key, (value, Some(stamp))).is_none());
            }
            2 => assert_eq!(dict.remove(&key), model.remove(&key).is_some()),
            _ => {
                let found = dict
                    .get_stamped(&key)
                    .map(|(value, stamp)| (value.to_vec(), stamp));
                assert_eq!(found.as_ref(), model.get(&key));
                assert_eq!(dict.get(&key), model.get(&key).map(|(value, _)| &value[..]));
                let mut shown = Vec::new();
                dict.for_each_with_prefix(BytesDict::hash_prefix(&key), |name, value, stamp| {
                    shown.push((name.to_vec(), (value.to_vec(), stamp)));
                });
                assert_eq!(
                    shown.iter().find(|(name, _)| *name == key),
                    model
                        .get(&key)
                        .map(|found| (key.clone(), found.clone()))
                        .as_ref()
                );
                assert!(shown.len() <= 2, "a prefix of 32 bits names one key");
            }
        }
        if step % 4_000 == 0 {
            check(&dict.0);
            let all: HashMap<_, _> = dict
                .iter_stamped()
                .map(|(key, value, stamp)| (key.to_vec(), (value.to_vec(), stamp)))
                .collect();
            assert_eq!(all, model);
        }
    }
    let mut values = Vec::new();
    dict.drain(|_, value| values.push(value.to_vec()));
    assert!(values.iter().flatten().all(|byte| *byte == b'v'));
}

#[test]
fn a_copy_is_alike_and_stands_alone() {
    for n in [0, 1, 7, 900, steps(5_000)] {
        let mut dict = BytesDict::new();
        for i in 0..n {
            match i % 3 {
                0 => dict.insert_stamped(&key(i), &key(i + 1), i as u64),
                _ => dict.insert(&key(i), &key(i + 1)),
            };
        }
        // Uneven splits are copied, too.
        (0..n / 3).for_each(|i| assert!(dict.remove(&key(i))));
        let mut copy = dict.clone();
        check(&copy.0);
        let alike = |a: &BytesDict, b: &BytesDict| {
            a.len() == b.len()
                && a.iter_stamped()
                    .all(|(key, value, stamp)| b.get_stamped(key) == Some((value, stamp)))
        };
        assert!(alike(&dict, &copy));
        assert!(copy.heap_bytes() <= dict.heap_bytes().max(1));
        copy.insert(b"another", b"");
        copy.clear();
        assert_eq!(dict.len(), n - n / 3);
        check(&dict.0);
    }
}
