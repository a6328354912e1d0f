//! Elements of collections as replies. Must not know: which collection they come from.

use redline_resp::Reply;
use redline_types::{Element, IntBuf};

/// Writes an element as a bulk string.
#[inline]
pub(crate) fn bulk(reply: &mut Reply<'_>, element: Element<'_>) {
    match element {
        Element::Bytes(bytes) => reply.bulk(bytes),
        element => reply.bulk(element.bytes(&mut IntBuf::new())),
    }
}
