//! XREADGROUP: entries that a group has not read, and those that are pending with a consumer.

use redline_keyspace::{Found, Trace};
use redline_resp::{Args, Proto, Reply};
use redline_spec::CommandId;
use redline_types::{
    Kind, Stream,
    stream::{ConsumerId, Group, Log, StreamId},
};

use super::{Moved, no_group, present_ms, report_consumer};
use crate::{
    Ctx, Error, Failure,
    block::{self, Block},
    stream::{entry_id, write_entry, write_id},
    words::Words,
};

/// XREADGROUP GROUP group consumer [COUNT count] [BLOCK milliseconds] [NOACK] STREAMS key [key …] id [id …]
pub(crate) fn xreadgroup(
    ctx: &mut Ctx<'_>,
    args: Args<'_>,
    reply: &mut Reply<'_>,
) -> Result<(), Failure> {
    let read = ReadGroup::parse(ctx, &args)?;
    let starts = read.starts(ctx)?;
    // A second lookup, which counts as an access, as in Redis.
    read.keys.iter().for_each(|key| {
        ctx.keys.find(key, Trace::Probe);
    });
    if read.finds_any(ctx, &starts)? {
        ctx.claim()?;
    }
    let mark = reply.mark();
    let mut streams = 0;
    for (key, start) in read.keys.iter().zip(starts) {
        streams += usize::from(read.one(ctx, key, start, reply)?);
    }
    if streams == 0 {
        reply.null_array();
        if let Some(timeout_ms) = read.block {
            let keys = read.keys_at..read.keys_at + read.keys.len();
            let mut block = Block::on(Kind::Stream, keys, timeout_ms);
            block.when_gone = true;
            return Err(block.into());
        }
    } else if reply.proto() == Proto::Resp3 {
        reply.insert_map_header(mark, streams);
    } else {
        reply.insert_array_header(mark, streams);
    }
    Ok(())
}

/// A call of XREADGROUP.
struct ReadGroup<'a> {
    group: &'a [u8],
    consumer: &'a [u8],
    /// Largest number of entries of each stream.
    count: usize,
    no_ack: bool,
    /// `BLOCK` with its timeout in milliseconds.
    block: Option<Option<u64>>,
    /// Position of the first key.
    keys_at: usize,
    keys: Args<'a>,
    ids: Args<'a>,
}

/// Position from which XREADGROUP reads a stream.
#[derive(Clone, Copy)]
enum Start {
    /// The first entry that the group has not read.
    New,
    /// The first entry after this id that is pending with the consumer.
    History(StreamId),
}

impl<'a> ReadGroup<'a> {
    fn parse(ctx: &Ctx<'_>, args: &'a Args<'a>) -> Result<ReadGroup<'a>, Error> {
        let (mut names, mut count, mut no_ack, mut block) = (None, 0, false, None);
        let mut words = Words::new(CommandId::Xreadgroup, args, 1);
        while !words.is_empty() {
            if let Some(timeout) = words.value("BLOCK") {
                block = Some(block::milliseconds(ctx, timeout)?);
            } else if let Some(given) = words.pair::<i64>("COUNT")? {
                count = usize::try_from(given).unwrap_or(0);
            } else if let Some(given) = words.values("GROUP") {
                names = Some(given);
            } else if words.flag("NOACK") {
                no_ack = true;
            } else if words.len() > 1 && words.flag("STREAMS") {
                if !words.len().is_multiple_of(2) {
                    return Err(Error::line(
                        "ERR Unbalanced 'xreadgroup' list of streams: for each stream key an ID or '>' must be \
                         specified.",
                    ));
                }
                let [group, consumer] =
                    names.ok_or(Error::line("ERR Missing GROUP option for XREADGROUP"))?;
                let (keys_at, streams) = (words.at(), words.len() / 2);
                return Ok(ReadGroup {
                    group,
                    consumer,
                    count: if count == 0 { usize::MAX } else { count },
                    no_ack,
                    block,
                    keys_at,
                    keys: words.rest().first(streams),
                    ids: words.rest().from(streams),
                });
            } else {
                return Err(Error::Syntax);
            }
        }
        Err(Error::Syntax)
    }

    /// Checks every key and id in turn.
    fn starts(&self, ctx: &Ctx<'_>) -> Result<Vec<Start>, Error> {
        let meaningless = |id: char| {
            Error::Line(
                format!(
                    "ERR The {id} ID is meaningless in the context of XREADGROUP: you want to read the history of this \
                     consumer by specifying a proper ID, or use the > ID to get new messages. The {id} ID would just \
                     return an empty result set."
                )
                .into(),
            )
        };
        let start = |(key, id): (&[u8], &[u8])| {
            let stream = ctx.keys.read::<Stream>(key)?;
            if stream.and_then(|stream| stream.group(self.group)).is_none() {
                let what = no_group(key, self.group);
                return Err(Error::quoting(
                    &what.text(),
                    b"",
                    " in XREADGROUP with GROUP option",
                ));
            }
            match id {
                b"$" => Err(meaningless('$')),
                b"+" => Err(meaningless('+')),
                b">" => Ok(Start::New),
                text => Ok(match entry_id(text)? {
                    StreamId::MAX => Start::New,
                    id => Start::History(id),
                }),
            }
        };
        self.keys.iter().zip(self.ids.iter()).map(start).collect()
    }

    /// Returns true if any of the streams will have a reply.
    fn finds_any(&self, ctx: &Ctx<'_>, starts: &[Start]) -> Result<bool, Error> {
        for (key, start) in self.keys.iter().zip(starts) {
            let found = match start {
                Start::History(_) => true,
                Start::New => {
                    let found = ctx.keys.find(key, Trace::Quiet);
                    let stream = found.map(Found::collection::<Stream>).transpose()?;
                    let last = stream.and_then(Stream::last_entry);
                    let read = stream.and_then(|stream| stream.group(self.group));
                    last.zip(read)
                        .is_some_and(|(last, group)| last.id > group.last_id())
                }
            };
            if found {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Reads from one stream; returns true if there was a reply.
    fn one(
        &self,
        ctx: &mut Ctx<'_>,
        key: &[u8],
        start: Start,
        reply: &mut Reply<'_>,
    ) -> Result<bool, Error> {
        let now_ms = present_ms(ctx);
        let journaled = ctx.keys.is_journaled();
        let read = ctx.keys.write::<Stream, _>(key, |stream, _| {
            stream.edit_group(self.group, |log, group| {
                let (consumer, made) = group.meet_consumer(self.consumer, now_ms);
                let (replied, moved) = match start {
                    Start::New => {
                        let delivered = self.deliver(log, group, consumer, now_ms, key, reply);
                        (!delivered.is_empty(), delivered)
                    }
                    Start::History(id) => {
                        let from = id.next().unwrap_or(StreamId::MIN);
                        self.replay(log, group, consumer, now_ms, key, from, reply);
                        (true, Vec::new())
                    }
                };
                let moved = Moved::of(group, &moved, journaled && !self.no_ack);
                (made, replied, moved)
            })
        })?;
        let Some((made, replied, moved)) = read.flatten() else {
            return Ok(false);
        };
        if made {
            report_consumer(ctx, key, self.group, self.consumer, moved.as_ref());
        }
        if let Some(moved) = moved {
            ctx.keys.count_changes(1);
            moved.propagate(ctx, key, self.group, self.consumer);
            moved.propagate_position(ctx, key, self.group);
        }
        Ok(replied)
    }

    /// Delivers new entries; returns their ids.
    fn deliver(
        &self,
        log: &Log,
        group: &mut Group,
        consumer: ConsumerId,
        now_ms: i64,
        key: &[u8],
        reply: &mut Reply<'_>,
    ) -> Vec<StreamId> {
        let Some(start) = group.last_id().next() else {
            return Vec::new();
        };
        let mut entries = log.range(start, StreamId::MAX).take(self.count).peekable();
        if entries.peek().is_none() {
            return Vec::new();
        }
        write_key(reply, key);
        let mark = reply.mark();
        let mut delivered = Vec::new();
        for entry in entries {
            write_entry(reply, &entry);
            delivered.push(entry.id);
        }
        reply.insert_array_header(mark, delivered.len());
        group.deliver(log, &delivered, consumer, now_ms, self.no_ack);
        delivered
    }

    /// Delivers entries again that are pending with the consumer.
    #[expect(clippy::too_many_arguments, reason = "the parts of one unit")]
    fn replay(
        &self,
        log: &Log,
        group: &mut Group,
        consumer: ConsumerId,
        now_ms: i64,
        key: &[u8],
        from: StreamId,
        reply: &mut Reply<'_>,
    ) {
        let ids = group.consumer(consumer).pending_from(from);
        let ids: Vec<StreamId> = ids.take(self.count).collect();
        write_key(reply, key);
        reply.array(ids.len());
        for id in ids {
            if let Some(entry) = log.range(id, id).next() {
                write_entry(reply, &entry);
                group.deliver_again(id, now_ms);
            } else {
                reply.array(2);
                write_id(reply, id);
                reply.null_array();
            }
        }
    }
}

/// Writes the key, before its entries.
fn write_key(reply: &mut Reply<'_>, key: &[u8]) {
    if reply.proto() == Proto::Resp2 {
        reply.array(2);
    }
    reply.bulk(key);
}
