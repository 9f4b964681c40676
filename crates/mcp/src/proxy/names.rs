//! The names under which the tools of several servers are offered as one list. Each tool keeps its own name; on a
//! clash, the server's name becomes a prefix. Assigned names do not change when a server starts later.

use std::collections::BTreeMap;

/// How many tools of all servers are offered; further ones are left out.
pub const MAX_OFFERED: usize = 1_000;
/// The longest tool name, in bytes.
pub const MAX_TOOL_NAME: usize = 128;

/// A tool behind the proxy.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Target {
    /// The index of the server in the settings.
    pub server: usize,
    pub tool: String,
}

/// The assigned names.
#[derive(Debug, Default)]
pub struct Names {
    by_name: BTreeMap<String, Target>,
    by_target: BTreeMap<Target, String>,
}

impl Names {
    /// Returns the name under which a tool is offered, or `None` if it has no valid free name or the list is full.
    pub fn offer(&mut self, server: usize, server_name: &str, tool: &str, ours: &[&str]) -> Option<&str> {
        let target = Target { server, tool: tool.to_owned() };
        if !self.by_target.contains_key(&target) {
            if self.by_name.len() >= MAX_OFFERED || tool.is_empty() || tool.len() > MAX_TOOL_NAME {
                return None;
            }
            let plain = harmless(tool)?;
            let prefixed = format!("{server_name}_{plain}");
            let imitates = |name: &str| ours.iter().any(|own| folded(name).ends_with(&folded(own)));
            // With the server's name in front, a tool that imitates ours cannot be confused with it.
            let free = |name: &str| !self.by_name.contains_key(name) && (name == prefixed || !imitates(name));
            let free = |name: &str| free(name) && !ours.contains(&name);
            let name = [plain.as_str(), prefixed.as_str()]
                .into_iter()
                .find(|name| free(name) && is_name(name))?
                .to_owned();
            self.by_name.insert(name.clone(), target.clone());
            self.by_target.insert(target.clone(), name);
        }
        self.by_target.get(&target).map(String::as_str)
    }

    /// Returns the tool with this offered name.
    pub fn find(&self, name: &str) -> Option<&Target> {
        self.by_name.get(name)
    }
}

/// Returns a tool's name without characters of paths and without the prefix that agents give to our tools. Returns
/// `None` if the name has characters that agents do not accept.
fn harmless(tool: &str) -> Option<String> {
    let no_path = tool.replace(['/', '.'], "_");
    let mut name = no_path.as_str();
    while let Some(rest) =
        strip_prefix_folded(name, "mcp__dogwatch__").or_else(|| strip_prefix_folded(name, "dogwatch_"))
    {
        name = rest;
    }
    is_name(name).then(|| name.to_owned())
}

fn strip_prefix_folded<'n>(name: &'n str, prefix: &str) -> Option<&'n str> {
    let (head, rest) = name.split_at_checked(prefix.len())?;
    head.eq_ignore_ascii_case(prefix).then_some(rest)
}

/// Returns a name without the differences that people overlook: case, `-` and `_`.
fn folded(name: &str) -> String {
    name.chars().filter(|c| c.is_ascii_alphanumeric()).map(|c| c.to_ascii_lowercase()).collect()
}

/// Returns whether agents accept the name.
fn is_name(tool: &str) -> bool {
    let allowed = |b: u8| b.is_ascii_alphanumeric() || matches!(b, b'_' | b'-');
    !tool.is_empty() && tool.len() <= MAX_TOOL_NAME && tool.bytes().all(allowed)
}

#[cfg(test)]
mod tests {
    use super::*;

    const OURS: [&str; 1] = ["heartbeat"];

    #[test]
    fn prefixes_the_server_name_only_on_a_name_clash() {
        let mut names = Names::default();
        assert_eq!(names.offer(0, "files", "search", &OURS), Some("search"));
        assert_eq!(names.offer(1, "web", "search", &OURS), Some("web_search"));
        assert_eq!(names.offer(1, "web", "fetch", &OURS), Some("fetch"));
        assert_eq!(names.offer(1, "web", "heartbeat", &OURS), Some("web_heartbeat"));
        // A second offer returns the same name.
        assert_eq!(names.offer(1, "web", "search", &OURS), Some("web_search"));
        assert_eq!(names.find("web_search"), Some(&Target { server: 1, tool: "search".into() }));
        assert_eq!(names.find("heartbeat"), None);
    }

    #[test]
    fn a_name_that_imitates_ours_or_contains_a_path_is_changed() {
        let mut names = Names::default();
        for (tool, offered) in [
            ("Heartbeat", "web_Heartbeat"),
            ("heart-beat", "web_heart-beat"),
            ("mcp__dogwatch__heartbeat", "web_heartbeat"),
            ("MCP__Dogwatch__fetch", "fetch"),
            ("../../etc/passwd", "______etc_passwd"),
        ] {
            assert_eq!(names.offer(1, "web", tool, &OURS), Some(offered), "{tool}");
        }
    }

    #[test]
    fn leaves_out_invalid_names_and_tools_beyond_the_limit() {
        let mut names = Names::default();
        for bad in ["", "a b", "a\n", &"x".repeat(MAX_TOOL_NAME + 1)] {
            assert_eq!(names.offer(0, "s", bad, &OURS), None, "{bad:?}");
        }
        for n in 0..MAX_OFFERED {
            assert!(names.offer(0, "s", &format!("t{n}"), &OURS).is_some());
        }
        assert_eq!(names.offer(0, "s", "one_more", &OURS), None);
    }
}
