//! A t-digest as bytes, in the form of RedisBloom's `TDIS-TYPE`: compression, bounds and counts, then the means of all
//! centroids, then their weights. Must not know other types.
//!
//! RedisBloom merges centroids before it writes them. Here those that are not merged yet are written as if they were,
//! which it reads as well: a value that was read goes on as the one that was written.

use redline_types::{Limits, TDigest, t_digest::Centroid};

use crate::{
    Corrupt, ensure,
    format::ModuleType,
    module::{FieldReader, FieldWriter, ModuleCodec},
};

const WRONG: Corrupt = Corrupt("a t-digest");

impl ModuleCodec for TDigest {
    const WRITTEN: ModuleType = ModuleType::new("TDIS-TYPE", 0);

    fn encode(&self, fields: &mut FieldWriter<'_>) {
        let (min, max) = self.bounds();
        let has_unmerged = self.unmerged().0 > 0;
        fields.double(self.compression() as f64);
        fields.double(min);
        fields.double(max);
        fields.unsigned(self.capacity() as u64);
        let centroids = self.centroids();
        fields.unsigned(centroids.len() as u64);
        fields.unsigned(0);
        fields.unsigned(self.compressions().saturating_add(has_unmerged.into()));
        fields.double(self.weight() as f64);
        fields.double(0.0);
        for centroid in centroids.iter() {
            fields.double(centroid.mean);
        }
        for centroid in centroids.iter() {
            fields.double(centroid.weight as f64);
        }
    }

    fn decode(
        fields: &mut FieldReader<'_, '_>,
        _version: u16,
        _limits: &Limits,
    ) -> Result<TDigest, Corrupt> {
        let compression = whole(fields.double()?)?;
        let bounds = (fields.double()?, fields.double()?);
        let capacity = fields.unsigned()?;
        let count = fields.count(2)?;
        ensure(fields.unsigned()? == 0, "centroids that are not merged")?;
        let compressions = fields.unsigned()?;
        let weight = fields.double()?;
        ensure(fields.double()? == 0.0, "centroids that are not merged")?;
        let mut centroids = Vec::with_capacity(count);
        for _ in 0..count {
            let mean = fields.double()?;
            centroids.push(Centroid { mean, weight: 0 });
        }
        for centroid in &mut centroids {
            centroid.weight = whole(fields.double()?)? as i64;
        }
        let digest = TDigest::restore(compression, bounds, centroids, compressions).ok_or(WRONG)?;
        ensure(
            digest.weight() as f64 == weight && digest.capacity() as u64 == capacity,
            WRONG.0,
        )?;
        Ok(digest)
    }
}

/// Returns a double that is a whole number, and small enough to be one exactly.
fn whole(number: f64) -> Result<u64, Corrupt> {
    const MAX: f64 = (1u64 << 53) as f64;
    let is_whole = number.fract() == 0.0 && (0.0..=MAX).contains(&number);
    ensure(is_whole, "a number of a t-digest")?;
    Ok(number as u64)
}
