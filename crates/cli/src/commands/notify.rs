use crate::error::CliError;
use crate::loading::{LoopFile, SettingFlags};
use crate::supervise::random;
use dogwatch_core::record::ids::RunId;
use dogwatch_core::record::notification::{Delivery, Notification};
use dogwatch_core::text::printable;
use dogwatch_host::clock;
use dogwatch_host::net::notify::{Means, deliver_now};
use std::path::PathBuf;

/// Send a test notification to every target of a loop
///
/// Reads the same files as `run` and sends one notification of the kind `test` to each target of `notify`. Nothing is
/// started or recorded. The exit code is 0 if every target accepted it, and 1 if one did not.
#[derive(clap::Args)]
pub struct Args {
    /// Directory with RALPH.md or graph.*, or such a file
    #[arg(default_value = ".", add = crate::completing::loops())]
    path: PathBuf,
    #[command(flatten)]
    settings: SettingFlags,
}

/// The exit code if a target did not accept the notification.
const NOT_DELIVERED: u8 = 1;

/// Runs `dogwatch notify` and returns the exit code.
pub fn run(args: &Args) -> Result<u8, CliError> {
    let file = LoopFile::find(&args.path)?;
    let planned = file.load(&args.settings.flags(), &[], false)?;
    let policy = planned.plan.nodes[0].settings.notify.clone();
    let targets = policy.targets();
    if targets.is_empty() {
        return Err(CliError::with_help(
            format!("{} has no target for notifications", file.shown()),
            "set one, for example `notify: {ntfy: \"https://ntfy.sh/my-topic\"}`; docs/guide/notifications.md lists all",
        ));
    }
    let now = clock::now().wall;
    let (path, work_dir) = (file.path.display().to_string(), file.work_dir.display().to_string());
    let run = RunId::new(now, random()?);
    let means = Means { policy, work_dir: file.work_dir.clone(), env: Vec::new() };
    let mut code = 0;
    let mut said = String::new();
    for how in targets {
        let notification = Notification::test(run.clone(), &path, &work_dir, now);
        match deliver_now(&means, Delivery { notification, how }) {
            Ok(()) => said.push_str(&format!("{how}: sent\n")),
            Err(why) => {
                said.push_str(&format!("{how}: not sent: {why}\n"));
                code = NOT_DELIVERED;
            }
        }
    }
    super::print_text(&printable(&said))?;
    Ok(code)
}
