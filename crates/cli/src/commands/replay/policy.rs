//! Builds the policy of a replay from its flags. The flags follow the same rules as those of `run`.

use crate::error::{CliError, print_diagnostics};
use dogwatch_config::{Flags, Source, Sources, load};
use dogwatch_core::settings::{Profile, ReaderName, WatchPolicy};
use dogwatch_host::prompt::read_bounded;
use serde_json::{Map, Value};
use std::path::Path;

/// The policy that the flags select.
pub struct Chosen {
    /// The policies of a plain and of a structured agent, built from the flags and the defaults alone.
    policies: [WatchPolicy; 2],
    /// The keys named by `--set`, or `None` if a profile or a file determines all keys.
    keys: Option<Vec<&'static str>>,
}

impl Chosen {
    /// Reads the policy file and the flags. Prints warnings to stderr.
    pub fn of(file: Option<&Path>, profile: Option<&str>, set: &[String]) -> Result<Chosen, CliError> {
        if profile == Some(Profile::Learned.as_str()) {
            return Err(CliError::with_help(
                "--profile learned has no fixed limits to replay",
                "`dogwatch tune` replays the sessions under the limits that follow from them",
            ));
        }
        let text = file.map(read_bounded).transpose();
        let text = text.map_err(|e| {
            CliError::usage(format!("cannot read {}: {e}", file.unwrap_or(Path::new("")).display()))
        })?;
        let name = file.map(|f| f.display().to_string()).unwrap_or_default();
        let flags = Flags { set: set.to_vec(), profile: profile.map(str::to_owned), ..Flags::default() };
        // `load` needs a loop file. This one has no watchdog settings, and its agent is never started.
        let loaded = |reader: ReaderName| {
            let unused = format!("---\nagent: unused\nreader: {reader}\n---\nunused\n");
            let file = Source { name: "replay", text: &unused };
            let sources = Sources::of_file(file, &flags, &dogwatch_agents::detect);
            let project = text.as_ref().map(|text| Source { name: &name, text });
            load(&Sources { project, ..sources }, "replay")
        };
        let structured = loaded(ReaderName::Claude)?.plan.nodes[0].settings.watchdog.clone();
        let loaded = loaded(ReaderName::Plain)?;
        print_diagnostics(&loaded.warnings);
        let by_flag = loaded.explain.iter().filter(|setting| setting.origin == "flag --set");
        let named = by_flag.filter_map(|setting| setting.key.strip_prefix("watchdog.")).collect();
        let plain = loaded.plan.nodes[0].settings.watchdog.clone();
        Ok(Chosen {
            policies: [plain, structured],
            keys: (profile.is_none() && file.is_none()).then_some(named),
        })
    }

    /// Returns whether no flag changes the policy, so that a journal keeps its own.
    pub fn is_own(&self) -> bool {
        self.keys.as_ref().is_some_and(Vec::is_empty)
    }

    /// Applies the flags to the policy `own` of an agent with this reader.
    pub fn over(&self, own: &WatchPolicy, reader: ReaderName) -> WatchPolicy {
        let policy = &self.policies[usize::from(reader.is_structured())];
        let Some(keys) = &self.keys else { return policy.clone() };
        let (mut mixed, chosen) = (fields(own), fields(policy));
        for key in keys {
            mixed.extend(chosen.get(*key).map(|value| ((*key).to_owned(), value.clone())));
        }
        serde_json::from_value(Value::Object(mixed)).expect("the fields of two policies form a policy")
    }
}

/// Returns the policy as a map of its keys.
fn fields(policy: &WatchPolicy) -> Map<String, Value> {
    match serde_json::to_value(policy) {
        Ok(Value::Object(fields)) => fields,
        Ok(_) | Err(_) => unreachable!("a policy serializes to an object"),
    }
}
