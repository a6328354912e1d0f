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
