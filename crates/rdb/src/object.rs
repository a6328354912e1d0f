//! A value as bytes: the byte that names its form, and the form itself. Must not know the frame around it, nor single
//! types but strings: each has a file of its own, which implements [`Codec`].
//!
//! Each type is written in the form that Redis 8.2.3 uses for that encoding; all forms are read that it reads, but for
//! values of modules that do not exist here.

use redline_types::{DataType, Limits, Value};

use crate::{
    Corrupt, ensure,
    format::{CannotTell, FileVersion, ModuleType, Part},
    primitive::{Reader, Writer, write_string},
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
    /// Returns the name and version of a type that Redis has from a module, which follow [`MODULE`].
    fn module_type() -> Option<ModuleType> {
        None
    }

    /// Returns true if a module's values of this name and version are of the type.
    fn reads_module_type(_: ModuleType) -> bool {
        false
    }

    /// Returns the parts of the form that has this name in files of a version; `None` if no form of the type has it,
    /// or none that is read. No other type has a form of the name there, but for [`MODULE`].
    fn parts(version: FileVersion, rdb_type: u8) -> Option<&'static [Part]>;

    /// Returns the name of the form in which a version has the value.
    ///
    /// # Errors
    ///
    /// If it has none.
    fn rdb_type(&self, version: FileVersion) -> Result<u8, CannotTell>;

    /// Appends the value, in a form that [`Codec::rdb_type`] named, without its name; a module's value begins with its type.
    fn encode(&self, out: &mut Writer, rdb_type: u8);

    /// Appends the part of the value before its elements, if it is about to be frozen: the elements follow by
    /// [`Codec::encode_piece`]. Returns what they need.
    fn encode_head(&self, _out: &mut Writer, _rdb_type: u8) -> Rest {
        unreachable!("a {} is not frozen", Self::NAME)
    }

    /// Appends some of the elements that a frozen value had; returns true after the last one.
    fn encode_piece(&mut self, _out: &mut Writer, _rdb_type: u8, _number: i64) -> bool {
        unreachable!("a {} is not frozen", Self::NAME)
    }

    /// Reads a value of a form that has parts, behind the type of a module's value. It may be empty.
    fn decode(
        reader: &mut Reader<'_>,
        version: FileVersion,
        rdb_type: u8,
        module_type: Option<ModuleType>,
        limits: &Limits,
    ) -> Result<Self, Corrupt>;
}

/// Byte that names the form of strings.
const STRING: u8 = 0;
/// Byte before the values of modules of servers that never were released.
pub(crate) const MODULE_EARLY: u8 = 6;
/// Byte before every value of a module.
pub(crate) const MODULE: u8 = 7;

/// The parts of the form of each name, in one version.
pub(crate) type Forms = [Option<&'static [Part]>; 256];

macro_rules! codecs {
    ($($(#[$doc:meta])* $name:ident,)*) => {
        /// Parts of the forms of each type.
        const PARTS: &[fn(FileVersion, u8) -> Option<&'static [Part]>] = &[
            $(<redline_types::$name as Codec>::parts,)*
        ];

        /// Returns true if a module's values of this name and version are read.
        pub(crate) fn has_module_type(module_type: ModuleType) -> bool {
            [$(<redline_types::$name as Codec>::reads_module_type(module_type),)*].contains(&true)
        }

        /// Returns the types, with the versions that are written, whose values are in the form of modules' values.
        pub fn module_types() -> Vec<ModuleType> {
            [$(<redline_types::$name as Codec>::module_type(),)*].into_iter().flatten().collect()
        }

        fn rdb_type(value: &Value, version: FileVersion) -> Result<u8, CannotTell> {
            match value { $(Value::$name(value) => value.rdb_type(version),)* }
        }

        fn encode(out: &mut Writer, value: &Value, rdb_type: u8) {
            match value {
                $(Value::$name(value) => Codec::encode(&**value, out, rdb_type),)*
            }
        }

        fn encode_head(out: &mut Writer, value: &Value, rdb_type: u8) -> Rest {
            match value { $(Value::$name(value) => value.encode_head(out, rdb_type),)* }
        }

        fn encode_piece(out: &mut Writer, value: &mut Value, rdb_type: u8, number: i64) -> bool {
            match value { $(Value::$name(value) => value.encode_piece(out, rdb_type, number),)* }
        }

        fn decode(
            reader: &mut Reader<'_>,
            version: FileVersion,
            rdb_type: u8,
            limits: &Limits,
        ) -> Result<Value, Corrupt> {
            let module_type = match rdb_type {
                MODULE => Some(ModuleType(reader.number()?)),
                _ => None,
            };
            $(if <redline_types::$name as Codec>::parts(version, rdb_type).is_some()
                && module_type.is_none_or(<redline_types::$name as Codec>::reads_module_type)
            {
                let value = <redline_types::$name as Codec>::decode(
                    reader, version, rdb_type, module_type, limits,
                )?;
                return Ok(value.into());
            })*
            Err(Corrupt(match module_type {
                Some(_) => "a value of an unknown module",
                None => "an unknown type",
            }))
        }
    };
}

redline_types::data_types!(codecs);

/// Returns the parts of the form of each name, in a version.
pub(crate) fn forms(version: FileVersion) -> Box<Forms> {
    let mut forms: Box<Forms> = Box::new([None; 256]);
    for (rdb_type, form) in (0..=u8::MAX).zip(forms.iter_mut()) {
        *form = match rdb_type {
            STRING => Some(&[Part::String]),
            _ => PARTS.iter().find_map(|parts| parts(version, rdb_type)),
        };
    }
    forms
}

/// Returns the byte before a value in files of a version.
///
/// # Errors
///
/// If these have no form for the value.
pub fn type_of(object: ObjectRef<'_>, version: FileVersion) -> Result<u8, CannotTell> {
    match object {
        ObjectRef::String(_) => Ok(STRING),
        ObjectRef::Value(value) => rdb_type(value, version),
    }
}

/// Appends a value, in the form that [`type_of`] named for it, without that name.
pub fn write_as(out: &mut Writer, object: ObjectRef<'_>, rdb_type: u8) {
    match object {
        ObjectRef::String(text) => write_string(out, text),
        ObjectRef::Value(value) => encode(out, value, rdb_type),
    }
}

/// The rest of a value whose elements follow in pieces.
#[derive(Debug, Default)]
pub(crate) struct Rest {
    /// A number that the type needs for each piece.
    pub(crate) number: i64,
    /// The bytes behind the last piece.
    pub(crate) tail: Vec<u8>,
}

/// The form in which a value is written piece by piece.
#[derive(Debug)]
pub struct Pieces {
    rdb_type: u8,
    rest: Rest,
}

impl Pieces {
    /// Begins a value that is about to be frozen, in a form that [`type_of`] named for it, without that name.
    pub(crate) fn begin(out: &mut Writer, value: &Value, rdb_type: u8) -> Pieces {
        Pieces {
            rdb_type,
            rest: encode_head(out, value, rdb_type),
        }
    }

    /// Appends some of the elements that the value, which is frozen since, had then; returns true after the last one,
    /// which ends the freeze.
    pub fn append(&self, out: &mut Writer, value: &mut Value) -> bool {
        let is_last = encode_piece(out, value, self.rdb_type, self.rest.number);
        if is_last {
            out.extend_from_slice(&self.rest.tail);
        }
        is_last
    }
}

/// Appends a value in the form of payloads, without its name; returns the name.
pub fn write(out: &mut Writer, object: ObjectRef<'_>) -> u8 {
    let rdb_type = type_of(object, FileVersion::LATEST).expect("it holds every value");
    write_as(out, object, rdb_type);
    rdb_type
}

/// Reads a value of the form that has this name in files of a version.
///
/// # Errors
///
/// If the version has no such form, or the value is damaged.
pub fn read(
    reader: &mut Reader<'_>,
    version: FileVersion,
    rdb_type: u8,
    limits: &Limits,
) -> Result<Object, Corrupt> {
    if rdb_type == STRING {
        return Ok(Object::String(reader.string()?.into_owned()));
    }
    let value = decode(reader, version, rdb_type, limits)?;
    ensure(!value.leaves_no_key(), EMPTY.0)?;
    Ok(Object::Value(value))
}

/// Error for a collection without elements. Servers before Redis 7.0 could be made to write one.
pub const EMPTY: Corrupt = Corrupt("an empty collection");

#[cfg(test)]
pub(crate) mod tests;
