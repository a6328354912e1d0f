//! A compressed bitmap as bytes, in the form of modules' values: one part, the portable form of the Roaring format. Must not know
//! other types.

use redline_types::{Limits, Roaring};

use crate::{
    Corrupt, ensure,
    format::{CannotTell, FileVersion, Part},
    object::{Codec, MODULE},
    primitive::{Reader, Writer, write_len, write_string},
};

/// `redlroar-` in 6 bits a letter, and version 0 in 10 bits.
const NAME: u64 = 0xade7_65ae_86ab_f800;

/// Kinds of parts.
mod part {
    pub const END: u64 = 0;
    pub const STRING: u64 = 5;
}

impl Codec for Roaring {
    const MODULE_TYPE: Option<u64> = Some(NAME);

    fn parts(_: FileVersion, rdb_type: u8) -> Option<&'static [Part]> {
        (rdb_type == MODULE).then_some(&[Part::Module])
    }

    fn rdb_type(&self, _: FileVersion) -> Result<u8, CannotTell> {
        Ok(MODULE)
    }

    fn encode(&self, out: &mut Writer, _: u8) {
        write_len(out, part::STRING);
        write_string(out, &self.to_bytes());
        write_len(out, part::END);
    }

    fn decode(
        reader: &mut Reader<'_>,
        _: FileVersion,
        _: u8,
        _: &Limits,
    ) -> Result<Roaring, Corrupt> {
        ensure(reader.number()? == part::STRING, "a compressed bitmap")?;
        let bytes = reader.string()?;
        ensure(
            reader.number()? == part::END,
            "the end of a compressed bitmap",
        )?;
        Roaring::from_bytes(&bytes).map_err(|_| Corrupt("a compressed bitmap"))
    }
}
