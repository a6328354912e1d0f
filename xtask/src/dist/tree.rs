//! A folder that becomes a package: its files, with their modes, and with one time for all. Must not know what it holds.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use super::PATIENCE;
use crate::run::{Failure, captured, watched};

/// See the head of the module.
pub struct Tree {
    root: PathBuf,
    time_s: u64,
}

impl Tree {
    /// Makes the folder.
    pub fn new(root: &Path, time_s: u64) -> Result<Tree, Failure> {
        let tree = Tree {
            root: root.to_owned(),
            time_s,
        };
        fs::create_dir_all(root).map_err(|error| tree.failed("", &error))?;
        Ok(tree)
    }

    /// Returns the folder.
    pub fn root(&self) -> &Path {
        &self.root
    }

    fn failed(&self, path: &str, error: &std::io::Error) -> Failure {
        format!("{}: {error}", self.root.join(path).display())
    }

    /// Writes a file, and the folders above it.
    pub fn file(&mut self, path: &str, bytes: &[u8], mode: u32) -> Result<(), Failure> {
        let whole = self.root.join(path);
        let written = (|| {
            fs::create_dir_all(whole.parent().unwrap_or(&self.root))?;
            fs::write(&whole, bytes)?;
            fs::set_permissions(&whole, fs::Permissions::from_mode(mode))
        })();
        written.map_err(|error| self.failed(path, &error))
    }

    /// Copies a file.
    pub fn copy(&mut self, path: &str, from: &Path, mode: u32) -> Result<(), Failure> {
        let bytes = fs::read(from).map_err(|error| format!("{}: {error}", from.display()))?;
        self.file(path, &bytes, mode)
    }

    /// Writes a file that `gzip` has compressed, with `.gz` behind its name.
    pub fn compressed(&mut self, path: &str, bytes: &[u8]) -> Result<(), Failure> {
        self.file(path, bytes, 0o644)?;
        let mut gzip = Command::new("gzip");
        gzip.args(["-9", "-n", "-f"]).arg(self.root.join(path));
        watched(gzip)
    }

    /// Makes a symbolic link.
    pub fn link(&mut self, path: &str, to: &str) -> Result<(), Failure> {
        let whole = self.root.join(path);
        let linked = fs::create_dir_all(whole.parent().unwrap_or(&self.root))
            .and_then(|()| std::os::unix::fs::symlink(to, &whole));
        linked.map_err(|error| self.failed(path, &error))
    }

    /// Copies the files of a folder, with their modes.
    pub fn folder(&mut self, path: &str, from: &Path) -> Result<(), Failure> {
        let to = self.root.join(path);
        fs::create_dir_all(&to).map_err(|error| self.failed(path, &error))?;
        let mut copy = Command::new("cp");
        copy.args(["-R", "--preserve=mode"])
            .arg(from.join("."))
            .arg(to);
        watched(copy)
    }

    /// Copies a folder of the repository: whatever modes its files have there, here all can read them.
    pub fn readable_folder(&mut self, path: &str, from: &Path) -> Result<(), Failure> {
        self.folder(path, from)?;
        let mut find = Command::new("find");
        find.arg(self.root.join(path))
            .args(["-type", "f", "-exec", "chmod", "0644", "{}", "+"]);
        watched(find)
    }

    /// Makes a folder with nothing in it.
    pub fn empty_folder(&mut self, path: &str) -> Result<(), Failure> {
        fs::create_dir_all(self.root.join(path)).map_err(|error| self.failed(path, &error))
    }

    /// Removes a folder with all that it holds.
    pub fn remove(&mut self, path: &str) -> Result<(), Failure> {
        fs::remove_dir_all(self.root.join(path)).map_err(|error| self.failed(path, &error))
    }

    /// Returns the paths of everything but folders, sorted.
    pub fn files(&self) -> Result<Vec<String>, Failure> {
        let mut find = Command::new("find");
        find.arg(&self.root).args([
            "(", "-type", "f", "-o", "-type", "l", ")", "-printf", "%P\\n",
        ]);
        let said = captured(find, b"", PATIENCE)?;
        let mut paths: Vec<String> = said.lines().map(str::to_owned).collect();
        paths.sort();
        Ok(paths)
    }

    /// Gives folders their modes, and everything its time.
    pub fn settle(&self) -> Result<(), Failure> {
        let mut find = Command::new("find");
        find.arg(&self.root)
            .args(["-type", "d", "-exec", "chmod", "0755", "{}", "+"]);
        watched(find)?;
        let mut touch = Command::new("find");
        touch.arg(&self.root).args(["-exec", "touch", "-h", "-d"]);
        touch
            .arg(format!("@{}", self.time_s))
            .args(["--", "{}", "+"]);
        watched(touch)
    }

    /// Returns the size of all files in KiB, as `Installed-Size` wants it.
    pub fn size_kib(&self) -> Result<u64, Failure> {
        let mut du = Command::new("du");
        du.args(["-sk", "--apparent-size"]).arg(&self.root);
        let said = captured(du, b"", PATIENCE)?;
        let first = said.split_whitespace().next();
        let size = first.and_then(|text| text.parse().ok());
        size.ok_or_else(|| format!("du: {said}"))
    }
}

/// Writes what a folder holds as a tar file, sorted, with one owner and one time.
pub fn tar(folder: &Path, time_s: u64, to: &Path, compressed: bool) -> Result<(), Failure> {
    let mut tar = Command::new("tar");
    tar.args(["--sort=name", "--owner=0", "--group=0", "--numeric-owner"])
        .args(["--format=posix", "--pax-option=delete=atime,delete=ctime"])
        .arg(format!("--mtime=@{time_s}"))
        .arg("-C")
        .arg(folder)
        .arg("-cf")
        .arg(to)
        .args(if compressed {
            &["-I", "gzip -9 -n"][..]
        } else {
            &[]
        })
        .arg(".");
    watched(tar)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mask_of_the_builder_was_in_the_packages() {
        let folder = tempfile::tempdir().unwrap();
        let within = |name: &str| folder.path().join(name);
        fs::create_dir(within("from")).unwrap();
        let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o7777;
        let set = |path: &Path, mode| {
            fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
        };
        // No mask lets these through by itself: a copy has to give them.
        fs::write(within("from/all"), b"").unwrap();
        set(&within("from/all"), 0o666);
        let mut tree = Tree::new(&within("to"), 0).unwrap();
        tree.folder("kept", &within("from")).unwrap();
        assert_eq!(mode(&within("to/kept/all")), 0o666);
        set(&within("from/all"), 0o600);
        tree.readable_folder("read", &within("from")).unwrap();
        assert_eq!(mode(&within("to/read/all")), 0o644);
    }
}
