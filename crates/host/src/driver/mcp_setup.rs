//! Sets up the MCP server of a session. A file names the socket and the token for the server, and the
//! agent CLI is configured to start the server. The token is in that file, readable by this user only, and in the
//! session's environment; it is never on a command line.

mod gemini;

pub use gemini::remove_home;

use crate::fs::pins;
use crate::store::home;
use crate::store::safe_file;
use crate::store::socket;
use crate::store::token::{are_equal, random_digits};
use dogwatch_agents::{Injection, Launch, McpBridge, inject};
use dogwatch_core::record::event::Pin;
use dogwatch_core::record::ids::{Iteration, NodeName, RunId};
use dogwatch_core::run::attempts::changed_pins;
use dogwatch_core::settings::{McpServer, Settings, Tampered};
use dogwatch_core::time::dur::Dur;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::fmt::Display;
use std::io;
use std::path::{Path, PathBuf};

/// The name of the session file in the node's directory. Each session of the node overwrites it.
pub const FILE: &str = "mcp.json";
/// Environment variable with the path of the session file, for an agent that starts `dogwatch mcp` itself.
pub const FILE_VAR: &str = "DOGWATCH_MCP";
/// Environment variable with the path of the run's socket, for scripts.
pub const SOCKET_VAR: &str = "DOGWATCH_SOCKET";
/// Environment variable with the session's token, for scripts.
pub const TOKEN_VAR: &str = "DOGWATCH_TOKEN";
/// The most that is read of a settings file of the user.
const MAX_FILE: u64 = 1024 * 1024;
/// The most that is read of a session file. Large enough for the maximum number of pinned files.
const MAX_SESSION_FILE: u64 = 8 * 1024 * 1024;
/// The time our own server may add to a proxied call.
const SLACK: Dur = Dur::from_secs(30);
/// The most environment variable names that are passed to a proxied server.
const MAX_ENV_NAMES: usize = 200;
const TOKEN_BYTES: usize = 16;

/// The content of the session file: everything the session's MCP server needs.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct SessionFile {
    /// The run's socket.
    pub socket: PathBuf,
    /// The run's id.
    pub run: RunId,
    /// The node's name.
    pub node: NodeName,
    /// The iteration's number.
    pub iteration: Iteration,
    /// The token of the session.
    pub token: String,
    /// The directory in which the session works.
    pub work_dir: PathBuf,
    /// The directory for artifacts.
    pub artifacts: PathBuf,
    /// The user's servers behind the proxy.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub servers: Vec<McpServer>,
    /// The node's checks, which the agent may ask to run.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub checks: Vec<String>,
    /// The timeout of each check.
    #[serde(default)]
    pub check_timeout: Dur,
    /// The files pinned for the checks, if any.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pinned: Option<Pinned>,
}

/// The files that a node's checks depend on, as they were when the node began, and where to look for new ones.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Pinned {
    /// The patterns of `pin`.
    pub globs: Vec<String>,
    /// The pinned files with their hashes.
    pub files: Vec<Pin>,
    /// The directories of dogwatch, which are never pinned.
    pub state_dirs: Vec<PathBuf>,
    /// The reaction to a changed file.
    pub policy: Tampered,
}

impl Pinned {
    /// Returns the pinned files that changed, disappeared or are new. Reads all of them, which can take a while.
    pub fn changed(&self, work_dir: &Path) -> Result<Vec<String>, String> {
        let request = pins::Request {
            work_dir: work_dir.to_owned(),
            globs: self.globs.clone(),
            checks: Vec::new(),
            known: self.files.iter().map(|pin| pin.path.clone()).collect(),
            state_dirs: self.state_dirs.clone(),
            tree: false,
        };
        Ok(changed_pins(&self.files, &pins::hash(&request, &pins::Limits::default())?))
    }
}

impl SessionFile {
    /// Reads a session file.
    pub fn read(path: &Path) -> io::Result<SessionFile> {
        Ok(serde_json::from_slice(&safe_file::read_named_whole(path, MAX_SESSION_FILE)?)?)
    }

    fn write(&self, path: &Path) -> io::Result<()> {
        safe_file::overwrite(path, safe_file::PRIVATE, &serde_json::to_vec(self)?)
    }
}

/// Identifies a session and its directories.
pub struct Place<'a> {
    /// The run's id.
    pub run: &'a RunId,
    /// The directory of the run.
    pub run_dir: &'a Path,
    /// The directory in which the session works.
    pub work_dir: &'a Path,
    /// The node's name.
    pub node: &'a NodeName,
    /// The iteration's number.
    pub iteration: Iteration,
    /// The pinned files, if the node has checks.
    pub pinned: Option<Pinned>,
}

impl Place<'_> {
    /// Returns the path of the session file.
    pub fn session_file(&self) -> PathBuf {
        self.run_dir.join(self.node.as_str()).join(FILE)
    }
}

/// Everything a session needs at its start to reach dogwatch.
#[derive(Debug, Default)]
pub struct SessionSetup {
    /// The token of the session.
    pub token: String,
    /// Environment variables for the agent.
    pub env: Vec<(String, String)>,
    /// The changes to the agent's command.
    pub injection: Option<Injection>,
    /// Files to remove when the session ends.
    pub files: Vec<PathBuf>,
    /// Home directories created for the session.
    pub homes: Vec<PathBuf>,
    /// Why the agent could not be configured, if it should have been.
    pub not_injected: Option<String>,
}

/// Creates everything a session needs to reach dogwatch.
pub fn prepare(
    place: Place<'_>,
    settings: &Settings,
    agent: &[String],
    launch: &Launch,
) -> io::Result<SessionSetup> {
    let token = random_token()?;
    let path = place.session_file();
    let file = SessionFile {
        socket: socket::path(place.run_dir),
        run: place.run.clone(),
        node: place.node.clone(),
        iteration: place.iteration,
        token: token.clone(),
        work_dir: place.work_dir.to_owned(),
        artifacts: home::artifacts_dir(place.run_dir, place.node, place.iteration),
        servers: settings.mcp.servers.clone(),
        checks: settings.checks.commands.clone(),
        check_timeout: settings.checks.timeout,
        pinned: place.pinned,
    };
    file.write(&path)?;
    let text = |path: &Path| path.to_string_lossy().into_owned();
    let mut step = SessionSetup {
        env: vec![
            (FILE_VAR.to_owned(), text(&path)),
            (SOCKET_VAR.to_owned(), text(&file.socket)),
            (TOKEN_VAR.to_owned(), token.clone()),
        ],
        token,
        ..SessionSetup::default()
    };
    let own_state = home::user_state_dir().join("mcp").join(format!("{}-{}.json", place.run, place.node));
    if let Err(why) = configure_agent(&mut step, settings, (agent, launch), &text(&path), &own_state) {
        step.not_injected = Some(why);
    }
    Ok(step)
}

/// Configures the agent CLI to start the session's MCP server. After an error the session runs without it.
fn configure_agent(
    step: &mut SessionSetup,
    settings: &Settings,
    (agent, launch): (&[String], &Launch),
    session: &str,
    own_state: &Path,
) -> Result<(), String> {
    let program = std::env::current_exe().map_err(|e| format!("cannot find the dogwatch binary: {e}"))?;
    let program = program.to_str().filter(|_| program.exists()).ok_or("the dogwatch binary was removed")?;
    let env_names = if settings.mcp.servers.is_empty() { Vec::new() } else { env_names() };
    let bridge = McpBridge {
        program,
        session,
        patience_s: patience(settings).as_millis() / 1_000,
        env_names: &env_names,
    };
    let Some(injection) = inject(launch, agent, bridge) else { return Ok(()) };
    if let Some((name, ours)) = &injection.merge_env {
        let theirs = std::env::var(name).unwrap_or_default();
        step.env.push(((*name).to_owned(), merged(&theirs, ours).map_err(|e| format!("{name}: {e}"))?));
    }
    if let Some((name, ours)) = &injection.file_env {
        own_state.parent().map_or(Ok(()), home::make_private).map_err(|e| at(own_state, e))?;
        if own_state.parent().is_some_and(gemini::would_read) {
            let theirs = std::env::var_os(name).map_or_else(|| PathBuf::from(GEMINI_SYSTEM), PathBuf::from);
            write_settings(own_state, &theirs, ours)?;
            step.env.push(((*name).to_owned(), own_state.to_string_lossy().into_owned()));
            step.files.push(own_state.to_owned());
        } else {
            let own = own_state.with_extension("home");
            step.homes.push(own.clone());
            make_own_home(&own, ours)?;
            step.env.push((gemini::HOME_VAR.to_owned(), own.to_string_lossy().into_owned()));
        }
    }
    step.injection = Some(injection);
    Ok(())
}

/// Creates a separate home whose settings are the user's merged with ours.
fn make_own_home(own: &Path, ours: &str) -> Result<(), String> {
    let users = gemini::users_home().ok_or("the user has no home directory")?;
    let settings = gemini::make_home(own, &users).map_err(|e| at(own, e))?;
    write_settings(&settings, &gemini::settings_in(&users), ours)
}

/// Writes a settings file: the user's settings, if any, merged with ours.
fn write_settings(own: &Path, theirs: &Path, ours: &str) -> Result<(), String> {
    let text = match safe_file::read_named_whole(theirs, MAX_FILE) {
        Ok(text) => String::from_utf8_lossy(&text).into_owned(),
        Err(e) if e.kind() == io::ErrorKind::NotFound => String::new(),
        Err(e) => return Err(at(theirs, e)),
    };
    let text = merged(&text, ours).map_err(|e| at(theirs, e))?;
    write_private(own, text.as_bytes()).map_err(|e| at(own, e))
}

fn at(path: &Path, why: impl Display) -> String {
    format!("{}: {why}", path.display())
}

/// Gemini's system-wide settings, which ours extend.
const GEMINI_SYSTEM: &str = "/etc/gemini-cli/settings.json";

/// Returns the longest time that any call may take.
fn patience(settings: &Settings) -> Dur {
    let of = |server: &McpServer| server.tools.iter().map(|(_, t)| *t).fold(server.timeout, Dur::max);
    let checks = settings.checks.timeout.saturating_mul(settings.checks.commands.len() as u64);
    let longest = settings.mcp.servers.iter().map(of).fold(McpServer::DEFAULT_TIMEOUT.max(checks), Dur::max);
    longest.saturating_add(SLACK)
}

/// Returns the names of our environment variables that other programs accept as names.
fn env_names() -> Vec<String> {
    let fine = |name: &String| name.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_');
    let names = std::env::vars_os().filter_map(|(name, _)| name.into_string().ok()).filter(fine);
    names.take(MAX_ENV_NAMES).collect()
}

/// Merges one JSON object into another, recursively. Our values win.
fn merged(theirs: &str, ours: &str) -> Result<String, String> {
    let mut base: Value = match theirs.trim() {
        "" => Value::Object(serde_json::Map::new()),
        text => serde_json::from_str(text).map_err(|e| format!("not valid JSON ({e})"))?,
    };
    let ours: Value = serde_json::from_str(ours).map_err(|e| e.to_string())?;
    join(&mut base, ours);
    Ok(base.to_string())
}

fn join(base: &mut Value, over: Value) {
    match (base, over) {
        (Value::Object(base), Value::Object(over)) => {
            for (key, value) in over {
                join(base.entry(key).or_insert(Value::Null), value);
            }
        }
        (base, over) => *base = over,
    }
}

/// Returns a new token from random numbers of the system.
pub fn random_token() -> io::Result<String> {
    random_digits::<TOKEN_BYTES>()
}

/// Compares two tokens in constant time. The duration reveals only their length.
pub fn same(a: &str, b: &str) -> bool {
    !a.is_empty() && are_equal(a.as_bytes(), b.as_bytes())
}

fn write_private(path: &Path, text: &[u8]) -> io::Result<()> {
    safe_file::write(path, safe_file::PRIVATE, text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn our_settings_are_merged_into_the_users() {
        let ours = r#"{"mcp":{"dogwatch":{"a":1}}}"#;
        let both = merged(r#"{"x":1,"mcp":{"mine":{"b":2}}}"#, ours).expect("joins");
        assert_eq!(both, r#"{"x":1,"mcp":{"mine":{"b":2},"dogwatch":{"a":1}}}"#);
        assert_eq!(merged(" ", ours).expect("joins"), ours);
        let refused = merged("{// a comment\n}", ours).expect_err("not JSON");
        assert!(refused.starts_with("not valid JSON"), "{refused}");
    }

    #[test]
    fn a_token_equals_only_itself() {
        assert!(same("abc", "abc"));
        for (a, b) in [("abc", "abd"), ("abc", "ab"), ("", ""), ("abc", "")] {
            assert!(!same(a, b), "{a} {b}");
        }
        assert_ne!(random_token().expect("random"), random_token().expect("random"));
    }

    #[test]
    fn a_file_with_a_token_is_readable_by_its_owner_only() {
        use std::os::unix::fs::PermissionsExt;
        let dir = tempfile::tempdir().expect("a directory");
        let path = dir.path().join("x");
        write_private(&path, b"{}").expect("writes");
        assert_eq!(std::fs::metadata(&path).expect("is there").permissions().mode() & 0o777, 0o600);
    }
}
