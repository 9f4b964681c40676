//! Decides which paths a session may touch.

use super::enter::ARGUMENT;
use super::ground::{GitDir, GitPlace, Ground};
use crate::git::role;
use crate::process::keeper::EnvChange;
use crate::store::home;
use dogwatch_core::settings::{ReaderName, SandboxMode, SandboxPolicy};
use serde::{Deserialize, Serialize};
use std::io;
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
    /// A file that a session must not create. It cannot be protected, because it does not exist.
    #[serde(skip)]
    pub absent: Option<PathBuf>,
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
    pub ground: &'a Ground,
    /// The state directory of the project.
    pub state_dir: &'a Path,
    /// The directory of the run.
    pub run_dir: &'a Path,
    /// The directory of the node that its sessions may write.
    pub agent_dir: &'a Path,
    /// The loop or graph file.
    pub loop_file: &'a Path,
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
        let Ground { work_tree, git, git_link, loop_file } = facts.ground;
        let mut write = vec![work_tree.clone(), facts.agent_dir.to_owned()];
        let outside = git.iter().filter(|git| git.place == GitPlace::Outside);
        write.extend(outside.map(|git| git.common.clone()));
        let mut make = Vec::new();
        for path in state_of(facts) {
            let Some(path) = steady(&path, facts, &write).filter(|path| !has_home(path, facts)) else {
                continue;
            };
            make.extend(Some(path.clone()).filter(|path| path.extension().is_none()));
            write.push(path);
        }
        // A path below another one comes after it, and adds nothing.
        let mut listed: Vec<PathBuf> = settings.write.iter().map(|path| at_home(path, facts)).collect();
        listed.sort();
        for path in listed {
            write.extend(steady(&path, facts, &write));
        }
        let user_state = home::user_state_dir();
        let user_state = user_state.canonicalize().unwrap_or(user_state);
        let mut protect = vec![
            facts.state_dir.to_owned(),
            facts.work_dir.join(home::STATE_DIR),
            work_tree.join(home::STATE_DIR),
            facts.work_dir.join("dogwatch.toml"),
            work_tree.join("dogwatch.toml"),
            loop_file.clone(),
            facts.loop_file.to_owned(),
        ];
        // The work tree may be the home directory, which contains the state of all runs.
        protect.extend(Some(user_state).filter(|state| state.starts_with(work_tree)));
        protect.extend(git_link.clone());
        protect.extend(git.iter().flat_map(GitDir::protected));
        // A link is protected, and what it leads to.
        protect.extend(protect.iter().filter_map(|path| path.canonicalize().ok()).collect::<Vec<_>>());
        protect.sort();
        protect.dedup();
        // A directory that does not exist cannot be protected.
        let hooks =
            git.iter().filter(|git| git.place != GitPlace::Unknown).map(|git| git.common.join("hooks"));
        make.extend(hooks.filter(|hooks| hooks.symlink_metadata().is_err()));
        let mut ports: Vec<u16> = WEB_PORTS.into_iter().chain(settings.ports.iter().copied()).collect();
        ports.extend(proxies(facts));
        let (mode, mut read, required) = (settings.mode, readable(facts, &write), settings.required);
        read.extend(settings.read.iter().filter_map(|path| steady(&at_home(path, facts), facts, &write)));
        // The sessions of a node share a directory for temporary files, as they would share `/tmp`.
        let tmp = facts.agent_dir.join("tmp");
        let absent = git.as_ref().filter(|git| !git.is_redirected).map(GitDir::redirection);
        let absent = absent.filter(|file| write.iter().any(|top| file.starts_with(top)));
        Some(Policy { mode, read, write, protect, ports, required, make, tmp, absent })
    }

    /// Adds the agent channel of one session: files that set it up, and home directories that were made for its CLI.
    #[must_use]
    pub fn with_channel(mut self, setup: &[PathBuf], homes: &[PathBuf]) -> Policy {
        self.read.extend(setup.iter().cloned());
        self.write.extend(homes.iter().cloned());
        self
    }

    /// Removes the file that a session must not create. Returns it if a session did create it, and whether it could be
    /// removed.
    pub fn remove_created(&self) -> Option<(&Path, io::Result<()>)> {
        let file = self.absent.as_deref()?;
        match std::fs::remove_file(file) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => None,
            removed => Some((file, removed)),
        }
    }
}

/// The most links that are followed on the way to a path, as in the kernel.
const MAX_LINKS: usize = 40;

/// Returns where a path leads. `None` if the way there is in a directory that sessions may write: there it needs no rule, and
/// a link could be theirs and lead anywhere.
fn steady(path: &Path, facts: &Facts<'_>, writable: &[PathBuf]) -> Option<PathBuf> {
    let mut at = if path.is_absolute() { PathBuf::from("/") } else { facts.work_dir.to_owned() };
    let names = |path: &Path| path.components().rev().map(|c| c.as_os_str().to_owned()).collect::<Vec<_>>();
    let (mut rest, mut links) = (names(path), 0);
    while let Some(name) = rest.pop() {
        if name == ".." {
            at.pop();
            continue;
        }
        let next = at.join(name);
        if writable.iter().any(|top| next.starts_with(top)) {
            return None;
        }
        match std::fs::read_link(&next) {
            Ok(target) if links < MAX_LINKS => {
                rest.extend(names(&target));
                links += 1;
            }
            Ok(_) => return None,
            Err(_) => at = next,
        }
    }
    Some(at)
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

fn at_home(path: &str, facts: &Facts<'_>) -> PathBuf {
    match (path.strip_prefix("~/"), facts.home) {
        (Some(rest), Some(home)) => home.join(rest),
        (Some(_) | None, _) => PathBuf::from(path),
    }
}

/// Returns whether a directory is the home directory or around it.
fn has_home(dir: &Path, facts: &Facts<'_>) -> bool {
    facts.home.is_some_and(|home| home.starts_with(dir))
}

/// Returns what a strict session may read besides what it may write: the system, the programs on `PATH` with the
/// libraries next to them, and dogwatch's files of this run.
fn readable(facts: &Facts<'_>, writable: &[PathBuf]) -> Vec<PathBuf> {
    let path = (facts.env)("PATH").unwrap_or_default();
    let dirs = || path.split(':').filter(|dir| dir.starts_with('/')).map(PathBuf::from);
    let program = dirs().map(|dir| dir.join(facts.program)).find(|file| file.is_file());
    let program = program.and_then(|file| steady(&file, facts, writable));
    let mut found = Vec::from_iter(program.map(|file| package(&file, facts)));
    for dir in dirs() {
        // A prefix such as ~/.nvm/versions/node/v20 has `bin` and `lib`. The home directory itself is not one.
        let prefix = dir.parent().filter(|prefix| !has_home(prefix, facts));
        // The shims of a version manager (pyenv, rbenv, asdf) start programs elsewhere in its directory.
        let shims = dir.ends_with("shims");
        found.extend(prefix.map(|prefix| if shims { prefix.to_owned() } else { prefix.join("lib") }));
        found.push(dir);
    }
    found.extend(facts.home.iter().flat_map(|home| HOME_FILES.map(|file| home.join(file))));
    let found = found.iter().filter_map(|path| steady(path, facts, writable));
    let mut read: Vec<PathBuf> = SYSTEM.iter().map(PathBuf::from).collect();
    read.extend(found.filter(|path| !has_home(path, facts)));
    read.extend([facts.run_dir.to_owned(), facts.loop_file.to_owned()]);
    read.extend(std::env::current_exe());
    read
}

/// Returns what a program consists of: its npm packages, its prefix (a directory with `bin`), or only its file.
fn package(file: &Path, facts: &Facts<'_>) -> PathBuf {
    let modules = file.ancestors().filter(|dir| dir.ends_with("node_modules")).last();
    let prefix = file.parent().filter(|dir| dir.ends_with("bin")).and_then(Path::parent);
    let prefix = prefix.filter(|prefix| !has_home(prefix, facts));
    modules.or(prefix).unwrap_or(file).to_owned()
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
pub fn wrap(policy: &Policy, argv: Vec<String>) -> io::Result<(Vec<String>, Vec<EnvChange>)> {
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

    /// Returns the facts about a session in the work tree `w` of a home directory.
    fn facts_at<'a>(
        home: &'a Path,
        ground: &'a Ground,
        env: &'a dyn Fn(&str) -> Option<String>,
    ) -> Facts<'a> {
        Facts {
            reader: ReaderName::Plain,
            program: "agent",
            work_dir: &ground.work_tree,
            ground,
            state_dir: Path::new("/s/.dogwatch"),
            run_dir: Path::new("/s/.dogwatch/runs/a"),
            agent_dir: Path::new("/s/.dogwatch/runs/a/b/agent"),
            loop_file: &ground.loop_file,
            home: Some(home),
            env,
        }
    }

    fn ground_at(work_tree: PathBuf) -> Ground {
        let loop_file = work_tree.join("RALPH.md");
        Ground::at(work_tree, loop_file)
    }

    #[test]
    fn the_files_of_the_agent_channel_are_readable_wherever_they_are() {
        let dir = tempfile::tempdir().expect("a directory");
        let at = |name: &str| dir.path().join(name);
        let (setup, homes) = (vec![at("state/mcp/a.json")], vec![at("state/mcp/a.home")]);
        let ground = ground_at(at("w"));
        let facts = Facts { reader: ReaderName::Gemini, ..facts_at(dir.path(), &ground, &|_| None) };
        let settings = SandboxPolicy { mode: SandboxMode::Strict, ..SandboxPolicy::default() };
        let policy = Policy::of(&settings, &facts).expect("it has limits").with_channel(&setup, &homes);
        assert!(policy.read.contains(&setup[0]) && !policy.write.contains(&setup[0]), "{policy:?}");
        assert!(policy.read.iter().any(|path| path == facts.run_dir), "{policy:?}");
        assert!(policy.write.contains(&homes[0]), "{policy:?}");
        assert!(policy.write.iter().any(|path| path == facts.agent_dir), "{policy:?}");
        assert_eq!(policy.tmp, facts.agent_dir.join("tmp"));
    }

    #[test]
    fn a_session_writes_the_state_of_its_own_cli_and_of_no_other() {
        let home = Path::new("/h");
        let ground = ground_at(PathBuf::from("/w"));
        let facts = |reader| Facts { reader, ..facts_at(home, &ground, &|_| None) };
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
        let ground = ground_at(home.join("w"));
        let facts = facts_at(&home, &ground, &|_| None);
        let of = |file: &Path| package(&steady(file, &facts, &[]).expect("nothing is writable"), &facts);
        assert_eq!(of(&link), home.join("npm/node_modules"));
        assert_eq!(of(&put("tools/x/bin/x")), home.join("tools/x"));
        assert_eq!(of(&put("bin/mine")), home.join("bin/mine"));
        assert_eq!(of(&put("versions/1.2.3")), home.join("versions/1.2.3"));
    }
    #[test]
    fn a_rule_follows_no_link_that_a_session_could_have_made() {
        let dir = tempfile::tempdir().expect("a directory");
        let home = dir.path().canonicalize().expect("a directory");
        let at = |name: &str| home.join(name);
        for name in ["w", "ssh", "tools/x/bin", "cache", "elsewhere"] {
            std::fs::create_dir_all(at(name)).expect("a directory");
        }
        // `w` and `cache` are writable, so the links there may be the work of a session.
        for (link, target) in [
            ("w/cache", "ssh"),
            ("w/lib", "ssh"),
            ("w/gitconfig", "ssh"),
            ("cache/ssh", "ssh"),
            ("alias", "w"),
            (".gitconfig", "w/gitconfig"),
            ("tool", "tools/x"),
            ("other", "elsewhere"),
        ] {
            symlink(at(target), at(link)).expect("a link");
        }
        let ground = ground_at(at("w"));
        let dirs = ["w/bin", "alias/bin", "tool/bin", ""].map(|dir| at(dir).display().to_string());
        let path = format!("{}:{}:/", dirs.join(":"), dir.path().display());
        let env = |name: &str| (name == "PATH").then(|| path.clone());
        let facts = facts_at(&home, &ground, &env);
        let list = |paths: &[&str]| paths.iter().map(|path| (*path).to_owned()).collect();
        let settings = SandboxPolicy {
            mode: SandboxMode::Strict,
            write: list(&[
                "cache",
                "alias/cache",
                "~/alias/cache",
                "~/cache/ssh",
                "~/cache",
                "../other",
                "../new",
            ]),
            read: list(&["lib", "~/alias/lib", "~/cache/ssh"]),
            ..SandboxPolicy::default()
        };
        let policy = Policy::of(&settings, &facts).expect("it has limits");
        let below = |paths: &[PathBuf]| {
            let below = |path: &PathBuf| Some(path.strip_prefix(&home).ok()?.display().to_string());
            paths.iter().filter_map(below).collect::<Vec<_>>()
        };
        assert_eq!(below(&policy.write), ["w", "cache", "new", "elsewhere"]);
        let files = HOME_FILES.iter().filter(|file| **file != ".gitconfig");
        let wanted: Vec<&str> =
            ["tools/x/lib", "tools/x/bin"].iter().chain(files).chain(&["w/RALPH.md"]).copied().collect();
        assert_eq!(below(&policy.read), wanted);
        assert!(!policy.read.iter().any(|path| home.starts_with(path)), "{:?}", policy.read);
    }
}
