//! Timelines as bytes, in the frame of a module's value: their number, then each with its name and the fields of a time series.
//! Must not know other types.

use redline_types::{Limits, Series, Timelines};

use crate::{
    Corrupt,
    format::ModuleType,
    module::{FieldReader, FieldWriter, ModuleCodec},
};

impl ModuleCodec for Timelines {
    const WRITTEN: ModuleType = ModuleType::new("redltsmap", 0);

    fn encode(&self, fields: &mut FieldWriter<'_>) {
        fields.unsigned(self.iter().len() as u64);
        for (name, series) in self.iter() {
            fields.string(name);
            ModuleCodec::encode(series, fields);
        }
    }

    fn decode(
        fields: &mut FieldReader<'_, '_>,
        _: u16,
        limits: &Limits,
    ) -> Result<Timelines, Corrupt> {
        let count = fields.count(2)?;
        let mut timelines = Timelines::default();
        for _ in 0..count {
            let name = fields.string()?;
            let version = Series::WRITTEN.version();
            let series = <Series as ModuleCodec>::decode(fields, version, limits)?;
            timelines.insert(&name, series);
        }
        Ok(timelines)
    }
}
