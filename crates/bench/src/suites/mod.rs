//! Suites: published benchmarks as runnable files, with the published figures beside the measured ones.
//!
//! `file` parses them, this runs them and prints the table. Knows a run as the arguments of its command line: a suite
//! can use everything of `redline bench run`.

mod file;

use std::borrow::Cow;
use std::fmt::Write as _;
use std::io::{ErrorKind, Write};
use std::path::Path;
use std::time::{Duration, Instant};

use maud::html;
use redline_net::Address;
use redline_pages::charts::{self, Across, Axes, Bar};
use redline_pages::{plain, table};
use serde::{Deserialize, Serialize};

use crate::StartEmbedded;
use crate::load::arguments::{RunArguments, one_to_stdout};
use crate::load::execute::Prepared;
use crate::load::failure::Failure;
use crate::load::origin::Origin;
use crate::load::plan::RunPlan;
use crate::load::result::{Party, RunResult};
use crate::output::html::{self, About};
use crate::output::{Written, can_be_written, write, write_json};
pub use file::Published;
use file::{Run, Suite};

/// Result of a suite: the schema of its JSON file.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct SuiteResult {
    /// Changes when a field changes its meaning or is removed.
    pub format: u32,
    /// The suite's name.
    pub name: String,
    /// Subject of the suite.
    pub title: String,
    /// Publisher of the figures, and the machines.
    pub source: String,
    /// Factor of requests and keys.
    pub scale: f64,
    /// The reason why it ended early, if it did.
    pub ended_early: Option<String>,
    /// The runs, in the order of the file.
    pub runs: Vec<SuiteRun>,
    /// The machine and the command line.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub origin: Option<Origin>,
}

/// One run of a suite.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct SuiteRun {
    /// The group, mostly a command.
    pub group: String,
    /// The run in its group, mostly a size.
    pub name: String,
    /// The published figures.
    pub published: Published,
    /// The measured result.
    pub result: RunResult,
}

impl SuiteRun {
    /// Returns the run's name, or its group's if it is the only one and has none.
    fn title(&self) -> &str {
        match self.name.as_str() {
            "-" => &self.group,
            name => name,
        }
    }
}

/// The format of [`SuiteResult`].
pub const FORMAT: u32 = 1;

/// Arguments of a suite's run.
struct Request<'a> {
    /// The file.
    path: &'a Path,
    /// Factor of requests and keys.
    scale: f64,
    /// Addresses of the suite's targets, as `NAME=HOST:PORT`.
    targets: &'a [String],
    /// The user's arguments after `run`, which override the suite's.
    words: &'a [String],
    /// The machine and the command line.
    origin: Origin,
}

/// Runs `redline bench run` with the suite of the file `path`; `words` are the arguments that `arguments` were parsed of.
pub fn run(
    path: &Path,
    arguments: &RunArguments,
    words: &[Vec<u8>],
    stdout: &mut dyn Write,
    stderr: &mut dyn Write,
    start: Option<StartEmbedded<'_>>,
) -> Result<(), Failure> {
    let request = Request {
        path,
        scale: arguments.scale,
        targets: &arguments.target,
        words: &words_of_runs(words, path),
        origin: Origin::here(
            std::iter::once(b"run".as_slice()).chain(words.iter().map(Vec::as_slice)),
        ),
    };
    let output = &arguments.output;
    one_to_stdout([output.json.as_ref(), output.html.as_ref()]).map_err(Failure::Local)?;
    let (json, html) = (output.json.as_deref(), output.html.as_deref());
    can_be_written([json, html])?;
    run_suite(&request, json, html, stdout, stderr, start)
}

/// Returns the user's arguments without those of the suite itself: the rest applies to each of its runs.
fn words_of_runs(words: &[Vec<u8>], suite: &Path) -> Vec<String> {
    let words = words
        .iter()
        .map(|word| String::from_utf8_lossy(word).into_owned());
    let (mut out, mut words) = (Vec::new(), words.peekable());
    while let Some(word) = words.next() {
        match word.as_str() {
            "--scale" | "--target" | "--json" | "--html" => {
                words.next();
            }
            _ if ["--scale=", "--target=", "--json=", "--html="]
                .iter()
                .any(|name| word.starts_with(name)) => {}
            _ if Path::new(&word) == suite => {}
            _ => out.push(word),
        }
    }
    out
}

/// Runs a suite and prints its table.
fn run_suite(
    request: &Request<'_>,
    json: Option<&Path>,
    page_to: Option<&Path>,
    stdout: &mut dyn Write,
    stderr: &mut dyn Write,
    start: Option<StartEmbedded<'_>>,
) -> Result<(), Failure> {
    let named = |reason: String| Failure::Local(format!("{}: {reason}", request.path.display()));
    if !(request.scale > 0.0 && request.scale.is_finite()) {
        return Err(Failure::Local("--scale is more than 0.".into()));
    }
    let text = text_of(request.path)?;
    let mut suite = Suite::parse(&text).map_err(named)?;
    for target in request.targets {
        suite.place(target).map_err(Failure::Local)?;
    }
    // All runs are checked before the first: an error in the last one would come late.
    let runs = suite.runs(request.scale).map_err(named)?;
    if runs.is_empty() {
        return Err(named("it has no runs ([[group.run]]).".into()));
    }
    let plans: Vec<(Run, RunPlan)> = runs
        .into_iter()
        .map(|run| {
            let plan = plan(&run, request.words)
                .map_err(|reason| named(format!("{} {}: {reason}", run.group, run.name)))?;
            Ok((run, plan))
        })
        .collect::<Result<_, Failure>>()?;
    // Options for all runs may be meant for some.
    let is_idle = |text: &String| plans.iter().all(|(_, plan)| plan.idle.contains(text));
    if let Some(text) = plans[0].1.idle.iter().find(|text| is_idle(text)) {
        return Err(named(text.clone()));
    }
    if suite.has_several_targets() {
        for (run, plan) in &plans {
            let own = self::plan(run, &[]).map_err(named)?;
            let places = |plan: &RunPlan| -> Vec<Address> {
                let servers = plan.target.servers.iter();
                servers.map(|server| server.address.clone()).collect()
            };
            if places(&own) != places(plan) {
                return Err(named(
                    "it compares several targets, which cannot all be in one place: --target NAME=HOST:PORT says where each \
                     is, and nothing else."
                        .into(),
                ));
            }
        }
    }
    let mut result = SuiteResult {
        format: FORMAT,
        name: suite.name.clone(),
        title: suite.title.clone(),
        source: suite.source.clone(),
        scale: request.scale,
        ended_early: None,
        runs: Vec::new(),
        origin: Some(request.origin.clone()),
    };
    let failure = measure(plans, &mut result, stderr, start).err();
    if result.runs.is_empty()
        && let Some(failure) = failure
    {
        // There is nothing to show beside the reason.
        return Err(failure);
    }
    result.ended_early = failure.as_ref().map(Failure::to_string);
    let mut written = Written::default();
    if ![json, page_to].contains(&Some(Path::new("-"))) {
        written.and(write(Path::new("-"), &printed(&result), stdout));
    }
    if let Some(path) = json {
        written.and(write_json(path, &result, stdout));
    }
    if let Some(path) = page_to {
        written.and(page(&result).and_then(|page| write(path, &page, stdout)));
    }
    written.end(failure)
}

/// The suites inside the program, by name.
const SHIPPED: &[(&str, &str)] = &[
    ("azure", include_str!("../../../../suites/azure.toml")),
    (
        "memcached",
        include_str!("../../../../suites/memcached.toml"),
    ),
    ("modules", include_str!("../../../../suites/modules.toml")),
    ("predixy", include_str!("../../../../suites/predixy.toml")),
    (
        "redis-docs",
        include_str!("../../../../suites/redis-docs.toml"),
    ),
    ("tair", include_str!("../../../../suites/tair.toml")),
    (
        "tair-instance",
        include_str!("../../../../suites/tair-instance.toml"),
    ),
    (
        "tair-types",
        include_str!("../../../../suites/tair-types.toml"),
    ),
];

/// Returns the text of a suite: of the file, or of the suite of this name, if there is no such file.
fn text_of(path: &Path) -> Result<Cow<'static, str>, Failure> {
    let error = match std::fs::read_to_string(path) {
        Ok(text) => return Ok(text.into()),
        Err(error) => error,
    };
    let shown = path.display().to_string();
    if error.kind() != ErrorKind::NotFound || shown.contains(['/', '.']) {
        return Err(Failure::local(&shown, &error));
    }
    let found = SHIPPED.iter().find(|(name, _)| *name == shown);
    found.map(|(_, text)| Cow::from(*text)).ok_or_else(|| {
        let names: Vec<&str> = SHIPPED.iter().map(|(name, _)| *name).collect();
        let names = names.join(", ");
        Failure::Local(format!(
            "{shown}: there is no such file, and no suite of this name; there are {names}."
        ))
    })
}

fn measure(
    plans: Vec<(Run, RunPlan)>,
    result: &mut SuiteResult,
    stderr: &mut dyn Write,
    start: Option<StartEmbedded<'_>>,
) -> Result<(), Failure> {
    let count = plans.len();
    let began = Instant::now();
    // An embedded server is one server for the whole suite, as another would be.
    let mut embedded: Option<Prepared> = None;
    for (index, (run, plan)) in plans.into_iter().enumerate() {
        let mut own;
        let prepared = if plan.target.embedded {
            if embedded.is_none() {
                embedded = Some(Prepared::new(&plan, start)?);
            }
            embedded.as_mut().expect("it has just been made")
        } else {
            own = Prepared::new(&plan, start)?;
            &mut own
        };
        prepared.label(label(&run, (index, count), began.elapsed()));
        let finished = prepared.run(&plan)?;
        // Progress is informative only; errors of a closed stream are ignored.
        let _ = writeln!(
            stderr,
            "{} of {count}: {} {}: {:.0} requests/s",
            index + 1,
            run.group,
            run.name,
            finished.result.achieved_rps
        );
        if let Some(failure) = finished.failure {
            return Err(failure);
        }
        result.runs.push(SuiteRun {
            group: run.group,
            name: run.name,
            published: run.published,
            result: finished.result,
        });
    }
    Ok(())
}

/// Returns the words before the progress of a run: its place, and the time that is left if the others take as long as
/// those before.
fn label(run: &Run, (index, count): (usize, usize), elapsed: Duration) -> String {
    let mut text = format!("{} of {count}", index + 1);
    if index > 0 {
        let left = elapsed.as_secs_f64() / index as f64 * (count - index) as f64;
        text += &format!(", about {left:.0} s left");
    }
    format!("{text}: {} {}", run.group, run.name)
}

/// Returns the plan of a run with the user's arguments, as `redline bench run` parses them.
fn plan(run: &Run, words: &[String]) -> Result<RunPlan, String> {
    let words = run.words.iter().chain(words).map(String::as_str);
    let arguments = RunArguments::parse_words(words).map_err(|error| error.render().to_string())?;
    // Options that a run in a suite does not support are rejected.
    if arguments.suite.is_some() || arguments.manner.stairs.is_some() || arguments.output.live {
        return Err("a run of a suite is one run: without a suite, --stairs and --live.".into());
    }
    if arguments.output.names_file() {
        return Err(
            "a run of a suite has no file of its own: --json and --html of the suite have all of them.".into(),
        );
    }
    arguments.plan()
}

/// A column: its heading, the measured figure, the published one.
type Column = (
    &'static str,
    fn(&RunResult) -> Option<f64>,
    fn(&Published) -> Option<f64>,
    usize,
);

const COLUMNS: [Column; 7] = [
    ("requests/s", |r| Some(r.achieved_rps), |p| p.rps, 0),
    (
        "mean, ms",
        |r| Some(r.response_us.mean / 1000.0),
        |p| p.mean_ms,
        3,
    ),
    (
        "p99, ms",
        |r| Some(r.response_us.p99 as f64 / 1000.0),
        |p| p.p99_ms,
        3,
    ),
    (
        "server user",
        |r| cpus(r, "server", |party| party.user_s),
        |p| p.server_user,
        3,
    ),
    (
        "server kernel",
        |r| cpus(r, "server", |party| party.system_s),
        |p| p.server_kernel,
        3,
    ),
    (
        "proxy user",
        |r| cpus(r, "proxy", |party| party.user_s),
        |_| None,
        3,
    ),
    (
        "proxy kernel",
        |r| cpus(r, "proxy", |party| party.system_s),
        |_| None,
        3,
    ),
];

/// Returns the CPUs that the parties of a role used.
fn cpus(result: &RunResult, role: &str, seconds: fn(&Party) -> f64) -> Option<f64> {
    let parties = result.parties.iter();
    let servers = parties.filter(|party| party.role == role && party.wall_s > 0.0);
    // Of several servers, the sum.
    servers
        .map(|one| seconds(one) / one.wall_s)
        .reduce(|all, one| all + one)
}

/// The parts of a bar: one of the two is there.
const MEASURED_PUBLISHED: [&str; 2] = ["measured", "published"];

/// Returns the suite as a page: its table, and a chart of the rates of each group.
pub fn page(result: &SuiteResult) -> Result<String, Failure> {
    let mut charts = Vec::new();
    for runs in result.runs.chunk_by(|a, b| a.group == b.group) {
        let mut bars = Vec::new();
        for run in runs {
            let name = run.title();
            bars.push(Bar {
                name: name.to_owned(),
                parts: vec![run.result.achieved_rps, 0.0],
            });
            bars.extend(run.published.rps.map(|rps| Bar {
                name: format!("{name} (published)"),
                parts: vec![0.0, rps],
            }));
        }
        let axes = Axes {
            title: &runs[0].group,
            x: "requests/s",
            y: "",
            logarithmic: false,
            across: Across::Plain,
            joined: true,
        };
        let parts = match runs.iter().any(|run| run.published.rps.is_some()) {
            true => &MEASURED_PUBLISHED[..],
            false => &MEASURED_PUBLISHED[..1],
        };
        let chart = charts::bars(&axes, parts, &bars);
        charts.push(chart.map_err(|error| Failure::Local(format!("charts: {error}")))?);
    }
    let first = result.runs.first().map(|run| &run.result);
    let about = About {
        origin: result.origin.as_ref(),
        ..first.map_or_else(About::default, About::of)
    };
    let (head, rows) = cells(result);
    let main = html! {
        p { (plain(&result.title)) }
        p { "Published: " (plain(&result.source)) }
        p { "Scale: " (result.scale) "; CPU in CPUs used" }
        (table("Runs of the suite", &head, &rows))
        @for line in remarks(result) { p.warning { (plain(&line)) } }
    };
    let title = format!("redline bench: suite {}", result.name);
    Ok(html::document(&title, &about, &main, &charts))
}

/// Returns the suite's table: its head, and for each run the measured figures, and published ones if there are any.
fn cells(result: &SuiteResult) -> (Vec<String>, Vec<Vec<String>>) {
    let has_published = |published: fn(&Published) -> Option<f64>| {
        result
            .runs
            .iter()
            .any(|run| published(&run.published).is_some())
    };
    // Most suites have no proxy.
    let columns = COLUMNS.into_iter().filter(|(heading, measured, ..)| {
        !heading.starts_with("proxy")
            || result
                .runs
                .iter()
                .any(|run| measured(&run.result).is_some())
    });
    let columns: Vec<Column> = columns.collect();
    let mut head = vec!["group".to_owned(), "run".to_owned()];
    for &(heading, _, published, _) in &columns {
        head.push(heading.to_owned());
        if has_published(published) {
            head.push("published".to_owned());
        }
    }
    head.push("limit".to_owned());
    let row = |run: &SuiteRun| {
        let mut row = vec![run.group.clone(), run.name.clone()];
        for &(_, measured, published, digits) in &columns {
            let cell = |figure: Option<f64>| {
                figure.map_or(String::from("-"), |figure| format!("{figure:.digits$}"))
            };
            row.push(cell(measured(&run.result)));
            if has_published(published) {
                row.push(cell(published(&run.published)));
            }
        }
        let limit = serde_json::to_value(run.result.verdict.bottleneck);
        let limit = limit.ok().and_then(|name| name.as_str().map(str::to_owned));
        row.push(limit.unwrap_or_default());
        row
    };
    (head, result.runs.iter().map(row).collect())
}

/// Returns the suite's table as text.
fn printed(result: &SuiteResult) -> String {
    let mut out = String::new();
    let _ = writeln!(out, "{}\nPublished: {}", result.title, result.source);
    let _ = writeln!(out, "Scale: {}; CPU in CPUs used\n", result.scale);
    let (mut head, rows) = cells(result);
    let last = head.len() - 1;
    let widths: Vec<usize> = head
        .iter()
        .map(|heading| if heading == "published" { 12 } else { 14 })
        .collect();
    // The first two name the rows.
    head[..2].fill(String::new());
    for row in std::iter::once(&head).chain(&rows) {
        let _ = write!(out, "{:<22}{:<14}", row[0], row[1]);
        for (cell, width) in row[2..last].iter().zip(&widths[2..]) {
            let _ = write!(out, "{cell:>width$}");
        }
        let _ = writeln!(out, "   {}", row[last]);
    }
    let remarks = remarks(result);
    if !remarks.is_empty() {
        let _ = writeln!(out, "\n{}", remarks.join("\n"));
    }
    out
}

/// Returns remarks on the whole suite.
fn remarks(result: &SuiteResult) -> Vec<String> {
    let mut out = Vec::new();
    let marked = result.runs.iter().filter(|run| {
        run.result.verdict.bottleneck == crate::load::cause::verdict::Bottleneck::Client
    });
    let marked = marked.count();
    if marked > 0 {
        out.push(format!(
            "In {marked} of {} runs the load generator was the limit: these numbers are not the server's.",
            result.runs.len()
        ));
    }
    if let Some(reason) = &result.ended_early {
        out.push(format!("(partial: {reason})"));
    }
    out
}
