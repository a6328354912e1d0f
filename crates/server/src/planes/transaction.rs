//! MULTI, EXEC, DISCARD, WATCH, UNWATCH.
//!
//! EXEC is one unit: it takes the stripes of all queued commands and of all watched keys, looks at the
//! watch flag under them, and runs the queue. With a command in the queue that may come to need further stripes (a script,
//! SORT) it takes the script mutex first, whose holder may.

use std::sync::{Arc, atomic::Ordering};

use redline_acl::{Context, Reason};
use redline_commands::Error;
use redline_keyspace::{
    Unit,
    lock::{StripeSet, Wait},
};
use redline_resp::{Args, ArgsBuf};
use redline_spec::{self as spec, CommandId, Scope};

use crate::{
    exec::{Compound, Halt, add_stripes},
    session::{EndedWatch, Multi, Session, Token, Watched, flag, state},
    worker::Worker,
};

/// Commands that are not queued inside MULTI.
pub fn runs_at_once(id: CommandId) -> bool {
    matches!(
        id,
        CommandId::Exec
            | CommandId::Discard
            | CommandId::Multi
            | CommandId::Watch
            | CommandId::Quit
            | CommandId::Reset
    )
}

/// Queues a command of an open transaction.
pub fn enqueue(session: &mut Session, id: CommandId, args: Args<'_>) {
    if !session.multi.broken {
        let args = ArgsBuf::from(args);
        session.multi.bytes += size_of::<(CommandId, ArgsBuf)>() + args.heap_bytes();
        session.multi.queue.push((id, args));
        let queued = session.multi.queue.len() as u32;
        session.card.multi.store(queued + 1, Ordering::Relaxed);
    }
    session.reply().simple("QUEUED");
}

pub(crate) fn multi(_: &mut Worker, session: &mut Session, _: Args<'_>) -> Result<(), Halt> {
    if session.is(state::MULTI) {
        return Err(Error::line("ERR MULTI calls can not be nested").into());
    }
    session.set_state(state::MULTI, true);
    session.card.set_flag(flag::MULTI, true);
    session.card.multi.store(1, Ordering::Relaxed);
    session.reply().ok();
    Ok(())
}

pub(crate) fn discard(worker: &mut Worker, session: &mut Session, _: Args<'_>) -> Result<(), Halt> {
    if !session.is(state::MULTI) {
        return Err(Error::line("ERR DISCARD without MULTI").into());
    }
    abandon(worker, session);
    session.reply().ok();
    Ok(())
}

/// Ends the transaction without running it.
pub fn abandon(worker: &mut Worker, session: &mut Session) {
    close_multi(session);
    forget_multi(session);
    worker.unwatch(session);
}

fn close_multi(session: &mut Session) -> Multi {
    session.set_state(state::MULTI, false);
    std::mem::take(&mut session.multi)
}

/// CLIENT LIST shows a transaction until it has run.
fn forget_multi(session: &Session) {
    session.card.set_flag(flag::MULTI, false);
    session.card.multi.store(0, Ordering::Relaxed);
}

pub(crate) fn exec(worker: &mut Worker, session: &mut Session, args: Args<'_>) -> Result<(), Halt> {
    if !session.is(state::MULTI) {
        return Err(Error::line("ERR EXEC without MULTI").into());
    }
    if session.multi.broken {
        abandon(worker, session);
        return Err(
            Error::line("EXECABORT Transaction discarded because of previous errors.").into(),
        );
    }
    let mut unit = take_unit(worker, session)?;
    let aborted = session.watch_flag.is_raised() || watched_key_expired(worker, session, &mut unit);
    let multi = close_multi(session);
    worker.compound = Some(Box::new(Compound::new(unit)));
    if aborted {
        session.reply().null_array();
    } else {
        run_queue(worker, session, multi);
        // What CLIENT REPLY is against has been taken back already.
        let settled = session.is(state::REPLY);
        session.set_state(state::CONFIRMED, settled);
    }
    if worker.monitored {
        worker.show(session, CommandId::Exec, args, false);
    }
    forget_multi(session);
    let mut compound = worker
        .compound
        .take()
        .expect("the queue leaves the unit in place");
    worker.end_compound_effects(&mut compound.unit);
    if !session.watched.is_empty() {
        unwatch_held(worker, session, &mut compound.unit);
    }
    Ok(())
}

/// Takes everything that the transaction needs, or puts the session aside.
fn take_unit<'s>(worker: &mut Worker<'s>, session: &mut Session) -> Result<Unit<'s>, Halt> {
    let space = &worker.shared.keyspace;
    let mut stripes = StripeSet::EMPTY;
    let mut all = false;
    let mut script = false;
    for (id, args) in &session.multi.queue {
        all |= spec::gate(*id).scope.inside_unit() == Scope::All;
        script |= spec::gate(*id).scope == Scope::KeysPlus;
        add_stripes(space, &mut stripes, *id, args.as_args());
    }
    for watched in &session.watched {
        stripes.insert(space.place(&watched.key).stripe());
    }
    if all {
        stripes = StripeSet::all();
    }
    if script {
        let mut unit = worker.take_script(session)?;
        // Who holds the script mutex may wait, so this neither gives the mutex up again nor needs the ticket: stripes
        // that were reserved while their owner waits in line for the mutex would keep everybody else waiting, too.
        unit.add_set(&stripes);
        return Ok(unit);
    }
    take_for_waiters(worker, session, stripes)
}

/// Takes these stripes, and those of everybody whom the transaction may serve.
fn take_for_waiters<'s>(
    worker: &mut Worker<'s>,
    session: &mut Session,
    mut stripes: StripeSet,
) -> Result<Unit<'s>, Halt> {
    if let Some(reserved) = &session.ticket {
        // An earlier round found these.
        stripes.extend(reserved);
    }
    loop {
        let unit = worker.take_set(session, &stripes)?;
        let queue = session.multi.queue.iter();
        let commands = queue.map(|(id, args)| (*id, args.as_args()));
        let Some(wider) = worker.wider(&unit, &stripes, commands) else {
            return Ok(unit);
        };
        // The ticket, if there is one, stays for the wider set.
        stripes = wider;
    }
}

/// A watched key that was there and has expired counts as changed. It stays: EXEC only looks.
fn watched_key_expired(worker: &mut Worker, session: &Session, unit: &mut Unit<'_>) -> bool {
    let mut existed = session.watched.iter().filter(|watched| watched.existed);
    existed.any(|watched| {
        unit.view(&mut worker.local, watched.db, worker.now_ms)
            .is_stale(&watched.key)
    })
}

/// Runs the queue, all of it: also if one of its commands ends the connection by taking away the user. As in Redis, the
/// rest is the default user's then, and its replies are not sent.
///
/// CLIENT REPLY concerns each reply by itself, and the head of them all: if the queue switches replies on or off, elements
/// come without their array, or the reverse. As in Redis; whoever queues that has to know.
fn run_queue(worker: &mut Worker, session: &mut Session, multi: Multi) {
    let head = session.out.mark();
    session.reply().array(multi.queue.len());
    session.settle_part(head);
    let mut last_sent = None;
    for (id, args) in multi.queue {
        let mark = session.out.mark();
        if session.rules != worker.rules && !worker.adopt_rules(session) {
            last_sent.get_or_insert(mark);
            if worker.has_lost_user(session) {
                session.become_default(&worker.settings.acl);
            }
        }
        match call_queued(worker, session, id, args.as_args()) {
            Ok(()) => {}
            Err(Halt::Error(error)) => {
                let text = error.text();
                worker.stats.note_error(&text);
                session.out.truncate(mark);
                session.reply().error_bytes(&text);
            }
            Err(Halt::Aside(_)) => unreachable!("the unit holds all that its commands need"),
        }
        session.settle_part(mark);
        worker.sweep();
    }
    if let Some(mark) = last_sent {
        session.out.truncate(mark);
    }
}

/// Runs a queued command, if the rules that allowed it then still do.
fn call_queued(
    worker: &mut Worker,
    session: &mut Session,
    id: CommandId,
    args: Args<'_>,
) -> Result<(), Halt> {
    if let Err(denied) = worker.check_access(session, id, args, Context::Multi) {
        let reason = match denied.reason {
            Reason::Command => "no permission to execute the command or subcommand",
            Reason::Key => "no permission to touch the specified keys",
            Reason::Channel => "no permission to access one of the channels used as arguments",
            Reason::Auth => "no permission",
        };
        return Err(Error::Line(
            format!("NOPERM ACLs rules changed between the moment the transaction was accumulated and the EXEC call. This command is no longer allowed for the following reason: {reason}").into(),
        )
        .into());
    }
    worker.call(session, id, args)
}

pub(crate) fn watch(
    worker: &mut Worker,
    session: &mut Session,
    args: Args<'_>,
) -> Result<(), Halt> {
    if session.is(state::MULTI) {
        return Err(Error::line("ERR WATCH inside MULTI is not allowed").into());
    }
    let space = &worker.shared.keyspace;
    let mut stripes = StripeSet::EMPTY;
    for key in args.iter().skip(1) {
        stripes.insert(space.place(key).stripe());
    }
    let mut unit = if worker.refuses_all() {
        let ticket = session.ticket.is_some();
        let Ok(unit) = Unit::try_set(space, &stripes, ticket) else {
            watch_unseen(session, args);
            return Ok(());
        };
        unit
    } else {
        worker.take_set(session, &stripes)?
    };
    let view = unit.view(&mut worker.local, session.db, worker.now_ms);
    for key in args.iter().skip(1) {
        if view.watch(key, &session.watch_flag) {
            let existed = !view.is_stale(key) && view.contains(key);
            session.watched.push(Watched {
                db: session.db,
                key: key.into(),
                existed,
            });
            session.note_registered(key);
        }
    }
    drop(unit);
    confirm_watches(session);
    Ok(())
}

/// Watches keys of which a script that is over its threshold holds one. WATCH passes then and may not wait, but whether the
/// script has changed them already cannot be seen: they count as changed.
fn watch_unseen(session: &mut Session, args: Args<'_>) {
    session.watch_flag.raise();
    for key in args.iter().skip(1) {
        session.watched.push(Watched {
            db: session.db,
            key: key.into(),
            existed: false,
        });
        session.note_registered(key);
    }
    confirm_watches(session);
}

fn confirm_watches(session: &mut Session) {
    let flag = Some(session.watch_flag.clone());
    session.card.set_watched(session.watched.len() as u32, flag);
    session.reply().ok();
}

pub(crate) fn unwatch(worker: &mut Worker, session: &mut Session, _: Args<'_>) -> Result<(), Halt> {
    worker.unwatch(session);
    session.reply().ok();
    Ok(())
}

/// Takes the watches off while the unit holds their stripes.
fn unwatch_held(worker: &mut Worker, session: &mut Session, unit: &mut Unit<'_>) {
    for watched in std::mem::take(&mut session.watched) {
        session.note_unregistered(&watched.key);
        unit.view(&mut worker.local, watched.db, worker.now_ms)
            .unwatch(&watched.key, &session.watch_flag);
    }
    forget_watches(session);
}

fn forget_watches(session: &mut Session) {
    session.watch_flag = Arc::default();
    session.card.set_watched(0, None);
}

impl Worker<'_> {
    /// Ends all watches of a session. A stripe that is in use is come back to: the flag that stays behind for
    /// a moment belongs to nobody any more.
    pub fn unwatch(&mut self, session: &mut Session) {
        if session.watched.is_empty() {
            return;
        }
        for watched in std::mem::take(&mut session.watched) {
            session.note_unregistered(&watched.key);
            self.unwatching.push(EndedWatch {
                db: watched.db,
                key: watched.key,
                flag: session.watch_flag.clone(),
                waits: false,
            });
        }
        forget_watches(session);
        self.unwatch_left(None);
    }

    /// Ends watches that nothing was tried for yet (`None`), or those whose stripe was in use and is free now.
    pub fn unwatch_left(&mut self, woken: Option<u16>) {
        let space = &self.shared.keyspace;
        let mut in_use: Vec<u16> = Vec::new();
        for mut ended in std::mem::take(&mut self.unwatching) {
            let stripe = space.place(&ended.key).stripe();
            if ended.waits && woken != Some(stripe) {
                in_use.push(stripe);
            }
            let mut unit = None;
            while !in_use.contains(&stripe) && unit.is_none() {
                unit = Unit::try_one(space, stripe);
                let token = Token::of_stripe(self.number, stripe).0;
                if unit.is_none()
                    && space.locks().wait_for(stripe, token, false) == Wait::Registered
                {
                    in_use.push(stripe);
                }
            }
            let Some(mut unit) = unit else {
                ended.waits = true;
                self.unwatching.push(ended);
                continue;
            };
            unit.view(&mut self.local, ended.db, self.now_ms)
                .unwatch(&ended.key, &ended.flag);
        }
    }
}
