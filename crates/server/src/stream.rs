//! The journal's stream in the server: one receiver, which gives each round to the blocks of replicas and to the append-only
//! file.
//!
//! It is attached while one of both wants it. Only who holds every stripe attaches, cuts or detaches it, so that none of
//! these meets another.
//!
//! Must not know: what either does with it.

use std::sync::{Arc, Weak, atomic::Ordering};

use redline_keyspace::{
    Unit,
    journal::{Piece, Position, Stream},
};

use crate::{persistence::append, replication, shared::Shared};

struct ServerStream {
    shared: Weak<Shared>,
}

/// Begins a part of the stream here: attaches it, if there is none. Returns the number of the last record before it. The
/// unit holds every stripe.
pub(crate) fn begin_part(shared: &Arc<Shared>, unit: &mut Unit<'_>) -> u64 {
    if shared.keyspace.journal().is_attached() {
        return unit.cut_journal();
    }
    shared.replication.has_stream.store(true, Ordering::Release);
    let shared = Arc::downgrade(shared);
    unit.attach_stream(Box::new(ServerStream { shared }))
}

/// Ends the stream. The caller holds every stripe.
pub(crate) fn end(shared: &Shared) {
    shared
        .replication
        .has_stream
        .store(false, Ordering::Release);
    shared.keyspace.journal().detach();
}

/// Returns true if nobody wants the stream that there is. (That of a test is wanted.)
pub(crate) fn is_idle(shared: &Shared) -> bool {
    shared.replication.has_stream.load(Ordering::Acquire)
        && !shared.persistence.append.is_on()
        && !shared.replication.is_kept()
}

impl Stream for ServerStream {
    fn write(&mut self, pieces: &[Piece<'_>], end: Position) {
        if let Some(shared) = self.shared.upgrade() {
            // A disk may be slow.
            replication::write(&shared, pieces, end.number);
            append::write(&shared, pieces, end.number);
        }
    }

    fn cut(&mut self, at: Position) {
        if let Some(shared) = self.shared.upgrade() {
            replication::cut(&shared, at.number);
            append::cut(&shared, at.number);
        }
    }
}
