//! Checks of what a configuration names: addresses, folders, files with secrets, certificates.
//!
//! Must not know the kernel's settings. Opens nothing for writing, and listens for a moment only.

use std::fs;
use std::io::{self, ErrorKind};
use std::net::{SocketAddr, TcpListener};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::time::{SystemTime, UNIX_EPOCH};

use redline_net::{Endpoint, error_text, process};
use rustix::fs::{Access, access, statvfs};
use x509_parser::pem::Pem;

use crate::{Finding, Folder, Listening, Wanted};

/// Certificates that end within this time are told.
const DAYS_MIN: i64 = 21;
/// Least room on a disk that is written to.
const FREE_BYTES_MIN: u64 = 256 << 20;

/// Returns the findings.
pub fn checks(wanted: &Wanted) -> Vec<Finding> {
    let mut found: Vec<Finding> = wanted.listening.iter().filter_map(address).collect();
    found.extend(wanted.folders.iter().map(folder));
    found.extend(wanted.private.iter().map(|path| private(path)));
    found.extend(wanted.certificates.iter().map(|path| certificate(path)));
    found.extend(wanted.open_to_all.iter().map(|why| {
        Finding::fault("access", why)
            .mend("a password (requirepass), protected-mode yes, or bind 127.0.0.1")
    }));
    found
}

fn address(wanted: &Listening) -> Option<Finding> {
    const CHECK: &str = "address";
    if wanted.port == 0 {
        return None;
    }
    let (host, is_optional) = match wanted.host.strip_prefix('-') {
        Some(host) => (host, true),
        None => (&*wanted.host, false),
    };
    let host = match host {
        "*" => "0.0.0.0",
        "::*" => "::",
        host => host.trim_start_matches('[').trim_end_matches(']'),
    };
    let shown = match host.contains(':') {
        true => format!("[{host}]:{}", wanted.port),
        false => format!("{host}:{}", wanted.port),
    };
    let error = match TcpListener::bind((host, wanted.port)) {
        Ok(_) => return Some(Finding::ok(CHECK, format!("{shown} is free"))),
        Err(error) => error,
    };
    Some(match error.kind() {
        ErrorKind::AddrInUse => {
            let holder = holder(host, wanted.port);
            let by = holder.map_or(String::new(), |(pid, name)| {
                format!(" by process {pid}, {name}")
            });
            Finding::fault(CHECK, format!("{shown} is in use{by}")).mend(
                "another port, or stop that process (if it is this service itself, all is well)",
            )
        }
        ErrorKind::AddrNotAvailable if is_optional => return None,
        ErrorKind::PermissionDenied => {
            Finding::fault(CHECK, format!("{shown}: ports below 1024 need a right"))
                .mend("AmbientCapabilities=CAP_NET_BIND_SERVICE in the unit, or a port above 1023")
        }
        _ => Finding::fault(CHECK, format!("{shown}: {}", error_text(&error))),
    })
}

/// Returns the process that listens there, or on any address with that port.
fn holder(host: &str, port: u16) -> Option<(u32, String)> {
    let ip = match host {
        "0.0.0.0" => "127.0.0.1",
        "::" => "::1",
        host => host,
    };
    let address = SocketAddr::new(ip.parse().ok()?, port);
    let pid = process::listening_at(&Endpoint::Tcp(address)).ok()??;
    Some((pid, process::name_of(pid).unwrap_or_default()))
}

fn folder(wanted: &Folder) -> Finding {
    let Folder { what, path, bytes } = wanted;
    let shown = path.display();
    let is_folder = match fs::metadata(path) {
        Ok(about) => about.is_dir(),
        Err(error) => {
            return Finding::fault(
                "folder",
                format!("for {what}: {shown}: {}", error_text(&error)),
            )
            .mend(format!("install -d {shown}, owned by the service's user"));
        }
    };
    if !is_folder {
        return Finding::fault("folder", format!("for {what}: {shown} is no folder"));
    }
    if access(path, Access::WRITE_OK | Access::EXEC_OK).is_err() {
        return Finding::fault(
            "folder",
            format!("for {what}: {shown} cannot be written to by this user"),
        )
        .mend(format!("chown to the service's user: chown USER {shown}"));
    }
    let Ok(about) = statvfs(path) else {
        return Finding::not_known(
            "folder",
            format!("for {what}: {shown}: its free space cannot be read"),
        );
    };
    let free = about.f_bavail.saturating_mul(about.f_frsize);
    let needed = (*bytes).max(FREE_BYTES_MIN);
    match free < needed {
        true => Finding::warning(
            "folder",
            format!(
                "for {what}: {shown} has {} MiB free, and a save may need {} MiB",
                free >> 20,
                needed >> 20
            ),
        ),
        false => Finding::ok(
            "folder",
            format!("for {what}: {shown}, {} MiB free", free >> 20),
        ),
    }
}

fn private(path: &Path) -> Finding {
    const CHECK: &str = "secrets";
    let shown = path.display();
    match fs::metadata(path) {
        Err(error) => Finding::not_known(CHECK, format!("{shown}: {}", error_text(&error))),
        Ok(about) if about.permissions().mode() & 0o007 != 0 => Finding::warning(
            CHECK,
            format!("{shown} holds secrets, and every user may read it"),
        )
        .mend(format!("chmod o= {shown}")),
        Ok(_) => Finding::ok(CHECK, format!("{shown} cannot be read by every user")),
    }
}

fn certificate(path: &Path) -> Finding {
    const CHECK: &str = "certificate";
    let shown = path.display();
    let ends = match end_of_chain(path) {
        Ok(ends) => ends,
        Err(error) => {
            let why = error_text(&error);
            return Finding::fault(CHECK, format!("{shown}: {why}"));
        }
    };
    let now = SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .unwrap_or_default();
    let days = (ends - now.as_secs() as i64).div_euclid(86_400);
    match days {
        i64::MIN..0 => Finding::fault(CHECK, format!("{shown} has expired {} days ago", -days))
            .mend("renew it, then SIGHUP"),
        0..DAYS_MIN => Finding::warning(CHECK, format!("{shown} expires in {days} days"))
            .mend("renew it, then SIGHUP"),
        _ => Finding::ok(CHECK, format!("{shown} is valid for {days} days")),
    }
}

/// Returns the time at which the first certificate of a chain ends to be valid: seconds since 1970.
fn end_of_chain(path: &Path) -> io::Result<i64> {
    let invalid = |why: &str| io::Error::new(ErrorKind::InvalidData, why.to_owned());
    let bytes = fs::read(path)?;
    let mut first = None;
    for pem in Pem::iter_from_buffer(&bytes) {
        let pem = pem.map_err(|_| invalid("no PEM file"))?;
        if pem.label != "CERTIFICATE" {
            continue;
        }
        let certificate = pem
            .parse_x509()
            .map_err(|_| invalid("no X.509 certificate"))?;
        let ends = certificate.validity().not_after.timestamp();
        first = Some(first.map_or(ends, |known: i64| known.min(ends)));
    }
    first.ok_or_else(|| invalid("there is no certificate in it"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::State;

    #[test]
    fn certificates_are_judged_by_their_days() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("c.pem");
        let of = |year, month| {
            let mut params = rcgen::CertificateParams::new(vec!["a.example".to_owned()]).unwrap();
            params.not_before = rcgen::date_time_ymd(1999, 1, 1);
            params.not_after = rcgen::date_time_ymd(year, month, 1);
            let key = rcgen::KeyPair::generate().unwrap();
            fs::write(&path, params.self_signed(&key).unwrap().pem()).unwrap();
            certificate(&path)
        };
        assert_eq!(of(2000, 1).state, State::Fault);
        assert_eq!(of(4000, 1).state, State::Ok);
        fs::write(
            &path,
            "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n",
        )
        .unwrap();
        for text in [
            "",
            "nothing",
            "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n",
        ] {
            fs::write(&path, text).unwrap();
            assert_eq!(certificate(&path).state, State::Fault, "{text}");
        }
        assert_eq!(certificate(Path::new("/nosuch")).state, State::Fault);
    }

    #[test]
    fn a_port_that_is_taken_is_told_with_its_process() {
        let taken = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = taken.local_addr().unwrap().port();
        let of = |host: &str, port| {
            address(&Listening {
                host: host.to_owned(),
                port,
            })
        };
        let found = of("127.0.0.1", port).unwrap();
        assert_eq!(found.state, State::Fault);
        assert!(
            found
                .text
                .contains(&format!("process {}", std::process::id())),
            "{found:?}"
        );
        drop(taken);
        assert_eq!(of("127.0.0.1", port).unwrap().state, State::Ok);
        assert_eq!(of("-192.0.2.1", port), None);
        assert_eq!(of("192.0.2.1", port).unwrap().state, State::Fault);
        assert_eq!(of("127.0.0.1", 0), None);
    }

    #[test]
    fn folders_and_secrets_are_looked_at() {
        let root = tempfile::tempdir().unwrap();
        let of = |path: &Path, bytes| {
            folder(&Folder {
                what: "dir",
                path: path.to_owned(),
                bytes,
            })
        };
        assert_eq!(of(&root.path().join("nosuch"), 0).state, State::Fault);
        assert_eq!(of(root.path(), u64::MAX).state, State::Warning);
        let file = root.path().join("f");
        fs::write(&file, "x").unwrap();
        assert_eq!(of(&file, 0).state, State::Fault);
        for (mode, state) in [(0o644, State::Warning), (0o640, State::Ok)] {
            fs::set_permissions(&file, fs::Permissions::from_mode(mode)).unwrap();
            assert_eq!(private(&file).state, state);
        }
        assert_eq!(private(Path::new("/nosuch")).state, State::NotKnown);
    }
}
