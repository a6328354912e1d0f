//! Subscribers of a name (a channel, a pattern, a prefix), and the names with subscribers.
//!
//! A message goes to all of them in turn, so they lie in a vector. One that leaves must be found in it: among few by a
//! scan, among many by a map of their places. So each of ten thousand that leave together costs as much as of ten.
//!
//! Must not know: the messages.

use std::{collections::HashMap, ops::Deref, sync::Arc};

use crate::caller::Token;

/// Number of subscribers up to which a scan is fast enough: with one channel each, most clients need no map.
const UNMAPPED_MAX: usize = 64;

/// See the head of the module. No client is in it twice.
#[derive(Debug, Default)]
pub struct Subscribers {
    row: Vec<Token>,
    /// Place of each in the vector, since there were more than [`UNMAPPED_MAX`].
    #[expect(clippy::box_collection, reason = "most names have few, and no map")]
    places: Option<Box<HashMap<Token, usize>>>,
}

impl Subscribers {
    /// Adds a subscriber, which is not among them.
    pub fn add(&mut self, who: Token) {
        let at = self.row.len();
        self.row.push(who);
        if let Some(places) = &mut self.places {
            places.insert(who, at);
        } else if self.row.len() > UNMAPPED_MAX {
            let places = self.row.iter().enumerate();
            self.places = Some(Box::new(places.map(|(at, who)| (*who, at)).collect()));
        }
    }

    /// Removes a subscriber; the last one takes its place.
    pub fn remove(&mut self, who: Token) {
        let found = match &mut self.places {
            None => self.row.iter().position(|token| *token == who),
            Some(places) => places.remove(&who),
        };
        let Some(at) = found else { return };
        self.row.swap_remove(at);
        if let (Some(places), Some(moved)) = (&mut self.places, self.row.get(at)) {
            places.insert(*moved, at);
        }
        self.trim();
    }

    /// Releases memory when three quarters of it are unused, so that it pays.
    fn trim(&mut self) {
        if self.row.len() <= UNMAPPED_MAX / 2 {
            self.places = None;
        }
        if self.row.len() < self.row.capacity() / 4 {
            let room = self.row.len() * 2;
            self.row.shrink_to(room);
            if let Some(places) = &mut self.places {
                places.shrink_to(room);
            }
        }
    }
}

impl Deref for Subscribers {
    type Target = [Token];

    fn deref(&self) -> &[Token] {
        &self.row
    }
}

/// Names with subscribers.
#[derive(Debug, Default)]
pub struct ByName(HashMap<Arc<[u8]>, Subscribers>);

impl ByName {
    /// Adds a subscriber, which is not among those of this name.
    pub fn add(&mut self, name: &Arc<[u8]>, who: Token) {
        self.0.entry(name.clone()).or_default().add(who);
    }

    /// Removes a subscriber; a name without subscribers is removed, and the memory of many names released.
    pub fn remove(&mut self, name: &Arc<[u8]>, who: Token) {
        let Some(subscribers) = self.0.get_mut(name) else {
            return;
        };
        subscribers.remove(who);
        if subscribers.is_empty() {
            self.0.remove(name);
            if self.0.len() < self.0.capacity() / 8 {
                self.0.shrink_to(self.0.len() * 2);
            }
        }
    }
}

impl Deref for ByName {
    type Target = HashMap<Arc<[u8]>, Subscribers>;

    fn deref(&self) -> &HashMap<Arc<[u8]>, Subscribers> {
        &self.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_that_nobody_listens_under_leave_no_room_behind() {
        let mut names = ByName::default();
        let name = |number: usize| Arc::from(number.to_le_bytes().as_slice());
        for number in 0..10_000 {
            names.add(&name(number), Token::new(0, number, 0));
        }
        for number in 3..10_000 {
            names.remove(&name(number), Token::new(0, number, 0));
        }
        assert_eq!(names.len(), 3);
        assert!(names.capacity() < 100, "{}", names.capacity());
    }

    #[test]
    fn many_come_and_leave_in_any_order_and_nobody_is_lost() {
        let mut rng = fastrand::Rng::with_seed(4);
        let mut subscribers = Subscribers::default();
        let mut expected: Vec<Token> = Vec::new();
        let mut next = 0;
        for crowd in [10, 500, 20, 70, 0, 2_000, 0] {
            while expected.len() != crowd {
                // Grows and shrinks by turns, so that the map is made and dropped as well.
                let grows = (expected.len() < crowd) != (rng.u8(..) < 80);
                if grows || expected.is_empty() {
                    next += 1;
                    let token = Token::new(next % 3, next, 0);
                    subscribers.add(token);
                    expected.push(token);
                } else {
                    let left = expected.swap_remove(rng.usize(..expected.len()));
                    subscribers.remove(left);
                    // Removing it again is allowed.
                    subscribers.remove(left);
                }
                assert_eq!(subscribers.len(), expected.len());
            }
            let (mut found, mut sorted) = (subscribers.to_vec(), expected.clone());
            found.sort_unstable();
            sorted.sort_unstable();
            assert_eq!(found, sorted);
        }
        assert!(subscribers.row.capacity() <= UNMAPPED_MAX && subscribers.places.is_none());
    }
}
