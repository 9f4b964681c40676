//! The commands, one file each: first the arguments with their help texts, then the implementation.

mod check;
mod completions;
mod demo;
mod diff;
mod doctor;
mod events;
mod exec;
mod feed;
#[cfg(feature = "fleet")]
mod fleet;
mod forecast;
mod gc;
mod history;
mod init;
mod last;
mod logs;
mod man;
mod mcp;
mod merge;
mod notify;
mod pause;
mod plugin;
pub mod prices;
mod ps;
mod replay;
mod report;
mod resume;
mod rights;
mod run;
mod schema;
mod serve;
mod status;
mod stop;
#[cfg(feature = "fleet")]
mod submit;
#[cfg(feature = "fleet")]
mod submit_checks;
#[cfg(feature = "fleet")]
mod submit_secrets;
mod tell;
mod top;
mod tune;
mod undo;
mod verdict;
mod wake;
#[cfg(feature = "fleet")]
mod work;

#[cfg(feature = "fleet")]
pub use fleet::FleetDir;
pub use logs::Source;
pub use report::page as report_page;
pub use status::{headline, status as status_of, text as status_text};

use crate::error::CliError;
use crate::screen::wrap_for;
use clap::Subcommand;
use dogwatch_core::text::escape_json;
use dogwatch_host::store::secrets::hide_in_json;

#[derive(Subcommand)]
pub enum Command {
    Run(run::Args),
    Init(init::Args),
    Check(check::Args),
    Exec(exec::Args),
    Ps(ps::Args),
    Status(status::Args),
    Wake(wake::Args),
    Pause(pause::Args),
    Resume(resume::Args),
    Stop(stop::Args),
    Tell(tell::Args),
    Logs(logs::Args),
    Events(events::Args),
    History(history::Args),
    Prices(prices::Args),
    Report(report::Args),
    Diff(diff::Args),
    Undo(undo::Args),
    Merge(merge::Args),
    Gc(gc::Args),
    Replay(replay::Args),
    Tune(tune::Args),
    Forecast(forecast::Args),
    Verdict(verdict::Args),
    Serve(serve::Args),
    Top(top::Args),
    #[cfg(feature = "fleet")]
    Fleet(fleet::Args),
    #[command(hide = true)]
    Feed(feed::Args),
    #[cfg(feature = "fleet")]
    Work(work::Args),
    #[cfg(feature = "fleet")]
    Submit(submit::Args),
    Mcp(mcp::Args),
    Plugin(plugin::Args),
    Notify(notify::Args),
    Doctor(doctor::Args),
    Demo(demo::Args),
    Schema(schema::Args),
    Completions(completions::Args),
    Man(man::Args),
}

impl Command {
    /// Runs the command and returns its exit code. A session may not use all of them.
    pub fn run(self) -> Result<u8, CliError> {
        self.refuse_session()?;
        match self {
            Command::Run(args) => run::run(args),
            Command::Init(args) => init::run(&args),
            Command::Check(args) => check::run(&args),
            Command::Exec(args) => exec::run(args),
            Command::Ps(args) => ps::run(&args),
            Command::Status(args) => status::run(&args),
            Command::Wake(args) => wake::run(&args),
            Command::Pause(args) => pause::run(&args),
            Command::Resume(args) => resume::run(&args),
            Command::Stop(args) => stop::run(&args),
            Command::Tell(args) => tell::run(args),
            Command::Logs(args) => logs::run(&args),
            Command::Events(args) => events::run(&args),
            Command::History(args) => history::run(&args),
            Command::Prices(args) => prices::run(&args),
            Command::Diff(args) => diff::run(&args),
            Command::Gc(args) => gc::run(&args),
            Command::Undo(args) => undo::run(&args),
            Command::Merge(args) => merge::run(&args),
            Command::Report(args) => report::run(&args),
            Command::Replay(args) => replay::run(&args),
            Command::Tune(args) => tune::run(&args),
            Command::Forecast(args) => forecast::run(&args),
            Command::Verdict(args) => verdict::run(&args),
            Command::Serve(args) => serve::run(&args),
            Command::Top(args) => top::run(&args),
            #[cfg(feature = "fleet")]
            Command::Fleet(args) => fleet::run(&args),
            Command::Feed(args) => feed::run(&args),
            #[cfg(feature = "fleet")]
            Command::Work(args) => work::run(&args),
            #[cfg(feature = "fleet")]
            Command::Submit(args) => submit::run(&args),
            Command::Mcp(args) => mcp::run(&args),
            Command::Plugin(args) => plugin::run(&args),
            Command::Notify(args) => notify::run(&args),
            Command::Doctor(args) => doctor::run(&args),
            Command::Demo(args) => demo::run(&args),
            Command::Schema(args) => schema::run(&args),
            Command::Completions(args) => completions::run(&args),
            Command::Man(args) => man::run(&args),
        }
    }
}

/// Runs `dogwatch` without a command: lists the latest runs of this project.
pub fn list_latest() -> Result<u8, CliError> {
    last::run()
}

/// Runs `dogwatch --version`, as text or as JSON.
pub fn print_version(json: bool) -> Result<u8, CliError> {
    if json {
        return print_json(&crate::version::Version::this());
    }
    print(format!("dogwatch {}\n", crate::version::version()))
}

/// Prints to stdout. A closed pipe (`| head`) is not an error.
fn print(text: impl AsRef<[u8]>) -> Result<u8, CliError> {
    use std::io::{ErrorKind, Write};
    let mut out = std::io::stdout().lock();
    match out.write_all(text.as_ref()).and_then(|()| out.flush()) {
        Err(e) if e.kind() != ErrorKind::BrokenPipe => {
            Err(CliError::internal(format!("cannot write to stdout: {e}")))
        }
        Ok(()) | Err(_) => Ok(0),
    }
}

/// Prints text for people to stdout, wrapped if that is a terminal.
fn print_text(text: &str) -> Result<u8, CliError> {
    print(wrap_for(&std::io::stdout(), text).as_bytes())
}

/// Prints a document without secrets. Names of files and tools may contain hidden characters, which must not reach a terminal.
fn print_json(value: &impl serde::Serialize) -> Result<u8, CliError> {
    let document = serde_json::to_vec(value).and_then(|json| match hide_in_json(&json) {
        Some(hidden) => serde_json::from_slice::<serde_json::Value>(&hidden)
            .and_then(|value| serde_json::to_string_pretty(&value)),
        None => serde_json::to_string_pretty(value),
    });
    let text = document.map_err(|e| CliError::internal(e.to_string()))?;
    print(escape_json(&text).into_owned() + "\n")
}

/// Returns a line of JSON, without a newline, that is safe to print like [`print_json`].
fn json_line(value: &impl serde::Serialize) -> Result<String, CliError> {
    let line = serde_json::to_string(value).map_err(|e| CliError::internal(e.to_string()))?;
    Ok(escape_json(&line).into_owned())
}
