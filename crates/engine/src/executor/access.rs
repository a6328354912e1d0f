//! The server's side of access control: which user a session belongs to, the check of a call, what is kept of a
//! refusal, and what a change of the users does to sessions.
//!
//! The users are part of the settings, so a change is published whole and found by the epoch that every command looks
//! at. A session keeps its user and the version of the users that it was taken from; where that is not the worker's, it
//! takes the user of now before its next command, or ends if there is none. A worker does the same for all its
//! sessions when it takes the change over, since a session that is silent may have to be closed.
//!
//! Must not know: the rules.

use std::sync::Arc;

use redline_acl::{Context, Denied, Event, KeyUse, Reason, User, WRONG_PASSWORD};
use redline_commands::Error;
use redline_resp::Args;
use redline_spec::{self as spec, CommandId};

use crate::{
    caller::{Caller, ClientInfo, flag, state},
    executor::{Executor, Outlet},
    session::client,
};

/// Goes over to the users of the settings, after they were taken over.
pub fn adopt_users<O: Outlet>(executor: &mut Executor<'_, O>) {
    let version = executor.settings.acl.version();
    if executor.rules == version {
        return;
    }
    executor.rules = version;
    O::for_each_caller(executor, |executor, caller| {
        if !adopt_rules(executor, caller) {
            caller.out.clear();
            O::look_again(executor, caller.info.token());
        }
    });
}

/// Gives a session the rules of now. `false`: it ends, since its user is gone or may not have its subscriptions.
pub fn adopt_rules<O: Outlet>(executor: &Executor<'_, O>, caller: &mut Caller) -> bool {
    let before = caller.user.clone();
    caller.rules = executor.rules;
    let stays = match user_of_now(executor, &before) {
        Some(user) if Arc::ptr_eq(user, &before) => true,
        Some(user) => {
            caller.become_user(user, executor.rules);
            !caller.has_lost_channels(&before, user)
        }
        None => false,
    };
    if !stays {
        caller.closing = true;
        caller.info.set_flag(flag::CLOSING, true);
    }
    stays
}

/// Is the session's user gone?
pub fn has_lost_user<O: Outlet>(executor: &Executor<'_, O>, caller: &Caller) -> bool {
    user_of_now(executor, &caller.user).is_none()
}

/// The user with the rules of now, unless it is gone.
fn user_of_now<'a, O: Outlet>(executor: &'a Executor<'_, O>, user: &User) -> Option<&'a Arc<User>> {
    let found = executor.settings.acl.get(user.name());
    found.filter(|found| found.id() == user.id())
}

/// May a call that has waited run now? Its client's rules may be others since. `Ok(false)`: its user is gone, and
/// so is the client in a moment.
pub(crate) fn permit_after_wait<O: Outlet>(
    executor: &Executor<'_, O>,
    info: &ClientInfo,
    user: &User,
    id: CommandId,
    args: Args<'_>,
) -> Result<bool, Error> {
    let Some(user) = user_of_now(executor, user) else {
        return Ok(false);
    };
    if user.is_unrestricted() {
        return Ok(true);
    }
    let checked = check_user(executor, info, user, id, args, Context::TopLevel);
    checked.map(|()| true).map_err(|denied| {
        let text = refusal_text(user, id, args, denied);
        Error::Line(format!("NOPERM {text}").into())
    })
}

/// May the session's user make this call? A refusal is counted and kept.
pub fn check_access<O: Outlet>(
    executor: &mut Executor<'_, O>,
    caller: &Caller,
    id: CommandId,
    args: Args<'_>,
    context: Context,
) -> Result<(), Denied> {
    if !caller.is(state::RESTRICTED) {
        return Ok(());
    }
    check_user(executor, &caller.info, &caller.user, id, args, context)
}

fn check_user<O: Outlet>(
    executor: &Executor<'_, O>,
    info: &ClientInfo,
    user: &User,
    id: CommandId,
    args: Args<'_>,
    context: Context,
) -> Result<(), Denied> {
    let denied = match call_allowed(user, id, args) {
        Ok(()) => return Ok(()),
        Err(denied) => denied,
    };
    let object = match denied.reason {
        Reason::Key | Reason::Channel => &args[denied.position],
        Reason::Command | Reason::Auth => spec::row(id).full_name.as_bytes(),
    };
    note_denied(executor, info, denied.reason, context, object, user.name());
    Err(denied)
}

/// May the session's user make this call? The error is in the words that the client sees; a refusal is counted and kept.
pub fn permit<O: Outlet>(
    executor: &mut Executor<'_, O>,
    caller: &Caller,
    id: CommandId,
    args: Args<'_>,
) -> Result<(), Error> {
    if !caller.is(state::RESTRICTED) {
        return Ok(());
    }
    let context = match caller.is(state::MULTI) {
        true => Context::Multi,
        false => Context::TopLevel,
    };
    check_access(executor, caller, id, args, context).map_err(|denied| {
        let text = refusal_text(&caller.user, id, args, denied);
        Error::Line(format!("NOPERM {text}").into())
    })
}

/// Counts a refusal, and puts it into the log.
fn note_denied<O: Outlet>(
    executor: &Executor<'_, O>,
    info: &ClientInfo,
    reason: Reason,
    context: Context,
    object: &[u8],
    user: &[u8],
) {
    let counter = match reason {
        Reason::Command => &executor.stats.denied_command,
        Reason::Key => &executor.stats.denied_key,
        Reason::Auth => &executor.stats.denied_auth,
        Reason::Channel => &executor.stats.denied_channel,
    };
    counter.add(1);
    let event = Event {
        reason,
        context,
        object: object.to_vec(),
        user: user.to_vec(),
        client: client::described(info, executor.now_ms),
        at_ms: executor.now_ms as u64,
    };
    executor
        .engine
        .acl_log
        .lock()
        .expect("no panic under the ACL log")
        .add(event, executor.settings.acl_log_entries_max);
}

/// Logs a session in. `command`: the word that the client used for it.
pub fn log_in<O: Outlet>(
    executor: &Executor<'_, O>,
    caller: &mut Caller,
    command: &[u8],
    user: &[u8],
    password: &[u8],
) -> Result<(), Error> {
    const INTERNAL: Error =
        Error::line("ERR Cannot authenticate as an internal connection on non-cluster instances");
    if user == b"internal connection" {
        return Err(INTERNAL);
    }
    if try_log_in(executor, caller, user, password) {
        return Ok(());
    }
    let context = match caller.is(state::MULTI) {
        true => Context::Multi,
        false => Context::TopLevel,
    };
    note_denied(executor, &caller.info, Reason::Auth, context, command, user);
    Err(Error::line(WRONG_PASSWORD))
}

/// Logs a session in if user and password are right; a failure is neither answered, nor counted, nor kept.
pub fn try_log_in<O: Outlet>(
    executor: &Executor<'_, O>,
    caller: &mut Caller,
    user: &[u8],
    password: &[u8],
) -> bool {
    let users = &executor.settings.acl;
    let Some(user) = users.authenticate(user, password) else {
        return false;
    };
    caller.become_user(user, users.version());
    caller.set_state(state::UNAUTHENTICATED, false);
    true
}

/// May the user make this call?
pub fn call_allowed(user: &User, id: CommandId, args: Args<'_>) -> Result<(), Denied> {
    user.check(id, args.len(), |at| args.get(at).unwrap_or_default())
}

/// May the session's user make this call and read keys that its arguments do not name?
pub fn may_read_every_key(caller: &Caller, id: CommandId, args: Args<'_>) -> bool {
    let arg = |at| args.get(at).unwrap_or_default();
    !caller.is(state::RESTRICTED)
        || caller
            .user
            .check_every_key(id, args.len(), arg, KeyUse::READ)
}

/// A refusal in the words that clients see, which do not repeat a key.
pub fn refusal_text(user: &User, id: CommandId, args: Args<'_>, denied: Denied) -> String {
    let object = args.get(denied.position).unwrap_or_default();
    user.refusal(denied.reason, spec::row(id).full_name, object, false)
}
