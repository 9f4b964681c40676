//! An agent's output: raw bytes to the iteration's files, lines to the reader, progress to the driver.

use super::RawFile;
use crate::clock;
use crate::inbox::{Inbox, Mail};
use dogwatch_agents::{Reader, Splitter, last_marker};
use dogwatch_core::coalesce::Coalescer;
use dogwatch_core::job::{Job, JobReport};
use dogwatch_core::settings::ReaderName;
use dogwatch_core::sign::{Sign, Tally};
use dogwatch_core::text::{clip, printable_bytes};
use dogwatch_core::watch::Channel;
use std::path::Path;

/// How much of the last line of stderr is kept.
const MAX_LAST_LINE: usize = 500;

pub struct SessionSink {
    job: Job,
    inbox: Inbox,
    out: RawFile,
    err: RawFile,
    out_lines: Splitter,
    err_lines: Splitter,
    meaning: Meaning,
    stdout: Coalescer,
    name: ReaderName,
}

/// What the output means so far.
struct Meaning {
    reader: Reader,
    tally: Tally,
    signs: Vec<Sign>,
    /// Progress since it was last asked for.
    progress: u64,
    messages: u64,
    last_error_line: Vec<u8>,
}

impl Meaning {
    fn tally_signs(&mut self) {
        for sign in self.signs.drain(..) {
            match sign {
                Sign::Message => {
                    self.progress += 1;
                    self.messages += 1;
                }
                Sign::Text | Sign::ToolStarted { .. } | Sign::ToolEnded { .. } | Sign::Result(_) => {
                    self.progress += 1
                }
                Sign::Subagent
                | Sign::Error { .. }
                | Sign::Usage { .. }
                | Sign::Keepalive
                | Sign::Unknown => {}
            }
            self.tally.add(sign);
        }
    }

    fn keep_error_line(&mut self, line: &[u8]) {
        if !line.trim_ascii().is_empty() {
            self.last_error_line.clear();
            self.last_error_line.extend_from_slice(&line[..line.len().min(MAX_LAST_LINE)]);
        }
    }
}

impl SessionSink {
    pub fn new(job: Job, name: ReaderName, dir: &Path, cap: u64, inbox: Inbox) -> SessionSink {
        SessionSink {
            job,
            inbox,
            out: RawFile::new(dir.join("stdout"), cap),
            err: RawFile::new(dir.join("stderr"), cap),
            out_lines: Splitter::new(),
            err_lines: Splitter::new(),
            meaning: Meaning {
                reader: Reader::for_name(name),
                tally: Tally::default(),
                signs: Vec::new(),
                progress: 0,
                messages: 0,
                last_error_line: Vec::new(),
            },
            stdout: Coalescer::new(Channel::Stdout),
            name,
        }
    }

    pub fn stdout(&mut self, bytes: &[u8]) {
        self.out.write(bytes);
        let meaning = &mut self.meaning;
        self.out_lines.feed(bytes, |line| {
            meaning.reader.read_line(line, &mut meaning.signs);
            meaning.tally_signs();
        });
        self.note_progress();
    }

    pub fn stderr(&mut self, bytes: &[u8]) {
        self.err.write(bytes);
        let meaning = &mut self.meaning;
        self.err_lines.feed(bytes, |line| {
            meaning.reader.read_stderr(line.bytes, &mut meaning.signs);
            meaning.tally_signs();
            meaning.keep_error_line(line.bytes);
        });
        self.note_progress();
    }

    fn note_progress(&mut self) {
        let (count, messages) = (self.meaning.progress, self.meaning.messages);
        if count > 0 {
            (self.meaning.progress, self.meaning.messages) = (0, 0);
            if let Some(seen) = self.stdout.saw(clock::awake(), count, messages) {
                self.inbox.post(Mail::Observed { job: self.job, seen });
            }
        }
    }

    /// Hands over what still waits, because somebody is about to judge.
    pub fn report_progress(&mut self) {
        if let Some(seen) = self.stdout.flush(clock::awake()) {
            self.inbox.post(Mail::Observed { job: self.job, seen });
        }
    }

    /// The process tree is empty and the pipes are drained: what came of it.
    pub fn finish(mut self, prompt: &str, stragglers: u64) -> (JobReport, Option<std::io::Error>) {
        let meaning = &mut self.meaning;
        self.out_lines.finish(|line| meaning.reader.read_line(line, &mut meaning.signs));
        self.err_lines.finish(|line| {
            meaning.reader.read_stderr(line.bytes, &mut meaning.signs);
            meaning.keep_error_line(line.bytes);
        });
        meaning.reader.finish(&mut meaning.signs);
        meaning.tally_signs();
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
        let report = JobReport {
            tally,
            marker,
            stdout_bytes: self.out.seen,
            stderr_bytes: self.err.seen,
            cut_bytes: self.out.cut + self.err.cut,
            stragglers,
            last_line: clip(&last_line, MAX_LAST_LINE).to_owned(),
        };
        (report, self.out.error.or(self.err.error))
    }
}
