//! Memory arenas and the hash table that the keyspace and large collections share. Knows no keys, types or clients.
