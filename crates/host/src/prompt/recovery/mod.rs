//! The prompt after a session that was stopped: the usual prompt, and what the agent should know about that
//! session. It is rendered from a template, ours or the user's. A template that fails is reported as trouble, and
//! ours is used instead.
//!
//! Templates are read once, when the run begins, so agents cannot change them during the run.

use crate::prompt::read_at_most;
use dogwatch_core::record::event::CheckResult;
use dogwatch_core::run::decision::{Diagnosis, PromptContext};
use dogwatch_core::run::input::Input;
use minijinja::value::Serde;
use minijinja::{AutoEscape, Environment, UndefinedBehavior, Value};
use serde::Serialize;
use std::collections::BTreeMap;
use std::io::{self, Write};
use std::path::Path;

/// The built-in template.
pub const TEMPLATE: &str = include_str!("recovery.md.j2");

/// Larger template files are refused.
pub const MAX_TEMPLATE_BYTES: usize = 64 * 1024;
/// The most templates that one run may use.
pub const MAX_TEMPLATES: usize = 100;
/// The most bytes that a template may add to the prompt.
pub const MAX_ADDED_BYTES: usize = 1024 * 1024;
/// The most steps that a template may execute. Ours takes a few hundred.
pub const FUEL: u64 = 100_000;

/// The templates of a run, by their name in the settings.
#[derive(Default)]
pub struct Templates {
    texts: BTreeMap<String, Result<String, String>>,
}

/// The variables of a template.
pub struct Facts<'a> {
    /// The prompt without the recovery template.
    pub prompt: &'a str,
    /// Results of earlier iterations.
    pub prompt_context: &'a PromptContext,
    /// The diagnosis of the stopped session.
    pub diagnosis: &'a Diagnosis,
    /// The last message of the stopped session.
    pub last_output: &'a str,
    /// The files that agents saved.
    pub artifacts: &'a [Artifact],
    /// The node's name.
    pub node: &'a str,
    /// The iteration's number.
    pub iteration: u64,
}

/// A file that an agent saved.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Artifact {
    /// The name of the file.
    pub name: String,
    /// The path of the file.
    pub path: String,
    /// The size in bytes.
    pub bytes: u64,
    /// The iteration's number.
    pub iteration: u64,
}

#[derive(Serialize)]
struct Diagnostic<'a> {
    class: &'a str,
    reason: &'a str,
    message: &'a str,
    iteration: u64,
}

#[derive(Serialize)]
struct Variables<'a> {
    prompt: &'a str,
    diagnostic: Diagnostic<'a>,
    evidence: &'a [dogwatch_core::watch::Evidence],
    last_output: &'a str,
    artifacts: &'a [Artifact],
    checks: Vec<Check<'a>>,
    tried: &'a [String],
    attempt: u32,
    budget: u32,
    node: &'a str,
    iteration: u64,
}

/// A failing check with every field set, so that a template can use any of them.
#[derive(Serialize)]
struct Check<'a> {
    cmd: &'a str,
    rc: i32,
    duration_s: f64,
    tail: &'a str,
    truncated: bool,
    timed_out: bool,
}

impl Templates {
    /// Reads the files that the settings name, relative to `dir`.
    pub fn read<'a>(dir: &Path, names: impl Iterator<Item = &'a str>) -> Templates {
        let mut texts = BTreeMap::new();
        for name in names {
            if !texts.contains_key(name) {
                let text = if texts.len() < MAX_TEMPLATES {
                    read_inside(dir, name)
                } else {
                    Err(format!("this run has more than {MAX_TEMPLATES} templates"))
                };
                texts.insert(name.to_owned(), text);
            }
        }
        Templates { texts }
    }

    /// Renders the prompt. Also returns the trouble with the user's template, if any.
    pub fn render(&self, name: Option<&str>, facts: &Facts<'_>) -> (String, Option<Input>) {
        let Some(name) = name else { return (ours(facts), None) };
        let text = match self.texts.get(name) {
            Some(text) => text.as_ref().map_err(String::clone),
            None => Err("not read at the start of the run".to_owned()),
        };
        match text.and_then(|text| render(text, facts)) {
            Ok(prompt) => (prompt, None),
            Err(why) => {
                let detail = format!("recovery.template {name}: {why}; using the built-in template");
                (ours(facts), Some(Input::TroubleMet { kind: "recovery_template", detail }))
            }
        }
    }
}

/// Reads a template. Its path, with all links resolved, must stay in the directory of the loop.
pub fn read_inside(dir: &Path, name: &str) -> Result<String, String> {
    let words = |error: std::io::Error| error.to_string();
    let (dir, file) = (dir.canonicalize().map_err(words)?, dir.join(name).canonicalize().map_err(words)?);
    if !file.starts_with(&dir) {
        return Err(format!("it is outside of {}", dir.display()));
    }
    read_at_most(&file, MAX_TEMPLATE_BYTES).map_err(words)
}

fn ours(facts: &Facts<'_>) -> String {
    // Even if ours were broken, the agent gets its prompt.
    render(TEMPLATE, facts).unwrap_or_else(|_| facts.prompt.to_owned())
}

fn render(template: &str, facts: &Facts<'_>) -> Result<String, String> {
    let mut environment = Environment::new();
    environment.set_undefined_behavior(UndefinedBehavior::Strict);
    environment.set_auto_escape_callback(|_| AutoEscape::None);
    environment.set_fuel(Some(FUEL));
    let in_words = |error: minijinja::Error| match error.line() {
        Some(line) => format!("line {line}: {error}"),
        None => error.to_string(),
    };
    let template = environment.template_from_str(template).map_err(in_words)?;
    let mut out = Bounded { text: Vec::new(), room: facts.prompt.len() + MAX_ADDED_BYTES };
    let rendered = template.render_captured_to(Value::from(Serde(variables(facts))), &mut out).map(drop);
    if out.room == 0 {
        return Err(format!("adds more than {MAX_ADDED_BYTES} bytes to the prompt"));
    }
    rendered.map_err(in_words)?;
    String::from_utf8(out.text).map_err(|error| error.to_string())
}

fn variables<'a>(facts: &Facts<'a>) -> Variables<'a> {
    let Diagnosis { class, iteration, reason, message, evidence, tried, attempt, budget } = facts.diagnosis;
    Variables {
        prompt: facts.prompt,
        diagnostic: Diagnostic { class: class.as_str(), reason, message, iteration: iteration.0 },
        evidence,
        last_output: facts.last_output,
        artifacts: facts.artifacts,
        checks: facts.prompt_context.failed.iter().map(check).collect(),
        tried,
        attempt: *attempt,
        budget: *budget,
        node: facts.node,
        iteration: facts.iteration,
    }
}

fn check(result: &CheckResult) -> Check<'_> {
    Check {
        cmd: &result.cmd,
        rc: result.rc,
        duration_s: result.duration_s.as_secs_f64(),
        tail: result.tail.as_deref().unwrap_or(""),
        truncated: result.truncated,
        timed_out: result.timed_out,
    }
}

/// A writer that accepts a limited number of bytes and fails beyond that.
struct Bounded {
    text: Vec<u8>,
    room: usize,
}

impl Write for Bounded {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if bytes.len() >= self.room {
            self.room = 0;
            return Err(io::ErrorKind::FileTooLarge.into());
        }
        self.room -= bytes.len();
        self.text.extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[cfg(test)]
mod tests;
