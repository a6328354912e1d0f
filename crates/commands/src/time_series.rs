//! Commands of the group `timeseries`: samples under keys, and rules that write other keys. Queries are in `query`.
//!
//! A rule's two ends name each other, and each is believed only while the other one says so: a key that was deleted, renamed
//! or replaced ends the rule, without a look at the other key then. As in the module, words that no command knows are passed over.

mod query;
mod timelines;
mod write;

pub(crate) use query::{
    ts_get, ts_mget, ts_mrange, ts_mrevrange, ts_queryindex, ts_range, ts_revrange,
};
pub(crate) use timelines::{
    exts_p_create, exts_p_range, exts_s_add, exts_s_alter, exts_s_create, exts_s_del, exts_s_get,
    exts_s_incrby, exts_s_info, exts_s_madd, exts_s_mincrby, exts_s_mrange, exts_s_queryindex,
    exts_s_range, exts_s_raw_incrby, exts_s_raw_mincrby, exts_s_raw_mmodify, exts_s_raw_modify,
};
pub(crate) use write::{
    ts_add, ts_alter, ts_create, ts_createrule, ts_decrby, ts_del, ts_deleterule, ts_incrby,
    ts_madd,
};

use redline_keyspace::{Found, Trace, View};
use redline_resp::{Args, Proto, Reply};
use redline_spec::CommandId;
use redline_types::{
    DataType, Series, number,
    series::{Label, Sample, chunk::Chunk},
};

use crate::{Ctx, Error, Failure, words::Words};

const NO_KEY: Error = Error::line("ERR TSDB: the key does not exist");
const WRONG_TYPE: Error =
    Error::line("ERR WRONGTYPE Operation against a key holding the wrong kind of value");
const NOT_SERIES: Error = Error::line("ERR TSDB: the key is not a TSDB key");

/// Returns the series of a key.
fn series_of<'v>(
    keys: &'v View<'_>,
    key: &[u8],
    trace: Trace,
) -> Result<Option<&'v Series>, Error> {
    let found = keys.find(key, trace);
    let found = found.map(Found::collection::<Series>).transpose();
    found.map_err(|_| WRONG_TYPE)
}

/// Returns the series of a key that must be there.
fn existing<'v>(keys: &'v View<'_>, key: &[u8], trace: Trace) -> Result<&'v Series, Error> {
    series_of(keys, key, trace)?.ok_or(NO_KEY)
}

/// Returns true if a rule of the source writes the target, as both ends say. The unit holds both stripes.
fn is_linked(keys: &View<'_>, source: &[u8], target: &[u8]) -> bool {
    let has_source = |series: &Series| series.source() == Some(source);
    let has_rule = |series: &Series| series.rules().iter().any(|rule| rule.target() == target);
    let is = |key: &[u8], fits: &dyn Fn(&Series) -> bool| matches!(series_of(keys, key, Trace::Quiet), Ok(Some(series)) if fits(series));
    is(target, &has_source) && is(source, &has_rule)
}

/// Reads a time: a number of milliseconds that is not negative.
fn time(word: &[u8]) -> Result<u64, Error> {
    let time = number::parse_i64(word).ok_or(Error::line("ERR TSDB: invalid timestamp"))?;
    u64::try_from(time)
        .map_err(|_| Error::line("ERR TSDB: invalid timestamp, must be a nonnegative integer"))
}

/// Reads a value: a number.
fn value(word: &[u8]) -> Option<f64> {
    number::parse_f64(word).filter(|value| value.is_finite())
}

/// Writes a value in the form of each protocol: in RESP2 a status with the shortest digits, with an exponent below 1 and for
/// large numbers.
fn write_value(reply: &mut Reply<'_>, value: f64) {
    /// From here on a value has an exponent.
    const PLAIN_BELOW: f64 = 1e15;
    if reply.proto() == Proto::Resp3 {
        reply.double(value);
    } else if value.is_nan() {
        reply.simple("NaN");
    } else if value.is_infinite() {
        reply.simple(if value > 0.0 { "Infinity" } else { "-Infinity" });
    } else if value == 0.0 || (1.0..PLAIN_BELOW).contains(&value.abs()) {
        reply.simple(&format!("{value}"));
    } else {
        reply.simple(&format!("{value:E}"));
    }
}

fn write_sample(reply: &mut Reply<'_>, sample: Sample) {
    reply.array(2);
    reply.integer(sample.time as i64);
    write_value(reply, sample.value);
}

/// Writes the head of a list of names with values: pairs in RESP2, a map in RESP3.
fn write_pairs(reply: &mut Reply<'_>, len: usize) {
    match reply.proto() {
        Proto::Resp2 => reply.array(len),
        Proto::Resp3 => reply.map(len),
    }
}

/// Writes the head of one such name with its value.
fn write_pair(reply: &mut Reply<'_>) {
    if reply.proto() == Proto::Resp2 {
        reply.array(2);
    }
}

fn write_labels(reply: &mut Reply<'_>, labels: &[Label]) {
    write_pairs(reply, labels.len());
    for label in labels {
        write_pair(reply);
        reply.bulk(&label.name);
        reply.bulk(&label.value);
    }
}

/// TS.INFO key [DEBUG]
pub(crate) fn ts_info(
    ctx: &mut Ctx<'_>,
    args: Args<'_>,
    reply: &mut Reply<'_>,
) -> Result<(), Failure> {
    let with_chunks = Words::new(CommandId::TsInfo, &args, 2).flag("DEBUG");
    let key = &args[1];
    let series = existing(&ctx.keys, key, Trace::Read)?;
    let others = series.rules().iter().map(|rule| rule.target());
    ctx.keys.require(others.chain(series.source()))?;
    let (live, first) = series.live();
    let shape = series.shape();
    let numbers = [
        ("totalSamples", live),
        ("memoryUsage", series.heap_bytes() as u64),
        ("firstTimestamp", first.map_or(0, |first| first.time)),
        ("lastTimestamp", series.last().map_or(0, |last| last.time)),
        ("retentionTime", shape.retention_ms),
        ("chunkCount", series.chunks().len().max(1) as u64),
        ("chunkSize", shape.chunk_bytes.into()),
    ];
    reply.map(numbers.len() + 7 + if with_chunks { 2 } else { 0 });
    for (name, number) in numbers {
        reply.simple(name);
        reply.integer(number as i64);
    }
    reply.simple("chunkType");
    reply.simple(match shape.compressed {
        true => "compressed",
        false => "uncompressed",
    });
    reply.simple("duplicatePolicy");
    match shape.policy {
        Some(policy) => reply.simple(policy.name()),
        None => reply.null(),
    }
    reply.simple("labels");
    write_labels(reply, &shape.labels);
    reply.simple("sourceKey");
    match series
        .source()
        .filter(|source| is_linked(&ctx.keys, source, key))
    {
        Some(source) => reply.bulk(source),
        None => reply.null(),
    }
    let is_alive = |target: &[u8]| is_linked(&ctx.keys, key, target);
    let rules = series.rules().iter().filter(|rule| is_alive(rule.target()));
    reply.simple("rules");
    write_pairs(reply, rules.clone().count());
    for rule in rules {
        match reply.proto() {
            Proto::Resp2 => {
                reply.array(4);
                reply.bulk(rule.target());
            }
            Proto::Resp3 => {
                reply.bulk(rule.target());
                reply.array(3);
            }
        }
        reply.integer(rule.span_ms() as i64);
        reply.simple(rule.how().name());
        reply.integer(rule.align() as i64);
    }
    reply.simple("ignoreMaxTimeDiff");
    reply.integer(shape.ignore.0 as i64);
    reply.simple("ignoreMaxValDiff");
    reply.double(shape.ignore.1);
    if with_chunks {
        reply.simple("keySelfName");
        reply.bulk(key);
        reply.simple("Chunks");
        reply.array(series.chunks().len());
        series.chunks().for_each(|chunk| write_chunk(reply, chunk));
    }
    Ok(())
}

fn write_chunk(reply: &mut Reply<'_>, chunk: &Chunk) {
    let numbers = [
        ("startTimestamp", chunk.first_time()),
        ("endTimestamp", chunk.last_time()),
        ("samples", chunk.len() as u64),
        ("size", chunk.heap_bytes() as u64),
    ];
    reply.map(numbers.len() + 1);
    for (name, number) in numbers {
        reply.simple(name);
        reply.integer(number as i64);
    }
    reply.simple("bytesPerSample");
    reply.double(chunk.heap_bytes() as f64 / chunk.len().max(1) as f64);
}

#[cfg(test)]
mod tests;
