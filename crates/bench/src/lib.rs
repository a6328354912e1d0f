//! Workloads, load engine, measurement, reports. Knows nothing of the keyspace or the server.
