use super::*;
use dogwatch_core::time::dur::Dur;
use serde_json::{Value, json};
use std::io::Write;

struct Lab {
    dir: tempfile::TempDir,
}

impl Lab {
    fn new() -> Lab {
        Lab { dir: tempfile::tempdir().expect("a directory") }
    }

    fn index(&self) -> SessionIndex {
        SessionIndex::at(self.dir.path().join("state/sessions.json"))
    }

    fn write(&self, name: &str, lines: &[Value]) -> PathBuf {
        let path = self.dir.path().join(name);
        std::fs::create_dir_all(path.parent().expect("a parent")).expect("a directory");
        let text: String = lines.iter().map(|line| format!("{line}\n")).collect();
        std::fs::write(&path, text).expect("writes");
        path
    }

    /// Writes a Claude Code transcript with one turn per given silence, in seconds.
    fn transcript(&self, name: &str, session: &str, silences: &[u64]) -> PathBuf {
        let mut lines = Vec::new();
        let mut at = 0;
        let stamp = |s: u64| format!("2026-01-05T{:02}:{:02}:{:02}.000Z", s / 3600, s / 60 % 60, s % 60);
        for silence in silences {
            let user = json!({"type": "user", "sessionId": session, "cwd": "/srv/app", "timestamp": stamp(at), "message": {"role": "user", "content": "go"}});
            at += silence;
            let answer = json!({"type": "assistant", "sessionId": session, "cwd": "/srv/app", "timestamp": stamp(at), "message": {"role": "assistant", "model": "m", "stop_reason": "end_turn", "content": [{"type": "text", "text": "done"}]}});
            lines.extend([user, answer]);
            at += 1;
        }
        self.write(name, &lines)
    }

    fn import(&self, index: &mut SessionIndex, bytes: u64) -> Imported {
        import(index, &[self.dir.path().join("projects"), self.dir.path().join("nowhere")], bytes)
    }
}

fn silences(index: &SessionIndex) -> Vec<u64> {
    let mut all: Vec<u64> =
        index.samples().iter().map(|sample| sample.needs.silence_s.as_millis() / 1000).collect();
    all.sort_unstable();
    all
}

#[test]
fn transcripts_are_read_once_and_again_when_they_grow() {
    let lab = Lab::new();
    let path = lab.transcript("projects/a/one.jsonl", "s1", &[100, 20]);
    let mut index = lab.index();
    let first = lab.import(&mut index, MAX_UPDATE);
    assert_eq!((first.files, first.read, first.turns, first.good, first.dirs.len()), (1, 1, 2, 2, 1));
    assert_eq!(silences(&index), [20, 100]);
    assert_eq!(index.samples()[0].place, "/srv/app");
    index.save().expect("saves");

    let mut index = lab.index();
    assert_eq!(index.problems, Vec::<String>::new());
    assert_eq!(silences(&index), [20, 100]);
    assert_eq!(lab.import(&mut index, MAX_UPDATE).read, 0);
    lab.transcript("projects/a/one.jsonl", "s1", &[100, 20, 7]);
    assert_eq!(lab.import(&mut index, MAX_UPDATE).read, 1);
    assert_eq!(silences(&index), [7, 20, 100]);
    // The sessions stay known when the file is removed.
    std::fs::remove_file(path).expect("removes");
    assert_eq!(lab.import(&mut index, MAX_UPDATE).files, 0);
    assert_eq!(silences(&index), [7, 20, 100]);
}

#[test]
fn garbage_is_counted_and_read_only_once() {
    let lab = Lab::new();
    lab.transcript("projects/a/good.jsonl", "s1", &[5]);
    for (name, bytes) in [
        ("empty", &b""[..]),
        ("binary", &b"\xff\xfe\0\n\0"[..]),
        ("text", b"hello\nworld\n"),
        ("json", b"{}\n[1]\n"),
    ] {
        std::fs::write(lab.dir.path().join(format!("projects/a/{name}.jsonl")), bytes).expect("writes");
    }
    let torn = lab.transcript("projects/b/torn.jsonl", "s2", &[6]);
    let mut file = std::fs::OpenOptions::new().append(true).open(torn).expect("opens");
    file.write_all(b"{\"type\":\"assistant\",\"mess").expect("writes");
    std::os::unix::fs::symlink("/", lab.dir.path().join("projects/loop")).expect("links");
    let mut index = lab.index();
    let read = lab.import(&mut index, MAX_UPDATE);
    assert_eq!((read.files, read.read, read.unreadable, read.turns), (6, 6, 4, 2));
    assert_eq!(silences(&index), [5, 6]);
    assert_eq!(lab.import(&mut index, MAX_UPDATE).read, 0);
}

#[test]
fn an_import_stops_at_its_bound_and_the_next_one_continues() {
    let lab = Lab::new();
    for n in 0..3 {
        lab.transcript(&format!("projects/a/{n}.jsonl"), &format!("s{n}"), &[10 + n]);
    }
    let length = std::fs::metadata(lab.dir.path().join("projects/a/0.jsonl")).expect("is there").len();
    let mut index = lab.index();
    let first = lab.import(&mut index, 2 * length);
    assert_eq!((first.read, first.left), (2, 1));
    let second = lab.import(&mut index, 2 * length);
    assert_eq!((second.read, second.left), (1, 0));
    assert_eq!(silences(&index), [10, 11, 12]);
}

#[test]
fn an_unreadable_index_is_reported_and_built_again() {
    let lab = Lab::new();
    lab.transcript("projects/a/one.jsonl", "s1", &[100]);
    for text in ["", "{", "{\"v\":1,\"files\":{\"x\":1}}", "[]"] {
        std::fs::create_dir_all(lab.dir.path().join("state")).expect("a directory");
        std::fs::write(lab.dir.path().join("state/sessions.json"), text).expect("writes");
        let mut index = lab.index();
        assert_eq!(index.problems.len(), 1, "{text:?}");
        assert!(index.problems[0].contains("built again"), "{}", index.problems[0]);
        lab.import(&mut index, MAX_UPDATE);
        index.save().expect("saves");
        assert_eq!(silences(&lab.index()), [100]);
    }
    std::fs::write(lab.dir.path().join("state/sessions.json"), "{\"v\":99,\"files\":{}}").expect("writes");
    assert_eq!(silences(&lab.index()), [0u64; 0], "a later version is not used");
}

#[test]
fn a_journal_and_its_transcript_count_once() {
    let lab = Lab::new();
    lab.transcript("projects/a/one.jsonl", "s1", &[100]);
    lab.transcript("projects/a/two.jsonl", "s2", &[50]);
    let mut index = lab.index();
    lab.import(&mut index, MAX_UPDATE);
    let sample = Sample {
        agent: ReaderName::Claude,
        place: "/srv/app".to_owned(),
        kind: Kind::Good,
        needs: dogwatch_core::watch::Needs { silence_s: Dur::from_secs(99), ..Default::default() },
    };
    let sessions = vec![Known { id: Some("s1".to_owned()), sample }];
    index.put("/journal".into(), Entry { sessions, ..Entry::default() });
    assert_eq!(silences(&index), [50, 99]);
    assert_eq!(index.transcripts(Some("/srv")).len(), 2);
    assert_eq!(index.transcripts(Some("/other")).len(), 0);
}

#[test]
fn the_oldest_files_are_dropped_beyond_the_limit() {
    let sample = Sample {
        agent: ReaderName::Claude,
        place: String::new(),
        kind: Kind::Good,
        needs: Default::default(),
    };
    let count = |total: usize| {
        let lab = Lab::new();
        let mut index = lab.index();
        for (n, sessions) in [(1, 2), (2, total - 2)] {
            let sessions = vec![Known { id: None, sample: sample.clone() }; sessions];
            let entry = Entry { modified_s: n, sessions, ..Entry::default() };
            index.put(format!("/{n}").into(), entry);
        }
        index.save().expect("saves");
        lab.index().samples().len()
    };
    assert_eq!(count(MAX_SESSIONS - 1), MAX_SESSIONS - 1);
    assert_eq!(count(MAX_SESSIONS), MAX_SESSIONS);
    assert_eq!(count(MAX_SESSIONS + 1), MAX_SESSIONS - 1);
}

#[test]
fn runs_that_cannot_be_read_are_reported() {
    let lab = Lab::new();
    lab.write("run/events.jsonl", &[json!({"event": "nothing"})]);
    let mut index = lab.index();
    let dirs = [lab.dir.path().join("run"), lab.dir.path().join("gone")];
    index.add_runs(dirs.iter().map(PathBuf::as_path), MAX_UPDATE);
    assert_eq!(index.problems, ["the sessions of 2 runs cannot be read"]);
    assert_eq!(index.samples().len(), 0);
}
