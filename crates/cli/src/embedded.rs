//! The server of `redline bench --embedded`: the built-in one, on a free loopback port, with threads of its own.
//!
//! Must not know what it is loaded with.

use std::io;
use std::net::{Ipv4Addr, TcpListener};

use redline_bench::{Address, EmbeddedServer};
use redline_server::{Origin, Server, Settings, StartError};

/// How often another port is tried when somebody else takes the one that was just free.
const PORTS_TRIED_MAX: usize = 16;

/// Starts it.
pub fn start() -> Result<EmbeddedServer, String> {
    let mut last = String::new();
    for _ in 0..PORTS_TRIED_MAX {
        let port =
            free_port().map_err(|error| format!("No port is free on {LOOPBACK}: {error}"))?;
        match Server::start(settings(port), Origin::default(), false) {
            Ok(server) => {
                let workers = match server.workers() {
                    1 => "1 worker".to_owned(),
                    workers => format!("{workers} workers"),
                };
                return Ok(EmbeddedServer {
                    address: Address::tcp(LOOPBACK.to_string(), port),
                    description: workers,
                    guard: Box::new(server),
                });
            }
            Err(StartError::Listen(error)) => last = error.to_string(),
            Err(error) => return Err(error.to_string()),
        }
    }
    Err(format!("Could not listen on {last}"))
}

const LOOPBACK: Ipv4Addr = Ipv4Addr::LOCALHOST;

fn settings(port: u16) -> Settings {
    Settings {
        port,
        bind: vec![LOOPBACK.to_string()],
        ..Settings::default()
    }
}

/// A port that is free now.
fn free_port() -> io::Result<u16> {
    Ok(TcpListener::bind((LOOPBACK, 0))?.local_addr()?.port())
}
