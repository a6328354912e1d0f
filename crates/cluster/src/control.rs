//! Decisions of a node of a cluster: who serves, who may take over, which changes of the cluster a node asks for.
//!
//! [`Control`] is a pure state machine: events and the time go in, wishes come out, in the order in which they are to be
//! carried out. `docs/design/cluster.md` says what a server feeds, what it carries out, and what of it must be durable.
//!
//! | file | holds |
//! |---|---|
//! | `known` | records of the store |
//! | `desk` | one transaction at a time, known in the end to be done or not |
//! | `changes` | what each transaction wants and writes |
//! | `words` | events, wishes and messages between nodes, with their form |
//! | `leading` | a primary: its right to serve, its candidates, handing over |
//! | `following` | a replica: its promises, taking over |
//! | `returning` | a primary that was started again, with its shard or alone (T9) |
//! | `forcing` | taking over by force, when nobody else is left (T15) |
//!
//! Must not know: sockets, a clock, threads, how a store is reached.

mod changes;
mod desk;
mod following;
mod forcing;
mod known;
mod leading;
mod returning;
mod words;

use std::collections::VecDeque;

pub use changes::{Order, Refusal};
pub use known::Known;
pub use leading::HAND_OVER_MS;
pub use words::{Acks, Calls, Count, Event, Message, Place, Settings, Wish};

use self::{
    desk::{Change, Desk, Outcome},
    following::Following,
    leading::Leading,
};
use crate::records::{Alive, Incarnation, ShardRecord, VERSION};

/// Largest number of orders that wait.
const ORDERS_MAX: usize = 1024;
/// Time for which calls that meet an ended right are put aside: milliseconds.
const ASIDE_MS: u64 = 1000;

/// See the head of the module.
#[derive(Clone, Debug)]
pub struct Control {
    me: Incarnation,
    settings: Settings,
    /// Data that the node's files held when it started.
    files: Option<Place>,
    now_ms: u64,
    known: Known,
    /// True if the records have changed since the role was derived from them.
    is_news: bool,
    desk: Desk,
    purpose: Purpose,
    role: Role,
    /// Until when this node does not take over.
    promised_until_ms: u64,
    /// True if this process may be a candidate in the store: it has promised, or been a primary.
    may_be_candidate: bool,
    /// True if the server waits for permission to give up its data.
    wants_empty: bool,
    orders: VecDeque<(u64, Order)>,
    /// T15: the order to take over by force, and when it was given.
    forcing: Option<(u64, u64)>,
    wishes: Vec<Wish>,
    told: Told,
    mutants: Mutants,
}

/// Role of the node in its shard.
#[derive(Clone, Debug)]
enum Role {
    /// It is in no shard, or does not know it yet.
    None,
    Primary(Box<Leading>),
    Replica(Box<Following>),
    /// The store has an earlier run of this node as the primary.
    Returned {
        shard: String,
        record: ShardRecord,
    },
}

/// Purpose of the open transaction.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Purpose {
    Nothing,
    Order(u64),
    /// T5.
    In(Incarnation),
    /// T6.
    Out(Incarnation),
    /// T6 by the candidate itself.
    OutSelf,
    /// T7.
    TakeOver,
    /// T8.
    HandOver(u64),
    /// T9.
    TakeUp,
}

/// The orders that the server was given last.
#[derive(Clone, Debug, Default)]
struct Told {
    right: Option<(u64, u64)>,
    calls: Option<Calls>,
    count: Option<Count>,
    ended_at_ms: Option<u64>,
}

/// Rules that are broken on purpose, to show that the simulation finds it. Outside of tests there are none.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Mutants(#[cfg(test)] pub(crate) Option<Mutant>);

impl Mutants {
    #[cfg(test)]
    pub(crate) fn has(self, mutant: Mutant) -> bool {
        self.0 == Some(mutant)
    }

    #[cfg(not(test))]
    pub(crate) fn has(self, _: Mutant) -> bool {
        false
    }
}

/// A broken rule.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Mutant {
    /// The right counts from the receipt of a promise.
    RightFromReceipt,
    /// The right is as long as the longest promise.
    RightOfAnyPromise,
    /// A reply leaves with the acknowledgement of any candidate.
    AckOfAny,
    /// An empty set of candidates releases replies.
    EmptyReleases,
    /// T5 does not wait for what was released before.
    InWithoutLevel,
    /// T5 does not wait for a promise.
    InWithoutPromise,
    /// T6 is not waited for.
    OutStopsCounting,
    /// A process is known by its node alone.
    NoIncarnation,
    /// A lost answer counts as not done.
    NonceNotRead,
    /// An undecided transaction is read, and not settled.
    SettleOnlyReads,
    /// T7 does not wait for the end of a promise.
    NoPromiseKept,
    /// T7 has candidates that are not level.
    UnlevelSuccessor,
    /// A node that takes over promises in the old term.
    PromisesWhileBidding,
    /// T8's writer serves until it knows the outcome.
    HandOverServes,
    /// A candidate gives up its data for a full synchronisation.
    EmptiesAtOnce,
}

impl Control {
    /// Makes that of a node that has just started, with the data that its files held, if it had any.
    pub fn new(me: Incarnation, settings: Settings, files: Option<Place>) -> Control {
        Control {
            desk: Desk::new(&me.node, &me.incarnation),
            me,
            settings,
            files,
            now_ms: 0,
            known: Known::new(),
            is_news: false,
            purpose: Purpose::Nothing,
            role: Role::None,
            promised_until_ms: 0,
            may_be_candidate: false,
            wants_empty: false,
            orders: VecDeque::new(),
            forcing: None,
            wishes: Vec::new(),
            told: Told::default(),
            mutants: Mutants::default(),
        }
    }

    /// Takes what has happened, at this time of the node's clock, and returns what is to be done, in this order.
    ///
    /// Milliseconds of a clock that counts suspensions; only its rate matters.
    pub fn handle(&mut self, now_ms: u64, event: Event) -> Vec<Wish> {
        self.now_ms = self.now_ms.max(now_ms);
        self.take(event);
        self.look();
        if let Some((call, transaction)) = self.desk.settle(self.now_ms, self.mutants) {
            self.wishes.push(Wish::Transact { call, transaction });
        }
        match self.role {
            Role::None => {}
            Role::Primary(_) => self.lead_on(),
            Role::Replica(_) => self.follow_on(),
            Role::Returned { .. } => returning::go_on(self),
        }
        self.next_order();
        forcing::go_on(self);
        self.tell();
        std::mem::take(&mut self.wishes)
    }

    /// Returns the records of the store as this node knows them.
    pub fn known(&self) -> &Known {
        &self.known
    }

    /// Returns the record that the server keeps under `alive/<node>`, with a lease.
    pub fn alive(&self) -> Alive {
        Alive {
            v: VERSION,
            incarnation: self.me.incarnation.clone(),
            files: self.files.map(|place| (place.term, place.offset)),
        }
    }

    /// Changes the settings.
    pub fn set(&mut self, settings: Settings) {
        self.settings = settings;
    }

    /// Returns the term in which this node is the primary of its shard; it serves only while it has the right to.
    pub fn leads(&self) -> Option<u64> {
        match &self.role {
            Role::Primary(leading) => Some(leading.record.term),
            _ => None,
        }
    }

    /// Returns until when the node may serve as the primary, on its clock: milliseconds; 0 without a right, and
    /// `u64::MAX` without an end.
    pub fn right_until_ms(&self) -> u64 {
        match &self.role {
            Role::Primary(leading) => self.right_of(leading),
            _ => 0,
        }
    }

    /// Returns the state of the decisions, for whoever looks for a fault.
    pub fn shown(&self) -> String {
        format!(
            "{} at {} ms: {:?}; {:?} on the desk; promised until {} ms; {:?}",
            self.me.node, self.now_ms, self.role, self.purpose, self.promised_until_ms, self.told
        )
    }

    /// Returns the candidates of this node's shard, as it knows them.
    pub fn candidates(&self) -> &[Incarnation] {
        match &self.role {
            Role::None => &[],
            Role::Primary(leading) => &leading.record.candidates,
            Role::Replica(following) => &following.record.candidates,
            Role::Returned { record, .. } => &record.candidates,
        }
    }

    fn take(&mut self, event: Event) {
        match event {
            Event::Tick { .. } if !matches!(self.role, Role::Primary(_)) => {}
            Event::Tick {
                is_healthy,
                journal_end,
            } => self.leading(|leading, _| {
                leading.is_healthy = is_healthy;
                leading.journal_end = journal_end;
            }),
            Event::Listing(listing) => {
                self.known.learn_listing(&listing);
                self.is_news = true;
            }
            Event::Changes(events) => {
                self.known.learn_events(&events);
                self.is_news = true;
            }
            Event::Answer { call, answer } => {
                let (desk, known) = (&mut self.desk, &mut self.known);
                let outcome = desk.answer(known, call, &answer, self.now_ms, self.mutants);
                self.is_news = true;
                if let Some(outcome) = outcome {
                    self.conclude(outcome);
                }
            }
            Event::Message { from, message } => self.hear(&from, message),
            Event::Replica {
                node,
                incarnation,
                term,
                offset,
            } => self.acked(node, incarnation, term, offset),
            Event::ReplicaGone { node } => self.leading(|leading, _| leading.unlinked(&node)),
            Event::Counted { version, released } => self.counted(version, released),
            Event::Held { number, end } => self.held(number, end),
            Event::Linked { term } => self.linked(term),
            Event::Unlinked => self.unlinked(),
            Event::Cut { place } => self.is_cut(place),
            Event::WantsEmpty => self.wants_empty = true,
            Event::Order { number, order } => self.order(number, order),
        }
    }

    /// Derives the role from the records.
    fn look(&mut self) {
        if !std::mem::take(&mut self.is_news) {
            return;
        }
        let Some((shard, record)) = self.known.shard_of_node(&self.me.node) else {
            if !matches!(self.role, Role::None) {
                self.role = Role::None;
                self.tell();
                self.wishes.push(Wish::Alone);
            }
            return;
        };
        if self.is_me(&record.primary) {
            match &mut self.role {
                Role::Primary(leading)
                    if leading.record.term == record.term && leading.shard == shard =>
                {
                    leading.record = record;
                }
                _ => self.lead(shard, record),
            }
        } else if record.primary.node == self.me.node {
            self.role = Role::Returned { shard, record };
        } else {
            self.follow(shard, record);
        }
    }

    fn is_me(&self, other: &Incarnation) -> bool {
        let is_run = other.incarnation == self.me.incarnation;
        other.node == self.me.node && (is_run || self.mutants.has(Mutant::NoIncarnation))
    }

    fn is_candidate(&self, record: &ShardRecord) -> bool {
        record.candidates.iter().any(|it| self.is_me(it))
    }

    fn send(&mut self, to: &str, message: Message) {
        let to = to.to_owned();
        self.wishes.push(Wish::Send { to, message });
    }

    /// Sends a change to the store. The server has been told before what that means for its right and its gate.
    fn propose(&mut self, purpose: Purpose, change: Change) {
        self.purpose = purpose;
        let (call, transaction) = self.desk.begin(&self.known, change);
        self.tell();
        self.wishes.push(Wish::Transact { call, transaction });
    }

    fn conclude(&mut self, outcome: Outcome) {
        let purpose = std::mem::replace(&mut self.purpose, Purpose::Nothing);
        let result = match &outcome {
            Outcome::Done => Ok(()),
            Outcome::NotDone(None) => Err(Refusal::Changed),
            Outcome::NotDone(Some(why)) => Err(Refusal::Store(why.clone())),
        };
        match purpose {
            Purpose::Order(number) => self.wishes.push(Wish::Done { number, result }),
            Purpose::HandOver(number) => self.handed_over(number, result),
            Purpose::TakeOver if result.is_err() => self.bid_failed(),
            Purpose::OutSelf if result.is_ok() => self.empty(),
            Purpose::Out(who) if result.is_ok() => {
                self.leading(|leading, now_ms| leading.left(&who, now_ms));
            }
            _ => {}
        }
    }

    fn order(&mut self, number: u64, order: Order) {
        if self.orders.len() < ORDERS_MAX {
            self.orders.push_back((number, order));
        } else {
            let result = Err(Refusal::TooMany);
            self.wishes.push(Wish::Done { number, result });
        }
    }

    /// Begins the next order, if nothing else is on the desk.
    fn next_order(&mut self) {
        while self.desk.is_free()
            && self.known.revision() > 0
            && let Some((number, order)) = self.orders.pop_front()
        {
            // Whoever ends waits for a hand-over that is under way: after it there may be none to do.
            if matches!(order, Order::HandOver { ends: true, .. })
                && self.hand_over_number().is_some()
            {
                self.orders.push_front((number, order));
                return;
            }
            let (known, me) = (&self.known, &self.me);
            let change = match order {
                Order::Create(records) => changes::create(known, records),
                Order::Join { record, shard } => {
                    changes::join(known, me, &record, shard.as_deref())
                }
                Order::Leave { node } => changes::leave(known, &node),
                Order::Follow { shard } => changes::follow(known, me, &shard),
                Order::AddSlots(runs) => changes::slots(known, me, &runs, true),
                Order::RemoveSlots(runs) => changes::slots(known, me, &runs, false),
                Order::TakeOver => {
                    forcing::begin(self, number);
                    continue;
                }
                Order::HandOver { to, ends, time_ms } => {
                    self.hand_over(number, to, ends, time_ms);
                    continue;
                }
            };
            match change {
                Ok(change) => self.propose(Purpose::Order(number), change),
                Err(refusal) => {
                    let result = Err(refusal);
                    self.wishes.push(Wish::Done { number, result });
                }
            }
        }
    }

    /// Tells the server what has changed: whom its gate counts, until when it serves, what becomes of other calls.
    fn tell(&mut self) {
        let (right, count) = match &self.role {
            Role::Primary(leading) => {
                let right = (leading.record.term, self.right_of(leading));
                (right, Some((self.count_of(leading), leading.wants_count())))
            }
            _ => ((0, 0), None),
        };
        let told = self.told.count.as_ref();
        if let Some((count, is_wanted)) = count
            && (is_wanted || !told.is_some_and(|told| told.is_as(&count)))
        {
            let version = told.map_or(0, |told| told.version) + 1;
            let count = Count { version, ..count };
            self.leading(|leading, _| leading.count_changed(version, &count));
            self.told.count = Some(count.clone());
            self.wishes.push(Wish::Count(count));
        }
        if self.told.right != Some(right) {
            self.told.right = Some(right);
            let (term, until_ms) = right;
            self.wishes.push(Wish::Right { term, until_ms });
        }
        let calls = self.calls(right.1);
        if self.told.calls != Some(calls) {
            self.told.calls = Some(calls);
            self.wishes.push(Wish::Calls(calls));
        }
    }

    fn calls(&mut self, right_until_ms: u64) -> Calls {
        let is_primary = matches!(self.role, Role::Primary(_));
        if is_primary && self.now_ms < right_until_ms {
            self.told.ended_at_ms = None;
            return Calls::Run;
        }
        match self.role {
            Role::Primary(_) => {
                let since = *self.told.ended_at_ms.get_or_insert(self.now_ms);
                match self.now_ms < since + ASIDE_MS {
                    true => Calls::Wait,
                    false => Calls::Down,
                }
            }
            Role::Replica(_) => Calls::Moved,
            Role::None | Role::Returned { .. } => Calls::Down,
        }
    }

    /// Does something with the state of a primary, if the node is one.
    fn leading(&mut self, act: impl FnOnce(&mut Leading, u64)) {
        if let Role::Primary(leading) = &mut self.role {
            act(leading, self.now_ms);
        }
    }
}

#[cfg(test)]
mod simulation;
#[cfg(test)]
mod tests;
