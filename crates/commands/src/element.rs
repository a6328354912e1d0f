//! Elements of collections as replies. Must not know: which collection they come from.

use redline_resp::Reply;
use redline_types::{Element, IntBuf};

use crate::Error;

/// Number of elements that are drawn at once.
const PORTION: usize = 1024;

/// Writes an element as a bulk string.
#[inline]
pub(crate) fn bulk(reply: &mut Reply<'_>, element: Element<'_>) {
    match element {
        Element::Bytes(bytes) => reply.bulk(bytes),
        element => reply.bulk(element.bytes(&mut IntBuf::new())),
    }
}

/// Limit beyond which a reply is too large.
#[derive(Clone, Copy)]
pub(crate) struct Bound {
    bytes: u64,
}

impl Bound {
    /// Returns true if the reply has room for another element, which itself may exceed the limit.
    #[inline]
    pub(crate) fn leaves_room(self, reply: &mut Reply<'_>) -> bool {
        reply.buffer().len_bytes() as u64 <= self.bytes
    }
}

/// Draws `wanted` elements of a small collection: in portions, since a client may ask for more than any reply can hold.
/// It ends in an error once the reply has more than `bytes_max` bytes; each portion checks before each element.
pub(crate) fn draw(
    reply: &mut Reply<'_>,
    wanted: usize,
    bytes_max: u64,
    mut portion: impl FnMut(&mut Reply<'_>, usize, Bound),
) -> Result<(), Error> {
    let bound = Bound {
        bytes: (reply.buffer().len_bytes() as u64).saturating_add(bytes_max),
    };
    let mut left = wanted;
    while left > 0 {
        let now = left.min(PORTION);
        portion(reply, now, bound);
        left -= now;
        if !bound.leaves_room(reply) {
            return Err(Error::line(
                "ERR reply exceeds maximum allowed size (proto-max-bulk-len)",
            ));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use redline_resp::{Proto, ReplyBuffer};
    use redline_types::Set;

    use super::*;

    #[test]
    fn a_portion_of_large_elements_ends_at_the_bound() {
        const MEMBER_BYTES: usize = 1 << 20;
        let mut set = Set::new();
        set.add(&[b'x'; MEMBER_BYTES], &Default::default());
        let mut out = ReplyBuffer::new();
        let mut reply = Reply::new(&mut out, Proto::Resp2);
        let drawn = draw(&mut reply, PORTION, 1, |reply, portion, bound| {
            set.random_members(portion, &mut || 7, |member| {
                if bound.leaves_room(reply) {
                    bulk(reply, member);
                }
            });
        });
        assert!(drawn.is_err());
        assert!(out.len_bytes() < 2 * MEMBER_BYTES);
    }
}
