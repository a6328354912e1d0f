//! AUTH, HELLO, PING, ECHO, SELECT, QUIT, RESET.

use std::sync::atomic::Ordering;

use redline_acl::{HELLO_NEEDS_AUTH, NO_PASSWORD};
use redline_commands::{Error, Words};
use redline_resp::{Args, Hello, Proto, Reply};
use redline_spec::{CommandId, Module};
use redline_types::number;

use crate::{
    caller::{Caller, ReplyMode, flag, state},
    engine::Engine,
    executor::{Executor, Halt, Outlet, access},
    monitor,
    session::transaction,
    subscriptions, tracking,
};

pub(crate) fn auth<O: Outlet>(
    executor: &mut Executor<'_, O>,
    caller: &mut Caller,
    args: Args<'_>,
) -> Result<(), Halt> {
    if args.len() > 3 {
        return Err(Error::Syntax.into());
    }
    let pair = (args.len() == 2).then(|| pair_of(&args[1])).flatten();
    if let Some((user, password)) = pair
        && !executor.settings.acl.is_default_password(&args[1])
        && access::try_log_in(executor, caller, user, password)
    {
        caller.reply().ok();
        return Ok(());
    }
    if args.len() == 2 && executor.settings.acl.default_user().takes_any_password() {
        return Err(Error::line(NO_PASSWORD).into());
    }
    let (user, password) = if args.len() == 3 {
        (&args[1], &args[2])
    } else {
        (&b"default"[..], &args[1])
    };
    access::log_in(executor, caller, &args[0], user, password)?;
    caller.reply().ok();
    Ok(())
}

/// Splits `user:password` in one argument, as clients of Tair send it.
fn pair_of(argument: &[u8]) -> Option<(&[u8], &[u8])> {
    let colon = argument.iter().position(|byte| *byte == b':')?;
    Some((&argument[..colon], &argument[colon + 1..]))
}

pub(crate) fn hello<O: Outlet>(
    executor: &mut Executor<'_, O>,
    caller: &mut Caller,
    args: Args<'_>,
) -> Result<(), Halt> {
    const NO_PROTO: Error = Error::line("NOPROTO unsupported protocol version");
    let mut proto = caller.proto;
    if let Some(version) = args.get(1) {
        proto = match number::parse_i64(version) {
            None => {
                return Err(
                    Error::line("ERR Protocol version is not an integer or out of range").into(),
                );
            }
            Some(2) => Proto::Resp2,
            Some(3) => Proto::Resp3,
            Some(_) => return Err(NO_PROTO.into()),
        };
    }
    let mut name = None;
    let mut credentials = None;
    let mut words = Words::new(CommandId::Hello, &args, 2);
    while let Some(option) = words.peek() {
        if let Some([user, password]) = words.values("AUTH") {
            credentials = Some((user, password));
        } else if let Some(given) = words.value("SETNAME") {
            // Before anything is done, for every user.
            super::client::check_name(given)?;
            name = Some(given);
        } else {
            return Err(Error::quoting("ERR Syntax error in HELLO option '", option, "'").into());
        }
    }
    if let Some((user, password)) = credentials {
        access::log_in(executor, caller, &args[0], user, password)?;
    }
    if caller.is(state::UNAUTHENTICATED) {
        return Err(Error::line(HELLO_NEEDS_AUTH).into());
    }
    if let Some(name) = name {
        super::client::set_name(caller, name)?;
    }
    set_proto(caller, proto);
    let id = caller.info.id;
    let mode = mode(executor.engine);
    let mut reply = caller.reply();
    let (server, version) = match executor.settings.extended_redis_compatibility {
        true => ("redis", crate::REDIS_VERSION),
        false => (crate::SERVER_NAME, crate::REDLINE_VERSION),
    };
    let hello = Hello {
        server,
        version,
        proto,
        id,
        mode,
        availability_zone: &executor.settings.availability_zone,
    };
    hello.write(&mut reply);
    write_modules(&mut reply);
    hello.write_rest(&mut reply);
    Ok(())
}

/// Returns the mode in which the server runs, in Redis's word for it.
pub fn mode(engine: &Engine) -> &'static str {
    match engine.keyspace.is_of_cluster() {
        true => "cluster",
        false => "standalone",
    }
}

/// Writes the modules of HELLO's reply and of MODULE LIST: those in which other servers have what is built in here.
pub fn write_modules(reply: &mut Reply<'_>) {
    let modules = Module::all();
    reply.array(modules.clone().count());
    for module in modules {
        reply.map(4);
        reply.bulk(b"name");
        reply.bulk(module.name.as_bytes());
        reply.bulk(b"ver");
        reply.integer(i64::from(module.version));
        reply.bulk(b"path");
        reply.bulk(b"");
        reply.bulk(b"args");
        reply.array(0);
    }
}

fn set_proto(caller: &mut Caller, proto: Proto) {
    caller.proto = proto;
    caller
        .info
        .resp
        .store(if proto == Proto::Resp3 { 3 } else { 2 }, Ordering::Relaxed);
    let listens = caller.is(state::LISTENS);
    caller.set_state(state::SUBSCRIBED, listens && proto == Proto::Resp2);
}

pub(crate) fn ping<O: Outlet>(
    _: &mut Executor<'_, O>,
    caller: &mut Caller,
    args: Args<'_>,
) -> Result<(), Halt> {
    if args.len() > 2 {
        return Err(crate::errors::wrong_arity(redline_spec::CommandId::Ping).into());
    }
    let subscribed = caller.is(state::SUBSCRIBED);
    let mut reply = caller.reply();
    if subscribed {
        reply.array(2);
        reply.bulk(b"pong");
        reply.bulk(args.get(1).unwrap_or_default());
    } else if let Some(message) = args.get(1) {
        reply.bulk(message);
    } else {
        reply.simple("PONG");
    }
    Ok(())
}

pub(crate) fn echo<O: Outlet>(
    _: &mut Executor<'_, O>,
    caller: &mut Caller,
    args: Args<'_>,
) -> Result<(), Halt> {
    caller.reply().bulk(&args[1]);
    Ok(())
}

pub(crate) fn select<O: Outlet>(
    executor: &mut Executor<'_, O>,
    caller: &mut Caller,
    args: Args<'_>,
) -> Result<(), Halt> {
    let db: i32 = Words::new(CommandId::Select, &args, 1).read()?;
    if executor.engine.keyspace.is_of_cluster() && db != 0 {
        return Err(Error::line("ERR SELECT is not allowed in cluster mode").into());
    }
    let databases = executor.engine.keyspace.databases();
    caller.db = u32::try_from(db)
        .ok()
        .filter(|db| *db < databases)
        .ok_or(Error::line("ERR DB index is out of range"))?;
    caller.info.db.store(caller.db, Ordering::Relaxed);
    caller.reply().ok();
    Ok(())
}

pub(crate) fn quit<O: Outlet>(
    _: &mut Executor<'_, O>,
    caller: &mut Caller,
    _: Args<'_>,
) -> Result<(), Halt> {
    caller.reply().ok();
    caller.closing = true;
    // Before the reply is sent: nothing is forwarded to this connection after it.
    caller.info.set_flag(flag::CLOSING, true);
    Ok(())
}

pub(crate) fn reset<O: Outlet>(
    executor: &mut Executor<'_, O>,
    caller: &mut Caller,
    _: Args<'_>,
) -> Result<(), Halt> {
    transaction::abandon(executor, caller);
    subscriptions::forget(executor, caller);
    tracking::end(executor.engine, caller);
    monitor::end(executor.engine, caller);
    set_proto(caller, Proto::Resp2);
    caller.db = 0;
    caller.info.db.store(0, Ordering::Relaxed);
    // After CLIENT REPLY SKIP this is the call without a reply.
    if caller.reply_mode != ReplyMode::Skipping {
        caller.reply_mode = ReplyMode::On;
        caller.set_state(state::REPLY, false);
    }
    caller.set_state(state::NO_TOUCH, false);
    caller
        .info
        .set_flag(flag::NO_EVICT | flag::NO_TOUCH | flag::READONLY, false);
    caller.info.names().name.clear();
    caller.become_default(&executor.settings.acl);
    caller.reply().simple("RESET");
    Ok(())
}
