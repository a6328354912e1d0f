//! Handover of a name from one node of a cluster to another: messages that both send are passed on once, and in order.
//! Pure: its inputs are frames, and its outputs due actions. Knows no connections.
//!
//! Every node of a cluster sends all published messages, so subscribing at the next node before leaving the last one
//! loses nothing; but each message arrives twice, at different times. Messages have no numbers. Two nodes send the same
//! bytes, in nearly the same order, soon after one another. So until the last node has been left, its messages are
//! passed on. Those of the next one are compared with them: a message of both is done, one of the next node alone waits
//! for the last node to send it, and is passed on if that never will. After that, the last node's messages that the next
//! one sends late are dropped.
//!
//! Its limit: two messages of equal bytes within `LATE_TICKS` are taken for one if only one node has received the
//! first; and a message that a node sends later than that is passed on twice.

use std::collections::VecDeque;
use std::hash::{BuildHasher as _, RandomState};

use crate::route::NodeId;

/// Ticks (of 100 ms) for which both nodes are subscribed, so that messages in flight to the next one arrive.
const BOTH_TICKS: u32 = 3;
/// Number of ticks in which the last node has to confirm the UNSUBSCRIBE; after that it is ignored.
const LEAVING_TICKS: u32 = 10;
/// Largest delay between two nodes' copies of a message: ticks.
const LATE_TICKS: u32 = 5;
/// Largest number of the last node's messages that are remembered.
const SAID_MAX: usize = 4_096;
/// Largest size of the messages that only the next node has sent: bytes. Beyond that the last one is not waited for.
const WAITING_BYTES_MAX: usize = 1024 * 1024;

/// The handover of a name.
pub struct Handover {
    /// The last node.
    from: NodeId,
    phase: Phase,
    /// Hashes and times of messages that the last node has sent and the next one has not. The latest are first.
    said: VecDeque<(u64, u32)>,
    /// Messages that the next node has sent and the last one has not.
    waiting: VecDeque<(u64, Vec<u8>)>,
    waiting_bytes: usize,
    hashes: RandomState,
}

/// Progress of a handover.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    /// The next node has not confirmed.
    Asking,
    /// Both send messages, until this tick.
    Both(u32),
    /// UNSUBSCRIBE was sent to the last one, which has until this tick to confirm it.
    Leaving(u32),
    /// The last one is left. Copies of its messages are dropped, until this tick.
    Left(u32),
}

/// The action that is due for a handover now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Due {
    /// None.
    Nothing,
    /// UNSUBSCRIBE is to be sent to the last node.
    Leave,
    /// The last node is left.
    End,
    /// No state is needed any more.
    Forget,
}

impl Handover {
    /// Returns a handover that begins with SUBSCRIBE at the next node; `from` is the last one.
    pub fn new(from: NodeId) -> Handover {
        Handover {
            from,
            phase: Phase::Asking,
            said: VecDeque::new(),
            waiting: VecDeque::new(),
            waiting_bytes: 0,
            hashes: RandomState::new(),
        }
    }

    /// Returns the last node, as long as its messages are passed on.
    pub fn heard(&self) -> Option<NodeId> {
        (!matches!(self.phase, Phase::Left(_))).then_some(self.from)
    }

    /// Returns the last node, if its messages are passed on and it has not been asked to stop.
    pub fn kept(&self) -> Option<NodeId> {
        matches!(self.phase, Phase::Asking | Phase::Both(_)).then_some(self.from)
    }

    /// Notes that the next node has confirmed.
    pub fn confirmed(&mut self, ticks: u32) {
        if self.phase == Phase::Asking {
            self.phase = Phase::Both(ticks.wrapping_add(BOTH_TICKS));
        }
    }

    /// Begins anew: the next node has to be asked again, or has changed.
    pub fn begin_anew(&mut self) {
        self.phase = Phase::Asking;
        self.waiting.clear();
        self.waiting_bytes = 0;
    }

    /// Notes that UNSUBSCRIBE was sent to the last node.
    pub fn leaving(&mut self, ticks: u32) {
        self.phase = Phase::Leaving(ticks.wrapping_add(LEAVING_TICKS));
    }

    /// Ends the last node's part, and returns the messages that it will not send any more.
    pub fn left(&mut self, ticks: u32) -> Vec<Vec<u8>> {
        self.phase = Phase::Left(ticks.wrapping_add(LATE_TICKS));
        self.waiting_bytes = 0;
        let waiting = std::mem::take(&mut self.waiting);
        waiting.into_iter().map(|(_, frame)| frame).collect()
    }

    /// Takes a message of one of the nodes; returns true if it is to be passed on.
    pub fn passes(&mut self, node: NodeId, frame: &[u8], ticks: u32) -> bool {
        let hash = self.hashes.hash_one(frame);
        if self.heard() == Some(node) {
            match self.waiting.iter().position(|(of, _)| *of == hash) {
                Some(at) => {
                    let same = self.waiting.remove(at);
                    self.waiting_bytes -= same.map_or(0, |(_, frame)| frame.len());
                }
                None => self.remember(hash, ticks),
            }
            return true;
        }
        self.forget_older(ticks);
        if let Some(at) = self.said.iter().position(|(of, _)| *of == hash) {
            self.said.remove(at);
            return false;
        }
        if self.heard().is_none() {
            return true;
        }
        self.waiting_bytes += frame.len();
        self.waiting.push_back((hash, frame.to_vec()));
        false
    }

    fn remember(&mut self, hash: u64, ticks: u32) {
        self.forget_older(ticks);
        self.said.truncate(SAID_MAX - 1);
        self.said.push_front((hash, ticks));
    }

    /// Forgets messages that the next node will not send any more, since they are too old.
    fn forget_older(&mut self, ticks: u32) {
        let is_old = |(_, at): &(u64, u32)| ticks.wrapping_sub(*at) >= LATE_TICKS;
        while self.said.back().is_some_and(is_old) {
            self.said.pop_back();
        }
    }

    /// Returns the action that is due at this tick.
    pub fn due(&self, ticks: u32) -> Due {
        let is_over = |until: u32| ticks.wrapping_sub(until) < u32::MAX / 2;
        let is_full = self.waiting_bytes > WAITING_BYTES_MAX;
        match self.phase {
            Phase::Both(until) if is_over(until) || is_full => Due::Leave,
            Phase::Leaving(until) if is_over(until) || is_full => Due::End,
            Phase::Left(until) if is_over(until) => Due::Forget,
            _ => Due::Nothing,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LAST: NodeId = 1;
    const NEXT: NodeId = 2;

    /// Returns the messages that are passed on, of those sent: by which node, the text, and at which tick.
    fn heard<'a>(handover: &mut Handover, said: &[(NodeId, &'a str, u32)]) -> Vec<&'a str> {
        let passes = |(node, text, ticks): &&(NodeId, &str, u32)| {
            handover.passes(*node, text.as_bytes(), *ticks)
        };
        said.iter()
            .filter(passes)
            .map(|(_, text, _)| *text)
            .collect()
    }

    fn both(ticks: u32) -> Handover {
        let mut handover = Handover::new(LAST);
        handover.confirmed(ticks);
        handover
    }

    fn rest(handover: &mut Handover, ticks: u32) -> Vec<String> {
        let rest = handover.left(ticks).into_iter();
        rest.map(|frame| String::from_utf8(frame).unwrap())
            .collect()
    }

    #[test]
    fn what_both_nodes_say_is_heard_once_and_in_the_order_of_the_last_one() {
        let mut handover = both(10);
        let said = [
            (LAST, "a", 10),
            (NEXT, "b", 10),
            (NEXT, "c", 10),
            (LAST, "b", 10),
            (LAST, "c", 11),
            (LAST, "d", 11),
            (NEXT, "d", 12),
            (NEXT, "e", 12),
        ];
        assert_eq!(heard(&mut handover, &said), ["a", "b", "c", "d"]);
        // The last one is gone before it has sent this.
        assert_eq!(rest(&mut handover, 12), ["e"]);
        assert_eq!(heard(&mut handover, &[(NEXT, "f", 12)]), ["f"]);
    }

    #[test]
    fn what_the_next_node_is_late_with_does_not_come_again() {
        let mut handover = both(10);
        assert_eq!(heard(&mut handover, &[(LAST, "a", 13)]), ["a"]);
        assert!(rest(&mut handover, 13).is_empty());
        let said = [(NEXT, "a", 14), (NEXT, "a", 14), (NEXT, "b", 14)];
        assert_eq!(heard(&mut handover, &said), ["a", "b"]);
    }

    #[test]
    fn what_only_the_last_node_has_heard_does_not_swallow_the_same_said_later() {
        let mut handover = Handover::new(LAST);
        assert_eq!(heard(&mut handover, &[(LAST, "tick", 1)]), ["tick"]);
        handover.confirmed(2);
        let later = 2 + LATE_TICKS;
        assert!(rest(&mut handover, later).is_empty());
        assert_eq!(heard(&mut handover, &[(NEXT, "tick", later)]), ["tick"]);
    }

    #[test]
    fn it_goes_from_step_to_step_by_the_clock_which_may_begin_anew() {
        let begin = u32::MAX - 1;
        let mut handover = Handover::new(LAST);
        assert_eq!(handover.due(begin.wrapping_add(1_000)), Due::Nothing);
        handover.confirmed(begin);
        assert_eq!(handover.due(begin), Due::Nothing);
        assert_eq!(handover.due(begin.wrapping_add(BOTH_TICKS)), Due::Leave);
        handover.leaving(5);
        assert_eq!(handover.heard(), Some(LAST));
        assert_eq!(handover.kept(), None);
        assert_eq!(handover.due(5), Due::Nothing);
        assert_eq!(handover.due(5 + LEAVING_TICKS), Due::End);
        handover.left(6);
        assert_eq!(handover.heard(), None);
        assert_eq!(handover.due(6), Due::Nothing);
        assert_eq!(handover.due(6 + LATE_TICKS), Due::Forget);
    }

    #[test]
    fn what_waits_and_what_is_remembered_have_their_bounds() {
        let mut handover = both(1);
        let large = vec![b'x'; WAITING_BYTES_MAX + 1];
        assert!(!handover.passes(NEXT, &large, 1));
        assert_eq!(handover.due(1), Due::Leave);
        handover.leaving(1);
        assert_eq!(handover.due(1), Due::End);
        for number in 0..2 * SAID_MAX {
            handover.passes(LAST, number.to_string().as_bytes(), 1);
        }
        assert_eq!(handover.said.len(), SAID_MAX);
    }
}
