//! The Lua host. Calls commands back through a trait; knows nothing of the keyspace or of sockets.
