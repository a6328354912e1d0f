//! XREAD: entries after given ids, of several streams; may block for some.

use redline_resp::{Args, ArgsBuf, Proto, Reply};
use redline_spec::CommandId;
use redline_types::{Kind, Stream, stream::StreamId};

use crate::{
    Ctx, Error, Failure,
    block::{self, Block},
    stream::{INVALID_ID, write_entry},
    words::Words,
};

/// Options of a call, and the positions of its keys and ids.
struct Options {
    count: usize,
    /// `BLOCK` with its timeout in milliseconds.
    block: Option<Option<u64>>,
    /// Position of the first key; as many ids follow the keys.
    first: usize,
    streams: usize,
}

impl Options {
    fn parse(ctx: &Ctx<'_>, args: Args<'_>) -> Result<Options, Error> {
        let mut options = Options {
            count: usize::MAX,
            block: None,
            first: 0,
            streams: 0,
        };
        // Redis reads the words of XREADGROUP, to name those that are not valid for XREAD.
        let mut words = Words::new(CommandId::Xreadgroup, &args, 1);
        while !words.is_empty() {
            if let Some(timeout) = words.value("BLOCK") {
                options.block = Some(block::milliseconds(ctx, timeout)?);
            } else if let Some(count) = words.pair::<i64>("COUNT")? {
                options.count = match count {
                    ..=0 => usize::MAX,
                    count => count as usize,
                };
            } else if words.len() > 1 && words.flag("STREAMS") {
                if !words.len().is_multiple_of(2) {
                    return Err(Error::line(
                        "ERR Unbalanced 'xread' list of streams: for each stream key an ID, '+', or '$' must be specified.",
                    ));
                }
                (options.first, options.streams) = (words.at(), words.len() / 2);
                return Ok(options);
            } else if words.values::<2>("GROUP").is_some() {
                return Err(Error::line(
                    "ERR The GROUP option is only supported by XREADGROUP. You called XREAD instead.",
                ));
            } else if words.flag("NOACK") {
                return Err(Error::line(
                    "ERR The NOACK option is only supported by XREADGROUP. You called XREAD instead.",
                ));
            } else {
                return Err(Error::Syntax);
            }
        }
        Err(Error::Syntax)
    }
}

/// XREAD [COUNT count] [BLOCK milliseconds] STREAMS key [key …] id [id …]
pub(crate) fn xread(
    ctx: &mut Ctx<'_>,
    args: Args<'_>,
    reply: &mut Reply<'_>,
) -> Result<(), Failure> {
    let options = Options::parse(ctx, args)?;
    let keys = args.from(options.first).first(options.streams);
    let texts = args.from(options.first + options.streams);
    let mut after = Vec::new();
    for (key, text) in keys.iter().zip(texts.iter()) {
        let stream = ctx.keys.read::<Stream>(key)?;
        after.push(match text {
            b"$" => stream.map_or(StreamId::MIN, |stream| stream.log().last_id()),
            b"+" => stream.map_or(StreamId::MIN, |stream| {
                let log = stream.log();
                let before = log.last_entry().and_then(|last| last.id.previous());
                before.unwrap_or(log.last_id())
            }),
            b">" => {
                return Err(Error::line(
                    "ERR The > ID can be specified only when calling XREADGROUP using the GROUP <group> <consumer> option.",
                ).into());
            }
            _ => StreamId::parse(text, 0).map_err(|_| INVALID_ID)?,
        });
    }
    let head = reply.mark();
    let mut found = 0;
    for (key, after) in keys.iter().zip(&after) {
        // A second lookup, which counts as an access, as in Redis.
        let Some(stream) = ctx.keys.read::<Stream>(key)? else {
            continue;
        };
        let Some(from) = after.next() else { continue };
        let mut entries = stream
            .log()
            .range(from, StreamId::MAX)
            .take(options.count)
            .peekable();
        if entries.peek().is_none() {
            continue;
        }
        found += 1;
        if reply.proto() == Proto::Resp2 {
            reply.array(2);
        }
        reply.bulk(key);
        let (mark, mut len) = (reply.mark(), 0);
        for entry in entries {
            write_entry(reply, &entry);
            len += 1;
        }
        reply.insert_array_header(mark, len);
    }
    if found > 0 {
        match reply.proto() {
            Proto::Resp2 => reply.insert_array_header(head, found),
            Proto::Resp3 => reply.insert_map_header(head, found),
        }
        return Ok(());
    }
    reply.null_array();
    let Some(timeout_ms) = options.block else {
        return Ok(());
    };
    let end = options.first + options.streams;
    let mut block = Block::on(Kind::Stream, options.first..end, timeout_ms);
    if texts.iter().any(|text| text == b"$") {
        block.call = Some(with_ids(args, end, &after));
    }
    Err(block.into())
}

/// Returns the call with ids in place of each `$`: the last ids of now, not of the time when the call is run again.
fn with_ids(args: Args<'_>, ids_at: usize, ids: &[StreamId]) -> ArgsBuf {
    let mut call: ArgsBuf = args.first(ids_at).iter().collect();
    for (text, id) in args.from(ids_at).iter().zip(ids) {
        match text {
            b"$" => call.push(id.to_string().as_bytes()),
            text => call.push(text),
        }
    }
    call
}

#[cfg(test)]
mod tests {
    use crate::testing::TestDb;
    use redline_resp::Proto;

    #[test]
    fn entries_behind_ids() {
        let mut db = TestDb::new();
        db.script(&[
            ("XREAD STREAMS s 0", "*-1"),
            ("XREAD STREAMS s +", "*-1"),
            ("XADD s 1-1 a 1", "$3|1-1"),
            ("XADD s 1-2 b 2", "$3|1-2"),
            ("XADD t 5-0 c 3", "$3|5-0"),
            (
                "XREAD STREAMS s 1-1",
                "*1|*2|$1|s|*1|*2|$3|1-2|*2|$1|b|$1|2",
            ),
            (
                "XREAD COUNT 1 STREAMS s t 0 5",
                "*1|*2|$1|s|*1|*2|$3|1-1|*2|$1|a|$1|1",
            ),
            (
                "XREAD STREAMS s t + 0",
                "*2|*2|$1|s|*1|*2|$3|1-2|*2|$1|b|$1|2|*2|$1|t|*1|*2|$3|5-0|*2|$1|c|$1|3",
            ),
            ("XREAD STREAMS s $", "*-1"),
            (
                "XREAD STREAMS s 18446744073709551615-18446744073709551615",
                "*-1",
            ),
            ("XREAD COUNT 0 BLOCK 0 STREAMS s 1-2", "*-1"),
        ]);
        db.proto = Proto::Resp3;
        db.script(&[
            ("XREAD STREAMS s 1-1", "%1|$1|s|*1|*2|$3|1-2|*2|$1|b|$1|2"),
            ("XREAD STREAMS s $", "_"),
        ]);
    }

    #[test]
    fn what_is_refused() {
        let mut db = TestDb::new();
        let invalid = "-ERR Invalid stream ID specified as stream command argument";
        db.script(&[
            ("SET str 1", "+OK"),
            (
                "XREAD STREAMS none str 0 x",
                "-WRONGTYPE Operation against a key holding the wrong kind of value",
            ),
            ("XREAD STREAMS none str x 0", invalid),
            ("XREAD BLOCK 1 s 0", "-ERR syntax error"),
            ("XREAD COUNT 1 COUNT", "-ERR syntax error"),
            (
                "XREAD STREAMS s t 0",
                "-ERR Unbalanced 'xread' list of streams: for each stream key an ID, '+', or '$' must be specified.",
            ),
            (
                "XREAD GROUP g c STREAMS s >",
                "-ERR The GROUP option is only supported by XREADGROUP. You called XREAD instead.",
            ),
        ]);
    }
}
