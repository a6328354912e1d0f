//! Units of systemd: one text, filled in for the server, the proxy, their instances, and the server in place of Redis's.

/// The text of all.
const TEXT: &str = include_str!("../../../packaging/unit.service.in");

/// A unit.
pub struct Unit {
    name: &'static str,
    description: &'static str,
    page: &'static str,
    command: &'static str,
    user: &'static str,
    /// Folder of the configuration.
    config: &'static str,
    /// Name of the folders below /run, /var/lib and /var/log.
    folders: [&'static str; 3],
    /// Seconds after which a worker that does not turn is stuck.
    watchdog_s: u32,
}

/// Every unit.
pub const ALL: &[Unit] = &[
    Unit {
        name: "redline",
        description: "Redline, an in-memory data store",
        page: "redline-server",
        command: "/usr/bin/redline server /etc/redline/redline.conf --supervised systemd --daemonize no",
        user: "redline",
        config: "/etc/redline",
        folders: ["redline", "redline", "redline"],
        watchdog_s: SERVER_S,
    },
    Unit {
        name: "redline@",
        description: "Redline, an in-memory data store (%I)",
        page: "redline-server",
        command: "/usr/bin/redline server /etc/redline/%i.conf --supervised systemd --daemonize no",
        user: "redline",
        config: "/etc/redline",
        folders: ["redline-%i", "redline/%i", "redline"],
        watchdog_s: SERVER_S,
    },
    Unit {
        name: "redline-proxy",
        description: "Redline, a proxy for Redis servers",
        page: "redline-proxy",
        command: "/usr/bin/redline proxy /etc/redline/proxy.toml",
        user: "redline",
        config: "/etc/redline",
        folders: ["redline-proxy", "redline", "redline"],
        watchdog_s: PROXY_S,
    },
    Unit {
        name: "redline-proxy@",
        description: "Redline, a proxy for Redis servers (%I)",
        page: "redline-proxy",
        command: "/usr/bin/redline proxy /etc/redline/%i.toml",
        user: "redline",
        config: "/etc/redline",
        folders: ["redline-proxy-%i", "redline", "redline"],
        watchdog_s: PROXY_S,
    },
    Unit {
        name: "redis-server",
        description: "Redline, in place of redis-server",
        page: "redline-server",
        command: "/usr/bin/redis-server /etc/redis/redis.conf --supervised systemd --daemonize no",
        user: "redis",
        config: "/etc/redis",
        folders: ["redis", "redis", "redis"],
        watchdog_s: SERVER_S,
    },
];

/// A command may take long: one that goes over millions of elements is not stuck.
const SERVER_S: u32 = 300;
/// A proxy runs no commands.
const PROXY_S: u32 = 30;

impl Unit {
    /// Returns the name of its file.
    pub fn file_name(&self) -> String {
        format!("{}.service", self.name)
    }

    /// Returns true if it is of the package that stands in for redis-server.
    pub fn is_of_redis(&self) -> bool {
        self.user == "redis"
    }

    /// Returns its text.
    pub fn text(&self) -> String {
        let [run, state, logs] = self.folders;
        let home = format!("/var/lib/{state}");
        let watchdog = self.watchdog_s.to_string();
        let mut text = TEXT.to_owned();
        for (place, value) in [
            ("@DESCRIPTION@", self.description),
            ("@PAGE@", self.page),
            ("@COMMAND@", self.command),
            ("@USER@", self.user),
            ("@CONFIG@", self.config),
            ("@RUN@", run),
            ("@STATE@", state),
            ("@LOGS@", logs),
            ("@HOME@", home.as_str()),
            ("@WATCHDOG@", watchdog.as_str()),
        ] {
            text = text.replace(place, value);
        }
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_place_is_left_unfilled() {
        for unit in ALL {
            let text = unit.text();
            let left = text.split_whitespace().find(|word| {
                let mut parts = word.split('@').skip(1);
                parts.any(|part| !part.is_empty() && part.chars().all(|c| c.is_ascii_uppercase()))
            });
            assert_eq!(left, None, "{}", unit.name);
            assert!(text.contains("\nType=notify\n"), "{}", unit.name);
        }
    }
}
