//! Signals as events: a handler that writes one byte to a socket, whose other end is registered with a poller.
//!
//! Unlike `signalfd`, this needs no signal mask, which every thread of the process would have to share: so a library
//! can use it inside a program that it does not own. It must not know the effect of a signal.

use std::io::{self, Read as _};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};
use std::os::unix::net::UnixStream;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicI32, Ordering};

/// A signal that can be received.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Signal {
    /// SIGTERM: end, politely.
    Terminate,
    /// SIGINT: Ctrl-C.
    Interrupt,
    /// SIGHUP: the terminal went away, or the configuration should be read again.
    Hangup,
    /// SIGQUIT: Ctrl-\.
    Quit,
    /// SIGTSTP: Ctrl-Z. A process that receives it is not stopped.
    Suspend,
}

impl Signal {
    const ALL: [Signal; 5] = [
        Signal::Terminate,
        Signal::Interrupt,
        Signal::Hangup,
        Signal::Quit,
        Signal::Suspend,
    ];

    fn number(self) -> libc::c_int {
        match self {
            Signal::Terminate => libc::SIGTERM,
            Signal::Interrupt => libc::SIGINT,
            Signal::Hangup => libc::SIGHUP,
            Signal::Quit => libc::SIGQUIT,
            Signal::Suspend => libc::SIGTSTP,
        }
    }

    fn from_number(number: libc::c_int) -> Option<Self> {
        Signal::ALL
            .into_iter()
            .find(|signal| signal.number() == number)
    }
}

/// Receives signals while it lives; when it is dropped, they do again what they did before.
///
/// Register it with a [`crate::Poller`], and after each readable event call [`Signals::next`] until `None`.
pub struct Signals {
    receiver: &'static UnixStream,
    before: Vec<(libc::c_int, libc::sigaction)>,
}

impl Signals {
    /// Receives `signals` from now on. One receiver at a time in a process: a second is an error.
    pub fn install(signals: &[Signal]) -> io::Result<Self> {
        let channel = channel()?;
        if INSTALLED.swap(true, Ordering::AcqRel) {
            return Err(io::Error::new(
                io::ErrorKind::AlreadyExists,
                "signals are already received elsewhere",
            ));
        }
        let mut installed = Signals {
            receiver: &channel.receiver,
            before: Vec::with_capacity(signals.len()),
        };
        while installed.next().is_some() {} // left over from an earlier receiver
        ASKED_TO_END.store(false, Ordering::Release);
        SENDER_FD.store(channel.sender.as_raw_fd(), Ordering::Release);
        for signal in signals {
            let before = set_action(signal.number(), &handler_action())?;
            installed.before.push((signal.number(), before));
        }
        Ok(installed)
    }

    /// Makes the process end at once, with exit code 1, at a SIGINT that comes after a SIGINT or a SIGTERM: a user who
    /// presses Ctrl-C again does not want to wait any more, and the thread that would handle it may be the one that is
    /// stuck.
    pub fn insistently(self) -> Self {
        INSISTENT.store(true, Ordering::Release);
        self
    }

    /// Returns the next signal that has come. One may come after a `None`.
    pub fn next(&self) -> Option<Signal> {
        let mut number = [0];
        let mut receiver = self.receiver;
        loop {
            match receiver.read(&mut number) {
                Ok(1) => {
                    if let Some(signal) = Signal::from_number(number[0].into()) {
                        return Some(signal);
                    }
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                _ => return None,
            }
        }
    }
}

impl AsFd for Signals {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.receiver.as_fd()
    }
}

impl Drop for Signals {
    fn drop(&mut self) {
        for (number, before) in self.before.iter().rev() {
            // It was this process's action before, so it can be set again.
            let _ = set_action(*number, before);
        }
        INSISTENT.store(false, Ordering::Release);
        INSTALLED.store(false, Ordering::Release);
    }
}

/// Both ends of the socket. They are made once and never closed: a handler that is just running in another thread
/// can then never write to a descriptor that has come to mean something else.
struct Channel {
    sender: UnixStream,
    receiver: UnixStream,
}

static CHANNEL: OnceLock<Channel> = OnceLock::new();
static SENDER_FD: AtomicI32 = AtomicI32::new(-1);
static INSTALLED: AtomicBool = AtomicBool::new(false);
/// See [`Signals::insistently`].
static INSISTENT: AtomicBool = AtomicBool::new(false);
/// SIGINT or SIGTERM has come.
static ASKED_TO_END: AtomicBool = AtomicBool::new(false);
const INSISTED: &[u8] = b"Interrupted again: ending at once.\n";

fn channel() -> io::Result<&'static Channel> {
    if let Some(channel) = CHANNEL.get() {
        return Ok(channel);
    }
    let (sender, receiver) = UnixStream::pair()?;
    sender.set_nonblocking(true)?;
    receiver.set_nonblocking(true)?;
    Ok(CHANNEL.get_or_init(|| Channel { sender, receiver }))
}

/// Runs as a signal handler: between any two instructions of any thread. So it calls only what is async-signal-safe,
/// and leaves `errno` as it was. A full socket loses the byte, which then has many predecessors.
extern "C" fn on_signal(number: libc::c_int) {
    let byte = number as u8;
    if matches!(number, libc::SIGINT | libc::SIGTERM)
        && ASKED_TO_END.swap(true, Ordering::AcqRel)
        && number == libc::SIGINT
        && INSISTENT.load(Ordering::Acquire)
    {
        // SAFETY: both are async-signal-safe, and the text lives for ever. Nothing is cleaned up: that might wait.
        unsafe {
            libc::write(
                libc::STDERR_FILENO,
                INSISTED.as_ptr().cast(),
                INSISTED.len(),
            );
            libc::_exit(1);
        }
    }
    // SAFETY: `send` is async-signal-safe, the descriptor is never closed, `byte` outlives the call, and the place of
    // this thread's `errno` is always valid.
    unsafe {
        let errno = libc::__errno_location();
        let saved = *errno;
        let flags = libc::MSG_NOSIGNAL | libc::MSG_DONTWAIT;
        libc::send(
            SENDER_FD.load(Ordering::Acquire),
            (&raw const byte).cast(),
            1,
            flags,
        );
        *errno = saved;
    }
}

fn handler_action() -> libc::sigaction {
    // SAFETY: sigaction is plain data, for which all zero is valid: default action, empty mask, no flags.
    let mut action: libc::sigaction = unsafe { std::mem::zeroed() };
    let handler: extern "C" fn(libc::c_int) = on_signal;
    action.sa_sigaction = handler as usize;
    // Calls that the signal interrupts are restarted where they can be: the program around us need not know.
    action.sa_flags = libc::SA_RESTART;
    action
}

/// Sets the action of a signal and returns the one before.
fn set_action(number: libc::c_int, action: &libc::sigaction) -> io::Result<libc::sigaction> {
    // SAFETY: sigaction is plain data, for which all zero is valid.
    let mut before: libc::sigaction = unsafe { std::mem::zeroed() };
    // SAFETY: both point to a sigaction for the time of the call; the handler in `action` is either `on_signal`, which
    // is safe to run at any time, or what this process had installed before.
    let result = unsafe { libc::sigaction(number, action, &mut before) };
    if result == 0 {
        Ok(before)
    } else {
        Err(io::Error::last_os_error())
    }
}
