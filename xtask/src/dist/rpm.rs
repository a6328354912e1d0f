//! The RPM of the program, by `rpmbuild`: the files of the Debian package, where distributions with RPM have them.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use super::{CONFIGURATION, Release, SUMMARY, Tree};
use crate::run::{Failure, watched, workspace};

/// Folders that are elsewhere in Debian.
const MOVED: &[(&str, &str)] = &[
    ("lib/systemd/system", "usr/lib/systemd/system"),
    (
        "usr/share/zsh/vendor-completions",
        "usr/share/zsh/site-functions",
    ),
];
/// Folders that the package owns, with the user who owns them and their modes. Others belong to packages of the system.
const FOLDERS: &[(&str, &str, u32)] = &[
    ("etc/redline", "redline", 0o2770),
    ("usr/share/doc/redline", "root", 0o755),
    ("usr/share/redline", "root", 0o755),
    ("usr/share/redline/monitoring", "root", 0o755),
    ("usr/share/redline/monitoring/dashboards", "root", 0o755),
    ("usr/share/redline/suites", "root", 0o755),
    ("var/lib/redline", "redline", 0o750),
    ("var/log/redline", "redline", 0o750),
];
/// Scripts of the package, in `packaging/rpm`.
const SCRIPTS: &[&str] = &["pre", "post", "preun", "postun"];

/// Makes the package.
pub fn make(release: &Release, whole: &Tree, out: &Path) -> Result<PathBuf, Failure> {
    let stage = out.join("stage/rpm");
    let mut tree = Tree::new(&stage.join("tree"), release.time_s)?;
    tree.folder("", whole.root())?;
    tree.copy(
        "usr/share/doc/redline/LICENSE",
        &workspace().join("LICENSE"),
        0o644,
    )?;
    for (from, to) in MOVED {
        tree.folder(to, &tree.root().join(from))?;
        tree.remove(from)?;
    }
    for (path, _, _) in FOLDERS {
        tree.empty_folder(path)?;
    }
    tree.settle()?;
    let spec = stage.join("redline.spec");
    let scripts = SCRIPTS
        .iter()
        .map(|name| {
            let path = workspace().join("packaging/rpm").join(name);
            let text = fs::read_to_string(&path)
                .map_err(|error| format!("{}: {error}", path.display()))?;
            Ok(format!("%{name}\n{text}\n"))
        })
        .collect::<Result<String, Failure>>()?;
    let text = spec_of(release, &tree, &scripts)?;
    fs::write(&spec, text).map_err(|error| format!("{}: {error}", spec.display()))?;
    let made = stage.join("made");
    let mut build = Command::new("rpmbuild");
    build
        .args(["-bb", "--quiet", "--define"])
        .arg(format!("_topdir {}", stage.join("work").display()))
        .arg("--define")
        .arg(format!("_rpmdir {}", made.display()))
        .arg("--define")
        .arg(format!("staged {}", tree.root().display()))
        .arg(&spec)
        .env("SOURCE_DATE_EPOCH", release.time_s.to_string())
        .stdout(Stdio::null());
    watched(build)?;
    let arch = std::env::consts::ARCH;
    let name = format!("redline-{}-1.{arch}.rpm", release.version);
    let path = out.join(&name);
    fs::rename(made.join(arch).join(&name), &path).map_err(|error| format!("{name}: {error}"))?;
    Ok(path)
}

/// Returns what `rpmbuild` reads. It finds out itself what the program needs.
fn spec_of(release: &Release, tree: &Tree, scripts: &str) -> Result<String, Failure> {
    // Nothing is compressed, stripped or linked again; and nothing of the machine that builds is in the package.
    let mut text = format!(
        "%global debug_package %{{nil}}\n%global __os_install_post %{{nil}}\n%global _build_id_links none\n\
         %global _buildhost localhost\n%global use_source_date_epoch_as_buildtime 1\n\
         %global clamp_mtime_to_source_date_epoch 1\n%global _binary_payload w19.zstdio\n\n\
         Name: redline\nVersion: {}\nRelease: 1\nSummary: {SUMMARY}\nLicense: Apache-2.0\nPackager: {}\n\
         Requires(pre): shadow-utils\n\n\
         %description\nOne program for caches of the Redis protocol: an in-memory data store that Redis\n\
         clients can use, a load generator with redis-benchmark's command line, and a\n\
         proxy in front of many servers.\n\n\
         %install\ncp -a %{{staged}}/. %{{buildroot}}/\n\n{scripts}%files\n%defattr(-,root,root,-)\n",
        release.version, release.maintainer
    );
    for (path, user, mode) in FOLDERS {
        text += &format!("%dir %attr({mode:04o},{user},{user}) /{path}\n");
    }
    for path in tree.files()? {
        let mode = fs::symlink_metadata(tree.root().join(&path))
            .map_err(|error| format!("{path}: {error}"))?
            .permissions()
            .mode()
            & 0o7777;
        let is_configuration = CONFIGURATION.contains(&path.as_str());
        let user = match is_configuration && path.starts_with("etc/redline/") {
            true => "redline",
            false => "root",
        };
        if is_configuration {
            text += "%config(noreplace) ";
        } else if path.starts_with("usr/share/doc/") || path.starts_with("usr/share/man/") {
            text += "%doc ";
        }
        text += &format!("%attr({mode:04o},{user},{user}) /{path}\n");
    }
    Ok(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn configuration_stays_and_belongs_to_the_user() {
        let folder = tempfile::tempdir().unwrap();
        let mut tree = Tree::new(folder.path(), 0).unwrap();
        tree.file("etc/redline/redline.conf", b"", 0o640).unwrap();
        tree.file("usr/bin/redline", b"", 0o755).unwrap();
        let text = spec_of(&Release::sample(), &tree, "%pre\ntrue\n").unwrap();
        for line in [
            "%config(noreplace) %attr(0640,redline,redline) /etc/redline/redline.conf",
            "%attr(0755,root,root) /usr/bin/redline",
            "%dir %attr(2770,redline,redline) /etc/redline",
            "%pre",
        ] {
            assert!(text.lines().any(|one| one == line), "{line}: {text}");
        }
    }
}
