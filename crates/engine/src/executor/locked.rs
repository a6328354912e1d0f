//! A unit of the data plane: which stripes it takes, what it does when it cannot have one, and how it lets go.
//!
//! Must not know: batches, and what any command does.

use std::{mem, sync::atomic::Ordering};

use redline_commands::{Failure, Stop};
use redline_keyspace::{
    Busy, Hint, Keyspace, Trace, Unit,
    lock::{ROUNDS_BEFORE_TICKET, StripeSet, Wait},
};
use redline_resp::Args;
use redline_spec::{self as spec, CommandId, Flags, Gate, KeyShape, Scope};

use super::{Halt, run::Inside};
use crate::{
    caller::{Aside, Caller},
    executor::{Executor, Outlet},
    session,
    settings::BusyScope,
    tracking::By,
};

/// Keys of one request for whose hashes memory is kept.
const HINTS_KEPT_MAX: usize = 4 * 1024;
/// So often a unit that meets unexpected keys starts over, before it takes all stripes.
const WIDENING_ROUNDS_MAX: u32 = 4;

/// The unit of several commands: EXEC's, or a script's. Commands inside it take no stripes of their own.
pub struct Compound<'s> {
    /// The stripes; with the script mutex further ones are taken on demand.
    pub unit: Unit<'s>,
    /// A script is running (as opposed to EXEC): `noscript` commands are refused.
    pub in_script: bool,
    /// The script has promised not to write.
    pub read_only: bool,
    /// Changes so far.
    pub changes: u64,
}

impl<'s> Compound<'s> {
    /// Of a unit that has run nothing yet.
    pub fn new(unit: Unit<'s>) -> Compound<'s> {
        Compound {
            unit,
            in_script: false,
            read_only: false,
            changes: 0,
        }
    }
}

/// The stripes that a command takes before it runs.
enum Needs {
    /// None: it takes them one at a time, as it goes.
    None,
    One(u16),
    Set(StripeSet),
}

impl Needs {
    fn into_set(self) -> StripeSet {
        match self {
            Needs::None => StripeSet::EMPTY,
            Needs::One(stripe) => {
                let mut set = StripeSet::EMPTY;
                set.insert(stripe);
                set
            }
            Needs::Set(set) => set,
        }
    }
}

impl<'s, O: Outlet> Executor<'s, O> {
    pub(super) fn run_data(
        &mut self,
        caller: &mut Caller,
        id: CommandId,
        gate: Gate,
        args: Args<'_>,
    ) -> Result<(), Halt> {
        if self.compound.is_some() {
            return self.run_inside(caller, id, gate, args);
        }
        let space = &self.engine.keyspace;
        let needs = match gate.scope {
            Scope::None | Scope::Counters | Scope::OneStripe => Needs::None,
            Scope::All => Needs::Set(StripeSet::all()),
            // Who has the ticket has it for more stripes than this one: it comes from below, to serve others as well.
            Scope::Keys | Scope::KeysPlus
                if gate.keys == KeyShape::One && caller.ticket.is_none() =>
            {
                let key = &args[usize::from(gate.first_key)];
                Needs::One(space.place(key).stripe())
            }
            Scope::Keys | Scope::KeysPlus => {
                return self.run_with_hints(caller, id, gate, args);
            }
        };
        self.run_alone(caller, id, gate, args, needs, &[])
    }

    /// Runs a command of several keys, whose places are hashed once.
    fn run_with_hints(
        &mut self,
        caller: &mut Caller,
        id: CommandId,
        gate: Gate,
        args: Args<'_>,
    ) -> Result<(), Halt> {
        let space = &self.engine.keyspace;
        let (mut set, mut hints) = (StripeSet::EMPTY, mem::take(&mut self.hints));
        for_each_key(id, args, |key| {
            let place = space.place(key);
            let _ = space.ahead(caller.db, place);
            space.locks().prefetch(place.stripe());
            set.insert(place.stripe());
            hints.push(Hint::new(key, place));
        });
        if let Some(reserved) = &caller.ticket {
            // An earlier round found these.
            set.extend(reserved);
        }
        let result = self.run_alone(caller, id, gate, args, Needs::Set(set), &hints);
        hints.clear();
        hints.shrink_to(HINTS_KEPT_MAX);
        self.hints = hints;
        result
    }

    /// Runs a command as a unit of its own, from the start again for as long as it stops for want of stripes. What it finds
    /// may change between two rounds; so the last one takes every stripe.
    fn run_alone(
        &mut self,
        caller: &mut Caller,
        id: CommandId,
        gate: Gate,
        args: Args<'_>,
        mut needs: Needs,
        hints: &[Hint],
    ) -> Result<(), Halt> {
        let writes = gate.flags.has(Flags::WRITE);
        let mut widened = 0;
        loop {
            let mut unit = self.take(caller, &needs)?;
            if writes && self.engine.keyspace.anybody_waits() {
                let set = needs.into_set();
                // The ticket, if there is one, stays for a wider set.
                if let Some(wider) = self.wider(&unit, &set, [(id, args)].into_iter()) {
                    needs = Needs::Set(wider);
                    continue;
                }
                needs = Needs::Set(set);
            }
            let stop = match self.handle(caller, id, args, &mut unit, hints) {
                Err(Failure::Stop(stop)) => stop,
                result => {
                    self.commit(unit);
                    return Ok(result.map_err(Failure::expect_error)?);
                }
            };
            match stop {
                Stop::Busy(busy) => {
                    drop(unit);
                    self.wait_for_stripe(caller, busy.0)?;
                }
                Stop::Expired(key) => {
                    drop(unit);
                    self.take_out_expired(caller, &key)?;
                }
                Stop::Widen(missing) => {
                    self.commit(unit);
                    let mut set = needs.into_set();
                    widened += 1;
                    match widened < WIDENING_ROUNDS_MAX {
                        true => set.extend(&missing.0),
                        false => set = StripeSet::all(),
                    }
                    needs = Needs::Set(set);
                }
                Stop::Wait(block) => {
                    self.end_effects(&mut unit);
                    return Err(self.begin_wait(caller, id, args, &block, &mut unit));
                }
                Stop::Gone => unreachable!("nobody has waited for this call's keys"),
            }
        }
    }

    /// A unit of its own: looks at a key that has expired, and so takes it out.
    fn take_out_expired(&mut self, caller: &mut Caller, key: &[u8]) -> Result<(), Halt> {
        let place = self.engine.keyspace.place(key);
        let mut unit = self.take(caller, &Needs::One(place.stripe()))?;
        let mut view = unit.view(&mut self.local, caller.db, self.now_ms);
        view.find(key, Trace::Quiet);
        view.finish();
        session::publish_events(self.engine, &mut self.local, &mut self.changes, By::Nobody);
        self.commit(unit);
        Ok(())
    }

    /// Returns the stripes that a unit holding `set` has to hold to serve the clients that wait for what its commands write;
    /// `None` if `set` is enough.
    pub(crate) fn wider<'a>(
        &self,
        unit: &Unit<'_>,
        set: &StripeSet,
        commands: impl Iterator<Item = (CommandId, Args<'a>)>,
    ) -> Option<StripeSet> {
        if !self.engine.keyspace.anybody_waits() {
            return None;
        }
        let mut wider = set.clone();
        for (id, args) in commands.filter(|(id, _)| spec::gate(*id).flags.has(Flags::WRITE)) {
            for_each_key(id, args, |key| unit.widen(key, &mut wider));
        }
        (wider != *set).then_some(wider)
    }

    /// Takes the stripes that a command needs, or puts the session aside.
    #[inline]
    fn take(&mut self, caller: &mut Caller, needs: &Needs) -> Result<Unit<'s>, Halt> {
        let space = &self.engine.keyspace;
        match needs {
            Needs::None => Ok(Unit::none(space)),
            Needs::One(stripe) => loop {
                if let Some(unit) = Unit::try_one(space, *stripe) {
                    return Ok(unit);
                }
                self.wait_for_stripe(caller, *stripe)?;
            },
            Needs::Set(set) => self.take_set(caller, set),
        }
    }

    /// Takes all stripes of a unit, or puts the session aside.
    pub fn take_set(&mut self, caller: &mut Caller, set: &StripeSet) -> Result<Unit<'s>, Halt> {
        let space = &self.engine.keyspace;
        loop {
            let ticket = caller.ticket.is_some();
            let Busy(stripe) = match Unit::try_set(space, set, ticket) {
                Ok(unit) => return Ok(unit),
                Err(busy) => busy,
            };
            self.refuse_if_busy()?;
            caller.rounds += 1;
            let token = caller.card.token().0;
            if !ticket && caller.rounds >= ROUNDS_BEFORE_TICKET {
                caller.in_line = !space.locks().request_ticket(set, token);
                if caller.in_line {
                    return Err(Halt::Aside(Aside::Ticket));
                }
                caller.ticket = Some(Box::new(set.clone()));
                continue;
            }
            if space.locks().wait_for(stripe, token, ticket) == Wait::Registered {
                return Err(Halt::Aside(Aside::Stripe(stripe)));
            }
        }
    }

    /// The session waits for nothing any more: gives back the ticket, and its places in line.
    pub fn give_way(&self, caller: &mut Caller) {
        let (locks, token) = (self.engine.keyspace.locks(), caller.card.token().0);
        if let Some(reserved) = caller.ticket.take() {
            locks.return_ticket(&reserved, token);
        }
        if std::mem::take(&mut caller.in_line) {
            locks.leave_lines(token);
        }
    }

    /// Takes the script mutex for a session and no stripe yet, or puts it aside.
    pub(crate) fn take_script(&self, caller: &mut Caller) -> Result<Unit<'s>, Halt> {
        let unit = Unit::try_script(&self.engine.keyspace, caller.card.token().0);
        caller.in_line = unit.is_none();
        if let Some(unit) = unit {
            return Ok(unit);
        }
        self.refuse_if_busy()?;
        Err(Halt::Aside(Aside::Script))
    }

    /// Registers a session with the stripe that is in its way and puts it aside. `Ok`: the stripe is free by
    /// now, try again.
    fn wait_for_stripe(&self, caller: &Caller, stripe: u16) -> Result<(), Halt> {
        self.refuse_if_busy()?;
        match self
            .engine
            .keyspace
            .locks()
            .wait_for(stripe, caller.card.token().0, false)
        {
            Wait::Registered => Err(Halt::Aside(Aside::Stripe(stripe))),
            Wait::TryAgain => Ok(()),
        }
    }

    /// While a script is over its threshold nobody waits for what it holds: -BUSY. Where that is what all are told, they are
    /// at the gate: who has come past it before waits, and comes by it again when the worker hears that a script is busy.
    fn refuse_if_busy(&self) -> Result<(), Halt> {
        if self.settings.busy_reply_scope == BusyScope::Keys
            && self.engine.running_script.busy.load(Ordering::Acquire)
        {
            return Err(Halt::Error(self.engine.running_script.busy_error()));
        }
        Ok(())
    }

    /// Runs a command of the data plane inside EXEC or a script.
    fn run_inside(
        &mut self,
        caller: &mut Caller,
        id: CommandId,
        gate: Gate,
        args: Args<'_>,
    ) -> Result<(), Halt> {
        let mut compound = self.compound.take().expect("checked by the caller");
        let hint = self.extend(&mut compound.unit, id, gate, args);
        let mut inside = Inside {
            in_script: compound.in_script,
            changes: compound.changes,
        };
        let unit = &mut compound.unit;
        let result = loop {
            match self.handle_inside(caller, id, args, unit, hint.as_slice(), &mut inside) {
                Err(Failure::Stop(Stop::Widen(missing))) => unit.add_set(&missing.0),
                result => break result,
            }
        };
        compound.changes = inside.changes;
        self.compound = Some(compound);
        match result {
            // Nobody waits here: the reply for such callers stands.
            Err(Failure::Stop(Stop::Wait(_))) => Ok(()),
            other => Ok(other.map_err(Failure::expect_error)?),
        }
    }

    /// Takes what a script needs and does not hold yet. EXEC holds everything already. Gives the key, where it is the only
    /// one and has been hashed for that.
    fn extend(
        &self,
        unit: &mut Unit<'_>,
        id: CommandId,
        gate: Gate,
        args: Args<'_>,
    ) -> Option<Hint> {
        if !unit.holds_script() || unit.holds_all() {
            return None;
        }
        let space = &self.engine.keyspace;
        if gate.scope.inside_unit() == Scope::All {
            unit.add_set(&StripeSet::all());
            return None;
        }
        if gate.keys == KeyShape::One {
            let key = args.get(usize::from(gate.first_key))?;
            let place = space.place(key);
            unit.add(place.stripe());
            return Some(Hint::new(key, place));
        }
        let mut wanted = StripeSet::EMPTY;
        add_stripes(space, &mut wanted, id, args);
        unit.add_set(&wanted);
        None
    }

    /// Is a script running, as opposed to EXEC or a single command?
    pub fn is_in_script(&self) -> bool {
        self.compound
            .as_ref()
            .is_some_and(|compound| compound.in_script)
    }
}

/// Adds the stripes of a call's keys.
pub(crate) fn add_stripes(space: &Keyspace, set: &mut StripeSet, id: CommandId, args: Args<'_>) {
    for_each_key(id, args, |key| set.insert(space.place(key).stripe()));
}

/// Visits the keys of a call, in order.
fn for_each_key<'a>(id: CommandId, args: Args<'a>, visit: impl FnMut(&'a [u8])) {
    spec::reachable_keys(id, args.len(), |index| args.get(index).unwrap_or_default())
        .filter_map(|key| args.get(key.position))
        .for_each(visit);
}
