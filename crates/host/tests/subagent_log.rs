//! Subagents that are visible only in the files their CLI writes: real files, real inotify.

use dogwatch_agents::SubagentLog;
use dogwatch_core::settings::ReaderName;
use dogwatch_core::watch::sign::Sign;
use dogwatch_host::fs::subagent_log::{Following, Found};
use rustix::fs::{CWD, FileType, Mode, mknodat};
use std::fs::{self, OpenOptions};
use std::io::Write;
use std::path::PathBuf;
use std::sync::Mutex;
use std::sync::mpsc::{Receiver, channel};
use std::time::{Duration, SystemTime};
use tempfile::TempDir;

const SESSION: &str = "01a1e198-1dda-7730-8986-27bb90dc0594";
/// Generous for a loaded machine. Only a failing test waits this long.
const PATIENCE: Duration = Duration::from_secs(30);

struct Rig {
    home: TempDir,
    name: ReaderName,
    following: Option<Following>,
    found: Option<Receiver<Found>>,
}

impl Rig {
    fn new(name: ReaderName) -> Rig {
        Rig { home: tempfile::tempdir().expect("a directory"), name, following: None, found: None }
    }

    /// Starts following, as if the stream had shown the session's id.
    fn begin(&mut self) {
        let (sender, found) = channel();
        // The receiver may be gone at the end of a test.
        let tell = move |found: Found| _ = sender.send(found);
        let following = self.follow(tell);
        following.look();
        (self.following, self.found) = (Some(following), Some(found));
    }

    fn follow(&self, tell: impl Fn(Found) + Send + Sync + 'static) -> Following {
        let home = self.home.path().to_str().expect("a UTF-8 path").to_owned();
        let trail = SubagentLog::new(self.name, "/srv/project", |var| (var == "HOME").then(|| home.clone()));
        Following::start(trail.expect("a known agent"), SESSION, tell).expect("inotify works")
    }

    fn path(&self, rest: &str) -> PathBuf {
        self.home.path().join(rest)
    }

    fn dir(&self, rest: &str) {
        fs::create_dir_all(self.path(rest)).expect("creates");
    }

    fn append(&self, rest: &str, text: &str) {
        let path = self.path(rest);
        fs::create_dir_all(path.parent().expect("a parent")).expect("creates");
        let mut file = OpenOptions::new().create(true).append(true).open(path).expect("opens");
        file.write_all(text.as_bytes()).expect("writes");
    }

    /// Waits for this many signs in total.
    fn expect_signs(&self, count: u64) {
        let found = self.found.as_ref().expect("following");
        let mut sum = 0;
        while sum < count {
            sum += found.recv_timeout(PATIENCE).expect("a sign arrives").activity;
        }
        assert_eq!(sum, count);
    }

    /// Asserts that no signs arrived. `look` has read everything written so far.
    fn expect_no_signs(&self) {
        self.following.as_ref().expect("following").look();
        assert_eq!(
            self.found.as_ref().expect("following").try_recv(),
            Err(std::sync::mpsc::TryRecvError::Empty)
        );
    }
}

fn spoke() -> &'static str {
    "{\"type\":\"response_item\",\"payload\":{\"type\":\"message\",\"role\":\"assistant\"}}\n"
}

fn meta(parent: &str) -> String {
    format!(
        "{{\"type\":\"session_meta\",\"payload\":{{\"id\":\"child\",\"parent_thread_id\":\"{parent}\"}}}}\n\
         {{\"type\":\"event_msg\",\"payload\":{{\"type\":\"task_started\"}}}}\n"
    )
}

#[test]
fn a_codex_subagent_is_heard_in_its_own_file_and_nothing_else_is() {
    let mut rig = Rig::new(ReaderName::Codex);
    rig.append(".codex/sessions/2025/12/31/rollout-old.jsonl", &(meta(SESSION) + spoke()));
    rig.append(".codex/sessions/2026/11/15/rollout-before.jsonl", &meta(SESSION));
    rig.begin();
    rig.expect_no_signs();
    // Files from before the session belong to an earlier one.
    rig.append(".codex/sessions/2026/11/15/rollout-before.jsonl", spoke());
    rig.append(".codex/sessions/2026/11/15/rollout-other.jsonl", &(meta("another") + spoke()));
    rig.append(".codex/sessions/2026/11/15/notes.jsonl", spoke());
    rig.expect_no_signs();
    rig.append(".codex/sessions/2026/11/15/rollout-child.jsonl", &(meta(SESSION) + spoke()));
    rig.expect_signs(1);
    rig.append(".codex/sessions/2026/11/15/rollout-child.jsonl", spoke());
    rig.expect_signs(1);
    // Half a line does not count yet.
    let (half, rest) = spoke().split_at(20);
    rig.append(".codex/sessions/2026/11/15/rollout-child.jsonl", half);
    rig.expect_no_signs();
    rig.append(".codex/sessions/2026/11/15/rollout-child.jsonl", rest);
    rig.expect_signs(1);
}

#[test]
fn directories_created_later_are_followed() {
    let mut rig = Rig::new(ReaderName::Claude);
    rig.dir(".claude");
    rig.begin();
    let line = "{\"type\":\"assistant\",\"message\":{\"role\":\"assistant\",\"content\":[]}}\n";
    rig.append(&format!(".claude/projects/-srv-project/{SESSION}/subagents/agent-a1.jsonl"), line);
    rig.expect_signs(1);
    rig.append(&format!(".claude/projects/-srv-project/{SESSION}/subagents/agent-a2.jsonl"), line);
    rig.expect_signs(1);
    rig.append(&format!(".claude/projects/-srv-project/{SESSION}.jsonl"), line);
    rig.append(".claude/projects/-srv-project/another/subagents/agent-a1.jsonl", line);
    rig.append(&format!(".claude/projects/-srv-other/{SESSION}/subagents/agent-a1.jsonl"), line);
    rig.expect_no_signs();
}

#[test]
fn a_new_day_begins_a_new_directory() {
    let mut rig = Rig::new(ReaderName::Codex);
    rig.dir(".codex/sessions/2026/12/31");
    rig.begin();
    rig.expect_no_signs();
    rig.append(".codex/sessions/2027/01/01/rollout-child.jsonl", &(meta(SESSION) + spoke()));
    rig.expect_signs(1);
}

#[test]
fn a_gemini_subagent_is_heard_among_many_projects() {
    let mut rig = Rig::new(ReaderName::Gemini);
    for n in 0..40 {
        rig.dir(&format!(".gemini/tmp/project-{n}/chats"));
    }
    rig.append(".gemini/tmp/ours/chats/session-1.jsonl", "{}\n");
    // The file system's clock is coarse, but the session's own chat must be the most recent.
    let chats = fs::File::open(rig.path(".gemini/tmp/ours/chats")).expect("opens");
    chats.set_modified(SystemTime::now() + Duration::from_secs(1)).expect("sets");
    rig.begin();
    rig.expect_no_signs();
    rig.append(
        &format!(".gemini/tmp/ours/chats/{SESSION}/sub.jsonl"),
        "{\"type\":\"gemini\",\"content\":\"x\"}\n",
    );
    rig.expect_signs(1);
}

#[test]
fn only_lines_appended_to_a_shared_log_count() {
    let mut rig = Rig::new(ReaderName::Opencode);
    let log = ".local/share/opencode/log/opencode.log";
    let step = |n: u64| format!("timestamp=t level=INFO message=loop session.id=ses_child step={n}\n");
    let created = format!("timestamp=t level=INFO message=created id=ses_child parentID={SESSION} title=x\n");
    rig.append(log, &(created.clone() + &step(1)));
    rig.begin();
    rig.expect_no_signs();
    rig.append(log, &(created + &step(1)));
    rig.expect_signs(1);
    rig.append(log, &step(2));
    rig.expect_signs(1);
}

#[test]
fn pipes_links_and_directories_named_like_transcripts_are_not_opened() {
    let mut rig = Rig::new(ReaderName::Codex);
    let day = ".codex/sessions/2026/11/15";
    rig.dir(day);
    rig.begin();
    mknodat(CWD, rig.path(&format!("{day}/rollout-pipe.jsonl")), FileType::Fifo, Mode::RUSR | Mode::WUSR, 0)
        .expect("makes a pipe");
    rig.append("elsewhere", &(meta(SESSION) + spoke()));
    let elsewhere = rig.path("elsewhere");
    std::os::unix::fs::symlink(&elsewhere, rig.path(&format!("{day}/rollout-link.jsonl"))).expect("links");
    rig.dir(&format!("{day}/rollout-dir.jsonl"));
    rig.expect_no_signs();
    rig.append(&format!("{day}/rollout-child.jsonl"), &(meta(SESSION) + spoke()));
    rig.expect_signs(1);
}

#[test]
fn a_huge_line_costs_no_memory_and_what_follows_it_is_heard() {
    let mut rig = Rig::new(ReaderName::Codex);
    let file = ".codex/sessions/2026/11/15/rollout-child.jsonl";
    rig.dir(".codex/sessions/2026/11/15");
    rig.begin();
    rig.append(file, &meta(SESSION));
    for _ in 0..10 {
        rig.append(file, &"x".repeat(1024 * 1024));
        rig.expect_no_signs();
    }
    rig.append(file, "\n");
    rig.append(file, spoke());
    rig.expect_signs(1);
}

#[test]
fn a_truncated_or_removed_file_is_not_an_error() {
    let mut rig = Rig::new(ReaderName::Codex);
    let file = ".codex/sessions/2026/11/15/rollout-child.jsonl";
    rig.dir(".codex/sessions/2026/11/15");
    rig.begin();
    rig.append(file, &(meta(SESSION) + spoke()));
    rig.expect_signs(1);
    OpenOptions::new().write(true).open(rig.path(file)).expect("opens").set_len(0).expect("cuts");
    rig.expect_no_signs();
    rig.append(file, spoke());
    rig.expect_signs(1);
    fs::remove_dir_all(rig.path(".codex")).expect("removes");
    rig.expect_no_signs();
}

#[test]
fn the_windows_in_the_file_of_a_codex_session_are_found_even_if_it_began_before() {
    let mut rig = Rig::new(ReaderName::Codex);
    let file = format!(".codex/sessions/2026/11/15/rollout-2026-11-15T20-00-00-{SESSION}.jsonl");
    let count = |used: u32| {
        format!(
            "{{\"timestamp\":\"2026-11-15T20:00:00Z\",\"type\":\"event_msg\",\"payload\":{{\"type\":\"token_count\",\"rate_limits\":\
             {{\"primary\":{{\"used_percent\":{used},\"window_minutes\":300,\"resets_at\":1794780000}}}}}}}}\n"
        )
    };
    rig.append(&file, &count(10));
    rig.begin();
    let used = |rig: &Rig| {
        let found = rig.found.as_ref().expect("following").recv_timeout(PATIENCE).expect("the windows");
        assert_eq!(found.activity, 0, "the session is not its own subagent");
        match found.signs.as_slice() {
            [Sign::Windows { windows, .. }] => windows[0].used_percent.value(),
            other => panic!("{other:?}"),
        }
    };
    assert_eq!(used(&rig), 10.0);
    rig.append(&file, &count(11));
    assert_eq!(used(&rig), 11.0);
}

#[test]
fn what_another_thread_just_found_is_reported_before_a_look_returns() {
    let rig = Rig::new(ReaderName::Codex);
    let file = format!(".codex/sessions/2026/11/15/rollout-2026-11-15T20-00-00-{SESSION}.jsonl");
    rig.dir(".codex/sessions/2026/11/15");
    let (enter, entered) = channel();
    let (leave, left) = channel();
    let left = Mutex::new(left);
    let following = rig.follow(move |_| {
        // The test has gone if it failed.
        let _ = enter.send(());
        let _ = left.lock().map(|left| left.recv_timeout(PATIENCE));
    });
    following.look();
    rig.append(&file, "{\"type\":\"turn_context\",\"payload\":{\"model\":\"big\"}}\n");
    entered.recv_timeout(PATIENCE).expect("the follower's own thread reports the line");
    std::thread::scope(|scope| {
        let (start, started) = channel();
        let following = &following;
        let look = scope.spawn(move || {
            start.send(rustix::thread::gettid()).expect("the test listens");
            following.look();
        });
        let id = started.recv_timeout(PATIENCE).expect("the thread runs").as_raw_nonzero();
        let state = || fs::read_to_string(format!("/proc/self/task/{id}/stat")).unwrap_or_default();
        // It either waits for the report or has returned too early.
        while !look.is_finished() && !state().contains(") S ") {
            std::thread::yield_now();
        }
        assert!(!look.is_finished(), "the look returned before the line was reported");
        leave.send(()).expect("the callback waits");
    });
}
