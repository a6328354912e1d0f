//! The central part of the two arenas: segments, spans and objects of exact sizes. Must not know threads' caches (that
//! is `heap.rs`), entries, buckets.
//!
//! # How memory is cut
//!
//! An arena is one reserved range of addresses, made of *segments* of 2 MiB (a huge page) of 32 *units* each. A *span*
//! is 1, 4, 16 or 32 units, and holds *objects* of one size class behind a bitmap of those that are free. What is known
//! is 1, 4, 16 or 32 units, and holds *objects* of one size class behind a bitmap of those that are free. The state of
//! segments and spans stands in an array beside the range and is found from an object's address by arithmetic. A class
//! has a list of its spans with room, under the class's mutex; segments are allocated under one more. Lock order:
//! class, then space.
//!
//! The range is never unmapped. A segment that has become empty goes back to the operating system (`MADV_DONTNEED`,
//! after which it reads as zeros) and is used again later. So an address inside the range may be *read* at any time,
//! which the tables' lock-free prefetch relies on; see `index.rs`.
//!
//! # Huge pages
//!
//! They are worth 20 to 30 ns a request, but a segment that asks for one when it is opened is resident as a whole from
//! its first byte on: up to 2 MiB too much per arena, which is 3 bytes a key at 0.7 million keys. So the first segments
//! (`SMALL_PAGE_SEGMENTS`) begin with small pages, and [`Arena::maintain`] turns them into huge pages once they are
//! nearly full, at a cost of about 1 ms each on the virtual machine where this was measured; later ones, where the
//! excess is below 3 %, ask at once.

use std::ptr::NonNull;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, AtomicUsize, Ordering::Relaxed};
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};

use redline_alloc::os;

/// Units of a segment.
const UNITS: usize = 32;
/// The smallest span. Under Miri everything is smaller: it interprets every byte.
const UNIT_BYTES: usize = if cfg!(miri) { 1 << 10 } else { 64 << 10 };
/// A huge page.
pub(crate) const SEGMENT_BYTES: usize = UNITS * UNIT_BYTES;
/// Segments of an arena that begin with small pages.
const SMALL_PAGE_SEGMENTS: usize = 32;

/// Below this many bytes, classes are exact to 8 bytes.
const EXACT_BYTES_MAX: usize = 1 << 10;
/// Classes in each doubling above: a step is at most 1/32.
const STEPS: usize = 32;
/// The largest object, 1 MiB.
pub(crate) const OBJECT_BYTES_MAX: usize = if cfg!(miri) { 4 << 10 } else { 1 << 20 };
const CLASSES: usize = class_of(OBJECT_BYTES_MAX) + 1;

/// Segments of each size of span that one [`Arena::maintain`] looks at for idle units.
const IDLE_LOOKS_MAX: usize = 32;

/// "No span", "no segment" in a list.
const NONE: u32 = u32::MAX;

/// Returns the size class of an object of `bytes` (1 to `OBJECT_BYTES_MAX`).
#[inline]
pub(crate) const fn class_of(bytes: usize) -> usize {
    let last = bytes.wrapping_sub(1);
    if last < EXACT_BYTES_MAX {
        return last / 8;
    }
    let doubling = last.ilog2() as usize - EXACT_BYTES_MAX.ilog2() as usize;
    EXACT_BYTES_MAX / 8 + doubling * STEPS + (last >> (doubling + 5)) - STEPS
}

/// Returns the number of bytes of an object of a class.
#[inline]
pub(crate) const fn class_bytes(class: usize) -> usize {
    if class < EXACT_BYTES_MAX / 8 {
        return (class + 1) * 8;
    }
    let (doubling, step) = (
        (class - EXACT_BYTES_MAX / 8) / STEPS,
        (class - EXACT_BYTES_MAX / 8) % STEPS,
    );
    (STEPS + step + 1) << (doubling + 5)
}

/// Layout of the spans of a class.
#[derive(Clone, Copy)]
struct Cut {
    object_bytes: u32,
    /// Index into `SPAN_UNITS`.
    kind: u32,
    objects: u32,
    /// Offset of the first object, behind the bitmap. Objects are aligned to the largest power of two that divides
    /// their size, up to 128 (a chunk of the tables is two cache lines).
    offset: u32,
}

/// Sizes of spans, in units. A segment holds spans of one size.
const SPAN_UNITS: [u32; 4] = [1, 4, 16, 32];

const CUTS: [Cut; CLASSES] = {
    let mut cuts = [Cut {
        object_bytes: 0,
        kind: 0,
        objects: 0,
        offset: 0,
    }; CLASSES];
    let mut class = 0;
    while class < CLASSES {
        let bytes = class_bytes(class);
        // At least 50 objects a span, where a segment allows: the rest at the end is below 2 %.
        let kind = if bytes * 50 <= UNIT_BYTES {
            0
        } else if bytes * 50 <= 4 * UNIT_BYTES {
            1
        } else if bytes * 50 <= 16 * UNIT_BYTES {
            2
        } else {
            3
        };
        let span = SPAN_UNITS[kind] as usize * UNIT_BYTES;
        let natural = 1 << bytes.trailing_zeros();
        let align = if natural > 128 { 128 } else { natural };
        let mut objects = span / bytes;
        while (objects.div_ceil(64) * 8).next_multiple_of(align) + objects * bytes > span {
            objects -= 1;
        }
        let offset = (objects.div_ceil(64) * 8).next_multiple_of(align);
        cuts[class] = Cut {
            object_bytes: bytes as u32,
            kind: kind as u32,
            objects: objects as u32,
            offset: offset as u32,
        };
        class += 1;
    }
    cuts
};

/// A number that several threads may read. Where nothing else is said it is only accessed under a mutex.
struct Word(AtomicU32);

impl Word {
    fn get(&self) -> u32 {
        self.0.load(Relaxed)
    }
    fn set(&self, value: u32) {
        self.0.store(value, Relaxed);
    }
}

/// The state of a segment. Zeroed memory is a segment that was never used.
struct Segment {
    /// One bit for the first unit of every span that may be handed out. Under the space mutex, as the next six.
    free: Word,
    /// Units that have been used since they were last given back to the operating system.
    touched: Word,
    /// Touched units that belonged to no span at the last `maintain`, nor since.
    idle: Word,
    /// Size of its spans plus one; 0 while the segment is not in use.
    kind: Word,
    next: Word,
    prev: Word,
    /// Objects here are to be moved elsewhere, none is allocated. Written under the space mutex, read without.
    evacuating: AtomicBool,
    /// By the first unit of each span.
    spans: [Span; UNITS],
}

/// The state of a span; under the mutex of its class.
struct Span {
    /// Class plus one; 0 while the units belong to no span.
    class: Word,
    /// Number of allocated objects.
    live: Word,
    /// 1 if the span is in its class's list of those with room.
    listed: Word,
    /// No word of the bitmap before this one has a free object.
    hint: Word,
    next: Word,
    prev: Word,
}

/// The reserved range and the array beside it.
struct Region {
    base: NonNull<u8>,
    segments: &'static [Segment],
}

// SAFETY: `base` is an address that never changes; the memory behind it is allocated object by object.
unsafe impl Send for Region {}
// SAFETY: as above.
unsafe impl Sync for Region {}

/// Segments that are not full, by size of span, and those that are not in use.
struct Space {
    partial: [u32; SPAN_UNITS.len()],
    /// Given back to the operating system; a list through `next`.
    released: u32,
    /// Never used: this one and all after it.
    fresh: u32,
    /// An empty segment kept for the next allocation, so that a count that swings around a limit costs no page faults.
    spare: u32,
    /// The spare segment was there at the last `maintain` already.
    spare_is_old: bool,
    in_use: usize,
    /// Segments on small pages that are to become huge pages.
    small: Vec<u32>,
}

/// One process-wide arena.
pub(crate) struct Arena {
    region_bytes: usize,
    region: OnceLock<Region>,
    /// Address and bytes of the region once more, to be read in one load each; 0 before there is one.
    base: AtomicUsize,
    bytes: AtomicUsize,
    space: Mutex<Space>,
    /// First span with room of each class.
    classes: [Mutex<u32>; CLASSES],
    live_bytes: AtomicUsize,
    mapped_bytes: AtomicUsize,
    /// Free bytes when an evacuation ended that won little: other allocations hold the memory (tables of collections,
    /// which are not moved), so the next one waits for more.
    fruitless_bytes: AtomicUsize,
}

/// Locks; a panic elsewhere under the lock (an assertion about a double free) does not make the figures wrong.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Region {
    fn reserve(bytes: usize) -> Region {
        let (base, bytes) = os::reserve(bytes, SEGMENT_BYTES).expect("addresses");
        let count = bytes / SEGMENT_BYTES;
        let (array, _) = os::reserve(count * size_of::<Segment>(), 4096).expect("addresses");
        // SAFETY: the array is zeroed memory of that many segments, aligned to 64, never unmapped and used for nothing
        // else; all zero is a valid `Segment`, which is made of atomics.
        let segments =
            unsafe { std::slice::from_raw_parts(array.as_ptr().cast::<Segment>(), count) };
        Region { base, segments }
    }

    fn span(&self, id: u32) -> &Span {
        &self.segments[id as usize / UNITS].spans[id as usize % UNITS]
    }

    fn span_base(&self, id: u32) -> NonNull<u8> {
        debug_assert!((id as usize) < self.segments.len() * UNITS);
        // SAFETY: a span lies inside the reserved range.
        unsafe { self.base.add(id as usize * UNIT_BYTES) }
    }

    /// Returns a word of a span's bitmap: one bit for each object that is free.
    fn free_bits(&self, id: u32, word: u32) -> &AtomicU64 {
        // SAFETY: a span begins with its bitmap, in which `word` lies (callers stay below the class's words); the memory
        // is aligned, always mapped, and holds the bitmap and nothing else while the span is in use.
        unsafe {
            self.span_base(id)
                .cast::<AtomicU64>()
                .add(word as usize)
                .as_ref()
        }
    }

    fn segment_of(&self, address: usize) -> Option<usize> {
        let segment = address.wrapping_sub(self.base.addr().get()) / SEGMENT_BYTES;
        (segment < self.segments.len()).then_some(segment)
    }
}

impl Arena {
    /// Makes an arena that will reserve so many bytes of addresses, or as many as it gets.
    pub(crate) const fn new(region_bytes: usize) -> Arena {
        Arena {
            region_bytes,
            region: OnceLock::new(),
            base: AtomicUsize::new(0),
            bytes: AtomicUsize::new(0),
            space: Mutex::new(Space {
                partial: [NONE; SPAN_UNITS.len()],
                released: NONE,
                fresh: 0,
                spare: NONE,
                spare_is_old: false,
                in_use: 0,
                small: Vec::new(),
            }),
            classes: [const { Mutex::new(NONE) }; CLASSES],
            live_bytes: AtomicUsize::new(0),
            mapped_bytes: AtomicUsize::new(0),
            fruitless_bytes: AtomicUsize::new(0),
        }
    }

    /// Returns the number of bytes of allocated objects.
    pub(crate) fn live_bytes(&self) -> usize {
        self.live_bytes.load(Relaxed)
    }

    /// Returns the number of bytes held from the operating system.
    pub(crate) fn mapped_bytes(&self) -> usize {
        self.mapped_bytes.load(Relaxed)
    }

    /// Returns the address of the range, 0 before the first object was allocated.
    #[inline]
    pub(crate) fn base(&self) -> usize {
        self.base.load(Relaxed)
    }

    /// Returns the number of bytes of the range, 0 before the first object was allocated.
    #[inline]
    pub(crate) fn bytes(&self) -> usize {
        self.bytes.load(Relaxed)
    }

    /// Returns the address of the range, which is reserved now if need be.
    pub(crate) fn reserved_base(&self) -> usize {
        self.region();
        self.base()
    }

    /// Returns the number of bytes of the range, which is reserved now if need be.
    pub(crate) fn reserved_bytes(&self) -> usize {
        self.region();
        self.bytes()
    }

    fn region(&self) -> &Region {
        self.region.get_or_init(|| {
            let region = Region::reserve(self.region_bytes);
            self.bytes
                .store(region.segments.len() * SEGMENT_BYTES, Relaxed);
            self.base
                .store(region.base.as_ptr().expose_provenance(), Relaxed);
            region
        })
    }

    /// Allocates at least one and at most `want` objects of a class, not initialised.
    pub(crate) fn take(&self, class: usize, want: usize, mut give: impl FnMut(NonNull<u8>)) {
        let region = self.region();
        let cut = &CUTS[class];
        let mut first = lock(&self.classes[class]);
        if *first == NONE {
            let id = self.open_span(region, class);
            self.link_span(region, &mut first, id);
        }
        let id = *first;
        let span = region.span(id);
        let mut word = span.hint.get();
        let mut taken = 0;
        while taken < want && word < cut.objects.div_ceil(64) {
            let bits = region.free_bits(id, word);
            let mut free = bits.load(Relaxed);
            while free != 0 && taken < want {
                let object = word * 64 + free.trailing_zeros();
                free &= free - 1;
                taken += 1;
                // SAFETY: object numbers of the bitmap are below the span's count, so this lies inside the span.
                give(unsafe {
                    region
                        .span_base(id)
                        .add((cut.offset + object * cut.object_bytes) as usize)
                });
            }
            bits.store(free, Relaxed);
            word += u32::from(free == 0);
        }
        debug_assert!(taken > 0, "a listed span has room");
        span.hint.set(word);
        span.live.set(span.live.get() + taken as u32);
        if span.live.get() == cut.objects {
            self.unlink_span(region, &mut first, id);
        }
        self.live_bytes
            .fetch_add(taken * cut.object_bytes as usize, Relaxed);
    }

    /// Allocates one object of a class.
    pub(crate) fn take_one(&self, class: usize) -> NonNull<u8> {
        let mut object = None;
        self.take(class, 1, |pointer| object = Some(pointer));
        object.expect("take gives at least one")
    }

    /// Takes objects of a class back.
    ///
    /// # Safety
    /// Each came from [`Arena::take`] of this arena and class, is not used any more, and is given back once.
    pub(crate) unsafe fn give_back(&self, class: usize, objects: &[NonNull<u8>]) {
        let region = self.region();
        let cut = &CUTS[class];
        let mut first = lock(&self.classes[class]);
        for object in objects {
            let offset = object.addr().get() - region.base.addr().get();
            let units = SPAN_UNITS[cut.kind as usize];
            let id = (offset / UNIT_BYTES) as u32 & !(units - 1);
            let span = region.span(id);
            let number =
                ((offset - id as usize * UNIT_BYTES) as u32 - cut.offset) / cut.object_bytes;
            let (word, bit) = (number / 64, 1 << (number % 64));
            let bits = region.free_bits(id, word);
            assert!(
                span.class.get() == class as u32 + 1 && bits.load(Relaxed) & bit == 0,
                "an object was freed twice, or with the wrong size"
            );
            bits.store(bits.load(Relaxed) | bit, Relaxed);
            span.hint.set(span.hint.get().min(word));
            span.live.set(span.live.get() - 1);
            if span.live.get() == 0 {
                if span.listed.get() != 0 {
                    self.unlink_span(region, &mut first, id);
                }
                self.close_span(region, id, units);
            } else if span.listed.get() == 0
                && !region.segments[id as usize / UNITS]
                    .evacuating
                    .load(Relaxed)
            {
                self.link_span(region, &mut first, id);
            }
        }
        self.live_bytes
            .fetch_sub(objects.len() * cut.object_bytes as usize, Relaxed);
    }

    fn link_span(&self, region: &Region, first: &mut u32, id: u32) {
        let span = region.span(id);
        span.listed.set(1);
        span.prev.set(NONE);
        span.next.set(*first);
        if *first != NONE {
            region.span(*first).prev.set(id);
        }
        *first = id;
    }

    fn unlink_span(&self, region: &Region, first: &mut u32, id: u32) {
        let span = region.span(id);
        span.listed.set(0);
        let (next, prev) = (span.next.get(), span.prev.get());
        if next != NONE {
            region.span(next).prev.set(prev);
        }
        if prev != NONE {
            region.span(prev).next.set(next);
        } else {
            *first = next;
        }
    }

    /// Makes a new span for a class, all its objects free, in no list.
    fn open_span(&self, region: &Region, class: usize) -> u32 {
        let cut = &CUTS[class];
        let id = self.take_units(region, cut.kind as usize);
        let span = region.span(id);
        span.class.set(class as u32 + 1);
        span.live.set(0);
        span.hint.set(0);
        for word in 0..cut.objects / 64 {
            region.free_bits(id, word).store(u64::MAX, Relaxed);
        }
        if !cut.objects.is_multiple_of(64) {
            region
                .free_bits(id, cut.objects / 64)
                .store((1 << (cut.objects % 64)) - 1, Relaxed);
        }
        id
    }

    fn take_units(&self, region: &Region, kind: usize) -> u32 {
        let mut space = lock(&self.space);
        if space.partial[kind] == NONE {
            let number = self.open_segment(region, &mut space);
            let segment = &region.segments[number as usize];
            segment.kind.set(kind as u32 + 1);
            segment.free.set(every_span(kind));
            link_segment(region, &mut space.partial[kind], number);
        }
        let number = space.partial[kind];
        let segment = &region.segments[number as usize];
        let unit = segment.free.get().trailing_zeros();
        segment.free.set(segment.free.get() & !(1 << unit));
        if segment.free.get() == 0 {
            unlink_segment(region, &mut space.partial[kind], number);
        }
        let units = units_mask(kind) << unit;
        segment.idle.set(segment.idle.get() & !units);
        let fresh = (units & !segment.touched.get()).count_ones() as usize;
        segment.touched.set(segment.touched.get() | units);
        self.mapped_bytes.fetch_add(fresh * UNIT_BYTES, Relaxed);
        number * UNITS as u32 + unit
    }

    fn open_segment(&self, region: &Region, space: &mut Space) -> u32 {
        space.in_use += 1;
        if space.spare != NONE {
            return std::mem::replace(&mut space.spare, NONE);
        }
        let number = if space.released != NONE {
            let number = space.released;
            space.released = region.segments[number as usize].next.get();
            number
        } else {
            assert!(
                (space.fresh as usize) < region.segments.len(),
                "the reserved range of addresses is used up"
            );
            space.fresh += 1;
            space.fresh - 1
        };
        if space.in_use > SMALL_PAGE_SEGMENTS {
            os::advise_huge(segment_base(region, number), SEGMENT_BYTES);
            region.segments[number as usize].touched.set(units_mask(3));
            self.mapped_bytes.fetch_add(SEGMENT_BYTES, Relaxed);
        } else {
            space.small.push(number);
        }
        number
    }

    /// Takes a span's units back; the caller holds its class.
    fn close_span(&self, region: &Region, id: u32, units: u32) {
        region.span(id).class.set(0);
        let number = id / UNITS as u32;
        let segment = &region.segments[number as usize];
        let mut space = lock(&self.space);
        let kind = segment.kind.get() as usize - 1;
        debug_assert_eq!(SPAN_UNITS[kind], units);
        let was_full = segment.free.get() == 0;
        segment
            .free
            .set(segment.free.get() | 1 << (id % UNITS as u32));
        let evacuating = segment.evacuating.load(Relaxed);
        if segment.free.get() != every_span(kind) {
            if was_full && !evacuating {
                link_segment(region, &mut space.partial[kind], number);
            }
            return;
        }
        if !was_full && !evacuating {
            unlink_segment(region, &mut space.partial[kind], number);
        }
        segment.evacuating.store(false, Relaxed);
        segment.kind.set(0);
        space.in_use -= 1;
        if space.spare == NONE && !evacuating {
            space.spare = number;
            space.spare_is_old = false;
            return;
        }
        drop(space);
        self.release_segment(region, number);
    }

    /// Gives an empty segment, which is in no list, back to the operating system.
    fn release_segment(&self, region: &Region, number: u32) {
        let segment = &region.segments[number as usize];
        os::discard(segment_base(region, number), SEGMENT_BYTES);
        self.mapped_bytes.fetch_sub(
            segment.touched.get().count_ones() as usize * UNIT_BYTES,
            Relaxed,
        );
        segment.touched.set(0);
        segment.idle.set(0);
        let mut space = lock(&self.space);
        space.small.retain(|&n| n != number);
        segment.next.set(space.released);
        space.released = number;
    }

    /// Gives back the units of mostly idle segments that were not wanted since the last call: few objects are left
    /// there, too few to be worth an evacuation.
    fn release_idle_units(&self, region: &Region, space: &mut Space) {
        for kind in 0..SPAN_UNITS.len() {
            let mut number = space.partial[kind];
            for _ in 0..IDLE_LOOKS_MAX {
                if number == NONE {
                    break;
                }
                let segment = &region.segments[number as usize];
                // Spans do not overlap, so this sets all units of each.
                let free = segment.free.get().wrapping_mul(units_mask(kind));
                let (touched, before) = (segment.touched.get(), segment.idle.get());
                segment.idle.set(free & touched);
                let idle = free & touched & before;
                if idle.count_ones() * 2 > touched.count_ones() {
                    for unit in (0..UNITS).filter(|unit| idle & 1 << unit != 0) {
                        let id = number * UNITS as u32 + unit as u32;
                        os::discard(region.span_base(id), UNIT_BYTES);
                    }
                    segment.touched.set(touched & !idle);
                    segment.idle.set(0);
                    let bytes = idle.count_ones() as usize * UNIT_BYTES;
                    self.mapped_bytes.fetch_sub(bytes, Relaxed);
                    // If it was a huge page it is none any more.
                    if !space.small.contains(&number) {
                        space.small.push(number);
                    }
                }
                number = segment.next.get();
            }
        }
    }

    /// Does work for a quiet moment: gives back a spare segment and units that were not wanted, and turns at most
    /// `segments_max` full segments of small pages into huge ones.
    pub(crate) fn maintain(&self, segments_max: usize) {
        let Some(region) = self.region.get() else {
            return;
        };
        let mut space = lock(&self.space);
        let mut idle = NONE;
        if space.spare_is_old {
            idle = std::mem::replace(&mut space.spare, NONE);
        }
        space.spare_is_old = space.spare != NONE;
        self.release_idle_units(region, &mut space);
        let mut full = Vec::new();
        space.small.retain(|&number| {
            let is_full =
                full.len() < segments_max && live_bytes_of(region, number) >= SEGMENT_BYTES / 8 * 7;
            if is_full {
                full.push(number);
            }
            !is_full
        });
        drop(space);
        if idle != NONE {
            self.release_segment(region, idle);
        }
        for number in full {
            // A segment emptied meanwhile is only made resident for a moment too long: it is whole when it is released.
            os::collapse(segment_base(region, number), SEGMENT_BYTES);
        }
    }

    /// Returns true if the address lies in a segment that is being emptied.
    #[inline]
    pub(crate) fn is_evacuating(&self, address: usize) -> bool {
        let Some(region) = self.region.get() else {
            return false;
        };
        region
            .segment_of(address)
            .is_some_and(|segment| region.segments[segment].evacuating.load(Relaxed))
    }

    /// Marks the sparsest segments as evacuating, if that can win enough, and returns them.
    pub(crate) fn begin_evacuation(&self) -> Vec<u32> {
        let Some(region) = self.region.get() else {
            return Vec::new();
        };
        let (mapped, live) = (self.mapped_bytes(), self.live_bytes());
        if !self.has_patience(mapped.saturating_sub(live)) || !worth_evacuating(mapped, live) {
            return Vec::new();
        }
        let victims = self.mark_victims(region);
        for &number in &victims {
            for unit in 0..UNITS as u32 {
                let id = number * UNITS as u32 + unit;
                self.with_class_of(region, id, |first, span, _| {
                    // The segment may have become empty meanwhile, and be used anew.
                    let evacuating = region.segments[number as usize].evacuating.load(Relaxed);
                    if evacuating && span.listed.get() != 0 {
                        self.unlink_span(region, first, id);
                    }
                });
            }
        }
        victims
    }

    fn mark_victims(&self, region: &Region) -> Vec<u32> {
        let mut space = lock(&self.space);
        let mut used: Vec<(usize, u32)> = (0..space.fresh)
            .filter(|&number| region.segments[number as usize].kind.get() != 0)
            .map(|number| (live_bytes_of(region, number), number))
            .collect();
        used.sort_unstable();
        let live: usize = used.iter().map(|(bytes, _)| bytes).sum();
        let mapped = used.len() * SEGMENT_BYTES;
        if !worth_evacuating(mapped, live) {
            return Vec::new();
        }
        let mut room = mapped - live;
        let mut moved = 0;
        let mut victims = Vec::new();
        for (bytes, number) in used {
            room -= SEGMENT_BYTES - bytes;
            moved += bytes;
            // A fifth of the room stays free: it is in spans of other classes, or at their ends.
            if moved > room / 5 * 4 {
                break;
            }
            let segment = &region.segments[number as usize];
            segment.evacuating.store(true, Relaxed);
            if segment.free.get() != 0 {
                unlink_segment(
                    region,
                    &mut space.partial[segment.kind.get() as usize - 1],
                    number,
                );
            }
            victims.push(number);
        }
        victims
    }

    /// Returns false after an evacuation that won little, until a quarter more is free (or much less was).
    fn has_patience(&self, free_bytes: usize) -> bool {
        let fruitless = self.fruitless_bytes.load(Relaxed);
        if free_bytes < fruitless / 2 {
            self.fruitless_bytes.store(0, Relaxed);
        }
        free_bytes >= fruitless / 4 * 5
    }

    /// Ends the evacuation of those that are not empty yet.
    pub(crate) fn end_evacuation(&self, victims: &[u32]) {
        let Some(region) = self.region.get() else {
            return;
        };
        let fruitless = self.evacuating(victims) * 4 > victims.len() * 3;
        let free_bytes = self.mapped_bytes().saturating_sub(self.live_bytes());
        self.fruitless_bytes
            .store(if fruitless { free_bytes } else { 0 }, Relaxed);
        for &number in victims {
            let segment = &region.segments[number as usize];
            let mut space = lock(&self.space);
            if !segment.evacuating.swap(false, Relaxed) {
                continue;
            }
            if segment.free.get() != 0 {
                link_segment(
                    region,
                    &mut space.partial[segment.kind.get() as usize - 1],
                    number,
                );
            }
            drop(space);
            for unit in 0..UNITS as u32 {
                let id = number * UNITS as u32 + unit;
                self.with_class_of(region, id, |first, span, cut| {
                    if span.listed.get() == 0 && span.live.get() < cut.objects {
                        self.link_span(region, first, id);
                    }
                });
            }
        }
    }

    /// Returns how many of these segments are still being emptied.
    pub(crate) fn evacuating(&self, victims: &[u32]) -> usize {
        let Some(region) = self.region.get() else {
            return 0;
        };
        victims
            .iter()
            .filter(|&&number| region.segments[number as usize].evacuating.load(Relaxed))
            .count()
    }

    /// Calls a function with a span under its class's mutex, if the units belong to a span.
    fn with_class_of(&self, region: &Region, id: u32, act: impl FnOnce(&mut u32, &Span, &Cut)) {
        let span = region.span(id);
        loop {
            let class = span.class.get();
            if class == 0 {
                return;
            }
            let mut first = lock(&self.classes[class as usize - 1]);
            // Read again: until we had the mutex the span could become one of another class.
            if span.class.get() == class {
                return act(&mut first, span, &CUTS[class as usize - 1]);
            }
        }
    }
}

/// Returns true if a quarter of the memory, and at least four segments' worth, has no objects.
fn worth_evacuating(mapped_bytes: usize, live_bytes: usize) -> bool {
    mapped_bytes.saturating_sub(live_bytes) >= (mapped_bytes / 4).max(4 * SEGMENT_BYTES)
}

/// Returns the free mask of a segment with nothing in it.
fn every_span(kind: usize) -> u32 {
    let step = SPAN_UNITS[kind] as usize;
    (0..UNITS)
        .step_by(step)
        .fold(0, |mask, unit| mask | 1 << unit)
}

fn units_mask(kind: usize) -> u32 {
    u32::MAX >> (UNITS as u32 - SPAN_UNITS[kind])
}

fn segment_base(region: &Region, number: u32) -> NonNull<u8> {
    region.span_base(number * UNITS as u32)
}

/// Returns the number of bytes of the allocated objects of a segment; without the lock, the value may be outdated.
fn live_bytes_of(region: &Region, number: u32) -> usize {
    let spans = &region.segments[number as usize].spans;
    spans
        .iter()
        .filter_map(|span| Some((span.class.get().checked_sub(1)?, span.live.get())))
        .map(|(class, live)| (live * CUTS[class as usize].object_bytes) as usize)
        .sum()
}

fn link_segment(region: &Region, first: &mut u32, number: u32) {
    let segment = &region.segments[number as usize];
    segment.prev.set(NONE);
    segment.next.set(*first);
    if *first != NONE {
        region.segments[*first as usize].prev.set(number);
    }
    *first = number;
}

fn unlink_segment(region: &Region, first: &mut u32, number: u32) {
    let segment = &region.segments[number as usize];
    let (next, prev) = (segment.next.get(), segment.prev.get());
    if next != NONE {
        region.segments[next as usize].prev.set(prev);
    }
    if prev != NONE {
        region.segments[prev as usize].next.set(next);
    } else {
        *first = next;
    }
}
