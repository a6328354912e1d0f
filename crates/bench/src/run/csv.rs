//! The series of a result as CSV, for spreadsheets.
//!
//! Opens nothing. Every field is a number, so nothing needs quotes.

use std::fmt::Write;

use crate::load::result::RunResult;

/// Returns a header, and a line for each point. Unknown values are empty.
pub fn series(result: &RunResult) -> String {
    let mut out = String::from(
        "at_s,answered,errors,mean_us,p50_us,p99_us,p99_9_us,max_us,server_cpus,proxy_cpus,unanswered\n",
    );
    let known = |cpus: Option<f64>| cpus.map_or(String::new(), |cpus| format!("{cpus:.3}"));
    for point in &result.series {
        let _ = writeln!(
            out,
            "{},{},{},{:.1},{},{},{},{},{},{},{}",
            point.at_s,
            point.answered,
            point.errors,
            point.mean_us,
            point.p50_us,
            point.p99_us,
            point.p99_9_us,
            point.max_us,
            known(point.server_cpus),
            known(point.proxy_cpus),
            point.unanswered
        );
    }
    out
}
