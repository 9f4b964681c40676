//! The report as JSON: the status and the timeline.

use super::changes::Changes;
use super::{Report, opening};
use dogwatch_core::record::event::{EndingKind, WaitWhy};
use dogwatch_core::record::ids::{Iteration, NodeName};
use dogwatch_core::record::status::Status;
use dogwatch_core::record::summary::{Ends, Row, Waits, What};
use dogwatch_core::record::words;
use dogwatch_core::text::figures;
use dogwatch_core::time::dur::Dur;
use dogwatch_core::time::moment::Wall;
use serde::Serialize;

/// The document that `report --json` prints.
#[derive(Serialize)]
pub struct Document<'a> {
    /// The first line of the prompt, or the nodes of a graph.
    asked: String,
    status: Status,
    /// The changed files and the beginning of the diff.
    changes: &'a Changes,
    waits: Vec<Wait>,
    timeline: Vec<Entry>,
    /// The number of entries between the first and the last ones that are left out.
    left_out: u64,
    /// The first line of the record that was changed after it was written.
    changed_line: Option<u64>,
}

/// The waits for one reason.
#[derive(Serialize)]
struct Wait {
    why: WaitWhy,
    count: u64,
    planned_s: Option<Dur>,
    lasted_s: Dur,
    ended_early: u64,
}

impl Wait {
    fn of(waits: &Waits) -> Wait {
        let Waits { why, count, lasted, planned, woken } = *waits;
        Wait { why, count, planned_s: planned, lasted_s: lasted, ended_early: woken }
    }
}

/// An entry of the timeline.
#[derive(Serialize)]
struct Entry {
    at: Wall,
    node: Option<NodeName>,
    iteration: Option<Iteration>,
    text: String,
}

impl Document<'_> {
    /// Returns the document of a report.
    pub fn of(report: &Report) -> Document<'_> {
        let now = report.live.then(|| report.now());
        Document {
            asked: opening::asked(report),
            changes: &report.changes,
            waits: report.summary.waits.iter().filter(|waits| waits.count > 0).map(Wait::of).collect(),
            status: Status::of(report.view(), now).with_record_problem(report.record_problem.clone()),
            timeline: report.summary.timeline.iter().map(entry).collect(),
            left_out: left_out(&report.summary.timeline),
            changed_line: report.broken_chain,
        }
    }
}

fn left_out(timeline: &Ends<Row>) -> u64 {
    let (_, cut, _) = timeline.parts();
    cut
}

fn entry(row: &Row) -> Entry {
    let (node, iteration, text) = match &row.what {
        What::Event { node, iteration, sentence } => (node.clone(), *iteration, sentence.text.clone()),
        What::Turn(turn) => {
            let how = turn.end.as_ref().map_or_else(String::new, |end| {
                words::ended_after(words::ending(end.how).1, end.lasted, Some(&end.because))
            });
            (Some(turn.node.clone()), Some(turn.iteration), how)
        }
        What::Idle(idle) => {
            let many = figures::count(idle.count, "iteration");
            let (_, word) = words::ending(EndingKind::Idle);
            (Some(idle.node.clone()), Some(idle.last), format!("{word} ({}), {many}", idle.reason))
        }
        What::Waited { node, why, lasted, by } => {
            (Some(node.clone()), None, words::waited(*why, *lasted, *by))
        }
    };
    Entry { at: row.at, node, iteration, text }
}
