//! Members ordered by score, then by bytes.
use crate::value::DataType;

/// Members ordered by score, then by bytes.
#[derive(Clone, Default)]
pub struct Zset {}

impl DataType for Zset {
    const NAME: &'static str = "zset";

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
