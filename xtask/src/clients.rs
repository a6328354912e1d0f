//! Client libraries in four languages: each runs the calls of `crates/testkit/clients/calls.txt`, and its library's
//! features beyond single calls, against our server and a real Redis. A library must not be able to tell them apart.

use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use redline_testkit::through;

use crate::compat::{Setting, stop};
use crate::install;
use crate::run::{Failure, Folder, captured, workspace};

const CLIENT_TIMEOUT: Duration = Duration::from_secs(120);
/// Lines of the programs about the server itself, which a proxy answers itself.
const ABOUT_THE_SERVER: [&str; 2] = ["info", "time"];
/// Largest number of differing lines shown of one client.
const SHOWN_MAX: usize = 30;

/// One way to run one client program.
struct Client {
    name: &'static str,
    program: PathBuf,
    /// The arguments before the port.
    before: Vec<OsString>,
    folder: Option<PathBuf>,
    protocol: Option<&'static str>,
}

/// Runs them all.
pub fn run(setting: &Setting) -> Result<String, Failure> {
    let sources = workspace().join("crates/testkit/clients");
    let calls = sources.join("calls.txt");
    let mut failures = Vec::new();
    let mut lines = 0;
    let clients = clients(&sources)?;
    for client in &clients {
        let label = client.label();
        let redis = setting.start_redis(&["--enable-debug-command", "local"])?;
        let redline = setting.start_redline(2, &["--enable-debug-command", "local"])?;
        let said_of = |port: u16| client.say(port, &calls, true);
        match (
            said_of(redline.address().port()),
            said_of(redis.address().port()),
        ) {
            (Ok(ours), Ok(theirs)) => {
                lines += ours.lines().count();
                failures.extend(differing(&label, &ours, &theirs));
            }
            (ours, theirs) => failures.extend([ours, theirs].into_iter().filter_map(Result::err)),
        }
        stop(redline)?;
    }
    if failures.is_empty() {
        return Ok(format!(
            "{} ways (ioredis has no RESP3), {lines} lines as against Redis",
            clients.len()
        ));
    }
    Err(failures.join("\n"))
}

/// Runs them through the proxy, beside the Redis behind it: the calls that a proxy can answer as a server does.
pub fn through(setting: &Setting) -> Result<usize, Failure> {
    let sources = workspace().join("crates/testkit/clients");
    let folder = Folder::new("clients")?;
    let calls = folder.path().join("calls.txt");
    let failed = |error: std::io::Error| format!("{}: {error}", calls.display());
    let all = fs::read_to_string(sources.join("calls.txt")).map_err(failed)?;
    fs::write(&calls, through::kept_lines(&all)).map_err(failed)?;
    let mut failures = Vec::new();
    let mut lines = 0;
    for client in clients(&sources)? {
        let label = format!("{} through the proxy", client.label());
        let behind = setting.start_redis(&[])?;
        let proxy = setting.start_proxy(&[behind.address()], &["--threads", "2"])?;
        let ours = client.say(proxy.address().port(), &calls, false);
        let theirs = client.say(behind.address().port(), &calls, false);
        match (ours, theirs) {
            (Ok(ours), Ok(theirs)) => {
                let kept = |said: &str| {
                    let about_itself = |line: &&str| !ABOUT_THE_SERVER.contains(&first_of(line));
                    said.lines()
                        .filter(about_itself)
                        .collect::<Vec<_>>()
                        .join("\n")
                };
                let (ours, theirs) = (kept(&ours), kept(&theirs));
                lines += ours.lines().count();
                failures.extend(differing(&label, &ours, &theirs));
            }
            (ours, theirs) => failures.extend([ours, theirs].into_iter().filter_map(Result::err)),
        }
        stop(proxy)?;
    }
    match failures.is_empty() {
        true => Ok(lines),
        false => Err(failures.join("\n")),
    }
}

fn first_of(line: &str) -> &str {
    line.split(' ').next().unwrap_or_default()
}

impl Client {
    fn label(&self) -> String {
        let protocol = self.protocol.map(|protocol| format!(" RESP{protocol}"));
        format!("{}{}", self.name, protocol.unwrap_or_default())
    }

    /// Returns the client's output about the server on this port.
    fn say(&self, port: u16, calls: &Path, monitored: bool) -> Result<String, Failure> {
        let mut command = Command::new(&self.program);
        command
            .args(&self.before)
            .arg(port.to_string())
            .args(self.protocol)
            .arg(calls);
        if let Some(folder) = &self.folder {
            command.env("NODE_PATH", folder.join("node_modules"));
        }
        if !monitored {
            command.env("MONITOR", "no");
        }
        captured(command, b"", CLIENT_TIMEOUT)
            .map_err(|failure| format!("{}: {failure}", self.label()))
    }
}

fn clients(sources: &std::path::Path) -> Result<Vec<Client>, Failure> {
    let python = install::redis_py()?;
    let js = install::node_clients()?;
    let go = install::go_program(&sources.join("go"), "go-client")?;
    let java = install::java_programs(&sources.join("java"))?;
    let java_words = |class: &str| {
        // They run for a few seconds only: the second compiler would not pay.
        ["-XX:TieredStopAtLevel=1", "-cp", &java, class].map(OsString::from)
    };
    let mut clients = vec![Client {
        name: "ioredis",
        program: "node".into(),
        before: vec![sources.join("js/ioredis.js").into()],
        folder: Some(js.clone()),
        protocol: None,
    }];
    for protocol in ["2", "3"] {
        let make = |name, program: &Path, before: &[OsString], folder: Option<&PathBuf>| Client {
            name,
            program: program.to_owned(),
            before: before.to_vec(),
            folder: folder.cloned(),
            protocol: Some(protocol),
        };
        let script = |name: &str| [OsString::from(sources.join(name))];
        clients.push(make("redis-py", &python, &script("py/client.py"), None));
        clients.push(make("go-redis", &go, &[], None));
        clients.push(make(
            "node-redis",
            Path::new("node"),
            &script("js/node-redis.js"),
            Some(&js),
        ));
        for (name, class) in [("Jedis", "JedisClient"), ("Lettuce", "LettuceClient")] {
            clients.push(make(name, Path::new("java"), &java_words(class), None));
        }
    }
    Ok(clients)
}

/// Returns the differing lines, as a failure.
pub fn differing(label: &str, ours: &str, theirs: &str) -> Option<Failure> {
    let (ours, theirs): (Vec<&str>, Vec<&str>) = (ours.lines().collect(), theirs.lines().collect());
    let mut shown = Vec::new();
    for at in 0..ours.len().max(theirs.len()) {
        let (our, their) = (ours.get(at), theirs.get(at));
        if our != their {
            let text = |line: Option<&&str>| {
                line.map_or("(nothing)".to_owned(), |line| (*line).to_owned())
            };
            shown.push(format!("  ours   {}\n  theirs {}", text(our), text(their)));
        }
    }
    let count = shown.len();
    shown.truncate(SHOWN_MAX);
    (count > 0).then(|| format!("{label}: {count} lines differ\n{}", shown.join("\n")))
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    /// Commands that the client programs send separately: they change the connection's state, or end the server.
    const OWN_WAY: &[&str] = &[
        "multi",
        "exec",
        "discard",
        "subscribe",
        "unsubscribe",
        "psubscribe",
        "punsubscribe",
        "ssubscribe",
        "sunsubscribe",
        "hello",
        "reset",
        "quit",
        "client|reply",
        "monitor",
        "shutdown",
        // What is built in here is not all in the reference.
        "module|list",
        // Of links between servers.
        "failover",
        "migrate",
        "psync",
        "replconf",
        "sync",
    ];

    #[test]
    fn clients_call_every_command() {
        let called = commands_called(include_str!("../../crates/testkit/clients/calls.txt"));
        let missing: Vec<_> = redline_spec::table::all()
            .iter()
            .filter(|row| row.plane != redline_spec::Plane::Container)
            // Both servers run the same calls, so commands that the real one lacks are left out.
            .filter(|row| !redline_spec::is_after_reference(row.since))
            .map(|row| row.full_name)
            .filter(|name| !called.contains(*name) && !OWN_WAY.contains(name))
            .collect();
        assert!(missing.is_empty(), "{missing:?}");
    }

    fn commands_called(calls: &str) -> BTreeSet<String> {
        let lines = calls
            .lines()
            .filter(|line| !line.starts_with('#') && !line.is_empty());
        lines
            .map(|line| {
                let mut words = line.trim_start_matches(['~', '?']).split_whitespace();
                let first = words.next().unwrap_or_default().to_ascii_lowercase();
                let second = words.next().unwrap_or_default().to_ascii_lowercase();
                match redline_spec::resolve(first.as_bytes(), Some(second.as_bytes())) {
                    Ok(id) => redline_spec::row(id).full_name.to_owned(),
                    Err(_) => first,
                }
            })
            .collect()
    }
}
