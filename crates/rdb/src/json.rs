//! A JSON document as bytes, in the form of Redis's module: its text, as one string. Must not know other types.

use redline_types::{Json, Limits};

use crate::{
    Corrupt,
    format::ModuleType,
    module::{FieldReader, FieldWriter, ModuleCodec},
};

impl ModuleCodec for Json {
    const WRITTEN: ModuleType = ModuleType::new("ReJSON-RL", 3);

    fn encode(&self, fields: &mut FieldWriter<'_>) {
        fields.string(&self.to_text());
    }

    fn decode(
        fields: &mut FieldReader<'_, '_>,
        _version: u16,
        _limits: &Limits,
    ) -> Result<Json, Corrupt> {
        Json::parse(&fields.string()?).map_err(|_| Corrupt("the text of a JSON document"))
    }
}
