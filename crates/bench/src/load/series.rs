//! The time series of a run: its inputs are slices of all threads, its outputs points and an HDR log of histograms.
//!
//! Memory is bounded: a histogram is kept for the few newest slices only, a point of a hundred bytes for each.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, BufWriter};
use std::sync::mpsc::Receiver;
use std::time::{Duration, SystemTime};

use hdrhistogram::Histogram;
use hdrhistogram::serialization::V2DeflateSerializer;
use hdrhistogram::serialization::interval_log::{
    IntervalLogWriter, IntervalLogWriterBuilder, IntervalLogWriterError,
};

use super::record::{self, Slice};
use super::result::Point;
use crate::load::engine::histogram;

/// A log that other tools of the HDR family read (HistogramLogProcessor and the like): microseconds, by interval.
pub type HdrLog<'a> = IntervalLogWriter<'a, 'a, BufWriter<File>, V2DeflateSerializer>;

/// Begins an HDR log of a run that begins now.
pub fn begin_log<'a>(
    out: &'a mut BufWriter<File>,
    serializer: &'a mut V2DeflateSerializer,
) -> io::Result<HdrLog<'a>> {
    let now = SystemTime::now();
    IntervalLogWriterBuilder::new()
        .add_comment("[Response times of redline bench run, in microseconds]")
        .with_start_time(now)
        .with_base_time(now)
        .begin_log_with(out, serializer)
}

/// Collects slices.
pub struct Series<'a> {
    slices: Receiver<Slice>,
    interval: Duration,
    /// Slices that are incomplete.
    open: BTreeMap<u64, Slice>,
    points: Vec<Point>,
    /// Kept for the live view.
    recent: Option<Recent>,
    log: Option<HdrLog<'a>>,
    /// The first failure to write the log.
    failed: Option<io::Error>,
}

/// Measurements so far, and those in the newest slice of any thread.
pub struct Recent {
    /// Response times of all slices.
    pub so_far: Histogram<u64>,
    /// The newest one.
    pub latest: Slice,
}

impl Recent {
    fn add(&mut self, slice: &Slice) {
        record::add(&mut self.so_far, &slice.response);
        if slice.index > self.latest.index {
            self.latest = Slice::new(slice.index);
        }
        if slice.index == self.latest.index {
            record::add(&mut self.latest.response, &slice.response);
        }
    }
}

/// Number of newest slices that are kept open: threads send theirs at their ends, give or take a turn.
const OPEN_MAX: usize = 4;
/// Largest number of points: at one per second, twelve days.
const POINTS_MAX: u64 = 1 << 20;

impl<'a> Series<'a> {
    /// Returns a collector of `slices`, each of them `interval` long.
    pub fn new(slices: Receiver<Slice>, interval: Duration, log: Option<HdrLog<'a>>) -> Series<'a> {
        Series {
            slices,
            interval,
            open: BTreeMap::new(),
            points: Vec::new(),
            recent: None,
            log,
            failed: None,
        }
    }

    /// Keeps the figures of [`Series::recent`] from now on.
    pub fn keep_recent(&mut self) {
        self.recent = Some(Recent {
            so_far: histogram(record::DIGITS),
            latest: Slice::new(0),
        });
    }

    /// Returns the measurements so far, if they are kept.
    pub fn recent(&self) -> Option<&Recent> {
        self.recent.as_ref()
    }

    /// Takes the slices that have arrived.
    pub fn absorb(&mut self) {
        while let Ok(slice) = self.slices.try_recv() {
            if let Some(recent) = &mut self.recent {
                recent.add(&slice);
            }
            // A stalled thread may be late: its slice belongs to a closed point, and is added to the oldest open one.
            let index = slice.index.max(self.points.len() as u64);
            match self.open.entry(index) {
                std::collections::btree_map::Entry::Vacant(place) => {
                    place.insert(Slice { index, ..slice });
                }
                std::collections::btree_map::Entry::Occupied(mut merged) => {
                    merged.get_mut().add(&slice);
                }
            }
            while self.open.len() > OPEN_MAX {
                self.close_oldest();
            }
        }
    }

    /// Returns all points, with empty ones up to `elapsed`, and the reason if the log could not be written.
    pub fn finish(mut self, elapsed: Duration) -> (Vec<Point>, Option<io::Error>) {
        self.absorb();
        while !self.open.is_empty() {
            self.close_oldest();
        }
        let planned = (elapsed.as_secs_f64() / self.interval.as_secs_f64()).ceil() as u64;
        self.fill_up_to(planned);
        (self.points, self.failed)
    }

    fn close_oldest(&mut self) {
        let Some((index, slice)) = self.open.pop_first() else {
            return;
        };
        self.fill_up_to(index);
        if index >= POINTS_MAX {
            return;
        }
        let response = &slice.response;
        self.points.push(Point {
            answered: response.len() - slice.given_up,
            unanswered: slice.given_up,
            errors: slice.errors,
            mean_us: response.mean(),
            p50_us: response.value_at_percentile(50.0),
            p99_us: response.value_at_percentile(99.0),
            p99_9_us: response.value_at_percentile(99.9),
            max_us: response.max(),
            ..self.empty(index)
        });
        self.write_log(index, response);
    }

    fn write_log(&mut self, index: u64, response: &Histogram<u64>) {
        let start = self.interval.mul_f64(index as f64);
        let written = self
            .log
            .as_mut()
            .map(|log| log.write_histogram(response, start, self.interval, None));
        if let Some(Err(error)) = written
            && self.failed.is_none()
        {
            self.failed = Some(match error {
                IntervalLogWriterError::IoError(error) => error,
                IntervalLogWriterError::SerializeError(error) => {
                    io::Error::other(error.to_string())
                }
            });
        }
    }

    fn fill_up_to(&mut self, index: u64) {
        while (self.points.len() as u64) < index.min(POINTS_MAX) {
            self.points.push(self.empty(self.points.len() as u64));
        }
    }

    fn empty(&self, index: u64) -> Point {
        let at_ns = u128::from(index) * self.interval.as_nanos();
        Point {
            at_s: at_ns as f64 / 1e9,
            ..Point::default()
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;

    use hdrhistogram::serialization::Deserializer;
    use hdrhistogram::serialization::interval_log::{IntervalLogIterator, LogEntry};

    use super::*;

    fn slice(index: u64, us: u64, count: u64) -> Slice {
        let mut slice = Slice::new(index);
        slice.response.record_n(us, count).unwrap();
        slice.errors = 1;
        slice
    }

    fn points(slices: &[(u64, u64, u64)], elapsed_s: u64) -> Vec<Point> {
        let (sender, receiver) = mpsc::channel();
        let mut series = Series::new(receiver, Duration::from_secs(1), None);
        for &(index, us, count) in slices {
            sender.send(slice(index, us, count)).unwrap();
            series.absorb();
            assert!(series.open.len() <= OPEN_MAX);
        }
        series.finish(Duration::from_secs(elapsed_s)).0
    }

    #[test]
    fn who_was_given_up_is_not_answered() {
        let (sender, receiver) = mpsc::channel();
        let mut given_up = slice(0, 900, 3);
        given_up.given_up = 2;
        sender.send(given_up).unwrap();
        let series = Series::new(receiver, Duration::from_secs(1), None);
        let (points, _) = series.finish(Duration::from_secs(1));
        let [point] = points.as_slice() else {
            panic!("{points:?}")
        };
        assert_eq!(
            (point.answered, point.unanswered, point.p99_us),
            (1, 2, 900)
        );
    }

    #[test]
    fn slices_of_several_threads_become_one_point() {
        let points = points(&[(0, 100, 3), (1, 50, 1), (0, 300, 1)], 2);
        assert_eq!(points.len(), 2);
        assert_eq!(
            (points[0].answered, points[0].max_us, points[0].errors),
            (4, 300, 2)
        );
        assert_eq!((points[0].at_s, points[1].at_s), (0.0, 1.0));
    }

    #[test]
    fn gaps_are_points_too_and_nothing_is_lost_when_it_comes_late() {
        let slices: Vec<_> = [0, 5, 6, 7, 8, 9, 10, 0].map(|index| (index, 10, 2)).into();
        let points = points(&slices, 12);
        assert_eq!(points.len(), 12);
        assert_eq!(points.iter().map(|point| point.answered).sum::<u64>(), 16);
        assert!((1..5).all(|index| points[index].answered == 0));
        assert!(
            points
                .iter()
                .enumerate()
                .all(|(index, point)| point.at_s == index as f64)
        );
    }

    #[test]
    fn a_series_of_millions_of_pieces_keeps_so_many_points_and_no_histograms() {
        let (sender, receiver) = mpsc::channel();
        let mut series = Series::new(receiver, Duration::from_millis(1), None);
        for index in (0..5_000_000).step_by(50_000) {
            sender.send(slice(index, 10, 1)).unwrap();
            series.absorb();
            assert!(series.open.len() <= OPEN_MAX);
        }
        let (points, _) = series.finish(Duration::from_secs(5_000));
        assert_eq!(points.len() as u64, POINTS_MAX);
        assert!(points[1_000_000].answered == 1 && points[1_000_001].answered == 0);
    }

    #[test]
    fn the_log_holds_every_interval() {
        let (sender, receiver) = mpsc::channel();
        sender.send(slice(0, 100, 3)).unwrap();
        sender.send(slice(2, 2500, 1)).unwrap();
        let file = tempfile::NamedTempFile::new().unwrap();
        let mut out = BufWriter::new(file.reopen().unwrap());
        let mut serializer = V2DeflateSerializer::new();
        let log = begin_log(&mut out, &mut serializer).unwrap();
        let series = Series::new(receiver, Duration::from_millis(500), Some(log));
        assert!(series.finish(Duration::from_secs(1)).1.is_none());
        drop(out);
        let text = std::fs::read(file.path()).unwrap();
        let entries = IntervalLogIterator::new(&text).map(Result::unwrap);
        let intervals: Vec<_> = entries
            .filter_map(|entry| match entry {
                LogEntry::Interval(interval) => Some(interval),
                _ => None,
            })
            .map(|interval| {
                let bytes = base64_of(interval.encoded_histogram());
                let histogram: Histogram<u64> =
                    Deserializer::new().deserialize(&mut &bytes[..]).unwrap();
                (interval.start_timestamp(), histogram.len(), histogram.max())
            })
            .collect();
        assert_eq!(
            intervals,
            [(Duration::ZERO, 3, 100), (Duration::from_secs(1), 1, 2501)] // three digits
        );
    }

    /// Decodes base64, so that the test needs no library for it.
    fn base64_of(text: &str) -> Vec<u8> {
        let digit = |byte: u8| match byte {
            b'A'..=b'Z' => u32::from(byte - b'A'),
            b'a'..=b'z' => u32::from(byte - b'a') + 26,
            b'0'..=b'9' => u32::from(byte - b'0') + 52,
            b'+' => 62,
            _ => 63,
        };
        let digits = text.trim_end_matches('=').as_bytes();
        let mut out = Vec::new();
        for group in digits.chunks(4) {
            let bits = group.iter().fold(0, |bits, &byte| bits << 6 | digit(byte));
            let bits = bits << (6 * (4 - group.len()));
            out.extend_from_slice(&bits.to_be_bytes()[1..group.len()]);
        }
        out
    }
}
