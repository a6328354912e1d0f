//! The file of a suite: TOML. Opens nothing and runs nothing.
//!
//! ```toml
//! name = "example"
//! title = "What it is about"
//! source = "Who published it, and on what machine"
//!
//! [scaled]                # multiplied with --scale, and put in where $NAME stands
//! requests = 1000000
//! keys = 100000
//!
//! [options]               # options of `redline bench run`, for every run
//! requests = "$requests"
//! connections = 50
//!
//! [targets]               # where runs go that name one; --target NAME=HOST:PORT says otherwise
//! direct = { server = "127.0.0.1", port = 6379 }
//! proxy = { server = "127.0.0.1", port = 7600, behind = "direct" }
//!
//! [[group]]
//! name = "GET"
//! command = ["GET key:{uniform:$keys|12}"]
//! target = "direct"
//! options = { pipeline = 16 }
//!
//! [[group.run]]
//! name = "16 bytes"
//! options = { value-size = 16 }
//! published = { rps = 100000, mean_ms = 0.4, p99_ms = 0.9 }
//! ```

use std::collections::BTreeMap;

use redline_net::{Address, process};
use serde::{Deserialize, Serialize};
use toml::Value;

/// A suite as in its file.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Suite {
    /// One word.
    pub name: String,
    /// Subject of the suite.
    pub title: String,
    /// Publisher of the figures.
    pub source: String,
    #[serde(default)]
    scaled: BTreeMap<String, u64>,
    #[serde(default)]
    options: Options,
    #[serde(default)]
    targets: BTreeMap<String, Target>,
    group: Vec<Group>,
}

type Options = BTreeMap<String, Value>;

#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Target {
    server: String,
    port: u16,
    /// It is a proxy, and this target is behind it.
    behind: Option<String>,
}

#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Group {
    name: String,
    command: Vec<String>,
    load: Option<String>,
    target: Option<String>,
    #[serde(default)]
    options: Options,
    run: Vec<RunEntry>,
}

#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct RunEntry {
    name: String,
    target: Option<String>,
    #[serde(default)]
    options: Options,
    #[serde(default)]
    published: Published,
}

/// Published figures of a run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Published {
    /// Requests per second.
    pub rps: Option<f64>,
    /// Mean latency.
    pub mean_ms: Option<f64>,
    /// 99th percentile.
    pub p99_ms: Option<f64>,
    /// CPUs that the server used in its own code.
    pub server_user: Option<f64>,
    /// CPUs that it used in the kernel.
    pub server_kernel: Option<f64>,
}

/// A run as arguments of the command line.
#[derive(Clone, Debug, PartialEq)]
pub struct Run {
    /// The group's name.
    pub group: String,
    /// The run's name.
    pub name: String,
    /// The arguments after `redline bench run`.
    pub words: Vec<String>,
    /// The published figures.
    pub published: Published,
}

impl Suite {
    /// Parses a file.
    pub fn parse(text: &str) -> Result<Suite, String> {
        toml::from_str(text).map_err(|error| error.to_string().trim_end().to_owned())
    }

    /// Sets the address of a target: `NAME=HOST:PORT`.
    pub fn place(&mut self, text: &str) -> Result<(), String> {
        let wrong = || format!("--target {text}: it is NAME=HOST:PORT.");
        let (name, place) = text.split_once('=').ok_or_else(wrong)?;
        let (host, port) = place.rsplit_once(':').ok_or_else(wrong)?;
        let port = port.parse().map_err(|_| wrong())?;
        let target = self.targets.get_mut(name);
        let target = target
            .ok_or_else(|| format!("--target {text}: the suite has no target of this name."))?;
        target.server = host.trim_matches(['[', ']']).to_owned();
        target.port = port;
        Ok(())
    }

    /// Returns true if its runs have several targets.
    pub fn has_several_targets(&self) -> bool {
        self.targets.len() > 1
    }

    /// Returns all runs in their order.
    pub fn runs(&self, scale: f64) -> Result<Vec<Run>, String> {
        let mut runs = Vec::new();
        for group in &self.group {
            for run in &group.run {
                let mut options = self.options.clone();
                options.extend(group.options.clone());
                options.extend(run.options.clone());
                let mut words = Vec::new();
                for (name, value) in options {
                    self.option(&name, &value, scale, &mut words)?;
                }
                for (option, text) in group
                    .command
                    .iter()
                    .map(|text| ("--command", text))
                    .chain(group.load.iter().map(|text| ("--load", text)))
                {
                    words.push(option.to_owned());
                    words.push(self.scaled(text, scale)?);
                }
                if let Some(target) = run.target.as_ref().or(group.target.as_ref()) {
                    self.target(target, &mut words)?;
                }
                runs.push(Run {
                    group: group.name.clone(),
                    name: run.name.clone(),
                    words,
                    published: run.published,
                });
            }
        }
        Ok(runs)
    }

    fn option(
        &self,
        name: &str,
        value: &Value,
        scale: f64,
        words: &mut Vec<String>,
    ) -> Result<(), String> {
        let text = match value {
            Value::Boolean(true) => {
                words.push(format!("--{name}"));
                return Ok(());
            }
            Value::Boolean(false) => return Ok(()),
            Value::String(text) => self.scaled(text, scale)?,
            Value::Integer(number) => number.to_string(),
            Value::Float(number) => number.to_string(),
            _ => {
                return Err(format!(
                    "the option {name} is no text, number or truth value"
                ));
            }
        };
        words.push(format!("--{name}={text}"));
        Ok(())
    }

    /// Inserts the scaled numbers.
    fn scaled(&self, text: &str, scale: f64) -> Result<String, String> {
        let mut out = String::new();
        let mut rest = text;
        while let Some(at) = rest.find('$') {
            out.push_str(&rest[..at]);
            let name_and_more = &rest[at + 1..];
            let end = name_and_more
                .find(|c: char| !c.is_ascii_alphanumeric() && c != '_')
                .unwrap_or(name_and_more.len());
            let name = &name_and_more[..end];
            let number = self.scaled.get(name);
            let number = number.ok_or_else(|| format!("${name} does not stand in [scaled]"))?;
            let number = (*number as f64 * scale).round().max(1.0);
            out.push_str(&format!("{number:.0}"));
            rest = &name_and_more[end..];
        }
        out.push_str(rest);
        Ok(out)
    }

    fn target(&self, name: &str, words: &mut Vec<String>) -> Result<(), String> {
        let find = |name: &str| {
            let found = self.targets.get(name);
            found.ok_or_else(|| format!("there is no target {name} in [targets]"))
        };
        let target = find(name)?;
        words.push(format!("--server={}", target.server));
        words.push(format!("--port={}", target.port));
        if let Some(behind) = &target.behind {
            let behind = find(behind)?;
            for (option, target) in [("proxy-pid", target), ("server-pid", behind)] {
                // A process that is not on this machine is not found, and its CPU is not reported.
                let address = Address::tcp(target.server.clone(), target.port);
                let mut endpoints = address.resolve().unwrap_or_default().into_iter();
                let pid = endpoints.find_map(|endpoint| process::listening_at(&endpoint).ok()?);
                words.extend(pid.map(|pid| format!("--{option}={pid}")));
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = r#"
        name = "x"
        title = "t"
        source = "s"
        [scaled]
        requests = 1000
        keys = 10
        [options]
        requests = "$requests"
        connections = 5
        window = true
        resp3 = false
        [targets]
        far = { server = "192.0.2.1", port = 1 }
        proxy = { server = "192.0.2.1", port = 2, behind = "far" }
        [[group]]
        name = "GET"
        command = ["GET key:{uniform:$keys|12}"]
        load = "SET key:{seq:$keys|12} {value}"
        [[group.run]]
        name = "small"
        options = { value-size = 16, connections = 7 }
        published = { rps = 5.5 }
        [[group.run]]
        name = "proxied"
        target = "proxy"
    "#;

    #[test]
    fn runs_are_words_of_the_command_line() {
        let runs = Suite::parse(TEXT).unwrap().runs(0.5).unwrap();
        assert_eq!(
            runs[0].words,
            [
                "--connections=7",
                "--requests=500",
                "--value-size=16",
                "--window",
                "--command",
                "GET key:{uniform:5|12}",
                "--load",
                "SET key:{seq:5|12} {value}",
            ]
        );
        assert_eq!(runs[0].published.rps, Some(5.5));
        assert_eq!(
            runs[1].words[runs[1].words.len() - 2..],
            ["--server=192.0.2.1", "--port=2"]
        );
        assert_eq!(runs[1].published, Published::default());
    }

    #[test]
    fn nothing_is_scaled_away() {
        let runs = Suite::parse(TEXT).unwrap().runs(0.000_001).unwrap();
        assert!(runs[0].words.contains(&"--requests=1".to_owned()));
    }

    #[test]
    fn targets_can_be_placed() {
        let mut suite = Suite::parse(TEXT).unwrap();
        suite.place("proxy=[::1]:99").unwrap();
        let words = &suite.runs(1.0).unwrap()[1].words;
        assert!(
            words.contains(&"--server=::1".to_owned()) && words.contains(&"--port=99".to_owned())
        );
        for wrong in ["proxy", "proxy=x", "proxy=x:y", "nobody=x:1"] {
            assert!(suite.place(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn faults_are_named() {
        for (from, to, words) in [
            ("connections = 5", "connections = [5]", "no text, number"),
            (
                "requests = \"$requests\"",
                "requests = \"$request\"",
                "$request does not stand",
            ),
            ("target = \"proxy\"", "target = \"pr\"", "no target pr"),
        ] {
            let suite = Suite::parse(&TEXT.replace(from, to)).unwrap();
            let error = suite.runs(1.0).unwrap_err();
            assert!(error.contains(words), "{error}");
        }
        assert!(
            Suite::parse(&TEXT.replace("rps", "qps"))
                .unwrap_err()
                .contains("qps")
        );
        assert!(Suite::parse("x").is_err());
    }
}
