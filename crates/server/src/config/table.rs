//! The rows, by topic. Names, defaults and limits are those of Redis 8.2.3; `threads`, `balance-clients`,
//! `event-coalescing-us`, `busy-reply-scope`, `log-format`, `metrics-port` and `metrics-bind` are ours. What Valkey 9.1.2 knows besides is known here too.
//!
//! Must not know: how a row is read from a file or shown to a client.

use redline_keyspace::{Classes, Policy};
use redline_net::tls::ClientAuth;

use super::{
    Class::{self, Inert, InertFixed, Live, Start},
    Field, Parameter, Unbuilt,
    value::{Refusal, Syntax, Unit, Value, Words, c_string, parse_memory},
};
use crate::log::{LogFormat, LogTimestamp};
use crate::service::{OomScore, Supervision, is_title_template};
use crate::settings::{OutputLimit, Permission, Settings};
use redline_engine::commandlog::Kind;
use redline_engine::settings::BusyScope;

const fn row(
    name: &'static str,
    class: Class,
    syntax: Syntax,
    default: &'static str,
    doc: &'static str,
) -> Parameter {
    Parameter {
        name,
        alias: None,
        class,
        syntax,
        default,
        doc,
        protected: false,
        secret: false,
        adds_up: false,
        raised_to: None,
        field: None,
        unbuilt: None,
    }
}

impl Parameter {
    const fn alias(mut self, name: &'static str) -> Parameter {
        self.alias = Some(name);
        self
    }

    const fn protected(mut self) -> Parameter {
        self.protected = true;
        self
    }

    const fn secret(mut self) -> Parameter {
        self.secret = true;
        self
    }

    const fn adds_up(mut self) -> Parameter {
        self.adds_up = true;
        self
    }

    const fn raised_to(mut self, least: i64) -> Parameter {
        self.raised_to = Some(least);
        self
    }

    const fn kept_in(
        mut self,
        read: fn(&Settings) -> Value,
        write: fn(&mut Settings, &Value) -> Result<(), Refusal>,
    ) -> Parameter {
        self.field = Some(Field { read, write });
        self
    }

    const fn unbuilt(mut self, part: &'static str, harmless: fn(&[u8]) -> bool) -> Parameter {
        self.unbuilt = Some(Unbuilt { part, harmless });
        self
    }
}

/// A number in a field of the settings.
macro_rules! number {
    ($row:expr, $($field:tt).+) => {
        $row.kept_in(
            |s| Value::Integer(s.$($field).+ as i64),
            |s, v| {
                s.$($field).+ = v.integer() as _;
                Ok(())
            },
        )
    };
}

/// A path in a field of the settings; empty: none.
macro_rules! path {
    ($row:expr, $($field:tt).+) => {
        $row.kept_in(
            |s| Value::Text(s.$($field).+.clone().unwrap_or_default().into_bytes()),
            |s, v| {
                let path = utf8(v.bytes())?;
                s.$($field).+ = (!path.is_empty()).then_some(path);
                Ok(())
            },
        )
    };
}

/// A text in a field of the settings.
macro_rules! text {
    ($row:expr, $($field:tt).+) => {
        $row.kept_in(
            |s| Value::Text(s.$($field).+.clone().into_bytes()),
            |s, v| {
                s.$($field).+ = utf8(v.bytes())?;
                Ok(())
            },
        )
    };
}

/// A switch in a field of the settings.
macro_rules! switch {
    ($row:expr, $($field:tt).+) => {
        $row.kept_in(
            |s| Value::Switch(s.$($field).+),
            |s, v| {
                s.$($field).+ = v.is_on();
                Ok(())
            },
        )
    };
}

/// A value from which calls are logged.
macro_rules! threshold {
    ($row:expr, $kind:ident) => {
        $row.kept_in(
            |s| Value::Integer(s.command_logs[Kind::$kind as usize].from),
            |s, v| {
                s.command_logs[Kind::$kind as usize].from = v.integer();
                Ok(())
            },
        )
    };
}

/// The length of a log of calls.
macro_rules! entries {
    ($row:expr, $kind:ident) => {
        $row.kept_in(
            |s| Value::Integer(s.command_logs[Kind::$kind as usize].entries_max as i64),
            |s, v| {
                s.command_logs[Kind::$kind as usize].entries_max = v.integer() as usize;
                Ok(())
            },
        )
    };
}

/// Keeps a row's permission in a field of the settings.
macro_rules! permission {
    ($row:expr, $field:ident) => {
        $row.kept_in(
            |s| Value::Integer(s.$field as i64),
            |s, v| {
                s.$field = match v.integer() {
                    1 => Permission::Yes,
                    2 => Permission::Local,
                    _ => Permission::No,
                };
                Ok(())
            },
        )
    };
}

const SWITCH: Syntax = Syntax::Switch;
const TEXT: Syntax = Syntax::Text;
const WHO: Syntax = Syntax::Choice(&["no", "yes", "local"]);
const INT_MAX: i64 = i32::MAX as i64;
/// Each database has a place, used or not, and some work goes over all places.
const DATABASES_MAX: i64 = 1 << 20;
const PORT: Syntax = int(0, 65535);
const SECONDS: Syntax = int(0, INT_MAX);
const ENDING: Syntax = Syntax::Bits(&["default", "save", "nosave", "now", "force"]);

const fn int(min: i64, max: i64) -> Syntax {
    Syntax::Integer {
        min,
        max,
        unit: Unit::Plain,
        unsigned: false,
    }
}

const fn unsigned(min: i64, max: i64) -> Syntax {
    Syntax::Integer {
        min,
        max,
        unit: Unit::Plain,
        unsigned: true,
    }
}

/// Redis keeps some sizes as signed numbers and others not, which shows in what it says of values beyond 2^63.
const fn memory(min: i64) -> Syntax {
    Syntax::Integer {
        min,
        max: i64::MAX,
        unit: Unit::Memory,
        unsigned: false,
    }
}

/// See [`memory`].
const fn size(min: i64) -> Syntax {
    Syntax::Integer {
        min,
        max: i64::MAX,
        unit: Unit::Memory,
        unsigned: true,
    }
}

fn no(text: &[u8]) -> bool {
    text == b"no"
}

fn zero(text: &[u8]) -> bool {
    text == b"0"
}

fn empty(text: &[u8]) -> bool {
    text.is_empty()
}

/// Every parameter.
pub static ROWS: &[Parameter] = &[
    // ---- network ----
    row("bind", Live, Syntax::Words(addresses), "* -::*", "Addresses to listen on; * is every IPv4 address, ::* every IPv6 address, and a - before one lets it be missing.")
        .kept_in(
            |s| Value::Words(s.bind.iter().map(|a| a.clone().into_bytes()).collect()),
            |s, v| {
                s.bind = v.words().iter().map(|w| utf8(w)).collect::<Result<_, _>>()?;
                Ok(())
            },
        ),
    row("metrics-port", Start, PORT, "0", "Port at which metrics for Prometheus are read by HTTP, under /metrics; 0: none.").kept_in(
        |s| Value::Integer(s.metrics_port.unwrap_or(0).into()),
        |s, v| {
            s.metrics_port = u16::try_from(v.integer()).ok().filter(|port| *port != 0);
            Ok(())
        },
    ),
    row("metrics-bind", Start, Syntax::Words(addresses), "127.0.0.1 -::1", "Addresses for that, as in bind; whoever reaches them may read.")
        .kept_in(
            |s| Value::Words(s.metrics_bind.iter().map(|a| a.clone().into_bytes()).collect()),
            |s, v| {
                s.metrics_bind = v.words().iter().map(|w| utf8(w)).collect::<Result<_, _>>()?;
                Ok(())
            },
        ),
    row("port", Live, PORT, "6379", "TCP port; 0: none.").kept_in(
        |s| Value::Integer(s.port.unwrap_or(0).into()),
        |s, v| {
            s.port = u16::try_from(v.integer()).ok().filter(|port| *port != 0);
            Ok(())
        },
    ),
    row("protected-mode", Live, SWITCH, "yes", "Refuse clients from other hosts while no password is set.")
        .kept_in(
            |s| Value::Switch(s.protected_mode),
            |s, v| {
                s.protected_mode = v.is_on();
                Ok(())
            },
        ),
    number!(row("tcp-backlog", Start, SECONDS, "511", "Listen backlog: connections that may wait to be accepted."), tcp_backlog),
    number!(row("tcp-keepalive", Live, SECONDS, "300", "Seconds between TCP keepalive probes, for connections accepted from now on; 0: off."), tcp_keepalive_s),
    number!(row("timeout", Live, SECONDS, "0", "Seconds after which an idle client is closed; 0: never."), timeout_s),
    number!(row("maxclients", Live, unsigned(1, u32::MAX as i64), "10000", "Maximum number of connected clients."), maxclients),
    path!(row("unixsocket", Start, TEXT, "", "Path of a unix socket to listen on."), unixsocket),
    number!(row("unixsocketperm", Start, Syntax::Integer { min: 0, max: 0o777, unit: Unit::Octal, unsigned: false }, "0", "Permission bits of the unix socket, in octal; 0: what the umask leaves."), unixsocketperm),
    path!(row("unixsocketgroup", Start, TEXT, "", "Group that the unix socket belongs to; empty: the process's."), unixsocketgroup),
    number!(row("proto-max-bulk-len", Live, memory(1 << 20), "536870912", "Longest argument, and longest string that a command may build."), bulk_bytes_max),
    number!(row("client-query-buffer-limit", Live, size(1 << 20), "1073741824", "A client whose unread requests grow beyond this is closed."), query_buffer_bytes_max),
    row("client-output-buffer-limit", Live, Syntax::Words(output_limits), "normal 0 0 0 slave 268435456 67108864 60 pubsub 33554432 8388608 60", "For a class of clients: bytes of unread replies at which one is closed at once, bytes at which it is closed after a time, and that time in seconds; 0: no limit.")
        .kept_in(read_output_limits, write_output_limits),
    number!(row("maxmemory-clients", Live, Syntax::Integer { min: 0, max: i64::MAX, unit: Unit::MemoryOrPercent, unsigned: true }, "0", "Memory of all clients together, above which those with most are closed; in percent: of maxmemory; 0: any."), client_memory_max),
    row("max-new-connections-per-cycle", Inert, unsigned(1, 1000), "10", "Connections accepted in one turn: here, 100 of each listener."),
    row("max-new-tls-connections-per-cycle", Inert, unsigned(1, 1000), "1", "The same for TLS."),
    row("bind-source-addr", Inert, TEXT, "", "Address from which a replica calls its primary."),
    row("socket-mark-id", InertFixed, unsigned(0, u32::MAX as i64), "0", "Mark of listening sockets, for packet filters.")
        .unbuilt("marking of sockets", zero),
    row("mptcp", InertFixed, SWITCH, "no", "Listen by Multipath TCP.").unbuilt("Multipath TCP", no),
    row("rdma-port", Inert, PORT, "0", "Port for RDMA; 0: none.").unbuilt("RDMA", zero),
    row("rdma-bind", Inert, TEXT, "", "Addresses for RDMA.").unbuilt("RDMA", empty),
    row("rdma-rx-size", InertFixed, int(64 << 10, 16 << 20), "1048576", "Receive buffer of an RDMA connection in bytes."),
    row("rdma-completion-vector", InertFixed, int(-1, 1024), "-1", "Completion vector of RDMA; -1: a random one."),
    row("availability-zone", Live, Syntax::Bytes, "", "Availability zone of the server, shown in INFO and HELLO unless empty.").kept_in(
        |s| Value::Text(s.availability_zone.clone().into_bytes()),
        |s, v| {
            s.availability_zone = utf8(v.bytes())?;
            Ok(())
        },
    ),
    switch!(row("extended-redis-compatibility", Live, SWITCH, "yes", "Be Redis to clients in HELLO and in INFO's redis_mode; no: HELLO names this program and its version, and the mode is server_mode, as Valkey does."), extended_redis_compatibility),
    // ---- threads ----
    number!(row("threads", Start, int(0, 256), "0", "Worker threads; 0: one for every CPU that the process may use."), threads),
    number!(row("event-coalescing-us", Live, int(0, 1000), "50", "Microseconds for which a busy worker with many clients sleeps before it polls its sockets again, so that their requests arrive together; twice as long beside other workers, up to three times (or 300, if it is busy most of the time) where waking up costs much CPU time, as on many virtual machines; 0: off."), event_coalescing_us),
    switch!(row("balance-clients", Live, SWITCH, "yes", "Move clients between workers: one worker serves all while it can, and an overloaded worker gives some away."), balance_clients),
    path!(row("server-cpulist", Start, TEXT, "", "CPUs on which the workers run, as in 0-3,8.").alias("server_cpulist"), server_cpulist),
    row("io-threads", InertFixed, int(1, 128), "1", "Threads that help the one that runs commands: here every worker does both, see threads."),
    row("prefetch-batch-max-size", Inert, int(0, 128), "16", "Commands whose keys are fetched ahead together: here each group of clients decides."),
    row("bio-cpulist", InertFixed, TEXT, "", "CPUs of background threads.").alias("bio_cpulist"),
    row("aof-rewrite-cpulist", InertFixed, TEXT, "", "CPUs of the process that rewrites the append-only file.").alias("aof_rewrite_cpulist"),
    row("bgsave-cpulist", InertFixed, TEXT, "", "CPUs of the process that saves.").alias("bgsave_cpulist"),
    row("hz", Live, int(0, INT_MAX), "10", "Frequency of background work of each worker, in runs a second: 1 to 500.")
        .kept_in(
            |s| Value::Integer(s.hz.into()),
            |s, v| {
                s.hz = v.integer().clamp(1, 500) as u32;
                Ok(())
            },
        ),
    row("dynamic-hz", Inert, SWITCH, "yes", "Raise hz with the number of clients: here background work does not depend on it."),
    // ---- general ----
    number!(row("databases", Start, int(1, DATABASES_MAX), "16", "Number of databases."), databases),
    switch!(row("daemonize", Start, SWITCH, "no", "Run in the background, unless supervised."), service.daemonize),
    row("supervised", Start, Syntax::Choice(&["upstart", "systemd", "auto", "no"]), "no", "Notify a supervisor when the server is ready: no, upstart, systemd, or auto (by the environment).").kept_in(
        |s| Value::Integer(s.service.supervised as i64),
        |s, v| {
            s.service.supervised = match v.integer() {
                0 => Supervision::Upstart,
                1 => Supervision::Systemd,
                2 => Supervision::Auto,
                _ => Supervision::No,
            };
            Ok(())
        },
    ),
    path!(row("pidfile", Start, TEXT, "", "File to which the process id is written; in the background /var/run/redis.pid unless named."), pidfile),
    row("loglevel", Live, Syntax::Choice(&["debug", "verbose", "notice", "warning", "nothing"]), "notice", "Log level: debug, verbose, notice, warning or nothing.")
        .kept_in(
            |s| Value::Integer(s.log_level.into()),
            |s, v| {
                s.log_level = v.integer() as u8;
                Ok(())
            },
        ),
    path!(row("logfile", Start, TEXT, "", "Log file; empty: standard output."), logfile),
    row("log-format", Live, Syntax::Choice(&["text", "json", "logfmt", "legacy"]), "text", "Format of log lines: as Redis does (Valkey's name for that is legacy), as JSON objects, or as key=value.").kept_in(
        |s| Value::Integer(s.service.log_format as i64),
        |s, v| {
            s.service.log_format = match v.integer() {
                1 => LogFormat::Json,
                2 => LogFormat::Logfmt,
                _ => LogFormat::Text,
            };
            Ok(())
        },
    ),
    row("log-timestamp-format", Live, Syntax::Choice(&["legacy", "iso8601", "milliseconds"]), "legacy", "Format of times in the log: as their format has it (in text as Redis does, in the others by ISO 8601), by ISO 8601, or in milliseconds since 1970.").kept_in(
        |s| Value::Integer(s.service.log_timestamp as i64),
        |s, v| {
            s.service.log_timestamp = match v.integer() {
                1 => LogTimestamp::Iso8601,
                2 => LogTimestamp::Milliseconds,
                _ => LogTimestamp::Legacy,
            };
            Ok(())
        },
    ),
    switch!(row("syslog-enabled", Start, SWITCH, "no", "Log to syslog as well."), service.syslog),
    text!(row("syslog-ident", Start, TEXT, "redis", "Name in syslog."), service.syslog_ident),
    number!(row("syslog-facility", Start, Syntax::Choice(&["user", "local0", "local1", "local2", "local3", "local4", "local5", "local6", "local7"]), "local0", "Facility in syslog."), service.syslog_facility),
    row("crash-log-enabled", Inert, SWITCH, "yes", "Write a report when the process crashes."),
    row("crash-memcheck-enabled", Inert, SWITCH, "yes", "Test the memory after a crash."),
    switch!(row("always-show-logo", Start, SWITCH, "no", "Log mode, port and process id at the start, as Redis's logo does."), logo),
    row("hide-user-data-from-log", Inert, SWITCH, "no", "Keep keys and values out of the log: they never go there."),
    switch!(row("set-proc-title", Start, SWITCH, "yes", "Set the process title, as far as the command line had room."), service.title),
    row("proc-title-template", Live, TEXT, "{title} {listen-addr} {server-mode}", "Template of the process title; also {port}, {tls-port}, {unixsocket} and {config-file}.").kept_in(
        |s| Value::Text(s.service.title_template.clone().into_bytes()),
        |s, v| {
            let template = utf8(v.bytes())?;
            if !is_title_template(&template) {
                return Err("template format is invalid or contains unknown variables".into());
            }
            s.service.title_template = template;
            Ok(())
        },
    ),
    row("locale-collate", Inert, Syntax::Checked(locale), "", "Locale in which strings are compared."),
    row("ignore-warnings", Inert, TEXT, "", "Warnings about the system that do not stop the start."),
    row("disable-thp", InertFixed, SWITCH, "yes", "Switch huge pages off for the process: here entries live in huge pages on purpose."),
    row("oom-score-adj", Live, Syntax::Choice(&["no", "yes", "relative", "absolute"]), "no", "Set the score by which the kernel's OOM killer chooses processes; relative (or yes): added to the score at the start.").kept_in(
        |s| Value::Integer(s.service.oom_score as i64),
        |s, v| {
            s.service.oom_score = match v.integer() {
                1 => OomScore::Yes,
                2 => OomScore::Relative,
                3 => OomScore::Absolute,
                _ => OomScore::No,
            };
            Ok(())
        },
    ),
    row("oom-score-adj-values", Live, Syntax::Words(oom_scores), "0 200 800", "OOM scores of a primary, a replica and a background process; the first is used.").kept_in(
        |s| Value::Words(s.service.oom_scores.map(|n| n.to_string().into_bytes()).into()),
        |s, v| {
            for (score, word) in s.service.oom_scores.iter_mut().zip(v.words()) {
                *score = number(word).unwrap_or(0) as i32;
            }
            Ok(())
        },
    ),
    row("shutdown-timeout", Inert, SECONDS, "10", "Seconds that a shutdown waits for replicas."),
    row("shutdown-on-sigint", Inert, ENDING, "default", "How SIGINT ends the server.").unbuilt("snapshots", |t| !saves(t)),
    row("shutdown-on-sigterm", Inert, ENDING, "default", "How SIGTERM ends the server.").unbuilt("snapshots", |t| !saves(t)),
    row("dir", Live, TEXT, "", "Working directory.").protected().kept_in(
        |s| {
            use std::os::unix::ffi::OsStringExt;
            let dir = s.dir.clone().or_else(|| std::env::current_dir().ok()).unwrap_or_default();
            Value::Text(dir.into_os_string().into_vec())
        },
        |s, v| {
            use std::os::unix::ffi::OsStrExt;
            s.dir = Some(std::ffi::OsStr::from_bytes(v.bytes()).into());
            Ok(())
        },
    ),
    permission!(row("enable-protected-configs", Start, WHO, "no", "Who may change dir and dbfilename."), enable_protected_configs),
    permission!(row("enable-debug-command", Start, WHO, "no", "Who may call DEBUG."), enable_debug_command),
    row("enable-module-command", InertFixed, WHO, "no", "Who may call MODULE: there are no modules."),
    // ---- security ----
    row("requirepass", Live, Syntax::Bytes, "", "Password that clients must give with AUTH; empty: none.").secret().kept_in(
        |s| Value::Text(s.requirepass.clone().unwrap_or_default()),
        |s, v| {
            s.requirepass = (!v.bytes().is_empty()).then(|| v.bytes().to_vec());
            s.apply_requirepass();
            Ok(())
        },
    ),
    path!(row("aclfile", Start, TEXT, "", "File that defines the users, for ACL LOAD and ACL SAVE; empty: none."), aclfile),
    row("acl-pubsub-default", Live, Syntax::Choice(&["allchannels", "resetchannels"]), "resetchannels", "Channels that a new user may use: all, or none.").kept_in(
        |s| Value::Integer((!s.acl_open_channels).into()),
        |s, v| {
            s.acl_open_channels = v.integer() == 0;
            Ok(())
        },
    ),
    number!(row("acllog-max-len", Live, int(0, i64::MAX), "128", "Entries that the log of refusals holds."), acl_log_entries_max),
    // ---- memory ----
    number!(row("maxmemory", Live, size(0), "0", "Memory that keys and values may take; 0: any."), maxmemory_bytes),
    row("maxmemory-policy", Live, Syntax::Choice(&["volatile-lru", "volatile-lfu", "volatile-random", "volatile-ttl", "allkeys-lru", "allkeys-lfu", "allkeys-random", "noeviction"]), "noeviction", "Which keys go when maxmemory is reached.")
        .kept_in(
            |s| {
                let policies = Policy::NAMES.iter();
                let index = policies.map(|(policy, _)| *policy).position(|p| p == s.maxmemory_policy);
                Value::Integer(index.unwrap_or_default() as i64)
            },
            |s, v| {
                s.maxmemory_policy = Policy::NAMES[v.integer() as usize].0;
                Ok(())
            },
        ),
    number!(row("maxmemory-samples", Live, int(1, 64), "5", "Keys that are looked at to find one to evict."), maxmemory_samples),
    row("maxmemory-eviction-tenacity", Inert, int(0, 100), "10", "How long one command may evict: here at most 64 keys."),
    number!(row("lfu-log-factor", Live, SECONDS, "10", "How slowly the access counter of the LFU policies grows."), lfu_log_factor),
    number!(row("lfu-decay-time", Live, SECONDS, "1", "Minutes after which the access counter is lowered; 0: never."), lfu_decay_minutes),
    number!(row("active-expire-effort", Live, int(1, 10), "1", "How much time goes into finding expired keys."), active_expire_effort),
    row("lazyfree-lazy-eviction", Inert, SWITCH, "no", "Free evicted values in the background: large ones always are."),
    row("lazyfree-lazy-expire", Inert, SWITCH, "no", "Free expired values in the background: large ones always are."),
    row("lazyfree-lazy-server-del", Inert, SWITCH, "no", "Free overwritten values in the background: large ones always are."),
    row("lazyfree-lazy-user-del", Inert, SWITCH, "no", "Make DEL behave as UNLINK: large values are always freed in the background."),
    row("lazyfree-lazy-user-flush", Inert, SWITCH, "no", "Free flushed databases in the background: they always are."),
    row("activedefrag", Inert, SWITCH, "no", "Move values together when memory lies scattered: that is always done."),
    row("active-defrag-cycle-min", Inert, int(1, 99), "1", "Least share of the CPU for that."),
    row("active-defrag-cycle-max", Inert, int(1, 99), "25", "Greatest share of the CPU for that."),
    row("active-defrag-cycle-us", Inert, int(0, 100_000), "500", "Length of a slice of that work in microseconds: here 1000."),
    row("active-defrag-ignore-bytes", Inert, size(1), "104857600", "Waste that is put up with."),
    row("active-defrag-max-scan-fields", Inert, int(1, i64::MAX), "1000", "Size of a collection that is walked in one go."),
    row("active-defrag-threshold-lower", Inert, int(0, 1000), "10", "Percentage of waste at which the work begins."),
    row("active-defrag-threshold-upper", Inert, int(0, 1000), "100", "Percentage of waste at which it works hardest."),
    row("hash-seed", InertFixed, TEXT, "", "Seed of the hash function, for one order of SCAN: here it is always drawn."),
    row("import-mode", Inert, SWITCH, "no", "Let keys be imported: nothing expires and nothing is evicted.").unbuilt("import mode", no),
    row("activerehashing", Inert, SWITCH, "yes", "Grow tables in quiet moments: here they grow as they fill."),
    row("jemalloc-bg-thread", Inert, SWITCH, "yes", "Let jemalloc clean up by itself: it is not used."),
    // ---- data types ----
    number!(row("hash-max-listpack-entries", Live, unsigned(0, i64::MAX), "512", "Fields up to which a hash stays packed.").alias("hash-max-ziplist-entries"), limits.hash_max_listpack_entries),
    number!(row("hash-max-listpack-value", Live, size(0), "64", "Length of a field or value up to which a hash stays packed.").alias("hash-max-ziplist-value"), limits.hash_max_listpack_value),
    number!(row("list-max-listpack-size", Live, int(i32::MIN as i64, INT_MAX), "-2", "Size of a list's nodes: elements, or -1 to -5 for 4 to 64 KiB.").alias("list-max-ziplist-size"), limits.list_max_listpack_size),
    row("list-compress-depth", Inert, SECONDS, "0", "Nodes at the ends of a list that are not compressed: none ever is."),
    number!(row("set-max-intset-entries", Live, unsigned(0, i64::MAX), "512", "Members up to which a set of integers stays an array."), limits.set_max_intset_entries),
    number!(row("set-max-listpack-entries", Live, unsigned(0, i64::MAX), "128", "Members up to which a set stays packed."), limits.set_max_listpack_entries),
    number!(row("set-max-listpack-value", Live, unsigned(0, i64::MAX), "64", "Length of a member up to which a set stays packed."), limits.set_max_listpack_value),
    number!(row("zset-max-listpack-entries", Live, unsigned(0, i64::MAX), "128", "Members up to which a sorted set stays packed.").alias("zset-max-ziplist-entries"), limits.zset_max_listpack_entries),
    number!(row("zset-max-listpack-value", Live, size(0), "64", "Length of a member up to which a sorted set stays packed.").alias("zset-max-ziplist-value"), limits.zset_max_listpack_value),
    number!(row("stream-node-max-bytes", Live, size(0), "4096", "Bytes in one node of a stream; 0: any."), limits.stream_node_max_bytes),
    number!(row("stream-node-max-entries", Live, int(0, i64::MAX), "100", "Entries in one node of a stream; 0: any."), limits.stream_node_max_entries),
    number!(row("hll-sparse-max-bytes", Live, size(0), "3000", "Bytes up to which a HyperLogLog stays sparse."), limits.hll_sparse_max_bytes),
    row("vset-force-single-threaded-execution", Inert, SWITCH, "no", "Run vector set commands on one thread."),
    // ---- scripts, events, statistics ----
    number!(row("busy-reply-threshold", Live, int(0, i64::MAX), "5000", "Milliseconds after which others are told that a script is busy; 0: never.").alias("lua-time-limit"), busy_reply_threshold_ms),
    row("busy-reply-scope", Live, Syntax::Choice(&["keys", "all"]), "keys", "Which commands are refused then: those that need what the script holds, or, as in Redis, all but the few that are for such times.").kept_in(
        |s| Value::Integer(s.busy_reply_scope as i64),
        |s, v| {
            s.busy_reply_scope = match v.integer() {
                1 => BusyScope::All,
                _ => BusyScope::Keys,
            };
            Ok(())
        },
    ),
    row("notify-keyspace-events", Live, TEXT, "", "Which events of keys are published: letters, as K, E, g, $ and A.")
        .kept_in(
            |s| Value::Text(s.notify.letters().into_bytes()),
            |s, v| {
                const WRONG: &str = "Invalid event class character. Use 'Ag$lshzxeKEtmdn'.";
                let letters = std::str::from_utf8(v.bytes()).ok();
                s.notify = letters.and_then(Classes::parse).ok_or(WRONG)?;
                Ok(())
            },
        ),
    threshold!(row("slowlog-log-slower-than", Live, int(-1, i64::MAX), "10000", "Microseconds from which a call goes to the slow log; -1: none does. Below 1000 every call is timed by itself, which costs throughput.").alias("commandlog-execution-slower-than"), Slow),
    entries!(row("slowlog-max-len", Live, int(0, i64::MAX), "128", "Calls in the slow log.").alias("commandlog-slow-execution-max-len"), Slow),
    threshold!(row("commandlog-request-larger-than", Live, int(-1, i64::MAX), "1048576", "Bytes from which a request is logged; -1: none is."), LargeRequest),
    entries!(row("commandlog-large-request-max-len", Live, int(0, i64::MAX), "128", "Calls in the log of large requests."), LargeRequest),
    threshold!(row("commandlog-reply-larger-than", Live, int(-1, i64::MAX), "1048576", "Bytes from which a call is logged for its reply; -1: none is."), LargeReply),
    entries!(row("commandlog-large-reply-max-len", Live, int(0, i64::MAX), "128", "Calls in the log of large replies."), LargeReply),
    number!(row("latency-monitor-threshold", Live, int(0, i64::MAX), "0", "Milliseconds from which an event goes to the latency monitor; 0: none does."), latency_monitor_threshold_ms),
    row("latency-tracking", Live, SWITCH, "yes", "Keep a distribution of each command's time.").kept_in(
        |s| Value::Switch(s.latency_tracking),
        |s, v| {
            s.latency_tracking = v.is_on();
            Ok(())
        },
    ),
    row("latency-tracking-info-percentiles", Live, Syntax::Words(percentiles), "50 99 99.9", "Percentiles that INFO latencystats shows.").kept_in(
        |s| Value::Words(s.latency_percentiles.iter().map(|p| p.clone().into_bytes()).collect()),
        |s, v| {
            s.latency_percentiles = v.words().iter().map(|w| utf8(w)).collect::<Result<_, _>>()?;
            Ok(())
        },
    ),
    number!(row("tracking-table-max-keys", Live, unsigned(0, i64::MAX), "1000000", "Most keys that are remembered for client-side caching; 0: any number."), tracking_keys_max),
    // ---- snapshots ----
    row("save", Inert, Syntax::Words(save_points), "", "When to save: seconds and changes, in pairs; empty: never.").adds_up().unbuilt("snapshots", empty),
    row("dbfilename", Inert, TEXT, "dump.rdb", "Name of the snapshot.").protected(),
    switch!(row("rdbcompression", Live, SWITCH, "yes", "Compress long strings in payloads of DUMP."), limits.payload_compressed),
    row("rdbchecksum", InertFixed, SWITCH, "yes", "Write a checksum at the end of the snapshot."),
    row("rdb-version-check", Inert, Syntax::Choice(&["strict", "relaxed"]), "strict", "Refuse snapshots of later versions: RESTORE always refuses such values."),
    row("rdb-del-sync-files", Inert, SWITCH, "no", "Remove snapshots that were made for replicas."),
    row("rdb-save-incremental-fsync", Inert, SWITCH, "yes", "Flush the snapshot in steps."),
    row("stop-writes-on-bgsave-error", Inert, SWITCH, "yes", "Refuse writes while saving fails."),
    row("sanitize-dump-payload", Inert, Syntax::Choice(&["no", "yes", "clients"]), "no", "Check serialised values deeply."),
    // ---- append-only file ----
    row("appendonly", Inert, SWITCH, "no", "Log every write to a file.").unbuilt("the append-only file", no),
    row("appendfilename", InertFixed, TEXT, "appendonly.aof", "Beginning of the names of the append-only files."),
    row("appenddirname", InertFixed, TEXT, "appendonlydir", "Folder of the append-only files."),
    row("appendfsync", Inert, Syntax::Choice(&["everysec", "always", "no"]), "everysec", "When the append-only file is flushed."),
    row("no-appendfsync-on-rewrite", Inert, SWITCH, "no", "Do not flush it while it is rewritten."),
    row("auto-aof-rewrite-percentage", Inert, SECONDS, "100", "Growth at which it is rewritten."),
    row("auto-aof-rewrite-min-size", Inert, memory(0), "67108864", "Size below which it is not."),
    row("aof-load-truncated", Inert, SWITCH, "yes", "Load a file whose end is missing."),
    row("aof-use-rdb-preamble", Inert, SWITCH, "yes", "Begin a rewritten file with a snapshot."),
    row("aof-timestamp-enabled", Inert, SWITCH, "no", "Write times into the file."),
    row("aof-rewrite-incremental-fsync", Inert, SWITCH, "yes", "Flush a rewritten file in steps."),
    // ---- replication ----
    row("replicaof", InertFixed, Syntax::Words(primary), "", "The primary: host and port.").alias("slaveof").unbuilt("replication", empty),
    row("masterauth", Inert, Syntax::Bytes, "", "Password for the primary.").alias("primaryauth").secret(),
    row("masteruser", Inert, TEXT, "", "User at the primary.").alias("primaryuser").secret(),
    row("replica-serve-stale-data", Inert, SWITCH, "yes", "Answer reads while the primary is away.").alias("slave-serve-stale-data"),
    row("replica-read-only", Inert, SWITCH, "yes", "Refuse writes on a replica.").alias("slave-read-only"),
    row("replica-ignore-maxmemory", Inert, SWITCH, "yes", "Let the primary alone evict.").alias("slave-ignore-maxmemory"),
    row("replica-lazy-flush", Inert, SWITCH, "no", "Free old data in the background before a full load.").alias("slave-lazy-flush"),
    row("replica-priority", Inert, SECONDS, "100", "Who is promoted first.").alias("slave-priority"),
    row("replica-announced", Inert, SWITCH, "yes", "Be named to those who ask for replicas."),
    row("replica-announce-ip", Inert, TEXT, "", "Address that the primary tells others.").alias("slave-announce-ip"),
    row("replica-announce-port", Inert, PORT, "0", "Port that the primary tells others.").alias("slave-announce-port"),
    row("replica-ignore-disk-write-errors", Inert, SWITCH, "no", "Go on when the disk fails."),
    row("replica-full-sync-buffer-limit", Inert, memory(0), "0", "Bytes kept while a replica loads a snapshot."),
    row("repl-diskless-sync", Inert, SWITCH, "yes", "Send snapshots to replicas without a file."),
    row("repl-diskless-sync-delay", Inert, SECONDS, "5", "Seconds to wait for more replicas."),
    row("repl-diskless-sync-max-replicas", Inert, SECONDS, "0", "Replicas at which not to wait any longer."),
    row("repl-diskless-load", Inert, Syntax::Choice(&["disabled", "on-empty-db", "swapdb"]), "disabled", "Load a snapshot without a file."),
    row("dual-channel-replication-enabled", Inert, SWITCH, "no", "Send a snapshot and what changes meanwhile over two connections."),
    row("repl-mptcp", InertFixed, SWITCH, "no", "Multipath TCP towards the primary."),
    row("repl-ping-replica-period", Inert, int(1, INT_MAX), "10", "Seconds between signs of life.").alias("repl-ping-slave-period"),
    row("repl-timeout", Inert, int(1, INT_MAX), "60", "Seconds after which the other side is given up."),
    row("repl-disable-tcp-nodelay", Inert, SWITCH, "no", "Send fewer, larger packets to replicas."),
    row("repl-backlog-size", Inert, memory(1), "1048576", "Bytes kept for replicas that come back; less than 16kb means 16kb.").raised_to(16 << 10),
    row("repl-backlog-ttl", Inert, int(0, i64::MAX), "3600", "Seconds that they are kept without a replica."),
    row("min-replicas-to-write", Inert, SECONDS, "0", "Refuse writes with fewer replicas.").alias("min-slaves-to-write").unbuilt("replication", zero),
    row("min-replicas-max-lag", Inert, SECONDS, "10", "Seconds after which a replica does not count.").alias("min-slaves-max-lag"),
    row("propagation-error-behavior", Inert, Syntax::Choice(&["ignore", "panic", "panic-on-replicas"]), "ignore", "What to do when a replica refuses a write."),
    // ---- cluster ----
    row("cluster-enabled", InertFixed, SWITCH, "no", "Be a node of a cluster.").unbuilt("cluster mode", no),
    row("cluster-config-file", InertFixed, TEXT, "nodes.conf", "File in which the node keeps its state."),
    row("cluster-node-timeout", Inert, int(0, i64::MAX), "15000", "Milliseconds after which a silent node counts as failed."),
    row("cluster-port", InertFixed, PORT, "0", "Port of the cluster bus."),
    row("cluster-migration-barrier", Inert, SECONDS, "1", "Replicas that a primary keeps."),
    row("cluster-replica-validity-factor", Inert, SECONDS, "10", "How stale a replica may be to take over.").alias("cluster-slave-validity-factor"),
    row("cluster-replica-no-failover", Inert, SWITCH, "no", "Never take over.").alias("cluster-slave-no-failover"),
    row("cluster-allow-replica-migration", Inert, SWITCH, "yes", "Let replicas change their primary."),
    row("cluster-require-full-coverage", Inert, SWITCH, "yes", "Serve nothing while a slot has no node."),
    row("cluster-allow-reads-when-down", Inert, SWITCH, "no", "Serve reads while the cluster is down."),
    row("cluster-allow-pubsubshard-when-down", Inert, SWITCH, "yes", "Serve shard channels while the cluster is down."),
    row("cluster-link-sendbuf-limit", Inert, size(0), "0", "Bytes that may wait on the cluster bus."),
    row("cluster-announce-ip", Inert, TEXT, "", "Address that the node tells others."),
    row("cluster-announce-port", Inert, PORT, "0", "Port that the node tells others."),
    row("cluster-announce-tls-port", Inert, PORT, "0", "TLS port that the node tells others."),
    row("cluster-announce-bus-port", Inert, PORT, "0", "Bus port that the node tells others."),
    row("cluster-announce-hostname", Inert, Syntax::Checked(hostname), "", "Host name that the node tells others."),
    row("cluster-announce-human-nodename", Inert, Syntax::Checked(node_name), "", "Name of the node in logs."),
    row("cluster-announce-client-ipv4", Inert, Syntax::Checked(ipv4), "", "IPv4 address that clients are told."),
    row("cluster-announce-client-ipv6", Inert, Syntax::Checked(ipv6), "", "IPv6 address that clients are told."),
    row("cluster-announce-client-port", Inert, PORT, "0", "Port that clients are told."),
    row("cluster-announce-client-tls-port", Inert, PORT, "0", "TLS port that clients are told."),
    row("cluster-blacklist-ttl", Inert, int(i64::MIN, i64::MAX), "60", "Seconds for which a node that was forgotten stays so."),
    row("cluster-config-save-behavior", Inert, Syntax::Choice(&["sync", "best-effort"]), "sync", "What to do when the node's state cannot be saved."),
    row("cluster-databases", InertFixed, int(1, INT_MAX), "1", "Number of databases of a node."),
    row("cluster-manual-failover-timeout", Inert, int(1, INT_MAX), "5000", "Milliseconds that a failover on request may take."),
    row("cluster-slot-migration-log-max-len", Inert, int(0, i64::MAX), "1000", "Moves of slots in their log."),
    row("slot-migration-max-failover-repl-bytes", Inert, memory(-1), "0", "Bytes not yet sent at which a move of slots is completed; -1: any."),
    row("cluster-preferred-endpoint-type", Inert, Syntax::Choice(&["ip", "hostname", "unknown-endpoint"]), "ip", "What redirections name."),
    row("cluster-compatibility-sample-ratio", Inert, int(0, 100), "0", "Percentage of commands that are checked for what a cluster refuses."),
    row("cluster-slot-stats-enabled", Inert, SWITCH, "no", "Count by slot."),
    // ---- TLS ----
    row("tls-port", Live, PORT, "0", "Port with TLS, beside or instead of the one without; 0: none.").kept_in(
        |s| Value::Integer(s.tls.port.unwrap_or(0).into()),
        |s, v| {
            s.tls.port = u16::try_from(v.integer()).ok().filter(|port| *port != 0);
            Ok(())
        },
    ),
    row("tls-cluster", Inert, SWITCH, "no", "TLS on the cluster bus."),
    row("tls-replication", Inert, SWITCH, "no", "TLS towards the primary."),
    row("tls-auth-clients", Live, Syntax::Choice(&["no", "yes", "optional"]), "yes", "Ask clients for a certificate of an authority that is trusted; optional: only who has one.")
        .kept_in(
            |s| Value::Integer(s.tls.auth_clients as i64),
            |s, v| {
                s.tls.auth_clients = match v.integer() {
                    1 => ClientAuth::Required,
                    2 => ClientAuth::Optional,
                    _ => ClientAuth::No,
                };
                Ok(())
            },
        ),
    switch!(row("tls-prefer-server-ciphers", Live, SWITCH, "no", "Choose the cipher in the server's order, not the client's."), tls.prefer_server_ciphers),
    switch!(row("tls-session-caching", Live, SWITCH, "yes", "Let clients resume TLS sessions."), tls.session_caching),
    number!(row("tls-session-cache-size", Live, SECONDS, "20480", "TLS sessions that are kept for that; 0: as many as come, up to 1048576."), tls.session_cache_size),
    number!(row("tls-session-cache-timeout", Live, SECONDS, "300", "Seconds that they are kept."), tls.session_cache_timeout_s),
    path!(row("tls-cert-file", Live, TEXT, "", "The server's certificate and those behind it, in PEM form; setting it, also to what it is, reads all files of TLS again, as SIGHUP does."), tls.cert_file),
    path!(row("tls-key-file", Live, TEXT, "", "The key of that certificate, not encrypted."), tls.key_file),
    path!(row("tls-key-file-pass", Live, TEXT, "", "The key's password: keys that need one are refused.").secret(), tls.key_file_pass),
    path!(row("tls-client-cert-file", Live, TEXT, "", "Certificate for connections that the server makes: read and checked."), tls.client_cert_file),
    path!(row("tls-client-key-file", Live, TEXT, "", "The key of that certificate."), tls.client_key_file),
    path!(row("tls-client-key-file-pass", Live, TEXT, "", "The key's password: keys that need one are refused.").secret(), tls.client_key_file_pass),
    number!(row("tls-auto-reload-interval", Live, SECONDS, "0", "Seconds between looks at the files of certificates and keys, which are read again if one has changed; 0: never."), tls.auto_reload_interval_s),
    row("tls-auth-clients-user", Inert, Syntax::Choice(&["CN", "URI", "off"]), "off", "Field of a client's certificate that names its user.").unbuilt("authentication by certificates", |t| t == b"off"),
    row("tls-dh-params-file", Inert, TEXT, "", "Diffie-Hellman parameters: keys are exchanged over elliptic curves only."),
    path!(row("tls-ca-cert-file", Live, TEXT, "", "Certificates of the authorities that are trusted."), tls.ca_cert_file),
    path!(row("tls-ca-cert-dir", Live, TEXT, "", "Folder of files with such certificates."), tls.ca_cert_dir),
    text!(row("tls-protocols", Live, TEXT, "", "TLS versions, as in TLSv1.2 TLSv1.3; empty: both."), tls.protocols),
    text!(row("tls-ciphers", Live, TEXT, "", "Ciphers of TLS 1.2, as an OpenSSL cipher list; empty: all that are supported."), tls.ciphers),
    text!(row("tls-ciphersuites", Live, TEXT, "", "Ciphers of TLS 1.3 by name, with colons between; empty: all that are supported."), tls.ciphersuites),
];

/// Directives of a file that are no parameters, and the part that each needs.
pub const UNBUILT_DIRECTIVES: &[(&str, &str)] =
    &[("loadmodule", "modules"), ("sentinel", "Sentinel")];

/// Directives that Redis has retired and still lets pass.
pub const RETIRED_DIRECTIVES: &[&str] = &[
    "list-max-ziplist-entries",
    "list-max-ziplist-value",
    "lua-replicate-commands",
    "io-threads-do-reads",
];

fn utf8(bytes: &[u8]) -> Result<String, Refusal> {
    String::from_utf8(bytes.to_vec()).map_err(|_| "argument must be UTF-8".into())
}

fn owned(words: &Words<'_>) -> Vec<Vec<u8>> {
    words
        .iter()
        .filter(|word| !word.is_empty())
        .map(|word| word.to_vec())
        .collect()
}

/// As many as Redis takes; a worker could not tell more listeners from its clients.
fn addresses(words: &Words<'_>) -> Result<Vec<Vec<u8>>, Refusal> {
    const ADDRESSES_MAX: usize = 16;
    match words.len() > ADDRESSES_MAX {
        true => Err("Too many bind addresses specified.".into()),
        false => Ok(owned(words)),
    }
}

/// Host and port; `no one` is nobody.
fn primary(words: &Words<'_>) -> Result<Vec<Vec<u8>>, Refusal> {
    let is = |at: usize, word: &str| words[at].eq_ignore_ascii_case(word.as_bytes());
    match words.len() {
        2 if is(0, "no") && is(1, "one") => Ok(Vec::new()),
        2 => Ok(owned(words)),
        // As CONFIG GET shows that there is none.
        0 => Ok(Vec::new()),
        1 if words[0].is_empty() => Ok(Vec::new()),
        _ => Err("wrong number of arguments".into()),
    }
}

fn saves(text: &[u8]) -> bool {
    text.split(|byte| *byte == b' ').any(|word| word == b"save")
}

fn number(word: &[u8]) -> Option<i64> {
    redline_types::number::parse_i64(word)
}

/// A number where nothing counts as 0, as in Redis's lists.
fn number_or_nothing(word: &[u8]) -> Option<i64> {
    match word {
        b"" => Some(0),
        word => number(word),
    }
}

/// CONFIG SET with an empty text: no words.
fn is_nothing(words: &Words<'_>) -> bool {
    matches!(words, [] | [b""])
}

fn save_points(words: &Words<'_>) -> Result<Vec<Vec<u8>>, Refusal> {
    let invalid = || Err("Invalid save parameters".into());
    if is_nothing(words) {
        return Ok(Vec::new());
    }
    let mut points = Vec::new();
    for pair in words.chunks(2) {
        let [seconds, changes] = pair else {
            return invalid();
        };
        match (number_or_nothing(seconds), number_or_nothing(changes)) {
            (Some(seconds @ 1..), Some(changes @ 0..)) => points.extend([seconds, changes]),
            _ => return invalid(),
        }
    }
    Ok(points.iter().map(|n| n.to_string().into_bytes()).collect())
}

fn oom_scores(words: &Words<'_>) -> Result<Vec<Vec<u8>>, Refusal> {
    if words.len() != 3 {
        return Err("wrong number of arguments".into());
    }
    let scores = words
        .iter()
        .map(|word| number_or_nothing(word).filter(|n| (-2000..=2000).contains(n)));
    let scores: Option<Vec<i64>> = scores.collect();
    match scores {
        Some(scores) => Ok(scores.iter().map(|n| n.to_string().into_bytes()).collect()),
        None => {
            Err("Invalid oom-score-adj-values, elements must be between -2000 and 2000.".into())
        }
    }
}

fn percentiles(words: &Words<'_>) -> Result<Vec<Vec<u8>>, Refusal> {
    if is_nothing(words) {
        return Ok(Vec::new());
    }
    let mut shown = Vec::new();
    for word in words {
        match redline_types::number::parse_f64(word) {
            None => return Err("Invalid latency-tracking-info-percentiles parameters".into()),
            Some(n) if !(0.0..=100.0).contains(&n) => {
                return Err(
                    "latency-tracking-info-percentiles parameters should sit between [0.0,100.0]"
                        .into(),
                );
            }
            Some(n) => {
                let text = format!("{n:.6}");
                let text = text.trim_end_matches('0').trim_end_matches('.');
                shown.push(text.as_bytes().to_vec());
            }
        }
    }
    Ok(shown)
}

fn hostname(name: &[u8]) -> Result<&[u8], Refusal> {
    const BYTES_MAX: usize = 255;
    let name = c_string(name);
    let right = |byte: &u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'.');
    if name.len() > BYTES_MAX {
        return Err("Hostnames must be less than 256 characters".into());
    }
    match name.iter().all(right) {
        true => Ok(name),
        false => Err("Hostnames may only contain alphanumeric characters, hyphens or dots".into()),
    }
}

fn ipv4(address: &[u8]) -> Result<&[u8], Refusal> {
    addressed::<std::net::Ipv4Addr>(address).ok_or_else(|| "Invalid IPv4 address".into())
}

fn ipv6(address: &[u8]) -> Result<&[u8], Refusal> {
    addressed::<std::net::Ipv6Addr>(address).ok_or_else(|| "Invalid IPv6 address".into())
}

/// An address of that kind, or none.
fn addressed<A: std::str::FromStr>(address: &[u8]) -> Option<&[u8]> {
    let address = c_string(address);
    let is_one = || std::str::from_utf8(address).ok()?.parse::<A>().ok();
    (address.is_empty() || is_one().is_some()).then_some(address)
}

fn node_name(name: &[u8]) -> Result<&[u8], Refusal> {
    let wrong = |byte: &u8| NODE_NAME_REFUSED.contains(byte);
    match name.iter().any(wrong) {
        true => Err("Announced human node name contained invalid character".into()),
        false => Ok(name),
    }
}

const NODE_NAME_REFUSED: &[u8] = b"\0!#$%&()*+:;<>?@[]^{|}~";

/// The form of a locale's name; which ones a machine has is not asked, since none has an effect.
fn locale(name: &[u8]) -> Result<&[u8], Refusal> {
    let name = c_string(name);
    let (place, _) = split_at_any(name, b".@");
    let right = match split_at_any(place, b"_") {
        (b"" | b"C" | b"POSIX", b"") => true,
        (language, place) => {
            (2..=3).contains(&language.len())
                && language.iter().all(u8::is_ascii_lowercase)
                && (place.is_empty()
                    || place.len() == 3 && place[1..].iter().all(u8::is_ascii_uppercase))
        }
    };
    match right && (!place.is_empty() || name.is_empty()) {
        true => Ok(name),
        false => Err("Invalid locale name".into()),
    }
}

/// Returns the text before the first of these bytes, and the rest from there on.
fn split_at_any<'a>(text: &'a [u8], bytes: &[u8]) -> (&'a [u8], &'a [u8]) {
    let at = text.iter().position(|byte| bytes.contains(byte));
    text.split_at(at.unwrap_or(text.len()))
}

const OUTPUT_CLASSES: [&str; 3] = ["normal", "slave", "pubsub"];

fn output_class(word: &[u8]) -> Option<usize> {
    let word = if word.eq_ignore_ascii_case(b"replica") {
        b"slave"
    } else {
        word
    };
    OUTPUT_CLASSES
        .iter()
        .position(|name| name.as_bytes().eq_ignore_ascii_case(word))
}

fn output_limit(words: &[Vec<u8>]) -> Option<OutputLimit> {
    Some(OutputLimit {
        hard_bytes: parse_memory(&words[0])?,
        soft_bytes: parse_memory(&words[1])?,
        soft_seconds: u64::try_from(number_or_nothing(&words[2])?).ok()?,
    })
}

fn output_limits(words: &Words<'_>) -> Result<Vec<Vec<u8>>, Refusal> {
    if is_nothing(words) {
        return Ok(Vec::new());
    }
    let words: Vec<Vec<u8>> = words.iter().map(|word| word.to_vec()).collect();
    if !words.len().is_multiple_of(4) {
        return Err("Wrong number of arguments in buffer limit configuration.".into());
    }
    for group in words.chunks(4) {
        if output_class(&group[0]).is_none() {
            return Err("Invalid client class specified in buffer limit configuration.".into());
        }
        if output_limit(&group[1..]).is_none() {
            return Err(
                "Error in hard, soft or soft_seconds setting in buffer limit configuration.".into(),
            );
        }
    }
    Ok(words)
}

fn read_output_limits(settings: &Settings) -> Value {
    let mut words = Vec::new();
    for (name, limit) in OUTPUT_CLASSES.iter().zip(&settings.output_limits) {
        words.push(name.as_bytes().to_vec());
        words.push(limit.hard_bytes.to_string().into_bytes());
        words.push(limit.soft_bytes.to_string().into_bytes());
        words.push(limit.soft_seconds.to_string().into_bytes());
    }
    Value::Words(words)
}

fn write_output_limits(settings: &mut Settings, value: &Value) -> Result<(), Refusal> {
    for group in value.words().chunks(4) {
        let (class, limit) = (output_class(&group[0]), output_limit(&group[1..]));
        if let (Some(class), Some(limit)) = (class, limit) {
            settings.output_limits[class] = limit;
        }
    }
    Ok(())
}
