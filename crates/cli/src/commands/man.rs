//! `dogwatch man`: the manual page, and the command line reference of the book.

use crate::error::CliError;
use clap::Command;
use clap_complete::engine::{ArgValueCompleter, CompletionCandidate};
use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};

const PROGRAM: &str = "dogwatch";

/// Print the manual page of dogwatch or of a command
///
/// View it with `dogwatch man | man -l -`.
#[derive(clap::Args)]
pub struct Args {
    /// Command to describe, as `run` or `fleet init` [default: dogwatch itself]
    #[arg(add = ArgValueCompleter::new(matching_names))]
    command: Vec<String>,
    /// Write the pages of dogwatch and of every command to this directory
    #[arg(long, value_name = "DIR", conflicts_with = "command")]
    dir: Option<PathBuf>,
    /// Print the reference of all commands as Markdown
    #[arg(long, hide = true)]
    markdown: bool,
}

/// Completes the name of a command, word by word.
fn matching_names(current: &OsStr) -> Vec<CompletionCandidate> {
    let Some(current) = current.to_str() else { return Vec::new() };
    // A completer gets only the last word of the line. The program gets all of them.
    let line: Vec<OsString> = std::env::args_os().skip_while(|word| word != "man").collect();
    let before = line.iter().skip(1).take(line.len().saturating_sub(2));
    let parent = before.fold(PROGRAM.to_owned(), |name, word| format!("{name} {}", word.display())) + " ";
    let all = below(&crate::command_line(), PROGRAM);
    let names =
        all.iter().filter_map(|command| Some((command.get_bin_name()?.strip_prefix(&parent)?, command)));
    let fits = names.filter(|(name, _)| name.starts_with(current) && !name.contains(' '));
    fits.map(|(name, command)| CompletionCandidate::new(name).help(command.get_about().cloned())).collect()
}

/// Runs `dogwatch man` and returns the exit code.
pub fn run(args: &Args) -> Result<u8, CliError> {
    if args.markdown {
        return super::print(reference(crate::command_line()).as_bytes());
    }
    if let Some(dir) = &args.dir {
        return write_all(dir);
    }
    let program = described();
    if args.command.is_empty() {
        return super::print(&page(program)?);
    }
    let name = args.command.join(" ");
    let called = format!("{PROGRAM} {name}");
    match below(&program, PROGRAM).into_iter().find(|command| command.get_bin_name() == Some(&called)) {
        Some(command) => super::print(&page(command)?),
        None => Err(CliError::with_help(
            format!("dogwatch has no command `{name}`"),
            "`dogwatch --help` lists the commands",
        )),
    }
}

/// The section of the program's page that names the files which users see.
const FILES: &str = r".SH FILES
.TP
RALPH.md, graph.yaml
A loop, and a graph of nodes with dependencies
.TP
dogwatch.toml
Settings for all loops of a project
.TP
~/.config/dogwatch/dogwatch.toml
Your own settings, for all projects
.TP
\&.dogwatch/runs/
Records of the runs of a project
";

/// The last section of the other pages. It also leads to the exit codes.
const SEE_ALSO: &str = ".SH SEE ALSO\ndogwatch(1)\n";

/// The sections for the texts after the options, by the line with which a paragraph starts.
const SECTIONS: [(&str, &str); 2] = [("Examples:", "EXAMPLES"), ("Exit codes:", "EXIT STATUS")];

fn page(mut command: Command) -> Result<Vec<u8>, CliError> {
    let mut page = Vec::new();
    clap_mangen::Man::new(command.clone())
        .source(format!("{PROGRAM} {}", env!("CARGO_PKG_VERSION")))
        .render(&mut page)
        .map_err(|e| CliError::internal(format!("cannot generate the manual page: {e}")))?;
    let page = String::from_utf8_lossy(&page);
    let mut sections = page.split("\n.SH ");
    // The generator omits an empty date, so the version would take its place.
    let mut whole = sections.next().unwrap_or_default().replacen(" 1  ", " 1 \"\" ", 1) + "\n";
    for section in sections {
        match section.split_once('\n') {
            Some(("SYNOPSIS", _)) => whole.push_str(&synopsis(&mut command)),
            Some(("EXTRA", text)) => whole.push_str(&after_options(text)),
            Some(_) | None => whole.push_str(&format!(".SH {}\n", section.trim_end())),
        }
    }
    whole.push_str(if command.get_name() == PROGRAM { FILES } else { SEE_ALSO });
    Ok(whole.into_bytes())
}

/// Returns the usage line of `--help` as a section. The generator's own lists options without their values.
fn synopsis(command: &mut Command) -> String {
    let usage = command.render_usage().to_string();
    let usage = usage.strip_prefix("Usage: ").unwrap_or(&usage).replace('-', "\\-");
    format!(".SH SYNOPSIS\n.nf\n{}\n.fi\n", usage.trim_end())
}

/// Returns the paragraphs after the options as sections. The pager would fill their lines like prose.
fn after_options(text: &str) -> String {
    let mut sections = String::new();
    let mut last = "";
    for paragraph in text.trim_end().split("\n\n") {
        let found = SECTIONS.iter().find_map(|(start, name)| Some((paragraph.strip_prefix(start)?, *name)));
        let (text, name) = found.unwrap_or((paragraph, "NOTES"));
        sections.push_str(&if name == last { ".PP\n".to_owned() } else { format!(".SH {name}\n") });
        // The lines of a list are indented, a sentence follows the colon.
        let text = text.strip_prefix('\n').unwrap_or_else(|| text.trim_start());
        sections.push_str(&format!(".in 2n\n.nf\n{text}\n.fi\n"));
        last = name;
    }
    sections
}

/// Returns the definition of the command line with the inherited options, and without `help`, which has no page.
fn described() -> Command {
    let mut program = crate::command_line().disable_help_subcommand(true);
    program.build();
    program
}

fn visible(program: &Command) -> impl Iterator<Item = &Command> {
    program.get_subcommands().filter(|command| !command.is_hide_set() && command.get_name() != "help")
}

/// Returns all visible commands below one, each under the name that its page has: `dogwatch-fleet-init`.
fn below(command: &Command, called: &str) -> Vec<Command> {
    let mut all = Vec::new();
    for command in visible(command) {
        let called = format!("{called} {}", command.get_name());
        let named = command.clone().display_name(called.replace(' ', "-")).bin_name(called.clone());
        all.push(named.version(env!("CARGO_PKG_VERSION")).disable_version_flag(true));
        all.extend(below(command, &called));
    }
    all
}

/// Writes `dogwatch.1` and a page per command.
fn write_all(dir: &Path) -> Result<u8, CliError> {
    let cannot =
        |path: &Path, e: std::io::Error| CliError::usage(format!("cannot write {}: {e}", path.display()));
    std::fs::create_dir_all(dir).map_err(|e| cannot(dir, e))?;
    let program = described();
    let commands = below(&program, PROGRAM);
    for command in std::iter::once(program).chain(commands) {
        let name = command.get_display_name().unwrap_or_else(|| command.get_name());
        let path = dir.join(format!("{name}.1"));
        std::fs::write(&path, page(command)?).map_err(|e| cannot(&path, e))?;
    }
    Ok(0)
}

/// Returns the help of every visible command as one Markdown page.
fn reference(mut program: Command) -> String {
    program = program.term_width(100);
    program.build();
    let mut page = String::from(
        "# Command line\n\nThis page is generated from the program's own help. Every command also prints it with `--help`.\n",
    );
    let commands: Vec<String> =
        program.get_subcommands().filter(|c| !c.is_hide_set()).map(|c| c.get_name().to_owned()).collect();
    page.push_str("\n| command | |\n|---|---|\n");
    for name in commands.iter().filter(|name| *name != "help") {
        let about = program.find_subcommand(name).and_then(Command::get_about);
        let about = about.map_or_else(String::new, ToString::to_string);
        page.push_str(&format!("| [`{name}`](#dogwatch-{name}) | {about} |\n"));
    }
    for name in commands.iter().filter(|name| *name != "help") {
        let Some(command) = program.find_subcommand_mut(name) else { continue };
        let help = command.render_long_help().to_string();
        let help: Vec<&str> = help.lines().map(str::trim_end).collect();
        page.push_str(&format!("\n## `dogwatch {name}`\n\n```text\n{}\n```\n", help.join("\n").trim()));
    }
    page
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_manual_page_keeps_the_lines_of_examples_and_exit_codes() {
        let page = page(described()).expect("a page");
        let page = String::from_utf8(page).expect("text");
        let (_, examples) = page.split_once(".SH EXAMPLES\n.in 2n\n.nf\n").expect("examples");
        let (examples, codes) = examples.split_once("\n.fi\n.SH EXIT STATUS\n.in 2n\n.nf\n").expect("codes");
        assert!(examples.starts_with("  dogwatch demo  ") && !examples.contains(".SH"), "{examples}");
        assert!(codes.starts_with("  0 success "), "{codes}");
    }

    #[test]
    fn a_manual_page_shows_the_usage_and_refers_only_to_pages_that_exist() {
        let program = described();
        let commands = below(&program, PROGRAM);
        let names: Vec<_> =
            commands.iter().map(|command| command.get_display_name().expect("a name")).collect();
        for command in commands.iter().cloned().chain([program]) {
            let name = command.get_display_name().unwrap_or(PROGRAM).to_owned();
            let page = String::from_utf8(page(command).expect("a page")).expect("text");
            // The third argument is the date, the fourth the version.
            let title = format!(".TH {name} 1 \"\" \"dogwatch {}\"", env!("CARGO_PKG_VERSION"));
            assert!(page.contains(&title), "{page}");
            let usage = format!(".SH SYNOPSIS\n.nf\n{}", name.replacen('-', " ", 2));
            assert!(page.contains(&usage) && !page.contains("EXTRA"), "{page}");
            assert!(page.contains("\\fB\\-\\-utc\\fR"), "a global option is missing: {page}");
            for other in page.lines().filter_map(|line| line.strip_suffix("(1)")) {
                let other = other.replace('\\', "");
                assert!(other == PROGRAM || names.contains(&other.as_str()), "{name} refers to {other}");
            }
        }
    }
}
