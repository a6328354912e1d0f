//! How two geometries relate: whether they have a point in common, and whether one has every point of the other. Must not know
//! how geometries are stored, nor areas.
//!
//! # The idea
//!
//! A polygon is the set of its edges: a point is inside if a ray from it crosses an odd number of them, holes included. So
//! every input has a meaning, rings that cross themselves as well, and nothing needs to be valid. Borders belong to a geometry.
//!
//! Geometries meet if two edges cross, or if a corner of one is in the other. One covers an edge of another if it has every
//! piece of it: the edge is cut where edges of the cover cross it; a piece that runs along one of these is covered, and of any
//! other its middle tells. One polygon covers another if it covers the edges, none of its own edges is inside, and a point of
//! the inside is in it.
//!
//! On which side of a line a point is, is decided exactly (Shewchuk, "Adaptive precision floating-point arithmetic and fast
//! robust geometric predicates", 1997), so corners that touch touch. `geo`, which has such predicates as well, takes valid
//! geometries only, and as long as it likes; here each comparison of edges is counted, up to a limit.

use super::geometry::{Bounds, Parts, Point};

/// A piece of an edge that is shorter, as a part of it, is one of rounding.
const PIECE_MIN: f64 = 1e-12;

/// The comparisons of a search are used up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TooLarge;

/// Number of comparisons of edges that are left.
#[derive(Clone, Copy, Debug)]
pub struct Steps(pub usize);

impl Steps {
    fn take(&mut self, count: usize) -> Result<(), TooLarge> {
        self.0 = self.0.checked_sub(count).ok_or(TooLarge)?;
        Ok(())
    }
}

/// Where a point is, as a polygon sees it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Side {
    Inside,
    Border,
    Outside,
}

#[derive(Clone, Copy, Debug)]
struct Edge {
    a: Point,
    b: Point,
}

impl Edge {
    fn bounds(&self) -> Bounds {
        Bounds::of(self.a).with(&Bounds::of(self.b))
    }

    /// Returns a number above 0 if the point is left of the edge, below 0 if it is right of it, and 0 on its line.
    fn side_of(&self, point: Point) -> f64 {
        let [a, b, c] = [self.a, self.b, point].map(|[x, y]| robust::Coord { x, y });
        robust::orient2d(a, b, c)
    }

    fn has(&self, point: Point) -> bool {
        self.bounds().meets(&Bounds::of(point)) && self.side_of(point) == 0.0
    }

    fn meets(&self, other: &Edge) -> bool {
        let are_apart = |one: &Edge, other: &Edge| {
            let (a, b) = (one.side_of(other.a), one.side_of(other.b));
            a > 0.0 && b > 0.0 || a < 0.0 && b < 0.0
        };
        self.bounds().meets(&other.bounds()) && !are_apart(self, other) && !are_apart(other, self)
    }

    fn at(&self, part: f64) -> Point {
        [0, 1].map(|axis| self.a[axis] + (self.b[axis] - self.a[axis]) * part)
    }

    /// Returns the part of the edge before a point on its line.
    fn part_of(&self, point: Point) -> f64 {
        let [x, y] = [0, 1].map(|axis| (self.b[axis] - self.a[axis]).abs());
        let axis = usize::from(y > x);
        (point[axis] - self.a[axis]) / (self.b[axis] - self.a[axis])
    }
}

#[derive(Clone, Debug)]
struct Polygon {
    /// Edges of all rings.
    edges: Vec<Edge>,
    bounds: Bounds,
}

/// A geometry, made ready to be compared.
#[derive(Clone, Debug, Default)]
pub struct Shape {
    points: Vec<Point>,
    lines: Vec<Edge>,
    polygons: Vec<Polygon>,
    bounds: Option<Bounds>,
}

impl Shape {
    /// Returns the shape of a geometry's parts.
    pub fn of(parts: &Parts) -> Shape {
        let mut shape = Shape {
            points: parts.points.clone(),
            ..Shape::default()
        };
        for line in &parts.lines {
            match line[..] {
                [point] => shape.points.push(point),
                _ => shape.lines.extend(edges(line, false)),
            }
        }
        for rings in &parts.polygons {
            let edges: Vec<Edge> = rings.iter().flat_map(|ring| edges(ring, true)).collect();
            if let Some(bounds) = bounds_of(&edges) {
                shape.polygons.push(Polygon { edges, bounds });
            }
        }
        let points = shape.points.iter().copied();
        let polygons = shape.polygons.iter().map(|polygon| polygon.bounds);
        let boxes = [Bounds::around(points), bounds_of(&shape.lines)];
        let boxes = boxes.into_iter().flatten().chain(polygons);
        shape.bounds = boxes.reduce(|a, b| a.with(&b));
        shape
    }

    /// Returns true if the geometries have a point in common.
    ///
    /// # Errors
    ///
    /// If the comparisons are used up.
    pub fn meets(&self, other: &Shape, steps: &mut Steps) -> Result<bool, TooLarge> {
        let (Some(here), Some(there)) = (self.bounds, other.bounds) else {
            return Ok(false);
        };
        steps.take(self.len() + other.len())?;
        if !here.meets(&there) {
            return Ok(false);
        }
        for (one, other) in [(self, other), (other, self)] {
            // If no edges cross, a part is inside a polygon with all its corners or with none.
            let firsts = one.polygons.iter().map(|polygon| polygon.edges[0].a);
            let corners = one.lines.iter().map(|edge| edge.a).chain(firsts);
            for point in one.points.iter().copied().chain(corners) {
                if other.has(point, steps)? {
                    return Ok(true);
                }
            }
        }
        let near: Vec<&Edge> = other
            .edges()
            .filter(|edge| edge.bounds().meets(&here))
            .collect();
        for edge in self.edges().filter(|edge| edge.bounds().meets(&there)) {
            steps.take(near.len())?;
            if near.iter().any(|other| edge.meets(other)) {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Returns true if the geometry has every point of the other one, which has at least one. A polygon must be covered by
    /// one polygon.
    ///
    /// # Errors
    ///
    /// If the comparisons are used up.
    pub fn covers(&self, other: &Shape, steps: &mut Steps) -> Result<bool, TooLarge> {
        let (Some(here), Some(there)) = (self.bounds, other.bounds) else {
            return Ok(false);
        };
        steps.take(self.len() + other.len())?;
        let is_around = [0, 1]
            .iter()
            .all(|axis| here.min[*axis] <= there.min[*axis] && there.max[*axis] <= here.max[*axis]);
        if !is_around {
            return Ok(false);
        }
        for point in &other.points {
            if !self.has(*point, steps)? {
                return Ok(false);
            }
        }
        let all: Vec<&Edge> = self.edges().collect();
        let polygons: Vec<&Polygon> = self.polygons.iter().collect();
        for edge in &other.lines {
            if !is_covered(edge, &all, &polygons, steps)? {
                return Ok(false);
            }
        }
        for polygon in &other.polygons {
            let mut is_found = false;
            for cover in &self.polygons {
                is_found = is_found || cover.covers(polygon, steps)?;
            }
            if !is_found {
                return Ok(false);
            }
        }
        Ok(true)
    }

    fn len(&self) -> usize {
        let polygons = self.polygons.iter().map(|polygon| polygon.edges.len());
        self.points.len() + self.lines.len() + polygons.sum::<usize>()
    }

    fn edges(&self) -> impl Iterator<Item = &Edge> {
        let polygons = self.polygons.iter().flat_map(|polygon| &polygon.edges);
        self.lines.iter().chain(polygons)
    }

    fn has(&self, point: Point, steps: &mut Steps) -> Result<bool, TooLarge> {
        steps.take(self.points.len() + self.lines.len() + self.polygons.len())?;
        if self.points.contains(&point) || self.lines.iter().any(|edge| edge.has(point)) {
            return Ok(true);
        }
        for polygon in &self.polygons {
            if polygon.side_of(point, steps)? != Side::Outside {
                return Ok(true);
            }
        }
        Ok(false)
    }
}

impl Polygon {
    fn side_of(&self, point: Point, steps: &mut Steps) -> Result<Side, TooLarge> {
        if !self.bounds.meets(&Bounds::of(point)) {
            return Ok(Side::Outside);
        }
        steps.take(self.edges.len())?;
        let mut is_inside = false;
        for edge in &self.edges {
            if edge.has(point) {
                return Ok(Side::Border);
            }
            // A ray to the east crosses the edges that end on both sides of it, and have the point to their west.
            if (edge.a[1] > point[1]) != (edge.b[1] > point[1])
                && (edge.side_of(point) > 0.0) == (edge.b[1] > edge.a[1])
            {
                is_inside = !is_inside;
            }
        }
        Ok(match is_inside {
            true => Side::Inside,
            false => Side::Outside,
        })
    }

    fn covers(&self, other: &Polygon, steps: &mut Steps) -> Result<bool, TooLarge> {
        let own: Vec<&Edge> = self.edges.iter().collect();
        for edge in &other.edges {
            if !is_covered(edge, &own, &[self], steps)? {
                return Ok(false);
            }
        }
        let theirs: Vec<&Edge> = other.edges.iter().collect();
        for edge in &self.edges {
            if !edge.bounds().meets(&other.bounds) {
                continue;
            }
            for middle in loose_pieces(edge, &theirs, steps)? {
                if other.side_of(middle, steps)? == Side::Inside {
                    return Ok(false);
                }
            }
        }
        match other.inner_point() {
            Some(point) => Ok(self.side_of(point, steps)? != Side::Outside),
            None => Ok(true),
        }
    }

    /// Returns a point of the inside; `None` if there is no inside.
    fn inner_point(&self) -> Option<Point> {
        // Between two corners, in the order of their latitudes, around the middle one.
        let mut latitudes: Vec<f64> = self.edges.iter().map(|edge| edge.a[1]).collect();
        latitudes.sort_unstable_by(f64::total_cmp);
        latitudes.dedup();
        let middle = latitudes.len() / 2;
        let (low, high) = (*latitudes.get(middle.checked_sub(1)?)?, latitudes[middle]);
        let latitude = low + (high - low) / 2.0;
        let crossing = |edge: &Edge| {
            let [[ax, ay], [bx, by]] = [edge.a, edge.b];
            ((ay > latitude) != (by > latitude))
                .then(|| ax + (bx - ax) * (latitude - ay) / (by - ay))
        };
        let mut longitudes: Vec<f64> = self.edges.iter().filter_map(crossing).collect();
        longitudes.sort_unstable_by(f64::total_cmp);
        let pairs = longitudes.chunks_exact(2);
        let widest = pairs.max_by(|a, b| (a[1] - a[0]).total_cmp(&(b[1] - b[0])))?;
        (widest[1] > widest[0]).then(|| [widest[0] + (widest[1] - widest[0]) / 2.0, latitude])
    }
}

/// Returns true if each piece of an edge runs along one of `edges`, or is in one of the polygons that they belong to.
fn is_covered(
    edge: &Edge,
    edges: &[&Edge],
    polygons: &[&Polygon],
    steps: &mut Steps,
) -> Result<bool, TooLarge> {
    for middle in loose_pieces(edge, edges, steps)? {
        steps.take(polygons.len())?;
        let mut is_inside = false;
        for polygon in polygons {
            is_inside = is_inside || polygon.side_of(middle, steps)? != Side::Outside;
        }
        if !is_inside {
            return Ok(false);
        }
    }
    Ok(true)
}

/// Cuts an edge where others meet it, and returns the middles of the pieces that run along none of them.
fn loose_pieces(edge: &Edge, others: &[&Edge], steps: &mut Steps) -> Result<Vec<Point>, TooLarge> {
    steps.take(others.len())?;
    let bounds = edge.bounds();
    let near = others.iter().filter(|other| other.bounds().meets(&bounds));
    if edge.a == edge.b {
        let is_on = near.clone().any(|other| other.has(edge.a));
        return Ok(if is_on { Vec::new() } else { vec![edge.a] });
    }
    let (mut cuts, mut along) = (vec![0.0, 1.0], Vec::new());
    for other in near {
        let (a, b) = (edge.side_of(other.a), edge.side_of(other.b));
        if a == 0.0 && b == 0.0 {
            let ends = [other.a, other.b].map(|end| edge.part_of(end).clamp(0.0, 1.0));
            cuts.extend(ends);
            along.push((ends[0].min(ends[1]), ends[0].max(ends[1])));
        } else if edge.meets(other) {
            cuts.push(match (a == 0.0, b == 0.0) {
                // Edges that meet in a corner cut where the corner is, all alike.
                (true, _) => edge.part_of(other.a),
                (_, true) => edge.part_of(other.b),
                _ => {
                    let (from, to) = (other.side_of(edge.a), other.side_of(edge.b));
                    (from / (from - to)).clamp(0.0, 1.0)
                }
            });
        }
    }
    cuts.sort_unstable_by(f64::total_cmp);
    along.sort_unstable_by(|a, b| a.0.total_cmp(&b.0));
    let (mut middles, mut along_to, mut next) = (Vec::new(), 0.0_f64, 0);
    for cut in cuts.windows(2) {
        let (from, to) = (cut[0], cut[1]);
        while let Some((begin, end)) = along.get(next).filter(|(begin, _)| *begin <= from) {
            debug_assert!(begin <= end);
            along_to = along_to.max(*end);
            next += 1;
        }
        if to - from > PIECE_MIN && along_to < to {
            middles.push(edge.at(from + (to - from) / 2.0));
        }
    }
    Ok(middles)
}

/// Returns the edges of a line, or of a ring, whose end need not be its beginning.
fn edges(corners: &[Point], is_ring: bool) -> impl Iterator<Item = Edge> {
    let closing = match corners {
        [first, .., last] if is_ring && first != last => Some(Edge {
            a: *last,
            b: *first,
        }),
        [only] if is_ring => Some(Edge { a: *only, b: *only }),
        _ => None,
    };
    let pairs = corners.windows(2).map(|pair| Edge {
        a: pair[0],
        b: pair[1],
    });
    pairs.chain(closing)
}

fn bounds_of(edges: &[Edge]) -> Option<Bounds> {
    edges.iter().map(Edge::bounds).reduce(|a, b| a.with(&b))
}

#[cfg(test)]
mod tests {
    use super::{super::geometry::Geometry, *};

    fn shape(text: &str) -> Shape {
        let geometry = Geometry::parse(text.as_bytes()).expect("a geometry");
        Shape::of(&geometry.parts())
    }

    /// Returns whether they meet, whether the first one covers the second, and whether the second one covers the first.
    fn related(one: &str, other: &str) -> (bool, bool, bool) {
        let (one, other) = (shape(one), shape(other));
        let steps = &mut Steps(100_000);
        let meets = one.meets(&other, steps);
        assert_eq!(meets, other.meets(&one, steps));
        let covers = [one.covers(&other, steps), other.covers(&one, steps)];
        let [covers, is_covered] = covers.map(|covers| covers.expect("there are steps left"));
        (meets.expect("there are steps left"), covers, is_covered)
    }

    const BOX: &str = "POLYGON((0 0,10 0,10 10,0 10,0 0))";
    const RING: &str = "POLYGON((0 0,10 0,10 10,0 10),(4 4,6 4,6 6,4 6))";
    const HOLE: &str = "POLYGON((4 4,6 4,6 6,4 6))";

    #[test]
    fn geometries_meet_and_cover_each_other_with_their_borders() {
        let no = (false, false, false);
        let meets = (true, false, false);
        let covers = (true, true, false);
        let same = (true, true, true);
        for (one, other, expected) in [
            (BOX, "POINT(5 5)", covers),
            (BOX, "POINT(0 5)", covers),
            (BOX, "POINT(10 10)", covers),
            (BOX, "POINT(11 5)", no),
            ("POINT(1 1)", "POINT(1 1)", same),
            ("POINT(1 1)", "POINT(1 2)", no),
            ("LINESTRING(0 0,10 10)", "POINT(3 3)", covers),
            ("LINESTRING(0 0,10 10)", "POINT(3 4)", no),
            (BOX, "LINESTRING(1 1,9 9)", covers),
            (BOX, "LINESTRING(0 0,10 10)", covers),
            (BOX, "LINESTRING(0 0,0 10)", covers),
            (BOX, "LINESTRING(0 0,10 0,10 5)", covers),
            (BOX, "LINESTRING(5 5,15 5)", meets),
            (BOX, "LINESTRING(-5 5,15 5)", meets),
            (BOX, "LINESTRING(10 5,15 5)", meets),
            (BOX, "LINESTRING(11 0,11 9)", no),
            (BOX, "POLYGON((2 2,4 2,4 4,2 4))", covers),
            (BOX, BOX, same),
            (
                BOX,
                "POLYGON((0 0,10 0,10 10,0 10,0 0),(4 4,6 4,6 6,4 6))",
                covers,
            ),
            (RING, HOLE, meets),
            (RING, "POLYGON((4.5 4.5,5 4.5,5 5))", no),
            (RING, "POINT(5 5)", no),
            (RING, "POINT(4 5)", covers),
            (RING, "LINESTRING(1 5,9 5)", meets),
            (RING, "LINESTRING(4 4,6 4)", covers),
            (RING, "POLYGON((1 1,9 1,9 9,1 9))", meets),
            (RING, "POLYGON((1 1,9 1,9 9,1 9),(4 4,6 4,6 6,4 6))", covers),
            (RING, "POLYGON((1 1,9 1,9 9,1 9),(3 3,7 3,7 7,3 7))", covers),
            (
                RING,
                "POLYGON((1 1,9 1,9 9,1 9),(4.5 4.5,5 4.5,5 5))",
                meets,
            ),
            (BOX, "POLYGON((5 5,15 5,15 15,5 15))", meets),
            (BOX, "POLYGON((10 0,20 0,20 10,10 10))", meets),
            (BOX, "POLYGON((11 0,20 0,20 10,11 10))", no),
            // From one side of a bay to the other.
            (
                "POLYGON((0 0,10 0,10 10,6 10,6 2,4 2,4 10,0 10))",
                "LINESTRING(2 5,8 5)",
                meets,
            ),
            (
                "POLYGON((0 0,10 0,10 10,6 10,6 2,4 2,4 10,0 10))",
                "POLYGON((4 2,6 2,6 10,4 10))",
                meets,
            ),
            // Through a corner that the edge only touches, and along an edge.
            (
                "POLYGON((0 0,10 0,10 10,7 10,5 5,3 10,0 10))",
                "LINESTRING(1 5,9 5)",
                covers,
            ),
            // A ring that crosses itself: both halves are inside.
            ("POLYGON((0 0,10 10,10 0,0 10))", "POINT(9 5)", covers),
            ("POLYGON((0 0,10 10,10 0,0 10))", "POINT(5 9)", no),
            ("MULTIPOINT(1 1,2 2)", "POINT(2 2)", covers),
            ("MULTIPOINT(1 1,2 2)", "MULTIPOINT(2 2,1 1)", same),
            (
                "MULTIPOLYGON(((0 0,1 0,1 1,0 1)),((5 5,6 5,6 6,5 6)))",
                "POINT(5.5 5.5)",
                covers,
            ),
            (
                "GEOMETRYCOLLECTION(POINT(1 1),LINESTRING(2 2,3 3))",
                "POINT(2.5 2.5)",
                covers,
            ),
            ("POLYGON()", "POINT(0 0)", no),
            ("POLYGON((1 1))", "POINT(1 1)", covers),
            ("LINESTRING(1 1)", "POINT(1 1)", same),
            ("POLYGON((0 0,5 5))", "POINT(2 2)", covers),
        ] {
            assert_eq!(related(one, other), expected, "{one} {other}");
        }
    }

    #[test]
    fn comparisons_are_counted() {
        let corners: Vec<String> = (0..1_000)
            .map(|at| format!("{at} {}", at % 2 * 9))
            .collect();
        let comb = shape(&format!("LINESTRING({})", corners.join(",")));
        let other = shape("LINESTRING(0 -1,1000 -1,1000 9.5,0 9.5)");
        assert_eq!(comb.meets(&other, &mut Steps(3_000)), Err(TooLarge));
        assert_eq!(comb.covers(&comb, &mut Steps(100_000)), Err(TooLarge));
        assert_eq!(comb.covers(&comb, &mut Steps(2_000_000)), Ok(true));
    }

    /// Compares with counting on a grid: boxes on whole numbers, and rings of them around a smaller one.
    #[test]
    fn boxes_relate_as_their_cells_do() {
        let mut random = fastrand::Rng::with_seed(11);
        let mut draw = || {
            let [x, y] = [(); 2].map(|()| random.i32(0..8));
            let [width, height] = [(); 2].map(|()| random.i32(3..8));
            let mut cells = [[false; 16]; 16];
            let inside = |cells: &mut [[bool; 16]; 16], from: [i32; 2], to: [i32; 2], value| {
                for row in &mut cells[from[1] as usize..to[1] as usize] {
                    row[from[0] as usize..to[0] as usize].fill(value);
                }
            };
            let ring = |from: [i32; 2], to: [i32; 2]| {
                let ([a, b], [c, d]) = (from, to);
                format!("({a} {b},{c} {b},{c} {d},{a} {d})")
            };
            inside(&mut cells, [x, y], [x + width, y + height], true);
            let mut rings = ring([x, y], [x + width, y + height]);
            if random.bool() {
                let (from, to) = ([x + 1, y + 1], [x + width - 1, y + height - 1]);
                inside(&mut cells, from, to, false);
                rings = format!("{rings},{}", ring(from, to));
            }
            (format!("POLYGON({rings})"), cells)
        };
        for _ in 0..20_000 {
            let ((one, cells), (other, others)) = (draw(), draw());
            let all = |holds: fn(bool, bool) -> bool| {
                let pairs = cells.iter().flatten().zip(others.iter().flatten());
                pairs.fold(true, |all, (one, other)| all && holds(*one, *other))
            };
            let (meets, covers, is_covered) = related(&one, &other);
            let share_a_cell = !all(|one, other| !(one && other));
            assert!(meets || !share_a_cell, "{one} {other}");
            assert_eq!(covers, all(|one, other| one || !other), "{one} {other}");
            assert_eq!(is_covered, all(|one, other| other || !one), "{one} {other}");
        }
    }
}
