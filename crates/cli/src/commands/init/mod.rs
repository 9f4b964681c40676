mod from;

use crate::error::CliError;
use crate::loading::{LOOP_FILE, LOOP_FILES, program_exists};
use crate::schema::File;
use dogwatch_core::text::shell::quote_path;
use std::fmt;
use std::io::{ErrorKind, Write};
use std::path::{Path, PathBuf};

/// Write a RALPH.md to start from
///
/// The file explains every setting and is ready to run. It uses the first of claude, codex, opencode and gemini that
/// is on PATH, or a shell command as a placeholder. An existing file is never changed.
///
/// With --from, the file is made from the files of another tool: ralphify, ralph-orchestrator (ralph.yml, PROMPT.md),
/// ralph-claude-code (.ralphrc, .ralph/), snarktank's ralph (prd.json, which becomes a graph.yaml) or Symphony
/// (WORKFLOW.md). Comments name the source of every setting, and what was not mapped and why.
#[derive(clap::Args)]
#[command(after_help = "Examples:
  dogwatch init fix-tests      write fix-tests/RALPH.md
  dogwatch init --agent codex  write RALPH.md in this directory, for codex
  dogwatch init --from .       convert another tool's files in this directory")]
pub struct Args {
    /// Directory of the loop, created if missing; its name becomes the name of the loop
    #[arg(default_value = ".")]
    dir: PathBuf,
    /// Agent to use in the file
    #[arg(long, value_name = "NAME", value_enum)]
    agent: Option<Agent>,
    /// Directory with the files of another tool, or one such file
    #[arg(long, value_name = "PATH")]
    from: Option<PathBuf>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Agent {
    Claude,
    Codex,
    Opencode,
    Gemini,
    /// A shell command as a placeholder
    Sh,
}

impl Agent {
    /// The agents to look for, in order of preference.
    const REAL: [Agent; 4] = [Agent::Claude, Agent::Codex, Agent::Opencode, Agent::Gemini];

    fn program(self) -> &'static str {
        match self {
            Agent::Claude => "claude",
            Agent::Codex => "codex",
            Agent::Opencode => "opencode",
            Agent::Gemini => "gemini",
            Agent::Sh => "sh",
        }
    }

    /// Returns the value of the `agent:` key.
    fn command(self) -> &'static str {
        match self {
            Agent::Sh => {
                "sh -c \"echo 'The prompt was:'; cat; echo; echo '<!-- ralph:state idle reason=no_pending_tasks -->'\""
            }
            real @ (Agent::Claude | Agent::Codex | Agent::Opencode | Agent::Gemini) => real.program(),
        }
    }

    fn remark(self) -> &'static str {
        match self {
            Agent::Sh => {
                "# A placeholder. Replace it with claude, codex, opencode, gemini, or any command that reads its prompt\n\
                 # from stdin."
            }
            Agent::Claude | Agent::Codex | Agent::Opencode | Agent::Gemini => {
                "# The name alone runs the agent unattended, without permission prompts. Use it where that is acceptable,\n\
                 # or write out the full command line. The agent reads the prompt from stdin."
            }
        }
    }
}

impl fmt::Display for Agent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.program())
    }
}

/// The first of the next steps if the file has a placeholder for the agent.
const PLACEHOLDER: &str = "set `agent` in the file: the placeholder only prints the prompt\n  ";

/// Words of the placeholder that are the same in YAML, TOML and JSON.
const PLACEHOLDER_SAYS: &str = "The prompt was:";

const TEMPLATE: &str = include_str!("template.md");

/// Runs `dogwatch init` and returns the exit code.
pub fn run(args: &Args) -> Result<u8, CliError> {
    let found: Vec<Agent> = Agent::REAL.into_iter().filter(|a| is_here(*a)).collect();
    let agent = args.agent.unwrap_or_else(|| found.first().copied().unwrap_or(Agent::Sh));
    if let Some(source) = &args.from {
        return from::run(source, &args.dir, agent);
    }
    let path = args.dir.join(LOOP_FILE);
    // Commands refuse a directory with a loop file and a graph file.
    for name in LOOP_FILES {
        let there = args.dir.join(name);
        if there.exists() {
            return Err(refuse(&there, &ErrorKind::AlreadyExists.into()));
        }
    }
    write_new(&path, &with_modeline(&contents(agent), &args.dir, File::Loop))
        .map_err(|e| refuse(&path, &e))?;
    super::print_text(&said(args, agent, &found, &path))
}

fn is_here(agent: Agent) -> bool {
    program_exists(agent.program(), Path::new("."))
}

fn contents(agent: Agent) -> String {
    TEMPLATE.replace("AGENT_REMARK", agent.remark()).replace("AGENT_COMMAND", agent.command())
}

/// Adds the comment that names the schema for editors, as the first line of the settings.
fn with_modeline(text: &str, dir: &Path, file: File) -> String {
    let Some(line) = super::schema::modeline(dir, file) else { return text.to_owned() };
    match text.strip_prefix("---\n") {
        Some(rest) => format!("---\n{line}{rest}"),
        None => format!("{line}{text}"),
    }
}

fn write_new(path: &Path, text: &str) -> std::io::Result<()> {
    let made = std::fs::create_dir_all(path.parent().unwrap_or(Path::new(".")));
    // A file is in place of the directory. The loop file itself does not exist.
    let in_place = |error: &std::io::Error| error.kind() == ErrorKind::AlreadyExists;
    made.map_err(|error| if in_place(&error) { ErrorKind::NotADirectory.into() } else { error })?;
    // `create_new` fails if another process creates the file first.
    let mut file = std::fs::OpenOptions::new().write(true).create_new(true).open(path)?;
    file.write_all(text.as_bytes())
}

#[expect(clippy::wildcard_enum_match_arm, reason = "the enum belongs to another crate and may gain variants")]
fn refuse(path: &Path, error: &std::io::Error) -> CliError {
    match error.kind() {
        ErrorKind::AlreadyExists => CliError::with_help(
            format!("{} already exists; it was not changed", path.display()),
            "use another directory with `dogwatch init DIR`",
        ),
        _ => CliError::with_help(
            format!("cannot write {}: {error}", path.display()),
            "use a directory that you can write to: `dogwatch init DIR`",
        ),
    }
}

fn said(args: &Args, agent: Agent, found: &[Agent], path: &Path) -> String {
    let dir = quote_path(&args.dir.display().to_string());
    let why = match (args.agent, found.first()) {
        (Some(_), _) if !is_here(agent) => " (it is not on PATH yet)".to_owned(),
        (None, None) => " (found no agent on PATH: claude, codex, opencode, gemini)".to_owned(),
        (None, Some(_)) if found.len() > 1 => {
            let others: Vec<&str> = found.iter().skip(1).map(|a| a.program()).collect();
            format!(" (also on PATH: {}; choose one with --agent)", others.join(", "))
        }
        (Some(_), _) | (None, Some(_)) => String::new(),
    };
    let placeholder = match (args.agent, found.first()) {
        (None, None) => PLACEHOLDER,
        (Some(_), _) | (None, Some(_)) => "",
    };
    let text = format!(
        "wrote {} for {agent}{why}\n\
         Next steps:\n  \
           {placeholder}edit the prompt at the end of the file\n  \
           dogwatch check {dir} --explain    validate the file and show the effective settings\n  \
           dogwatch run {dir} -n 1           try one iteration\n  \
           dogwatch run {dir}                run until you stop it\n",
        path.display()
    );
    dogwatch_core::text::printable(&text).into_owned()
}
