//! A compressed bitmap as bytes, in the frame of a module's value: the portable form of the Roaring format. Must not know other
//! types.

use redline_types::{Limits, Roaring};

use crate::{
    Corrupt,
    format::ModuleType,
    module::{FieldReader, FieldWriter, ModuleCodec},
};

impl ModuleCodec for Roaring {
    const WRITTEN: ModuleType = ModuleType::new("redlroar-", 0);

    fn encode(&self, fields: &mut FieldWriter<'_>) {
        fields.string(&self.to_bytes());
    }

    fn decode(fields: &mut FieldReader<'_, '_>, _: u16, _: &Limits) -> Result<Roaring, Corrupt> {
        Roaring::from_bytes(&fields.string()?).map_err(|_| Corrupt("a compressed bitmap"))
    }
}
