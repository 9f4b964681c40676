use crate::error::CliError;
use crate::loading::find_program;
use dogwatch_host::store::home;
use serde_json::json;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Install the plugin for interactive sessions of Claude Code
///
/// The plugin gives your own sessions tools that list the runs of a project, show their status and report what they did,
/// and a skill that explains dogwatch. It only reads unless you pass --allow-steering. Sessions that dogwatch supervises
/// get none of it.
#[derive(clap::Args)]
#[command(after_help = "Remove it with `claude plugin uninstall dogwatch@dogwatch`.")]
pub struct Args {
    #[command(subcommand)]
    action: Action,
}

#[derive(clap::Subcommand)]
enum Action {
    /// Write the plugin and install it with `claude plugin install`
    Install {
        /// Where Claude Code enables it: user, project or local
        #[arg(long, default_value = "user", value_parser = ["user", "project", "local"], hide_possible_values = true)]
        scope: String,
        /// Also let sessions start, wake and message runs
        #[arg(long)]
        allow_steering: bool,
    },
    /// Write the files of the plugin to a directory
    Write {
        /// Directory to write to, created if missing
        dir: PathBuf,
        /// Also let sessions start, wake and message runs
        #[arg(long)]
        allow_steering: bool,
    },
}

/// The files of the plugin, which is a marketplace with one entry.
const FILES: [(&str, &str); 4] = [
    (".claude-plugin/marketplace.json", include_str!("files/.claude-plugin/marketplace.json")),
    ("dogwatch/.claude-plugin/plugin.json", include_str!("files/dogwatch/.claude-plugin/plugin.json")),
    ("dogwatch/README.md", include_str!("files/dogwatch/README.md")),
    ("dogwatch/skills/dogwatch/SKILL.md", include_str!("files/dogwatch/skills/dogwatch/SKILL.md")),
];
/// The file that names the server.
const SERVER_FILE: &str = "dogwatch/.mcp.json";
/// The plugin's name in Claude Code.
const NAME: &str = "dogwatch@dogwatch";

/// Runs `dogwatch plugin` and returns the exit code.
pub fn run(args: &Args) -> Result<u8, CliError> {
    match &args.action {
        Action::Write { dir, allow_steering } => {
            write(dir, *allow_steering)?;
            super::print(format!("wrote the plugin to {}\n", dir.display()))
        }
        Action::Install { scope, allow_steering } => install(scope, *allow_steering),
    }
}

fn install(scope: &str, steering: bool) -> Result<u8, CliError> {
    let here = Path::new(".");
    let Some(claude) = find_program("claude", here) else {
        return Err(CliError::with_help(
            "claude is not on PATH",
            "install Claude Code, or write the files with `dogwatch plugin write DIR`",
        ));
    };
    let dir = home::user_state_dir().join("claude-plugin");
    write(&dir, steering)?;
    let place = dir.display().to_string();
    // Adding a marketplace again replaces it, so a new version of dogwatch updates the plugin.
    claude_says(&claude, &["plugin", "marketplace", "add", &place])?;
    // An installed plugin is not installed again, and so would keep its old files.
    let _ = claude_says(&claude, &["plugin", "uninstall", NAME, "--scope", scope]);
    claude_says(&claude, &["plugin", "install", NAME, "--scope", scope])?;
    let can = if steering { "list, report, start, wake and message runs" } else { "list and report runs" };
    let text = format!(
        "installed the plugin for the scope `{scope}`: new sessions of Claude Code can {can}\n\
         Remove it with `claude plugin uninstall {NAME} --scope {scope}`.\n"
    );
    super::print_text(&text)
}

/// Runs `claude` with these arguments. Its output is shown only if it fails.
fn claude_says(claude: &Path, args: &[&str]) -> Result<(), CliError> {
    let line = format!("claude {}", args.join(" "));
    let out = Command::new(claude)
        .args(args)
        .stdin(std::process::Stdio::null())
        .output()
        .map_err(|e| CliError::usage(format!("cannot run `{line}`: {e}")))?;
    if out.status.success() {
        return Ok(());
    }
    let said = [out.stderr, out.stdout].concat();
    let said = String::from_utf8_lossy(&said);
    Err(CliError::usage(format!("`{line}` failed: {}", dogwatch_core::text::one_line(&said, 300))))
}

/// Writes the plugin. Its own files are replaced; others in the directory stay.
fn write(dir: &Path, steering: bool) -> Result<(), CliError> {
    let put = |path: &str, text: &str| {
        let path = dir.join(path);
        let made = std::fs::create_dir_all(path.parent().unwrap_or(dir));
        made.and_then(|()| std::fs::write(&path, text))
            .map_err(|e| CliError::usage(format!("cannot write {}: {e}", path.display())))
    };
    for (path, text) in FILES {
        put(path, &text.replace("VERSION", env!("CARGO_PKG_VERSION")))?;
    }
    put(SERVER_FILE, &server(steering))
}

/// Returns the file that tells Claude Code how to start the server.
fn server(steering: bool) -> String {
    let own = std::env::current_exe().ok();
    let on_path = find_program("dogwatch", Path::new("."));
    // The name survives an update to another directory; a path is needed where it is not on PATH.
    let same = on_path.and_then(|path| path.canonicalize().ok())
        == own.as_ref().and_then(|own| own.canonicalize().ok());
    let command =
        own.filter(|_| !same).map_or_else(|| "dogwatch".to_owned(), |own| own.display().to_string());
    let mut args = vec!["mcp", "--project"];
    if steering {
        args.push("--allow-steering");
    }
    let file = json!({"mcpServers": {"dogwatch": {"command": command, "args": args}}});
    format!("{file:#}\n")
}
