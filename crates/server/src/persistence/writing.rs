//! The thread that writes the files of snapshots, and beside each the one that spools what does not fit into memory.
//!
//! Must not know: when a snapshot is taken, and what for.

use std::{sync::mpsc, thread::JoinHandle};

use redline_persist::{Disk, RealDisk, snapshot::file};

use super::{Purpose, SaveJob, leftovers};
use crate::{log, replication::spool::SpoolDisk, shared::Shared, start};

/// Writes the files of snapshots, one after the other, until the senders are gone.
pub(crate) fn write_files(shared: &Shared, todo: &mpsc::Receiver<Option<SaveJob>>) {
    while let Ok(Some(job)) = todo.recv() {
        let for_replicas;
        let disk: &dyn Disk = match job.purpose {
            Purpose::Replicas(walk, ..) => {
                for_replicas = SpoolDisk::new(shared, walk);
                &for_replicas
            }
            _ => &RealDisk,
        };
        let spooling = spool(&job);
        let result = file::write_file(
            disk,
            &job.stream,
            &job.head,
            job.manner,
            &job.temporary,
            &job.path,
        );
        job.stream.close_spool();
        if let Some(spooling) = spooling {
            // A panic of it ends the process.
            let _ = spooling.join();
        }
        shared.persistence.ended(shared, &job, &result);
    }
}

/// Starts the thread that keeps what waits for the file within its limit. Without it all of that is in memory.
fn spool(job: &SaveJob) -> Option<JoinHandle<()>> {
    let stream = job.stream.clone();
    let path = leftovers::spool_path(&file::folder_of(&job.path), std::process::id());
    let started = start::spawn("spool", move || stream.run_spool(&RealDisk, &path));
    started
        .inspect_err(|error| {
            log::warning(&format!(
                "Snapshot without a spool file, its backlog stays in memory: {error}"
            ));
        })
        .ok()
}
