//! Tests of the writer: every fault of every call in a life with appends, syncs and rewrites, and what is there after the
//! power has gone. What was said to be on disk must be loaded again, in order and without a gap.

pub(super) mod steps;

use std::collections::VecDeque;
use std::path::Path;

use super::*;
use crate::aof::scan::{Course, End, Flaw, Item, Scanner, Tolerance, What, course};
use crate::disk::double::{Double, FAULTS, Fault, Kept};
use crate::disk::{Reader, read_whole};

pub(super) fn paths() -> Paths {
    Paths {
        dir: "/data".into(),
        folder_name: "appendonlydir".into(),
        file_name: "appendonly.aof".into(),
    }
}

pub(super) fn command(words: &[&str]) -> Vec<u8> {
    let mut bytes = format!("*{}\r\n", words.len()).into_bytes();
    for word in words {
        bytes.extend_from_slice(format!("${}\r\n{word}\r\n", word.len()).as_bytes());
    }
    bytes
}

/// The unit of a number: it says which it is, so that gaps and repeats are seen.
fn unit(number: u64) -> Vec<u8> {
    let text = number.to_string();
    if number.is_multiple_of(3) {
        let inner = command(&["UNIT", &text]);
        return [command(&["MULTI"]), inner, command(&["EXEC"])].concat();
    }
    command(&["UNIT", &text])
}

/// Reads what a start would load: the number up to which everything is there, and where its last file must be cut.
pub(super) fn load(disk: &Double) -> Result<u64, String> {
    let paths = paths();
    let manifest = manifest::load(disk, &paths).map_err(|error| error.text)?;
    let Some(manifest) = manifest else {
        return Ok(0);
    };
    let names: Vec<_> = manifest.files().map(|entry| entry.name.clone()).collect();
    let mut loaded = 0;
    for (index, name) in names.iter().enumerate() {
        let is_last = manifest.is_end(disk, &paths.folder(), index);
        let end = read_units(disk, &paths.file(name), &mut loaded)?;
        // Pages that never reached the disk leave zeros, which the longest corrupt tail allows.
        let tolerance = Tolerance {
            takes_truncated: true,
            corrupt_tail_bytes_max: u64::MAX,
        };
        if let Course::Refuse(lines) = course(&end, &name.display().to_string(), is_last, tolerance)
        {
            return Err(format!("{lines:?}"));
        }
        if !matches!(end, End::Whole { .. }) {
            break;
        }
    }
    Ok(loaded)
}

/// Reads the units of a file, which continue those up to `loaded`. A command that nobody wrote is a flaw: the format has no
/// checksums, so a loss of power may leave zeros inside an argument, which only whoever knows the commands can find.
fn read_units(disk: &Double, path: &Path, loaded: &mut u64) -> Result<End, String> {
    let failed = |error: io::Error| format!("{}: {error}", path.display());
    let size = disk.len(path).map_err(failed)?;
    let file = disk.open(path).map_err(failed)?;
    let mut scanner = Scanner::new(Reader::new(file, 0), 0, size);
    // A transaction counts when all of it is there.
    let mut queued = Vec::new();
    loop {
        let whole = scanner.whole();
        let command = match scanner.next().unwrap() {
            Item::End(end) => return Ok(end),
            Item::Annotation(_) => continue,
            Item::Command(command) => command,
        };
        let number = command
            .args
            .get(1)
            .and_then(|text| std::str::from_utf8(text).ok()?.parse().ok());
        match (&command.args[0], number) {
            (b"BASE", Some(number)) => *loaded = number,
            (b"UNIT", Some(number)) => queued.push(number),
            (b"MULTI" | b"EXEC", None) if command.args.len() == 1 => {}
            _ => {
                let flaw = Flaw {
                    at: command.offset,
                    what: What::NoCommand,
                };
                return Ok(End::Corrupt { whole, size, flaw });
            }
        }
        let is_whole = match &command.args[0] {
            b"MULTI" => false,
            name => !command.is_in_transaction || name == b"EXEC",
        };
        if !is_whole {
            continue;
        }
        for number in queued.drain(..) {
            if number != *loaded + 1 {
                return Err(format!("{number} after {loaded} in {}", path.display()));
            }
            *loaded = number;
        }
    }
}

/// A server: it numbers units, appends and runs what is wished.
pub(super) struct Server {
    pub(super) disk: Double,
    pub(super) writer: Writer,
    pub(super) jobs: VecDeque<Job>,
    /// Number of the last unit, and of the first that has not been appended.
    pub(super) last: u64,
    pub(super) first_waiting: u64,
    pub(super) cut: Option<u64>,
    pub(super) now_s: i64,
    pub(super) acknowledged: u64,
    pub(super) log: Vec<String>,
    pub(super) refused: Option<String>,
    pub(super) exit: Option<u8>,
    pub(super) ended: Option<bool>,
    pub(super) stopped: bool,
    pub(super) rewrites: Vec<bool>,
    /// The fault of the test that must be found: it says what is in the file to be on disk.
    pub(super) acknowledges_early: bool,
}

impl Server {
    pub(super) fn new(disk: &Double, settings: Settings) -> Server {
        let manifest = manifest::load(disk, &paths()).unwrap().unwrap_or_default();
        let loaded = load(disk).unwrap();
        let mut writer = Writer::new(paths(), settings, manifest, (0, 0));
        writer.written = loaded;
        Server {
            disk: disk.clone(),
            writer,
            jobs: VecDeque::new(),
            last: loaded,
            first_waiting: loaded + 1,
            cut: None,
            now_s: 1_000,
            acknowledged: loaded,
            log: Vec::new(),
            refused: None,
            exit: None,
            ended: None,
            stopped: false,
            rewrites: Vec::new(),
            acknowledges_early: false,
        }
    }

    pub(super) fn take(&mut self, wishes: Vec<Wish>) {
        for wish in wishes {
            match wish {
                Wish::Run(job) => self.jobs.push_back(job),
                Wish::Log(_, line) => self.log.push(line),
                Wish::Refuse(text) => self.refused = Some(text),
                Wish::Accept => self.refused = None,
                Wish::Exit(code) => self.exit = Some(code),
                Wish::Cut { rewrite } => self.cut = Some(rewrite),
                Wish::Synced(number) => self.acknowledged = number,
                Wish::RewriteEnded { is_done, .. } => self.rewrites.push(is_done),
                Wish::Stopped => self.stopped = true,
                Wish::Ended { is_synced } => self.ended = Some(is_synced),
            }
        }
    }

    /// Writes a unit, as a client does; one that is refused writes nothing.
    pub(super) fn write(&mut self) {
        if self.refused.is_none() && self.exit.is_none() {
            self.last += 1;
        }
        self.append();
    }

    pub(super) fn append(&mut self) {
        if self.first_waiting > self.last || self.exit.is_some() {
            return;
        }
        let units: Vec<Vec<u8>> = (self.first_waiting..=self.last).map(unit).collect();
        let slices: Vec<&[u8]> = units.iter().map(|unit| &unit[..]).collect();
        let (appended, wishes) = self.writer.append(&slices, self.last, self.now_s, true);
        if appended == Appended::Written {
            self.first_waiting = self.last + 1;
            if self.acknowledges_early {
                self.acknowledged = self.last;
            }
        }
        self.take(wishes);
    }

    pub(super) fn run_job(&mut self) -> bool {
        if self.exit.is_some() {
            return false;
        }
        let Some(job) = self.jobs.pop_front() else {
            return false;
        };
        let done = job.run(&self.disk);
        let wishes = self.writer.done(done, self.now_s);
        self.take(wishes);
        true
    }

    pub(super) fn run_jobs(&mut self) {
        while self.run_job() {}
    }

    pub(super) fn tick(&mut self) {
        self.now_s += 1;
        let wishes = self.writer.tick(self.now_s);
        self.take(wishes);
        self.append();
    }

    pub(super) fn sync(&mut self) {
        let job = self.writer.sync();
        self.jobs.extend(job);
    }

    /// Begins a rewrite, and runs its jobs up to the cut.
    pub(super) fn begin_rewrite(&mut self) {
        let wishes = self.writer.rewrite().expect("none runs");
        self.take(wishes);
        self.run_jobs();
    }

    /// Cuts at the last number, and returns the rewrite; its base has yet to be written.
    pub(super) fn switch(&mut self) -> u64 {
        let rewrite = self.cut.take().expect("a rewrite waits for its cut");
        let wishes = self.writer.switch(rewrite, self.last, self.now_s);
        self.take(wishes);
        rewrite
    }

    /// Cuts, goes on with a few units, and writes the base.
    pub(super) fn rewrite_if_cut(&mut self, units_meanwhile: usize) {
        let Some(rewrite) = self.cut.take() else {
            return;
        };
        self.append();
        let cut = self.last;
        let wishes = self.writer.switch(rewrite, cut, self.now_s);
        // What was refused is in the base.
        if self
            .writer
            .rewrite
            .as_ref()
            .is_some_and(|running| running.id == rewrite)
        {
            self.first_waiting = cut + 1;
        }
        self.take(wishes);
        for _ in 0..units_meanwhile {
            self.write();
            self.run_job();
        }
        let path = Path::new("/data/temp-rewriteaof-bg.aof");
        let bytes = command(&["BASE", &cut.to_string()]);
        let wishes = match self.write_base(path, &bytes) {
            Ok(()) => self.writer.base_written(rewrite, base(path, bytes.len())),
            Err(error) => self
                .writer
                .base_failed(rewrite, &error.to_string(), self.now_s),
        };
        self.take(wishes);
        self.write();
        self.sync();
        self.run_jobs();
        self.append();
    }

    pub(super) fn write_base(&mut self, path: &Path, bytes: &[u8]) -> io::Result<()> {
        let file = self.disk.create(path)?;
        crate::disk::write_all(&*file, &[bytes]).map_err(|(_, error)| error)?;
        file.sync_data()
    }

    /// Ticks until a rewrite that is wanted or under way has ended.
    pub(super) fn settle(&mut self) {
        for _ in 0..5 {
            self.tick();
            self.run_jobs();
            self.rewrite_if_cut(1);
            self.run_jobs();
        }
    }
}

/// A life: a start, units, a rewrite, more units, another rewrite, an end.
fn live(server: &mut Server) {
    if server.writer.manifest().is_empty() {
        let wishes = server.writer.start();
        server.take(wishes);
    } else {
        match server.writer.open(&server.disk) {
            Ok(_) => {}
            Err(_) => return,
        }
    }
    server.run_jobs();
    server.write();
    server.rewrite_if_cut(2);
    for _ in 0..3 {
        server.write();
        server.write();
        server.sync();
        server.run_job();
    }
    for units in [2, 0] {
        let wishes = server.writer.rewrite();
        server.take(wishes.unwrap_or_default());
        server.write();
        server.run_jobs();
        server.write();
        server.rewrite_if_cut(units);
        server.write();
        server.tick();
        server.run_jobs();
    }
    server.settle();
    server.write();
    server.append();
    let wishes = server.writer.end(server.now_s);
    server.take(wishes);
    server.run_jobs();
}

pub(super) fn base(path: &Path, bytes: usize) -> Base {
    Base {
        path: path.into(),
        is_synced: true,
        bytes: bytes as u64,
        is_snapshot: false,
    }
}

fn settings(policy: Policy) -> Settings {
    Settings {
        policy,
        writes_timestamps: true,
        ..Settings::default()
    }
}

pub(super) fn disk() -> Double {
    let disk = Double::default();
    disk.create_dir(&paths().dir).unwrap();
    disk
}

/// Lives with faults, loses power, and says what is wrong then. Lives again without faults.
fn crash(
    policy: Policy,
    faults: &[(usize, Fault)],
    kept: Kept,
    acknowledges_early: bool,
) -> Result<(), String> {
    let disk = disk();
    let mut server = Server::new(&disk, settings(policy));
    let first = disk.calls();
    for (call, fault) in faults {
        disk.fail_at(first + call, *fault);
    }
    server.acknowledges_early = acknowledges_early;
    live(&mut server);
    let (acknowledged, last, is_sound) =
        (server.acknowledged, server.last, server.refused.is_none());
    let is_undisturbed = faults.is_empty();
    let written = server.writer.written();
    let calls: Vec<_> = faults
        .iter()
        .filter_map(|(call, _)| disk.call_names().get(first + call).copied())
        .collect();
    drop(server);
    disk.restart(kept);
    let story = format!("{policy:?}, {faults:?} of {calls:?}, {kept:?}");
    let loaded = load(&disk).map_err(|why| format!("{story}: {why}"))?;
    if loaded < acknowledged || loaded > last {
        return Err(format!(
            "{story}: {loaded} of {acknowledged} acknowledged, {last} written"
        ));
    }
    if is_undisturbed && kept == Kept::All && is_sound && loaded < written {
        return Err(format!("{story}: {loaded} of {written} in files"));
    }
    if kept == Kept::All {
        return Ok(());
    }
    cut_the_end(&disk);
    let mut again = Server::new(&disk, settings(policy));
    live(&mut again);
    disk.restart(Kept::Nothing);
    let loaded = load(&disk).map_err(|why| format!("{story}, again: {why}"))?;
    if loaded != again.last || again.ended != Some(true) || again.rewrites.contains(&false) {
        return Err(format!(
            "{story}: {loaded} of {} after another life",
            again.last
        ));
    }
    Ok(())
}

/// Cuts the last file as a start does.
fn cut_the_end(disk: &Double) {
    let paths = paths();
    let manifest = manifest::load(disk, &paths).unwrap().unwrap_or_default();
    let mut loaded = 0;
    for entry in manifest.files() {
        let path = paths.file(&entry.name);
        let end = read_units(disk, &path, &mut loaded).unwrap();
        if let End::Cut { whole, .. } | End::Corrupt { whole, .. } = end {
            disk.truncate(&path, whole).unwrap();
        }
    }
}

const POLICIES: [Policy; 3] = [Policy::Always, Policy::EverySecond, Policy::No];

fn all_kept(call: usize) -> [Kept; 4] {
    let seed = 2 * call as u64;
    [
        Kept::All,
        Kept::Nothing,
        Kept::Some { seed },
        Kept::Some { seed: seed + 1 },
    ]
}

fn calls_of_a_life(policy: Policy) -> usize {
    let disk = disk();
    let mut server = Server::new(&disk, settings(policy));
    let first = disk.calls();
    live(&mut server);
    assert_eq!(server.rewrites, [true; 3]);
    assert_eq!(server.ended, Some(true));
    assert_eq!((server.acknowledged, server.exit), (server.last, None));
    disk.calls() - first
}

#[test]
fn a_life_without_faults_leaves_two_files_and_all_units() {
    let disk = disk();
    let mut server = Server::new(&disk, settings(Policy::EverySecond));
    live(&mut server);
    assert!(server.last > 15);
    assert_eq!(load(&disk).unwrap(), server.last);
    let text = manifest::load(&disk, &paths()).unwrap().unwrap().text();
    assert_eq!(
        String::from_utf8(text).unwrap(),
        "file appendonly.aof.3.base.aof seq 3 type b\nfile appendonly.aof.3.incr.aof seq 3 type i\n"
    );
    assert_eq!(disk.list(&paths().folder()).unwrap().len(), 3);
    let incr = read_whole(&disk, &paths().file("appendonly.aof.3.incr.aof"), 1 << 20)
        .unwrap()
        .unwrap();
    assert!(incr.starts_with(b"#TS:10"));
}

#[test]
fn after_any_fault_and_a_loss_of_power_what_was_acknowledged_is_there() {
    for policy in POLICIES {
        for call in 0..calls_of_a_life(policy) {
            for fault in FAULTS {
                for kept in all_kept(call) {
                    crash(policy, &[(call, fault)], kept, false).unwrap();
                }
            }
        }
    }
}

#[test]
fn after_any_two_or_three_faults_what_was_acknowledged_is_there() {
    let mut random = fastrand::Rng::with_seed(1);
    let calls = calls_of_a_life(Policy::EverySecond);
    for seed in 0..4_000 {
        let policy = POLICIES[random.usize(..3)];
        let mut call = random.usize(..calls);
        let faults: Vec<_> = (0..random.usize(2..4))
            .map(|_| {
                let fault = (call, FAULTS[random.usize(..FAULTS.len())]);
                // Often one right after another: a failure of what mends a failure.
                let reach = [4, calls][random.usize(..2)];
                call += random.usize(1..reach);
                fault
            })
            .collect();
        crash(policy, &faults, Kept::Some { seed }, false).unwrap();
    }
}

#[test]
fn a_writer_that_acknowledges_before_the_sync_is_found() {
    let is_found = (0..calls_of_a_life(Policy::Always)).any(|call| {
        crash(
            Policy::Always,
            &[(call, Fault::PowerLost)],
            Kept::Nothing,
            true,
        )
        .is_err()
    });
    assert!(is_found);
}
