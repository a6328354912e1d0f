//! SUBSCRIBE, PSUBSCRIBE, their opposites, PUBLISH, PUBSUB.

use redline_keyspace::{Held, View};
use redline_resp::Args;
use redline_spec::CommandId;

use crate::{errors, exec::Halt, session::Session, subscribe, worker::Worker};

pub(crate) fn subscribe(w: &mut Worker, session: &mut Session, args: Args<'_>) -> Result<(), Halt> {
    for channel in args.iter().skip(1) {
        subscribe::add(w, session, subscribe::Kind::Channel, channel);
    }
    Ok(())
}

pub(crate) fn psubscribe(
    w: &mut Worker,
    session: &mut Session,
    args: Args<'_>,
) -> Result<(), Halt> {
    for pattern in args.iter().skip(1) {
        subscribe::add(w, session, subscribe::Kind::Pattern, pattern);
    }
    Ok(())
}

pub(crate) fn unsubscribe(
    worker: &mut Worker,
    session: &mut Session,
    args: Args<'_>,
) -> Result<(), Halt> {
    subscribe::remove(worker, session, subscribe::Kind::Channel, args.from(1));
    Ok(())
}

pub(crate) fn punsubscribe(
    worker: &mut Worker,
    session: &mut Session,
    args: Args<'_>,
) -> Result<(), Halt> {
    subscribe::remove(worker, session, subscribe::Kind::Pattern, args.from(1));
    Ok(())
}

pub(crate) fn publish(
    worker: &mut Worker,
    session: &mut Session,
    args: Args<'_>,
) -> Result<(), Halt> {
    let shared = worker.shared.clone();
    let receivers = shared.pubsub.publish(shared.workers(), &args[1], &args[2]);
    if shared.keyspace.journal().is_attached() {
        // It changes no data, but other nodes have subscribers as well.
        let (local, db) = (&mut worker.local, session.db);
        let mut view = View::new(&shared.keyspace, Held::None, local, db, worker.now_ms);
        view.propagate(&[&args[0], &args[1], &args[2]]);
        if session.unit.is_none() {
            view.commit();
        }
    }
    session.reply().integer(receivers as i64);
    Ok(())
}

pub(crate) fn pubsub_channels(
    worker: &mut Worker,
    session: &mut Session,
    args: Args<'_>,
) -> Result<(), Halt> {
    if args.len() > 3 {
        return Err(errors::wrong_subcommand_arity(CommandId::Pubsub, args).into());
    }
    let channels = worker.shared.pubsub.channels(args.get(2));
    let mut reply = session.reply();
    reply.array(channels.len());
    channels.iter().for_each(|channel| reply.bulk(channel));
    Ok(())
}

pub(crate) fn pubsub_numpat(
    worker: &mut Worker,
    session: &mut Session,
    _: Args<'_>,
) -> Result<(), Halt> {
    let patterns = worker.shared.pubsub.pattern_count();
    session.reply().integer(patterns as i64);
    Ok(())
}

pub(crate) fn pubsub_numsub(
    worker: &mut Worker,
    session: &mut Session,
    args: Args<'_>,
) -> Result<(), Halt> {
    let channels = args.from(2);
    let mut reply = session.reply();
    reply.array(channels.len() * 2);
    for channel in channels.iter() {
        reply.bulk(channel);
        reply.integer(worker.shared.pubsub.subscriber_count(channel) as i64);
    }
    Ok(())
}
