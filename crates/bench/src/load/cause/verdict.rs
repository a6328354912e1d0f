//! The verdict: the bottleneck, its certainty, and the evidence.
//!
//! A pure function of measurements: no clock, no file, no socket.
//!
//! # The rules
//!
//! The bottleneck is the party whose threads never sleep. A thread is *busy* while it runs and while it waits for a CPU;
//! each party is judged by its busiest thread, since a server with one thread is full when that one is, even if the
//! machine is not. The rules, in order:
//!
//! 0. So little was measured that shares of it mean nothing: undecided.
//! 1. A rate was requested and reached: the rate is the limit, no party.
//! 2. One party is full and the others are not: it is that one. A server's time is then split: with at least half of
//!    it in the kernel, system calls are the limit, and fewer of them (pipelining, or a proxy that merges the requests of
//!    many clients into one write) would help; otherwise the commands themselves are.
//! 3. Several are full. Being busy is then no sign of being the limit: a generator that reads each reply as it arrives
//!    is busy as well, only with calls that would be fewer with more work. But a party that waits for another sleeps in
//!    between, if only for microseconds, and the limit does not: there is always work queued for it. So it is the one that
//!    sleeps rarely while all the others sleep often.
//! 4. If that decides nothing, the one that is clearly fuller, with low certainty, or none. If they had to wait for
//!    CPUs, the machine is too small for all of them, and none of them is the bottleneck.
//! 5. No party is full, and the transferred bytes are near the link's bandwidth: the bandwidth.
//! 6. Otherwise it is undecided. In a closed loop that is the usual case with few connections: the parties wait for each
//!    other.

use serde::{Deserialize, Serialize};

/// The bottleneck of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Bottleneck {
    /// The load generator: the figure is not the server's.
    Client,
    /// The server, mostly in its own code.
    ServerUser,
    /// The server, mostly in the kernel.
    ServerKernel,
    /// The proxy in front of it.
    Proxy,
    /// The network's bandwidth.
    Bandwidth,
    /// The requested rate.
    Rate,
    /// Not known.
    Undecided,
}

/// The certainty of a verdict.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Certainty {
    /// No evidence against it.
    High,
    /// Another party is close.
    Medium,
    /// Another party is as likely.
    Low,
}

/// The verdict on a run.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Verdict {
    /// The bottleneck.
    pub bottleneck: Bottleneck,
    /// Its certainty.
    pub certainty: Certainty,
    /// One sentence for the user.
    pub text: String,
    /// The supporting measurements.
    pub evidence: Vec<String>,
    /// Advice on what to try.
    pub advice: Option<String>,
}

/// Resources that one party used, as shares of the measured time.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Load {
    /// Its busiest thread: running or waiting for a CPU, 0 to 1.
    pub busiest: f64,
    /// Part of that waiting for a CPU, 0 to 1.
    pub waiting: f64,
    /// CPUs used by all of its threads, in user mode: 1.0 is one CPU.
    pub user: f64,
    /// CPUs used by all of its threads, in the kernel.
    pub system: f64,
    /// Sleeps per second of its busiest thread without work; `None` if not known.
    pub sleeps_per_second: Option<f64>,
}

/// The inputs of a verdict.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Measurements {
    /// Requested rate per second, in an open loop.
    pub offered: Option<f64>,
    /// Answered requests per second.
    pub achieved: f64,
    /// The generator.
    pub client: Load,
    /// The server, or the busiest of several; `None` if not known.
    pub server: Option<Load>,
    /// The reason why it is not known.
    pub server_unknown: Option<&'static str>,
    /// The proxy, if one was named.
    pub proxy: Option<Load>,
    /// Bytes per second, in the fuller direction.
    pub bytes_per_second: f64,
    /// Bandwidth of the link in bytes per second, if known.
    pub link_bytes_per_second: Option<f64>,
    /// Share of all CPUs' time that the host of a virtual machine took away, 0 to 1.
    pub stolen: f64,
    /// The run ended before CPU times could be read twice at meaningful times.
    pub too_short: bool,
}

/// Share of its busiest thread from which a party is full.
const FULL: f64 = 0.9;
/// Smallest difference of two parties' shares.
const APART: f64 = 0.05;
/// Share below which a party is far from full.
const FAR_FROM_FULL: f64 = 0.75;
/// Sleeps per second from which a party waits for another party.
const OFTEN: f64 = 500.0;
/// Smallest ratio of two parties' sleeps.
const RARER: f64 = 5.0;
/// Share of a rate from which it counts as reached.
pub(crate) const REACHED: f64 = 0.98;
/// Share of kernel time from which a server is bound by the kernel.
const KERNEL: f64 = 0.5;
/// Share of a link's bandwidth from which it is full: the rest is headers.
const LINK_FULL: f64 = 0.85;
/// Share of time waiting for a CPU from which there are too few.
const CROWDED: f64 = 0.2;
/// Smallest stolen share that is reported.
const STOLEN: f64 = 0.02;

impl Measurements {
    /// Returns the verdict.
    pub fn verdict(&self) -> Verdict {
        let evidence = self.evidence();
        let (bottleneck, certainty) = self.judge();
        let (mut text, advice) = self.words(bottleneck);
        // It could not do more, and would have with a CPU of its own.
        let mut parties = self.parties().into_iter();
        let limit = parties.find(|&(_, who)| who == bottleneck);
        if let Some((load, _)) = limit.filter(|(load, _)| load.waiting >= CROWDED) {
            text += &format!(
                " It waited for a CPU for {:.0} % of the time, though: with more CPUs, or without other programs, it does more.",
                100.0 * load.waiting
            );
        }
        Verdict {
            bottleneck,
            certainty,
            text,
            evidence,
            advice,
        }
    }

    fn judge(&self) -> (Bottleneck, Certainty) {
        if self.too_short {
            return (Bottleneck::Undecided, Certainty::Low);
        }
        if let Some(offered) = self.offered
            && self.achieved >= offered * REACHED
        {
            return (Bottleneck::Rate, Certainty::High);
        }
        let mut parties = self.parties();
        parties.sort_by(|(a, _), (b, _)| b.busiest.total_cmp(&a.busiest));
        let (fullest, who) = (parties[0].0.busiest, parties[0].1);
        let next = parties.get(1).map_or(0.0, |(load, _)| load.busiest);
        if fullest < FULL {
            return match self.link_bytes_per_second {
                Some(link) if self.bytes_per_second >= link * LINK_FULL => {
                    (Bottleneck::Bandwidth, Certainty::High)
                }
                _ => (Bottleneck::Undecided, Certainty::Low),
            };
        }
        let starved = parties[0].0.waiting >= CROWDED;
        // An unknown server may have been as busy, and a party that waits for a CPU may have little to do.
        let certainty = if self.server.is_none() || (starved && next < FULL) {
            Certainty::Low
        } else if next < FAR_FROM_FULL {
            Certainty::High
        } else if next < FULL {
            Certainty::Medium
        } else if let Some((load, who)) = sleepless(&parties) {
            let alone = load.waiting < CROWDED;
            let certainty = if alone {
                Certainty::Medium
            } else {
                Certainty::Low
            };
            return (who, certainty);
        } else if fullest - next >= APART && !self.is_crowded() {
            Certainty::Low
        } else {
            return (Bottleneck::Undecided, Certainty::Low);
        };
        (who, certainty)
    }

    /// Returns the parties, each with its bottleneck.
    fn parties(&self) -> Vec<(&Load, Bottleneck)> {
        let server = self.server.iter();
        let proxy = self.proxy.iter();
        std::iter::once((&self.client, Bottleneck::Client))
            .chain(server.map(|server| (server, server_side(server))))
            .chain(proxy.map(|proxy| (proxy, Bottleneck::Proxy)))
            .collect()
    }

    /// Returns true if there were too few CPUs: a runnable party had to wait for one.
    fn is_crowded(&self) -> bool {
        let mut parties = self.parties().into_iter();
        parties.any(|(party, _)| party.waiting >= CROWDED)
    }

    /// Returns the names of the parties that were busy all the time.
    fn full(&self) -> Vec<&'static str> {
        let full = self.parties().into_iter();
        full.filter(|(party, _)| party.busiest >= FULL)
            .map(|(_, who)| match who {
                Bottleneck::Client => "the load generator",
                Bottleneck::Proxy => "the proxy",
                _ => "the server",
            })
            .collect()
    }

    fn words(&self, bottleneck: Bottleneck) -> (String, Option<String>) {
        let (text, advice) = match bottleneck {
            Bottleneck::Client => (
                "The load generator was the limit: this number is not the server's.",
                Some("Give it more threads (--threads), or load from several machines."),
            ),
            Bottleneck::ServerUser => (
                "The server was the limit, in its own code: the commands cost what they cost.",
                None,
            ),
            Bottleneck::ServerKernel => (
                "The server was the limit, and most of its time went into the kernel: system calls, not commands.",
                Some(
                    "Fewer system calls would help: pipelining, or a proxy that merges the requests of many clients.",
                ),
            ),
            Bottleneck::Proxy => ("The proxy was the limit, not the server behind it.", None),
            Bottleneck::Bandwidth => (
                "The network's bandwidth was the limit: neither side was busy.",
                None,
            ),
            Bottleneck::Rate => (
                "The rate that was asked for was the limit: everybody could have done more.",
                None,
            ),
            Bottleneck::Undecided if self.too_short => (
                "Undecided: too little was measured.",
                Some("More requests (-n), or a time (--duration), would show who is the limit."),
            ),
            Bottleneck::Undecided if self.is_crowded() => (
                "Undecided: there are fewer CPUs than busy threads, of these or of other programs.",
                Some("Run the generator on another machine, or bind both to CPUs of their own."),
            ),
            Bottleneck::Undecided if self.full().len() > 1 => {
                let text = format!(
                    "Undecided: {} were busy all the time, and none of them waited for another.",
                    self.full().join(" and ")
                );
                let advice = "More threads (--threads), or a generator on another machine, would show what the server \
                              can do.";
                return (text, Some(advice.to_owned()));
            }
            Bottleneck::Undecided if self.server.is_none() => (
                "Undecided: the load generator had time to spare, and nothing is known of the server.",
                Some("Name the server's process with --server-pid if it runs on this machine."),
            ),
            Bottleneck::Undecided if self.offered.is_some() => (
                "Undecided: the rate was not reached, although nobody was busy all the time.",
                Some("More connections, or a deeper pipeline, may reach it."),
            ),
            Bottleneck::Undecided => (
                "Undecided: nobody was busy all the time; each waited for the other.",
                Some("More connections, or pipelining, would show who is the limit."),
            ),
        };
        (text.to_owned(), advice.map(str::to_owned))
    }

    fn evidence(&self) -> Vec<String> {
        let mut evidence = Vec::new();
        if let Some(offered) = self.offered {
            evidence.push(format!(
                "{:.1} % of the offered rate was achieved ({:.0} of {offered:.0} requests/s)",
                100.0 * self.achieved / offered,
                self.achieved
            ));
        }
        let parties = [
            ("generator", Some(&self.client)),
            ("server", self.server.as_ref()),
            ("proxy", self.proxy.as_ref()),
        ];
        for (name, party) in parties {
            let Some(party) = party else { continue };
            let mut line = format!(
                "{name}: busiest thread {:.0} % busy; user {:.2}, kernel {:.2} CPUs",
                100.0 * party.busiest,
                party.user,
                party.system
            );
            if party.waiting >= CROWDED / 4.0 {
                line += &format!(
                    "; {:.0} % of the time it waited for a CPU",
                    100.0 * party.waiting
                );
            }
            if let Some(sleeps) = party.sleeps_per_second {
                line += &format!("; it slept {sleeps:.0} times a second");
            }
            evidence.push(line);
        }
        if self.server.is_none() {
            let why = self.server_unknown.map(|why| format!(": {why}"));
            evidence.push(format!("server: nothing known{}", why.unwrap_or_default()));
        }
        if let Some(link) = self.link_bytes_per_second {
            evidence.push(format!(
                "link: {:.0} % of {:.0} Mbit/s used",
                100.0 * self.bytes_per_second / link,
                link * 8.0 / 1e6
            ));
        }
        if self.stolen >= STOLEN {
            evidence.push(format!(
                "{:.0} % of the CPUs' time was taken by the virtual machine's host",
                100.0 * self.stolen
            ));
        }
        evidence
    }
}

/// Returns the one of several full parties that never sleeps while all the others sleep in between.
fn sleepless<'a>(parties: &[(&'a Load, Bottleneck)]) -> Option<(&'a Load, Bottleneck)> {
    let full = parties.iter().filter(|(load, _)| load.busiest >= FULL);
    let mut full = full
        .map(|&(load, who)| Some((load.sleeps_per_second?, load, who)))
        .collect::<Option<Vec<_>>>()?;
    full.sort_by(|a, b| a.0.total_cmp(&b.0));
    match full.as_slice() {
        &[(rarest, load, who), (next, ..), ..] => {
            (next >= OFTEN && next >= RARER * rarest).then_some((load, who))
        }
        _ => None,
    }
}

fn server_side(server: &Load) -> Bottleneck {
    let total = server.user + server.system;
    if total > 0.0 && server.system / total >= KERNEL {
        Bottleneck::ServerKernel
    } else {
        Bottleneck::ServerUser
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn load(busiest: f64, user: f64, system: f64) -> Load {
        Load {
            busiest,
            waiting: 0.0,
            user,
            system,
            sleeps_per_second: None,
        }
    }

    fn closed(client: Load, server: Load) -> Measurements {
        Measurements {
            achieved: 1000.0,
            client,
            server: Some(server),
            ..Measurements::default()
        }
    }

    fn judged(measurements: &Measurements) -> (Bottleneck, Certainty) {
        let verdict = measurements.verdict();
        assert!(!verdict.text.is_empty() && !verdict.evidence.is_empty());
        (verdict.bottleneck, verdict.certainty)
    }

    #[test]
    fn the_party_that_never_sleeps_is_the_limit() {
        use Bottleneck::{Client, Proxy, ServerKernel, ServerUser, Undecided};
        use Certainty::{High, Low, Medium};
        for (client, server, expected) in [
            (load(0.99, 0.8, 0.19), load(0.5, 0.3, 0.2), (Client, High)),
            (load(0.99, 0.8, 0.19), load(0.8, 0.3, 0.5), (Client, Medium)),
            (load(0.4, 0.2, 0.2), load(1.0, 0.8, 0.2), (ServerUser, High)),
            (
                load(0.4, 0.2, 0.2),
                load(1.0, 0.3, 0.7),
                (ServerKernel, High),
            ),
            (
                load(0.85, 0.2, 0.6),
                load(1.0, 0.3, 0.7),
                (ServerKernel, Medium),
            ),
            (
                load(0.92, 0.2, 0.7),
                load(0.99, 0.3, 0.7),
                (ServerKernel, Low),
            ),
            (load(0.97, 0.2, 0.7), load(0.99, 0.3, 0.7), (Undecided, Low)),
            (load(0.3, 0.1, 0.2), load(0.4, 0.3, 0.1), (Undecided, Low)),
        ] {
            let measurements = closed(client, server);
            assert_eq!(judged(&measurements), expected, "{measurements:?}");
        }
        let mut proxied = closed(load(0.3, 0.1, 0.2), load(0.5, 0.2, 0.3));
        proxied.proxy = Some(load(0.98, 0.5, 0.48));
        assert_eq!(judged(&proxied), (Proxy, High));
    }

    #[test]
    fn who_waits_for_a_cpu_is_named_with_that() {
        let mut starved = load(0.95, 0.1, 0.3);
        starved.waiting = 0.55;
        let verdict = closed(load(0.5, 0.3, 0.2), starved.clone()).verdict();
        assert_eq!(
            (verdict.bottleneck, verdict.certainty),
            (Bottleneck::ServerKernel, Certainty::Low)
        );
        assert!(verdict.text.contains("CPU for 55 %"), "{}", verdict.text);
        let verdict = closed(load(0.5, 0.3, 0.2), load(0.95, 0.2, 0.7)).verdict();
        assert!(!verdict.text.contains("waited"), "{}", verdict.text);
        // Beside another full one, it is not the bottleneck.
        let both = closed(load(0.93, 0.5, 0.4), starved).verdict();
        assert_eq!(both.bottleneck, Bottleneck::Undecided);
    }

    #[test]
    fn a_rate_that_was_reached_is_the_limit_however_busy_the_others_are() {
        let mut measurements = closed(load(0.95, 0.5, 0.4), load(0.5, 0.3, 0.2));
        measurements.offered = Some(1000.0);
        assert_eq!(judged(&measurements).0, Bottleneck::Rate);
        measurements.offered = Some(1100.0);
        assert_eq!(judged(&measurements).0, Bottleneck::Client);
        measurements.client.busiest = 0.2;
        let verdict = measurements.verdict();
        assert_eq!(verdict.bottleneck, Bottleneck::Undecided);
        assert!(verdict.text.contains("rate was not reached"));
    }

    #[test]
    fn parties_that_wait_for_the_same_cpus_are_not_blamed() {
        let crowded = |busiest| Load {
            busiest,
            waiting: 0.5,
            user: 0.3,
            system: 0.2,
            sleeps_per_second: Some(100.0),
        };
        // The second: other processes use the CPUs, so no party can be busy.
        for (client, server) in [(1.0, 0.93), (0.6, 0.85)] {
            let verdict = closed(crowded(client), crowded(server)).verdict();
            assert_eq!(verdict.bottleneck, Bottleneck::Undecided);
            assert!(verdict.text.contains("fewer CPUs"), "{}", verdict.text);
        }
    }

    #[test]
    fn of_two_that_are_busy_the_one_that_never_sleeps_is_the_limit() {
        let busy = |sleeps| Load {
            sleeps_per_second: Some(sleeps),
            ..load(0.98, 0.3, 0.68)
        };
        for (client, server, expected) in [
            (20_000.0, 3.0, Bottleneck::ServerKernel),
            (3.0, 20_000.0, Bottleneck::Client),
            (20_000.0, 15_000.0, Bottleneck::Undecided),
            (3.0, 40.0, Bottleneck::Undecided),
        ] {
            let judged = judged(&closed(busy(client), busy(server)));
            assert_eq!(judged.0, expected, "{client} {server}");
        }
        // The one that had to wait for CPUs is the bottleneck with less certainty.
        let mut measurements = closed(busy(20_000.0), busy(3.0));
        assert_eq!(judged(&measurements).1, Certainty::Medium);
        measurements.server = Some(Load {
            waiting: 0.3,
            ..busy(3.0)
        });
        assert_eq!(judged(&measurements).1, Certainty::Low);
    }

    #[test]
    fn two_that_were_both_busy_are_not_said_to_have_been_idle() {
        let verdict = closed(load(0.99, 0.5, 0.49), load(0.98, 0.5, 0.48)).verdict();
        assert_eq!(verdict.bottleneck, Bottleneck::Undecided);
        assert!(
            verdict
                .text
                .contains("the load generator and the server were busy all the time"),
            "{}",
            verdict.text
        );
    }

    #[test]
    fn a_full_link_is_the_limit_only_when_nobody_is_busy() {
        let mut measurements = closed(load(0.2, 0.1, 0.1), load(0.3, 0.1, 0.2));
        measurements.link_bytes_per_second = Some(1e6);
        measurements.bytes_per_second = 0.9e6;
        assert_eq!(
            judged(&measurements),
            (Bottleneck::Bandwidth, Certainty::High)
        );
        measurements.bytes_per_second = 0.5e6;
        assert_eq!(judged(&measurements).0, Bottleneck::Undecided);
        measurements.bytes_per_second = 0.9e6;
        measurements.server = Some(load(0.99, 0.5, 0.4));
        assert_eq!(judged(&measurements).0, Bottleneck::ServerUser);
    }

    #[test]
    fn of_a_server_nothing_is_known_and_nothing_is_claimed() {
        let mut measurements = closed(load(0.2, 0.1, 0.1), Load::default());
        measurements.server = None;
        let verdict = measurements.verdict();
        assert_eq!(verdict.bottleneck, Bottleneck::Undecided);
        assert!(verdict.text.contains("nothing is known"));
        measurements.client.busiest = 0.99;
        assert_eq!(judged(&measurements), (Bottleneck::Client, Certainty::Low));
    }

    #[test]
    fn of_a_moment_nothing_is_claimed() {
        let mut measurements = closed(load(1.0, 0.5, 0.5), load(0.1, 0.0, 0.1));
        measurements.too_short = true;
        assert_eq!(
            judged(&measurements),
            (Bottleneck::Undecided, Certainty::Low)
        );
        measurements.server = None;
        measurements.server_unknown = Some("it was over");
        let verdict = measurements.verdict();
        assert!(verdict.text.contains("too little"), "{}", verdict.text);
        let unknown = "server: nothing known: it was over".to_owned();
        assert!(verdict.evidence.contains(&unknown), "{verdict:?}");
    }

    #[test]
    fn a_busy_kernel_comes_with_the_advice_to_make_fewer_calls() {
        let verdict = closed(load(0.2, 0.1, 0.1), load(1.0, 0.24, 0.74)).verdict();
        assert!(verdict.advice.unwrap().contains("pipelining, or a proxy"));
    }
}
