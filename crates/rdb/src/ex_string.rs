//! An exString as bytes: its version, its flags, the string. Must not know other types.

use redline_types::{ExString, Limits, ex_string::VERSION_MAX};

use crate::{
    Corrupt,
    format::ModuleType,
    module::{FieldReader, FieldWriter, ModuleCodec},
};

impl ModuleCodec for ExString {
    const WRITTEN: ModuleType = ModuleType::new("exstrtype", 0);

    fn encode(&self, fields: &mut FieldWriter<'_>) {
        fields.unsigned(self.version());
        fields.unsigned(self.flags().into());
        fields.string(self.value());
    }

    fn decode(fields: &mut FieldReader<'_, '_>, _: u16, _: &Limits) -> Result<ExString, Corrupt> {
        let mut string = ExString::default();
        // Tair counts on behind the largest version that it reads.
        string.set_version(fields.unsigned()?.min(VERSION_MAX));
        let flags = u32::try_from(fields.unsigned()?);
        string.set_flags(flags.map_err(|_| Corrupt("the flags of an exString"))?);
        string.set(&fields.string()?);
        Ok(string)
    }
}
