//! Overlap of globs: two nodes may touch the same file if some path matches a glob of each.
//!
//! No file is examined, because a node may also create files. `*` and `?` stop at a slash, `**` does not; `[…]` and
//! `{a,b}` have the same meaning as in a shell; a directory includes everything below it.

use std::collections::BTreeSet;

/// The longest glob that is parsed. A longer glob is assumed to overlap with every other, which can delay nodes but is
/// always correct.
pub const MAX_GLOB_BYTES: usize = 1024;
/// The most alternatives of a glob. A glob with more is assumed to overlap with every other.
pub const MAX_ALTERNATIVES: usize = 64;

/// The files that a node declares to touch.
#[derive(Clone, Debug, Default)]
pub struct Touches {
    /// The globs as written, to find equal ones quickly.
    texts: Vec<String>,
    globs: Vec<Option<Vec<Token>>>,
}

#[derive(Clone, Debug, PartialEq)]
enum Token {
    One(char),
    /// Any one character except a slash.
    Any,
    /// `[…]`: one character inside the ranges, or outside if negated.
    Class {
        ranges: Vec<(char, char)>,
        negated: bool,
    },
    /// Any number of characters except slashes.
    Star,
    /// Any number of characters.
    Stars,
}

impl Touches {
    /// Parses the globs of a node.
    pub fn new(globs: &[String]) -> Touches {
        let texts: Vec<String> = globs.iter().map(|g| normal(g).to_owned()).collect();
        let globs = texts.iter().flat_map(|text| parse_all(text)).collect();
        Touches { texts, globs }
    }

    /// Returns whether the node declares no files.
    pub fn is_empty(&self) -> bool {
        self.texts.is_empty()
    }

    /// Returns whether there is a path that both nodes may touch.
    pub fn overlap(&self, other: &Touches) -> bool {
        self.texts.iter().any(|t| other.texts.contains(t))
            || self.globs.iter().any(|a| other.globs.iter().any(|b| meet(a.as_deref(), b.as_deref())))
    }
}

/// Normalizes a glob: `./src/` and `src` are the same.
fn normal(glob: &str) -> &str {
    let glob = glob.trim();
    glob.strip_prefix("./").unwrap_or(glob).trim_end_matches('/')
}

/// Returns one list of tokens for each alternative. A glob over the limits gives `None`, which overlaps with
/// everything.
fn parse_all(text: &str) -> Vec<Option<Vec<Token>>> {
    if text.len() > MAX_GLOB_BYTES {
        return vec![None];
    }
    match alternatives(text) {
        Some(all) => all.iter().map(|one| Some(parse(one))).collect(),
        None => vec![None],
    }
}

/// Expands braces: `a{b,c}` gives `ab` and `ac`. Returns `None` if there are too many alternatives.
fn alternatives(text: &str) -> Option<Vec<String>> {
    let mut done = Vec::new();
    let mut todo = vec![text.to_owned()];
    while let Some(text) = todo.pop() {
        if done.len() + todo.len() >= MAX_ALTERNATIVES {
            return None;
        }
        // The first closing brace ends a pair that contains no other pair.
        let found = text.find('}').and_then(|close| Some((text[..close].rfind('{')?, close)));
        match found {
            None => done.push(text),
            Some((open, close)) => {
                let (head, tail) = (&text[..open], &text[close + 1..]);
                todo.extend(text[open + 1..close].split(',').map(|part| format!("{head}{part}{tail}")));
            }
        }
    }
    Some(done)
}

fn parse(text: &str) -> Vec<Token> {
    let chars: Vec<char> = text.chars().collect();
    let mut tokens = Vec::new();
    let mut i = 0;
    while i < chars.len() {
        let (token, taken) = match chars[i] {
            '*' if chars.get(i + 1) == Some(&'*') => (Token::Stars, 2),
            '*' => (Token::Star, 1),
            '?' => (Token::Any, 1),
            '\\' if i + 1 < chars.len() => (Token::One(chars[i + 1]), 2),
            '[' => class(&chars[i..]).unwrap_or((Token::One('['), 1)),
            c => (Token::One(c), 1),
        };
        // `**/` may match no directory at all.
        if token == Token::Stars && chars.get(i + taken) == Some(&'/') {
            i += 1;
        }
        i += taken;
        tokens.push(token);
    }
    tokens
}

fn class(chars: &[char]) -> Option<(Token, usize)> {
    let negated = matches!(chars.get(1), Some('!' | '^'));
    let start = if negated { 2 } else { 1 };
    // A closing bracket in the first position is a member of the class.
    let close = start + 1 + chars.get(start + 1..)?.iter().position(|c| *c == ']')?;
    let mut ranges = Vec::new();
    let mut i = start;
    while i < close {
        if i + 2 < close && chars[i + 1] == '-' {
            ranges.push((chars[i], chars[i + 2]));
            i += 3;
        } else {
            ranges.push((chars[i], chars[i]));
            i += 1;
        }
    }
    Some((Token::Class { ranges, negated }, close + 1))
}

/// Returns whether two globs match a common path, by a search over the pairs of positions that one text can reach in
/// both.
fn meet(a: Option<&[Token]>, b: Option<&[Token]>) -> bool {
    let (Some(a), Some(b)) = (a, b) else { return true };
    let mut seen = BTreeSet::new();
    let mut todo = vec![(0, 0)];
    while let Some((i, j)) = todo.pop() {
        if !seen.insert((i, j)) {
            continue;
        }
        let (x, y) = (a.get(i), b.get(j));
        if x.is_none() && y.is_none() {
            return true;
        }
        // One glob has ended and names a directory that contains the rest of the other.
        if (x.is_none() && y == Some(&Token::One('/')) && is_name(a))
            || (y.is_none() && x == Some(&Token::One('/')) && is_name(b))
        {
            return true;
        }
        let (Some(x), Some(y)) = (x, y) else {
            // Stars may match nothing.
            if x.is_some_and(is_star) {
                todo.push((i + 1, j));
            }
            if y.is_some_and(is_star) {
                todo.push((i, j + 1));
            }
            continue;
        };
        if is_star(x) {
            todo.push((i + 1, j));
        }
        if is_star(y) {
            todo.push((i, j + 1));
        }
        if share_a_char(x, y) {
            match (is_star(x), is_star(y)) {
                (false, false) => todo.push((i + 1, j + 1)),
                (true, false) => todo.push((i, j + 1)),
                (false, true) => todo.push((i + 1, j)),
                // The moves above already advance either star alone.
                (true, true) => {}
            }
        }
    }
    false
}

/// Returns whether the last component has no wildcard, so that it may name a directory. `src/*` means files.
fn is_name(glob: &[Token]) -> bool {
    glob.iter().rev().take_while(|t| **t != Token::One('/')).all(|t| matches!(t, Token::One(_)))
}

fn is_star(token: &Token) -> bool {
    matches!(token, Token::Star | Token::Stars)
}

fn share_a_char(x: &Token, y: &Token) -> bool {
    match (x, y) {
        (Token::Stars, _) | (_, Token::Stars) => true,
        (Token::One(a), Token::One(b)) => a == b,
        (Token::One(c), other) | (other, Token::One(c)) => holds(other, *c),
        (Token::Class { ranges: a, negated: false }, Token::Class { ranges: b, negated: false }) => {
            a.iter().any(|(low, high)| b.iter().any(|(l, h)| low <= h && l <= high))
        }
        // A negated class overlaps with another one and with nearly everything else.
        (Token::Class { .. } | Token::Any | Token::Star, Token::Class { .. } | Token::Any | Token::Star) => {
            true
        }
    }
}

fn holds(token: &Token, c: char) -> bool {
    match token {
        Token::One(one) => *one == c,
        Token::Any | Token::Star => c != '/',
        Token::Stars => true,
        Token::Class { ranges, negated } => {
            c != '/' && ranges.iter().any(|(low, high)| (*low..=*high).contains(&c)) != *negated
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn overlap(a: &str, b: &str) -> bool {
        let touches = |g: &str| Touches::new(&[g.to_owned()]);
        let there = touches(a).overlap(&touches(b));
        assert_eq!(there, touches(b).overlap(&touches(a)), "{a} and {b}: overlap is not symmetric");
        there
    }

    #[test]
    fn globs_that_share_a_path_overlap() {
        for (a, b) in [
            ("src/main.rs", "src/main.rs"),
            ("src/main.rs", "./src/main.rs"),
            ("src/**", "src/db/auth.rs"),
            ("src/*.rs", "src/m?in.rs"),
            ("**/*.ts", "web/src/app.ts"),
            ("**/*.ts", "app.ts"),
            ("src/*/mod.rs", "src/db/*"),
            ("src", "src/db/auth.rs"),
            ("src/", "src/**/x"),
            ("a[bc]d", "acd"),
            ("a[!x]d", "acd"),
            ("src/{db,web}/**", "src/web/x"),
            ("*", "README.md"),
            ("**", "anything/at/all"),
            ("a*c", "ab*"),
            ("docs/*.md", "docs/{a,b}.md"),
            ("x/**/y", "x/y"),
        ] {
            assert!(overlap(a, b), "{a} and {b} overlap");
        }
    }

    #[test]
    fn globs_without_a_common_path_do_not() {
        for (a, b) in [
            ("src/main.rs", "src/lib.rs"),
            ("src/**", "docs/**"),
            ("src/*.rs", "src/db/auth.rs"),
            ("src/*.rs", "src/*.ts"),
            ("src", "srcs/x"),
            ("a[bc]d", "aed"),
            ("a[!c]d", "acd"),
            ("src/{db,web}/**", "src/api/x"),
            ("*", "src/x.rs"),
            ("src/*", "src/db/auth.rs"),
            ("**/*.ts", "web/app.js"),
            ("a?c", "a/c"),
        ] {
            assert!(!overlap(a, b), "{a} and {b} do not overlap");
        }
    }

    #[test]
    fn a_glob_over_the_limits_overlaps_with_everything() {
        let long = "x".repeat(MAX_GLOB_BYTES + 1);
        assert!(overlap(&long, "src"));
        assert!(!overlap(&long[..MAX_GLOB_BYTES], "src"));
        let many = "{a,b}".repeat(7);
        assert!(overlap(&many, "zzz"));
    }

    #[test]
    fn a_glob_of_many_stars_is_compared_quickly() {
        let stars = "*a".repeat(200);
        assert!(!overlap(&stars, &format!("{}b", "a".repeat(400))));
        assert!(overlap(&stars, &"a".repeat(400)));
    }

    #[test]
    fn a_node_without_globs_overlaps_with_nothing() {
        assert!(!Touches::default().overlap(&Touches::new(&["**".to_owned()])));
    }
}
