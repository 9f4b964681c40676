//! Files written next to the record for people: each node's log, and a summary of abandoned work. Both are built
//! from the record and the raw files, with control characters removed.

use super::{CONTEXT_FILE, HostShell};
use crate::prompt::recovery::Artifact;
use crate::store::home;
use crate::store::{safe_file, secrets};
use dogwatch_core::Run;
use dogwatch_core::record::event::{CheckResult, SessionEnded};
use dogwatch_core::record::ids::{Iteration, NodeIx};
use dogwatch_core::record::view::NodeView;
use dogwatch_core::run::decision::ContextEntry;
use dogwatch_core::run::input::Input;
use dogwatch_core::run::job::Job;
use dogwatch_core::text::figures::count;
use dogwatch_core::text::{printable, printable_bytes};
use std::fmt::Write as _;
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};

/// How many bytes from the end of each stream a node's log contains.
const LOG_TAIL: u64 = 64 * 1024;
/// How many bytes of the last output the next session gets to see.
const LAST_OUTPUT: u64 = 4 * 1024;
/// How many iterations back to look for the agent's last message.
const LOOK_BACK: u64 = 20;

/// The file in an iteration's directory that holds the agent's last message.
const RESULT: &str = "result.md";

impl HostShell<'_> {
    /// Writes the agent's last message where the next session and the user can find it.
    pub(super) fn keep_result(&self, run: &Run, job: Job, text: &str) -> io::Result<()> {
        if text.trim().is_empty() {
            return Ok(());
        }
        let file = self.iteration_dir(run, job).join(RESULT);
        safe_file::write(&file, safe_file::PRIVATE, secrets::hide(&printable(text)).as_bytes())
    }

    /// Returns the last message of an iteration's session: its result, or else the end of its stdout.
    pub(super) fn last_output(&self, run: &Run, node: NodeIx, iteration: Iteration) -> String {
        let dir = self.dir_of(run, node, iteration);
        let end = |file: &str| end_of(&dir.join(file), LAST_OUTPUT).map(|(text, _)| text).unwrap_or_default();
        let result = end(RESULT);
        if result.trim().is_empty() { end("stdout") } else { result }.trim().to_owned()
    }

    /// Writes `<node>.log`, which describes the node's last attempt.
    pub(super) fn keep_log(&self, run: &Run, node: NodeIx, iteration: Iteration) -> Option<Input> {
        let view = run.view().node(node);
        let dir = self.dir_of(run, node, iteration);
        let mut text = format!("node       {}\niteration  {iteration}\n", view.name);
        let session = view.last.session.as_ref().filter(|s| s.iteration == iteration);
        let _ =
            writeln!(text, "agent      {}", session.map_or_else(|| "did not run".to_owned(), how_it_ended));
        let failing = view.attempts.failing().count();
        let checks = count(view.attempts.last.len() as u64, "check");
        let _ = match failing {
            0 => writeln!(text, "verdict    converged: {checks} passed"),
            n => writeln!(text, "verdict    not converged: {n} of {checks} failed"),
        };
        text.push_str("\nchecks\n");
        view.attempts.last.iter().for_each(|check| text.push_str(&check_line(check)));
        for stream in ["stdout", "stderr"] {
            let (end, all) = end_of(&dir.join(stream), LOG_TAIL).unwrap_or_default();
            let shown = if all > LOG_TAIL {
                format!("the last {LOG_TAIL} of {all} bytes")
            } else {
                count(all, "byte")
            };
            let _ = write!(text, "\n{stream} ({shown})\n{end}");
            if !end.is_empty() && !end.ends_with('\n') {
                text.push('\n');
            }
        }
        let file = self.paths.run_dir.join(format!("{}.log", view.name));
        keep_file(&file, &text, "log_not_kept")
    }

    /// Writes a summary of abandoned work and of the ways to inspect it.
    pub(super) fn keep_partial(
        &self,
        run: &Run,
        node: NodeIx,
        iteration: Iteration,
        file: &str,
    ) -> Option<Input> {
        let view = run.view().node(node);
        let (name, run_id) = (&view.name, &self.paths.run_id);
        let why = view.reason.as_deref().unwrap_or("the node was abandoned");
        let mut text = format!("# Partial work of `{name}`\n\nRun {run_id}, iteration {iteration}: {why}.\n");
        let words = self.last_message(run, node, iteration);
        let _ = write!(text, "\n## Last message of the agent\n\n{}\n", quoted(&words));
        if let Some(stopped) = &view.recovery.last {
            let _ = write!(
                text,
                "\n## Why the session was stopped\n\n{} ({})\n",
                stopped.message, stopped.reason
            );
        }
        let failing: Vec<&CheckResult> = view.attempts.failing().collect();
        if !failing.is_empty() {
            text.push_str("\n## Failing checks\n");
        }
        for check in failing {
            let tail = check.tail.as_deref().unwrap_or("");
            let _ =
                write!(text, "\n`{}`, exit code {}\n\n{}\n", check.cmd, check.rc, quoted(&printable(tail)));
        }
        let artifacts = self.artifacts(run, node);
        if !artifacts.is_empty() {
            text.push_str("\n## Files saved by the agent\n\n");
        }
        for Artifact { path, bytes, iteration, .. } in artifacts {
            let _ = writeln!(text, "- `{path}` ({bytes} bytes, iteration {iteration})");
        }
        text.push_str(&self.how_to_look(view, iteration));
        let file = self.paths.run_dir.join(file);
        keep_file(&file, &text, "partial_not_kept")
    }

    /// Returns the artifacts that the node's agents saved and that still exist, oldest first.
    pub(super) fn artifacts(&self, run: &Run, node: NodeIx) -> Vec<Artifact> {
        let (name, saved) = (&run.plan().nodes[node.0].name, run.view().node(node).work.artifacts.iter());
        saved
            .map(|saved| {
                (home::artifacts_dir(&self.paths.run_dir, name, saved.iteration).join(&saved.name), saved)
            })
            .filter(|(path, _)| path.is_file())
            .map(|(path, saved)| Artifact {
                name: saved.name.clone(),
                path: path.display().to_string(),
                bytes: saved.bytes,
                iteration: saved.iteration.0,
            })
            .collect()
    }

    fn how_to_look(&self, view: &NodeView, iteration: Iteration) -> String {
        let run = &self.paths.run_id;
        let mut text = "\n## How to inspect the work\n\n".to_owned();
        if let Some((path, branch)) = &view.work.worktree {
            let _ = write!(text, "The worktree is {path}, on branch `{branch}`.\n\n");
        }
        match &view.work.snapshot {
            Some(name) => {
                let _ = write!(
                    text,
                    "The snapshot is `{name}`:\n\n    dogwatch diff {run} {iteration}\n    git show --stat {name}\n    \
                     git diff {name}^1 {name}\n"
                );
            }
            None => text.push_str("No snapshot was taken; any changes are in the work tree.\n"),
        }
        text
    }

    /// Returns the agent's last message from the latest iteration that has one.
    fn last_message(&self, run: &Run, node: NodeIx, iteration: Iteration) -> String {
        let back = (iteration.0.saturating_sub(LOOK_BACK)..=iteration.0).rev();
        let said = back.map(|n| self.last_output(run, node, Iteration(n)));
        said.into_iter().find(|words| !words.is_empty()).unwrap_or_else(|| "(no message)".to_owned())
    }

    fn dir_of(&self, run: &Run, node: NodeIx, iteration: Iteration) -> PathBuf {
        home::iteration_dir(&self.paths.run_dir, &run.plan().nodes[node.0].name, iteration)
    }

    /// Appends the reason for going to sleep to `decisions.jsonl` in the state directory.
    pub(super) fn append_context(&self, entry: &ContextEntry) -> io::Result<()> {
        let mut line = serde_json::to_vec(entry)?;
        line.push(b'\n');
        let path = self.paths.state_dir.join(CONTEXT_FILE);
        let kept = safe_file::append(&path, safe_file::PLAIN).and_then(|mut file| {
            file.write_all(&line)?;
            file.sync_data()
        });
        kept.map_err(|error| io::Error::new(error.kind(), format!("{}: {error}", path.display())))
    }
}

/// Replaces a file atomically. Returns the trouble it met.
fn keep_file(file: &Path, text: &str, trouble: &'static str) -> Option<Input> {
    let error = safe_file::replace(file, safe_file::PRIVATE, secrets::hide(text).as_bytes()).err()?;
    let detail = format!("{}: {error}", file.display());
    Some(Input::TroubleMet { kind: trouble, detail })
}

fn how_it_ended(session: &SessionEnded) -> String {
    let how = match (session.exit_code, session.signal) {
        (Some(code), _) => format!("exit code {code}"),
        (None, Some(signal)) => format!("signal {signal}"),
        (None, None) => "no exit code".to_owned(),
    };
    format!("{how}, after {}, ended by {}", session.duration_s, session.ended_by)
}

fn check_line(check: &CheckResult) -> String {
    let word = match check.rc {
        0 if check.flaky => "flaky",
        0 => "pass",
        _ if check.timed_out => "TIMEOUT",
        _ => "FAIL",
    };
    let mut text = format!("{word:7} rc {:3}  {}  {}\n", check.rc, check.duration_s, printable(&check.cmd));
    for line in printable(check.tail.as_deref().unwrap_or("")).lines() {
        text.push_str("        ");
        text.push_str(line);
        text.push('\n');
    }
    text
}

fn quoted(text: &str) -> String {
    text.lines().map(|line| format!("    {line}").trim_end().to_owned()).collect::<Vec<_>>().join("\n")
}

/// Returns the last bytes of a file as text without secrets, and the size of the whole file. Only here it is known where the text
/// was cut.
fn end_of(file: &Path, max: u64) -> io::Result<(String, u64)> {
    let mut file = safe_file::read(file)?;
    let all = file.metadata()?.len();
    file.seek(SeekFrom::Start(all.saturating_sub(max)))?;
    let mut bytes = Vec::new();
    file.take(max).read_to_end(&mut bytes)?;
    // Skip the rest of a character that was cut in the middle.
    let cut =
        if all > max { bytes.iter().take(3).take_while(|byte| (**byte & 0xC0) == 0x80).count() } else { 0 };
    Ok((secrets::hide(&printable_bytes(&bytes[cut..])).into_owned(), all))
}

#[cfg(test)]
mod tests {
    use super::*;

    // promise: 4
    #[test]
    fn the_end_of_a_file_is_cut_at_characters_and_sanitized() {
        let dir = tempfile::tempdir().expect("a directory");
        let file = dir.path().join("f");
        std::fs::write(&file, "a\u{1b}[2Jb€€€").expect("writes");
        assert_eq!(end_of(&file, 100).expect("reads"), ("ab€€€".to_owned(), 15));
        assert_eq!(end_of(&file, 9).expect("reads"), ("€€€".to_owned(), 15));
        assert_eq!(end_of(&file, 8).expect("reads"), ("€€".to_owned(), 15));
        assert!(end_of(&dir.path().join("gone"), 8).is_err());
    }
}
