//! The session plane: handlers of commands that need the executor or the caller, and no connection.
//!
//! One module per group; the command table decides which handler belongs to which command. Commands of the admin plane
//! belong to the outlet. Must not know: how a request reached it.

pub mod acl;
pub mod client;
pub mod cluster;
pub mod connection;
pub mod pubsub;
pub mod replication;
pub mod scripting;
pub mod tracking;
pub mod transaction;

use redline_keyspace::{Classes, EXPIRED, Local};
use redline_resp::Args;
use redline_spec::CommandId;

use crate::{
    caller::Caller,
    engine::Engine,
    executor::Halt,
    executor::{Executor, Outlet},
    tracking::{By, Changes},
};

macro_rules! dispatch {
    ($executor:ident, $caller:ident, $called:ident, $args:ident;
        $(($id:ident, $module:ident :: $handler:ident),)*) => {
        match $called {
            $(CommandId::$id => $module::$handler($executor, $caller, $args),)*
            _ => unreachable!("no row of this plane"),
        }
    };
}

/// Runs a command of this plane; it writes its reply to the caller.
pub(crate) fn run<O: Outlet>(
    executor: &mut Executor<'_, O>,
    caller: &mut Caller,
    id: CommandId,
    args: Args<'_>,
) -> Result<(), Halt> {
    macro_rules! rows {
        ($($rows:tt)*) => {
            dispatch! { executor, caller, id, args; $($rows)* }
        };
    }
    redline_spec::for_each_session_command!(rows)
}

/// Returns true for commands that a subscribed client may call in RESP2.
pub fn allowed_while_subscribed(id: CommandId) -> bool {
    matches!(
        id,
        CommandId::Ping
            | CommandId::Subscribe
            | CommandId::Unsubscribe
            | CommandId::Psubscribe
            | CommandId::Punsubscribe
            | CommandId::Ssubscribe
            | CommandId::Sunsubscribe
            | CommandId::Quit
            | CommandId::Reset
    )
}

/// Publishes the keyspace events of a unit, and notifies clients that track keys; its stripes are still held.
/// `changes`: collects the changes that are sent when the unit ends.
pub fn publish_events(engine: &Engine, local: &mut Local, changes: &mut Changes, by: By<'_>) {
    let wanted = local.notify;
    for event in local.events.drain(..) {
        match event.class {
            Classes::CHANGED => {
                // A client with NOLOOP, too, is notified of a key that had expired when it read it.
                let by = if event.name == EXPIRED {
                    By::Nobody
                } else {
                    by
                };
                engine
                    .tracking
                    .changed(engine.executors(), &event.key, by, changes);
                continue;
            }
            Classes::FLUSHED => {
                engine.tracking.flushed(engine);
                continue;
            }
            _ => {}
        }
        // Keys of a slot that is on its way are not there yet, or not any more.
        if engine.keyspace.hides(&event.key) {
            continue;
        }
        if wanted.intersects(Classes::KEYSPACE) {
            let mut channel = format!("__keyspace@{}__:", event.db).into_bytes();
            channel.extend_from_slice(&event.key);
            engine
                .pubsub
                .publish(engine.executors(), &channel, event.name.as_bytes());
        }
        if wanted.intersects(Classes::KEYEVENT) {
            let channel = format!("__keyevent@{}__:{}", event.db, event.name);
            engine
                .pubsub
                .publish(engine.executors(), channel.as_bytes(), &event.key);
        }
    }
}
