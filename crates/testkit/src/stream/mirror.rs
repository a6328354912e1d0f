//! A real server that gets our stream as it stands, as from a file: it has to take each command, and to hold the same data
//! afterwards. Must not know what was called.

use std::io;
use std::net::SocketAddr;

use redline_resp::reply_decoder::Value;

use crate::client::{Client, encode};
use crate::stream::shown;
use crate::stream::side::Side;

/// Number of databases.
const DATABASES: usize = 16;
/// Number of commands that are sent before replies are read.
const PIPELINE: usize = 200;

pub(super) struct Mirror {
    client: Client,
    /// Asks questions, which do not belong to the stream: the stream's database stays.
    control: Client,
}

impl Mirror {
    pub(super) fn connect(address: SocketAddr) -> io::Result<Mirror> {
        Ok(Mirror {
            client: Client::connect(address)?,
            control: Client::connect(address)?,
        })
    }

    /// Sends what our server has told since the last call, and compares the data. `newer` is a server of our version,
    /// through which an older mirror's data has to go to have the same digest.
    pub(super) fn follow(
        &mut self,
        ours: &mut Side,
        newer: Option<&mut Client>,
        faults: &mut Vec<String>,
    ) -> io::Result<()> {
        let raw = ours.take_raw();
        for calls in raw.chunks(PIPELINE) {
            let mut bytes = Vec::new();
            calls.iter().for_each(|call| encode(call, &mut bytes));
            self.client.send(&bytes)?;
            for call in calls {
                let closed = || io::Error::other("the mirror has closed the connection");
                let reply = self.client.reply()?.ok_or_else(closed)?;
                if let Some(error) = first_error(&reply) {
                    let error = error.escape_ascii();
                    faults.push(format!("the mirror answers {} with {error}", shown(call)));
                }
            }
        }
        let held = match newer {
            None => self.control.call(&["DEBUG", "DIGEST"])?,
            Some(newer) => {
                self.copy(newer)?;
                newer.call(&["DEBUG", "DIGEST"])?
            }
        };
        let wanted = ours.digest()?;
        if held == wanted {
            return Ok(());
        }
        let keys = self.different_keys(ours.control())?;
        faults.push(format!(
            "after our stream the mirror holds other data:\n  {}",
            keys.join("\n  ")
        ));
        Ok(())
    }

    /// Copies all data into another server.
    fn copy(&mut self, to: &mut Client) -> io::Result<()> {
        to.call(&["FLUSHALL"])?;
        for db in 0..DATABASES {
            let db = db.to_string();
            self.control.call(&["SELECT", &db])?;
            to.call(&["SELECT", &db])?;
            for key in keys(&mut self.control)? {
                let payload = self.control.call(&[b"DUMP", &key[..]])?;
                let time = self.control.call(&[b"PEXPIRETIME", &key[..]])?;
                let (Value::Bulk(payload), Value::Integer(time)) = (payload, time) else {
                    continue;
                };
                let time = time.max(0).to_string();
                let call = [b"RESTORE", &key[..], time.as_bytes(), &payload, b"ABSTTL"];
                let reply = to.call(&call)?;
                if reply.is_error() {
                    return Err(io::Error::other(format!("RESTORE: {reply:?}")));
                }
            }
        }
        Ok(())
    }

    /// Returns the keys that differ, with what each server says of them.
    fn different_keys(&mut self, ours: &mut Client) -> io::Result<Vec<String>> {
        const READS: &[&[&str]] = &[
            &["TYPE"],
            &["GET"],
            &["LRANGE", "0", "-1"],
            &["HGETALL"],
            &["SMEMBERS"],
            &["ZRANGE", "0", "-1", "WITHSCORES"],
            &["XRANGE", "-", "+"],
            &["XINFO", "GROUPS"],
            &["PEXPIRETIME"],
        ];
        let mut found = Vec::new();
        for db in 0..DATABASES {
            let number = db.to_string();
            for client in [&mut self.control, &mut *ours] {
                client.call(&["SELECT", &number])?;
            }
            let mut all = keys(&mut self.control)?;
            all.extend(keys(ours)?);
            all.sort_unstable();
            all.dedup();
            for key in all {
                for read in READS {
                    let mut call: Vec<&[u8]> = read.iter().map(|word| word.as_bytes()).collect();
                    let at = if read[0] == "XINFO" { 2 } else { 1 };
                    call.insert(at, &key);
                    let mut replies = [ours.call(&call)?, self.control.call(&call)?];
                    for reply in &mut replies {
                        if let (Value::Array(elements), "SMEMBERS" | "HGETALL") = (reply, read[0]) {
                            elements.sort_by_key(|element| format!("{element:?}"));
                        }
                    }
                    let [our, their] = replies;
                    if our != their {
                        found.push(format!(
                            "db {db} {} {}: ours {our:?}, the mirror {their:?}",
                            read[0],
                            key.escape_ascii()
                        ));
                        break;
                    }
                }
            }
        }
        for client in [&mut self.control, ours] {
            client.call(&["SELECT", "0"])?;
        }
        if found.is_empty() {
            found.push("(no key differs by what these reads show)".to_owned());
        }
        Ok(found)
    }
}

fn keys(client: &mut Client) -> io::Result<Vec<Vec<u8>>> {
    let Value::Array(keys) = client.call(&["KEYS", "*"])? else {
        return Err(io::Error::other("KEYS answers no array"));
    };
    let keys = keys.into_iter().filter_map(|key| match key {
        Value::Bulk(key) => Some(key),
        _ => None,
    });
    Ok(keys.collect())
}

/// Returns the first error in a reply.
fn first_error(reply: &Value) -> Option<&[u8]> {
    match reply {
        Value::Array(elements) => elements.iter().find_map(first_error),
        reply if reply.is_error() => reply.as_bytes(),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_error_is_found_inside_of_a_transaction() {
        let ok = Value::Simple(b"OK".to_vec());
        let wrong = Value::Error(b"ERR wrong".to_vec());
        let of = |elements: &[&Value]| Value::Array(elements.iter().copied().cloned().collect());
        assert_eq!(first_error(&of(&[&ok, &ok])), None);
        assert_eq!(
            first_error(&of(&[&ok, &of(&[&wrong])])),
            Some(&b"ERR wrong"[..])
        );
    }
}
