//! Processes the output of an agent: stores the raw bytes, passes lines to the reader, and reports progress to the
//! driver.

use super::RawFile;
use crate::clock;
use crate::driver::inbox::{Inbox, Mail};
use crate::fs::subagent_log::Following;
use dogwatch_agents::limits::from_exit;
use dogwatch_agents::{Reader, Splitter, SubagentLog, last_marker};
use dogwatch_core::record::event::{Observation, Usage};
use dogwatch_core::run::input::Input;
use dogwatch_core::run::job::{Exit, Job, JobReport};
use dogwatch_core::settings::ReaderName;
use dogwatch_core::text::{clip, printable_bytes};
use dogwatch_core::time::moment::{Awake, Wall};
use dogwatch_core::watch::coalesce::Coalescer;
use dogwatch_core::watch::health::HealthIssue;
use dogwatch_core::watch::replay::{Feed, Input as Happened};
use dogwatch_core::watch::sign::{ResetsAt, Sign};
use dogwatch_core::watch::{Channel, Fact};
use std::collections::{BTreeMap, BTreeSet};
use std::mem::take;
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// The most bytes kept of the last line of stderr.
const MAX_LAST_LINE: usize = 500;

/// The most complete tool calls reported per chunk of output, enough to detect a cycle of the longest period. In a
/// flood, further calls count only as progress, so that they cost neither memory nor space in the record.
const MAX_WHOLE_CALLS: usize = 64;

/// The most health issues reported per chunk of output.
const MAX_ISSUES: usize = 16;

/// The sink of an agent session.
pub struct SessionSink {
    out: RawFile,
    err: RawFile,
    out_lines: Splitter,
    err_lines: Splitter,
    interpreter: Interpreter,
    outbox: Outbox,
    name: ReaderName,
    subagents: Subagents,
}

#[derive(Clone, Copy)]
enum Stream {
    Stdout,
    Stderr,
}

/// The log in which the agent's CLI records its subagents. It is followed once the output contains the session id.
enum Subagents {
    Nowhere,
    Unknown(SubagentLog),
    Followed(Following),
}

impl Subagents {
    fn follow(&mut self, session: &str, outbox: &Outbox) {
        if !matches!(self, Subagents::Unknown(_)) {
            return;
        }
        if let Subagents::Unknown(log) = std::mem::replace(self, Subagents::Nowhere) {
            let (job, inbox, files) = (outbox.job, outbox.inbox.clone(), Arc::clone(&outbox.files));
            let report = move |count| {
                let records = lock(&files).saw(clock::awake(), count, 0);
                for seen in records {
                    inbox.post(Mail::FromSession { job, input: Input::Observed { job, seen } });
                }
            };
            *self = Following::start(log, session, report).map_or(Subagents::Nowhere, Subagents::Followed);
        }
    }
}

/// The interpretation of the output so far.
struct Interpreter {
    reader: Reader,
    structured: bool,
    signs: Vec<Sign>,
    feed: Feed,
    /// Facts and observations to post, in the order of the lines.
    facts: Vec<Fact>,
    /// Health issues, each with the number of facts that precede it.
    issues: Vec<(usize, HealthIssue)>,
    used: bool,
    result: bool,
    last_error_line: Vec<u8>,
}

impl Interpreter {
    fn take_signs(&mut self, at: Awake, stream: Stream) {
        for sign in &self.signs {
            self.used |= matches!(sign, Sign::Usage { .. });
            self.result |= matches!(sign, Sign::Result(_));
            if let Some(issue) = sign.health_issue().filter(|_| self.issues.len() < MAX_ISSUES) {
                self.feed.flush(at, &mut self.facts);
                // Report repeated retries in one chunk only once.
                let place = (self.facts.len(), issue);
                self.issues.extend((self.issues.last() != Some(&place)).then_some(place));
            }
        }
        match stream {
            Stream::Stderr => self.feed.stderr_line(at, &mut self.signs, &mut self.facts),
            Stream::Stdout if self.signs.is_empty() => {}
            Stream::Stdout => self.feed.line(at, &mut self.signs, &mut self.facts),
        }
    }

    /// Replaces calls beyond the first few that began and ended within one flood by a progress count. Keeps the last
    /// successful one: a new result of it clears the state that the first calls left.
    fn thin_out(&mut self, at: Awake) {
        if self.facts.len() <= 2 * MAX_WHOLE_CALLS {
            return;
        }
        let mut ends: BTreeMap<String, bool> = BTreeMap::new();
        for fact in self.facts.iter().rev() {
            if let Fact::ToolEnded { id, ok, .. } = fact {
                ends.entry(id.clone()).or_insert(*ok);
            }
        }
        let started = |fact: &Fact| match fact {
            Fact::ToolStarted(tool) if ends.contains_key(&tool.id) => Some(tool.id.clone()),
            Fact::Printed
            | Fact::Repeated
            | Fact::Observed(_)
            | Fact::ToolStarted(_)
            | Fact::ToolEnded { .. }
            | Fact::Error { .. }
            | Fact::SubagentStarted { .. }
            | Fact::SubagentEnded { .. }
            | Fact::Sampled { .. }
            | Fact::NeedsHuman { .. }
            | Fact::Suspended { .. } => None,
        };
        let whole: Vec<String> = self.facts.iter().filter_map(started).collect();
        let last_ok = whole.iter().rev().find(|id| ends.get(*id) == Some(&true)).cloned();
        let beyond = whole.into_iter().skip(MAX_WHOLE_CALLS).filter(|id| Some(id) != last_ok.as_ref());
        let beyond: BTreeSet<String> = beyond.collect();
        let is_beyond = |fact: &Fact| match fact {
            Fact::ToolStarted(tool) => beyond.contains(&tool.id),
            Fact::ToolEnded { id, .. } => beyond.contains(id),
            Fact::Printed
            | Fact::Repeated
            | Fact::Observed(_)
            | Fact::Error { .. }
            | Fact::SubagentStarted { .. }
            | Fact::SubagentEnded { .. }
            | Fact::Sampled { .. }
            | Fact::NeedsHuman { .. }
            | Fact::Suspended { .. } => false,
        };
        let progress = self.facts.iter().filter(|fact| is_beyond(fact) && !fact.is_heartbeat()).count();
        let mut kept: Vec<Fact> = Vec::new();
        for (place, fact) in take(&mut self.facts).into_iter().enumerate() {
            let here = self.issues.iter_mut().filter(|(before, _)| *before == place);
            here.for_each(|(before, _)| *before = kept.len());
            match (&fact, kept.last_mut()) {
                _ if is_beyond(&fact) => {}
                // The facts between two observations of one moment are gone, so merge the observations.
                (Fact::Observed(seen), Some(Fact::Observed(last)))
                    if (seen.channel, seen.first_ms) == (last.channel, last.last_ms) =>
                {
                    last.last_ms = seen.last_ms;
                    last.count = last.count.saturating_add(seen.count);
                    last.messages = last.messages.saturating_add(seen.messages);
                }
                _ => kept.push(fact),
            }
        }
        self.issues.iter_mut().for_each(|(before, _)| *before = (*before).min(kept.len()));
        self.facts = kept;
        self.feed.calls(at, progress as u64, &mut self.facts);
    }

    fn keep_error_line(&mut self, line: &[u8]) {
        if !line.trim_ascii().is_empty() && !self.reader.is_log(line) {
            self.last_error_line.clear();
            self.last_error_line.extend_from_slice(&line[..line.len().min(MAX_LAST_LINE)]);
        }
    }
}

/// Posts the inputs of the session to the driver.
struct Outbox {
    job: Job,
    inbox: Inbox,
    /// Activity of subagents, as seen in the files of the CLI.
    files: Arc<Mutex<Coalescer>>,
}

fn lock(files: &Mutex<Coalescer>) -> MutexGuard<'_, Coalescer> {
    // Ignore poisoning: the panic was already reported and the data is still valid.
    files.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Outbox {
    fn post(&self, input: Input) {
        self.inbox.post(Mail::FromSession { job: self.job, input });
    }

    fn seen(&self, records: impl IntoIterator<Item = Observation>) {
        for seen in records {
            self.post(Input::Observed { job: self.job, seen });
        }
    }

    /// Posts everything in the order of the lines.
    fn post_all(&mut self, interpreter: &mut Interpreter, at: Awake) {
        interpreter.thin_out(at);
        if interpreter.facts.iter().any(|fact| !matches!(fact, Fact::Observed(_)))
            || !interpreter.issues.is_empty()
        {
            self.flush_files(at);
        }
        let mut issues = interpreter.issues.drain(..).peekable();
        for (n, fact) in interpreter.facts.drain(..).enumerate() {
            while let Some((_, issue)) = issues.next_if(|(before, _)| *before <= n) {
                self.post(Input::HealthIssueFound { job: self.job, issue });
            }
            self.post(match fact {
                Fact::Observed(seen) => Input::Observed { job: self.job, seen },
                fact @ (Fact::Printed
                | Fact::Repeated
                | Fact::ToolStarted(_)
                | Fact::ToolEnded { .. }
                | Fact::Error { .. }
                | Fact::SubagentStarted { .. }
                | Fact::SubagentEnded { .. }
                | Fact::Sampled { .. }
                | Fact::NeedsHuman { .. }
                | Fact::Suspended { .. }) => Input::Noted { job: self.job, fact },
            });
        }
        for (_, issue) in issues {
            self.post(Input::HealthIssueFound { job: self.job, issue });
        }
        let totals = &interpreter.feed.totals;
        if take(&mut interpreter.used) {
            let usage = Usage { tokens: totals.tokens, cost_usd: totals.cost_usd };
            self.post(Input::Used { job: self.job, usage });
        }
        if take(&mut interpreter.result) && totals.background == 0 {
            self.post(Input::ResultSeen { job: self.job });
        }
    }

    fn flush_files(&self, at: Awake) {
        let seen = lock(&self.files).flush(at);
        self.seen(seen);
    }
}

impl SessionSink {
    /// Creates the sink of a session that stores raw output in `dir`.
    pub fn new(job: Job, name: ReaderName, dir: &Path, cap: u64, inbox: Inbox) -> SessionSink {
        SessionSink {
            out: RawFile::new(dir.join("stdout"), cap),
            err: RawFile::new(dir.join("stderr"), cap),
            out_lines: Splitter::new(),
            err_lines: Splitter::new(),
            interpreter: Interpreter {
                reader: Reader::for_name(name),
                structured: name.is_structured(),
                signs: Vec::new(),
                feed: Feed::new(name.is_structured()),
                facts: Vec::new(),
                issues: Vec::new(),
                used: false,
                result: false,
                last_error_line: Vec::new(),
            },
            outbox: Outbox { job, inbox, files: Arc::new(Mutex::new(Coalescer::new(Channel::Subagent))) },
            name,
            subagents: Subagents::Nowhere,
        }
    }

    /// Also follows the subagent log of the agent's CLI.
    pub fn following(mut self, log: Option<SubagentLog>) -> SessionSink {
        self.subagents = log.map_or(Subagents::Nowhere, Subagents::Unknown);
        self
    }

    /// Marks the session as a resumed one that was already charged with this usage.
    pub fn going_on(&mut self, charged: Usage) {
        self.interpreter.reader.going_on(charged);
    }

    /// Receives bytes of stdout.
    pub fn stdout(&mut self, bytes: &[u8]) {
        self.out.write(bytes);
        let (interpreter, now) = (&mut self.interpreter, clock::awake());
        interpreter.reader.begin_chunk();
        if interpreter.structured {
            // The first bytes count as activity, even before the first line is complete.
            interpreter.feed.take(
                now,
                Happened::Stdout { bytes: bytes.len() as u64 },
                &mut interpreter.facts,
            );
        }
        self.out_lines.feed(bytes, |line| {
            interpreter.reader.read_line(line, &mut interpreter.signs);
            interpreter.take_signs(now, Stream::Stdout);
        });
        if let Some(session) = &interpreter.feed.totals.session_id {
            self.subagents.follow(session, &self.outbox);
        }
        self.outbox.post_all(interpreter, now);
    }

    /// Receives bytes of stderr.
    pub fn stderr(&mut self, bytes: &[u8]) {
        self.err.write(bytes);
        let (interpreter, now) = (&mut self.interpreter, clock::awake());
        interpreter.reader.begin_chunk();
        self.err_lines.feed(bytes, |line| {
            interpreter.reader.read_stderr(line.bytes, &mut interpreter.signs);
            interpreter.take_signs(now, Stream::Stderr);
            interpreter.keep_error_line(line.bytes);
        });
        self.outbox.post_all(interpreter, now);
    }

    /// Posts all pending observations, so that the session is judged on current data.
    pub fn report_progress(&mut self) {
        if let Subagents::Followed(following) = &self.subagents {
            following.look();
        }
        let now = clock::awake();
        self.interpreter.feed.flush(now, &mut self.interpreter.facts);
        self.outbox.post_all(&mut self.interpreter, now);
        self.outbox.flush_files(now);
    }

    /// Returns the report of the session and the first write error. Call it once the process tree is empty and the
    /// pipes are drained.
    pub fn finish(
        mut self,
        prompt: &str,
        exit: Option<Exit>,
        leftovers: u64,
    ) -> (JobReport, Option<std::io::Error>) {
        let interpreter = &mut self.interpreter;
        self.out_lines.finish(|line| interpreter.reader.read_line(line, &mut interpreter.signs));
        self.err_lines.finish(|line| {
            interpreter.reader.read_stderr(line.bytes, &mut interpreter.signs);
            interpreter.keep_error_line(line.bytes);
        });
        interpreter.reader.finish(&mut interpreter.signs);
        let totals = &mut interpreter.feed.totals;
        interpreter.signs.drain(..).for_each(|sign| totals.add(&sign));
        let code = exit.and_then(Exit::code);
        let from_exit = code.and_then(|code| from_exit(self.name, code, totals));
        from_exit.into_iter().for_each(|sign| totals.add(&sign));
        let totals = take(totals);
        let marker =
            totals.result.as_ref().and_then(|r| last_marker(&r.text, self.name.is_structured(), prompt));
        let last_line = match self.interpreter.last_error_line.as_slice() {
            b"" => totals
                .result
                .as_ref()
                .and_then(|r| r.text.lines().rfind(|l| !l.trim().is_empty()))
                .unwrap_or("")
                .to_owned(),
            line => printable_bytes(line),
        };
        let resets_at = totals.limit.as_ref().and_then(|l| resolve(l.resets_at.as_ref()?));
        let report = JobReport {
            totals,
            marker,
            resets_at,
            stdout_bytes: self.out.seen,
            stderr_bytes: self.err.seen,
            cut_bytes: self.out.cut + self.err.cut,
            leftovers,
            last_line: clip(&last_line, MAX_LAST_LINE).to_owned(),
            ..JobReport::default()
        };
        (report, self.out.error.or(self.err.error))
    }
}

/// Returns when a rate limit ends. Uses the time zone of the machine if the agent named none.
fn resolve(resets_at: &ResetsAt) -> Option<Wall> {
    resets_at.resolve(clock::now().wall, |zone, at| {
        let zone = match zone {
            Some(name) => jiff::tz::TimeZone::get(name).ok()?,
            None => jiff::tz::TimeZone::system(),
        };
        let at = jiff::Timestamp::from_millisecond(at.0).ok()?;
        Some(zone.to_offset(at).seconds())
    })
}
