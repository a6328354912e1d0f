//! The picture of a cluster: all records together, checked against each other, as one node sees them.
//!
//! Must not know: the store, addresses of clients, the texts in which a picture is shown.

use std::{collections::BTreeMap, fmt, ops::RangeInclusive};

use crate::{
    SLOTS,
    records::{
        FORMAT, MAP_KEY, META_KEY, MOVES_KEY, Map, Meta, Move, Moves, NODES, NodeRecord, OPEN_KEY,
        Open, Record, SHARDS, ShardRecord, VERSION,
    },
};

/// Largest number of nodes and of shards that are accepted.
const NODES_MAX: usize = 4_096;

/// See the head of the module. It never changes: a change of the cluster makes another one.
#[derive(Clone, Debug)]
pub struct Picture {
    /// Revision of the store in which the cluster was so.
    pub revision: u64,
    /// The cluster.
    pub meta: Meta,
    /// Nodes, by id.
    pub nodes: BTreeMap<String, NodeRecord>,
    /// Shards, by id.
    pub shards: BTreeMap<String, ShardRecord>,
    /// Slots whose keys are being moved one by one.
    pub open: Open,
    /// Moves of slots with all their keys.
    pub moves: Vec<Move>,
    owners: Owners,
}

/// Owner of each slot, if it has one: the id of a shard.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Owners(Vec<Option<u16>>, Vec<String>);

/// A record that cannot be used.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BadRecord {
    /// Its key.
    pub key: String,
    /// The reason.
    pub why: String,
}

impl fmt::Display for BadRecord {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "the record {}: {}", self.key, self.why)
    }
}

impl Picture {
    /// Makes the picture of a store's records; those under other keys are not looked at.
    pub fn of<'a>(
        revision: u64,
        records: impl Iterator<Item = (&'a str, &'a [u8])>,
    ) -> Result<Picture, BadRecord> {
        let (mut meta, mut map, mut open) = (None, None, Open::default());
        let mut moves = Vec::new();
        let (mut nodes, mut shards) = (BTreeMap::new(), BTreeMap::new());
        for (key, json) in records {
            if key == META_KEY {
                meta = Some(read::<Meta>(key, json)?);
            } else if key == MAP_KEY {
                map = Some(read::<Map>(key, json)?);
            } else if key == MOVES_KEY {
                moves = read::<Moves>(key, json)?.moves;
                let slots = moves.iter().flat_map(|it| &it.runs);
                let is_run =
                    |(first, last): &(u16, u16)| first <= last && usize::from(*last) < SLOTS;
                if !slots.clone().all(is_run) {
                    return Err(bad(key, "it has slots that do not exist"));
                }
            } else if key == OPEN_KEY {
                open = read::<Open>(key, json)?;
            } else if let Some(id) = key.strip_prefix(NODES) {
                nodes.insert(id.to_owned(), read::<NodeRecord>(key, json)?);
            } else if let Some(id) = key.strip_prefix(SHARDS) {
                shards.insert(id.to_owned(), read::<ShardRecord>(key, json)?);
            }
            if nodes.len() > NODES_MAX || shards.len() > NODES_MAX {
                return Err(bad(key, format!("there are more than {NODES_MAX}")));
            }
        }
        let meta = meta.ok_or_else(|| bad(META_KEY, "it is missing"))?;
        if meta.format > FORMAT {
            let why = format!(
                "the cluster has the format {}, and this program knows {FORMAT}: it is older than the others",
                meta.format
            );
            return Err(bad(META_KEY, why));
        }
        for (id, shard) in &shards {
            if !nodes.contains_key(&shard.primary.node) {
                let why = format!("there is no node {}", shard.primary.node);
                return Err(bad(&format!("{SHARDS}{id}"), why));
            }
        }
        let map = map.ok_or_else(|| bad(MAP_KEY, "it is missing"))?;
        let owners = Owners::of(&map).map_err(|why| bad(MAP_KEY, why))?;
        if let Some(unknown) = owners.1.iter().find(|id| !shards.contains_key(*id)) {
            return Err(bad(MAP_KEY, format!("there is no shard {unknown}")));
        }
        Ok(Picture {
            revision,
            meta,
            nodes,
            shards,
            open,
            moves,
            owners,
        })
    }

    /// Returns the owners of slots.
    pub fn owners(&self) -> &Owners {
        &self.owners
    }

    /// Returns the shard whose primary or replica is this node.
    pub fn shard_of_node(&self, node: &str) -> Option<(&str, &ShardRecord)> {
        let mut shards = self.shards.iter();
        let found = shards.find(|(_, shard)| {
            shard.primary.node == node || shard.replicas.iter().any(|replica| replica == node)
        });
        found.map(|(id, shard)| (id.as_str(), shard))
    }

    /// Returns true if a slot is being copied to this shard.
    pub fn is_staged(&self, shard: &str, slot: u16) -> bool {
        let mut moves = self.moves.iter();
        moves.any(|it| it.is_under_way() && it.to.shard == shard && it.has(slot))
    }

    /// Returns the shard to which a slot of this shard leaves, key by key.
    pub fn leaving(&self, shard: &str, slot: u16) -> Option<&str> {
        let mut leaving = self.open.leaving.iter();
        let (_, to) = leaving.find(|(open, _)| *open == slot)?;
        let is_owner = self.owners.of_slot(slot) == Some(shard);
        (is_owner && to != shard && self.shards.contains_key(to)).then_some(to.as_str())
    }

    /// Returns the shard from which a slot comes to this shard, key by key.
    pub fn arriving(&self, shard: &str, slot: u16) -> Option<&str> {
        let mut arriving = self.open.arriving.iter();
        let (_, _, from) = arriving.find(|(open, to, _)| *open == slot && to == shard)?;
        (self.owners.of_slot(slot) != Some(shard)).then_some(from.as_str())
    }

    /// Returns the greatest term of all shards.
    pub fn newest_term(&self) -> u64 {
        let terms = self.shards.values().map(|shard| shard.term);
        terms.max().unwrap_or(0)
    }
}

impl Owners {
    /// Returns those of a map in which no slot has an owner.
    pub fn none() -> Owners {
        Owners(vec![None; SLOTS], Vec::new())
    }

    /// Reads a map. The error is the reason.
    pub(crate) fn of(map: &Map) -> Result<Owners, String> {
        let mut owners = Owners::none();
        for (first, last, shard) in &map.runs {
            if first > last || usize::from(*last) >= SLOTS {
                return Err(format!("{first} to {last} is no run of slots"));
            }
            for slot in *first..=*last {
                if owners.of_slot(slot).is_some() {
                    return Err(format!("slot {slot} has two owners"));
                }
            }
            owners.give(*first..=*last, Some(shard));
        }
        Ok(owners)
    }

    /// Returns the map.
    pub fn to_map(&self) -> Map {
        let runs = self.runs().into_iter();
        let runs = runs.map(|(run, shard)| (*run.start(), *run.end(), shard.to_owned()));
        Map {
            v: VERSION,
            runs: runs.collect(),
        }
    }

    /// Returns the owner of a slot.
    pub fn of_slot(&self, slot: u16) -> Option<&str> {
        let number = self.0.get(usize::from(slot)).copied().flatten()?;
        Some(&self.1[usize::from(number)])
    }

    /// Gives slots to a shard, or to nobody.
    pub fn give(&mut self, slots: RangeInclusive<u16>, shard: Option<&str>) {
        let number = shard.map(|shard| {
            let known = self.1.iter().position(|known| known == shard);
            known.unwrap_or_else(|| {
                self.1.push(shard.to_owned());
                self.1.len() - 1
            }) as u16
        });
        self.0[usize::from(*slots.start())..=usize::from(*slots.end())].fill(number);
    }

    /// Returns the longest runs of slots with one owner, in order.
    pub fn runs(&self) -> Vec<(RangeInclusive<u16>, &str)> {
        let mut runs: Vec<(RangeInclusive<u16>, &str)> = Vec::new();
        for slot in 0..SLOTS as u16 {
            let Some(shard) = self.of_slot(slot) else {
                continue;
            };
            match runs.last_mut() {
                Some((run, owner)) if *owner == shard && *run.end() + 1 == slot => {
                    *run = *run.start()..=slot;
                }
                _ => runs.push((slot..=slot, shard)),
            }
        }
        runs
    }

    /// Returns the runs of one shard.
    pub fn runs_of(&self, shard: &str) -> Vec<RangeInclusive<u16>> {
        let runs = self.runs().into_iter();
        let own = runs.filter(|(_, owner)| *owner == shard);
        own.map(|(run, _)| run).collect()
    }

    /// Returns the number of slots that have an owner.
    pub fn assigned(&self) -> usize {
        self.0.iter().flatten().count()
    }

    /// Returns true if every slot has an owner.
    pub fn are_whole(&self) -> bool {
        self.assigned() == SLOTS
    }
}

fn read<R: Record>(key: &str, json: &[u8]) -> Result<R, BadRecord> {
    R::from_json(json).map_err(|why| bad(key, why))
}

fn bad(key: &str, why: impl Into<String>) -> BadRecord {
    BadRecord {
        key: key.to_owned(),
        why: why.into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const META: &str = r#"{"v":1,"cluster":"c","format":1}"#;
    const NODE: &str = r#"{"v":1,"version":"0.1.0","joined":true}"#;
    const SHARD: &str = r#"{"v":1,"term":3,"primary":{"node":"n","incarnation":"1f"},"candidates":[],"replicas":[]}"#;
    const MAP: &str = r#"{"v":1,"runs":[[0,5,"s"],[7,16383,"s"]]}"#;

    fn picture(records: &[(&str, &str)]) -> Result<Picture, BadRecord> {
        let records = records.iter();
        Picture::of(9, records.map(|(key, json)| (*key, json.as_bytes())))
    }

    #[test]
    fn a_picture_is_the_records_together() {
        let picture = picture(&[
            ("meta", META),
            ("nodes/n", NODE),
            ("shards/s", SHARD),
            ("map", MAP),
            ("own", "not looked at"),
        ]);
        let picture = picture.unwrap();
        let owners = picture.owners();
        assert_eq!((picture.revision, picture.newest_term()), (9, 3));
        assert_eq!(picture.shard_of_node("n").unwrap().0, "s");
        assert!(picture.shard_of_node("x").is_none());
        assert_eq!((owners.of_slot(5), owners.of_slot(6)), (Some("s"), None));
        assert_eq!(owners.runs_of("s"), [0..=5, 7..=16383]);
        assert_eq!((owners.assigned(), owners.are_whole()), (16383, false));
    }

    #[test]
    fn records_that_do_not_fit_together_are_named() {
        let all = [
            ("meta", META),
            ("nodes/n", NODE),
            ("shards/s", SHARD),
            ("map", MAP),
        ];
        for (key, json, why) in [
            ("meta", "", "the record meta: it is missing"),
            ("map", "", "the record map: it is missing"),
            (
                "meta",
                r#"{"v":1,"cluster":"c","format":2}"#,
                "the format 2",
            ),
            ("nodes/n", "", "the record shards/s: there is no node n"),
            ("shards/s", "", "the record map: there is no shard s"),
            ("shards/s", "{}", "the record shards/s: missing field"),
            (
                "map",
                r#"{"v":1,"runs":[[0,5,"s"],[5,6,"s"]]}"#,
                "slot 5 has two owners",
            ),
            ("map", r#"{"v":1,"runs":[[6,5,"s"]]}"#, "6 to 5 is no run"),
            (
                "map",
                r#"{"v":1,"runs":[[0,16384,"s"]]}"#,
                "0 to 16384 is no run",
            ),
        ] {
            let changed = all.iter().map(|(name, text)| match *name == key {
                true => (*name, json),
                false => (*name, *text),
            });
            let kept: Vec<_> = changed.filter(|(_, json)| !json.is_empty()).collect();
            let error = picture(&kept).unwrap_err().to_string();
            assert!(error.contains(why), "{key} {json}: {error}");
        }
    }

    #[test]
    fn owners_and_maps_are_each_others_inverse() {
        let mut owners = Owners::none();
        owners.give(0..=16383, Some("a"));
        owners.give(100..=200, Some("b"));
        owners.give(150..=150, None);
        let map = owners.to_map();
        let run = |first, last, shard: &str| (first, last, shard.to_owned());
        assert_eq!(
            map.runs,
            [
                run(0, 99, "a"),
                run(100, 149, "b"),
                run(151, 200, "b"),
                run(201, 16383, "a"),
            ]
        );
        assert_eq!(Owners::of(&map), Ok(owners));
    }
}
