//! Checks the command line of a run and turns it into an executable [`RunPlan`].
//!
//! Opens no socket. An error is one line that names the option.

use std::path::Path;
use std::time::Duration;

use redline_net::Address;
use redline_net::tls::{ClientTlsOptions, Peer, TlsOptions};

use super::arguments::{
    ContentKind, MannerArguments, OutputArguments, RunArguments, TargetArguments,
    WorkloadArguments, one_to_stdout,
};
use crate::load::cluster::source::{Reads, Source};
use crate::load::target::{self, Uri};
use crate::load::workload::keys::Shape;
use crate::load::workload::template::{Protocol, Template};
use crate::load::workload::values::{Content, Sizes};

/// A run that has been checked.
#[derive(Clone, Debug)]
pub struct RunPlan {
    /// The target.
    pub target: TargetPlan,
    /// Templates of the requests to send.
    pub templates: Vec<Template>,
    /// Their weights.
    pub weights: Vec<u64>,
    /// Sent once for each number of its range.
    pub load: Option<Template>,
    /// Kind of bytes in values.
    pub content: Content,
    /// Seed of random numbers.
    pub seed: Option<u64>,
    /// The manner of sending.
    pub manner: MannerArguments,
    /// Settings of the output.
    pub output: OutputArguments,
    /// The user's command that is run during the run.
    pub incident: Option<Incident>,
    /// Options without effect: a sentence for each.
    pub idle: Vec<String>,
}

/// A user's command that is run during a run.
#[derive(Clone, Debug)]
pub struct Incident {
    /// The command for the shell.
    pub command: String,
    /// Its time, from the start of the measured time.
    pub at: Duration,
}

/// Target of the load.
#[derive(Clone, Debug)]
pub struct TargetPlan {
    /// The servers, at least one; ignored if it is embedded. With Sentinels these are the Sentinels.
    pub servers: Vec<ServerPlan>,
    /// Source of the map, if requests have to follow the data.
    pub source: Option<Source>,
    /// The nodes for reads in a cluster.
    pub reads: Reads,
    /// The protocol.
    pub protocol: Protocol,
    /// A server is started in this process.
    pub embedded: bool,
    /// RESP3.
    pub resp3: bool,
    /// Settings of TLS.
    pub tls: Option<ClientTlsOptions>,
}

/// One server, and the credentials for it.
#[derive(Clone, Debug)]
pub struct ServerPlan {
    /// Its address.
    pub address: Address,
    /// Arguments of AUTH, or none.
    pub auth: Vec<Vec<u8>>,
    /// Database.
    pub db: i64,
}

/// Shortest piece of the series, which costs a histogram.
const INTERVAL_MIN: Duration = Duration::from_millis(1);
const DURATION_DEFAULT: Duration = Duration::from_secs(10);
/// Time-out of a reply if nothing else ends a run.
pub const SILENCE_MAX: Duration = Duration::from_secs(60);
const CONNECTIONS_MAX: usize = 1_000_000;
const PIPELINE_MAX: usize = 1_000_000;
const THREADS_MAX: usize = 500;
/// The highest rate, in requests per second.
pub const RATE_MAX: f64 = 1e9;
/// Defaults: sizes of values, share of one letter in compressible ones, and expected share of hits.
const VALUE_SIZE_DEFAULT: &str = "32";
const COMPRESSIBLE_DEFAULT: f64 = 0.5;
pub const HIT_RATE_MIN_DEFAULT: f64 = 0.9;
/// Largest number of numbers of a fill.
const LOAD_MAX: u64 = 100_000_000_000;

impl RunPlan {
    /// Returns the mean bytes of a request, without framing.
    pub fn mean_bytes(&self) -> f64 {
        let weighted = self.templates.iter().zip(&self.weights);
        let (mut bytes, mut requests) = (0.0, 0.0);
        for (template, &weight) in weighted {
            bytes += weight as f64 * template.mean_bytes();
            requests += weight as f64 * template.requests() as f64;
        }
        bytes / requests
    }
}

impl RunArguments {
    /// Checks the combinations that the parser cannot.
    pub fn plan(mut self) -> Result<RunPlan, String> {
        if self.scale != 1.0 {
            return Err("--scale is for suites.".into());
        }
        let (templates, load) = self.workload.templates(self.server.protocol)?;
        let weights = weights(&self.workload.ratio, templates.len())?;
        let content = self.workload.content()?;
        let idle = self.workload.idle(templates.iter().chain(&load));
        self.manner.check()?;
        let follows = self.server.cluster || !self.server.sentinel.is_empty();
        if follows && self.manner.reconnect_after.is_some() {
            return Err("--reconnect-after: not with --cluster or --sentinel.".into());
        }
        if self.manner.duration.is_none() && self.manner.requests.is_none() {
            self.manner.duration = Some(DURATION_DEFAULT);
        }
        self.output.check()?;
        Ok(RunPlan {
            target: self.server.plan()?,
            templates,
            weights,
            load,
            content,
            seed: self.workload.seed,
            manner: self.manner,
            output: self.output,
            incident: None,
            idle,
        })
    }
}

impl WorkloadArguments {
    /// Returns the commands, and the fill if there is one.
    fn templates(&self, protocol: Protocol) -> Result<(Vec<Template>, Option<Template>), String> {
        let sizes = self.value_size.as_deref().unwrap_or(VALUE_SIZE_DEFAULT);
        let sizes = Sizes::parse(sizes).map_err(|reason| format!("--value-size: {reason}"))?;
        let template = |option: &str, text: &String| {
            Template::parse(text, &sizes)
                .and_then(|template| template.check_for(protocol).map(|()| template))
                .map_err(|reason| format!("{option} \"{text}\": {reason}"))
        };
        let commands = self.command.iter().map(|text| template("--command", text));
        let commands: Vec<Template> = commands.collect::<Result<_, _>>()?;
        let load = self.load.as_ref().map(|text| template("--load", text));
        let load = load.transpose()?;
        if let Some(load) = &load {
            check_load(load)?;
        }
        Ok((commands, load))
    }

    fn content(&self) -> Result<Content, String> {
        let share = self.compressible.unwrap_or(COMPRESSIBLE_DEFAULT);
        if !(0.0..=1.0).contains(&share) {
            return Err("--compressible is a share, 0 to 1.".into());
        }
        Ok(match self.value_content {
            None | Some(ContentKind::Random) => Content::Random,
            Some(ContentKind::Fixed) => Content::Fixed,
            Some(ContentKind::Compressible) => Content::Compressible(share),
        })
    }

    /// Returns the options of values that no template uses.
    fn idle<'t>(&self, templates: impl Iterator<Item = &'t Template> + Clone) -> Vec<String> {
        let is_compressible = self.value_content == Some(ContentKind::Compressible);
        let has = |of_usual_size| templates.clone().any(|one| one.has_value(of_usual_size));
        let said = [
            (
                self.value_size.is_some() && !has(true),
                "--value-size has no effect: no command has a {value} without sizes of its own.",
            ),
            (
                self.value_content.is_some() && !has(false),
                "--value-content has no effect: no command has a {value}.",
            ),
            (
                self.compressible.is_some() && !is_compressible,
                "--compressible has no effect without --value-content compressible.",
            ),
        ];
        let in_vain = said.into_iter().filter(|(is_in_vain, _)| *is_in_vain);
        in_vain.map(|(_, text)| text.to_owned()).collect()
    }
}

impl OutputArguments {
    fn check(&self) -> Result<(), String> {
        one_to_stdout([self.json.as_ref(), self.csv.as_ref(), self.html.as_ref()])?;
        if self.live && self.takes_stdout() {
            return Err("--live draws on standard output: nothing else can go there (-).".into());
        }
        if self.hdr.as_deref() == Some(Path::new("-")) {
            return Err("--hdr writes to a file, not to standard output (-).".into());
        }
        if self
            .link_mbit
            .is_some_and(|mbit| !(mbit > 0.0 && mbit.is_finite()))
        {
            return Err("--link-mbit is more than 0 Mbit/s.".into());
        }
        if self.interval < INTERVAL_MIN {
            return Err("--interval is at least 0.001 seconds.".into());
        }
        Ok(())
    }
}

/// Checks that a fill has one sequence.
fn check_load(load: &Template) -> Result<(), String> {
    let sequences: Vec<_> = load
        .numbers()
        .iter()
        .filter(|number| number.shape == Shape::Sequential)
        .collect();
    match sequences.as_slice() {
        [one] if one.count <= LOAD_MAX => Ok(()),
        [_] => Err(format!("--load: more than {LOAD_MAX} keys.")),
        _ => Err("--load: it needs one {seq:N}, which is what is filled.".into()),
    }
}

fn weights(ratio: &[u32], commands: usize) -> Result<Vec<u64>, String> {
    if ratio.is_empty() {
        return Ok(vec![1; commands]);
    }
    if ratio.len() != commands {
        return Err(format!(
            "There are {} weights (--ratio) for {commands} commands (--command).",
            ratio.len()
        ));
    }
    if ratio.contains(&0) {
        return Err(
            "A weight (--ratio) is at least 1: a command that never comes is left out.".into(),
        );
    }
    Ok(ratio.iter().map(|&weight| weight.into()).collect())
}

impl MannerArguments {
    /// Returns the time-out of a request. If only replies end a run, it is limited.
    pub fn patience(&self) -> Option<Duration> {
        let endless = self.duration.is_none().then_some(SILENCE_MAX);
        self.timeout.or(endless)
    }

    /// Returns true if the share of hits is low enough for a warning.
    pub fn misses_many(&self, hit_rate: f64) -> bool {
        hit_rate < self.hit_rate_min.unwrap_or(HIT_RATE_MIN_DEFAULT)
    }

    fn check(&self) -> Result<(), String> {
        let within = |name: &str, value: usize, max: usize| {
            let fits = (1..=max).contains(&value);
            fits.then_some(())
                .ok_or_else(|| format!("--{name} is 1 to {max}."))
        };
        within("connections", self.connections, CONNECTIONS_MAX)?;
        within("pipeline", self.pipeline, PIPELINE_MAX)?;
        within("threads", self.threads, THREADS_MAX)?;
        if self
            .rps
            .is_some_and(|rate| !(rate > 0.0 && rate <= RATE_MAX))
        {
            return Err(format!(
                "--rps is more than 0 requests a second, and at most {RATE_MAX}."
            ));
        }
        if self.duration.is_some_and(|duration| duration.is_zero()) {
            return Err("--duration is more than 0 seconds.".into());
        }
        if self.timeout.is_some_and(|timeout| timeout.is_zero()) {
            return Err("--timeout is more than 0 seconds.".into());
        }
        if self.reconnect_after == Some(0) {
            return Err("--reconnect-after is at least 1.".into());
        }
        if self
            .hit_rate_min
            .is_some_and(|share| !(0.0..=1.0).contains(&share))
        {
            return Err("--hit-rate-min is a share, 0 to 1.".into());
        }
        Ok(())
    }
}

impl TargetArguments {
    pub(crate) fn plan(self) -> Result<TargetPlan, String> {
        let mut tls = self.tls;
        let mut servers = Vec::new();
        let mut sentinel_auth = Vec::new();
        let option = match self.sentinel.is_empty() {
            true => "--endpoint",
            false => "--sentinel",
        };
        for place in self.endpoint.iter().chain(&self.sentinel) {
            let (mut server, with_tls) = self.place(option, place)?;
            if !self.sentinel.is_empty() {
                // Credentials in its URI are the Sentinel's own.
                let data = self.server_at(server.address.clone());
                let is_of_uri = place.contains("://") && place.contains('@');
                sentinel_auth.push(if is_of_uri { server.auth } else { Vec::new() });
                if server.db != data.db {
                    return Err(format!(
                        "--sentinel \"{place}\": a Sentinel has no databases; --db is the servers'."
                    ));
                }
                server = data;
            }
            if !servers.is_empty() && with_tls != tls {
                return Err(format!("{option}: all of them with TLS, or none."));
            }
            tls = with_tls;
            servers.push(server);
        }
        if servers.is_empty() {
            let (server, with_tls) = match (&self.uri, &self.unix_socket) {
                (Some(uri), _) => self.place("--uri", uri)?,
                (_, Some(path)) => (self.server_at(Address::unix(path)), tls),
                _ => (
                    self.server_at(Address::tcp(without_brackets(&self.server), self.port)),
                    tls,
                ),
            };
            tls = with_tls;
            servers.push(server);
        }
        let redis_only = self.cluster
            || !self.sentinel.is_empty()
            || self.resp3
            || servers.iter().any(|s| s.db != 0 || !s.auth.is_empty());
        if self.protocol != Protocol::Resp && redis_only {
            return Err(
                "--protocol memcache_text: without users, databases, RESP3, Sentinels and clusters.".into(),
            );
        }
        if self.cluster && servers.iter().any(|server| server.db != 0) {
            return Err("--cluster: a Redis Cluster has database 0 only.".into());
        }
        let places: Vec<Address> = servers
            .iter()
            .map(|server| server.address.clone())
            .collect();
        let source = if self.cluster {
            Some(Source::Cluster)
        } else if self.sentinel.is_empty() {
            None
        } else {
            Some(Source::Sentinels {
                name: self.primary_name.clone(),
                at: places,
                auth: sentinel_auth,
            })
        };
        let reads = self.reads;
        let files = [&self.cacert, &self.cert, &self.key, &self.sni];
        if !tls && (self.insecure || files.iter().any(|file| file.is_some())) {
            return Err("--cacert, --cert, --key, --sni and --insecure are about TLS: say --tls, or rediss://.".into());
        }
        let tls = tls.then(|| ClientTlsOptions {
            common: TlsOptions {
                ca_cert_file: self.cacert,
                cert_file: self.cert,
                key_file: self.key,
                ..TlsOptions::default()
            },
            server_name: self.sni,
            peer: if self.insecure {
                Peer::Anyone
            } else {
                Peer::Trusted
            },
        });
        Ok(TargetPlan {
            servers,
            source,
            reads,
            protocol: self.protocol,
            embedded: self.embedded,
            resp3: self.resp3,
            tls,
        })
    }

    /// Returns a server with the common credentials.
    fn server_at(&self, address: Address) -> ServerPlan {
        let bytes = |text: &Option<String>| text.clone().map(String::into_bytes);
        let (user, password) = (bytes(&self.user), bytes(&self.password));
        ServerPlan {
            address,
            auth: target::auth(user.as_deref(), password.as_deref()),
            db: self.db.unwrap_or(0).into(),
        }
    }

    /// Returns a server as an option (`--endpoint`, `--sentinel`, `--uri`) names it, and whether it uses TLS.
    fn place(&self, option: &str, text: &str) -> Result<(ServerPlan, bool), String> {
        // --uri is a URI even if it does not look like one; the parser reports the error.
        if self.uri.is_none() && !text.contains("://") {
            if text.starts_with(['/', '.']) {
                return Ok((self.server_at(Address::unix(text)), self.tls));
            }
            let wrong = || format!("{option} \"{text}\": not HOST:PORT, a path or a URI.");
            let (host, port) = text.rsplit_once(':').ok_or_else(wrong)?;
            let host = without_brackets(host);
            let port = port.parse().map_err(|_| wrong())?;
            return Ok((self.server_at(Address::tcp(host, port)), self.tls));
        }
        let uri = Uri::parse(text)?;
        if self.uri.is_some() && uri.password.is_some() && self.password.is_some() {
            return Err("--uri has a password, and --password is another.".into());
        }
        if self.uri.is_some() && uri.db.is_some() && self.db.is_some() {
            return Err("--uri has a database, and --db is another.".into());
        }
        if !uri.path.is_empty() && uri.path.parse::<u32>().is_err() {
            return Err(format!(
                "{option} \"{text}\": /{} is no database.",
                uri.path
            ));
        }
        let port = u16::try_from(uri.port.unwrap_or(6379));
        let port = port.map_err(|_| "Invalid server port.")?;
        let host = uri.host.unwrap_or_else(|| "127.0.0.1".into());
        let mut server = self.server_at(Address::tcp(host, port));
        if uri.password.is_some() {
            let user = uri.user.or(self.user.clone().map(String::into_bytes));
            server.auth = target::auth(user.as_deref(), uri.password.as_deref());
        }
        server.db = uri.db.unwrap_or(server.db);
        Ok((server, self.tls || uri.tls))
    }
}

/// Returns an IPv6 address without the brackets of the form with a port.
fn without_brackets(host: &str) -> &str {
    let inside = host
        .strip_prefix('[')
        .and_then(|host| host.strip_suffix(']'));
    inside.unwrap_or(host)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn plan(line: &[&str]) -> Result<RunPlan, String> {
        match RunArguments::parse_words(line.iter().copied()) {
            Ok(run) => run.plan(),
            Err(error) => Err(error.to_string()),
        }
    }

    #[test]
    fn two_outputs_cannot_share_standard_output() {
        let both = plan(&["--command", "GET a", "--json", "-", "--html", "-"]);
        assert!(both.unwrap_err().starts_with("Only one of --json"));
        assert!(plan(&["--command", "GET a", "--json", "-", "--html", "x"]).is_ok());
    }

    #[test]
    fn weights_belong_to_commands_in_their_order() {
        let two = [
            "--command",
            "GET a",
            "--ratio",
            "9",
            "--command",
            "SET a b",
            "--ratio",
            "1",
        ];
        assert_eq!(plan(&two).unwrap().weights, [9, 1]);
        let colon = [
            "--command",
            "GET a",
            "--command",
            "SET a b",
            "--ratio",
            "3:4",
        ];
        assert_eq!(plan(&colon).unwrap().weights, [3, 4]);
        assert_eq!(plan(&["--command", "PING"]).unwrap().weights, [1]);
        let wrong = plan(&["--command", "PING", "--ratio", "1:2"]).unwrap_err();
        assert!(wrong.contains("2 weights"), "{wrong}");
    }

    #[test]
    fn a_run_lasts_ten_seconds_unless_it_is_told_otherwise() {
        let of = |line: &[&str]| {
            let line = [&["--command", "PING"], line].concat();
            plan(&line).unwrap().manner.duration
        };
        assert_eq!(of(&[]), Some(Duration::from_secs(10)));
        assert_eq!(of(&["-n", "5"]), None);
        assert_eq!(
            of(&["--duration", "0.25"]),
            Some(Duration::from_millis(250))
        );
        let patience = |line: &[&str]| {
            let line = [&["--command", "PING"], line].concat();
            plan(&line).unwrap().manner.patience()
        };
        assert_eq!(patience(&[]), None);
        assert_eq!(patience(&["-n", "5"]), Some(SILENCE_MAX));
        assert_eq!(
            patience(&["-n", "5", "--timeout", "90"]),
            Some(Duration::from_secs(90))
        );
    }

    #[test]
    fn what_cannot_be_run_is_refused_in_words() {
        for (line, words) in [
            (
                &["--command", "GET {x}"][..],
                "--command \"GET {x}\": {x}: there is no such placeholder",
            ),
            (&["--command", "PING", "--load", "SET a b"], "one {seq:N}"),
            (
                &["--command", "PING", "--load", "SET {seq:5} {seq:5}"],
                "one {seq:N}",
            ),
            (&["--command", "PING", "-d", "x"], "--value-size"),
            (&["--command", "PING", "-c", "0"], "--connections is 1 to"),
            (&["--command", "PING", "--rps", "0"], "--rps"),
            (&["--command", "PING", "--rps", "nan"], "--rps"),
            (&["--command", "PING", "--duration=-1"], "span of time"),
            (&["--command", "PING", "--interval=0"], "0.001"),
            (&["--command", "PING", "--user", "bob"], "--password"),
            (&["--command", "PING", "--rps", "-1"], "--rps is more than"),
            (&["--command", "PING", "--warmup", "-1"], "span of time"),
            (&["--command", "PING", "--link-mbit", "0"], "--link-mbit"),
            (&["--command", "PING", "--hdr", "-"], "--hdr"),
            (&["--command", "PING", "--cacert", "f"], "say --tls"),
            (&["--command", "PING", "--scale", "2"], "for suites"),
            (&["--command", "PING", "--compressible", "2"], "a share"),
            (&["--command", "PING", "--window", "--rps", "5"], "--window"),
            (
                &["--command", "PING", "--tls", "--insecure", "--cacert", "f"],
                "--cacert",
            ),
            (
                &["--command", "PING", "-u", "redis://:p@h", "-a", "q"],
                "--uri has a password",
            ),
            (
                &["--command", "PING", "-u", "redis://h/1", "--db", "2"],
                "--uri has a database",
            ),
            (
                &["--command", "PING", "-u", "redis://h/x"],
                "/x is no database",
            ),
            (
                &["--command", "PING", "-u", "http://x"],
                "Invalid URI scheme",
            ),
            (&[], "--command"),
        ] {
            let error = plan(line).unwrap_err();
            assert!(error.contains(words), "{line:?}: {error}");
        }
    }

    #[test]
    fn what_is_said_in_vain_is_known() {
        for (line, options) in [
            (&["GET a", "-d", "5"][..], &["--value-size"][..]),
            (&["SET a {value:7}", "-d", "5"], &["--value-size"]),
            (&["SET a {value}", "-d", "5"], &[]),
            (&["GET a", "-d", "5", "--load", "SET {seq:9} {value}"], &[]),
            (&["GET a", "--value-content", "fixed"], &["--value-content"]),
            (&["SET a {value:7}", "--value-content", "fixed"], &[]),
            (
                &["SET a {value}", "--compressible", "0.1"],
                &["--compressible"],
            ),
        ] {
            let idle = plan(&[&["--command"], line].concat()).unwrap().idle;
            let named: Vec<&str> = idle
                .iter()
                .filter_map(|text| text.split(' ').next())
                .collect();
            assert_eq!(named, options, "{line:?}");
        }
    }

    #[test]
    fn a_staircase_needs_an_objective() {
        let line = ["--command", "GET a", "--stairs", "100:2"];
        assert!(plan(&line).unwrap_err().contains("--objective"));
        let both = [&line[..], &["--objective", "p99=1ms"]].concat();
        assert!(plan(&both).is_ok());
        let rate = [&both[..], &["--rps", "5"]].concat();
        assert!(plan(&rate).unwrap_err().contains("--rps"));
    }

    #[test]
    fn memcached_is_asked_for_nothing_that_it_has_not() {
        let line = ["--protocol", "memcache_text", "--command", "GET a"];
        assert_eq!(plan(&line).unwrap().target.protocol, Protocol::MemcacheText);
        for more in [&["-a", "p"][..], &["--db", "1"], &["-3"], &["--cluster"]] {
            let error = plan(&[&line[..], more].concat()).unwrap_err();
            assert!(error.contains("memcache_text"), "{error}");
        }
        let command = ["--command", "GET {value}"];
        assert!(
            plan(&[&line[..2], &command].concat())
                .unwrap_err()
                .contains("stored")
        );
    }

    #[test]
    fn a_uri_says_everything_about_the_target() {
        let line = ["--command", "PING", "-u", "rediss://bob:p%20w@cache:7000/3"];
        let target = plan(&line).unwrap().target;
        let server = &target.servers[0];
        assert_eq!(server.address, Address::tcp("cache", 7000));
        assert_eq!(
            server.auth,
            [b"AUTH".to_vec(), b"bob".to_vec(), b"p w".to_vec()]
        );
        assert_eq!(server.db, 3);
        assert!(target.tls.is_some());
    }

    #[test]
    fn an_ipv6_address_may_stand_in_brackets() {
        let target = plan(&["--command", "PING", "-s", "[::1]"]).unwrap().target;
        assert_eq!(target.servers[0].address, Address::tcp("::1", 6379));
    }

    #[test]
    fn endpoints_are_places_paths_and_uris() {
        let line = ["--command", "PING", "-a", "all", "--endpoint", "h:1"];
        let more = [
            "--endpoint",
            "/tmp/s",
            "--endpoint",
            "redis://:own@[::1]:7/2",
        ];
        let servers = plan(&[&line[..], &more[..]].concat())
            .unwrap()
            .target
            .servers;
        let places: Vec<String> = servers.iter().map(|s| s.address.to_string()).collect();
        assert_eq!(places, ["h:1", "/tmp/s", "[::1]:7"]);
        assert_eq!(servers[1].auth[1], b"all");
        assert_eq!(servers[2].auth[1], b"own");
        assert_eq!((servers[0].db, servers[2].db), (0, 2));
        let mixed = [&line[..], &["--endpoint", "rediss://h:2"]].concat();
        assert!(plan(&mixed).unwrap_err().contains("all of them with TLS"));
        for wrong in ["h", "h:x", "h:70000"] {
            let line = ["--command", "PING", "--endpoint", wrong];
            assert!(plan(&line).unwrap_err().contains("HOST:PORT"), "{wrong}");
        }
        let sentinel = plan(&["--command", "PING", "--sentinel", "h"]).unwrap_err();
        assert!(sentinel.starts_with("--sentinel \"h\": "), "{sentinel}");
        let db = ["--command", "PING", "--cluster", "--db", "1"];
        assert!(plan(&db).unwrap_err().contains("database 0"));
    }
}
