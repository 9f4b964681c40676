//! Which policy is asked about: the flags are read by the same rules as those of `run`.

use crate::error::{Failure, print_diagnostics};
use dogwatch_config::{Flags, Source, Sources, load};
use dogwatch_core::settings::{ReaderName, WatchPolicy};
use dogwatch_host::prompt::read_bounded;
use serde_json::{Map, Value};
use std::path::Path;

pub struct Chosen {
    /// The policy that the flags make, all by themselves, for a plain and for a structured agent.
    policies: [WatchPolicy; 2],
    /// The keys that `--set` names; `None`: everything is given, by a profile or a file.
    keys: Option<Vec<&'static str>>,
}

impl Chosen {
    pub fn of(file: Option<&Path>, profile: Option<&str>, set: &[String]) -> Result<Chosen, Failure> {
        let text = file.map(read_bounded).transpose();
        let text = text.map_err(|e| {
            Failure::usage(format!("cannot read {}: {e}", file.unwrap_or(Path::new("")).display()))
        })?;
        let name = file.map(|f| f.display().to_string()).unwrap_or_default();
        let flags = Flags { set: set.to_vec(), profile: profile.map(str::to_owned), ..Flags::default() };
        // The rules want a loop file; this one says nothing about the watchdog.
        let loaded = |reader: ReaderName| {
            load(&Sources {
                loop_file: Source {
                    name: "replay",
                    text: &format!("---\nagent: nobody\nreader: {reader}\n---\n"),
                },
                user: None,
                project: text.as_ref().map(|text| Source { name: &name, text }),
                flags: &flags,
                args: &[],
                node_name: "replay",
                detect: &dogwatch_agents::detect,
                machine: None,
            })
            .map_err(Failure::Diagnostics)
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

    /// Nothing was chosen: a journal's own policy stands.
    pub fn is_own(&self) -> bool {
        self.keys.as_ref().is_some_and(Vec::is_empty)
    }

    /// What was chosen, laid over the policy of an agent with this reader.
    pub fn over(&self, own: &WatchPolicy, reader: ReaderName) -> WatchPolicy {
        let policy = &self.policies[usize::from(reader.is_structured())];
        let Some(keys) = &self.keys else { return policy.clone() };
        let (mut mixed, chosen) = (fields(own), fields(policy));
        for key in keys {
            mixed.extend(chosen.get(*key).map(|value| ((*key).to_owned(), value.clone())));
        }
        serde_json::from_value(Value::Object(mixed)).expect("fields of policies make a policy")
    }
}

fn fields(policy: &WatchPolicy) -> Map<String, Value> {
    match serde_json::to_value(policy) {
        Ok(Value::Object(fields)) => fields,
        Ok(_) | Err(_) => unreachable!("a policy is written as an object"),
    }
}
