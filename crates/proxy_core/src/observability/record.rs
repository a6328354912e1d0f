//! Recording of replies by a worker: it counts, measures times, and inspects a few. The hot path, once for each run of
//! replies to one client and not for each reply: only a run of several commands takes more work.
//!
//! Time is that of the turn: one clock reading for all requests decoded in it, and one for all replies.
//!
//! Must not know clients: inspected calls are reported at the end of the turn, by `commands`.

use std::sync::Arc;

use redline_observe::histogram::Bucket;
use redline_observe::slowlog;
use redline_resp::{Args, Decoded, RequestDecoder, Span};
use redline_spec::{self as spec, CommandId, Flags};

use super::keys::{LARGE_BYTES_MIN, Large};
use super::stats::{NodeStats, WorkerStats, lock};
use super::steps::Monitors;
use super::tune::Tuning;
use super::{Counters, Observations};
use crate::class::NO_COMMAND;
use crate::request::{forwarded, request_len};
use crate::route::{Node, NodeId};
use crate::shell::Shell;
use crate::slab::Ref;
use crate::upstream::{Kind, Purpose, Upstream, Waiting};

/// The command of a run of several commands: [`Upstream::mix`] has them.
pub const MIXED: u16 = u16::MAX;
/// Largest number of slow-log entries of one worker between two ticks. If everything is slow, single calls are of no interest.
const SLOW_OF_A_TICK_MAX: u32 = 16;
/// Number of requests from the front of a run that may be inspected: finding a later one costs more.
const DEPTH_MAX: u16 = 32;

/// Interval over which the rate of requests is measured: microseconds.
const RATE_US: u64 = 1_000_000;

/// A worker's recorder.
pub struct Recorder {
    pub(super) stats: Arc<WorkerStats>,
    monitors: Arc<Monitors>,
    has_monitors: bool,
    /// The time of the turn: microseconds of the monotonic clock.
    pub now_us: u64,
    /// The time of the last tick: seconds since 1970.
    pub now_s: u64,
    /// Settings that may change at runtime.
    pub tuning: Tuning,
    tuning_epoch: u64,
    /// Latency from which replies are inspected: microseconds.
    look_from_us: u32,
    /// Number of replies until one is inspected for its keys, and for the log.
    keys_in: i64,
    line_in: i64,
    /// The smaller of them.
    look_in: i64,
    /// Size from which requests and replies are inspected: bytes.
    look_from_bytes: usize,
    slow_left: u32,
    /// Time of the last rate measurement, and the number of requests then.
    rate_from: (u64, u64),
    /// The commands of the current run, if there are several.
    pub mix: Vec<(u16, u16)>,
    /// Calls that were inspected in this turn.
    pub looked: Vec<Looked>,
    /// Set if each request has to be checked: some client uses MONITOR, or memory is short.
    pub looks_at_all: bool,
    pub(super) is_short_of_memory: bool,
    /// Lines for MONITOR.
    pub(super) lines: Vec<u8>,
    random: fastrand::Rng,
}

/// An inspected reply, to be reported.
pub struct Looked {
    /// The run that it belongs to.
    pub waiting: Waiting,
    /// The server that sent it.
    pub node: NodeId,
    /// The number of its command.
    pub command: u16,
    /// Its latency: microseconds.
    pub us: u32,
    /// The arguments of its request, for the slow log.
    pub args: Vec<Vec<u8>>,
    /// A key of its request, for the log.
    pub key: Option<Vec<u8>>,
    /// It is for the slow log; else for the log file.
    pub is_slow: bool,
}

impl Recorder {
    /// Returns the recorder of the worker with this number.
    pub fn new(seen: &Observations, number: usize, now_us: u64) -> Recorder {
        let mut recorder = Recorder {
            stats: Arc::clone(&seen.workers[number]),
            has_monitors: seen.monitors.names().next().is_some(),
            monitors: Arc::clone(&seen.monitors),
            now_us,
            now_s: 0,
            tuning: seen.tune.current(),
            tuning_epoch: 0,
            look_from_us: u32::MAX,
            keys_in: i64::MAX,
            line_in: i64::MAX,
            look_in: i64::MAX,
            look_from_bytes: LARGE_BYTES_MIN,
            slow_left: SLOW_OF_A_TICK_MAX,
            rate_from: (now_us, 0),
            mix: Vec::new(),
            looked: Vec::new(),
            looks_at_all: false,
            is_short_of_memory: false,
            lines: Vec::new(),
            random: fastrand::Rng::new(),
        };
        recorder.tune(seen);
        recorder
    }

    /// Begins a turn.
    #[inline]
    pub fn begin_turn(&mut self, seen: &Observations, now_us: u64) {
        self.now_us = now_us;
        let someone_watches = seen.watchers.load(std::sync::atomic::Ordering::Relaxed) > 0;
        self.looks_at_all = someone_watches || self.is_short_of_memory;
        if seen.tune.epoch() != self.tuning_epoch {
            self.tune(seen);
        }
    }

    /// Ends a turn.
    #[inline]
    pub fn end_turn(&mut self, counters: &Counters) {
        self.stats.publish(counters);
    }

    /// Handles a tick, a tenth of a second.
    pub fn tick(&mut self, counters: &mut Counters) {
        self.slow_left = SLOW_OF_A_TICK_MAX;
        let (since_us, requests) = self.rate_from;
        let us = self.now_us.saturating_sub(since_us);
        if us >= RATE_US {
            let more = counters.requests - requests;
            counters.requests_per_second = (more as f64 * 1e6 / us as f64).round() as u64;
            self.rate_from = (self.now_us, counters.requests);
        }
    }

    /// Adopts settings that CONFIG SET has changed, and the reset of large keys by CONFIG RESETSTAT.
    pub fn tune(&mut self, seen: &Observations) {
        self.tuning_epoch = seen.tune.epoch();
        self.tuning = seen.tune.current();
        self.look_from_bytes = LARGE_BYTES_MIN;
        // Without a limit there is no shortage.
        self.is_short_of_memory &= self.tuning.memory_bytes_max > 0;
        let slow_us = match self.tuning.slow_max {
            0 => -1,
            _ => self.tuning.slower_than_us,
        };
        let event_us = self.tuning.latency_threshold_ms.saturating_mul(1000);
        let slow_us = u64::try_from(slow_us).unwrap_or(u64::MAX);
        let event_us = if event_us == 0 { u64::MAX } else { event_us };
        self.look_from_us = u32::try_from(slow_us.min(event_us)).unwrap_or(u32::MAX);
        let every = |sample: u32| match sample {
            0 => i64::MAX,
            sample => i64::from(sample) - 1,
        };
        self.keys_in = every(self.tuning.key_sample);
        self.line_in = every(self.tuning.samples.info);
        self.look_in = self.keys_in.min(self.line_in);
    }

    /// Counts requests of a user.
    pub fn count_user(&self, name: &[u8], requests: u64) {
        self.stats.count_user(name, requests);
    }

    /// Returns the counters of the server `node`, whose number is `number`.
    pub fn node(&self, number: NodeId, node: &Node) -> Arc<NodeStats> {
        self.stats.node(number, node, &self.monitors)
    }

    /// Counts `count` replies to the front run of a connection, of `bytes` bytes together.
    #[inline]
    pub fn took<S: Shell>(&mut self, upstream: &Upstream<S>, count: u16, bytes: usize) {
        let Some(front) = upstream.waiting.front() else {
            return;
        };
        let us = (self.now_us as u32).wrapping_sub(front.since_us);
        let times = u64::from(count);
        let bucket = Bucket::of(u64::from(us) * 1000);
        upstream.stats.responses.add(times);
        if upstream.purpose == Purpose::Shared {
            upstream.stats.us.add(u64::from(us) * times);
            upstream.stats.latency.record_at(bucket, times);
        }
        match front.command {
            MIXED => self.record_mix(upstream, count, (us, bucket)),
            command => self.record(upstream, front.kind, command, (us, bucket), times),
        }
        self.look_in = self.look_in.wrapping_sub(i64::from(count));
        let per_reply = self.look_from_bytes * usize::from(count);
        let requests = usize::from(front.count + front.answered);
        if us >= self.look_from_us
            || self.look_in < 0
            || bytes >= per_reply
            || front.bytes as usize >= self.look_from_bytes * requests
        {
            self.look(upstream, count, us, bytes);
        }
    }

    /// Counts a client's request that failed without a reply of its server. `request`: its bytes, if they are kept.
    /// Requests of the proxy itself are no calls, and contain passwords.
    #[cold]
    pub fn lost(&mut self, waiting: &Waiting, node: NodeId, request: &[u8]) {
        if !waiting.kind.is_wanted() {
            return;
        }
        let us = (self.now_us as u32).wrapping_sub(waiting.since_us);
        // Parts of a reply count as one call, when the last has arrived.
        if waiting.kind != Kind::Part {
            self.record_call(waiting.command, us);
            self.failed(waiting.command);
        }
        if us >= self.look_from_us && self.slow_left > 0 && !may_wait(waiting.command) {
            self.slow_left -= 1;
            let request = Request::of(request, 0).unwrap_or_default();
            let command = request.command.unwrap_or(waiting.command);
            self.looked.push(Looked {
                waiting: *waiting,
                node,
                command,
                us,
                args: request.shortened(Some(command)),
                key: None,
                is_slow: true,
            });
        }
    }

    /// Counts a client's call that was answered from the cache, with a value that `node` has sent.
    #[inline]
    pub fn hit(&mut self, me: Ref, id: CommandId, key: &[u8], node: NodeId) {
        self.record_call(id as u16, 0);
        self.look_in = self.look_in.wrapping_sub(1);
        if self.look_in < 0 {
            self.look_at_hit(me, id, key, node);
        }
    }

    #[cold]
    fn look_at_hit(&mut self, me: Ref, id: CommandId, key: &[u8], node: NodeId) {
        let (keys, lines) = self.due();
        if keys > 0 {
            lock(&self.stats.frequent).add(key, keys.into(), self.now_us / 1000);
        }
        if lines > 0 {
            self.looked.push(Looked {
                waiting: Waiting::one(me, 0, Kind::Client, b"", self.now_us / 1000),
                node,
                command: id as u16,
                us: 0,
                args: Vec::new(),
                key: Some(key.to_vec()),
                is_slow: false,
            });
        }
    }

    /// Counts a call that the proxy has answered itself.
    pub fn answered_here(&mut self, id: CommandId) {
        if let Some(stats) = self.stats.command(id as u16) {
            stats.calls.add(1);
        }
    }

    /// Counts a call that the proxy has refused.
    pub fn refused(&mut self, command: u16) {
        if let Some(stats) = self.stats.command(command) {
            stats.rejected.add(1);
        }
    }

    /// Counts an error reply to a call.
    pub fn failed(&mut self, command: u16) {
        if let Some(stats) = self.stats.command(command) {
            stats.failed.add(1);
        }
    }

    #[inline]
    fn record<S: Shell>(
        &mut self,
        upstream: &Upstream<S>,
        kind: Kind,
        command: u16,
        (us, bucket): (u32, Bucket),
        times: u64,
    ) {
        // Parts of a reply count as one call, when the last has arrived.
        if kind != Kind::Part {
            let is_shared = upstream.purpose == Purpose::Shared;
            self.record_calls(command, (us, bucket), times, is_shared);
        }
        if self.has_monitors {
            let steps = &upstream.stats.steps;
            self.monitors.record(steps, command, us.into(), times);
        }
    }

    /// Counts a call of a command.
    pub fn record_call(&mut self, command: u16, us: u32) {
        let bucket = Bucket::of(u64::from(us) * 1000);
        self.record_calls(command, (us, bucket), 1, true);
    }

    /// Counts calls of a command. The latency of calls that may block is not counted, since it means nothing.
    #[inline]
    fn record_calls(
        &mut self,
        command: u16,
        (us, bucket): (u32, Bucket),
        times: u64,
        is_shared: bool,
    ) {
        let Some(stats) = self.stats.command(command) else {
            return;
        };
        stats.calls.add(times);
        if is_shared || !may_wait(command) {
            stats.us.add(u64::from(us) * times);
            stats.latency.record_at(bucket, times);
        }
    }

    #[cold]
    fn record_mix<S: Shell>(&mut self, upstream: &Upstream<S>, count: u16, took: (u32, Bucket)) {
        let Some(kind) = upstream.waiting.front().map(|front| front.kind) else {
            return;
        };
        let mut left = count;
        for (command, many) in &upstream.mix {
            if left == 0 {
                break;
            }
            let times = left.min(*many);
            left -= times;
            self.record(upstream, kind, *command, took, times.into());
        }
    }

    /// Inspects one or some of `count` replies.
    #[cold]
    pub fn look<S: Shell>(&mut self, upstream: &Upstream<S>, count: u16, us: u32, bytes: usize) {
        let Some(front) = upstream.waiting.front().copied() else {
            return;
        };
        let command = upstream.front_command().unwrap_or(NO_COMMAND);
        if us >= self.look_from_us && (upstream.purpose == Purpose::Shared || !may_wait(command)) {
            self.note_slow(upstream, front, count, us);
        }
        let large = (bytes / usize::from(count.max(1)))
            .max(front.bytes as usize / usize::from(front.count + front.answered).max(1));
        let (keys, lines) = match self.look_in < 0 {
            true => self.due(),
            false => (0, 0),
        };
        let is_large = large >= self.look_from_bytes;
        let most = keys.max(lines).max(u16::from(is_large));
        let looks = most.min(count).min(DEPTH_MAX);
        for number in 0..looks {
            let at = match (looks, count) {
                (1, 2..) => self.random.u16(0..count.min(DEPTH_MAX)),
                _ => number,
            };
            let request = Request::nth(upstream, front, at);
            let command = request.command.unwrap_or(command);
            let key = request.key(command, &mut self.random).map(<[u8]>::to_vec);
            if let Some(key) = &key {
                if number < keys {
                    // Those too deep in the run count with those before them.
                    let weight = u64::from(keys) / u64::from(keys.min(looks));
                    lock(&self.stats.frequent).add(key, weight, self.now_us / 1000);
                }
                if is_large {
                    self.note_large(key, &request, command, bytes / usize::from(count));
                }
            }
            if number < lines {
                self.looked.push(Looked {
                    waiting: front,
                    node: upstream.node,
                    command,
                    us,
                    args: Vec::new(),
                    key,
                    is_slow: false,
                });
            }
        }
    }

    /// Returns the number of keys and log lines to be sampled from the replies since the last call.
    fn due(&mut self) -> (u16, u16) {
        let (mut keys, mut lines) = (0_u16, 0_u16);
        let passed = self.keys_in.min(self.line_in).wrapping_sub(self.look_in);
        for (left, sample, due) in [
            (&mut self.keys_in, self.tuning.key_sample, &mut keys),
            (&mut self.line_in, self.tuning.samples.info, &mut lines),
        ] {
            if sample == 0 {
                continue;
            }
            *left -= passed;
            while *left < 0 {
                *left += i64::from(sample);
                *due += 1;
            }
        }
        self.look_in = self.keys_in.min(self.line_in);
        (keys, lines)
    }

    fn note_large(&mut self, key: &[u8], request: &Request, command: u16, reply_bytes: usize) {
        let request_bytes = request.bytes.len();
        let large = Large {
            key: key.into(),
            bytes: request_bytes.max(reply_bytes),
            command,
            is_request: request_bytes > reply_bytes,
            at_s: self.now_s,
        };
        if large.bytes >= self.look_from_bytes {
            self.look_from_bytes = lock(&self.stats.largest).add(large);
        }
    }

    /// Notes a key whose request is passed through in pieces, and the request's length.
    pub fn pass_large(&mut self, key: &[u8], command: CommandId, bytes: u64) {
        let large = Large {
            key: key.into(),
            bytes: usize::try_from(bytes).unwrap_or(usize::MAX),
            command: command as u16,
            is_request: true,
            at_s: self.now_s,
        };
        if large.bytes >= self.look_from_bytes {
            self.look_from_bytes = lock(&self.stats.largest).add(large);
        }
    }

    fn note_slow<S: Shell>(&mut self, upstream: &Upstream<S>, front: Waiting, count: u16, us: u32) {
        for at in 0..count {
            let looked = Looked {
                waiting: front,
                node: upstream.node,
                command: NO_COMMAND,
                us,
                args: Vec::new(),
                key: None,
                is_slow: true,
            };
            // The event of the latency monitor is one, and needs no arguments.
            let is_full = self.slow_left == 0;
            if is_full && at > 0 {
                return;
            }
            let request = match is_full {
                true => Request::default(),
                false => Request::nth(upstream, front, at),
            };
            self.slow_left = self.slow_left.saturating_sub(1);
            let command = request.command.or_else(|| upstream.front_command());
            self.looked.push(Looked {
                command: command.unwrap_or(NO_COMMAND),
                args: request.shortened(command),
                ..looked
            });
        }
    }
}

fn may_wait(command: u16) -> bool {
    CommandId::ALL
        .get(usize::from(command))
        .is_some_and(|id| spec::gate(*id).flags.has(Flags::BLOCKING))
}

/// A request that waits on a connection.
#[derive(Default)]
struct Request {
    bytes: Vec<u8>,
    spans: Vec<Span>,
    command: Option<u16>,
}

impl Request {
    /// Returns the unanswered request at index `skip` of the run `front`. Empty for a large one, whose bytes are dropped.
    fn nth<S: Shell>(upstream: &Upstream<S>, front: Waiting, skip: u16) -> Request {
        let end = upstream.acked + front.bytes as usize;
        let run = upstream.out.get(upstream.acked..end);
        run.and_then(|run| Request::of(run, front.answered + skip))
            .unwrap_or_default()
    }

    /// Returns the request after `skip` others. No other is copied: a run may be megabytes long.
    fn of(run: &[u8], skip: u16) -> Option<Request> {
        let mut start = 0;
        for _ in 0..skip {
            start += request_len(&run[start..])?;
        }
        let rest = &run[start..];
        let mut bytes = rest[..request_len(rest)?].to_vec();
        let mut spans = Vec::new();
        let decoded = RequestDecoder::new().decode(&mut bytes, &forwarded(), &mut spans);
        if !matches!(decoded, Ok(Decoded::Request { .. })) {
            return None;
        }
        let args = Args::new(&bytes, &spans);
        let name = args.get(0).unwrap_or_default();
        let command = spec::resolve(name, args.get(1)).ok().map(|id| id as u16);
        Some(Request {
            bytes,
            spans,
            command,
        })
    }

    fn args(&self) -> Args<'_> {
        Args::new(&self.bytes, &self.spans)
    }

    /// Returns one of its keys, a random one if there are several.
    fn key(&self, command: u16, random: &mut fastrand::Rng) -> Option<&[u8]> {
        let args = self.args();
        let id = *CommandId::ALL.get(usize::from(command))?;
        if args.is_empty() {
            return None;
        }
        let mut keys = spec::reachable_keys(id, args.len(), |at| args.get(at).unwrap_or_default());
        let at = match keys.len() {
            0 => return None,
            1 => 0,
            count => random.usize(0..count),
        };
        args.get(keys.nth(at)?.position)
    }

    fn shortened(&self, command: Option<u16>) -> Vec<Vec<u8>> {
        let args = self.args();
        let id = command.and_then(|command| CommandId::ALL.get(usize::from(command)).copied());
        if args.is_empty() {
            let name = id.map_or("?", |id| spec::row(id).full_name);
            return vec![name.as_bytes().to_vec(), b"... (a large request)".to_vec()];
        }
        slowlog::shortened(args.len(), |at| match id {
            Some(id) if redline_observe::secret::is_secret(id, args, at) => {
                redline_observe::secret::REDACTED
            }
            _ => args.get(at).unwrap_or_default(),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_of_a_run_is_found() {
        let run = b"*2\r\n$3\r\nGET\r\n$1\r\na\r\n*3\r\n$3\r\nset\r\n$2\r\n\r\n\r\n$0\r\n\r\n*1\r\n$4\r\nPING\r\n";
        let found = |skip| Request::of(run, skip);
        for (skip, words) in [
            (0, &[&b"GET"[..], b"a"][..]),
            (1, &[b"set", b"\r\n", b""]),
            (2, &[b"PING"]),
        ] {
            let request = found(skip).unwrap();
            assert!(request.args().iter().eq(words.iter().copied()), "{skip}");
        }
        assert_eq!(found(1).unwrap().command, Some(CommandId::Set as u16));
        assert!(found(3).is_none());
        for part in 0..20 {
            assert!(Request::of(&run[..part], 0).is_none(), "{part}");
        }
    }
}
