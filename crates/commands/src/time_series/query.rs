//! Commands that read series: of a key, or of all whose labels fulfil a filter. These take one stripe at a time, after the
//! index of labels: each series is read whole, but two of them at different times.

use std::collections::BTreeMap;

use redline_keyspace::{Database, Matcher, Trace, WantedLabel};
use redline_resp::{Args, Proto, Reply};
use redline_spec::CommandId;
use redline_types::{
    Series, number,
    series::{
        Aggregation, Label, Sample,
        aggregate::Aggregator,
        range::{Buckets, Query, RESULTS_MAX, Stamp, TooMany},
    },
};

use super::{
    existing, is_linked, series_of, time, value, write_labels, write_pair, write_pairs,
    write_sample,
};
use crate::{Ctx, Error, Failure, words::Words};

pub(super) const WRONG_AGGREGATION: Error = Error::line("ERR TSDB: Couldn't parse AGGREGATION");
pub(super) const NO_MATCHER: Error = Error::line("ERR TSDB: please provide at least one matcher");
pub(super) const UNKNOWN_AGGREGATION: Error = Error::line("ERR TSDB: Unknown aggregation type");
const WRONG_FILTER: Error = Error::line("ERR TSDB: failed parsing labels");
pub(super) const TOO_MANY: Error = Error::line(
    "ERR TSDB: too many buckets without samples, use a longer bucket or a shorter range",
);
const DENIED: Error = Error::line(
    "NOPERM TSDB: current user doesn't have read permission to one or more keys that match the specified filter",
);

/// Reads an aggregation and the length of its buckets.
pub(super) fn aggregation(how: &[u8], span: &[u8]) -> Result<(Aggregation, u64), Error> {
    let how = Aggregation::of_name(how);
    let how = how.ok_or(UNKNOWN_AGGREGATION)?;
    let span = number::parse_i64(span).ok_or(WRONG_AGGREGATION)?;
    match u64::try_from(span) {
        Ok(span @ 1..) => Ok((how, span)),
        _ => Err(Error::line(
            "ERR TSDB: bucketDuration must be greater than zero",
        )),
    }
}

/// The labels that a reply has beside a key.
#[derive(Clone, Debug, PartialEq)]
enum WithLabels {
    None,
    All,
    Selected(Vec<Box<[u8]>>),
}

/// The options of a call that reads series.
struct Options {
    query: Query,
    latest: bool,
    labels: WithLabels,
    matchers: Vec<Matcher>,
    /// Label by whose values series are grouped, and what is made of the samples of a time.
    group: Option<(Box<[u8]>, Aggregation)>,
}

/// The place from which buckets are counted, as a call says it.
#[derive(Clone, Copy)]
enum Align {
    Start,
    End,
    At(u64),
}

/// Words that end a list of labels.
const WORDS: [&str; 12] = [
    "LATEST",
    "FILTER_BY_TS",
    "FILTER_BY_VALUE",
    "WITHLABELS",
    "SELECTED_LABELS",
    "COUNT",
    "ALIGN",
    "AGGREGATION",
    "BUCKETTIMESTAMP",
    "EMPTY",
    "FILTER",
    "GROUPBY",
];

fn is_word(word: &[u8]) -> bool {
    let mut words = WORDS.iter();
    words.any(|known| word.eq_ignore_ascii_case(known.as_bytes()))
}

impl Options {
    /// Reads the options after a range, or after a command without one.
    fn parse(mut words: Words<'_>, range: Option<(&[u8], &[u8])>) -> Result<Options, Error> {
        let is_multi = !matches!(
            words.id(),
            CommandId::TsRange | CommandId::TsRevrange | CommandId::TsGet
        );
        let (from, to) = range.map_or(Ok((0, u64::MAX)), |(from, to)| bounds(from, to))?;
        let mut options = Options {
            query: Query::range(from, to),
            latest: false,
            labels: WithLabels::None,
            matchers: Vec::new(),
            group: None,
        };
        let mut align = None;
        let (mut has_filter, mut with_labels) = (false, false);
        while !words.is_empty() {
            if words.flag("LATEST") {
                options.latest = true;
            } else if range.is_some() && options.parse_range(&mut words, &mut align)? {
                // Taken.
            } else if is_multi && words.flag("WITHLABELS") {
                with_labels = true;
            } else if is_multi && words.flag("SELECTED_LABELS") {
                let mut names: Vec<Box<[u8]>> = Vec::new();
                while let Some(name) = words.peek().filter(|name| !is_word(name)) {
                    names.push(name.into());
                    words.next();
                }
                if names.is_empty() {
                    return Err(Error::line(
                        "ERR TSDB: SELECTED_LABELS should have at least 1 parameter",
                    ));
                }
                options.labels = WithLabels::Selected(names);
            } else if is_multi && words.flag("FILTER") {
                has_filter = true;
                while let Some(filter) = words.peek().filter(|filter| !is_word(filter)) {
                    options.matchers.push(matcher(filter)?);
                    words.next();
                }
                if options.matchers.is_empty() {
                    return Err(Error::line("ERR TSDB: missing labels for filter argument"));
                }
            } else if is_multi && range.is_some() && words.flag("GROUPBY") {
                options.group = Some(group(&mut words)?);
            } else {
                // The module looks for the words that it knows.
                words.next();
            }
        }
        if with_labels {
            if options.labels != WithLabels::None {
                return Err(Error::line(
                    "ERR TSDB: cannot accept WITHLABELS and SELECT_LABELS together",
                ));
            }
            options.labels = WithLabels::All;
        }
        if is_multi && !has_filter {
            return Err(Error::line("ERR TSDB: no FILTER given"));
        }
        if is_multi {
            check(&options.matchers)?;
        }
        options.align(align, range)?;
        Ok(options)
    }

    /// Takes an option of a range, if one is next.
    fn parse_range(
        &mut self,
        words: &mut Words<'_>,
        align: &mut Option<Align>,
    ) -> Result<bool, Error> {
        let query = &mut self.query;
        if words.flag("COUNT") {
            let wrong = Error::line("ERR TSDB: Couldn't parse COUNT");
            let count = words.next().and_then(number::parse_i64).ok_or(wrong)?;
            query.count = match usize::try_from(count) {
                Ok(count @ 1..) => count,
                _ => return Err(Error::line("ERR TSDB: Invalid COUNT value")),
            };
        } else if words.flag("FILTER_BY_TS") {
            let mut times = Vec::new();
            while let Some(time) = words.peek().and_then(|word| time(word).ok()) {
                times.push(time);
                words.next();
            }
            if times.is_empty() {
                return Err(Error::line(
                    "ERR TSDB: FILTER_BY_TS one or more arguments are missing",
                ));
            }
            times.sort_unstable();
            query.times = Some(times);
        } else if words.flag("FILTER_BY_VALUE") {
            let missing =
                Error::line("ERR TSDB: FILTER_BY_VALUE one or more arguments are missing");
            let (least, most) = words.next().zip(words.next()).ok_or(missing)?;
            let least = value(least).ok_or(Error::line("ERR TSDB: Couldn't parse MIN"))?;
            let most = value(most).ok_or(Error::line("ERR TSDB: Couldn't parse MAX"))?;
            query.values = Some((least, most));
        } else if words.flag("ALIGN") {
            let wrong = Error::line("ERR TSDB: unknown ALIGN parameter");
            *align = Some(match words.next().ok_or(wrong)? {
                b"-" => Align::Start,
                b"+" => Align::End,
                word if word.eq_ignore_ascii_case(b"start") => Align::Start,
                word if word.eq_ignore_ascii_case(b"end") => Align::End,
                word => Align::At(
                    time(word).map_err(|_| Error::line("ERR TSDB: unknown ALIGN parameter"))?,
                ),
            });
        } else if words.flag("AGGREGATION") {
            let (how, span) = words.next().zip(words.next()).ok_or(WRONG_AGGREGATION)?;
            let (how, span) = aggregation(how, span)?;
            query.buckets = Some(Buckets {
                how,
                span,
                align: 0,
                stamp: Stamp::Start,
                empty: false,
            });
        } else if let Some(buckets) = &mut query.buckets
            && words.flag("BUCKETTIMESTAMP")
        {
            let name = words.next().unwrap_or_default().to_ascii_lowercase();
            buckets.stamp = match &*name {
                b"-" | b"start" | b"low" => Stamp::Start,
                b"+" | b"end" | b"high" => Stamp::End,
                b"~" | b"mid" => Stamp::Middle,
                _ => return Err(Error::line("ERR TSDB: unknown BUCKETTIMESTAMP parameter")),
            };
        } else if let Some(buckets) = &mut query.buckets
            && words.flag("EMPTY")
        {
            buckets.empty = true;
        } else {
            return Ok(false);
        }
        Ok(true)
    }

    fn align(&mut self, align: Option<Align>, range: Option<(&[u8], &[u8])>) -> Result<(), Error> {
        let (Some(align), Some((from, to))) = (align, range) else {
            return Ok(());
        };
        let Some(buckets) = &mut self.query.buckets else {
            return Err(Error::line(
                "ERR TSDB: ALIGN parameter can only be used with AGGREGATION",
            ));
        };
        buckets.align = match align {
            Align::Start if from == b"-" => {
                return Err(Error::line(
                    "ERR TSDB: start alignment can only be used with explicit start timestamp",
                ));
            }
            Align::End if to == b"+" => {
                return Err(Error::line(
                    "ERR TSDB: end alignment can only be used with explicit end timestamp",
                ));
            }
            Align::Start => self.query.from,
            Align::End => self.query.to,
            Align::At(time) => time,
        };
        Ok(())
    }
}

pub(super) fn bounds(from: &[u8], to: &[u8]) -> Result<(u64, u64), Error> {
    let from = match from {
        b"-" => 0,
        from => time(from).map_err(|_| Error::line("ERR TSDB: wrong fromTimestamp"))?,
    };
    let to = match to {
        b"+" => u64::MAX,
        to => time(to).map_err(|_| Error::line("ERR TSDB: wrong toTimestamp"))?,
    };
    Ok((from, to))
}

/// Reads a filter: `name=value`, `name!=value`, `name=`, `name!=`, and `(value,value)` for a value.
pub(super) fn matcher(filter: &[u8]) -> Result<Matcher, Error> {
    let at = filter
        .iter()
        .position(|byte| *byte == b'=')
        .ok_or(WRONG_FILTER)?;
    let (name, values) = (&filter[..at], &filter[at + 1..]);
    let (name, is_not) = match name.strip_suffix(b"!") {
        Some(name) => (name, true),
        None => (name, false),
    };
    let values: Vec<Box<[u8]>> = match values.strip_prefix(b"(") {
        Some(list) => {
            let list = list.strip_suffix(b")").ok_or(WRONG_FILTER)?;
            let values = list
                .split(|byte| *byte == b',')
                .filter(|value| !value.is_empty());
            values.map(Into::into).collect()
        }
        None if values.is_empty() => Vec::new(),
        None => vec![values.into()],
    };
    // As the module reads it, `=value` is a label without a value.
    let (name, values) = match (name.is_empty(), values.first()) {
        (true, Some(first)) => (first.clone(), Vec::new()),
        (true, None) => return Err(WRONG_FILTER),
        (false, _) => (name.into(), values),
    };
    let wanted = match (is_not, values.is_empty()) {
        (false, true) => WantedLabel::Missing,
        (true, true) => WantedLabel::Any,
        (false, false) => WantedLabel::OneOf(values),
        (true, false) => WantedLabel::NoneOf(values),
    };
    Ok(Matcher { name, wanted })
}

/// Checks that the values of a label are named: those of all keys would be walked over otherwise.
fn check(matchers: &[Matcher]) -> Result<(), Error> {
    let names = |matcher: &Matcher| matches!(matcher.wanted, WantedLabel::OneOf(_));
    match matchers.iter().any(names) {
        true => Ok(()),
        false => Err(NO_MATCHER),
    }
}

fn group(words: &mut Words<'_>) -> Result<(Box<[u8]>, Aggregation), Error> {
    let label = words.next().ok_or_else(|| words.wrong_arity())?;
    let how = words.value("REDUCE").ok_or_else(|| words.wrong_arity())?;
    let how = Aggregation::of_name(how).filter(|how| *how != Aggregation::Twa);
    let how = how.ok_or(Error::line("ERR TSDB: Invalid reducer type"))?;
    Ok((label.into(), how))
}

/// Returns the sample that the source of a series would write now; the unit holds the stripe of the source.
fn latest(ctx: &Ctx<'_>, key: &[u8], series: &Series) -> Result<Option<Sample>, Failure> {
    let Some(source) = series.source() else {
        return Ok(None);
    };
    ctx.keys.require([source].into_iter())?;
    if !is_linked(&ctx.keys, source, key) {
        return Ok(None);
    }
    let source = series_of(&ctx.keys, source, Trace::Quiet)?;
    let latest = source.and_then(|source| source.latest_of(key));
    Ok(behind(series, latest))
}

/// Returns the sample if it is behind the last one of the series.
fn behind(series: &Series, latest: Option<Sample>) -> Option<Sample> {
    latest.filter(|latest| series.last().is_none_or(|last| last.time < latest.time))
}

/// TS.GET key [LATEST]
pub(crate) fn ts_get(
    ctx: &mut Ctx<'_>,
    args: Args<'_>,
    reply: &mut Reply<'_>,
) -> Result<(), Failure> {
    let is_latest = Words::new(CommandId::TsGet, &args, 2).flag("LATEST");
    let key = &args[1];
    let series = existing(&ctx.keys, key, Trace::Read)?;
    let latest = match is_latest {
        true => latest(ctx, key, series)?,
        false => None,
    };
    match latest.or(series.last()) {
        Some(sample) => write_sample(reply, sample),
        None => reply.array(0),
    }
    Ok(())
}

/// TS.RANGE key from to [LATEST] [FILTER_BY_TS time …] [FILTER_BY_VALUE min max] [COUNT count]
/// [[ALIGN time] AGGREGATION aggregation bucket [BUCKETTIMESTAMP time] [EMPTY]]
pub(crate) fn ts_range(
    ctx: &mut Ctx<'_>,
    args: Args<'_>,
    reply: &mut Reply<'_>,
) -> Result<(), Failure> {
    range(ctx, args, reply, CommandId::TsRange, false)
}

/// TS.REVRANGE key from to, with the options of TS.RANGE
pub(crate) fn ts_revrange(
    ctx: &mut Ctx<'_>,
    args: Args<'_>,
    reply: &mut Reply<'_>,
) -> Result<(), Failure> {
    range(ctx, args, reply, CommandId::TsRevrange, true)
}

fn range(
    ctx: &mut Ctx<'_>,
    args: Args<'_>,
    reply: &mut Reply<'_>,
    id: CommandId,
    reverse: bool,
) -> Result<(), Failure> {
    let key = &args[1];
    let series = existing(&ctx.keys, key, Trace::Read)?;
    let mut options = Options::parse(Words::new(id, &args, 4), Some((&args[2], &args[3])))?;
    options.query.reverse = reverse;
    let latest = match options.latest {
        true => latest(ctx, key, series)?,
        false => None,
    };
    let samples = options
        .query
        .run(series, latest)
        .map_err(|TooMany| TOO_MANY)?;
    write_samples(reply, &samples);
    Ok(())
}

fn write_samples(reply: &mut Reply<'_>, samples: &[Sample]) {
    reply.array(samples.len());
    samples
        .iter()
        .for_each(|sample| write_sample(reply, *sample));
}

/// Returns true if labels fulfil a filter. The index knows only conditions that name values, and labels may have changed
/// since it was asked.
fn fits(matchers: &[Matcher], labels: &[Label]) -> bool {
    matchers.iter().all(|matcher| matcher.fits(labels))
}

/// A series that a filter has found, as far as the reply needs it.
struct Hit {
    key: std::sync::Arc<[u8]>,
    labels: std::sync::Arc<[Label]>,
    samples: Vec<Sample>,
}

/// Reads the series that fulfil the filter, one stripe at a time; `read` gets the number of samples that it may still make
/// of nothing.
fn hits(
    database: &Database<'_, '_>,
    options: &Options,
    read: impl Fn(&Series, Option<Sample>, usize) -> Result<Vec<Sample>, TooMany>,
) -> Result<Vec<Hit>, Failure> {
    let mut hits = Vec::new();
    let mut results_left = RESULTS_MAX;
    for key in database.keys_by_labels(&options.matchers) {
        let mut latest = None;
        if options.latest {
            let source = database.read_one(&key, |found| {
                let series = found.and_then(|found| found.collection::<Series>().ok());
                series.and_then(|series| series.source().map(<[u8]>::to_vec))
            })?;
            if let Some(source) = source {
                latest = database.read_one(&source, |found| {
                    let series = found.and_then(|found| found.collection::<Series>().ok());
                    series.and_then(|series| series.latest_of(&key))
                })?;
            }
        }
        let hit = database.read_one(&key, |found| {
            let series = found.and_then(|found| found.collection::<Series>().ok())?;
            let labels = &series.shape().labels;
            if !fits(&options.matchers, labels) {
                return None;
            }
            let samples = read(series, behind(series, latest), results_left);
            Some(samples.map(|samples| (labels.clone(), samples)))
        })?;
        if let Some(hit) = hit {
            let (labels, samples) = hit.map_err(|TooMany| TOO_MANY)?;
            results_left = results_left.saturating_sub(samples.len());
            hits.push(Hit {
                key,
                labels,
                samples,
            });
        }
    }
    Ok(hits)
}

fn write_wanted_labels(reply: &mut Reply<'_>, labels: &[Label], wanted: &WithLabels) {
    match wanted {
        WithLabels::None => write_pairs(reply, 0),
        WithLabels::All => write_labels(reply, labels),
        WithLabels::Selected(names) => {
            write_pairs(reply, names.len());
            for name in names {
                write_pair(reply);
                reply.bulk(name);
                match labels.iter().find(|label| label.name == *name) {
                    Some(label) => reply.bulk(&label.value),
                    None => reply.null(),
                }
            }
        }
    }
}

/// Writes the head of a reply of many keys: a map in RESP3.
fn write_keys(reply: &mut Reply<'_>, len: usize) {
    match reply.proto() {
        Proto::Resp2 => reply.array(len),
        Proto::Resp3 => reply.map(len),
    }
}

/// Writes a key of such a reply and the head of its parts.
fn write_key(reply: &mut Reply<'_>, key: &[u8], parts: usize) {
    match reply.proto() {
        Proto::Resp2 => {
            reply.array(1 + parts);
            reply.bulk(key);
        }
        Proto::Resp3 => {
            reply.bulk(key);
            reply.array(parts);
        }
    }
}

/// TS.MGET [LATEST] [WITHLABELS | SELECTED_LABELS label …] FILTER filter …
pub(crate) fn ts_mget(
    ctx: &mut Ctx<'_>,
    args: Args<'_>,
    reply: &mut Reply<'_>,
) -> Result<(), Failure> {
    let options = Options::parse(Words::new(CommandId::TsMget, &args, 1), None)?;
    may_read_all(ctx)?;
    let database = ctx.keys.database();
    let hits = hits(&database, &options, |series, latest, _| {
        Ok(latest.or(series.last()).into_iter().collect())
    })?;
    write_keys(reply, hits.len());
    for hit in hits {
        write_key(reply, &hit.key, 2);
        write_wanted_labels(reply, &hit.labels, &options.labels);
        match hit.samples.first() {
            Some(sample) => write_sample(reply, *sample),
            None => reply.array(0),
        }
    }
    Ok(())
}

fn may_read_all(ctx: &Ctx<'_>) -> Result<(), Error> {
    match ctx.reads_every_key {
        true => Ok(()),
        false => Err(DENIED),
    }
}

/// TS.MRANGE from to [options of TS.RANGE] [WITHLABELS | SELECTED_LABELS label …] FILTER filter … [GROUPBY label REDUCE reducer]
pub(crate) fn ts_mrange(
    ctx: &mut Ctx<'_>,
    args: Args<'_>,
    reply: &mut Reply<'_>,
) -> Result<(), Failure> {
    multi_range(ctx, args, reply, CommandId::TsMrange, false)
}

/// TS.MREVRANGE from to, with the options of TS.MRANGE
pub(crate) fn ts_mrevrange(
    ctx: &mut Ctx<'_>,
    args: Args<'_>,
    reply: &mut Reply<'_>,
) -> Result<(), Failure> {
    multi_range(ctx, args, reply, CommandId::TsMrevrange, true)
}

fn multi_range(
    ctx: &mut Ctx<'_>,
    args: Args<'_>,
    reply: &mut Reply<'_>,
    id: CommandId,
    reverse: bool,
) -> Result<(), Failure> {
    let mut options = Options::parse(Words::new(id, &args, 3), Some((&args[1], &args[2])))?;
    options.query.reverse = reverse;
    may_read_all(ctx)?;
    let count = options.query.count;
    if options.group.is_some() {
        // Of what is made of the groups.
        options.query.count = usize::MAX;
    }
    let database = ctx.keys.database();
    let hits = hits(&database, &options, |series, latest, results_left| {
        options.query.run_within(series, latest, results_left)
    })?;
    match &options.group {
        Some((label, how)) => write_groups(reply, &options, hits, label, *how, count),
        None => write_hits(reply, &options, &hits),
    }
    Ok(())
}

fn write_hits(reply: &mut Reply<'_>, options: &Options, hits: &[Hit]) {
    write_keys(reply, hits.len());
    let is_map = reply.proto() == Proto::Resp3;
    for hit in hits {
        write_key(reply, &hit.key, if is_map { 3 } else { 2 });
        write_wanted_labels(reply, &hit.labels, &options.labels);
        if is_map {
            reply.map(1);
            reply.simple("aggregators");
            let how = options.query.buckets.map(|buckets| buckets.how);
            reply.array(usize::from(how.is_some()));
            if let Some(how) = how {
                reply.simple(&how.name().to_ascii_lowercase());
            }
        }
        write_samples(reply, &hit.samples);
    }
}

fn write_groups(
    reply: &mut Reply<'_>,
    options: &Options,
    hits: Vec<Hit>,
    label: &[u8],
    how: Aggregation,
    count: usize,
) {
    let mut groups: BTreeMap<Box<[u8]>, Vec<Hit>> = BTreeMap::new();
    for hit in hits {
        if let Some(found) = hit.labels.iter().find(|found| *found.name == *label) {
            groups.entry(found.value.clone()).or_default().push(hit);
        }
    }
    write_keys(reply, groups.len());
    let is_map = reply.proto() == Proto::Resp3;
    let name = how.name().to_ascii_lowercase();
    for (value, hits) in groups {
        let key = [label, b"=", &value].concat();
        write_key(reply, &key, if is_map { 4 } else { 2 });
        let sources: Vec<&[u8]> = hits.iter().map(|hit| &*hit.key).collect();
        let joined = sources.join(&b","[..]);
        let pairs = [
            (label, &*value),
            (b"__reducer__", name.as_bytes()),
            (b"__source__", &joined),
        ];
        let labels = pairs.map(|(name, value): (&[u8], &[u8])| Label {
            name: name.into(),
            value: value.into(),
        });
        let shown = if is_map { &labels[..1] } else { &labels[..] };
        match options.labels {
            WithLabels::None => write_pairs(reply, 0),
            _ => write_labels(reply, shown),
        }
        if is_map {
            reply.map(1);
            reply.simple("reducers");
            reply.array(1);
            reply.simple(&name);
            reply.map(1);
            reply.simple("sources");
            reply.array(sources.len());
            sources.iter().for_each(|source| reply.bulk(source));
        }
        write_samples(reply, &reduced(&hits, how, options.query.reverse, count));
    }
}

/// Makes one value of the values that series have at a time.
fn reduced(hits: &[Hit], how: Aggregation, reverse: bool, count: usize) -> Vec<Sample> {
    let mut by_time: BTreeMap<u64, Aggregator> = BTreeMap::new();
    for sample in hits.iter().flat_map(|hit| &hit.samples) {
        let aggregator = by_time.entry(sample.time);
        let aggregator = aggregator.or_insert_with(|| Aggregator::new(how, sample.time, None));
        aggregator.push(*sample);
    }
    let sample = |(time, aggregator): (&u64, &Aggregator)| Sample {
        time: *time,
        value: aggregator.value(*time, None).unwrap_or(f64::NAN),
    };
    match reverse {
        false => by_time.iter().take(count).map(sample).collect(),
        true => by_time.iter().rev().take(count).map(sample).collect(),
    }
}

/// TS.QUERYINDEX filter …
pub(crate) fn ts_queryindex(
    ctx: &mut Ctx<'_>,
    args: Args<'_>,
    reply: &mut Reply<'_>,
) -> Result<(), Failure> {
    let matchers = args.from(1).iter().map(matcher);
    let matchers = matchers.collect::<Result<Vec<Matcher>, Error>>()?;
    check(&matchers)?;
    let database = ctx.keys.database();
    let mut keys = Vec::new();
    for key in database.keys_by_labels(&matchers) {
        let fits = database.read_one(&key, |found| {
            let series = found.and_then(|found| found.collection::<Series>().ok());
            series.is_some_and(|series| fits(&matchers, &series.shape().labels))
        })?;
        if fits {
            keys.push(key);
        }
    }
    reply.set(keys.len());
    keys.iter().for_each(|key| reply.bulk(key));
    Ok(())
}
