//! Calls of a stream that another server has run and told: prefetched in groups as the requests of clients are, and run
//! without the checks that are made of clients.
//!
//! The stream says what is due, so nobody's rights, no role and no limit of memory are asked, and no reply is kept. Only
//! calls that are plain for a client are run here ([`spec::plain`]); all others are the caller's to make. Calls in a row that
//! name elements of one collection have these prefetched as well, all of a group's before the first of them runs.
//!
//! Must not know: where the stream comes from, what any command does.

use redline_keyspace::{Ahead, Keyspace, Place, Walk};
use redline_resp::{Args, HEADS, Name};
use redline_spec::{self as spec, CommandId, Flags};
use redline_table::dict::LOOK_AHEAD_MAX;
use redline_types::number;

use super::{batch::Known, run::Straight};
use crate::{
    caller::Caller,
    executor::{Executor, Outlet, figures},
    rename_command::Names,
    timing::Charge,
};

/// Calls of a stream in the order in which they will be run, and the steps to their keys.
#[derive(Default)]
pub struct Replay {
    walk: Walk,
    calls: Vec<Planned>,
    /// The number of calls that were taken.
    taken: usize,
    /// The time of the calls, if it is taken for all of them together.
    charge: Option<Charge>,
    named: [Option<CommandId>; HEADS],
}

/// A call of a [`Replay`], as far as it is known before it runs.
#[derive(Clone, Copy)]
pub struct Planned {
    /// The command, if it is one that changes one key, and may be tried on the straight path.
    id: Option<CommandId>,
    /// The number of its key in the walk; [`NO_KEY`]: none.
    key: u32,
    words: u32,
    /// The database in which it will run.
    db: u32,
    /// It has run on the straight path.
    has_run: bool,
}

const NO_KEY: u32 = u32::MAX;

impl Replay {
    /// Adds a call that will run in this database behind those that are here. `name`: the number of its name. A wrong
    /// database costs the prefetches. Returns its command, if there is one of that name.
    #[inline]
    fn add(
        &mut self,
        names: &Names,
        space: &Keyspace,
        db: u32,
        name: Name,
        args: Args<'_>,
    ) -> Option<CommandId> {
        let id = match name {
            Name::Known(number) => self.named[usize::from(number)],
            Name::New(number) => {
                let id = names.lookup(&args[0]);
                self.named[usize::from(number)] = id;
                id
            }
            Name::Unnumbered => names.lookup(&args[0]),
        };
        let mut planned = Planned {
            id: None,
            key: NO_KEY,
            words: args.len() as u32,
            db,
            has_run: false,
        };
        if let Some(id) = id {
            let first = spec::data_key(id);
            let key = if first == 0 { None } else { args.get(first) };
            if let Some(key) = key {
                planned.key = self.walk.push(space.ahead(db, space.place(key))) as u32;
                let flags = spec::gate(id).flags;
                let may_try = flags.has(Flags::WRITE) && !flags.has(Flags::BLOCKING);
                planned.id = may_try.then_some(id);
            }
        }
        self.calls.push(planned);
        id
    }

    /// Adds calls of which the first runs in this database, each with the number of its name.
    fn add_all<'a>(
        &mut self,
        names: &Names,
        space: &Keyspace,
        mut db: u32,
        calls: impl Iterator<Item = (Name, Args<'a>)>,
    ) {
        for (name, args) in calls {
            if self.add(names, space, db, name, args) == Some(CommandId::Select) {
                let selected = args.get(1).and_then(number::parse_i64);
                let selected = selected.and_then(|selected| u32::try_from(selected).ok());
                // One that is not there is refused when it is run.
                db = selected
                    .filter(|selected| *selected < space.databases())
                    .unwrap_or(db);
            }
        }
    }

    /// Takes the next call, and walks on to the keys behind it.
    #[inline]
    pub fn take(&mut self) -> Option<Planned> {
        let planned = *self.calls.get(self.taken)?;
        self.taken += 1;
        if planned.key != NO_KEY {
            self.walk.reach(planned.key as usize);
        }
        Some(planned)
    }

    /// Forgets what was seen on the way to the keys. For whoever goes on much later: nothing of it may be believed then.
    pub fn forget_steps(&mut self) {
        self.walk.clear();
        self.calls.iter_mut().for_each(|call| call.key = NO_KEY);
    }

    /// Removes all calls.
    pub fn clear(&mut self) {
        self.walk.clear();
        self.calls.clear();
        self.taken = 0;
        self.charge = None;
    }

    fn ahead(&self, planned: Planned) -> Option<&Ahead> {
        self.walk.get(planned.key as usize)
    }

    /// Returns the place of the collection that a call names an element of.
    #[inline]
    fn collection(&self, planned: Planned) -> Option<(u32, Place)> {
        let id = planned.id.filter(|id| spec::names_element(*id))?;
        debug_assert_eq!(spec::data_key(id), 1);
        Some((planned.db, self.ahead(planned)?.place()))
    }

    /// Returns the number of calls from this one on that name elements of one collection; `None`: this one names none.
    fn row_from(&self, at: usize) -> Option<(u32, Place, usize)> {
        let (db, place) = self.collection(self.calls[at])?;
        let calls = self.calls[at..].iter();
        let row = calls.take_while(|call| self.collection(**call) == Some((db, place)));
        Some((db, place, row.count()))
    }
}

/// Outcome of a call that was to take the straight path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Replayed {
    /// It has run.
    Done,
    /// It has run to an error, whose reply is the last one of the caller.
    Failed,
    /// It is not plain, or has to wait: nothing has happened.
    NotPlain,
}

impl<O: Outlet> Executor<'_, O> {
    /// Takes other calls into a replay whose time has ended, of which the first runs in this database; each with the number of
    /// its name. Walks to the first keys and to elements of collections, and begins to take the calls' time.
    pub fn begin_replay<'c>(
        &mut self,
        replay: &mut Replay,
        db: u32,
        calls: impl Iterator<Item = (Name, Args<'c>)> + Clone,
    ) {
        replay.clear();
        let (names, space) = (&self.engine.names, &self.engine.keyspace);
        replay.add_all(names, space, db, calls.clone());
        replay.walk.begin();
        if self.engine.executors().len() > 1 {
            let locks = self.engine.keyspace.locks();
            for key in replay.walk.keys() {
                locks.prefetch(key.place().stripe());
            }
        }
        replay.charge = self.timing.begin_batch(replay.calls.len(), &self.outlet);
        self.look_ahead_in_rows(replay, calls.map(|(_, args)| args));
    }

    /// Prefetches the elements that calls in a row name in one collection.
    fn look_ahead_in_rows<'c>(
        &mut self,
        replay: &Replay,
        mut calls: impl Iterator<Item = Args<'c>>,
    ) {
        // `calls` is at the call of this number.
        let (mut reached, mut at) = (0, 0);
        while at < replay.calls.len() {
            let Some((db, place, count @ 2..)) = replay.row_from(at) else {
                at += 1;
                continue;
            };
            calls.by_ref().take(at - reached).for_each(drop);
            reached = at + count;
            while at < reached {
                let some = LOOK_AHEAD_MAX.min(reached - at);
                let mut row = calls.by_ref().take(some).peekable();
                if let Some(key) = row.peek().and_then(|args| args.get(1)) {
                    let elements = row.by_ref().filter_map(|args| args.get(2));
                    self.look_ahead_in(db, place, key, elements);
                }
                row.for_each(drop);
                at += some;
            }
        }
    }

    /// Ends the time of the calls that have run, before other work follows.
    pub fn end_replay(&mut self, replay: &mut Replay) {
        if let Some(charge) = replay.charge.take() {
            let calls = replay.calls[..replay.taken].iter();
            let have_run = calls.filter(|call| call.has_run);
            let calls = have_run.filter_map(|call| Some((call.id?, call.words as usize)));
            self.charge_calls(replay.taken, calls, &charge);
        }
        figures::copy_counts(self);
    }

    /// Runs a call of a stream, if it is plain and nothing stands in its way. `bytes`: those of the call in the stream. The
    /// settings are those that the executor took over last.
    #[inline]
    pub fn replay(
        &mut self,
        caller: &mut Caller,
        replay: &mut Replay,
        planned: Planned,
        args: Args<'_>,
        bytes: usize,
    ) -> Replayed {
        let (Some(id), Some(ahead), false) = (planned.id, replay.ahead(planned), self.monitored)
        else {
            return Replayed::NotPlain;
        };
        let bytes = u32::try_from(bytes).unwrap_or(u32::MAX);
        let known = Known { id, ahead, bytes };
        let replayed = match self.run_straight(caller, args, known) {
            Straight::Done => Replayed::Done,
            Straight::Failed => Replayed::Failed,
            Straight::Refused => return Replayed::NotPlain,
        };
        replay.calls[replay.taken - 1].has_run = true;
        replayed
    }
}
