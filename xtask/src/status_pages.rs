//! Status pages of server and proxy in headless Chromium: at three widths, light and dark, with hostile names in the data.
//! A planted page proves that faults are seen.

use std::fs;
use std::io::{Read as _, Write as _};
use std::net::TcpListener;
use std::path::PathBuf;
use std::process::Command;
use std::thread;
use std::time::Duration;

use redline_testkit::process::{SECOND_PORT, ServerProcess};

use crate::compat::Setting;
use crate::install;
use crate::monitoring::server;
use crate::proxy::{call, connect};
use crate::run::{Failure, captured, free_port, workspace};

/// The browser opens a page six times, and waits for it.
const TIMEOUT: Duration = Duration::from_secs(300);
/// A page with a fault of each kind.
const PLANTED: &str = "<!doctype html><title>t</title><main><b>b</b><p style='width:3000px'>x</p><figure><svg></svg></figure>\
    <script>console.log('word')</script></main>";
/// The faults of the planted page, by their words.
const PLANTED_FAULTS: [&str; 5] = [
    "console: word",
    "wider than the window",
    "no marks",
    "elements that no page of ours has",
    "axe: ",
];
/// Names that are markup, turn the text around, or are no text.
const HOSTILE: [&[u8]; 3] = [
    b"<script>alert(1)</script>",
    "<img src=x>\u{202e}\u{1}".as_bytes(),
    b"<b>\xff\xfe",
];

/// Opens the pages.
pub fn run(setting: &Setting) -> Result<String, Failure> {
    let browser = Browser::new()?;
    browser.sees_what_is_wrong()?;
    let metrics = ["--slowlog-log-slower-than", "0"];
    let empty = server(setting, &[])?;
    let loaded = server(setting, &metrics)?;
    let dead = free_port()?;
    let text = format!(
        "name = '<b>proxy</b>'\n[metrics]\nbind = '127.0.0.1:{SECOND_PORT}'\n[[listener]]\nbind = '127.0.0.1:1'\n[[pool]]\n\
         name = '<i>pool</i>'\n[[pool.shard]]\nserver = [{{ address = '{}' }}]\n[[pool.shard]]\n\
         server = [{{ address = '127.0.0.1:{dead}' }}]\n",
        loaded.address()
    );
    let proxy = ServerProcess::proxy_of_file(&setting.redline, &text)
        .map_err(|error| format!("redline proxy: {error}"))?;
    use_it(&loaded, &proxy)?;
    let mut charts = 0;
    for (name, process) in [("empty", &empty), ("loaded", &loaded), ("proxy", &proxy)] {
        charts += browser.check(name, process.second_port())?;
    }
    Ok(format!(
        "three pages at three widths, light and dark, {charts} charts; pictures in {}",
        browser.folder.display()
    ))
}

/// Calls both, so that there is something to show.
fn use_it(server: &ServerProcess, proxy: &ServerProcess) -> Result<(), Failure> {
    let mut client = connect(server.address())?;
    let mut through = connect(proxy.address())?;
    // Some of the names are no text.
    let words = |words: &[&[u8]]| {
        let mut request = format!("*{}\r\n", words.len()).into_bytes();
        for word in words {
            request.extend_from_slice(format!("${}\r\n", word.len()).as_bytes());
            request.extend_from_slice(word);
            request.extend_from_slice(b"\r\n");
        }
        request
    };
    for number in 0..200 {
        let key = format!("key:{number}");
        call(&mut client, &["SET", &key, "v"])?;
        // One of the servers behind the proxy is dead.
        call(&mut through, &["GET", &key])?;
    }
    for name in HOSTILE {
        for request in [
            words(&[b"CLIENT", b"SETNAME", b"<script>x</script>"]),
            words(&[b"SET", name, name]),
            words(&[b"GET", name]),
            words(&[name]),
        ] {
            client.send(&request).map_err(|error| error.to_string())?;
            client.reply().map_err(|error| error.to_string())?;
        }
    }
    Ok(())
}

struct Browser {
    program: PathBuf,
    /// Folder with the packages of the script.
    packages: PathBuf,
    /// Folder of the pictures.
    folder: PathBuf,
}

impl Browser {
    fn new() -> Result<Browser, Failure> {
        let folder = install::folder().join("pages");
        fs::create_dir_all(&folder).map_err(|error| format!("{}: {error}", folder.display()))?;
        Ok(Browser {
            program: install::chromium()?,
            packages: install::browser_packages()?,
            folder,
        })
    }

    /// Returns the lines of the script about a page.
    fn open(&self, name: &str, port: u16, widths: &[&str]) -> Result<String, Failure> {
        let mut command = Command::new("node");
        command
            .arg(workspace().join("crates/testkit/clients/js/page.js"))
            .arg(&self.program)
            .arg(format!("http://127.0.0.1:{port}/"))
            .arg(&self.folder)
            .arg(name)
            .args(widths)
            .env("NODE_PATH", self.packages.join("node_modules"));
        captured(command, b"", TIMEOUT)
    }

    /// Returns the number of charts of a page that has no fault.
    fn check(&self, name: &str, port: u16) -> Result<usize, Failure> {
        let said = self.open(name, port, &["360", "1200", "2560"])?;
        match charts_of(&said) {
            Some(charts) if charts > 0 => Ok(charts),
            _ => Err(said),
        }
    }

    fn sees_what_is_wrong(&self) -> Result<(), Failure> {
        let listener = TcpListener::bind("127.0.0.1:0").map_err(|error| error.to_string())?;
        let port = listener
            .local_addr()
            .map_err(|error| error.to_string())?
            .port();
        // It ends with the process.
        thread::spawn(move || {
            for mut stream in listener.incoming().flatten() {
                thread::spawn(move || {
                    let mut request = [0; 4096];
                    let _ = stream.read(&mut request);
                    let head =
                        "HTTP/1.1 200 OK\r\nContent-Type: text/html\r\nConnection: close\r\n\r\n";
                    let _ = stream.write_all(format!("{head}{PLANTED}").as_bytes());
                });
            }
        });
        let said = self.open("planted", port, &["1200"])?;
        match PLANTED_FAULTS.iter().find(|fault| !said.contains(**fault)) {
            Some(fault) => Err(format!("the planted page: no \"{fault}\" in {said}")),
            None => Ok(()),
        }
    }
}

/// Returns the number of charts that the script has found, if it has found no fault.
fn charts_of(said: &str) -> Option<usize> {
    said.trim().strip_prefix("charts ")?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_page_with_a_fault_has_no_charts() {
        assert_eq!(charts_of("charts 7\n"), Some(7));
        for said in [
            "",
            "empty, 360 px, light: console: a",
            "charts 7\nand a fault\n",
        ] {
            assert_eq!(charts_of(said), None, "{said}");
        }
    }
}
