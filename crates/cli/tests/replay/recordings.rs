//! Replays every recording of a real CLI under `standard`. Slow but healthy sessions are left alone. Hung sessions,
//! followed by an hour of silence, are stopped for the right reason at the right second. `recordings.tsv` was derived
//! from the rules and the recordings, not from a replay.

use crate::Timeline;
use crate::replay_json;
use dogwatch_agents::{Line, Listener};
use dogwatch_core::settings::{ReaderName, WatchPolicy};
use dogwatch_core::time::moment::Awake;
use dogwatch_core::watch::feed::{FeedItem, Stream};
use dogwatch_core::watch::{Fact, StopReason};
use dogwatch_sim::oracle::{Oracle, OracleVerdict};
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

const TABLE: &str = include_str!("recordings.tsv");
const HOUR_MS: u64 = 3_600_000;

struct Row {
    agent: &'static str,
    recording: &'static str,
    /// The exit code and its time, if the agent exited by itself.
    exit: Option<(i32, u64)>,
    stop: Option<(StopReason, f64)>,
}

fn rows() -> Vec<Row> {
    let mut rows = TABLE.lines().filter(|line| !line.starts_with('#')).skip(1).map(|line| {
        let cells: Vec<&str> = line.split('\t').collect();
        let [agent, recording, _, code, exit_ms, reason, at_s, _] = cells[..] else { panic!("{line}") };
        let reason = StopReason::ALL.iter().find(|known| known.as_str() == reason).copied();
        let number = |text: &str| text.parse().expect("a number");
        let exit = (code != "-").then(|| (code.parse().expect("a code"), number(exit_ms)));
        Row { agent, recording, exit, stop: reason.map(|reason| (reason, at_s.parse().expect("seconds"))) }
    });
    rows.by_ref().collect()
}

impl Row {
    fn path(&self) -> PathBuf {
        let fixtures = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fixtures");
        fixtures.join(self.agent).join(format!("{}.jsonl", self.recording))
    }

    /// Returns each line with its time.
    fn lines(&self) -> Vec<(u64, String)> {
        let text = std::fs::read_to_string(self.path()).expect("the table names recordings");
        let line = |line: &str| {
            let value: serde_json::Value = serde_json::from_str(line).expect("recordings are JSON lines");
            (value["t_ms"].as_u64().expect("a time"), value["line"].as_str().expect("a line").to_owned())
        };
        text.lines().map(line).collect()
    }

    /// Returns the recording and the following silence as a timeline.
    fn timeline(&self) -> String {
        let text = std::fs::read_to_string(self.path()).expect("the table names recordings");
        let last = self.lines().last().map_or(0, |(t_ms, _)| *t_ms);
        let end = match self.exit {
            Some((code, at)) => format!(r#"{{"t_ms":{},"input":"exited","code":{code}}}"#, at.max(last)),
            None => format!(r#"{{"t_ms":{},"input":"end"}}"#, last + HOUR_MS),
        };
        format!("{}{}{end}\n", text, if text.is_empty() || text.ends_with('\n') { "" } else { "\n" })
    }
}

#[test]
fn the_table_names_every_recording() {
    let fixtures = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fixtures");
    let mut there = BTreeSet::new();
    for agent in ["claude", "codex", "opencode", "gemini"] {
        let files = std::fs::read_dir(fixtures.join(agent)).expect("the recordings are there");
        let names = files.filter_map(|f| f.expect("a file").file_name().into_string().ok());
        there.extend(names.filter_map(|name| Some(format!("{agent}/{}", name.strip_suffix(".jsonl")?))));
    }
    let named: BTreeSet<String> = rows().iter().map(|r| format!("{}/{}", r.agent, r.recording)).collect();
    assert_eq!(named, there);
}

#[test]
fn every_recording_ends_as_the_rules_say() {
    let mut found = Vec::new();
    for row in rows() {
        let timeline = Timeline::new(&row.timeline());
        let (lines, summary) = timeline.replay_json(&["--agent", row.agent]);
        let stop = row.stop.map(|(reason, at)| (reason.as_str(), at));
        let ended = summary["reason"].as_str().zip(summary["ended_at_s"].as_f64());
        if ended != stop {
            found.push(format!("{}/{}: {ended:?} instead of {stop:?}", row.agent, row.recording));
        }
        let stops = lines.iter().filter(|line| line["verdict"] == "hard_stop").count();
        assert_eq!(stops, usize::from(stop.is_some()), "{}/{}", row.agent, row.recording);
        let outcome = summary["outcome"].as_str();
        assert_eq!(outcome == Some("timed_out"), stop.is_some(), "{}/{}", row.agent, row.recording);
    }
    assert!(found.is_empty(), "{}", found.join("\n"));
}

#[test]
fn recordings_without_added_silence_get_no_verdict() {
    for row in rows().iter().filter(|row| row.exit.is_none() && row.stop.is_none_or(|(_, at)| at > 590.0)) {
        let last = row.lines().last().map_or(0, |(t_ms, _)| *t_ms);
        let (_, summary) = replay_json(&["--agent", row.agent], &row.path());
        assert_eq!(summary["reason"].as_str(), None, "{}/{}", row.agent, row.recording);
        assert_eq!(summary["ended_at_s"].as_f64(), Some(last as f64 / 1000.0));
        assert_eq!(summary["outcome"].as_str(), None);
    }
}

/// The oracle gets the same facts as the watchdog and must reach the same verdicts.
#[test]
fn the_oracle_agrees_on_every_recording() {
    let policy = WatchPolicy::default();
    for row in rows() {
        let name = ReaderName::named(row.agent).expect("a known agent");
        let mut listener = Listener::new(name);
        let mut facts = Vec::<(u64, Fact)>::new();
        let take = |listener: &mut Listener, at: u64| -> Vec<(u64, Fact)> {
            let facts = listener.take().into_iter().filter_map(|item| match item {
                FeedItem::Fact(fact) => Some((at, fact)),
                FeedItem::Issue(_) => None,
            });
            facts.collect()
        };
        let end = row.stop.map(|(_, at)| (at * 1000.0).round() as u64);
        let lines = row.lines();
        for (t_ms, line) in lines.iter().filter(|(t_ms, _)| end.is_none_or(|end| *t_ms <= end)) {
            let line = Line { bytes: line.as_bytes(), cut: false };
            listener.line(Awake(*t_ms), Stream::Stdout, line);
            facts.extend(take(&mut listener, *t_ms));
        }
        let at = end.or(row.exit.map(|(_, at)| at)).unwrap_or(0);
        let before = facts.iter().filter(|(t_ms, _)| *t_ms < at).count();
        listener.feed().flush(Awake(at));
        let late = take(&mut listener, at);
        // The fact that ends the session must not be known a moment earlier.
        let mut early = facts[..before].to_vec();
        if before == facts.len() {
            early.extend(late.iter().cloned());
        }
        facts.extend(late);
        let verdict =
            |facts: &[(u64, Fact)], at| Oracle { policy: &policy, structured: true, facts }.verdict(at);
        let name = format!("{}/{}", row.agent, row.recording);
        match row.stop {
            Some((reason, _)) => {
                assert!(!matches!(verdict(&early, at - 1), OracleVerdict::Stop(_)), "{name}: early");
                assert_eq!(verdict(&facts, at), OracleVerdict::Stop(reason), "{name}");
            }
            None => assert!(!matches!(verdict(&facts, at), OracleVerdict::Stop(_)), "{name}"),
        }
    }
}
