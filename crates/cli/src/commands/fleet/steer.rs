//! Requests of the operator to a running fleet.

use super::dir::{DirArgs, FleetDir};
use crate::error::{CliError, print_line};
use crate::local;
use dogwatch_core::text::printable;
use dogwatch_fleet::operator::{Fleet, Operator};
use dogwatch_fleet::record::JobState;
use dogwatch_fleet::server::{Book, OPERATOR_LINE, Role, User};
use dogwatch_fleet::setup::Setup;
use dogwatch_fleet::{FleetError, JoinLine, Name};
use dogwatch_host::clock;
use std::time::{Duration, Instant};

/// How long a server may take to refuse a revoked secret after a reload.
const REFUSED: Duration = Duration::from_secs(10);
/// The time between two attempts to connect with a revoked secret.
const TRY_EVERY: Duration = Duration::from_millis(50);
/// How long a server that starts may take to answer.
const STARTING: Duration = Duration::from_secs(30);

/// Ask a worker to finish its jobs and take no more
///
/// Use it before you upgrade or restart a machine. The worker's jobs move to others.
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

/// The most jobs to list.
const MAX_JOBS: usize = 50;

/// Runs `dogwatch fleet drain` and returns the exit code.
pub fn drain(args: &Drain) -> Result<u8, CliError> {
    let operator = connect(&args.dir)?;
    operator.drain(&args.name, !args.undo).map_err(|error| failed(&error))?;
    let text = match args.undo {
        true => format!("{} may take jobs again\n", args.name),
        false => format!("{} ends its jobs and takes no more\n", args.name),
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
        true => crate::commands::print_json(&json(&fleet)),
        false => crate::commands::print(printable(&table(&fleet, book.as_ref())).as_bytes()),
    }
}

fn json(fleet: &Fleet) -> serde_json::Value {
    let jobs = fleet.jobs.iter().map(|(id, record)| {
        let waiting = fleet.why_waiting(id, record);
        serde_json::json!({"job": id.to_string(), "record": record, "waiting": waiting})
    });
    let queues = fleet.queues.iter().map(|queue| {
        serde_json::json!({
            "account": queue.name, "queued": queue.queued, "held": queue.held, "cap": queue.cap, "parked": queue.parked,
        })
    });
    let schedules =
        fleet.schedules.iter().map(|(id, rule)| serde_json::json!({"name": id.to_string(), "every": rule}));
    serde_json::json!({
        "workers": fleet.machines,
        "schedules": schedules.collect::<Vec<_>>(),
        "queues": queues.collect::<Vec<_>>(),
        "jobs": jobs.collect::<Vec<_>>(),
    })
}

fn table(fleet: &Fleet, book: Option<&Book>) -> String {
    let now = clock::now().wall;
    let mut text = String::new();
    for machine in fleet.entries(now) {
        let detail = machine.detail.or(machine.why).unwrap_or_default();
        let version = machine.version.map_or_else(String::new, |version| format!("dogwatch {version}, "));
        let since = local::clock(machine.since);
        text.push_str(&format!(
            "worker  {:<16}  {:<10}  since {since}  {version}{detail}\n",
            machine.name,
            state(machine.state)
        ));
    }
    let away = book.into_iter().flat_map(|book| &book.users).filter(|user| {
        user.role == Role::Worker && fleet.machines.iter().all(|machine| machine.worker != user.name)
    });
    for User { name, accounts, .. } in away {
        let accounts: Vec<&str> = accounts.iter().map(Name::as_str).collect();
        text.push_str(&format!(
            "worker  {:<16}  away        accounts {}\n",
            name.as_str(),
            accounts.join(" ")
        ));
    }
    text.push_str(&format!("{}\n", fleet.summary()));
    for (id, rule) in &fleet.schedules {
        text.push_str(&format!("every   {id}  {rule}\n"));
    }
    for (id, record) in fleet.jobs.iter().rev().take(MAX_JOBS) {
        let run = record.run.as_ref().map_or_else(String::new, |run| format!("  run {run}"));
        let detail = record.result.as_ref().filter(|_| record.state == JobState::Poisoned);
        let detail = detail.and_then(|result| result.detail.clone()).or(fleet.why_waiting(id, record));
        let detail = detail.map_or_else(String::new, |why| format!("  ({why})"));
        text.push_str(&format!(
            "job     {id}  {}  {}{run}  {}{detail}\n",
            record.state.as_str(),
            record.owner,
            record.title
        ));
    }
    text
}

fn state(state: dogwatch_server::MachineState) -> &'static str {
    match state {
        dogwatch_server::MachineState::Connecting => "connecting",
        dogwatch_server::MachineState::Up => "present",
        dogwatch_server::MachineState::Down => "lost",
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
        FleetError::NoAnswer
        | FleetError::NoResponders
        | FleetError::Conflict
        | FleetError::Refused { .. }
        | FleetError::BadAnswer(_) => CliError::usage(error.to_string()),
    }
}

/// Creates the streams, buckets and queues of a fleet whose server has just started. Returns the operator's join line.
pub fn set_up(dir: &FleetDir, book: &Book) -> Result<JoinLine, CliError> {
    let line = crate::fleet_line::operator(&dir.file(OPERATOR_LINE))?;
    // The server may be reachable by its public name only from outside.
    let line = JoinLine { servers: vec![format!("127.0.0.1:{}", book.listen.port)], ..line };
    let began = Instant::now();
    loop {
        let done =
            Operator::connect(&line).and_then(|operator| operator.set_up(&book.accounts(), Setup::default()));
        match done {
            Ok(()) => return Ok(line),
            Err(error) if began.elapsed() > STARTING => return Err(failed(&error)),
            Err(FleetError::Refused { code, description }) => {
                return Err(failed(&FleetError::Refused { code, description }));
            }
            // JetStream starts a moment after the port is open.
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
