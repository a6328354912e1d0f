//! A name's way from one node of a cluster to another: what both say of it meanwhile comes once, and in order. Pure: frames
//! come in, and what is due. Knows no connection.
//!
//! Any node of a cluster hears what is published, so who asks the next node before it leaves the last one misses nothing;
//! but it hears everything twice, and not at the same time. Messages have no numbers. What can be relied on is that two
//! nodes say the same bytes, in nearly the same order, soon after one another. So until the last node has been left, what
//! it says is what is heard. What the next one says is compared with that: what both have said is done with, what only the
//! next one has said waits for the last one to say it, and is heard when that one never will. Behind that, the last one's
//! messages that the next one is late with are passed over when they come.
//!
//! Its limit: two messages of equal bytes within [`LATE_TICKS`] are taken for one where only one node has heard the first;
//! and what a node says later than that comes twice.

use std::collections::VecDeque;
use std::hash::{BuildHasher as _, RandomState};

use crate::route::NodeId;

/// Both nodes are heard for so many ticks (of 100 ms): what the last one knows of was on its way to the next one, too.
const BOTH_TICKS: u32 = 3;
/// The last node says within so many ticks that it was left, or is heard no more.
const LEAVING_TICKS: u32 = 10;
/// A node says what another one has said at most so many ticks later.
const LATE_TICKS: u32 = 5;
/// Messages of the last node of which it is remembered that it has said them.
const SAID_MAX: usize = 4_096;
/// Size of the messages that the next node has sent and the last one has not: bytes. Beyond that it is not waited for.
const WAITING_BYTES_MAX: usize = 1024 * 1024;

/// See the module's text.
pub struct Handover {
    /// The last node.
    from: NodeId,
    phase: Phase,
    /// By the hash of their bytes: what the last node has said, and when, and the next one has not. The latest are first.
    said: VecDeque<(u64, u32)>,
    /// Messages that the next node has sent and the last one has not.
    waiting: VecDeque<(u64, Vec<u8>)>,
    waiting_bytes: usize,
    hashes: RandomState,
}

/// How far it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    /// The next node has not confirmed.
    Asking,
    /// Both say what is published, until then.
    Both(u32),
    /// The last one has been told that it is left, and has until then to say that it knows.
    Leaving(u32),
    /// It is left. What it has said is not heard again, until then.
    Left(u32),
}

/// The action that is due for a handover now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Due {
    /// None.
    Nothing,
    /// The last node is to be left.
    Leave,
    /// It is left.
    End,
    /// There is nothing to remember any more.
    Forget,
}

impl Handover {
    /// Begins when the next node is asked; `from` is the last one.
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

    /// The next node has confirmed.
    pub fn confirmed(&mut self, ticks: u32) {
        if self.phase == Phase::Asking {
            self.phase = Phase::Both(ticks.wrapping_add(BOTH_TICKS));
        }
    }

    /// The next node has to be asked again, or another one is the next.
    pub fn begin_anew(&mut self) {
        self.phase = Phase::Asking;
        self.waiting.clear();
        self.waiting_bytes = 0;
    }

    /// The last node has been told that it is left.
    pub fn leaving(&mut self, ticks: u32) {
        self.phase = Phase::Leaving(ticks.wrapping_add(LEAVING_TICKS));
    }

    /// The last node is left: what nobody will say any more is heard now.
    pub fn left(&mut self, ticks: u32) -> Vec<Vec<u8>> {
        self.phase = Phase::Left(ticks.wrapping_add(LATE_TICKS));
        self.waiting_bytes = 0;
        let waiting = std::mem::take(&mut self.waiting);
        waiting.into_iter().map(|(_, frame)| frame).collect()
    }

    /// A node that is asked says this: whether it is to be heard.
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

    /// Forgets messages that the next node will not send any more, as it has not so far.
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
        // The last one is gone before it has said this.
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
