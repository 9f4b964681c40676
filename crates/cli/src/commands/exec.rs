//! `dogwatch exec`: an activity-aware `timeout(1)`.

use crate::error::{CliError, print_diagnostics};
use clap::builder::PossibleValuesParser;
use dogwatch_config::{Flags, Source, Sources, load};
use dogwatch_core::settings::{Profile, ReaderName, WatchPolicy};
use dogwatch_core::text::{printable, without_error_numbers};
use dogwatch_core::time::dur::{Dur, Limit};
use dogwatch_host::exec::{self, ExecError, Outcome, Plan};
use dogwatch_host::store::secrets;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use std::ffi::OsString;
use std::os::unix::ffi::OsStringExt;
use std::path::{Path, PathBuf};

/// Run a command and stop it when it is stuck
///
/// An activity-aware timeout(1). It stops a command that makes no progress for too long (--idle, 5 minutes) or that
/// runs for too long (--session, 15 minutes), and leaves a slow command alone.
///
/// A new line on stdout or stderr is progress. A repeated line, even with another time in it, is progress only if files
/// changed or CPU was used since the last one. A silent command that uses CPU gets up to 10 more minutes
/// (watchdog.tool). Time in which the machine is suspended does not count.
///
/// stdin, stdout, stderr and the exit code are those of the command, byte for byte. INT, TERM, HUP, QUIT, USR1 and
/// USR2 are forwarded to it. When it ends, no process that it started is left, even if dogwatch itself was killed
/// with kill -9. See docs/guide/exec.md.
#[derive(clap::Args)]
#[command(override_usage = "dogwatch exec [OPTIONS] [--] COMMAND [ARG]...", after_help = AFTER_HELP)]
pub struct Args {
    /// Longest time without progress, e.g. 90s, 10m, 1h30m, or `off`
    #[arg(long, value_name = "D")]
    idle: Option<Limit>,
    /// Longest time in total, or `off`
    #[arg(long, value_name = "D")]
    session: Option<Limit>,
    /// Watchdog limits to use
    #[arg(long, value_name = "P", default_value = "quick",
        value_parser = PossibleValuesParser::new(Profile::FIXED.map(Profile::as_str)))]
    profile: String,
    /// Override a watchdog limit, e.g. --set watchdog.grace=2s
    #[arg(long = "set", value_name = "watchdog.KEY=VALUE", add = crate::completing::keys("watchdog."))]
    set: Vec<String>,
    /// Count file changes in this directory as progress
    #[arg(long, value_name = "DIR")]
    workspace: Option<PathBuf>,
    /// Interpret the output as this agent's, to detect tools, errors and loops
    #[arg(long, value_name = "NAME", default_value = "plain", hide_default_value = true,
        value_parser = PossibleValuesParser::new(ReaderName::NAMES))]
    agent: String,
    /// Append the events to this file, as JSON lines (docs/reference/events.md)
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
    /// Command to run; put `--` before it if its own options come first
    #[arg(required = true, trailing_var_arg = true, value_name = "COMMAND")]
    command: Vec<OsString>,
}

const AFTER_HELP: &str = "\
Examples:
  dogwatch exec -- make test                        5m idle, 15m in total
  dogwatch exec --idle 30s --session off -- ./sync  30s without progress
  dogwatch exec --workspace . -- ./train.sh         file changes are progress
  dogwatch exec --agent claude --profile standard -- \\
      claude -p 'fix it' --output-format stream-json --verbose

Exit codes:
  124 stopped by the watchdog, with the reason on stderr
  126 the command cannot be executed   127 command not found
  2 bad usage, nothing started         128+n killed by signal n
  otherwise the command's own exit code";

/// Runs `dogwatch exec` and returns the exit code.
pub fn run(args: Args) -> Result<u8, CliError> {
    if args.json.as_deref() == Some(Path::new("-")) {
        return Err(CliError::with_help(
            "--json needs a file: stdout belongs to the command",
            "name a file, or `./-` for a file with that name",
        ));
    }
    let reader = ReaderName::named(&args.agent).unwrap_or(ReaderName::Plain);
    secrets::install(&[]);
    let policy = policy(&args, reader)?;
    let plan = Plan {
        argv: args.command.into_iter().map(OsString::into_vec).collect(),
        policy,
        reader,
        workspace: args.workspace,
        json: args.json,
    };
    let outcome = exec::run(plan).map_err(|refused| match refused {
        ExecError::Json { .. } => CliError::with_help(
            refused.to_string(),
            "--json FILE is a file in a directory that you can write to",
        ),
        ExecError::Workspace { .. } => {
            CliError::with_help(refused.to_string(), "--workspace DIR is a directory that you can read")
        }
        ExecError::Host(error) => CliError::internal(format!("cannot run the command: {error}")),
    })?;
    print_messages(&outcome);
    Ok(outcome.code)
}

/// Builds the policy. `--idle` and `--session` override `--set`, which overrides the profile.
fn policy(args: &Args, reader: ReaderName) -> Result<WatchPolicy, CliError> {
    for (flag, limit) in [("--idle", args.idle), ("--session", args.session)] {
        if limit == Some(Limit::At(Dur::ZERO)) {
            return Err(CliError::with_help(
                format!("{flag} must be more than zero"),
                format!("use `{flag} off` for no limit"),
            ));
        }
    }
    let profile = Profile::named(&args.profile).unwrap_or(Profile::Quick);
    let mut policy = if args.set.is_empty() {
        WatchPolicy::for_reader(profile, reader)
    } else {
        policy_with_overrides(profile, reader, &args.set)?
    };
    policy.idle = args.idle.unwrap_or(policy.idle);
    policy.session = args.session.unwrap_or(policy.session);
    Ok(policy)
}

/// Applies `--set` to a profile, by the same rules as `run`. These need a loop file, so this passes one without
/// settings whose agent is never started.
fn policy_with_overrides(
    profile: Profile,
    reader: ReaderName,
    set: &[String],
) -> Result<WatchPolicy, CliError> {
    if let Some(other) = set.iter().find(|set| !set.trim_start().starts_with("watchdog.")) {
        let message = format!("--set {other}: `exec` has only watchdog settings");
        return Err(CliError::with_help(message, "use --set watchdog.KEY=VALUE"));
    }
    let flags = Flags { set: set.to_vec(), profile: Some(profile.as_str().to_owned()), ..Flags::default() };
    let text = format!("---\nagent: unused\nreader: {reader}\n---\nunused\n");
    let file = Source { name: "exec", text: &text };
    let sources = Sources::of_file(file, &flags, &dogwatch_agents::detect);
    let loaded = load(&sources, "exec")?;
    print_diagnostics(&loaded.warnings);
    Ok(loaded.plan.nodes[0].settings.watchdog.clone())
}

/// Prints the messages to stderr, each on its own line. Skips messages while stderr is blocked, so that a stuck reader
/// cannot delay the exit.
fn print_messages(outcome: &Outcome) {
    let stderr = rustix::stdio::stderr();
    let mut start = if outcome.midline { "\n" } else { "" };
    for line in &outcome.said {
        let now = Timespec { tv_sec: 0, tv_nsec: 0 };
        let ready = poll(&mut [PollFd::from_borrowed_fd(stderr, PollFlags::OUT)], Some(&now));
        if ready.is_ok_and(|ready| ready > 0) {
            let line = without_error_numbers(&secrets::hide(&printable(line)));
            let text = format!("{start}dogwatch exec: {}\n", line.replace('\n', " "));
            let _ = rustix::io::write(stderr, text.as_bytes());
        }
        start = "";
    }
}
