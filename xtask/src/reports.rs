//! Pages of `redline bench` in headless Chromium, in a network namespace without a network: no line on the console, and
//! marks in every chart.
//!
//! A page's policy forbids fetching, and the browser reports a refusal on the console: a planted page proves that this
//! is detected, and another that a chart without marks is.

use std::fs::{self, File};
use std::io::BufReader;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use serde_json::Value;

use crate::compat::Setting;
use crate::install;
use crate::run::{Failure, Folder, captured, ended, line, workspace};

const TIMEOUT: Duration = Duration::from_secs(120);
/// Larger than any of the pages.
const WINDOW: (usize, usize) = (1000, 12_000);
/// Smallest number of coloured pixels of a chart: lines and bars have a colour, axes and words are grey.
const COLOURED_MIN: usize = 60;
/// Smallest difference of the largest and the smallest of red, green and blue in a colour.
const COLOUR: u8 = 60;
/// A script that writes the positions of the charts into the page's title.
const SURVEY: &str = "<script>document.title=JSON.stringify([...document.querySelectorAll('svg')].map(s=>{\
const r=s.getBoundingClientRect();return [r.left,r.top,r.width,r.height].map(Math.round)}))</script>";

/// Makes the pages and opens them.
pub fn run(setting: &Setting) -> Result<String, Failure> {
    let browser = Browser {
        program: install::chromium()?,
        folder: Folder::new("pages")?,
    };
    browser.sees_what_is_wrong()?;
    let mut charts = 0;
    let pages = pages(setting, browser.folder.path())?;
    for (page, expected) in &pages {
        let found = browser.check(page)?;
        if found < *expected {
            return Err(format!("{}: {found} charts", page.display()));
        }
        charts += found;
    }
    Ok(format!(
        "{} pages without a network or a word on the console, marks in each of {charts} charts",
        pages.len()
    ))
}

/// Returns each page, and its smallest number of charts.
fn pages(setting: &Setting, folder: &Path) -> Result<Vec<(PathBuf, usize)>, Failure> {
    let server = setting.start_redis(&[])?;
    let port = server.address().port().to_string();
    let replica = setting.start_redis(&["--replicaof", "127.0.0.1", &port])?;
    let suite = workspace().join("suites/tair.toml").display().to_string();
    let place = |name: &str| folder.join(name).display().to_string();
    let [json, run, report] = ["run.json", "run.html", "report.html"].map(place);
    let [compare, failover, suites] = ["compare.html", "failover.html", "suite.html"].map(place);
    let [one, two] = [&server, &replica].map(|server| server.address().to_string());
    let mix = ["--command", "GET key:{uniform:1000}", "--duration"];
    let local = ["-p", &port];
    let mut made = Vec::new();
    let mut make = |words: &[&[&str]], page: &str, charts: usize| -> Result<(), Failure> {
        let mut command = Command::new(&setting.redline);
        command.arg("bench").args(words.concat());
        captured(command, b"", TIMEOUT)?;
        made.push((PathBuf::from(page), charts));
        Ok(())
    };
    let kept = ["--interval", "0.1", "--json", &json, "--html", &run];
    make(&[&["run"], &local, &mix, &["1"], &kept], &run, 5)?;
    make(&[&["report", &json, &json, "-o", &report]], &report, 5)?;
    let compared = ["compare", "--pairs", "3", "--html", &compare, "--"];
    let both = [&local[..], &["--"], &local, &["--"]].concat();
    make(&[&compared, &both, &mix, &["0.2"]], &compare, 5)?;
    let ends = ["failover", "--endpoint", &one, "--endpoint", &two];
    let times = ["--run", "true", "--at", "0.5", "--duration", "1.5"];
    make(&[&ends, &times, &["--html", &failover]], &failover, 5)?;
    let scaled = ["run", &suite, "--scale", "0.0005", "--threads", "1"];
    let short = ["--duration", "0.05", "--html", &suites];
    make(&[&scaled, &local, &short], &suites, 13)?;
    Ok(made)
}

struct Browser {
    program: PathBuf,
    folder: Folder,
}

impl Browser {
    /// Checks that the page prints nothing on the console and has marks in each of its charts; returns their number.
    fn check(&self, page: &Path) -> Result<usize, Failure> {
        let shown = self.folder.path().join("shown.png");
        let said = self.open(page, &format!("--screenshot={}", shown.display()))?;
        // The browser's own pages may print something as well.
        let of_page = |line: &&str| line.contains("CONSOLE") && !line.contains("source: chrome://");
        let complaint = said.1.lines().find(of_page);
        if let Some(complaint) = complaint {
            return Err(format!("{}: {complaint}", page.display()));
        }
        let boxes = self.boxes(page)?;
        let image = Image::read(&shown)?;
        for (place, chart) in boxes.iter().enumerate() {
            let coloured = image.coloured(*chart);
            if coloured < COLOURED_MIN {
                return Err(format!(
                    "{}: chart {} at {chart:?} has {coloured} coloured pixels",
                    page.display(),
                    place + 1
                ));
            }
        }
        Ok(boxes.len())
    }

    /// Returns left, top, width and height of each chart, from a copy of the page that may run a script.
    fn boxes(&self, page: &Path) -> Result<Vec<[usize; 4]>, Failure> {
        let text = fs::read_to_string(page).map_err(|error| error.to_string())?;
        let begin = "<meta http-equiv=\"Content-Security-Policy\"";
        let policy = text.find(begin).and_then(|at| {
            let end = text[at..].find('>')?;
            Some(&text[at..=at + end])
        });
        let policy = policy.ok_or_else(|| format!("{}: no policy", page.display()))?;
        let copy = self.folder.path().join("surveyed.html");
        let text = text
            .replace(policy, "")
            .replace("</body>", &format!("{SURVEY}</body>"));
        fs::write(&copy, text).map_err(|error| error.to_string())?;
        let (dom, _) = self.open(&copy, "--dump-dom")?;
        let title = dom
            .split_once("<title>")
            .and_then(|(_, rest)| rest.split_once("</title>"));
        let found: Value = title
            .and_then(|(title, _)| serde_json::from_str(title).ok())
            .ok_or_else(|| format!("{}: no charts are named: {dom}", page.display()))?;
        let number = |value: &Value| value.as_u64().unwrap_or(0) as usize;
        let boxes = found.as_array().into_iter().flatten();
        Ok(boxes
            .map(|b| [0, 1, 2, 3].map(|at| number(&b[at])))
            .collect())
    }

    /// Opens a page; returns its standard output and standard error.
    fn open(&self, page: &Path, what: &str) -> Result<(String, String), Failure> {
        let mut command = Command::new("unshare");
        command.arg("--net").arg(&self.program);
        command.args([
            "--headless",
            "--no-sandbox",
            "--disable-gpu",
            "--hide-scrollbars",
        ]);
        command.args(["--enable-logging=stderr", "--force-device-scale-factor=1"]);
        command.arg(format!("--window-size={},{}", WINDOW.0, WINDOW.1));
        let profile = self.folder.path().join("profile");
        command.arg(format!("--user-data-dir={}", profile.display()));
        command.arg(what).arg(format!("file://{}", page.display()));
        let text = line(&command);
        let output = ended(command, b"", TIMEOUT)?;
        let [said, complaints] = [output.stdout, output.stderr]
            .map(|bytes| String::from_utf8_lossy(&bytes).into_owned());
        if output.status.success() {
            return Ok((said, complaints));
        }
        Err(format!("{text}: {}\n{complaints}", output.status))
    }

    fn sees_what_is_wrong(&self) -> Result<(), Failure> {
        let policy = "<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'\">";
        let marks = |inside: &str| {
            format!(
                "<svg width=\"300\" height=\"200\"><text x=\"9\" y=\"90\">9</text>{inside}</svg>"
            )
        };
        let good = marks("<rect x=\"20\" y=\"20\" width=\"50\" height=\"50\" fill=\"#0072B2\"/>");
        let fetches = format!("{good}<img src=\"http://192.0.2.1/x.png\">");
        let planted = [
            (good.clone(), ""),
            (fetches, "CONSOLE"),
            (marks(""), "coloured"),
        ];
        for (body, complaint) in planted {
            let page = self.folder.path().join("planted.html");
            let text = format!(
                "<html><head>\n{policy}\n<title>x</title></head><body>{body}</body></html>"
            );
            fs::write(&page, text).map_err(|error| error.to_string())?;
            let so = match self.check(&page) {
                Ok(1) => complaint.is_empty(),
                Ok(_) => false,
                Err(said) if complaint.is_empty() => return Err(said),
                Err(said) => said.contains(complaint),
            };
            if !so {
                return Err(format!("what is planted is not seen: {body}"));
            }
        }
        Ok(())
    }
}

/// An image of red, green, blue, and perhaps more.
struct Image {
    width: usize,
    channels: usize,
    bytes: Vec<u8>,
}

impl Image {
    fn read(path: &Path) -> Result<Image, Failure> {
        let fail = |error: &dyn std::fmt::Display| format!("{}: {error}", path.display());
        let file = File::open(path).map_err(|error| fail(&error))?;
        let decoder = png::Decoder::new(BufReader::new(file));
        let mut reader = decoder.read_info().map_err(|error| fail(&error))?;
        let size = reader.output_buffer_size();
        let mut bytes = vec![0; size.ok_or_else(|| fail(&"too large"))?];
        let frame = reader
            .next_frame(&mut bytes)
            .map_err(|error| fail(&error))?;
        let channels = frame.color_type.samples();
        if channels < 3 || frame.bit_depth != png::BitDepth::Eight {
            return Err(fail(&"not a picture of three colours and eight bits"));
        }
        Ok(Image {
            width: frame.width as usize,
            channels,
            bytes,
        })
    }

    /// Returns the number of pixels of a box that are not grey.
    fn coloured(&self, [left, top, width, height]: [usize; 4]) -> usize {
        let mut count = 0;
        for y in top..top + height {
            for x in left..(left + width).min(self.width) {
                let at = (y * self.width + x) * self.channels;
                let Some(&[red, green, blue]) = self.bytes.get(at..at + 3) else {
                    return count;
                };
                let most = red.max(green).max(blue);
                count += usize::from(most - red.min(green).min(blue) > COLOUR);
            }
        }
        count
    }
}
