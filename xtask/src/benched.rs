//! Results of `redline bench` for the steps that check them: running it, and reporting faults.
//!
//! Must not know the measurements.

use std::process::{Child, Command, Stdio};
use std::time::Duration;

use serde_json::Value;

use crate::compat::Setting;
use crate::run::{Failure, captured, line};

const TIMEOUT: Duration = Duration::from_secs(120);
/// Long parts of a result that seldom explain a fault.
const BULKY: [&str; 5] = ["series", "commands", "curve", "response_us", "service_us"];

/// Returns a sub-command that writes its result, and nothing else, to standard output.
pub fn command(setting: &Setting, name: &str) -> Command {
    let mut command = Command::new(&setting.redline);
    command.args(["bench", name, "--json", "-"]);
    command
}

/// Runs such a command to its end.
pub fn result(command: Command) -> Result<Value, Failure> {
    parsed(&captured(command, b"", TIMEOUT)?)
}

/// Returns the result of `redline bench run` with these options.
pub fn run(setting: &Setting, words: &[&str]) -> Result<Value, Failure> {
    let mut run = command(setting, "run");
    run.args(words);
    result(run)
}

/// Begins a run with these options in the background; [`end`] waits for it.
pub fn begin(setting: &Setting, words: &[&str]) -> Result<Child, Failure> {
    let mut run = command(setting, "run");
    run.args(words)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    run.spawn()
        .map_err(|error| format!("{}: {error}", line(&run)))
}

/// Waits for the run of [`begin`].
pub fn end(child: Child) -> Result<Value, Failure> {
    let output = child
        .wait_with_output()
        .map_err(|error| error.to_string())?;
    if !output.status.success() {
        let complaints = String::from_utf8_lossy(&output.stderr);
        return Err(format!(
            "the run ended with {}: {complaints}",
            output.status
        ));
    }
    parsed(&String::from_utf8_lossy(&output.stdout))
}

fn parsed(said: &str) -> Result<Value, Failure> {
    serde_json::from_str(said).map_err(|error| format!("{error}: {said}"))
}

/// Returns a count in a result; 0 if there is none at that JSON pointer.
pub fn number(result: &Value, path: &str) -> u64 {
    result.pointer(path).and_then(Value::as_u64).unwrap_or(0)
}

/// Returns an error with the result, without its longest parts, unless `so`.
pub fn check(so: bool, what: &str, result: &Value) -> Result<(), Failure> {
    if so {
        return Ok(());
    }
    let mut result = result.clone();
    shorten(&mut result);
    Err(format!("{what}: {result:#}"))
}

fn shorten(value: &mut Value) {
    match value {
        Value::Object(fields) => {
            fields.retain(|name, _| !BULKY.contains(&name.as_str()));
            fields.values_mut().for_each(shorten);
        }
        Value::Array(elements) => elements.iter_mut().for_each(shorten),
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_complaint_shows_the_result_without_its_longest_parts() {
        let result = json!({"requests": {"errors": 3}, "run": {"series": [1], "target": "x"}});
        assert_eq!(check(true, "fine", &result), Ok(()));
        let said = check(false, "errors", &result).unwrap_err();
        assert!(said.starts_with("errors: "), "{said}");
        assert!(
            said.contains("target") && !said.contains("series"),
            "{said}"
        );
        assert_eq!(number(&result, "/requests/errors"), 3);
        assert_eq!(number(&result, "/nothing"), 0);
    }
}
