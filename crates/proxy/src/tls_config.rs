//! TLS of both sides: reads the files that the configuration names, at the start and at each reload. Must not know
//! connections.

use std::path::Path;
use std::time::Duration;

use redline_front::Certificates;
use redline_net::tls::{
    ClientTls, ClientTlsOptions, Peer, ServerTls, ServerTlsOptions, SessionCache, TlsOptions,
};
use redline_proxy_config::{self as config, ClientCertificates, Config};

/// Sessions that clients may resume, and their lifetime: as the server's defaults.
const SESSIONS: SessionCache = SessionCache {
    entries_max: 20 * 1024,
    lifetime: Duration::from_secs(300),
};

/// The contents of a configuration's TLS files.
#[derive(Debug)]
pub struct Secured {
    /// By listener.
    pub listeners: Vec<Option<ServerTls>>,
    /// By pool.
    pub pools: Vec<Option<ClientTls>>,
}

impl Secured {
    /// Reads the files. An error names the place and the file.
    pub fn of(config: &Config) -> Result<Secured, String> {
        let of_listener = |listener: &config::Listener| {
            let tls = listener.tls.as_ref().map(for_clients);
            tls.transpose()
                .map_err(|error| format!("listener {}: {error}", listener.bind))
        };
        let of_pool = |pool: &config::Pool| {
            let tls = pool.tls.as_ref().map(for_servers);
            tls.transpose()
                .map_err(|error| format!("pool \"{}\": {error}", pool.name))
        };
        Ok(Secured {
            listeners: config
                .listeners
                .iter()
                .map(of_listener)
                .collect::<Result<_, _>>()?,
            pools: config.pools.iter().map(of_pool).collect::<Result<_, _>>()?,
        })
    }
}

/// Settings of a listener for the connections that it accepts.
#[derive(Debug)]
pub struct Door {
    /// The number of their pool.
    pub pool: u16,
    /// TCP's keepalive: seconds; 0: none.
    pub keepalive_s: u32,
    /// TLS of new connections; none: they are plain.
    pub tls: Certificates,
}

/// All listeners' doors, by their numbers in the configuration.
#[derive(Debug)]
pub struct Doors(Vec<Door>);

impl Doors {
    /// Returns the doors of a checked configuration.
    pub fn new(config: &Config, tls: &[Option<ServerTls>]) -> Doors {
        let pool_of = |listener: &config::Listener| {
            let mut pools = config.pools.iter();
            let name = listener.pool.as_ref()?;
            pools.position(|pool| pool.name == *name)
        };
        let doors = config
            .listeners
            .iter()
            .zip(tls)
            .map(|(listener, tls)| Door {
                pool: pool_of(listener).unwrap_or(0) as u16,
                keepalive_s: listener.keepalive.whole_seconds(),
                tls: Certificates::new(tls.clone()),
            });
        Doors(doors.collect())
    }

    /// Returns the door of a listener.
    pub fn get(&self, number: u16) -> Option<&Door> {
        self.0.get(usize::from(number))
    }

    /// Replaces the TLS of new connections.
    pub fn replace(&self, tls: Vec<Option<ServerTls>>) {
        for (door, tls) in self.0.iter().zip(tls) {
            door.tls.replace(tls);
        }
    }
}

fn for_clients(tls: &config::Tls) -> Result<ServerTls, String> {
    let client_auth = match tls.asked_of_clients() {
        ClientCertificates::Off => redline_net::tls::ClientAuth::No,
        ClientCertificates::Optional => redline_net::tls::ClientAuth::Optional,
        ClientCertificates::Required => redline_net::tls::ClientAuth::Required,
    };
    let options = ServerTlsOptions {
        common: common(tls),
        client_auth,
        prefer_server_ciphers: false,
        session_cache: Some(SESSIONS),
        outgoing: None,
    };
    ServerTls::new(&options).map_err(|error| error.to_string())
}

fn for_servers(tls: &config::Tls) -> Result<ClientTls, String> {
    let options = ClientTlsOptions {
        common: common(tls),
        server_name: tls.server_name.clone(),
        peer: match (tls.insecure, &tls.server_name) {
            (true, _) => Peer::Anyone,
            (false, Some(_)) => Peer::Named,
            (false, None) => Peer::Trusted,
        },
    };
    ClientTls::new(&options).map_err(|error| error.to_string())
}

fn common(tls: &config::Tls) -> TlsOptions {
    let is_folder = tls
        .authorities
        .as_ref()
        .is_some_and(|path| Path::new(path).is_dir());
    TlsOptions {
        cert_file: tls.certificate.clone(),
        key_file: tls.key.clone(),
        ca_cert_file: tls.authorities.clone().filter(|_| !is_folder),
        ca_cert_dir: tls.authorities.clone().filter(|_| is_folder),
        protocols: tls.protocols.clone(),
        ciphers: tls.ciphers.clone(),
        ciphersuites: tls.ciphersuites.clone(),
    }
}
