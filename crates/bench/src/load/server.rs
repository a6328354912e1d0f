//! One server that takes part in a run: its identity, as far as known. Sends no requests.

use std::collections::BTreeMap;

use redline_net::{Endpoint, process};

use super::plan::ServerPlan;
use crate::load::cause::parties::Process;
use crate::load::cause::preflight;

/// The lines of INFO, by name.
pub type Info = BTreeMap<String, String>;

/// One server that takes part.
pub struct Server {
    /// The server as it was named.
    pub plan: ServerPlan,
    /// Its endpoint.
    pub endpoint: Endpoint,
    /// If it is on this machine.
    pub process: Option<Process>,
    /// The process that listens there if another one answers.
    pub forwarder: Option<Process>,
    /// The server's INFO at the start.
    pub info: Info,
    /// An earlier one is the same server at another address: its resources and counters are listed there.
    pub is_listed: bool,
}

/// Lines of INFO that are all equal only for the same server.
const IDENTITY: [&str; 3] = ["run_id", "process_id", "tcp_port"];

/// Servers that report their own version, each in the field of its name, beside that of the compatible Redis.
const NAMES: [&str; 8] = [
    "redline",
    "valkey",
    "dragonfly",
    "garnet",
    "kvrocks",
    "keydb",
    "pika",
    "redict",
];

impl Server {
    /// Returns a server with its listening `process`, before any question.
    pub fn new(plan: ServerPlan, endpoint: Endpoint, process: Option<Process>) -> Server {
        Server {
            plan,
            endpoint,
            process,
            forwarder: None,
            info: Info::new(),
            is_listed: false,
        }
    }

    /// Detects a process that only forwards (a container's port, a tunnel, a proxy of bytes): the server that answers
    /// reports another process id.
    pub fn doubt_process(&mut self) {
        let says = self.info.get("process_id");
        let says = says.and_then(|number| number.parse::<u32>().ok());
        let (Some(says), Some(process)) = (says, &self.process) else {
            return;
        };
        let is_other = process::own_number_of(process.pid).is_ok_and(|number| number != says);
        if is_other && !preflight::is_proxy(&self.info) {
            self.forwarder = self.process.take();
        }
    }

    /// Detects that it is one of those before it.
    pub fn recognise(&mut self, before: &[Server]) {
        self.is_listed = before.iter().any(|other| {
            let is_its_process = self.process.is_some() && self.process == other.process;
            let says_so = self.info.contains_key("run_id")
                && IDENTITY
                    .iter()
                    .all(|name| self.info.get(*name) == other.info.get(*name));
            is_its_process || says_so
        });
        if self.is_listed {
            self.process = None;
        }
    }

    /// Returns the server's name and its version, as far as it reports them.
    pub fn name(&self) -> Option<String> {
        let is_proxy = preflight::is_proxy(&self.info);
        match named(&self.info) {
            // A proxy reports a version for its clients, not that of its servers.
            Some(said) if is_proxy => Some(format!("a proxy that says {said}")),
            Some(said) => Some(said),
            // A server that does not report its name has that of its process.
            None => match &self.process {
                Some(process) => Some(process.name.clone()),
                None => is_proxy.then(|| "a proxy".to_owned()),
            },
        }
    }
}

fn named(info: &Info) -> Option<String> {
    let version = |name: &str| info.get(&format!("{name}_version"));
    let said = info.get("server_name").map(String::as_str);
    let mut names = said.into_iter().chain(NAMES);
    if let Some((name, own)) = names.find_map(|name| Some((name, version(name)?))) {
        // Dragonfly reports df-v1.2.3.
        let own = own.strip_prefix("df-").unwrap_or(own);
        let own = own.strip_prefix('v').unwrap_or(own);
        return Some(format!("{name} {own}"));
    }
    // KeyDB's version is in Redis's field, in a reply with a section of its own.
    let name = if info.contains_key("mvcc_depth") {
        "keydb"
    } else {
        said.unwrap_or("redis")
    };
    version("redis").map(|version| format!("{name} {version}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn servers_are_called_by_their_own_names() {
        for (said, name) in [
            ("redis_version:7.0.15", "redis 7.0.15"),
            (
                "redis_version:7.2.4 server_name:valkey valkey_version:9.1.2",
                "valkey 9.1.2",
            ),
            (
                "redis_version:8.2.3 server_name:redline redline_version:0.1.0",
                "redline 0.1.0",
            ),
            (
                "redis_version:7.4.0 dragonfly_version:df-v1.40.1",
                "dragonfly 1.40.1",
            ),
            ("garnet_version:1.1.9 redis_version:7.4.3", "garnet 1.1.9"),
            (
                "kvrocks_version:2.17.0 redis_version:4.0.0",
                "kvrocks 2.17.0",
            ),
            ("redis_version:6.3.4 mvcc_depth:0", "keydb 6.3.4"),
            ("redis_version:7.2.4 server_name:other", "other 7.2.4"),
        ] {
            let fields = said.split(' ').filter_map(|field| field.split_once(':'));
            let info = fields.map(|(name, value)| (name.to_owned(), value.to_owned()));
            assert_eq!(named(&info.collect()).as_deref(), Some(name));
        }
        assert_eq!(named(&Info::new()), None);
    }
}
