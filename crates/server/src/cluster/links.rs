//! Messages to other nodes of the shard: a connection to each, made when it is first needed, and a thread that writes to it.
//!
//! A message may be lost: what cannot be sent at once is dropped, since a later one says more.
//!
//! Must not know: what a message says.

use std::{
    collections::HashMap,
    io::{self, BufRead, BufReader, Write},
    sync::{
        Arc, Mutex, MutexGuard,
        mpsc::{self, RecvTimeoutError, SyncSender, TrySendError},
    },
    thread::JoinHandle,
    time::{Duration, Instant},
};

use redline_net::Address;

use crate::{log, migrate::wire::Wire, shared::Shared, start};

/// Messages that wait for a connection.
const WAITING_MAX: usize = 64;
/// Longest wait for a connection, and for the other side to take bytes.
const PATIENCE: Duration = Duration::from_millis(500);
/// Time for which an unused connection is kept.
const KEPT: Duration = Duration::from_secs(10);
/// Longest line of an answer: bytes.
const LINE_BYTES_MAX: u64 = 4096;

/// See the head of the module.
#[derive(Default)]
pub(super) struct Links {
    nodes: Mutex<HashMap<String, (SyncSender<Vec<u8>>, JoinHandle<()>)>>,
}

impl Links {
    fn nodes(&self) -> MutexGuard<'_, HashMap<String, (SyncSender<Vec<u8>>, JoinHandle<()>)>> {
        self.nodes.lock().expect("no panic under the links")
    }

    /// Sends a request to a node, which does not answer it.
    pub(super) fn send(&self, shared: &Arc<Shared>, to: &str, words: &[&str]) {
        let mut frame = Vec::new();
        let words = words.iter().map(|word| word.as_bytes());
        redline_resp::encode_request(words, &mut frame);
        let mut nodes = self.nodes();
        if let Some((link, _)) = nodes.get(to) {
            match link.try_send(frame) {
                Ok(()) | Err(TrySendError::Full(_)) => return,
                Err(TrySendError::Disconnected(unsent)) => frame = unsent,
            }
        }
        let (link, frames) = mpsc::sync_channel(WAITING_MAX);
        let _ = link.try_send(frame);
        let (shared, node) = (shared.clone(), to.to_owned());
        let begun = start::spawn("cluster-link", move || write(&shared, &node, &frames));
        match begun {
            Ok(thread) => drop(nodes.insert(to.to_owned(), (link, thread))),
            Err(error) => log::warning(&format!("No message can be sent to a node: {error}")),
        }
    }

    /// Ends all threads.
    pub(super) fn end(&self) {
        let nodes = std::mem::take(&mut *self.nodes());
        for (_, (link, thread)) in nodes {
            drop(link);
            thread
                .join()
                .expect("a thread that panics ends the process");
        }
    }
}

/// The thread of a connection: writes what comes, and ends when nothing has for long.
fn write(shared: &Shared, node: &str, frames: &mpsc::Receiver<Vec<u8>>) {
    let mut wire = None;
    let mut told = String::new();
    let mut used = Instant::now();
    loop {
        let frame = match frames.recv_timeout(KEPT) {
            Ok(frame) => frame,
            Err(RecvTimeoutError::Timeout) if used.elapsed() < KEPT => continue,
            Err(_) => return,
        };
        used = Instant::now();
        let sent = send(shared, node, &mut wire, &frame);
        if let Err(error) = sent {
            wire = None;
            // What waited is old by now.
            while frames.try_recv().is_ok() {}
            let why = error.to_string();
            if why != told {
                log::verbose(&format!("No message to the node {node}: {why}"));
                told = why;
            }
        } else {
            told.clear();
        }
    }
}

fn send(shared: &Shared, node: &str, wire: &mut Option<Wire>, frame: &[u8]) -> io::Result<()> {
    let wire = match wire {
        Some(wire) => wire,
        None => wire.insert(connect(shared, node)?),
    };
    wire.write_all(frame)?;
    wire.flush()
}

fn connect(shared: &Shared, node: &str) -> io::Result<Wire> {
    let settings = shared.settings.current();
    let view = shared.cluster.as_ref().map(|cluster| cluster.view());
    let record = view.as_ref().and_then(|view| view.picture.nodes.get(node));
    let Some(record) = record else {
        return Err(io::Error::other("its address is not known"));
    };
    let tls = settings.tls.cluster || record.port == 0;
    let port = if tls { record.tls_port } else { record.port };
    let tls = tls.then(|| settings.tls.client_options());
    let address = Address::tcp(record.ip.clone(), port);
    let mut wire = Wire::connect(&address, PATIENCE, tls.as_ref())?;
    let Some(password) = &settings.primary_password else {
        return Ok(wire);
    };
    let user = settings.primary_user.as_deref().map(str::as_bytes);
    let words = [Some(b"AUTH".as_slice()), user, Some(password.as_slice())];
    let mut frame = Vec::new();
    let words: Vec<&[u8]> = words.into_iter().flatten().collect();
    redline_resp::encode_request(words, &mut frame);
    wire.write_all(&frame)?;
    wire.flush()?;
    let mut line = Vec::new();
    let mut reader = BufReader::new(io::Read::take(&mut wire, LINE_BYTES_MAX));
    reader.read_until(b'\n', &mut line)?;
    drop(reader);
    match line.starts_with(b"+") {
        true => Ok(wire),
        false => Err(io::Error::other(line.escape_ascii().to_string())),
    }
}
