//! A watch on etcd: a thread that reads its lines, and opens it anew behind the last event when it falls silent.
//!
//! Must not know: what the keys and values mean.

use std::{
    io::{self, BufRead, BufReader, Read},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
        mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel},
    },
    thread,
    time::Duration,
};

use super::{Client, Failed, TRY, WATCH_SILENCE, form};
use crate::{Events, StoreError, Watch};

/// Length of the longest line of a watch: bytes.
const LINE_BYTES_MAX: u64 = 64 << 20;
/// Number of lines that may wait for who watches.
const LINES_MAX: usize = 64;
/// Time between two attempts to open a watch.
const PAUSE: Duration = Duration::from_millis(250);

/// A watch. The thread ends within [`WATCH_SILENCE`] after it is dropped.
pub(super) struct Watching {
    lines: Receiver<Result<Events, StoreError>>,
    ended: Arc<AtomicBool>,
    revision: u64,
}

impl Watching {
    /// Begins to watch the changes of this revision and later ones.
    pub(super) fn start(client: Arc<Client>, from_revision: u64) -> Result<Watching, StoreError> {
        let (tell, lines) = sync_channel(LINES_MAX);
        let ended = Arc::new(AtomicBool::new(false));
        let mut reading = Reading {
            client,
            next: from_revision,
            tell,
            ended: ended.clone(),
        };
        let thread = thread::Builder::new().name("watch".into());
        thread
            .spawn(move || while reading.once() {})
            .map_err(|error| StoreError::Unavailable(format!("thread: {error}")))?;
        Ok(Watching {
            lines,
            ended,
            revision: from_revision.saturating_sub(1),
        })
    }
}

impl Watch for Watching {
    fn next(&mut self, timeout: Duration) -> Result<Events, StoreError> {
        match self.lines.recv_timeout(timeout) {
            Ok(Ok(mut events)) => {
                // All that are there.
                while let Ok(Ok(more)) = self.lines.try_recv() {
                    events.revision = more.revision;
                    events.events.extend(more.events);
                }
                self.revision = self.revision.max(events.revision);
                Ok(events)
            }
            Ok(Err(error)) => Err(error),
            Err(RecvTimeoutError::Timeout) => Ok(Events {
                revision: self.revision,
                events: Vec::new(),
            }),
            Err(RecvTimeoutError::Disconnected) => {
                Err(StoreError::Unavailable("the watch has ended".into()))
            }
        }
    }
}

impl Drop for Watching {
    fn drop(&mut self) {
        self.ended.store(true, Ordering::Release);
    }
}

/// Returns true if nothing came for [`WATCH_SILENCE`].
fn is_silence(error: &io::Error) -> bool {
    let inner = error.get_ref().and_then(|it| it.downcast_ref());
    matches!(inner, Some(ureq::Error::Timeout(_)))
        || matches!(
            error.kind(),
            io::ErrorKind::TimedOut | io::ErrorKind::WouldBlock
        )
}

struct Reading {
    client: Arc<Client>,
    /// Revision of the next change.
    next: u64,
    tell: SyncSender<Result<Events, StoreError>>,
    ended: Arc<AtomicBool>,
}

impl Reading {
    /// Opens the watch and reads it to its end. Returns false if it is over.
    fn once(&mut self) -> bool {
        let error = match self.open() {
            Ok(lines) => self.read(lines),
            Err(Failed::Unsent(why) | Failed::Unanswered(why)) => {
                Some(StoreError::Unavailable(why))
            }
            Err(Failed::Fault(fault)) => Some(StoreError::Unavailable(fault.text)),
        };
        if self.ended.load(Ordering::Acquire) {
            return false;
        }
        let Some(error) = error else {
            return true;
        };
        let is_over = matches!(error, StoreError::Compacted(_) | StoreError::Damaged(_));
        let is_told = self.tell.send(Err(error)).is_ok();
        // Another endpoint may be better.
        let last = &self.client.last;
        let next = (last.load(Ordering::Relaxed) + 1) % self.client.options.endpoints.len();
        last.store(next, Ordering::Relaxed);
        if is_told && !is_over {
            thread::sleep(PAUSE);
        }
        is_told && !is_over
    }

    fn open(&self) -> Result<BufReader<impl Read + use<>>, Failed> {
        let client = &self.client;
        let index = client.last.load(Ordering::Relaxed);
        let token = client.token_for(index)?;
        let body = form::watch(&client.options.prefix, self.next);
        let response = client.send(
            index,
            "/v3/watch",
            &body,
            token.as_ref().map(|(token, _)| token.as_str()),
            |config| {
                config
                    .timeout_recv_response(Some(4 * TRY))
                    .timeout_per_read(Some(WATCH_SILENCE))
            },
        )?;
        let status = response.status().as_u16();
        let mut reader = response
            .into_body()
            .into_with_config()
            .limit(u64::MAX)
            .reader();
        if status != 200 {
            let mut answer = Vec::new();
            // An error that does not come whole has no text.
            let _ = (&mut reader).take(1 << 16).read_to_end(&mut answer);
            super::checked(status, answer)?;
        }
        Ok(BufReader::new(reader))
    }

    /// Reads lines until the watch is silent, or fails: then the reason.
    fn read(&mut self, mut lines: BufReader<impl Read>) -> Option<StoreError> {
        let mut line = Vec::new();
        loop {
            line.clear();
            let read = (&mut lines)
                .take(LINE_BYTES_MAX)
                .read_until(b'\n', &mut line);
            if self.ended.load(Ordering::Acquire) {
                return None;
            }
            match read {
                Ok(0) => return Some(StoreError::Unavailable("the watch was closed".into())),
                Ok(_) if line.last() != Some(&b'\n') => {
                    return Some(StoreError::Unavailable("half a line of a watch".into()));
                }
                Ok(_) => {}
                // A connection that is dead without saying so looks the same.
                Err(error) if is_silence(&error) => return None,
                Err(error) => return Some(StoreError::Unavailable(super::in_words(&error))),
            }
            match form::line(&self.client.options.prefix, &line) {
                Ok(events) => {
                    if let Some(back) = self.went_back(&events) {
                        return Some(back);
                    }
                    self.next = self.next.max(events.revision + 1);
                    if self.tell.send(Ok(events)).is_err() {
                        return None;
                    }
                }
                Err(error) => return Some(error),
            }
        }
    }

    /// Returns the error for a store that has forgotten what it had told.
    fn went_back(&self, events: &Events) -> Option<StoreError> {
        let known = self.next.saturating_sub(1);
        (events.revision < known).then(|| {
            StoreError::Damaged(format!(
                "the revision went back from {known} to {}, as of a store that was restored from a copy",
                events.revision
            ))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Gateway, GatewayOptions};

    fn reading(next: u64) -> (Reading, Receiver<Result<Events, StoreError>>) {
        let (tell, told) = sync_channel(LINES_MAX);
        let gateway = Gateway::new(GatewayOptions {
            endpoints: vec!["http://127.0.0.1:1".into()],
            prefix: "/p/".into(),
            ..GatewayOptions::default()
        });
        let reading = Reading {
            client: gateway.expect("its form is right").0,
            next,
            tell,
            ended: Arc::default(),
        };
        (reading, told)
    }

    fn line(revision: u64) -> String {
        format!("{{\"result\":{{\"header\":{{\"revision\":\"{revision}\"}}}}}}\n")
    }

    #[test]
    fn lines_are_told_until_one_is_half_or_goes_back() {
        let (mut reader, told) = reading(5);
        let text = line(7) + &line(9) + "{\"result\"";
        let error = reader.read(BufReader::new(text.as_bytes()));
        assert_eq!(
            error,
            Some(StoreError::Unavailable("half a line of a watch".into()))
        );
        let revisions: Vec<u64> = told
            .try_iter()
            .map(|events| events.unwrap().revision)
            .collect();
        assert_eq!((revisions, reader.next), (vec![7, 9], 10));
        let error = reader.read(BufReader::new(line(8).as_bytes()));
        let Some(StoreError::Damaged(why)) = error else {
            panic!("{error:?}");
        };
        assert!(
            why.starts_with("the revision went back from 9 to 8"),
            "{why}"
        );
        assert!(told.try_iter().next().is_none());
    }

    #[test]
    fn a_watch_that_is_closed_is_no_silence() {
        let (mut reader, _told) = reading(5);
        let error = reader.read(BufReader::new(&b""[..]));
        assert_eq!(
            error,
            Some(StoreError::Unavailable("the watch was closed".into()))
        );
        assert!(is_silence(&io::ErrorKind::TimedOut.into()));
        assert!(!is_silence(&io::ErrorKind::ConnectionReset.into()));
    }
}
