//! The list of files that a snapshot leaves out, stored in the message of its commit.

use super::names::{escape, unescape_path};
use std::collections::BTreeSet;
use std::os::unix::ffi::OsStrExt;

/// The most files that are listed. If there are more, the list is incomplete.
pub const MAX_LEFT_OUT: usize = 10_000;

const LINE: &str = "left-out: ";
const MORE: &str = "left-out-more";

/// Paths below the top of the work tree. A path that ends in `/` is a directory with everything in it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct LeftOut {
    pub(super) paths: BTreeSet<Vec<u8>>,
    /// Whether there were more.
    pub(super) more: bool,
}

impl LeftOut {
    pub(super) fn add(&mut self, path: &[u8]) {
        if self.paths.len() < MAX_LEFT_OUT {
            self.paths.insert(path.to_vec());
        } else {
            self.more = true;
        }
    }

    /// Returns the text that follows the first line of the message.
    pub(super) fn to_words(&self) -> String {
        let mut words = String::new();
        if !self.paths.is_empty() || self.more {
            words.push('\n');
        }
        for path in &self.paths {
            words.push_str(&format!("\n{LINE}{}", escape(path)));
        }
        if self.more {
            words.push_str(&format!("\n{MORE}"));
        }
        words
    }

    /// Parses a raw commit object.
    pub(super) fn read(commit: &[u8]) -> LeftOut {
        let text = String::from_utf8_lossy(commit);
        let path =
            |line: &str| Some(unescape_path(line.strip_prefix(LINE)?)?.as_os_str().as_bytes().to_vec());
        LeftOut {
            paths: text.lines().filter_map(path).collect(),
            more: text.lines().any(|line| line == MORE),
        }
    }

    pub(super) fn holds(&self, path: &[u8]) -> bool {
        let below = |at: usize| self.paths.contains(&path[..=at]);
        self.paths.contains(path) || (0..path.len()).any(|at| path[at] == b'/' && below(at))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_list_is_read_as_it_was_written() {
        let mut left_out = LeftOut::default();
        assert_eq!(left_out.to_words(), "");
        for path in [&b"big file"[..], b"nested/", b"odd\n\xff%"] {
            left_out.add(path);
        }
        let commit = format!("tree 1\nparent 2\n\ndogwatch snapshot x{}", left_out.to_words());
        assert_eq!(LeftOut::read(commit.as_bytes()), left_out);
        assert!(left_out.holds(b"big file") && left_out.holds(b"nested/a/b") && left_out.holds(b"nested/"));
        assert!(!left_out.holds(b"big") && !left_out.holds(b"other/nested/a"));
    }

    #[test]
    fn the_list_is_bounded_and_mentions_that_there_is_more() {
        let mut left_out = LeftOut::default();
        (0..MAX_LEFT_OUT).for_each(|n| left_out.add(n.to_string().as_bytes()));
        assert!(!left_out.more);
        left_out.add(b"one more");
        assert_eq!((left_out.paths.len(), left_out.more), (MAX_LEFT_OUT, true));
        assert!(LeftOut::read(left_out.to_words().as_bytes()).more);
    }
}
