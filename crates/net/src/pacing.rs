//! Turns off the congestion control's pacing for connections within this machine.
//!
//! BBR sends each segment by a timer of its own. Over loopback there is no network to be spared, and the timers cost more
//! CPU time than the copies: a third of what it takes to send a value of a mebibyte. A socket stays paced once it was
//! connected under BBR, so another control has to be there before: on the socket that connects, and on the listener, of
//! which those that it accepts are copies. What is accepted from elsewhere gets back what the machine has chosen.
//!
//! It must not know the bytes that are sent.

use std::os::fd::AsFd;

use rustix::net::sockopt::{set_tcp_congestion, tcp_congestion};

/// The control that every kernel has and any process may choose. It does not pace.
const UNPACED: &str = "reno";

/// The machine's congestion control, where it paces and was taken off a socket.
#[derive(Debug)]
pub(crate) struct Pacing(String);

impl Pacing {
    /// Takes it off a TCP socket that is neither connected nor listening yet. `None`: it does not pace, or has to stay.
    pub(crate) fn take_off(socket: impl AsFd) -> Option<Pacing> {
        let usual = tcp_congestion(&socket).ok()?;
        let paces = usual.starts_with("bbr");
        (paces && set_tcp_congestion(&socket, UNPACED).is_ok()).then_some(Pacing(usual))
    }

    /// Gives it back.
    pub(crate) fn put_on(&self, socket: impl AsFd) {
        // Any process may choose the control of the machine. Without it the connection works as well.
        let _ = set_tcp_congestion(&socket, &self.0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use socket2::{Domain, Socket, Type};

    #[test]
    fn only_a_control_that_paces_is_taken_off_and_put_on_again() {
        let socket = Socket::new(Domain::IPV4, Type::STREAM, None).unwrap();
        // Chosen here, since the machine may have chosen another; where it has no BBR, there is nothing to take off.
        for control in ["bbr", "reno", "cubic"] {
            let _ = set_tcp_congestion(&socket, control);
            let before = tcp_congestion(&socket).unwrap();
            let taken = Pacing::take_off(&socket);
            assert_eq!(taken.is_some(), before == "bbr", "{before}");
            let expected = if before == "bbr" { UNPACED } else { &before };
            assert_eq!(tcp_congestion(&socket).unwrap(), expected);
            if let Some(pacing) = taken {
                pacing.put_on(&socket);
                assert_eq!(tcp_congestion(&socket).unwrap(), before);
            }
        }
    }
}
