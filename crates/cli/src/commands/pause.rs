use crate::error::Failure;
use crate::runs::Which;

/// Begin no new iteration until `resume`
///
/// The session that runs is let finish. A paused run that is killed and resumed is still paused.
#[derive(clap::Args)]
pub struct Args {
    #[command(flatten)]
    which: Which,
}

pub fn run(args: &Args) -> Result<u8, Failure> {
    let found = args.which.find_living()?;
    found.post("pause", &())?;
    super::print(
        format!("run {0} pauses after what it is at; `dogwatch resume {0}` goes on\n", found.id).as_bytes(),
    )
}
