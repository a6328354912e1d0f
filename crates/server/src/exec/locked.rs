//! A unit of the data plane: which stripes it takes, what it does when it cannot have one, and how it lets go.
//!
//! Must not know: batches, and what any command does.

use std::{mem, sync::atomic::Ordering};

use redline_commands::{Failure, Stop};
use redline_keyspace::{
    Held, Hint, View,
    lock::{ROUNDS_BEFORE_TICKET, StripeSet, Wait},
    stripe_of,
};
use redline_resp::Args;
use redline_spec::{self as spec, CommandId, Flags, Gate, KeyShape, Scope};

use super::{Halt, Inside};
use crate::{
    planes,
    session::{Aside, Session, Unit},
    settings::BusyScope,
    tracking::By,
    worker::Worker,
};

/// Keys of one request for whose hashes memory is kept.
const HINTS_KEPT_MAX: usize = 4 * 1024;
/// So often a unit that meets unexpected keys starts over, before it takes all stripes.
const WIDENING_ROUNDS_MAX: u32 = 4;

impl Worker {
    pub(super) fn run_data(
        &mut self,
        session: &mut Session,
        id: CommandId,
        gate: Gate,
        args: Args<'_>,
    ) -> Result<(), Halt> {
        if session.unit.is_some() {
            return self.run_inside(session, id, gate, args);
        }
        match gate.scope {
            Scope::None | Scope::Counters | Scope::OneStripe => loop {
                match self.handle(session, id, args, Held::None, &[]) {
                    Err(Failure::Stop(Stop::Busy(busy))) => {
                        self.wait_for_stripe(session, busy.0)?
                    }
                    Err(Failure::Stop(Stop::Expired(key))) => {
                        self.take_out_expired(session, &key)?
                    }
                    other => {
                        self.tell_changes();
                        return Ok(other.map_err(Failure::expect_error)?);
                    }
                }
            },
            Scope::All => self.run_locked(session, id, args, &StripeSet::all(), true, &[]),
            // Who has the ticket has it for more stripes than this one: it comes from below, to serve others as well.
            Scope::Keys | Scope::KeysPlus
                if gate.keys == KeyShape::One && session.ticket.is_none() =>
            {
                let key = &args[usize::from(gate.first_key)];
                let stripe = stripe_of(redline_keyspace::hash(key));
                while !self.shared.keyspace.locks().try_one(stripe) {
                    self.wait_for_stripe(session, stripe)?;
                }
                if gate.flags.has(Flags::WRITE) && self.shared.keyspace.anybody_waits() {
                    let (mut own, held) = (StripeSet::EMPTY, Held::One(stripe));
                    own.insert(stripe);
                    let mut wider = own.clone();
                    self.shared.keyspace.widen(held, key, &mut wider);
                    if wider != own {
                        self.shared.keyspace.locks().unlock_one(stripe);
                        return self.run_widening(session, id, args, &mut wider, &[]);
                    }
                }
                let held = Held::One(stripe);
                let result = self.handle(session, id, args, held, &[]);
                let result = self.end_unit(session, id, args, held, result);
                self.shared.keyspace.locks().unlock_one(stripe);
                result
            }
            Scope::Keys | Scope::KeysPlus => {
                let (mut set, mut hints) = (StripeSet::EMPTY, mem::take(&mut self.hints));
                for_each_key(id, args, |key| {
                    let hint = Hint::of(key);
                    let stripe = stripe_of(hint.hash());
                    let _ = self.shared.keyspace.ahead(session.db, hint.hash());
                    self.shared.keyspace.locks().prefetch(stripe);
                    set.insert(stripe);
                    hints.push(hint);
                });
                let result = self.run_widening(session, id, args, &mut set, &hints);
                hints.clear();
                hints.shrink_to(HINTS_KEPT_MAX);
                self.hints = hints;
                result
            }
        }
    }

    /// A unit of its own: looks at a key that has expired, and so takes it out.
    fn take_out_expired(&mut self, session: &mut Session, key: &[u8]) -> Result<(), Halt> {
        let stripe = stripe_of(redline_keyspace::hash(key));
        while !self.shared.keyspace.locks().try_one(stripe) {
            self.wait_for_stripe(session, stripe)?;
        }
        let (shared, held, now_ms) = (self.shared.clone(), Held::One(stripe), self.now_ms);
        let mut view = View::new(&shared.keyspace, held, &mut self.local, session.db, now_ms);
        view.contains(key);
        view.finish();
        planes::publish_events(&shared, &mut self.local, &mut self.changes, By::Nobody);
        self.end_effects(held);
        shared.keyspace.locks().unlock_one(stripe);
        Ok(())
    }

    /// Runs a command that may find out, as it runs, that it needs more stripes: then it lets go of all, and starts over
    /// with those as well. What it finds may change between two rounds; so the last one takes everything.
    fn run_widening(
        &mut self,
        session: &mut Session,
        id: CommandId,
        args: Args<'_>,
        set: &mut StripeSet,
        hints: &[Hint],
    ) -> Result<(), Halt> {
        if let Some(reserved) = &session.ticket {
            // An earlier round found these.
            set.extend(reserved);
        }
        for round in 1.. {
            self.lock_set(session, set)?;
            // The ticket, if there is one, stays for a wider set.
            if let Some(wider) = self.wider(set, [(id, args)].into_iter()) {
                self.shared.keyspace.locks().unlock_set(set);
                *set = wider;
                continue;
            }
            let held = Held::Set(set);
            match self.handle(session, id, args, held, hints) {
                Err(Failure::Stop(Stop::Widen(missing))) => {
                    self.end_effects(held);
                    self.shared.keyspace.locks().unlock_set(set);
                    if round >= WIDENING_ROUNDS_MAX {
                        break;
                    }
                    set.extend(&missing.0);
                }
                result => {
                    let result = self.end_unit(session, id, args, held, result);
                    self.unlock_set(session, set);
                    return result;
                }
            }
        }
        self.run_locked(session, id, args, &StripeSet::all(), true, hints)
    }

    fn run_locked(
        &mut self,
        session: &mut Session,
        id: CommandId,
        args: Args<'_>,
        set: &StripeSet,
        all: bool,
        hints: &[Hint],
    ) -> Result<(), Halt> {
        self.lock_set(session, set)?;
        let held = if all { Held::All } else { Held::Set(set) };
        let result = self.handle(session, id, args, held, hints);
        let result = self.end_unit(session, id, args, held, result);
        self.unlock_set(session, set);
        result
    }

    /// Returns the stripes that a unit holding `set` has to hold to serve the clients that wait for what its commands write;
    /// `None` if `set` is enough.
    pub(crate) fn wider<'a>(
        &self,
        set: &StripeSet,
        commands: impl Iterator<Item = (CommandId, Args<'a>)>,
    ) -> Option<StripeSet> {
        let space = &self.shared.keyspace;
        if !space.anybody_waits() {
            return None;
        }
        let mut wider = set.clone();
        for (id, args) in commands.filter(|(id, _)| spec::gate(*id).flags.has(Flags::WRITE)) {
            for_each_key(id, args, |key| {
                space.widen(Held::Set(set), key, &mut wider);
            });
        }
        (wider != *set).then_some(wider)
    }

    /// The end of a unit of one command, its stripes still held: ends its effects, and registers its client, if it waits.
    fn end_unit(
        &mut self,
        session: &mut Session,
        id: CommandId,
        args: Args<'_>,
        held: Held<'_>,
        result: Result<(), Failure>,
    ) -> Result<(), Halt> {
        self.end_effects(held);
        match result {
            Err(Failure::Stop(Stop::Wait(block))) => {
                Err(self.begin_wait(session, id, args, &block, held))
            }
            other => Ok(other.map_err(Failure::expect_error)?),
        }
    }

    /// Takes all stripes of a unit, or puts the session aside.
    pub(crate) fn lock_set(&mut self, session: &mut Session, set: &StripeSet) -> Result<(), Halt> {
        loop {
            let ticket = session.ticket.is_some();
            let Err(stripe) = self.shared.keyspace.locks().try_set(set, ticket) else {
                return Ok(());
            };
            self.refuse_if_busy()?;
            session.rounds += 1;
            let token = session.card.token().0;
            if !ticket && session.rounds >= ROUNDS_BEFORE_TICKET {
                session.in_line = !self.shared.keyspace.locks().request_ticket(set, token);
                if session.in_line {
                    return Err(Halt::Aside(Aside::Ticket));
                }
                session.ticket = Some(Box::new(set.clone()));
                continue;
            }
            if self.shared.keyspace.locks().wait_for(stripe, token, ticket) == Wait::Registered {
                return Err(Halt::Aside(Aside::Stripe(stripe)));
            }
        }
    }

    /// Lets go of a unit's stripes, and of the ticket if it took one.
    pub(crate) fn unlock_set(&mut self, session: &mut Session, set: &StripeSet) {
        self.shared.keyspace.locks().unlock_set(set);
        self.give_way(session);
    }

    /// The session waits for nothing any more: gives back the ticket, and its places in line.
    pub(crate) fn give_way(&self, session: &mut Session) {
        let (locks, token) = (self.shared.keyspace.locks(), session.card.token().0);
        if let Some(reserved) = session.ticket.take() {
            locks.return_ticket(&reserved, token);
        }
        if std::mem::take(&mut session.in_line) {
            locks.leave_lines(token);
        }
    }

    /// Takes the script mutex for a session, or puts it aside.
    pub(crate) fn lock_script(&self, session: &mut Session) -> Result<(), Halt> {
        session.in_line = !self
            .shared
            .keyspace
            .locks()
            .try_script(session.card.token().0);
        if !session.in_line {
            return Ok(());
        }
        self.refuse_if_busy()?;
        Err(Halt::Aside(Aside::Script))
    }

    /// Registers a session with the stripe that is in its way and puts it aside. `Ok`: the stripe is free by
    /// now, try again.
    fn wait_for_stripe(&self, session: &Session, stripe: u16) -> Result<(), Halt> {
        self.refuse_if_busy()?;
        match self
            .shared
            .keyspace
            .locks()
            .wait_for(stripe, session.card.token().0, false)
        {
            Wait::Registered => Err(Halt::Aside(Aside::Stripe(stripe))),
            Wait::TryAgain => Ok(()),
        }
    }

    /// While a script is over its threshold nobody waits for what it holds: -BUSY. Where that is what all are told, they are
    /// at the gate: who has come past it before waits, and comes by it again when the worker hears that a script is busy.
    fn refuse_if_busy(&self) -> Result<(), Halt> {
        if self.settings.busy_reply_scope == BusyScope::Keys
            && self.shared.running_script.busy.load(Ordering::Acquire)
        {
            return Err(Halt::Error(self.shared.running_script.busy_error()));
        }
        Ok(())
    }

    /// Runs a command of the data plane inside EXEC or a script.
    fn run_inside(
        &mut self,
        session: &mut Session,
        id: CommandId,
        gate: Gate,
        args: Args<'_>,
    ) -> Result<(), Halt> {
        let mut unit = session.unit.take().expect("checked by the caller");
        let hint = self.extend_unit(&mut unit, id, gate, args);
        let mut inside = Inside {
            in_script: unit.in_script,
            changes: unit.changes,
        };
        let result = loop {
            match self.handle_inside(session, id, args, unit.held(), hint.as_slice(), &mut inside) {
                Err(Failure::Stop(Stop::Widen(missing))) => {
                    self.extend_stripes(&mut unit, &missing.0)
                }
                result => break result,
            }
        };
        unit.changes = inside.changes;
        session.unit = Some(unit);
        match result {
            // Nobody waits here: the reply for such callers stands.
            Err(Failure::Stop(Stop::Wait(_))) => Ok(()),
            other => Ok(other.map_err(Failure::expect_error)?),
        }
    }

    /// Takes what a script needs and does not hold yet. EXEC holds everything already. Gives the key, where it is the only
    /// one and has been hashed for that.
    fn extend_unit(
        &mut self,
        unit: &mut Unit,
        id: CommandId,
        gate: Gate,
        args: Args<'_>,
    ) -> Option<Hint> {
        if !unit.script || unit.all {
            return None;
        }
        let all = gate.scope.inside_unit() == Scope::All;
        if !all && gate.keys == KeyShape::One {
            let hint = Hint::of(args.get(usize::from(gate.first_key))?);
            self.extend_stripe(unit, stripe_of(hint.hash()));
            return Some(hint);
        }
        let mut wanted = StripeSet::EMPTY;
        if all {
            wanted = StripeSet::all();
        } else {
            add_stripes(&mut wanted, id, args);
        }
        self.extend_stripes(unit, &wanted);
        unit.all |= all;
        None
    }

    /// Takes stripes on demand: the unit holds the script mutex.
    pub(crate) fn extend_stripes(&self, unit: &mut Unit, wanted: &StripeSet) {
        wanted
            .iter()
            .for_each(|stripe| self.extend_stripe(unit, stripe));
    }

    fn extend_stripe(&self, unit: &mut Unit, stripe: u16) {
        if !unit.stripes.contains(stripe) {
            self.shared.keyspace.locks().lock_for_script(stripe);
            unit.stripes.insert(stripe);
        }
    }
}

/// Adds the stripes of a call's keys.
pub(crate) fn add_stripes(set: &mut StripeSet, id: CommandId, args: Args<'_>) {
    for_each_key(id, args, |key| {
        set.insert(stripe_of(redline_keyspace::hash(key)));
    });
}

/// Visits the keys of a call, in order.
fn for_each_key<'a>(id: CommandId, args: Args<'a>, visit: impl FnMut(&'a [u8])) {
    spec::reachable_keys(id, args.len(), |index| args.get(index).unwrap_or_default())
        .filter_map(|key| args.get(key.position))
        .for_each(visit);
}
