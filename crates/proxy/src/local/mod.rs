//! Commands that the proxy answers itself: those about the client's connection, and those about the proxy. Must not know
//! servers.

mod client;

use std::sync::Arc;

use redline_acl::HELLO_NEEDS_AUTH;
use redline_net::{clock, error_text};
use redline_resp::{Args, Hello, Proto};
use redline_spec::{CommandId, refusal, row};

use crate::client::ReplyMode;
use crate::control::reload;
use crate::errors;
use crate::private::Session;
use crate::serve::Flow;
use crate::slab::Ref;
use crate::worker::{Message, Worker};

pub use client::{Card, NO_COMMAND};

const BETWEEN_WATCH_AND_EXEC: &str =
    "ERR between WATCH and EXEC the proxy changes neither database nor protocol";

impl Worker {
    pub(crate) fn is_in_transaction(&mut self, me: Ref) -> bool {
        self.clients
            .find(me)
            .is_some_and(|client| matches!(client.session, Session::Transaction(_)))
    }

    /// Answers a command of the class `Local`.
    pub(crate) fn local(&mut self, me: Ref, id: CommandId, args: Args<'_>) -> Flow {
        match id {
            CommandId::Ping if args.len() > 2 => self.refuse(me, &errors::wrong_arity(id)),
            CommandId::Ping if self.clients.find(me).is_some_and(|it| it.restricted) => self
                .answer(me, |reply| {
                    reply.array(2);
                    reply.bulk(b"pong");
                    reply.bulk(args.get(1).unwrap_or_default());
                }),
            CommandId::Ping => match args.get(1) {
                None => self.status(me, "PONG"),
                Some(text) => self.answer(me, |reply| reply.bulk(text)),
            },
            CommandId::Echo => self.answer(me, |reply| reply.bulk(&args[1])),
            CommandId::Time => {
                let now_us = clock::wall_us();
                self.answer(me, |reply| {
                    reply.array(2);
                    reply.bulk((now_us / 1_000_000).to_string().as_bytes());
                    reply.bulk((now_us % 1_000_000).to_string().as_bytes());
                })
            }
            CommandId::Wait | CommandId::Waitaof => match heeds_nobody(id, args) {
                Ok(true) => self.answer(me, |reply| match id {
                    CommandId::Wait => reply.integer(0),
                    _ => {
                        reply.array(2);
                        reply.integer(0);
                        reply.integer(0);
                    }
                }),
                Ok(false) => self.reject(me, id, &errors::refused(id)),
                Err(line) => self.refuse(me, line),
            },
            CommandId::Select => self.select(me, &args[1]),
            CommandId::Auth => self.auth(me, args),
            CommandId::Hello => self.hello(me, args),
            CommandId::Quit => {
                self.status(me, "OK");
                Flow::Close
            }
            CommandId::Reset => self.reset(me),
            CommandId::AclWhoami => {
                let name = self.user_name(me);
                self.answer(me, |reply| reply.bulk(&name))
            }
            CommandId::Info => self.info(me, args),
            // As INFO says: who asks writes here, and sees nobody beside us.
            CommandId::Role => self.answer(me, |reply| {
                reply.array(3);
                reply.bulk(b"master");
                reply.integer(0);
                reply.array(0);
            }),
            CommandId::ConfigGet => self.config_get(me, args),
            CommandId::ConfigSet => self.config_set(me, args),
            CommandId::ConfigResetstat => self.reset_stats(me),
            CommandId::Monitor => self.monitor(me),
            id if row(id).container == Some(CommandId::Slowlog) => self.slowlog(me, id, args),
            id if row(id).container == Some(CommandId::Latency) => self.latency(me, id, args),
            _ => self.about_clients(me, id, args),
        }
    }

    fn select(&mut self, me: Ref, text: &[u8]) -> Flow {
        let number = std::str::from_utf8(text)
            .ok()
            .and_then(|text| text.parse::<i64>().ok())
            // No sign, zero or space in front: then it is another text.
            .filter(|number| number.to_string().as_bytes() == text);
        let Some(number) = number else {
            return self.refuse(me, errors::NOT_AN_INTEGER);
        };
        if i32::try_from(number).is_err() {
            return self.refuse(me, errors::NOT_A_SHORT_INTEGER);
        }
        let databases = i64::from(self.home(me).databases);
        if !(0..databases).contains(&number) {
            return self.refuse(me, errors::DB_OUT_OF_RANGE);
        }
        if self.is_in_transaction(me) {
            let stays = self.clients.find(me).map(|client| i64::from(client.db)) == Some(number);
            return match stays {
                true => self.status(me, "OK"),
                false => self.refuse(me, BETWEEN_WATCH_AND_EXEC),
            };
        }
        // Two databases are two connections: what was asked of the first must not come behind what is asked of the second.
        if self.must_wait(me) {
            return Flow::Again;
        }
        self.set_about(me, |client| client.db = number as u16);
        self.status(me, "OK")
    }

    fn auth(&mut self, me: Ref, args: Args<'_>) -> Flow {
        let logged_in = match args.len() {
            2 => self.log_in(me, None, &args[1]),
            3 => self.log_in(me, Some(&args[1]), &args[2]),
            _ => Err(errors::SYNTAX),
        };
        match logged_in {
            Ok(()) => self.status(me, "OK"),
            Err(line) => self.refuse(me, line),
        }
    }

    fn hello(&mut self, me: Ref, args: Args<'_>) -> Flow {
        let mut proto = None;
        if let Some(text) = args.get(1) {
            proto = match text {
                b"2" => Some(Proto::Resp2),
                b"3" => Some(Proto::Resp3),
                text if std::str::from_utf8(text).is_ok_and(|text| text.parse::<i64>().is_ok()) => {
                    return self.refuse(me, "NOPROTO unsupported protocol version");
                }
                _ => {
                    return self
                        .refuse(me, "ERR Protocol version is not an integer or out of range");
                }
            };
        }
        let mut name = None;
        let mut login = None;
        let mut at = 2;
        while at < args.len() {
            let left = args.len() - at - 1;
            if args[at].eq_ignore_ascii_case(b"AUTH") && left >= 2 {
                login = Some((&args[at + 1], &args[at + 2]));
                at += 3;
            } else if args[at].eq_ignore_ascii_case(b"SETNAME") && left >= 1 {
                if !client::is_name(&args[at + 1]) {
                    return self.refuse(me, client::BAD_NAME);
                }
                name = Some(args[at + 1].to_vec());
                at += 2;
            } else {
                let line = refusal::quoting("ERR Syntax error in HELLO option '", &args[at], "'");
                return self.refuse(me, &line);
            }
        }
        if login.is_none() && self.is_nobody(me) {
            return self.refuse(me, HELLO_NEEDS_AUTH);
        }
        if proto.is_some() && self.is_in_transaction(me) {
            return self.refuse(me, BETWEEN_WATCH_AND_EXEC);
        }
        if self.must_wait(me) {
            return Flow::Again;
        }
        if let Some((user, password)) = login
            && let Err(line) = self.log_in(me, Some(user), password)
        {
            return self.refuse(me, line);
        }
        self.set_about(me, |client| {
            if let Some(proto) = proto {
                client.proto = proto;
            }
            if let Some(name) = name {
                client.about.get_or_insert_default().name = name;
            }
        });
        self.restrict(me);
        let Some(client) = self.clients.find(me) else {
            return Flow::Done;
        };
        let hello = Hello {
            server: "redis",
            version: redline_spec::REFERENCE,
            proto: client.proto,
            id: client.id,
            mode: match self.shared.cluster_view {
                Some(_) => "cluster",
                None => "standalone",
            },
            availability_zone: "",
        };
        self.answer(me, |reply| {
            hello.write(reply);
            reply.array(0);
            hello.write_rest(reply);
        })
    }

    /// CONFIG RELOAD, for those who may set parameters.
    pub(crate) fn config_reload(&mut self, me: Ref, args: Args<'_>) -> Flow {
        if let Some(line) = self.refusal(me, CommandId::ConfigSet, args) {
            return self.abort(me, &line);
        }
        match self.must_stand_alone(me, "config|reload") {
            Some(flow) => flow,
            // One at a time: each takes a thread.
            None if self.must_wait(me) => Flow::Again,
            None => self.reload(me),
        }
    }

    /// Refuses a call without a row of clients that are subscribed and speak RESP2, and inside MULTI. `name` is in lower case.
    pub(crate) fn must_stand_alone(&mut self, me: Ref, name: &str) -> Option<Flow> {
        if self.clients.find(me).is_some_and(|it| it.restricted) {
            return Some(self.refuse(me, &refusal::subscribed(name)));
        }
        if !self.is_in_multi(me) {
            return None;
        }
        let name = name.replace('|', " ");
        let line = format!("ERR '{name}' is not available inside MULTI through the proxy");
        Some(self.abort(me, &line))
    }

    /// The configuration is read again, and stays as it is if anything is wrong with it.
    fn reload(&mut self, me: Ref) -> Flow {
        let Some(reload) = self.shared.reload.clone() else {
            return self.refuse(me, "ERR there is nothing to read again");
        };
        let Some(client) = self.clients.find(me) else {
            return Flow::Done;
        };
        let (number, reply_mode) = (client.next, client.reply_mode);
        let mailbox = self.shared.workers[self.number].0.clone();
        let begun = reload.begin(move |ended| {
            let line = ended.err().map(|error| {
                // What is wrong may stand beside a password.
                reload::say_why(&error);
                "ERR the configuration stays as it is; the proxy's log says why".to_owned()
            });
            mailbox.send(Message::Answer(me, number, reply_mode, line));
        });
        match begun {
            Ok(()) => client.number(),
            Err(error) => return self.refuse(me, &format!("ERR {}", error_text(&error))),
        };
        Flow::Done
    }

    /// How CONFIG RELOAD ended.
    pub(crate) fn reloaded(
        &mut self,
        me: Ref,
        number: u32,
        reply_mode: ReplyMode,
        error: Option<String>,
    ) {
        let Some(proto) = self.clients.find(me).map(|client| client.proto) else {
            return;
        };
        self.answer_as(me, number, proto, reply_mode, |reply| match &error {
            Some(line) => reply.error(line),
            None => reply.simple("OK"),
        });
    }

    fn reset(&mut self, me: Ref) -> Flow {
        if self.must_wait(me) {
            return Flow::Again;
        }
        if let Some(client) = self.clients.find(me) {
            let session = std::mem::replace(&mut client.session, Session::Shared);
            // Behind CLIENT REPLY SKIP this is the call that gets no reply.
            if client.reply_mode != ReplyMode::Skipping {
                client.reply_mode = ReplyMode::On;
            }
            client.restricted = false;
            let watched = std::mem::take(&mut client.monitors);
            let subscribed = client.subscribed.take();
            self.abandon(session);
            let shared = Arc::clone(&self.shared);
            if let Some(client) = self.clients.find(me) {
                shared.introduce(client);
            }
            self.leave_all(me, subscribed);
            if watched {
                self.monitor_no_more(me);
            }
        }
        self.set_about(me, |client| {
            client.db = 0;
            client.proto = Proto::Resp2;
            if let Some(about) = &mut client.about {
                about.name.clear();
            }
        });
        self.status(me, "RESET")
    }
}

/// Returns true if WAIT or WAITAOF asks for no server at all: "at least so many have it" is true of none then. An error is
/// what a server says of such arguments.
pub(crate) fn heeds_nobody(id: CommandId, args: Args<'_>) -> Result<bool, &'static str> {
    const TIMEOUT: &str = "ERR timeout is not an integer or out of range";
    let integer = |at: usize| std::str::from_utf8(&args[at]).ok()?.parse::<i64>().ok();
    let (heeds_nobody, timeout) = match id {
        CommandId::Wait => (integer(1).ok_or(errors::NOT_AN_INTEGER)? <= 0, integer(2)),
        _ => {
            let local = integer(1).ok_or(errors::NOT_AN_INTEGER)?;
            if !(0..=1).contains(&local) {
                return Err("ERR value is out of range, value must between 0 and 1");
            }
            let replicas = integer(2).filter(|count| *count >= 0);
            let replicas = replicas.ok_or("ERR value is out of range, must be positive")?;
            (local == 0 && replicas == 0, integer(3))
        }
    };
    match timeout {
        None => Err(TIMEOUT),
        Some(..0) => Err("ERR timeout is negative"),
        Some(_) => Ok(heeds_nobody),
    }
}
