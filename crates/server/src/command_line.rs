//! `redline server`'s command line: redis-server's, and `--threads`.
//!
//! A configuration file first, `-` for standard input, then `--parameter value ...`; later ones win. `help` has the texts.
//! Must not know: the effects of parameters.

mod help;

pub use help::{Described, parameters};

use std::{
    ffi::OsString,
    io::Read,
    os::unix::ffi::OsStringExt,
    path::{Path, PathBuf},
    process::ExitCode,
};

use redline_doctor::{Machine, Wanted};
use redline_net::{
    console, error_text,
    syslog::{self, Facility, Syslog},
};

use crate::{
    Server, Settings,
    config::{
        file::{Loader, shown},
        report::{Loaded, Place},
    },
    examine, log, memory_test,
    service::Service,
    start::{Origin, check_parts},
    start_block,
};
use redline_engine::{REDIS_VERSION, REDLINE_VERSION};

/// Default path of the process id's file in the background.
const PIDFILE: &str = "/var/run/redis.pid";

/// Runs the server until it is stopped. `called`: the name by which the program was started, `/usr/bin/redis-server` or
/// `redline server`.
pub fn main(called: &str, args: impl Iterator<Item = OsString>) -> ExitCode {
    let words: Vec<Vec<u8>> = args.map(OsString::into_vec).collect();
    let slices: Vec<&[u8]> = words.iter().map(Vec::as_slice).collect();
    let result = match slices.as_slice() {
        [b"--version" | b"-v" | b"-V"] => said(console::out(&format!("{}\n", version(called)))),
        [b"--help" | b"-h"] => said(help::show(&help::all())),
        [b"--help" | b"-h", name] => said(help::of(name).and_then(|text| help::show(&text))),
        [b"--print-defaults"] => said(console::out(&help::annotated())),
        [b"--check-system"] => return check_system(),
        [b"--test-memory", mib] => said(test_memory(mib)),
        [b"--test-memory"] => said(Err("how many megabytes? As in --test-memory 4096".into())),
        all if all.contains(&&b"--sentinel"[..]) => said(Err(
            "Sentinel is not built: Redline watches no other servers".into(),
        )),
        _ => run(called, &words),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            let why = match &failure {
                Failure::Told => "",
                Failure::Untold(why) => why,
            };
            for line in why.lines() {
                console::line_to_stderr(&format!("redline server: {line}"));
            }
            ExitCode::FAILURE
        }
    }
}

/// The reason why the program ends without success.
enum Failure {
    /// It was told already, where who has started the process sees it.
    Told,
    /// It is still to be told; a line for each fault.
    Untold(String),
}

impl From<String> for Failure {
    fn from(why: String) -> Failure {
        Failure::Untold(why)
    }
}

fn said(result: Result<(), String>) -> Result<(), Failure> {
    result.map_err(Failure::Untold)
}

/// Starts the server, logs that, and waits for its end; or only checks its configuration.
fn run(called: &str, words: &[Vec<u8>]) -> Result<(), Failure> {
    let invocation = Invocation::parse(words)?;
    if let Some(check) = &invocation.check {
        return self::check(&invocation, check);
    }
    let (loaded, config_file, unread) = load(&invocation);
    let faults: Vec<String> = unread.into_iter().chain(loaded.faults()).collect();
    if !faults.is_empty() {
        return Err(counted(&faults).into());
    }
    let mut settings = loaded.settings;
    enter_dir(&mut settings)?;
    open_log(&settings)?;
    // The working directory may change before the end.
    let absolute = |path: &String| std::path::absolute(path).unwrap_or_else(|_| path.into());
    // Before threads are created: a child would not have them.
    let (service, background) = Service::begin(called, &settings.service)?;
    if background && settings.service.pidfile.is_none() {
        settings.service.pidfile = Some(PIDFILE.into());
    }
    let pidfile = settings.service.pidfile.as_ref().map(absolute);
    log::notice(&format!(
        "Redline version={REDLINE_VERSION}, bits={}, pid={}, compatible with Redis {REDIS_VERSION}",
        usize::BITS,
        std::process::id(),
    ));
    if settings.service.logo {
        // The parent process may look for ` PID: `, which redis-server has nowhere else.
        log::notice(&format!(
            "Running in {} mode, Port: {}, PID: {}",
            match settings.cluster_enabled {
                true => "cluster",
                false => "standalone",
            },
            settings.port.or(settings.tls.port).unwrap_or(0),
            std::process::id(),
        ));
    }
    start_block::log(&settings, config_file.as_deref());
    let origin = Origin {
        config_file,
        service: Some(service.clone()),
    };
    let server = Server::start(settings, origin, true).map_err(|error| {
        // In the background the returned error is not seen.
        log::warning(&error.to_string());
        match log::is_seen() {
            true => Failure::Told,
            false => Failure::Untold(error.to_string()),
        }
    })?;
    let written = pidfile.map(write_pidfile);
    if server.wait_until_loaded() {
        announce(&server);
        service.ready();
    }
    server.join();
    if let Some(Some(path)) = written {
        log::notice("Removing the pid file.");
        let _ = std::fs::remove_file(path);
    }
    log::warning("Redline is now ready to exit, bye bye...");
    Ok(())
}

/// Returns the settings of the command line, the configuration file's absolute path, and the reason if that or standard
/// input cannot be read.
fn load(invocation: &Invocation) -> (Loaded, Option<PathBuf>, Option<String>) {
    let mut loader = Loader::default();
    let mut config_file = None;
    let mut unread = None;
    if let Some(path) = &invocation.file {
        unread = loader.file(path).err();
        // The working directory may change before CONFIG REWRITE.
        config_file = Some(std::fs::canonicalize(path).unwrap_or_else(|_| path.clone()));
    }
    if invocation.stdin {
        let mut text = Vec::new();
        match std::io::stdin().read_to_end(&mut text) {
            Ok(_) => loader.text("standard input", &text),
            Err(error) => unread = Some(format!("standard input: {error}")),
        }
    }
    for option in &invocation.options {
        let place = Place {
            line: None,
            shown: option.place.clone(),
        };
        loader.directive(place, &option.words);
    }
    (loader.loaded(), config_file, unread)
}

/// Returns faults as lines, with their number below if there are several.
fn counted(faults: &[String]) -> String {
    match faults {
        [one] => one.clone(),
        _ => format!("{}\n{} faults", faults.join("\n"), faults.len()),
    }
}

/// Checks a configuration as far as possible without a server (`--check-config`), and reports what each line does.
fn check(invocation: &Invocation, wanted: &Check) -> Result<(), Failure> {
    if invocation.file.is_none() && !invocation.stdin && invocation.options.is_empty() {
        let which = "--check-config: which file? As in --check-config /etc/redis/redis.conf";
        return Err(String::from(which).into());
    }
    let (mut loaded, _, unread) = load(invocation);
    let mut more: Vec<String> = unread.into_iter().collect();
    if more.is_empty() && loaded.faults().next().is_none() {
        more.extend(check_surroundings(&mut loaded.settings).err());
    }
    let faults: Vec<String> = more.iter().cloned().chain(loaded.faults()).collect();
    if wanted.json {
        console::out(&loaded.json(&more))?;
    } else if faults.is_empty() {
        console::out(&loaded.text())?;
    }
    if !faults.is_empty() {
        return Err(match wanted.json {
            true => Failure::Told,
            false => counted(&faults).into(),
        });
    }
    match wanted.strict && loaded.has_idle() {
        true => Err(String::from("--strict: there are lines without effect").into()),
        false => Ok(()),
    }
}

/// Returns what the configuration of a command line needs of the machine, for `redline doctor server`.
pub fn wanted(args: impl Iterator<Item = OsString>) -> Result<Wanted, String> {
    let words: Vec<Vec<u8>> = args.map(OsString::into_vec).collect();
    let invocation = Invocation::parse(&words)?;
    let (mut loaded, _, unread) = load(&invocation);
    // Before the working directory changes.
    let files: Vec<PathBuf> = loaded
        .files()
        .iter()
        .flat_map(std::fs::canonicalize)
        .collect();
    let mut faults: Vec<String> = unread.into_iter().chain(loaded.faults()).collect();
    if faults.is_empty() {
        faults.extend(check_surroundings(&mut loaded.settings).err());
    }
    Ok(examine::wanted_of(&loaded.settings, files, faults))
}

/// Checks folders, files, users and certificates that the settings name. A check leaves no file behind.
fn check_surroundings(settings: &mut Settings) -> Result<(), String> {
    enter_dir(settings)?;
    if let Some(path) = &settings.service.logfile {
        let opened = std::fs::OpenOptions::new().append(true).open(path);
        let folder = std::path::absolute(path).ok();
        let folder = folder.as_deref().and_then(Path::parent);
        if let Err(error) = opened
            && !(error.kind() == std::io::ErrorKind::NotFound && folder.is_some_and(Path::is_dir))
        {
            return Err(cannot_log(path, &error));
        }
    }
    check_parts(settings)
}

/// Enters the working directory, before any file is opened.
fn enter_dir(settings: &mut Settings) -> Result<(), String> {
    if let Some(dir) = &settings.service.dir {
        let refused = |error| {
            let why = error_text(&error);
            format!("can't chdir to '{}': {why}", dir.display())
        };
        std::env::set_current_dir(dir).map_err(refused)?;
        // A relative path would mean another directory from now on.
        settings.service.dir = Some(std::env::current_dir().map_err(refused)?);
    }
    Ok(())
}

fn open_log(settings: &Settings) -> Result<(), String> {
    let service = &settings.service;
    log::set_level(settings.service.log_level);
    log::set_format(service.log_format, service.log_timestamp);
    log::set_role(settings.primary.is_some());
    log::set_file(settings.service.logfile.as_deref())
        .map_err(|error| cannot_log(settings.service.logfile.as_deref().unwrap_or(""), &error))?;
    if service.syslog {
        let facility = match service.syslog_facility {
            0 => Facility::User,
            local => Facility::Local(local - 1),
        };
        let path = Path::new(syslog::SYSTEM_LOG);
        log::set_syslog(Syslog::new(path, &service.syslog_ident, facility));
    }
    Ok(())
}

fn cannot_log(path: &str, error: &std::io::Error) -> String {
    format!("can't open the log file '{path}': {}", error_text(error))
}

fn write_pidfile(path: PathBuf) -> Option<PathBuf> {
    match std::fs::write(&path, format!("{}\n", std::process::id())) {
        Ok(()) => Some(path),
        Err(error) => {
            log::warning(&format!(
                "Failed to write PID file '{}': {}",
                path.display(),
                error_text(&error)
            ));
            None
        }
    }
}

/// Runs `--check-system`, which Redis has: `redline doctor server` without a configuration.
fn check_system() -> ExitCode {
    let found = redline_doctor::examine(&Machine::default(), &examine::system_only());
    if let Err(why) = console::out(&redline_doctor::text(&found)) {
        console::line_to_stderr(&format!("redline server: {why}"));
        return ExitCode::FAILURE;
    }
    ExitCode::from(redline_doctor::exit_code(&found))
}

/// Runs `--test-memory`.
fn test_memory(mib: &[u8]) -> Result<(), String> {
    let text = String::from_utf8_lossy(mib);
    let mib: usize = text
        .parse()
        .ok()
        .filter(|mib| *mib > 0)
        .ok_or_else(|| format!("'{text}' is no number of megabytes"))?;
    let faults = memory_test::run(mib, |pass, of| {
        // The test goes on; its exit code has the result.
        let _ = console::out(&format!("Pass {pass} of {of}\n"));
    });
    match faults {
        None => Err(format!("there are no {mib} megabytes to test")),
        Some(memory_test::Faults(0)) => console::out("Your memory passed this test.\n"),
        Some(memory_test::Faults(words)) => Err(format!(
            "your memory is faulty: {words} words did not keep what was written to them"
        )),
    }
}

/// Logs the lines that tools wait for.
fn announce(server: &Server) {
    let workers = server.workers();
    let plural = if workers == 1 { "" } else { "s" };
    let listening = server.listening().join(", ");
    log::notice(&format!(
        "Listening on {listening} with {workers} worker{plural}"
    ));
    if server.port() != 0 {
        log::notice("Ready to accept connections tcp");
    }
    if server.tls_port() != 0 {
        log::notice("Ready to accept connections tls");
    }
    for address in server.metrics_listening() {
        log::notice(&format!("Metrics on http://{address}/metrics"));
    }
    if server
        .listening()
        .iter()
        .any(|address| address.starts_with('/'))
    {
        log::notice("Ready to accept connections unix");
    }
}

/// The parsed command line.
#[derive(Debug, Default)]
struct Invocation {
    file: Option<PathBuf>,
    stdin: bool,
    options: Vec<OptionWords>,
    check: Option<Check>,
}

/// `--check-config`, and its own options.
#[derive(Debug, Default)]
struct Check {
    /// The report is JSON.
    json: bool,
    /// Lines without effect are a failure.
    strict: bool,
}

/// `--bind a b` as the directive `bind a b`.
#[derive(Debug, PartialEq, Eq)]
struct OptionWords {
    /// The words as written, without secrets.
    place: String,
    words: Vec<Vec<u8>>,
}

impl Invocation {
    fn parse(words: &[Vec<u8>]) -> Result<Invocation, String> {
        let (check, words) = Check::split_off(words);
        let mut invocation = Invocation {
            check,
            ..Invocation::default()
        };
        let mut words = words.into_iter().peekable();
        if let Some(first) = words.next_if(|word| !word.starts_with(b"-")) {
            invocation.file = Some(OsString::from_vec(first.to_vec()).into());
        }
        while let Some(word) = words.next() {
            if word == b"-" {
                invocation.stdin = true;
                continue;
            }
            let dashed = word.strip_prefix(b"--").filter(|name| !name.is_empty());
            // After the file a directive may stand as in the file.
            let bare = Some(word).filter(|word| !word.starts_with(b"-"));
            let Some(name) = dashed.or(bare) else {
                return Err(help::no_such_option(word));
            };
            // `"--port 7000"` may also come as one word.
            let mut directive = redline_resp::split_words(name)
                .ok_or_else(|| format!("--{}: unbalanced quotes", shown(name)))?;
            if directive.len() == 1 && dashed.is_some() {
                // `--save` alone, or before another option, means no save points.
                let lonely = words.peek().is_none_or(|next| next.starts_with(b"--"));
                if lonely && directive[0].eq_ignore_ascii_case(b"save") {
                    directive.push(Vec::new());
                } else if let Some(value) = words.next() {
                    // The first word is a value even if it looks like an option.
                    directive.push(value.to_vec());
                }
            }
            let more = |next: &&[u8]| !next.starts_with(b"--") && *next != b"-";
            while let Some(value) = words.next_if(more) {
                directive.push(value.to_vec());
            }
            let text = directive.join(&b' ');
            let dashes = if dashed.is_some() { "--" } else { "" };
            let place = format!("{dashes}{}", shown(&text));
            invocation.options.push(OptionWords {
                place,
                words: directive,
            });
        }
        Ok(invocation)
    }
}

impl Check {
    /// Takes `--check-config` and its options out of the words; the file that stands behind it goes first. A word behind
    /// another option is that option's value.
    fn split_off(words: &[Vec<u8>]) -> (Option<Check>, Vec<&[u8]>) {
        let is_own = |word: &[u8]| [&b"--check-config"[..], b"--json", b"--strict"].contains(&word);
        let all: Vec<&[u8]> = words.iter().map(Vec::as_slice).collect();
        let is_value = |at: usize| at > 0 && all[at - 1].starts_with(b"--") && !is_own(all[at - 1]);
        let is_option = |at: usize, name: &[u8]| all[at] == name && !is_value(at);
        let Some(check_at) = (0..all.len()).find(|at| is_option(*at, b"--check-config")) else {
            return (None, all);
        };
        let has = |name: &[u8]| (0..all.len()).any(|at| is_option(at, name));
        let check = Check {
            json: has(b"--json"),
            strict: has(b"--strict"),
        };
        let is_file = |at: &usize| all.get(*at).is_some_and(|word| !word.starts_with(b"-"));
        let behind = (check_at + 1..all.len())
            .find(|at| !is_option(*at, b"--json") && !is_option(*at, b"--strict"));
        let behind = behind
            .filter(is_file)
            .filter(|_| check_at > 0 && !is_file(&0));
        let kept = (0..all.len()).filter(|at| {
            let own = ["--check-config", "--json", "--strict"];
            Some(*at) != behind && !own.iter().any(|name| is_option(*at, name.as_bytes()))
        });
        let kept = behind.into_iter().chain(kept);
        (Some(check), kept.map(|at| all[at]).collect())
    }
}

/// Returns the version in one line that scripts parse: called as redis-server, it names the Redis that it stands for.
fn version(called: &str) -> String {
    let bits = usize::BITS;
    match Path::new(called).file_name() {
        Some(name) if name == "redis-server" || name == "valkey-server" => format!(
            "Redis server v={REDIS_VERSION} sha=00000000:0 malloc=redline bits={bits} build=0 redline={REDLINE_VERSION}"
        ),
        _ => format!(
            "Redline server v={REDLINE_VERSION} sha=00000000:0 malloc=redline bits={bits} build=0 redis={REDIS_VERSION}"
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn options(words: &[&str]) -> Vec<String> {
        let words: Vec<Vec<u8>> = words.iter().map(|word| word.as_bytes().to_vec()).collect();
        let invocation = Invocation::parse(&words).unwrap();
        invocation
            .options
            .into_iter()
            .map(|option| String::from_utf8(option.words.join(&b'|')).unwrap())
            .collect()
    }

    #[test]
    fn options_take_words_until_the_next() {
        assert_eq!(
            options(&["--port", "7000", "--maxmemory", "1gb"]),
            ["port|7000", "maxmemory|1gb"]
        );
        assert_eq!(
            options(&["--save", "60", "1", "--save", ""]),
            ["save|60|1", "save|"]
        );
        assert_eq!(options(&["--bind", "a", "b"]), ["bind|a|b"]);
        assert_eq!(options(&["--save", "--port", "1"]), ["save|", "port|1"]);
        assert_eq!(options(&["--save"]), ["save|"]);
        assert_eq!(
            options(&["--port 7000", "--requirepass", "--x"]),
            ["port|7000", "requirepass|--x"]
        );
        assert_eq!(options(&["--port", "1", "-"]), ["port|1"]);
        assert_eq!(
            options(&["a.conf", "loglevel", "verbose", "--port", "1"]),
            ["loglevel|verbose", "port|1"]
        );
        assert_eq!(options(&["a.conf", "b"]), ["b"]);
    }

    #[test]
    fn a_file_comes_first() {
        let words = [
            b"a.conf".to_vec(),
            b"-".to_vec(),
            b"--port".to_vec(),
            b"1".to_vec(),
        ];
        let invocation = Invocation::parse(&words).unwrap();
        assert_eq!(invocation.file, Some("a.conf".into()));
        assert!(invocation.stdin);
        assert!(Invocation::parse(&[b"-x".to_vec()]).is_err());
    }

    #[test]
    fn a_files_name_that_is_not_unicode_became_another() {
        let invocation = Invocation::parse(&[b"a\xff.conf".to_vec()]).unwrap();
        let file = invocation.file.unwrap().into_os_string().into_vec();
        assert_eq!(file, b"a\xff.conf");
    }

    #[test]
    fn the_version_is_one_line_of_pairs() {
        for (called, begins) in [
            ("/usr/bin/redis-server", "Redis server v=8.2.3 "),
            ("redline server", "Redline server v=0."),
        ] {
            let line = version(called);
            assert!(line.starts_with(begins), "{line}");
            let pairs: Vec<_> = line.split(' ').skip(2).collect();
            assert!(pairs.iter().all(|pair| pair.contains('=')), "{line}");
        }
    }
}
