//! The files in the work tree that the words of a check name.
//!
//! A check is a shell command, and a shell has many ways to start a script: `sh verify.sh`, `cd . && ./verify.sh`,
//! `env X=1 ./verify.sh`, `$PWD/verify.sh`, `(./verify.sh)`. This module does not parse them. It tries every word, with
//! and without the characters that a shell treats specially, below every directory that the check names.

use dogwatch_config::words::words;
use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::os::unix::fs::PermissionsExt;
use std::path::{Component, Path, PathBuf};

/// The most words of a check that are tried, and the most directories that they are tried in. A longer check belongs
/// in a script, which is pinned as a file.
const MAX_WORDS: usize = 4096;
const MAX_DIRECTORIES: usize = 16;
/// The most entries of a directory that are compared with a pattern.
const MAX_ENTRIES: usize = 4096;

/// The characters that end a word in a shell, or that separate the parts of an option or a list.
const SEPARATORS: [char; 20] =
    [' ', '\t', '\n', ';', '|', '&', '(', ')', '<', '>', '`', '"', '\'', '=', ':', ',', '{', '}', '!', '\\'];

/// Returns the files that a check names, relative to the work tree.
pub fn named_files(work_dir: &Path, check: &str) -> BTreeSet<PathBuf> {
    let mut candidates: BTreeSet<String> = words(check).unwrap_or_default().into_iter().collect();
    candidates.extend(check.split(SEPARATORS).map(str::to_owned));
    candidates.extend(check.split_whitespace().map(str::to_owned));
    let here = work_dir.to_string_lossy();
    let home = std::env::var("HOME").unwrap_or_default();
    let paths: Vec<PathBuf> = candidates
        .iter()
        .filter(|word| !word.is_empty())
        .take(MAX_WORDS)
        .map(|word| PathBuf::from(expand(word, &here, &home)))
        .collect();
    let named = |base: &Path, path: &PathBuf| plain(&base.join(path)).filter(|p| p.starts_with(work_dir));
    let mut bases = vec![work_dir.to_owned()];
    bases.extend(
        paths.iter().filter_map(|path| named(work_dir, path)).filter(|p| p.is_dir()).take(MAX_DIRECTORIES),
    );
    let mut files = BTreeSet::new();
    for base in &bases {
        let found = paths.iter().filter_map(|path| named(base, path)).filter(|path| is_pinnable(path));
        let matched = paths.iter().filter_map(|path| named(base, path)).flat_map(|path| programs(&path));
        let all = found.chain(matched);
        files.extend(all.filter_map(|path| path.strip_prefix(work_dir).ok().map(Path::to_owned)));
    }
    files
}

/// Returns the programs that a pattern such as `./verify-*.sh` matches. Other files that a pattern matches are usually the
/// work of the agent, as in `rustfmt --check src/*.rs`.
fn programs(pattern: &Path) -> Vec<PathBuf> {
    let (Some(dir), Some(name)) = (pattern.parent(), pattern.file_name().and_then(OsStr::to_str)) else {
        return Vec::new();
    };
    if !name.contains(['*', '?', '[']) {
        return Vec::new();
    }
    let Ok(glob) = globset::Glob::new(name).map(|glob| glob.compile_matcher()) else { return Vec::new() };
    let Ok(entries) = std::fs::read_dir(dir) else { return Vec::new() };
    let entries = entries.take(MAX_ENTRIES).flatten().filter(|entry| glob.is_match(entry.file_name()));
    let is_program = |path: &PathBuf| {
        path.metadata().is_ok_and(|facts| facts.is_file() && facts.permissions().mode() & 0o111 != 0)
    };
    entries.map(|entry| entry.path()).filter(is_program).collect()
}

/// Replaces the ways in which a shell names the current directory and the home directory.
fn expand(word: &str, work_dir: &str, home: &str) -> String {
    if let Some(rest) = ["~/", "$HOME/", "${HOME}/"].iter().find_map(|prefix| word.strip_prefix(prefix)) {
        return format!("{home}/{rest}");
    }
    let word = word.trim_start_matches('$').strip_prefix("(pwd)").map_or_else(
        || word.replace("${PWD}", work_dir).replace("$PWD", work_dir),
        |rest| format!("{work_dir}{rest}"),
    );
    // After a split at braces, `${PWD}/x` leaves `/x`, and `$(pwd)/x` leaves it too.
    word.strip_prefix("PWD/").map(str::to_owned).unwrap_or(word)
}

/// Returns whether a path is a file or a link. A link counts even if it is dangling.
fn is_pinnable(path: &Path) -> bool {
    path.symlink_metadata().is_ok_and(|meta| meta.is_file() || meta.is_symlink())
}

/// Removes `.` and `..` lexically. Returns `None` if the path leads above the root.
fn plain(path: &Path) -> Option<PathBuf> {
    let mut out = PathBuf::new();
    for part in path.components() {
        match part {
            Component::CurDir => {}
            Component::ParentDir if !out.pop() => return None,
            Component::ParentDir => {}
            Component::RootDir | Component::Normal(_) | Component::Prefix(_) => out.push(part),
        }
    }
    Some(out)
}

#[cfg(test)]
mod tests {
    use super::*;

    // promise: 13
    #[test]
    fn every_way_to_name_a_script_is_found() {
        let dir = tempfile::tempdir().expect("a directory");
        std::fs::create_dir(dir.path().join("ci")).expect("a directory");
        for name in ["verify.sh", "ci/deep.sh", "bin it"] {
            std::fs::write(dir.path().join(name), "exit 1").expect("a file");
        }
        std::os::unix::fs::symlink("verify.sh", dir.path().join("link.sh")).expect("a link");
        let absolute = format!("{}/verify.sh", dir.path().display());
        for (check, file) in [
            ("sh ./verify.sh", "verify.sh"),
            ("bash verify.sh", "verify.sh"),
            ("cd . && ./verify.sh", "verify.sh"),
            ("env X=1 ./verify.sh", "verify.sh"),
            ("timeout 5 ./verify.sh", "verify.sh"),
            ("$PWD/verify.sh", "verify.sh"),
            ("\"${PWD}/verify.sh\"", "verify.sh"),
            ("(./verify.sh)", "verify.sh"),
            ("test -z \"$(./verify.sh)\"", "verify.sh"),
            ("set -e;./verify.sh;true", "verify.sh"),
            ("sh <verify.sh", "verify.sh"),
            ("make --file=verify.sh", "verify.sh"),
            ("sh -c 'cd ci && ./deep.sh'", "ci/deep.sh"),
            ("cd ci && sh deep.sh", "ci/deep.sh"),
            ("make -C ci -f deep.sh", "ci/deep.sh"),
            ("'bin it'", "bin it"),
            ("./link.sh", "link.sh"),
            (&absolute, "verify.sh"),
        ] {
            let found = named_files(dir.path(), check);
            assert!(found.contains(Path::new(file)), "{check}: {found:?}");
        }
        let home = dir.path().display().to_string();
        for word in ["~/verify.sh", "$HOME/verify.sh", "${HOME}/verify.sh"] {
            assert_eq!(
                PathBuf::from(expand(word, "/elsewhere", &home)),
                dir.path().join("verify.sh"),
                "{word}"
            );
        }
        for other in ["cargo test", "/bin/true", "./gone.sh", "../x/y", "ci/", "\"unclosed", "", "A=1"] {
            assert_eq!(named_files(dir.path(), other), BTreeSet::new(), "{other}");
        }
    }

    // promise: 13
    #[test]
    fn a_pattern_names_the_programs_that_it_matches_and_no_other_files() {
        let dir = tempfile::tempdir().expect("a directory");
        for (name, mode) in [("verify.sh", 0o755), ("verify.txt", 0o644), ("other.sh", 0o755)] {
            std::fs::write(dir.path().join(name), "exit 1").expect("a file");
            let mode = std::fs::Permissions::from_mode(mode);
            std::fs::set_permissions(dir.path().join(name), mode).expect("sets");
        }
        let found = |check: &str| named_files(dir.path(), check).into_iter().collect::<Vec<_>>();
        for check in ["./ver*.sh", "sh ver*", "./v[e]rify.s?", "$PWD/verif*"] {
            assert_eq!(found(check), [Path::new("verify.sh")], "{check}");
        }
        assert!(found("grep -q x *.txt").is_empty());
    }
}
