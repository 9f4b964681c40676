//! `dogwatch replay` from the command line.

#![allow(clippy::wildcard_enum_match_arm, reason = "tests look at a few variants")]

mod journals;
mod recordings;
mod timelines;
mod transcripts;

use serde_json::Value;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

fn replay(args: &[&str], file: &Path) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_dogwatch"));
    command.arg("replay").args(args).arg(file).output().expect("dogwatch is built")
}

/// Replays a valid file and returns the lines and the last summary.
fn replay_json(args: &[&str], file: &Path) -> (Vec<Value>, Value) {
    let out = replay(&[args, &["--json"]].concat(), file);
    assert!(out.status.success(), "{}: {}", file.display(), String::from_utf8_lossy(&out.stderr));
    let text = String::from_utf8(out.stdout).expect("JSON is UTF-8");
    let mut lines: Vec<Value> =
        text.lines().map(|line| serde_json::from_str(line).expect("every line is JSON")).collect();
    let last = lines.pop().expect("there is always a summary");
    (lines, last["summary"].clone())
}

/// A timeline file of a test.
struct Timeline {
    dir: tempfile::TempDir,
}

impl Timeline {
    fn new(text: &str) -> Timeline {
        let dir = tempfile::TempDir::new().expect("a directory for the test");
        std::fs::write(dir.path().join("timeline.jsonl"), text).expect("writes a small file");
        Timeline { dir }
    }

    fn path(&self) -> PathBuf {
        self.dir.path().join("timeline.jsonl")
    }

    fn replay_json(&self, args: &[&str]) -> (Vec<Value>, Value) {
        replay_json(args, &self.path())
    }

    /// Replays an invalid file and returns the error.
    fn refused(&self, args: &[&str]) -> String {
        let out = replay(args, &self.path());
        assert_eq!(out.status.code(), Some(2), "{out:?}");
        assert!(out.stdout.is_empty(), "{out:?}");
        String::from_utf8(out.stderr).expect("errors are UTF-8")
    }
}
