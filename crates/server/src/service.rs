//! The server as a service: background, supervisor, the title in the list of processes. Behaves as Redis 8.2.3.
//!
//! Must not know: how the server works.

use std::{
    env, io,
    sync::{Arc, Mutex, PoisonError, atomic::Ordering},
};

use redline_net::{
    service,
    supervisor::{self, ProcessState, Reporter},
};
use redline_settings::choices;

use crate::{
    StartError, log,
    settings::{ServiceSettings, Settings},
    shared::Shared,
};

/// Supervisor of the process: `supervised`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Supervision {
    /// Upstart: the process stops itself when it is ready.
    Upstart,
    /// systemd: notified by messages.
    Systemd,
    /// The one that the environment variables name.
    Auto,
    /// No supervisor.
    No,
}

choices! {
    Supervision: Supervision { "upstart" => Upstart, "systemd" => Systemd, "auto" => Auto, "no" => No }
    OomScore: OomScore { "no" => No, "yes" => Yes, "relative" => Relative, "absolute" => Absolute }
}

/// Mode in which the process's score for the kernel's out-of-memory killer is set: `oom-score-adj`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OomScore {
    /// The score is not set.
    No,
    /// As `Relative`.
    Yes,
    /// Added to the score that the process had at its start.
    Relative,
    /// Set as it is.
    Absolute,
}

/// A process that is the server's own, not one that embeds a server.
#[derive(Clone, Debug)]
pub struct Service {
    /// Name by which the program was started.
    called: String,
    /// Supervisor of the process, if it was confirmed.
    supervision: Supervision,
}

impl Service {
    /// Detects and notifies the supervisor, and goes to the background if configured; returns true if it did. `called`:
    /// the name by which the program was started.
    pub fn begin(called: &str, settings: &ServiceSettings) -> Result<(Service, bool), String> {
        let supervision = match settings.supervised {
            Supervision::Auto if env::var_os("UPSTART_JOB").is_some() => Supervision::Upstart,
            Supervision::Auto if supervisor::is_there() => Supervision::Systemd,
            Supervision::Auto => Supervision::No,
            other => other,
        };
        let supervised = match supervision {
            Supervision::Upstart => begin_upstart(),
            Supervision::Systemd => begin_systemd(),
            _ => false,
        };
        let background = settings.daemonize && !supervised;
        if background {
            service::daemonize().map_err(|error| format!("can't go to the background: {error}"))?;
        }
        let service = Service {
            called: called.into(),
            supervision: if supervised {
                supervision
            } else {
                Supervision::No
            },
        };
        Ok((service, background))
    }

    /// Returns the supervisor in INFO's word.
    pub fn supervisor(&self) -> &'static str {
        match self.supervision {
            Supervision::Upstart => "upstart",
            Supervision::Systemd => "systemd",
            Supervision::Auto | Supervision::No => "no",
        }
    }

    /// Notifies the supervisor that connections are accepted.
    pub fn ready(&self) {
        self.tell(|| supervisor::ready(READY));
    }

    /// Notifies the supervisor that the configuration is read again, until [`Service::ready`].
    pub fn reloading(&self) {
        self.tell(supervisor::reloading);
    }

    /// Notifies the supervisor that the server is stopping.
    pub fn stopping(&self) {
        self.tell(|| supervisor::stopping(STOPPING));
    }

    fn tell(&self, notify: impl FnOnce() -> io::Result<bool>) {
        if self.supervision == Supervision::Systemd {
            told(notify());
        }
    }

    /// Starts the thread that reports the server's state to the supervisor, if there is one that wants it.
    pub(crate) fn report(&self, shared: &Arc<Shared>) -> Result<Option<Reporter>, StartError> {
        if self.supervision != Supervision::Systemd {
            return Ok(None);
        }
        let shared = shared.clone();
        let started = Reporter::start(crate::start::last_words, move || state_of(&shared));
        started.map_err(|error| StartError::System("thread", error))
    }

    /// Sets the title. `config_file`: its path; `ports`: of TCP and of TLS, 0 for none.
    pub fn show_title(&self, settings: &Settings, config_file: Option<&str>, ports: [usize; 2]) {
        if !settings.service.title {
            return;
        }
        let title = |called: &str| {
            let facts = TitleFacts::of(called, settings, config_file, ports);
            expanded(&settings.service.title_template, |name| facts.value(name))
                .unwrap_or_else(|| called.into())
        };
        let mut shown = title(&self.called);
        if service::title_bytes_max().is_ok_and(|max| shown.len() > max) {
            let name = self.called.rsplit('/').next();
            shown = title(name.unwrap_or(&self.called));
        }
        if let Err(error) = service::set_title(&shown) {
            log::debug(&format!("The process title cannot be shown: {error}"));
        }
    }
}

/// Sets the score of `oom-score-adj` in the kernel; a failure is logged.
pub(crate) fn apply_oom_score(settings: &ServiceSettings) -> std::io::Result<()> {
    /// Score that the process had at its start; set once it has been changed.
    static GIVEN: Mutex<Option<i32>> = Mutex::new(None);
    let mut given = GIVEN.lock().unwrap_or_else(PoisonError::into_inner);
    let result = (|| {
        let before = match *given {
            Some(before) => before,
            None if settings.oom_score == OomScore::No => return Ok(()),
            None => service::oom_score_adj()?,
        };
        let score = match settings.oom_score {
            OomScore::No => before,
            OomScore::Yes | OomScore::Relative => before + settings.oom_scores[0],
            OomScore::Absolute => settings.oom_scores[0],
        };
        service::set_oom_score_adj(score.clamp(-1000, 1000))?;
        *given = (settings.oom_score != OomScore::No).then_some(before);
        Ok(())
    })();
    if let Err(error) = &result {
        let why = redline_net::error_text(error);
        log::warning(&format!("Unable to write oom_score_adj: {why}"));
    }
    result
}

fn begin_upstart() -> bool {
    if env::var_os("UPSTART_JOB").is_none() {
        log::warning("upstart supervision requested, but UPSTART_JOB not found!");
        return false;
    }
    log::notice("supervised by upstart, will stop to signal readiness.");
    match service::stop_until_continued() {
        Ok(()) => true,
        Err(error) => {
            log::warning(&format!("upstart supervision error: {error}"));
            false
        }
    }
}

fn begin_systemd() -> bool {
    log::notice(
        "Supervised by systemd. Please make sure you set appropriate values for TimeoutStartSec and TimeoutStopSec in your service unit.",
    );
    told(supervisor::status("Starting"))
}

/// Returns true if the supervisor was notified; otherwise the reason is logged.
fn told(notified: io::Result<bool>) -> bool {
    match notified {
        Ok(true) => true,
        Ok(false) => {
            log::warning("systemd supervision error: NOTIFY_SOCKET not found!");
            false
        }
        Err(error) => {
            log::warning(&format!("systemd supervision error: sd_notify: {error}"));
            false
        }
    }
}

/// Returns the server's state for its supervisor.
fn state_of(shared: &Shared) -> ProcessState {
    let loading = &shared.persistence.loading;
    let is_stopping = shared.stopping.load(Ordering::Acquire);
    let status = if is_stopping {
        STOPPING.to_owned()
    } else if let Some(left_ms) = shared.ending.left_ms() {
        format!(
            "Waiting for replicas before shutting down, {} s left",
            left_ms / 1000
        )
    } else if shared.ending.is_on() {
        String::from("Saving before shutting down")
    } else if loading.is_on() {
        const MIB: u64 = 1 << 20;
        let all = loading.total_bytes.load(Ordering::Relaxed) / MIB;
        format!("Loading: {} of {all} MiB", loading.bytes() / MIB)
    } else {
        let space = &shared.keyspace;
        let keys: u64 = space.used_databases().map(|db| space.key_count(db)).sum();
        let clients = shared.connection_count();
        format!("{READY}: {clients} clients, {keys} keys")
    };
    ProcessState {
        status,
        needs_time: is_stopping || shared.ending.is_on() || loading.is_on(),
        turns: shared.turns(),
    }
}

/// Status while connections are accepted.
const READY: &str = "Ready to accept connections";
/// Status at the end.
const STOPPING: &str = "Shutting down";

/// Facts that a title may contain.
struct TitleFacts<'a> {
    title: &'a str,
    unixsocket: &'a str,
    /// First configured address that the server listens on.
    address: &'a str,
    config_file: Option<&'a str>,
    ports: [usize; 2],
    /// Redis's mark of a cluster's node, or nothing.
    mode: &'static str,
}

impl<'a> TitleFacts<'a> {
    fn of(
        title: &'a str,
        settings: &'a Settings,
        config_file: Option<&'a str>,
        ports: [usize; 2],
    ) -> TitleFacts<'a> {
        TitleFacts {
            title,
            unixsocket: settings.unixsocket.as_deref().unwrap_or(""),
            address: settings.bind.first().map_or("*", String::as_str),
            config_file,
            ports,
            mode: match settings.cluster_enabled {
                true => "[cluster]",
                false => "",
            },
        }
    }

    fn value(&self, name: &str) -> Option<String> {
        let [port, tls_port] = self.ports;
        let socket = self.unixsocket;
        Some(match name {
            "title" => self.title.into(),
            "listen-addr" if port == 0 && tls_port == 0 => socket.into(),
            "listen-addr" => {
                let port = if port == 0 { tls_port } else { port };
                format!("{}:{port}", self.address)
            }
            "server-mode" => self.mode.into(),
            "port" => port.to_string(),
            "tls-port" => tls_port.to_string(),
            "unixsocket" => socket.into(),
            "config-file" => self.config_file.unwrap_or("-").into(),
            _ => return None,
        })
    }
}

/// Returns true if a title can be made of this.
pub fn is_title_template(template: &str) -> bool {
    let facts = TitleFacts {
        title: "",
        unixsocket: "",
        address: "*",
        config_file: None,
        ports: [1, 0],
        mode: "",
    };
    expanded(template, |name| facts.value(name)).is_some_and(|text| !text.is_empty())
}

/// Returns the template with `{name}` replaced, `{{` as a brace, and without spaces around it. `None`: a name is not
/// known, or a brace is not closed.
fn expanded(template: &str, value: impl Fn(&str) -> Option<String>) -> Option<String> {
    let (mut out, mut rest) = (String::new(), template);
    while let Some((before, after)) = rest.split_once('{') {
        out.push_str(before);
        rest = match after.strip_prefix('{') {
            Some(after) => {
                out.push('{');
                after
            }
            None => {
                let (name, after) = after.split_once('}')?;
                out.push_str(&value(name)?);
                after
            }
        };
    }
    out.push_str(rest);
    Some(out.trim_matches(' ').into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn templates_are_taken_and_refused_as_redis_does() {
        for right in [
            "{title} {listen-addr} {server-mode}",
            "a{{b}",
            "{{{title}",
            "a}b",
            "{port} {tls-port} {unixsocket} {config-file}<",
        ] {
            assert!(is_title_template(right), "{right}");
        }
        for wrong in [
            "",
            "  ",
            "{",
            "{title",
            "{TITLE}",
            "  {server-mode}  ",
            "{x}",
        ] {
            assert!(!is_title_template(wrong), "{wrong}");
        }
    }

    #[test]
    fn a_title_says_what_it_is_asked_for() {
        let settings = Settings {
            unixsocket: Some("/s".into()),
            ..Settings::default()
        };
        let shown = |template, ports| {
            let facts = TitleFacts::of("redis-server", &settings, None, ports);
            expanded(template, |name| facts.value(name)).unwrap()
        };
        let usual = ServiceSettings::default().title_template;
        assert_eq!(shown(&usual, [7, 8]), "redis-server *:7");
        assert_eq!(shown(&usual, [0, 8]), "redis-server *:8");
        assert_eq!(shown(&usual, [0, 0]), "redis-server /s");
        assert_eq!(shown("a{{b} {config-file}", [0, 0]), "a{b} -");
    }
}
