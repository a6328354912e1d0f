//! Commands of the group `set`.

use std::ops::ControlFlow;

use redline_keyspace::{Classes, Expiry, Found, Trace, journal::Word};
use redline_resp::{Args, Reply};
use redline_spec::CommandId;
use redline_types::{DataType, Element, IntBuf, Limits, Set, set::algebra};

use crate::{
    Ctx, Error, Failure,
    element::{bulk, draw},
    scan::{self, ScanOptions},
    words::{Words, integer_in, positive, signed_count},
};

/// SADD key member [member …]
pub(crate) fn sadd(
    ctx: &mut Ctx<'_>,
    args: Args<'_>,
    reply: &mut Reply<'_>,
) -> Result<(), Failure> {
    let members = args.from(2);
    let added = ctx
        .keys
        .write_or_new::<Set, _>(&args[1], |set, limits| set.add_all(members.iter(), limits))?;
    if added > 0 {
        ctx.keys.changed(Classes::SET, "sadd", &args[1]);
        ctx.keys.count_changes(added as u64 - 1);
    }
    reply.integer(added as i64);
    Ok(())
}

/// SCARD key
pub(crate) fn scard(
    ctx: &mut Ctx<'_>,
    args: Args<'_>,
    reply: &mut Reply<'_>,
) -> Result<(), Failure> {
    let found = ctx.keys.find(&args[1], Trace::Read);
    let len = found.map(Found::len::<Set>).transpose()?;
    reply.integer(len.unwrap_or(0) as i64);
    Ok(())
}

/// SISMEMBER key member
pub(crate) fn sismember(
    ctx: &mut Ctx<'_>,
    args: Args<'_>,
    reply: &mut Reply<'_>,
) -> Result<(), Failure> {
    let set = ctx.keys.read::<Set>(&args[1])?;
    reply.integer(i64::from(set.is_some_and(|set| set.contains(&args[2]))));
    Ok(())
}

/// SMISMEMBER key member [member …]
pub(crate) fn smismember(
    ctx: &mut Ctx<'_>,
    args: Args<'_>,
    reply: &mut Reply<'_>,
) -> Result<(), Failure> {
    let set = ctx.keys.read::<Set>(&args[1])?;
    let members = args.from(2);
    reply.array(members.len());
    for member in members.iter() {
        reply.integer(i64::from(set.is_some_and(|set| set.contains(member))));
    }
    Ok(())
}

/// SMEMBERS key
pub(crate) fn smembers(
    ctx: &mut Ctx<'_>,
    args: Args<'_>,
    reply: &mut Reply<'_>,
) -> Result<(), Failure> {
    let set = ctx.keys.read::<Set>(&args[1])?;
    reply.set(set.map_or(0, DataType::len));
    set.into_iter()
        .flat_map(Set::iter)
        .for_each(|member| bulk(reply, member));
    Ok(())
}

/// SMOVE source destination member
pub(crate) fn smove(
    ctx: &mut Ctx<'_>,
    args: Args<'_>,
    reply: &mut Reply<'_>,
) -> Result<(), Failure> {
    let (source, destination, member) = (&args[1], &args[2], &args[3]);
    let from = ctx.keys.find(source, Trace::Write);
    let has = match from.map(Found::collection::<Set>).transpose() {
        Ok(Some(from)) => from.contains(member),
        other => {
            // Both keys are looked up before either is changed or answered.
            ctx.keys.find(destination, Trace::Write);
            other?;
            reply.integer(0);
            return Ok(());
        }
    };
    // The type of the destination is checked before a member is taken.
    let to = ctx.keys.find(destination, Trace::Write);
    to.map(Found::len::<Set>).transpose()?;
    if source == destination || !has {
        reply.integer(i64::from(has));
        return Ok(());
    }
    ctx.keys
        .write::<Set, _>(source, |set, _| set.remove(member))?;
    ctx.keys.changed(Classes::SET, "srem", source);
    let added = ctx
        .keys
        .write_or_new::<Set, _>(destination, |set, limits| {
            // A set that has the member stays as it is, even if the limits have changed.
            !set.contains(member) && set.add(member, limits)
        })?;
    if added {
        ctx.keys.changed(Classes::SET, "sadd", destination);
    }
    reply.integer(1);
    Ok(())
}

/// SPOP key [count]
pub(crate) fn spop(
    ctx: &mut Ctx<'_>,
    args: Args<'_>,
    reply: &mut Reply<'_>,
) -> Result<(), Failure> {
    let key = &args[1];
    let count = match args.len() {
        2 => None,
        3 => Some(positive(&args[2])?),
        _ => return Err(Error::Syntax.into()),
    };
    let found = ctx.keys.find(key, Trace::Write);
    let Some(len) = found.map(Found::len::<Set>).transpose()? else {
        match count {
            None => reply.null(),
            Some(_) => reply.set(0),
        }
        return Ok(());
    };
    let given = match count {
        None => 1,
        Some(count) => {
            let given = count.min(len);
            reply.set(given);
            given
        }
    };
    if given == 0 {
        return Ok(());
    }
    let mut rng = ctx.keys.local.rng.clone();
    let journaled = ctx.keys.is_journaled();
    let mut words: Vec<Vec<u8>> = Vec::new();
    let all = ctx.keys.write::<Set, _>(key, |set, limits| {
        set.pop(given, limits, &mut || rng.u64(..), |member| {
            if journaled {
                words.push(member.bytes(&mut IntBuf::new()).to_vec());
            }
            bulk(reply, member)
        });
        set.is_empty()
    })?;
    ctx.keys.local.rng = rng;
    if all == Some(true) {
        ctx.keys.propagate(&[b"DEL", key]);
    } else {
        let members = words.iter().map(|word| Word::Bytes(word));
        let call = [Word::Bytes(b"SREM"), Word::Bytes(key)];
        ctx.keys.propagate(call.into_iter().chain(members));
    }
    ctx.keys.changed(Classes::SET, "spop", key);
    ctx.keys.count_changes(given as u64 - 1);
    Ok(())
}

/// SRANDMEMBER key [count]
pub(crate) fn srandmember(
    ctx: &mut Ctx<'_>,
    args: Args<'_>,
    reply: &mut Reply<'_>,
) -> Result<(), Failure> {
    let count = match args.len() {
        2 => None,
        3 => Some(signed_count(&args[2])?),
        _ => return Err(Error::Syntax.into()),
    };
    let bytes_max = ctx.bulk_bytes_max;
    let mut rng = ctx.keys.local.rng.clone();
    let set = ctx.keys.read::<Set>(&args[1])?;
    let random = &mut || rng.u64(..);
    match (count, set) {
        (None, None) => reply.null(),
        (None, Some(set)) => match set.random_member(random) {
            Some(member) => bulk(reply, member),
            None => reply.null(),
        },
        (Some(_), None) => reply.array(0),
        (Some(count), Some(set)) => {
            let wanted = usize::try_from(count.unsigned_abs()).unwrap_or(usize::MAX);
            if count < 0 {
                reply.array(wanted);
                draw(reply, wanted, bytes_max, |reply, portion, bound| {
                    set.random_members(portion, random, |member| {
                        if bound.leaves_room(reply) {
                            bulk(reply, member);
                        }
                    });
                })?;
            } else {
                let given = wanted.min(set.len());
                reply.array(given);
                set.random_distinct_members(given, random, |member| bulk(reply, member));
            }
        }
    }
    ctx.keys.local.rng = rng;
    Ok(())
}

/// SREM key member [member …]
pub(crate) fn srem(
    ctx: &mut Ctx<'_>,
    args: Args<'_>,
    reply: &mut Reply<'_>,
) -> Result<(), Failure> {
    let members = args.from(2);
    let removed = ctx.keys.write::<Set, _>(&args[1], |set, _| {
        members.iter().filter(|member| set.remove(member)).count()
    })?;
    let removed = removed.unwrap_or(0);
    if removed > 0 {
        ctx.keys.changed(Classes::SET, "srem", &args[1]);
        ctx.keys.count_changes(removed as u64 - 1);
    }
    reply.integer(removed as i64);
    Ok(())
}

/// SSCAN key cursor [MATCH pattern] [COUNT count]
pub(crate) fn sscan(
    ctx: &mut Ctx<'_>,
    args: Args<'_>,
    reply: &mut Reply<'_>,
) -> Result<(), Failure> {
    let cursor = scan::cursor(&args[2])?;
    let Some(set) = ctx.keys.read::<Set>(&args[1])? else {
        return scan::framed(reply, |_| Ok((0, 0)));
    };
    let options = ScanOptions::parse(Words::new(CommandId::Sscan, &args, 3))?;
    scan::framed(reply, |reply| {
        let mut elements = 0;
        let next = set.scan(cursor, options.count as usize, |member| {
            if options.matches(member.bytes(&mut IntBuf::new())) {
                bulk(reply, member);
                elements += 1;
            }
        });
        Ok((next, elements))
    })
}

// ---- algebra ------------------------------------------------------------------------------------

/// SDIFF key [key …]
pub(crate) fn sdiff(
    ctx: &mut Ctx<'_>,
    args: Args<'_>,
    reply: &mut Reply<'_>,
) -> Result<(), Failure> {
    let sets = operands(ctx, args.from(1))?;
    counted(reply, |visit| {
        if let Some((Some(first), others)) = sets.split_first() {
            let others: Vec<&Set> = others.iter().copied().flatten().collect();
            algebra::visit_difference(first, &others, visit);
        }
    });
    Ok(())
}

/// SINTER key [key …]
pub(crate) fn sinter(
    ctx: &mut Ctx<'_>,
    args: Args<'_>,
    reply: &mut Reply<'_>,
) -> Result<(), Failure> {
    let sets = operands(ctx, args.from(1))?;
    counted(reply, |visit| {
        if let Some(sets) = all_present(&sets) {
            algebra::visit_intersection(&sets, |member| {
                visit(member);
                ControlFlow::Continue(())
            });
        }
    });
    Ok(())
}

/// SUNION key [key …]
pub(crate) fn sunion(
    ctx: &mut Ctx<'_>,
    args: Args<'_>,
    reply: &mut Reply<'_>,
) -> Result<(), Failure> {
    let sets: Vec<&Set> = operands(ctx, args.from(1))?.into_iter().flatten().collect();
    counted(reply, |visit| algebra::visit_union(&sets, visit));
    Ok(())
}

/// SINTERCARD numkeys key [key …] [LIMIT limit]
pub(crate) fn sintercard(
    ctx: &mut Ctx<'_>,
    args: Args<'_>,
    reply: &mut Reply<'_>,
) -> Result<(), Failure> {
    const TOO_MANY: Error = Error::line("ERR Number of keys can't be greater than number of args");
    let mut words = Words::new(CommandId::Sintercard, &args, 2);
    let keys = integer_in(&args[1], 1.., Error::NO_KEYS)?;
    let keys = words.take_args(keys as usize).ok_or(TOO_MANY)?;
    let mut limit = 0;
    while !words.is_empty() {
        let value = words.value("LIMIT").ok_or(Error::Syntax)?;
        limit = integer_in(value, 0.., Error::NEGATIVE_LIMIT)?;
    }
    let sets = operands(ctx, keys)?;
    let mut count = 0;
    if let Some(sets) = all_present(&sets) {
        algebra::visit_intersection(&sets, |_| {
            count += 1;
            if count == limit {
                ControlFlow::Break(())
            } else {
                ControlFlow::Continue(())
            }
        });
    }
    reply.integer(count);
    Ok(())
}

/// SDIFFSTORE destination key [key …]
pub(crate) fn sdiffstore(
    ctx: &mut Ctx<'_>,
    args: Args<'_>,
    reply: &mut Reply<'_>,
) -> Result<(), Failure> {
    Ok(store(
        ctx,
        args,
        "sdiffstore",
        reply,
        |sets, limits| match sets.split_first() {
            Some((Some(first), others)) => {
                let others: Vec<&Set> = others.iter().copied().flatten().collect();
                algebra::difference(first, &others, limits)
            }
            _ => Set::default(),
        },
    )?)
}

/// SINTERSTORE destination key [key …]
pub(crate) fn sinterstore(
    ctx: &mut Ctx<'_>,
    args: Args<'_>,
    reply: &mut Reply<'_>,
) -> Result<(), Failure> {
    Ok(store(ctx, args, "sinterstore", reply, |sets, limits| {
        all_present(sets).map_or_else(Set::default, |sets| algebra::intersection(&sets, limits))
    })?)
}

/// SUNIONSTORE destination key [key …]
pub(crate) fn sunionstore(
    ctx: &mut Ctx<'_>,
    args: Args<'_>,
    reply: &mut Reply<'_>,
) -> Result<(), Failure> {
    Ok(store(ctx, args, "sunionstore", reply, |sets, limits| {
        let sets: Vec<&Set> = sets.iter().copied().flatten().collect();
        algebra::union(&sets, limits)
    })?)
}

/// Returns the sets under these keys; `None` for a key that does not exist.
fn operands<'v>(ctx: &'v Ctx<'_>, keys: Args<'_>) -> Result<Vec<Option<&'v Set>>, Error> {
    keys.iter()
        .map(|key| Ok(ctx.keys.read::<Set>(key)?))
        .collect()
}

/// Returns the sets if no key was missing: otherwise their intersection is empty.
fn all_present<'v>(sets: &[Option<&'v Set>]) -> Option<Vec<&'v Set>> {
    sets.iter().copied().collect()
}

/// Writes a set reply whose size is known when its members have been written.
fn counted(reply: &mut Reply<'_>, produce: impl FnOnce(&mut dyn FnMut(Element<'_>))) {
    let mark = reply.mark();
    let mut members = 0;
    produce(&mut |member| {
        bulk(reply, member);
        members += 1;
    });
    reply.insert_set_header(mark, members);
}

fn store(
    ctx: &mut Ctx<'_>,
    args: Args<'_>,
    event: &'static str,
    reply: &mut Reply<'_>,
    compute: impl FnOnce(&[Option<&Set>], &Limits) -> Set,
) -> Result<(), Error> {
    let destination = &args[1];
    let result = compute(&operands(ctx, args.from(2))?, &ctx.keys.local.limits);
    let members = result.len();
    if members > 0 {
        ctx.keys.insert(destination, result, Expiry::Clear);
        ctx.keys.changed(Classes::SET, event, destination);
    } else if ctx.keys.remove_for_nothing(destination) {
        ctx.keys.changed(Classes::GENERIC, "del", destination);
    }
    reply.integer(members as i64);
    Ok(())
}

#[cfg(test)]
mod tests {
    use redline_resp::Proto;

    use crate::testing::TestDb;

    #[test]
    fn members() {
        let mut db = TestDb::new();
        db.script(&[
            ("SADD s 1 2 3", ":3"),
            ("SADD s 3 4", ":1"),
            ("SADD s 4", ":0"),
            ("SMEMBERS s", "*4|$1|1|$1|2|$1|3|$1|4"),
            ("SISMEMBER s 2", ":1"),
            ("SMISMEMBER s 2 9", "*2|:1|:0"),
            ("SCARD s", ":4"),
            ("SREM s 1 2 9", ":2"),
            ("SPOP s 0", "*0"),
            ("SPOP s 5", "*2|$1|3|$1|4"),
            ("SPOP s", "$-1"),
            ("SPOP s -1", "-ERR value is out of range, must be positive"),
            ("SRANDMEMBER s", "$-1"),
            ("SRANDMEMBER s 2", "*0"),
        ]);
        assert_eq!(
            db.events(),
            ["sadd s", "sadd s", "srem s", "spop s", "del s"]
        );
    }

    #[test]
    fn nothing_to_store_deletes_a_key_that_has_expired_and_was_not_met_yet() {
        for (call, met_before) in [
            ("SUNIONSTORE d none", false),
            ("SINTERSTORE d d none", true),
            ("ZUNIONSTORE d 1 none", false),
            ("ZRANGESTORE d none 0 -1", false),
            ("BITOP AND d none", false),
            ("SORT none STORE d", false),
            ("SORT d STORE d", true),
        ] {
            let mut db = TestDb::new();
            db.script(&[("SADD d a", ":1"), ("PEXPIRE d 10", ":1")]);
            db.pass_ms(20);
            db.events();
            db.script(&[(call, ":0")]);
            assert_eq!(db.changes, u64::from(!met_before), "{call}");
            db.script(&[("EXISTS d", ":0")]);
            let event = if met_before { "expired d" } else { "del d" };
            let told = db.events();
            let told: Vec<_> = told.iter().filter(|told| told.ends_with(" d")).collect();
            assert_eq!(told, [event], "{call}");
        }
    }

    #[test]
    fn moves() {
        let mut db = TestDb::new();
        db.script(&[
            ("SADD a x y", ":2"),
            ("SADD b x", ":1"),
            ("SMOVE a b x", ":1"),
            ("SMOVE a b z", ":0"),
            ("SMOVE a a y", ":1"),
            ("SMOVE a b y", ":1"),
            ("EXISTS a", ":0"),
            ("SCARD b", ":2"),
            ("SET k v", "+OK"),
            (
                "SMOVE b k x",
                "-WRONGTYPE Operation against a key holding the wrong kind of value",
            ),
        ]);
        assert_eq!(
            db.events(),
            [
                "sadd a", "sadd b", "srem a", "srem a", "del a", "sadd b", "set k"
            ]
        );
    }

    #[test]
    fn smove_made_a_table_of_a_set_that_had_the_member() {
        let mut db = TestDb::new();
        db.script(&[("SADD a x y", ":2"), ("SADD b x y", ":2")]);
        db.local.limits.set_max_listpack_entries = 0;
        db.script(&[
            ("SMOVE a b x", ":1"),
            ("OBJECT ENCODING b", "$8|listpack"),
            ("SADD a z", ":1"),
            ("SMOVE a b z", ":1"),
            ("OBJECT ENCODING b", "$9|hashtable"),
        ]);
    }

    #[test]
    fn smove_looks_at_the_destination_also_if_there_is_no_source() {
        let mut db = TestDb::new();
        db.script(&[
            ("SET text v", "+OK"),
            ("SADD a 1", ":1"),
            ("SADD b 1", ":1"),
            ("PEXPIRE a 10", ":1"),
            ("PEXPIRE b 10", ":1"),
        ]);
        db.pass_ms(11);
        db.events();
        db.script(&[("SMOVE none a 1", ":0")]);
        assert_eq!(db.events(), ["expired a"]);
        let wrong = "-WRONGTYPE Operation against a key holding the wrong kind of value";
        db.script(&[("SMOVE text b 1", wrong)]);
        assert_eq!(db.events(), ["expired b"]);
    }

    #[test]
    fn algebra() {
        let mut db = TestDb::new();
        db.script(&[
            ("SADD a 1 2 3", ":3"),
            ("SADD b 2 3 4", ":3"),
            ("SINTER a b", "*2|$1|2|$1|3"),
            ("SINTER a none", "*0"),
            ("SUNION a none", "*3|$1|1|$1|2|$1|3"),
            ("SDIFF a b", "*1|$1|1"),
            ("SDIFF none b", "*0"),
            ("SINTERCARD 2 a b", ":2"),
            ("SINTERCARD 2 a b LIMIT 1", ":1"),
            (
                "SINTERCARD 3 a b",
                "-ERR Number of keys can't be greater than number of args",
            ),
            ("SINTERCARD 0 a", "-ERR numkeys should be greater than 0"),
            ("SINTERSTORE c a b", ":2"),
            ("SDIFFSTORE c a a", ":0"),
            ("EXISTS c", ":0"),
            ("SUNIONSTORE c a b", ":4"),
        ]);
        db.proto = Proto::Resp3;
        db.script(&[("SINTER a b", "~2|$1|2|$1|3")]);
    }
}
