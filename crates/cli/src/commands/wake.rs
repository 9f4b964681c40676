use super::resume::{Continue, continue_run};
use crate::detached;
use crate::error::CliError;
use crate::runs::Which;
use crate::screen::Show;
use dogwatch_core::record::event::Outcome;

/// Start the next iteration of a waiting run now
///
/// If a session is running, the run skips the next wait instead. A run that ended because it was idle continues in
/// this terminal, or with --detach in the background.
#[derive(clap::Args)]
pub struct Args {
    #[command(flatten)]
    which: Which,
    /// If the run continues in this terminal, print its events as JSON lines
    #[arg(long, conflicts_with = "detach")]
    json: bool,
    /// Continue an ended run in the background, in a new session
    #[arg(long)]
    detach: bool,
    /// Continue here, away from the terminal and session of the caller
    #[arg(long, hide = true, conflicts_with = "detach")]
    in_own_session: bool,
}

/// Runs `dogwatch wake` and returns the exit code.
pub fn run(args: &Args) -> Result<u8, CliError> {
    if args.in_own_session {
        detached::leave_session()?;
    }
    let found = args.which.find_to_steer()?;
    match found.wake() {
        Ok(woken) => return super::print_text(&format!("{woken}\n")),
        Err(failure) if found.is_live() => return Err(failure),
        Err(_) => {}
    }
    let view = found.view()?;
    let asleep = view.is_asleep() || view.ended.as_ref().is_some_and(|end| end.outcome == Outcome::Idle);
    match view.ended {
        _ if asleep && args.detach => super::print_text(&format!("{}\n", detached::wake(&found)?)),
        _ if asleep => {
            let show = if args.json { Show::Json } else { Show::Normal };
            continue_run(&found, Continue { wake: true, show, ..Continue::default() })
        }
        Some(end) => Err(CliError::with_help(
            format!("run {} has ended ({})", found.id, end.outcome),
            if matches!(end.outcome, Outcome::Stopped | Outcome::Interrupted) {
                format!("continue it with `dogwatch resume {}`", found.tail())
            } else {
                "start a new run with `dogwatch run`".to_owned()
            },
        )),
        None => Err(CliError::with_help(
            format!("the supervisor of run {} died", found.id),
            format!("continue the run with `dogwatch resume {}`", found.id),
        )),
    }
}
