//! The requests of a group that were decoded together, and the steps to their keys: see the head of `run.rs`.
//!
//! Must not know: how a single command runs.

use std::{mem, ops::Range};

use redline_keyspace::{Ahead, Keyspace, Place, Trace, Unit, Walk};
use redline_resp::{Args, Blob, HEADS, Heads, Name, ProtocolError, Span};
use redline_spec::{self as spec, CommandId};
use redline_table::dict::LOOK_AHEAD_MAX;

use super::runs_script;
use crate::{
    caller::Caller,
    chores::Chore,
    executor::{Executor, Member, Outlet, figures},
    rename_command::Names,
    timing::Charge,
};

/// Requests of one group, decoded and not yet run.
#[derive(Default)]
pub struct Batch {
    /// Requests in the order of arrival.
    pub requests: Vec<Request>,
    /// Arguments of the requests, relative to the first byte of each.
    pub spans: Vec<Span>,
    /// First keys at fixed places: one for each request that has one, in their order.
    ahead: Walk,
    /// Beginnings of the last requests, and the commands that they named.
    pub heads: Heads,
    named: [Option<CommandId>; HEADS],
}

/// A request of a batch.
pub struct Request {
    /// Index, in the batch, of its first key's lookup; [`NO_KEY`]: no key, or none at a fixed place.
    ahead: u32,
    /// Offset of its first byte in the member's query buffer.
    at: u32,
    first_span: u32,
    span_count: u32,
    /// Number of its bytes on the wire; `u32::MAX`: some arguments lie elsewhere.
    bytes: u32,
    /// Member that the request belongs to: the place in the group.
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
    /// A command that has run and was timed separately.
    Charged,
    Broken(ProtocolError),
}

impl Request {
    /// Returns the member that the request belongs to: the place in the group.
    pub fn member(&self) -> usize {
        usize::from(self.member)
    }

    /// Returns the offset of its first byte in the member's query buffer.
    #[inline]
    pub fn at(&self) -> usize {
        self.at as usize
    }

    /// Returns its arguments, in the batch's spans.
    #[inline]
    pub fn spans(&self) -> Range<usize> {
        self.first_span as usize..self.first_span as usize + self.span_count as usize
    }
}

/// Facts known of a request once it is decoded.
#[derive(Clone, Copy)]
pub struct Known<'a> {
    pub(super) id: CommandId,
    /// Lookup of its first key.
    pub(super) ahead: &'a Ahead,
    /// See [`Request::bytes`].
    pub(super) bytes: u32,
}

impl Request {
    /// Returns the protocol error, if the bytes are no request.
    pub fn protocol_error(&self) -> Option<ProtocolError> {
        match self.what {
            What::Broken(error) => Some(error),
            _ => None,
        }
    }
}

impl Batch {
    /// Returns the number of requests.
    pub fn len(&self) -> usize {
        self.requests.len()
    }

    /// Returns true if it has no requests.
    pub fn is_empty(&self) -> bool {
        self.requests.is_empty()
    }

    /// Removes all requests.
    pub fn clear(&mut self) {
        /// Number of spans for which memory is kept: a request of a million arguments is rare.
        const SPANS_KEPT_MAX: usize = 16 * 1024;
        self.requests.clear();
        self.ahead.clear();
        self.spans.clear();
        self.spans.shrink_to(SPANS_KEPT_MAX);
    }

    /// Adds a request: looks its command up, hashes its key and walks on to the keys. `bytes` begin with the request,
    /// which is `len` long; `at` is its place in the member's query buffer, and its `args` arguments are the last spans.
    #[expect(
        clippy::too_many_arguments,
        reason = "the hottest call of the product: a struct would be made and taken apart"
    )]
    #[inline]
    pub fn add(
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
                    ahead = self.ahead.push(space.ahead(db, space.place(key))) as u32;
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

    /// Adds a protocol error of the peer, which is answered in its turn.
    pub fn add_error(&mut self, member: usize, error: ProtocolError) {
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

impl<O: Outlet> Executor<'_, O> {
    /// Runs a batch, walking on to its keys. Scripts, which may turn the loop, are deferred unless the group has one member
    /// and no others are held (out of their places until their replies leave).
    pub fn execute(&mut self, group: &mut [O::Member], batch: &mut Batch, others_held: bool) {
        if batch.is_empty() {
            return;
        }
        // A single key has no misses to overlap with.
        if batch.requests.len() > 1 {
            batch.ahead.begin();
        }
        if self.engine.executors().len() > 1 {
            // With one executor the locks are in our own cache.
            let locks = self.engine.keyspace.locks();
            for key in batch.ahead.keys() {
                locks.prefetch(key.place().stripe());
            }
        }
        let charge = self.timing.begin_batch(batch.requests.len(), &self.outlet);
        let alone = group.len() == 1 && !others_held;
        let mut looked_ahead = 0;
        for index in 0..batch.requests.len() {
            if index >= looked_ahead && self.is_one_of_several(batch, index) {
                looked_ahead = index + self.look_ahead(group, batch, index);
            }
            let request = &batch.requests[index];
            if request.ahead != NO_KEY {
                batch.ahead.reach(request.ahead as usize);
            }
            let number = request.member();
            let member = &mut group[number];
            if member.caller().closing || member.is_deferred() {
                continue;
            }
            if !alone && may_run_script(member.caller(), request.what) {
                // Deferred before it runs again: if it turns the loop, the others must be in their places.
                O::defer(self, member, batch, index, number);
                continue;
            }
            let (caller, bytes, blobs) = member.parts();
            match request.what {
                What::Broken(error) => caller.break_off(error),
                _ => {
                    let spans = &batch.spans[request.spans()];
                    let args = Args::with_big(&bytes[request.at()..], spans, blobs);
                    let known = match (request.what, batch.ahead.get(request.ahead as usize)) {
                        (What::Command(id), Some(ahead)) => Some(Known {
                            id,
                            ahead,
                            bytes: request.bytes,
                        }),
                        _ => None,
                    };
                    self.run_request(caller, args, known);
                    if mem::take(&mut self.timing.timed_apart) {
                        batch.requests[index].what = What::Charged;
                    }
                }
            }
            // Before the next reply is added to it.
            if caller.out.len_bytes() > self.output_watched_bytes {
                O::limit_output(self, member);
            }
            if member.caller().suspended.is_some() {
                O::defer(self, member, batch, index, number);
            }
            self.sweep();
        }
        self.charge(batch, charge);
        figures::copy_counts(self);
    }

    /// Returns true if the next request is for the same collection, and both name elements of it.
    #[inline]
    fn is_one_of_several(&self, batch: &Batch, index: usize) -> bool {
        let key_of = |request: &Request| match request.what {
            What::Command(id) if spec::names_element(id) => {
                batch.ahead.get(request.ahead as usize).map(Ahead::place)
            }
            _ => None,
        };
        let [first, second, ..] = &batch.requests[index..] else {
            return false;
        };
        key_of(first).is_some_and(|key| key_of(second) == Some(key))
    }

    /// Prefetches the elements that several requests in a row look up in one collection together, as the keys of a
    /// batch are. Returns the number of requests for which this is done; they are run in any case.
    #[inline(never)]
    fn look_ahead(&mut self, group: &[O::Member], batch: &Batch, index: usize) -> usize {
        let words = |request: &Request| {
            let (bytes, blobs) = group[request.member()].requests();
            let spans = &batch.spans[request.spans()];
            Args::with_big(&bytes[request.at()..], spans, blobs)
        };
        let first = &batch.requests[index];
        let Some(place) = batch.ahead.get(first.ahead as usize).map(Ahead::place) else {
            return 1;
        };
        let row = batch.requests[index..].iter().take_while(|request| {
            let ahead = batch.ahead.get(request.ahead as usize);
            matches!(request.what, What::Command(id) if spec::names_element(id))
                && ahead.is_some_and(|ahead| ahead.place() == place)
        });
        let elements = row.clone().filter_map(|request| words(request).get(2));
        if let Some(key) = words(first).get(1) {
            let db = group[first.member()].caller().db;
            self.look_ahead_in(db, place, key, elements);
        }
        row.take(LOOK_AHEAD_MAX).count()
    }

    /// Prefetches elements of a collection that are about to be looked up one after the other: [`LOOK_AHEAD_MAX`] at most.
    pub(super) fn look_ahead_in<'a>(
        &mut self,
        db: u32,
        place: Place,
        key: &[u8],
        elements: impl Iterator<Item = &'a [u8]>,
    ) {
        let Some(mut unit) = Unit::try_one(&self.engine.keyspace, place.stripe()) else {
            return;
        };
        let view = unit.view(&mut self.local, db, self.now_ms);
        if let Some(found) = view.find(key, Trace::Prefetch) {
            found.look_ahead(elements);
        }
    }

    fn charge(&mut self, batch: &Batch, charge: Option<Charge>) {
        let Some(charge) = charge else { return };
        let requests = batch.requests.iter();
        let calls = requests.filter_map(|request| match request.what {
            What::Command(id) => Some((id, request.span_count as usize)),
            _ => None,
        });
        self.charge_calls(batch.requests.len(), calls, &charge);
    }

    /// Divides the time of a batch of so many requests among its brief calls. `calls`: commands and numbers of their words.
    pub(super) fn charge_calls(
        &mut self,
        requests: usize,
        calls: impl Iterator<Item = (CommandId, usize)>,
        charge: &Charge,
    ) {
        let share_ns = self.timing.end_batch(charge, requests, &self.outlet);
        let brief = calls.filter(|(id, words)| spec::gate(*id).is_brief(*words));
        // Calls of one command mostly follow each other: one update of the statistics for all of a row.
        let mut row: Option<(CommandId, u64)> = None;
        for (id, _) in brief {
            row = match row {
                Some((same, calls)) if same == id => Some((id, calls + 1)),
                ended => {
                    self.note_row(ended, share_ns, charge);
                    Some((id, 1))
                }
            };
        }
        self.note_row(row, share_ns, charge);
    }

    fn note_row(&self, row: Option<(CommandId, u64)>, share_ns: u64, charge: &Charge) {
        if let Some((id, calls)) = row {
            let times = calls * charge.stands_for;
            self.stats.commands[id as usize].note_time(share_ns, times, self.timing.distributions);
        }
    }

    /// Hands over the garbage of a command, mostly none, before the next one leaves as much again.
    #[inline]
    pub fn sweep(&mut self) {
        if !(self.local.garbage.is_empty() && self.local.flushed.is_empty()) {
            self.sweep_out();
        }
    }

    #[cold]
    fn sweep_out(&mut self) {
        let garbage = self.local.garbage.drain(..).map(Chore::Drop);
        for chore in garbage.chain(self.local.flushed.drain(..).map(Chore::Free)) {
            if self.engine.backlog.has_room_for(&chore) {
                self.engine.chore(chore);
                continue;
            }
            // The reaper falls behind.
            match chore {
                Chore::Free(flushed) => flushed.free(&self.engine.keyspace, &mut self.local.heap),
                Chore::Drop(_) | Chore::Purge | Chore::Maintain | Chore::Stop => drop(chore),
            }
        }
    }
}

/// Returns true if this request may turn the worker's loop from inside. Scripts do, past their threshold.
#[inline]
fn may_run_script(caller: &Caller, what: What) -> bool {
    let What::Command(id) = what else {
        return false;
    };
    runs_script(id)
        || (id == CommandId::Exec
            && caller
                .multi
                .queue
                .iter()
                .any(|(queued, _)| runs_script(*queued)))
}
