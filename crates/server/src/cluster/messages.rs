//! Published messages on their way to the other nodes of a cluster: PUBLISH reaches the subscribers of each node.
//!
//! Each other node has a connection and a thread of its own, made when the first message is for it, and ended when there
//! has been none for a while. The node on the other side delivers, and passes nothing on. A message to a node that cannot be
//! reached is lost, as in Redis: nobody waits for it.
//!
//! Must not know: subscribers, who has published.

use std::{
    collections::HashMap,
    io::{self, BufRead, BufReader, Read, Write},
    sync::{
        Arc, Condvar, Mutex, MutexGuard,
        atomic::{AtomicBool, Ordering},
    },
    thread::JoinHandle,
    time::Duration,
};

use redline_net::Address;
use redline_resp::Args;

use super::Cluster;
use crate::{
    log,
    migrate::{push_command, wire::Wire},
    settings::Settings,
    shared::Shared,
    start,
};

/// Bytes that may wait for one node. What is more is lost with them.
const WAITING_BYTES_MAX: usize = 64 * 1024 * 1024;
/// Time without a message after which a connection ends.
const IDLE: Duration = Duration::from_secs(60);
/// Longest silence of a node that is being written to.
const PATIENCE: Duration = Duration::from_secs(5);
/// Time for which nobody is called again who could not be reached.
const PAUSE: Duration = Duration::from_millis(100);
/// Longest line of a reply: bytes.
const LINE_BYTES_MAX: u64 = 64 * 1024;

/// The connections to other nodes, by the nodes' ids.
#[derive(Default)]
pub(crate) struct Messages {
    peers: Mutex<HashMap<String, Arc<Peer>>>,
    threads: Mutex<Vec<JoinHandle<()>>>,
    ends: AtomicBool,
}

/// A node to which messages go.
#[derive(Default)]
struct Peer {
    queue: Mutex<Queue>,
    filled: Condvar,
}

#[derive(Default)]
struct Queue {
    bytes: Vec<u8>,
    /// True if no thread takes from it any more.
    is_closed: bool,
}

impl Peer {
    fn queue(&self) -> MutexGuard<'_, Queue> {
        self.queue.lock().expect("no panic under a node's messages")
    }
}

impl Messages {
    fn peers(&self) -> MutexGuard<'_, HashMap<String, Arc<Peer>>> {
        self.peers.lock().expect("no panic under the nodes")
    }

    /// Adds a message to those for a node.
    fn push(&self, shared: &Shared, node: &str, frame: &[u8]) {
        let mut peers = self.peers();
        if let Some(peer) = peers.get(node) {
            let mut queue = peer.queue();
            if !queue.is_closed {
                if queue.bytes.len() + frame.len() > WAITING_BYTES_MAX {
                    let waiting = queue.bytes.len();
                    log::warning(&format!(
                        "The node {node} does not take what is published: {waiting} bytes for it are dropped"
                    ));
                    queue.bytes.clear();
                }
                queue.bytes.extend_from_slice(frame);
                drop(queue);
                peer.filled.notify_one();
                return;
            }
        }
        let peer = Arc::<Peer>::default();
        peer.queue().bytes.extend_from_slice(frame);
        let (shared, own, id) = (shared.this(), peer.clone(), node.to_owned());
        match start::spawn("cluster-link", move || carry(&shared, &own, &id)) {
            Ok(thread) => {
                peers.insert(node.to_owned(), peer);
                let mut threads = self.threads.lock().expect("no panic under the threads");
                threads.retain(|thread| !thread.is_finished());
                threads.push(thread);
            }
            Err(error) => log::warning(&format!("No thread for messages to a node: {error}")),
        }
    }
}

/// Passes a call of PUBLISH on to all other nodes. Returns false if the node is of no cluster with others.
pub(crate) fn pass_on(shared: &Shared, args: Args<'_>) -> bool {
    let Some((cluster, etcd)) = with_etcd(shared) else {
        return false;
    };
    let view = cluster.view();
    if !view.is_member {
        return false;
    }
    let mut frame = Vec::new();
    for (node, record) in &view.picture.nodes {
        if *node == cluster.node || !record.joined || view.is_failed(node) {
            continue;
        }
        if frame.is_empty() {
            push_command(&mut frame, &[&args[0], &args[1], &args[2]]);
        }
        etcd.messages.push(shared, node, &frame);
    }
    true
}

fn with_etcd(shared: &Shared) -> Option<(&Cluster, &super::etcd::Membership)> {
    let cluster = shared.cluster.as_ref()?;
    Some((cluster, cluster.etcd.as_ref()?))
}

/// Ends the threads. Called when no worker runs any more.
pub(super) fn end(messages: &Messages) {
    messages.ends.store(true, Ordering::Release);
    for peer in messages.peers().values() {
        let _queue = peer.queue();
        peer.filled.notify_all();
    }
    let threads =
        std::mem::take(&mut *messages.threads.lock().expect("no panic under the threads"));
    for thread in threads {
        thread
            .join()
            .expect("a thread that panics ends the process");
    }
}

/// The life of a thread: it sends one node what is for it.
fn carry(shared: &Shared, peer: &Peer, node: &str) {
    let Some((cluster, etcd)) = with_etcd(shared) else {
        return;
    };
    let ends = || etcd.messages.ends.load(Ordering::Acquire);
    let mut link: Option<Wire> = None;
    let mut told = false;
    loop {
        let queue = peer.queue();
        let waits = |queue: &mut Queue| queue.bytes.is_empty() && !ends();
        let waited = peer.filled.wait_timeout_while(queue, IDLE, waits);
        let mut queue = waited.expect("no panic under a node's messages").0;
        if queue.bytes.is_empty() || ends() {
            queue.is_closed = true;
            return;
        }
        let bytes = std::mem::take(&mut queue.bytes);
        drop(queue);
        let sent = send(&mut link, cluster, shared, node, &bytes);
        match sent {
            Ok(()) => told = false,
            Err(error) => {
                if !std::mem::replace(&mut told, true) {
                    log::warning(&format!(
                        "The node {node} does not get what is published: {error}"
                    ));
                }
                link = None;
                let queue = peer.queue();
                let waited = peer.filled.wait_timeout_while(queue, PAUSE, |_| !ends());
                // What came meanwhile is as old as what was lost.
                waited
                    .expect("no panic under a node's messages")
                    .0
                    .bytes
                    .clear();
            }
        }
    }
}

fn send(
    link: &mut Option<Wire>,
    cluster: &Cluster,
    shared: &Shared,
    node: &str,
    bytes: &[u8],
) -> io::Result<()> {
    if link.as_mut().is_some_and(Wire::is_closed) {
        *link = None;
    }
    let wire = match link {
        Some(wire) => wire,
        None => {
            let mut wire = connect(cluster, &shared.settings.current(), node, PATIENCE)?;
            // Nobody reads replies.
            wire.write_all(b"*3\r\n$6\r\nCLIENT\r\n$5\r\nREPLY\r\n$3\r\nOFF\r\n")?;
            link.insert(wire)
        }
    };
    wire.write_all(bytes)?;
    wire.flush()
}

/// Connects to another node, as one of the same cluster.
pub(super) fn connect(
    cluster: &Cluster,
    settings: &Settings,
    node: &str,
    patience: Duration,
) -> io::Result<Wire> {
    let view = cluster.view();
    let record = view.picture.nodes.get(node);
    let record = record.ok_or_else(|| io::Error::other("it is no member"))?;
    let is_tls = settings.tls.cluster || record.port == 0;
    let port = if is_tls { record.tls_port } else { record.port };
    let tls = is_tls.then(|| settings.tls.client_options());
    let address = Address::tcp(record.ip.clone(), port);
    let mut wire = Wire::connect(&address, patience, tls.as_ref())?;
    let (mut head, mut replies) = (Vec::new(), 1);
    if let Some(password) = settings.primary_password.as_deref() {
        let user = settings
            .primary_user
            .as_deref()
            .filter(|user| !user.is_empty());
        let mut words = vec![&b"AUTH"[..]];
        words.extend(user.map(str::as_bytes));
        words.push(password);
        push_command(&mut head, &words);
        replies += 1;
    }
    let (id, own) = (&view.picture.meta.cluster, &cluster.node);
    let words = [
        &b"CLUSTER"[..],
        b"SYNCSLOTS",
        b"NODE",
        id.as_bytes(),
        own.as_bytes(),
    ];
    push_command(&mut head, &words);
    wire.write_all(&head)?;
    wire.flush()?;
    let mut input = BufReader::new(&mut wire);
    for _ in 0..replies {
        expect_ok(&mut input)?;
    }
    drop(input);
    Ok(wire)
}

/// Reads a reply of one line, which is no error.
pub(super) fn expect_ok(input: &mut impl BufRead) -> io::Result<()> {
    let mut line = Vec::new();
    input.take(LINE_BYTES_MAX).read_until(b'\n', &mut line)?;
    match line.first() {
        Some(b'+' | b':') => Ok(()),
        Some(_) => {
            let text = String::from_utf8_lossy(&line);
            Err(io::Error::other(text.trim_end().to_owned()))
        }
        None => Err(io::ErrorKind::UnexpectedEof.into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reply_is_fine_or_its_text_is_the_reason() {
        assert!(expect_ok(&mut &b"+OK\r\n"[..]).is_ok());
        assert!(expect_ok(&mut &b":3\r\n"[..]).is_ok());
        let refused = expect_ok(&mut &b"-NOAUTH Authentication required.\r\n"[..]).unwrap_err();
        assert_eq!(refused.to_string(), "-NOAUTH Authentication required.");
        let cut = expect_ok(&mut &b""[..]).unwrap_err();
        assert_eq!(cut.kind(), io::ErrorKind::UnexpectedEof);
    }
}
