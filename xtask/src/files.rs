//! Files that one server writes and another loads: ours and the real ones, in the same folder, both ways.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use redline_testkit::client::Client;
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
    /// The call after which everything is in them.
    call: &'static [&'static str],
}

const KINDS: &[Kind] = &[Kind {
    name: "snapshot",
    words: &["--dbfilename", "dump.rdb"],
    call: &["SAVE"],
}];

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
            for policy in ["allkeys-lru", "allkeys-lfu"] {
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
        vector_sets: real.vector_sets,
    };
    let origin = start_real(real, kind, &folder.0, policy)?;
    let mut client = connect(&origin)?;
    let data = broken(files::fill(&mut client, options))??;
    broken(files::fill_accesses(&mut client, lfu))??;
    // Encodings show how a value came about, and a file does not have that: it is forgotten here as well.
    let reloaded = broken(client.call(&["DEBUG", "RELOAD"]))?;
    if reloaded.is_error() {
        return Err(format!("DEBUG RELOAD answered {reloaded:?}"));
    }
    let mut made = broken(files::answers(&mut client, &data, real.likeness))?;
    broken(files::leave_an_expired_key(&mut client))?;
    keep(&mut client, kind)?;
    end(origin)?;

    let mut redline = start_ours(setting, kind, &folder.0, policy, "auto")?;
    check(&redline, &data, real, &made, lfu)
        .map_err(|failure| format!("loaded by us: {failure}"))?;
    let mut files = 1;
    for version in real.versions {
        let mut client = connect(&redline)?;
        broken(client.call(&["CONFIG", "SET", "rdb-format-version", version]))?;
        keep(&mut client, kind)?;
        stop(redline)?;
        let loads = start_real(real, kind, &folder.0, policy)?;
        if *version == OLD_FORM {
            made.retain(|(what, _)| is_in_old_form(what));
        }
        let failed = |failure| format!("version {version}, loaded by the real one: {failure}");
        check(&loads, &data, real, &made, lfu).map_err(failed)?;
        // Ours goes on with what the real one writes.
        keep(&mut connect(&loads)?, kind)?;
        end(loads)?;
        redline = start_ours(setting, kind, &folder.0, policy, version)?;
        let failed = |failure| format!("version {version}, loaded by us again: {failure}");
        check(&redline, &data, real, &made, lfu).map_err(failed)?;
        files += 2;
    }
    stop(redline)?;
    Ok((data.keys(), files))
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
    real: &Real,
    made: &Answers,
    lfu: bool,
) -> Result<(), Failure> {
    let mut client = connect(server)?;
    if let Some(wrong) = broken(files::wrong_accesses(&mut client, lfu))? {
        return Err(wrong);
    }
    let mut loaded = broken(files::answers(&mut client, data, real.likeness))?;
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
    let reply = broken(client.call(kind.call))?;
    match reply.is_error() {
        true => Err(format!("{} answered {reply:?}", kind.call.join(" "))),
        false => Ok(()),
    }
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
