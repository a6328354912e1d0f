//! Bytes that wait for room in a socket. Knows no socket.

use std::sync::Arc;

/// Bytes that are sent from the front, a piece at a time.
///
/// The rest is not moved after each piece: a value of 600 MB is sent in hundreds, and would be copied as often.
#[derive(Default)]
pub struct Outgoing {
    bytes: Bytes,
    /// Number of bytes sent.
    sent: usize,
}

enum Bytes {
    /// Owned: they can be moved and extended.
    Own(Vec<u8>),
    /// Shared with other holders.
    Shared(Arc<Vec<u8>>),
}

impl Default for Bytes {
    fn default() -> Bytes {
        Bytes::Own(Vec::new())
    }
}

impl Bytes {
    fn all(&self) -> &[u8] {
        match self {
            Bytes::Own(own) => own,
            Bytes::Shared(shared) => shared,
        }
    }
}

/// Largest buffer that is kept when it is empty.
const KEPT_BYTES_MAX: usize = 256 * 1024;

impl Outgoing {
    /// Returns a buffer of these bytes.
    pub fn of(bytes: &[u8]) -> Outgoing {
        Outgoing {
            bytes: Bytes::Own(bytes.to_vec()),
            sent: 0,
        }
    }

    /// Returns a buffer of these bytes, of which `sent` were sent; they are not copied.
    pub fn behind(bytes: Arc<Vec<u8>>, sent: usize) -> Outgoing {
        Outgoing {
            bytes: Bytes::Shared(bytes),
            sent,
        }
    }

    /// Returns the bytes that have not been sent yet.
    pub fn rest(&self) -> &[u8] {
        &self.bytes.all()[self.sent..]
    }

    /// Returns true if all bytes have been sent.
    pub fn is_empty(&self) -> bool {
        self.sent == self.bytes.all().len()
    }

    /// Returns the vector for more bytes, after the present ones.
    pub fn more(&mut self) -> &mut Vec<u8> {
        if let Bytes::Shared(shared) = &self.bytes {
            self.bytes = Bytes::Own(shared[self.sent..].to_vec());
            self.sent = 0;
        }
        match &mut self.bytes {
            Bytes::Own(own) => own,
            Bytes::Shared(_) => unreachable!("it has just been copied"),
        }
    }

    /// Notes that this many bytes were sent.
    pub fn left(&mut self, bytes: usize) {
        self.sent += bytes;
        if self.is_empty() {
            self.clear();
        } else if let Bytes::Own(own) = &mut self.bytes
            && self.sent > own.len() / 2
        {
            // No byte is moved before more than half of them were sent.
            own.drain(..self.sent);
            self.sent = 0;
        }
    }

    /// Drops all bytes.
    pub fn clear(&mut self) {
        self.sent = 0;
        match &mut self.bytes {
            Bytes::Own(own) if own.capacity() <= KEPT_BYTES_MAX => own.clear(),
            _ => self.bytes = Bytes::default(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_leave_in_their_order() {
        let all: Vec<u8> = (0..=255).collect();
        let (mut outgoing, mut seen) = (Outgoing::of(&all[..100]), Vec::new());
        outgoing.more().extend_from_slice(&all[100..]);
        for piece in (1..).map(|n| n % 13) {
            let piece = outgoing.rest().len().min(piece);
            seen.extend_from_slice(&outgoing.rest()[..piece]);
            outgoing.left(piece);
            if outgoing.is_empty() {
                break;
            }
        }
        assert_eq!(seen, all);
    }

    #[test]
    fn what_has_left_before_does_not_leave_again() {
        let shared = Arc::new(b"abcd".to_vec());
        let mut outgoing = Outgoing::behind(Arc::clone(&shared), 3);
        assert_eq!(outgoing.rest(), b"d");
        outgoing.more().push(b'e');
        outgoing.left(1);
        assert_eq!(outgoing.rest(), b"e");
        outgoing.left(1);
        assert!(outgoing.is_empty());
        assert_eq!(*shared, b"abcd");
    }

    #[test]
    fn shared_bytes_are_given_back_as_soon_as_they_have_left() {
        let shared = Arc::new(b"abcd".to_vec());
        let mut outgoing = Outgoing::behind(Arc::clone(&shared), 1);
        outgoing.left(2);
        assert_eq!(
            (outgoing.rest(), Arc::strong_count(&shared)),
            (&b"d"[..], 2)
        );
        outgoing.left(1);
        assert!(outgoing.is_empty());
        assert_eq!(Arc::strong_count(&shared), 1);
    }

    #[test]
    fn a_large_value_that_leaves_in_many_pieces_is_not_moved_with_each() {
        const BYTES: usize = 1 << 20;
        let (mut outgoing, mut moved) = (Outgoing::of(&[0; BYTES]), 0);
        while !outgoing.is_empty() {
            let next = outgoing.rest()[1..].as_ptr();
            outgoing.left(1);
            if outgoing.rest().as_ptr() != next {
                moved += outgoing.rest().len();
            }
        }
        assert!(moved <= BYTES, "{moved} bytes were moved");
    }
}
