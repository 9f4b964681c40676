//! Parts of dogwatch that run as jobs: the request is one argument, the result is one line of JSON.

use crate::git::snapshot::names;
use serde::Serialize;
use serde::de::DeserializeOwned;
use std::ffi::OsString;
use std::io::Write;

/// The program of a job that is a part of dogwatch. The keeper runs it in a fork of itself.
pub const PROGRAM: &str = "/proc/self/exe";

/// Returns the command line of such a job.
pub fn command(role: &str, request: &impl Serialize) -> Vec<String> {
    let request = serde_json::to_string(request).expect("strings and numbers always serialize");
    vec![PROGRAM.to_owned(), role.to_owned(), request]
}

/// Parses the arguments of [`command`], without the first two.
pub fn parse<T: DeserializeOwned>(mut args: impl Iterator<Item = OsString>) -> Option<T> {
    let request = args.next()?;
    if args.next().is_some() {
        return None;
    }
    serde_json::from_str(request.to_str()?).ok()
}

/// Parses the output of such a job. A job that printed no result has failed.
pub fn read<T: DeserializeOwned>(stdout: &[u8], name: &str, failed: impl FnOnce(String) -> T) -> T {
    serde_json::from_slice(stdout).unwrap_or_else(|_| failed(format!("the {name} process printed no result")))
}

/// Prints the result and returns the exit code.
pub fn answer(outcome: &impl Serialize, good: bool) -> u8 {
    let mut line = serde_json::to_vec(outcome).expect("strings and numbers always serialize");
    line.push(b'\n');
    match std::io::stdout().write_all(&line) {
        Ok(()) if good => 0,
        Ok(()) | Err(_) => 1,
    }
}

/// Paths as text: JSON cannot express the bytes that are not UTF-8.
pub mod path {
    use super::names;
    use serde::{Deserialize, Deserializer, Serializer, de};
    use std::os::unix::ffi::OsStrExt;
    use std::path::{Path, PathBuf};

    pub fn serialize<S: Serializer>(path: &Path, out: S) -> Result<S::Ok, S::Error> {
        out.serialize_str(&names::escape(path.as_os_str().as_bytes()))
    }

    pub fn deserialize<'de, D: Deserializer<'de>>(input: D) -> Result<PathBuf, D::Error> {
        let text = String::deserialize(input)?;
        names::unescape_path(&text).ok_or_else(|| de::Error::custom("not an escaped path"))
    }
}

/// Lists of paths, each as in [`path`].
pub mod paths {
    use serde::{Deserialize, Deserializer, Serialize, Serializer};
    use std::path::PathBuf;

    #[derive(Serialize, Deserialize)]
    struct One(#[serde(with = "super::path")] PathBuf);

    pub fn serialize<S: Serializer>(paths: &[PathBuf], out: S) -> Result<S::Ok, S::Error> {
        out.collect_seq(paths.iter().cloned().map(One))
    }

    pub fn deserialize<'de, D: Deserializer<'de>>(input: D) -> Result<Vec<PathBuf>, D::Error> {
        Ok(Vec::<One>::deserialize(input)?.into_iter().map(|one| one.0).collect())
    }
}
