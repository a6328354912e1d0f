//! The frame of a module's value, and what a type in that frame implements: [`ModuleCodec`]. Behind the byte 7 stand
//! the type's name with the version of its form, in one number, then fields, each after the number of its kind, then a
//! zero. Must not know single types, nor where a value comes from.
//!
//! Nothing is allocated for what a number claims: a field is as long as the bytes that have arrived for it.

use std::borrow::Cow;

use redline_types::{DataType, Limits};

use crate::{
    Corrupt, ensure,
    format::{CannotTell, FileVersion, ModuleType, Part},
    object::{Codec, MODULE},
    primitive::{Reader, Writer, write_len, write_string},
};

/// Kinds of fields.
pub(crate) mod field {
    pub(crate) const END: u64 = 0;
    pub(crate) const SIGNED: u64 = 1;
    pub(crate) const UNSIGNED: u64 = 2;
    pub(crate) const FLOAT: u64 = 3;
    pub(crate) const DOUBLE: u64 = 4;
    pub(crate) const STRING: u64 = 5;
}

/// Serialised form of a type whose values travel as those of a module. All else that a [`Codec`] has follows.
pub(crate) trait ModuleCodec: DataType {
    /// Name of the type, and the version of the form that is written.
    const WRITTEN: ModuleType;

    /// The versions of the form that are read.
    const READ: &'static [u16] = &[Self::WRITTEN.version()];

    /// The first version of Redis's files that can have the value: 9 is that of Redis 5, which wrote the first such frames.
    const SINCE: u16 = 9;

    /// The kind of value, with its article, for a log.
    const WHAT: &'static str = "a value of a module's type";

    /// Appends the fields.
    fn encode(&self, fields: &mut FieldWriter<'_>);

    /// Reads the fields of a version of the form; the value may be empty. What stands behind the last one is checked
    /// by the caller.
    ///
    /// # Errors
    ///
    /// If a field is not of the kind or in the range that the form has there.
    fn decode(
        fields: &mut FieldReader<'_, '_>,
        version: u16,
        limits: &Limits,
    ) -> Result<Self, Corrupt>;
}

impl<T: ModuleCodec> Codec for T {
    fn module_type() -> Option<ModuleType> {
        Some(T::WRITTEN)
    }

    fn reads_module_type(module_type: ModuleType) -> bool {
        module_type.name() == T::WRITTEN.name() && T::READ.contains(&module_type.version())
    }

    fn parts(_: FileVersion, rdb_type: u8) -> Option<&'static [Part]> {
        (rdb_type == MODULE).then_some(&[Part::Module])
    }

    fn rdb_type(&self, version: FileVersion) -> Result<u8, CannotTell> {
        match version.redis_forms() >= T::SINCE {
            true => Ok(MODULE),
            false => Err(CannotTell { what: T::WHAT }),
        }
    }

    fn encode(&self, out: &mut Writer, _: u8) {
        write_len(out, T::WRITTEN.0);
        ModuleCodec::encode(self, &mut FieldWriter { out });
        write_len(out, field::END);
    }

    fn decode(
        reader: &mut Reader<'_>,
        _: FileVersion,
        _: u8,
        module_type: Option<ModuleType>,
        limits: &Limits,
    ) -> Result<T, Corrupt> {
        let module_type = module_type.ok_or(Corrupt("a module's value without a name"))?;
        let mut fields = FieldReader { reader };
        let value = <T as ModuleCodec>::decode(&mut fields, module_type.version(), limits)?;
        fields.end()?;
        Ok(value)
    }
}

/// Output of fields.
pub(crate) struct FieldWriter<'a> {
    out: &'a mut Writer,
}

#[allow(dead_code, reason = "a form uses the kinds that it has")]
impl FieldWriter<'_> {
    /// Appends a number of 64 bits.
    pub(crate) fn unsigned(&mut self, number: u64) {
        write_len(self.out, field::UNSIGNED);
        write_len(self.out, number);
    }

    /// Appends a number of 64 bits with a sign.
    pub(crate) fn signed(&mut self, number: i64) {
        write_len(self.out, field::SIGNED);
        write_len(self.out, number as u64);
    }

    /// Appends a float of 32 bits.
    pub(crate) fn float(&mut self, number: f32) {
        write_len(self.out, field::FLOAT);
        self.out.extend_from_slice(&number.to_le_bytes());
    }

    /// Appends a float of 64 bits.
    pub(crate) fn double(&mut self, number: f64) {
        write_len(self.out, field::DOUBLE);
        self.out.extend_from_slice(&number.to_le_bytes());
    }

    /// Appends a string.
    pub(crate) fn string(&mut self, text: &[u8]) {
        write_len(self.out, field::STRING);
        write_string(self.out, text);
    }
}

/// Input of fields.
pub(crate) struct FieldReader<'a, 'b> {
    reader: &'a mut Reader<'b>,
}

#[allow(dead_code, reason = "a form uses the kinds that it has")]
impl<'b> FieldReader<'_, 'b> {
    fn kind(&mut self, kind: u64, what: &'static str) -> Result<(), Corrupt> {
        ensure(self.reader.number()? == kind, what)
    }

    /// Reads a number of 64 bits.
    pub(crate) fn unsigned(&mut self) -> Result<u64, Corrupt> {
        self.kind(field::UNSIGNED, "a field that is no number")?;
        self.reader.number()
    }

    /// Reads a number of 64 bits with a sign.
    pub(crate) fn signed(&mut self) -> Result<i64, Corrupt> {
        self.kind(field::SIGNED, "a field that is no signed number")?;
        Ok(self.reader.number()? as i64)
    }

    /// Reads a float of 32 bits.
    pub(crate) fn float(&mut self) -> Result<f32, Corrupt> {
        self.kind(field::FLOAT, "a field that is no float")?;
        Ok(f32::from_le_bytes(self.reader.array()?))
    }

    /// Reads a float of 64 bits.
    pub(crate) fn double(&mut self) -> Result<f64, Corrupt> {
        self.kind(field::DOUBLE, "a field that is no double")?;
        self.reader.double()
    }

    /// Reads a string.
    pub(crate) fn string(&mut self) -> Result<Cow<'b, [u8]>, Corrupt> {
        self.kind(field::STRING, "a field that is no string")?;
        self.reader.string()
    }

    /// Reads the number of elements that follow, of at least `fields` fields each. A field takes at least two bytes, so
    /// a number above what the bytes left can hold is refused, and the result is safe as a capacity.
    pub(crate) fn count(&mut self, fields: usize) -> Result<usize, Corrupt> {
        let count = usize::try_from(self.unsigned()?).unwrap_or(usize::MAX);
        let bytes = count.saturating_mul(fields.max(1)).saturating_mul(2);
        ensure(
            bytes <= self.reader.remaining(),
            "more elements of a module's value than bytes",
        )?;
        Ok(count)
    }

    fn end(&mut self) -> Result<(), Corrupt> {
        self.kind(field::END, "fields behind a module's value")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_come_back_and_kinds_are_checked() {
        let mut out = Writer::new(true);
        let mut fields = FieldWriter { out: &mut out };
        fields.unsigned(u64::MAX);
        fields.signed(-1);
        fields.float(1.5);
        fields.double(-2.25);
        fields.string(b"text");
        write_len(&mut out, field::END);
        let mut reader = Reader::new(&out);
        let mut fields = FieldReader {
            reader: &mut reader,
        };
        assert_eq!(fields.unsigned(), Ok(u64::MAX));
        assert_eq!(fields.signed(), Ok(-1));
        assert_eq!(fields.float(), Ok(1.5));
        assert_eq!(fields.double(), Ok(-2.25));
        assert_eq!(fields.string().as_deref(), Ok(&b"text"[..]));
        assert_eq!(fields.end(), Ok(()));
        assert!(reader.is_empty());
        let mut reader = Reader::new(&out);
        assert!(
            FieldReader {
                reader: &mut reader
            }
            .string()
            .is_err()
        );
    }

    #[test]
    fn counts_are_not_believed() {
        let mut out = Writer::new(true);
        FieldWriter { out: &mut out }.unsigned(2);
        out.extend_from_slice(&[0; 7]);
        let count = |fields| {
            let mut reader = Reader::new(&out);
            FieldReader {
                reader: &mut reader,
            }
            .count(fields)
        };
        assert_eq!(count(1), Ok(2));
        assert!(
            count(2).is_err(),
            "seven bytes are fewer than two times two fields"
        );
        assert!(count(usize::MAX).is_err());
    }
}
