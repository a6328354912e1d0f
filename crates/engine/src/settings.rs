//! The settings of commands: one plain structure, published whole.
//!
//! An executor that sees a new epoch takes the settings over before its next command. Must not know: how parameters are
//! read and set, where settings come from.

use std::sync::{
    Arc, Mutex,
    atomic::{AtomicU64, Ordering},
};

use redline_acl::{Dialect, Users};
use redline_keyspace::{Classes, Policy};
use redline_settings::{
    Codec, choices, settings,
    value::{INT_MAX, Refusal, SECONDS, SWITCH, Syntax, TEXT, Value, int, memory, size, unsigned},
};
use redline_types::{
    Limits,
    limits::Rate,
    series::{CHUNK_BYTES_MAX, CHUNK_BYTES_MIN, Policy as DuplicatePolicy},
};

use crate::commandlog::{Kind, Threshold};

/// Commands that are refused while a script is over its threshold.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BusyScope {
    /// Those that need the script's stripes.
    Keys,
    /// All but those that are allowed then.
    All,
}

choices! {
    BusyScope: BusyScope { "keys" => Keys, "all" => All }
}

settings! {
    /// The settings of an engine. Defaults are those of Redis 8.2.3.
    #[derive(Clone, Debug)]
    pub struct Settings {
        /// The users.
        acl: Arc<Users> = Arc::new(Users::new(&Dialect {
            open_channels: false,
            split: redline_resp::split_words,
        }));
        /// Thresholds of the compact encodings.
        limits: Limits = Limits::default();
    }

    /// Limits of requests.
    REQUESTS = {
        bulk_bytes_max: u64 = ("proto-max-bulk-len", Live, memory(1 << 20), "536870912", "Maximum length of an argument, and of a string that a command builds.");
    }

    /// Information that clients get of the server.
    GREETING = {
        availability_zone: String = ("availability-zone", Live, Syntax::Bytes, "", "Availability zone of the server, shown in INFO and HELLO unless empty.");
        extended_redis_compatibility: bool = ("extended-redis-compatibility", Live, SWITCH, "yes", "Report Redis in HELLO and in INFO's redis_mode; no: HELLO reports this program and its version, and the mode is server_mode, as in Valkey.");
    }

    /// The log of denied accesses.
    REFUSALS = {
        acl_log_entries_max: usize = ("acllog-max-len", Live, int(0, i64::MAX), "128", "Maximum length of ACL LOG.");
    }

    /// The limit on memory.
    MEMORY = {
        maxmemory_bytes: u64 = ("maxmemory", Live, size(0), "0", "Memory limit for keys and values; 0: no limit.");
        maxmemory_policy: Policy as PolicyName = ("maxmemory-policy", Live, Syntax::Choice(PolicyName::NAMES), "noeviction", "Eviction policy when maxmemory is reached.");
    }

    /// The access counter of the LFU policies.
    LFU = {
        _ = ("maxmemory-eviction-tenacity", Inert, int(0, 100), "10", "How long one command may evict: here at most 64 keys.");
        lfu_log_factor: u32 = ("lfu-log-factor", Live, SECONDS, "10", "Logarithm factor of the LFU access counter; the higher, the slower it grows.");
        lfu_decay_minutes: u32 = ("lfu-decay-time", Live, SECONDS, "1", "Minutes after which the LFU access counter is lowered; 0: never.");
    }

    /// Thresholds of the compact encodings.
    DATA_TYPES = {
        [limits.hash_max_listpack_entries]: usize = ("hash-max-listpack-entries", Live, unsigned(0, i64::MAX), "512", "Fields up to which a hash stays packed.").alias("hash-max-ziplist-entries");
        [limits.hash_max_listpack_value]: usize = ("hash-max-listpack-value", Live, size(0), "64", "Length of a field or value up to which a hash stays packed.").alias("hash-max-ziplist-value");
        [limits.list_max_listpack_size]: i32 = ("list-max-listpack-size", Live, int(i32::MIN as i64, INT_MAX), "-2", "Maximum size of a list's nodes: elements, or -1 to -5 for 4 to 64 KiB.").alias("list-max-ziplist-size");
        _ = ("list-compress-depth", Inert, SECONDS, "0", "Nodes at the ends of a list that are not compressed: none ever is.");
        [limits.set_max_intset_entries]: usize = ("set-max-intset-entries", Live, unsigned(0, i64::MAX), "512", "Members up to which a set of integers stays an array.");
        [limits.set_max_listpack_entries]: usize = ("set-max-listpack-entries", Live, unsigned(0, i64::MAX), "128", "Members up to which a set stays packed.");
        [limits.set_max_listpack_value]: usize = ("set-max-listpack-value", Live, unsigned(0, i64::MAX), "64", "Length of a member up to which a set stays packed.");
        [limits.zset_max_listpack_entries]: usize = ("zset-max-listpack-entries", Live, unsigned(0, i64::MAX), "128", "Members up to which a sorted set stays packed.").alias("zset-max-ziplist-entries");
        [limits.zset_max_listpack_value]: usize = ("zset-max-listpack-value", Live, size(0), "64", "Length of a member up to which a sorted set stays packed.").alias("zset-max-ziplist-value");
        [limits.stream_node_max_bytes]: usize = ("stream-node-max-bytes", Live, size(0), "4096", "Maximum size of a stream's node; 0: no limit.");
        [limits.stream_node_max_entries]: usize = ("stream-node-max-entries", Live, int(0, i64::MAX), "100", "Maximum entries in a stream's node; 0: no limit.");
        [limits.hll_sparse_max_bytes]: usize = ("hll-sparse-max-bytes", Live, size(0), "3000", "Bytes up to which a HyperLogLog stays sparse.");
        _ = ("vset-force-single-threaded-execution", Inert, SWITCH, "no", "Run vector set commands on one thread: the worker that has read one always runs it.");
    }

    /// Filters that no command describes.
    FILTERS = {
        [limits.bf_error_rate]: Rate = ("bf-error-rate", Live, TEXT, "0.01", "Rate of errors of a Bloom filter that BF.ADD makes; above 0.25 as 0.25.");
        [limits.bf_initial_size]: u64 = ("bf-initial-size", Live, int(1, 1 << 30), "100", "Items for which a Bloom filter has room that BF.ADD makes.");
        [limits.bf_expansion_factor]: u32 = ("bf-expansion-factor", Live, int(0, 32768), "2", "Factor by which the layers of Bloom filters grow; 0: they do not.");
        [limits.cf_bucket_size]: u32 = ("cf-bucket-size", Live, int(1, 255), "2", "Items in a bucket of a cuckoo filter.");
        [limits.cf_initial_size]: u64 = ("cf-initial-size", Live, int(4, 1 << 30), "1024", "Items for which a cuckoo filter has room that CF.ADD makes.");
        [limits.cf_max_iterations]: u32 = ("cf-max-iterations", Live, int(1, 65535), "20", "Items that a cuckoo filter may move for one that is added.");
        [limits.cf_expansion_factor]: u32 = ("cf-expansion-factor", Live, int(0, 32768), "1", "Factor by which the layers of cuckoo filters grow; 0: they do not.");
        [limits.cf_max_expansions]: usize = ("cf-max-expansions", Live, int(1, 65536), "32", "Layers of a cuckoo filter with which it takes no more items.");
    }

    /// New time series.
    TIME_SERIES = {
        [limits.series.chunk_bytes]: u32 as ChunkBytes = ("ts-chunk-size-bytes", Live, int(CHUNK_BYTES_MIN as i64, CHUNK_BYTES_MAX as i64), "4096", "Bytes of a chunk of a new time series: a multiple of 8.");
        [limits.series.policy]: DuplicatePolicy as PolicyOfSeries = ("ts-duplicate-policy", Live, Syntax::Choice(PolicyOfSeries::NAMES), "block", "What becomes of a second sample for a time, in a new time series.");
        [limits.series.compressed]: bool as Encoding = ("ts-encoding", Live, Syntax::Choice(Encoding::NAMES), "compressed", "Form of the chunks of a new time series.");
        [limits.series.ignore_ms]: u64 = ("ts-ignore-max-time-diff", Live, int(0, i64::MAX), "0", "Milliseconds from the last sample of a new time series within which another one may be ignored.");
        [limits.series.ignore_difference]: f64 as Difference = ("ts-ignore-max-val-diff", Live, TEXT, "0", "Difference of values up to which such a sample is ignored.");
        [limits.series.retention_ms]: u64 = ("ts-retention-policy", Live, int(0, i64::MAX), "0", "Milliseconds before its last for which a new time series keeps samples; 0: all.");
        _ = ("ts-num-threads", Inert, int(1, 16), "3", "Threads for queries of several time series: they run on the worker that read the request.");
    }

    /// Scripts, events, logs and times of calls.
    CALLS = {
        busy_reply_threshold_ms: u64 = ("busy-reply-threshold", Live, int(0, i64::MAX), "5000", "Milliseconds after which a script counts as busy, and other clients get -BUSY; 0: never.").alias("lua-time-limit");
        busy_reply_scope: BusyScope = ("busy-reply-scope", Live, Syntax::Choice(BusyScope::NAMES), "keys", "Commands that get -BUSY while a script is busy: those that need keys that it holds, or, as in Redis, all but the few that are allowed then.");
        notify: Classes as EventLetters = ("notify-keyspace-events", Live, TEXT, "", "Keyspace events that are published, by letters, as K, E, g, $ and A; empty: none.");
        slow_log_from_us: i64 = ("slowlog-log-slower-than", Live, int(-1, i64::MAX), "10000", "Microseconds from which a call goes to the slow log; -1: none does. Below 1000 every call is timed by itself, which costs throughput.").alias("commandlog-execution-slower-than");
        slow_log_entries_max: usize = ("slowlog-max-len", Live, int(0, i64::MAX), "128", "Maximum length of the slow log.").alias("commandlog-slow-execution-max-len");
        large_request_log_from_bytes: i64 = ("commandlog-request-larger-than", Live, int(-1, i64::MAX), "1048576", "Bytes from which a request is logged; -1: none is.");
        large_request_log_entries_max: usize = ("commandlog-large-request-max-len", Live, int(0, i64::MAX), "128", "Maximum length of the log of large requests.");
        large_reply_log_from_bytes: i64 = ("commandlog-reply-larger-than", Live, int(-1, i64::MAX), "1048576", "Bytes from which a call is logged for its reply; -1: none is.");
        large_reply_log_entries_max: usize = ("commandlog-large-reply-max-len", Live, int(0, i64::MAX), "128", "Maximum length of the log of large replies.");
        latency_monitor_threshold_ms: u64 = ("latency-monitor-threshold", Live, int(0, i64::MAX), "0", "Milliseconds from which an event goes to the latency monitor; 0: none does.");
        latency_tracking: bool = ("latency-tracking", Live, SWITCH, "yes", "Keep a distribution of each command's time.");
    }

    /// Client-side caching.
    TRACKING = {
        tracking_keys_max: usize = ("tracking-table-max-keys", Live, unsigned(0, i64::MAX), "1000000", "Maximum number of keys tracked for client-side caching; 0: no limit.");
    }

    /// Serialised values.
    PAYLOADS = {
        [limits.payload_compressed]: bool = ("rdbcompression", Live, SWITCH, "yes", "Compress long strings in snapshots and in payloads of DUMP.");
    }
}

impl Settings {
    /// Returns the threshold and length of a log of commands.
    pub fn command_log(&self, kind: Kind) -> Threshold {
        let (from, entries_max) = match kind {
            Kind::Slow => (self.slow_log_from_us, self.slow_log_entries_max),
            Kind::LargeRequest => (
                self.large_request_log_from_bytes,
                self.large_request_log_entries_max,
            ),
            Kind::LargeReply => (
                self.large_reply_log_from_bytes,
                self.large_reply_log_entries_max,
            ),
        };
        Threshold { from, entries_max }
    }
}

/// Syntax of `maxmemory-policy`: names.
struct PolicyName;

impl PolicyName {
    const NAMES: &[&str] = &{
        let mut names = [""; Policy::NAMES.len()];
        let mut at = 0;
        while at < names.len() {
            names[at] = Policy::NAMES[at].1;
            at += 1;
        }
        names
    };
}

impl Codec<Policy> for PolicyName {
    fn of(value: &Value) -> Result<Policy, Refusal> {
        Ok(Policy::NAMES[value.integer() as usize].0)
    }

    fn value(policy: &Policy) -> Value {
        let at = Policy::NAMES.iter().position(|(known, _)| known == policy);
        Value::Integer(at.unwrap_or_default() as i64)
    }
}

/// Syntax of `ts-duplicate-policy`: names.
struct PolicyOfSeries;

choices! {
    PolicyOfSeries: DuplicatePolicy {
        "block" => Block, "last" => Last, "first" => First, "min" => Min, "max" => Max, "sum" => Sum
    }
}

/// Syntax of `ts-chunk-size-bytes`.
struct ChunkBytes;

impl Codec<u32> for ChunkBytes {
    fn of(value: &Value) -> Result<u32, Refusal> {
        let bytes = value.integer() as u32;
        match bytes.is_multiple_of(8) {
            true => Ok(bytes),
            false => Err("argument must be a multiple of 8".into()),
        }
    }

    fn value(bytes: &u32) -> Value {
        Value::Integer((*bytes).into())
    }
}

/// Syntax of `ts-encoding`: true for compressed.
struct Encoding;

impl Encoding {
    const NAMES: &[&str] = &["compressed", "uncompressed"];
}

impl Codec<bool> for Encoding {
    fn of(value: &Value) -> Result<bool, Refusal> {
        Ok(value.integer() == 0)
    }

    fn value(compressed: &bool) -> Value {
        Value::Integer((!compressed).into())
    }
}

/// Syntax of `ts-ignore-max-val-diff`: a number that is not negative.
struct Difference;

impl Codec<f64> for Difference {
    fn of(value: &Value) -> Result<f64, Refusal> {
        let number = redline_types::number::parse_f64(value.bytes());
        let number = number.filter(|number| *number >= 0.0 && number.is_finite());
        Ok(number.ok_or("argument must be a number that is not negative")?)
    }

    fn value(difference: &f64) -> Value {
        Value::Text(difference.to_string().into_bytes())
    }
}

/// Syntax of classes of keyspace events: letters.
struct EventLetters;

impl Codec<Classes> for EventLetters {
    fn of(value: &Value) -> Result<Classes, Refusal> {
        const WRONG: &str = "Invalid event class character. Use 'Ag$lshzxeKEtmdn'.";
        let letters = std::str::from_utf8(value.bytes()).ok();
        Ok(letters.and_then(Classes::parse).ok_or(WRONG)?)
    }

    fn value(classes: &Classes) -> Value {
        Value::Text(classes.letters().into_bytes())
    }
}

/// The published settings and their epoch.
pub struct Published {
    current: Mutex<Arc<Settings>>,
    epoch: AtomicU64,
}

impl Published {
    /// Publishes the first settings, at epoch 1.
    pub fn new(settings: Settings) -> Published {
        Published {
            current: Mutex::new(Arc::new(settings)),
            epoch: AtomicU64::new(1),
        }
    }

    /// Returns the epoch, which moves with every change. Checked before every command: one load of a line that is
    /// shared by all threads and seldom written.
    #[inline]
    pub fn epoch(&self) -> u64 {
        self.epoch.load(Ordering::Acquire)
    }

    /// Returns the current settings.
    pub fn current(&self) -> Arc<Settings> {
        self.current
            .lock()
            .expect("no panic under the settings")
            .clone()
    }

    /// Makes every executor check again before its next command: other state that goes with the epoch has changed.
    pub fn move_epoch(&self) {
        self.epoch.fetch_add(1, Ordering::AcqRel);
    }

    /// Publishes new settings. When this returns, every command that begins later on any executor sees them.
    pub fn publish(&self, settings: Settings) {
        *self.current.lock().expect("no panic under the settings") = Arc::new(settings);
        self.move_epoch();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn defaults_are_those_of_the_crates_below() {
        let settings = Settings::default();
        assert_eq!(settings.limits, Limits::default());
        assert_eq!(
            settings.bulk_bytes_max,
            redline_resp::limits::BULK_BYTES_MAX
        );
    }
}
