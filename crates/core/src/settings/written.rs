//! The serialized form of a plan. Settings that the nodes of a graph share are written once, so that a plan of
//! ten thousand nodes still fits in one readable line. The plan of a loop has a single node and no shared part.

use super::*;
use serde::de::Deserializer;

/// A plan as it is serialized.
#[derive(Serialize, Deserialize)]
pub struct Written {
    /// The settings of every node that does not override them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    shared: Option<Settings>,
    nodes: Vec<WrittenNode>,
    stop_on_error: bool,
    #[serde(default)]
    snapshots: bool,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    graph: Option<GraphPlan>,
}

#[derive(Serialize, Deserialize)]
struct WrittenNode {
    name: NodeName,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    depends_on: Vec<NodeName>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    touches: Vec<String>,
    #[serde(default = "yes")]
    parallel_safe: bool,
    #[serde(default, skip_serializing_if = "PromptSource::is_loop_file")]
    prompt: PromptSource,
    #[serde(flatten)]
    own: Own,
}

/// Deserializes a field that is present. `null` counts as present: it means "no limit" where the shared settings
/// have one.
fn there<'de, T: Deserialize<'de>, D: Deserializer<'de>>(deserializer: D) -> Result<Option<T>, D::Error> {
    T::deserialize(deserializer).map(Some)
}

macro_rules! own {
    ($($field:ident: $kind:ty,)*) => {
        /// The settings in which a node differs from the shared ones; all settings if none are shared.
        #[derive(Serialize, Deserialize)]
        struct Own {
            $(#[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "there")]
            $field: Option<$kind>,)*
        }

        impl Own {
            fn of(settings: Settings, shared: Option<&Settings>) -> Own {
                Own { $($field: shared.is_none_or(|s| s.$field != settings.$field).then_some(settings.$field),)* }
            }

            fn over(self, shared: &Settings) -> Settings {
                Settings { $($field: self.$field.unwrap_or_else(|| shared.$field.clone()),)* }
            }
        }
    };
}

own! {
    agent: Vec<String>,
    reader: ReaderName,
    commands: Vec<CommandPlan>,
    args: Vec<(String, String)>,
    credit: bool,
    delay: Dur,
    profile: Profile,
    max_iterations: Option<u64>,
    watchdog: WatchPolicy,
    errors: ErrorPolicy,
    budget: Budget,
    limits: LimitPolicy,
    idle: Option<IdlePolicy>,
    wake_on: WakePolicy,
    work_when: Option<String>,
    checks: CheckPolicy,
    recovery: RecoveryPolicy,
    worktree: bool,
    setup: Vec<String>,
    merge: MergePolicy,
    notify: NotifyPolicy,
    mcp: McpPolicy,
    redact: Vec<String>,
    sandbox: SandboxPolicy,
    learned: Vec<Estimate>,
}

impl From<Plan> for Written {
    fn from(plan: Plan) -> Written {
        let shared = plan.nodes.first().filter(|_| plan.nodes.len() > 1).map(|node| node.settings.clone());
        let node = |node: NodePlan| WrittenNode {
            name: node.name,
            depends_on: node.depends_on,
            touches: node.touches,
            parallel_safe: node.parallel_safe,
            prompt: node.prompt,
            own: Own::of(node.settings, shared.as_ref()),
        };
        Written {
            nodes: plan.nodes.into_iter().map(node).collect(),
            shared,
            stop_on_error: plan.stop_on_error,
            snapshots: plan.snapshots,
            graph: plan.graph,
        }
    }
}

/// The error for a recorded plan with a node that has no agent.
#[derive(Debug)]
pub struct NoAgentError(NodeName);

impl fmt::Display for NoAgentError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "the node `{}` has no agent", self.0)
    }
}

impl TryFrom<Written> for Plan {
    type Error = NoAgentError;

    fn try_from(written: Written) -> Result<Plan, NoAgentError> {
        let bare = written.shared.is_none();
        let shared = written.shared.unwrap_or_else(|| Settings::of(Vec::new(), ReaderName::Plain));
        let node = |node: WrittenNode| {
            if bare && node.own.agent.is_none() {
                return Err(NoAgentError(node.name));
            }
            Ok(NodePlan {
                name: node.name,
                depends_on: node.depends_on,
                touches: node.touches,
                parallel_safe: node.parallel_safe,
                prompt: node.prompt,
                settings: node.own.over(&shared),
            })
        };
        Ok(Plan {
            nodes: written.nodes.into_iter().map(node).collect::<Result<_, _>>()?,
            stop_on_error: written.stop_on_error,
            snapshots: written.snapshots,
            graph: written.graph,
        })
    }
}
