//! The view of a running test (`--live`), on the terminal's alternate screen.
//!
//! Knows figures, and not their measurement. The terminal stays in its usual mode, so that Ctrl-C is a signal as without
//! a view; only the screen is changed and the cursor hidden, and both are restored at the end, also before the message
//! of a panic of any thread.

use std::collections::VecDeque;
use std::io::{self, Stdout};
use std::sync::Once;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use hdrhistogram::Histogram;
use ratatui::backend::CrosstermBackend;
use ratatui::crossterm::cursor::{Hide, Show};
use ratatui::crossterm::execute;
use ratatui::crossterm::terminal::{EnterAlternateScreen, LeaveAlternateScreen};
use ratatui::layout::{Constraint, Layout};
use ratatui::style::{Style, Stylize};
use ratatui::text::Line;
use ratatui::widgets::{Block, Paragraph, Row, Sparkline, Table, Wrap};
use ratatui::{Frame, Terminal};

use super::execute::Prepared;
use super::plan::RunPlan;
use super::series::Recent;
use super::watch::Watched;
use crate::load::cause::parties::{Looks, Used, generator_snapshot, stolen_share};
use crate::load::cause::verdict::Measurements;
use crate::load::engine::Totals;
use crate::load::failure::Failure;

/// A displayed run.
pub struct Showing {
    screen: Screen,
    /// Title: the target and the requests.
    title: String,
    offered: Option<f64>,
    planned: Option<Duration>,
    servers: Vec<String>,
    generator: Looks,
    /// Requests per second, the newest last.
    rates: VecDeque<u64>,
    before: Totals,
}

/// Largest number of rates: more than a screen is wide.
const RATES_MAX: usize = 512;

impl Showing {
    /// Takes over the terminal.
    pub fn new(prepared: &Prepared, plan: &RunPlan) -> Result<Showing, Failure> {
        let places = prepared.servers.iter();
        let servers: Vec<String> = places
            .map(|server| server.plan.address.to_string())
            .collect();
        let commands: Vec<&str> = plan.templates.iter().map(|t| t.text.as_str()).collect();
        let screen = Screen::new().map_err(|error| Failure::local("--live", &error))?;
        Ok(Showing {
            screen,
            title: format!("{}: {}", servers[0], commands.join(", ")),
            offered: plan.manner.rps,
            planned: plan.manner.duration,
            servers,
            generator: Looks::default(),
            rates: VecDeque::new(),
            before: Totals::default(),
        })
    }

    /// Draws the known figures. `elapsed` is the measured time; `None` before it begins.
    pub fn show(
        &mut self,
        totals: &Totals,
        elapsed: Option<Duration>,
        watched: &Watched,
        recent: Option<&Recent>,
    ) -> io::Result<()> {
        if elapsed.is_some() {
            self.generator.add(generator_snapshot());
            let seconds = totals.elapsed.saturating_sub(self.before.elapsed);
            let answered = totals.finished - self.before.finished;
            let rate = answered as f64 / seconds.as_secs_f64().max(1e-9);
            if self.before.finished > 0 {
                self.rates.push_back(rate as u64);
            }
            if self.rates.len() > RATES_MAX {
                self.rates.pop_front();
            }
        }
        self.before = *totals;
        let seconds = elapsed.unwrap_or_default().as_secs_f64();
        let verdict = self.verdict(totals, seconds, watched);
        let view = View {
            title: &self.title,
            offered: self.offered,
            planned: self.planned,
            elapsed,
            answered: totals.finished,
            mean_rate: totals.finished as f64 / seconds.max(1e-9),
            rates: self.rates.make_contiguous(),
            latencies: recent.map(|recent| [&recent.latest.response, &recent.so_far]),
            parties: parties(&self.servers, &self.generator, watched),
            verdict,
        };
        let drawn = self.screen.terminal.draw(|frame| draw(frame, &view));
        drawn.map(drop)
    }

    /// Returns the verdict as if the run ended now; none without enough data.
    fn verdict(&self, totals: &Totals, seconds: f64, watched: &Watched) -> String {
        let Some(generator) = self.generator.used() else {
            return String::new();
        };
        let busiest = |a: &Used, b: &Used| a.load().busiest.total_cmp(&b.load().busiest);
        let servers = watched.servers.iter().filter_map(Looks::used);
        let measurements = Measurements {
            offered: self.offered,
            achieved: totals.finished as f64 / seconds.max(1e-9),
            client: generator.load(),
            server: servers.max_by(busiest).map(|used| used.load()),
            proxy: watched.proxy.used().map(|used| used.load()),
            stolen: watched
                .machine
                .map_or(0.0, |(before, after)| stolen_share(&before, &after)),
            ..Measurements::default()
        };
        measurements.verdict().text
    }
}

/// A party's name, its CPU use now, the share of its busiest thread so far, and its memory in bytes.
type PartyNow = (String, Option<f64>, Option<f64>, Option<u64>);

fn parties(servers: &[String], generator: &Looks, watched: &Watched) -> Vec<PartyNow> {
    let now = |name: String, looks: &Looks| {
        let busiest = looks.used().map(|used| used.load().busiest);
        let memory = looks.memory.map(|memory| memory.last_bytes);
        (name, looks.cpus.last().copied().flatten(), busiest, memory)
    };
    let mut parties = vec![now("generator".to_owned(), generator)];
    for (place, looks) in servers.iter().zip(&watched.servers) {
        parties.push(now(format!("server {place}"), looks));
    }
    if watched.proxy.memory.is_some() {
        parties.push(now("proxy".to_owned(), &watched.proxy));
    }
    parties
}

/// The contents of the view.
struct View<'a> {
    title: &'a str,
    offered: Option<f64>,
    planned: Option<Duration>,
    elapsed: Option<Duration>,
    answered: u64,
    mean_rate: f64,
    rates: &'a [u64],
    /// Latencies of the newest piece of the series, and of all.
    latencies: Option<[&'a Histogram<u64>; 2]>,
    parties: Vec<PartyNow>,
    verdict: String,
}

fn draw(frame: &mut Frame<'_>, view: &View<'_>) {
    let parties = u16::try_from(view.parties.len()).unwrap_or(u16::MAX);
    let rows = [
        Constraint::Length(2),
        Constraint::Min(4),
        Constraint::Length(5),
        Constraint::Length(parties.saturating_add(3)),
        Constraint::Length(5),
        Constraint::Length(1),
    ];
    let [head, rates, latencies, parties, verdict, foot] =
        Layout::vertical(rows).areas(frame.area());
    let head_lines = vec![Line::from(view.title).bold(), Line::from(progress(view))];
    frame.render_widget(Paragraph::new(head_lines), head);

    let block = Block::bordered().title(rate_title(view));
    let room = usize::from(block.inner(rates).width);
    let newest = &view.rates[view.rates.len().saturating_sub(room)..];
    let line = Sparkline::default().data(newest.iter().copied());
    frame.render_widget(line.block(block), rates);

    frame.render_widget(latency_table(view), latencies);
    frame.render_widget(party_table(view), parties);
    let text = match view.verdict.as_str() {
        "" => "too early to say",
        text => text,
    };
    let verdict_text = Paragraph::new(text).wrap(Wrap { trim: true });
    let block = Block::bordered().title("verdict so far");
    frame.render_widget(verdict_text.block(block), verdict);
    frame.render_widget(
        Line::from("Ctrl-C ends it, with a report of what was measured").dim(),
        foot,
    );
}

fn progress(view: &View<'_>) -> String {
    let Some(elapsed) = view.elapsed else {
        return "warming up".to_owned();
    };
    let of = view.planned.map_or(String::new(), |planned| {
        format!(" of {:.0}", planned.as_secs_f64())
    });
    let answered = view.answered;
    format!(
        "{:.1}{of} s measured, {answered} answered",
        elapsed.as_secs_f64()
    )
}

fn rate_title(view: &View<'_>) -> String {
    let mut title = match view.rates.last() {
        Some(rate) => format!("{rate} requests/s; {:.0} on average", view.mean_rate),
        None => "requests/s".to_owned(),
    };
    if let Some(offered) = view.offered {
        title += &format!(" of {offered:.0} offered");
    }
    title
}

fn latency_table(view: &View<'_>) -> Table<'static> {
    const PERCENTILES: [f64; 5] = [50.0, 90.0, 99.0, 99.9, 100.0];
    let names = ["latency, ms", "p50", "p90", "p99", "p99.9", "max"];
    let rows = ["newest piece", "so far"].into_iter().enumerate();
    let rows = rows.map(|(place, name)| {
        let histogram = view.latencies.map(|latencies| latencies[place]);
        let histogram = histogram.filter(|histogram| !histogram.is_empty());
        let cells = PERCENTILES.map(|percentile| match histogram {
            Some(histogram) => {
                let us = histogram.value_at_percentile(percentile);
                format!("{:.3}", us.min(histogram.max()) as f64 / 1000.0)
            }
            None => "-".to_owned(),
        });
        Row::new(std::iter::once(name.to_owned()).chain(cells))
    });
    let widths = [Constraint::Length(14)].into_iter();
    let widths = widths.chain([Constraint::Length(11); 5]);
    let head = Row::new(names).style(Style::new().bold());
    Table::new(rows, widths)
        .header(head)
        .block(Block::bordered())
}

fn party_table(view: &View<'_>) -> Table<'static> {
    let cell = |figure: Option<f64>, unit: &str, digits: usize| match figure {
        Some(figure) => format!("{figure:.digits$}{unit}"),
        None => "-".to_owned(),
    };
    let rows = view.parties.iter().map(|(name, cpus, busiest, memory)| {
        Row::new([
            name.clone(),
            cell(*cpus, "", 2),
            cell(busiest.map(|share| 100.0 * share), " %", 0),
            cell(memory.map(|bytes| bytes as f64 / 1e6), " MB", 1),
        ])
    });
    let names = ["", "CPUs now", "busiest thread", "memory"];
    let widths = [28, 10, 16, 12].map(Constraint::Length);
    let head = Row::new(names).style(Style::new().bold());
    Table::new(rows, widths)
        .header(head)
        .block(Block::bordered())
}

/// The terminal's alternate screen, until it is dropped.
struct Screen {
    terminal: Terminal<CrosstermBackend<Stdout>>,
}

/// True while the terminal has to be restored. There is one terminal.
static SHOWN: AtomicBool = AtomicBool::new(false);

impl Screen {
    fn new() -> io::Result<Screen> {
        restore_on_panic();
        let terminal = Terminal::new(CrosstermBackend::new(io::stdout()))?;
        SHOWN.store(true, Ordering::SeqCst);
        let screen = Screen { terminal };
        execute!(io::stdout(), EnterAlternateScreen, Hide)?;
        Ok(screen)
    }
}

impl Drop for Screen {
    fn drop(&mut self) {
        restore();
    }
}

fn restore_on_panic() {
    static HOOK: Once = Once::new();
    HOOK.call_once(|| {
        let before = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |panic| {
            restore();
            before(panic);
        }));
    });
}

fn restore() {
    if SHOWN.swap(false, Ordering::SeqCst) {
        // A terminal that is gone needs nothing.
        let _ = execute!(io::stdout(), LeaveAlternateScreen, Show);
    }
}

#[cfg(test)]
mod tests {
    use ratatui::backend::TestBackend;

    use super::*;

    fn drawn(view: &View<'_>, width: u16, height: u16) -> String {
        let mut terminal = Terminal::new(TestBackend::new(width, height)).unwrap();
        terminal.draw(|frame| draw(frame, view)).unwrap();
        terminal.backend().to_string()
    }

    fn view<'a>(rates: &'a [u64], latencies: Option<[&'a Histogram<u64>; 2]>) -> View<'a> {
        View {
            title: "127.0.0.1:6379: GET key",
            offered: Some(500.0),
            planned: Some(Duration::from_secs(10)),
            elapsed: Some(Duration::from_millis(2500)),
            answered: 1234,
            mean_rate: 493.6,
            rates,
            latencies,
            parties: vec![
                ("generator".into(), Some(0.25), Some(0.5), Some(12_000_000)),
                ("server h:1".into(), None, None, None),
            ],
            verdict: "The rate was the limit.".into(),
        }
    }

    #[test]
    fn everything_that_is_known_is_shown() {
        let mut histogram = crate::load::engine::histogram(3);
        histogram.record_n(1_500, 9).unwrap();
        let text = drawn(&view(&[480, 499], Some([&histogram, &histogram])), 80, 24);
        for part in [
            "127.0.0.1:6379: GET key",
            "2.5 of 10 s measured, 1234 answered",
            "499 requests/s; 494 on average of 500 offered",
            "1.500",
            "p99.9",
            "0.25",
            "50 %",
            "12.0 MB",
            "server h:1",
            "The rate was the limit.",
            "Ctrl-C",
        ] {
            assert!(text.contains(part), "{part}:\n{text}");
        }
    }

    #[test]
    fn a_panic_of_any_thread_gives_the_terminal_back_first() {
        restore_on_panic();
        SHOWN.store(true, Ordering::SeqCst);
        let thread = std::thread::spawn(|| panic!("this is wanted"));
        assert!(thread.join().is_err());
        assert!(!SHOWN.load(Ordering::SeqCst));
    }

    #[test]
    fn nothing_and_a_tiny_terminal_can_be_drawn() {
        let empty = crate::load::engine::histogram(3);
        let mut early = view(&[], Some([&empty, &empty]));
        early.elapsed = None;
        early.verdict.clear();
        let text = drawn(&early, 80, 24);
        assert!(
            text.contains("warming up") && text.contains("too early to say"),
            "{text}"
        );
        for (width, height) in [(1, 1), (10, 3), (200, 60)] {
            drawn(&view(&[1; 600], None), width, height);
        }
    }
}
