//! The event loop: poller, listeners, streams, buffers, timers, cross-thread mailbox. Knows no RESP and no commands.
