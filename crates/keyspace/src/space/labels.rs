//! The index of a database's keys by the labels of their values: label name, label value, keys. Kept by the tables when an
//! entry is added, replaced or removed, and by an edit that changes labels in place.
//!
//! One mutex guards it, a leaf lock: it is taken by who changes labels, with the key's stripe held, and by who looks for
//! keys, without a stripe. So what a look-up returns may have changed by the time that its keys are read; a key that is gone
//! or has other labels then is the reader's to leave out. Adding a sample does not touch it.
//!
//! Must not know: types of values, views, commands.

use std::{
    collections::{BTreeSet, HashMap},
    sync::{Arc, Mutex},
};

use redline_types::series::Label;

/// Bytes that a key takes in the set of a label's value, about: its share of a node, and of its text.
const PLACE_BYTES: usize = 24;
/// Bytes of the table for a name or a value, besides its text.
const WORD_BYTES: usize = 80;

/// A key of the index, shared by all its places.
pub type LabelledKey = Arc<[u8]>;

/// A condition on the labels of a value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Matcher {
    /// Name of the label.
    pub name: Box<[u8]>,
    /// Condition on its value.
    pub wanted: Wanted,
}

/// A condition on the value of a label. A label that is not there has none of the values.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Wanted {
    /// It is one of these.
    OneOf(Vec<Box<[u8]>>),
    /// It is none of these.
    NoneOf(Vec<Box<[u8]>>),
    /// It is there.
    Any,
    /// It is not there.
    Missing,
}

impl Matcher {
    /// Returns true if labels fulfil the condition. A name may be given several times: the label has each of the values.
    pub fn fits(&self, labels: &[Label]) -> bool {
        let mut named = labels
            .iter()
            .filter(|label| label.name == self.name && !label.value.is_empty());
        let mut is_one_of = |values: &[Box<[u8]>]| named.any(|label| values.contains(&label.value));
        match &self.wanted {
            Wanted::OneOf(values) => is_one_of(values),
            Wanted::NoneOf(values) => !is_one_of(values),
            Wanted::Any => named.next().is_some(),
            Wanted::Missing => named.next().is_none(),
        }
    }
}

type Values = HashMap<Box<[u8]>, BTreeSet<LabelledKey>>;

/// Keys by label. See the head of this file.
#[derive(Default)]
pub(crate) struct LabelIndex(Mutex<Names>);

#[derive(Default)]
struct Names {
    by_name: HashMap<Box<[u8]>, Values>,
    bytes: usize,
}

impl LabelIndex {
    /// Puts a key with these labels in the place of the same key with others; returns the bytes by which the index has grown.
    pub(crate) fn exchange(&self, key: &[u8], before: &[Label], after: &[Label]) -> i64 {
        if before.is_empty() && after.is_empty() {
            return 0;
        }
        let mut names = self.0.lock().expect("no panic under the index of labels");
        let bytes = names.bytes;
        for label in before {
            names.remove(key, label);
        }
        if !after.is_empty() {
            let shared: LabelledKey = key.into();
            for label in after {
                names.add(&shared, label);
            }
        }
        names.bytes as i64 - bytes as i64
    }

    /// Removes everything; returns the bytes that it took.
    pub(crate) fn clear(&self) -> usize {
        let mut names = self.0.lock().expect("no panic under the index of labels");
        std::mem::take(&mut *names).bytes
    }

    /// Returns the keys that fulfil all the conditions that name values, in order; at least one names the values that there may
    /// be. Whether a label is there at all, whatever its value, is left to who reads the keys: it would take a look at every
    /// value of the label for each key.
    pub(crate) fn find(&self, matchers: &[Matcher]) -> Vec<LabelledKey> {
        let names = self.0.lock().expect("no panic under the index of labels");
        let mut narrow: Vec<(usize, &Matcher)> = Vec::new();
        for matcher in matchers {
            if let Wanted::OneOf(values) = &matcher.wanted {
                let sets = values
                    .iter()
                    .filter_map(|value| names.keys(&matcher.name, value));
                narrow.push((sets.map(BTreeSet::len).sum(), matcher));
            }
        }
        let Some((_, first)) = narrow.iter().min_by_key(|(count, _)| *count) else {
            return Vec::new();
        };
        let Wanted::OneOf(values) = &first.wanted else {
            return Vec::new();
        };
        let sets = values
            .iter()
            .filter_map(|value| names.keys(&first.name, value));
        let mut found: Vec<LabelledKey> = sets.flatten().cloned().collect();
        if values.len() > 1 {
            found.sort_unstable();
            found.dedup();
        }
        found.retain(|key| {
            let others = matchers
                .iter()
                .filter(|matcher| !std::ptr::eq(*matcher, *first));
            others.into_iter().all(|matcher| names.fits(key, matcher))
        });
        found
    }
}

impl Names {
    fn keys(&self, name: &[u8], value: &[u8]) -> Option<&BTreeSet<LabelledKey>> {
        self.by_name.get(name)?.get(value)
    }

    fn fits(&self, key: &LabelledKey, matcher: &Matcher) -> bool {
        let is_in = |value: &[u8]| {
            self.keys(&matcher.name, value)
                .is_some_and(|keys| keys.contains(key))
        };
        match &matcher.wanted {
            Wanted::OneOf(values) => values.iter().any(|value| is_in(value)),
            Wanted::NoneOf(values) => !values.iter().any(|value| is_in(value)),
            Wanted::Any | Wanted::Missing => true,
        }
    }

    fn add(&mut self, key: &LabelledKey, label: &Label) {
        if label.value.is_empty() {
            return;
        }
        if !self.by_name.contains_key(&label.name) {
            self.bytes += WORD_BYTES + label.name.len();
            self.by_name.insert(label.name.clone(), Values::new());
        }
        let values = self
            .by_name
            .get_mut(&label.name)
            .expect("it was just added");
        if !values.contains_key(&label.value) {
            self.bytes += WORD_BYTES + label.value.len();
            values.insert(label.value.clone(), BTreeSet::new());
        }
        let keys = values.get_mut(&label.value).expect("it was just added");
        if keys.insert(key.clone()) {
            self.bytes += PLACE_BYTES + key.len();
        }
    }

    fn remove(&mut self, key: &[u8], label: &Label) {
        let Some(values) = self.by_name.get_mut(&label.name) else {
            return;
        };
        let Some(keys) = values.get_mut(&label.value) else {
            return;
        };
        if keys.remove(key) {
            self.bytes -= PLACE_BYTES + key.len();
        }
        if keys.is_empty() {
            values.remove(&label.value);
            self.bytes -= WORD_BYTES + label.value.len();
        }
        if values.is_empty() {
            self.by_name.remove(&label.name);
            self.bytes -= WORD_BYTES + label.name.len();
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;

    fn label(name: u8, value: u8) -> Label {
        Label {
            name: [b'n', name].into(),
            value: if value == 0 {
                Box::default()
            } else {
                [value].into()
            },
        }
    }

    #[test]
    fn what_is_found_is_what_fits() {
        let index = LabelIndex::default();
        let mut model: BTreeMap<Vec<u8>, Vec<Label>> = BTreeMap::new();
        let mut random = fastrand::Rng::with_seed(7);
        let mut bytes = 0;
        for round in 0..3_000 {
            let key = vec![b'k', random.u8(..30)];
            let labels: Vec<Label> = match random.u32(..3) {
                0 => Vec::new(),
                // Some of them twice.
                _ => (0..random.u8(..6))
                    .map(|name| label(name % 4, random.u8(..4)))
                    .collect(),
            };
            let before = model.get(&key).cloned().unwrap_or_default();
            bytes += index.exchange(&key, &before, &labels);
            model.insert(key, labels);
            if round % 10 > 0 {
                continue;
            }
            let values = |random: &mut fastrand::Rng| -> Vec<Box<[u8]>> {
                (0..random.u8(1..3))
                    .map(|_| [random.u8(1..4)].into())
                    .collect()
            };
            let mut matchers = vec![Matcher {
                name: label(random.u8(..4), 1).name,
                wanted: Wanted::OneOf(values(&mut random)),
            }];
            for _ in 0..random.u32(..3) {
                matchers.push(Matcher {
                    name: label(random.u8(..4), 1).name,
                    wanted: match random.u32(..4) {
                        0 => Wanted::OneOf(values(&mut random)),
                        1 => Wanted::NoneOf(values(&mut random)),
                        2 => Wanted::Any,
                        _ => Wanted::Missing,
                    },
                });
            }
            // Those that name no value are left to the reader.
            let names_values =
                |matcher: &&Matcher| matches!(matcher.wanted, Wanted::OneOf(_) | Wanted::NoneOf(_));
            let fits = |labels: &[Label]| {
                let mut named = matchers.iter().filter(names_values);
                named.all(|matcher| matcher.fits(labels))
            };
            let expected: Vec<&[u8]> = model
                .iter()
                .filter(|(_, labels)| fits(labels))
                .map(|(key, _)| &**key)
                .collect();
            let found = index.find(&matchers);
            let found: Vec<&[u8]> = found.iter().map(|key| &**key).collect();
            assert_eq!(found, expected, "{matchers:?}");
        }
        for (key, labels) in &model {
            bytes += index.exchange(key, labels, &[]);
        }
        assert_eq!(bytes, 0, "the account is exact");
        assert_eq!(index.clear(), 0);
    }
}
