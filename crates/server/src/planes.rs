//! The session plane and the admin plane: handlers that need the worker or the session.
//!
//! One module per group; the command table decides which handler belongs to which command. Must not know:
//! how a request reached it.

pub mod acl;
pub mod client;
pub mod cluster;
pub mod command;
pub mod commandlog;
pub mod config;
pub mod connection;
pub mod debug;
pub mod latency;
pub mod memory;
pub mod pubsub;
pub mod replication;
pub mod scripting;
pub mod server;
pub mod tracking;
pub mod transaction;

use redline_keyspace::{Classes, EXPIRED, Local};
use redline_resp::Args;
use redline_spec::CommandId;

use crate::{
    exec::Halt,
    session::Caller,
    shared::Shared,
    tracking::{By, Changes},
    worker::Worker,
};

/// Runs one command of the session or admin plane; it writes its reply to the session.
pub type Handler = fn(&mut Worker, &mut Caller, Args<'_>) -> Result<(), Halt>;

macro_rules! table {
    ($(($id:ident, $module:ident :: $handler:ident),)*) => {
        [$((CommandId::$id, $module::$handler as Handler)),*]
    };
}

static HANDLERS: [Option<Handler>; CommandId::COUNT] = {
    let mut handlers: [Option<Handler>; CommandId::COUNT] = [None; CommandId::COUNT];
    let caller = redline_spec::for_each_session_command!(table);
    let admin = redline_spec::for_each_admin_command!(table);
    let mut i = 0;
    while i < caller.len() {
        handlers[caller[i].0 as usize] = Some(caller[i].1);
        i += 1;
    }
    let mut i = 0;
    while i < admin.len() {
        handlers[admin[i].0 as usize] = Some(admin[i].1);
        i += 1;
    }
    handlers
};

/// Calls the handler of a command of these planes.
pub fn run(
    worker: &mut Worker,
    caller: &mut Caller,
    id: CommandId,
    args: Args<'_>,
) -> Result<(), Halt> {
    HANDLERS[id as usize].expect("a row of these planes has a handler")(worker, caller, args)
}

/// Commands that a subscribed client may call in RESP2.
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

/// Publishes the keyspace events of a unit, and tells those who track keys; its stripes are still held. `changes`: where
/// that is put down of which is told when the unit ends.
pub fn publish_events(shared: &Shared, local: &mut Local, changes: &mut Changes, by: By<'_>) {
    let wanted = local.notify;
    for event in local.events.drain(..) {
        match event.class {
            Classes::CHANGED => {
                // Also who asked not to hear of own changes hears of a key that has expired when it looked.
                let by = if event.name == EXPIRED {
                    By::Nobody
                } else {
                    by
                };
                let workers = shared.workers();
                shared.tracking.changed(workers, &event.key, by, changes);
                continue;
            }
            Classes::FLUSHED => {
                shared.tracking.flushed(shared);
                continue;
            }
            _ => {}
        }
        if wanted.intersects(Classes::KEYSPACE) {
            let mut channel = format!("__keyspace@{}__:", event.db).into_bytes();
            channel.extend_from_slice(&event.key);
            shared
                .pubsub
                .publish(shared.workers(), &channel, event.name.as_bytes());
        }
        if wanted.intersects(Classes::KEYEVENT) {
            let channel = format!("__keyevent@{}__:{}", event.db, event.name);
            shared
                .pubsub
                .publish(shared.workers(), channel.as_bytes(), &event.key);
        }
    }
}
