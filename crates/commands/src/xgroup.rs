//! Consumer groups: XGROUP, XACK, XACKDEL; and common parts of the files below.
//!
//! A change of a group counts as a change of the key for snapshots and replicas, but does not disturb clients that
//! watch the key: only added or removed entries do.

use redline_keyspace::{Classes, Found, Trace, journal::Word};
use redline_resp::{Args, Reply};
use redline_spec::CommandId;
use redline_types::{
    Stream,
    number::IntText,
    stream::{Deletion, Group, Log, StreamId},
};

use crate::{
    Ctx, Error, Failure,
    stream::{INVALID_ID, Victims, deletion_reply, entry_id, ids},
    words::Words,
};

pub(crate) use {pending::*, read::*};

mod pending;
mod read;

/// XGROUP CREATE key group id | $ [MKSTREAM] [ENTRIESREAD entries-read]
pub(crate) fn xgroup_create(
    ctx: &mut Ctx<'_>,
    args: Args<'_>,
    reply: &mut Reply<'_>,
) -> Result<(), Failure> {
    let (key, name) = (&args[2], &args[3]);
    let words = Words::new(CommandId::XgroupCreate, &args, 5);
    let options = PositionOptions::parse(words)?;
    let found = ctx.keys.find(key, Trace::Quiet);
    let exists = found.map(Found::len::<Stream>).transpose()?.is_some();
    if !exists && !options.make_stream {
        return Err(NO_KEY.into());
    }
    if args.len() > 8 {
        return Err(words.wrong_arity().into());
    }
    let id = match &args[4] {
        b"$" => None,
        text => Some(entry_id(text)?),
    };
    let created = ctx.keys.write_or_new::<Stream, _>(key, |stream, _| {
        let (last_id, entries_read) = options.position(id, stream.log());
        stream.create_group(name, last_id, entries_read)
    })?;
    if !exists {
        ctx.keys.touch_watchers(key);
    }
    if !created {
        return Err(Error::line("BUSYGROUP Consumer Group name already exists").into());
    }
    report(ctx, "xgroup-create", key);
    reply.ok();
    Ok(())
}

/// Returns the present, for the times of consumers and deliveries: those are not the times of a unit that is played back.
fn present_ms(ctx: &Ctx<'_>) -> i64 {
    let played_back_at_ms = ctx.keys.local.played_back_at_ms;
    played_back_at_ms.unwrap_or_else(|| ctx.keys.now_ms())
}

/// XGROUP CREATECONSUMER key group consumer
pub(crate) fn xgroup_createconsumer(
    ctx: &mut Ctx<'_>,
    args: Args<'_>,
    reply: &mut Reply<'_>,
) -> Result<(), Failure> {
    require_group(ctx, args)?;
    let now_ms = present_ms(ctx);
    let created = edit_group(ctx, &args[2], &args[3], |_, group| {
        group.create_consumer(&args[4], now_ms)
    })?;
    if created {
        report(ctx, "xgroup-createconsumer", &args[2]);
    }
    reply.integer(created.into());
    Ok(())
}

/// XGROUP DELCONSUMER key group consumer
pub(crate) fn xgroup_delconsumer(
    ctx: &mut Ctx<'_>,
    args: Args<'_>,
    reply: &mut Reply<'_>,
) -> Result<(), Failure> {
    require_group(ctx, args)?;
    let pending = edit_group(ctx, &args[2], &args[3], |_, group| {
        group.remove_consumer(&args[4])
    })?;
    if pending.is_some() {
        report(ctx, "xgroup-delconsumer", &args[2]);
    }
    reply.integer(pending.unwrap_or(0) as i64);
    Ok(())
}

/// XGROUP DESTROY key group
pub(crate) fn xgroup_destroy(
    ctx: &mut Ctx<'_>,
    args: Args<'_>,
    reply: &mut Reply<'_>,
) -> Result<(), Failure> {
    let destroyed = ctx
        .keys
        .write::<Stream, _>(&args[2], |stream, _| stream.remove_group(&args[3]))?;
    let destroyed = destroyed.ok_or(NO_KEY)?;
    if destroyed {
        ctx.keys.group_gone(&args[2]);
        report(ctx, "xgroup-destroy", &args[2]);
    }
    reply.integer(destroyed.into());
    Ok(())
}

/// XGROUP SETID key group id | $ [ENTRIESREAD entries-read]
pub(crate) fn xgroup_setid(
    ctx: &mut Ctx<'_>,
    args: Args<'_>,
    reply: &mut Reply<'_>,
) -> Result<(), Failure> {
    let words = Words::new(CommandId::XgroupSetid, &args, 5);
    let options = PositionOptions::parse(words)?;
    require_group(ctx, args)?;
    if args.len() > 7 {
        return Err(words.wrong_arity().into());
    }
    let id = match &args[4] {
        b"$" => None,
        text => Some(StreamId::parse_or_edge(text, 0).map_err(|_| INVALID_ID)?),
    };
    edit_group(ctx, &args[2], &args[3], |log, group| {
        let (last_id, entries_read) = options.position(id, log);
        group.set_position(last_id, entries_read);
    })?;
    report(ctx, "xgroup-setid", &args[2]);
    reply.ok();
    Ok(())
}

/// Options of XGROUP CREATE and SETID about a group's position.
struct PositionOptions {
    make_stream: bool,
    entries_read: Option<u64>,
}

impl PositionOptions {
    fn parse(mut words: Words<'_>) -> Result<PositionOptions, Error> {
        let mut parsed = PositionOptions {
            make_stream: false,
            entries_read: None,
        };
        while !words.is_empty() {
            if words.id() == CommandId::XgroupCreate && words.flag("MKSTREAM") {
                parsed.make_stream = true;
            } else if let Some(entries) = words.pair::<i64>("ENTRIESREAD")? {
                if entries < -1 {
                    return Err(Error::line(
                        "ERR value for ENTRIESREAD must be positive or -1",
                    ));
                }
                parsed.entries_read = u64::try_from(entries).ok();
            } else {
                return Err(words.wrong_arity());
            }
        }
        Ok(parsed)
    }

    /// Returns the last id and the number of entries read, which cannot be more than were added.
    fn position(&self, id: Option<StreamId>, log: &Log) -> (StreamId, Option<u64>) {
        let read = self.entries_read;
        (
            id.unwrap_or(log.last_id()),
            read.map(|read| read.min(log.entries_added())),
        )
    }
}

/// XACK key group id [id …]
pub(crate) fn xack(
    ctx: &mut Ctx<'_>,
    args: Args<'_>,
    reply: &mut Reply<'_>,
) -> Result<(), Failure> {
    if !has_group(ctx, &args[1], &args[2])? {
        reply.integer(0);
        return Ok(());
    }
    let ids = ids(args.from(3))?;
    let acknowledged = edit_group(ctx, &args[1], &args[2], |_, group| {
        ids.iter().filter(|id| group.acknowledge(**id)).count()
    })?;
    ctx.keys.count_changes(acknowledged as u64);
    reply.integer(acknowledged as i64);
    Ok(())
}

/// XACKDEL key group [KEEPREF | DELREF | ACKED] IDS numids id [id …]
pub(crate) fn xackdel(
    ctx: &mut Ctx<'_>,
    args: Args<'_>,
    reply: &mut Reply<'_>,
) -> Result<(), Failure> {
    let (key, name) = (&args[1], &args[2]);
    let exists = has_group(ctx, key, name)?;
    let victims = Victims::parse(Words::new(CommandId::Xackdel, &args, 3))?;
    if !exists {
        victims.reply_missing(reply);
        return Ok(());
    }
    let ids = victims.ids()?;
    reply.array(ids.len());
    let counts = ctx.keys.write::<Stream, _>(key, |stream, _| {
        let (mut acknowledged, mut deleted) = (0, 0);
        for id in ids {
            let acked = stream.edit_group(name, |_, group| group.acknowledge(id));
            let deletion = if acked == Some(true) {
                acknowledged += 1;
                match stream.delete(id, victims.references) {
                    Deletion::Done => {
                        deleted += 1;
                        Deletion::Done
                    }
                    // An acknowledged id is done, even if its entry was deleted earlier.
                    Deletion::Missing => Deletion::Done,
                    Deletion::Needed => Deletion::Needed,
                }
            } else {
                Deletion::Missing
            };
            reply.integer(deletion_reply(deletion));
        }
        (acknowledged, deleted)
    })?;
    let (acknowledged, deleted) = counts.unwrap_or((0, 0u64));
    ctx.keys.count_changes(acknowledged);
    if deleted > 0 {
        ctx.keys.touch_watchers(key);
        ctx.keys.notify(Classes::STREAM, "xdel", key);
    }
    Ok(())
}

// ---- groups of a call -------------------------------------------------------------------------

const NO_KEY: Error = Error::line(
    "ERR The XGROUP subcommand requires the key to exist. Note that for CREATE you may want to use the MKSTREAM option \
     to create an empty stream automatically.",
);

fn no_group(key: &[u8], group: &[u8]) -> Error {
    let start = Error::quoting("NOGROUP No such key '", key, "' or consumer group '");
    Error::quoting(&start.text(), group, "'")
}

/// Returns true if the key and the group exist. Counts as an access of the key.
fn has_group(ctx: &Ctx<'_>, key: &[u8], group: &[u8]) -> Result<bool, Error> {
    let stream = ctx.keys.read::<Stream>(key)?;
    Ok(stream.is_some_and(|stream| stream.group(group).is_some()))
}

/// Fails unless the key and the group of a subcommand of XGROUP exist.
fn require_group(ctx: &Ctx<'_>, args: Args<'_>) -> Result<(), Error> {
    let found = ctx.keys.find(&args[2], Trace::Quiet);
    let stream = found.map(Found::collection::<Stream>).transpose()?;
    if stream.ok_or(NO_KEY)?.group(&args[3]).is_none() {
        let start = Error::quoting(
            "NOGROUP No such consumer group '",
            &args[3],
            "' for key name '",
        );
        return Err(Error::quoting(&start.text(), &args[2], "'"));
    }
    Ok(())
}

/// Changes an existing group.
fn edit_group<R>(
    ctx: &mut Ctx<'_>,
    key: &[u8],
    name: &[u8],
    edit: impl FnOnce(&Log, &mut Group) -> R,
) -> Result<R, Error> {
    let result = ctx
        .keys
        .write::<Stream, _>(key, |stream, _| stream.edit_group(name, edit))?;
    result.flatten().ok_or_else(|| no_group(key, name))
}

/// Reports that a group has a new consumer, which was created implicitly. The journal is told of it unless what `moved` has
/// it told anyway: XCLAIM makes its consumer.
fn report_consumer(
    ctx: &mut Ctx<'_>,
    key: &[u8],
    group: &[u8],
    consumer: &[u8],
    moved: Option<&Moved>,
) {
    report(ctx, "xgroup-createconsumer", key);
    if moved.is_some_and(|moved| !moved.pending.is_empty()) {
        return;
    }
    ctx.keys
        .propagate(&[&b"XGROUP"[..], b"CREATECONSUMER", key, group, consumer]);
}

/// Entries that have become pending with a consumer, and the position of their group: for the journal, since the
/// outcome depends on the time, and on more than the call's words.
struct Moved {
    count: usize,
    pending: Vec<Pending>,
    last_id: StreamId,
    entries_read: Option<u64>,
}

/// A pending entry with the time of its delivery and its number of deliveries.
type Pending = (StreamId, i64, u64);

impl Moved {
    /// Returns `None` if there are no entries. `pending`: the entries are wanted, one by one.
    fn of(group: &Group, ids: &[StreamId], pending: bool) -> Option<Moved> {
        let wanted = if pending { ids } else { &[] };
        let state = |id: &StreamId| {
            let pending = group.pending(*id)?;
            Some((*id, pending.delivered_at_ms, pending.deliveries))
        };
        (!ids.is_empty()).then(|| Moved {
            count: ids.len(),
            pending: wanted.iter().filter_map(state).collect(),
            last_id: group.last_id(),
            entries_read: group.entries_read(),
        })
    }

    /// Records in the journal that the consumer has the entries.
    fn propagate(&self, ctx: &mut Ctx<'_>, key: &[u8], group: &[u8], consumer: &[u8]) {
        if !ctx.keys.is_journaled() {
            return;
        }
        let last_id = self.last_id.to_string();
        // Entries that were delivered at once are told at once: one by one they would take ten times as many bytes.
        let alike = |a: &Pending, b: &Pending| (a.1, a.2) == (b.1, b.2);
        for run in self.pending.chunk_by(alike) {
            let (_, at_ms, deliveries) = run[0];
            let ids: Vec<String> = run.iter().map(|(id, _, _)| id.to_string()).collect();
            let (at_ms, deliveries) = (IntText::new(at_ms), IntText::new(deliveries as i64));
            let mut call: Vec<&[u8]> = vec![b"XCLAIM", key, group, consumer, b"0"];
            call.extend(ids.iter().map(String::as_bytes));
            call.extend([&b"TIME"[..], at_ms.as_ref()]);
            call.extend([&b"RETRYCOUNT"[..], deliveries.as_ref()]);
            call.extend([&b"FORCE"[..], b"JUSTID", b"LASTID", last_id.as_bytes()]);
            ctx.keys.propagate(&call);
        }
    }

    /// Records in the journal how far the group has read.
    fn propagate_position(&self, ctx: &mut Ctx<'_>, key: &[u8], group: &[u8]) {
        propagate_position(ctx, key, group, self.last_id, self.entries_read);
    }
}

/// Records in the journal the last id of a group.
fn propagate_last_id(ctx: &mut Ctx<'_>, key: &[u8], name: &[u8]) -> Result<(), Error> {
    let found = ctx.keys.find(key, Trace::Quiet);
    let stream = found.map(Found::collection::<Stream>).transpose()?;
    if let Some(group) = stream.and_then(|stream| stream.group(name)) {
        let (last_id, entries_read) = (group.last_id(), group.entries_read());
        propagate_position(ctx, key, name, last_id, entries_read);
    }
    Ok(())
}

fn propagate_position(
    ctx: &mut Ctx<'_>,
    key: &[u8],
    group: &[u8],
    last_id: StreamId,
    entries_read: Option<u64>,
) {
    if !ctx.keys.is_journaled() {
        return;
    }
    let id = last_id.to_string();
    let read = IntText::new(entries_read.map_or(-1, |read| read as i64));
    let call: [&[u8]; 7] = [
        b"XGROUP",
        b"SETID",
        key,
        group,
        id.as_bytes(),
        b"ENTRIESREAD",
        read.as_ref(),
    ];
    ctx.keys.propagate(&call);
}

/// Records in the journal that deleted entries are no longer pending.
fn propagate_gone(ctx: &mut Ctx<'_>, key: &[u8], group: &[u8], ids: &[StreamId]) {
    if ids.is_empty() || !ctx.keys.is_journaled() {
        return;
    }
    let ids: Vec<String> = ids.iter().map(StreamId::to_string).collect();
    let call = [&b"XACK"[..], key, group].into_iter();
    let call = call.chain(ids.iter().map(String::as_bytes));
    ctx.keys.propagate(call.map(Word::Bytes));
}

/// Reports a change of a group: an event, and one change.
fn report(ctx: &mut Ctx<'_>, event: &'static str, key: &[u8]) {
    ctx.keys.notify(Classes::STREAM, event, key);
    ctx.keys.count_changes(1);
}

#[cfg(test)]
mod tests {
    use crate::testing::TestDb;
    use redline_keyspace::Classes;
    use redline_resp::Proto;

    /// Returns a database with a stream `s` of the entries 1-0 to 5-0, and a group `g` that has read nothing.
    fn filled() -> TestDb {
        let mut db = TestDb::new();
        for id in 1..=5 {
            db.words(&format!("XADD s {id} f v{id}"));
        }
        db.words("XGROUP CREATE s g 0");
        db.events();
        db
    }

    fn changes(db: &mut TestDb, line: &str) -> u64 {
        db.words(line);
        db.changes
    }

    #[test]
    fn groups_are_made_moved_and_destroyed() {
        let mut db = TestDb::new();
        let no_key = "-ERR The XGROUP subcommand requires the key to exist. Note that for CREATE you may want to use \
                      the MKSTREAM option to create an empty stream automatically.";
        let arity = |name: &str| {
            format!(
                "-ERR unknown subcommand or wrong number of arguments for '{name}'. Try XGROUP HELP."
            )
        };
        db.script(&[
            ("XGROUP CREATE s g $", no_key),
            ("XGROUP DESTROY s g", no_key),
            ("XGROUP CREATE s g $ MORE", &arity("CREATE")),
            ("XGROUP create s g $ ENTRIESREAD", &arity("create")),
            (
                "XGROUP CREATE s g x MKSTREAM",
                "-ERR Invalid stream ID specified as stream command argument",
            ),
            ("EXISTS s", ":0"),
            ("XGROUP CREATE s g $ MKSTREAM", "+OK"),
            (
                "XGROUP CREATE s g $",
                "-BUSYGROUP Consumer Group name already exists",
            ),
            (
                "XGROUP CREATE s g 0 ENTRIESREAD -2",
                "-ERR value for ENTRIESREAD must be positive or -1",
            ),
            (
                "XGROUP CREATE s g 0 MKSTREAM MKSTREAM MKSTREAM MKSTREAM",
                &arity("CREATE"),
            ),
            ("XGROUP SETID s g 5 ENTRIESREAD 7", "+OK"),
            ("XGROUP SETID s g 5 MKSTREAM", &arity("SETID")),
            (
                "XGROUP SETID s h 5",
                "-NOGROUP No such consumer group 'h' for key name 's'",
            ),
            ("XGROUP CREATECONSUMER s g c", ":1"),
            ("XGROUP CREATECONSUMER s g c", ":0"),
            ("XGROUP DELCONSUMER s g d", ":0"),
            ("XGROUP DELCONSUMER s g c", ":0"),
            ("XGROUP DESTROY s g", ":1"),
            ("XGROUP DESTROY s g", ":0"),
            ("SET str x", "+OK"),
            (
                "XGROUP CREATE str g $",
                "-WRONGTYPE Operation against a key holding the wrong kind of value",
            ),
        ]);
        let expected = [
            "xgroup-create s",
            "xgroup-setid s",
            "xgroup-createconsumer s",
            "xgroup-delconsumer s",
            "xgroup-destroy s",
            "set str",
        ];
        assert_eq!(db.events(), expected);
    }

    #[test]
    fn a_consumer_reads_new_entries_and_its_own() {
        let mut db = filled();
        db.script(&[
            (
                "XREADGROUP GROUP g a COUNT 1 STREAMS s >",
                "*1|*2|$1|s|*1|*2|$3|1-0|*2|$1|f|$2|v1",
            ),
            (
                "XREADGROUP GROUP g b NOACK COUNT 1 STREAMS s >",
                "*1|*2|$1|s|*1|*2|$3|2-0|*2|$1|f|$2|v2",
            ),
            ("XREADGROUP GROUP g b STREAMS s 0", "*1|*2|$1|s|*0"),
            ("XDEL s 1-0", ":1"),
            ("XREADGROUP GROUP g a STREAMS s 0", "*1|*2|$1|s|*1|*2|$3|1-0|*-1"),
            ("XPENDING s g", "*4|:1|$3|1-0|$3|1-0|*1|*2|$1|a|$1|1"),
            ("XACK s g 1-0 1-0 9-9", ":1"),
            ("XPENDING s g", "*4|:0|$-1|$-1|*-1"),
            (
                "XREADGROUP GROUP g a STREAMS s n 0 0",
                "-NOGROUP No such key 'n' or consumer group 'g' in XREADGROUP with GROUP option",
            ),
            ("XREADGROUP GROUP g a BLOCK 5 STREAMS s 0", "*1|*2|$1|s|*0"),
            ("XREADGROUP COUNT 1 NOACK STREAMS s >", "-ERR Missing GROUP option for XREADGROUP"),
            (
                "XREADGROUP GROUP g a STREAMS s s >",
                "-ERR Unbalanced 'xreadgroup' list of streams: for each stream key an ID or '>' must be specified.",
            ),
        ]);
        db.proto = Proto::Resp3;
        assert!(
            db.words("XREADGROUP GROUP g a STREAMS s >")
                .starts_with("%1|$1|s|*3|")
        );
        assert_eq!(db.words("XREADGROUP GROUP g a STREAMS s >"), "_");
    }

    #[test]
    fn changes_are_counted_and_announced_as_redis_does() {
        let mut db = filled();
        for (line, expected) in [
            ("XREADGROUP GROUP g a COUNT 3 STREAMS s >", 2),
            ("XREADGROUP GROUP g a NOACK COUNT 1 STREAMS s >", 1),
            ("XREADGROUP GROUP g a STREAMS s 0", 0),
            ("XREADGROUP GROUP g b STREAMS s 0", 1),
            ("XACK s g 1-0", 1),
            ("XCLAIM s g c 0 2-0", 2),
            ("XCLAIM s g c 0 9-9 LASTID 20", 1),
            ("XAUTOCLAIM s g d 0 0", 3),
            ("XACKDEL s g ACKED IDS 1 2-0", 1),
        ] {
            assert_eq!(changes(&mut db, line), expected, "{line}");
        }
        let expected = [
            "xgroup-createconsumer s",
            "xgroup-createconsumer s",
            "xgroup-createconsumer s",
            "xgroup-createconsumer s",
            "xdel s",
        ];
        assert_eq!(db.events(), expected);
    }

    #[test]
    fn a_wrong_xautoclaim_looks_for_its_key_all_the_same() {
        let mut db = TestDb::new();
        db.local.notify = Classes::KEY_MISS;
        for line in ["XAUTOCLAIM n g c x 0", "XAUTOCLAIM n g c 0 0 COUNT 0"] {
            assert!(db.words(line).starts_with("-ERR"));
            assert_eq!(db.events(), ["keymiss n"], "{line}");
        }
    }

    #[test]
    fn entries_are_claimed() {
        let mut db = filled();
        db.words("XREADGROUP GROUP g a STREAMS s >");
        db.pass_ms(50);
        db.words("XDEL s 2-0");
        db.script(&[
            ("XCLAIM s g b 51 1-0", "*0"),
            ("XCLAIM s g b 50 1-0", "*1|*2|$3|1-0|*2|$1|f|$2|v1"),
            (
                "XCLAIM s g b 0 1-0 JUSTID RETRYCOUNT 7 IDLE 1000",
                "*1|$3|1-0",
            ),
            ("XCLAIM s g b 0 2-0", "*0"),
            ("XPENDING s g - + 10 b", "*1|*4|$3|1-0|$1|b|:1000|:7"),
            (
                "XPENDING s g IDLE 60 - (3-0 10",
                "*1|*4|$3|1-0|$1|b|:1000|:7",
            ),
            (
                "XAUTOCLAIM s g c 50 0 COUNT 1 JUSTID",
                "*3|$3|3-0|*1|$3|1-0|*0",
            ),
            ("XDEL s 3-0", ":1"),
            ("XAUTOCLAIM s g c 0 3-0 COUNT 1", "*3|$3|4-0|*0|*1|$3|3-0"),
            ("XAUTOCLAIM s g c 0 (4-0 JUSTID", "*3|$3|0-0|*1|$3|5-0|*0"),
            ("XAUTOCLAIM s g c 0 0 COUNT 0", "-ERR COUNT must be > 0"),
            (
                "XCLAIM s g b 0 1-0 MORE",
                "-ERR Unrecognized XCLAIM option 'MORE'",
            ),
            (
                "XCLAIM s h b 0 1-0",
                "-NOGROUP No such key 's' or consumer group 'h'",
            ),
            ("XACK s g 1-0", ":1"),
            ("XCLAIM s g b 0 1-0 FORCE JUSTID", "*1|$3|1-0"),
            ("XPENDING s g 1-0 1-0 1", "*1|*4|$3|1-0|$1|b|:0|:1"),
        ]);
    }

    #[test]
    fn deletions_respect_what_groups_need() {
        let mut db = filled();
        db.script(&[
            ("XGROUP CREATE s h 0", "+OK"),
            (
                "XREADGROUP GROUP h b NOACK COUNT 4 STREAMS s >",
                &db_entries(1..=4),
            ),
            (
                "XREADGROUP GROUP g a COUNT 3 STREAMS s >",
                &db_entries(1..=3),
            ),
            ("XACKDEL s g IDS 2 1-0 4-0", "*2|:1|:-1"),
            ("XDELEX s ACKED IDS 4 1-0 2-0 4-0 5-0", "*4|:-1|:2|:2|:2"),
            ("XTRIM s MAXLEN 0 ACKED", ":0"),
            ("XACK s g 2-0", ":1"),
            ("XTRIM s MAXLEN 0 ACKED", ":1"),
            ("XDELEX s DELREF IDS 1 3-0", "*1|:1"),
            ("XPENDING s g", "*4|:0|$-1|$-1|*-1"),
            ("XADD s DELREF MAXLEN 1 9 f v", "$3|9-0"),
            ("XLEN s", ":1"),
            (
                "XDELEX s IDS 2 9-0",
                "-ERR The `numids` parameter must match the number of arguments",
            ),
            (
                "XDELEX s IDS 0 9-0",
                "-ERR Number of IDs must be a positive integer",
            ),
            ("XDELEX s IDS 1 9-0 9-0", "-ERR syntax error"),
            ("XACKDEL none g IDS 2 a b", "*2|:-1|:-1"),
        ]);
    }

    /// Returns the reply of XREADGROUP for these entries of `s`.
    fn db_entries(ids: std::ops::RangeInclusive<u32>) -> String {
        let head = format!("*1|*2|$1|s|*{}", ids.clone().count());
        ids.fold(head, |text, id| {
            text + &format!("|*2|$3|{id}-0|*2|$1|f|$2|v{id}")
        })
    }

    #[test]
    fn a_copy_has_the_groups_of_its_own() {
        let mut db = filled();
        db.script(&[
            (
                "XREADGROUP GROUP g a COUNT 1 STREAMS s >",
                &db_entries(1..=1),
            ),
            ("COPY s t", ":1"),
            ("XACK s g 1-0", ":1"),
            ("XPENDING t g", "*4|:1|$3|1-0|$3|1-0|*1|*2|$1|a|$1|1"),
            ("XGROUP DESTROY t g", ":1"),
            ("XPENDING s g", "*4|:0|$-1|$-1|*-1"),
        ]);
    }

    #[test]
    fn names_in_errors_end_at_a_zero_byte() {
        let mut db = filled();
        let reply = db.run(&[&b"XPENDING"[..], b"s", b"no\0body\r\n"]);
        assert_eq!(reply, "-NOGROUP No such key 's' or consumer group 'no'");
    }
}
