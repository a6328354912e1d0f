//! Latency monitors: latencies of chosen commands in chosen steps, as predixy's `LatencyMonitor`. Must not know how time
//! is measured.

use std::fmt::Write;

use redline_observe::Counter;
use redline_proxy_config::LatencyMonitor;
use redline_spec::{self as spec, CommandId};

/// The monitors of a configuration.
#[derive(Debug, Default)]
pub struct Monitors {
    monitors: Vec<Monitor>,
    /// The monitors of each command.
    wanted: Vec<Vec<u8>>,
    /// The monitors of servers' commands that the table does not have.
    wanting_others: Vec<u8>,
}

#[derive(Debug)]
struct Monitor {
    name: String,
    bounds_us: Vec<u64>,
}

/// Counters of a worker for one monitor of one server.
#[derive(Debug)]
pub struct Steps {
    counts: Box<[Counter]>,
    sums_us: Box<[Counter]>,
}

/// Totals of all workers.
#[derive(Clone, Debug, Default)]
pub struct StepTotals {
    counts: Vec<u64>,
    sums_us: Vec<u64>,
}

impl Monitors {
    /// Returns the monitors of a checked configuration.
    pub fn of(configured: &[LatencyMonitor]) -> Monitors {
        if configured.is_empty() {
            return Monitors::default();
        }
        let mut wanted = vec![Vec::new(); CommandId::COUNT];
        let mut wanting_others = Vec::new();
        // More than 256 could not be distinguished.
        for (number, monitor) in configured.iter().take(256).enumerate() {
            for (id, of_command) in CommandId::ALL.into_iter().zip(&mut wanted) {
                if wants(&monitor.commands, id) {
                    of_command.push(number as u8);
                }
            }
            if last_word(&monitor.commands, |name| name.eq_ignore_ascii_case("all")) {
                wanting_others.push(number as u8);
            }
        }
        let monitors = configured
            .iter()
            .map(|monitor| Monitor {
                name: monitor.name.clone(),
                bounds_us: monitor.bounds_us.clone(),
            })
            .collect();
        Monitors {
            monitors,
            wanted,
            wanting_others,
        }
    }

    /// Returns their names.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.monitors.iter().map(|monitor| monitor.name.as_str())
    }

    /// Returns counters for one server.
    pub fn steps(&self) -> Box<[Steps]> {
        let counters = |monitor: &Monitor| {
            (0..=monitor.bounds_us.len())
                .map(|_| Counter::default())
                .collect()
        };
        self.monitors
            .iter()
            .map(|monitor| Steps {
                counts: counters(monitor),
                sums_us: counters(monitor),
            })
            .collect()
    }

    /// Counts `times` calls of a command with this latency each.
    #[inline]
    pub fn record(&self, steps: &[Steps], command: u16, us: u64, times: u64) {
        let wanted = self.wanted.get(usize::from(command));
        for &number in wanted.unwrap_or(&self.wanting_others) {
            let number = usize::from(number);
            let bounds_us = &self.monitors[number].bounds_us;
            let at = bounds_us.partition_point(|bound_us| *bound_us < us);
            steps[number].counts[at].add(times);
            steps[number].sums_us[at].add(us * times);
        }
    }

    /// Writes the table of one monitor: a row for each step with calls: its bound, the sum of the latencies, the number
    /// of calls, and the share of calls up to the bound.
    pub fn write(&self, number: usize, totals: &StepTotals, text: &mut String) {
        let bounds_us = &self.monitors[number].bounds_us;
        let all: u64 = totals.counts.iter().sum();
        let sum_us: u64 = totals.sums_us.iter().sum();
        let head = ["latency(us)", "sum(us)", "counts"];
        let _ = write!(text, "{:>23} {:>19} {:>16}\r\n", head[0], head[1], head[2]);
        let mut seen = 0;
        for (at, (count, sum_us)) in totals.counts.iter().zip(&totals.sums_us).enumerate() {
            if *count == 0 {
                continue;
            }
            seen += count;
            let (sign, bound_us) = match bounds_us.get(at) {
                Some(bound_us) => ("<=", bound_us),
                None => ("> ", bounds_us.last().unwrap_or(&0)),
            };
            let share = seen as f64 * 100.0 / all as f64;
            let _ = write!(
                text,
                "{sign} {bound_us:>20} {sum_us:>19} {count:>16} {share:.2}%\r\n"
            );
        }
        if let Some(mean_us) = sum_us.checked_div(all) {
            let _ = write!(text, "T  {mean_us:>20} {sum_us:>19} {all:>16}\r\n");
        }
    }
}

/// Returns true if these words select the command; later ones win.
fn wants(words: &[String], id: CommandId) -> bool {
    let row = spec::row(id);
    let container = row.container.map(|container| spec::row(container).name);
    let is = |name: &str| {
        name.eq_ignore_ascii_case("all")
            || name.eq_ignore_ascii_case(row.full_name)
            || container.is_some_and(|container| name.eq_ignore_ascii_case(container))
    };
    last_word(words, is)
}

/// Returns true if the last word with one of these names has no minus; false if there is none.
fn last_word(words: &[String], is: impl Fn(&str) -> bool) -> bool {
    words.iter().fold(false, |wanted, word| {
        let (name, add) = match word.strip_prefix('-') {
            Some(name) => (name, false),
            None => (word.as_str(), true),
        };
        if is(name) { add } else { wanted }
    })
}

impl StepTotals {
    /// Adds a worker's counters.
    pub fn add(&mut self, steps: &Steps) {
        add(&mut self.counts, steps.counts.iter().map(Counter::get));
        add(&mut self.sums_us, steps.sums_us.iter().map(Counter::get));
    }

    /// Adds another server's totals.
    pub fn add_totals(&mut self, other: &StepTotals) {
        add(&mut self.counts, other.counts.iter().copied());
        add(&mut self.sums_us, other.sums_us.iter().copied());
    }

    /// Subtracts earlier totals.
    pub fn subtract(&mut self, earlier: &StepTotals) {
        let pairs = self.counts.iter_mut().zip(&earlier.counts);
        let pairs = pairs.chain(self.sums_us.iter_mut().zip(&earlier.sums_us));
        for (now, then) in pairs {
            *now = now.saturating_sub(*then);
        }
    }
}

fn add(sums: &mut Vec<u64>, more: impl ExactSizeIterator<Item = u64>) {
    sums.resize(more.len(), 0);
    for (sum, value) in sums.iter_mut().zip(more) {
        *sum += value;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn monitors(commands: &[&str]) -> Monitors {
        Monitors::of(&[LatencyMonitor {
            name: "m".to_owned(),
            commands: commands.iter().map(|word| (*word).to_owned()).collect(),
            bounds_us: vec![100, 200, 500],
        }])
    }

    #[test]
    fn steps_without_calls_are_left_out_and_the_last_has_no_bound() {
        let monitors = monitors(&["all"]);
        let steps = monitors.steps();
        let get = CommandId::Get as u16;
        for (us, times) in [(1, 2), (100, 1), (101, 3), (9_000, 1)] {
            monitors.record(&steps, get, us, times);
        }
        let mut totals = StepTotals::default();
        totals.add(&steps[0]);
        let mut text = String::new();
        monitors.write(0, &totals, &mut text);
        let rows: Vec<Vec<&str>> = text
            .lines()
            .skip(1)
            .map(|line| line.split_whitespace().collect())
            .collect();
        assert_eq!(
            rows,
            [
                vec!["<=", "100", "102", "3", "42.86%"],
                vec!["<=", "200", "303", "3", "85.71%"],
                vec![">", "500", "9000", "1", "100.00%"],
                vec!["T", "1343", "9405", "7"],
            ]
        );
    }

    #[test]
    fn the_last_word_about_a_command_counts() {
        let of = |words: &[&str], id: CommandId| {
            let monitors = monitors(words);
            let steps = monitors.steps();
            monitors.record(&steps, id as u16, 1, 1);
            steps[0].counts[0].get() == 1
        };
        assert!(of(&["get", "set"], CommandId::Set));
        assert!(!of(&["get", "set"], CommandId::Mget));
        assert!(!of(&["all", "-blpop"], CommandId::Blpop));
        assert!(of(&["all", "-blpop"], CommandId::Brpop));
        assert!(of(&["-get", "all"], CommandId::Get));
        let others = |words: &[&str]| {
            let monitors = monitors(words);
            let steps = monitors.steps();
            monitors.record(&steps, crate::class::NO_COMMAND, 1, 1);
            steps[0].counts[0].get() == 1
        };
        assert!(others(&["all", "-blpop"]));
        assert!(!others(&["get"]) && !others(&["all", "-all", "get"]));
    }
}
