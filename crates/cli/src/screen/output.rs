//! `--verbose`: shows the agent's output under its iteration, as `logs` does.

use super::writer::Screen;
use super::{ShownLine, Tone};
use dogwatch_agents::readable::Renderer;
use dogwatch_core::record::ids::NodeName;
use dogwatch_host::driver::{OutputView, SessionName};
use dogwatch_host::store::secrets;
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};

/// The output of the running sessions.
pub struct Outputs {
    screen: Screen,
    /// The width of the column for node names; 0 in a run of one node.
    names: AtomicUsize,
    renderers: Mutex<BTreeMap<NodeName, Renderer>>,
}

impl Outputs {
    /// Returns a view that writes to a screen.
    pub fn new(screen: Screen) -> Outputs {
        Outputs { screen, names: AtomicUsize::default(), renderers: Mutex::default() }
    }

    /// Sets the width of the column for node names.
    pub fn set_names(&self, columns: usize) {
        self.names.store(columns, Ordering::Relaxed);
    }

    fn show(&self, node: &NodeName, lines: Vec<ShownLine>) {
        let names = self.names.load(Ordering::Relaxed);
        let margin = if names == 0 { "    ".to_owned() } else { format!("{:<names$}    ", node.as_str()) };
        let shown = |line: ShownLine| {
            // The lines of an iteration's events are more important than its output.
            let tone = if line.tone == Tone::Head { Tone::Plain } else { line.tone };
            ShownLine { tone, text: format!("{margin}{}", secrets::hide(&line.text)) }
        };
        self.screen.lines(&lines.into_iter().map(shown).collect::<Vec<_>>());
    }

    fn with<T>(&self, act: impl FnOnce(&mut BTreeMap<NodeName, Renderer>) -> T) -> T {
        // Ignore poisoning: the panic was already reported and the data is still valid.
        act(&mut self.renderers.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

impl OutputView for Outputs {
    fn output(&self, session: &SessionName, bytes: &[u8]) {
        let lines = self.with(|renderers| {
            let new = || Renderer::for_session(session.reader, &session.work_dir, session.resumed.clone());
            renderers.entry(session.node.clone()).or_insert_with(new).feed(bytes)
        });
        self.show(&session.node, lines);
    }

    fn over(&self, session: &SessionName) {
        let rest = self.with(|renderers| renderers.remove(&session.node).map(|mut last| last.finish()));
        self.show(&session.node, rest.unwrap_or_default());
    }
}
