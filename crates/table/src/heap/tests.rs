//! Tests of size classes, of allocation from several threads, and of compaction.

use super::*;
use std::collections::{BTreeMap, VecDeque};
use std::sync::{Mutex, PoisonError, mpsc};

/// Held by tests that look at the arenas' figures, which are the process's.
static TURN: Mutex<()> = Mutex::new(());

const fn steps(n: usize) -> usize {
    if cfg!(miri) { n / 500 } else { n }
}

/// Returns the number of objects that fill several segments, which are small under Miri.
const fn segments_full(n: usize) -> usize {
    if cfg!(miri) { n / 200 } else { n }
}

/// An object with a pattern, so that two that overlap are noticed.
struct Object {
    pointer: NonNull<u8>,
    bytes: usize,
    mark: u8,
}

// SAFETY: the test has the only pointer to the memory.
unsafe impl Send for Object {}

impl Object {
    fn new(heap: &mut Heap, bytes: usize, mark: u8) -> Object {
        let pointer = heap.alloc(bytes);
        assert_eq!(pointer.addr().get() % 8, 0);
        // SAFETY: the object has this many bytes.
        unsafe { pointer.write_bytes(mark, Heap::size_class(bytes)) };
        Object {
            pointer,
            bytes,
            mark,
        }
    }

    fn check(&self) {
        // SAFETY: written as a whole in `new`.
        let bytes = unsafe {
            std::slice::from_raw_parts(self.pointer.as_ptr(), Heap::size_class(self.bytes))
        };
        // All bytes are the mark: the first is, and each equals the one before.
        let same = bytes[0] == self.mark && bytes[1..] == bytes[..bytes.len() - 1];
        assert!(same, "an object was overwritten");
    }

    fn free(self, heap: &mut Heap) {
        self.check();
        // SAFETY: allocated with this size, freed once since `self` is consumed.
        unsafe { heap.free(self.pointer, self.bytes) };
    }
}

#[test]
fn classes_are_exact_below_a_kibibyte_and_near_above() {
    for bytes in 1..=1024_usize {
        assert_eq!(Heap::size_class(bytes), bytes.next_multiple_of(8));
    }
    for bytes in 1025..=CLASS_BYTES_MAX + 100 {
        let class = Heap::size_class(bytes);
        assert!(
            class >= bytes && (class - bytes) * 32 <= bytes,
            "{bytes} becomes {class}"
        );
        assert_eq!(Heap::size_class(class), class);
    }
    for class in 0..=class_of(OBJECT_BYTES_MAX) {
        assert_eq!(class_of(class_bytes(class)), class);
    }
}

#[test]
fn objects_of_all_sizes_do_not_overlap() {
    let _turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
    let mut rng = fastrand::Rng::with_seed(1);
    let mut heap = Heap::new();
    let mut by_address: BTreeMap<usize, Object> = BTreeMap::new();
    for step in 0..steps(40_000) {
        if rng.u32(..5) < 3 {
            let bytes = match rng.u32(..8) {
                0 => rng.usize(1..CLASS_BYTES_MAX + 1_000),
                1 => rng.usize(1..2_000),
                _ => rng.usize(1..120),
            };
            let object = Object::new(&mut heap, bytes, step as u8);
            let (start, end) = (
                object.pointer.addr().get(),
                object.pointer.addr().get() + Heap::size_class(bytes),
            );
            if let Some((_, before)) = by_address.range(..end).next_back() {
                assert!(before.pointer.addr().get() + Heap::size_class(before.bytes) <= start);
            }
            by_address.insert(start, object);
        } else if let Some((&address, _)) = by_address
            .range(rng.usize(..)..)
            .next()
            .or(by_address.iter().next())
        {
            by_address
                .remove(&address)
                .expect("present")
                .free(&mut heap);
        }
    }
    by_address
        .into_values()
        .for_each(|object| object.free(&mut heap));
}

#[test]
fn an_empty_heap_is_all_given_back() {
    let _turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
    let before = stats();
    let mut heap = Heap::new();
    let objects: Vec<Object> = (0..segments_full(200_000))
        .map(|i| Object::new(&mut heap, 16 + i % 300, i as u8))
        .collect();
    let held: usize = objects
        .iter()
        .map(|object| Heap::size_class(object.bytes))
        .sum();
    let full = stats();
    assert!(full.live_bytes - before.live_bytes >= held && full.mapped_bytes >= full.live_bytes);
    assert!(cfg!(miri) || full.live_bytes - before.live_bytes < held + held / 20);
    objects
        .into_iter()
        .for_each(|object| object.free(&mut heap));
    drop(heap);
    assert_eq!(stats().live_bytes, before.live_bytes);
    maintain(0);
    maintain(0);
    assert!(stats().mapped_bytes <= before.mapped_bytes + crate::arena::SEGMENT_BYTES);
}

#[test]
fn a_few_objects_kept_whole_segments_resident() {
    let _turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
    // Memory that other tests left.
    (0..3).for_each(|_| maintain(0));
    let before = stats();
    let mut heap = Heap::new();
    let mut objects: Vec<Object> = (0..segments_full(200_000))
        .map(|i| Object::new(&mut heap, 40, i as u8))
        .collect();
    heap.flush();
    let mapped = |then: Stats| then.mapped_bytes.saturating_sub(before.mapped_bytes);
    let segments = mapped(stats()) / crate::arena::SEGMENT_BYTES;
    assert!(segments >= 3, "{segments}");
    maintain(segments);
    // One object of each segment stays.
    let mut kept = Vec::new();
    let mut seen = std::collections::BTreeSet::new();
    for object in objects.drain(..) {
        if seen.insert(object.pointer.addr().get() / crate::arena::SEGMENT_BYTES) {
            kept.push(object);
        } else {
            object.free(&mut heap);
        }
    }
    heap.flush();
    maintain(0);
    assert!(
        mapped(stats()) > crate::arena::SEGMENT_BYTES,
        "may be wanted again at once"
    );
    maintain(0);
    maintain(0);
    let left = mapped(stats());
    assert!(left <= crate::arena::SEGMENT_BYTES / 4, "{left}");
    kept.iter().for_each(Object::check);

    // What was given back is used again, and counted again.
    kept.extend((0..segments_full(100_000)).map(|i| Object::new(&mut heap, 40, i as u8)));
    assert!(mapped(stats()) >= segments_full(100_000) * 40);
    kept.into_iter().for_each(|object| object.free(&mut heap));
    drop(heap);
    assert_eq!(stats().live_bytes, before.live_bytes);
}

#[test]
fn a_size_that_grows_within_its_class_is_freed_under_either() {
    let _turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
    let before = stats().live_bytes;
    let mut heap = Heap::new();
    let pointer = heap.alloc(33);
    // SAFETY: 40 is of the same class as 33.
    unsafe { heap.free(pointer, 40) };
    assert_eq!(heap.alloc(39), pointer);
    // SAFETY: 39 is of the same class as 34.
    unsafe { heap.free(pointer, 34) };
    drop(heap);
    assert_eq!(stats().live_bytes, before);
}

#[test]
#[should_panic(expected = "freed twice")]
fn a_double_free_is_noticed() {
    let mut heap = Heap::new();
    let pointer = heap.alloc(1_000);
    // SAFETY: none: this is the fault that is to be noticed before anything is reused.
    unsafe {
        heap.free(pointer, 1_000);
        heap.flush();
        ENTRIES.give_back(class_of(1_000), &[pointer]);
    }
}

#[test]
fn objects_may_be_freed_by_other_threads() {
    let _turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
    let before = stats().live_bytes;
    let threads = 4;
    let (senders, receivers): (Vec<_>, Vec<_>) =
        (0..threads).map(|_| mpsc::channel::<Object>()).unzip();
    std::thread::scope(|scope| {
        for (seed, inbox) in receivers.into_iter().enumerate() {
            let senders = senders.clone();
            scope.spawn(move || {
                let mut rng = fastrand::Rng::with_seed(seed as u64);
                let mut heap = Heap::new();
                let mut own: VecDeque<Object> = VecDeque::new();
                for step in 0..steps(100_000) {
                    let object = Object::new(&mut heap, 1 + rng.usize(..200), step as u8);
                    match rng.u32(..3) {
                        0 => own.push_back(object),
                        1 => senders[rng.usize(..threads)]
                            .send(object)
                            .expect("receivers outlive the loop"),
                        _ => object.free(&mut heap),
                    }
                    if own.len() > 1_000 {
                        own.pop_front().expect("many").free(&mut heap);
                    }
                    inbox
                        .try_iter()
                        .take(2)
                        .for_each(|object| object.free(&mut heap));
                }
                drop(senders);
                own.into_iter().for_each(|object| object.free(&mut heap));
                inbox.into_iter().for_each(|object| object.free(&mut heap));
            });
        }
        drop(senders);
    });
    assert_eq!(stats().live_bytes, before);
}

/// The process is asked about ten times a second, so that it notices when memory has come back.
fn forget_fruitless_compactions() {
    drop(Compaction::begin());
}

/// Moves the objects that are to be moved, as their owner does.
fn walk(heap: &mut Heap, objects: &mut [Object]) {
    heap.tick();
    for object in objects {
        if is_evacuating(object.pointer) {
            let moved = Object::new(heap, object.bytes, object.mark);
            std::mem::replace(object, moved).free(heap);
        }
    }
}

#[test]
fn a_compaction_gives_sparse_memory_back() {
    let _turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
    let mut rng = fastrand::Rng::with_seed(5);
    let mut heap = Heap::new();
    let before = stats();
    forget_fruitless_compactions();
    let mut objects: Vec<Object> = (0..segments_full(600_000))
        .map(|i| Object::new(&mut heap, [40, 48, 104][i % 3], i as u8))
        .collect();
    rng.shuffle(&mut objects);
    let keep = objects.len() / 10;
    objects
        .drain(keep..)
        .for_each(|object| object.free(&mut heap));
    heap.flush();
    let sparse = stats();
    assert!(
        sparse.mapped_bytes - before.mapped_bytes > (sparse.live_bytes - before.live_bytes) * 5
    );

    let compaction = Compaction::begin().expect("nine tenths are free");
    assert!(Compaction::begin().is_none(), "one at a time");
    let segments = compaction.segments_left();
    walk(&mut heap, &mut objects);
    assert!(
        compaction.segments_left() <= segments / 20,
        "{} of {segments} left",
        compaction.segments_left()
    );
    drop(compaction);
    let compact = stats();
    assert!(
        compact.mapped_bytes * 4 < sparse.mapped_bytes,
        "{compact:?} of {sparse:?}"
    );
    assert!(objects.iter().all(|object| !is_evacuating(object.pointer)));

    // The memory is as good as before.
    objects.extend((0..segments_full(300_000)).map(|i| Object::new(&mut heap, 40, i as u8)));
    objects
        .into_iter()
        .for_each(|object| object.free(&mut heap));
    drop(heap);
    assert_eq!(stats().live_bytes, before.live_bytes);
}

#[test]
fn a_compaction_may_end_early_and_loses_nothing() {
    let _turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
    let mut rng = fastrand::Rng::with_seed(6);
    forget_fruitless_compactions();
    let mut heap = Heap::new();
    let before = stats().live_bytes;
    let mut objects: Vec<Object> = (0..segments_full(500_000))
        .map(|i| Object::new(&mut heap, 64, i as u8))
        .collect();
    rng.shuffle(&mut objects);
    let keep = objects.len() / 8;
    objects
        .drain(keep..)
        .for_each(|object| object.free(&mut heap));
    heap.flush();
    let compaction = Compaction::begin().expect("much is free");
    let half = keep / 2;
    walk(&mut heap, &mut objects[..half]);
    drop(compaction);
    let mapped = stats().mapped_bytes;
    // Segments that were not emptied are allocated from again, so that no new memory is needed for as many objects as
    // were there.
    objects.extend((0..segments_full(200_000)).map(|i| Object::new(&mut heap, 64, i as u8)));
    assert!(cfg!(miri) || stats().mapped_bytes <= mapped);
    objects
        .into_iter()
        .for_each(|object| object.free(&mut heap));
    drop(heap);
    assert_eq!(stats().live_bytes, before);
}

#[test]
fn a_compaction_that_won_nothing_is_not_repeated_at_once() {
    let _turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
    let mut rng = fastrand::Rng::with_seed(7);
    forget_fruitless_compactions();
    let mut heap = Heap::new();
    let mut objects: Vec<Object> = (0..segments_full(600_000))
        .map(|i| Object::new(&mut heap, 80, i as u8))
        .collect();
    rng.shuffle(&mut objects);
    let keep = objects.len() / 2;
    objects
        .drain(keep..)
        .for_each(|object| object.free(&mut heap));
    heap.flush();
    drop(Compaction::begin().expect("half is free"));
    assert!(Compaction::begin().is_none(), "nobody moved anything");
    let keep = objects.len() / 4;
    objects
        .drain(keep..)
        .for_each(|object| object.free(&mut heap));
    heap.flush();
    let compaction = Compaction::begin().expect("much more is free now");
    walk(&mut heap, &mut objects);
    drop(compaction);
    objects
        .into_iter()
        .for_each(|object| object.free(&mut heap));
}

#[test]
fn threads_allocate_and_free_while_compactions_run() {
    let _turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
    let before = stats().live_bytes;
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        for seed in 0..3 {
            let stop = &stop;
            scope.spawn(move || {
                let mut rng = fastrand::Rng::with_seed(seed);
                let mut heap = Heap::new();
                let mut objects: Vec<Object> = Vec::new();
                while !stop.load(Relaxed) {
                    let size = steps(3_000).max(20);
                    objects.extend((0..size).map(|i| Object::new(&mut heap, 8 + i % 90, i as u8)));
                    rng.shuffle(&mut objects);
                    let keep = objects.len() / 8;
                    objects
                        .drain(keep..)
                        .for_each(|object| object.free(&mut heap));
                    walk(&mut heap, &mut objects);
                }
                objects
                    .into_iter()
                    .for_each(|object| object.free(&mut heap));
            });
        }
        let mut heap = Heap::new();
        let mut sparse: Vec<Object> = (0..segments_full(300_000))
            .map(|i| Object::new(&mut heap, 72, i as u8))
            .collect();
        let mut compactions = 0;
        for round in 0..steps(150).max(3) {
            let mut kept = Vec::new();
            for (i, object) in sparse.drain(..).enumerate() {
                if i % 4 == round % 4 {
                    kept.push(object);
                } else {
                    object.free(&mut heap);
                }
            }
            sparse = kept;
            if let Some(compaction) = Compaction::begin() {
                compactions += 1;
                walk(&mut heap, &mut sparse);
                drop(compaction);
            }
            maintain(1);
            if sparse.len() < 1_000 {
                sparse.extend(
                    (0..segments_full(200_000)).map(|i| Object::new(&mut heap, 72, i as u8)),
                );
            }
        }
        assert!(cfg!(miri) || compactions > 0);
        sparse.into_iter().for_each(|object| object.free(&mut heap));
        stop.store(true, Relaxed);
    });
    assert_eq!(stats().live_bytes, before);
}
