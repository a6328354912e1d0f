//! Areas of geometries: the GIS commands of TairGis. What a geometry is, and how two relate, is in `redline_types::gis`.

use std::ops::ControlFlow;

use redline_keyspace::Classes;
use redline_resp::{Args, Reply};
use redline_spec::CommandId;
use redline_types::{
    Area,
    geo::Place,
    gis::{
        Bounds, Circle, Geometry, Refused, Shape, Steps, TooLarge, circle::areal, geometry::Point,
    },
};

use crate::{
    Ctx, Error, Failure, Words,
    geo::{UNITS, reply_distance},
};

/// Largest number of comparisons of edges in a search.
const STEPS_MAX: usize = 4_000_000;
const INVALID: Error = Error::line("ERR invalid geometry");

/// GIS.ADD area name wkt [name wkt …]
pub(crate) fn gis_add(
    ctx: &mut Ctx<'_>,
    args: Args<'_>,
    reply: &mut Reply<'_>,
) -> Result<(), Failure> {
    let words = Words::new(CommandId::GisAdd, &args, 2);
    if !words.len().is_multiple_of(2) {
        return Err(words.wrong_arity().into());
    }
    let key = &args[1];
    ctx.keys.read::<Area>(key)?;
    let texts = args.from(3);
    let texts = (0..texts.len()).step_by(2).map(|at| geometry(&texts[at]));
    let geometries: Vec<Geometry> = texts.collect::<Result<_, _>>()?;
    let count = geometries.len();
    ctx.keys.write_or_new::<Area, _>(key, |area, _| {
        for (at, geometry) in geometries.into_iter().enumerate() {
            area.set(&args[2 + at * 2], geometry);
        }
    })?;
    ctx.keys.changed(Classes::MODULE, "gis.add", key);
    ctx.keys.count_changes(count as u64 - 1);
    reply.integer(count as i64);
    Ok(())
}

/// GIS.GET area name
pub(crate) fn gis_get(
    ctx: &mut Ctx<'_>,
    args: Args<'_>,
    reply: &mut Reply<'_>,
) -> Result<(), Failure> {
    let area = ctx.keys.read::<Area>(&args[1])?;
    match area.and_then(|area| area.get(&args[2])) {
        Some(geometry) => reply.bulk(geometry.text().as_bytes()),
        None => reply.null(),
    }
    Ok(())
}

/// GIS.GETALL area [WITHOUTWKT]
pub(crate) fn gis_getall(
    ctx: &mut Ctx<'_>,
    args: Args<'_>,
    reply: &mut Reply<'_>,
) -> Result<(), Failure> {
    let mut words = Words::new(CommandId::GisGetall, &args, 2);
    let without_text = words.flag("WITHOUTWKT");
    words.end()?;
    let Some(area) = ctx.keys.read::<Area>(&args[1])? else {
        reply.null();
        return Ok(());
    };
    let members = area.iter();
    reply.array(members.len() * if without_text { 1 } else { 2 });
    for member in members {
        reply.bulk(&member.name);
        if !without_text {
            reply.bulk(member.geometry.text().as_bytes());
        }
    }
    Ok(())
}

/// GIS.DEL area name
pub(crate) fn gis_del(
    ctx: &mut Ctx<'_>,
    args: Args<'_>,
    reply: &mut Reply<'_>,
) -> Result<(), Failure> {
    let key = &args[1];
    let removed = ctx
        .keys
        .write::<Area, _>(key, |area, _| area.remove(&args[2]))?;
    if removed == Some(true) {
        ctx.keys.changed(Classes::MODULE, "gis.del", key);
        reply.ok();
    } else {
        reply.null();
    }
    Ok(())
}

/// GIS.CONTAINS area wkt [WITHOUTWKT]
pub(crate) fn gis_contains(
    ctx: &mut Ctx<'_>,
    args: Args<'_>,
    reply: &mut Reply<'_>,
) -> Result<(), Failure> {
    let words = Words::new(CommandId::GisContains, &args, 2);
    Ok(related(
        ctx,
        &args[1],
        words,
        reply,
        |own, asked, steps| own.covers(asked, steps),
    )?)
}

/// GIS.WITHIN area wkt [WITHOUTWKT]
pub(crate) fn gis_within(
    ctx: &mut Ctx<'_>,
    args: Args<'_>,
    reply: &mut Reply<'_>,
) -> Result<(), Failure> {
    let words = Words::new(CommandId::GisWithin, &args, 2);
    Ok(related(
        ctx,
        &args[1],
        words,
        reply,
        |own, asked, steps| asked.covers(own, steps),
    )?)
}

/// GIS.INTERSECTS area wkt [WITHOUTWKT]
pub(crate) fn gis_intersects(
    ctx: &mut Ctx<'_>,
    args: Args<'_>,
    reply: &mut Reply<'_>,
) -> Result<(), Failure> {
    let words = Words::new(CommandId::GisIntersects, &args, 2);
    Ok(related(ctx, &args[1], words, reply, Shape::meets)?)
}

/// GIS.SEARCH area wkt | GEOM wkt | RADIUS longitude latitude distance unit | MEMBER name distance unit [COUNT count]
/// [LIMIT limit] [ASC | DESC] [WITHDIST] [WITHOUTWKT]
pub(crate) fn gis_search(
    ctx: &mut Ctx<'_>,
    args: Args<'_>,
    reply: &mut Reply<'_>,
) -> Result<(), Failure> {
    let Some(area) = ctx.keys.read::<Area>(&args[1])? else {
        reply.array(0);
        return Ok(());
    };
    let search = Search::parse(Words::new(CommandId::GisSearch, &args, 2), area)?;
    let Some(range) = &search.range else {
        return Err(INVALID.into());
    };
    let limit = search.limit.unwrap_or(usize::MAX);
    let mut found = match range {
        Range::Circle(circle, _) => matches(area, circle.boxes(), limit, |geometry, steps| {
            circle.finds(geometry, steps)
        }),
        Range::Shape(shape, bounds) => matches(area, bounds, limit, |geometry, steps| {
            areal(geometry).meets(shape, steps)
        }),
    }?;
    for found in &mut found {
        let bounds = area.get(found.name).and_then(Geometry::bounds);
        found.distance = bounds.map_or(0.0, |bounds| range.distance(bounds.centre()));
    }
    let order = search.order.or(search.count.map(|_| Order::Nearest));
    let by_distance = |a: &Found<'_>, b: &Found<'_>| a.distance.total_cmp(&b.distance);
    match order {
        Some(Order::Nearest) => found.sort_by(by_distance),
        Some(Order::Farthest) => found.sort_by(|a, b| by_distance(b, a)),
        None => {}
    }
    found.truncate(search.count.unwrap_or(usize::MAX));
    write(reply, &found, !search.without_text, search.with_distance);
    Ok(())
}

/// A member that a search has found.
struct Found<'a> {
    name: &'a [u8],
    geometry: &'a Geometry,
    /// From where the search is, in its unit.
    distance: f64,
}

#[derive(Clone, Copy)]
enum Order {
    Nearest,
    Farthest,
}

/// Where GIS.SEARCH looks.
enum Range {
    /// With the metres of its unit.
    Circle(Circle, f64),
    /// With the box around it, if it has a point.
    Shape(Shape, Vec<Bounds>),
}

impl Range {
    fn of(geometry: &Geometry) -> Range {
        let bounds = geometry.bounds();
        Range::Shape(Shape::of(&geometry.parts()), bounds.into_iter().collect())
    }

    /// Returns the distance of a point from the middle, in the unit.
    fn distance(&self, point: Point) -> f64 {
        match self {
            Range::Circle(circle, unit) => circle.distance(point) / unit,
            Range::Shape(_, bounds) => {
                let centre = bounds.first().map_or([0.0; 2], Bounds::centre);
                place(centre).distance(place(point))
            }
        }
    }
}

#[derive(Default)]
struct Search {
    range: Option<Range>,
    count: Option<usize>,
    limit: Option<usize>,
    order: Option<Order>,
    with_distance: bool,
    without_text: bool,
}

impl Search {
    fn parse(mut words: Words<'_>, area: &Area) -> Result<Search, Error> {
        let mut search = Search::default();
        let mut is_first = true;
        while !words.is_empty() {
            let range = search.range.is_none();
            if range && words.flag("RADIUS") {
                let missing = Error::line("ERR need longitude, latitude, meters, unit");
                let [longitude, latitude, metres] = some(&mut words, missing)?;
                let unit = words.one_of(UNITS);
                let centre = [
                    number(longitude, "ERR need numeric longitude")?,
                    number(latitude, "ERR need numeric latitude")?,
                ];
                search.range = Some(circle(centre, metres, unit)?);
            } else if range && words.flag("MEMBER") {
                let missing = Error::line("ERR need member, meters, unit");
                let [name, metres] = some(&mut words, missing)?;
                let unit = words.one_of(UNITS);
                let member = area.get(name).ok_or(Error::line("ERR member not found"))?;
                let centre = member.point();
                let centre = centre.ok_or(Error::line("ERR member must be point"))?;
                search.range = Some(circle(centre, metres, unit)?);
            } else if range && words.flag("GEOM") {
                let text = words.next().ok_or(Error::line("ERR need geometry"))?;
                search.range = Some(Range::of(&geometry(text)?));
            } else if words.flag("COUNT") {
                search.count = Some(above_zero(
                    words.next(),
                    [
                        "ERR count need number",
                        "ERR count must be number",
                        "ERR count must be > 0",
                    ],
                )?);
            } else if words.flag("LIMIT") {
                search.limit = Some(above_zero(
                    words.next(),
                    [
                        "ERR limit need number",
                        "ERR limit must be number",
                        "ERR limit must be > 0",
                    ],
                )?);
            } else if words.flag("WITHDIST") {
                search.with_distance = true;
            } else if words.flag("WITHOUTWKT") || words.flag("WITHOUTVALUE") {
                search.without_text = true;
            } else if words.flag("WITHVALUE") {
                search.without_text = false;
            } else if let Some(order) =
                words.one_of(&[("ASC", Order::Nearest), ("DESC", Order::Farthest)])
            {
                search.order.get_or_insert(order);
            } else if is_first && let Some(text) = words.next() {
                search.range = Some(Range::of(&geometry(text)?));
            } else {
                return Err(Error::Syntax);
            }
            is_first = false;
        }
        Ok(search)
    }
}

/// Answers with the members that relate to the geometry of the call.
fn related(
    ctx: &mut Ctx<'_>,
    key: &[u8],
    mut words: Words<'_>,
    reply: &mut Reply<'_>,
    relates: fn(&Shape, &Shape, &mut Steps) -> Result<bool, TooLarge>,
) -> Result<(), Error> {
    let Some(area) = ctx.keys.read::<Area>(key)? else {
        reply.array(0);
        return Ok(());
    };
    let asked = geometry(words.read()?)?;
    let without_text = words.flag("WITHOUTWKT");
    words.end()?;
    let shape = Shape::of(&asked.parts());
    let bounds: Vec<Bounds> = asked.bounds().into_iter().collect();
    let found = matches(area, &bounds, usize::MAX, |geometry, steps| {
        relates(&Shape::of(&geometry.parts()), &shape, steps)
    })?;
    write(reply, &found, !without_text, false);
    Ok(())
}

/// Returns the members whose box meets one of `boxes` and of which `holds` is true, up to a number of them.
fn matches<'a>(
    area: &'a Area,
    boxes: &[Bounds],
    limit: usize,
    holds: impl Fn(&Geometry, &mut Steps) -> Result<bool, TooLarge>,
) -> Result<Vec<Found<'a>>, Error> {
    let (mut found, mut steps) = (Vec::new(), Steps(STEPS_MAX));
    let end = area.near(boxes, |member| {
        match holds(&member.geometry, &mut steps) {
            Err(TooLarge) => return ControlFlow::Break(false),
            Ok(false) => {}
            Ok(true) => found.push(Found {
                name: &member.name,
                geometry: &member.geometry,
                distance: 0.0,
            }),
        }
        match found.len() < limit {
            true => ControlFlow::Continue(()),
            false => ControlFlow::Break(true),
        }
    });
    match end {
        None | Some(true) => Ok(found),
        Some(false) => Err(Error::line(
            "ERR the geometries have too many edges for one search, ask for a smaller range",
        )),
    }
}

fn write(reply: &mut Reply<'_>, found: &[Found<'_>], with_text: bool, with_distance: bool) {
    reply.array(2);
    reply.integer(found.len() as i64);
    reply.array(found.len() * (1 + usize::from(with_text) + usize::from(with_distance)));
    for found in found {
        reply.bulk(found.name);
        if with_text {
            reply.bulk(found.geometry.text().as_bytes());
        }
        if with_distance {
            reply_distance(found.distance, reply);
        }
    }
}

fn place([longitude, latitude]: Point) -> Place {
    Place {
        longitude,
        latitude,
    }
}

fn geometry(text: &[u8]) -> Result<Geometry, Error> {
    Geometry::parse(text).map_err(|refused| match refused {
        Refused::Invalid => INVALID,
        Refused::TooLarge => Error::line("ERR geometry has more than 65536 points"),
    })
}

/// Takes values that a unit follows.
fn some<'a, const N: usize>(words: &mut Words<'a>, missing: Error) -> Result<[&'a [u8]; N], Error> {
    if words.len() <= N {
        return Err(missing);
    }
    let taken = words.take_args(N).ok_or(Error::Syntax)?;
    Ok(std::array::from_fn(|at| taken.get(at).unwrap_or_default()))
}

fn number(word: &[u8], error: &'static str) -> Result<f64, Error> {
    redline_types::number::parse_f64(word).ok_or(Error::line(error))
}

fn above_zero(word: Option<&[u8]>, errors: [&'static str; 3]) -> Result<usize, Error> {
    let [missing, not_number, too_small] = errors.map(Error::line);
    let number = redline_types::number::parse_i64(word.ok_or(missing)?).ok_or(not_number)?;
    match usize::try_from(number) {
        Ok(number @ 1..) => Ok(number),
        _ => Err(too_small),
    }
}

fn circle(centre: Point, metres: &[u8], unit: Option<f64>) -> Result<Range, Error> {
    let distance = number(metres, "ERR need numeric meters")?;
    let unit = unit.ok_or(Error::line(
        "ERR unsupported unit provided. please use m, km, ft, mi",
    ))?;
    if centre[0].abs() > 180.0 || centre[1].abs() > 90.0 {
        return Err(Error::line("ERR invalid longitude/latitude pair"));
    }
    if distance < 0.0 {
        return Err(Error::line("ERR radius cannot be negative"));
    }
    Ok(Range::Circle(
        Circle::new(place(centre), distance * unit),
        unit,
    ))
}

#[cfg(test)]
mod tests {
    use crate::testing::TestDb;

    fn run(db: &mut TestDb, call: &[&str], reply: &str) {
        assert_eq!(db.run(call), reply, "{call:?}");
    }

    #[test]
    fn places_of_sicily_are_found_by_distance() {
        let mut db = TestDb::new();
        let places = [
            "GIS.ADD",
            "s",
            "Palermo",
            "POINT (13.361389 38.115556)",
            "Catania",
            "POINT(15.087269 37.502669)",
        ];
        run(&mut db, &places, ":2");
        assert_eq!((db.events(), db.changes), (vec!["gis.add s".into()], 2));
        let search = |more: &'static [&'static str]| {
            let mut call = vec!["GIS.SEARCH", "s"];
            call.extend(more);
            call
        };
        for (more, reply) in [
            (
                &[
                    "RADIUS",
                    "15",
                    "37",
                    "200",
                    "km",
                    "WITHDIST",
                    "ASC",
                    "WITHOUTWKT",
                ][..],
                "*2|:2|*4|$7|Catania|$7|56.4413|$7|Palermo|$8|190.4424",
            ),
            (
                &["RADIUS", "15", "37", "100", "km", "WITHOUTWKT"],
                "*2|:1|*1|$7|Catania",
            ),
            (
                &["MEMBER", "Palermo", "1", "m", "WITHVALUE"],
                "*2|:1|*2|$7|Palermo|$26|POINT(13.361389 38.115556)",
            ),
            (
                &[
                    "RADIUS",
                    "15",
                    "37",
                    "200",
                    "km",
                    "COUNT",
                    "1",
                    "DESC",
                    "WITHOUTVALUE",
                ],
                "*2|:1|*1|$7|Palermo",
            ),
            (&["LIMIT", "1", "RADIUS", "15", "37", "1", "mi"], "*2|:0|*0"),
            (
                &["RADIUS", "15", "37", "-1", "mi"],
                "-ERR radius cannot be negative",
            ),
            (
                &["RADIUS", "181", "37", "1", "mi"],
                "-ERR invalid longitude/latitude pair",
            ),
            (
                &["RADIUS", "15", "37", "1"],
                "-ERR need longitude, latitude, meters, unit",
            ),
            (
                &["MEMBER", "Palermo", "1"],
                "-ERR need member, meters, unit",
            ),
            (&["GEOM"], "-ERR need geometry"),
            (&["COUNT", "0"], "-ERR count must be > 0"),
            (&["LIMIT", "x"], "-ERR limit must be number"),
            (&["COUNT", "1"], "-ERR invalid geometry"),
            (
                &["GEOM", "POINT(1 1)", "GEOM", "POINT(1 1)"],
                "-ERR syntax error",
            ),
            (&["GEOM", "POINT(1 1)", "NONSENSE"], "-ERR syntax error"),
            (
                &["POINT(13.361389 38.115556)", "WITHOUTWKT"],
                "*2|:1|*1|$7|Palermo",
            ),
            (&["POLYGON EMPTY"], "*2|:0|*0"),
        ] {
            run(&mut db, &search(more), reply);
        }
    }

    #[test]
    fn nothing_is_changed_by_a_call_with_an_error() {
        let mut db = TestDb::new();
        let bad = ["GIS.ADD", "a", "one", "POINT(1 1)", "two", "POINT(1"];
        run(&mut db, &bad, "-ERR invalid geometry");
        run(&mut db, &["EXISTS", "a"], ":0");
        run(
            &mut db,
            &["GIS.ADD", "a", "one", "POINT(1 1)", "two"],
            "-ERR wrong number of arguments for 'gis.add' command",
        );
        let points = format!("MULTIPOINT({})", vec!["1 1"; 65_537].join(","));
        run(
            &mut db,
            &["GIS.ADD", "a", "one", &points],
            "-ERR geometry has more than 65536 points",
        );
        run(&mut db, &["GIS.ADD", "a", "one", "POINT(1 1)"], ":1");
        run(&mut db, &["GIS.DEL", "a", "one"], "+OK");
        run(&mut db, &["EXISTS", "a"], ":0");
        assert_eq!(db.events(), ["gis.add a", "gis.del a", "del a"]);
    }

    #[test]
    fn a_search_of_too_many_edges_is_refused() {
        let mut db = TestDb::new();
        let comb = |shift: f64| {
            let corners = (0..5_000).map(|at| {
                let (x, y) = (f64::from(at) / 100.0, f64::from(at % 2 * 9) + shift);
                format!("{x} {y}")
            });
            format!(
                "POLYGON(({},50 20,0 20))",
                corners.collect::<Vec<_>>().join(",")
            )
        };
        run(&mut db, &["GIS.ADD", "a", "one", &comb(0.0)], ":1");
        let call = ["GIS.CONTAINS", "a", &comb(0.5)];
        let error =
            "-ERR the geometries have too many edges for one search, ask for a smaller range";
        run(&mut db, &call, error);
    }
}
