//! Pending entries: XPENDING, XCLAIM, XAUTOCLAIM.

use redline_resp::{Args, Reply};
use redline_spec::CommandId;
use redline_types::{
    Stream,
    stream::{Claim, Claimed, Entry, Group, IdBound, Pending, StreamId},
};

use super::{
    Moved, edit_group, has_group, no_group, present_ms, propagate_gone, propagate_last_id,
    report_consumer,
};
use crate::{
    Ctx, Error, Failure,
    stream::{INVALID_ID, write_entry, write_id},
    words::{Words, integer, integer_in},
};

/// Default of the largest number of entries that XAUTOCLAIM returns.
const CLAIM_COUNT_DEFAULT: usize = 100;
/// Number of pending entries that XAUTOCLAIM looks at for each that it may return.
const CLAIM_ATTEMPTS: usize = 10;
/// Largest count: Redis bounds it so that a list of ids of 16 bytes can be allocated.
const CLAIM_COUNT_MAX: i64 = i64::MAX / 16;

/// XPENDING key group [[IDLE min-idle-time] start end count [consumer]]
pub(crate) fn xpending(
    ctx: &mut Ctx<'_>,
    args: Args<'_>,
    reply: &mut Reply<'_>,
) -> Result<(), Failure> {
    let filter = PendingFilter::parse(Words::new(CommandId::Xpending, &args, 3))?;
    let stream = ctx.keys.read::<Stream>(&args[1])?;
    let group = stream.and_then(|stream| stream.group(&args[2]));
    let group = group.ok_or_else(|| no_group(&args[1], &args[2]))?;
    match filter {
        None => write_summary(reply, group),
        Some(filter) => filter.write(reply, group, ctx.keys.now_ms()),
    }
    Ok(())
}

fn write_summary(reply: &mut Reply<'_>, group: &Group) {
    reply.array(4);
    reply.integer(group.pending_len() as i64);
    let first = group.pending_from(StreamId::MIN).next();
    let (Some((first, _)), Some(last)) = (first, group.last_pending()) else {
        reply.null();
        reply.null();
        reply.null_array();
        return;
    };
    write_id(reply, first);
    write_id(reply, last);
    let mark = reply.mark();
    let mut busy = 0;
    for consumer in group
        .consumers()
        .filter(|consumer| consumer.pending_len() > 0)
    {
        reply.array(2);
        reply.bulk(consumer.name());
        reply.bulk_integer(consumer.pending_len() as i64);
        busy += 1;
    }
    reply.insert_array_header(mark, busy);
}

/// Criteria of the pending entries that XPENDING lists.
struct PendingFilter<'a> {
    idle_ms_min: i64,
    start: StreamId,
    end: StreamId,
    count: usize,
    consumer: Option<&'a [u8]>,
}

impl<'a> PendingFilter<'a> {
    /// Reads the criteria; `None` for the summary.
    fn parse(mut words: Words<'a>) -> Result<Option<PendingFilter<'a>>, Error> {
        if words.is_empty() {
            return Ok(None);
        }
        if !(3..=6).contains(&words.len()) {
            return Err(Error::Syntax);
        }
        let idle_ms_min = words.pair("IDLE")?.unwrap_or(0);
        let [start, end, count] = [words.read()?, words.read()?, words.read()?];
        let count = usize::try_from(integer(count)?).unwrap_or(0);
        let start = start_of(start)?;
        let end = IdBound::parse(end, u64::MAX)
            .map_err(|_| INVALID_ID)?
            .last()
            .ok_or(Error::line("ERR invalid end ID for the interval"))?;
        Ok(Some(PendingFilter {
            idle_ms_min,
            start,
            end,
            count,
            consumer: words.next(),
        }))
    }

    fn write(&self, reply: &mut Reply<'_>, group: &Group, now_ms: i64) {
        let mark = reply.mark();
        let mut found = 0;
        let mut write = |(id, pending): (StreamId, &Pending)| {
            reply.array(4);
            write_id(reply, id);
            reply.bulk(group.consumer(pending.consumer).name());
            reply.integer(pending.idle_ms(now_ms).max(0));
            reply.integer(pending.deliveries as i64);
            found += 1;
        };
        let wanted = |(id, pending): &(StreamId, &Pending)| {
            *id <= self.end
                && (self.idle_ms_min == 0 || pending.idle_ms(now_ms) >= self.idle_ms_min)
        };
        match self.consumer.map(|name| group.find_consumer(name)) {
            // There is no consumer of this name.
            Some(None) => {}
            Some(Some(consumer)) => group
                .consumer(consumer)
                .pending_from(self.start)
                .take_while(|id| *id <= self.end)
                .filter_map(|id| Some((id, group.pending(id)?)))
                .filter(wanted)
                .take(self.count)
                .for_each(&mut write),
            None => group
                .pending_from(self.start)
                .take_while(|(id, _)| *id <= self.end)
                .filter(wanted)
                .take(self.count)
                .for_each(&mut write),
        }
        reply.insert_array_header(mark, found);
    }
}

/// XCLAIM key group consumer min-idle-time id [id …] [IDLE ms] [TIME unix-time-milliseconds] [RETRYCOUNT count] [FORCE]
/// [JUSTID] [LASTID lastid]
pub(crate) fn xclaim(
    ctx: &mut Ctx<'_>,
    args: Args<'_>,
    reply: &mut Reply<'_>,
) -> Result<(), Failure> {
    let (key, name) = (&args[1], &args[2]);
    if !has_group(ctx, key, name)? {
        return Err(no_group(key, name).into());
    }
    let now_ms = present_ms(ctx);
    let idle_ms_min = integer(&args[4])
        .map_err(|_| Error::line("ERR Invalid min-idle-time argument for XCLAIM"))?;
    let ids: Vec<StreamId> = args
        .from(5)
        .iter()
        .map_while(|text| StreamId::parse(text, 0).ok())
        .collect();
    let words = Words::new(CommandId::Xclaim, &args, 5 + ids.len());
    let options = ClaimOptions::parse(words, now_ms)?;
    let claim = Claim {
        idle_ms_min: idle_ms_min.max(0),
        ..options.claim
    };
    let mark = reply.mark();
    let journaled = ctx.keys.is_journaled();
    let (made, taken, moved, gone, raised) = edit_group(ctx, key, name, |log, group| {
        let raised = group.raise_last_id(options.last_id);
        let (consumer, made) = group.meet_consumer(&args[3], now_ms);
        let (mut taken, mut gone) = (Vec::new(), Vec::new());
        for id in ids {
            let entry = log.range(id, id).next();
            match (group.claim(id, entry.is_some(), consumer, &claim), entry) {
                (Claimed::Taken, Some(entry)) => {
                    write_claimed(reply, &entry, options.ids_only);
                    taken.push(id);
                }
                (Claimed::Gone, _) => gone.push(id),
                _ => {}
            }
        }
        let moved = Moved::of(group, &taken, journaled);
        (made, taken.len(), moved, gone, raised)
    })?;
    reply.insert_array_header(mark, taken);
    if made {
        report_consumer(ctx, key, name, &args[3], moved.as_ref());
    }
    let changes = (taken + gone.len()) as u64;
    ctx.keys.count_changes(changes.max(raised.into()));
    propagate_gone(ctx, key, name, &gone);
    match moved {
        Some(moved) => moved.propagate(ctx, key, name, &args[3]),
        None if raised => propagate_last_id(ctx, key, name)?,
        None => {}
    }
    Ok(())
}

/// Options of XCLAIM.
struct ClaimOptions {
    claim: Claim,
    ids_only: bool,
    last_id: StreamId,
}

impl ClaimOptions {
    fn parse(mut words: Words<'_>, now_ms: i64) -> Result<ClaimOptions, Error> {
        let number = |option: &str, text: &[u8]| {
            integer(text).map_err(|_| {
                Error::Line(format!("ERR Invalid {option} option argument for XCLAIM").into())
            })
        };
        let (mut delivered_at_ms, mut deliveries) = (now_ms, None);
        let (mut force, mut ids_only, mut last_id) = (false, false, StreamId::MIN);
        while let Some(word) = words.peek() {
            if words.flag("FORCE") {
                force = true;
            } else if words.flag("JUSTID") {
                ids_only = true;
            } else if let Some(text) = words.value("IDLE") {
                delivered_at_ms = now_ms.wrapping_sub(number("IDLE", text)?);
            } else if let Some(text) = words.value("TIME") {
                delivered_at_ms = number("TIME", text)?;
            } else if let Some(text) = words.value("RETRYCOUNT") {
                deliveries = u64::try_from(number("RETRYCOUNT", text)?).ok();
            } else if let Some(id) = words.pair("LASTID")? {
                last_id = id;
            } else {
                let before = "ERR Unrecognized XCLAIM option '";
                return Err(Error::quoting(before, word, "'"));
            }
        }
        // A client's clock may be ahead of ours: an impossible time is replaced by the present.
        if !(0..=now_ms).contains(&delivered_at_ms) {
            delivered_at_ms = now_ms;
        }
        Ok(ClaimOptions {
            claim: Claim {
                now_ms,
                idle_ms_min: 0,
                delivered_at_ms,
                deliveries,
                counts: !ids_only,
                force,
            },
            ids_only,
            last_id,
        })
    }
}

/// XAUTOCLAIM key group consumer min-idle-time start [COUNT count] [JUSTID]
pub(crate) fn xautoclaim(
    ctx: &mut Ctx<'_>,
    args: Args<'_>,
    reply: &mut Reply<'_>,
) -> Result<(), Failure> {
    let (key, name) = (&args[1], &args[2]);
    let now_ms = present_ms(ctx);
    // The key is looked up first, even if the call is invalid.
    let has_group = has_group(ctx, key, name);
    let idle_ms_min = integer(&args[4])
        .map_err(|_| Error::line("ERR Invalid min-idle-time argument for XAUTOCLAIM"))?;
    let start = start_of(&args[5])?;
    let (mut count, mut ids_only) = (CLAIM_COUNT_DEFAULT, false);
    let mut words = Words::new(CommandId::Xautoclaim, &args, 6);
    while !words.is_empty() {
        if let Some(value) = words.value("COUNT") {
            const NO_COUNT: Error = Error::line("ERR COUNT must be > 0");
            count = integer_in(value, 1..=CLAIM_COUNT_MAX, NO_COUNT)? as usize;
        } else if words.flag("JUSTID") {
            ids_only = true;
        } else {
            return Err(Error::Syntax.into());
        }
    }
    if !has_group? {
        return Err(no_group(key, name).into());
    }
    let claim = Claim {
        now_ms,
        idle_ms_min: idle_ms_min.max(0),
        delivered_at_ms: now_ms,
        deliveries: None,
        counts: !ids_only,
        force: false,
    };
    let journaled = ctx.keys.is_journaled();
    let (made, moved, gone) = edit_group(ctx, key, name, |log, group| {
        let (consumer, made) = group.meet_consumer(&args[3], now_ms);
        let (mut taken, mut gone) = (Vec::new(), Vec::new());
        let mut attempts = count.saturating_mul(CLAIM_ATTEMPTS);
        let next_from = |group: &Group, id| group.pending_from(id).next().map(|(id, _)| id);
        let mut next = next_from(group, start);
        while let Some(id) = next.filter(|_| attempts > 0 && taken.len() + gone.len() < count) {
            attempts -= 1;
            match group.claim(id, log.contains(id), consumer, &claim) {
                Claimed::Taken => taken.push(id),
                Claimed::Gone => gone.push(id),
                Claimed::No => {}
            }
            next = id.next().and_then(|after| next_from(group, after));
        }
        reply.array(3);
        write_id(reply, next.unwrap_or(StreamId::MIN));
        reply.array(taken.len());
        let entries = taken.iter().flat_map(|id| log.range(*id, *id));
        entries.for_each(|entry| write_claimed(reply, &entry, ids_only));
        reply.array(gone.len());
        gone.iter().for_each(|id| write_id(reply, *id));
        (made, Moved::of(group, &taken, journaled), gone)
    })?;
    if made {
        report_consumer(ctx, key, name, &args[3], moved.as_ref());
    }
    let taken = moved.as_ref().map_or(0, |moved| moved.count);
    ctx.keys.count_changes((taken + gone.len()) as u64);
    propagate_gone(ctx, key, name, &gone);
    if let Some(moved) = moved {
        moved.propagate(ctx, key, name, &args[3]);
    }
    Ok(())
}

fn write_claimed(reply: &mut Reply<'_>, entry: &Entry<'_>, ids_only: bool) {
    if ids_only {
        write_id(reply, entry.id);
    } else {
        write_entry(reply, entry);
    }
}

/// Reads the lowest id of an interval that starts here.
fn start_of(text: &[u8]) -> Result<StreamId, Error> {
    IdBound::parse(text, 0)
        .map_err(|_| INVALID_ID)?
        .first()
        .ok_or(Error::line("ERR invalid start ID for the interval"))
}
