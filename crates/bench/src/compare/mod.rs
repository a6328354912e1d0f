//! `redline bench compare`: is B faster than A, and how sure is that?
//!
//! Knows `run` as something that can be done again and again; the arithmetic is in `bootstrap`.

mod bootstrap;

use std::fmt::Write as _;
use std::io::Write;
use std::path::{Path, PathBuf};

use clap::error::ErrorKind;
use clap::{Args, Parser};
use serde::{Deserialize, Serialize};

use crate::failure::Failure;
use crate::html;
use crate::html::charts::{self, Axes, Line};
use crate::run::arguments::{Arguments, Command, RunPlan, one_to_stdout};
use crate::run::execute::Prepared;
use crate::run::result::RunResult;
use crate::run::{Written, can_be_written, read_result, write, write_json};
use crate::{StartEmbedded, Streams};
use bootstrap::PAIRS_MIN;

/// Exit code of a comparison that `--fail-if` calls a failure.
pub const FAILED_COMPARISON: u8 = 3;

/// Says whether one server, or one set of options, is faster than another, and how sure that is
#[derive(Debug, Parser)]
#[command(name = "redline bench compare", disable_help_subcommand = true, after_help = FORM,
          override_usage = "redline bench compare [OPTIONS] -- A -- B [-- BOTH]")]
struct Head {
    #[command(flatten)]
    options: CompareArguments,
}

/// Said before the parser's own words when it meets an option of `run`.
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
    /// Pairs of runs, at least 3; A and B take turns in who comes first
    #[arg(long, default_value_t = 10, value_name = "N")]
    pairs: usize,
    /// How sure the interval is, in percent
    #[arg(long, default_value_t = 99.0, value_name = "PERCENT")]
    confidence: f64,
    /// What is compared [default: rps; in an open loop p99]
    #[arg(long, value_name = "FIGURE")]
    metric: Option<Metric>,
    /// Ends with exit code 3 if B is shown to be worse than A by at least so much: slower=5%
    #[arg(long, value_name = "slower=PERCENT%", value_parser = slower)]
    fail_if: Option<f64>,
    /// Writes the comparison as JSON (- for standard output, which then holds nothing else)
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
    /// Writes a page with charts: one HTML file that needs no other
    #[arg(long, value_name = "FILE")]
    html: Option<PathBuf>,
}

/// A figure of a run that can be compared.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Metric {
    /// Requests a second
    Rps,
    /// Mean response time
    Mean,
    /// Median response time
    P50,
    /// 99th percentile of the response time
    P99,
    /// 99.9th percentile of the response time
    #[value(name = "p99.9")]
    P999,
    /// CPU time of the server for each request
    ServerCpu,
}

impl Metric {
    const ALL: [Metric; 6] = [
        Metric::Rps,
        Metric::Mean,
        Metric::P50,
        Metric::P99,
        Metric::P999,
        Metric::ServerCpu,
    ];

    fn of(self, result: &RunResult) -> Option<f64> {
        let response = &result.response_us;
        let figure = match self {
            Metric::Rps => result.achieved_rps,
            Metric::Mean => response.mean,
            Metric::P50 => response.p50 as f64,
            Metric::P99 => response.p99 as f64,
            Metric::P999 => response.p99_9 as f64,
            Metric::ServerCpu => {
                // Of several servers, what all of them took.
                let parties = result.parties.iter();
                let servers = parties.filter(|party| party.role == "server");
                servers
                    .map(|one| one.user_us_per_request + one.system_us_per_request)
                    .sum()
            }
        };
        (figure > 0.0).then_some(figure)
    }

    /// Whether B is worse by so many percent of A, as the sentence counts them.
    fn is_worse(self, ratio: f64, percent: f64) -> bool {
        match self {
            Metric::Rps => ratio <= 1.0 - percent / 100.0,
            _ => ratio >= 1.0 + percent / 100.0,
        }
    }

    /// Whether it comes out of a histogram.
    fn is_rounded(self) -> bool {
        matches!(self, Metric::P50 | Metric::P99 | Metric::P999)
    }

    fn words(self) -> (&'static str, &'static str, &'static str) {
        // name, more, less
        match self {
            Metric::Rps => ("requests/s", "more requests/s", "fewer requests/s"),
            Metric::Mean => ("mean response time", "longer", "shorter"),
            Metric::P50 => ("median response time", "longer", "shorter"),
            Metric::P99 => ("p99 of the response time", "longer", "shorter"),
            Metric::P999 => ("p99.9 of the response time", "longer", "shorter"),
            Metric::ServerCpu => ("server's CPU per request", "more", "less"),
        }
    }
}

/// What a comparison came to: the schema of its JSON file.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Comparison {
    /// Changes when a field changes its meaning or goes away.
    pub format: u32,
    /// The figure that decides.
    pub metric: Metric,
    /// How sure the intervals are, in percent.
    pub confidence_percent: f64,
    /// Whether a difference of that figure is shown: the interval excludes 1.
    pub difference_shown: bool,
    /// The finding, for people.
    pub text: String,
    /// By how much B has to be worse for exit code 3, in percent.
    pub fail_if_slower_percent: Option<f64>,
    /// Whether it is.
    pub failed: bool,
    /// Each figure.
    pub figures: Vec<Figure>,
    /// Which of A and B had the same limit in all runs, and which.
    pub notes: Vec<String>,
}

/// One figure of both.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Figure {
    /// Which.
    pub metric: Metric,
    /// Of A, run by run.
    pub a: Vec<f64>,
    /// Of B, likewise.
    pub b: Vec<f64>,
    /// B / A: the geometric mean over pairs.
    pub ratio: f64,
    /// The interval's lower end.
    pub low: f64,
    /// The interval's upper end.
    pub high: f64,
}

const FORMAT: u32 = 1;
/// An interval whose ends are this far apart leaves room for differences that matter to everybody.
const WIDE: f64 = 1.25;
/// The same runs give the same interval.
const SEED: u64 = 1;

/// Runs `redline bench compare` with the arguments behind that; returns the exit code.
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
                // A closed stream cannot be told about itself.
                let _ = stderr.write_all(MISPLACED.as_bytes());
            }
            return crate::run::say(&error, streams);
        }
    };
    let groups: Vec<&[String]> = groups.collect();
    let compared = check(&options)
        .and_then(|()| pairs(&options, &groups, streams.stderr, start))
        .and_then(|(pairs, ended)| {
            let failed = report(&options, &pairs, streams.stdout)?;
            ended.map_or(Ok(failed), Err)
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
    if options.pairs < PAIRS_MIN {
        return wrong("--pairs is at least 3.");
    }
    if !(50.0..100.0).contains(&options.confidence) {
        return wrong("--confidence is 50 to less than 100 percent.");
    }
    let files = [options.json.as_ref(), options.html.as_ref()];
    one_to_stdout(files).map_err(Failure::Local)?;
    can_be_written(files.map(|path| path.map(PathBuf::as_path)))
}

/// Results in pairs: of A, and of B.
type Pairs = Vec<(RunResult, RunResult)>;

/// Runs them; with Ctrl-C or a failure, those that there are by then, if they are enough.
fn pairs(
    options: &CompareArguments,
    groups: &[&[String]],
    stderr: &mut dyn Write,
    start: Option<StartEmbedded<'_>>,
) -> Result<(Pairs, Option<Failure>), Failure> {
    let (a, b, both) = match groups {
        [a, b] => (*a, *b, &[][..]),
        [a, b, both] => (*a, *b, *both),
        _ => {
            return Err(Failure::Local(
                "It takes two sets of options, or of files: redline bench compare [OPTIONS] -- A -- B [-- BOTH]".into(),
            ));
        }
    };
    let are_files =
        |words: &[String]| !words.is_empty() && words.iter().all(|word| word.ends_with(".json"));
    if are_files(a) && are_files(b) {
        return saved(a, b).map(|pairs| (pairs, None));
    }
    // Of one side only, or one of them with another name: options would not begin with a word that is none.
    if let Some(word) = [a, b].concat().iter().find(|word| word.ends_with(".json"))
        && [a, b]
            .iter()
            .any(|words| words.first().is_some_and(|word| !word.starts_with('-')))
    {
        return Err(Failure::Local(format!(
            "\"{word}\" is a saved result: then A and B are files only, all of them named .json."
        )));
    }
    let (a, b) = (plan(a, both)?, plan(b, both)?);
    let mut sides = [Side::new(a, start)?, Side::new(b, start)?];
    // Signals come to one place: that of the side which was made first, and then of the one that runs.
    let mut listens = 0;
    let mut pairs = Vec::new();
    for pair in 0..options.pairs {
        // A B, B A, A B, ...: what gets better or worse with time is shared evenly.
        let order = if pair % 2 == 0 { [0, 1] } else { [1, 0] };
        let mut results = [None, None];
        for index in order {
            if index != listens {
                let [a, b] = &mut sides;
                a.prepared.swap_control(&mut b.prepared);
                listens = index;
            }
            results[index] = match sides[index].run() {
                Err(failure) if pairs.len() >= PAIRS_MIN => return Ok((pairs, Some(failure))),
                result => Some(result?),
            };
        }
        if let [Some(a), Some(b)] = results {
            // Progress is for who looks; a closed stream is nobody.
            let _ = writeln!(
                stderr,
                "pair {} of {}: A {:.0} requests/s, B {:.0}",
                pair + 1,
                options.pairs,
                a.achieved_rps,
                b.achieved_rps
            );
            pairs.push((a, b));
        }
    }
    Ok((pairs, None))
}

fn saved(a: &[String], b: &[String]) -> Result<Pairs, Failure> {
    // A pattern that fits no file is taken as it stands by most shells.
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
    let pairs = a.iter().zip(b);
    pairs
        .map(|(a, b)| Ok((read_result(Path::new(a))?, read_result(Path::new(b))?)))
        .collect()
}

fn plan(words: &[String], both: &[String]) -> Result<RunPlan, Failure> {
    let words = words.iter().chain(both).map(String::as_str);
    let words = ["redline bench", "run"].into_iter().chain(words);
    let arguments = Arguments::try_parse_from(words)
        .map_err(|error| Failure::Local(error.render().to_string().trim_end().to_owned()))?;
    match arguments.command {
        Command::Run(run) if run.output.live => {
            Err(Failure::Local("--live: not in a comparison.".into()))
        }
        Command::Run(run) if run.output.names_file() => Err(Failure::Local(
            "A comparison has files of its own: --json and --html stand in front of the first --, --csv and --hdr are of one run.".into(),
        )),
        Command::Run(run) => run.plan().map_err(Failure::Local),
        _ => Err(Failure::Local("Only runs can be compared.".into())),
    }
}

/// One of the two that are compared.
struct Side {
    plan: RunPlan,
    prepared: Prepared,
}

impl Side {
    fn new(plan: RunPlan, start: Option<StartEmbedded<'_>>) -> Result<Side, Failure> {
        let prepared = Prepared::new(&plan, start)?;
        Ok(Side { plan, prepared })
    }

    fn run(&mut self) -> Result<RunResult, Failure> {
        let finished = self.prepared.run(&self.plan)?;
        // What was filled is filled.
        self.plan.load = None;
        match finished.failure {
            Some(failure) => Err(failure),
            None => Ok(finished.result),
        }
    }
}

/// Prints the comparison; whether `--fail-if` calls it a failure.
fn report(
    options: &CompareArguments,
    pairs: &Pairs,
    stdout: &mut dyn Write,
) -> Result<bool, Failure> {
    let comparison = compare(options, pairs)?;
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

fn compare(options: &CompareArguments, pairs: &Pairs) -> Result<Comparison, Failure> {
    let figure = |metric: Metric| {
        let figures: Option<Vec<(f64, f64)>> = pairs
            .iter()
            .map(|(a, b)| metric.of(a).zip(metric.of(b)))
            .collect();
        let figures = figures?;
        let confidence = options.confidence / 100.0;
        let ratio = bootstrap::ratio(&figures, metric.is_rounded(), confidence, SEED)?;
        let (a, b) = figures.into_iter().unzip();
        Some((
            Figure {
                metric,
                a,
                b,
                ratio: ratio.estimate,
                low: ratio.low,
                high: ratio.high,
            },
            ratio.is_shown(),
        ))
    };
    let open = pairs
        .iter()
        .any(|(a, b)| a.settings.offered_rps.is_some() || b.settings.offered_rps.is_some());
    let metric = options
        .metric
        .unwrap_or(if open { Metric::P99 } else { Metric::Rps });
    let (decisive, shown) = figure(metric).ok_or_else(|| {
        Failure::Local(format!("{} is not known of every run.", metric.words().0))
    })?;
    let failed = options
        .fail_if
        .is_some_and(|percent| shown && metric.is_worse(decisive.ratio, percent));
    Ok(Comparison {
        format: FORMAT,
        metric,
        confidence_percent: options.confidence,
        difference_shown: shown,
        text: sentence(&decisive, shown, options.confidence, pairs.len()),
        fail_if_slower_percent: options.fail_if,
        failed,
        figures: Metric::ALL
            .iter()
            .filter_map(|&metric| figure(metric).map(|(figure, _)| figure))
            .collect(),
        notes: notes(pairs),
    })
}

fn sentence(figure: &Figure, shown: bool, confidence: f64, pairs: usize) -> String {
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
            said += " That says little: more --pairs, a longer --duration or a quieter machine make it narrower.";
        }
        said
    }
}

/// Limits that make the comparison one of something else than the servers.
fn notes(pairs: &Pairs) -> Vec<String> {
    use crate::cause::verdict::Bottleneck;
    let mut notes = Vec::new();
    type Pick = fn(&(RunResult, RunResult)) -> &RunResult;
    let sides: [(&str, Pick); 2] = [("A", |pair| &pair.0), ("B", |pair| &pair.1)];
    for (side, pick) in sides {
        for (bottleneck, what) in [
            (
                Bottleneck::Client,
                "the load generator was the limit: these numbers are not the server's",
            ),
            (
                Bottleneck::Rate,
                "the rate that was asked for was the limit: compare latencies",
            ),
        ] {
            let count = pairs
                .iter()
                .filter(|pair| pick(pair).verdict.bottleneck == bottleneck)
                .count();
            if count > 0 {
                notes.push(format!(
                    "{side}: in {count} of {} runs {what}.",
                    pairs.len()
                ));
            }
        }
    }
    notes
}

/// The comparison as a page with a chart for each figure.
pub fn page(comparison: &Comparison) -> Result<String, Failure> {
    let mut charts = Vec::new();
    for figure in &comparison.figures {
        let runs = |name: &str, figures: &[f64]| Line {
            name: name.to_owned(),
            points: (1..).map(f64::from).zip(figures.iter().copied()).collect(),
        };
        let axes = Axes {
            title: name(figure.metric),
            x: "pair",
            y: "",
            logarithmic: false,
            percentiles: false,
        };
        let both = [runs("A", &figure.a), runs("B", &figure.b)];
        let chart = charts::lines(&axes, &both);
        charts.push(chart.map_err(|error| Failure::Local(format!("charts: {error}")))?);
    }
    Ok(html::page_of_text(
        "redline bench compare",
        &text(comparison),
        &charts,
    ))
}

fn name(metric: Metric) -> &'static str {
    match metric {
        Metric::Rps => "requests/s",
        Metric::Mean => "mean response time, us",
        Metric::P50 => "p50, us",
        Metric::P99 => "p99, us",
        Metric::P999 => "p99.9, us",
        Metric::ServerCpu => "server's CPU, us/request",
    }
}

fn text(comparison: &Comparison) -> String {
    let mut out = String::new();
    let mean = |values: &[f64]| values.iter().sum::<f64>() / values.len() as f64;
    let _ = writeln!(
        out,
        "{:<28}{:>14}{:>14}{:>10}{:>20}",
        "mean of the runs",
        "A",
        "B",
        "B / A",
        format!("{} % interval", comparison.confidence_percent)
    );
    for figure in &comparison.figures {
        let _ = writeln!(
            out,
            "{:<28}{:>14.2}{:>14.2}{:>10.3}{:>20}",
            name(figure.metric),
            mean(&figure.a),
            mean(&figure.b),
            figure.ratio,
            format!("{:.3} to {:.3}", figure.low, figure.high)
        );
    }
    let _ = writeln!(out, "\n{}", comparison.text);
    for note in &comparison.notes {
        let _ = writeln!(out, "{note}");
    }
    if let Some(percent) = comparison.fail_if_slower_percent {
        let said = if comparison.failed {
            "worse"
        } else {
            "not shown to be worse"
        };
        let _ = writeln!(out, "B is {said} by {percent} % or more.");
    }
    out
}

/// Reads `slower=5%`.
fn slower(text: &str) -> Result<f64, String> {
    let percent = text
        .strip_prefix("slower=")
        .map(|percent| percent.strip_suffix('%').unwrap_or(percent))
        .and_then(|percent| percent.parse::<f64>().ok())
        .filter(|percent| (0.0..100.0).contains(percent));
    percent.ok_or_else(|| "it is slower=PERCENT%, as in slower=5%".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_parser_is_consistent() {
        use clap::CommandFactory;
        Head::command().debug_assert();
    }

    #[test]
    fn a_share_is_read_as_it_is_written() {
        assert_eq!(slower("slower=5%"), Ok(5.0));
        assert_eq!(slower("slower=2.5"), Ok(2.5));
        for wrong in [
            "5%",
            "slower=",
            "slower=x%",
            "slower=-1%",
            "slower=100%",
            "faster=5%",
        ] {
            assert!(slower(wrong).is_err(), "{wrong}");
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
            a: vec![1.0],
            b: vec![ratio],
            ratio,
            low: ratio - 0.01,
            high: ratio + 0.01,
        };
        assert_eq!(
            sentence(&figure(Metric::Rps, 0.9), true, 99.0, 10),
            "requests/s: B does 10.0 % fewer requests/s (99 % interval: 11.0 % fewer requests/s to 9.0 % fewer \
             requests/s; 10 pairs)."
        );
        let longer = sentence(&figure(Metric::P99, 1.2), true, 99.0, 10);
        assert!(
            longer.starts_with("p99 of the response time: With B it is 20.0 % longer"),
            "{longer}"
        );
        let none = sentence(&figure(Metric::Rps, 1.0), false, 95.0, 5);
        assert!(
            none.contains("no difference shown (95 % interval: 1.0 % fewer"),
            "{none}"
        );
    }
}
