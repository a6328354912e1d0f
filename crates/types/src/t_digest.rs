//! The t-digest: a sketch of a distribution, exact at its ends, as Ted Dunning's merging digest with the scale that
//! RedisBloom has. Must not know keys, commands, or how it is written to a file.
//!
//! A value is a list of centroids (a mean, and how many values it stands for), in ascending order but for those that were
//! added last, which are put in order when they are merged or read: that takes less than keeping the order. A value that is added
//! becomes a centroid of its own; when the list is full, neighbours are merged as far as the scale allows. RedisBloom
//! also merges whenever a value is read or saved, so that its reads change what later reads return. Here a read merges a
//! copy: the value depends on the calls that changed it alone, and a file holds all of it.

use std::borrow::Cow;

use crate::{DataType, Digest};

/// Largest compression: a digest of it has at most 600,010 centroids, of 16 bytes each.
pub const COMPRESSION_MAX: u64 = 100_000;

/// Largest number of values: up to it a float tells every number, as files have them.
pub const WEIGHT_MAX: i64 = 1 << 53;

/// A sketch of a distribution. See the head of this file.
#[derive(Clone, Debug)]
pub struct TDigest {
    compression: u64,
    /// Infinitely far apart if there is no value: the largest number, and the smallest.
    min: f64,
    max: f64,
    centroids: Vec<Centroid>,
    /// Number of the first centroids that are in ascending order.
    in_order: usize,
    /// Sum of all weights.
    weight: i64,
    /// Number of centroids that were added since centroids were merged.
    unmerged: usize,
    unmerged_weight: i64,
    compressions: u64,
}

/// Values that lie together.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Centroid {
    /// Their mean.
    pub mean: f64,
    /// Their number.
    pub weight: i64,
}

impl Centroid {
    /// Returns the mean of the values of this centroid and of one that is no lower.
    fn mean_with(self, higher: Centroid) -> f64 {
        let weight = (self.weight + higher.weight) as f64;
        let delta = (higher.mean - self.mean) * higher.weight as f64 / weight;
        let mean = match delta.is_finite() {
            true => self.mean + delta,
            // The distance of the two is beyond the largest number, but no mean is.
            false => {
                let (low, high) = (self.weight as f64 / weight, higher.weight as f64 / weight);
                self.mean * low + higher.mean * high
            }
        };
        mean.max(self.mean).min(higher.mean)
    }
}

/// Puts centroids in ascending order; equal ones keep theirs.
fn sort(centroids: &mut [Centroid]) {
    centroids.sort_by(|a, b| a.mean.total_cmp(&b.mean));
}

/// More values than can be counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Overflow;

impl TDigest {
    /// Returns a digest without a value; `None` if the compression is 0 or beyond [`COMPRESSION_MAX`].
    pub fn new(compression: u64) -> Option<TDigest> {
        (1..=COMPRESSION_MAX)
            .contains(&compression)
            .then_some(TDigest {
                compression,
                min: f64::MAX,
                max: f64::MIN,
                centroids: Vec::new(),
                in_order: 0,
                weight: 0,
                unmerged: 0,
                unmerged_weight: 0,
                compressions: 0,
            })
    }

    /// Returns the digest of these parts; `None` if they make none.
    pub fn restore(
        compression: u64,
        (min, max): (f64, f64),
        centroids: Vec<Centroid>,
        compressions: u64,
    ) -> Option<TDigest> {
        let mut digest = TDigest::new(compression)?;
        let mut last = min;
        for centroid in &centroids {
            let in_order = last <= centroid.mean && centroid.mean <= max;
            if !in_order || !centroid.mean.is_finite() || centroid.weight < 1 {
                return None;
            }
            last = centroid.mean;
            let weight = digest.weight.checked_add(centroid.weight);
            digest.weight = weight.filter(|weight| *weight <= WEIGHT_MAX)?;
        }
        if centroids.len() > digest.capacity() || !min.is_finite() || !max.is_finite() {
            return None;
        }
        if !centroids.is_empty() {
            (digest.min, digest.max) = (min, max);
        }
        digest.in_order = centroids.len();
        digest.centroids = centroids;
        digest.compressions = compressions;
        Some(digest)
    }

    /// Returns the compression: about how many centroids are left after merging.
    pub fn compression(&self) -> u64 {
        self.compression
    }

    /// Returns the number of centroids at which they are merged.
    pub fn capacity(&self) -> usize {
        6 * self.compression as usize + 10
    }

    /// Returns the centroids, in ascending order.
    pub fn centroids(&self) -> Cow<'_, [Centroid]> {
        let mut centroids = Cow::from(&self.centroids);
        if self.in_order < centroids.len() {
            sort(centroids.to_mut());
        }
        centroids
    }

    /// Returns the number of values.
    pub fn weight(&self) -> i64 {
        self.weight
    }

    /// Returns how many centroids were added since the last merge, and how many values they stand for.
    pub fn unmerged(&self) -> (usize, i64) {
        (self.unmerged, self.unmerged_weight)
    }

    /// Returns how often centroids were merged.
    pub fn compressions(&self) -> u64 {
        self.compressions
    }

    /// Returns the least and the largest value; the largest number and the smallest if there is no value.
    pub fn bounds(&self) -> (f64, f64) {
        (self.min, self.max)
    }

    /// Forgets all values.
    pub fn reset(&mut self) {
        *self = TDigest {
            compression: self.compression,
            ..TDigest::default()
        };
    }

    /// Adds values, which must be finite.
    ///
    /// # Errors
    ///
    /// If there are too many; those before are added.
    pub fn extend(&mut self, values: impl Iterator<Item = f64>) -> Result<(), Overflow> {
        for mean in values {
            self.push(Centroid { mean, weight: 1 })?;
        }
        Ok(())
    }

    /// Adds a centroid behind the others.
    fn push(&mut self, centroid: Centroid) -> Result<(), Overflow> {
        if self.centroids.len() >= self.capacity() - 1 {
            self.compress();
        }
        let weight = self.weight + centroid.weight;
        if weight > WEIGHT_MAX || self.centroids.len() >= self.capacity() {
            return Err(Overflow);
        }
        self.weight = weight;
        self.unmerged += 1;
        self.unmerged_weight += centroid.weight;
        self.min = self.min.min(centroid.mean);
        self.max = self.max.max(centroid.mean);
        self.centroids.push(centroid);
        Ok(())
    }

    /// Adds what another digest has.
    ///
    /// # Errors
    ///
    /// If there are too many values.
    pub fn merge(&mut self, other: &TDigest) -> Result<(), Overflow> {
        self.compress();
        for centroid in other.compressed().centroids {
            self.push(centroid)?;
        }
        self.min = self.min.min(other.min);
        self.max = self.max.max(other.max);
        Ok(())
    }

    /// Merges neighbours as far as the scale allows, if centroids were added since the last time.
    pub fn compress(&mut self) {
        if self.unmerged == 0 {
            return;
        }
        sort(&mut self.centroids);
        self.in_order = self.centroids.len();
        self.unmerged = 0;
        self.unmerged_weight = 0;
        self.compressions = self.compressions.saturating_add(1);
        let total = self.weight as f64;
        if total <= 1.0 {
            return;
        }
        let scale = self.compression as f64 / (2.0 * std::f64::consts::PI * total * total.ln());
        let spread = |weight: f64| {
            let quantile = weight / total;
            quantile * (1.0 - quantile)
        };
        let mut at = 0;
        let mut before = 0.0;
        for next in 1..self.centroids.len() {
            let (into, from) = (self.centroids[at], self.centroids[next]);
            let weight = into.weight as f64 + from.weight as f64;
            let limit = weight * scale;
            if limit <= spread(before) && limit <= spread(before + weight) {
                self.centroids[at] = Centroid {
                    mean: into.mean_with(from),
                    weight: into.weight + from.weight,
                };
            } else {
                before += into.weight as f64;
                at += 1;
                self.centroids[at] = from;
            }
        }
        self.centroids.truncate(at + 1);
        self.in_order = self.centroids.len();
    }

    /// Returns a copy whose centroids are merged.
    fn compressed(&self) -> TDigest {
        let mut copy = self.clone();
        copy.compress();
        copy
    }

    /// Returns what can be asked of the digest.
    pub fn view(&self) -> View {
        View(self.compressed())
    }
}

/// A digest whose centroids are merged, to be asked.
pub struct View(TDigest);

impl View {
    /// Returns, for quantiles from 0 to 1 in ascending order, the values below which these shares of all values are; NaN
    /// without a value.
    pub fn quantiles(&self, quantiles: &[f64]) -> Vec<f64> {
        let digest = &self.0;
        match &*digest.centroids {
            [] => vec![f64::NAN; quantiles.len()],
            [only] => vec![only.mean; quantiles.len()],
            [first, ..] => {
                let (mut at, mut before) = (0, first.weight as f64 / 2.0);
                let indexes = quantiles.iter().map(|q| q * digest.weight as f64);
                indexes
                    .map(|index| self.at_index(index, &mut at, &mut before))
                    .collect()
            }
        }
    }

    /// Returns the value that has a place among all values in order. `at` and `before` go on from a place that was no
    /// higher: the centroid, and the values before its middle.
    fn at_index(&self, index: f64, at: &mut usize, before: &mut f64) -> f64 {
        let TDigest { min, max, .. } = self.0;
        let centroids = &self.0.centroids;
        let total = self.0.weight as f64;
        let (first, last) = (centroids[0], centroids[centroids.len() - 1]);
        let (first_weight, last_weight) = (first.weight as f64, last.weight as f64);
        let inside = |value: f64| match value.is_nan() {
            true => min,
            false => value.clamp(min, max),
        };
        // One value is known to be the least, so the others of its centroid are spread over the rest.
        if first_weight > 1.0 && index < first_weight / 2.0 {
            let share = (index - 1.0) / (first_weight / 2.0 - 1.0);
            return inside(min + share * (first.mean - min));
        }
        if index > total - 1.0 {
            return max;
        }
        if last_weight > 1.0 && total - index <= last_weight / 2.0 {
            let share = (total - index - 1.0) / (last_weight / 2.0 - 1.0);
            return inside(max - share * (max - last.mean));
        }
        while *at < centroids.len() - 1 {
            let (left, right) = (centroids[*at], centroids[*at + 1]);
            let width = (left.weight + right.weight) as f64 / 2.0;
            if *before + width > index {
                return between(left, right, index - *before, *before + width - index);
            }
            *before += width;
            *at += 1;
        }
        let past = index - total - last_weight / 2.0;
        inside(average((last.mean, past), (max, last_weight / 2.0 - past)))
    }

    /// Returns the share of values that are at most this one; NaN without a value.
    pub fn cdf(&self, value: f64) -> f64 {
        let TDigest { min, max, .. } = self.0;
        let centroids = &*self.0.centroids;
        let total = self.0.weight as f64;
        let (first, last) = match centroids {
            [] => return f64::NAN,
            _ if value < min => return 0.0,
            _ if value > max => return 1.0,
            [_] if value - min <= max - min => return 0.5,
            [_] => return (value - min) / (max - min),
            [first, .., last] => (first, last),
        };
        if value < first.mean {
            let width = first.mean - min;
            return match value == min {
                true => 0.5 / total,
                false => (1.0 + (value - min) / width * (first.weight as f64 / 2.0 - 1.0)) / total,
            };
        }
        if value > last.mean {
            let width = max - last.mean;
            return match value == max {
                true => 1.0 - 0.5 / total,
                false => {
                    let rest = (max - value) / width * (last.weight as f64 / 2.0 - 1.0);
                    1.0 - (1.0 + rest) / total
                }
            };
        }
        let mut before = 0.0;
        for at in 0..centroids.len() - 1 {
            let (left, right) = (centroids[at], centroids[at + 1]);
            if left.mean == value {
                let equal = centroids[at..].iter().take_while(|c| c.mean == value);
                let weight: f64 = equal.map(|c| c.weight as f64).sum();
                return (before + weight / 2.0) / total;
            }
            if left.mean <= value && value < right.mean {
                return (before + weight_below(left, right, value)) / total;
            }
            before += left.weight as f64;
        }
        1.0 - 0.5 / total
    }

    /// Returns the mean of the values between two quantiles; NaN without a value.
    pub fn trimmed_mean(&self, low: f64, high: f64) -> f64 {
        let centroids = match &*self.0.centroids {
            [] => return f64::NAN,
            [only] => return only.mean,
            centroids => centroids,
        };
        let total = self.0.weight as f64;
        let (low, high) = ((total * low).floor(), (total * high).ceil());
        let (mut done, mut sum, mut count) = (0.0f64, 0.0, 0.0);
        for centroid in centroids {
            let weight = centroid.weight as f64;
            let mut share = weight - (low - done).max(0.0).min(weight);
            share = (high - done).max(0.0).min(share);
            done += weight;
            sum += centroid.mean * share;
            count += share;
            if done >= high {
                break;
            }
        }
        sum / count
    }
}

/// Returns the value at a place between the middles of two centroids, so far from each. A value alone is exactly where
/// its centroid is.
fn between(left: Centroid, right: Centroid, from_left: f64, from_right: f64) -> f64 {
    let (mut left_half, mut right_half) = (0.0, 0.0);
    if left.weight == 1 {
        if from_left < 0.5 {
            return left.mean;
        }
        left_half = 0.5;
    }
    if right.weight == 1 {
        if from_right <= 0.5 {
            return right.mean;
        }
        right_half = 0.5;
    }
    average(
        (left.mean, from_right - right_half),
        (right.mean, from_left - left_half),
    )
}

/// Returns the mean of two values with their weights, which is never outside of them.
fn average(a: (f64, f64), b: (f64, f64)) -> f64 {
    let (low, high) = match a.0 <= b.0 {
        true => (a, b),
        false => (b, a),
    };
    let mean = (low.0 * low.1 + high.0 * high.1) / (low.1 + high.1);
    // The order of the comparisons decides what becomes of NaN.
    let mean = if mean < high.0 { mean } else { high.0 };
    if low.0 > mean { low.0 } else { mean }
}

/// Returns the number of values of two centroids that are below a value between their means.
fn weight_below(left: Centroid, right: Centroid, value: f64) -> f64 {
    let (left_weight, right_weight) = (left.weight as f64, right.weight as f64);
    let width = (left_weight + right_weight) / 2.0;
    if right.mean - left.mean <= 0.0 {
        return width;
    }
    let (mut left_half, mut right_half) = (0.0, 0.0);
    match (left.weight, right.weight) {
        (1, 1) => return 1.0,
        (1, _) => left_half = 0.5,
        (_, 1) => right_half = 0.5,
        _ => {}
    }
    let share = (value - left.mean) / (right.mean - left.mean);
    left_weight / 2.0 + left_half + (width - left_half - right_half) * share
}

impl Default for TDigest {
    fn default() -> TDigest {
        TDigest::new(100).expect("a small digest")
    }
}

impl DataType for TDigest {
    const NAME: &'static str = "TDIS-TYPE";
    const STAYS_EMPTY: bool = true;

    fn encoding(&self) -> &'static str {
        "raw"
    }

    fn len(&self) -> usize {
        self.weight as usize
    }

    fn heap_bytes(&self) -> usize {
        size_of::<Self>() + self.centroids.capacity() * size_of::<Centroid>()
    }

    fn free_effort(&self) -> usize {
        1
    }

    fn digest<D: Digest>(&self, digest: &mut D) {
        digest.mix(&self.compression.to_le_bytes());
        digest.mix(&self.min.to_le_bytes());
        digest.mix(&self.max.to_le_bytes());
        for centroid in self.centroids().iter() {
            digest.mix(&centroid.mean.to_le_bytes());
            digest.mix(&centroid.weight.to_le_bytes());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn digest(values: impl IntoIterator<Item = f64>) -> TDigest {
        let mut digest = TDigest::default();
        for value in values {
            digest.extend([value].into_iter()).unwrap();
        }
        digest
    }

    #[test]
    fn few_values_are_all_known() {
        let view = digest([1.0, 2.0, 3.0, 4.0, 5.0]).view();
        let quantiles = view.quantiles(&[0.0, 0.3, 0.5, 1.0]);
        assert_eq!(quantiles, [1.0, 2.0, 3.0, 5.0]);
        assert_eq!(view.cdf(3.0), 0.5);
        assert_eq!((view.cdf(0.0), view.cdf(9.0)), (0.0, 1.0));
        assert_eq!(view.trimmed_mean(0.2, 0.8), 3.0);
    }

    #[test]
    fn quantiles_of_many_values_are_near_the_true_ones() {
        let count = 100_000u64;
        // Every number below the count once, in a mixed order.
        let values = (0..count).map(|n| (n * 7_919 % count) as f64);
        let digest = digest(values);
        assert!(digest.centroids().len() < digest.capacity());
        let view = digest.view();
        for (q, error) in [
            (0.001, 0.0005),
            (0.01, 0.001),
            (0.25, 0.01),
            (0.5, 0.01),
            (0.999, 0.0005),
        ] {
            let value = view.quantiles(&[q])[0] / count as f64;
            assert!((value - q).abs() < error, "{q}: {value}");
            assert!((view.cdf(q * count as f64) - q).abs() < error);
        }
        assert_eq!(view.quantiles(&[0.0, 1.0]), [0.0, (count - 1) as f64]);
    }

    #[test]
    fn it_does_not_matter_how_values_are_grouped_into_calls() {
        let values: Vec<f64> = (0..5_000u32)
            .map(|n| f64::from(n * 7_919 % 5_003))
            .collect();
        let one_by_one = digest(values.iter().copied());
        let mut at_once = TDigest::default();
        at_once.extend(values.into_iter()).unwrap();
        assert_eq!(one_by_one.centroids(), at_once.centroids());
    }

    #[test]
    fn a_file_in_between_changes_nothing() {
        let mut random = fastrand::Rng::with_seed(5);
        let mut digest = TDigest::new(10).unwrap();
        let mut moved = digest.clone();
        for _ in 0..5_000 {
            let value = [0.0, -0.0, 1.0, -1.0, 2.5][random.usize(..5)];
            digest.extend([value].into_iter()).unwrap();
            moved.extend([value].into_iter()).unwrap();
            if random.u8(..20) == 0 {
                let parts = (moved.centroids().to_vec(), moved.compressions());
                let (unmerged, unmerged_weight) = moved.unmerged();
                moved = TDigest::restore(10, moved.bounds(), parts.0, parts.1).unwrap();
                (moved.unmerged, moved.unmerged_weight) = (unmerged, unmerged_weight);
            }
            assert_eq!(digest.centroids(), moved.centroids());
        }
        assert!(digest.compressions() > 50);
    }

    #[test]
    fn reading_changes_nothing() {
        let digest = digest((0..700).map(f64::from));
        let before = digest.centroids().to_vec();
        digest.view().quantiles(&[0.5]);
        assert_eq!(digest.centroids(), before);
        assert!(digest.unmerged().0 > 0);
    }

    #[test]
    fn a_merge_has_the_values_of_both() {
        let mut merged = digest((0..1_000).map(f64::from));
        merged
            .merge(&digest((1_000..2_000).map(f64::from)))
            .unwrap();
        assert_eq!((merged.weight(), merged.bounds()), (2_000, (0.0, 1_999.0)));
        let median = merged.view().quantiles(&[0.5])[0];
        assert!((median - 1_000.0).abs() < 20.0, "{median}");
    }

    #[test]
    fn nothing_is_asked_of_nothing() {
        let view = TDigest::default().view();
        assert!(view.quantiles(&[0.5])[0].is_nan());
        assert!(view.cdf(1.0).is_nan() && view.trimmed_mean(0.0, 1.0).is_nan());
    }

    #[test]
    fn too_many_values_are_an_error() {
        let heavy = Centroid {
            mean: 1.0,
            weight: WEIGHT_MAX,
        };
        let mut digest = TDigest::restore(100, (1.0, 1.0), vec![heavy], 1).unwrap();
        assert_eq!(digest.extend([1.0].into_iter()), Err(Overflow));
        assert!(digest.view().quantiles(&[0.5])[0] == 1.0);
    }

    #[test]
    fn means_stay_finite_and_in_order_at_the_ends_of_the_range() {
        let mut digest = TDigest::new(1).unwrap();
        for n in 0..200 {
            let value = f64::MAX * if n % 2 == 0 { 1.0 } else { -1.0 };
            digest.extend([value].into_iter()).unwrap();
        }
        digest.compress();
        let means: Vec<f64> = digest.centroids().iter().map(|c| c.mean).collect();
        assert!(
            means.is_sorted() && means.iter().all(|mean| mean.is_finite()),
            "{means:?}"
        );
        let centroids = digest.centroids().to_vec();
        assert!(TDigest::restore(1, digest.bounds(), centroids, u64::MAX).is_some());
    }

    #[test]
    fn parts_that_make_no_digest_are_refused() {
        let centroid = |mean, weight| Centroid { mean, weight };
        let restore = |bounds, centroids| TDigest::restore(10, bounds, centroids, 0).is_some();
        assert!(restore(
            (1.0, 2.0),
            vec![centroid(1.0, 1), centroid(2.0, 1)]
        ));
        assert!(!restore(
            (1.0, 2.0),
            vec![centroid(2.0, 1), centroid(1.0, 1)]
        ));
        assert!(!restore((1.0, 2.0), vec![centroid(3.0, 1)]));
        assert!(!restore((1.0, 2.0), vec![centroid(f64::NAN, 1)]));
        assert!(!restore((1.0, 2.0), vec![centroid(1.0, 0)]));
        assert!(!restore((1.0, 2.0), vec![centroid(1.0, i64::MAX); 2]));
        assert!(!restore((1.0, 2.0), vec![centroid(1.0, 1); 71]));
        assert!(!restore((f64::NEG_INFINITY, 2.0), vec![centroid(1.0, 1)]));
        assert!(TDigest::new(0).is_none() && TDigest::new(COMPRESSION_MAX + 1).is_none());
    }
}
