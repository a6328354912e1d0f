//! The whole command line as one description, and what is made of it: completions of shells, and manual pages.
//!
//! Parts describe themselves: the server by its table of parameters, the bench by its help text and `clap`, the proxy by
//! `clap`. Must not know what a part does. The description is never used to parse.

use std::ffi::OsString;
use std::process::ExitCode;

use clap::builder::PossibleValuesParser;
use clap::{Arg, Command, CommandFactory, ValueHint};
use clap_complete::Shell;
use redline_server::{command_line::parameters, console};

use crate::{convert, ping::Arguments};

/// Says how `redline completions` is called.
const COMPLETIONS: &str = "completions bash|zsh|fish, as in redline completions bash > /usr/share/bash-completion/completions/redline";

/// Prints the completions of a shell.
pub fn completions(mut args: impl Iterator<Item = OsString>) -> ExitCode {
    let shell = args.next();
    let shell = match shell.as_ref().and_then(|shell| shell.to_str()) {
        Some("bash") => Shell::Bash,
        Some("zsh") => Shell::Zsh,
        Some("fish") => Shell::Fish,
        _ => return failed(&format!("which shell? {COMPLETIONS}")),
    };
    let mut text = Vec::new();
    clap_complete::generate(shell, &mut whole(), "redline", &mut text);
    print(text)
}

/// Prints a manual page, or the names of all.
pub fn man(mut args: impl Iterator<Item = OsString>) -> ExitCode {
    let pages = pages();
    let Some(wanted) = args.next() else {
        let names: Vec<&str> = pages.iter().map(|(name, _)| name.as_str()).collect();
        return print(format!("{}\n", names.join("\n")).into_bytes());
    };
    let wanted = wanted.to_string_lossy();
    let page = pages.into_iter().find(|(name, _)| {
        *name == *wanted
            || name
                .rsplit_once('.')
                .is_some_and(|(bare, _)| bare == wanted)
    });
    match page {
        Some((_, text)) => print(text),
        None => failed(&format!(
            "man {wanted}: no such page. redline man, without a name, lists all"
        )),
    }
}

fn print(text: Vec<u8>) -> ExitCode {
    match console::out(&String::from_utf8_lossy(&text)) {
        Ok(()) => ExitCode::SUCCESS,
        Err(why) => failed(&why),
    }
}

fn failed(why: &str) -> ExitCode {
    console::line_to_stderr(&format!("redline: {why}"));
    ExitCode::FAILURE
}

/// Returns the description of the whole command line.
pub fn whole() -> Command {
    let checks = [
        (
            "check-aof",
            "Checks an append-only file, and repairs its end",
        ),
        ("check-rdb", "Checks a snapshot"),
    ];
    let checks = checks.map(|(name, about)| {
        Command::new(name).about(about).arg(
            Arg::new("file")
                .value_hint(ValueHint::FilePath)
                .required(true)
                .help("The file"),
        )
    });
    let [check_aof, check_rdb] = checks;
    let fix = |name| Arg::new(name).long(name).num_args(0);
    let check_aof = check_aof
        .arg(fix("fix").help("Cuts off what cannot be read at the end"))
        .arg(fix("yes").help("Does so without asking"))
        .arg(
            Arg::new("truncate-to-timestamp")
                .long("truncate-to-timestamp")
                .value_name("SECONDS")
                .help("Cuts off what was written after this time"),
        );
    Command::new("redline")
        .about("Redis-protocol server, proxy and load generator")
        .version(env!("CARGO_PKG_VERSION"))
        .disable_help_subcommand(true)
        .subcommand(server())
        .subcommand(redline_bench::command().name("bench"))
        .subcommand(redline_proxy::Arguments::command().name("proxy"))
        .subcommand(Arguments::command().name("ping"))
        .subcommand(doctor())
        .subcommand(convert())
        .subcommand(check_aof)
        .subcommand(check_rdb)
        .subcommand(
            Command::new("completions")
                .about("Prints the completions of a shell")
                .arg(
                    Arg::new("shell")
                        .value_parser(PossibleValuesParser::new(["bash", "zsh", "fish"]))
                        .help("The shell"),
                ),
        )
        .subcommand(
            Command::new("man")
                .about("Prints a manual page; without a name, the names of all")
                .arg(Arg::new("page").help("The page, as redline-server")),
        )
}

fn doctor() -> Command {
    Command::new("doctor")
        .about("Examines this machine, and what a configuration needs of it")
        .arg(
            Arg::new("part")
                .value_parser(PossibleValuesParser::new(["server", "proxy", "bench"]))
                .help("The part whose configuration follows"),
        )
        .arg(
            Arg::new("configuration")
                .value_hint(ValueHint::FilePath)
                .num_args(0..)
                .help("What that part takes: a file, options, or both"),
        )
        .arg(
            Arg::new("json")
                .long("json")
                .num_args(0)
                .help("Prints findings as JSON"),
        )
}

fn convert() -> Command {
    Command::new("convert")
        .about("Prints what another program's configuration or command line is here")
        .arg(
            Arg::new("from")
                .value_parser(PossibleValuesParser::new(convert::names()))
                .help("The program; without it, it is recognised by the content"),
        )
        .arg(
            Arg::new("file")
                .value_hint(ValueHint::FilePath)
                .help("Its configuration; a command line stands behind --"),
        )
        .arg(
            Arg::new("strict")
                .long("strict")
                .num_args(0)
                .help("Something that is lost is a failure"),
        )
}

fn server() -> Command {
    let flag =
        |name: &'static str, help: &'static str| Arg::new(name).long(name).num_args(0).help(help);
    let mut command = Command::new("server")
        .about("A data store for Redis clients; takes redis-server's arguments")
        .override_usage("redline server [FILE] [-] [--PARAMETER VALUE ...]")
        .arg(
            Arg::new("file")
                .value_hint(ValueHint::FilePath)
                .help("Configuration file, in redis.conf's form; - reads standard input"),
        )
        .arg(flag(
            "check-config",
            "Reports what each line of a configuration does, and exits",
        ))
        .arg(flag("check-system", "Examines this machine, and exits"))
        .arg(flag(
            "json",
            "With --check-config: prints the report as JSON",
        ))
        .arg(flag(
            "strict",
            "With --check-config: lines without effect are a failure",
        ))
        .arg(flag(
            "print-defaults",
            "Prints a configuration file with every default, and exits",
        ))
        .arg(
            Arg::new("test-memory")
                .long("test-memory")
                .value_name("MEGABYTES")
                .help("Tests memory, and exits"),
        );
    for one in parameters().filter(|one| one.is_effective) {
        let default = match one.default {
            "" => String::new(),
            default => format!(" [default: {default}]"),
        };
        let values = match (&one.values, one.words.is_empty()) {
            (Some(values), true) => format!(" Values: {values}."),
            _ => String::new(),
        };
        let mut arg = Arg::new(one.name)
            .long(one.name)
            .value_name("VALUE")
            .help_heading(one.group)
            .help(format!("{}{values}{default}", one.doc));
        if !one.words.is_empty() {
            arg = arg.value_parser(PossibleValuesParser::new(one.words.iter().copied()));
        }
        if one.is_path {
            arg = arg.value_hint(ValueHint::AnyPath);
        }
        command = command.arg(arg);
    }
    command
}

/// Returns all manual pages, with their names: `redline-server.1`.
fn pages() -> Vec<(String, Vec<u8>)> {
    let mut pages = Vec::new();
    add_pages(whole(), "redline", &mut pages);
    pages.push((
        "redline.conf.5".to_owned(),
        page_of_parameters().into_bytes(),
    ));
    pages
}

fn add_pages(command: Command, name: &str, pages: &mut Vec<(String, Vec<u8>)>) {
    let within: Vec<Command> = command.get_subcommands().cloned().collect();
    // Its own name has blanks, where that of a page has dashes.
    let called = name.replace('-', " ").replace("check ", "check-");
    let page = command.name(name.to_owned()).bin_name(called);
    let mut text = Vec::new();
    let rendered = clap_mangen::Man::new(page).render(&mut text);
    rendered.expect("writing to memory does not fail");
    pages.push((
        format!("{name}.1"),
        tidy(name, &String::from_utf8_lossy(&text)),
    ));
    for sub in within.into_iter().filter(|sub| !sub.is_hide_set()) {
        let name = format!("{name}-{}", sub.get_name());
        add_pages(sub, &name, pages);
    }
}

/// Returns a page with a head as manual pages have it, without blanks at the ends of lines and without breaks beside a space.
fn tidy(name: &str, text: &str) -> Vec<u8> {
    let lines: Vec<&str> = text.lines().map(str::trim_end).collect();
    let mut out = String::new();
    for (at, line) in lines.iter().enumerate() {
        let is_space = |at: usize| {
            let line = lines.get(at);
            line.is_some_and(|line| line.is_empty() || line.starts_with(".sp"))
        };
        match *line {
            ".br" if is_space(at + 1) || at > 0 && is_space(at - 1) => {}
            "" => out.push_str(".sp\n"),
            line if line.starts_with(".TH ") => out.push_str(&head(name, 1)),
            line => {
                out.push_str(line);
                out.push('\n');
            }
        }
    }
    out.into_bytes()
}

/// Returns the head of a page. Its date is that of `SOURCE_DATE_EPOCH`, so that a package can be built again; without that
/// there is none.
fn head(name: &str, section: u8) -> String {
    let built_s = std::env::var("SOURCE_DATE_EPOCH").ok();
    let built_s = built_s.and_then(|text| text.parse::<u64>().ok());
    format!(
        ".TH {} {section} \"{}\" \"redline {}\"\n",
        name.to_uppercase(),
        built_s.map(date).unwrap_or_default(),
        env!("CARGO_PKG_VERSION")
    )
}

/// Returns the day of a time in seconds since 1970, in UTC, as 2026-11-28.
fn date(seconds: u64) -> String {
    let is_leap = |year: u64| {
        year.is_multiple_of(4) && (!year.is_multiple_of(100) || year.is_multiple_of(400))
    };
    // Later years have five digits, and no manual pages.
    let mut days = (seconds / 86_400).min(2_932_896);
    let mut year = 1970;
    while days >= 365 + u64::from(is_leap(year)) {
        days -= 365 + u64::from(is_leap(year));
        year += 1;
    }
    let february = 28 + u64::from(is_leap(year));
    let lengths = [31, february, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31];
    let mut month = 0;
    while days >= lengths[month] {
        days -= lengths[month];
        month += 1;
    }
    format!("{year:04}-{:02}-{:02}", month + 1, days + 1)
}

/// Returns the page redline.conf(5).
fn page_of_parameters() -> String {
    let mut page = head("redline.conf", 5);
    page.push_str(
        ".SH NAME\nredline.conf \\- configuration of redline server\n.SH DESCRIPTION\n\
         A line is the name of a parameter and its values, as in redis.conf. Words may be quoted; a line that begins with # is \
         a comment; include FILE reads another file. Later lines win.\n.PP\n\
         redline server \\-\\-check\\-config FILE reports what each line does.\n",
    );
    let mut group = "";
    for one in parameters() {
        if one.group != group {
            group = one.group;
            page += &format!(".SH {}\n", roff(group).to_uppercase());
        }
        page += &format!(
            ".TP\n\\fB{}\\fR {}\n{}\n",
            roff(one.name),
            roff(one.default),
            roff(one.doc)
        );
        if let Some(values) = &one.values {
            page += &format!("Values: {}.\n", roff(values));
        }
        page += match (one.is_effective, one.is_live) {
            (false, _) => "It has no effect.\n",
            (true, true) => "CONFIG SET changes it while the server runs.\n",
            (true, false) => "Read at the start only.\n",
        };
    }
    page + ".SH SEE ALSO\n.BR redline-server (1)\n"
}

/// Returns text in which nothing is a request of roff.
fn roff(text: &str) -> String {
    let text = text.replace('\\', "\\e").replace('-', "\\-");
    match text.starts_with(['.', '\'']) {
        true => format!("\\&{text}"),
        false => text,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_description_is_consistent() {
        whole().debug_assert();
    }

    #[test]
    fn every_part_and_parameter_has_its_place_in_the_pages() {
        let pages = pages();
        let names: Vec<&str> = pages.iter().map(|(name, _)| name.as_str()).collect();
        for name in [
            "redline.1",
            "redline-server.1",
            "redline-bench.1",
            "redline-bench-run.1",
            "redline-bench-compare.1",
            "redline-bench-failover.1",
            "redline-bench-report.1",
            "redline-proxy.1",
            "redline-doctor.1",
            "redline-ping.1",
            "redline-convert.1",
            "redline-bench-memtier.1",
            "redline-check-aof.1",
            "redline.conf.5",
        ] {
            assert!(names.contains(&name), "{name}: {names:?}");
        }
        let page = page_of_parameters();
        for one in parameters() {
            assert!(
                page.contains(&format!("\\fB{}\\fR", roff(one.name))),
                "{}",
                one.name
            );
        }
        for (seconds, day) in [
            (0, "1970-01-01"),
            (951_782_400, "2000-02-29"),
            (1_798_675_200, "2026-12-31"),
            (u64::MAX, "9999-12-31"),
        ] {
            assert_eq!(date(seconds), day);
        }
        assert_eq!(roff(".a\\-"), "\\&.a\\e\\-");
    }

    #[test]
    fn completions_know_values() {
        for (shell, word) in [
            (Shell::Bash, "allkeys-lru"),
            (Shell::Zsh, "allkeys-lru"),
            (Shell::Fish, "allkeys-lru"),
        ] {
            let mut text = Vec::new();
            clap_complete::generate(shell, &mut whole(), "redline", &mut text);
            let text = String::from_utf8(text).unwrap();
            assert!(text.contains(word), "{shell}");
            assert!(text.contains("failover"), "{shell}");
        }
    }
}
