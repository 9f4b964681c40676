//! Turns a path on the command line into a validated plan: finds the files, reads them and validates them.

use crate::completing;
use crate::error::CliError;
use crate::learned_limits::LearnedLimits;
use dogwatch_config::diagnostic::Source;
use dogwatch_config::frontmatter;
use dogwatch_config::limits::{MAX_FILE_BYTES, MAX_GRAPH_BYTES};
use dogwatch_config::{Flags, Format, Loaded, Machine, Sources, load, load_external, load_graph};
#[cfg(feature = "fleet")]
use dogwatch_core::record::notification::NotifyPolicy;
use dogwatch_core::settings::{Profile, ReaderName, WatchPolicy};
use dogwatch_core::text::shell::quote_path;
use dogwatch_core::watch::limits::{Estimate, Key};
use dogwatch_host::fs::wake;
use dogwatch_host::process::keeper::DEFAULT_PATH;
use dogwatch_host::prompt;
use dogwatch_host::store::home;
use dogwatch_host::store::journal;
use sha2::{Digest, Sha256};
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

/// The loop file's name in its directory.
pub const LOOP_FILE: &str = "RALPH.md";
/// The project's settings, in the directory where dogwatch is started.
pub const PROJECT_FILE: &str = "dogwatch.toml";
/// The names of loop and graph files in their directory.
pub const LOOP_FILES: [&str; 5] = [LOOP_FILE, "graph.yaml", "graph.yml", "graph.toml", "graph.json"];

/// The most entries of a directory to look at for loops to suggest.
const MAX_LOOKED_AT: usize = 1_000;
/// The most loops to suggest.
const MAX_SUGGESTED: usize = 5;

/// The flags that override settings, shared by `run` and `check`.
#[derive(clap::Args, Clone, Debug, Default)]
pub struct SettingFlags {
    /// Stop after N iterations
    #[arg(short = 'n', value_name = "N", allow_hyphen_values = true)]
    max_iterations: Option<String>,
    /// Time to wait between iterations, e.g. 30s, 5m, 1h30m
    #[arg(short = 'd', long, value_name = "D", allow_hyphen_values = true)]
    delay: Option<String>,
    /// Longest session (same as --set watchdog.session=D)
    #[arg(short = 't', long, value_name = "D", allow_hyphen_values = true)]
    timeout: Option<String>,
    /// Stop the run at the first failed iteration
    #[arg(short = 's', long)]
    stop_on_error: bool,
    /// Agent to run instead of the one in the file, e.g. codex
    #[arg(long, value_name = "COMMAND", add = completing::agents())]
    agent: Option<String>,
    /// Watchdog limits to use: quick, standard, deep or learned
    #[arg(long, value_name = "P", add = completing::words(Profile::NAMES))]
    profile: Option<String>,
    /// Override a key of the loop file, e.g. --set budget.time=8h
    #[arg(long = "set", value_name = "KEY=VALUE", add = completing::keys(""))]
    set: Vec<String>,
}

impl SettingFlags {
    /// Returns the flags for the loader of settings.
    pub fn flags(&self) -> Flags {
        Flags {
            set: self.set.clone(),
            max_iterations: self.max_iterations.clone(),
            delay: self.delay.clone(),
            timeout: self.timeout.clone(),
            agent: self.agent.clone(),
            profile: self.profile.clone(),
            stop_on_error: self.stop_on_error,
        }
    }
}

/// A loop or graph file and its contents.
pub struct LoopFile {
    /// The absolute path, with symbolic links resolved.
    pub path: PathBuf,
    pub text: String,
    /// The path as the user gave it.
    shown: String,
    pub work_dir: PathBuf,
    /// The format of a graph file; `None` for a loop file.
    format: Option<Format>,
}

impl LoopFile {
    /// Finds and reads the loop or graph file. `path` is the file, or a directory that contains it.
    pub fn find(path: &Path) -> Result<LoopFile, CliError> {
        let work_dir = current_dir()?;
        let file = locate(path)?;
        let format = file.file_name().and_then(|name| Format::of(&name.to_string_lossy()));
        let max = if format.is_some() { MAX_GRAPH_BYTES } else { MAX_FILE_BYTES };
        let text = prompt::read_at_most(&file, max).map_err(|e| cannot_read(&file, &e))?;
        let absolute = file.canonicalize().map_err(|e| cannot_read(&file, &e))?;
        check_path(&work_dir)?;
        check_path(&absolute)?;
        Ok(LoopFile { shown: file.display().to_string(), path: absolute, text, work_dir, format })
    }

    /// Returns the path as the user wrote it.
    pub fn shown(&self) -> &str {
        &self.shown
    }

    /// Returns a hash of the settings, to detect that they changed after a run started. A graph file consists of
    /// settings only.
    pub fn settings_sha256(&self) -> String {
        let settings = match self.format {
            Some(_) => self.text.clone(),
            None => frontmatter::settings(&self.text),
        };
        journal::hex(&Sha256::digest(settings.as_bytes()))
    }

    /// Returns the name of a loop's only node: the name of its directory.
    fn name(&self) -> String {
        let dir = self.path.parent().and_then(Path::file_name);
        dir.map_or_else(|| "loop".to_owned(), |d| d.to_string_lossy().into_owned())
    }

    /// Validates the file together with the user's and the project's settings. `explain` also collects the settings
    /// of each graph node; a loop always includes them.
    pub fn load(&self, flags: &Flags, args: &[String], explain: bool) -> Result<Loaded, CliError> {
        let user = read_settings(home::user_config_file())?;
        let project = read_settings(Some(self.work_dir.join(PROJECT_FILE)))?;
        let beside = self.path.parent().unwrap_or(&self.work_dir);
        let learned = LearnedLimits::new(&self.work_dir);
        let here = Here { work_dir: &self.work_dir, beside, learned };
        let user = user.as_ref().map(|(name, text)| Source { name, text });
        let project = project.as_ref().map(|(name, text)| Source { name, text });
        let file = Source { name: &self.shown, text: &self.text };
        let (detect, machine) = (&dogwatch_agents::detect, Some(&here as &dyn Machine));
        let sources = Sources { file, user, project, flags, args, detect, machine };
        Ok(match self.format {
            Some(format) => load_graph(&sources, format, explain)?,
            None => load(&sources, &self.name())?,
        })
    }
}

/// Returns the notification policy of the user's own `dogwatch.toml`.
#[cfg(feature = "fleet")]
pub fn user_notify() -> Result<NotifyPolicy, CliError> {
    let user = read_settings(home::user_config_file())?;
    let user = user.as_ref().map(|(name, text)| Source { name, text });
    // The policy is part of every loop's settings, so any loop has it.
    let file = Source { name: "fleet", text: "---\nagent: sh\n---\n-\n" };
    let flags = Flags::default();
    let sources = Sources { user, ..Sources::of_file(file, &flags, &dogwatch_agents::detect) };
    let loaded = load(&sources, "fleet")?;
    Ok(loaded.plan.nodes.first().map(|node| node.settings.notify.clone()).unwrap_or_default())
}

/// Returns the limits for external agents, from the user's and this directory's `dogwatch.toml`.
pub fn external_policy() -> Result<WatchPolicy, CliError> {
    let user = read_settings(home::user_config_file())?;
    let project = read_settings(Some(PathBuf::from(PROJECT_FILE)))?;
    let user = user.as_ref().map(|(name, text)| Source { name, text });
    let project = project.as_ref().map(|(name, text)| Source { name, text });
    Ok(load_external(user, project)?)
}

/// This machine, as the validation sees it: programs and globs are resolved from the directory where sessions run,
/// files from the directory of the loop file.
struct Here<'a> {
    work_dir: &'a Path,
    beside: &'a Path,
    learned: LearnedLimits<'a>,
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

    fn template(&self, path: &str) -> Result<(), String> {
        prompt::recovery::read_inside(self.beside, path).map(drop)
    }

    fn learned(&self, agent: ReaderName, base: &WatchPolicy) -> Vec<(Key, Estimate)> {
        self.learned.of(agent, base)
    }

    fn take_notices(&self) -> Vec<String> {
        self.learned.take_notices()
    }
}

/// Returns the loops and graphs one level below a directory, in order of their names.
fn loops_below(dir: &Path) -> Vec<String> {
    let entries = std::fs::read_dir(dir).into_iter().flatten().flatten().take(MAX_LOOKED_AT);
    let is_loop = |path: &PathBuf| LOOP_FILES.iter().any(|name| path.join(name).is_file());
    let found = entries.map(|entry| entry.path()).filter(is_loop);
    let mut names: Vec<String> = found.map(|path| shown(path.strip_prefix("./").unwrap_or(&path))).collect();
    names.sort();
    names.truncate(MAX_SUGGESTED);
    names
}

/// Returns the file whose name differs from that of a loop file only in upper and lower case.
fn with_other_case(dir: &Path) -> Option<PathBuf> {
    let mut entries = std::fs::read_dir(dir).ok()?.flatten().take(MAX_LOOKED_AT);
    let found = entries.find(|entry| entry.file_name().eq_ignore_ascii_case(LOOP_FILE))?.path();
    found.is_file().then_some(found)
}

fn shown(path: &Path) -> String {
    dogwatch_core::text::printable(&path.display().to_string()).into_owned()
}

/// Returns the error for a path that cannot be looked at, with the loop of a similar name if there is one.
fn not_there(path: &Path, error: &std::io::Error) -> CliError {
    let parent = path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let (beside, wanted) = (loops_below(parent), shown(path));
    match dogwatch_config::nearest(&wanted, beside.iter().map(String::as_str)) {
        Some(near) => {
            CliError::with_help(format!("{wanted} does not exist"), format!("did you mean `{near}`?"))
        }
        None => cannot_read(path, error),
    }
}

fn locate(path: &Path) -> Result<PathBuf, CliError> {
    let meta = std::fs::metadata(path).map_err(|e| not_there(path, &e))?;
    if path.file_name().is_some_and(|name| name == PROJECT_FILE) {
        let message = format!("{} holds settings for all loops; it is not a loop file", path.display());
        return Err(CliError::with_help(message, PATH_IS));
    }
    if !meta.is_dir() {
        return Ok(path.to_owned());
    }
    std::fs::read_dir(path).map_err(|e| cannot_read(path, &e))?;
    let names = LOOP_FILES.into_iter();
    let mut found: Vec<PathBuf> = names.map(|name| path.join(name)).filter(|file| file.exists()).collect();
    match found.len() {
        1 => Ok(found.remove(0)),
        0 => Err(CliError::with_help(
            format!("no {LOOP_FILE} and no graph file in {}", path.display()),
            match (with_other_case(path), loops_below(path).as_slice()) {
                (Some(file), _) => format!("rename {} to {LOOP_FILE}, or pass the file itself", shown(&file)),
                (None, []) => {
                    let dir = quote_path(&path.display().to_string());
                    format!("`dogwatch init {dir}` writes a loop file to start from")
                }
                (None, found) => format!("name one of these: {}", found.join(", ")),
            },
        )),
        _ => Err(CliError::with_help(
            format!("found both {} and {}", found[0].display(), found[1].display()),
            "pass the file to use instead of the directory",
        )),
    }
}

/// Returns the current directory.
pub fn current_dir() -> Result<PathBuf, CliError> {
    std::env::current_dir().map_err(|e| {
        CliError::with_help(
            format!("cannot find the current directory: {e}"),
            "if it was removed, change to another one",
        )
    })
}

/// Returns an error if a path is not UTF-8. The record and the list of runs store paths as text, so a run could start
/// there, but no command would find it again.
pub fn check_path(path: &Path) -> Result<(), CliError> {
    if path.to_str().is_some() {
        return Ok(());
    }
    let message = format!("the path {} is not UTF-8", path.display());
    Err(CliError::with_help(message, "rename its directories; the record stores paths as UTF-8 text"))
}

const PATH_IS: &str =
    "PATH is a directory with a RALPH.md or a graph.yaml, .yml, .toml or .json, or such a file";

fn cannot_read(path: &Path, error: &std::io::Error) -> CliError {
    cannot_read_or(path, error, PATH_IS)
}

/// Returns the error for a file that cannot be read. `otherwise` is the help for errors that have no help of their own.
#[expect(clippy::wildcard_enum_match_arm, reason = "the enum belongs to another crate and may gain variants")]
fn cannot_read_or(path: &Path, error: &std::io::Error, otherwise: &str) -> CliError {
    let message = format!("cannot read {}: {error}", path.display());
    match error.kind() {
        ErrorKind::InvalidData => CliError::with_help(message, "save the file as UTF-8"),
        ErrorKind::FileTooLarge => CliError::with_help(message, "move long prompts into separate files"),
        ErrorKind::PermissionDenied => CliError::with_help(
            message,
            format!("make it readable; `ls -ld {}` shows its owner", path.display()),
        ),
        _ => CliError::with_help(message, otherwise),
    }
}

/// Returns the name and text of a settings file, or `None` if the file does not exist.
fn read_settings(path: Option<PathBuf>) -> Result<Option<(String, String)>, CliError> {
    let Some(path) = path else { return Ok(None) };
    match prompt::read_bounded(&path) {
        Ok(text) => Ok(Some((shorten(&path), text))),
        Err(e) if matches!(e.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory) => Ok(None),
        Err(e) => Err(cannot_read_or(&path, &e, "remove it, or put a file with settings in its place")),
    }
}

/// Shortens a path for display: relative to the current directory or to the home directory.
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

/// Returns whether a shell in `work_dir` would find the program.
pub fn program_exists(program: &str, work_dir: &Path) -> bool {
    find_program(program, work_dir).is_some()
}

/// Returns the path of the program that a shell in `work_dir` would start.
pub fn find_program(program: &str, work_dir: &Path) -> Option<PathBuf> {
    if program.contains('/') {
        return Some(work_dir.join(program)).filter(|path| is_executable(path));
    }
    let path = std::env::var_os("PATH").unwrap_or_else(|| DEFAULT_PATH.into());
    std::env::split_paths(&path).map(|dir| work_dir.join(dir).join(program)).find(|path| is_executable(path))
}

fn is_executable(path: &Path) -> bool {
    path.is_file() && rustix::fs::access(path, rustix::fs::Access::EXEC_OK).is_ok()
}
