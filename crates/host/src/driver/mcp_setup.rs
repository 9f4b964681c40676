//! The side door's doorstep: the file that tells a session's MCP server where to call and with which key, and
//! how the agent CLI is told to start that server. The key is in that file, readable by this user alone, and
//! in the session's environment; never in a command line.

mod gemini;

pub use gemini::remove_home;

use crate::fs::pins;
use crate::store::home;
use crate::store::journal;
use crate::store::safe_file;
use crate::store::socket;
use dogwatch_agents::{Door, Injection, Launch, inject};
use dogwatch_core::record::event::Pin;
use dogwatch_core::record::ids::{Iteration, NodeName, RunId};
use dogwatch_core::run::attempts::changed_pins;
use dogwatch_core::settings::{McpServer, Settings, Tampered};
use dogwatch_core::time::dur::Dur;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::fmt::Display;
use std::hint::black_box;
use std::io::{self, Read};
use std::path::{Path, PathBuf};

/// The session's file, within the iteration's directory.
pub const FILE: &str = "mcp.json";
/// Artifacts lie in this directory of the iteration's.
pub const ARTIFACTS: &str = "artifacts";
/// Where the session's file is named, for an agent that starts `dogwatch mcp` itself.
pub const FILE_VAR: &str = "DOGWATCH_MCP";
/// Where a script calls, and with which key.
pub const SOCKET_VAR: &str = "DOGWATCH_SOCKET";
pub const TOKEN_VAR: &str = "DOGWATCH_TOKEN";
/// The most that is read of a settings file that ours is laid over.
const MAX_FILE: u64 = 1024 * 1024;
/// The most that is read of a session's file: every file that can be pinned has room in it.
const MAX_SESSION_FILE: u64 = 8 * 1024 * 1024;
/// What our server may take besides the calls behind it.
const SLACK: Dur = Dur::from_secs(30);
/// Names of variables that are handed to a server behind the proxy.
const MAX_ENV_NAMES: usize = 200;
const TOKEN_BYTES: usize = 16;

/// What a session's server needs to know.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct SessionFile {
    pub socket: PathBuf,
    pub run: RunId,
    pub node: NodeName,
    pub iteration: Iteration,
    pub token: String,
    pub work_dir: PathBuf,
    pub artifacts: PathBuf,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub servers: Vec<McpServer>,
    /// The node's checks, which the agent may have run.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub checks: Vec<String>,
    #[serde(default)]
    pub check_timeout: Dur,
    /// What the checks rest on; none if that is nothing.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pinned: Option<Pinned>,
}

/// The files that a node's checks rest on, as they were when the node began, and where to look for new ones.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Pinned {
    pub globs: Vec<String>,
    pub files: Vec<Pin>,
    pub state_dirs: Vec<PathBuf>,
    /// What a change does.
    pub policy: Tampered,
}

impl Pinned {
    /// Those that are not what they were: changed, gone or new. It reads all of them, and takes its time.
    pub fn changed(&self, work_dir: &Path) -> Result<Vec<String>, String> {
        let request = pins::Request {
            work_dir: work_dir.to_owned(),
            globs: self.globs.clone(),
            checks: Vec::new(),
            known: self.files.iter().map(|pin| pin.path.clone()).collect(),
            state_dirs: self.state_dirs.clone(),
        };
        Ok(changed_pins(&self.files, &pins::hash(&request, &pins::Limits::default())?))
    }
}

impl SessionFile {
    pub fn read(path: &Path) -> io::Result<SessionFile> {
        Ok(serde_json::from_slice(&read_file(path, MAX_SESSION_FILE)?)?)
    }

    fn write(&self, path: &Path) -> io::Result<()> {
        write_private(path, &serde_json::to_vec(self)?)
    }
}

/// Where a session is, and what it is for.
pub struct Place<'a> {
    pub run: &'a RunId,
    pub run_dir: &'a Path,
    pub work_dir: &'a Path,
    pub iteration_dir: &'a Path,
    pub node: &'a NodeName,
    pub iteration: Iteration,
    pub pinned: Option<Pinned>,
}

/// What a session is started with.
#[derive(Debug, Default)]
pub struct SessionSetup {
    pub token: String,
    pub env: Vec<(String, String)>,
    pub injection: Option<Injection>,
    /// Files that go with the session.
    pub files: Vec<PathBuf>,
    /// Homes that were made for it.
    pub homes: Vec<PathBuf>,
    /// Why the agent was not told of it, if it should have been.
    pub untold: Option<String>,
}

/// Makes all that a session needs to speak to us.
pub fn lay(
    place: Place<'_>,
    settings: &Settings,
    agent: &[String],
    launch: &Launch,
) -> io::Result<SessionSetup> {
    let token = token()?;
    let path = place.iteration_dir.join(FILE);
    let file = SessionFile {
        socket: socket::path(place.run_dir),
        run: place.run.clone(),
        node: place.node.clone(),
        iteration: place.iteration,
        token: token.clone(),
        work_dir: place.work_dir.to_owned(),
        artifacts: place.iteration_dir.join(ARTIFACTS),
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
        files: vec![path.clone()],
        ..SessionSetup::default()
    };
    let own_state = home::user_state_dir().join("mcp").join(format!("{}-{}.json", place.run, place.node));
    if let Err(why) = tell(&mut step, settings, (agent, launch), &text(&path), &own_state) {
        step.untold = Some(why);
    }
    Ok(step)
}

/// Tells the agent of its server. What cannot be done leaves the session as it is.
fn tell(
    step: &mut SessionSetup,
    settings: &Settings,
    (agent, launch): (&[String], &Launch),
    session: &str,
    own_state: &Path,
) -> Result<(), String> {
    let program =
        std::env::current_exe().map_err(|e| format!("dogwatch does not know where it lies: {e}"))?;
    let program = program.to_str().filter(|_| program.exists()).ok_or("dogwatch's own file is gone")?;
    let env_names = if settings.mcp.servers.is_empty() { Vec::new() } else { env_names() };
    let door =
        Door { program, session, patience_s: patience(settings).as_millis() / 1_000, env_names: &env_names };
    let Some(injection) = inject(launch, agent, door) else { return Ok(()) };
    if let Some((name, ours)) = &injection.merge_env {
        let theirs = std::env::var(name).unwrap_or_default();
        step.env.push(((*name).to_owned(), laid_over(&theirs, ours).map_err(|e| format!("{name}: {e}"))?));
    }
    if let Some((name, ours)) = &injection.file_env {
        own_state.parent().map_or(Ok(()), home::make_private).map_err(|e| at(own_state, e))?;
        if own_state.parent().is_some_and(gemini::would_read) {
            let theirs = std::env::var_os(name).map_or_else(|| PathBuf::from(GEMINI_SYSTEM), PathBuf::from);
            lay_settings(own_state, &theirs, ours)?;
            step.env.push(((*name).to_owned(), own_state.to_string_lossy().into_owned()));
            step.files.push(own_state.to_owned());
        } else {
            let own = own_state.with_extension("home");
            step.homes.push(own.clone());
            give_home(&own, ours)?;
            step.env.push((gemini::HOME_VAR.to_owned(), own.to_string_lossy().into_owned()));
        }
    }
    step.injection = Some(injection);
    Ok(())
}

/// Another home, in which the user's settings have ours beside them.
fn give_home(own: &Path, ours: &str) -> Result<(), String> {
    let users = gemini::users_home().ok_or("the user has no home")?;
    let settings = gemini::make_home(own, &users).map_err(|e| at(own, e))?;
    lay_settings(&settings, &gemini::settings_in(&users), ours)
}

/// Writes a settings file: ours laid over theirs, if they have any.
fn lay_settings(own: &Path, theirs: &Path, ours: &str) -> Result<(), String> {
    let text = match read_file(theirs, MAX_FILE) {
        Ok(text) => String::from_utf8_lossy(&text).into_owned(),
        Err(e) if e.kind() == io::ErrorKind::NotFound => String::new(),
        Err(e) => return Err(at(theirs, e)),
    };
    let text = laid_over(&text, ours).map_err(|e| at(theirs, e))?;
    write_private(own, text.as_bytes()).map_err(|e| at(own, e))
}

fn at(path: &Path, why: impl Display) -> String {
    format!("{}: {why}", path.display())
}

/// Gemini's settings for the whole machine, which ours are laid over.
const GEMINI_SYSTEM: &str = "/etc/gemini-cli/settings.json";

/// The longest that any call may take.
fn patience(settings: &Settings) -> Dur {
    let of = |server: &McpServer| server.tools.iter().map(|(_, t)| *t).fold(server.timeout, Dur::max);
    let checks = settings.checks.timeout.saturating_mul(settings.checks.commands.len() as u64);
    let longest = settings.mcp.servers.iter().map(of).fold(McpServer::DEFAULT_TIMEOUT.max(checks), Dur::max);
    longest.saturating_add(SLACK)
}

/// The names of our variables that another program can take.
fn env_names() -> Vec<String> {
    let fine = |name: &String| name.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_');
    let names = std::env::vars_os().filter_map(|(name, _)| name.into_string().ok()).filter(fine);
    names.take(MAX_ENV_NAMES).collect()
}

/// One JSON object laid over another; where both are objects they are joined.
fn laid_over(theirs: &str, ours: &str) -> Result<String, String> {
    let mut base: Value = match theirs.trim() {
        "" => Value::Object(serde_json::Map::new()),
        text => serde_json::from_str(text).map_err(|e| format!("is no JSON that dogwatch can read ({e})"))?,
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

fn token() -> io::Result<String> {
    let mut bytes = [0; TOKEN_BYTES];
    getrandom::fill(&mut bytes).map_err(|e| io::Error::other(format!("no randomness: {e}")))?;
    Ok(journal::hex(&bytes))
}

/// Whether two keys are the same; how long that takes tells nothing but their length.
pub fn same(a: &str, b: &str) -> bool {
    let differ = a.bytes().zip(b.bytes()).fold(0, |sum, (a, b)| black_box(sum | (a ^ b)));
    a.len() == b.len() && !a.is_empty() && differ == 0
}

fn read_file(path: &Path, max: u64) -> io::Result<Vec<u8>> {
    let mut text = Vec::new();
    std::fs::File::open(path)?.take(max + 1).read_to_end(&mut text)?;
    if text.len() as u64 > max {
        return Err(io::Error::new(io::ErrorKind::InvalidData, format!("is larger than {max} bytes")));
    }
    Ok(text)
}

fn write_private(path: &Path, text: &[u8]) -> io::Result<()> {
    safe_file::write(path, safe_file::PRIVATE, text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_the_user_has_set_stays_beside_what_is_ours() {
        let ours = r#"{"mcp":{"dogwatch":{"a":1}}}"#;
        let both = laid_over(r#"{"x":1,"mcp":{"mine":{"b":2}}}"#, ours).expect("joins");
        assert_eq!(both, r#"{"x":1,"mcp":{"mine":{"b":2},"dogwatch":{"a":1}}}"#);
        assert_eq!(laid_over(" ", ours).expect("joins"), ours);
        let refused = laid_over("{// a comment\n}", ours).expect_err("is no JSON");
        assert!(refused.starts_with("is no JSON that dogwatch can read"), "{refused}");
    }

    #[test]
    fn a_key_is_only_itself() {
        assert!(same("abc", "abc"));
        for (a, b) in [("abc", "abd"), ("abc", "ab"), ("", ""), ("abc", "")] {
            assert!(!same(a, b), "{a} {b}");
        }
        assert_ne!(token().expect("random"), token().expect("random"));
    }

    #[test]
    fn a_file_with_a_key_in_it_is_for_its_owner_alone() {
        use std::os::unix::fs::PermissionsExt;
        let dir = tempfile::tempdir().expect("a directory");
        let path = dir.path().join("x");
        write_private(&path, b"{}").expect("writes");
        assert_eq!(std::fs::metadata(&path).expect("is there").permissions().mode() & 0o777, 0o600);
    }
}
