//! Commands that change series, and what their rules make of it.

use redline_keyspace::{Classes, Expiry, Trace, View, journal::Word};
use redline_resp::{Args, Reply};
use redline_spec::CommandId;
use redline_types::{
    Series, Value, number,
    number::IntText,
    series::{
        Added, Aggregation, CHUNK_BYTES_MAX, CHUNK_BYTES_MIN, Label, Outcome, Policy, Refused,
        Rule, Sample, Shape,
    },
};

use super::{NO_KEY, NOT_SERIES, existing, is_linked, series_of, time, value};
use crate::{Ctx, Error, Failure, word, words::Words};

const KEY_EXISTS: Error = Error::line("ERR TSDB: key already exists");
pub(super) const TOO_OLD: Error = Error::line("ERR TSDB: Timestamp is older than retention");
const BLOCKED: Error = Error::line(
    "ERR TSDB: Error at upsert, update is not supported when DUPLICATE_POLICY is set to BLOCK mode",
);
const BEFORE_LAST: Error =
    Error::line("TSDB: timestamp must be equal to or higher than the maximum existing timestamp");
pub(super) const WRONG_VALUE: Error = Error::line("ERR TSDB: invalid value");
const WRONG_RETENTION: Error = Error::line("ERR TSDB: Couldn't parse RETENTION");
const NEGATIVE_RETENTION: Error = Error::line("TSDB: Couldn't parse RETENTION");
const WRONG_CHUNK_SIZE: Error = Error::line("ERR TSDB: Couldn't parse CHUNK_SIZE");
const CHUNK_SIZE_OUT_OF_RANGE: Error =
    Error::line("ERR TSDB: CHUNK_SIZE value must be a multiple of 8 in the range [48 .. 1048576]");
const WRONG_ENCODING: Error = Error::line("ERR TSDB: unknown ENCODING parameter");
const WRONG_POLICY: Error = Error::line("ERR TSDB: Unknown DUPLICATE_POLICY");
const WRONG_IGNORE: Error = Error::line("ERR TSDB: Couldn't parse IGNORE");
const NEGATIVE_IGNORE: Error = Error::line("ERR TSDB: IGNORE arguments cannot be negative");
const WRONG_LABELS: Error = Error::line("ERR TSDB: Couldn't parse LABELS");

/// The properties that a call gives a series, or changes.
#[derive(Clone, Debug, Default)]
struct Given {
    retention_ms: Option<u64>,
    chunk_bytes: Option<u32>,
    compressed: Option<bool>,
    policy: Option<Policy>,
    ignore: Option<(u64, f64)>,
    labels: Option<Vec<Label>>,
    /// For this call alone (ON_DUPLICATE).
    on_duplicate: Option<Policy>,
    /// Time of the sample (TIMESTAMP); the call's if it is `*`.
    timestamp: Option<u64>,
    /// Places of the words `*` that stand for a time.
    now_at: Vec<usize>,
}

impl Given {
    /// Reads options in any order, the labels last.
    fn parse(mut words: Words<'_>, now_ms: i64) -> Result<Given, Error> {
        let mut given = Given::default();
        let id = words.id();
        let adds = matches!(id, CommandId::TsAdd);
        let counts = matches!(id, CommandId::TsIncrby | CommandId::TsDecrby);
        while !words.is_empty() {
            if words.flag("RETENTION") {
                let word = words.next().ok_or(WRONG_RETENTION)?;
                let retention_ms = number::parse_i64(word).ok_or(WRONG_RETENTION)?;
                let retention_ms = u64::try_from(retention_ms).map_err(|_| NEGATIVE_RETENTION)?;
                given.retention_ms = Some(retention_ms);
            } else if words.flag("CHUNK_SIZE") {
                let word = words.next().ok_or(WRONG_CHUNK_SIZE)?;
                given.chunk_bytes = Some(chunk_bytes(word)?);
            } else if words.flag("DUPLICATE_POLICY") {
                let name = words.next().ok_or(WRONG_POLICY)?;
                given.policy = Some(Policy::of_name(name).ok_or(WRONG_POLICY)?);
            } else if adds && words.flag("ON_DUPLICATE") {
                let name = words.next().ok_or(WRONG_POLICY)?;
                given.on_duplicate = Some(Policy::of_name(name).ok_or(WRONG_POLICY)?);
            } else if counts && words.flag("TIMESTAMP") {
                let place = words.at();
                let word = words.next().ok_or_else(|| words.wrong_arity())?;
                let (time, is_now) = time_or_now(word, now_ms)?;
                given.timestamp = Some(time);
                given.now_at.extend(is_now.then_some(place));
            } else if words.flag("IGNORE") {
                given.ignore = Some(ignore(&mut words)?);
            } else if words.flag("LABELS") {
                given.labels = Some(labels(words.rest())?);
                break;
            } else if id != CommandId::TsAlter && words.flag("ENCODING") {
                given.compressed = Some(match words.next() {
                    Some(name) if name.eq_ignore_ascii_case(b"COMPRESSED") => true,
                    Some(name) if name.eq_ignore_ascii_case(b"UNCOMPRESSED") => false,
                    _ => return Err(WRONG_ENCODING),
                });
            } else if words.undocumented("UNCOMPRESSED") {
                given.compressed = Some(false);
            } else {
                // The module looks for the words that it knows.
                words.next();
            }
        }
        Ok(given)
    }

    /// Returns a shape with these properties in place of its own.
    fn apply(self, shape: Shape) -> Shape {
        Shape {
            retention_ms: self.retention_ms.unwrap_or(shape.retention_ms),
            chunk_bytes: self.chunk_bytes.unwrap_or(shape.chunk_bytes),
            compressed: self.compressed.unwrap_or(shape.compressed),
            policy: self.policy.or(shape.policy),
            ignore: self.ignore.unwrap_or(shape.ignore),
            labels: self.labels.map_or(shape.labels, Into::into),
        }
    }
}

fn chunk_bytes(word: &[u8]) -> Result<u32, Error> {
    let bytes = number::parse_i64(word).ok_or(WRONG_CHUNK_SIZE)?;
    let bytes = u32::try_from(bytes).map_err(|_| CHUNK_SIZE_OUT_OF_RANGE)?;
    let is_in_range = (CHUNK_BYTES_MIN..=CHUNK_BYTES_MAX).contains(&bytes);
    match is_in_range && bytes.is_multiple_of(8) {
        true => Ok(bytes),
        false => Err(CHUNK_SIZE_OUT_OF_RANGE),
    }
}

fn ignore(words: &mut Words<'_>) -> Result<(u64, f64), Error> {
    let (time, difference) = (words.next(), words.next());
    let (time, difference) = time.zip(difference).ok_or(WRONG_IGNORE)?;
    let time = number::parse_i64(time).ok_or(WRONG_IGNORE)?;
    let difference = value(difference).ok_or(WRONG_IGNORE)?;
    match u64::try_from(time) {
        Ok(time) if difference >= 0.0 => Ok((time, difference)),
        _ => Err(NEGATIVE_IGNORE),
    }
}

/// Reads pairs of a name and a value; a name alone at the end is no label.
pub(super) fn labels(words: Args<'_>) -> Result<Vec<Label>, Error> {
    let mut labels = Vec::with_capacity(words.len() / 2);
    for at in 0..words.len() / 2 {
        let (name, value) = (&words[2 * at], &words[2 * at + 1]);
        let is_wrong = |text: &[u8]| text.is_empty() || text.iter().any(|c| b"(),".contains(c));
        if name.is_empty() || is_wrong(value) {
            return Err(WRONG_LABELS);
        }
        labels.push(Label {
            name: name.into(),
            value: value.into(),
        });
    }
    Ok(labels)
}

/// Reads a time, or `*`: then true, with the unit's.
pub(super) fn time_or_now(word: &[u8], now_ms: i64) -> Result<(u64, bool), Error> {
    match word {
        b"*" => Ok((now_ms.max(0) as u64, true)),
        word => time(word).map(|time| (time, false)),
    }
}

/// Returns the shape of a new series before a call says more.
fn default_shape(keys: &View<'_>) -> Shape {
    let defaults = keys.local.limits.series;
    Shape {
        retention_ms: defaults.retention_ms,
        chunk_bytes: defaults.chunk_bytes,
        compressed: defaults.compressed,
        policy: Some(defaults.policy),
        ignore: (defaults.ignore_ms, defaults.ignore_difference),
        ..Shape::default()
    }
}

/// Makes a series under a key that is not there. The journal gets all its properties: those that a call leaves out are
/// settings, which a reader may have set otherwise.
fn create(keys: &mut View<'_>, key: &[u8], shape: Shape) {
    if keys.is_journaled() {
        let (retention, chunk) = (
            shape.retention_ms.to_string(),
            shape.chunk_bytes.to_string(),
        );
        let ignored = (shape.ignore.0.to_string(), shape.ignore.1.to_string());
        let encoding: &[u8] = match shape.compressed {
            true => b"COMPRESSED",
            false => b"UNCOMPRESSED",
        };
        let mut words: Vec<&[u8]> = vec![b"TS.CREATE", key];
        words.extend([b"RETENTION", retention.as_bytes()]);
        words.extend([b"CHUNK_SIZE", chunk.as_bytes(), b"ENCODING", encoding]);
        if let Some(policy) = shape.policy {
            words.extend([b"DUPLICATE_POLICY", policy.name().as_bytes()]);
        }
        words.extend([b"IGNORE", ignored.0.as_bytes(), ignored.1.as_bytes()]);
        if !shape.labels.is_empty() {
            words.push(b"LABELS");
        }
        for label in shape.labels.iter() {
            words.extend([&*label.name, &*label.value]);
        }
        keys.propagate(&words[..]);
    }
    let value = Value::from(Series::new(key, shape));
    keys.insert(key, value, Expiry::Clear);
}

/// Returns the names of the keys that rules of the key write.
fn targets(keys: &View<'_>, key: &[u8]) -> Vec<Box<[u8]>> {
    match series_of(keys, key, Trace::Quiet) {
        Ok(Some(series)) => series
            .rules()
            .iter()
            .map(|rule| rule.target().into())
            .collect(),
        _ => Vec::new(),
    }
}

/// Stores what the rules of a key made of a change. A rule whose target is not there, or not its own any more, goes.
fn store(keys: &mut View<'_>, key: &[u8], outcomes: Vec<Outcome>) {
    for outcome in outcomes {
        let target = &*outcome.target;
        if !is_linked(keys, key, target) {
            let edited = keys.write::<Series, _>(key, |series, _| series.remove_rule(target));
            debug_assert!(edited.is_ok());
            continue;
        }
        let edited = keys.write::<Series, _>(target, |series, _| {
            if let Some((from, to)) = outcome.gone {
                series.delete(from, to);
            }
            for sample in outcome.samples {
                // What is older than the target's retention is not kept.
                let _ = series.add(sample, Policy::Last);
            }
        });
        debug_assert!(edited.is_ok());
        keys.announced(Classes::MODULE, "ts.add:dest", target);
    }
}

/// Adds a sample to a series that is there; returns the time to answer.
fn add(
    keys: &mut View<'_>,
    key: &[u8],
    sample: Sample,
    policy: Option<Policy>,
    event: &'static str,
) -> Result<u64, Error> {
    let added = keys.write::<Series, _>(key, |series, _| {
        let policy = policy.or(series.shape().policy).unwrap_or(Policy::Block);
        let last_time = series.last().map_or(0, |last| last.time);
        let added = series.add(sample, policy)?;
        Ok((added, last_time, series.note_added(sample, added)))
    });
    let added = added.map_err(|_| NOT_SERIES)?.ok_or(NOT_SERIES)?;
    let (added, last_time, outcomes) = added.map_err(|refused| match refused {
        Refused::TooOld => TOO_OLD,
        Refused::Blocked => BLOCKED,
    })?;
    if added == Added::Ignored {
        return Ok(last_time);
    }
    keys.changed(Classes::MODULE, event, key);
    store(keys, key, outcomes);
    Ok(sample.time)
}

/// TS.CREATE key [RETENTION ms] [ENCODING COMPRESSED | UNCOMPRESSED] [CHUNK_SIZE bytes] [DUPLICATE_POLICY policy]
/// [IGNORE ms difference] [LABELS name value …]
pub(crate) fn ts_create(
    ctx: &mut Ctx<'_>,
    args: Args<'_>,
    reply: &mut Reply<'_>,
) -> Result<(), Failure> {
    let words = Words::new(CommandId::TsCreate, &args, 2);
    let key = &args[1];
    let given = Given::parse(words, ctx.keys.now_ms())?;
    if ctx.keys.find(key, Trace::Quiet).is_some() {
        return Err(KEY_EXISTS.into());
    }
    let shape = given.apply(default_shape(&ctx.keys));
    create(&mut ctx.keys, key, shape);
    ctx.keys.changed(Classes::MODULE, "ts.create", key);
    reply.ok();
    Ok(())
}

/// TS.ALTER key [RETENTION ms] [CHUNK_SIZE bytes] [DUPLICATE_POLICY policy] [IGNORE ms difference] [LABELS name value …]
pub(crate) fn ts_alter(
    ctx: &mut Ctx<'_>,
    args: Args<'_>,
    reply: &mut Reply<'_>,
) -> Result<(), Failure> {
    let words = Words::new(CommandId::TsAlter, &args, 2);
    let key = &args[1];
    existing(&ctx.keys, key, Trace::Write)?;
    let given = Given::parse(words, ctx.keys.now_ms())?;
    ctx.keys.write::<Series, _>(key, |series, _| {
        let shape = given.apply(series.shape().clone());
        series.reshape(shape);
    })?;
    ctx.keys.changed(Classes::MODULE, "ts.alter", key);
    reply.ok();
    Ok(())
}

/// TS.ADD key time value [ON_DUPLICATE policy] [options of TS.CREATE]
pub(crate) fn ts_add(
    ctx: &mut Ctx<'_>,
    args: Args<'_>,
    reply: &mut Reply<'_>,
) -> Result<(), Failure> {
    let key = &args[1];
    let is_new = match series_of(&ctx.keys, key, Trace::Write) {
        Ok(series) => series.is_none(),
        Err(_) => return Err(NOT_SERIES.into()),
    };
    let value = value(&args[3]).ok_or(WRONG_VALUE)?;
    let (time, is_now) = time_or_now(&args[2], ctx.keys.now_ms())?;
    let given = match args.len() {
        4 => Given::default(),
        _ => Given::parse(Words::new(CommandId::TsAdd, &args, 4), ctx.keys.now_ms())?,
    };
    let on_duplicate = given.on_duplicate;
    if is_new {
        let shape = given.apply(default_shape(&ctx.keys));
        create(&mut ctx.keys, key, shape);
    } else {
        ctx.keys.require(targets(&ctx.keys, key).into_iter())?;
    }
    let sample = Sample { time, value };
    let time = add(&mut ctx.keys, key, sample, on_duplicate, "ts.add")?;
    if is_now || is_new {
        let places: &[usize] = if is_now { &[2] } else { &[] };
        propagate_at(ctx, args, places, sample.time);
    }
    reply.integer(time as i64);
    Ok(())
}

/// Records the call with a time in the place of some of its words.
pub(super) fn propagate_at(ctx: &mut Ctx<'_>, args: Args<'_>, places: &[usize], time: u64) {
    let time = IntText::new(time as i64);
    let words = (0..args.len()).map(|index| match places.contains(&index) {
        true => Word::Bytes(time.as_ref()),
        false => word(args, index),
    });
    ctx.keys.propagate(words);
}

/// TS.MADD key time value [key time value …]
pub(crate) fn ts_madd(
    ctx: &mut Ctx<'_>,
    args: Args<'_>,
    reply: &mut Reply<'_>,
) -> Result<(), Failure> {
    const WORDS_PER_SAMPLE: usize = 3;
    let samples = args.from(1);
    if !samples.len().is_multiple_of(WORDS_PER_SAMPLE) {
        return Err(Words::new(CommandId::TsMadd, &args, 1).wrong_arity().into());
    }
    let count = samples.len() / WORDS_PER_SAMPLE;
    let key_at = |at: usize| &samples[at * WORDS_PER_SAMPLE];
    let others = (0..count).flat_map(|at| targets(&ctx.keys, key_at(at)));
    ctx.keys.require(others)?;
    let now_ms = ctx.keys.now_ms();
    let mut times_of_now = Vec::new();
    reply.array(count);
    for at in 0..count {
        let key = key_at(at);
        let words = samples.from(at * WORDS_PER_SAMPLE + 1);
        let result = match series_of(&ctx.keys, key, Trace::Write) {
            Ok(Some(_)) => value(&words[1]).ok_or(WRONG_VALUE).and_then(|value| {
                let (time, is_now) = time_or_now(&words[0], now_ms)?;
                if is_now {
                    times_of_now.push(at * WORDS_PER_SAMPLE + 2);
                }
                add(&mut ctx.keys, key, Sample { time, value }, None, "ts.add")
            }),
            _ => Err(NOT_SERIES),
        };
        match result {
            Ok(time) => reply.integer(time as i64),
            Err(error) => reply.error_bytes(&error.text()),
        }
    }
    if !times_of_now.is_empty() && ctx.keys.changes() > 0 {
        propagate_at(ctx, args, &times_of_now, now_ms.max(0) as u64);
    }
    Ok(())
}

/// TS.INCRBY key addend [TIMESTAMP time] [options of TS.CREATE]
pub(crate) fn ts_incrby(
    ctx: &mut Ctx<'_>,
    args: Args<'_>,
    reply: &mut Reply<'_>,
) -> Result<(), Failure> {
    count_on(ctx, args, reply, CommandId::TsIncrby, 1.0, "ts.incrby")
}

/// TS.DECRBY key subtrahend [TIMESTAMP time] [options of TS.CREATE]
pub(crate) fn ts_decrby(
    ctx: &mut Ctx<'_>,
    args: Args<'_>,
    reply: &mut Reply<'_>,
) -> Result<(), Failure> {
    count_on(ctx, args, reply, CommandId::TsDecrby, -1.0, "ts.decrby")
}

fn count_on(
    ctx: &mut Ctx<'_>,
    args: Args<'_>,
    reply: &mut Reply<'_>,
    id: CommandId,
    sign: f64,
    event: &'static str,
) -> Result<(), Failure> {
    let (key, now_ms) = (&args[1], ctx.keys.now_ms());
    let last = match series_of(&ctx.keys, key, Trace::Write) {
        Ok(series) => series.map(Series::last),
        Err(_) => return Err(NOT_SERIES.into()),
    };
    let mut given = Given::parse(Words::new(id, &args, 3), now_ms)?;
    let now_at = std::mem::take(&mut given.now_at);
    let by = value(&args[2]).ok_or(Error::line("ERR TSDB: invalid increase/decrease value"))?;
    let is_at_time = given.timestamp.is_some();
    let time = given.timestamp.unwrap_or(now_ms.max(0) as u64);
    let before = last.flatten();
    if before.is_some_and(|before| time < before.time) {
        return Err(BEFORE_LAST.into());
    }
    let value = before.map_or(0.0, |before| before.value) + sign * by;
    if !value.is_finite() {
        return Err(Error::line("ERR TSDB: increment or decrement would overflow").into());
    }
    if last.is_none() {
        let shape = given.apply(default_shape(&ctx.keys));
        create(&mut ctx.keys, key, shape);
    } else {
        ctx.keys.require(targets(&ctx.keys, key).into_iter())?;
    }
    let sample = Sample { time, value };
    let answer = add(&mut ctx.keys, key, sample, Some(Policy::Last), event)?;
    if ctx.keys.changes() > 0 {
        // The last sample is the same wherever the call runs, its time is not.
        if is_at_time {
            propagate_at(ctx, args, &now_at, time);
        } else {
            let at = IntText::new(time as i64);
            let words = (0..args.len()).map(|index| word(args, index));
            let (head, rest) = (words.clone().take(3), words.skip(3));
            let stamp = [Word::Bytes(b"TIMESTAMP"), Word::Bytes(at.as_ref())];
            ctx.keys.propagate(head.chain(stamp).chain(rest));
        }
    }
    reply.integer(answer as i64);
    Ok(())
}

/// TS.DEL key from to
pub(crate) fn ts_del(
    ctx: &mut Ctx<'_>,
    args: Args<'_>,
    reply: &mut Reply<'_>,
) -> Result<(), Failure> {
    let key = &args[1];
    let bound = |word: &[u8], end: &[u8], value, error| match word {
        word if word == end => Ok(value),
        word => time(word).map_err(|_| Error::line(error)),
    };
    let from = bound(&args[2], b"-", 0, "ERR TSDB: wrong fromTimestamp")?;
    let to = bound(&args[3], b"+", u64::MAX, "ERR TSDB: wrong toTimestamp")?;
    existing(&ctx.keys, key, Trace::Write)?;
    ctx.keys.require(targets(&ctx.keys, key).into_iter())?;
    let deleted = ctx.keys.write::<Series, _>(key, |series, _| {
        let deleted = series.delete(from, to);
        let outcomes = match deleted {
            0 => Vec::new(),
            _ => series.note_deleted(from, to),
        };
        (deleted, outcomes)
    })?;
    let (deleted, outcomes) = deleted.ok_or(NO_KEY)?;
    if deleted > 0 {
        ctx.keys.changed(Classes::MODULE, "ts.del", key);
        store(&mut ctx.keys, key, outcomes);
    }
    reply.integer(deleted as i64);
    Ok(())
}

/// TS.CREATERULE source target AGGREGATION aggregation bucket [align]
pub(crate) fn ts_createrule(
    ctx: &mut Ctx<'_>,
    args: Args<'_>,
    reply: &mut Reply<'_>,
) -> Result<(), Failure> {
    let mut words = Words::new(CommandId::TsCreaterule, &args, 3);
    if !(6..=7).contains(&args.len()) {
        return Err(words.wrong_arity().into());
    }
    let parts = words.values::<2>("AGGREGATION");
    let [how, span] = parts.ok_or(super::query::WRONG_AGGREGATION)?;
    let (how, span_ms) = super::query::aggregation(how, span)?;
    let align = match words.next() {
        None => 0,
        Some(word) => {
            time(word).map_err(|_| Error::line("ERR TSDB: Couldn't parse alignTimestamp"))?
        }
    };
    let (source, target) = (&args[1], &args[2]);
    if source == target {
        return Err(Error::line(
            "ERR TSDB: the source key and destination key should be different",
        )
        .into());
    }
    let source_series = existing(&ctx.keys, source, Trace::Write)?;
    let target_series = existing(&ctx.keys, target, Trace::Write)?;
    // What the other ends say is asked under their stripes.
    let others = source_series.source().into_iter();
    let others = others.chain(target_series.source());
    let others = others.chain(target_series.rules().iter().map(|rule| rule.target()));
    ctx.keys.require(others)?;
    let is_written =
        |key: &[u8], by: Option<&[u8]>| by.is_some_and(|by| is_linked(&ctx.keys, by, key));
    if is_written(source, source_series.source()) {
        return Err(Error::line("ERR TSDB: the source key already has a source rule").into());
    }
    if is_written(target, target_series.source()) {
        return Err(Error::line("ERR TSDB: the destination key already has a src rule").into());
    }
    let mut rules = target_series.rules().iter();
    if rules.any(|rule| is_linked(&ctx.keys, target, rule.target())) {
        return Err(Error::line("ERR TSDB: the destination key already has a dst rule").into());
    }
    link(ctx, source, target, how, span_ms, align)?;
    ctx.keys
        .changed(Classes::MODULE, "ts.createrule:src", source);
    ctx.keys
        .announced(Classes::MODULE, "ts.createrule:dest", target);
    reply.ok();
    Ok(())
}

/// Makes a rule known to both its ends.
fn link(
    ctx: &mut Ctx<'_>,
    source: &[u8],
    target: &[u8],
    how: Aggregation,
    span_ms: u64,
    align: u64,
) -> Result<(), Error> {
    ctx.keys.write::<Series, _>(source, |series, _| {
        // One that its target does not know any more.
        series.remove_rule(target);
        series.set_source(None);
        series.add_rule(Rule::new(target, how, span_ms, align));
    })?;
    ctx.keys.write::<Series, _>(target, |series, _| {
        series.unlink();
        series.set_source(Some(source));
    })?;
    Ok(())
}

/// TS.DELETERULE source target
pub(crate) fn ts_deleterule(
    ctx: &mut Ctx<'_>,
    args: Args<'_>,
    reply: &mut Reply<'_>,
) -> Result<(), Failure> {
    let (source, target) = (&args[1], &args[2]);
    existing(&ctx.keys, source, Trace::Write)?;
    existing(&ctx.keys, target, Trace::Write)?;
    if !is_linked(&ctx.keys, source, target) {
        return Err(Error::line("ERR TSDB: compaction rule does not exist").into());
    }
    ctx.keys
        .write::<Series, _>(source, |series, _| series.remove_rule(target))?;
    ctx.keys
        .write::<Series, _>(target, |series, _| series.set_source(None))?;
    ctx.keys
        .changed(Classes::MODULE, "ts.deleterule:src", source);
    ctx.keys
        .announced(Classes::MODULE, "ts.deleterule:dest", target);
    reply.ok();
    Ok(())
}
