//! Plain lines: one tidy block per iteration, no control characters. The terminal shows the same lines.

use super::words;
use super::writer::Writer;
use dogwatch_core::event::{
    Event, HumanEndedBy, Outcome, Recorded, RunEnded, RunStarted, WaitEndedBy, WaitWhy,
};
use dogwatch_core::moment::Moment;
use dogwatch_core::text::{one_line, printable};
use dogwatch_core::view::View;
use dogwatch_host::driver::Front;
use std::path::{Path, PathBuf};

/// How much of the agent's command line the first line shows.
const MAX_AGENT: usize = 80;

/// The tone of a line; a terminal gives it a colour.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Tone {
    Plain,
    Head,
    Good,
    Bad,
    Quiet,
}

/// A line to show.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Line {
    pub tone: Tone,
    pub text: String,
}

/// Turns events into lines. Holds what belongs on one line until the line is complete.
pub struct Teller {
    run_dir: PathBuf,
    prepared: Vec<String>,
    ended: String,
    /// How long nothing has been to do, for the wait that follows.
    idle: String,
}

impl Teller {
    pub fn new(run_dir: &Path) -> Teller {
        Teller {
            run_dir: run_dir.to_owned(),
            prepared: Vec::new(),
            ended: String::new(),
            idle: String::new(),
        }
    }

    pub fn tell(&mut self, recorded: &Recorded, view: &View) -> Vec<Line> {
        let line = |tone, text: String| vec![Line { tone, text: printable(&text).into_owned() }];
        match &recorded.event {
            Event::RunStarted(s) => self.head(s),
            Event::RunResumed(s) => line(Tone::Head, format!("dogwatch  run {} resumed", s.run)),
            Event::IterationStarted { iteration, .. } => {
                self.prepared.clear();
                self.ended.clear();
                line(Tone::Head, format!("iteration {iteration}"))
            }
            Event::CommandFinished(c) => {
                self.prepared.push(words::command(c));
                Vec::new()
            }
            Event::PromptAssembled { bytes, .. } => {
                self.prepared.push(format!("prompt {}", words::size(*bytes)));
                line(Tone::Quiet, format!("  {}", self.prepared.join(", ")))
            }
            Event::HardStop { reason, message, .. } => {
                line(Tone::Bad, format!("  ended by the watchdog: {message} [{reason}]"))
            }
            Event::SessionSignalled { step, ended_by, .. } => {
                line(Tone::Quiet, format!("  {}", words::end_step(*step, *ended_by)))
            }
            Event::AgentReported { report, .. } => line(Tone::Quiet, format!("  {}", words::report(report))),
            Event::SessionEnded(s) => {
                let said = words::said(s);
                self.ended = words::session(s);
                if said.is_empty() { Vec::new() } else { line(Tone::Plain, format!("  \"{said}\"")) }
            }
            Event::IterationCompleted(end) => self.over(Tone::Good, "completed", end.duration_s, None),
            Event::IterationIdle { end, reason, consecutive, skipped, .. } => {
                self.idle = format!("idle ({} in a row, {reason})", words::nth(*consecutive));
                let because = skipped.then_some(end.because.as_str());
                self.over(Tone::Quiet, "idle", end.duration_s, because)
            }
            Event::IterationFailed(end) => self.over(Tone::Bad, "failed", end.duration_s, Some(&end.because)),
            Event::IterationTimedOut(end) => {
                self.over(Tone::Bad, "timed out", end.duration_s, Some(&end.because))
            }
            Event::IterationRateLimited { end, .. } => {
                self.over(Tone::Quiet, "rate limited", end.duration_s, Some(&end.because))
            }
            Event::IterationAuthFailed(end) => {
                self.over(Tone::Bad, "not logged in", end.duration_s, Some(&end.because))
            }
            Event::IterationInterrupted { end, .. } => {
                self.over(Tone::Bad, "interrupted", end.duration_s, Some(&end.because))
            }
            Event::WaitStarted { why, delay_s, .. } => match (why, delay_s) {
                (WaitWhy::Idle, Some(delay)) => {
                    line(Tone::Quiet, format!("  {}, backing off to {}", self.idle, words::seconds(*delay)))
                }
                (WaitWhy::Paused, _) | (_, None) => {
                    line(Tone::Quiet, "  paused: `dogwatch resume` goes on".into())
                }
                (other, Some(delay)) => {
                    line(Tone::Quiet, format!("  waiting {} {}", words::length(*delay), words::wait(*other)))
                }
            },
            Event::WaitEnded { by, .. } => match by {
                WaitEndedBy::Timer => Vec::new(),
                by => line(Tone::Quiet, format!("  woken ({by})")),
            },
            Event::Told { text } => line(Tone::Quiet, format!("  told: {text}")),
            Event::Paused {} => line(Tone::Quiet, "  asked to pause".into()),
            Event::Unpaused {} => line(Tone::Quiet, "  going on".into()),
            Event::Notice { message, .. } => line(Tone::Quiet, format!("  {message}")),
            Event::Trouble { kind, detail } => line(Tone::Bad, format!("  trouble: {detail} [{kind}]")),
            Event::Suspended { for_s } => {
                line(Tone::Quiet, format!("  nobody watched for {for_s}; it does not count"))
            }
            Event::RunEnded(end) => self.foot(end, view),
            Event::NeedsHuman { what, until, .. } => {
                line(Tone::Bad, format!("  needs a person{}: {what}", words::until(*until)))
            }
            Event::NeedsHumanEnded { by: HumanEndedBy::Progress, .. } => {
                line(Tone::Quiet, "  it goes on, nobody is asked for any more".into())
            }
            Event::AgentRetrying { status, delay_s, .. } => {
                line(Tone::Quiet, format!("  {}", words::retrying(*status, *delay_s)))
            }
            Event::DayUsed(day) if day.unknown_cost > 0 => {
                let sessions = words::count(day.unknown_cost, "session");
                line(Tone::Quiet, format!("  today's cost is not wholly known: {sessions} did not say"))
            }
            Event::DayUsed(_) => Vec::new(),
            Event::AgentDrifted { .. } => line(Tone::Bad, format!("  {}", words::DRIFTED)),
            Event::NodeTransition { .. }
            | Event::NeedsHumanEnded { by: HumanEndedBy::Deadline | HumanEndedBy::Session, .. }
            | Event::SessionStarted { .. }
            | Event::Observed { .. }
            | Event::SnapshotTaken { .. }
            | Event::WorktreeReady { .. }
            | Event::ChecksPinned { .. }
            | Event::ChecksStarted { .. }
            | Event::CheckTampered { .. }
            | Event::NodeAttempt(_)
            | Event::RecoveryPlanned(_)
            | Event::PartialKept { .. }
            | Event::Fact { .. }
            | Event::Used { .. }
            | Event::WatchdogContinue { .. }
            | Event::MarkerSeen { .. }
            | Event::WakeRemembered { .. }
            | Event::Notified { .. }
            | Event::Unknown => Vec::new(),
        }
    }

    fn head(&self, s: &RunStarted) -> Vec<Line> {
        let name = s.nodes.first().map_or("", |n| n.as_str());
        let text = format!("dogwatch  {name}  ({})  run {}", one_line(&s.agent, MAX_AGENT), s.run);
        vec![Line { tone: Tone::Head, text: printable(&text).into_owned() }]
    }

    fn over(
        &self,
        tone: Tone,
        word: &str,
        took: dogwatch_core::dur::Dur,
        because: Option<&str>,
    ) -> Vec<Line> {
        let mut text = format!("  {word} in {}", words::span(took));
        for part in [Some(self.ended.as_str()).filter(|e| !e.is_empty()), because].into_iter().flatten() {
            text.push_str(", ");
            text.push_str(part);
        }
        vec![Line { tone, text: printable(&text).into_owned() }]
    }

    fn foot(&self, end: &RunEnded, view: &View) -> Vec<Line> {
        let tone = if end.exit_code == 0 { Tone::Good } else { Tone::Bad };
        let mut counts = vec![format!("{} completed", end.completed)];
        if end.idle > 0 {
            counts.push(format!("{} of them idle", end.idle));
        }
        if end.failed > 0 {
            counts.push(format!("{} failed", end.failed));
        }
        if view.totals().interrupted > 0 {
            counts.push(format!("{} interrupted", view.totals().interrupted));
        }
        let verified = match end.outcome {
            Outcome::Clean | Outcome::CleanWithFlake if !end.verified => " (no checks, so not verified)",
            _ => "",
        };
        let first = format!("{}: {}{verified}", end.outcome, end.reason);
        let second = format!(
            "  {}: {}; {}; exit code {}",
            words::count(end.iterations, "iteration"),
            counts.join(", "),
            words::span(end.total_duration_s),
            end.exit_code
        );
        let third = format!("  record: {}", shown_path(&self.run_dir));
        [(tone, first), (Tone::Plain, second), (Tone::Quiet, third)]
            .map(|(tone, text)| Line { tone, text: printable(&text).into_owned() })
            .into()
    }
}

fn shown_path(path: &Path) -> String {
    let here = std::env::current_dir().and_then(|h| h.canonicalize()).ok();
    let short = here.and_then(|h| path.strip_prefix(h).ok().map(Path::to_owned));
    short.unwrap_or_else(|| path.to_owned()).display().to_string()
}

/// The front for files and pipes.
pub struct Lines {
    teller: Teller,
    writer: Writer,
}

impl Lines {
    pub fn new(run_dir: &Path) -> Lines {
        Lines { teller: Teller::new(run_dir), writer: Writer::new() }
    }
}

impl Front for Lines {
    fn show(&mut self, event: &Recorded, view: &View) {
        for line in self.teller.tell(event, view) {
            self.writer.write(line.text + "\n");
        }
    }

    fn tick(&mut self, _: Moment, _: &View) {}

    fn ticks(&self) -> bool {
        false
    }
}
