//! SUBSCRIBE, PSUBSCRIBE, SSUBSCRIBE, their opposites, PUBLISH, SPUBLISH, PUBSUB.

use redline_commands::Error;
use redline_keyspace::Unit;
use redline_resp::Args;
use redline_spec::CommandId;

use crate::{
    errors,
    exec::Halt,
    pubsub::Kind,
    session::{Aside, Caller},
    subscribe,
    worker::Worker,
};

pub(crate) fn subscribe(w: &mut Worker, caller: &mut Caller, args: Args<'_>) -> Result<(), Halt> {
    for channel in args.iter().skip(1) {
        subscribe::add(w, caller, Kind::Channel, channel);
    }
    Ok(())
}

pub(crate) fn psubscribe(w: &mut Worker, caller: &mut Caller, args: Args<'_>) -> Result<(), Halt> {
    for pattern in args.iter().skip(1) {
        subscribe::add(w, caller, Kind::Pattern, pattern);
    }
    Ok(())
}

pub(crate) fn ssubscribe(w: &mut Worker, caller: &mut Caller, args: Args<'_>) -> Result<(), Halt> {
    if w.compound.is_some() {
        return Err(Error::line("ERR SSUBSCRIBE isn't allowed for a DENY BLOCKING client").into());
    }
    for channel in args.iter().skip(1) {
        subscribe::add(w, caller, Kind::Shard, channel);
    }
    Ok(())
}

pub(crate) fn unsubscribe(
    worker: &mut Worker,
    caller: &mut Caller,
    args: Args<'_>,
) -> Result<(), Halt> {
    subscribe::remove(worker, caller, Kind::Channel, args.from(1));
    Ok(())
}

pub(crate) fn punsubscribe(
    worker: &mut Worker,
    caller: &mut Caller,
    args: Args<'_>,
) -> Result<(), Halt> {
    subscribe::remove(worker, caller, Kind::Pattern, args.from(1));
    Ok(())
}

pub(crate) fn sunsubscribe(
    worker: &mut Worker,
    caller: &mut Caller,
    args: Args<'_>,
) -> Result<(), Halt> {
    subscribe::remove(worker, caller, Kind::Shard, args.from(1));
    Ok(())
}

pub(crate) fn spublish(
    worker: &mut Worker,
    caller: &mut Caller,
    args: Args<'_>,
) -> Result<(), Halt> {
    wait_for_room(worker, caller)?;
    let (pubsub, workers) = (&worker.shared.pubsub, worker.shared.workers());
    let receivers = pubsub.publish_to_shard(workers, &args[1], &args[2]);
    record(worker, caller, args);
    caller.reply().integer(receivers as i64);
    Ok(())
}

pub(crate) fn publish(
    worker: &mut Worker,
    caller: &mut Caller,
    args: Args<'_>,
) -> Result<(), Halt> {
    wait_for_room(worker, caller)?;
    let shared = &worker.shared;
    let receivers = shared.pubsub.publish(shared.workers(), &args[1], &args[2]);
    record(worker, caller, args);
    caller.reply().integer(receivers as i64);
    Ok(())
}

/// Puts the session aside while too much is on its way to subscribers. Inside a unit nobody can wait: a script makes room
/// by itself, and a transaction publishes no more than it has brought with it.
fn wait_for_room(worker: &mut Worker, caller: &mut Caller) -> Result<(), Halt> {
    if worker.is_in_script() {
        worker.hand_out(caller);
    }
    if worker.compound.is_some() {
        return Ok(());
    }
    let who = caller.card.token();
    let mut workers = worker.shared.workers().iter();
    match workers.any(|worker| worker.transit.keeps_waiting(who)) {
        true => Err(Halt::Aside(Aside::Transit)),
        false => Ok(()),
    }
}

pub(crate) fn pubsub_channels(
    worker: &mut Worker,
    caller: &mut Caller,
    args: Args<'_>,
) -> Result<(), Halt> {
    list_channels(worker, caller, Kind::Channel, args)
}

pub(crate) fn pubsub_shardchannels(
    worker: &mut Worker,
    caller: &mut Caller,
    args: Args<'_>,
) -> Result<(), Halt> {
    list_channels(worker, caller, Kind::Shard, args)
}

pub(crate) fn pubsub_numpat(
    worker: &mut Worker,
    caller: &mut Caller,
    _: Args<'_>,
) -> Result<(), Halt> {
    let patterns = worker.shared.pubsub.pattern_count();
    caller.reply().integer(patterns as i64);
    Ok(())
}

pub(crate) fn pubsub_numsub(
    worker: &mut Worker,
    caller: &mut Caller,
    args: Args<'_>,
) -> Result<(), Halt> {
    count_subscribers(worker, caller, Kind::Channel, args.from(2));
    Ok(())
}

pub(crate) fn pubsub_shardnumsub(
    worker: &mut Worker,
    caller: &mut Caller,
    args: Args<'_>,
) -> Result<(), Halt> {
    count_subscribers(worker, caller, Kind::Shard, args.from(2));
    Ok(())
}

fn list_channels(
    worker: &Worker,
    caller: &mut Caller,
    kind: Kind,
    args: Args<'_>,
) -> Result<(), Halt> {
    if args.len() > 3 {
        return Err(errors::wrong_subcommand_arity(CommandId::Pubsub, args).into());
    }
    let channels = worker.shared.pubsub.channels(kind, args.get(2));
    let mut reply = caller.reply();
    reply.array(channels.len());
    channels.iter().for_each(|channel| reply.bulk(channel));
    Ok(())
}

fn count_subscribers(worker: &Worker, caller: &mut Caller, kind: Kind, channels: Args<'_>) {
    let mut reply = caller.reply();
    reply.array(channels.len() * 2);
    for channel in channels.iter() {
        reply.bulk(channel);
        let count = worker.shared.pubsub.subscriber_count(kind, channel);
        reply.integer(count as i64);
    }
}

/// A message changes no data, but other nodes have subscribers as well.
fn record(worker: &mut Worker, caller: &Caller, args: Args<'_>) {
    let space = &worker.shared.keyspace;
    if !space.journal().is_attached() {
        return;
    }
    let mut propagate = |unit: &mut Unit<'_>| {
        unit.view(&mut worker.local, caller.db, worker.now_ms)
            .propagate(&[&args[0], &args[1], &args[2]]);
    };
    match &mut worker.compound {
        Some(compound) => propagate(&mut compound.unit),
        None => {
            let mut unit = Unit::none(space);
            propagate(&mut unit);
            unit.commit(&mut worker.local);
        }
    }
}
