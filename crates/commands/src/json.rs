//! JSON documents: the commands that Redis has in its module `ReJSON`, but for those that change numbers, strings and arrays,
//! which are in `edit`.
//!
//! Replies follow the dialect of the path: a JSONPath finds any number of values, so its reply is an array; a path of the older
//! dialect names one, and its reply stands alone. Errors have the module's texts, some of which have no code.

mod edit;
#[cfg(test)]
mod tests;

use std::collections::HashSet;

use redline_keyspace::{Classes, Expiry, Found, Trace};
use redline_resp::{Args, Proto, Reply};
use redline_spec::CommandId;
use redline_types::{
    Json,
    json::{DEPTH_MAX, Exhausted, Hop, Item, Layout, Path, Place, write_string},
};

pub(crate) use edit::{
    json_arrappend, json_arrinsert, json_arrpop, json_arrtrim, json_numincrby, json_nummultby,
    json_numpowby, json_strappend, json_toggle,
};

use crate::{Ctx, Error, Failure, words::Words};

const WRONG_TYPE: Error = Error::line("Existing key has wrong Redis type");
const NO_KEY: Error =
    Error::line("ERR could not perform this operation on a key that doesn't exist");
const NOT_AT_ROOT: Error = Error::line("ERR new objects must be created at the root");
const NOT_STATIC: Error = Error::line("Err wrong static path");
const BEYOND_ARRAY: Error = Error::line("ERR array index out of range");
const EXHAUSTED: Error = Error::line("ERR the path looks at too many values");
const TOO_DEEP: Error = Error::line("ERR recursion limit exceeded");
const NOT_INTEGER: Error = Error::line("Couldn't parse as integer");

fn exhausted(_: Exhausted) -> Error {
    EXHAUSTED
}

/// Returns the error for a path that finds nothing, or not what the command wants.
fn no_path(path: &str, also: &str) -> Error {
    Error::Line(format!("ERR Path '{path}' does not exist{also}").into())
}

fn wrong_kind(expected: &str, found: &str) -> Error {
    let text =
        format!("WRONGTYPE wrong type of path value - expected {expected} but found {found}");
    Error::Line(text.into())
}

fn path_of(args: Args<'_>, at: usize) -> Result<Path<'_>, Error> {
    match args.get(at) {
        Some(given) => Path::parse(given).map_err(|error| Error::Line(error.to_string().into())),
        None => Ok(Path::root()),
    }
}

/// Reads a value among the arguments.
fn value_of(given: &[u8]) -> Result<Json, Error> {
    Json::parse(given).map_err(|error| Error::Line(error.to_string().into()))
}

/// Reads a value for commands whose error has a code.
fn coded_value_of(given: &[u8]) -> Result<Json, Error> {
    Json::parse(given).map_err(|error| Error::Line(format!("ERR {error}").into()))
}

fn read<'c>(ctx: &'c Ctx<'_>, key: &[u8]) -> Result<Option<&'c Json>, Error> {
    ctx.keys.read::<Json>(key).map_err(|_| WRONG_TYPE)
}

/// Looks at a document that the command is about to change.
fn find<'c>(ctx: &'c Ctx<'_>, key: &[u8]) -> Result<Option<&'c Json>, Error> {
    let found = ctx.keys.find(key, Trace::Write);
    found
        .map(Found::collection::<Json>)
        .transpose()
        .map_err(|_| WRONG_TYPE)
}

fn select(json: &Json, path: &Path<'_>) -> Result<Vec<Place>, Error> {
    json.select(path).map_err(exhausted)
}

/// Changes a document, which is there.
fn write<R>(ctx: &mut Ctx<'_>, key: &[u8], edit: impl FnOnce(&mut Json) -> R) -> Result<R, Error> {
    let edited = ctx.keys.write::<Json, _>(key, |json, _| {
        let result = edit(json);
        json.settle();
        result
    });
    Ok(edited.map_err(|_| WRONG_TYPE)?.expect("the key was found"))
}

/// A value that is to be put at some depth of a document fits, if the document can be read again from its text.
fn check_depth(around: usize, value: &Json) -> Result<(), Error> {
    match around + value.depth_at(Place::ROOT) <= DEPTH_MAX {
        true => Ok(()),
        false => Err(TOO_DEEP),
    }
}

/// Where a value is put into a document.
enum Target {
    /// In place of values.
    Values(Vec<Vec<Hop>>),
    /// As a new member of objects.
    Member(Vec<Vec<Hop>>, Box<str>),
    /// Nowhere.
    Nowhere,
}

/// The conditions of JSON.SET.
#[derive(Clone, Copy, PartialEq, Eq)]
enum OnlyIf {
    Any,
    Missing,
    Present,
}

/// Returns where a value is put that is set at a path of a document.
fn target_of(json: &Json, path: &Path<'_>, only_if: OnlyIf, value: &Json) -> Result<Target, Error> {
    if only_if != OnlyIf::Missing {
        let ways = json.ways(path).map_err(exhausted)?;
        ways.iter()
            .try_for_each(|way| check_depth(way.len(), value))?;
        if !ways.is_empty() {
            return Ok(Target::Values(ways));
        }
    }
    if only_if == OnlyIf::Present {
        return Ok(Target::Nowhere);
    }
    if !path.is_static() {
        return Err(NOT_STATIC);
    }
    let Some((parent, name)) = path.split_last() else {
        return Ok(Target::Nowhere);
    };
    let Some(name) = name else {
        return match select(json, path)?.is_empty() {
            true => Err(BEYOND_ARRAY),
            false => Ok(Target::Nowhere),
        };
    };
    let mut ways = json.ways(&parent).map_err(exhausted)?;
    ways.retain(|way| match json.follow(way).map(|place| json.get(place)) {
        Some(Item::Object(object)) => object.find(name.as_bytes()).is_none(),
        _ => false,
    });
    ways.iter()
        .try_for_each(|way| check_depth(way.len() + 1, value))?;
    match ways.is_empty() {
        true => Ok(Target::Nowhere),
        false => Ok(Target::Member(ways, name.into())),
    }
}

/// Puts a value into a document; with `merges`, over what is there.
fn put(json: &mut Json, target: Target, value: &Json, merges: bool) {
    match target {
        Target::Values(ways) => {
            for way in ways {
                match json.follow(&way) {
                    Some(place) if merges => json.merge(place, value),
                    Some(place) => json.set(place, value),
                    None => {}
                }
            }
        }
        Target::Member(ways, name) => {
            for way in ways {
                if let Some(place) = json.follow(&way) {
                    json.object_set(place, &name, value);
                }
            }
        }
        Target::Nowhere => {}
    }
}

/// Sets or merges; returns false if nothing was to be done.
fn store(
    ctx: &mut Ctx<'_>,
    key: &[u8],
    path: &Path<'_>,
    value: Json,
    only_if: OnlyIf,
    merges: bool,
) -> Result<bool, Error> {
    let target = match find(ctx, key)? {
        None if only_if == OnlyIf::Present => return Ok(false),
        None if !path.is_root() => return Err(NOT_AT_ROOT),
        None => {
            ctx.keys.insert(key, value, Expiry::Clear);
            return Ok(true);
        }
        Some(_) if path.is_root() && only_if == OnlyIf::Missing => return Ok(false),
        Some(_) if path.is_root() && !merges => {
            write(ctx, key, |json| *json = value)?;
            return Ok(true);
        }
        Some(_) if path.is_root() => Target::Values(vec![Vec::new()]),
        Some(json) => target_of(json, path, only_if, &value)?,
    };
    if matches!(target, Target::Nowhere) {
        return Ok(false);
    }
    write(ctx, key, |json| put(json, target, &value, merges))?;
    Ok(true)
}

/// JSON.SET key path value [NX | XX]
pub(crate) fn json_set(
    ctx: &mut Ctx<'_>,
    args: Args<'_>,
    reply: &mut Reply<'_>,
) -> Result<(), Failure> {
    let mut words = Words::new(CommandId::JsonSet, &args, 4);
    let only_if = words.one_of(&[("NX", OnlyIf::Missing), ("XX", OnlyIf::Present)]);
    let only_if = only_if.unwrap_or(OnlyIf::Any);
    words.end()?;
    let path = path_of(args, 2)?;
    let value = value_of(&args[3])?;
    if store(ctx, &args[1], &path, value, only_if, false)? {
        ctx.keys.changed(Classes::MODULE, "json.set", &args[1]);
        reply.ok();
    } else {
        reply.null();
    }
    Ok(())
}

/// JSON.MERGE key path value
pub(crate) fn json_merge(
    ctx: &mut Ctx<'_>,
    args: Args<'_>,
    reply: &mut Reply<'_>,
) -> Result<(), Failure> {
    let path = path_of(args, 2)?;
    let value = value_of(&args[3])?;
    if store(ctx, &args[1], &path, value, OnlyIf::Any, true)? {
        ctx.keys.changed(Classes::MODULE, "json.merge", &args[1]);
        reply.ok();
    } else {
        reply.null();
    }
    Ok(())
}

/// JSON.MSET key path value [key path value …]
pub(crate) fn json_mset(
    ctx: &mut Ctx<'_>,
    args: Args<'_>,
    reply: &mut Reply<'_>,
) -> Result<(), Failure> {
    if args.len() % 3 != 1 {
        return Err(Error::wrong_arity("json.mset").into());
    }
    let mut writes: Vec<(&[u8], Path<'_>, Json)> = Vec::new();
    let mut keys: HashSet<&[u8]> = HashSet::new();
    // All is checked before anything is written.
    for at in (1..args.len()).step_by(3) {
        let key = &args[at];
        let (path, value) = (path_of(args, at + 1)?, value_of(&args[at + 2])?);
        let is_made = !keys.insert(key);
        match find(ctx, key)? {
            Some(json) if !path.is_root() => {
                target_of(json, &path, OnlyIf::Any, &value)?;
            }
            None if !path.is_root() && !is_made => return Err(NOT_AT_ROOT.into()),
            _ => {}
        }
        writes.push((key, path, value));
    }
    for (key, path, value) in writes {
        // What an earlier part of the call has changed may leave nothing to be done for a later one.
        if store(ctx, key, &path, value, OnlyIf::Any, false).unwrap_or(false) {
            ctx.keys.changed(Classes::MODULE, "json.mset", key);
        }
    }
    reply.ok();
    Ok(())
}

/// The form in which JSON.GET replies.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Format {
    Text,
    /// As values of RESP3; those in arrays and objects too, or as texts.
    Expanded {
        deep: bool,
    },
}

/// Appends the text of the values that a path finds, in an array.
fn write_all(json: &Json, places: &[Place], layout: &Layout<'_>, level: usize, out: &mut Vec<u8>) {
    let line = |out: &mut Vec<u8>, level: usize| {
        out.extend_from_slice(layout.newline);
        (0..level).for_each(|_| out.extend_from_slice(layout.indent));
    };
    out.push(b'[');
    for (at, place) in places.iter().enumerate() {
        if at > 0 {
            out.push(b',');
        }
        line(out, level + 1);
        json.write(*place, layout, level + 1, out);
    }
    if !places.is_empty() {
        line(out, level);
    }
    out.push(b']');
}

/// JSON.GET key [INDENT indent] [NEWLINE newline] [SPACE space] [FORMAT format] [path …]
pub(crate) fn json_get(
    ctx: &mut Ctx<'_>,
    args: Args<'_>,
    reply: &mut Reply<'_>,
) -> Result<(), Failure> {
    let mut layout = Layout::default();
    let mut format = Format::Text;
    let mut paths = Vec::new();
    let mut at = 2;
    while let Some(word) = args.get(at) {
        at += 1;
        const OPTIONS: [&[u8]; 5] = [b"INDENT", b"NEWLINE", b"SPACE", b"FORMAT", b"NOESCAPE"];
        let mut options = OPTIONS.into_iter();
        let name = match options.find(|option| word.eq_ignore_ascii_case(option)) {
            None => {
                paths.push(path_of(args, at - 1)?);
                continue;
            }
            Some(b"NOESCAPE") => continue,
            Some(name) => name,
        };
        let value = args.get(at).ok_or_else(|| Error::wrong_arity("json.get"))?;
        at += 1;
        match name {
            b"INDENT" => layout.indent = value,
            b"NEWLINE" => layout.newline = value,
            b"SPACE" => layout.space = value,
            _ => format = format_of(value, reply.proto())?,
        }
    }
    let Some(json) = read(ctx, &args[1])? else {
        reply.null();
        return Ok(());
    };
    match format {
        Format::Text => reply.bulk(&text_of(json, &paths, &layout)?),
        Format::Expanded { deep } => {
            if paths.is_empty() {
                paths.push(Path::root());
            }
            reply.array(paths.len());
            for path in &paths {
                let places = select(json, path)?;
                reply.array(places.len());
                places
                    .iter()
                    .for_each(|place| write_value(json, *place, deep, reply));
            }
        }
    }
    Ok(())
}

fn format_of(value: &[u8], proto: Proto) -> Result<Format, Error> {
    if proto == Proto::Resp2 {
        return Err(Error::line("ERR FORMAT argument is not supported on RESP2"));
    }
    match &value.to_ascii_uppercase()[..] {
        b"STRING" => Ok(Format::Text),
        b"EXPAND" => Ok(Format::Expanded { deep: true }),
        b"EXPAND1" => Ok(Format::Expanded { deep: false }),
        _ => Err(Error::line("ERR wrong reply format")),
    }
}

/// Returns the text of what paths find: of one value, of an array of them, or of an object with a member for each path.
fn text_of(json: &Json, paths: &[Path<'_>], layout: &Layout<'_>) -> Result<Vec<u8>, Error> {
    let mut out = Vec::new();
    let all_legacy = paths.iter().all(Path::is_legacy);
    let first = |path: &Path<'_>, missing: &str| -> Result<Place, Error> {
        let places = select(json, path)?;
        places.first().copied().ok_or_else(|| no_path(missing, ""))
    };
    match paths {
        [] => json.write(Place::ROOT, layout, 0, &mut out),
        [path] if path.is_legacy() => {
            json.write(first(path, path.fixed())?, layout, 0, &mut out);
        }
        [path] => write_all(json, &select(json, path)?, layout, 0, &mut out),
        _ => {
            out.push(b'{');
            let mut given = HashSet::new();
            for path in paths {
                if !given.insert(path.given()) {
                    continue;
                }
                if given.len() > 1 {
                    out.push(b',');
                }
                out.extend_from_slice(layout.newline);
                out.extend_from_slice(layout.indent);
                write_string(path.given().as_bytes(), &mut out);
                out.push(b':');
                out.extend_from_slice(layout.space);
                match all_legacy {
                    true => json.write(first(path, path.given())?, layout, 1, &mut out),
                    false => write_all(json, &select(json, path)?, layout, 1, &mut out),
                }
            }
            out.extend_from_slice(layout.newline);
            out.push(b'}');
        }
    }
    Ok(out)
}

/// Writes a value as one of RESP3; inner ones as texts, unless all are wanted so.
fn write_value(json: &Json, place: Place, deep: bool, reply: &mut Reply<'_>) {
    let inner = |place: Place, reply: &mut Reply<'_>| match json.get(place) {
        Item::Array(_) | Item::Object(_) if !deep => {
            let mut text = Vec::new();
            json.write(place, &Layout::default(), 0, &mut text);
            reply.bulk(&text);
        }
        _ => write_value(json, place, deep, reply),
    };
    match json.get(place) {
        Item::Null => reply.null(),
        Item::Bool(value) => reply.bool(value),
        Item::Integer(n) => reply.integer(n),
        Item::Unsigned(n) => reply.double(n as f64),
        Item::Double(n) => reply.double(n),
        Item::String(text) => reply.bulk(&text),
        Item::Array(array) => {
            reply.array(array.len());
            (0..array.len()).for_each(|at| inner(array.place(at), reply));
        }
        Item::Object(object) => {
            reply.map(object.len());
            for at in 0..object.len() {
                reply.bulk(&object.name(at));
                inner(object.place(at), reply);
            }
        }
    }
}

/// JSON.MGET key [key …] path
pub(crate) fn json_mget(
    ctx: &mut Ctx<'_>,
    args: Args<'_>,
    reply: &mut Reply<'_>,
) -> Result<(), Failure> {
    let last = args.len() - 1;
    // A path that does not parse finds nothing here, as in the module.
    let path = path_of(args, last).ok();
    reply.array(last - 1);
    for key in args.first(last).from(1).iter() {
        let json = ctx.keys.read::<Json>(key).ok().flatten();
        let text = match (json, &path) {
            (Some(json), Some(path)) => {
                text_of(json, std::slice::from_ref(path), &Layout::default()).ok()
            }
            _ => None,
        };
        match text {
            Some(text) => reply.bulk(&text),
            None => reply.null(),
        }
    }
    Ok(())
}

/// JSON.DEL key [path]
pub(crate) fn json_del(
    ctx: &mut Ctx<'_>,
    args: Args<'_>,
    reply: &mut Reply<'_>,
) -> Result<(), Failure> {
    let key = &args[1];
    let path = path_of(args, 2)?;
    let mut deleted = 0;
    if let Some(json) = find(ctx, key)? {
        if path.is_root() {
            deleted = 1;
            ctx.keys.remove(key);
        } else {
            let ways = outermost(json.ways(&path).map_err(exhausted)?);
            let (count, is_empty) = write(ctx, key, |json| {
                let gone = ways.iter().filter(|way| delete(json, way)).count();
                let is_empty = match json.root() {
                    Item::Array(array) => array.is_empty(),
                    Item::Object(object) => object.is_empty(),
                    _ => false,
                };
                (gone, is_empty)
            })?;
            deleted = count as i64;
            if deleted > 0 && is_empty {
                ctx.keys.remove(key);
            }
        }
    }
    if deleted > 0 {
        ctx.keys.changed(Classes::MODULE, "json.del", key);
    }
    reply.integer(deleted);
    Ok(())
}

/// JSON.FORGET key [path]
pub(crate) fn json_forget(
    ctx: &mut Ctx<'_>,
    args: Args<'_>,
    reply: &mut Reply<'_>,
) -> Result<(), Failure> {
    json_del(ctx, args, reply)
}

/// Returns the ways in an order in which the end of each can be deleted while the others still hold, without those that
/// lead through the end of another.
fn outermost(mut ways: Vec<Vec<Hop>>) -> Vec<Vec<Hop>> {
    ways.sort_by(|a, b| {
        let mut by_hops = a.iter().zip(b).map(|(a, b)| match (a, b) {
            // From the end of an array on, so that positions stay.
            (Hop::Element(a), Hop::Element(b)) => b.cmp(a),
            _ => a.cmp(b),
        });
        let first_other = by_hops.find(|order| order.is_ne());
        first_other.unwrap_or_else(|| a.len().cmp(&b.len()))
    });
    // Those that begin with another one stand right behind it.
    ways.dedup_by(|way, before| way.starts_with(before));
    ways
}

fn delete(json: &mut Json, way: &[Hop]) -> bool {
    let Some((last, before)) = way.split_last() else {
        return false;
    };
    let Some(place) = json.follow(before) else {
        return false;
    };
    match last {
        Hop::Element(at) => json.array_remove(place, *at),
        Hop::Member(name) => json.object_remove(place, name.as_bytes()),
    }
}

/// JSON.CLEAR key [path]
pub(crate) fn json_clear(
    ctx: &mut Ctx<'_>,
    args: Args<'_>,
    reply: &mut Reply<'_>,
) -> Result<(), Failure> {
    let key = &args[1];
    let path = path_of(args, 2)?;
    let json = find(ctx, key)?.ok_or(NO_KEY)?;
    let ways = json.ways(&path).map_err(exhausted)?;
    let cleared = write(ctx, key, |json| {
        let mut clear = |way: &&Vec<Hop>| json.follow(way).is_some_and(|at| json.clear(at));
        ways.iter().filter(|way| clear(way)).count()
    })?;
    if cleared > 0 {
        ctx.keys.changed(Classes::MODULE, "json.clear", key);
    }
    reply.integer(cleared as i64);
    Ok(())
}

/// JSON.TYPE key [path]
pub(crate) fn json_type(
    ctx: &mut Ctx<'_>,
    args: Args<'_>,
    reply: &mut Reply<'_>,
) -> Result<(), Failure> {
    let path = path_of(args, 2)?;
    if reply.proto() == Proto::Resp3 {
        reply.array(1);
    }
    let Some(json) = read(ctx, &args[1])? else {
        reply.null();
        return Ok(());
    };
    let places = select(json, &path)?;
    if !path.is_legacy() {
        reply.array(places.len());
    } else if places.is_empty() {
        reply.null();
    }
    let shown = if path.is_legacy() { 1 } else { places.len() };
    for place in places.into_iter().take(shown) {
        reply.bulk(json.get(place).type_name().as_bytes());
    }
    Ok(())
}

/// Replies with a length for each value that a JSONPath finds, null for one that has none.
fn lengths(
    json: &Json,
    path: &Path<'_>,
    reply: &mut Reply<'_>,
    length: fn(Item<'_>) -> Option<usize>,
) -> Result<(), Error> {
    let places = select(json, path)?;
    reply.array(places.len());
    for place in places {
        match length(json.get(place)) {
            Some(len) => reply.integer(len as i64),
            None => reply.null(),
        }
    }
    Ok(())
}

/// Replies with the length of what a path finds. `missing` is the error where a JSONPath has no document; `other` that
/// where a path of the older dialect finds nothing, or a value without a length: without an error that is null.
fn reply_length(
    ctx: &Ctx<'_>,
    args: Args<'_>,
    reply: &mut Reply<'_>,
    length: fn(Item<'_>) -> Option<usize>,
    missing: fn(&Path) -> Error,
    other: fn(&Path, Option<Item<'_>>) -> Option<Error>,
) -> Result<(), Failure> {
    let path = path_of(args, 2)?;
    let json = match read(ctx, &args[1])? {
        Some(json) => json,
        None if path.is_legacy() => {
            reply.null();
            return Ok(());
        }
        None => return Err(missing(&path).into()),
    };
    if !path.is_legacy() {
        return Ok(lengths(json, &path, reply, length)?);
    }
    let found = select(json, &path)?.first().map(|place| json.get(*place));
    if let Some(len) = found.and_then(length) {
        reply.integer(len as i64);
    } else if let Some(error) = other(&path, found) {
        return Err(error.into());
    } else {
        reply.null();
    }
    Ok(())
}

/// JSON.STRLEN key [path]
pub(crate) fn json_strlen(
    ctx: &mut Ctx<'_>,
    args: Args<'_>,
    reply: &mut Reply<'_>,
) -> Result<(), Failure> {
    let length = |item: Item<'_>| match item {
        Item::String(text) => Some(text.len()),
        _ => None,
    };
    reply_length(
        ctx,
        args,
        reply,
        length,
        |_| NO_KEY,
        |path, found| {
            Some(match found {
                None => no_path(path.fixed(), ""),
                Some(other) => wrong_kind("string", other.type_name()),
            })
        },
    )
}

/// JSON.ARRLEN key [path]
pub(crate) fn json_arrlen(
    ctx: &mut Ctx<'_>,
    args: Args<'_>,
    reply: &mut Reply<'_>,
) -> Result<(), Failure> {
    let length = |item: Item<'_>| match item {
        Item::Array(array) => Some(array.len()),
        _ => None,
    };
    reply_length(
        ctx,
        args,
        reply,
        length,
        |_| NO_KEY,
        |path, found| {
            let more = found.map_or("", |_| " or not an array");
            Some(no_path(path.given(), more))
        },
    )
}

/// JSON.OBJLEN key [path]
pub(crate) fn json_objlen(
    ctx: &mut Ctx<'_>,
    args: Args<'_>,
    reply: &mut Reply<'_>,
) -> Result<(), Failure> {
    let length = |item: Item<'_>| match item {
        Item::Object(object) => Some(object.len()),
        _ => None,
    };
    let missing = |path: &Path| no_path(path.fixed(), " or not an object");
    reply_length(ctx, args, reply, length, missing, |_, found| {
        found.map(|other| wrong_kind("object", other.type_name()))
    })
}

/// JSON.OBJKEYS key [path]
pub(crate) fn json_objkeys(
    ctx: &mut Ctx<'_>,
    args: Args<'_>,
    reply: &mut Reply<'_>,
) -> Result<(), Failure> {
    let path = path_of(args, 2)?;
    let json = match read(ctx, &args[1])? {
        Some(json) => json,
        None if path.is_legacy() => {
            reply.null();
            return Ok(());
        }
        None => return Err(NO_KEY.into()),
    };
    let places = select(json, &path)?;
    if path.is_legacy() && places.is_empty() {
        reply.null();
    } else if !path.is_legacy() {
        reply.array(places.len());
    }
    let shown = if path.is_legacy() { 1 } else { places.len() };
    for place in places.into_iter().take(shown) {
        match json.get(place) {
            Item::Object(object) => {
                reply.array(object.len());
                (0..object.len()).for_each(|at| reply.bulk(&object.name(at)));
            }
            _ if path.is_legacy() => {
                return Err(no_path(path.fixed(), " or not an object").into());
            }
            _ => reply.null(),
        }
    }
    Ok(())
}

/// JSON.ARRINDEX key path value [start [stop]]
pub(crate) fn json_arrindex(
    ctx: &mut Ctx<'_>,
    args: Args<'_>,
    reply: &mut Reply<'_>,
) -> Result<(), Failure> {
    let path = path_of(args, 2)?;
    let bound = |at: usize| match args.get(at) {
        Some(given) => redline_types::number::parse_i64(given).ok_or(NOT_INTEGER),
        None => Ok(0),
    };
    let (start, stop) = (bound(4)?, bound(5)?);
    let Some(json) = read(ctx, &args[1])? else {
        return Err(no_path(path.fixed(), "").into());
    };
    let value = coded_value_of(&args[3])?;
    let position = |item: Item<'_>| match item {
        Item::Array(array) => {
            let len = array.len();
            let start = edit::from_end(start, len).min(len.saturating_sub(1));
            let stop = match stop {
                0 => len,
                stop => edit::from_end(stop, len).min(len),
            };
            let mut range = start..stop;
            let found = range.find(|at| json.get(array.place(*at)) == value.root());
            Some(found.map_or(-1, |at| at as i64))
        }
        _ => None,
    };
    let places = select(json, &path)?;
    if !path.is_legacy() {
        reply.array(places.len());
        for place in places {
            match position(json.get(place)) {
                Some(at) => reply.integer(at),
                None => reply.null(),
            }
        }
        return Ok(());
    }
    let place = places.first().ok_or_else(|| no_path(path.fixed(), ""))?;
    let item = json.get(*place);
    match position(item) {
        Some(at) => reply.integer(at),
        None => return Err(wrong_kind("array", item.type_name()).into()),
    }
    Ok(())
}

/// JSON.RESP key [path]
pub(crate) fn json_resp(
    ctx: &mut Ctx<'_>,
    args: Args<'_>,
    reply: &mut Reply<'_>,
) -> Result<(), Failure> {
    let path = path_of(args, 2)?;
    let Some(json) = read(ctx, &args[1])? else {
        reply.null();
        return Ok(());
    };
    let places = select(json, &path)?;
    if !path.is_legacy() {
        reply.array(places.len());
        places
            .iter()
            .for_each(|place| write_resp(json, *place, reply));
        return Ok(());
    }
    let place = places.first().ok_or_else(|| no_path(path.fixed(), ""))?;
    write_resp(json, *place, reply);
    Ok(())
}

fn write_resp(json: &Json, place: Place, reply: &mut Reply<'_>) {
    match json.get(place) {
        Item::Null => reply.null(),
        Item::Bool(value) => reply.simple(if value { "true" } else { "false" }),
        Item::Integer(n) => reply.integer(n),
        Item::Unsigned(n) => reply.double(n as f64),
        Item::Double(n) => reply.double(n),
        Item::String(text) => reply.bulk(&text),
        Item::Array(array) => {
            reply.array(array.len() + 1);
            reply.simple("[");
            (0..array.len()).for_each(|at| write_resp(json, array.place(at), reply));
        }
        Item::Object(object) => {
            reply.array(2 * object.len() + 1);
            reply.simple("{");
            for at in 0..object.len() {
                reply.bulk(&object.name(at));
                write_resp(json, object.place(at), reply);
            }
        }
    }
}

/// JSON.DEBUG MEMORY key [path]
pub(crate) fn json_debug_memory(
    ctx: &mut Ctx<'_>,
    args: Args<'_>,
    reply: &mut Reply<'_>,
) -> Result<(), Failure> {
    let key = &args[2];
    let path = path_of(args, 3)?;
    let places = match read(ctx, key)? {
        Some(json) => {
            let places = select(json, &path)?;
            places
                .into_iter()
                .map(|place| json.bytes_at(place))
                .collect()
        }
        None => Vec::new(),
    };
    match path.is_legacy() {
        true => reply.integer(places.first().map_or(0, |bytes| *bytes as i64)),
        false => {
            reply.array(places.len());
            places.iter().for_each(|bytes| reply.integer(*bytes as i64));
        }
    }
    Ok(())
}
