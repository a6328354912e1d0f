//! A register as bytes, in the form of modules' values: one field, which is a string. Must not know other types.

use redline_types::{Limits, Register};

use crate::{
    Corrupt,
    format::ModuleType,
    module::{FieldReader, FieldWriter, ModuleCodec},
};

impl ModuleCodec for Register {
    const WRITTEN: ModuleType = ModuleType::new("register-", 0);

    fn encode(&self, fields: &mut FieldWriter<'_>) {
        fields.string(self.get());
    }

    fn decode(fields: &mut FieldReader<'_, '_>, _: u16, _: &Limits) -> Result<Register, Corrupt> {
        Ok(Register::of(&fields.string()?))
    }
}
