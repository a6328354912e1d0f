//! Fields, each with a value.
use crate::value::DataType;

/// Fields, each with a value.
#[derive(Clone, Default)]
pub struct Hash {}

impl DataType for Hash {
    const NAME: &'static str = "hash";

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
