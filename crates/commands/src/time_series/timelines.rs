//! Commands on timelines: the EXTS commands of TairTS, whose key has time series under names. The module is closed: replies are
//! those of its documentation and of its clients' tests. Words of options that no command knows are errors.

use redline_keyspace::{Classes, Expiry, Matcher, Trace, WantedLabel};
use redline_resp::{Args, Reply};
use redline_spec::CommandId;
use redline_types::{
    Series, Timelines,
    series::{
        Aggregation, Label, Policy, Refused, Sample, Shape,
        aggregate::Aggregator,
        range::{Bucket, Buckets, Query, Stamp, TooMany},
    },
};

use super::{
    query::{NO_MATCHER, TOO_MANY, UNKNOWN_AGGREGATION, aggregation, bounds, matcher},
    value,
    write::{TOO_OLD, WRONG_VALUE, labels, propagate_at, time_or_now},
};
use crate::{
    Ctx, Error, Failure,
    words::{Words, integer_in},
};

const NO_LINE: Error = Error::line("ERR no such timeline");
const BEFORE_LAST: Error =
    Error::line("ERR the time is before that of the last sample, which the call adds to");
/// Samples of a chunk: by default, and the range that may be chosen.
const CHUNK_SAMPLES_DEFAULT: u32 = 256;
const CHUNK_SAMPLES_MAX: i64 = 1024;
/// Bytes of a chunk for each of its samples.
const SAMPLE_BYTES: u32 = 16;
/// Results that a range has by default, and at most.
const COUNT_MAX: i64 = 1_000_000;
/// Samples of all timelines that EXTS.P.RANGE aggregates.
const GATHERED_MAX: usize = 1 << 22;
const TOO_MANY_SAMPLES: Error = Error::line(
    "ERR more than 4194304 samples to aggregate, use a shorter range or an AGGREGATION of each timeline",
);

/// Outcome of a sample beside those that there are.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Change {
    /// It takes the place of the one at its time.
    Set,
    /// It is added to the one at its time.
    Add,
    /// It is added to the last one.
    Raise,
}

/// The properties that a call gives a timeline.
#[derive(Clone, Debug, Default)]
struct Attributes {
    retention_ms: Option<u64>,
    chunk_samples: Option<u32>,
    is_plain: bool,
    labels: Option<Vec<Label>>,
}

impl Attributes {
    fn parse(mut words: Words<'_>) -> Result<Attributes, Error> {
        let mut attributes = Attributes::default();
        let is_alter = words.id() == CommandId::ExtsSAlter;
        while !words.is_empty() {
            if let Some(span) = words.value("DATA_ET") {
                let error = Error::line("ERR DATA_ET is not a number of milliseconds");
                attributes.retention_ms = Some(integer_in(span, 0.., error)? as u64);
            } else if !is_alter && let Some(samples) = words.value("CHUNK_SIZE") {
                let error = Error::line("ERR CHUNK_SIZE is not a number from 1 to 1024");
                let samples = integer_in(samples, 1..=CHUNK_SAMPLES_MAX, error)?;
                attributes.chunk_samples = Some(samples as u32);
            } else if !is_alter && words.flag("UNCOMPRESSED") {
                attributes.is_plain = true;
            } else if words.flag("LABELS") {
                let list = words.rest();
                if list.is_empty() || !list.len().is_multiple_of(2) {
                    return Err(Error::Syntax);
                }
                attributes.labels = Some(labels(list)?);
                break;
            } else {
                return Err(Error::Syntax);
            }
        }
        Ok(attributes)
    }

    fn series(&self) -> Series {
        let samples = self.chunk_samples.unwrap_or(CHUNK_SAMPLES_DEFAULT);
        let shape = Shape {
            retention_ms: self.retention_ms.unwrap_or(0),
            chunk_bytes: (samples * SAMPLE_BYTES).max(redline_types::series::CHUNK_BYTES_MIN),
            compressed: !self.is_plain,
            labels: self.labels.clone().unwrap_or_default().into(),
            ..Shape::default()
        };
        Series::new(b"", shape)
    }
}

/// EXTS.P.CREATE key
pub(crate) fn exts_p_create(
    ctx: &mut Ctx<'_>,
    args: Args<'_>,
    reply: &mut Reply<'_>,
) -> Result<(), Failure> {
    let key = &args[1];
    if ctx.keys.find(key, Trace::Quiet).is_some() {
        return Err(Error::line("ERR key already exists").into());
    }
    ctx.keys.insert(key, Timelines::default(), Expiry::Clear);
    ctx.keys.changed(Classes::MODULE, "exts.p.create", key);
    reply.ok();
    Ok(())
}

/// EXTS.S.CREATE key name [DATA_ET ms] [CHUNK_SIZE samples] [UNCOMPRESSED] [LABELS name value …]
pub(crate) fn exts_s_create(
    ctx: &mut Ctx<'_>,
    args: Args<'_>,
    reply: &mut Reply<'_>,
) -> Result<(), Failure> {
    let (key, name) = (&args[1], &args[2]);
    let attributes = Attributes::parse(Words::new(CommandId::ExtsSCreate, &args, 3))?;
    let lines = ctx.keys.read::<Timelines>(key)?;
    if lines.is_some_and(|lines| lines.get(name).is_some()) {
        return Err(Error::line("ERR timeline already exists").into());
    }
    let series = attributes.series();
    ctx.keys
        .write_or_new::<Timelines, _>(key, |lines, _| lines.insert(name, series))?;
    ctx.keys.changed(Classes::MODULE, "exts.s.create", key);
    reply.ok();
    Ok(())
}

/// EXTS.S.ALTER key name [DATA_ET ms] [LABELS name value …]
pub(crate) fn exts_s_alter(
    ctx: &mut Ctx<'_>,
    args: Args<'_>,
    reply: &mut Reply<'_>,
) -> Result<(), Failure> {
    let (key, name) = (&args[1], &args[2]);
    let attributes = Attributes::parse(Words::new(CommandId::ExtsSAlter, &args, 3))?;
    ensure_line(ctx, key, name)?;
    ctx.keys.write::<Timelines, _>(key, |lines, _| {
        lines.edit(name, |series| {
            let mut shape = series.shape().clone();
            shape.retention_ms = attributes.retention_ms.unwrap_or(shape.retention_ms);
            if let Some(labels) = attributes.labels {
                shape.labels = labels.into();
            }
            series.reshape(shape);
        })
    })?;
    ctx.keys.changed(Classes::MODULE, "exts.s.alter", key);
    reply.ok();
    Ok(())
}

/// EXTS.S.DEL key name
pub(crate) fn exts_s_del(
    ctx: &mut Ctx<'_>,
    args: Args<'_>,
    reply: &mut Reply<'_>,
) -> Result<(), Failure> {
    let (key, name) = (&args[1], &args[2]);
    ensure_line(ctx, key, name)?;
    ctx.keys
        .write::<Timelines, _>(key, |lines, _| lines.remove(name))?;
    ctx.keys.changed(Classes::MODULE, "exts.s.del", key);
    reply.ok();
    Ok(())
}

/// EXTS.S.ADD key name time value, with the options of EXTS.S.CREATE
pub(crate) fn exts_s_add(
    ctx: &mut Ctx<'_>,
    args: Args<'_>,
    reply: &mut Reply<'_>,
) -> Result<(), Failure> {
    change_one(ctx, args, reply, CommandId::ExtsSAdd, Change::Set)
}

/// EXTS.S.INCRBY key name time value, with the options of EXTS.S.CREATE: adds to the last value
pub(crate) fn exts_s_incrby(
    ctx: &mut Ctx<'_>,
    args: Args<'_>,
    reply: &mut Reply<'_>,
) -> Result<(), Failure> {
    change_one(ctx, args, reply, CommandId::ExtsSIncrby, Change::Raise)
}

/// EXTS.S.RAW_MODIFY key name time value, with the options of EXTS.S.CREATE
pub(crate) fn exts_s_raw_modify(
    ctx: &mut Ctx<'_>,
    args: Args<'_>,
    reply: &mut Reply<'_>,
) -> Result<(), Failure> {
    change_one(ctx, args, reply, CommandId::ExtsSRawModify, Change::Set)
}

/// EXTS.S.RAW_INCRBY key name time value, with the options of EXTS.S.CREATE: adds to the value of that time
pub(crate) fn exts_s_raw_incrby(
    ctx: &mut Ctx<'_>,
    args: Args<'_>,
    reply: &mut Reply<'_>,
) -> Result<(), Failure> {
    change_one(ctx, args, reply, CommandId::ExtsSRawIncrby, Change::Add)
}

/// EXTS.S.MADD key count name time value [name time value …], with the options of EXTS.S.CREATE
pub(crate) fn exts_s_madd(
    ctx: &mut Ctx<'_>,
    args: Args<'_>,
    reply: &mut Reply<'_>,
) -> Result<(), Failure> {
    change_several(ctx, args, reply, CommandId::ExtsSMadd, Change::Set)
}

/// EXTS.S.MINCRBY key count name time value [name time value …], with the options of EXTS.S.CREATE
pub(crate) fn exts_s_mincrby(
    ctx: &mut Ctx<'_>,
    args: Args<'_>,
    reply: &mut Reply<'_>,
) -> Result<(), Failure> {
    change_several(ctx, args, reply, CommandId::ExtsSMincrby, Change::Raise)
}

/// EXTS.S.RAW_MMODIFY key count name time value [name time value …], with the options of EXTS.S.CREATE
pub(crate) fn exts_s_raw_mmodify(
    ctx: &mut Ctx<'_>,
    args: Args<'_>,
    reply: &mut Reply<'_>,
) -> Result<(), Failure> {
    change_several(ctx, args, reply, CommandId::ExtsSRawMmodify, Change::Set)
}

/// EXTS.S.RAW_MINCRBY key count name time value [name time value …], with the options of EXTS.S.CREATE
pub(crate) fn exts_s_raw_mincrby(
    ctx: &mut Ctx<'_>,
    args: Args<'_>,
    reply: &mut Reply<'_>,
) -> Result<(), Failure> {
    change_several(ctx, args, reply, CommandId::ExtsSRawMincrby, Change::Add)
}

fn change_one(
    ctx: &mut Ctx<'_>,
    args: Args<'_>,
    reply: &mut Reply<'_>,
    id: CommandId,
    change: Change,
) -> Result<(), Failure> {
    let attributes = Attributes::parse(Words::new(id, &args, 5))?;
    let results = apply(ctx, args, 2, 1, &attributes, change)?;
    results.into_iter().collect::<Result<(), Error>>()?;
    reply.ok();
    Ok(())
}

fn change_several(
    ctx: &mut Ctx<'_>,
    args: Args<'_>,
    reply: &mut Reply<'_>,
    id: CommandId,
    change: Change,
) -> Result<(), Failure> {
    let wrong = Error::line("ERR the number of samples is not that of the call");
    let most = args.from(3).len() / WORDS_PER_SAMPLE;
    let count = integer_in(&args[2], 1..=most as i64, wrong)? as usize;
    let attributes = Attributes::parse(Words::new(id, &args, 3 + count * WORDS_PER_SAMPLE))?;
    let results = apply(ctx, args, 3, count, &attributes, change)?;
    reply.array(results.len());
    for result in results {
        match result {
            Ok(()) => reply.ok(),
            Err(error) => reply.error_bytes(&error.text()),
        }
    }
    Ok(())
}

const WORDS_PER_SAMPLE: usize = 3;

/// Changes timelines by the samples from a place of the call on: each has a name, a time and a value.
fn apply(
    ctx: &mut Ctx<'_>,
    args: Args<'_>,
    first: usize,
    count: usize,
    attributes: &Attributes,
    change: Change,
) -> Result<Vec<Result<(), Error>>, Failure> {
    let key = &args[1];
    ctx.keys.read::<Timelines>(key)?;
    let now_ms = ctx.keys.now_ms();
    let (mut samples, mut now_at) = (Vec::with_capacity(count), Vec::new());
    for at in (0..count).map(|index| first + index * WORDS_PER_SAMPLE) {
        let (time, is_now) = time_or_now(&args[at + 1], now_ms)?;
        if is_now {
            now_at.push(at + 1);
        }
        let value = value(&args[at + 2]).ok_or(WRONG_VALUE)?;
        samples.push((&args[at], Sample { time, value }));
    }
    let results: Vec<Result<(), Error>> =
        ctx.keys.write_or_new::<Timelines, _>(key, |lines, _| {
            let samples = samples.into_iter();
            let results = samples.map(|(name, sample)| {
                if lines.get(name).is_none() {
                    lines.insert(name, attributes.series());
                }
                let changed = lines.edit(name, |series| change_at(series, sample, change));
                changed.unwrap_or(Ok(()))
            });
            results.collect()
        })?;
    let changed = results.iter().filter(|result| result.is_ok()).count();
    if changed > 0 {
        let event = match change {
            Change::Set => "exts.s.add",
            Change::Add | Change::Raise => "exts.s.incrby",
        };
        ctx.keys.changed(Classes::MODULE, event, key);
        ctx.keys.count_changes(changed as u64 - 1);
        if !now_at.is_empty() {
            propagate_at(ctx, args, &now_at, now_ms.max(0) as u64);
        }
    }
    Ok(results)
}

fn change_at(series: &mut Series, sample: Sample, change: Change) -> Result<(), Error> {
    let (sample, policy) = match (change, series.last()) {
        (Change::Raise, Some(last)) if sample.time < last.time => return Err(BEFORE_LAST),
        (Change::Raise, Some(last)) => {
            let value = last.value + sample.value;
            (Sample { value, ..sample }, Policy::Last)
        }
        (Change::Set | Change::Raise, _) => (sample, Policy::Last),
        (Change::Add, _) => (sample, Policy::Sum),
    };
    match series.add(sample, policy) {
        Ok(_) => Ok(()),
        Err(Refused::TooOld | Refused::Blocked) => Err(TOO_OLD),
    }
}

/// Returns the timeline of a key; `None` if one of them is missing.
fn line<'v>(ctx: &'v Ctx<'_>, key: &[u8], name: &[u8]) -> Result<Option<&'v Series>, Error> {
    let lines = ctx.keys.read::<Timelines>(key)?;
    Ok(lines.and_then(|lines| lines.get(name)))
}

/// Checks that a key has a timeline, which a call is about to change.
fn ensure_line(ctx: &Ctx<'_>, key: &[u8], name: &[u8]) -> Result<(), Error> {
    match ctx.keys.read::<Timelines>(key)? {
        None => Err(Error::NoSuchKey),
        Some(lines) if lines.get(name).is_none() => Err(NO_LINE),
        Some(_) => Ok(()),
    }
}

/// EXTS.S.GET key name
pub(crate) fn exts_s_get(
    ctx: &mut Ctx<'_>,
    args: Args<'_>,
    reply: &mut Reply<'_>,
) -> Result<(), Failure> {
    match line(ctx, &args[1], &args[2])?.and_then(Series::last) {
        Some(last) => write_sample(reply, last),
        None => reply.null(),
    }
    Ok(())
}

/// EXTS.S.INFO key name
pub(crate) fn exts_s_info(
    ctx: &mut Ctx<'_>,
    args: Args<'_>,
    reply: &mut Reply<'_>,
) -> Result<(), Failure> {
    let Some(series) = line(ctx, &args[1], &args[2])? else {
        reply.null();
        return Ok(());
    };
    let (live, _) = series.live();
    let (shape, last) = (series.shape(), series.last());
    let numbers = [
        ("totalDataPoints", live),
        ("maxDataPoints", 0),
        (
            "maxDataPointsPerChunk",
            u64::from(shape.chunk_bytes / SAMPLE_BYTES),
        ),
        ("dataPointsExpireTime", shape.retention_ms),
        ("lastTimestamp", last.map_or(0, |last| last.time)),
        ("chunkCount", series.chunks().len() as u64),
    ];
    reply.array(2 * (numbers.len() + 2));
    for (name, number) in numbers {
        reply.bulk(name.as_bytes());
        reply.integer(number as i64);
    }
    reply.bulk(b"lastValue");
    // A whole number, as the documentation and the clients have it.
    reply.integer(last.map_or(0, |last| last.value as i64));
    reply.bulk(b"labels");
    write_labels(reply, &shape.labels);
    Ok(())
}

/// EXTS.S.QUERYINDEX key filter …
pub(crate) fn exts_s_queryindex(
    ctx: &mut Ctx<'_>,
    args: Args<'_>,
    reply: &mut Reply<'_>,
) -> Result<(), Failure> {
    let matchers = matchers(args.from(2))?;
    let Some(lines) = ctx.keys.read::<Timelines>(&args[1])? else {
        reply.null();
        return Ok(());
    };
    let found = fitting(lines, &matchers);
    reply.array(found.len());
    found.iter().for_each(|(name, _)| reply.bulk(name));
    Ok(())
}

/// Reads filters, of which one has to say that timelines have a label.
fn matchers(filters: Args<'_>) -> Result<Vec<Matcher>, Error> {
    let matchers: Vec<Matcher> = filters.iter().map(matcher).collect::<Result<_, _>>()?;
    let wants =
        |matcher: &Matcher| matches!(matcher.wanted, WantedLabel::OneOf(_) | WantedLabel::Any);
    match matchers.iter().any(wants) {
        true => Ok(matchers),
        false => Err(NO_MATCHER),
    }
}

fn fitting<'a>(lines: &'a Timelines, matchers: &[Matcher]) -> Vec<(&'a [u8], &'a Series)> {
    let fits = |series: &Series| {
        let labels = &series.shape().labels;
        matchers.iter().all(|matcher| matcher.fits(labels))
    };
    lines.iter().filter(|(_, series)| fits(series)).collect()
}

/// The options of a call that reads a range.
struct Options {
    query: Query,
    count: usize,
    with_labels: bool,
    matchers: Vec<Matcher>,
}

impl Options {
    fn parse(mut words: Words<'_>, from: &[u8], to: &[u8], now_ms: i64) -> Result<Options, Error> {
        let is_multi = words.id() != CommandId::ExtsSRange;
        let now = redline_types::number::IntText::new(now_ms.max(0));
        let resolved = |time| if time == b"*" { now.as_ref() } else { time };
        let (from, to) = bounds(resolved(from), resolved(to))?;
        let mut options = Options {
            query: Query::range(from, to),
            count: COUNT_MAX as usize,
            with_labels: false,
            matchers: Vec::new(),
        };
        while !words.is_empty() {
            if let Some(count) = words.value("MAXCOUNT") {
                let error = Error::line("ERR MAXCOUNT is not a number above 0");
                let count = integer_in(count, 1.., error)?;
                options.count = count.min(COUNT_MAX) as usize;
            } else if let Some([how, span]) = words.values("AGGREGATION") {
                options.query.buckets = Some(buckets(how, span)?);
            } else if words.flag("REVERSE") {
                options.query.reverse = true;
            } else if words.id() == CommandId::ExtsSMrange && words.flag("WITHLABELS") {
                options.with_labels = true;
            } else if is_multi && words.flag("FILTER") {
                options.matchers = matchers(words.rest())?;
                break;
            } else {
                return Err(Error::Syntax);
            }
        }
        if is_multi && options.matchers.is_empty() {
            return Err(Error::line("ERR FILTER is missing"));
        }
        Ok(options)
    }

    /// Returns the results, and whether there are more.
    fn run(&self, series: &Series) -> Result<(Vec<Sample>, bool), Error> {
        let query = Query {
            count: self.count + 1,
            ..self.query.clone()
        };
        let samples = query.run(series, None).map_err(|TooMany| TOO_MANY)?;
        Ok(self.cut(samples))
    }

    fn cut(&self, mut samples: Vec<Sample>) -> (Vec<Sample>, bool) {
        let has_more = samples.len() > self.count;
        samples.truncate(self.count);
        (samples, has_more)
    }
}

/// Reads an aggregation and the milliseconds of its buckets.
fn buckets(how: &[u8], span: &[u8]) -> Result<Buckets, Error> {
    let (how, span) = aggregation(how, span)?;
    if how == Aggregation::Twa {
        return Err(UNKNOWN_AGGREGATION);
    }
    Ok(Buckets {
        how,
        span,
        align: 0,
        stamp: Stamp::Start,
        empty: false,
    })
}

/// EXTS.S.RANGE key name from to [MAXCOUNT count] [AGGREGATION aggregation milliseconds] [REVERSE]
pub(crate) fn exts_s_range(
    ctx: &mut Ctx<'_>,
    args: Args<'_>,
    reply: &mut Reply<'_>,
) -> Result<(), Failure> {
    let words = Words::new(CommandId::ExtsSRange, &args, 5);
    let options = Options::parse(words, &args[3], &args[4], ctx.keys.now_ms())?;
    let Some(series) = line(ctx, &args[1], &args[2])? else {
        reply.null();
        return Ok(());
    };
    let (samples, has_more) = options.run(series)?;
    reply.array(2);
    write_samples(reply, &samples);
    reply.integer(has_more.into());
    Ok(())
}

/// EXTS.S.MRANGE key from to [MAXCOUNT count] [AGGREGATION aggregation milliseconds] [REVERSE] [WITHLABELS] FILTER filter …
pub(crate) fn exts_s_mrange(
    ctx: &mut Ctx<'_>,
    args: Args<'_>,
    reply: &mut Reply<'_>,
) -> Result<(), Failure> {
    let words = Words::new(CommandId::ExtsSMrange, &args, 4);
    let options = Options::parse(words, &args[2], &args[3], ctx.keys.now_ms())?;
    let Some(lines) = ctx.keys.read::<Timelines>(&args[1])? else {
        reply.null();
        return Ok(());
    };
    let found = fitting(lines, &options.matchers);
    reply.array(found.len());
    for (name, series) in found {
        let (samples, has_more) = options.run(series)?;
        reply.array(4);
        reply.bulk(name);
        match options.with_labels {
            true => write_labels(reply, &series.shape().labels),
            false => reply.array(0),
        }
        write_samples(reply, &samples);
        reply.integer(has_more.into());
    }
    Ok(())
}

/// EXTS.P.RANGE key from to aggregation milliseconds [MAXCOUNT count] [AGGREGATION aggregation milliseconds] [REVERSE] FILTER filter …
pub(crate) fn exts_p_range(
    ctx: &mut Ctx<'_>,
    args: Args<'_>,
    reply: &mut Reply<'_>,
) -> Result<(), Failure> {
    let words = Words::new(CommandId::ExtsPRange, &args, 6);
    let over_all = buckets(&args[4], &args[5])?;
    let options = Options::parse(words, &args[2], &args[3], ctx.keys.now_ms())?;
    let Some(lines) = ctx.keys.read::<Timelines>(&args[1])? else {
        reply.null();
        return Ok(());
    };
    let mut all: Vec<Sample> = Vec::new();
    for (_, series) in fitting(lines, &options.matchers) {
        let query = Query {
            reverse: false,
            count: GATHERED_MAX + 1 - all.len(),
            ..options.query.clone()
        };
        all.extend(query.run(series, None).map_err(|TooMany| TOO_MANY)?);
        if all.len() > GATHERED_MAX {
            return Err(TOO_MANY_SAMPLES.into());
        }
    }
    all.sort_by_key(|sample| sample.time);
    let of = |sample: &Sample| Bucket::of(sample.time, over_all.span, over_all.align);
    let mut samples: Vec<Sample> = all
        .chunk_by(|a, b| of(a) == of(b))
        .map(|samples| {
            let bucket = of(&samples[0]);
            let mut aggregator = Aggregator::new(over_all.how, bucket.start, None);
            samples.iter().for_each(|sample| aggregator.push(*sample));
            Sample {
                time: bucket.start,
                value: aggregator.value(bucket.end, None).unwrap_or(f64::NAN),
            }
        })
        .collect();
    if options.query.reverse {
        samples.reverse();
    }
    let (samples, has_more) = options.cut(samples);
    reply.array(2);
    write_samples(reply, &samples);
    reply.integer(has_more.into());
    Ok(())
}

fn write_sample(reply: &mut Reply<'_>, sample: Sample) {
    reply.array(2);
    reply.integer(sample.time as i64);
    reply.bulk_double(sample.value);
}

fn write_samples(reply: &mut Reply<'_>, samples: &[Sample]) {
    reply.array(samples.len());
    samples
        .iter()
        .for_each(|sample| write_sample(reply, *sample));
}

fn write_labels(reply: &mut Reply<'_>, labels: &[Label]) {
    reply.array(labels.len());
    for label in labels {
        reply.array(2);
        reply.bulk(&label.name);
        reply.bulk(&label.value);
    }
}

#[cfg(test)]
mod tests {
    use crate::testing::TestDb;

    #[test]
    fn timelines_are_made_changed_and_read() {
        let mut db = TestDb::new();
        db.script(&[
            ("EXTS.P.CREATE p", "+OK"),
            ("EXTS.P.CREATE p", "-ERR key already exists"),
            ("TYPE p", "+tairts---"),
            ("EXTS.S.CREATE p a DATA_ET 100000 CHUNK_SIZE 32 LABELS city x kind y", "+OK"),
            ("EXTS.S.CREATE p a", "-ERR timeline already exists"),
            ("EXTS.S.ADD p a 1000 1.5", "+OK"),
            ("EXTS.S.ADD p b 1000 2 LABELS city x", "+OK"),
            ("EXTS.S.MADD p 2 a 2000 2 b 2500 3", "*2|+OK|+OK"),
            ("EXTS.S.INCRBY p a 3000 1", "+OK"),
            ("EXTS.S.GET p a", "*2|:3000|$1|3"),
            ("EXTS.S.INCRBY p a 2000 1", "-ERR the time is before that of the last sample, which the call adds to"),
            ("EXTS.S.RAW_INCRBY p a 2000 1", "+OK"),
            ("EXTS.S.RAW_MODIFY p a 1000 5", "+OK"),
            ("EXTS.S.RANGE p a 0 5000", "*2|*3|*2|:1000|$1|5|*2|:2000|$1|3|*2|:3000|$1|3|:0"),
            ("EXTS.S.RANGE p a 0 * MAXCOUNT 1", "*2|*1|*2|:1000|$1|5|:1"),
            ("EXTS.S.RANGE p a 0 5000 REVERSE MAXCOUNT 1", "*2|*1|*2|:3000|$1|3|:1"),
            ("EXTS.S.RANGE p a 0 5000 AGGREGATION SUM 2000", "*2|*2|*2|:0|$1|5|*2|:2000|$1|6|:0"),
            ("EXTS.S.QUERYINDEX p city=x", "*2|$1|a|$1|b"),
            ("EXTS.S.QUERYINDEX p city=x kind!=y", "*1|$1|b"),
            (
                "EXTS.S.MRANGE p 0 1500 WITHLABELS FILTER kind=y",
                "*1|*4|$1|a|*2|*2|$4|city|$1|x|*2|$4|kind|$1|y|*1|*2|:1000|$1|5|:0",
            ),
            ("EXTS.P.RANGE p 0 5000 sum 1000 FILTER city=x", "*2|*3|*2|:1000|$1|7|*2|:2000|$1|6|*2|:3000|$1|3|:0"),
            ("EXTS.S.ALTER p b LABELS city z", "+OK"),
            ("EXTS.S.QUERYINDEX p city=z", "*1|$1|b"),
            (
                "EXTS.S.INFO p b",
                "*16|$15|totalDataPoints|:2|$13|maxDataPoints|:0|$21|maxDataPointsPerChunk|:256|\
                 $20|dataPointsExpireTime|:0|$13|lastTimestamp|:2500|$10|chunkCount|:1|$9|lastValue|:3|\
                 $6|labels|*1|*2|$4|city|$1|z",
            ),
            ("EXTS.S.DEL p b", "+OK"),
            ("EXTS.S.DEL p b", "-ERR no such timeline"),
            ("EXTS.S.GET p b", "$-1"),
            ("EXTS.S.GET none b", "$-1"),
            ("EXTS.S.INFO p b", "$-1"),
            ("EXTS.S.RANGE p b 0 1", "$-1"),
            ("EXTS.S.MRANGE none 0 1 FILTER a=b", "$-1"),
            ("EXTS.P.RANGE none 0 1 SUM 1 FILTER a=b", "$-1"),
            ("EXTS.S.QUERYINDEX none a=b", "$-1"),
            ("EXTS.S.QUERYINDEX p city!=", "*1|$1|a"),
            ("EXTS.S.QUERYINDEX p city=none", "*0"),
            ("EXTS.S.ALTER p b", "-ERR no such timeline"),
            ("EXTS.S.DEL none b", "-ERR no such key"),
            ("EXTS.S.CREATE p empty", "+OK"),
            ("EXTS.S.GET p empty", "$-1"),
            ("EXTS.S.RANGE p empty 0 *", "*2|*0|:0"),
            ("EXTS.S.DEL p a", "+OK"),
            ("EXISTS p", ":1"),
        ]);
    }

    #[test]
    fn what_cannot_be_is_an_error_and_changes_nothing() {
        let mut db = TestDb::new();
        db.script(&[
            ("EXTS.S.ADD n a x 1", "-ERR TSDB: invalid timestamp"),
            ("EXTS.S.ADD n a 1 nan", "-ERR TSDB: invalid value"),
            (
                "EXTS.S.ADD n a 1 1 CHUNK_SIZE 0",
                "-ERR CHUNK_SIZE is not a number from 1 to 1024",
            ),
            ("EXTS.S.ADD n a 1 1 NONSENSE", "-ERR syntax error"),
            (
                "EXTS.S.MADD n 2 a 1 1",
                "-ERR the number of samples is not that of the call",
            ),
            (
                "EXTS.S.MADD n 9223372036854775807 a 1 1",
                "-ERR the number of samples is not that of the call",
            ),
            ("EXISTS n", ":0"),
            ("EXTS.S.ADD n a 5000 1 DATA_ET 1000", "+OK"),
            (
                "EXTS.S.MADD n 2 a 1 1 a 6000 2",
                "*2|-ERR TSDB: Timestamp is older than retention|+OK",
            ),
            (
                "EXTS.S.ADD n a 2 2",
                "-ERR TSDB: Timestamp is older than retention",
            ),
            (
                "EXTS.S.RANGE n a 0 9000 AGGREGATION SUM 9223372036854775807",
                "*2|*1|*2|:0|$1|3|:0",
            ),
            (
                "EXTS.S.RANGE n a 0 9000 AGGREGATION TWA 1000",
                "-ERR TSDB: Unknown aggregation type",
            ),
            (
                "EXTS.S.RANGE n a 0 9000 AGGREGATION SUM 0",
                "-ERR TSDB: bucketDuration must be greater than zero",
            ),
            (
                "EXTS.S.MRANGE n 0 1 REVERSE WITHLABELS",
                "-ERR FILTER is missing",
            ),
            (
                "EXTS.S.QUERYINDEX n city!=x",
                "-ERR TSDB: please provide at least one matcher",
            ),
            ("SET s x", "+OK"),
            (
                "EXTS.S.ADD s a 1 1",
                "-WRONGTYPE Operation against a key holding the wrong kind of value",
            ),
        ]);
    }
}
