//! The server's side of access control: the user of a session, the check of a call, the counts and log of a refusal,
//! and the effects of a change of the users on sessions.
//!
//! The users are part of the settings, so a change is published whole and found by the epoch that every command checks.
//! A session keeps its user and the version of the users that it was taken from; where that is not the worker's
//! version, it takes the current user before its next command, or ends if there is none. A worker does the same for all
//! its sessions when it takes the change over, since a session without requests may have to be closed, too.
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

/// Adopts the users of the settings, after they were taken over.
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

/// Gives a session the current rules. Returns false if it ends, since its user is gone or may not have its subscriptions.
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

/// Returns true if the session's user is gone.
pub fn has_lost_user<O: Outlet>(executor: &Executor<'_, O>, caller: &Caller) -> bool {
    user_of_now(executor, &caller.user).is_none()
}

/// Returns the user with the current rules, unless it is gone.
fn user_of_now<'a, O: Outlet>(executor: &'a Executor<'_, O>, user: &User) -> Option<&'a Arc<User>> {
    let found = executor.settings.acl.get(user.name());
    found.filter(|found| found.id() == user.id())
}

/// Checks if a call that has waited may run now: the rules of its client may have changed. Returns `Ok(false)` if its
/// user is gone; then its client is about to be closed.
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

/// Checks if the session's user may make this call. A refusal is counted and logged.
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

/// Checks if the session's user may make this call. The error has the words for the client; a refusal is counted and logged.
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

/// Counts and logs a refusal.
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

/// Logs a session in. `command`: the name that the client used for it.
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
        // No node has the secret of a bus.
        return Err(match executor.engine.keyspace.is_of_cluster() {
            true => Error::line("WRONGPASS invalid internal password"),
            false => INTERNAL,
        });
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

/// Logs a session in if user and password are right; a failure has no reply, and is neither counted nor logged.
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

/// Checks if the user may make this call.
pub fn call_allowed(user: &User, id: CommandId, args: Args<'_>) -> Result<(), Denied> {
    user.check(id, args.len(), |at| args.get(at).unwrap_or_default())
}

/// Returns true if the session's user may make this call and read keys that its arguments do not name.
pub fn may_read_every_key(caller: &Caller, id: CommandId, args: Args<'_>) -> bool {
    let arg = |at| args.get(at).unwrap_or_default();
    !caller.is(state::RESTRICTED)
        || caller
            .user
            .check_every_key(id, args.len(), arg, KeyUse::READ)
}

/// Returns a refusal in the words for clients, which do not repeat a key.
pub fn refusal_text(user: &User, id: CommandId, args: Args<'_>, denied: Denied) -> String {
    let object = args.get(denied.position).unwrap_or_default();
    user.refusal(denied.reason, spec::row(id).full_name, object, false)
}
