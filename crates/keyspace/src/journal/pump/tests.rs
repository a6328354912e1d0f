//! The stream that comes of records, and the role of who makes it.

use super::*;
use crate::journal::{
    Writer,
    tests::{attach, attach_reader, lines, pump, push, write},
};

#[test]
fn the_stream_selects_where_the_database_changes_and_brackets_units() {
    let journal = Journal::default();
    let caught = attach(&journal);
    let mut writer = Writer::default();
    write(&journal, &mut writer, 0, "SET a 1");
    write(&journal, &mut writer, 0, "SET b 2");
    write(&journal, &mut writer, 12, "SET c 3");
    push(&journal, &mut writer, 12, "DEL c");
    push(&journal, &mut writer, 3, "INCR n");
    push(&journal, &mut writer, 3, "INCR m");
    writer.commit(&journal);
    write(&journal, &mut writer, 3, "DEL n");
    pump(&journal);
    let [all, file] = caught.lock().unwrap().texts();
    assert_eq!(
        all,
        "SELECT 0|SET a 1|SET b 2|SELECT 12|SET c 3|MULTI|DEL c|SELECT 3|INCR n|INCR m|EXEC|DEL n"
    );
    assert_eq!(all, file);
}

#[test]
fn messages_have_no_database_and_go_to_no_file() {
    let journal = Journal::default();
    let caught = attach(&journal);
    let mut writer = Writer::default();
    let texts = |writer: &mut Writer| {
        writer.commit(&journal);
        pump(&journal);
        caught.lock().unwrap().texts()
    };
    push(&journal, &mut writer, None, "PUBLISH c 1");
    assert_eq!(texts(&mut writer), ["PUBLISH c 1", ""]);
    push(&journal, &mut writer, None, "PUBLISH c 2");
    push(&journal, &mut writer, None, "PUBLISH c 3");
    assert_eq!(
        texts(&mut writer),
        ["MULTI|PUBLISH c 2|PUBLISH c 3|EXEC", ""]
    );
    push(&journal, &mut writer, None, "PUBLISH c 4");
    push(&journal, &mut writer, 1, "INCR n");
    push(&journal, &mut writer, None, "PUBLISH c 5");
    push(&journal, &mut writer, 2, "INCR n");
    assert_eq!(
        texts(&mut writer),
        [
            "SELECT 1|MULTI|PUBLISH c 4|INCR n|PUBLISH c 5|SELECT 2|INCR n|EXEC",
            "SELECT 1|MULTI|INCR n|SELECT 2|INCR n|EXEC"
        ]
    );
    push(&journal, &mut writer, 2, "INCR n");
    assert_eq!(texts(&mut writer), ["INCR n"; 2]);
}

#[test]
fn a_number_that_is_taken_and_not_published_holds_the_rest_back() {
    let journal = Journal::default();
    let records = attach_reader(&journal);
    let (mut a, mut b) = (Writer::default(), Writer::default());
    write(&journal, &mut a, 0, "SET 1 1");
    // A worker that is stopped between its number and its record.
    push(&journal, &mut b, 0, "SET 2 2");
    let stalled = journal.next.fetch_add(1, Ordering::Relaxed);
    assert_eq!(write(&journal, &mut a, 0, "SET 3 3"), 3);
    pump(&journal);
    assert_eq!(lines(&records), ["0 SET 1 1"]);
    assert_eq!(journal.merged().number, 1);
    journal.next.store(stalled, Ordering::Relaxed);
    assert_eq!(b.commit(&journal), 2);
    journal.next.store(4, Ordering::Relaxed);
    pump(&journal);
    assert_eq!(lines(&records), ["0 SET 2 2", "0 SET 3 3"]);
}

/// A file writes the records of a lane as they lie: one piece for each chunk, whatever the number of records.
#[test]
fn records_of_one_lane_are_one_piece() {
    let journal = Journal::default();
    let caught = attach(&journal);
    let mut writer = Writer::default();
    for n in 0..5000 {
        write(&journal, &mut writer, 0, &format!("SET key:{n} {n}"));
    }
    let bytes = journal.waiting_bytes();
    pump(&journal);
    let caught = caught.lock().unwrap();
    // The first is SELECT.
    let chunks = (bytes as usize).div_ceil(64 * 1024);
    assert_eq!((caught.pieces.as_slice(), chunks), (&[1 + chunks][..], 3));
    assert_eq!(caught.ends.len(), 1);
}

#[test]
fn a_cut_falls_between_two_records_and_selects_anew() {
    let journal = Journal::default();
    let caught = attach(&journal);
    let mut writer = Writer::default();
    write(&journal, &mut writer, 7, "SET a 1");
    assert_eq!(journal.cut(), 1);
    write(&journal, &mut writer, 7, "SET b 2");
    pump(&journal);
    assert_eq!(journal.cut(), 2);
    assert_eq!(journal.cut(), 2);
    write(&journal, &mut writer, 7, "SET c 3");
    pump(&journal);
    let mut caught = caught.lock().unwrap();
    assert_eq!(
        caught.texts()[0],
        "SELECT 7|SET a 1|SELECT 7|SET b 2|SELECT 7|SET c 3"
    );
    let numbers = |positions: &[Position]| -> Vec<u64> {
        positions.iter().map(|position| position.number).collect()
    };
    assert_eq!(numbers(&caught.ends), [1, 2, 3]);
    assert_eq!(numbers(&caught.cuts), [0, 1, 2, 2]);
    assert_eq!(caught.cuts[1], caught.ends[0]);
}

#[test]
fn ends_of_rounds_make_offsets_of_numbers_and_back() {
    let journal = Journal::default();
    let caught = attach(&journal);
    let mut writer = Writer::default();
    for _ in 0..3 {
        write(&journal, &mut writer, 0, "INCR n");
        write(&journal, &mut writer, 0, "INCR n");
        pump(&journal);
    }
    let ends = caught.lock().unwrap().ends.clone();
    let lens: Vec<u64> = ends.iter().map(|end| end.offset).collect();
    assert_eq!(lens, [23 + 42, 23 + 84, 23 + 126]);
    assert_eq!(journal.merged(), ends[2]);
    assert_eq!(journal.position_at(23 + 83), Some(ends[0]));
    assert_eq!(journal.position_at(23 + 84), Some(ends[1]));
    assert_eq!(journal.position_at(0), Some(Position::default()));
    assert_eq!(journal.position_of(3), Some(ends[1]));
    assert_eq!(journal.position_of(4), Some(ends[1]));
    assert_eq!(journal.position_of(7), None);
}

#[test]
fn a_stream_ends_with_what_had_a_number_and_the_next_begins_behind() {
    let journal = Journal::default();
    let mut writer = Writer::default();
    let caught = attach(&journal);
    write(&journal, &mut writer, 0, "SET a 1");
    journal.detach();
    assert!(!journal.is_attached());
    {
        let mut caught = caught.lock().unwrap();
        assert!(caught.ended);
        assert_eq!(caught.texts()[0], "SELECT 0|SET a 1");
    }
    // Of one that saw a stream, and took its number when there was none.
    write(&journal, &mut writer, 0, "PUBLISH late 1");
    pump(&journal);
    let records = attach_reader(&journal);
    write(&journal, &mut writer, 0, "SET b 2");
    pump(&journal);
    assert_eq!(lines(&records), ["0 SET b 2"]);
    assert_eq!(journal.merged().number, 3);
    assert_eq!(journal.waiting_bytes(), 0);
}

/// The rest is for the next one that is asked, and so on, to the end.
#[test]
fn the_role_is_handed_on() {
    let journal = Journal::default();
    let records = attach_reader(&journal);
    let mut writer = Writer::default();
    let long = "x".repeat(64 * 1024);
    for n in 0..40 {
        write(&journal, &mut writer, 0, &format!("SET {n} {long}"));
    }
    let mut came = 0;
    // The first round hears of the attachment.
    for _ in 0..3 {
        let mut rounds = 0;
        let is_left = journal.pump(&mut || {
            rounds += 1;
            true
        });
        assert!(is_left);
        assert_eq!(rounds, 1);
        came += records.try_iter().count();
    }
    assert!((16..40).contains(&came), "{came}");
    pump(&journal);
    assert_eq!(came + records.try_iter().count(), 40);
}
