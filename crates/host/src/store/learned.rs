//! The arrival times of work that a loop has learned, read from the records of its earlier runs.
//!
//! A run with `idle.strategy: learned` records its state when it starts, so only the runs since then are read. `gc`
//! keeps the state of the runs that it removes in a separate file.

use crate::clock;
use crate::store::home::{StateDir, make_private};
use crate::store::journal::{self, Tail, hex};
use crate::store::safe_file;
use dogwatch_core::learn::{Arrivals, History, LearnedState};
use dogwatch_core::record::event::{Event, Recorded};
use dogwatch_core::record::ids::{NodeName, RunId};
use dogwatch_core::settings::{IdlePolicy, Plan};
use dogwatch_core::text::figures::count;
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};
use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};

/// The most runs that are read, newest first.
const MAX_RUNS: usize = 500;
/// The most bytes of journals that are read, newest first.
const MAX_BYTES: u64 = 256 * 1024 * 1024;
/// The longest kept state that is read.
const MAX_KEPT: u64 = 16 * 1024 * 1024;
/// The version of the kept state.
const KEPT_VERSION: u32 = 1;

/// A loop whose history is read: the runs of one loop file in one work tree.
#[derive(Clone, Copy, Debug)]
pub struct Loop<'a> {
    /// The state directory with the runs.
    pub state_dir: &'a StateDir,
    /// The work tree, as `run_started` records it.
    pub work_dir: &'a str,
    /// The loop file, as `run_started` records it.
    pub loop_file: &'a str,
}

/// The history of a loop.
#[derive(Debug, Default)]
pub struct LoopHistory {
    /// The learned history of each node with an idle policy.
    pub nodes: BTreeMap<NodeName, History>,
    /// Why a part of the history is not used, as sentences for people.
    pub problems: Vec<String>,
}

/// The state of removed runs.
#[derive(Serialize, Deserialize)]
struct Kept {
    v: u32,
    work_dir: String,
    loop_file: String,
    /// The newest run that the state includes.
    through: RunId,
    nodes: BTreeMap<NodeName, LearnedState>,
}

/// How much of the history is read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Depth {
    /// Only what the state needs.
    State,
    /// All runs on disk, for what learning saved.
    All,
}

impl Loop<'_> {
    /// Reads what the nodes of a plan have learned. `upto` leaves out later runs.
    pub fn read(&self, plan: &Plan, depth: Depth, upto: Option<&RunId>) -> LoopHistory {
        let policies: BTreeMap<&NodeName, &IdlePolicy> =
            plan.nodes.iter().filter_map(|node| Some((&node.name, node.settings.idle.as_ref()?))).collect();
        let mut history = LoopHistory::default();
        let now = clock::now().wall;
        let offset_ms = i64::from(clock::utc_offset_s(now)) * 1_000;
        let kept = self.kept(&mut history.problems);
        let since = kept.as_ref().map(|kept| kept.through.clone());
        let pasts = self.pasts(&policies, depth, (since.as_ref(), upto), &mut history.problems);
        for (name, policy) in policies {
            let state = kept.as_ref().and_then(|kept| Arrivals::read(kept.nodes.get(name)?));
            let mut learned = History::of(state.unwrap_or_default(), offset_ms);
            for past in &pasts {
                learned.next_run();
                past.iter().for_each(|event| learned.apply(policy, name, event));
            }
            learned.next_run();
            if learned.arrivals.is_ahead_of(now) {
                history.problems.push(ahead(name));
                learned = History::of(Arrivals::default(), offset_ms);
            }
            history.nodes.insert(name.clone(), learned);
        }
        history
    }

    /// Keeps what the loop has learned up to this run, so that the records can be removed.
    pub fn keep(&self, plan: &Plan, through: &RunId) -> io::Result<()> {
        let mut problems = Vec::new();
        if self.kept(&mut problems).is_some_and(|kept| kept.through >= *through) {
            return Ok(());
        }
        let history = self.read(plan, Depth::State, Some(through));
        if history.nodes.is_empty() {
            return Ok(());
        }
        let kept = Kept {
            v: KEPT_VERSION,
            work_dir: self.work_dir.to_owned(),
            loop_file: self.loop_file.to_owned(),
            through: through.clone(),
            nodes: history
                .nodes
                .iter()
                .map(|(name, node)| (name.clone(), node.arrivals.recorded()))
                .collect(),
        };
        let path = self.kept_path();
        make_private(path.parent().unwrap_or(Path::new("/")))?;
        safe_file::replace(&path, safe_file::PRIVATE, &serde_json::to_vec(&kept)?)
    }

    fn kept_path(&self) -> PathBuf {
        let key = Sha256::new().chain_update(self.work_dir).chain_update([0]).chain_update(self.loop_file);
        let name = hex(&key.finalize()[..8]);
        self.state_dir.path().join("learned").join(format!("{name}.json"))
    }

    /// Reads the state that `gc` kept. A file of another loop or version is not used.
    fn kept(&self, problems: &mut Vec<String>) -> Option<Kept> {
        let path = self.kept_path();
        let why = match safe_file::read_json::<Kept>(&path, MAX_KEPT) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return None,
            Err(error) => error.to_string(),
            Ok(kept) if self.owns(&kept) => return Some(kept),
            Ok(_) => "it belongs to another loop or version".to_owned(),
        };
        problems.push(format!("cannot use the idle history in {}: {why}", path.display()));
        None
    }

    fn owns(&self, kept: &Kept) -> bool {
        let readable = kept.nodes.values().all(|state| Arrivals::read(state).is_some());
        let same = kept.work_dir == self.work_dir && kept.loop_file == self.loop_file;
        kept.v == KEPT_VERSION && same && readable
    }

    /// Reads the journals of the loop's runs between two runs, oldest first.
    fn pasts(
        &self,
        policies: &BTreeMap<&NodeName, &IdlePolicy>,
        depth: Depth,
        (since, upto): (Option<&RunId>, Option<&RunId>),
        problems: &mut Vec<String>,
    ) -> Vec<Vec<Recorded>> {
        let entries = std::fs::read_dir(self.state_dir.runs()).into_iter().flatten().flatten();
        let mut runs: Vec<RunId> =
            entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok()).collect();
        runs.retain(|run| since.is_none_or(|s| run > s) && upto.is_none_or(|u| run <= u));
        runs.sort_unstable_by(|a, b| b.cmp(a));
        runs.truncate(MAX_RUNS);
        let (mut pasts, mut left, mut unreadable) = (Vec::new(), MAX_BYTES, 0u64);
        for run in runs {
            match self.past(&run, &mut left) {
                Ok(Some(past)) => {
                    let knows = |node: &NodeName| past.iter().any(|event| is_base(event, node));
                    let complete = !policies.is_empty() && policies.keys().all(|node| knows(node));
                    pasts.push(past);
                    if complete && depth == Depth::State {
                        break;
                    }
                }
                Ok(None) => {}
                Err(_) => unreadable += 1,
            }
            if left == 0 {
                break;
            }
        }
        if unreadable > 0 {
            let runs = count(unreadable, "earlier run");
            problems.push(format!("the idle history of {runs} cannot be read"));
        }
        pasts.reverse();
        pasts
    }

    /// Reads the relevant events of a run. Returns `None` if it is a run of another loop.
    fn past(&self, run: &RunId, left: &mut u64) -> io::Result<Option<Vec<Recorded>>> {
        #[derive(Deserialize)]
        struct Start {
            path: String,
            work_dir: String,
        }
        let mut lines = Tail::up_to_now(&self.state_dir.run(run).join(journal::FILE))?.in_large_pieces();
        *left = left.saturating_sub(lines.length()?);
        let first = lines.next_line()?.ok_or(io::ErrorKind::UnexpectedEof)?;
        let start: Start = serde_json::from_slice(first)?;
        if start.path != self.loop_file || start.work_dir != self.work_dir {
            return Ok(None);
        }
        let mut events = Vec::new();
        while let Some(line) = lines.next_line()? {
            // A damaged line is skipped.
            if is_relevant(line) {
                events.extend(dogwatch_codec::read(line).ok());
            }
        }
        Ok(Some(events))
    }
}

fn ahead(node: &NodeName) -> String {
    format!(
        "the idle history of {node} is ahead of the clock, which was probably set back; using plain waits"
    )
}

fn is_base(event: &Recorded, node: &NodeName) -> bool {
    matches!(&event.event, Event::IdleLearned { node: of, .. } if of == node)
}

/// Returns whether a line may hold an event that the history needs.
fn is_relevant(line: &[u8]) -> bool {
    const KINDS: [&str; 4] = [
        "\"event\":\"iteration_",
        "\"event\":\"wait_",
        "\"event\":\"idle_learned\"",
        "\"event\":\"run_resumed\"",
    ];
    KINDS.iter().any(|kind| memchr::memmem::find(line, kind.as_bytes()).is_some())
}

#[cfg(test)]
mod tests {
    use super::*;
    use dogwatch_core::settings::{NodePlan, ReaderName, Settings, Strategy};
    use dogwatch_core::time::moment::Wall;
    use serde_json::json;
    use std::io::Write;

    struct Project {
        dir: tempfile::TempDir,
        state: StateDir,
        plan: Plan,
    }

    const OLD: &str = "20260105-000000-2222";
    const NEW: &str = "20260106-000000-2222";

    impl Project {
        fn new() -> Project {
            let dir = tempfile::tempdir().expect("a directory");
            let mut settings = Settings::of(vec!["sh".to_owned()], ReaderName::Plain);
            settings.idle = Some(IdlePolicy { strategy: Strategy::Learned, ..IdlePolicy::default() });
            let nodes = vec![NodePlan::alone(NodeName::new("fix"), settings)];
            let plan = Plan { nodes, stop_on_error: false, snapshots: false, graph: None };
            Project { state: StateDir::at(dir.path().join("state")), dir, plan }
        }

        fn read(&self) -> LoopHistory {
            self.place().read(&self.plan, Depth::State, None)
        }

        fn place(&self) -> Loop<'_> {
            Loop { state_dir: &self.state, work_dir: "/srv/project", loop_file: "/loop" }
        }

        /// Writes the journal of a run with two idle looks a minute apart and one that finds work five minutes later.
        fn journal(&self, run: &str, loop_file: &str, begin: &str) {
            let dir = self.state.runs().join(run);
            std::fs::create_dir_all(&dir).expect("a directory");
            let begin: Wall = serde_json::from_value(json!(begin)).expect("a time");
            let mut file = std::fs::File::create(dir.join(journal::FILE)).expect("a file");
            let mut seq = 0;
            let mut line = |s: u64, mut event: serde_json::Value| {
                seq += 1;
                let at = Wall(begin.0 + s as i64 * 1000);
                let more = json!({"v": 1, "seq": seq, "at": at, "awake_ms": s * 1000, "boot_ms": s * 1000});
                let object = event.as_object_mut().expect("an object");
                object.extend(more.as_object().expect("an object").clone());
                writeln!(file, "{event}").expect("writes");
            };
            line(0, json!({"event": "run_started", "path": loop_file, "work_dir": "/srv/project"}));
            for (start, kind) in [(0, "iteration_idle"), (60, "iteration_idle"), (360, "iteration_completed")]
            {
                line(
                    start,
                    json!({"event": "iteration_started", "node": "fix", "iteration": 1, "cause": "next"}),
                );
                let mut end =
                    json!({"event": kind, "node": "fix", "iteration": 1, "duration_s": 0, "because": ""});
                if kind == "iteration_idle" {
                    let more = json!({"reason": "x", "consecutive": 1, "spell_s": 0, "skipped": false});
                    end.as_object_mut().expect("an object").extend(more.as_object().expect("one").clone());
                }
                line(start, end);
            }
        }

        fn append(&self, run: &str, text: &str) {
            let path = self.state.runs().join(run).join(journal::FILE);
            let mut file = std::fs::OpenOptions::new().append(true).open(path).expect("opens");
            file.write_all(text.as_bytes()).expect("writes");
        }
    }

    fn arrivals(history: &LoopHistory) -> u64 {
        history.nodes.values().map(|node| node.arrivals.count()).sum()
    }

    #[test]
    fn only_runs_of_this_loop_are_read_and_torn_lines_are_skipped() {
        let project = Project::new();
        assert_eq!(arrivals(&project.read()), 0);
        project.journal(OLD, "/loop", "2026-01-05T08:00:00.000Z");
        project.journal(NEW, "/loop", "2026-01-06T08:00:00.000Z");
        project.journal("20260107-000000-2222", "/other", "2026-01-06T08:00:00.000Z");
        project.append(OLD, "{\"event\":\"iteration_idle\",\"no");
        let history = project.read();
        assert_eq!((arrivals(&history), history.problems.len()), (2, 0));
        assert_eq!(history.nodes.values().next().map(|node| node.savings.streaks), Some(2));
    }

    #[test]
    fn an_unreadable_record_is_reported_and_the_rest_is_used() {
        let project = Project::new();
        project.journal(OLD, "/loop", "2026-01-05T08:00:00.000Z");
        let dir = project.state.runs().join(NEW);
        std::fs::create_dir_all(&dir).expect("a directory");
        std::fs::write(dir.join(journal::FILE), "").expect("a file");
        let history = project.read();
        assert_eq!(arrivals(&history), 1);
        assert_eq!(history.problems, ["the idle history of 1 earlier run cannot be read"]);
    }

    #[test]
    fn a_history_survives_the_removal_of_its_records_and_counts_once() {
        let project = Project::new();
        project.journal(OLD, "/loop", "2026-01-05T08:00:00.000Z");
        let before = project.read();
        let through: RunId = OLD.parse().expect("a run id");
        project.place().keep(&project.plan, &through).expect("keeps");
        assert_eq!(arrivals(&project.read()), 1, "the run counts once while its record is still there");
        std::fs::remove_dir_all(project.state.runs().join(OLD)).expect("removes");
        let after = project.read();
        let state = |history: &LoopHistory| history.nodes.values().next().map(|node| node.arrivals.clone());
        assert_eq!(state(&after), state(&before));
        project.journal(NEW, "/loop", "2026-01-06T08:00:00.000Z");
        assert_eq!(arrivals(&project.read()), 2);
        let through: RunId = NEW.parse().expect("a run id");
        project.place().keep(&project.plan, &through).expect("keeps");
        std::fs::remove_dir_all(project.state.runs()).expect("removes");
        assert_eq!(arrivals(&project.read()), 2);
    }

    #[test]
    fn a_kept_state_that_is_damaged_or_foreign_is_reported_and_not_used() {
        let project = Project::new();
        project.journal(OLD, "/loop", "2026-01-05T08:00:00.000Z");
        let through: RunId = OLD.parse().expect("a run id");
        project.place().keep(&project.plan, &through).expect("keeps");
        let path = project.place().kept_path();
        let good = std::fs::read_to_string(&path).expect("a file");
        std::fs::remove_dir_all(project.state.runs()).expect("removes");
        for bad in [
            "",
            "{",
            &good[..good.len() / 2],
            &good.replace("/loop", "/else"),
            &good.replace("\"v\":1", "\"v\":9"),
        ] {
            std::fs::write(&path, bad).expect("a file");
            let history = project.read();
            assert_eq!((arrivals(&history), history.problems.len()), (0, 1), "{bad}");
        }
        drop(project.dir);
    }

    #[test]
    fn a_history_from_the_future_means_plain_waits_and_a_notice() {
        let project = Project::new();
        project.journal(OLD, "/loop", "2199-01-05T08:00:00.000Z");
        let history = project.read();
        assert_eq!(arrivals(&history), 0);
        assert!(history.problems[0].contains("ahead of the clock"), "{:?}", history.problems);
    }
}
