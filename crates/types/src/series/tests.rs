//! Series against a sorted list, with aggregation written the plain way. Must not know files or keys.

use std::collections::BTreeMap;

use super::{
    range::{Bucket, Buckets, Query, Stamp},
    *,
};

fn sample(time: u64, value: f64) -> Sample {
    Sample { time, value }
}

fn all(series: &Series) -> Vec<Sample> {
    Query::range(0, u64::MAX).run(series, None).expect("few")
}

/// Adds to a list as a series does.
fn add_to_model(
    model: &mut BTreeMap<u64, f64>,
    retention_ms: u64,
    sample: Sample,
    policy: Policy,
) -> Result<(), Refused> {
    let last = model.keys().last().copied();
    if retention_ms > 0 && last.is_some_and(|last| sample.time + retention_ms < last) {
        return Err(Refused::TooOld);
    }
    let old = model.get(&sample.time).copied();
    let value = match (old, policy) {
        (None, _) | (_, Policy::Last) => sample.value,
        (Some(_), Policy::Block) => return Err(Refused::Blocked),
        (Some(old), Policy::First) => old,
        (Some(old), Policy::Min) if old < sample.value => old,
        (Some(old), Policy::Max) if old > sample.value => old,
        (Some(_), Policy::Min | Policy::Max) => sample.value,
        (Some(old), Policy::Sum) => old + sample.value,
    };
    model.insert(sample.time, value);
    Ok(())
}

const POLICIES_ALL: [Policy; 6] = [
    Policy::Block,
    Policy::Last,
    Policy::First,
    Policy::Min,
    Policy::Max,
    Policy::Sum,
];

#[test]
fn a_series_is_a_sorted_list_whatever_is_added_and_deleted() {
    let mut random = fastrand::Rng::with_seed(9);
    for round in 0..60 {
        let shape = Shape {
            retention_ms: if round % 3 == 0 { 2_000 } else { 0 },
            chunk_bytes: random.u32(6..30) * 8,
            compressed: round % 2 == 0,
            ..Shape::default()
        };
        let retention_ms = shape.retention_ms;
        let mut series = Series::new(b"k", shape);
        let mut model = BTreeMap::new();
        for _ in 0..400 {
            let last = series.last().map_or(0, |last| last.time);
            if random.u32(..12) == 0 {
                let from = random.u64(..last + 10);
                let to = from + random.u64(..300);
                // What is older than the retention may be deleted or not.
                let before = model.len();
                model.retain(|time, _| !(from..=to).contains(time));
                let deleted = series.delete(from, to);
                if retention_ms == 0 {
                    assert_eq!(deleted, (before - model.len()) as u64);
                }
            } else {
                let time = match random.u32(..3) {
                    0 => random.u64(..last + 100),
                    _ => last + random.u64(..60),
                };
                let sample = sample(time, f64::from(random.i32(-500..500)) / 8.0);
                let policy = POLICIES_ALL[random.usize(..6)];
                let added = series.add(sample, policy).map(drop);
                assert_eq!(
                    added,
                    add_to_model(&mut model, retention_ms, sample, policy)
                );
            }
            let oldest = match (retention_ms, model.keys().last()) {
                (1.., Some(last)) => last.saturating_sub(retention_ms),
                _ => 0,
            };
            let expected: Vec<Sample> = model
                .range(oldest..)
                .map(|(time, value)| sample(*time, *value))
                .collect();
            assert_eq!(all(&series), expected);
            assert_eq!(
                series.live(),
                (expected.len() as u64, expected.first().copied())
            );
            let held = series.chunks().map(Chunk::heap_bytes).sum::<usize>();
            assert_eq!(series.chunk_heap_bytes, held);
            assert_eq!(series.len(), series.chunks().map(Chunk::len).sum::<usize>());
            assert!(series.chunks().all(|chunk| !chunk.is_empty()));
        }
    }
}

/// Makes one value of samples, the plain way.
fn aggregate(how: Aggregation, values: &[f64]) -> f64 {
    let count = values.len() as f64;
    let sum: f64 = values.iter().sum();
    let min = values.iter().copied().fold(f64::INFINITY, f64::min);
    let max = values.iter().copied().fold(f64::NEG_INFINITY, f64::max);
    let squares: f64 = values
        .iter()
        .map(|value| (value - sum / count).powi(2))
        .sum();
    let of_samples = if count > 1.0 {
        squares / (count - 1.0)
    } else {
        0.0
    };
    match how {
        Aggregation::Min => min,
        Aggregation::Max => max,
        Aggregation::Sum => sum,
        Aggregation::Avg => sum / count,
        Aggregation::Count => count,
        Aggregation::First => values[0],
        Aggregation::Last => values[values.len() - 1],
        Aggregation::Range => max - min,
        Aggregation::VarP => squares / count,
        Aggregation::StdP => (squares / count).sqrt(),
        Aggregation::VarS => of_samples,
        Aggregation::StdS => of_samples.sqrt(),
        Aggregation::Twa => unreachable!("no value of values alone"),
    }
}

fn is_near(a: f64, b: f64) -> bool {
    (a - b).abs() <= 1e-6 * (1.0 + a.abs().max(b.abs())) || a.is_nan() && b.is_nan()
}

const HOWS: [Aggregation; 12] = [
    Aggregation::Min,
    Aggregation::Max,
    Aggregation::Sum,
    Aggregation::Avg,
    Aggregation::Count,
    Aggregation::First,
    Aggregation::Last,
    Aggregation::Range,
    Aggregation::StdP,
    Aggregation::StdS,
    Aggregation::VarP,
    Aggregation::VarS,
];

#[test]
fn queries_are_those_of_the_list_forwards_and_backwards() {
    let mut random = fastrand::Rng::with_seed(10);
    for _ in 0..400 {
        let mut series = Series::new(
            b"k",
            Shape {
                chunk_bytes: 64,
                ..Shape::default()
            },
        );
        let mut time = random.u64(..50);
        for _ in 0..random.u32(1..60) {
            let value = f64::from(random.i32(-9..9));
            series
                .add(sample(time, value), Policy::Block)
                .expect("it is the last");
            time += random.u64(1..30);
        }
        let (from, to) = (random.u64(..200), random.u64(100..800));
        let (span, align) = (random.u64(1..80), random.u64(..100));
        let least = f64::from(random.i32(-9..3));
        let how = HOWS[random.usize(..HOWS.len())];
        let query = Query {
            reverse: random.bool(),
            values: random.bool().then_some((least, least + 8.0)),
            count: random.usize(1..40),
            buckets: random.bool().then_some(Buckets {
                how,
                span,
                align,
                stamp: Stamp::Start,
                empty: random.bool(),
            }),
            ..Query::range(from, to)
        };
        let is_in = |value: f64| query.values.is_none_or(|(a, b)| a <= value && value <= b);
        let mut samples: Vec<Sample> = all(&series);
        samples.retain(|it| (from..=to).contains(&it.time) && is_in(it.value));
        let mut expected = Vec::new();
        if let Some(buckets) = query.buckets {
            let mut by_bucket: BTreeMap<i64, Vec<f64>> = BTreeMap::new();
            let place = |time: u64| (time as i64 - align as i64).div_euclid(span as i64);
            for it in &samples {
                by_bucket.entry(place(it.time)).or_default().push(it.value);
            }
            let ends = by_bucket.keys().next().zip(by_bucket.keys().last());
            for at in ends.map_or(0..0, |(first, last)| *first..last + 1) {
                let start = (at * span as i64 + align as i64).max(0) as u64;
                match by_bucket.get_mut(&at) {
                    Some(values) => {
                        if query.reverse {
                            values.reverse();
                        }
                        expected.push(sample(start, aggregate(how, values)));
                    }
                    None if buckets.empty => expected.push(sample(start, f64::INFINITY)),
                    None => {}
                }
            }
        } else {
            expected = samples;
        }
        if query.reverse {
            expected.reverse();
        }
        expected.truncate(query.count);
        let given = query.run(&series, None).expect("few");
        assert_eq!(given.len(), expected.len(), "{query:?}");
        for (given, expected) in given.iter().zip(&expected) {
            assert_eq!(given.time, expected.time, "{query:?}");
            let is_equal = match (expected.value == f64::INFINITY, how) {
                (false, _) => is_near(given.value, expected.value),
                (true, Aggregation::Sum | Aggregation::Count) => given.value == 0.0,
                (true, Aggregation::Last) => given.value.is_finite(),
                (true, _) => given.value.is_nan(),
            };
            assert!(is_equal, "{given:?} {expected:?} {query:?}");
        }
    }
}

/// Replies of RedisTimeSeries 8.2 for samples every 10 ms, whose values go round by 9.25 below 25.25.
#[test]
fn a_time_weighted_average_is_the_area_under_the_line() {
    let mut series = Series::new(b"k", Shape::default());
    for at in 0..60_u32 {
        let value = f64::from(at * 37 % 101) / 4.0;
        let added = series.add(sample(u64::from(at) * 10, value), Policy::Block);
        added.expect("it is the last");
    }
    let query = |span, reverse| Query {
        reverse,
        count: 6,
        buckets: Some(Buckets {
            how: Aggregation::Twa,
            span,
            align: 0,
            stamp: Stamp::Start,
            empty: true,
        }),
        ..Query::range(0, u64::MAX)
    };
    let values = |query: Query| -> Vec<f64> {
        let results = query.run(&series, None).expect("few");
        results.iter().map(|result| result.value).collect()
    };
    let expected = [12.1625, 12.5, 12.8375, 13.175, 12.25, 11.75];
    assert_eq!(values(query(100, false)), expected);
    let backwards: Vec<f64> = expected.into_iter().rev().collect();
    assert_eq!(values(query(100, true)), backwards);
    let expected = [
        3.2375,
        9.7125,
        16.007142857142856,
        11.299999999999999,
        4.608928571428572,
    ];
    assert_eq!(values(query(7, false))[..5], expected);
    let expected = [
        14.575,
        10.4125,
        10.430357142857146,
        19.826785714285716,
        16.2375,
    ];
    assert_eq!(values(query(7, true))[..5], expected);
}

/// Asserts that rules have written what the samples say, but for the bucket that is not over.
#[test]
fn targets_follow_their_source_through_adding_and_deleting() {
    let mut random = fastrand::Rng::with_seed(12);
    for round in 0..120 {
        let how = HOWS[round % HOWS.len()];
        let (span, align) = (random.u64(1..60), random.u64(..50));
        let mut source = Series::new(b"s", Shape::default());
        let mut target = Series::new(b"t", Shape::default());
        source.add_rule(Rule::new(b"t", how, span, align));
        for _ in 0..150 {
            let last = source.last().map_or(0, |last| last.time);
            let outcomes = match random.u32(..10) {
                0 => {
                    let from = random.u64(..last + 1);
                    let to = from + random.u64(..120);
                    match source.delete(from, to) {
                        0 => Vec::new(),
                        _ => source.note_deleted(from, to),
                    }
                }
                kind => {
                    let time = match kind {
                        1..3 => random.u64(..last + 1),
                        _ => last + random.u64(..25),
                    };
                    let new = sample(time, f64::from(random.i32(-20..20)));
                    let added = source.add(new, Policy::Last).expect("it is not refused");
                    source.note_added(new, added)
                }
            };
            for outcome in outcomes {
                assert_eq!(*outcome.target, *b"t");
                if let Some((from, to)) = outcome.gone {
                    target.delete(from, to);
                }
                for sample in outcome.samples {
                    target.add(sample, Policy::Last).expect("it replaces");
                }
            }
            let query = Query {
                buckets: Some(Buckets {
                    how,
                    span,
                    align,
                    stamp: Stamp::Start,
                    empty: false,
                }),
                ..Query::range(0, u64::MAX)
            };
            let mut expected = query.run(&source, None).expect("few");
            let open = source
                .last()
                .map(|last| Bucket::of(last.time, span, align).start);
            let latest = expected.pop();
            let given = all(&target);
            assert!(given.iter().all(|it| Some(it.time) < open), "{how:?}");
            assert_eq!(given.len(), expected.len(), "{how:?}");
            for (given, expected) in given.iter().zip(&expected) {
                assert_eq!(given.time, expected.time);
                assert!(is_near(given.value, expected.value), "{how:?}");
            }
            if let Some(latest) = latest {
                let kept = source.latest_of(b"t").expect("there is an open bucket");
                assert_eq!(kept.time, latest.time);
                assert!(
                    is_near(kept.value, latest.value),
                    "{how:?} {kept:?} {latest:?}"
                );
            }
        }
    }
}

#[test]
fn a_sample_close_to_the_last_is_ignored_under_one_policy() {
    let mut series = Series::new(
        b"k",
        Shape {
            ignore: (10, 1.5),
            ..Shape::default()
        },
    );
    assert_eq!(series.add(sample(100, 1.0), Policy::Last), Ok(Added::Last));
    assert_eq!(
        series.add(sample(105, 1.2), Policy::Last),
        Ok(Added::Ignored)
    );
    assert_eq!(series.add(sample(105, 5.0), Policy::Last), Ok(Added::Last));
    assert_eq!(series.add(sample(120, 5.1), Policy::Last), Ok(Added::Last));
    assert_eq!(series.add(sample(121, 5.1), Policy::Sum), Ok(Added::Last));
    assert_eq!(series.len(), 4);
}

#[test]
fn regular_times_with_slowly_changing_values_take_two_bytes_a_sample() {
    let mut series = Series::new(b"k", Shape::default());
    let mut random = fastrand::Rng::with_seed(2);
    let mut value = 20.0;
    for at in 0..100_000_u64 {
        if random.u32(..10) == 0 {
            value += f64::from(random.i32(-1..2));
        }
        let added = series.add(sample(1_700_000_000_000 + at * 1_000, value), Policy::Block);
        added.expect("it is the last");
    }
    let bytes = series.heap_bytes() as f64 / series.len() as f64;
    assert!(bytes < 2.1, "{bytes}");
}
