//! The link against a primary that is played here: every message lost, late, doubled, split at each byte, or garbage.

use super::*;

const TIMEOUT_MS: u64 = 60_000;
const MARK: &str = "0123456789abcdef0123456789abcdef01234567";

fn id(seed: u8) -> Replid {
    Replid::from_random([seed; 20])
}

fn introduction(resume: Option<(Replid, u64)>) -> Introduction {
    Introduction {
        user: Some(b"user".to_vec()),
        password: Some(b"word".to_vec()),
        port: 7000,
        address: Some("10.0.0.1".to_owned()),
        resume,
        is_failover: false,
        timeout_ms: TIMEOUT_MS,
        node: None,
    }
}

/// Everything that came out of a link, with the bytes of neighbouring pieces joined.
#[derive(Debug, Default, PartialEq, Eq)]
struct Heard {
    snapshot: Vec<u8>,
    stream: Vec<u8>,
    others: Vec<String>,
}

/// A link and the driver around it.
struct Play {
    link: Link,
    heard: Heard,
    sent: Vec<u8>,
    /// Bytes that the link has not taken yet.
    waiting: Vec<u8>,
    now_ms: u64,
}

impl Play {
    fn connected(resume: Option<(Replid, u64)>) -> Play {
        Play::introduced(introduction(resume))
    }

    fn introduced(introduction: Introduction) -> Play {
        let mut link = Link::default();
        link.follow(1000);
        assert_eq!(link.tick(0, None, 1000), Some(Wish::Connect));
        link.connected(introduction, 1000);
        Play {
            link,
            heard: Heard::default(),
            sent: Vec::new(),
            waiting: Vec::new(),
            now_ms: 1000,
        }
    }

    /// Has the primary send bytes; a snapshot is loaded at once.
    fn send(&mut self, bytes: &[u8]) {
        self.waiting.extend_from_slice(bytes);
        loop {
            let waiting = std::mem::take(&mut self.waiting);
            let mut wishes = Vec::new();
            let taken = self.link.take(&waiting, self.now_ms, &mut wishes);
            for wish in wishes {
                match wish {
                    Wish::Snapshot(bytes) => self.heard.snapshot.extend_from_slice(bytes),
                    Wish::Stream(bytes) => self.heard.stream.extend_from_slice(bytes),
                    Wish::Load { surplus } => {
                        let len = self.heard.snapshot.len() - surplus;
                        self.heard.snapshot.truncate(len);
                        self.heard.others.push("load".to_owned());
                        assert_eq!(self.link.loaded(Ok(77), self.now_ms), None);
                    }
                    other => self.heard.others.push(format!("{other:?}")),
                }
            }
            self.waiting = waiting[taken..].to_vec();
            let sent = std::mem::take(self.link.out());
            self.sent.extend_from_slice(&sent);
            if taken == 0 || self.waiting.is_empty() {
                return;
            }
        }
    }

    fn sent(&self) -> String {
        let text = String::from_utf8_lossy(&self.sent).into_owned();
        let words = text
            .split("\r\n")
            .filter(|word| !word.starts_with(['*', '$']));
        words.collect::<Vec<_>>().join(" ").trim_end().to_owned()
    }
}

/// Returns the messages of a primary for a full synchronisation.
fn full() -> Vec<Vec<u8>> {
    let ok = b"+OK\r\n".to_vec();
    let answer = format!("+FULLRESYNC {} 77\r\n", id(1));
    let snapshot = format!("$EOF:{MARK}\r\nREDIS0011 and so on{MARK}");
    vec![
        b"+PONG\r\n".to_vec(),
        ok.clone(),
        ok.clone(),
        ok.clone(),
        ok,
        b"-ERR Unrecognized REPLCONF option: version\r\n".to_vec(),
        answer.into_bytes(),
        snapshot.into_bytes(),
        b"*1\r\n$4\r\nPING\r\n".to_vec(),
    ]
}

fn expected() -> Heard {
    Heard {
        snapshot: b"REDIS0011 and so on".to_vec(),
        stream: b"*1\r\n$4\r\nPING\r\n".to_vec(),
        others: vec![format!("Begin(Some(({}, 77)))", id(1)), "load".to_owned()],
    }
}

#[test]
fn a_full_synchronisation_is_the_same_wherever_its_bytes_are_cut() {
    let all = full().concat();
    for cut in 0..=all.len() {
        let mut play = Play::connected(None);
        play.send(&all[..cut]);
        play.send(&all[cut..]);
        assert_eq!(play.heard, expected(), "cut at {cut}");
        assert_eq!(
            play.sent(),
            "PING AUTH user word REPLCONF listening-port 7000 REPLCONF ip-address 10.0.0.1 \
             REPLCONF capa eof capa psync2 capa redline REPLCONF version 9.1.2 PSYNC ? -1 REPLCONF ACK 77"
        );
        assert_eq!(play.link.state(), State::Streaming);
    }
    let mut play = Play::connected(None);
    all.iter().for_each(|byte| play.send(&[*byte]));
    assert_eq!(play.heard, expected());
}

#[test]
fn empty_lines_are_signs_of_life() {
    let mut play = Play::connected(None);
    for message in full() {
        if play.link.state() != State::Streaming {
            play.now_ms += TIMEOUT_MS - 1;
            play.send(b"\n");
            play.now_ms += TIMEOUT_MS - 1;
            assert_eq!(play.link.tick(0, None, play.now_ms), None);
        }
        play.send(&message);
    }
    assert_eq!(play.heard, expected());
}

#[test]
fn a_message_that_is_lost_ends_in_another_call() {
    for lost in 0..full().len() - 1 {
        let mut play = Play::connected(None);
        for message in &full()[..lost] {
            play.send(message);
        }
        play.now_ms += TIMEOUT_MS - 1;
        assert_eq!(
            play.link.tick(0, None, play.now_ms),
            None,
            "before message {lost}"
        );
        play.now_ms += 1;
        let failed = play.link.tick(0, None, play.now_ms);
        assert!(
            matches!(failed, Some(Wish::Failed(_))),
            "without message {lost}: {failed:?}"
        );
        // The last call is long ago.
        assert_eq!(play.link.next_ms(), Some(play.now_ms + MOMENT_MS));
        assert_eq!(play.link.tick(0, None, play.now_ms + MOMENT_MS - 1), None);
        let again = play.link.tick(0, None, play.now_ms + MOMENT_MS);
        assert_eq!(again, Some(Wish::Connect));
        // What comes late over the old connection is nobody's.
        assert_eq!(
            play.link.take(&full()[lost], play.now_ms, &mut Vec::new()),
            0
        );
    }
}

#[test]
fn a_message_that_is_doubled_is_no_synchronisation_of_garbage() {
    for doubled in 0..full().len() - 2 {
        let mut play = Play::connected(None);
        for (at, message) in full().iter().enumerate() {
            play.send(message);
            if at == doubled {
                play.send(message);
            }
        }
        // Replies are told apart by their order only: one too many makes the answer to PSYNC one that is none, or the
        // header of the snapshot.
        let is_failed = play
            .heard
            .others
            .iter()
            .any(|wish| wish.starts_with("Failed"));
        let is_older = play.heard.others.iter().any(|wish| wish == "Begin(None)");
        assert!(
            is_failed || is_older,
            "message {doubled} doubled: {:?}",
            play.heard
        );
        assert!(play.heard.stream.is_empty(), "message {doubled} doubled");
    }
}

#[test]
fn a_cut_link_goes_on_where_it_was() {
    let mut play = Play::connected(Some((id(1), 99)));
    full()[..6].iter().for_each(|message| play.send(message));
    play.send(format!("+CONTINUE {}\r\n*1\r\n", id(2)).as_bytes());
    assert!(play.sent().ends_with(&format!("PSYNC {} 100", id(1))));
    assert_eq!(play.heard.others, [format!("Continue(Some({}))", id(2))]);
    assert_eq!(play.heard.stream, b"*1\r\n");
    assert_eq!(play.link.tick(99, None, play.now_ms), None);
    play.send(b"");
    assert!(play.sent().ends_with("REPLCONF ACK 99"));
    play.now_ms += PERIOD_MS;
    assert_eq!(play.link.tick(150, Some(120), play.now_ms), None);
    play.send(b"");
    assert!(play.sent().ends_with("REPLCONF ACK 150 FACK 120"));
    let lost = play.link.lost("reset by peer", play.now_ms);
    assert!(matches!(lost, Some(Wish::Failed(why)) if why.contains("reset by peer")));
    assert_eq!(play.link.lost("again", play.now_ms), None);
}

#[test]
fn a_link_that_stood_is_made_again_at_once_but_not_again_and_again() {
    let mut play = Play::connected(Some((id(1), 99)));
    full()[..6].iter().for_each(|message| play.send(message));
    play.send(b"+CONTINUE\r\n");
    let called_ms = play.now_ms;
    play.now_ms += 5 * PERIOD_MS;
    assert!(play.link.lost("reset by peer", play.now_ms).is_some());
    play.now_ms += MOMENT_MS;
    assert_eq!(play.link.tick(99, None, play.now_ms), Some(Wish::Connect));
    // It stands again, and is lost in the same moment.
    play.link
        .connected(introduction(Some((id(1), 99))), play.now_ms);
    full()[..6].iter().for_each(|message| play.send(message));
    play.send(b"+CONTINUE\r\n");
    assert!(play.link.lost("reset by peer", play.now_ms).is_some());
    assert_eq!(
        play.link.next_ms(),
        Some(called_ms + 6 * PERIOD_MS + MOMENT_MS)
    );
    assert_eq!(play.link.tick(99, None, play.now_ms), None);
}

#[test]
fn calls_are_a_second_apart_and_no_longer() {
    let mut link = Link::default();
    link.follow(5000);
    assert_eq!(link.tick(0, None, 5000), Some(Wish::Connect));
    assert!(link.lost("refused", 5003).is_some());
    assert_eq!(link.next_ms(), Some(5000 + PERIOD_MS));
    assert_eq!(link.tick(0, None, 5000 + PERIOD_MS - 1), None);
    assert_eq!(link.tick(0, None, 6000), Some(Wish::Connect));
    // One that stood for longer is replaced at once.
    assert!(link.lost("reset by peer", 7500).is_some());
    assert_eq!(link.tick(0, None, 7500 + MOMENT_MS), Some(Wish::Connect));
    // Another primary is called at once, too.
    link.follow(7600);
    assert_eq!(link.tick(0, None, 7600), Some(Wish::Connect));
}

#[test]
fn a_snapshot_that_is_loaded_as_it_comes_may_fail_before_its_end() {
    let mut play = Play::connected(None);
    let messages = full();
    messages[..7].iter().for_each(|message| play.send(message));
    play.send(&messages[7][..60]);
    assert_eq!(play.link.state(), State::Transfer);
    assert_eq!(play.link.loaded(Ok(77), play.now_ms), None);
    // Whoever loads it is slow.
    play.now_ms += TIMEOUT_MS;
    play.link.waits_for_loader(play.now_ms);
    assert_eq!(play.link.tick(0, None, play.now_ms), None);
    let failed = play.link.loaded(Err("damaged".to_owned()), play.now_ms);
    assert_eq!(failed, Some(Wish::Failed("damaged".to_owned())));
    assert_eq!(play.link.state(), State::Pausing);
    assert_eq!(
        play.link.loaded(Err("again".to_owned()), play.now_ms),
        None,
        "it is given up already"
    );
}

#[test]
fn answers_that_make_no_sense_are_failures() {
    let answers = [
        "+CONTINUE\r\n".to_owned(),
        format!("+CONTINUE {}\r\n", id(1)),
        "+FULLRESYNC\r\n".to_owned(),
        format!("+FULLRESYNC {}\r\n", id(1)),
        format!("+FULLRESYNC {} -1\r\n", id(1)),
        format!("+FULLRESYNC {} 99999999999999999999\r\n", id(1)),
        "+FULLRESYNC short 1\r\n".to_owned(),
        "-NOMASTERLINK Can't SYNC while not connected with my master\r\n".to_owned(),
        "-LOADING Redis is loading the dataset in memory\r\n".to_owned(),
        "$5\r\n".to_owned(),
        "HTTP/1.1 400 Bad Request\r\n".to_owned(),
        "x".repeat(LINE_BYTES_MAX + 1),
    ];
    for answer in answers {
        let mut play = Play::connected(None);
        full()[..6].iter().for_each(|message| play.send(message));
        play.send(answer.as_bytes());
        let [wish] = play.heard.others.as_slice() else {
            panic!("{answer}: {:?}", play.heard);
        };
        assert!(wish.starts_with("Failed"), "{answer}: {wish}");
        assert_eq!(play.link.state(), State::Pausing);
    }
}

#[test]
fn a_primary_without_psync_is_asked_for_sync_and_gets_no_acknowledgement() {
    let mut play = Play::connected(None);
    full()[..6].iter().for_each(|message| play.send(message));
    play.send(b"-ERR unknown command 'PSYNC'\r\n");
    play.send(b"\n\n$3\r\nabcPING");
    assert!(play.sent().ends_with("PSYNC ? -1 SYNC"));
    assert_eq!(play.heard.others, ["Begin(None)", "load"]);
    assert_eq!(
        (play.heard.snapshot.as_slice(), play.heard.stream.as_slice()),
        (&b"abc"[..], &b"PING"[..])
    );
    play.now_ms += PERIOD_MS;
    assert_eq!(play.link.tick(5, None, play.now_ms), None);
    assert!(play.link.out().is_empty());
}

#[test]
fn refusals_of_the_handshake_end_it_where_they_matter() {
    let fails = |messages: &[&str]| {
        let mut play = Play::connected(None);
        messages
            .iter()
            .for_each(|message| play.send(message.as_bytes()));
        play.heard
            .others
            .iter()
            .any(|wish| wish.starts_with("Failed"))
    };
    assert!(!fails(&["-NOAUTH Authentication required.\r\n"]));
    assert!(!fails(&["-NOPERM no\r\n"]));
    assert!(fails(&["-DENIED protected mode\r\n"]));
    assert!(fails(&["+PONG\r\n", "-WRONGPASS no\r\n"]));
    assert!(!fails(&[
        "+PONG\r\n",
        "+OK\r\n",
        "-ERR no\r\n",
        "-ERR no\r\n",
        "-ERR no\r\n",
        "-ERR no\r\n"
    ]));
}

#[test]
fn while_a_snapshot_is_loaded_nothing_is_taken_and_the_primary_hears_signs_of_life() {
    let mut play = Play::connected(None);
    full()[..7].iter().for_each(|message| play.send(message));
    let snapshot = full()[7].clone();
    let mut wishes = Vec::new();
    play.link.take(&snapshot, play.now_ms, &mut wishes);
    assert_eq!(wishes.last(), Some(&Wish::Load { surplus: 40 }));
    assert_eq!(play.link.take(b"*1\r\n", play.now_ms, &mut Vec::new()), 0);
    for _ in 0..200 {
        play.now_ms += PERIOD_MS;
        play.link.out().clear();
        assert_eq!(play.link.tick(0, None, play.now_ms), None);
        assert_eq!(play.link.out(), b"\n");
    }
    let failed = play
        .link
        .loaded(Err("it is damaged".to_owned()), play.now_ms);
    assert_eq!(failed, Some(Wish::Failed("it is damaged".to_owned())));
    assert_eq!(
        play.link.loaded(Ok(5), play.now_ms),
        None,
        "it comes too late"
    );
}

#[test]
fn who_follows_nobody_wants_nothing() {
    let mut play = Play::connected(None);
    play.link.stop();
    assert_eq!(play.link.next_ms(), None);
    assert_eq!(play.link.tick(0, None, u64::MAX), None);
    assert_eq!(play.link.take(b"+PONG\r\n", 0, &mut Vec::new()), 0);
    assert_eq!(play.link.lost("gone", 0), None);
}

/// Returns what a failover's target is told last, and what its answer leads to.
fn failed_over(answer: &str) -> (String, Vec<String>, State) {
    let mut play = Play::introduced(Introduction {
        is_failover: true,
        ..introduction(Some((id(1), 41)))
    });
    for message in &full()[..6] {
        play.send(message);
    }
    let sent = play.sent();
    play.send(answer.as_bytes());
    (sent, play.heard.others, play.link.state())
}

#[test]
fn the_target_of_a_failover_is_asked_to_take_over() {
    let (sent, heard, state) = failed_over(&format!("+CONTINUE {}\r\n", id(2)));
    let asked = format!("PSYNC {} 42 FAILOVER", id(1));
    assert!(sent.ends_with(&asked), "{sent}");
    assert_eq!(heard.len(), 1, "{heard:?}");
    assert!(heard[0].starts_with("Continue"), "{heard:?}");
    assert_eq!(state, State::Streaming);
}

#[test]
fn a_target_that_does_not_take_over_gets_no_other_request() {
    for answer in [
        "-ERR PSYNC FAILOVER can't be sent to a master.\r\n",
        "-NOMASTERLINK Can't SYNC while not connected with my master\r\n",
    ] {
        let (_, heard, state) = failed_over(answer);
        assert_eq!(heard.len(), 1, "{heard:?}");
        assert!(heard[0].starts_with("Refused"), "{heard:?}");
        assert_eq!(state, State::Pausing);
    }
}
