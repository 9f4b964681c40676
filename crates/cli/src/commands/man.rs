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
    let names = all.iter().filter_map(|command| command.get_bin_name()?.strip_prefix(&parent));
    let fits = names.filter(|name| name.starts_with(current) && !name.contains(' '));
    fits.map(CompletionCandidate::new).collect()
}

/// Runs `dogwatch man` and returns the exit code.
pub fn run(args: &Args) -> Result<u8, CliError> {
    if args.markdown {
        return super::print(reference(crate::command_line()).as_bytes());
    }
    if let Some(dir) = &args.dir {
        return write_all(dir);
    }
    let program = crate::command_line();
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

fn page(command: Command) -> Result<Vec<u8>, CliError> {
    let mut page = Vec::new();
    clap_mangen::Man::new(command)
        .source(format!("{PROGRAM} {}", env!("CARGO_PKG_VERSION")))
        .render(&mut page)
        .map_err(|e| CliError::internal(format!("cannot generate the manual page: {e}")))?;
    Ok(unfilled(&String::from_utf8_lossy(&page)).into_bytes())
}

/// Keeps the lines of the examples and exit codes. The pager would fill them like prose.
fn unfilled(page: &str) -> String {
    const EXTRA: &str = ".SH EXTRA\n";
    let Some((before, extra)) = page.split_once(EXTRA) else { return page.to_owned() };
    format!("{before}{EXTRA}.nf\n.in 2n\n{}", extra.replacen("\n.SH ", "\n.fi\n.SH ", 1))
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
    let program = crate::command_line();
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
        let page = page(crate::command_line()).expect("a page");
        let page = String::from_utf8(page).expect("text");
        let (_, extra) = page.split_once(".SH EXTRA\n.nf\n").expect("examples");
        let (extra, _) = extra.split_once("\n.fi\n.SH ").expect("a section after them");
        assert!(extra.contains("\n  dogwatch demo  ") && !extra.contains(".SH"), "{extra}");
    }
}
