//! INFO about the proxy itself. Must not know how requests are routed.

use std::fmt::Write;
use std::sync::atomic::Ordering;

use redline_net::clock;
use redline_resp::Args;

use crate::serve::Flow;
use crate::slab::Ref;
use crate::worker::Worker;

impl Worker {
    pub(super) fn info(&mut self, me: Ref, args: Args<'_>) -> Flow {
        let wanted = |section: &str| {
            let general = ["all", "default", "everything"];
            args.len() == 1
                || args.iter().skip(1).any(|word| {
                    word.eq_ignore_ascii_case(section.as_bytes())
                        || general
                            .iter()
                            .any(|general| word.eq_ignore_ascii_case(general.as_bytes()))
                })
        };
        let mut text = String::new();
        let mut line = |name: &str, value: &dyn std::fmt::Display| {
            // Writing into a string cannot fail.
            let _ = write!(text, "{name}:{value}\r\n");
        };
        let shared = &self.shared;
        let uptime_s = (clock::wall_ms() / 1000).saturating_sub(shared.began_s);
        let clients: usize = shared
            .workers
            .iter()
            .map(|(_, clients)| clients.load(Ordering::Relaxed))
            .sum();
        if wanted("Server") || wanted("Proxy") {
            line("# Server\r\nredis_version", &redline_spec::REFERENCE);
            line("redis_mode", &"proxy");
            line("Version", &env!("CARGO_PKG_VERSION"));
            line("process_id", &std::process::id());
            line("tcp_port", &shared.port);
            line("WorkerThreads", &shared.workers.len());
            line("uptime_in_seconds", &uptime_s);
            line("Uptime", &uptime_s);
            line("UptimeSince", &shared.began_s);
        }
        if wanted("Clients") {
            line("# Clients\r\nconnected_clients", &clients);
            line("maxclients", &shared.settings.clients_max);
        }
        if wanted("Servers") {
            for (number, node) in self.routes.nodes.iter().enumerate() {
                let head = if number == 0 {
                    "# Servers\r\nServer"
                } else {
                    "Server"
                };
                line(head, &node.name);
                line("CurrentIsFail", &u8::from(node.ejected));
            }
        }
        self.answer(me, |reply| reply.verbatim("txt", text.as_bytes()))
    }
}
