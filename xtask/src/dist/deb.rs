//! The Debian packages: the program, the one that stands in for redis-server, and the symbols for a debugger.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use super::{CONFIGURATION, PATIENCE, Release, SUMMARY, Tree, units};
use crate::run::{Failure, captured, watched, workspace};

/// A package.
struct Package<'a> {
    name: &'a str,
    section: &'a str,
    summary: &'a str,
    /// Paragraphs below the summary.
    description: &'a str,
    /// Further fields, with their ends of lines.
    fields: String,
    /// Folder of its scripts in `packaging`.
    scripts: Option<&'a str>,
    /// Paths of configuration that an upgrade keeps.
    conffiles: &'a [&'a str],
}

/// Makes the package of the program.
pub fn redline(release: &Release, whole: &Tree, out: &Path) -> Result<PathBuf, Failure> {
    let mut tree = Tree::new(&out.join("stage/deb-redline"), release.time_s)?;
    tree.folder("", whole.root())?;
    tree.copy(
        "usr/share/redline/redis.conf",
        &workspace().join("packaging/redis.conf"),
        0o644,
    )?;
    let (major, minor) = release.glibc;
    let package = Package {
        name: "redline",
        section: "database",
        summary: SUMMARY,
        description: " One program for caches of the Redis protocol: an in-memory data store that\n \
                      Redis clients can use, a load generator with redis-benchmark's command\n \
                      line, and a proxy in front of many servers.\n",
        fields: format!(
            "Depends: libc6 (>= {major}.{minor}), libgcc-s1, adduser\nSuggests: redis-tools\n"
        ),
        scripts: Some("deb"),
        conffiles: CONFIGURATION,
    };
    package.make(release, tree, out)
}

/// Makes the package with redis-server's names.
pub fn in_place_of_redis(release: &Release, out: &Path) -> Result<PathBuf, Failure> {
    let mut tree = Tree::new(&out.join("stage/deb-redline-redis"), release.time_s)?;
    // The other names are in redis-tools, with redis-cli, which stays.
    tree.link("usr/bin/redis-server", "redline")?;
    for unit in units::ALL.iter().filter(|unit| unit.is_of_redis()) {
        let path = format!("lib/systemd/system/{}", unit.file_name());
        tree.file(&path, unit.text().as_bytes(), 0o644)?;
    }
    let page = "usr/share/man/man1/redis-server.1.gz";
    tree.link(page, "redline-server.1.gz")?;
    let package = Package {
        name: "redline-redis",
        section: "database",
        summary: "Redline in place of redis-server",
        description: " A program and a service named redis-server, which read the file\n \
                      /etc/redis/redis.conf and the data of a redis-server that was here before.\n \
                      redis-tools stays.\n",
        fields: format!(
            "Depends: redline (= {}), adduser\nProvides: redis-server\nConflicts: redis-server\n\
             Replaces: redis-server\nRecommends: redis-tools\n",
            release.version
        ),
        scripts: Some("deb-redis"),
        conffiles: &[],
    };
    package.make(release, tree, out)
}

/// Makes the package of what a debugger reads.
pub fn debug_symbols(
    release: &Release,
    stripped: &Path,
    debug: &Path,
    out: &Path,
) -> Result<PathBuf, Failure> {
    let mut readelf = Command::new("readelf");
    readelf.arg("-n").arg(stripped);
    let notes = captured(readelf, b"", PATIENCE)?;
    let id = notes
        .lines()
        .find_map(|line| line.trim().strip_prefix("Build ID: "))
        .filter(|id| id.len() > 2 && id.is_ascii())
        .ok_or("the program has no build id")?;
    let (folder, name) = id.split_at(2);
    let mut tree = Tree::new(&out.join("stage/deb-dbgsym"), release.time_s)?;
    let path = format!("usr/lib/debug/.build-id/{folder}/{name}.debug");
    tree.copy(&path, debug, 0o644)?;
    tree.link("usr/share/doc/redline-dbgsym", "redline")?;
    let package = Package {
        name: "redline-dbgsym",
        section: "debug",
        summary: "debug symbols for redline",
        description: " What a debugger and a profiler read of the program.\n",
        fields: format!(
            "Depends: redline (= {})\nAuto-Built-Package: debug-symbols\nBuild-Ids: {id}\n",
            release.version
        ),
        scripts: None,
        conffiles: &[],
    };
    package.make(release, tree, out)
}

impl Package<'_> {
    fn make(&self, release: &Release, mut tree: Tree, out: &Path) -> Result<PathBuf, Failure> {
        if self.section != "debug" {
            self.document(release, &mut tree)?;
        }
        tree.settle()?;
        let size = tree.size_kib()?;
        self.control(release, &mut tree, size)?;
        tree.settle()?;
        let path = out.join(format!(
            "{}_{}_{}.deb",
            self.name, release.version, release.arch
        ));
        let mut build = Command::new("dpkg-deb");
        build
            .args(["--root-owner-group", "-Zxz", "--build"])
            .args([tree.root(), &path])
            .env("SOURCE_DATE_EPOCH", release.time_s.to_string())
            .stdout(std::process::Stdio::null());
        watched(build)?;
        Ok(path)
    }

    /// Adds what every package of Debian has in its folder of documents.
    fn document(&self, release: &Release, tree: &mut Tree) -> Result<(), Failure> {
        let doc = format!("usr/share/doc/{}", self.name);
        let mut date = Command::new("date");
        date.args(["-u", "-R", "-d"])
            .arg(format!("@{}", release.time_s))
            .env("LC_ALL", "C");
        let date = captured(date, b"", PATIENCE)?;
        let year = date.split_whitespace().nth(3).unwrap_or_default();
        let copyright = format!(
            "Format: https://www.debian.org/doc/packaging-manuals/copyright-format/1.0/\n\
             Upstream-Name: redline\n\nFiles: *\nCopyright: {year} The Redline authors\nLicense: Apache-2.0\n \
             On Debian systems, the full text is in /usr/share/common-licenses/Apache-2.0.\n .\n \
             The licences of the packages that the program is made of are in\n \
             /usr/share/doc/redline/third-party-licences.txt.gz.\n"
        );
        tree.file(&format!("{doc}/copyright"), copyright.as_bytes(), 0o644)?;
        let log = format!(
            "{} ({}) unstable; urgency=medium\n\n  * Release {}; CHANGELOG.md says what is new.\n\n -- {}  {date}",
            self.name, release.version, release.version, release.maintainer
        );
        // The version has no revision of Debian's.
        tree.compressed(&format!("{doc}/changelog"), log.as_bytes())
    }

    /// Adds the folder that `dpkg` reads.
    fn control(&self, release: &Release, tree: &mut Tree, size_kib: u64) -> Result<(), Failure> {
        let mut sums = Command::new("sh");
        sums.args([
            "-c",
            "find . -type f ! -path './DEBIAN/*' -printf '%P\\0' | LC_ALL=C sort -z | xargs -0 -r md5sum",
        ])
        .current_dir(tree.root());
        let sums = captured(sums, b"", PATIENCE)?;
        let control = self.fields_of(release, size_kib);
        tree.file("DEBIAN/control", control.as_bytes(), 0o644)?;
        tree.file("DEBIAN/md5sums", sums.as_bytes(), 0o644)?;
        if !self.conffiles.is_empty() {
            let lines: String = self
                .conffiles
                .iter()
                .map(|path| format!("/{path}\n"))
                .collect();
            tree.file("DEBIAN/conffiles", lines.as_bytes(), 0o644)?;
        }
        let Some(scripts) = self.scripts else {
            return Ok(());
        };
        let folder = workspace().join("packaging").join(scripts);
        for name in ["postinst", "prerm", "postrm"] {
            let text = fs::read(folder.join(name))
                .map_err(|error| format!("{}/{name}: {error}", folder.display()))?;
            tree.file(&format!("DEBIAN/{name}"), &text, 0o755)?;
        }
        Ok(())
    }

    /// Returns the text of `control`.
    fn fields_of(&self, release: &Release, size_kib: u64) -> String {
        format!(
            "Package: {}\nVersion: {}\nArchitecture: {}\nMaintainer: {}\nInstalled-Size: {size_kib}\n\
             {}Section: {}\nPriority: optional\nDescription: {}\n{}",
            self.name,
            release.version,
            release.arch,
            release.maintainer,
            self.fields,
            self.section,
            self.summary,
            self.description
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_line_of_control_is_a_field_or_goes_on() {
        let release = Release::sample();
        let package = Package {
            name: "redline",
            section: "database",
            summary: "summary",
            description: " More of it.\n",
            fields: "Depends: libc6\n".into(),
            scripts: None,
            conffiles: &[],
        };
        let text = package.fields_of(&release, 7);
        for line in text.lines() {
            let is_field = line
                .split_once(": ")
                .is_some_and(|(name, _)| name.chars().all(|c| c.is_ascii_alphabetic() || c == '-'));
            assert!(is_field || line.starts_with(' '), "{line}");
        }
        assert!(
            text.contains("\nInstalled-Size: 7\nDepends: libc6\nSection: "),
            "{text}"
        );
    }
}
