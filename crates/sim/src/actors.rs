//! The clients of a simulation: their requests, and their conclusions from the replies.
//!
//! Must not know: how commands run.

use std::{collections::VecDeque, mem};

use fastrand::Rng;
use redline_resp::{ReplyDecoder, Value};
use redline_testkit::generate::Generator;

use crate::ledger::{ACCOUNTS, Ledger, QUEUES};

/// Words of a request.
type Words = Vec<Vec<u8>>;

/// Number of counters.
const COUNTERS: usize = 5;
/// Number of counters that are raised under WATCH.
const WATCHED: usize = 2;
/// Number of keys that are read by clients that track them.
const TRACKED: usize = 8;
/// Number of requests that a client sends at a time.
const PIPELINE_MAX: usize = 12;

const RAISE: &str = "return redis.call('incrby', KEYS[1], ARGV[1])";
const WRITE: &str = "redis.call('set', KEYS[1], ARGV[1]) return 1";
const PUSH: &str = "for i = 1, #ARGV do redis.call('lpush', KEYS[1], ARGV[i]) end return #ARGV";
const MOVE_MONEY: &str = "local has = tonumber(redis.call('get', KEYS[1]))
if has < tonumber(ARGV[1]) then return 0 end
redis.call('decrby', KEYS[1], ARGV[1])
redis.call('incrby', KEYS[2], ARGV[1])
return 1";
const SLOW: &str = "local n = 0 for i = 1, tonumber(ARGV[1]) do n = n + i end return n";

/// A client's role.
#[derive(Debug)]
enum Role {
    /// Raises counters, in every way.
    Counter,
    /// Raises counters under WATCH: the value read, plus one.
    Optimist { key: String, read: Option<i64> },
    /// Moves money between accounts, under WATCH or by script.
    Teller { move_: Option<(usize, usize, i64)> },
    /// Puts items into queues.
    Producer,
    /// Takes items out of queues, and blocks on them.
    Consumer,
    /// Tracks keys, and takes values that it has read for current until it is notified.
    Tracker {
        id: u64,
        broadcast: bool,
        begun: bool,
    },
    /// Pauses, unblocks, kills scripts, and runs slow ones.
    Operator,
    /// Calls any command, in another database. Its replies need only be well-formed.
    Stranger(Box<Generator>),
}

/// Effect of a reply for the client.
#[derive(Debug)]
enum Meaning {
    /// Nothing.
    Nothing,
    /// A counter was raised, if the reply is an integer.
    Raised(String, i64),
    /// Counters were raised, if the reply is an array.
    AllRaised(Vec<(String, i64)>),
    /// The value that the optimist has read.
    Read,
    /// The balances that the teller has read.
    Balances,
    /// The end of a transaction under WATCH: with it this counter was raised, if any.
    Outcome(Option<String>),
    /// These items are in no queue, if the reply is an error.
    Pushed(Vec<u64>),
    /// Items, at any depth, after the names of queues.
    Items,
    /// The value of a key that is tracked.
    Value(Vec<u8>),
}

/// See the head of the module.
#[derive(Debug)]
pub struct Actor {
    role: Role,
    replies: ReplyDecoder,
    bytes: Vec<u8>,
    asked: VecDeque<Meaning>,
}

/// Creates requests of a client.
struct Asking<'a> {
    send: &'a mut dyn FnMut(&Words),
    asked: &'a mut VecDeque<Meaning>,
}

impl Asking<'_> {
    fn ask(&mut self, words: &[&str], meaning: Meaning) {
        let words = words.iter().map(|word| word.as_bytes().to_vec()).collect();
        (self.send)(&words);
        self.asked.push_back(meaning);
    }
}

fn account(number: usize) -> String {
    format!("ledger:account:{number}")
}

fn queue(number: usize) -> String {
    format!("ledger:queue:{number}")
}

/// Returns the names of the accounts.
pub fn accounts() -> Vec<String> {
    (0..ACCOUNTS).map(account).collect()
}

/// Returns the names of the queues.
pub fn queues() -> Vec<String> {
    (0..QUEUES).map(queue).collect()
}

impl Actor {
    fn of(role: Role) -> Actor {
        Actor {
            role,
            replies: ReplyDecoder::new(),
            bytes: Vec::new(),
            asked: VecDeque::new(),
        }
    }

    /// Creates the client of that number: one of each role in turn; the last ones are strangers.
    pub fn nth(number: usize, seed: u64) -> Actor {
        Actor::of(match number % 12 {
            0 | 1 => Role::Counter,
            2 | 3 => Role::Optimist {
                key: String::new(),
                read: None,
            },
            4 => Role::Teller { move_: None },
            5 => Role::Producer,
            6 | 7 => Role::Consumer,
            8 | 9 => Role::Tracker {
                id: seed,
                broadcast: number % 2 == 1,
                begun: false,
            },
            10 => Role::Operator,
            _ => return Actor::stranger(seed),
        })
    }

    /// Creates a client that calls any command.
    pub fn stranger(seed: u64) -> Actor {
        Actor::of(Role::Stranger(Box::new(Generator::new(seed))))
    }

    /// Creates a client that calls nothing by itself.
    pub fn silent() -> Actor {
        Actor::of(Role::Operator)
    }

    /// Returns true for a client whose connection may end at any moment without an effect on the invariants.
    pub fn is_stranger(&self) -> bool {
        matches!(self.role, Role::Stranger(_))
    }

    /// Returns the number of replies that it waits for.
    pub fn unanswered(&self) -> usize {
        self.asked.len()
    }

    /// Sends its next requests, by `send`; none while it waits for replies.
    pub fn ask(&mut self, rng: &mut Rng, ledger: &mut Ledger, send: &mut dyn FnMut(&Words)) {
        if !self.asked.is_empty() {
            return;
        }
        let asking = &mut Asking {
            send,
            asked: &mut self.asked,
        };
        match &mut self.role {
            _ if !ledger.asking => {}
            Role::Counter => {
                for _ in 0..1 + rng.usize(..PIPELINE_MAX) {
                    count(rng, asking);
                }
            }
            Role::Optimist { key, read } => optimist(rng, key, read, asking),
            Role::Teller { move_ } => teller(rng, move_, asking),
            Role::Producer => produce(rng, ledger, asking),
            Role::Consumer => consume(rng, asking),
            Role::Tracker {
                broadcast, begun, ..
            } => {
                if !mem::replace(begun, true) {
                    asking.ask(&["HELLO", "3"], Meaning::Nothing);
                    let on: &[&str] = match broadcast {
                        true => &[
                            "CLIENT",
                            "TRACKING",
                            "ON",
                            "BCAST",
                            "PREFIX",
                            "ledger:track",
                        ],
                        false => &["CLIENT", "TRACKING", "ON"],
                    };
                    asking.ask(on, Meaning::Nothing);
                }
                for _ in 0..1 + rng.usize(..4) {
                    let key = tracked(rng);
                    let meaning = Meaning::Value(key.clone().into_bytes());
                    asking.ask(&["GET", &key], meaning);
                }
            }
            Role::Operator => operate(rng, asking),
            Role::Stranger(generator) => stranger(generator, send),
        }
    }

    /// Takes in bytes of replies and messages.
    pub fn hear(&mut self, bytes: &[u8], ledger: &mut Ledger) {
        self.bytes.extend_from_slice(bytes);
        let mut at = 0;
        loop {
            match self.replies.decode(&self.bytes[at..]) {
                Ok(decoded) => {
                    at += decoded.consumed;
                    let Some(value) = decoded.value else { break };
                    self.take(value, ledger);
                }
                Err(error) => {
                    let text = self.bytes[at..].escape_ascii().to_string();
                    ledger.violated(|| format!("no reply: {error}: {text}"));
                    break;
                }
            }
        }
        self.bytes.drain(..at);
    }

    fn take(&mut self, value: Value, ledger: &mut Ledger) {
        if let Value::Error(line) = &value
            && line.starts_with(b"BUSY")
        {
            ledger.busy += 1;
        }
        if let (Value::Push(parts), Role::Tracker { id, .. }) = (&value, &self.role) {
            forget(*id, parts, ledger);
            return;
        }
        if self.is_stranger() {
            return;
        }
        let Some(meaning) = self.asked.pop_front() else {
            ledger.violated(|| format!("a reply that nobody has asked for: {value:?}"));
            return;
        };
        match (meaning, value) {
            (Meaning::Raised(key, by), Value::Integer(_)) => ledger.raise(&key, by),
            (Meaning::AllRaised(all), Value::Array(_)) => {
                all.iter().for_each(|(key, by)| ledger.raise(key, *by));
            }
            (Meaning::Read, value) => {
                if let Role::Optimist { read, .. } = &mut self.role {
                    *read = match value {
                        Value::NullBulk => Some(0),
                        value => integer(&value),
                    };
                }
            }
            (Meaning::Balances, value) => {
                if let (Role::Teller { move_ }, Value::Array(balances)) = (&mut self.role, value)
                    && let Some((_, _, amount)) = move_
                {
                    let has = balances.first().and_then(integer).unwrap_or(0);
                    *amount = (*amount).min(has);
                }
            }
            (Meaning::Outcome(key), value) => match value {
                Value::Array(_) => {
                    if let Some(key) = key {
                        ledger.raise(&key, 1);
                    }
                }
                Value::NullArray => ledger.lost_races += 1,
                _ => {}
            },
            (Meaning::Pushed(items), value) => {
                if value.is_error() {
                    items.into_iter().for_each(|item| ledger.withdraw(item));
                }
            }
            (Meaning::Items, value) => take_items(&value, ledger),
            (Meaning::Value(key), value) => {
                if let Role::Tracker { id, .. } = &self.role {
                    let believed = ledger.believed.entry(*id).or_default();
                    match value {
                        Value::Bulk(value) => believed.insert(key, Some(value)),
                        Value::Null => believed.insert(key, None),
                        // It was refused: the value is unknown.
                        _ => believed.remove(&key),
                    };
                }
            }
            (Meaning::Nothing | Meaning::Raised(..) | Meaning::AllRaised(_), _) => {}
        }
    }
}

/// Handles an invalidation message for a client that tracks keys.
fn forget(id: u64, parts: &[Value], ledger: &mut Ledger) {
    let believed = ledger.believed.entry(id).or_default();
    match parts {
        [kind, Value::Array(keys)] if kind.as_bytes() == Some(b"invalidate") => {
            for key in keys.iter().filter_map(Value::as_bytes) {
                believed.remove(key);
            }
        }
        _ => believed.clear(),
    }
}

fn take_items(value: &Value, ledger: &mut Ledger) {
    match value {
        Value::Array(parts) => {
            if parts
                .first()
                .and_then(Value::as_bytes)
                .is_some_and(|name| name.starts_with(b"ledger"))
            {
                ledger.served += 1;
            }
            parts.iter().for_each(|part| take_items(part, ledger));
        }
        Value::Bulk(text) if !text.starts_with(b"ledger") => ledger.take(text),
        _ => {}
    }
}

fn integer(value: &Value) -> Option<i64> {
    str::from_utf8(value.as_bytes()?).ok()?.parse().ok()
}

fn counter(rng: &mut Rng) -> String {
    format!("ledger:counter:{}", rng.usize(..COUNTERS))
}

fn tracked(rng: &mut Rng) -> String {
    format!("ledger:track:{}", rng.usize(..TRACKED))
}

fn count(rng: &mut Rng, asking: &mut Asking<'_>) {
    let key = counter(rng);
    match rng.usize(..40) {
        0..15 => asking.ask(&["INCR", &key], Meaning::Raised(key.clone(), 1)),
        15..20 => asking.ask(&["INCRBY", &key, "3"], Meaning::Raised(key.clone(), 3)),
        20..24 => asking.ask(&["GET", &key], Meaning::Nothing),
        24..29 => {
            let value = rng.u32(..1000).to_string();
            asking.ask(&["SET", &tracked(rng), &value], Meaning::Nothing);
        }
        29 => {
            let span_ms = (1 + rng.u32(..5)).to_string();
            asking.ask(
                &["SET", &tracked(rng), "soon gone", "PX", &span_ms],
                Meaning::Nothing,
            );
        }
        30 => asking.ask(&["DEL", &tracked(rng)], Meaning::Nothing),
        31 => {
            let value = rng.u32(..1000).to_string();
            asking.ask(
                &["EVAL", WRITE, "1", &tracked(rng), &value],
                Meaning::Nothing,
            );
        }
        32 | 33 => asking.ask(
            &["EVAL", RAISE, "1", &key, "2"],
            Meaning::Raised(key.clone(), 2),
        ),
        _ => {
            let other = counter(rng);
            asking.ask(&["MULTI"], Meaning::Nothing);
            asking.ask(&["INCR", &key], Meaning::Nothing);
            asking.ask(&["INCRBY", &other, "5"], Meaning::Nothing);
            asking.ask(&["EXEC"], Meaning::AllRaised(vec![(key, 1), (other, 5)]));
        }
    }
}

fn optimist(rng: &mut Rng, key: &mut String, read: &mut Option<i64>, asking: &mut Asking<'_>) {
    match read.take() {
        None => {
            *key = format!("ledger:watched:{}", rng.usize(..WATCHED));
            asking.ask(&["UNWATCH"], Meaning::Nothing);
            asking.ask(&["WATCH", key], Meaning::Nothing);
            asking.ask(&["GET", key], Meaning::Read);
        }
        Some(value) => {
            let raised = (value + 1).to_string();
            asking.ask(&["MULTI"], Meaning::Nothing);
            asking.ask(&["SET", key, &raised], Meaning::Nothing);
            asking.ask(&["EXEC"], Meaning::Outcome(Some(key.clone())));
        }
    }
}

fn teller(rng: &mut Rng, move_: &mut Option<(usize, usize, i64)>, asking: &mut Asking<'_>) {
    if let Some((from, to, amount)) = move_.take() {
        let amount = amount.to_string();
        asking.ask(&["MULTI"], Meaning::Nothing);
        asking.ask(&["DECRBY", &account(from), &amount], Meaning::Nothing);
        asking.ask(&["INCRBY", &account(to), &amount], Meaning::Nothing);
        asking.ask(&["EXEC"], Meaning::Outcome(None));
        return;
    }
    let (from, to) = (rng.usize(..ACCOUNTS), rng.usize(..ACCOUNTS));
    let amount = rng.i64(1..20);
    if rng.bool() {
        let amount = amount.to_string();
        asking.ask(
            &[
                "EVAL",
                MOVE_MONEY,
                "2",
                &account(from),
                &account(to),
                &amount,
            ],
            Meaning::Nothing,
        );
    } else {
        *move_ = Some((from, to, amount));
        asking.ask(&["WATCH", &account(from)], Meaning::Nothing);
        asking.ask(&["MGET", &account(from), &account(to)], Meaning::Balances);
    }
}

fn produce(rng: &mut Rng, ledger: &mut Ledger, asking: &mut Asking<'_>) {
    // Consumers keep up; otherwise memory would grow with the run.
    if ledger.queued.len() > 64 {
        asking.ask(&["PING"], Meaning::Nothing);
        return;
    }
    let key = queue(rng.usize(..QUEUES));
    let items: Vec<u64> = (0..1 + rng.usize(..3)).map(|_| ledger.new_item()).collect();
    let texts: Vec<String> = items.iter().map(u64::to_string).collect();
    let words = |head: &[&'static str]| -> Vec<&str> {
        let mut words: Vec<&str> = head.to_vec();
        words.push(&key);
        words.extend(texts.iter().map(String::as_str));
        words
    };
    match rng.usize(..6) {
        0 => asking.ask(&words(&["EVAL", PUSH, "1"]), Meaning::Pushed(items)),
        1 => {
            asking.ask(&["MULTI"], Meaning::Nothing);
            asking.ask(&words(&["LPUSH"]), Meaning::Nothing);
            asking.ask(&["EXEC"], Meaning::Pushed(items));
        }
        2 => asking.ask(&words(&["RPUSH"]), Meaning::Pushed(items)),
        _ => asking.ask(&words(&["LPUSH"]), Meaning::Pushed(items)),
    }
}

fn consume(rng: &mut Rng, asking: &mut Asking<'_>) {
    let (one, other) = (queue(rng.usize(..QUEUES)), queue(rng.usize(..QUEUES)));
    let span_s = format!("0.0{}", 1 + rng.u32(..9));
    match rng.usize(..8) {
        0 => asking.ask(&["RPOP", &one], Meaning::Items),
        1 => asking.ask(&["LPOP", &one, "2"], Meaning::Items),
        // Moves it to a queue that others wait for.
        2 => asking.ask(
            &["BLMOVE", &one, &other, "RIGHT", "LEFT", &span_s],
            Meaning::Nothing,
        ),
        3 => asking.ask(&["BRPOPLPUSH", &one, &other, &span_s], Meaning::Nothing),
        4 => asking.ask(
            &["BLMPOP", &span_s, "2", &one, &other, "LEFT", "COUNT", "3"],
            Meaning::Items,
        ),
        5 => asking.ask(&["BLPOP", &one, &other, &span_s], Meaning::Items),
        _ => asking.ask(&["BRPOP", &one, &other, &queue(0), &span_s], Meaning::Items),
    }
}

fn operate(rng: &mut Rng, asking: &mut Asking<'_>) {
    let client = (1 + rng.usize(..60)).to_string();
    match rng.usize(..400) {
        0 => asking.ask(&["CLIENT", "PAUSE", "2", "WRITE"], Meaning::Nothing),
        1 => asking.ask(&["CLIENT", "PAUSE", "1", "ALL"], Meaning::Nothing),
        2 => asking.ask(&["CLIENT", "UNPAUSE"], Meaning::Nothing),
        3..20 => asking.ask(&["CLIENT", "UNBLOCK", &client], Meaning::Nothing),
        20..30 => asking.ask(&["CLIENT", "UNBLOCK", &client, "ERROR"], Meaning::Nothing),
        30 => asking.ask(&["CLIENT", "LIST"], Meaning::Nothing),
        31 => asking.ask(&["EVAL", SLOW, "0", "3000000"], Meaning::Nothing),
        32..40 => asking.ask(&["SCRIPT", "KILL"], Meaning::Nothing),
        _ => {
            let value = rng.u32(..1000).to_string();
            asking.ask(&["SET", &tracked(rng), &value], Meaning::Nothing);
        }
    }
}

/// Words that would change data of clients other than strangers, or end their runs.
const FORBIDDEN: &[&str] = &[
    "flushall",
    "swapdb",
    "select",
    "move",
    "reset",
    "kill",
    "pause",
    "unpause",
    "unblock",
    "quit",
    "monitor",
    "copy",
    "subscribe",
    "shutdown",
];

fn stranger(generator: &mut Generator, send: &mut dyn FnMut(&Words)) {
    send(&vec![b"SELECT".to_vec(), b"1".to_vec()]);
    for call in generator.batch() {
        let is_forbidden = |word: &Vec<u8>| {
            let word = word.to_ascii_lowercase();
            let contains = |part: &&str| {
                word.windows(part.len().max(1))
                    .any(|window| window == part.as_bytes())
            };
            FORBIDDEN.iter().any(contains)
        };
        if !call.is_empty() && !call.iter().any(is_forbidden) {
            send(&call);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bulk(text: &str) -> Value {
        Value::Bulk(text.into())
    }

    #[test]
    fn an_item_that_comes_twice_is_a_violation() {
        let mut ledger = Ledger::default();
        let item = ledger.new_item().to_string();
        let served = Value::Array(vec![bulk(&queue(1)), Value::Array(vec![bulk(&item)])]);
        take_items(&served, &mut ledger);
        assert_eq!(
            (ledger.taken, ledger.served, ledger.violation()),
            (1, 1, None)
        );
        take_items(&served, &mut ledger);
        assert!(
            ledger
                .violation()
                .is_some_and(|what| what.contains("twice"))
        );
    }

    #[test]
    fn an_invalidation_takes_back_what_it_names() {
        let mut ledger = Ledger::default();
        let believed = ledger.believed.entry(7).or_default();
        believed.insert(b"a".to_vec(), None);
        believed.insert(b"b".to_vec(), None);
        let of = |keys: Value| [bulk("invalidate"), keys];
        forget(7, &of(Value::Array(vec![bulk("a")])), &mut ledger);
        assert_eq!(ledger.believed[&7].len(), 1);
        forget(7, &of(Value::Null), &mut ledger);
        assert!(ledger.believed[&7].is_empty(), "of everything");
    }
}
