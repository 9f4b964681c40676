//! `dogwatch man`: the manual page, and the command line reference of the book.

use crate::error::CliError;
use clap::Command;

/// Print the manual page
///
/// View it with `dogwatch man | man -l -`.
#[derive(clap::Args)]
pub struct Args {
    /// Print the reference of all commands as Markdown
    #[arg(long, hide = true)]
    markdown: bool,
}

/// Runs `dogwatch man` and returns the exit code.
pub fn run(args: &Args) -> Result<u8, CliError> {
    if args.markdown {
        return super::print(reference(crate::command_line()).as_bytes());
    }
    let mut page = Vec::new();
    clap_mangen::Man::new(crate::command_line())
        .render(&mut page)
        .map_err(|e| CliError::internal(format!("cannot generate the manual page: {e}")))?;
    super::print(&page)
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
