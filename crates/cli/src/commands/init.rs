use crate::error::Failure;
use crate::loading::{LOOP_FILE, program_exists};
use std::fmt;
use std::io::{ErrorKind, Write};
use std::path::{Path, PathBuf};

/// Write a RALPH.md to start from
///
/// The file names an agent that is on PATH (the first of claude, codex, opencode, gemini; else a line of
/// shell that shows the shape), says with every setting what it does, and is ready to run. A file that is
/// there already is never touched.
#[derive(clap::Args)]
#[command(after_help = "Examples:
  dogwatch init fix-tests                  make the directory fix-tests with a RALPH.md
  dogwatch init --agent codex              a RALPH.md here, for codex")]
pub struct Args {
    /// The loop's directory; it is made if it is not there, and gives the loop its name
    #[arg(default_value = ".")]
    dir: PathBuf,
    /// The agent to write it for
    #[arg(long, value_name = "NAME", value_enum)]
    agent: Option<Agent>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Agent {
    Claude,
    Codex,
    Opencode,
    Gemini,
    /// A line of shell instead of an agent
    Sh,
}

impl Agent {
    /// In the order of preference.
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

    /// What stands behind `agent:`.
    fn command(self) -> &'static str {
        match self {
            Agent::Sh => {
                "sh -c \"echo 'I was told:'; cat; echo; echo '<!-- ralph:state idle reason=no_pending_tasks -->'\""
            }
            real => real.program(),
        }
    }

    fn remark(self) -> &'static str {
        match self {
            Agent::Sh => {
                "# This shows the shape; put an agent here: claude, codex, opencode, gemini, or any command line that\n\
                 # reads its prompt from stdin."
            }
            _ => {
                "# One word means: unattended, with no questions about permissions. Run it where that is acceptable,\n\
                 # or write the command line out. The prompt comes in by stdin."
            }
        }
    }
}

impl fmt::Display for Agent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.program())
    }
}

const TEMPLATE: &str = include_str!("init.md");

pub fn run(args: &Args) -> Result<u8, Failure> {
    let found: Vec<Agent> = Agent::REAL.into_iter().filter(|a| is_here(*a)).collect();
    let agent = args.agent.unwrap_or_else(|| found.first().copied().unwrap_or(Agent::Sh));
    let path = args.dir.join(LOOP_FILE);
    write_new(&path, &contents(agent)).map_err(|e| refuse(&path, &e))?;
    super::print(said(args, agent, &found, &path).as_bytes())
}

fn is_here(agent: Agent) -> bool {
    program_exists(agent.program(), Path::new("."))
}

fn contents(agent: Agent) -> String {
    TEMPLATE.replace("AGENT_REMARK", agent.remark()).replace("AGENT_COMMAND", agent.command())
}

fn write_new(path: &Path, text: &str) -> std::io::Result<()> {
    std::fs::create_dir_all(path.parent().unwrap_or(Path::new(".")))?;
    // Made here or not at all: what somebody else makes in between is theirs.
    let mut file = std::fs::OpenOptions::new().write(true).create_new(true).open(path)?;
    file.write_all(text.as_bytes())
}

fn refuse(path: &Path, error: &std::io::Error) -> Failure {
    match error.kind() {
        ErrorKind::AlreadyExists => Failure::with_hint(
            format!("{} is there already; it was not touched", path.display()),
            "`dogwatch init OTHER` writes one into another directory",
        ),
        _ => Failure::usage(format!("cannot write {}: {error}", path.display())),
    }
}

fn said(args: &Args, agent: Agent, found: &[Agent], path: &Path) -> String {
    let dir = args.dir.display();
    let why = match (args.agent, found.first()) {
        (Some(_), _) if !is_here(agent) => " (it is not on PATH yet)".to_owned(),
        (None, None) => ": no agent is on PATH (looked for claude, codex, opencode, gemini)".to_owned(),
        (None, Some(_)) if found.len() > 1 => {
            let others: Vec<&str> = found.iter().skip(1).map(|a| a.program()).collect();
            format!(" (also here: {}; choose with --agent)", others.join(", "))
        }
        (Some(_), _) | (None, Some(_)) => String::new(),
    };
    let text = format!(
        "wrote {} for {agent}{why}\n\
         Next:\n  \
           edit the prompt at its end\n  \
           dogwatch check {dir} --explain    is it right, and which settings are in force?\n  \
           dogwatch run {dir} -n 1           one iteration, to see\n  \
           dogwatch run {dir}                until something ends it\n",
        path.display()
    );
    dogwatch_core::text::printable(&text).into_owned()
}
