//! `cargo xtask dist`: of one build the Debian packages, the archive, the list of dependencies with their licences, and the image.
//!
//! Equal sources give equal bytes: every time in what is made is that of the last commit, or of `SOURCE_DATE_EPOCH`.

mod deb;
mod image;
mod rpm;
mod supply;
mod tree;
mod units;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use redline_testkit::symbols;

use crate::install;
use crate::run::{Failure, captured, cargo, watched, workspace};
use tree::Tree;

/// Newest glibc that the program may need: that of RHEL 9 and Amazon Linux 2023. `cli/tests/it/floor.rs` asserts it.
const GLIBC_MAX: (u32, u32) = (2, 34);
/// The version of cargo-auditable that is installed where there is none.
const AUDITABLE: &str = "0.7.5";
/// Summary of the program, in one line.
const SUMMARY: &str = "Redis-protocol server, proxy and load generator";
/// Configuration, which an upgrade keeps as it is.
const CONFIGURATION: &[&str] = &[
    "etc/logrotate.d/redline",
    "etc/redline/proxy.toml",
    "etc/redline/redline.conf",
];
/// Longer than any step takes.
const PATIENCE: Duration = Duration::from_secs(600);

/// Options of the command.
pub struct Options {
    /// The program; without one it is built.
    binary: Option<PathBuf>,
    /// Folder of what is made.
    out: PathBuf,
    /// Only the units are made.
    only_units: bool,
    /// The image is made, too, for which packages of Debian are fetched.
    with_image: bool,
    /// The RPM is made, too, for which `rpmbuild` is needed.
    with_rpm: bool,
}

impl Options {
    /// Parses the arguments.
    pub fn parse(words: &[String]) -> Result<Options, Failure> {
        let mut options = Options {
            binary: None,
            out: workspace().join("target/dist"),
            only_units: false,
            with_image: true,
            with_rpm: true,
        };
        let mut words = words.iter();
        while let Some(word) = words.next() {
            let mut value = || {
                let value = words.next().ok_or(format!("{word}: which?"))?;
                std::path::absolute(value).map_err(|error| format!("{value}: {error}"))
            };
            match word.as_str() {
                "--binary" => options.binary = Some(value()?),
                "--out" => options.out = value()?,
                "--units" => options.only_units = true,
                "--no-image" => options.with_image = false,
                "--no-rpm" => options.with_rpm = false,
                _ => return Err(format!("dist: {word} is not known. See cargo xtask --help")),
            }
        }
        Ok(options)
    }
}

/// Facts of the release that several files name.
struct Release {
    version: String,
    /// Debian's name of the processor.
    arch: &'static str,
    /// Seconds since 1970: every time in what is made.
    time_s: u64,
    /// Newest glibc that the program needs.
    glibc: (u32, u32),
    /// Maintainer of the packages: name and address.
    maintainer: String,
}

impl Release {
    /// Returns an arbitrary release.
    #[cfg(test)]
    fn sample() -> Release {
        Release {
            version: "9.9.9".into(),
            arch: "amd64",
            time_s: 0,
            glibc: (2, 34),
            maintainer: maintainer(None, None),
        }
    }
}

/// Returns the maintainer of the packages: whoever makes them, by `DEBFULLNAME` and `DEBEMAIL`. The project has no address, and
/// a package must have one: without the variables it is one that nobody can have.
fn maintainer(name: Option<String>, email: Option<String>) -> String {
    let or = |given: Option<String>, else_: &str| {
        given
            .filter(|text| !text.is_empty())
            .unwrap_or(else_.into())
    };
    format!(
        "{} <{}>",
        or(name, "The Redline authors"),
        or(email, "no-address@redline.invalid")
    )
}

/// Makes it all.
pub fn run(options: &Options) -> Result<(), Failure> {
    let out = &options.out;
    if out.exists() {
        fs::remove_dir_all(out).map_err(|error| format!("{}: {error}", out.display()))?;
    }
    let time_s = time_s()?;
    if options.only_units {
        let mut tree = Tree::new(&out.join("units"), time_s)?;
        units::ALL
            .iter()
            .try_for_each(|unit| tree.file(&unit.file_name(), unit.text().as_bytes(), 0o644))?;
        println!("{}", tree.root().display());
        return Ok(());
    }
    if options.with_image || options.with_rpm {
        install::packagers()?;
    }
    let binary = match &options.binary {
        Some(binary) => binary.clone(),
        None => build(time_s)?,
    };
    let release = Release {
        version: env!("CARGO_PKG_VERSION").to_owned(),
        arch: match std::env::consts::ARCH {
            "x86_64" => "amd64",
            "aarch64" => "arm64",
            other => return Err(format!("{other}: packages have no name for it")),
        },
        time_s,
        glibc: glibc_of(&binary)?,
        maintainer: maintainer(
            std::env::var("DEBFULLNAME").ok(),
            std::env::var("DEBEMAIL").ok(),
        ),
    };
    let (stripped, debug) = split(&binary, out)?;
    let mut made = Vec::new();
    let whole = stage(&release, &stripped, &out.join("stage/redline"))?;
    made.push(deb::redline(&release, &whole, out)?);
    made.push(deb::in_place_of_redis(&release, out)?);
    made.push(deb::debug_symbols(&release, &stripped, &debug, out)?);
    if options.with_rpm {
        made.push(rpm::make(&release, &whole, out)?);
    } else {
        println!("RPM: NOT MADE (--no-rpm)");
    }
    made.push(archive(&release, &whole, out)?);
    if options.with_image {
        made.push(image::make(&release, &whole, out)?);
    } else {
        println!("image: NOT MADE (--no-image)");
    }
    checksums(&made, out)?;
    fs::remove_dir_all(out.join("stage")).map_err(|error| error.to_string())?;
    println!(
        "glibc {}.{} and later; in {}:",
        release.glibc.0,
        release.glibc.1,
        out.display()
    );
    for path in made.iter().filter(|path| path.is_file()) {
        let bytes = fs::metadata(path).map_err(|error| error.to_string())?.len();
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        println!("{:>9} KiB  {name}", bytes >> 10);
    }
    Ok(())
}

/// Returns `SOURCE_DATE_EPOCH`, or the time of the last commit.
fn time_s() -> Result<u64, Failure> {
    let given = std::env::var("SOURCE_DATE_EPOCH").ok();
    let text = match given {
        Some(text) => text,
        None => {
            let mut git = Command::new("git");
            git.args(["log", "-1", "--format=%ct"])
                .current_dir(workspace());
            captured(git, b"", PATIENCE)?
        }
    };
    text.trim()
        .parse()
        .map_err(|_| format!("SOURCE_DATE_EPOCH: {text} are no seconds since 1970"))
}

/// Builds the program; paths of this machine are left out of it.
fn build(time_s: u64) -> Result<PathBuf, Failure> {
    let home = |name: &str, within: &str| {
        let given = std::env::var_os(name).map(PathBuf::from);
        given.or_else(|| Some(PathBuf::from(std::env::var_os("HOME")?).join(within)))
    };
    let mut flags = vec![format!(
        "--remap-path-prefix={}=/redline",
        workspace().display()
    )];
    for (path, shown) in [
        (home("CARGO_HOME", ".cargo"), "/cargo"),
        (home("RUSTUP_HOME", ".rustup"), "/rustup"),
    ] {
        flags.extend(path.map(|path| format!("--remap-path-prefix={}={shown}", path.display())));
    }
    let folder = workspace().join("target/dist-build");
    // The program has the list of its dependencies inside.
    let program = install::cargo_tool("cargo-auditable", AUDITABLE)?;
    let mut command = cargo(&[
        "auditable",
        "build",
        "--release",
        "--locked",
        "-p",
        "redline-cli",
    ]);
    let tools = program.parent().map(Path::to_owned).unwrap_or_default();
    let paths = std::env::var_os("PATH").unwrap_or_default();
    let paths = std::env::join_paths([tools].into_iter().chain(std::env::split_paths(&paths)))
        .map_err(|error| format!("PATH: {error}"))?;
    // The C compiler writes paths, too.
    let mapped = format!("-ffile-prefix-map={}=/redline", workspace().display());
    command
        .env("RUSTFLAGS", flags.join(" "))
        .env("CFLAGS", mapped)
        .env("SOURCE_DATE_EPOCH", time_s.to_string())
        .env("CARGO_TARGET_DIR", &folder)
        .env("PATH", paths);
    watched(command)?;
    Ok(folder.join("release/redline"))
}

/// Returns the newest glibc that a program needs, unless that is too new.
fn glibc_of(binary: &Path) -> Result<(u32, u32), Failure> {
    let needed = symbols::needed(binary)?;
    let newer: Vec<String> = needed
        .iter()
        .filter(|one| one.glibc().is_some_and(|version| version > GLIBC_MAX))
        .map(|one| format!("{} ({})", one.name, one.version))
        .collect();
    if !newer.is_empty() {
        return Err(format!(
            "{}: it needs a glibc newer than {}.{}: {}",
            binary.display(),
            GLIBC_MAX.0,
            GLIBC_MAX.1,
            newer.join(", ")
        ));
    }
    let newest = needed.iter().filter_map(symbols::Needed::glibc).max();
    newest.ok_or_else(|| format!("{}: it needs no glibc", binary.display()))
}

/// Divides the program into what runs and what a debugger reads.
fn split(binary: &Path, out: &Path) -> Result<(PathBuf, PathBuf), Failure> {
    let folder = out.join("stage/program");
    fs::create_dir_all(&folder).map_err(|error| error.to_string())?;
    let (stripped, debug) = (folder.join("redline"), folder.join("redline.debug"));
    let mut keep = Command::new("objcopy");
    keep.args(["--only-keep-debug", "--compress-debug-sections"])
        .args([binary, &debug]);
    watched(keep)?;
    let mut strip = Command::new("strip");
    strip
        .args(["--strip-all", "--remove-section=.comment", "-o"])
        .args([stripped.as_path(), binary]);
    watched(strip)?;
    Ok((stripped, debug))
}

/// Puts together what a package, the archive and the image have in common.
fn stage(release: &Release, program: &Path, root: &Path) -> Result<Tree, Failure> {
    let mut tree = Tree::new(root, release.time_s)?;
    let packaging = workspace().join("packaging");
    tree.copy("usr/bin/redline", program, 0o755)?;
    let say = |words: &[&str]| {
        let mut command = Command::new(program);
        command
            .args(words)
            .env("SOURCE_DATE_EPOCH", release.time_s.to_string());
        captured(command, b"", PATIENCE)
    };
    for name in say(&["man"])?.lines() {
        let (_, section) = name.rsplit_once('.').unwrap_or((name, "1"));
        let page = say(&["man", name])?;
        tree.compressed(
            &format!("usr/share/man/man{section}/{name}"),
            page.as_bytes(),
        )?;
    }
    for (shell, path) in [
        ("bash", "usr/share/bash-completion/completions/redline"),
        ("zsh", "usr/share/zsh/vendor-completions/_redline"),
        ("fish", "usr/share/fish/vendor_completions.d/redline.fish"),
    ] {
        let text = say(&["completions", shell])?;
        tree.file(path, text.as_bytes(), 0o644)?;
    }
    for unit in units::ALL.iter().filter(|unit| !unit.is_of_redis()) {
        let path = format!("lib/systemd/system/{}", unit.file_name());
        tree.file(&path, unit.text().as_bytes(), 0o644)?;
    }
    for (name, path, mode) in [
        ("redline.conf", "etc/redline/redline.conf", 0o640),
        ("proxy.toml", "etc/redline/proxy.toml", 0o640),
        ("logrotate", "etc/logrotate.d/redline", 0o644),
        ("sysusers.conf", "usr/lib/sysusers.d/redline.conf", 0o644),
        ("tmpfiles.conf", "usr/lib/tmpfiles.d/redline.conf", 0o644),
    ] {
        tree.copy(path, &packaging.join(name), mode)?;
    }
    let shared = "usr/share/redline";
    tree.readable_folder(&format!("{shared}/suites"), &workspace().join("suites"))?;
    let monitoring = workspace().join("monitoring");
    tree.readable_folder(
        &format!("{shared}/monitoring/dashboards"),
        &monitoring.join("dashboards"),
    )?;
    for name in ["alerts.yml", "rules.yml"] {
        let path = format!("{shared}/monitoring/{name}");
        tree.copy(&path, &monitoring.join(name), 0o644)?;
    }
    let (components, licences) = supply::of_program(release)?;
    let doc = "usr/share/doc/redline";
    tree.file(
        &format!("{doc}/redline.cdx.json"),
        components.as_bytes(),
        0o644,
    )?;
    tree.compressed(
        &format!("{doc}/third-party-licences.txt"),
        licences.as_bytes(),
    )?;
    Ok(tree)
}

/// Makes the archive for systems without our packages.
fn archive(release: &Release, whole: &Tree, out: &Path) -> Result<PathBuf, Failure> {
    let name = format!(
        "redline-{}-linux-{}",
        release.version,
        std::env::consts::ARCH
    );
    let mut tree = Tree::new(&out.join("stage/archive").join(&name), release.time_s)?;
    tree.folder("", whole.root())?;
    tree.copy("LICENSE", &workspace().join("LICENSE"), 0o644)?;
    tree.copy("README.md", &workspace().join("README.md"), 0o644)?;
    tree.settle()?;
    let path = out.join(format!("{name}.tar.gz"));
    tree::tar(&out.join("stage/archive"), release.time_s, &path, true)?;
    Ok(path)
}

/// Writes `SHA256SUMS` of the files that were made.
fn checksums(made: &[PathBuf], out: &Path) -> Result<(), Failure> {
    let names = made.iter().filter_map(|path| path.file_name());
    let mut sums = Command::new("sha256sum");
    sums.args(names).current_dir(out);
    let text = captured(sums, b"", PATIENCE)?;
    fs::write(out.join("SHA256SUMS"), text).map_err(|error| error.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn options_are_read_and_others_refused() {
        let parse = |words: &[&str]| {
            let words: Vec<String> = words.iter().map(|word| (*word).to_owned()).collect();
            Options::parse(&words)
        };
        let options = parse(&["--binary", "/b", "--no-image"]).unwrap();
        assert_eq!(options.binary.as_deref(), Some(Path::new("/b")));
        assert!(!options.with_image && options.with_rpm && !options.only_units);
        for wrong in [&["--binary"][..], &["x"], &["--nosuch"]] {
            assert!(parse(wrong).is_err(), "{wrong:?}");
        }
    }

    #[test]
    fn the_chart_has_the_version_of_the_program() {
        let chart = workspace().join("packaging/helm/redline/Chart.yaml");
        let chart = fs::read_to_string(chart).unwrap();
        let version = env!("CARGO_PKG_VERSION");
        for line in [
            format!("version: {version}"),
            format!("appVersion: \"{version}\""),
        ] {
            assert!(chart.lines().any(|one| one == line), "{line}");
        }
    }

    #[test]
    fn the_maintainer_is_who_makes_the_packages() {
        let given = |name: &str, email: &str| maintainer(Some(name.into()), Some(email.into()));
        assert_eq!(given("A B", "a@b.example"), "A B <a@b.example>");
        let nobody = maintainer(None, None);
        assert!(nobody.ends_with(".invalid>"), "{nobody}");
        assert_eq!(given("", ""), nobody);
    }
}
