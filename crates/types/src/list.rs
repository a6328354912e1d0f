//! A sequence of byte strings, quick at both ends.
use crate::value::DataType;

/// A sequence of byte strings, quick at both ends.
#[derive(Clone, Default)]
pub struct List {}

impl DataType for List {
    const NAME: &'static str = "list";

    fn encoding(&self) -> &'static str {
        "listpack"
    }

    fn len(&self) -> usize {
        0
    }

    fn heap_bytes(&self) -> usize {
        size_of::<Self>()
    }

    fn free_effort(&self) -> usize {
        1
    }
}
