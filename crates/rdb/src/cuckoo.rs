//! A cuckoo filter as bytes, in the form of RedisBloom's `MBbloomCF`: shape and counts, then the fingerprints of each
//! layer. Must not know other types.

use redline_types::{
    Cuckoo, Limits,
    cuckoo::{Layer, Shape},
};

use crate::{
    Corrupt,
    format::ModuleType,
    module::{FieldReader, FieldWriter, ModuleCodec},
};

const WRONG: Corrupt = Corrupt("a cuckoo filter");

impl ModuleCodec for Cuckoo {
    const WRITTEN: ModuleType = ModuleType::new("MBbloomCF", 4);

    fn encode(&self, fields: &mut FieldWriter<'_>) {
        let shape = self.shape();
        fields.unsigned(self.layers().len() as u64);
        fields.unsigned(shape.buckets);
        fields.unsigned(self.items());
        fields.unsigned(self.deletions());
        fields.unsigned(shape.bucket_size.into());
        fields.unsigned(shape.iterations_max.into());
        fields.unsigned(shape.expansion.into());
        for layer in self.layers() {
            fields.unsigned(layer.buckets);
            fields.string(&layer.places);
        }
    }

    fn decode(
        fields: &mut FieldReader<'_, '_>,
        _version: u16,
        _limits: &Limits,
    ) -> Result<Cuckoo, Corrupt> {
        let count = fields.count(2)?;
        let buckets = fields.unsigned()?;
        let (items, deletions) = (fields.unsigned()?, fields.unsigned()?);
        let mut small = || u16::try_from(fields.unsigned()?).map_err(|_| WRONG);
        let shape = Shape {
            buckets,
            bucket_size: small()?,
            iterations_max: small()?,
            expansion: small()?,
        };
        let mut layers = Vec::with_capacity(count);
        for _ in 0..count {
            layers.push(Layer {
                buckets: fields.unsigned()?,
                places: fields.string()?.into(),
            });
        }
        Cuckoo::restore(shape, items, deletions, layers).ok_or(WRONG)
    }
}
