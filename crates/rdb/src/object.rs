//! A value as bytes: the byte that names its form, and the form itself. Must not know the frame around it, nor single
//! types but strings: each has a file of its own, which implements [`Codec`].
//!
//! Each type is written in the form that Redis 8.2.3 uses for that encoding; all forms are read that it reads, but for
//! values of modules that do not exist here.

use redline_types::{DataType, Limits, Value};

use crate::{
    Corrupt, ensure,
    primitive::{Reader, Writer, write_len, write_string},
};

/// Value to be written.
#[derive(Clone, Copy)]
pub enum ObjectRef<'a> {
    /// A string.
    String(&'a [u8]),
    /// Anything else.
    Value(&'a Value),
}

/// Value that was read.
#[derive(Clone)]
pub enum Object {
    /// A string.
    String(Vec<u8>),
    /// Anything else; not empty, unless it is of a type that stays empty.
    Value(Value),
}

/// Serialised forms of a type.
pub(crate) trait Codec: DataType {
    /// Bytes that name the forms that are read; no other type has one of them, but for [`MODULE`].
    const RDB_TYPES: &'static [u8];

    /// Name and version of a type that Redis has from a module, which follow [`MODULE`].
    const MODULE_TYPE: Option<u64> = None;

    /// Returns the byte of the form in which the value is written.
    fn rdb_type(&self) -> u8;

    /// Appends the value, in the form that [`Codec::rdb_type`] names, without its name.
    fn encode(&self, out: &mut Writer);

    /// Reads a value of one of the forms. It may be empty.
    fn decode(reader: &mut Reader<'_>, rdb_type: u8, limits: &Limits) -> Result<Self, Corrupt>;
}

/// Byte that names the form of strings.
const STRING: u8 = 0;
/// Byte before every value of a module.
pub(crate) const MODULE: u8 = 7;

macro_rules! codecs {
    ($($(#[$doc:meta])* $name:ident,)*) => {
        /// Names of the forms of each type, and for those of modules the type's own name.
        #[cfg(test)]
        const FORMS: &[(&[u8], Option<u64>)] = &[
            (&[STRING], None),
            $((
                <redline_types::$name as Codec>::RDB_TYPES,
                <redline_types::$name as Codec>::MODULE_TYPE,
            ),)*
        ];

        fn rdb_type(value: &Value) -> u8 {
            match value { $(Value::$name(value) => value.rdb_type(),)* }
        }

        fn encode(out: &mut Writer, value: &Value) {
            match value {
                $(Value::$name(value) => {
                    if let Some(name) = <redline_types::$name as Codec>::MODULE_TYPE {
                        write_len(out, name);
                    }
                    value.encode(out);
                })*
            }
        }

        fn decode(reader: &mut Reader<'_>, rdb_type: u8, limits: &Limits) -> Result<Value, Corrupt> {
            let module_type = match rdb_type {
                MODULE => Some(reader.number()?),
                _ => None,
            };
            $(if <redline_types::$name as Codec>::RDB_TYPES.contains(&rdb_type)
                && <redline_types::$name as Codec>::MODULE_TYPE == module_type
            {
                return Ok(redline_types::$name::decode(reader, rdb_type, limits)?.into());
            })*
            Err(Corrupt(match module_type {
                Some(_) => "a value of an unknown module",
                None => "an unknown type",
            }))
        }
    };
}

redline_types::data_types!(codecs);

/// Returns the byte before a value.
pub fn type_of(object: ObjectRef<'_>) -> u8 {
    match object {
        ObjectRef::String(_) => STRING,
        ObjectRef::Value(value) => rdb_type(value),
    }
}

/// Appends a value, in the form that [`type_of`] names.
pub fn write(out: &mut Writer, object: ObjectRef<'_>) {
    match object {
        ObjectRef::String(text) => write_string(out, text),
        ObjectRef::Value(value) => encode(out, value),
    }
}

/// Reads a value of a form.
pub fn read(reader: &mut Reader<'_>, kind: u8, limits: &Limits) -> Result<Object, Corrupt> {
    if kind == STRING {
        return Ok(Object::String(reader.string()?.into_owned()));
    }
    let value = decode(reader, kind, limits)?;
    ensure(!value.leaves_no_key(), "an empty collection")?;
    Ok(Object::Value(value))
}

#[cfg(test)]
mod tests;
