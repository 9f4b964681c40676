//! The prompt of an iteration: the body of the loop file, or of the node's own file, read afresh and filled in; then
//! what failed before, what people said, and what the agent should know about dogwatch.
//!
//! A file that was deleted, emptied or broken does not end the night: the last good body is used and the
//! trouble is told. Settings are read once, at the start; a change to them is told as well.

mod failing;
pub mod recovery;

use crate::prompt::recovery::{Artifact, Facts, Templates};
use dogwatch_config::frontmatter;
use dogwatch_config::placeholders::{CommandOutput, Values, asks_for_checks, expand};
use dogwatch_core::record::ids::{Iteration, NodeIx};
use dogwatch_core::run::decision::PromptContext;
use dogwatch_core::run::input::Input;
use dogwatch_core::settings::{NodePlan, PromptSource};
use std::collections::BTreeMap;
use std::io::{self, Read};
use std::path::PathBuf;

/// What the agent is told about commits when the loop file sets `credit`.
const CREDIT: &str = "When you commit, add this trailer to the message:\n\nAssisted-by: dogwatch";

/// What stands before a person's words.
const TOLD: &str = "The person who started this loop says:";

/// How an agent says that there is nothing to do. The marker is shown in backticks, with a space that a
/// real one does not have, so that an agent that prints its prompt does not seem to say it.
const IDLE_INSTRUCTION: &str = "\
If there is nothing left to do right now, do not invent work. Say so, and end your answer with a line that holds \
only an HTML comment of this form (without the backticks and without the first space):

`< !-- ralph:state idle reason=no_pending_tasks -->`

The reason is one word of your choice: no_pending_tasks when all work is done, or e.g. blocked, waiting_for_review.";

/// A prompt, ready.
#[derive(Debug, PartialEq)]
pub struct Assembled {
    pub text: String,
    /// The same without what changes by itself: equal keys ask the same.
    pub key: String,
    /// What there is to tell about the file that the prompt came from.
    pub news: Option<Input>,
    /// What there is to tell about the template.
    pub trouble: Option<Input>,
    /// Why there is no prompt.
    pub fault: Option<String>,
}

/// What a prompt is made from.
pub struct Ask<'a> {
    pub ix: NodeIx,
    pub node: &'a NodePlan,
    pub iteration: Iteration,
    pub outputs: &'a [CommandOutput],
    /// What people said.
    pub told: &'a [String],
    pub brief: &'a PromptContext,
    /// The last words of the session that had to be ended.
    pub last_output: &'a str,
    /// Files that the node's agents saved.
    pub artifacts: &'a [Artifact],
}

pub struct Prompter {
    file: PathBuf,
    body: String,
    frontmatter: String,
    /// The trouble told last, so that the same is not told every iteration.
    told: Option<String>,
    /// The last good bodies of nodes with a file of their own, for as long as these are under way.
    bodies: BTreeMap<NodeIx, String>,
    templates: Templates,
}

impl Prompter {
    /// `text` is the loop file as it was when the settings were read from it.
    pub fn new(file: PathBuf, text: &str, templates: Templates) -> Prompter {
        Prompter {
            file,
            body: frontmatter::body(text),
            frontmatter: frontmatter::settings(text),
            told: None,
            bodies: BTreeMap::new(),
            templates,
        }
    }

    /// The prompt of an iteration.
    pub fn assemble(&mut self, ask: &Ask<'_>) -> Assembled {
        let (body, news) = match self.body_of(ask) {
            Ok(found) => found,
            Err(fault) => {
                let (text, key, fault) = (String::new(), String::new(), Some(fault));
                return Assembled { text, key, news: None, trouble: None, fault };
            }
        };
        // The number of the iteration changes by itself and is no news.
        let (key, _) = self.fill_in(&body, ask, Iteration(0));
        let (text, trouble) = self.fill_in(&body, ask, ask.iteration);
        Assembled { text, key, news, trouble, fault: None }
    }

    /// Forgets the bodies of nodes that are not under way any more.
    pub fn forget(&mut self, under_way: impl Fn(NodeIx) -> bool) {
        self.bodies.retain(|ix, _| under_way(*ix));
    }

    fn body_of(&mut self, ask: &Ask<'_>) -> Result<(String, Option<Input>), String> {
        match &ask.node.prompt {
            PromptSource::LoopFile => {
                let news = self.reread();
                Ok((self.body.clone(), news))
            }
            PromptSource::Text(text) => Ok((text.clone(), None)),
            PromptSource::File(name) => self.own_file(ask.ix, name),
        }
    }

    /// A node's own file, or what it said last.
    fn own_file(&mut self, ix: NodeIx, name: &str) -> Result<(String, Option<Input>), String> {
        let file = self.file.parent().map_or_else(|| PathBuf::from(name), |dir| dir.join(name));
        let read = read_bounded(&file).map(|text| frontmatter::body(&text));
        let fault = match read {
            Ok(body) if !body.is_empty() => {
                self.bodies.insert(ix, body.clone());
                return Ok((body, None));
            }
            Ok(_) => format!("{}: there is no prompt in it", file.display()),
            Err(error) => format!("{}: {error}", file.display()),
        };
        let Some(body) = self.bodies.get(&ix) else { return Err(fault) };
        let detail = format!("{fault}; going on with the last good text");
        Ok((body.clone(), Some(Input::TroubleMet { kind: "prompt_file", detail })))
    }

    fn fill_in(&self, body: &str, ask: &Ask<'_>, iteration: Iteration) -> (String, Option<Input>) {
        let settings = &ask.node.settings;
        let failed = failing::text(ask.brief);
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
        if let Some(diagnosis) = &ask.brief.diagnosis {
            let facts = Facts {
                prompt: &prompt,
                brief: ask.brief,
                diagnosis,
                last_output: ask.last_output,
                artifacts: ask.artifacts,
                node: ask.node.name.as_str(),
                iteration: iteration.0,
            };
            (prompt, trouble) = self.templates.render(settings.recovery.template.as_deref(), &facts);
        } else if !failed.is_empty() && !asks_for_checks(body) {
            prompt.push_str("\n\n");
            prompt.push_str(&failing::block(ask.brief, &failed));
        }
        let mut add = |text: &str| {
            prompt.push_str("\n\n");
            prompt.push_str(text);
        };
        if !ask.told.is_empty() {
            add(&format!("{TOLD}\n\n- {}", ask.told.join("\n- ")));
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
            Ok(news) => {
                self.told = None;
                news
            }
            Err(fault) => {
                let detail = format!("{}: {fault}; going on with the last good text", self.file.display());
                let news = self.told.as_ref() != Some(&detail);
                self.told = Some(detail.clone());
                news.then_some(Input::TroubleMet { kind: "loop_file", detail })
            }
        }
    }

    /// Takes a new text in, unless it looks like half a file: somebody may be writing it just now.
    fn take(&mut self, text: &str) -> Result<Option<Input>, String> {
        let (body, settings) = (frontmatter::body(text), frontmatter::settings(text));
        if body.is_empty() && !self.body.is_empty() {
            return Err("there is no prompt in it any more".into());
        }
        if settings.is_empty() && !self.frontmatter.is_empty() {
            return Err("its settings are gone".into());
        }
        if settings == self.frontmatter {
            self.body = body;
            return Ok(None);
        }
        if let Some(fault) = frontmatter::fault(text) {
            return Err(format!("its settings cannot be read: {fault}"));
        }
        (self.body, self.frontmatter) = (body, settings);
        let message = format!(
            "the settings in {} changed; this run goes on with those it started with",
            self.file.display()
        );
        Ok(Some(Input::Noticed { kind: "settings_changed", message }))
    }
}

/// Reads a text file of bounded size.
pub fn read_bounded(file: &std::path::Path) -> io::Result<String> {
    read_at_most(file, dogwatch_config::limits::MAX_FILE_BYTES)
}

/// Reads a text file of at most `max` bytes.
pub fn read_at_most(file: &std::path::Path, max: usize) -> io::Result<String> {
    // Opening a FIFO would wait for a writer for ever.
    if !std::fs::metadata(file)?.is_file() {
        return Err(io::Error::new(io::ErrorKind::InvalidInput, "not a regular file"));
    }
    let mut bytes = Vec::new();
    std::fs::File::open(file)?.take(max as u64 + 1).read_to_end(&mut bytes)?;
    if bytes.len() > max {
        return Err(io::Error::new(io::ErrorKind::FileTooLarge, format!("larger than {max} bytes")));
    }
    String::from_utf8(bytes).map_err(|e| {
        io::Error::new(
            io::ErrorKind::InvalidData,
            format!("not UTF-8 at byte {}", e.utf8_error().valid_up_to()),
        )
    })
}

#[cfg(test)]
mod tests;
