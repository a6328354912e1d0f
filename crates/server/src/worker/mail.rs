//! Messages to a session from other workers, and from other sessions of the same worker, and when they are delivered.
//!
//! Must not know: sockets, and what any command does.

use std::{mem, sync::Arc, thread, time::Duration};

use redline_keyspace::Waiter;
use redline_net::clock;

use super::{Worker, handover, serve};
use crate::{
    log,
    session::{Deferred, Session},
    shared::Message,
};
use redline_engine::{
    Caller, Message as Mail,
    caller::Token,
    executor::{
        block::{self, Finished, Outcome},
        watch,
    },
    monitor,
    pubsub::Delivery,
    session::client::described,
    subscriptions,
    tracking::{self, Invalidation, News, Redirected},
};

/// Index of the class of clients, among the limits of output.
const SUBSCRIBERS: usize = 2;

/// Messages that were fetched early.
#[derive(Default)]
pub(super) struct Early {
    messages: Vec<Message>,
    /// Session that has read last, and the number of messages that it read: in a long pipeline each command reads only
    /// new ones.
    heard: Option<(Token, usize)>,
}

impl Early {
    pub(super) fn is_empty(&self) -> bool {
        self.messages.is_empty()
    }

    /// Moves all messages to `messages`.
    fn move_to(&mut self, messages: &mut Vec<Message>) {
        self.heard = None;
        messages.append(&mut self.messages);
    }

    /// Takes out the messages that this session has not read yet.
    fn news_for(&mut self, own: Token) -> Vec<Message> {
        match self.heard {
            Some((who, heard)) if who == own => self.messages.split_off(heard),
            _ => mem::take(&mut self.messages),
        }
    }

    /// Puts back those of them that are for others as well.
    fn put_back(&mut self, own: Token, mut news: Vec<Message>) {
        self.messages.append(&mut news);
        self.heard = Some((own, self.messages.len()));
    }
}

/// Handles the messages that have come. Returns true if one of them may want more of a turn than that.
pub(super) fn fetch_messages(worker: &mut Worker) -> bool {
    let mut messages = mem::take(&mut worker.outlet.messages);
    worker.outlet.early.move_to(&mut messages);
    worker.outlet.mailbox.drain(&mut messages);
    let wants_turn = messages.iter().any(|it| !matches!(it, Message::Feed(_)));
    for message in messages.drain(..) {
        on_message(worker, message);
    }
    // A nested turn may have left a buffer here; keep the larger one.
    if worker.outlet.messages.capacity() < messages.capacity() {
        worker.outlet.messages = messages;
    }
    wants_turn
}

/// Sends replicas what the turn has brought for them. In the next turn it would come later, and the mail about it would keep
/// the worker from sleeping while requests gather. What other messages ask for is looked at in the next turn, at once.
pub(super) fn feed_replicas(worker: &mut Worker) {
    if worker.depth == 0 && worker.shared.replication.is_kept() {
        worker.outlet.turns_again |= fetch_messages(worker);
    }
    while let Some(token) = worker.outlet.to_feed.pop() {
        serve::feed(worker, token);
    }
}

pub(crate) fn on_message(worker: &mut Worker, message: Message) {
    match message {
        Message::Connection(stream, peer) => worker.open(stream, peer),
        Message::Engine(message) => on_engine_message(worker, message),
        Message::Feed(token) => worker.feed_soon(token),
        Message::Run(run) => run(worker),
        Message::Stop => worker.outlet.stop = true,
    }
}

/// Handles a message about sessions of this worker.
pub(super) fn on_engine_message(worker: &mut Worker, message: Mail) {
    match message {
        Mail::Wake(token) if token.stripe().is_some() => {
            watch::unwatch_left(worker.executor, token.stripe())
        }
        Mail::Wake(token) => wake(worker, token),
        Mail::Released => {
            let gate = &worker.shared.keyspace.journal().gate;
            let released = gate.take_released(&worker.gate);
            for token in released.replies {
                wake(worker, Token(token));
            }
            block::run_released(worker.executor, &released.calls);
        }
        Mail::Pump => worker.pump_now(),
        Mail::WaitEnded(waiter, outcome) => {
            // A message that has to wait for its session is handled again, with its reply.
            let token = Token(waiter.token);
            let mut outcome = Some(outcome);
            let held_back = is_out(worker, token);
            if held_back {
                let outcome = outcome.take().unwrap_or_default();
                worker.outlet.places[token.index()]
                    .mail
                    .push(Mail::WaitEnded(waiter, outcome));
                return;
            }
            with_session(
                worker,
                token,
                || unreachable!("its session is in its place"),
                |worker, session| {
                    end_wait(worker, session, &waiter, outcome.take().unwrap_or_default());
                },
            );
        }
        Mail::Kill(token) => {
            if let Some(to) = handover::moved_to(worker, token) {
                return worker.shared.send(to, Mail::Kill(to));
            }
            with_session(
                worker,
                token,
                || Mail::Kill(token),
                |worker, session| {
                    session.closing = true;
                    session.out.clear();
                    worker.enqueue(token.index());
                },
            );
        }
        Mail::Deliver(delivery) => deliver(worker, &delivery),
        Mail::Invalidate(invalidation) => invalidate(worker, &invalidation),
        Mail::Redirected(redirected) => {
            let to = redirected.to;
            if let Some(to) = handover::moved_to(worker, to) {
                let redirected = Redirected { to, ..redirected };
                return worker.shared.send(to, Mail::Redirected(redirected));
            }
            let again = || Mail::Redirected(redirected.clone());
            with_session(worker, to, again, |worker, session| {
                tracking::write(session, &redirected.news, true);
                worker.enqueue(to.index());
            });
        }
        Mail::Monitored(line) => {
            for token in &line.to {
                let one = || Mail::Monitored(line.to_one(*token));
                with_session(worker, *token, one, |worker, session| {
                    if monitor::write(session, &line) {
                        worker.enqueue(token.index());
                    }
                });
            }
        }
        Mail::ScriptBusy => serve::answer_busy(worker),
        Mail::Resume => {
            worker.refresh_if_changed();
            worker.resume();
        }
    }
}

/// Lets a session try again that is suspended, or whose replies wait at the gate.
fn wake(worker: &mut Worker, token: Token) {
    with_session(
        worker,
        token,
        || Mail::Wake(token),
        |worker, session| {
            if let Some(until) = session.gate
                && worker.shared.keyspace.journal().gate.is_reached(until)
            {
                if !serve::wait_for_gate(worker, session) {
                    serve::write_replies(worker, session);
                }
                worker.enqueue(token.index());
            }
            // A wake-up for an earlier reason may come late.
            if session.suspended.is_some_and(|reason| !reason.is_wanted()) {
                session.suspended = None;
                worker.enqueue(token.index());
            }
        },
    );
}

/// Ends the wait of a session, which goes on.
fn end_wait(worker: &mut Worker, session: &mut Session, waiter: &Arc<Waiter>, outcome: Outcome) {
    let came = session.deferred.as_deref().and_then(Deferred::first);
    let finished = block::finish_wait(worker.executor, &mut session.caller, waiter, outcome, came);
    if finished == Finished::Stale {
        return;
    }
    // Replies that wait for the journal stay with the new one.
    session.gate = None;
    worker.look_again(session);
    if finished == Finished::Answered
        && let Some(deferred) = &mut session.deferred
    {
        deferred.requests.pop_front();
    }
}

/// Returns true if this is a session of ours that is being served.
pub(super) fn is_out(worker: &Worker, token: Token) -> bool {
    worker
        .outlet
        .places
        .get(token.index())
        .is_some_and(|place| {
            let own = Token::new(worker.number, token.index(), place.generation) == token;
            place.used && own && place.session.is_none() && place.moved_to.is_none()
        })
}

/// Does something with a session; if it is being served, the message waits for it.
pub(super) fn with_session(
    worker: &mut Worker,
    token: Token,
    message: impl FnOnce() -> Mail,
    act: impl FnOnce(&mut Worker, &mut Session),
) {
    let Some(place) = worker.executor.outlet.places.get_mut(token.index()) else {
        return;
    };
    if !place.used || Token::new(worker.executor.number, token.index(), place.generation) != token {
        return;
    }
    // A message that is not forwarded (see `on_message`) is about an earlier wait of the session, here.
    if place.moved_to.is_some() {
        return;
    }
    match place.session.take() {
        None => place.mail.push(message()),
        Some(mut session) => {
            act(worker, &mut session);
            worker.executor.outlet.places[token.index()].session = Some(session);
        }
    }
}

fn deliver(worker: &mut Worker, delivery: &Delivery) {
    for token in &delivery.to {
        let one = || Mail::Deliver(delivery.to_one(*token));
        with_session(worker, *token, one, |worker, session| {
            // Published before the session unsubscribed, and delivered after: it would be taken for a reply.
            if !session.closing && subscriptions::is_subscribed(session, delivery) {
                subscriptions::write_message(session, delivery);
                // One unit may publish more than a client may leave unread.
                if session.out.len_bytes() > worker.output_watched_bytes {
                    serve::enforce_output_limit(worker, session);
                }
                worker.enqueue(token.index());
            }
        });
    }
}

fn invalidate(worker: &mut Worker, invalidation: &Invalidation) {
    for token in &invalidation.to {
        let one = || {
            Mail::Invalidate(Invalidation {
                to: vec![*token],
                news: invalidation.news.clone(),
            })
        };
        with_session(worker, *token, one, |worker, session| {
            if tracking::hear(session, &invalidation.news) {
                worker.enqueue(token.index());
            }
        });
    }
}

/// Takes messages for a session that is being served, also those by its own command, out of the mailbox, and writes
/// them behind the reply of that command: after all of its pipeline would be late. All messages stay in order.
pub(super) fn read_own_mail(worker: &mut Worker, caller: &mut Caller) {
    worker
        .executor
        .outlet
        .mailbox
        .drain(&mut worker.executor.outlet.early.messages);
    let own = caller.info.token();
    let mut news = worker.executor.outlet.early.news_for(own);
    let mail = &mut worker.executor.outlet.places[own.index()].mail;
    // Published messages come before invalidations, as from Redis.
    for invalidations in [false, true] {
        let news = news.iter_mut().filter_map(Message::mail_mut);
        for message in mail.iter_mut().chain(news) {
            if matches!(message, Mail::Invalidate(_)) == invalidations {
                hear_early(message, own, caller);
            }
        }
    }
    mail.retain(|message| !is_delivered(message));
    news.retain(is_undelivered);
    worker.executor.outlet.early.put_back(own, news);
}

/// Delivers messages on their way to this worker's clients, and gives the other workers time to do so. A client that
/// reads too slowly is closed at its limit, as ever.
#[cold]
pub(super) fn hand_out(worker: &mut Worker, caller: &mut Caller) {
    /// Longest wait for a busy worker: milliseconds.
    const WAIT_MS_MAX: u64 = 100;
    const LOOK_AGAIN: Duration = Duration::from_micros(50);
    let deadline_ms = clock::monotonic_ms() + WAIT_MS_MAX;
    loop {
        worker
            .executor
            .outlet
            .mailbox
            .drain(&mut worker.executor.outlet.early.messages);
        worker.executor.outlet.early.heard = None;
        for message in mem::take(&mut worker.executor.outlet.early.messages) {
            match message {
                Message::Engine(Mail::Deliver(delivery)) => deliver(worker, &delivery),
                other => worker.executor.outlet.early.messages.push(other),
            }
        }
        let shared = worker.shared;
        let mut executors = shared.executors().iter().enumerate();
        let others_wait = executors
            .any(|(number, other)| number != worker.executor.number && other.transit.is_full());
        if !others_wait || clock::monotonic_ms() >= deadline_ms {
            break;
        }
        thread::sleep(LOOK_AGAIN);
    }
    // Messages of the script for its own client wait for its end.
    if worker.shared.executors()[worker.executor.number]
        .transit
        .is_full()
    {
        limit_own_mail(worker, caller);
    }
}

/// Closes the client of a running script if more is published to it than it may leave unread.
fn limit_own_mail(worker: &mut Worker, caller: &mut Caller) {
    let mail = &mut worker.executor.outlet.places[caller.info.token().index()].mail;
    let published = mail.iter().map(|message| match message {
        Mail::Deliver(delivery) => delivery.len_bytes() as u64,
        _ => 0,
    });
    let published: u64 = published.sum();
    let limit_bytes = worker.executor.outlet.settings.output_limits[SUBSCRIBERS].hard_bytes;
    if limit_bytes != 0 && published > limit_bytes {
        mail.retain(|message| !matches!(message, Mail::Deliver(_)));
        subscriptions::forget(worker, caller);
        worker.executor.stats.output_limit_closed.add(1);
        caller.closing = true;
        let client = described(&caller.info, worker.executor.now_ms);
        log::warning(&format!(
            "Client {client} publishes more to itself than it may leave unread, and is closed."
        ));
    }
}

/// Drops earlier invalidations for a session that begins to track keys.
pub(super) fn drop_old_invalidations(worker: &mut Worker, caller: &Caller) {
    worker
        .executor
        .outlet
        .mailbox
        .drain(&mut worker.executor.outlet.early.messages);
    worker.executor.outlet.early.heard = None;
    let own = caller.info.token();
    let mail = &mut worker.executor.outlet.places[own.index()].mail;
    let early = &mut worker.executor.outlet.early.messages;
    let news = early.iter_mut().filter_map(Message::mail_mut);
    for message in mail.iter_mut().chain(news) {
        if let Mail::Invalidate(invalidation) = message {
            invalidation.to.retain(|token| *token != own);
        }
    }
    mail.retain(|message| !is_delivered(message));
    early.retain(is_undelivered);
}

/// Delivers a message to a session, and removes it from the list of those that wait for it.
fn hear_early(message: &mut Mail, own: Token, caller: &mut Caller) {
    match message {
        Mail::Deliver(delivery) => {
            // A client may be subscribed to a pattern and to the channel: each is a message of its own.
            if let Some(at) = delivery.to.iter().position(|token| *token == own) {
                delivery.to.remove(at);
                if subscriptions::is_subscribed(caller, delivery) {
                    subscriptions::write_message(caller, delivery);
                }
            }
        }
        // Messages for another client, or gathered ones, wait until the replies are written.
        Mail::Invalidate(invalidation)
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
        Mail::Monitored(line) => {
            if let Some(at) = line.to.iter().position(|token| *token == own) {
                line.to.remove(at);
                monitor::write(caller, line);
            }
        }
        _ => {}
    }
}

fn is_undelivered(message: &Message) -> bool {
    !matches!(message, Message::Engine(mail) if is_delivered(mail))
}

/// Returns true if all receivers have got this message.
fn is_delivered(message: &Mail) -> bool {
    match message {
        Mail::Deliver(delivery) => delivery.to.is_empty(),
        Mail::Invalidate(invalidation) => invalidation.to.is_empty(),
        Mail::Monitored(line) => line.to.is_empty(),
        _ => false,
    }
}
