//! The prompt of an iteration: the body of the loop file or of the node's own file, read again each time and filled
//! in; then the checks that failed, messages from the operator, and instructions for working with dogwatch.
//!
//! A file that was deleted, emptied or broken does not stop the run: the last good body is used and a trouble event
//! is recorded. Settings are read once, at the start; a change to them is reported too.

mod conflicts;
mod failing;
/// The prompt after a session that was stopped.
pub mod recovery;

use crate::prompt::recovery::{Artifact, Facts, Templates};
use crate::store::safe_file;
use dogwatch_config::frontmatter;
use dogwatch_config::placeholders::{CommandOutput, Values, asks_for_checks, expand};
use dogwatch_core::record::ids::{Iteration, NodeIx};
use dogwatch_core::run::decision::PromptContext;
use dogwatch_core::run::input::Input;
use dogwatch_core::settings::{NodePlan, PromptSource};
use std::collections::BTreeMap;
use std::io;
use std::path::PathBuf;

/// The instruction about commits for loop files that set `credit`.
const CREDIT: &str = "When you commit, add this trailer to the message:\n\nAssisted-by: dogwatch";

/// The characters that may begin a new line for a reader of the prompt.
const LINE_BREAKS: [char; 7] = ['\n', '\r', '\u{b}', '\u{c}', '\u{85}', '\u{2028}', '\u{2029}'];
/// The heading of messages. A message that is not from the operator says so itself.
const MESSAGES_HEADING: &str = "Messages from the operator, unless marked otherwise:";

/// Tells the agent how to report that there is nothing to do. The marker is in backticks, with a space that a real
/// one does not have, so that an agent that echoes its prompt does not trigger it.
const IDLE_INSTRUCTION: &str = "\
If there is nothing left to do right now, do not invent work. Say so, and end your answer with a line that holds \
only an HTML comment of this form (without the backticks and without the first space):

`< !-- ralph:state idle reason=no_pending_tasks -->`

The reason is one word of your choice: no_pending_tasks when all work is done, or e.g. blocked, waiting_for_review.";

/// An assembled prompt.
#[derive(Debug, PartialEq)]
pub struct Assembled {
    /// The text of the prompt.
    pub text: String,
    /// The prompt without parts that change by themselves. Equal keys mean equal prompts.
    pub key: String,
    /// A notice or trouble about the prompt file.
    pub about_file: Option<Input>,
    /// Trouble with the recovery template.
    pub trouble: Option<Input>,
    /// The error, if the prompt could not be assembled.
    pub fault: Option<String>,
}

/// The parts of a prompt.
pub struct Ask<'a> {
    /// The index of the node.
    pub ix: NodeIx,
    /// The plan of the node.
    pub node: &'a NodePlan,
    /// The iteration's number.
    pub iteration: Iteration,
    /// The outputs of the commands.
    pub outputs: &'a [CommandOutput],
    /// Messages, with their source if it is not the operator.
    pub messages: &'a [String],
    /// Results of earlier iterations.
    pub prompt_context: &'a PromptContext,
    /// The last message of the session that was stopped.
    pub last_output: &'a str,
    /// Files that the node's agents saved.
    pub artifacts: &'a [Artifact],
}

/// Assembles prompts and remembers the last good bodies.
pub struct Prompter {
    file: PathBuf,
    body: String,
    frontmatter: String,
    /// The last trouble that was reported, so that it is not repeated every iteration.
    last_trouble: Option<String>,
    /// The last good bodies of nodes with their own file, while these nodes are running.
    bodies: BTreeMap<NodeIx, String>,
    templates: Templates,
}

impl Prompter {
    /// Creates a prompter. `text` is the loop file as it was when the settings were read.
    pub fn new(file: PathBuf, text: &str, templates: Templates) -> Prompter {
        Prompter {
            file,
            body: frontmatter::body(text),
            frontmatter: frontmatter::settings(text),
            last_trouble: None,
            bodies: BTreeMap::new(),
            templates,
        }
    }

    /// Assembles the prompt of an iteration.
    pub fn assemble(&mut self, ask: &Ask<'_>) -> Assembled {
        let (body, about_file) = match self.body_of(ask) {
            Ok(found) => found,
            Err(fault) => {
                let (text, key, fault) = (String::new(), String::new(), Some(fault));
                return Assembled { text, key, about_file: None, trouble: None, fault };
            }
        };
        // The iteration number changes by itself, so the key excludes it.
        let (key, _) = self.fill_in(&body, ask, Iteration(0));
        let (text, trouble) = self.fill_in(&body, ask, ask.iteration);
        Assembled { text, key, about_file, trouble, fault: None }
    }

    /// Drops the bodies of nodes that are no longer running.
    pub fn forget(&mut self, under_way: impl Fn(NodeIx) -> bool) {
        self.bodies.retain(|ix, _| under_way(*ix));
    }

    fn body_of(&mut self, ask: &Ask<'_>) -> Result<(String, Option<Input>), String> {
        match &ask.node.prompt {
            PromptSource::LoopFile => {
                let about_file = self.reread();
                Ok((self.body.clone(), about_file))
            }
            PromptSource::Text(text) => Ok((text.clone(), None)),
            PromptSource::File(name) => self.own_file(ask.ix, name),
        }
    }

    /// Reads a node's own file, or falls back to its last good body.
    fn own_file(&mut self, ix: NodeIx, name: &str) -> Result<(String, Option<Input>), String> {
        let file = self.file.parent().map_or_else(|| PathBuf::from(name), |dir| dir.join(name));
        let read = read_bounded(&file).map(|text| frontmatter::body(&text));
        let fault = match read {
            Ok(body) if !body.is_empty() => {
                self.bodies.insert(ix, body.clone());
                return Ok((body, None));
            }
            Ok(_) => format!("{}: no prompt found", file.display()),
            Err(error) => format!("{}: {error}", file.display()),
        };
        let Some(body) = self.bodies.get(&ix) else { return Err(fault) };
        let detail = format!("{fault}; using the last good text");
        Ok((body.clone(), Some(Input::TroubleMet { kind: "prompt_file", detail })))
    }

    fn fill_in(&self, body: &str, ask: &Ask<'_>, iteration: Iteration) -> (String, Option<Input>) {
        let settings = &ask.node.settings;
        let failed = failing::text(ask.prompt_context);
        let values = Values {
            commands: ask.outputs,
            args: &settings.args,
            name: ask.node.name.as_str(),
            iteration: iteration.0,
            max_iterations: settings.max_iterations,
            failed_checks: &failed,
        };
        let mut prompt = expand(body, &values);
        let mut trouble = None;
        if let Some(diagnosis) = &ask.prompt_context.diagnosis {
            let facts = Facts {
                prompt: &prompt,
                prompt_context: ask.prompt_context,
                diagnosis,
                last_output: ask.last_output,
                artifacts: ask.artifacts,
                node: ask.node.name.as_str(),
                iteration: iteration.0,
            };
            (prompt, trouble) = self.templates.render(settings.recovery.template.as_deref(), &facts);
        } else if !failed.is_empty() && !asks_for_checks(body) {
            prompt.push_str("\n\n");
            prompt.push_str(&failing::block(ask.prompt_context, &failed));
        }
        if !ask.prompt_context.conflicts.is_empty() {
            prompt.push_str("\n\n");
            prompt.push_str(&conflicts::block(&ask.prompt_context.conflicts));
        }
        let mut add = |text: &str| {
            prompt.push_str("\n\n");
            prompt.push_str(text);
        };
        if !ask.messages.is_empty() {
            // One message is one item: a line of it must not look like a message of its own, which might be unmarked.
            let item = |message: &String| {
                format!("- {}", message.split(LINE_BREAKS).collect::<Vec<_>>().join("\n  "))
            };
            let items: Vec<String> = ask.messages.iter().map(item).collect();
            add(&format!("{MESSAGES_HEADING}\n\n{}", items.join("\n")));
        }
        if settings.credit {
            add(CREDIT);
        }
        if settings.idle.as_ref().is_some_and(|i| i.instruct) {
            add(IDLE_INSTRUCTION);
        }
        (prompt, trouble)
    }

    fn reread(&mut self) -> Option<Input> {
        let read = read_bounded(&self.file).map_err(|e| e.to_string());
        match read.and_then(|text| self.take(&text)) {
            Ok(about_file) => {
                self.last_trouble = None;
                about_file
            }
            Err(fault) => {
                let detail = format!("{}: {fault}; using the last good text", self.file.display());
                let about_file = self.last_trouble.as_ref() != Some(&detail);
                self.last_trouble = Some(detail.clone());
                about_file.then_some(Input::TroubleMet { kind: "loop_file", detail })
            }
        }
    }

    /// Takes a new text, unless it looks incomplete: a program may be writing the file right now.
    fn take(&mut self, text: &str) -> Result<Option<Input>, String> {
        let (body, settings) = (frontmatter::body(text), frontmatter::settings(text));
        if body.is_empty() && !self.body.is_empty() {
            return Err("no prompt found".into());
        }
        if settings.is_empty() && !self.frontmatter.is_empty() {
            return Err("the settings are missing".into());
        }
        if settings == self.frontmatter {
            self.body = body;
            return Ok(None);
        }
        if let Some(fault) = frontmatter::fault(text) {
            return Err(format!("cannot read the settings: {fault}"));
        }
        (self.body, self.frontmatter) = (body, settings);
        let message =
            format!("the settings in {} changed; this run keeps those it started with", self.file.display());
        Ok(Some(Input::Noticed { kind: "settings_changed", message }))
    }
}

/// Reads a text file of bounded size.
pub fn read_bounded(file: &std::path::Path) -> io::Result<String> {
    read_at_most(file, dogwatch_config::limits::MAX_FILE_BYTES)
}

/// Reads a text file of at most `max` bytes.
pub fn read_at_most(file: &std::path::Path, max: usize) -> io::Result<String> {
    String::from_utf8(safe_file::read_named_whole(file, max as u64)?).map_err(|e| {
        io::Error::new(
            io::ErrorKind::InvalidData,
            format!("not UTF-8 at byte {}", e.utf8_error().valid_up_to()),
        )
    })
}

#[cfg(test)]
mod tests;
