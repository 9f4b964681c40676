//! An agent's output: raw bytes to the iteration's files, lines to the reader, progress to the driver.

use super::RawFile;
use crate::clock;
use crate::inbox::{Inbox, Mail};
use crate::trail::Following;
use dogwatch_agents::limits::from_exit;
use dogwatch_agents::{Reader, Splitter, Trail, last_marker};
use dogwatch_core::coalesce::Coalescer;
use dogwatch_core::condition::Strain;
use dogwatch_core::event::{Observation, Usage};
use dogwatch_core::input::Input;
use dogwatch_core::job::{Exit, Job, JobReport};
use dogwatch_core::moment::Wall;
use dogwatch_core::settings::ReaderName;
use dogwatch_core::sign::{ResetsAt, Sign, Tally};
use dogwatch_core::text::{clip, printable_bytes};
use dogwatch_core::watch::{Channel, Fact};
use std::collections::BTreeSet;
use std::mem::take;
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// How much of the last line of stderr is kept.
const MAX_LAST_LINE: usize = 500;

/// More facts than this in one piece of output is a flood: calls that both begin and end within it are then
/// progress and no more, so that a flood costs neither memory nor the record.
const MAX_FACTS: usize = 16;

pub struct SessionSink {
    out: RawFile,
    err: RawFile,
    out_lines: Splitter,
    err_lines: Splitter,
    meaning: Meaning,
    news: News,
    name: ReaderName,
    subagents: Subagents,
}

/// Where the agent's CLI writes what its subagents do: followed once the stream has told the session's id.
enum Subagents {
    Nowhere,
    Unknown(Trail),
    Followed(Following),
}

impl Subagents {
    fn follow(&mut self, session: &str, news: &News) {
        if !matches!(self, Subagents::Unknown(_)) {
            return;
        }
        if let Subagents::Unknown(trail) = std::mem::replace(self, Subagents::Nowhere) {
            let (job, inbox, files) = (news.job, news.inbox.clone(), Arc::clone(&news.files));
            let tell = move |count| {
                let records = lock(&files).saw(clock::awake(), count, 0);
                for seen in records {
                    inbox.post(Mail::FromSession { job, input: Input::Observed { job, seen } });
                }
            };
            *self = Following::start(trail, session, tell).map_or(Subagents::Nowhere, Subagents::Followed);
        }
    }
}

/// What the output means so far.
struct Meaning {
    reader: Reader,
    tally: Tally,
    signs: Vec<Sign>,
    /// What there is to tell since it was last told.
    facts: Vec<Fact>,
    strains: Vec<Strain>,
    stdout: u64,
    subagent: u64,
    messages: u64,
    used: bool,
    result: bool,
    last_error_line: Vec<u8>,
}

impl Meaning {
    fn take_signs(&mut self) {
        for sign in self.signs.drain(..) {
            match sign.progress() {
                Some(Channel::Subagent) => self.subagent += 1,
                Some(Channel::Stdout | Channel::McpTool | Channel::Workspace) => self.stdout += 1,
                None => {}
            }
            self.messages += u64::from(matches!(sign, Sign::Message));
            self.used |= matches!(sign, Sign::Usage { .. });
            self.result |= matches!(sign, Sign::Result(_));
            // Of a chunk that retries a hundred times one word is enough.
            self.strains.extend(sign.strain().filter(|s| self.strains.last() != Some(s)));
            self.tally.add(&sign);
            self.facts.extend(sign.into_fact());
        }
    }

    /// In a flood, calls that are over already are taken out and counted as progress, heartbeats excepted.
    fn thin_out(&mut self) {
        if self.facts.len() <= MAX_FACTS {
            return;
        }
        let id_of = |f: &Fact| match f {
            Fact::ToolStarted(t) => Some((t.id.clone(), true)),
            Fact::ToolEnded { id, .. } => Some((id.clone(), false)),
            _ => None,
        };
        let ids = |starts: bool| -> BTreeSet<String> {
            self.facts.iter().filter_map(id_of).filter(|(_, s)| *s == starts).map(|(id, _)| id).collect()
        };
        let whole: BTreeSet<String> = ids(true).intersection(&ids(false)).cloned().collect();
        let is_over = |f: &Fact| id_of(f).is_some_and(|(id, _)| whole.contains(&id));
        self.stdout += self.facts.iter().filter(|f| is_over(f) && !f.is_heartbeat()).count() as u64;
        self.facts.retain(|f| !is_over(f));
    }

    fn keep_error_line(&mut self, line: &[u8]) {
        if !line.trim_ascii().is_empty() && !self.reader.is_log(line) {
            self.last_error_line.clear();
            self.last_error_line.extend_from_slice(&line[..line.len().min(MAX_LAST_LINE)]);
        }
    }
}

/// What the driver hears of the session.
struct News {
    job: Job,
    inbox: Inbox,
    stdout: Coalescer,
    subagent: Coalescer,
    /// The same, from files.
    files: Arc<Mutex<Coalescer>>,
}

fn lock(files: &Mutex<Coalescer>) -> MutexGuard<'_, Coalescer> {
    // Who panicked with it has told; what it holds is still right.
    files.lock().unwrap_or_else(PoisonError::into_inner)
}

impl News {
    fn post(&self, input: Input) {
        self.inbox.post(Mail::FromSession { job: self.job, input });
    }

    fn seen(&self, records: impl IntoIterator<Item = Observation>) {
        for seen in records {
            self.post(Input::Observed { job: self.job, seen });
        }
    }

    /// Progress first: a fact is judged with all that came before it.
    fn tell(&mut self, meaning: &mut Meaning) {
        meaning.thin_out();
        let now = clock::awake();
        let (stdout, messages) = (take(&mut meaning.stdout), take(&mut meaning.messages));
        let seen = self.stdout.saw(now, stdout, messages);
        self.seen(seen);
        let seen = self.subagent.saw(now, take(&mut meaning.subagent), 0);
        self.seen(seen);
        if !meaning.facts.is_empty() || !meaning.strains.is_empty() {
            self.flush();
        }
        for fact in meaning.facts.drain(..) {
            self.post(Input::Noted { job: self.job, fact });
        }
        for strain in meaning.strains.drain(..) {
            self.post(Input::Strained { job: self.job, strain });
        }
        if take(&mut meaning.used) {
            let usage = Usage { tokens: meaning.tally.tokens, cost_usd: meaning.tally.cost_usd };
            self.post(Input::Used { job: self.job, usage });
        }
        if take(&mut meaning.result) && meaning.tally.background == 0 {
            self.post(Input::ResultSeen { job: self.job });
        }
    }

    fn flush(&mut self) {
        let now = clock::awake();
        let seen = self.stdout.flush(now);
        self.seen(seen);
        let seen = self.subagent.flush(now);
        self.seen(seen);
        let seen = lock(&self.files).flush(now);
        self.seen(seen);
    }
}

impl SessionSink {
    pub fn new(job: Job, name: ReaderName, dir: &Path, cap: u64, inbox: Inbox) -> SessionSink {
        SessionSink {
            out: RawFile::new(dir.join("stdout"), cap),
            err: RawFile::new(dir.join("stderr"), cap),
            out_lines: Splitter::new(),
            err_lines: Splitter::new(),
            meaning: Meaning {
                reader: Reader::for_name(name),
                tally: Tally::default(),
                signs: Vec::new(),
                facts: Vec::new(),
                strains: Vec::new(),
                stdout: 0,
                subagent: 0,
                messages: 0,
                used: false,
                result: false,
                last_error_line: Vec::new(),
            },
            news: News {
                job,
                inbox,
                stdout: Coalescer::new(Channel::Stdout),
                subagent: Coalescer::new(Channel::Subagent),
                files: Arc::new(Mutex::new(Coalescer::new(Channel::Subagent))),
            },
            name,
            subagents: Subagents::Nowhere,
        }
    }

    /// What the agent's CLI writes about its subagents counts too; this is the way to it.
    pub fn following(mut self, trail: Option<Trail>) -> SessionSink {
        self.subagents = trail.map_or(Subagents::Nowhere, Subagents::Unknown);
        self
    }

    /// The agent goes on with a session of its own for which this was charged before.
    pub fn going_on(&mut self, charged: Usage) {
        self.meaning.reader.going_on(charged);
    }

    pub fn stdout(&mut self, bytes: &[u8]) {
        self.out.write(bytes);
        let meaning = &mut self.meaning;
        meaning.reader.begin_chunk();
        if self.out.seen == bytes.len() as u64 && self.name.is_structured() {
            meaning.facts.push(Fact::Printed);
        }
        self.out_lines.feed(bytes, |line| {
            meaning.reader.read_line(line, &mut meaning.signs);
            meaning.take_signs();
        });
        if let Some(session) = &meaning.tally.session_id {
            self.subagents.follow(session, &self.news);
        }
        self.news.tell(meaning);
    }

    pub fn stderr(&mut self, bytes: &[u8]) {
        self.err.write(bytes);
        let meaning = &mut self.meaning;
        meaning.reader.begin_chunk();
        self.err_lines.feed(bytes, |line| {
            meaning.reader.read_stderr(line.bytes, &mut meaning.signs);
            meaning.take_signs();
            meaning.keep_error_line(line.bytes);
        });
        self.news.tell(meaning);
    }

    /// Hands over what still waits, because somebody is about to judge.
    pub fn report_progress(&mut self) {
        if let Subagents::Followed(following) = &self.subagents {
            following.look();
        }
        self.news.flush();
    }

    /// The process tree is empty and the pipes are drained: what came of it.
    pub fn finish(
        mut self,
        prompt: &str,
        exit: Option<Exit>,
        stragglers: u64,
    ) -> (JobReport, Option<std::io::Error>) {
        let meaning = &mut self.meaning;
        self.out_lines.finish(|line| meaning.reader.read_line(line, &mut meaning.signs));
        self.err_lines.finish(|line| {
            meaning.reader.read_stderr(line.bytes, &mut meaning.signs);
            meaning.keep_error_line(line.bytes);
        });
        meaning.reader.finish(&mut meaning.signs);
        meaning.take_signs();
        let code = exit.and_then(Exit::code);
        meaning.signs.extend(code.and_then(|code| from_exit(self.name, code, &meaning.tally)));
        meaning.take_signs();
        let tally = std::mem::take(&mut self.meaning.tally);
        let marker =
            tally.result.as_ref().and_then(|r| last_marker(&r.text, self.name.is_structured(), prompt));
        let last_line = match self.meaning.last_error_line.as_slice() {
            b"" => tally
                .result
                .as_ref()
                .and_then(|r| r.text.lines().rfind(|l| !l.trim().is_empty()))
                .unwrap_or("")
                .to_owned(),
            line => printable_bytes(line),
        };
        let resets_at = tally.limit.as_ref().and_then(|l| resolve(l.resets_at.as_ref()?));
        let report = JobReport {
            tally,
            marker,
            resets_at,
            stdout_bytes: self.out.seen,
            stderr_bytes: self.err.seen,
            cut_bytes: self.out.cut + self.err.cut,
            stragglers,
            last_line: clip(&last_line, MAX_LAST_LINE).to_owned(),
            ..JobReport::default()
        };
        (report, self.out.error.or(self.err.error))
    }
}

/// When a limit ends, by the machine's own zone where none is named.
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
