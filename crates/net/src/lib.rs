//! The event loop: poller, listeners, streams, buffers, timers, cross-thread mailbox, and the few calls of the
//! operating system around them (clock, CPUs, threads, limits, signals, process figures, services, syslog, standard
//! streams), and TLS. Linux only.
//!
//! It moves bytes. It must not know RESP, commands, keys or configuration files (certificates it reads itself).
//!
//! # A loop that uses it
//!
//! Each thread owns one [`Poller`], its streams, its [`Timers`], its [`BufferPool`] and the receiving end of its
//! [`Mailbox`]. One turn of its loop is:
//!
//! 1. [`Mailbox::prepare_to_sleep`], then [`Poller::poll`]: until the next deadline of the timers, or not at all if
//!    messages are waiting;
//! 2. for each event, read until [`Read::Data`] says that the socket is drained, and answer what was asked;
//! 3. [`flush`] what was answered, asking for write readiness only where the peer does not keep up;
//! 4. drain the mailbox, and let the timers fire.

mod address;
mod alarm;
mod buffer_pool;
pub mod clock;
pub mod console;
pub mod cpu;
mod gathering;
pub mod http;
pub mod limits;
mod listener;
pub mod log_line;
mod mailbox;
mod pacing;
mod pipe;
mod poller;
pub mod process;
pub mod service;
pub mod signals;
mod stream;
pub mod supervisor;
mod sync;
pub mod syslog;
pub mod thread;
mod timers;
pub mod tls;

pub use address::{Address, Endpoint, NetError, error_text};
pub use alarm::Alarm;
pub use buffer_pool::{BufferPool, BufferPoolLimits};
pub use gathering::{Gathering, Stretch};
pub use listener::{Listener, UnixAccess, is_out_of_descriptors};
pub use mailbox::{Mailbox, Sender};
pub use pipe::Pipe;
pub use poller::{Event, Interest, Poller, Waker};
pub use signals::{Signal, Signals};
pub use stream::{
    Flush, PeerAddr, Read, SLICES_MAX, Shutdown, Stream, connect, connect_blocking,
    connect_endpoint, flush,
};
pub use timers::{TimerId, Timers};
