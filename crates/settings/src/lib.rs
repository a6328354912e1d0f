//! Parameters as rows: [`settings!`] makes of a list of rows a plain structure, its defaults, and the functions that
//! read and write each of its fields by name.
//!
//! | file | holds |
//! |---|---|
//! | `row` | a row: name, syntax, default, description, when it takes effect; the field that it sets |
//! | `value` | the syntax of values: how they are written, checked and shown |
//! | `codec` | conversions between a checked value and the type of a field |
//!
//! Must not know: any parameter, the source of values.

#![forbid(unsafe_code)]

pub mod codec;
pub mod row;
pub mod value;

pub use codec::Codec;
pub use row::{Class, Field, Row, Setting};

/// Declares a structure of settings by its rows.
///
/// In braces after the name are fields that no parameter sets, each with its first value. Then come groups of rows,
/// each a constant `&[Setting<Structure>]`. A row is one of
///
/// ```text
/// field: Type = ("name", Class, syntax, "default", "Description.");   a field of the structure
/// field: Type as Codec = (…);                                         converted by a `Codec<Type>`
/// [place.of.field]: Type = (…);                                       a field inside of another field; likewise with `as`
/// _ = (…);                                                            no field: it has no effect
/// ```
///
/// with options after it: `.alias("old-name")`, `.within(1, 500)`, `.then(function)` and the others of [`Setting`].
/// Descriptions are also the documentation of the fields; a note for readers of the field only stands above the row.
#[macro_export]
macro_rules! settings {
    (
        $(#[$meta:meta])*
        $vis:vis struct $name:ident {
            $($(#[$plain_meta:meta])* $plain:ident: $plain_type:ty = $first:expr;)*
        }
        $(
            $(#[$group_meta:meta])*
            $group:ident = {
                $(
                    $(_)?
                    $($(#[$field_meta:meta])* $field:ident: $type:ty $(as $codec:ty)?)?
                    $([$($place:tt)+]: $place_type:ty $(as $place_codec:ty)?)?
                    = ($label:literal, $class:ident, $syntax:expr, $default:literal, $doc:literal)
                    $(.$option:ident($($argument:expr),*))*;
                )*
            }
        )*
    ) => {
        $(#[$meta])*
        $vis struct $name {
            $($(#[$plain_meta])* pub $plain: $plain_type,)*
            $($($(#[doc = $doc] $(#[$field_meta])* pub $field: $type,)?)*)*
        }

        impl Default for $name {
            fn default() -> Self {
                #[allow(unused_mut)]
                let mut settings = $name {
                    $($plain: $first,)*
                    $($($($field: <$crate::codec_of!($type $(as $codec)?) as $crate::Codec<$type>>::of(
                        &$crate::value::default_of($syntax, $default),
                    ).expect("the default of a row is a value of its field"),)?)*)*
                };
                $($($(settings.$($place)+ = <$crate::codec_of!($place_type $(as $place_codec)?) as $crate::Codec<$place_type>>::of(
                    &$crate::value::default_of($syntax, $default),
                ).expect("the default of a row is a value of its field");)?)*)*
                settings
            }
        }

        $(
            $(#[$group_meta])*
            $vis const $group: &[$crate::Setting<$name>] = &[$(
                $crate::Setting::<$name>::new($label, $crate::Class::$class, $syntax, $default, $doc)
                $(.kept_in(
                    |settings| <$crate::codec_of!($type $(as $codec)?) as $crate::Codec<$type>>::value(&settings.$field),
                    |settings, value| <$crate::codec_of!($type $(as $codec)?) as $crate::Codec<$type>>::set(&mut settings.$field, value),
                ))?
                $(.kept_in(
                    |settings| <$crate::codec_of!($place_type $(as $place_codec)?) as $crate::Codec<$place_type>>::value(&settings.$($place)+),
                    |settings, value| <$crate::codec_of!($place_type $(as $place_codec)?) as $crate::Codec<$place_type>>::set(&mut settings.$($place)+, value),
                ))?
                $(.$option($($argument),*))*,
            )*];
        )*
    };
}

/// Names the codec of a field: its own type, unless the row names another.
#[doc(hidden)]
#[macro_export]
macro_rules! codec_of {
    ($type:ty) => {
        $type
    };
    ($type:ty as $codec:ty) => {
        $codec
    };
}
