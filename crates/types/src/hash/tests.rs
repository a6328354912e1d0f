//! Hashes against a map, and the borders between encodings.

use super::*;
use std::collections::{BTreeMap, HashSet};

type Model = BTreeMap<Vec<u8>, Vec<u8>>;

fn contents(hash: &Hash) -> Model {
    let mut model = Model::new();
    for (field, value) in hash.iter() {
        let twice = model.insert(field.to_vec(), value.to_vec());
        assert_eq!(twice, None, "a field was shown twice");
    }
    model
}

fn any_text(random: &mut fastrand::Rng, longest: usize) -> Vec<u8> {
    match random.u8(..4) {
        0 => random.i64(-50..50).to_string().into_bytes(),
        1 => vec![b'x'; random.usize(..=longest)],
        _ => format!("field:{}", random.u8(..60)).into_bytes(),
    }
}

fn scanned(hash: &Hash, count: usize) -> Model {
    let mut model = Model::new();
    let mut cursor = 0;
    loop {
        cursor = hash.scan(cursor, count, |field, value| {
            model.insert(field.to_vec(), value.to_vec());
        });
        assert!(cursor < 1 << 53);
        if cursor == 0 {
            return model;
        }
    }
}

#[test]
fn random_changes_agree_with_a_map() {
    for seed in 0..30 {
        let mut random = fastrand::Rng::with_seed(seed);
        let limits = Limits {
            hash_max_listpack_entries: [0, 1, 10, 40, 512][seed as usize % 5],
            hash_max_listpack_value: [0, 5, 64][seed as usize % 3],
            ..Limits::default()
        };
        let longest = if seed % 2 == 0 { 5 } else { 100 };
        let mut hash = Hash::new();
        let mut model = Model::new();
        for step in 0..1000 {
            let field = any_text(&mut random, longest);
            let value = any_text(&mut random, longest);
            match random.u8(..8) {
                0..=1 => {
                    let is_new = hash.set(&field, &value, &limits);
                    assert_eq!(is_new, model.insert(field, value).is_none());
                }
                2 => {
                    let is_new = hash.set_if_absent(&field, &value, &limits);
                    assert_eq!(is_new, !model.contains_key(&field));
                    model.entry(field).or_insert(value);
                }
                3 => {
                    let texts: Vec<_> = (0..2 * random.usize(..6))
                        .map(|_| any_text(&mut random, 9))
                        .collect();
                    let added = hash.set_all(texts.iter().map(Vec::as_slice), &limits);
                    let before = model.len();
                    for pair in texts.chunks(2) {
                        model.insert(pair[0].clone(), pair[1].clone());
                    }
                    assert_eq!(added, model.len() - before);
                }
                4..=5 => assert_eq!(hash.remove(&field), model.remove(&field).is_some()),
                _ => {
                    let value = hash.get(&field).map(Element::to_vec);
                    assert_eq!(value.as_ref(), model.get(&field));
                    assert_eq!(hash.contains(&field), value.is_some());
                }
            }
            assert_eq!(hash.len(), model.len());
            if step % 50 == 0 {
                assert_eq!(contents(&hash), model);
                assert_eq!(contents(&hash.clone()), model);
                assert_eq!(hash.clone().encoding(), hash.encoding());
                assert_eq!(scanned(&hash, 1 + step % 20), model);
                choose(&mut random, &hash, &model);
            }
        }
    }
}

fn choose(random: &mut fastrand::Rng, hash: &Hash, model: &Model) {
    let is_pair = |field: Element<'_>, value: Element<'_>| {
        model.get(&field.to_vec()) == Some(&value.to_vec())
    };
    let mut words = || random.u64(..);
    match hash.random_entry(&mut words) {
        Some((field, value)) => assert!(is_pair(field, value)),
        None => assert!(model.is_empty()),
    }
    for count in [0, 1, 3, model.len() / 2, model.len(), model.len() + 5] {
        let mut seen = HashSet::new();
        hash.random_distinct_entries(count, &mut words, |field, value| {
            assert!(is_pair(field, value));
            assert!(seen.insert(field.to_vec()));
        });
        assert_eq!(seen.len(), count.min(model.len()));
        let mut shown = 0;
        hash.random_entries(count, &mut words, |field, value| {
            assert!(is_pair(field, value));
            shown += 1;
        });
        assert_eq!(shown, if model.is_empty() { 0 } else { count });
    }
}

#[test]
fn a_hash_converts_above_its_limits_only() {
    let limits = Limits::default();
    let mut hash = Hash::new();
    for i in 0..limits.hash_max_listpack_entries {
        hash.set(i.to_string().as_bytes(), b"v", &limits);
    }
    assert_eq!(hash.encoding(), "listpack");
    let copy = hash.clone();
    hash.set(b"more", b"v", &limits);
    assert_eq!(hash.encoding(), "hashtable");
    hash.remove(b"more");
    assert_eq!(hash.encoding(), "hashtable");
    assert_eq!(contents(&hash), contents(&copy));

    let mut hash = Hash::new();
    hash.set(&[b'f'; 64], &[b'v'; 64], &limits);
    assert_eq!(hash.encoding(), "listpack");
    assert!(!hash.set_if_absent(&[b'f'; 64], &[b'v'; 65], &limits));
    assert_eq!(hash.encoding(), "listpack");
    hash.set(&[b'f'; 64], &[b'v'; 65], &limits);
    assert_eq!(hash.encoding(), "hashtable");
}

#[test]
fn every_field_is_about_equally_likely() {
    let mut rng = fastrand::Rng::with_seed(2);
    for len in [10, 600] {
        let mut hash = Hash::new();
        for i in 0..len {
            hash.set(format!("{i}").as_bytes(), b"", &Limits::default());
        }
        let mut counts = vec![0; len];
        hash.random_entries(100 * len, &mut || rng.u64(..), |field, _| {
            counts[field.to_i64().unwrap() as usize] += 1;
        });
        assert!(
            counts.iter().all(|&count| (30..250).contains(&count)),
            "{counts:?}"
        );
    }
}

type TimedModel = BTreeMap<Vec<u8>, (Vec<u8>, Option<i64>)>;

const NOW_MS: i64 = 1_700_000_000_000;

fn timed_contents(hash: &Hash) -> TimedModel {
    let fields = hash.iter_timed();
    fields
        .map(|(field, value, time)| (field.to_vec(), (value.to_vec(), time)))
        .collect()
}

/// Returns the fields and values of a model that have not expired at `now_ms`.
fn live_at(model: &TimedModel, now_ms: i64) -> Model {
    let is_live = |time: Option<i64>| time.is_none_or(|time| time >= now_ms);
    let live = model.iter().filter(|(_, (_, time))| is_live(*time));
    live.map(|(field, (value, _))| (field.clone(), value.clone()))
        .collect()
}

fn check_live(random: &mut fastrand::Rng, hash: &Hash, model: &TimedModel, now_ms: i64) {
    let (live, expected) = (hash.live(now_ms), live_at(model, now_ms));
    let shown: Model = live
        .iter()
        .map(|(field, value)| (field.to_vec(), value.to_vec()))
        .collect();
    assert_eq!(shown, expected);
    assert_eq!(live.count(), expected.len());
    let mut scanned = Model::new();
    let mut cursor = 0;
    loop {
        cursor = live.scan(cursor, 7, |field, value| {
            scanned.insert(field.to_vec(), value.to_vec());
        });
        if cursor == 0 {
            break;
        }
    }
    assert_eq!(scanned, expected);
    let mut words = || random.u64(..);
    let is_pair = |field: Element<'_>, value: Element<'_>| {
        expected.get(&field.to_vec()) == Some(&value.to_vec())
    };
    match live.random_entry(&mut words) {
        Some((field, value)) => assert!(is_pair(field, value)),
        None => assert!(expected.is_empty()),
    }
    let mut seen = HashSet::new();
    live.random_distinct_entries(5, &mut words, |field, value| {
        assert!(is_pair(field, value) && seen.insert(field.to_vec()));
    });
    assert_eq!(seen.len(), expected.len().min(5));
    let mut picks = 0;
    live.random_entries(9, &mut words, |field, value| {
        assert!(is_pair(field, value));
        picks += 1;
    });
    assert_eq!(picks, if expected.is_empty() { 0 } else { 9 });
}

#[test]
fn fields_that_expire_agree_with_a_map() {
    for seed in 0..24 {
        let mut random = fastrand::Rng::with_seed(seed);
        let limits = Limits {
            hash_max_listpack_entries: [0, 10, 60, 512][seed as usize % 4],
            ..Limits::default()
        };
        let mut now_ms = NOW_MS;
        let mut hash = Hash::new();
        let mut model = TimedModel::new();
        for step in 0..1500 {
            let field = any_text(&mut random, 9);
            let value = any_text(&mut random, 9);
            // Many at the same time, some far off, some beyond the range of marks.
            let at = now_ms + [1, 40, 300, 5_000, 1 << 42][random.usize(..5)];
            match random.u8(..9) {
                0 => {
                    let is_new = hash.set(&field, &value, &limits);
                    assert_eq!(is_new, model.insert(field, (value, None)).is_none());
                }
                1 => {
                    let is_new = hash.set_keeping_expiry(&field, &value, &limits);
                    assert_eq!(is_new, !model.contains_key(&field));
                    model.entry(field).or_default().0 = value;
                }
                2..=4 => {
                    let at = (random.u8(..4) > 0).then_some(at);
                    let found = hash.set_expire_at_ms(&field, at);
                    assert_eq!(found, model.contains_key(&field));
                    if let Some(entry) = model.get_mut(&field) {
                        entry.1 = at;
                    }
                }
                5 => assert_eq!(hash.remove(&field), model.remove(&field).is_some()),
                6 => {
                    let found = hash.live(now_ms).get_timed(&field);
                    let found = found.map(|(value, time)| (value.to_vec(), time));
                    let expected = model.get(&field).cloned();
                    assert_eq!(
                        found,
                        expected.filter(|(_, time)| time.is_none_or(|time| time >= now_ms))
                    );
                }
                7 => now_ms += random.i64(0..200),
                _ => {
                    let max = random.usize(..8);
                    let mut gone = 0;
                    let removed = hash.remove_due(now_ms, max, &mut |_| gone += 1);
                    assert_eq!(gone, removed);
                    assert!(removed <= max);
                    let before = model.len();
                    let left = timed_contents(&hash);
                    model.retain(|field, (_, time)| {
                        left.contains_key(field) || time.is_none_or(|time| time >= now_ms)
                    });
                    assert_eq!(before - model.len(), removed, "only what was due is gone");
                }
            }
            assert_eq!(hash.len(), model.len());
            let earliest = model.values().filter_map(|(_, time)| *time).min();
            match (hash.earliest_expiry_ms(), earliest) {
                (None, None) => {}
                (Some(told), Some(earliest)) => assert!(
                    told <= earliest && earliest - told.max(NOW_MS) < 1 << 42,
                    "{told} {earliest}"
                ),
                different => panic!("{different:?}"),
            }
            if step % 50 == 0 {
                assert_eq!(timed_contents(&hash), model);
                assert_eq!(timed_contents(&hash.clone()), model);
                assert_eq!(hash.clone().encoding(), hash.encoding());
                check_live(&mut random, &hash, &model, now_ms);
            }
        }
        // All due fields are removed in the end, and no others.
        now_ms += 10_000;
        while hash.remove_due(now_ms, 3, &mut |_| ()) > 0 {}
        let left: Model = live_at(&model, now_ms);
        assert_eq!(contents(&hash), left);
    }
}

#[test]
fn encodings_of_hashes_with_fields_that_expire() {
    let limits = Limits::default();
    let mut hash = Hash::new();
    for field in [b"a", b"b", b"c", b"d"] {
        hash.set(field, b"1", &limits);
    }
    assert!(!hash.set_expire_at_ms(b"x", Some(NOW_MS)));
    assert_eq!(hash.encoding(), "listpack", "no field, no change");
    hash.set_expire_at_ms(b"c", Some(NOW_MS + 2));
    hash.set_expire_at_ms(b"b", Some(NOW_MS + 1));
    hash.set_expire_at_ms(b"d", Some(NOW_MS + 2));
    let order: Vec<_> = hash.iter().map(|(field, _)| field.to_vec()).collect();
    assert_eq!(order, [b"b", b"c", b"d", b"a"], "by time, then by arrival");
    for field in [b"b", b"c", b"d"] {
        hash.set_expire_at_ms(field, None);
    }
    assert_eq!(hash.encoding(), "listpackex");
    assert_eq!(hash.earliest_expiry_ms(), None);
    hash.set_expire_at_ms(b"a", Some(NOW_MS));
    hash.set(b"long", &[b'v'; 65], &limits);
    assert_eq!(hash.encoding(), "hashtable");
    assert_eq!(
        hash.get_timed(b"a"),
        Some((Element::Bytes(b"1"), Some(NOW_MS)))
    );
}

#[test]
fn a_field_that_expires_costs_24_bytes_at_most() {
    let limits = Limits::default();
    let mut hash = Hash::new();
    let fields = 20_000;
    for i in 0..fields {
        // Of all lengths: an allocation grows by 0 or 16 bytes, by 8 on average.
        let value = vec![b'v'; i as usize % 16];
        hash.set(format!("field:{i:08}").as_bytes(), &value, &limits);
    }
    let before = hash.heap_bytes();
    for i in 0..fields {
        let at = NOW_MS + i64::from(i);
        hash.set_expire_at_ms(format!("field:{i:08}").as_bytes(), Some(at));
    }
    let each = (hash.heap_bytes() - before) / fields as usize;
    assert!(each <= 24, "{each}");
    for i in 0..fields {
        hash.set_expire_at_ms(format!("field:{i:08}").as_bytes(), None);
    }
    assert_eq!(hash.heap_bytes(), before, "and nothing once none does");
}

/// Changes a large hash at random; `is_timed`: fields may get a time.
fn change_large(hash: &mut Hash, random: &mut fastrand::Rng, is_timed: bool) {
    let limits = Limits::default();
    let field = random.u32(..4_000).to_string().into_bytes();
    let value = random.u32(..).to_string().into_bytes();
    let time = 1_700_000_000_000 + random.i64(0..100_000);
    let _is_different = match random.u8(..20) {
        0..9 => hash.set(&field, &value, &limits),
        9..11 => hash.set_keeping_expiry(&field, &value, &limits),
        11..15 => hash.remove(&field),
        15..18 if is_timed => hash.set_expire_at_ms(&field, Some(time)),
        18 => hash.set_expire_at_ms(&field, None),
        _ => hash.remove_due(time, 3, &mut |_| ()) > 0,
    };
}

/// Fields get times and lose them, so the table changes its form under the freeze.
#[test]
fn a_frozen_hash_is_given_as_it_was_whatever_changes_between_the_pieces() {
    for seed in 0..8 {
        let mut random = fastrand::Rng::with_seed(seed);
        let mut hash = Hash::for_loose(2_000, &Limits::default());
        for round in 0..8 {
            let (is_timed, changes) = (random.bool(), random.usize(..6_000));
            (0..changes).for_each(|_| change_large(&mut hash, &mut random, is_timed));
            if random.bool() {
                let fields: Vec<_> = timed_contents(&hash).into_keys().collect();
                for field in fields {
                    hash.set_expire_at_ms(&field, None);
                }
            }
            let expected = timed_contents(&hash);
            assert!(hash.can_freeze());
            let id = FreezeId::new(round + 1).unwrap();
            hash.freeze(id);
            let pace = [0, 1, 9, 100][random.usize(..4)];
            let mut given = BTreeMap::new();
            while !hash.give_piece(&mut |field, value, time| {
                let twice = given.insert(field.to_vec(), (value.to_vec(), time));
                assert_eq!(twice, None, "given twice");
            }) {
                (0..pace).for_each(|_| change_large(&mut hash, &mut random, true));
                assert_eq!(hash.freeze_id(), Some(id));
            }
            assert!(given == expected, "seed {seed}, round {round}");
            assert_eq!(hash.freeze_id(), None);
        }
    }
}
