//! The surroundings of a simulated executor: clients in a slab, messages in a queue, a clock that the simulation moves.
//!
//! Must not know: what clients ask for.

use std::{
    cell::{Cell, RefCell},
    collections::VecDeque,
    marker::PhantomData,
    mem,
    rc::Rc,
    sync::{Arc, Mutex, PoisonError},
};

use fastrand::Rng;
use redline_commands::Error;
use redline_engine::{
    Caller, Clock, Engine, Executor, Halt, Level, Mailbox, Member, Message, Outlet,
    caller::{ClientInfo, Origin, Suspended, Token},
    executor::{
        Batch, Fault, access,
        block::{self, Finished, Outcome},
        units, watch,
    },
    monitor, subscriptions,
    timing::Used,
    tracking,
};
use redline_keyspace::Waiter;
use redline_resp::{Args, ArgsBuf, Blob, Decoded, RequestDecoder, RequestLimits, encode_request};
use redline_spec::CommandId;

use crate::{actors::Actor, ledger::Ledger};

/// Time that the reading of a clock takes: nanoseconds. So a script that runs for long sees time pass.
const READ_NS: u64 = 200;
/// Unix time at which simulations begin: milliseconds.
const BEGIN_WALL_MS: u64 = 1_700_000_000_000;

/// The fault that is planted in an engine.
pub trait Plant {
    /// The fault.
    const FAULT: Option<Fault>;
}

/// Plants no fault.
pub struct NoFault;

impl Plant for NoFault {
    const FAULT: Option<Fault> = None;
}

/// Time since a simulation began, common to all its executors: nanoseconds.
#[derive(Clone, Default)]
pub struct Time(Rc<Cell<u64>>);

impl Time {
    /// Advances the time.
    pub fn pass(&self, ns: u64) {
        self.0.set(self.0.get() + ns);
    }

    /// Returns the current time.
    pub fn now_ns(&self) -> u64 {
        self.0.get()
    }
}

/// Messages on their way to an executor.
#[derive(Clone, Default)]
pub struct Queue(Arc<Mutex<VecDeque<Message>>>);

impl Queue {
    /// Returns the mailbox that fills the queue.
    pub fn mailbox(&self) -> Mailbox {
        let queue = self.clone();
        Mailbox::new(move |message| queue.with(|messages| messages.push_back(message)))
    }

    /// Removes and returns the next message.
    pub fn pop(&self) -> Option<Message> {
        self.with(VecDeque::pop_front)
    }

    fn with<R>(&self, act: impl FnOnce(&mut VecDeque<Message>) -> R) -> R {
        act(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

/// A simulated client: its caller, the bytes that it has sent, its replies, and its role.
pub struct Client {
    /// Caller of the client.
    pub caller: Caller,
    /// Requests that were decoded and not run, since it was suspended.
    pub deferred: VecDeque<ArgsBuf>,
    /// Role of the client.
    pub actor: Actor,
    decoder: RequestDecoder,
    query: Vec<u8>,
    decoded: usize,
}

impl Client {
    /// Creates a new client.
    pub fn new(engine: &Engine, token: Token, now_ms: u64, actor: Actor) -> Client {
        let origin = Origin {
            id: engine.next_client_id(),
            addr: format!("127.0.0.1:{}", 1024 + token.index()),
            laddr: "127.0.0.1:6379".into(),
            is_local: true,
            is_unix: false,
            fd: token.index() as i32,
            created_ms: now_ms,
        };
        let settings = engine.settings.current();
        let user = settings.acl.default_user().clone();
        let info = Arc::new(ClientInfo::new(origin, token, &user));
        let mut caller = Caller::new(info, user);
        caller.become_default(&settings.acl);
        Client {
            caller,
            deferred: VecDeque::new(),
            actor,
            decoder: RequestDecoder::new(),
            query: Vec::new(),
            decoded: 0,
        }
    }

    /// Passes the content of the reply buffer to its actor.
    pub fn hear_all(&mut self, ledger: &mut Ledger) {
        let out = &mut self.caller.out;
        if !out.is_empty() {
            let bytes = out.chunks().flatten().copied().collect::<Vec<u8>>();
            out.clear();
            self.actor.hear(&bytes, ledger);
        }
    }

    /// Returns true if it may run a request now.
    pub fn is_ready(&self) -> bool {
        self.caller.suspended.is_none() && !self.caller.closing
    }

    /// Returns true if it has nothing left to run.
    pub fn is_idle(&self) -> bool {
        self.is_ready() && self.deferred.is_empty() && self.query.len() == self.decoded
    }
}

/// A place for a client.
#[derive(Default)]
pub struct Place {
    /// `None` while it is being served, and in unused places.
    pub client: Option<Box<Client>>,
    /// Messages for a client that was being served.
    mail: Vec<Message>,
    generation: u32,
}

impl Member for Box<Client> {
    fn caller(&self) -> &Caller {
        &self.caller
    }

    fn parts(&mut self) -> (&mut Caller, &[u8], &[Blob]) {
        (&mut self.caller, &self.query, self.decoder.blobs())
    }

    fn requests(&self) -> (&[u8], &[Blob]) {
        (&self.query, self.decoder.blobs())
    }

    fn is_deferred(&self) -> bool {
        !self.deferred.is_empty()
    }
}

/// See the head of the module.
pub struct Surroundings<P> {
    /// Places of the clients.
    pub places: Vec<Place>,
    /// Facts that must be true.
    pub ledger: Rc<RefCell<Ledger>>,
    /// Decides the events while a script runs for long.
    pub rng: Rng,
    /// Number of requests that have run.
    pub requests: u64,
    number: usize,
    time: Time,
    queue: Queue,
    /// Called when the clock is read: something happens elsewhere meanwhile.
    #[cfg(test)]
    meanwhile: Option<Box<dyn Fn()>>,
    plant: PhantomData<P>,
}

/// Surroundings without a fault, for callers that only run commands.
pub type Bare = Surroundings<NoFault>;

impl<P: Plant> Surroundings<P> {
    /// Creates the surroundings of the executor of that number, without clients.
    pub fn new(
        number: usize,
        seed: u64,
        time: Time,
        queue: Queue,
        ledger: Rc<RefCell<Ledger>>,
    ) -> Surroundings<P> {
        Surroundings {
            places: Vec::new(),
            ledger,
            rng: Rng::with_seed(seed),
            requests: 0,
            number,
            time,
            queue,
            #[cfg(test)]
            meanwhile: None,
            plant: PhantomData,
        }
    }

    fn token(&self, index: usize) -> Token {
        Token::new(self.number, index, self.places[index].generation)
    }

    fn is_own(&self, token: Token) -> bool {
        token.index() < self.places.len() && self.token(token.index()) == token
    }
}

impl<P> Clock for Surroundings<P> {
    fn monotonic_ns(&self) -> u64 {
        #[cfg(test)]
        if let Some(meanwhile) = &self.meanwhile {
            meanwhile();
        }
        self.time.pass(READ_NS);
        self.time.now_ns()
    }

    fn monotonic_coarse_ms(&self) -> u64 {
        self.time.now_ns() / 1_000_000
    }

    fn wall_us(&self) -> u64 {
        BEGIN_WALL_MS * 1000 + self.time.now_ns() / 1000
    }

    fn used(&self) -> Used {
        Used {
            cpu_ns: self.time.now_ns(),
            sleeps: 0,
        }
    }
}

impl<P: Plant> Outlet for Surroundings<P> {
    type Member = Box<Client>;

    const FAULT: Option<Fault> = P::FAULT;

    fn log(_: Level, _: &str) {}

    fn is_secret_parameter(_: &[u8]) -> bool {
        false
    }

    fn run_admin(
        _: &mut Executor<'_, Self>,
        _: &mut Caller,
        _: CommandId,
        _: Args<'_>,
    ) -> Result<(), Halt> {
        Err(Error::line("ERR there is nothing to administer").into())
    }

    fn refresh(_: &mut Executor<'_, Self>) {}

    fn turn(executor: &mut Executor<'_, Self>) {
        deliver(executor, 8);
        let others = executor.outlet.places.len();
        for _ in 0..2 {
            let index = executor.outlet.rng.usize(..others);
            serve(executor, &[index]);
        }
    }

    fn stops(&self) -> bool {
        false
    }

    fn for_each_caller(
        executor: &mut Executor<'_, Self>,
        mut visit: impl FnMut(&mut Executor<'_, Self>, &mut Caller),
    ) {
        for index in 0..executor.outlet.places.len() {
            if let Some(mut client) = executor.outlet.places[index].client.take() {
                visit(executor, &mut client.caller);
                executor.outlet.places[index].client = Some(client);
            }
        }
    }

    /// Does nothing: every ready client is served sooner or later.
    fn look_again(_: &mut Executor<'_, Self>, _: Token) {}

    fn read_own_mail(executor: &mut Executor<'_, Self>, caller: &mut Caller) {
        let own = caller.info.token();
        let queue = executor.outlet.queue.clone();
        let mail = &mut executor.outlet.places[own.index()].mail;
        for invalidations in [false, true] {
            mail.iter_mut()
                .filter(|message| matches!(message, Message::Invalidate(_)) == invalidations)
                .for_each(|message| hear_early(message, own, caller));
            queue.with(|messages| {
                messages
                    .iter_mut()
                    .filter(|message| matches!(message, Message::Invalidate(_)) == invalidations)
                    .for_each(|message| hear_early(message, own, caller));
            });
        }
    }

    fn drop_old_invalidations(executor: &mut Executor<'_, Self>, caller: &Caller) {
        let own = caller.info.token();
        let forget = |message: &mut Message| {
            if let Message::Invalidate(invalidation) = message {
                invalidation.to.retain(|token| *token != own);
            }
        };
        let queue = executor.outlet.queue.clone();
        let mail = &mut executor.outlet.places[own.index()].mail;
        mail.iter_mut().for_each(forget);
        queue.with(|messages| messages.iter_mut().for_each(forget));
    }

    fn hand_out(executor: &mut Executor<'_, Self>, _: &mut Caller) {
        deliver(executor, usize::MAX);
    }

    fn wait_ended(executor: &mut Executor<'_, Self>, waiter: Arc<Waiter>, outcome: Outcome) {
        on_message(executor, Message::WaitEnded(waiter, outcome));
    }

    fn evict_clients(_: &mut Executor<'_, Self>) {}

    fn defer(
        _: &mut Executor<'_, Self>,
        member: &mut Box<Client>,
        batch: &Batch,
        first: usize,
        number: usize,
    ) {
        let own = batch.requests[first..]
            .iter()
            .filter(|request| request.member() == number && request.protocol_error().is_none());
        for request in own {
            let spans = &batch.spans[request.spans()];
            let bytes = &member.query[request.at()..];
            let args = Args::with_big(bytes, spans, member.decoder.blobs());
            member.deferred.push_back(ArgsBuf::from(args));
        }
    }

    fn limit_output(_: &mut Executor<'_, Self>, _: &mut Box<Client>) {}
}

/// Delivers messages to a client behind the reply of its own command, and removes it from the list.
fn hear_early(message: &mut Message, own: Token, caller: &mut Caller) {
    let take_off = |to: &mut Vec<Token>| {
        let at = to.iter().position(|token| *token == own);
        at.map(|at| to.remove(at)).is_some()
    };
    let to = match message {
        Message::Deliver(delivery) => &mut delivery.to,
        Message::Invalidate(invalidation) => {
            let mode = caller.tracking.as_ref();
            let is_own = mode.is_some_and(|mode| mode.redirect.is_none());
            if !is_own || matches!(invalidation.news, tracking::News::Prefixed(..)) {
                return;
            }
            &mut invalidation.to
        }
        Message::Monitored(line) => &mut line.to,
        _ => return,
    };
    if !take_off(to) {
        return;
    }
    match message {
        Message::Deliver(delivery) if subscriptions::is_subscribed(caller, delivery) => {
            subscriptions::write_message(caller, delivery);
        }
        Message::Invalidate(invalidation) => {
            tracking::hear(caller, &invalidation.news);
        }
        Message::Monitored(line) => {
            monitor::write(caller, line);
        }
        _ => {}
    }
}

/// Adds a client.
pub fn open<P: Plant>(executor: &mut Executor<'_, Surroundings<P>>, actor: Actor) {
    let places = &executor.outlet.places;
    let free = places.iter().position(|place| place.client.is_none());
    let index = free.unwrap_or(places.len());
    if free.is_none() {
        executor.outlet.places.push(Place::default());
    }
    let token = executor.outlet.token(index);
    let now_ms = executor.now_ms as u64;
    let client = Box::new(Client::new(executor.engine, token, now_ms, actor));
    let info = client.caller.info.clone();
    executor.engine.clients().insert(info.id, info);
    executor.outlet.places[index].client = Some(client);
}

/// Closes a client that is not being served, as if its connection had closed.
pub fn close<P: Plant>(executor: &mut Executor<'_, Surroundings<P>>, index: usize) {
    let Some(mut client) = executor.outlet.places[index].client.take() else {
        return;
    };
    let caller = &mut client.caller;
    subscriptions::forget(executor, caller);
    tracking::end(executor.engine, caller);
    monitor::end(executor.engine, caller);
    watch::unwatch(executor, caller);
    block::drop_wait(executor, caller);
    units::give_way(executor, caller);
    executor.engine.clients().remove(&caller.info.id);
    let place = &mut executor.outlet.places[index];
    place.generation += 1;
    place.mail.clear();
}

/// Delivers up to `count` of the messages that have come.
pub fn deliver<P: Plant>(executor: &mut Executor<'_, Surroundings<P>>, count: usize) {
    for _ in 0..count {
        let Some(message) = executor.outlet.queue.pop() else {
            return;
        };
        on_message(executor, message);
    }
}

/// Does something with a client that is not being served. If it is, the message waits; if it is closed, nothing happens.
fn with_client<P: Plant>(
    executor: &mut Executor<'_, Surroundings<P>>,
    token: Token,
    message: Message,
    act: impl FnOnce(&mut Executor<'_, Surroundings<P>>, &mut Client, Message),
) {
    if !executor.outlet.is_own(token) {
        return;
    }
    let place = &mut executor.outlet.places[token.index()];
    match place.client.take() {
        None => place.mail.push(message),
        Some(mut client) => {
            act(executor, &mut client, message);
            hear(executor, &mut client);
            executor.outlet.places[token.index()].client = Some(client);
        }
    }
}

fn on_message<P: Plant>(executor: &mut Executor<'_, Surroundings<P>>, message: Message) {
    match message {
        Message::Wake(token) if token.stripe().is_some() => {
            watch::unwatch_left(executor, token.stripe())
        }
        Message::Wake(token) => with_client(executor, token, message, |_, client, _| {
            if client
                .caller
                .suspended
                .is_some_and(|reason| !reason.is_wanted())
            {
                client.caller.suspended = None;
            }
        }),
        Message::WaitEnded(ref waiter, _) => {
            let token = Token(waiter.token);
            with_client(executor, token, message, |executor, client, message| {
                let Message::WaitEnded(waiter, outcome) = message else {
                    unreachable!("given above")
                };
                let came = client.deferred.front().cloned();
                let came = came.as_ref().map(ArgsBuf::as_args);
                let finished =
                    block::finish_wait(executor, &mut client.caller, &waiter, outcome, came);
                if finished == Finished::Answered {
                    client.deferred.pop_front();
                }
            });
        }
        Message::Deliver(delivery) => {
            for token in delivery.to.clone() {
                let one = Message::Deliver(delivery.to_one(token));
                with_client(executor, token, one, |_, client, one| {
                    if let Message::Deliver(delivery) = one
                        && subscriptions::is_subscribed(&client.caller, &delivery)
                    {
                        subscriptions::write_message(&mut client.caller, &delivery);
                    }
                });
            }
        }
        Message::Invalidate(invalidation) => {
            for token in invalidation.to.clone() {
                let one = Message::Invalidate(tracking::Invalidation {
                    to: vec![token],
                    news: invalidation.news.clone(),
                });
                with_client(executor, token, one, |_, client, one| {
                    if let Message::Invalidate(invalidation) = one {
                        tracking::hear(&mut client.caller, &invalidation.news);
                    }
                });
            }
        }
        Message::Redirected(ref redirected) => {
            let to = redirected.to;
            with_client(executor, to, message, |_, client, message| {
                if let Message::Redirected(redirected) = message {
                    tracking::write(&mut client.caller, &redirected.news, true);
                }
            });
        }
        Message::Monitored(line) => {
            for token in line.to.clone() {
                let one = Message::Monitored(line.to_one(token));
                with_client(executor, token, one, |_, client, one| {
                    if let Message::Monitored(line) = one {
                        monitor::write(&mut client.caller, &line);
                    }
                });
            }
        }
        Message::Kill(token) => {
            if executor.outlet.is_own(token) {
                close(executor, token.index());
            }
        }
        Message::ScriptBusy => Surroundings::for_each_caller(executor, |_, caller| {
            if matches!(
                caller.suspended,
                Some(Suspended::Stripe(_) | Suspended::Script | Suspended::Ticket)
            ) {
                caller.suspended = None;
            }
        }),
        Message::Resume => {
            executor.refresh_if_changed();
            executor.resume();
        }
        // No reply waits at the gate, which stays open.
        Message::Released => {}
        Message::Pump => executor.pump_now(),
    }
}

/// Serves together those of the clients that are ready: deferred requests first, then new ones.
pub fn serve<P: Plant>(executor: &mut Executor<'_, Surroundings<P>>, indexes: &[usize]) {
    let mut group: Vec<Box<Client>> = Vec::new();
    let mut batch = Batch::default();
    for index in indexes {
        let place = &mut executor.outlet.places[*index];
        if !place
            .client
            .as_ref()
            .is_some_and(|client| client.is_ready())
        {
            continue;
        }
        // A client whose script turns the loop from inside must be the only one out of the slab.
        let deferred = place
            .client
            .as_ref()
            .is_some_and(|client| !client.deferred.is_empty());
        if deferred && !group.is_empty() {
            continue;
        }
        let mut client = place.client.take().expect("just seen");
        tracking::before_write(&mut client.caller);
        run_deferred(executor, &mut client);
        if client.is_idle() {
            let ledger = executor.outlet.ledger.clone();
            let Client { actor, query, .. } = &mut *client;
            let rng = &mut executor.outlet.rng;
            actor.ask(rng, &mut ledger.borrow_mut(), &mut |words| {
                encode_request(words.iter().map(Vec::as_slice), query);
            });
        }
        group.push(client);
    }
    for (number, client) in group.iter_mut().enumerate() {
        decode(executor, client, number, &mut batch);
    }
    executor.outlet.requests += batch.len() as u64;
    executor.execute(&mut group, &mut batch, false);
    executor.pump();
    for mut client in group {
        if client.decoded == client.query.len() {
            client.query.clear();
            client.decoded = 0;
        }
        client.decoder.release_blobs();
        if client.caller.rules != executor.rules {
            access::adopt_rules(executor, &mut client.caller);
        }
        tracking::before_write(&mut client.caller);
        hear(executor, &mut client);
        if client.caller.tracking.is_some() {
            tracking::after_write(executor.engine, &mut client.caller);
            hear(executor, &mut client);
        }
        let index = client.caller.info.token().index();
        let ended = client.caller.closing;
        let place = &mut executor.outlet.places[index];
        place.client = Some(client);
        let mail = mem::take(&mut place.mail);
        if ended {
            close(executor, index);
        }
        for message in mail {
            on_message(executor, message);
        }
    }
}

fn run_deferred<P: Plant>(executor: &mut Executor<'_, Surroundings<P>>, client: &mut Client) {
    while let Some(first) = client.deferred.front().cloned() {
        if client.caller.closing {
            return;
        }
        let again = client.caller.again.as_ref().map(|again| again.args());
        let args = again.as_ref().unwrap_or(&first).as_args();
        executor.run_request(&mut client.caller, args, None);
        executor.sweep();
        if client.caller.suspended.is_some() {
            return;
        }
        client.caller.again = None;
        client.deferred.pop_front();
    }
}

/// Adds the requests that a client has sent to the batch.
fn decode<P: Plant>(
    executor: &mut Executor<'_, Surroundings<P>>,
    client: &mut Client,
    number: usize,
    batch: &mut Batch,
) {
    if !client.is_ready() {
        return;
    }
    let limits = RequestLimits {
        // All arguments stay in the buffer.
        big_bulk_bytes_min: usize::MAX,
        ..RequestLimits::default()
    };
    while client.decoded < client.query.len() {
        let at = client.decoded;
        let bytes = &mut client.query[at..];
        let decoded =
            client
                .decoder
                .decode_with(&mut batch.heads, bytes, &limits, &mut batch.spans);
        match decoded {
            Ok(Decoded::Request { consumed, args, .. }) => {
                client.decoded += consumed;
                let engine = executor.engine;
                batch.add(
                    &engine.names,
                    &engine.keyspace,
                    number,
                    client.caller.db,
                    &client.query[at..],
                    consumed,
                    client.decoder.blobs(),
                    at,
                    args,
                );
            }
            Ok(Decoded::Empty { consumed }) => client.decoded += consumed,
            Ok(Decoded::Incomplete { .. } | Decoded::Big { .. }) | Err(_) => {
                unreachable!("requests are sent whole")
            }
        }
    }
}

/// Passes the content of the reply buffer to a client's actor.
fn hear<P: Plant>(executor: &mut Executor<'_, Surroundings<P>>, client: &mut Client) {
    client.hear_all(&mut executor.outlet.ledger.borrow_mut());
}

#[cfg(test)]
mod tests {
    use redline_engine::refusals::Reason;
    use redline_keyspace::{Local, Trace, Unit, lock::StripeSet};
    use redline_types::Limits;

    use super::*;
    use crate::world::Stage;

    /// The server becomes a replica at any time at which a worker of it reads a clock and nobody holds a stripe: between the
    /// check of a call and its unit, too.
    #[test]
    fn what_was_let_in_before_the_role_changed_changes_nothing_behind_it() {
        let calls: [&[&str]; 6] = [
            &["SET", "key", "value"],
            &["MSET", "key", "value", "other", "value"],
            &["EVAL", "return redis.call('SET', 'key', 'value')", "0"],
            &["COPY", "there", "key"],
            &["FLUSHALL"],
            &["EXEC"],
        ];
        let mut changed = 0;
        for (call, reading) in calls
            .iter()
            .flat_map(|call| (0..12).map(move |at| (call, at)))
        {
            let stage: &'static Stage = Box::leak(Box::new(Stage::new(1)));
            let engine = &stage.engine;
            let ledger = Rc::<RefCell<Ledger>>::default();
            let outlet = Bare::new(0, 0, Time::default(), stage.queue(0), ledger);
            let mut executor = Executor::new(engine, 0, 0, outlet);
            let mut client = Client::new(engine, Token::new(0, 0, 0), 0, Actor::silent());
            let mut run = |executor: &mut Executor<'static, Bare>, words: &[&str]| {
                let args: ArgsBuf = words.iter().map(|word| word.as_bytes()).collect();
                executor.run_request(&mut client.caller, args.as_args(), None);
                let reply: Vec<u8> = client.caller.out.chunks().flatten().copied().collect();
                client.caller.out.clear();
                String::from_utf8(reply).unwrap()
            };
            run(&mut executor, &["SET", "there", "value"]);
            if *call == ["EXEC"] {
                run(&mut executor, &["MULTI"]);
                run(&mut executor, &["SET", "key", "value"]);
            }
            let keys = move || {
                // As who changes the role, who holds the scripts' mutex as well.
                const FOREIGN: u64 = u64::MAX >> 1;
                let Some(script) = Unit::try_script(&engine.keyspace, FOREIGN) else {
                    engine.keyspace.locks().leave_lines(FOREIGN);
                    return None;
                };
                drop(script);
                let mut unit = Unit::try_set(&engine.keyspace, &StripeSet::all(), false).ok()?;
                let mut local = Local::new(Rng::with_seed(1), Limits::default());
                let mut view = unit.view(&mut local, 0, BEGIN_WALL_MS as i64);
                let has = [&b"key"[..], b"there"].map(|key| view.find(key, Trace::Quiet).is_some());
                view.finish();
                Some(has)
            };
            let at_switch = Rc::new(Cell::new(None));
            let (found, readings) = (at_switch.clone(), Cell::new(0));
            executor.outlet.meanwhile = Some(Box::new(move || {
                if readings.replace(readings.get() + 1) >= reading && found.get().is_none() {
                    found.set(keys());
                    if found.get().is_some() {
                        engine
                            .refusals
                            .set(Reason::ReadOnly, true, &engine.settings);
                    }
                }
            }));
            let reply = run(&mut executor, call);
            let Some(before) = at_switch.get() else {
                continue;
            };
            assert_eq!(
                keys(),
                Some(before),
                "{call:?}, the role changes at reading {reading} of the clock: {reply}"
            );
            let was_changed = before != [false, true];
            changed += u32::from(!was_changed);
            assert!(
                was_changed || reply.contains("READONLY"),
                "{call:?}, {reading}: {reply}"
            );
        }
        assert!(
            changed >= calls.len() as u32,
            "{changed} switches came in time"
        );
    }

    #[test]
    fn time_passes_with_each_reading_and_for_all() {
        let (time, ledger) = (Time::default(), Rc::<RefCell<Ledger>>::default());
        let outlet = |number| Bare::new(number, 0, time.clone(), Queue::default(), ledger.clone());
        let (one, other) = (outlet(0), outlet(1));
        let before_us = one.wall_us();
        assert!(other.monotonic_ns() < one.monotonic_ns());
        time.pass(5_000_000);
        assert_eq!(other.wall_us() - before_us, 5_000);
    }
}
