use super::*;
use dogwatch_core::drive::journal::MAX_PENDING;
use dogwatch_core::record::event::Event;
use dogwatch_core::time::moment::Moment;

fn notice(seq: u64, message: &str) -> Recorded {
    let event = Event::Notice { kind: "test".into(), message: message.into() };
    Recorded::new(seq, Moment::default(), event)
}

fn written(dir: &Path, n: u64) -> Journal {
    let mut journal = Journal::create(dir).expect("creates a journal in a new directory");
    for seq in 1..=n {
        journal.append(&notice(seq, &format!("number {seq}"))).expect("appends");
    }
    journal.sync().expect("writes");
    journal
}

// promise: 5
#[test]
fn a_written_journal_is_read_back_completely() {
    let dir = tempfile::tempdir().expect("a directory");
    written(dir.path(), 5);
    let loaded = load(dir.path()).expect("reads");
    assert_eq!(loaded.events.len(), 5);
    assert_eq!(loaded.events[4], notice(5, "number 5"));
    assert_eq!((loaded.torn.len(), loaded.chain.broken()), (0, None));
}

// promise: 5
#[test]
fn a_torn_last_line_is_cut_and_kept_aside_wherever_it_is_torn() {
    let dir = tempfile::tempdir().expect("a directory");
    written(dir.path(), 3);
    let path = dir.path().join(FILE);
    let whole = std::fs::read(&path).expect("reads");
    let last_line = whole[..whole.len() - 1].iter().rposition(|b| *b == b'\n').expect("three lines") + 1;
    for cut in last_line..whole.len() {
        std::fs::write(&path, &whole[..cut]).expect("writes");
        let loaded = load(dir.path()).expect("a torn tail is not an error");
        assert_eq!(loaded.events.len(), 2);
        let aside = repair(dir.path(), &loaded).expect("repairs");
        match aside {
            Some(aside) => {
                assert_eq!(std::fs::read(&aside).expect("kept"), &whole[last_line..cut]);
                std::fs::remove_file(aside).expect("removes");
            }
            None => assert_eq!(cut, last_line),
        }
        assert_eq!(std::fs::read(&path).expect("reads"), &whole[..last_line]);
    }
}

// promise: 5
#[test]
fn a_changed_or_missing_line_shows() {
    let dir = tempfile::tempdir().expect("a directory");
    written(dir.path(), 4);
    let path = dir.path().join(FILE);
    let text = std::fs::read_to_string(&path).expect("reads");
    std::fs::write(&path, text.replace("number 2", "number Z")).expect("writes");
    assert_eq!(load(dir.path()).expect("still reads").chain.broken(), Some(3));
    let without_2: String =
        text.lines().filter(|l| !l.contains("number 2")).map(|l| format!("{l}\n")).collect();
    std::fs::write(&path, without_2).expect("writes");
    let gap = BadLine::Gap { last: 1, found: 3 };
    assert!(matches!(load(dir.path()), Err(ReadError::Line { line: 2, bad, .. }) if bad == gap));
}

#[test]
fn a_newer_format_is_refused_and_named() {
    let dir = tempfile::tempdir().expect("a directory");
    written(dir.path(), 1);
    let path = dir.path().join(FILE);
    let text = std::fs::read_to_string(&path).expect("reads").replace("\"v\":1", "\"v\":2");
    // A later format may have none of the other fields.
    for text in [text.as_str(), "{\"v\":2}\n"] {
        std::fs::write(&path, text).expect("writes");
        let error = load(dir.path()).expect_err("refused").to_string();
        assert!(error.contains("line 1: written by a newer dogwatch (format 2"), "{error}");
    }
    std::fs::write(&path, "{\"v\":1}\n").expect("writes");
    let error = load(dir.path()).expect_err("refused").to_string();
    assert!(error.contains("line 1: not an event: missing field"), "{error}");
}

// promise: 7
#[test]
fn an_event_of_a_later_version_of_the_same_format_is_passed_over() {
    let dir = tempfile::tempdir().expect("a directory");
    written(dir.path(), 2);
    let path = dir.path().join(FILE);
    let text =
        std::fs::read_to_string(&path).expect("reads").replace("\"event\":\"notice\"", "\"event\":\"sang\"");
    std::fs::write(&path, text).expect("writes");
    assert_eq!(load(dir.path()).expect("reads").events[1].event, Event::Unknown);
}

// promise: 10
#[test]
fn a_journal_that_was_deleted_or_replaced_is_noticed() {
    let dir = tempfile::tempdir().expect("a directory");
    let mut journal = written(dir.path(), 1);
    journal.verify().expect("it is in place");
    std::fs::rename(dir.path().join(FILE), dir.path().join("moved")).expect("moves");
    assert!(matches!(journal.verify(), Err(JournalError::Moved(why)) if why.ends_with("is gone")));
    std::os::unix::fs::symlink(dir.path().join("moved"), dir.path().join(FILE)).expect("links");
    journal.append(&notice(2, "two")).expect("appends");
    assert!(
        matches!(journal.flush(), Err(JournalError::Moved(why)) if why.ends_with("was replaced by another file"))
    );
    journal.keep_writing();
    journal.flush().expect("the open file still accepts lines");
}

// promise: 10
#[test]
fn a_journal_that_was_cut_or_added_to_is_noticed_before_the_next_write() {
    for (change, how) in [(0, "has 0 bytes instead of"), (1_000_000, "another program wrote to it")] {
        let dir = tempfile::tempdir().expect("a directory");
        let mut journal = written(dir.path(), 2);
        let path = dir.path().join(FILE);
        std::fs::File::options().write(true).open(&path).and_then(|f| f.set_len(change)).expect("changes it");
        journal.append(&notice(3, "three")).expect("appends");
        match journal.sync() {
            Err(JournalError::Changed(why)) => assert!(why.contains(how) && why.contains(FILE), "{why}"),
            other => panic!("{other:?}"),
        }
        assert_eq!(std::fs::metadata(&path).expect("is there").len(), change, "nothing was written");
    }
}

// promise: 5
#[test]
fn a_line_at_the_limit_is_written_and_read_and_one_beyond_is_neither() {
    let dir = tempfile::tempdir().expect("a directory");
    let mut journal = Journal::create(dir.path()).expect("creates");
    let rest = chained(&notice(1, ""), GENESIS).expect("serializes").len();
    let longest = "x".repeat(MAX_LINE - rest);
    journal.append(&notice(1, &longest)).expect("fits");
    journal.append(&notice(2, "the next")).expect("fits");
    journal.sync().expect("writes");
    let error = journal.append(&notice(3, &(longest + "x"))).expect_err("is too long");
    assert!(error.contains("the record allows"), "{error}");
    assert_eq!(load(dir.path()).expect("reads").events.len(), 2);

    // A longer line is not taken for a torn one: a repair would remove it and every line after it.
    let path = dir.path().join(FILE);
    let text = std::fs::read_to_string(&path).expect("reads");
    std::fs::write(&path, text.replacen("xxx", "xxxx", 1)).expect("writes");
    let error = load(dir.path()).expect_err("is too long");
    assert!(matches!(&error, ReadError::Line { line: 1, bad: BadLine::TooLong, .. }), "{error}");
}

// promise: 4
#[test]
fn the_queue_for_a_full_disk_is_bounded() {
    let dir = tempfile::tempdir().expect("a directory");
    let mut journal = Journal::create(dir.path()).expect("creates");
    let big = notice(1, &"x".repeat(MAX_LINE - 1024));
    for _ in 0..MAX_PENDING / MAX_LINE {
        journal.append(&big).expect("fits");
    }
    assert_eq!(journal.append(&big).expect_err("does not fit"), "too many unwritten events");
}
