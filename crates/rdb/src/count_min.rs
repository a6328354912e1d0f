//! A count-min sketch as bytes, in the form of RedisBloom's `CMSk-TYPE`: width, depth, the sum of all counts, and the
//! counters in one string. Must not know other types.

use redline_types::{CountMin, Limits, count_min::COUNTER_BYTES};

use crate::{
    Corrupt, ensure,
    format::ModuleType,
    module::{FieldReader, FieldWriter, ModuleCodec},
};

const WRONG: Corrupt = Corrupt("a count-min sketch");

impl ModuleCodec for CountMin {
    const WRITTEN: ModuleType = ModuleType::new("CMSk-TYPE", 0);

    fn encode(&self, fields: &mut FieldWriter<'_>) {
        fields.unsigned(self.width());
        fields.unsigned(self.depth());
        fields.unsigned(self.count());
        let counters = self.counters().iter();
        let counters: Vec<u8> = counters.flat_map(|counter| counter.to_le_bytes()).collect();
        fields.string(&counters);
    }

    fn decode(
        fields: &mut FieldReader<'_, '_>,
        _version: u16,
        _limits: &Limits,
    ) -> Result<CountMin, Corrupt> {
        let (width, depth, count) = (fields.unsigned()?, fields.unsigned()?, fields.unsigned()?);
        let bytes = fields.string()?;
        let (counters, rest) = bytes.as_chunks::<COUNTER_BYTES>();
        let fits = width.checked_mul(depth) == Some(counters.len() as u64) && rest.is_empty();
        ensure(fits, "the counters of a count-min sketch")?;
        let counters = counters.iter().map(|bytes| u32::from_le_bytes(*bytes));
        CountMin::restore(width, count, counters.collect()).ok_or(WRONG)
    }
}
