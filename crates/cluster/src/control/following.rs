//! A replica: what it promises its primary, and how it takes over (T7).
//!
//! A candidate whose last promise has run out cuts its link, so that nothing is acknowledged in the old term any more,
//! and asks the other candidates. Those that do not hear the primary either cut theirs, and let the one with most data go
//! first; whoever has exactly the same data is a candidate of the new term, and promises for it.
//!
//! Must not know: how a primary counts.

use std::collections::BTreeMap;

use super::{Control, Message, Mutant, Place, Purpose, Refusal, Role, Wish, changes, returning};
use crate::records::{Incarnation, SHARDS, ShardRecord};

/// Time for which the answers of other candidates are waited for: milliseconds.
const ANSWERS_MS: u64 = 200;
/// Longest promise that is made: milliseconds.
const PROMISE_MAX_MS: u64 = 600_000;

/// State of a replica under one primary.
#[derive(Clone, Debug)]
pub(crate) struct Following {
    pub shard: String,
    pub record: ShardRecord,
    /// True if the data are whole, and from the stream of this term.
    is_linked: bool,
    /// False from the moment at which the data may be given up, until they are whole again.
    is_whole: bool,
    /// When the primary was last heard, or could first have been.
    heard_ms: u64,
    /// When the primary last asked, whatever the answer was.
    asked_ms: Option<u64>,
    stage: Stage,
    /// Until when those that have more go first.
    patient_until_ms: Option<u64>,
}

#[derive(Clone, Debug)]
enum Stage {
    Follow,
    /// The link is being cut, for the bid of another if there is one.
    Cutting {
        bid: Option<(String, Bid)>,
    },
    /// It is cut; at this time it goes on.
    Cut {
        place: Place,
        at_ms: u64,
    },
    /// The other candidates have been asked.
    Asking {
        place: Place,
        since_ms: u64,
        answers: BTreeMap<String, Level>,
        heard: usize,
    },
    /// T7 is on the desk, with these in the new term.
    Bidding {
        answers: BTreeMap<String, Level>,
    },
    /// Another goes first.
    Yielded {
        place: Place,
    },
}

#[derive(Clone, Debug)]
struct Bid {
    term: u64,
    place: Place,
    clock_ms: u64,
    promise_ms: u64,
}

/// A candidate that lets another go first.
#[derive(Clone, Debug)]
struct Level {
    incarnation: String,
    place: Place,
    promised_ms: u64,
}

impl Following {
    /// Returns true unless the data may have been given up, and are not whole again.
    pub(super) fn is_whole(&self) -> bool {
        self.is_whole
    }

    /// Returns the promises that this node holds for a term of its own.
    pub(super) fn promises(&self, record: &ShardRecord) -> Vec<(Incarnation, u64)> {
        let Stage::Bidding { answers } = &self.stage else {
            return Vec::new();
        };
        if record.term != self.record.term + 1 {
            return Vec::new();
        }
        let answers = answers.iter().map(|(node, level)| {
            let (node, incarnation) = (node.clone(), level.incarnation.clone());
            (Incarnation { node, incarnation }, level.promised_ms)
        });
        answers.collect()
    }
}

impl Control {
    pub(super) fn follow(&mut self, shard: String, record: ShardRecord) {
        let mut is_whole = true;
        match &mut self.role {
            Role::Replica(following) => {
                let old = &following.record;
                if (&following.shard, old.term, &old.primary)
                    == (&shard, record.term, &record.primary)
                {
                    following.record = record;
                    return;
                }
                is_whole = following.is_whole;
            }
            Role::Primary(_) => {
                if let Some(number) = self.hand_over_number()
                    && self.purpose != Purpose::HandOver(number)
                {
                    let result = Err(Refusal::Changed);
                    self.wishes.push(Wish::Done { number, result });
                }
            }
            _ => {}
        }
        let following = Following {
            shard: shard.clone(),
            record: record.clone(),
            is_linked: false,
            is_whole,
            heard_ms: self.now_ms,
            asked_ms: None,
            stage: Stage::Follow,
            patient_until_ms: None,
        };
        self.role = Role::Replica(Box::new(following));
        // A primary loses its right before anything else happens.
        self.tell();
        self.wishes.push(Wish::Follow {
            shard,
            term: record.term,
            primary: record.primary,
        });
    }

    fn following(&mut self) -> Option<&mut Following> {
        match &mut self.role {
            Role::Replica(following) => Some(following),
            _ => None,
        }
    }

    pub(super) fn linked(&mut self, term: u64) {
        if let Some(following) = self.following()
            && following.record.term == term
            && matches!(following.stage, Stage::Follow)
        {
            (following.is_linked, following.is_whole) = (true, true);
            self.wants_empty = false;
        }
    }

    pub(super) fn unlinked(&mut self) {
        if let Some(following) = self.following() {
            following.is_linked = false;
        }
    }

    pub(super) fn hear(&mut self, from: &str, message: Message) {
        match message {
            Message::Ask {
                shard,
                term,
                incarnation,
                revision,
                clock_ms,
                promise_ms,
                is_waiting: _,
            } => {
                if !self.is_out_since(&shard, revision) {
                    self.asked(from, &shard, term, incarnation, clock_ms, promise_ms);
                }
            }
            Message::Promise {
                term,
                incarnation,
                clock_ms,
                promise_ms,
            } => self.promised(from, term, &incarnation, clock_ms, promise_ms),
            Message::Bid {
                shard,
                term,
                place,
                clock_ms,
                promise_ms,
            } => {
                let bid = Bid {
                    term,
                    place,
                    clock_ms,
                    promise_ms,
                };
                self.bid_heard(from, &shard, bid);
            }
            Message::Yield {
                term,
                incarnation,
                place,
                clock_ms,
                promise_ms,
            } => {
                let level = Level {
                    incarnation,
                    place,
                    promised_ms: clock_ms.saturating_add(promise_ms / 100 * 99),
                };
                self.answered(from, term, Some(level));
            }
            Message::Hears { term } => self.answered(from, term, None),
            Message::Further { term } => self.is_behind(term),
            Message::Superseded { shard, term, .. } => self.superseded(&shard, term),
        }
    }

    /// Returns what is answered to somebody with an old term.
    fn newer(&self, shard: &str, term: u64) -> Option<Message> {
        let own = match &self.role {
            Role::Primary(leading) => (&leading.shard, leading.record.term),
            Role::Replica(following) => (&following.shard, following.record.term),
            _ => return None,
        };
        (own.0 == shard && own.1 > term).then(|| Message::Superseded {
            shard: shard.to_owned(),
            term: own.1,
            revision: self.known.revision(),
        })
    }

    /// Returns true if this process is no candidate, and the primary may not know yet that it left: it would count it.
    fn is_out_since(&self, shard: &str, revision: u64) -> bool {
        let known = self.known.revision_of(&format!("{SHARDS}{shard}"));
        let is_candidate = match &self.role {
            Role::Replica(following) => self.is_candidate(&following.record),
            _ => true,
        };
        known > revision && !is_candidate
    }

    fn asked(
        &mut self,
        from: &str,
        shard: &str,
        term: u64,
        incarnation: String,
        clock_ms: u64,
        promise_ms: u64,
    ) {
        if let Some(newer) = self.newer(shard, term) {
            self.send(from, newer);
            return;
        }
        let (now_ms, mutants) = (self.now_ms, self.mutants);
        let leaves = self.purpose == Purpose::OutSelf;
        let Some(following) = self.following() else {
            return;
        };
        let primary = &following.record.primary;
        let is_mine = (from, &incarnation) == (&primary.node, &primary.incarnation)
            && (shard, term) == (&following.shard, following.record.term);
        if !is_mine || promise_ms > PROMISE_MAX_MS {
            return;
        }
        following.asked_ms = Some(now_ms);
        let is_steady = matches!(following.stage, Stage::Follow) && following.is_linked
            || mutants.has(Mutant::PromisesWhileBidding)
                && !matches!(following.stage, Stage::Follow);
        // Whoever leaves the candidates would be one again by its promise, and not know it once it has left.
        if !is_steady || leaves {
            return;
        }
        following.heard_ms = now_ms;
        self.promise(promise_ms);
        let incarnation = self.me.incarnation.clone();
        let message = Message::Promise {
            term,
            incarnation,
            clock_ms,
            promise_ms,
        };
        self.send(from, message);
    }

    /// Promises not to take over for so long. A clock that shows whole milliseconds may be one short.
    fn promise(&mut self, promise_ms: u64) {
        let until_ms = self.now_ms + promise_ms + 1;
        self.promised_until_ms = self.promised_until_ms.max(until_ms);
        self.may_be_candidate = true;
    }

    pub(super) fn follow_on(&mut self) {
        if std::mem::take(&mut self.wants_empty) {
            self.wants_empty = !self.try_empty();
        }
        let (now_ms, half) = (self.now_ms, self.settings.promise_ms / 2);
        let is_free = self.desk.is_free();
        let has_promised =
            now_ms <= self.promised_until_ms && !self.mutants.has(Mutant::NoPromiseKept);
        let promise_ms = self.settings.promise_ms;
        let Role::Replica(following) = &self.role else {
            return;
        };
        let is_candidate = self.is_candidate(&following.record) && following.is_whole;
        let asks = following.asked_ms.is_some_and(|at| now_ms <= at + half);
        match &following.stage {
            Stage::Follow => {
                let silent = match self.mutants.has(Mutant::NoPromiseKept) {
                    true => half,
                    false => promise_ms,
                };
                if is_candidate && !has_promised && now_ms > following.heard_ms + silent {
                    self.cut(None);
                } else if !following.is_linked && is_free {
                    self.take_up_as_candidate();
                }
            }
            Stage::Cutting { .. } => {}
            Stage::Cut { place, at_ms } if now_ms >= *at_ms => {
                let place = *place;
                if !is_candidate || has_promised && asks {
                    self.follow_again();
                } else if !has_promised && is_free {
                    self.ask_others(place);
                }
            }
            Stage::Cut { .. } => {}
            Stage::Asking {
                since_ms, heard, ..
            } => {
                let others = following.record.candidates.len().saturating_sub(1);
                if !is_candidate {
                    self.follow_again();
                } else if is_free && (*heard >= others || now_ms > since_ms + ANSWERS_MS) {
                    self.bid();
                }
            }
            Stage::Bidding { .. } => {}
            Stage::Yielded { place } if !has_promised => {
                let place = *place;
                if !is_candidate || asks {
                    self.follow_again();
                } else {
                    self.stage(Stage::Cut {
                        place,
                        at_ms: now_ms,
                    });
                }
            }
            Stage::Yielded { .. } => {}
        }
    }

    fn stage(&mut self, stage: Stage) {
        if let Some(following) = self.following() {
            following.stage = stage;
        }
    }

    fn cut(&mut self, bid: Option<(String, Bid)>) {
        self.stage(Stage::Cutting { bid });
        self.unlinked();
        self.wishes.push(Wish::Cut);
    }

    /// Follows the same primary again.
    fn follow_again(&mut self) {
        let now_ms = self.now_ms;
        let Some(following) = self.following() else {
            return;
        };
        following.stage = Stage::Follow;
        following.heard_ms = now_ms;
        following.patient_until_ms = None;
        let (shard, record) = (following.shard.clone(), following.record.clone());
        self.wishes.push(Wish::Follow {
            shard,
            term: record.term,
            primary: record.primary,
        });
    }

    pub(super) fn is_cut(&mut self, place: Place) {
        let now_ms = self.now_ms;
        let Some(following) = self.following() else {
            return;
        };
        let Stage::Cutting { bid } = &mut following.stage else {
            return;
        };
        let bid = bid.take();
        following.stage = Stage::Cut {
            place,
            at_ms: now_ms,
        };
        if let Some((from, bid)) = bid {
            self.compare(&from, bid, place);
        }
    }

    fn ask_others(&mut self, place: Place) {
        let (now_ms, promise_ms) = (self.now_ms, self.settings.promise_ms);
        let me = self.me.node.clone();
        let Some(following) = self.following() else {
            return;
        };
        following
            .patient_until_ms
            .get_or_insert(now_ms + promise_ms);
        following.stage = Stage::Asking {
            place,
            since_ms: now_ms,
            answers: BTreeMap::new(),
            heard: 0,
        };
        let message = Message::Bid {
            shard: following.shard.clone(),
            term: following.record.term + 1,
            place,
            clock_ms: now_ms,
            promise_ms,
        };
        for who in following.record.candidates.clone() {
            if who.node != me {
                self.send(&who.node, message.clone());
            }
        }
    }

    /// Hears that another candidate wants to take over.
    fn bid_heard(&mut self, from: &str, shard: &str, bid: Bid) {
        if bid.term > 0
            && let Some(newer) = self.newer(shard, bid.term - 1)
        {
            self.send(from, newer);
            return;
        }
        if self.purpose == Purpose::OutSelf {
            return;
        }
        let (now_ms, half) = (self.now_ms, self.settings.promise_ms / 2);
        let Some(following) = self.following() else {
            return;
        };
        let record = &following.record;
        let is_in = record.candidates.iter().any(|it| it.node == from);
        if following.shard != shard
            || record.term + 1 != bid.term
            || !is_in
            || !following.is_whole
            || bid.promise_ms > PROMISE_MAX_MS
        {
            return;
        }
        match &following.stage {
            Stage::Follow if following.is_linked && now_ms <= following.heard_ms + half => {
                self.send(from, Message::Hears { term: bid.term });
            }
            Stage::Follow => self.cut(Some((from.to_owned(), bid))),
            Stage::Cutting { .. } => self.stage(Stage::Cutting {
                bid: Some((from.to_owned(), bid)),
            }),
            Stage::Cut { place, .. } | Stage::Yielded { place } => {
                let place = *place;
                self.compare(from, bid, place);
            }
            Stage::Asking { place, .. } => {
                let place = *place;
                match (bid.place, &self.me.node[..]) > (place, from) {
                    true => self.compare(from, bid, place),
                    false => self.send(from, Message::Further { term: bid.term }),
                }
            }
            Stage::Bidding { .. } => self.send(from, Message::Further { term: bid.term }),
        }
    }

    /// Lets another go first, unless this node has more and may go itself.
    fn compare(&mut self, from: &str, bid: Bid, place: Place) {
        let is_candidate = match &self.role {
            Role::Replica(following) => self.is_candidate(&following.record),
            _ => false,
        };
        if place > bid.place && is_candidate {
            self.send(from, Message::Further { term: bid.term });
            return;
        }
        self.promise(bid.promise_ms);
        self.stage(Stage::Yielded { place });
        let message = Message::Yield {
            term: bid.term,
            incarnation: self.me.incarnation.clone(),
            place,
            clock_ms: bid.clock_ms,
            promise_ms: bid.promise_ms,
        };
        self.send(from, message);
    }

    /// Takes the answer of another candidate: that it lets this one, or that it hears the primary.
    fn answered(&mut self, from: &str, term: u64, level: Option<Level>) {
        let Some(following) = self.following() else {
            return;
        };
        if following.record.term + 1 == term
            && let Stage::Asking { answers, heard, .. } = &mut following.stage
        {
            *heard += 1;
            if let Some(level) = level {
                answers.insert(from.to_owned(), level);
            }
        }
    }

    /// Hears that another candidate goes first. One that never does is not waited for forever.
    fn is_behind(&mut self, term: u64) {
        let (now_ms, quarter) = (self.now_ms, self.settings.promise_ms / 4);
        let Some(following) = self.following() else {
            return;
        };
        let is_patient = following
            .patient_until_ms
            .is_some_and(|until| now_ms < until);
        if following.record.term + 1 == term
            && is_patient
            && let Stage::Asking { place, .. } = following.stage
        {
            let at_ms = now_ms + quarter;
            following.stage = Stage::Cut { place, at_ms };
        }
    }

    /// T7.
    fn bid(&mut self) {
        let any_level = self.mutants.has(Mutant::UnlevelSuccessor);
        let me = self.me.clone();
        let Some(following) = self.following() else {
            return;
        };
        let Stage::Asking { place, answers, .. } = &following.stage else {
            return;
        };
        let (place, mut answers) = (*place, answers.clone());
        answers.retain(|_, level| level.place == place || any_level);
        let mut next = following.record.clone();
        next.term += 1;
        let old = std::mem::replace(&mut next.primary, me.clone());
        next.candidates.retain(|who| {
            let level = answers.get(&who.node);
            level.is_some_and(|level| level.incarnation == who.incarnation)
        });
        next.replicas
            .retain(|node| *node != me.node && *node != old.node);
        next.replicas.push(old.node);
        following.stage = Stage::Bidding { answers };
        let shard = following.shard.clone();
        let change = changes::shard(&self.known, &shard, &next);
        self.propose(Purpose::TakeOver, change);
    }

    /// T7 was not done: the records say what there is instead.
    pub(super) fn bid_failed(&mut self) {
        if let Some(following) = self.following()
            && matches!(following.stage, Stage::Bidding { .. })
        {
            self.follow_again();
        }
    }

    /// Lets the data go, if the store cannot have this process as a candidate. Returns true if that is decided, or being
    /// decided.
    fn try_empty(&mut self) -> bool {
        let promised = self.now_ms <= self.promised_until_ms;
        let Role::Replica(following) = &self.role else {
            return true;
        };
        if !matches!(following.stage, Stage::Follow) {
            return false;
        }
        if !self.may_be_candidate || self.mutants.has(Mutant::EmptiesAtOnce) {
            self.empty();
            return true;
        }
        if promised || !self.desk.is_free() {
            return false;
        }
        // Written even if it is in no list: a T5 that is still under way then fails.
        let mut next = following.record.clone();
        next.candidates.retain(|who| !self.is_me(who));
        let change = changes::shard(&self.known, &following.shard, &next);
        self.propose(Purpose::OutSelf, change);
        true
    }

    /// The store does not have this process as a candidate, and will not before it has promised again. The data are given
    /// up, unless a primary could continue them in the meantime.
    pub(super) fn empty(&mut self) {
        self.may_be_candidate = false;
        if let Some(following) = self.following()
            && !following.is_linked
        {
            following.is_whole = false;
            self.wishes.push(Wish::Empty);
        }
    }

    /// T9 of a candidate whose whole shard has been started again.
    fn take_up_as_candidate(&mut self) {
        let Role::Replica(following) = &self.role else {
            return;
        };
        let mut candidates = following.record.candidates.iter();
        if following.is_whole && candidates.any(|who| who.node == self.me.node && !self.is_me(who))
        {
            let (shard, record) = (following.shard.clone(), following.record.clone());
            let holds = self.files.unwrap_or_default();
            returning::take_up(self, &shard, &record, holds);
        }
    }
}
