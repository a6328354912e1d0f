//! Timelines: time series under names, in one value. Must not know commands.

use std::collections::BTreeMap;

use crate::{DataType, Digest, Series};

/// Bytes of a timeline in the map beside its name and its series.
const LINE_BYTES: usize = 32;

/// Time series under names.
#[derive(Clone, Debug, Default)]
pub struct Timelines {
    lines: BTreeMap<Box<[u8]>, Series>,
    /// Bytes of names and series.
    bytes: usize,
    /// Chunks of all series.
    chunks: usize,
}

impl Timelines {
    /// Returns the timelines of these names; of two with the same name the later one stays.
    pub fn of(lines: impl IntoIterator<Item = (Box<[u8]>, Series)>) -> Timelines {
        let mut timelines = Timelines::default();
        for (name, series) in lines {
            timelines.insert(&name, series);
        }
        timelines
    }

    /// Puts a series under a name.
    pub fn insert(&mut self, name: &[u8], series: Series) {
        self.remove(name);
        self.count(name, &series);
        self.lines.insert(name.into(), series);
    }

    /// Removes a name; returns true if it was there.
    pub fn remove(&mut self, name: &[u8]) -> bool {
        let Some(old) = self.lines.remove(name) else {
            return false;
        };
        self.discount(name, &old);
        true
    }

    /// Returns the series of a name.
    pub fn get(&self, name: &[u8]) -> Option<&Series> {
        self.lines.get(name)
    }

    /// Changes the series of a name, if there is one.
    pub fn edit<R>(&mut self, name: &[u8], edit: impl FnOnce(&mut Series) -> R) -> Option<R> {
        let series = self.lines.get_mut(name)?;
        let (bytes, chunks) = (series.heap_bytes(), series.chunks().len());
        let result = edit(series);
        self.bytes = self.bytes + series.heap_bytes() - bytes;
        self.chunks = self.chunks + series.chunks().len() - chunks;
        Some(result)
    }

    /// Returns the series in the order of their names.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = (&[u8], &Series)> {
        self.lines.iter().map(|(name, series)| (&**name, series))
    }

    fn count(&mut self, name: &[u8], series: &Series) {
        self.bytes += name.len() + LINE_BYTES + series.heap_bytes();
        self.chunks += series.chunks().len();
    }

    fn discount(&mut self, name: &[u8], series: &Series) {
        self.bytes -= name.len() + LINE_BYTES + series.heap_bytes();
        self.chunks -= series.chunks().len();
    }
}

impl DataType for Timelines {
    const NAME: &'static str = "tairts---";
    const STAYS_EMPTY: bool = true;

    fn encoding(&self) -> &'static str {
        "raw"
    }

    fn len(&self) -> usize {
        self.lines.len()
    }

    fn heap_bytes(&self) -> usize {
        size_of::<Self>() + self.bytes
    }

    fn free_effort(&self) -> usize {
        self.lines.len() * 2 + self.chunks
    }

    fn digest<D: Digest>(&self, digest: &mut D) {
        for (name, series) in self.iter() {
            let mut part = D::default();
            part.mix(name);
            series.digest(&mut part);
            digest.combine_part(&part);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::series::{Policy, Sample, Shape};

    #[test]
    fn what_timelines_take_is_what_they_take_when_made_anew() {
        let mut random = fastrand::Rng::with_seed(9);
        let mut timelines = Timelines::default();
        for time in 0..20_000 {
            let name = format!("line {}", random.u8(..20));
            if random.u8(..200) == 0 {
                timelines.remove(name.as_bytes());
            }
            if timelines.get(name.as_bytes()).is_none() {
                let shape = Shape {
                    retention_ms: random.u64(..2_000),
                    chunk_bytes: 64,
                    ..Shape::default()
                };
                timelines.insert(name.as_bytes(), Series::new(b"", shape));
            }
            let sample = Sample {
                time: time - random.u64(..time.clamp(1, 50)),
                value: random.f64(),
            };
            timelines.edit(name.as_bytes(), |series| {
                let _ = series.add(sample, Policy::Sum);
            });
        }
        let lines = timelines.iter();
        let copy = Timelines::of(lines.map(|(name, series)| (name.into(), series.clone())));
        assert_eq!(copy.chunks, timelines.chunks);
        assert_eq!(copy.len(), timelines.len());
        let series = |timelines: &Timelines| {
            timelines
                .iter()
                .map(|(name, series)| name.len() + LINE_BYTES + series.heap_bytes())
                .sum::<usize>()
        };
        assert_eq!(timelines.bytes, series(&timelines));
        assert_eq!(copy.bytes, series(&copy));
    }
}
