//! The text of reports and live lines, from finished figures.
//!
//! Pure: no clock, no socket, no stream. The forms are those of redis-benchmark, so that parsers of its output can read
//! ours; deliberate differences are in `docs/bench-differences.md`.

use std::fmt::{self, Write};
use std::time::Duration;

use hdrhistogram::Histogram;

use crate::load::probe::ServerConfig;
use crate::redis_benchmark::compat::Form;
use crate::redis_benchmark::options::Output;

/// Result of one test.
pub struct Measured<'a> {
    /// Name of the test.
    pub title: &'a str,
    /// Requests answered.
    pub finished: u64,
    /// Number of requested replies; more than `finished` if the run broke off.
    pub wanted: u64,
    /// Time from the first write to the last reply.
    pub elapsed: Duration,
    /// Latencies in microseconds.
    pub latency: &'a Histogram<u64>,
}

/// Settings that are common to all tests of a run.
pub struct Setting {
    /// Old or new shape.
    pub form: Form,
    /// `-q`, `--csv` or neither.
    pub output: Output,
    /// Number of connections.
    pub clients: usize,
    /// The figure on the payload line: `-d`, or the length of a custom command.
    pub payload_bytes: usize,
    /// `-k`.
    pub keep_alive: bool,
    /// The server's configuration, if it reported it.
    pub server: Option<ServerConfig>,
    /// The configuration that each master of a cluster reported, in their order; `None`: it is no cluster.
    pub masters: Option<Vec<Option<ServerConfig>>>,
    /// `--threads` as asked for, 0 if not.
    pub threads: usize,
    /// Description of the embedded server, if it is the target.
    pub embedded: Option<String>,
    /// Decimals of the classic latency lines.
    pub classic_decimals: u8,
}

impl Measured<'_> {
    fn rate(&self) -> f64 {
        per_second(self.finished, self.elapsed)
    }

    fn is_partial(&self) -> bool {
        self.finished < self.wanted
    }
}

/// Returns the requests per second; 0 without elapsed time.
pub fn per_second(requests: u64, elapsed: Duration) -> f64 {
    if elapsed.is_zero() {
        0.0
    } else {
        requests as f64 / elapsed.as_secs_f64()
    }
}

/// Returns the first line of `--csv` output; the old form had none.
pub fn csv_header(form: Form) -> &'static str {
    match form {
        Form::Classic => "",
        Form::Histogram => {
            "\"test\",\"rps\",\"avg_latency_ms\",\"min_latency_ms\",\"p50_latency_ms\",\
             \"p95_latency_ms\",\"p99_latency_ms\",\"max_latency_ms\"\n"
        }
    }
}

/// Returns the report of one test. `live` is the current live line, which the report replaces.
pub fn report(setting: &Setting, run: &Measured<'_>, live: &LiveLine) -> String {
    let mut out = String::new();
    let written = match (setting.form, setting.output) {
        (form, Output::Csv) => csv(&mut out, form, run),
        (form, Output::Quiet) => quiet(&mut out, form, run, live),
        (Form::Classic, Output::Normal) => classic(&mut out, setting, run),
        (Form::Histogram, Output::Normal) => normal(&mut out, setting, run, live),
    };
    written.expect("writing to a String does not fail");
    out
}

/// The line that is rewritten while a test runs.
#[derive(Default)]
pub struct LiveLine {
    /// Bytes last printed, to be blanked before the next output.
    width: usize,
}

/// Rates and mean latencies of the last interval and of the whole test so far.
pub struct Sample {
    /// Requests per second since the last sample.
    pub rate: f64,
    /// Requests per second since the start.
    pub overall_rate: f64,
    /// Mean milliseconds since the last sample; NaN if nothing was answered.
    pub latency_ms: f64,
    /// Mean milliseconds since the start; NaN if nothing was answered.
    pub overall_latency_ms: f64,
}

impl LiveLine {
    /// Returns the text that replaces the last sample by `sample`.
    pub fn update(&mut self, form: Form, title: &str, sample: &Sample) -> String {
        match form {
            Form::Classic => format!("{title}: {:.2}\r", sample.overall_rate),
            Form::Histogram => {
                let line = format!(
                    "{title}: rps={:.1} (overall: {:.1}) avg_msec={} (overall: {})\r",
                    sample.rate,
                    sample.overall_rate,
                    Mean(sample.latency_ms),
                    Mean(sample.overall_latency_ms),
                );
                let text = format!("{}{line}", self.blanked());
                self.width = line.len();
                text
            }
        }
    }

    /// Returns the text that clears the line if no report follows it.
    pub fn ended(&self) -> String {
        if self.width == 0 {
            String::new()
        } else {
            self.blanked().to_string()
        }
    }

    /// Returns the text that blanks the line and returns to its start.
    fn blanked(&self) -> Blank {
        Blank(self.width)
    }
}

struct Blank(usize);

impl fmt::Display for Blank {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:>width$}\r", " ", width = self.0)
    }
}

/// A mean that may not exist yet, formatted as by C's printf.
struct Mean(f64);

impl fmt::Display for Mean {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.0.is_nan() {
            f.write_str("nan")
        } else {
            write!(f, "{:.3}", self.0)
        }
    }
}

fn ms(microseconds: u64) -> f64 {
    microseconds as f64 / 1000.0
}

struct Summary {
    avg: f64,
    min: f64,
    p50: f64,
    p95: f64,
    p99: f64,
    max: f64,
}

impl Summary {
    fn of(latency: &Histogram<u64>) -> Summary {
        let at = |quantile| ms(latency.value_at_quantile(quantile).min(latency.max()));
        Summary {
            avg: latency.mean() / 1000.0,
            min: ms(latency.min()),
            p50: at(0.5),
            p95: at(0.95),
            p99: at(0.99),
            max: ms(latency.max()),
        }
    }
}

fn csv(out: &mut String, form: Form, run: &Measured<'_>) -> fmt::Result {
    let (title, rate) = (run.title, run.rate());
    match form {
        Form::Classic => writeln!(out, "\"{title}\",\"{rate:.2}\""),
        Form::Histogram => {
            let Summary {
                avg,
                min,
                p50,
                p95,
                p99,
                max,
            } = Summary::of(run.latency);
            writeln!(
                out,
                "\"{title}\",\"{rate:.2}\",\"{avg:.3}\",\"{min:.3}\",\"{p50:.3}\",\"{p95:.3}\",\"{p99:.3}\",\"{max:.3}\""
            )
        }
    }
}

fn quiet(out: &mut String, form: Form, run: &Measured<'_>, live: &LiveLine) -> fmt::Result {
    if form == Form::Histogram {
        write!(out, "{}", live.blanked())?;
    }
    write!(out, "{}: {:.2} requests per second", run.title, run.rate())?;
    if form == Form::Histogram {
        write!(out, ", p50={:.3} msec", Summary::of(run.latency).p50)?;
    }
    if run.is_partial() {
        write!(
            out,
            " (partial: {} of {} requests)",
            run.finished, run.wanted
        )?;
    }
    writeln!(out)
}

/// Returns the lines about the test and its setting, which both long forms share.
fn heading(out: &mut String, setting: &Setting, run: &Measured<'_>) -> fmt::Result {
    writeln!(out, "====== {} ======", run.title)?;
    writeln!(
        out,
        "  {} requests completed in {:.2} seconds",
        run.finished,
        run.elapsed.as_secs_f64()
    )?;
    if run.is_partial() {
        writeln!(
            out,
            "  partial: {} of {} requests",
            run.finished, run.wanted
        )?;
    }
    writeln!(out, "  {} parallel clients", setting.clients)?;
    writeln!(out, "  {} bytes payload", setting.payload_bytes)?;
    writeln!(out, "  keep alive: {}", u8::from(setting.keep_alive))?;
    if let Some(server) = &setting.embedded {
        writeln!(out, "  embedded server: {server}")?;
    }
    Ok(())
}

fn normal(out: &mut String, setting: &Setting, run: &Measured<'_>, live: &LiveLine) -> fmt::Result {
    write!(out, "{}", live.blanked())?;
    heading(out, setting, run)?;
    if let Some(masters) = &setting.masters {
        writeln!(out, "  cluster mode: yes ({} masters)", masters.len())?;
        for (place, config) in masters.iter().enumerate() {
            let Some(config) = config else { continue };
            let save = if config.save.is_empty() {
                "NONE"
            } else {
                &config.save
            };
            writeln!(out, "  node [{place}] configuration:")?;
            writeln!(out, "    save: {save}")?;
            writeln!(out, "    appendonly: {}", config.appendonly)?;
        }
    } else if let Some(server) = &setting.server {
        writeln!(out, "  host configuration \"save\": {}", server.save)?;
        writeln!(
            out,
            "  host configuration \"appendonly\": {}",
            server.appendonly
        )?;
    }
    writeln!(
        out,
        "  multi-thread: {}",
        if setting.threads > 0 { "yes" } else { "no" }
    )?;
    if setting.threads > 0 {
        writeln!(out, "  threads: {}", setting.threads)?;
    }

    writeln!(out, "\nLatency by percentile distribution:")?;
    for line in percentile_distribution(run.latency) {
        writeln!(out, "{line}")?;
    }
    writeln!(out, "\nCumulative distribution of latencies:")?;
    for line in cumulative_distribution(run.latency) {
        writeln!(out, "{line}")?;
    }

    let Summary {
        avg,
        min,
        p50,
        p95,
        p99,
        max,
    } = Summary::of(run.latency);
    writeln!(out, "\nSummary:")?;
    writeln!(
        out,
        "  throughput summary: {:.2} requests per second",
        run.rate()
    )?;
    writeln!(out, "  latency summary (msec):")?;
    writeln!(
        out,
        "    {:>9} {:>9} {:>9} {:>9} {:>9} {:>9}",
        "avg", "min", "p50", "p95", "p99", "max"
    )?;
    writeln!(
        out,
        "    {avg:9.3} {min:9.3} {p50:9.3} {p95:9.3} {p99:9.3} {max:9.3}"
    )
}

/// One line of either distribution.
#[derive(Debug, PartialEq)]
struct Step {
    percent: f64,
    /// Value in microseconds.
    value: u64,
    count: u64,
}

impl fmt::Display for Step {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Step {
            percent,
            value,
            count,
        } = self;
        write!(
            f,
            "{percent:3.3}% <= {:.3} milliseconds (cumulative count {count})",
            ms(*value)
        )
    }
}

/// Returns the values with the count up to and including each, ascending.
fn cumulative(latency: &Histogram<u64>) -> impl Iterator<Item = (u64, u64)> {
    latency.iter_recorded().scan(0, |total, bucket| {
        *total += bucket.count_since_last_iteration();
        Some((bucket.value_iterated_to(), *total))
    })
}

/// Returns the value at 0 %, at half of what is left, at half of that and so on; the last one twice, as HDR printouts do.
fn percentile_distribution(latency: &Histogram<u64>) -> Vec<Step> {
    let total = latency.len();
    let mut steps = Vec::new();
    let mut level = 0.0;
    for (value, count) in cumulative(latency) {
        let reached = 100.0 * count as f64 / total as f64;
        if level > reached {
            continue;
        }
        steps.push(Step {
            percent: level,
            value: latency.highest_equivalent(value),
            count,
        });
        while level <= reached && count < total {
            level += (100.0 - level) / 2.0;
        }
    }
    let value = latency.highest_equivalent(latency.max());
    steps.push(Step {
        percent: 100.0,
        value,
        count: total,
    });
    steps
}

/// Returns the counts up to each 0.1 ms, from 2 ms on up to each 1 ms, without repetitions.
fn cumulative_distribution(latency: &Histogram<u64>) -> Vec<Step> {
    const FINE: u64 = 100;
    const COARSE: u64 = 1000;
    const FINE_UP_TO: u64 = 2000;

    let total = latency.len();
    let mut steps: Vec<Step> = Vec::new();
    let mut put = |bound: u64, count: u64| {
        let percent = if total == 0 {
            100.0
        } else {
            100.0 * count as f64 / total as f64
        };
        let step = Step {
            percent,
            value: latency.highest_equivalent(bound),
            count,
        };
        match steps.last_mut() {
            Some(last) if last.value == step.value => *last = step,
            _ => steps.push(step),
        }
    };
    put(FINE, 0);
    for (value, count) in cumulative(latency) {
        let lowest = latency.lowest_equivalent(value);
        let width = if lowest <= FINE_UP_TO { FINE } else { COARSE };
        put(lowest.div_ceil(width) * width, count);
    }
    steps
}

/// Writes the form before 6.2: at each new millisecond (or `--precision` decimals of one) the share answered by then.
fn classic(out: &mut String, setting: &Setting, run: &Measured<'_>) -> fmt::Result {
    heading(out, setting, run)?;
    writeln!(out)?;
    let total = run.latency.len();
    let mut decimals = setting.classic_decimals.min(3);
    let (mut current, mut below) = (0, 0);
    let line = |out: &mut String, count: u64, current: u64, decimals: u8| {
        let percent = 100.0 * count as f64 / total as f64;
        let value = current as f64 / 10f64.powi(decimals.into());
        writeln!(
            out,
            "{percent:.2}% <= {value:.*} milliseconds",
            usize::from(decimals)
        )
    };
    let mut shown = 0;
    for (value, count) in cumulative(run.latency) {
        let value = run.latency.lowest_equivalent(value);
        if value >= 2000 {
            decimals = 0;
        }
        let step = value / 10u64.pow(u32::from(3 - decimals));
        if step != current {
            current = step;
            shown = below + 1;
            line(out, shown, current, decimals)?;
        }
        below = count;
    }
    if shown != total {
        line(out, total, current, decimals)?;
    }
    writeln!(out, "{:.2} requests per second\n", run.rate())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn histogram(values: &[(u64, u64)]) -> Histogram<u64> {
        let mut latency = Histogram::new_with_bounds(1, 3_600_000_000, 3).unwrap();
        for &(value, count) in values {
            latency.record_n(value, count).unwrap();
        }
        latency
    }

    fn setting(form: Form, output: Output) -> Setting {
        Setting {
            form,
            output,
            clients: 50,
            payload_bytes: 3,
            keep_alive: true,
            server: Some(ServerConfig {
                save: String::new(),
                appendonly: "no".into(),
            }),
            masters: None,
            threads: 0,
            embedded: None,
            classic_decimals: 0,
        }
    }

    fn measured(latency: &Histogram<u64>) -> Measured<'_> {
        let finished = latency.len();
        Measured {
            title: "SET",
            finished,
            wanted: finished,
            elapsed: Duration::from_millis(1386),
            latency,
        }
    }

    const LATENCIES: [(u64, u64); 8] = [
        (15, 30),
        (23, 46),
        (39, 14),
        (55, 4),
        (103, 3),
        (311, 2),
        (319, 1),
        (2500, 100),
    ];

    #[test]
    fn the_normal_report() {
        let latency = histogram(&LATENCIES);
        let text = report(
            &setting(Form::Histogram, Output::Normal),
            &measured(&latency),
            &LiveLine::default(),
        );
        let expected = " \r====== SET ======
  200 requests completed in 1.39 seconds
  50 parallel clients
  3 bytes payload
  keep alive: 1
  host configuration \"save\": \n  host configuration \"appendonly\": no
  multi-thread: no

Latency by percentile distribution:
0.000% <= 0.015 milliseconds (cumulative count 30)
50.000% <= 0.319 milliseconds (cumulative count 100)
75.000% <= 2.501 milliseconds (cumulative count 200)
100.000% <= 2.501 milliseconds (cumulative count 200)

Cumulative distribution of latencies:
47.000% <= 0.100 milliseconds (cumulative count 94)
48.500% <= 0.200 milliseconds (cumulative count 97)
50.000% <= 0.400 milliseconds (cumulative count 100)
100.000% <= 3.001 milliseconds (cumulative count 200)

Summary:
  throughput summary: 144.30 requests per second
  latency summary (msec):
          avg       min       p50       p95       p99       max
        1.268     0.015     0.319     2.501     2.501     2.501
";
        assert_eq!(text, expected);
    }

    #[test]
    fn threads_and_the_embedded_server_are_named() {
        let latency = histogram(&LATENCIES);
        let mut setting = setting(Form::Histogram, Output::Normal);
        setting.threads = 2;
        setting.server = None;
        setting.embedded = Some("127.0.0.1:7001, 2 workers".into());
        let text = report(&setting, &measured(&latency), &LiveLine::default());
        assert!(text.contains("  keep alive: 1\n  embedded server: 127.0.0.1:7001, 2 workers\n  multi-thread: yes\n  threads: 2\n\n"));
    }

    #[test]
    fn the_quiet_and_the_csv_report() {
        let latency = histogram(&LATENCIES);
        let mut live = LiveLine::default();
        let sample = Sample {
            rate: 1.0,
            overall_rate: 2.0,
            latency_ms: f64::NAN,
            overall_latency_ms: 0.5,
        };
        let shown = live.update(Form::Histogram, "SET", &sample);
        assert_eq!(
            shown,
            " \rSET: rps=1.0 (overall: 2.0) avg_msec=nan (overall: 0.500)\r"
        );
        let text = report(
            &setting(Form::Histogram, Output::Quiet),
            &measured(&latency),
            &live,
        );
        let blank = " ".repeat(shown.len() - 2);
        assert_eq!(
            text,
            format!("{blank}\rSET: 144.30 requests per second, p50=0.319 msec\n")
        );
        let text = report(
            &setting(Form::Histogram, Output::Csv),
            &measured(&latency),
            &live,
        );
        assert_eq!(
            text,
            "\"SET\",\"144.30\",\"1.268\",\"0.015\",\"0.319\",\"2.501\",\"2.501\",\"2.501\"\n"
        );
    }

    #[test]
    fn masters_are_listed_as_redis_benchmark_lists_them() {
        let latency = histogram(&LATENCIES);
        let mut setting = setting(Form::Histogram, Output::Normal);
        let config = |save: &str| ServerConfig {
            save: save.into(),
            appendonly: "no".into(),
        };
        // The second does not report it.
        setting.masters = Some(vec![Some(config("")), None, Some(config("900 1"))]);
        setting.threads = 3;
        let text = report(&setting, &measured(&latency), &LiveLine::default());
        let expected = "  keep alive: 1
  cluster mode: yes (3 masters)
  node [0] configuration:
    save: NONE
    appendonly: no
  node [2] configuration:
    save: 900 1
    appendonly: no
  multi-thread: yes
  threads: 3
";
        assert!(text.contains(expected), "{text}");
    }

    #[test]
    fn a_partial_run_says_so() {
        let latency = histogram(&LATENCIES);
        let mut run = measured(&latency);
        run.wanted = 1000;
        let live = LiveLine::default();
        let text = report(&setting(Form::Histogram, Output::Quiet), &run, &live);
        assert!(
            text.ends_with("p50=0.319 msec (partial: 200 of 1000 requests)\n"),
            "{text}"
        );
        let text = report(&setting(Form::Histogram, Output::Normal), &run, &live);
        assert!(
            text.contains("\n  partial: 200 of 1000 requests\n"),
            "{text}"
        );
    }

    #[test]
    fn the_classic_report_is_as_published() {
        // 1,000,000 requests of Redis 2.6, 99.38 % below 1 ms: the page prints these lines.
        let latency = histogram(&[
            (500, 993_799),
            (1500, 6_101),
            (2500, 10),
            (3500, 49),
            (5500, 30),
            (6500, 11),
        ]);
        let text = report(
            &setting(Form::Classic, Output::Normal),
            &measured(&latency),
            &LiveLine::default(),
        );
        let expected = "====== SET ======
  1000000 requests completed in 1.39 seconds
  50 parallel clients
  3 bytes payload
  keep alive: 1

99.38% <= 1 milliseconds
99.99% <= 2 milliseconds
99.99% <= 3 milliseconds
100.00% <= 5 milliseconds
100.00% <= 6 milliseconds
100.00% <= 6 milliseconds
721500.72 requests per second

";
        assert_eq!(text, expected);
    }

    #[test]
    fn classic_decimals_end_at_two_milliseconds() {
        let latency = histogram(&[(150, 1), (250, 1), (2500, 1)]);
        let mut setting = setting(Form::Classic, Output::Normal);
        setting.classic_decimals = 1;
        let text = report(&setting, &measured(&latency), &LiveLine::default());
        assert!(text.contains("\n33.33% <= 0.1 milliseconds\n66.67% <= 0.2 milliseconds\n100.00% <= 2 milliseconds\n2.16 req"), "{text}");
    }

    #[test]
    fn classic_quiet_csv_and_live_lines_have_rates_only() {
        let latency = histogram(&LATENCIES);
        let mut live = LiveLine::default();
        let text = report(
            &setting(Form::Classic, Output::Quiet),
            &measured(&latency),
            &live,
        );
        assert_eq!(text, "SET: 144.30 requests per second\n");
        let text = report(
            &setting(Form::Classic, Output::Csv),
            &measured(&latency),
            &live,
        );
        assert_eq!(text, "\"SET\",\"144.30\"\n");
        let sample = Sample {
            rate: 1.0,
            overall_rate: 2.0,
            latency_ms: 1.0,
            overall_latency_ms: 0.5,
        };
        assert_eq!(live.update(Form::Classic, "SET", &sample), "SET: 2.00\r");
        assert_eq!(csv_header(Form::Classic), "");
    }

    #[test]
    fn nothing_measured_is_no_nonsense() {
        let latency = histogram(&[]);
        let run = Measured {
            title: "GET",
            finished: 0,
            wanted: 0,
            elapsed: Duration::ZERO,
            latency: &latency,
        };
        for form in [Form::Classic, Form::Histogram] {
            for output in [Output::Normal, Output::Quiet, Output::Csv] {
                let text = report(&setting(form, output), &run, &LiveLine::default());
                assert!(!text.contains("NaN") && !text.contains("inf"), "{text}");
            }
        }
    }

    #[test]
    fn percentile_levels_halve_what_is_left() {
        let values: Vec<(u64, u64)> = (1..=1000).map(|v| (v, 1)).collect();
        let steps = percentile_distribution(&histogram(&values));
        let shown: Vec<String> = steps.iter().take(4).map(Step::to_string).collect();
        assert_eq!(
            shown,
            [
                "0.000% <= 0.001 milliseconds (cumulative count 1)",
                "50.000% <= 0.500 milliseconds (cumulative count 500)",
                "75.000% <= 0.750 milliseconds (cumulative count 750)",
                "87.500% <= 0.875 milliseconds (cumulative count 875)",
            ]
        );
        assert_eq!(
            steps.last().unwrap().to_string(),
            "100.000% <= 1.000 milliseconds (cumulative count 1000)"
        );
    }
}
