//! Another configuration at runtime: read from the source of the first one, checked as a whole, and only then passed on.
//! Must not know its effects on the control side.

use std::io;
use std::sync::{Arc, Mutex, PoisonError, mpsc};
use std::time::Duration;

use redline_net::Sender;
use redline_proxy_config::{Arguments, Config};

use super::Changed;
use crate::observability::log;
use crate::start::spawn;
use crate::tls_config::{Doors, Secured};

/// Time in which the control side takes a configuration, unless the machine is overloaded.
const TAKEN_WITHIN: Duration = Duration::from_secs(10);

/// The entry for another configuration.
pub struct Reload {
    arguments: Arguments,
    running: Mutex<Config>,
    doors: Arc<Doors>,
    configs: Sender<Changed>,
}

impl Reload {
    pub(super) fn new(
        arguments: Arguments,
        running: Config,
        doors: Arc<Doors>,
        configs: Sender<Changed>,
    ) -> Reload {
        Reload {
            arguments,
            running: Mutex::new(running),
            doors,
            configs,
        }
    }

    /// Reads it on a separate thread, since files may be slow, and reports the result. After a success, workers use the
    /// new configuration from then on.
    pub fn begin(
        self: &Arc<Reload>,
        ended: impl FnOnce(Result<(), String>) + Send + 'static,
    ) -> io::Result<()> {
        let this = Arc::clone(self);
        let run = move || {
            let begun = this.run();
            ended(begun.map(|taken| {
                // Nothing is sent: the other side drops its end.
                let _ = taken.recv_timeout(TAKEN_WITHIN);
            }));
        };
        spawn("proxy-reload", run)?;
        Ok(())
    }

    /// Reads and checks it. An error is one line, and nothing changes. The returned channel ends when it is in effect.
    fn run(&self) -> Result<mpsc::Receiver<()>, String> {
        let mut running = self.running.lock().unwrap_or_else(PoisonError::into_inner);
        let (config, _) = self.arguments.read().map_err(one_line)?;
        let problems = config.check();
        for warning in problems.iter().filter(|problem| !problem.is_fatal) {
            log::warning(&warning.to_string());
        }
        let fatal: Vec<String> = problems
            .iter()
            .filter(|problem| problem.is_fatal)
            .map(|problem| format!("{}: {}", problem.place, problem.text))
            .collect();
        if !fatal.is_empty() {
            return Err(fatal.join("; "));
        }
        if let Some(what) = needs_a_restart(&running, &config) {
            return Err(format!(
                "{what} cannot be changed while the proxy runs; start it anew, or change the rest alone"
            ));
        }
        let secured = Secured::of(&config)?;
        *running = config.clone();
        self.doors.replace(secured.listeners);
        let tls = secured.pools;
        let (taken, is_taken) = mpsc::channel();
        self.configs.send(Changed { config, tls, taken });
        log::notice("configuration reloaded");
        Ok(is_taken)
    }
}

/// Logs the reason for operators.
pub fn say_why(error: &str) {
    log::warning(&format!(
        "configuration not reloaded, still using the previous one: {error}"
    ));
    // The client may look for the reason in the log at once.
    log::flush();
}

/// Returns the name of a setting that differs and is read at the start only.
fn needs_a_restart(old: &Config, new: &Config) -> Option<&'static str> {
    let differ = [
        (old.threads != new.threads, "`threads`"),
        (old.listeners != new.listeners, "`listener`"),
        (old.limits != new.limits, "`limits`"),
        (old.timeouts != new.timeouts, "`timeouts`"),
        (old.users != new.users, "`user`"),
        (
            !starts_with_all(old, new),
            "the names of pools, and their order (new ones come behind the others),",
        ),
        (
            old.pools
                .iter()
                .zip(&new.pools)
                .any(|(old, new)| old.cache != new.cache),
            "`pool.cache`",
        ),
        (old.commands != new.commands, "`commands`"),
        (old.faults != new.faults, "`fault`"),
        (old.mirrors != new.mirrors, "`mirror`"),
        (old.cluster_face != new.cluster_face, "`cluster-face`"),
        (old.name != new.name, "`name`"),
        (old.log != new.log, "`log`"),
        (old.metrics != new.metrics, "`metrics`"),
        (old.observe != new.observe, "`observe`"),
        (
            old.latency_monitors != new.latency_monitors,
            "`latency-monitor`",
        ),
    ];
    differ
        .iter()
        .find(|(differs, _)| *differs)
        .map(|(_, what)| *what)
}

fn starts_with_all(old: &Config, new: &Config) -> bool {
    let mut names = new.pools.iter().map(|pool| &pool.name);
    old.pools
        .iter()
        .all(|pool| names.next() == Some(&pool.name))
}

fn one_line(text: String) -> String {
    text.lines()
        .map(str::trim)
        .filter(|line| !line.is_empty())
        .collect::<Vec<_>>()
        .join(" ")
}

#[cfg(test)]
mod tests {
    use std::ffi::OsString;
    use std::fs;

    use redline_net::Mailbox;

    use super::*;

    /// The smallest valid configuration.
    const WHOLE: &str = "
        [[listener]]
        bind = '127.0.0.1:7617'
        [[pool]]
        [[pool.shard]]
        server = [{ address = '127.0.0.1:6379' }]
    ";

    #[test]
    fn a_file_with_a_fault_changes_nothing() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("proxy.toml");
        fs::write(&path, WHOLE).unwrap();
        let arguments = Arguments::parse_words([OsString::from(&path)].into_iter()).unwrap();
        let running = arguments.read().unwrap().0;
        let mut configs = Mailbox::with_wake(|| {});
        let doors = Arc::new(Doors::new(&running, &[None]));
        let reload = Reload::new(arguments, running, doors, configs.sender());
        let mut got = Vec::new();
        for (text, said) in [
            ("[[pool]\n", "TOML"),
            ("", "listener: there is none"),
            (
                &format!("threads = 7\n{WHOLE}"),
                "`threads` cannot be changed",
            ),
            (
                &format!("{WHOLE}\n[metrics]\nbind = '127.0.0.1:1'"),
                "`metrics` cannot be changed",
            ),
        ] {
            fs::write(&path, text).unwrap();
            let error = reload.run().unwrap_err();
            assert!(error.contains(said) && !error.contains('\n'), "{error}");
            configs.drain(&mut got);
            assert!(got.is_empty());
        }
        fs::write(&path, WHOLE.replace("6379", "6380")).unwrap();
        let is_taken = reload.run().unwrap();
        configs.drain(&mut got);
        assert_eq!(
            got[0].config.pools[0].shards[0].known_as(),
            "127.0.0.1:6380"
        );
        assert_eq!(is_taken.try_recv(), Err(mpsc::TryRecvError::Empty));
        got.clear();
        assert_eq!(is_taken.try_recv(), Err(mpsc::TryRecvError::Disconnected));
    }
}
