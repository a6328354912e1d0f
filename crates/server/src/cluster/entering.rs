//! How a node whose cluster is in etcd starts: it waits for etcd, and writes this run of itself into the records.
//!
//! The node's file keeps its id, and that of the cluster that it is of. A file with the records of a node alone is one that
//! grows: a cluster that is not there yet begins with these records.
//!
//! Must not know: commands, threads, what happens after the start.

use std::{
    collections::BTreeSet,
    fs,
    net::{IpAddr, ToSocketAddrs, UdpSocket},
    path::Path,
    sync::atomic::Ordering,
    time::{Duration, Instant},
};

use redline_cluster::{
    Owners, Picture,
    records::{
        ALIVE, Alive, FORMAT, MAP_KEY, META_KEY, Meta, NODES, NodeRecord, OWN_KEY, Own, Record,
        SHARDS, VERSION,
    },
};
use redline_engine::REDLINE_VERSION;
use redline_etcd::{
    Condition, File, Gateway, GatewayOptions, LeaseId, Listing, Operation, Range, Store,
    StoreError, Transaction,
};

use super::{
    Cluster, alone,
    etcd::{LEASE_S, Membership},
    members::{fresh, revision},
    picture_of, put,
};
use crate::{log, settings::Settings, start::random_id};

/// Time that a start waits for etcd.
const START_WAIT: Duration = Duration::from_secs(30);
/// Time between two attempts of a start.
const START_PAUSE: Duration = Duration::from_millis(250);

/// Failure of a start: whether it is worth to wait.
enum NotYet {
    Again(String),
    Never(String),
}

impl From<StoreError> for NotYet {
    fn from(error: StoreError) -> NotYet {
        NotYet::Again(error.to_string())
    }
}

/// Returns the way to etcd that the settings describe. The error is one line.
fn options_of(settings: &Settings) -> Result<GatewayOptions, String> {
    let read = |path: &str| {
        let read = (!path.is_empty()).then(|| fs::read(path));
        read.transpose().map_err(|error| format!("{path}: {error}"))
    };
    let name = &settings.cluster_name;
    let fits = |c: char| c.is_ascii_alphanumeric() || "-_.".contains(c);
    if name.is_empty() || name.len() > 100 || !name.chars().all(fits) {
        return Err("cluster-name has 1 to 100 letters, digits, '-', '_' and '.'".into());
    }
    let certificate = read(&settings.cluster_etcd_cert_file)?;
    let key = read(&settings.cluster_etcd_key_file)?;
    let password = settings
        .cluster_etcd_password
        .as_deref()
        .unwrap_or_default();
    Ok(GatewayOptions {
        endpoints: endpoints(settings).map(str::to_owned).collect(),
        prefix: format!("/redline/{name}/"),
        user: (!settings.cluster_etcd_user.is_empty()).then(|| {
            let password = String::from_utf8_lossy(password).into_owned();
            (settings.cluster_etcd_user.clone(), password)
        }),
        authorities: read(&settings.cluster_etcd_ca_cert_file)?,
        certificate: match (certificate, key) {
            (None, None) => None,
            (Some(certificate), Some(key)) => Some((certificate, key)),
            _ => {
                return Err(
                    "cluster-etcd-cert-file and cluster-etcd-key-file belong together".into(),
                );
            }
        },
    })
}

fn endpoints(settings: &Settings) -> impl Iterator<Item = &str> {
    let words = settings.cluster_etcd.split([',', ' ']);
    words.map(str::trim).filter(|word| !word.is_empty())
}

/// Returns the address under which others reach this node: the announced one, one that it listens on, or the one from
/// which it reaches etcd.
fn own_ip(settings: &Settings) -> String {
    if !settings.cluster_announce_ip.is_empty() {
        return settings.cluster_announce_ip.clone();
    }
    let bound = settings
        .bind
        .iter()
        .map(|bind| bind.trim_start_matches('-'));
    let mut bound = bound.filter_map(|bind| bind.parse::<IpAddr>().ok());
    if let Some(ip) = bound.find(|ip| !ip.is_unspecified()) {
        return ip.to_string();
    }
    let towards = endpoints(settings).find_map(|endpoint| {
        let (_, host) = endpoint.split_once("://")?;
        let address = host.to_socket_addrs().ok()?.next()?;
        let any = if address.is_ipv4() {
            "0.0.0.0:0"
        } else {
            "[::]:0"
        };
        // No datagram is sent: the system chooses the address from which it would be.
        let socket = UdpSocket::bind(any).ok()?;
        socket.connect(address).ok()?;
        Some(socket.local_addr().ok()?.ip().to_string())
    });
    towards.unwrap_or_else(|| "127.0.0.1".into())
}

/// Sets what a node's record says of its addresses. Ports: the plain one, and the one with TLS; 0: none.
pub(super) fn describe(node: &mut NodeRecord, settings: &Settings, ports: (u16, u16)) {
    node.version = REDLINE_VERSION.into();
    node.ip = own_ip(settings);
    settings
        .cluster_announce_hostname
        .clone_into(&mut node.hostname);
    node.port = settings.cluster_announce_port.unwrap_or(ports.0);
    node.tls_port = settings.cluster_announce_tls_port.unwrap_or(ports.1);
}

/// Records that a node's file has from before it had etcd, or of the cluster that it is of.
struct OwnFile {
    store: File,
    node: String,
    listing: Listing,
}

impl OwnFile {
    fn open(path: &Path) -> Result<OwnFile, String> {
        let store = File::open(path).map_err(|error| error.to_string())?;
        let of_file = |error: &dyn std::fmt::Display| format!("{}: {error}", path.display());
        let mut listing = store
            .range(&Range::Prefix(String::new()))
            .map_err(|error| of_file(&error))?;
        let own = listing.pairs.iter().find(|pair| pair.key == OWN_KEY);
        let node = match own {
            Some(pair) => {
                Own::from_json(&pair.value)
                    .map_err(|why| of_file(&format!("the record own: {why}")))?
                    .node
            }
            None => {
                let own = Own {
                    v: VERSION,
                    node: random_id(),
                };
                let write = Transaction {
                    success: vec![put(OWN_KEY, &own)],
                    ..Transaction::default()
                };
                store.transact(&write).map_err(|error| of_file(&error))?;
                listing = store
                    .range(&Range::Prefix(String::new()))
                    .map_err(|error| of_file(&error))?;
                own.node
            }
        };
        Ok(OwnFile {
            store,
            node,
            listing,
        })
    }

    /// Returns the cluster that the file knows.
    fn meta(&self) -> Option<Meta> {
        let pair = self
            .listing
            .pairs
            .iter()
            .find(|pair| pair.key == META_KEY)?;
        Meta::from_json(&pair.value).ok()
    }

    /// Returns the picture of a node alone, if the file has one.
    fn picture(&self) -> Option<Picture> {
        picture_of(&self.listing).ok()
    }

    /// Keeps the id of the cluster, and nothing that is in etcd.
    fn settle(&self, meta: &Meta) -> Result<(), StoreError> {
        if self.meta().as_ref() == Some(meta) && self.picture().is_none() {
            return Ok(());
        }
        let settled = Transaction {
            success: vec![
                put(META_KEY, meta),
                Operation::Delete(Range::Key(MAP_KEY.into())),
                Operation::Delete(Range::Prefix(NODES.into())),
                Operation::Delete(Range::Prefix(SHARDS.into())),
            ],
            ..Transaction::default()
        };
        self.store.transact(&settled).map(|_| ())
    }
}

/// Result of a start: the node, and the primary that it follows.
pub(crate) type Started = (Cluster, Option<(String, u16)>);

/// Takes up a node whose cluster is in etcd, or makes one. Waits for etcd. The error is one line.
pub(crate) fn open(settings: &Settings, ports: (u16, u16)) -> Result<Started, String> {
    let file = OwnFile::open(Path::new(&settings.cluster_config_file))?;
    let gateway = Gateway::new(options_of(settings)?)?;
    let shard = match file
        .picture()
        .as_ref()
        .and_then(|own| own.shard_of_node(&file.node))
    {
        Some((shard, _)) => shard.to_owned(),
        None => random_id(),
    };
    let etcd = Membership::new(shard);
    let cluster = Cluster::of(file.node.clone(), Box::new(gateway), Some(etcd));
    let ends = Instant::now() + START_WAIT;
    let mut told = BTreeSet::new();
    loop {
        let why = match cluster.enter(&file, settings, ports) {
            Ok(()) => break,
            Err(NotYet::Never(why)) => return Err(why),
            Err(NotYet::Again(why)) => why,
        };
        if told.insert(why.clone()) {
            log::warning(&format!("Waiting for the cluster's etcd: {why}"));
        }
        if Instant::now() >= ends {
            return Err(format!("The cluster's etcd cannot be used: {why}"));
        }
        std::thread::sleep(START_PAUSE);
    }
    if let Some(etcd) = &cluster.etcd {
        *etcd.file.lock().expect("no panic under the file") = Some(file.store);
    }
    log::notice(&format!("Node configuration loaded, I'm {}", cluster.node));
    let primary = cluster.primary_to_follow(settings);
    Ok((cluster, primary))
}

impl Cluster {
    /// Writes this run of the node into the records, and makes the first view.
    fn enter(&self, file: &OwnFile, settings: &Settings, ports: (u16, u16)) -> Result<(), NotYet> {
        let etcd = self.etcd.as_ref().expect("it has etcd");
        let listing = self.list()?;
        let mut entry = Entry {
            listing: &listing,
            conditions: Vec::new(),
            writes: Vec::new(),
        };
        entry.guard(META_KEY.into());
        let is_new = revision(&listing, META_KEY) == 0;
        let (meta, mut node) = match is_new {
            true => entry.found(file, &self.node, etcd),
            false => entry.take_up(file, &self.node, etcd, &settings.cluster_name)?,
        };
        let alive_key = format!("{ALIVE}{}", self.node);
        let alive = listing.pairs.iter().find(|pair| pair.key == alive_key);
        let alive = alive.map(|pair| Alive::from_json(&pair.value));
        if let Some(Ok(alive)) = alive
            && alive.incarnation != etcd.incarnation
        {
            return Err(NotYet::Again(format!(
                "another process is the node {}, or was until a moment ago",
                self.node
            )));
        }
        describe(&mut node, settings, ports);
        entry.write(format!("{NODES}{}", self.node), &node);
        let lease = self.store.grant_lease(LEASE_S)?;
        entry.guard(alive_key);
        entry.writes.push(etcd.alive(&self.node, lease));
        let entering = Transaction {
            conditions: entry.conditions,
            success: entry.writes,
            failure: Vec::new(),
        };
        // What is not known to be done shows in the next attempt as this run's.
        if !self.store.transact(&entering)?.succeeded {
            return Err(NotYet::Again("others change the same records".into()));
        }
        etcd.lease.store(lease.0, Ordering::Relaxed);
        file.settle(&meta)
            .map_err(|error| NotYet::Never(error.to_string()))?;
        if is_new {
            log::notice(&format!(
                "The cluster {} is founded in etcd under the name {}",
                meta.cluster, settings.cluster_name
            ));
        }
        self.look().map_err(NotYet::from)
    }
}

/// The transaction with which a run of a node enters.
struct Entry<'a> {
    listing: &'a Listing,
    conditions: Vec<Condition>,
    writes: Vec<Operation>,
}

impl Entry<'_> {
    fn guard(&mut self, key: String) {
        let revision = revision(self.listing, &key);
        self.conditions.push(Condition::Unchanged(key, revision));
    }

    /// Writes a record, if it is as it was read.
    fn write(&mut self, key: String, record: &impl Record) {
        self.writes.push(put(&key, record));
        self.guard(key);
    }

    /// Makes a cluster: that of the file, which grows, or one in which nobody owns a slot.
    fn found(&mut self, file: &OwnFile, id: &str, etcd: &Membership) -> (Meta, NodeRecord) {
        let meta = file.meta().unwrap_or_else(|| Meta {
            v: VERSION,
            cluster: random_id(),
            format: FORMAT,
        });
        self.writes.push(put(META_KEY, &meta));
        let mut node = fresh(&etcd.shard);
        let map = match file.picture() {
            Some(own) => {
                let mut shard = alone(id, own.newest_term().saturating_add(1));
                shard.primary.incarnation.clone_from(&etcd.incarnation);
                self.write(format!("{SHARDS}{}", etcd.shard), &shard);
                node.joined = true;
                own.owners().to_map()
            }
            None => Owners::none().to_map(),
        };
        self.write(MAP_KEY.into(), &map);
        (meta, node)
    }

    /// Takes up the records of an earlier run, if there are any. Whether a primary is one again is decided later.
    fn take_up(
        &mut self,
        file: &OwnFile,
        id: &str,
        etcd: &Membership,
        name: &str,
    ) -> Result<(Meta, NodeRecord), NotYet> {
        let picture = picture_of(self.listing).map_err(|error| {
            NotYet::Never(format!("etcd, revision {}: {error}", self.listing.revision))
        })?;
        let meta = picture.meta.clone();
        if let Some(own) = file.meta().filter(|own| own.cluster != meta.cluster) {
            return Err(NotYet::Never(format!(
                "this node is of the cluster {}, and etcd has the cluster {} under the name {name}: another cluster-name, or another cluster-config-file, is right",
                own.cluster, meta.cluster
            )));
        }
        let node = picture.nodes.get(id).cloned();
        let mut node = node.unwrap_or_else(|| fresh(&etcd.shard));
        if node.shard.is_empty() {
            node.shard.clone_from(&etcd.shard);
        }
        Ok((meta, node))
    }
}

/// Returns the write that shows that a run of a node is alive.
pub(super) fn alive_of(
    node: &str,
    incarnation: &str,
    files: Option<(u64, u64)>,
    lease: LeaseId,
) -> Operation {
    let alive = Alive {
        v: VERSION,
        incarnation: incarnation.to_owned(),
        files,
    };
    Operation::Put {
        key: format!("{ALIVE}{node}"),
        value: alive.to_json(),
        lease: Some(lease),
    }
}

#[cfg(test)]
mod tests {
    use std::sync::{Arc, atomic::AtomicBool};

    use redline_etcd::{Answer, Memory, Watch};

    use super::*;
    use crate::cluster::members::Change;

    /// A node with its file in a folder, and its cluster in this store.
    fn enter(store: &Memory, folder: &Path, port: u16) -> Result<Cluster, String> {
        enter_store(Box::new(store.clone()), folder, port)
    }

    fn enter_store(store: Box<dyn Store>, folder: &Path, port: u16) -> Result<Cluster, String> {
        let file = OwnFile::open(&folder.join("nodes.conf"))?;
        let shard = file
            .picture()
            .and_then(|own| own.shards.keys().next().cloned());
        let etcd = Membership::new(shard.unwrap_or_else(random_id));
        let cluster = Cluster::of(file.node.clone(), store, Some(etcd));
        let settings = Settings {
            cluster_announce_ip: "127.0.0.1".into(),
            ..Settings::default()
        };
        match cluster.enter(&file, &settings, (port, 0)) {
            Ok(()) => Ok(cluster),
            Err(NotYet::Again(why) | NotYet::Never(why)) => Err(why),
        }
    }

    fn change(cluster: &Cluster, change: Change) -> Result<(), String> {
        cluster.change(&change)?;
        cluster.look().map_err(|error| error.to_string())
    }

    fn folders<const N: usize>() -> [tempfile::TempDir; N] {
        std::array::from_fn(|_| tempfile::tempdir().unwrap())
    }

    #[test]
    fn nodes_see_themselves_alone_until_they_are_met() {
        let store = Memory::new();
        let [one, two] = folders();
        let first = enter(&store, one.path(), 1).unwrap();
        let second = enter(&store, two.path(), 2).unwrap();
        for node in [&first, &second] {
            let view = node.view();
            assert_eq!(view.picture.nodes.keys().collect::<Vec<_>>(), [&node.node]);
            assert!(!view.is_member && view.picture.owners().assigned() == 0);
        }
        change(&first, Change::Add(vec![0..=9])).unwrap();
        change(&second, Change::Add(vec![10..=16383])).unwrap();
        assert!(first.view().serves(9) && !second.view().serves(10));
        assert_eq!(second.view().picture.owners().assigned(), 16374);
        change(&second, Change::Meet("127.0.0.1".into(), 1)).unwrap();
        first.look().unwrap();
        for node in [&first, &second] {
            assert_eq!(node.view().picture.nodes.len(), 2);
            assert!(node.view().picture.owners().are_whole());
        }
        assert!(second.view().serves(10) && !first.view().serves(10));
    }

    #[test]
    fn a_node_is_one_process_and_the_next_one_does_not_lead_by_itself() {
        let store = Memory::new();
        let [folder] = folders();
        let first = enter(&store, folder.path(), 1).unwrap();
        change(&first, Change::Add(vec![0..=16383])).unwrap();
        let term = first.view().own_shard().unwrap().term;
        let again = enter(&store, folder.path(), 1)
            .err()
            .expect("it is refused");
        assert!(again.contains("another process is the node"), "{again}");
        store.advance(LEASE_S * 1000);
        let second = enter(&store, folder.path(), 1).unwrap();
        assert_eq!(
            (second.view().own_shard().unwrap().term, &second.node),
            (term, &first.node)
        );
        assert!(
            !second.view().serves(0),
            "whether it leads is decided when its files are loaded"
        );
    }

    #[test]
    fn a_node_alone_grows_with_its_ids_and_is_of_no_other_cluster() {
        let (store, other) = (Memory::new(), Memory::new());
        let [one, two] = folders();
        let alone = Cluster::open(&one.path().join("nodes.conf")).unwrap();
        let (node, shard) = (alone.node.clone(), alone.view().shard.clone());
        drop(alone);
        let grown = enter(&store, one.path(), 1).unwrap();
        let view = grown.view();
        assert_eq!((&grown.node, &view.shard), (&node, &shard));
        assert!(view.serves(0) && view.serves(16383) && view.own_shard().unwrap().term == 2);
        enter(&other, two.path(), 2).unwrap();
        let wrong = enter(&other, one.path(), 1).err().expect("it is refused");
        assert!(wrong.starts_with("this node is of the cluster"), "{wrong}");
        let without = Cluster::open(&one.path().join("nodes.conf"));
        let why = without.err().expect("its records are in etcd");
        assert!(why.contains("nodes.conf: "), "{why}");
    }

    /// A store of which the next answer to a transaction is lost, after its effect or before.
    #[derive(Clone)]
    struct Lossy(Memory, Arc<AtomicBool>, bool);

    impl Store for Lossy {
        fn range(&self, range: &Range) -> Result<Listing, StoreError> {
            self.0.range(range)
        }

        fn transact(&self, transaction: &Transaction) -> Result<Answer, StoreError> {
            if !self.1.swap(false, Ordering::Relaxed) {
                return self.0.transact(transaction);
            }
            if self.2 {
                self.0.transact(transaction)?;
            }
            Err(StoreError::Undecided("lost".into()))
        }

        fn grant_lease(&self, ttl_s: u64) -> Result<LeaseId, StoreError> {
            self.0.grant_lease(ttl_s)
        }

        fn keep_lease(&self, lease: LeaseId) -> Result<bool, StoreError> {
            self.0.keep_lease(lease)
        }

        fn watch(&self, from_revision: u64) -> Result<Box<dyn Watch>, StoreError> {
            self.0.watch(from_revision)
        }
    }

    #[test]
    fn a_lost_answer_is_decided_by_a_read() {
        for is_done in [true, false] {
            let memory = Memory::new();
            let [folder] = folders();
            let store = Lossy(memory, Arc::default(), is_done);
            let node = enter_store(Box::new(store.clone()), folder.path(), 1).unwrap();
            store.1.store(true, Ordering::Relaxed);
            // Were it only sent again, its own slots would be busy.
            change(&node, Change::Add(vec![5..=9])).unwrap();
            assert!(node.view().serves(5) && !store.1.load(Ordering::Relaxed));
        }
    }
}
