//! Measurements of one load thread: latencies by command, counts, and slices of the time series.
//!
//! Knows no socket. Memory is bounded for any number of requests: histograms, and one slice at a time, which is sent to
//! the main thread at its end.

use std::collections::BTreeMap;
use std::sync::mpsc;

use hdrhistogram::Histogram;
use redline_resp::Outcome;

use crate::load::engine::histogram;

/// Significant digits of latencies.
pub const DIGITS: u8 = 3;

/// Figures of one command.
pub struct Row {
    /// Time from when a request was due until its reply arrived, in microseconds.
    pub response: Histogram<u64>,
    /// Time from its write until its reply arrived; only if requests have a schedule.
    pub service: Option<Histogram<u64>>,
    /// Replies that are neither null nor an error.
    pub values: u64,
    /// Null replies.
    pub nulls: u64,
    /// Number of values that are empty arrays.
    pub empty: u64,
    /// Error replies; their latencies are not recorded.
    pub errors: u64,
    /// Number of elements of array replies.
    pub elements: u64,
    /// Number of null elements.
    pub null_elements: u64,
}

impl Row {
    /// Returns a row without figures.
    pub fn new(paced: bool) -> Row {
        Row {
            response: histogram(DIGITS),
            service: paced.then(|| histogram(DIGITS)),
            values: 0,
            nulls: 0,
            empty: 0,
            errors: 0,
            elements: 0,
            null_elements: 0,
        }
    }

    /// Adds another's figures.
    pub fn add(&mut self, other: &Row) {
        add(&mut self.response, &other.response);
        if let (Some(service), Some(other)) = (&mut self.service, &other.service) {
            add(service, other);
        }
        self.values += other.values;
        self.nulls += other.nulls;
        self.empty += other.empty;
        self.errors += other.errors;
        self.elements += other.elements;
        self.null_elements += other.null_elements;
    }
}

/// Adds one histogram to another; all have the same bounds.
pub fn add(to: &mut Histogram<u64>, from: &Histogram<u64>) {
    to.add(from)
        .expect("all histograms have the same bounds and digits");
}

/// A piece of the time series, by the time at which replies arrived.
pub struct Slice {
    /// Its index, from the start of the measured time.
    pub index: u64,
    /// Response times in microseconds, and the waits of requests that were given up.
    pub response: Histogram<u64>,
    /// Number of requests that were given up.
    pub given_up: u64,
    /// Error replies.
    pub errors: u64,
}

impl Slice {
    /// Returns a piece without figures.
    pub fn new(index: u64) -> Slice {
        Slice {
            index,
            response: histogram(DIGITS),
            given_up: 0,
            errors: 0,
        }
    }

    /// Adds another's figures.
    pub fn add(&mut self, other: &Slice) {
        add(&mut self.response, &other.response);
        self.given_up += other.given_up;
        self.errors += other.errors;
    }
}

/// Replies that arrived together and are equal in all respects.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Answered {
    /// The command's row.
    pub row: u32,
    /// Time at which the request was due, on the monotonic clock.
    pub due_ns: u64,
    /// Time at which it was written.
    pub sent_ns: u64,
    /// Outcome of the request, from its reply.
    pub outcome: Outcome,
}

/// The reason why a request has no reply.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum GivenUp {
    /// It was due and was never written.
    Unsent,
    /// It was written, and the run ended.
    Unanswered,
    /// Its connection was lost.
    Lost,
}

/// The records of one thread.
pub struct Recorder {
    /// By command.
    pub rows: Vec<Row>,
    /// Delay of writes although a connection was free, in microseconds.
    pub lag: Histogram<u64>,
    /// Bytes of requests.
    pub sent_bytes: u64,
    /// Bytes of replies.
    pub received_bytes: u64,
    /// Number of requests written.
    pub sent: u64,
    /// Number of requests that were due and never written; their waits are in the response times.
    pub unsent: u64,
    /// Number of requests that were written and not answered at the end; their waits likewise.
    pub unanswered: u64,
    /// Number of requests in flight on lost connections; their waits likewise.
    pub lost: u64,
    /// Number of lost connections.
    pub connections_lost: u64,
    /// Number of failed attempts to connect again.
    pub reconnects_failed: u64,
    /// Texts of error replies, and how often each was the first of its connection.
    pub error_texts: BTreeMap<String, u64>,
    /// Number of recorded replies.
    pub finished: u64,
    /// Number of all replies: those of the warm-up, and errors, as well.
    pub replies: u64,
    /// Sum of their response times.
    pub response_us: u64,
    /// Start of the measured time, on the monotonic clock.
    from_ns: u64,
    /// Requests that were written before the measured time are not recorded either, whenever their replies arrive.
    counts_requests: bool,
    slice_ns: u64,
    slice: Slice,
    slices: mpsc::Sender<Slice>,
}

/// Largest number of different error texts.
const ERROR_TEXTS_MAX: usize = 16;

impl Recorder {
    /// Returns a recorder of this many commands; slices of the time series, each of `slice_ns`, are sent to `slices`.
    pub fn new(rows: usize, paced: bool, slice_ns: u64, slices: mpsc::Sender<Slice>) -> Recorder {
        Recorder {
            rows: (0..rows).map(|_| Row::new(paced)).collect(),
            lag: histogram(DIGITS),
            sent_bytes: 0,
            received_bytes: 0,
            sent: 0,
            unsent: 0,
            unanswered: 0,
            lost: 0,
            connections_lost: 0,
            reconnects_failed: 0,
            error_texts: BTreeMap::new(),
            finished: 0,
            replies: 0,
            response_us: 0,
            from_ns: 0,
            counts_requests: false,
            slice_ns,
            slice: Slice::new(0),
            slices,
        }
    }

    /// Sets the start of the measured time; earlier replies are not recorded.
    pub fn measure_from(&mut self, from_ns: u64) {
        self.from_ns = from_ns;
    }

    /// Counts requests written in the measured time, and not replies: as many as were asked for.
    pub fn count_requests(&mut self) {
        self.counts_requests = true;
    }

    /// Returns true if the outcome of a request that was written then is recorded.
    pub fn counts(&self, sent_ns: u64) -> bool {
        !self.counts_requests || self.is_measuring(sent_ns)
    }

    /// Returns true if the measured time has begun.
    pub fn is_measuring(&self, now_ns: u64) -> bool {
        now_ns >= self.from_ns
    }

    /// Records `count` replies.
    #[inline]
    pub fn answered(&mut self, answered: Answered, count: u64, now_ns: u64) {
        self.replies += count;
        if !self.is_measuring(now_ns) || !self.counts(answered.sent_ns) {
            return;
        }
        self.turn_slice(now_ns);
        let row = &mut self.rows[answered.row as usize];
        match answered.outcome {
            Outcome::Value => row.values += count,
            Outcome::Empty => {
                row.values += count;
                row.empty += count;
            }
            Outcome::Array { elements, nulls } => {
                row.values += count;
                row.elements += u64::from(elements) * count;
                row.null_elements += u64::from(nulls) * count;
            }
            Outcome::Null => row.nulls += count,
            Outcome::Error => {
                row.errors += count;
                self.slice.errors += count;
                return;
            }
        }
        let response_us = microseconds(answered.due_ns, now_ns);
        row.response.saturating_record_n(response_us, count);
        if let Some(service) = &mut row.service {
            service.saturating_record_n(microseconds(answered.sent_ns, now_ns), count);
        }
        self.slice.response.saturating_record_n(response_us, count);
        self.finished += count;
        self.response_us += response_us * count;
    }

    /// Records `count` requests that will not be answered: their response times are at least until now.
    pub fn given_up(&mut self, row: u32, count: u64, due_ns: u64, why: GivenUp, now_ns: u64) {
        if !self.is_measuring(now_ns) {
            return;
        }
        self.turn_slice(now_ns);
        match why {
            GivenUp::Unsent => self.unsent += count,
            GivenUp::Unanswered => self.unanswered += count,
            GivenUp::Lost => self.lost += count,
        }
        let us = microseconds(due_ns, now_ns);
        let row = &mut self.rows[row as usize];
        row.response.saturating_record_n(us, count);
        self.slice.response.saturating_record_n(us, count);
        self.slice.given_up += count;
    }

    /// Records the delay of a write.
    #[inline]
    pub fn lagged(&mut self, should_ns: u64, now_ns: u64) {
        if self.is_measuring(now_ns) {
            self.lag.saturating_record(microseconds(should_ns, now_ns));
        }
    }

    /// Keeps the text of an error.
    pub fn error_text(&mut self, text: String) {
        if self.error_texts.len() < ERROR_TEXTS_MAX || self.error_texts.contains_key(&text) {
            *self.error_texts.entry(text).or_default() += 1;
        }
    }

    /// Sends the slice if its time is over.
    pub fn turn_slice(&mut self, now_ns: u64) {
        let index = now_ns.saturating_sub(self.from_ns) / self.slice_ns;
        if index > self.slice.index {
            self.hand_over(index);
        }
    }

    /// Returns the end of the current slice, on the monotonic clock.
    pub fn slice_ends_ns(&self) -> u64 {
        let length = self.slice_ns.saturating_mul(self.slice.index + 1);
        self.from_ns.saturating_add(length)
    }

    /// Sends the last slice.
    pub fn finish(&mut self) {
        self.hand_over(self.slice.index + 1);
    }

    fn hand_over(&mut self, next: u64) {
        if self.slice.response.is_empty() && self.slice.errors == 0 {
            self.slice.index = next;
        } else {
            let done = std::mem::replace(&mut self.slice, Slice::new(next));
            // The receiver is gone if the run was given up.
            let _ = self.slices.send(done);
        }
    }
}

/// Returns the span between two moments, rounded.
pub fn microseconds(from_ns: u64, to_ns: u64) -> u64 {
    (to_ns.saturating_sub(from_ns) + 500) / 1000
}

#[cfg(test)]
mod tests {
    use super::*;

    fn recorder() -> (Recorder, mpsc::Receiver<Slice>) {
        let (sender, slices) = mpsc::channel();
        let mut recorder = Recorder::new(1, true, 1_000_000, sender);
        recorder.measure_from(10_000_000);
        (recorder, slices)
    }

    fn value(due_ns: u64, sent_ns: u64) -> Answered {
        Answered {
            row: 0,
            due_ns,
            sent_ns,
            outcome: Outcome::Value,
        }
    }

    #[test]
    fn response_time_begins_when_due_and_service_time_when_written() {
        let (mut recorder, _slices) = recorder();
        recorder.answered(value(10_000_000, 10_300_000), 1, 10_500_000);
        let row = &recorder.rows[0];
        assert_eq!(row.response.max(), 500);
        assert_eq!(row.service.as_ref().unwrap().max(), 200);
    }

    #[test]
    fn warm_up_is_not_recorded() {
        let (mut recorder, slices) = recorder();
        recorder.answered(value(1, 2), 5, 9_999_999);
        recorder.given_up(0, 1, 1, GivenUp::Unanswered, 9_999_999);
        recorder.finish();
        assert_eq!(recorder.rows[0].values + recorder.unanswered, 0);
        assert!(slices.try_recv().is_err());
    }

    #[test]
    fn slices_are_handed_over_when_their_time_is_over_and_empty_ones_are_left_out() {
        let (mut recorder, slices) = recorder();
        recorder.answered(value(10_000_000, 10_000_000), 2, 10_900_000);
        recorder.answered(value(10_000_000, 10_000_000), 3, 13_100_000);
        recorder.finish();
        let slices: Vec<_> = slices.try_iter().collect();
        let figures: Vec<_> = slices
            .iter()
            .map(|slice| (slice.index, slice.response.len(), slice.response.max()))
            .collect();
        assert_eq!(figures, [(0, 2, 900), (3, 3, 3_101)]); // three digits
    }

    #[test]
    fn errors_have_no_latency() {
        let (mut recorder, _slices) = recorder();
        let error = Answered {
            outcome: Outcome::Error,
            ..value(10_000_000, 10_000_000)
        };
        recorder.answered(error, 4, 10_100_000);
        assert_eq!(
            (recorder.rows[0].errors, recorder.rows[0].response.len()),
            (4, 0)
        );
    }

    #[test]
    fn who_was_not_answered_has_waited_until_the_end() {
        let (mut recorder, _slices) = recorder();
        recorder.given_up(0, 1, 10_000_000, GivenUp::Unanswered, 12_000_000);
        recorder.given_up(0, 2, 11_000_000, GivenUp::Unsent, 12_000_000);
        assert_eq!((recorder.unanswered, recorder.unsent), (1, 2));
        assert_eq!(recorder.rows[0].response.len(), 3);
        assert_eq!(recorder.slice.given_up, 3);
        assert!(recorder.rows[0].response.max() >= 2_000);
    }
}
