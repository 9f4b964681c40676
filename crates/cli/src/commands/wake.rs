use super::resume::go_on;
use crate::detached;
use crate::error::Failure;
use crate::runs::Which;
use dogwatch_core::event::Outcome;

/// End a run's wait now
///
/// A run that lives starts its next iteration at once, or remembers the wake until its session is over.
/// A run that an idle limit stopped continues in this terminal, or with --detach in the background.
#[derive(clap::Args)]
pub struct Args {
    #[command(flatten)]
    which: Which,
    /// If the run continues here: print its events as JSON lines
    #[arg(long, conflicts_with = "detach")]
    json: bool,
    /// If the run continues: do so in the background, in a session of its own
    #[arg(long)]
    detach: bool,
    /// Continue here, away from the terminal and session of the caller
    #[arg(long, hide = true, conflicts_with = "detach")]
    in_own_session: bool,
}

pub fn run(args: &Args) -> Result<u8, Failure> {
    if args.in_own_session {
        detached::leave_session()?;
    }
    let found = args.which.find()?;
    match found.post("wake", &()) {
        Ok(()) => return super::print(format!("run {} was woken\n", found.id).as_bytes()),
        Err(failure) if found.is_live() => return Err(failure),
        Err(_) => {}
    }
    let view = found.view()?;
    let asleep = view.is_asleep() || view.ended.as_ref().is_some_and(|end| end.outcome == Outcome::Idle);
    match view.ended {
        _ if asleep && args.detach => super::print(format!("{}\n", detached::wake(&found)?).as_bytes()),
        _ if asleep => go_on(&found, true, args.json),
        Some(end) => Err(Failure::with_hint(
            format!("run {} has ended ({})", found.id, end.outcome),
            "`dogwatch run` starts a new one",
        )),
        None => Err(Failure::with_hint(
            format!("the dogwatch of run {} died", found.id),
            format!("`dogwatch resume {}` goes on with it", found.id),
        )),
    }
}
