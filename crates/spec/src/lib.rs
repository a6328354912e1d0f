//! The command table. Rows only: no handlers, no storage, no sockets.
