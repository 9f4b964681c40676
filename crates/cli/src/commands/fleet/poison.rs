//! Notifications of poisoned jobs, which `dogwatch fleet up` sends with the operator's settings.

use crate::error::print_line;
use crate::supervise::random;
use dogwatch_core::record::ids::RunId;
use dogwatch_core::record::notification::{Delivery, Notification, NotificationKind, NotifyPolicy};
use dogwatch_fleet::names::JobId;
use dogwatch_fleet::record::JobRecord;
use dogwatch_fleet::{JoinLine, blocking};
use dogwatch_host::clock;
use dogwatch_host::net::notify::{Means, deliver_now};
use std::path::PathBuf;

/// Starts a thread that reports poisoned jobs. It ends with this process.
pub fn follow(line: JoinLine, policy: NotifyPolicy, dir: PathBuf) -> std::io::Result<()> {
    let follow = move || {
        let failed = blocking::follow_poison(&line, |id, record| notify(&policy, &dir, &id, &record));
        if let Err(error) = failed {
            print_line(&format!("warning: poisoned jobs are not reported: {error}"));
        }
    };
    std::thread::Builder::new().name("poison".into()).spawn(follow).map(drop)
}

fn notify(policy: &NotifyPolicy, dir: &std::path::Path, id: &JobId, record: &JobRecord) {
    let why = record.result.as_ref().and_then(|result| result.detail.as_deref()).unwrap_or("no reason");
    let now = clock::now().wall;
    let run = match (&record.run, random()) {
        (Some(run), _) => run.clone(),
        (None, Ok(bytes)) => RunId::new(now, bytes),
        (None, Err(_)) => return,
    };
    let text = format!(
        "the job {id} is poisoned: it ended uncleanly three times without a finished iteration; {why}"
    );
    let (kind, work_dir) = (NotificationKind::NeedsHuman, dir.display().to_string());
    let notification = Notification {
        key: format!("poisoned:{id}"),
        ..Notification::new(kind, &text, now, run, record.title.clone(), work_dir)
    };
    let wanted = policy.on.contains(&NotificationKind::NeedsHuman);
    for how in policy.targets().into_iter().filter(|_| wanted) {
        let means = Means { policy: policy.clone(), work_dir: dir.to_owned(), env: Vec::new() };
        if let Err(why) = deliver_now(&means, Delivery { notification: notification.clone(), how }) {
            print_line(&format!("warning: cannot notify by {how}: {why}"));
        }
    }
    print_line(&format!("{id} is poisoned, no worker takes it again: {why}"));
}
