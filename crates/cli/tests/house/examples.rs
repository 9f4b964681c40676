//! Runs every example as a user would, in an empty directory, and checks its documented result.

use crate::{assert_none, files, root};
use serde_json::Value;
use std::collections::BTreeSet;
use std::path::Path;
use std::process::{Command, Output};
use tempfile::TempDir;

/// The time limit of an example in seconds. It is generous, and only stops a hang.
const BOUND: &str = "60";

struct Played {
    dir: TempDir,
    out: Output,
    events: Vec<Value>,
}

impl Played {
    /// Returns the events of one kind.
    fn of<'a>(&'a self, kind: &str) -> Vec<&'a Value> {
        self.events.iter().filter(|event| event["event"] == kind).collect()
    }

    fn assert_ended(&self, outcome: &str, code: i32) {
        let end = self.of("run_ended");
        assert_eq!(end.len(), 1, "{}", self.output());
        assert_eq!(
            (end[0]["outcome"].as_str(), self.out.status.code()),
            (Some(outcome), Some(code)),
            "{}",
            self.output()
        );
        assert_eq!(end[0]["exit_code"], code);
    }

    fn output(&self) -> String {
        format!("{}{}", String::from_utf8_lossy(&self.out.stdout), String::from_utf8_lossy(&self.out.stderr))
    }

    /// Returns a file of an iteration, such as its prompt or its raw output.
    fn file(&self, iteration: u32, name: &str) -> String {
        let runs = std::fs::read_dir(self.dir.path().join(".dogwatch/runs")).expect("there is a record");
        let run = runs.map(|entry| entry.expect("readable").path()).next().expect("there is one run");
        let node = self.of("iteration_started")[0]["node"].as_str().expect("a name").to_owned();
        crate::read(&run.join(node).join(format!("{iteration:06}")).join(name))
    }
}

fn play(example: &str, args: &[&str]) -> Played {
    let binary = Path::new(env!("CARGO_BIN_EXE_dogwatch"));
    let dir = tempfile::tempdir().expect("a directory");
    // As in a clone, the examples are below the current directory and `dogwatch` is on PATH.
    std::os::unix::fs::symlink(root().join("examples"), dir.path().join("examples")).expect("a link");
    if example == "merging" {
        git(dir.path(), &["init", "--quiet", "--initial-branch=main"]);
        git(dir.path(), &["commit", "--quiet", "--allow-empty", "--message=start"]);
    }
    let path = std::env::var("PATH").expect("there is a PATH");
    let path = format!("{}:{path}", binary.parent().expect("the binary is in a folder").display());
    let out = Command::new("timeout")
        .args(["--kill-after", "5", BOUND])
        .arg(binary)
        .args(["run", &format!("examples/{example}"), "--json"])
        .args(args)
        .current_dir(dir.path())
        .env("PATH", path)
        .env("XDG_STATE_HOME", dir.path().join("state"))
        .env("XDG_CONFIG_HOME", dir.path().join("config"))
        .output()
        .expect("timeout is installed");
    let lines = String::from_utf8(out.stdout.clone()).expect("events are UTF-8");
    let events: Vec<Value> =
        lines.lines().map(|line| serde_json::from_str(line).expect("every line is an event")).collect();
    crate::documents::assert_documented(&events);
    Played { dir, out, events }
}

fn git(dir: &Path, args: &[&str]) -> String {
    let name = ["-c", "user.name=t", "-c", "user.email=t@example.invalid"];
    let out = Command::new("git").current_dir(dir).args(name).args(args).output().expect("git is installed");
    assert!(out.status.success(), "{}", String::from_utf8_lossy(&out.stderr));
    String::from_utf8_lossy(&out.stdout).trim_end().to_owned()
}

#[test]
fn every_example_has_a_test() {
    let here = include_str!("examples.rs");
    let all: BTreeSet<String> = files()
        .iter()
        .filter_map(|name| {
            let (dir, file) = name.strip_prefix("examples/")?.rsplit_once('/')?;
            (file == "RALPH.md" || file.starts_with("graph.")).then(|| dir.to_owned())
        })
        .collect();
    let missing = all.iter().filter(|name| !here.contains(&format!("play(\"{name}\"")));
    assert_none("examples without a test", &missing.cloned().collect::<Vec<_>>());
    assert!(all.len() >= 5, "{all:?}");
}

#[test]
fn hello_says_hello_three_times() {
    let played = play("hello", &["-n", "3"]);
    played.assert_ended("clean", 0);
    assert_eq!(played.of("iteration_completed").len(), 3);
    assert_eq!(played.file(2, "prompt.md"), "Say hello. This is turn 2 of 3.");
    assert_eq!(played.file(2, "stdout"), "I was told:\nSay hello. This is turn 2 of 3.");
}

#[test]
fn commands_and_arguments_reach_the_prompt() {
    let played = play("commands", &["--", "you"]);
    played.assert_ended("clean", 0);
    let prompt = played.file(2, "prompt.md");
    for part in ["This is turn 2, on a ", "day", ", for you.", "- step 2", "The checks ended with 1."] {
        assert!(prompt.contains(part), "{part} in {prompt}");
    }
    let codes: Vec<&Value> = played.of("command_finished").iter().map(|event| &event["exit_code"]).collect();
    assert_eq!(codes, [0, 0, 1, 0, 0, 1]);
}

#[test]
fn failures_back_off_and_end_the_run() {
    let played = play("fails", &[]);
    played.assert_ended("error_limit", 1);
    let waits = played.of("wait_started").iter().map(|wait| wait["delay_s"].as_u64()).collect::<Vec<_>>();
    assert_eq!(waits, [Some(1), Some(2)]);
    assert_eq!(played.of("iteration_failed").len(), 3);
}

// promise: 3, 12
#[test]
fn a_hanging_session_is_ended_at_its_limit_step_by_step() {
    let played = play("hangs", &[]);
    played.assert_ended("clean", 0);
    let steps = played.of("session_signalled").iter().map(|step| step["step"].as_str()).collect::<Vec<_>>();
    assert_eq!(steps, [Some("interrupt"), Some("terminate"), Some("kill")]);
    let stop = played.of("hard_stop")[0]["at"].as_str().expect("a time").to_owned();
    let [first, second] = played.of("session_ended")[..] else { panic!("two sessions: {}", played.output()) };
    assert!(first["at"].as_str().expect("a time") > stop.as_str(), "the verdict comes before the end");
    let lasted = first["duration_s"].as_f64().expect("a number");
    // The limit of 2 s, two graces of 1 s, and up to 5 s for a kill.
    assert!((4.0..=9.0).contains(&lasted), "{lasted}");
    assert_eq!((&first["ended_by"], &second["ended_by"]), (&"watchdog".into(), &"itself".into()));
}

// promise: 1
#[test]
fn leftovers_of_a_clean_session_are_ended() {
    let played = play("leftovers", &[]);
    played.assert_ended("clean", 0);
    let pids = crate::read(&played.dir.path().join("leftovers.txt"));
    assert_eq!(pids.lines().count(), 3, "{pids}");
    let alive = pids.lines().filter(|pid| Path::new("/proc").join(pid).exists());
    assert_none("still there", &alive.map(str::to_owned).collect::<Vec<_>>());
    assert!(played.of("session_ended")[0]["stragglers"].as_u64() >= Some(3), "{}", played.output());
}

#[test]
fn a_scripted_session_is_parsed_like_a_real_one() {
    let played = play("scripted", &[]);
    played.assert_ended("clean", 0);
    let ended = played.of("session_ended")[0];
    assert_eq!((ended["messages"].as_u64(), ended["tools"].as_u64()), (Some(2), Some(3)), "{ended}");
    assert_eq!(ended["said"], "All tests pass.");
}

#[test]
fn failed_checks_are_reported_in_the_next_prompt() {
    let played = play("converges", &[]);
    played.assert_ended("clean", 0);
    let attempts = played.of("node_attempt");
    let converged: Vec<_> = attempts.iter().map(|attempt| attempt["converged"].as_bool()).collect();
    assert_eq!(converged, [Some(false), Some(true)]);
    assert_eq!((&attempts[0]["progress"], &attempts[1]["backoff_s"]), (&true.into(), &Value::Null));
    assert_eq!(played.of("run_ended")[0]["verified"], true);
    let prompt = played.file(2, "prompt.md");
    assert!(prompt.contains("the answer is 41"), "{prompt}");
}

#[test]
fn a_flaky_check_of_a_kahn_graph_is_retried() {
    let played = play("flaky", &["--set", "agent=cat"]);
    played.assert_ended("clean_with_flake", 0);
    let ended = played.of("run_ended")[0];
    assert_eq!((ended["flake_retries"].as_u64(), ended["nodes"]["done"].as_u64()), (Some(1), Some(1)));
    let attempts = played.of("node_attempt");
    assert_eq!(attempts.len(), 2, "{}", played.output());
    assert_eq!(attempts[0]["results"][0]["rc"], 1);
    let tail = attempts[0]["results"][0]["tail"].as_str().expect("a failed check has a tail");
    assert!(tail.contains("connection reset by peer"), "{tail}");
    assert_eq!(attempts[1]["backoff_s"].as_f64(), Some(2.0));
    assert!(attempts[0].get("backoff_s").is_none_or(Value::is_null));
}

#[test]
fn a_graph_runs_in_the_order_of_its_dependencies() {
    let played = play("graph", &[]);
    played.assert_ended("clean", 0);
    let ended = played.of("run_ended")[0];
    assert_eq!(ended["nodes"]["done"].as_u64(), Some(6), "{}", played.output());
    let moved = |node: &str, to: &str| {
        let moves = played.of("node_transition");
        let at = moves.iter().find(|m| m["node"] == node && m["to"] == to);
        at.and_then(|m| m["seq"].as_u64())
            .unwrap_or_else(|| panic!("{node} is never {to}: {}", played.output()))
    };
    for (node, on) in [
        ("api", "schema"),
        ("pages", "schema"),
        ("pages", "style"),
        ("migrate", "schema"),
        ("release", "api"),
        ("release", "pages"),
        ("release", "migrate"),
    ] {
        assert!(moved(node, "running") > moved(on, "done"), "{node} waits for {on}");
    }
    // Both root nodes run at the same time.
    assert!(moved("style", "running") < moved("schema", "done"), "{}", played.output());
    // No other node runs beside the exclusive one.
    for other in ["style", "api", "pages", "release"] {
        let apart = moved(other, "done") < moved("migrate", "running")
            || moved(other, "running") > moved("migrate", "done");
        assert!(apart, "{other} ran beside migrate: {}", played.output());
    }
    assert_eq!(crate::read(&played.dir.path().join("build/schema.md")).trim(), "The tables of the database.");
    let release = crate::read(&played.dir.path().join("build/release.md"));
    assert!(release.contains("announce the release"), "{release}");
}

#[test]
fn results_flow_through_a_graph_and_are_merged_at_the_end() {
    let played = play("merging", &[]);
    played.assert_ended("clean", 0);
    let conflict = played.of("merge_conflicted")[0];
    assert_eq!((&conflict["node"], &conflict["from"]), (&"letter".into(), &"friendly".into()));
    assert_eq!(played.of("setup_finished").len(), 4);
    let dir = played.dir.path();
    assert!(!dir.join("letter.txt").exists(), "the work tree does not change before the merge");
    let merge = Command::new(env!("CARGO_BIN_EXE_dogwatch"))
        .arg("merge")
        .current_dir(dir)
        .env("XDG_STATE_HOME", dir.join("state"))
        .output()
        .expect("runs");
    let said = String::from_utf8_lossy(&merge.stdout);
    assert!(merge.status.success(), "{}", String::from_utf8_lossy(&merge.stderr));
    assert!(said.contains("friendly: conflicts with the others; resolved in letter"), "{said}");
    assert_eq!(crate::read(&dir.join("letter.txt")), "Good evening.\nHi there.\n");
    assert_eq!(git(dir, &["rev-list", "--count", "--first-parent", "main"]), "4");
}

#[test]
fn recovers_works_hangs_is_stopped_recovers_and_converges() {
    let played = play("recovers", &[]);
    played.assert_ended("clean", 0);
    let stops = played.of("hard_stop");
    assert_eq!(stops.len(), 1, "{}", played.output());
    assert_eq!(stops[0]["reason"], "NO_OUTPUT_DEADLINE");
    let converged: Vec<_> =
        played.of("node_attempt").iter().map(|attempt| attempt["converged"].as_bool()).collect();
    assert_eq!(converged, [Some(false), Some(false), Some(true)]);
}
