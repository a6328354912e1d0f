//! The reports of `redline check-aof` and `redline check-rdb`, worded as those of redis-check-aof and redis-check-rdb.
//!
//! Must not know: servers, settings.
