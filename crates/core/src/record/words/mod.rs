//! Turns events into sentences, in one place. The screen of `run`, `top`, `logs`, the report, the notifications and the
//! dashboard show these sentences.

mod parts;
mod worktree;

pub use parts::{
    ASLEEP, DRIFTED, NEEDS_HUMAN, call, command, ended_after, ending, failed_checks, killed, outcome, result,
    said, session, tool, wait, waited,
};

use crate::record::event::words;
use crate::record::event::{EndingKind, Event, WaitEndedBy};
use crate::text::figures::{self, count, length};
use crate::text::shell::command_line;
use crate::text::{clip, one_line, printable};

/// The longest sentence, in bytes.
pub const MAX_SENTENCE: usize = 2_000;
/// The most of a command line or of a list of files to show in a sentence, in bytes.
pub(crate) const MAX_LIST: usize = 200;

words! {
    /// The tone of a sentence, which determines its color.
    Tone {
        /// Ordinary information.
        Plain = "plain",
        /// The start of something: a run or an iteration.
        Head = "head",
        /// A success.
        Good = "good",
        /// A failure, or something that needs attention.
        Bad = "bad",
        /// Background information.
        Quiet = "quiet",
    }
}

/// How much an event matters to a reader, from most to least.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Weight {
    /// Every display shows it.
    Main,
    /// Lists of events show it; the screen of `run` does not.
    Detail,
    /// One of many signs of progress. Only a list of everything shows it.
    Progress,
}

/// Where a sentence is shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Style {
    /// Under the heading of its iteration and next to a terminal, as on the screen of `run`.
    Line,
    /// On its own, as in a list of events.
    Full,
}

/// An event in words: one line without control characters, at most [`MAX_SENTENCE`] bytes long.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Sentence {
    /// How much the event matters.
    pub weight: Weight,
    /// Its tone.
    pub tone: Tone,
    /// The sentence, without a capital letter or a final period.
    pub text: String,
}

/// A line for people, without control characters.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ShownLine {
    /// Its tone.
    pub tone: Tone,
    /// Its text.
    pub text: String,
}

impl From<Sentence> for ShownLine {
    fn from(sentence: Sentence) -> ShownLine {
        ShownLine { tone: sentence.tone, text: sentence.text }
    }
}

impl Sentence {
    fn new(weight: Weight, tone: Tone, text: &str) -> Sentence {
        let clean = printable(text).replace(['\n', '\t'], " ");
        let short = clip(&clean, MAX_SENTENCE - '…'.len_utf8());
        let text = if short.len() < clean.len() { format!("{short}…") } else { clean };
        Sentence { weight, tone, text }
    }
}

/// Adds the reason for the length of a learned wait.
pub fn because(reason: Option<&str>) -> String {
    reason.map_or_else(String::new, |reason| format!(": {reason}"))
}

/// Returns the sentence for an event. It does not name the node; a display of several nodes adds the name.
pub fn sentence(event: &Event, style: Style) -> Sentence {
    use Tone::{Bad, Good, Head, Plain, Quiet};
    use Weight::{Detail, Main, Progress};
    let full = style == Style::Full;
    let (weight, tone, text) = match event {
        Event::RunStarted(s) => (Main, Head, parts::run_started(s)),
        Event::RunResumed(s) => (Main, Head, format!("run {} resumed (pid {})", s.run, s.pid)),
        Event::NodeTransition { from, to, reason, .. } => {
            (Detail, parts::state_tone(*to), parts::transition(*from, *to, reason.as_deref(), style))
        }
        Event::IterationStarted { iteration, cause, .. } if full => {
            (Main, Head, format!("iteration {iteration} started ({})", spaced(cause.as_str())))
        }
        Event::IterationStarted { iteration, .. } => (Main, Head, format!("iteration {iteration}")),
        Event::CommandFinished(c) => (Detail, Quiet, format!("command {}", parts::command(c))),
        Event::PromptAssembled { bytes, .. } => (Detail, Quiet, format!("prompt {}", figures::size(*bytes))),
        Event::SessionStarted { pid, argv, .. } => {
            let argv = one_line(&command_line(argv), MAX_LIST);
            (Detail, Plain, format!("session started (pid {pid}): {argv}"))
        }
        Event::Observed { seen, .. } => (Progress, Quiet, parts::observed(seen)),
        Event::Fact { fact, .. } => (Progress, parts::fact_tone(fact), parts::fact(fact)),
        Event::NeedsHuman { what, until, .. } => {
            (Main, Bad, format!("{NEEDS_HUMAN}{}: {what}", parts::until(*until)))
        }
        Event::NeedsHumanEnded { by, .. } => {
            (parts::human_weight(*by), Quiet, parts::human_ended(*by).into())
        }
        Event::AgentRetrying { status, delay_s, .. } => (Main, Quiet, retrying(*status, *delay_s)),
        Event::AgentDrifted { .. } => (Main, Bad, DRIFTED.to_owned()),
        Event::Used { usage, .. } => (Progress, Quiet, parts::used(usage)),
        Event::DayUsed(day) => {
            let used = day.used();
            let text = format!("today so far: {}, {}", figures::tokens(&used), figures::cost(&used));
            (Progress, Quiet, text)
        }
        Event::WindowsUsed(used) => (Detail, Quiet, parts::windows_used(used)),
        Event::LimitSet { until, account } => (Main, Quiet, parts::limit_set(*until, account.as_deref())),
        Event::WatchdogContinue { deferred_by, .. } => {
            (Detail, Quiet, format!("idle timeout deferred by activity on {deferred_by}"))
        }
        Event::Suspended { for_s, .. } => {
            (Main, Quiet, format!("suspended for {} (not counted)", length(*for_s)))
        }
        Event::MarkerSeen { state, attrs, .. } => (Detail, Plain, parts::marker(state, attrs)),
        Event::HardStop { reason, message, .. } => {
            (Main, Bad, format!("stopped by the watchdog: {message} [{reason}]"))
        }
        Event::VerdictLabeled { label, .. } => (Main, Quiet, format!("the stop was labeled {label}")),
        Event::SessionSignalled { step, ended_by, .. } => {
            (Main, Quiet, parts::end_step(*step, *ended_by, style))
        }
        Event::AgentReported { report, .. } => (Main, Quiet, parts::report(report)),
        Event::SessionEnded(s) => (Detail, Plain, parts::session_ended(s)),
        Event::SnapshotTaken { name, .. } => (Detail, Quiet, format!("snapshot taken: {name}")),
        Event::WorktreeReady { path, branch, merged, .. } => {
            (Main, Quiet, worktree::ready(path, branch, merged))
        }
        Event::MergeConflicted { from, files, policy, .. } => {
            (Main, Bad, worktree::conflict(from, files, *policy))
        }
        Event::SetupFinished(s) => (Main, if s.rc == 0 { Quiet } else { Bad }, worktree::setup(s)),
        Event::WorkCommitted { branch, commit, files, skipped, .. } => {
            let weight = if *files > 0 || *skipped > 0 { Main } else { Detail };
            (weight, Quiet, worktree::committed(branch, commit, *files, *skipped))
        }
        Event::ChecksPinned { files, .. } => {
            (Progress, Quiet, format!("pinned {} of the checks", count(files.len() as u64, "file")))
        }
        Event::ChecksStarted { .. } => (Main, Quiet, "running checks".to_owned()),
        Event::CheckTampered { files, policy, .. } => {
            (Main, parts::tampered_tone(*policy), parts::tampered(files, *policy))
        }
        Event::NodeAttempt(a) => (Main, if a.converged { Good } else { Bad }, parts::attempt(a)),
        Event::IterationIdle { end, reason, consecutive, skipped, .. } if full => {
            (Main, Quiet, parts::idle(end, reason, *consecutive, *skipped))
        }
        Event::IterationIdle { end, skipped, .. } => {
            let because = skipped.then_some(end.because.as_str());
            (Main, Quiet, parts::ended_after("idle", end.duration_s, because))
        }
        Event::IterationCompleted(end) => parts::iteration_ended(EndingKind::Completed, end, style),
        Event::IterationFailed(end) => parts::iteration_ended(EndingKind::Failed, end, style),
        Event::IterationTimedOut(end) => parts::iteration_ended(EndingKind::TimedOut, end, style),
        Event::IterationRateLimited { end, .. } => {
            parts::iteration_ended(EndingKind::RateLimited, end, style)
        }
        Event::IterationAuthFailed(end) => parts::iteration_ended(EndingKind::AuthFailed, end, style),
        Event::IterationInterrupted { end, .. } => {
            parts::iteration_ended(EndingKind::Interrupted, end, style)
        }
        Event::RecoveryPlanned(plan) => (Main, Quiet, parts::recovery(plan, style)),
        Event::PartialKept { file, .. } => (Main, Quiet, format!("partial result kept in {file}")),
        Event::IdleLearned { state, .. } => {
            (Progress, Quiet, format!("idle history: {}", count(state.arrivals, "arrival")))
        }
        Event::WaitStarted { why, delay_s, because: reason, .. } => {
            let text = parts::wait_started(*why, *delay_s, style);
            (Main, Quiet, format!("{text}{}", because(reason.as_deref())))
        }
        Event::WaitEnded { by: WaitEndedBy::Timer, .. } => (Progress, Quiet, "wait ended".to_owned()),
        Event::WaitEnded { by, .. } => (Main, Quiet, parts::wait_ended(*by)),
        Event::RunSlept { reason, consecutive, after, .. } => {
            let idle = count(*consecutive, "idle iteration");
            let text = format!("{}; entering sleep mode after {idle}", spaced(reason));
            (parts::slept_weight(*after), Quiet, text)
        }
        Event::WakeRemembered { by, .. } => {
            (Detail, Quiet, format!("woken ({by}) during a session; the next wait will be skipped"))
        }
        Event::Paused {} => (Main, Quiet, "pause requested".to_owned()),
        Event::Unpaused {} => (Main, Quiet, "pause ended".to_owned()),
        Event::MessageReceived { text, from } => (Main, Plain, parts::message(text, *from)),
        Event::Notice { kind, message } if full => (Main, Quiet, format!("{message} [{kind}]")),
        Event::Notice { message, .. } => (Main, Quiet, message.clone()),
        Event::Trouble { kind, detail } => (Main, Bad, format!("trouble: {detail} [{kind}]")),
        Event::Notified { key, how, ok, detail } => {
            (Detail, Quiet, parts::notified(key, *how, *ok, detail.as_deref()))
        }
        Event::RunEnded(end) => {
            (Main, if end.exit_code == 0 { Good } else { Bad }, parts::run_ended(end, style))
        }
        Event::Unknown => (Progress, Quiet, "an event of a later version of dogwatch".to_owned()),
    };
    Sentence::new(weight, tone, &text)
}

/// Returns the sentence that the API and the HTML report add to an event. Plain progress has none: it is too frequent,
/// and its fields contain the same.
pub fn in_list(event: &Event) -> Option<String> {
    let has_one = !matches!(event, Event::Observed { .. } | Event::Unknown);
    has_one.then(|| sentence(event, Style::Full).text)
}

/// Describes a request that the agent retries: `retrying a request (HTTP 529), next attempt in 30s`.
pub fn retrying(status: Option<u16>, delay: Option<crate::time::dur::Dur>) -> String {
    let status = status.map_or_else(String::new, |status| format!(" (HTTP {status})"));
    let delay = delay.map_or_else(String::new, |delay| format!(", next attempt in {}", length(delay)));
    format!("retrying a request{status}{delay}")
}

/// Returns a machine-readable word as people write it: `check failed` for `check_failed`.
pub fn spaced(word: &str) -> String {
    word.replace('_', " ")
}
