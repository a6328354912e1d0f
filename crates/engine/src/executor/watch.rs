//! The end of watches: taken off keys whose stripes may be in use.
//!
//! Must not know: transactions.

use redline_keyspace::{Unit, lock::Wait};

use super::{Executor, Outlet};
use crate::{
    caller::{Caller, EndedWatch, Token},
    session::transaction::forget_watches,
};

impl<O: Outlet> Executor<'_, O> {
    /// Ends all watches of a session. A stripe that is in use is come back to: the flag that stays behind for
    /// a moment belongs to nobody any more.
    pub fn unwatch(&mut self, caller: &mut Caller) {
        if caller.watched.is_empty() {
            return;
        }
        for watched in std::mem::take(&mut caller.watched) {
            caller.note_unregistered(&watched.key);
            self.unwatching.push(EndedWatch {
                db: watched.db,
                key: watched.key,
                flag: caller.watch_flag.clone(),
                waits: false,
            });
        }
        forget_watches(caller);
        self.unwatch_left(None);
    }

    /// Ends watches that nothing was tried for yet (`None`), or those whose stripe was in use and is free now.
    pub fn unwatch_left(&mut self, woken: Option<u16>) {
        let space = &self.engine.keyspace;
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
            unit.unwatch(ended.db, &ended.key, &ended.flag);
        }
    }
}
