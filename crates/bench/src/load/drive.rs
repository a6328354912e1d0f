//! The load of `redline bench run`: a mix of commands, in a closed or an open loop.
//!
//! Knows no socket: it decides what to send and when, and records replies.
//!
//! # The closed loop
//!
//! A connection has at most `depth` requests in flight. In batches, the next ones are sent when all of the last have
//! been answered; with a sliding window, after each reply. Each request's latency lasts from its own write to its own
//! reply. A stalled server makes every connection wait, and so hides from the figures how many requests would have been
//! sent meanwhile.
//!
//! # The open loop
//!
//! Requests have a schedule that is independent of replies: each thread has an even share of the rate, and is shifted
//! against the others by an even share of the interval. A due request is sent on the connection that has been free for
//! the longest time, together with other due ones, as far as that connection has room: with a write for each, the writes
//! would limit the rate. If no connection is free it waits, and so do later ones, at the cost of a counter: they are all
//! sent, late, and their response times count from when they were due. Two more times are recorded: the service time,
//! from the write, and the delay of a write although a connection was free (schedule lag), which is the generator's
//! fault. When the time is over, due requests are still sent for a moment; requests that are then unsent or unanswered
//! are counted, and enter the response times with their wait so far, as a lower bound.

use std::collections::{BTreeSet, HashMap, VecDeque};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use redline_net::process::{self, CpuTime};
use redline_resp::{Outcome, Skipped};

use super::record::{Answered, GivenUp, Recorder};
use crate::load::failure::Failure;
use crate::load::memcached::TextSkipper;
use crate::load::worker::{Arrived, Load, Taken, Then, Wait, first_error};
use crate::load::workload::template::{Protocol, Renderer};

/// The way in which one thread of a run sends.
#[derive(Clone, Debug)]
pub struct Manner {
    /// Requests per second of this thread; `None` for a closed loop.
    pub rate: Option<f64>,
    /// Offset of this thread in the interval between two requests, 0 to 1.
    pub shift: f64,
    /// Requests in flight on a connection, at least 1.
    pub depth: usize,
    /// One request is sent after each reply; else a batch after all of them.
    pub window: bool,
    /// Time at the start that is not measured.
    pub warmup: Duration,
    /// Measured time.
    pub duration: Option<Duration>,
    /// The protocol of replies.
    pub protocol: Protocol,
    /// Error replies are counted, and do not end the run.
    pub count_errors: bool,
    /// Lost connections are opened again.
    pub reconnect: bool,
    /// Time-out of a request, whose connection is closed with it.
    pub timeout: Option<Duration>,
    /// Time-out of a replacement connection.
    pub connects_within: Duration,
    /// Number of requests after which a connection is replaced.
    pub reconnect_after: Option<u64>,
}

/// A template with its weight among others.
pub struct Choice {
    /// Writes its requests.
    pub renderer: Renderer,
    /// The rows of its commands' figures, in the order of its commands.
    pub rows: std::ops::Range<u32>,
    /// Its weight among all.
    pub weight: u64,
}

/// Resources that the thread used while it was measured.
#[derive(Clone, Copy, Debug, Default)]
pub struct Usage {
    /// CPU time.
    pub cpu: CpuTime,
    /// Time in which it was runnable without a CPU; `None` if the kernel does not report it.
    pub waited: Option<Duration>,
    /// Number of sleeps without work.
    pub sleeps: u64,
    /// The measured time.
    pub wall: Duration,
}

impl Usage {
    /// Returns the resources that this thread has used until now, since the clock's zero.
    fn until(now_ns: u64) -> Usage {
        Usage {
            cpu: process::cpu_thread(),
            waited: process::waited_thread(),
            sleeps: process::sleeps_thread(),
            wall: Duration::from_nanos(now_ns),
        }
    }

    fn since(&self, earlier: &Usage) -> Usage {
        let waited = self.waited.zip(earlier.waited);
        Usage {
            cpu: self.cpu.since(&earlier.cpu),
            waited: waited.map(|(now, before)| now.saturating_sub(before)),
            sleeps: self.sleeps.saturating_sub(earlier.sleeps),
            wall: self.wall.saturating_sub(earlier.wall),
        }
    }
}

/// One thread's part of a run.
pub struct Drive<'a> {
    manner: Manner,
    choices: Vec<Choice>,
    total_weight: u64,
    random: fastrand::Rng,
    /// Requests that no thread has taken yet, if they are limited.
    quota: Option<&'a AtomicU64>,
    out: Vec<u8>,
    /// The measurements.
    pub recorder: Recorder,
    /// Resources that the load used on this thread.
    pub usage: Usage,
    usage_at_start: Option<Usage>,
    under_way: u64,
    /// The latest clock reading.
    now_ns: u64,
    started_ns: u64,
    until_ns: u64,
    /// The quota is used up.
    exhausted: bool,
    /// Number of requests that have been due, in the open loop.
    due: u64,
    next_due_ns: u64,
    /// Connections with room, in the open loop; the front one has been free for the longest time.
    free: VecDeque<usize>,
    /// Time since which there is one.
    freed_ns: u64,
    /// Times at which waiting connections have to be checked; one entry for each at most.
    suspects: BTreeSet<(u64, usize)>,
    /// Failures in a row of lost connections.
    attempts: HashMap<usize, u32>,
}

/// State of a connection.
#[derive(Default)]
pub struct Pending {
    /// Requests in flight, in the order of their replies.
    under_way: VecDeque<Request>,
    /// True if the connection is in the list of free ones.
    queued: bool,
    /// Time of its check, if it is among the suspects.
    suspected_ns: Option<u64>,
    /// Number of requests sent on it.
    sent: u64,
    /// It has replaced another, and has not been served yet.
    is_on_probation: bool,
    /// Counter of replies of the text protocol.
    text: Option<Box<TextSkipper>>,
}

struct Request {
    row: u32,
    /// Answered before an older one.
    settled: bool,
    due_ns: u64,
    sent_ns: u64,
}

impl Pending {
    /// Returns the number of requests rendered for it so far.
    pub fn sent(&self) -> u64 {
        self.sent
    }

    /// Returns the time at which the oldest unanswered request was written, the first time if it was sent again.
    pub fn waits_since_ns(&self) -> Option<u64> {
        self.under_way.front().map(|oldest| oldest.sent_ns)
    }
}

/// Bounds of the pause after a lost connection, which doubles with each attempt.
const PAUSE_MIN: Duration = Duration::from_millis(10);
const PAUSE_MAX: Duration = Duration::from_secs(1);
/// Time after the end for requests that are due or in flight.
const GRACE: Duration = Duration::from_secs(1);
/// Number of unsent due requests that are recorded one by one, and above that number of groups: the work of a thread
/// after the run is bounded at any rate.
const UNSENT_TURNS: u64 = 1_000_000;

impl<'a> Drive<'a> {
    /// Returns a part that chooses among `choices`, of which there is at least one.
    pub fn new(
        manner: Manner,
        choices: Vec<Choice>,
        quota: Option<&'a AtomicU64>,
        random: fastrand::Rng,
        mut recorder: Recorder,
    ) -> Drive<'a> {
        if quota.is_some() {
            recorder.count_requests();
        }
        Drive {
            total_weight: choices.iter().map(|choice| choice.weight).sum(),
            manner,
            choices,
            random,
            quota,
            out: Vec::new(),
            recorder,
            usage: Usage::default(),
            usage_at_start: None,
            under_way: 0,
            now_ns: 0,
            started_ns: 0,
            until_ns: u64::MAX,
            exhausted: false,
            due: 0,
            next_due_ns: u64::MAX,
            free: VecDeque::new(),
            freed_ns: 0,
            suspects: BTreeSet::new(),
            attempts: HashMap::new(),
        }
    }

    /// Returns true if more requests may be sent at all.
    fn may_send(&self) -> bool {
        let open = if self.manner.rate.is_some() {
            self.next_due_ns < self.until_ns && self.now_ns < self.deadline_ns()
        } else {
            self.now_ns < self.until_ns
        };
        open && !self.exhausted
    }

    /// Returns true if the next request may be sent and, in the open loop, should have been.
    fn is_due(&self, now_ns: u64) -> bool {
        self.next_due_ns <= now_ns && self.may_send()
    }

    fn deadline_ns(&self) -> u64 {
        self.until_ns.saturating_add(GRACE.as_nanos() as u64)
    }

    /// Takes the requests of one rendering from the quota; false if it is used up. The warm-up is not limited.
    fn grant(&mut self, requests: u64, now_ns: u64) -> bool {
        let Some(quota) = self.quota.filter(|_| self.recorder.is_measuring(now_ns)) else {
            return true;
        };
        // Relaxed: only the number is shared.
        let taken = quota.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |left| {
            (left > 0).then(|| left.saturating_sub(requests))
        });
        self.exhausted = taken.is_err();
        !self.exhausted
    }

    fn choose(&mut self) -> usize {
        if self.choices.len() == 1 {
            return 0;
        }
        let mut left = self.random.u64(..self.total_weight);
        for (index, choice) in self.choices.iter().enumerate() {
            if left < choice.weight {
                return index;
            }
            left -= choice.weight;
        }
        unreachable!("the weights add up to the total")
    }

    /// Takes the reply to a request that need not be the oldest: the `number`-th that was rendered for this connection.
    pub fn settle(
        &mut self,
        token: usize,
        pending: &mut Pending,
        number: u64,
        outcome: Outcome,
        now_ns: u64,
    ) -> Then {
        self.now_ns = now_ns;
        let oldest = pending.sent - pending.under_way.len() as u64;
        let place = number.checked_sub(oldest);
        let request = place.and_then(|place| pending.under_way.get_mut(place as usize));
        let Some(request) = request.filter(|request| !request.settled) else {
            return Then::Wait;
        };
        request.settled = true;
        let answered = Answered {
            row: request.row,
            due_ns: request.due_ns,
            sent_ns: request.sent_ns,
            outcome,
        };
        self.recorder.answered(answered, 1, now_ns);
        self.under_way -= 1;
        let under_way = &mut pending.under_way;
        while under_way.front().is_some_and(|oldest| oldest.settled) {
            under_way.pop_front();
        }
        self.after_replies(token, pending, now_ns)
    }

    /// Returns true if error replies are counted, and do not end the run.
    pub fn counts_errors(&self) -> bool {
        self.manner.count_errors
    }

    /// Returns the next action of a connection after some of its requests were answered.
    #[inline]
    fn after_replies(&mut self, token: usize, pending: &mut Pending, now_ns: u64) -> Then {
        if pending.under_way.is_empty() && self.is_worn(pending) {
            if !self.may_send() {
                return Then::Wait;
            }
            self.clear(token, pending);
            return Then::Reconnect;
        }
        if self.manner.rate.is_some() {
            self.free(token, pending, now_ns);
            return Then::Wait;
        }
        let refill = if self.manner.window {
            self.has_room(pending)
        } else {
            pending.under_way.is_empty()
        };
        if refill && self.may_send() {
            Then::Send
        } else {
            Then::Wait
        }
    }

    /// Adds one template's requests to a connection's output. Returns false if the quota is used up.
    fn add(&mut self, pending: &mut Pending, due_ns: u64, now_ns: u64) -> bool {
        let index = self.choose();
        let choice = &self.choices[index];
        let (rows, requests) = (choice.rows.clone(), choice.rows.len() as u64);
        if !self.grant(requests, now_ns) {
            return false;
        }
        self.choices[index]
            .renderer
            .render(&mut self.out, &mut self.random);
        for row in rows {
            pending.under_way.push_back(Request {
                row,
                settled: false,
                due_ns,
                sent_ns: now_ns,
            });
        }
        pending.sent += requests;
        self.under_way += requests;
        if self.recorder.is_measuring(now_ns) {
            self.recorder.sent += requests;
        }
        if self.manner.rate.is_some() {
            self.due += requests;
            self.next_due_ns = self.due_ns(self.due);
        }
        true
    }

    /// Returns the time at which the request with this number is due.
    fn due_ns(&self, number: u64) -> u64 {
        let Some(rate) = self.manner.rate else {
            return u64::MAX;
        };
        let offset = (number as f64 + self.manner.shift) * (1e9 / rate);
        self.started_ns.saturating_add(offset as u64)
    }

    /// Records requests that were due and never sent; their command is chosen as for any other.
    fn give_up_unsent(&mut self, now_ns: u64) {
        let end_ns = self.until_ns.min(now_ns);
        let group = self.due_before(end_ns) / UNSENT_TURNS + 1;
        while self.next_due_ns < end_ns {
            let index = self.choose();
            let rows = self.choices[index].rows.clone();
            let requests = rows.len() as u64;
            let count = self.due_before(end_ns).div_ceil(requests).clamp(1, group);
            // All of a group have waited at least as long as its last.
            let last_ns = self.due_ns(self.due + (count - 1) * requests);
            for row in rows {
                self.recorder
                    .given_up(row, count, last_ns, GivenUp::Unsent, now_ns);
            }
            self.due += count * requests;
            self.next_due_ns = self.due_ns(self.due);
        }
    }

    /// Returns the number of requests, from the next one on, that are due before `end_ns`.
    fn due_before(&self, end_ns: u64) -> u64 {
        let rate = self.manner.rate.unwrap_or(0.0);
        let span_ns = end_ns.saturating_sub(self.next_due_ns);
        (span_ns as f64 * (rate / 1e9)).ceil() as u64
    }

    fn has_room(&self, pending: &Pending) -> bool {
        pending.under_way.len() < self.manner.depth && !self.is_worn(pending)
    }

    /// Returns true if the connection has sent as many requests as it may before it is replaced.
    fn is_worn(&self, pending: &Pending) -> bool {
        self.manner
            .reconnect_after
            .is_some_and(|most| pending.sent >= most)
    }

    /// Schedules the check of a waiting connection for the time-out of its oldest request.
    fn watch(&mut self, token: usize, pending: &mut Pending) {
        if let (Some(timeout), Some(oldest)) = (self.manner.timeout, pending.under_way.front())
            && pending.suspected_ns.is_none()
        {
            let at_ns = oldest.sent_ns.saturating_add(timeout.as_nanos() as u64);
            self.suspects.insert((at_ns, token));
            pending.suspected_ns = Some(at_ns);
        }
    }

    /// Removes the scheduled check of a connection.
    fn clear(&mut self, token: usize, pending: &mut Pending) {
        if let Some(at_ns) = pending.suspected_ns.take() {
            self.suspects.remove(&(at_ns, token));
        }
    }

    fn free(&mut self, token: usize, pending: &mut Pending, now_ns: u64) {
        if !pending.queued && self.has_room(pending) {
            if self.free.is_empty() {
                self.freed_ns = now_ns;
            }
            pending.queued = true;
            self.free.push_back(token);
        }
    }
}

impl Load for Drive<'_> {
    type Pending = Pending;
    const PACED: bool = true;
    fn pending(&self) -> Pending {
        Pending {
            under_way: VecDeque::new(),
            // In the open loop every connection begins as a free one.
            queued: self.manner.rate.is_some() && self.started_ns == 0,
            suspected_ns: None,
            sent: 0,
            is_on_probation: self.started_ns > 0,
            text: (self.manner.protocol == Protocol::MemcacheText).then(Box::default),
        }
    }

    fn begin(&mut self, connections: usize, now_ns: u64) {
        (self.started_ns, self.now_ns) = (now_ns, now_ns);
        let from_ns = now_ns + self.manner.warmup.as_nanos() as u64;
        self.recorder.measure_from(from_ns);
        if let Some(duration) = self.manner.duration {
            self.until_ns = from_ns.saturating_add(duration.as_nanos() as u64);
        }
        if self.manner.rate.is_some() {
            self.free.extend(0..connections);
            self.next_due_ns = self.due_ns(0);
        }
    }

    fn start(&mut self, _token: usize) -> bool {
        self.manner.rate.is_none() && self.may_send()
    }

    fn next(&mut self, token: usize, pending: &mut Pending, now_ns: u64) -> &[u8] {
        self.out.clear();
        if self.manner.rate.is_some() {
            // `due` has taken it from the list.
            pending.queued = false;
            loop {
                let due_ns = self.next_due_ns;
                if !self.add(pending, due_ns, now_ns) {
                    break;
                }
                self.recorder.lagged(due_ns.max(self.freed_ns), now_ns);
                if !self.is_due(now_ns) || !self.has_room(pending) {
                    break;
                }
            }
            self.free(token, pending, now_ns);
        } else {
            while self.has_room(pending) && self.add(pending, now_ns, now_ns) {}
        }
        self.watch(token, pending);
        if self.recorder.is_measuring(now_ns) {
            self.recorder.sent_bytes += self.out.len() as u64;
        }
        &self.out
    }

    fn part_with(&mut self, _token: usize) -> Arc<Vec<u8>> {
        Arc::new(std::mem::take(&mut self.out))
    }

    fn take(&mut self, arrived: Arrived<'_, Pending>) -> Result<Taken, Failure> {
        let now_ns = arrived.now_ns;
        self.now_ns = now_ns;
        let (pending, prefix_awaited) = (arrived.pending, arrived.prefix_awaited);
        let (mut prefix_failed, mut errors, mut answered) = (false, 0u64, 0u64);
        let mut run: Option<(Answered, u64)> = None;
        let recorder = &mut self.recorder;
        let mut text = pending.text.take();
        let on_reply = |outcome| {
            if *prefix_awaited > 0 {
                *prefix_awaited -= 1;
                prefix_failed |= outcome == Outcome::Error;
                return;
            }
            // Unexpected replies are not counted.
            let Some(request) = pending.under_way.pop_front() else {
                return;
            };
            answered += 1;
            errors += u64::from(outcome == Outcome::Error);
            let this = Answered {
                row: request.row,
                due_ns: request.due_ns,
                sent_ns: request.sent_ns,
                outcome,
            };
            match &mut run {
                Some((same, count)) if *same == this => *count += 1,
                _ => {
                    if let Some((answered, count)) = run.replace((this, 1)) {
                        recorder.answered(answered, count, now_ns);
                    }
                }
            }
        };
        let skipped = match &mut text {
            None => arrived.skipper.skip_each(arrived.bytes, on_reply),
            Some(text) => text
                .skip_each(arrived.bytes, on_reply)
                .map(|consumed| Skipped {
                    consumed,
                    ..Skipped::default()
                }),
        };
        pending.text = text;
        let skipped = skipped?;
        let first_error = || match &pending.text {
            None => first_error(arrived.skipper),
            Some(text) => text.first_error().to_owned(),
        };
        if let Some((answered, count)) = run {
            recorder.answered(answered, count, now_ns);
        }
        if prefix_failed || (errors > 0 && !self.manner.count_errors) {
            let text = first_error();
            let is_temporary = prefix_failed || is_temporary(&text);
            let is_survived = self.manner.reconnect && pending.is_on_probation && is_temporary;
            // Answered requests have left the queue.
            self.under_way -= answered;
            return Err(if is_survived {
                Failure::Unwelcome(text)
            } else {
                Failure::Reply(text)
            });
        }
        if answered > errors {
            pending.is_on_probation = false;
        }
        if errors > 0 {
            recorder.error_text(first_error());
        }
        if recorder.is_measuring(now_ns) {
            recorder.received_bytes += skipped.consumed as u64;
        }
        self.under_way -= answered;
        if answered > 0 && !self.attempts.is_empty() {
            self.attempts.remove(&arrived.token);
        }
        let then = if answered > 0 {
            self.after_replies(arrived.token, pending, now_ns)
        } else {
            Then::Wait
        };
        Ok(Taken {
            consumed: skipped.consumed,
            counted: answered > 0,
            then,
        })
    }

    fn due(&mut self, now_ns: u64) -> Option<usize> {
        self.now_ns = now_ns;
        if self.usage_at_start.is_none() && self.recorder.is_measuring(now_ns) {
            self.usage_at_start = Some(Usage::until(now_ns));
        }
        if !self.is_due(now_ns) {
            return None;
        }
        self.free.pop_front()
    }

    fn connects_within(&self) -> Duration {
        self.manner.connects_within
    }

    fn reconnected(&mut self, token: usize, pending: &mut Pending, now_ns: u64) -> bool {
        if self.manner.rate.is_some() {
            self.free(token, pending, now_ns);
            return false;
        }
        self.now_ns = now_ns;
        self.may_send()
    }

    fn lost(
        &mut self,
        token: usize,
        pending: &mut Pending,
        failure: &Failure,
        now_ns: u64,
    ) -> Option<Duration> {
        if !self.manner.reconnect {
            return None;
        }
        for request in pending.under_way.drain(..) {
            self.under_way -= 1;
            if self.recorder.counts(request.sent_ns) {
                self.recorder
                    .given_up(request.row, 1, request.due_ns, GivenUp::Lost, now_ns);
            }
        }
        if pending.queued {
            self.free.retain(|&free| free != token);
            pending.queued = false;
        }
        self.clear(token, pending);
        let never_stood = matches!(
            failure,
            Failure::Connect { .. } | Failure::Tls(_) | Failure::Unwelcome(_)
        );
        if never_stood {
            self.recorder.reconnects_failed += 1;
        } else {
            self.recorder.connections_lost += 1;
        }
        self.recorder.error_text(failure.to_string());
        let attempts = self.attempts.entry(token).or_default();
        let pause = PAUSE_MIN.saturating_mul(1 << (*attempts).min(16));
        *attempts += 1;
        Some(pause.min(PAUSE_MAX))
    }

    fn suspect(&mut self, now_ns: u64) -> Option<usize> {
        let (at_ns, token) = *self.suspects.first()?;
        if at_ns > now_ns {
            return None;
        }
        self.suspects.pop_first();
        Some(token)
    }

    fn is_overdue(&mut self, token: usize, pending: &mut Pending, now_ns: u64) -> bool {
        pending.suspected_ns = None;
        let timeout_ns = self
            .manner
            .timeout
            .map_or(u64::MAX, |timeout| timeout.as_nanos() as u64);
        let oldest = pending.under_way.front();
        let overdue =
            oldest.is_some_and(|oldest| now_ns.saturating_sub(oldest.sent_ns) >= timeout_ns);
        if !overdue {
            self.watch(token, pending);
        }
        overdue
    }

    fn wait(&mut self) -> Wait {
        let until = if self.may_send() && !self.free.is_empty() {
            self.next_due_ns
        } else if self.now_ns < self.until_ns {
            self.until_ns
        } else {
            self.deadline_ns()
        };
        let suspect = self.suspects.first().map_or(u64::MAX, |&(at_ns, _)| at_ns);
        match until.min(suspect).min(self.recorder.slice_ends_ns()) {
            u64::MAX => Wait::ForEvents,
            until => Wait::Until(until),
        }
    }

    fn needs(&self, pending: &Pending) -> bool {
        // Requests on a closed connection would be lost, by the generator's fault.
        let replaced = self.manner.reconnect && self.may_send();
        replaced || !pending.under_way.is_empty()
    }

    fn is_active(&self) -> bool {
        if self.now_ns >= self.deadline_ns() {
            return false;
        }
        self.under_way > 0 || self.may_send()
    }

    fn turned(&mut self) {
        self.recorder.turn_slice(self.now_ns);
    }

    fn give_up(&mut self, pending: &mut Pending, now_ns: u64) {
        let left = pending.under_way.drain(..);
        let left = left.filter(|request| !request.settled);
        for request in left {
            if self.recorder.counts(request.sent_ns) {
                self.recorder
                    .given_up(request.row, 1, request.due_ns, GivenUp::Unanswered, now_ns);
            }
        }
    }

    fn end(&mut self, now_ns: u64) {
        if self.manner.rate.is_some() && !self.exhausted {
            self.give_up_unsent(now_ns);
        }
        self.recorder.finish();
        if let Some(at_start) = &self.usage_at_start {
            self.usage = Usage::until(now_ns).since(at_start);
        }
    }

    fn progress(&self) -> (u64, u64) {
        (self.recorder.finished, self.recorder.response_us)
    }
}

/// Returns true if an error reply says that the server serves no client for a while, or no more clients, for any
/// request.
fn is_temporary(text: &str) -> bool {
    let kind = text.split(' ').next().unwrap_or_default();
    ["LOADING", "MASTERDOWN"].contains(&kind) || text.starts_with("ERR max number of clients")
}

#[cfg(test)]
impl Manner {
    /// Returns the manner of a closed loop without an end, one request in flight.
    pub fn plain() -> Manner {
        Manner {
            rate: None,
            shift: 0.0,
            depth: 1,
            window: false,
            warmup: Duration::ZERO,
            duration: None,
            protocol: Protocol::Resp,
            count_errors: false,
            reconnect: false,
            timeout: None,
            connects_within: Duration::ZERO,
            reconnect_after: None,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::{Arc, mpsc};

    use super::*;
    use crate::load::workload::template::Template;
    use crate::load::workload::values::{Content, Sizes};

    /// Returns a load in an open loop of `GET a`, `GET b` and so on, a command for each of `words`.
    fn paced(words: &[&str], manner: Manner) -> Drive<'static> {
        let commands: Vec<String> = words.iter().map(|word| format!("GET {word}")).collect();
        let sizes = Sizes::parse("3").unwrap();
        let template = Template::parse(&commands.join(" ; "), &sizes).unwrap();
        let mut random = fastrand::Rng::with_seed(1);
        let choice = Choice {
            renderer: template.renderer(
                Protocol::Resp,
                0,
                1,
                Content::Fixed,
                &Arc::default(),
                &mut random,
            ),
            rows: 0..words.len() as u32,
            weight: 1,
        };
        let (sender, _slices) = mpsc::channel();
        let recorder = Recorder::new(words.len(), true, u64::MAX, sender);
        Drive::new(manner, vec![choice], None, random, recorder)
    }

    #[test]
    fn what_is_due_together_leaves_together_as_far_as_there_is_room() {
        let manner = Manner {
            rate: Some(1e6),
            depth: 4,
            ..Manner::plain()
        };
        let mut drive = paced(&["a"], manner);
        let mut pending = [drive.pending(), drive.pending()];
        drive.begin(2, 1_000);
        // From the first on, one is due each microsecond: six by now.
        let now_ns = 6_500;
        let mut sent = Vec::new();
        while let Some(token) = drive.due(now_ns) {
            let one = b"*2\r\n$3\r\nGET\r\n$1\r\na\r\n".len();
            let bytes = drive.next(token, &mut pending[token], now_ns).len();
            sent.push((token, bytes / one));
        }
        assert_eq!(sent, [(0, 4), (1, 2)]);
        assert_eq!(drive.wait(), Wait::Until(7_000));
    }

    #[test]
    fn what_was_never_sent_is_counted_in_full_whatever_the_rate() {
        for (rate, seconds, due) in [
            (1e9, 10, 10_000_000_000),
            (3e5, 10, 3_000_000),
            (10.0, 3, 30),
        ] {
            let manner = Manner {
                rate: Some(rate),
                duration: Some(Duration::from_secs(seconds)),
                ..Manner::plain()
            };
            let mut drive = paced(&["a", "b"], manner);
            drive.begin(1, 1);
            drive.end(1 + seconds * 1_000_000_000);
            assert_eq!(drive.recorder.unsent, due);
            for row in &drive.recorder.rows {
                assert_eq!(row.response.len(), due / 2);
                // They arrived evenly, so half of them have waited for half of the time.
                let half = row.response.value_at_quantile(0.5) as f64 / (seconds as f64 * 1e6);
                assert!((half - 0.5).abs() < 0.05, "{half}");
            }
        }
    }
}
