//! The main thread's wait: for a deadline, for Ctrl-C, for wake-ups by workers, for a socket of its own.
//!
//! Must not know the purpose of a wait.

use std::io;
use std::os::fd::AsFd;
use std::time::Duration;

use redline_net::{Interest, Poller, Signal, Signals, Waker};

/// The main thread's event loop.
pub struct Control {
    poller: Poller,
    waker: Waker,
    /// Missing if the surrounding program receives signals itself.
    signals: Option<Signals>,
    interrupted: bool,
    /// True if a hang-up is an interruption.
    ends_with_terminal: bool,
}

const WAKE_TOKEN: usize = usize::MAX - 1;
const SIGNAL_TOKEN: usize = usize::MAX - 2;
/// Exclusive upper bound of sockets' tokens.
const EVENTS_MAX: usize = 256;

impl Control {
    /// Returns a control that receives Ctrl-C from now on.
    pub fn new() -> io::Result<Control> {
        // A hang-up of the terminal does not end a run that `nohup` or a remote shell left behind.
        Control::receiving(&[Signal::Interrupt, Signal::Hangup])
    }

    /// Returns a control that takes SIGTERM, SIGQUIT and the end of the terminal as Ctrl-C: for callers that must
    /// restore a terminal. Ctrl-Z does nothing then.
    pub fn of_screen() -> io::Result<Control> {
        let mut control = Control::receiving(&[
            Signal::Interrupt,
            Signal::Hangup,
            Signal::Terminate,
            Signal::Quit,
            Signal::Suspend,
        ])?;
        control.ends_with_terminal = true;
        Ok(control)
    }

    fn receiving(signals: &[Signal]) -> io::Result<Control> {
        let mut poller = Poller::new(EVENTS_MAX)?;
        let waker = poller.waker(WAKE_TOKEN)?;
        let signals = Signals::install(signals).ok();
        if let Some(signals) = &signals {
            poller.register(signals, SIGNAL_TOKEN, Interest::Read)?;
        }
        Ok(Control {
            poller,
            waker,
            signals,
            interrupted: false,
            ends_with_terminal: false,
        })
    }

    /// Returns a handle that ends the current or next [`Control::wait`].
    pub fn waker(&self) -> Waker {
        self.waker.clone()
    }

    /// Returns true if Ctrl-C was pressed since the start.
    pub fn interrupted(&self) -> bool {
        self.interrupted
    }

    /// Watches a socket, whose events then end waits.
    pub fn watch(&self, socket: &impl AsFd, token: usize, interest: Interest) -> io::Result<()> {
        self.poller.register(socket, token, interest)
    }

    /// Waits for any event, at most `timeout`. Returns the tokens of watched sockets with events.
    pub fn wait(&mut self, timeout: Option<Duration>) -> io::Result<Vec<usize>> {
        self.poller.poll(timeout)?;
        while let Some(signal) = self.signals.as_ref().and_then(Signals::next) {
            self.interrupted |= match signal {
                Signal::Suspend => false,
                Signal::Hangup => self.ends_with_terminal,
                Signal::Interrupt | Signal::Terminate | Signal::Quit => true,
            };
        }
        let sockets = self.poller.events().map(|event| event.token);
        Ok(sockets
            .filter(|&token| token != WAKE_TOKEN && token != SIGNAL_TOKEN)
            .collect())
    }
}
