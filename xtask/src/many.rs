//! `redline bench run` over ten thousand connections against our server, in a closed and an open loop, and a long run with
//! a fine time series: its memory stays bounded, and its rate does not fall.

use serde_json::Value;

use crate::benched::{check, number, run as benched};
use crate::compat::{Setting, stop};
use crate::run::Failure;

const CONNECTIONS: &str = "10000";
/// Number of files that both sides have to be able to open.
const FILES_MIN: u64 = 12_000;
/// Maximum memory of the generator for a connection, its share of everything else included.
const BYTES_PER_CONNECTION_MAX: u64 = 4_096;
/// Largest growth of memory without new data: memory kept by allocators.
const GROWN_BYTES_MAX: u64 = 8 << 20;
/// Largest memory per point of the series, with room for growing vectors.
const BYTES_PER_POINT_MAX: u64 = 1_024;
/// Smallest ratio of the last third's rate to the first's: the machine may have other load.
const RATE_SHARE_MIN: f64 = 0.6;

/// Runs them.
pub fn run(setting: &Setting) -> Result<String, Failure> {
    let files = hard_limit_of_files()?;
    if files < FILES_MIN {
        return Err(format!(
            "at most {files} files may be open here; {FILES_MIN} are needed"
        ));
    }
    let server = setting.start_redline(2, &["--maxclients", "10100"])?;
    let port = server.address().port().to_string();
    let local = ["-p", &port, "--command", "GET key:{uniform:100000}"];
    let many = [&local[..], &["-c", CONNECTIONS, "--duration", "12"]].concat();
    let mut said = Vec::new();
    for (name, more) in [
        ("closed loop", &["--interval", "0.5"][..]),
        ("open loop", &["--rps", "5000", "--interval", "0.5"]),
    ] {
        let result = benched(setting, &[&many[..], more].concat())?;
        let connections: u64 = CONNECTIONS.parse().unwrap_or(0);
        let most = check_run(&result, GROWN_BYTES_MAX)?;
        let bound = connections * BYTES_PER_CONNECTION_MAX;
        check(
            most < bound + (64 << 20),
            "memory of the connections",
            &result,
        )?;
        said.push(format!(
            "{name}: {:.0} requests/s, {:.0} MB",
            result["achieved_rps"].as_f64().unwrap_or(0.0),
            most as f64 / 1e6
        ));
    }
    let fine = [
        &local[..],
        &["-c", "50", "--duration", "40", "--interval", "0.001"],
    ]
    .concat();
    let result = benched(setting, &fine)?;
    let points = result["series"].as_array().map_or(0, Vec::len);
    check(points >= 40_000, "a point for each millisecond", &result)?;
    let room = GROWN_BYTES_MAX + points as u64 * BYTES_PER_POINT_MAX;
    let most = check_run(&result, room)?;
    said.push(format!(
        "{} requests in {points} points: {:.0} MB",
        number(&result, "/requests/values") + number(&result, "/requests/nulls"),
        most as f64 / 1e6
    ));
    stop(server)?;
    Ok(said.join("; "))
}

/// Checks that there were no errors, the rate held, and memory did not grow beyond `room`; returns the largest memory.
fn check_run(result: &Value, room: u64) -> Result<u64, Failure> {
    for what in ["errors", "lost", "connections_lost"] {
        check(result["requests"][what] == 0, what, result)?;
    }
    check(result["ended_early"].is_null(), "until the end", result)?;
    let memory = |figure: &str| number(result, &format!("/parties/0/memory/{figure}"));
    let grown = memory("last_bytes").saturating_sub(memory("first_bytes"));
    check(memory("max_bytes") > 0, "memory is known", result)?;
    check(grown < room, &format!("memory grew by {grown}"), result)?;
    let series = result["series"].as_array().cloned().unwrap_or_default();
    let answered = |points: &[Value]| -> f64 {
        let answered = points.iter().filter_map(|point| point["answered"].as_f64());
        answered.sum::<f64>()
    };
    let third = series.len() / 3;
    let (first, last) = (
        answered(&series[..third]),
        answered(&series[series.len() - third..]),
    );
    let share = last / first.max(1.0);
    let held = share > RATE_SHARE_MIN;
    check(
        held,
        &format!("the rate fell to {share:.2} of what it was"),
        result,
    )?;
    Ok(memory("max_bytes"))
}

/// Returns the hard limit of this process and its children.
fn hard_limit_of_files() -> Result<u64, Failure> {
    let path = "/proc/self/limits";
    let text = std::fs::read_to_string(path).map_err(|error| format!("{path}: {error}"))?;
    let line = text.lines().find(|line| line.starts_with("Max open files"));
    let hard = line.and_then(|line| line.split_whitespace().nth(4));
    match hard {
        Some("unlimited") => Ok(u64::MAX),
        Some(number) => number.parse().map_err(|_| format!("{path}: {text}")),
        None => Err(format!("{path}: {text}")),
    }
}
