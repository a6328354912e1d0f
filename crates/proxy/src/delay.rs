//! Clients that wait for a moment: their next request is looked at again then. Must not know what they wait for.

use crate::client::Pause;
use crate::slab::Ref;
use crate::worker::Worker;

/// A client that waits.
pub struct Delayed {
    until_ms: u64,
    pub(crate) client: Ref,
}

impl Worker {
    /// Takes nothing more from a client for so long; then it goes on by itself.
    pub(crate) fn delay(&mut self, me: Ref, span_ms: u64) {
        if let Some(client) = self.clients.find(me) {
            client.pause = Pause::Time;
            self.delayed.push(Delayed {
                until_ms: self.now_ms + span_ms,
                client: me,
            });
        }
    }

    /// Lets go on whose time has come.
    pub(crate) fn release_delayed(&mut self) {
        let now_ms = self.now_ms;
        for delayed in self
            .delayed
            .extract_if(.., |delayed| delayed.until_ms <= now_ms)
            .collect::<Vec<_>>()
        {
            if let Some(client) = self.clients.find(delayed.client)
                && client.pause == Pause::Time
                && client.go_on()
            {
                self.enqueue(delayed.client.at);
            }
        }
    }
}
