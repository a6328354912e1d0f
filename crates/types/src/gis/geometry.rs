//! A geometry: its well-known text, read and written, and its bytes, which are well-known binary with the lowest byte first, as
//! TairGis stores them. Must not know areas, nor how geometries relate.
//!
//! The text is taken as TairGis takes it: rings need not be closed, a third and a fourth number need no letter, and the words are
//! in any case. The bytes keep the geometry as it was given.

use crate::number;

/// Largest number of points that a geometry has.
pub const POINTS_MAX: usize = 65_536;
/// Largest distance of a coordinate from zero.
pub const COORDINATE_MAX: f64 = 1e12;
/// Depth to which collections are nested.
const DEPTH_MAX: usize = 8;
/// First byte: numbers have their lowest byte first.
const LITTLE_ENDIAN: u8 = 1;

/// A point on the map, or a corner: longitude and latitude.
pub type Point = [f64; 2];

/// Why a text is no geometry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refused {
    /// It is not of the form, or a number is out of range.
    Invalid,
    /// It has more than [`POINTS_MAX`] points.
    TooLarge,
}

/// Kinds of geometries, with the numbers that their bytes have for them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Point = 1,
    LineString,
    Polygon,
    MultiPoint,
    MultiLineString,
    MultiPolygon,
    Collection,
}

/// Names of kinds; no name is the beginning of a later one.
const KINDS: [(Kind, &str); 7] = [
    (Kind::Collection, "GEOMETRYCOLLECTION"),
    (Kind::MultiLineString, "MULTILINESTRING"),
    (Kind::MultiPoint, "MULTIPOINT"),
    (Kind::MultiPolygon, "MULTIPOLYGON"),
    (Kind::LineString, "LINESTRING"),
    (Kind::Point, "POINT"),
    (Kind::Polygon, "POLYGON"),
];

impl Kind {
    fn of_number(number: u32) -> Option<Kind> {
        let mut kinds = KINDS.iter().map(|(kind, _)| *kind);
        kinds.find(|kind| *kind as u32 == number)
    }

    fn name(self) -> &'static str {
        let found = KINDS.iter().find(|(kind, _)| *kind == self);
        found.map_or("", |(_, name)| name)
    }

    /// Number of lists around a point.
    fn levels(self) -> usize {
        match self {
            Kind::Point | Kind::Collection => 0,
            Kind::LineString | Kind::MultiPoint => 1,
            Kind::Polygon | Kind::MultiLineString => 2,
            Kind::MultiPolygon => 3,
        }
    }
}

/// The numbers that a point has beside longitude and latitude.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Extras {
    z: bool,
    m: bool,
}

impl Extras {
    fn numbers(self) -> usize {
        2 + usize::from(self.z) + usize::from(self.m)
    }

    /// Number that is added to that of a kind.
    fn offset(self) -> u32 {
        1000 * (u32::from(self.z) + 2 * u32::from(self.m))
    }
}

/// A box along the axes.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Bounds {
    /// West and south.
    pub min: Point,
    /// East and north.
    pub max: Point,
}

impl Bounds {
    /// Returns the box of one point.
    pub fn of(point: Point) -> Bounds {
        Bounds {
            min: point,
            max: point,
        }
    }

    /// Returns the box of all points; `None` if there is none.
    pub fn around(points: impl IntoIterator<Item = Point>) -> Option<Bounds> {
        let boxes = points.into_iter().map(Bounds::of);
        boxes.reduce(|a, b| a.with(&b))
    }

    /// Returns the box around both.
    #[must_use]
    pub fn with(&self, other: &Bounds) -> Bounds {
        Bounds {
            min: [0, 1].map(|axis| self.min[axis].min(other.min[axis])),
            max: [0, 1].map(|axis| self.max[axis].max(other.max[axis])),
        }
    }

    /// Returns true if they have a point in common.
    pub fn meets(&self, other: &Bounds) -> bool {
        [0, 1]
            .iter()
            .all(|axis| self.min[*axis] <= other.max[*axis] && other.min[*axis] <= self.max[*axis])
    }

    /// Returns the middle.
    pub fn centre(&self) -> Point {
        [0, 1].map(|axis| (self.max[axis] - self.min[axis]) / 2.0 + self.min[axis])
    }
}

/// A geometry, as its bytes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Geometry(Box<[u8]>);

impl Geometry {
    /// Reads well-known text.
    ///
    /// # Errors
    ///
    /// If it is none, or too large.
    pub fn parse(text: &[u8]) -> Result<Geometry, Refused> {
        let mut parser = Parser {
            text,
            out: Vec::with_capacity(text.len()),
            points: 0,
        };
        parser.geometry(0)?;
        parser.skip_spaces();
        match parser.text.is_empty() {
            true => Ok(Geometry(parser.out.into())),
            false => Err(Refused::Invalid),
        }
    }

    /// Takes the bytes of a geometry; `None` if they are none, or one that [`Geometry::parse`] would refuse.
    pub fn of_bytes(bytes: &[u8]) -> Option<Geometry> {
        let (mut rest, mut count) = (bytes, Count(0));
        walk(&mut rest, 0, &mut count)?;
        (rest.is_empty() && count.0 <= POINTS_MAX).then(|| Geometry(bytes.into()))
    }

    /// Returns the bytes.
    pub fn as_bytes(&self) -> &[u8] {
        &self.0
    }

    /// Returns the well-known text.
    pub fn text(&self) -> String {
        let mut text = Text(String::with_capacity(self.0.len()));
        self.visit(&mut text);
        text.0
    }

    /// Returns the box around it; `None` if it has no point.
    pub fn bounds(&self) -> Option<Bounds> {
        let mut around = Around(None);
        self.visit(&mut around);
        around.0
    }

    /// Returns its point, if it is one point.
    pub fn point(&self) -> Option<Point> {
        let mut parts = Parts::default();
        let number = self.0.get(1..5)?.first_chunk().copied();
        let is_point = number.map(u32::from_le_bytes)? % 1000 == Kind::Point as u32;
        is_point.then(|| self.visit(&mut parts));
        parts.points.first().copied()
    }

    /// Returns its parts.
    pub fn parts(&self) -> Parts {
        let mut parts = Parts::default();
        self.visit(&mut parts);
        parts
    }

    fn visit(&self, sink: &mut impl Sink) {
        let walked = walk(&mut &*self.0, 0, sink);
        debug_assert!(walked.is_some(), "its bytes were checked");
    }
}

/// Parts of a geometry, kinds and nesting apart.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Parts {
    /// Points.
    pub points: Vec<Point>,
    /// Lines, each by its corners.
    pub lines: Vec<Vec<Point>>,
    /// Polygons, each by its rings.
    pub polygons: Vec<Vec<Vec<Point>>>,
    kind: Option<Kind>,
    depth: usize,
}

/// Receives a geometry in its order.
trait Sink {
    /// A geometry begins.
    fn begin(&mut self, _kind: Kind, _extras: Extras) {}
    /// A list begins.
    fn open(&mut self) {}
    /// A point, with its further numbers.
    fn point(&mut self, numbers: &[f64]);
    /// A list ends.
    fn close(&mut self) {}
}

struct Count(usize);

impl Sink for Count {
    fn point(&mut self, _: &[f64]) {
        self.0 += 1;
    }
}

struct Around(Option<Bounds>);

impl Sink for Around {
    fn point(&mut self, numbers: &[f64]) {
        let point = Bounds::of([numbers[0], numbers[1]]);
        self.0 = Some(self.0.map_or(point, |around| around.with(&point)));
    }
}

struct Text(String);

impl Text {
    /// Separates what follows from what is before it in its list.
    fn separate(&mut self) {
        if !self.0.is_empty() && !self.0.ends_with('(') {
            self.0.push(',');
        }
    }
}

impl Sink for Text {
    fn begin(&mut self, kind: Kind, extras: Extras) {
        self.separate();
        self.0 += kind.name();
        if extras.m && !extras.z {
            self.0 += " M";
        }
    }

    fn open(&mut self) {
        if self.0.ends_with([')', '(']) {
            self.separate();
        }
        self.0.push('(');
    }

    fn point(&mut self, numbers: &[f64]) {
        use std::fmt::Write;
        self.separate();
        for (at, number) in numbers.iter().enumerate() {
            let space = if at > 0 { " " } else { "" };
            write!(self.0, "{space}{number}").expect("a string takes everything");
        }
    }

    fn close(&mut self) {
        self.0.push(')');
    }
}

impl Sink for Parts {
    fn begin(&mut self, kind: Kind, _: Extras) {
        (self.kind, self.depth) = (Some(kind), 0);
    }

    fn open(&mut self) {
        self.depth += 1;
        let Some(kind) = self.kind else { return };
        let levels = kind.levels();
        match kind {
            Kind::Polygon | Kind::MultiPolygon => {
                if self.depth + 1 == levels {
                    self.polygons.push(Vec::new());
                } else if self.depth == levels
                    && let Some(polygon) = self.polygons.last_mut()
                {
                    polygon.push(Vec::new());
                }
            }
            Kind::LineString | Kind::MultiLineString if self.depth == levels => {
                self.lines.push(Vec::new());
            }
            _ => {}
        }
    }

    fn point(&mut self, numbers: &[f64]) {
        let point = [numbers[0], numbers[1]];
        let list = match self.kind {
            Some(Kind::Polygon | Kind::MultiPolygon) => {
                self.polygons.last_mut().and_then(|rings| rings.last_mut())
            }
            Some(Kind::LineString | Kind::MultiLineString) => self.lines.last_mut(),
            _ => Some(&mut self.points),
        };
        if let Some(list) = list {
            list.push(point);
        }
    }

    fn close(&mut self) {
        self.depth = self.depth.saturating_sub(1);
    }
}

/// Passes on the geometry that the bytes begin with, and takes it from them; `None` if there is none.
fn walk(bytes: &mut &[u8], depth: usize, sink: &mut impl Sink) -> Option<()> {
    let (&order, rest) = bytes.split_first()?;
    *bytes = rest;
    let number = take_u32(bytes)?;
    let above = number / 1000;
    let extras = Extras {
        z: above & 1 == 1,
        m: above & 2 == 2,
    };
    let kind = Kind::of_number(number % 1000)?;
    if order != LITTLE_ENDIAN || above > 3 || depth > DEPTH_MAX {
        return None;
    }
    sink.begin(kind, extras);
    match kind {
        Kind::Point => {
            sink.open();
            walk_point(bytes, extras, sink)?;
            sink.close();
        }
        Kind::Collection => {
            sink.open();
            for _ in 0..take_u32(bytes)? {
                walk(bytes, depth + 1, sink)?;
            }
            sink.close();
        }
        kind => walk_list(bytes, kind.levels(), extras, sink)?,
    }
    Some(())
}

fn walk_list(bytes: &mut &[u8], levels: usize, extras: Extras, sink: &mut impl Sink) -> Option<()> {
    sink.open();
    for _ in 0..take_u32(bytes)? {
        match levels {
            0 | 1 => walk_point(bytes, extras, sink)?,
            _ => walk_list(bytes, levels - 1, extras, sink)?,
        }
    }
    sink.close();
    Some(())
}

fn walk_point(bytes: &mut &[u8], extras: Extras, sink: &mut impl Sink) -> Option<()> {
    let mut numbers = [0.0; 4];
    let numbers = &mut numbers[..extras.numbers()];
    for number in numbers.iter_mut() {
        let (first, rest) = bytes.split_first_chunk()?;
        *number = in_range(f64::from_le_bytes(*first))?;
        *bytes = rest;
    }
    sink.point(numbers);
    Some(())
}

fn take_u32(bytes: &mut &[u8]) -> Option<u32> {
    let (first, rest) = bytes.split_first_chunk()?;
    *bytes = rest;
    Some(u32::from_le_bytes(*first))
}

fn in_range(number: f64) -> Option<f64> {
    (number.abs() <= COORDINATE_MAX).then_some(number)
}

/// Well-known text that becomes bytes.
struct Parser<'a> {
    /// Text that is left.
    text: &'a [u8],
    out: Vec<u8>,
    points: usize,
}

impl Parser<'_> {
    fn skip_spaces(&mut self) {
        let is_space = |byte: &u8| matches!(byte, b' ' | b'\t'..=b'\r');
        let end = self.text.iter().position(|byte| !is_space(byte));
        self.text = &self.text[end.unwrap_or(self.text.len())..];
    }

    /// Takes a word, in any case.
    fn word(&mut self, word: &str) -> bool {
        let rest = self.text.split_at_checked(word.len());
        match rest {
            Some((first, rest)) if first.eq_ignore_ascii_case(word.as_bytes()) => {
                self.text = rest;
                true
            }
            _ => false,
        }
    }

    /// Takes a sign, and the spaces before it.
    fn sign(&mut self, sign: &str) -> bool {
        self.skip_spaces();
        self.word(sign)
    }

    fn expect(&mut self, sign: &str) -> Result<(), Refused> {
        match self.sign(sign) {
            true => Ok(()),
            false => Err(Refused::Invalid),
        }
    }

    fn geometry(&mut self, depth: usize) -> Result<(), Refused> {
        self.skip_spaces();
        let found = KINDS.iter().find(|(_, name)| self.word(name));
        let (kind, _) = found.ok_or(Refused::Invalid)?;
        if depth > DEPTH_MAX {
            return Err(Refused::Invalid);
        }
        let mut extras = None;
        for (letters, z, m) in [("ZM", true, true), ("Z", true, false), ("M", false, true)] {
            if extras.is_none() && self.sign(letters) {
                extras = Some(Extras { z, m });
            }
        }
        let is_empty = self.sign("EMPTY");
        self.out.push(LITTLE_ENDIAN);
        let place = self.out.len();
        self.number(0);
        match kind {
            Kind::Point if is_empty => return Err(Refused::Invalid),
            Kind::Point => {
                self.expect("(")?;
                self.point(&mut extras)?;
                self.expect(")")?;
            }
            _ if is_empty => {
                self.count_one()?;
                self.number(0);
            }
            Kind::Collection => self.list(|parser| parser.geometry(depth + 1))?,
            kind => self.lists(kind.levels(), *kind == Kind::MultiPoint, &mut extras)?,
        }
        let number = *kind as u32 + extras.unwrap_or_default().offset();
        self.put(place, number);
        Ok(())
    }

    fn lists(
        &mut self,
        levels: usize,
        is_multi_point: bool,
        extras: &mut Option<Extras>,
    ) -> Result<(), Refused> {
        self.list(|parser| {
            if levels > 1 {
                return parser.lists(levels - 1, is_multi_point, extras);
            }
            let in_brackets = is_multi_point && parser.sign("(");
            parser.point(extras)?;
            match in_brackets {
                true => parser.expect(")"),
                false => Ok(()),
            }
        })
    }

    /// Takes a list, which may be empty, and writes its length and its elements.
    fn list(
        &mut self,
        mut element: impl FnMut(&mut Self) -> Result<(), Refused>,
    ) -> Result<(), Refused> {
        self.expect("(")?;
        let place = self.out.len();
        self.number(0);
        if self.sign(")") {
            return self.count_one();
        }
        let mut count = 0;
        loop {
            element(self)?;
            count += 1;
            if !self.sign(",") {
                self.expect(")")?;
                self.put(place, count);
                return Ok(());
            }
        }
    }

    /// Counts a point, or an empty list, which takes memory as well.
    fn count_one(&mut self) -> Result<(), Refused> {
        self.points += 1;
        match self.points > POINTS_MAX {
            true => Err(Refused::TooLarge),
            false => Ok(()),
        }
    }

    /// Takes a point. The first one of a geometry tells how many numbers each has, if no letter did.
    fn point(&mut self, extras: &mut Option<Extras>) -> Result<(), Refused> {
        self.count_one()?;
        let mut found = 0;
        loop {
            self.skip_spaces();
            let is_of_number =
                |byte: &u8| !matches!(byte, b',' | b'(' | b')' | b' ' | b'\t'..=b'\r');
            let end = self.text.iter().position(|byte| !is_of_number(byte));
            let (word, rest) = self.text.split_at(end.unwrap_or(self.text.len()));
            if word.is_empty() {
                break;
            }
            let number = number::parse_f64(word).and_then(in_range);
            let number = number.ok_or(Refused::Invalid)?;
            self.out.extend(number.to_le_bytes());
            self.text = rest;
            found += 1;
        }
        let told = extras.get_or_insert(Extras {
            z: found > 2,
            m: found > 3,
        });
        match told.numbers() == found {
            true => Ok(()),
            false => Err(Refused::Invalid),
        }
    }

    fn number(&mut self, number: u32) {
        self.out.extend(number.to_le_bytes());
    }

    fn put(&mut self, place: usize, number: u32) {
        self.out[place..place + 4].copy_from_slice(&number.to_le_bytes());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text_of(text: &str) -> Option<String> {
        let geometry = Geometry::parse(text.as_bytes()).ok()?;
        let copy = Geometry::of_bytes(geometry.as_bytes()).expect("its bytes are a geometry");
        assert_eq!(copy, geometry);
        assert_eq!(Geometry::parse(geometry.text().as_bytes()), Ok(copy));
        Some(geometry.text())
    }

    #[test]
    fn a_text_is_written_as_it_was_read_without_spaces() {
        for (read, written) in [
            ("POINT (30 11)", "POINT(30 11)"),
            (" point(-1.5\t0.0000001 ) ", "POINT(-1.5 0.0000001)"),
            ("LINESTRING (30 10, 40 40)", "LINESTRING(30 10,40 40)"),
            (
                "POLYGON ((10 10,10 20 ,20 20), (1 1, 2 2))",
                "POLYGON((10 10,10 20,20 20),(1 1,2 2))",
            ),
            ("MULTIPOINT (1 2, 3 4)", "MULTIPOINT(1 2,3 4)"),
            ("MULTIPOINT ((1 2), (3 4))", "MULTIPOINT(1 2,3 4)"),
            (
                "MULTILINESTRING((1 2,3 4),(5 6))",
                "MULTILINESTRING((1 2,3 4),(5 6))",
            ),
            (
                "MULTIPOLYGON ( ((30 10, 40 40)), ((30 10, 40 0), (1 2)) )",
                "MULTIPOLYGON(((30 10,40 40)),((30 10,40 0),(1 2)))",
            ),
            (
                "GEOMETRYCOLLECTION(POINT(1 2),LINESTRING(1 2,3 4),POLYGON((1 2,3 4)))",
                "GEOMETRYCOLLECTION(POINT(1 2),LINESTRING(1 2,3 4),POLYGON((1 2,3 4)))",
            ),
            ("POINT Z (1 2 3)", "POINT(1 2 3)"),
            ("POINTM(1 2 3)", "POINT M(1 2 3)"),
            ("POINT(1 2 3 4)", "POINT(1 2 3 4)"),
            ("LINESTRING EMPTY", "LINESTRING()"),
            ("POLYGON((),(1 2))", "POLYGON((),(1 2))"),
            ("GEOMETRYCOLLECTION()", "GEOMETRYCOLLECTION()"),
        ] {
            assert_eq!(text_of(read).as_deref(), Some(written), "{read}");
        }
    }

    #[test]
    fn what_is_no_geometry_is_refused() {
        for text in [
            "",
            "x",
            "POINT",
            "POINT EMPTY",
            "POINT()",
            "POINT(1)",
            "POINT(1 2 3 4 5)",
            "POINT(1 2",
            "POINT(1 2) x",
            "POINT(nan 1)",
            "POINT(inf 1)",
            "POINT(1e13 1)",
            "POINT Z(1 2)",
            "LINESTRING(1 2,3)",
            "LINESTRING(1 2,3 4 5)",
            "LINESTRING(1 2,)",
            "LINESTRING((1 2))",
            "POLYGON(1 2)",
            "POLYGON ((30 10, 40 40",
            "POLYGON((1 2)",
            "CIRCLE(1 2)",
        ] {
            assert_eq!(
                Geometry::parse(text.as_bytes()),
                Err(Refused::Invalid),
                "{text}"
            );
        }
    }

    #[test]
    fn points_and_depth_have_a_limit() {
        let of = |points: usize| format!("MULTIPOINT({})", vec!["1 2"; points].join(","));
        assert!(Geometry::parse(of(POINTS_MAX).as_bytes()).is_ok());
        let refused = Geometry::parse(of(POINTS_MAX + 1).as_bytes());
        assert_eq!(refused, Err(Refused::TooLarge));
        // Empty lists take memory as points do.
        for (empty, name) in [
            ("()", "MULTIPOLYGON"),
            ("POINTS EMPTY", "GEOMETRYCOLLECTION"),
        ] {
            let empty = empty.replace("POINTS", "LINESTRING");
            let lists = format!("{name}({})", vec![empty.as_str(); POINTS_MAX + 1].join(","));
            let refused = Geometry::parse(lists.as_bytes());
            assert_eq!(refused, Err(Refused::TooLarge), "{name}");
        }
        let nested = |depth: usize| {
            let (open, close) = ("GEOMETRYCOLLECTION(".repeat(depth), ")".repeat(depth));
            format!("{open}POINT(1 2){close}")
        };
        assert!(Geometry::parse(nested(DEPTH_MAX).as_bytes()).is_ok());
        for depth in [DEPTH_MAX + 1, 100_000] {
            let refused = Geometry::parse(nested(depth).as_bytes());
            assert_eq!(refused, Err(Refused::Invalid));
        }
        let mut bytes = [[1, 7, 0, 0, 0, 1, 0, 0, 0]; 100_000].concat();
        assert_eq!(Geometry::of_bytes(&bytes), None);
        bytes = vec![1, 2, 0, 0, 0, 255, 255, 255, 255];
        assert_eq!(Geometry::of_bytes(&bytes), None, "more points than bytes");
    }

    #[test]
    fn damaged_bytes_are_a_geometry_or_refused() {
        let mut random = fastrand::Rng::with_seed(3);
        let text = "GEOMETRYCOLLECTION(POINT(1 2),MULTIPOLYGON(((1 2,3 4,5 6),(7 8)),((9 10 ))))";
        let sound = Geometry::parse(text.as_bytes()).expect("a geometry");
        let mut refused = 0;
        for _ in 0..20_000 {
            let mut bytes = sound.as_bytes().to_vec();
            for _ in 0..random.usize(1..4) {
                let at = random.usize(..bytes.len());
                bytes[at] = random.u8(..);
            }
            bytes.truncate(bytes.len() - random.usize(..2));
            match Geometry::of_bytes(&bytes) {
                None => refused += 1,
                Some(geometry) => {
                    geometry.parts();
                    let text = geometry.text();
                    assert!(Geometry::parse(text.as_bytes()).is_ok(), "{text}");
                }
            }
        }
        assert!(refused > 5_000, "{refused}");
    }
}
