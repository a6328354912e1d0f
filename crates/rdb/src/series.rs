//! A time series as bytes, in the form that RedisTimeSeries has for it. Must not know other types.
//!
//! The form names the key, and the keys of rules. A payload that leaves its database has no rules, as there. What a rule has
//! of the bucket that is not over is read back, but for a time-weighted average, which is made of the samples again.

use redline_types::{
    Limits, Series,
    series::{
        Aggregation, CHUNK_BYTES_MAX, CHUNK_BYTES_MIN, Label, Parts, Policy, Rule, Sample, Shape,
        aggregate::{Aggregator, AggregatorState},
        chunk::{Chunk, Plain, SAMPLE_BYTES},
        gorilla::{Compressed, State},
    },
};

use crate::{
    Corrupt, ensure,
    format::ModuleType,
    module::{FieldReader, FieldWriter, ModuleCodec},
};

/// Options of a series: the form of its chunks.
const PLAIN: u64 = 1;
const COMPRESSED: u64 = 2;
/// Begin of a bucket that there is not.
const NO_BUCKET: u64 = u64::MAX;
/// Fields of a label, of a rule and of a chunk, at least.
const LABEL_FIELDS: usize = 2;
const RULE_FIELDS: usize = 7;
const CHUNK_FIELDS: usize = 4;

const WRONG_CHUNK: Corrupt = Corrupt("a chunk of a time series");

impl ModuleCodec for Series {
    const WRITTEN: ModuleType = ModuleType::new("TSDB-TYPE", 8);

    fn encode(&self, fields: &mut FieldWriter<'_>) {
        let shape = self.shape();
        let last = self.last();
        fields.string(self.name());
        fields.unsigned(shape.retention_ms);
        fields.unsigned(shape.chunk_bytes.into());
        fields.unsigned(match shape.compressed {
            true => COMPRESSED,
            false => PLAIN,
        });
        fields.unsigned(last.map_or(0, |last| last.time));
        fields.double(last.map_or(0.0, |last| last.value));
        fields.unsigned(self.chunks().map(|chunk| chunk.len() as u64).sum());
        fields.unsigned(shape.policy.map_or(0, Policy::number));
        let is_alone = fields.is_alone();
        match self.source().filter(|_| !is_alone) {
            Some(source) => {
                fields.unsigned(1);
                fields.string(source);
            }
            None => fields.unsigned(0),
        }
        fields.unsigned(shape.ignore.0);
        fields.double(shape.ignore.1);
        fields.unsigned(shape.labels.len() as u64);
        for label in shape.labels.iter() {
            fields.string(&label.name);
            fields.string(&label.value);
        }
        let rules = if is_alone { &[] } else { self.rules() };
        fields.unsigned(rules.len() as u64);
        rules.iter().for_each(|rule| write_rule(fields, rule));
        fields.unsigned(self.chunks().len().max(1) as u64);
        self.chunks().for_each(|chunk| write_chunk(fields, chunk));
        if self.chunks().len() == 0 {
            write_chunk(fields, &Chunk::new(shape.compressed, shape.chunk_bytes));
        }
    }

    fn decode(
        fields: &mut FieldReader<'_, '_>,
        _version: u16,
        _limits: &Limits,
    ) -> Result<Series, Corrupt> {
        let name = fields.string()?.into();
        let retention_ms = fields.unsigned()?;
        let chunk_bytes = u32::try_from(fields.unsigned()?).unwrap_or(u32::MAX);
        let is_size = (CHUNK_BYTES_MIN..=CHUNK_BYTES_MAX).contains(&chunk_bytes);
        ensure(
            is_size && chunk_bytes.is_multiple_of(8),
            "the size of a chunk",
        )?;
        let compressed = match fields.unsigned()? {
            options if options & COMPRESSED != 0 => true,
            options if options & PLAIN != 0 => false,
            _ => return Err(Corrupt("the form of chunks")),
        };
        // The last sample and the number of samples follow from the chunks.
        let (_, _, _) = (fields.unsigned()?, fields.double()?, fields.unsigned()?);
        let policy = match fields.unsigned()? {
            0 => None,
            number => Some(Policy::of_number(number).ok_or(Corrupt("a duplicate policy"))?),
        };
        let source = match fields.unsigned()? {
            0 => None,
            _ => Some(fields.string()?.into()),
        };
        let ignore = (fields.unsigned()?, fields.double()?);
        ensure(ignore.1 >= 0.0, "a negative difference to ignore")?;
        let mut labels = Vec::new();
        for _ in 0..fields.count(LABEL_FIELDS)? {
            labels.push(Label {
                name: fields.string()?.into(),
                value: fields.string()?.into(),
            });
        }
        let mut rules = Vec::new();
        for _ in 0..fields.count(RULE_FIELDS)? {
            rules.push(read_rule(fields)?);
        }
        let mut chunks = Vec::new();
        for _ in 0..fields.count(CHUNK_FIELDS)? {
            let chunk = match compressed {
                true => read_compressed(fields)?,
                false => read_plain(fields)?,
            };
            if !chunk.is_empty() {
                chunks.push(chunk);
            }
        }
        let shape = Shape {
            retention_ms,
            chunk_bytes,
            compressed,
            policy,
            ignore,
            labels: labels.into(),
        };
        Series::restore(Parts {
            name,
            shape,
            source,
            rules,
            chunks,
        })
        .ok_or(Corrupt("the order of samples"))
    }
}

fn write_chunk(fields: &mut FieldWriter<'_>, chunk: &Chunk) {
    match chunk {
        Chunk::Compressed(chunk) => {
            let state = chunk.state();
            fields.unsigned(state.size);
            fields.unsigned(state.count);
            fields.unsigned(state.bits);
            fields.unsigned(state.base.value.to_bits());
            fields.unsigned(state.base.time);
            fields.unsigned(state.last.time);
            fields.unsigned(state.delta as u64);
            fields.unsigned(state.last.value.to_bits());
            fields.unsigned(state.leading.into());
            fields.unsigned(state.trailing.into());
            fields.string(&chunk.bytes());
        }
        Chunk::Plain(chunk) => {
            let samples = chunk.samples();
            fields.unsigned(samples.first().map_or(0, |sample| sample.time));
            fields.unsigned(samples.len() as u64);
            fields.unsigned(chunk.size().into());
            let mut bytes = Vec::with_capacity(chunk.size() as usize);
            for sample in samples {
                bytes.extend_from_slice(&sample.time.to_le_bytes());
                bytes.extend_from_slice(&sample.value.to_le_bytes());
            }
            bytes.resize(chunk.size() as usize, 0);
            fields.string(&bytes);
        }
    }
}

fn read_compressed(fields: &mut FieldReader<'_, '_>) -> Result<Chunk, Corrupt> {
    let (size, count, bits) = (fields.unsigned()?, fields.unsigned()?, fields.unsigned()?);
    let mut sample =
        || -> Result<[u64; 2], Corrupt> { Ok([fields.unsigned()?, fields.unsigned()?]) };
    let ([value, time], [last_time, delta]) = (sample()?, sample()?);
    let last_value = fields.unsigned()?;
    let (leading, trailing) = (fields.unsigned()?, fields.unsigned()?);
    let state = State {
        size,
        count,
        bits,
        base: Sample {
            time,
            value: f64::from_bits(value),
        },
        last: Sample {
            time: last_time,
            value: f64::from_bits(last_value),
        },
        delta: delta as i64,
        leading: leading as u8,
        trailing: trailing as u8,
    };
    let bytes = fields.string()?;
    let chunk = Compressed::restore(&state, &bytes).ok_or(WRONG_CHUNK)?;
    Ok(Chunk::Compressed(chunk))
}

fn read_plain(fields: &mut FieldReader<'_, '_>) -> Result<Chunk, Corrupt> {
    let (_first, count, size) = (fields.unsigned()?, fields.unsigned()?, fields.unsigned()?);
    let bytes = fields.string()?;
    let (all, _) = bytes.as_chunks::<SAMPLE_BYTES>();
    let count = usize::try_from(count).unwrap_or(usize::MAX);
    let samples = all.get(..count).ok_or(WRONG_CHUNK)?.iter().map(|bytes| {
        let (time, value) = bytes.split_at(8);
        let word = |half: &[u8]| u64::from_le_bytes(half.try_into().expect("eight bytes"));
        Sample {
            time: word(time),
            value: f64::from_bits(word(value)),
        }
    });
    let size = u32::try_from(size).map_err(|_| WRONG_CHUNK)?;
    let chunk = Plain::restore(size, samples.collect()).ok_or(WRONG_CHUNK)?;
    Ok(Chunk::Plain(chunk))
}

fn write_rule(fields: &mut FieldWriter<'_>, rule: &Rule) {
    fields.string(rule.target());
    fields.unsigned(rule.span_ms());
    fields.unsigned(rule.align());
    fields.unsigned(rule.how().number());
    fields.unsigned(rule.open().map_or(NO_BUCKET, |(start, _)| start));
    let nothing = AggregatorState {
        min: f64::MAX,
        max: f64::MIN,
        ..AggregatorState::default()
    };
    let (state, last) = rule.open().map_or((nothing, None), |(_, aggregator)| {
        (aggregator.state(), aggregator.last_met())
    });
    let average = |fields: &mut FieldWriter<'_>| {
        fields.double(state.sum);
        fields.double(state.count as f64);
        fields.unsigned(state.is_average.into());
    };
    match rule.how() {
        Aggregation::Min | Aggregation::Max | Aggregation::Range => {
            fields.double(state.max);
            fields.double(state.min);
        }
        Aggregation::Sum | Aggregation::Count | Aggregation::First | Aggregation::Last => {
            fields.double(match rule.how() {
                Aggregation::Sum => state.sum,
                Aggregation::Count => state.count as f64,
                Aggregation::First => state.first,
                _ => state.last,
            });
            let is_new = rule.how() != Aggregation::First || state.count == 0;
            fields.unsigned(is_new.into());
        }
        Aggregation::Avg => average(fields),
        Aggregation::StdP | Aggregation::StdS | Aggregation::VarP | Aggregation::VarS => {
            fields.double(state.sum);
            fields.double(state.squares);
            fields.unsigned(state.count);
        }
        Aggregation::Twa => {
            average(fields);
            fields.double(0.0);
            fields.unsigned(0);
            fields.unsigned(last.map_or(0, |last| last.time));
            fields.double(last.map_or(0.0, |last| last.value));
            let start = rule.open().map_or(0, |(start, _)| start);
            fields.unsigned(start);
            fields.unsigned(start.saturating_add(rule.span_ms()));
            fields.unsigned(0);
            fields.unsigned(0);
            fields.unsigned(state.count);
            fields.double(0.0);
            fields.double(0.0);
            fields.unsigned(0);
        }
    }
}

fn read_rule(fields: &mut FieldReader<'_, '_>) -> Result<Rule, Corrupt> {
    let target = fields.string()?;
    let (span_ms, align) = (fields.unsigned()?, fields.unsigned()?);
    ensure(span_ms > 0, "a bucket without a length")?;
    let how = Aggregation::of_number(fields.unsigned()?).ok_or(Corrupt("an aggregation"))?;
    let start = fields.unsigned()?;
    let mut state = AggregatorState {
        count: 1,
        ..AggregatorState::default()
    };
    match how {
        Aggregation::Min | Aggregation::Max | Aggregation::Range => {
            (state.max, state.min) = (fields.double()?, fields.double()?);
        }
        Aggregation::Sum | Aggregation::Count | Aggregation::First | Aggregation::Last => {
            let value = fields.double()?;
            fields.unsigned()?;
            (state.sum, state.first, state.last) = (value, value, value);
            if how == Aggregation::Count {
                state.count = value as u64;
            }
        }
        Aggregation::Avg | Aggregation::Twa => {
            state.sum = fields.double()?;
            state.count = fields.double()? as u64;
            state.is_average = fields.unsigned()? != 0;
        }
        Aggregation::StdP | Aggregation::StdS | Aggregation::VarP | Aggregation::VarS => {
            (state.sum, state.squares) = (fields.double()?, fields.double()?);
            state.count = fields.unsigned()?;
        }
    }
    if how == Aggregation::Twa {
        let _ = (fields.double()?, fields.unsigned()?, fields.unsigned()?);
        let _ = fields.double()?;
        for _ in 0..5 {
            fields.unsigned()?;
        }
        let _ = (fields.double()?, fields.double()?, fields.unsigned()?);
    }
    let mut rule = Rule::new(&target, how, span_ms, align);
    if start != NO_BUCKET && state.count > 0 {
        let mut aggregator: Aggregator = rule.aggregator(start, None);
        aggregator.restore(state);
        rule.set_open(Some((start, aggregator)));
    }
    Ok(rule)
}

#[cfg(test)]
mod tests {
    use redline_types::Value;

    use super::*;
    use crate::{
        Object, ObjectRef, dump,
        format::FileVersion,
        object::{read, write_as},
        primitive::{Reader, Writer},
        restore,
    };

    const HOWS: u64 = 13;

    /// A series with every kind of rule, a bucket of each of which is not over.
    fn ruled(compressed: bool) -> Series {
        let label = |name: &str| Label {
            name: name.as_bytes().into(),
            value: b"v".as_slice().into(),
        };
        let shape = Shape {
            retention_ms: 5_000,
            chunk_bytes: 64,
            compressed,
            policy: Some(Policy::Sum),
            ignore: (3, 0.5),
            labels: [label("a"), label("b")].into(),
        };
        let mut series = Series::new(b"key", shape);
        for number in 1..=HOWS {
            let how = Aggregation::of_number(number).expect("an aggregation");
            series.add_rule(Rule::new(how.name().as_bytes(), how, 70, 5));
        }
        for at in 0..200_u64 {
            let sample = Sample {
                time: at * 10,
                value: (at % 17) as f64 / 4.0,
            };
            let added = series.add(sample, Policy::Block).expect("it is the last");
            series.note_added(sample, added);
        }
        series.set_source(Some(b"source"));
        series
    }

    #[test]
    fn a_file_has_the_rules_and_a_payload_has_none() {
        for compressed in [false, true] {
            let series = ruled(compressed);
            let value = Value::from(series.clone());
            let rdb_type = crate::object::type_of(ObjectRef::Value(&value), FileVersion::LATEST);
            let rdb_type = rdb_type.expect("every version that is written");
            let mut out = Writer::new(true);
            write_as(&mut out, ObjectRef::Value(&value), rdb_type);
            let mut reader = Reader::new(&out);
            let limits = Limits::default();
            let read = read(&mut reader, FileVersion::LATEST, rdb_type, &limits);
            let Ok(Object::Value(Value::Series(mut read))) = read else {
                panic!("not a series");
            };
            assert!(reader.is_empty());
            assert_eq!((read.shape(), read.name()), (series.shape(), series.name()));
            assert_eq!(read.source(), Some(&b"source"[..]));
            assert_eq!(read.rules().len() as u64, HOWS);
            for rule in series.rules() {
                let (here, there) = (
                    series.latest_of(rule.target()),
                    read.latest_of(rule.target()),
                );
                assert_eq!(here, there, "{rule:?}");
                assert!(here.is_some());
            }
            // What follows is the same, too.
            let mut other = series.clone();
            let sample = Sample {
                time: 2_100,
                value: 3.0,
            };
            let outcomes = [&mut other, &mut read].map(|series| {
                let added = series.add(sample, Policy::Block).expect("it is the last");
                series.note_added(sample, added)
            });
            assert_eq!(outcomes[0], outcomes[1]);
            assert_eq!(outcomes[0].len() as u64, HOWS);

            let payload = dump(ObjectRef::Value(&value), true);
            let Ok(Object::Value(Value::Series(alone))) = restore(&payload, &limits) else {
                panic!("not a series");
            };
            assert!(alone.rules().is_empty() && alone.source().is_none());
            assert_eq!(dump(ObjectRef::Value(&Value::Series(alone)), true), payload);
        }
    }

    #[test]
    fn a_damaged_series_is_an_error_or_a_sound_one() {
        let limits = Limits {
            payload_checksum_skipped: true,
            ..Limits::default()
        };
        let mut random = fastrand::Rng::with_seed(4);
        let mut refused = 0;
        for round in 0..3_000 {
            let series = ruled(round % 2 == 0);
            let mut out = dump(ObjectRef::Value(&series.into()), false);
            for _ in 0..random.usize(1..3) {
                let at = random.usize(1..out.len());
                out[at] = random.u8(..);
            }
            match restore(&out, &limits) {
                Err(_) => refused += 1,
                Ok(Object::Value(Value::Series(series))) => {
                    let count: usize = series.chunks().map(|chunk| chunk.samples().len()).sum();
                    assert_eq!(redline_types::DataType::len(&*series), count);
                }
                Ok(_) => {}
            }
        }
        assert!(refused > 500, "{refused}");
    }
}
