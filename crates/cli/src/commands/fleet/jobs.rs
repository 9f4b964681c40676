//! Requests of the operator about one job, on whatever machine it runs.

use super::dir::DirArgs;
use super::steer::{connect, failed};
use crate::error::CliError;
use dogwatch_fleet::names::JobId;
use dogwatch_fleet::operator::Operator;
use dogwatch_fleet::record::Control;
use dogwatch_fleet::{FleetError, Name};
use std::path::PathBuf;

/// The job that a command is about.
#[derive(clap::Args)]
pub struct JobArgs {
    /// The job, as `fleet ls` shows it: ACCOUNT.JOB
    #[arg(value_name = "JOB")]
    job: String,
    #[command(flatten)]
    dir: DirArgs,
}

/// Send a message to the agent of a job with its next prompt
#[derive(clap::Args)]
pub struct Tell {
    #[command(flatten)]
    job: JobArgs,
    /// The message
    text: String,
}

/// Save the result of a job whose branch could not be pushed
///
/// Such a result is a git bundle: get it into a clone with `git fetch FILE refs/dogwatch/bundle`.
#[derive(clap::Args)]
pub struct Bundle {
    #[command(flatten)]
    job: JobArgs,
    /// File to write [default: JOB.bundle]
    #[arg(long, short, value_name = "FILE")]
    output: Option<PathBuf>,
}

/// Sends a request to the worker of a job, and returns the exit code.
pub fn control(args: &JobArgs, control: &Control) -> Result<u8, CliError> {
    let operator = connect(&args.dir)?;
    let id = parse(&operator, &args.job)?;
    let record = find(&operator, &id)?;
    if record.state.is_over() {
        let outcome = record.result.as_ref().map_or(record.state.as_str(), |result| &result.outcome);
        return Err(CliError::with_help(
            format!("{id} is over ({outcome})"),
            "`dogwatch fleet ls` lists the jobs that run",
        ));
    }
    let answer = operator.control(&id, control).map_err(|error| match error {
        FleetError::NoResponders => CliError::with_help(
            format!("no worker runs {id} now"),
            "`dogwatch fleet ls` lists the jobs that run; `stop` and `pause` also work for a job that waits",
        ),
        error @ (FleetError::Connect { .. }
        | FleetError::Denied { .. }
        | FleetError::NoAnswer
        | FleetError::Conflict
        | FleetError::Refused { .. }
        | FleetError::BadAnswer(_)) => failed(&error),
    })?;
    let detail = answer.detail.unwrap_or_default();
    match answer.ok {
        true if detail.is_empty() => {
            crate::commands::print(format!("{id}: {}\n", effect(control)).as_bytes())
        }
        true => crate::commands::print(format!("{id}: {}; {detail}\n", effect(control)).as_bytes()),
        false => Err(CliError::usage(format!("{id}: the run refused: {detail}"))),
    }
}

/// Describes what a request does to its job.
fn effect(control: &Control) -> &'static str {
    match control {
        Control::Wake => "woken",
        Control::Pause => "paused: no new iteration starts",
        Control::Resume => "resumed",
        Control::Stop => "stops after its current iteration",
        Control::Tell { .. } => "the agent gets the message with its next prompt",
    }
}

/// Reads the name of a job. A name without its account is refused with the jobs that could be meant.
fn parse(operator: &Operator, text: &str) -> Result<JobId, CliError> {
    if let Ok(id) = text.parse() {
        return Ok(id);
    }
    let fleet = operator.fleet().map_err(|error| failed(&error))?;
    let named: Vec<String> = fleet.named(text).iter().map(ToString::to_string).collect();
    let help = match named.is_empty() {
        true => "`dogwatch fleet ls` lists the jobs".to_owned(),
        false => format!("did you mean {}?", named.join(" or ")),
    };
    Err(CliError::with_help(format!("`{text}` names no job; expected ACCOUNT.JOB"), help))
}

/// Runs `dogwatch fleet tell` and returns the exit code.
pub fn tell(args: &Tell) -> Result<u8, CliError> {
    control(&args.job, &Control::Tell { text: args.text.clone() })
}

/// Runs `dogwatch fleet unschedule` and returns the exit code.
pub fn unschedule(args: &JobArgs) -> Result<u8, CliError> {
    let operator = connect(&args.dir)?;
    let id = parse(&operator, &args.job)?;
    let removed = operator.unschedule(&id).map_err(|error| failed(&error))?;
    match removed {
        true => crate::commands::print(format!("removed the schedule {id}\n").as_bytes()),
        false => Err(CliError::with_help(
            format!("schedule {id} does not exist"),
            "`dogwatch fleet ls` lists the schedules",
        )),
    }
}

/// Runs `dogwatch fleet bundle` and returns the exit code.
pub fn bundle(args: &Bundle) -> Result<u8, CliError> {
    let operator = connect(&args.job.dir)?;
    let id = parse(&operator, &args.job.job)?;
    let record = find(&operator, &id)?;
    let name = record.result.as_ref().and_then(|result| result.bundle.clone());
    let Some(name) = name else {
        let branch = record.result.and_then(|result| result.branch);
        let help = branch.map_or_else(
            || "`dogwatch fleet ls` shows the state of the job".to_owned(),
            |branch| format!("its result is {branch} in the repository"),
        );
        return Err(CliError::with_help(format!("{id} has no bundle"), help));
    };
    let worker: Option<Name> = name.split('/').next().and_then(|worker| worker.parse().ok());
    let worker = worker.ok_or_else(|| CliError::internal(format!("the bundle `{name}` names no worker")))?;
    let bytes = operator.blob(&worker, &name).map_err(|error| failed(&error))?;
    let bytes =
        bytes.ok_or_else(|| CliError::usage(format!("the server no longer has the object {name}")))?;
    let file = args.output.clone().unwrap_or_else(|| PathBuf::from(format!("{}.bundle", id.job)));
    std::fs::write(&file, &bytes)
        .map_err(|e| CliError::usage(format!("cannot write {}: {e}", file.display())))?;
    let text = format!(
        "saved {}; get it with `git fetch {} refs/dogwatch/bundle`\n",
        file.display(),
        file.display()
    );
    crate::commands::print(text.as_bytes())
}

fn find(operator: &Operator, id: &JobId) -> Result<dogwatch_fleet::record::JobRecord, CliError> {
    let record = operator.job(id).map_err(|error| failed(&error))?;
    record.ok_or_else(|| {
        CliError::with_help(format!("job {id} does not exist"), "`dogwatch fleet ls` lists the jobs")
    })
}
