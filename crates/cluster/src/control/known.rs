//! Records of the store as a node knows them, each with the revision in which it was last written.
//!
//! Must not know: what is decided by them.

use std::collections::BTreeMap;

use redline_etcd::{Event, Events, Listing, Pair};

use crate::records::{ALIVE, Alive, MAP_KEY, Map, Record, SHARDS, ShardRecord};

/// See the head of the module. What comes late, by a slow watch or a slow answer, does not replace what is newer.
#[derive(Clone, Debug, Default)]
pub struct Known {
    revision: u64,
    keys: BTreeMap<String, Entry>,
}

/// A key. One that was removed is kept with the revision in which that was known.
#[derive(Clone, Debug)]
struct Entry {
    revision: u64,
    pair: Option<Pair>,
}

impl Known {
    /// Makes one in which nothing is known.
    pub fn new() -> Known {
        Known::default()
    }

    /// Returns the revision up to which all keys are known. 0: no listing has come yet.
    pub fn revision(&self) -> u64 {
        self.revision
    }

    /// Learns all keys of the store.
    pub fn learn_listing(&mut self, listing: &Listing) {
        for pair in &listing.pairs {
            self.learn(&pair.key, pair.mod_revision, Some(pair));
        }
        let there = |key: &String| listing.pairs.binary_search_by(|pair| pair.key.cmp(key));
        for (key, entry) in &mut self.keys {
            if entry.revision <= listing.revision && there(key).is_err() {
                (entry.revision, entry.pair) = (listing.revision, None);
            }
        }
        self.revision = self.revision.max(listing.revision);
    }

    /// Learns changes that a watch has told.
    pub fn learn_events(&mut self, events: &Events) {
        for event in &events.events {
            match event {
                Event::Put(pair) => self.learn(&pair.key, pair.mod_revision, Some(pair)),
                Event::Delete(key, revision) => self.learn(key, *revision, None),
            }
        }
        self.revision = self.revision.max(events.revision);
    }

    /// Learns a key that a transaction has read in this revision.
    pub fn learn_read(&mut self, key: &str, revision: u64, pairs: &[Pair]) {
        match pairs.iter().find(|pair| pair.key == key) {
            Some(pair) => self.learn(key, pair.mod_revision, Some(pair)),
            None => self.learn(key, revision, None),
        }
    }

    fn learn(&mut self, key: &str, revision: u64, pair: Option<&Pair>) {
        let known = self.keys.get(key).map_or(0, |entry| entry.revision);
        if revision > known {
            let pair = pair.cloned();
            self.keys.insert(key.to_owned(), Entry { revision, pair });
        }
    }

    /// Returns a key's pair, if it is there.
    pub fn pair(&self, key: &str) -> Option<&Pair> {
        self.keys.get(key)?.pair.as_ref()
    }

    /// Returns the keys with a beginning, in order, with their values.
    pub fn with_prefix<'a>(
        &'a self,
        beginning: &'a str,
    ) -> impl Iterator<Item = (&'a str, &'a Pair)> {
        let from = self.keys.range(beginning.to_owned()..);
        let within = from.take_while(move |(key, _)| key.starts_with(beginning));
        within.filter_map(|(key, entry)| Some((key.as_str(), entry.pair.as_ref()?)))
    }

    /// Returns the revision in which a key was last written; 0 if it is not there.
    pub fn revision_of(&self, key: &str) -> u64 {
        self.pair(key).map_or(0, |pair| pair.mod_revision)
    }

    /// Reads a record. `None`: it is not there, or is none.
    pub fn record<R: Record>(&self, key: &str) -> Option<R> {
        R::from_json(&self.pair(key)?.value).ok()
    }

    /// Returns the shard to which a node belongs.
    pub fn shard_of_node(&self, node: &str) -> Option<(String, ShardRecord)> {
        let mut shards = self.with_prefix(SHARDS);
        shards.find_map(|(key, pair)| {
            let shard = ShardRecord::from_json(&pair.value).ok()?;
            let is_in = shard.primary.node == node || shard.replicas.iter().any(|it| it == node);
            is_in.then(|| (key[SHARDS.len()..].to_owned(), shard))
        })
    }

    /// Returns a node other than this one that is alive in the run in which it leads a shard or may take over: no one else may be
    /// made the shard's primary then.
    pub fn alive_in_shard(&self, shard: &ShardRecord, but: &str) -> Option<String> {
        let mut all = std::iter::once(&shard.primary).chain(&shard.candidates);
        let found = all.find(|it| {
            let alive = self.record::<Alive>(&format!("{ALIVE}{}", it.node));
            it.node != but && alive.is_some_and(|alive| alive.incarnation == it.incarnation)
        });
        found.map(|it| it.node.clone())
    }

    /// Returns true if a shard owns a slot, or if that cannot be told.
    pub fn owns_slots(&self, shard: &str) -> bool {
        let map = self.record::<Map>(MAP_KEY);
        map.is_none_or(|map| map.runs.iter().any(|(_, _, owner)| owner == shard))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pair(key: &str, mod_revision: u64) -> Pair {
        Pair {
            key: key.into(),
            value: mod_revision.to_string().into_bytes(),
            create_revision: 2,
            mod_revision,
            lease: None,
        }
    }

    #[test]
    fn what_comes_late_does_not_replace_what_is_newer() {
        let mut known = Known::new();
        known.learn_listing(&Listing {
            revision: 5,
            pairs: vec![pair("a", 3), pair("b", 5)],
        });
        known.learn_read("a", 9, &[pair("a", 8)]);
        known.learn_read("b", 9, &[]);
        known.learn_events(&Events {
            revision: 7,
            events: vec![
                Event::Put(pair("a", 6)),
                Event::Delete("a".into(), 7),
                Event::Put(pair("b", 7)),
            ],
        });
        let all = (known.revision_of("a"), known.revision_of("b"));
        assert_eq!((all, known.revision()), ((8, 0), 7));
        known.learn_listing(&Listing {
            revision: 8,
            pairs: vec![pair("c", 8)],
        });
        assert_eq!(
            (known.revision_of("a"), known.revision_of("c")),
            (0, 8),
            "a listing of revision 8 has all that was written in 8"
        );
        known.learn_events(&Events {
            revision: 10,
            events: vec![Event::Put(pair("b", 10))],
        });
        assert_eq!(known.with_prefix("").count(), 2);
    }
}
