//! Form of the messages between nodes: words, the first of which is the kind.
//!
//! Must not know: connections, what a message leads to.

use super::{Message, Place};

impl Message {
    /// Returns the words of the message.
    pub fn words(&self) -> Vec<String> {
        let words = |kind: &str, texts: &[&str], numbers: &[u64]| {
            let texts = texts.iter().map(|text| (*text).to_owned());
            let numbers = numbers.iter().map(u64::to_string);
            std::iter::once(kind.to_owned())
                .chain(texts)
                .chain(numbers)
                .collect()
        };
        match self {
            Message::Ask {
                shard,
                term,
                incarnation,
                revision,
                clock_ms,
                promise_ms,
                is_waiting,
            } => words(
                "ask",
                &[shard, incarnation],
                &[
                    *term,
                    *revision,
                    *clock_ms,
                    *promise_ms,
                    u64::from(*is_waiting),
                ],
            ),
            Message::Promise {
                term,
                incarnation,
                clock_ms,
                promise_ms,
            } => words("promise", &[incarnation], &[*term, *clock_ms, *promise_ms]),
            Message::Bid {
                shard,
                term,
                place,
                clock_ms,
                promise_ms,
            } => words(
                "bid",
                &[shard],
                &[*term, place.term, place.offset, *clock_ms, *promise_ms],
            ),
            Message::Yield {
                term,
                incarnation,
                place,
                clock_ms,
                promise_ms,
            } => words(
                "yield",
                &[incarnation],
                &[*term, place.term, place.offset, *clock_ms, *promise_ms],
            ),
            Message::Further { term } => words("further", &[], &[*term]),
            Message::Hears { term } => words("hears", &[], &[*term]),
            Message::Superseded {
                shard,
                term,
                revision,
            } => words("superseded", &[shard], &[*term, *revision]),
        }
    }

    /// Reads the words of a message. `None`: it is none.
    pub fn of_words(words: &[&[u8]]) -> Option<Message> {
        let words: Option<Vec<&str>> = words
            .iter()
            .map(|word| std::str::from_utf8(word).ok())
            .collect();
        let words = words?;
        let (kind, rest) = words.split_first()?;
        let (texts, numbers) = match *kind {
            "ask" => (2, 5),
            "promise" => (1, 3),
            "bid" | "yield" => (1, 5),
            "further" | "hears" => (0, 1),
            "superseded" => (1, 2),
            _ => return None,
        };
        if rest.len() != texts + numbers {
            return None;
        }
        let (texts, numbers) = rest.split_at(texts);
        let numbers: Option<Vec<u64>> = numbers.iter().map(|word| word.parse().ok()).collect();
        let numbers = numbers?;
        let text = |at: usize| texts[at].to_owned();
        let place = || Place {
            term: numbers[1],
            offset: numbers[2],
        };
        Some(match *kind {
            "ask" => Message::Ask {
                shard: text(0),
                incarnation: text(1),
                term: numbers[0],
                revision: numbers[1],
                clock_ms: numbers[2],
                promise_ms: numbers[3],
                is_waiting: numbers[4] != 0,
            },
            "promise" => Message::Promise {
                incarnation: text(0),
                term: numbers[0],
                clock_ms: numbers[1],
                promise_ms: numbers[2],
            },
            "bid" => Message::Bid {
                shard: text(0),
                term: numbers[0],
                place: place(),
                clock_ms: numbers[3],
                promise_ms: numbers[4],
            },
            "yield" => Message::Yield {
                incarnation: text(0),
                term: numbers[0],
                place: place(),
                clock_ms: numbers[3],
                promise_ms: numbers[4],
            },
            "further" => Message::Further { term: numbers[0] },
            "hears" => Message::Hears { term: numbers[0] },
            _ => Message::Superseded {
                shard: text(0),
                term: numbers[0],
                revision: numbers[1],
            },
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_sent_is_what_comes_and_nothing_else_does() {
        let place = Place { term: 3, offset: 4 };
        let all = [
            Message::Ask {
                shard: "s".into(),
                term: 1,
                incarnation: "i".into(),
                revision: 2,
                clock_ms: 3,
                promise_ms: 4,
                is_waiting: true,
            },
            Message::Promise {
                term: 1,
                incarnation: "i".into(),
                clock_ms: u64::MAX,
                promise_ms: 4,
            },
            Message::Bid {
                shard: "s".into(),
                term: 1,
                place,
                clock_ms: 5,
                promise_ms: 6,
            },
            Message::Yield {
                term: 1,
                incarnation: "i".into(),
                place,
                clock_ms: 5,
                promise_ms: 6,
            },
            Message::Further { term: 7 },
            Message::Hears { term: 8 },
            Message::Superseded {
                shard: "s".into(),
                term: 9,
                revision: 10,
            },
        ];
        for message in all {
            let words = message.words();
            let mut bytes: Vec<&[u8]> = words.iter().map(String::as_bytes).collect();
            assert_eq!(Message::of_words(&bytes), Some(message));
            bytes.push(b"1");
            assert_eq!(Message::of_words(&bytes), None, "{words:?} and one more");
            bytes.truncate(words.len() - 1);
            assert_eq!(Message::of_words(&bytes), None, "{words:?} but the last");
            bytes.push(b"-1");
            assert_eq!(Message::of_words(&bytes), None, "{words:?}, negative");
        }
        let wrong: [&[&[u8]]; 3] = [&[], &[b"vote"], &[b"hears", b"\xff"]];
        for wrong in wrong {
            assert_eq!(Message::of_words(wrong), None);
        }
    }
}
