//! MONITOR: who is shown every command that runs, and the line that they are shown.
//!
//! # What is shown, and when
//!
//! A command is shown once it has run, also if it answered with an error; not what was refused before (but for an EXEC, whose
//! transaction that ends), and nothing of what administers the server. A command on keys is shown while the unit still holds its stripes: so those that meet the same
//! key are shown in the order in which they ran, over all workers. A script is shown before the commands that it calls,
//! EXEC after those of its queue. A command that waits for keys is shown when it begins to wait.
//!
//! # What it costs when nobody looks
//!
//! Nothing: that somebody does is published with an epoch of the settings, which every worker looks at before every
//! command in any case. So all commands that begin after MONITOR has answered are shown.
//!
//! The list is a leaf among the locks, under the stripes. Lines go to the workers' mailboxes while it is held, so all
//! monitors are shown the same order.
//!
//! Must not know: how a command runs.

use std::sync::{
    Arc, Mutex, PoisonError,
    atomic::{AtomicBool, Ordering},
};

use redline_net::clock;
use redline_observe::quote::quote;
use redline_resp::Args;
use redline_spec::{self as spec, CommandId, Flags};

use crate::{
    exec::{Halt, runs_script},
    redact,
    session::{Caller, Token, flag, state},
    shared::{Message, Shared},
    worker::Worker,
};

/// Those who are shown what runs.
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
    /// The same line for one of its monitors.
    pub fn to_one(&self, token: Token) -> Line {
        let text = self.text.clone();
        Line {
            to: vec![token],
            text,
        }
    }
}

impl Monitors {
    /// Is there anybody?
    pub fn some(&self) -> bool {
        self.some.load(Ordering::Acquire)
    }

    fn change(&self, change: impl FnOnce(&mut Vec<Token>)) {
        let mut list = self.list.lock().unwrap_or_else(PoisonError::into_inner);
        change(&mut list);
        self.some.store(!list.is_empty(), Ordering::Release);
    }

    fn show(&self, shared: &Shared, text: &str) {
        let list = self.list.lock().unwrap_or_else(PoisonError::into_inner);
        let text: Arc<str> = text.into();
        for (number, worker) in shared.workers().iter().enumerate() {
            let own = list.iter().filter(|token| token.worker() == number);
            let to: Vec<Token> = own.copied().collect();
            if !to.is_empty() {
                let text = text.clone();
                worker.mailbox.send(Message::Monitored(Line { to, text }));
            }
        }
    }
}

/// From now on this session is shown what runs.
pub fn begin(shared: &Shared, caller: &mut Caller) {
    set(shared, caller, true);
}

/// Not any more, if it was.
pub fn end(shared: &Shared, caller: &mut Caller) {
    if caller.is(state::MONITOR) {
        set(shared, caller, false);
    }
}

fn set(shared: &Shared, caller: &mut Caller, on: bool) {
    let own = caller.card.token();
    shared.monitors.change(|list| match on {
        true => list.push(own),
        false => list.retain(|token| *token != own),
    });
    caller.set_state(state::MONITOR, on);
    caller.card.set_flag(flag::MONITOR, on);
    shared.settings.move_epoch();
}

/// Writes a line to a monitor; `false`: it is none any more.
pub fn write(caller: &mut Caller, line: &Line) -> bool {
    let shown = caller.is(state::MONITOR) && !caller.closing && !caller.is(state::REPLY);
    if shown {
        caller.reply().simple(&line.text);
    }
    shown
}

impl Worker<'_> {
    /// Shows the monitors a call that has run. `script`: a script has made it.
    #[cold]
    pub(crate) fn show(&self, caller: &Caller, id: CommandId, args: Args<'_>, script: bool) {
        if spec::gate(id).flags.has(Flags::ADMIN) {
            return;
        }
        let now_us = clock::wall_us();
        let (seconds, us) = (now_us / 1_000_000, now_us % 1_000_000);
        let mut line = format!("{seconds}.{us:06} [{} ", caller.db).into_bytes();
        let flags = caller.card.flags.load(Ordering::Relaxed);
        match flags & flag::UNIX != 0 {
            _ if script => line.extend(b"lua"),
            true => {
                let path = &caller.card.laddr;
                let path = path.strip_suffix(":0").unwrap_or(path);
                line.extend(format!("unix:{path}").as_bytes());
            }
            false => line.extend(caller.card.addr.as_bytes()),
        }
        line.push(b']');
        for index in 0..args.len() {
            line.push(b' ');
            quote(redact::shown(id, args, index), &mut line);
        }
        let line = String::from_utf8_lossy(&line);
        self.shared.monitors.show(self.shared, &line);
    }

    /// Shows the monitors a call of the session or the admin plane, whose handler has returned.
    #[cold]
    pub(crate) fn show_returned(
        &self,
        caller: &Caller,
        id: CommandId,
        args: Args<'_>,
        result: &Result<(), Halt>,
    ) {
        let has_shown_itself = result.is_ok() && (runs_script(id) || id == CommandId::Exec);
        let runs_again = matches!(result, Err(Halt::Aside(reason)) if !reason.is_wanted());
        if !has_shown_itself && !runs_again {
            let in_script = self.is_in_script();
            self.show(caller, id, args, in_script);
        }
    }
}
