//! JSON documents: the commands that change numbers, strings, booleans and arrays in them. Must not know how documents are
//! read or set.

use redline_keyspace::Classes;
use redline_resp::{Args, Proto, Reply};
use redline_types::{
    Json,
    json::{Item, Layout, Path, Place},
    number,
};

use super::{
    NO_KEY, NOT_INTEGER, check_depth, coded_value_of, exhausted, find, no_path, path_of, value_of,
    write, wrong_kind,
};
use crate::{Ctx, Error, Failure};

const BAD_NUMBER: Error = Error::line("bad input number");
const NO_RESULT: Error = Error::line("result is not a number");
const OUT_OF_BOUNDS: Error = Error::line("ERR index out of bounds");

/// Returns the position that an index has, in which negative ones count from the end: at least 0.
pub(super) fn from_end(index: i64, len: usize) -> usize {
    match usize::try_from(index) {
        Ok(at) => at,
        Err(_) => len.saturating_sub(usize::try_from(index.unsigned_abs()).unwrap_or(usize::MAX)),
    }
}

/// Changes each value that a path finds: what the first function makes of it is handed to the second. Nothing is changed if
/// the first fails for one. Returns what the second returned for each, nothing for values that the first leaves alone.
///
/// A path can find a value and others in it: when the second function comes to those, they may be others than were found,
/// or longer or shorter.
fn change_each<P, R>(
    ctx: &mut Ctx<'_>,
    key: &[u8],
    path: &Path<'_>,
    event: &'static str,
    plan: impl Fn(&Json, Place, usize) -> Result<Option<P>, Error>,
    apply: impl Fn(&mut Json, Place, P) -> Option<R>,
) -> Result<Vec<Option<R>>, Error> {
    let json = find(ctx, key)?.ok_or(NO_KEY)?;
    if path.is_static() {
        let Some(place) = json.locate(path) else {
            return Ok(Vec::new());
        };
        let Some(plan) = plan(json, place, path.depth())? else {
            return Ok(vec![None]);
        };
        let result = write(ctx, key, |json| apply(json, place, plan))?;
        ctx.keys.changed(Classes::MODULE, event, key);
        return Ok(vec![result]);
    }
    let ways = json.ways(path).map_err(exhausted)?;
    let mut plans = Vec::with_capacity(ways.len());
    for way in &ways {
        let place = json.follow(way).expect("nothing has changed since");
        plans.push(plan(json, place, way.len())?);
    }
    if plans.iter().all(Option::is_none) {
        return Ok(plans.iter().map(|_| None).collect());
    }
    let results: Vec<Option<R>> = write(ctx, key, |json| {
        let each = ways.iter().zip(plans);
        each.map(|(way, plan)| apply(json, json.follow(way)?, plan?))
            .collect()
    })?;
    ctx.keys.changed(Classes::MODULE, event, key);
    Ok(results)
}

/// Replies with the numbers of a JSONPath, or with the last one of a path of the older dialect.
fn reply_integers(
    results: &[Option<i64>],
    path: &Path<'_>,
    missing: impl FnOnce() -> Error,
    reply: &mut Reply<'_>,
) -> Result<(), Failure> {
    if path.is_legacy() {
        let last = results.iter().flatten().last();
        reply.integer(*last.ok_or_else(missing)?);
        return Ok(());
    }
    reply.array(results.len());
    for result in results {
        match result {
            Some(n) => reply.integer(*n),
            None => reply.null(),
        }
    }
    Ok(())
}

/// An operation on two numbers: on integers, which wraps around, and on doubles.
struct Operation {
    event: &'static str,
    integers: fn(i64, i64) -> Option<i64>,
    doubles: fn(f64, f64) -> f64,
}

/// JSON.NUMINCRBY key path value
pub(crate) fn json_numincrby(
    ctx: &mut Ctx<'_>,
    args: Args<'_>,
    reply: &mut Reply<'_>,
) -> Result<(), Failure> {
    const ADD: Operation = Operation {
        event: "json.numincrby",
        integers: |a, b| Some(a.wrapping_add(b)),
        doubles: |a, b| a + b,
    };
    calculate(ctx, args, reply, &ADD)
}

/// JSON.NUMMULTBY key path value
pub(crate) fn json_nummultby(
    ctx: &mut Ctx<'_>,
    args: Args<'_>,
    reply: &mut Reply<'_>,
) -> Result<(), Failure> {
    const MULTIPLY: Operation = Operation {
        event: "json.nummultby",
        integers: |a, b| Some(a.wrapping_mul(b)),
        doubles: |a, b| a * b,
    };
    calculate(ctx, args, reply, &MULTIPLY)
}

/// JSON.NUMPOWBY key path value
pub(crate) fn json_numpowby(
    ctx: &mut Ctx<'_>,
    args: Args<'_>,
    reply: &mut Reply<'_>,
) -> Result<(), Failure> {
    const POWER: Operation = Operation {
        event: "json.numpowby",
        integers: |a, b| u32::try_from(b).ok().map(|b| a.wrapping_pow(b)),
        doubles: f64::powf,
    };
    calculate(ctx, args, reply, &POWER)
}

fn calculate(
    ctx: &mut Ctx<'_>,
    args: Args<'_>,
    reply: &mut Reply<'_>,
    operation: &Operation,
) -> Result<(), Failure> {
    let path = path_of(args, 2)?;
    find(ctx, &args[1])?.ok_or(NO_KEY)?;
    let operand = coded_value_of(&args[3])?;
    let operand = operand.root();
    let factor = operand.as_f64().ok_or(BAD_NUMBER)?;
    let plan = |json: &Json, place: Place, _: usize| {
        let item = json.get(place);
        let integer = match (&item, &operand) {
            (Item::Integer(a), Item::Integer(b)) => (operation.integers)(*a, *b),
            _ => None,
        };
        if let Some(n) = integer {
            return Ok(Some(Json::of_integer(n)));
        }
        let Some(number) = item.as_f64() else {
            return Ok(None);
        };
        match (operation.doubles)(number, factor) {
            n if n.is_finite() => Ok(Some(Json::of_double(n))),
            _ => Err(NO_RESULT),
        }
    };
    let apply = |json: &mut Json, place: Place, result: Json| {
        json.set(place, &result);
        Some(result)
    };
    let results = change_each(ctx, &args[1], &path, operation.event, plan, apply)?;
    if reply.proto() == Proto::Resp3 {
        reply.array(results.len());
        for result in &results {
            match result.as_ref().map(Json::root) {
                Some(Item::Integer(n)) => reply.integer(n),
                Some(Item::Double(n)) => reply.double(n),
                _ => reply.null(),
            }
        }
        return Ok(());
    }
    if path.is_legacy() {
        let last = results.iter().flatten().last();
        let missing = || no_path(path.fixed(), " or does not contains a number");
        reply.bulk(&last.ok_or_else(missing)?.to_text());
        return Ok(());
    }
    let mut text = vec![b'['];
    for (at, result) in results.iter().enumerate() {
        if at > 0 {
            text.push(b',');
        }
        match result {
            Some(json) => json.write(Place::ROOT, &Layout::default(), 0, &mut text),
            None => text.extend_from_slice(b"null"),
        }
    }
    text.push(b']');
    reply.bulk(&text);
    Ok(())
}

/// JSON.STRAPPEND key [path] value
pub(crate) fn json_strappend(
    ctx: &mut Ctx<'_>,
    args: Args<'_>,
    reply: &mut Reply<'_>,
) -> Result<(), Failure> {
    let (path, value) = match args.get(3) {
        Some(value) => (path_of(args, 2)?, value),
        None => (Path::root(), &args[2]),
    };
    find(ctx, &args[1])?.ok_or(NO_KEY)?;
    let value = coded_value_of(value)?;
    let Item::String(more) = value.root() else {
        let text = String::from_utf8_lossy(&value.to_text()).into_owned();
        return Err(wrong_kind("string", &text).into());
    };
    let bytes_max = ctx.bulk_bytes_max;
    let plan = |json: &Json, place: Place, _: usize| match json.get(place) {
        Item::String(text) if (text.len() + more.len()) as u64 > bytes_max => {
            Err(Error::StringTooLong)
        }
        Item::String(_) => Ok(Some(())),
        _ => Ok(None),
    };
    let apply = |json: &mut Json, place: Place, ()| json.append(place, &more).map(|len| len as i64);
    let results = change_each(ctx, &args[1], &path, "json.strappend", plan, apply)?;
    let missing = || no_path(path.fixed(), " or not a string");
    reply_integers(&results, &path, missing, reply)
}

/// JSON.TOGGLE key path
pub(crate) fn json_toggle(
    ctx: &mut Ctx<'_>,
    args: Args<'_>,
    reply: &mut Reply<'_>,
) -> Result<(), Failure> {
    let path = path_of(args, 2)?;
    let plan = |json: &Json, place: Place, _: usize| match json.get(place) {
        Item::Bool(value) => Ok(Some(!value)),
        _ => Ok(None),
    };
    let apply = |json: &mut Json, place: Place, value: bool| {
        json.set(place, &Json::of_bool(value));
        Some(i64::from(value))
    };
    let results = change_each(ctx, &args[1], &path, "json.toggle", plan, apply)?;
    let missing = || no_path(path.fixed(), " or not a bool");
    if path.is_legacy() {
        let last = *results.iter().flatten().last().ok_or_else(missing)?;
        reply.bulk(if last == 1 { b"true" } else { b"false" });
        return Ok(());
    }
    reply_integers(&results, &path, missing, reply)
}

/// Reads the values of a call from a position on.
fn values_of(args: Args<'_>, at: usize) -> Result<Vec<Json>, Error> {
    args.from(at).iter().map(value_of).collect()
}

fn check_depths(around: usize, values: &[Json]) -> Result<(), Error> {
    values
        .iter()
        .try_for_each(|value| check_depth(around, value))
}

/// JSON.ARRAPPEND key path value [value …]
pub(crate) fn json_arrappend(
    ctx: &mut Ctx<'_>,
    args: Args<'_>,
    reply: &mut Reply<'_>,
) -> Result<(), Failure> {
    let path = path_of(args, 2)?;
    let values = values_of(args, 3)?;
    let plan = |json: &Json, place: Place, around: usize| match json.get(place) {
        Item::Array(_) => check_depths(around + 1, &values).map(Some),
        _ => Ok(None),
    };
    let given: Vec<&Json> = values.iter().collect();
    let apply = |json: &mut Json, place: Place, ()| {
        json.array_insert(place, usize::MAX, &given)
            .map(|len| len as i64)
    };
    let results = change_each(ctx, &args[1], &path, "json.arrappend", plan, apply)?;
    let missing = || no_path(path.given(), " or not an array");
    reply_integers(&results, &path, missing, reply)
}

/// JSON.ARRINSERT key path index value [value …]
pub(crate) fn json_arrinsert(
    ctx: &mut Ctx<'_>,
    args: Args<'_>,
    reply: &mut Reply<'_>,
) -> Result<(), Failure> {
    let path = path_of(args, 2)?;
    let index = number::parse_i64(&args[3]).ok_or(NOT_INTEGER)?;
    let values = values_of(args, 4)?;
    let plan = |json: &Json, place: Place, around: usize| match json.get(place) {
        Item::Array(array) => {
            let len = array.len() as i64;
            if index > len || index < -len {
                return Err(OUT_OF_BOUNDS);
            }
            check_depths(around + 1, &values)?;
            Ok(Some(from_end(index, array.len())))
        }
        _ => Ok(None),
    };
    let given: Vec<&Json> = values.iter().collect();
    let apply = |json: &mut Json, place: Place, at: usize| {
        json.array_insert(place, at, &given).map(|len| len as i64)
    };
    let results = change_each(ctx, &args[1], &path, "json.arrinsert", plan, apply)?;
    let missing = || no_path(path.fixed(), " or not an array");
    reply_integers(&results, &path, missing, reply)
}

/// JSON.ARRPOP key [path [index]]
pub(crate) fn json_arrpop(
    ctx: &mut Ctx<'_>,
    args: Args<'_>,
    reply: &mut Reply<'_>,
) -> Result<(), Failure> {
    let path = path_of(args, 2)?;
    // What is no number is the last position, as in the module.
    let index = args.get(3).and_then(number::parse_i64).unwrap_or(-1);
    // Arrays without an element are found too, but not changed.
    let arrays = {
        let json = find(ctx, &args[1])?.ok_or(NO_KEY)?;
        let places = json.select(&path).map_err(exhausted)?;
        let is_array = |place: &&Place| matches!(json.get(**place), Item::Array(_));
        places.iter().filter(is_array).count()
    };
    let plan = |json: &Json, place: Place, _: usize| match json.get(place) {
        Item::Array(array) if !array.is_empty() => {
            Ok(Some(from_end(index, array.len()).min(array.len() - 1)))
        }
        _ => Ok(None),
    };
    let apply = |json: &mut Json, place: Place, at: usize| {
        let mut text = Vec::new();
        match json.get(place) {
            Item::Array(array) if at < array.len() => {
                json.write(array.place(at), &Layout::default(), 0, &mut text);
            }
            _ => return None,
        }
        json.array_remove(place, at);
        Some(text)
    };
    let results = change_each(ctx, &args[1], &path, "json.arrpop", plan, apply)?;
    if path.is_legacy() {
        match results.iter().flatten().last() {
            Some(text) => reply.bulk(text),
            None if arrays > 0 => reply.null(),
            None => return Err(no_path(path.fixed(), " or not an array").into()),
        }
        return Ok(());
    }
    reply.array(results.len());
    for result in &results {
        match result {
            Some(text) => reply.bulk(text),
            None => reply.null(),
        }
    }
    Ok(())
}

/// JSON.ARRTRIM key path start stop
pub(crate) fn json_arrtrim(
    ctx: &mut Ctx<'_>,
    args: Args<'_>,
    reply: &mut Reply<'_>,
) -> Result<(), Failure> {
    let path = path_of(args, 2)?;
    let start = number::parse_i64(&args[3]).ok_or(NOT_INTEGER)?;
    let stop = number::parse_i64(&args[4]).ok_or(NOT_INTEGER)?;
    let plan = |json: &Json, place: Place, _: usize| match json.get(place) {
        Item::Array(array) => {
            let len = array.len();
            let end = match stop.checked_add(1) {
                // Before the first element, or the last one itself.
                Some(end) if end <= 0 => from_end(end, len) + if end == 0 { len } else { 0 },
                Some(end) => from_end(end, len).min(len),
                None => len,
            };
            let start = from_end(start, len).min(end);
            Ok(Some(start..end))
        }
        _ => Ok(None),
    };
    let apply = |json: &mut Json, place: Place, keep: std::ops::Range<usize>| {
        json.array_keep(place, keep).map(|len| len as i64)
    };
    let results = change_each(ctx, &args[1], &path, "json.arrtrim", plan, apply)?;
    let missing = || no_path(path.fixed(), " or not an array");
    reply_integers(&results, &path, missing, reply)
}
