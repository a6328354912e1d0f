//! `redline server`'s command line: redis-server's, and `--threads`.
//!
//! Must not know: what a parameter does.

use std::process::ExitCode;

use crate::{
    Server, Settings, log,
    start::Origin,
};

/// Runs the server until it is stopped.
pub fn main(args: impl Iterator<Item = std::ffi::OsString>) -> ExitCode {
    let words: Vec<String> = args.map(|word| word.to_string_lossy().into_owned()).collect();
    let mut settings = Settings::default();
    let mut at = 0;
    while at < words.len() {
        let value = words.get(at + 1).cloned().unwrap_or_default();
        match words[at].as_str() {
            "--port" => settings.port = value.parse().ok(),
            "--threads" => settings.threads = value.parse().unwrap_or(0),
            "--busy-reply-threshold" => settings.busy_reply_threshold_ms = value.parse().unwrap_or(5000),
            "--save" | "--appendonly" => {}
            other => eprintln!("ignored: {other}"),
        }
        at += 2;
    }
    match Server::start(settings, Origin { config_file: None, command_line: words }, true) {
        Ok(server) => {
            log::notice(&format!("Ready to accept connections on {:?} with {} workers", server.listening(), server.workers()));
            server.join();
            ExitCode::SUCCESS
        }
        Err(error) => {
            eprintln!("redline server: {error}");
            ExitCode::FAILURE
        }
    }
}
