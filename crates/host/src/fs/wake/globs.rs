//! Wake paths: globs over absolute paths, matched component by component. This shows which directories may contain
//! a match and which need no watch.
//!
//! `*`, `?`, `[…]` and `{a,b}` stay within one component, `**` matches any number of directories. A path without
//! any of these, or with a trailing slash, also matches everything below it.

use std::ffi::{OsStr, OsString};
use std::fmt;
use std::path::{Component, Path, PathBuf};

use globset::{GlobBuilder, GlobMatcher};

/// The most wake paths that are accepted, because each is matched against every change.
pub const MAX_GLOBS: usize = 1_000;
/// The longest wake path, equal to the longest path.
pub const MAX_GLOB_BYTES: usize = 4_096;

/// A wake path that cannot be used.
#[derive(Debug, thiserror::Error)]
#[error("wake path `{glob}`: {why}")]
pub struct GlobError {
    glob: String,
    why: String,
}

impl GlobError {
    /// Returns the wake path as written, and the reason why it is invalid.
    pub fn parts(&self) -> (&str, &str) {
        (&self.glob, &self.why)
    }
}

#[derive(Debug)]
pub(super) struct Glob {
    parts: Vec<Part>,
    /// The components before the first wildcard.
    pub(super) fixed: PathBuf,
    /// No component has a wildcard: the user named a file or a directory.
    pub(super) literal: bool,
    below: bool,
    /// The glob names something that is ignored, so the user wants it: ignore rules do not apply to this glob.
    pub(super) means_ignored: bool,
}

enum Part {
    Fixed(OsString),
    One(GlobMatcher),
    AnyDepth,
}

impl fmt::Debug for Part {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Part::Fixed(name) => write!(f, "{}", name.display()),
            Part::One(glob) => write!(f, "{}", glob.glob()),
            Part::AnyDepth => f.write_str("**"),
        }
    }
}

impl Part {
    fn takes(&self, name: &OsStr) -> bool {
        match self {
            Part::Fixed(fixed) => fixed == name,
            Part::One(glob) => glob.is_match(name),
            Part::AnyDepth => true,
        }
    }
}

impl Glob {
    pub(super) fn matches(&self, path: &[&OsStr]) -> bool {
        // The usual matching with stars, over components instead of characters: backtrack to the last `**`.
        let (mut part, mut at) = (0, 0);
        let mut star: Option<(usize, usize)> = None;
        loop {
            match self.parts.get(part) {
                Some(Part::AnyDepth) if part + 1 == self.parts.len() => return at < path.len(),
                Some(Part::AnyDepth) => {
                    star = Some((part + 1, at));
                    part += 1;
                    continue;
                }
                Some(one) if path.get(at).is_some_and(|name| one.takes(name)) => {
                    (part, at) = (part + 1, at + 1);
                    continue;
                }
                None if at == path.len() || self.below => return true,
                Some(_) | None => {}
            }
            match &mut star {
                Some((after, from)) if *from < path.len() => {
                    *from += 1;
                    (part, at) = (*after, *from);
                }
                Some(_) | None => return false,
            }
        }
    }

    /// Returns whether something below this directory can match.
    pub(super) fn may_hold(&self, dir: &[&OsStr]) -> bool {
        for (at, name) in dir.iter().enumerate() {
            match self.parts.get(at) {
                None => return self.below,
                Some(Part::AnyDepth) => return true,
                Some(one) if one.takes(name) => {}
                Some(_) => return false,
            }
        }
        dir.len() < self.parts.len() || self.below
    }
}

/// Returns the normal components of an absolute path.
pub(super) fn parts_of(path: &Path) -> Vec<&OsStr> {
    path.components()
        .filter_map(|component| match component {
            Component::Normal(name) => Some(name),
            Component::RootDir | Component::Prefix(_) | Component::CurDir | Component::ParentDir => None,
        })
        .collect()
}

pub(super) fn parse_all(root: &Path, globs: &[String]) -> Result<Vec<Glob>, GlobError> {
    if globs.len() > MAX_GLOBS {
        let glob = globs[MAX_GLOBS].clone();
        return Err(GlobError { glob, why: format!("more than {MAX_GLOBS} wake paths") });
    }
    globs.iter().map(|glob| parse(root, glob)).collect()
}

fn parse(root: &Path, glob: &str) -> Result<Glob, GlobError> {
    read(root, glob).map_err(|why| GlobError { glob: glob.to_owned(), why })
}

fn read(root: &Path, glob: &str) -> Result<Glob, String> {
    if let Some(why) = refused(glob) {
        return Err(why);
    }
    let mut parts: Vec<Part> = Vec::new();
    if !glob.starts_with('/') {
        parts.extend(parts_of(root).into_iter().map(|name| Part::Fixed(name.to_owned())));
    }
    for text in glob.split('/') {
        match text {
            "" | "." => {}
            ".." => match parts.pop() {
                Some(Part::Fixed(_)) => {}
                Some(Part::One(_) | Part::AnyDepth) => return Err("`..` after a wildcard".to_owned()),
                None => return Err("`..` leads above the root directory".to_owned()),
            },
            "**" if matches!(parts.last(), Some(Part::AnyDepth)) => {}
            "**" => parts.push(Part::AnyDepth),
            text => parts.push(part(text)?),
        }
    }
    let fixed_names = parts.iter().map_while(|part| match part {
        Part::Fixed(name) => Some(name),
        Part::One(_) | Part::AnyDepth => None,
    });
    let mut fixed = PathBuf::from("/");
    fixed.extend(fixed_names);
    let literal = parts.iter().all(|part| matches!(part, Part::Fixed(_)));
    Ok(Glob { below: literal || glob.ends_with('/'), literal, parts, fixed, means_ignored: false })
}

fn refused(glob: &str) -> Option<String> {
    let why = match glob {
        "" => "empty",
        _ if glob.len() > MAX_GLOB_BYTES => return Some(format!("longer than {MAX_GLOB_BYTES} bytes")),
        _ if glob.contains('\0') => "contains a NUL character",
        _ if glob.starts_with('!') => "a leading `!` is not supported (write `[!]…` for a file of that name)",
        _ if slash_in_braces(glob) => "a `/` inside `{…}`; write two wake paths",
        _ => return None,
    };
    Some(why.to_owned())
}

fn slash_in_braces(glob: &str) -> bool {
    let mut depth = 0_u32;
    glob.chars().any(|c| {
        match c {
            '{' => depth += 1,
            '}' => depth = depth.saturating_sub(1),
            _ => {}
        }
        c == '/' && depth > 0
    })
}

fn part(text: &str) -> Result<Part, String> {
    if !text.contains(['*', '?', '[', '{', '\\', '}']) {
        return Ok(Part::Fixed(text.into()));
    }
    let glob = GlobBuilder::new(text).literal_separator(true).backslash_escape(true).build();
    glob.map(|glob| Part::One(glob.compile_matcher())).map_err(|error| error.kind().to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn glob(text: &str) -> Glob {
        parse(Path::new("/w"), text).expect("a good glob")
    }

    #[test]
    fn a_glob_matches_the_documented_paths() {
        // glob, path, matches
        let table = [
            ("inbox/**/*.md", "/w/inbox/a.md", true),
            ("inbox/**/*.md", "/w/inbox/x/y/a.md", true),
            ("inbox/**/*.md", "/w/inbox/a.txt", false),
            ("inbox/**/*.md", "/w/other/inbox/a.md", false),
            ("inbox/*.md", "/w/inbox/x/a.md", false),
            ("inbox/**", "/w/inbox/x/a", true),
            ("inbox/**", "/w/inbox", false),
            ("**", "/w/a/b", true),
            ("**/a/**/b/*.md", "/w/a/x/a/b/b/c.md", true),
            ("**/a/**/b/*.md", "/w/a/x/a/b/b/c.txt", false),
            ("TODO.md", "/w/TODO.md", true),
            ("TODO.md", "/w/x/TODO.md", false),
            ("./TODO.md", "/w/TODO.md", true),
            ("specs/", "/w/specs/a/b", true),
            ("specs", "/w/specs/a", true),
            ("specs", "/w/specs2/a", false),
            ("s*/", "/w/specs/deep/er", true),
            ("s*", "/w/specs/deep", false),
            ("{a,b}/?.[ch]", "/w/b/x.c", true),
            ("{a,b}/?.[ch]", "/w/c/x.c", false),
            ("\\*.md", "/w/*.md", true),
            ("\\*.md", "/w/a.md", false),
            ("*", "/w/.hidden", true),
            ("/tmp/in/*.md", "/tmp/in/a.md", true),
            ("/tmp/in/*.md", "/w/tmp/in/a.md", false),
            ("../next/*.md", "/next/a.md", true),
            ("a//b", "/w/a/b", true),
        ];
        for (text, path, expected) in table {
            assert_eq!(glob(text).matches(&parts_of(Path::new(path))), expected, "{text} on {path}");
        }
    }

    #[test]
    fn only_directories_that_may_contain_a_match_are_entered() {
        let table = [
            ("inbox/**/*.md", "/", true),
            ("inbox/**/*.md", "/w", true),
            ("inbox/**/*.md", "/w/inbox", true),
            ("inbox/**/*.md", "/w/inbox/a/b", true),
            ("inbox/**/*.md", "/w/src", false),
            ("inbox/*.md", "/w/inbox/a", false),
            ("TODO.md", "/w", true),
            ("TODO.md", "/w/src", false),
            ("specs/", "/w/specs/a/b", true),
            ("*/x/*.md", "/w/a/x", true),
            ("*/x/*.md", "/w/a/y", false),
        ];
        for (text, dir, expected) in table {
            assert_eq!(glob(text).may_hold(&parts_of(Path::new(dir))), expected, "{text} on {dir}");
        }
    }

    #[test]
    fn a_bad_glob_is_named_with_the_reason() {
        for bad in ["", "a[", "a/{b", "!a", "{a/b,c}", "*/../x", "/..", "a\0b"] {
            let error = parse(Path::new("/w"), bad).expect_err("bad").to_string();
            assert!(error.starts_with(&format!("wake path `{bad}`: ")), "{error}");
        }
    }

    #[test]
    fn number_and_length_of_wake_paths_are_limited() {
        let root = Path::new("/w");
        let many = |n: usize| parse_all(root, &vec!["a".to_owned(); n]);
        assert!(many(MAX_GLOBS).is_ok() && many(MAX_GLOBS + 1).is_err());
        let long = |n: usize| parse(root, &"a".repeat(n));
        assert!(long(MAX_GLOB_BYTES).is_ok() && long(MAX_GLOB_BYTES + 1).is_err());
    }

    #[test]
    fn a_glob_of_many_stars_is_matched_quickly() {
        let text = "**/a/".repeat(200) + "b";
        let path = "/w".to_owned() + &"/a".repeat(1_000);
        assert!(!glob(&text).matches(&parts_of(Path::new(&path))));
    }
}
