//! `redline bench compare` on real servers: one with itself, and with one whose replies cost a tenth more.
//!
//! Wants a quiet machine: what others do meanwhile is part of the spread, and hides the tenth.

use std::process::Command;
use std::time::Duration;

use crate::benched;
use crate::compat::Setting;
use crate::run::{Failure, captured};

/// Comparisons of each kind, and how many have to be right.
const COMPARISONS: usize = 20;
const RIGHT_MIN: usize = 19;
const PAIRS: &str = "8";
const TIMEOUT: Duration = Duration::from_secs(120);
/// Elements of the list that is asked for; the slower server's has a tenth more.
const ELEMENTS: [u32; 2] = [600, 660];

/// Counts what the comparisons say.
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
    let same = count("no difference shown", setting, fast, fast, |shown, _| {
        !shown
    })?;
    let slower = count(
        "a tenth slower found",
        setting,
        fast,
        slow,
        |shown, ratio| shown && ratio < 1.0,
    )?;
    let said = format!(
        "with itself, no difference shown in {same} of {COMPARISONS}; with one slower by a tenth, found in {slower}"
    );
    let enough = same.min(slower) >= RIGHT_MIN;
    enough.then_some(said.clone()).ok_or(said)
}

/// How many comparisons of `a` with `b` say what is right.
fn count(
    what: &str,
    setting: &Setting,
    a: &str,
    b: &str,
    right: fn(bool, f64) -> bool,
) -> Result<usize, Failure> {
    let mut count = 0;
    for _ in 0..COMPARISONS {
        let mut command = benched::command(setting, "compare");
        command
            .args(["--pairs", PAIRS])
            .args(["--", "-p", a, "--", "-p", b, "--"])
            .args(["--command", "LRANGE list 0 -1", "-c", "20"])
            .args(["--duration", "0.15", "--warmup", "0.02"]);
        let comparison = benched::result(command)?;
        let shown = comparison["difference_shown"] == true;
        let ratio = comparison["figures"][0]["ratio"].as_f64().unwrap_or(1.0);
        if right(shown, ratio) {
            count += 1;
        } else {
            println!("  not so: {}", comparison["text"]);
        }
    }
    println!("  {what}: {count} of {COMPARISONS}");
    Ok(count)
}
