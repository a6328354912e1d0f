//! How a client changes its worker; `balance.rs` decides when.
//!
//! The worker that has the client asks the other for places, which the other keeps free. As soon as the session has
//! nothing to do it leaves: its client info names its new place, its socket is deregistered here, and the session goes
//! to the other worker in a message. From then on messages go to the new place, where they wait until the session has
//! come. Messages to the old place are forwarded from there, for a while. The socket is registered anew, which reports
//! bytes that have come in the meantime: no byte is lost, none overtakes another.
//!
//! Only a session moves whose token is nowhere but in its client info: no subscriber, no client that tracks or watches
//! keys or is in MONITOR, no replica, none that waits, is in a transaction or in the middle of a request or of a reply.
//!
//! Must not know: what any command does.

use std::{collections::VecDeque, mem, sync::atomic::Ordering};

use redline_engine::executor::access;
use redline_net::{Interest, clock, process};

use super::{FIRST_SESSION, Worker, mail};
use crate::{
    balance::{Balance, Load, Order, STALL_MS},
    session::Session,
    shared::{Message, WorkerHandle},
};
use redline_engine::caller::{Token, state};

/// Number of clients that leave at a time: the moves of others delay no client for long.
const CLIENTS_MAX: usize = 256;
/// Shortest time over which loads are taken: microseconds.
const SPAN_US_MIN: u64 = 100_000;
/// Time within which a session has to become idle to leave; after that it stays: milliseconds.
const PATIENCE_MS: u64 = 1_000;
/// Time for which an old place forwards messages: a thread that reads a token in a client info uses it at once. Milliseconds.
const FORWARDING_MS: u64 = 10_000;
/// Use of its CPU below which a worker's waiting time for it is not read: permille.
const WAITED_FROM: u32 = 20;

/// State that a worker keeps of the clients that it hands over.
#[derive(Default)]
pub(crate) struct HandOver {
    /// Earlier decisions, of the first worker.
    balance: Balance,
    /// Time of the last load, and the CPU time and the time of waiting for a CPU by then: microseconds.
    taken_us: u64,
    used_us: u64,
    waited_us: u64,
    /// Longest turn since: milliseconds.
    longest_turn_ms: u64,
    /// See [`Load::clients`].
    movable: u32,
    /// True if places have been requested, or sessions are leaving.
    begun: bool,
    /// Sessions that leave, each with the place that is kept for it.
    leaving: Vec<(Token, Token)>,
    /// Deadline for leaving: milliseconds of the coarse clock.
    leave_until_ms: u64,
    /// Old places that forward messages, and the end of that.
    forwarding: VecDeque<(usize, u64)>,
}

impl HandOver {
    /// Notes the time of a turn of the loop.
    pub(super) fn note_turn(&mut self, took_ms: u64) {
        self.longest_turn_ms = self.longest_turn_ms.max(took_ms);
    }

    /// Returns true if there are sessions that leave as soon as they can.
    pub(super) fn is_under_way(&self) -> bool {
        !self.leaving.is_empty()
    }
}

impl Session {
    /// Returns true if another worker may have it, in its current state. See the head of this file.
    fn is_movable(&self) -> bool {
        const PINNED: u32 = state::MULTI
            | state::SUBSCRIBED
            | state::LISTENS
            | state::TRACKING
            | state::CONFIRMED
            | state::MONITOR
            | state::REPLICA;
        self.holds_nothing()
            && !self.is(PINNED)
            && !self.is_suspended()
            && !self.in_line
            && !self.closing
            && !self.eof_seen
            && !self.undecoded
            && !self.writable_wanted
            && !self.stream.has_unsent()
            && !self.stream.is_handshaking()
            && self.subscriptions.is_none()
            && self.tracking.is_none()
            && self.watched.is_empty()
            && self.wait.is_none()
            && self.again.is_none()
            && self.ticket.is_none()
    }
}

/// Takes the worker's load at a tick; the first worker decides by the loads of all.
pub fn note_load(worker: &mut Worker, now_us: u64, used_us: u64) {
    end_forwarding(worker);
    let elapsed_us = now_us.saturating_sub(worker.outlet.handover.taken_us);
    if !is_balanced(worker) {
        return forget_loads(worker);
    }
    if elapsed_us < SPAN_US_MIN {
        return;
    }
    let permille = |span_us: u64| (span_us * 1000 / elapsed_us) as u32;
    let used = permille(used_us.saturating_sub(worker.outlet.handover.used_us));
    let mut load = Load {
        used,
        waited: 0,
        clients: worker.outlet.handover.movable,
        stalled: worker.outlet.handover.longest_turn_ms >= STALL_MS,
    };
    if used >= WAITED_FROM {
        // Where the kernel does not report it, all of it counts as the worker's own.
        let waited = process::waited_thread().unwrap_or_default();
        let waited_us = waited.as_micros() as u64;
        load.waited = permille(waited_us.saturating_sub(worker.outlet.handover.waited_us));
        worker.outlet.handover.waited_us = waited_us;
    }
    worker.outlet.handover.taken_us = now_us;
    worker.outlet.handover.used_us = used_us;
    worker.outlet.handover.longest_turn_ms = 0;
    let shared = worker.shared;
    shared.workers()[worker.number]
        .load
        .store(load.pack(), Ordering::Relaxed);
    if worker.number == 0 {
        let word = |number: usize| shared.workers()[number].load.load(Ordering::Relaxed);
        let loads: Vec<Load> = (0..shared.workers().len())
            .map(|number| Load::unpack(word(number)))
            .collect();
        let (now_ms, served) = (now_us / 1000, shared.rates.served());
        if let Some(order) = worker
            .outlet
            .handover
            .balance
            .decide(now_ms, &loads, served)
        {
            shared.workers()[order.to]
                .rests
                .store(false, Ordering::Relaxed);
            shared.workers()[order.from]
                .rests
                .store(order.all(), Ordering::Relaxed);
            let begin = move |worker: &mut Worker| begin_hand_over(worker, order);
            shared.workers()[order.from]
                .mailbox
                .send(Message::Run(Box::new(begin)));
        }
        if !worker
            .outlet
            .handover
            .balance
            .keeps_together(now_ms, &loads)
        {
            end_rests(worker);
        }
    }
}

/// Forgets loads when clients are not balanced any more: they would be out of date later.
fn forget_loads(worker: &mut Worker) {
    if worker.outlet.handover.taken_us != 0 && worker.number == 0 {
        worker.outlet.handover.balance = Balance::default();
        end_rests(worker);
    }
    worker.outlet.handover.taken_us = 0;
}

/// Lets new clients go to any worker.
fn end_rests(worker: &Worker) {
    for worker in worker.shared.workers() {
        worker.rests.store(false, Ordering::Relaxed);
    }
}

/// Returns the worker for a new client: the one with the fewest of those whose clients have not been moved elsewhere.
pub(super) fn for_new_client<'s>(worker: &Worker<'_, '_, 's>) -> &'s WorkerHandle {
    let is_balanced = is_balanced(worker);
    let rests = |worker: &WorkerHandle| is_balanced && worker.rests.load(Ordering::Relaxed);
    let order =
        |worker: &&WorkerHandle| (rests(worker), worker.connections.load(Ordering::Relaxed));
    let workers = worker.shared.workers().iter();
    workers.min_by_key(order).expect("there is a worker")
}

/// Returns true if there are several workers, and balancing is enabled.
fn is_balanced(worker: &Worker) -> bool {
    worker.outlet.settings.balance_clients && worker.shared.workers().len() > 1
}

/// Counts the recently active clients that may be handed over; called once a second.
pub fn count_movable(worker: &mut Worker) {
    if !is_balanced(worker) {
        return;
    }
    let mut movable = 0;
    worker.for_each_session(|_, session| {
        let work = session.work();
        session.work_lately = work - mem::replace(&mut session.worked_before, work);
        // It may be in the middle of a request now: that passes. States that do not pass have a bit.
        let stays = session.subscriptions.is_some() || session.tracking.is_some();
        let stays = stays || session.is(state::MONITOR | state::REPLICA);
        movable += u32::from(session.work_lately > 0 && !stays);
    });
    worker.outlet.handover.movable = movable;
}

/// Hands over the clients that make up the order's share of the recent work. At least one client stays if not all are to move.
fn begin_hand_over(worker: &mut Worker, order: Order) {
    let mut clients: Vec<(u64, Token)> = Vec::new();
    let mut total = 0;
    worker.for_each_session(|_, session| {
        total += session.work_lately;
        if session.work_lately > 0 {
            clients.push((session.work_lately, session.info.token()));
        }
    });
    clients.sort_unstable();
    if !order.all() {
        clients.pop();
    }
    let mut rest = order.part_of(total);
    let going = clients.iter().map_while(|(work, token)| {
        rest = rest.checked_sub(*work)?;
        Some(*token)
    });
    let going: Vec<Token> = going.take(CLIENTS_MAX).collect();
    ask_for_places(worker, order.to, going);
}

/// Hands a client over, unless it is closed.
pub(crate) fn begin_to_hand_over(worker: &mut Worker, client: Token, to: usize) {
    match moved_to(worker, client) {
        Some(token) => {
            let begin = move |worker: &mut Worker| begin_to_hand_over(worker, token, to);
            worker.shared.workers()[token.executor()]
                .mailbox
                .send(Message::Run(Box::new(begin)));
        }
        None => ask_for_places(worker, to, vec![client]),
    }
}

fn ask_for_places(worker: &mut Worker, to: usize, going: Vec<Token>) {
    if going.is_empty() || to == worker.number || worker.outlet.handover.begun {
        return;
    }
    worker.outlet.handover.begun = true;
    let from = worker.number;
    let keep = move |worker: &mut Worker| {
        let place = |client| (client, keep_place(worker));
        let leaving: Vec<_> = going.into_iter().map(place).collect();
        let leave = move |worker: &mut Worker| {
            worker.outlet.handover.leave_until_ms = clock::monotonic_coarse_ms() + PATIENCE_MS;
            worker.outlet.handover.leaving = leaving;
        };
        worker.shared.workers()[from]
            .mailbox
            .send(Message::Run(Box::new(leave)));
    };
    worker.shared.workers()[to]
        .mailbox
        .send(Message::Run(Box::new(keep)));
}

/// Reserves a place in which messages wait for a session that is to come.
fn keep_place(worker: &mut Worker) -> Token {
    let (index, token) = worker.free_place();
    worker.outlet.places[index].used = true;
    token
}

/// Hands over the sessions that have nothing to do now; none is being served.
pub(super) fn hand_over(worker: &mut Worker) {
    let late = clock::monotonic_coarse_ms() >= worker.executor.outlet.handover.leave_until_ms;
    let mut leaving = mem::take(&mut worker.executor.outlet.handover.leaving);
    leaving.retain(|&(client, to)| {
        let place = worker.executor.outlet.places.get_mut(client.index());
        let place = place.filter(|place| {
            place.used
                && Token::new(worker.executor.number, client.index(), place.generation) == client
        });
        let mut stays = late;
        if let Some(place) = place
            && let Some(session) = &place.session
        {
            let idle = !(place.queued || place.readable || place.closed || place.urgent);
            if idle && session.is_movable() && !session.info.killed.load(Ordering::Acquire) {
                let session = place.session.take().expect("it was there");
                send_off(worker, session, to);
                return false;
            }
        } else {
            // It has closed.
            stays = true;
        }
        if stays {
            let vacate = move |worker: &mut Worker| worker.vacate(to.index());
            worker.shared.workers()[to.executor()]
                .mailbox
                .send(Message::Run(Box::new(vacate)));
        }
        !stays
    });
    worker.executor.outlet.handover.begun = !leaving.is_empty();
    worker.executor.outlet.handover.leaving = leaving;
}

fn send_off(worker: &mut Worker, session: Box<Session>, to: Token) {
    let index = session.info.token().index();
    // A failure has no effect: events of places without a session are ignored.
    let _ = worker.outlet.poller.deregister(&session.stream);
    session.info.move_to(to);
    worker.outlet.places[index].moved_to = Some(to);
    let until_ms = clock::monotonic_coarse_ms() + FORWARDING_MS;
    worker
        .outlet
        .handover
        .forwarding
        .push_back((index, until_ms));
    let bytes = session.info.memory_bytes.load(Ordering::Relaxed);
    worker.stats.client_bytes.add(bytes.wrapping_neg());
    let shared = &worker.shared;
    let [here, there] = [worker.number, to.executor()].map(|number| &shared.workers()[number]);
    here.connections.fetch_sub(1, Ordering::Relaxed);
    there.connections.fetch_add(1, Ordering::Relaxed);
    worker.stats.handed_over.add(1);
    let receive = move |worker: &mut Worker| receive(worker, session);
    there.mailbox.send(Message::Run(Box::new(receive)));
}

/// Takes over a session for which a place is reserved.
fn receive(worker: &mut Worker, mut session: Box<Session>) {
    // The sender may have newer settings.
    worker.refresh_if_changed();
    let index = session.info.token().index();
    let bytes = session.info.memory_bytes.load(Ordering::Relaxed);
    worker.stats.client_bytes.add(bytes);
    let watched =
        worker
            .outlet
            .poller
            .register(&session.stream, FIRST_SESSION + index, Interest::Read);
    if watched.is_err() {
        return worker.close(session);
    }
    if session.rules != worker.rules && !access::adopt_rules(worker.executor, &mut session) {
        session.out.clear();
    }
    let place = &mut worker.outlet.places[index];
    // Bytes that are decrypted already raise no event.
    place.readable = true;
    place.session = Some(session);
    let mail = mem::take(&mut place.mail);
    worker.enqueue(index);
    for message in mail {
        mail::on_engine_message(worker, message);
    }
}

/// Returns the new token of the session that had this place.
pub(super) fn moved_to(worker: &Worker, token: Token) -> Option<Token> {
    let place = worker.outlet.places.get(token.index())?;
    let own = Token::new(worker.number, token.index(), place.generation) == token;
    place.moved_to.filter(|_| own)
}

/// Frees old places to which no message can be on its way any more.
fn end_forwarding(worker: &mut Worker) {
    let now_ms = clock::monotonic_coarse_ms();
    while let Some(&(index, until_ms)) = worker.outlet.handover.forwarding.front()
        && until_ms <= now_ms
    {
        worker.outlet.handover.forwarding.pop_front();
        worker.vacate(index);
    }
}
