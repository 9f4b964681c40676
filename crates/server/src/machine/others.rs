//! The runs of other machines, which are read over SSH or from a fleet.

use crate::client::Response;
use dogwatch_core::time::moment::Wall;
use dogwatch_host::store::registry::{Pointer, Registry};
use schemars::JsonSchema;
use serde::Serialize;

/// The source of the runs of other machines. Called from several threads.
pub trait OtherMachines: Send + Sync {
    /// Returns the registries of the copied runs. Their pointers name the machine.
    fn registries(&self) -> Vec<Registry>;
    /// Returns the state of each machine.
    fn machines(&self) -> Vec<MachineEntry>;
    /// Describes what all machines share, for example a queue.
    fn summary(&self) -> Option<String> {
        None
    }
    /// Returns whether a run is a copy of this source.
    fn has(&self, pointer: &Pointer) -> bool {
        let found = self.registries().into_iter().find_map(|registry| registry.find(&pointer.run));
        found.is_some_and(|found| found.run_dir == pointer.run_dir)
    }
    /// Passes a request on to a run. Waits a limited time for its answer. An error is a message for the user.
    fn ask(&self, pointer: &Pointer, what: &str, body: &serde_json::Value) -> Result<Response, String>;
}

/// Another machine.
#[derive(Clone, Debug, PartialEq, JsonSchema, Serialize)]
pub struct MachineEntry {
    /// Its name.
    pub name: String,
    /// Whether it is connected.
    pub state: MachineState,
    /// Since when it is in this state.
    pub since: Wall,
    /// Why it is down.
    pub why: Option<String>,
    /// The version of dogwatch there, once it is known.
    pub version: Option<String>,
    /// How many live runs it had at its last message.
    pub runs: usize,
    /// More about it, for people.
    pub detail: Option<String>,
}

/// The state of another machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq, JsonSchema, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum MachineState {
    /// No connection has succeeded or failed yet.
    Connecting,
    /// It is connected.
    Up,
    /// It is not connected. Its runs are shown as they were.
    Down,
}
