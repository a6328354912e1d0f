//! The oldest blocks of the stream in a file without a name, if `repl-backlog-spool` allows it: a replica that is far behind costs
//! disk and not memory.
//!
//! Who adds to the stream writes them here as well. If that fails nothing more is written until the settings change: blocks stay
//! in memory, and replicas are closed at their limit.
//!
//! Must not know: what the bytes say, which replicas there are.

use std::{
    fs, io,
    os::unix::fs::FileExt,
    sync::{Arc, Mutex, MutexGuard, TryLockError},
};

use redline_replica::blocks::{BLOCK_BYTES, Slot, Spill};

use crate::{log, shared::Shared};

/// Slots that are written at one go: who writes them has clients.
const SLOTS_MAX: usize = 16;

/// See the module's text.
#[derive(Default)]
pub(crate) struct BacklogFile(Mutex<State>);

#[derive(Default)]
struct State {
    /// The file, and the number of the stream whose blocks it holds.
    file: Option<(u64, Arc<fs::File>)>,
    is_broken: bool,
}

impl BacklogFile {
    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().expect("no panic under the backlog's file")
    }

    /// Tries again to write, after a change of the settings.
    pub(super) fn mend(&self) {
        self.state().is_broken = false;
    }

    /// Reads from a slot.
    pub(super) fn read(&self, slot: Slot, from: usize, into: &mut [u8]) -> io::Result<()> {
        let state = self.state();
        let file = state
            .file
            .as_ref()
            .filter(|(spool, _)| *spool == slot.spool);
        let file = file.map(|(_, file)| file.clone());
        drop(state);
        let file = file.ok_or(io::ErrorKind::NotFound)?;
        file.read_exact_at(into, place_of(slot) + from as u64)
    }
}

fn place_of(slot: Slot) -> u64 {
    u64::from(slot.number) * BLOCK_BYTES as u64
}

fn write(file: &fs::File, spill: &Spill) -> io::Result<()> {
    let mut place = place_of(spill.slot);
    for block in &spill.blocks {
        file.write_all_at(block, place)?;
        place += block.len() as u64;
    }
    Ok(())
}

impl State {
    /// Returns the file of a stream; makes it. What it held of another stream is gone.
    fn file_of(&mut self, spool: u64) -> io::Result<Arc<fs::File>> {
        if let Some((known, file)) = &self.file
            && *known == spool
        {
            return Ok(file.clone());
        }
        let path = format!("temp-backlog-{}.spool", std::process::id());
        let mut options = fs::OpenOptions::new();
        let options = options.read(true).write(true).create(true).truncate(true);
        let file = Arc::new(options.open(&path)?);
        // It lives as long as somebody has it open.
        fs::remove_file(&path)?;
        self.file = Some((spool, file.clone()));
        Ok(file)
    }
}

/// Moves old blocks into the file, as far as there are too many in memory. The caller holds no lock of replication.
pub(super) fn spill(shared: &Shared) {
    let replication = &shared.replication;
    let mut state = match replication.backlog_file.0.try_lock() {
        Ok(state) => state,
        // Somebody else does it.
        Err(TryLockError::WouldBlock) => return,
        Err(TryLockError::Poisoned(_)) => panic!("no panic under the backlog's file"),
    };
    if state.is_broken {
        return;
    }
    for _ in 0..SLOTS_MAX {
        let Some(spill) = replication.primary().spill() else {
            return;
        };
        let file = state.file_of(spill.slot.spool);
        let written = file.and_then(|file| write(&file, &spill));
        replication.primary().spilled(&spill, written.is_ok());
        if let Err(error) = written {
            log::warning(&format!(
                "The backlog stays in memory: cannot write its spool file: {error}"
            ));
            state.is_broken = true;
            return;
        }
    }
}

/// Drops the file when nothing is in it any more.
pub(super) fn look(shared: &Shared) {
    let replication = &shared.replication;
    let mut state = replication.backlog_file.state();
    let Some((of, _)) = state.file else {
        return;
    };
    let primary = replication.primary();
    let spool = primary.log().blocks().and_then(|blocks| blocks.spool());
    if spool != Some(of) {
        state.file = None;
    }
}
