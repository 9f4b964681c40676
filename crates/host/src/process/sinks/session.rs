//! Processes the output of an agent: stores the raw bytes, passes them to the listener, and posts what follows to the
//! driver.

use super::RawFile;
use crate::clock;
use crate::driver::inbox::{Inbox, Mail};
use crate::driver::{OutputView, SessionName};
use crate::fs::subagent_log::{Following, Found};
use dogwatch_agents::{Listener, SubagentLog};
use dogwatch_core::record::event::Usage;
use dogwatch_core::record::prices::PriceTable;
use dogwatch_core::run::input::Input;
use dogwatch_core::run::job::{Exit, Job, JobReport, Leftovers};
use dogwatch_core::settings::ReaderName;
use dogwatch_core::time::moment::{Awake, Wall};
use dogwatch_core::watch::feed::{Feed, Input as Happened, Stream};
use dogwatch_core::watch::sign::ResetsAt;
use std::os::fd::BorrowedFd;
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};

/// The listener of a session. Its pump, the follower of its subagent log and the driver share it.
#[derive(Clone)]
pub struct SessionInputs {
    job: Job,
    listener: Arc<Mutex<Listener>>,
}

impl SessionInputs {
    fn new(job: Job, name: ReaderName) -> SessionInputs {
        SessionInputs { job, listener: Arc::new(Mutex::new(Listener::new(name))) }
    }

    fn with<T>(&self, act: impl FnOnce(&mut Listener) -> T) -> T {
        // Ignore poisoning: the panic was already reported and the data is still valid.
        act(&mut self.listener.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Lets `act` add to the session's feed now. Passes what follows to `sink`, in order.
    pub fn add<T>(&self, act: impl FnOnce(&mut Feed, Awake) -> T, sink: impl FnMut(Input)) -> T {
        self.with(|listener| {
            let done = act(listener.feed(), clock::awake());
            self.pass(listener, sink);
            done
        })
    }

    fn pass(&self, listener: &mut Listener, sink: impl FnMut(Input)) {
        listener.take_inputs(self.job, clock::now().wall).into_iter().for_each(sink);
    }
}

/// The sink of an agent session.
pub struct SessionSink {
    out: RawFile,
    err: RawFile,
    inputs: SessionInputs,
    inbox: Inbox,
    subagents: Subagents,
    /// Where stdout is shown while the session runs, if it is.
    view: Option<(Arc<dyn OutputView>, SessionName)>,
}

/// The log in which the agent's CLI records its subagents. It is followed once the output contains the session id.
enum Subagents {
    Nowhere,
    Unknown(SubagentLog),
    Followed(Following),
}

impl SessionSink {
    /// Creates the sink of a session that stores raw output in `dir`.
    pub fn new(job: Job, name: ReaderName, dir: &Path, cap: u64, inbox: Inbox) -> SessionSink {
        SessionSink {
            out: RawFile::new(dir.join("stdout"), cap),
            err: RawFile::new(dir.join("stderr"), cap),
            inputs: SessionInputs::new(job, name),
            inbox,
            subagents: Subagents::Nowhere,
            view: None,
        }
    }

    /// Also passes stdout to a view.
    pub fn show(&mut self, view: Arc<dyn OutputView>, name: SessionName) {
        self.view = Some((view, name));
    }

    /// Also follows the subagent log of the agent's CLI.
    pub fn following(mut self, log: Option<SubagentLog>) -> SessionSink {
        self.subagents = log.map_or(Subagents::Nowhere, Subagents::Unknown);
        self
    }

    /// Sets the prices for an agent that reports only tokens, and the model that its command line names.
    pub fn priced(self, prices: &PriceTable, model: Option<String>) -> SessionSink {
        self.inputs.with(|listener| listener.price_by(prices.clone(), model));
        self
    }

    /// Marks the session as a resumed one that was already charged with this usage.
    pub fn resume_from(&mut self, charged: Usage) {
        self.inputs.with(|listener| listener.resume_from(charged));
    }

    /// Returns the session's inputs.
    #[cfg(test)]
    pub(crate) fn inputs(&self) -> SessionInputs {
        self.inputs.clone()
    }

    /// Receives bytes of the agent.
    pub fn write(&mut self, stream: Stream, bytes: &[u8]) {
        match stream {
            Stream::Stdout => {
                self.out.write(bytes);
                if let Some((view, name)) = &self.view {
                    view.output(name, bytes);
                }
            }
            Stream::Stderr => self.err.write(bytes),
        }
        self.receive(clock::awake(), stream, bytes);
    }

    /// Takes bytes that arrived at this moment, and posts what follows.
    pub(crate) fn receive(&mut self, at: Awake, stream: Stream, bytes: &[u8]) {
        let Self { inputs, inbox, .. } = &*self;
        let session = inputs.with(|listener| {
            listener.chunk(at, stream, bytes);
            inputs.pass(listener, |input| post(inbox, inputs.job, input));
            let unknown = matches!(self.subagents, Subagents::Unknown(_));
            listener.session_id().filter(|_| unknown).map(str::to_owned)
        });
        if let Some(session) = session {
            self.follow(&session);
        }
    }

    fn follow(&mut self, session: &str) {
        if let Subagents::Unknown(log) = std::mem::replace(&mut self.subagents, Subagents::Nowhere) {
            let (inputs, inbox) = (self.inputs.clone(), self.inbox.clone());
            let report = move |Found { activity, signs }| {
                let did = (activity > 0).then_some(Happened::Subagents { count: activity });
                let said = signs.into_iter().map(Happened::Sign);
                let found: Vec<Happened> = did.into_iter().chain(said).collect();
                inputs.add(
                    |feed, at| found.into_iter().for_each(|input| feed.take(at, input)),
                    |input| post(&inbox, inputs.job, input),
                );
            };
            self.subagents =
                Following::start(log, session, report).map_or(Subagents::Nowhere, Subagents::Followed);
        }
    }

    /// Returns whether the subagent log is followed. It shows activity even after the agent closed its output.
    pub fn follows_subagents(&self) -> bool {
        matches!(self.subagents, Subagents::Followed(_))
    }

    /// Returns the descriptor to wait for while the driver is behind.
    pub fn full(&self) -> Option<BorrowedFd<'_>> {
        self.inbox.full()
    }

    /// Posts all pending observations, so that the session is judged on current data.
    pub fn report_progress(&mut self) {
        if let Subagents::Followed(following) = &self.subagents {
            following.look();
        }
        let job = self.inputs.job;
        self.inputs.add(|feed, at| feed.flush(at), |input| post(&self.inbox, job, input));
    }

    /// Returns the report of the session and the first write error. Call it once the process tree is empty and the
    /// pipes are drained.
    pub fn finish(
        self,
        prompt: &str,
        exit: Option<Exit>,
        leftovers: Leftovers,
    ) -> (JobReport, Option<std::io::Error>) {
        if let Some((view, name)) = &self.view {
            view.over(name);
        }
        if let Subagents::Followed(following) = &self.subagents {
            following.look();
        }
        let report = self.inputs.with(|listener| listener.report(clock::awake(), prompt, exit, resolve));
        let cut_bytes = self.out.cut + self.err.cut;
        let report = JobReport { cut_bytes, leftovers, ..report };
        (report, self.out.error.or(self.err.error))
    }
}

fn post(inbox: &Inbox, job: Job, input: Input) {
    inbox.post(Mail::FromSession { job, input });
}

/// Returns when a rate limit ends. Uses the time zone of the machine if the agent named none.
fn resolve(resets_at: &ResetsAt) -> Option<Wall> {
    resets_at.resolve(clock::now().wall, |zone, at| {
        let zone = match zone {
            Some(name) => jiff::tz::TimeZone::get(name).ok()?,
            None => clock::zone(),
        };
        let at = jiff::Timestamp::from_millisecond(at.0).ok()?;
        Some(zone.to_offset(at).seconds())
    })
}

#[cfg(test)]
mod tests {
    use super::super::JobSink;
    use super::*;
    use crate::process::pump::{Pump, pipes};
    use dogwatch_core::record::ids::{Iteration, NodeIx};
    use dogwatch_core::run::input::NodeInput;
    use dogwatch_core::run::job::JobKind;
    use dogwatch_core::watch::Channel;
    use std::time::Duration;

    const JOB: Job = Job { node: NodeIx(0), iteration: Iteration(1), kind: JobKind::Session };
    /// How long to wait for an event that should happen immediately.
    const PATIENCE: Duration = Duration::from_secs(30);

    /// Returns how often each channel made progress, in the mail of a session.
    fn progress(inbox: &Inbox, channel: Channel) -> u64 {
        let seen = |mail| {
            let Mail::FromSession { input: Input::Job(_, NodeInput::Observed(seen)), .. } = mail else {
                return None;
            };
            Some(seen)
        };
        let mail = inbox.take().into_iter().filter_map(seen);
        mail.filter(|seen| seen.channel == channel).map(|seen| seen.count).sum()
    }

    #[test]
    fn an_agent_that_closed_its_output_is_judged_with_all_of_it_and_with_its_subagents() {
        let home = tempfile::tempdir().expect("a directory");
        let dir = home.path().join(".claude/projects/-srv-project/s/subagents");
        std::fs::create_dir_all(&dir).expect("creates");
        let var = |name: &str| (name == "HOME").then(|| home.path().to_str().expect("UTF-8").to_owned());
        let log = SubagentLog::new(ReaderName::Claude, "/srv/project", var);
        let inbox = Inbox::new().expect("an eventfd");
        let sink = SessionSink::new(JOB, ReaderName::Claude, home.path(), 1 << 20, inbox.clone());
        let sink = JobSink::Session(Box::new(sink.following(log)));
        let pipes = pipes().expect("three pipes");
        let (closed, is_closed) = std::sync::mpsc::channel();
        let done = move || closed.send(()).expect("the test listens");
        let pump = Pump::start(pipes.parent, Vec::new(), sink, done).expect("a thread");
        let [_, stdout, stderr] = pipes.child;
        let print = |line: String| assert_eq!(rustix::io::write(&stdout, line.as_bytes()), Ok(line.len()));
        print("{\"type\":\"system\",\"subtype\":\"init\",\"session_id\":\"s\"}\n".to_owned());
        for id in ["a", "b", "c"] {
            print(format!(
                "{{\"type\":\"assistant\",\"message\":{{\"content\":[{{\"type\":\"text\",\"text\":\"{id}\"}}]}}}}\n"
            ));
        }
        drop((stdout, stderr));
        is_closed.recv_timeout(PATIENCE).expect("both streams have ended");
        assert_eq!(progress(&inbox, Channel::Stdout), 3, "all before the end of the streams");
        for agent in 1..=3 {
            let line = "{\"type\":\"assistant\",\"message\":{\"role\":\"assistant\",\"content\":[]}}\n";
            std::fs::write(dir.join(format!("agent-a{agent}.jsonl")), line).expect("writes");
            assert!(pump.flush(PATIENCE));
            assert_eq!(progress(&inbox, Channel::Subagent), 1, "subagent {agent}");
        }
        pump.stop();
        pump.join();
    }
}
