//! A server as far as decisions meet data: its log, the links of replicas, the gate that holds replies, the files.
//!
//! Must not know: what is decided, what a schedule does.

use std::collections::{BTreeMap, VecDeque};

use redline_etcd::Operation;

use super::{
    super::{Calls, Control, Count, Event, Message, Order, Place, Wish},
    world::{Action, World},
};
use crate::records::{Incarnation, Record, SHARDS, ShardRecord};

/// A process, or the files of one that is not running.
pub(super) struct Node {
    pub me: Incarnation,
    /// Number of the process.
    pub life: u64,
    pub is_up: bool,
    pub is_stopped: bool,
    pub control: Control,
    /// Each value is a digest of all records up to it.
    pub log: Vec<u64>,
    /// Term of the link that the log last continued.
    pub data_term: u64,
    /// Clock: parts in a million by which it is fast, and its beginning.
    pub fast_ppm: u64,
    pub begin_us: u64,
    pub inbox: VecDeque<In>,
    pub todo: VecDeque<Wish>,
    /// Time of the step whose wishes are carried out.
    pub stepped_ms: u64,
    pub right: (u64, u64),
    pub lead_term: u64,
    pub count: Option<Count>,
    /// Newest record of which a reply has told.
    pub released: usize,
    /// Replies that wait: for this record; true for a write.
    pub pending: VecDeque<(usize, bool)>,
    pub acked: BTreeMap<Incarnation2, u64>,
    pub links: Vec<(u64, usize)>,
    pub is_held: bool,
    /// The primary that it follows, with its term.
    pub target: Option<(u64, Incarnation)>,
    pub upstream: Option<Upstream>,
    /// Until when it has promised not to take over, by what it has sent.
    pub promised_ms: u64,
    pub lease: Option<redline_etcd::LeaseId>,
    pub next_revision: u64,
    pub order_waits: bool,
}

/// Node and run.
type Incarnation2 = (String, String);

pub(super) struct Upstream {
    pub link: u64,
    /// Length of the log from which it is whole, once the primary has taken the link.
    upto: Option<usize>,
    is_linked: bool,
}

/// The orders to a process.
#[derive(Clone)]
pub(super) enum In {
    Event(Event),
    Tick,
    Write,
    Read,
    Connect,
    Hello {
        link: u64,
        from: usize,
        who: Incarnation,
        term: u64,
        log: Vec<u64>,
    },
    Accepted {
        link: u64,
        upto: usize,
    },
    /// The log is none that the primary can continue.
    Everything {
        link: u64,
    },
    Data {
        link: u64,
        from: usize,
        records: Vec<u64>,
    },
    Ack {
        link: u64,
        who: Incarnation,
        term: u64,
        offset: usize,
    },
    Broken {
        link: u64,
    },
}

impl World {
    /// Lets a process do what it has been told, until it is stopped.
    pub(super) fn go(&mut self, n: usize) {
        loop {
            let node = &mut self.nodes[n];
            if !node.is_up || node.is_stopped {
                return;
            }
            if let Some(wish) = node.todo.pop_front() {
                if self.stops_here(n) {
                    self.nodes[n].todo.push_front(wish);
                    return;
                }
                self.carry_out(n, wish);
            } else if let Some(input) = node.inbox.pop_front() {
                self.take(n, input);
            } else {
                return;
            }
        }
    }

    fn feed(&mut self, n: usize, event: Event) {
        let now_ms = self.clock_ms(n);
        let node = &mut self.nodes[n];
        node.stepped_ms = now_ms;
        let wishes = node.control.handle(now_ms, event);
        node.todo.extend(wishes);
    }

    pub(super) fn serves(&self, n: usize) -> bool {
        let node = &self.nodes[n];
        node.is_up
            && node.lead_term > 0
            && node.right.0 == node.lead_term
            && self.clock_ms(n) < node.right.1
    }

    fn take(&mut self, n: usize, input: In) {
        match input {
            In::Event(event) => self.feed(n, event),
            In::Tick => {
                let journal_end = self.nodes[n].log.len() as u64;
                let is_healthy = true;
                self.feed(
                    n,
                    Event::Tick {
                        is_healthy,
                        journal_end,
                    },
                );
                self.flush(n);
            }
            In::Write => self.write(n),
            In::Read => {
                if self.serves(n) {
                    let len = self.nodes[n].log.len();
                    self.nodes[n].pending.push_back((len, false));
                    self.flush(n);
                }
            }
            In::Connect => self.connect(n),
            In::Hello {
                link,
                from,
                who,
                term,
                log,
            } => self.hello(n, link, from, who, term, &log),
            In::Accepted { link, upto } => {
                let Some(upstream) = self.upstream(n, link) else {
                    return;
                };
                upstream.upto = Some(upto);
                self.applied(n);
            }
            In::Everything { link } => {
                if self.upstream(n, link).is_some() {
                    self.close_upstream(n);
                    self.feed(n, Event::WantsEmpty);
                }
            }
            In::Data {
                link,
                from,
                records,
            } => {
                if self.upstream(n, link).is_some() && self.nodes[n].log.len() == from {
                    self.nodes[n].log.extend(records);
                    self.applied(n);
                }
            }
            In::Ack {
                link,
                who,
                term,
                offset,
            } => self.ack(n, link, who, term, offset as u64),
            In::Broken { link } => self.link_gone(n, link),
        }
    }

    fn upstream(&mut self, n: usize, link: u64) -> Option<&mut Upstream> {
        let upstream = self.nodes[n].upstream.as_mut();
        upstream.filter(|upstream| upstream.link == link)
    }

    fn write(&mut self, n: usize) {
        let waits = self.acks == super::super::Acks::One;
        let node = &self.nodes[n];
        let is_enough = node.count.as_ref().is_some_and(|count| count.is_enough);
        let may = is_enough || !waits || self.mutant == Some(super::Mutant::EmptyReleases);
        if !self.serves(n) || node.is_held || !may {
            return;
        }
        self.append(n);
        let len = self.nodes[n].log.len();
        self.nodes[n].pending.push_back((len, true));
        if self.stops_here(n) {
            return;
        }
        self.flush(n);
    }

    fn append(&mut self, n: usize) {
        self.records += 1;
        let record = self.records;
        let node = &mut self.nodes[n];
        let before = node.log.last().copied().unwrap_or(0);
        let digest = (before ^ record)
            .wrapping_mul(0x9e37_79b9_7f4a_7c15)
            .rotate_left(31);
        let from = node.log.len();
        node.log.push(digest);
        for (link, to) in node.links.clone() {
            let records = vec![digest];
            let data = In::Data {
                link,
                from,
                records,
            };
            self.over_link(link, to, data);
        }
    }

    /// Lets replies go that need not wait any more; if the right has ended, nobody gets one.
    pub(super) fn flush(&mut self, n: usize) {
        loop {
            let serves = self.serves(n);
            let node = &mut self.nodes[n];
            if !serves {
                node.pending.clear();
                return;
            }
            let (Some(&(len, is_write)), Some(count)) = (node.pending.front(), &node.count) else {
                return;
            };
            let end = node.log.len() as u64;
            let acked = |who: &Incarnation| {
                let key = (who.node.clone(), who.incarnation.clone());
                node.acked.get(&key).copied().unwrap_or(0)
            };
            let may = count.released(end, acked).unwrap_or(0) as usize;
            if len > may.max(node.released) {
                return;
            }
            node.released = node.released.max(len);
            node.pending.pop_front();
            self.confirm(n, len, is_write);
        }
    }

    fn connect(&mut self, n: usize) {
        let node = &self.nodes[n];
        let (Some((term, primary)), None) = (node.target.clone(), &node.upstream) else {
            return;
        };
        let (who, log) = (node.me.clone(), node.log.clone());
        let to = self.number_of(&primary.node);
        let link = self.open_link(n, to);
        self.nodes[n].upstream = Some(Upstream {
            link,
            upto: None,
            is_linked: false,
        });
        let hello = In::Hello {
            link,
            from: n,
            who,
            term,
            log,
        };
        self.over_link(link, to, hello);
    }

    fn hello(
        &mut self,
        n: usize,
        link: u64,
        from: usize,
        who: Incarnation,
        term: u64,
        log: &[u64],
    ) {
        let node = &mut self.nodes[n];
        if node.lead_term != term || term == 0 {
            self.close_link(link);
            return;
        }
        let len = log.len();
        let is_lost = self.loses_backlog && len > 0 && len < node.log.len();
        let continues =
            !is_lost && len <= node.log.len() && (len == 0 || node.log[len - 1] == log[len - 1]);
        if !continues {
            self.over_link(link, from, In::Everything { link });
            return;
        }
        node.links.push((link, from));
        let upto = node.log.len();
        let records = node.log[len..].to_vec();
        let _ = who;
        self.over_link(link, from, In::Accepted { link, upto });
        let data = In::Data {
            link,
            from: len,
            records,
        };
        self.over_link(link, from, data);
    }

    /// A replica has applied something, or knows now how far it has to.
    fn applied(&mut self, n: usize) {
        let node = &mut self.nodes[n];
        let (Some(upstream), Some((term, primary))) = (&mut node.upstream, &node.target) else {
            return;
        };
        let (term, to, link) = (*term, primary.node.clone(), upstream.link);
        let (offset, who) = (node.log.len(), node.me.clone());
        let is_whole = upstream.upto.is_some_and(|upto| offset >= upto);
        if is_whole && !upstream.is_linked {
            upstream.is_linked = true;
            node.data_term = term;
            self.feed(n, Event::Linked { term });
        }
        if is_whole {
            let ack = In::Ack {
                link,
                who,
                term,
                offset,
            };
            let to = self.number_of(&to);
            self.over_link(link, to, ack);
        }
    }

    fn ack(&mut self, n: usize, link: u64, who: Incarnation, term: u64, offset: u64) {
        let node = &mut self.nodes[n];
        if node.lead_term != term || !node.links.iter().any(|(it, _)| *it == link) {
            return;
        }
        let key = (who.node.clone(), who.incarnation.clone());
        node.acked.insert(key, offset);
        self.feed(
            n,
            Event::Replica {
                node: who.node,
                incarnation: who.incarnation,
                term,
                offset,
            },
        );
        self.flush(n);
    }

    fn link_gone(&mut self, n: usize, link: u64) {
        if self.upstream(n, link).is_some() {
            self.close_upstream(n);
        }
        let node = &mut self.nodes[n];
        if let Some(place) = node.links.iter().position(|(it, _)| *it == link) {
            let (_, from) = node.links.remove(place);
            let node = self.nodes[from].me.node.clone();
            self.feed(n, Event::ReplicaGone { node });
        }
    }

    fn close_upstream(&mut self, n: usize) {
        if let Some(upstream) = self.nodes[n].upstream.take() {
            self.close_link(upstream.link);
            if upstream.is_linked {
                self.feed(n, Event::Unlinked);
            }
            self.connect_soon(n);
        }
    }

    pub(super) fn connect_soon(&mut self, n: usize) {
        let life = self.nodes[n].life;
        let after = self.rng.u64(1_000..100_000);
        self.at(after, Action::Deliver(n, life, In::Connect));
    }

    /// Ends what the node was in its shard.
    fn end_role(&mut self, n: usize) {
        let node = &mut self.nodes[n];
        (node.lead_term, node.target, node.is_held) = (0, None, false);
        node.pending.clear();
        for (link, _) in std::mem::take(&mut node.links) {
            self.close_link(link);
        }
        if let Some(upstream) = self.nodes[n].upstream.take() {
            self.close_link(upstream.link);
        }
    }

    fn carry_out(&mut self, n: usize, wish: Wish) {
        if !matches!(wish, Wish::Send { .. } | Wish::Right { .. }) {
            self.trace(|| format!("{n} ({} records): {wish:?}", self.nodes[n].log.len()));
        }
        match wish {
            Wish::Transact { call, transaction } => {
                self.check_promise(n, &transaction.success);
                self.call_store(n, call, transaction);
            }
            Wish::Send { to, message } => {
                let node = &mut self.nodes[n];
                if let Message::Promise { promise_ms, .. } | Message::Yield { promise_ms, .. } =
                    &message
                {
                    let until_ms = node.stepped_ms + promise_ms;
                    node.promised_ms = node.promised_ms.max(until_ms);
                }
                let from = node.me.node.clone();
                let to = self.number_of(&to);
                self.send(n, to, In::Event(Event::Message { from, message }));
            }
            Wish::Alone => self.end_role(n),
            Wish::Lead { term, .. } => {
                self.end_role(n);
                let node = &mut self.nodes[n];
                (node.lead_term, node.data_term) = (term, term);
                node.released = node.log.len();
                node.acked.clear();
            }
            Wish::Follow { term, primary, .. } => {
                self.end_role(n);
                self.nodes[n].target = Some((term, primary));
                self.connect_soon(n);
            }
            Wish::Cut => {
                self.end_role(n);
                let node = &mut self.nodes[n];
                let (term, offset) = (node.data_term, node.log.len() as u64);
                let place = Place { term, offset };
                node.inbox.push_back(In::Event(Event::Cut { place }));
            }
            Wish::Empty => {
                let node = &mut self.nodes[n];
                (node.data_term, node.released) = (0, 0);
                node.log.clear();
                self.check_told_is_kept();
                self.connect_soon(n);
            }
            Wish::Right { term, until_ms } => {
                self.nodes[n].right = (term, until_ms);
                self.flush(n);
            }
            Wish::Count(count) => {
                let node = &mut self.nodes[n];
                let (version, released) = (count.version, node.released as u64);
                node.count = Some(count);
                let counted = Event::Counted { version, released };
                node.inbox.push_back(In::Event(counted));
                self.flush(n);
            }
            Wish::Hold { number } => {
                self.nodes[n].is_held = true;
                self.append(n);
                let end = self.nodes[n].log.len() as u64;
                let held = In::Event(Event::Held { number, end });
                self.nodes[n].inbox.push_back(held);
            }
            Wish::Free => self.nodes[n].is_held = false,
            Wish::Calls(calls) => assert!(calls != Calls::Run || self.nodes[n].right.1 > 0),
            Wish::Done { .. } => self.nodes[n].order_waits = false,
        }
    }

    /// I5: whoever takes over has no promise that is running.
    fn check_promise(&mut self, n: usize, writes: &[Operation]) {
        let takes_over = writes.iter().any(|write| match write {
            Operation::Put { key, value, .. } if key.starts_with(SHARDS) => {
                let record = ShardRecord::from_json(value).expect("it was written by a node");
                let known = self.record.as_ref().map_or(0, |record| record.term);
                record.primary == self.nodes[n].me && known > 0 && record.term > known
            }
            _ => false,
        });
        let (clock, promised) = (self.clock_ms(n), self.nodes[n].promised_ms);
        if takes_over && clock < promised {
            let left = promised - clock;
            self.broken(format!(
                "I5: node {n} takes over {left} ms before its promise ends"
            ));
        }
    }

    pub(super) fn order(&mut self, n: usize, order: Order) {
        if std::mem::replace(&mut self.nodes[n].order_waits, true) {
            return;
        }
        let life = self.nodes[n].life;
        let event = Event::Order { number: 1, order };
        self.at(0, Action::Deliver(n, life, In::Event(event)));
    }
}
