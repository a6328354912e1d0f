//! A register as bytes, in the form of modules' values: one part, which is a string. Must not know other types.

use redline_types::{Limits, Register};

use crate::{
    Corrupt, ensure,
    object::{Codec, MODULE},
    primitive::{Reader, Writer, write_len, write_string},
};

/// `register-` in 6 bits a letter, and version 0 in 10 bits.
const NAME: u64 = 0xade8_22b2_d7ab_f800;

/// The kinds of parts.
mod part {
    pub const END: u64 = 0;
    pub const STRING: u64 = 5;
}

impl Codec for Register {
    const RDB_TYPES: &'static [u8] = &[MODULE];
    const MODULE_TYPE: Option<u64> = Some(NAME);

    fn rdb_type(&self) -> u8 {
        MODULE
    }

    fn encode(&self, out: &mut Writer) {
        write_len(out, part::STRING);
        write_string(out, self.get());
        write_len(out, part::END);
    }

    fn decode(reader: &mut Reader<'_>, _: u8, _: &Limits) -> Result<Register, Corrupt> {
        ensure(reader.number()? == part::STRING, "a register's value")?;
        let value = reader.string()?;
        ensure(reader.number()? == part::END, "the end of a register")?;
        Ok(Register::of(&value))
    }
}
