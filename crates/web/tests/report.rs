//! The content of a report, and its size limit.

use dogwatch_core::record::event::{Cause, Event, IterationEnd, Observation, Recorded};
use dogwatch_core::record::ids::{Iteration, NodeName};
use dogwatch_core::record::status::Status;
use dogwatch_core::record::view::View;
use dogwatch_core::time::dur::Dur;
use dogwatch_core::time::moment::{Awake, Boot, Moment, Wall};
use dogwatch_core::watch::{Channel, Fact, ToolStarted};
use dogwatch_sim::plan;
use dogwatch_web::{MAX_REPORT, Subject, report};
use serde_json::Value;

const BEGAN: Moment = Moment { awake: Awake(1_000), boot: Boot(5_000), wall: Wall(1_794_773_733_000) };

struct Journal {
    events: Vec<Recorded>,
    now: Moment,
    node: NodeName,
}

impl Journal {
    fn new() -> Journal {
        let started = plan::started(plan::plan(|_| {}));
        let mut journal = Journal { events: Vec::new(), now: BEGAN, node: started.nodes[0].clone() };
        journal.record(Event::RunStarted(Box::new(started)));
        journal
    }

    fn record(&mut self, event: Event) {
        self.events.push(Recorded::new(self.events.len() as u64 + 1, self.now, event));
    }

    fn pass(&mut self, ms: u64) {
        self.now = self.now.plus(Dur::from_millis(ms));
    }

    fn node(&self) -> NodeName {
        self.node.clone()
    }

    fn observe(&mut self, channel: Channel) {
        let (node, last_ms) = (self.node(), self.now.awake);
        let seen =
            Observation { count: 7, max_gap_ms: 900, messages: 2, ..Observation::single(channel, last_ms) };
        self.record(Event::Observed { node, iteration: Iteration(1), seen });
    }

    fn end(&mut self, n: u64, because: &str) {
        let end = IterationEnd {
            node: self.node(),
            iteration: Iteration(n),
            duration_s: Dur::from_secs(1),
            because: because.to_owned(),
            fingerprint: None,
        };
        self.record(Event::IterationCompleted(end));
    }

    fn report(&self) -> String {
        let status = Status::of(&View::fold(&self.events), None);
        let summary = [("Asked", "Fix </script> first".to_owned())];
        report(&Subject {
            project: "/srv/atlas",
            status: &status,
            summary: &summary,
            events: &self.events,
            diffs: &[],
        })
    }
}

/// Returns the record as the page would read it.
fn record(page: &str) -> Value {
    let (_, rest) = page.split_once("id=\"record\">").expect("a record");
    let (json, _) = rest.split_once("</script>").expect("the end of the record");
    serde_json::from_str(json).expect("JSON")
}

fn events<'a>(record: &'a Value, name: &str) -> Vec<&'a Value> {
    record["events"].as_array().expect("a list").iter().filter(|e| e["event"] == name).collect()
}

#[test]
fn a_short_record_is_included_in_full() {
    let mut journal = Journal::new();
    for _ in 0..20 {
        journal.pass(1000);
        journal.observe(Channel::Stdout);
    }
    journal.end(1, "exit code 0");
    let page = journal.report();
    let record = record(&page);
    assert_eq!(record["events"].as_array().map(Vec::len), Some(journal.events.len()));
    assert_eq!(record["run"]["status"]["counts"]["completed"], 1);
    let ended = events(&record, "iteration_completed")[0];
    assert_eq!(ended["sentence"], "iteration 1 completed in 1.0s (exit code 0)");
    assert!(!page.contains("src=\"") && !page.contains("href=\"http"), "the report loads something");
}

// promise: 8
#[test]
fn markup_in_the_record_cannot_end_its_element() {
    let mut journal = Journal::new();
    let evil = "</script><script>alert(1)</script><!-- \u{2028} <img src=x onerror=alert(1)>";
    journal.end(1, evil);
    let page = journal.report();
    assert_eq!(page.matches("<script").count(), 2, "the record and the program");
    assert!(!page.contains("<img"));
    assert_eq!(events(&record(&page), "iteration_completed")[0]["because"], evil);
}

#[test]
fn a_long_record_is_thinned_without_losing_counts() {
    let mut journal = Journal::new();
    let all = 100_000;
    for n in 0..all {
        journal.pass(300);
        journal.observe(if n % 3 == 0 { Channel::Workspace } else { Channel::Stdout });
    }
    journal.end(1, "exit code 0");
    let page = journal.report();
    assert!(page.len() <= MAX_REPORT, "{} bytes", page.len());
    let record = record(&page);
    let seen = events(&record, "observed");
    let count: u64 = seen.iter().map(|e| e["count"].as_u64().expect("a number")).sum();
    assert_eq!(count, all * 7);
    assert!(seen.len() > 2_000, "only {} records are left", seen.len());
    let numbers: Vec<u64> =
        record["events"].as_array().expect("a list").iter().filter_map(|e| e["seq"].as_u64()).collect();
    assert!(numbers.is_sorted_by(|a, b| a < b), "the page reads them in order");
    assert_eq!(events(&record, "iteration_completed").len(), 1);
    assert!(record["notes"][0].as_str().is_some_and(|note| note.contains("merged")), "{}", record["notes"]);
}

#[test]
fn tools_become_progress_when_there_are_too_many_to_show() {
    let mut journal = Journal::new();
    let node = journal.node();
    for n in 0..30_000 {
        journal.pass(1000);
        let tool = ToolStarted {
            id: format!("toolu_{n}"),
            name: "Bash".into(),
            subject: String::new(),
            call: n,
            timeout: None,
            delegates: false,
            mcp: false,
            heartbeat: false,
        };
        journal.record(Event::Fact {
            node: node.clone(),
            iteration: Iteration(1),
            fact: Fact::ToolStarted(tool),
        });
    }
    let page = journal.report();
    assert!(page.len() <= MAX_REPORT, "{} bytes", page.len());
    let record = record(&page);
    let count: u64 = events(&record, "observed").iter().filter_map(|e| e["count"].as_u64()).sum();
    assert_eq!(count, 30_000);
}

#[test]
fn an_oversized_record_keeps_its_beginning_and_end() {
    let mut journal = Journal::new();
    let node = journal.node();
    for n in 1..=20_000 {
        journal.pass(1000);
        journal.record(Event::IterationStarted {
            node: node.clone(),
            iteration: Iteration(n),
            cause: Cause::Next,
        });
        // Each character takes six bytes in the file.
        journal.end(n, &"<".repeat(40));
    }
    let page = journal.report();
    assert!(page.len() <= MAX_REPORT, "{} bytes", page.len());
    assert!(page.len() > MAX_REPORT / 2, "{} bytes: more would have fit", page.len());
    let record = record(&page);
    let kept = record["events"].as_array().expect("a list");
    assert_eq!(kept.first().expect("some")["event"], "run_started");
    assert_eq!(kept.last().expect("some")["iteration"], 20_000);
    let notes = record["notes"].to_string();
    assert!(notes.contains("from the middle"), "{notes}");
}
