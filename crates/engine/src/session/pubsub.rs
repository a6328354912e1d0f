//! SUBSCRIBE, PSUBSCRIBE, SSUBSCRIBE, their opposites, PUBLISH, SPUBLISH, PUBSUB.

use redline_commands::Error;
use redline_keyspace::Unit;
use redline_resp::Args;
use redline_spec::CommandId;

use crate::{
    caller::{Caller, Suspended, state},
    errors,
    executor::{Executor, Halt, Outlet, units},
    pubsub::Kind,
    subscriptions,
};

pub(crate) fn subscribe<O: Outlet>(
    executor: &mut Executor<'_, O>,
    caller: &mut Caller,
    args: Args<'_>,
) -> Result<(), Halt> {
    for channel in args.iter().skip(1) {
        subscriptions::add(executor, caller, Kind::Channel, channel);
    }
    Ok(())
}

pub(crate) fn psubscribe<O: Outlet>(
    executor: &mut Executor<'_, O>,
    caller: &mut Caller,
    args: Args<'_>,
) -> Result<(), Halt> {
    for pattern in args.iter().skip(1) {
        subscriptions::add(executor, caller, Kind::Pattern, pattern);
    }
    Ok(())
}

pub(crate) fn ssubscribe<O: Outlet>(
    executor: &mut Executor<'_, O>,
    caller: &mut Caller,
    args: Args<'_>,
) -> Result<(), Halt> {
    if executor.compound.is_some() {
        return Err(Error::line("ERR SSUBSCRIBE isn't allowed for a DENY BLOCKING client").into());
    }
    for channel in args.iter().skip(1) {
        subscriptions::add(executor, caller, Kind::Shard, channel);
    }
    Ok(())
}

pub(crate) fn unsubscribe<O: Outlet>(
    executor: &mut Executor<'_, O>,
    caller: &mut Caller,
    args: Args<'_>,
) -> Result<(), Halt> {
    subscriptions::remove(executor, caller, Kind::Channel, args.from(1));
    Ok(())
}

pub(crate) fn punsubscribe<O: Outlet>(
    executor: &mut Executor<'_, O>,
    caller: &mut Caller,
    args: Args<'_>,
) -> Result<(), Halt> {
    subscriptions::remove(executor, caller, Kind::Pattern, args.from(1));
    Ok(())
}

pub(crate) fn sunsubscribe<O: Outlet>(
    executor: &mut Executor<'_, O>,
    caller: &mut Caller,
    args: Args<'_>,
) -> Result<(), Halt> {
    subscriptions::remove(executor, caller, Kind::Shard, args.from(1));
    Ok(())
}

pub(crate) fn spublish<O: Outlet>(
    executor: &mut Executor<'_, O>,
    caller: &mut Caller,
    args: Args<'_>,
) -> Result<(), Halt> {
    wait_for_room(executor, caller)?;
    let (pubsub, executors) = (&executor.engine.pubsub, executor.engine.executors());
    let receivers = pubsub.publish_to_shard(executors, &args[1], &args[2]);
    record(executor, caller, args);
    caller.reply().integer(receivers as i64);
    Ok(())
}

pub(crate) fn publish<O: Outlet>(
    executor: &mut Executor<'_, O>,
    caller: &mut Caller,
    args: Args<'_>,
) -> Result<(), Halt> {
    wait_for_room(executor, caller)?;
    let engine = &executor.engine;
    let receivers = engine
        .pubsub
        .publish(engine.executors(), &args[1], &args[2]);
    // What comes from another node has been sent to all.
    if !caller.is(state::NODE) && !O::pass_on(executor, args) {
        record(executor, caller, args);
    }
    caller.reply().integer(receivers as i64);
    Ok(())
}

/// Suspends the session while too many bytes are on their way to subscribers. Inside a unit there is no wait: a script
/// has messages delivered by itself, and a transaction publishes no more than its own arguments.
fn wait_for_room<O: Outlet>(
    executor: &mut Executor<'_, O>,
    caller: &mut Caller,
) -> Result<(), Halt> {
    if units::is_in_script(executor) {
        executor.hand_out(caller);
    }
    if executor.compound.is_some() {
        return Ok(());
    }
    let who = caller.info.token();
    let mut executors = executor.engine.executors().iter();
    match executors.any(|executor| executor.transit.keeps_waiting(who)) {
        true => Err(Halt::Suspended(Suspended::Transit)),
        false => Ok(()),
    }
}

pub(crate) fn pubsub_channels<O: Outlet>(
    executor: &mut Executor<'_, O>,
    caller: &mut Caller,
    args: Args<'_>,
) -> Result<(), Halt> {
    list_channels(executor, caller, Kind::Channel, args)
}

pub(crate) fn pubsub_shardchannels<O: Outlet>(
    executor: &mut Executor<'_, O>,
    caller: &mut Caller,
    args: Args<'_>,
) -> Result<(), Halt> {
    list_channels(executor, caller, Kind::Shard, args)
}

pub(crate) fn pubsub_numpat<O: Outlet>(
    executor: &mut Executor<'_, O>,
    caller: &mut Caller,
    _: Args<'_>,
) -> Result<(), Halt> {
    let patterns = executor.engine.pubsub.pattern_count();
    caller.reply().integer(patterns as i64);
    Ok(())
}

pub(crate) fn pubsub_numsub<O: Outlet>(
    executor: &mut Executor<'_, O>,
    caller: &mut Caller,
    args: Args<'_>,
) -> Result<(), Halt> {
    count_subscribers(executor, caller, Kind::Channel, args.from(2));
    Ok(())
}

pub(crate) fn pubsub_shardnumsub<O: Outlet>(
    executor: &mut Executor<'_, O>,
    caller: &mut Caller,
    args: Args<'_>,
) -> Result<(), Halt> {
    count_subscribers(executor, caller, Kind::Shard, args.from(2));
    Ok(())
}

fn list_channels<O: Outlet>(
    executor: &Executor<'_, O>,
    caller: &mut Caller,
    kind: Kind,
    args: Args<'_>,
) -> Result<(), Halt> {
    if args.len() > 3 {
        return Err(errors::wrong_subcommand_arity(CommandId::Pubsub, args).into());
    }
    let channels = executor.engine.pubsub.channels(kind, args.get(2));
    let mut reply = caller.reply();
    reply.array(channels.len());
    channels.iter().for_each(|channel| reply.bulk(channel));
    Ok(())
}

fn count_subscribers<O: Outlet>(
    executor: &Executor<'_, O>,
    caller: &mut Caller,
    kind: Kind,
    channels: Args<'_>,
) {
    let mut reply = caller.reply();
    reply.array(channels.len() * 2);
    for channel in channels.iter() {
        reply.bulk(channel);
        let count = executor.engine.pubsub.subscriber_count(kind, channel);
        reply.integer(count as i64);
    }
}

/// Records a message for the nodes: it changes no data, but other nodes have subscribers as well.
fn record<O: Outlet>(executor: &mut Executor<'_, O>, caller: &mut Caller, args: Args<'_>) {
    let space = &executor.engine.keyspace;
    if !space.journal().is_attached() {
        return;
    }
    let words = [&args[0], &args[1], &args[2]];
    let local = &mut executor.local;
    match &mut executor.compound {
        Some(compound) => compound.unit.propagate_message(local, &words),
        None => {
            let mut unit = Unit::none(space);
            unit.propagate_message(local, &words);
            caller.note_record(unit.commit(local));
        }
    }
}
