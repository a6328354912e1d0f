//! A circle on the ground, as a search in an area has it. Must not know areas.
//!
//! Points are measured. Of anything else it is asked whether it meets a polygon of 64 corners on the circle, in degrees; past
//! the meridian of 180 degrees this is looked for on both sides of the map. A circle around a pole is the box to that pole.

use std::f64::consts::PI;

use super::{
    geometry::{Bounds, Geometry, Parts, Point},
    relate::{Shape, Steps, TooLarge},
};
use crate::geo::Place;

const CORNERS: usize = 64;
/// Degrees by which a box is wider than computed, for rounding.
const MARGIN: f64 = 1e-9;

/// A circle on the ground.
#[derive(Clone, Debug)]
pub struct Circle {
    centre: Place,
    metres: f64,
    boxes: Vec<Bounds>,
    /// One for each box.
    polygons: Vec<Shape>,
}

impl Circle {
    /// Makes a circle of a radius that is not negative.
    pub fn new(centre: Place, metres: f64) -> Circle {
        let angle = (metres / Place::EARTH_RADIUS).min(PI);
        let reach = angle.to_degrees();
        let (south, north) = (centre.latitude - reach, centre.latitude + reach);
        let is_around_pole = south <= -90.0 || north >= 90.0;
        let mut bounds = Bounds {
            min: [-180.0, south.max(-90.0)],
            max: [180.0, north.min(90.0)],
        };
        let corners: Vec<Point> = if is_around_pole {
            let ([west, south], [east, north]) = (bounds.min, bounds.max);
            vec![[west, south], [east, south], [east, north], [west, north]]
        } else {
            let sine = angle.sin() / centre.latitude.to_radians().cos();
            let east = sine.min(1.0).asin().to_degrees();
            bounds.min[0] = centre.longitude - east;
            bounds.max[0] = centre.longitude + east;
            let directions = (0..CORNERS).map(|at| at as f64 * 360.0 / CORNERS as f64);
            directions
                .map(|direction| {
                    let corner = centre.beyond(metres, direction);
                    [corner.longitude, corner.latitude]
                })
                .collect()
        };
        let mut shifts = vec![0.0];
        if bounds.min[0] < -180.0 {
            shifts.push(360.0);
        }
        if bounds.max[0] > 180.0 {
            shifts.push(-360.0);
        }
        let boxed = |shift: &f64| Bounds {
            min: [bounds.min[0] + shift - MARGIN, bounds.min[1] - MARGIN],
            max: [bounds.max[0] + shift + MARGIN, bounds.max[1] + MARGIN],
        };
        let shaped = |shift: &f64| {
            let ring = corners.iter().map(|[x, y]| [x + shift, *y]).collect();
            let mut parts = Parts::default();
            parts.polygons.push(vec![ring]);
            Shape::of(&parts)
        };
        Circle {
            centre,
            metres,
            boxes: shifts.iter().map(boxed).collect(),
            polygons: shifts.iter().map(shaped).collect(),
        }
    }

    /// Returns the boxes in which all is that meets it.
    pub fn boxes(&self) -> &[Bounds] {
        &self.boxes
    }

    /// Returns the distance of a point from the centre, in metres.
    pub fn distance(&self, [longitude, latitude]: Point) -> f64 {
        self.centre.distance(Place {
            longitude,
            latitude,
        })
    }

    /// Returns true if a point, or a point or polygon of another geometry, is in it.
    ///
    /// # Errors
    ///
    /// If the comparisons are used up.
    pub fn finds(&self, geometry: &Geometry, steps: &mut Steps) -> Result<bool, TooLarge> {
        if let Some(point) = geometry.point() {
            return Ok(self.distance(point) <= self.metres);
        }
        let shape = areal(geometry);
        for polygon in &self.polygons {
            if polygon.meets(&shape, steps)? {
                return Ok(true);
            }
        }
        Ok(false)
    }
}

/// Returns the shape of the points and the polygons of a geometry: a search finds no lines.
pub fn areal(geometry: &Geometry) -> Shape {
    let mut parts = geometry.parts();
    parts.lines.clear();
    Shape::of(&parts)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn finds(centre: (f64, f64), metres: f64, text: &str) -> bool {
        let centre = Place {
            longitude: centre.0,
            latitude: centre.1,
        };
        let geometry = Geometry::parse(text.as_bytes()).expect("a geometry");
        let circle = Circle::new(centre, metres);
        let bounds = geometry.bounds().expect("a point");
        let found = circle
            .finds(&geometry, &mut Steps(10_000))
            .expect("steps are left");
        let is_near = circle.boxes().iter().any(|near| near.meets(&bounds));
        assert!(is_near || !found, "{text} is outside of the boxes");
        found
    }

    #[test]
    fn points_are_measured_and_polygons_meet_the_circle() {
        assert!(finds((15.0, 37.0), 60_000.0, "POINT(15.087269 37.502669)"));
        assert!(!finds((15.0, 37.0), 56_000.0, "POINT(15.087269 37.502669)"));
        let polygon = "POLYGON((15 37.5,16 37.5,16 38,15 38))";
        assert!(finds((15.0, 37.0), 56_000.0, polygon));
        assert!(!finds((15.0, 37.0), 55_000.0, polygon));
        assert!(finds((15.5, 37.7), 1.0, polygon), "it is inside");
        assert!(finds((15.5, 37.7), 1e9, polygon), "it is the earth");
        assert!(!finds((15.5, 37.7), 1e6, "LINESTRING(15 37,16 38)"));
    }

    #[test]
    fn a_circle_goes_on_past_the_edge_of_the_map_and_around_a_pole() {
        let east = "POLYGON((-179.9 0,-179 0,-179 1,-179.9 1))";
        assert!(finds((179.9, 0.5), 30_000.0, east));
        assert!(finds((179.9, 0.5), 30_000.0, "POINT(-179.9 0.5)"));
        assert!(!finds((179.5, 0.5), 30_000.0, east));
        let west = "POLYGON((179.9 0,179 0,179 1,179.9 1))";
        assert!(finds((-179.9, 0.5), 30_000.0, west));
        assert!(finds((0.0, 89.0), 300_000.0, "POINT(180 89.5)"));
        assert!(finds(
            (0.0, 89.0),
            300_000.0,
            "POLYGON((170 89,180 89,180 89.5))"
        ));
        assert!(finds((0.0, -89.0), 300_000.0, "POINT(90 -89.5)"));
    }

    #[test]
    fn no_point_of_the_circle_is_outside_of_its_boxes() {
        let mut random = fastrand::Rng::with_seed(2);
        for _ in 0..5_000 {
            let centre = (random.f64() * 360.0 - 180.0, random.f64() * 180.0 - 90.0);
            let metres = 10_f64.powf(random.f64() * 8.0);
            let point = [random.f64() * 360.0 - 180.0, random.f64() * 180.0 - 90.0];
            finds(centre, metres, &format!("POINT({} {})", point[0], point[1]));
            let place = Place {
                longitude: centre.0,
                latitude: centre.1,
            };
            let edge = place.beyond(metres * 0.999, random.f64() * 360.0);
            let longitude = (edge.longitude + 540.0).rem_euclid(360.0) - 180.0;
            let text = format!("POINT({longitude} {})", edge.latitude);
            assert!(finds(centre, metres, &text), "{centre:?} {metres} {text}");
        }
    }
}
