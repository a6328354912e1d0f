//! Tests of manifests: what is read, what is refused, and what is there after faults.

use super::*;
use crate::disk::double::{Double, FAULTS, Fault, Kept};

fn paths() -> Paths {
    Paths {
        dir: "/data".into(),
        folder_name: "appendonlydir".into(),
        file_name: "appendonly.aof".into(),
    }
}

fn entry(name: &str, seq: i64) -> Entry {
    Entry {
        name: name.into(),
        seq,
    }
}

fn disk_with_folder() -> Double {
    let disk = Double::default();
    disk.create_dir(&paths().dir).unwrap();
    create_folder(&disk, &paths()).unwrap();
    disk
}

#[test]
fn the_lines_of_redis_are_read_and_written() {
    let text = b"file appendonly.aof.2.base.rdb seq 2 type b\n\
        file appendonly.aof.1.incr.aof seq 1 type h\n\
        file appendonly.aof.2.incr.aof seq 2 type i\n\
        file appendonly.aof.4.incr.aof seq 4 type i\n";
    let manifest = Manifest::parse(text).unwrap();
    assert_eq!(manifest.base, Some(entry("appendonly.aof.2.base.rdb", 2)));
    assert_eq!(manifest.history, [entry("appendonly.aof.1.incr.aof", 1)]);
    assert_eq!(manifest.incr_seq(), 4);
    assert_eq!(manifest.text(), text);
}

#[test]
fn forms_that_redis_takes_are_taken() {
    for (text, name, seq) in [
        ("# comment\nfile i seq 1 type i extra 3\n", "i", 1),
        ("FILE i SEQ 3x TYPE ix\n", "i", 3),
        ("  file i seq 1 type i \t\r\n", "i", 1),
        ("type i seq 7 file i\n", "i", 7),
        ("file \"i \\x41\\\"\" seq 1 type i\n", "i A\"", 1),
        ("file 'i 1' seq 1 type i\n", "i 1", 1),
    ] {
        let manifest = Manifest::parse(text.as_bytes()).unwrap();
        assert_eq!(manifest.incrs, [entry(name, seq)], "{text}");
    }
    assert_eq!(
        Manifest::parse(b"# nothing\n").unwrap(),
        Manifest::default()
    );
}

#[test]
fn names_are_written_as_redis_writes_them() {
    let name = " a\n\r\t\x07\x08\"\x01 ";
    let manifest = Manifest {
        base: Some(entry(name, 2)),
        ..Manifest::default()
    };
    let text = r#"file " a\n\r\t\a\b\"\x01 " seq 2 type b"#;
    assert_eq!(manifest.text(), format!("{text}\n").into_bytes());
    assert_eq!(Manifest::parse(&manifest.text()).unwrap(), manifest);
}

#[test]
fn every_error_has_redis_s_text() {
    let long = format!("file i{}seq 1 type i\n", " ".repeat(LINE_BYTES_MAX));
    let long_comment = format!("#{}\n", "y".repeat(LINE_BYTES_MAX));
    let cases = [
        ("", "Found an empty AOF manifest", None),
        (&*long, "The AOF manifest file contains too long line", None),
        (
            "file i seq 1 type i",
            "The AOF manifest file contains too long line",
            None,
        ),
        ("\nfile i seq 1 type i\n", INVALID_FORMAT, Some(1)),
        (&*long_comment, INVALID_FORMAT, Some(2)),
        ("file i seq 1 type i x\n", INVALID_FORMAT, Some(1)),
        ("file i seq 1\n", INVALID_FORMAT, Some(1)),
        ("file \"i seq 1 type i\n", INVALID_FORMAT, Some(1)),
        ("file i seq 0 type i\n", INVALID_FORMAT, Some(1)),
        ("file i seq x type i\n", INVALID_FORMAT, Some(1)),
        (
            "file i seq 99999999999999999999 type i\n",
            INVALID_FORMAT,
            Some(1),
        ),
        ("file i seq 1 type \"\"\n", INVALID_FORMAT, Some(1)),
        ("file \"\" seq 1 type i\n", INVALID_FORMAT, Some(1)),
        ("file a\0b seq 1 type i\n", INVALID_FORMAT, Some(1)),
        ("file \"a\\x00\" seq 1 type i\n", INVALID_FORMAT, Some(1)),
        ("other i seq 1 type i\n", INVALID_FORMAT, Some(1)),
        ("file /b seq 1 type b\n", NO_PATH, Some(1)),
        ("file a\\b seq 1 type b\n", NO_PATH, Some(1)),
        ("file .. seq 1 type b\n", NO_PATH, Some(1)),
        (
            "file b seq 1 type b\nfile b seq 1 type b\n",
            "Found duplicate base file information",
            Some(2),
        ),
        (
            "file i seq 2 type i\nfile j seq 2 type i\n",
            "Found a non-monotonic sequence number",
            Some(2),
        ),
        (
            "file i seq -3 type i\n",
            "Found a non-monotonic sequence number",
            Some(1),
        ),
        ("file i seq 1 type x\n", "Unknown AOF file type", Some(1)),
    ];
    for (text, what, line) in cases {
        let error = Manifest::parse(text.as_bytes()).unwrap_err();
        assert_eq!(error.what, what, "{text}");
        assert_eq!(
            error.line.as_ref().map(|(number, _)| *number),
            line,
            "{text}"
        );
    }
    let error = Manifest::parse(b"#\nfile i seq 1 type x\n").unwrap_err();
    assert_eq!(
        error.to_string(),
        "\n*** FATAL AOF MANIFEST FILE ERROR ***\n\nReading the manifest file, at line 2\n\n\
         >>> 'file i seq 1 type x'\n\nUnknown AOF file type\n"
    );
}

#[test]
fn any_name_comes_back() {
    let names = [
        "plain",
        "#x",
        "with space",
        "qu\"o'te",
        "b\ne\x07ll",
        "ä",
        "'",
    ];
    for name in names {
        let mut manifest = Manifest::default();
        manifest.incrs.push(entry(name, 1));
        assert_eq!(
            Manifest::parse(&manifest.text()).unwrap(),
            manifest,
            "{name}"
        );
    }
    let mut manifest = Manifest::default();
    let bytes: Vec<u8> = (1..=255).filter(|byte| !b"/\\".contains(byte)).collect();
    manifest.incrs.push(Entry {
        name: OsString::from_vec(bytes),
        seq: 1,
    });
    assert_eq!(Manifest::parse(&manifest.text()).unwrap(), manifest);
}

#[test]
fn a_new_base_makes_history_of_what_it_replaces() {
    let paths = paths();
    let mut manifest = Manifest::default();
    assert_eq!(
        manifest.replace_base(&paths, true, 0),
        "appendonly.aof.1.base.rdb"
    );
    assert_eq!(manifest.add_incr(&paths), "appendonly.aof.1.incr.aof");
    assert_eq!(manifest.add_incr(&paths), "appendonly.aof.2.incr.aof");
    assert_eq!(
        manifest.replace_base(&paths, false, 1),
        "appendonly.aof.2.base.aof"
    );
    assert_eq!(manifest.incrs, [entry("appendonly.aof.2.incr.aof", 2)]);
    assert_eq!(
        manifest.removable(),
        ["appendonly.aof.1.base.rdb", "appendonly.aof.1.incr.aof"]
    );
}

#[test]
fn a_file_in_use_is_not_removed_because_the_history_names_it_too() {
    let disk = disk_with_folder();
    let paths = paths();
    let text = b"file b seq 1 type b\nfile b seq 1 type h\nfile h seq 1 type h\n";
    let manifest = Manifest::parse(text).unwrap();
    for name in ["b", "h"] {
        disk.create(&paths.file(name)).unwrap();
    }
    let left = remove_history(&disk, &paths, &manifest).unwrap();
    assert!(disk.exists(&paths.file("b")).unwrap() && !disk.exists(&paths.file("h")).unwrap());
    assert_eq!(left.history, []);
    assert_eq!(load(&disk, &paths).unwrap().unwrap(), left);
}

#[test]
fn after_any_fault_of_a_write_the_old_or_the_new_manifest_is_there() {
    let (old, new) = {
        let mut old = Manifest::default();
        old.incrs.push(entry("i", 1));
        let mut new = old.clone();
        new.incrs.push(entry("j", 2));
        (old, new)
    };
    let mut kept = vec![Kept::All, Kept::Nothing];
    kept.extend((0..20).map(|seed| Kept::Some { seed }));
    for fault in FAULTS {
        for call in 0..5 {
            for &kept in &kept {
                let disk = disk_with_folder();
                write(&disk, &paths(), &old).unwrap();
                disk.fail_at(disk.calls() + call, fault);
                let done = write(&disk, &paths(), &new);
                disk.restart(kept);
                let there = load(&disk, &paths()).unwrap().unwrap();
                let is_new = match done {
                    Ok(()) => true,
                    Err(error) if !error.may_be_renamed => false,
                    Err(_) => there == new,
                };
                let expected = if is_new { &new } else { &old };
                assert_eq!(&there, expected, "{fault:?} at {call}, {kept:?}");
            }
        }
    }
}

#[test]
fn a_single_file_is_taken_over_whatever_interrupts_that() {
    let paths = paths();
    for call in 0..20 {
        for seed in 0..20 {
            let disk = Double::default();
            disk.create_dir(&paths.dir).unwrap();
            let file = disk.create(&paths.single_file()).unwrap();
            write_all(&*file, &[b"data"]).unwrap();
            file.sync_data().unwrap();
            disk.sync_dir(&paths.dir).unwrap();
            disk.fail_at(disk.calls() + call, Fault::PowerLost);
            let _ = take_over(&disk, &paths, &mut Manifest::default());
            disk.restart(Kept::Some { seed });
            let mut manifest = load(&disk, &paths).unwrap().unwrap_or_default();
            take_over(&disk, &paths, &mut manifest).unwrap();
            assert_eq!(manifest.text(), b"file appendonly.aof seq 1 type b\n");
            let inside = paths.file("appendonly.aof");
            assert_eq!(read_whole(&disk, &inside, 9).unwrap().unwrap(), b"data");
            assert!(!disk.exists(&paths.single_file()).unwrap());
            let mut again = load(&disk, &paths).unwrap().unwrap();
            assert!(take_over(&disk, &paths, &mut again).unwrap().is_none());
        }
    }
}

#[test]
fn a_single_file_beside_a_manifest_with_files_is_left_alone() {
    let disk = disk_with_folder();
    disk.create(&paths().single_file()).unwrap();
    let text = b"file b seq 1 type b\n";
    let mut manifest = Manifest::parse(text).unwrap();
    assert!(take_over(&disk, &paths(), &mut manifest).unwrap().is_none());
    assert_eq!(manifest.text(), text);
}
