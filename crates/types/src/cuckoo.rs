//! The cuckoo filter that grows: a filter from which items can be deleted. Each layer has buckets of fingerprints of one
//! byte; an item belongs into one of two buckets, which its hash and its fingerprint name. Must not know keys, commands,
//! or how it is written to a file.
//!
//! Hash, buckets, the order in which places are tried and fingerprints are moved are those of RedisBloom: the same calls
//! make the same bytes, here and there, and nothing is drawn at random.

use std::ops::Range;

use crate::{DataType, Digest, bloom::Fields, limits::SKETCH_BYTES_MAX, murmur};

/// Most layers of a filter: `cf-max-expansions` cannot be more.
pub const LAYERS_MAX: usize = 65_536;
/// Bytes of [`Cuckoo::header`].
const HEADER_BYTES: usize = 38;
/// Share of items whose deletion makes a filter of several layers move items to older ones.
const COMPACT_SHARE: f64 = 0.10;
/// Fingerprint of a free place.
const FREE: u8 = 0;

/// The shape of a filter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shape {
    /// Number of buckets of the first layer.
    pub buckets: u64,
    /// Number of fingerprints in a bucket, from 1 to 255.
    pub bucket_size: u16,
    /// Number of fingerprints that adding one may move.
    pub iterations_max: u16,
    /// Factor by which each layer is larger than the one before; 0: there is only one.
    pub expansion: u16,
}

/// A cuckoo filter. See the head of this file.
#[derive(Clone, Debug)]
pub struct Cuckoo {
    shape: Shape,
    items: u64,
    deletions: u64,
    layers: Vec<Layer>,
    /// Of all layers together.
    places: usize,
}

/// Buckets, one behind the other.
#[derive(Clone, Debug)]
pub struct Layer {
    /// Number of buckets.
    pub buckets: u64,
    /// The fingerprints.
    pub places: Box<[u8]>,
}

/// Result of adding an item.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Added {
    /// It was added.
    Yes,
    /// It was found, and only one that is not found was to be added.
    Found,
    /// There is no room, and the filter does not grow.
    Full,
    /// A further layer would go beyond [`SKETCH_BYTES_MAX`].
    TooLarge,
}

/// The places at which an item can be.
#[derive(Clone, Copy)]
struct Item {
    first: u64,
    second: u64,
    fingerprint: u8,
}

impl Item {
    fn of(bytes: &[u8]) -> Item {
        let hash = murmur::hash_64(bytes, 0);
        Item::at(hash, (hash % 255 + 1) as u8)
    }

    fn at(bucket: u64, fingerprint: u8) -> Item {
        Item {
            first: bucket,
            second: other_bucket(fingerprint, bucket),
            fingerprint,
        }
    }
}

/// Returns the other bucket of a fingerprint.
fn other_bucket(fingerprint: u8, bucket: u64) -> u64 {
    const SPREAD: u64 = 0x5bd1_e995;
    bucket ^ (u64::from(fingerprint) * SPREAD)
}

/// Returns the least power of two that is no smaller; 0 for 0.
fn power_of_two(number: u64) -> u64 {
    match number {
        0 => 0,
        number => number.next_power_of_two(),
    }
}

impl Layer {
    /// Returns a layer without an item; `None` if it has no place or would have more than `places_max`.
    fn new(buckets: u64, bucket_size: u16, places_max: u64) -> Option<Layer> {
        let places = buckets.checked_mul(bucket_size.into())?;
        (1..=places_max.min(u32::MAX.into()))
            .contains(&places)
            .then(|| Layer {
                buckets,
                places: vec![FREE; places as usize].into(),
            })
    }

    #[inline]
    fn bucket_size(&self) -> usize {
        match self.buckets.is_power_of_two() {
            true => self.places.len() >> self.buckets.trailing_zeros(),
            false => self.places.len() / self.buckets as usize,
        }
    }

    /// Returns the places of the bucket of a hash. Most layers have a power of two of buckets, so that nothing is divided.
    #[inline]
    fn range(&self, hash: u64) -> Range<usize> {
        let bucket = match self.buckets.is_power_of_two() {
            true => hash & (self.buckets - 1),
            false => hash % self.buckets,
        };
        let size = self.bucket_size();
        let start = bucket as usize * size;
        start..start + size
    }

    #[inline]
    fn bucket(&self, hash: u64) -> &[u8] {
        &self.places[self.range(hash)]
    }

    #[inline]
    fn bucket_mut(&mut self, hash: u64) -> &mut [u8] {
        let range = self.range(hash);
        &mut self.places[range]
    }

    /// Replaces the first fingerprint of that value in one of an item's buckets; returns true if there was one.
    fn replace(&mut self, item: Item, from: u8, to: u8) -> bool {
        [item.first, item.second].into_iter().any(|hash| {
            let bucket = self.bucket_mut(hash);
            let found = bucket.iter_mut().find(|place| **place == from);
            found.map(|place| *place = to).is_some()
        })
    }

    fn contains(&self, item: Item) -> bool {
        self.bucket(item.first).contains(&item.fingerprint)
            || self.bucket(item.second).contains(&item.fingerprint)
    }

    fn count(&self, item: Item) -> u64 {
        let buckets = [item.first, item.second].map(|hash| self.bucket(hash));
        let all = buckets.into_iter().flatten();
        all.filter(|place| **place == item.fingerprint).count() as u64
    }

    /// Adds an item to full buckets by moving others to their other bucket; returns false, and leaves all as it was, if
    /// that needs more than `iterations_max` moves.
    fn displace(&mut self, item: Item, iterations_max: u16) -> bool {
        let size = self.bucket_size();
        let mut fingerprint = item.fingerprint;
        let mut victim = 0;
        let mut bucket = item.first % self.buckets;
        for _ in 0..iterations_max {
            std::mem::swap(&mut self.bucket_mut(bucket)[victim], &mut fingerprint);
            bucket = other_bucket(fingerprint, bucket) % self.buckets;
            let places = self.bucket_mut(bucket);
            if let Some(free) = places.iter_mut().find(|place| **place == FREE) {
                *free = fingerprint;
                return true;
            }
            victim = (victim + 1) % size;
        }
        for _ in 0..iterations_max {
            victim = (victim + size - 1) % size;
            bucket = other_bucket(fingerprint, bucket) % self.buckets;
            std::mem::swap(&mut self.bucket_mut(bucket)[victim], &mut fingerprint);
        }
        false
    }
}

impl Shape {
    /// Returns the shape of a filter that has room for `capacity` items.
    pub fn for_capacity(
        capacity: u64,
        bucket_size: u16,
        iterations_max: u16,
        expansion: u16,
    ) -> Shape {
        let buckets = capacity / u64::from(bucket_size.max(1));
        Shape {
            buckets: power_of_two(buckets.min(1 << 62)).max(1),
            bucket_size,
            iterations_max,
            expansion: power_of_two(expansion.into()).min(1 << 15) as u16,
        }
    }

    /// Returns the number of buckets of a layer; `None` if there is no such number.
    fn buckets_of(&self, layer: usize) -> Option<u64> {
        let growth = u64::from(self.expansion).checked_pow(u32::try_from(layer).ok()?)?;
        self.buckets.checked_mul(growth)
    }
}

impl Cuckoo {
    /// Returns an empty filter; `None` if the shape makes none, or one beyond [`SKETCH_BYTES_MAX`].
    pub fn new(shape: Shape) -> Option<Cuckoo> {
        let layer = Layer::new(shape.buckets, shape.bucket_size, SKETCH_BYTES_MAX)?;
        Cuckoo::restore(shape, 0, 0, vec![layer])
    }

    /// Returns the filter of these parts; `None` if they make none.
    pub fn restore(shape: Shape, items: u64, deletions: u64, layers: Vec<Layer>) -> Option<Cuckoo> {
        let fits = |layer: &Layer| {
            let places = layer.buckets.checked_mul(shape.bucket_size.into());
            (1..=u64::from(u32::MAX)).contains(&layer.buckets)
                && places == Some(layer.places.len() as u64)
        };
        let is_sound = (1..=255).contains(&shape.bucket_size)
            && shape.buckets > 0
            && i64::try_from(items).is_ok()
            && i64::try_from(deletions).is_ok()
            && (1..=LAYERS_MAX).contains(&layers.len())
            && layers.iter().all(fits);
        is_sound.then(|| Cuckoo {
            shape,
            items,
            deletions,
            places: layers.iter().map(|layer| layer.places.len()).sum(),
            layers,
        })
    }

    /// Returns the shape.
    pub fn shape(&self) -> Shape {
        self.shape
    }

    /// Returns the number of items in the filter.
    pub fn items(&self) -> u64 {
        self.items
    }

    /// Returns the number of items that were deleted since items were last moved to older layers.
    pub fn deletions(&self) -> u64 {
        self.deletions
    }

    /// Returns the layers, the oldest first.
    pub fn layers(&self) -> &[Layer] {
        &self.layers
    }

    /// Returns the number of fingerprints for which there is room in all layers.
    pub fn places(&self) -> usize {
        self.places
    }

    /// Returns false if the item is not in the filter.
    pub fn contains(&self, item: &[u8]) -> bool {
        let item = Item::of(item);
        self.layers.iter().any(|layer| layer.contains(item))
    }

    /// Returns how often an item is in the filter, at most.
    pub fn count(&self, item: &[u8]) -> u64 {
        let item = Item::of(item);
        self.layers.iter().map(|layer| layer.count(item)).sum()
    }

    /// Adds an item, in a further layer if there is no room; with `if_absent` only if it is not found.
    pub fn add(&mut self, item: &[u8], if_absent: bool) -> Added {
        let item = Item::of(item);
        if if_absent && self.layers.iter().any(|layer| layer.contains(item)) {
            return Added::Found;
        }
        let mut layers = self.layers.iter_mut().rev();
        let mut added = layers.any(|layer| layer.replace(item, FREE, item.fingerprint));
        if !added && let Some(last) = self.layers.last_mut() {
            added = last.displace(item, self.shape.iterations_max);
        }
        if !added {
            if self.shape.expansion == 0 {
                return Added::Full;
            }
            let Some(mut layer) = self.next_layer() else {
                return Added::TooLarge;
            };
            layer.replace(item, FREE, item.fingerprint);
            self.places += layer.places.len();
            self.layers.push(layer);
        }
        self.items += 1;
        Added::Yes
    }

    fn next_layer(&self) -> Option<Layer> {
        if self.layers.len() >= LAYERS_MAX {
            return None;
        }
        let buckets = self.shape.buckets_of(self.layers.len())?;
        let room = SKETCH_BYTES_MAX.saturating_sub(self.places as u64);
        Layer::new(buckets, self.shape.bucket_size, room)
    }

    /// Deletes an item once; returns true if it was found.
    pub fn delete(&mut self, item: &[u8]) -> bool {
        let item = Item::of(item);
        let mut layers = self.layers.iter_mut().rev();
        if !layers.any(|layer| layer.replace(item, item.fingerprint, FREE)) {
            return false;
        }
        self.items = self.items.saturating_sub(1);
        self.deletions = self.deletions.saturating_add(1);
        let is_much = self.deletions as f64 > self.items as f64 * COMPACT_SHARE;
        if self.layers.len() > 1 && is_much {
            self.compact_layers(false);
        }
        true
    }

    /// Moves items from younger to older layers, and drops layers that are empty then. `goes_on`: also from the layers
    /// below one that could not be emptied.
    pub fn compact_layers(&mut self, goes_on: bool) {
        for at in (1..self.layers.len()).rev() {
            let is_empty = self.empty_layer(at);
            if is_empty && at + 1 == self.layers.len() {
                self.places -= self.layers[at].places.len();
                self.layers.pop();
            }
            if !is_empty && !goes_on {
                break;
            }
        }
        self.deletions = 0;
    }

    /// Moves the items of a layer to older ones; returns true if all found a place.
    fn empty_layer(&mut self, at: usize) -> bool {
        let (older, layer) = self.layers.split_at_mut(at);
        let size = layer[0].bucket_size();
        let mut is_empty = true;
        for (index, place) in layer[0].places.iter_mut().enumerate() {
            if *place == FREE {
                continue;
            }
            let item = Item::at((index / size) as u64, *place);
            let moved = older
                .iter_mut()
                .any(|layer| layer.replace(item, FREE, *place));
            if moved {
                *place = FREE;
            }
            is_empty &= moved;
        }
        is_empty
    }

    /// Returns everything but the fingerprints, in the form of CF.SCANDUMP.
    pub fn header(&self) -> Vec<u8> {
        let mut header = Vec::with_capacity(HEADER_BYTES);
        header.extend(self.items.to_le_bytes());
        header.extend(self.shape.buckets.to_le_bytes());
        header.extend(self.deletions.to_le_bytes());
        header.extend((self.layers.len() as u64).to_le_bytes());
        header.extend(self.shape.bucket_size.to_le_bytes());
        header.extend(self.shape.iterations_max.to_le_bytes());
        header.extend(self.shape.expansion.to_le_bytes());
        header
    }

    /// Returns true if the bytes are as many as a header has.
    pub fn has_header_len(header: &[u8]) -> bool {
        header.len() == HEADER_BYTES
    }

    /// Returns the filter that [`Cuckoo::header`] describes, without an item; `None` if it describes none, or one beyond
    /// [`SKETCH_BYTES_MAX`].
    pub fn from_header(header: &[u8]) -> Option<Cuckoo> {
        if !Cuckoo::has_header_len(header) {
            return None;
        }
        let mut fields = Fields(header);
        let (items, buckets) = (fields.u64()?, fields.u64()?);
        let (deletions, count) = (fields.u64()?, fields.u64()?);
        let shape = Shape {
            buckets,
            bucket_size: fields.u16()?,
            iterations_max: fields.u16()?,
            expansion: fields.u16()?,
        };
        let count = usize::try_from(count).ok();
        let count = count.filter(|count| (1..=LAYERS_MAX).contains(count))?;
        let mut room = SKETCH_BYTES_MAX;
        let mut sizes = Vec::new();
        for at in 0..count {
            let size = shape.buckets_of(at)?;
            room = room.checked_sub(size.checked_mul(shape.bucket_size.into())?)?;
            sizes.push(size);
        }
        // Every item has a place: a filter that is larger than it ever needed to be is not one that was dumped.
        let layers = sizes.into_iter();
        let layers = layers.map(|size| Layer::new(size, shape.bucket_size, SKETCH_BYTES_MAX));
        let filter = Cuckoo::restore(shape, items, deletions, layers.collect::<Option<_>>()?)?;
        (items <= filter.places as u64).then_some(filter)
    }

    /// Returns the fingerprints of a layer from a position on, which counts from 1 over all layers, at most `len_max` of
    /// them, and the position behind them; `None` behind the last layer.
    pub fn chunk(&self, position: i64, len_max: usize) -> Option<(i64, &[u8])> {
        let mut at = usize::try_from(position).ok()?.checked_sub(1)?;
        for layer in &self.layers {
            if at < layer.places.len() {
                let rest = &layer.places[at..];
                let chunk = &rest[..rest.len().min(len_max)];
                return Some((position + chunk.len() as i64, chunk));
            }
            at -= layer.places.len();
        }
        None
    }

    /// Sets the fingerprints of a layer before a position, as [`Cuckoo::chunk`] returned both; returns false, and leaves
    /// all as it was, if no layer has them.
    pub fn load_chunk(&mut self, position: i64, chunk: &[u8]) -> bool {
        let at = usize::try_from(position).ok();
        let at = at.and_then(|behind| behind.checked_sub(chunk.len())?.checked_sub(1));
        let Some(mut at) = at.filter(|_| !chunk.is_empty()) else {
            return false;
        };
        for layer in &mut self.layers {
            if at < layer.places.len() {
                let place = layer.places[at..].get_mut(..chunk.len());
                return place.map(|place| place.copy_from_slice(chunk)).is_some();
            }
            at -= layer.places.len();
        }
        false
    }
}

impl Default for Cuckoo {
    fn default() -> Cuckoo {
        Cuckoo::new(Shape::for_capacity(1_024, 2, 20, 1)).expect("a small filter")
    }
}

impl DataType for Cuckoo {
    const NAME: &'static str = "MBbloomCF";
    const STAYS_EMPTY: bool = true;

    fn encoding(&self) -> &'static str {
        "raw"
    }

    fn len(&self) -> usize {
        self.items as usize
    }

    fn heap_bytes(&self) -> usize {
        size_of::<Self>() + self.layers.capacity() * size_of::<Layer>() + self.places
    }

    fn free_effort(&self) -> usize {
        /// Giving back a run of pages takes about as long as so many bytes for each allocation.
        const BYTES: usize = 64 * 1024;
        1 + self.layers.len() + self.places / BYTES
    }

    fn digest<D: Digest>(&self, digest: &mut D) {
        digest.mix(&self.header());
        for layer in &self.layers {
            digest.mix(&layer.places);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn item(n: u64) -> [u8; 8] {
        n.to_le_bytes()
    }

    fn filter(capacity: u64, bucket_size: u16, expansion: u16) -> Cuckoo {
        Cuckoo::new(Shape::for_capacity(capacity, bucket_size, 20, expansion)).unwrap()
    }

    #[test]
    fn what_was_added_is_found_until_it_is_deleted() {
        let mut cuckoo = filter(64, 2, 2);
        let count = 20_000;
        for n in 0..count {
            assert_eq!(cuckoo.add(&item(n), false), Added::Yes);
        }
        assert!((0..count).all(|n| cuckoo.contains(&item(n))));
        for n in 0..count / 2 {
            assert!(cuckoo.delete(&item(n)));
        }
        assert!((count / 2..count).all(|n| cuckoo.contains(&item(n))));
        assert_eq!(cuckoo.items(), count / 2);
        (count / 2..count).for_each(|n| assert!(cuckoo.delete(&item(n))));
        assert_eq!((cuckoo.items(), cuckoo.layers().len()), (0, 1));
        assert!(cuckoo.layers()[0].places.iter().all(|place| *place == FREE));
        assert_eq!(cuckoo.places(), cuckoo.layers()[0].places.len());
    }

    #[test]
    fn errors_are_as_rare_as_buckets_and_layers_make_them() {
        let mut cuckoo = filter(1 << 16, 2, 1);
        let count = 30_000;
        (0..count).for_each(|n| assert_eq!(cuckoo.add(&item(n), false), Added::Yes));
        assert_eq!(cuckoo.layers().len(), 1);
        let errors = (count..4 * count).filter(|n| cuckoo.contains(&item(*n)));
        let errors = errors.count() as f64 / (3 * count) as f64;
        // Two buckets of two places, each with one of 255 fingerprints if it is taken.
        let most = 2.0 * 2.0 / 255.0;
        assert!(errors < 1.2 * most, "{errors}");
    }

    #[test]
    #[ignore = "a minute: cargo test -p redline-types --lib -- --ignored ten_million"]
    fn of_ten_million_items_all_are_found_and_errors_are_as_rare_as_places_make_them() {
        let count = 10_000_000;
        for (capacity, expansion) in [(count, 1), (1 << 20, 2)] {
            let mut cuckoo = filter(capacity, 2, expansion);
            (0..count).for_each(|n| assert_eq!(cuckoo.add(&item(n), false), Added::Yes));
            let lost = (0..count).filter(|n| !cuckoo.contains(&item(*n))).count();
            let errors = (count..2 * count).filter(|n| cuckoo.contains(&item(*n)));
            let errors = errors.count() as f64 / count as f64;
            // Each layer has four places for an item, with one of 255 fingerprints if it is taken.
            let most = 4.0 / 255.0 * cuckoo.layers().len() as f64;
            let layers = cuckoo.layers().len();
            println!("cuckoo, {layers} layers, at most {most}: {lost} lost, errors {errors}");
            assert_eq!(lost, 0);
            assert!(errors < 1.2 * most, "{errors}");
        }
    }

    #[test]
    fn what_finds_no_place_changes_nothing() {
        let mut cuckoo = filter(4, 1, 0);
        let mut n = 0;
        while cuckoo.items() < 4 {
            cuckoo.add(&item(n), false);
            n += 1;
        }
        let before = cuckoo.layers()[0].places.clone();
        for n in n..n + 50 {
            assert_eq!(cuckoo.add(&item(n), false), Added::Full);
        }
        assert_eq!(cuckoo.layers()[0].places, before);
    }

    #[test]
    fn only_what_is_absent_is_added_if_so_asked() {
        let mut cuckoo = Cuckoo::default();
        assert_eq!(cuckoo.add(b"a", true), Added::Yes);
        assert_eq!(cuckoo.add(b"a", true), Added::Found);
        assert_eq!(cuckoo.add(b"a", false), Added::Yes);
        assert_eq!(cuckoo.count(b"a"), 2);
    }

    #[test]
    fn a_filter_moves_by_header_and_chunks() {
        let mut cuckoo = filter(8, 2, 2);
        (0..100).for_each(|n| assert_eq!(cuckoo.add(&item(n), false), Added::Yes));
        let mut moved = Cuckoo::from_header(&cuckoo.header()).unwrap();
        let mut position = 1;
        while let Some((next, chunk)) = cuckoo.chunk(position, 7) {
            assert!(moved.load_chunk(next, chunk));
            position = next;
        }
        assert!((0..100).all(|n| moved.contains(&item(n))));
        assert_eq!(moved.header(), cuckoo.header());
        for (position, chunk) in [(0, "x"), (1, "x"), (-3, "x"), (5, ""), (i64::MAX, "x")] {
            assert!(!moved.load_chunk(position, chunk.as_bytes()), "{position}");
        }
    }

    #[test]
    fn what_makes_no_filter_is_refused_before_memory_is_asked_for() {
        let shape = |buckets, bucket_size| Shape {
            buckets,
            bucket_size,
            iterations_max: 20,
            expansion: 1,
        };
        assert!(Cuckoo::new(shape(0, 2)).is_none());
        assert!(Cuckoo::new(shape(1 << 40, 2)).is_none());
        assert!(Cuckoo::new(shape(u64::MAX, 2)).is_none());
        assert!(Cuckoo::new(shape(1, 0)).is_none());
        assert!(Cuckoo::new(shape(1, 256)).is_none());
        let mut header = Cuckoo::default().header();
        header[24..32].copy_from_slice(&u64::MAX.to_le_bytes());
        assert!(Cuckoo::from_header(&header).is_none());
    }

    #[test]
    fn no_header_is_believed() {
        let header = Cuckoo::default().header();
        for at in 0..header.len() {
            for value in [0, 1, 0x7f, 0x80, 0xff] {
                let mut damaged = header.clone();
                damaged[at] = value;
                if let Some(mut cuckoo) = Cuckoo::from_header(&damaged) {
                    cuckoo.add(b"x", false);
                    assert!(cuckoo.contains(b"x"));
                    cuckoo.delete(b"x");
                }
            }
        }
    }
}
