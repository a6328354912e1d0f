//! HTML pages with charts: one frame, one style and one kind of chart for the results of `redline bench` and for the
//! status pages of server and proxy.
//!
//! A page needs no network and no script. Text is escaped by its type (`maud`). Must not know: results, metrics,
//! sockets.
#![forbid(unsafe_code)]

pub mod charts;
pub mod status;

use maud::{DOCTYPE, Markup, PreEscaped, html};

use charts::Chart;

/// The style of all pages.
pub const STYLE: &str = include_str!("style.css");

/// A page: its title, the lines of its head that only it has, and its contents.
pub struct Page<'a> {
    /// The title, which is also the first heading.
    pub title: &'a str,
    /// Further elements of the head.
    pub head: Markup,
    /// Contents below the heading, in the page's header.
    pub intro: Markup,
    /// The main part.
    pub main: Markup,
}

impl Page<'_> {
    /// Returns the page as text.
    pub fn render(self) -> String {
        let title = plain(self.title);
        let page = html! {
            (DOCTYPE)
            html lang="en" {
                head {
                    meta charset="utf-8";
                    meta name="viewport" content="width=device-width, initial-scale=1";
                    (self.head)
                    title { (title) }
                }
                body {
                    header { h1 { (title) } (self.intro) }
                    main { (self.main) }
                }
            }
        };
        let mut text = page.into_string();
        text.push('\n');
        text
    }
}

/// Returns the style, for the head of a page that is one file.
pub fn inline_style() -> Markup {
    html! { style { (PreEscaped(STYLE)) } }
}

/// Returns a chart with its title, legend and note. Where the page is narrow, the chart scrolls inside.
pub fn figure(chart: &Chart) -> Markup {
    html! {
        figure {
            figcaption {
                (chart.title)
                @if !chart.legend.is_empty() {
                    ul.legend {
                        @for (place, name) in chart.legend.iter().enumerate() {
                            li { span class=(swatch(chart.filled, place)) {} (name) }
                        }
                    }
                }
            }
            (scrolled(&chart.title, &PreEscaped(chart.svg.clone())))
            @if let Some(note) = &chart.note { p.note { (note) } }
        }
    }
}

fn swatch(filled: bool, place: usize) -> String {
    let kind = if filled { "box" } else { "dash" };
    let (colour, dash) = charts::look(place);
    format!("swatch {kind} c{colour} d{dash}")
}

/// Returns contents in a region of its own that scrolls sideways, also by keyboard.
pub fn scrolled(label: &str, contents: &Markup) -> Markup {
    html! {
        div.scroll tabindex="0" role="region" aria-label=(plain(label)) { (contents) }
    }
}

/// Returns a table whose first column names the rows. It scrolls inside where the page is narrow.
pub fn table(label: &str, head: &[String], rows: &[Vec<String>]) -> Markup {
    let contents = html! {
        table {
            thead { tr { @for cell in head {
                @if cell.is_empty() { td {} } @else { th scope="col" { (plain(cell)) } }
            } } }
            tbody { @for row in rows {
                tr { @for (place, cell) in row.iter().enumerate() {
                    @if place == 0 { th scope="row" { (plain(cell)) } } @else { td { (plain(cell)) } }
                } }
            } }
        }
    };
    scrolled(label, &contents)
}

/// Returns text without characters that a page must not contain or that change the direction of the text around them.
pub fn plain(text: &str) -> String {
    let mends = |c: char| match c {
        '\n' => c,
        c if c.is_control() => '\u{fffd}',
        '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}' => '\u{fffd}',
        c => c,
    };
    text.chars().map(mends).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_from_outside_is_no_markup() {
        let hostile = "<script>'\"&\u{1}\u{202e}</script>";
        let rows = [vec![hostile.to_owned(), hostile.to_owned()]];
        let page = Page {
            title: hostile,
            head: html! {},
            intro: html! {},
            main: table(hostile, &[String::new(), hostile.to_owned()], &rows),
        };
        let page = page.render();
        assert!(!page.contains("<script"), "{page}");
        assert!(!page.contains(['\u{1}', '\u{202e}']), "{page}");
        assert!(page.contains("&lt;script&gt;"));
    }

    #[test]
    fn what_scrolls_can_be_reached_by_keyboard_and_the_page_fits_a_small_screen() {
        let page = Page {
            title: "t",
            head: inline_style(),
            intro: html! {},
            main: table("figures", &["a".into()], &[vec!["b".into()]]),
        };
        let page = page.render();
        assert!(page.contains("name=\"viewport\" content=\"width=device-width"));
        assert!(page.contains("tabindex=\"0\" role=\"region\" aria-label=\"figures\""));
        assert!(page.contains("<main>") && page.contains("<h1>t</h1>"));
    }
}
