//! Vector sets: the commands that Redis has in its module `vectorset`.
//!
//! As there, each checks its own number of arguments, names itself in upper case (`VADD`) in errors, and reports no
//! keyspace event of its own; and each that may write touches the key's watchers, even if nothing changes.

use redline_keyspace::{Expiry, Found, Trace};
use redline_resp::{Args, Proto, Reply};
use redline_spec::CommandId;
use redline_types::{
    DataType, VectorSet, number,
    vector::{
        self, DIMENSIONS_MAX, Element, LINKS_DEFAULT, LINKS_MAX, LINKS_MIN, Search, Shape,
        filter::{Filter, SyntaxError},
        project::Projection,
        quantize::{self, Quantization},
    },
};

use crate::{
    Ctx, Error, Failure,
    element::draw,
    word,
    words::{Words, integer_in},
};

/// Number of candidates in the search for the neighbours of a new element, unless VADD gives one.
const EF_TO_ADD: usize = 200;
/// Largest such number that VADD takes.
const EF_TO_ADD_MAX: i64 = 1_000_000;
/// Number of candidates in a search of VSIM. A larger number than there are elements is valid, and has no effect.
const EF_TO_SEARCH: usize = 100;
/// Default number of elements that VSIM returns.
const COUNT_DEFAULT: usize = 10;
/// Number of elements that a search with a filter looks at for each one wanted.
const FILTER_EFFORT_PER_ELEMENT: usize = 100;
/// Largest distance of two directions.
const EPSILON_DEFAULT: f32 = 2.0;

const INVALID_EF: Error = Error::line("ERR invalid EF");
const INVALID_VECTOR: Error = Error::line("ERR invalid vector specification");

/// VADD key [REDUCE dim] FP32 blob | VALUES num value … element [CAS] [NOQUANT | Q8 | BIN] [EF n] [SETATTR json] [M n]
pub(crate) fn vadd(
    ctx: &mut Ctx<'_>,
    args: Args<'_>,
    reply: &mut Reply<'_>,
) -> Result<(), Failure> {
    let mut words = Words::new(CommandId::Vadd, &args, 2);
    if words.len() < 3 {
        return Err(words.wrong_arity().into());
    }
    let given = GivenVector::parse(&mut words)?;
    let element = words.next().ok_or_else(|| words.wrong_arity())?;
    let options = AddOptions::parse(words)?;
    let key = &args[1];
    ctx.keys.touch_watchers(key);
    let found = ctx.keys.find(key, Trace::Write);
    let found = found.map(Found::collection::<VectorSet>).transpose()?;
    let stored = found.map(|set| options.fit(&given, set)).transpose()?;
    let mut rng = ctx.keys.local.rng.clone();
    let mut random = || rng.u64(..);
    let is_new = match stored {
        Some(vector) => {
            let updated = ctx.keys.write::<VectorSet, _>(key, |set, _| {
                set.add(
                    element,
                    &vector,
                    options.attributes,
                    options.ef,
                    &mut random,
                )
            })?;
            updated == Some(true)
        }
        None => {
            let shape = options.shape_for(&given);
            let vector = project(&shape, given.vector);
            let mut set = VectorSet::new(shape);
            set.add(
                element,
                &vector,
                options.attributes,
                options.ef,
                &mut random,
            );
            ctx.keys.insert(key, set, Expiry::Clear);
            true
        }
    };
    ctx.keys.local.rng = rng;
    ctx.keys.count_changes(1);
    if !options.cas.is_empty() {
        // Redis ends when it loads a file in which a call has it.
        let told = (0..args.len()).filter(|at| !options.cas.contains(at));
        ctx.keys.propagate(told.map(|at| word(args, at)));
    }
    reply.bool(is_new);
    Ok(())
}

/// Vector among the arguments.
struct GivenVector {
    vector: Vec<f32>,
    /// Number of dimensions to which it is projected.
    reduce: Option<usize>,
}

impl GivenVector {
    fn parse(words: &mut Words<'_>) -> Result<GivenVector, Error> {
        const COMPONENT_BYTES: usize = size_of::<f32>();
        let may_reduce = words.id() == CommandId::Vadd;
        let mut reduce = None;
        if may_reduce
            && words.len() > 2
            && let Some(outputs) = words.value("REDUCE")
        {
            reduce = Some(positive(outputs, INVALID_VECTOR)?);
        }
        let vector: Vec<f32> = if let Some(bytes) = words.value("FP32") {
            let components = bytes.len() / COMPONENT_BYTES;
            if bytes.len() % COMPONENT_BYTES != 0 || !(1..=DIMENSIONS_MAX).contains(&components) {
                return Err(INVALID_VECTOR);
            }
            quantize::floats(bytes).collect()
        } else if let Some(count) = words.value("VALUES") {
            let count = integer_in(count, 1..=DIMENSIONS_MAX as i64, INVALID_VECTOR)?;
            let values = words.take_args(count as usize).ok_or(INVALID_VECTOR)?;
            let values = values
                .iter()
                .map(|x| number::parse_f64(x).map(|x| x as f32));
            values.collect::<Option<_>>().ok_or(INVALID_VECTOR)?
        } else {
            return Err(INVALID_VECTOR);
        };
        if reduce.is_some_and(|outputs| Projection::new(vector.len(), outputs).is_none()) {
            return Err(INVALID_VECTOR);
        }
        Ok(GivenVector { vector, reduce })
    }
}

struct AddOptions<'a> {
    quantization: Quantization,
    ef: usize,
    links: usize,
    attributes: Option<&'a [u8]>,
    /// Positions of CAS in the call.
    cas: Vec<usize>,
}

impl<'a> AddOptions<'a> {
    fn parse(mut words: Words<'a>) -> Result<AddOptions<'a>, Error> {
        const LINKS: std::ops::RangeInclusive<i64> = LINKS_MIN as i64..=LINKS_MAX as i64;
        let mut options = AddOptions {
            quantization: Quantization::default(),
            ef: EF_TO_ADD,
            links: LINKS_DEFAULT,
            attributes: None,
            cas: Vec::new(),
        };
        while !words.is_empty() {
            let at = words.at();
            if words.flag("CAS") {
                // An element is always added at once: no other thread does it.
                options.cas.push(at);
            } else if let Some(quantization) = words.one_of(&[
                ("NOQUANT", Quantization::None),
                ("Q8", Quantization::Int8),
                ("BIN", Quantization::Binary),
            ]) {
                options.quantization = quantization;
            } else if let Some(ef) = words.value("EF") {
                options.ef = integer_in(ef, 1..=EF_TO_ADD_MAX, INVALID_EF)? as usize;
            } else if let Some(links) = words.value("M") {
                options.links = integer_in(links, LINKS, Error::line("ERR invalid M"))? as usize;
            } else if let Some(attributes) = words.value("SETATTR") {
                options.attributes = Some(attributes);
            } else {
                return Err(Error::line("ERR invalid option after element"));
            }
        }
        Ok(options)
    }

    /// Returns the vector as an existing set stores it.
    fn fit(&self, given: &GivenVector, set: &VectorSet) -> Result<Vec<f32>, Error> {
        let shape = set.shape();
        if shape.quantization != self.quantization {
            return Err(Error::line(
                "ERR asked quantization mismatch with existing vector set",
            ));
        }
        if shape.links != self.links {
            return Err(Error::line(
                "ERR asked M value mismatch with existing vector set",
            ));
        }
        let fits = match &shape.projection {
            None => given.vector.len() == shape.dimensions,
            Some(_) => given.reduce == Some(shape.dimensions),
        };
        if !fits {
            return Err(dimension_mismatch(given.vector.len(), set));
        }
        match &shape.projection {
            None if given.reduce.is_some() => Err(Error::line(
                "ERR cannot add projection to existing set without projection",
            )),
            Some(projection) if projection.inputs() != given.vector.len() => {
                Err(input_mismatch(given.vector.len(), projection))
            }
            _ => Ok(project(shape, given.vector.clone())),
        }
    }

    fn shape_for(&self, given: &GivenVector) -> Shape {
        let inputs = given.vector.len();
        Shape {
            dimensions: given.reduce.unwrap_or(inputs),
            quantization: self.quantization,
            links: self.links,
            projection: given
                .reduce
                .and_then(|outputs| Projection::new(inputs, outputs)),
        }
    }
}

fn project(shape: &Shape, vector: Vec<f32>) -> Vec<f32> {
    match &shape.projection {
        Some(projection) => projection.apply(&vector),
        None => vector,
    }
}

fn dimension_mismatch(given: usize, set: &VectorSet) -> Error {
    let has = set.shape().dimensions;
    Error::Line(format!("ERR Vector dimension mismatch - got {given} but set has {has}").into())
}

fn input_mismatch(given: usize, projection: &Projection) -> Error {
    let inputs = projection.inputs();
    Error::Line(
        format!(
            "ERR Input dimension mismatch for projection - got {given} but projection expects {inputs}"
        )
        .into(),
    )
}

/// VSIM key ELE element | FP32 blob | VALUES num value … [WITHSCORES] [WITHATTRIBS] [COUNT n] [EPSILON distance] [EF n]
/// [FILTER expression] [FILTER-EF n] [TRUTH] [NOTHREAD]
pub(crate) fn vsim(
    ctx: &mut Ctx<'_>,
    args: Args<'_>,
    reply: &mut Reply<'_>,
) -> Result<(), Failure> {
    if args.len() < 4 {
        return Err(Error::wrong_arity("VSIM").into());
    }
    let Some(set) = ctx.keys.read::<VectorSet>(&args[1])? else {
        reply.array(0);
        return Ok(());
    };
    let mut words = Words::new(CommandId::Vsim, &args, 2);
    let vector = query(set, &mut words)?;
    let options = SearchOptions::parse(words)?;
    let search = Search {
        ef: options.ef.max(options.count).min(set.len()),
        filter: options.filter.as_ref(),
        effort: options.effort,
        exact: options.exact,
    };
    let mut hits = set.search(&vector, search);
    hits.truncate(options.count);
    let too_far = |hit: &vector::Hit<'_>| hit.distance / 2.0 > options.epsilon;
    let given = hits.iter().position(too_far).unwrap_or(hits.len());
    hits.truncate(given);
    write_hits(reply, &hits, options.with_scores, options.with_attributes);
    Ok(())
}

/// Takes the vector to search for.
fn query(set: &VectorSet, words: &mut Words<'_>) -> Result<Vec<f32>, Error> {
    if let Some(name) = words.value("ELE") {
        let element = set.get(name);
        let element = element.ok_or(Error::line("ERR element not found in set"))?;
        return Ok(element.vector());
    }
    let given = GivenVector::parse(words)?;
    let shape = set.shape();
    let len = given.vector.len();
    if len == shape.dimensions {
        return Ok(given.vector);
    }
    match &shape.projection {
        None => Err(dimension_mismatch(len, set)),
        Some(projection) if projection.inputs() != len => Err(input_mismatch(len, projection)),
        Some(_) => Ok(project(shape, given.vector)),
    }
}

struct SearchOptions {
    with_scores: bool,
    with_attributes: bool,
    count: usize,
    epsilon: f32,
    ef: usize,
    filter: Option<Filter>,
    effort: usize,
    exact: bool,
}

impl SearchOptions {
    fn parse(mut words: Words<'_>) -> Result<SearchOptions, Error> {
        let mut options = SearchOptions {
            with_scores: false,
            with_attributes: false,
            count: COUNT_DEFAULT,
            epsilon: EPSILON_DEFAULT,
            ef: EF_TO_SEARCH,
            filter: None,
            effort: 0,
            exact: false,
        };
        while !words.is_empty() {
            if words.flag("WITHSCORES") {
                options.with_scores = true;
            } else if words.flag("WITHATTRIBS") {
                options.with_attributes = true;
            } else if words.flag("TRUTH") {
                options.exact = true;
            } else if words.flag("NOTHREAD") {
                // A search always runs on the worker that read the request.
            } else if let Some(count) = words.value("COUNT") {
                options.count = positive(count, Error::line("ERR invalid COUNT"))?;
            } else if let Some(epsilon) = words.value("EPSILON") {
                let epsilon = number::parse_f64(epsilon).filter(|epsilon| *epsilon > 0.0);
                options.epsilon = epsilon.ok_or(Error::line("ERR invalid EPSILON"))? as f32;
            } else if let Some(ef) = words.value("EF") {
                options.ef = positive(ef, INVALID_EF)?;
            } else if let Some(effort) = words.value("FILTER-EF") {
                options.effort = positive(effort, Error::line("ERR invalid FILTER-EF"))?;
            } else if let Some(filter) = words.value("FILTER") {
                options.filter = Some(compile(filter)?);
            } else {
                return Err(Error::line("ERR syntax error in VSIM command"));
            }
        }
        if options.effort == 0 {
            options.effort = options.count.saturating_mul(FILTER_EFFORT_PER_ELEMENT);
        }
        Ok(options)
    }
}

fn compile(filter: &[u8]) -> Result<Filter, Error> {
    Filter::compile(filter).map_err(|SyntaxError(at)| {
        let before = "ERR syntax error in FILTER expression near: ";
        Error::quoting(before, &filter[at..], "")
    })
}

fn write_hits(
    reply: &mut Reply<'_>,
    hits: &[vector::Hit<'_>],
    with_scores: bool,
    with_attributes: bool,
) {
    let parts = usize::from(with_scores) + usize::from(with_attributes);
    let maps = reply.proto() == Proto::Resp3;
    match (maps, parts) {
        (true, 1..) => reply.map(hits.len()),
        _ => reply.array(hits.len() * (1 + parts)),
    }
    for hit in hits {
        reply.bulk(hit.element);
        if maps && parts == 2 {
            reply.array(2);
        }
        if with_scores {
            reply.double(similarity(hit.distance));
        }
        if with_attributes {
            match hit.attributes {
                Some(attributes) => reply.bulk(attributes),
                None => reply.null(),
            }
        }
    }
}

/// Returns 1 for the same direction, 0 for the opposite.
fn similarity(distance: f32) -> f64 {
    1.0 - f64::from(distance) / 2.0
}

/// Reads a positive number.
fn positive(word: &[u8], error: Error) -> Result<usize, Error> {
    integer_in(word, 1.., error).map(|number| number as usize)
}

/// VREM key element
pub(crate) fn vrem(
    ctx: &mut Ctx<'_>,
    args: Args<'_>,
    reply: &mut Reply<'_>,
) -> Result<(), Failure> {
    count_words(args, 3, "VREM")?;
    let key = &args[1];
    ctx.keys.touch_watchers(key);
    let removed = ctx
        .keys
        .write::<VectorSet, _>(key, |set, _| set.remove(&args[2]))?;
    // The removal of an emptied key is no event here.
    ctx.keys.swap_emptied(false);
    if removed == Some(true) {
        ctx.keys.count_changes(1);
    }
    reply.bool(removed == Some(true));
    Ok(())
}

/// VSETATTR key element json
pub(crate) fn vsetattr(
    ctx: &mut Ctx<'_>,
    args: Args<'_>,
    reply: &mut Reply<'_>,
) -> Result<(), Failure> {
    count_words(args, 4, "VSETATTR")?;
    let key = &args[1];
    ctx.keys.touch_watchers(key);
    let attributes = Some(&args[3]).filter(|attributes| !attributes.is_empty());
    let set = ctx
        .keys
        .write::<VectorSet, _>(key, |set, _| set.set_attributes(&args[2], attributes))?;
    if set == Some(true) {
        ctx.keys.count_changes(1);
    }
    reply.bool(set == Some(true));
    Ok(())
}

/// VCARD key
pub(crate) fn vcard(
    ctx: &mut Ctx<'_>,
    args: Args<'_>,
    reply: &mut Reply<'_>,
) -> Result<(), Failure> {
    count_words(args, 2, "VCARD")?;
    let set = ctx.keys.read::<VectorSet>(&args[1])?;
    reply.integer(set.map_or(0, |set| set.len() as i64));
    Ok(())
}

/// VDIM key
pub(crate) fn vdim(
    ctx: &mut Ctx<'_>,
    args: Args<'_>,
    reply: &mut Reply<'_>,
) -> Result<(), Failure> {
    count_words(args, 2, "VDIM")?;
    let set = ctx.keys.read::<VectorSet>(&args[1])?;
    let set = set.ok_or(Error::line("ERR key does not exist"))?;
    reply.integer(set.shape().dimensions as i64);
    Ok(())
}

/// VISMEMBER key element
pub(crate) fn vismember(
    ctx: &mut Ctx<'_>,
    args: Args<'_>,
    reply: &mut Reply<'_>,
) -> Result<(), Failure> {
    count_words(args, 3, "VISMEMBER")?;
    reply.bool(element(ctx, args)?.is_some());
    Ok(())
}

/// VGETATTR key element
pub(crate) fn vgetattr(
    ctx: &mut Ctx<'_>,
    args: Args<'_>,
    reply: &mut Reply<'_>,
) -> Result<(), Failure> {
    count_words(args, 3, "VGETATTR")?;
    match element(ctx, args)?.and_then(|element| element.attributes()) {
        Some(attributes) => reply.bulk(attributes),
        None => reply.null(),
    }
    Ok(())
}

/// VEMB key element [RAW]
pub(crate) fn vemb(
    ctx: &mut Ctx<'_>,
    args: Args<'_>,
    reply: &mut Reply<'_>,
) -> Result<(), Failure> {
    let mut words = Words::new(CommandId::Vemb, &args, 3);
    if args.len() < 3 {
        return Err(words.wrong_arity().into());
    }
    while !words.is_empty() {
        if !words.flag("RAW") {
            return Err(Error::line("ERR invalid option").into());
        }
    }
    let Some(set) = ctx.keys.read::<VectorSet>(&args[1])? else {
        reply.null();
        return Ok(());
    };
    let Some(element) = set.get(&args[2]) else {
        reply.null();
        return Ok(());
    };
    if args.len() == 3 {
        let vector = element.vector();
        reply.array(vector.len());
        vector.into_iter().for_each(|x| reply.double(x.into()));
        return Ok(());
    }
    let (quantization, stored) = (set.shape().quantization, element.stored());
    let has_range = quantization == Quantization::Int8;
    reply.array(3 + usize::from(has_range));
    reply.simple(quantization.name());
    let mut bytes = Vec::new();
    stored.write_bytes(&mut bytes);
    reply.bulk(&bytes);
    reply.double(stored.norm.into());
    if has_range {
        reply.double(stored.range.into());
    }
    Ok(())
}

/// VLINKS key element [WITHSCORES]
pub(crate) fn vlinks(
    ctx: &mut Ctx<'_>,
    args: Args<'_>,
    reply: &mut Reply<'_>,
) -> Result<(), Failure> {
    let with_scores = Words::new(CommandId::Vlinks, &args, 3).flag("WITHSCORES");
    count_words(args, if with_scores { 4 } else { 3 }, "VLINKS")?;
    let Some(element) = element(ctx, args)? else {
        reply.null();
        return Ok(());
    };
    reply.array(element.level() + 1);
    for layer in (0..=element.level()).rev() {
        let links = element.links(layer);
        if with_scores {
            reply.map(links.len());
        } else {
            reply.array(links.len());
        }
        for other in links {
            reply.bulk(other.name());
            if with_scores {
                // In single precision, as in Redis.
                reply.double((similarity(element.distance(other)) as f32).into());
            }
        }
    }
    Ok(())
}

/// VINFO key
pub(crate) fn vinfo(
    ctx: &mut Ctx<'_>,
    args: Args<'_>,
    reply: &mut Reply<'_>,
) -> Result<(), Failure> {
    count_words(args, 2, "VINFO")?;
    let Some(set) = ctx.keys.read::<VectorSet>(&args[1])? else {
        reply.null_array();
        return Ok(());
    };
    let shape = set.shape();
    let inputs = shape.projection.as_ref().map_or(0, Projection::inputs);
    let facts = [
        ("hnsw-m", shape.links as u64),
        ("vector-dim", shape.dimensions as u64),
        ("projection-input-dim", inputs as u64),
        ("size", set.len() as u64),
        ("max-level", set.level_max() as u64),
        ("attributes-count", set.attributed() as u64),
        ("vset-uid", set.id()),
        ("hnsw-max-node-uid", set.last_member()),
    ];
    reply.map(1 + facts.len());
    reply.simple("quant-type");
    reply.simple(shape.quantization.name());
    for (name, number) in facts {
        reply.simple(name);
        reply.integer(number as i64);
    }
    Ok(())
}

/// VRANDMEMBER key [count]
pub(crate) fn vrandmember(
    ctx: &mut Ctx<'_>,
    args: Args<'_>,
    reply: &mut Reply<'_>,
) -> Result<(), Failure> {
    const NOT_INTEGER: Error = Error::line("ERR COUNT value is not an integer");
    if !(2..=3).contains(&args.len()) {
        return Err(Error::wrong_arity("VRANDMEMBER").into());
    }
    let count = args.get(2).map(|count| integer_in(count, .., NOT_INTEGER));
    let count = count.transpose()?;
    if count == Some(0) {
        reply.array(0);
        return Ok(());
    }
    if count == Some(i64::MIN) {
        // Redis counts down from this number until its process ends.
        return Err(Error::OutOfRange.into());
    }
    let bytes_max = ctx.bulk_bytes_max;
    let mut rng = ctx.keys.local.rng.clone();
    let random = &mut || rng.u64(..);
    let set = ctx.keys.read::<VectorSet>(&args[1])?;
    match (count, set) {
        (None, set) => match set.and_then(|set| set.random_element(random)) {
            Some(element) => reply.bulk(element),
            None => reply.null(),
        },
        (Some(_), None) => reply.array(0),
        (Some(count), Some(set)) => {
            let wanted = usize::try_from(count.unsigned_abs()).unwrap_or(usize::MAX);
            if count < 0 {
                reply.array(wanted);
                draw(reply, wanted, bytes_max, |reply, portion, bound| {
                    for _ in 0..portion {
                        if !bound.leaves_room(reply) {
                            break;
                        }
                        let element = set.random_element(random);
                        reply.bulk(element.expect("no set that a key holds is empty"));
                    }
                })?;
            } else {
                let given = wanted.min(set.len());
                reply.array(given);
                set.random_distinct_elements(given, random, |element| reply.bulk(element));
            }
        }
    }
    ctx.keys.local.rng = rng;
    Ok(())
}

fn count_words(args: Args<'_>, wanted: usize, command: &str) -> Result<(), Error> {
    if args.len() == wanted {
        Ok(())
    } else {
        Err(Error::wrong_arity(command))
    }
}

/// Returns the element that a call names after its key.
fn element<'a>(ctx: &'a Ctx<'_>, args: Args<'_>) -> Result<Option<Element<'a>>, Error> {
    let set = ctx.keys.read::<VectorSet>(&args[1])?;
    Ok(set.and_then(|set| set.get(&args[2])))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::TestDb;
    use redline_resp::ArgsBuf;

    /// Replies of Redis 8.2.3.
    const SCRIPT: &[(&str, &str)] = &[
        ("VADD v VALUES 2 1 2 a", ":1"),
        ("VADD v VALUES 2 1 2 a", ":0"),
        ("VADD v VALUES 2 2 1 b SETATTR {\"x\":1}", ":1"),
        ("VADD v VALUES 2 0.5 -1 c CAS Q8 M 16 EF 1000000", ":1"),
        ("VCARD v", ":3"),
        ("VCARD none", ":0"),
        ("VDIM v", ":2"),
        ("VDIM none", "-ERR key does not exist"),
        ("VEMB v a", "*2|$17|0.992125928401947|$1|2"),
        ("VEMB v nobody", "$-1"),
        ("VEMB v a foo", "-ERR invalid option"),
        (
            "VEMB v a RAW",
            "*4|+int8|$2|?\u{7f}|$15|2.2360680103302|$18|0.8944271802902222",
        ),
        ("VGETATTR v b", "$7|{\"x\":1}"),
        ("VGETATTR v a", "$-1"),
        ("VSETATTR v a {}", ":1"),
        ("VSETATTR v nobody {}", ":0"),
        ("VSETATTR none a {}", ":0"),
        ("VISMEMBER v a", ":1"),
        ("VISMEMBER none a", ":0"),
        ("VSIM v ELE a COUNT 1", "*1|$1|a"),
        (
            "VSIM v VALUES 2 1 2.1 WITHSCORES TRUTH NOTHREAD COUNT 1",
            "*2|$1|a|$18|0.9983995854854584",
        ),
        (
            "VSIM v VALUES 2 3 1 WITHATTRIBS COUNT 1",
            "*2|$1|b|$7|{\"x\":1}",
        ),
        ("VSIM v VALUES 2 3 1 EPSILON 0.15", "*2|$1|b|$1|a"),
        ("VSIM v VALUES 2 3 1 FILTER .x", "*1|$1|b"),
        (
            "VSIM v VALUES 2 3 1 FILTER .x+",
            "-ERR syntax error in FILTER expression near: .x+",
        ),
        ("VSIM v ELE nobody", "-ERR element not found in set"),
        ("VSIM none foo bar", "*0"),
        ("VSIM v foo bar", "-ERR invalid vector specification"),
        (
            "VSIM v VALUES 3 1 1 1",
            "-ERR Vector dimension mismatch - got 3 but set has 2",
        ),
        ("VSIM v ELE a COUNT 0", "-ERR invalid COUNT"),
        ("VSIM v ELE a EPSILON nan", "-ERR invalid EPSILON"),
        ("VSIM v ELE a EF 0", "-ERR invalid EF"),
        ("VSIM v ELE a FILTER-EF 0", "-ERR invalid FILTER-EF"),
        ("VSIM v ELE a COUNT", "-ERR syntax error in VSIM command"),
        (
            "VSIM v",
            "-ERR wrong number of arguments for 'VSIM' command",
        ),
        ("VLINKS v nobody", "$-1"),
        (
            "VLINKS v a foo",
            "-ERR wrong number of arguments for 'VLINKS' command",
        ),
        ("VINFO none", "*-1"),
        ("VRANDMEMBER none", "$-1"),
        ("VRANDMEMBER none 2", "*0"),
        ("VRANDMEMBER v 0", "*0"),
        ("VRANDMEMBER v x", "-ERR COUNT value is not an integer"),
        (
            "VADD v VALUES 3 1 2 3 d",
            "-ERR Vector dimension mismatch - got 3 but set has 2",
        ),
        (
            "VADD v VALUES 2 1 2 d NOQUANT",
            "-ERR asked quantization mismatch with existing vector set",
        ),
        (
            "VADD v VALUES 2 1 2 d M 8",
            "-ERR asked M value mismatch with existing vector set",
        ),
        (
            "VADD v REDUCE 1 VALUES 2 1 2 d",
            "-ERR cannot add projection to existing set without projection",
        ),
        ("VADD v VALUES 2 1 2 d M 3", "-ERR invalid M"),
        ("VADD v VALUES 2 1 2 d EF 0", "-ERR invalid EF"),
        (
            "VADD v VALUES 2 1 2 d EF",
            "-ERR invalid option after element",
        ),
        (
            "VADD v VALUES 2 1 nan d",
            "-ERR invalid vector specification",
        ),
        ("VADD v VALUES 9 1 2 d", "-ERR invalid vector specification"),
        ("VADD v FP32 abc d", "-ERR invalid vector specification"),
        (
            "VADD v FP32 abcdefgh",
            "-ERR wrong number of arguments for 'VADD' command",
        ),
        (
            "VADD v VALUES 2 1 2",
            "-ERR wrong number of arguments for 'VADD' command",
        ),
        ("TYPE v", "+vectorset"),
        ("COPY v w", "-ERR not supported for this module key"),
        ("VREM v a", ":1"),
        ("VREM v a", ":0"),
        ("VREM v b", ":1"),
        ("VREM v c", ":1"),
        ("EXISTS v", ":0"),
        ("VREM v c", ":0"),
    ];

    #[test]
    fn replies_in_resp2() {
        TestDb::new().script(SCRIPT);
    }

    #[test]
    fn replies_in_resp3() {
        let mut db = TestDb::new();
        db.words("VADD v VALUES 2 1 2 a");
        db.words("VADD v VALUES 2 2 1 b SETATTR {\"x\":1}");
        db.proto = Proto::Resp3;
        db.script(&[
            ("VADD v VALUES 2 1 2 a", "#f"),
            ("VISMEMBER v a", "#t"),
            ("VEMB v a", "*2|,0.992125928401947|,2"),
            ("VEMB v nobody", "_"),
            ("VINFO none", "_"),
            ("VSIM v ELE a", "*2|$1|a|$1|b"),
            (
                "VSIM v ELE a WITHSCORES",
                "%2|$1|a|,0.9992150366306305|$1|b|,0.8974743187427521",
            ),
            ("VSIM v ELE a WITHATTRIBS", "%2|$1|a|_|$1|b|$7|{\"x\":1}"),
            (
                "VSIM v ELE a WITHATTRIBS WITHSCORES",
                "%2|$1|a|*2|,0.9992150366306305|_|$1|b|*2|,0.8974743187427521|$7|{\"x\":1}",
            ),
            ("VREM v a", "#t"),
        ]);
        let info = db.words("VINFO v");
        assert!(info.starts_with(
            "%9|+quant-type|+int8|+hnsw-m|:16|+vector-dim|:2|+projection-input-dim|:0|+size|:1|"
        ));
        assert!(info.ends_with("|+hnsw-max-node-uid|:3"), "{info}");
    }

    #[test]
    fn links_are_told_with_scores_of_single_precision() {
        let mut db = TestDb::new();
        // Of as many lots as there are elements one may be high enough for a layer more: the last one is layer 0.
        db.words("VADD v VALUES 3 1 -2 0 a BIN");
        db.words("VADD v VALUES 3 1 2 0 b BIN");
        let layer = "*2|$1|b|$18|0.6666666269302368";
        assert!(db.words("VLINKS v a WITHSCORES").ends_with(layer));
        assert!(db.words("VLINKS v a").ends_with("*1|$1|b"));
        db.proto = Proto::Resp3;
        let layer = "%1|$1|b|,0.6666666269302368";
        assert!(db.words("VLINKS v a withscores").ends_with(layer));
    }

    #[test]
    fn vectors_are_projected_where_the_first_one_was() {
        TestDb::new().script(&[
            ("VADD v REDUCE 3 VALUES 5 1 2 3 4 5 a NOQUANT", ":1"),
            (
                "VEMB v a",
                "*3|$17|6.708203315734863|$18|1.3416407108306885|$19|0.44721364974975586",
            ),
            ("VDIM v", ":3"),
            (
                "VADD v VALUES 5 1 2 3 4 5 b NOQUANT",
                "-ERR Vector dimension mismatch - got 5 but set has 3",
            ),
            (
                "VADD v VALUES 3 1 2 3 b NOQUANT",
                "-ERR Vector dimension mismatch - got 3 but set has 3",
            ),
            (
                "VADD v REDUCE 3 VALUES 4 1 2 3 4 b NOQUANT",
                "-ERR Input dimension mismatch for projection - got 4 but projection expects 5",
            ),
            ("VSIM v VALUES 3 1 2 3", "*1|$1|a"),
            ("VSIM v VALUES 5 1 2 3 4 5", "*1|$1|a"),
            (
                "VSIM v VALUES 4 1 2 3 4",
                "-ERR Input dimension mismatch for projection - got 4 but projection expects 5",
            ),
            (
                "VADD w REDUCE 65537 VALUES 1 1 a",
                "-ERR invalid vector specification",
            ),
            (
                "VADD w REDUCE 0 VALUES 1 1 a",
                "-ERR invalid vector specification",
            ),
        ]);
    }

    #[test]
    fn another_type_is_refused_after_the_arguments() {
        let mut db = TestDb::new();
        db.words("SET s v");
        let wrong = "-WRONGTYPE Operation against a key holding the wrong kind of value";
        db.script(&[
            ("VADD s VALUES 1 1 a", wrong),
            (
                "VADD s VALUES 1 1 a foo",
                "-ERR invalid option after element",
            ),
            ("VREM s a", wrong),
            ("VSIM s foo bar baz", wrong),
            ("VDIM s", wrong),
            ("VCARD s", wrong),
            ("VEMB s a", wrong),
            ("VEMB s a foo", "-ERR invalid option"),
            ("VLINKS s a", wrong),
            ("VINFO s", wrong),
            ("VSETATTR s a x", wrong),
            ("VGETATTR s a", wrong),
            ("VRANDMEMBER s", wrong),
            ("VRANDMEMBER s 0", "*0"),
            ("VISMEMBER s a", wrong),
        ]);
    }

    #[test]
    fn changes_are_counted_and_no_event_is_reported() {
        let mut db = TestDb::new();
        for line in [
            "VADD v VALUES 1 1 a",
            "VADD v VALUES 1 2 a",
            "VSETATTR v a x",
            "VREM v a",
        ] {
            db.words(line);
            assert_eq!(db.changes, 1, "{line}");
        }
        assert!(db.events().is_empty());
        for line in ["VREM v a", "VSETATTR v a x", "VADD v VALUES 1 nan a"] {
            db.words(line);
            assert_eq!(db.changes, 0, "{line}");
        }
    }

    #[test]
    fn dumped_sets_are_restored() {
        let mut db = TestDb::new();
        db.words("VADD v REDUCE 2 VALUES 3 1 2 3 a NOQUANT M 5");
        db.words("VADD v REDUCE 2 VALUES 3 3 2 1 b NOQUANT M 5 SETATTR {}");
        let dump: ArgsBuf = ["DUMP", "v"].iter().map(|word| word.as_bytes()).collect();
        let reply = db.run_bytes(dump.as_args());
        let at = reply.iter().position(|byte| *byte == b'\n').unwrap() + 1;
        let payload = &reply[at..reply.len() - 2];
        let restore: ArgsBuf = [b"RESTORE", &b"w"[..], b"0", payload].into_iter().collect();
        assert_eq!(db.run_bytes(restore.as_args()), b"+OK\r\n");
        for query in [
            "VEMB v a RAW",
            "VEMB v b RAW",
            "VGETATTR v b",
            "VSIM v ELE a WITHSCORES",
            "VLINKS v a",
        ] {
            assert_eq!(
                db.words(&query.replace(" v ", " w ")),
                db.words(query),
                "{query}"
            );
        }
        assert_eq!(
            db.words("VADD w REDUCE 2 VALUES 3 3 2 2 c NOQUANT M 5"),
            ":1"
        );
    }
}
