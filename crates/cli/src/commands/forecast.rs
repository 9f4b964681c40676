use crate::error::CliError;
use crate::loading::LoopFile;
use crate::runs::{runs_in, state_dir};
use crate::screen::words;
use dogwatch_config::Flags;
use dogwatch_core::learn::{DAYS, Forecast, Judged, Now, Replayed, Savings, Schedule, Trace};
use dogwatch_core::record::status::Status;
use dogwatch_core::settings::{IdlePolicy, Strategy};
use dogwatch_core::text::printable;
use dogwatch_core::time::dur::Dur;
use dogwatch_core::time::moment::Wall;
use dogwatch_host::clock;
use dogwatch_host::prompt;
use dogwatch_host::store::home::{STATE_DIR, StateDir};
use dogwatch_host::store::learned::{Depth, Loop};
use std::fmt::Write as _;
use std::path::{Path, PathBuf};

/// Show when work is expected and when a loop will look for it
///
/// Reads the earlier runs of the loop and shows when its work usually arrives, the next looks under
/// `idle.strategy: learned`, and what learning saved compared with plain waits. With --trace it replays recorded arrivals
/// instead: it learns from the first half of the days and judges the second half. See docs/guide/idling.md.
#[derive(clap::Args)]
#[command(after_help = "Examples:
  dogwatch forecast my-loop               show the pattern and the next looks
  dogwatch forecast --trace arrivals.txt  compare waits on recorded arrivals")]
pub struct Args {
    /// Directory with RALPH.md or graph.*, or such a file
    #[arg(value_name = "LOOP", default_value = ".", add = crate::completing::loops())]
    path: PathBuf,
    /// Replay this file instead: one arrival per line in Unix seconds
    #[arg(long, value_name = "FILE")]
    trace: Option<PathBuf>,
    /// How much waiting an empty look is worth [default: idle.look]
    #[arg(long, value_name = "D")]
    look: Option<Dur>,
    /// Longest learned wait [default: idle.longest]
    #[arg(long, value_name = "D")]
    longest: Option<Dur>,
    /// Print the forecast as JSON (docs/guide/idling.md)
    #[arg(long)]
    json: bool,
    /// State directory of the project [default: .dogwatch]
    #[arg(long, value_name = "DIR")]
    state_dir: Option<PathBuf>,
}

/// The largest trace that is read, in bytes.
const MAX_TRACE: usize = 64 * 1024 * 1024;

/// Runs `dogwatch forecast` and returns the exit code.
pub fn run(args: &Args) -> Result<u8, CliError> {
    match &args.trace {
        Some(file) => replay(args, file),
        None => forecast(args),
    }
}

fn replay(args: &Args, file: &Path) -> Result<u8, CliError> {
    let cannot = |why: String| {
        CliError::with_help(
            format!("cannot read {}: {why}", file.display()),
            "--trace FILE has one arrival per line, in Unix seconds",
        )
    };
    let text = prompt::read_at_most(file, MAX_TRACE).map_err(|error| cannot(error.to_string()))?;
    let trace = Trace::parse(&text).map_err(|error| cannot(error.to_string()))?;
    let judged = trace.judge(&Schedule::of(&adjusted(&IdlePolicy::default(), args), false));
    if args.json { super::print_json(&judged) } else { super::print_text(&judged_text(&judged)) }
}

/// Applies the flags to a policy.
fn adjusted(policy: &IdlePolicy, args: &Args) -> IdlePolicy {
    IdlePolicy {
        look: args.look.or(policy.look),
        longest: args.longest.unwrap_or(policy.longest),
        ..policy.clone()
    }
}

fn judged_text(judged: &Judged) -> String {
    let mut text = "             looks/day  mean wait        p95\n".to_owned();
    let mut row = |name: &str, replayed: &Replayed| {
        let Replayed { looks_per_day, mean_s, p95_s, .. } = replayed;
        let _ = writeln!(text, "{name:<12} {looks_per_day:>9.1} {mean_s:>9.0}s {p95_s:>9.0}s");
    };
    row("learned", &judged.learned);
    row("exponential", &judged.exponential);
    let _ = writeln!(text, "learned waits cost {:.0}% of exponential ones", judged.cost_ratio * 100.0);
    text
}

/// The forecast of a loop, in the shape of the JSON output.
#[derive(serde::Serialize)]
struct Forecasts {
    path: String,
    /// Why a part of the history is not used.
    notices: Vec<String>,
    nodes: Vec<Forecast>,
}

fn forecast(args: &Args) -> Result<u8, CliError> {
    let file = LoopFile::find(&args.path)?;
    let mut plan = file.load(&Flags::default(), &[], false)?.plan;
    plan.nodes.retain(|node| node.settings.idle.is_some());
    if plan.nodes.is_empty() {
        return Err(CliError::with_help(
            format!("{} has no idle policy, so it never waits for work", file.shown()),
            "add `idle: {strategy: learned}` to its settings",
        ));
    }
    let state = StateDir::at(args.state_dir.clone().unwrap_or_else(|| file.work_dir.join(STATE_DIR)));
    let (work_dir, loop_file) = (file.work_dir.display().to_string(), file.path.display().to_string());
    let place = Loop { state_dir: &state, work_dir: &work_dir, loop_file: &loop_file };
    let history = place.read(&plan, Depth::All, None);
    let live = live_status(&state, &loop_file);
    let now = clock::now().wall;
    let offset_ms = i64::from(clock::utc_offset_s(now)) * 1_000;
    let nodes = plan.nodes.iter().filter_map(|node| {
        let learned = history.nodes.get(&node.name)?;
        let policy = adjusted(node.settings.idle.as_ref()?, args);
        let here = Now { wall: now, offset_ms, age: Dur::ZERO, looks: 0, until: None, skipped: false };
        let own = Forecast::new(node.name.as_str(), learned, &policy, here);
        let waits = live.iter().flat_map(|status| &status.nodes).find(|other| other.name == node.name);
        Some(match waits.and_then(|node| node.forecast.clone()) {
            // A live run knows its current wait; the savings are those of all runs.
            Some(live) if args.look.is_none() && args.longest.is_none() => {
                Forecast { saved: own.saved, ..live }
            }
            Some(_) | None => own,
        })
    });
    let forecasts = Forecasts { path: loop_file.clone(), nodes: nodes.collect(), notices: history.problems };
    if args.json { super::print_json(&forecasts) } else { super::print_text(&printable(&text(&forecasts))) }
}

/// Returns the status of the loop's live run, if there is one.
fn live_status(state: &StateDir, loop_file: &str) -> Option<Status> {
    let runs = runs_in(&state_dir(Some(state.path())).runs());
    let live = runs.into_iter().filter(|run| run.is_live());
    live.filter_map(|run| run.ask::<Status>("/v1/status"))
        .find(|status| status.path.as_deref() == Some(loop_file))
}

fn text(forecasts: &Forecasts) -> String {
    let mut text = String::new();
    for notice in &forecasts.notices {
        let _ = writeln!(text, "note: {notice}");
    }
    for forecast in &forecasts.nodes {
        let _ = writeln!(text, "{}: {}", forecast.node, forecast.explanation);
        if forecast.strategy != Strategy::Learned {
            let _ = writeln!(
                text,
                "  the loop waits by `{}`; the looks below need `idle: {{strategy: learned}}`",
                forecast.strategy.as_str()
            );
        }
        chart(&mut text, &forecast.week);
        let at = |wall: Wall| clock_text(wall, forecast.utc_offset_s);
        let looks: Vec<String> = forecast.looks.iter().map(|look| at(look.at)).collect();
        let _ = writeln!(text, "  next looks: {}", looks.join(", "));
        if let Some(expected) = forecast.expected_at {
            let _ = writeln!(text, "  work expected by {}", at(expected));
        }
        let _ = writeln!(text, "  {}", saved_text(&forecast.saved));
    }
    text
}

/// Appends the chart: seven rows of 24 blocks, relative to the busiest hour.
fn chart(text: &mut String, week: &[u8]) {
    const BLOCKS: [char; 9] = [' ', '▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'];
    text.push_str("       00    06    12    18\n");
    for (day, hours) in DAYS.iter().zip(week.chunks(24)) {
        let row: String = hours.iter().map(|level| BLOCKS[usize::from(*level).min(8)]).collect();
        let _ = writeln!(text, "  {}  {}", &day[..3], row.trim_end());
    }
}

fn saved_text(saved: &Savings) -> String {
    if saved.streaks == 0 {
        return "nothing saved yet: no idle streak ended with work".to_owned();
    }
    let mean = |sum: Dur| words::length(Dur::from_secs(sum.as_millis() / 1000 / saved.streaks));
    format!(
        "{} that ended with work: {} instead of {} with plain waits, mean wait {} instead of {}",
        words::count(saved.streaks, "idle streak"),
        words::count(saved.looks, "empty look"),
        saved.plain_looks,
        mean(saved.waited_s),
        mean(saved.plain_waited_s),
    )
}

/// Formats the weekday and the time of day of a moment, in the forecast's time zone.
fn clock_text(wall: Wall, offset_s: i64) -> String {
    let local = wall.0.saturating_add(offset_s.saturating_mul(1_000));
    let at = jiff::Timestamp::from_millisecond(local).unwrap_or(jiff::Timestamp::UNIX_EPOCH);
    at.strftime("%a %H:%M").to_string()
}
