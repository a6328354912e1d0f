//! Integration tests of the event loop, in one binary. Those that change their process are in `tests/alone`.

mod gathering;
mod listeners;
mod mailboxes;
mod sockets;
mod streams;
