use crate::error::Failure;
use crate::runs::{FoundRun, Which};
use crate::screen::words;
use dogwatch_core::status::{DoingStatus, OrchestratorStatus, State, Status};
use dogwatch_host::clock;

/// Tell how a run stands
///
/// A run that lives is asked; of one that does not, its record tells. What is shown is evidence with its
/// age, computed now.
#[derive(clap::Args)]
pub struct Args {
    #[command(flatten)]
    which: Which,
    /// As JSON (docs/status.md)
    #[arg(long)]
    json: bool,
    /// As the orchestrator's status document, in JSON
    #[arg(long)]
    orchestrator: bool,
}

pub fn run(args: &Args) -> Result<u8, Failure> {
    let found = args.which.find()?;
    if args.orchestrator {
        return super::print_json(&orchestrator(&found)?);
    }
    let status = status(&found)?;
    if args.json { super::print_json(&status) } else { super::print(tell(&status).as_bytes()) }
}

/// A run's status, from itself if it lives, else from its record.
pub fn status(found: &FoundRun) -> Result<Status, Failure> {
    if let Some(status) = found.ask("/v1/status") {
        return Ok(status);
    }
    let live = found.is_live();
    let view = found.view()?;
    Ok(Status::of(&view, live.then(clock::now)))
}

fn orchestrator(found: &FoundRun) -> Result<serde_json::Value, Failure> {
    if let Some(value) = found.ask("/v1/status/orchestrator") {
        return Ok(value);
    }
    let document = OrchestratorStatus::of(&found.view()?, found.is_live().then(clock::now));
    serde_json::to_value(document).map_err(|e| Failure::internal(e.to_string()))
}

/// A status in a few lines for people.
pub fn tell(status: &Status) -> String {
    let mut lines = vec![headline(status)];
    for node in &status.nodes {
        lines.push(format!("  {}  iteration {}: {}", node.name, node.iteration, doing(&node.doing)));
        lines.extend(ails(&node.doing).into_iter().map(|ails| format!("  {ails}")));
        if let Some(spell) = node.spell.as_ref().filter(|s| s.count > 0) {
            let reason = spell.reason.as_str();
            lines.push(format!(
                "  idle {} in a row ({reason}), for {}",
                spell.count,
                words::span(spell.lasted_s)
            ));
        }
        if node.failures_in_row > 0 {
            lines.push(format!("  {} in a row", words::count(u64::from(node.failures_in_row), "failure")));
        }
    }
    let c = &status.counts;
    lines.push(format!(
        "  {}: {} completed, {} of them idle, {} failed, {} timed out, {} interrupted",
        words::count(c.iterations, "iteration"),
        c.completed,
        c.idle,
        c.failed,
        c.timed_out,
        c.interrupted
    ));
    if let Some(trouble) = &status.troubles.last {
        lines.push(format!(
            "  {}, the last: {} [{}]",
            words::count(status.troubles.count, "trouble"),
            trouble.detail,
            trouble.kind
        ));
    }
    let text = lines.join("\n") + "\n";
    dogwatch_core::text::printable(&text).into_owned()
}

/// One line: which run, how it stands.
pub fn headline(status: &Status) -> String {
    let run = status.run.as_ref().map_or_else(|| "?".to_owned(), ToString::to_string);
    let path = status.path.as_deref().unwrap_or("?");
    let how = match (status.state, &status.ended) {
        (State::Ended, Some(end)) => {
            format!("ended: {} ({}), exit code {}", end.outcome, end.reason, end.exit_code)
        }
        (State::Lost, _) => "its dogwatch died; `dogwatch resume` goes on with it".to_owned(),
        (State::NeedsHuman, _) => "needs human".to_owned(),
        (state, _) => state.as_str().to_owned(),
    };
    // What ails an agent must be seen where runs are listed, too.
    let ails: Vec<String> = status.nodes.iter().flat_map(|node| ails(&node.doing)).collect();
    let how = [vec![how], ails].concat().join("; ");
    format!("run {run}  {path}  {how}")
}

/// What ails an agent that works, the most urgent first.
fn ails(doing: &DoingStatus) -> Vec<String> {
    let DoingStatus::Working { needs_human, retrying, drifted, .. } = doing else { return Vec::new() };
    let mut ails = Vec::new();
    if let Some(asks) = needs_human {
        let left = asks.left_s.map(|left| format!(" ({} left)", words::clock(left))).unwrap_or_default();
        ails.push(format!("needs a person{left}: {}", asks.what));
    }
    if let Some(retrying) = retrying {
        let since = retrying.since_s.map(|d| format!(", for {}", words::clock(d))).unwrap_or_default();
        ails.push(format!("{}{since}", words::retrying(retrying.status, retrying.delay_s)));
    }
    ails.extend(drifted.then(|| words::DRIFTED.to_owned()));
    ails
}

fn doing(doing: &DoingStatus) -> String {
    match doing {
        DoingStatus::Nothing => "at rest".to_owned(),
        DoingStatus::Preparing => "preparing".to_owned(),
        DoingStatus::Checking => "its checks run".to_owned(),
        DoingStatus::Working { pid, working_s, messages, last_evidence, .. } => {
            let last = match last_evidence {
                Some(e) => {
                    format!("last output {} ago", e.age_s.map_or_else(|| "?".to_owned(), words::clock))
                }
                None => "no output yet".to_owned(),
            };
            let so_long = working_s.map_or_else(String::new, |d| format!(" for {}", words::clock(d)));
            format!("working{so_long} (pid {pid}), {}, {last}", words::count(*messages, "message"))
        }
        DoingStatus::Waiting { why, left_s, until, .. } => match (left_s, until) {
            (Some(left), Some(until)) => {
                format!("waiting ({why}), {} left, until {until}", words::clock(*left))
            }
            (None, Some(until)) => format!("waiting ({why}) until {until}"),
            (_, None) => format!("waiting ({why})"),
        },
    }
}
