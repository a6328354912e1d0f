//! `redline doctor`: which part's configuration is looked at, and in which form the findings are printed.
//!
//! Must not know what is examined.

use std::ffi::OsString;
use std::process::ExitCode;

use redline_doctor::{Machine, Wanted};
use redline_server::console;

/// Text of `--help`.
const USAGE: &str = "\
Usage: redline doctor [server|proxy|bench] [CONFIGURATION] [--json]

Examines this machine and what a configuration needs of it: settings of the kernel, limits, memory and CPUs, addresses,
folders, files with secrets, certificates. Changes nothing. Run it as the service's user.

  redline doctor                               For a server with defaults.
  redline doctor server /etc/redis/redis.conf  CONFIGURATION is what the part takes: a file, options, or both.
  redline doctor proxy proxy.toml --json       As JSON: check, state, text, mend.
  redline doctor bench                         For a load generator.

States: OK; WARNING, it works but not well; FAULT, it does not work or is dangerous; NOT KNOWN, it could not be read.
Exit code: 0; 1 with a warning; 2 with a fault, or if it was called wrongly.
";

/// Exit code of a fault, and of a wrong call.
const FAULT: u8 = 2;

/// Runs it.
pub fn main(args: impl Iterator<Item = OsString>) -> ExitCode {
    let mut words: Vec<OsString> = args.collect();
    if words.iter().any(|word| word == "--help" || word == "-h") {
        return match console::out(USAGE) {
            Ok(()) => ExitCode::SUCCESS,
            Err(why) => failed(&why),
        };
    }
    let count = words.len();
    words.retain(|word| word != "--json");
    let is_json = words.len() < count;
    let wanted = match wanted(words) {
        Ok(wanted) => wanted,
        Err(why) => return failed(&why),
    };
    let found = redline_doctor::examine(&Machine::default(), &wanted);
    let text = match is_json {
        true => redline_doctor::json(&found),
        false => redline_doctor::text(&found),
    };
    match console::out(&text) {
        Ok(()) => ExitCode::from(redline_doctor::exit_code(&found)),
        Err(why) => failed(&why),
    }
}

fn wanted(words: Vec<OsString>) -> Result<Wanted, String> {
    let mut words = words.into_iter().peekable();
    match words.peek().and_then(|word| word.to_str()) {
        Some("proxy") => redline_proxy::wanted(words.skip(1)),
        Some("bench") => match words.nth(1) {
            Some(more) => Err(format!("bench takes no configuration: {}", more.display())),
            None => Ok(Wanted {
                threads: 1,
                connects: true,
                ..Wanted::default()
            }),
        },
        Some("server") => redline_server::command_line::wanted(words.skip(1)),
        _ => redline_server::command_line::wanted(words),
    }
}

fn failed(why: &str) -> ExitCode {
    console::line_to_stderr(&format!("redline doctor: {}", why.trim_end()));
    ExitCode::from(FAULT)
}
