//! `redline server`'s command line: redis-server's, and `--threads`.
//!
//! A configuration file first, `-` for standard input, then `--parameter value ...`; later ones win. Must not know: the
//! effects of parameters.

use std::{
    ffi::OsString,
    io::Read,
    os::unix::ffi::OsStringExt,
    path::{Path, PathBuf},
    process::ExitCode,
};

use redline_net::{
    console, error_text,
    syslog::{self, Facility, Syslog},
};

use crate::{
    Server, Settings,
    config::{
        Class, Parameter,
        file::{Loader, shown},
        table,
    },
    log, memory_test,
    service::Service,
    start::{Origin, check_parts},
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
        [b"--version" | b"-v"] => console::out(&format!("{}\n", version(called))),
        [b"--help" | b"-h"] => console::out(&usage()),
        [b"--test-memory", mib] => test_memory(mib),
        [b"--test-memory"] => Err("how many megabytes? As in --test-memory 4096".to_string()),
        [b"--check-config", ..] => check(&words[1..]),
        all if all.contains(&&b"--sentinel"[..]) => {
            Err("Sentinel is not built: Redline watches no other servers".into())
        }
        _ => run(called, &words),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(why) => {
            console::line_to_stderr(&format!("redline server: {why}"));
            ExitCode::FAILURE
        }
    }
}

/// Starts the server, logs that, and waits for its end.
fn run(called: &str, words: &[Vec<u8>]) -> Result<(), String> {
    let (mut settings, config_file) = load(words)?;
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
    let origin = Origin {
        config_file,
        service: Some(service.clone()),
    };
    let server = Server::start(settings, origin, true).map_err(|error| {
        // In the background the returned error is not seen.
        log::warning(&error.to_string());
        error.to_string()
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

/// Returns the settings of the command line's words, and the configuration file's absolute path.
fn load(words: &[Vec<u8>]) -> Result<(Settings, Option<PathBuf>), String> {
    let invocation = Invocation::parse(words)?;
    let mut loader = Loader::default();
    let mut config_file = None;
    if let Some(path) = &invocation.file {
        loader.file(path)?;
        // The working directory may change before CONFIG REWRITE.
        config_file = Some(std::fs::canonicalize(path).unwrap_or_else(|_| path.clone()));
    }
    if invocation.stdin {
        let mut text = Vec::new();
        std::io::stdin()
            .read_to_end(&mut text)
            .map_err(|e| format!("standard input: {e}"))?;
        loader.text("standard input", &text)?;
    }
    for option in &invocation.options {
        loader.directive(&option.place, &option.words)?;
    }
    Ok((loader.finish()?, config_file))
}

/// Checks a configuration as far as possible without a server (`--check-config`).
fn check(words: &[Vec<u8>]) -> Result<(), String> {
    let (mut settings, config_file) = load(words)?;
    if config_file.is_none() && words.is_empty() {
        return Err("which file? As in --check-config /etc/redis/redis.conf".into());
    }
    enter_dir(&mut settings)?;
    if let Some(path) = &settings.service.logfile {
        // Opened only: a check leaves no file behind.
        let opened = std::fs::OpenOptions::new().append(true).open(path);
        let folder = std::path::absolute(path).ok();
        let folder = folder.as_deref().and_then(Path::parent);
        if let Err(error) = opened
            && !(error.kind() == std::io::ErrorKind::NotFound && folder.is_some_and(Path::is_dir))
        {
            return Err(cannot_log(path, &error));
        }
    }
    check_parts(&settings)?;
    let mut said = String::from("The configuration is valid.\n");
    let inert: Vec<&str> = table::ROWS
        .iter()
        .filter(|row| !row.is_effective())
        .filter(|row| row.text(&settings) != row.default.as_bytes())
        .map(|row| row.name)
        .collect();
    if !inert.is_empty() {
        said += &format!("Without effect here: {}.\n", inert.join(", "));
    }
    console::out(&said)
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
    if server.metrics_port() != 0 {
        log::notice(&format!(
            "Metrics are at port {}, under /metrics",
            server.metrics_port()
        ));
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
        let mut invocation = Invocation::default();
        let mut words = words.iter().map(Vec::as_slice).peekable();
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
                return Err(format!(
                    "'{}' is no option and belongs to none",
                    String::from_utf8_lossy(word)
                ));
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

/// Returns the version in one line that scripts parse: called as redis-server, it names the Redis that it stands for.
fn version(called: &str) -> String {
    let bits = usize::BITS;
    match Path::new(called).file_name() {
        Some(name) if name == "redis-server" => format!(
            "Redis server v={REDIS_VERSION} sha=00000000:0 malloc=redline bits={bits} build=0 redline={REDLINE_VERSION}"
        ),
        _ => format!(
            "Redline server v={REDLINE_VERSION} sha=00000000:0 malloc=redline bits={bits} build=0 redis={REDIS_VERSION}"
        ),
    }
}

fn usage() -> String {
    let mut text = String::from(
        "\
Usage: redline server [/path/to/redis.conf] [-] [--parameter value ...]

A configuration file comes first; - reads configuration from standard input. The last value of a parameter counts.

  redline server                            Start with defaults, on port 6379.
  redline server /etc/redis/6379.conf       Start with a configuration file of redis-server.
  redline server --port 7000 --threads 2    Start with parameters.
  echo 'maxmemory 128mb' | redline server -
  redline server --check-config redis.conf  Check the configuration (a file, parameters or both) and exit.
  redline server --test-memory 4096         Test 4096 megabytes of memory and exit.
  redline server --version                  Print the version and exit.
  redline server --help                     Print this text and exit.

Parameters with their defaults; * marks those that CONFIG SET changes while the server runs.
A size may have a unit: kb, mb and gb are powers of 1024; k, m and g are powers of 1000.
",
    );
    for section in table::SECTIONS {
        let rows = table::ROWS
            .iter()
            .filter(|row| row.section == section.title && row.is_effective());
        for (at, row) in rows.enumerate() {
            if at == 0 {
                text.push_str(&format!("\n{}:\n\n", section.title));
            }
            describe(row, &mut text);
        }
    }
    text.push_str("\nParameters of features that do not exist yet: the server does not start with a value that asks for one.\n\n");
    let rest = || table::ROWS.iter().filter(|row| !row.is_effective());
    for row in rest() {
        if let Some(part) = row.unbuilt_part() {
            text.push_str(&format!("  {}: {part}\n", row.name));
        }
    }
    text.push_str("\nOther parameters of Redis are accepted and have no effect:\n\n ");
    let mut column = 1;
    for row in rest().filter(|row| row.unbuilt_part().is_none()) {
        if column + row.name.len() > 100 {
            text.push_str("\n ");
            column = 1;
        }
        text.push(' ');
        text.push_str(row.name);
        column += row.name.len() + 1;
    }
    text.push('\n');
    text
}

/// Adds a parameter to the text of `--help`.
fn describe(row: &Parameter, text: &mut String) {
    let star = if row.class == Class::Live { '*' } else { ' ' };
    let default = if row.default.is_empty() {
        "\"\""
    } else {
        row.default
    };
    let values = row.values().map(|values| format!(" Values: {values}."));
    let alias = row.alias.map(|alias| format!(" Also: {alias}."));
    let description = [
        row.doc,
        &values.unwrap_or_default(),
        &alias.unwrap_or_default(),
    ];
    text.push_str(&format!("{star} --{} {default}\n", row.name));
    wrap(&description.concat(), text);
}

/// Adds a paragraph, indented, in lines of at most 100 columns.
fn wrap(paragraph: &str, text: &mut String) {
    const COLUMNS_MAX: usize = 100;
    const INDENT: &str = "     ";
    let mut column = usize::MAX;
    for word in paragraph.split(' ') {
        if column > COLUMNS_MAX - word.len() {
            if column != usize::MAX {
                text.push('\n');
            }
            text.push_str(INDENT);
            column = INDENT.len();
        }
        text.push(' ');
        text.push_str(word);
        column += 1 + word.len();
    }
    text.push('\n');
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
    fn help_said_of_parameters_that_end_the_start_that_they_are_accepted() {
        let text = usage();
        let lists: Vec<&str> = text.split("\n\n").collect();
        let [.., unbuilt, _, accepted] = lists[..] else {
            panic!("{text}");
        };
        assert!(unbuilt.contains("  mptcp: Multipath TCP\n"));
        let accepted: Vec<&str> = accepted.split_whitespace().collect();
        for (name, is_accepted) in [
            ("mptcp", false),
            ("repl-disable-tcp-nodelay", true),
            ("io-threads", true),
        ] {
            assert_eq!(accepted.contains(&name), is_accepted, "{name}");
            let line = format!("  {name}: ");
            let is_unbuilt = unbuilt.lines().any(|known| known.starts_with(&line));
            assert_eq!(is_unbuilt, !is_accepted, "{name}");
        }
    }

    #[test]
    fn help_has_every_parameter_with_an_effect_in_its_section() {
        let text = usage();
        for row in table::ROWS.iter().filter(|row| row.is_effective()) {
            let line = format!(" --{} {}", row.name, row.default);
            let line = line.trim_end();
            let (before, _) = text.rsplit_once(line).expect(row.name);
            let title = before
                .lines()
                .rfind(|line| line.ends_with(':') && !line.starts_with(' '));
            assert_eq!(title, Some(&*format!("{}:", row.section)), "{}", row.name);
        }
        assert!(text.contains(
            "\n* --loglevel notice\n      Minimum log level. Values: debug, verbose, notice, warning or nothing.\n"
        ));
        let longest = text.lines().map(|line| line.chars().count()).max();
        assert!(longest <= Some(120), "{longest:?}");
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
