//! Telling those who do not look: `notify.command` and `notify.webhook`.
//!
//! A thread of its own tells one piece of news after the other and leaves word with the driver; supervision never
//! waits for it. Every telling is a process under a keeper of this thread: the user's command by a shell, or
//! this same binary in another role ([`main`]), which posts. So a telling that hangs is killed with all that it
//! started, and a library that speaks TLS never runs in the process that supervises.

mod post;

pub use post::main;

use crate::driver::inbox::{Inbox, Mail};
use crate::process::ask::{Answer, Asker};
use crate::process::keeper::{EnvChange, HowEnded};
use dogwatch_core::record::notification::{Delivery, How, MAX_UNTOLD, NotifyPolicy};
use dogwatch_core::run::input::Input;
use serde::{Deserialize, Serialize};
use std::io;
use std::path::PathBuf;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::time::Duration;

/// The first argument that makes the binary post a piece of news.
pub const ARGUMENT: &str = "__notify";

/// How long one telling may take; then it is killed.
pub const TELL_BOUND: Duration = Duration::from_secs(10);

/// The largest document that is sent. The core's texts are clipped, so this only cuts off nonsense; it fits a
/// pipe, so that handing it over never waits.
pub const MAX_DOCUMENT: usize = 32 * 1024;

/// What the posting process is told, on its stdin: an address is often a secret and has no place in argv.
#[derive(Debug, Serialize, Deserialize)]
struct Letter {
    url: String,
    body: String,
}

/// Tells, as long as it lives. Dropped, it does not wait: what is being told is killed with its keeper.
#[derive(Debug)]
pub struct Notifier {
    news: SyncSender<Delivery>,
}

/// What stays the same for the whole run.
#[derive(Debug)]
pub struct Means {
    pub policy: NotifyPolicy,
    pub work_dir: PathBuf,
    /// What every process of this run carries.
    pub env: Vec<EnvChange>,
}

impl Notifier {
    pub fn start(means: Means, inbox: Inbox) -> io::Result<Notifier> {
        let (sender, news) = sync_channel(MAX_UNTOLD);
        std::thread::Builder::new().name("notify".into()).spawn(move || run(&means, &news, &inbox))?;
        Ok(Notifier { news: sender })
    }

    /// Takes a piece of news, to be told in its turn. False if too many wait: it is not told then.
    pub fn tell(&self, delivery: Delivery) -> bool {
        self.news.try_send(delivery).is_ok()
    }
}

fn run(means: &Means, news: &Receiver<Delivery>, inbox: &Inbox) {
    let mut asker = None;
    let mut next = news.recv().ok();
    while let Some(delivery) = next.take() {
        let error = tell(means, &mut asker, &delivery).err();
        let more = news.try_recv();
        if more.is_err() {
            // News are rare: the keeper goes until there is some again, and before the run may end.
            asker = None;
        }
        let told = Input::Notified { key: delivery.news.key, how: delivery.how, error };
        inbox.post(Mail::Asked(told));
        next = more.ok().or_else(|| news.recv().ok());
    }
}

fn tell(means: &Means, asker: &mut Option<Asker>, delivery: &Delivery) -> Result<(), String> {
    let document = serde_json::to_string(&delivery.news).map_err(|e| e.to_string())?;
    if document.len() > MAX_DOCUMENT {
        return Err(format!("its {} bytes are too many", document.len()));
    }
    let (argv, input) = match delivery.how {
        How::Command => {
            let command = means.policy.command.clone().ok_or("there is no command any more")?;
            (vec!["sh".to_owned(), "-c".to_owned(), command], document + "\n")
        }
        How::Webhook => {
            let url =
                means.policy.webhook.as_ref().ok_or("there is no address any more")?.as_str().to_owned();
            let letter = Letter { url, body: document };
            let letter = serde_json::to_string(&letter).map_err(|e| e.to_string())?;
            (vec!["/proc/self/exe".to_owned(), ARGUMENT.to_owned()], letter)
        }
    };
    let argv: Vec<&str> = argv.iter().map(String::as_str).collect();
    let answer = ask(means, asker, &argv, input.as_bytes());
    // A keeper that failed once is not trusted with the next.
    let answer = answer.inspect_err(|_| *asker = None).map_err(|e| e.to_string())?;
    judge(delivery.how, answer)
}

fn ask(means: &Means, asker: &mut Option<Asker>, argv: &[&str], input: &[u8]) -> io::Result<Answer> {
    let asker = match asker {
        Some(asker) => asker,
        none => none.insert(Asker::start()?),
    };
    asker.tell(argv, means.env.clone(), &means.work_dir, input, TELL_BOUND)
}

fn judge(how: How, answer: Answer) -> Result<(), String> {
    match (how, answer) {
        (_, Answer::Said { how: HowEnded::Code(0), .. }) => Ok(()),
        (How::Webhook, Answer::Said { stdout, .. }) if !stdout.trim().is_empty() => {
            Err(stdout.trim().to_owned())
        }
        (_, Answer::Said { how: HowEnded::Code(code), .. }) => Err(format!("exit code {code}")),
        (_, Answer::Said { how: HowEnded::Signal(signal), .. }) => Err(format!("ended by signal {signal}")),
        (_, Answer::Refused(why)) => Err(why),
        (_, Answer::TookTooLong) => Err(format!("it took more than {} s", TELL_BOUND.as_secs())),
    }
}
