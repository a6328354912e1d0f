//! Prometheus's text format (version 0.0.4). Must not know what is measured.

use std::fmt::{Display, Write};

/// Type of a family's samples.
#[derive(Clone, Copy, Debug)]
pub enum Sort {
    /// It only grows.
    Counter,
    /// It goes up and down.
    Gauge,
    /// Counts below bounds.
    Histogram,
    /// Percentiles.
    Summary,
}

/// Families and their samples, one after the other.
#[derive(Default)]
pub struct Page {
    /// Text written so far.
    pub text: String,
}

impl Page {
    /// Begins a family: all of its samples follow.
    pub fn family(&mut self, name: &str, sort: Sort, help: &str) {
        let sort = match sort {
            Sort::Counter => "counter",
            Sort::Gauge => "gauge",
            Sort::Histogram => "histogram",
            Sort::Summary => "summary",
        };
        self.push(format_args!("# HELP {name} {help}\n# TYPE {name} {sort}\n"));
    }

    /// Writes a sample of the family that was begun last.
    pub fn sample(&mut self, name: &str, labels: &[(&str, &str)], value: impl Display) {
        self.text.push_str(name);
        for (at, (label, text)) in labels.iter().enumerate() {
            let before = if at == 0 { '{' } else { ',' };
            self.push(format_args!("{before}{label}=\"{}\"", escaped(text)));
        }
        if !labels.is_empty() {
            self.text.push('}');
        }
        self.push(format_args!(" {value}\n"));
    }

    /// Writes a family of one gauge.
    pub fn gauge(&mut self, name: &str, help: &str, value: impl Display) {
        self.family(name, Sort::Gauge, help);
        self.sample(name, &[], value);
    }

    /// Writes a family of one counter.
    pub fn counter(&mut self, name: &str, help: &str, value: impl Display) {
        self.family(name, Sort::Counter, help);
        self.sample(name, &[], value);
    }

    /// Writes text as it is.
    pub fn push(&mut self, text: std::fmt::Arguments<'_>) {
        self.text
            .write_fmt(text)
            .expect("writing to a string does not fail");
    }
}

/// Returns a label's text, escaped; the codes of errors come from scripts and may hold anything.
fn escaped(text: &str) -> String {
    text.replace('\\', "\\\\")
        .replace('"', "\\\"")
        .replace('\n', "\\n")
}
