//! From a decoded request to its reply: the batch, the gate, the locks, the handler.
//!
//! # Five passes
//!
//! A GET on a large keyspace is four dependent cache misses: the slot, its directory, the bucket, the entry. One
//! after the other they cost more than everything else together, so a batch is walked once for each: decode and
//! hash every request, asking for its slot; then for the directories; then for the buckets; then for the entries
//! that the buckets' tags point to; then execute. All but the last take no lock and may be wrong without harm.
//!
//! # A unit
//!
//! A command that stands alone locks what its row's scope says, runs, publishes its keyspace events, and lets
//! go. Inside EXEC or a script the stripes are held by the [`Unit`] of the session. Who fails to get a stripe
//! is put aside and runs again from the start when the stripe is free: nothing has happened until then.
//!
//! Must not know: what any command does.

use std::{mem, ops::Range, sync::atomic::Ordering};

use redline_commands::{Ctx, Error};
use redline_keyspace::{
    Ahead, Held, Hint, Keyspace, View,
    lock::{ROUNDS_BEFORE_TICKET, StripeSet, Wait},
    stripe_of,
};
use redline_net::clock;
use redline_resp::{Args, ArgsBuf, Blob, HEADS, Heads, Name, ProtocolError, Reply, Span};
use redline_spec::{self as spec, CommandId, Flags, Gate, KeyShape, Plane, Scope};
use redline_table::dict::LOOK_AHEAD_MAX;

use crate::{
    access, errors,
    names::Names,
    planes,
    session::{Aside, ReplyMode, Session, Token, Unit, flag, state},
    timing::{Charge, INSIDE_PER_TIMED},
    tracking,
    worker::{Member, Worker},
};

/// After whatever took longer, the wall clock is read again: nanoseconds.
const CLOCK_STANDS_NS_MAX: u64 = 1_000_000;
/// Keys of one request for whose hashes memory is kept.
const HINTS_KEPT_MAX: usize = 4 * 1024;
/// So often a unit that meets unexpected keys starts over, before it takes all stripes.
const WIDENING_ROUNDS_MAX: u32 = 4;

/// Requests of one group, decoded and not yet run.
#[derive(Default)]
pub struct Batch {
    /// In the order of arrival.
    pub(crate) requests: Vec<Request>,
    /// Their arguments, relative to the first byte of each.
    pub(crate) spans: Vec<Span>,
    /// Their first keys, where these are at fixed places: of each such request one, in their order.
    ahead: Vec<Ahead>,
    /// What the last requests began with, and which commands that named.
    pub(crate) heads: Heads,
    named: [Option<CommandId>; HEADS],
}

/// One of them.
pub(crate) struct Request {
    /// What is known of its first key, in the batch; [`NO_KEY`]: that is not at a fixed place, or there is none.
    ahead: u32,
    /// Where its bytes begin in the member's query buffer.
    at: u32,
    first_span: u32,
    span_count: u32,
    /// Its bytes on the wire; `u32::MAX`: some arguments lie elsewhere.
    bytes: u32,
    /// Whose: the place in the group.
    member: u16,
    what: What,
}

/// See [`Request::ahead`].
const NO_KEY: u32 = u32::MAX;

#[derive(Clone, Copy)]
enum What {
    /// A command whose first word names a row.
    Command(CommandId),
    Unknown,
    /// A command that has run and was timed by itself.
    Charged,
    Broken(ProtocolError),
}

impl Request {
    /// Whose: the place in the group.
    pub(crate) fn member(&self) -> usize {
        usize::from(self.member)
    }

    /// Where its bytes begin in the member's query buffer.
    #[inline]
    pub(crate) fn at(&self) -> usize {
        self.at as usize
    }

    /// Its arguments, in the batch's spans.
    #[inline]
    pub(crate) fn spans(&self) -> Range<usize> {
        self.first_span as usize..self.first_span as usize + self.span_count as usize
    }
}

/// What the first pass found out about a request.
#[derive(Clone, Copy)]
pub(crate) struct Known<'a> {
    id: CommandId,
    /// Its first key.
    ahead: &'a Ahead,
    /// See [`Request::bytes`].
    bytes: u32,
}

/// What the unit around a command tells its handler, and hears from it.
#[derive(Default)]
struct Inside {
    in_script: bool,
    /// Changes so far: a script that has made some cannot be killed.
    changes: u64,
}

/// Why a command did not run to its end.
pub enum Halt {
    /// It answers with this error.
    Error(Error),
    /// It is put aside and runs again later.
    Aside(Aside),
}

impl<E: Into<Error>> From<E> for Halt {
    fn from(error: E) -> Halt {
        Halt::Error(error.into())
    }
}

impl Request {
    /// What is wrong, if it is no request at all.
    pub(crate) fn protocol_error(&self) -> Option<ProtocolError> {
        match self.what {
            What::Broken(error) => Some(error),
            _ => None,
        }
    }
}

impl Batch {
    /// Requests so far.
    pub fn len(&self) -> usize {
        self.requests.len()
    }

    /// Empties it.
    pub fn clear(&mut self) {
        /// Spans for which memory is kept: a request of a million arguments comes seldom.
        const SPANS_KEPT_MAX: usize = 16 * 1024;
        self.requests.clear();
        self.ahead.clear();
        self.spans.clear();
        self.spans.shrink_to(SPANS_KEPT_MAX);
    }

    #[allow(clippy::too_many_arguments)] // the hottest call of the product; a struct would be made and taken apart
    /// First pass: takes a request in, looks its command up, hashes its key and asks for the slot. `bytes` begin with
    /// the request, which is `len` long.
    #[inline]
    pub(crate) fn add(
        &mut self,
        names: &Names,
        space: &Keyspace,
        member: usize,
        db: u32,
        bytes: &[u8],
        len: usize,
        blobs: &[Blob],
        at: usize,
        args: usize,
    ) {
        let first_span = self.spans.len() - args;
        let argv = Args::with_big(bytes, &self.spans[first_span..], blobs);
        let mut ahead = NO_KEY;
        let id = match self.heads.name() {
            Name::Known(number) => self.named[usize::from(number)],
            Name::New(number) => {
                let id = names.lookup(&argv[0]);
                self.named[usize::from(number)] = id;
                id
            }
            Name::Unnumbered => names.lookup(&argv[0]),
        };
        let what = match id {
            None => What::Unknown,
            Some(id) => {
                let first = spec::data_key(id);
                let key = if first == 0 { None } else { argv.get(first) };
                if let Some(key) = key {
                    ahead = self.ahead.len() as u32;
                    self.ahead
                        .push(space.ahead(db, redline_keyspace::hash(key)));
                }
                What::Command(id)
            }
        };
        self.requests.push(Request {
            ahead,
            at: at as u32,
            first_span: first_span as u32,
            span_count: args as u32,
            bytes: if blobs.is_empty() {
                len as u32
            } else {
                u32::MAX
            },
            member: member as u16,
            what,
        });
    }

    /// Takes in that the peer broke the protocol: answered in its turn.
    pub(crate) fn add_error(&mut self, member: usize, error: ProtocolError) {
        self.requests.push(Request {
            ahead: NO_KEY,
            at: 0,
            first_span: 0,
            span_count: 0,
            bytes: 0,
            member: member as u16,
            what: What::Broken(error),
        });
    }
}

impl Worker {
    /// The other passes over a batch.
    pub(crate) fn execute(&mut self, group: &mut [Member], batch: &mut Batch) {
        if batch.requests.is_empty() {
            return;
        }
        // One key alone has nothing that its misses could overlap with.
        if batch.requests.len() > 1 {
            Ahead::fetch(&mut batch.ahead);
        }
        if self.shared.workers().len() > 1 {
            // Alone we find the locks in our own cache.
            let locks = self.shared.keyspace.locks();
            for key in &batch.ahead {
                locks.prefetch(stripe_of(key.hash()));
            }
        }
        let charge = self.timing.begin_batch(batch.requests.len());
        let alone = group.len() == 1;
        let mut looked_ahead = 0;
        for index in 0..batch.requests.len() {
            if index >= looked_ahead && self.is_one_of_several(batch, index) {
                looked_ahead = index + self.look_ahead(group, batch, index);
            }
            let request = &batch.requests[index];
            let number = request.member();
            let member = &mut group[number];
            if member.session.closing || member.session.deferred.is_some() {
                continue;
            }
            if !alone && may_run_script(&member.session, request.what) {
                // It comes back on its own: if it turns the loop, the others must be in the slab.
                self.defer(member, batch, index, number);
                continue;
            }
            match request.what {
                What::Broken(error) => member.session.break_off(error),
                _ => {
                    let args = Args::with_big(
                        &member.query[request.at()..],
                        &batch.spans[request.spans()],
                        &member.blobs,
                    );
                    let known = match (request.what, batch.ahead.get(request.ahead as usize)) {
                        (What::Command(id), Some(ahead)) => Some(Known {
                            id,
                            ahead,
                            bytes: request.bytes,
                        }),
                        _ => None,
                    };
                    self.run_request(&mut member.session, args, known);
                    if mem::take(&mut self.timing.timed_apart) {
                        batch.requests[index].what = What::Charged;
                    }
                }
            }
            // Before the next reply comes on top of it.
            if member.session.out.len_bytes() > self.output_watched_bytes {
                self.enforce_output_limit(&mut member.session);
            }
            if member.session.aside.is_some() {
                self.defer(member, batch, index, number);
            }
        }
        self.charge(batch, charge);
        crate::cron::copy_counts(self);
        self.sweep();
    }

    /// Is the next request one for the same collection, and do both name elements of it?
    #[inline]
    fn is_one_of_several(&self, batch: &Batch, index: usize) -> bool {
        let key_of = |request: &Request| match request.what {
            What::Command(id) if spec::names_element(id) => {
                batch.ahead.get(request.ahead as usize).map(Ahead::hash)
            }
            _ => None,
        };
        let [first, second, ..] = &batch.requests[index..] else {
            return false;
        };
        key_of(first).is_some_and(|key| key_of(second) == Some(key))
    }

    /// Several requests in a row search one collection: what they look for is asked for together, as the keys of a batch
    /// are. Says for how many requests that is done; whatever stands in the way, they are run all the same.
    #[inline(never)]
    fn look_ahead(&mut self, group: &[Member], batch: &Batch, index: usize) -> usize {
        let words = |request: &Request| {
            let member = &group[request.member()];
            let bytes = &member.query[request.at()..];
            Args::with_big(bytes, &batch.spans[request.spans()], &member.blobs)
        };
        let first = &batch.requests[index];
        let Some(hash) = batch.ahead.get(first.ahead as usize).map(Ahead::hash) else {
            return 1;
        };
        let row = batch.requests[index..].iter().take_while(|request| {
            let ahead = batch.ahead.get(request.ahead as usize);
            matches!(request.what, What::Command(id) if spec::names_element(id))
                && ahead.is_some_and(|ahead| ahead.hash() == hash)
        });
        let elements = row.clone().filter_map(|request| words(request).get(2));
        let stripe = stripe_of(hash);
        let locks = self.shared.keyspace.locks();
        if let Some(key) = words(first).get(1)
            && locks.try_one(stripe)
        {
            let db = group[first.member()].session.db;
            let (space, held) = (&self.shared.keyspace, Held::One(stripe));
            View::new(space, held, &mut self.local, db, self.now_ms).look_ahead(key, elements);
            locks.unlock_one(stripe);
        }
        row.take(LOOK_AHEAD_MAX).count()
    }

    /// Spreads the time of a batch over its brief calls.
    fn charge(&mut self, batch: &Batch, charge: Option<Charge>) {
        let Some(charge) = charge else { return };
        let share_ns = self.timing.end_batch(&charge, batch.requests.len());
        let brief = batch
            .requests
            .iter()
            .filter_map(|request| match request.what {
                What::Command(id) if spec::gate(id).is_brief(request.span_count as usize) => {
                    Some(id)
                }
                _ => None,
            });
        // Calls of one command mostly follow each other: one note for all of a row.
        let mut row: Option<(CommandId, u64)> = None;
        for id in brief {
            row = match row {
                Some((same, calls)) if same == id => Some((id, calls + 1)),
                ended => {
                    self.note_row(ended, share_ns, &charge);
                    Some((id, 1))
                }
            };
        }
        self.note_row(row, share_ns, &charge);
    }

    fn note_row(&self, row: Option<(CommandId, u64)>, share_ns: u64, charge: &Charge) {
        if let Some((id, calls)) = row {
            let times = calls * charge.stands_for;
            self.stats.commands[id as usize].note_time(share_ns, times, self.timing.distributions);
        }
    }

    /// Hands over what the commands left to be freed.
    pub(crate) fn sweep(&mut self) {
        use crate::shared::Chore;
        for garbage in self.local.garbage.drain(..) {
            self.shared.chore(Chore::Drop(garbage));
        }
        for flushed in self.local.flushed.drain(..) {
            self.shared.chore(Chore::Free(flushed));
        }
    }

    /// Runs one request. Afterwards either its reply is written, or the session is put aside.
    pub(crate) fn run_request(
        &mut self,
        session: &mut Session,
        args: Args<'_>,
        known: Option<Known<'_>>,
    ) {
        self.refresh_if_changed();
        if session.card.killed.load(Ordering::Acquire) {
            session.closing = true;
            return;
        }
        if session.rules != self.rules && !self.adopt_rules(session) {
            return;
        }
        if let Some(known) = known
            && session.state & !state::LISTENS == 0
            && !self.detour
            && self.run_plain(session, args, known)
        {
            if session.is(state::LISTENS) {
                self.read_own_mail(session);
            }
            return;
        }
        self.run_any(session, args);
        if session.is(state::LISTENS | state::TRACKING | state::MONITOR) && session.aside.is_none()
        {
            self.read_own_mail(session);
        }
    }

    /// The straight path: one key, nothing out of the ordinary. `false`: not that simple, nothing has happened.
    #[inline]
    fn run_plain(&mut self, session: &mut Session, args: Args<'_>, known: Known<'_>) -> bool {
        let Known { id, ahead, bytes } = known;
        let hash = ahead.hash();
        let plain = spec::plain(id);
        if !plain.allows(args.len())
            || self.timing.closely
            || u64::from(bytes) >= self.timing.heavy_bytes
            || (plain.needs_memory && self.settings.maxmemory_bytes != 0)
        {
            return false;
        }
        let Some(handler) = redline_commands::handler(id) else {
            return false;
        };
        let key = &args[usize::from(plain.key)];
        let stripe = stripe_of(hash);
        let shared = &*self.shared;
        if !shared.keyspace.locks().try_one(stripe) {
            return false;
        }
        if shared.keyspace.anybody_waits()
            && plain.writes
            && shared.keyspace.is_waited_for(Held::One(stripe), key, hash)
        {
            shared.keyspace.locks().unlock_one(stripe);
            return false;
        }
        let mark = session.out.mark();
        let before_bytes = session.out.len_bytes();
        let view = View::new(
            &shared.keyspace,
            Held::One(stripe),
            &mut self.local,
            session.db,
            self.now_ms,
        );
        let mut ctx = Ctx {
            keys: view,
            bulk_bytes_max: self.settings.bulk_bytes_max,
            in_script: false,
            reads_every_key: true,
            waiter: None,
        };
        ctx.keys.hint(key, ahead);
        let result = handler(
            &mut ctx,
            args,
            &mut Reply::new(&mut session.out, session.proto),
        );
        ctx.keys.finish();
        if ctx.keys.is_journaled() {
            redline_commands::propagate(&mut ctx.keys, id, args);
        }
        if !self.local.events.is_empty() {
            planes::publish_events(shared, &mut self.local, Some(&session.card));
        }
        self.end_effects(Held::One(stripe));
        self.shared.keyspace.locks().unlock_one(stripe);
        let stats = &self.stats.commands[id as usize];
        stats.calls.add(1);
        note_command(session, id);
        let reply_bytes = session.out.len_bytes().saturating_sub(before_bytes) as u64;
        if reply_bytes >= self.timing.reply_bytes {
            self.log_command(session, id, args, None, reply_bytes);
        }
        if let Err(error) = result {
            stats.failed.add(1);
            log_damage(&error);
            let text = error.text();
            self.stats.note_error(&text);
            session.out.truncate(mark);
            session.reply().error(&text);
        }
        true
    }

    /// Every other path.
    fn run_any(&mut self, session: &mut Session, args: Args<'_>) {
        if session.reply_mode == ReplyMode::SkipNext {
            session.reply_mode = ReplyMode::Skipping;
        }
        let mark = session.out.mark();
        let outcome = self.gate_and_run(session, args);
        match outcome {
            Ok(()) => {}
            Err(Halt::Error(error)) => {
                log_damage(&error);
                let text = error.text();
                self.stats.note_error(&text);
                session.out.truncate(mark);
                session.reply().error(&text);
            }
            Err(Halt::Aside(reason)) => {
                session.out.truncate(mark);
                session.aside = Some(reason);
                if reason.is_wanted() {
                    session.card.set_flag(flag::BLOCKED, true);
                    session.rounds = 0;
                    self.give_way(session);
                } else {
                    self.stats.put_aside.add(1);
                }
                return;
            }
        }
        session.rounds = 0;
        // Refused on its last round (-BUSY, OOM): what was kept free for it is everybody's again.
        self.give_way(session);
        session.settle_reply(mark);
        if session.is(state::TRACKING) {
            let name = self.shared.names.resolve(&args[0], args.get(1));
            tracking::after_command(session, name.ok());
        }
    }

    /// Redis's checks in Redis's order, then the command, or its place in the transaction's queue.
    fn gate_and_run(&mut self, session: &mut Session, args: Args<'_>) -> Result<(), Halt> {
        let id = match self.resolve(args) {
            Ok(id) => id,
            Err(error) => return Err(self.reject(session, args, &error)),
        };
        let gate = spec::gate(id);
        if let Err(error) = self.check(session, id, gate, args) {
            self.stats.commands[id as usize].rejected.add(1);
            return Err(self.reject(session, args, &error));
        }
        if self.is_held_back(session, id, gate, args) {
            note_last(session, id);
            return Err(Halt::Aside(Aside::Pause));
        }
        if session.is(state::MULTI) && !planes::transaction::runs_at_once(id) {
            planes::transaction::enqueue(session, id, args);
            return Ok(());
        }
        note_last(session, id);
        self.call(session, id, args)
    }

    /// Does CLIENT PAUSE hold this command back?
    fn is_held_back(&self, session: &Session, id: CommandId, gate: Gate, args: Args<'_>) -> bool {
        let Some(pause) = self.pause.filter(|_| !session.is(state::MONITOR)) else {
            return false;
        };
        let writes = |id, gate: Gate, args: Args<'_>| {
            let by_row = gate.flags.has_any(Flags::WRITE.with(Flags::MAY_REPLICATE));
            planes::scripting::may_write(&self.shared, id, args, by_row)
        };
        let queue_writes = || {
            let mut queue = session.multi.queue.iter();
            let queued =
                |(id, args): &(CommandId, ArgsBuf)| writes(*id, spec::gate(*id), args.as_args());
            id == CommandId::Exec && queue.any(queued)
        };
        clock::monotonic_ms() < pause.end_ms
            && (pause.all || writes(id, gate, args) || queue_writes())
    }

    /// What a call that may not run is answered. It spoils a transaction; an EXEC gives it up, even where there is none.
    fn reject(&mut self, session: &mut Session, args: Args<'_>, error: &Error) -> Halt {
        self.break_multi(session);
        if !args[0].eq_ignore_ascii_case(b"exec") {
            return Halt::Error(error.clone());
        }
        let text = error.text();
        let reason = text.strip_prefix("ERR ").unwrap_or(&text).to_string();
        planes::transaction::abandon(self, session);
        if self.monitored {
            // Of all calls that are refused, monitors are shown this one.
            self.show(session, CommandId::Exec, args, false);
        }
        Halt::Error(errors::exec_aborted(&reason))
    }

    /// Runs a command that may run: times it, counts it.
    pub(crate) fn call(
        &mut self,
        session: &mut Session,
        id: CommandId,
        args: Args<'_>,
    ) -> Result<(), Halt> {
        let gate = spec::gate(id);
        let inside = session.unit.is_some();
        let heavy = payload_bytes(args) >= self.timing.heavy_bytes;
        let apart = self.timing.closely || heavy || !gate.is_brief(args.len());
        let timed = apart || (inside && self.timing.sample_inside());
        let began_ns = if timed { clock::monotonic_ns() } else { 0 };
        let before_bytes = session.out.len_bytes();
        let result = match gate.plane {
            Plane::Data if !gate.arity_allows(args.len()) => {
                if self.monitored {
                    let in_script = session.unit.as_ref().is_some_and(|unit| unit.in_script);
                    self.show(session, id, args, in_script);
                }
                Err(errors::wrong_arity(id).into())
            }
            Plane::Data => self.run_data(session, id, gate, args),
            Plane::Session | Plane::Admin => {
                let result = planes::run(self, session, id, args);
                if self.monitored {
                    self.show_returned(session, id, args, &result);
                }
                result
            }
            Plane::Container => unreachable!("a container has no arity that lets a call through"),
        };
        if matches!(result, Err(Halt::Aside(_))) {
            return result;
        }
        count_command(session);
        let stats = &self.stats.commands[id as usize];
        stats.calls.add(1);
        if result.is_err() {
            stats.failed.add(1);
        }
        let took_ns = timed.then(|| clock::monotonic_ns().saturating_sub(began_ns));
        if let Some(ns) = took_ns {
            let times = if apart {
                1
            } else {
                u64::from(INSIDE_PER_TIMED)
            };
            stats.note_time(ns, times, self.timing.distributions);
            self.note_time(gate, inside, ns);
        }
        let reply_bytes = session.out.len_bytes().saturating_sub(before_bytes) as u64;
        if heavy
            || reply_bytes >= self.timing.reply_bytes
            || took_ns.is_some_and(|ns| ns >= self.timing.watched_ns)
        {
            self.log_command(session, id, args, took_ns, reply_bytes);
        }
        result
    }

    /// What else the time of a call is for: the batch around it, the latency monitor, the wall clock. `inside`: it ran
    /// inside EXEC or a script, whose own time contains it.
    fn note_time(&mut self, gate: Gate, inside: bool, ns: u64) {
        if !inside {
            self.timing.note_apart(ns);
        }
        if ns >= self.timing.watched_ns {
            // It may have had brief calls inside.
            self.timing.look_closely_if(!gate.is_brief(0));
            let event = match gate.flags.has(Flags::FAST) {
                true => "fast-command",
                false => "command",
            };
            self.note_latency(event, ns);
        }
        if ns > CLOCK_STANDS_NS_MAX && !inside {
            self.read_clock();
        }
    }

    fn resolve(&self, args: Args<'_>) -> Result<CommandId, Error> {
        let resolved = self.shared.names.resolve(&args[0], args.get(1));
        let id = resolved.map_err(|unresolved| match unresolved {
            spec::Unresolved::Command => errors::unknown_command(args),
            spec::Unresolved::Subcommand(container) => errors::unknown_subcommand(container, args),
        })?;
        if !spec::gate(id).lets_pass(args.len()) {
            self.stats.commands[id as usize].rejected.add(1);
            return Err(errors::wrong_arity(id));
        }
        Ok(id)
    }

    /// The checks between lookup and execution.
    fn check(
        &mut self,
        session: &Session,
        id: CommandId,
        gate: Gate,
        args: Args<'_>,
    ) -> Result<(), Error> {
        // Who came before the password was set, or after it was taken away, needs none.
        let locked = session.is(state::UNAUTHENTICATED) && self.settings.acl.login_required();
        if locked && !gate.flags.has(Flags::NO_AUTH) {
            return Err(errors::NO_AUTH);
        }
        if session.is(state::MULTI) && gate.flags.has(Flags::NO_MULTI) {
            return Err(Error::line("ERR Command not allowed inside a transaction"));
        }
        self.permit(session, id, args)?;
        self.check_memory(session, id, gate)?;
        if session.is(state::SUBSCRIBED) && !planes::allowed_while_subscribed(id) {
            return Err(errors::subscribed(id));
        }
        let keyspace = Flags::WRITE
            .with(Flags::READONLY)
            .with(Flags::MAY_REPLICATE);
        if session.is(state::MONITOR) && gate.flags.has_any(keyspace) {
            return Err(errors::MONITOR_TOUCHES_KEYS);
        }
        Ok(())
    }

    /// Makes room where a limit is set; refuses what needs memory when there is none.
    pub(crate) fn check_memory(
        &mut self,
        session: &Session,
        id: CommandId,
        gate: Gate,
    ) -> Result<(), Error> {
        if self.settings.maxmemory_bytes == 0 || session.unit.is_some() {
            return Ok(());
        }
        let enough = crate::cron::make_room(self);
        let queued_needs = id == CommandId::Exec
            && session
                .multi
                .queue
                .iter()
                .any(|(id, _)| spec::gate(*id).flags.has(Flags::DENYOOM));
        if !enough && (gate.flags.has(Flags::DENYOOM) || queued_needs) {
            return Err(errors::OOM);
        }
        Ok(())
    }

    fn break_multi(&self, session: &mut Session) {
        if session.is(state::MULTI) {
            session.multi.broken = true;
        }
    }

    // ---- the data plane -----------------------------------------------------------------------

    fn run_data(
        &mut self,
        session: &mut Session,
        id: CommandId,
        gate: Gate,
        args: Args<'_>,
    ) -> Result<(), Halt> {
        if session.unit.is_some() {
            return self.run_inside(session, id, gate, args);
        }
        match gate.scope {
            Scope::None | Scope::Counters | Scope::OneStripe => loop {
                match self.handle(session, id, args, Held::None, &[]) {
                    Err(Error::Busy(busy)) => self.wait_for_stripe(session, busy.0)?,
                    other => return Ok(other?),
                }
            },
            Scope::All => self.run_locked(session, id, args, &StripeSet::all(), true, &[]),
            // Who has the ticket has it for more stripes than this one: it comes from below, to serve others as well.
            Scope::Keys | Scope::KeysPlus
                if gate.keys == KeyShape::One && session.ticket.is_none() =>
            {
                let key = &args[usize::from(gate.first_key)];
                let stripe = stripe_of(redline_keyspace::hash(key));
                while !self.shared.keyspace.locks().try_one(stripe) {
                    self.wait_for_stripe(session, stripe)?;
                }
                if gate.flags.has(Flags::WRITE) && self.shared.keyspace.anybody_waits() {
                    let (mut own, held) = (StripeSet::EMPTY, Held::One(stripe));
                    own.insert(stripe);
                    let mut wider = own.clone();
                    self.shared.keyspace.widen(held, key, &mut wider);
                    if wider != own {
                        self.shared.keyspace.locks().unlock_one(stripe);
                        return self.run_widening(session, id, args, &mut wider, &[]);
                    }
                }
                let held = Held::One(stripe);
                let result = self.handle(session, id, args, held, &[]);
                let result = self.end_unit(session, id, args, held, result);
                self.shared.keyspace.locks().unlock_one(stripe);
                result
            }
            Scope::Keys | Scope::KeysPlus => {
                let (mut set, mut hints) = (StripeSet::EMPTY, mem::take(&mut self.hints));
                for_each_key(id, args, |key| {
                    let hint = Hint::of(key);
                    let stripe = stripe_of(hint.hash());
                    let _ = self.shared.keyspace.ahead(session.db, hint.hash());
                    self.shared.keyspace.locks().prefetch(stripe);
                    set.insert(stripe);
                    hints.push(hint);
                });
                let result = self.run_widening(session, id, args, &mut set, &hints);
                hints.clear();
                hints.shrink_to(HINTS_KEPT_MAX);
                self.hints = hints;
                result
            }
        }
    }

    /// Runs a command that may find out, as it runs, that it needs more stripes: then it lets go of all, and starts over
    /// with those as well. What it finds may change between two rounds; so the last one takes everything.
    fn run_widening(
        &mut self,
        session: &mut Session,
        id: CommandId,
        args: Args<'_>,
        set: &mut StripeSet,
        hints: &[Hint],
    ) -> Result<(), Halt> {
        if let Some(reserved) = &session.ticket {
            // An earlier round found these.
            set.extend(reserved);
        }
        for round in 1.. {
            self.lock_set(session, set)?;
            // The ticket, if there is one, stays for a wider set.
            if let Some(wider) = self.wider(set, [(id, args)].into_iter()) {
                self.shared.keyspace.locks().unlock_set(set);
                *set = wider;
                continue;
            }
            let held = Held::Set(set);
            match self.handle(session, id, args, held, hints) {
                Err(Error::Missing(missing)) => {
                    self.end_effects(held);
                    self.shared.keyspace.locks().unlock_set(set);
                    if round >= WIDENING_ROUNDS_MAX {
                        break;
                    }
                    set.extend(&missing.0);
                }
                result => {
                    let result = self.end_unit(session, id, args, held, result);
                    self.unlock_set(session, set);
                    return result;
                }
            }
        }
        self.run_locked(session, id, args, &StripeSet::all(), true, hints)
    }

    fn run_locked(
        &mut self,
        session: &mut Session,
        id: CommandId,
        args: Args<'_>,
        set: &StripeSet,
        all: bool,
        hints: &[Hint],
    ) -> Result<(), Halt> {
        self.lock_set(session, set)?;
        let held = if all { Held::All } else { Held::Set(set) };
        let result = self.handle(session, id, args, held, hints);
        let result = self.end_unit(session, id, args, held, result);
        self.unlock_set(session, set);
        result
    }

    /// What a unit has to hold that holds `set`, where that is more, to serve whoever waits for what its commands write.
    pub(crate) fn wider<'a>(
        &self,
        set: &StripeSet,
        commands: impl Iterator<Item = (CommandId, Args<'a>)>,
    ) -> Option<StripeSet> {
        let space = &self.shared.keyspace;
        if !space.anybody_waits() {
            return None;
        }
        let mut wider = set.clone();
        for (id, args) in commands.filter(|(id, _)| spec::gate(*id).flags.has(Flags::WRITE)) {
            for_each_key(id, args, |key| {
                space.widen(Held::Set(set), key, &mut wider);
            });
        }
        (wider != *set).then_some(wider)
    }

    /// The end of a unit of one command, its stripes still held: ends its effects, and registers its client, if it waits.
    fn end_unit(
        &mut self,
        session: &mut Session,
        id: CommandId,
        args: Args<'_>,
        held: Held<'_>,
        result: Result<(), Error>,
    ) -> Result<(), Halt> {
        self.end_effects(held);
        match result {
            Err(Error::Block(block)) => Err(self.begin_wait(session, id, args, &block, held)),
            other => Ok(other?),
        }
    }

    /// Takes all stripes of a unit, or puts the session aside.
    pub(crate) fn lock_set(&mut self, session: &mut Session, set: &StripeSet) -> Result<(), Halt> {
        loop {
            let ticket = session.ticket.is_some();
            let Err(stripe) = self.shared.keyspace.locks().try_set(set, ticket) else {
                return Ok(());
            };
            self.refuse_if_busy()?;
            session.rounds += 1;
            let token = session.card.token.0;
            if !ticket && session.rounds >= ROUNDS_BEFORE_TICKET {
                session.in_line = !self.shared.keyspace.locks().request_ticket(set, token);
                if session.in_line {
                    return Err(Halt::Aside(Aside::Ticket));
                }
                session.ticket = Some(Box::new(set.clone()));
                continue;
            }
            if self.shared.keyspace.locks().wait_for(stripe, token, ticket) == Wait::Registered {
                return Err(Halt::Aside(Aside::Stripe(stripe)));
            }
        }
    }

    /// Lets go of a unit's stripes, and of the ticket if it took one.
    pub(crate) fn unlock_set(&mut self, session: &mut Session, set: &StripeSet) {
        self.shared.keyspace.locks().unlock_set(set);
        self.give_way(session);
    }

    /// The session waits for nothing any more: gives back the ticket, and its places in line.
    pub(crate) fn give_way(&self, session: &mut Session) {
        let (locks, token) = (self.shared.keyspace.locks(), session.card.token.0);
        if let Some(reserved) = session.ticket.take() {
            locks.return_ticket(&reserved, token);
        }
        if std::mem::take(&mut session.in_line) {
            locks.leave_lines(token);
        }
    }

    /// Takes the script mutex for a session, or puts it aside.
    pub(crate) fn lock_script(&self, session: &mut Session) -> Result<(), Halt> {
        session.in_line = !self
            .shared
            .keyspace
            .locks()
            .try_script(session.card.token.0);
        if !session.in_line {
            return Ok(());
        }
        self.refuse_if_busy()?;
        Err(Halt::Aside(Aside::Script))
    }

    /// Registers a session with the stripe that is in its way and puts it aside. `Ok`: the stripe is free by
    /// now, try again.
    fn wait_for_stripe(&self, session: &Session, stripe: u16) -> Result<(), Halt> {
        self.refuse_if_busy()?;
        match self
            .shared
            .keyspace
            .locks()
            .wait_for(stripe, session.card.token.0, false)
        {
            Wait::Registered => Err(Halt::Aside(Aside::Stripe(stripe))),
            Wait::TryAgain => Ok(()),
        }
    }

    /// While a script is over its threshold nobody waits for what it holds: -BUSY.
    pub(crate) fn refuse_if_busy(&self) -> Result<(), Halt> {
        if self.shared.running_script.busy.load(Ordering::Acquire) {
            return Err(Halt::Error(self.shared.running_script.busy_error()));
        }
        Ok(())
    }

    /// Runs a command of the data plane inside EXEC or a script.
    fn run_inside(
        &mut self,
        session: &mut Session,
        id: CommandId,
        gate: Gate,
        args: Args<'_>,
    ) -> Result<(), Halt> {
        let mut unit = session.unit.take().expect("checked by the caller");
        self.extend_unit(&mut unit, id, gate, args);
        let mut inside = Inside {
            in_script: unit.in_script,
            changes: unit.changes,
        };
        let result = loop {
            match self.handle_inside(session, id, args, unit.held(), &[], &mut inside) {
                Err(Error::Missing(missing)) => self.extend_stripes(&mut unit, &missing.0),
                result => break result,
            }
        };
        unit.changes = inside.changes;
        session.unit = Some(unit);
        match result {
            // Nobody waits here: the reply for such callers stands.
            Err(Error::Block(_)) => Ok(()),
            other => Ok(other?),
        }
    }

    /// Takes what a script needs and does not hold yet. EXEC holds everything already.
    fn extend_unit(&mut self, unit: &mut Unit, id: CommandId, gate: Gate, args: Args<'_>) {
        if !unit.script || unit.all {
            return;
        }
        let mut wanted = StripeSet::EMPTY;
        let all = gate.scope.inside_unit() == Scope::All;
        if all {
            wanted = StripeSet::all();
        } else {
            add_stripes(&mut wanted, id, args);
        }
        self.extend_stripes(unit, &wanted);
        unit.all |= all;
    }

    /// Takes stripes on demand: the unit holds the script mutex.
    pub(crate) fn extend_stripes(&self, unit: &mut Unit, wanted: &StripeSet) {
        for stripe in wanted.iter() {
            if !unit.stripes.contains(stripe) {
                self.shared.keyspace.locks().lock_for_script(stripe);
                unit.stripes.insert(stripe);
            }
        }
    }

    /// Calls the handler; its stripes are held.
    fn handle(
        &mut self,
        session: &mut Session,
        id: CommandId,
        args: Args<'_>,
        held: Held<'_>,
        hints: &[Hint],
    ) -> Result<(), Error> {
        self.handle_inside(session, id, args, held, hints, &mut Inside::default())
    }

    /// The same inside EXEC or a script.
    fn handle_inside(
        &mut self,
        session: &mut Session,
        id: CommandId,
        args: Args<'_>,
        held: Held<'_>,
        hints: &[Hint],
        inside: &mut Inside,
    ) -> Result<(), Error> {
        let handler = redline_commands::handler(id).expect("a row of the data plane has a handler");
        let shared = &*self.shared;
        // CLIENT NO-TOUCH: TOUCH alone still leaves its mark.
        self.local.clock.frozen = session.is(state::NO_TOUCH) && id != CommandId::Touch;
        let reads_every_key = spec::gate(id).scope != Scope::KeysPlus
            || access::may_read_every_key(session, id, args);
        let view = View::new(
            &shared.keyspace,
            held,
            &mut self.local,
            session.db,
            self.now_ms,
        );
        let mut ctx = Ctx {
            keys: view,
            bulk_bytes_max: self.settings.bulk_bytes_max,
            in_script: inside.in_script,
            reads_every_key,
            waiter: None,
        };
        ctx.keys.hints(hints);
        let result = handler(
            &mut ctx,
            args,
            &mut Reply::new(&mut session.out, session.proto),
        );
        inside.changes += ctx.keys.changes();
        ctx.keys.finish();
        if ctx.keys.is_journaled() {
            redline_commands::propagate(&mut ctx.keys, id, args);
        }
        self.local.clock.frozen = false;
        let has_run = !matches!(result, Err(Error::Busy(_) | Error::Missing(_)));
        // A call that has waited was shown as it began to.
        if self.monitored && has_run && session.again.is_none() {
            self.show(session, id, args, inside.in_script);
        }
        if !self.local.events.is_empty() {
            planes::publish_events(shared, &mut self.local, Some(&session.card));
        }
        if session.is(state::TRACKING) && has_run && tracking::remembers(session, id) {
            self.remember_keys(session.card.token, id, args);
        }
        result
    }
}

impl Worker {
    /// A client that tracks keys has read those of a call, whose stripes are held.
    pub(crate) fn remember_keys(&mut self, who: Token, id: CommandId, args: Args<'_>) {
        tracking::remember(&self.shared, who, id, args);
        let keys_max = self.settings.tracking_keys_max;
        let rng = &mut self.local.rng;
        let table = &self.shared.tracking;
        table.evict(self.shared.workers(), keys_max, || rng.usize(..));
    }
}

/// May this request turn the worker's loop from inside? Scripts do, past their threshold.
#[inline]
fn may_run_script(session: &Session, what: What) -> bool {
    let What::Command(id) = what else {
        return false;
    };
    runs_script(id)
        || (id == CommandId::Exec
            && session
                .multi
                .queue
                .iter()
                .any(|(queued, _)| runs_script(*queued)))
}

/// Is it one of the commands that run a script?
#[inline]
pub(crate) fn runs_script(id: CommandId) -> bool {
    use CommandId::{Eval, EvalRo, Evalsha, EvalshaRo, Fcall, FcallRo};
    matches!(id, Eval | EvalRo | Evalsha | EvalshaRo | Fcall | FcallRo)
}

/// The bytes of all arguments.
#[inline]
fn payload_bytes(args: Args<'_>) -> u64 {
    args.iter().map(<[u8]>::len).sum::<usize>() as u64
}

#[inline]
fn note_last(session: &Session, id: CommandId) {
    session.card.command.store(id as u16, Ordering::Relaxed);
}

#[inline]
fn note_command(session: &Session, id: CommandId) {
    note_last(session, id);
    count_command(session);
}

/// One more has run for this client. CLIENT LIST does not count itself.
#[inline]
pub(crate) fn count_command(session: &Session) {
    let commands = &session.card.commands;
    commands.store(commands.load(Ordering::Relaxed) + 1, Ordering::Relaxed);
}

/// Adds the stripes of a call's keys.
pub(crate) fn add_stripes(set: &mut StripeSet, id: CommandId, args: Args<'_>) {
    for_each_key(id, args, |key| {
        set.insert(stripe_of(redline_keyspace::hash(key)));
    });
}

/// Visits the keys of a call, in order.
fn for_each_key<'a>(id: CommandId, args: Args<'a>, visit: impl FnMut(&'a [u8])) {
    spec::reachable_keys(id, args.len(), |index| args.get(index).unwrap_or_default())
        .filter_map(|key| args.get(key.position))
        .for_each(visit);
}
/// A client is told that its payload is damaged, and the log of what does not hold in it.
fn log_damage(error: &Error) {
    if let Error::Damaged(what) = error {
        crate::log::warning(&format!("Payload integrity check failed: {what}"));
    }
}
