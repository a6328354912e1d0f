//! Tests of the index against std's collections, and of its two rules about spill marks after every step.

use super::*;
use std::collections::{HashMap, HashSet};
use std::sync::{Mutex, atomic::AtomicBool};

/// Fewer steps where every one is interpreted.
const fn steps(n: usize) -> usize {
    if cfg!(miri) { n / 200 } else { n }
}

fn index() -> Index {
    // SAFETY: the tests' indexes are used by one thread, but for methods that need no lock.
    unsafe { Index::new() }
}

/// Makes an entry without memory: the index never follows pointers.
fn entry(id: u64) -> NonNull<u8> {
    NonNull::new(std::ptr::without_provenance_mut((id as usize + 1) * 8)).expect("not null")
}

/// Returns a hash with these order bits and this tag.
fn hash_of(order_bits: u16, tag: u8) -> u64 {
    u64::from(order_bits) << 34 | u64::from(tag) << 26
}

/// Asserts the two rules of the spill mark, and that every entry can be found from its home.
fn check(index: &Index) {
    let layout = index.layout();
    let buckets = layout.buckets();
    let mut wanted = vec![false; buckets as usize];
    let mut count = 0;
    for at in 0..buckets {
        for word in layout.bucket(at).words() {
            count += 1;
            let mut on_path = home(word.order(), buckets);
            while on_path != at {
                wanted[on_path as usize] = true;
                on_path = layout.after(on_path);
            }
        }
    }
    assert_eq!(count, index.len());
    for at in 0..buckets {
        let bucket = layout.bucket(at);
        assert_eq!(
            bucket.is_spilled(),
            wanted[at as usize],
            "bucket {at} of {buckets}"
        );
        assert!(
            !wanted[at as usize] || bucket.free_place().is_none(),
            "bucket {at} is marked but not full"
        );
    }
}

#[test]
fn is_small_and_empty_when_zeroed() {
    assert_eq!(size_of::<Index>(), 16);
    // SAFETY: only this thread has them.
    let slots = unsafe { Index::slots(100) };
    for slot in &slots {
        assert_eq!((slot.len(), slot.table_bytes()), (0, 0));
        assert!(
            slot.find(7, |_| true).is_none()
                && slot.random(3).is_none()
                && slot.scan(0, |_| ()).is_none()
        );
        assert!(!slot.remove(7, entry(1)) && !slot.replace(7, entry(1), entry(2)));
        let mut sight = slot.prefetch_bucket(7);
        assert!(!slot.prefetch_entry(&mut sight, 7));
        assert!(!slot.prefetch_entry_beyond(&mut sight, 7, 1) && slot.recall(&sight).is_none());
    }
}

/// Random inserts, removes, replaces and looks, in waves up and down, beside a `HashMap`.
fn walk(seed: u64, size: usize, draw: impl Fn(&mut fastrand::Rng) -> u64) {
    let mut rng = fastrand::Rng::with_seed(seed);
    let index = index();
    let mut model: HashMap<u64, (u64, NonNull<u8>)> = HashMap::new();
    let mut ids: Vec<u64> = Vec::new();
    let mut next_id = 0;
    for step in 0..steps(20_000) {
        let growing = (step / size).is_multiple_of(2);
        match rng.u32(..10) {
            0..6 if growing => {
                let hash = draw(&mut rng);
                index.insert(hash, entry(next_id));
                model.insert(next_id, (hash, entry(next_id)));
                ids.push(next_id);
                next_id += 1;
            }
            0..7 if !ids.is_empty() => {
                let id = ids.swap_remove(rng.usize(..ids.len()));
                let (hash, entry) = model.remove(&id).expect("in the model");
                assert!(index.remove(hash, entry));
                assert!(!index.remove(hash, entry));
            }
            7 if !ids.is_empty() => {
                let slot = model
                    .get_mut(&ids[rng.usize(..ids.len())])
                    .expect("in the model");
                next_id += 1;
                let new = entry(next_id + (1 << 40));
                assert!(index.replace(slot.0, slot.1, new));
                slot.1 = new;
            }
            _ if !ids.is_empty() => {
                let (hash, entry) = model[&ids[rng.usize(..ids.len())]];
                assert_eq!(index.find(hash, |found| found == entry), Some(entry));
                let picked = index.random(rng.u64(..)).expect("not empty");
                assert!(model.values().any(|(_, entry)| *entry == picked));
            }
            _ => assert!(index.find(draw(&mut rng), |_| false).is_none()),
        }
        assert_eq!(index.len(), model.len());
        if step % 7 == 0 {
            check(&index);
        }
    }
    let mut all = HashSet::new();
    index.for_each(|entry| assert!(all.insert(entry)));
    assert_eq!(all, model.values().map(|(_, entry)| *entry).collect());
    let mut cleared = HashSet::new();
    index.clear(|entry| assert!(cleared.insert(entry)));
    assert_eq!(cleared, all);
    assert_eq!((index.len(), index.table_bytes()), (0, 0));
}

#[test]
fn equals_a_map_with_random_hashes() {
    walk(1, 1_000, |rng| rng.u64(..));
    walk(2, 40, |rng| rng.u64(..));
    walk(3, 5_000, |rng| rng.u64(..));
}

#[test]
fn equals_a_map_when_all_entries_want_the_last_buckets() {
    walk(4, 300, |rng| hash_of(0xfff0 | rng.u16(..16), rng.u8(..2)));
    walk(5, 60, |_| hash_of(0xffff, 1));
}

#[test]
fn equals_a_map_when_entries_crowd_in_few_homes() {
    walk(6, 700, |rng| {
        hash_of([0, 1, 0x7fff, 0x8000, 0xfffe][rng.usize(..5)], rng.u8(..))
    });
}

#[test]
fn a_full_bucket_of_equal_tags_is_searched_to_its_end() {
    let index = index();
    for id in 0..40 {
        index.insert(hash_of(0x4000, 9), entry(id));
    }
    for id in 0..40 {
        assert_eq!(
            index.find(hash_of(0x4000, 9), |found| found == entry(id)),
            Some(entry(id))
        );
    }
    assert!(
        index.find(hash_of(0x4000, 8), |_| true).is_none(),
        "another tag"
    );
    assert!(
        index.find(hash_of(0x4001, 9), |_| true).is_none(),
        "other order bits"
    );
}

#[test]
fn a_scan_gives_each_lasting_entry_exactly_once_while_others_come_and_go() {
    let mut rng = fastrand::Rng::with_seed(11);
    for round in 0..steps(200).max(3) {
        let index = index();
        let lasting: Vec<(u64, NonNull<u8>)> = (0..rng.u64(1..300))
            .map(|id| (rng.u64(..), entry(id)))
            .collect();
        lasting
            .iter()
            .for_each(|(hash, entry)| index.insert(*hash, *entry));
        let mut passing: Vec<(u64, NonNull<u8>)> = Vec::new();
        let mut seen: HashMap<NonNull<u8>, usize> = HashMap::new();
        let (mut from, mut next_id, mut calls) = (0, 1_000, 0);
        loop {
            let next = index.scan(from, |entry| *seen.entry(entry).or_default() += 1);
            for _ in 0..rng.u32(..30) {
                if (calls / 10 + round) % 2 == 0 {
                    passing.push((rng.u64(..), entry(next_id)));
                    next_id += 1;
                    let (hash, entry) = passing[passing.len() - 1];
                    index.insert(hash, entry);
                } else if let Some((hash, entry)) = passing.pop() {
                    assert!(index.remove(hash, entry));
                }
            }
            calls += 1;
            match next {
                Some(next) => {
                    assert!(next > from);
                    from = next;
                }
                None => break,
            }
        }
        for (_, entry) in &lasting {
            assert_eq!(seen.get(entry), Some(&1));
        }
        assert!(seen.values().all(|&times| times == 1));
    }
}

#[test]
fn a_scan_goes_by_order_bits() {
    let index = index();
    let mut rng = fastrand::Rng::with_seed(12);
    for id in 0..500 {
        index.insert(hash_of(id as u16 * 131, rng.u8(..)), entry(id));
    }
    let mut order_seen = Vec::new();
    let mut from = Some(0);
    while let Some(at) = from {
        let mut step: Vec<u16> = Vec::new();
        from = index.scan(at, |e| {
            step.push(((e.addr().get() / 8 - 1) as u16).wrapping_mul(131))
        });
        assert!(
            step.iter().all(
                |&bits| u32::from(bits) >= at && from.is_none_or(|next| u32::from(bits) < next)
            )
        );
        order_seen.extend(step);
    }
    assert_eq!(order_seen.len(), 500);
    assert_eq!(index.scan(1 << 16, |_| panic!("beyond the end")), None);
}

#[test]
fn random_choice_is_even() {
    let mut rng = fastrand::Rng::with_seed(13);
    for n in [1_u64, 3, 12, 13, 100] {
        let index = index();
        (0..n).for_each(|id| index.insert(rng.u64(..), entry(id)));
        let draws = steps(100_000) as u64;
        let mut counts: HashMap<NonNull<u8>, u64> = HashMap::new();
        for _ in 0..draws {
            *counts
                .entry(index.random(rng.u64(..)).expect("not empty"))
                .or_default() += 1;
        }
        if !cfg!(miri) {
            assert_eq!(counts.len() as u64, n);
            let fair = draws / n;
            assert!(
                counts
                    .values()
                    .all(|&count| count > fair * 3 / 4 && count < fair * 5 / 4 + 1),
                "{n}: {counts:?}"
            );
        }
    }
}

#[test]
fn fills_at_least_three_quarters_of_its_places_while_growing() {
    let index = index();
    let mut rng = fastrand::Rng::with_seed(15);
    for id in 0..steps(20_000) as u64 {
        index.insert(rng.u64(..), entry(id));
        if index.len() > 60 {
            let places = index.layout().buckets() as usize * ENTRIES;
            assert!(index.len() * 4 >= places * 3, "{} of {places}", index.len());
        }
    }
}

/// Looks for a hash without the lock.
fn seen(slot: &Index, hash: u64) -> Sight {
    let mut sight = slot.prefetch_bucket(hash);
    if slot.prefetch_entry(&mut sight, hash) {
        (1..3)
            .take_while(|&step| slot.prefetch_entry_beyond(&mut sight, hash, step))
            .for_each(drop);
    }
    sight
}

/// Asserts that a sight from before a change is recalled after it only if nothing has changed, and that a recalled
/// entry is there.
#[test]
fn what_was_seen_is_recalled_until_something_changes() {
    let (slot, mut rng) = (index(), fastrand::Rng::with_seed(21));
    let mut model: Vec<(u64, u64)> = Vec::new();
    let mut recalled = 0;
    for id in 0..steps(20_000) as u64 {
        let wanted = match model.len() {
            0 => (rng.u64(..), id),
            len => model[rng.usize(..len)],
        };
        let sight = seen(&slot, wanted.0);
        let there = slot.find(wanted.0, |found| found == entry(wanted.1));
        if let Some(found) = slot.recall(&sight) {
            assert_eq!(Some(found), there);
            recalled += 1;
        }
        let change = rng.u8(..8);
        match change {
            0..3 => {
                let hash = rng.u64(..);
                slot.insert(hash, entry(id + 1));
                model.push((hash, id + 1));
            }
            3..5 if !model.is_empty() => {
                let (hash, old) = model.swap_remove(rng.usize(..model.len()));
                assert!(slot.remove(hash, entry(old)));
            }
            5 if !model.is_empty() => {
                let at = rng.usize(..model.len());
                let (hash, old) = model[at];
                assert!(slot.replace(hash, entry(old), entry(id + 1)));
                model[at].1 = id + 1;
            }
            6 if id % 512 == 0 => {
                slot.clear(|_| ());
                model.clear();
            }
            _ => {
                assert_eq!(slot.recall(&sight), slot.recall(&seen(&slot, wanted.0)));
                continue;
            }
        }
        assert_eq!(slot.recall(&sight), None, "after change {change}");
    }
    assert!(recalled > steps(20_000) / 2, "{recalled}");
}

#[test]
fn others_look_beside_growth_and_shrinking_and_recall_nothing_stale() {
    let stop = AtomicBool::new(false);
    // SAFETY: a thread that changes or recalls has the slot's mutex; looking needs none.
    let slots = unsafe { Index::slots(8) };
    let locks: [Mutex<()>; 8] = Default::default();
    let lock = |hash: u64| locks[(hash % 8) as usize].lock().unwrap();
    // Few hashes, so that a searched one is often there.
    let hash_of = |id: u64| id.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    let ids = steps(5_000) as u64;
    std::thread::scope(|scope| {
        for seed in 0..2 {
            let (slots, stop, lock) = (&slots, &stop, &lock);
            scope.spawn(move || {
                let mut rng = fastrand::Rng::with_seed(seed);
                while !stop.load(Relaxed) {
                    let id = rng.u64(..ids);
                    let hash = hash_of(id);
                    let slot = &slots[(hash % 8) as usize];
                    let sight = seen(slot, hash);
                    let _held = lock(hash);
                    if let Some(found) = slot.recall(&sight) {
                        assert_eq!(slot.find(hash, |one| one == entry(id)), Some(found));
                    }
                }
            });
        }
        for round in 0..steps(50) as u64 {
            for id in 0..ids {
                let _held = lock(hash_of(id));
                slots[(hash_of(id) % 8) as usize].insert(hash_of(id), entry(id));
            }
            for id in (0..ids).filter(|id| (id + round) % 3 != 0) {
                let _held = lock(hash_of(id));
                assert!(slots[(hash_of(id) % 8) as usize].remove(hash_of(id), entry(id)));
            }
            for (number, slot) in slots.iter().enumerate() {
                let _held = lock(number as u64);
                slot.clear(|_| ());
            }
        }
        stop.store(true, Relaxed);
    });
}
