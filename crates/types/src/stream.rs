//! An append-only log of entries under growing ids.
use crate::value::DataType;

/// An append-only log of entries under growing ids.
#[derive(Clone, Default)]
pub struct Stream {}

impl DataType for Stream {
    const NAME: &'static str = "stream";

    fn encoding(&self) -> &'static str {
        "stream"
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
