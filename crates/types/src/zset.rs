//! The sorted set: members ordered by score, then by bytes. Must not know the command, nor the form of the replies.
//!
//! Positions are *ranks*, counted from the lowest score. Every range (by index, score or member) is first turned into a
//! range of ranks, which is then counted, walked in either direction, cut by an offset and a limit, or removed. So the
//! rules of ranges are in three functions.

pub mod algebra;
mod members;
mod order;
mod ordered;
mod packed;
mod range;
pub mod several;

pub use members::Full;
pub use range::{InvalidBound, LexBound, LexRange, ScoreBound, ScoreRange, index_range};
pub use several::ExZset;

use crate::digest::Digest;
use crate::limits::Limits;
use crate::number::IntBuf;
use crate::pack::{Element, Pack};
use crate::packed::{PackedForm, PackedRef};
use crate::sample;
use crate::value::DataType;
use ordered::Ordered;
use packed::Packed;
use redline_table::frozen::FreezeId;
use std::ops::Range;

/// Members ordered by score, then by bytes.
#[derive(Clone)]
pub struct Zset {
    form: Form,
}

#[derive(Clone)]
enum Form {
    Packed(Packed),
    Ordered(Box<Ordered>),
}

/// Conditions under which [`Zset::add`] adds or changes, and how.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct AddFlags {
    /// Only add, never change.
    pub nx: bool,
    /// Only change, never add.
    pub xx: bool,
    /// Only change to a greater score; adds too.
    pub gt: bool,
    /// Only change to a lower score; adds too.
    pub lt: bool,
    /// The score is added to the one that is there.
    pub incr: bool,
}

/// Result of [`Zset::add`], with the score that the member has now.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Added {
    /// The member is new.
    New(f64),
    /// The member has another score now.
    Changed(f64),
    /// The member had this score already.
    Same(f64),
    /// The flags forbade it.
    Refused,
}

/// Reason why [`Zset::add`] failed. Nothing is changed then.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AddError {
    /// The score is not a number, or adding it to the present one is not.
    NotANumber,
    /// There is no room for one more member.
    Full,
}

impl From<Full> for AddError {
    fn from(_: Full) -> AddError {
        AddError::Full
    }
}

impl Default for Zset {
    fn default() -> Zset {
        Zset::new()
    }
}

impl Zset {
    /// Returns an empty, packed set.
    pub fn new() -> Zset {
        Zset {
            form: Form::Packed(Packed::default()),
        }
    }

    /// Takes the form for large sets if this many members are about to be added.
    pub fn expect(&mut self, members: usize, limits: &Limits) -> Result<(), Full> {
        if members > limits.zset_max_listpack_entries {
            self.unpack()?;
        }
        Ok(())
    }

    // Single members.

    /// Adds a member, or changes its score.
    pub fn add(
        &mut self,
        member: &[u8],
        score: f64,
        flags: AddFlags,
        limits: &Limits,
    ) -> Result<Added, AddError> {
        if score.is_nan() {
            return Err(AddError::NotANumber);
        }
        match &mut self.form {
            Form::Packed(packed) => {
                if let Some((at, present)) = packed.find(member) {
                    let verdict = decide(present, score, flags)?;
                    if let Added::Changed(score) = verdict {
                        packed.remove(at);
                        packed.insert(member, score);
                    }
                    return Ok(verdict);
                }
                if flags.xx {
                    return Ok(Added::Refused);
                }
                if packed.len() < limits.zset_max_listpack_entries
                    && member.len() <= limits.zset_max_listpack_value
                    && packed.is_safe_to_add(member)
                {
                    packed.insert(member, score);
                    return Ok(Added::New(score));
                }
                self.unpack()?.insert_new(member, score)?;
                Ok(Added::New(score))
            }
            Form::Ordered(ordered) => {
                let (hash, found) = ordered.find(member);
                let Some(handle) = found else {
                    if flags.xx {
                        return Ok(Added::Refused);
                    }
                    ordered.insert(hash, member, score)?;
                    return Ok(Added::New(score));
                };
                let verdict = decide(ordered.score(handle), score, flags)?;
                if let Added::Changed(score) = verdict {
                    ordered.change_score(member, handle, score);
                }
                Ok(verdict)
            }
        }
    }

    /// Removes a member: returns its score if it was there.
    pub fn remove(&mut self, member: &[u8]) -> Option<f64> {
        match &mut self.form {
            Form::Packed(packed) => {
                let (at, score) = packed.find(member)?;
                packed.remove(at);
                Some(score)
            }
            Form::Ordered(ordered) => {
                let handle = ordered.find(member).1?;
                let score = ordered.score(handle);
                ordered.remove(member, handle);
                Some(score)
            }
        }
    }

    /// Returns the score of a member.
    pub fn score(&self, member: &[u8]) -> Option<f64> {
        match &self.form {
            Form::Packed(packed) => Some(packed.find(member)?.1),
            Form::Ordered(ordered) => Some(ordered.score(ordered.find(member).1?)),
        }
    }

    /// Returns the rank and the score of a member.
    pub fn rank(&self, member: &[u8]) -> Option<(usize, f64)> {
        match &self.form {
            Form::Packed(packed) => {
                let (at, score) = packed.find(member)?;
                Some((packed.rank(at), score))
            }
            Form::Ordered(ordered) => {
                let score = ordered.score(ordered.find(member).1?);
                Some((ordered.rank(member, score), score))
            }
        }
    }

    /// Returns the member with this rank.
    pub fn get(&self, rank: usize) -> Option<(Element<'_>, f64)> {
        match &self.form {
            Form::Packed(packed) => packed.get(rank),
            Form::Ordered(ordered) => {
                let (member, score) = ordered.get(rank)?;
                Some((Element::Bytes(member), score))
            }
        }
    }

    /// Returns a member, each equally likely.
    pub fn random_member(&self, random: &mut impl FnMut() -> u64) -> Option<(Element<'_>, f64)> {
        self.get(sample::below(self.len(), random))
    }

    /// Visits `count` members, chosen one by one from all of them, so that they may repeat.
    pub fn random_members<'a>(
        &'a self,
        count: usize,
        random: &mut impl FnMut() -> u64,
        mut visit: impl FnMut(Element<'a>, f64),
    ) {
        if let Form::Packed(packed) = &self.form {
            let all: Vec<_> = packed.iter(0..packed.len()).collect();
            let count = if all.is_empty() { 0 } else { count };
            for _ in 0..count {
                let (member, score) = all[sample::below(all.len(), random)];
                visit(member, score);
            }
            return;
        }
        for _ in 0..count {
            let Some((member, score)) = self.random_member(random) else {
                return;
            };
            visit(member, score);
        }
    }

    /// Visits `count` different members, or all if there are fewer.
    pub fn random_distinct_members<'a>(
        &'a self,
        count: usize,
        random: &mut impl FnMut() -> u64,
        mut visit: impl FnMut(Element<'a>, f64),
    ) {
        match &self.form {
            Form::Ordered(ordered) if sample::is_sparse(count, ordered.len()) => {
                let draw = || ordered.get(sample::below(ordered.len(), random));
                sample::visit_drawn(count, draw, |member, score| {
                    visit(Element::Bytes(member), score);
                });
            }
            _ => {
                sample::visit_selected(self.iter(), self.len(), count, random, |(member, score)| {
                    visit(member, score);
                })
            }
        }
    }

    // Ranges of ranks.

    /// Returns the ranks of the members in a range of scores.
    pub fn score_range(&self, range: &ScoreRange) -> Range<usize> {
        match &self.form {
            Form::Packed(packed) => packed.score_range(range),
            Form::Ordered(ordered) => ordered.score_range(range),
        }
    }

    /// Returns the ranks of the members in a range of members, if all scores are equal. If not, it is some
    /// range, which may depend on the end that it is looked for from.
    pub fn lex_range(&self, range: &LexRange<'_>, from_back: bool) -> Range<usize> {
        if range.is_empty() {
            return 0..0;
        }
        match &self.form {
            Form::Packed(packed) => packed.lex_range(range, from_back),
            Form::Ordered(ordered) => ordered.lex_range(range),
        }
    }

    /// Returns the members of a range of ranks, from either end.
    pub fn range(&self, ranks: Range<usize>) -> Iter<'_> {
        let end = ranks.end.min(self.len());
        let ranks = ranks.start.min(end)..end;
        match &self.form {
            Form::Packed(packed) => Iter(IterForm::Packed(packed.iter(ranks))),
            Form::Ordered(ordered) => Iter(IterForm::Ordered(ordered.iter(ranks))),
        }
    }

    /// Returns all members in order.
    pub fn iter(&self) -> Iter<'_> {
        self.range(0..self.len())
    }

    /// Removes a range of ranks, and returns how many there were.
    pub fn remove_range(&mut self, ranks: Range<usize>) -> usize {
        let end = ranks.end.min(self.len());
        if ranks.start >= end {
            return 0;
        }
        match &mut self.form {
            Form::Packed(packed) => packed.remove_range(ranks.start..end),
            Form::Ordered(ordered) => ordered.remove_range(ranks.start..end),
        }
    }

    // The whole set.

    /// Visits members from a cursor on, about `count` of them, and returns the next cursor, 0 at the
    /// end. A packed set is visited whole. Members that are there all the time from cursor 0 to
    /// cursor 0 are visited at least once, whatever else comes and goes.
    pub fn scan(&self, cursor: u64, count: usize, mut visit: impl FnMut(Element<'_>, f64)) -> u64 {
        match &self.form {
            Form::Packed(packed) => {
                packed
                    .iter(0..packed.len())
                    .for_each(|(member, score)| visit(member, score));
                0
            }
            Form::Ordered(ordered) => ordered.scan(cursor, count, &mut |member, score| {
                visit(Element::Bytes(member), score);
            }),
        }
    }

    /// Takes the packed form if the set is small enough for it. Sets that only change keep the form
    /// for large ones; this is for sets that were just made.
    pub fn pack_if_small(&mut self, limits: &Limits) {
        let Form::Ordered(ordered) = &self.form else {
            return;
        };
        debug_assert!(ordered.freeze_id().is_none(), "it was just made");
        let fits = ordered.len() <= limits.zset_max_listpack_entries
            && self
                .iter()
                .all(|(member, _)| member.len() <= limits.zset_max_listpack_value);
        if !fits {
            return;
        }
        let mut packed = Packed::default();
        for (member, score) in ordered.iter(0..ordered.len()) {
            if !packed.is_safe_to_add(member) {
                return;
            }
            packed.push_back(member, score);
        }
        self.form = Form::Packed(packed);
    }

    /// Passes on some of the members that a frozen set had, with their scores; returns true after the last one, which
    /// ends the freeze.
    pub fn give_piece(&mut self, visit: &mut dyn FnMut(Element<'_>, f64)) -> bool {
        match &mut self.form {
            Form::Ordered(ordered) => {
                ordered.give_piece(&mut |member, score| visit(Element::Bytes(member), score))
            }
            Form::Packed(_) => true,
        }
    }

    /// Returns the members and scores by turns, as long as the set is packed.
    pub fn pack(&self) -> Option<&Pack> {
        match &self.form {
            Form::Packed(packed) => Some(packed.pack()),
            Form::Ordered(_) => None,
        }
    }

    /// Takes the form for large sets, whatever the size; fails, and changes nothing, where there is no memory for it.
    pub fn leave_packed(&mut self) -> Result<(), Full> {
        self.unpack().map(|_| ())
    }

    /// Takes the form for large sets.
    fn unpack(&mut self) -> Result<&mut Ordered, Full> {
        if let Form::Packed(packed) = &self.form {
            let mut ordered = Box::<Ordered>::default();
            let mut buf = IntBuf::new();
            for (member, score) in packed.iter(0..packed.len()) {
                ordered.insert_new(member.bytes(&mut buf), score)?;
            }
            self.form = Form::Ordered(ordered);
        }
        match &mut self.form {
            Form::Ordered(ordered) => Ok(ordered),
            Form::Packed(_) => unreachable!("unpacked just now"),
        }
    }
}

/// Returns the result of [`Zset::add`] for a member that exists.
fn decide(present: f64, score: f64, flags: AddFlags) -> Result<Added, AddError> {
    if flags.nx {
        return Ok(Added::Refused);
    }
    let score = if flags.incr { present + score } else { score };
    if score.is_nan() {
        return Err(AddError::NotANumber);
    }
    if (flags.lt && score >= present) || (flags.gt && score <= present) {
        return Ok(Added::Refused);
    }
    Ok(if score == present {
        Added::Same(score)
    } else {
        Added::Changed(score)
    })
}

impl DataType for Zset {
    const NAME: &'static str = "zset";
    const OBJECT_TYPE: u32 = 3;
    const EMPTY_FORM: Option<PackedForm> = Some(PackedForm::Zset);

    fn encoding(&self) -> &'static str {
        match &self.form {
            Form::Packed(_) => "listpack",
            Form::Ordered(_) => "skiplist",
        }
    }

    fn len(&self) -> usize {
        match &self.form {
            Form::Packed(packed) => packed.len(),
            Form::Ordered(ordered) => ordered.len(),
        }
    }

    fn heap_bytes(&self) -> usize {
        size_of::<Self>()
            + match &self.form {
                Form::Packed(packed) => packed.heap_bytes(),
                Form::Ordered(ordered) => ordered.heap_bytes(),
            }
    }

    fn free_effort(&self) -> usize {
        match &self.form {
            Form::Packed(_) => 1,
            Form::Ordered(ordered) => ordered.allocation_count(),
        }
    }

    fn digest<D: Digest>(&self, digest: &mut D) {
        for (member, score) in self.iter() {
            let mut part = D::default();
            part.mix_element(member);
            part.mix_f64(score);
            digest.combine_part(&part);
        }
    }

    fn can_freeze(&self) -> bool {
        matches!(self.form, Form::Ordered(_))
    }

    fn freeze(&mut self, id: FreezeId) {
        match &mut self.form {
            Form::Ordered(ordered) => ordered.freeze(id),
            Form::Packed(_) => panic!("only the form for large sets is frozen"),
        }
    }

    fn freeze_id(&self) -> Option<FreezeId> {
        match &self.form {
            Form::Ordered(ordered) => ordered.freeze_id(),
            Form::Packed(_) => None,
        }
    }

    fn thaw(&mut self) {
        if let Form::Ordered(ordered) = &mut self.form {
            ordered.thaw();
        }
    }

    #[inline]
    fn packed(&self) -> Option<PackedRef<'_>> {
        self.pack().map(|pack| pack.packed(PackedForm::Zset))
    }

    #[inline]
    fn load_packed(&mut self, packed: PackedRef<'_>) {
        assert_eq!(packed.form, PackedForm::Zset);
        match &mut self.form {
            Form::Packed(pairs) => pairs.load(packed),
            other => *other = Form::Packed(Packed::of_packed(packed)),
        }
    }
}

/// Members with their scores, from either end.
///
/// A member is [`Element::Int`] only where the set is packed: compare members by their bytes.
#[derive(Clone)]
pub struct Iter<'a>(IterForm<'a>);

#[derive(Clone)]
enum IterForm<'a> {
    Packed(packed::Iter<'a>),
    Ordered(ordered::Iter<'a>),
}

impl<'a> Iterator for Iter<'a> {
    type Item = (Element<'a>, f64);

    #[inline]
    fn next(&mut self) -> Option<Self::Item> {
        match &mut self.0 {
            IterForm::Packed(iter) => iter.next(),
            IterForm::Ordered(iter) => {
                let (member, score) = iter.next()?;
                Some((Element::Bytes(member), score))
            }
        }
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        match &self.0 {
            IterForm::Packed(iter) => iter.size_hint(),
            IterForm::Ordered(iter) => iter.size_hint(),
        }
    }
}

impl DoubleEndedIterator for Iter<'_> {
    #[inline]
    fn next_back(&mut self) -> Option<Self::Item> {
        match &mut self.0 {
            IterForm::Packed(iter) => iter.next_back(),
            IterForm::Ordered(iter) => {
                let (member, score) = iter.next_back()?;
                Some((Element::Bytes(member), score))
            }
        }
    }
}

impl ExactSizeIterator for Iter<'_> {}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::{BTreeMap, BTreeSet};

    /// A score that sorts, with -0 and 0 the same.
    #[derive(Clone, Copy, PartialEq, Debug)]
    struct Score(f64);

    impl Eq for Score {}

    impl PartialOrd for Score {
        fn partial_cmp(&self, other: &Score) -> Option<std::cmp::Ordering> {
            Some(self.cmp(other))
        }
    }

    impl Ord for Score {
        fn cmp(&self, other: &Score) -> std::cmp::Ordering {
            self.0.partial_cmp(&other.0).unwrap()
        }
    }

    #[derive(Clone, Default)]
    struct Model {
        scores: BTreeMap<Vec<u8>, f64>,
        order: BTreeSet<(Score, Vec<u8>)>,
    }

    impl Model {
        fn set(&mut self, member: &[u8], score: f64) {
            self.remove(member);
            self.scores.insert(member.to_vec(), score);
            self.order.insert((Score(score), member.to_vec()));
        }

        fn remove(&mut self, member: &[u8]) -> Option<f64> {
            let score = self.scores.remove(member)?;
            self.order.remove(&(Score(score), member.to_vec()));
            Some(score)
        }

        fn items(&self) -> Vec<(Vec<u8>, f64)> {
            let items = self.order.iter();
            items.map(|(score, m)| (m.clone(), score.0)).collect()
        }
    }

    fn items<'a>(iter: impl Iterator<Item = (Element<'a>, f64)>) -> Vec<(Vec<u8>, f64)> {
        iter.map(|(member, score)| (member.to_vec(), score))
            .collect()
    }

    fn limits(entries: usize, value: usize) -> Limits {
        Limits {
            zset_max_listpack_entries: entries,
            zset_max_listpack_value: value,
            ..Limits::default()
        }
    }

    fn random_score(random: &mut fastrand::Rng) -> f64 {
        match random.u8(..12) {
            0 => f64::INFINITY,
            1 => f64::NEG_INFINITY,
            2 => -0.0,
            3 => 1e300,
            4 => random.f64() * 20.0 - 10.0,
            5 => 9.3e18,
            _ => f64::from(random.i32(-10..10)),
        }
    }

    fn random_member(random: &mut fastrand::Rng) -> Vec<u8> {
        match random.u8(..12) {
            0 => Vec::new(),
            1 => random.u32(..50).to_string().into_bytes(),
            2 => vec![b'x'; random.usize(250..258)],
            _ => format!("member:{}", random.u32(..400)).into_bytes(),
        }
    }

    fn check_ranges(set: &Zset, model: &Model, random: &mut fastrand::Rng) {
        let all = model.items();
        assert_eq!(set.len(), all.len());
        assert_eq!(items(set.iter()), all);
        let (a, b) = (random.usize(..all.len() + 2), random.usize(..all.len() + 2));
        let expected = all.get(a..b.min(all.len())).unwrap_or(&[]);
        assert_eq!(items(set.range(a..b)), expected);
        assert_eq!(set.range(a..b).len(), expected.len());
        let mut backwards = items(set.range(a..b).rev());
        backwards.reverse();
        assert_eq!(backwards, expected);
        let mut both_ends = set.range(a..b);
        for i in 0..expected.len() {
            let item = if i % 3 == 0 {
                both_ends.next_back()
            } else {
                both_ends.next()
            };
            assert!(item.is_some());
        }
        assert!(both_ends.next().is_none() && both_ends.next_back().is_none());

        let bound = |random: &mut fastrand::Rng| ScoreBound {
            score: random_score(random),
            exclusive: random.bool(),
        };
        let range = ScoreRange {
            min: bound(random),
            max: bound(random),
        };
        let inside = |score: f64| {
            let (min, max) = (range.min, range.max);
            (score > min.score || (!min.exclusive && score == min.score))
                && (score < max.score || (!max.exclusive && score == max.score))
        };
        let expected: Vec<_> = all.iter().filter(|item| inside(item.1)).cloned().collect();
        assert_eq!(items(set.range(set.score_range(&range))), expected);
    }

    fn pop(set: &mut Zset, rank: usize) -> Option<(Vec<u8>, f64)> {
        let (member, score) = set.get(rank)?;
        let popped = (member.to_vec(), score);
        set.remove_range(rank..rank + 1);
        Some(popped)
    }

    #[test]
    fn random_changes_agree_with_a_map_and_an_ordered_set() {
        let mut random = fastrand::Rng::with_seed(21);
        for round in 0..40 {
            let limits = limits([0, 8, 100, 100_000][round % 4], 64);
            let mut set = Zset::new();
            let mut model = Model::default();
            for step in 0..1500 {
                let member = random_member(&mut random);
                let present = model.scores.get(&member).copied();
                let growing = step % 1000 < 600;
                match random.u8(..if growing { 10 } else { 20 }) {
                    0..=8 => {
                        let flags = AddFlags {
                            nx: random.u8(..8) == 0,
                            xx: random.u8(..8) == 0,
                            gt: random.u8(..8) == 0,
                            lt: random.u8(..8) == 0,
                            incr: random.u8(..4) == 0,
                        };
                        let score = random_score(&mut random);
                        let wanted =
                            present.map_or(
                                score,
                                |present| {
                                    if flags.incr { present + score } else { score }
                                },
                            );
                        let allowed = present.map_or(!flags.xx, |present| {
                            !(flags.nx
                                || (flags.gt && wanted <= present)
                                || (flags.lt && wanted >= present))
                        });
                        let expected = if wanted.is_nan() && !flags.nx {
                            Err(AddError::NotANumber)
                        } else if !allowed {
                            Ok(Added::Refused)
                        } else if present == Some(wanted) {
                            Ok(Added::Same(wanted))
                        } else {
                            model.set(&member, wanted);
                            Ok(present.map_or(Added::New(wanted), |_| Added::Changed(wanted)))
                        };
                        assert_eq!(set.add(&member, score, flags, &limits), expected);
                    }
                    9..=16 => assert_eq!(set.remove(&member), model.remove(&member)),
                    17 => {
                        let expected = model.items().first().cloned();
                        assert_eq!(pop(&mut set, 0), expected);
                        expected.map(|(member, _)| model.remove(&member));
                    }
                    18 => {
                        let expected = model.items().last().cloned();
                        let last = model.items().len().saturating_sub(1);
                        assert_eq!(pop(&mut set, last), expected);
                        expected.map(|(member, _)| model.remove(&member));
                    }
                    _ => {
                        let start = random.usize(..model.scores.len() + 1);
                        let end = start + random.usize(..70);
                        let all = model.items();
                        let gone = &all[start..end.min(all.len())];
                        assert_eq!(set.remove_range(start..end), gone.len());
                        for (member, _) in gone {
                            model.remove(member);
                        }
                    }
                }
                let member = random_member(&mut random);
                assert_eq!(set.score(&member), model.scores.get(&member).copied());
                let all = model.items();
                let rank = all.iter().position(|item| item.0 == member);
                assert_eq!(set.rank(&member), rank.map(|rank| (rank, all[rank].1)));
                if step % 50 == 0 {
                    check_ranges(&set, &model, &mut random);
                }
            }
            check_ranges(&set.clone(), &model, &mut random);
            let mut seen = BTreeMap::new();
            let mut cursor = 0;
            loop {
                cursor = set.scan(cursor, 10, |member, score| {
                    assert_eq!(seen.insert(member.to_vec(), score), None);
                });
                if cursor == 0 {
                    break;
                }
            }
            assert_eq!(seen, model.scores);
            set.pack_if_small(&limits);
            check_ranges(&set, &model, &mut random);
        }
    }

    #[test]
    fn lexical_ranges_agree_with_filtering() {
        let mut random = fastrand::Rng::with_seed(22);
        for entries in [0, 1000] {
            let limits = limits(entries, 64);
            let mut set = Zset::new();
            let mut members = BTreeSet::new();
            for _ in 0..300 {
                let member = random_member(&mut random);
                if member.len() < 64 {
                    set.add(&member, 5.0, AddFlags::default(), &limits).unwrap();
                    members.insert(member);
                }
            }
            for _ in 0..2000 {
                let (low, high) = (random_member(&mut random), random_member(&mut random));
                let bound = |kind: u8, member| match kind {
                    0 => LexBound::Lowest,
                    1 => LexBound::Highest,
                    2..5 => LexBound::Exclusive(member),
                    _ => LexBound::Inclusive(member),
                };
                let range = LexRange {
                    min: bound(random.u8(..8), &low),
                    max: bound(random.u8(..8), &high),
                };
                let expected: Vec<_> = members
                    .iter()
                    .filter(|member| !range.is_below(member) && !range.is_above(member))
                    .cloned()
                    .collect();
                for from_back in [false, true] {
                    let ranks = set.lex_range(&range, from_back);
                    let found: Vec<_> = set.range(ranks).map(|item| item.0.to_vec()).collect();
                    assert_eq!(found, expected, "{range:?}");
                }
            }
        }
    }

    #[test]
    fn the_form_changes_at_the_thresholds() {
        let limits = limits(3, 5);
        let add = |set: &mut Zset, member: &[u8]| {
            set.add(member, 1.0, AddFlags::default(), &limits).unwrap()
        };
        let mut set = Zset::new();
        for member in [b"a", b"b", b"c", b"c"] {
            add(&mut set, member);
        }
        assert_eq!(set.encoding(), "listpack");
        add(&mut set, b"d");
        assert_eq!(set.encoding(), "skiplist");
        set.remove(b"d");
        assert_eq!(set.encoding(), "skiplist");
        set.pack_if_small(&limits);
        assert_eq!(set.encoding(), "listpack");
        let xx = AddFlags {
            xx: true,
            ..AddFlags::default()
        };
        assert_eq!(set.add(b"longer", 1.0, xx, &limits), Ok(Added::Refused));
        assert_eq!(set.encoding(), "listpack");
        set.remove(b"a");
        add(&mut set, b"longer");
        assert_eq!(set.encoding(), "skiplist");
        set.pack_if_small(&limits);
        assert_eq!(set.encoding(), "skiplist");
        let mut set = Zset::new();
        set.expect(3, &limits).unwrap();
        assert_eq!(set.encoding(), "listpack");
        set.expect(4, &limits).unwrap();
        assert_eq!(set.encoding(), "skiplist");
    }

    #[test]
    fn memory_follows_the_content_down() {
        let limits = Limits::default();
        let mut random = fastrand::Rng::with_seed(23);
        let mut set = Zset::new();
        let mut members: Vec<Vec<u8>> = (0..50_000)
            .map(|i| format!("member:{i:09}").into_bytes())
            .collect();
        for member in &members {
            set.add(member, random.f64(), AddFlags::default(), &limits)
                .unwrap();
        }
        let full = set.heap_bytes();
        assert!(full < 50_000 * 64, "{full}");
        random.shuffle(&mut members);
        for member in &members[5_000..] {
            assert!(set.remove(member).is_some());
        }
        let rest = set.heap_bytes();
        assert!(rest < full / 4, "{rest} of {full}");
        for member in &members[..5_000] {
            let (rank, score) = set.rank(member).unwrap();
            assert_eq!(set.get(rank).unwrap().0.to_vec(), *member);
            assert_eq!(set.remove(member), Some(score));
        }
        assert!(set.is_empty() && set.heap_bytes() < 10_000);
    }

    #[test]
    fn random_members_are_members_and_distinct_where_asked() {
        let mut rng = fastrand::Rng::with_seed(24);
        let mut random = || rng.u64(..);
        for entries in [0, 1000] {
            let limits = limits(entries, 64);
            let mut set = Zset::new();
            assert!(set.random_member(&mut random).is_none());
            set.random_members(5, &mut random, |_, _| unreachable!());
            set.random_distinct_members(5, &mut random, |_, _| unreachable!());
            for i in 0..100 {
                let member = format!("m{i}");
                set.add(
                    member.as_bytes(),
                    f64::from(i),
                    AddFlags::default(),
                    &limits,
                )
                .unwrap();
            }
            let mut seen = BTreeSet::new();
            let mut shown = 0;
            set.random_members(2000, &mut random, |member, score| {
                assert_eq!(member.to_vec(), format!("m{score}").into_bytes());
                seen.insert(score as u32);
                shown += 1;
            });
            assert_eq!((seen.len(), shown), (100, 2000));
            for count in [0, 1, 30, 90, 100, 200] {
                let mut seen = BTreeSet::new();
                set.random_distinct_members(count, &mut random, |_, score| {
                    assert!(seen.insert(score as u32));
                });
                assert_eq!(seen.len(), count.min(100));
            }
        }
    }

    #[test]
    fn a_score_of_negative_zero_is_zero_when_packed() {
        let limits = limits(1, 64);
        let mut set = Zset::new();
        set.add(b"a", -0.0, AddFlags::default(), &limits).unwrap();
        assert!(set.score(b"a").unwrap().is_sign_positive());
        set.add(b"b", -0.0, AddFlags::default(), &limits).unwrap();
        assert!(set.score(b"b").unwrap().is_sign_negative());
    }
}
