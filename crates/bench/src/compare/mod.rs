//! `redline bench compare`: the ratio of B to A, and its confidence.
//!
//! Must not know how a run is made: `sides` does that. The arithmetic is in `judge`, with `ranks` for many runs and
//! `bootstrap` for few; `looks` decides when it is done.

mod bootstrap;
mod judge;
mod looks;
mod metric;
mod ranks;
mod sides;

use std::fmt::Write as _;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use clap::error::ErrorKind;
use clap::{Args, CommandFactory, Parser};
use maud::html;
use redline_pages::charts::{self, Across, Axes, Chart, Interval, Line};
use redline_pages::{plain, table};
use serde::{Deserialize, Serialize};

use crate::load::arguments::{RunArguments, one_to_stdout, seconds};
use crate::load::failure::Failure;
use crate::load::origin::{self, Origin};
use crate::load::plan::RunPlan;
use crate::load::result;
use crate::output::html::{self, About};
use crate::output::saved::{Kind, Saved};
use crate::output::{Written, can_be_written, write, write_json};
use crate::{StartEmbedded, Streams};
use bootstrap::{PAIRS_MIN, Ratio};
use judge::Aim;
use metric::{Metric, Sample};
use redline_net::clock;
use sides::{Course, Limit, PAIRS_MAX, Sides};

/// Exit code of a comparison that `--fail-if` calls a failure.
pub const FAILED_COMPARISON: u8 = 3;

/// Compares two servers, or two sets of options, with confidence intervals
#[derive(Debug, Parser)]
#[command(name = "redline bench compare", disable_help_subcommand = true, after_help = FORM,
          override_usage = "redline bench compare [OPTIONS] -- A -- B [-- BOTH]")]
struct Head {
    #[command(flatten)]
    options: CompareArguments,
}

/// Returns its command line, described.
pub fn describe() -> clap::Command {
    Head::command()
}

/// Printed before the parser's own message for a misplaced option of `run`.
const MISPLACED: &str = "\
Options of `redline bench run` stand behind --: those of A behind the first, those of B behind the second, those of both
behind a third, as in  redline bench compare -- -p 6379 -- -p 7000 -- --command \"GET key\"
";

const FORM: &str = "\
A and B are options of `redline bench run`; options of BOTH go to either. Or A and B are files
that `redline bench run --json` left, at least 3 each, which are paired in their order.

Examples:
  redline bench compare --pairs 10 -- -p 6379 -- -p 7000 \\
      -- --command \"GET key:{uniform:100000}\" --duration 5
  redline bench compare --fail-if slower=5% -- base1.json base2.json base3.json \\
      -- new1.json new2.json new3.json";

/// The options of `compare` itself.
#[derive(Clone, Debug, Args)]
struct CompareArguments {
    /// Number of pairs of runs, 3 to 2000, however clear the result is before; instead of --time-max
    #[arg(long, value_name = "N", conflicts_with_all = ["time_max", "resolve"])]
    pairs: Option<usize>,
    /// Time limit: runs go on until the comparison is decided [default: 120]
    #[arg(long, value_name = "SECONDS", value_parser = seconds)]
    time_max: Option<Duration>,
    /// Smallest difference of interest: the comparison is decided when no larger one is possible [default: 2%]
    #[arg(long, value_name = "PERCENT", value_parser = percent)]
    resolve: Option<f64>,
    /// Confidence level of all findings together, in percent
    #[arg(long, default_value_t = 99.0, value_name = "PERCENT")]
    confidence: f64,
    /// Figures that are judged [default: rps, in an open loop p99; and server-cpu where it is known]
    #[arg(long, value_name = "FIGURE")]
    metric: Option<Metric>,
    /// Exit code 3 if B is shown to be worse than A by at least so much: slower=5% in the judged figure, dearer=5% in the
    /// server's CPU time per request
    #[arg(long, value_name = "WHAT=PERCENT", value_parser = Gate::parse)]
    fail_if: Vec<Gate>,
    /// Writes the comparison as JSON (- for standard output, which then holds nothing else)
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
    /// Writes a page with charts: one HTML file that needs no other
    #[arg(long, value_name = "FILE")]
    html: Option<PathBuf>,
}

/// A condition of `--fail-if`.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Gate {
    /// The judged figure is worse by this many percent.
    Slower(f64),
    /// The server's CPU time per request is more by this many percent.
    Dearer(f64),
}

/// The result of a comparison: the schema of its JSON file.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Comparison {
    /// Changes when a field changes its meaning or is removed.
    pub format: u32,
    /// The judged figure. Unless it was given, the server's CPU per request is judged beside it.
    pub metric: Metric,
    /// Confidence, in percent, that all intervals of judged figures contain the truth.
    pub confidence_percent: f64,
    /// True if a difference of a judged figure is shown: its interval excludes 1.
    pub difference_shown: bool,
    /// The finding: a sentence for each judged figure.
    pub text: String,
    /// Percentage by which B has to be slower for exit code 3.
    pub fail_if_slower_percent: Option<f64>,
    /// Percentage by which B's server has to use more CPU for exit code 3.
    #[serde(default)]
    pub fail_if_dearer_percent: Option<f64>,
    /// True if `--fail-if` calls it a failure.
    pub failed: bool,
    /// All figures; judged ones first.
    pub figures: Vec<Figure>,
    /// The limits of A and B that were the same in all runs.
    pub notes: Vec<String>,
    /// A and B in words: their servers and options, or their files.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub sides: Vec<String>,
    /// Time of its start.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub started_unix_ms: Option<u64>,
    /// The machine and the command line.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub origin: Option<Origin>,
}

/// One figure of both sides.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Figure {
    /// Its metric.
    pub metric: Metric,
    /// True if it is judged.
    #[serde(default)]
    pub is_judged: bool,
    /// Values of A, run by run.
    pub a: Vec<f64>,
    /// Values of B, run by run.
    pub b: Vec<f64>,
    /// B / A: of few pairs the geometric mean, of many a median.
    pub ratio: f64,
    /// The interval's lower end.
    pub low: f64,
    /// The interval's upper end; the largest number if nothing is excluded.
    pub high: f64,
}

/// The format of [`Comparison`].
pub const FORMAT: u32 = 2;
/// An interval whose ends are this far apart leaves room for relevant differences.
const WIDE: f64 = 1.25;
/// Default duration of a run if there is time for many: for rates, and for percentiles, whose rare events need longer
/// runs.
const SLICE: Duration = Duration::from_millis(250);
const SLICE_OF_PERCENTILES: Duration = Duration::from_secs(2);
/// Defaults: the duration, and the largest percentage that is no difference.
const TIME_MAX_DEFAULT: Duration = Duration::from_secs(120);
const RESOLVE_PERCENT_DEFAULT: f64 = 2.0;
/// Interval of progress messages.
const TELL_EVERY: Duration = Duration::from_secs(1);

/// Runs `redline bench compare` with these arguments; returns the exit code.
pub fn main(args: &[Vec<u8>], streams: Streams<'_>, start: Option<StartEmbedded<'_>>) -> u8 {
    let words: Vec<String> = args
        .iter()
        .map(|arg| String::from_utf8_lossy(arg).into_owned())
        .collect();
    let mut groups = words.split(|word| word == "--");
    let head = groups.next().unwrap_or_default();
    let head = std::iter::once("redline bench compare").chain(head.iter().map(String::as_str));
    let options = match Head::try_parse_from(head) {
        Ok(head) => head.options,
        Err(error) => {
            let misplaced = error.kind() == ErrorKind::UnknownArgument;
            let stderr = &mut *streams.stderr;
            if misplaced {
                // A closed stream cannot report its own error.
                let _ = stderr.write_all(MISPLACED.as_bytes());
            }
            return crate::output::say(&error, streams);
        }
    };
    let groups: Vec<&[String]> = groups.collect();
    let words = std::iter::once(b"compare".as_slice()).chain(args.iter().map(Vec::as_slice));
    let origin = (clock::wall_ms(), Origin::here(words));
    let compared = check(&options)
        .and_then(|()| measure(&options, &groups, streams.stderr, start))
        .and_then(|measured| {
            let failed = report(&options, &measured, origin, streams.stdout)?;
            measured.failure.map_or(Ok(failed), Err)
        });
    match compared {
        Ok(false) => 0,
        Ok(true) => FAILED_COMPARISON,
        Err(failure) => {
            let _ = writeln!(streams.stderr, "{failure}");
            failure.exit_code()
        }
    }
}

fn check(options: &CompareArguments) -> Result<(), Failure> {
    let wrong = |text: &str| Err(Failure::Local(text.into()));
    match options.pairs {
        Some(pairs) if pairs < PAIRS_MIN => return wrong("--pairs is at least 3."),
        Some(pairs) if pairs > PAIRS_MAX => return wrong("--pairs is at most 2000."),
        _ => {}
    }
    if !(50.0..100.0).contains(&options.confidence) {
        return wrong("--confidence is 50 to less than 100 percent.");
    }
    if options.time_max.is_some_and(|time| time.is_zero()) {
        return wrong("--time-max is more than 0 seconds.");
    }
    let files = [options.json.as_ref(), options.html.as_ref()];
    one_to_stdout(files).map_err(Failure::Local)?;
    can_be_written(files.map(|path| path.map(PathBuf::as_path)))
}

impl CompareArguments {
    fn slower(&self) -> Option<f64> {
        self.fail_if.iter().rev().find_map(|gate| match gate {
            Gate::Slower(percent) => Some(*percent),
            Gate::Dearer(_) => None,
        })
    }

    fn dearer(&self) -> Option<f64> {
        self.fail_if.iter().rev().find_map(|gate| match gate {
            Gate::Dearer(percent) => Some(*percent),
            Gate::Slower(_) => None,
        })
    }

    /// Returns the percentage of a figure by which B fails.
    fn gate(&self, metric: Metric, is_first: bool) -> Option<f64> {
        let slower = self.slower().filter(|_| is_first);
        let dearer = self.dearer().filter(|_| metric == Metric::ServerCpu);
        match (slower, dearer) {
            (Some(slower), Some(dearer)) => Some(slower.min(dearer)),
            (slower, dearer) => slower.or(dearer),
        }
    }

    /// Returns the judged figures: the given one, or the most telling ones, as far as they are known.
    fn judged(&self, pairs: &[(Sample, Sample)]) -> Result<Vec<Metric>, Failure> {
        let is_paced = pairs.iter().any(|(a, b)| a.is_paced || b.is_paced);
        let usual = if is_paced { Metric::P99 } else { Metric::Rps };
        let first = self.metric.unwrap_or(usual);
        let mut judged = vec![first];
        let asks_for_cpu = self.dearer().is_some();
        let takes_cpu =
            asks_for_cpu || self.metric.is_none() && figures(pairs, Metric::ServerCpu).is_some();
        if first != Metric::ServerCpu && takes_cpu {
            judged.push(Metric::ServerCpu);
        }
        match judged
            .iter()
            .find(|&&metric| figures(pairs, metric).is_none())
        {
            None => Ok(judged),
            Some(metric) => Err(Failure::Local(format!(
                "{} is not known of every run.",
                metric.words().0
            ))),
        }
    }

    /// Returns the estimates of the judged figures. All of them share the error equally, and this look has `share` of
    /// it.
    fn judge(
        &self,
        pairs: &[(Sample, Sample)],
        share: f64,
    ) -> Result<Vec<(Metric, Ratio)>, Failure> {
        let judged = self.judged(pairs)?;
        let error = self.error() * share / judged.len() as f64;
        let ratio = |metric: Metric| {
            Some((
                metric,
                judge::ratio(metric, &figures(pairs, metric)?, error)?,
            ))
        };
        Ok(judged.into_iter().filter_map(ratio).collect())
    }

    fn time_max(&self) -> Duration {
        self.time_max.unwrap_or(TIME_MAX_DEFAULT)
    }

    /// Checks that no option of the runs is given if the results come from files.
    fn check_for_files(&self, both: &[String]) -> Result<(), Failure> {
        let named = [
            (self.pairs.is_some(), "--pairs"),
            (self.time_max.is_some(), "--time-max"),
            (self.resolve.is_some(), "--resolve"),
        ];
        let idle = named.into_iter().find(|(is_given, _)| *is_given);
        let idle = idle.map(|(_, name)| name.to_owned());
        match idle.or(both
            .first()
            .map(|word| format!("\"{word}\" behind the third --")))
        {
            Some(what) => Err(Failure::Local(format!(
                "{what} has no effect on saved results."
            ))),
            None => Ok(()),
        }
    }

    /// Returns the probability of a wrong finding.
    fn error(&self) -> f64 {
        1.0 - self.confidence / 100.0
    }

    /// Returns true if more pairs would not change the verdict: on the gate of B, or else on the first figure. The CPU's
    /// is known soon, and does not end the wait for the other.
    fn is_decided(&self, judged: &[(Metric, Ratio)]) -> bool {
        let mut judged = judged.iter().enumerate();
        judged.all(|(index, (metric, ratio))| {
            let aim = Aim {
                resolve_percent: self.resolve.unwrap_or(RESOLVE_PERCENT_DEFAULT),
                fail_percent: self.gate(*metric, index == 0),
            };
            let is_asked = aim.fail_percent.is_some() || (index == 0 && self.fail_if.is_empty());
            !is_asked || aim.is_reached(*metric, ratio)
        })
    }
}

/// Returns a figure of all pairs, if it is known of each.
fn figures(pairs: &[(Sample, Sample)], metric: Metric) -> Option<Vec<(f64, f64)>> {
    let figures = pairs.iter();
    figures
        .map(|(a, b)| a.figure(metric).zip(b.figure(metric)))
        .collect()
}

/// Pairs of runs.
struct Measured {
    /// A and B in words.
    sides: Vec<String>,
    /// Samples of A, and of B.
    pairs: Vec<(Sample, Sample)>,
    /// The share of the error of the last look.
    share: f64,
    /// True if there was an earlier look, or could have been.
    looks: bool,
    /// The cause of an early end.
    failure: Option<Failure>,
}

/// Runs pairs; after Ctrl-C or a failure, the existing ones count, if they are enough.
fn measure(
    options: &CompareArguments,
    groups: &[&[String]],
    stderr: &mut dyn Write,
    start: Option<StartEmbedded<'_>>,
) -> Result<Measured, Failure> {
    let (a, b, both) = match groups {
        [a, b] => (*a, *b, &[][..]),
        [a, b, both] => (*a, *b, *both),
        _ => {
            return Err(Failure::Local(
                "It takes two sets of options, or of files: redline bench compare [OPTIONS] -- A -- B [-- BOTH]".into(),
            ));
        }
    };
    // Options would not begin with a plain word.
    let is_file = |word: &String| {
        word.ends_with(".json") || !word.starts_with('-') && Path::new(word).is_file()
    };
    let are_files = |words: &[String]| !words.is_empty() && words.iter().all(is_file);
    if are_files(a) && are_files(b) {
        options.check_for_files(both)?;
        return Ok(Measured {
            sides: [a, b].map(|files| files.join(", ")).into(),
            pairs: saved(a, b)?,
            share: 1.0,
            looks: false,
            failure: None,
        });
    }
    // Of one side only.
    if let Some(word) = [a, b].concat().iter().find(|word| word.ends_with(".json"))
        && [a, b]
            .iter()
            .any(|words| words.first().is_some_and(|word| !word.starts_with('-')))
    {
        return Err(Failure::Local(format!(
            "\"{word}\" is a saved result: then A and B are files only."
        )));
    }
    let (a, b) = (plan(options, a, both)?, plan(options, b, both)?);
    check_effect(&a, &b, stderr)?;
    let words =
        [&groups[0], &groups[1]].map(|words| origin::shown(words.iter().map(String::as_bytes)));
    let mut sides = Sides::new(a, b, start)?;
    let said: Vec<String> = sides
        .servers()
        .into_iter()
        .zip(words)
        .map(in_words)
        .collect();
    let limit = options
        .pairs
        .map_or(Limit::Time(options.time_max()), Limit::Pairs);
    let mut course = Course::new(limit, sides.pair_takes());
    let mut told = None;
    let mut pairs = Vec::new();
    loop {
        let begin = Instant::now();
        match sides.run(course.b_first(pairs.len())) {
            Ok(pair) => pairs.push(pair),
            Err(failure) if pairs.len() < PAIRS_MIN => return Err(failure),
            Err(failure) => {
                return Ok(Measured {
                    sides: said,
                    share: course.looks.share(pairs.len(), true).unwrap_or(1.0),
                    pairs,
                    looks: options.pairs.is_none(),
                    failure: Some(failure),
                });
            }
        }
        let now = Instant::now();
        let is_last = course.is_last(pairs.len(), now - begin, now);
        let all = matches!(limit, Limit::Pairs(pairs) if pairs < ranks::PAIRS_MIN);
        if all || is_last || told.is_none_or(|told| now - told >= TELL_EVERY) {
            told = Some(now);
            // Progress is informative only; errors of a closed stream are ignored.
            let _ = writeln!(stderr, "{}", progress(&pairs, course.planned()));
        }
        let Some(share) = course.looks.share(pairs.len(), is_last) else {
            continue;
        };
        if is_last || options.is_decided(&options.judge(&pairs, share)?) {
            return Ok(Measured {
                sides: said,
                pairs,
                share,
                looks: options.pairs.is_none(),
                failure: None,
            });
        }
    }
}

/// Returns a side in words: its server, and the options that are its own.
fn in_words((server, words): (String, String)) -> String {
    match words.as_str() {
        "" => server,
        words => format!("{server}; {words}"),
    }
}

/// Rejects an option without effect on either side; without effect on one, it may be meant for the other.
fn check_effect(a: &RunPlan, b: &RunPlan, stderr: &mut dyn Write) -> Result<(), Failure> {
    if let Some(text) = a.idle.iter().find(|text| b.idle.contains(text)) {
        return Err(Failure::Local(text.clone()));
    }
    for (side, plan) in [("A", a), ("B", b)] {
        for text in &plan.idle {
            let _ = writeln!(stderr, "WARNING: {side}: {text}");
        }
    }
    Ok(())
}

/// Returns a line about the newest pair.
fn progress(pairs: &[(Sample, Sample)], planned: Option<usize>) -> String {
    let rate = |sample: &Sample| sample.figure(Metric::Rps).unwrap_or_default();
    let (a, b) = pairs.last().map_or((0.0, 0.0), |(a, b)| (rate(a), rate(b)));
    let of = planned.map_or(String::new(), |planned| format!(" of {planned}"));
    format!("pair {}{of}: A {a:.0} requests/s, B {b:.0}", pairs.len())
}

fn saved(a: &[String], b: &[String]) -> Result<Vec<(Sample, Sample)>, Failure> {
    // Most shells pass a pattern that matches no file unchanged.
    for path in a.iter().chain(b) {
        if !Path::new(path).exists() {
            return Err(Failure::Local(format!("{path}: there is no such file.")));
        }
    }
    if a.len() != b.len() || a.len() < PAIRS_MIN {
        return Err(Failure::Local(format!(
            "There are {} and {} saved results: it takes as many of A as of B, and at least {PAIRS_MIN}.",
            a.len(),
            b.len()
        )));
    }
    let read = |path: &String| {
        let saved = Saved::read(Path::new(path))?;
        match saved.kind {
            Kind::Run => Ok(Sample::of(&saved.result(result::FORMAT)?)),
            kind => Err(Failure::Local(format!(
                "{path}: this is {kind}; what can be compared are results that `redline bench run --json` has left."
            ))),
        }
    };
    let pairs = a.iter().zip(b);
    pairs.map(|(a, b)| Ok((read(a)?, read(b)?))).collect()
}

fn plan(options: &CompareArguments, words: &[String], both: &[String]) -> Result<RunPlan, Failure> {
    let words = words.iter().chain(both).map(String::as_str);
    let mut run = RunArguments::parse_words(words)
        .map_err(|error| Failure::Local(error.render().to_string().trim_end().to_owned()))?;
    if run.output.live {
        return Err(Failure::Local("--live: not in a comparison.".into()));
    }
    if run.output.names_file() {
        return Err(Failure::Local(
            "A comparison has files of its own: --json and --html stand in front of the first --, --csv and --hdr are of one run.".into(),
        ));
    }
    let manner = &mut run.manner;
    if manner.stairs.is_some() {
        return Err(Failure::Local("--stairs: not in a comparison.".into()));
    }
    if options.pairs.is_none() && manner.duration.is_none() && manner.requests.is_none() {
        let is_rate = options
            .metric
            .map_or(manner.rps.is_none(), |metric| !metric.is_rounded());
        manner.duration = Some(if is_rate { SLICE } else { SLICE_OF_PERCENTILES });
    }
    run.plan().map_err(Failure::Local)
}

/// Prints the comparison; returns true if `--fail-if` calls it a failure.
fn report(
    options: &CompareArguments,
    measured: &Measured,
    (started_unix_ms, origin): (u64, Origin),
    stdout: &mut dyn Write,
) -> Result<bool, Failure> {
    let comparison = Comparison {
        started_unix_ms: Some(started_unix_ms),
        origin: Some(origin),
        ..compare(options, measured)?
    };
    let json = options.json.as_deref();
    let mut written = Written::default();
    let taken = [json, options.html.as_deref()];
    if !taken.contains(&Some(Path::new("-"))) {
        written.and(write(Path::new("-"), &text(&comparison), stdout));
    }
    if let Some(path) = json {
        written.and(write_json(path, &comparison, stdout));
    }
    if let Some(path) = &options.html {
        written.and(page(&comparison).and_then(|page| write(path, &page, stdout)));
    }
    written.end(None).map(|()| comparison.failed)
}

fn compare(options: &CompareArguments, measured: &Measured) -> Result<Comparison, Failure> {
    let pairs = &measured.pairs;
    let judged = options.judge(pairs, measured.share)?;
    let figure = |metric: Metric, ratio: Ratio, is_judged: bool| {
        let (a, b) = figures(pairs, metric)?.into_iter().unzip();
        Some(Figure {
            metric,
            is_judged,
            a,
            b,
            ratio: ratio.estimate,
            low: ratio.low,
            high: ratio.high.min(f64::MAX),
        })
    };
    let others = Metric::ALL
        .iter()
        .filter(|metric| judged.iter().all(|(known, _)| known != *metric));
    let others = others.filter_map(|&metric| {
        let ratio = judge::ratio(metric, &figures(pairs, metric)?, options.error())?;
        figure(metric, ratio, false)
    });
    let all = judged
        .iter()
        .filter_map(|&(metric, ratio)| figure(metric, ratio, true));
    let text: Vec<String> = all
        .clone()
        .map(|figure| sentence(&figure, options.confidence, pairs.len(), measured.looks))
        .collect();
    let failed = judged.iter().enumerate().any(|(index, (metric, ratio))| {
        let gate = options.gate(*metric, index == 0);
        gate.is_some_and(|percent| ratio.is_shown() && metric.is_worse(ratio.estimate, percent))
    });
    Ok(Comparison {
        format: FORMAT,
        metric: judged[0].0,
        confidence_percent: options.confidence,
        difference_shown: judged.iter().any(|(_, ratio)| ratio.is_shown()),
        text: text.join("\n"),
        fail_if_slower_percent: options.slower(),
        fail_if_dearer_percent: options.dearer(),
        failed,
        figures: all.clone().chain(others).collect(),
        notes: notes(pairs),
        sides: measured.sides.clone(),
        started_unix_ms: None,
        origin: None,
    })
}

fn sentence(figure: &Figure, confidence: f64, pairs: usize, goes_on: bool) -> String {
    let shown = figure.low > 1.0 || figure.high < 1.0;
    let (name, more, less) = figure.metric.words();
    let change = |ratio: f64| {
        let percent = 100.0 * (ratio - 1.0);
        format!(
            "{:.1} % {}",
            percent.abs(),
            if percent < 0.0 { less } else { more }
        )
    };
    let interval = format!(
        "{confidence} % interval: {} to {}; {pairs} pairs",
        change(figure.low),
        change(figure.high)
    );
    let verb = match figure.metric {
        Metric::Rps => "B does",
        Metric::ServerCpu => "B's server takes",
        _ => "With B it is",
    };
    if shown {
        format!("{name}: {verb} {} ({interval}).", change(figure.ratio))
    } else {
        let mut said = format!("{name}: no difference shown ({interval}).");
        if figure.high / figure.low > WIDE {
            let more = if goes_on {
                "a longer --time-max"
            } else {
                "more --pairs, a longer --duration"
            };
            said += &format!(" That says little: {more} or a quieter machine make it narrower.");
        }
        said
    }
}

/// Returns notes on limits that make the comparison one of something else than the servers.
fn notes(pairs: &[(Sample, Sample)]) -> Vec<String> {
    use crate::load::cause::verdict::Bottleneck;
    let mut notes = Vec::new();
    type Pick = fn(&(Sample, Sample)) -> &Sample;
    let sides: [(&str, Pick); 2] = [("A", |pair| &pair.0), ("B", |pair| &pair.1)];
    for (side, pick) in sides {
        type Is = fn(&Sample) -> bool;
        let spoilt: [(Is, &str); 3] = [
            (
                |sample| sample.bottleneck == Bottleneck::Client,
                "the load generator was the limit: these numbers are not the server's",
            ),
            (
                |sample| sample.bottleneck == Bottleneck::Rate,
                "the rate that was asked for was the limit: compare latencies",
            ),
            (
                |sample| sample.misses_many,
                "many reads found nothing, and a miss costs less than a hit: fill the server first (--load)",
            ),
        ];
        for (is_so, what) in spoilt {
            let count = pairs.iter().filter(|pair| is_so(pick(pair))).count();
            if count > 0 {
                notes.push(format!(
                    "{side}: in {count} of {} runs {what}.",
                    pairs.len()
                ));
            }
        }
        let reasons = pairs
            .iter()
            .filter_map(|pair| pick(pair).ended_early.as_ref());
        let reasons: Vec<&String> = reasons.collect();
        if let Some(reason) = reasons.first() {
            notes.push(format!(
                "{side}: {} of {} results were cut short ({reason}).",
                reasons.len(),
                pairs.len()
            ));
        }
    }
    // Saved results have a description; for options it is not needed.
    let first = pairs.first().and_then(|(a, _)| a.load.as_ref());
    let samples = pairs.iter().flat_map(|(a, b)| [("A", a), ("B", b)]);
    let other = samples
        .filter_map(|(side, sample)| Some((side, sample.load.as_ref()?)))
        .find(|&(_, load)| Some(load) != first);
    if let (Some(first), Some((side, other))) = (first, other) {
        notes.push(format!(
            "Not all results are of the same load: the first of A is of {first}; one of {side} is of {other}."
        ));
    }
    notes
}

/// Returns the comparison as a page: intervals, and a chart of the runs for each figure.
pub fn page(comparison: &Comparison) -> Result<String, Failure> {
    let charts = charts_of(comparison);
    let charts = charts.map_err(|error| Failure::Local(format!("charts: {error}")))?;
    let (head, rows) = cells(comparison);
    let about = About {
        started_unix_ms: comparison.started_unix_ms,
        origin: comparison.origin.as_ref(),
        redline_version: comparison
            .origin
            .as_ref()
            .map(|_| env!("CARGO_PKG_VERSION")),
        ..About::default()
    };
    let main = html! {
        @if !comparison.sides.is_empty() {
            dl.facts { @for (name, side) in ["A", "B"].iter().zip(&comparison.sides) { dt { (name) } dd { (plain(side)) } } }
        }
        div.verdict { @for line in findings(comparison) { p { (plain(&line)) } } }
        h2 { "Means of the runs" }
        (table("Means of the runs", &head, &rows))
    };
    Ok(html::document(
        "redline bench compare",
        &about,
        &main,
        &charts,
    ))
}

fn charts_of(comparison: &Comparison) -> Result<Vec<Chart>, charts::DrawError> {
    fn axes<'a>(title: &'a str, x: &'a str, y: &'a str) -> Axes<'a> {
        Axes {
            title,
            x,
            y,
            logarithmic: false,
            across: Across::Whole,
            joined: false,
        }
    }
    // An interval that excludes nothing has no end that could be drawn.
    let bounded = comparison
        .figures
        .iter()
        .filter(|figure| figure.high < f64::MAX);
    let intervals: Vec<Interval> = bounded
        .map(|figure| Interval {
            name: figure.metric.name().to_owned(),
            low: figure.low,
            at: figure.ratio,
            high: figure.high,
        })
        .collect();
    let title = format!(
        "B / A with its {} % interval",
        comparison.confidence_percent
    );
    let mut charts = vec![charts::intervals(&axes(&title, "B / A", ""), &intervals)?];
    for figure in &comparison.figures {
        let runs = |place: usize, figures: &[f64]| Line {
            name: match comparison.sides.get(place) {
                Some(side) => format!("{}: {side}", ["A", "B"][place]),
                None => ["A", "B"][place].to_owned(),
            },
            points: (1..).map(f64::from).zip(figures.iter().copied()).collect(),
        };
        let both = [runs(0, &figure.a), runs(1, &figure.b)];
        let name = figure.metric.name();
        charts.push(charts::lines(
            &axes(&format!("{name}, run by run"), "pair", name),
            &both,
        )?);
    }
    Ok(charts)
}

/// Returns the table of means: its head, and a row for each figure.
fn cells(comparison: &Comparison) -> (Vec<String>, Vec<Vec<String>>) {
    let mean = |values: &[f64]| values.iter().sum::<f64>() / values.len() as f64;
    let interval = format!("{} % interval", comparison.confidence_percent);
    let head = ["mean of the runs", "A", "B", "B / A", interval.as_str()].map(str::to_owned);
    let rows = comparison.figures.iter().map(|figure| {
        vec![
            figure.metric.name().to_owned(),
            format!("{:.2}", mean(&figure.a)),
            format!("{:.2}", mean(&figure.b)),
            format!("{:.3}", figure.ratio),
            format!("{:.3} to {:.3}", figure.low, figure.high),
        ]
    });
    (head.into(), rows.collect())
}

fn text(comparison: &Comparison) -> String {
    let mut out = String::new();
    let (head, rows) = cells(comparison);
    for row in std::iter::once(&head).chain(&rows) {
        let [name, a, b, ratio, interval] = row.as_slice() else {
            continue;
        };
        let _ = writeln!(out, "{name:<28}{a:>14}{b:>14}{ratio:>10}{interval:>20}");
    }
    out.push('\n');
    for line in findings(comparison) {
        let _ = writeln!(out, "{line}");
    }
    out
}

/// Returns the findings and notes, a line each.
fn findings(comparison: &Comparison) -> Vec<String> {
    let mut out = vec![comparison.text.clone()];
    let judged = comparison
        .figures
        .iter()
        .filter(|figure| figure.is_judged)
        .count();
    if judged > 1 {
        out.push(format!(
            "Both of these are sure to {} % together.",
            comparison.confidence_percent
        ));
    }
    out.extend(comparison.notes.iter().cloned());
    let said = if comparison.failed {
        "worse"
    } else {
        "not shown to be worse"
    };
    let slower = comparison
        .fail_if_slower_percent
        .map(|percent| (percent, ""));
    let dearer = comparison
        .fail_if_dearer_percent
        .map(|percent| (percent, " of CPU time"));
    let gates: Vec<String> = slower
        .into_iter()
        .chain(dearer)
        .map(|(percent, of)| format!("by {percent} %{of} or more"))
        .collect();
    if !gates.is_empty() {
        out.push(format!("B is {said} {}.", gates.join(", or ")));
    }
    out
}

impl Gate {
    /// Parses `slower=5%` or `dearer=5%`.
    fn parse(text: &str) -> Result<Gate, String> {
        let gate = text.split_once('=').and_then(|(what, share)| {
            let percent = percent(share).ok()?;
            match what {
                "slower" => Some(Gate::Slower(percent)),
                "dearer" => Some(Gate::Dearer(percent)),
                _ => None,
            }
        });
        gate.ok_or_else(|| "it is slower=PERCENT% or dearer=PERCENT%, as in slower=5%".to_owned())
    }
}

/// Parses `5%`, or `5`.
fn percent(text: &str) -> Result<f64, String> {
    let percent = text.strip_suffix('%').unwrap_or(text).parse::<f64>().ok();
    percent
        .filter(|percent| (0.0..100.0).contains(percent))
        .ok_or_else(|| "it is 0 to less than 100 percent, as in 2%".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_parser_is_consistent() {
        Head::command().debug_assert();
    }

    #[test]
    fn a_share_is_read_as_it_is_written() {
        assert_eq!(Gate::parse("slower=5%"), Ok(Gate::Slower(5.0)));
        assert_eq!(Gate::parse("dearer=2.5"), Ok(Gate::Dearer(2.5)));
        for wrong in [
            "5%",
            "slower=",
            "slower=x%",
            "slower=-1%",
            "slower=100%",
            "faster=5%",
        ] {
            assert!(Gate::parse(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn worse_is_counted_as_the_sentence_counts_it() {
        assert!(Metric::P99.is_worse(1.05, 5.0) && !Metric::P99.is_worse(1.049, 5.0));
        assert!(Metric::Rps.is_worse(0.95, 5.0) && !Metric::Rps.is_worse(0.951, 5.0));
        assert!(!Metric::P99.is_worse(0.5, 5.0) && !Metric::Rps.is_worse(2.0, 5.0));
    }

    #[test]
    fn the_sentence_says_which_way() {
        let figure = |metric, ratio: f64| Figure {
            metric,
            is_judged: true,
            a: vec![1.0],
            b: vec![ratio],
            ratio,
            low: ratio - 0.01,
            high: ratio + 0.01,
        };
        assert_eq!(
            sentence(&figure(Metric::Rps, 0.9), 99.0, 10, false),
            "requests/s: B does 10.0 % fewer requests/s (99 % interval: 11.0 % fewer requests/s to 9.0 % fewer \
             requests/s; 10 pairs)."
        );
        let longer = sentence(&figure(Metric::P99, 1.2), 99.0, 10, false);
        assert!(
            longer.starts_with("p99 of the response time: With B it is 20.0 % longer"),
            "{longer}"
        );
        let none = sentence(&figure(Metric::Rps, 1.0), 95.0, 5, false);
        assert!(
            none.contains("no difference shown (95 % interval: 1.0 % fewer"),
            "{none}"
        );
    }
}
