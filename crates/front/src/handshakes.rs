//! Deadlines of TLS handshakes: a peer that does not finish one takes a descriptor, and no limit for clients applies yet.
//! Must not know connections.

use std::collections::VecDeque;

/// Time limit for a handshake: milliseconds.
const HANDSHAKE_MS_MAX: u64 = 10_000;

/// Connections that began with a handshake, in the order of their deadlines. It may be over since.
#[derive(Debug)]
pub struct Handshakes<C>(VecDeque<(C, u64)>);

impl<C> Default for Handshakes<C> {
    fn default() -> Handshakes<C> {
        Handshakes(VecDeque::new())
    }
}

impl<C> Handshakes<C> {
    /// Notes a handshake that begins at this time of a monotonic clock: milliseconds, not less than at the call before.
    pub fn begin(&mut self, connection: C, now_ms: u64) {
        self.0.push_back((connection, now_ms + HANDSHAKE_MS_MAX));
    }

    /// Removes and returns a connection whose deadline has passed; `None`: there is none any more. Its owner closes it if
    /// it is still there and its handshake is not over.
    pub fn next_overdue(&mut self, now_ms: u64) -> Option<C> {
        let (_, deadline_ms) = self.0.front()?;
        if *deadline_ms > now_ms {
            return None;
        }
        self.0.pop_front().map(|(connection, _)| connection)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn handshakes_are_overdue_in_order_and_once() {
        let mut handshakes = Handshakes::default();
        handshakes.begin('a', 1_000);
        handshakes.begin('b', 1_000);
        handshakes.begin('c', 1_001);
        let overdue = |handshakes: &mut Handshakes<char>, now_ms| -> String {
            std::iter::from_fn(|| handshakes.next_overdue(now_ms)).collect()
        };
        assert_eq!(overdue(&mut handshakes, 1_000 + HANDSHAKE_MS_MAX - 1), "");
        assert_eq!(overdue(&mut handshakes, 1_000 + HANDSHAKE_MS_MAX), "ab");
        assert_eq!(overdue(&mut handshakes, u64::MAX), "c");
        assert_eq!(overdue(&mut handshakes, u64::MAX), "");
    }
}
