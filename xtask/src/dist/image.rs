//! The image, as an OCI layout: a few packages of Debian without a shell's comfort, and our files, in one layer.
//!
//! Made without an engine for containers: `mmdebstrap` fills a folder, the rest is files.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::{Value, json};

use super::{PATIENCE, Release, Tree, tree};
use crate::run::{Failure, captured, watched, workspace};

/// Packages that the program and its users need.
const BASE: &str = "base-files,libc6,libgcc-s1,ca-certificates,netbase,tzdata";
/// Release of Debian that they are of.
const SUITE: &str = "bookworm";
/// User and group inside; any other number works as well.
const USER: &str = "999:999";

/// Makes the layout and its archive, `redline-VERSION-image.tar`.
pub fn make(release: &Release, whole: &Tree, out: &Path) -> Result<PathBuf, Failure> {
    let root = out.join("stage/image");
    let mut base = Command::new("mmdebstrap");
    base.args(["--quiet", "--variant=extract", "--mode=root"])
        .arg(format!("--include={BASE}"))
        .arg(SUITE)
        .arg(&root)
        .env("SOURCE_DATE_EPOCH", release.time_s.to_string());
    watched(base)?;
    let mut files = Tree::new(&root, release.time_s)?;
    for path in ["usr/share/man", "var/lib/apt", "var/cache", "var/log"] {
        // It need not be there.
        let _ = fs::remove_dir_all(root.join(path));
    }
    // Of documents the licences stay.
    let mut find = Command::new("find");
    find.arg(root.join("usr/share/doc")).args([
        "!",
        "-type",
        "d",
        "!",
        "-name",
        "copyright",
        "-delete",
    ]);
    watched(find)?;
    files.copy(
        "usr/bin/redline",
        &whole.root().join("usr/bin/redline"),
        0o755,
    )?;
    for name in ["redis-server", "redis-benchmark"] {
        files.link(&format!("usr/bin/{name}"), "redline")?;
    }
    files.folder("usr/share/redline", &whole.root().join("usr/share/redline"))?;
    files.folder(
        "usr/share/doc/redline",
        &whole.root().join("usr/share/doc/redline"),
    )?;
    let config = workspace().join("packaging/image/redline.conf");
    files.copy("etc/redline/redline.conf", &config, 0o644)?;
    let user = "root:x:0:0:root:/root:/usr/sbin/nologin\nredline:x:999:999:Redline:/data:/usr/sbin/nologin\n";
    files.file("etc/passwd", user.as_bytes(), 0o644)?;
    files.file("etc/group", b"root:x:0:\nredline:x:999:\n", 0o644)?;
    certificates(&root)?;
    // Whoever runs it, under whatever number, writes there.
    let data = root.join("data");
    fs::create_dir_all(&data).map_err(|error| error.to_string())?;
    files.settle()?;
    let mut open = Command::new("chmod");
    open.arg("1777").arg(&data).arg(root.join("tmp"));
    watched(open)?;
    layout(release, &root, out)
}

/// Puts the certificates of authorities into one file, as `update-ca-certificates` does.
fn certificates(root: &Path) -> Result<(), Failure> {
    let mut join = Command::new("sh");
    join.args([
        "-c",
        "mkdir -p etc/ssl/certs && find usr/share/ca-certificates -name '*.crt' | LC_ALL=C sort | xargs cat > etc/ssl/certs/ca-certificates.crt",
    ])
    .current_dir(root);
    watched(join)
}

fn digest(path: &Path) -> Result<String, Failure> {
    let mut sum = Command::new("sha256sum");
    sum.arg(path);
    let said = captured(sum, b"", PATIENCE)?;
    let sum = said.split_whitespace().next().unwrap_or_default();
    Ok(sum.to_owned())
}

/// Moves a file to its place by its digest; returns its description.
fn blob(layout: &Path, path: &Path, kind: &str) -> Result<Value, Failure> {
    let failed = |error: std::io::Error| format!("{}: {error}", path.display());
    let digest = digest(path)?;
    let size = fs::metadata(path).map_err(failed)?.len();
    fs::rename(path, layout.join("blobs/sha256").join(&digest)).map_err(failed)?;
    Ok(json!({
        "mediaType": format!("application/vnd.oci.image.{kind}"),
        "digest": format!("sha256:{digest}"),
        "size": size,
    }))
}

fn layout(release: &Release, root: &Path, out: &Path) -> Result<PathBuf, Failure> {
    let layout = out.join("image");
    let failed = |error: std::io::Error| format!("{}: {error}", layout.display());
    fs::create_dir_all(layout.join("blobs/sha256")).map_err(failed)?;
    let mut date = Command::new("date");
    date.args(["-u", "+%Y-%m-%dT%H:%M:%SZ", "-d"])
        .arg(format!("@{}", release.time_s));
    let created = captured(date, b"", PATIENCE)?;
    let created = created.trim();
    let plain = out.join("stage/layer.tar");
    tree::tar(root, release.time_s, &plain, false)?;
    let unpacked = digest(&plain)?;
    let mut gzip = Command::new("gzip");
    gzip.args(["-9", "-n", "-f"]).arg(&plain);
    watched(gzip)?;
    let layer = blob(
        &layout,
        &out.join("stage/layer.tar.gz"),
        "layer.v1.tar+gzip",
    )?;
    let written = |name: &str, value: &Value| {
        let path = out.join("stage").join(name);
        fs::write(&path, format!("{value}\n"))
            .map_err(|error| error.to_string())
            .map(|()| path)
    };
    let labels = labels(release, created);
    let config = written("config.json", &configuration(release, created, &unpacked))?;
    let config = blob(&layout, &config, "config.v1+json")?;
    let manifest = written(
        "manifest.json",
        &json!({
            "schemaVersion": 2,
            "mediaType": "application/vnd.oci.image.manifest.v1+json",
            "config": config,
            "layers": [layer],
            "annotations": labels,
        }),
    )?;
    let mut manifest = blob(&layout, &manifest, "manifest.v1+json")?;
    manifest["annotations"] = json!({ "org.opencontainers.image.ref.name": release.version });
    let index = json!({
        "schemaVersion": 2,
        "mediaType": "application/vnd.oci.image.index.v1+json",
        "manifests": [manifest],
    });
    fs::write(layout.join("index.json"), format!("{index}\n")).map_err(failed)?;
    let version = json!({ "imageLayoutVersion": "1.0.0" });
    fs::write(layout.join("oci-layout"), format!("{version}\n")).map_err(failed)?;
    let path = out.join(format!(
        "redline-{}-image-{}.tar",
        release.version, release.arch
    ));
    tree::tar(&layout, release.time_s, &path, false)?;
    println!("image: {}", manifest["digest"].as_str().unwrap_or_default());
    Ok(path)
}

fn labels(release: &Release, created: &str) -> Value {
    json!({
        "org.opencontainers.image.title": "redline",
        "org.opencontainers.image.description": super::SUMMARY,
        "org.opencontainers.image.version": release.version,
        "org.opencontainers.image.created": created,
        "org.opencontainers.image.licenses": "Apache-2.0",
    })
}

/// Returns the configuration of containers. `unpacked`: digest of the layer before it was compressed.
fn configuration(release: &Release, created: &str, unpacked: &str) -> Value {
    json!({
        "architecture": release.arch,
        "os": "linux",
        "created": created,
        "config": {
            "User": USER,
            "WorkingDir": "/data",
            "Volumes": { "/data": {} },
            "ExposedPorts": { "6379/tcp": {} },
            "StopSignal": "SIGTERM",
            "Env": ["PATH=/usr/bin:/bin"],
            "Entrypoint": ["/usr/bin/redline"],
            "Cmd": ["server", "/etc/redline/redline.conf"],
            "Labels": labels(release, created),
            // The form of Docker: OCI's has no word for it, and passes it on.
            "Healthcheck": { "Test": ["CMD", "/usr/bin/redline", "ping"], "Interval": 10_000_000_000_u64 },
        },
        "rootfs": { "type": "layers", "diff_ids": [format!("sha256:{unpacked}")] },
        "history": [{ "created": created, "created_by": "cargo xtask dist" }],
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_container_is_not_root_and_has_a_health_check() {
        let release = Release::sample();
        let whole = configuration(&release, "1970-01-01T00:00:00Z", "abc");
        let config = &whole["config"];
        assert_eq!(config["User"], "999:999");
        assert_eq!(config["Healthcheck"]["Test"][2], "ping");
        assert_eq!(
            config["Labels"]["org.opencontainers.image.version"],
            "9.9.9"
        );
        assert_eq!(whole["rootfs"]["diff_ids"][0], "sha256:abc");
    }
}
