use crate::error::CliError;
use crate::schema::File;
use dogwatch_host::store::home::{STATE_DIR, StateDir};
use dogwatch_host::store::safe_file;
use std::io::Write;
use std::path::{Path, PathBuf};

/// Print the JSON schema of a file, for editors
///
/// An editor with a language server for YAML or TOML completes and checks files with it. --write puts all schemas into
/// .dogwatch/schema of this directory. The first comment of a file written by `dogwatch init` refers to them.
#[derive(clap::Args)]
#[command(after_help = "Examples:
  dogwatch schema loop       print the schema of a RALPH.md's frontmatter
  dogwatch schema --write    write all schemas to .dogwatch/schema")]
pub struct Args {
    /// Kind of file
    #[arg(value_enum, default_value = "loop")]
    file: File,
    /// Write all schemas to .dogwatch/schema instead
    #[arg(long)]
    write: bool,
}

/// The directory of the schemas in the state directory.
const DIR: &str = "schema";

/// Runs `dogwatch schema` and returns the exit code.
pub fn run(args: &Args) -> Result<u8, CliError> {
    if !args.write {
        return super::print_json(&args.file.schema());
    }
    let dir = write()
        .map_err(|e| CliError::usage(format!("cannot write the schemas to {STATE_DIR}/{DIR}: {e}")))?;
    let names = File::ALL.map(|file| dir.join(file.file_name()).display().to_string());
    super::print(format!("wrote {}\n", names.join(", ")))
}

/// Writes all schemas to the state directory of the current directory, and returns the directory.
pub fn write() -> std::io::Result<PathBuf> {
    StateDir::at(PathBuf::from(STATE_DIR)).make()?;
    let dir = Path::new(STATE_DIR).join(DIR);
    std::fs::create_dir_all(&dir)?;
    for file in File::ALL {
        let mut text = serde_json::to_vec_pretty(&file.schema())?;
        text.push(b'\n');
        safe_file::create(&dir.join(file.file_name()), safe_file::PLAIN)?.write_all(&text)?;
    }
    Ok(dir)
}

/// Returns the comment with which a file in `dir` names its schema, after making `dir` and writing the schemas. None if `dir`
/// is not below the current directory, or the schemas cannot be written: `init` works without them.
pub fn modeline(dir: &Path, file: File) -> Option<String> {
    std::fs::create_dir_all(dir).ok()?;
    let (dir, here) = (dir.canonicalize().ok()?, std::env::current_dir().ok()?);
    let up = "../".repeat(dir.strip_prefix(here).ok()?.components().count());
    let schemas = write().ok()?;
    Some(format!("# yaml-language-server: $schema={up}{}\n", schemas.join(file.file_name()).display()))
}
