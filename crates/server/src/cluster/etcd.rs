//! A node of a cluster whose records are in etcd: how it starts, follows what the others do, and makes changes.
//!
//! Two threads do so: one watches the store and makes a new view of every change, the other keeps the node's lease and
//! makes the changes that clients have asked for. Neither takes a stripe: worker 0 gives the keyspace a new view
//! ([`drive`]), and a call is answered when that is done.
//!
//! Must not know: commands, the texts in which a cluster is shown.

use std::{
    collections::{BTreeSet, HashMap},
    fs,
    net::{ToSocketAddrs, UdpSocket},
    path::Path,
    sync::{
        Arc, Condvar, Mutex, MutexGuard,
        atomic::{AtomicBool, AtomicU64, Ordering},
        mpsc::{self, RecvTimeoutError},
    },
    thread::JoinHandle,
    time::{Duration, Instant},
};

use redline_cluster::{
    BadRecord, Picture,
    records::{
        ALIVE, Alive, FORMAT, MAP_KEY, META_KEY, Meta, NODES, NodeRecord, OWN_KEY, Own, Record,
        SHARDS, VERSION,
    },
};
use redline_engine::{Caller, executor::block, executor::units};
use redline_etcd::{
    Condition, File, Gateway, GatewayOptions, LeaseId, Listing, Operation, Range, Store,
    StoreError, Transaction,
};
use redline_persist::load::Loaded;

use super::{
    Cluster, View, adopt, alone, empty_picture,
    members::{self, Change, Plan, fresh, owners_of, revision},
    picture_of, put,
};
use crate::{
    following, log,
    persistence::{append, loading},
    replication,
    settings::Settings,
    shared::{Message, Shared},
    start::{self, StartError, random_id, random_number},
    worker::Worker,
};

/// Time that a start waits for etcd.
const START_WAIT: Duration = Duration::from_secs(30);
/// Time between two attempts of a start.
const START_PAUSE: Duration = Duration::from_millis(250);
/// Time of the lease that shows that a node is alive: seconds.
const LEASE_S: u64 = 5;
/// Time between two renewals of that lease, and looks at the node's own record.
const TICK: Duration = Duration::from_secs(1);
/// Time that a watch waits for the end of the server between events.
const WATCH_TURN: Duration = Duration::from_millis(250);
/// Number of times that a change is planned anew, because others were faster.
const ROUNDS_MAX: u32 = 16;
/// Time that a change waits until the keyspace has it.
const APPLY_WAIT: Duration = Duration::from_secs(5);
/// Number of clients that may wait for a change of theirs.
const WAITING_MAX: usize = 1024;

/// What a node with etcd has in addition: see the head of the module.
pub(crate) struct Membership {
    /// Number of this run of the node.
    incarnation: String,
    /// Id of the shard that the node makes when it joins.
    shard: String,
    /// Clients that wait for a change, and results that they have yet to fetch.
    waiting: Mutex<HashMap<u64, Option<Result<(), String>>>>,
    jobs: Mutex<Option<mpsc::Sender<Job>>>,
    threads: Mutex<Vec<JoinHandle<()>>>,
    ends: AtomicBool,
    /// True while etcd answers.
    is_reached: AtomicBool,
    /// True when the store has forgotten what it had told: nothing is changed any more.
    is_frozen: AtomicBool,
    /// True if [`drive`] has something to do. Read every turn.
    has_work: AtomicBool,
    /// True if the data of a primary that is not followed any more is to go.
    empties: AtomicBool,
    applied: Mutex<u64>,
    applied_changed: Condvar,
    /// Ids of nodes that were members.
    left: Mutex<BTreeSet<String>>,
    lease: AtomicU64,
}

/// A change for a client.
struct Job {
    client: u64,
    change: Change,
}

/// Result of asking for a change.
pub(crate) enum Asked {
    /// It is under way; the call runs again when it is done.
    Waits,
    /// It is done, or the error for the client.
    Done(Result<(), String>),
}

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

impl Membership {
    fn new(shard: String) -> Membership {
        Membership {
            incarnation: format!("{:016x}", random_number()),
            shard,
            waiting: Mutex::default(),
            jobs: Mutex::default(),
            threads: Mutex::default(),
            ends: AtomicBool::new(false),
            is_reached: AtomicBool::new(true),
            is_frozen: AtomicBool::new(false),
            has_work: AtomicBool::new(false),
            empties: AtomicBool::new(false),
            applied: Mutex::new(0),
            applied_changed: Condvar::new(),
            left: Mutex::default(),
            lease: AtomicU64::new(0),
        }
    }

    /// Returns what a node sees in the records.
    pub(super) fn view_of(&self, node: &str, listing: &Listing) -> Result<View, BadRecord> {
        let mut picture = picture_of(listing)?;
        let alive = listing.pairs.iter();
        let alive = alive.filter_map(|pair| pair.key.strip_prefix(ALIVE).map(str::to_owned));
        let alive: BTreeSet<String> = alive.collect();
        let own = picture.nodes.get(node).cloned();
        let own = own.unwrap_or_else(|| fresh(&self.shard));
        if !own.joined {
            return Ok(View {
                picture: seen_alone(&picture, node, &own, &self.incarnation),
                shard: own.shard,
                is_member: false,
                is_primary: true,
                alive: None,
            });
        }
        let mut left = self
            .left
            .lock()
            .expect("no panic under the nodes that left");
        left.extend(picture.nodes.keys().cloned());
        picture.nodes.retain(|_, node| node.joined);
        drop(left);
        let shard = picture.shard_of_node(node);
        let is_primary = shard.is_some_and(|(_, shard)| {
            shard.primary.node == node && shard.primary.incarnation == self.incarnation
        });
        Ok(View {
            shard: shard.map_or_else(|| own.shard.clone(), |(id, _)| id.to_owned()),
            picture,
            is_member: true,
            is_primary,
            alive: Some(alive),
        })
    }

    /// Returns true if a node was once seen in the cluster.
    pub(crate) fn was_there(&self, node: &str) -> bool {
        let left = self
            .left
            .lock()
            .expect("no panic under the nodes that left");
        left.contains(node)
    }

    /// Returns true if etcd answered last.
    pub(crate) fn is_reached(&self) -> bool {
        self.is_reached.load(Ordering::Relaxed)
    }

    /// Returns true if [`drive`] has something to do.
    #[inline]
    pub(crate) fn has_work(&self) -> bool {
        self.has_work.load(Ordering::Acquire)
    }

    fn waiting(&self) -> MutexGuard<'_, HashMap<u64, Option<Result<(), String>>>> {
        self.waiting.lock().expect("no panic under those that wait")
    }

    /// Asks for a change for a client, or fetches the result of the one that it has asked for.
    pub(crate) fn ask(&self, client: u64, change: Change) -> Asked {
        let mut waiting = self.waiting();
        match waiting.remove(&client) {
            Some(Some(result)) => return Asked::Done(result),
            Some(None) => {}
            None if waiting.len() >= WAITING_MAX => {
                let text = format!("ERR {WAITING_MAX} changes of the cluster are under way");
                return Asked::Done(Err(text));
            }
            None => {
                let jobs = self.jobs.lock().expect("no panic under the jobs");
                let sent = jobs.as_ref().map(|jobs| jobs.send(Job { client, change }));
                if !matches!(sent, Some(Ok(()))) {
                    return Asked::Done(Err("ERR the server ends".into()));
                }
            }
        }
        waiting.insert(client, None);
        Asked::Waits
    }

    fn note_reached(&self, why: Result<(), &StoreError>) {
        let was = self.is_reached.swap(why.is_ok(), Ordering::Relaxed);
        match why {
            Err(error) if was => log::warning(&format!(
                "The cluster's etcd cannot be used, nothing changes until then: {error}"
            )),
            Ok(()) if !was => log::notice("The cluster's etcd can be used again"),
            _ => {}
        }
    }
}

/// Returns the picture of a node that has not joined: itself, with the slots that it will take with it.
fn seen_alone(of: &Picture, id: &str, node: &NodeRecord, incarnation: &str) -> Picture {
    let mut shard = alone(id, node.epoch);
    incarnation.clone_into(&mut shard.primary.incarnation);
    let mut owners = owners_of(&node.wants);
    for run in owners.runs_of("") {
        owners.give(run, Some(&node.shard));
    }
    let records = [
        (META_KEY.to_owned(), of.meta.to_json()),
        (MAP_KEY.to_owned(), owners.to_map().to_json()),
        (format!("{NODES}{id}"), node.to_json()),
        (format!("{SHARDS}{}", node.shard), shard.to_json()),
    ];
    let records = records
        .iter()
        .map(|(key, json)| (key.as_str(), json.as_slice()));
    // The id of a shard in a record may be anything.
    Picture::of(of.revision, records).unwrap_or_else(|_| empty_picture())
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
    let mut bound = bound.filter_map(|bind| bind.parse::<std::net::IpAddr>().ok());
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
fn describe(node: &mut NodeRecord, settings: &Settings, ports: (u16, u16)) {
    node.version = redline_engine::REDLINE_VERSION.into();
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
    log::notice(&format!("Node configuration loaded, I'm {}", cluster.node));
    let primary = cluster.primary_to_follow(settings);
    Ok((cluster, primary))
}

impl Cluster {
    /// Writes this run of the node into the records, and makes the first view.
    fn enter(&self, file: &OwnFile, settings: &Settings, ports: (u16, u16)) -> Result<(), NotYet> {
        let etcd = self.etcd.as_ref().expect("it has etcd");
        let listing = self.list()?;
        let is_new = revision(&listing, META_KEY) == 0;
        let own_picture = file.picture();
        let mut conditions = vec![Condition::Unchanged(
            META_KEY.into(),
            revision(&listing, META_KEY),
        )];
        let mut writes = Vec::new();
        let node_key = format!("{NODES}{}", self.node);
        let meta;
        let mut node;
        if is_new {
            meta = file.meta().unwrap_or_else(|| Meta {
                v: VERSION,
                cluster: random_id(),
                format: FORMAT,
            });
            writes.push(put(META_KEY, &meta));
            node = fresh(&etcd.shard);
            let owners = match &own_picture {
                // It grows: the cluster of one is there for others.
                Some(own) => {
                    let term = own.newest_term().saturating_add(1);
                    let mut shard = alone(&self.node, term);
                    shard.primary.incarnation.clone_from(&etcd.incarnation);
                    writes.push(put(&format!("{SHARDS}{}", etcd.shard), &shard));
                    node.joined = true;
                    own.owners().to_map()
                }
                None => redline_cluster::Owners::none().to_map(),
            };
            writes.push(put(MAP_KEY, &owners));
        } else {
            let picture = picture_of(&listing).map_err(|error| {
                NotYet::Never(format!("etcd, revision {}: {error}", listing.revision))
            })?;
            meta = picture.meta.clone();
            if file.meta().is_some_and(|own| own.cluster != meta.cluster) {
                return Err(NotYet::Never(format!(
                    "this node is of the cluster {}, and etcd has the cluster {} under the name {}: another cluster-name, or another cluster-config-file, is right",
                    file.meta().map(|own| own.cluster).unwrap_or_default(),
                    meta.cluster,
                    settings.cluster_name
                )));
            }
            node = picture
                .nodes
                .get(&self.node)
                .cloned()
                .unwrap_or_else(|| fresh(&etcd.shard));
            if node.shard.is_empty() {
                node.shard.clone_from(&etcd.shard);
            }
            if let Some((id, shard)) = picture.shard_of_node(&self.node)
                && shard.primary.node == self.node
            {
                let mut shard = shard.clone();
                shard.term = shard.term.saturating_add(1);
                shard.primary.incarnation.clone_from(&etcd.incarnation);
                let key = format!("{SHARDS}{id}");
                conditions.push(Condition::Unchanged(key.clone(), revision(&listing, &key)));
                writes.push(put(&key, &shard));
            }
        }
        let alive_key = format!("{ALIVE}{}", self.node);
        let alive = listing.pairs.iter().find(|pair| pair.key == alive_key);
        if let Some(alive) = alive
            && Alive::from_json(&alive.value)
                .is_ok_and(|alive| alive.incarnation != etcd.incarnation)
        {
            return Err(NotYet::Again(format!(
                "another process is the node {}, or was until a moment ago",
                self.node
            )));
        }
        describe(&mut node, settings, ports);
        conditions.push(Condition::Unchanged(
            node_key.clone(),
            revision(&listing, &node_key),
        ));
        writes.push(put(&node_key, &node));
        let lease = self.store.grant_lease(LEASE_S)?;
        writes.push(alive_of(&self.node, &etcd.incarnation, lease));
        conditions.push(Condition::Unchanged(
            alive_key.clone(),
            revision(&listing, &alive_key),
        ));
        let entering = Transaction {
            conditions,
            success: writes,
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

    /// Returns the address of the primary that this node follows, if it follows one.
    fn primary_to_follow(&self, settings: &Settings) -> Option<(String, u16)> {
        let view = self.view();
        let shard = view
            .own_shard()
            .filter(|_| view.is_member && !view.is_primary)?;
        let primary = view.picture.nodes.get(&shard.primary.node)?;
        if shard.primary.node == self.node {
            return None;
        }
        let port = match settings.tls.replication || primary.port == 0 {
            true => primary.tls_port,
            false => primary.port,
        };
        Some((primary.ip.clone(), port))
    }

    /// Makes a change, as often as others are faster. The error is for the client.
    fn change(&self, change: &Change) -> Result<(), String> {
        let etcd = self.etcd.as_ref().expect("it has etcd");
        if etcd.is_frozen.load(Ordering::Relaxed) {
            return Err(
                "ERR the cluster's etcd has forgotten what it had told; nothing is changed in it"
                    .into(),
            );
        }
        let failed = |error: StoreError| {
            log::warning(&format!("The cluster could not be changed: {error}"));
            format!("ERR the cluster could not be changed: {error}")
        };
        let mut undecided: Option<Transaction> = None;
        for _ in 0..ROUNDS_MAX {
            let listing = self.list().map_err(failed)?;
            if undecided
                .take()
                .is_some_and(|sent| members::is_done(&sent, &listing))
            {
                return Ok(());
            }
            let planned = members::plan(change, &self.node, &etcd.incarnation, &listing);
            if let (Change::Forget(node), Err(_)) = (change, &planned)
                && !listing
                    .pairs
                    .iter()
                    .any(|pair| pair.key == format!("{NODES}{node}"))
                && etcd.was_there(node)
            {
                // Another node has forgotten it for all.
                return Ok(());
            }
            let Plan::Transaction(transaction) = planned? else {
                return Ok(());
            };
            match self.store.transact(&transaction) {
                Ok(answer) if answer.succeeded => return Ok(()),
                Ok(_) => {}
                Err(StoreError::Undecided(_)) => undecided = Some(transaction),
                Err(error) => return Err(failed(error)),
            }
        }
        Err(
            "ERR the cluster could not be changed: others change the same records all the time"
                .into(),
        )
    }

    /// Keeps the node's lease, or makes a new one; writes its record if it has another address now.
    fn tick(&self, shared: &Shared) -> Result<(), StoreError> {
        let etcd = self.etcd.as_ref().expect("it has etcd");
        let lease = LeaseId(etcd.lease.load(Ordering::Relaxed));
        if !self.store.keep_lease(lease)? {
            let lease = self.store.grant_lease(LEASE_S)?;
            let alive = Transaction {
                success: vec![alive_of(&self.node, &etcd.incarnation, lease)],
                ..Transaction::default()
            };
            self.store.transact(&alive)?;
            etcd.lease.store(lease.0, Ordering::Relaxed);
        }
        let key = format!("{NODES}{}", self.node);
        let shown = self.view().picture.nodes.get(&self.node).cloned();
        let mut wanted = shown.clone().unwrap_or_else(|| fresh(&etcd.shard));
        let bound = |which| shared.bound_port(which);
        let ports = (
            bound(crate::shared::TcpPort::Plain),
            bound(crate::shared::TcpPort::Tls),
        );
        describe(&mut wanted, &shared.settings.current(), ports);
        if shown.as_ref() == Some(&wanted) {
            return Ok(());
        }
        let listing = self.store.range(&Range::Key(key.clone()))?;
        let mut node = match listing
            .pairs
            .first()
            .map(|pair| NodeRecord::from_json(&pair.value))
        {
            Some(Ok(node)) => node,
            // It was removed while etcd did not hear of it.
            _ => fresh(&etcd.shard),
        };
        describe(&mut node, &shared.settings.current(), ports);
        let renewed = Transaction {
            conditions: vec![Condition::Unchanged(key.clone(), revision(&listing, &key))],
            success: vec![put(&key, &node)],
            failure: Vec::new(),
        };
        // Who was faster is followed by another look.
        self.store.transact(&renewed).map(|_| ())
    }
}

fn alive_of(node: &str, incarnation: &str, lease: LeaseId) -> Operation {
    let alive = Alive {
        v: VERSION,
        incarnation: incarnation.to_owned(),
        files: None,
    };
    Operation::Put {
        key: format!("{ALIVE}{node}"),
        value: alive.to_json(),
        lease: Some(lease),
    }
}

/// Starts the threads of a node with etcd. Called once, when the workers can be sent messages.
pub(crate) fn begin(shared: &Arc<Shared>) -> Result<(), StartError> {
    let Some(etcd) = shared
        .cluster
        .as_ref()
        .and_then(|cluster| cluster.etcd.as_ref())
    else {
        return Ok(());
    };
    let (jobs, todo) = mpsc::channel();
    *etcd.jobs.lock().expect("no panic under the jobs") = Some(jobs);
    let watch = start::spawn("cluster-watch", {
        let shared = shared.clone();
        move || watch(&shared)
    })?;
    let control = start::spawn("cluster", {
        let shared = shared.clone();
        move || control(&shared, &todo)
    })?;
    etcd.threads
        .lock()
        .expect("no panic under the threads")
        .extend([watch, control]);
    Ok(())
}

/// Ends the threads, and shows that the node has ended. Called when no worker runs any more.
pub(crate) fn end(shared: &Shared) {
    let Some(cluster) = &shared.cluster else {
        return;
    };
    let Some(etcd) = &cluster.etcd else { return };
    etcd.ends.store(true, Ordering::Release);
    *etcd.jobs.lock().expect("no panic under the jobs") = None;
    let mut threads = etcd.threads.lock().expect("no panic under the threads");
    for thread in threads.drain(..) {
        thread
            .join()
            .expect("a thread that panics ends the process");
    }
    // If etcd does not hear of it, the lease ends.
    let gone = Operation::Delete(Range::Key(format!("{ALIVE}{}", cluster.node)));
    let _ = cluster.store.transact(&Transaction {
        success: vec![gone],
        ..Transaction::default()
    });
}

/// The thread that makes changes, and keeps the lease.
fn control(shared: &Shared, todo: &mpsc::Receiver<Job>) {
    let cluster = shared.cluster.as_ref().expect("it is a node");
    let etcd = cluster.etcd.as_ref().expect("it has etcd");
    let mut next = Instant::now() + TICK;
    while !etcd.ends.load(Ordering::Acquire) {
        match todo.recv_timeout(next.saturating_duration_since(Instant::now())) {
            Ok(Job { client, change }) => {
                let mut result = cluster.change(&change);
                if result.is_ok() {
                    if change == Change::Leave {
                        let follows = shared.settings.current().primary.is_some();
                        etcd.empties.fetch_or(follows, Ordering::AcqRel);
                    }
                    result = cluster.look().map_err(|error| format!("ERR {error}"));
                    until_applied(shared, etcd, cluster.view().picture.revision);
                }
                answer(shared, etcd, client, result);
            }
            Err(RecvTimeoutError::Timeout) => {
                next = Instant::now() + TICK;
                let ticked = cluster.tick(shared);
                etcd.note_reached(ticked.as_ref().copied());
            }
            Err(RecvTimeoutError::Disconnected) => return,
        }
    }
}

/// Has the call of a client run again, which fetches the result.
fn answer(shared: &Shared, etcd: &Membership, client: u64, result: Result<(), String>) {
    let mut waiting = etcd.waiting();
    // Its client may have gone.
    let Some(token) = shared.token_of(client) else {
        waiting.remove(&client);
        return;
    };
    waiting.insert(client, Some(result));
    drop(waiting);
    shared.send(token, redline_engine::Message::Wake(token));
}

/// The thread that watches the store.
fn watch(shared: &Shared) {
    let cluster = shared.cluster.as_ref().expect("it is a node");
    let etcd = cluster.etcd.as_ref().expect("it has etcd");
    let mut wrong = String::new();
    while !etcd.ends.load(Ordering::Acquire) {
        let watched = cluster.store.watch(cluster.view().picture.revision + 1);
        let mut watched = match watched {
            Ok(watched) => watched,
            Err(error) => {
                etcd.note_reached(Err(&error));
                std::thread::sleep(START_PAUSE);
                continue;
            }
        };
        // The view may be older than the watch's beginning.
        look(shared, cluster, &mut wrong);
        while !etcd.ends.load(Ordering::Acquire) {
            match watched.next(WATCH_TURN) {
                Ok(events) if events.events.is_empty() => {}
                Ok(_) => look(shared, cluster, &mut wrong),
                Err(StoreError::Compacted(_)) => break,
                Err(StoreError::Damaged(why)) => {
                    if !etcd.is_frozen.swap(true, Ordering::Relaxed) {
                        log::warning(&format!(
                            "The cluster's etcd is not trusted any more, nothing is changed in it: {why}"
                        ));
                    }
                    std::thread::sleep(TICK);
                    break;
                }
                // Said by the lease's keeper, and tried again by the watch.
                Err(_) => {}
            }
        }
    }
}

/// Makes a new view, and has the keyspace get it. What cannot be used is told once, and the last view stays.
fn look(shared: &Shared, cluster: &Cluster, wrong: &mut String) {
    match cluster.look() {
        Ok(()) => {
            wrong.clear();
            adopt(shared);
            wake(shared);
        }
        Err(StoreError::Damaged(why)) if *wrong != why => {
            log::warning(&format!(
                "The cluster's records cannot be used, the last ones stay: {why}"
            ));
            *wrong = why;
        }
        Err(_) => {}
    }
}

/// Waits until the keyspace has a revision.
fn until_applied(shared: &Shared, etcd: &Membership, revision: u64) {
    let ends = Instant::now() + APPLY_WAIT;
    let mut applied = etcd.applied.lock().expect("no panic under the revision");
    while *applied < revision && Instant::now() < ends {
        wake(shared);
        let waited = etcd
            .applied_changed
            .wait_timeout(applied, Duration::from_millis(20));
        applied = waited.expect("no panic under the revision").0;
    }
}

/// Has worker 0 look at the view.
fn wake(shared: &Shared) {
    let etcd = shared
        .cluster
        .as_ref()
        .and_then(|cluster| cluster.etcd.as_ref());
    if etcd.is_some_and(|etcd| !etcd.has_work.swap(true, Ordering::AcqRel)) {
        shared.workers()[0]
            .mailbox
            .send(Message::Run(Box::new(|_| ())));
    }
}

/// Has the keyspace serve what the node is to serve by its view, and follow whom it is to follow. Called by worker 0, which
/// holds nothing.
pub(crate) fn drive(worker: &mut Worker) {
    let shared = worker.shared;
    let Some(cluster) = &shared.cluster else {
        return;
    };
    let Some(etcd) = &cluster.etcd else { return };
    if shared.persistence.loading.is_on() {
        return;
    }
    etcd.has_work.store(false, Ordering::Release);
    let mut caller: Caller = following::link_caller();
    let Ok(mut unit) = units::take_everything(worker.executor, &mut caller) else {
        units::give_way(worker.executor, &mut caller);
        etcd.has_work.store(true, Ordering::Release);
        return;
    };
    let view = cluster.view();
    cluster.serve_owned(&mut unit);
    let settings = shared.settings.current();
    let leaves = etcd.empties.load(Ordering::Acquire);
    // First nobody is followed any more.
    let empties = leaves && settings.primary.is_none();
    if empties {
        etcd.empties.store(false, Ordering::Release);
        let nothing = shared.keyspace.unpublished();
        let emptied = loading::publish(worker, &mut unit, &nothing, &Loaded::default());
        emptied.expect("no library is loaded");
        replication::restart_history(shared);
    }
    block::commit(worker.executor, unit);
    units::give_way(worker.executor, &mut caller);
    if empties {
        let append = &shared.persistence.append;
        append.note_replaced();
        if append.is_on() && !append::rewrite(shared) {
            append.schedule();
        }
    }
    adopt(shared);
    let wanted = cluster.primary_to_follow(&settings);
    // One that has left goes on following until it is reset.
    if (view.is_member || leaves) && settings.primary != wanted {
        following::want(shared, wanted);
    }
    if leaves && !empties {
        etcd.has_work.store(true, Ordering::Release);
        return;
    }
    *etcd.applied.lock().expect("no panic under the revision") = view.picture.revision;
    etcd.applied_changed.notify_all();
}

#[cfg(test)]
mod tests {
    use redline_etcd::{Answer, Memory, Watch};

    use super::*;

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
    fn a_node_is_one_process_and_the_next_one_has_a_later_term() {
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
            (term + 1, &first.node)
        );
        assert!(second.view().serves(0));
        first.look().unwrap();
        assert!(
            !first.view().serves(0),
            "what was there before serves no more"
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
