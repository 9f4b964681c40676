//! What only a machine can tell about settings: whether a program is there, a file can be read.
//!
//! This crate asks and touches nothing; the caller answers. What it says is kept apart from errors in the files:
//! a plan that cannot run here is still a plan that can be explained.

use crate::diagnostic::{Diagnostics, Source};
use crate::layers::Layers;
use dogwatch_core::settings::Settings;
use std::collections::{BTreeMap, BTreeSet};

/// Answers for the place where the run would be.
pub trait Machine {
    /// Sessions could start it.
    fn has_program(&self, program: &str) -> bool;
    /// Finds fault with `wake_on.paths`.
    fn wake_paths(&self, globs: &[String]) -> Result<(), String>;
    /// A file's text. Paths are relative to the directory of the loop or graph file.
    fn read(&self, path: &str) -> Result<String, String>;
}

/// Asks every question once, and reports every fault once, however many nodes share a setting.
pub struct MachineCheck<'m, 's> {
    machine: Option<&'m dyn Machine>,
    /// Where a fault is reported that no place was given for.
    source: Source<'s>,
    programs: BTreeMap<String, bool>,
    wake_paths: BTreeSet<Vec<String>>,
    texts: BTreeMap<String, Result<(), String>>,
    reported: BTreeSet<(&'static str, String, usize)>,
    pub faults: Diagnostics,
}

impl<'m, 's> MachineCheck<'m, 's> {
    /// Without a machine nothing is asked.
    pub fn new(machine: Option<&'m dyn Machine>, source: Source<'s>) -> MachineCheck<'m, 's> {
        MachineCheck {
            machine,
            source,
            programs: BTreeMap::new(),
            wake_paths: BTreeSet::new(),
            texts: BTreeMap::new(),
            reported: BTreeSet::new(),
            faults: Diagnostics::default(),
        }
    }

    pub fn settings(&mut self, settings: &Settings, layers: &Layers<'_>) {
        self.program("agent", "the agent's program", &settings.agent, layers);
        for other in &settings.recovery.agents {
            self.program("recovery.agents", "the program", &other.agent, layers);
        }
        self.wake_on(&settings.wake_on.paths, layers);
        if let Some(template) = &settings.recovery.template
            && let Err(why) = self.text(template, &mut |_| {})
        {
            let message = format!("the template `{template}` cannot be read");
            self.fault(layers, "recovery.template", &message, Some(&why));
        }
    }

    fn program(&mut self, key: &'static str, what: &str, agent: &[String], layers: &Layers<'_>) {
        let (Some(machine), Some(program)) = (self.machine, agent.first()) else { return };
        if !self.programs.contains_key(program) {
            self.programs.insert(program.clone(), machine.has_program(program));
        }
        if self.programs.get(program) == Some(&false) {
            let fault =
                if program.contains('/') { "is not an executable file" } else { "was not found on PATH" };
            self.fault(layers, key, &format!("{what} `{program}` {fault}"), None);
        }
    }

    fn wake_on(&mut self, paths: &[String], layers: &Layers<'_>) {
        let Some(machine) = self.machine else { return };
        if paths.is_empty() || !self.wake_paths.insert(paths.to_vec()) {
            return;
        }
        if let Err(why) = machine.wake_paths(paths) {
            self.fault(layers, "wake_on.paths", "a wake path is no glob", Some(&why));
        }
    }

    /// Whether a file can be read; its text is shown to `look` the first time.
    pub fn text(&mut self, path: &str, look: &mut dyn FnMut(&str)) -> Result<(), String> {
        let Some(machine) = self.machine else { return Ok(()) };
        if !self.texts.contains_key(path) {
            let read = machine.read(path).map(|text| look(&text));
            self.texts.insert(path.to_owned(), read);
        }
        self.texts[path].clone()
    }

    fn fault(&mut self, layers: &Layers<'_>, key: &'static str, message: &str, label: Option<&str>) {
        let origin = layers.get(key).map(|assigned| &assigned.origin);
        let (source, span) =
            origin.map_or((self.source, 0..0), |origin| (origin.source, origin.span.clone()));
        if !self.reported.insert((key, message.to_owned(), span.start)) {
            return;
        }
        let diagnostic = self.faults.error(source, span, message);
        if let Some(label) = label {
            diagnostic.label(label);
        }
    }
}
