//! MIGRATE's network: threads that send keys to other servers, their connections, and the calls that wait for them.
//!
//! A call is answered in two runs. The first serialises its keys and leaves them here as a [`Job`]; its client is suspended,
//! holding nothing. A thread sends the job and notes the answer, and has the call run again, which takes the answer up (see
//! `admin/migrate.rs`). Threads are started when there is work, and end when there has been none for a while; connections are
//! kept for some seconds, since who moves keys moves many.
//!
//! Must not know: keys, stripes, what a target's error means for the source.

pub(crate) mod wire;

use std::{
    collections::{HashMap, VecDeque},
    io::{self, BufRead, BufReader, Read, Write},
    sync::{
        Arc, Condvar, Mutex, MutexGuard, Weak,
        atomic::{AtomicUsize, Ordering},
    },
    time::{Duration, Instant},
};

use redline_engine::{Message, caller::EndedWatch};
use redline_net::{Address, tls::ClientTlsOptions};
use redline_resp::{Args, ArgsBuf};

use crate::{log, shared::Shared, start};
use wire::Wire;

/// Threads that send at the same time; further jobs wait.
const THREADS_MAX: usize = 16;
/// Time for which an unused connection is kept.
const KEPT: Duration = Duration::from_secs(10);
/// Connections that are kept.
const KEPT_MAX: usize = 64;
/// Interval in which threads look for connections to close.
const LOOK: Duration = Duration::from_secs(1);
/// Longest line of a reply: bytes.
const LINE_BYTES_MAX: u64 = 64 * 1024;

/// Keys on their way, and connections to where they go.
#[derive(Default)]
pub(crate) struct Migrations {
    pool: Arc<Pool>,
    /// Number of moves.
    count: AtomicUsize,
}

#[derive(Default)]
struct Pool {
    state: Mutex<State>,
    work: Condvar,
}

#[derive(Default)]
struct State {
    /// By the id of the client.
    moves: HashMap<u64, Move>,
    queue: VecDeque<(u64, Job)>,
    threads: usize,
    idle: usize,
    kept: Vec<Connection>,
}

/// A call of MIGRATE whose keys have been sent or are about to be.
pub(crate) struct Move {
    /// The call.
    pub(crate) args: ArgsBuf,
    /// Keys of the job, in its order, each with the flag that is raised when it changes; none are watched that stay.
    pub(crate) sent: Vec<EndedWatch>,
    /// Number of jobs so far.
    pub(crate) rounds: u32,
    /// The first error of the target to earlier jobs.
    pub(crate) error: Option<Vec<u8>>,
    /// The answer, when it is there.
    pub(crate) answer: Option<Answer>,
}

/// Stage of a client's move.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Stage {
    /// There is none.
    None,
    /// The target has not answered.
    Sent,
    /// The answer is there.
    Answered,
    /// The move belongs to another call, which was refused meanwhile.
    Stale,
}

/// A server to which keys go, and as whom.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Target {
    /// Name or address.
    pub(crate) host: String,
    /// Port, as it was given.
    pub(crate) port: String,
    /// Arguments of AUTH; none: it is not sent.
    pub(crate) auth: Vec<Box<[u8]>>,
    /// The way to speak TLS to it; none: without.
    pub(crate) tls: Option<ClientTlsOptions>,
}

/// Commands for a target.
#[derive(Debug)]
pub(crate) struct Job {
    /// The server.
    pub(crate) target: Target,
    /// Number of its database, which it may not have.
    pub(crate) db: i64,
    /// Longest silence of the target.
    pub(crate) timeout: Duration,
    /// The commands, as arrays of bulk strings.
    pub(crate) frames: Vec<u8>,
    /// Their number.
    pub(crate) count: usize,
}

/// The answer of a target to a job.
#[derive(Debug, Default)]
pub(crate) struct Answer {
    /// Error for AUTH or SELECT: no command was sent.
    pub(crate) refused: Option<Vec<u8>>,
    /// A reply for each command, as far as they came; the text of an error without its `-`.
    pub(crate) replies: Vec<Result<(), Vec<u8>>>,
    /// Why the others did not.
    pub(crate) failure: Option<Failure>,
}

/// Failure of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Failure {
    /// There is none.
    Connecting,
    /// The target does not take what it is sent.
    Writing,
    /// The target does not answer.
    Reading,
}

struct Connection {
    target: Target,
    wire: Wire,
    /// The database that is selected, if that is known.
    db: Option<i64>,
    used: Instant,
}

/// Adds a command to bytes for a target.
pub(crate) fn push_command(out: &mut Vec<u8>, words: &[&[u8]]) {
    // Writing into memory does not fail.
    let _ = write!(out, "*{}\r\n", words.len());
    for word in words {
        let _ = write!(out, "${}\r\n", word.len());
        out.extend_from_slice(word);
        out.extend_from_slice(b"\r\n");
    }
}

impl Migrations {
    /// Returns the stage of a client's move, for a call that it makes.
    pub(crate) fn stage(&self, client: u64, args: Args<'_>) -> Stage {
        if self.count.load(Ordering::Acquire) == 0 {
            return Stage::None;
        }
        match self.pool.state().moves.get(&client) {
            None => Stage::None,
            Some(known) if !known.args.as_args().iter().eq(args.iter()) => Stage::Stale,
            Some(known) if known.answer.is_none() => Stage::Sent,
            Some(_) => Stage::Answered,
        }
    }

    /// Takes a client's move out, whatever its stage.
    pub(crate) fn take(&self, client: u64) -> Option<Move> {
        if self.count.load(Ordering::Acquire) == 0 {
            return None;
        }
        let mut state = self.pool.state();
        let taken = state.moves.remove(&client);
        self.count.store(state.moves.len(), Ordering::Release);
        taken
    }

    /// Has a job done by a thread, for a client whose call runs again when the answer is there.
    pub(crate) fn send(&self, shared: &Arc<Shared>, client: u64, call: Move, job: Job) {
        let mut state = self.pool.state();
        state.moves.insert(client, call);
        self.count.store(state.moves.len(), Ordering::Release);
        state.queue.push_back((client, job));
        let lacks = state.queue.len() > state.idle && state.threads < THREADS_MAX;
        if lacks && !self.pool.spawn(&mut state, shared) && state.threads == 0 {
            // Nobody will do it.
            state.queue.clear();
            drop(state);
            let answer = Answer {
                failure: Some(Failure::Connecting),
                ..Answer::default()
            };
            self.pool.answered(shared, client, answer);
            return;
        }
        drop(state);
        self.pool.work.notify_one();
    }

    /// Does a job on this thread, which waits for the target.
    pub(crate) fn send_and_wait(&self, shared: &Arc<Shared>, job: &Job) -> Answer {
        let answer = self.pool.exchange(job);
        let mut state = self.pool.state();
        if !state.kept.is_empty() && state.threads == 0 {
            // It closes the connection in time.
            self.pool.spawn(&mut state, shared);
        }
        answer
    }

    /// Returns the number of connections that are kept for further use.
    pub(crate) fn kept(&self) -> usize {
        self.pool.state().kept.len()
    }
}

impl Pool {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().expect("no panic under the migrations")
    }

    fn spawn(self: &Arc<Pool>, state: &mut State, shared: &Arc<Shared>) -> bool {
        let (pool, shared) = (self.clone(), Arc::downgrade(shared));
        match start::spawn("migrate", move || pool.run(&shared)) {
            Ok(_) => state.threads += 1,
            Err(error) => {
                log::warning(&format!("Failed to start a thread for MIGRATE: {error}"));
                return false;
            }
        }
        true
    }

    /// The life of a thread.
    fn run(&self, shared: &Weak<Shared>) {
        loop {
            let mut state = self.state();
            state.idle += 1;
            let (mut state, _) = self
                .work
                .wait_timeout_while(state, LOOK, |state| state.queue.is_empty())
                .expect("no panic under the migrations");
            state.idle -= 1;
            let next = state.queue.pop_front();
            state.kept.retain(|kept| kept.used.elapsed() < KEPT);
            let Some((client, job)) = next else {
                // One stays for the connections.
                if state.kept.is_empty() || state.threads > 1 || shared.strong_count() == 0 {
                    state.threads -= 1;
                    return;
                }
                continue;
            };
            drop(state);
            let answer = self.exchange(&job);
            let Some(shared) = shared.upgrade() else {
                self.state().threads -= 1;
                return;
            };
            self.answered(&shared, client, answer);
        }
    }

    /// Notes an answer, and has the call run again.
    fn answered(&self, shared: &Shared, client: u64, answer: Answer) {
        let mut state = self.state();
        // Its client may have gone.
        let Some(call) = state.moves.get_mut(&client) else {
            return;
        };
        call.answer = Some(answer);
        drop(state);
        if let Some(token) = shared.token_of(client) {
            shared.send(token, Message::Wake(token));
        }
    }

    // ---- the connection -----------------------------------------------------------------------

    /// Does a job, over a kept connection if there is one. One that the target has closed meanwhile is replaced.
    fn exchange(&self, job: &Job) -> Answer {
        if let Some(mut kept) = self.take_kept(&job.target) {
            let (answer, timed_out) = kept.talk(job);
            if answer.failure.is_none() || timed_out || !answer.replies.is_empty() {
                self.keep(kept, &answer);
                return answer;
            }
        }
        match Connection::open(job) {
            Ok(mut new) => {
                let (answer, _) = new.talk(job);
                self.keep(new, &answer);
                answer
            }
            Err(failure) => Answer {
                failure: Some(failure),
                ..Answer::default()
            },
        }
    }

    fn take_kept(&self, target: &Target) -> Option<Connection> {
        let mut state = self.state();
        let is_like = |kept: &Connection| kept.target == *target && kept.used.elapsed() < KEPT;
        let at = state.kept.iter().position(is_like)?;
        Some(state.kept.swap_remove(at))
    }

    fn keep(&self, mut connection: Connection, answer: &Answer) {
        let mut state = self.state();
        if answer.failure.is_none() && answer.refused.is_none() && state.kept.len() < KEPT_MAX {
            connection.used = Instant::now();
            state.kept.push(connection);
        }
    }
}

impl Connection {
    fn open(job: &Job) -> Result<Connection, Failure> {
        let port: u16 = job.target.port.parse().map_err(|_| Failure::Connecting)?;
        let address = Address::tcp(job.target.host.clone(), port);
        let wire = Wire::connect(&address, job.timeout, job.target.tls.as_ref());
        let wire = wire.map_err(|error| match error.kind() {
            // Redis learns of it only as it writes.
            io::ErrorKind::ConnectionRefused => Failure::Writing,
            _ => Failure::Connecting,
        })?;
        Ok(Connection {
            target: job.target.clone(),
            wire,
            db: None,
            used: Instant::now(),
        })
    }

    /// Sends a job and reads the answer. Returns true with it if the target was silent for too long.
    fn talk(&mut self, job: &Job) -> (Answer, bool) {
        let mut answer = Answer::default();
        let result = self.try_talk(job, &mut answer);
        let Err((failure, error)) = result else {
            return (answer, false);
        };
        answer.failure = Some(failure);
        let timed_out = [io::ErrorKind::WouldBlock, io::ErrorKind::TimedOut];
        (answer, timed_out.contains(&error.kind()))
    }

    fn try_talk(&mut self, job: &Job, answer: &mut Answer) -> Result<(), (Failure, io::Error)> {
        let writing = |error| (Failure::Writing, error);
        let reading = |error| (Failure::Reading, error);
        self.wire.set_timeout(job.timeout);
        let mut replies = BufReader::new(&mut self.wire);
        // Keys must not reach a target that refuses the user or the database: they would land in another one.
        let (mut head, mut awaited) = (Vec::new(), 0);
        if !job.target.auth.is_empty() {
            let auth = job.target.auth.iter().map(|word| &**word);
            push_command(
                &mut head,
                &[&b"AUTH"[..]].into_iter().chain(auth).collect::<Vec<_>>(),
            );
            awaited += 1;
        }
        if self.db != Some(job.db) {
            self.db = None;
            push_command(&mut head, &[b"SELECT", job.db.to_string().as_bytes()]);
            awaited += 1;
        }
        send(replies.get_mut(), &head).map_err(writing)?;
        for _ in 0..awaited {
            let reply = read_reply(&mut replies).map_err(reading)?;
            answer.refused = answer.refused.take().or(reply.err());
        }
        if answer.refused.is_some() {
            return Ok(());
        }
        self.db = Some(job.db);
        send(replies.get_mut(), &job.frames).map_err(writing)?;
        for _ in 0..job.count {
            answer
                .replies
                .push(read_reply(&mut replies).map_err(reading)?);
        }
        Ok(())
    }
}

fn send(wire: &mut Wire, bytes: &[u8]) -> io::Result<()> {
    wire.write_all(bytes)?;
    wire.flush()
}

/// Reads a reply of one line.
fn read_reply(input: &mut impl BufRead) -> io::Result<Result<(), Vec<u8>>> {
    let mut line = Vec::new();
    input.take(LINE_BYTES_MAX).read_until(b'\n', &mut line)?;
    let Some(text) = line.strip_suffix(b"\r\n") else {
        let is_cut = line.last() != Some(&b'\n') && (line.len() as u64) < LINE_BYTES_MAX;
        return Err(match is_cut {
            true => io::ErrorKind::UnexpectedEof.into(),
            false => io::ErrorKind::InvalidData.into(),
        });
    };
    match text.split_first() {
        Some((b'+' | b':', _)) => Ok(Ok(())),
        Some((b'-', text)) => Ok(Err(text.to_vec())),
        _ => Err(io::ErrorKind::InvalidData.into()),
    }
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;

    use super::*;

    fn job(port: u16, count: usize) -> Job {
        let mut frames = Vec::new();
        for _ in 0..count {
            push_command(&mut frames, &[b"DEL", b"k"]);
        }
        Job {
            target: Target {
                host: "127.0.0.1".to_owned(),
                port: port.to_string(),
                auth: vec![b"word"[..].into()],
                tls: None,
            },
            db: 3,
            timeout: Duration::from_secs(20),
            frames,
            count,
        }
    }

    /// Serves connections one after the other: each with these bytes, after which it is closed.
    fn target(answers: &'static [&'static [u8]]) -> (u16, std::thread::JoinHandle<Vec<Vec<u8>>>) {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        let serve = move || {
            let mut heard = Vec::new();
            for answer in answers {
                let (mut stream, _) = listener.accept().unwrap();
                stream.write_all(answer).unwrap();
                stream.shutdown(std::net::Shutdown::Write).unwrap();
                let mut all = Vec::new();
                stream.read_to_end(&mut all).unwrap();
                heard.push(all);
            }
            heard
        };
        (port, std::thread::spawn(serve))
    }

    #[test]
    fn a_job_is_sent_behind_user_and_database() {
        let (port, served) = target(&[b"+OK\r\n+OK\r\n:1\r\n-BUSYKEY no\r\n"]);
        let pool = Pool::default();
        let answer = pool.exchange(&job(port, 2));
        assert_eq!(answer.replies, [Ok(()), Err(b"BUSYKEY no".to_vec())]);
        assert_eq!((answer.failure, answer.refused), (None, None));
        assert_eq!(pool.state().kept.len(), 1);
        pool.state().kept.clear();
        let mut expected = Vec::new();
        push_command(&mut expected, &[b"AUTH", b"word"]);
        push_command(&mut expected, &[b"SELECT", b"3"]);
        push_command(&mut expected, &[b"DEL", b"k"]);
        push_command(&mut expected, &[b"DEL", b"k"]);
        assert_eq!(served.join().unwrap(), [expected]);
    }

    #[test]
    fn keys_do_not_follow_a_refused_database() {
        let (port, served) = target(&[b"+OK\r\n-ERR DB index is out of range\r\n"]);
        let pool = Pool::default();
        let answer = pool.exchange(&job(port, 1));
        assert_eq!(answer.refused.unwrap(), b"ERR DB index is out of range");
        assert!(answer.replies.is_empty() && pool.state().kept.is_empty());
        let heard = served.join().unwrap();
        assert!(!heard[0].windows(3).any(|word| word == b"DEL"));
    }

    #[test]
    fn a_kept_connection_that_has_closed_is_replaced() {
        let (port, served) = target(&[b"+OK\r\n+OK\r\n:1\r\n", b"+OK\r\n+OK\r\n:1\r\n"]);
        let pool = Pool::default();
        assert_eq!(pool.exchange(&job(port, 1)).failure, None);
        // The target has ended its direction: the next job finds it so.
        let answer = pool.exchange(&job(port, 1));
        assert_eq!((answer.failure, answer.replies.len()), (None, 1));
        pool.state().kept.clear();
        assert_eq!(served.join().unwrap().len(), 2);
    }

    #[test]
    fn what_came_before_a_failure_counts() {
        let (port, served) = target(&[b"+OK\r\n+OK\r\n+OK\r\n$3\r\n"]);
        let pool = Pool::default();
        let answer = pool.exchange(&job(port, 3));
        assert_eq!(answer.failure, Some(Failure::Reading));
        assert_eq!(answer.replies, [Ok(())]);
        assert!(pool.state().kept.is_empty());
        served.join().unwrap();
    }
}
