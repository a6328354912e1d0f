//! Resolution of nodes' names: on a separate thread, so that a slow resolver delays only requests to that name. Opens no
//! connection.

use std::collections::HashMap;
use std::sync::mpsc;
use std::thread;

use redline_net::{Address, Endpoint, NetError};

/// Resolves a name; may block.
pub(super) type Resolve = fn(&Address) -> Result<Vec<Endpoint>, NetError>;

/// The names that one thread has used.
pub(super) struct Names {
    resolve: Resolve,
    known: HashMap<Address, Name>,
    sender: mpsc::Sender<Answer>,
    answers: mpsc::Receiver<Answer>,
}

type Answer = (Address, Result<Vec<Endpoint>, NetError>);

#[derive(Default)]
struct Name {
    /// Time until which the result is valid; a result that has not been used yet is valid until its first use.
    until_ns: u64,
    is_under_way: bool,
    /// The last result, or the error.
    found: Option<Result<Vec<Endpoint>, NetError>>,
}

/// Time for which a result is valid: many connections are opened to one node at once.
const FRESH_NS: u64 = 1_000_000_000;
/// Of [`Name::until_ns`]: the result has arrived, and was not used yet.
const UNASKED: u64 = u64::MAX;

impl Names {
    pub(super) fn new(resolve: Resolve) -> Names {
        let (sender, answers) = mpsc::channel();
        Names {
            resolve,
            known: HashMap::new(),
            sender,
            answers,
        }
    }

    /// Returns the endpoints of an address; `None` while it is being resolved. Paths and literal addresses are known at
    /// once, and so is everything if `may_block`.
    pub(super) fn find(
        &mut self,
        address: &Address,
        may_block: bool,
        now_ns: u64,
    ) -> Option<Result<&[Endpoint], &NetError>> {
        while let Ok((address, found)) = self.answers.try_recv() {
            let name = Name {
                until_ns: UNASKED,
                is_under_way: false,
                found: Some(found),
            };
            self.known.insert(address, name);
        }
        let name = self.known.entry(address.clone()).or_default();
        if name.until_ns == UNASKED {
            name.until_ns = now_ns + FRESH_NS;
        }
        if now_ns >= name.until_ns && !name.is_under_way {
            if may_block || is_literal(address) {
                name.until_ns = now_ns + FRESH_NS;
                name.found = Some((self.resolve)(address));
            } else {
                let (resolve, sender, asked) = (self.resolve, self.sender.clone(), address.clone());
                let look = move || {
                    let found = resolve(&asked);
                    // The receiver is gone when the run is over.
                    let _ = sender.send((asked, found));
                };
                let looks = thread::Builder::new().name("bench-names".to_owned());
                // Without a thread, the next call tries again.
                name.is_under_way = looks.spawn(look).is_ok();
            }
        }
        let found = name.found.as_ref().filter(|_| now_ns < name.until_ns)?;
        Some(found.as_deref())
    }
}

fn is_literal(address: &Address) -> bool {
    match address {
        Address::Unix(_) => true,
        Address::Tcp { host, .. } => host.parse::<std::net::IpAddr>().is_ok(),
    }
}

#[cfg(test)]
mod tests {
    use std::sync::{Mutex, MutexGuard};

    use super::*;

    /// A resolver that answers while this is not held.
    static SLOW: Mutex<()> = Mutex::new(());

    fn slow(_: &Address) -> Result<Vec<Endpoint>, NetError> {
        drop(SLOW.lock());
        Address::tcp("127.0.0.1", 7).resolve()
    }

    #[test]
    fn a_name_that_takes_long_to_look_up_holds_nobody_up() {
        let held: MutexGuard<'_, ()> = SLOW.lock().expect("nobody panics with it");
        let (mut names, named) = (Names::new(slow), Address::tcp("node", 7));
        for now_ns in [1, 2, 5 * FRESH_NS] {
            assert!(names.find(&named, false, now_ns).is_none());
        }
        drop(held);
        let found = loop {
            if let Some(found) = names.find(&named, false, 5 * FRESH_NS) {
                break found.map(<[_]>::to_vec);
            }
            thread::yield_now();
        };
        let expected = Address::tcp("127.0.0.1", 7).resolve();
        assert_eq!(found.ok(), expected.ok());
    }

    #[test]
    fn a_name_is_looked_up_again_after_a_while_and_a_literal_address_at_once() {
        let mut names = Names::new(Address::resolve);
        let literal = Address::tcp("127.0.0.1", 7);
        assert!(names.find(&literal, false, 1).is_some());
        let named = Address::tcp("localhost", 7);
        assert!(names.find(&named, true, 1).is_some());
        assert!(names.find(&named, false, FRESH_NS).is_some());
        assert!(names.find(&named, false, FRESH_NS + 2).is_none());
    }
}
