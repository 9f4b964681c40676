//! `dogwatch fleet ls`: workers, queues and jobs as a table or as JSON.

use crate::local;
use dogwatch_core::time::moment::Wall;
use dogwatch_fleet::Name;
use dogwatch_fleet::operator::Fleet;
use dogwatch_fleet::server::Book;
use dogwatch_host::clock;
use dogwatch_server::MachineState;

/// The most jobs to list.
const MAX_JOBS: usize = 50;

/// Returns the state of a fleet as JSON.
pub fn json(fleet: &Fleet) -> serde_json::Value {
    let jobs = fleet.jobs.iter().map(|(id, record)| {
        let (state, waiting) = (fleet.state_of(id, record), fleet.why_waiting(id, record));
        serde_json::json!({"job": id.to_string(), "state": state, "record": record, "waiting": waiting})
    });
    let queues = fleet.queues.iter().map(|queue| {
        serde_json::json!({
            "account": queue.name, "queued": queue.queued, "held": queue.held, "cap": queue.cap, "parked": queue.parked,
        })
    });
    let schedules =
        fleet.schedules.iter().map(|(id, rule)| serde_json::json!({"name": id.to_string(), "every": rule}));
    serde_json::json!({
        "workers": fleet.machines,
        "draining": fleet.draining,
        "revoked": fleet.revoked,
        "schedules": schedules.collect::<Vec<_>>(),
        "queues": queues.collect::<Vec<_>>(),
        "jobs": jobs.collect::<Vec<_>>(),
    })
}

/// Returns the state of a fleet as text. The book names the workers that have joined, if this machine has one.
pub fn table(fleet: &Fleet, book: Option<&Book>) -> String {
    let mut text = aligned("worker", &workers(fleet, book, clock::now().wall));
    text.push_str(&format!("{}\n", fleet.summary()));
    let schedules = fleet.schedules.iter().map(|(id, rule)| vec![id.to_string(), rule.clone()]);
    text.push_str(&aligned("every", &schedules.collect::<Vec<_>>()));
    let jobs = fleet.jobs.iter().rev().take(MAX_JOBS).map(|(id, record)| {
        let run = record.run.as_ref().map_or_else(String::new, |run| format!("run {run}"));
        let detail = fleet.detail_of(id, record).map_or_else(String::new, |why| format!("  ({why})"));
        let state = fleet.state_of(id, record).to_owned();
        vec![id.to_string(), state, record.owner.clone(), run, format!("{}{detail}", record.title)]
    });
    text.push_str(&aligned("job", &jobs.collect::<Vec<_>>()));
    text
}

/// Returns a row for each worker: its name, its state and what else is known.
fn workers(fleet: &Fleet, book: Option<&Book>, now: Wall) -> Vec<Vec<String>> {
    let is_revoked = |name: &str| {
        let left = book.is_some_and(|book| book.workers().all(|user| user.name.as_str() != name));
        left || fleet.revoked.iter().any(|revoked| revoked.as_str() == name)
    };
    let mut rows: Vec<Vec<String>> = Vec::new();
    for machine in fleet.entries(now) {
        let detail = machine.detail.or(machine.why).unwrap_or_default();
        let version = machine.version.map_or_else(String::new, |version| format!("dogwatch {version}, "));
        let state = match machine.state {
            _ if is_revoked(&machine.name) => "revoked",
            MachineState::Connecting => "connecting",
            MachineState::Up => "present",
            MachineState::Down => "lost",
        };
        // When a lost worker was seen last is not known.
        let since = match machine.state {
            MachineState::Down => String::new(),
            MachineState::Connecting | MachineState::Up => format!("since {}  ", local::clock(machine.since)),
        };
        rows.push(vec![machine.name, state.to_owned(), format!("{since}{version}{detail}")]);
    }
    for user in book.into_iter().flat_map(Book::workers) {
        let is_listed = rows.iter().any(|row| row[0] == user.name.as_str());
        if is_listed {
            continue;
        }
        let accounts: Vec<&str> = user.accounts.iter().map(Name::as_str).collect();
        let drained = if fleet.draining.contains(&user.name) { ", drained" } else { "" };
        let detail = format!("accounts {}{drained}", accounts.join(" "));
        rows.push(vec![user.name.to_string(), "away".to_owned(), detail]);
    }
    rows
}

/// Returns rows as lines whose columns are aligned. Every line starts with the kind.
fn aligned(kind: &str, rows: &[Vec<String>]) -> String {
    let width = |at: usize| rows.iter().filter_map(|row| row.get(at)).map(|cell| cell.chars().count()).max();
    let mut text = String::new();
    for row in rows {
        let mut line = format!("{kind:<6}");
        for (at, cell) in row.iter().enumerate() {
            match width(at).unwrap_or(0) {
                // No row has anything in this column.
                0 => {}
                width => line.push_str(&format!("  {cell:<width$}")),
            }
        }
        text.push_str(line.trim_end());
        text.push('\n');
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use dogwatch_fleet::record::{JobRecord, JobResult, JobState};
    use dogwatch_fleet::server::Listen;

    fn name(text: &str) -> Name {
        text.parse().expect("a name")
    }

    fn job(id: &str, state: JobState, outcome: Option<&str>) -> (dogwatch_fleet::names::JobId, JobRecord) {
        let result = outcome.map(|outcome| JobResult {
            outcome: outcome.into(),
            detail: (outcome == "refused").then(|| "no loop in work".into()),
            ..JobResult::default()
        });
        let (owner, title) = ("anna".to_owned(), "work of repo".to_owned());
        let record = JobRecord { state, owner, title, result, ..JobRecord::default() };
        (id.parse().expect("a job"), record)
    }

    fn book(workers: &[&str]) -> Book {
        let listen: Listen = "127.0.0.1:4222".parse().expect("an address");
        let mut book = Book::new(name("night"), listen, name("operator"), "secret".into());
        for worker in workers {
            book.add_worker(name(worker), vec![name("acme")], "secret".into()).expect("joins");
        }
        book
    }

    #[test]
    fn the_columns_of_jobs_are_aligned_and_show_outcomes() {
        let jobs = vec![
            job("acme.a", JobState::Running, None),
            job("acme.longer", JobState::Done, Some("refused")),
            job("acme.z", JobState::Done, Some("clean")),
        ];
        let fleet = Fleet { jobs, ..Fleet::default() };
        let text = table(&fleet, None);
        let jobs: Vec<&str> = text.lines().filter(|line| line.starts_with("job")).collect();
        assert_eq!(
            jobs,
            [
                "job     acme.z       clean    anna  work of repo",
                "job     acme.longer  refused  anna  work of repo  (no loop in work)",
                "job     acme.a       running  anna  work of repo",
            ]
        );
    }

    #[test]
    fn a_worker_is_listed_once_whether_it_is_lost_away_or_revoked() {
        let fleet = Fleet {
            jobs: vec![job("acme.a", JobState::Running, None)],
            draining: vec![name("otto")],
            ..Fleet::default()
        };
        let states = |book: &Book| -> Vec<(String, String)> {
            let rows = workers(&fleet, Some(book), Wall(0));
            rows.into_iter().map(|row| (row[0].clone(), row[1].clone())).collect()
        };
        let pair = |name: &str, state: &str| (name.to_owned(), state.to_owned());
        assert_eq!(states(&book(&["anna", "otto"])), [pair("anna", "lost"), pair("otto", "away")]);
        assert_eq!(states(&book(&["otto"])), [pair("anna", "revoked"), pair("otto", "away")]);
        let drained = &workers(&fleet, Some(&book(&["otto"])), Wall(0))[1][2];
        assert_eq!(drained, "accounts acme, drained");
    }
}
