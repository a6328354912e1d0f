//! Commands of the group `stream`.

use redline_keyspace::{Classes, Found, Trace, journal::Word};
use redline_resp::{Args, Reply};
use redline_spec::CommandId;
use redline_types::{
    DataType, Limits, Stream,
    number::IntText,
    stream::{AddError, Deletion, Entry, IdBound, NewId, References, StreamId, Trim, TrimTo},
};

use crate::{
    Ctx, Error, Failure, word,
    words::{FromWord, Words, integer_in},
};

pub(crate) const INVALID_ID: Error =
    Error::line("ERR Invalid stream ID specified as stream command argument");

/// XADD key [NOMKSTREAM] [KEEPREF | DELREF | ACKED] [MAXLEN | MINID [= | ~] threshold [LIMIT count]] * | id field value
/// [field value …]
pub(crate) fn xadd(
    ctx: &mut Ctx<'_>,
    args: Args<'_>,
    reply: &mut Reply<'_>,
) -> Result<(), Failure> {
    let options = Options::parse(
        Words::new(CommandId::Xadd, &args, 2),
        &ctx.keys.local.limits,
    )?;
    let fields = args.from(options.end + 1);
    if fields.is_empty() || !fields.len().is_multiple_of(2) {
        return Err(Error::wrong_arity("xadd").into());
    }
    let id = options.id.unwrap_or(NewId::Auto);
    if id == NewId::Exact(StreamId::MIN) {
        return Err(add_error(AddError::Zero).into());
    }
    let now_ms = ctx.keys.now_ms().max(0) as u64;
    let mut failed = None;
    let found = ctx.keys.find(&args[1], Trace::Quiet);
    let existed = found.map(Found::len::<Stream>).transpose()?.is_some();
    let added =
        ctx.keys
            .write_or_new_if::<Stream, _>(
                &args[1],
                !options.no_make,
                |stream, limits| match stream.add(id, now_ms, fields.iter(), limits) {
                    Ok(id) => {
                        let trimmed = options
                            .trim
                            .as_ref()
                            .map_or(0, |trim| stream.trim(trim, options.references));
                        Some((id, trimmed))
                    }
                    Err(error) => {
                        failed = Some(error);
                        None
                    }
                },
            )?;
    let Some(added) = added else {
        reply.null();
        return Ok(());
    };
    let Some((id, trimmed)) = added else {
        if !existed {
            // Removes a stream that was created for an entry that it refused.
            ctx.keys.remove(&args[1]);
        }
        return Err(add_error(failed.unwrap_or(AddError::TooSmall)).into());
    };
    ctx.keys.changed(Classes::STREAM, "xadd", &args[1]);
    if trimmed > 0 {
        ctx.keys.notify(Classes::STREAM, "xtrim", &args[1]);
    }
    if ctx.keys.is_journaled() {
        // Journals the actual values of an id from the clock and of an approximate trim.
        let found = ctx.keys.find(&args[1], Trace::Quiet);
        let len = found.map(Found::len::<Stream>).transpose()?.unwrap_or(0);
        let (id, len) = (id.to_string(), IntText::new(len as i64));
        let trim = match trimmed {
            0 => Vec::new(),
            _ => exact_trim(&len, options.references)
                .unwrap_or_else(|| args.from(2).first(options.end - 2).iter().collect()),
        };
        let words = [&b"XADD"[..], &args[1]].into_iter();
        let words = words.chain(trim).chain([id.as_bytes()]);
        let fields = (options.end + 1..args.len()).map(|index| word(args, index));
        ctx.keys.propagate(words.map(Word::Bytes).chain(fields));
    }
    write_id(reply, id);
    Ok(())
}

/// Returns the options that trim a stream to the length that it has after a trim: they go as far everywhere. Not if entries
/// had to be acknowledged: which ones go then depends on more than the number.
fn exact_trim(len: &IntText, references: References) -> Option<Vec<&[u8]>> {
    let mut words: Vec<&[u8]> = vec![b"MAXLEN", b"=", len.as_ref()];
    match references {
        References::Keep => {}
        References::Delete => words.push(b"DELREF"),
        References::Respect => return None,
    }
    Some(words)
}

fn add_error(error: AddError) -> Error {
    Error::line(match error {
        AddError::Zero => "ERR The ID specified in XADD must be greater than 0-0",
        AddError::TooSmall => {
            "ERR The ID specified in XADD is equal or smaller than the target stream top item"
        }
        AddError::Exhausted => {
            "ERR The stream has exhausted the last possible ID, unable to add more items"
        }
        AddError::TooLarge => "ERR Elements are too large to be stored",
    })
}

/// Common options of XADD and XTRIM, up to the id.
struct Options {
    no_make: bool,
    trim: Option<Trim>,
    references: References,
    id: Option<NewId>,
    /// Position of the id, where the options end.
    end: usize,
}

impl Options {
    fn parse(mut words: Words<'_>, limits: &Limits) -> Result<Options, Error> {
        const BOTH: Error = Error::line(
            "ERR syntax error, MAXLEN and MINID options at the same time are not compatible",
        );
        const LIMIT_OF_EXACT: Error =
            Error::line("ERR syntax error, LIMIT cannot be used without the special ~ option");
        let adds = words.id() == CommandId::Xadd;
        let mut options = Options {
            no_make: false,
            trim: None,
            references: References::Keep,
            id: None,
            end: 2,
        };
        let mut limit = None;
        let mut references = None;
        while let Some(word) = words.peek() {
            if adds && word == b"*" {
                options.id = Some(NewId::Auto);
                break;
            }
            if words.len() > 1
                && let Some(by_len) = words.one_of(&[("MAXLEN", true), ("MINID", false)])
            {
                if options.trim.is_some() {
                    return Err(BOTH);
                }
                options.trim = Some(trim(&mut words, by_len)?);
            } else if let Some(value) = words.pair::<i64>("LIMIT")? {
                limit = Some(
                    u64::try_from(value)
                        .map_err(|_| Error::line("ERR The LIMIT argument must be >= 0."))?,
                );
            } else if adds && words.flag("NOMKSTREAM") {
                options.no_make = true;
            } else if references.is_none()
                && let Some(given) = words.one_of(REFERENCES)
            {
                references = Some(given);
            } else if adds {
                options.id = Some(NewId::parse(word).map_err(|_| INVALID_ID)?);
                break;
            } else {
                return Err(Error::Syntax);
            }
        }
        options.end = words.at();
        match (&mut options.trim, limit) {
            (None, Some(1..)) => {
                return Err(Error::line(
                    "ERR syntax error, LIMIT cannot be used without specifying a trimming strategy",
                ));
            }
            (None, _) if !adds => {
                return Err(Error::line(
                    "ERR syntax error, XTRIM must be called with a trimming strategy",
                ));
            }
            (None, Some(_)) => return Err(LIMIT_OF_EXACT),
            (Some(trim), Some(_)) if !trim.approximate => return Err(LIMIT_OF_EXACT),
            (Some(trim), Some(limit)) => trim.limit = limit,
            (Some(trim), None) if trim.approximate => trim.limit = Trim::limit_default(limits),
            (Some(_), None) => {}
            (None, None) => {}
        }
        options.references = references.unwrap_or(References::Keep);
        Ok(options)
    }
}

/// Reads a threshold and its `=` or `~`; the limit of the result is that of an exact one.
fn trim(words: &mut Words<'_>, by_len: bool) -> Result<Trim, Error> {
    const NEGATIVE: Error = Error::line("ERR The MAXLEN argument must be >= 0.");
    let approximate = match words.len() {
        2.. => words.one_of(&[("~", true), ("=", false)]),
        _ => None,
    };
    let to = if by_len {
        TrimTo::MaxLen(u64::try_from(words.read::<i64>()?).map_err(|_| NEGATIVE)?)
    } else {
        TrimTo::MinId(words.read()?)
    };
    Ok(Trim {
        to,
        approximate: approximate.unwrap_or(false),
        limit: 0,
    })
}

/// Words for references to entries that are removed.
const REFERENCES: &[(&str, References)] = &[
    ("KEEPREF", References::Keep),
    ("DELREF", References::Delete),
    ("ACKED", References::Respect),
];

/// Ids that XDELEX and XACKDEL name, and the handling of references to them.
pub(crate) struct Victims<'a> {
    pub(crate) references: References,
    ids: Args<'a>,
}

impl<'a> Victims<'a> {
    /// Reads `[KEEPREF | DELREF | ACKED] IDS numids id [id …]`, in any order.
    pub(crate) fn parse(mut words: Words<'a>) -> Result<Victims<'a>, Error> {
        const BAD_COUNT: Error = Error::line("ERR Number of IDs must be a positive integer");
        const TOO_MANY: Error =
            Error::line("ERR The `numids` parameter must match the number of arguments");
        let (mut references, mut ids) = (None, None);
        while !words.is_empty() {
            if let Some(count) = words.value("IDS") {
                let count = integer_in(count, 1.., BAD_COUNT)?;
                ids = Some(words.take_args(count as usize).ok_or(TOO_MANY)?);
            } else if references.is_none()
                && let Some(given) = words.one_of(REFERENCES)
            {
                references = Some(given);
            } else {
                return Err(Error::Syntax);
            }
        }
        Ok(Victims {
            references: references.unwrap_or(References::Keep),
            ids: ids.ok_or(Error::Syntax)?,
        })
    }

    pub(crate) fn len(&self) -> usize {
        self.ids.len()
    }

    pub(crate) fn ids(&self) -> Result<Vec<StreamId>, Error> {
        ids(self.ids)
    }

    /// Writes the reply for a key or group that does not exist.
    pub(crate) fn reply_missing(&self, reply: &mut Reply<'_>) {
        reply.array(self.len());
        (0..self.len()).for_each(|_| reply.integer(MISSING));
    }
}

/// Replies of XDELEX and XACKDEL for one id.
const MISSING: i64 = -1;
const DONE: i64 = 1;
const NEEDED: i64 = 2;

pub(crate) fn deletion_reply(deletion: Deletion) -> i64 {
    match deletion {
        Deletion::Done => DONE,
        Deletion::Missing => MISSING,
        Deletion::Needed => NEEDED,
    }
}

/// Ids of entries.
pub(crate) fn ids(args: Args<'_>) -> Result<Vec<StreamId>, Error> {
    args.iter().map(entry_id).collect()
}

/// Reads the id of an entry.
pub(crate) fn entry_id(text: &[u8]) -> Result<StreamId, Error> {
    StreamId::parse(text, 0).map_err(|_| INVALID_ID)
}

impl FromWord<'_> for StreamId {
    fn from_word(word: &[u8]) -> Result<StreamId, Error> {
        entry_id(word)
    }
}

/// XDELEX key [KEEPREF | DELREF | ACKED] IDS numids id [id …]
pub(crate) fn xdelex(
    ctx: &mut Ctx<'_>,
    args: Args<'_>,
    reply: &mut Reply<'_>,
) -> Result<(), Failure> {
    let key = &args[1];
    let found = ctx.keys.find(key, Trace::Quiet);
    let exists = found.map(Found::len::<Stream>).transpose()?.is_some();
    let victims = Victims::parse(Words::new(CommandId::Xdelex, &args, 2))?;
    if !exists {
        victims.reply_missing(reply);
        return Ok(());
    }
    let ids = victims.ids()?;
    reply.array(ids.len());
    let deleted = ctx.keys.write::<Stream, _>(key, |stream, _| {
        let mut deleted = 0;
        for id in ids {
            let deletion = stream.delete(id, victims.references);
            deleted += u64::from(deletion == Deletion::Done);
            reply.integer(deletion_reply(deletion));
        }
        deleted
    })?;
    report_deleted(ctx, key, deleted.unwrap_or(0));
    Ok(())
}

/// Reports that this number of entries was deleted.
fn report_deleted(ctx: &mut Ctx<'_>, key: &[u8], deleted: u64) {
    if deleted > 0 {
        ctx.keys.changed(Classes::STREAM, "xdel", key);
        ctx.keys.count_changes(deleted - 1);
    }
}

/// XTRIM key MAXLEN | MINID [= | ~] threshold [LIMIT count] [KEEPREF | DELREF | ACKED]
pub(crate) fn xtrim(
    ctx: &mut Ctx<'_>,
    args: Args<'_>,
    reply: &mut Reply<'_>,
) -> Result<(), Failure> {
    let options = Options::parse(
        Words::new(CommandId::Xtrim, &args, 2),
        &ctx.keys.local.limits,
    )?;
    let trim = options.trim.ok_or(Error::Syntax)?;
    let removed = ctx
        .keys
        .write::<Stream, _>(&args[1], |stream, _| stream.trim(&trim, options.references))?
        .unwrap_or(0);
    if removed > 0 {
        if ctx.keys.is_journaled() {
            let found = ctx.keys.find(&args[1], Trace::Quiet);
            let len = found.map(Found::len::<Stream>).transpose()?.unwrap_or(0);
            let len = IntText::new(len as i64);
            if let Some(trim) = exact_trim(&len, options.references) {
                let words = [&b"XTRIM"[..], &args[1]].into_iter().chain(trim);
                ctx.keys.propagate(words.map(Word::Bytes));
            }
        }
        ctx.keys.changed(Classes::STREAM, "xtrim", &args[1]);
        ctx.keys.count_changes(removed - 1);
    }
    reply.integer(removed as i64);
    Ok(())
}

/// XLEN key
pub(crate) fn xlen(
    ctx: &mut Ctx<'_>,
    args: Args<'_>,
    reply: &mut Reply<'_>,
) -> Result<(), Failure> {
    let stream = ctx.keys.read::<Stream>(&args[1])?;
    reply.integer(stream.map_or(0, |stream| stream.len() as i64));
    Ok(())
}

/// XDEL key id [id …]
pub(crate) fn xdel(
    ctx: &mut Ctx<'_>,
    args: Args<'_>,
    reply: &mut Reply<'_>,
) -> Result<(), Failure> {
    let found = ctx.keys.find(&args[1], Trace::Write);
    if found.map(Found::len::<Stream>).transpose()?.is_none() {
        reply.integer(0);
        return Ok(());
    }
    let ids = ids(args.from(2))?;
    let deleted = ctx.keys.write::<Stream, _>(&args[1], |stream, _| {
        let done = |id: &&StreamId| stream.delete(**id, References::Keep) == Deletion::Done;
        ids.iter().filter(done).count()
    })?;
    let deleted = deleted.unwrap_or(0);
    report_deleted(ctx, &args[1], deleted as u64);
    reply.integer(deleted as i64);
    Ok(())
}

/// XRANGE key start end [COUNT count]
pub(crate) fn xrange(
    ctx: &mut Ctx<'_>,
    args: Args<'_>,
    reply: &mut Reply<'_>,
) -> Result<(), Failure> {
    let words = Words::new(CommandId::Xrange, &args, 4);
    Ok(range(ctx, args, words, reply)?)
}

/// XREVRANGE key end start [COUNT count]
pub(crate) fn xrevrange(
    ctx: &mut Ctx<'_>,
    args: Args<'_>,
    reply: &mut Reply<'_>,
) -> Result<(), Failure> {
    let words = Words::new(CommandId::Xrevrange, &args, 4);
    Ok(range(ctx, args, words, reply)?)
}

fn range(
    ctx: &mut Ctx<'_>,
    args: Args<'_>,
    mut words: Words<'_>,
    reply: &mut Reply<'_>,
) -> Result<(), Error> {
    const NO_START: Error = Error::line("ERR invalid start ID for the interval");
    const NO_END: Error = Error::line("ERR invalid end ID for the interval");
    let backwards = words.id() == CommandId::Xrevrange;
    let (start, end) = if backwards {
        (&args[3], &args[2])
    } else {
        (&args[2], &args[3])
    };
    let start = IdBound::parse(start, 0)
        .map_err(|_| INVALID_ID)?
        .first()
        .ok_or(NO_START)?;
    let end = IdBound::parse(end, u64::MAX)
        .map_err(|_| INVALID_ID)?
        .last()
        .ok_or(NO_END)?;
    let mut count = None;
    while !words.is_empty() {
        let given = words.pair::<i64>("COUNT")?.ok_or(Error::Syntax)?;
        count = Some(usize::try_from(given).unwrap_or(0));
    }
    let Some(stream) = ctx.keys.read::<Stream>(&args[1])? else {
        reply.array(0);
        return Ok(());
    };
    if count == Some(0) {
        reply.null_array();
        return Ok(());
    }
    let most = count.unwrap_or(usize::MAX);
    let mark = reply.mark();
    let mut entries = 0;
    let mut write = |entry: Entry<'_>| {
        write_entry(reply, &entry);
        entries += 1;
    };
    if backwards {
        stream
            .range_backwards(start, end)
            .take(most)
            .for_each(&mut write);
    } else {
        stream.range(start, end).take(most).for_each(&mut write);
    }
    reply.insert_array_header(mark, entries);
    Ok(())
}

/// XSETID key last-id [ENTRIESADDED entries] [MAXDELETEDID id]
pub(crate) fn xsetid(
    ctx: &mut Ctx<'_>,
    args: Args<'_>,
    reply: &mut Reply<'_>,
) -> Result<(), Failure> {
    let last_id = entry_id(&args[2])?;
    let (mut entries_added, mut max_deleted_id) = (None, None);
    let mut words = Words::new(CommandId::Xsetid, &args, 3);
    while !words.is_empty() {
        if let Some(entries) = words.pair::<i64>("ENTRIESADDED")? {
            let entries = u64::try_from(entries)
                .map_err(|_| Error::line("ERR entries_added must be positive"))?;
            entries_added = Some(entries);
        } else if let Some(id) = words.pair::<StreamId>("MAXDELETEDID")? {
            if last_id < id {
                return Err(Error::line(
                    "ERR The ID specified in XSETID is smaller than the provided max_deleted_entry_id",
                ).into());
            }
            max_deleted_id = Some(id);
        } else {
            return Err(Error::Syntax.into());
        }
    }
    let found = ctx.keys.find(&args[1], Trace::Quiet);
    let stream = found.map(Found::collection::<Stream>).transpose()?;
    let log = stream.ok_or(Error::NoSuchKey)?.log();
    if last_id < log.max_deleted_id() {
        return Err(Error::line(
            "ERR The ID specified in XSETID is smaller than current max_deleted_entry_id",
        )
        .into());
    }
    if log.last_entry().is_some_and(|entry| last_id < entry.id) {
        return Err(Error::line(
            "ERR The ID specified in XSETID is smaller than the target stream top item",
        )
        .into());
    }
    if entries_added.is_some_and(|entries| entries < log.len()) {
        return Err(Error::line(
            "ERR The entries_added specified in XSETID is smaller than the target stream length",
        )
        .into());
    }
    // No entry has the id 0-0, so 0-0 means no change.
    let max_deleted_id = max_deleted_id.filter(|id| *id != StreamId::MIN);
    ctx.keys.write::<Stream, _>(&args[1], |stream, _| {
        stream.set_counters(last_id, entries_added, max_deleted_id);
    })?;
    ctx.keys.notify(Classes::STREAM, "xsetid", &args[1]);
    ctx.keys.count_changes(1);
    reply.ok();
    Ok(())
}

pub(crate) fn write_entry(reply: &mut Reply<'_>, entry: &Entry<'_>) {
    reply.array(2);
    write_id(reply, entry.id);
    let fields = entry.fields();
    reply.array(fields.len() * 2);
    for (field, value) in fields {
        reply.bulk(field);
        reply.bulk(value);
    }
}

pub(crate) fn write_id(reply: &mut Reply<'_>, id: StreamId) {
    let mut text = Vec::with_capacity(2 * 20 + 1);
    id.format(&mut text);
    reply.bulk(&text);
}

#[cfg(test)]
mod tests {
    use crate::testing::TestDb;

    #[test]
    fn adding_and_reading() {
        let mut db = TestDb::new();
        db.script(&[
            ("XADD s 1-1 a 1", "$3|1-1"),
            ("XADD s 1-* a 2 b 3", "$3|1-2"),
            (
                "XADD s 1-1 a 1",
                "-ERR The ID specified in XADD is equal or smaller than the target stream top item",
            ),
            (
                "XADD s 0-0 a 1",
                "-ERR The ID specified in XADD must be greater than 0-0",
            ),
            (
                "XADD t 0-0 a 1",
                "-ERR The ID specified in XADD must be greater than 0-0",
            ),
            ("EXISTS t", ":0"),
            ("XADD t NOMKSTREAM * a 1", "$-1"),
            (
                "XADD s x a 1",
                "-ERR Invalid stream ID specified as stream command argument",
            ),
            ("XLEN s", ":2"),
            (
                "XRANGE s - +",
                "*2|*2|$3|1-1|*2|$1|a|$1|1|*2|$3|1-2|*4|$1|a|$1|2|$1|b|$1|3",
            ),
            (
                "XREVRANGE s + (1-1 COUNT 5",
                "*1|*2|$3|1-2|*4|$1|a|$1|2|$1|b|$1|3",
            ),
            ("XRANGE s - + COUNT 0", "*-1"),
            ("XRANGE none - +", "*0"),
            ("XDEL s 1-1 9-9", ":1"),
            ("XLEN s", ":1"),
            ("XADD s * c 1", "$15|1700000000000-0"),
        ]);
        assert_eq!(db.events(), ["xadd s", "xadd s", "xdel s", "xadd s"]);
    }

    #[test]
    fn trimming() {
        let mut db = TestDb::new();
        for id in 1..=10 {
            db.words(&format!("XADD s {id} f v"));
        }
        db.script(&[
            ("XTRIM s MAXLEN 8", ":2"),
            ("XTRIM s MINID 6", ":3"),
            ("XTRIM s MAXLEN ~ 1", ":0"),
            (
                "XTRIM s MAXLEN 1 LIMIT 5",
                "-ERR syntax error, LIMIT cannot be used without the special ~ option",
            ),
            (
                "XTRIM s MAXLEN -1",
                "-ERR The MAXLEN argument must be >= 0.",
            ),
            (
                "XTRIM s MAXLEN 1 MINID 2",
                "-ERR syntax error, MAXLEN and MINID options at the same time are not compatible",
            ),
            ("XTRIM s LEN 1", "-ERR syntax error"),
            (
                "XADD s LIMIT 0 * f v",
                "-ERR syntax error, LIMIT cannot be used without the special ~ option",
            ),
            (
                "XADD s LIMIT 5 * f v",
                "-ERR syntax error, LIMIT cannot be used without specifying a trimming strategy",
            ),
            (
                "XTRIM s LIMIT 0",
                "-ERR syntax error, XTRIM must be called with a trimming strategy",
            ),
            (
                "XTRIM s LIMIT 5",
                "-ERR syntax error, LIMIT cannot be used without specifying a trimming strategy",
            ),
            ("XADD s MAXLEN = 2 * f v", "$15|1700000000000-0"),
            ("XLEN s", ":2"),
            ("XTRIM s MAXLEN 0", ":2"),
            ("EXISTS s", ":1"),
        ]);
    }
}
