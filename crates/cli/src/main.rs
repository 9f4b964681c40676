//! The `dogwatch` binary: the command line, one file per command, and everything that is printed to a terminal.

mod color;
mod commands;
mod completing;
mod detached;
mod drawing;
mod error;
#[cfg(feature = "fleet")]
mod fleet_line;
mod learned_limits;
mod leash;
mod loading;
mod local;
mod log_dir;
mod loop_args;
mod operator;
mod own_work;
mod pinning;
mod remote;
mod run_handle;
mod runs;
mod sandboxing;
mod schema;
mod screen;
mod secrets;
mod since_last_run;
mod snapshot_index;
#[cfg(feature = "fleet")]
mod spread;
mod supervise;
mod top;
mod version;

use clap::error::ErrorKind;
use clap::{CommandFactory, FromArgMatches, Parser};
use commands::Command;
use dogwatch_host::process::keeper;
use error::CliError;
use std::ffi::OsString;
use std::process::ExitCode;

/// Run coding agents unattended
///
/// dogwatch loops an agent over a prompt, stops sessions that are stuck, backs off after failures, leaves no
/// process behind and keeps a record that explains every decision.
#[derive(Parser)]
#[command(name = "dogwatch", version = version::version(), max_term_width = 100, after_help = AFTER_HELP)]
// clap's own flag prints the version as soon as it is read, and ignores mistakes in the rest of the line.
#[command(disable_version_flag = true)]
struct Cli {
    #[command(subcommand)]
    command: Option<Command>,
    /// When to color output
    #[arg(
        long,
        global = true,
        value_enum,
        value_name = "WHEN",
        default_value = "auto",
        hide_possible_values = true,
        help = "When to color output: auto, always or never"
    )]
    color: color::When,
    /// Show times in UTC instead of the local time zone
    #[arg(long, global = true)]
    utc: bool,
    /// Print the version
    #[arg(short = 'V', long)]
    version: bool,
    /// With --version: print it as JSON
    #[arg(long, requires = "version")]
    json: bool,
}

const AFTER_HELP: &str = "\
Without a command, dogwatch lists the latest runs of this project.

Examples:
  dogwatch demo                     watch a short demo; no API key needed
  dogwatch init my-loop             write my-loop/RALPH.md to start from
  dogwatch run my-loop              run my-loop/RALPH.md until you stop it
  dogwatch run my-loop -n 3         run three iterations
  dogwatch check my-loop --explain  validate it and show all settings
  dogwatch logs -f                  follow the agent's output

Exit codes:
  0 success   1 work not done   2 bad usage or configuration, nothing started
  3 a budget or ceiling stopped the run   4 another run holds this loop
  5 internal error   6 the leash ended (--leash)
  130 / 143 / 129 stopped by INT / TERM / HUP";

/// The help for a mistake in a command that needs a fleet.
const FLEET_HELP: &str =
    "help: this command needs a fleet; `dogwatch fleet init` sets one up (docs/guide/fleet.md)";

fn main() -> ExitCode {
    // This binary also serves as the keeper, the scripted agent and other helper processes. Those roles must
    // start fast, so they skip the command-line parser.
    match std::env::args_os().nth(1) {
        Some(role) if role == keeper::ARGUMENT || role == keeper::OPERATOR_ARGUMENT => return keeper::main(),
        Some(role) if role == dogwatch_host::net::notify::ARGUMENT => {
            return dogwatch_host::net::notify::main();
        }
        Some(role) if role == dogwatch_host::sandbox::ARGUMENT => {
            return dogwatch_host::sandbox::probe();
        }
        Some(role) if role == "actor" => return dogwatch_actor::main(std::env::args_os().skip(2)),
        Some(_) | None => {}
    }
    if std::env::var_os(completing::VARIABLE).is_some() {
        clap_complete::CompleteEnv::with_factory(command_line).var(completing::VARIABLE).complete();
    }
    ignore_file_size_signal();
    heed_child_signal();
    match parse(std::env::args_os().collect()) {
        Ok(cli) => {
            color::choose(cli.color);
            local::choose(cli.utc);
            if cli.version {
                return finish(commands::print_version(cli.json));
            }
            finish(cli.command.map_or_else(commands::list_latest, Command::run))
        }
        Err(mut error) => {
            // clap prints help to stdout (exit code 0) and usage errors to stderr (exit code 2).
            let code = u8::try_from(error.exit_code()).unwrap_or(2);
            if code != 0 {
                let first = std::env::args_os().nth(1).unwrap_or_default().to_string_lossy().into_owned();
                error::suggest_command(&mut error, &command_line(), &first);
                error::print_usage_error(&error);
                let missing = error.kind() == ErrorKind::MissingRequiredArgument;
                if missing && matches!(first.as_str(), "submit" | "work") {
                    error::print_line(FLEET_HELP);
                }
                return ExitCode::from(code);
            }
            match error.print() {
                Err(lost) if lost.kind() != std::io::ErrorKind::BrokenPipe => {
                    finish(Err(CliError::internal(format!("cannot write to stdout: {lost}"))))
                }
                Ok(()) | Err(_) => ExitCode::from(code),
            }
        }
    }
}

/// Parses the command line. The definition of the command line is large, so it is made once and dropped here, before the
/// command runs for hours.
fn parse(args: Vec<OsString>) -> Result<Cli, clap::Error> {
    let mut command = command_line();
    let args = loop_args::regroup(args, &command);
    let mut matches = command.try_get_matches_from_mut(args)?;
    Cli::from_arg_matches_mut(&mut matches).map_err(|error| error.format(&mut command))
}

/// Under a limit of the file size (`ulimit -f`), SIGXFSZ would kill this process in the middle of a write. Ignored, it
/// leaves a write error that is handled like a full disk. The keeper gives jobs the default action back, and the MCP
/// server, which starts the user's servers itself, keeps it.
fn ignore_file_size_signal() {
    if std::env::args_os().nth(1).is_none_or(|role| role != "mcp") {
        // It can only fail for a signal that does not exist.
        let _ = dogwatch_host::sys::ignore(rustix::process::Signal::XFSZ);
    }
}

/// A caller may ignore SIGCHLD, and this process inherits that. The kernel would then discard the exit codes of children.
fn heed_child_signal() {
    // It can only fail for a signal that does not exist.
    let _ = dogwatch_host::sys::default_action(rustix::process::Signal::CHILD);
}

fn finish(result: Result<u8, CliError>) -> ExitCode {
    match result {
        Ok(code) => ExitCode::from(code),
        Err(failure) => {
            failure.print();
            ExitCode::from(failure.exit_code())
        }
    }
}

/// Returns the clap definition of the command line, for completions and the manual page.
fn command_line() -> clap::Command {
    Cli::command()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The longest summary that fits the command list of an 80-column terminal.
    const MAX_SUMMARY: usize = 60;

    /// The longest line of the texts after the options, in columns. The parser wraps longer ones without an indent.
    const MAX_LINE: usize = 78;

    #[test]
    fn the_examples_and_exit_codes_of_every_command_fit_a_terminal() {
        let mut commands = vec![Cli::command()];
        let mut wrong = Vec::new();
        while let Some(command) = commands.pop() {
            let text = command.get_after_help().map(ToString::to_string).unwrap_or_default();
            let long = text.lines().filter(|line| line.chars().count() > MAX_LINE);
            wrong.extend(long.map(|line| format!("{}: {line}", command.get_name())));
            commands.extend(command.get_subcommands().cloned());
        }
        assert_eq!(wrong, [""; 0]);
    }

    #[test]
    fn every_command_has_a_short_summary_and_describes_its_arguments() {
        let mut wrong = Vec::new();
        for command in Cli::command().get_subcommands() {
            let name = command.get_name();
            let summary = command.get_about().map(ToString::to_string).unwrap_or_default();
            if summary.is_empty() || summary.chars().count() > MAX_SUMMARY || summary.ends_with('.') {
                wrong.push(format!("{name}: {summary:?}"));
            }
            for argument in command.get_arguments().filter(|argument| !argument.is_hide_set()) {
                let help = argument.get_help().map(ToString::to_string).unwrap_or_default();
                let is_run =
                    argument.get_value_names().is_some_and(|names| names.iter().any(|n| *n == "RUN"));
                if help.is_empty()
                    || help.ends_with('.')
                    || is_run != help.starts_with("Run id, the end of one, or the name of a loop")
                {
                    wrong.push(format!("{name} {}: {help:?}", argument.get_id()));
                }
            }
        }
        assert_eq!(wrong, [""; 0]);
    }
}
