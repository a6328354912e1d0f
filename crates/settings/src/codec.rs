//! Conversions between a checked value and the type of a field. Must not know any parameter.

use redline_types::{limits::Rate, number};

use crate::value::{Refusal, Value};

/// Conversion between a value and a field of type `T`. Plain types implement it for themselves; where a type has no
/// obvious one, or belongs to another crate, a row names a type that does.
pub trait Codec<T> {
    /// Returns the field for a value, without a previous one.
    fn of(value: &Value) -> Result<T, Refusal>;

    /// Returns the value of a field.
    fn value(field: &T) -> Value;

    /// Sets a field.
    fn set(field: &mut T, value: &Value) -> Result<(), Refusal> {
        *field = Self::of(value)?;
        Ok(())
    }
}

macro_rules! integers {
    ($($type:ty),*) => {$(
        impl Codec<$type> for $type {
            fn of(value: &Value) -> Result<$type, Refusal> {
                Ok(value.integer() as $type)
            }

            fn value(field: &$type) -> Value {
                Value::Integer(*field as i64)
            }
        }
    )*};
}

integers!(u8, u32, u64, usize, i32, i64);

impl Codec<bool> for bool {
    fn of(value: &Value) -> Result<bool, Refusal> {
        Ok(value.is_on())
    }

    fn value(field: &bool) -> Value {
        Value::Switch(*field)
    }
}

impl Codec<String> for String {
    fn of(value: &Value) -> Result<String, Refusal> {
        utf8(value.bytes())
    }

    fn value(field: &String) -> Value {
        Value::Text(field.clone().into_bytes())
    }
}

/// An empty text is `None`.
impl Codec<Option<String>> for Option<String> {
    fn of(value: &Value) -> Result<Option<String>, Refusal> {
        utf8(value.bytes()).map(|text| (!text.is_empty()).then_some(text))
    }

    fn value(field: &Option<String>) -> Value {
        Value::Text(field.clone().unwrap_or_default().into_bytes())
    }
}

/// An empty text is `None`.
impl Codec<Option<Vec<u8>>> for Option<Vec<u8>> {
    fn of(value: &Value) -> Result<Option<Vec<u8>>, Refusal> {
        Ok((!value.bytes().is_empty()).then(|| value.bytes().to_vec()))
    }

    fn value(field: &Option<Vec<u8>>) -> Value {
        Value::Text(field.clone().unwrap_or_default())
    }
}

impl Codec<Vec<String>> for Vec<String> {
    fn of(value: &Value) -> Result<Vec<String>, Refusal> {
        value.words().iter().map(|word| utf8(word)).collect()
    }

    fn value(field: &Vec<String>) -> Value {
        Value::Words(field.iter().map(|word| word.clone().into_bytes()).collect())
    }
}

impl Codec<Rate> for Rate {
    fn of(value: &Value) -> Result<Rate, Refusal> {
        const WRONG: &str = "argument must be a number in the range (0.000000, 1.000000)";
        let rate = number::parse_f64(value.bytes()).and_then(Rate::new);
        Ok(rate.ok_or(WRONG)?)
    }

    fn value(rate: &Rate) -> Value {
        Value::Text(rate.get().to_string().into_bytes())
    }
}

/// A TCP port, where 0 means no port.
pub struct Port;

impl Codec<Option<u16>> for Port {
    fn of(value: &Value) -> Result<Option<u16>, Refusal> {
        let port = u16::try_from(value.integer()).ok();
        Ok(port.filter(|port| *port != 0))
    }

    fn value(field: &Option<u16>) -> Value {
        Value::Integer(field.unwrap_or(0).into())
    }
}

/// Returns the error for a text that is not in the choice.
pub const NOT_UTF8: &str = "argument must be UTF-8";

fn utf8(bytes: &[u8]) -> Result<String, Refusal> {
    String::from_utf8(bytes.to_vec()).map_err(|_| NOT_UTF8.into())
}

/// Makes a type the codec of a choice of words: `Codec: Type { "word" => Variant, … }`, with `Codec::NAMES` for the
/// syntax. Of several words for one variant the first is shown.
#[macro_export]
macro_rules! choices {
    ($($codec:ident: $type:ident { $($name:literal => $variant:ident),* $(,)? })*) => {$(
        impl $codec {
            /// Words in the order of the syntax.
            pub const NAMES: &[&str] = &[$($name),*];
        }

        impl $crate::Codec<$type> for $codec {
            fn of(value: &$crate::value::Value) -> Result<$type, $crate::value::Refusal> {
                const VALUES: &[$type] = &[$($type::$variant),*];
                Ok(VALUES[value.integer() as usize])
            }

            fn value(field: &$type) -> $crate::value::Value {
                const VALUES: &[$type] = &[$($type::$variant),*];
                let at = VALUES.iter().position(|value| value == field);
                $crate::value::Value::Integer(at.unwrap_or_default() as i64)
            }
        }
    )*};
}
