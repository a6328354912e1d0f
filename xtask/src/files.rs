//! Files that one server writes and another loads: ours and the real ones, in the same folder, both ways.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use redline_testkit::client::Client;
use redline_testkit::client::Value;
use redline_testkit::files::{self, Answers, Data, Likeness, Options};
use redline_testkit::process::ServerProcess;

use crate::compat::{DEBUG, Setting, stop};
use crate::install;
use crate::run::Failure;

/// Number of random values, beside those at thresholds.
const VALUES: usize = 300;
/// Numbers of our server's workers.
const WORKERS: usize = 2;

/// The version of Redis 5 to 6.2: groups of streams have no counts of what was read, and there are no libraries.
const OLD_FORM: &str = "9";

/// A kind of files in which a server keeps its data.
struct Kind {
    name: &'static str,
    /// Arguments with which a server writes and loads them.
    words: &'static [&'static str],
    form: Form,
}

/// The form of the files of a kind.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Form {
    /// The file that SAVE writes.
    Snapshot,
    /// A folder whose base, a snapshot, has all the data.
    Folder,
    /// A folder of commands: those that were called, then a base of commands.
    Commands,
    /// One append-only file as servers before Redis 7 have it: a snapshot, and the commands behind it.
    Single,
}

impl Form {
    /// Returns true if records of accesses are in it.
    fn has_accesses(self) -> bool {
        self != Form::Commands
    }
}

const KINDS: &[Kind] = &[
    Kind {
        name: "snapshot",
        words: &["--dbfilename", "dump.rdb"],
        form: Form::Snapshot,
    },
    Kind {
        name: "append-only folder",
        words: &["--appendonly", "yes"],
        form: Form::Folder,
    },
    Kind {
        name: "append-only folder of commands",
        words: &["--appendonly", "yes", "--aof-use-rdb-preamble", "no"],
        form: Form::Commands,
    },
    Kind {
        name: "single append-only file",
        words: &["--appendonly", "yes"],
        form: Form::Single,
    },
];

/// Longest time that a rewrite may take.
const REWRITE_MAX: Duration = Duration::from_secs(60);

/// A real server: a program, what it can hold, and which of our versions it reads.
struct Real {
    name: &'static str,
    program: PathBuf,
    fields_expire: bool,
    vector_sets: bool,
    /// It has the encodings and the fields about streams that ours has.
    likeness: Likeness,
    /// Versions of the format that ours writes for it; the last one for all of its data.
    versions: &'static [&'static str],
}

impl Real {
    /// Returns how much of what files of this form hold both servers show in the same way.
    fn likeness(&self, form: Form) -> Likeness {
        match (form, self.likeness) {
            (Form::Commands, Likeness::Same) => Likeness::Told,
            (_, likeness) => likeness,
        }
    }

    /// Returns the versions to go through. The forms of an append-only file show no more with the others.
    fn versions(&self, form: Form) -> &'static [&'static str] {
        match form {
            Form::Snapshot => self.versions,
            _ => &self.versions[..1],
        }
    }
}

/// A folder that goes with its value.
pub struct Folder(PathBuf);

impl Folder {
    /// Makes a folder for this step of the comparison.
    pub fn new(step: &str) -> Result<Folder, Failure> {
        let name = format!("redline-{step}-{}", std::process::id());
        let path = std::env::temp_dir().join(name);
        std::fs::create_dir(&path).map_err(|error| format!("{}: {error}", path.display()))?;
        Ok(Folder(path))
    }

    /// Returns its path.
    pub fn path(&self) -> &Path {
        &self.0
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// Runs every kind of file through every real server and ours.
pub fn run(setting: &Setting) -> Result<String, Failure> {
    let reals = [
        Real {
            name: "Redis 7.0",
            program: install::older_redis_server()?,
            fields_expire: false,
            vector_sets: false,
            likeness: Likeness::Contents,
            versions: &["10", OLD_FORM],
        },
        Real {
            name: "Redis 8.2.3",
            program: setting.redis.clone(),
            fields_expire: true,
            vector_sets: true,
            likeness: Likeness::Same,
            versions: &["auto", "12"],
        },
        Real {
            name: "Valkey 9.1.2",
            program: install::valkey_server()?,
            fields_expire: true,
            vector_sets: false,
            likeness: Likeness::Contents,
            versions: &["80"],
        },
    ];
    let (mut keys, mut files) = (0, 0);
    for kind in KINDS {
        for real in &reals {
            let policies = ["allkeys-lru", "allkeys-lfu"];
            let policies = match kind.form.has_accesses() {
                true => &policies[..],
                false => &policies[..1],
            };
            for policy in policies {
                let report =
                    |failure: Failure| format!("{}, {}, {policy}: {failure}", kind.name, real.name);
                let (more, written) =
                    there_and_back(setting, kind, real, policy).map_err(report)?;
                keys += more;
                files += written;
            }
        }
    }
    Ok(format!(
        "{keys} keys in {files} files of Redis 7.0, Redis 8.2.3, Valkey 9.1.2 and ours"
    ))
}

/// Makes data in a real server, loads its file in ours, and that of ours in the real one. Returns the numbers of keys and of
/// files.
fn there_and_back(
    setting: &Setting,
    kind: &Kind,
    real: &Real,
    policy: &str,
) -> Result<(usize, usize), Failure> {
    let folder = Folder::new("files")?;
    let lfu = policy.ends_with("lfu");
    let options = Options {
        values: VALUES,
        seed: setting.seed(),
        fields_expire: real.fields_expire,
        // Redis 8.2.3's rewrite ends by signal 11 at a vector set, where its base is commands.
        vector_sets: real.vector_sets && kind.form != Form::Commands,
    };
    let origin = start_real(real, kind, &folder.0, policy)?;
    let mut client = connect(&origin)?;
    let data = broken(files::fill(&mut client, options))??;
    broken(files::fill_accesses(&mut client, lfu))??;
    // Encodings show how a value came about, and a file does not have that: it is forgotten here as well. So is what a server
    // does not tell in its own stream of commands: before 7.2, how many entries a group has read.
    let reload = match kind.form {
        Form::Commands => "LOADAOF",
        _ => "RELOAD",
    };
    let reloaded = broken(client.call(&["DEBUG", reload]))?;
    if reloaded.is_error() {
        return Err(format!("DEBUG {reload} answered {reloaded:?}"));
    }
    let likeness = real.likeness(kind.form);
    let mut made = broken(files::answers(&mut client, &data, likeness))?;
    match kind.form {
        Form::Snapshot => {
            broken(files::leave_an_expired_key(&mut client))?;
            keep(&mut client, kind)?;
        }
        // What was called is there. Pending entries that are no longer in their stream are told by no command.
        Form::Commands => made.retain(|(what, _)| is_told(what)),
        Form::Folder | Form::Single => keep(&mut client, kind)?,
    }
    end(origin)?;
    convert(kind, &folder.0)?;

    let mut redline = start_ours(setting, kind, &folder.0, policy, "auto")?;
    check(&redline, &data, (real, kind), &made, lfu)
        .map_err(|failure| format!("loaded by us: {failure}"))?;
    let mut files = 1;
    for version in real.versions(kind.form) {
        let mut client = connect(&redline)?;
        broken(client.call(&["CONFIG", "SET", "rdb-format-version", version]))?;
        keep(&mut client, kind)?;
        stop(redline)?;
        convert(kind, &folder.0)?;
        let loads = start_real(real, kind, &folder.0, policy)?;
        if *version == OLD_FORM {
            made.retain(|(what, _)| is_in_old_form(what));
        }
        let failed = |failure| format!("version {version}, loaded by the real one: {failure}");
        check(&loads, &data, (real, kind), &made, lfu).map_err(failed)?;
        // Ours goes on with what the real one writes.
        keep(&mut connect(&loads)?, kind)?;
        end(loads)?;
        convert(kind, &folder.0)?;
        redline = start_ours(setting, kind, &folder.0, policy, version)?;
        let failed = |failure| format!("version {version}, loaded by us again: {failure}");
        check(&redline, &data, (real, kind), &made, lfu).map_err(failed)?;
        files += 2;
    }
    stop(redline)?;
    Ok((data.keys(), files))
}

/// Returns true if a file of commands has all of what this question asks for.
fn is_told(question: &str) -> bool {
    !["XPENDING ", "XINFO "]
        .iter()
        .any(|start| question.starts_with(start))
}

/// Returns true if a file of [`OLD_FORM`] has what this question asks for.
fn is_in_old_form(question: &str) -> bool {
    let left_out = ["XINFO ", "FUNCTION "];
    !left_out.iter().any(|start| question.starts_with(start))
}

/// Compares what a server has loaded with what was made.
fn check(
    server: &ServerProcess,
    data: &Data,
    (real, kind): (&Real, &Kind),
    made: &Answers,
    lfu: bool,
) -> Result<(), Failure> {
    let mut client = connect(server)?;
    if kind.form.has_accesses()
        && let Some(wrong) = broken(files::wrong_accesses(&mut client, lfu))?
    {
        return Err(wrong);
    }
    let mut loaded = broken(files::answers(&mut client, data, real.likeness(kind.form)))?;
    let asked: BTreeSet<&String> = made.iter().map(|(what, _)| what).collect();
    loaded.retain(|(what, _)| asked.contains(what));
    match files::difference(made, &loaded) {
        None => Ok(()),
        Some(difference) => Err(format!("{difference}\n{}", server.log())),
    }
}

fn start_real(
    real: &Real,
    kind: &Kind,
    folder: &Path,
    policy: &str,
) -> Result<ServerProcess, Failure> {
    let words = arguments(kind, folder, policy);
    ServerProcess::redis(&real.program, &words)
        .map_err(|error| format!("{}: {error}", real.program.display()))
}

fn start_ours(
    setting: &Setting,
    kind: &Kind,
    folder: &Path,
    policy: &str,
    version: &str,
) -> Result<ServerProcess, Failure> {
    let mut words = arguments(kind, folder, policy);
    words.extend(["--rdb-format-version", version].map(str::to_owned));
    ServerProcess::redline(&setting.redline, WORKERS, &words)
        .map_err(|error| format!("{}: {error}", setting.redline.display()))
}

fn arguments(kind: &Kind, folder: &Path, policy: &str) -> Vec<String> {
    let folder = folder.display().to_string();
    let own = ["--dir", &folder, "--maxmemory-policy", policy];
    let words = kind.words.iter().copied().chain(own).chain(DEBUG);
    words.map(str::to_owned).collect()
}

fn connect(server: &ServerProcess) -> Result<Client, Failure> {
    broken(Client::connect(server.address()))
}

/// Has a server put everything into its files.
fn keep(client: &mut Client, kind: &Kind) -> Result<(), Failure> {
    let call = match kind.form {
        Form::Snapshot => "SAVE",
        _ => "BGREWRITEAOF",
    };
    let reply = broken(client.call(&[call]))?;
    if reply.is_error() {
        return Err(format!("{call} answered {reply:?}"));
    }
    let deadline = Instant::now() + REWRITE_MAX;
    loop {
        let Value::Bulk(info) = broken(client.call(&["INFO", "persistence"]))? else {
            return Err("INFO answered no text".into());
        };
        let info = String::from_utf8_lossy(&info).into_owned();
        let has = |line: &str| info.lines().any(|text| text == line);
        if has("aof_rewrite_in_progress:0") && has("aof_rewrite_scheduled:0") {
            return match has("aof_last_bgrewrite_status:ok") {
                true => Ok(()),
                false => Err(format!("{call} has failed: {info}")),
            };
        }
        if Instant::now() > deadline {
            return Err(format!("{call} does not end: {info}"));
        }
        std::thread::sleep(Duration::from_millis(10));
    }
}

/// Makes one file of an append-only folder, if the kind has one: its files in their order.
fn convert(kind: &Kind, folder: &Path) -> Result<(), Failure> {
    if kind.form != Form::Single {
        return Ok(());
    }
    let files = folder.join("appendonlydir");
    let failed = |error: std::io::Error| format!("{}: {error}", files.display());
    let manifest = std::fs::read_to_string(files.join("appendonly.aof.manifest"));
    let mut whole = Vec::new();
    for line in manifest.map_err(failed)?.lines() {
        let words: Vec<&str> = line.split(' ').collect();
        if let ["file", name, "seq", _, "type", "b" | "i"] = words[..] {
            whole.extend(std::fs::read(files.join(name)).map_err(failed)?);
        }
    }
    std::fs::write(folder.join("appendonly.aof"), whole).map_err(failed)?;
    std::fs::remove_dir_all(&files).map_err(failed)
}

/// Ends a real server.
fn end(server: ServerProcess) -> Result<(), Failure> {
    let log = server.log();
    match server.stop() {
        Ok(true) => Ok(()),
        Ok(false) => Err(format!(
            "the real server did not stop in good order:\n{log}"
        )),
        Err(error) => Err(error.to_string()),
    }
}

fn broken<T>(result: std::io::Result<T>) -> Result<T, Failure> {
    result.map_err(|error| format!("the connection: {error}"))
}
