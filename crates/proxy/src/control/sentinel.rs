//! Parsers for Sentinels' replies and messages. Pure: knows no connection.

use redline_net::Address;
use redline_resp::Value;

/// A primary, as a Sentinel knows it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Primary {
    /// The name under which Sentinels monitor it.
    pub name: String,
    /// Its address.
    pub address: Address,
    /// Grows with each failover: a Sentinel with a lower one has not heard of the last.
    pub epoch: u64,
}

/// Parses the reply to SENTINEL MASTER.
pub fn primary(reply: &Value) -> Option<Primary> {
    let fields = fields(reply)?;
    Some(Primary {
        name: field(&fields, "name")?.to_owned(),
        address: address(&fields)?,
        epoch: field(&fields, "config-epoch")?.parse().ok()?,
    })
}

/// Largest number of others that are taken: more than any deployment has, and few enough for a hostile reply.
const OTHERS_MAX: usize = 256;

/// Parses the replies to SENTINEL REPLICAS and SENTINEL SENTINELS: those that are up.
pub fn others(reply: &Value) -> Option<Vec<Address>> {
    let Value::Array(entries) = reply else {
        return None;
    };
    let up = entries.iter().filter_map(|entry| {
        let fields = fields(entry)?;
        let flags = field(&fields, "flags").unwrap_or_default();
        let down = ["s_down", "o_down", "disconnected"];
        let is_up = !flags.split(',').any(|flag| down.contains(&flag));
        is_up.then(|| address(&fields)).flatten()
    });
    Some(up.take(OTHERS_MAX).collect())
}

/// Returns true if this is the reply to SUBSCRIBE.
pub fn confirms(answer: &Value) -> bool {
    let (Value::Array(parts) | Value::Push(parts)) = answer else {
        return false;
    };
    let word = |at: usize| parts.get(at).and_then(Value::as_bytes);
    word(0) == Some(b"subscribe") && word(1) == Some(b"+switch-master")
}

/// Parses a message of the channel `+switch-master`: the name, and the new primary's address.
pub fn switched(message: &Value) -> Option<(String, Address)> {
    let (Value::Array(parts) | Value::Push(parts)) = message else {
        return None;
    };
    let [kind, channel, text] = parts.as_slice() else {
        return None;
    };
    let is = |value: &Value, word: &str| value.as_bytes() == Some(word.as_bytes());
    if !is(kind, "message") || !is(channel, "+switch-master") {
        return None;
    }
    let text = std::str::from_utf8(text.as_bytes()?).ok()?;
    let words: Vec<&str> = text.split(' ').collect();
    let [name, _, _, host, port] = words.as_slice() else {
        return None;
    };
    Some((name.to_string(), Address::tcp(*host, port.parse().ok()?)))
}

fn fields(value: &Value) -> Option<Vec<(String, String)>> {
    let text = |value: &Value| Some(String::from_utf8_lossy(value.as_bytes()?).into_owned());
    match value {
        Value::Array(parts) => parts
            .chunks_exact(2)
            .map(|pair| Some((text(&pair[0])?, text(&pair[1])?)))
            .collect(),
        Value::Map(pairs) => pairs
            .iter()
            .map(|(name, value)| Some((text(name)?, text(value)?)))
            .collect(),
        _ => None,
    }
}

fn field<'a>(fields: &'a [(String, String)], name: &str) -> Option<&'a str> {
    let found = fields.iter().find(|(known, _)| known == name);
    found.map(|(_, value)| value.as_str())
}

fn address(fields: &[(String, String)]) -> Option<Address> {
    let port = field(fields, "port")?
        .parse()
        .ok()
        .filter(|&port| port != 0)?;
    Some(Address::tcp(field(fields, "ip")?, port))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(words: &[&str]) -> Value {
        Value::Array(words.iter().map(|&word| Value::Bulk(word.into())).collect())
    }

    #[test]
    fn primaries_have_addresses_and_epochs() {
        let reply = entry(&[
            "name",
            "m",
            "ip",
            "10.0.0.1",
            "port",
            "6379",
            "config-epoch",
            "3",
        ]);
        let address = Address::tcp("10.0.0.1", 6379);
        assert_eq!(
            primary(&reply),
            Some(Primary {
                name: "m".into(),
                address,
                epoch: 3
            })
        );
        for wrong in [
            entry(&["ip", "10.0.0.1", "port", "0", "config-epoch", "3"]),
            entry(&["ip", "10.0.0.1", "port", "1"]),
            Value::Error(b"ERR No such master with that name".to_vec()),
        ] {
            assert_eq!(primary(&wrong), None);
        }
    }

    #[test]
    fn those_that_are_down_are_left_out() {
        let reply = Value::Array(vec![
            entry(&["ip", "a", "port", "1", "flags", "slave"]),
            entry(&["ip", "b", "port", "2", "flags", "slave,s_down"]),
            entry(&[
                "ip",
                "c",
                "port",
                "3",
                "flags",
                "s_down,o_down,slave,disconnected",
            ]),
            entry(&["ip", "d", "port", "4", "flags", "sentinel"]),
        ]);
        let up = others(&reply).unwrap();
        assert_eq!(up, [Address::tcp("a", 1), Address::tcp("d", 4)]);
    }

    #[test]
    fn a_switch_names_the_new_primary() {
        let message = |text| entry(&["message", "+switch-master", text]);
        let new = switched(&message("m 10.0.0.1 6379 10.0.0.2 6380"));
        assert_eq!(new, Some(("m".to_owned(), Address::tcp("10.0.0.2", 6380))));
        assert_eq!(switched(&message("m 10.0.0.1")), None);
        assert_eq!(switched(&entry(&["message", "+sdown", "m a 1 b 2"])), None);
        assert_eq!(
            switched(&entry(&["subscribe", "+switch-master", "1"])),
            None
        );
    }
}
