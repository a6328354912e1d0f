//! A unit of the data plane: which stripes it takes, what it does when it cannot have one, and how it releases them.
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
    caller::{Caller, Suspended},
    executor::{Executor, Outlet, block, gate, slots},
    session,
    settings::BusyScope,
    tracking::By,
};

/// Number of keys of one request for whose hashes memory is kept.
const HINTS_KEPT_MAX: usize = 4 * 1024;
/// Number of times that a unit that finds unexpected keys starts over, before it takes all stripes.
const WIDENING_ROUNDS_MAX: u32 = 4;

/// The unit of several commands: EXEC's, or a script's. Commands inside it take no stripes of their own.
pub struct Compound<'s> {
    /// Stripes of the unit; with the script mutex further ones are taken on demand.
    pub unit: Unit<'s>,
    /// True if a script is running (as opposed to EXEC): `noscript` commands are refused.
    pub in_script: bool,
    /// True if the script must not write.
    pub read_only: bool,
    /// Number of changes.
    pub changes: u64,
}

impl<'s> Compound<'s> {
    /// Creates a compound of a unit that has run nothing yet.
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
    /// None: it takes them one at a time, as it runs.
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

pub(super) fn run_data<O: Outlet>(
    executor: &mut Executor<'_, O>,
    caller: &mut Caller,
    id: CommandId,
    gate: Gate,
    args: Args<'_>,
) -> Result<(), Halt> {
    if executor.compound.is_some() {
        return run_inside(executor, caller, id, gate, args);
    }
    let space = &executor.engine.keyspace;
    let needs = match gate.scope {
        Scope::None | Scope::Counters => Needs::None,
        Scope::OneStripe => match &caller.ticket {
            None => Needs::None,
            // Found by an earlier round.
            Some(reserved) => Needs::Set((**reserved).clone()),
        },
        Scope::All => Needs::Set(StripeSet::all()),
        // The owner of the ticket has it for more stripes than this one: they are taken below, to serve other clients as well.
        Scope::Keys | Scope::KeysPlus if gate.keys == KeyShape::One && caller.ticket.is_none() => {
            let key = &args[usize::from(gate.first_key)];
            Needs::One(space.place(key).stripe())
        }
        Scope::Keys | Scope::KeysPlus => {
            return run_with_hints(executor, caller, id, gate, args);
        }
    };
    run_alone(executor, caller, id, gate, args, needs, &[])
}

/// Runs a command of several keys, whose places are hashed once.
fn run_with_hints<O: Outlet>(
    executor: &mut Executor<'_, O>,
    caller: &mut Caller,
    id: CommandId,
    gate: Gate,
    args: Args<'_>,
) -> Result<(), Halt> {
    let space = &executor.engine.keyspace;
    let (mut set, mut hints) = (StripeSet::EMPTY, mem::take(&mut executor.hints));
    for_each_key(id, args, |key| {
        let place = space.place(key);
        let _ = space.ahead(caller.db, place);
        space.locks().prefetch(place.stripe());
        set.insert(place.stripe());
        hints.push(Hint::new(key, place));
    });
    if let Some(reserved) = &caller.ticket {
        // Found by an earlier round.
        set.extend(reserved);
    }
    let result = run_alone(executor, caller, id, gate, args, Needs::Set(set), &hints);
    hints.clear();
    hints.shrink_to(HINTS_KEPT_MAX);
    executor.hints = hints;
    result
}

/// Runs a command as a unit of its own, again from the start for as long as it stops for missing stripes. The keys may
/// change between two rounds; so the last one takes every stripe.
fn run_alone<O: Outlet>(
    executor: &mut Executor<'_, O>,
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
        let mut unit = take(executor, caller, &needs)?;
        if gate::must_pass_again(executor) {
            drop(unit);
            gate::pass_again(executor, caller, args)?;
            continue;
        }
        slots::check_again(executor, caller, id, args, &mut unit)
            .map_err(|refusal| refusal.halt())?;
        if writes && executor.engine.keyspace.anybody_waits() {
            let set = needs.into_set();
            // The ticket, if there is one, is kept for a wider set.
            if let Some(wider) = wider(executor, &unit, &set, [(id, args)].into_iter()) {
                needs = Needs::Set(wider);
                continue;
            }
            needs = Needs::Set(set);
        }
        let stop = match executor.handle(caller, id, args, &mut unit, hints) {
            Err(Failure::Stop(stop)) => stop,
            result => {
                caller.note_seen(&unit);
                caller.note_record(block::commit(executor, unit));
                return Ok(result.map_err(Failure::expect_error)?);
            }
        };
        match stop {
            Stop::Busy(Busy(stripe)) => {
                drop(unit);
                caller.rounds += 1;
                if caller.rounds < ROUNDS_BEFORE_TICKET {
                    wait_for_stripe(executor, caller, stripe)?;
                    continue;
                }
                // Each round begins with the first stripe again, so that one that is in use might always be met.
                let mut set = needs.into_set();
                match caller.rounds < ROUNDS_BEFORE_TICKET + WIDENING_ROUNDS_MAX {
                    true => set.insert(stripe),
                    false => set = StripeSet::all(),
                }
                needs = Needs::Set(set);
            }
            Stop::Expired(key) => {
                drop(unit);
                take_out_expired(executor, caller, &key)?;
            }
            Stop::Widen(missing) => {
                caller.note_record(block::commit(executor, unit));
                let mut set = needs.into_set();
                widened += 1;
                match widened < WIDENING_ROUNDS_MAX {
                    true => set.extend(&missing.0),
                    false => set = StripeSet::all(),
                }
                needs = Needs::Set(set);
            }
            Stop::Wait(block) => {
                caller.note_seen(&unit);
                caller.note_record(block::end_effects(executor, &mut unit));
                return Err(block::begin_wait(
                    executor, caller, id, args, &block, &mut unit,
                ));
            }
            Stop::Gone => unreachable!("nobody has waited for this call's keys"),
        }
    }
}

/// Removes a key that has expired, as a unit of its own that looks it up.
fn take_out_expired<O: Outlet>(
    executor: &mut Executor<'_, O>,
    caller: &mut Caller,
    key: &[u8],
) -> Result<(), Halt> {
    let place = executor.engine.keyspace.place(key);
    let mut unit = take(executor, caller, &Needs::One(place.stripe()))?;
    let mut view = unit.view(&mut executor.local, caller.db, executor.now_ms);
    view.find(key, Trace::Quiet);
    view.finish();
    session::publish_events(
        executor.engine,
        &mut executor.local,
        &mut executor.changes,
        By::Nobody,
    );
    caller.note_record(block::commit(executor, unit));
    Ok(())
}

/// Returns the stripes that a unit holding `set` has to hold to serve the clients that wait for what its commands
/// write; `None` if `set` is enough.
pub(crate) fn wider<'a, O: Outlet>(
    executor: &Executor<'_, O>,
    unit: &Unit<'_>,
    set: &StripeSet,
    commands: impl Iterator<Item = (CommandId, Args<'a>)>,
) -> Option<StripeSet> {
    if !executor.engine.keyspace.anybody_waits() {
        return None;
    }
    let mut wider = set.clone();
    for (id, args) in commands.filter(|(id, _)| spec::gate(*id).flags.has(Flags::WRITE)) {
        for_each_key(id, args, |key| unit.widen(key, &mut wider));
    }
    (wider != *set).then_some(wider)
}

/// Takes the stripes that a command needs, or suspends the session.
#[inline]
fn take<'s, O: Outlet>(
    executor: &mut Executor<'s, O>,
    caller: &mut Caller,
    needs: &Needs,
) -> Result<Unit<'s>, Halt> {
    let space = &executor.engine.keyspace;
    match needs {
        Needs::None => Ok(Unit::none(space)),
        Needs::One(stripe) => loop {
            if let Some(unit) = Unit::try_one(space, *stripe) {
                return Ok(unit);
            }
            wait_for_stripe(executor, caller, *stripe)?;
        },
        Needs::Set(set) => take_set(executor, caller, set),
    }
}

/// Takes all stripes of a unit, or suspends the session.
pub fn take_set<'s, O: Outlet>(
    executor: &mut Executor<'s, O>,
    caller: &mut Caller,
    set: &StripeSet,
) -> Result<Unit<'s>, Halt> {
    let space = &executor.engine.keyspace;
    loop {
        let ticket = caller.ticket.is_some();
        let Busy(stripe) = match Unit::try_set(space, set, ticket) {
            Ok(unit) => return Ok(unit),
            Err(busy) => busy,
        };
        refuse_if_busy(executor)?;
        caller.rounds += 1;
        let token = caller.info.token().0;
        // With what is reserved already, of which an earlier round knew.
        let mut wanted = set.clone();
        if let Some(reserved) = &caller.ticket {
            wanted.extend(reserved);
        }
        let is_reserved = caller.ticket.as_deref() == Some(&wanted);
        if !is_reserved && (ticket || caller.rounds >= ROUNDS_BEFORE_TICKET) {
            caller.in_line = !space.locks().request_ticket(&wanted, token);
            if caller.in_line {
                return Err(Halt::Suspended(Suspended::Ticket));
            }
            caller.ticket = Some(Box::new(wanted));
            continue;
        }
        if space.locks().wait_for(stripe, token, ticket) == Wait::Registered {
            return Err(Halt::Suspended(Suspended::Stripe(stripe)));
        }
    }
}

/// Takes all stripes of a unit for this call, or suspends the session. A call that was let in passes the gate again if the role,
/// or anything else that it was let in by, has changed before it had them.
pub fn take_set_for_call<'s, O: Outlet>(
    executor: &mut Executor<'s, O>,
    caller: &mut Caller,
    args: Args<'_>,
    set: &StripeSet,
) -> Result<Unit<'s>, Halt> {
    take_for_call(executor, caller, args, |executor, caller| {
        take_set(executor, caller, set)
    })
}

/// Does the same for a unit that is taken in another way.
pub(crate) fn take_for_call<'s, O: Outlet>(
    executor: &mut Executor<'s, O>,
    caller: &mut Caller,
    args: Args<'_>,
    mut take: impl FnMut(&mut Executor<'s, O>, &mut Caller) -> Result<Unit<'s>, Halt>,
) -> Result<Unit<'s>, Halt> {
    loop {
        let unit = take(executor, caller)?;
        if !gate::must_pass_again(executor) {
            return Ok(unit);
        }
        drop(unit);
        gate::pass_again(executor, caller, args)?;
    }
}

/// Gives back the ticket and the places in queues of a session that waits for nothing any more.
pub fn give_way<O: Outlet>(executor: &Executor<'_, O>, caller: &mut Caller) {
    let (locks, token) = (executor.engine.keyspace.locks(), caller.info.token().0);
    if let Some(reserved) = caller.ticket.take() {
        locks.return_ticket(&reserved, token);
    }
    if std::mem::take(&mut caller.in_line) {
        locks.leave_lines(token);
    }
}

/// Takes the script mutex and every stripe, or suspends the session: nothing runs beside such a unit.
pub fn take_everything<'s, O: Outlet>(
    executor: &Executor<'s, O>,
    caller: &mut Caller,
) -> Result<Unit<'s>, Halt> {
    let mut unit = take_script(executor, caller)?;
    unit.add_set(&StripeSet::all());
    Ok(unit)
}

/// Takes the script mutex for a session and no stripe yet, or suspends it.
pub(crate) fn take_script<'s, O: Outlet>(
    executor: &Executor<'s, O>,
    caller: &mut Caller,
) -> Result<Unit<'s>, Halt> {
    let unit = Unit::try_script(&executor.engine.keyspace, caller.info.token().0);
    caller.in_line = unit.is_none();
    if let Some(unit) = unit {
        return Ok(unit);
    }
    refuse_if_busy(executor)?;
    Err(Halt::Suspended(Suspended::Script))
}

/// Queues a session for the stripe that it needs and suspends it. Returns `Ok` if the stripe is free by now: try again.
fn wait_for_stripe<O: Outlet>(
    executor: &Executor<'_, O>,
    caller: &Caller,
    stripe: u16,
) -> Result<(), Halt> {
    refuse_if_busy(executor)?;
    match executor
        .engine
        .keyspace
        .locks()
        .wait_for(stripe, caller.info.token().0, false)
    {
        Wait::Registered => Err(Halt::Suspended(Suspended::Stripe(stripe))),
        Wait::TryAgain => Ok(()),
    }
}

/// Refuses with -BUSY while a script is over its threshold: no client waits for its stripes. Where all commands are refused,
/// the gate does it: a call that has passed the gate waits, and passes it again when the worker is notified of the busy script.
fn refuse_if_busy<O: Outlet>(executor: &Executor<'_, O>) -> Result<(), Halt> {
    if executor.settings.busy_reply_scope == BusyScope::Keys
        && executor.engine.running_script.busy.load(Ordering::Acquire)
    {
        return Err(Halt::Error(executor.engine.running_script.busy_error()));
    }
    Ok(())
}

/// Runs a command of the data plane inside EXEC or a script.
fn run_inside<O: Outlet>(
    executor: &mut Executor<'_, O>,
    caller: &mut Caller,
    id: CommandId,
    gate: Gate,
    args: Args<'_>,
) -> Result<(), Halt> {
    let mut compound = executor.compound.take().expect("checked by the caller");
    let hint = extend(executor, &mut compound.unit, id, gate, args);
    if let Err(refusal) = slots::check_again(executor, caller, id, args, &mut compound.unit) {
        let error = match compound.in_script {
            true => refusal.error_in_script(id),
            false => refusal.error(),
        };
        executor.compound = Some(compound);
        return Err(error.into());
    }
    let mut inside = Inside {
        in_script: compound.in_script,
        changes: compound.changes,
    };
    let unit = &mut compound.unit;
    let result = loop {
        match executor.handle_inside(caller, id, args, unit, hint.as_slice(), &mut inside) {
            Err(Failure::Stop(Stop::Widen(missing))) => unit.add_set(&missing.0),
            result => break result,
        }
    };
    compound.changes = inside.changes;
    executor.compound = Some(compound);
    match result {
        // No wait here: the reply for such callers stands.
        Err(Failure::Stop(Stop::Wait(_))) => Ok(()),
        other => Ok(other.map_err(Failure::expect_error)?),
    }
}

/// Takes the stripes that a script needs and does not hold yet. EXEC holds all of its stripes already. Returns the key,
/// where it is the only one and has been hashed for that.
fn extend<O: Outlet>(
    executor: &Executor<'_, O>,
    unit: &mut Unit<'_>,
    id: CommandId,
    gate: Gate,
    args: Args<'_>,
) -> Option<Hint> {
    if !unit.holds_script() || unit.holds_all() {
        return None;
    }
    let space = &executor.engine.keyspace;
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

/// Returns true if a script is running, as opposed to EXEC or a single command.
pub fn is_in_script<O: Outlet>(executor: &Executor<'_, O>) -> bool {
    executor
        .compound
        .as_ref()
        .is_some_and(|compound| compound.in_script)
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
