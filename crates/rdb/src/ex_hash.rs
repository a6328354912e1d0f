//! An exHash as bytes: the number of its fields, the name of its key, and of each field the name, the version, the expiry
//! as Unix time in milliseconds or 0, and the value. Must not know other types.
//!
//! The name of the key serves the module's own expiry. It is not known here, is written empty, and passed over by readers.

use redline_types::{DataType, ExHash, IntBuf, Limits, ex_string::VERSION_MAX};

use crate::{
    Corrupt, ensure,
    format::ModuleType,
    module::{FieldReader, FieldWriter, ModuleCodec},
};

/// Stands for no expiry.
const NO_EXPIRY_MS: u64 = 0;

/// Fields of the form that an element has.
const ELEMENT_FIELDS: usize = 4;

impl ModuleCodec for ExHash {
    const WRITTEN: ModuleType = ModuleType::new("tairhash-", 0);

    fn encode(&self, fields: &mut FieldWriter<'_>) {
        fields.unsigned(self.len() as u64);
        fields.string(b"");
        for (name, held) in self.iter() {
            fields.string(name.bytes(&mut IntBuf::new()));
            fields.unsigned(held.version);
            fields.unsigned(held.expire_at_ms.map_or(NO_EXPIRY_MS, |at| at as u64));
            fields.string(held.value());
        }
    }

    fn decode(
        fields: &mut FieldReader<'_, '_>,
        _: u16,
        limits: &Limits,
    ) -> Result<ExHash, Corrupt> {
        let count = fields.count(ELEMENT_FIELDS)?;
        fields.string()?;
        let mut hash = ExHash::default();
        for _ in 0..count {
            let name = fields.string()?;
            // Tair counts on behind the largest version that it reads.
            let version = fields.unsigned()?.min(VERSION_MAX);
            let expire_at_ms = match fields.unsigned()? {
                NO_EXPIRY_MS => None,
                at => Some(i64::try_from(at).map_err(|_| Corrupt("the expiry of a field"))?),
            };
            let value = fields.string()?;
            let is_new = hash.set(&name, &value, version, expire_at_ms, limits);
            ensure(is_new, "a field of an exHash twice")?;
        }
        Ok(hash)
    }
}
