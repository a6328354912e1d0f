//! Clients on their way in: TLS begins here, and who does not get on with it is shown out. Must not know requests.

use redline_net::Stream;

use crate::worker::Worker;

/// A handshake of TLS that takes longer is broken off: milliseconds. The server has the same.
const HANDSHAKE_MS: u64 = 10_000;

impl Worker {
    /// The number of the pool of somebody who comes in by this door; nothing: it cannot have what the door asks for.
    pub(crate) fn let_in(&self, stream: &mut Stream, door: u16) -> Option<u16> {
        let door = self.shared.doors.get(door)?;
        if door.keepalive_s > 0 {
            // Without it a client that is gone without a word is noticed later.
            let _ = stream.set_keepalive(door.keepalive_s);
        }
        if let Some(tls) = door.tls() {
            stream.accept_tls(&tls).ok()?;
        }
        Some(door.pool)
    }

    /// Closes clients whose TLS takes too long.
    pub(crate) fn check_handshakes(&mut self) {
        while let Some(&(client, since_ms)) = self.handshakes.front()
            && self.now_ms.saturating_sub(since_ms) > HANDSHAKE_MS
        {
            self.handshakes.pop_front();
            let goes_on = self.clients.find(client);
            if goes_on.is_some_and(|client| client.stream.is_handshaking()) {
                self.close_client(client.at);
            }
        }
    }
}
