//! Commands of the group `geo`: places as the scores of sorted sets.

use std::cmp::Ordering;

use redline_keyspace::Trace;
use redline_resp::{Args, Reply};
use redline_spec::CommandId;
use redline_types::{
    DataType, Element, IntBuf, Zset,
    geo::{Place, Search, Shape},
    number::IntText,
    partial_sort::partial_sort,
    zset::{AddFlags, ScoreBound, ScoreRange},
};

use crate::{
    Ctx, Error, Failure,
    words::{Words, integer_in},
    zset::{add_all, add_error, store},
};

/// GEOADD key [NX | XX] [CH] longitude latitude member [longitude latitude member …]
pub(crate) fn geoadd(
    ctx: &mut Ctx<'_>,
    args: Args<'_>,
    reply: &mut Reply<'_>,
) -> Result<(), Failure> {
    let (mut flags, mut count_changed) = (AddFlags::default(), false);
    let mut words = Words::new(CommandId::Geoadd, &args, 2);
    loop {
        if words.flag("NX") {
            flags.nx = true;
        } else if words.flag("XX") {
            flags.xx = true;
        } else if words.flag("CH") {
            count_changed = true;
        } else {
            break;
        }
    }
    let triples = words.rest();
    if triples.is_empty() || !triples.len().is_multiple_of(3) || flags.nx && flags.xx {
        return Err(Error::Syntax.into());
    }
    let mut scores = Vec::with_capacity(triples.len() / 3);
    while !words.is_empty() {
        scores.push(place(&mut words)?.to_score());
        words.next();
    }
    let pair = |index: usize| (scores[index], &triples[index * 3 + 2]);
    let tally = add_all(ctx, &args[1], scores.len(), pair, flags)?;
    if ctx.keys.is_journaled() && tally.new + tally.changed > 0 {
        propagate_places(ctx, &args[1], scores.len(), pair, flags);
    }
    let changed = if count_changed { tally.changed } else { 0 };
    reply.integer((tally.new + changed) as i64);
    Ok(())
}

/// Records in the journal that members were added at places: as scores, which are shorter, and need no projection when they
/// are read.
fn propagate_places<'a>(
    ctx: &mut Ctx<'_>,
    key: &[u8],
    count: usize,
    pair: impl Fn(usize) -> (f64, &'a [u8]),
    flags: AddFlags,
) {
    // A place's score is a whole number of 52 bits.
    let texts: Vec<IntText> = (0..count)
        .map(|index| IntText::new(pair(index).0 as i64))
        .collect();
    let mut call: Vec<&[u8]> = vec![b"ZADD", key];
    call.extend(flags.nx.then_some(&b"NX"[..]));
    call.extend(flags.xx.then_some(&b"XX"[..]));
    for (index, text) in texts.iter().enumerate() {
        call.extend([text.as_ref(), pair(index).1]);
    }
    ctx.keys.propagate(&call);
}

/// GEODIST key member1 member2 [M | KM | FT | MI]
pub(crate) fn geodist(
    ctx: &mut Ctx<'_>,
    args: Args<'_>,
    reply: &mut Reply<'_>,
) -> Result<(), Failure> {
    let unit = match args.len() {
        4 => 1.0,
        5 => metres_per(&mut Words::new(CommandId::Geodist, &args, 4))?,
        _ => return Err(Error::Syntax.into()),
    };
    let zset = ctx.keys.read::<Zset>(&args[1])?;
    let place = |member: &[u8]| Some(Place::from_score(zset?.score(member)?));
    match (place(&args[2]), place(&args[3])) {
        (Some(a), Some(b)) => reply_distance(a.distance(b) / unit, reply),
        _ => reply.null(),
    }
    Ok(())
}

/// GEOHASH key [member …]
pub(crate) fn geohash(
    ctx: &mut Ctx<'_>,
    args: Args<'_>,
    reply: &mut Reply<'_>,
) -> Result<(), Failure> {
    let zset = ctx.keys.read::<Zset>(&args[1])?;
    reply.array(args.len() - 2);
    for member in args.from(2).iter() {
        match zset.and_then(|zset| zset.score(member)) {
            Some(score) => reply.bulk(&Place::from_score(score).geohash()),
            None => reply.null(),
        }
    }
    Ok(())
}

/// GEOPOS key [member …]
pub(crate) fn geopos(
    ctx: &mut Ctx<'_>,
    args: Args<'_>,
    reply: &mut Reply<'_>,
) -> Result<(), Failure> {
    let zset = ctx.keys.read::<Zset>(&args[1])?;
    reply.array(args.len() - 2);
    for member in args.from(2).iter() {
        match zset.and_then(|zset| zset.score(member)) {
            Some(score) => reply_place(Place::from_score(score), reply),
            None => reply.null_array(),
        }
    }
    Ok(())
}

/// GEORADIUS key longitude latitude radius M | KM | FT | MI [WITHCOORD] [WITHDIST] [WITHHASH] [COUNT count [ANY]]
/// [ASC | DESC] [STORE key | STOREDIST key]
pub(crate) fn georadius(
    ctx: &mut Ctx<'_>,
    args: Args<'_>,
    reply: &mut Reply<'_>,
) -> Result<(), Failure> {
    let words = Words::new(CommandId::Georadius, &args, 2);
    Ok(radius(ctx, &args[1], words, reply)?)
}

/// GEORADIUS_RO: the same without STORE.
pub(crate) fn georadius_ro(
    ctx: &mut Ctx<'_>,
    args: Args<'_>,
    reply: &mut Reply<'_>,
) -> Result<(), Failure> {
    let words = Words::new(CommandId::GeoradiusRo, &args, 2);
    Ok(radius(ctx, &args[1], words, reply)?)
}

/// GEORADIUSBYMEMBER key member radius M | KM | FT | MI [… as GEORADIUS]
pub(crate) fn georadiusbymember(
    ctx: &mut Ctx<'_>,
    args: Args<'_>,
    reply: &mut Reply<'_>,
) -> Result<(), Failure> {
    let words = Words::new(CommandId::Georadiusbymember, &args, 2);
    Ok(radius_by_member(ctx, &args[1], words, reply)?)
}

/// GEORADIUSBYMEMBER_RO: the same without STORE.
pub(crate) fn georadiusbymember_ro(
    ctx: &mut Ctx<'_>,
    args: Args<'_>,
    reply: &mut Reply<'_>,
) -> Result<(), Failure> {
    let words = Words::new(CommandId::GeoradiusbymemberRo, &args, 2);
    Ok(radius_by_member(ctx, &args[1], words, reply)?)
}

/// GEOSEARCH key FROMMEMBER member | FROMLONLAT longitude latitude BYRADIUS radius unit | BYBOX width height unit
/// [ASC | DESC] [COUNT count [ANY]] [WITHCOORD] [WITHDIST] [WITHHASH]
///
/// In place of the FROM and the BY: BYPOLYGON corners longitude latitude [longitude latitude …], as in Valkey 9. Distances
/// are then in metres from the middle of the corners.
pub(crate) fn geosearch(
    ctx: &mut Ctx<'_>,
    args: Args<'_>,
    reply: &mut Reply<'_>,
) -> Result<(), Failure> {
    let zset = ctx.keys.read::<Zset>(&args[1])?;
    let words = Words::new(CommandId::Geosearch, &args, 2);
    let options = Options::parse(words, zset)?;
    Ok(run(ctx, &args[1], options, reply)?)
}

/// GEOSEARCHSTORE destination source [… as GEOSEARCH, without WITH…] [STOREDIST]
pub(crate) fn geosearchstore(
    ctx: &mut Ctx<'_>,
    args: Args<'_>,
    reply: &mut Reply<'_>,
) -> Result<(), Failure> {
    let zset = ctx.keys.read::<Zset>(&args[2])?;
    let words = Words::new(CommandId::Geosearchstore, &args, 3);
    let mut options = Options::parse(words, zset)?;
    options.store = Some(&args[1]);
    Ok(run(ctx, &args[2], options, reply)?)
}

fn radius(
    ctx: &mut Ctx<'_>,
    key: &[u8],
    mut words: Words<'_>,
    reply: &mut Reply<'_>,
) -> Result<(), Error> {
    let zset = ctx.keys.read::<Zset>(key)?;
    let centre = place(&mut words)?;
    let shape = circle(&mut words)?;
    let mut options = Options::parse(words, zset)?;
    (options.centre, options.shape) = (Some(centre), Some(shape));
    run(ctx, key, options, reply)
}

fn radius_by_member(
    ctx: &mut Ctx<'_>,
    key: &[u8],
    mut words: Words<'_>,
    reply: &mut Reply<'_>,
) -> Result<(), Error> {
    let zset = ctx.keys.read::<Zset>(key)?;
    let given = match zset {
        // If the key is missing, Redis checks neither the member nor the radius.
        None => {
            words.take_args(3);
            None
        }
        Some(zset) => Some((place_of(zset, words.read()?)?, circle(&mut words)?)),
    };
    let mut options = Options::parse(words, zset)?;
    if let Some((centre, shape)) = given {
        (options.centre, options.shape) = (Some(centre), Some(shape));
    }
    run(ctx, key, options, reply)
}

#[derive(Clone, Copy, PartialEq)]
enum Order {
    Ascending,
    Descending,
}

/// Options of a search.
struct Options<'a> {
    id: CommandId,
    centre: Option<Place>,
    /// Area that is searched, and the metres of its unit.
    shape: Option<(Shape, f64)>,
    order: Option<Order>,
    count: Option<usize>,
    any: bool,
    with_distance: bool,
    with_hash: bool,
    with_place: bool,
    store: Option<&'a [u8]>,
    store_distance: bool,
}

impl<'a> Options<'a> {
    fn parse(mut words: Words<'a>, zset: Option<&Zset>) -> Result<Options<'a>, Error> {
        let id = words.id();
        let mut options = Options {
            id,
            centre: None,
            shape: None,
            order: None,
            count: None,
            any: false,
            with_distance: false,
            with_hash: false,
            with_place: false,
            store: None,
            store_distance: false,
        };
        let may_name_store = matches!(id, CommandId::Georadius | CommandId::Georadiusbymember);
        let (mut from_member, mut from_place) = (false, false);
        while !words.is_empty() {
            let circled = matches!(options.shape, Some((Shape::Circle { .. }, _)));
            let boxed = matches!(options.shape, Some((Shape::Box { .. }, _)));
            let cornered = matches!(options.shape, Some((Shape::Polygon { .. }, _)));
            // These three are parsed where a result is stored, too, and then refused.
            if words.undocumented("WITHDIST") {
                options.with_distance = true;
            } else if words.undocumented("WITHHASH") {
                options.with_hash = true;
            } else if words.undocumented("WITHCOORD") {
                options.with_place = true;
            } else if words.flag("ANY") {
                options.any = true;
            } else if words.flag("ASC") {
                options.order = Some(Order::Ascending);
            } else if words.flag("DESC") {
                options.order = Some(Order::Descending);
            } else if let Some(count) = words.pair::<i64>("COUNT")? {
                if count <= 0 {
                    return Err(Error::line("ERR COUNT must be > 0"));
                }
                options.count = Some(usize::try_from(count).unwrap_or(usize::MAX));
            } else if may_name_store
                && let Some((by_distance, key)) =
                    words.value_of(&[("STORE", false), ("STOREDIST", true)])
            {
                // The last of the two options counts. The key specs know the last of each.
                options.store = Some(key);
                options.store_distance = by_distance;
            } else if id == CommandId::Geosearchstore && words.flag("STOREDIST") {
                options.store_distance = true;
            } else if !options.is_geosearch() {
                return Err(Error::Syntax);
            } else if !from_place
                && !cornered
                && let Some(member) = words.value("FROMMEMBER")
            {
                if let Some(zset) = zset {
                    options.centre = Some(place_of(zset, member)?);
                }
                from_member = true;
            } else if !from_member && !cornered && words.len() > 2 && words.flag("FROMLONLAT") {
                options.centre = Some(place(&mut words)?);
                from_place = true;
            } else if !boxed && !cornered && words.len() > 2 && words.flag("BYRADIUS") {
                options.shape = Some(circle(&mut words)?);
            } else if !circled && !cornered && words.len() > 3 && words.flag("BYBOX") {
                options.shape = Some(rectangle(&mut words)?);
            } else if !(from_member || from_place || circled || boxed)
                && let Some(count) = words.value("BYPOLYGON")
            {
                let corners = polygon(&mut words, count)?;
                options.centre = Some(Shape::middle(&corners));
                options.shape = Some((Shape::Polygon { corners }, 1.0));
            } else {
                return Err(Error::Syntax);
            }
        }
        let cornered = matches!(options.shape, Some((Shape::Polygon { .. }, _)));
        options.check(from_member || from_place || cornered, words.written_name())?;
        Ok(options)
    }

    /// Returns true for GEOSEARCH and GEOSEARCHSTORE, whose centre and area are options, too.
    fn is_geosearch(&self) -> bool {
        matches!(self.id, CommandId::Geosearch | CommandId::Geosearchstore)
    }

    /// Checks the rules that concern several options.
    fn check(&self, has_centre: bool, name: &[u8]) -> Result<(), Error> {
        let stores = self.store.is_some() || self.id == CommandId::Geosearchstore;
        if stores && (self.with_distance || self.with_hash || self.with_place) {
            return Err(Error::line(if self.is_geosearch() {
                "ERR GEOSEARCHSTORE is not compatible with WITHDIST, WITHHASH and WITHCOORD options"
            } else {
                "ERR STORE option in GEORADIUS is not compatible with WITHDIST, WITHHASH and WITHCOORD options"
            }));
        }
        if self.is_geosearch() {
            if !has_centre {
                let before = "ERR exactly one of FROMMEMBER or FROMLONLAT can be specified for ";
                return Err(Error::quoting(before, name, ""));
            }
            if self.shape.is_none() {
                let before = "ERR exactly one of BYRADIUS and BYBOX can be specified for ";
                return Err(Error::quoting(before, name, ""));
            }
        }
        if self.any && self.count.is_none() {
            return Err(Error::line("ERR the ANY argument requires COUNT argument"));
        }
        Ok(())
    }
}

/// A member that a search has found.
struct Found<'a> {
    member: Element<'a>,
    score: f64,
    place: Place,
    /// Distance in metres.
    distance: f64,
}

fn run(
    ctx: &mut Ctx<'_>,
    key: &[u8],
    mut options: Options<'_>,
    reply: &mut Reply<'_>,
) -> Result<(), Error> {
    let found = ctx.keys.find(key, Trace::Quiet);
    let zset = found.map(|found| found.collection::<Zset>()).transpose()?;
    let (mut found, mut unit) = (Vec::new(), 1.0);
    let asked = (options.centre, options.shape.take());
    if let (Some(zset), (Some(centre), Some((shape, metres)))) = (zset, asked) {
        unit = metres;
        found = search(zset, &Search { centre, shape }, &options);
    }
    match options.store {
        None => {
            reply_found(&found, unit, &options, reply);
            Ok(())
        }
        Some(destination) => {
            let mut result = Zset::new();
            for Found {
                member,
                score,
                distance,
                ..
            } in &found
            {
                let score = if options.store_distance {
                    distance / unit
                } else {
                    *score
                };
                let flags = AddFlags::default();
                let mut text = IntBuf::new();
                result
                    .add(
                        member.bytes(&mut text),
                        score,
                        flags,
                        &ctx.keys.local.limits,
                    )
                    .map_err(add_error)?;
            }
            let event = match options.is_geosearch() {
                true => "geosearchstore",
                false => "georadiusstore",
            };
            // Each member counts as a change, and so does the key.
            let further = result.len().saturating_sub(1);
            store(ctx, destination, result, event, reply);
            ctx.keys.count_changes(further as u64);
            Ok(())
        }
    }
}

/// Returns the members inside the area, in order, and at most the requested number.
fn search<'a>(zset: &'a Zset, search: &Search, options: &Options<'_>) -> Vec<Found<'a>> {
    let count = options.count.unwrap_or(usize::MAX);
    let enough = if options.any { count } else { usize::MAX };
    let mut found = Vec::new();
    'ranges: for [min, max] in search.score_ranges() {
        let bound = |score, exclusive| ScoreBound { score, exclusive };
        let range = ScoreRange {
            min: bound(min, false),
            max: bound(max, true),
        };
        for (member, score) in zset.range(zset.score_range(&range)) {
            if found.len() >= enough {
                break 'ranges;
            }
            let place = Place::from_score(score);
            if let Some(distance) = search.measure(place) {
                found.push(Found {
                    member,
                    score,
                    place,
                    distance,
                });
            }
        }
    }
    // A bounded number means the nearest ones, unless ANY is given.
    let order = options
        .order
        .or((options.count.is_some() && !options.any).then_some(Order::Ascending));
    if let Some(order) = order {
        let mut compare = |a: &Found<'_>, b: &Found<'_>| {
            let ascending = a
                .distance
                .partial_cmp(&b.distance)
                .unwrap_or(Ordering::Less);
            match order {
                Order::Ascending => ascending,
                Order::Descending => ascending.reverse(),
            }
        };
        if count < found.len() {
            partial_sort(&mut found, 0..=count - 1, &mut compare);
        } else {
            found.sort_by(compare);
        }
    }
    found.truncate(count);
    found
}

fn reply_found(found: &[Found<'_>], unit: f64, options: &Options<'_>, reply: &mut Reply<'_>) {
    let extras = [options.with_distance, options.with_hash, options.with_place];
    let extras = extras.into_iter().filter(|with| *with).count();
    reply.array(found.len());
    for found in found {
        if extras > 0 {
            reply.array(1 + extras);
        }
        crate::element::bulk(reply, found.member);
        if options.with_distance {
            reply_distance(found.distance / unit, reply);
        }
        if options.with_hash {
            reply.integer(found.score as i64);
        }
        if options.with_place {
            reply_place(found.place, reply);
        }
    }
}

/// Writes a distance with four digits after the point, halves rounded to even.
pub(crate) fn reply_distance(distance: f64, reply: &mut Reply<'_>) {
    let tenths_of_thousandths = (distance * 10_000.0).round_ties_even() as i64;
    let (whole, rest) = (
        tenths_of_thousandths / 10_000,
        (tenths_of_thousandths % 10_000).abs(),
    );
    reply.bulk(format!("{whole}.{rest:04}").as_bytes());
}

fn reply_place(place: Place, reply: &mut Reply<'_>) {
    reply.array(2);
    reply.double(place.longitude);
    reply.double(place.latitude);
}

/// Reads a longitude and a latitude.
fn place(words: &mut Words<'_>) -> Result<Place, Error> {
    let (longitude, latitude) = (words.read()?, words.read()?);
    Place::new(longitude, latitude).ok_or_else(|| {
        Error::Line(
            format!("ERR invalid longitude,latitude pair {longitude:.6},{latitude:.6}").into(),
        )
    })
}

fn place_of(zset: &Zset, member: &[u8]) -> Result<Place, Error> {
    zset.score(member)
        .map(Place::from_score)
        .ok_or(Error::line("ERR could not decode requested zset member"))
}

/// Reads a circle, and the metres of its unit.
fn circle(words: &mut Words<'_>) -> Result<(Shape, f64), Error> {
    let radius = size(words, "ERR need numeric radius")?;
    if radius < 0.0 {
        return Err(Error::line("ERR radius cannot be negative"));
    }
    let metres = metres_per(words)?;
    let radius = radius * metres;
    Ok((Shape::Circle { radius }, metres))
}

/// Reads as many places as the number of corners.
fn polygon(words: &mut Words<'_>, count: &[u8]) -> Result<Vec<Place>, Error> {
    const INT: std::ops::RangeInclusive<i64> = i32::MIN as i64..=i32::MAX as i64;
    const BAD_COUNT: Error = Error::line("ERR invalid number of vertices");
    let count = usize::try_from(integer_in(count, INT, BAD_COUNT)?).unwrap_or(0);
    if count < 3 || words.len() / 2 < count {
        let after = " BYPOLYGON must have at least 3 vertices";
        return Err(Error::quoting("ERR ", words.written_name(), after));
    }
    (0..count).map(|_| place(words)).collect()
}

/// Reads a box, and the metres of its unit.
fn rectangle(words: &mut Words<'_>) -> Result<(Shape, f64), Error> {
    let width = size(words, "ERR need numeric width")?;
    let height = size(words, "ERR need numeric height")?;
    if width < 0.0 || height < 0.0 {
        return Err(Error::line("ERR height or width cannot be negative"));
    }
    let metres = metres_per(words)?;
    let (width, height) = (width * metres, height * metres);
    Ok((Shape::Box { width, height }, metres))
}

fn size(words: &mut Words<'_>, error: &'static str) -> Result<f64, Error> {
    words.read().map_err(|_| Error::line(error))
}

/// Units of distances, with the metres of each.
pub(crate) const UNITS: &[(&str, f64)] =
    &[("M", 1.0), ("KM", 1000.0), ("FT", 0.3048), ("MI", 1609.34)];

fn metres_per(words: &mut Words<'_>) -> Result<f64, Error> {
    words.one_of(UNITS).ok_or(Error::line(
        "ERR unsupported unit provided. please use M, KM, FT, MI",
    ))
}

#[cfg(test)]
mod tests {
    use redline_resp::Proto;

    use crate::testing::TestDb;

    fn sicily() -> TestDb {
        let mut db = TestDb::new();
        db.script(&[(
            "GEOADD g 13.361389 38.115556 Palermo 15.087269 37.502669 Catania",
            ":2",
        )]);
        assert_eq!(db.events(), ["zadd g"]);
        db
    }

    #[test]
    fn places_and_distances() {
        let mut db = sicily();
        db.script(&[
            ("ZSCORE g Palermo", "$16|3479099956230698"),
            ("GEODIST g Palermo Catania", "$11|166274.1516"),
            ("GEODIST g Palermo Catania km", "$8|166.2742"),
            ("GEODIST g Palermo Palermo", "$6|0.0000"),
            ("GEODIST g Palermo none", "$-1"),
            ("GEODIST none a b", "$-1"),
            ("GEOHASH g Palermo none", "*2|$11|sqc8b49rny0|$-1"),
            (
                "GEOPOS g Palermo none",
                "*2|*2|$18|13.361389338970184|$16|38.1155563954963|*-1",
            ),
            ("GEOADD g NX 0 0 Palermo", ":0"),
            ("GEOADD g CH 0 0 Palermo", ":1"),
            ("GEOADD g XX CH 1 1 none", ":0"),
            (
                "GEOADD g 181 0 x",
                "-ERR invalid longitude,latitude pair 181.000000,0.000000",
            ),
            ("GEOADD g 1 0 a b", "-ERR syntax error"),
            (
                "GEODIST g Palermo Catania x",
                "-ERR unsupported unit provided. please use M, KM, FT, MI",
            ),
        ]);
        db.proto = Proto::Resp3;
        assert_eq!(
            db.words("GEOPOS g Catania"),
            "*1|*2|,15.087267458438873|,37.50266842333162"
        );
    }

    #[test]
    fn searches() {
        let mut db = sicily();
        db.words("GEOADD g 12.758489 38.788135 edge1 17.241510 38.788135 edge2");
        db.script(&[
            (
                "GEOSEARCH g FROMLONLAT 15 37 BYRADIUS 200 km ASC",
                "*2|$7|Catania|$7|Palermo",
            ),
            (
                "GEOSEARCH g FROMLONLAT 15 37 BYBOX 400 400 km ASC WITHDIST",
                "*4|*2|$7|Catania|$7|56.4413|*2|$7|Palermo|$8|190.4424|*2|$5|edge2|$8|279.7403|*2|$5|edge1|$8|279.7405",
            ),
            (
                "GEOSEARCH g BYPOLYGON 4 12 37 16 37 16 39 12 39 WITHDIST ASC",
                "*3|*2|$7|Palermo|$10|56987.4933|*2|$7|Catania|$11|111411.0839|*2|$5|edge1|$11|138085.5878",
            ),
            (
                "GEOSEARCH g BYPOLYGON 5 12 37 14 38.5 16 37 16 39 12 39 ASC",
                "*2|$7|Palermo|$5|edge1",
            ),
            ("GEOSEARCH g BYPOLYGON 3 12 37 12 37 12 37 ASC", "*0"),
            (
                "GEOSEARCH g BYPOLYGON 3 12 37 16 37 16",
                "-ERR GEOSEARCH BYPOLYGON must have at least 3 vertices",
            ),
            (
                "GEOSEARCH g BYPOLYGON 99999999999 12 37 16 37",
                "-ERR invalid number of vertices",
            ),
            (
                "GEOSEARCH g BYPOLYGON 3 12 37 16 37 16 39 FROMMEMBER Palermo",
                "-ERR syntax error",
            ),
            (
                "GEORADIUS g 15 37 200 km DESC COUNT 1 WITHHASH",
                "*1|*2|$7|Palermo|:3479099956230698",
            ),
            ("GEORADIUSBYMEMBER g Palermo 1 m", "*1|$7|Palermo"),
            ("GEORADIUSBYMEMBER none x abc xx", "*0"),
            ("GEORADIUS g 15 37 200 km STORE d", ":2"),
            ("ZRANGE d 0 -1", "*2|$7|Palermo|$7|Catania"),
            ("GEORADIUS g 15 37 200 km STORE n1 STORE n2", ":2"),
            ("GEORADIUS g 15 37 200 km STOREDIST n3 STOREDIST n4", ":2"),
            ("GEORADIUS g 15 37 200 km STOREDIST STORE STORE n5", ":2"),
            ("GEORADIUSBYMEMBER g Palermo 1 m STORE STORE STOREDIST n6", ":1"),
            ("EXISTS n1 n3 store STORE", ":0"),
            ("ZCARD n2", ":2"),
            ("ZRANGE n4 0 0 WITHSCORES", "*2|$7|Catania|$16|56.4412578701582"),
            ("ZCARD n5", ":2"),
            ("ZRANGE n6 0 -1 WITHSCORES", "*2|$7|Palermo|$1|0"),
            (
                "GEOSEARCHSTORE d g FROMMEMBER Catania BYRADIUS 1 m STOREDIST",
                ":1",
            ),
            ("ZRANGE d 0 -1 WITHSCORES", "*2|$7|Catania|$1|0"),
            (
                "GEOSEARCHSTORE d none FROMMEMBER Catania BYRADIUS 1 m",
                ":0",
            ),
            ("EXISTS d", ":0"),
            (
                "GEORADIUS_RO g 15 37 200 km STORE d",
                "-ERR syntax error",
            ),
            (
                "GEOSEARCH g BYRADIUS 200 km ASC DESC",
                "-ERR exactly one of FROMMEMBER or FROMLONLAT can be specified for GEOSEARCH",
            ),
            (
                "GEOSEARCH g FROMMEMBER nobody BYRADIUS 200 km",
                "-ERR could not decode requested zset member",
            ),
            (
                "GEOSEARCH g FROMLONLAT 15 37 BYRADIUS 200 km ANY",
                "-ERR the ANY argument requires COUNT argument",
            ),
        ]);
        db.events();
        db.words("GEORADIUS g 15 37 200 km STOREDIST d");
        db.words("GEOSEARCHSTORE d g FROMLONLAT 0 0 BYRADIUS 1 m");
        assert_eq!(db.events(), ["georadiusstore d", "del d"]);
    }
}
