use crate::error::CliError;
use crate::runs::{FoundRun, registered, runs_in, state_dir};
use crate::screen::words;
use dogwatch_core::record::event::{Event, Recorded};
use dogwatch_core::settings::{ReaderName, WatchPolicy};
use dogwatch_core::time::dur::Limit;
use dogwatch_core::watch::replay::{JournalReplay, Replayed};
use dogwatch_core::watch::tune::{Advice, Key, Kind, Trial, advise};
use std::path::PathBuf;

/// Propose watchdog limits from the recorded sessions
///
/// Replays the sessions of this project's runs under different limits. For each limit it shows how many good sessions
/// it would have stopped, and how much sooner it would have stopped the stuck ones. A limit that the good sessions have
/// hardly exercised gets no proposal. It changes nothing: copy the limits you like into dogwatch.toml. See docs/guide/replay.md.
#[derive(clap::Args)]
pub struct Args {
    /// Use the runs of all your projects on this machine
    #[arg(long, short)]
    all: bool,
    /// Number of runs to use, newest first
    #[arg(long, short = 'n', value_name = "N", default_value_t = RUNS, value_parser = clap::value_parser!(u64).range(1..=MAX_RUNS))]
    limit: u64,
    /// Print the proposal as JSON (docs/guide/replay.md)
    #[arg(long)]
    json: bool,
    /// State directory of the project [default: .dogwatch]
    #[arg(long, value_name = "DIR", conflicts_with = "all")]
    state_dir: Option<PathBuf>,
}

/// The default number of runs to replay.
const RUNS: u64 = 100;
/// The largest number of runs to replay.
const MAX_RUNS: u64 = 1000;
/// The most events to hold in memory and replay. Older runs are skipped.
const MAX_EVENTS: usize = 500_000;

/// Runs `dogwatch tune` and returns the exit code.
pub fn run(args: &Args) -> Result<u8, CliError> {
    let runs: Vec<FoundRun> =
        if args.all { registered().collect() } else { runs_in(&state_dir(args.state_dir.as_deref()).runs()) };
    if runs.is_empty() {
        return Err(CliError::with_help(
            "no recorded runs to learn from",
            "start one with `dogwatch run`, or pass --all to use all your projects",
        ));
    }
    let journals = Journals::read(runs, usize::try_from(args.limit).unwrap_or(usize::MAX));
    let tuned = journals.tune();
    if args.json { super::print_json(&tuned) } else { super::print(text(&tuned).as_bytes()) }
}

/// The journals to replay.
struct Journals {
    journals: Vec<Vec<Recorded>>,
    left_out: usize,
}

/// The proposal, in the shape of the JSON output.
#[derive(serde::Serialize)]
struct Tuned {
    runs: usize,
    /// The number of older runs and of unreadable records.
    runs_left_out: usize,
    good: usize,
    stuck: usize,
    unclear: usize,
    limits: Vec<Advice>,
}

impl Journals {
    /// Reads the newest runs up to both limits.
    fn read(runs: Vec<FoundRun>, limit: usize) -> Journals {
        let all = runs.len();
        let (mut journals, mut events) = (Vec::new(), 0);
        for found in runs.into_iter().take(limit) {
            let Ok(loaded) = found.record() else { continue };
            events += loaded.events.len();
            if events > MAX_EVENTS && !journals.is_empty() {
                break;
            }
            journals.push(loaded.events);
        }
        Journals { left_out: all - journals.len(), journals }
    }

    /// Tries other limits on the recorded sessions.
    fn tune(&self) -> Tuned {
        let own = self.replay(None::<fn(&WatchPolicy, ReaderName) -> WatchPolicy>);
        let count = |kind| own.iter().filter(|s| Kind::of(&s.summary) == kind).count();
        let limits = Key::ALL.into_iter().map(|key| {
            advise(key, self.current_limit(key), &own, |limit| {
                let other = |own: &WatchPolicy, _: ReaderName| {
                    let mut policy = own.clone();
                    key.set(&mut policy, Limit::At(limit));
                    policy
                };
                self.replay(Some(other)).into_iter().map(|session| session.summary).collect()
            })
        });
        Tuned {
            runs: self.journals.len(),
            runs_left_out: self.left_out,
            good: count(Kind::Good),
            stuck: count(Kind::Stuck),
            unclear: count(Kind::Unclear),
            limits: limits.collect(),
        }
    }

    /// Replays all sessions, under their own policy or another one.
    fn replay(&self, policy: Option<impl Fn(&WatchPolicy, ReaderName) -> WatchPolicy>) -> Vec<Replayed> {
        let one = |events: &Vec<Recorded>| {
            let mut replay = JournalReplay::new(policy.as_ref());
            events.iter().for_each(|recorded| replay.take(recorded));
            replay.finish()
        };
        self.journals.iter().flat_map(one).collect()
    }

    /// Returns the limit in force in the first node of the newest run.
    #[expect(clippy::wildcard_enum_match_arm, reason = "only a few events matter here")]
    fn current_limit(&self, key: Key) -> Limit {
        let started = self.journals.iter().flatten().find_map(|recorded| match &recorded.event {
            Event::RunStarted(run) => run.settings.nodes.first(),
            _ => None,
        });
        started.map_or(Limit::Off, |node| key.of(&node.settings.watchdog))
    }
}

/// Formats the proposal as text.
fn text(tuned: &Tuned) -> String {
    let runs = words::count(tuned.runs as u64, "run");
    let left_out = match tuned.runs_left_out {
        0 => String::new(),
        n => format!(" ({n} skipped)"),
    };
    let mut lines = vec![format!(
        "From {runs}{left_out}: {}, {} stopped by the watchdog, {} unclear",
        words::count(tuned.good as u64, "good session"),
        tuned.stuck,
        tuned.unclear
    )];
    // With too few good sessions all limits have the same reason, so print it once.
    if let Some(first) =
        tuned.limits.first().filter(|first| tuned.limits.iter().all(|other| other.why == first.why))
    {
        lines.push(first.why.clone());
    } else {
        for advice in &tuned.limits {
            lines.push(String::new());
            lines.extend(limit_lines(advice, tuned));
        }
    }
    let proposed: Vec<String> = tuned
        .limits
        .iter()
        .filter_map(|advice| Some(format!("{} = \"{}\"", advice.key, advice.proposed_s?)))
        .collect();
    lines.push(String::new());
    if proposed.is_empty() {
        lines.push("Nothing to change.".to_owned());
    } else {
        lines.push("In dogwatch.toml:".to_owned());
        lines.push("  [watchdog]".to_owned());
        lines.extend(proposed.iter().map(|line| format!("  {line}")));
    }
    lines.join("\n") + "\n"
}

/// Returns the lines about one limit: the advice and its trials.
fn limit_lines(advice: &Advice, tuned: &Tuned) -> Vec<String> {
    let now = advice.now_s.map_or_else(|| "off".to_owned(), |now| now.to_string());
    let proposed = advice.proposed_s.map_or_else(|| "keep".to_owned(), |limit| format!("proposed {limit}"));
    let mut lines = vec![format!("watchdog.{}  now {now}, {proposed}: {}", advice.key, advice.why)];
    lines.extend(advice.trials.iter().map(|trial| trial_line(trial, advice, tuned)));
    lines
}

/// Returns the line about one tried limit.
fn trial_line(trial: &Trial, advice: &Advice, tuned: &Tuned) -> String {
    let Trial { limit_s, good_ended, sooner, sooner_s } = trial;
    let cost = match good_ended {
        0 => format!("spares all {} good sessions", tuned.good),
        n => format!("would have stopped {n} of {} good sessions", tuned.good),
    };
    let gain = match sooner {
        0 => String::new(),
        n => format!("; stops {n} of {} stuck ones sooner, by {sooner_s} in total", tuned.stuck),
    };
    let mark = if advice.proposed_s == Some(*limit_s) { "  <- proposed" } else { "" };
    format!("  {:>6}  {cost}{gain}{mark}", limit_s.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;
    use dogwatch_core::time::dur::Dur;
    use dogwatch_core::watch::tune::Samples;

    #[test]
    fn proposed_limits_are_printed_as_toml() {
        let trial = |secs, good_ended| Trial {
            limit_s: Dur::from_secs(secs),
            good_ended,
            sooner: 1,
            sooner_s: Dur::from_secs(600 - secs),
        };
        let samples = Samples { unit: "calls", seen: 200, needed: 100 };
        let idle = Advice {
            key: "idle",
            now_s: Some(Dur::from_mins(10)),
            spares_all_s: Some(Dur::from_secs(60)),
            proposed_s: Some(Dur::from_secs(90)),
            why: "so".to_owned(),
            samples,
            trials: vec![trial(45, 3), trial(60, 0), trial(90, 0)],
        };
        let other = Advice {
            key: "tool",
            now_s: None,
            spares_all_s: None,
            proposed_s: None,
            why: "no proposal, 12 of 100 calls needed".to_owned(),
            samples,
            trials: vec![],
        };
        let tuned =
            Tuned { runs: 2, runs_left_out: 1, good: 30, stuck: 1, unclear: 4, limits: vec![idle, other] };
        assert_eq!(
            text(&tuned),
            "From 2 runs (1 skipped): 30 good sessions, 1 stopped by the watchdog, 4 unclear\n\
             \n\
             watchdog.idle  now 10m, proposed 1m30s: so\n     \
             45s  would have stopped 3 of 30 good sessions; stops 1 of 1 stuck ones sooner, by 9m15s in total\n      \
             1m  spares all 30 good sessions; stops 1 of 1 stuck ones sooner, by 9m in total\n   \
             1m30s  spares all 30 good sessions; stops 1 of 1 stuck ones sooner, by 8m30s in total  <- proposed\n\
             \n\
             watchdog.tool  now off, keep: no proposal, 12 of 100 calls needed\n\
             \n\
             In dogwatch.toml:\n  \
             [watchdog]\n  \
             idle = \"1m30s\"\n"
        );
    }
}
