//! `redline proxy`: one address in front of many Redis servers.
//!
//! [`route`] is what the control side makes and the data path reads: which server has a key. [`worker`] is the loop of the
//! data path; `serve` takes requests to servers, `replies` takes replies to clients, `link` keeps the connections to servers.
//!
//! This room must not know keys' values, handlers, the keyspace or the server.

#![forbid(unsafe_code)]

mod class;
mod client;
pub mod config;
mod errors;
mod flags;
pub mod hash;
mod link;
mod local;
mod merge;
mod private;
mod pubsub;
mod redirect;
mod replies;
pub mod report;
pub mod route;
mod serve;
pub mod settings;
mod slab;
mod split;
pub mod start;
mod upstream;
mod worker;

use std::ffi::OsString;
use std::process::ExitCode;
use std::sync::Arc;

use redline_net::{Address, Listener};

use crate::flags::Flags;
use crate::route::{Hashed, Node, NodeId, Placement, Pool, Published, Routes, Shard};
use crate::settings::Settings;
use crate::start::{BACKLOG, Setup};

/// Databases that clients may select where nothing says how many there are.
const DATABASES: u32 = 16;

/// `redline proxy` with these words behind it.
pub fn main(words: impl Iterator<Item = OsString>) -> ExitCode {
    let words: Vec<OsString> = words.collect();
    if words.iter().any(|word| word == "--help" || word == "-h") {
        print!("{}", flags::USAGE);
        return ExitCode::SUCCESS;
    }
    let flags = match Flags::parse(words.into_iter()) {
        Ok(flags) => flags,
        Err(error) => {
            eprint!("redline proxy: {error}\n\n{}", flags::USAGE);
            return ExitCode::FAILURE;
        }
    };
    match run(&flags) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("redline proxy: {error}");
            ExitCode::FAILURE
        }
    }
}

fn run(flags: &Flags) -> Result<(), Box<dyn std::error::Error>> {
    let listeners = Listener::bind_tcp(&flags.binds, flags.port, BACKLOG)?;
    let routes = routes(&flags.upstreams, flags.password.as_deref())?;
    start::run(Setup {
        listeners,
        threads: flags.threads,
        settings: Settings::default(),
        routes: Arc::new(Published::new(routes)),
        reports: None,
    })?;
    Ok(())
}

/// Servers that share the keys between them.
fn routes(
    upstreams: &[Address],
    password: Option<&str>,
) -> Result<Routes, Box<dyn std::error::Error>> {
    let mut nodes = Vec::with_capacity(upstreams.len());
    for address in upstreams {
        let endpoint = address.resolve()?.remove(0);
        nodes.push(Node {
            endpoint,
            name: address.to_string(),
            user: None,
            password: password.map(str::to_owned),
            ejected: false,
        });
    }
    let shards = (0..nodes.len())
        .map(|primary| Shard {
            primary: primary as NodeId,
            replicas: Vec::new(),
        })
        .collect();
    let placement = match nodes.len() {
        1 => Placement::One,
        shards => Placement::Hashed(Arc::new(Modulo { shards })),
    };
    let pool = Pool {
        name: "default".to_owned(),
        shards,
        placement,
        databases: DATABASES,
    };
    Ok(Routes {
        nodes,
        pools: vec![pool],
    })
}

/// FNV-1a of 64 bits, and the remainder.
#[derive(Debug)]
struct Modulo {
    shards: usize,
}

impl Hashed for Modulo {
    fn shard(&self, key: &[u8]) -> usize {
        let hash = key.iter().fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
            (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3)
        });
        (hash % self.shards as u64) as usize
    }
}
