//! INFO and CONFIG GET about the proxy itself. Must not know how requests are routed.

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
        if wanted("Cluster") {
            line(
                "# Cluster\r\ncluster_enabled",
                &u8::from(shared.face.is_some()),
            );
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

    /// The settings whose names match a word: the name itself, or `*` at its end for all that begin so.
    pub(super) fn config_get(&mut self, me: Ref, args: Args<'_>) -> Flow {
        let settings = &self.shared.settings;
        let all: [(&str, u64); 16] = [
            ("maxclients", settings.clients_max as u64),
            ("timeout", settings.client_timeout_s),
            ("threads", self.shared.workers.len() as u64),
            ("port", self.shared.port.into()),
            ("databases", self.home(me).databases.into()),
            ("proto-max-bulk-len", settings.bulk_bytes_max),
            ("client-query-buffer-limit", settings.query_bytes_max as u64),
            (
                "client-output-bytes",
                settings.client_output_bytes_max as u64,
            ),
            (
                "subscriber-output-bytes",
                settings.subscriber_output_bytes_max as u64,
            ),
            ("pipeline", settings.pipeline_max.into()),
            (
                "upstream-queue-bytes",
                settings.upstream_queue_bytes_max as u64,
            ),
            ("private-connections", settings.private_max as u64),
            ("private-idle", settings.private_idle_max as u64),
            ("connect-timeout-ms", settings.connect_timeout_ms),
            ("request-timeout-ms", settings.request_timeout_ms),
            ("event-coalescing-us", settings.event_coalescing_us),
        ];
        let matches = |name: &str| {
            args.iter().skip(2).any(|word| match word {
                [start @ .., b'*'] => {
                    name.len() >= start.len()
                        && name.as_bytes()[..start.len()].eq_ignore_ascii_case(start)
                }
                word => name.as_bytes().eq_ignore_ascii_case(word),
            })
        };
        let found: Vec<(&str, u64)> = all.into_iter().filter(|(name, _)| matches(name)).collect();
        self.answer(me, |reply| {
            reply.map(found.len());
            for (name, value) in &found {
                reply.bulk(name.as_bytes());
                reply.bulk(value.to_string().as_bytes());
            }
        })
    }
}
