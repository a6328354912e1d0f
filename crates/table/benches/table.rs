//! Benchmark of the table and the heap, in nanoseconds and bytes: `cargo bench -p redline-table [word...]`.
//!
//! No locks, no sockets, one thread. Words choose parts whose name contains one of them. Times are the thread's CPU
//! time, and each figure is the best of several rounds: other load on a shared machine only ever makes a round slower.

use std::hint::black_box;
use std::ptr::NonNull;
use std::time::Duration;

use redline_table::heap::{self, Compaction};
use redline_table::{BytesDict, Dict, Heap, Index, Sight};

const SLOTS: usize = redline_table::hash::SLOTS;
/// Header, key, value: the allocation of a keyspace for 16-byte keys and values.
const ENTRY_BYTES: usize = 40;
const KEY_AT: usize = 8;

fn main() {
    let words: Vec<String> = std::env::args()
        .skip(1)
        .filter(|word| !word.starts_with('-'))
        .collect();
    if let [child, n] = &words[..]
        && child == "resident-child"
    {
        return resident_child(n.parse().expect("a count"));
    }
    let parts: [(&str, fn()); 8] = [
        ("hash", hashes),
        ("heap", heaps),
        ("memory", memory),
        ("resident", resident),
        ("find", finds),
        ("churn", churn),
        ("compaction", compaction),
        ("dict", dicts),
    ];
    for (name, part) in parts {
        if words.is_empty() || words.iter().any(|word| name.contains(&**word)) {
            println!("{name}");
            part();
        }
    }
}

fn report(what: &str, ops: usize, rounds: usize, mut round: impl FnMut()) {
    let best = (0..rounds)
        .map(|_| timed(&mut round))
        .min()
        .unwrap_or_default();
    println!(
        "  {what:<58}{:>8.1} ns",
        best.as_nanos() as f64 / ops as f64
    );
}

fn timed(act: impl FnOnce()) -> Duration {
    let start = cpu_time();
    act();
    cpu_time() - start
}

/// Returns the CPU time of this thread, user and system.
fn cpu_time() -> Duration {
    let mut time = libc::timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    // SAFETY: the pointer is to a `timespec` of ours.
    unsafe { libc::clock_gettime(libc::CLOCK_THREAD_CPUTIME_ID, &raw mut time) };
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}

fn key(n: u64) -> [u8; 16] {
    // Random-looking keys whose order says nothing about where entries lie.
    let digits = n.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ 0x5555;
    let mut key = *b"key:000000000000";
    let mut rest = digits % 1_000_000_000_000;
    for digit in key[4..].iter_mut().rev() {
        *digit = b'0' + (rest % 10) as u8;
        rest /= 10;
    }
    key
}

fn slot(slots: &[Index], hash: u64) -> &Index {
    &slots[redline_table::hash::slot(hash)]
}

fn slots() -> Box<[Index]> {
    // SAFETY: the benchmark has one thread.
    unsafe { Index::slots(SLOTS) }
}

fn create(heap: &mut Heap, key: &[u8; 16]) -> NonNull<u8> {
    let entry = heap.alloc(ENTRY_BYTES);
    // SAFETY: the entry has 40 bytes.
    unsafe {
        entry.cast::<u64>().write(7);
        entry.add(KEY_AT).cast::<[u8; 16]>().write(*key);
        entry.add(KEY_AT + 16).cast::<[u8; 16]>().write(*key);
    }
    entry
}

fn key_of<'a>(entry: NonNull<u8>) -> &'a [u8; 16] {
    // SAFETY: `create` wrote it, and the benchmarks use only entries that are in their table.
    unsafe { entry.add(KEY_AT).cast::<[u8; 16]>().as_ref() }
}

fn fill(slots: &[Index], heap: &mut Heap, keys: std::ops::Range<u64>) {
    for n in keys {
        let key = key(n);
        let hash = redline_table::hash(&key);
        slot(slots, hash).insert(hash, create(heap, &key));
    }
}

fn free(slots: &[Index], heap: &mut Heap) {
    for slot in slots {
        // SAFETY: the entry is of this size and in no table any more.
        slot.clear(|entry| unsafe { heap.free(entry, ENTRY_BYTES) });
    }
}

fn hashes() {
    for bytes in [3, 8, 16, 40, 100] {
        let data: Vec<u8> = (0..bytes).map(|i| i as u8).collect();
        report(&format!("{bytes} bytes, throughput"), 100_000, 20, || {
            for _ in 0..100_000 {
                black_box(redline_table::hash(black_box(&data)));
            }
        });
    }
}

fn heaps() {
    let mut heap = Heap::new();
    report("allocate and free, one at a time", 100_000, 20, || {
        for _ in 0..100_000 {
            let object = black_box(heap.alloc(black_box(40)));
            // SAFETY: just allocated.
            unsafe { heap.free(object, 40) };
        }
    });
    let mut objects: Vec<NonNull<u8>> = Vec::with_capacity(1_000_000);
    report(
        "allocate 1M of 40 bytes and write (first: page faults)",
        1_000_000,
        1,
        || {
            objects.extend((0..1_000_000).map(|n| create(&mut heap, &key(n))));
        },
    );
    fastrand::Rng::with_seed(1).shuffle(&mut objects);
    report("free 1M in random order", 1_000_000, 1, || {
        // SAFETY: each is freed once.
        objects
            .drain(..)
            .for_each(|object| unsafe { heap.free(object, 40) });
    });
}

fn memory() {
    for n in [12, 60, 200, 1_000] {
        let hashes: Vec<u64> = (0..n).map(|n| redline_table::hash(&key(n))).collect();
        let slots = slots();
        report(
            &format!("insert {n} into one table and clear, in the cache"),
            n as usize * 20,
            50,
            || {
                for _ in 0..20 {
                    for &hash in &hashes {
                        slots[0].insert(hash, NonNull::<u64>::dangling().cast());
                    }
                    slots[0].clear(|_| ());
                }
            },
        );
    }
    for n in [
        100_000_u64,
        300_000,
        600_000,
        700_000,
        1_000_000,
        1_500_000,
        3_000_000,
    ] {
        let slots = slots();
        let mut heap = Heap::new();
        let before = (heap::stats().mapped_bytes, heap::table_stats().mapped_bytes);
        let mut spent = Duration::ZERO;
        // The keys and entries are made first, so that only the table is timed.
        for first in (0..n).step_by(1_000) {
            let batch: Vec<(u64, NonNull<u8>)> = (first..first + 1_000)
                .map(|n| (redline_table::hash(&key(n)), create(&mut heap, &key(n))))
                .collect();
            spent += timed(|| {
                batch
                    .iter()
                    .for_each(|&(hash, entry)| slot(&slots, hash).insert(hash, entry))
            });
        }
        let table: usize =
            slots.iter().map(Index::table_bytes).sum::<usize>() + size_of_val(&*slots);
        let per_key = |bytes: usize| bytes as f64 / n as f64;
        println!(
            "  {n:>8} keys: insert {:>5.1} ns; table {:>5.2} bytes a key, mapped {:>5.2}, entries mapped {:>5.2}",
            spent.as_nanos() as f64 / n as f64,
            per_key(table),
            per_key(heap::table_stats().mapped_bytes - before.1),
            per_key(heap::stats().mapped_bytes - before.0),
        );
        free(&slots, &mut heap);
    }
}

/// Looks keys up as the server does: a batch is decoded and hashed, then its buckets are prefetched, then its entries,
/// then each is looked up.
fn lookup(slots: &[Index], keys: &[[u8; 16]], batch: usize, passes: u32) {
    let mut hashes = [0_u64; 64];
    let mut sights = [Sight::default(); 64];
    for keys in keys.chunks(batch) {
        for (hash, key) in hashes.iter_mut().zip(keys) {
            *hash = redline_table::hash(key);
        }
        let hashes = &hashes[..keys.len()];
        if passes > 0 {
            for (sight, &hash) in sights.iter_mut().zip(hashes) {
                *sight = slot(slots, hash).prefetch_bucket(hash);
            }
        }
        if passes > 1 {
            let mut spilled = [false; 64];
            for (i, &hash) in hashes.iter().enumerate() {
                spilled[i] = slot(slots, hash).prefetch_entry(&mut sights[i], hash);
            }
            for (i, &hash) in hashes.iter().enumerate().filter(|(i, _)| spilled[*i]) {
                slot(slots, hash).prefetch_entry_beyond(&mut sights[i], hash, 1);
            }
        }
        for ((key, &hash), sight) in keys.iter().zip(hashes).zip(&sights) {
            let slot = slot(slots, hash);
            let found = slot
                .recall(sight)
                .filter(|entry| key_of(*entry) == key)
                .or_else(|| slot.find(hash, |entry| key_of(entry) == key))
                .expect("present");
            // SAFETY: the value of an entry of the table.
            black_box(unsafe { found.add(KEY_AT + 16).cast::<[u8; 16]>().read() });
        }
    }
}

fn finds() {
    let n = 1_000_000;
    let slots = slots();
    let mut heap = Heap::new();
    fill(&slots, &mut heap, 0..n);
    let mut rng = fastrand::Rng::with_seed(3);
    let keys: Vec<[u8; 16]> = (0..500_000).map(|_| key(rng.u64(..n))).collect();
    for pages in ["small", "huge"] {
        for batch in [50, 16, 1] {
            for (passes, what) in [
                (0, "no prefetch"),
                (1, "buckets prefetched"),
                (2, "buckets and entries prefetched"),
            ] {
                report(
                    &format!("hit, 1M keys, {pages} pages, batches of {batch}, {what}"),
                    keys.len(),
                    5,
                    || {
                        lookup(&slots, &keys, batch, passes);
                    },
                );
            }
        }
        let spent = timed(|| heap::maintain(1_000));
        println!("  making huge pages: {spent:?}");
    }
    let absent: Vec<[u8; 16]> = (0..500_000).map(|_| key(rng.u64(n..2 * n))).collect();
    report(
        "miss, batches of 50, buckets and entries prefetched",
        absent.len(),
        5,
        || {
            for keys in absent.chunks(50) {
                keys.iter().for_each(|key| {
                    let hash = redline_table::hash(key);
                    slot(&slots, hash).prefetch_bucket(hash);
                });
                for key in keys {
                    let hash = redline_table::hash(key);
                    assert!(
                        slot(&slots, hash)
                            .find(hash, |entry| key_of(entry) == key)
                            .is_none()
                    );
                }
            }
        },
    );
    free(&slots, &mut heap);
}

/// Inserts and removes at a size that stays, which must not make the table worse.
fn churn() {
    let n = 1_000_000;
    let slots = slots();
    let mut heap = Heap::new();
    fill(&slots, &mut heap, 0..n);
    let mut oldest = 0;
    for round in 0..3 {
        report(
            &format!("insert one, remove the oldest, round {round}"),
            n as usize,
            1,
            || {
                for _ in 0..n {
                    fill(&slots, &mut heap, oldest + n..oldest + n + 1);
                    let key = key(oldest);
                    let hash = redline_table::hash(&key);
                    let slot = slot(&slots, hash);
                    let entry = slot
                        .find(hash, |entry| *key_of(entry) == key)
                        .expect("present");
                    slot.remove(hash, entry);
                    // SAFETY: in no table any more.
                    unsafe { heap.free(entry, ENTRY_BYTES) };
                    oldest += 1;
                }
            },
        );
        let table: usize = slots.iter().map(Index::table_bytes).sum();
        println!("  table {:.2} bytes a key", table as f64 / n as f64);
    }
    free(&slots, &mut heap);
}

fn resident_bytes() -> usize {
    let text = std::fs::read_to_string("/proc/self/statm").unwrap_or_default();
    text.split(' ')
        .nth(1)
        .and_then(|pages| pages.parse::<usize>().ok())
        .unwrap_or(0)
        * 4096
}

/// Prints the resident memory as the operating system reports it, for each count in a process of its own.
fn resident() {
    let program = std::env::current_exe().expect("this program has a path");
    for n in ["700000", "1000000", "1500000", "3000000"] {
        let child = std::process::Command::new(&program)
            .args(["resident-child", n])
            .status();
        assert!(child.is_ok_and(|status| status.success()));
    }
}

fn resident_child(n: u64) {
    let slots = slots();
    let mut heap = Heap::new();
    let idle = resident_bytes();
    fill(&slots, &mut heap, 0..n);
    let per_key = |bytes: usize| bytes as f64 / n as f64;
    let small = resident_bytes() - idle;
    heap::maintain(1_000);
    let huge = resident_bytes() - idle;
    println!(
        "  {n:>8} keys: {:.2} bytes a key, with huge pages {:.2}; said to be mapped: {:.2}",
        per_key(small),
        per_key(huge),
        per_key(heap::stats().mapped_bytes + heap::table_stats().mapped_bytes),
    );
}

/// Measures a table of 3M keys, of which nine tenths are deleted.
fn compaction() {
    let n = 3_000_000;
    let slots = slots();
    let mut heap = Heap::new();
    let idle = resident_bytes();
    fill(&slots, &mut heap, 0..n);
    heap::maintain(1_000);
    let peak = resident_bytes();
    println!("  peak {:.1} bytes a key", (peak - idle) as f64 / n as f64);
    let spent = timed(|| {
        for key in (0..n).filter(|n| n % 10 != 3).map(key) {
            let hash = redline_table::hash(&key);
            let entry = slot(&slots, hash)
                .find(hash, |entry| *key_of(entry) == key)
                .expect("present");
            slot(&slots, hash).remove(hash, entry);
            // SAFETY: in no table any more.
            unsafe { heap.free(entry, ENTRY_BYTES) };
        }
    });
    println!(
        "  delete: {:.1} ns a key",
        spent.as_nanos() as f64 / n as f64 * 10.0 / 9.0
    );
    println!(
        "  resident after the deletion: {:.2} of the peak",
        resident_bytes() as f64 / peak as f64
    );
    let mut longest = Duration::ZERO;
    let mut moved = 0;
    let total = timed(|| {
        let Some(_compaction) = Compaction::begin() else {
            return;
        };
        heap.tick();
        for slot in &slots {
            longest = longest.max(timed(|| moved += compact_slot(slot, &mut heap)));
        }
    });
    heap::maintain(0);
    println!("  walk: {total:?}, {moved} moved, longest slot {longest:?}");
    println!(
        "  resident after the compaction: {:.2} of the peak",
        resident_bytes() as f64 / peak as f64
    );
    free(&slots, &mut heap);
}

fn compact_slot(slot: &Index, heap: &mut Heap) -> usize {
    let mut moving = Vec::new();
    slot.for_each(|entry| {
        if heap::is_evacuating(entry) {
            moving.push(entry);
        }
    });
    slot.compact();
    for &old in &moving {
        let key = key_of(old);
        let hash = redline_table::hash(key);
        let new = create(heap, key);
        slot.replace(hash, old, new);
        // SAFETY: replaced above.
        unsafe { heap.free(old, ENTRY_BYTES) };
    }
    moving.len()
}

fn dicts() {
    for n in [1_000_u64, 100_000, 1_000_000] {
        let keys: Vec<[u8; 16]> = (0..n).map(key).collect();
        let mut set: Dict<()> = Dict::new();
        report(&format!("Dict<()>: insert {n}"), n as usize, 1, || {
            keys.iter()
                .for_each(|key| assert!(set.insert(key, ()).is_none()));
        });
        report(&format!("Dict<()>: contains, {n}"), n as usize, 3, || {
            keys.iter().for_each(|key| assert!(set.contains(key)));
        });
        report(&format!("Dict<()>: iterate, {n}"), n as usize, 3, || {
            assert_eq!(
                set.iter().map(|(key, ())| key.len()).sum::<usize>(),
                n as usize * 16
            );
        });
        println!("  {:.1} bytes a member", set.heap_bytes() as f64 / n as f64);
        let mut hash = BytesDict::new();
        report(&format!("BytesDict: insert {n}"), n as usize, 1, || {
            keys.iter().for_each(|key| assert!(hash.insert(key, key)));
        });
        println!("  {:.1} bytes a field", hash.heap_bytes() as f64 / n as f64);
        report(&format!("BytesDict: overwrite, {n}"), n as usize, 3, || {
            keys.iter().for_each(|key| assert!(!hash.insert(key, key)));
        });
    }
}
