//! The data plane: one module per command group. Knows no threads, sockets or files.
