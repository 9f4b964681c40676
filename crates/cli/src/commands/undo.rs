use crate::error::CliError;
use crate::own_work::own_work;
use crate::runs::{FoundRun, registered};
use crate::screen::words;
use crate::snapshot_index::SnapshotIndex;
use crate::supervise::hold;
use dogwatch_core::record::ids::{Iteration, NodeName, RunId};
use dogwatch_core::record::status::Status;
use dogwatch_core::text::printable;
use dogwatch_host::clock;
use dogwatch_host::git::snapshot;
use dogwatch_host::store::home;
use dogwatch_host::store::home::StateDir;
use dogwatch_host::store::lock::Place;
use std::fmt::Write as _;
use std::io::{BufRead, IsTerminal, Write};
use std::path::{Path, PathBuf};

/// Restore the work tree to its state before an iteration
///
/// Only the work of the run is undone: files that changed after its last snapshot, or while another run worked in the
/// same tree, are kept and listed. HEAD, branches and the index stay as they are, and so do ignored files and files that
/// were too large for a snapshot. The current files are saved first; the last line of the output shows how to get them
/// back. Stop a live run before you undo its iterations.
#[derive(clap::Args)]
#[command(after_help = AFTER_HELP)]
pub struct Args {
    /// Run id, the end of one, or the name of a loop
    #[arg(value_name = "RUN", add = crate::completing::runs())]
    run: String,
    /// First iteration to undo, or `undo-…`, the name that an earlier undo printed
    #[arg(value_name = "N", value_parser = parse_what, required_unless_present = "iteration")]
    what: Option<What>,
    /// The same as N
    #[arg(short, long, value_name = "N", value_parser = parse_what, conflicts_with = "what")]
    iteration: Option<What>,
    /// Node, if the run has several
    #[arg(long, value_name = "NAME")]
    node: Option<String>,
    /// Also overwrite and remove files that changed after the run or in other runs
    #[arg(long)]
    force: bool,
    /// Print what was restored as JSON
    #[arg(long)]
    json: bool,
    /// Do not ask for confirmation
    #[arg(long, short)]
    yes: bool,
    /// State directory of the project [default: .dogwatch]
    #[arg(long, value_name = "DIR")]
    state_dir: Option<PathBuf>,
}

const AFTER_HELP: &str = "\
Examples:
  dogwatch diff k3f9 3 --stat    list the files that iteration 3 changed
  dogwatch undo k3f9 3           restore the state before iteration 3
  dogwatch undo k3f9 1           restore the state before the run";

/// How to undo changes that are not the work of the run.
const FORCE: &str = "pass --force to overwrite and remove files that are not the work of this run\n";

/// The most files that the question names.
const MAX_SHOWN: usize = 10;

#[derive(Clone, Debug)]
enum What {
    Iteration(Iteration),
    /// The last part of the ref that an earlier undo created.
    Saved(String),
}

fn parse_what(text: &str) -> Result<What, String> {
    let plain = |name: &str| name.bytes().all(|b| b.is_ascii_digit() || b == b'-');
    if text.strip_prefix(snapshot::UNDO).is_some_and(plain) {
        return Ok(What::Saved(text.to_owned()));
    }
    match text.parse() {
        Ok(0) | Err(_) => Err("expected an iteration number from 1 on, or a name like undo-…".to_owned()),
        Ok(n) => Ok(What::Iteration(Iteration(n))),
    }
}

/// Runs `dogwatch undo` and returns the exit code.
pub fn run(args: &Args) -> Result<u8, CliError> {
    let found = crate::runs::Which::new(Some(args.run.clone()), args.state_dir.clone()).find()?;
    let index = SnapshotIndex::of(&found)?;
    let (node, to, title) = wanted(args, &found, &index)?;
    let dir = index.dir(&node)?;
    if let Some(command) = index.lost_worktree(&dir, &node) {
        return Err(CliError::with_help(
            format!("the worktree of `{node}` is gone"),
            format!("restore it with `{command}`"),
        ));
    }
    refuse_if_live(&found, &dir)?;
    // Prevents another process from starting the loop during the undo.
    let started = index.started();
    let state_dir = StateDir::at(found.state_dir());
    let place = Place {
        work_dir: Path::new(&started.work_dir),
        loop_file: Path::new(&started.path),
        state_dir: &state_dir,
    };
    let _held = hold(place, &found.id)?;
    let own = match args.force {
        true => None,
        false => Some(own_work(&found, &index, &dir, &to).map_err(CliError::usage)?),
    };
    let keep_as = snapshot::undo_name(&found.id, &node, clock::now().wall);
    let undo = snapshot::Undo {
        work_dir: dir.clone(),
        to,
        keep_as,
        scratch: found.dir.join("undo"),
        state_dirs: home::own_dirs(&found.state_dir()),
        limits: snapshot::Limits::default(),
        own,
    };
    let snapshots = [undo.to.clone(), undo.keep_as.clone()];
    let prepared =
        snapshot::prepare(undo).map_err(|why| CliError::usage(format!("{}: {why}", dir.display())))?;
    super::diff::note_left_out(&dir, &snapshots.each_ref().map(String::as_str));
    if prepared.counts() == (0, 0) {
        let restored = prepared.unchanged();
        let _ = prepared.give_up();
        let code = u8::from(restored.left > 0);
        let dir = dir.display().to_string();
        if args.json {
            super::print_json(&Done { run: &found.id, node: &node, dir, restored, saved: None })?;
        } else if restored.left > 0 {
            let text = format!("nothing to undo in {dir}\n{}{FORCE}", not_changed(&restored));
            super::print_text(&printable(&text))?;
        } else {
            super::print_text(&format!("{dir} is already {title}\n"))?;
        }
        return Ok(code);
    }
    match if args.yes { Ok(true) } else { confirm(&prepared, &found, &dir, &title) } {
        Ok(true) => {}
        Ok(false) => {
            let _ = prepared.give_up();
            return super::print(b"nothing was changed\n");
        }
        Err(failure) => {
            let _ = prepared.give_up();
            return Err(failure);
        }
    }
    let restoring = Restoring {
        found: &found,
        node: &node,
        dir: &dir,
        title: &title,
        several: has_several_nodes(&index),
        json: args.json,
        name_files: args.yes,
    };
    restoring.restore(prepared)
}

fn has_several_nodes(index: &SnapshotIndex) -> bool {
    index.started().nodes.len() > 1
}

/// Returns the node, the ref to restore, and a description of the restored state.
fn wanted(
    args: &Args,
    found: &FoundRun,
    index: &SnapshotIndex,
) -> Result<(NodeName, String, String), CliError> {
    let what = args.what.as_ref().or(args.iteration.as_ref());
    match what.ok_or_else(|| CliError::usage("no iteration to undo"))? {
        What::Iteration(n) => {
            let node = index.node(args.node.as_deref(), Some(*n))?;
            let name = index.name(&index.dir(&node)?, &node, index.before(&node, *n)?)?;
            Ok((node, name, format!("as it was before iteration {n}")))
        }
        What::Saved(name) => {
            let node = index.node(args.node.as_deref(), None)?;
            let whole = format!("{}{name}", snapshot::node_refs(&found.id, &node));
            match snapshot::commit_of(&index.dir(&node)?, &whole) {
                Ok(Some(_)) => Ok((node, whole, "as it was before that undo".to_owned())),
                Ok(None) => Err(CliError::with_help(
                    format!("no snapshot {whole}"),
                    format!(
                        "`git for-each-ref {}` lists the snapshots of this run",
                        snapshot::run_refs(&found.id)
                    ),
                )),
                Err(why) => Err(CliError::usage(why)),
            }
        }
    }
}

/// Returns an error if this run or another live run works in the same tree.
fn refuse_if_live(found: &FoundRun, dir: &Path) -> Result<(), CliError> {
    if found.is_live() {
        return Err(CliError::with_help(
            format!("run {} is live", found.id),
            format!("stop it first with `dogwatch stop {}`", found.tail()),
        ));
    }
    let tree = home::work_tree(dir);
    let same = |other: &FoundRun| {
        let status: Option<Status> = other.ask("/v1/status");
        status.and_then(|s| s.work_dir).is_some_and(|at| home::work_tree(Path::new(&at)) == tree)
    };
    match registered().find(|other| other.id != found.id && other.is_live() && same(other)) {
        Some(other) => Err(CliError::with_help(
            format!("run {} is live in the same work tree", other.id),
            format!("stop it first with `dogwatch stop {}`", other.tail()),
        )),
        None => Ok(()),
    }
}

/// Asks for confirmation, which needs a terminal.
fn confirm(
    prepared: &snapshot::Prepared,
    found: &FoundRun,
    dir: &Path,
    title: &str,
) -> Result<bool, CliError> {
    if !(std::io::stdin().is_terminal() && std::io::stderr().is_terminal()) {
        return Err(CliError::with_help(
            "cannot ask for confirmation: not a terminal; nothing was changed",
            "pass --yes to confirm",
        ));
    }
    let (written, removed) = prepared.counts();
    let mut files = named_files(prepared, "write", "remove");
    let kept = prepared.kept_files();
    let more = kept.len().saturating_sub(MAX_SHOWN);
    for (path, why) in kept.take(MAX_SHOWN) {
        let _ = writeln!(files, "  keep    {}: {why}", String::from_utf8_lossy(path));
    }
    if more > 0 {
        let _ = writeln!(files, "  … and keep {more} more");
    }
    let mut question = format!("run {} in {}:\n{files}", found.id, dir.display());
    let _ = write!(
        question,
        "write {} and remove {}? The work tree will be {title}; the current files are saved first. [y/N] ",
        words::count(written as u64, "file"),
        words::count(removed as u64, "file"),
    );
    let _ = write!(std::io::stderr(), "{}", printable(&question)).and_then(|()| std::io::stderr().flush());
    let mut answer = String::new();
    let read = std::io::stdin().lock().read_line(&mut answer);
    Ok(read.is_ok() && matches!(answer.trim().to_ascii_lowercase().as_str(), "y" | "yes"))
}

/// Lists the files to write and to remove, at most [`MAX_SHOWN`] of them.
fn named_files(prepared: &snapshot::Prepared, write: &str, remove: &str) -> String {
    let (written, removed) = prepared.counts();
    let width = write.len().max(remove.len());
    let mut text = String::new();
    for (path, removed) in prepared.paths().take(MAX_SHOWN) {
        let what = if removed { remove } else { write };
        let _ = writeln!(text, "  {what:<width$}  {}", String::from_utf8_lossy(path));
    }
    if written + removed > MAX_SHOWN {
        let _ = writeln!(text, "  … and {} more", written + removed - MAX_SHOWN);
    }
    text
}

/// The restore of a work tree, and what its messages need.
struct Restoring<'a> {
    found: &'a FoundRun,
    node: &'a NodeName,
    dir: &'a Path,
    title: &'a str,
    several: bool,
    json: bool,
    /// Whether to name the files. The question has named them already.
    name_files: bool,
}

/// The result of an undo, in the shape of the JSON output.
#[derive(serde::Serialize)]
struct Done<'a> {
    run: &'a RunId,
    node: &'a NodeName,
    dir: String,
    #[serde(flatten)]
    restored: snapshot::Restored,
    /// The ref that keeps the previous files; null if nothing had to be changed.
    saved: Option<String>,
}

impl Restoring<'_> {
    fn restore(&self, prepared: snapshot::Prepared) -> Result<u8, CliError> {
        let saved = prepared.kept.ref_name.clone();
        let (under_way, moved) = (prepared.survey.under_way, prepared.survey.moved_head.clone());
        let back = self.back(&saved);
        let kept = prepared.kept_files().len() as u64;
        let named = if self.name_files { named_files(&prepared, "wrote", "removed") } else { String::new() };
        let restored = prepared.restore().map_err(|why| {
            CliError::with_help(
                format!("cannot restore {} completely: {why}", self.dir.display()),
                format!("the previous files are saved; restore them with `{back}`"),
            )
        })?;
        let code = u8::from(restored.left > 0);
        if self.json {
            let (dir, saved) = (self.dir.display().to_string(), Some(saved));
            super::print_json(&Done { run: &self.found.id, node: self.node, dir, restored, saved })?;
            return Ok(code);
        }
        let mut text = String::new();
        let files = words::count(restored.written, "file");
        let removed = restored.removed;
        let except = match restored.left {
            0 => String::new(),
            left => format!(", except for {}", words::count(left, "file")),
        };
        let (dir, title) = (self.dir.display(), self.title);
        let _ = writeln!(text, "{dir} is {title}{except}: {files} written, {removed} removed");
        // A file that could not be changed is listed below, with the reason.
        if restored.left == kept {
            text.push_str(&named);
        }
        if restored.left > 0 {
            text.push_str(&not_changed(&restored));
        }
        if kept > 0 {
            text.push_str(FORCE);
        }
        if let Some((then, now)) = moved {
            let _ = writeln!(
                text,
                "HEAD stays at {}: later commits are kept (HEAD was at {} then)",
                short(&now),
                short(&then)
            );
        }
        if let Some(what) = under_way {
            let _ = writeln!(text, "a {what} is in progress in this work tree; it was not changed");
        }
        let _ = writeln!(text, "the previous files are saved in {saved}\nrestore them with `{back}`");
        super::print_text(&printable(&text))?;
        Ok(code)
    }

    /// Returns the command that restores the previous files.
    fn back(&self, saved: &str) -> String {
        let name = saved.rsplit('/').next().unwrap_or(saved);
        let node = if self.several { format!(" --node '{}'", self.node) } else { String::new() };
        format!("dogwatch undo {} {name}{node}", self.found.tail())
    }
}

/// Lists the files that stay as they are, with the reasons.
fn not_changed(restored: &snapshot::Restored) -> String {
    let mut text = format!("{} not changed:\n", words::count(restored.left, "file"));
    for left in &restored.named {
        let _ = writeln!(text, "  {}: {}", left.path, left.why);
    }
    if restored.left > restored.named.len() as u64 {
        let _ = writeln!(text, "  …");
    }
    text
}

fn short(commit: &str) -> &str {
    dogwatch_core::text::clip(commit, 10)
}
