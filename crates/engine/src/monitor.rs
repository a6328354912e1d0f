//! MONITOR: the clients that get a line for every command, and the format of the line.
//!
//! # Which commands, and when
//!
//! A line is sent once a command has run, also if its reply is an error; not for a refused command (but for an EXEC, whose
//! transaction that ends), nor for commands that administer the server. For a command on keys it is sent while the unit still
//! holds its stripes: so commands on the same key appear in the order in which they ran, over all workers. A script appears
//! before the commands that it calls, EXEC after those of its queue. A command that waits for keys appears when it begins to
//! wait.
//!
//! # Cost without monitors
//!
//! None: the existence of monitors is published with an epoch of the settings, which every worker checks before every command
//! in any case. So all commands that begin after MONITOR's reply are shown.
//!
//! The list is a leaf among the locks, under the stripes. Lines go to the workers' mailboxes while it is held, so all monitors
//! see the same order.
//!
//! Must not know: how a command runs.

use std::sync::{
    Arc, Mutex, PoisonError,
    atomic::{AtomicBool, Ordering},
};

use crate::{
    caller::{Caller, Token, flag, state},
    engine::{Engine, Message},
};

/// Clients in MONITOR.
#[derive(Default)]
pub struct Monitors {
    list: Mutex<Vec<Token>>,
    some: AtomicBool,
}

/// A line on its way to the monitors of one worker.
#[derive(Clone)]
pub struct Line {
    /// The clients that the line is sent to.
    pub to: Vec<Token>,
    /// The line, without its end.
    text: Arc<str>,
}

impl Line {
    /// Returns the same line for one of its monitors.
    pub fn to_one(&self, token: Token) -> Line {
        let text = self.text.clone();
        Line {
            to: vec![token],
            text,
        }
    }
}

impl Monitors {
    /// Returns true if there are monitors.
    pub fn some(&self) -> bool {
        self.some.load(Ordering::Acquire)
    }

    fn change(&self, change: impl FnOnce(&mut Vec<Token>)) {
        let mut list = self.list.lock().unwrap_or_else(PoisonError::into_inner);
        change(&mut list);
        self.some.store(!list.is_empty(), Ordering::Release);
    }

    pub(crate) fn show(&self, engine: &Engine, text: &str) {
        let list = self.list.lock().unwrap_or_else(PoisonError::into_inner);
        let text: Arc<str> = text.into();
        for (number, executor) in engine.executors().iter().enumerate() {
            let own = list.iter().filter(|token| token.executor() == number);
            let to: Vec<Token> = own.copied().collect();
            if !to.is_empty() {
                let text = text.clone();
                executor.mailbox.send(Message::Monitored(Line { to, text }));
            }
        }
    }
}

/// Makes the session a monitor.
pub fn begin(engine: &Engine, caller: &mut Caller) {
    set(engine, caller, true);
}

/// Ends MONITOR of the session, if it is in it.
pub fn end(engine: &Engine, caller: &mut Caller) {
    if caller.is(state::MONITOR) {
        set(engine, caller, false);
    }
}

fn set(engine: &Engine, caller: &mut Caller, on: bool) {
    let own = caller.info.token();
    engine.monitors.change(|list| match on {
        true => list.push(own),
        false => list.retain(|token| *token != own),
    });
    caller.set_state(state::MONITOR, on);
    caller.info.set_flag(flag::MONITOR, on);
    engine.settings.move_epoch();
}

/// Writes a line to a monitor. Returns false if it is none any more.
pub fn write(caller: &mut Caller, line: &Line) -> bool {
    let shown = caller.is(state::MONITOR) && !caller.closing && !caller.is(state::REPLY);
    if shown {
        caller.reply().simple(&line.text);
    }
    shown
}
