//! Accepting: the listeners of one worker, each of which has a share of a turn of its loop, and pauses after failures.
//!
//! A listener raises an event when the first connection waits, and none for those that wait already. So one that has
//! more connections than its share, or could not accept, is *due*: accepted from in a later turn, without an event.
//!
//! Must not know: what is done with a connection.

use std::{io, mem, sync::Arc};

use redline_net::{Interest, Listener, PeerAddr, Poller, Stream};

/// Number of connections accepted per turn of one listener; the rest waits for the next: a flood of connections delays
/// no client.
const SHARE_MAX: u32 = 100;

/// Listeners of a worker, each with what its owner wants to know of its connections (`P`).
#[derive(Debug)]
pub struct Acceptor<P> {
    listeners: Vec<(Arc<Listener>, P)>,
    /// Token of the first listener's events; those of the others follow.
    first_token: usize,
    due: Due,
}

/// A connection that was accepted.
#[derive(Debug)]
pub struct Accepted<P> {
    /// The connection.
    pub stream: Stream,
    /// Address of the peer.
    pub peer: PeerAddr,
    /// The label of the listener.
    pub port: P,
}

/// A listener's share of one turn. See [`Acceptor::next`].
#[derive(Debug)]
pub struct Share {
    listener: usize,
    left: u32,
    is_over: bool,
}

impl<P: Copy> Acceptor<P> {
    /// Returns an acceptor of these listeners, whose events have the tokens from `first_token` on.
    pub fn new(listeners: Vec<(Arc<Listener>, P)>, first_token: usize) -> Acceptor<P> {
        Acceptor {
            listeners,
            first_token,
            due: Due::default(),
        }
    }

    /// Registers all listeners. Fails as [`Poller::register`] does.
    pub fn watch(&self, poller: &Poller) -> io::Result<()> {
        for (index, (listener, _)) in self.listeners.iter().enumerate() {
            poller.register(&**listener, self.first_token + index, Interest::Read)?;
        }
        Ok(())
    }

    /// Listens by `fresh` instead of the listeners that are old, which are dropped; registers those that stay and
    /// `fresh`. Connections that still wait at an old listener are lost: accept them before.
    pub fn replace(
        &mut self,
        poller: &Poller,
        is_old: impl Fn(&Listener) -> bool,
        fresh: Vec<(Arc<Listener>, P)>,
    ) -> io::Result<()> {
        for (listener, _) in &self.listeners {
            // One that cannot be deregistered is removed when its descriptor closes.
            let _ = poller.deregister(&**listener);
        }
        self.listeners.retain(|(listener, _)| !is_old(listener));
        self.listeners.extend(fresh);
        // Registering raises an event where connections wait.
        self.due = Due::default();
        self.watch(poller)
    }

    /// Drops all listeners.
    pub fn clear(&mut self) {
        self.listeners.clear();
        self.due = Due::default();
    }

    /// Returns the shares of all listeners.
    pub fn all(&self) -> impl Iterator<Item = Share> + use<P> {
        (0..self.listeners.len()).map(Share::of)
    }

    /// Returns the share of the listener whose event has this token.
    pub fn share(&self, token: usize) -> Share {
        Share::of(token - self.first_token)
    }

    /// Returns true if there are listeners to accept from without an event: the loop must not sleep.
    pub fn is_due(&self) -> bool {
        !self.due.now.is_empty()
    }

    /// Returns the shares of the listeners that are due. Called once per turn.
    pub fn take_due(&mut self) -> impl Iterator<Item = Share> + use<P> {
        mem::take(&mut self.due.now).into_iter().map(Share::of)
    }

    /// Makes the listeners that could not accept due. Called from time to time; and, since most likely a descriptor was
    /// missing, when one has been closed.
    pub fn retry(&mut self) {
        self.due.retry();
    }

    /// Returns the next connection of a share; `None`: there is none now, or the share is used up. An error is the first
    /// of a row of failures, and the last item of its share.
    pub fn next(&mut self, share: &mut Share) -> Option<io::Result<Accepted<P>>> {
        // Listeners may have been replaced since the event.
        let (listener, port) = self.listeners.get(share.listener)?;
        if share.is_over {
            return None;
        }
        let Some(left) = share.left.checked_sub(1) else {
            share.is_over = true;
            self.due.is_full(share.listener);
            return None;
        };
        share.left = left;
        match listener.accept() {
            Ok(Some((stream, peer))) => Some(Ok(Accepted {
                stream,
                peer,
                port: *port,
            })),
            Ok(None) => {
                share.is_over = true;
                self.due.is_empty(share.listener);
                None
            }
            Err(error) => {
                share.is_over = true;
                let is_first = self.due.has_failed(share.listener);
                is_first.then_some(Err(error))
            }
        }
    }
}

impl Share {
    fn of(listener: usize) -> Share {
        Share {
            listener,
            left: SHARE_MAX,
            is_over: false,
        }
    }
}

/// Listeners to accept from without an event, by their numbers.
#[derive(Debug, Default)]
struct Due {
    /// In the next turn.
    now: Vec<usize>,
    /// Those whose last attempt failed: at the next [`Due::retry`].
    failing: Vec<usize>,
}

impl Due {
    /// Notes that more connections wait than a share has.
    fn is_full(&mut self, listener: usize) {
        self.is_empty(listener);
        add(&mut self.now, listener);
    }

    /// Notes that no connection waits.
    fn is_empty(&mut self, listener: usize) {
        self.failing.retain(|other| *other != listener);
    }

    /// Notes a failure; returns true if no listener was failing before.
    fn has_failed(&mut self, listener: usize) -> bool {
        let is_first = self.failing.is_empty();
        add(&mut self.failing, listener);
        is_first
    }

    fn retry(&mut self) {
        for listener in &self.failing {
            add(&mut self.now, *listener);
        }
    }
}

fn add(listeners: &mut Vec<usize>, listener: usize) {
    if !listeners.contains(&listener) {
        listeners.push(listener);
    }
}

#[cfg(test)]
mod tests {
    use std::{net::TcpStream, time::Duration};

    use super::*;

    const FIRST: usize = 5;

    fn listener() -> (Arc<Listener>, u16) {
        let mut bound = Listener::bind_tcp(&["127.0.0.1"], 0, 1024).expect("a free port");
        let listener = bound.remove(0);
        let port = listener.port().expect("of TCP");
        (Arc::new(listener), port)
    }

    fn connected(port: u16, count: usize) -> Vec<TcpStream> {
        let connect = |_| TcpStream::connect(("127.0.0.1", port)).expect("it listens");
        (0..count).map(connect).collect()
    }

    fn accepted(acceptor: &mut Acceptor<char>, mut share: Share) -> String {
        let next = || {
            Some(
                acceptor
                    .next(&mut share)?
                    .expect("descriptors are free")
                    .port,
            )
        };
        std::iter::from_fn(next).collect()
    }

    fn tokens(poller: &mut Poller) -> Vec<usize> {
        poller.poll(Some(Duration::from_secs(10))).unwrap();
        poller.events().map(|event| event.token).collect()
    }

    #[test]
    fn a_flood_is_accepted_in_shares_without_a_further_event() {
        let (listener, port) = listener();
        let mut acceptor = Acceptor::new(vec![(listener, 'a')], FIRST);
        let mut poller = Poller::new(8).unwrap();
        acceptor.watch(&poller).unwrap();
        let _clients = connected(port, SHARE_MAX as usize + 3);
        assert_eq!(tokens(&mut poller), [FIRST]);
        let share = acceptor.share(FIRST);
        let first = accepted(&mut acceptor, share);
        assert_eq!(first.len(), SHARE_MAX as usize);
        assert!(acceptor.is_due());
        let shares: Vec<Share> = acceptor.take_due().collect();
        let rest = shares
            .into_iter()
            .map(|share| accepted(&mut acceptor, share));
        assert_eq!(rest.collect::<Vec<_>>(), ["aaa"]);
        assert!(!acceptor.is_due());
    }

    #[test]
    fn a_replaced_listener_gives_way_and_the_others_stay() {
        let ((old, old_port), (kept, kept_port), (fresh, fresh_port)) =
            (listener(), listener(), listener());
        let mut acceptor = Acceptor::new(vec![(old, 'o'), (kept, 'k')], FIRST);
        let mut poller = Poller::new(8).unwrap();
        acceptor.watch(&poller).unwrap();
        // It waits at a listener that gets another number.
        let _waiting = connected(kept_port, 1);
        let is_old = |listener: &Listener| listener.port() == Some(old_port);
        acceptor
            .replace(&poller, is_old, vec![(fresh, 'f')])
            .unwrap();
        assert!(TcpStream::connect(("127.0.0.1", old_port)).is_err());
        assert_eq!(tokens(&mut poller), [FIRST]);
        let _further = connected(fresh_port, 1);
        assert_eq!(tokens(&mut poller), [FIRST + 1]);
        let shares: Vec<Share> = acceptor.all().collect();
        let all = shares
            .into_iter()
            .map(|share| accepted(&mut acceptor, share));
        assert_eq!(all.collect::<String>(), "kf");
        acceptor.clear();
        assert!(TcpStream::connect(("127.0.0.1", kept_port)).is_err());
        assert_eq!(acceptor.all().count(), 0);
    }

    #[test]
    fn failures_are_told_once_and_tried_again_when_asked_to() {
        let mut due = Due::default();
        assert!(due.has_failed(1), "the first is news");
        assert!(!due.has_failed(0));
        assert!(due.now.is_empty(), "not at once");
        due.retry();
        due.retry();
        assert_eq!(mem::take(&mut due.now), [1, 0]);
        // Again, for lack of a descriptor still.
        assert!(!due.has_failed(1));
        due.is_empty(0);
        due.retry();
        assert_eq!(mem::take(&mut due.now), [1]);
        due.is_full(1);
        assert_eq!(mem::take(&mut due.now), [1]);
        due.retry();
        assert!(due.now.is_empty());
        assert!(due.has_failed(1), "news again");
    }

    #[test]
    fn what_has_a_failure_behind_it_is_over() {
        let (listener, port) = listener();
        let mut acceptor = Acceptor::new(vec![(listener, 'a')], FIRST);
        let _client = connected(port, 1);
        let mut share = acceptor.share(FIRST);
        share.is_over = true;
        assert!(acceptor.next(&mut share).is_none());
    }
}
