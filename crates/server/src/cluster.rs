//! This server as the node of a cluster: its ids, the store with the cluster's records, the picture made of them.
//!
//! Without etcd the store is a file, and the node is the only one of its cluster: it begins as the owner of all slots. A
//! change of the map goes to the store first, and then to the keyspace, under the slots' stripes; slots that go to nobody
//! are taken from the keyspace first, so that nothing is served that the store says is not. With etcd the node is one of
//! several ([`etcd`]).
//!
//! Must not know: commands, the texts in which a cluster is shown.

pub(crate) mod acks;
pub(crate) mod deciding;
pub(crate) mod entering;
pub(crate) mod etcd;
mod links;
pub(crate) mod lost;
pub(crate) mod members;
pub(crate) mod messages;
pub(crate) mod moves;
pub(crate) mod right;

use std::{
    collections::BTreeSet,
    fmt::Display,
    path::Path,
    sync::{Arc, Mutex, MutexGuard},
};

use redline_cluster::{
    Owners, Picture, SLOTS,
    control::Event,
    records::{
        FORMAT, Incarnation, MAP_KEY, META_KEY, Meta, NODES, NodeRecord, OWN_KEY, Own, Record,
        SHARDS, ShardRecord, VERSION,
    },
};
use redline_engine::{REDLINE_VERSION, refusals::Reason};
use redline_etcd::{Condition, File, Listing, Operation, Range, Store, StoreError, Transaction};
use redline_keyspace::{Keyspace, Unit};

use crate::{
    log,
    settings::Settings,
    shared::Shared,
    start::{random_id, random_number},
};

/// See the head of the module.
pub(crate) struct Cluster {
    /// Id of this node: 40 hexadecimal digits.
    pub node: String,
    store: Box<dyn Store>,
    view: Mutex<Arc<View>>,
    /// Held during a change of the map.
    changing: Mutex<()>,
    /// State of a node with etcd; `None`: it is alone.
    pub(crate) etcd: Option<etcd::Membership>,
}

/// The cluster as this node sees it, and its own place in it.
pub(crate) struct View {
    /// The members of the cluster. A node that has not joined sees itself alone, with the slots that it will take with it.
    pub picture: Picture,
    /// Id of this node's shard.
    pub shard: String,
    /// True if the node is a member.
    pub is_member: bool,
    /// True if this run of the node is its shard's primary.
    pub is_primary: bool,
    /// Ids of the nodes that are alive; `None`: nobody watches over that.
    pub alive: Option<BTreeSet<String>>,
}

impl View {
    /// Returns true if this node is to serve a slot to everybody.
    pub(crate) fn serves(&self, slot: u16) -> bool {
        self.is_member && self.is_primary && self.has(slot)
    }

    /// Returns the shard to which a slot of this node leaves, key by key.
    pub(crate) fn leaving(&self, slot: u16) -> Option<&str> {
        self.picture.leaving(&self.shard, slot)
    }

    /// Returns true if another shard has a slot, and it is not copied to this one: keys of it here are to go.
    pub(crate) fn is_lost(&self, slot: u16) -> bool {
        self.is_foreign(slot) && !self.picture.is_staged(&self.shard, slot)
    }

    /// Returns true if another shard has a slot, and a client does not move its keys to this one.
    pub(crate) fn is_foreign(&self, slot: u16) -> bool {
        let owner = self.picture.owners().of_slot(slot);
        self.is_member
            && owner.is_some_and(|owner| owner != self.shard)
            && self.picture.arriving(&self.shard, slot).is_none()
    }

    /// Returns true if this node's shard owns a slot.
    pub(crate) fn has(&self, slot: u16) -> bool {
        self.is_member && self.picture.owners().of_slot(slot) == Some(self.shard.as_str())
    }

    /// Returns the record of this node's shard, if it has one.
    pub(crate) fn own_shard(&self) -> Option<&ShardRecord> {
        self.picture.shards.get(&self.shard)
    }

    /// Returns true if a node answers nobody.
    pub(crate) fn is_failed(&self, node: &str) -> bool {
        let alive = self.alive.as_ref();
        alive.is_some_and(|alive| !alive.contains(node))
    }
}

/// Checks settings that do not go together with a cluster. The error is in Redis's words.
pub(crate) fn check_settings(settings: &Settings) -> Result<(), String> {
    match settings.cluster_enabled && settings.primary.is_some() {
        true => Err("replicaof directive not allowed in cluster mode".into()),
        false => Ok(()),
    }
}

/// Adjusts settings to a cluster, where there is one database.
pub(crate) fn adjust_settings(settings: &mut Settings) {
    if settings.cluster_enabled && settings.databases > 1 {
        log::warning(&format!(
            "WARNING: Changing databases number from {} to 1 since we are in cluster mode",
            settings.databases
        ));
        settings.databases = 1;
    }
}

impl Cluster {
    /// Takes up the node of a file, or founds a cluster of one node if the file is new. The error is one line.
    pub(crate) fn open(path: &Path) -> Result<Cluster, String> {
        let store = File::open(path).map_err(|error| error.to_string())?;
        let of_file = |error: &dyn Display| format!("{}: {error}", path.display());
        let mut cluster = Cluster::of(String::new(), Box::new(store), None);
        let listing = cluster.list().map_err(|error| of_file(&error))?;
        match listing.pairs.is_empty() {
            true => cluster.found().map_err(|error| of_file(&error))?,
            false => cluster.take_up(&listing).map_err(|why| of_file(&why))?,
        }
        Ok(cluster)
    }

    fn of(node: String, store: Box<dyn Store>, etcd: Option<etcd::Membership>) -> Cluster {
        let view = View {
            picture: empty_picture(),
            shard: String::new(),
            is_member: false,
            is_primary: false,
            alive: None,
        };
        Cluster {
            node,
            store,
            view: Mutex::new(Arc::new(view)),
            changing: Mutex::new(()),
            etcd,
        }
    }

    fn list(&self) -> Result<Listing, StoreError> {
        self.store.range(&Range::Prefix(String::new()))
    }

    /// Writes the records of a new cluster, in which this node owns all slots.
    fn found(&mut self) -> Result<(), StoreError> {
        self.node = random_id();
        let shard = random_id();
        let meta = Meta {
            v: VERSION,
            cluster: random_id(),
            format: FORMAT,
        };
        let own = Own {
            v: VERSION,
            node: self.node.clone(),
        };
        let mut owners = Owners::none();
        owners.give(0..=SLOTS as u16 - 1, Some(&shard));
        let founding = Transaction {
            conditions: vec![Condition::Absent(META_KEY.into())],
            success: vec![
                put(META_KEY, &meta),
                put(OWN_KEY, &own),
                put(&format!("{NODES}{}", self.node), &this_version()),
                put(&format!("{SHARDS}{shard}"), &alone(&self.node, 1)),
                put(MAP_KEY, &owners.to_map()),
            ],
            failure: Vec::new(),
        };
        self.store.transact(&founding)?;
        log::notice(&format!(
            "No cluster configuration found, I'm {}",
            self.node
        ));
        self.look()
    }

    /// Takes up the records of an earlier run: the primary is this run of the node, in a new term.
    fn take_up(&mut self, listing: &Listing) -> Result<(), String> {
        let own = listing.pairs.iter().find(|pair| pair.key == OWN_KEY);
        let own = own.ok_or("the record own: it is missing")?;
        let own = Own::from_json(&own.value).map_err(|why| format!("the record own: {why}"))?;
        let picture = picture_of(listing).map_err(|error| error.to_string())?;
        let Some((shard, record)) = picture.shard_of_node(&own.node) else {
            return Err(format!(
                "the record own: no shard has the node {}",
                own.node
            ));
        };
        if picture.shards.len() > 1 || picture.nodes.len() > 1 {
            return Err("it has the records of several nodes, whom a file cannot keep".into());
        }
        self.node.clone_from(&own.node);
        let key = format!("{SHARDS}{shard}");
        let revision = listing.pairs.iter().find(|pair| pair.key == key);
        let revision = revision.map_or(0, |pair| pair.mod_revision);
        let taking_up = Transaction {
            conditions: vec![Condition::Unchanged(key.clone(), revision)],
            success: vec![
                put(&key, &alone(&self.node, record.term.saturating_add(1))),
                put(&format!("{NODES}{}", self.node), &this_version()),
            ],
            failure: Vec::new(),
        };
        let taken = self.store.transact(&taking_up);
        taken.map_err(|error| error.to_string())?;
        log::notice(&format!("Node configuration loaded, I'm {}", self.node));
        self.look().map_err(|error| error.to_string())
    }

    /// Makes the picture of what the store has now.
    fn look(&self) -> Result<(), StoreError> {
        let listing = self.list()?;
        let view = match &self.etcd {
            Some(etcd) => {
                etcd.deciding.post(Event::Listing(listing.clone()));
                etcd.view_of(&self.node, &listing)
            }
            None => view_alone(&self.node, &listing),
        };
        let view = view.map_err(|error| StoreError::Damaged(error.to_string()))?;
        let mut kept = self.view.lock().expect("no panic under the view");
        // Two threads may look at a time.
        if kept.picture.revision <= view.picture.revision {
            *kept = Arc::new(view);
        }
        Ok(())
    }

    /// Returns the cluster as this node sees it.
    pub(crate) fn view(&self) -> Arc<View> {
        let view = self.view.lock().expect("no panic under the view");
        view.clone()
    }

    /// Keeps others from changing the map until the guard is dropped.
    pub(crate) fn begin_change(&self) -> MutexGuard<'_, ()> {
        self.changing.lock().expect("no panic under a change")
    }

    /// Writes a new map. The caller has [begun](Cluster::begin_change) the change that it makes of the present one.
    pub(crate) fn write_map(&self, owners: &Owners) -> Result<(), StoreError> {
        let now = self.store.range(&Range::Key(MAP_KEY.into()))?;
        let revision = now.pairs.first().map_or(0, |pair| pair.mod_revision);
        let change = Transaction {
            conditions: vec![Condition::Unchanged(MAP_KEY.into(), revision)],
            success: vec![put(MAP_KEY, &owners.to_map())],
            failure: Vec::new(),
        };
        let answer = self.store.transact(&change);
        // Also where it is not known whether it was written: what the store has counts.
        self.look()?;
        match answer?.succeeded {
            true => Ok(()),
            false => Err(StoreError::Refused("the map was changed meanwhile".into())),
        }
    }

    /// Has a keyspace that nobody uses yet serve the slots of this node.
    pub(crate) fn begin_to_serve(&self, keyspace: &mut Keyspace) {
        let mut unit = Unit::exclusive(keyspace);
        // With etcd it is decided first who leads.
        self.serve(&mut unit, &self.view(), self.etcd.is_none());
    }

    /// Has the keyspace serve the slots that this node owns, and no others.
    ///
    /// # Panics
    /// Unless the unit holds the stripes of all slots for which that is a change.
    pub(crate) fn serve_owned(&self, unit: &mut Unit<'_>) {
        self.serve(unit, &self.view(), true);
    }

    /// Has the keyspace serve the slots that are this node's by a view, if it leads, and no others.
    ///
    /// # Panics
    /// Unless the unit holds the stripes of all slots for which that is a change.
    fn serve(&self, unit: &mut Unit<'_>, view: &View, leads: bool) {
        let fence = self.etcd.as_ref().map(|etcd| &etcd.moves.fence);
        for slot in 0..SLOTS as u16 {
            // Whether a key of a slot that leaves is here is looked at for each call.
            let is_own = leads
                && view.serves(slot)
                && view.leaving(slot).is_none()
                && !fence.is_some_and(|fence| fence.has(slot));
            if unit.space().serves_slot(slot) != is_own {
                unit.set_served(slot, is_own);
            }
            // A slot without keys need not be looked at again.
            let is_hidden = view.is_foreign(slot)
                && (unit.space().slot_key_count(0, slot) > 0
                    || view.picture.is_staged(&view.shard, slot));
            if unit.space().hides_slot(slot) != is_hidden {
                unit.set_hidden(slot, is_hidden);
            }
        }
    }

    /// Returns true if nothing is served, since a slot has no owner and the settings ask for all.
    pub(crate) fn is_down(&self, settings: &Settings) -> bool {
        settings.cluster_require_full_coverage && !self.view().picture.owners().are_whole()
    }
}

/// Has commands go by the state of the cluster: called when the map or a setting has changed.
pub(crate) fn adopt(shared: &Shared) {
    let Some(cluster) = &shared.cluster else {
        return;
    };
    let is_down = cluster.is_down(&shared.settings.current());
    let engine = &shared.engine;
    engine
        .refusals
        .set(Reason::ClusterDown, is_down, &engine.settings);
}

fn put(key: &str, record: &impl Record) -> Operation {
    Operation::Put {
        key: key.to_owned(),
        value: record.to_json(),
        lease: None,
    }
}

/// Returns the record of this node, which needs nobody to join.
fn this_version() -> NodeRecord {
    NodeRecord {
        v: VERSION,
        version: REDLINE_VERSION.into(),
        joined: true,
        ..NodeRecord::default()
    }
}

/// Returns the record of a shard of this run of a node alone.
fn alone(node: &str, term: u64) -> ShardRecord {
    ShardRecord {
        v: VERSION,
        term,
        primary: Incarnation {
            node: node.to_owned(),
            incarnation: format!("{:016x}", random_number()),
        },
        candidates: Vec::new(),
        replicas: Vec::new(),
    }
}

/// Returns what a node sees that is the only one.
fn view_alone(node: &str, listing: &Listing) -> Result<View, redline_cluster::BadRecord> {
    let picture = picture_of(listing)?;
    let shard = picture.shard_of_node(node).map(|(id, _)| id.to_owned());
    Ok(View {
        shard: shard.unwrap_or_default(),
        picture,
        is_member: true,
        is_primary: true,
        alive: None,
    })
}

fn picture_of(listing: &Listing) -> Result<Picture, redline_cluster::BadRecord> {
    let pairs = listing.pairs.iter();
    let records = pairs.map(|pair| (pair.key.as_str(), pair.value.as_slice()));
    Picture::of(listing.revision, records)
}

/// Returns the picture of a cluster of nobody, until there is another one.
fn empty_picture() -> Picture {
    let meta = Meta {
        v: VERSION,
        cluster: String::new(),
        format: FORMAT,
    };
    let (meta, map) = (meta.to_json(), Owners::none().to_map().to_json());
    let records = [(META_KEY, meta.as_slice()), (MAP_KEY, map.as_slice())];
    Picture::of(0, records.into_iter()).expect("its records fit together")
}

#[cfg(test)]
mod tests {
    use std::fs;

    use redline_keyspace::lock::Wake;

    use super::*;

    struct Nobody;

    impl Wake for Nobody {
        fn wake(&self, _: u64) {}
    }

    #[test]
    fn a_node_is_the_same_after_a_restart_in_a_later_term() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("nodes.conf");
        let first = Cluster::open(&path).unwrap();
        let (node, shard, before) = (first.node.clone(), first.view().shard.clone(), first.view());
        assert!(before.picture.owners().are_whole() && first.view().has(16383));
        assert_eq!(
            (node.len(), shard.len(), before.picture.newest_term()),
            (40, 40, 1)
        );
        let mut owners = before.picture.owners().clone();
        owners.give(7..=9, None);
        first.write_map(&owners).unwrap();
        assert!(!first.view().has(8));
        drop(first);
        let again = Cluster::open(&path).unwrap();
        let after = again.view();
        assert_eq!((&again.node, &after.shard), (&node, &shard));
        assert_eq!(after.picture.owners(), &owners);
        assert_eq!(
            (
                after.picture.newest_term(),
                after.picture.meta == before.picture.meta
            ),
            (2, true)
        );
        let incarnation = |picture: &Picture| picture.shards[&shard].primary.incarnation.clone();
        assert_ne!(incarnation(&before.picture), incarnation(&after.picture));
        let mut keyspace = Keyspace::new(1, Box::new(Nobody)).of_cluster();
        again.begin_to_serve(&mut keyspace);
        let served: Vec<u16> = (0..12).filter(|slot| keyspace.serves_slot(*slot)).collect();
        assert_eq!(served, [0, 1, 2, 3, 4, 5, 6, 10, 11]);
    }

    #[test]
    fn a_file_that_is_not_of_a_node_alone_ends_the_start_with_its_name() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("nodes.conf");
        drop(Cluster::open(&path).unwrap());
        let good = fs::read_to_string(&path).unwrap();
        for (from, to, why) in [
            ("\"own\"", "\"other\"", "the record own: it is missing"),
            (
                "[[0,16383,",
                "[[0,16384,",
                "the record map: 0 to 16384 is no run",
            ),
            (
                "\\\"format\\\":1",
                "\\\"format\\\":2",
                "the record meta: the cluster has the format 2",
            ),
            ("\"meta\"", "\"mate\"", "the record meta: it is missing"),
        ] {
            let bad = good.replace(from, to);
            assert_ne!(bad, good, "{from}");
            fs::write(&path, bad).unwrap();
            let error = Cluster::open(&path).err().expect("it is refused");
            assert!(
                error.contains("nodes.conf: ") && error.contains(why),
                "{error}"
            );
        }
    }
}
