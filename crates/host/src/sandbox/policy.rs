//! Decides which paths a session may touch.

use super::enter::ARGUMENT;
use crate::git::role;
use crate::process::keeper::EnvChange;
use crate::store::{home, safe_file};
use dogwatch_core::settings::{ReaderName, SandboxMode, SandboxPolicy};
use serde::{Deserialize, Serialize};
use std::io::Read;
use std::path::{Path, PathBuf};

/// The TCP ports that every strict session may connect to: HTTP and HTTPS.
const WEB_PORTS: [u16; 2] = [80, 443];

/// System directories that strict sessions may read. The home directory and other projects are not among them. `/run` holds
/// secrets too, so only what name resolution needs is listed; `/etc/resolv.conf` is a link on many systems.
const SYSTEM: [&str; 20] = [
    "/bin",
    "/sbin",
    "/lib",
    "/lib32",
    "/lib64",
    "/usr",
    "/etc",
    "/etc/resolv.conf",
    "/opt",
    "/nix",
    "/snap",
    "/proc",
    "/sys",
    "/dev",
    "/run/NetworkManager",
    "/run/nscd",
    "/run/resolvconf",
    "/run/systemd/resolve",
    "/run/systemd/userdb",
    "/var/lib",
];

/// Files in the home directory that tools read and that hold no secrets.
const HOME_FILES: [&str; 5] =
    [".gitconfig", ".config/git/config", ".config/git/ignore", ".config/git/attributes", ".editorconfig"];

/// The limits of one session.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Policy {
    /// How much the session may touch.
    pub mode: SandboxMode,
    /// Paths below which everything may be written.
    pub write: Vec<PathBuf>,
    /// Paths that may be read in strict mode. In the other mode everything may be read.
    pub read: Vec<PathBuf>,
    /// Paths inside the writable ones that must stay as they are.
    pub protect: Vec<PathBuf>,
    /// TCP ports that may be connected to in strict mode.
    pub ports: Vec<u16>,
    /// Do not start the agent unless everything is enforced.
    pub required: bool,
    /// Directories to create before the session starts, because it could not create them itself.
    pub make: Vec<PathBuf>,
    /// The directory for temporary files, created before the session starts.
    pub tmp: PathBuf,
}

/// Where a session works.
#[derive(Clone, Copy)]
pub struct Facts<'a> {
    /// The reader of the agent, which tells where its CLI keeps its state.
    pub reader: ReaderName,
    /// The program of the agent, as its command line names it.
    pub program: &'a str,
    /// The directory where the session starts.
    pub work_dir: &'a Path,
    /// The work tree around it.
    pub work_tree: &'a Path,
    /// The state directory of the project.
    pub state_dir: &'a Path,
    /// The directory of the run.
    pub run_dir: &'a Path,
    /// The directory of the node that its sessions may write.
    pub agent_dir: &'a Path,
    /// The loop or graph file.
    pub loop_file: &'a Path,
    /// Files that set up the agent channel of the session.
    pub setup: &'a [PathBuf],
    /// Home directories that were made for the session's CLI.
    pub homes: &'a [PathBuf],
    /// The home directory of the user.
    pub home: Option<&'a Path>,
    /// `PATH`, and the variables that name a proxy or a CLI's own directory.
    pub env: &'a dyn Fn(&str) -> Option<String>,
}

impl Policy {
    /// Returns the limits of a session, or `None` if it has none.
    pub fn of(settings: &SandboxPolicy, facts: &Facts<'_>) -> Option<Policy> {
        if settings.mode == SandboxMode::Off {
            return None;
        }
        let mut write = vec![facts.work_tree.to_owned(), facts.agent_dir.to_owned()];
        let git = git_dir(facts.work_tree);
        write.extend(git.clone());
        let own = state_of(facts);
        let mut make: Vec<PathBuf> = own.iter().filter(|path| path.extension().is_none()).cloned().collect();
        write.extend(own);
        write.extend(facts.homes.iter().cloned());
        write.extend(settings.write.iter().map(|path| resolve(path, facts)));
        let git = git.unwrap_or_else(|| facts.work_tree.join(".git"));
        let hooks = git.join("hooks");
        // A directory that does not exist cannot be protected.
        make.extend(Some(hooks.clone()).filter(|hooks| git.is_dir() && !hooks.exists()));
        let mut protect = vec![
            facts.state_dir.to_owned(),
            hooks,
            git.join("config"),
            facts.work_dir.join("dogwatch.toml"),
            facts.work_tree.join("dogwatch.toml"),
            facts.loop_file.to_owned(),
        ];
        // The work tree may be the home directory, which contains the state of all runs.
        let user_state = home::user_state_dir();
        let user_state = user_state.canonicalize().unwrap_or(user_state);
        protect.extend(Some(user_state).filter(|state| state.starts_with(facts.work_tree)));
        protect.sort();
        protect.dedup();
        let mut ports: Vec<u16> = WEB_PORTS.into_iter().chain(settings.ports.iter().copied()).collect();
        ports.extend(proxies(facts));
        let (mode, mut read, required) = (settings.mode, readable(facts), settings.required);
        read.extend(settings.read.iter().map(|path| resolve(path, facts)));
        // The sessions of a node share a directory for temporary files, as they would share `/tmp`.
        let tmp = facts.agent_dir.join("tmp");
        Some(Policy { mode, read, write, protect, ports, required, make, tmp })
    }
}

/// The longest file in place of a git directory that is read, in bytes.
const MAX_LINK: u64 = 8 * 1024;

/// Returns the git directory of a linked worktree, which is outside of it: that of the repository it belongs to.
fn git_dir(work_tree: &Path) -> Option<PathBuf> {
    let mut link = String::new();
    let file = safe_file::read_named(&work_tree.join(".git")).ok()?;
    file.take(MAX_LINK).read_to_string(&mut link).ok()?;
    let dir = link.trim().strip_prefix("gitdir: ").map(PathBuf::from)?;
    let dir = if dir.is_absolute() { dir } else { work_tree.join(dir) };
    // A linked worktree has its directory in `.git/worktrees` of the repository.
    let repository = dir.ancestors().nth(2).filter(|repository| repository.join("objects").is_dir());
    Some(repository.map_or_else(|| dir.clone(), Path::to_owned))
}

/// Returns the directories where an agent's CLI keeps its own state.
fn state_of(facts: &Facts<'_>) -> Vec<PathBuf> {
    let Some(home) = facts.home else { return Vec::new() };
    let own = |var: &str, default: &str| (facts.env)(var).map_or_else(|| home.join(default), PathBuf::from);
    match facts.reader {
        ReaderName::Claude => vec![
            own("CLAUDE_CONFIG_DIR", ".claude"),
            home.join(".claude.json"),
            home.join(".cache/claude-cli-nodejs"),
            home.join(".local/share/claude"),
            home.join(".local/state/claude"),
        ],
        ReaderName::Codex => vec![own("CODEX_HOME", ".codex")],
        ReaderName::Gemini => vec![home.join(".gemini")],
        ReaderName::Opencode => ["share", "state"]
            .map(|kind| home.join(".local").join(kind).join("opencode"))
            .into_iter()
            .chain([home.join(".config/opencode"), home.join(".cache/opencode")])
            .collect(),
        ReaderName::Plain => Vec::new(),
    }
}

fn resolve(path: &str, facts: &Facts<'_>) -> PathBuf {
    match (path.strip_prefix("~/"), facts.home) {
        (Some(rest), Some(home)) => home.join(rest),
        (Some(_) | None, _) => facts.work_dir.join(path),
    }
}

/// Returns what a strict session may read besides what it may write: the system, the programs on `PATH` with the
/// libraries next to them, and dogwatch's files of this run.
fn readable(facts: &Facts<'_>) -> Vec<PathBuf> {
    let mut read: Vec<PathBuf> = SYSTEM.iter().map(PathBuf::from).collect();
    let path = (facts.env)("PATH").unwrap_or_default();
    let dirs = || path.split(':').filter(|dir| dir.starts_with('/')).map(PathBuf::from);
    let agent = dirs().map(|dir| dir.join(facts.program)).find(|file| file.is_file());
    read.extend(agent.and_then(|file| package(&file, facts.home)));
    for dir in dirs() {
        // A prefix such as ~/.nvm/versions/node/v20 has `bin` and `lib`. The home directory itself is not one.
        let prefix = dir.parent().filter(|prefix| facts.home.is_none_or(|home| !home.starts_with(prefix)));
        // The shims of a version manager (pyenv, rbenv, asdf) start programs elsewhere in its directory.
        let shims = dir.ends_with("shims");
        read.extend(prefix.map(|prefix| if shims { prefix.to_owned() } else { prefix.join("lib") }));
        read.push(dir);
    }
    read.extend(facts.home.iter().flat_map(|home| HOME_FILES.map(|file| home.join(file))));
    read.extend([facts.run_dir.to_owned(), facts.loop_file.to_owned()]);
    read.extend(facts.setup.iter().cloned());
    read.extend(std::env::current_exe());
    read
}

/// Returns what a program consists of, wherever the link on `PATH` leads: its npm packages, its prefix (a directory with
/// `bin`), or only its file.
fn package(program: &Path, home: Option<&Path>) -> Option<PathBuf> {
    let file = program.canonicalize().ok()?;
    let modules = file.ancestors().filter(|dir| dir.ends_with("node_modules")).last();
    let prefix = file.parent().filter(|dir| dir.ends_with("bin")).and_then(Path::parent);
    let prefix = prefix.filter(|prefix| home.is_none_or(|home| !home.starts_with(prefix)));
    Some(modules.or(prefix).unwrap_or(&file).to_owned())
}

/// Returns the ports of the proxies that the environment names.
fn proxies(facts: &Facts<'_>) -> Vec<u16> {
    let names = ["https_proxy", "HTTPS_PROXY", "http_proxy", "HTTP_PROXY", "all_proxy", "ALL_PROXY"];
    let port = |url: String| url.trim_end_matches('/').rsplit(':').next()?.parse().ok();
    names.iter().filter_map(|name| port((facts.env)(name)?)).collect()
}

/// Returns the command line inside the sandbox, which is what people want to see.
pub fn inner(argv: &[String]) -> &[String] {
    if argv.get(1).is_some_and(|word| word == ARGUMENT) { argv.get(3..).unwrap_or_default() } else { argv }
}

/// Returns the command line and the environment that start a command in the sandbox.
pub fn wrap(policy: &Policy, argv: Vec<String>) -> std::io::Result<(Vec<String>, Vec<EnvChange>)> {
    for dir in &policy.make {
        home::make_private(dir)?;
    }
    // An earlier session may have removed it, or put a link in its place.
    home::make_own_dir(&policy.tmp)?;
    let env = vec![(b"TMPDIR".to_vec(), Some(policy.tmp.as_os_str().as_encoded_bytes().to_vec()))];
    let head = [role::PROGRAM.to_owned(), ARGUMENT.to_owned(), serde_json::to_string(policy)?];
    Ok((head.into_iter().chain(argv).collect(), env))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::symlink;

    #[test]
    fn the_files_of_the_agent_channel_are_readable_wherever_they_are() {
        let dir = tempfile::tempdir().expect("a directory");
        let at = |name: &str| dir.path().join(name);
        let (setup, homes) = (vec![at("state/mcp/a.json")], vec![at("state/mcp/a.home")]);
        let facts = Facts {
            reader: ReaderName::Gemini,
            program: "gemini",
            work_dir: dir.path(),
            work_tree: dir.path(),
            state_dir: &at(".dogwatch"),
            run_dir: &at(".dogwatch/runs/a"),
            agent_dir: &at(".dogwatch/runs/a/b/agent"),
            loop_file: &at("RALPH.md"),
            setup: &setup,
            homes: &homes,
            home: None,
            env: &|_| None,
        };
        let settings = SandboxPolicy { mode: SandboxMode::Strict, ..SandboxPolicy::default() };
        let policy = Policy::of(&settings, &facts).expect("it has limits");
        assert!(policy.read.contains(&setup[0]) && !policy.write.contains(&setup[0]), "{policy:?}");
        assert!(policy.write.contains(&homes[0]), "{policy:?}");
        assert!(policy.write.contains(&at(".dogwatch/runs/a/b/agent")), "{policy:?}");
        assert_eq!(policy.tmp, at(".dogwatch/runs/a/b/agent/tmp"));
    }

    #[test]
    fn a_session_writes_the_state_of_its_own_cli_and_of_no_other() {
        let home = Path::new("/h");
        let facts = |reader| Facts {
            reader,
            program: "agent",
            work_dir: Path::new("/w"),
            work_tree: Path::new("/w"),
            state_dir: Path::new("/w/.dogwatch"),
            run_dir: Path::new("/w/.dogwatch/runs/a"),
            agent_dir: Path::new("/w/.dogwatch/runs/a/b/agent"),
            loop_file: Path::new("/w/RALPH.md"),
            setup: &[],
            homes: &[],
            home: Some(home),
            env: &|_| None,
        };
        let settings = SandboxPolicy { mode: SandboxMode::Worktree, ..SandboxPolicy::default() };
        for (reader, dirs) in [
            (ReaderName::Claude, &[".claude", ".claude.json"][..]),
            (ReaderName::Codex, &[".codex"]),
            (ReaderName::Gemini, &[".gemini"]),
            (ReaderName::Opencode, &[".local/share/opencode", ".config/opencode"]),
            (ReaderName::Plain, &[]),
        ] {
            let policy = Policy::of(&settings, &facts(reader)).expect("it has limits");
            let own: Vec<&PathBuf> = policy.write.iter().filter(|path| path.starts_with(home)).collect();
            assert!(dirs.iter().all(|dir| own.contains(&&home.join(dir))), "{reader:?}: {own:?}");
            let first = [".claude", ".codex", ".gemini", ".local/share/opencode"];
            let others = first.iter().filter(|dir| !dirs.contains(dir));
            assert!(others.into_iter().all(|dir| !own.contains(&&home.join(dir))), "{reader:?}: {own:?}");
        }
    }

    #[test]
    fn a_program_is_readable_with_its_package_but_the_home_directory_is_not() {
        let dir = tempfile::tempdir().expect("a directory");
        let home = dir.path().canonicalize().expect("a directory");
        let put = |name: &str| {
            let file = home.join(name);
            std::fs::create_dir_all(file.parent().expect("a parent")).expect("a directory");
            std::fs::write(&file, "").expect("writes");
            file
        };
        let cli = put("npm/node_modules/@a/cli/cli.js");
        std::fs::create_dir(home.join("npm/node_modules/.bin")).expect("a directory");
        let link = home.join("npm/node_modules/.bin/cli");
        symlink(&cli, &link).expect("a link");
        let of = |file: &Path| package(file, Some(&home)).expect("it exists");
        assert_eq!(of(&link), home.join("npm/node_modules"));
        assert_eq!(of(&put("tools/x/bin/x")), home.join("tools/x"));
        assert_eq!(of(&put("bin/mine")), home.join("bin/mine"));
        assert_eq!(of(&put("versions/1.2.3")), home.join("versions/1.2.3"));
        assert_eq!(package(&home.join("gone"), Some(&home)), None);
    }
}
