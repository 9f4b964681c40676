//! `init --from`: reads the files of another tool and writes a loop file or a graph file. Nothing is written unless the
//! result is valid.

use super::{Agent, refuse, with_modeline, write_new};
use crate::error::CliError;
use crate::loading::LOOP_FILE;
use crate::schema::File;
use crate::screen::words;
use dogwatch_config::diagnostic::{Diagnostic, Severity, Source};
use dogwatch_config::import::{FileText, Import, Imported, SourceDir, Tool, Unreadable, import};
use dogwatch_config::limits::MAX_FILE_BYTES;
use dogwatch_config::{Flags, Format, Sources, load, load_graph};
use dogwatch_core::text::printable;
use dogwatch_host::store::safe_file;
use std::io::{ErrorKind, Read};
use std::path::{Path, PathBuf};

/// The most entries that are not mapped on the screen. The file lists all of them.
const MAX_SHOWN: usize = 10;

/// Converts the files at `source` and writes the result to `dir`.
pub fn run(source: &Path, dir: &Path, agent: Agent) -> Result<u8, CliError> {
    let (base, tool, file) = find(source, dir)?;
    let place = base.join(&file);
    let imported = import(&Import { tool, file: &file, dir: &Dir { base: &base }, agent: agent.command() })
        .map_err(CliError::Diagnostics)?;
    let path = dir.join(imported.file_name);
    if is_same(&path, &place) {
        return Err(CliError::with_help(
            format!(
                "{} needs no conversion: dogwatch runs the files of {} unchanged",
                path.display(),
                tool.name()
            ),
            format!("run it with `dogwatch run {}`", dir.display()),
        ));
    }
    let name = path.display().to_string();
    validate(&imported, &name)?;
    if path.exists() {
        return Err(refuse(&path, &ErrorKind::AlreadyExists.into()));
    }
    let kind = if Format::of(imported.file_name).is_some() { File::Graph } else { File::Loop };
    write_new(&path, &with_modeline(&imported.text, dir, kind)).map_err(|e| refuse(&path, &e))?;
    super::super::print_text(&said(&imported, tool, dir, &path))
}

/// Returns the directory, the tool and the file that identifies it. `dir` gets the result.
fn find(source: &Path, dir: &Path) -> Result<(PathBuf, Tool, String), CliError> {
    let meta = std::fs::metadata(source)
        .map_err(|e| CliError::usage(format!("cannot read {}: {e}", source.display())))?;
    if !meta.is_dir() {
        let name = source.file_name().unwrap_or_default().to_string_lossy().into_owned();
        let tool = Tool::of_file(&name).ok_or_else(|| unknown(source))?;
        let base = source.parent().unwrap_or(Path::new("")).to_owned();
        // The settings of ralph-claude-code are one level above its directory.
        if tool == Tool::ClaudeCode && base.file_name().is_some_and(|dir| dir == ".ralph") {
            let above = base.parent().unwrap_or(Path::new("")).to_owned();
            return Ok((above, tool, format!(".ralph/{name}")));
        }
        return Ok((base, tool, name));
    }
    let mut found = Tool::detect(&|file| source.join(file).is_file());
    // The loop file in the target is probably the result of an earlier `init`, not another source.
    let target = dir.join(LOOP_FILE);
    let is_target = |file: &str| file == LOOP_FILE && is_same(&source.join(file), &target);
    if found.len() == 2 && found.iter().any(|(_, file)| is_target(file)) {
        return Err(refuse(&target, &ErrorKind::AlreadyExists.into()));
    }
    match found.len() {
        1 => {
            let (tool, file) = found.remove(0);
            Ok((source.to_owned(), tool, file.to_owned()))
        }
        0 => Err(unknown(source)),
        _ => {
            let each =
                found.iter().map(|(tool, file)| format!("{} ({})", tool.name(), source.join(file).display()));
            Err(CliError::with_help(
                format!(
                    "{} holds files of several tools: {}",
                    source.display(),
                    each.collect::<Vec<_>>().join(", ")
                ),
                "pass the file of one tool to --from",
            ))
        }
    }
}

fn unknown(source: &Path) -> CliError {
    CliError::with_help(
        format!("found no files of another tool at {}", source.display()),
        "--from reads ralph.yml, PROMPT.md, .ralphrc, .ralph/, prd.json, WORKFLOW.md and RALPH.md",
    )
}

fn is_same(a: &Path, b: &Path) -> bool {
    a.canonicalize().is_ok_and(|a| b.canonicalize().is_ok_and(|b| a == b))
}

/// The directory with the other tool's files.
struct Dir<'a> {
    base: &'a Path,
}

impl SourceDir for Dir<'_> {
    fn read(&self, path: &str) -> Result<Option<FileText>, Unreadable> {
        let path = self.base.join(path);
        let path = path.strip_prefix(".").unwrap_or(&path);
        let name = path.display().to_string();
        let fail = |message: String| {
            Box::new(Diagnostic::new(Severity::Error, Source { name: &name, text: "" }, None, &message))
        };
        let bytes = match read(path) {
            Ok(bytes) => bytes,
            Err(e) if matches!(e.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory) => return Ok(None),
            Err(e) => return Err(fail(format!("cannot read the file: {e}"))),
        };
        if bytes.len() > MAX_FILE_BYTES {
            let mut diagnostic = fail(format!("the file is larger than {MAX_FILE_BYTES} bytes"));
            diagnostic.help(
                "a prompt of this size is too long for any agent; move parts of it into files that the agent reads",
            );
            return Err(diagnostic);
        }
        match String::from_utf8(bytes) {
            Ok(text) => Ok(Some(FileText { name, text })),
            Err(bad) => {
                let at = bad.utf8_error().valid_up_to();
                let text = String::from_utf8_lossy(bad.as_bytes()).into_owned();
                let source = Source { name: &name, text: &text };
                let message = "the file is not UTF-8 text";
                Err(Box::new(Diagnostic::new(Severity::Error, source, Some(at..at), message)))
            }
        }
    }
}

/// Reads a regular file, up to one byte more than is allowed.
fn read(path: &Path) -> std::io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    safe_file::read_named(path)?.take(MAX_FILE_BYTES as u64 + 1).read_to_end(&mut bytes)?;
    Ok(bytes)
}

/// Loads the result as `check` would, without looking at this machine.
fn validate(imported: &Imported, name: &str) -> Result<(), CliError> {
    let source = Source { name, text: &imported.text };
    let flags = Flags::default();
    let sources = Sources::of_file(source, &flags, &dogwatch_agents::detect);
    let loaded = match Format::of(imported.file_name) {
        Some(format) => load_graph(&sources, format, false),
        None => load(&sources, "loop"),
    };
    loaded.map(drop).map_err(CliError::Diagnostics)
}

fn said(imported: &Imported, tool: Tool, dir: &Path, path: &Path) -> String {
    let (mapped, left) = (words::count(imported.mapped as u64, "setting"), imported.left_out.len());
    let mut text = format!("wrote {} from {}: {mapped} mapped, {left} not\n", path.display(), tool.name());
    for entry in imported.left_out.iter().take(MAX_SHOWN) {
        text.push_str(&format!("  not mapped: {entry}\n"));
    }
    if left > MAX_SHOWN {
        text.push_str(&format!("  … and {} more; all are in the file\n", left - MAX_SHOWN));
    }
    let dir = dir.display();
    let placeholder = if imported.text.contains(super::PLACEHOLDER_SAYS) { super::PLACEHOLDER } else { "" };
    text.push_str(&format!(
        "Next steps:\n  \
           {placeholder}read the comments in the file, and name checks in `done_when`\n  \
           dogwatch check {dir} --explain    validate the file and show the effective settings\n  \
           dogwatch run {dir} -n 1           try one iteration\n",
    ));
    printable(&text).into_owned()
}
