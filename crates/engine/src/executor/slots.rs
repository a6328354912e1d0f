//! The slots of a call: refused where they are several, or not served by this node.
//!
//! A call is judged once, before it runs (the straight path tests one bit under its stripe instead). Whoever has a slot
//! served no more does so under its stripe, and is counted: a call that finds the count moved when it has its stripes is
//! judged again, so that every unit is wholly before such a change, or wholly after.
//!
//! Must not know: who the other nodes are, why a slot is not served.

use redline_commands::Error;
use redline_keyspace::{SLOT_KEYS_MAX, Trace, Unit};
use redline_resp::Args;
use redline_spec::{self as spec, CommandId, Flags, KeyShape};

use crate::{
    caller::{Caller, Suspended, state},
    executor::{Executor, Halt, Outlet},
    refusals::Reason,
    session::scripting,
};

const CROSS_SLOT: Error = Error::line("CROSSSLOT Keys in request don't hash to the same slot");
const TRY_AGAIN: Error = Error::line("TRYAGAIN Multiple keys request during rehashing of slot");
const UNSETTLED: Error = Error::line("TRYAGAIN It is not known yet which node has the slot");
const NOBODY: Error = Error::line("CLUSTERDOWN Hash slot not served");
const DOWN: Error = Error::line("CLUSTERDOWN The cluster is down");
const DOWN_FOR_WRITES: Error =
    Error::line("CLUSTERDOWN The cluster is down and only accepts read commands");

/// Reason why this node does not serve a slot, or not as any other.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Unserved {
    /// No node has it.
    Nobody,
    /// Another node has it: its host and port, as in a redirect.
    Elsewhere(String),
    /// Another node has it, and this one a copy, from which the caller may read: the other's host and port.
    Copied(String),
    /// Likewise, but the caller has not asked to read from copies: it may subscribe.
    Mirrored(String),
    /// It is this node's, and its keys are on their way to another: those that are not here are asked for there. The
    /// other's host and port.
    Leaving(String),
    /// Another node has it, and its keys are on their way to this one, which serves calls after ASKING: the other's host
    /// and port.
    Arriving(String),
    /// It is about to change its owner, and the caller will be woken when that is settled.
    Fenced,
    /// It is not known who owns it.
    Unknown,
    /// It is about to be known who serves it: the call is put aside until [`Engine::resume_all`](crate::Engine::resume_all).
    Undecided,
    /// It is this node's, which has no right to serve now.
    Unable,
    /// It is this node's, but the cluster is not complete.
    Down {
        /// True if calls that only read are served all the same.
        serves_reads: bool,
        /// True if channels of shards are.
        serves_channels: bool,
    },
}

/// Refusal of a call for its slots.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Refusal {
    CrossSlot,
    Nobody,
    Moved(u16, String),
    Ask(u16, String),
    TryAgain,
    Fenced,
    Unsettled,
    Down,
    DownForWrites,
    Full(u16),
    /// It is no refusal yet: the call is put aside.
    Aside,
}

impl Refusal {
    /// Returns the error for clients.
    pub(crate) fn error(&self) -> Error {
        match self {
            Refusal::CrossSlot => CROSS_SLOT,
            Refusal::Nobody => NOBODY,
            Refusal::Moved(slot, node) => Error::Line(format!("MOVED {slot} {node}").into()),
            Refusal::Ask(slot, node) => Error::Line(format!("ASK {slot} {node}").into()),
            Refusal::TryAgain => TRY_AGAIN,
            Refusal::Fenced | Refusal::Unsettled => UNSETTLED,
            // Where a call cannot be put aside.
            Refusal::Down | Refusal::Aside => DOWN,
            Refusal::DownForWrites => DOWN_FOR_WRITES,
            Refusal::Full(slot) => Error::Line(
                format!(
                    "ERR slot {slot} has {SLOT_KEYS_MAX} keys and takes no more: use more than one hash tag"
                )
                .into(),
            ),
        }
    }

    /// Returns the end of the call: an error, or a wait.
    pub(crate) fn halt(&self) -> Halt {
        match self {
            Refusal::Fenced => Halt::Suspended(Suspended::File),
            Refusal::Aside => Halt::Suspended(Suspended::Pause),
            _ => Halt::Error(self.error()),
        }
    }

    /// Returns the error for a script that has made the call.
    pub(crate) fn error_in_script(&self, id: CommandId) -> Error {
        match self {
            Refusal::CrossSlot => Error::Line(
                format!(
                    "ERR Command '{}' in script attempted to access keys that don't hash to the same slot",
                    spec::row(id).full_name
                )
                .into(),
            ),
            Refusal::Nobody | Refusal::Fenced | Refusal::Unsettled => Error::line("ERR Script attempted to access a slot not served"),
            Refusal::Moved(..) | Refusal::Ask(..) | Refusal::TryAgain => {
                Error::line("ERR Script attempted to access a non local key in a cluster node")
            }
            Refusal::Down | Refusal::Aside => {
                Error::line("ERR Script attempted to execute a command while the cluster is down")
            }
            Refusal::DownForWrites => Error::line(
                "ERR Script attempted to execute a write command while the cluster is down and readonly",
            ),
            Refusal::Full(_) => self.error(),
        }
    }
}

/// Judgement of calls that are not refused.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Verdict {
    /// They run.
    Served,
    /// They run if they have one key, or all are here: the slot is on its way to this node.
    IfHere,
    /// They run if all keys are here: those of this slot are on their way to this node, with its host and port.
    ElseAsk(u16, String),
}

/// Slots and effects of one or more calls.
#[derive(Default)]
struct Calls {
    first: Option<u16>,
    are_several: bool,
    write: bool,
    /// True if they may add keys.
    grow: bool,
    name_channels: bool,
    /// True if they publish: a copy's node does not.
    publish: bool,
    /// True if they move keys of a slot, or are served as if after ASKING.
    move_keys: bool,
    ask: bool,
    /// A slot that an invalid call may access before it is found to be invalid.
    stray: Option<u16>,
}

impl Calls {
    fn add<O: Outlet>(&mut self, executor: &Executor<'_, O>, id: CommandId, args: Args<'_>) {
        let gate = spec::gate(id);
        let by_row = gate.flags.has(Flags::WRITE);
        self.write |= scripting::may_write(executor.engine, id, args, by_row);
        self.grow |= gate.flags.has(Flags::DENYOOM);
        self.publish |= id == CommandId::Spublish;
        self.move_keys |= id == CommandId::Migrate;
        self.ask |= gate.flags.has(Flags::ASKING);
        if gate.keys == KeyShape::None {
            return;
        }
        let space = &executor.engine.keyspace;
        let arg = |at| args.get(at).unwrap_or_default();
        let slot = |at| redline_slot::slot_of(arg(at));
        match spec::routed_keys(id, args.len(), arg) {
            Ok(keys) => {
                self.name_channels |= spec::row(id).channels.is_some();
                for key in keys {
                    let slot = slot(key.position);
                    self.are_several |= *self.first.get_or_insert(slot) != slot;
                }
            }
            // Its handler will refuse it, as Redis's does, but until then may look at the keys that it finds.
            Err(_) => {
                let keys = spec::reachable_keys(id, args.len(), arg);
                let mut slots = keys.map(|key| slot(key.position));
                self.stray = self
                    .stray
                    .or_else(|| slots.find(|slot| !space.serves_slot(*slot)));
            }
        }
    }

    fn judge<O: Outlet>(
        &self,
        executor: &Executor<'_, O>,
        caller: &Caller,
    ) -> Result<Verdict, Refusal> {
        let Some(slot) = self.first.or(self.stray) else {
            return Ok(Verdict::Served);
        };
        let is_down = executor.refusals.has(Reason::ClusterDown);
        let has_right = !executor.refusals.has(Reason::NoRight);
        if !is_down
            && has_right
            && self.stray.is_none()
            && executor.engine.keyspace.serves_slot(slot)
        {
            return match self.are_several {
                true => Err(Refusal::CrossSlot),
                false if self.grow && is_full(executor, caller, slot) => Err(Refusal::Full(slot)),
                false => Ok(Verdict::Served),
            };
        }
        match O::unserved(executor, caller, slot) {
            Unserved::Nobody => Err(Refusal::Nobody),
            Unserved::Fenced => Err(Refusal::Fenced),
            Unserved::Unknown => Err(Refusal::Unsettled),
            _ if self.are_several => Err(Refusal::CrossSlot),
            Unserved::Undecided => Err(Refusal::Aside),
            Unserved::Unable => Err(Refusal::Down),
            Unserved::Elsewhere(node) => Err(Refusal::Moved(slot, node)),
            Unserved::Arriving(node) => match (is_down, self.move_keys) {
                (true, _) => Err(Refusal::Down),
                (false, true) => Ok(Verdict::Served),
                (false, false) if self.ask || caller.is(state::ASKING) => Ok(Verdict::IfHere),
                (false, false) => Err(Refusal::Moved(slot, node)),
            },
            Unserved::Leaving(_) if is_down => Err(Refusal::Down),
            Unserved::Leaving(_) if self.name_channels || self.move_keys => Ok(Verdict::Served),
            Unserved::Leaving(node) => Ok(Verdict::ElseAsk(slot, node)),
            Unserved::Mirrored(node) if !self.name_channels => Err(Refusal::Moved(slot, node)),
            Unserved::Copied(node) | Unserved::Mirrored(node) if self.write || self.publish => {
                Err(Refusal::Moved(slot, node))
            }
            Unserved::Copied(_) | Unserved::Mirrored(_) => match is_down {
                true => Err(Refusal::Down),
                false => Ok(Verdict::Served),
            },
            // It is becoming this node's: whoever makes it so holds its stripe until it is served.
            Unserved::Down { .. } if !is_down => Ok(Verdict::Served),
            Unserved::Down {
                serves_channels, ..
            } if self.name_channels => match serves_channels {
                true => Ok(Verdict::Served),
                false => Err(Refusal::Down),
            },
            Unserved::Down { serves_reads, .. } => match (serves_reads, self.write) {
                (false, _) => Err(Refusal::Down),
                (true, true) => Err(Refusal::DownForWrites),
                (true, false) => Ok(Verdict::Served),
            },
        }
    }
}

fn is_full<O: Outlet>(executor: &Executor<'_, O>, caller: &Caller, slot: u16) -> bool {
    executor.engine.keyspace.slot_key_count(caller.db, slot) >= SLOT_KEYS_MAX
}

/// Judges a call that is about to run, or to be queued; EXEC with all that it runs.
pub(super) fn check<O: Outlet>(
    executor: &Executor<'_, O>,
    caller: &mut Caller,
    id: CommandId,
    args: Args<'_>,
) -> Result<(), Refusal> {
    if !executor.engine.keyspace.is_of_cluster() {
        return Ok(());
    }
    // Before the look at who serves: a change meanwhile has it judged again.
    let changes = executor.engine.keyspace.served_changes();
    let mut calls = Calls::default();
    for_each_call(caller, id, args, |id, args| calls.add(executor, id, args));
    let verdict = calls.judge(executor, caller)?;
    caller.judged_at = Some(match verdict {
        Verdict::Served => changes,
        // That is seen under its stripes alone.
        Verdict::IfHere | Verdict::ElseAsk(..) => u64::MAX,
    });
    Ok(())
}

/// Visits a call, or those that EXEC runs.
fn for_each_call<'a>(
    caller: &'a Caller,
    id: CommandId,
    args: Args<'a>,
    mut visit: impl FnMut(CommandId, Args<'a>),
) {
    if id == CommandId::Exec && caller.is(state::MULTI) {
        let queue = caller.multi.queue.iter();
        queue.for_each(|(id, args)| visit(*id, args.as_args()));
    } else {
        visit(id, args);
    }
}

/// Judges a call again, now that its stripes are held, if slots have begun or ceased to be served since it was judged.
pub(crate) fn check_again<O: Outlet>(
    executor: &mut Executor<'_, O>,
    caller: &mut Caller,
    id: CommandId,
    args: Args<'_>,
    unit: &mut Unit<'_>,
) -> Result<(), Refusal> {
    let changes = executor.engine.keyspace.served_changes();
    if caller.judged_at.is_none_or(|judged| judged == changes) {
        return Ok(());
    }
    let mut calls = Calls::default();
    for_each_call(caller, id, args, |id, args| calls.add(executor, id, args));
    let verdict = calls.judge(executor, caller)?;
    caller.judged_at = Some(changes);
    if verdict == Verdict::Served {
        return Ok(());
    }
    let (here, missing) = count_keys(executor, caller, id, args, unit);
    match verdict {
        Verdict::ElseAsk(slot, node) if missing > 0 => match here {
            0 => Err(Refusal::Ask(slot, node)),
            _ => Err(Refusal::TryAgain),
        },
        Verdict::IfHere if missing > 0 && here + missing > 1 => Err(Refusal::TryAgain),
        _ => Ok(()),
    }
}

/// Returns the number of keys of a call that are here, and of those that are not. Their stripes are held.
fn count_keys<O: Outlet>(
    executor: &mut Executor<'_, O>,
    caller: &Caller,
    id: CommandId,
    args: Args<'_>,
    unit: &mut Unit<'_>,
) -> (usize, usize) {
    let mut keys: Vec<&[u8]> = Vec::new();
    for_each_call(caller, id, args, |id, args| {
        let is_of_keys = spec::row(id).channels.is_none();
        let arg = |at| args.get(at).unwrap_or_default();
        let found = spec::reachable_keys(id, args.len(), arg).filter(|_| is_of_keys);
        keys.extend(found.filter_map(|key| args.get(key.position)));
    });
    keys.sort_unstable();
    keys.dedup();
    let (db, now_ms) = (caller.db, executor.now_ms);
    let mut view = unit.view(&mut executor.local, db, now_ms);
    let here = keys.iter();
    // Expired keys stay: a call that is refused has no effect.
    let here = here.filter(|key| view.find(key, Trace::Prefetch).is_some());
    let here = here.count();
    view.finish();
    (here, keys.len() - here)
}

/// Judges a call of a script. `own`: the slot of all keys so far, if the script has to stay in one.
pub(crate) fn check_in_script<O: Outlet>(
    executor: &Executor<'_, O>,
    caller: &Caller,
    own: Option<&mut Option<u16>>,
    id: CommandId,
    args: Args<'_>,
) -> Result<(), Error> {
    if caller.judged_at.is_none() {
        return Ok(());
    }
    let mut calls = Calls::default();
    calls.add(executor, id, args);
    let judged = calls.judge(executor, caller);
    // Keys that are on their way were looked for when the script began.
    judged.map_err(|refusal| refusal.error_in_script(id))?;
    if let (Some(own), Some(slot)) = (own, calls.first)
        && *own.get_or_insert(slot) != slot
    {
        return Err(Error::line(
            "ERR Script attempted to access keys that do not hash to the same slot",
        ));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn refusals_are_worded_for_who_reads_them() {
        let text = |error: Error| String::from_utf8_lossy(&error.text()).into_owned();
        let moved = Refusal::Moved(3999, "h:6381".into());
        assert_eq!(text(moved.error()), "MOVED 3999 h:6381");
        assert_eq!(
            text(moved.error_in_script(CommandId::Get)),
            "ERR Script attempted to access a non local key in a cluster node"
        );
        // A subcommand has its whole name.
        assert_eq!(
            text(Refusal::CrossSlot.error_in_script(CommandId::ObjectEncoding)),
            "ERR Command 'object|encoding' in script attempted to access keys that don't hash to the same slot"
        );
        let full = Refusal::Full(7);
        assert!(text(full.error()).starts_with("ERR slot 7 has 3000000 keys"));
        assert_eq!(
            text(full.error_in_script(CommandId::Set)),
            text(full.error())
        );
    }
}
