//! The end of watches: removed from keys whose stripes may be in use.
//!
//! Must not know: transactions.

use redline_keyspace::{Unit, lock::Wait};

use super::{Executor, Outlet};
use crate::{
    caller::{Caller, EndedWatch, Token},
    session::transaction::forget_watches,
};

/// Ends all watches of a session. A stripe that is in use is tried again later: the flag that stays behind for a moment
/// has no effect.
pub fn unwatch<O: Outlet>(executor: &mut Executor<'_, O>, caller: &mut Caller) {
    if caller.watched.is_empty() {
        return;
    }
    for watched in std::mem::take(&mut caller.watched) {
        caller.note_unregistered(&watched.key);
        executor.unwatching.push(EndedWatch {
            db: watched.db,
            key: watched.key,
            flag: caller.watch_flag.clone(),
            waits: false,
        });
    }
    forget_watches(caller);
    unwatch_left(executor, None);
}

/// Ends watches that belong to no session's WATCH, likewise.
pub fn end<O: Outlet>(executor: &mut Executor<'_, O>, ended: impl Iterator<Item = EndedWatch>) {
    executor.unwatching.extend(ended);
    unwatch_left(executor, None);
}

/// Ends watches that have not been tried yet (`None`), or those whose stripe was in use and is free now.
pub fn unwatch_left<O: Outlet>(executor: &mut Executor<'_, O>, woken: Option<u16>) {
    let space = &executor.engine.keyspace;
    let mut in_use: Vec<u16> = Vec::new();
    for mut ended in std::mem::take(&mut executor.unwatching) {
        let stripe = space.place(&ended.key).stripe();
        if ended.waits && woken != Some(stripe) {
            in_use.push(stripe);
        }
        let mut unit = None;
        while !in_use.contains(&stripe) && unit.is_none() {
            unit = Unit::try_one(space, stripe);
            let token = Token::of_stripe(executor.number, stripe).0;
            if unit.is_none() && space.locks().wait_for(stripe, token, false) == Wait::Registered {
                in_use.push(stripe);
            }
        }
        let Some(mut unit) = unit else {
            ended.waits = true;
            executor.unwatching.push(ended);
            continue;
        };
        unit.unwatch(ended.db, &ended.key, &ended.flag);
    }
}
