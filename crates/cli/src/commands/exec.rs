//! `dogwatch exec`: a `timeout(1)` that looks whether the command is at work.

use crate::error::{Failure, print_findings};
use clap::builder::PossibleValuesParser;
use dogwatch_config::{Flags, Source, Sources, load};
use dogwatch_core::dur::Limit;
use dogwatch_core::settings::{Profile, ReaderName, WatchPolicy};
use dogwatch_core::text::printable;
use dogwatch_host::exec::{self, Outcome, Plan, Refused};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use std::ffi::OsString;
use std::os::unix::ffi::OsStringExt;
use std::path::PathBuf;

/// Run a command and end it when it is stuck
///
/// A timeout(1) that looks whether the command is at work: it ends a command that has shown nothing new for too long
/// (--idle, 5 minutes), or that has lasted too long at all (--session, 15 minutes), and leaves a slow one alone.
///
/// A line on stdout or stderr that says something new is progress. The same line again, with another time in it or
/// not, counts only if files changed or the processor was used since. A silent command that uses the processor gets up to 10 minutes more (watchdog.tool). Time in which
/// the machine sleeps does not count.
///
/// stdin, stdout, stderr and the exit code are the command's own, byte for byte; INT, TERM, HUP, QUIT, USR1 and USR2
/// are passed on to it. When it ends, nothing that it started is left, not even when dogwatch itself was killed with
/// kill -9. More in docs/exec.md.
#[derive(clap::Args)]
#[command(override_usage = "dogwatch exec [OPTIONS] [--] COMMAND [ARG]...", after_help = AFTER_HELP)]
pub struct Args {
    /// End it after so long without progress: 90s, 10m, 1h30m; `off` never does
    #[arg(long, value_name = "D")]
    idle: Option<Limit>,
    /// End it after so long, whatever it does; `off` never does
    #[arg(long, value_name = "D")]
    session: Option<Limit>,
    /// A set of limits
    #[arg(long, value_name = "P", default_value = "quick",
        value_parser = PossibleValuesParser::new(Profile::ALL.map(Profile::as_str)))]
    profile: String,
    /// Set any limit of the watchdog, e.g. --set watchdog.grace=2s
    #[arg(long = "set", value_name = "watchdog.KEY=VALUE")]
    set: Vec<String>,
    /// Count changes of files below this directory as work, too
    #[arg(long, value_name = "DIR")]
    workspace: Option<PathBuf>,
    /// Read the output as this agent's, to see its tools, errors and loops; it passes unchanged
    #[arg(long, value_name = "NAME", default_value = "plain", hide_default_value = true,
        value_parser = PossibleValuesParser::new(ReaderName::ALL.map(ReaderName::as_str)))]
    agent: String,
    /// Append what happens to this file, as JSON lines (docs/events.md)
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
    /// What to run; give it after `--` if it has options of its own before its first argument
    #[arg(required = true, trailing_var_arg = true, value_name = "COMMAND")]
    command: Vec<OsString>,
}

const AFTER_HELP: &str = "\
Examples:
  dogwatch exec -- make test                        ended after 5 minutes without a new line, or 15 in all
  dogwatch exec --idle 30s --session off -- ./sync  ended by silence alone
  dogwatch exec --workspace . -- ./train.sh         files that change are progress, too
  dogwatch exec --agent claude --profile standard -- claude -p 'fix it' --output-format stream-json --verbose

Exit codes:
  124 ended by the watchdog, with the reason on stderr
  126 the command cannot be executed   127 it was not found   2 bad usage, nothing started
  128+n it died by signal n            else its own";

pub fn run(args: Args) -> Result<u8, Failure> {
    let reader = named(ReaderName::ALL, ReaderName::as_str, &args.agent).unwrap_or(ReaderName::Plain);
    let policy = policy(&args, reader)?;
    let plan = Plan {
        argv: args.command.into_iter().map(OsString::into_vec).collect(),
        policy,
        reader,
        workspace: args.workspace,
        json: args.json,
    };
    let outcome = exec::run(plan).map_err(|refused| match refused {
        Refused::Json { .. } | Refused::Workspace { .. } => Failure::usage(refused.to_string()),
        Refused::Host(error) => Failure::internal(format!("cannot run it: {error}")),
    })?;
    say(&outcome);
    Ok(outcome.code)
}

fn named<T: Copy, const N: usize>(all: [T; N], name_of: fn(T) -> &'static str, name: &str) -> Option<T> {
    all.into_iter().find(|one| name_of(*one) == name)
}

/// `--idle` and `--session` are stronger than `--set`, and that than the profile.
fn policy(args: &Args, reader: ReaderName) -> Result<WatchPolicy, Failure> {
    let profile = named(Profile::ALL, Profile::as_str, &args.profile).unwrap_or(Profile::Quick);
    let mut policy = if args.set.is_empty() {
        WatchPolicy::for_reader(profile, reader)
    } else {
        with_set(profile, reader, &args.set)?
    };
    policy.idle = args.idle.unwrap_or(policy.idle);
    policy.session = args.session.unwrap_or(policy.session);
    Ok(policy)
}

/// Keys are read by the same rules as those of `run`, which want a loop file: this one says nothing.
fn with_set(profile: Profile, reader: ReaderName, set: &[String]) -> Result<WatchPolicy, Failure> {
    if let Some(other) = set.iter().find(|set| !set.trim_start().starts_with("watchdog.")) {
        let message = format!("--set {other}: there is no run here, only the watchdog has settings");
        return Err(Failure::with_hint(message, "write --set watchdog.KEY=VALUE"));
    }
    let flags = Flags { set: set.to_vec(), profile: Some(profile.as_str().to_owned()), ..Flags::default() };
    let text = format!("---\nagent: nobody\nreader: {reader}\n---\n");
    let loaded = load(&Sources {
        loop_file: Source { name: "exec", text: &text },
        user: None,
        project: None,
        flags: &flags,
        args: &[],
        node_name: "exec",
        detect: &dogwatch_agents::detect,
        machine: None,
    })
    .map_err(Failure::Findings)?;
    print_findings(&loaded.warnings);
    Ok(loaded.plan.nodes[0].settings.watchdog.clone())
}

/// On lines of their own, and only if somebody takes them: who does not read must not hold us up.
fn say(outcome: &Outcome) {
    let stderr = rustix::stdio::stderr();
    let mut start = if outcome.midline { "\n" } else { "" };
    for line in &outcome.said {
        let now = Timespec { tv_sec: 0, tv_nsec: 0 };
        let ready = poll(&mut [PollFd::from_borrowed_fd(stderr, PollFlags::OUT)], Some(&now));
        if ready.is_ok_and(|ready| ready > 0) {
            let text = format!("{start}dogwatch exec: {}\n", printable(line).replace('\n', " "));
            let _ = rustix::io::write(stderr, text.as_bytes());
        }
        start = "";
    }
}
