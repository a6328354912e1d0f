//! Places on the earth as 52-bit integers, and the search among them: geo commands keep them as the scores of a sorted
//! set. Pure arithmetic; it must not know sorted sets, commands or replies. Every step is done in the order of Redis,
//! since clients see the last digit.
//!
//! # The idea
//!
//! Longitude and latitude are each halved again and again; the choices, one bit each, are interleaved (latitude in the
//! even bits). Places that are near each other mostly share a prefix, so a box of the grid is a range of integers. A
//! search picks the finest grid whose boxes are at least as large as its area; then the box of the centre and its
//! eight neighbours cover the area, and each of their places is measured.

const EARTH_RADIUS: f64 = Place::EARTH_RADIUS;
/// Metres of half the equator on the map that the grids are of.
const MERCATOR_MAX: f64 = 20_037_726.37;
/// Halvings of each coordinate in a stored place.
const STEPS_MAX: u32 = 26;
const DEGREE: f64 = std::f64::consts::PI / 180.0;

/// A place, in degrees.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Place {
    /// East is positive.
    pub longitude: f64,
    /// North is positive.
    pub latitude: f64,
}

impl Place {
    /// Metres. The mean radius that distances are computed with.
    pub const EARTH_RADIUS: f64 = 6_372_797.560_856;
    const LONGITUDE_MAX: f64 = 180.0;
    /// Largest latitude of the square map of the world.
    const LATITUDE_MAX: f64 = 85.051_128_78;

    /// Makes a place on the map, or `None`.
    pub fn new(longitude: f64, latitude: f64) -> Option<Place> {
        let on_map =
            longitude.abs() <= Place::LONGITUDE_MAX && latitude.abs() <= Place::LATITUDE_MAX;
        on_map.then_some(Place {
            longitude,
            latitude,
        })
    }

    /// Returns the score that stores it.
    pub fn to_score(self) -> f64 {
        Cell::around(self, STEPS_MAX, Place::LATITUDE_MAX).align() as f64
    }

    /// Returns the place that a score stores: the middle of the smallest box. Any score is some place.
    pub fn from_score(score: f64) -> Place {
        let area = Cell {
            bits: bits_of(score),
            steps: STEPS_MAX,
        }
        .area();
        let middle = |[min, max]: [f64; 2], limit: f64| ((min + max) / 2.0).clamp(-limit, limit);
        Place {
            longitude: middle(area.longitude, Place::LONGITUDE_MAX),
            latitude: middle(area.latitude, Place::LATITUDE_MAX),
        }
    }

    /// Returns the usual geohash of eleven letters, whose last one is always `0`.
    pub fn geohash(self) -> [u8; 11] {
        const LETTERS: &[u8; 32] = b"0123456789bcdefghjkmnpqrstuvwxyz";
        // The usual one divides all latitudes, not those of the map.
        let bits = Cell::around(self, STEPS_MAX, 90.0).bits;
        let mut text = [b'0'; 11];
        for (at, letter) in text[..10].iter_mut().enumerate() {
            *letter = LETTERS[(bits >> (52 - (at + 1) * 5)) as usize & 31];
        }
        text
    }

    /// Returns the metres between two places, over the ground of a sphere.
    pub fn distance(self, other: Place) -> f64 {
        let v = ((radians(other.longitude) - radians(self.longitude)) / 2.0).sin();
        if v == 0.0 {
            return latitude_distance(self.latitude, other.latitude);
        }
        let (from, to) = (radians(self.latitude), radians(other.latitude));
        let u = ((to - from) / 2.0).sin();
        let a = u * u + from.cos() * to.cos() * v * v;
        2.0 * EARTH_RADIUS * a.sqrt().asin()
    }
}

impl Place {
    /// Returns the place so many metres away in a direction, in degrees from the north. Its longitude may be beyond the edge
    /// of the map.
    #[must_use]
    pub fn beyond(self, metres: f64, direction: f64) -> Place {
        let (angle, direction) = (metres / Place::EARTH_RADIUS, radians(direction));
        let latitude = radians(self.latitude);
        let sine = latitude.sin() * angle.cos() + latitude.cos() * angle.sin() * direction.cos();
        let east = (direction.sin() * angle.sin() * latitude.cos())
            .atan2(angle.cos() - latitude.sin() * sine);
        Place {
            longitude: self.longitude + degrees(east),
            latitude: degrees(sine.clamp(-1.0, 1.0).asin()),
        }
    }
}

/// The area that a search covers: in metres around its centre, or by its corners.
#[derive(Clone, Debug, PartialEq)]
pub enum Shape {
    /// A circle.
    Circle {
        /// From the centre to the edge.
        radius: f64,
    },
    /// A box along the meridians.
    Box {
        /// From west to east.
        width: f64,
        /// From south to north.
        height: f64,
    },
    /// The area between these corners, in their order, with straight edges on a map of degrees; at least three. None of
    /// the edges leads across the meridian of 180 degrees.
    Polygon {
        /// Its corners.
        corners: Vec<Place>,
    },
}

impl Shape {
    /// Returns the place that distances within a polygon are measured from: below the mean of its corners, which lies
    /// in the ground.
    pub fn middle(corners: &[Place]) -> Place {
        let [mut x, mut y, mut z] = [0.0; 3];
        for corner in corners {
            let (longitude, latitude) = (radians(corner.longitude), radians(corner.latitude));
            x += latitude.cos() * longitude.cos();
            y += latitude.cos() * longitude.sin();
            z += latitude.sin();
        }
        Place {
            longitude: degrees(y.atan2(x)),
            latitude: degrees(z.atan2((x * x + y * y).sqrt())),
        }
    }
}

/// A search.
#[derive(Clone, Debug, PartialEq)]
pub struct Search {
    /// Its middle.
    pub centre: Place,
    /// Its form.
    pub shape: Shape,
}

impl Search {
    /// Returns the distance of a place from the centre, if it lies inside.
    pub fn measure(&self, place: Place) -> Option<f64> {
        match &self.shape {
            Shape::Circle { radius } => {
                let distance = self.centre.distance(place);
                // A distance that is no number counts as inside, as in Redis.
                if distance > *radius {
                    None
                } else {
                    Some(distance)
                }
            }
            Shape::Box { width, height } => {
                if latitude_distance(place.latitude, self.centre.latitude) > height / 2.0 {
                    return None;
                }
                let beside = Place {
                    longitude: self.centre.longitude,
                    latitude: place.latitude,
                };
                if place.distance(beside) > width / 2.0 {
                    return None;
                }
                Some(self.centre.distance(place))
            }
            Shape::Polygon { corners } => {
                lies_within(place, corners).then(|| self.centre.distance(place))
            }
        }
    }

    /// Returns the ranges of scores (the first is in, the last is not) in which all places inside lie, at most nine, in
    /// the order in which Redis looks at them.
    pub fn score_ranges(&self) -> Vec<[f64; 2]> {
        let bounds = self.bounds();
        let reach = match &self.shape {
            Shape::Circle { radius } => *radius,
            Shape::Box { width, height } => {
                ((width / 2.0) * (width / 2.0) + (height / 2.0) * (height / 2.0)).sqrt()
            }
            Shape::Polygon { corners } => {
                let distances = corners.iter().map(|corner| self.centre.distance(*corner));
                distances.fold(0.0, f64::max)
            }
        };
        let around = |steps| Cell::around(self.centre, steps, Place::LATITUDE_MAX);
        let mut cell = around(steps_for(reach, self.centre.latitude));
        let neighbour = |cell: Cell, east, north| cell.east(east).north(north).area();
        let too_fine = neighbour(cell, 0, 1).latitude[1] < bounds.latitude[1]
            || neighbour(cell, 0, -1).latitude[0] > bounds.latitude[0]
            || neighbour(cell, 1, 0).longitude[1] < bounds.longitude[1]
            || neighbour(cell, -1, 0).longitude[0] > bounds.longitude[0];
        if cell.steps > 1 && too_fine {
            cell = around(cell.steps - 1);
        }
        let area = cell.area();
        // A side on which the centre's own box already reaches beyond the area needs no neighbours. With the
        // coarsest grid they all are needed, since east and west are the same.
        let needed = |east: i8, north: i8| {
            cell.steps < 2
                || !(north < 0 && area.latitude[0] < bounds.latitude[0]
                    || north > 0 && area.latitude[1] > bounds.latitude[1]
                    || east < 0 && area.longitude[0] < bounds.longitude[0]
                    || east > 0 && area.longitude[1] > bounds.longitude[1])
        };
        const ORDER: [(i8, i8); 9] = [
            (0, 0),
            (0, 1),
            (0, -1),
            (1, 0),
            (-1, 0),
            (1, 1),
            (-1, 1),
            (1, -1),
            (-1, -1),
        ];
        let mut cells: Vec<Cell> = Vec::with_capacity(9);
        for (east, north) in ORDER {
            let next = cell.east(east).north(north);
            // With a coarse grid neighbours may be the same box.
            if needed(east, north) && cells.last() != Some(&next) {
                cells.push(next);
            }
        }
        cells.into_iter().map(Cell::score_range).collect()
    }

    /// Returns the box of coordinates around all places inside.
    fn bounds(&self) -> Area {
        let (width, height) = match &self.shape {
            Shape::Circle { radius } => (*radius, *radius),
            Shape::Box { width, height } => (width / 2.0, height / 2.0),
            Shape::Polygon { corners } => {
                let around = |of: fn(&Place) -> f64| {
                    corners
                        .iter()
                        .map(of)
                        .fold([f64::MAX, f64::MIN], |[min, max], at| {
                            [min.min(at), max.max(at)]
                        })
                };
                return Area {
                    longitude: around(|corner| corner.longitude),
                    latitude: around(|corner| corner.latitude),
                };
            }
        };
        let Place {
            longitude,
            latitude,
        } = self.centre;
        let north = degrees(height / EARTH_RADIUS);
        // Meridians are nearest to each other at the side that looks to the pole.
        let widest = if latitude < 0.0 {
            latitude - north
        } else {
            latitude + north
        };
        let east = degrees(width / EARTH_RADIUS / radians(widest).cos());
        Area {
            longitude: [longitude - east, longitude + east],
            latitude: [latitude - north, latitude + north],
        }
    }
}

/// Returns true if a line from the place to the east crosses the edges an odd number of times.
fn lies_within(place: Place, corners: &[Place]) -> bool {
    let mut inside = false;
    let mut from = corners.len() - 1;
    for (at, to) in corners.iter().enumerate() {
        let from_corner = corners[std::mem::replace(&mut from, at)];
        if (to.latitude > place.latitude) == (from_corner.latitude > place.latitude) {
            continue;
        }
        let along = (place.latitude - to.latitude) / (from_corner.latitude - to.latitude);
        let crossed = (from_corner.longitude - to.longitude) * along + to.longitude;
        inside ^= place.longitude < crossed;
    }
    inside
}

/// Least and greatest coordinates, in degrees.
struct Area {
    longitude: [f64; 2],
    latitude: [f64; 2],
}

/// A box of a grid.
#[derive(Clone, Copy, PartialEq)]
struct Cell {
    bits: u64,
    steps: u32,
}

impl Cell {
    const EVEN: u64 = 0x5555_5555_5555_5555;
    const ODD: u64 = Cell::EVEN << 1;

    /// Returns the box around a place, in a grid over the latitudes up to a limit.
    fn around(place: Place, steps: u32, latitude_max: f64) -> Cell {
        let part = |value: f64, max: f64| {
            let part = (value + max) / (max + max);
            (part * (1u64 << steps) as f64) as u32
        };
        Cell {
            bits: spread(part(place.latitude, latitude_max))
                | spread(part(place.longitude, Place::LONGITUDE_MAX)) << 1,
            steps,
        }
    }

    fn area(self) -> Area {
        let boxes = (1u64 << self.steps) as f64;
        let side = |at: u32, max: f64| {
            let edge = |at: u32| -max + f64::from(at) / boxes * (max + max);
            [edge(at), edge(at.wrapping_add(1))]
        };
        Area {
            longitude: side(gather(self.bits >> 1), Place::LONGITUDE_MAX),
            latitude: side(gather(self.bits), Place::LATITUDE_MAX),
        }
    }

    /// Returns the box so many to the east; the map is a ring.
    fn east(self, by: i8) -> Cell {
        self.moved(by, Cell::ODD)
    }

    /// Returns the box so many to the north; at the edge it comes in again at the other.
    fn north(self, by: i8) -> Cell {
        self.moved(by, Cell::EVEN)
    }

    /// Goes one up or down in the bits of one coordinate: with the other's bits all ones a carry passes through them,
    /// with all zeros a borrow does.
    fn moved(self, by: i8, own: u64) -> Cell {
        let used = u64::MAX >> (64 - self.steps * 2);
        let (mine, others) = (self.bits & own, self.bits & !own);
        let gaps = !own & used;
        let moved = match by {
            0 => return self,
            1.. => mine.wrapping_add(gaps + 1),
            ..0 => (mine | gaps).wrapping_sub(gaps + 1),
        };
        Cell {
            bits: moved & own & used | others,
            ..self
        }
    }

    /// Returns its first place as a score has it.
    fn align(self) -> u64 {
        self.bits << (2 * STEPS_MAX - 2 * self.steps)
    }

    fn score_range(self) -> [f64; 2] {
        let next = Cell {
            bits: self.bits + 1,
            ..self
        };
        [self.align() as f64, next.align() as f64]
    }
}

/// Returns the finest grid whose boxes are as large as the area.
fn steps_for(mut reach: f64, latitude: f64) -> u32 {
    if reach == 0.0 {
        return STEPS_MAX;
    }
    let mut steps = 1i32;
    while reach < MERCATOR_MAX {
        reach *= 2.0;
        steps += 1;
    }
    steps -= 2;
    // Towards the poles a box covers less ground.
    steps -= i32::from(latitude.abs() > 66.0) + i32::from(latitude.abs() > 80.0);
    steps.clamp(1, STEPS_MAX as i32) as u32
}

/// Returns the bits of a stored score. ZADD may have stored any number; one that does not fit an unsigned integer reads
/// as the processor's conversion has it, in two halves.
fn bits_of(score: f64) -> u64 {
    const HALF: f64 = (1u64 << 63) as f64;
    let convert = |value: f64| {
        if (-HALF..HALF).contains(&value) {
            value as i64 as u64
        } else {
            1 << 63
        }
    };
    if score >= HALF {
        convert(score - HALF) ^ 1 << 63
    } else {
        convert(score)
    }
}

/// Returns the bits of a number, a zero before each.
fn spread(number: u32) -> u64 {
    [16, 8, 4, 2, 1]
        .into_iter()
        .fold(u64::from(number), |bits, by| {
            (bits | bits << by) & mask_of_groups(by)
        })
}

/// Returns the even bits, together.
fn gather(bits: u64) -> u32 {
    [1, 2, 4, 8, 16]
        .into_iter()
        .fold(bits & Cell::EVEN, |bits, by| {
            (bits | bits >> by) & mask_of_groups(by * 2)
        }) as u32
}

/// Groups of so many ones between as many zeros, ones first.
fn mask_of_groups(size: u32) -> u64 {
    match size {
        32.. => u64::from(u32::MAX),
        _ => u64::MAX / ((1 << size) + 1),
    }
}

fn latitude_distance(a: f64, b: f64) -> f64 {
    EARTH_RADIUS * (radians(b) - radians(a)).abs()
}

fn radians(degrees: f64) -> f64 {
    degrees * DEGREE
}

fn degrees(radians: f64) -> f64 {
    radians / DEGREE
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn known_places() {
        let palermo = Place::new(13.361_389, 38.115_556).unwrap();
        let catania = Place::new(15.087_269, 37.502_669).unwrap();
        assert_eq!(palermo.to_score(), 3_479_099_956_230_698.0);
        assert_eq!(catania.to_score(), 3_479_447_370_796_909.0);
        let (a, b) = (
            Place::from_score(palermo.to_score()),
            Place::from_score(catania.to_score()),
        );
        assert_eq!(format!("{:.4}", a.distance(b)), "166274.1516");
        assert_eq!(&a.geohash(), b"sqc8b49rny0");
        assert_eq!(Place::new(180.1, 0.0), None);
        assert_eq!(Place::new(0.0, 85.06), None);
        assert_eq!(Place::new(f64::NAN, 0.0), None);
    }

    #[test]
    fn spreading_and_gathering_are_inverse() {
        for number in [0, 1, 2, 0x8000_0000, u32::MAX, 0x1234_5678] {
            assert_eq!(gather(spread(number)), number);
            assert_eq!(spread(number) & Cell::ODD, 0);
        }
    }

    #[test]
    fn a_search_finds_what_measuring_everything_finds() {
        let mut rng = fastrand::Rng::with_seed(4);
        let places: Vec<f64> = (0..2000)
            .map(|_| {
                let place = Place::new(rng.f64() * 360.0 - 180.0, rng.f64() * 160.0 - 80.0);
                place.unwrap().to_score()
            })
            .collect();
        for _ in 0..300 {
            let centre = Place::new(rng.f64() * 300.0 - 150.0, rng.f64() * 120.0 - 60.0).unwrap();
            let size = 10f64.powf(rng.f64() * 2.5 + 4.0);
            let shape = if rng.bool() {
                Shape::Circle { radius: size }
            } else {
                Shape::Box {
                    width: size,
                    height: size / 2.0,
                }
            };
            let search = Search { centre, shape };
            let ranges = search.score_ranges();
            for score in &places {
                let in_ranges = ranges
                    .iter()
                    .filter(|[min, max]| (*min..*max).contains(score))
                    .count();
                assert!(in_ranges <= 1, "{search:?}");
                let inside = search.measure(Place::from_score(*score)).is_some();
                assert!(!inside || in_ranges == 1, "{search:?} {score}");
            }
        }
    }

    #[test]
    fn any_score_is_some_place() {
        for score in [
            0.0,
            -0.0,
            -5.0,
            1e300,
            -1e300,
            f64::INFINITY,
            f64::NEG_INFINITY,
            1.5,
            1e19,
        ] {
            let place = Place::from_score(score);
            assert!(Place::new(place.longitude, place.latitude).is_some());
        }
    }
}
