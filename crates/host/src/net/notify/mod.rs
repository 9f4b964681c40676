//! Notifications: `notify.command` and `notify.webhook`.
//!
//! A separate thread delivers one notification after the other and posts the results to the driver; supervision
//! never waits for it. Every delivery is a process under a keeper of this thread: the user's command in a shell, or
//! this same binary in another role ([`main`]) for a webhook. So a delivery that hangs is killed with everything it
//! started, and no TLS library runs in the supervising process.

mod post;
mod presets;

pub use post::main;

use crate::driver::inbox::{Inbox, Mail};
use crate::process::keeper::{EnvChange, Exit};
use crate::process::program::{ProgramResult, ProgramRunner};
use crate::store::serving;
use dogwatch_core::record::notification::{Delivery, How, MAX_PENDING_NOTIFICATIONS, NotifyPolicy};
use dogwatch_core::run::input::Input;
use presets::Outgoing;
use serde::{Deserialize, Serialize};
use std::io;
use std::path::PathBuf;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::time::Duration;

/// The first argument that makes the binary post a notification.
pub const ARGUMENT: &str = "__notify";

/// How long one delivery may take before it is killed.
pub const COMMAND_BOUND: Duration = Duration::from_secs(10);

/// The largest document that is sent. The core already clips its texts, so this is a safety limit. A document of
/// this size fits into a pipe, so writing it never blocks.
pub const MAX_DOCUMENT: usize = 32 * 1024;

/// The input of the posting process, passed on stdin because a URL is often secret and must not appear in argv.
#[derive(Debug, Serialize, Deserialize)]
struct PostRequest {
    url: String,
    body: String,
}

/// Delivers notifications until dropped. Dropping does not wait: a delivery in progress is killed with its keeper.
#[derive(Debug)]
pub struct Notifier {
    queue: SyncSender<Delivery>,
}

/// Settings that stay the same for the whole run.
#[derive(Debug)]
pub struct Means {
    /// What to send, and where.
    pub policy: NotifyPolicy,
    /// The directory in which the command runs.
    pub work_dir: PathBuf,
    /// The environment variables that mark every process of this run.
    pub env: Vec<EnvChange>,
}

impl Notifier {
    /// Starts the delivery thread.
    pub fn start(means: Means, inbox: Inbox) -> io::Result<Notifier> {
        let (sender, queue) = sync_channel(MAX_PENDING_NOTIFICATIONS);
        std::thread::Builder::new().name("notify".into()).spawn(move || run(&means, &queue, &inbox))?;
        Ok(Notifier { queue: sender })
    }

    /// Queues a notification. Returns false if too many are waiting; it is then dropped.
    pub fn send(&self, delivery: Delivery) -> bool {
        self.queue.try_send(delivery).is_ok()
    }
}

fn run(means: &Means, queue: &Receiver<Delivery>, inbox: &Inbox) {
    let mut runner = None;
    let mut next = queue.recv().ok();
    while let Some(delivery) = next.take() {
        let (key, how) = (delivery.notification.key.clone(), delivery.how);
        let error = deliver(means, &mut runner, delivery).err();
        let more = queue.try_recv();
        if more.is_err() {
            // Notifications are rare, so stop the keeper until the next one. This also happens before the run may
            // end.
            runner = None;
        }
        let notified = Input::Notified { key, how, error };
        inbox.post(Mail::Input(notified));
        next = more.ok().or_else(|| queue.recv().ok());
    }
}

/// Delivers one notification and waits for the result, at most [`COMMAND_BOUND`].
pub fn deliver_now(means: &Means, delivery: Delivery) -> Result<(), String> {
    deliver(means, &mut None, delivery)
}

fn deliver(means: &Means, runner: &mut Option<ProgramRunner>, delivery: Delivery) -> Result<(), String> {
    let Delivery { mut notification, how } = delivery;
    notification.link = serving::link(&notification.run);
    let document = serde_json::to_string(&notification).map_err(|e| e.to_string())?;
    if document.len() > MAX_DOCUMENT {
        return Err(format!("the document is too large ({} bytes)", document.len()));
    }
    let (argv, input) = match presets::prepare(&means.policy, how, &notification, document)? {
        Outgoing::Run { argv, input } => (argv, input),
        Outgoing::Post { url, body } => {
            let request = serde_json::to_string(&PostRequest { url, body }).map_err(|e| e.to_string())?;
            (vec!["/proc/self/exe".to_owned(), ARGUMENT.to_owned()], request)
        }
    };
    let argv: Vec<&str> = argv.iter().map(String::as_str).collect();
    let answer = ask(means, runner, &argv, input.as_bytes());
    // Do not reuse a keeper after an error.
    let answer = answer.inspect_err(|_| *runner = None).map_err(|e| e.to_string())?;
    judge(how, answer)
}

fn ask(
    means: &Means,
    runner: &mut Option<ProgramRunner>,
    argv: &[&str],
    input: &[u8],
) -> io::Result<ProgramResult> {
    let runner = match runner {
        Some(runner) => runner,
        none => none.insert(ProgramRunner::start()?),
    };
    runner.run_with_input(argv, means.env.clone(), &means.work_dir, input, COMMAND_BOUND)
}

fn judge(how: How, answer: ProgramResult) -> Result<(), String> {
    match (how, answer) {
        (_, ProgramResult::Ended { how: Exit::Code(0), .. }) => Ok(()),
        (
            How::Webhook | How::Ntfy | How::Slack | How::Discord | How::Telegram,
            ProgramResult::Ended { stdout, .. },
        ) if !stdout.trim().is_empty() => Err(stdout.trim().to_owned()),
        (How::Desktop, ProgramResult::Refused(why)) => {
            Err(format!("cannot run notify-send: {why}; the package libnotify-bin has it"))
        }
        (How::Desktop, ProgramResult::Ended { how: Exit::Code(127), .. }) => {
            Err("notify-send is not installed; the package libnotify-bin has it".to_owned())
        }
        (_, ProgramResult::Ended { how: Exit::Code(code), .. }) => Err(format!("exit code {code}")),
        (_, ProgramResult::Ended { how: Exit::Signal(signal), .. }) => {
            Err(format!("killed by signal {signal}"))
        }
        (_, ProgramResult::Refused(why)) => Err(why),
        (_, ProgramResult::TimedOut) => Err(format!("timed out after {} s", COMMAND_BOUND.as_secs())),
    }
}
