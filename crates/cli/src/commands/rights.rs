//! Which commands a session may use.
//!
//! A process of a session belongs to the agent. It may read, and it may work on things of its own, but what belongs to
//! the operator is not for it to change. This is the only place that decides it; commands that steer a live run leave the
//! decision to the run, because an agent may steer a run that it started.

use super::Command;
use crate::error::CliError;
use dogwatch_host::process::caller::is_supervised;

/// The callers that may use a command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rights {
    /// It only reads, or it starts something of its own.
    Everyone,
    /// The run decides who may steer it. To continue a run that has no supervisor is up to the operator.
    RunDecides,
    /// It changes records, repositories, credentials or other machines.
    Operator,
}

impl Command {
    /// Returns the name of the command and who may use it.
    pub fn rights(&self) -> (&'static str, Rights) {
        use Rights::{Everyone, Operator, RunDecides};
        let unless = |reads: bool| if reads { Everyone } else { Operator };
        match self {
            Command::Run(_) => ("run", Everyone),
            Command::Init(_) => ("init", Everyone),
            Command::Check(_) => ("check", Everyone),
            Command::Exec(_) => ("exec", Everyone),
            Command::Ps(_) => ("ps", Everyone),
            Command::Status(_) => ("status", Everyone),
            Command::Wake(_) => ("wake", RunDecides),
            Command::Pause(_) => ("pause", RunDecides),
            Command::Resume(_) => ("resume", RunDecides),
            Command::Stop(_) => ("stop", RunDecides),
            Command::Tell(_) => ("tell", RunDecides),
            Command::Logs(_) => ("logs", Everyone),
            Command::Events(_) => ("events", Everyone),
            Command::History(_) => ("history", Everyone),
            Command::Prices(_) => ("prices", Everyone),
            Command::Report(_) => ("report", Everyone),
            Command::Diff(_) => ("diff", Everyone),
            Command::Undo(_) => ("undo", Operator),
            Command::Merge(_) => ("merge", Operator),
            Command::Gc(args) => ("gc", unless(args.only_lists())),
            Command::Replay(_) => ("replay", Everyone),
            Command::Tune(args) => ("tune", unless(!args.imports())),
            Command::Forecast(_) => ("forecast", Everyone),
            Command::Verdict(_) => ("verdict", Operator),
            Command::Serve(args) => ("serve", unless(!args.renews_token())),
            Command::Top(_) => ("top", Everyone),
            #[cfg(feature = "fleet")]
            Command::Fleet(args) => ("fleet", unless(args.only_lists() || args.is_session())),
            Command::Feed(_) => ("feed", Everyone),
            #[cfg(feature = "fleet")]
            Command::Work(_) => ("work", Operator),
            #[cfg(feature = "fleet")]
            Command::Submit(_) => ("submit", Operator),
            Command::Mcp(_) => ("mcp", Everyone),
            Command::Plugin(_) => ("plugin", Operator),
            Command::Notify(_) => ("notify", Operator),
            Command::Doctor(_) => ("doctor", Everyone),
            Command::Demo(_) => ("demo", Everyone),
            Command::Schema(_) => ("schema", Everyone),
            Command::Completions(_) => ("completions", Everyone),
            Command::Man(_) => ("man", Everyone),
        }
    }

    /// Returns an error if this process belongs to a session that may not use the command.
    pub fn refuse_session(&self) -> Result<(), CliError> {
        match self.rights() {
            (_, Rights::Everyone | Rights::RunDecides) => Ok(()),
            (name, Rights::Operator) => operator_only(&format!("use `dogwatch {name}` here")),
        }
    }
}

/// Returns an error if this process belongs to a session of a run.
pub fn operator_only(what: &str) -> Result<(), CliError> {
    if !is_supervised() {
        return Ok(());
    }
    Err(CliError::with_help(
        format!("only the operator may {what}; this process belongs to a session of a run"),
        "a session reports through its MCP tools; leave this command to the operator",
    ))
}
