//! XINFO: the state of a stream, its groups and its consumers.

use redline_resp::{Args, Reply};
use redline_spec::CommandId;
use redline_types::{
    Stream,
    stream::{Consumer, Entry, Group, StreamId},
};

use crate::{
    Ctx, Error, Failure,
    stream::{write_entry, write_id},
    words::{Words, integer},
};

/// Default number of entries of each list that XINFO STREAM FULL shows.
const FULL_COUNT_DEFAULT: usize = 10;

/// XINFO CONSUMERS key group
pub(crate) fn xinfo_consumers(
    ctx: &mut Ctx<'_>,
    args: Args<'_>,
    reply: &mut Reply<'_>,
) -> Result<(), Failure> {
    let stream = stream(ctx, &args[2])?;
    let Some(group) = stream.group(&args[3]) else {
        let start = Error::quoting(
            "NOGROUP No such consumer group '",
            &args[3],
            "' for key name '",
        );
        return Err(Error::quoting(&start.text(), &args[2], "'").into());
    };
    let now_ms = ctx.keys.now_ms();
    let since = |at_ms: i64| now_ms.saturating_sub(at_ms).max(0);
    reply.array(group.consumers().len());
    for consumer in group.consumers() {
        reply.map(4);
        reply.bulk(b"name");
        reply.bulk(consumer.name());
        write_number(reply, "pending", consumer.pending_len());
        reply.bulk(b"idle");
        reply.integer(since(consumer.seen_at_ms));
        reply.bulk(b"inactive");
        reply.integer(consumer.active_at_ms.map_or(-1, since));
    }
    Ok(())
}

/// XINFO GROUPS key
pub(crate) fn xinfo_groups(
    ctx: &mut Ctx<'_>,
    args: Args<'_>,
    reply: &mut Reply<'_>,
) -> Result<(), Failure> {
    let stream = stream(ctx, &args[2])?;
    reply.array(stream.groups().len());
    for (name, group) in stream.groups() {
        reply.map(6);
        reply.bulk(b"name");
        reply.bulk(name);
        write_number(reply, "consumers", group.consumers().len());
        write_number(reply, "pending", group.pending_len());
        write_position(reply, stream, group);
    }
    Ok(())
}

/// XINFO STREAM key [FULL [COUNT count]]
pub(crate) fn xinfo_stream(
    ctx: &mut Ctx<'_>,
    args: Args<'_>,
    reply: &mut Reply<'_>,
) -> Result<(), Failure> {
    let stream = stream(ctx, &args[2])?;
    let mut words = Words::new(CommandId::XinfoStream, &args, 3);
    let full = words.flag("FULL");
    let count = if full { words.value("COUNT") } else { None };
    if !words.is_empty() {
        return Err(words.wrong_arity().into());
    }
    let count = match count.map(integer).transpose()? {
        Some(0) => Some(usize::MAX),
        Some(given) => Some(usize::try_from(given).unwrap_or(FULL_COUNT_DEFAULT)),
        None => full.then_some(FULL_COUNT_DEFAULT),
    };
    reply.map(if count.is_some() { 9 } else { 10 });
    write_counters(reply, stream);
    let Some(count) = count else {
        write_number(reply, "groups", stream.groups().len());
        let mut write_edge = |name: &str, entry: Option<Entry<'_>>| {
            reply.bulk(name.as_bytes());
            match entry {
                Some(entry) => write_entry(reply, &entry),
                None => reply.null(),
            }
        };
        write_edge("first-entry", stream.first_entry());
        write_edge("last-entry", stream.last_entry());
        return Ok(());
    };
    reply.bulk(b"entries");
    let mark = reply.mark();
    let mut shown = 0;
    for entry in stream.range(StreamId::MIN, StreamId::MAX).take(count) {
        write_entry(reply, &entry);
        shown += 1;
    }
    reply.insert_array_header(mark, shown);
    reply.bulk(b"groups");
    reply.array(stream.groups().len());
    for (name, group) in stream.groups() {
        write_group(reply, stream, name, group, count);
    }
    Ok(())
}

fn write_counters(reply: &mut Reply<'_>, stream: &Stream) {
    let log = stream.log();
    write_number(reply, "length", log.len() as usize);
    write_number(reply, "radix-tree-keys", log.node_count());
    write_number(reply, "radix-tree-nodes", log.radix_tree_nodes());
    reply.bulk(b"last-generated-id");
    write_id(reply, log.last_id());
    reply.bulk(b"max-deleted-entry-id");
    write_id(reply, log.max_deleted_id());
    write_number(reply, "entries-added", log.entries_added() as usize);
    reply.bulk(b"recorded-first-entry-id");
    write_id(reply, log.first_id());
}

/// Writes a group with up to `count` elements of each of its lists.
fn write_group(reply: &mut Reply<'_>, stream: &Stream, name: &[u8], group: &Group, count: usize) {
    reply.map(7);
    reply.bulk(b"name");
    reply.bulk(name);
    write_position(reply, stream, group);
    write_number(reply, "pel-count", group.pending_len());
    reply.bulk(b"pending");
    reply.array(group.pending_len().min(count));
    for (id, pending) in group.pending_from(StreamId::MIN).take(count) {
        reply.array(4);
        write_id(reply, id);
        reply.bulk(group.consumer(pending.consumer).name());
        reply.integer(pending.delivered_at_ms);
        reply.integer(pending.deliveries as i64);
    }
    reply.bulk(b"consumers");
    reply.array(group.consumers().len());
    for consumer in group.consumers() {
        write_consumer(reply, group, consumer, count);
    }
}

fn write_consumer(reply: &mut Reply<'_>, group: &Group, consumer: &Consumer, count: usize) {
    reply.map(5);
    reply.bulk(b"name");
    reply.bulk(consumer.name());
    reply.bulk(b"seen-time");
    reply.integer(consumer.seen_at_ms);
    reply.bulk(b"active-time");
    reply.integer(consumer.active_at_ms.unwrap_or(-1));
    write_number(reply, "pel-count", consumer.pending_len());
    reply.bulk(b"pending");
    reply.array(consumer.pending_len().min(count));
    for id in consumer.pending_from(StreamId::MIN).take(count) {
        let pending = group.pending(id);
        reply.array(3);
        write_id(reply, id);
        reply.integer(pending.map_or(0, |pending| pending.delivered_at_ms));
        reply.integer(pending.map_or(0, |pending| pending.deliveries as i64));
    }
}

/// Writes how far a group has read.
fn write_position(reply: &mut Reply<'_>, stream: &Stream, group: &Group) {
    reply.bulk(b"last-delivered-id");
    write_id(reply, group.last_id());
    let mut write = |name: &str, number: Option<i64>| {
        reply.bulk(name.as_bytes());
        match number {
            Some(number) => reply.integer(number),
            None => reply.null(),
        }
    };
    write("entries-read", group.entries_read().map(|read| read as i64));
    write("lag", stream.lag(group));
}

fn write_number(reply: &mut Reply<'_>, name: &str, number: usize) {
    reply.bulk(name.as_bytes());
    reply.integer(number as i64);
}

/// Returns the stream; fails unless it exists.
fn stream<'a>(ctx: &'a Ctx<'_>, key: &[u8]) -> Result<&'a Stream, Error> {
    ctx.keys.read::<Stream>(key)?.ok_or(Error::NoSuchKey)
}

#[cfg(test)]
mod tests {
    use crate::testing::TestDb;
    use redline_resp::Proto;

    const NOW: &str = "1700000000000";

    #[test]
    fn what_there_is_to_know() {
        let mut db = TestDb::new();
        db.words("XADD s 1 f v");
        db.words("XADD s 2 f v");
        db.words("XGROUP CREATE s g 0");
        db.words("XREADGROUP GROUP g c COUNT 1 STREAMS s >");
        db.words("XGROUP CREATECONSUMER s g d");
        db.pass_ms(7);
        let counters = "length|:2|$15|radix-tree-keys|:1|$16|radix-tree-nodes|:2|$17|last-generated-id|$3|2-0|$20|\
                        max-deleted-entry-id|$3|0-0|$13|entries-added|:2|$23|recorded-first-entry-id|$3|1-0";
        let entry = |id| format!("*2|$3|{id}-0|*2|$1|f|$1|v");
        let (one, two) = (entry(1), entry(2));
        let position = "$17|last-delivered-id|$3|1-0|$12|entries-read|:1|$3|lag|:1";
        db.script(&[
            (
                "XINFO CONSUMERS s g",
                "*2|*8|$4|name|$1|c|$7|pending|:1|$4|idle|:7|$8|inactive|:7\
                 |*8|$4|name|$1|d|$7|pending|:0|$4|idle|:7|$8|inactive|:-1",
            ),
            (
                "XINFO GROUPS s",
                &format!("*1|*12|$4|name|$1|g|$9|consumers|:2|$7|pending|:1|{position}"),
            ),
            (
                "XINFO STREAM s",
                &format!("*20|$6|{counters}|$6|groups|:1|$11|first-entry|{one}|$10|last-entry|{two}"),
            ),
            ("XINFO STREAM none", "-ERR no such key"),
            ("XINFO CONSUMERS s h", "-NOGROUP No such consumer group 'h' for key name 's'"),
            (
                "XINFO STREAM s FULL COUNT",
                "-ERR unknown subcommand or wrong number of arguments for 'STREAM'. Try XINFO HELP.",
            ),
        ]);
        db.proto = Proto::Resp3;
        let pending = format!("$9|pel-count|:1|$7|pending|*1|*4|$3|1-0|$1|c|:{NOW}|:1");
        let own = format!("$9|pel-count|:1|$7|pending|*1|*3|$3|1-0|:{NOW}|:1");
        let times = format!("$9|seen-time|:{NOW}|$11|active-time");
        let consumers = format!(
            "$9|consumers|*2|%5|$4|name|$1|c|{times}|:{NOW}|{own}\
             |%5|$4|name|$1|d|{times}|:-1|$9|pel-count|:0|$7|pending|*0"
        );
        db.script(&[(
            "XINFO STREAM s FULL COUNT 1",
            &format!(
                "%9|$6|{counters}|$7|entries|*1|{one}|$6|groups|*1|%7|$4|name|$1|g|{position}|{pending}|{consumers}"
            ),
        )]);
    }

    #[test]
    fn xsetid_keeps_to_what_is_there() {
        let mut db = TestDb::new();
        db.words("XADD s 5 f v");
        db.words("XADD s 6 f v");
        db.words("XDEL s 6");
        db.events();
        db.script(&[
            ("XSETID s 5", "-ERR The ID specified in XSETID is smaller than current max_deleted_entry_id"),
            ("XSETID s 9 ENTRIESADDED 0", "-ERR The entries_added specified in XSETID is smaller than the target stream length"),
            ("XSETID s 9 ENTRIESADDED -1", "-ERR entries_added must be positive"),
            ("XSETID s 9 MAXDELETEDID 10", "-ERR The ID specified in XSETID is smaller than the provided max_deleted_entry_id"),
            ("XSETID s 9 ENTRIESADDED", "-ERR syntax error"),
            ("XSETID s 9 ENTRIESADDED 7 MAXDELETEDID 8", "+OK"),
            ("XSETID none 9", "-ERR no such key"),
            ("XADD s 9 f v", "-ERR The ID specified in XADD is equal or smaller than the target stream top item"),
            ("XADD t 5 f v", "$3|5-0"),
            ("XSETID t 4", "-ERR The ID specified in XSETID is smaller than the target stream top item"),
        ]);
        assert_eq!(db.events(), ["xsetid s", "xadd t"]);
    }
}
