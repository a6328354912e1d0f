//! `redline bench compare` on real servers: one with itself, and with one whose replies cost a tenth more.
//!
//! On a machine with other load, that load is part of the spread, and hides the tenth from the rate; the CPU time per
//! request shows it still. A comparison takes its whole time if the difference does not show in the rate.

use std::collections::BTreeMap;
use std::process::Command;
use std::time::Duration;

use serde_json::Value;

use crate::benched;
use crate::compat::Setting;
use crate::run::{Failure, captured};

/// Comparisons of each kind, and the smallest number of right ones.
const COMPARISONS: usize = 20;
const RIGHT_MIN: usize = 19;
/// Maximum time of a comparison, in seconds, and the time of each of its runs.
const TIME_MAX: &str = "25";
const RUN: &str = "0.05";
const TIMEOUT: Duration = Duration::from_secs(120);
/// Elements of the list. A request has a fixed cost as well: with a tenth more elements, a real Redis used 7 % more CPU
/// time for it; with this many it is a tenth.
const ELEMENTS: [u32; 2] = [600, 685];

/// Counts the results of the comparisons.
pub fn run(setting: &Setting) -> Result<String, Failure> {
    let servers = [setting.start_redis(&[])?, setting.start_redis(&[])?];
    let ports = [0, 1].map(|at| servers[at].address().port().to_string());
    for (port, elements) in ports.iter().zip(ELEMENTS) {
        let mut fill = Command::new("redis-cli");
        fill.args(["-p", port, "eval"]);
        fill.arg("for i=1,tonumber(ARGV[1]) do redis.call('rpush',KEYS[1],i+100000) end");
        fill.args(["1", "list", &elements.to_string()]);
        captured(fill, b"", TIMEOUT)?;
    }
    let [fast, slow] = [0, 1].map(|at| ports[at].as_str());
    let same = count("no difference shown", setting, fast, fast, |ways| {
        ways.is_empty()
    })?;
    let slower = count("a tenth slower found", setting, fast, slow, |ways| {
        !ways.is_empty() && ways.iter().all(|way| way.is_worse)
    })?;
    let said = format!(
        "with itself, no difference shown in {same} of {COMPARISONS}; with one slower by a tenth, found in {slower}"
    );
    let enough = same.min(slower) >= RIGHT_MIN;
    enough.then_some(said.clone()).ok_or(said)
}

/// A figure by which a difference was shown.
struct Shown {
    figure: String,
    is_worse: bool,
}

/// Returns the number of comparisons of `a` with `b` with the right result.
fn count(
    what: &str,
    setting: &Setting,
    a: &str,
    b: &str,
    right: fn(&[Shown]) -> bool,
) -> Result<usize, Failure> {
    let (mut count, mut by) = (0, BTreeMap::new());
    for _ in 0..COMPARISONS {
        let mut command = benched::command(setting, "compare");
        command
            .args(["--time-max", TIME_MAX])
            .args(["--", "-p", a, "--", "-p", b, "--"])
            .args(["--command", "LRANGE list 0 -1", "-c", "20"])
            .args(["--duration", RUN, "--warmup", "0.005"]);
        let comparison = benched::result(command)?;
        let shown = shown(&comparison);
        for figure in &shown {
            *by.entry(figure.figure.clone()).or_insert(0) += 1;
        }
        if right(&shown) {
            count += 1;
        } else {
            println!("  not so: {}", comparison["text"]);
        }
    }
    println!("  {what}: {count} of {COMPARISONS}; differences by figure: {by:?}");
    Ok(count)
}

fn shown(comparison: &Value) -> Vec<Shown> {
    let figures = comparison["figures"].as_array().into_iter().flatten();
    let judged = figures.filter(|figure| figure["is_judged"] == true);
    let shown = judged.filter_map(|figure| {
        let end = |name: &str| figure[name].as_f64().unwrap_or(1.0);
        let is_less = end("high") < 1.0;
        (is_less || end("low") > 1.0).then(|| Shown {
            figure: figure["metric"].to_string(),
            // Less of a rate is worse; of anything else, more.
            is_worse: is_less == (figure["metric"] == "rps"),
        })
    });
    shown.collect()
}
