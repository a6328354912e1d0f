//! Members without order.
use crate::value::DataType;

/// Members without order.
#[derive(Clone, Default)]
pub struct Set {}

impl DataType for Set {
    const NAME: &'static str = "set";

    fn encoding(&self) -> &'static str {
        "intset"
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
