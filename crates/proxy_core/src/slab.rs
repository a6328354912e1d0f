//! Numbered places for the connections of a worker. Must not know their contents.
//!
//! A vacated place is not reused before the turn is over, so that events of the same turn which name it find nothing;
//! references that last longer include the place's generation.

/// Values at numbered places.
#[derive(Debug)]
pub struct Slab<T> {
    places: Vec<Place<T>>,
    free: Vec<u32>,
    vacated: Vec<u32>,
}

#[derive(Debug)]
struct Place<T> {
    generation: u32,
    value: Option<Box<T>>,
}

/// A place and its generation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Ref {
    /// The place.
    pub at: u32,
    /// Differs for each later value at the place.
    pub generation: u32,
}

impl Ref {
    /// No place and no value.
    pub const NONE: Ref = Ref {
        at: u32::MAX,
        generation: 0,
    };
}

impl<T> Default for Slab<T> {
    fn default() -> Slab<T> {
        Slab::new()
    }
}

impl<T> Slab<T> {
    /// Returns a slab without values.
    pub fn new() -> Slab<T> {
        Slab {
            places: Vec::new(),
            free: Vec::new(),
            vacated: Vec::new(),
        }
    }

    /// Returns the place that the next value will get.
    pub fn next_place(&mut self) -> Ref {
        let at = match self.free.last() {
            Some(&at) => at,
            None => {
                let at = u32::try_from(self.places.len()).expect("fewer than 2^32 places");
                self.places.push(Place {
                    generation: 0,
                    value: None,
                });
                self.free.push(at);
                at
            }
        };
        Ref {
            at,
            generation: self.places[at as usize].generation,
        }
    }

    /// Puts a value at the place that [`Slab::next_place`] returned.
    pub(crate) fn put(&mut self, value: T) {
        let at = self.free.pop().expect("`next_place` was asked first");
        self.places[at as usize].value = Some(Box::new(value));
    }

    /// Empties a place.
    pub(crate) fn take(&mut self, at: u32) -> Option<Box<T>> {
        let place = self.places.get_mut(at as usize)?;
        let value = place.value.take()?;
        place.generation = place.generation.wrapping_add(1);
        self.vacated.push(at);
        Some(value)
    }

    /// Ends the turn: vacated places may be reused.
    pub(crate) fn end_turn(&mut self) {
        self.free.append(&mut self.vacated);
    }

    /// Returns the value at this place.
    #[inline]
    pub fn get(&mut self, at: u32) -> Option<&mut T> {
        self.places.get_mut(at as usize)?.value.as_deref_mut()
    }

    /// Returns the value at this place, immutably.
    pub fn look(&self, at: u32) -> Option<&T> {
        self.places.get(at as usize)?.value.as_deref()
    }

    /// Returns the value at this place, if it is still the one that was put there.
    #[inline]
    pub fn find(&mut self, place: Ref) -> Option<&mut T> {
        let found = self.places.get_mut(place.at as usize)?;
        if found.generation != place.generation {
            return None;
        }
        found.value.as_deref_mut()
    }

    /// Returns the place with its generation, if it is taken.
    #[inline]
    pub fn place(&self, at: u32) -> Option<Ref> {
        let place = self.places.get(at as usize)?;
        place.value.is_some().then_some(Ref {
            at,
            generation: place.generation,
        })
    }

    /// Returns the places that are taken.
    pub fn taken(&self) -> impl Iterator<Item = u32> + '_ {
        (0..self.places.len() as u32).filter(|at| self.places[*at as usize].value.is_some())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_place_is_not_given_away_within_the_turn_that_vacated_it() {
        let mut slab = Slab::new();
        let first = slab.next_place();
        slab.put("a");
        assert_eq!(slab.take(first.at).as_deref(), Some(&"a"));
        assert_ne!(slab.next_place().at, first.at);
        slab.put("b");
        slab.end_turn();
        let again = slab.next_place();
        slab.put("c");
        assert_eq!(again.at, first.at);
        assert!(slab.find(first).is_none(), "another one is there now");
        assert_eq!(slab.find(again), Some(&mut "c"));
        assert_eq!(slab.taken().count(), 2);
    }
}
