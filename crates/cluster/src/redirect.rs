//! Contents of MOVED and ASK. Knows nothing of the request that they answer.

use crate::SLOTS;

/// Target of a redirect.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Redirect {
    /// Slot of the redirect.
    pub slot: u16,
    /// Host of the node that owns the slot. `None`: the host that sent the redirect.
    pub host: Option<String>,
    /// Port of that node.
    pub port: u16,
}

impl Redirect {
    /// Reads the text after `MOVED ` or `ASK `: a slot, and a host and port with a colon between them.
    pub fn parse(text: &str) -> Option<Redirect> {
        let (slot, place) = text.trim().split_once(' ')?;
        let slot: u16 = slot.parse().ok()?;
        let (host, port) = place.rsplit_once(':')?;
        let host = host.trim_start_matches('[').trim_end_matches(']');
        (usize::from(slot) < SLOTS).then_some(())?;
        Some(Redirect {
            slot,
            host: (!host.is_empty() && host != "?").then(|| host.to_owned()),
            port: port.parse().ok().filter(|&port| port != 0)?,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn redirects_are_read_and_checked() {
        let redirect = |text| Redirect::parse(text).map(|r| (r.slot, r.host, r.port));
        assert_eq!(
            redirect("3999 h:6381"),
            Some((3999, Some("h".into()), 6381))
        );
        assert_eq!(redirect("1 ::1:7000"), Some((1, Some("::1".into()), 7000)));
        assert_eq!(redirect("1 :7000"), Some((1, None, 7000)));
        for wrong in ["", "x h:1", "16384 h:1", "1 h", "1 h:0", "1 h:99999"] {
            assert_eq!(redirect(wrong), None, "{wrong}");
        }
    }
}
