//! Union, intersection and difference of sorted sets and sets. Must not know keys: a key that is
//! missing is an empty input.
//!
//! Inputs are taken in the order of their sizes, as in Redis, since sums of floats depend on the order. Results are
//! collected in the storage that large sets have, scores changing in place; their order is made once, at the end, by
//! sorting. A caller that keeps a result calls [`Zset::pack_if_small`]; one that only replies with it need not.

use super::members::{self, Members};
use super::ordered::Ordered;
use super::{Form, Full, Zset};
use crate::number::IntBuf;
use crate::pack::Element;
use crate::set::Set;
use crate::value::DataType;
use std::ops::ControlFlow;

/// The value of a key, as an input.
#[derive(Clone, Copy)]
pub enum Source<'a> {
    /// No key.
    Empty,
    /// A sorted set.
    Zset(&'a Zset),
    /// A set, whose members all have score 1.
    Set(&'a Set),
}

/// An input, and the factor for its scores.
#[derive(Clone, Copy)]
pub struct Input<'a> {
    /// The members.
    pub source: Source<'a>,
    /// The factor that their scores are multiplied with.
    pub weight: f64,
}

/// The function that combines the scores of a member that is in several inputs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Aggregate {
    /// Their sum.
    Sum,
    /// The least.
    Min,
    /// The greatest.
    Max,
}

impl Aggregate {
    fn combine(self, a: f64, b: f64) -> f64 {
        match self {
            Aggregate::Sum => zero_if_nan(a + b),
            Aggregate::Min => {
                if b < a {
                    b
                } else {
                    a
                }
            }
            Aggregate::Max => {
                if b > a {
                    b
                } else {
                    a
                }
            }
        }
    }
}

/// Returns a score, or zero if it is not a number: infinity minus infinity, and zero times infinity.
fn zero_if_nan(score: f64) -> f64 {
    if score.is_nan() { 0.0 } else { score }
}

impl<'a> Source<'a> {
    /// Returns the number of members.
    pub fn len(self) -> usize {
        match self {
            Source::Empty => 0,
            Source::Zset(zset) => zset.len(),
            Source::Set(set) => set.len(),
        }
    }

    /// Returns true if there is no member.
    pub fn is_empty(self) -> bool {
        self.len() == 0
    }

    /// Returns true if both are one and the same value.
    fn is_same(self, other: Source<'_>) -> bool {
        match (self, other) {
            (Source::Zset(a), Source::Zset(b)) => std::ptr::eq(a, b),
            (Source::Set(a), Source::Set(b)) => std::ptr::eq(a, b),
            _ => false,
        }
    }

    fn score(self, member: Element<'_>) -> Option<f64> {
        match self {
            Source::Empty => None,
            Source::Zset(zset) => zset.score(member.bytes(&mut IntBuf::new())),
            Source::Set(set) => set.contains_element(member).then_some(1.0),
        }
    }

    /// Visits all members until told to stop, or until an error.
    fn visit<B>(self, mut visit: impl FnMut(Element<'a>, f64) -> ControlFlow<B>) -> ControlFlow<B> {
        match self {
            Source::Empty => ControlFlow::Continue(()),
            Source::Zset(zset) => zset
                .iter()
                .try_for_each(|(member, score)| visit(member, score)),
            Source::Set(set) => set.iter().try_for_each(|member| visit(member, 1.0)),
        }
    }
}

/// Members and scores before they have an order.
#[derive(Default)]
struct Collected {
    members: Members,
}

impl Collected {
    /// Adds a member that is not there yet.
    fn push(&mut self, member: Element<'_>, score: f64) -> ControlFlow<Full> {
        let mut buf = IntBuf::new();
        let member = member.bytes(&mut buf);
        match self.members.insert(members::hash(member), member, score) {
            Ok(_) => ControlFlow::Continue(()),
            Err(full) => ControlFlow::Break(full),
        }
    }

    /// Adds a member, or combines its score with the one that is there.
    fn merge(
        &mut self,
        member: Element<'_>,
        score: f64,
        aggregate: Aggregate,
    ) -> ControlFlow<Full> {
        let mut buf = IntBuf::new();
        let bytes = member.bytes(&mut buf);
        let Some(handle) = self.members.find(members::hash(bytes), bytes) else {
            return self.push(member, score);
        };
        let present = self.members.score(handle);
        self.members
            .set_score(handle, aggregate.combine(present, score));
        ControlFlow::Continue(())
    }

    fn remove(&mut self, member: Element<'_>) {
        let mut buf = IntBuf::new();
        let bytes = member.bytes(&mut buf);
        if let Some(handle) = self.members.find(members::hash(bytes), bytes) {
            self.members.remove(handle);
        }
    }

    fn into_zset(self) -> Zset {
        Zset {
            form: Form::Ordered(Box::new(Ordered::from_members(self.members))),
        }
    }
}

fn stopped(flow: ControlFlow<Full>) -> Result<(), Full> {
    match flow {
        ControlFlow::Continue(()) => Ok(()),
        ControlFlow::Break(full) => Err(full),
    }
}

fn by_size<'a>(inputs: &[Input<'a>]) -> Vec<Input<'a>> {
    let mut inputs = inputs.to_vec();
    inputs.sort_by_key(|input| input.source.len());
    inputs
}

/// Returns the members that any input has.
pub fn union(inputs: &[Input<'_>], aggregate: Aggregate) -> Result<Zset, Full> {
    let mut result = Collected::default();
    for input in by_size(inputs) {
        stopped(input.source.visit(|member, score| {
            result.merge(member, zero_if_nan(input.weight * score), aggregate)
        }))?;
    }
    Ok(result.into_zset())
}

/// Returns the members that all inputs have.
pub fn intersection(inputs: &[Input<'_>], aggregate: Aggregate) -> Result<Zset, Full> {
    let inputs = by_size(inputs);
    let mut result = Collected::default();
    let Some((smallest, others)) = inputs.split_first() else {
        return Ok(Zset::new());
    };
    stopped(smallest.source.visit(|member, score| {
        let first = zero_if_nan(smallest.weight * score);
        let combined = others.iter().try_fold(first, |combined, other| {
            let found = if other.source.is_same(smallest.source) {
                score
            } else {
                other.source.score(member)?
            };
            Some(aggregate.combine(combined, other.weight * found))
        });
        match combined {
            Some(score) => result.push(member, score),
            None => ControlFlow::Continue(()),
        }
    }))?;
    Ok(result.into_zset())
}

/// Returns how many members all inputs have, counted up to `limit`; 0 is no limit.
pub fn intersection_len(sources: &[Source<'_>], limit: usize) -> usize {
    let mut sources = sources.to_vec();
    sources.sort_by_key(|source| source.len());
    let Some((smallest, others)) = sources.split_first() else {
        return 0;
    };
    let mut count = 0;
    let _ = smallest.visit(|member, _| {
        let is_common = others
            .iter()
            .all(|other| other.is_same(*smallest) || other.score(member).is_some());
        count += usize::from(is_common);
        if count == limit && limit > 0 {
            ControlFlow::Break(())
        } else {
            ControlFlow::Continue(())
        }
    });
    count
}

/// Returns the members of the first input that no other has.
pub fn difference(sources: &[Source<'_>]) -> Result<Zset, Full> {
    let Some((&first, others)) = sources.split_first() else {
        return Ok(Zset::new());
    };
    if first.is_empty() || others.iter().any(|other| other.is_same(first)) {
        return Ok(Zset::new());
    }
    let others_len: usize = others.iter().map(|other| other.len()).sum();
    // Looking up the members of the first, mostly in vain, against removing those of the others.
    let is_lookup_cheaper =
        first.len().saturating_mul(sources.len()) / 2 <= first.len() + others_len;
    let mut result = Collected::default();
    if is_lookup_cheaper {
        let mut others = others.to_vec();
        others.sort_by_key(|other| std::cmp::Reverse(other.len()));
        stopped(first.visit(|member, score| {
            if others.iter().any(|other| other.score(member).is_some()) {
                return ControlFlow::Continue(());
            }
            result.push(member, score)
        }))?;
    } else {
        stopped(first.visit(|member, score| result.push(member, score)))?;
        for other in others {
            let _ = other.visit(|member, _| {
                result.remove(member);
                if result.members.is_empty() {
                    ControlFlow::Break(())
                } else {
                    ControlFlow::Continue(())
                }
            });
        }
    }
    Ok(result.into_zset())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::limits::Limits;
    use crate::zset::AddFlags;
    use std::collections::BTreeMap;

    enum Owned {
        Zset(Zset),
        Set(Set),
        Empty,
    }

    impl Owned {
        fn source(&self) -> Source<'_> {
            match self {
                Owned::Zset(zset) => Source::Zset(zset),
                Owned::Set(set) => Source::Set(set),
                Owned::Empty => Source::Empty,
            }
        }
    }

    type Model = BTreeMap<Vec<u8>, f64>;

    fn random_input(random: &mut fastrand::Rng, limits: &Limits) -> (Owned, Model) {
        let mut model = Model::new();
        let len_max = [3, 60][random.usize(..2)];
        let len = random.usize(..len_max);
        let is_set = random.u8(..3) == 0;
        let only_ints = random.bool();
        for _ in 0..len {
            let number = random.u32(..40);
            let member = if only_ints {
                number.to_string()
            } else {
                format!("m{number}")
            };
            let score = match random.u8(..10) {
                _ if is_set => 1.0,
                0 => f64::INFINITY,
                1 => f64::NEG_INFINITY,
                _ => f64::from(random.i32(-5..5)),
            };
            model.insert(member.into_bytes(), score);
        }
        if random.u8(..10) == 0 {
            return (Owned::Empty, Model::new());
        }
        if is_set {
            let mut set = Set::new();
            model.keys().for_each(|member| {
                set.add(member, limits);
            });
            return (Owned::Set(set), model);
        }
        let mut zset = Zset::new();
        for (member, score) in &model {
            zset.add(member, *score, AddFlags::default(), limits)
                .unwrap();
        }
        (Owned::Zset(zset), model)
    }

    fn content(zset: &Zset) -> Model {
        let mut last = None;
        let items = zset.iter().map(|(member, score)| {
            let member = member.to_vec();
            assert!(
                last.replace((score, member.clone()))
                    .is_none_or(|last| last < (score, member.clone()))
            );
            (member, score)
        });
        items.collect()
    }

    #[test]
    fn results_agree_with_their_definition() {
        let mut random = fastrand::Rng::with_seed(41);
        let limits = Limits {
            zset_max_listpack_entries: 10,
            set_max_intset_entries: 10,
            set_max_listpack_entries: 10,
            ..Limits::default()
        };
        for _ in 0..3000 {
            let owned: Vec<(Owned, Model)> = (0..random.usize(1..5))
                .map(|_| random_input(&mut random, &limits))
                .collect();
            // The same value may be given twice.
            let picks: Vec<usize> = (0..owned.len())
                .map(|i| if random.u8(..6) == 0 { 0 } else { i })
                .collect();
            let inputs: Vec<Input<'_>> = picks
                .iter()
                .map(|i| Input {
                    source: owned[*i].0.source(),
                    weight: [1.0, 2.0, -1.0, 0.0][random.usize(..4)],
                })
                .collect();
            let sources: Vec<Source<'_>> = inputs.iter().map(|input| input.source).collect();
            let models: Vec<&Model> = picks.iter().map(|i| &owned[*i].1).collect();
            let aggregate = [Aggregate::Sum, Aggregate::Min, Aggregate::Max][random.usize(..3)];

            let mut order: Vec<usize> = (0..models.len()).collect();
            order.sort_by_key(|i| models[*i].len());
            let mut united = Model::new();
            for i in &order {
                for (member, score) in models[*i] {
                    let score = zero_if_nan(score * inputs[*i].weight);
                    united
                        .entry(member.clone())
                        .and_modify(|present| *present = aggregate.combine(*present, score))
                        .or_insert(score);
                }
            }
            let mut result = union(&inputs, aggregate).unwrap();
            assert_eq!(content(&result), united);
            result.pack_if_small(&limits);
            assert_eq!(content(&result), united);
            assert_eq!(result.encoding() == "listpack", united.len() <= 10);

            let in_all = |member: &Vec<u8>| models.iter().all(|model| model.contains_key(member));
            let mut common = Model::new();
            for member in models[0].keys().filter(|member| in_all(member)) {
                let mut scores = order.iter().map(|i| models[*i][member] * inputs[*i].weight);
                let first = zero_if_nan(scores.next().unwrap());
                let score = scores.fold(first, |a, b| aggregate.combine(a, b));
                common.insert(member.clone(), score);
            }
            let result = intersection(&inputs, aggregate).unwrap();
            assert_eq!(content(&result), common);
            let limit = random.usize(..6);
            let expected = if limit == 0 {
                common.len()
            } else {
                limit.min(common.len())
            };
            assert_eq!(intersection_len(&sources, limit), expected);

            let in_others = |member| models[1..].iter().any(|model| model.contains_key(member));
            let only: Model = models[0]
                .iter()
                .filter(|(member, _)| !in_others(*member))
                .map(|(member, score)| (member.clone(), *score))
                .collect();
            assert_eq!(content(&difference(&sources).unwrap()), only);
        }
    }
}
