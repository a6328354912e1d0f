//! Messages to a session from other workers, and from other sessions of the same worker, and when it gets them.
//!
//! Must not know: sockets, and what any command does.

use std::{mem, thread, time::Duration};

use redline_net::clock;

use super::Worker;
use crate::{
    log, monitor,
    planes::client::described,
    pubsub::Delivery,
    session::{Caller, Session, Token},
    shared::Message,
    tracking::{self, Invalidation, News, Redirected},
};

/// The class of clients, among the limits of output.
const SUBSCRIBERS: usize = 2;

/// Messages that were fetched before their time.
#[derive(Default)]
pub(super) struct Early {
    messages: Vec<Message>,
    /// The session that has looked last, and how many of the messages it saw: in a long pipeline each command looks at what
    /// is new only.
    heard: Option<(Token, usize)>,
}

impl Early {
    pub(super) fn is_empty(&self) -> bool {
        self.messages.is_empty()
    }

    /// Their time has come.
    fn move_to(&mut self, messages: &mut Vec<Message>) {
        self.heard = None;
        messages.append(&mut self.messages);
    }

    /// Takes out what this session has not looked at yet.
    fn news_for(&mut self, own: Token) -> Vec<Message> {
        match self.heard {
            Some((who, heard)) if who == own => self.messages.split_off(heard),
            _ => mem::take(&mut self.messages),
        }
    }

    /// Puts back what of it is for others as well.
    fn put_back(&mut self, own: Token, mut news: Vec<Message>) {
        self.messages.append(&mut news);
        self.heard = Some((own, self.messages.len()));
    }
}

impl Worker<'_> {
    pub(super) fn fetch_messages(&mut self) {
        let mut messages = mem::take(&mut self.messages);
        self.early.move_to(&mut messages);
        self.mailbox.drain(&mut messages);
        for message in messages.drain(..) {
            self.on_message(message);
        }
        // A nested turn may have left a buffer here; keep the larger one.
        if self.messages.capacity() < messages.capacity() {
            self.messages = messages;
        }
    }

    pub(crate) fn on_message(&mut self, message: Message) {
        match message {
            Message::Connection(stream, peer) => self.open(stream, peer),
            Message::Wake(token) if token.stripe().is_some() => self.unwatch_left(token.stripe()),
            Message::Wake(token) => {
                self.with_session(
                    token,
                    || Message::Wake(token),
                    |worker, session| {
                        if let Some(number) = session.gate
                            && worker.shared.keyspace.journal().gate.is_reached(number)
                        {
                            session.gate = None;
                            worker.write_replies(session);
                            worker.enqueue(token.index());
                        }
                        // A wake-up for an earlier reason may come late.
                        if session.aside.is_some_and(|reason| !reason.is_wanted()) {
                            session.aside = None;
                            worker.enqueue(token.index());
                        }
                    },
                );
            }
            Message::WaitEnded(waiter, outcome) => {
                // A message that has to wait for its session comes again, with its reply.
                let token = Token(waiter.token);
                let mut outcome = Some(outcome);
                let held_back = self.is_out(token);
                if held_back {
                    let outcome = outcome.take().unwrap_or_default();
                    self.places[token.index()]
                        .mail
                        .push(Message::WaitEnded(waiter, outcome));
                    return;
                }
                self.with_session(
                    token,
                    || unreachable!("its session is in its place"),
                    |worker, session| {
                        worker.finish_wait(session, &waiter, outcome.take().unwrap_or_default());
                    },
                );
            }
            Message::Kill(token) => {
                if let Some(to) = self.moved_to(token) {
                    let mailbox = &self.shared.workers()[to.worker()].mailbox;
                    return mailbox.send(Message::Kill(to));
                }
                self.with_session(
                    token,
                    || Message::Kill(token),
                    |worker, session| {
                        session.closing = true;
                        session.out.clear();
                        worker.enqueue(token.index());
                    },
                );
            }
            Message::Deliver(delivery) => self.deliver(&delivery),
            Message::Invalidate(invalidation) => self.invalidate(&invalidation),
            Message::Redirected(redirected) => {
                let to = redirected.to;
                if let Some(to) = self.moved_to(to) {
                    let mailbox = &self.shared.workers()[to.worker()].mailbox;
                    return mailbox.send(Message::Redirected(Redirected { to, ..redirected }));
                }
                let again = || Message::Redirected(redirected.clone());
                self.with_session(to, again, |worker, session| {
                    crate::tracking::write(session, &redirected.news, true);
                    worker.enqueue(to.index());
                });
            }
            Message::Monitored(line) => {
                for token in &line.to {
                    let one = || Message::Monitored(line.to_one(*token));
                    self.with_session(*token, one, |worker, session| {
                        if monitor::write(session, &line) {
                            worker.enqueue(token.index());
                        }
                    });
                }
            }
            Message::ScriptBusy => self.answer_busy(),
            Message::Run(run) => run(self),
            Message::Stop => self.stop = true,
        }
    }

    /// Is this session of ours, and being served?
    fn is_out(&self, token: Token) -> bool {
        self.places.get(token.index()).is_some_and(|place| {
            let own = Token::new(self.number, token.index(), place.generation) == token;
            place.used && own && place.session.is_none() && place.moved_to.is_none()
        })
    }

    /// Does something with a session; if it is being served, the message waits for it.
    pub(super) fn with_session(
        &mut self,
        token: Token,
        message: impl FnOnce() -> Message,
        act: impl FnOnce(&mut Worker, &mut Session),
    ) {
        let Some(place) = self.places.get_mut(token.index()) else {
            return;
        };
        if !place.used || Token::new(self.number, token.index(), place.generation) != token {
            return;
        }
        // What is not sent on (see `on_message`) concerned what the session was waiting for when it was here.
        if place.moved_to.is_some() {
            return;
        }
        match place.session.take() {
            None => place.mail.push(message()),
            Some(mut session) => {
                act(self, &mut session);
                self.places[token.index()].session = Some(session);
            }
        }
    }

    fn deliver(&mut self, delivery: &Delivery) {
        for token in &delivery.to {
            let one = || Message::Deliver(delivery.to_one(*token));
            self.with_session(*token, one, |worker, session| {
                // Published before the session unsubscribed, and overtaken by that: it would be taken for a reply.
                if !session.closing && crate::subscribe::is_subscribed(session, delivery) {
                    crate::subscribe::write_message(session, delivery);
                    // One unit may publish more than a client may have waiting.
                    if session.out.len_bytes() > worker.output_watched_bytes {
                        worker.enforce_output_limit(session);
                    }
                    worker.enqueue(token.index());
                }
            });
        }
    }

    fn invalidate(&mut self, invalidation: &Invalidation) {
        for token in &invalidation.to {
            let one = || {
                Message::Invalidate(Invalidation {
                    to: vec![*token],
                    news: invalidation.news.clone(),
                })
            };
            self.with_session(*token, one, |worker, session| {
                if tracking::hear(session, &invalidation.news) {
                    worker.enqueue(token.index());
                }
            });
        }
    }

    /// Takes what others, or its own command, have to tell a session that is being served out of the mailbox, and
    /// writes it behind the reply of that command: after all of its pipeline would be late. All messages stay in order.
    pub(crate) fn read_own_mail(&mut self, caller: &mut Caller) {
        self.mailbox.drain(&mut self.early.messages);
        let own = caller.card.token();
        let mut news = self.early.news_for(own);
        let mail = &mut self.places[own.index()].mail;
        // What was published comes before what was invalidated, as from Redis.
        for invalidations in [false, true] {
            for message in mail.iter_mut().chain(news.iter_mut()) {
                if matches!(message, Message::Invalidate(_)) == invalidations {
                    hear_early(message, own, caller);
                }
            }
        }
        mail.retain(|message| !is_delivered(message));
        news.retain(|message| !is_delivered(message));
        self.early.put_back(own, news);
    }

    /// Before a script publishes more: hands to this worker's clients what is on its way to them, and gives the other workers
    /// time to do so. Who reads too slowly is closed at its limit, as ever.
    #[inline]
    pub(crate) fn hand_out(&mut self, caller: &mut Caller) {
        let mut workers = self.shared.workers().iter();
        if workers.any(|worker| worker.transit.is_full()) {
            self.hand_out_all(caller);
        }
    }

    #[cold]
    fn hand_out_all(&mut self, caller: &mut Caller) {
        /// One that is busy for longer is not waited for: milliseconds.
        const WAIT_MS_MAX: u64 = 100;
        const LOOK_AGAIN: Duration = Duration::from_micros(50);
        let deadline_ms = clock::monotonic_ms() + WAIT_MS_MAX;
        loop {
            self.mailbox.drain(&mut self.early.messages);
            self.early.heard = None;
            for message in mem::take(&mut self.early.messages) {
                match message {
                    Message::Deliver(delivery) => self.deliver(&delivery),
                    other => self.early.messages.push(other),
                }
            }
            let shared = self.shared;
            let mut workers = shared.workers().iter().enumerate();
            let others_wait =
                workers.any(|(number, worker)| number != self.number && worker.transit.is_full());
            if !others_wait || clock::monotonic_ms() >= deadline_ms {
                break;
            }
            thread::sleep(LOOK_AGAIN);
        }
        // What the script has told its own client waits for it to end.
        if self.shared.workers()[self.number].transit.is_full() {
            self.limit_own_mail(caller);
        }
    }

    /// Closes the client of a running script if more is published to it than it may leave unread.
    fn limit_own_mail(&mut self, caller: &mut Caller) {
        let mail = &mut self.places[caller.card.token().index()].mail;
        let published = mail.iter().map(|message| match message {
            Message::Deliver(delivery) => delivery.len_bytes() as u64,
            _ => 0,
        });
        let published: u64 = published.sum();
        let limit_bytes = self.settings.output_limits[SUBSCRIBERS].hard_bytes;
        if limit_bytes != 0 && published > limit_bytes {
            mail.retain(|message| !matches!(message, Message::Deliver(_)));
            crate::subscribe::forget(self, caller);
            self.stats.output_limit_closed.add(1);
            caller.closing = true;
            let client = described(&caller.card, self.now_ms);
            log::warning(&format!(
                "Client {client} publishes more to itself than it may leave unread, and is closed."
            ));
        }
    }

    /// A session that did not track keys begins to: what changed before is no news for it.
    pub(crate) fn drop_old_invalidations(&mut self, caller: &Caller) {
        self.mailbox.drain(&mut self.early.messages);
        self.early.heard = None;
        let own = caller.card.token();
        let mail = &mut self.places[own.index()].mail;
        let early = &mut self.early.messages;
        for message in mail.iter_mut().chain(early.iter_mut()) {
            if let Message::Invalidate(invalidation) = message {
                invalidation.to.retain(|token| *token != own);
            }
        }
        mail.retain(|message| !is_delivered(message));
        early.retain(|message| !is_delivered(message));
    }
}

/// Lets a session hear of what is meant for it, and takes it off the list of those who have yet to.
fn hear_early(message: &mut Message, own: Token, caller: &mut Caller) {
    match message {
        Message::Deliver(delivery) => {
            // Somebody may be among the subscribers of a pattern and of the channel: each is a message of its own.
            if let Some(at) = delivery.to.iter().position(|token| *token == own) {
                delivery.to.remove(at);
                if crate::subscribe::is_subscribed(caller, delivery) {
                    crate::subscribe::write_message(caller, delivery);
                }
            }
        }
        // What goes to another client, or is gathered, waits until the replies are written.
        Message::Invalidate(invalidation)
            if matches!(invalidation.news, News::Key(_) | News::All)
                && caller
                    .tracking
                    .as_ref()
                    .is_some_and(|mode| mode.redirect.is_none()) =>
        {
            if let Some(at) = invalidation.to.iter().position(|token| *token == own) {
                invalidation.to.remove(at);
                tracking::hear(caller, &invalidation.news);
            }
        }
        Message::Monitored(line) => {
            if let Some(at) = line.to.iter().position(|token| *token == own) {
                line.to.remove(at);
                monitor::write(caller, line);
            }
        }
        _ => {}
    }
}

/// Has everybody it was for got this message?
fn is_delivered(message: &Message) -> bool {
    match message {
        Message::Deliver(delivery) => delivery.to.is_empty(),
        Message::Invalidate(invalidation) => invalidation.to.is_empty(),
        Message::Monitored(line) => line.to.is_empty(),
        _ => false,
    }
}
