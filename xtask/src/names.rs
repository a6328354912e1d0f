//! `redline proxy` in front of a server with a name, when the name resolves to another server: the real resolver, with
//! the test's own hosts file.

use std::fs;
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::process::Command;
use std::time::Instant;

use redline_testkit::process::ServerProcess;

use crate::compat::Setting;
use crate::install;
use crate::proxy::{call, connect};
use crate::run::{Failure, Folder, Process, free_port, until};

const NAME: &str = "redis.test";

/// Kills the server of the name, which then resolves to another one: returns the seconds until a connected client is answered.
pub fn a_name_that_means_another_server(setting: &Setting) -> Result<f64, Failure> {
    let program = install::older_redis_server()?;
    let failed = |error: std::io::Error| format!("names: {error}");
    let first = ServerProcess::redis(&program, &[]).map_err(failed)?;
    let port = first.address().port();
    // The same port of another address of the loopback.
    let other = Ipv4Addr::new(127, 0, 0, 2);
    let folder = Folder::new("names")?;
    let mut command = Command::new(&program);
    command.current_dir(folder.path()).args([
        "--bind",
        &other.to_string(),
        "--port",
        &port.to_string(),
        "--save",
        "",
    ]);
    let _second = Process::start(&mut command)?;
    let second = SocketAddr::from((other, port));
    until("the second server listens", || {
        TcpStream::connect(second).is_ok()
    })?;
    for (address, value) in [(first.address(), "first"), (second, "second")] {
        call(&mut connect(address)?, &["SET", "who", value])?;
    }
    let hosts = folder.path().join("hosts");
    let mean = |address: Ipv4Addr| fs::write(&hosts, format!("{address} {NAME}\n")).map_err(failed);
    mean(Ipv4Addr::LOCALHOST)?;
    let proxy_port = free_port()?;
    // In its own mount namespace, so that no other process sees the file.
    let mut command = Command::new("unshare");
    command
        .args(["--map-root-user", "--mount", "sh", "-c"])
        .arg("mount --bind \"$0\" /etc/hosts && exec \"$@\"")
        .arg(&hosts)
        .arg(&setting.redline)
        .args(["proxy", "--port", &proxy_port.to_string()])
        .args(["--upstream", &format!("{NAME}:{port}")]);
    let _proxy = Process::start(&mut command)?;
    let proxy = SocketAddr::from((Ipv4Addr::LOCALHOST, proxy_port));
    until("the proxy listens", || TcpStream::connect(proxy).is_ok())?;
    let mut client = connect(proxy)?;
    let mut is = |value: &str| {
        let got = call(&mut client, &["GET", "who"]);
        got.is_ok_and(|got| got.as_bytes() == Some(value.as_bytes()))
    };
    until("the first server answers", || is("first"))?;
    mean(other)?;
    drop(first);
    let began = Instant::now();
    until("the second server answers", || is("second"))?;
    Ok(began.elapsed().as_secs_f64())
}
