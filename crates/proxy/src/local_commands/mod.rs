//! Commands about the process, its clients among them, which the core leaves to the shell. Must not know servers.

mod client;

use redline_net::{clock, error_text};
use redline_proxy_core::local_commands::must_stand_alone;
use redline_resp::Args;
use redline_spec::{CommandId, row};

use crate::Context;
use crate::access;
use crate::client::ReplyMode;
use crate::control::reload;
use crate::host::Message;
use crate::observability::{commands, config, info};
use crate::requests::Flow;
use crate::slab::Ref;

/// Answers a command about the process.
pub(crate) fn call(ctx: &mut Context, me: Ref, id: CommandId, args: Args<'_>) -> Flow {
    match id {
        CommandId::Time => {
            let now_us = clock::wall_us();
            ctx.clients.answer(me, |reply| {
                reply.array(2);
                reply.bulk((now_us / 1_000_000).to_string().as_bytes());
                reply.bulk((now_us % 1_000_000).to_string().as_bytes());
            })
        }
        CommandId::Info => info::info(ctx, me, args),
        CommandId::ConfigGet => config::config_get(ctx, me, args),
        CommandId::ConfigSet => config::config_set(ctx, me, args),
        CommandId::ConfigResetstat => info::reset_stats(ctx, me),
        id if row(id).container == Some(CommandId::Slowlog) => commands::slowlog(ctx, me, id, args),
        id if row(id).container == Some(CommandId::Latency) => commands::latency(ctx, me, id, args),
        _ => client::about_clients(ctx, me, id, args),
    }
}

/// Handles CONFIG RELOAD, for users who may set parameters.
pub(crate) fn config_reload(ctx: &mut Context, me: Ref, args: Args<'_>) -> Flow {
    if let Some(line) = access::refusal(&mut ctx.clients, me, CommandId::ConfigSet, args) {
        return ctx.clients.abort(me, &line);
    }
    match must_stand_alone(&mut ctx.clients, me, "config|reload") {
        Some(flow) => flow,
        // One at a time: each takes a thread.
        None if ctx.clients.must_wait(me) => Flow::Again,
        None => reload(ctx, me),
    }
}

/// Reads the configuration again; it stays as it is if the new one has an error.
pub(crate) fn reload(ctx: &mut Context, me: Ref) -> Flow {
    let Some(reload) = ctx.shell.process.reload.clone() else {
        return ctx.clients.refuse(me, "ERR there is nothing to read again");
    };
    let Some(client) = ctx.clients.find(me) else {
        return Flow::Done;
    };
    let (number, reply_mode) = (client.next, client.reply_mode);
    let mailbox = ctx.shell.process.workers[ctx.number].mailbox.clone();
    let begun = reload.begin(move |ended| {
        let line = ended.err().map(|error| {
            // The error may be next to a password.
            reload::say_why(&error);
            "ERR the configuration stays as it is; the proxy's log says why".to_owned()
        });
        mailbox.send(Message::Answer(me, number, reply_mode, line));
    });
    match begun {
        Ok(()) => client.number(),
        Err(error) => {
            return ctx
                .clients
                .refuse(me, &format!("ERR {}", error_text(&error)));
        }
    };
    Flow::Done
}

/// Answers CONFIG RELOAD with its result.
pub(crate) fn reloaded(
    ctx: &mut Context,
    me: Ref,
    number: u32,
    reply_mode: ReplyMode,
    error: Option<String>,
) {
    let Some(proto) = ctx.clients.find(me).map(|client| client.proto) else {
        return;
    };
    ctx.clients
        .answer_as(me, number, proto, reply_mode, |reply| match &error {
            Some(line) => reply.error(line),
            None => reply.simple("OK"),
        });
}
