//! A primary: how long it may serve, whom it waits for, who becomes a candidate and who ceases to be one (T5, T6), and
//! how it hands over (T8).
//!
//! The right to serve is the shortest promise of all that may be candidates in the store, an undecided transaction
//! included; so is the set that replies wait for. Whoever takes over was a candidate, so its promise has run out, and it
//! has everything that was acknowledged.
//!
//! Must not know: how a node takes over.

use std::collections::BTreeMap;

use super::{
    Acks, Control, Count, Message, Mutant, Purpose, Refusal, Role, Wish, changes, words::Settings,
};
use crate::records::{Incarnation, SHARDS, ShardRecord};

/// Lag that a candidate may have with `cluster-acks none`: numbers of the stream, which are bytes.
const LAG_MAX: u64 = 16 << 20;
/// Time after which handing over is given up: milliseconds. It is that of Redis's CLUSTER FAILOVER.
pub const HAND_OVER_MS: u64 = 5000;

/// State of a primary in one term.
#[derive(Clone, Debug)]
pub(crate) struct Leading {
    pub shard: String,
    pub record: ShardRecord,
    pub is_healthy: bool,
    pub journal_end: u64,
    /// True once another node has said that there is a newer term.
    is_superseded: bool,
    since_ms: u64,
    ask_at_ms: u64,
    peers: BTreeMap<String, Peer>,
    joining: Option<Joining>,
    hand_over: Option<HandOver>,
}

/// A replica as the primary knows it.
#[derive(Clone, Debug)]
struct Peer {
    incarnation: String,
    is_linked: bool,
    acked: u64,
    /// When it had last acknowledged all that there was, or more than before.
    acked_at_ms: u64,
    /// Until when it has promised, on this node's clock.
    promised_ms: u64,
    /// When the newest promise came.
    heard_ms: u64,
}

/// A replica that is about to become a candidate.
#[derive(Clone, Debug)]
struct Joining {
    who: Incarnation,
    since_ms: u64,
    /// Version of the set that has it.
    version: u64,
    /// Newest number that was released before the gate counted it.
    released: Option<u64>,
}

#[derive(Clone, Debug)]
struct HandOver {
    number: u64,
    to: Incarnation,
    ends: bool,
    until_ms: u64,
    end: Option<u64>,
}

impl Peer {
    fn new(incarnation: &str, now_ms: u64) -> Peer {
        Peer {
            incarnation: incarnation.to_owned(),
            is_linked: false,
            acked: 0,
            acked_at_ms: now_ms,
            promised_ms: 0,
            heard_ms: now_ms,
        }
    }
}

impl Leading {
    /// Makes that of a term which begins, with the promises for it that the node already has.
    fn new(
        shard: String,
        record: ShardRecord,
        promises: &[(Incarnation, u64)],
        now_ms: u64,
    ) -> Leading {
        let peers = promises.iter().map(|(who, promised_ms)| {
            let mut peer = Peer::new(&who.incarnation, now_ms);
            peer.promised_ms = *promised_ms;
            (who.node.clone(), peer)
        });
        Leading {
            peers: peers.collect(),
            shard,
            record,
            is_healthy: true,
            journal_end: 0,
            is_superseded: false,
            since_ms: now_ms,
            ask_at_ms: now_ms,
            joining: None,
            hand_over: None,
        }
    }

    fn peer(&self, who: &Incarnation) -> Option<&Peer> {
        let peer = self.peers.get(&who.node)?;
        (peer.incarnation == who.incarnation).then_some(peer)
    }

    fn peer_mut(&mut self, node: &str, incarnation: &str, now_ms: u64) -> &mut Peer {
        let peer = self.peers.entry(node.to_owned());
        let peer = peer.or_insert_with(|| Peer::new(incarnation, now_ms));
        if peer.incarnation != incarnation {
            *peer = Peer::new(incarnation, now_ms);
        }
        peer
    }

    /// Returns when a candidate was last heard, or could first have been.
    fn heard_ms(&self, who: &Incarnation) -> u64 {
        let heard = self.peer(who).map_or(0, |peer| peer.heard_ms);
        heard.max(self.since_ms)
    }

    pub(super) fn unlinked(&mut self, node: &str) {
        if let Some(peer) = self.peers.get_mut(node) {
            peer.is_linked = false;
        }
    }

    pub(super) fn left(&mut self, who: &Incarnation, now_ms: u64) {
        if let Some(peer) = self.peers.get_mut(&who.node) {
            // It may come back, once it is heard again.
            peer.heard_ms = peer.heard_ms.min(now_ms);
        }
    }

    /// Returns true if the gate has not been told yet of a replica that joins: what was released before it was must be
    /// known, even if the gate has counted the replica at another time.
    pub(super) fn wants_count(&self) -> bool {
        let joining = self.joining.as_ref();
        joining.is_some_and(|joining| joining.version == 0)
    }

    pub(super) fn count_changed(&mut self, version: u64, count: &Count) {
        if let Some(joining) = &mut self.joining
            && joining.version == 0
            && count.all.contains(&joining.who)
        {
            joining.version = version;
        }
    }

    /// Returns true if a candidate is silent, or does not get on with what replies wait for.
    fn is_failing(&self, who: &Incarnation, settings: &Settings, now_ms: u64) -> bool {
        let half = settings.promise_ms / 2;
        let is_stuck = self.peer(who).is_some_and(|peer| match settings.acks {
            Acks::One => {
                peer.acked < self.journal_end && now_ms > peer.acked_at_ms.max(self.since_ms) + half
            }
            Acks::None => peer.is_linked && peer.acked + LAG_MAX < self.journal_end,
        });
        is_stuck || now_ms > self.heard_ms(who) + half || !self.record.replicas.contains(&who.node)
    }
}

impl Control {
    pub(super) fn lead(&mut self, shard: String, record: ShardRecord) {
        let promises = match &self.role {
            Role::Replica(following) => following.promises(&record),
            _ => Vec::new(),
        };
        let term = record.term;
        let leading = Leading::new(shard.clone(), record, &promises, self.now_ms);
        self.role = Role::Primary(Box::new(leading));
        self.may_be_candidate = true;
        self.wants_empty = false;
        self.told.ended_at_ms = None;
        // Another term's right and set are told anew, even if they look the same.
        self.told.right = None;
        self.wishes.push(Wish::Lead { shard, term });
        self.tell();
    }

    pub(super) fn lead_on(&mut self) {
        let Role::Primary(leading) = &self.role else {
            return;
        };
        if leading.is_superseded {
            return;
        }
        if leading.is_healthy && self.now_ms >= leading.ask_at_ms {
            self.ask();
        }
        self.go_on_handing_over();
        if self.desk.is_free() {
            self.take_out();
        }
        if self.desk.is_free() {
            self.take_in();
        }
    }

    /// Returns whom the store may have as a candidate.
    fn may_be(&self, leading: &Leading) -> Vec<Incarnation> {
        let mut all = leading.record.candidates.clone();
        match &self.purpose {
            Purpose::In(who) if !all.contains(who) => all.push(who.clone()),
            Purpose::Out(who) if self.mutants.has(Mutant::OutStopsCounting) => {
                all.retain(|it| it != who);
            }
            _ => {}
        }
        all
    }

    pub(super) fn count_of(&self, leading: &Leading) -> Count {
        let mut all = self.may_be(leading);
        if let Some(joining) = &leading.joining
            && !all.contains(&joining.who)
        {
            all.push(joining.who.clone());
        }
        let certain = leading.record.candidates.iter();
        let mut certain = certain.filter(|it| self.purpose != Purpose::Out((*it).clone()));
        Count {
            version: 0,
            is_waiting: self.settings.acks == Acks::One,
            is_enough: certain.next().is_some() || self.settings.may_be_alone,
            all,
            mutants: self.mutants,
        }
    }

    pub(super) fn right_of(&self, leading: &Leading) -> u64 {
        let is_over = matches!(self.purpose, Purpose::HandOver(_))
            && !self.mutants.has(Mutant::HandOverServes);
        if leading.is_superseded || is_over {
            return 0;
        }
        let promised = |who| leading.peer(who).map_or(0, |peer| peer.promised_ms);
        let all = self.may_be(leading);
        let ends = all.iter().map(promised);
        match self.mutants.has(Mutant::RightOfAnyPromise) {
            true => ends.max().unwrap_or(u64::MAX),
            false => ends.min().unwrap_or(u64::MAX),
        }
    }

    fn ask(&mut self) {
        let Role::Primary(leading) = &self.role else {
            return;
        };
        let message = Message::Ask {
            shard: leading.shard.clone(),
            term: leading.record.term,
            incarnation: self.me.incarnation.clone(),
            revision: self
                .known
                .revision_of(&format!("{SHARDS}{}", leading.shard)),
            clock_ms: self.now_ms,
            promise_ms: self.settings.promise_ms,
            is_waiting: self.settings.acks == Acks::One,
        };
        // Without a right there are calls that wait for an answer.
        let has_right = self.now_ms < self.right_of(leading);
        for who in self.count_of(leading).all {
            self.send(&who.node, message.clone());
        }
        let part = if has_right { 8 } else { 64 };
        let pause_ms = (self.settings.promise_ms / part).max(1);
        self.leading(|leading, now_ms| leading.ask_at_ms = now_ms + pause_ms);
    }

    /// Takes a promise for this term, or that a replica has more.
    pub(super) fn promised(
        &mut self,
        from: &str,
        term: u64,
        incarnation: &str,
        clock_ms: u64,
        promise_ms: u64,
    ) {
        let from_receipt = self.mutants.has(Mutant::RightFromReceipt);
        self.leading(|leading, now_ms| {
            if leading.record.term != term || clock_ms > now_ms {
                return;
            }
            let begin = if from_receipt { now_ms } else { clock_ms };
            let peer = leading.peer_mut(from, incarnation, now_ms);
            peer.promised_ms = peer
                .promised_ms
                .max(begin.saturating_add(promise_ms / 100 * 99));
            peer.heard_ms = now_ms;
        });
    }

    pub(super) fn superseded(&mut self, shard: &str, term: u64) {
        self.leading(|leading, _| {
            leading.is_superseded |= leading.shard == shard && leading.record.term < term;
        });
    }

    pub(super) fn acked(&mut self, node: String, incarnation: String, term: u64, offset: u64) {
        self.leading(|leading, now_ms| {
            if leading.record.term != term {
                return;
            }
            let end = leading.journal_end;
            let peer = leading.peer_mut(&node, &incarnation, now_ms);
            if !peer.is_linked || offset > peer.acked || offset >= end {
                peer.acked_at_ms = now_ms;
            }
            (peer.is_linked, peer.acked) = (true, offset);
        });
    }

    pub(super) fn counted(&mut self, version: u64, released: u64) {
        self.leading(|leading, _| {
            if let Some(joining) = &mut leading.joining
                && joining.version != 0
                && version >= joining.version
                && joining.released.is_none()
            {
                joining.released = Some(released);
            }
        });
    }

    /// T6: a candidate that is silent or stuck is taken out, or one of too many.
    fn take_out(&mut self) {
        let Role::Primary(leading) = &self.role else {
            return;
        };
        let mut candidates = leading.record.candidates.iter();
        let failing = candidates.find(|who| leading.is_failing(who, &self.settings, self.now_ms));
        let too_many = leading
            .record
            .candidates
            .get(self.settings.candidates_max..);
        let too_many = too_many.and_then(<[_]>::last);
        let Some(who) = failing.or(too_many).cloned() else {
            return;
        };
        let mut next = leading.record.clone();
        next.candidates.retain(|it| *it != who);
        let change = changes::shard(&self.known, &leading.shard, &next);
        self.propose(Purpose::Out(who), change);
    }

    /// T5: a replica that has everything is let in.
    fn take_in(&mut self) {
        let Role::Primary(leading) = &self.role else {
            return;
        };
        let Some(joining) = leading.joining.clone() else {
            self.choose_joining();
            return;
        };
        let half = self.settings.promise_ms / 2;
        let peer = leading.peer(&joining.who).filter(|peer| peer.is_linked);
        let (is_in, is_late) = (
            leading.record.candidates.contains(&joining.who),
            self.now_ms > joining.since_ms.max(leading.heard_ms(&joining.who)) + half,
        );
        let Some(peer) = peer.filter(|_| !is_in && !is_late) else {
            self.leading(|leading, _| leading.joining = None);
            return;
        };
        let has_promised = self.now_ms < peer.promised_ms && peer.promised_ms > joining.since_ms;
        let is_level = joining
            .released
            .is_some_and(|released| match self.settings.acks {
                Acks::One => peer.acked >= released,
                Acks::None => peer.acked + LAG_MAX >= leading.journal_end,
            });
        let is_level = is_level || self.mutants.has(Mutant::InWithoutLevel);
        if is_level && (has_promised || self.mutants.has(Mutant::InWithoutPromise)) {
            let mut next = leading.record.clone();
            next.candidates.push(joining.who.clone());
            let change = changes::shard(&self.known, &leading.shard, &next);
            self.leading(|leading, _| leading.joining = None);
            self.propose(Purpose::In(joining.who), change);
        }
    }

    fn choose_joining(&mut self) {
        let Role::Primary(leading) = &self.role else {
            return;
        };
        let candidates = &leading.record.candidates;
        if candidates.len() >= self.settings.candidates_max || leading.hand_over.is_some() {
            return;
        }
        let replicas = leading.record.replicas.iter();
        let linked = replicas.filter_map(|node| {
            let peer = leading.peers.get(node).filter(|peer| peer.is_linked)?;
            let (node, incarnation) = (node.clone(), peer.incarnation.clone());
            Some((peer.acked, Incarnation { node, incarnation }))
        });
        let others = linked.filter(|(_, who)| !candidates.contains(who));
        let Some((_, who)) = others.max_by_key(|(acked, _)| *acked) else {
            return;
        };
        let joining = Joining {
            who,
            since_ms: self.now_ms,
            version: 0,
            released: None,
        };
        self.leading(|leading, now_ms| {
            leading.joining = Some(joining);
            leading.ask_at_ms = now_ms;
        });
        self.tell();
    }

    pub(super) fn hand_over(&mut self, number: u64, to: Option<String>, ends: bool, time_ms: u64) {
        let result = self.begin_hand_over(number, to, ends, time_ms);
        if result.is_err() {
            self.wishes.push(Wish::Done { number, result });
        }
    }

    fn begin_hand_over(
        &mut self,
        number: u64,
        to: Option<String>,
        ends: bool,
        time_ms: u64,
    ) -> Result<(), Refusal> {
        let Role::Primary(leading) = &mut self.role else {
            return Err(Refusal::NotPrimary);
        };
        if leading.hand_over.is_some() {
            return Err(Refusal::TooMany);
        }
        let candidates = leading.record.candidates.iter();
        let linked = candidates.filter(|who| leading.peer(who).is_some_and(|peer| peer.is_linked));
        let mut wanted = linked.filter(|who| to.as_ref().is_none_or(|to| *to == who.node));
        let chosen = wanted.next().cloned();
        let named = || to.unwrap_or_else(|| "every replica".into());
        let to = chosen.ok_or_else(|| Refusal::NoCandidate(named()))?;
        leading.joining = None;
        leading.hand_over = Some(HandOver {
            number,
            to,
            ends,
            until_ms: self.now_ms + time_ms,
            end: None,
        });
        self.wishes.push(Wish::Hold { number });
        Ok(())
    }

    pub(super) fn held(&mut self, number: u64, end: u64) {
        self.leading(|leading, _| {
            let hand_over = leading.hand_over.as_mut();
            if let Some(hand_over) = hand_over.filter(|it| it.number == number) {
                hand_over.end = Some(end);
            }
        });
    }

    /// T8, as soon as the other has the record that ends the term.
    fn go_on_handing_over(&mut self) {
        let Role::Primary(leading) = &self.role else {
            return;
        };
        let Some(hand_over) = leading.hand_over.clone() else {
            return;
        };
        if matches!(self.purpose, Purpose::HandOver(_)) {
            return;
        }
        let is_candidate = leading.record.candidates.contains(&hand_over.to);
        if self.now_ms > hand_over.until_ms || !is_candidate {
            self.handed_over(hand_over.number, Err(Refusal::TimedOut));
            return;
        }
        let Some(end) = hand_over.end else {
            return;
        };
        let has_all = |who: &Incarnation| {
            let peer = leading.peer(who);
            peer.is_some_and(|peer| peer.is_linked && peer.acked >= end)
        };
        if !has_all(&hand_over.to) || !self.desk.is_free() {
            return;
        }
        let mut next = leading.record.clone();
        next.term += 1;
        next.primary = hand_over.to.clone();
        next.candidates
            .retain(|who| has_all(who) && *who != hand_over.to);
        if !hand_over.ends {
            next.candidates.push(self.me.clone());
        }
        next.replicas.retain(|node| *node != hand_over.to.node);
        next.replicas.push(self.me.node.clone());
        let change = changes::shard(&self.known, &leading.shard, &next);
        self.propose(Purpose::HandOver(hand_over.number), change);
    }

    /// Returns the number of the order to hand over that is being carried out.
    pub(super) fn hand_over_number(&self) -> Option<u64> {
        match &self.role {
            Role::Primary(leading) => Some(leading.hand_over.as_ref()?.number),
            _ => None,
        }
    }

    pub(super) fn handed_over(&mut self, number: u64, result: Result<(), Refusal>) {
        if result.is_err() {
            self.leading(|leading, _| leading.hand_over = None);
            self.wishes.push(Wish::Free);
        }
        self.wishes.push(Wish::Done { number, result });
    }
}
