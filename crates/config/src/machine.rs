//! Checks settings against the machine: whether programs exist and files can be read.
//!
//! The caller answers these questions, because this crate does no I/O. The results are kept separate from errors
//! in the files: `check --explain` can still explain a plan that cannot run on this machine.

use crate::diagnostic::{Diagnostic, Diagnostics, Source};
use crate::frontmatter;
use crate::layers::Layers;
use crate::nearest::nearest;
use crate::placeholders;
use dogwatch_core::settings::{ReaderName, Settings, WatchPolicy};
use dogwatch_core::watch::limits::{Estimate, Key};
use std::collections::{BTreeMap, BTreeSet};

/// The agents that dogwatch can start and read without further configuration.
pub const AGENTS: [&str; 4] = ["claude", "codex", "opencode", "gemini"];

/// Answers questions about the machine on which a run would start.
pub trait Machine {
    /// Returns whether a session can start the program.
    fn has_program(&self, program: &str) -> bool;
    /// Checks the globs of `wake_on.paths`.
    fn wake_paths(&self, globs: &[String]) -> Result<(), String>;
    /// Reads a file. Paths are relative to the directory of the loop or graph file.
    fn read(&self, path: &str) -> Result<String, String>;
    /// Reads a template as the run will do. Paths are relative to the directory of the loop or graph file.
    fn template(&self, path: &str) -> Result<(), String>;
    /// Returns the limits that the recorded sessions of an agent suggest. `base` holds the limits without them.
    fn learned(&self, agent: ReaderName, base: &WatchPolicy) -> Vec<(Key, Estimate)> {
        let _ = (agent, base);
        Vec::new()
    }
    /// Takes the notices about these limits for the user.
    fn take_notices(&self) -> Vec<String> {
        Vec::new()
    }
}

/// The properties of a prompt file that validation needs.
#[derive(Clone, Debug, Default)]
pub struct PromptFile {
    /// It contains no prompt.
    pub is_empty: bool,
    /// The commands whose output it uses.
    pub commands: BTreeSet<String>,
}

impl PromptFile {
    fn of(text: &str) -> PromptFile {
        let body = frontmatter::body(text);
        let commands = placeholders::commands_in(&body).into_iter().map(|(name, _)| name.to_owned());
        PromptFile { is_empty: body.is_empty(), commands: commands.collect() }
    }
}

/// Checks settings against a machine. It asks every question once and reports every error once, even if many
/// nodes share a setting.
pub struct MachineCheck<'m, 's> {
    machine: Option<&'m dyn Machine>,
    /// The source for errors about settings that no file sets.
    source: Source<'s>,
    programs: BTreeMap<String, bool>,
    wake_paths: BTreeSet<Vec<String>>,
    texts: BTreeMap<String, Result<PromptFile, String>>,
    templates: BTreeMap<String, Result<(), String>>,
    reported: BTreeSet<(&'static str, String, usize)>,
    /// The errors.
    pub faults: Diagnostics,
}

impl<'m, 's> MachineCheck<'m, 's> {
    /// Creates a check. Without a machine it reports nothing.
    pub fn new(machine: Option<&'m dyn Machine>, source: Source<'s>) -> MachineCheck<'m, 's> {
        MachineCheck {
            machine,
            source,
            programs: BTreeMap::new(),
            wake_paths: BTreeSet::new(),
            texts: BTreeMap::new(),
            templates: BTreeMap::new(),
            reported: BTreeSet::new(),
            faults: Diagnostics::default(),
        }
    }

    /// Checks the programs, globs and files of one node's settings.
    pub fn settings(&mut self, settings: &Settings, layers: &Layers<'_>) {
        self.program("agent", "the agent's program", &settings.agent, layers);
        for other in &settings.recovery.agents {
            self.program("recovery.agents", "the program", &other.agent, layers);
        }
        self.wake_on(&settings.wake_on.paths, layers);
        if let (Some(template), Some(machine)) = (&settings.recovery.template, self.machine)
            && let read = self.templates.entry(template.clone()).or_insert_with(|| machine.template(template))
            && let Err(why) = read.clone()
        {
            let message = format!("cannot read the template `{template}`");
            self.fault(layers, "recovery.template", &message).map(|fault| fault.label(&why));
        }
    }

    fn program(&mut self, key: &'static str, what: &str, agent: &[String], layers: &Layers<'_>) {
        let (Some(machine), Some(program)) = (self.machine, agent.first()) else { return };
        if !self.programs.contains_key(program) {
            self.programs.insert(program.clone(), machine.has_program(program));
        }
        if self.programs.get(program) == Some(&false) {
            let (fault, help) = match nearest(program, AGENTS) {
                _ if program.starts_with("~/") => {
                    ("is not an executable file", "write the whole path; `~` is not expanded".to_owned())
                }
                _ if program.contains('/') => {
                    let help = "correct its path, or make it executable with `chmod +x`";
                    ("is not an executable file", help.to_owned())
                }
                Some(near) if near != program => ("was not found on PATH", format!("did you mean `{near}`?")),
                _ => ("was not found on PATH", "install it, or name another program".to_owned()),
            };
            self.fault(layers, key, &format!("{what} `{program}` {fault}")).map(|fault| fault.help(help));
        }
    }

    fn wake_on(&mut self, paths: &[String], layers: &Layers<'_>) {
        let Some(machine) = self.machine else { return };
        if paths.is_empty() || !self.wake_paths.insert(paths.to_vec()) {
            return;
        }
        if let Err(why) = machine.wake_paths(paths) {
            let message = "`wake_on.paths` contains an invalid glob";
            self.fault(layers, "wake_on.paths", message).map(|fault| fault.label(&why));
        }
    }

    /// Checks that a file can be read. The first time, its text is passed to `look`.
    pub fn text(&mut self, path: &str, look: &mut dyn FnMut(&str)) -> Result<(), String> {
        let Some(machine) = self.machine else { return Ok(()) };
        if !self.texts.contains_key(path) {
            let read = machine.read(path).map(|text| {
                look(&text);
                PromptFile::of(&text)
            });
            self.texts.insert(path.to_owned(), read);
        }
        self.texts[path].as_ref().map(|_| ()).map_err(Clone::clone)
    }

    /// Returns the facts of a prompt in a file; none without a machine.
    pub fn prompt_file(&mut self, path: &str) -> Result<Option<PromptFile>, String> {
        self.text(path, &mut |_| {})?;
        self.texts.get(path).cloned().transpose()
    }

    /// Reports a fault at the place where the key is set, once.
    fn fault(&mut self, layers: &Layers<'_>, key: &'static str, message: &str) -> Option<&mut Diagnostic> {
        let origin = layers.get(key).map(|assigned| &assigned.origin);
        let (source, span) =
            origin.map_or((self.source, 0..0), |origin| (origin.source, origin.span.clone()));
        if !self.reported.insert((key, message.to_owned(), span.start)) {
            return None;
        }
        Some(self.faults.error(source, span, message))
    }
}
