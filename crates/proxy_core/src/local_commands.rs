//! Commands that the proxy answers itself: those about the client's connection, and those about the proxy. Must not know
//! servers.

use std::sync::Arc;

use redline_acl::HELLO_NEEDS_AUTH;
use redline_resp::{Args, Hello, Proto};
use redline_spec::{CommandId, refusal};

use crate::client::ReplyMode;
use crate::clients::Clients;
use crate::connections::Connections;
use crate::context::Context;
use crate::leases::{self, Session};
use crate::observability::monitor;
use crate::requests::Flow;
use crate::shell::Shell;
use crate::slab::Ref;
use crate::{access, errors};

/// Answers a command of the class `Local`.
pub(crate) fn local<S: Shell>(
    conns: &mut Connections<S>,
    me: Ref,
    id: CommandId,
    args: Args<'_>,
) -> Flow {
    match id {
        CommandId::Ping if args.len() > 2 => conns.ctx.clients.refuse(me, &errors::wrong_arity(id)),
        CommandId::Ping if conns.ctx.clients.find(me).is_some_and(|it| it.restricted) => {
            conns.ctx.clients.answer(me, |reply| {
                reply.array(2);
                reply.bulk(b"pong");
                reply.bulk(args.get(1).unwrap_or_default());
            })
        }
        CommandId::Ping => match args.get(1) {
            None => conns.ctx.clients.status(me, "PONG"),
            Some(text) => conns.ctx.clients.answer(me, |reply| reply.bulk(text)),
        },
        CommandId::Echo => conns.ctx.clients.answer(me, |reply| reply.bulk(&args[1])),
        CommandId::Wait | CommandId::Waitaof => match heeds_nobody(id, args) {
            Ok(true) => conns.ctx.clients.answer(me, |reply| match id {
                CommandId::Wait => reply.integer(0),
                _ => {
                    reply.array(2);
                    reply.integer(0);
                    reply.integer(0);
                }
            }),
            Ok(false) => leases::reject(conns, me, id, &errors::refused(id)),
            Err(line) => conns.ctx.clients.refuse(me, line),
        },
        CommandId::Select => select(&mut conns.ctx, me, &args[1]),
        CommandId::Auth => auth(&mut conns.ctx, me, args),
        CommandId::Hello => hello(&mut conns.ctx, me, args),
        CommandId::Quit => {
            conns.ctx.clients.status(me, "OK");
            Flow::Close
        }
        CommandId::Reset => reset(conns, me),
        CommandId::AclWhoami => {
            let name = access::user_name(&mut conns.ctx.clients, me);
            conns.ctx.clients.answer(me, |reply| reply.bulk(&name))
        }
        // As in INFO: the proxy takes writes, and has no replicas.
        CommandId::Role => conns.ctx.clients.answer(me, |reply| {
            reply.array(3);
            reply.bulk(b"master");
            reply.integer(0);
            reply.array(0);
        }),
        CommandId::Monitor => monitor::monitor(&mut conns.ctx, me),
        _ => S::command(conns, me, id, args),
    }
}

pub(crate) fn reset<S: Shell>(conns: &mut Connections<S>, me: Ref) -> Flow {
    if conns.ctx.clients.must_wait(me) {
        return Flow::Again;
    }
    if let Some(client) = conns.ctx.clients.find(me) {
        let session = std::mem::replace(&mut client.session, Session::Shared);
        // After CLIENT REPLY SKIP this is the call that gets no reply.
        if client.reply_mode != ReplyMode::Skipping {
            client.reply_mode = ReplyMode::On;
        }
        client.restricted = false;
        let watched = std::mem::take(&mut client.monitors);
        let subscribed = client.subscribed.take();
        leases::abandon(conns, session);
        let shared = Arc::clone(&conns.ctx.shared);
        if let Some(client) = conns.ctx.clients.find(me) {
            shared.introduce(client);
        }
        conns
            .subscriptions
            .leave_all(&mut conns.ctx, me, subscribed);
        if watched {
            monitor::monitor_no_more(&mut conns.ctx, me);
        }
    }
    conns.ctx.clients.set_about(me, |client| {
        client.db = 0;
        client.proto = Proto::Resp2;
        if let Some(about) = &mut client.about {
            about.name.clear();
        }
    });
    conns.ctx.clients.status(me, "RESET")
}

pub(crate) fn select<S: Shell>(ctx: &mut Context<S>, me: Ref, text: &[u8]) -> Flow {
    let number = std::str::from_utf8(text)
        .ok()
        .and_then(|text| text.parse::<i64>().ok())
        // Without a sign, zero or space in front, which would be another text.
        .filter(|number| number.to_string().as_bytes() == text);
    let Some(number) = number else {
        return ctx.clients.refuse(me, errors::NOT_AN_INTEGER);
    };
    if i32::try_from(number).is_err() {
        return ctx.clients.refuse(me, errors::NOT_A_SHORT_INTEGER);
    }
    let databases = i64::from(ctx.home(me).databases);
    if !(0..databases).contains(&number) {
        return ctx.clients.refuse(me, errors::DB_OUT_OF_RANGE);
    }
    if ctx.clients.is_in_transaction(me) {
        let stays = ctx.clients.find(me).map(|client| i64::from(client.db)) == Some(number);
        return match stays {
            true => ctx.clients.status(me, "OK"),
            false => ctx.clients.refuse(me, BETWEEN_WATCH_AND_EXEC),
        };
    }
    // Two databases are two connections: requests to the first must not be executed after requests to the second.
    if ctx.clients.must_wait(me) {
        return Flow::Again;
    }
    ctx.clients
        .set_about(me, |client| client.db = number as u16);
    ctx.clients.status(me, "OK")
}

fn auth<S: Shell>(ctx: &mut Context<S>, me: Ref, args: Args<'_>) -> Flow {
    let logged_in = match args.len() {
        2 => access::log_in(ctx, me, None, &args[1]),
        3 => access::log_in(ctx, me, Some(&args[1]), &args[2]),
        _ => Err(errors::SYNTAX),
    };
    match logged_in {
        Ok(()) => ctx.clients.status(me, "OK"),
        Err(line) => ctx.clients.refuse(me, line),
    }
}

fn hello<S: Shell>(ctx: &mut Context<S>, me: Ref, args: Args<'_>) -> Flow {
    let mut proto = None;
    if let Some(text) = args.get(1) {
        proto = match text {
            b"2" => Some(Proto::Resp2),
            b"3" => Some(Proto::Resp3),
            text if std::str::from_utf8(text).is_ok_and(|text| text.parse::<i64>().is_ok()) => {
                return ctx
                    .clients
                    .refuse(me, "NOPROTO unsupported protocol version");
            }
            _ => {
                return ctx
                    .clients
                    .refuse(me, "ERR Protocol version is not an integer or out of range");
            }
        };
    }
    let mut name = None;
    let mut login = None;
    let mut at = 2;
    while at < args.len() {
        let left = args.len() - at - 1;
        if args[at].eq_ignore_ascii_case(b"AUTH") && left >= 2 {
            login = Some((&args[at + 1], &args[at + 2]));
            at += 3;
        } else if args[at].eq_ignore_ascii_case(b"SETNAME") && left >= 1 {
            if !refusal::is_client_name(&args[at + 1]) {
                return ctx.clients.refuse(me, refusal::NO_CLIENT_NAME);
            }
            name = Some(args[at + 1].to_vec());
            at += 2;
        } else {
            let line = refusal::quoting("ERR Syntax error in HELLO option '", &args[at], "'");
            return ctx.clients.refuse(me, &line);
        }
    }
    if login.is_none() && access::is_nobody(&mut ctx.clients, me) {
        return ctx.clients.refuse(me, HELLO_NEEDS_AUTH);
    }
    if proto.is_some() && ctx.clients.is_in_transaction(me) {
        return ctx.clients.refuse(me, BETWEEN_WATCH_AND_EXEC);
    }
    if ctx.clients.must_wait(me) {
        return Flow::Again;
    }
    if let Some((user, password)) = login
        && let Err(line) = access::log_in(ctx, me, Some(user), password)
    {
        return ctx.clients.refuse(me, line);
    }
    ctx.clients.set_about(me, |client| {
        if let Some(proto) = proto {
            client.proto = proto;
        }
        if let Some(name) = name {
            client.about.get_or_insert_default().name = name;
        }
    });
    ctx.clients.restrict(me);
    let Some(client) = ctx.clients.find(me) else {
        return Flow::Done;
    };
    let hello = Hello {
        server: "redis",
        version: redline_spec::REFERENCE,
        proto: client.proto,
        id: client.id,
        mode: match ctx.shared.cluster_view {
            Some(_) => "cluster",
            None => "standalone",
        },
        availability_zone: "",
    };
    ctx.clients.answer(me, |reply| {
        hello.write(reply);
        reply.array(0);
        hello.write_rest(reply);
    })
}

/// Refuses a call without a row of clients that are subscribed and speak RESP2, and inside MULTI. `name` is in lower case.
pub fn must_stand_alone<S: Shell>(clients: &mut Clients<S>, me: Ref, name: &str) -> Option<Flow> {
    if clients.find(me).is_some_and(|it| it.restricted) {
        return Some(clients.refuse(me, &refusal::subscribed(name)));
    }
    if !clients.is_in_multi(me) {
        return None;
    }
    let name = name.replace('|', " ");
    let line = format!("ERR '{name}' is not available inside MULTI through the proxy");
    Some(clients.abort(me, &line))
}

const BETWEEN_WATCH_AND_EXEC: &str =
    "ERR between WATCH and EXEC the proxy changes neither database nor protocol";

/// Returns true if WAIT or WAITAOF asks for no server at all, so that its condition is met at once. An error is the
/// server's error for such arguments.
pub(crate) fn heeds_nobody(id: CommandId, args: Args<'_>) -> Result<bool, &'static str> {
    const TIMEOUT: &str = "ERR timeout is not an integer or out of range";
    let integer = |at: usize| std::str::from_utf8(&args[at]).ok()?.parse::<i64>().ok();
    let (heeds_nobody, timeout) = match id {
        CommandId::Wait => (integer(1).ok_or(errors::NOT_AN_INTEGER)? <= 0, integer(2)),
        _ => {
            let local = integer(1).ok_or(errors::NOT_AN_INTEGER)?;
            if !(0..=1).contains(&local) {
                return Err("ERR value is out of range, value must between 0 and 1");
            }
            let replicas = integer(2).filter(|count| *count >= 0);
            let replicas = replicas.ok_or("ERR value is out of range, must be positive")?;
            (local == 0 && replicas == 0, integer(3))
        }
    };
    match timeout {
        None => Err(TIMEOUT),
        Some(..0) => Err("ERR timeout is negative"),
        Some(_) => Ok(heeds_nobody),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::with_args;

    #[test]
    fn wait_for_no_server_is_answered_and_nonsense_as_servers_do() {
        for (words, answer) in [
            (&["WAIT", "0", "100"][..], Ok(true)),
            (&["WAIT", "-1", "0"], Ok(true)),
            (&["WAIT", "1", "100"], Ok(false)),
            (&["WAIT", "x", "100"], Err(errors::NOT_AN_INTEGER)),
            (&["WAIT", "0", "-1"], Err("ERR timeout is negative")),
        ] {
            with_args(words, |args| {
                assert_eq!(heeds_nobody(CommandId::Wait, args), answer, "{words:?}");
            });
        }
        with_args(&["WAITAOF", "0", "0", "5"], |args| {
            assert_eq!(heeds_nobody(CommandId::Waitaof, args), Ok(true));
        });
        with_args(&["WAITAOF", "1", "0", "5"], |args| {
            assert_eq!(heeds_nobody(CommandId::Waitaof, args), Ok(false));
        });
    }
}
