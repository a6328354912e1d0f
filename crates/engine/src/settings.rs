//! The settings that commands go by: one plain structure, published whole.
//!
//! An executor that sees the epoch move takes the new one before its next command. Must not know: how a parameter is
//! written, where settings come from.

use std::sync::{
    Arc, Mutex,
    atomic::{AtomicU64, Ordering},
};

use redline_acl::{Dialect, Users};
use redline_keyspace::{Classes, Policy};
use redline_resp::limits;
use redline_types::Limits;

use crate::commandlog::Threshold;

/// Which commands are refused while a script is over its threshold.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BusyScope {
    /// Those that need what the script holds.
    Keys,
    /// All but those that are for such times.
    All,
}

/// The settings of an engine. Defaults are those of Redis 8.2.3.
#[derive(Clone, Debug)]
pub struct Settings {
    /// The users.
    pub acl: Arc<Users>,
    /// Entries that the log of refusals holds.
    pub acl_log_entries_max: usize,
    /// Availability zone that clients are told; empty: none.
    pub availability_zone: String,
    /// HELLO and INFO say Redis; otherwise they name this program.
    pub extended_redis_compatibility: bool,
    /// Longest argument: bytes.
    pub bulk_bytes_max: u64,
    /// Most keys that are remembered for clients that track them; 0: any number.
    pub tracking_keys_max: usize,
    /// Memory limit: bytes; 0: none.
    pub maxmemory_bytes: u64,
    /// Policy by which keys are evicted when it is reached.
    pub maxmemory_policy: Policy,
    /// LFU: how slowly the counter grows.
    pub lfu_log_factor: u32,
    /// LFU: minutes until the counter is lowered.
    pub lfu_decay_minutes: u32,
    /// Milliseconds after which a script is called busy; 0: never.
    pub busy_reply_threshold_ms: u64,
    /// Scope of the commands that are refused then.
    pub busy_reply_scope: BusyScope,
    /// Which keyspace events are published.
    pub notify: Classes,
    /// Thresholds of the compact encodings.
    pub limits: Limits,
    /// When a call gets into which log of commands, by the log's kind (`commandlog.rs`).
    pub command_logs: [Threshold; 3],
    /// Milliseconds from which the latency monitor keeps an event; 0: it is off.
    pub latency_monitor_threshold_ms: u64,
    /// Distributions of the commands' times are kept.
    pub latency_tracking: bool,
}

impl Default for Settings {
    fn default() -> Settings {
        Settings {
            acl: Arc::new(Users::new(&Dialect {
                open_channels: false,
                split: redline_resp::split_words,
            })),
            acl_log_entries_max: 128,
            availability_zone: String::new(),
            extended_redis_compatibility: true,
            bulk_bytes_max: limits::BULK_BYTES_MAX,
            tracking_keys_max: 1_000_000,
            maxmemory_bytes: 0,
            maxmemory_policy: Policy::NoEviction,
            lfu_log_factor: 10,
            lfu_decay_minutes: 1,
            busy_reply_threshold_ms: 5000,
            busy_reply_scope: BusyScope::Keys,
            notify: Classes::NONE,
            limits: Limits::default(),
            command_logs: [10_000, 1024 * 1024, 1024 * 1024].map(|from| Threshold {
                from,
                entries_max: 128,
            }),
            latency_monitor_threshold_ms: 0,
            latency_tracking: true,
        }
    }
}

/// The published settings and the epoch that says when they changed.
pub struct Published {
    current: Mutex<Arc<Settings>>,
    epoch: AtomicU64,
}

impl Published {
    /// The first settings, at epoch 1.
    pub fn new(settings: Settings) -> Published {
        Published {
            current: Mutex::new(Arc::new(settings)),
            epoch: AtomicU64::new(1),
        }
    }

    /// Moves with every change. Checked before every command: one load of a line that is shared by
    /// all threads and seldom written.
    #[inline]
    pub fn epoch(&self) -> u64 {
        self.epoch.load(Ordering::Acquire)
    }

    /// The settings now.
    pub fn current(&self) -> Arc<Settings> {
        self.current
            .lock()
            .expect("no panic under the settings")
            .clone()
    }

    /// Has every executor look again before its next command: something else that goes by the epoch has changed.
    pub fn move_epoch(&self) {
        self.epoch.fetch_add(1, Ordering::AcqRel);
    }

    /// Publishes other settings. When this returns, every command that begins later on any executor sees them.
    pub fn publish(&self, settings: Settings) {
        *self.current.lock().expect("no panic under the settings") = Arc::new(settings);
        self.move_epoch();
    }
}
