//! Elements of collections as replies. Must not know: which collection they come from.

use redline_resp::Reply;
use redline_types::{Element, IntBuf};

use crate::Error;

/// Elements that are drawn at a stretch.
const PORTION: usize = 1024;

/// Writes an element as a bulk string.
#[inline]
pub(crate) fn bulk(reply: &mut Reply<'_>, element: Element<'_>) {
    match element {
        Element::Bytes(bytes) => reply.bulk(bytes),
        element => reply.bulk(element.bytes(&mut IntBuf::new())),
    }
}

/// Draws as many elements as wanted, of few that are there: in portions, since a client may want more than any reply
/// can hold. It ends in an error once the reply has more than `bytes_max` bytes.
pub(crate) fn draw(
    reply: &mut Reply<'_>,
    wanted: usize,
    bytes_max: u64,
    mut portion: impl FnMut(&mut Reply<'_>, usize),
) -> Result<(), Error> {
    let before = reply.buffer().len_bytes();
    let mut left = wanted;
    while left > 0 {
        let now = left.min(PORTION);
        portion(reply, now);
        left -= now;
        if (reply.buffer().len_bytes() - before) as u64 > bytes_max {
            return Err(Error::line(
                "ERR reply exceeds maximum allowed size (proto-max-bulk-len)",
            ));
        }
    }
    Ok(())
}
