//! The time series: samples in chunks, under labels, with rules that compact them into other series. Must not know keys,
//! but for the names of other series that rules hold.
//!
//! [`gorilla`] is the compressed form of samples, [`chunk`] a run of them in one form, [`aggregate`] makes one value of many,
//! [`range`] answers queries. This file keeps samples in order: adding, replacing, deleting, retention; and computes what
//! the rules make of a change, which the caller stores.

pub mod aggregate;
pub mod chunk;
pub mod gorilla;
pub mod range;
mod rule;

pub use aggregate::Aggregation;
pub use rule::{Outcome, Rule};

use std::{collections::VecDeque, ops::ControlFlow, sync::Arc};

use crate::{DataType, Digest};
use chunk::Chunk;

/// Sizes of a chunk in bytes, of which a multiple of 8 may be chosen.
pub const CHUNK_BYTES_MIN: u32 = 48;
/// See [`CHUNK_BYTES_MIN`].
pub const CHUNK_BYTES_MAX: u32 = 1_048_576;
/// Bytes of a chunk where none are chosen.
pub const CHUNK_BYTES_DEFAULT: u32 = 4_096;

/// A value at a time.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Sample {
    /// Unix time in milliseconds.
    pub time: u64,
    /// Value: a number.
    pub value: f64,
}

/// Policy for a sample at whose time there is one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Policy {
    /// It is refused.
    Block,
    /// It replaces the one before.
    Last,
    /// The one before stays.
    First,
    /// The smaller value stays.
    Min,
    /// The greater value stays.
    Max,
    /// The values are added.
    Sum,
}

/// Policies with their names; their place is one below the number that files have for them.
const POLICIES: [(Policy, &str); 6] = [
    (Policy::Block, "block"),
    (Policy::Last, "last"),
    (Policy::First, "first"),
    (Policy::Min, "min"),
    (Policy::Max, "max"),
    (Policy::Sum, "sum"),
];

impl Policy {
    /// Returns the policy of this name, in any case.
    pub fn of_name(name: &[u8]) -> Option<Policy> {
        let is_it = |known: &str| name.eq_ignore_ascii_case(known.as_bytes());
        let found = POLICIES.iter().find(|(_, known)| is_it(known));
        found.map(|(policy, _)| *policy)
    }

    /// Returns the policy that has this number in files.
    pub fn of_number(number: u64) -> Option<Policy> {
        let place = usize::try_from(number.checked_sub(1)?).ok()?;
        POLICIES.get(place).map(|(policy, _)| *policy)
    }

    /// Returns the name.
    pub fn name(self) -> &'static str {
        POLICIES[self as usize].1
    }

    /// Returns the number that files have for it.
    pub fn number(self) -> u64 {
        self as u64 + 1
    }

    fn of_two(self, old: f64, new: f64) -> Option<f64> {
        match self {
            Policy::Block => None,
            Policy::Last => Some(new),
            Policy::First => Some(old),
            Policy::Min => Some(old.min(new)),
            Policy::Max => Some(old.max(new)),
            Policy::Sum => Some(old + new),
        }
    }
}

/// A label: a name and a value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Label {
    /// Name.
    pub name: Box<[u8]>,
    /// Value; one that is empty is as if there were no label.
    pub value: Box<[u8]>,
}

/// The properties of a series that are chosen when it is made, most of which can be changed.
#[derive(Clone, Debug, PartialEq)]
pub struct Shape {
    /// Samples older than the last by more are gone; 0: none ever is.
    pub retention_ms: u64,
    /// Bytes of a chunk: a multiple of 8 from [`CHUNK_BYTES_MIN`] to [`CHUNK_BYTES_MAX`].
    pub chunk_bytes: u32,
    /// Chunks are compressed. Stays.
    pub compressed: bool,
    /// Policy for a second sample for a time; `None`: as it is set for all series.
    pub policy: Option<Policy>,
    /// A sample this close to the last one in time and value is ignored, under [`Policy::Last`].
    pub ignore: (u64, f64),
    /// Labels, in their order. Shared, so that a change is seen by its address.
    pub labels: Arc<[Label]>,
}

impl Default for Shape {
    fn default() -> Shape {
        Shape {
            retention_ms: 0,
            chunk_bytes: CHUNK_BYTES_DEFAULT,
            compressed: true,
            policy: None,
            ignore: (0, 0.0),
            labels: Arc::default(),
        }
    }
}

/// Why a sample was not added.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refused {
    /// It is older than the retention.
    TooOld,
    /// There is one at its time, and the policy is [`Policy::Block`].
    Blocked,
}

/// Outcome of a sample that was not refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Added {
    /// It is the last one now.
    Last,
    /// It, or what the policy made of it, is among the others.
    Amid,
    /// It was so close to the last one that it is ignored.
    Ignored,
}

/// Samples with growing times. See the head of this file.
#[derive(Clone, Debug)]
pub struct Series {
    name: Box<[u8]>,
    shape: Shape,
    /// Chunks in order, none of which is empty.
    chunks: VecDeque<Chunk>,
    /// Samples in all chunks, also those before the retention.
    samples: u64,
    /// Last sample; zeros if there is none.
    last: Sample,
    /// Name of the series whose rule writes this one.
    source: Option<Box<[u8]>>,
    rules: Vec<Rule>,
    /// Bytes of the chunks on the heap.
    chunk_heap_bytes: usize,
}

impl Default for Series {
    fn default() -> Series {
        Series::new(b"", Shape::default())
    }
}

impl DataType for Series {
    const NAME: &'static str = "TSDB-TYPE";
    const STAYS_EMPTY: bool = true;

    fn encoding(&self) -> &'static str {
        "raw"
    }

    fn len(&self) -> usize {
        self.samples as usize
    }

    fn heap_bytes(&self) -> usize {
        let text = |label: &Label| size_of::<Label>() + label.name.len() + label.value.len();
        let labels = self.shape.labels.iter().map(text).sum::<usize>();
        let rules = self.rules.iter().map(Rule::heap_bytes).sum::<usize>();
        size_of::<Self>()
            + self.name.len()
            + self.source.as_ref().map_or(0, |source| source.len())
            + labels
            + rules
            + self.chunks.capacity() * size_of::<Chunk>()
            + self.chunk_heap_bytes
    }

    fn free_effort(&self) -> usize {
        self.chunks.len() + self.shape.labels.len() * 2
    }

    fn forget_others(&mut self) {
        self.unlink();
    }

    fn labels(&self) -> Option<&Arc<[Label]>> {
        Some(&self.shape.labels)
    }

    fn digest<D: Digest>(&self, digest: &mut D) {
        let mut part = D::default();
        part.mix(self.shape.retention_ms.to_string().as_bytes());
        part.mix(self.samples.to_string().as_bytes());
        for label in self.shape.labels.iter() {
            part.mix(&label.name);
            part.mix(&label.value);
        }
        self.chunks.iter().for_each(|chunk| {
            chunk.for_each(|sample| {
                part.mix(sample.time.to_string().as_bytes());
                part.mix_f64(sample.value);
            });
        });
        digest.combine_part(&part);
    }
}

/// A series as files have it: everything but what follows from the samples.
#[derive(Clone, Debug)]
pub struct Parts {
    /// Name under which it was made.
    pub name: Box<[u8]>,
    /// Properties.
    pub shape: Shape,
    /// Name of the series whose rule writes this one.
    pub source: Option<Box<[u8]>>,
    /// Rules.
    pub rules: Vec<Rule>,
    /// Chunks in order, none of which is empty.
    pub chunks: Vec<Chunk>,
}

impl Series {
    /// Returns a series without samples. `name` is that of its key, for files.
    pub fn new(name: &[u8], shape: Shape) -> Series {
        Series {
            name: name.into(),
            shape,
            chunks: VecDeque::new(),
            samples: 0,
            last: Sample {
                time: 0,
                value: 0.0,
            },
            source: None,
            rules: Vec::new(),
            chunk_heap_bytes: 0,
        }
    }

    /// Returns the series that a file has; `None` if its chunks are out of order, or one has the other form.
    pub fn restore(parts: Parts) -> Option<Series> {
        let is_sound = |chunk: &Chunk| {
            !chunk.is_empty() && matches!(chunk, Chunk::Compressed(_)) == parts.shape.compressed
        };
        let in_order = |a: &Chunk, b: &Chunk| a.last_time() < b.first_time();
        if !parts.chunks.iter().all(is_sound) || !parts.chunks.is_sorted_by(in_order) {
            return None;
        }
        let mut series = Series::new(&parts.name, parts.shape);
        series.chunk_heap_bytes = parts.chunks.iter().map(Chunk::heap_bytes).sum();
        series.samples = parts.chunks.iter().map(|chunk| chunk.len() as u64).sum();
        series.chunks = parts.chunks.into();
        series.rules = parts.rules;
        series.source = parts.source;
        series.note_last();
        series.rebuild_lines();
        Some(series)
    }

    /// Returns the name under which it was made.
    pub fn name(&self) -> &[u8] {
        &self.name
    }

    /// Returns the properties.
    pub fn shape(&self) -> &Shape {
        &self.shape
    }

    /// Changes the properties, but for the form of chunks.
    pub fn reshape(&mut self, shape: Shape) {
        let compressed = self.shape.compressed;
        self.shape = Shape {
            compressed,
            ..shape
        };
    }

    /// Returns the chunks in order.
    pub fn chunks(&self) -> impl ExactSizeIterator<Item = &Chunk> {
        self.chunks.iter()
    }

    /// Returns the last sample.
    pub fn last(&self) -> Option<Sample> {
        (self.samples > 0).then_some(self.last)
    }

    /// Returns the time before which samples count as gone.
    fn oldest_time(&self) -> u64 {
        match self.shape.retention_ms {
            0 => 0,
            retention_ms => self.last.time.saturating_sub(retention_ms),
        }
    }

    /// Returns the number of samples that are not older than the retention, and the first of them.
    pub fn live(&self) -> (u64, Option<Sample>) {
        let oldest = self.oldest_time();
        let (mut gone, mut first) = (0, None);
        for chunk in &self.chunks {
            if chunk.last_time() < oldest {
                gone += chunk.len() as u64;
                continue;
            }
            chunk.for_each(|sample| {
                if sample.time < oldest {
                    gone += 1;
                } else if first.is_none() {
                    first = Some(sample);
                }
            });
            break;
        }
        (self.samples - gone, first)
    }

    /// Passes on the samples of a range that are not older than the retention, until `visit` breaks.
    pub fn visit(
        &self,
        from: u64,
        to: u64,
        reverse: bool,
        mut visit: impl FnMut(Sample) -> ControlFlow<()>,
    ) {
        let from = from.max(self.oldest_time());
        let first = self
            .chunks
            .partition_point(|chunk| chunk.last_time() < from);
        let end = self
            .chunks
            .partition_point(|chunk| chunk.first_time() <= to);
        let in_range = |sample: &Sample| (from..=to).contains(&sample.time);
        let mut visit_chunk = |chunk: &Chunk| {
            if reverse {
                let samples = chunk.samples();
                samples
                    .into_iter()
                    .rev()
                    .filter(in_range)
                    .try_for_each(&mut visit)
            } else {
                match chunk {
                    Chunk::Compressed(chunk) => {
                        chunk.iter().filter(in_range).try_for_each(&mut visit)
                    }
                    Chunk::Plain(chunk) => {
                        let samples = chunk.samples().iter().copied();
                        samples.filter(in_range).try_for_each(&mut visit)
                    }
                }
            }
        };
        if first >= end {
            return;
        }
        let mut chunks = self.chunks.range(first..end);
        let _ = match reverse {
            false => chunks.try_for_each(&mut visit_chunk),
            true => chunks.rev().try_for_each(&mut visit_chunk),
        };
    }

    /// Adds a sample; `policy` decides where there is one at its time.
    ///
    /// # Errors
    ///
    /// If it is too old, or blocked; nothing has changed then.
    pub fn add(&mut self, sample: Sample, policy: Policy) -> Result<Added, Refused> {
        if self.samples == 0 || sample.time > self.last.time {
            if self.is_ignored(sample, policy) {
                return Ok(Added::Ignored);
            }
            self.push(sample);
            return Ok(Added::Last);
        }
        if self.shape.retention_ms > 0 && sample.time < self.oldest_time() {
            return Err(Refused::TooOld);
        }
        if self.is_ignored(sample, policy) {
            return Ok(Added::Ignored);
        }
        self.put(sample, policy)?;
        Ok(Added::Amid)
    }

    fn is_ignored(&self, sample: Sample, policy: Policy) -> bool {
        let (time_max, value_max) = self.shape.ignore;
        policy == Policy::Last
            && self.samples > 0
            && sample.time >= self.last.time
            && (time_max > 0 || value_max > 0.0)
            && sample.time - self.last.time <= time_max
            && (sample.value - self.last.value).abs() <= value_max
    }

    /// Appends a sample behind the last.
    fn push(&mut self, sample: Sample) {
        let mut fits = false;
        if let Some(chunk) = self.chunks.back_mut() {
            let before = chunk.heap_bytes();
            fits = chunk.push(sample);
            if !fits {
                chunk.shrink();
            }
            self.chunk_heap_bytes = self.chunk_heap_bytes + chunk.heap_bytes() - before;
        }
        (self.last, self.samples) = (sample, self.samples + 1);
        if !fits {
            self.trim();
            let mut chunk = Chunk::new(self.shape.compressed, self.shape.chunk_bytes);
            assert!(chunk.push(sample), "an empty chunk has room for a sample");
            self.chunk_heap_bytes += chunk.heap_bytes();
            self.chunks.push_back(chunk);
        }
    }

    /// Drops the chunks that are older than the retention.
    fn trim(&mut self) {
        let oldest = self.oldest_time();
        while let Some(chunk) = self.chunks.front()
            && chunk.last_time() < oldest
        {
            self.samples -= chunk.len() as u64;
            self.chunk_heap_bytes -= chunk.heap_bytes();
            self.chunks.pop_front();
        }
    }

    /// Puts a sample among the others, or in the place of one.
    fn put(&mut self, sample: Sample, policy: Policy) -> Result<(), Refused> {
        // In the chunk that has its time, or the last one before it, or the first.
        let behind = self
            .chunks
            .partition_point(|chunk| chunk.first_time() <= sample.time);
        let place = behind.saturating_sub(1);
        let mut samples = self.chunks[place].samples();
        match samples.binary_search_by_key(&sample.time, |sample| sample.time) {
            Ok(at) => {
                let value = policy.of_two(samples[at].value, sample.value);
                samples[at].value = value.ok_or(Refused::Blocked)?;
            }
            Err(at) => samples.insert(at, sample),
        }
        self.exchange(place, &samples);
        Ok(())
    }

    /// Puts samples in the place of those of a chunk.
    fn exchange(&mut self, place: usize, samples: &[Sample]) {
        let old = self.chunks.remove(place).expect("there is such a chunk");
        self.chunk_heap_bytes -= old.heap_bytes();
        self.samples -= old.len() as u64;
        drop(old);
        if !samples.is_empty() {
            let (compressed, bytes) = (self.shape.compressed, self.shape.chunk_bytes);
            let fresh = Chunk::of(compressed, bytes, samples);
            for (at, chunk) in (place..).zip(fresh) {
                self.chunk_heap_bytes += chunk.heap_bytes();
                self.samples += chunk.len() as u64;
                self.chunks.insert(at, chunk);
            }
        }
        self.note_last();
    }

    fn note_last(&mut self) {
        let last = self.chunks.back().and_then(Chunk::last);
        self.last = last.unwrap_or(Sample {
            time: 0,
            value: 0.0,
        });
    }

    /// Deletes the samples of a range; returns their number.
    pub fn delete(&mut self, from: u64, to: u64) -> u64 {
        let before = self.samples;
        if from > to {
            return 0;
        }
        let mut place = self
            .chunks
            .partition_point(|chunk| chunk.last_time() < from);
        while let Some(chunk) = self.chunks.get(place)
            && chunk.first_time() <= to
        {
            let mut samples = chunk.samples();
            samples.retain(|sample| !(from..=to).contains(&sample.time));
            let (kept, chunks) = (samples.len() == chunk.len(), self.chunks.len());
            if kept {
                place += 1;
                continue;
            }
            self.exchange(place, &samples);
            place += (self.chunks.len() + 1).saturating_sub(chunks);
        }
        before - self.samples
    }

    /// Returns the name of the series whose rule writes this one.
    pub fn source(&self) -> Option<&[u8]> {
        self.source.as_deref()
    }

    /// Sets that name.
    pub fn set_source(&mut self, source: Option<&[u8]>) {
        self.source = source.map(Into::into);
    }

    /// Returns the rules.
    pub fn rules(&self) -> &[Rule] {
        &self.rules
    }

    /// Adds a rule.
    pub fn add_rule(&mut self, rule: Rule) {
        self.rules.push(rule);
    }

    /// Removes the rules with this target; returns true if there was one.
    pub fn remove_rule(&mut self, target: &[u8]) -> bool {
        let before = self.rules.len();
        self.rules.retain(|rule| rule.target() != target);
        self.rules.len() < before
    }

    /// Forgets the source and the rules, as a copy does.
    pub fn unlink(&mut self) {
        self.source = None;
        self.rules.clear();
    }
}

#[cfg(test)]
mod tests;
