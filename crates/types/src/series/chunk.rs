//! A run of samples in one of two forms, compressed or as they are. Must not know series, queries or files.

use super::{Sample, gorilla::Compressed};

/// Bytes of a sample that is stored as it is.
pub const SAMPLE_BYTES: usize = 16;

/// Samples with growing times, in one form.
#[derive(Clone, Debug)]
pub enum Chunk {
    /// In Gorilla's form.
    Compressed(Compressed),
    /// As they are.
    Plain(Plain),
}

/// Samples as they are.
#[derive(Clone, Debug)]
pub struct Plain {
    /// Bytes that they may take.
    size: u32,
    samples: Vec<Sample>,
}

impl Plain {
    /// Returns a chunk of these samples, which may take so many bytes. `None` if they take more, or a time is not above the
    /// one before.
    pub fn restore(size: u32, samples: Vec<Sample>) -> Option<Plain> {
        let is_sound = samples.len() * SAMPLE_BYTES <= size as usize
            && samples.is_sorted_by(|a, b| a.time < b.time);
        is_sound.then_some(Plain { size, samples })
    }

    /// Returns the bytes that the samples may take.
    pub fn size(&self) -> u32 {
        self.size
    }

    /// Returns the samples.
    pub fn samples(&self) -> &[Sample] {
        &self.samples
    }
}

impl Chunk {
    /// Returns an empty chunk of one or the other form that may take so many bytes.
    pub fn new(compressed: bool, size: u32) -> Chunk {
        match compressed {
            true => Chunk::Compressed(Compressed::new(size)),
            false => Chunk::Plain(Plain {
                size,
                samples: Vec::new(),
            }),
        }
    }

    /// Returns chunks of such samples: one, unless they take more than a fifth above the size; else halves of them.
    pub fn of(compressed: bool, size: u32, samples: &[Sample]) -> Vec<Chunk> {
        let room = (size + size / 5).next_multiple_of(SAMPLE_BYTES as u32);
        let mut chunk = Chunk::new(compressed, size);
        if samples.iter().all(|sample| chunk.push(*sample)) {
            chunk.shrink();
            return vec![chunk];
        }
        // Two samples take 20 bytes at most: a chunk of the least size has room for them.
        let mut chunk = Chunk::new(compressed, room);
        if samples.iter().all(|sample| chunk.push(*sample)) {
            chunk.shrink();
            return vec![chunk];
        }
        let (first, second) = samples.split_at(samples.len() / 2);
        let mut chunks = Chunk::of(compressed, size, first);
        chunks.extend(Chunk::of(compressed, size, second));
        chunks
    }

    /// Appends a sample, whose time is above the last one's; false if it has no room.
    #[inline]
    pub fn push(&mut self, sample: Sample) -> bool {
        match self {
            Chunk::Compressed(chunk) => chunk.push(sample),
            Chunk::Plain(chunk) => {
                let fits = (chunk.samples.len() + 1) * SAMPLE_BYTES <= chunk.size as usize;
                if fits {
                    chunk.samples.push(sample);
                }
                fits
            }
        }
    }

    /// Gives back memory that no sample takes.
    pub fn shrink(&mut self) {
        match self {
            Chunk::Compressed(chunk) => chunk.shrink(),
            Chunk::Plain(chunk) => chunk.samples.shrink_to_fit(),
        }
    }

    /// Returns the number of samples.
    pub fn len(&self) -> usize {
        match self {
            Chunk::Compressed(chunk) => chunk.len(),
            Chunk::Plain(chunk) => chunk.samples.len(),
        }
    }

    /// Returns true if there is no sample.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns the time of the first sample; 0 if there is none.
    pub fn first_time(&self) -> u64 {
        match self {
            Chunk::Compressed(chunk) => chunk.first().time,
            Chunk::Plain(chunk) => chunk.samples.first().map_or(0, |sample| sample.time),
        }
    }

    /// Returns the last sample.
    pub fn last(&self) -> Option<Sample> {
        match self {
            Chunk::Compressed(chunk) => (!chunk.is_empty()).then(|| chunk.last()),
            Chunk::Plain(chunk) => chunk.samples.last().copied(),
        }
    }

    /// Returns the time of the last sample; 0 if there is none.
    pub fn last_time(&self) -> u64 {
        self.last().map_or(0, |sample| sample.time)
    }

    /// Returns the bytes on the heap.
    pub fn heap_bytes(&self) -> usize {
        match self {
            Chunk::Compressed(chunk) => chunk.heap_bytes(),
            Chunk::Plain(chunk) => chunk.samples.capacity() * SAMPLE_BYTES,
        }
    }

    /// Passes on each sample, in order.
    #[inline]
    pub fn for_each(&self, mut visit: impl FnMut(Sample)) {
        match self {
            Chunk::Compressed(chunk) => chunk.iter().for_each(visit),
            Chunk::Plain(chunk) => chunk.samples.iter().for_each(|sample| visit(*sample)),
        }
    }

    /// Returns the samples.
    pub fn samples(&self) -> Vec<Sample> {
        let mut samples = Vec::with_capacity(self.len());
        self.for_each(|sample| samples.push(sample));
        samples
    }
}
