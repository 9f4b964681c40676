use crate::error::Failure;
use crate::kept::Kept;
use crate::runs::{FoundRun, registered};
use crate::screen::words;
use crate::supervise::hold;
use dogwatch_core::ids::{Iteration, NodeName};
use dogwatch_core::status::Status;
use dogwatch_core::text::printable;
use dogwatch_host::home::StateDir;
use dogwatch_host::lock::Place;
use dogwatch_host::{clock, home, snapshot};
use std::fmt::Write as _;
use std::io::{BufRead, IsTerminal, Write};
use std::path::{Path, PathBuf};

/// Put the work tree back as it was before an iteration
///
/// Files alone change: HEAD, branches and the index stay as they are, and so does everything that git ignores or
/// that was too large for a snapshot. What stands in the work tree now is kept first, and the last line says how to
/// get it back. A run that is alive is not undone: stop it first.
#[derive(clap::Args)]
#[command(after_help = AFTER_HELP)]
pub struct Args {
    /// A run id, or the end of one
    #[arg(value_name = "RUN")]
    run: String,
    /// The iteration to undo, and all after it; or `undo-…`, the name of what an earlier undo kept
    #[arg(value_name = "N", value_parser = parse_what)]
    what: What,
    /// The node, if the run has several
    #[arg(long, value_name = "NAME")]
    node: Option<String>,
    /// Do not ask
    #[arg(long, short)]
    yes: bool,
    /// Where the project keeps its record, if not in .dogwatch
    #[arg(long, value_name = "DIR")]
    state_dir: Option<PathBuf>,
}

const AFTER_HELP: &str = "\
Examples:
  dogwatch diff k3f9 3 --stat    what would go
  dogwatch undo k3f9 3           as it was before iteration 3
  dogwatch undo k3f9 1           as it was before the run";

#[derive(Clone, Debug)]
enum What {
    Iteration(Iteration),
    /// The last part of a ref.
    Kept(String),
}

fn parse_what(text: &str) -> Result<What, String> {
    let plain = |name: &str| name.bytes().all(|b| b.is_ascii_digit() || b == b'-');
    if text.strip_prefix(snapshot::UNDO).is_some_and(plain) {
        return Ok(What::Kept(text.to_owned()));
    }
    match text.parse() {
        Ok(0) | Err(_) => Err("an iteration from 1 on, or the name of what an undo kept".to_owned()),
        Ok(n) => Ok(What::Iteration(Iteration(n))),
    }
}

pub fn run(args: &Args) -> Result<u8, Failure> {
    let found = crate::runs::Which::new(Some(args.run.clone()), args.state_dir.clone()).find()?;
    let kept = Kept::of(&found)?;
    let (node, to, title) = wanted(args, &found, &kept)?;
    let dir = kept.dir(&node)?;
    if let Some(command) = kept.lost_worktree(&dir, &node) {
        return Err(Failure::with_hint(
            format!("`{node}` worked in a worktree of its own, which is gone"),
            format!("`{command}` brings it back"),
        ));
    }
    refuse_if_at_work(&found, &dir)?;
    // Nobody may start the loop again meanwhile.
    let started = kept.started();
    let state_dir = StateDir::at(found.state_dir());
    let place = Place {
        work_dir: Path::new(&started.work_dir),
        loop_file: Path::new(&started.path),
        state_dir: &state_dir,
    };
    let _held = hold(place, &found.id)?;
    let keep_as = snapshot::undo_name(&found.id, &node, clock::now().wall);
    let undo = snapshot::Undo {
        work_dir: dir.clone(),
        to,
        keep_as,
        scratch: found.dir.join("undo"),
        state_dirs: vec![found.state_dir()],
        limits: snapshot::Limits::default(),
    };
    let prepared =
        snapshot::prepare(undo).map_err(|why| Failure::usage(format!("{}: {why}", dir.display())))?;
    if prepared.counts() == (0, 0) {
        let _ = prepared.give_up();
        return super::print(format!("{} is {title} already\n", dir.display()).as_bytes());
    }
    match if args.yes { Ok(true) } else { agreed(&prepared, &dir, &title) } {
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
    let tell = Tell { found: &found, node: &node, dir: &dir, title: &title, several: several(&kept) };
    tell.restore(prepared)
}

fn several(kept: &Kept) -> bool {
    kept.started().nodes.len() > 1
}

/// The node, the ref, and what the work tree will be, in words.
fn wanted(args: &Args, found: &FoundRun, kept: &Kept) -> Result<(NodeName, String, String), Failure> {
    match &args.what {
        What::Iteration(n) => {
            let node = kept.node(args.node.as_deref(), Some(*n))?;
            let name = kept.name(&kept.dir(&node)?, &node, kept.before(&node, *n)?)?;
            Ok((node, name, format!("as before iteration {n}")))
        }
        What::Kept(name) => {
            let node = kept.node(args.node.as_deref(), None)?;
            let whole = format!("{}{name}", snapshot::node_refs(&found.id, &node));
            match snapshot::commit_of(&kept.dir(&node)?, &whole) {
                Ok(Some(_)) => Ok((node, whole, "as it was before that undo".to_owned())),
                Ok(None) => Err(Failure::with_hint(
                    format!("there is no snapshot {whole}"),
                    format!("`git for-each-ref {}` lists those of this run", snapshot::run_refs(&found.id)),
                )),
                Err(why) => Err(Failure::usage(why)),
            }
        }
    }
}

/// Neither this run nor another may be at work in the tree.
fn refuse_if_at_work(found: &FoundRun, dir: &Path) -> Result<(), Failure> {
    if found.is_live() {
        return Err(Failure::with_hint(
            format!("run {} is alive, and its agent would work on while files change", found.id),
            format!("`dogwatch stop {}` ends it", found.tail()),
        ));
    }
    let tree = home::work_tree(dir);
    let same = |other: &FoundRun| {
        let status: Option<Status> = other.ask("/v1/status");
        status.and_then(|s| s.work_dir).is_some_and(|at| home::work_tree(Path::new(&at)) == tree)
    };
    match registered().find(|other| other.id != found.id && other.is_live() && same(other)) {
        Some(other) => Err(Failure::with_hint(
            format!("run {} is at work in this tree", other.id),
            format!("`dogwatch stop {}` ends it", other.tail()),
        )),
        None => Ok(()),
    }
}

/// Asks on a terminal; elsewhere nobody could answer.
fn agreed(prepared: &snapshot::Prepared, dir: &Path, title: &str) -> Result<bool, Failure> {
    if !(std::io::stdin().is_terminal() && std::io::stderr().is_terminal()) {
        return Err(Failure::with_hint(
            "nobody is there to be asked, so nothing was changed",
            "`--yes` does it without asking",
        ));
    }
    let (written, removed) = prepared.counts();
    let question = format!(
        "{}: {} to write, {} to remove, to make it {title}. What is there now is kept. Go on? [y/N] ",
        dir.display(),
        words::count(written as u64, "file"),
        words::count(removed as u64, "file"),
    );
    let _ = write!(std::io::stderr(), "{}", printable(&question)).and_then(|()| std::io::stderr().flush());
    let mut answer = String::new();
    let read = std::io::stdin().lock().read_line(&mut answer);
    Ok(read.is_ok() && matches!(answer.trim().to_ascii_lowercase().as_str(), "y" | "yes"))
}

struct Tell<'a> {
    found: &'a FoundRun,
    node: &'a NodeName,
    dir: &'a Path,
    title: &'a str,
    several: bool,
}

impl Tell<'_> {
    fn restore(&self, prepared: snapshot::Prepared) -> Result<u8, Failure> {
        let kept = prepared.kept.ref_name.clone();
        let (under_way, moved) = (prepared.under_way, prepared.moved_head.clone());
        let back = self.back(&kept);
        let restored = prepared.restore().map_err(|why| {
            Failure::with_hint(
                format!("{}: not all could be restored: {why}", self.dir.display()),
                format!("what was there is kept: `{back}` brings it back"),
            )
        })?;
        let mut text = String::new();
        let files = words::count(restored.written, "file");
        let removed = restored.removed;
        let _ =
            writeln!(text, "{} is {}: {files} written, {removed} removed", self.dir.display(), self.title);
        if restored.left > 0 {
            let _ = writeln!(text, "{} left alone:", words::count(restored.left, "file"));
            for left in &restored.named {
                let _ = writeln!(text, "  {}: {}", left.path, left.why);
            }
            if restored.left > restored.named.len() as u64 {
                let _ = writeln!(text, "  …");
            }
        }
        if let Some((then, now)) = moved {
            let _ = writeln!(
                text,
                "HEAD stays at {}: commits made since are still there (it was at {} then)",
                short(&now),
                short(&then)
            );
        }
        if let Some(what) = under_way {
            let _ = writeln!(text, "a {what} is under way in this work tree; it was left as it is");
        }
        let _ = writeln!(text, "what was there is kept in {kept}\n`{back}` brings it back");
        super::print(printable(&text).as_bytes())?;
        Ok(u8::from(restored.left > 0))
    }

    fn back(&self, kept: &str) -> String {
        let name = kept.rsplit('/').next().unwrap_or(kept);
        let node = if self.several { format!(" --node '{}'", self.node) } else { String::new() };
        format!("dogwatch undo {} {name}{node}", self.found.tail())
    }
}

fn short(commit: &str) -> &str {
    dogwatch_core::text::clip(commit, 10)
}
