//! What a session needed of the watchdog's limits: the shortest ones under which it would not have been stopped.

use super::evidence::Channel;
use super::{Fact, Watch};
use crate::settings::Ttl;
use crate::time::dur::{Dur, Limit};
use crate::time::moment::Awake;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// The most tools whose calls are measured in a session.
pub const MAX_TOOLS: usize = 256;
/// The most calls in flight that are measured at once.
const MAX_MEASURED: usize = 16;

/// What one session needed. A session that is stopped needed at least this much.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Needs {
    /// The longest silence that no call in flight and no other evidence explains: `watchdog.idle`.
    pub silence_s: Dur,
    /// The time until a structured agent printed anything: `watchdog.start`.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub start_s: Dur,
    /// The time spent waiting on children without progress: `watchdog.children`.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub children_s: Dur,
    /// How long the session lasted: `watchdog.session`.
    pub session_s: Dur,
    /// The calls of each tool that declared no timeout: `watchdog.tools`.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub tools: BTreeMap<String, Calls>,
}

/// The calls of one tool.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Calls {
    /// The number of calls.
    pub calls: u64,
    /// The longest time in flight without other progress on stdout.
    pub longest_s: Dur,
}

fn is_zero(dur: &Dur) -> bool {
    dur.is_zero()
}

impl Needs {
    /// Notes what the session has needed until this fact, which the watch has not taken yet.
    pub(super) fn note(&mut self, watch: &Watch, now: Awake, fact: &Fact) {
        // The span counts only up to a suspension, and the next fact measures it.
        if matches!(fact, Fact::Suspended { .. }) {
            return;
        }
        self.note_at(watch, watch.began(now, fact));
        if let Fact::ToolStarted(tool) = fact
            && !(tool.heartbeat || tool.delegates || tool.timeout.is_some())
            && let Some(calls) = self.of_tool(&tool.name)
        {
            calls.calls += 1;
        }
    }

    /// Notes what the session has needed until it ended.
    pub(super) fn end(&mut self, watch: &Watch, now: Awake) {
        let at = watch.inner(now);
        self.note_at(watch, at);
        self.children_s = watch.waited.sum();
        self.session_s = at.since(watch.session.started);
    }

    fn note_at(&mut self, watch: &Watch, at: Awake) {
        if let Some(silence) = watch.unexplained_silence(at) {
            self.silence_s = self.silence_s.max(silence);
            if watch.says_nothing() {
                self.start_s = self.start_s.max(silence);
            }
        }
        let spoke = watch.channels.last(Channel::Stdout);
        let open = watch.tools.ordinary().filter(|call| !call.has_timeout());
        for call in open.take(MAX_MEASURED) {
            let from = spoke.map_or(call.since, |spoke| spoke.max(call.since));
            if let Some(calls) = self.of_tool(&call.name) {
                calls.longest_s = calls.longest_s.max(at.since(from));
            }
        }
    }

    fn of_tool(&mut self, name: &str) -> Option<&mut Calls> {
        if !self.tools.contains_key(name) {
            if self.tools.len() == MAX_TOOLS {
                return None;
            }
            self.tools.insert(name.to_owned(), Calls::default());
        }
        self.tools.get_mut(name)
    }
}

impl Watch {
    /// Returns the shortest `idle` under which silence would not have stopped the session by now. `None` while something
    /// else explains the silence.
    fn unexplained_silence(&self, at: Awake) -> Option<Dur> {
        if self.tools.any_ordinary() || self.is_asking() {
            return None;
        }
        let quiet = at.since(self.last_progress());
        let quiet = match self.policy.tool.duration() {
            Some(tool) if self.effort.working && !self.says_nothing() => quiet.saturating_sub(tool),
            Some(_) | None => quiet,
        };
        let others =
            [Channel::McpTool, Channel::Subagent, Channel::Workspace].into_iter().filter_map(|channel| {
                let age = at.since(self.channels.last(channel)?);
                let holds = match self.policy.evidence_ttl {
                    Ttl::Auto if self.tools.delegating() => true,
                    ttl @ (Ttl::Auto | Ttl::Fixed(_)) => self.channels.ttl(channel, ttl, Limit::Off) > age,
                };
                holds.then_some(age)
            });
        Some(others.fold(quiet, Dur::min))
    }
}
