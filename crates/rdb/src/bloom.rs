//! A Bloom filter as bytes, in the form of RedisBloom's `MBbloom--`: the counts of the filter, then each layer with its
//! bits. Must not know other types.

use redline_types::{
    Bloom, Limits,
    bloom::{LAYERS_MAX, Layer},
};

use crate::{
    Corrupt, ensure,
    format::ModuleType,
    module::{FieldReader, FieldWriter, ModuleCodec},
};

const WRONG: Corrupt = Corrupt("a Bloom filter");

impl ModuleCodec for Bloom {
    const WRITTEN: ModuleType = ModuleType::new("MBbloom--", 4);

    fn encode(&self, fields: &mut FieldWriter<'_>) {
        fields.unsigned(self.items());
        fields.unsigned(self.layers().len() as u64);
        fields.unsigned(self.options().into());
        fields.unsigned(self.growth().into());
        for layer in self.layers() {
            fields.unsigned(layer.capacity);
            fields.double(layer.error_rate);
            fields.unsigned(layer.hashes.into());
            fields.double(layer.bits_per_item);
            fields.unsigned(layer.bits);
            fields.unsigned(layer.power.into());
            fields.string(&layer.bytes);
            fields.unsigned(layer.items);
        }
    }

    fn decode(
        fields: &mut FieldReader<'_, '_>,
        _version: u16,
        _limits: &Limits,
    ) -> Result<Bloom, Corrupt> {
        let items = fields.unsigned()?;
        let count = fields.count(8)?;
        ensure(count <= LAYERS_MAX, "the layers of a Bloom filter")?;
        let options = u32::try_from(fields.unsigned()?).map_err(|_| WRONG)?;
        let growth = u32::try_from(fields.unsigned()?).map_err(|_| WRONG)?;
        let mut layers = Vec::with_capacity(count);
        for _ in 0..count {
            layers.push(Layer {
                capacity: fields.unsigned()?,
                error_rate: fields.double()?,
                hashes: u32::try_from(fields.unsigned()?).map_err(|_| WRONG)?,
                bits_per_item: fields.double()?,
                bits: fields.unsigned()?,
                power: u8::try_from(fields.unsigned()?).map_err(|_| WRONG)?,
                bytes: fields.string()?.into(),
                items: fields.unsigned()?,
            });
        }
        Bloom::restore(items, options, growth, layers).ok_or(WRONG)
    }
}
