//! A primary's snapshot on its way into tables that no client reaches: through a file, or as it comes.
//!
//! The file is one in the folder of the configured one, and is loaded behind its writer, so that the connection never waits for the
//! loader. What is loaded as it comes may take the place of data that are not to be seen any more, which `repl-diskless-load`
//! decides. Whatever goes wrong leaves nothing but the data that were there, if they were not in the way.
//!
//! Must not know: the connection, what the primary says.

use std::{
    io,
    path::PathBuf,
    sync::{Arc, atomic::Ordering},
};

use redline_net::{Sender, clock};
use redline_persist::{aof::writer::Base, load::Progress};
use redline_rdb::{
    file::{Scanner, Source},
    format::FileVersion,
};
use redline_replica::Replid;

use super::{
    apply::Install,
    behind, note_role,
    pipe::{self, Reader, Writer},
    thread::Order,
    wake,
};
use crate::{
    log,
    persistence::{
        append, leftovers,
        loading::{self, NotLoaded},
    },
    replication,
    settings::{DisklessLoad, Settings},
    shared::Shared,
    start,
};

/// One attempt to take a snapshot, from the primary's word that it comes to its end.
#[derive(Debug)]
pub(crate) struct Attempt {
    /// Number of the change of the role for which it comes.
    pub(super) term: u64,
    /// The history that the snapshot is of, and the offset; unknown of a primary without PSYNC.
    pub(super) history: Option<(Replid, u64)>,
    /// How far it is loaded. Told to stop, it was given up.
    progress: Progress,
    /// Unix time at which it began, in seconds.
    pub(crate) began_s: u64,
    way: Way,
}

/// The way of a snapshot into the tables.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Way {
    /// Through a file. Clients see the data until it is loaded.
    File,
    /// As it comes. Clients see the data until it is loaded.
    Beside,
    /// As it comes. Clients are told that it is being loaded.
    Hidden,
    /// As it comes, and the data are dropped as soon as it has begun.
    Emptied,
}

impl Way {
    /// Chooses the way of a snapshot that is of the history that the data are of, or not.
    fn of(setting: DisklessLoad, is_own: bool, is_empty: bool) -> Way {
        match setting {
            // Data of another history are no old state of what is loaded.
            DisklessLoad::Beside if is_own => Way::Beside,
            DisklessLoad::Beside => Way::Hidden,
            DisklessLoad::OnEmpty if is_empty => Way::Hidden,
            DisklessLoad::Emptied => Way::Emptied,
            DisklessLoad::Never | DisklessLoad::OnEmpty => Way::File,
        }
    }
}

impl Attempt {
    /// Begins an attempt.
    pub(super) fn new(shared: &Shared, term: u64, history: Option<(Replid, u64)>) -> Attempt {
        let settings = shared.settings.current();
        let mut databases = 0..shared.keyspace.databases();
        let is_empty = databases.all(|db| shared.keyspace.key_count(db) == 0);
        let own = replication::identity(shared).replid();
        let is_own = history.is_some_and(|(replid, _)| replid == own);
        let way = Way::of(settings.diskless_load, is_own, is_empty);
        let attempt = Attempt {
            term,
            history,
            progress: Progress::default(),
            began_s: clock::wall_ms() / 1000,
            way,
        };
        attempt.adopt(&settings);
        attempt
    }

    /// Goes by changed settings.
    pub(super) fn adopt(&self, settings: &Settings) {
        let delay_us = &self.progress.key_delay_us;
        delay_us.store(settings.key_load_delay_us, Ordering::Relaxed);
    }

    /// Gives it up: who loads for it stops, and nothing of it is published.
    pub(super) fn give_up(&self) {
        self.progress.stop.store(true, Ordering::Relaxed);
    }

    fn is_given_up(&self) -> bool {
        self.progress.stop.load(Ordering::Relaxed)
    }

    /// Returns true if clients see the data until it is loaded.
    pub(crate) fn is_beside(&self) -> bool {
        matches!(self.way, Way::File | Way::Beside)
    }

    /// Returns the number of bytes that were loaded.
    pub(crate) fn bytes(&self) -> u64 {
        self.progress.bytes.load(Ordering::Relaxed)
    }
}

/// A snapshot that is being received. One that is dropped before its end is lost.
pub(super) struct Receiving {
    attempt: Arc<Attempt>,
    bytes: u64,
    sink: Sink,
}

/// The file of a snapshot that can be the base of the append-only file. It goes if it is dropped.
pub(super) struct ReceivedBase {
    reader: behind::Reader,
    bytes: u64,
}

impl ReceivedBase {
    /// Lets it stay.
    pub(super) fn keep(self) -> Base {
        Base {
            path: self.reader.keep(),
            is_synced: false,
            bytes: self.bytes,
            is_snapshot: true,
        }
    }
}

enum Sink {
    /// Whoever loads it begins with the first bytes, and has the other side.
    File(behind::Writer, Option<behind::Reader>),
    /// Whoever loads it begins with the first bytes.
    Pipe(Option<Writer>),
}

impl Receiving {
    /// Makes room for a snapshot.
    pub(super) fn begin(shared: &Shared, attempt: Arc<Attempt>) -> io::Result<Receiving> {
        let sink = match attempt.way {
            Way::File => {
                let settings = shared.settings.current();
                let (writer, reader) = create_file(&settings)?;
                Sink::File(writer, Some(reader))
            }
            _ => Sink::Pipe(None),
        };
        Ok(Receiving {
            attempt,
            bytes: 0,
            sink,
        })
    }

    /// Returns the number of bytes that have come.
    pub(super) fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Takes bytes that have come. Returns false if no more are to be read until [`Order::Drained`]. The error is a line for
    /// the log.
    pub(super) fn take(
        &mut self,
        shared: &Shared,
        bytes: &[u8],
        orders: Sender<Order>,
    ) -> Result<bool, String> {
        self.bytes += bytes.len() as u64;
        match &mut self.sink {
            Sink::File(writer, reader) => {
                writer.write(bytes).map_err(|error| {
                    format!(
                        "Write error or short write writing to the DB dump file needed for MASTER <-> REPLICA synchronization: {error}"
                    )
                })?;
                if let Some(reader) = reader.take() {
                    begin_behind(shared, &self.attempt, orders, reader)?;
                }
                Ok(true)
            }
            Sink::Pipe(Some(writer)) => Ok(writer.push(bytes)),
            Sink::Pipe(none) => {
                let writer = begin_piped(shared, &self.attempt, orders)?;
                Ok(none.insert(writer).push(bytes))
            }
        }
    }

    /// Ends it: everything has come, and so many bytes at the end are no part of it. The error is a line for the log.
    pub(super) fn end(
        self,
        shared: &Shared,
        surplus: usize,
        orders: Sender<Order>,
    ) -> Result<(), String> {
        match self.sink {
            Sink::File(writer, reader) => {
                let bytes = self.bytes - surplus as u64;
                log::notice(&format!(
                    "MASTER <-> REPLICA sync: Loading DB in memory, {bytes} bytes"
                ));
                writer.finish(surplus);
                // Not a byte has come.
                let loads = |reader| begin_behind(shared, &self.attempt, orders, reader);
                reader.map_or(Ok(()), loads)
            }
            // What is behind the snapshot's end is passed over.
            Sink::Pipe(writer) => {
                writer.into_iter().for_each(Writer::finish);
                Ok(())
            }
        }
    }
}

/// Makes a file for a snapshot. One before it may still be there: it has become a base, and waits to be moved.
fn create_file(settings: &Settings) -> io::Result<(behind::Writer, behind::Reader)> {
    let folder = PathBuf::from(&settings.db_filename);
    let mut number = clock::wall_ms();
    loop {
        let name = leftovers::received_name(number, std::process::id());
        match behind::create(folder.with_file_name(name)) {
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => number += 1,
            created => return created,
        }
    }
}

/// Has a thread load something, and tells if that fails.
fn spawn_loader(
    orders: Sender<Order>,
    attempt: Arc<Attempt>,
    load: impl FnOnce() -> Result<(), String> + Send + 'static,
) -> Result<(), String> {
    let spawned = start::spawn("load", move || {
        if let Err(why) = load() {
            let result = Err(why);
            orders.send(Order::Loaded { attempt, result });
        }
    });
    spawned
        .map(drop)
        .map_err(|error| format!("Cannot load the MASTER synchronization DB: {error}"))
}

/// Begins to load a snapshot from its file, behind its writer.
fn begin_behind(
    shared: &Shared,
    attempt: &Arc<Attempt>,
    orders: Sender<Order>,
    reader: behind::Reader,
) -> Result<(), String> {
    let (shared, attempt) = (shared.this(), attempt.clone());
    spawn_loader(orders, attempt.clone(), move || {
        let path = reader.path().to_owned();
        let failed = |why: &str| {
            format!(
                "Failed trying to load the MASTER synchronization DB from disk: {}: {why}",
                path.display()
            )
        };
        let (loaded, mut scanner) = load_from(&shared, &attempt, reader);
        let file = loaded.map_err(|error| failed(&error.to_string()))?;
        // Redis is to read the append-only file as well.
        let is_common = matches!(scanner.header(), Ok(FileVersion::Redis(_)));
        let (reader, _) = scanner.into_parts();
        if !reader.ends_whole() {
            return Err(failed(&pipe::broken().to_string()));
        }
        let may_stay = is_common && append::takes_base_of(&shared, reader.path());
        let base = may_stay && reader.cut(file.bytes).is_ok();
        let base = base.then_some(ReceivedBase {
            reader,
            bytes: file.bytes,
        });
        install(&shared, &attempt, file, base);
        Ok(())
    })
}

/// Begins to load a snapshot that comes.
fn begin_piped(
    shared: &Shared,
    attempt: &Arc<Attempt>,
    orders: Sender<Order>,
) -> Result<Writer, String> {
    shared.following.facts().loading = Some(attempt.clone());
    note_role(shared);
    log::notice("MASTER <-> REPLICA sync: Loading DB in memory");
    let told = orders.clone();
    let (writer, reader) = pipe::pipe(move || told.send(Order::Drained));
    let (shared, attempt) = (shared.this(), attempt.clone());
    spawn_loader(orders, attempt.clone(), move || {
        let result = load_piped(&shared, &attempt, reader);
        // Who has given it up has said another reason already.
        if let Err(why) = &result
            && attempt.is_given_up()
        {
            log::warning(why);
        }
        result
    })?;
    Ok(writer)
}

/// Loads a snapshot as it comes, and leaves it to worker 0. The error is a line for the log.
fn load_piped(shared: &Shared, attempt: &Arc<Attempt>, reader: Reader) -> Result<(), String> {
    let (loaded, scanner) = load_from(shared, attempt, reader);
    let failed =
        |offset: u64, why: &str| format!("Internal error in RDB reading offset {offset}: {why}");
    let file = loaded.map_err(|error| failed(scanner.offset(), &error.to_string()))?;
    let (reader, _) = scanner.into_parts();
    if !reader.ends_whole() {
        return Err(failed(file.bytes, &pipe::broken().to_string()));
    }
    install(shared, attempt, file, None);
    Ok(())
}

/// Loads a snapshot. Returns what came of it, and the scanner where it stands.
fn load_from<S: Source>(
    shared: &Shared,
    attempt: &Attempt,
    source: S,
) -> (Result<loading::File, NotLoaded>, Scanner<S>) {
    let settings = shared.settings.current();
    let clock = loading::clock_of(&settings);
    let begins = || {
        if attempt.way == Way::Emptied {
            empty(shared, attempt);
        }
    };
    let mut scanner = Scanner::new(source);
    let (options, progress) = (
        loading::options(shared, &settings, clock),
        &attempt.progress,
    );
    let loaded = loading::load_scanned(&mut scanner, shared, &settings, &options, progress, begins);
    (loaded, scanner)
}

/// Leaves what was loaded to worker 0, unless it was given up.
fn install(
    shared: &Shared,
    attempt: &Arc<Attempt>,
    file: loading::File,
    base: Option<ReceivedBase>,
) {
    let mut applier = shared.following.applier();
    if applier.term == attempt.term && !attempt.is_given_up() {
        applier.install = Some(Install {
            space: file.space,
            loaded: file.loaded,
            base,
            attempt: attempt.clone(),
        });
    }
    drop(applier);
    wake(shared);
}

/// Has worker 0 drop all data, unless the attempt was given up.
fn empty(shared: &Shared, attempt: &Attempt) {
    let mut applier = shared.following.applier();
    applier.is_to_empty = applier.term == attempt.term && !attempt.is_given_up();
    drop(applier);
    wake(shared);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn data_are_served_only_as_an_old_state_of_what_is_loaded() {
        use DisklessLoad::{Beside, Emptied, Never, OnEmpty};
        let ways = |setting| {
            let cases = [(false, false), (false, true), (true, false), (true, true)];
            cases.map(|(is_own, is_empty)| Way::of(setting, is_own, is_empty))
        };
        assert_eq!(ways(Never), [Way::File; 4]);
        assert_eq!(
            ways(OnEmpty),
            [Way::File, Way::Hidden, Way::File, Way::Hidden]
        );
        assert_eq!(
            ways(Beside),
            [Way::Hidden, Way::Hidden, Way::Beside, Way::Beside]
        );
        assert_eq!(ways(Emptied), [Way::Emptied; 4]);
    }
}
