use super::prices;
use crate::detached;
use crate::error::{CliError, print_diagnostics};
use crate::leash::LeashFlag;
use crate::loading::{LoopFile, SettingFlags, check_path};
use crate::log_dir::LogDir;
use crate::pinning;
use crate::sandboxing;
use crate::screen::ShowFlags;
use crate::secrets;
use crate::since_last_run;
#[cfg(feature = "fleet")]
use crate::spread::SpreadFlags;
use crate::supervise::{Ready, hold, keep_head, random, supervise};
use dogwatch_config::Loaded;
use dogwatch_core::Run;
use dogwatch_core::learn::Arrivals;
use dogwatch_core::record::event::RunStarted;
use dogwatch_core::record::ids::{NodeName, RunId};
use dogwatch_core::run::input::Input;
use dogwatch_core::settings::{NodePlan, Plan, Strategy};
use dogwatch_core::text::shell::command_line;
use dogwatch_host::clock;
use dogwatch_host::driver::Setup;
use dogwatch_host::git::snapshot::Pristine;
use dogwatch_host::sandbox::Ground;
use dogwatch_host::store::fleet_job;
use dogwatch_host::store::home::{STATE_DIR, StateDir};
use dogwatch_host::store::journal::{Journal, MAX_LINE};
use dogwatch_host::store::learned::{Depth, Loop};
use dogwatch_host::store::lock::Place;
use dogwatch_host::store::registry::LastRun;
use dogwatch_host::store::windows::WindowStore;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

/// Loop an agent over a prompt, or run a graph of nodes
///
/// PATH is a loop file (RALPH.md: the settings as YAML frontmatter, then the prompt) or a graph file (graph.yaml, .yml,
/// .toml or .json: nodes with dependencies), or a directory that contains one of them. Any other file is a loop file too; one
/// without settings (PROMPT.md) needs --agent. Every iteration runs the
/// commands of the file, inserts their output into the prompt, passes the prompt to the agent on stdin and records
/// the result.
///
/// While the agent works, press Ctrl-C once to stop after the iteration, twice to interrupt the agent, three times
/// to kill it. During a wait, press Ctrl-C once to start the next iteration now, twice to stop the run.
///
/// When the run ends, no process that the agent started is left running.
#[derive(clap::Args)]
#[command(after_help = AFTER_HELP)]
pub struct Args {
    /// Directory with RALPH.md or graph.*, or such a file
    #[arg(default_value = ".", add = crate::completing::loops())]
    path: PathBuf,
    #[command(flatten)]
    settings: SettingFlags,
    #[command(flatten)]
    show: ShowFlags,
    #[command(flatten)]
    leash: LeashFlag,
    #[cfg(feature = "fleet")]
    #[command(flatten)]
    spread: SpreadFlags,
    /// State directory of the project [default: .dogwatch]
    #[arg(long, value_name = "DIR")]
    state_dir: Option<PathBuf>,
    /// Directory that gets a copy of each iteration's output, as NUMBER_TIME.log
    #[arg(short = 'l', long, value_name = "DIR")]
    log_dir: Option<PathBuf>,
    /// Refuse to start if settings or checks changed since the last run
    #[arg(long)]
    strict: bool,
    /// Run away from the terminal and session of the caller
    #[arg(long, hide = true)]
    in_own_session: bool,
    /// The work tree is a fresh checkout of this commit, which has this tree
    #[arg(long, value_name = "COMMIT:TREE", hide = true)]
    pristine: Option<Pristine>,
    /// Values for the declared arguments: --name value, --name=value, or in order; `--` is needed only where a name
    /// is also an option of this command
    #[arg(last = true, value_name = "ARGS")]
    args: Vec<String>,
}

const AFTER_HELP: &str = "\
Examples:
  dogwatch run                           run the loop or graph here
  dogwatch run fix-tests -n 3            run three iterations of fix-tests
  dogwatch run PROMPT.md --agent claude  loop over a prompt without settings

Exit codes: see `dogwatch --help`. The record is in .dogwatch/runs/.";

/// Runs `dogwatch run` and returns the exit code.
pub fn run(args: Args) -> Result<u8, CliError> {
    if args.in_own_session {
        detached::leave_session()?;
    }
    let file = LoopFile::find(&args.path)?;
    let loaded = args.load(&file)?;
    pinning::refuse_empty(&loaded.plan, &file.work_dir)?;
    pinning::warn(&loaded.plan, &file.work_dir);
    let ground = Ground::around(&file.work_dir, Path::new(file.shown()));
    let sandbox = sandboxing::examine(&loaded.plan, &ground)?;
    fits_the_record(&loaded)?;
    let log_dir = args.log_dir.map(LogDir::make).transpose()?;
    let prices = prices::load()?;
    let leash = args.leash.open()?;

    let run_id = RunId::new(clock::now().wall, random()?);
    let state = StateDir::at(args.state_dir.unwrap_or_else(|| file.work_dir.join(STATE_DIR)));
    check_path(state.path())?;
    let place = Place { work_dir: &file.work_dir, loop_file: &file.path, state_dir: &state };
    let held = hold(place, &run_id)?;
    let mut loaded = loaded;
    let git = ground.work_tree.join(".git").exists();
    loaded.plan.snapshots = git;
    let no_record = |e: std::io::Error| {
        CliError::with_help(
            format!("cannot write the record to {}: {e}", state.path().display()),
            "choose another directory with --state-dir",
        )
    };
    let (learned, mut notices) = learned(&state, &file, &loaded.plan);
    let changed = since_last_run::changes(&file, &loaded);
    notices.extend(since_last_run::report(changed, args.strict)?);
    let limits = loaded.limit_notices.drain(..);
    notices.extend(limits.map(|message| Input::Noticed { kind: "limit_history", message }));
    if !git {
        notices.push(no_git());
    }
    let run_dir = state.make_run(&run_id).map_err(no_record)?;
    let run_dir = run_dir.canonicalize().unwrap_or(run_dir);
    let kept_plan = secrets::keep(&run_dir, &loaded.plan).map_err(no_record)?;
    let hidden = secrets::of(&loaded.plan);
    let mut run = Run::new(started(&file, &loaded, run_id.clone())?, loaded.plan.clone())
        .filtered(Box::new(|event| hidden.hide_in(event)));
    run.learn_from(learned);
    run.know_windows(WindowStore::of_user().of_plan(&loaded.plan));
    let durability = fleet_job::durability(&run_dir);
    let journal = Journal::create_as(&run_dir, durability).map_err(no_record)?;
    let (journal, keeps_head) = keep_head(&run_id, journal, (None, kept_plan), durability, &mut notices);
    if keeps_head {
        let last = LastRun { run: run_id.clone(), run_dir: run_dir.clone() };
        since_last_run::note(&file, &last, &mut notices);
    }
    let setup = Setup {
        run,
        run_id,
        journal,
        state_dir: state.path().canonicalize().map_err(no_record)?,
        run_dir,
        work_dir: file.work_dir,
        loop_file: file.path,
        loop_text: file.text,
        ground,
        lock: held.lock,
        nonce: held.nonce,
        leash,
        pristine: args.pristine,
        prices,
    };
    let notices = held.notices.into_iter().chain(notices).chain(sandbox).collect();
    supervise(Ready { setup, alive: None, notices, show: args.show.show(), log_dir, keeps_head })
}

impl Args {
    /// Reads the settings, and returns an error if this machine cannot run the plan.
    fn load(&self, file: &LoopFile) -> Result<Loaded, CliError> {
        let flags = self.settings.flags();
        #[cfg(feature = "fleet")]
        let flags = self.spread.of(flags);
        #[cfg_attr(not(feature = "fleet"), expect(unused_mut, reason = "only a fleet changes the plan"))]
        let mut loaded = file.load(&flags, &self.args, false)?;
        print_diagnostics(&loaded.warnings);
        #[cfg(feature = "fleet")]
        self.spread.apply(&mut loaded.plan, file)?;
        #[cfg(feature = "fleet")]
        if !self.spread.needs_agents() {
            return Ok(loaded);
        }
        loaded.runs_here()?;
        Ok(loaded)
    }
}

/// The space that the first line of the record needs in addition to the plan, in bytes.
const REST_OF_LINE: usize = 4 << 20;

/// Returns an error if the plan of a graph does not fit into the first line of the record.
fn fits_the_record(loaded: &Loaded) -> Result<(), CliError> {
    if loaded.plan.graph.is_none() {
        return Ok(());
    }
    let bytes = serde_json::to_vec(&loaded.plan).map_err(|e| CliError::internal(e.to_string()))?.len();
    let most = MAX_LINE - REST_OF_LINE;
    if bytes > most {
        return Err(CliError::with_help(
            format!("the plan of this graph has {bytes} bytes; the record allows {most}"),
            "move prompts to files (`prompt_file`) and shared settings to the top level",
        ));
    }
    Ok(())
}

/// Returns what the nodes learned in earlier runs, and notices about the parts of it that cannot be used. Nothing is read
/// unless a node uses it.
fn learned(state: &StateDir, file: &LoopFile, plan: &Plan) -> (BTreeMap<NodeName, Arrivals>, Vec<Input>) {
    let learns =
        |node: &NodePlan| node.settings.idle.as_ref().is_some_and(|idle| idle.strategy == Strategy::Learned);
    if !plan.nodes.iter().any(learns) {
        return Default::default();
    }
    let (work_dir, loop_file) = (file.work_dir.display().to_string(), file.path.display().to_string());
    let place = Loop { state_dir: state, work_dir: &work_dir, loop_file: &loop_file };
    let mut history = place.read(plan, Depth::State, None);
    if history.nodes.values().all(|node| node.arrivals.is_empty()) {
        history.problems.push("no idle history of this loop yet; starting with plain waits".to_owned());
    }
    let notices = history.problems.into_iter();
    let notices = notices.map(|message| Input::Noticed { kind: "idle_history", message }).collect();
    (history.nodes.into_iter().map(|(name, node)| (name, node.arrivals)).collect(), notices)
}

fn no_git() -> Input {
    let message = "not a git work tree: no snapshots will be taken".to_owned();
    Input::Noticed { kind: "no_snapshots", message }
}

fn started(file: &LoopFile, loaded: &Loaded, run: RunId) -> Result<RunStarted, CliError> {
    Ok(RunStarted {
        run,
        path: file.path.display().to_string(),
        work_dir: file.work_dir.display().to_string(),
        nodes: loaded.plan.nodes.iter().map(|n| n.name.clone()).collect(),
        agent: command_line(&loaded.plan.nodes[0].settings.agent),
        settings: loaded.plan.redacted(),
        boot_id: clock::boot_id(),
        pid: std::process::id(),
        dogwatch: env!("CARGO_PKG_VERSION").to_owned(),
        seed: u64::from_ne_bytes(random()?),
        settings_sha256: file.settings_sha256(),
        flags: loaded.flags(),
    })
}
