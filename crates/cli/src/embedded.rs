//! The server of `redline bench --embedded`: the built-in one, on a free loopback port, with its own threads.
//!
//! Must not know its load.

use redline_bench::{Address, EmbeddedServer};
use redline_server::{Origin, Server, Settings};

const LOOPBACK: &str = "127.0.0.1";

/// Starts it. It stops when the returned value is dropped.
pub fn start() -> Result<EmbeddedServer, String> {
    let settings = Settings {
        port: Some(0),
        bind: vec![LOOPBACK.into()],
        save_points: Vec::new(),
        // It neither loads nor saves what is in the folder.
        db_filename: String::new(),
        ..Settings::default()
    };
    let server = Server::start(settings, Origin::default(), false).map_err(|e| e.to_string())?;
    let workers = server.workers();
    Ok(EmbeddedServer {
        address: Address::tcp(LOOPBACK, server.port()),
        description: format!(
            "{workers} {}",
            if workers == 1 { "worker" } else { "workers" }
        ),
        guard: Box::new(server),
    })
}
