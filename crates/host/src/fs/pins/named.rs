//! The files in the work tree that the words of a check name.
//!
//! A check is a shell command, and a shell has many ways to start a script: `sh verify.sh`, `cd . && ./verify.sh`,
//! `env X=1 ./verify.sh`, `$PWD/verify.sh`, `(./verify.sh)`. This module does not parse them. It tries every word, with
//! and without the characters that a shell treats specially, below every directory that the check names. A word that
//! is a directory names none of the files in it: they are usually the work of the agent.

use crate::store::home;
use dogwatch_config::words::words;
use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::os::unix::fs::PermissionsExt;
use std::path::{Component, Path, PathBuf};

/// The most words of a check that are tried, and the most directories that they are tried in. A longer check belongs
/// in a script, which is pinned as a file.
const MAX_WORDS: usize = 4096;
const MAX_DIRECTORIES: usize = 16;
/// The most directory entries that are compared with the patterns of a check.
const MAX_ENTRIES: usize = 65_536;
/// The most parts of the name of a Python module.
const MAX_MODULE_PARTS: usize = 16;

/// The characters that end a word in a shell, or that separate the parts of an option or a list.
const SEPARATORS: [char; 20] =
    [' ', '\t', '\n', ';', '|', '&', '(', ')', '<', '>', '`', '"', '\'', '=', ':', ',', '{', '}', '!', '\\'];

/// The programs that run a file which is not executable, and the endings of such files. A pattern in a check that calls
/// one of them also matches these files.
const SHELLS: [&str; 6] = ["sh", "bash", "dash", "ksh", "zsh", "source"];
const SCRIPTS: [&str; 4] = ["sh", "bash", "ksh", "zsh"];

/// Returns the files in the work tree that a check names, relative to the directory where it runs.
pub fn named_files(work_dir: &Path, check: &str) -> BTreeSet<PathBuf> {
    let root = home::work_tree(work_dir);
    let check = without_outputs(check);
    let mut candidates: BTreeSet<String> = words(&check).unwrap_or_default().into_iter().collect();
    candidates.extend(check.split(SEPARATORS).map(str::to_owned));
    candidates.extend(check.split_whitespace().map(str::to_owned));
    let calls = |wanted: &dyn Fn(&str) -> bool| {
        let name = |word: &String| word.rsplit('/').next().is_some_and(wanted);
        candidates.iter().any(name)
    };
    let runs_scripts = calls(&|name| SHELLS.contains(&name));
    let runs_modules = calls(&|name| name.starts_with("python")) && calls(&|name| name.starts_with("-m"));
    let spaced: Vec<&str> = check.split_whitespace().collect();
    let after_m: BTreeSet<&str> =
        spaced.windows(2).filter(|pair| pair[0] == "-m").map(|pair| pair[1]).collect();
    let here = work_dir.to_string_lossy();
    let home = std::env::var("HOME").unwrap_or_default();
    let mut paths: BTreeSet<PathBuf> = BTreeSet::new();
    for word in candidates.iter().filter(|word| !word.is_empty()).take(MAX_WORDS) {
        let word = expand(word, &here, &home);
        // The value of an option may follow its letter: `make -fverify.mk -Cci`.
        let glued =
            word.strip_prefix('-').and_then(|rest| rest.strip_prefix(|c: char| c.is_ascii_alphabetic()));
        for word in [Some(word.as_str()), glued].into_iter().flatten().filter(|word| !word.is_empty()) {
            if runs_modules {
                paths.extend(modules(word, after_m.contains(word)));
            }
            paths.insert(PathBuf::from(word));
        }
        if let Some(rest) = after_substitution(&word) {
            paths.extend([PathBuf::from(rest), root.join(rest)]);
        }
        paths.extend(with_wildcards(&word).map(PathBuf::from));
    }
    let within = |base: &Path, path: &PathBuf| plain(&base.join(path)).filter(|p| p.starts_with(&root));
    // A check may enter one directory after the other.
    let mut bases = vec![work_dir.to_owned()];
    let mut next = 0;
    while let Some(base) = bases.get(next).cloned() {
        let dirs = paths.iter().filter_map(|path| within(&base, path)).filter(|path| path.is_dir());
        for dir in dirs {
            if bases.len() <= MAX_DIRECTORIES && !bases.contains(&dir) {
                bases.push(dir);
            }
        }
        next += 1;
    }
    let (mut files, mut entries) = (BTreeSet::new(), MAX_ENTRIES);
    for path in bases.iter().flat_map(|base| paths.iter().filter_map(|path| within(base, path))) {
        let found = if is_pinnable(&path) { vec![path] } else { matching(&path, runs_scripts, &mut entries) };
        files.extend(found.iter().filter_map(|path| relative(work_dir, path)));
    }
    files
}

/// Removes the files that a check writes: what follows `>` and `| tee`. A file that the check itself changes cannot be
/// pinned.
fn without_outputs(check: &str) -> String {
    let check = check.replace("| tee -a ", "> ").replace("| tee ", "> ").replace("|tee ", "> ");
    let mut parts = check.split('>');
    let mut rest = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        let part = part.trim_start_matches(['|', '&']).trim_start_matches([' ', '\t']);
        let end = match part.chars().next() {
            Some(quote @ ('"' | '\'')) => part[1..].find(quote).map_or(part.len(), |at| at + 2),
            Some(_) | None => part.find(SEPARATORS).unwrap_or(part.len()),
        };
        rest.push('>');
        rest.push_str(&part[end..]);
    }
    rest
}

/// Returns what follows a variable or a substitution in a path: `verify.sh` of `$D/verify.sh`. After a split at
/// parentheses or backticks, only the slash is left of `$(pwd)/verify.sh`.
fn after_substitution(word: &str) -> Option<&str> {
    let rest = match word.rfind('$') {
        Some(at) => word[at..].split_once('/')?.1,
        None => word.strip_prefix('/')?,
    };
    Some(rest.trim_start_matches('/')).filter(|rest| !rest.is_empty())
}

/// Returns a word with a wildcard in place of each variable: `tests/*` for `tests/$f`. A word whose first directory is a
/// variable could match anything, so it names nothing.
fn with_wildcards(word: &str) -> Option<String> {
    let mut parts = word.split('$');
    let mut pattern = parts.next().filter(|first| first.len() < word.len())?.to_owned();
    for part in parts {
        pattern.push('*');
        pattern.push_str(part.trim_start_matches(|c: char| c.is_ascii_alphanumeric() || c == '_'));
    }
    let first = pattern.split('/').find(|part| !matches!(*part, "" | "." | ".."))?;
    first.contains(char::is_alphanumeric).then_some(pattern)
}

/// Returns the files that `python -m` may load for a word: `tests/run.py` for `tests.run` and for `tests.run.Case`. A name
/// without a dot may be a package that is only an argument, so it counts only where a module is expected.
fn modules(word: &str, is_expected: bool) -> Vec<PathBuf> {
    let parts: Vec<&str> = word.split('.').take(MAX_MODULE_PARTS).collect();
    let is_name =
        |part: &&str| !part.is_empty() && part.chars().all(|c| c.is_ascii_alphanumeric() || c == '_');
    let fewest = if is_expected { 1 } else { 2 };
    if !parts.iter().all(is_name) {
        return Vec::new();
    }
    let files = |path: String| [format!("{path}.py"), format!("{path}/__main__.py")].map(PathBuf::from);
    (fewest..=parts.len()).flat_map(|count| files(parts[..count].join("/"))).collect()
}

fn is_pattern(part: &OsStr) -> bool {
    part.as_encoded_bytes().iter().any(|byte| matches!(byte, b'*' | b'?' | b'['))
}

/// Returns the files that a pattern such as `./ci/*/verify.sh` or `./verify-*.sh` matches. If the name of the file is a
/// pattern, only programs count. Other files are usually the work of the agent, as in `rustfmt --check src/*.rs`.
fn matching(pattern: &Path, runs_scripts: bool, entries: &mut usize) -> Vec<PathBuf> {
    let parts: Vec<&OsStr> = pattern.iter().collect();
    let Some(first) = parts.iter().position(|part| is_pattern(part)) else { return Vec::new() };
    let mut found: Vec<PathBuf> = vec![parts[..first].iter().collect()];
    for part in &parts[first..] {
        if !is_pattern(part) {
            found.iter_mut().for_each(|path| path.push(part));
            continue;
        }
        let glob = part.to_str().and_then(|part| globset::Glob::new(part).ok());
        let Some(glob) = glob.map(|glob| glob.compile_matcher()) else { return Vec::new() };
        let mut matched = Vec::new();
        for dir in &found {
            for entry in std::fs::read_dir(dir).into_iter().flatten().flatten() {
                let Some(left) = entries.checked_sub(1) else { return Vec::new() };
                *entries = left;
                let name = entry.file_name();
                let hidden =
                    name.as_encoded_bytes().starts_with(b".") && !part.as_encoded_bytes().starts_with(b".");
                if !hidden && glob.is_match(&name) {
                    matched.push(entry.path());
                }
            }
        }
        found = matched;
    }
    let is_program = |path: &PathBuf| {
        let ending = path.extension().and_then(OsStr::to_str);
        let is_script = runs_scripts && ending.is_some_and(|ending| SCRIPTS.contains(&ending));
        path.metadata()
            .is_ok_and(|meta| meta.is_file() && (is_script || meta.permissions().mode() & 0o111 != 0))
    };
    let is_any = parts.last().is_some_and(|name| is_pattern(name));
    found.retain(|path| if is_any { is_program(path) } else { is_pinnable(path) });
    found
}

/// Returns a path relative to the directory where checks run, which is in the same work tree.
fn relative(work_dir: &Path, path: &Path) -> Option<PathBuf> {
    let (up, shared) = work_dir.ancestors().enumerate().find(|(_, dir)| path.starts_with(dir))?;
    let below = path.strip_prefix(shared).ok()?;
    Some(std::iter::repeat_n(Path::new(".."), up).chain([below]).collect())
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
        std::fs::create_dir_all(dir.path().join("ci/er")).expect("a directory");
        for name in ["verify.sh", "ci/deep.sh", "ci/er/deepest.sh", "ci/run.py", "bin it", "log"] {
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
            ("make -fverify.sh", "verify.sh"),
            ("make -Cci -fdeep.sh", "ci/deep.sh"),
            ("cd ci && cd er && ./deepest.sh", "ci/er/deepest.sh"),
            ("`pwd`/verify.sh", "verify.sh"),
            ("\"$(git rev-parse --show-toplevel)/verify.sh\"", "verify.sh"),
            ("D=ci; $D/deep.sh", "ci/deep.sh"),
            ("D=ci/er; sh \"${D}/deepest.sh\"", "ci/er/deepest.sh"),
            ("sh c*/*/deepest.sh", "ci/er/deepest.sh"),
            ("for t in ci/*.sh; do sh $t || exit 1; done", "ci/deep.sh"),
            ("ls ci | while read f; do sh ci/$f || exit 1; done", "ci/deep.sh"),
            ("V=verify; sh $V.sh", "verify.sh"),
            ("python3 -m ci.run", "ci/run.py"),
            ("cd ci && python3 -m run", "ci/run.py"),
            ("python3 -m unittest ci.run.Case.test", "ci/run.py"),
            ("sh verify.sh >log", "verify.sh"),
            ("'bin it'", "bin it"),
            ("./link.sh", "link.sh"),
            (&absolute, "verify.sh"),
        ] {
            let found = named_files(dir.path(), check);
            assert!(found.contains(Path::new(file)), "{check}: {found:?}");
        }
        // From a directory below the work tree's top.
        std::fs::create_dir(dir.path().join(".git")).expect("a directory");
        for (check, file) in [
            ("sh ../verify.sh", "../verify.sh"),
            ("cd .. && ./verify.sh", "../verify.sh"),
            ("\"$(git rev-parse --show-toplevel)/verify.sh\"", "../verify.sh"),
            ("sh $ROOT/ci/deep.sh", "deep.sh"),
        ] {
            let found = named_files(&dir.path().join("ci"), check);
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
        for other in [
            "cargo test",
            "/bin/true",
            "./gone.sh",
            "../x/y",
            "ci/",
            "\"unclosed",
            "",
            "A=1",
            "pytest ci",
            "python3 -m pytest ci",
            "ls >log 2>&1",
            "ls | tee -a log",
            "sh -c \"ls >log\" >'log'",
            "test \"$A\" = $B/$C",
            "ls */*",
            "make -f $D/deep.sh",
        ] {
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
        // A shell runs scripts that are not executable, and a linter does not.
        std::fs::write(dir.path().join("plain.sh"), "exit 1").expect("a file");
        assert_eq!(found("sh pl*"), [Path::new("plain.sh")]);
        assert!(found("shellcheck pl*.sh").is_empty());
    }
}
