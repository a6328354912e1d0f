//! Commands of the group `list`.

use std::{ops::ControlFlow, ops::Range};

use redline_keyspace::{Classes, Found, Trace, WrongType};
use redline_resp::{Args, Reply};
use redline_spec::CommandId;
use redline_types::{
    DataType, Kind, List,
    list::Place,
    number::IntText,
    pack::{Element, End},
};

use crate::{
    Ctx, Error, Failure,
    block::{self, Block},
    element::bulk,
    multi_pop::MultiPop,
    words::{Words, integer, integer_in, positive, signed_count},
};

/// LINDEX key index
pub(crate) fn lindex(
    ctx: &mut Ctx<'_>,
    args: Args<'_>,
    reply: &mut Reply<'_>,
) -> Result<(), Failure> {
    let Some(list) = ctx.keys.read::<List>(&args[1])? else {
        reply.null();
        return Ok(());
    };
    match list.get(integer(&args[2])?) {
        Some(element) => bulk(reply, element),
        None => reply.null(),
    }
    Ok(())
}

/// LINSERT key BEFORE | AFTER pivot element
pub(crate) fn linsert(
    ctx: &mut Ctx<'_>,
    args: Args<'_>,
    reply: &mut Reply<'_>,
) -> Result<(), Failure> {
    let place = Words::new(CommandId::Linsert, &args, 2)
        .one_of(&[("BEFORE", Place::Before), ("AFTER", Place::After)])
        .ok_or(Error::Syntax)?;
    let inserted = ctx.keys.write::<List, _>(&args[1], |list, limits| {
        list.insert(place, &args[3], &args[4], limits)
            .then(|| list.len())
    })?;
    match inserted {
        None => reply.integer(0),
        Some(None) => reply.integer(-1),
        Some(Some(len)) => {
            ctx.keys.changed(Classes::LIST, "linsert", &args[1]);
            reply.integer(len as i64);
        }
    }
    Ok(())
}

/// LLEN key
pub(crate) fn llen(
    ctx: &mut Ctx<'_>,
    args: Args<'_>,
    reply: &mut Reply<'_>,
) -> Result<(), Failure> {
    let found = ctx.keys.find(&args[1], Trace::Read);
    let len = found.map(Found::len::<List>).transpose()?;
    reply.integer(len.unwrap_or(0) as i64);
    Ok(())
}

/// LMOVE source destination LEFT | RIGHT LEFT | RIGHT
pub(crate) fn lmove(
    ctx: &mut Ctx<'_>,
    args: Args<'_>,
    reply: &mut Reply<'_>,
) -> Result<(), Failure> {
    let (from, to) = ends(Words::new(CommandId::Lmove, &args, 3))?;
    move_element(ctx, &args[1], &args[2], from, to, reply)
}

/// RPOPLPUSH source destination
pub(crate) fn rpoplpush(
    ctx: &mut Ctx<'_>,
    args: Args<'_>,
    reply: &mut Reply<'_>,
) -> Result<(), Failure> {
    move_element(ctx, &args[1], &args[2], End::Back, End::Front, reply)
}

/// Returns the length of a list that is about to be changed; `None` if the key is missing.
fn len_to_write(ctx: &Ctx<'_>, key: &[u8]) -> Result<Option<usize>, WrongType> {
    let found = ctx.keys.find(key, Trace::Write);
    found.map(Found::len::<List>).transpose()
}

fn move_element(
    ctx: &mut Ctx<'_>,
    source: &[u8],
    destination: &[u8],
    from: End,
    to: End,
    reply: &mut Reply<'_>,
) -> Result<(), Failure> {
    if len_to_write(ctx, source)?.is_none() {
        reply.null();
        return Ok(());
    }
    // The type of the destination is checked before an element is taken.
    len_to_write(ctx, destination)?;
    ctx.claim()?;
    let mut moved = Vec::new();
    let rotates = source == destination;
    ctx.keys.write::<List, _>(source, |list, limits| {
        let taken = |element: Element<'_>| {
            bulk(reply, element);
            moved = element.to_vec();
        };
        match rotates {
            true => list.rotate(from, to, limits, taken),
            false => {
                list.pop(from, 1, limits, taken);
            }
        }
    })?;
    let emptied = ctx.keys.swap_emptied(false);
    if !rotates {
        ctx.keys
            .write_or_new::<List, _>(destination, |list, limits| {
                list.push(to, std::iter::once(&moved[..]), limits);
            })?;
    }
    ctx.keys.changed(Classes::LIST, push_event(to), destination);
    ctx.keys.swap_emptied(emptied);
    ctx.keys.announced(Classes::LIST, pop_event(from), source);
    Ok(())
}

/// LMPOP numkeys key [key …] LEFT | RIGHT [COUNT count]
pub(crate) fn lmpop(
    ctx: &mut Ctx<'_>,
    args: Args<'_>,
    reply: &mut Reply<'_>,
) -> Result<(), Failure> {
    let many = MultiPop::parse(Words::new(CommandId::Lmpop, &args, 1), ENDS)?;
    if !pop_first(ctx, args, &many, reply)? {
        reply.null_array();
    }
    Ok(())
}

/// BLMPOP timeout numkeys key [key …] LEFT | RIGHT [COUNT count]
pub(crate) fn blmpop(
    ctx: &mut Ctx<'_>,
    args: Args<'_>,
    reply: &mut Reply<'_>,
) -> Result<(), Failure> {
    let many = MultiPop::parse(Words::new(CommandId::Blmpop, &args, 2), ENDS)?;
    let timeout_ms = block::seconds(ctx, &args[1])?;
    if pop_first(ctx, args, &many, reply)? {
        return Ok(());
    }
    reply.null_array();
    Err(Block::on(Kind::List, many.keys, timeout_ms).into())
}

/// Pops from the first list that exists; returns true if there was one.
fn pop_first(
    ctx: &mut Ctx<'_>,
    args: Args<'_>,
    many: &MultiPop<End>,
    reply: &mut Reply<'_>,
) -> Result<bool, Failure> {
    for key in many.keys_of(args) {
        if let Some(len) = len_to_write(ctx, key)? {
            ctx.claim()?;
            reply.array(2);
            reply.bulk(key);
            pop_many(ctx, key, many.side, many.count, reply)?;
            propagate_pop(ctx, key, many.side, Some(many.count.min(len)));
            return Ok(true);
        }
    }
    Ok(false)
}

/// BLPOP key [key …] timeout
pub(crate) fn blpop(
    ctx: &mut Ctx<'_>,
    args: Args<'_>,
    reply: &mut Reply<'_>,
) -> Result<(), Failure> {
    pop_or_wait(ctx, args, End::Front, reply)
}

/// BRPOP key [key …] timeout
pub(crate) fn brpop(
    ctx: &mut Ctx<'_>,
    args: Args<'_>,
    reply: &mut Reply<'_>,
) -> Result<(), Failure> {
    pop_or_wait(ctx, args, End::Back, reply)
}

fn pop_or_wait(
    ctx: &mut Ctx<'_>,
    args: Args<'_>,
    from: End,
    reply: &mut Reply<'_>,
) -> Result<(), Failure> {
    let last = args.len() - 1;
    let timeout_ms = block::seconds(ctx, &args[last])?;
    for key in args.first(last).from(1).iter() {
        if len_to_write(ctx, key)?.is_some() {
            ctx.claim()?;
            reply.array(2);
            reply.bulk(key);
            ctx.keys.write::<List, _>(key, |list, limits| {
                list.pop(from, 1, limits, |element| bulk(reply, element))
            })?;
            ctx.keys.changed(Classes::LIST, pop_event(from), key);
            propagate_pop(ctx, key, from, None);
            return Ok(());
        }
    }
    reply.null_array();
    Err(Block::on(Kind::List, 1..last, timeout_ms).into())
}

/// BLMOVE source destination LEFT | RIGHT LEFT | RIGHT timeout
pub(crate) fn blmove(
    ctx: &mut Ctx<'_>,
    args: Args<'_>,
    reply: &mut Reply<'_>,
) -> Result<(), Failure> {
    let (from, to) = ends(Words::new(CommandId::Blmove, &args, 3))?;
    let told: [&[u8]; 5] = [b"LMOVE", &args[1], &args[2], end_word(from), end_word(to)];
    move_or_wait(ctx, args, from, to, &told, reply)
}

/// BRPOPLPUSH source destination timeout
pub(crate) fn brpoplpush(
    ctx: &mut Ctx<'_>,
    args: Args<'_>,
    reply: &mut Reply<'_>,
) -> Result<(), Failure> {
    // Servers that have no LMOVE know it.
    let told: [&[u8]; 3] = [b"RPOPLPUSH", &args[1], &args[2]];
    move_or_wait(ctx, args, End::Back, End::Front, &told, reply)
}

/// Moves an element, or waits for one; `told`: the move for the journal.
fn move_or_wait(
    ctx: &mut Ctx<'_>,
    args: Args<'_>,
    from: End,
    to: End,
    told: &[&[u8]],
    reply: &mut Reply<'_>,
) -> Result<(), Failure> {
    let timeout_ms = block::seconds(ctx, &args[args.len() - 1])?;
    if len_to_write(ctx, &args[1])?.is_some() {
        move_element(ctx, &args[1], &args[2], from, to, reply)?;
        ctx.keys.propagate(told);
        return Ok(());
    }
    reply.null();
    let mut block = Block::on(Kind::List, 1..2, timeout_ms);
    block.targets = 2..3;
    Err(block.into())
}

/// LPOP key [count]
pub(crate) fn lpop(
    ctx: &mut Ctx<'_>,
    args: Args<'_>,
    reply: &mut Reply<'_>,
) -> Result<(), Failure> {
    Ok(pop(ctx, args, End::Front, reply)?)
}

/// RPOP key [count]
pub(crate) fn rpop(
    ctx: &mut Ctx<'_>,
    args: Args<'_>,
    reply: &mut Reply<'_>,
) -> Result<(), Failure> {
    Ok(pop(ctx, args, End::Back, reply)?)
}

fn pop(ctx: &mut Ctx<'_>, args: Args<'_>, from: End, reply: &mut Reply<'_>) -> Result<(), Error> {
    if args.len() > 3 {
        let name = if from == End::Front { "lpop" } else { "rpop" };
        return Err(Error::wrong_arity(name));
    }
    let count = args.get(2).map(positive).transpose()?;
    let key = &args[1];
    match count {
        None => {
            let popped = ctx.keys.write::<List, _>(key, |list, limits| {
                list.pop(from, 1, limits, |element| bulk(reply, element))
            })?;
            match popped {
                None => reply.null(),
                Some(_) => ctx.keys.changed(Classes::LIST, pop_event(from), key),
            }
            Ok(())
        }
        Some(count) => match len_to_write(ctx, key)? {
            None => {
                reply.null_array();
                Ok(())
            }
            Some(_) if count == 0 => {
                reply.array(0);
                Ok(())
            }
            Some(_) => pop_many(ctx, key, from, count, reply),
        },
    }
}

/// Pops up to `count` elements of an existing list, as an array.
fn pop_many(
    ctx: &mut Ctx<'_>,
    key: &[u8],
    from: End,
    count: usize,
    reply: &mut Reply<'_>,
) -> Result<(), Error> {
    let popped = ctx.keys.write::<List, _>(key, |list, limits| {
        reply.array(count.min(list.len()));
        list.pop(from, count, limits, |element| bulk(reply, element))
    })?;
    ctx.keys.announced(Classes::LIST, pop_event(from), key);
    ctx.keys.count_changes(popped.unwrap_or(0) as u64);
    Ok(())
}

/// LPOS key element [RANK rank] [COUNT count] [MAXLEN len]
pub(crate) fn lpos(
    ctx: &mut Ctx<'_>,
    args: Args<'_>,
    reply: &mut Reply<'_>,
) -> Result<(), Failure> {
    let mut rank = 1;
    let mut count: Option<i64> = None;
    let mut compared_max = 0;
    let mut words = Words::new(CommandId::Lpos, &args, 3);
    while !words.is_empty() {
        if let Some(value) = words.value("RANK") {
            rank = signed_count(value)?;
            if rank == 0 {
                return Err(Error::line(
                    "ERR RANK can't be zero: use 1 to start from the first match, 2 from the second ... or use negative to start from the end of the list",
                ).into());
            }
        } else if let Some(value) = words.value("COUNT") {
            const NEGATIVE: Error = Error::line("ERR COUNT can't be negative");
            count = Some(integer_in(value, 0.., NEGATIVE)?);
        } else if let Some(value) = words.value("MAXLEN") {
            const NEGATIVE: Error = Error::line("ERR MAXLEN can't be negative");
            compared_max = integer_in(value, 0.., NEGATIVE)?;
        } else {
            return Err(Error::Syntax.into());
        }
    }
    let Some(list) = ctx.keys.read::<List>(&args[1])? else {
        if count.is_some() {
            reply.array(0);
        } else {
            reply.null();
        }
        return Ok(());
    };
    let compared_max = if compared_max == 0 {
        usize::MAX
    } else {
        compared_max as usize
    };
    let wanted_max = match count {
        None => 1,
        Some(0) => usize::MAX,
        Some(count) => count as usize,
    };
    let mark = reply.mark();
    let mut found = 0;
    list.positions(&args[2], rank, compared_max, |index| {
        reply.integer(index as i64);
        found += 1;
        if found == wanted_max {
            ControlFlow::Break(())
        } else {
            ControlFlow::Continue(())
        }
    });
    match count {
        Some(_) => reply.insert_array_header(mark, found),
        None if found == 0 => reply.null(),
        None => {}
    }
    Ok(())
}

/// LPUSH key element [element …]
pub(crate) fn lpush(
    ctx: &mut Ctx<'_>,
    args: Args<'_>,
    reply: &mut Reply<'_>,
) -> Result<(), Failure> {
    Ok(push(ctx, args, End::Front, true, reply)?)
}

/// LPUSHX key element [element …]
pub(crate) fn lpushx(
    ctx: &mut Ctx<'_>,
    args: Args<'_>,
    reply: &mut Reply<'_>,
) -> Result<(), Failure> {
    Ok(push(ctx, args, End::Front, false, reply)?)
}

/// RPUSH key element [element …]
pub(crate) fn rpush(
    ctx: &mut Ctx<'_>,
    args: Args<'_>,
    reply: &mut Reply<'_>,
) -> Result<(), Failure> {
    Ok(push(ctx, args, End::Back, true, reply)?)
}

/// RPUSHX key element [element …]
pub(crate) fn rpushx(
    ctx: &mut Ctx<'_>,
    args: Args<'_>,
    reply: &mut Reply<'_>,
) -> Result<(), Failure> {
    Ok(push(ctx, args, End::Back, false, reply)?)
}

fn push(
    ctx: &mut Ctx<'_>,
    args: Args<'_>,
    to: End,
    create: bool,
    reply: &mut Reply<'_>,
) -> Result<(), Error> {
    let elements = args.from(2);
    let len = ctx
        .keys
        .write_or_new_if::<List, _>(&args[1], create, |list, limits| {
            list.push(to, elements.iter(), limits);
            list.len()
        })?;
    if len.is_some() {
        ctx.keys.changed(Classes::LIST, push_event(to), &args[1]);
        ctx.keys.count_changes(elements.len() as u64 - 1);
    }
    reply.integer(len.unwrap_or(0) as i64);
    Ok(())
}

/// LRANGE key start stop
pub(crate) fn lrange(
    ctx: &mut Ctx<'_>,
    args: Args<'_>,
    reply: &mut Reply<'_>,
) -> Result<(), Failure> {
    let (start, stop) = (integer(&args[2])?, integer(&args[3])?);
    let Some(list) = ctx.keys.read::<List>(&args[1])? else {
        reply.array(0);
        return Ok(());
    };
    let range = clamp(start, stop, list.len());
    reply.array(range.len());
    list.iter_from(range.start)
        .take(range.len())
        .for_each(|element| bulk(reply, element));
    Ok(())
}

/// LREM key count element
pub(crate) fn lrem(
    ctx: &mut Ctx<'_>,
    args: Args<'_>,
    reply: &mut Reply<'_>,
) -> Result<(), Failure> {
    let count = signed_count(&args[2])?;
    let removed = ctx.keys.write::<List, _>(&args[1], |list, limits| {
        list.remove(count, &args[3], limits)
    })?;
    let removed = removed.unwrap_or(0);
    if removed > 0 {
        ctx.keys.changed(Classes::LIST, "lrem", &args[1]);
        ctx.keys.count_changes(removed as u64 - 1);
    }
    reply.integer(removed as i64);
    Ok(())
}

/// LSET key index element
pub(crate) fn lset(
    ctx: &mut Ctx<'_>,
    args: Args<'_>,
    reply: &mut Reply<'_>,
) -> Result<(), Failure> {
    if len_to_write(ctx, &args[1])?.is_none() {
        return Err(Error::NoSuchKey.into());
    }
    let index = integer(&args[2])?;
    let set = ctx
        .keys
        .write::<List, _>(&args[1], |list, limits| list.set(index, &args[3], limits))?;
    if set != Some(true) {
        return Err(Error::IndexOutOfRange.into());
    }
    ctx.keys.changed(Classes::LIST, "lset", &args[1]);
    reply.ok();
    Ok(())
}

/// LTRIM key start stop
pub(crate) fn ltrim(
    ctx: &mut Ctx<'_>,
    args: Args<'_>,
    reply: &mut Reply<'_>,
) -> Result<(), Failure> {
    let (start, stop) = (integer(&args[2])?, integer(&args[3])?);
    let trimmed = ctx.keys.write::<List, _>(&args[1], |list, limits| {
        let before = list.len();
        list.trim(clamp(start, stop, before), limits);
        before - list.len()
    })?;
    if let Some(trimmed) = trimmed {
        // A trim that keeps all elements is an event too.
        ctx.keys.announced(Classes::LIST, "ltrim", &args[1]);
        ctx.keys.count_changes(trimmed as u64);
    }
    reply.ok();
    Ok(())
}

const ENDS: &[(&str, End)] = &[("LEFT", End::Front), ("RIGHT", End::Back)];

/// Reads the end from which an element is taken, and the end to which it is added.
fn ends(mut words: Words<'_>) -> Result<(End, End), Error> {
    let from = words.one_of(ENDS).ok_or(Error::Syntax)?;
    let to = words.one_of(ENDS).ok_or(Error::Syntax)?;
    Ok((from, to))
}

fn push_event(end: End) -> &'static str {
    if end == End::Front { "lpush" } else { "rpush" }
}

fn end_word(end: End) -> &'static [u8] {
    match end {
        End::Front => b"LEFT",
        End::Back => b"RIGHT",
    }
}

/// Records in the journal that this number of elements was taken from an end of a list; `None`: one, by a command that takes
/// no count.
fn propagate_pop(ctx: &mut Ctx<'_>, key: &[u8], from: End, count: Option<usize>) {
    let name: &[u8] = match from {
        End::Front => b"LPOP",
        End::Back => b"RPOP",
    };
    match count.map(|count| IntText::new(count as i64)) {
        Some(count) => ctx.keys.propagate(&[name, key, count.as_ref()]),
        None => ctx.keys.propagate(&[name, key]),
    }
}

fn pop_event(end: End) -> &'static str {
    if end == End::Front { "lpop" } else { "rpop" }
}

/// Returns the range of indices from `start` to `stop` (inclusive; negative ones count from the back) in `len` elements.
fn clamp(start: i64, stop: i64, len: usize) -> Range<usize> {
    let len = len as i64;
    let from_front = |index: i64| {
        if index < 0 {
            index.saturating_add(len)
        } else {
            index
        }
    };
    let start = from_front(start).max(0);
    let stop = from_front(stop).min(len - 1);
    if start > stop {
        0..0
    } else {
        start as usize..stop as usize + 1
    }
}

#[cfg(test)]
mod tests {
    use crate::testing::TestDb;

    #[test]
    fn both_ends() {
        let mut db = TestDb::new();
        db.script(&[
            ("RPUSH l a b c", ":3"),
            ("LPUSH l 1 2", ":5"),
            ("LRANGE l 0 -1", "*5|$1|2|$1|1|$1|a|$1|b|$1|c"),
            ("LPOP l", "$1|2"),
            ("RPOP l 2", "*2|$1|c|$1|b"),
            ("LPOP l 0", "*0"),
            ("LPOP none", "$-1"),
            ("LPOP none 1", "*-1"),
            ("LPOP l -1", "-ERR value is out of range, must be positive"),
            ("LPOP l 9", "*2|$1|1|$1|a"),
            ("LLEN l", ":0"),
            ("LPUSHX l a", ":0"),
        ]);
        assert_eq!(
            db.events(),
            ["rpush l", "lpush l", "lpop l", "rpop l", "lpop l", "del l"]
        );
    }

    #[test]
    fn moves_between_lists_and_within_one() {
        let mut db = TestDb::new();
        db.script(&[
            ("RPUSH a 1 2 3", ":3"),
            ("LMOVE a b LEFT RIGHT", "$1|1"),
            ("RPOPLPUSH a a", "$1|3"),
            ("LRANGE a 0 -1", "*2|$1|3|$1|2"),
            ("LMOVE a b RIGHT UP", "-ERR syntax error"),
            ("LMPOP 2 none a RIGHT COUNT 5", "*2|$1|a|*2|$1|2|$1|3"),
            ("LMPOP 1 none LEFT", "*-1"),
            ("LMPOP 0 none LEFT", "-ERR numkeys should be greater than 0"),
            ("LMOVE none b LEFT LEFT", "$-1"),
        ]);
        assert_eq!(
            db.events(),
            [
                "rpush a", "rpush b", "lpop a", "lpush a", "rpop a", "rpop a", "del a"
            ]
        );
    }

    #[test]
    fn positions() {
        let mut db = TestDb::new();
        db.script(&[
            ("RPUSH l a b c 1 2 3 c c", ":8"),
            ("LPOS l c", ":2"),
            ("LPOS l c RANK -1", ":7"),
            ("LPOS l c COUNT 0", "*3|:2|:6|:7"),
            ("LPOS l c RANK -1 COUNT 2", "*2|:7|:6"),
            ("LPOS l c MAXLEN 2", "$-1"),
            ("LPOS l x COUNT 1", "*0"),
            ("LPOS l c COUNT -1", "-ERR COUNT can't be negative"),
        ]);
    }

    #[test]
    fn edits_in_the_middle() {
        let mut db = TestDb::new();
        db.script(&[
            ("RPUSH l a b c b", ":4"),
            ("LINSERT l BEFORE c x", ":5"),
            ("LINSERT l AFTER nowhere x", ":-1"),
            ("LSET l -1 z", "+OK"),
            ("LSET l 9 z", "-ERR index out of range"),
            ("LSET none 0 z", "-ERR no such key"),
            ("LINDEX l 2", "$1|x"),
            ("LREM l 0 b", ":1"),
            ("LTRIM l 1 1", "+OK"),
            ("LRANGE l 0 -1", "*1|$1|x"),
            ("LTRIM l 5 9", "+OK"),
            ("LLEN l", ":0"),
        ]);
    }
}
