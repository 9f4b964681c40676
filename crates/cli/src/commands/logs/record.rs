//! Reads the record line by line to find one iteration. A record may be long, so only that iteration and the
//! settings are kept in memory.

use super::source::Source;
use crate::error::CliError;
use crate::local;
use crate::runs::FoundRun;
use crate::screen::ShownLine;
use dogwatch_agents::readable::Renderer;
use dogwatch_core::record::event::{Event, Recorded, RunStarted, SessionEnded, Usage};
use dogwatch_core::record::ids::{Iteration, NodeName};
use dogwatch_core::record::words::Style;
use dogwatch_core::settings::ReaderName;
use dogwatch_core::time::moment::Wall;
use dogwatch_host::store::home;
use dogwatch_host::store::journal::{self, Tail};
use std::collections::BTreeMap;
use std::path::Path;

/// An iteration, as recorded.
#[derive(Clone)]
pub struct IterationRecord {
    pub node: NodeName,
    pub iteration: Iteration,
    /// The sequence number of its first event.
    pub seq: u64,
    pub at: Wall,
    /// The iteration started a session.
    pub called: bool,
    /// The agent's own session that this one resumes, and the usage that it was already charged with.
    resumed: Option<(String, Usage)>,
    pub end: Option<ShownLine>,
}

impl IterationRecord {
    /// Returns an iteration that has just started.
    pub fn new(seq: u64, at: Wall, node: NodeName, iteration: Iteration) -> IterationRecord {
        IterationRecord { node, iteration, seq, at, called: false, resumed: None, end: None }
    }
}

/// Which iteration to look for.
#[derive(Clone, Copy, Default)]
pub struct Wanted<'a> {
    /// The number of the iteration; any if `None`.
    pub iteration: Option<u64>,
    /// The node; any if `None`.
    pub node: Option<&'a str>,
}

/// The iteration that was found in a record, and the settings of the run.
#[derive(Default)]
pub struct Look {
    started: Option<Box<RunStarted>>,
    pub seen: Option<IterationRecord>,
    pub iterations: u64,
    /// The agent's latest session of each node, and the usage already charged to it.
    charged: BTreeMap<NodeName, (String, Usage)>,
}

impl Look {
    /// Returns the stdout or stderr file of an iteration.
    pub fn source(&self, run_dir: &Path, seen: &IterationRecord, stderr: bool) -> Source {
        let dir = home::iteration_dir(run_dir, &seen.node, seen.iteration);
        let plan = self.started.as_ref().and_then(|s| s.settings.nodes.iter().find(|n| n.name == seen.node));
        let reader = plan.map_or(ReaderName::Plain, |n| n.settings.reader);
        let work_dir = self.started.as_ref().map_or("", |s| s.work_dir.as_str());
        Source::new(dir, stderr, Renderer::for_session(reader, work_dir, seen.resumed.clone()))
    }

    /// Notes the usage of an ended session. Several dogwatch sessions may continue one session of the agent.
    fn charge(&mut self, s: &SessionEnded) {
        let Some(session) = &s.session else { return };
        let charged = self.charged.entry(s.node.clone()).or_default();
        if charged.0 != *session {
            *charged = (session.clone(), Usage::default());
        }
        let sum = &mut charged.1;
        sum.tokens = Some(sum.tokens.unwrap_or(0).saturating_add(s.tokens.unwrap_or(0)));
        sum.cost_usd = Some(sum.cost_usd.unwrap_or(0.0) + s.cost_usd.unwrap_or(0.0));
    }

    /// Returns whether the run is a graph with several nodes.
    pub fn has_several_nodes(&self) -> bool {
        self.started.as_ref().is_some_and(|started| started.nodes.len() > 1)
    }

    /// Returns whether the run has a node of this name.
    pub fn has_node(&self, name: &str) -> bool {
        self.started.as_ref().is_some_and(|started| started.nodes.iter().any(|node| node.as_str() == name))
    }

    #[expect(clippy::wildcard_enum_match_arm, reason = "only a few events matter here")]
    fn take(&mut self, wanted: Wanted<'_>, event: Recorded) {
        match event.event {
            Event::RunStarted(started) => self.started = Some(started),
            Event::IterationStarted { node, iteration, .. } => {
                let of_node = wanted.node.is_none_or(|name| name == node.as_str());
                if of_node {
                    self.iterations = self.iterations.max(iteration.0);
                }
                if of_node && wanted.iteration.is_none_or(|n| n == iteration.0) {
                    self.seen = Some(IterationRecord::new(event.seq, event.at, node, iteration));
                }
            }
            Event::SessionEnded(ended) => self.charge(&ended),
            other => {
                if let Some(seen) = &mut self.seen {
                    seen.take(&other, &self.charged);
                }
            }
        }
    }
}

impl IterationRecord {
    fn take(&mut self, event: &Event, charged: &BTreeMap<NodeName, (String, Usage)>) {
        if let Event::SessionStarted { node, iteration, resumes, .. } = event
            && *node == self.node
            && *iteration == self.iteration
        {
            self.called = true;
            self.resumed =
                charged.get(node).filter(|(session, _)| Some(session) == resumes.as_ref()).cloned();
        }
        if event.ending().is_some_and(|(_, end)| end.node == self.node && end.iteration == self.iteration) {
            self.end = Some(ending_line(event));
        }
    }
}

/// Finds an iteration: the wanted one, or the last that called the agent, or the last.
pub fn look(found: &FoundRun, wanted: Wanted<'_>) -> Result<Look, CliError> {
    let mut called = None;
    let mut look = read(found, wanted, |look| {
        if let Some(seen) = look.seen.as_ref().filter(|seen| seen.called) {
            called = Some(seen.clone());
        }
    })?;
    look.seen = called.or(look.seen);
    Ok(look)
}

/// Finds the last iteration that started.
pub fn latest_session(found: &FoundRun, node: Option<&str>) -> Result<Look, CliError> {
    read(found, Wanted { iteration: None, node }, |_| {})
}

fn read(found: &FoundRun, wanted: Wanted<'_>, mut each: impl FnMut(&Look)) -> Result<Look, CliError> {
    let path = found.dir.join(journal::FILE);
    let cannot = |e: std::io::Error| CliError::usage(format!("cannot read {}: {e}", path.display()));
    let mut lines = Tail::up_to_now(&path).map_err(cannot)?.in_large_pieces();
    let mut look = Look::default();
    while let Some(line) = lines.next_line().map_err(cannot)? {
        // `status` and `resume` report lines that are not events.
        if is_wanted(line)
            && let Ok(event) = dogwatch_codec::read(line)
        {
            look.take(wanted, event);
            each(&look);
        }
    }
    Ok(look)
}

/// Returns whether a line needs to be parsed. Most lines of a record are observations, which do not.
fn is_wanted(line: &[u8]) -> bool {
    journal::head(line).is_some_and(|head| {
        matches!(&*head.event, "run_started" | "session_started" | "session_ended")
            || head.event.starts_with("iteration_")
    })
}

/// Returns the line for the end of an iteration. The heading above it has the number, but not the reason of an idle one.
pub fn ending_line(event: &Event) -> ShownLine {
    let style = if matches!(event, Event::IterationIdle { .. }) { Style::Full } else { Style::Line };
    local::sentence(event, style).into()
}
