//! Requests of the operator to a running fleet.

use super::dir::{DirArgs, FleetDir};
use super::listing;
use crate::error::{CliError, print_line};
use dogwatch_core::text::printable;
use dogwatch_fleet::operator::Operator;
use dogwatch_fleet::server::{Book, OPERATOR_LINE, User};
use dogwatch_fleet::setup::Setup;
use dogwatch_fleet::{FleetError, JoinLine, Name};
use std::time::{Duration, Instant};

/// How long a server may take to refuse a revoked secret after a reload.
const REFUSED: Duration = Duration::from_secs(10);
/// The time between two attempts to connect with a revoked secret.
const TRY_EVERY: Duration = Duration::from_millis(50);
/// How long a server that starts may take to answer. Large streams take a while to read.
const STARTING: Duration = Duration::from_secs(60);

/// Let a worker give its jobs back, take no more, and end
///
/// Use it before you upgrade or restart a machine. Other workers continue the jobs. A drained worker ends again whenever it is
/// started, until you drain it with --undo.
#[derive(clap::Args)]
pub struct Drain {
    /// Name of the worker
    name: Name,
    /// Let the worker take jobs again
    #[arg(long)]
    undo: bool,
    #[command(flatten)]
    dir: DirArgs,
}

/// List the workers, queues and jobs of the fleet
#[derive(clap::Args)]
pub struct Ls {
    /// Print the state as JSON
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    dir: DirArgs,
}

/// Runs `dogwatch fleet drain` and returns the exit code.
pub fn drain(args: &Drain) -> Result<u8, CliError> {
    let operator = connect(&args.dir)?;
    let fleet = operator.fleet().map_err(|error| failed(&error))?;
    let name = &args.name;
    // Another machine of the operator has no book. There, only workers that the fleet has seen are known.
    let joined = args.dir.dir()?.book().is_ok_and(|book| book.workers().any(|user| user.name == *name));
    if !joined && !fleet.knows(name) {
        return Err(CliError::with_help(
            format!("worker `{name}` does not exist"),
            "`dogwatch fleet ls` lists the workers",
        ));
    }
    let was_draining = fleet.draining.contains(name);
    operator.drain(name, !args.undo).map_err(|error| failed(&error))?;
    let text = match (args.undo, was_draining) {
        (true, true) => format!("{name} may take jobs again; start it again if it has ended\n"),
        (true, false) => format!("{name} was not drained; it may take jobs\n"),
        (false, _) => {
            format!(
                "{name} gives its jobs back and ends; let it work again with `dogwatch fleet drain {name} --undo`\n"
            )
        }
    };
    crate::commands::print(text.as_bytes())
}

/// Runs `dogwatch fleet ls` and returns the exit code.
pub fn ls(args: &Ls) -> Result<u8, CliError> {
    let operator = connect(&args.dir)?;
    let fleet = operator.fleet().map_err(|error| failed(&error))?;
    let dir = args.dir.dir()?;
    // Another machine of the operator has no book: the workers that are present are listed all the same.
    let book = dir.book().ok();
    match args.json {
        true => crate::commands::print_json(&listing::json(&fleet)),
        false => crate::commands::print(printable(&listing::table(&fleet, book.as_ref())).as_bytes()),
    }
}

/// Connects with the operator's join line.
pub fn connect(dir: &DirArgs) -> Result<Operator, CliError> {
    let line = crate::fleet_line::operator(&dir.dir()?.file(OPERATOR_LINE))?;
    Operator::connect(&line).map_err(|error| failed(&error))
}

/// Explains why a request failed.
pub fn failed(error: &FleetError) -> CliError {
    match error {
        FleetError::Connect { .. } => {
            CliError::with_help(error.to_string(), "start the server with `dogwatch fleet up`")
        }
        FleetError::Denied { .. } => CliError::with_help(
            error.to_string(),
            format!("copy `{OPERATOR_LINE}` again from the fleet's directory"),
        ),
        FleetError::NoAnswer
        | FleetError::NoResponders
        | FleetError::Conflict
        | FleetError::Refused { .. }
        | FleetError::BadAnswer(_) => CliError::usage(error.to_string()),
    }
}

/// Returns the operator's join line for a server on this machine.
pub fn local_line(dir: &FleetDir, book: &Book) -> Result<JoinLine, CliError> {
    let line = crate::fleet_line::operator(&dir.file(OPERATOR_LINE))?;
    // The server may be reachable by its public name only from outside.
    Ok(JoinLine { servers: vec![format!("127.0.0.1:{}", book.listen.port)], ..line })
}

/// Creates the streams, buckets and queues of a fleet whose server has just started.
pub fn set_up(line: &JoinLine, accounts: &[Name]) -> Result<(), CliError> {
    let began = Instant::now();
    loop {
        let done = Operator::connect(line).and_then(|operator| operator.set_up(accounts, Setup::default()));
        match done {
            Ok(()) => return Ok(()),
            Err(error) if began.elapsed() > STARTING => return Err(failed(&error)),
            Err(FleetError::Refused { code, description }) => {
                return Err(failed(&FleetError::Refused { code, description }));
            }
            // The server opens its port, and JetStream a moment after it.
            Err(_) => std::thread::sleep(TRY_EVERY),
        }
    }
}

/// Creates the queues of new accounts on a running server. The next start of the server creates them otherwise.
pub fn create_accounts(dir: &FleetDir, accounts: &[Name]) {
    let created = crate::fleet_line::operator(&dir.file(OPERATOR_LINE))
        .map_err(|error| error.message())
        .and_then(|line| Operator::connect(&line).map_err(|error| error.to_string()))
        .and_then(|operator| operator.create_accounts(accounts).map_err(|error| error.to_string()));
    if created.is_err() {
        print_line(
            "note: the server does not answer; `dogwatch fleet up` creates the queues of new accounts",
        );
    }
}

/// Removes the orders to an earlier worker with this name.
pub fn admit(dir: &FleetDir, name: &Name) {
    tell_server(dir, |operator| operator.admit(name));
}

/// Records that a worker was revoked, so that it is listed as such.
pub fn mark_revoked(dir: &FleetDir, name: &Name) {
    tell_server(dir, |operator| operator.revoke(name));
}

/// Sends a request that may be lost if the server is away.
fn tell_server(dir: &FleetDir, request: impl FnOnce(&Operator) -> Result<(), FleetError>) {
    let line = crate::fleet_line::operator(&dir.file(OPERATOR_LINE)).ok();
    let operator = line.and_then(|line| Operator::connect(&line).ok());
    if let Some(operator) = operator
        && let Err(error) = request(&operator)
    {
        print_line(&format!("warning: {error}"));
    }
}

/// Waits until the server refuses a revoked worker.
pub fn wait_until_refused(dir: &FleetDir, book: &Book, user: &User) -> Result<(), CliError> {
    let line: JoinLine =
        dir.line(book, user)?.parse().map_err(|_| CliError::internal("the join line is not valid"))?;
    let line = JoinLine { servers: vec![format!("127.0.0.1:{}", book.listen.port)], ..line };
    let began = Instant::now();
    while Operator::connect(&line).is_ok() {
        if began.elapsed() > REFUSED {
            return Err(CliError::with_help(
                format!("the server still accepts {}", user.name),
                "restart it with `dogwatch fleet up`",
            ));
        }
        std::thread::sleep(TRY_EVERY);
    }
    Ok(())
}
