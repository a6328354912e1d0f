//! The data plane: one module per command group, one plain function per command.
//!
//! A handler gets the unit's [`Ctx`] (its view of the keyspace, limits), the arguments and a reply writer, and nothing
//! else: no clock, no thread, no socket, no session. The caller holds the stripes of the command's keys. Start with
//! `string`; every module follows its form.
//!
//! Must not know: threads, sockets, files, sessions, how a unit acquires its stripes.
#![forbid(unsafe_code)]
// `[count]` in the form of a command is no link.
#![allow(rustdoc::broken_intra_doc_links)]

mod bitmap;
mod block;
mod bloom;
mod count_min;
mod cuckoo;
mod dump;
mod element;
mod error;
mod ex_hash;
mod ex_options;
mod ex_string;
mod ex_zset;
mod generic;
mod geo;
mod gis;
mod hash;
mod hash_expiry;
mod hyperloglog;
mod json;
mod list;
mod multi_pop;
mod roaring_bitmap;
mod scan;
mod set;
mod sort;
mod stream;
mod string;
mod t_digest;
#[cfg(test)]
mod testing;
mod time_series;
mod top_k;
mod vector_set;
mod words;
mod xgroup;
mod xinfo;
mod xread;
mod zset;

use redline_keyspace::{View, Waiter, journal::Word};
use redline_resp::{Args, Reply};
use redline_spec::{self as spec, CommandId, Propagate};

pub use block::{Block, wait_ms};
pub use dump::object_of;
pub use error::{Error, Failure, Stop};
pub use words::{FromWord, Words};

/// The context of a handler.
pub struct Ctx<'a> {
    /// View of the keys: reads, writes, reports of changes.
    pub keys: View<'a>,
    /// Length of the longest string that a command may build (`proto-max-bulk-len`).
    pub bulk_bytes_max: u64,
    /// True if a script calls: results without an order then get one.
    pub in_script: bool,
    /// True if the caller may read keys that are known only during the run.
    pub reads_every_key: bool,
    /// Waiter of the client that is served by this run, if it was blocked: see [`Block`].
    pub waiter: Option<&'a Waiter>,
}

/// Function that runs one command. On an error reply the caller discards the reply written so far and renders the error
/// instead; on a stop it does what [`Stop`] says.
pub type Handler = fn(&mut Ctx<'_>, Args<'_>, &mut Reply<'_>) -> Result<(), Failure>;

macro_rules! handlers {
    ($(($id:ident, $module:ident :: $handler:ident),)*) => {{
        let mut table: [Option<Handler>; CommandId::COUNT] = [None; CommandId::COUNT];
        $(table[CommandId::$id as usize] = Some($module::$handler as Handler);)*
        table
    }};
}

static HANDLERS: [Option<Handler>; CommandId::COUNT] =
    redline_spec::for_each_data_command!(handlers);

/// Records in the journal the effect of the command that has just run, as its row says: the call itself, or the
/// commands that its handler reported. Called after the handler, if the journal has a reader.
#[cold]
pub fn propagate(keys: &mut View<'_>, id: CommandId, args: Args<'_>) {
    let replaces = match spec::gate(id).propagate {
        Propagate::None => return,
        Propagate::Verbatim => false,
        Propagate::Effect => true,
    };
    if keys.changes() > 0 {
        let words = (0..args.len()).map(|index| word(args, index));
        keys.propagate_call(replaces, args.frame(), words);
    }
}

/// Returns an argument as a word of a journalled command.
pub(crate) fn word(args: Args<'_>, index: usize) -> Word<'_> {
    match args.blob(index) {
        Some(blob) => Word::Blob(blob),
        None => Word::Bytes(args.get(index).expect("an index of the call")),
    }
}

/// Returns the handler of a command of the data plane; `None` for commands of other planes.
#[inline]
pub fn handler(id: CommandId) -> Option<Handler> {
    HANDLERS[id as usize]
}
