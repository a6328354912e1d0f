//! Digests for quantiles: the commands TDIGEST. Replies and errors are those of the module `bf` of Redis 8.

use redline_keyspace::{Classes, Expiry};
use redline_resp::{Args, Reply};
use redline_spec::CommandId;
use redline_types::{TDigest, number, t_digest::View};

use crate::{
    Ctx, Error, Failure,
    bloom::{ensure_new, existing, field},
    words::Words,
};

const COMPRESSION_DEFAULT: u64 = 100;

const MISSING: Error = Error::line("ERR T-Digest: key does not exist");
const NO_ROOM: Error = Error::line("ERR T-Digest: allocation failed");
const OVERFLOW: Error = Error::line("ERR T-Digest: overflow detected");
const NOT_FINITE: Error = Error::line("ERR T-Digest: val parameter needs to be a finite number");
const WRONG_WORD: Error = Error::line("ERR T-Digest: wrong keyword");

/// Reads a compression.
fn compression(word: &[u8]) -> Result<u64, Error> {
    let number = number::parse_i64(word);
    let number = number.ok_or(Error::line(
        "ERR T-Digest: error parsing compression parameter",
    ))?;
    let number = u64::try_from(number).ok().filter(|number| *number > 0);
    number.ok_or(Error::line(
        "ERR T-Digest: compression parameter needs to be a positive integer",
    ))
}

/// TDIGEST.CREATE key [COMPRESSION compression]
pub(crate) fn tdigest_create(
    ctx: &mut Ctx<'_>,
    args: Args<'_>,
    reply: &mut Reply<'_>,
) -> Result<(), Failure> {
    let mut words = Words::new(CommandId::TdigestCreate, &args, 2);
    if args.len() != 2 && args.len() != 4 {
        return Err(words.wrong_arity().into());
    }
    let key = &args[1];
    ensure_new::<TDigest>(ctx, key, Error::line("ERR T-Digest: key already exists"))?;
    let asked = match words.value("COMPRESSION") {
        Some(word) => compression(word)?,
        None if words.is_empty() => COMPRESSION_DEFAULT,
        None => return Err(WRONG_WORD.into()),
    };
    let digest = TDigest::new(asked).ok_or(NO_ROOM)?;
    ctx.keys.insert(key, digest, Expiry::Clear);
    ctx.keys.changed(Classes::MODULE, "tdigest.create", key);
    reply.ok();
    Ok(())
}

/// TDIGEST.RESET key
pub(crate) fn tdigest_reset(
    ctx: &mut Ctx<'_>,
    args: Args<'_>,
    reply: &mut Reply<'_>,
) -> Result<(), Failure> {
    let key = &args[1];
    let reset = ctx
        .keys
        .write::<TDigest, _>(key, |digest, _| digest.reset())?;
    reset.ok_or(MISSING)?;
    ctx.keys.changed(Classes::MODULE, "tdigest.reset", key);
    reply.ok();
    Ok(())
}

/// Reads the numbers from a position on.
fn numbers(args: Args<'_>, from: usize, error: Error) -> Result<Vec<f64>, Error> {
    let numbers = args.from(from);
    let numbers = numbers.iter().map(number::parse_f64);
    numbers.collect::<Option<_>>().ok_or(error)
}

/// TDIGEST.ADD key value [value …]
pub(crate) fn tdigest_add(
    ctx: &mut Ctx<'_>,
    args: Args<'_>,
    reply: &mut Reply<'_>,
) -> Result<(), Failure> {
    let key = &args[1];
    let error = Error::line("ERR T-Digest: error parsing val parameter");
    let added = ctx.keys.write::<TDigest, _>(key, |digest, _| {
        // One value is the rule, and needs no list.
        let (one, several);
        let values: &[f64] = match args.len() {
            3 => {
                one = [number::parse_f64(&args[2]).ok_or(error)?];
                &one
            }
            _ => {
                several = numbers(args, 2, error)?;
                &several
            }
        };
        match values.iter().any(|value| value.is_infinite()) {
            true => Err(NOT_FINITE),
            false => Ok(digest.extend(values.iter().copied())),
        }
    })?;
    let added = added.ok_or(MISSING)??;
    ctx.keys.changed(Classes::MODULE, "tdigest.add", key);
    added.map_err(|_| OVERFLOW)?;
    reply.ok();
    Ok(())
}

/// TDIGEST.MERGE destination-key numkeys source-key [source-key …] [COMPRESSION compression] [OVERRIDE]
pub(crate) fn tdigest_merge(
    ctx: &mut Ctx<'_>,
    args: Args<'_>,
    reply: &mut Reply<'_>,
) -> Result<(), Failure> {
    let key = &args[1];
    let old = ctx.keys.read::<TDigest>(key)?;
    let count = number::parse_i64(&args[2]);
    let count = count.ok_or(Error::line("ERR T-Digest: error parsing numkeys"))?;
    if count <= 0 {
        return Err(Error::line("ERR T-Digest: numkeys needs to be a positive integer").into());
    }
    let mut words = Words::new(CommandId::TdigestMerge, &args, 3);
    let sources = words.take_args(usize::try_from(count).unwrap_or(usize::MAX));
    let sources = sources.ok_or_else(|| words.wrong_arity())?;
    let (mut asked, mut overrides) = (None, false);
    while !words.is_empty() {
        if words.flag("OVERRIDE") {
            overrides = true;
        } else if let Some(word) = words.value("COMPRESSION") {
            asked = Some(compression(word)?);
        } else if words.undocumented("COMPRESSION") {
            return Err(words.wrong_arity().into());
        } else {
            return Err(WRONG_WORD.into());
        }
    }
    let mut digests = Vec::with_capacity(sources.len());
    for source in sources.iter() {
        digests.push(existing::<TDigest>(ctx, source, MISSING)?);
    }
    let kept = old.filter(|_| !overrides);
    let most = digests.iter().map(|digest| digest.compression()).max();
    let compression = asked
        .or(kept.map(TDigest::compression))
        .or(most)
        .unwrap_or(COMPRESSION_DEFAULT);
    let mut merged = TDigest::new(compression).ok_or(Error::line(
        "ERR T-Digest: allocation of destination digest failed",
    ))?;
    for digest in kept.into_iter().chain(digests) {
        merged.merge(digest).map_err(|_| OVERFLOW)?;
    }
    // A destination keeps its expiry, as one that other commands change.
    let is_there = old.is_some();
    if is_there {
        ctx.keys
            .write::<TDigest, _>(key, |digest, _| *digest = merged)?;
    } else {
        ctx.keys.insert(key, merged, Expiry::Clear);
    }
    ctx.keys.changed(Classes::MODULE, "tdigest.merge", key);
    reply.ok();
    Ok(())
}

/// TDIGEST.MIN key
pub(crate) fn tdigest_min(
    ctx: &mut Ctx<'_>,
    args: Args<'_>,
    reply: &mut Reply<'_>,
) -> Result<(), Failure> {
    let digest = existing::<TDigest>(ctx, &args[1], MISSING)?;
    reply.double(match digest.weight() {
        0 => f64::NAN,
        _ => digest.bounds().0,
    });
    Ok(())
}

/// TDIGEST.MAX key
pub(crate) fn tdigest_max(
    ctx: &mut Ctx<'_>,
    args: Args<'_>,
    reply: &mut Reply<'_>,
) -> Result<(), Failure> {
    let digest = existing::<TDigest>(ctx, &args[1], MISSING)?;
    reply.double(match digest.weight() {
        0 => f64::NAN,
        _ => digest.bounds().1,
    });
    Ok(())
}

/// TDIGEST.QUANTILE key quantile [quantile …]
pub(crate) fn tdigest_quantile(
    ctx: &mut Ctx<'_>,
    args: Args<'_>,
    reply: &mut Reply<'_>,
) -> Result<(), Failure> {
    let digest = existing::<TDigest>(ctx, &args[1], MISSING)?;
    let error = Error::line("ERR T-Digest: error parsing quantile");
    let quantiles = numbers(args, 2, error)?;
    if quantiles.iter().any(|q| !(0.0..=1.0).contains(q)) {
        return Err(Error::line("ERR T-Digest: quantile should be in [0,1]").into());
    }
    let view = digest.view();
    reply.array(quantiles.len());
    for run in quantiles.chunk_by(|a, b| a <= b) {
        for value in view.quantiles(run) {
            reply.double(value);
        }
    }
    Ok(())
}

/// TDIGEST.CDF key value [value …]
pub(crate) fn tdigest_cdf(
    ctx: &mut Ctx<'_>,
    args: Args<'_>,
    reply: &mut Reply<'_>,
) -> Result<(), Failure> {
    let digest = existing::<TDigest>(ctx, &args[1], MISSING)?;
    let error = Error::line("ERR T-Digest: error parsing cdf");
    let values = numbers(args, 2, error)?;
    let view = digest.view();
    reply.array(values.len());
    for value in values {
        reply.double(view.cdf(value));
    }
    Ok(())
}

fn write_ranks(
    ctx: &mut Ctx<'_>,
    args: Args<'_>,
    reversed: bool,
    reply: &mut Reply<'_>,
) -> Result<(), Failure> {
    /// Reply for a digest without a value.
    const EMPTY: i64 = -2;
    /// Reply for what is before all values.
    const BEFORE: i64 = -1;
    let digest = existing::<TDigest>(ctx, &args[1], MISSING)?;
    let error = Error::line("ERR T-Digest: error parsing value");
    let values = numbers(args, 2, error)?;
    let view = digest.view();
    let (weight, (min, max)) = (digest.weight(), digest.bounds());
    reply.array(values.len());
    for value in values {
        reply.integer(match (value < min, value > max) {
            _ if weight == 0 => EMPTY,
            (true, _) if reversed => weight,
            (true, _) => BEFORE,
            (_, true) if reversed => BEFORE,
            (_, true) => weight,
            _ => rank(&view, value, weight as f64, reversed),
        });
    }
    Ok(())
}

/// Returns the number of values before one, in ascending or descending order, with half of those equal to it.
fn rank(view: &View, value: f64, weight: f64, reversed: bool) -> i64 {
    let below = view.cdf(value) * weight;
    match reversed {
        true => (weight - below.round()).round() as i64,
        false if below.fract().abs() <= 0.5 => below.trunc() as i64,
        false => below.trunc() as i64 + 1,
    }
}

/// TDIGEST.RANK key value [value …]
pub(crate) fn tdigest_rank(
    ctx: &mut Ctx<'_>,
    args: Args<'_>,
    reply: &mut Reply<'_>,
) -> Result<(), Failure> {
    write_ranks(ctx, args, false, reply)
}

/// TDIGEST.REVRANK key value [value …]
pub(crate) fn tdigest_revrank(
    ctx: &mut Ctx<'_>,
    args: Args<'_>,
    reply: &mut Reply<'_>,
) -> Result<(), Failure> {
    write_ranks(ctx, args, true, reply)
}

fn write_values(
    ctx: &mut Ctx<'_>,
    args: Args<'_>,
    reversed: bool,
    reply: &mut Reply<'_>,
) -> Result<(), Failure> {
    let digest = existing::<TDigest>(ctx, &args[1], MISSING)?;
    let mut ranks = Vec::with_capacity(args.len());
    for word in args.from(2).iter() {
        let rank = number::parse_i64(word);
        let rank = rank.ok_or(Error::line("ERR T-Digest: error parsing rank"))?;
        if rank < 0 {
            return Err(Error::line("ERR T-Digest: rank needs to be non negative").into());
        }
        ranks.push(rank);
    }
    let view = digest.view();
    let (weight, (min, max)) = (digest.weight(), digest.bounds());
    reply.array(ranks.len());
    for rank in ranks {
        reply.double(match rank {
            _ if weight == 0 => f64::NAN,
            0 if reversed => max,
            0 => min,
            rank if rank >= weight && reversed => f64::NEG_INFINITY,
            rank if rank >= weight => f64::INFINITY,
            rank => {
                let rank = if reversed { weight - rank - 1 } else { rank };
                value_at(&view, rank as f64 / weight as f64, weight, min)
            }
        });
    }
    Ok(())
}

/// Returns the value at a quantile; the least before the first value.
fn value_at(view: &View, quantile: f64, weight: i64, min: f64) -> f64 {
    if quantile * (weight as f64) < 1.0 && weight > 1 {
        return min;
    }
    view.quantiles(&[quantile])[0]
}

/// TDIGEST.BYRANK key rank [rank …]
pub(crate) fn tdigest_byrank(
    ctx: &mut Ctx<'_>,
    args: Args<'_>,
    reply: &mut Reply<'_>,
) -> Result<(), Failure> {
    write_values(ctx, args, false, reply)
}

/// TDIGEST.BYREVRANK key reverse_rank [reverse_rank …]
pub(crate) fn tdigest_byrevrank(
    ctx: &mut Ctx<'_>,
    args: Args<'_>,
    reply: &mut Reply<'_>,
) -> Result<(), Failure> {
    write_values(ctx, args, true, reply)
}

/// TDIGEST.TRIMMED_MEAN key low_cut_quantile high_cut_quantile
pub(crate) fn tdigest_trimmed_mean(
    ctx: &mut Ctx<'_>,
    args: Args<'_>,
    reply: &mut Reply<'_>,
) -> Result<(), Failure> {
    let digest = existing::<TDigest>(ctx, &args[1], MISSING)?;
    let low = number::parse_f64(&args[2]).ok_or(Error::line(
        "ERR T-Digest: error parsing low_cut_percentile",
    ))?;
    let high = number::parse_f64(&args[3]).ok_or(Error::line(
        "ERR T-Digest: error parsing high_cut_percentile",
    ))?;
    let range = 0.0..=1.0;
    if !range.contains(&low) || !range.contains(&high) {
        return Err(Error::line(
            "ERR T-Digest: low_cut_percentile and high_cut_percentile should be in [0,1]",
        )
        .into());
    }
    if low >= high {
        return Err(Error::line(
            "ERR T-Digest: low_cut_percentile should be lower than high_cut_percentile",
        )
        .into());
    }
    reply.double(digest.view().trimmed_mean(low, high));
    Ok(())
}

/// TDIGEST.INFO key
pub(crate) fn tdigest_info(
    ctx: &mut Ctx<'_>,
    args: Args<'_>,
    reply: &mut Reply<'_>,
) -> Result<(), Failure> {
    /// Bytes that RedisBloom counts for a centroid, which it has room for from the start, and for the rest.
    const CENTROID_BYTES: usize = 16;
    const REST_BYTES: usize = 8;
    let digest = existing::<TDigest>(ctx, &args[1], MISSING)?;
    let (unmerged, unmerged_weight) = digest.unmerged();
    let capacity = digest.capacity();
    let bytes = REST_BYTES + capacity * CENTROID_BYTES;
    reply.map(9);
    field(reply, "Compression", digest.compression());
    field(reply, "Capacity", capacity as u64);
    let merged = digest.centroids().len() - unmerged;
    field(reply, "Merged nodes", merged as u64);
    field(reply, "Unmerged nodes", unmerged as u64);
    let merged_weight = digest.weight() - unmerged_weight;
    field(reply, "Merged weight", merged_weight as u64);
    field(reply, "Unmerged weight", unmerged_weight as u64);
    field(reply, "Observations", digest.weight() as u64);
    field(reply, "Total compressions", digest.compressions());
    field(reply, "Memory usage", bytes as u64);
    Ok(())
}

#[cfg(test)]
mod tests {
    use crate::testing::TestDb;

    #[test]
    fn numbers_that_are_none_change_nothing() {
        let mut db = TestDb::new();
        db.words("TDIGEST.CREATE d");
        db.script(&[
            (
                "TDIGEST.ADD d 1 nan",
                "-ERR T-Digest: error parsing val parameter",
            ),
            (
                "TDIGEST.ADD d 1 inf",
                "-ERR T-Digest: val parameter needs to be a finite number",
            ),
            ("TDIGEST.MIN d", "$3|nan"),
            ("TDIGEST.ADD d 1 2 3", "+OK"),
            ("TDIGEST.QUANTILE d 0.5 0 1", "*3|$1|2|$1|1|$1|3"),
            ("TDIGEST.RANK d 0 1 2 9", "*4|:-1|:0|:1|:3"),
            ("TDIGEST.REVRANK d 0 1 2 9", "*4|:3|:2|:1|:-1"),
            ("TDIGEST.BYRANK d 0 1 2 3", "*4|$1|1|$1|2|$1|3|$3|inf"),
            ("TDIGEST.BYREVRANK d 0 1 2 3", "*4|$1|3|$1|2|$1|1|$4|-inf"),
            ("TDIGEST.TRIMMED_MEAN d 0 1", "$1|2"),
            (
                "TDIGEST.CREATE e COMPRESSION 100001",
                "-ERR T-Digest: allocation failed",
            ),
        ]);
    }

    #[test]
    fn a_merge_takes_the_largest_compression_unless_one_is_asked_for() {
        let mut db = TestDb::new();
        db.script(&[
            ("TDIGEST.CREATE a COMPRESSION 50", "+OK"),
            ("TDIGEST.CREATE b COMPRESSION 200", "+OK"),
            ("TDIGEST.ADD a 1 2", "+OK"),
            ("TDIGEST.ADD b 3", "+OK"),
            ("TDIGEST.MERGE c 2 a b", "+OK"),
            ("TDIGEST.MERGE a 1 b", "+OK"),
            ("TDIGEST.MAX a", "$1|3"),
            ("TDIGEST.MERGE d 1 b COMPRESSION 10", "+OK"),
        ]);
        for (key, compression) in [("a", 50), ("c", 200), ("d", 10)] {
            let info = db.words(&format!("TDIGEST.INFO {key}"));
            let start = format!("*18|+Compression|:{compression}|");
            assert!(info.starts_with(&start), "{info}");
        }
    }
}
