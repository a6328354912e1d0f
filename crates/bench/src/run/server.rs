//! One server that takes part in a run: who it is, as far as can be found out. Asks nobody.

use std::collections::BTreeMap;

use redline_net::{Endpoint, process};

use super::arguments::ServerPlan;
use crate::cause::parties::Process;
use crate::cause::preflight;

/// The lines of INFO, by name.
pub type Info = BTreeMap<String, String>;

/// One server that takes part.
pub struct Server {
    /// What it was named as.
    pub plan: ServerPlan,
    /// Where it is.
    pub endpoint: Endpoint,
    /// If it is on this machine.
    pub process: Option<Process>,
    /// Who listens there and is not the server that answers.
    pub forwarder: Option<Process>,
    /// What INFO said at the start.
    pub info: Info,
    /// One before it is the same server, at another address: there stands what it used and counted.
    pub is_listed: bool,
}

/// Lines of INFO that are all alike only if one server has said them.
const IDENTITY: [&str; 3] = ["run_id", "process_id", "tcp_port"];

impl Server {
    /// A server at which `process` listens, and which has not been asked anything.
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

    /// Whoever listens for another (for a container's port, at the end of a tunnel, as a proxy of bytes) is not the server:
    /// the one that answers knows itself by another number.
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

    /// Finds out whether it is one of those before it.
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
}
