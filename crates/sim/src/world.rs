//! The simulated world: executors and their clients, the choice of the next step, and the checks.
//!
//! Must not know: the requests of clients.

use std::{
    cell::RefCell,
    fmt,
    rc::Rc,
    sync::{
        Arc,
        mpsc::{self, Receiver},
    },
};

use fastrand::Rng;
use redline_engine::{
    Engine, Executor, ExecutorHandle, Names, Settings,
    chores::Chore,
    engine::Bell,
    executor::block::{self, after_upkeep},
    tracking,
};
use redline_keyspace::{
    Keyspace, Trace, Unit, ValueRef, View,
    journal::{Record, RecordReader},
    lock::StripeSet,
    upkeep::{Expiring, ExpiryCursor},
};
use redline_table::heap::Heap;

use crate::{
    actors::{self, Actor},
    ledger::{ACCOUNTS, BALANCE, Ledger},
    replica::{Replica, digest},
    surroundings::{
        Client, NoFault, Plant, Queue, Surroundings, Time, close, deliver, open, serve,
    },
};

/// Number of databases: that of the ledger, and that of the strangers.
const DATABASES: usize = 2;
/// Run time from which on a script counts as busy: milliseconds of simulated time.
const BUSY_MS: u64 = 1;
/// Number of steps from one check to the next.
const CHECK_STEPS: u64 = 4096;
/// Number of steps after the last request in which all clients have to finish.
const LAST_STEPS: usize = 400_000;
/// Token of a holder of stripes that is no client.
const FOREIGN: u64 = u64::MAX >> 1;

/// A simulation.
#[derive(Clone, Copy, Debug)]
pub struct Plan {
    /// Decides everything.
    pub seed: u64,
    /// Number of executors.
    pub executors: usize,
    /// Number of clients of each.
    pub clients: usize,
    /// Number of requests that run.
    pub requests: u64,
}

/// Figures of a simulation.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Report {
    /// Number of requests that ran.
    pub requests: u64,
    /// Number of records of the journal that were replayed.
    pub records: u64,
    /// Number of transactions that failed by a change of a watched key.
    pub lost_races: u64,
    /// Number of items that went through queues.
    pub items: u64,
    /// Number of times that a client had to wait for a stripe, the ticket, or a script.
    pub suspended: u64,
    /// Number of requests that were refused since a script was running for long.
    pub busy: u64,
    /// Number of checks of all invariants.
    pub checks: u64,
}

/// An invariant that does not hold.
#[derive(Debug)]
pub struct Violation {
    /// Plan that shows it.
    pub plan: Plan,
    /// Number of requests that had run by then.
    pub requests: u64,
    /// A description of what is wrong.
    pub what: String,
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Violation {
            plan,
            requests,
            what,
        } = self;
        write!(
            f,
            "seed {}, after {requests} requests: {what} ({plan:?})",
            plan.seed
        )
    }
}

/// An engine and its output.
pub struct Stage {
    /// The engine.
    pub engine: Engine,
    queues: Vec<Queue>,
    chores: Receiver<Chore>,
}

impl Stage {
    /// Creates an engine with that number of executors.
    pub fn new(executors: usize) -> Stage {
        let bell = Bell::default();
        let keyspace = Keyspace::new(DATABASES, Box::new(bell.clone()));
        let settings = Settings {
            busy_reply_threshold_ms: BUSY_MS,
            ..Settings::default()
        };
        let (sender, chores) = mpsc::channel();
        let engine = Engine::new(keyspace, settings, Names::default(), sender);
        let queues: Vec<Queue> = (0..executors).map(|_| Queue::default()).collect();
        bell.set(queues.iter().map(Queue::mailbox).collect());
        let handles = queues.iter().map(|queue| ExecutorHandle {
            mailbox: queue.mailbox(),
            stats: Arc::default(),
            transit: Arc::default(),
        });
        engine.set_executors(handles.collect());
        Stage {
            engine,
            queues,
            chores,
        }
    }

    /// Returns the messages on their way to an executor.
    pub(crate) fn queue(&self, number: usize) -> Queue {
        self.queues[number].clone()
    }

    /// Runs the pending background work.
    pub fn do_chores(&self, heap: &mut Heap) {
        while let Ok(chore) = self.chores.try_recv() {
            let size = chore.size();
            match chore {
                Chore::Free(flushed) => flushed.free(&self.engine.keyspace, heap),
                other => drop(other),
            }
            self.engine.backlog.take_off(&size);
        }
    }
}

/// Runs a simulation without a fault.
pub fn run(plan: Plan) -> Result<Report, Violation> {
    run_with::<NoFault>(plan)
}

/// Runs a simulation with a fault planted.
pub fn run_with<P: Plant>(plan: Plan) -> Result<Report, Violation> {
    let (stage, second) = (Stage::new(plan.executors), Stage::new(1));
    let mut world = World::<P>::new(&stage, &second, plan);
    let result = world.run();
    let requests = world.requests();
    result.map_err(|what| Violation {
        plan,
        requests,
        what,
    })
}

struct World<'e, P: Plant> {
    plan: Plan,
    stage: &'e Stage,
    executors: Vec<Executor<'e, Surroundings<P>>>,
    expiry: Vec<[ExpiryCursor; 2]>,
    replica: Replica<'e>,
    journal: Receiver<Record>,
    second: &'e Stage,
    ledger: Rc<RefCell<Ledger>>,
    time: Time,
    rng: Rng,
    heap: Heap,
    /// Unit that holds stripes and the script mutex, as another thread would.
    foreign: Option<Unit<'e>>,
    records: u64,
    checks: u64,
    suspended: u64,
}

impl<'e, P: Plant> World<'e, P> {
    fn new(stage: &'e Stage, second: &'e Stage, plan: Plan) -> World<'e, P> {
        let mut rng = Rng::with_seed(plan.seed);
        let ledger = Rc::new(RefCell::new(Ledger::default()));
        let time = Time::default();
        let (give, journal) = mpsc::channel();
        // The receiver lives as long as the world.
        let stream = RecordReader::new(move |record| drop(give.send(record)));
        let attached = stage.engine.keyspace.try_attach_stream(Box::new(stream));
        attached.unwrap_or_else(|_| unreachable!("nobody else is here"));
        let executors = stage.queues.iter().enumerate().map(|(number, queue)| {
            let seed = rng.u64(..);
            let outlet =
                Surroundings::new(number, seed, time.clone(), queue.clone(), ledger.clone());
            let mut executor = Executor::new(&stage.engine, number, seed, outlet);
            for client in 0..plan.clients {
                let number = number * plan.clients + client;
                open(&mut executor, Actor::nth(number, rng.u64(..)));
            }
            executor
        });
        let executors: Vec<_> = executors.collect();
        let cursor = |what, number| ExpiryCursor::new(what, number, plan.executors);
        World {
            plan,
            stage,
            expiry: (0..plan.executors)
                .map(|number| [Expiring::Keys, Expiring::Elements].map(|what| cursor(what, number)))
                .collect(),
            executors,
            replica: Replica::new(second),
            journal,
            second,
            ledger,
            time,
            rng,
            heap: Heap::new(),
            foreign: None,
            records: 0,
            checks: 0,
            suspended: 0,
        }
    }

    fn requests(&self) -> u64 {
        let requests = self
            .executors
            .iter()
            .map(|executor| executor.outlet.requests);
        requests.sum()
    }

    fn run(&mut self) -> Result<Report, String> {
        self.fill_accounts();
        let mut steps = 0u64;
        while self.requests() < self.plan.requests {
            self.step();
            steps += 1;
            if steps.is_multiple_of(CHECK_STEPS) {
                self.check()?;
            }
            if let Some(violation) = self.ledger.borrow().violation() {
                return Err(violation.into());
            }
        }
        self.end()?;
        self.check()?;
        let ledger = self.ledger.borrow();
        Ok(Report {
            requests: self.requests(),
            records: self.records,
            lost_races: ledger.lost_races,
            items: ledger.taken,
            suspended: self.suspended,
            busy: ledger.busy,
            checks: self.checks,
        })
    }

    fn fill_accounts(&mut self) {
        let executor = &mut self.executors[0];
        let now_ms = executor.now_ms as u64;
        let token = redline_engine::caller::Token::new(0, 1000, 0);
        let engine = executor.engine;
        let mut client = Client::new(engine, token, now_ms, Actor::silent());
        for account in actors::accounts() {
            let balance = BALANCE.to_string();
            let words: [&[u8]; 3] = [b"SET", account.as_bytes(), balance.as_bytes()];
            let args: redline_resp::ArgsBuf = words.into_iter().collect();
            executor.run_request(&mut client.caller, args.as_args(), None);
        }
    }

    /// Makes the next step, chosen by the seed.
    fn step(&mut self) {
        let number = self.rng.usize(..self.executors.len());
        match self.rng.usize(..200) {
            0..140 => self.serve_some(number),
            140..170 => {
                let count = 1 + self.rng.usize(..4);
                deliver(&mut self.executors[number], count);
            }
            170..182 => self.pass_time(number),
            182..188 => self.hold_or_release(),
            188..196 => self.expire(number),
            196 => self.replace_stranger(number),
            _ => self.stage.do_chores(&mut self.heap),
        }
    }

    fn serve_some(&mut self, number: usize) {
        let executor = &mut self.executors[number];
        let places = executor.outlet.places.len();
        let mut picked: Vec<usize> = Vec::new();
        for _ in 0..1 + self.rng.usize(..3) {
            let index = self.rng.usize(..places);
            if !picked.contains(&index) {
                picked.push(index);
            }
        }
        executor.read_clock();
        executor.refresh_if_changed();
        let before = executor.stats.suspended.get();
        serve(executor, &picked);
        self.suspended += executor.stats.suspended.get() - before;
        executor.end_turn(0, 0);
    }

    fn pass_time(&mut self, number: usize) {
        self.time.pass(self.rng.u64(..3_000_000));
        let executor = &mut self.executors[number];
        executor.read_clock();
        executor.refresh_if_changed();
        block::expire_waits(executor);
        executor.end_pause();
    }

    fn hold_or_release(&mut self) {
        if self.foreign.take().is_some() {
            return;
        }
        let space = &self.stage.engine.keyspace;
        let Some(mut unit) = Unit::try_script(space, FOREIGN) else {
            space.locks().leave_lines(FOREIGN);
            return;
        };
        let names = actors::accounts().into_iter().chain(actors::queues());
        let counters = (0..5).map(|number| format!("ledger:counter:{number}"));
        let names: Vec<String> = names.chain(counters).collect();
        for _ in 0..self.rng.usize(..4) {
            let name = &names[self.rng.usize(..names.len())];
            unit.add(space.place(name.as_bytes()).stripe());
        }
        self.foreign = Some(unit);
    }

    fn expire(&mut self, number: usize) {
        let executor = &mut self.executors[number];
        let engine = executor.engine;
        executor.read_clock();
        for cursor in &mut self.expiry[number] {
            engine.keyspace.expire_step(
                &mut executor.local,
                executor.now_ms,
                cursor,
                &mut |unit, local| after_upkeep(engine, unit, local),
            );
        }
    }

    /// Closes the connection of a stranger, whatever it is doing, and opens another one.
    fn replace_stranger(&mut self, number: usize) {
        let executor = &mut self.executors[number];
        let places = &executor.outlet.places;
        let is_stranger = |index: &usize| {
            let client = places[*index].client.as_ref();
            client.is_some_and(|client| client.actor.is_stranger())
        };
        let strangers: Vec<usize> = (0..places.len()).filter(is_stranger).collect();
        if let Some(index) = self.rng.choice(strangers) {
            close(executor, index);
            open(executor, Actor::stranger(self.rng.u64(..)));
        }
    }

    /// Stops new requests, and runs until all clients have finished.
    fn end(&mut self) -> Result<(), String> {
        self.ledger.borrow_mut().asking = false;
        for number in 0..self.executors.len() {
            let executor = &mut self.executors[number];
            for index in 0..executor.outlet.places.len() {
                let client = executor.outlet.places[index].client.as_ref();
                if client.is_some_and(|client| client.actor.is_stranger()) {
                    close(executor, index);
                }
            }
        }
        for step in 0..LAST_STEPS {
            self.foreign = None;
            let number = step % self.executors.len();
            self.pass_time(number);
            deliver(&mut self.executors[number], usize::MAX);
            self.serve_some(number);
            if step % 64 == 0 && self.unanswered().is_none() {
                return match self.ledger.borrow().violation() {
                    Some(violation) => Err(violation.into()),
                    None => Ok(()),
                };
            }
        }
        let client = self.unanswered().unwrap_or_default();
        Err(format!("a client is never answered: {client}"))
    }

    fn unanswered(&self) -> Option<String> {
        let places = self
            .executors
            .iter()
            .flat_map(|executor| &executor.outlet.places);
        let mut clients = places.filter_map(|place| place.client.as_ref());
        let waits = clients.find(|client| client.actor.unanswered() > 0 || !client.is_idle());
        waits.map(|client| {
            let suspended = client.caller.suspended;
            format!("{:?}, suspended: {suspended:?}", client.actor)
        })
    }

    /// Checks all invariants, with no request in progress.
    fn check(&mut self) -> Result<(), String> {
        self.checks += 1;
        self.foreign = None;
        self.settle();
        for executor in &mut self.executors {
            executor.read_clock();
        }
        for number in 0..self.executors.len() {
            // Expired elements are removed from their collection, and empty collections as well.
            for _ in 0..2 * redline_keyspace::lock::STRIPES {
                self.expire(number);
            }
        }
        self.settle();
        self.check_values()?;
        let space = &self.stage.engine.keyspace;
        space.journal().pump_all();
        let records: Vec<Record> = self.journal.try_iter().collect();
        self.records += records.len() as u64;
        self.replica.apply(&records)?;
        self.second.do_chores(&mut self.heap);
        if self.requests() < self.plan.requests {
            return Ok(());
        }
        let own = digest(space, &mut self.executors[0].local);
        if own != Some(self.replica.digest()) {
            return Err("the journal's records give other data".into());
        }
        Ok(())
    }

    /// Delivers messages, and runs the writes that follow from them.
    fn settle(&mut self) {
        for _ in 0..3 {
            for executor in &mut self.executors {
                deliver(executor, usize::MAX);
                let ledger = executor.outlet.ledger.clone();
                for place in &mut executor.outlet.places {
                    if let Some(client) = &mut place.client {
                        tracking::before_write(&mut client.caller);
                        client.hear_all(&mut ledger.borrow_mut());
                    }
                }
            }
        }
    }

    /// Checks sums, counters, and the values that clients take for current.
    fn check_values(&mut self) -> Result<(), String> {
        let executor = &mut self.executors[0];
        let space = &self.stage.engine.keyspace;
        let Ok(mut unit) = Unit::try_set(space, &StripeSet::all(), false) else {
            return Err("somebody holds a stripe who is not running".into());
        };
        let mut view = unit.view(&mut executor.local, 0, executor.now_ms);
        let wrong = wrong_values(&view, &self.ledger.borrow());
        view.finish();
        match wrong.is_empty() {
            true => Ok(()),
            false => Err(wrong.join("; ")),
        }
    }
}

/// Returns descriptions of the violations in the ledger's database.
fn wrong_values(view: &View<'_>, ledger: &Ledger) -> Vec<String> {
    let text = |key: &str| -> Option<Vec<u8>> {
        let found = view.find(key.as_bytes(), Trace::Quiet)?;
        let mut text = None;
        found.with(|value| {
            if let ValueRef::String(string) = value {
                text = Some(string.as_bytes().to_vec());
            }
        });
        text
    };
    let number = |key: &str| -> i64 {
        let text = text(key).and_then(|text| String::from_utf8(text).ok());
        text.and_then(|text| text.parse().ok()).unwrap_or(0)
    };
    let balances: Vec<i64> = actors::accounts().iter().map(|name| number(name)).collect();
    let mut wrong = Vec::new();
    if balances.iter().sum::<i64>() != ACCOUNTS as i64 * BALANCE {
        wrong.push(format!("money came or went: {balances:?}"));
    }
    if balances.iter().any(|balance| *balance < 0) {
        wrong.push(format!("an account is overdrawn: {balances:?}"));
    }
    // A reply may not have reached its client yet, but for at the end.
    if !ledger.asking {
        for (key, expected) in &ledger.counters {
            let found = number(key);
            if found != *expected {
                wrong.push(format!("{key} is {found}, and was raised by {expected}"));
            }
        }
    }
    for (id, believed) in &ledger.believed {
        for (key, value) in believed {
            let key = String::from_utf8_lossy(key);
            let found = text(&key);
            if found != *value {
                wrong.push(format!(
                    "client {id} believes {key} to be {value:?}, and it is {found:?}"
                ));
            }
        }
    }
    wrong
}

#[cfg(test)]
mod tests;
