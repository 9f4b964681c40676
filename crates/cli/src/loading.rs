//! From a path on the command line to a validated plan: finds the files, reads them, has them checked.

use crate::error::Failure;
use dogwatch_config::diagnostic::Source;
use dogwatch_config::frontmatter;
use dogwatch_config::{Flags, Loaded, Machine, Sources, load};
use dogwatch_host::{home, journal, prompt, wake};
use sha2::{Digest, Sha256};
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

/// The loop file's name in its directory.
pub const LOOP_FILE: &str = "RALPH.md";
/// The project's settings, in the directory where dogwatch is started.
pub const PROJECT_FILE: &str = "dogwatch.toml";
const GRAPH_FILES: [&str; 4] = ["graph.yaml", "graph.yml", "graph.toml", "graph.json"];

/// The flags that are settings, shared by `run` and `check`.
#[derive(clap::Args, Clone, Debug, Default)]
pub struct SettingFlags {
    /// End after N iterations
    #[arg(short = 'n', value_name = "N", allow_hyphen_values = true)]
    max_iterations: Option<String>,
    /// Wait so long between iterations (30s, 5m, 1h30m)
    #[arg(long, value_name = "D", allow_hyphen_values = true)]
    delay: Option<String>,
    /// End a session that lasts longer (the same as --set watchdog.session=D)
    #[arg(long, value_name = "D", allow_hyphen_values = true)]
    timeout: Option<String>,
    /// End the run at the first failed iteration
    #[arg(long)]
    stop_on_error: bool,
    /// A set of watchdog limits: quick, standard or deep
    #[arg(long, value_name = "P")]
    profile: Option<String>,
    /// Set any key of the loop file, e.g. --set budget.time=8h
    #[arg(long = "set", value_name = "KEY=VALUE")]
    set: Vec<String>,
}

impl SettingFlags {
    pub fn flags(&self) -> Flags {
        Flags {
            set: self.set.clone(),
            max_iterations: self.max_iterations.clone(),
            delay: self.delay.clone(),
            timeout: self.timeout.clone(),
            profile: self.profile.clone(),
            stop_on_error: self.stop_on_error,
        }
    }
}

/// A loop file that was found and read.
pub struct LoopFile {
    /// Absolute, links resolved.
    pub path: PathBuf,
    pub text: String,
    /// As the user would write it.
    shown: String,
    pub work_dir: PathBuf,
}

impl LoopFile {
    /// PATH is a directory with a loop file, or the file itself.
    pub fn find(path: &Path) -> Result<LoopFile, Failure> {
        let file = locate(path)?;
        let work_dir = std::env::current_dir()
            .map_err(|e| Failure::usage(format!("the current directory is not there: {e}")))?;
        let text = prompt::read_bounded(&file).map_err(|e| cannot_read(&file, &e))?;
        let absolute = file.canonicalize().map_err(|e| cannot_read(&file, &e))?;
        Ok(LoopFile { shown: file.display().to_string(), path: absolute, text, work_dir })
    }

    pub fn shown(&self) -> &str {
        &self.shown
    }

    /// Tells whether the settings of the file are still those a run started with.
    pub fn settings_sha256(&self) -> String {
        journal::hex(&Sha256::digest(frontmatter::settings(&self.text).as_bytes()))
    }

    /// A loop's only node is named after its directory.
    fn name(&self) -> String {
        let dir = self.path.parent().and_then(Path::file_name);
        dir.map_or_else(|| "loop".to_owned(), |d| d.to_string_lossy().into_owned())
    }

    pub fn load(&self, flags: &Flags, args: &[String]) -> Result<Loaded, Failure> {
        let user = read_settings(home::user_config_file())?;
        let project = read_settings(Some(self.work_dir.join(PROJECT_FILE)))?;
        let beside = self.path.parent().unwrap_or(&self.work_dir);
        let here = Here { work_dir: &self.work_dir, beside };
        let sources = Sources {
            loop_file: Source { name: &self.shown, text: &self.text },
            user: user.as_ref().map(|(name, text)| Source { name, text }),
            project: project.as_ref().map(|(name, text)| Source { name, text }),
            flags,
            args,
            node_name: &self.name(),
            detect: &dogwatch_agents::detect,
            machine: Some(&here),
        };
        load(&sources).map_err(Failure::Findings)
    }
}

/// Whether the machine could run it, before anything starts.
pub fn runs_here(loaded: &Loaded) -> Result<(), Failure> {
    if loaded.faults.is_empty() { Ok(()) } else { Err(Failure::Findings(loaded.faults.clone())) }
}

/// Answers for this machine, from the directory where sessions run and for files beside the loop file.
struct Here<'a> {
    work_dir: &'a Path,
    beside: &'a Path,
}

impl Machine for Here<'_> {
    fn has_program(&self, program: &str) -> bool {
        program_exists(program, self.work_dir)
    }

    fn wake_paths(&self, globs: &[String]) -> Result<(), String> {
        wake::check(self.work_dir, globs).map_err(|bad| {
            let (glob, why) = bad.parts();
            format!("`{glob}`: {why}")
        })
    }

    fn read(&self, path: &str) -> Result<String, String> {
        prompt::read_bounded(&self.beside.join(path)).map_err(|e| e.to_string())
    }
}

fn locate(path: &Path) -> Result<PathBuf, Failure> {
    let meta = std::fs::metadata(path).map_err(|e| cannot_read(path, &e))?;
    if !meta.is_dir() {
        let is_graph = path.file_name().is_some_and(|n| GRAPH_FILES.iter().any(|g| n == *g));
        return if is_graph { Err(no_graphs(path)) } else { Ok(path.to_owned()) };
    }
    let file = path.join(LOOP_FILE);
    if file.exists() {
        return Ok(file);
    }
    match GRAPH_FILES.iter().map(|g| path.join(g)).find(|g| g.exists()) {
        Some(graph) => Err(no_graphs(&graph)),
        None => Err(Failure::with_hint(
            format!("there is no {LOOP_FILE} in {}", path.display()),
            format!("`dogwatch init {}` writes one to start from", path.display()),
        )),
    }
}

fn no_graphs(path: &Path) -> Failure {
    Failure::with_hint(
        format!("{}: this version of dogwatch cannot run graphs yet", path.display()),
        format!("give it a {LOOP_FILE}"),
    )
}

fn cannot_read(path: &Path, error: &std::io::Error) -> Failure {
    let message = format!("cannot read {}: {error}", path.display());
    match error.kind() {
        ErrorKind::NotFound => {
            Failure::with_hint(message, format!("PATH is a directory with a {LOOP_FILE}, or such a file"))
        }
        _ => Failure::usage(message),
    }
}

/// A settings file's name and text; one that is not there is no settings.
fn read_settings(path: Option<PathBuf>) -> Result<Option<(String, String)>, Failure> {
    let Some(path) = path else { return Ok(None) };
    match prompt::read_bounded(&path) {
        Ok(text) => Ok(Some((shorten(&path), text))),
        Err(e) if matches!(e.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory) => Ok(None),
        Err(e) => Err(cannot_read(&path, &e)),
    }
}

/// A path as people write it: relative to here, or to home.
fn shorten(path: &Path) -> String {
    let here = std::env::current_dir().ok();
    if let Some(rest) = here.and_then(|h| path.strip_prefix(h).ok().map(Path::to_owned)) {
        return rest.display().to_string();
    }
    let home = std::env::var_os("HOME").map(PathBuf::from);
    match home.and_then(|h| path.strip_prefix(h).ok().map(Path::to_owned)) {
        Some(rest) => format!("~/{}", rest.display()),
        None => path.display().to_string(),
    }
}

/// As a shell would find it, from the directory where sessions run.
pub fn program_exists(program: &str, work_dir: &Path) -> bool {
    find_program(program, work_dir).is_some()
}

/// Where the program is that a shell would start.
pub fn find_program(program: &str, work_dir: &Path) -> Option<PathBuf> {
    if program.contains('/') {
        return Some(work_dir.join(program)).filter(|path| is_executable(path));
    }
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path).map(|dir| work_dir.join(dir).join(program)).find(|path| is_executable(path))
}

fn is_executable(path: &Path) -> bool {
    path.is_file() && rustix::fs::access(path, rustix::fs::Access::EXEC_OK).is_ok()
}
