//! Commands of the group `string`.

use std::ops::Range;

use redline_keyspace::{Classes, Expiry, Found, StringRef, Trace, journal::Word};
use redline_resp::{Args, Reply};
use redline_spec::CommandId;
use redline_types::{
    lcs::{self, LcsError},
    number::{Extended, IntText, parse_i64},
};

use crate::{
    Ctx, Error, Failure,
    generic::propagate_expiry,
    word,
    words::{Words, integer, integer_in},
};

/// APPEND key value
pub(crate) fn append(
    ctx: &mut Ctx<'_>,
    args: Args<'_>,
    reply: &mut Reply<'_>,
) -> Result<(), Failure> {
    let (key, tail) = (&args[1], &args[2]);
    let bytes = match string_len(ctx, key)? {
        None => {
            store(ctx, args, 1, 2, Expiry::Clear);
            tail.len()
        }
        Some(bytes) => {
            let bytes = check_len(ctx, bytes, tail.len())?;
            ctx.keys.edit_string(key, tail.len(), |value| {
                value.extend_from_slice(tail);
                Ok::<_, Error>(())
            })?;
            bytes
        }
    };
    ctx.keys.changed(Classes::STRING, "append", key);
    reply.integer(bytes as i64);
    Ok(())
}

/// DECR key
pub(crate) fn decr(
    ctx: &mut Ctx<'_>,
    args: Args<'_>,
    reply: &mut Reply<'_>,
) -> Result<(), Failure> {
    Ok(add(ctx, &args[1], -1, reply)?)
}

/// DECRBY key decrement
pub(crate) fn decrby(
    ctx: &mut Ctx<'_>,
    args: Args<'_>,
    reply: &mut Reply<'_>,
) -> Result<(), Failure> {
    let by = integer(&args[2])?;
    let by = by
        .checked_neg()
        .ok_or(Error::line("ERR decrement would overflow"))?;
    Ok(add(ctx, &args[1], by, reply)?)
}

/// DELEX key [IFEQ value | IFNE value | IFDEQ digest | IFDNE digest]
pub(crate) fn delex(
    ctx: &mut Ctx<'_>,
    args: Args<'_>,
    reply: &mut Reply<'_>,
) -> Result<(), Failure> {
    let key = &args[1];
    let mut words = Words::new(CommandId::Delex, &args, 2);
    let meets = match words.len() {
        0 => ctx.keys.find(key, Trace::Quiet).is_some(),
        2 => {
            let only_if = OnlyIf::parse(&mut words)?.ok_or(Error::Syntax)?;
            let found = ctx.keys.find(key, Trace::Quiet);
            if found.is_some_and(|found| found.string().is_err()) {
                return Err(Error::line(
                    "ERR Key should be of string type if conditions are specified",
                )
                .into());
            }
            // A missing key meets the conditions under which a SET would create it.
            only_if.meets(ctx, key)? && ctx.keys.find(key, Trace::Quiet).is_some()
        }
        _ => return Err(words.wrong_arity().into()),
    };
    delete_if(meets, ctx, key, reply);
    Ok(())
}

/// DELIFEQ key value
pub(crate) fn delifeq(
    ctx: &mut Ctx<'_>,
    args: Args<'_>,
    reply: &mut Reply<'_>,
) -> Result<(), Failure> {
    let meets = OnlyIf::Equal(&args[2]).meets(ctx, &args[1])?;
    delete_if(meets, ctx, &args[1], reply);
    Ok(())
}

/// DIGEST key
pub(crate) fn digest(
    ctx: &mut Ctx<'_>,
    args: Args<'_>,
    reply: &mut Reply<'_>,
) -> Result<(), Failure> {
    match ctx.keys.string(&args[1])? {
        Some(value) => reply.bulk(digest_text(value.as_bytes()).as_bytes()),
        None => reply.null(),
    }
    Ok(())
}

/// GET key
#[inline]
pub(crate) fn get(ctx: &mut Ctx<'_>, args: Args<'_>, reply: &mut Reply<'_>) -> Result<(), Failure> {
    reply_string(ctx.keys.string(&args[1])?, reply);
    Ok(())
}

/// GETDEL key
pub(crate) fn getdel(
    ctx: &mut Ctx<'_>,
    args: Args<'_>,
    reply: &mut Reply<'_>,
) -> Result<(), Failure> {
    let Some(value) = ctx.keys.string(&args[1])? else {
        reply.null();
        return Ok(());
    };
    reply_string(Some(value), reply);
    ctx.keys.remove(&args[1]);
    ctx.keys.changed(Classes::GENERIC, "del", &args[1]);
    ctx.keys.propagate(&[b"DEL", &args[1]]);
    Ok(())
}

/// GETEX key [EX seconds | PX ms | EXAT s | PXAT ms | PERSIST]
pub(crate) fn getex(
    ctx: &mut Ctx<'_>,
    args: Args<'_>,
    reply: &mut Reply<'_>,
) -> Result<(), Failure> {
    let key = &args[1];
    let options = Options::parse(Words::new(CommandId::Getex, &args, 2))?;
    let Some(value) = ctx.keys.string(key)? else {
        reply.null();
        return Ok(());
    };
    let now_ms = ctx.keys.now_ms();
    let (at_ms, event) = match options.expiry {
        None | Some(ExpiryOption::Keep) => {
            reply_string(Some(value), reply);
            return Ok(());
        }
        Some(ExpiryOption::Persist) => (None, "persist"),
        Some(ExpiryOption::Time(unit, time)) => {
            (Some(unit.at_ms(time, now_ms, CommandId::Getex)?), "expire")
        }
    };
    reply_string(Some(value), reply);
    if at_ms.is_some_and(|at_ms| at_ms <= now_ms) {
        ctx.keys.remove(key);
        ctx.keys.changed(Classes::GENERIC, "del", key);
        ctx.keys.propagate(&[b"DEL", key]);
    } else if at_ms.is_some() || expires(ctx, key) {
        // The key has been used already.
        let frozen = std::mem::replace(&mut ctx.keys.local.clock.frozen, true);
        ctx.keys.set_expiry(key, at_ms);
        ctx.keys.local.clock.frozen = frozen;
        ctx.keys.changed(Classes::GENERIC, event, key);
        match at_ms {
            Some(at_ms) => propagate_expiry(ctx, key, at_ms),
            None => ctx.keys.propagate(&[b"PERSIST", key]),
        }
    }
    Ok(())
}

/// Returns true if the key exists and has an expiry.
fn expires(ctx: &Ctx<'_>, key: &[u8]) -> bool {
    let found = ctx.keys.find(key, Trace::Quiet);
    found.and_then(Found::expire_at_ms).is_some()
}

/// GETRANGE key start end
pub(crate) fn getrange(
    ctx: &mut Ctx<'_>,
    args: Args<'_>,
    reply: &mut Reply<'_>,
) -> Result<(), Failure> {
    let (start, end) = (integer(&args[2])?, integer(&args[3])?);
    let Some(value) = ctx.keys.string(&args[1])? else {
        reply.bulk(b"");
        return Ok(());
    };
    let part = byte_range(start, end, value.as_bytes().len());
    match value {
        StringRef::Inline { bytes, .. } => reply.bulk(&bytes[part]),
        StringRef::Blob(blob) => reply.blob_part(blob, part),
    }
    Ok(())
}

/// GETSET key value
pub(crate) fn getset(
    ctx: &mut Ctx<'_>,
    args: Args<'_>,
    reply: &mut Reply<'_>,
) -> Result<(), Failure> {
    reply_string(ctx.keys.string(&args[1])?, reply);
    set_and_report(ctx, args, 1, 2, Expiry::Clear);
    propagate_set(ctx, args, 1, 2, Expiry::Clear);
    Ok(())
}

/// INCR key
pub(crate) fn incr(
    ctx: &mut Ctx<'_>,
    args: Args<'_>,
    reply: &mut Reply<'_>,
) -> Result<(), Failure> {
    Ok(add(ctx, &args[1], 1, reply)?)
}

/// INCRBY key increment
pub(crate) fn incrby(
    ctx: &mut Ctx<'_>,
    args: Args<'_>,
    reply: &mut Reply<'_>,
) -> Result<(), Failure> {
    Ok(add(ctx, &args[1], integer(&args[2])?, reply)?)
}

/// INCRBYFLOAT key increment
pub(crate) fn incrbyfloat(
    ctx: &mut Ctx<'_>,
    args: Args<'_>,
    reply: &mut Reply<'_>,
) -> Result<(), Failure> {
    let mut text = Vec::new();
    let sum = &mut text;
    ctx.keys.map_string(&args[1], |old| {
        let old = Extended::parse(old.unwrap_or(b"0")).ok_or(Error::NotFloat)?;
        let by = Extended::parse(&args[2]).ok_or(Error::NotFloat)?;
        let result = old
            .checked_add(by)
            .ok_or(Error::line("ERR increment would produce NaN or Infinity"))?;
        result.format(sum);
        Ok::<_, Error>((&*sum, ()))
    })?;
    ctx.keys.changed(Classes::STRING, "incrbyfloat", &args[1]);
    ctx.keys.propagate(&[b"SET", &args[1], &text, b"KEEPTTL"]);
    reply.bulk(&text);
    Ok(())
}

/// LCS key1 key2 [LEN] [IDX] [MINMATCHLEN bytes] [WITHMATCHLEN]
pub(crate) fn lcs(ctx: &mut Ctx<'_>, args: Args<'_>, reply: &mut Reply<'_>) -> Result<(), Failure> {
    let (a, b) = (ctx.keys.string(&args[1]), ctx.keys.string(&args[2]));
    let (Ok(a), Ok(b)) = (a, b) else {
        return Err(Error::line("ERR The specified keys must contain string values").into());
    };
    let [a, b] = [a, b].map(|value| value.map_or(&b""[..], StringRef::as_bytes));
    let (mut len, mut index, mut with_match_len, mut min_match_len) = (false, false, false, 0);
    let mut words = Words::new(CommandId::Lcs, &args, 3);
    while !words.is_empty() {
        if words.flag("LEN") {
            len = true;
        } else if words.flag("IDX") {
            index = true;
        } else if words.flag("WITHMATCHLEN") {
            with_match_len = true;
        } else if let Some(len) = words.pair::<i64>("MINMATCHLEN")? {
            min_match_len = len.max(0);
        } else {
            return Err(Error::Syntax.into());
        }
    }
    let table_bytes_max = ctx.bulk_bytes_max;
    match (index, len) {
        (true, true) => Err(Error::line(
            "ERR If you want both the length and indexes, please just use IDX.",
        )
        .into()),
        (true, false) => {
            let min_match_len = usize::try_from(min_match_len).unwrap_or(usize::MAX);
            let (matches, len) = lcs::matches(a, b, min_match_len, table_bytes_max)?;
            reply_matches(&matches, len, with_match_len, reply);
            Ok(())
        }
        (false, true) => {
            reply.integer(lcs::length(a, b, table_bytes_max)? as i64);
            Ok(())
        }
        (false, false) => {
            reply.bulk(&lcs::subsequence(a, b, table_bytes_max)?);
            Ok(())
        }
    }
}

/// MGET key [key …]
pub(crate) fn mget(
    ctx: &mut Ctx<'_>,
    args: Args<'_>,
    reply: &mut Reply<'_>,
) -> Result<(), Failure> {
    reply.array(args.len() - 1);
    for key in args.from(1).iter() {
        // A value of another type counts as missing here.
        reply_string(ctx.keys.string(key).unwrap_or(None), reply);
    }
    Ok(())
}

/// MSET key value [key value …]
pub(crate) fn mset(
    ctx: &mut Ctx<'_>,
    args: Args<'_>,
    reply: &mut Reply<'_>,
) -> Result<(), Failure> {
    if args.len().is_multiple_of(2) {
        return Err(Error::line("ERR wrong number of arguments for 'mset' command").into());
    }
    for at in (1..args.len()).step_by(2) {
        set_and_report(ctx, args, at, at + 1, Expiry::Clear);
    }
    reply.ok();
    Ok(())
}

/// MSETEX numkeys key value [key value …] [NX | XX] [EX seconds | PX ms | EXAT s | PXAT ms | KEEPTTL]
pub(crate) fn msetex(
    ctx: &mut Ctx<'_>,
    args: Args<'_>,
    reply: &mut Reply<'_>,
) -> Result<(), Failure> {
    const BAD_COUNT: Error = Error::line("ERR invalid numkeys value or out of range");
    let keys = integer_in(&args[1], 1..=i64::from(i32::MAX), BAD_COUNT)?;
    let mut words = Words::new(CommandId::Msetex, &args, 2);
    words.take_args(2 * keys as usize).ok_or(Error::Syntax)?;
    let end = words.at();
    let options = Options::parse(words)?;
    let expiry = options.expiry_of_set(ctx, CommandId::Msetex)?;
    let mut meets = true;
    for at in (2..end).step_by(2) {
        meets &= match options.only_if {
            Some(only_if) => only_if.meets(ctx, &args[at])?,
            None => true,
        };
    }
    if meets {
        for at in (2..end).step_by(2) {
            set_and_report(ctx, args, at, at + 1, expiry);
            // Servers that apply the journal may lack this command, as Redis does: each key is recorded as a SET.
            propagate_set(ctx, args, at, at + 1, expiry);
        }
    }
    reply.integer(i64::from(meets));
    Ok(())
}

/// MSETNX key value [key value …]
pub(crate) fn msetnx(
    ctx: &mut Ctx<'_>,
    args: Args<'_>,
    reply: &mut Reply<'_>,
) -> Result<(), Failure> {
    if args.len().is_multiple_of(2) {
        return Err(Error::line("ERR wrong number of arguments for 'msetnx' command").into());
    }
    let free = args
        .from(1)
        .iter()
        .step_by(2)
        .all(|key| ctx.keys.find(key, Trace::Write).is_none());
    if free {
        for at in (1..args.len()).step_by(2) {
            set_and_report(ctx, args, at, at + 1, Expiry::Clear);
        }
    }
    reply.integer(i64::from(free));
    Ok(())
}

/// PSETEX key milliseconds value
pub(crate) fn psetex(
    ctx: &mut Ctx<'_>,
    args: Args<'_>,
    reply: &mut Reply<'_>,
) -> Result<(), Failure> {
    let at_ms = TimeUnit::Milliseconds.at_ms(&args[2], ctx.keys.now_ms(), CommandId::Psetex)?;
    set_and_report(ctx, args, 1, 3, Expiry::AtMs(at_ms));
    propagate_set(ctx, args, 1, 3, Expiry::AtMs(at_ms));
    reply.ok();
    Ok(())
}

/// SET key value [NX | XX | IFEQ value | IFNE value | IFDEQ digest | IFDNE digest] [GET]
/// [EX seconds | PX ms | EXAT s | PXAT ms | KEEPTTL]
#[inline]
pub(crate) fn set(ctx: &mut Ctx<'_>, args: Args<'_>, reply: &mut Reply<'_>) -> Result<(), Failure> {
    if args.len() > 3 {
        return Ok(set_with_options(ctx, args, reply)?);
    }
    set_and_report(ctx, args, 1, 2, Expiry::Clear);
    reply.ok();
    Ok(())
}

/// SETEX key seconds value
pub(crate) fn setex(
    ctx: &mut Ctx<'_>,
    args: Args<'_>,
    reply: &mut Reply<'_>,
) -> Result<(), Failure> {
    let at_ms = TimeUnit::Seconds.at_ms(&args[2], ctx.keys.now_ms(), CommandId::Setex)?;
    set_and_report(ctx, args, 1, 3, Expiry::AtMs(at_ms));
    propagate_set(ctx, args, 1, 3, Expiry::AtMs(at_ms));
    reply.ok();
    Ok(())
}

/// SETNX key value
pub(crate) fn setnx(
    ctx: &mut Ctx<'_>,
    args: Args<'_>,
    reply: &mut Reply<'_>,
) -> Result<(), Failure> {
    let free = ctx.keys.find(&args[1], Trace::Write).is_none();
    if free {
        set_and_report(ctx, args, 1, 2, Expiry::Clear);
    }
    reply.integer(i64::from(free));
    Ok(())
}

/// SETRANGE key offset value
pub(crate) fn setrange(
    ctx: &mut Ctx<'_>,
    args: Args<'_>,
    reply: &mut Reply<'_>,
) -> Result<(), Failure> {
    let (key, value) = (&args[1], &args[3]);
    let offset = usize::try_from(integer(&args[2])?)
        .map_err(|_| Error::line("ERR offset is out of range"))?;
    let before = string_len(ctx, key)?.unwrap_or(0);
    if value.is_empty() {
        reply.integer(before as i64);
        return Ok(());
    }
    let end = check_len(ctx, offset, value.len())?;
    let bytes = if end <= before {
        ctx.keys
            .edit_bytes(key, |string| string[offset..end].copy_from_slice(value))?;
        before
    } else {
        ctx.keys
            .edit_string(key, end.saturating_sub(before), |string| {
                if string.is_empty() {
                    // Zeros from the operating system cost nothing.
                    *string = vec![0; end];
                } else if string.len() < end {
                    string.resize(end, 0);
                }
                string[offset..end].copy_from_slice(value);
                Ok::<_, Error>(string.len())
            })?
    };
    ctx.keys.changed(Classes::STRING, "setrange", key);
    reply.integer(bytes as i64);
    Ok(())
}

/// STRLEN key
pub(crate) fn strlen(
    ctx: &mut Ctx<'_>,
    args: Args<'_>,
    reply: &mut Reply<'_>,
) -> Result<(), Failure> {
    let bytes = ctx
        .keys
        .string(&args[1])?
        .map_or(0, |value| value.as_bytes().len());
    reply.integer(bytes as i64);
    Ok(())
}

/// SUBSTR key start end: the old name of GETRANGE.
pub(crate) fn substr(
    ctx: &mut Ctx<'_>,
    args: Args<'_>,
    reply: &mut Reply<'_>,
) -> Result<(), Failure> {
    getrange(ctx, args, reply)
}

fn set_with_options(ctx: &mut Ctx<'_>, args: Args<'_>, reply: &mut Reply<'_>) -> Result<(), Error> {
    let options = Options::parse(Words::new(CommandId::Set, &args, 3))?;
    let expiry = options.expiry_of_set(ctx, CommandId::Set)?;
    if options.get {
        reply_string(ctx.keys.string(&args[1])?, reply);
    }
    let meets = match options.only_if {
        Some(only_if) => only_if.meets(ctx, &args[1])?,
        None => true,
    };
    if !meets {
        if !options.get {
            reply.null();
        }
        return Ok(());
    }
    set_and_report(ctx, args, 1, 2, expiry);
    propagate_set(ctx, args, 1, 2, expiry);
    if !options.get {
        reply.ok();
    }
    Ok(())
}

/// Records in the journal that one argument, a key, was set to another.
fn propagate_set(ctx: &mut Ctx<'_>, args: Args<'_>, key: usize, value: usize, expiry: Expiry) {
    if !ctx.keys.is_journaled() {
        return;
    }
    let text = match expiry {
        Expiry::AtMs(at_ms) => Some(IntText::new(at_ms)),
        Expiry::Clear | Expiry::Keep => None,
    };
    let more: &[&[u8]] = match (expiry, &text) {
        (Expiry::AtMs(_), Some(text)) => &[b"PXAT", text.as_ref()],
        (Expiry::Keep, _) => &[b"KEEPTTL"],
        _ => &[],
    };
    let set = [Word::Bytes(b"SET"), word(args, key), word(args, value)];
    let more = more.iter().map(|word| Word::Bytes(word));
    ctx.keys.propagate(set.into_iter().chain(more));
}

/// Stores one argument under another.
#[inline]
fn store(ctx: &mut Ctx<'_>, args: Args<'_>, key: usize, value: usize, expiry: Expiry) {
    match args.blob(value) {
        None => ctx.keys.set_string(&args[key], &args[value], expiry),
        Some(blob) => {
            ctx.keys.insert(&args[key], blob.clone(), expiry);
        }
    }
}

/// Stores one argument under another, and reports the events of SET.
#[inline]
fn set_and_report(ctx: &mut Ctx<'_>, args: Args<'_>, key: usize, value: usize, expiry: Expiry) {
    store(ctx, args, key, value, expiry);
    ctx.keys.changed(Classes::STRING, "set", &args[key]);
    if matches!(expiry, Expiry::AtMs(_)) {
        ctx.keys.notify(Classes::GENERIC, "expire", &args[key]);
    }
}

/// Returns the length of a string that is going to be changed; `None` if the key is missing.
fn string_len(ctx: &Ctx<'_>, key: &[u8]) -> Result<Option<usize>, Error> {
    let found = ctx.keys.find(key, Trace::Quiet);
    let string = found.map(Found::string).transpose()?;
    Ok(string.map(|string| string.as_bytes().len()))
}

/// Returns the sum of two lengths, if a string may be so long.
fn check_len(ctx: &Ctx<'_>, bytes: usize, more: usize) -> Result<usize, Error> {
    let sum = bytes.checked_add(more).ok_or(Error::StringTooLong)?;
    if sum as u64 > ctx.bulk_bytes_max {
        Err(Error::StringTooLong)
    } else {
        Ok(sum)
    }
}

/// Returns the part of a string of `len` bytes from one index to another, both inclusive; negative ones count from the
/// end.
fn byte_range(start: i64, end: i64, len: usize) -> Range<usize> {
    if start < 0 && end < 0 && start > end {
        return 0..0;
    }
    let len = len as i64;
    let from_start = |index: i64| {
        if index < 0 {
            (len + index).max(0)
        } else {
            index
        }
    };
    let (start, end) = (from_start(start), from_start(end).min(len - 1));
    if start > end {
        0..0
    } else {
        start as usize..end as usize + 1
    }
}

/// Writes the reply of LCS … IDX.
fn reply_matches(matches: &[lcs::Match], len: usize, with_len: bool, reply: &mut Reply<'_>) {
    reply.map(2);
    reply.bulk(b"matches");
    reply.array(matches.len());
    for found in matches {
        reply.array(if with_len { 3 } else { 2 });
        for start in [found.a_start, found.b_start] {
            reply.array(2);
            reply.integer(start as i64);
            reply.integer((start + found.len - 1) as i64);
        }
        if with_len {
            reply.integer(found.len as i64);
        }
    }
    reply.bulk(b"len");
    reply.integer(len as i64);
}

impl From<LcsError> for Failure {
    fn from(error: LcsError) -> Failure {
        Failure::Reply(error.into())
    }
}

impl From<LcsError> for Error {
    fn from(error: LcsError) -> Error {
        Error::line(match error {
            LcsError::StringTooLong => "ERR String too long for LCS",
            LcsError::TableTooLarge => {
                "ERR Insufficient memory, transient memory for LCS exceeds proto-max-bulk-len"
            }
            LcsError::OutOfMemory => {
                "ERR Insufficient memory, failed allocating transient memory for LCS"
            }
        })
    }
}

#[inline]
fn reply_string(value: Option<StringRef<'_>>, reply: &mut Reply<'_>) {
    match value {
        Some(StringRef::Inline { bytes, .. }) => reply.bulk(bytes),
        Some(StringRef::Blob(blob)) => reply.blob(blob),
        None => reply.null(),
    }
}

/// Replaces a stored integer by its sum with another.
fn add(ctx: &mut Ctx<'_>, key: &[u8], by: i64, reply: &mut Reply<'_>) -> Result<(), Error> {
    let sum = ctx.keys.map_string(key, |old| {
        let old = old.map_or(Some(0), parse_i64).ok_or(Error::NotInteger)?;
        let sum = old.checked_add(by).ok_or(Error::Overflow)?;
        Ok::<_, Error>((IntText::new(sum), sum))
    })?;
    ctx.keys.changed(Classes::STRING, "incrby", key);
    reply.integer(sum);
    Ok(())
}

/// Condition on the key.
#[derive(Clone, Copy, PartialEq, Eq)]
enum OnlyIf<'a> {
    Missing,
    Exists,
    /// The key has this value.
    Equal(&'a [u8]),
    /// The key has another value, or is missing.
    NotEqual(&'a [u8]),
    /// The key has a value with this digest.
    DigestEqual(&'a [u8]),
    /// The key has a value with another digest, or is missing.
    DigestNotEqual(&'a [u8]),
}

impl<'a> OnlyIf<'a> {
    /// Takes a condition with an operand; `None` if the next word is no condition.
    fn parse(words: &mut Words<'a>) -> Result<Option<OnlyIf<'a>>, Error> {
        let only_if = words.value_of::<fn(&'a [u8]) -> OnlyIf<'a>>(&[
            ("IFEQ", OnlyIf::Equal),
            ("IFNE", OnlyIf::NotEqual),
            ("IFDEQ", OnlyIf::DigestEqual),
            ("IFDNE", OnlyIf::DigestNotEqual),
        ]);
        let only_if = only_if.map(|(make, operand)| make(operand));
        if let Some(OnlyIf::DigestEqual(digest) | OnlyIf::DigestNotEqual(digest)) = only_if
            && (digest.len() != DIGEST_DIGITS || !digest.iter().all(u8::is_ascii_hexdigit))
        {
            return Err(Error::line(
                "ERR digest must be exactly 16 hexadecimal characters",
            ));
        }
        Ok(only_if)
    }

    fn meets(self, ctx: &Ctx<'_>, key: &[u8]) -> Result<bool, Error> {
        let (other, as_digest, wanted) = match self {
            OnlyIf::Missing => return Ok(ctx.keys.find(key, Trace::Write).is_none()),
            OnlyIf::Exists => return Ok(ctx.keys.find(key, Trace::Quiet).is_some()),
            OnlyIf::Equal(other) => (other, false, true),
            OnlyIf::NotEqual(other) => (other, false, false),
            OnlyIf::DigestEqual(other) => (other, true, true),
            OnlyIf::DigestNotEqual(other) => (other, true, false),
        };
        let found = ctx.keys.find(key, Trace::Quiet);
        let equal = match found.map(Found::string).transpose()? {
            None => false,
            Some(value) if as_digest => digest_text(value.as_bytes())
                .as_bytes()
                .eq_ignore_ascii_case(other),
            Some(value) => value.as_bytes() == other,
        };
        Ok(equal == wanted)
    }
}

/// Number of digits of a digest.
const DIGEST_DIGITS: usize = 16;

/// Returns the 64-bit XXH3 of a value, as hexadecimal digits.
fn digest_text(value: &[u8]) -> String {
    format!("{:016x}", xxhash_rust::xxh3::xxh3_64(value))
}

/// Deletes a key that has met a condition, and replies with the number of deleted keys.
fn delete_if(meets: bool, ctx: &mut Ctx<'_>, key: &[u8], reply: &mut Reply<'_>) {
    if meets {
        ctx.keys.remove(key);
        ctx.keys.changed(Classes::GENERIC, "del", key);
        ctx.keys.propagate(&[b"DEL", key]);
    }
    reply.integer(i64::from(meets));
}

/// Notation of an expiry.
#[derive(Clone, Copy, PartialEq, Eq)]
enum TimeUnit {
    Seconds,
    Milliseconds,
    UnixSeconds,
    UnixMilliseconds,
}

impl TimeUnit {
    /// Returns the Unix time in milliseconds that an argument in this unit means; `id` is for the error.
    fn at_ms(self, argument: &[u8], now_ms: i64, id: CommandId) -> Result<i64, Error> {
        let number = integer(argument)?;
        let scale = match self {
            TimeUnit::Seconds | TimeUnit::UnixSeconds => 1000,
            TimeUnit::Milliseconds | TimeUnit::UnixMilliseconds => 1,
        };
        let base = match self {
            TimeUnit::Seconds | TimeUnit::Milliseconds => now_ms,
            TimeUnit::UnixSeconds | TimeUnit::UnixMilliseconds => 0,
        };
        Some(number)
            .filter(|number| *number > 0)
            .and_then(|number| number.checked_mul(scale)?.checked_add(base))
            .ok_or(Error::InvalidExpire(id))
    }
}

#[derive(Clone, Copy)]
enum ExpiryOption<'a> {
    Keep,
    Persist,
    Time(TimeUnit, &'a [u8]),
}

/// Options of SET, GETEX and MSETEX.
#[derive(Default)]
struct Options<'a> {
    only_if: Option<OnlyIf<'a>>,
    get: bool,
    expiry: Option<ExpiryOption<'a>>,
}

impl<'a> Options<'a> {
    /// Returns the change to the expiry of a key that is set.
    fn expiry_of_set(&self, ctx: &Ctx<'_>, id: CommandId) -> Result<Expiry, Error> {
        Ok(match self.expiry {
            None => Expiry::Clear,
            Some(ExpiryOption::Keep) => Expiry::Keep,
            Some(ExpiryOption::Persist) => {
                unreachable!("not among the options of a command that sets")
            }
            Some(ExpiryOption::Time(unit, time)) => {
                Expiry::AtMs(unit.at_ms(time, ctx.keys.now_ms(), id)?)
            }
        })
    }

    fn parse(mut words: Words<'a>) -> Result<Options<'a>, Error> {
        use {ExpiryOption::*, TimeUnit::*};
        const TIMES: &[(&str, TimeUnit)] = &[
            ("EX", Seconds),
            ("PX", Milliseconds),
            ("EXAT", UnixSeconds),
            ("PXAT", UnixMilliseconds),
        ];
        let (set, single) = (words.id() != CommandId::Getex, words.id() == CommandId::Set);
        let mut options = Options::default();
        while !words.is_empty() {
            let Options {
                only_if, expiry, ..
            } = options;
            if single
                && only_if.is_none()
                && let Some(condition) = OnlyIf::parse(&mut words)?
            {
                options.only_if = Some(condition);
            } else if set && matches!(only_if, None | Some(OnlyIf::Missing)) && words.flag("NX") {
                options.only_if = Some(OnlyIf::Missing);
            } else if set && matches!(only_if, None | Some(OnlyIf::Exists)) && words.flag("XX") {
                options.only_if = Some(OnlyIf::Exists);
            } else if single && words.flag("GET") {
                options.get = true;
            } else if set && matches!(expiry, None | Some(Keep)) && words.flag("KEEPTTL") {
                options.expiry = Some(Keep);
            } else if !set && matches!(expiry, None | Some(Persist)) && words.flag("PERSIST") {
                options.expiry = Some(Persist);
            } else if let Some((unit, time)) = words.value_of(TIMES)
                && expiry.is_none_or(|before| matches!(before, Time(other, _) if other == unit))
            {
                options.expiry = Some(Time(unit, time));
            } else {
                return Err(Error::Syntax);
            }
        }
        Ok(options)
    }
}

#[cfg(test)]
mod tests;
