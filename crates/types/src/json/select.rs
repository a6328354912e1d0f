//! The values that a path finds in a document. Must not know how a path is written.
//!
//! A path with several wildcards can find more values than anyone wants, in time that grows with each: a search looks at a
//! limited number of values ([`VISITS_MAX`], and the size of the document once), then it is [`Exhausted`]. Names and positions
//! that a step lists count as values, and so do the values in two that are compared, and each 64 bytes of a string.

use std::cmp::Ordering;

use regex::bytes::Regex;

use super::{
    DEPTH_MAX, Item, Json, Place,
    item::TEXT_BYTES,
    path::{Filter, Operator, Path, Select, Step, Term, pattern},
};

/// Number of values that a search looks at, beyond one walk through the document.
pub const VISITS_MAX: usize = 1_000_000;
/// Number of values around each other in which a search is at once, those of filters in filters together: a filter may begin
/// at the root again.
const LEVELS_MAX: usize = 2 * DEPTH_MAX + 2;
/// Number of values for which the compiling of a pattern counts that a document gives.
const PATTERN_VISITS: usize = 10_000;

/// A search that has looked at too many values.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Exhausted;

/// One step from a value to one in it.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Hop {
    /// To an element of an array.
    Element(usize),
    /// To a member of an object.
    Member(Box<str>),
}

/// A search.
struct Search<'a> {
    json: &'a Json,
    visits_left: usize,
    levels_left: usize,
    /// The last pattern that the document gave, compiled.
    pattern: Option<(Box<[u8]>, Option<Regex>)>,
    found: Vec<Place>,
    /// The ways to what was found, if they are wanted.
    ways: Option<Vec<Vec<Hop>>>,
    way: Vec<Hop>,
}

impl Json {
    fn search(&self, want_ways: bool) -> Search<'_> {
        Search {
            json: self,
            visits_left: VISITS_MAX + self.words.len(),
            levels_left: LEVELS_MAX,
            pattern: None,
            found: Vec::new(),
            ways: want_ways.then(Vec::new),
            way: Vec::new(),
        }
    }

    /// Returns the places of the values that a path finds, in the order in which it finds them.
    ///
    /// # Errors
    ///
    /// If that takes too long.
    pub fn select(&self, path: &Path<'_>) -> Result<Vec<Place>, Exhausted> {
        if path.is_static() {
            return Ok(Vec::from_iter(self.locate(path)));
        }
        let mut search = self.search(false);
        search.run(Place::ROOT, &path.steps)?;
        Ok(search.found)
    }

    /// Returns the ways to the values that a path finds: they hold when the document changes elsewhere, as places do not.
    ///
    /// # Errors
    ///
    /// If that takes too long.
    pub fn ways(&self, path: &Path<'_>) -> Result<Vec<Vec<Hop>>, Exhausted> {
        let mut search = self.search(true);
        search.run(Place::ROOT, &path.steps)?;
        Ok(search.ways.expect("they were wanted"))
    }

    /// Returns the place of the value that a path names which can name only one, if there is one.
    pub fn locate(&self, path: &Path<'_>) -> Option<Place> {
        let mut steps = path.steps.iter();
        steps.try_fold(Place::ROOT, |place, step| {
            let (place, _) = self.child(place, &step.select)?;
            Some(place)
        })
    }

    /// Returns the one value in a value that a step selects, and its position there; none for steps that may select several.
    fn child(&self, place: Place, select: &Select) -> Option<(Place, usize)> {
        match (select, self.get(place)) {
            (Select::Name(name) | Select::Token(name), Item::Object(object)) => {
                let at = object.find(name.as_bytes())?;
                Some((object.place(at), at))
            }
            (Select::Token(token), Item::Array(array)) => {
                let at = token.parse().ok().filter(|at| *at < array.len())?;
                Some((array.place(at), at))
            }
            (Select::Index(index), Item::Array(array)) => {
                let at = position_of(*index, array.len())?;
                Some((array.place(at), at))
            }
            _ => None,
        }
    }

    /// Returns the place to which a way leads, if there is a value.
    pub fn follow(&self, way: &[Hop]) -> Option<Place> {
        let mut place = Place::ROOT;
        for hop in way {
            place = match (hop, self.get(place)) {
                (Hop::Element(at), Item::Array(array)) if *at < array.len() => array.place(*at),
                (Hop::Member(name), Item::Object(object)) => {
                    object.place(object.find(name.as_bytes())?)
                }
                _ => return None,
            };
        }
        Some(place)
    }
}

/// Returns the first and the last position but one of a slice of an array.
fn slice_of(start: Option<i64>, end: Option<i64>, len: usize) -> std::ops::Range<usize> {
    let position = |n: i64| match usize::try_from(n) {
        Ok(n) => n.min(len),
        Err(_) => len.saturating_sub(usize::try_from(n.unsigned_abs()).unwrap_or(usize::MAX)),
    };
    let start = start.map_or(0, position);
    start..end.map_or(len, position).max(start)
}

/// Returns the position that an index has: those before the first are the first, as in Redis.
fn position_of(index: i64, len: usize) -> Option<usize> {
    match usize::try_from(index) {
        Ok(at) => (at < len).then_some(at),
        Err(_) if len == 0 => None,
        Err(_) => Some(len.saturating_sub(usize::try_from(index.unsigned_abs()).unwrap_or(len))),
    }
}

impl Search<'_> {
    fn visit(&mut self) -> Result<(), Exhausted> {
        self.spend(1)
    }

    fn spend(&mut self, visits: usize) -> Result<(), Exhausted> {
        self.visits_left = self.visits_left.checked_sub(visits).ok_or(Exhausted)?;
        Ok(())
    }

    /// Goes one level down.
    fn inside(
        &mut self,
        then: impl FnOnce(&mut Self) -> Result<(), Exhausted>,
    ) -> Result<(), Exhausted> {
        self.levels_left = self.levels_left.checked_sub(1).ok_or(Exhausted)?;
        let result = then(self);
        self.levels_left += 1;
        result
    }

    /// Finds what steps lead to from a place.
    fn run(&mut self, at: Place, steps: &[Step]) -> Result<(), Exhausted> {
        self.visit()?;
        let Some((step, rest)) = steps.split_first() else {
            self.found.push(at);
            if let Some(ways) = &mut self.ways {
                ways.push(self.way.clone());
                self.spend(self.way.len())?;
            }
            return Ok(());
        };
        self.step(at, step, rest)?;
        if step.deep {
            self.each_inside(at, &mut |search, inner| search.deep(inner, step, rest))?;
        }
        Ok(())
    }

    fn deep(&mut self, at: Place, step: &Step, rest: &[Step]) -> Result<(), Exhausted> {
        self.visit()?;
        self.step(at, step, rest)?;
        self.each_inside(at, &mut |search, inner| search.deep(inner, step, rest))
    }

    fn hop(
        &mut self,
        hop: impl FnOnce() -> Hop,
        then: impl FnOnce(&mut Self) -> Result<(), Exhausted>,
    ) -> Result<(), Exhausted> {
        if self.ways.is_none() {
            return self.inside(then);
        }
        self.way.push(hop());
        let result = self.inside(then);
        self.way.pop();
        result
    }

    fn member(
        &mut self,
        at: Place,
        member: usize,
        then: &mut Then<'_, Self>,
    ) -> Result<(), Exhausted> {
        let Item::Object(object) = self.json.get(at) else {
            return Ok(());
        };
        let name = || {
            String::from_utf8_lossy(&object.name(member))
                .into_owned()
                .into()
        };
        let place = object.place(member);
        self.hop(|| Hop::Member(name()), |search| then(search, place))
    }

    fn each_inside(&mut self, at: Place, then: &mut Then<'_, Self>) -> Result<(), Exhausted> {
        match self.json.get(at) {
            Item::Array(array) => (0..array.len()).try_for_each(|element| {
                let place = array.place(element);
                self.hop(|| Hop::Element(element), |search| then(search, place))
            }),
            Item::Object(object) => {
                (0..object.len()).try_for_each(|member| self.member(at, member, then))
            }
            _ => Ok(()),
        }
    }

    fn step(&mut self, at: Place, step: &Step, rest: &[Step]) -> Result<(), Exhausted> {
        let go_on: &mut Then<'_, Self> = &mut |search, place| search.run(place, rest);
        match (&step.select, self.json.get(at)) {
            (Select::Name(_) | Select::Token(_), Item::Object(_)) => {
                match self.json.child(at, &step.select) {
                    Some((_, member)) => self.member(at, member, go_on),
                    None => Ok(()),
                }
            }
            (Select::Names(names), Item::Object(object)) => {
                self.spend(names.len())?;
                let members = names.iter().filter_map(|name| object.find(name.as_bytes()));
                members
                    .into_iter()
                    .try_for_each(|member| self.member(at, member, go_on))
            }
            (Select::Token(_) | Select::Index(_), Item::Array(_)) => {
                match self.json.child(at, &step.select) {
                    Some((place, element)) => {
                        self.hop(|| Hop::Element(element), |search| go_on(search, place))
                    }
                    None => Ok(()),
                }
            }
            (Select::Indexes(indexes), Item::Array(array)) => {
                self.spend(indexes.len())?;
                let elements = indexes
                    .iter()
                    .filter_map(|at| position_of(*at, array.len()));
                elements.into_iter().try_for_each(|element| {
                    let place = array.place(element);
                    self.hop(|| Hop::Element(element), |search| go_on(search, place))
                })
            }
            (Select::Slice { start, end, step }, Item::Array(array)) => {
                let elements = slice_of(*start, *end, array.len()).step_by(*step);
                elements.into_iter().try_for_each(|element| {
                    let place = array.place(element);
                    self.hop(|| Hop::Element(element), |search| go_on(search, place))
                })
            }
            (Select::All, _) => self.each_inside(at, go_on),
            (Select::Filter(filter), _) => self.each_inside(at, &mut |search, place| {
                search.visit()?;
                match search.passes(filter, place)? {
                    true => go_on(search, place),
                    false => Ok(()),
                }
            }),
            _ => Ok(()),
        }
    }

    fn passes(&mut self, filter: &Filter, at: Place) -> Result<bool, Exhausted> {
        self.visit()?;
        match filter {
            Filter::Or(filters) => {
                for filter in filters {
                    if self.passes(filter, at)? {
                        return Ok(true);
                    }
                }
                Ok(false)
            }
            Filter::And(filters) => {
                for filter in filters {
                    if !self.passes(filter, at)? {
                        return Ok(false);
                    }
                }
                Ok(true)
            }
            Filter::Exists(term) => Ok(!self.values(term, at)?.is_empty()),
            Filter::Compare(left, operator, right) => {
                let (left, right) = (self.value(left, at)?, self.value(right, at)?);
                match (left, right) {
                    (Some(left), Some(right)) => {
                        compare(&left, *operator, &right, &mut |visits| self.spend(visits))
                    }
                    _ => Ok(*operator == Operator::NotEqual),
                }
            }
            Filter::Matches(left, regex, right) => {
                let Some(Item::String(text)) = self.value(left, at)? else {
                    return Ok(false);
                };
                self.spend(text.len() / TEXT_BYTES)?;
                if let Some(regex) = regex {
                    return Ok(regex.is_match(&text));
                }
                match (right, self.value(right, at)?) {
                    (Term::Current(_) | Term::Root(_), Some(Item::String(given))) => Ok(self
                        .given_pattern(&given)?
                        .is_some_and(|regex| regex.is_match(&text))),
                    _ => Ok(false),
                }
            }
        }
    }

    /// Returns the pattern that a string of the document is.
    fn given_pattern(&mut self, given: &[u8]) -> Result<Option<&Regex>, Exhausted> {
        if self
            .pattern
            .as_ref()
            .is_none_or(|(last, _)| **last != *given)
        {
            self.spend(PATTERN_VISITS)?;
            self.pattern = Some((given.into(), pattern(given)));
        }
        Ok(self.pattern.as_ref().and_then(|(_, regex)| regex.as_ref()))
    }

    /// Returns the places of the values that a term's path finds.
    fn values(&mut self, term: &Term, at: Place) -> Result<Vec<Place>, Exhausted> {
        let (from, steps) = match term {
            Term::Literal(_) => return Ok(Vec::new()),
            Term::Current(steps) => (at, steps),
            Term::Root(steps) => (Place::ROOT, steps),
        };
        let mut inner = self.json.search(false);
        inner.visits_left = self.visits_left;
        inner.levels_left = self.levels_left.checked_sub(1).ok_or(Exhausted)?;
        let result = inner.run(from, steps);
        self.visits_left = inner.visits_left;
        result.map(|()| inner.found)
    }

    /// Returns the value of a term; none if a path does not find exactly one.
    fn value<'t>(&mut self, term: &'t Term, at: Place) -> Result<Option<Item<'t>>, Exhausted>
    where
        Self: 't,
    {
        if let Term::Literal(json) = term {
            return Ok(Some(json.root()));
        }
        let found = self.values(term, at)?;
        Ok(match found[..] {
            [place] => Some(self.json.get(place)),
            _ => None,
        })
    }
}

type Then<'t, S> = dyn FnMut(&mut S, Place) -> Result<(), Exhausted> + 't;

/// Compares two values; `spend` is told how many are looked at.
fn compare(
    left: &Item<'_>,
    operator: Operator,
    right: &Item<'_>,
    spend: &mut impl FnMut(usize) -> Result<(), Exhausted>,
) -> Result<bool, Exhausted> {
    let order = match (left, right) {
        (Item::Integer(a), Item::Integer(b)) => Some(a.cmp(b)),
        (Item::Unsigned(a), Item::Unsigned(b)) => Some(a.cmp(b)),
        (Item::String(a), Item::String(b)) => {
            spend(a.len().min(b.len()) / TEXT_BYTES)?;
            Some((**a).cmp(&**b))
        }
        (Item::Bool(a), Item::Bool(b)) => Some(a.cmp(b)),
        (Item::Null, Item::Null) => Some(Ordering::Equal),
        (Item::Array(_), Item::Array(_)) | (Item::Object(_), Item::Object(_)) => {
            left.equals(right, spend)?.then_some(Ordering::Equal)
        }
        _ => match (left.as_f64(), right.as_f64()) {
            (Some(a), Some(b)) => a.partial_cmp(&b),
            _ => None,
        },
    };
    Ok(match (order, operator) {
        (None, operator) => operator == Operator::NotEqual,
        (Some(order), Operator::Equal) => order.is_eq(),
        (Some(order), Operator::NotEqual) => order.is_ne(),
        (Some(order), Operator::Less) => order.is_lt(),
        (Some(order), Operator::LessOrEqual) => order.is_le(),
        (Some(order), Operator::Greater) => order.is_gt(),
        (Some(order), Operator::GreaterOrEqual) => order.is_ge(),
    })
}
