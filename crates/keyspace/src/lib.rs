//! Databases: the hash table of keys, entries, expiry, eviction, memory accounting, stripe locks,
//! watched keys, and keyspace events as data.
//!
//! Must not know: commands, sockets, files, threads. A [`Unit`] holds stripes, by the protocol of [`lock`]; a [`View`]
//! is the access to their keys; [`upkeep`] and eviction are the work on keys behind the commands.

mod ahead;
mod entry;
mod eviction;
pub mod journal;
pub mod lock;
mod notify;
mod opened;
mod policy;
pub mod snapshot;
mod space;
mod survey;
mod unit;
pub mod upkeep;
mod view;
mod wait;
mod watch;

pub use ahead::{Ahead, Walk};
pub use entry::{Blob, Garbage, INLINE_BYTES_MAX, Owned, PACKED_BYTES_MAX, StringRef, ValueRef};
pub use eviction::Evicted;
pub use notify::{Classes, EXPIRED, Event, Events};
pub use policy::{Clock, Policy};
pub use space::{
    Flushed, Keyspace, LabelledKey, Local, MEMORY_STEP_BYTES, Matcher, Place, SLOT_KEYS_MAX, SLOTS,
    Settings, WantedLabel,
};
pub use survey::{SIZE_CLASSES, Sizes, ValueSizes};
pub use unit::Unit;
pub use view::{Busy, Database, Expiry, Found, Hint, Missing, NoDraw, Trace, View, WrongType};
pub use wait::{End, Ready, WaitSlot, Waiter, Wanted};
pub use watch::WatchFlag;
